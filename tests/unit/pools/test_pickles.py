"""Plain arrays come out of pickles of any age; anything else is refused and never run."""

import json
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.pickles import load_plain_pickle

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


def _check(found: dict) -> None:
    assert found.keys() == VALUE.keys()
    for key, value in VALUE.items():
        np.testing.assert_array_equal(np.asarray(found[key]), np.asarray(value))


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
    found = load_plain_pickle(path)
    _check({**found, "fortran": VALUE["fortran"]})
    assert found["embeddings"].dtype == np.float32


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
    with pytest.raises(DataError) as raised:
        load_plain_pickle(path)
    assert str(raised.value) == (
        f"{path} asks for {named}, which plain data does not need: refused, and nothing of it was "
        "run. If you trust the file, convert it to .npz yourself."
    )
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
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return b"\x80\x02" + made + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb."


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
    "a class given slots": b"cnumpy\ndtype\nN}U\x01aK\x01s\x86b.",
    "another encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00idna!\x86R.",
    "persistent id": b"Pnothing\n.",
    "extension code": b"\x80\x02\x82\x01.",
    "a bare function": b"c_codecs\nencode\n.",
    "a list in itself": b"]q\x00h\x00a.",
    "a set": pickle.dumps({1, 2}, 4),
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


def _text(length: int) -> bytes:
    return b"X" + length.to_bytes(4, "little") + b"a" * length


def _doubled(times: int) -> bytes:
    """A pair of one pair twice, and so on: 2 bytes for each doubling."""
    return b"K\x01" + b"2\x86" * times


def _raw(size: int) -> bytes:
    return b"T" + size.to_bytes(4, "little") + bytes(size)


_INT8 = b"cnumpy\ndtype\nU\x02i1K\x00K\x01\x87R"
_NEW = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
_BILLION = b"\x8a\x05" + (10**10).to_bytes(5, "little")
_HUGE = (1 << 40).to_bytes(8, "little")
_STEPS, _MEMORY, _KEY, _SHORT = "more steps", "more memory", "a key of type", "may be cut short"

BOMBS = {
    "a far place in the memo": (b"\x80\x02K\x01r\xff\xff\xff\x0d.", "1"),
    "lists of lists": (
        b"]q\x00(" + b"K\x01" * 20 + b"e"
        + b"".join(b"]q%c(" % (i + 1) + b"h%c" % i * 20 + b"e" for i in range(7)) + b".",
        _MEMORY,
    ),
    "pairs of pairs": (_doubled(60) + b".", "nested more than 8 deep"),
    "pairs of pairs as a key": (b"}" + _doubled(60) + b"K\x01s.", _KEY),
    "pairs of pairs as a key of many": (b"}(" + _doubled(60) + b"K\x01u.", _KEY),
    "pairs of pairs as a key of a whole": (b"(" + _doubled(60) + b"K\x01d.", _KEY),
    "pairs of pairs in a set": (b"\x80\x04\x8f(" + _doubled(60) + b"\x90.", "a set"),
    "pairs of pairs in a frozen set": (b"\x80\x04(" + _doubled(60) + b"\x91.", "a set"),
    "pairs of pairs as a type": (b"cnumpy\ndtype\n" + _doubled(60) + b"\x85R.", "unknown form"),
    "pairs of pairs as an encoding": (
        b"c_codecs\nencode\n" + _text(1) + _doubled(60) + b"\x86R.",
        "text encoding",
    ),
    "a deep tuple": (b"K\x01" + b"\x85" * 300_000 + b".", "nested more than 8 deep"),
    "a deep tuple as a key": (b"}K\x01" + b"\x85" * 300_000 + b"K\x01s.", _KEY),
    "a deeper tuple": (b"K\x01" + b"\x85" * 1_300_000 + b".", _STEPS),
    "a deep list": (b"]" * 200_000 + b"a" * 199_999 + b".", "nested more than 8 deep"),
    "deep arrays of objects": (
        b"K\x01" + b"q\x000" + (_NEW + b"(K\x01K\x01\x85" + PLAIN_O + b"\x89]h\x00atbq\x00") * 9,
        "other than numbers and text",
    ),
    "many marks": (b"(" * 1_300_000, _STEPS),
    "many lists": (b"]" * 1_300_000, _STEPS),
    "a long number as many keys": (
        b"\x80\x02\x8b" + (10**6).to_bytes(4, "little") + b"\x7f" * 10**6 + b"q\x000}("
        + b"h\x00K\x01" * 200_000 + b"u.",
        _KEY,
    ),
    "a long type": (b"cnumpy\ndtype\n" + _text(10**6) + b"\x85R.", "the array type 'aaaa"),
    "many arguments": (
        b"(" + b"K\x01" * 500_000 + b"tq\x000cnumpy.core.multiarray\n_reconstruct\nq\x010"
        + b"h\x01h\x00R0" * 90_000 + b"N.",
        "a call with more than 8 arguments",
    ),
    "one text encoded many times": (
        _text(10**6) + b"\x85q\x000c_codecs\nencode\nq\x010" + b"h\x01h\x00R" * 90_000 + b"N.",
        _MEMORY,
    ),
    "one text as many arrays": (
        _raw(10**6) + b"q\x000" + _INT8 + b"q\x010" + b"J\x40\x42\x0f\x00\x85q\x020"
        + (_NEW + b"(K\x01h\x02h\x01\x89h\x00tb") * 3_000 + b"N.",
        _MEMORY,
    ),
    "one array many times": (
        _array(_INT8, _raw(10**6), b"J\x40\x42\x0f\x00\x85")[:-1]
        + b"q\x000](" + b"h\x00" * 90_000 + b"e.",
        _MEMORY,
    ),
    "a number for an array's bytes": (_array(_INT8, _BILLION), "unknown form"),
    "one long text among many": (b"](" + _text(10**5) + b"U\x01a" * 90_000 + b"e.", _MEMORY),
    "a long frame": (b"\x80\x04\x95" + _HUGE + b"N.", _SHORT),
    "long bytes": (b"\x80\x04\x8e" + _HUGE + b"N.", _SHORT),
    "a long bytearray": (b"\x80\x05\x96" + _HUGE + b"N.", _SHORT),
}  # fmt: skip

_CHILD = """
import json, resource, sys, time
from pathlib import Path
from taskscape.errors import DataError
from taskscape.pools.pickles import load_plain_pickle

taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 30),) * 2)
for path in sorted(Path(sys.argv[1]).iterdir()):
    began = time.monotonic()
    print(path.stem, end=" ", flush=True)
    try:
        found = str(load_plain_pickle(path))[:100]
    except DataError as error:
        found = str(error)
    print(json.dumps([time.monotonic() - began, found]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_a_bomb_takes_neither_time_nor_memory(tmp_path: Path) -> None:
    for i, (data, _) in enumerate(BOMBS.values()):
        (tmp_path / f"{i:02}.pkl").write_bytes(data)
    told = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [line.split(" ", 1)[1] for line in told.stdout.splitlines()]
    for (kind, (_, expected)), line in zip(BOMBS.items(), lines, strict=False):
        assert line, f"{kind}: the process ended, {told.returncode}"
        seconds, found = json.loads(line)
        assert expected in found, f"{kind}: {found}"
        assert seconds < 20, f"{kind}: {seconds} s"
    assert len(lines) == len(BOMBS), told.stderr


@pytest.mark.parametrize("protocol", range(6))
def test_large_files_are_no_bombs(tmp_path: Path, protocol: int) -> None:
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
    found = load_plain_pickle(path)
    for key, one in value.items():
        np.testing.assert_array_equal(np.asarray(found[key]), np.asarray(one))
