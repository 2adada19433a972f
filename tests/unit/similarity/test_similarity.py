"""Task-themes behind the contract of notions of similarity."""

import re
from pathlib import Path

import numpy as np
import pytest

from similarity_cases import grouped_pool
from taskscape.compare import distances, mean_kl
from taskscape.errors import DataError
from taskscape.select import select
from taskscape.similarity import (
    SIMILARITIES,
    FeatureSimilarity,
    KLSource,
    PrototypeDistance,
    ThemeSimilarity,
    distances_between,
    make_similarity,
)
from taskscape.similarity.similarity import class_means
from taskscape.tasks import sample_tasks

DOCS = Path(__file__).parents[3] / "docs" / "similarity.md"


class Model:
    def transform(self, tasks: object) -> np.ndarray:
        raise NotImplementedError


def lam(n: int, members: int | None = None, seed: int = 0) -> np.ndarray:
    shape = (n, 3) if members is None else (members, n, 3)
    return 0.5 + np.random.default_rng(seed).gamma(2.0, size=shape)


@pytest.mark.parametrize("kind", ["kl", "jeffreys", "hellinger"])
def test_distances_of_bare_lambda_are_those_of_compare(kind):
    notion, a, b = ThemeSimilarity(Model(), kind), lam(4), lam(6, seed=1)
    np.testing.assert_allclose(notion.cdist(a, b), distances(a, b, kind))
    np.testing.assert_allclose(notion.mean_distance(a, b), distances(a, b, kind).mean(1))
    assert isinstance(notion.distances(a, b), KLSource) == (kind == "kl")


def test_ensembles_have_their_members_behind_the_tasks():
    notion, a, b = ThemeSimilarity(Model()), lam(4, 3), lam(6, 3, seed=1)
    first, second = a.swapaxes(0, 1), b.swapaxes(0, 1)
    np.testing.assert_allclose(notion.cdist(first, second), distances(a, b))
    np.testing.assert_allclose(notion.mean_distance(first, second), mean_kl(a, b))


def test_earth_movers_distance_needs_alpha():
    alpha = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 2.0]])
    a = lam(4)
    found = ThemeSimilarity(Model(), "emd", alpha=alpha).cdist(a, a)
    np.testing.assert_allclose(found, distances(a, a, "emd", alpha=alpha))


def test_models_and_divergences_are_checked():
    with pytest.raises(DataError, match=r"^kind='l2' is not known; use 'kl', 'kl_rev"):
        ThemeSimilarity(Model(), "l2")
    with pytest.raises(DataError, match=r"^model is ndarray; expected something with tr"):
        ThemeSimilarity(lam(3))


def test_distances_by_any_notion():
    pool = grouped_pool()
    test, train = (sample_tasks(pool, n, n_way=5, n_shot=5, seed=n) for n in (4, 9))
    d = PrototypeDistance().fit(train).cdist(test, train)
    np.testing.assert_allclose(distances_between(test, train, "prototypes").matrix(), d)
    np.testing.assert_allclose(distances_between(test, train, d).mean_distance(), d.mean(1))
    np.testing.assert_allclose(distances_between(None, None, d).matrix(), d)
    a, b = lam(4, 3), lam(6, 3, seed=1)
    np.testing.assert_allclose(distances_between(a, b).mean_distance(), mean_kl(a, b))


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
    with pytest.raises(DataError, match=r"^scales is for λ of an ensemble"):
        distances_between(None, None, np.ones((4, 5)), scales=[1.0])


@pytest.mark.parametrize("name", SIMILARITIES)
def test_every_notion_is_described(name):
    known = SIMILARITIES[name]
    assert type(make_similarity(name)).__doc__
    assert known.meaning
    assert f"| `{name}` | {known.meaning} | {known.needs} |" in DOCS.read_text(encoding="utf-8")


class CentreDistance(FeatureSimilarity):
    """The example of docs/similarity.md."""

    def embed_features(self, features):
        return np.nanmean(class_means(features), axis=1)

    def rows(self, a, b):
        return lambda some: np.linalg.norm(a[some, None] - b, axis=-1)


def test_a_notion_of_ones_own_takes_two_methods():
    pool = grouped_pool()
    test, train = (sample_tasks(pool, n, n_way=5, n_shot=5, seed=n) for n in (4, 9))
    notion = CentreDistance(prepare=None).fit(train)
    chosen = select(test, train, 3, "nearest", similarity=notion)
    samples = (t.pool.samples[t.batch(slice(None)).support] for t in (test, train))
    centres = [x.mean(axis=(1, 2)) for x in samples]
    means = np.linalg.norm(centres[0][:, None] - centres[1], axis=-1).mean(axis=0)
    np.testing.assert_array_equal(chosen.indices, np.argsort(means)[:3])
