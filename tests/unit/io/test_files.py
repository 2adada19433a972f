"""Atomic writes of files and folders: whole, or as they were before."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from taskscape.errors import DataError
from taskscape.io import files
from taskscape.io.arrays import load_arrays, save_arrays
from taskscape.io.files import (
    Kind,
    atomic_folder,
    atomic_write,
    check_output,
    json_with,
)
from taskscape.io.pictures import PICTURE, save_picture
from taskscape.io.tables import table_with

NOTE = Kind("a note", lambda path: path.read_text().startswith("note"))


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def write_folder(path: Path, text: str, *, replace: bool = True) -> None:
    with atomic_folder(path, replace=replace) as unfinished:
        (unfinished / "a.txt").write_text(text)


def fail_midway(path: Path) -> None:
    """Write a file, or a folder if one stands there, up to the half."""
    if path.is_dir():
        with atomic_folder(path) as unfinished:
            (unfinished / "a.txt").write_text("half")
            raise OSError("disk full")
    with atomic_write(path) as unfinished:
        unfinished.write_text("half")
        raise OSError("disk full")


def test_a_file_appears_whole(tmp_path: Path):
    with atomic_write(tmp_path / "deep" / "a.txt") as unfinished:
        unfinished.write_text("whole")
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


@pytest.fixture
def leavings(tmp_path: Path) -> list[str]:
    """What killed processes left beside ``m``, and a folder of the user's."""
    (tmp_path / ".m-unfinished-abc").mkdir()
    (tmp_path / ".m-unfinished-abc" / "half").write_text("half")
    (tmp_path / ".m-unfinished-def").write_text("half")
    (tmp_path / ".m-notes").mkdir()
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    return names(tmp_path)


