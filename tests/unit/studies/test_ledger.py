"""Ledgers: a line that a kill cut off is run again, other damage is never passed over."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskscape.errors import DataError
from taskscape.studies.lab import Lab, read_ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ledger = Lab(tmp_path / "found.jsonl", "the command")
    for n in range(3):
        ledger.add({"n": n}, {"accuracy": n / 10, "who": "é"})
    return ledger.path


def numbers(path: Path) -> list[int]:
    return [entry["cell"]["n"] for entry in read_ledger(path)]


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_last_line_that_was_cut_off_is_run_again(path: Path, ending: str) -> None:
    path.write_text(path.read_text()[:-20] + ending)
    with pytest.warns(UserWarning, match=re.escape(f"the last line of {path} is cut off")):
        ledger = Lab(path)
    assert ledger.get({"n": 1}) is not None
    assert ledger.get({"n": 2}) is None
    ledger.add({"n": 2}, {})
    ledger.add({"n": 3}, {})
    assert numbers(path) == [0, 1, 2, 3]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_last_line_that_only_lacks_its_end_is_kept(path: Path) -> None:
    path.write_text(path.read_text()[:-1])
    Lab(path).add({"n": 3}, {})
    assert numbers(path) == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", ['{"cell": {"n"', "[1]", '{"cell": 3}', "\x00\x00"])
def test_a_bad_line_elsewhere_is_refused(path: Path, bad: str) -> None:
    first, _, last = path.read_text().splitlines()
    path.write_text(f"{first}\n{bad}\n{last}\n")
    with pytest.raises(DataError) as raised:
        Lab(path)
    assert str(raised.value).startswith(
        f"line 2 of {path} is not a finished cell in JSON: {bad!r}. Mend or delete that line"
    )


def test_a_number_that_was_changed_is_noticed(path: Path) -> None:
    path.write_text(path.read_text().replace('"accuracy": 0.1', '"accuracy": 0.9'))
    with pytest.raises(DataError, match=re.escape(f"line 2 of {path} is not a finished cell")):
        Lab(path)


def test_lines_with_no_checksum_or_a_short_one_are_read(path: Path) -> None:
    path.write_text('{"cell": {"n": 1}, "format": 2}\n')
    assert numbers(path) == [1]
    path.write_text('{"cell": {"n": 2}, "format": 2, "checksum": "0123456789abcdef"}\n')
    assert read_ledger(path) == [{"cell": {"n": 2}, "format": 2}]


def test_blank_lines_do_no_harm(path: Path) -> None:
    path.write_text(path.read_text().replace("\n", "\n\n"))
    Lab(path).add({"n": 3}, {})
    assert numbers(path) == [0, 1, 2, 3]


def test_what_ledgers_called_glyphs_before_there_were_symbols_are_the_letters(path: Path) -> None:
    before = {"pool": {"name": "glyphs"}, "features": "glyphs (unit length)", "n": 7}
    path.write_text(json.dumps({"cell": before}) + "\n")
    ledger = Lab(path)
    today = {"pool": {"name": "letters"}, "features": "letters (unit length)", "n": 7}
    assert ledger.get(today) is not None
    assert ledger.get(before) is None
    ledger.add(before, {})
    assert [entry["cell"] for entry in read_ledger(path)] == [today, before]


def test_an_addition_reads_only_what_others_have_added(path: Path) -> None:
    mine, theirs = Lab(path), Lab(path)
    theirs.add({"n": 3}, {"accuracy": 0.3})
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["damaged" + " " * (len(lines[0]) - 7), *lines[1:]]) + "\n")
    mine.add({"n": 4}, {})  # the lines that it has read are not read again
    assert mine.get({"n": 3}) is not None
    path.write_text("\n".join(lines[:1]) + "\n")  # somebody has made the file shorter
    mine.add({"n": 5}, {})
    assert numbers(path) == [0, 5]


@pytest.mark.slow
def test_several_processes_can_add_to_one_ledger(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from taskscape.studies.lab import Lab\n"
        "ledger = Lab(Path(sys.argv[1]))\n"
        "for n in range(40): ledger.add({'n': n, 'who': sys.argv[2]}, {'long': 'x' * 20_000})"
    )
    path = tmp_path / "found.jsonl"
    jobs = [subprocess.Popen([sys.executable, "-c", code, path, who]) for who in "ab"]
    assert [job.wait() for job in jobs] == [0, 0]
    assert sorted(numbers(path)) == sorted(2 * list(range(40)))
