"""Plain arrays come out of pickles of any age; anything else is refused and never run."""

import os
import pickle
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.mini_imagenet import load_plain_pickle

VALUE = {
    "embeddings": np.arange(6, dtype=np.float32).reshape(2, 3),
    "big endian": np.arange(3, dtype=">f8"),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "bytes": np.array([b"ab", b"cd"]),
    "text": np.array(["ab", "cé"]),
    "objects": np.array(["ab", "cd"], dtype=object),
    "scalar": np.int64(3),
    "list": [1, 2, "three"],
}


def _check(result: dict) -> None:
    assert result.keys() == VALUE.keys()
    for key, value in VALUE.items():
        np.testing.assert_array_equal(np.asarray(result[key]), np.asarray(value))


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_today(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(VALUE, protocol))
    _check(load_plain_pickle(path))


def test_pickles_of_python_2(tmp_path: Path) -> None:
    value = {k: v for k, v in VALUE.items() if k != "fortran"}
    path = tmp_path / "x.pkl"
    path.write_bytes(files.python2_pickle(value))
    assert b"numpy.core.multiarray" in path.read_bytes()
    loaded = load_plain_pickle(path)
    _check({**loaded, "fortran": VALUE["fortran"]})
    assert loaded["embeddings"].dtype == np.float32


class _Calls:
    """Pickles into a call of any function."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.call


MALICIOUS = {
    "GLOBAL os.system": (b"cos\nsystem\n(S'touch {mark}'\ntR.", "os.system"),
    "GLOBAL posix.system": (b"cposix\nsystem\n(S'touch {mark}'\ntR.", "posix.system"),
    "GLOBAL Python 2 eval": (
        b'c__builtin__\neval\n(S\'open("{mark}", "w")\'\ntR.',
        "__builtin__.eval",
    ),
    "INST os.system": (b"(S'touch {mark}'\nios\nsystem\n.", "os.system"),
    "OBJ subprocess": (b"(csubprocess\nPopen\n(S'touch'\nS'{mark}'\nlo.", "subprocess.Popen"),
    "NEWOBJ": (b"\x80\x02csubprocess\nPopen\n(S'touch'\nS'{mark}'\nl\x85\x81.", "subprocess.Popen"),
    "STACK_GLOBAL": (
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        "builtins.eval",
    ),
    "dotted name": (
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.tofile.x\x93.",
        "numpy.ndarray.tofile.x",
    ),
    "getattr": (b"c__builtin__\ngetattr\n.", "__builtin__.getattr"),
    "numpy.load": (b"cnumpy\nload\n(S'{mark}'\ntR.", "numpy.load"),
    "numpy.fromfile": (b"cnumpy\nfromfile\n(S'{mark}'\ntR.", "numpy.fromfile"),
    "npyio": (b"cnumpy.lib.npyio\nload\n.", "numpy.lib.npyio.load"),
    "numpy.distutils": (
        b"cnumpy.testing._private.utils\nrunstring\n.",
        "numpy.testing._private.utils.runstring",
    ),
    "import by name": (b"c__builtin__\n__import__\n(S'os'\ntR.", "__builtin__.__import__"),
}


@pytest.mark.parametrize("kind", MALICIOUS)
def test_a_malicious_pickle_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    data, named = MALICIOUS[kind]
    mark, path = tmp_path / "mark", tmp_path / "x.pkl"
    path.write_bytes(data.replace(b"{mark}", str(mark).encode()))
    with pytest.raises(DataError, match=rf"x\.pkl asks for {re.escape(named)}, .* convert it"):
        load_plain_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_hidden_among_data_is_refused(tmp_path: Path, protocol: int) -> None:
    mark, path = tmp_path / "mark", tmp_path / "x.pkl"
    bomb = _Calls(os.system, f"touch {mark}")
    path.write_bytes(pickle.dumps({"embeddings": np.zeros(2), "labels": [bomb]}, protocol))
    with pytest.raises(DataError, match=r"asks for (posix|nt|os)\.system"):
        load_plain_pickle(path)
    assert not mark.exists()


def _array(dtype: bytes, raw: bytes, shape: bytes = b"K\x02\x85") -> bytes:
    built = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return b"\x80\x02" + built + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb."


PLAIN_O = b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R"
REFUSED = {
    # numpy would take these bytes for addresses of Python objects.
    "objects from bytes": _array(PLAIN_O, b"U\x10" + bytes(16)),
    "a type with fields": _array(
        b"cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R(K\x03U\x01|NU\x01a}NK\x08K\x01K\x00tb",
        b"U\x10" + bytes(16),
    ),
    "fields added to a plain type": _array(
        b"cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01<NU\x01a\x85}K\x08K\x01K\x00tb",
        b"U\x10" + bytes(16),
    ),
    "too few bytes": _array(b"cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R", b"U\x08" + bytes(8)),
    "ndarray called directly": b"cnumpy\nndarray\n(K\x02tR.",
    "a function given state": b"c_codecs\nencode\n}U\x01aK\x01sb.",
    "fewer objects than the shape says": _array(PLAIN_O, b"]K\x01a"),
    "a class given attributes": b"ccollections\nOrderedDict\nN}U\x01aK\x01s\x86b.",
    "persistent id": b"Pnothing\n.",
    "extension code": b"\x80\x02\x82\x01.",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_a_plain_value_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(REFUSED[kind])
    with pytest.raises(DataError, match=str(path)):
        load_plain_pickle(path)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    path, data = tmp_path / "x.pkl", files.python2_pickle(VALUE["embeddings"])
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match=r"may be cut short\. Fetch it again"):
            load_plain_pickle(path)


def test_damaged_bytes_give_no_other_error(tmp_path: Path) -> None:
    path, rng = tmp_path / "x.pkl", np.random.default_rng(0)
    data = np.frombuffer(files.python2_pickle(VALUE["embeddings"]), dtype=np.uint8)
    for _ in range(300):
        flipped = data.copy()
        flipped[rng.integers(0, len(data), 3)] = rng.integers(0, 256, 3)
        path.write_bytes(flipped.tobytes())
        with suppress(DataError):  # any other error fails the test
            load_plain_pickle(path)


def test_a_file_that_memory_cannot_hold_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(VALUE))
    monkeypatch.setattr("taskscape.arguments.free_memory", lambda: 100)
    with pytest.raises(DataError, match=r"x\.pkl of .* bytes would take about .*GiB are free"):
        load_plain_pickle(path)


@pytest.mark.parametrize("protocol", range(6))
def test_large_files(tmp_path: Path, protocol: int) -> None:
    rng, n = np.random.default_rng(0), 2_000
    value = {
        "embeddings": rng.normal(size=(n, 64)).astype(np.float32),
        "labels": [f"n{i // 600:08}" for i in range(n)],
        "keys": np.array([f"{i:016}-n{i // 600:08}-{i}.JPEG" for i in range(n)], dtype=object),
        "rows": rng.normal(size=(20, 64)).tolist(),
        "counts": rng.integers(0, 9, n).tolist(),
    }
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    loaded = load_plain_pickle(path)
    for key, one in value.items():
        np.testing.assert_array_equal(np.asarray(loaded[key]), np.asarray(one))
