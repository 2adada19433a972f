"""How far apart tasks are: one contract for every divergence between posteriors, and its means."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from taskscape.arguments import as_array, check_choice, check_flag, check_memory
from taskscape.compare.posteriors import (
    THREADS,
    Affine,
    Tasks,
    check_factors_alike,
    check_together,
    read_chunks,
    read_posterior,
)
from taskscape.embeddings import Embeddings, Factor, Posterior, PosteriorStream, Sums
from taskscape.embeddings.factors import TASK_THEMES, expected_log, log_beta, split_columns
from taskscape.errors import DataError
from taskscape.progress import track
from taskscape.statistics import pairwise_spearman

_BLOCK_NUMBERS = 1 << 22
"""How many numbers a block of a distance matrix may hold while it is computed."""
Lam: TypeAlias = Float[np.ndarray, "*#any L"]


@dataclass(frozen=True)
class Divergence:
    """A distance between posteriors of tasks, computed factor by factor.

    ``compute`` takes broadcastable arrays (…, L) of concentrations. Of means of unit covariance the
    divergence is ``gaussian`` times their squared distance. The values of several factors are
    summed by weight.
    """

    name: str
    compute: Callable[[Any, Any], np.ndarray]
    symmetric: bool
    meaning: str
    gaussian: float
    finish: Callable[[Any], np.ndarray] = np.asarray
    """Makes the distance of the sum over factors."""
    most: float = np.inf
    """The largest value it can take."""

    def between(self, a: Lam, b: Lam, factors: tuple[Factor, ...]) -> np.ndarray:
        """The distances of broadcastable arrays of posteriors with these factors."""
        total: Any = 0.0
        parts = zip(factors, split_columns(a, factors), split_columns(b, factors), strict=True)
        for factor, x, y in parts:
            if factor.kind == "gaussian":
                own = self.gaussian * ((x - y) ** 2).sum(-1)
            else:
                own = self.compute(x, y)
            total = total + factor.weight * own
        return self.finish(total)


def kl(a: Lam, b: Lam) -> np.ndarray:
    r"""Kullback-Leibler divergence from Dirichlet(a) to Dirichlet(b).

    .. math:: KL[a \| b] = \ln B(b) - \ln B(a) + \sum_l (a_l - b_l)\, E_a[\ln\phi_l]
    """
    values = log_beta(b) - log_beta(a) + ((a - b) * expected_log(a)).sum(-1)
    return np.maximum(values, 0.0)


def jeffreys(a: Lam, b: Lam) -> np.ndarray:
    r"""Sum of both KL divergences, in which the normalisers cancel.

    .. math:: J = \sum_l (a_l - b_l) (E_a[\ln\phi_l] - E_b[\ln\phi_l])
    """
    return np.maximum(((a - b) * (expected_log(a) - expected_log(b))).sum(-1), 0.0)


def bhattacharyya(a: Lam, b: Lam) -> np.ndarray:
    r"""Bhattacharyya distance.

    .. math:: D_B = \tfrac12 \ln B(a) + \tfrac12 \ln B(b) - \ln B(\tfrac{a + b}{2})
    """
    return np.maximum((log_beta(a) + log_beta(b)) / 2 - log_beta((a + b) / 2), 0.0)


def hellinger(bhattacharyya: np.ndarray) -> np.ndarray:
    r"""Hellinger distance, between 0 and 1, from that of Bhattacharyya.

    .. math:: H = \sqrt{1 - e^{-D_B}}
    """
    return np.sqrt(-np.expm1(-bhattacharyya))


_ALL = (
    Divergence(
        "kl", kl, False, "what is lost when the second task stands in for the first (the paper's)",
        1 / 2,
    ),
    Divergence(
        "kl_reverse", lambda a, b: kl(b, a), False,
        "what is lost when the first stands in for the other", 1 / 2,
    ),
    Divergence("jeffreys", jeffreys, True, "sum of both KL divergences", 1.0),
    Divergence(
        "hellinger", bhattacharyya, True, "between 0 and 1; a metric", 1 / 8, hellinger, most=1.0
    ),
    Divergence("bhattacharyya", bhattacharyya, True, "minus the logarithm of the overlap", 1 / 8),
)  # fmt: skip
DIVERGENCES: Mapping[str, Divergence] = MappingProxyType({d.name: d for d in _ALL})
"""Every divergence by name."""


def find_divergence(kind: str) -> Divergence:
    """The divergence of that name."""
    return DIVERGENCES[check_choice(kind, "kind", DIVERGENCES)]


def distances(
    test: Tasks, train: Tasks | None = None, kind: str = "kl", *, paired: bool = False
) -> Any:
    """Distance from every task of ``test`` to every task of ``train``, as a matrix.

    Both are embedded tasks, or λ (tasks, L). Without ``train``, the square matrix of all pairs of
    ``test``, with zeros on the diagonal. With ``paired``, distances from each task to the one in
    the same place; one task (L,) meets many. ``kind`` is an entry of ``DIVERGENCES``; the default
    is KL from the test task to the training task, of each factor by its weight.

    For the mean over a large training set use :func:`taskscape.compare.mean_distance`, for the
    nearest tasks :func:`nearest`: neither makes a matrix.

    >>> float(distances(np.array([1.0, 2.0]), np.array([1.0, 2.0]), paired=True))
    0.0
    """
    divergence = find_divergence(kind)
    if check_flag(paired, "paired"):
        if train is None:
            raise DataError("paired=True needs train: the task that each task is compared with.")
        return _pairs(test, train, divergence)
    a = read_posterior(test, "test")
    b = a if train is None else read_posterior(train, "train")
    matrix = _matrix(a, b, divergence)
    if train is None:
        np.fill_diagonal(matrix, 0.0)
    return matrix


def _pairs(test: Tasks, train: Tasks, divergence: Divergence) -> Any:
    one = [not isinstance(x, Posterior) and as_array(x).ndim == 1 for x in (test, train)]
    a, b = (
        read_posterior(as_array(x)[None] if alone else x, name)
        for x, name, alone in zip((test, train), ("test", "train"), one, strict=True)
    )
    check_together(a, b)
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        raise DataError(
            f"test has {len(a)} tasks and train {len(b)}; pairs need as many of each, or "
            "one. For all against all leave paired=True out."
        )
    pairs = a.values.astype(np.float64), b.values.astype(np.float64)
    values = divergence.between(*pairs, a.factors)
    return values[0] if all(one) else values


def _matrix(
    a: Posterior, b: Posterior, divergence: Divergence
) -> Float[np.ndarray, "tasks trains"]:
    check_together(a, b)
    check_memory(
        8 * len(a) * len(b),
        f"a matrix of {len(a):,} × {len(b):,} distances",
        "Use mean_distance or nearest, which make no matrix, or fewer tasks.",
    )
    if divergence.name == "kl":  # two matrix products, where others go pair by pair
        return Affine.of(a).to_all(b)
    if divergence.name == "kl_reverse":
        return Affine.of(b).to_all(a).T
    matrix = np.empty((len(a), len(b)))
    step = max(1, _BLOCK_NUMBERS // b.values.size)
    starts, others = range(0, len(a), step), b.values.astype(np.float64)

    def fill(start: int) -> None:
        rows = slice(start, start + step)
        own = a.values[rows, None].astype(np.float64)
        matrix[rows] = divergence.between(own, others, a.factors)

    with ThreadPoolExecutor(THREADS) as pool:  # NumPy and SciPy let go of the interpreter lock
        for _ in track(pool.map(fill, starts), f"{divergence.name} distances", len(starts)):
            pass
    return matrix


# -- means --------------------------------------------------------------------------------------


def mean_distance(
    test: Tasks, train: Tasks | Iterable[Tasks] | Sums, *, kind: str = "kl"
) -> Float[np.ndarray, "tasks"]:
    r"""Mean distance from each test task to all training tasks, for KL in O(M + T).

    .. math:: \bar D_i = \overline{F} - F(a_i) + \nabla F(a_i) \cdot (a_i - \bar b)

    The distance is affine in (b, F(b)) of the training task, so its mean needs only their means.
    ``train`` is embedded tasks, λ (tasks, L), or an iterable of chunks of either, such as
    ``Catalogue.posteriors()``, whose files know these sums: none is read; or the sums themselves.
    Another ``kind``, an entry of ``DIVERGENCES``, goes pair by pair.

    Paper: the first equation of its section on the correlation diagram.

    >>> float(mean_distance(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))[0])
    0.0
    """
    a = read_posterior(test, "test")
    if len(a) == 0:
        raise DataError("test has no tasks.")
    if kind != "kl" and not isinstance(train, Sums):
        rows = [distances(a, chunk, kind) for chunk in read_chunks(train, "train")]
        return np.concatenate(rows or [np.empty((len(a), 0))], axis=1).mean(axis=1)
    sums, factors = _sums(train, a.factors)
    if sums.tasks == 0:
        raise DataError("train has no tasks.")
    check_factors_alike(a.factors, factors, ("test", "train"))
    each = zip(factors, _mean_of_factors(a, sums), strict=True)
    return np.asarray(sum(f.weight * distances for f, distances in each))


def _mean_of_factors(a: Posterior, train: Sums) -> Float[np.ndarray, "factors tasks"]:
    """Mean KL of each factor, from each test task to the training tasks of these sums."""
    parts = split_columns(a.values.astype(np.float64), a.factors)
    means = split_columns(train.values / train.tasks, a.factors)
    distances = []
    for f, part, mean, own, F in zip(a.factors, parts, means, a.logs.T, train.logs, strict=True):
        linear = ((part - mean) * f.gradient(part)).sum(axis=1)
        distances.append(np.maximum(F / train.tasks - own + linear, 0.0))
    return np.stack(distances)


def _sums(
    train: Tasks | Iterable[Tasks] | Sums, factors: tuple[Factor, ...]
) -> tuple[Sums, tuple[Factor, ...]]:
    """The sums over all training tasks of the factors that weigh something."""
    if isinstance(train, Sums):
        return train, factors
    if isinstance(train, PosteriorStream) and (known := train.sums()) is not None:
        return _of_weighing(known, train.catalogue.header.factors)
    total: Sums | None = None
    first = None
    for chunk in read_chunks(train, "train"):
        first = first or chunk
        check_together(chunk, first, ("a chunk of train", "another"))
        total = Sums.of(chunk) if total is None else total + Sums.of(chunk)
    if total is None or first is None:
        raise DataError("train has no tasks.")
    return total, first.factors


def _of_weighing(sums: Sums, factors: tuple[Factor, ...]) -> tuple[Sums, tuple[Factor, ...]]:
    which = [i for i, f in enumerate(factors) if f.share > 0]
    parts = split_columns(sums.values, factors)
    values = np.concatenate([parts[i] for i in which])
    return Sums(sums.tasks, values, sums.logs[which]), tuple(factors[i] for i in which)


def member_agreement(test: Tasks, train: Tasks | Sums) -> Float[np.ndarray, "pairs"]:
    """Rank correlation of the tasks' mean KL to the training tasks, for each pair of fits.

    Where the fits of an ensemble of task-themes disagree about the distances of some tasks, one
    fit's word on them is worth little; 0 for a pair of which one has all tasks at the same
    distance.
    """
    if isinstance(test, Embeddings):
        test = test.factor(TASK_THEMES)
    if isinstance(train, Embeddings):
        train = train.factor(TASK_THEMES)
    a = read_posterior(test, "test")
    sums, _ = _sums(train, a.factors)
    return np.nan_to_num(np.array(pairwise_spearman(_mean_of_factors(a, sums))))
