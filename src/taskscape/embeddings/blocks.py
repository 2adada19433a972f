"""What is known of tasks without reading them: the box around each block of λ, and its sums."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

__all__ = ["BLOCK", "Statistics", "boxes", "log_beta", "near_order", "with_sums"]

BLOCK = 4096
"""Tasks of a block, which is a row group of a Parquet file: the least that is read of it."""


def log_beta(lam: Float[np.ndarray, "*any L"]) -> Float[np.ndarray, "*any"]:
    r"""Logarithm of the Dirichlet normaliser.

    .. math:: \ln B(\lambda) = \sum_l \ln\Gamma(\lambda_l) - \ln\Gamma(\sum_l \lambda_l)
    """
    return np.asarray(gammaln(lam).sum(-1) - gammaln(lam.sum(-1)))


def boxes(
    rows: Float[np.ndarray, "rows dims"], size: int
) -> tuple[Int[np.ndarray, "rows"], Int[np.ndarray, "boxes_and_end"]]:
    """Sort the rows into boxes of at most ``size`` near rows: a k-d tree's leaves.

    Returns the order, and where each box starts in it, with the end.
    """
    order = np.arange(len(rows))
    columns = np.array(rows.T, order="C")  # a copy: it is sorted along, to read memory in order
    starts, waiting = [], [(0, len(rows))]
    while waiting:
        low, high = waiting.pop()
        if high - low <= size:
            starts.append(low)
            continue
        inside = columns[:, low:high]
        widest = int(np.argmax(inside.max(axis=1) - inside.min(axis=1)))
        middle = (high - low) // 2
        sides = np.argpartition(inside[widest], middle)
        order[low:high] = order[low:high][sides]
        columns[:, low:high] = inside[:, sides]
        waiting += [(low + middle, high), (low, low + middle)]
    return order, np.array([*starts, len(rows)])


def near_order(lam: Float[np.ndarray, "members tasks L"]) -> Int[np.ndarray, "tasks"]:
    """An order of the tasks in which blocks of them are near each other."""
    order, starts = boxes(coordinates(lam), BLOCK)
    # within a box nothing is gained by any order: the one that tasks came in is kept
    return np.concatenate([np.sort(order[a:b]) for a, b in pairwise(starts)])


def coordinates(lam: Float[np.ndarray, "members tasks L"]) -> Float[np.ndarray, "tasks dims"]:
    """What near is measured in: the logarithms of λ and of its sum, for each member."""
    return np.log(np.concatenate(list(with_sums(lam.astype(np.float64))), axis=1))


def with_sums(lam: Float[np.ndarray, "*any L"]) -> Float[np.ndarray, "*any sides"]:
    """λ, and after it the sum over task-themes: what a box has sides of."""
    return np.concatenate([lam, lam.sum(axis=-1, keepdims=True)], axis=-1)


@dataclass(frozen=True, eq=False)
class Statistics:
    r"""The box around each block of tasks, and the sums that a mean KL needs of all of them.

    The last side of a box is that of the sum over task-themes.
    """

    tasks: int
    block: int
    """Tasks of each block but the last, which may have fewer."""
    near: bool
    """Whether the tasks are sorted so that those of a block are near each other."""
    low: Float[np.ndarray, "blocks members sides"]
    high: Float[np.ndarray, "blocks members sides"]
    lam_sum: Float[np.ndarray, "members L"]
    log_beta_sum: Float[np.ndarray, "members"]

    @staticmethod
    def of(
        lam: Float[np.ndarray, "members tasks L"], block: int = BLOCK, *, near: bool = False
    ) -> "Statistics":
        """The statistics of these tasks, in float64."""
        members, tasks, L = lam.shape
        low = np.empty((-(-tasks // block), members, L + 1))
        high = np.empty_like(low)
        lam_sum, log_beta_sum = np.zeros((members, L)), np.zeros(members)
        for i, begin in enumerate(range(0, tasks, block)):
            some = lam[:, begin : begin + block].astype(np.float64)
            sides = with_sums(some)
            low[i], high[i] = sides.min(axis=1), sides.max(axis=1)
            lam_sum += some.sum(axis=1)
            log_beta_sum += log_beta(some).sum(axis=1)
        return Statistics(tasks, block, near, low, high, lam_sum, log_beta_sum)

    def __len__(self) -> int:
        """The number of blocks."""
        return len(self.low)

    def of_all(self) -> "Statistics":
        """The same tasks as a single block."""
        if not self.tasks:
            return self
        low, high = self.low.min(axis=0, keepdims=True), self.high.max(axis=0, keepdims=True)
        return replace(self, block=self.tasks, low=low, high=high)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON, which keeps all their digits."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Statistics":
        """The statistics that :meth:`to_dict` took apart."""
        names = ("low", "high", "lam_sum", "log_beta_sum")
        arrays = {name: np.array(values[name], dtype=np.float64) for name in names}
        members, L = arrays["lam_sum"].shape
        for side in ("low", "high"):  # a list of no blocks does not tell its shape
            arrays[side] = arrays[side].reshape(-1, members, L + 1)
        return Statistics(
            int(values["tasks"]), int(values["block"]), bool(values["near"]), **arrays
        )
