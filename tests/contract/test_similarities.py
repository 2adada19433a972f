"""Every similarity measure: the same tests for all of them."""

import io
from functools import partial

import numpy as np
import pytest

from fit_cases import quick_starts
from similarity_cases import QUICK, grouped_pool, task_of
from taskscape.errors import DataError
from taskscape.select import RULES, select
from taskscape.similarity import (
    OTDD,
    SIMILARITIES,
    DistanceSource,
    ModelSimilarity,
    Similarity,
    Task2Vec,
    TaskHardness,
    make_similarity,
)
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes import CoClustering, TaskThemes
from taskscape.themes.task_model import without_advice


def registered(name: str) -> Similarity:
    """A measure as its name makes it, but for the time that learning takes."""
    measure = make_similarity(name, updates=30)
    if name == "task_themes":
        measure = ModelSimilarity(paper())
    return measure


def paper(fits: int = 1) -> CoClustering:
    """The paper's model, quick to fit."""
    return TaskThemes.paper(
        2, 4, max_passes=1, prepare=None, n_held_out=5, n_restarts=fits, ensemble=fits
    )


VARIANTS = {
    "task2vec, per unit": lambda: Task2Vec(per="unit", config=QUICK),
    "otdd, samples": lambda: OTDD(level="samples"),
    "themes, hellinger": lambda: ModelSimilarity(TaskThemes(8), kind="hellinger"),
    "task_themes, ensemble": lambda: ModelSimilarity(paper(2)),
}
MEASURES = {name: partial(registered, name) for name in SIMILARITIES} | VARIANTS
POOL = grouped_pool()
_FITTED: dict[str, Similarity] = {}


@pytest.fixture(name="measure", params=list(MEASURES))
def fitted(request: pytest.FixtureRequest) -> Similarity:
    name = request.param
    if name not in _FITTED:
        train = sample_tasks(POOL, 40, n_way=5, n_shot=5, seed=0)
        with without_advice(), quick_starts():
            _FITTED[name] = MEASURES[name]().fit(train)
    return _FITTED[name]


def name_of(measure: Similarity) -> str:
    return next(name for name, fitted in _FITTED.items() if fitted is measure)


@pytest.fixture(autouse=True)
def _calm():
    """Tasks of so few classes may be unlike those that were learned from."""
    with without_advice():
        yield


def some_tasks(n: int = 7, seed: int = 1) -> TaskSet:
    """Tasks of several sizes; few numbers of them, since some measures compile for each."""
    return sample_tasks(POOL, n, n_way=(3, 6), n_shot=(2, 5), seed=seed)


def test_embeddings_are_arrays_with_the_tasks_first(measure):
    embedded = measure.embed(some_tasks())
    assert len(embedded) == 7
    kept = io.BytesIO()
    np.save(kept, np.asarray(embedded))
    kept.seek(0)
    np.testing.assert_array_equal(np.load(kept, allow_pickle=False), embedded)


def test_embedding_is_a_function_of_the_task_alone(measure):
    tasks = some_tasks()
    both = measure.embed(tasks)
    np.testing.assert_array_equal(measure.embed(tasks), both)
    part = measure.embed(tasks[2:4])
    if np.shape(part)[1:] == np.shape(both)[1:]:
        np.testing.assert_allclose(part, both[2:4], rtol=1e-3, atol=1e-3)
    else:  # less padding
        wanted = measure.cdist(both[2:4], both)
        np.testing.assert_allclose(measure.cdist(part, both), wanted, rtol=1e-6, atol=1e-6)


def test_fitting_again_gives_the_same(measure):
    train = sample_tasks(POOL, 40, n_way=5, n_shot=5, seed=0)
    with without_advice(), quick_starts():
        again = MEASURES[name_of(measure)]().fit(train)
    np.testing.assert_allclose(
        again.embed(some_tasks()), measure.embed(some_tasks()), rtol=1e-5, atol=1e-7
    )


