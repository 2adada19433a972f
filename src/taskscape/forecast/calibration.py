"""From numbers of calibration tasks and a learner's accuracies to expected accuracies.

Tasks that share classes share their luck: hundreds of tasks of 16 classes are 16 draws of a class
and not hundreds of a task. A forecast is for classes that nobody has seen, so the error that
matters is that of a fit to tasks *without any* of the task's own classes
(:func:`hold_out_classes`). How far such tasks may fall from the fit follows from splitting its
errors into what comes with the classes and what each task has to itself (:func:`fit_spread`): a
task of other classes has new draws of both, and the coefficients carry the draws of the
calibration classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit
from scipy.stats import t as student

from taskscape.errors import DataError
from taskscape.forecast.features import COLUMNS
from taskscape.forecast.result import Forecasts

FORMAT = 3
"""Of what a calibration computes, which is part of what cached ones are found by."""
PENALTIES = tuple(float(p) for p in 10.0 ** np.arange(-5, 2.01, 0.5))
"""Weights of the squared coefficients against the *mean* squared error, that are tried."""
_LEAST_TO_LEARN_FROM = 20
_LEAST_HELD_OUT = 20
_ROWS_AT_ONCE = 512
_QUERIES = 100
"""Accuracies are read as if of this many queries, so that 0 and 1 have finite odds."""
_RESIDUALS = 200
_LEAST_IF_SHARED = 0.1
"""Least penalty where held-out fits had to share classes with the tasks they were tested on: such
errors flatter small penalties."""
_MARGIN = 0.1
"""Part of a column's range that a task may lie beyond it before it counts as outside."""


# -- ridge regression over tasks that share classes ---------------------------------------------


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
        f"few: a forecast is evaluated on at least {_LEAST_HELD_OUT} tasks by fits to at least "
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


# -- expected accuracies ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Calibration:
    r"""How accuracy follows from the numbers of a task, learned from calibration tasks.

    .. math:: \mathrm{logit}\, a = \mathrm{logit}(1 / C) + f(x) + r

    with C classes, f a ridge regression, and :math:`r / \sqrt v` drawn from Student's t with as
    many degrees of freedom as there are calibration classes, less one. The variance v, that of a
    task of classes not seen, comes from ``spread``.
    """

    columns: tuple[str, ...]
    ridge: Ridge
    penalty: float
    spread: Spread
    typical: float
    """The root of the mean v over the calibration tasks, were their classes new."""
    offset: float
    """The mean of logit(1 / C)."""
    lowest: Float[np.ndarray, "columns"]
    highest: Float[np.ndarray, "columns"]
    n_tasks: int
    n_classes: int
    shared: int
    """Classes that a task may have had in common with those the held-out fits learned from."""
    mean_accuracy: float
    error: float
    """Mean absolute error on held-out classes."""
    mean_error: float
    """That of always expecting the mean accuracy."""

    @property
    def beats_mean(self) -> bool:
        """Whether it errs less on held-out classes than the mean, to a tenth of a point."""
        return round(self.error, 3) < round(self.mean_error, 3)

    def expect(
        self,
        X: Float[np.ndarray, "tasks columns"],
        n_way: Int[np.ndarray, "tasks"],
        confidence: float,
        learner: str,
    ) -> Forecasts:
        r"""Expected accuracies, with intervals that hold ``confidence`` of tasks of new classes.

        .. math:: \mathrm{logit}(1 / C) + f(x) \pm t_{n-1} \sqrt{v}

        are the log-odds of the ends, for n calibration classes. A number beyond those of the
        calibration tasks counts as the last of them: nobody knows how it continues, and a straight
        line would soon promise 0 or 1.
        """
        within = np.clip(X, *self._range())
        parts = self.ridge.parts(within)
        chance = -np.log(n_way - 1.0) - self.offset
        centre = self.offset + self.ridge.intercept
        moved = parts.sum(axis=1) + chance
        accuracy, average = self._mean(centre + moved), float(self._mean(np.array([centre]))[0])
        v = self.spread.variance(standardised(within, self.ridge.mean, self.ridge.scale), n_way)
        reach = student.ppf((1 + confidence) / 2, self.n_classes - 1) * np.sqrt(v)
        low, high = (_accuracy(centre + moved + r) for r in (-reach, reach))
        slope = self._slope(centre, moved, accuracy - average)
        reasons = {what: np.zeros(len(X)) for what in COLUMNS.values()}
        for name, part in zip((*self.columns, "n_way"), (*parts.T, chance), strict=True):
            reasons[COLUMNS[name]] += part * slope
        return Forecasts(
            learner=learner,
            expected=np.clip(accuracy, low, high),
            low=low,
            high=high,
            confidence=confidence,
            reasons=reasons,
            average=average,
            outside=np.asarray(self.outside(X).any(axis=1)),
        )

    def outside(self, X: Float[np.ndarray, "tasks columns"]) -> Bool[np.ndarray, "tasks columns"]:
        """Which numbers of which tasks lie beyond those of the calibration tasks."""
        seen = self.highest >= self.lowest
        known = ~np.isnan(X)
        return np.asarray(known & ((np.clip(X, *self._range()) != X) | ~seen))

    def _range(self) -> tuple[Float[np.ndarray, "columns"], Float[np.ndarray, "columns"]]:
        """The numbers of the calibration tasks with a margin; none for columns never known."""
        seen = self.highest >= self.lowest
        margin = _MARGIN * np.where(seen, self.highest - self.lowest, 0.0) + 1e-6
        low, high = self.lowest - margin, self.highest + margin
        return np.where(seen, low, -np.inf), np.where(seen, high, np.inf)

    def _mean(self, at: Float[np.ndarray, "tasks"]) -> Float[np.ndarray, "tasks"]:
        """Mean accuracy over typical r: not the accuracy of the mean, the link being curved."""
        levels = (np.arange(_RESIDUALS) + 0.5) / _RESIDUALS
        total = np.zeros(len(at))
        for r in self.typical * student.ppf(levels, self.n_classes - 1):
            total += _accuracy(at + r)
        return total / _RESIDUALS

    def _slope(
        self,
        centre: float,
        moved: Float[np.ndarray, "tasks"],
        gain: Float[np.ndarray, "tasks"],
    ) -> Float[np.ndarray, "tasks"]:
        """Accuracy per unit of log-odds, such that the parts sum to the whole difference."""
        step = 1e-4
        start, end = self._mean(np.array([centre - step, centre + step]))
        near = np.abs(moved) < step
        return np.where(near, (end - start) / (2 * step), gain / np.where(near, 1.0, moved))


