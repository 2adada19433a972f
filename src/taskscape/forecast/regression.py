"""Ridge regression whose error is judged on tasks that share no class with those it learned from.

Tasks that share classes share their luck. A forecast is for classes that nobody has seen, so the
error that matters is that of a fit to tasks *without any* of the task's own classes.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from taskscape.errors import DataError

__all__ = ["PENALTIES", "HeldOut", "Ridge", "hold_out_classes", "shared_classes"]

PENALTIES = tuple(float(p) for p in 10.0 ** np.arange(-5, 2.01, 0.5))
"""Weights of the squared coefficients against the *mean* squared error, that are tried."""
_LEAST_TO_LEARN_FROM = 20
_LEAST_HELD_OUT = 20
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Ridge:
    r"""A linear function of standardised columns, :math:`f(x) = b + \sum_j w_j (x_j - m_j) / s_j`.

    Columns that are not known (NaN) count as average.
    """

    mean: Float[np.ndarray, "columns"]
    scale: Float[np.ndarray, "columns"]
    weights: Float[np.ndarray, "columns"]
    intercept: float

    def parts(self, X: Float[np.ndarray, "tasks columns"]) -> Float[np.ndarray, "tasks columns"]:
        """What each column adds to the intercept."""
        return standardised(X, self.mean, self.scale) * self.weights


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for tasks by fits that saw none of their classes."""

    predicted: Float[np.ndarray, "penalties tasks"]
    """NaN for tasks that too few others share no class with."""
    shared: int
    """Classes that a task may have had in common with those learned from; 0 is as it should be."""


def standardised(
    X: Float[np.ndarray, "tasks columns"],
    mean: Float[np.ndarray, "columns"],
    scale: Float[np.ndarray, "columns"],
) -> Float[np.ndarray, "tasks columns"]:
    """Columns in standard deviations from the mean; constant and unknown ones are 0."""
    Z = (X - mean) / np.where(scale > 0, scale, np.inf)
    return np.where(np.isnan(Z), 0.0, Z)


def moments(
    X: Float[np.ndarray, "tasks columns"], trust: Float[np.ndarray, "columns"]
) -> tuple[Float[np.ndarray, "columns"], Float[np.ndarray, "columns"]]:
    """Mean of each column, and standard deviation over trust, over the tasks where it is known.

    A column trusted less is scaled down, so that the penalty weighs more on its coefficient.
    """
    known = ~np.isnan(X)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, X, 0.0).sum(axis=0) / count
    scale = np.sqrt((np.where(known, X - mean, 0.0) ** 2).sum(axis=0) / count)
    return mean, np.where(scale > 1e-9 * (1 + np.abs(mean)), scale, 0.0) / trust


def fit_ridge(
    X: Float[np.ndarray, "tasks columns"],
    y: Float[np.ndarray, "tasks"],
    trust: Float[np.ndarray, "columns"],
    penalty: float,
) -> Ridge:
    r"""The ridge fit to all tasks.

    .. math:: \min_{w, b} \frac1n \sum_i (y_i - b - w^\top z_i)^2 + \text{penalty}\, \|w\|^2
    """
    mean, scale = moments(X, trust)
    Z = standardised(X, mean, scale)
    found = _solve((Z.T @ Z)[None] / len(Z), (Z.T @ y)[None] / len(Z), Z.mean(0)[None],
                   np.array([y.mean()]), penalty)  # fmt: skip
    return Ridge(mean, scale, found[0][0], float(found[1][0]))


def _solve(
    squares: Float[np.ndarray, "fits p p"],
    products: Float[np.ndarray, "fits p"],
    mean_z: Float[np.ndarray, "fits p"],
    mean_y: Float[np.ndarray, "fits"],
    penalty: float,
) -> tuple[Float[np.ndarray, "fits p"], Float[np.ndarray, "fits"]]:
    """Weights and intercepts from mean products; the intercept carries no penalty."""
    centred = squares - mean_z[:, :, None] * mean_z[:, None]
    right = products - mean_z * mean_y[:, None]
    weights = np.linalg.solve(centred + penalty * np.eye(right.shape[1]), right[..., None])[..., 0]
    return weights, mean_y - (weights * mean_z).sum(axis=1)


def shared_classes(
    classes: Int[np.ndarray, "tasks way"], others: Int[np.ndarray, "others other_way"]
) -> Int[np.ndarray, "tasks others"]:
    """How many classes each task has in common with each of the others."""
    ids = np.unique(np.concatenate([classes.ravel(), others.ravel()]))
    member = []
    for rows in (classes, others):
        table = np.zeros((len(rows), len(ids)), dtype=np.float32)
        table[np.arange(len(rows))[:, None], np.searchsorted(ids, rows)] = 1
        member.append(table[:, ids >= 0])
    return np.rint(member[0] @ member[1].T).astype(np.int32)


def hold_out_classes(
    X: Float[np.ndarray, "tasks columns"],
    y: Float[np.ndarray, "tasks"],
    classes: Int[np.ndarray, "tasks way"],
    trust: Float[np.ndarray, "columns"],
) -> HeldOut:
    """Predict every task from the tasks that share no class with it, for every penalty.

    Where there are too few such tasks, those that share one class count too, or two, and so on;
    the result says so.
    """
    Z = standardised(X, *moments(X, trust))
    way = int((classes >= 0).sum(axis=1).max())
    for shared in range(way):
        predicted = _predictions(Z, y, classes, shared)
        if np.isfinite(predicted[0]).sum() >= _LEAST_HELD_OUT:
            return HeldOut(predicted, shared)
    raise DataError(
        f"{len(X)} calibration tasks over {len(np.unique(classes[classes >= 0]))} classes are too "
        f"few: a forecast is judged on at least {_LEAST_HELD_OUT} tasks by fits to at least "
        f"{_LEAST_TO_LEARN_FROM} others without their classes. Give more tasks, of more classes."
    )


def _predictions(
    Z: Float[np.ndarray, "tasks columns"],
    y: Float[np.ndarray, "tasks"],
    classes: Int[np.ndarray, "tasks way"],
    shared: int,
) -> Float[np.ndarray, "penalties tasks"]:
    n, p = Z.shape
    terms = np.concatenate(
        [
            np.ones((n, 1)),
            y[:, None],
            Z,
            Z * y[:, None],
            (Z[:, :, None] * Z[:, None]).reshape(n, -1),
        ],
        axis=1,
    )
    found = np.full((len(PENALTIES), n), np.nan)
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, n))
        apart = (shared_classes(classes[rows], classes) <= shared).astype(np.float64)
        apart[np.arange(len(rows)), rows] = 0
        sums = apart @ terms
        enough = sums[:, 0] >= _LEAST_TO_LEARN_FROM
        rows, sums = rows[enough], sums[enough]
        if not len(rows):
            continue
        means = sums[:, 1:] / sums[:, :1]
        mean_y, mean_z, products, squares = np.split(means, [1, 1 + p, 1 + 2 * p], axis=1)
        for i, penalty in enumerate(PENALTIES):
            weights, intercept = _solve(
                squares.reshape(-1, p, p), products, mean_z, mean_y[:, 0], penalty
            )
            found[i, rows] = (weights * Z[rows]).sum(axis=1) + intercept
    return found
