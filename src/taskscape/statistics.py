"""Intervals, rank correlations and comparisons of trials: all the statistics of the package.

Tasks share classes and trials share test tasks, so neither are independent draws. What varies
independently are classes and trainings; every interval here is made from those. There is one form
of interval, :func:`t_interval`, and one jackknife, :func:`jackknife`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import kendalltau, rankdata
from scipy.stats import t as student

from taskscape.errors import DataError

_HALVINGS = 20
"""Random splits of evaluations into halves."""
_GROUPS = 50
"""More classes than this are left out in groups: each costs the statistic once more."""
NO_INTERVALS = "none"
"""How the words of intervals begin where there are none."""
_LEAST_TASKS = 5
_LEAST_RESAMPLES = 4
_NOTHING_LEFT = 1e-9
"""Part of a vector's square that counts as none of it."""


# -- intervals ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A number and its confidence interval; NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def reach(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    def sign(self, digits: int) -> int:
        """1 or -1 if it leaves out zero, 0 if it holds it: the rule that every headline goes by.

        With its ends rounded to so many decimals, as readers see them.

        >>> Interval(-0.2, -0.4, -0.04).sign(2), Interval(-0.2, -0.4, -0.004).sign(2)
        (-1, 0)
        """
        return int(round(self.low, digits) > 0) - int(round(self.high, digits) < 0)

    def within(self, least: float, most: float) -> "Interval":
        """The interval with its ends no further than the quantity can go."""
        low, high = np.clip([self.low, self.high], least, most).tolist()
        return Interval(self.value, low, high)

    def in_points(self) -> str:
        """A gain in hundredths, such as ``+1.5 [+0.2, +2.8]``."""
        value, low, high = (f"{100 * x:+z.1f}" for x in (self.value, self.low, self.high))
        return value if math.isnan(self.low) else f"{value} [{low}, {high}]"

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:z.2f}"
        return f"{self.value:z.2f} [{self.low:z.2f}, {self.high:z.2f}]"


@dataclass(frozen=True)
class Variance:
    """An estimated variance and how many degrees of freedom the estimate has."""

    value: float
    freedom: int


def t_interval(value: float, parts: Sequence[Variance], confidence: float = 0.95) -> Interval:
    r"""The interval of a number whose error has independent parts.

    .. math:: x \pm t_\nu \sqrt{\textstyle\sum_i v_i}, \quad
        \nu = \frac{(\sum_i v_i)^2}{\sum_i v_i^2 / \nu_i}

    with :math:`\nu_i` degrees of freedom behind each variance :math:`v_i` (Welch and
    Satterthwaite). A part without a degree of freedom is not known, and nor is the interval.
    """
    if not math.isfinite(value) or any(not part.freedom > 0 for part in parts):
        return Interval(value)
    total = sum(part.value for part in parts)
    if total == 0:
        return Interval(value, value, value)
    freedom = total**2 / sum(part.value**2 / part.freedom for part in parts)
    reach = float(student.ppf((1 + confidence) / 2, freedom)) * math.sqrt(total)
    return Interval(value, value - reach, value + reach)


def jackknife(without: Float[np.ndarray, "units"]) -> Variance:
    r"""The variance of a statistic, from its values with each of n units left out.

    .. math:: \frac{n-1}{n} \sum_c (\theta_{-c} - \bar\theta_-)^2

    It has n − 1 degrees of freedom, which matter: with 8 classes, 1.96 in the place of Student's
    2.36 makes a 95 % interval hold 91 %. What each task has to itself is counted about as often as
    a task has classes, so that where it is much of the noise the interval is too wide.
    """
    n = len(without)
    square = float(((without - without.mean()) ** 2).sum()) if n else 0.0
    return Variance((n - 1) / max(n, 1) * square, n - 1)