def test_distances_are_not_negative_and_zero_to_itself(measure):
    tasks = some_tasks()
    d = measure.cdist(tasks, tasks)
    assert d.shape == (7, 7)
    assert np.isfinite(d).all()
    assert (d >= 0).all()
    np.testing.assert_allclose(np.diag(d), 0, atol=1e-5)
    if measure.symmetric:
        np.testing.assert_allclose(d, d.T, atol=1e-5)


def test_mean_distance_is_the_mean_of_the_distances(measure):
    test, train = some_tasks(), some_tasks(12, seed=2)
    wanted = measure.cdist(test, train).mean(axis=1)
    assert np.ptp(wanted) > 0
    np.testing.assert_allclose(measure.distances(test, train).mean_distance(), wanted, rtol=1e-6)


def test_blocks_of_distances_do_not_matter(measure, monkeypatch):
    a, b = measure.embed(some_tasks()), measure.embed(some_tasks(seed=2))
    whole = measure.cdist(a, b)
    monkeypatch.setattr(measure, "pairs_at_once", 10)
    np.testing.assert_allclose(measure.cdist(a, b), whole, rtol=1e-6, atol=1e-12)


def test_order_of_classes_does_not_matter(measure):
    order = [3, 1, 0, 4, 2]
    tasks = sample_tasks(POOL, 7, n_way=5, n_shot=5, seed=3)
    shuffled = TaskSet(POOL, tasks.classes[:, order], tasks.keys, tasks.n_shot)
    other = some_tasks(seed=4)
    np.testing.assert_allclose(
        measure.cdist(shuffled, other), measure.cdist(tasks, other), rtol=2e-3, atol=1e-6
    )


def test_the_distances_are_one_object(measure):
    test, train = some_tasks(), some_tasks(12, seed=2)
    source, d = measure.distances(test, train), measure.cdist(test, train)
    assert isinstance(source, DistanceSource)
    rows, columns = np.arange(1, 4), np.array([0, 5, 11])
    np.testing.assert_allclose(source.block(rows, columns), d[np.ix_(rows, columns)], rtol=1e-6)
    np.testing.assert_allclose(source.mean_distance(), d.mean(axis=1), rtol=1e-6)
    near = source.nearest(rows, 3)
    np.testing.assert_allclose(near.distances, np.sort(d[rows], axis=1)[:, :3], rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_selection_takes_it(measure, rule):
    test, train = some_tasks(), some_tasks(12, seed=2)
    chosen = select(test, train, 3, rule, similarity=measure).indices
    assert len(set(chosen.tolist())) == 3
    embedded = measure.embed(test), measure.embed(train)
    again = select(*embedded, 3, rule, similarity=measure, train_classes=train).indices
    np.testing.assert_array_equal(chosen, again)
    if rule == "nearest":
        means = measure.cdist(test, train).mean(axis=0)
        assert means[chosen[0]] == pytest.approx(means.min(), rel=1e-5)


def test_tasks_that_share_classes_are_nearer(measure):
    if isinstance(measure, TaskHardness):
        pytest.skip("looks at one task at a time")
    here = task_of(POOL, [[0, 1, 2, 3, 4], [3, 5, 6, 1, 7], [2, 4, 6, 0, 5]], seed=5)
    there = task_of(POOL, [[8, 9, 10, 11, 12], [11, 13, 14, 9, 15], [10, 12, 14, 8, 13]], seed=6)
    again = task_of(POOL, [[0, 1, 2, 3, 5], [3, 5, 6, 1, 2], [2, 4, 7, 0, 5]], seed=7)
    d = measure.cdist(here, TaskSet.concatenate([again, there]))
    assert d[:, :3].mean() < 0.8 * d[:, 3:].mean()


def test_embeddings_of_other_settings_are_refused(measure):
    embedded = measure.embed(some_tasks())
    other = np.asarray(embedded)[..., :1].repeat(2, axis=-1)[..., None]
    for wrong in (other, np.zeros(3)):
        with pytest.raises(DataError, match=r"embed"):
            measure.cdist(embedded, wrong)
