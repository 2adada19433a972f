"""Ctrl-C and other signals: commands save their state, say how to resume them, and end."""

import signal
import sys
import time
import tomllib
from pathlib import Path

import pytest
import typer

from interrupt_cases import start_hearing
from taskscape.cli.interrupts import resumable

PROJECT = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text("utf-8"))
COMMAND = PROJECT["project"]["scripts"]["taskscape"]
START = """
import sys, time
from taskscape.cli.interrupts import heed_interrupts
"""
COMPUTING_BEHIND = """
import threading
import jax, jax.numpy as jnp
endless = jax.jit(lambda x: jax.lax.while_loop(lambda v: v[0] < 2, lambda v: jnp.sin(v), x))
with heed_interrupts():
    threading.Thread(target=lambda: endless(jnp.ones(1000)).block_until_ready()).start()
    print("begun", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("saved", flush=True)
        sys.exit(7)  # without more, the end of Python would wait for the thread
"""
SAVING = """
with heed_interrupts():
    print("begun", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(3)
        print("saved", flush=True)
        raise
"""


def interrupted(body: str, number: int = signal.SIGINT) -> tuple[float, int, str, str]:
    """Seconds from the interrupt to the end, exit code, output and errors."""
    child = start_hearing([sys.executable, "-c", START + body])
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    time.sleep(1)
    child.send_signal(number)
    began = time.perf_counter()
    try:
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    return time.perf_counter() - began, child.returncode, out, err


pytestmark = pytest.mark.slow


def test_a_command_says_how_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = tmp_path / "m.checkpoint"
    resume_words = (
        f"the last state is in {checkpoint}. Run the same command with --resume to continue."
    )
    for speaks, output in ((True, "interrupted; no state was saved yet."), (False, "")):
        with pytest.raises(typer.Exit) as ended, resumable(checkpoint, speaks):
            raise KeyboardInterrupt
        assert ended.value.exit_code == 130
        assert capsys.readouterr().err.strip() == output
    checkpoint.touch()
    with pytest.raises(typer.Exit), resumable(checkpoint):
        raise KeyboardInterrupt
    assert capsys.readouterr().err.strip() == f"interrupted; {resume_words}"


def test_a_second_ctrl_c_ends_at_once() -> None:
    child = start_hearing([sys.executable, "-c", START + SAVING])
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    for _ in range(2):
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
    began = time.perf_counter()
    out, err = child.communicate(timeout=30)
    assert time.perf_counter() - began < 2
    assert (child.returncode, out, err) == (130, "", "")


def test_threads_that_compute_are_not_waited_for() -> None:
    seconds, code, out, _ = interrupted(COMPUTING_BEHIND)
    assert seconds < 5
    assert (code, out) == (7, "saved\n")


def test_what_handles_the_interrupt_may_take_its_time() -> None:
    seconds, code, out, _ = interrupted(SAVING)
    assert seconds > 2.5
    assert (code, out) == (130, "saved\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_scheduler_that_takes_the_machine_back_is_heard(number: int, code: int) -> None:
    _, ended, out, _ = interrupted(SAVING, number)
    assert (ended, out) == (code, "saved\n")


@pytest.mark.parametrize(
    ("imported", "script"),
    [("typer", True), ("numpy", False), ("jax._src.config", True), ("taskscape.model", False)],
)
def test_while_python_imports_it_ends_quietly(imported: str, script: bool, tmp_path: Path) -> None:
    entry = tmp_path / "taskscape"  # what an installed command consists of
    module, _, function = COMMAND.partition(":")
    entry.write_text(f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    start = [str(entry)] if script else ["-m", "taskscape"]
    child = start_hearing(
        [sys.executable, "-X", "importtime", *start, "embed", "m", "glyphs", "--out", "x.parquet"]
    )
    assert child.stderr is not None
    assert any(line.split("|")[-1].strip() == imported for line in child.stderr)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_a_program_that_imports_taskscape_keeps_its_own_handling() -> None:
    code = "import signal, taskscape; print(signal.getsignal(2) is signal.default_int_handler)"
    assert start_hearing([sys.executable, "-c", code]).communicate()[0] == "True\n"


def test_everything_is_put_back_afterwards() -> None:
    from taskscape.cli.interrupts import heed_interrupts

    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with heed_interrupts():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with heed_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, inherited)
