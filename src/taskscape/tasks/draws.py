"""Random draws that depend on nothing but a key: the same task, whatever the chunk it comes in.

Every task has a 64-bit key made from (seed, task index); each choice in the task hashes that key
with a counter. No generator state is carried along, so any task can be drawn alone, in any order,
and millions of tasks need not remember their samples.
"""

import numpy as np
from jaxtyping import Int, UInt64

__all__ = ["below", "distinct", "subkeys", "task_keys"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(h: UInt64[np.ndarray, "*any"]) -> UInt64[np.ndarray, "*any"]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit depends on every bit."""
    with np.errstate(over="ignore"):
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return h ^ (h >> np.uint64(31))


def subkeys(
    keys: UInt64[np.ndarray, "*any"], counter: int | Int[np.ndarray, "*any"]
) -> UInt64[np.ndarray, "*any"]:
    """A fresh key from each key and a counter."""
    with np.errstate(over="ignore"):
        steps = (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * _GOLDEN
        return _mix(np.asarray(keys + steps))


def task_keys(seed: int, index: Int[np.ndarray, "tasks"]) -> UInt64[np.ndarray, "tasks"]:
    """The key of each task, from the seed and the task's index."""
    base = subkeys(np.full(1, seed % 2**64, dtype=np.uint64), 0)
    return subkeys(np.broadcast_to(base, index.shape), index)


def below(
    keys: UInt64[np.ndarray, "*any"], counter: int, bound: Int[np.ndarray, "*any"]
) -> Int[np.ndarray, "*any"]:
    """A whole number in [0, bound) for each key; the bias is below bound / 2^32."""
    high = subkeys(keys, counter) >> np.uint64(32)
    return ((high * bound.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def distinct(
    keys: UInt64[np.ndarray, "rows"], counts: Int[np.ndarray, "rows"], n: int
) -> Int[np.ndarray, "rows n"]:
    """The first ``n`` steps of a Fisher-Yates shuffle of ``range(counts)``, one for each row.

    A longer draw begins with the shorter one. Only the moved places are remembered, so the cost
    does not depend on ``counts``. Where ``n`` exceeds a count, the places past it mean nothing.
    """
    swapped = np.empty((len(keys), n), dtype=np.int64)  # step i moved its own place to swapped[i]
    moved = np.empty_like(swapped)  # what stood at place i just before step i
    drawn = np.empty_like(swapped)
    for i in range(n):
        swapped[:, i] = i + below(keys, i, np.maximum(counts - i, 1))
        drawn[:, i] = _standing_at(swapped[:, i], swapped[:, :i], moved[:, :i])
        moved[:, i] = _standing_at(np.full(len(keys), i), swapped[:, :i], moved[:, :i])
    return drawn


def _standing_at(
    place: Int[np.ndarray, "rows"],
    swapped: Int[np.ndarray, "rows steps"],
    moved: Int[np.ndarray, "rows steps"],
) -> Int[np.ndarray, "rows"]:
    """What stands at a place after the given swaps: what the last swap put there, or itself."""
    if swapped.shape[1] == 0:
        return place
    hit = swapped == place[:, None]
    last = swapped.shape[1] - 1 - np.argmax(hit[:, ::-1], axis=1)
    put = np.take_along_axis(moved, last[:, None], axis=1)[:, 0]
    return np.where(hit.any(axis=1), put, place)
