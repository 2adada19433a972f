"""The start of a fit, drawn from the data."""

import re

import numpy as np
import pytest

from fit_cases import blobs, small_pool, small_tasks
from taskscape import ClassPool, FitConfig, make_tasks, sample_tasks
from taskscape.errors import DataError
from taskscape.fit import start
from taskscape.fit.start import Scale, start_themes
from taskscape.prepare import Preparation, PrepareConfig, PreparedSamples


def as_they_are(pool: ClassPool) -> PreparedSamples:
    raw = PrepareConfig(centre=False, pca=None)
    nothing = Preparation(raw, np.zeros(pool.sample_shape[0], np.float32), None)
    return PreparedSamples(pool, nothing, np.arange(len(pool)))


@pytest.mark.parametrize("covariance", ["full", "diag", "tied"])
def test_image_themes_start_at_the_clusters_of_the_samples(covariance: str):
    config = FitConfig(task_themes=2, image_themes=4, covariance=covariance)
    themes, scale = start_themes(small_tasks(), as_they_are(small_pool()), config, seed=0)
    centres = np.array([[4, 0, 0], [0, 4, 0], [-4, 0, 2], [0, -4, -2]])
    gaps = np.linalg.norm(np.asarray(themes.mu)[:, None] - centres, axis=-1)
    assert sorted(gaps.argmin(axis=0)) == [0, 1, 2, 3]
    assert gaps.min(axis=0).max() < 0.5
    Sigma = np.asarray(themes.Sigma)
    assert themes.covariance == covariance
    assert Sigma.shape == {"full": (4, 3, 3), "diag": (4, 3), "tied": (3, 3)}[covariance]
    variances = Sigma if covariance == "diag" else np.diagonal(Sigma, axis1=-2, axis2=-1)
    assert ((variances > 0.4) & (variances < 2.5)).all()
    used = small_pool().samples[: 16 * 12]  # the training classes
    np.testing.assert_allclose(scale.shift, used.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scale.Psi0, used.var(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(themes.delta, [0.5, 0.5])


def test_task_themes_start_at_groups_of_classes_alike():
    config = FitConfig(task_themes=2, image_themes=4)
    themes, _ = start_themes(small_tasks(), as_they_are(small_pool()), config, seed=0)
    alpha, mu = np.asarray(themes.alpha), np.asarray(themes.mu)
    first_two = (mu[:, 0] > 2) | (mu[:, 1] > 2)  # the blobs that even classes use most
    share = (alpha * first_two).sum(axis=1) / alpha.sum(axis=1)
    assert share.min() < 0.2
    assert share.max() > 0.8
    assert (alpha > 0).all()


def test_the_seed_decides_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(start, "_MOST_SAMPLES", 60)
    config = FitConfig(task_themes=2, image_themes=4)
    draws = [
        np.asarray(start_themes(small_tasks(), as_they_are(small_pool()), config, seed)[0].mu)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def test_a_dimension_that_does_not_vary_has_a_spread_all_the_same():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    x[:, 1] = 7
    Psi0 = np.asarray(Scale(x).Psi0)
    assert Psi0[1] == pytest.approx(1e-6 * x.var(axis=0).mean(), rel=1e-4)


def test_classes_all_alike_start_without_a_warning():
    same = {f"c{i}": blobs(0, 1)["c0"] for i in range(6)}
    pool = ClassPool.from_classes(same)
    tasks = sample_tasks(pool, 5, n_way=2, n_shot=3)
    config = FitConfig(task_themes=3, image_themes=2)
    alpha = np.asarray(start_themes(tasks, as_they_are(pool), config, 0)[0].alpha)
    assert np.isfinite(alpha).all()
    assert (alpha > 0).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            FitConfig(task_themes=3, image_themes=2),
            "image_themes=2 and task_themes=3 need at least 2 samples and 3 classes; the tasks "
            "have 24 and 2. Ask for fewer themes.",
        ),
        (
            FitConfig(task_themes=2, image_themes=25),
            "image_themes=25 and task_themes=2 need at least 25 samples and 2 classes; the tasks "
            "have 24 and 2. Ask for fewer themes.",
        ),
    ],
)
def test_there_must_be_enough_to_start_from(config: FitConfig, message: str):
    tasks = make_tasks(small_pool(), [[0, 1]], n_shot=3)
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        start_themes(tasks, as_they_are(small_pool()), config, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], "all samples are the same; there is nothing to tell apart."),
        (
            [1.0, 2.0, 3.0],
            "image_themes=4 need as many different samples; the tasks have 3. Ask for fewer "
            "themes.",
        ),
    ],
)
def test_samples_must_differ(values: list[float], message: str):
    samples = np.resize(np.array(values, np.float32), 24)[:, None]
    pool = ClassPool.from_arrays(samples, np.repeat(np.arange(4), 6))
    tasks = make_tasks(pool, [[0, 1], [2, 3]], n_shot=3)
    config = FitConfig(task_themes=2, image_themes=4)
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        start_themes(tasks, as_they_are(pool), config, 0)
