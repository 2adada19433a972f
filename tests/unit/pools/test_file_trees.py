"""Folders and zips are listed alike; damaged zips are refused."""

import zipfile
from pathlib import Path

import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools import folders
from taskscape.pools.folders import FileTree

FILES = {
    "a/1.png": b"one",
    "a/2.PNG": b"two",
    "b/3.jpg": b"three",
    "b/notes.txt": b"-",
    ".hidden/4.png": b"-",
    "a/._1.png": b"-",
    "__MACOSX/a/1.png": b"-",
}


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_hidden_files_are_left_out(tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        path = files.write_files(tmp_path / "data", FILES)
    else:
        path = files.write_zip(tmp_path / "data.zip", FILES)
    tree = FileTree(path)
    assert [e.parts for e in tree.pictures] == [("a", "1.png"), ("a", "2.PNG"), ("b", "3.jpg")]
    assert len(tree.entries) == 4
    assert tree.folders.keys() == {("a",), ("b",)}
    with tree.pictures[1].open() as file:
        assert file.read() == b"two"


@pytest.mark.parametrize(
    "name", ["../out.png", "a/../../out.png", "/etc/out.png", "C:\\out.png", "..\\out.png"]
)
def test_no_entry_leads_out_of_the_archive(tmp_path: Path, name: str) -> None:
    path = files.write_zip(tmp_path / "bad.zip", {"a/1.png": b"-", name: b"-"})
    entries = FileTree(path).entries
    assert not {"..", "", "/"} & {part for entry in entries for part in entry.parts}
    for entry in entries:
        entry.open().close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.zip"]


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    path = files.write_zip(tmp_path / "bad.zip", {}, links={"a/1.png": "/etc/passwd"})
    with pytest.raises(DataError, match=r"member a/1\.png is a link"):
        _ = FileTree(path).entries


def test_of_a_name_used_twice_the_last_is_read_as_unzip_does(tmp_path: Path) -> None:
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/1.png", b"old")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a/1.png", b"new")
    assert [entry.open().read() for entry in FileTree(path).entries] == [b"new"]


def test_an_entry_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_BYTES", 1 << 20)
    path = files.write_zip(tmp_path / "bomb.zip", {"a/1.png": bytes(3 << 20)})
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"member a/1\.png is 3 MB; .* 1 MB"):
        FileTree(path).entries[0].open()


def test_an_entry_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = files.write_zip(tmp_path / "bomb.zip", {"a/1.png": bytes(5_000_000)})
    path.write_bytes(path.read_bytes().replace((5_000_000).to_bytes(4, "little"), b"\x10\0\0\0"))
    with pytest.raises(DataError, match=r"member a/1\.png cannot be read"):
        FileTree(path).entries[0].open()


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.99])
def test_a_truncated_zip_is_an_error(tmp_path: Path, part: float) -> None:
    path = files.write_zip(tmp_path / "short.zip", files.picture_files())
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(DataError, match=r"short\.zip is not a readable zip"):
        _ = FileTree(path).entries


def test_damage_inside_a_zip_names_the_member(tmp_path: Path) -> None:
    path = files.write_zip(tmp_path / "bad.zip", {"a/1.png": files.drawing(1)})
    data = bytearray(path.read_bytes())
    data[200:220] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"bad\.zip: member a/1\.png cannot"):
        FileTree(path).entries[0].open()


def test_an_encrypted_entry_is_an_error(tmp_path: Path) -> None:
    path = files.write_zip(tmp_path / "locked.zip", {"a/1.png": b"secret"})
    data = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"cannot be read .*password"):
        FileTree(path).entries[0].open()


def test_loops_of_links_are_not_followed(tmp_path: Path) -> None:
    root = files.write_files(tmp_path / "data", {"a/1.png": b"-", "b/2.png": b"-"})
    (root / "a" / "up").symlink_to(root, target_is_directory=True)
    (root / "c").symlink_to(root / "b", target_is_directory=True)
    assert [e.parts for e in FileTree(root).pictures] == [
        ("a", "1.png"),
        ("b", "2.png"),
        ("c", "2.png"),
    ]


def test_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    root = files.write_files(tmp_path / "data", {"a/1.png": b"-"})
    (root / "a" / "2.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"2\.png is a link to nothing"):
        _ = FileTree(root).entries


def test_the_stamp_changes_with_any_file(tmp_path: Path) -> None:
    root = files.write_files(tmp_path / "data", {"a/1.png": b"-", "b/2.png": b"-"})
    before = FileTree(root).stamp
    assert FileTree(root).stamp == before
    (root / "b" / "2.png").write_bytes(b"--")
    assert FileTree(root).stamp != before
