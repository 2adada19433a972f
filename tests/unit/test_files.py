"""Files and folders in one piece: whole, or as they were before."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from taskscape import files
from taskscape.errors import DataError
from taskscape.files import (
    PICTURE,
    Kind,
    check_output,
    csv_with,
    folder_in_one_piece,
    json_with,
    recover,
    save_picture,
    written_in_one_piece,
)

NOTE = Kind("a note", lambda path: path.read_text().startswith("note"))


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
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
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


@pytest.fixture
def leavings(tmp_path: Path) -> list[str]:
    """What killed processes left beside ``m``, and a folder of the user's."""
    (tmp_path / ".m-unfinished-abc").mkdir()
    (tmp_path / ".m-unfinished-abc" / "half").write_text("half")
    (tmp_path / ".m-unfinished-def").write_text("half")
    (tmp_path / ".m-notes").mkdir()
    return names(tmp_path)


def write(path: Path, kind: str) -> None:
    if kind == "folder":
        write_folder(path, "x")
    else:
        with written_in_one_piece(path) as made:
            made.write_text("x")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_killed_processes_left_is_swept_by_the_next_that_writes(
    tmp_path: Path, kind: str, leavings: list[str]
):
    write(tmp_path / "m", kind)
    assert names(tmp_path) == [".m-notes", "m"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_living_process_writes_is_not_swept_however_long_it_takes(tmp_path: Path, kind: str):
    opened = "folder_in_one_piece" if kind == "folder" else "written_in_one_piece"
    script = f"""
from taskscape.files import {opened}

with {opened}({str(tmp_path / "m")!r}):
    print("ready", flush=True)
    input()
"""
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        (unfinished,) = tmp_path.iterdir()
        os.utime(unfinished, (0, 0))
        write(tmp_path / "m", kind)
        assert names(tmp_path) == [unfinished.name, "m"]
        writer.kill()
    write(tmp_path / "m", kind)
    assert names(tmp_path) == ["m"]


def test_where_the_system_has_no_locks_leavings_are_swept_after_a_day(
    tmp_path: Path, leavings: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "_lock", lambda file, wait: None)
    write(tmp_path / "m", "file")
    assert names(tmp_path) == [*leavings, "m"]  # they may be another process's, still at work
    yesterday = time.time() - 25 * 3600
    for name in leavings:
        os.utime(tmp_path / name, (yesterday, yesterday))
    write(tmp_path / "m", "file")
    assert names(tmp_path) == [".m-notes", "m"]


def test_a_new_file_that_was_swept_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    swept = []
    real = files.lock_open_file

    def late(file: int, *, wait: bool = True) -> bool:
        if not swept:
            swept.extend(tmp_path.glob(".m-unfinished-*"))
            swept[0].unlink()
        return real(file, wait=wait)

    monkeypatch.setattr(files, "lock_open_file", late)
    write(tmp_path / "m", "file")
    assert swept
    assert names(tmp_path) == ["m"]


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


def test_threads_that_write_leave_the_mask_of_new_files_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    umask = os.umask

    def slow(mask: int) -> int:
        was = umask(mask)
        time.sleep(0.01)
        return was

    def write(i: int) -> None:
        with written_in_one_piece(tmp_path / str(i)) as file:
            file.write_text("x")

    before = umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", slow)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(8)))
        assert umask(0o027) == 0o027
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
    finally:
        umask(before)


@pytest.mark.parametrize("step", ["_exchange", "rename 1", "rename 2", "rename 3", "rmtree"])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_killed_at_any_step_the_old_or_the_new_folder_is_there(
    tmp_path: Path, step: str, can_exchange: bool
):
    """A process that ends at a step as if it were killed; then somebody opens the folder."""
    final = tmp_path / "m"
    write_folder(final, "before")
    (tmp_path / "other").mkdir()
    exchanged = files._exchange(final, tmp_path / "other")
    if can_exchange and not exchanged:
        pytest.skip("this system cannot exchange folders")
    if exchanged:
        files._exchange(final, tmp_path / "other")
    (tmp_path / "other").rmdir()
    script = f"""
import os, shutil, sys, types
from pathlib import Path
sys.modules["taskscape"] = types.ModuleType("taskscape")  # without all that it imports
sys.modules["taskscape"].__path__ = [{str(Path(files.__file__).parent)!r}]
from taskscape import files

calls = []
def ending(name, real):
    def call(*args, **rest):
        calls.append(name)
        if {step!r} in (name, f"{{name}} {{calls.count(name)}}"):
            os._exit(9)
        return real(*args, **rest)
    return call

Path.rename = ending("rename", Path.rename)
files.shutil.rmtree = ending("rmtree", shutil.rmtree)
files._exchange = ending("_exchange", files._exchange if {can_exchange} else lambda *_: False)
with files.folder_in_one_piece({str(final)!r}) as made:
    (made / "a.txt").write_text("after")
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == (0 if can_exchange and step.startswith("rename") else 9), done.stderr
    recover(final)
    new = step in ("rmtree", "rename 3") or done.returncode == 0
    assert (final / "a.txt").read_text() == ("after" if new else "before")
    write_folder(final, "again")
    assert (final / "a.txt").read_text() == "again"
    assert names(tmp_path) == ["m"]


def test_a_folder_moved_aside_is_put_back_before_sweeping(tmp_path: Path):
    for aside, text in ((".m-before-old", "older"), (".m-before-new", "newer")):
        (tmp_path / aside / "m").mkdir(parents=True)
        (tmp_path / aside / "m" / "a.txt").write_text(text)
    for name, days in ((".m-before-old", 3), (".m-before-new", 2)):
        then = time.time() - days * 24 * 3600
        os.utime(tmp_path / name, (then, then))
    with pytest.raises(OSError, match="disk full"), folder_in_one_piece(tmp_path / "m"):
        raise OSError("disk full")
    assert (tmp_path / "m" / "a.txt").read_text() == "newer"


def test_everything_is_on_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced = []
    real = files._onto_disk
    monkeypatch.setattr(
        files, "_onto_disk", lambda p: (synced.append((p.name, (tmp_path / "m").exists())), real(p))
    )
    with folder_in_one_piece(tmp_path / "m") as made:
        (made / "deep").mkdir()
        (made / "deep" / "a.txt").write_text("x")
    assert {(n if n in ("deep", "a.txt") else "top", there) for n, there in synced} == {
        ("deep", False), ("a.txt", False), ("top", False), ("top", True),
    }  # fmt: skip


def test_a_link_is_kept_and_what_it_names_is_written(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("before")
    write_folder(tmp_path / "real" / "m", "before")
    for name in ("f", "m", "new"):
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    for name in ("f", "new"):
        with written_in_one_piece(tmp_path / name) as made:
            made.write_text("after")
        assert (tmp_path / "real" / name).read_text() == "after"
    write_folder(tmp_path / "m", "after")
    assert (tmp_path / "real" / "m" / "a.txt").read_text() == "after"
    assert all((tmp_path / name).is_symlink() for name in ("f", "m", "new"))
    assert names(tmp_path / "real") == ["f", "m", "new"]


def file_at(path: Path) -> None:
    with written_in_one_piece(path) as made:
        made.write_text("x")


def test_only_regular_files_and_folders_are_replaced(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    refused: list[tuple[Callable[[Path], None], str, str]] = [
        (file_at, "pipe", "a regular file"),
        (file_at, "folder", "a regular file"),
        (file_at, "round", "a regular file"),
        (lambda p: write_folder(p, "x"), "file", "a folder"),
        (lambda p: write_folder(p, "x"), "pipe", "a folder"),
    ]
    for write, name, wanted in refused:
        with pytest.raises(DataError) as raised:
            write(tmp_path / name)
        assert str(raised.value) == (
            f"{tmp_path / name} exists and is not {wanted}; it is left as it is. "
            "Choose another name."
        )
    with pytest.raises(DataError, match=r"^/dev/null exists and is not a regular file"):
        file_at(Path("/dev/null"))
    assert names(tmp_path) == ["file", "folder", "pipe", "round"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: Path):
    mine, ours = tmp_path / "mine.txt", tmp_path / "ours.txt"
    mine.write_text("years of work")
    (tmp_path / "empty.txt").touch()
    ours.write_text("note 1")
    for name in ("ours.txt", "empty.txt", "new.txt"):
        check_output(tmp_path / name, NOTE, mine, None)
    for write in (check_output, lambda p, kind: written_in_one_piece(p, kind).__enter__()):
        with pytest.raises(DataError) as raised:
            write(mine, NOTE)
        assert str(raised.value) == (
            f"{mine} exists and is not a note written by taskscape; it is left as it is. "
            "Choose another name."
        )
    assert mine.read_text() == "years of work"
    with pytest.raises(DataError, match=r"ours.txt is named twice, and one would replace"):
        check_output(ours, NOTE, tmp_path / "." / "ours.txt")
    with pytest.raises(DataError, match=r"cannot be written: .*mine.txt is not a folder that you"):
        check_output(mine / "deeper" / "x", NOTE)


def test_tables_and_json_are_known_by_their_columns_and_keys(tmp_path: Path):
    path = tmp_path / "x"
    table = csv_with("a table", "task", "distance")
    for text, ours in (
        ("task,distance\n1,2\n", True),
        ("task,distance,accuracy\n1,2,3\n", False),
        ("distance\n1\n", False),
        ("\n", False),
    ):
        path.write_text(text)
        assert table.known(path) is ours
    assert csv_with("a table", "task", more="because").known(path) is False
    path.write_text("task,because of x\n1,2\n")
    assert csv_with("a table", "task", more="because").known(path) is True
    found = json_with("a thing", "size", what="thing")
    for text, ours in (
        ('{"what": "thing", "size": 1}', True),
        ('{"what": "other", "size": 1}', False),
        ('{"what": "thing"}', False),
        ("[]", False),
        ("{", False),
    ):
        path.write_text(text)
        assert found.known(path) is ours
    path.write_bytes(b"\xff\xfe")
    assert not found.known(path)
    assert not table.known(path)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_replaced_only_if_it_is_ours(tmp_path: Path, ending: str):
    path, mine = tmp_path / f"a.{ending}", tmp_path / f"mine.{ending}"
    for _ in range(2):
        save_picture(Figure(figsize=(1, 1)), path)
    assert PICTURE.known(path)
    Figure(figsize=(1, 1)).savefig(mine)
    before = mine.read_bytes()
    with pytest.raises(DataError, match="exists and is not a picture written by taskscape"):
        save_picture(Figure(figsize=(1, 1)), mine)
    assert mine.read_bytes() == before


@pytest.mark.parametrize("replace", [True, False])
def test_a_folder_that_another_process_finishes_in_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    real, path = Path.rename, tmp_path / "m"

    def rename(self: Path, to: Path) -> Path:
        monkeypatch.setattr(Path, "rename", real)
        path.mkdir()
        (path / "value").write_text("theirs")
        return real(self, to)

    with folder_in_one_piece(path, replace=replace) as made:
        (made / "value").write_text("ours")
        monkeypatch.setattr(Path, "rename", rename)
    assert (path / "value").read_text() == ("ours" if replace else "theirs")
    assert list(tmp_path.iterdir()) == [path]
