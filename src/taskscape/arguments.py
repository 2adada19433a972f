"""Checks of what callers hand over, with one kind of message: what was given, what is expected."""

import math
import reprlib
from collections.abc import Callable, Collection
from functools import wraps
from inspect import signature
from types import UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

import numpy as np

from taskscape.devices import free_memory
from taskscape.errors import DataError

Seed: TypeAlias = int | np.integer
MOST_FOR_JAX = 2**31 - 1
"""Larger seeds do not fit into JAX's usual whole numbers."""
_GIB = 1 << 30
_REMEDIES = {
    "ClassPool": "Open one with load_pool.",
    "TaskSet": "Make one with sample_tasks.",
    "Embeddings": "Embed tasks with model.embed.",
    "TaskModel": "Fit one, or open one with TaskThemes.load.",
}
Called = TypeVar("Called", bound=Callable[..., Any])


def public(called: Called) -> Called:
    """What is checked of all arguments of a public function, or of what makes a class.

    Numbers of NumPy become Python's: those can be written as JSON, do not overflow, and give
    settings the checksum of equal ones. Where a class of taskscape is annotated, nothing else is
    taken.
    """
    call = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
    takes = signature(call)
    kinds = {name: _own_classes(p.annotation) for name, p in takes.parameters.items()}

    @wraps(call)
    def checked(*given: Any, **named: Any) -> Any:
        bound = takes.bind(*given, **named)
        for name, value in bound.arguments.items():
            bound.arguments[name] = python_number(value)
            if kinds[name] and not isinstance(value, kinds[name]):
                words = [k.__name__ for k in kinds[name] if k is not type(None)]
                said = f"{name} must be a {' or '.join(words)}, not {type(value).__name__}."
                raise DataError(f"{said} {_REMEDIES.get(words[0], '')}".rstrip())
        return call(*bound.args, **bound.kwargs)

    if not isinstance(called, type):
        return checked  # type: ignore[return-value]
    called.__init__ = checked  # type: ignore[misc]
    return called


def _own_classes(annotation: Any) -> tuple[type, ...]:
    """The classes of an annotation that names classes of taskscape and None alone."""
    kinds = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    own = [isinstance(k, type) and k.__module__.startswith("taskscape.") for k in kinds]
    if any(own) and all(o or k is type(None) for o, k in zip(own, kinds, strict=True)):
        return kinds
    return ()


def python_number(value: Any) -> Any:
    """A number of NumPy as Python's, also in a tuple such as a range; all else as it is."""
    if type(value) is tuple:
        return tuple(map(python_number, value))
    return value.item() if isinstance(value, np.number | np.bool_) else value


def check_whole(value: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    """A whole number within limits, as Python's own; NumPy's are welcome, all else is an error.

    >>> check_whole(np.int64(3), "n_tasks", 1)
    3
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise DataError(f"{name}={_shown(value)} must be a whole number.")
    if least is not None and value < least:
        raise DataError(f"{name}={value} must be at least {least:,}.")
    if most is not None and value > most:
        raise DataError(f"{name}={value:,} must be at most {most:,}.")
    return int(value)


def check_seed(seed: Any, name: str = "seed", *, most: int | None = None) -> int:
    """A seed: a whole number from 0 up."""
    return check_whole(seed, name, 0, most)


def check_number(
    value: Any,
    name: str,
    low: int | float = -math.inf,
    high: int | float = math.inf,
    *,
    open_: str = "",
) -> float:
    """A finite number from ``low`` to ``high``; ``open_`` has "low" or "high" in it where the limit
    itself is too far.

    >>> check_number(0.5, "delta", 0, open_="low")
    0.5
    """
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if is_number and not isinstance(value, bool) and math.isfinite(value):
        above = value > low if "low" in open_ else value >= low
        below = value < high if "high" in open_ else value <= high
        if above and below:
            return float(value)
    limits = [f"{'above' if 'low' in open_ else 'of at least'} {low:g}"] if low > -math.inf else []
    limits += [f"{'below' if 'high' in open_ else 'at most'} {high:g}"] if high < math.inf else []
    kind = "a number" if high < math.inf else "a finite number"
    expected = f"{kind} {' and '.join(limits)}".rstrip()
    raise DataError(f"{name}={_shown(value)} must be {expected}.")


def check_flag(value: Any, name: str) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise DataError(f"{name}={_shown(value)} must be True or False.")
    return bool(value)


def check_choice(value: Any, name: str, choices: Collection[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        *others, last = map(repr, choices)
        words = f"{', '.join(others)} or {last}" if others else last
        raise DataError(f"{name}={_shown(value)} is not known; use {words}.")
    return value


def check_kind(value: Any, kind: Any, name: str, remedy: str) -> None:
    """A value of this class, or of one of several; ``remedy`` says where to get one."""
    if not isinstance(value, kind):
        words = " or ".join(k.__name__ for k in get_args(kind) or (kind,))
        raise DataError(f"{name} must be a {words}, not {type(value).__name__}. {remedy}")


def refuse_masked(value: Any, what: str = "an array") -> Any:
    """The value, unless it is an array with a mask, or a list of such, which would be lost."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ma.MaskedArray):
        value = np.ma.stack(value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        n_masked = int(np.ma.getmaskarray(value).sum())
        raise DataError(
            f"{what} has {n_masked:,} masked values. Leave these rows out, or fill them."
        )
    return value


def as_array(value: Any) -> np.ndarray:
    """The value as an array; an empty one of two axes where it is lists of different lengths."""
    refuse_masked(value)
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty((0, 0))


def as_numbers(value: Any) -> np.ndarray:
    """The value as an array of float64; an empty one where it holds anything but numbers."""
    refuse_masked(value)
    try:
        values = np.asarray(value)
        return np.empty(0) if values.dtype.kind in "USbcmM" else values.astype(np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def check_memory(n_bytes: int, what: str, remedy: str) -> None:
    """Refuse, before work begins, what would not fit into the memory that is free."""
    free = free_memory()
    if free is not None and n_bytes > free:
        raise DataError(
            f"{what} would take about {n_bytes / _GIB:,.1f} GiB of memory; {free / _GIB:,.1f} GiB "
            f"are free. {remedy}"
        )


def _shown(value: Any) -> str:
    """A value as it was given, cut short: it may be a whole array."""
    try:
        return " ".join(reprlib.repr(value).split())
    except Exception:  # a repr of the caller's own that fails
        return f"<{type(value).__name__}>"
