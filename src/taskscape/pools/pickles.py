"""Reading numpy arrays from pickles of unknown origin without running anything they ask for.

An ordinary unpickler calls whatever a file names. This one knows a handful of names, and even those
stand for our own code: arrays are rebuilt from their bytes by ``np.frombuffer`` and numpy's own
``__setstate__`` methods, which trust their input, are never reached. How many steps a file may
take and how much memory it may fill grow with its size, so that a small file can do little harm.
Python's unpickler is used in its Python form: the one in C sets memory aside before it looks, and
crashes on deeply nested keys.
"""

import mmap
import pickle
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from taskscape.errors import DataError

__all__ = ["load_plain_pickle"]

LEAVES = (bool, int, float, str, bytes, np.generic, type(None))
"""What is neither a container nor an array."""
_PLAIN_TYPES = re.compile(r"b1|[iu][1248]|f[248]|[SU]\d{1,6}|O[48]?")
_ENCODINGS = ("latin1", "latin-1")
_FREE_STEPS, _BYTES_PER_STEP = 1_000_000, 8
_FREE_BYTES, _TIMES_ITS_SIZE = 1 << 24, 4


class RefusedError(Exception):
    """A pickle holds something other than plain values and numpy arrays."""


class Allowance:
    """The steps that a file of some size may take, and the bytes that it may fill."""

    __slots__ = ("n_bytes", "size", "steps")

    def __init__(self, size: int) -> None:
        self.size = size
        self.steps = _FREE_STEPS + size // _BYTES_PER_STEP
        self.n_bytes = _FREE_BYTES + size * _TIMES_ITS_SIZE

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise RefusedError(f"far more steps than its {self.size:,} bytes are worth")

    def fill(self, n_bytes: int) -> None:
        self.n_bytes -= n_bytes
        if self.n_bytes < 0:
            raise RefusedError(f"far more memory than its {self.size:,} bytes are worth")


class _Dtype:
    """Stands for ``numpy.dtype``: plain numbers, text and objects; no fields, no subarrays."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *_: Any) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(text, str):
            raise RefusedError("an array type in an unknown form")
        if len(text) > 20 or not _PLAIN_TYPES.fullmatch(text.lstrip("<>=|")):
            raise RefusedError(f"the array type {text[:20]!r}")
        self.code = text.lstrip("<>=|")
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        order = order.decode("latin1") if isinstance(order, bytes) else order
        if order not in ("<", ">", "=", "|") or any(part is not None for part in state[2:5]):
            raise RefusedError("an array type with fields")
        self.order = order

    def real(self) -> np.dtype:
        return np.dtype(self.order + self.code if self.code[0] != "O" else object)


class PickledArray:
    """Stands for ``numpy.ndarray`` while a pickle is read."""

    __slots__ = ("allowance", "array")

    def __init__(self, allowance: Allowance, array: Any = None) -> None:
        self.allowance = allowance
        self.array = array

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.array = _array(self.allowance, raw, dtype, shape, "F" if fortran else "C")


def _array(
    allowance: Allowance, raw: Any, dtype: Any, shape: Any, order: Any
) -> Shaped[np.ndarray, "..."]:
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise RefusedError("an array in an unknown form")
    real = dtype.real()
    if real.kind == "O":
        if not isinstance(raw, list):
            raise RefusedError("an array of objects in an unknown form")
        allowance.fill(8 * len(raw))
        if not all(isinstance(value, LEAVES) for value in raw):
            raise RefusedError("an array of objects other than numbers and text")
        flat = np.empty(len(raw), dtype=object)
        flat[:] = raw
    else:
        if not isinstance(raw, str | bytes | bytearray):
            raise RefusedError("an array in an unknown form")
        allowance.fill(len(raw))
        data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        flat = np.frombuffer(data, dtype=real)
    return flat.reshape(shape, order="F" if order == "F" else "C")


class _Known:
    """A name that a pickle may use; calling it is all that can be done to it."""

    __slots__ = ("allowance",)

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance

    def __setstate__(self, state: Any) -> None:
        raise RefusedError("a changed function")


class _NewArray(_Known):
    __slots__ = ()

    def __call__(self, *_: Any) -> PickledArray:
        return PickledArray(self.allowance)


class _NewDtype(_Known):
    __slots__ = ()

    def __call__(self, code: Any, *_: Any) -> _Dtype:
        return _Dtype(code)


class _NewScalar(_Known):
    __slots__ = ()

    def __call__(self, dtype: Any, raw: Any = b"") -> Any:
        raw = [raw] if dtype.code[0] == "O" else raw
        return _array(self.allowance, raw, dtype, (1,), "C")[0]


class _FromBuffer(_Known):
    __slots__ = ()

    def __call__(self, raw: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> PickledArray:
        return PickledArray(self.allowance, _array(self.allowance, raw, dtype, shape, order))


class _Encode(_Known):
    __slots__ = ()

    def __call__(self, text: Any, encoding: Any = "latin1") -> bytes:
        if not isinstance(text, str) or encoding not in _ENCODINGS:
            raise RefusedError("another text encoding than latin1")
        self.allowance.fill(len(text))
        return text.encode("latin1")


class _NewDict(_Known):
    __slots__ = ()

    def __call__(self, *_: Any) -> dict[Any, Any]:
        return {}


ADMITTED: dict[tuple[str, str], type[_Known]] = {
    ("_codecs", "encode"): _Encode,
    ("collections", "OrderedDict"): _NewDict,
    ("numpy", "dtype"): _NewDtype,
    ("numpy", "ndarray"): _Known,
}
for _core in ("numpy.core", "numpy._core"):  # numpy renamed it in version 2
    ADMITTED[f"{_core}.multiarray", "_reconstruct"] = _NewArray
    ADMITTED[f"{_core}.multiarray", "scalar"] = _NewScalar
    ADMITTED[f"{_core}.numeric", "_frombuffer"] = _FromBuffer


# -- the unpickler: its steps, and what it gives ------------------------------------------------

_MAX_DEPTH = 8
_MAX_ARGUMENTS = 8


def _check_keys(keys: Iterable[Any]) -> None:
    """Admit keys that are cheap to hash: hashing a nested tuple may take for ever, or crash."""
    for key in keys:
        if not isinstance(key, str | bytes | float | np.number | None) and not (
            isinstance(key, int) and key.bit_length() <= 64
        ):
            raise RefusedError(f"a key of type {_type_name(key)}")


# Handlers of single steps: they look at the unpickler's stack before Python's own do their work.


def _set_item(reader: Any) -> None:
    _check_keys(reader.stack[-2:-1])
    _OWN[pickle.SETITEM[0]](reader)


def _set_items(reader: Any) -> None:
    _check_keys(reader.stack[::2])
    _OWN[pickle.SETITEMS[0]](reader)


def _make_dict(reader: Any) -> None:
    _check_keys(reader.stack[::2])
    _OWN[pickle.DICT[0]](reader)


def _call(reader: Any) -> None:
    if len(reader.stack[-1]) > _MAX_ARGUMENTS:
        raise RefusedError(f"a call with more than {_MAX_ARGUMENTS} arguments")
    _OWN[pickle.REDUCE[0]](reader)


def _make_bytearray(reader: Any) -> None:
    size = int.from_bytes(reader.read(8), "little")
    reader.append(bytearray(reader.read(size)))  # only as long as what is there


def _refuse_set(reader: Any) -> None:
    raise RefusedError("a set")


_OWN: dict[int, Callable[[Any], None]] = pickle._Unpickler.dispatch
_STEPS = _OWN | {
    pickle.SETITEM[0]: _set_item,
    pickle.SETITEMS[0]: _set_items,
    pickle.DICT[0]: _make_dict,
    pickle.REDUCE[0]: _call,
    pickle.BYTEARRAY8[0]: _make_bytearray,
    pickle.EMPTY_SET[0]: _refuse_set,
    pickle.ADDITEMS[0]: _refuse_set,
    pickle.FROZENSET[0]: _refuse_set,
}


class _CountedSteps(dict[int, Callable[[Any], None]]):
    """The handler of every step, which is paid for when it is looked up."""

    def __init__(self, allowance: Allowance) -> None:
        super().__init__(_STEPS)
        self.allowance = allowance

    def __getitem__(self, step: int) -> Callable[[Any], None]:
        self.allowance.step()
        return super().__getitem__(step)


class _Reader:
    """A file that gives what is asked for, or an error where it ends before."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content

    def read(self, size: int, /) -> bytes:
        data = self.content.read(size)
        if len(data) < size:
            raise EOFError("the file ends early")
        return data

    def readline(self) -> bytes:
        line = self.content.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the file ends early")
        return line


