"""Numpy arrays from pickles of unknown origin: names outside a short list are refused.

An ordinary unpickler calls whatever a file names. Here even the listed names stand for code of this
module, which checks the type of an array before numpy fills it: numpy trusts a pickled type, and a
forged one would let it read any memory.
"""

import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.arguments import check_memory
from taskscape.errors import DataError

_PLAIN_TYPE = re.compile(r"b1|[iu][1248]|f[248]|[SU]\d{1,6}|O[48]?")


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


class _Dtype:
    """Stands for ``numpy.dtype``: plain numbers, text and objects; no fields, no subarrays."""

    def __init__(self, code: Any) -> None:
        self.code, self.order = _text(code).lstrip("<>=|"), "|"

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])
        if any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("an array type has fields")

    def real(self) -> np.dtype:
        if not _PLAIN_TYPE.fullmatch(self.code) or self.order not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError(f"array type {(self.order + self.code)[:20]!r}")
        return np.dtype(object if self.code[0] == "O" else self.order + self.code)


class _Array(np.ndarray):
    """An array that a pickle fills; ``np.asarray`` makes a plain one of it."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        real = dtype.real()
        if real.hasobject and len(raw) != math.prod(shape):  # numpy does not check this
            raise pickle.UnpicklingError(f"{len(raw)} objects for shape {shape}")
        checked: Any = (1, shape, real, bool(fortran), raw)
        super().__setstate__(checked)


def _scalar(dtype: Any, raw: Any) -> Any:
    return np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype.real())[0]


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> np.ndarray:
    array = np.frombuffer(raw, dtype.real()).reshape(shape, order="F" if order == "F" else "C")
    return array if axes is None else array.transpose(axes)


# No classes of this module: a pickle could set their attributes, for the whole process.
_ADMITTED: dict[str, Any] = {
    "_codecs.encode": str.encode,
    "collections.OrderedDict": dict,
    "numpy.dtype": lambda code, *_: _Dtype(code),
    "numpy.ndarray": None,  # only ever an argument of _reconstruct
}
for _core in ("numpy.core", "numpy._core"):  # numpy renamed it in version 2
    _ADMITTED[f"{_core}.multiarray._reconstruct"] = lambda *_: np.ndarray.__new__(_Array, (0,))
    _ADMITTED[f"{_core}.multiarray.scalar"] = _scalar
    _ADMITTED[f"{_core}.numeric._frombuffer"] = _from_buffer


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _ADMITTED:
            raise DataError(
                f"asks for {module[:99]}.{name[:99]}, which plain data does not need: refused, and "
                "nothing of it was run. If you trust the file, convert it to .npz yourself."
            )
        return _ADMITTED[f"{module}.{name}"]


def load_plain_pickle(path: str | Path) -> Any:
    """Plain values and arrays from a pickle, also one of Python 2; anything else is refused."""
    try:
        size = Path(path).stat().st_size
        check_memory(2 * size, f"of {size:,} bytes", "Convert it to .npz on a larger machine.")
        with Path(path).open("rb") as file:
            return _PlainUnpickler(file, encoding="latin1").load()
    except DataError as error:
        raise DataError(f"{path} {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(
            f"{path} is not a readable pickle of arrays ({type(error).__name__}: "
            f"{str(error)[:200]}); it may be cut short. Fetch it again."
        ) from error
