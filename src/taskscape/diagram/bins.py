"""The bins of the correlation diagram."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from taskscape.diagram.resampling import Resamples
from taskscape.errors import DataError

__all__ = ["Bin", "bin_tasks", "make_bins"]


@dataclass(frozen=True)
class Bin:
    """Test tasks at about the same distance: their number, mean distance and mean accuracy."""

    low: float
    high: float
    n_tasks: int
    distance: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float


def bin_tasks(
    distance: Float[np.ndarray, "tasks"], n_bins: int, binning: str
) -> tuple[Float[np.ndarray, "edges"], Int[np.ndarray, "tasks"]]:
    r"""The edges of the bins and the bin of each task.

    ``"paper"``: J bins of equal width from 0 to the largest distance,

    .. math:: I_j = ((j - 1) \Delta, j \Delta], \quad \Delta = \max_i \bar D_i / J,

    with a distance of exactly 0 in the first. ``"quantile"``: bins that hold equal numbers of
    tasks as far as ties allow.

    Paper: its section on the correlation diagram.
    """
    if n_bins < 1:
        raise DataError(f"n_bins={n_bins} must be at least 1.")
    if binning == "paper":
        edges = distance.max() * np.arange(n_bins + 1) / n_bins
        edges[-1] = distance.max()  # which rounding may have missed
    elif binning == "quantile":
        edges = np.unique(np.quantile(distance, np.arange(n_bins + 1) / n_bins))
        if len(edges) == 1:
            edges = np.repeat(edges, 2)
    else:
        raise DataError(f"bins={binning!r} is not known; use 'paper' or 'quantile'.")
    which = np.searchsorted(edges[1:], distance, side="left")
    return edges, np.minimum(which, len(edges) - 2)


def make_bins(
    distance: Float[np.ndarray, "tasks"],
    accuracy: Float[np.ndarray, "tasks"],
    n_bins: int,
    binning: str,
    resamples: Resamples,
) -> tuple[Bin, ...]:
    """Mean distance and accuracy of every bin that holds a task, with a band."""
    edges, which = bin_tasks(distance, n_bins, binning)
    share = accuracy.min() >= 0 and accuracy.max() <= 1  # else per cent, or another score
    bounds = (0.0, 1.0) if share else (-np.inf, np.inf)
    made = []
    for j in np.unique(which):

        def mean_accuracy(rows: Int[np.ndarray, "some"], j: int = int(j)) -> float:
            inside = accuracy[rows[which[rows] == j]]
            return float(inside.mean()) if len(inside) else float("nan")

        band = resamples.interval(mean_accuracy, np.arange(len(distance)))
        made.append(
            Bin(
                low=float(edges[j]),
                high=float(edges[j + 1]),
                n_tasks=int((which == j).sum()),
                distance=float(distance[which == j].mean()),
                accuracy=band.value,
                accuracy_low=float(np.clip(band.low, *bounds)),
                accuracy_high=float(np.clip(band.high, *bounds)),
            )
        )
    return tuple(made)
