"""Arrays with a header on disk: what is damaged is said to be, and never read."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from taskscape.errors import DataError
from taskscape.io import arrays as module
from taskscape.io import values as json_values
from taskscape.io.arrays import load_arrays, load_checkpoint, save_arrays, save_checkpoint
from taskscape.io.values import FORMAT, versions

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "t": np.array(3, dtype=np.int32),
    "mask": np.array([True, False]),
}
HEADER = {"what": "thing", "size": np.int64(3), "rate": np.float32(0.5), "words": "λ"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_arrays(tmp_path / "m", ARRAYS, HEADER)
    return tmp_path / "m"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "c", ARRAYS, HEADER)
    return tmp_path / "c"


def edit_header(folder: Path, **changes: object) -> None:
    """As if it had been written like that."""
    path = folder / "header.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def assert_same(arrays: dict[str, np.ndarray]) -> None:
    assert set(arrays) == set(ARRAYS)
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], values, strict=True)


def expect(facts: str, call: Callable[[], object]) -> None:
    with pytest.raises(DataError, match=re.escape(facts)):
        call()


def test_a_folder_comes_back_the_same(folder: Path):
    arrays, header = load_arrays(folder, "thing")
    assert_same(arrays)
    assert header["size"] == 3
    assert header["rate"] == 0.5
    assert header["words"] == "λ"
    assert header["versions"] == versions()
    assert set(versions()) == {"python", "taskscape", "jax", "jaxlib", "numpy", "scikit-learn"}
    assert sorted(p.name for p in folder.iterdir()) == ["arrays.safetensors", "header.json"]


def test_there_may_be_no_such_folder(tmp_path: Path):
    expect(
        f"no thing at {tmp_path / 'no'}",
        lambda: load_arrays(tmp_path / "no", "thing"),
    )


@pytest.mark.parametrize("name", ["header.json", "arrays.safetensors"])
def test_a_missing_file_is_named(folder: Path, name: str):
    (folder / name).unlink()
    expect(f"not a thing: {name} is missing", lambda: load_arrays(folder, "thing"))


def test_a_header_that_is_no_json(folder: Path):
    (folder / "header.json").write_text('{"what": ')
    with pytest.raises(DataError, match=r"m is damaged: header.json cannot be read \(Expecting"):
        load_arrays(folder, "thing")
    (folder / "header.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"m is damaged: header.json cannot be read \('utf-8'"):
        load_arrays(folder, "thing")


@pytest.mark.parametrize("text", ["[]", "{}", '{"what": "other"}'])
def test_another_kind_of_folder(folder: Path, text: str):
    (folder / "header.json").write_text(text)
    expect("does not hold a thing", lambda: load_arrays(folder, "thing"))


def test_a_newer_or_odd_format(folder: Path):
    edit_header(folder, format=FORMAT + 1)
    expect(
        "written by a newer taskscape; please upgrade",
        lambda: load_arrays(folder, "thing"),
    )
    edit_header(folder, format="x")
    expect("format='x' is not a number", lambda: load_arrays(folder, "thing"))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "checksum"])
def test_arrays_must_match_the_checksum(folder: Path, damage: str):
    path = folder / "arrays.safetensors"
    raw = bytearray(path.read_bytes())
    if damage == "checksum":
        edit_header(folder, sha256="0" * 64)
    elif damage == "flipped":
        raw[-1] ^= 1
        path.write_bytes(raw)
    else:
        path.write_bytes(raw[:-5])
    expect(
        f"{folder} is damaged: arrays.safetensors does not match",
        lambda: load_arrays(folder, "thing"),
    )


def test_saving_again_replaces_and_saving_elsewhere_does_not_delete(folder: Path, tmp_path: Path):
    save_arrays(folder, ARRAYS, HEADER | {"words": "again"})
    assert load_arrays(folder, "thing")[1]["words"] == "again"
    (tmp_path / "thesis").mkdir()
    save_arrays(tmp_path / "thesis", ARRAYS, HEADER)  # an empty folder is no loss
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "plain.txt").write_text("also")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "header.json").write_text('{"title": "mine"}')
    save_arrays(tmp_path / "other", ARRAYS, HEADER | {"what": "other thing"})
    for name, kind in (
        ("thesis", "a thing written by taskscape"),
        ("mine", "a thing written by taskscape"),
        ("other", "a thing written by taskscape"),
        ("plain.txt", "a folder"),
    ):
        expect(
            f"{name} exists and is not {kind}; it is left as it is",
            lambda name=name: save_arrays(tmp_path / name, ARRAYS, HEADER),
        )
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
    assert (tmp_path / "mine" / "header.json").read_text() == '{"title": "mine"}'
    assert load_arrays(tmp_path / "other", "other thing")


@pytest.mark.parametrize("fails", ["write_bytes", "write_text", "rename"])
def test_a_failure_midway_leaves_the_old_one_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str
):
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, fails, fail)
        with pytest.raises(OSError, match="disk full"):
            save_arrays(folder, ARRAYS, HEADER | {"words": "new"})
    arrays, header = load_arrays(folder, "thing")
    assert_same(arrays)
    assert header["words"] == "λ"
    assert [p.name for p in folder.parent.iterdir()] == ["m"]


def test_what_json_does_not_know_is_an_error_before_anything_is_written(tmp_path: Path):
    with pytest.raises(TypeError, match="set"):
        save_arrays(tmp_path / "m", ARRAYS, {"what": {1}})
    assert not list(tmp_path.iterdir())


def test_a_version_that_is_not_known_is_no_error(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise json_values.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(json_values.metadata, "version", missing)
    assert versions()["jax"] == "unknown"


def test_a_checkpoint_comes_back_the_same(file: Path):
    arrays, header = load_checkpoint(file)
    assert_same(arrays)
    assert header["what"] == "thing"
    assert header["size"] == 3


def test_a_checkpoint_replaces_only_a_checkpoint(file: Path, tmp_path: Path):
    save_checkpoint(file, ARRAYS, HEADER | {"size": 4})
    assert load_checkpoint(file)[1]["size"] == 4
    raw = save(ARRAYS)  # somebody's own arrays, in the same format
    for content in (b"years of work", raw, b"1"):
        (tmp_path / "mine").write_bytes(content)
        expect(
            "mine exists and is not a checkpoint written by taskscape; it is left",
            lambda: save_checkpoint(tmp_path / "mine", ARRAYS, HEADER),
        )
        assert (tmp_path / "mine").read_bytes() == content


def test_there_may_be_no_checkpoint(tmp_path: Path):
    expect(f"no checkpoint at {tmp_path / 'c'}", lambda: load_checkpoint(tmp_path / "c"))


def test_any_damage_to_a_checkpoint_is_noticed(file: Path):
    whole = file.read_bytes()
    damaged = [b"", b"short", whole[:40], whole[:-3], save(ARRAYS), b"\xff" * 100]
    damaged += [whole[:-1] + bytes([whole[-1] ^ 1])]
    damaged += [whole.replace(b'"size\\": 3', b'"size\\": 4'), whole.replace(b"F32", b"I32", 1)]
    for raw in damaged:
        file.write_bytes(raw)
        with pytest.raises(DataError, match=r"c is not a readable checkpoint \(.*start again\.$"):
            load_checkpoint(file)


def test_a_newer_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "FORMAT", FORMAT + 1)
        save_checkpoint(tmp_path / "c", ARRAYS, HEADER)
    expect(
        "written by a newer taskscape",
        lambda: load_checkpoint(tmp_path / "c"),
    )


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(module, "save", fail)
        with pytest.raises(OSError, match="disk full"):
            save_checkpoint(file, ARRAYS, HEADER)
    assert_same(load_checkpoint(file)[0])
    assert [p.name for p in file.parent.iterdir()] == ["c"]
