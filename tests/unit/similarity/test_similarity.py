"""Task-themes behind the contract of notions of similarity."""

import numpy as np
import pytest

from taskscape.compare import cdist, mean_kl
from taskscape.errors import DataError
from taskscape.select import KLSource, MatrixSource
from taskscape.similarity import ThemeEmbedding


class Model:
    def transform(self, tasks: object) -> np.ndarray:
        raise NotImplementedError


def lam(n: int, members: int | None = None, seed: int = 0) -> np.ndarray:
    shape = (n, 3) if members is None else (members, n, 3)
    return 0.5 + np.random.default_rng(seed).gamma(2.0, size=shape)


@pytest.mark.parametrize("kind", ["kl", "jeffreys", "hellinger"])
def test_distances_of_bare_lambda_are_those_of_compare(kind):
    notion, a, b = ThemeEmbedding(Model(), kind), lam(4), lam(6, seed=1)
    np.testing.assert_allclose(notion.cdist(a, b), cdist(a, b, kind))
    np.testing.assert_allclose(notion.mean_distance(a, b), cdist(a, b, kind).mean(1))
    assert isinstance(notion.source(a, b), KLSource if kind == "kl" else MatrixSource)


def test_ensembles_have_their_members_behind_the_tasks():
    notion, a, b = ThemeEmbedding(Model()), lam(4, 3), lam(6, 3, seed=1)
    first, second = a.swapaxes(0, 1), b.swapaxes(0, 1)
    np.testing.assert_allclose(notion.cdist(first, second), cdist(a, b))
    np.testing.assert_allclose(notion.mean_distance(first, second), mean_kl(a, b))


def test_earth_movers_distance_needs_alpha():
    alpha = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 2.0]])
    a = lam(4)
    found = ThemeEmbedding(Model(), "emd", alpha=alpha).cdist(a, a)
    np.testing.assert_allclose(found, cdist(a, a, "emd", alpha=alpha))


def test_models_and_divergences_are_checked():
    with pytest.raises(DataError, match=r"^kind='l2' is not a divergence; use one of kl, kl_rev"):
        ThemeEmbedding(Model(), "l2")
    with pytest.raises(DataError, match=r"^model is ndarray; expected something with tr"):
        ThemeEmbedding(lam(3))
