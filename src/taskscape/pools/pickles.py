"""Reading numpy arrays from pickles of unknown origin without running anything they ask for.

An ordinary unpickler calls whatever a file names. This one knows a handful of names, and even those
stand for our own code: arrays are rebuilt from their bytes by ``np.frombuffer`` and numpy's own
``__setstate__`` methods, which trust their input, are never reached. A file can still ask for
much memory; guard against that by the size of the files you open.
"""

import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from taskscape.errors import DataError

__all__ = ["load_plain_pickle"]

_PLAIN_TYPES = re.compile(r"b1|[iu][1248]|f[248]|[SU]\d{1,6}|O[48]?")
_MAX_DEPTH = 8
_ENCODINGS = ("latin1", "latin-1")


class _RefusedError(Exception):
    """A pickle holds something other than plain values and numpy arrays."""


class _Dtype:
    """Stands for ``numpy.dtype``: plain numbers, text and objects; no fields, no subarrays."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *_: Any) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(text, str) or not _PLAIN_TYPES.fullmatch(text.lstrip("<>=|")):
            raise _RefusedError(f"the array type {code!r}")
        self.code = text.lstrip("<>=|")
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        order = order.decode("latin1") if isinstance(order, bytes) else order
        if order not in ("<", ">", "=", "|") or any(part is not None for part in state[2:5]):
            raise _RefusedError("an array type with fields")
        self.order = order

    def real(self) -> np.dtype:
        return np.dtype(self.order + self.code if self.code[0] != "O" else object)


class _Array:
    """Stands for ``numpy.ndarray`` while a pickle is read."""

    __slots__ = ("array",)

    def __init__(self, array: Any = None) -> None:
        self.array = array

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.array = _array(raw, dtype, shape, "F" if fortran else "C")


def _array(raw: Any, dtype: Any, shape: Any, order: str) -> Shaped[np.ndarray, "..."]:
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise _RefusedError("an array in an unknown form")
    real = dtype.real()
    if real.kind == "O":
        if not isinstance(raw, list):
            raise _RefusedError("an array of objects in an unknown form")
        flat = np.empty(len(raw), dtype=object)
        flat[:] = [_plain(value) for value in raw]
    else:
        data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        flat = np.frombuffer(data, dtype=real)
    return flat.reshape(shape, order="F" if order == "F" else "C")


class _Known:
    """A name that a pickle may use; calling it is all that can be done to it."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise _RefusedError("a changed function")


class _NewArray(_Known):
    __slots__ = ()

    def __call__(self, *_: Any) -> _Array:
        return _Array()


class _NewDtype(_Known):
    __slots__ = ()

    def __call__(self, code: Any, *_: Any) -> _Dtype:
        return _Dtype(code)


class _NewScalar(_Known):
    __slots__ = ()

    def __call__(self, dtype: Any, raw: Any = b"") -> Any:
        return _array([raw] if dtype.code[0] == "O" else raw, dtype, (1,), "C")[0]


class _FromBuffer(_Known):
    __slots__ = ()

    def __call__(self, raw: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> _Array:
        return _Array(_array(raw, dtype, shape, order))


class _Encode(_Known):
    __slots__ = ()

    def __call__(self, text: Any, encoding: Any = "latin1") -> bytes:
        if not isinstance(text, str) or encoding not in _ENCODINGS:
            raise _RefusedError(f"the text encoding {encoding!r}")
        return text.encode("latin1")


class _NewDict(_Known):
    __slots__ = ()

    def __call__(self, *_: Any) -> OrderedDict[Any, Any]:
        return OrderedDict()


_ADMITTED: dict[tuple[str, str], type[_Known]] = {
    ("_codecs", "encode"): _Encode,
    ("collections", "OrderedDict"): _NewDict,
    ("numpy", "dtype"): _NewDtype,
    ("numpy", "ndarray"): _Known,
}
for _core in ("numpy.core", "numpy._core"):  # numpy renamed it in version 2
    _ADMITTED[f"{_core}.multiarray", "_reconstruct"] = _NewArray
    _ADMITTED[f"{_core}.multiarray", "scalar"] = _NewScalar
    _ADMITTED[f"{_core}.numeric", "_frombuffer"] = _FromBuffer


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        admitted = _ADMITTED.get((module, name))
        if admitted is None:
            raise _RefusedError(f"{module}.{name}")
        return admitted()


def _plain(value: Any, depth: int = 0) -> Any:
    """Plain containers with real arrays in place of those that stood for them."""
    if isinstance(value, _Array):
        return value.array
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        return value
    if depth > _MAX_DEPTH:
        raise _RefusedError(f"containers nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {_plain(k, depth + 1): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, depth + 1) for v in value]
    if isinstance(value, np.ndarray):
        return value
    raise _RefusedError(f"a value of type {type(value).__name__.lstrip('_')}")


def load_plain_pickle(path: str | Path) -> Any:
    """Plain values and numpy arrays from a pickle, also one of Python 2; anything else is refused.

    Tuples come back as lists.

    >>> load_plain_pickle("train_embeddings.pkl").keys()  # doctest: +SKIP
    dict_keys(['embeddings', 'labels', 'keys'])
    """
    try:
        with Path(path).open("rb") as file:
            return _plain(_PlainUnpickler(file, encoding="latin1").load())
    except _RefusedError as error:
        raise DataError(
            f"{path} asks for {error}, which plain data does not need: refused, and nothing of it "
            "was run. If you trust the file, convert it to .npz yourself."
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(
            f"{path} is not a readable pickle of arrays ({type(error).__name__}: {error}); it may "
            "be cut short. Fetch it again."
        ) from error
