"""What a fit is evaluated on: classes that it does not learn from, where there are enough."""

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fit_cases import N, blobs, fitted, small_model, small_tasks
from taskscape import ClassPool, TaskSet, TaskThemes, make_tasks, sample_tasks
from taskscape.compare import mean_distance
from taskscape.statistics import spearman
from taskscape.themes import CoClustering, HealthWarning, PrepareConfig, co_clustering
from taskscape.themes.data import classes_to_hold_out
from taskscape.themes.loop import run_fits
from taskscape.themes.places import all_rows
from taskscape.themes.task_model import usual

N_CLASSES = 40
HELD_OUT, SET_ASIDE, VALIDATION = (
    "tasks of held-out classes",
    "tasks of the classes learned from (in-sample)",
    "validation tasks",
)


@cache
def many_classes() -> ClassPool:
    return ClassPool.from_classes(blobs(n_classes=N_CLASSES), name="many blobs")


def many_tasks(pool: ClassPool, n_tasks: int = 72, seed: int = 0) -> TaskSet:
    return sample_tasks(pool, n_tasks, n_way=(2, 4), n_shot=6, seed=seed)


def left_out() -> np.ndarray:
    return classes_to_hold_out(many_classes(), np.arange(N_CLASSES), 2)


def fit(tasks: object, validation: TaskSet | None = None, **settings: object) -> CoClustering:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        return small_model(**settings).fit(tasks, validation=validation)  # type: ignore[arg-type]


SETTINGS = {"prepare": PrepareConfig(pca=2)}


@cache
def fit_tested_on_classes() -> CoClustering:
    return fit(many_tasks(many_classes()), **SETTINGS)


def test_a_fit_says_what_it_was_tested_on():
    for model, tested_on, n_tasks in (
        (fit_tested_on_classes(), HELD_OUT, 500),
        (fitted(), SET_ASIDE, 7),
    ):
        assert model.held_out_ == model.health_.tested_on == tested_on
        assert model.health_.n_tasks == n_tasks
        assert f"{n_tasks} {tested_on} fall on" in model.health_.summary()


def listed() -> TaskSet:
    """Tasks of many classes that name their samples."""
    rng = np.random.default_rng(0)
    classes = [rng.permutation(N_CLASSES)[:4].tolist() for _ in range(72)]
    support = np.stack([[rng.permutation(N)[:6] for _ in range(4)] for _ in classes])
    return make_tasks(many_classes(), classes, support=support)


def test_classes_are_held_out_where_they_can_be():
    pool, few = many_classes(), ClassPool.from_classes(blobs(n_classes=29))
    tasks, stream = many_tasks(pool), sample_tasks(pool, 72, n_way=(2, 4), n_shot=6, stream=True)
    for given, validation, themes, tested_on, n_evaluated, n_learned in (
        (tasks, None, 2, HELD_OUT, 500, 72),
        (stream, None, 2, HELD_OUT, 500, 72),
        (tasks, None, 35, HELD_OUT, 500, 72),
        (tasks, None, 36, SET_ASIDE, 7, 65),  # five fewer would be too few
        (many_tasks(few), None, 2, SET_ASIDE, 7, 65),
        (listed(), None, 2, SET_ASIDE, 7, 65),
        (tasks, tasks[:20], 2, VALIDATION, 20, 72),
    ):
        model = small_model(task_themes=themes)
        source, evaluated, what = model._source(given, validation, model._config())
        assert (what, len(evaluated), source.n_tasks) == (tested_on, n_evaluated, n_learned)
        held = left_out() if tested_on == HELD_OUT else np.zeros(0, int)
        assert sorted(source.held_out) == held.tolist()
        if tested_on == HELD_OUT:
            assert set(evaluated.classes[evaluated.classes >= 0].tolist()) == set(held.tolist())


def test_it_is_kept_on_disk(tmp_path: Path):
    fit_tested_on_classes().save(tmp_path / "m")
    back = TaskThemes.load(tmp_path / "m")
    assert back.held_out_ == HELD_OUT
    assert back.health_ == fit_tested_on_classes().health_


def test_held_out_classes_take_no_part_in_what_is_learned():
    changed = blobs(n_classes=N_CLASSES)
    for c in left_out():
        changed[f"c{c}"] = changed[f"c{c}"] * 3 + 50
    other = fit(many_tasks(ClassPool.from_classes(changed, name="changed")), **SETTINGS)
    model = fit_tested_on_classes()
    np.testing.assert_array_equal(other.preparation_.mean, model.preparation_.mean)
    np.testing.assert_array_equal(other.preparation_.components, model.preparation_.components)
    for ours, theirs in zip(
        *(jax.tree.leaves((m.states_[0].themes, m.states_[0].stats)) for m in (model, other)),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(other.elbo_history_, model.elbo_history_)  # but they evaluate


def test_the_preparation_is_learned_without_held_out_classes():
    pool = many_classes()
    assert len(left_out()) == 5
    learned = all_rows(pool, np.setdiff1d(np.arange(N_CLASSES), left_out()))
    expected = pool.samples[learned].mean(axis=0)
    np.testing.assert_allclose(fit_tested_on_classes().preparation_.mean, expected, atol=1e-5)


# -- several fits -----------------------------------------------------------------------------


def test_fewer_flaws_count_before_a_higher_bound(monkeypatch: pytest.MonkeyPatch):
    def marked(*given: object) -> list:
        fits = run_fits(*given)
        for each, flaws, bound in zip(fits, (1, 0, 0), (5.0, -4.0, -3.0), strict=True):
            each.state = replace(
                each.state,
                best_flaws=jnp.asarray(flaws, jnp.int32),
                best_bound=jnp.asarray(bound, each.state.best_bound.dtype),
            )
        return fits

    monkeypatch.setattr(co_clustering, "run_fits", marked)
    model = small_model(n_restarts=3, ensemble=3).fit(small_tasks())
    assert [float(state.best_bound) for state in model.states_] == [-3, -4, 5]
    best = small_model(n_restarts=3).fit(small_tasks())
    assert float(best.states_[0].best_bound) == -3


def test_an_ensemble_says_how_far_its_members_agree():
    assert fitted().health_.agreement is None
    agreement = fitted(n_restarts=3, ensemble=2).health_.agreement
    assert agreement is not None
    assert 0.5 < agreement <= 1


def test_fits_to_the_same_classes_agree_on_distances():
    """With other tasks, in another order, distances hardly change."""
    pool = many_classes()
    evaluated, known = many_tasks(pool, 100, seed=7), many_tasks(pool, 200, seed=8)
    again = fit(many_tasks(pool, seed=1), random_state=1, **SETTINGS)
    distances = [
        mean_distance(model.embed(evaluated), model.embed(known))
        for model in (fit_tested_on_classes(), again)
    ]
    assert spearman(*distances) > 0.9


# -- what is usual ----------------------------------------------------------------------------


def test_what_is_usual_is_not_learned_from_a_few_classes_alone():
    """Tasks of six classes hardly differ; those learned from show how far tasks may."""
    rng = np.random.default_rng(0)
    alike, varied = rng.normal(-1, 0.1, size=500), rng.normal(0, 1, size=500)
    middle, spread = usual([alike, varied])
    assert middle == pytest.approx(np.median(alike))
    assert spread == pytest.approx(1, abs=0.15)
    assert usual([varied, alike]) == (middle, spread)
    assert usual([np.zeros(100), np.zeros(3)]) == (0, 1e-3)