def _log_odds(accuracy: Float[np.ndarray, "tasks"]) -> Float[np.ndarray, "tasks"]:
    r"""The log-odds of an accuracy, finite at 0 and 1.

    .. math:: \mathrm{logit} \frac{a q + 1/2}{q + 1}
    """
    return np.asarray(logit((accuracy * _QUERIES + 0.5) / (_QUERIES + 1)))


def _accuracy(log_odds: Float[np.ndarray, "tasks"]) -> Float[np.ndarray, "tasks"]:
    """The accuracy that has such log-odds, the inverse of :func:`_log_odds`; from 0 to 1."""
    return np.clip((expit(log_odds) * (_QUERIES + 1) - 0.5) / _QUERIES, 0.0, 1.0)


def calibrate(
    columns: Sequence[str],
    X: Float[np.ndarray, "tasks columns"],
    accuracy: Float[np.ndarray, "tasks"],
    classes: Int[np.ndarray, "tasks way"],
    trust: Float[np.ndarray, "columns"],
) -> Calibration:
    """Fit to calibration tasks; the penalty is the one that does best on classes left out."""
    n_way = (classes >= 0).sum(axis=1)
    chance = -np.log(n_way - 1.0)
    y = _log_odds(accuracy) - chance
    predicted, shared = hold_out_classes(X, y, classes, trust)
    known = np.isfinite(predicted[0])
    errors = ((y[known] - predicted[:, known]) ** 2).mean(axis=1)
    allowed = np.array(PENALTIES) >= (_LEAST_IF_SHARED if shared else 0.0)
    best = int(np.argmin(np.where(allowed, errors, np.inf)))
    ridge = fit_ridge(X, y, trust, PENALTIES[best])
    Z = standardised(X, ridge.mean, ridge.scale)
    spread = fit_spread(Z, y, classes, PENALTIES[best])
    guesses = _accuracy(predicted[best, known] + chance[known])
    return Calibration(
        columns=tuple(columns),
        ridge=ridge,
        penalty=PENALTIES[best],
        spread=spread,
        typical=float(np.sqrt(spread.variance(Z, n_way).mean())),
        offset=float(chance.mean()),
        lowest=np.where(np.isnan(X), np.inf, X).min(axis=0),
        highest=np.where(np.isnan(X), -np.inf, X).max(axis=0),
        n_tasks=len(X),
        n_classes=len(np.unique(classes[classes >= 0])),
        shared=shared,
        mean_accuracy=float(accuracy.mean()),
        error=float(np.abs(guesses - accuracy[known]).mean()),
        mean_error=float(np.abs(accuracy[known] - accuracy.mean()).mean()),
    )
