"""Files and folders in one piece: whole, or as they were before."""

import os
import time
from pathlib import Path

import pytest

from taskscape.files import folder_in_one_piece, written_in_one_piece


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def write_folder(path: Path, text: str, *, replace: bool = True) -> None:
    with folder_in_one_piece(path, replace=replace) as made:
        (made / "a.txt").write_text(text)


def fail_midway(path: Path) -> None:
    """Write a file, or a folder if one stands there, up to the half."""
    if path.is_dir():
        with folder_in_one_piece(path) as made:
            (made / "a.txt").write_text("half")
            raise OSError("disk full")
    with written_in_one_piece(path) as made:
        made.write_text("half")
        raise OSError("disk full")


def test_a_file_appears_in_one_piece(tmp_path: Path):
    with written_in_one_piece(tmp_path / "deep" / "a.txt") as made:
        made.write_text("whole")
        assert not (tmp_path / "deep" / "a.txt").exists()
    assert (tmp_path / "deep" / "a.txt").read_text() == "whole"
    assert names(tmp_path / "deep") == ["a.txt"]


def test_a_file_that_fails_leaves_what_was_there(tmp_path: Path):
    (tmp_path / "a.txt").write_text("before")
    with pytest.raises(OSError, match="disk full"):
        fail_midway(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "before"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_replaces_the_one_before(tmp_path: Path):
    write_folder(tmp_path / "m", "first")
    write_folder(tmp_path / "m", "second")
    assert (tmp_path / "m" / "a.txt").read_text() == "second"
    assert names(tmp_path) == ["m"]


def test_a_folder_may_be_asked_to_stay(tmp_path: Path):
    write_folder(tmp_path / "m", "first")
    write_folder(tmp_path / "m", "second", replace=False)
    assert (tmp_path / "m" / "a.txt").read_text() == "first"
    assert names(tmp_path) == ["m"]


def test_a_folder_that_fails_leaves_what_was_there(tmp_path: Path):
    write_folder(tmp_path / "m", "before")
    with pytest.raises(OSError, match="disk full"):
        fail_midway(tmp_path / "m")
    assert (tmp_path / "m" / "a.txt").read_text() == "before"
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_folder_whose_renaming_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
):
    write_folder(tmp_path / "m", "before")
    rename, calls = Path.rename, []

    def sometimes(self: Path, target: Path) -> Path:
        calls.append(self.name)
        if len(calls) == failing:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", sometimes)
    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "m", "after")
    assert (tmp_path / "m" / "a.txt").read_text() == "before"
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_swept_after_a_day(tmp_path: Path, kind: str):
    def write() -> None:
        if kind == "folder":
            write_folder(tmp_path / "m", "x")
        else:
            with written_in_one_piece(tmp_path / "m") as made:
                made.write_text("x")

    (tmp_path / ".m-unfinished-abc").mkdir()
    (tmp_path / ".m-unfinished-abc" / "half").write_text("half")
    (tmp_path / ".m-unfinished-def").write_text("half")
    (tmp_path / ".m-notes").mkdir()
    yesterday = time.time() - 25 * 3600
    write()
    left = [".m-notes", ".m-unfinished-abc", ".m-unfinished-def", "m"]
    assert names(tmp_path) == left  # they may be another process's, still at work
    for name in left[:3]:
        os.utime(tmp_path / name, (yesterday, yesterday))
    write()
    assert names(tmp_path) == [".m-notes", "m"]


def test_what_was_private_while_unfinished_becomes_as_readable_as_any_other(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_folder(tmp_path / "m", "x")
        with written_in_one_piece(tmp_path / "f") as made:
            made.write_text("x")
    finally:
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640
