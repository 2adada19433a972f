"""Rank correlations, slopes, partial correlations and the ceiling that noise puts on them."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import kendalltau, rankdata

from taskscape.errors import DataError

__all__ = ["kendall", "losing_share", "noise_ceiling", "partial_spearman", "slope", "spearman"]


def spearman(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Spearman's rank correlation; NaN if one of them is constant."""
    return _pearson(rankdata(x), rankdata(y))


def kendall(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Kendall's tau-b; NaN if one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(kendalltau(x, y).statistic)


def slope(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Least-squares slope of y on x; NaN if x is constant."""
    centred = x - x.mean()
    square = float(centred @ centred)
    return float(centred @ (y - y.mean())) / square if square > 0 else float("nan")


def partial_spearman(
    x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"], given: Float[np.ndarray, "n columns"]
) -> float:
    """Correlation of the ranks of x and y after regressing both on the ranks of ``given``."""
    others = np.stack([rankdata(column) for column in given.T], axis=1)
    others = others - others.mean(axis=0)
    left = []
    for values in (x, y):
        ranks = rankdata(values)
        ranks = ranks - ranks.mean()
        rest = ranks - others @ np.linalg.lstsq(others, ranks, rcond=None)[0]
        if rest @ rest < 1e-9 * max(ranks @ ranks, 1e-300):  # nothing that others do not explain
            return float("nan")
        left.append(rest)
    return _pearson(*left)


def noise_ceiling(
    accuracies: Float[np.ndarray, "tasks evaluations"], seed: int = 0, n_splits: int = 20
) -> tuple[float, float]:
    r"""Correlation of two halves of the evaluations, and the ceiling for their mean.

    .. math:: \text{ceiling} = \sqrt{\frac{k r}{1 + (k - 1) r}}, \quad
        k = \frac{n}{\lfloor n / 2 \rfloor}

    r is Spearman's correlation between the means of two random halves of the n evaluations (of an
    odd number, one is left out), averaged over splits. The fraction (Spearman-Brown) is what two
    independent evaluations, each k times as long as a half, would correlate. Its square root is
    the largest correlation that the mean over all n evaluations can have with anything.
    """
    rng = np.random.default_rng(seed)
    n = accuracies.shape[1]
    found = []
    for _ in range(n_splits if n > 2 else 1):
        order = rng.permutation(n)
        first, second = (accuracies[:, order[i : n - n % 2 : 2]].mean(axis=1) for i in (0, 1))
        found.append(spearman(first, second))
    r = float(np.mean(found))
    k = n / (n // 2)
    return r, float(np.sqrt(k * r / (1 + (k - 1) * r))) if r > 0 else 0.0


def _pearson(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    x, y = x - x.mean(), y - y.mean()
    size = np.sqrt(float(x @ x) * float(y @ y))
    return float(np.clip(x @ y / size, -1, 1)) if size > 0 else float("nan")


def losing_share(
    scores: Mapping[str, Sequence[float]], baseline: str = "random"
) -> dict[str, float]:
    """How often each way of choosing did worse than a random choice: of all pairs of trials.

    Ties count half, so that a rule without any effect loses half of the time.
    """
    if baseline not in scores:
        raise DataError(f"scores has no {baseline!r}; it has {', '.join(scores)}.")
    base = np.asarray(scores[baseline], dtype=np.float64)
    shares = {}
    for rule, values in scores.items():
        if rule != baseline:
            ours = np.asarray(values, dtype=np.float64)[:, None]
            shares[rule] = float(((ours < base) + 0.5 * (ours == base)).mean())
    return shares
