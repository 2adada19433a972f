"""The posteriors of tasks: read, told apart, and the affine form of the distance between them."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int, UInt64

from taskscape.arguments import as_array, as_numbers, check_number
from taskscape.embeddings import Embeddings, Factor, Posterior
from taskscape.embeddings.embeddings import check_factors, describe_factors
from taskscape.embeddings.factors import TASK_THEMES
from taskscape.errors import DataError
from taskscape.tasks.draws import subkeys

THREADS = max(1, min(4, os.cpu_count() or 1))
"""How many threads compare tasks."""
Tasks: TypeAlias = Any
"""Embedded tasks, or λ of your own as an array (tasks, task-themes)."""


class Affine(NamedTuple):
    r"""The distance from queries a to any task b, which is affine in (b, F(b)).

    .. math:: D(a, b) = F(b) - F(a) + g \cdot (a - b), \quad
        F = \sum_f w_f F_f, \quad g = \nabla F(a)

    The factors of the posterior stand side by side; w are their weights.
    """

    values: Float[np.ndarray, "queries columns"]
    g: Float[np.ndarray, "queries columns"]
    F: Float[np.ndarray, "queries"]

    @staticmethod
    def of(queries: Posterior) -> "Affine":
        """The distance from these queries."""
        values = queries.values.astype(np.float64)
        return Affine(values, queries.gradient, queries.log_normaliser)

    @property
    def constant(self) -> Float[np.ndarray, "queries"]:
        """What does not depend on the task b."""
        return (self.values * self.g).sum(axis=1) - self.F

    def to_all(self, tasks: Posterior) -> Float[np.ndarray, "queries tasks"]:
        """From every query to every task."""
        distances = self.g @ tasks.values.astype(np.float64).T
        np.subtract(tasks.log_normaliser, distances, out=distances)
        return np.maximum(distances + self.constant[:, None], 0.0)

    def to_own(
        self,
        query: Int[np.ndarray, "pairs"],
        b: Float[np.ndarray, "pairs columns"],
        F: Float[np.ndarray, "pairs"],
    ) -> Float[np.ndarray, "pairs"]:
        """From some queries to a task each, pair by pair: equal tasks are equally far."""
        linear = ((self.values[query] - b) * self.g[query]).sum(-1)
        return np.maximum(F - self.F[query] + linear, 0.0)


def read_posterior(tasks: Tasks, name: str) -> Posterior:
    """The posteriors of tasks, checked; factors that weigh nothing are left out."""
    if isinstance(tasks, Posterior):
        return tasks
    if isinstance(tasks, Embeddings):
        whole = tasks.posterior
        weighing = [f for f in whole.factors if f.share > 0]
        return whole if len(weighing) == len(whole.factors) else whole.only(weighing)
    lam = as_numbers(tasks)
    if lam.ndim != 2 or lam.shape[1] < 2:
        raise DataError(
            f"{name} is {type(tasks).__name__} of shape {lam.shape}; expected embedded tasks "
            "(model.embed), or λ as an array (tasks, task-themes) with at least 2 task-themes."
        )
    factors = (Factor(TASK_THEMES, "dirichlet", lam.shape[1]),)
    check_factors(lam, factors, name)
    return Posterior.of(lam, factors)


def check_together(
    test: Posterior, train: Posterior, names: tuple[str, str] = ("test", "train")
) -> None:
    """Raise an error unless both come from models of the same shape and neither is empty."""
    for posterior, name in ((test, names[0]), (train, names[1])):
        if len(posterior) == 0:
            raise DataError(f"{name} has no tasks.")
    check_factors_alike(test.factors, train.factors, names)


def check_factors_alike(
    test: tuple[Factor, ...], train: tuple[Factor, ...], names: tuple[str, str]
) -> None:
    """Raise an error unless the posteriors of both are of the same shape."""
    if [(f.kind, f.size, f.weight) for f in test] != [(f.kind, f.size, f.weight) for f in train]:
        raise DataError(
            f"{names[0]} has {describe_factors(test)} and {names[1]} {describe_factors(train)}; "
            "embed both with the same model."
        )


def read_chunks(train: Tasks | Iterable[Tasks], name: str) -> Iterator[Posterior]:
    """The chunks of a training set given as one array or posterior, or as an iterable of them.

    A list whose entries are arrays of λ is an iterable of chunks; a list of numbers is an array.
    """
    if isinstance(train, Posterior) or hasattr(train, "__array__"):
        streamed = False
    elif isinstance(train, list | tuple):
        streamed = bool(train) and (isinstance(train[0], Embeddings) or np.ndim(train[0]) >= 2)
    else:
        streamed = isinstance(train, Iterable)
    for i, chunk in enumerate(train if streamed else [train]):
        posterior = read_posterior(chunk, f"{name}, chunk {i}," if streamed else name)
        if len(posterior):
            yield posterior


def normalise_ways(tasks: Embeddings, *, n_way: float | int = 5) -> Embeddings:
    r"""The task-themes of tasks as if every one had ``n_way`` classes in its own proportions.

    .. math:: \lambda' = \delta + (\lambda - \delta)\, \frac{n}{\sum_l (\lambda_l - \delta_l)}

    Every class of a task adds one to the sum of λ, so a task of many classes has a narrower
    posterior, and KL sees that. After this, tasks with equal proportions have equal λ whatever
    their number of classes. (Image-themes count every task as the same number of samples: they need
    none of this.)
    """
    check_number(n_way, "n_way", 0, open_="low")
    themes, prior = tasks.factor(TASK_THEMES), tasks.header.delta
    if prior is None or min(lam.min() for lam in tasks.lam) < prior - 1e-3:
        raise DataError(
            f"delta={prior}, and λ goes down to {min(lam.min() for lam in tasks.lam):g}; give "
            "Embeddings.of the delta that the model was fitted with."
        )
    counts = [np.maximum(lam.astype(np.float64) - prior, 0.0) for lam in tasks.lam]
    parts = [prior + c * (n_way / c.sum(axis=1, keepdims=True)) for c in counts]
    even = Posterior.of(np.concatenate(parts, axis=1), themes.header.factors)
    return replace(themes, values=even.values, logs=even.logs)


# -- rows ---------------------------------------------------------------------------------------


class DistinctRows(NamedTuple):
    """Which rows of an array are equal; their order depends on their content, not their place."""

    first: Int[np.ndarray, "distinct"]
    """A row of each kind."""
    kind: Int[np.ndarray, "rows"]
    """For every row, the place of its kind."""
    counts: Int[np.ndarray, "distinct"]


def row_hashes(rows: Float[np.ndarray, "rows dims"], seed: int = 0) -> UInt64[np.ndarray, "rows"]:
    """64 bits that depend on the content of each row and the seed."""
    bits = np.ascontiguousarray(rows, dtype=np.float64).view(np.int64)
    h = np.full(len(rows), seed % 2**64, dtype=np.uint64)
    for column in bits.T:
        h = subkeys(h, column)
    return h


def class_hashes(
    classes: Int[np.ndarray, "rows way"], start: UInt64[np.ndarray, "rows"]
) -> UInt64[np.ndarray, "rows"]:
    """64 bits from ``start`` and each row's set of classes; padding with -1 has no effect."""
    h = start
    for column in -np.sort(-classes.astype(np.int64), axis=1).T:
        h = np.where(column >= 0, subkeys(h, column), h)
    return h


