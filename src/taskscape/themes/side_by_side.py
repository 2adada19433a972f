"""Many small problems side by side on the last axis of arrays: in blocks, and swept until settled.

Every shape is compiled for, and on a CPU that takes longer than most embeddings. There all problems
go in blocks of one size, which fit into a core's cache, and what still moves is gathered from
several blocks into one by NumPy, for which nothing is compiled (``jax.device_put`` takes it as it
is; ``jnp.asarray`` would compile for every shape). An accelerator takes all problems
at once; what still moves continues in a batch a quarter of the size, and so on, and the host, which
never waits for a count, runs ahead.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from taskscape.compiling import compiled
from taskscape.model.fixed_point import Settling, SettlingT, settle
from taskscape.model.params import Count, Scalar

T = TypeVar("T")
_NUMBERS_IN_BLOCK = 1 << 18
"""In the largest array of a block: a megabyte, of a core's cache."""
_LEAST_BLOCK, _LARGEST_BLOCK = 128, 1024
"""Smaller blocks are not quicker; in larger ones, the last to settle would keep too many."""
_BESIDE = 16
"""More than a power of two, or all rows of a block would want the same few places of the cache:
sweeps were up to four times slower."""
_SHRINK = 4
"""Problems are gathered again when all but one in so many have settled."""
_LEAST_TOGETHER = 128
"""Problems in a batch on an accelerator at least: smaller ones are not quicker."""


def on_cpu() -> bool:
    """Whether what is computed is computed on a CPU."""
    return jax.default_backend() == "cpu"


def in_order(job: Callable[[int], T], inputs: Iterable[int], at_once: int) -> Iterator[T]:
    """The results of a job, with so many more under way while one is worked with."""
    names = "jax_enable_x64", "jax_default_device"
    precision, device = (jax.config.values[name] for name in names)

    def job_as_here(item: int) -> T:  # other threads have settings of JAX of their own
        with jax.enable_x64(precision), jax.default_device(device):
            return job(item)

    threads = ThreadPoolExecutor(at_once)
    coming = (threads.submit(job_as_here, item) for item in inputs)
    try:
        ahead = deque(islice(coming, at_once))
        while ahead:
            now = ahead.popleft()
            ahead.extend(islice(coming, 1))
            yield now.result()
    finally:
        threads.shutdown(cancel_futures=True)


def block_size(numbers: int) -> int:
    """Problems in a block on a CPU, each with so many numbers in its largest array.

    >>> [block_size(n) for n in (20, 256, 512, 600, 20_000)]
    [1040, 1040, 528, 528, 144]
    """
    fits = 1 << max(0, _NUMBERS_IN_BLOCK // numbers - 1).bit_length()
    return min(max(fits, _LEAST_BLOCK), _LARGEST_BLOCK) + _BESIDE


class Begun(NamedTuple):
    """Problems that are about to be swept, or have been for a while."""

    point: Any
    """Where they stand: something :class:`Settling`."""
    data: tuple[Any, ...]
    """What a sweep needs besides."""
    rest: tuple[Any, ...]
    """What only the results need."""


def solve(
    size: int,
    begin: Callable[..., Begun],
    sweep: Callable[..., Settling],
    finish: Callable[[Begun], T],
    problems: tuple[Any, ...],
    prior: Any,
    tol: Scalar,
    max_iter: Count,
) -> T:
    """What problems that lie side by side come to, after sweeps until nothing moves.

    What still moves continues alone once it is few. On a CPU, ``size`` problems go at a time, and a
    block stays in the cache from its first sweep to its results; what still moves of all blocks is
    gathered and continues in blocks like them.
    """
    if not on_cpu():
        begun = begin(*problems)
        point = _settled_on_device(sweep, begun.point, begun.data, prior, tol, max_iter)
        return finish(begun._replace(point=point))
    n = jax.tree.leaves(problems)[0].shape[-1]
    enough = size // _SHRINK if n > size else 0
    moving: list[list[Any]] = []
    results, places = [], []
    for start, here, block in _blocks(size, n, problems):
        begun = begin(*block)
        point = _sweep_until(sweep, begun.point, begun.data, prior, tol, max_iter, enough)
        begun = begun._replace(point=point)
        results.append(_at_places(finish(begun), slice(here)))
        change, sweeps = np.asarray(point.change)[:here], np.asarray(point.sweeps)[:here]
        ids = np.flatnonzero((change >= tol) & (sweeps < max_iter))
        moving.append(_at_places(jax.tree.leaves(begun), ids))
        places.append(start + ids)
    whole, left = _joined(results), np.concatenate(places)
    if len(left):
        as_it_was = partial(jax.tree.unflatten, jax.tree.structure(begun))
        rest = (_joined(moving),)
        again = solve(size, as_it_was, sweep, finish, rest, prior, tol, max_iter)
        for x, moved in zip(jax.tree.leaves(whole), jax.tree.leaves(again), strict=True):
            x[..., left] = moved
    return whole


def _blocks(size: int, n: int, problems: T) -> Iterator[tuple[int, int, T]]:
    """Where a block begins, its problems, and the block: the last one is filled up with copies."""
    leaves, tree = jax.tree.flatten(problems)
    leaves = [np.asarray(leaf) for leaf in leaves]
    for start in range(0, n, size):
        block = [leaf[..., start : start + size] for leaf in leaves]
        if (fill := start + size - n) > 0:
            block = [np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, fill)], "edge") for x in block]
        yield start, min(size, n - start), jax.tree.unflatten(tree, jax.device_put(block))


