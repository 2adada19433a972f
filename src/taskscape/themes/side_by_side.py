"""Many small problems side by side on the last axis of arrays: in blocks, and swept until settled.

Every shape is compiled for, and on a CPU that takes longer than most embeddings. There all problems
go in blocks of one size, which fit into a core's cache, and what still moves is gathered from
several blocks into one by NumPy, for which nothing is compiled. An accelerator takes all problems
at once; what still moves goes on in a batch a quarter of the size, and so on, and the host, which
never waits for a count, runs ahead.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from taskscape.compiling import compiled
from taskscape.devices import cores
from taskscape.model import FixedPoint
from taskscape.model.fixed_point import settle
from taskscape.model.params import Count, Scalar

__all__ = ["block_size", "in_blocks", "in_order", "on_cpu", "settled", "take"]

T = TypeVar("T")
_NUMBERS_IN_BLOCK = 1 << 17
"""In the largest array of a block: half a megabyte, of a core's cache."""
_LEAST_BLOCK, _LARGEST_BLOCK = 128, 1024
"""Smaller blocks are not quicker; in larger ones, the last to settle would keep too many."""
_SHRINK = 4
"""Problems are gathered anew when all but one in so many have settled."""
_LEAST_TOGETHER = 128
"""Problems in a batch on an accelerator at least: smaller ones are not quicker."""


def on_cpu() -> bool:
    """Whether what is computed is computed on a CPU."""
    return jax.default_backend() == "cpu"


def in_order(job: Callable[[int], T], inputs: Sequence[int], at_once: int) -> Iterator[T]:
    """The results of a job, so many at a time."""
    names = "jax_enable_x64", "jax_default_device"
    precision, device = (jax.config.values[name] for name in names)

    def as_here(item: int) -> T:
        """The job with the settings of the thread that asked for it."""
        with jax.enable_x64(precision), jax.default_device(device):
            return job(item)

    threads = ThreadPoolExecutor(at_once)
    try:
        yield from threads.map(as_here, inputs)
    finally:
        threads.shutdown(cancel_futures=True)


def block_size(numbers: int) -> int:
    """Problems in a block on a CPU, each with so many numbers in its largest array.

    >>> [block_size(n) for n in (20, 128, 160, 600, 20_000)]
    [1024, 1024, 1024, 256, 128]
    """
    fits = 1 << max(0, _NUMBERS_IN_BLOCK // numbers - 1).bit_length()
    return min(max(fits, _LEAST_BLOCK), _LARGEST_BLOCK)


def in_blocks(size: int, job: Callable[..., T], *problems: Any) -> T:
    """What a job makes of problems that lie side by side, and its results side by side.

    On a CPU the job gets ``size`` of them at a time, the last block filled up with copies.
    """
    if not on_cpu():
        return job(*problems)
    leaves, tree = jax.tree.flatten(problems)
    leaves = [np.asarray(leaf) for leaf in leaves]
    n = leaves[0].shape[-1]

    def of_block(start: int) -> T:
        block = [leaf[..., start : start + size] for leaf in leaves]
        if (fill := start + size - n) > 0:
            block = [np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, fill)], "edge") for x in block]
        results = job(*jax.tree.unflatten(tree, [jnp.asarray(x) for x in block]))
        return jax.tree.map(lambda x: x.block_until_ready(), results)

    first = of_block(0)  # alone, so that it is compiled for once
    others = in_order(of_block, range(size, n, size), cores())
    blocks = [first, *others]
    return jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x, -1)[..., :n]), *blocks)


def take(values: T, places: Int[np.ndarray, "..."]) -> T:
    """The problems at some places."""
    if on_cpu():
        return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[..., places]), values)
    return _take(values, places)


@jax.jit
def _take(values: T, places: Int[Array, "..."]) -> T:
    return jax.tree.map(lambda x: x[..., places], values)


def settled(
    size: int,
    sweep: Callable[..., FixedPoint],
    point: FixedPoint,
    data: tuple[Any, ...],
    prior: Float[Array, "..."],
    tol: float,
    max_iter: int,
) -> FixedPoint:
    """Sweep until nothing moves; what still does goes on alone once it is few.

    On a CPU, blocks have ``size`` problems.
    """
    if not on_cpu():
        return _settled_on_device(sweep, point, data, prior, tol, max_iter)
    n = point.change.shape[-1]
    enough = size // _SHRINK if n > size else 0

    def some_sweeps(point: FixedPoint, *data: Any) -> FixedPoint:
        return _sweep_until(sweep, point, data, prior, tol, max_iter, enough)

    point = in_blocks(size, some_sweeps, point, *data)
    change, sweeps = np.asarray(point.change), np.asarray(point.sweeps)
    ids = np.flatnonzero((change >= tol) & (sweeps < max_iter))
    if not len(ids):
        return point
    moved = settled(size, sweep, *take((point, data), ids), prior, tol, max_iter)
    return jax.tree.map(partial(_replaced, ids), point, moved)


def _replaced(ids: Int[np.ndarray, " m"], whole: Array, part: Array) -> Array:
    """The same, with what is at some places replaced, on the host."""
    on_host = np.array(whole)
    on_host[..., ids] = part
    return jnp.asarray(on_host)


def _settled_on_device(
    sweep: Callable[..., FixedPoint],
    point: FixedPoint,
    data: tuple[Any, ...],
    prior: Float[Array, "..."],
    tol: float,
    max_iter: int,
) -> FixedPoint:
    """The same, and nothing of it comes back to the host."""
    fewer = point.change.shape[-1] // _SHRINK
    if fewer < _LEAST_TOGETHER:
        return _sweep_until(sweep, point, data, prior, tol, max_iter, 0)
    point = _sweep_until(sweep, point, data, prior, tol, max_iter, fewer)
    ids, some, their_data = _moving(point, data, tol, fewer)
    return _put(point, ids, _settled_on_device(sweep, some, their_data, prior, tol, max_iter))


@partial(compiled, static="sweep")
def _sweep_until(
    sweep: Callable[..., FixedPoint],
    point: FixedPoint,
    data: tuple[Any, ...],
    prior: Float[Array, "..."],
    tol: Scalar,
    max_iter: Count,
    enough: Count,
) -> FixedPoint:
    """Sweep until at most so many still move, or one of them has been swept ``max_iter`` times."""
    before = jnp.where(point.change >= tol, point.sweeps, 0).max()
    return settle(point, lambda now: sweep(now, *data, prior, tol), tol, max_iter - before, enough)


@partial(jax.jit, static_argnames="size")
def _moving(
    point: FixedPoint, data: tuple[Any, ...], tol: Scalar, size: int
) -> tuple[Int[Array, " m"], FixedPoint, tuple[Any, ...]]:
    """What still moves, at most ``size`` of it, and where it was; what fills up has settled."""
    everything = point.change.shape[-1]
    ids = jnp.nonzero(point.change >= tol, size=size, fill_value=everything)[0]
    some, theirs = jax.tree.map(lambda x: x[..., jnp.minimum(ids, everything - 1)], (point, data))
    return ids, replace(some, change=jnp.where(ids < everything, some.change, 0)), theirs


@jax.jit
def _put(whole: FixedPoint, ids: Int[Array, " m"], some: FixedPoint) -> FixedPoint:
    return jax.tree.map(lambda all_, x: all_.at[..., ids].set(x, mode="drop"), whole, some)
