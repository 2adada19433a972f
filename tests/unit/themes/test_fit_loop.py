"""The loop around the steps: when it looks, when it stops, and that it can be stopped."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fit_cases import SMALL, small_pool, small_tasks
from taskscape import ClassPool, sample_tasks
from taskscape.tasks import TaskSet, TaskStream
from taskscape.themes import Fit, FitConfig, TaskSource, loop
from taskscape.themes.health import dead_themes, duplicates
from taskscape.themes.prepare import PrepareConfig, PreparedSamples, learn_preparation
from taskscape.themes.steps import FitState

SETTINGS = {name: value for name, value in SMALL.items() if name != "prepare"}


def a_fit(tasks: TaskSet | TaskStream | None = None, **settings: object) -> Fit:
    pool = small_pool()
    everything = np.arange(len(pool))
    raw = learn_preparation(pool, everything, PrepareConfig(centre=False, pca=None))
    source, held_out = TaskSource.of(small_tasks() if tasks is None else tasks, 0, 500)
    config = FitConfig(**{**SETTINGS, **settings})
    prepared = PreparedSamples(pool, raw, everything)
    return Fit.several(source, held_out, prepared, config, 1)[0]


def assert_same_state(a: Fit, b: Fit) -> None:
    for ours, theirs in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert a.history == b.history


def test_an_online_fit_looks_now_and_then_and_ends_after_its_passes():
    fit = a_fit()
    steps = list(fit)
    assert fit.history == steps
    assert [i.t for i in steps] == list(range(1, 13))  # 65 tasks, 4 mini-batches, 3 passes
    assert [i.tasks for i in steps] == [16 * t for t in range(1, 13)]
    assert [i.t for i in steps if i.held_out is not None] == [2, 4, 6, 8, 10, 12]
    assert [i.done for i in steps[:-1]] == [""] * 11
    assert steps[-1].done == "the asked number of tasks is reached"
    # the first is averaged with the statistics of the start
    assert [i.rho for i in steps[:2]] == [pytest.approx(5**-0.7), pytest.approx(6**-0.7)]
    assert all(sum(i.usage) == pytest.approx(1, abs=1e-5) for i in steps)
    looks = [i.held_out for i in steps if i.held_out is not None]
    assert float(fit.state.best_bound) == pytest.approx(max(looks))
    assert int(fit.state.best_flaws) == 0
    # the start has seen all of these classes already; small mini-batches do it little harm
    assert looks[-1] > looks[0] - 0.05
    assert list(fit) == []  # it has ended


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        ({"max_tasks": 64}, 4),
        ({"max_tasks": 79}, 4),  # never more than asked
        ({"max_tasks": 7}, 1),
        ({"max_tasks": 10**6}, 12),
        ({"batch_size": 1000}, 3),  # all tasks at once
        ({"method": "batch"}, 3),
        ({"method": "batch", "max_tasks": 131}, 2),
    ],
)
def test_the_number_of_updates(settings: dict, updates: int):
    fit = a_fit(**settings)
    assert fit.most_updates() == updates
    batch = settings.get("method") == "batch"
    used = updates * (fit.source.n_tasks if batch else fit.batch_size)
    assert used <= settings.get("max_tasks", used)


def test_the_number_of_updates_of_a_stream():
    endless = sample_tasks(small_pool(), n_way=4, n_shot=6, split="train", stream=True)
    assert a_fit(endless).most_updates() is None
    assert a_fit(endless, max_tasks=160).most_updates() == 10
    ending = sample_tasks(small_pool(), 100, n_way=4, n_shot=6, split="train", stream=True)
    assert a_fit(ending).most_updates() == 5  # one pass over 90, whatever max_passes says


def test_a_fit_ends_when_the_held_out_bound_no_longer_rises():
    fit = a_fit(patience=2, min_gain=1e9)
    *_, last = fit
    assert last.done == "the held-out bound no longer rises"
    # the first look is a gain in any case, then two are not
    assert (last.t, int(fit.state.stale)) == (6, 2)
    assert float(fit.state.best_bound) == pytest.approx(
        max(i.held_out for i in fit.history if i.held_out is not None)
    )


def test_a_bound_that_is_no_number_is_never_the_best(monkeypatch: pytest.MonkeyPatch):
    bounds = iter([-5.0, float("nan"), -4.0])
    monkeypatch.setattr(loop, "held_out_bound", lambda *_: (jnp.asarray(next(bounds)), 1.0))
    fit = a_fit(max_tasks=96)
    list(fit)
    assert float(fit.state.best_bound) == -4
    np.testing.assert_array_equal(fit.state.best.mu, fit.state.themes.mu)


@pytest.mark.slow
def test_the_penalised_bound_of_full_passes_never_falls():
    fit = a_fit(method="batch", max_passes=12, tol=1e-5, batch_size=24)
    steps = list(fit)
    assert len(steps) == 12
    assert not any(i.revived for i in steps)
    bounds = np.array([i.penalised for i in steps])
    assert np.diff(bounds).min() > -2e-6 * np.abs(bounds).max()
    assert bounds[-1] > bounds[0] + 1e-3
    assert steps[-1].done == "the asked number of passes is reached"
    assert [i.tasks for i in steps] == [65 * t for t in range(1, 13)]
    # its tasks are all there: 24 + 24 + 17
    assert float(fit.state.stats.tasks) == 65


def without_theme_1(state: FitState) -> FitState:
    """An image-theme far from all samples, of which the averages know nothing either."""
    stats, themes = state.stats, state.themes
    return replace(
        state,
        themes=replace(themes, mu=themes.mu.at[1].add(1e4)),
        stats=replace(
            stats,
            N_k=stats.N_k.at[1].set(0),
            S1=stats.S1.at[1].set(0),
            S2=stats.S2.at[1].set(0),
        ),
    )


@pytest.mark.parametrize("method", ["online", "batch"])
def test_a_dead_theme_comes_back(method: str):
    fit = a_fit(method=method, max_passes=6)
    fit.state = without_theme_1(fit.state)
    steps = list(fit)
    assert steps[0].usage[1] == 0
    assert sum(i.revived for i in steps) >= 1
    assert steps[-1].revived == 0
    assert min(steps[-1].usage) > 0.05
    for leaf in jax.tree.leaves(fit.state):
        assert np.isfinite(leaf).all()


def test_a_theme_found_dead_at_the_end_is_left_as_it_is():
    fit = a_fit(max_tasks=16)
    fit.state = without_theme_1(fit.state)
    (only,) = list(fit)
    assert (only.revived, float(fit.state.stats.N_k[1])) == (0, 0)


@pytest.mark.parametrize("method", ["online", "batch"])
@pytest.mark.parametrize("where", ["held_out_bound", "step"])
def test_a_fit_stopped_in_mid_step_continues_to_the_same_end(
    method: str, where: str, monkeypatch: pytest.MonkeyPatch
):
    if (method, where) == ("batch", "step"):
        where = "maximise"
    whole = a_fit(method=method)
    list(whole)
    stopped = a_fit(method=method)
    inner, calls = getattr(loop, where), []

    def interrupted(*args: object) -> object:
        calls.append(1)
        if len(calls) in (1, 3):
            raise KeyboardInterrupt
        return inner(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop, where, interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                list(stopped)
            assert len(stopped.history) == stopped.updates
    list(stopped)
    assert_same_state(stopped, whole)


def test_several_fits_begin_from_different_starts_best_first():
    one = a_fit()
    fits = Fit.several(one.source, one.held_out, one.prepared, one.config, 3)
    assert len(fits) == 3
    np.testing.assert_array_equal(fits[0].state.themes.mu, one.state.themes.mu)
    assert not np.array_equal(fits[0].state.themes.mu, fits[1].state.themes.mu)
    assert all(fit.updates == 0 for fit in fits)


def test_a_stream_learns_as_a_set_does():
    stream = sample_tasks(small_pool(), n_way=(2, 4), n_shot=6, split="train", seed=0, stream=True)
    fit = a_fit(stream, max_tasks=128)
    steps = list(fit)
    assert len(steps) == 8
    assert steps[-1].held_out > steps[1].held_out - 0.05
    assert steps[-1].tasks == 128


def few_themes_in_many_classes() -> ClassPool:
    """Sixty classes that mix five blobs, each in one of three ways."""
    rng = np.random.default_rng(4)
    centres = 3 * rng.normal(size=(5, 3))
    ways = np.full((3, 5), 0.2) + 4 * np.eye(5)[:3] + 2 * np.eye(5)[2:]
    classes = {}
    for c in range(60):
        z = rng.choice(5, size=20, p=rng.dirichlet(ways[c % 3]))
        classes[f"c{c}"] = (centres[z] + rng.normal(size=(20, 3))).astype(np.float32)
    return ClassPool.from_classes(classes)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["online", "batch"])
def test_no_task_theme_ends_dead_or_twice(method: str):
    """Eight task-themes where there are three, sixteen image-themes where there are five."""
    pool = few_themes_in_many_classes()
    everything = np.arange(len(pool))
    raw = learn_preparation(pool, everything, PrepareConfig(centre=False, pca=None))
    tasks = sample_tasks(pool, 640, n_way=5, n_shot=10, seed=0)
    config = FitConfig(
        task_themes=8, image_themes=16, batch_size=64, method=method, max_passes=4,
        evaluate_every=5,
    )  # fmt: skip
    source, held_out = TaskSource.of(tasks, 0, 100, least=8)
    prepared = PreparedSamples(pool, raw, everything)
    (fit,) = Fit.several(source, held_out, prepared, config, 1)
    list(fit)
    assert int(fit.state.best_flaws) == 0
    assert not len(duplicates(np.asarray(fit.state.best.alpha)))
    stats = fit.state.stats
    assert not len(dead_themes(np.asarray(stats.w), float(stats.classes)))


@pytest.mark.slow
def test_a_fit_passes_over_a_task_whose_classes_are_all_held_out():
    """One task at a time, of which some have nothing left to learn from."""
    pool = few_themes_in_many_classes()
    everything = np.arange(len(pool))
    raw = learn_preparation(pool, everything, PrepareConfig(centre=False, pca=None))
    source, held_out = TaskSource.of(sample_tasks(pool, 12, n_way=2, n_shot=5, seed=0), 0, 6)
    gone = frozenset(source.tasks.classes[:4].ravel().tolist())
    source = replace(source, held_out=gone)
    config = FitConfig(
        task_themes=2, image_themes=4, batch_size=1, max_passes=1, evaluate_every=100
    )
    (fit,) = Fit.several(source, held_out, PreparedSamples(pool, raw, everything), config, 1)
    steps = list(fit)
    assert len(steps) == len(source.tasks)
    assert sum(i.sweeps == 0 for i in steps) >= 4
    for leaf in jax.tree.leaves(fit.state):
        assert np.isfinite(leaf).all()