def without_each_class(
    values: Float[np.ndarray, "tasks"], classes: Int[np.ndarray, "tasks way"]
) -> Float[np.ndarray, "classes"]:
    """The mean over the tasks without each of the classes, in the order of their ids."""
    ids = np.unique(classes[classes >= 0])
    rest = [values[~(classes == c).any(axis=1)] for c in ids]
    if len(ids) < 2 or any(len(v) == 0 for v in rest):
        raise DataError(
            "leaving out a class leaves no task; evaluate more tasks, over more classes."
        )
    return np.array([float(v.mean()) for v in rest])


def class_interval(
    values: Float[np.ndarray, "tasks"], classes: Int[np.ndarray, "tasks way"]
) -> Interval:
    """The 95 % interval of the mean over tasks, by leaving out one class at a time.

    Tasks share classes, so they are not independent, and an interval that treats them so is far
    too narrow.
    """
    return t_interval(float(values.mean()), [jackknife(without_each_class(values, classes))])


def mean_interval(values: Float[np.ndarray, "trials"], confidence: float = 0.95) -> Interval:
    """The interval of the mean of independent trials; none for a single one."""
    return t_interval(float(values.mean()), [_of_mean(values)], confidence)


def gain_interval(
    ours: Float[np.ndarray, "trials"],
    theirs: Float[np.ndarray, "others"],
    without: tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]] | None = None,
    confidence: float = 0.95,
) -> Interval:
    r"""The mean of ours minus that of theirs, over trials and, where known, over test classes.

    .. math:: \bar a - \bar b, \quad
        \frac{s_a^2}{n_a} + \frac{s_b^2}{n_b} + v_\text{classes}

    are the number and its variance, for :func:`t_interval`. The first two parts are what other
    trainings would change (Welch). The last is what other test classes would: the jackknife of the
    difference of ``without``, the means of ours and of theirs with each class left out. What
    differs by training and by class at once is in both, so that the interval errs to the wide side.
    A side with a single trial is taken to vary as the other does.
    """
    if 1 in (len(ours), len(theirs)):
        more = ours if len(ours) > 1 else theirs
        share = 1 + len(more) / (len(ours) + len(theirs) - len(more))
        parts = [Variance(share * _of_mean(more).value, len(more) - 1)]
    else:
        parts = [_of_mean(ours), _of_mean(theirs)]
    if without is not None:
        parts.append(jackknife(without[0] - without[1]))
    return t_interval(float(ours.mean() - theirs.mean()), parts, confidence)


def _of_mean(values: Float[np.ndarray, "trials"]) -> Variance:
    n = len(values)
    return Variance(float(values.var(ddof=1)) / n if n > 1 else 0.0, n - 1)


