"""Ridge regression over tasks that share classes, and what it is worth for other classes.

Tasks that share classes share their luck: hundreds of tasks of 16 classes are 16 draws of a class
and not hundreds of a task. A forecast is for classes that nobody has seen, so the error that
matters is that of a fit to tasks *without any* of the task's own classes
(:func:`hold_out_classes`). How far such tasks may fall from the fit follows from splitting its
errors into what comes with the classes and what each task has to itself (:func:`fit_spread`): a
task of other classes has new draws of both, and the coefficients carry the draws of the
calibration classes.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from taskscape.errors import DataError

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
    weights, intercept = _solve(
        (Z.T @ Z)[None] / len(Z), (Z.T @ y)[None] / len(Z), Z.mean(0)[None],
        np.array([y.mean()]), penalty,
    )  # fmt: skip
    return Ridge(mean, scale, weights[0], float(intercept[0]))


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


def hold_out_classes(
    X: Float[np.ndarray, "tasks columns"],
    y: Float[np.ndarray, "tasks"],
    classes: Int[np.ndarray, "tasks way"],
    trust: Float[np.ndarray, "columns"],
) -> tuple[Float[np.ndarray, "penalties tasks"], int]:
    """Predict every task from the tasks that share no class with it, for every penalty.

    Where there are too few such tasks, those that share one class count too, or two, and so on;
    the second result says how many. NaN for tasks that too few others can predict.
    """
    Z = standardised(X, *moments(X, trust))
    way = int((classes >= 0).sum(axis=1).max())
    for shared in range(way):
        predicted = _predictions(Z, y, classes, shared)
        if np.isfinite(predicted[0]).sum() >= _LEAST_HELD_OUT:
            return predicted, shared
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
    squared = (Z[:, :, None] * Z[:, None]).reshape(n, -1)
    terms = np.column_stack([np.ones(n), y, Z, Z * y[:, None], squared])
    member = (class_shares(classes) > 0).astype(np.float32)
    predicted = np.full((len(PENALTIES), n), np.nan)
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, n))
        apart = (member[rows] @ member.T <= shared).astype(np.float64)
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
            predicted[i, rows] = (weights * Z[rows]).sum(axis=1) + intercept
    return predicted


# -- how far tasks of new classes fall from a fit -----------------------------------------------


@dataclass(frozen=True, eq=False)
class Spread:
    r"""Where the log-odds of tasks vary about a ridge fit.

    .. math:: y_t = f(z_t) + \frac{1}{C_t} \sum_{c \in t} u_c + e_t, \quad
        \mathrm{var}\, u_c = \tau^2, \quad \mathrm{var}\, e_t = \sigma^2
    """

    of_classes: float
    r"""τ², of the effect of a class."""
    of_tasks: float
    r"""σ², of what a task has to itself: its set of classes, its samples, its finite queries."""
    of_coefficients: Float[np.ndarray, "coefficients coefficients"]
    r"""S, the covariance of intercept and weights over draws of classes and tasks."""

    def variance(
        self, Z: Float[np.ndarray, "tasks columns"], n_way: Int[np.ndarray, "tasks"]
    ) -> Float[np.ndarray, "tasks"]:
        r"""Expected squared error of the fit for tasks of new classes.

        .. math:: v = \tau^2 / C + \sigma^2 + (1, z)\, S\, (1, z)^\top
        """
        A = np.column_stack([np.ones(len(Z)), Z])
        fit = ((A @ self.of_coefficients) * A).sum(axis=1)
        return np.asarray(self.of_classes / n_way + self.of_tasks + fit)


def class_shares(classes: Int[np.ndarray, "tasks way"]) -> Float[np.ndarray, "tasks classes"]:
    """The weight of each class in the mean over a task's classes; padding (-1) has none."""
    ids = np.unique(classes[classes >= 0])
    M = np.zeros((len(classes), len(ids)))
    row, place = np.nonzero(classes >= 0)
    M[row, np.searchsorted(ids, classes[row, place])] = 1
    return M / M.sum(axis=1, keepdims=True)


def fit_spread(
    Z: Float[np.ndarray, "tasks columns"],
    y: Float[np.ndarray, "tasks"],
    classes: Int[np.ndarray, "tasks way"],
    penalty: float,
) -> Spread:
    r"""The variances about the ridge fit that make its residuals as large as they are.

    With :math:`A = (1, Z)` and M the weights of classes in tasks, two sums of squares are set to
    their expectations:

    .. math::
        B &= (A^\top A + n\,\text{penalty}\,\mathrm{diag}(0, 1, \dots, 1))^{-1} A^\top, \quad
        R = I - A B, \quad r = R y \\
        \|r\|^2 &= \tau^2 \|R M\|^2 + \sigma^2 \|R\|^2 \\
        \|M^\top r\|^2 &= \tau^2 \|M^\top R M\|^2 + \sigma^2 \|R M\|^2 \\
        S &= B\, (\tau^2 M M^\top + \sigma^2 I)\, B^\top

    R holds what the fit has taken up of the classes' effects, so that these are not underrated.
    """
    n = len(Z)
    A, M = np.column_stack([np.ones(n), Z]), class_shares(classes)
    ridge = penalty * n * np.diag(np.r_[0.0, np.ones(Z.shape[1])])
    B = np.linalg.solve(A.T @ A + ridge, A.T)
    BA, BM = B @ A, B @ M
    r, RM = y - A @ (B @ y), M - A @ BM
    squared_R = n - 2 * np.trace(BA) + (BA * BA.T).sum()
    squared_RM = (RM**2).sum()
    expected = np.array([[squared_RM, squared_R], [((M.T @ RM) ** 2).sum(), squared_RM]])
    tau2, sigma2 = _not_negative(expected, np.array([(r**2).sum(), ((M.T @ r) ** 2).sum()]))
    return Spread(tau2, sigma2, tau2 * BM @ BM.T + sigma2 * B @ B.T)


def _not_negative(
    expected: Float[np.ndarray, "2 2"], seen: Float[np.ndarray, "2"]
) -> tuple[float, float]:
    """The two variances; where one would be negative it is 0, and the other explains all of r."""
    tau2, sigma2 = np.linalg.solve(expected, seen)
    if tau2 < 0:
        return 0.0, float(seen[0] / expected[0, 1])
    if sigma2 < 0:
        return float(seen[0] / expected[0, 0]), 0.0
    return float(tau2), float(sigma2)
