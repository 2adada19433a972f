"""Random draws that depend on nothing but a key: the same task, whatever the chunk it comes in.

Every task has a 64-bit key made from (seed, task index); each choice in the task hashes that key
with a counter. No generator state is carried along, so any task can be drawn alone, in any order,
and millions of tasks need not remember their samples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int, UInt64

Array = Any
"""Of NumPy or of JAX: what is drawn is the same."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(h: UInt64[Array, "*any"]) -> UInt64[Array, "*any"]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit depends on every bit."""
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return h ^ (h >> np.uint64(31))


def subkeys(
    keys: UInt64[Array, "*any"], counter: int | Int[Array, "*any"]
) -> UInt64[Array, "*any"]:
    """A fresh key from each key and a counter."""
    with np.errstate(over="ignore"):
        if isinstance(counter, int):
            counter = np.full((), counter)
        return _mix(keys + (counter.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def task_keys(seed: int, index: Int[np.ndarray, "tasks"]) -> UInt64[np.ndarray, "tasks"]:
    """The key of each task, from the seed and the task's index."""
    base = subkeys(np.full(1, seed % 2**64, dtype=np.uint64), 0)
    return subkeys(np.broadcast_to(base, index.shape), index)


def below(
    keys: UInt64[Array, "*any"], counter: int, bound: Int[Array, "*any"]
) -> Int[Array, "*any"]:
    """A whole number in [0, bound) for each key; the bias is below bound / 2^32."""
    high = subkeys(keys, counter) >> np.uint64(32)
    return ((high * bound.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def distinct(
    keys: UInt64[Array, "rows"],
    counts: Int[Array, "rows"],
    n: int,
    xp: Any = np,
    kept: Callable[[Any], Any] = lambda values: values,
) -> Int[Array, "rows n"]:
    """The first ``n`` steps of a Fisher-Yates shuffle of ``range(counts)``, one for each row.

    A longer draw begins with the shorter one. Only the moved places are remembered, so the cost
    does not depend on ``counts``. Where ``n`` exceeds a count, the places past it mean nothing.
    ``xp`` is the module that the arrays are of: NumPy, or JAX in 64 bits; ``kept`` may tell a
    compiler to compute what it is given once.
    """
    swapped: list[Any] = []  # step i moved its own place to swapped[i]
    moved: list[Any] = []  # what stood at place i just before step i
    drawn: list[Any] = []
    for i in range(n):
        place = i + below(keys, i, xp.maximum(counts - i, 1))
        here = xp.full_like(place, i)
        place, standing, replaced = kept(
            (
                place,
                _standing_at(place, swapped, moved, xp),
                _standing_at(here, swapped, moved, xp),
            )
        )
        swapped.append(place)
        drawn.append(standing)
        moved.append(replaced)
    return xp.stack(drawn, axis=-1) if n else xp.zeros((len(keys), 0), dtype=np.int64)


def _standing_at(
    place: Int[Array, "rows"], swapped: list[Any], moved: list[Any], xp: Any
) -> Int[Array, "rows"]:
    """What stands at a place after the given swaps: what the last swap put there, or itself."""
    standing = place
    for there, put in zip(swapped, moved, strict=True):
        standing = xp.where(there == place, put, standing)
    return standing