def _at_places(values: T, places: slice | Int[np.ndarray, "..."]) -> T:
    """The problems at some places, on the host."""
    return jax.tree.map(lambda x: np.asarray(x)[..., places], values)


def _joined(blocks: list[T]) -> T:
    return jax.tree.map(lambda *x: np.concatenate(x, axis=-1), *blocks)


def take(values: T, places: Int[np.ndarray, "..."]) -> T:
    """The problems at some places."""
    if on_cpu():
        return _at_places(values, places)
    return _take(values, places)


@jax.jit
def _take(values: T, places: Int[Array, "..."]) -> T:
    return jax.tree.map(lambda x: x[..., places], values)


def _settled_on_device(
    sweep: Callable[..., SettlingT],
    point: SettlingT,
    data: tuple[Any, ...],
    prior: Any,
    tol: Scalar,
    max_iter: Count,
) -> SettlingT:
    """Sweeps until nothing moves; nothing of it comes back to the host."""
    fewer = point.change.shape[-1] // _SHRINK
    if fewer < _LEAST_TOGETHER:
        return _sweep_until(sweep, point, data, prior, tol, max_iter, 0)
    point = _sweep_until(sweep, point, data, prior, tol, max_iter, fewer)
    ids, part, their_data = _moving(point, data, tol, fewer)
    return _put(point, ids, _settled_on_device(sweep, part, their_data, prior, tol, max_iter))


@partial(compiled, static="sweep")
def _sweep_until(
    sweep: Callable[..., SettlingT],
    point: SettlingT,
    data: tuple[Any, ...],
    prior: Any,
    tol: Scalar,
    max_iter: Count,
    enough: Count,
) -> SettlingT:
    """Sweep until at most so many still move, or one of them has been swept ``max_iter`` times."""
    before = jnp.where(point.change >= tol, point.sweeps, 0).max()
    return settle(point, lambda now: sweep(now, *data, prior, tol), tol, max_iter - before, enough)


@partial(jax.jit, static_argnames="size")
def _moving(
    point: SettlingT, data: tuple[Any, ...], tol: Scalar, size: int
) -> tuple[Int[Array, " m"], SettlingT, tuple[Any, ...]]:
    """What still moves, at most ``size`` of it, and where it was; what fills up has settled."""
    everything = point.change.shape[-1]
    ids = jnp.nonzero(point.change >= tol, size=size, fill_value=everything)[0]
    part, theirs = jax.tree.map(lambda x: x[..., jnp.minimum(ids, everything - 1)], (point, data))
    return ids, replace(part, change=jnp.where(ids < everything, part.change, 0)), theirs


@jax.jit
def _put(whole: SettlingT, ids: Int[Array, " m"], part: SettlingT) -> SettlingT:
    return jax.tree.map(lambda all_, x: all_.at[..., ids].set(x, mode="drop"), whole, part)
