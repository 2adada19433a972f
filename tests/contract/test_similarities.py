"""Every notion of similarity: the same tests for all of them."""

import io
from functools import partial

import numpy as np
import pytest

from similarity_cases import QUICK, grouped_pool, task_of
from taskscape.errors import DataError
from taskscape.select import RULES, select
from taskscape.similarity import (
    OTDD,
    SIMILARITIES,
    DistanceSource,
    Similarity,
    Task2Vec,
    ThemeSimilarity,
    make_similarity,
)
from taskscape.tasks import TaskSet, sample_tasks


class CountingModel:
    """Stands in for a task-theme model: λ counts the classes in either group of the pool."""

    def __init__(self, members: int = 1) -> None:
        self.members = members

    def fit(self, tasks: TaskSet) -> "CountingModel":
        self.fitted = True
        return self

    def transform(self, tasks: TaskSet) -> np.ndarray:
        real, second = tasks.classes >= 0, tasks.classes >= 8
        spread = 0.01 * (tasks.classes * real).sum(1)
        lam = 0.5 + np.stack([(real & ~second).sum(1), second.sum(1), spread], axis=1)
        return lam if self.members == 1 else np.stack([lam * (e + 1) for e in range(self.members)])


def registered(name: str) -> Similarity:
    """A notion as its name makes it; fitting task-themes is tested elsewhere, and takes long."""
    notion = make_similarity(name, updates=30)
    if isinstance(notion, ThemeSimilarity):
        notion.model = CountingModel()
    return notion


VARIANTS = {
    "task2vec, per unit": lambda: Task2Vec(per="unit", config=QUICK),
    "task2vec, plain cosine": lambda: Task2Vec(distance="cosine", config=QUICK),
    "otdd, diagonal": lambda: OTDD(covariance="diagonal"),
    "otdd, samples": lambda: OTDD(level="samples"),
    "task_themes, hellinger": lambda: ThemeSimilarity(CountingModel(), "hellinger"),
    "task_themes, ensemble": lambda: ThemeSimilarity(CountingModel(3)),
}
NOTIONS = {name: partial(registered, name) for name in SIMILARITIES} | VARIANTS
POOL = grouped_pool()
_FITTED: dict[str, Similarity] = {}


@pytest.fixture(name="notion", params=list(NOTIONS))
def fitted(request: pytest.FixtureRequest) -> Similarity:
    name = request.param
    if name not in _FITTED:
        train = sample_tasks(POOL, 40, n_way=5, n_shot=5, seed=0)
        _FITTED[name] = NOTIONS[name]().fit(train)
    return _FITTED[name]


def name_of(notion: Similarity) -> str:
    return next(name for name, fitted in _FITTED.items() if fitted is notion)


def some_tasks(n: int = 7, seed: int = 1) -> TaskSet:
    """Tasks of several sizes; few numbers of them, since some notions compile for each."""
    return sample_tasks(POOL, n, n_way=(3, 6), n_shot=(2, 5), seed=seed)


def test_embeddings_are_arrays_with_the_tasks_first(notion):
    embedded = notion.embed(some_tasks())
    assert isinstance(embedded, np.ndarray)
    assert len(embedded) == 7
    kept = io.BytesIO()
    np.save(kept, embedded)
    kept.seek(0)
    np.testing.assert_array_equal(np.load(kept, allow_pickle=False), embedded)


def test_embedding_is_a_function_of_the_task_alone(notion):
    tasks = some_tasks()
    both = notion.embed(tasks)
    np.testing.assert_array_equal(notion.embed(tasks), both)
    some = notion.embed(tasks[2:4])
    if some.shape[1:] == both.shape[1:]:
        np.testing.assert_allclose(some, both[2:4], rtol=1e-4, atol=1e-6)
    else:  # less padding
        wanted = notion.cdist(both[2:4], both)
        np.testing.assert_allclose(notion.cdist(some, both), wanted, rtol=1e-6, atol=1e-6)


def test_fitting_again_gives_the_same(notion):
    train = sample_tasks(POOL, 40, n_way=5, n_shot=5, seed=0)
    again = NOTIONS[name_of(notion)]().fit(train)
    np.testing.assert_allclose(
        again.embed(some_tasks()), notion.embed(some_tasks()), rtol=1e-5, atol=1e-7
    )


