"""Similarity measures made by name, and the distances that any of them gives."""

from typing import Any, TypeAlias

from taskscape.arguments import Seed, check_seed
from taskscape.errors import DataError
from taskscape.meta import TrainConfig
from taskscape.similarity.distances import DistanceSource, MatrixSource, PosteriorSource
from taskscape.similarity.hardness import TaskHardness
from taskscape.similarity.known import DEFAULT_SIMILARITY, IMAGE_THEMES, POSITION, find_similarity
from taskscape.similarity.models import ModelSimilarity
from taskscape.similarity.similarity import Similarity
from taskscape.similarity.task2vec import Task2Vec, Task2VecConfig
from taskscape.similarity.transport import OTDD, PrototypeDistance, TaskMeans
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

SimilarityLike: TypeAlias = str | Similarity | DistanceSource | Any
"""A name of ``SIMILARITIES``, a similarity that is fitted, or distances: a source or a matrix."""


def make_themes(seed: int, updates: int | None) -> Similarity:
    return ModelSimilarity(TaskThemes(random_state=seed))


def make_image_themes(seed: int, updates: int | None) -> Similarity:
    return ModelSimilarity(TaskThemes(random_state=seed), IMAGE_THEMES)


def make_position(seed: int, updates: int | None) -> Similarity:
    return ModelSimilarity(TaskThemes(random_state=seed), POSITION)


def make_task_themes(seed: int, updates: int | None) -> Similarity:
    return ModelSimilarity(TaskThemes.paper(random_state=seed))


def make_task2vec(seed: int, updates: int | None) -> Similarity:
    config = None if updates is None else Task2VecConfig(train=TrainConfig(updates=updates))
    return Task2Vec(config=config, seed=seed)


def make_task_means(seed: int, updates: int | None) -> Similarity:
    return TaskMeans()


def make_prototypes(seed: int, updates: int | None) -> Similarity:
    return PrototypeDistance()


def make_otdd(seed: int, updates: int | None) -> Similarity:
    return OTDD()


def make_hardness(seed: int, updates: int | None) -> Similarity:
    return TaskHardness()


def make_similarity(name: str, *, seed: Seed = 0, updates: int | None = None) -> Similarity:
    """A similarity measure by name, with its usual settings, not yet fitted.

    ``updates`` is how long those that train a network do so.
    """
    known = find_similarity(name)
    measure = known.make(check_seed(seed), updates)
    if isinstance(measure, ModelSimilarity):
        return ModelSimilarity(measure.model, measure.factor, known.kind)
    return measure


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
