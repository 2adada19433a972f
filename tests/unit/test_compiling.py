"""Compiled programs are kept for later runs, where the user wants it so; seconds are counted."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from taskscape import compiling

ASK = """
import jax
import taskscape.compiling
taskscape.compiling.keep_programs()
print(jax.config.values["jax_compilation_cache_dir"])
print(jax.config.values["jax_persistent_cache_min_compile_time_secs"])
"""
COMPILE = """
import collections, jax
from taskscape.compiling import keep_programs, seconds_compiling
events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event]))
keep_programs()
jax.jit(lambda x: (x @ x).sum() + 1)(jax.numpy.ones((3, 3))).block_until_ready()
print(events["/jax/compilation_cache/cache_misses"], seconds_compiling() > 0)
"""


def run(code: str, cache: Path, **environment: str) -> list[str]:
    """What a fresh Python prints, without the settings that the tests themselves go by."""
    names = [name for name in os.environ if not name.startswith(("JAX_", "TASKSCAPE_"))]
    inherited = {name: os.environ[name] for name in names}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**inherited, "TASKSCAPE_CACHE": str(cache), "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_programs_are_kept_in_the_cache_folder_and_not_compiled_again(tmp_path: Path) -> None:
    first, again = run(COMPILE, tmp_path), run(COMPILE, tmp_path)
    misses, took = first[0].split()
    assert int(misses) > 0
    assert took == "True"
    assert again[0].split()[0] == "0"
    folder, least_seconds = run(ASK, tmp_path)
    assert Path(folder).parent == tmp_path / "compiled"
    assert any(Path(folder).iterdir())
    assert float(least_seconds) == 0


@pytest.mark.parametrize("face", ["TaskThemes", "meta.train"])
def test_whatever_compiles_sees_to_it(face: str, tmp_path: Path) -> None:
    code = f"import jax, taskscape; taskscape.{face}; print(jax.config.jax_compilation_cache_dir)"
    assert run(code, tmp_path)[0].startswith(str(tmp_path / "compiled"))


def test_nothing_is_kept_where_the_user_says_so(tmp_path: Path) -> None:
    assert run(ASK, tmp_path, TASKSCAPE_KEEP_COMPILED="0") == ["None", "1.0"]
    assert not any(tmp_path.iterdir())


def test_settings_of_the_users_own_stay(tmp_path: Path) -> None:
    own = str(tmp_path / "own")
    assert run(ASK, tmp_path, JAX_COMPILATION_CACHE_DIR=own) == [own, "1.0"]
    set_before = f"import jax; jax.config.update('jax_compilation_cache_dir', {own!r})\n"
    assert run(set_before + ASK, tmp_path) == [own, "1.0"]
    longer = run(ASK, tmp_path, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="5")
    assert longer[1] == "5.0"


def test_without_a_folder_to_write_to_it_only_takes_longer(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    assert run(ASK, in_the_way) == ["None", "1.0"]
    assert run(COMPILE, in_the_way)[0].endswith("True")


def test_programs_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_MOST_BYTES", 1000)
    for age in range(12):
        program = tmp_path / ("other" if age % 2 else "this") / f"{age}-cache"
        program.parent.mkdir(exist_ok=True)
        program.write_bytes(bytes(100))
        os.utime(program, (10_000 - age, 10_000 - age))
    compiling._let_go_of_old_programs(tmp_path)
    left = {int(path.name.partition("-")[0]) for path in tmp_path.rglob("*-cache")}
    assert left == set(range(5))
    compiling._let_go_of_old_programs(tmp_path)
    assert len(list(tmp_path.rglob("*-cache"))) == 5


def test_what_is_marked_is_computed_once_on_a_cpu() -> None:
    def twice(x: jax.Array) -> jax.Array:
        squares = jax.lax.optimization_barrier(x * x)
        return squares.sum() + squares[0]

    assert float(compiling.compiled(twice)(jax.numpy.arange(4.0))) == 14


def test_programs_are_compiled_as_usual_where_barriers_cannot_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "_WITH_BARRIERS", {"xla_no_such_option": "1"})
    compiling._barriers_can_stay.cache_clear()
    try:
        assert not compiling._barriers_can_stay()
        power = compiling.compiled(lambda x, n: x**n, static="n")
        assert float(power(2.0, n=3)) == 8
    finally:
        compiling._barriers_can_stay.cache_clear()