class _PlainUnpickler(pickle._Unpickler):
    def __init__(self, content: mmap.mmap, allowance: Allowance) -> None:
        super().__init__(_Reader(content), encoding="latin1")
        self.allowance = allowance
        self.dispatch = _CountedSteps(allowance)  # type: ignore[misc]

    def find_class(self, module: str, name: str) -> Any:
        admitted = ADMITTED.get((module, name))
        if admitted is None:
            raise RefusedError(f"{module[:99]}.{name[:99]}")
        return admitted(self.allowance)


def _plain(value: Any, allowance: Allowance, depth: int = 0) -> Any:
    """Plain containers with real arrays in place of those that stood for them.

    What is shared is paid for wherever it stands, and a list of texts as the array of equally long
    texts that numpy would make of it.
    """
    if isinstance(value, PickledArray) and isinstance(value.array, np.ndarray):
        allowance.fill(value.array.nbytes)
        return value.array
    if isinstance(value, LEAVES):
        return value
    if depth > _MAX_DEPTH:
        raise RefusedError(f"containers nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        allowance.fill(16 * len(value))
        return {k: _plain(v, allowance, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        longest = max((len(v) for v in value if isinstance(v, str | bytes)), default=0)
        allowance.fill(len(value) * (8 + 4 * longest))
        return [_plain(v, allowance, depth + 1) for v in value]
    raise RefusedError(f"a value of type {_type_name(value)}")


def _type_name(value: Any) -> str:
    return type(value).__name__.lstrip("_")


def load_plain_pickle(path: str | Path) -> Any:
    """Plain values and numpy arrays from a pickle, also one of Python 2; anything else is refused.

    Tuples come back as lists.

    >>> load_plain_pickle("train_embeddings.pkl").keys()  # doctest: +SKIP
    dict_keys(['embeddings', 'labels', 'keys'])
    """
    try:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            allowance = Allowance(len(content))
            return _plain(_PlainUnpickler(content, allowance).load(), allowance)
    except RefusedError as error:
        raise DataError(
            f"{path} asks for {error}, which plain data does not need: refused, and nothing of it "
            "was run. If you trust the file, convert it to .npz yourself."
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(
            f"{path} is not a readable pickle of arrays ({type(error).__name__}: "
            f"{str(error)[:200]}); it may be cut short. Fetch it again."
        ) from error
