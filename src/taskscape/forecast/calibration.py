"""From numbers of calibration tasks and a learner's accuracies to expected accuracies."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit
from scipy.stats import t as student

from taskscape.forecast.regression import (
    PENALTIES,
    Ridge,
    Spread,
    fit_ridge,
    fit_spread,
    hold_out_classes,
    standardised,
)

_QUERIES = 100
"""Accuracies are read as if of this many queries, so that 0 and 1 have finite odds."""
_RESIDUALS = 200
_LEAST_IF_SHARED = 0.1
"""Least penalty where held-out fits had to share classes with the tasks they were judged on: such
errors flatter small penalties."""
_MARGIN = 0.1
"""Part of a column's range that a task may lie beyond it before it counts as outside."""


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected accuracies of tasks, their intervals, and the parts they are the sum of."""

    accuracy: Float[np.ndarray, "tasks"]
    low: Float[np.ndarray, "tasks"]
    high: Float[np.ndarray, "tasks"]
    parts: Float[np.ndarray, "tasks columns"]
    """What each column moved the accuracy by, from that of the average calibration task."""
    chance: Float[np.ndarray, "tasks"]
    """What the number of classes moved it by, through the accuracy of guessing."""
    average: float
    """The expected accuracy of the average calibration task."""


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
    ) -> Expected:
        r"""Expected accuracies, with intervals that hold ``confidence`` of tasks of new classes.

        .. math:: \mathrm{logit}(1 / C) + f(x) \pm t_{n-1} \sqrt{v}

        are the log-odds of the ends, for n calibration classes. A number beyond those of the
        calibration tasks counts as the last of them: nobody knows how it goes on, and a straight
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
        return Expected(
            accuracy=np.clip(accuracy, low, high),
            low=low,
            high=high,
            parts=parts * slope[:, None],
            chance=chance * slope,
            average=average,
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


# -- on disk ------------------------------------------------------------------------------------

FORMAT = 3
"""Of what a calibration computes, which is part of what cached ones are found by."""


def to_disk(calibration: Calibration) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A calibration as named arrays and a header of plain values."""
    values = asdict(calibration)
    flat = values.pop("ridge") | values.pop("spread") | values
    arrays = {name: value for name, value in flat.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in flat.items() if name not in arrays}


def from_disk(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> Calibration:
    """The calibration that :func:`to_disk` took apart."""
    stored = {**header, **arrays, "columns": tuple(header["columns"])}

    def filled(kind: type[Any], **parts: Any) -> Any:
        own = {f.name: stored[f.name] for f in fields(kind) if f.name not in parts}
        return kind(**own, **parts)

    return filled(Calibration, ridge=filled(Ridge), spread=filled(Spread))