def losing_share(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The part of all pairs of trials in which ours does worse; ties count half."""
    a, b = np.asarray(ours, dtype=np.float64)[:, None], np.asarray(theirs, dtype=np.float64)
    return float(((a < b) + 0.5 * (a == b)).mean())


# -- resamples ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Resamples:
    """Sets of tasks to compute a statistic on again, and how its interval follows from them."""

    n_tasks: int
    rows: tuple[Int[np.ndarray, "_"], ...]
    words: str
    """What was left out, for the reader."""
    confidence: float
    n_units: int
    """Classes, or groups of them, that vary independently."""

    def interval(
        self, statistic: Callable[[Int[np.ndarray, "_"]], float], *, correlation: bool = False
    ) -> Interval:
        """The statistic of all tasks, given by their rows, with its interval.

        Correlations are put on Fisher's z scale, where their error does not depend on their size.
        """
        value = statistic(np.arange(self.n_tasks))
        again = np.array([statistic(rows) for rows in self.rows])
        again = again[np.isfinite(again)]
        if not math.isfinite(value) or len(again) < _LEAST_RESAMPLES:
            return Interval(value)
        centre = float(_z(np.array([value]))[0]) if correlation else value
        again = _z(again) if correlation else again
        known = jackknife(again)
        # what cannot be left out, or gives no number, would have moved it as the others do
        spread = known.value * (self.n_units - 1) / known.freedom
        around = t_interval(centre, [Variance(spread, self.n_units - 1)], self.confidence)
        ends = (around.low, around.high)
        return Interval(value, *(math.tanh(e) for e in ends) if correlation else ends)


def _z(correlations: Float[np.ndarray, "_"]) -> Float[np.ndarray, "_"]:
    return np.arctanh(np.clip(correlations, -0.9999, 0.9999))


def make_resamples(
    classes: Int[np.ndarray, "tasks way"] | None,
    n_tasks: int,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Resamples:
    """Which tasks to leave out together: those of each class in turn.

    More than 50 classes are dealt into 50 groups. Without classes the same is done to tasks, which
    gives too narrow an interval where tasks share classes.
    """
    units = np.arange(n_tasks)[:, None] if classes is None else classes
    ids = np.unique(units[units >= 0])
    n_groups = min(_GROUPS, len(ids))
    group = np.random.default_rng(seed).permutation(len(ids)) % n_groups
    member = np.where(units >= 0, group[np.searchsorted(ids, units).clip(0, len(ids) - 1)], -1)
    rows = [np.flatnonzero((member != g).all(axis=1)) for g in range(n_groups)]
    groups = f"{n_groups} groups of " if n_groups < len(ids) else ""
    unit = "tasks (classes unknown: too narrow if tasks share classes)"
    words = f"leaving out {groups}{unit if classes is None else 'classes'}"
    enough = [r for r in rows if len(r) >= _LEAST_TASKS]
    if len(enough) < max(_LEAST_RESAMPLES, len(rows) // 2):
        enough, words = [], f"{NO_INTERVALS}: too few tasks remain when {words}"
    return Resamples(n_tasks, tuple(enough), words, confidence, n_groups)


# -- correlations -------------------------------------------------------------------------------


def spearman(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Spearman's rank correlation; NaN if one of them is constant."""
    return partial_spearman(x, y, np.empty((len(x), 0)))


def pairwise_spearman(
    rows: Sequence[Float[np.ndarray, "n"]] | Float[np.ndarray, "rows n"],
) -> list[float]:
    """Spearman's rank correlation of each row with all rows before it."""
    return [spearman(a, b) for i, a in enumerate(rows) for b in rows[:i]]


def kendall(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Kendall's tau-b; NaN if one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(kendalltau(x, y).statistic)


def slope(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Least-squares slope of y on x; NaN if x is constant."""
    centred = x - x.mean()
    square = float(centred @ centred)
    return float(centred @ (y - y.mean())) / square if square > 0 else math.nan


def partial_spearman(
    x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"], given: Float[np.ndarray, "n columns"]
) -> float:
    """Correlation of the ranks of x and y after regressing both on the ranks of ``given``."""
    ranks = rankdata(np.column_stack([x, y, given]), axis=0)
    ranks -= ranks.mean(axis=0)
    both, known = ranks[:, :2], ranks[:, 2:]
    rest = both - known @ np.linalg.lstsq(known, both, rcond=None)[0]
    squares = (rest**2).sum(axis=0)
    if (squares <= _NOTHING_LEFT * (both**2).sum(axis=0)).any():
        return math.nan
    return float(np.clip(rest[:, 0] @ rest[:, 1] / np.sqrt(squares.prod()), -1, 1))


def noise_ceiling(
    accuracies: Float[np.ndarray, "tasks evaluations"], seed: int = 0
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
    correlations = []
    for _ in range(_HALVINGS if n > 2 else 1):
        order = rng.permutation(n)
        first, second = (accuracies[:, order[i : n - n % 2 : 2]].mean(axis=1) for i in (0, 1))
        correlations.append(spearman(first, second))
    r = float(np.mean(correlations))
    k = n / (n // 2)
    return r, float(np.sqrt(k * r / (1 + (k - 1) * r))) if r > 0 else 0.0
