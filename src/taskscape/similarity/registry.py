"""Similarity measures by name or of a model, and the distances that any of them gives."""

from typing import Any, TypeAlias

from sklearn.base import clone

from taskscape.arguments import Seed, check_kind, check_seed
from taskscape.compare import distances as divergences_between
from taskscape.compare.divergences import find_divergence
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.similarity.known import DEFAULT_SIMILARITY, find_similarity
from taskscape.similarity.similarity import (
    DistanceSource,
    MatrixSource,
    PosteriorSource,
    Rows,
    Similarity,
    TaskVectors,
)
from taskscape.tasks import TaskSet
from taskscape.themes.task_model import TaskModel

SimilarityLike: TypeAlias = str | Similarity | DistanceSource | Any
"""A name of ``SIMILARITIES``, a similarity that is fitted, or distances: a source or a matrix."""


class ModelSimilarity(Similarity):
    """Distances between the posteriors of tasks under a model.

    ``model`` is a :class:`taskscape.TaskThemes` or :class:`taskscape.themes.CoClustering`; one that
    is fitted already need not be fitted again. ``factor`` is the factor of the posterior to compare
    by, by default all of it. ``kind`` is the divergence. Embeddings are
    :class:`taskscape.Embeddings`.
    """

    cheap = True

    def __init__(self, model: Any, factor: str | None = None, kind: str = "kl") -> None:
        if not hasattr(model, "embed"):
            raise DataError(
                f"model is {type(model).__name__}; expected something with embed(tasks), such as "
                "TaskThemes. Embedded tasks, and λ, go straight to distances_between."
            )
        self.model, self.factor, self.kind = model, factor, kind
        self.symmetric = find_divergence(kind).symmetric

    def fit(self, tasks: TaskSet) -> "ModelSimilarity":
        self.model.fit(tasks)
        return self

    def embed(self, tasks: TaskSet) -> Embeddings:
        embedded = self.model.embed(tasks)
        return embedded if self.factor is None else embedded.factor(self.factor)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        return lambda part: divergences_between(a[part], b, self.kind)

    def distances(self, test: Any, train: Any) -> DistanceSource:
        a, b = self._embedded(test, "test"), self._embedded(train, "train")
        return PosteriorSource(a, b, self.kind)

    def _embedded(self, tasks: Any, name: str) -> Any:
        if isinstance(tasks, TaskSet):
            return self.embed(tasks)
        one = isinstance(tasks, Embeddings) and self.factor is not None
        return tasks.factor(self.factor) if one else tasks


def make_similarity(name: str, *, seed: Seed = 0, updates: int | None = None) -> Similarity:
    """A similarity measure by name, with its usual settings, not yet fitted.

    ``updates`` is how long those that train a network do so.
    """
    known = find_similarity(name)
    if known.factor is None:
        return known.measure.usual(check_seed(seed), updates)
    model = known.measure(random_state=check_seed(seed))
    return ModelSimilarity(model, known.factor or None, known.kind)


def unfitted(similarity: Any, seed: int) -> Similarity:
    """A measure to fit again: by its name, of a model like this one, or the measure itself."""
    if isinstance(similarity, TaskModel):
        return ModelSimilarity(clone(similarity))
    if isinstance(similarity, str):
        return make_similarity(similarity, seed=seed)
    check_kind(similarity, Similarity, "similarity", "Give a name of SIMILARITIES, or a model.")
    return similarity


def fitted_to(train: Any, similarity: SimilarityLike, *, seed: Seed = 0) -> SimilarityLike:
    """A measure by name, made and fitted where ``train`` is a task set; others as they are."""
    if isinstance(similarity, str) and isinstance(train, TaskSet):
        return make_similarity(similarity, seed=seed).fit(train)
    return similarity


def distances_between(
    test: Any,
    train: Any,
    similarity: SimilarityLike = DEFAULT_SIMILARITY,
    *,
    seed: Seed = 0,
) -> DistanceSource:
    """The distances from test tasks to training tasks, by any similarity measure.

    ``similarity`` is

    - a name of ``SIMILARITIES``: with task sets it is made and fitted to the training tasks;
      embedded tasks are compared by their posteriors, all of it or the factor of that name, and λ
      of your own (tasks, L) as a Dirichlet; ``NAME:DIVERGENCE`` goes by another divergence than KL;
    - a :class:`Similarity` that is fitted, with task sets or what it embedded;
    - distances: a :class:`DistanceSource`, or a matrix (test tasks, training tasks). ``test`` and
      ``train`` are then None, or only counted.

    >>> lam = np.array([[1.0, 2.0], [2.0, 1.0], [4.0, 1.0]])
    >>> distances_between(lam[:1], lam).nearest(np.array([0]), 2).indices.tolist()
    [[0, 1]]
    """
    similarity = fitted_to(train, similarity, seed=seed)
    if isinstance(similarity, str):
        known = find_similarity(similarity)
        if (factor := known.factor) is None:
            raise DataError(
                f"similarity={similarity!r} by name needs task sets; for what it embedded, pass "
                "the fitted similarity itself."
            )
        test, train = (
            t.factor(factor) if factor and hasattr(t, "factor") else t for t in (test, train)
        )
        return PosteriorSource(test, train, known.kind)
    if isinstance(similarity, Similarity):
        return similarity.distances(test, train)
    source = similarity if isinstance(similarity, DistanceSource) else MatrixSource(similarity)
    for name, tasks, n in (("test", test, source.n_test), ("train", train, source.n_train)):
        if tasks is not None and len(tasks) != n:
            raise DataError(f"{name} has {len(tasks)} tasks; the distances are of {n}.")
    return source
