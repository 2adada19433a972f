r"""Fixed points of many small problems at once, by sweeps that are extrapolated.

The problems lie side by side on the last axis, ``A``, where a machine takes many of them in one
instruction. A problem that has settled stays exactly as it is, so that its result does not depend
on the others.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass
from functools import reduce
from operator import add, mul
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.model.params import Count, Scalar

T = TypeVar("T")
_LONGEST = 32.0
"""Of an extrapolation, in differences of sweeps."""
_ROUNDINGS = 100.0
"""By so many roundings a bound may seem to fall."""
_TINY = 1e-20
_WRITTEN_OUT = 8
"""Rows at most that a program adds one by one; of more it would take longer to compile, and run no
faster."""


@runtime_checkable
class Settling(Protocol):
    """Problems that are swept until none changes; a dataclass of arrays, problems side by side."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def change(self) -> Float[Array, " A"]: ...

    @property
    def sweeps(self) -> Int[Array, " A"]: ...


SettlingT = TypeVar("SettlingT", bound=Settling)


def kept_once(values: T) -> T:
    """What is computed once and kept; a compiler may otherwise do it again for every use."""
    kept: T = jax.lax.optimization_barrier(values)  # type: ignore[no-untyped-call]
    return kept


@register_dataclass
@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Where the sweeps of ``A`` problems stand, each with ``R`` rows of ``K`` positive numbers."""

    at: Float[Array, "R K A"]
    """Where the next sweep begins."""
    swept: Float[Array, "R K A"]
    """Where the last good sweep led to: the result, once the problem has settled."""
    step: Float[Array, "R K A"]
    """How far that sweep went."""
    bound: Float[Array, "R A"]
    """The bound where it began."""
    change: Float[Array, " A"]
    """What the problem's rule of stopping looks at."""
    sweeps: Int[Array, " A"]


def sum_rows(x: Float[Array, "..."], axis: int = 1) -> Float[Array, "..."]:
    """Sum over an axis that is not the last; few rows are written out, which is fastest."""
    return x.sum(axis) if x.shape[axis] > _WRITTEN_OUT else reduce(add, _rows(x, axis))


def sum_products(a: Float[Array, "..."], b: Float[Array, "..."], axes: str) -> Float[Array, "..."]:
    """Sum of products over an axis that both have, such as k of ``lka,nka->lna``.

    Few products are written out; more are a matrix product, which no sum of a large array matches.
    """
    of_a, of_b, of_sum = axes.replace("->", ",").split(",")
    summed = next(name for name in of_a if name not in of_sum)
    if a.shape[of_a.index(summed)] > _WRITTEN_OUT:
        return jnp.einsum(axes, a, b, precision="highest")

    def rows(x: Float[Array, "..."], own: str) -> list[Float[Array, "..."]]:
        missing = [i for i, name in enumerate(of_sum) if name not in own]
        return [jnp.expand_dims(row, missing) for row in _rows(x, own.index(summed))]

    return reduce(add, map(mul, rows(a, of_a), rows(b, of_b)))


def max_rows(x: Float[Array, "..."], axis: int = 1) -> Float[Array, "..."]:
    """Largest along an axis that is not the last; few rows are written out."""
    return x.max(axis) if x.shape[axis] > _WRITTEN_OUT else reduce(jnp.maximum, _rows(x, axis))


def _rows(x: Float[Array, "..."], axis: int) -> list[Float[Array, "..."]]:
    return [jax.lax.index_in_dim(x, k, axis, keepdims=False) for k in range(x.shape[axis])]


def begin(at: Float[Array, "R K A"]) -> FixedPoint:
    """Problems about to be swept from here."""
    A = at.shape[-1]
    return FixedPoint(
        at=at,
        swept=at,
        step=jnp.zeros_like(at),
        bound=jnp.full((at.shape[0], A), -jnp.inf, at.dtype),
        change=jnp.full(A, jnp.inf, at.dtype),
        sweeps=jnp.zeros(A, jnp.int32),
    )


def extrapolate(
    point: FixedPoint,
    swept: Float[Array, "R K A"],
    bound: Float[Array, "R A"],
    change: Float[Array, " A"],
    least: Float[Array, "R K 1"],
    tol: Scalar,
) -> FixedPoint:
    r"""Take over a sweep T from ``point.at``, and say where the next one begins.

    .. math:: x_{t+1} = T(x_t) + s\,[T(x_t) - T(x_{t-1})], \quad
        s = -\frac{\langle f_t, f_t - f_{t-1} \rangle}{\| f_t - f_{t-1} \|^2}, \quad
        f_t = T(x_t) - x_t

    This is Anderson's acceleration with a memory of one sweep; where sweeps shrink the distance by
    one factor it reaches the fixed point at once. s is kept in [0, 32], and x above ``least``,
    where any sweep leads. If ``bound``, the bound at x_t, is lower than before, the extrapolation
    to x_t is taken back: the next sweep begins where the last good one led to.
    """
    step = swept - point.at
    turn = step - point.step
    along, across = kept_once((sum_rows(step * turn), sum_rows(turn * turn)))
    s = kept_once(jnp.clip(-along / (across + _TINY), 0, _LONGEST))[:, None]
    ahead = jnp.maximum(swept + s * (swept - point.swept), least)
    slack = _ROUNDINGS * float(np.finfo(bound.dtype).eps) * (1 + jnp.abs(bound))
    lower = bound < point.bound - slack
    moving = point.change >= tol

    def choose(
        good: Float[Array, "..."], bad: Float[Array, "..."], settled: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        back = lower if good.ndim == lower.ndim else lower[:, None]
        return jnp.where(moving, jnp.where(back, bad, good), settled)

    change = jnp.where(lower.any(0), jnp.maximum(change, tol), change)
    return FixedPoint(
        at=choose(ahead, point.swept, point.at),
        swept=choose(swept, point.swept, point.swept),
        step=choose(step, point.step, point.step),
        bound=choose(bound, point.bound, point.bound),
        change=jnp.where(moving, change, point.change),
        sweeps=point.sweeps + moving,
    )


def settle(
    point: SettlingT,
    advance: Callable[[SettlingT], SettlingT],
    tol: Scalar,
    max_iter: Count,
    enough: Count = 0,
) -> SettlingT:
    """Sweep until at most ``enough`` problems still move."""

    def unfinished(carry: tuple[Int[Array, ""], SettlingT]) -> Bool[Array, ""]:
        i, now = carry
        return (i < max_iter) & ((now.change >= tol).sum() > enough)

    def body(carry: tuple[Int[Array, ""], SettlingT]) -> tuple[Int[Array, ""], SettlingT]:
        i, now = carry
        return i + 1, advance(now)

    return jax.lax.while_loop(unfinished, body, (jnp.zeros((), jnp.int32), point))[1]
