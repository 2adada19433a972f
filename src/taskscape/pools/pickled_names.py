"""The names that a pickle of arrays may use, each standing for our own code.

Nothing of numpy's that trusts its input is reached, and what is made is paid for from an allowance.
"""

import re
from typing import Any

import numpy as np
from jaxtyping import Shaped

__all__ = ["ADMITTED", "LEAVES", "Allowance", "PickledArray", "RefusedError"]

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
