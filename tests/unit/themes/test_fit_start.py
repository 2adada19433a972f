"""The start of a fit, drawn from the data."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from fit_cases import blobs, small_pool, small_tasks
from taskscape import ClassPool, TaskSet, make_tasks, sample_tasks
from taskscape.errors import DataError
from taskscape.model import Themes
from taskscape.themes import FitConfig, start
from taskscape.themes.data import gather
from taskscape.themes.health import flaws
from taskscape.themes.prepare import Preparation, PrepareConfig, PreparedSamples
from taskscape.themes.start import Scale, start_themes, starts
from taskscape.themes.steps import FitState, held_out_bound


def as_they_are(pool: ClassPool) -> PreparedSamples:
    raw = PrepareConfig(centre=False, pca=None)
    nothing = Preparation(raw, np.zeros(pool.sample_shape[0], np.float32), None)
    return PreparedSamples(pool, nothing, np.arange(len(pool)))


def themes_of(
    tasks: TaskSet, pool: ClassPool, config: FitConfig, seed: int = 0
) -> tuple[Themes, Scale]:
    """The k-means start of these tasks, and the scale of their samples."""
    x, owner = start._samples(tasks, as_they_are(pool), config)
    scale = Scale(x)
    return start_themes(x, owner, scale, config, seed), scale


def test_image_themes_start_at_the_clusters_of_the_samples():
    config = FitConfig(task_themes=2, image_themes=4)
    themes, scale = themes_of(small_tasks(), small_pool(), config)
    centres = np.array([[4, 0, 0], [0, 4, 0], [-4, 0, 2], [0, -4, -2]])
    gaps = np.linalg.norm(np.asarray(themes.mu)[:, None] - centres, axis=-1)
    assert sorted(gaps.argmin(axis=0)) == [0, 1, 2, 3]
    assert gaps.min(axis=0).max() < 0.5
    assert themes.Sigma.shape == (4, 3, 3)
    variances = np.diagonal(themes.Sigma, axis1=1, axis2=2)
    assert ((variances > 0.4) & (variances < 2.5)).all()
    used = small_pool().samples[: 16 * 12]  # the training classes
    np.testing.assert_allclose(scale.shift, used.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scale.Psi0, used.var(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(themes.delta, [0.5, 0.5])


def test_task_themes_start_at_groups_of_classes_alike():
    config = FitConfig(task_themes=2, image_themes=4)
    themes, _ = themes_of(small_tasks(), small_pool(), config)
    alpha, mu = np.asarray(themes.alpha), np.asarray(themes.mu)
    first_two = (mu[:, 0] > 2) | (mu[:, 1] > 2)  # the blobs that even classes use most
    share = (alpha * first_two).sum(axis=1) / alpha.sum(axis=1)
    assert share.min() < 0.2
    assert share.max() > 0.8
    assert (alpha > 0).all()


def test_the_seed_of_k_means_decides_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(start, "_MOST_SAMPLES", 60)
    config = FitConfig(task_themes=2, image_themes=9)
    draws = [
        np.asarray(themes_of(small_tasks(), small_pool(), config, seed)[0].mu) for seed in (0, 0, 1)
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
    alpha = np.asarray(themes_of(tasks, pool, config)[0].alpha)
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
        themes_of(tasks, small_pool(), config)


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
        themes_of(tasks, pool, config)


# -- starts that are tried ----------------------------------------------------------------------

STARTS = FitConfig(task_themes=2, image_themes=4)


def begun(tasks: TaskSet, n: int = 1, **settings: object) -> list[FitState]:
    return starts(tasks, as_they_are(tasks.pool), replace(STARTS, **settings), n)


def test_starts_depend_on_the_classes_alone():
    """Other tasks of the same classes, as many classes and samples each, begin alike."""
    one = begun(sample_tasks(small_pool(), 60, n_way=4, n_shot=6, split="train", seed=0))
    other = begun(sample_tasks(small_pool(), 90, n_way=4, n_shot=6, split="train", seed=5))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    fewer = make_tasks(small_pool(), [[0, 1, 2, 3], [4, 5, 6, 7]], n_shot=6)
    assert not np.array_equal(begun(fewer)[0].themes.mu, one[0].themes.mu)


def test_starts_come_best_first_with_what_they_were_learned_from():
    tasks = sample_tasks(small_pool(), 60, n_way=4, n_shot=6, split="train", seed=0)
    result = begun(tasks, 3)
    assert len(result) == 3
    bounds = []
    for state in result:
        assert (int(state.t), flaws(state)) == (0, 0)
        # as much as a task of four classes with six samples each
        assert float(state.stats.classes) == pytest.approx(4, rel=1e-5)
        assert float(state.stats.samples) == pytest.approx(24, rel=1e-5)
        assert float(state.stats.w.sum()) == pytest.approx(4, rel=1e-4)
        assert float(state.stats.tasks) == pytest.approx(1, rel=1e-5)
        batch = gather(tasks, as_they_are(small_pool()), (60, 4, 6))
        total, samples = held_out_bound(state.themes, batch, STARTS.of_steps())
        bounds.append(float(total / samples))
    assert bounds[0] > max(bounds) - 0.02
    np.testing.assert_array_equal(result[0].themes.mu, begun(tasks)[0].themes.mu)


def test_the_literal_update_starts_at_k_means():
    """The paper's averages hold no statistics to begin with."""
    (state,) = begun(small_tasks(), update="paper")
    themes, scale = themes_of(small_tasks(), small_pool(), STARTS)
    np.testing.assert_array_equal(state.themes.mu, themes.mu)
    np.testing.assert_array_equal(state.shift, scale.shift)
    assert float(state.stats.samples) == 0


def test_documents_hold_every_sample_once():
    x = np.arange(14, dtype=np.float32)[:, None]
    owner = np.array([0] * 5 + [1] * 2 + [2] * 7)
    batch = start._documents(x, owner, 3)
    mask = np.asarray(batch.sample_mask)[:, 0]
    held = [np.asarray(batch.x)[row, 0][m].tolist()
            for row, m in zip(np.asarray(batch.index)[:, 0], mask, strict=True)]  # fmt: skip
    assert held == [[0, 1, 2], [3, 4], [5, 6], [7, 8, 9], [10, 11, 12], [13]]
    assert np.asarray(batch.class_mask).all()
    assert np.asarray(start._documents(x, owner, 0).index).shape == (14, 1, 1)


def test_a_feature_too_large_to_square_is_named():
    classes = blobs()
    classes["c3"][5, 1] = -1e17
    pool = ClassPool.from_classes(classes)
    tasks = sample_tasks(pool, 5, n_way=3, n_shot=3)
    config = FitConfig(task_themes=2, image_themes=4)
    message = (
        "sample 5 of class 'c3' has a feature of 1e+17, whose square is too large to sum. "
        "Repair or scale the samples."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        starts(tasks, as_they_are(pool), config, 1)


def test_of_many_small_classes_some_are_taken_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(start, "_MOST_SAMPLES", 60)
    config = FitConfig(task_themes=2, image_themes=4)
    x, owner = start._samples(small_tasks(), as_they_are(small_pool()), config)
    np.testing.assert_array_equal(np.bincount(owner), [12] * 5)
    assert len(x) == 60