def test_distances_are_not_negative_and_zero_to_itself(notion):
    tasks = some_tasks()
    d = notion.cdist(tasks, tasks)
    assert d.shape == (7, 7)
    assert np.isfinite(d).all()
    assert (d >= 0).all()
    np.testing.assert_allclose(np.diag(d), 0, atol=1e-5)
    if notion.symmetric:
        np.testing.assert_allclose(d, d.T, atol=1e-5)


def test_mean_distance_is_the_mean_of_the_distances(notion):
    test, train = some_tasks(), some_tasks(12, seed=2)
    wanted = notion.cdist(test, train).mean(axis=1)
    assert np.ptp(wanted) > 0
    np.testing.assert_allclose(notion.mean_distance(test, train), wanted, rtol=1e-6)


def test_blocks_of_distances_do_not_matter(notion, monkeypatch):
    a, b = notion.embed(some_tasks()), notion.embed(some_tasks(seed=2))
    whole = notion.cdist(a, b)
    monkeypatch.setattr(notion, "pairs_at_once", 10)
    np.testing.assert_allclose(notion.cdist(a, b), whole, rtol=1e-6, atol=1e-12)


def test_order_of_classes_does_not_matter(notion):
    order = [3, 1, 0, 4, 2]
    tasks = sample_tasks(POOL, 7, n_way=5, n_shot=5, seed=3)
    shuffled = TaskSet(POOL, tasks.classes[:, order], tasks.keys, tasks.n_shot)
    other = some_tasks(seed=4)
    np.testing.assert_allclose(
        notion.cdist(shuffled, other), notion.cdist(tasks, other), rtol=2e-3, atol=1e-6
    )


def test_the_distances_are_one_object(notion):
    test, train = some_tasks(), some_tasks(12, seed=2)
    source, d = notion.distances(test, train), notion.cdist(test, train)
    assert isinstance(source, DistanceSource)
    rows, columns = np.arange(1, 4), np.array([0, 5, 11])
    np.testing.assert_allclose(source.block(rows, columns), d[np.ix_(rows, columns)], rtol=1e-6)
    np.testing.assert_allclose(source.mean_distance(), d.mean(axis=1), rtol=1e-6)
    near = source.nearest(rows, 3)
    np.testing.assert_allclose(near.distances, np.sort(d[rows], axis=1)[:, :3], rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_selection_takes_it(notion, rule):
    test, train = some_tasks(), some_tasks(12, seed=2)
    chosen = select(test, train, 3, rule, similarity=notion).indices
    assert len(set(chosen.tolist())) == 3
    embedded = notion.embed(test), notion.embed(train)
    again = select(*embedded, 3, rule, similarity=notion, train_classes=train).indices
    np.testing.assert_array_equal(chosen, again)
    if rule == "nearest":
        means = notion.cdist(test, train).mean(axis=0)
        assert means[chosen[0]] == pytest.approx(means.min(), rel=1e-5)


def test_tasks_that_share_classes_are_nearer(notion):
    if notion.within_task:
        pytest.skip("looks at one task at a time")
    here = task_of(POOL, [[0, 1, 2, 3, 4], [3, 5, 6, 1, 7], [2, 4, 6, 0, 5]], seed=5)
    there = task_of(POOL, [[8, 9, 10, 11, 12], [11, 13, 14, 9, 15], [10, 12, 14, 8, 13]], seed=6)
    again = task_of(POOL, [[0, 1, 2, 3, 5], [3, 5, 6, 1, 2], [2, 4, 7, 0, 5]], seed=7)
    d = notion.cdist(here, TaskSet.concatenate([again, there]))
    assert d[:, :3].mean() < 0.8 * d[:, 3:].mean()


def test_embeddings_of_other_settings_are_refused(notion):
    embedded = notion.embed(some_tasks())
    with pytest.raises(DataError):
        notion.cdist(embedded, embedded[..., :1].repeat(2, axis=-1)[..., None])
    with pytest.raises(DataError, match="expected tasks, or what embed made of them"):
        notion.cdist(embedded, np.zeros(3))
