"""Models of tasks as similarity measures: posteriors, or one factor of them, and a divergence."""

from typing import Any

from taskscape.compare import distances as divergences_between
from taskscape.compare.divergences import find_divergence
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.similarity.distances import DistanceSource, PosteriorSource
from taskscape.similarity.similarity import Rows, Similarity, TaskVectors
from taskscape.tasks import TaskSet


class ModelSimilarity(Similarity):
    """Distances between the posteriors of tasks under a model.

    ``model`` is a :class:`taskscape.TaskThemes` or :class:`taskscape.themes.CoClustering`; one that
    is fitted already need not be fitted again. ``factor`` is the factor of the posterior to compare
    by, by default all of it. ``kind`` is the divergence and ``alpha`` what ``"emd"`` needs besides.
    Embeddings are :class:`taskscape.Embeddings`.
    """

    cheap = True

    def __init__(
        self, model: Any, factor: str | None = None, kind: str = "kl", *, alpha: Any = None
    ) -> None:
        if not hasattr(model, "embed"):
            raise DataError(
                f"model is {type(model).__name__}; expected something with embed(tasks), such as "
                "TaskThemes. Embedded tasks, and λ, go straight to distances_between."
            )
        self.model, self.factor, self.kind, self.alpha = model, factor, kind, alpha
        self.symmetric = find_divergence(kind).symmetric

    def fit(self, tasks: TaskSet) -> "ModelSimilarity":
        self.model.fit(tasks)
        return self

    def embed(self, tasks: TaskSet) -> Embeddings:
        embedded = self.model.embed(tasks)
        return embedded if self.factor is None else embedded.factor(self.factor)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        return lambda part: divergences_between(a[part], b, self.kind, alpha=self.alpha)

    def distances(self, test: Any, train: Any) -> DistanceSource:
        a, b = self._embedded(test, "test"), self._embedded(train, "train")
        return PosteriorSource(a, b, self.kind, alpha=self.alpha)

    def _embedded(self, tasks: Any, name: str) -> Any:
        if isinstance(tasks, TaskSet):
            return self.embed(tasks)
        one = isinstance(tasks, Embeddings) and self.factor is not None
        return tasks.factor(self.factor) if one else tasks
