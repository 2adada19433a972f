"""Ledgers: a line that a kill cut off is run again, other damage is never passed over."""

import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskscape.errors import DataError
from taskscape.io.ledger import Ledger, read_ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ledger = Ledger(tmp_path / "found.jsonl", "the command")
    for n in range(3):
        ledger.add({"n": n}, {"accuracy": n / 10, "who": "é"})
    return ledger.path


def numbers(path: Path) -> list[int]:
    return [entry["cell"]["n"] for entry in read_ledger(path)]


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_last_line_that_was_cut_off_is_run_again(path: Path, ending: str) -> None:
    path.write_text(path.read_text()[:-20] + ending)
    with pytest.warns(UserWarning, match=re.escape(f"the last line of {path} is cut off")):
        ledger = Ledger(path)
    assert ledger.get({"n": 1}) is not None
    assert ledger.get({"n": 2}) is None
    ledger.add({"n": 2}, {})
    ledger.add({"n": 3}, {})
    assert numbers(path) == [0, 1, 2, 3]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_last_line_that_only_lacks_its_end_is_kept(path: Path) -> None:
    path.write_text(path.read_text()[:-1])
    Ledger(path).add({"n": 3}, {})
    assert numbers(path) == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", ['{"cell": {"n"', "[1]", '{"cell": 3}', "\x00\x00"])
def test_a_bad_line_elsewhere_is_refused(path: Path, bad: str) -> None:
    first, _, last = path.read_text().splitlines()
    path.write_text(f"{first}\n{bad}\n{last}\n")
    with pytest.raises(DataError) as raised:
        Ledger(path)
    assert str(raised.value).startswith(
        f"line 2 of {path} is not a finished cell in JSON: {bad!r}. Fix or delete that line"
    )


def test_blank_lines_do_no_harm(path: Path) -> None:
    path.write_text(path.read_text().replace("\n", "\n\n"))
    Ledger(path).add({"n": 3}, {})
    assert numbers(path) == [0, 1, 2, 3]


@pytest.mark.slow
def test_several_processes_can_add_to_one_ledger(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from taskscape.io.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "for n in range(40): ledger.add({'n': n, 'who': sys.argv[2]}, {'long': 'x' * 20_000})"
    )
    path = tmp_path / "found.jsonl"
    jobs = [subprocess.Popen([sys.executable, "-c", code, path, who]) for who in "ab"]
    assert [job.wait() for job in jobs] == [0, 0]
    assert sorted(numbers(path)) == sorted(2 * list(range(40)))


def test_a_compressed_ledger_is_read(path: Path) -> None:
    packed = path.with_name("found.jsonl.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert numbers(packed) == [0, 1, 2]
