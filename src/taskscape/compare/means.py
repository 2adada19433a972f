"""Mean distance to a whole training set, exactly and without a matrix."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from taskscape.compare.divergences import distances
from taskscape.compare.posteriors import (
    Tasks,
    check_factors_alike,
    check_together,
    read_chunks,
    read_posterior,
)
from taskscape.embeddings import Embeddings, Factor, Posterior, PosteriorStream, Sums
from taskscape.embeddings.factors import TASK_THEMES, split_columns
from taskscape.errors import DataError
from taskscape.statistics import pairwise_spearman


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
