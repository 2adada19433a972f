"""Models behind the contract of similarity measures."""

import re
from pathlib import Path

import numpy as np
import pytest

from fit_cases import fitted_themes, small_tasks
from similarity_cases import grouped_pool
from taskscape.compare import distances, mean_distance
from taskscape.errors import DataError
from taskscape.select import select
from taskscape.similarity import (
    SIMILARITIES,
    FeatureSimilarity,
    ModelSimilarity,
    PosteriorSource,
    PrototypeDistance,
    distances_between,
    make_similarity,
)
from taskscape.similarity.similarity import class_means
from taskscape.tasks import sample_tasks

DOCS = Path(__file__).parents[3] / "docs" / "similarity.md"


def lam(n: int, seed: int = 0) -> np.ndarray:
    return 0.5 + np.random.default_rng(seed).gamma(2.0, size=(n, 3))


@pytest.mark.parametrize("kind", ["kl", "jeffreys", "hellinger"])
@pytest.mark.parametrize("factor", [None, "image_themes", "position", "task_themes"])
def test_distances_are_those_of_compare(kind, factor):
    model = fitted_themes()
    measure = ModelSimilarity(model, factor, kind)
    test, train = small_tasks(4, seed=3), small_tasks(9, seed=4)
    a, b = (measure.embed(t) for t in (test, train))
    assert len(a.header.factors) == (3 if factor is None else 1)
    expected = distances(a, b, kind)
    for pair in ((test, train), (a, b), (model.embed(test), train)):
        np.testing.assert_allclose(measure.cdist(*pair), expected, atol=1e-12)
    np.testing.assert_allclose(measure.distances(a, b).mean_distance(), expected.mean(1))
    assert isinstance(measure.distances(a, b), PosteriorSource)


def test_models_and_divergences_are_checked():
    with pytest.raises(DataError, match=r"^kind='l2' is not known; use 'kl', 'kl_rev"):
        ModelSimilarity(fitted_themes(), kind="l2")
    with pytest.raises(DataError, match=r"^model is ndarray; expected something with em"):
        ModelSimilarity(lam(3))


@pytest.mark.parametrize("name", ["themes", "image_themes", "position", "task_themes"])
def test_embedded_tasks_are_compared_by_name(name):
    a, b = (fitted_themes().embed(small_tasks(n, seed=n)) for n in (4, 9))
    expected = distances(a, b) if name == "themes" else distances(a.factor(name), b.factor(name))
    np.testing.assert_allclose(distances_between(a, b, name).matrix(), expected)


def test_distances_by_any_measure():
    pool = grouped_pool()
    test, train = (sample_tasks(pool, n, n_way=5, n_shot=5, seed=n) for n in (4, 9))
    d = PrototypeDistance().fit(train).cdist(test, train)
    np.testing.assert_allclose(distances_between(test, train, "prototypes").matrix(), d)
    np.testing.assert_allclose(distances_between(test, train, d).mean_distance(), d.mean(1))
    np.testing.assert_allclose(distances_between(None, None, d).matrix(), d)
    a, b = lam(4), lam(6, seed=1)
    np.testing.assert_allclose(distances_between(a, b).mean_distance(), mean_distance(a, b))


def test_what_cannot_be_compared_is_said():
    known = ", ".join(SIMILARITIES)
    a, b = lam(4), lam(6, seed=1)
    for given, message in (
        ("cosine", f"similarity='cosine' is not known; use one of {known}, a fitted similarity, "
         "or distances."),
        ("prototypes", "similarity='prototypes' by name needs task sets; for what it embedded, "
         "pass the fitted similarity itself."),
        (np.ones((4, 5)), "train has 6 tasks; the distances are of 5."),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            distances_between(a, b, given)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_every_measure_is_described(name):
    known = SIMILARITIES[name]
    assert type(make_similarity(name)).__doc__
    assert known.meaning
    assert f"| `{name}` | {known.meaning} | {known.needs} |" in DOCS.read_text(encoding="utf-8")


class CentreDistance(FeatureSimilarity):
    """The example of docs/similarity.md."""

    def embed_features(self, features):
        return np.nanmean(class_means(features), axis=1)

    def rows(self, a, b):
        return lambda part: np.linalg.norm(a[part, None] - b, axis=-1)


def test_a_measure_of_ones_own_takes_two_methods():
    pool = grouped_pool()
    test, train = (sample_tasks(pool, n, n_way=5, n_shot=5, seed=n) for n in (4, 9))
    measure = CentreDistance(prepare=None).fit(train)
    chosen = select(test, train, 3, "nearest", similarity=measure)
    samples = (t.pool.samples[t.pool_rows(slice(None)).support] for t in (test, train))
    centres = [x.mean(axis=(1, 2)) for x in samples]
    means = np.linalg.norm(centres[0][:, None] - centres[1], axis=-1).mean(axis=0)
    np.testing.assert_array_equal(chosen.indices, np.argsort(means)[:3])