def write(path: Path, kind: str) -> None:
    if kind == "folder":
        write_folder(path, "x")
    else:
        with atomic_write(path) as unfinished:
            unfinished.write_text("x")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_killed_processes_left_is_removed_by_the_next_that_writes(
    tmp_path: Path, kind: str, leavings: list[str]
):
    write(tmp_path / "m", kind)
    assert names(tmp_path) == [".m-notes", "m"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_another_process_may_still_write_is_left(
    tmp_path: Path, kind: str, leavings: list[str]
):
    for changed in (".m-unfinished-abc/half", ".m-unfinished-def"):
        os.utime(tmp_path / changed)
    write(tmp_path / "m", kind)
    assert names(tmp_path) == [*leavings, "m"]


def test_what_was_private_while_unfinished_becomes_as_readable_as_any_other(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_folder(tmp_path / "m", "x")
        with atomic_write(tmp_path / "f") as unfinished:
            unfinished.write_text("x")
    finally:
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("step", ["rename 1", "rename 2", "rename 3", "rmtree 1"])
def test_killed_at_any_step_the_old_or_the_new_folder_is_there(tmp_path: Path, step: str):
    """A process that ends at a step as if it were killed; then another one writes the folder."""
    final = tmp_path / "m"
    write_folder(final, "before")
    script = f"""
import os, shutil, sys, types
from pathlib import Path
sys.modules["taskscape"] = types.ModuleType("taskscape")  # without all that it imports
sys.modules["taskscape"].__path__ = [{str(Path(files.__file__).parents[1])!r}]
from taskscape.io import files

calls = []
def ending(name, real):
    def call(*args, **rest):
        calls.append(name)
        if {step!r} == f"{{name}} {{calls.count(name)}}":
            os._exit(9)
        return real(*args, **rest)
    return call

Path.rename = ending("rename", Path.rename)
files.shutil.rmtree = ending("rmtree", shutil.rmtree)
with files.atomic_folder({str(final)!r}) as made:
    (made / "a.txt").write_text("after")
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == 9, done.stderr
    old = final if step == "rename 1" else next(tmp_path.glob(".m-unfinished-*-old"), None)
    if step in ("rename 1", "rename 2"):
        assert old is not None
        assert (old / "a.txt").read_text() == "before"
    else:
        assert (final / "a.txt").read_text() == "after"
    for left in (path for path in tmp_path.rglob("*") if path != final):
        os.utime(left, (0, 0))
    write_folder(final, "again")
    assert (final / "a.txt").read_text() == "again"
    assert names(tmp_path) == ["m"]


def test_everything_is_on_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced = []
    real = files._onto_disk
    monkeypatch.setattr(
        files, "_onto_disk", lambda p: (synced.append((p.name, (tmp_path / "m").exists())), real(p))
    )
    with atomic_folder(tmp_path / "m") as unfinished:
        (unfinished / "deep").mkdir()
        (unfinished / "deep" / "a.txt").write_text("x")
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
        with atomic_write(tmp_path / name) as unfinished:
            unfinished.write_text("after")
        assert (tmp_path / "real" / name).read_text() == "after"
    write_folder(tmp_path / "m", "after")
    assert (tmp_path / "real" / "m" / "a.txt").read_text() == "after"
    assert all((tmp_path / name).is_symlink() for name in ("f", "m", "new"))
    assert names(tmp_path / "real") == ["f", "m", "new"]


def file_at(path: Path) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text("x")


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
        with pytest.raises(DataError, match=f"{name} exists and is not {wanted}; it is left"):
            write(tmp_path / name)
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
    for write in (check_output, lambda p, kind: atomic_write(p, kind).__enter__()):
        with pytest.raises(DataError, match=f"{mine.name} exists and is not a note"):
            write(mine, NOTE)
    assert mine.read_text() == "years of work"
    with pytest.raises(DataError, match=r"ours.txt is named twice, and one would replace"):
        check_output(ours, NOTE, tmp_path / "." / "ours.txt")
    with pytest.raises(DataError, match=r"cannot be written: .*mine.txt is not a folder that you"):
        check_output(mine / "deeper" / "x", NOTE)


def test_tables_and_json_are_known_by_their_columns_and_keys(tmp_path: Path):
    path = tmp_path / "x"
    table = table_with("a table", "task", "distance")
    for text, ours in (
        ("task,distance\n1,2\n", True),
        ("task,distance,accuracy\n1,2,3\n", False),
        ("distance\n1\n", False),
        ("\n", False),
    ):
        path.write_text(text)
        assert table.known(path) is ours
    assert table_with("a table", "task", more="because").known(path) is False
    path.write_text("task,because of x\n1,2\n")
    assert table_with("a table", "task", more="because").known(path) is True
    result = json_with("a thing", "size", what="thing")
    for text, ours in (
        ('{"what": "thing", "size": 1}', True),
        ('{"what": "other", "size": 1}', False),
        ('{"what": "thing"}', False),
        ("[]", False),
        ("{", False),
    ):
        path.write_text(text)
        assert result.known(path) is ours
    path.write_bytes(b"\xff\xfe")
    assert not result.known(path)
    assert not table.known(path)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_replaced_and_other_files_are_not(tmp_path: Path, ending: str):
    path, mine = tmp_path / f"a.{ending}", tmp_path / "mine"
    for _ in range(2):
        save_picture(Figure(figsize=(1, 1)), path)
    assert PICTURE.known(path)
    mine.write_text("years of work")
    with pytest.raises(DataError, match="exists and is not a picture written by taskscape"):
        save_picture(Figure(figsize=(1, 1)), mine)
    assert mine.read_text() == "years of work"


def test_a_folder_that_another_process_finishes_in_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, path = Path.rename, tmp_path / "m"

    def rename(self: Path, to: Path) -> Path:
        monkeypatch.setattr(Path, "rename", real)
        path.mkdir()
        (path / "value").write_text("theirs")
        return real(self, to)

    with atomic_folder(path, replace=False) as unfinished:
        (unfinished / "value").write_text("ours")
        monkeypatch.setattr(Path, "rename", rename)
    assert (path / "value").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_processes_that_replace_one_folder_take_turns(tmp_path):
    save_arrays(tmp_path / "model", {"a": np.zeros(3)}, {"what": "model"})
    write = f"""
import numpy as np
from pathlib import Path
from taskscape.io.arrays import save_arrays
for i in range(60):
    save_arrays(Path({str(tmp_path)!r}) / "model", {{"a": np.full(3, i)}}, {{"what": "model"}})
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen([sys.executable, "-c", write], env=env, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[1] for process in both] == [b"", b""]
    assert load_arrays(tmp_path / "model", "model")[0]["a"].tolist() == [59.0] * 3
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]
