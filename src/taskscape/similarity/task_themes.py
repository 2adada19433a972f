"""Task-themes as one notion of similarity: posteriors over task-themes, and a divergence."""

from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.compare import distances as divergences_between
from taskscape.compare.divergences import find_divergence
from taskscape.errors import DataError
from taskscape.similarity.distances import DistanceSource, KLSource
from taskscape.similarity.similarity import Rows, Similarity, TaskVectors
from taskscape.tasks import TaskSet


class ThemeSimilarity(Similarity):
    """Task-themes: λ of each task, with a divergence between Dirichlet posteriors.

    ``model`` is a :class:`taskscape.TaskThemes`, or anything whose ``transform(tasks)`` gives λ
    (tasks, L), or (members, tasks, L) for an ensemble. A model that is fitted already need not be
    fitted again. Embeddings are λ; those of an ensemble are (tasks, members, L). TaskVectors tasks
    that have their λ as ``.lam`` are taken too. ``kind`` is the divergence and ``alpha`` what
    ``"emd"`` needs besides.
    """

    def __init__(self, model: Any, kind: str = "kl", *, alpha: Any = None) -> None:
        if not hasattr(model, "transform"):
            raise DataError(
                f"model is {type(model).__name__}; expected something with transform(tasks), such "
                "as TaskThemes. λ that you have already go straight to cdist and mean_distance."
            )
        self.model, self.kind, self.alpha = model, kind, alpha
        self.symmetric = find_divergence(kind).symmetric

    def fit(self, tasks: TaskSet) -> "ThemeSimilarity":
        self.model.fit(tasks)
        return self

    def embed(self, tasks: TaskSet) -> TaskVectors:
        return _tasks_first(self.model.transform(tasks))

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        # whole, not by blocks: an ensemble divides by each member's mean over all pairs
        distances = divergences_between(
            _members_first(a), _members_first(b), self.kind, alpha=self.alpha
        )
        return lambda part: distances[part]

    def distances(self, test: Any, train: Any) -> DistanceSource:
        if self.kind != "kl":
            return super().distances(test, train)
        a, b = self._embedded(test, "test"), self._embedded(train, "train")
        return KLSource(_members_first(a), _members_first(b))

    def _embedded(self, tasks: Any, name: str) -> TaskVectors:
        lam = getattr(tasks, "lam", None)
        return super()._embedded(tasks if lam is None else _tasks_first(lam), name)


def _tasks_first(lam: Any) -> TaskVectors:
    values = np.asarray(lam, dtype=np.float64)
    return values if values.ndim == 2 else np.moveaxis(values, 0, 1)


def _members_first(lam: TaskVectors) -> Float[np.ndarray, "*members tasks L"]:
    return lam if lam.ndim == 2 else np.moveaxis(lam, 1, 0)