def distinct_rows(
    rows: Float[np.ndarray, "rows dims"], known: Float[np.ndarray, "rows few"] | None = None
) -> DistinctRows:
    """Group the rows that are equal bit for bit, in the time of one sort.

    ``known`` are a few numbers that follow from each row, and nearly always tell rows apart.
    """
    told_by, salt = rows if known is None else known, 0
    while True:
        _, first, kind, counts = np.unique(
            row_hashes(told_by, salt), return_index=True, return_inverse=True, return_counts=True
        )
        again = np.flatnonzero(counts[kind.reshape(-1)] > 1)
        if np.array_equal(rows[first[kind.reshape(-1)[again]]], rows[again]):
            return DistinctRows(first, kind.reshape(-1), counts)
        told_by, salt = rows, salt + 1  # two different rows met in one hash


def read_classes(
    given: object, n_tasks: int, name: str = "train_classes"
) -> Int[np.ndarray, "tasks way"]:
    """Class ids (tasks, way) of a TaskSet or an array, checked against the number of tasks."""
    classes = as_array(getattr(given, "classes", given))
    if classes.ndim != 2 or classes.dtype.kind not in "iu" or len(classes) != n_tasks:
        raise DataError(
            f"{name} has shape {classes.shape} and type {classes.dtype}; expected a TaskSet, or "
            f"class ids (tasks, way) padded with -1, for {n_tasks} tasks."
        )
    return classes.astype(np.int64)
