"""Many λ at once: boxes of near ones, and the sums that means need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

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


def with_sums(lam: Float[np.ndarray, "*any L"]) -> Float[np.ndarray, "*any sides"]:
    """λ, and after it the sum over task-themes: what a box has sides of."""
    return np.concatenate([lam, lam.sum(axis=-1, keepdims=True)], axis=-1)


@dataclass(frozen=True, eq=False)
class Sums:
    r"""What a mean KL needs to know of many tasks: how many they are, Σ λ and Σ ln B(λ)."""

    tasks: int
    lam: Float[np.ndarray, "members L"]
    log_beta: Float[np.ndarray, "members"]

    @staticmethod
    def of(lam: Float[np.ndarray, "members tasks L"]) -> "Sums":
        """The sums of these tasks, in float64."""
        members, tasks, L = lam.shape
        lam_sum, log_beta_sum = np.zeros((members, L)), np.zeros(members)
        for begin in range(0, tasks, BLOCK):
            block = lam[:, begin : begin + BLOCK].astype(np.float64)
            lam_sum += block.sum(axis=1)
            log_beta_sum += log_beta(block).sum(axis=1)
        return Sums(tasks, lam_sum, log_beta_sum)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON, which keeps all their digits."""
        return {"tasks": self.tasks, "lam": self.lam.tolist(), "log_beta": self.log_beta.tolist()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Sums":
        """The sums that :meth:`to_dict` took apart."""
        lam, log_beta_sum = (np.array(values[k], dtype=np.float64) for k in ("lam", "log_beta"))
        return Sums(int(values["tasks"]), lam, log_beta_sum)
