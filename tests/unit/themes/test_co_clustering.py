"""The paper's model as scikit-learn's users expect it, and what it says when it cannot."""

import copy
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fit_cases import (
    assert_same_model,
    blobs,
    fitted,
    small_model,
    small_pool,
    small_tasks,
)
from taskscape import ClassPool, TaskThemes, make_tasks, sample_tasks
from taskscape.compare import mean_distance
from taskscape.errors import DataError
from taskscape.themes import FitConfig, HealthWarning, OutlierTasksWarning, PrepareConfig, health


def held_out():
    return small_tasks(60, seed=77)


def expect(message: str):
    return pytest.raises(DataError, match=f"^{re.escape(message)}$")


# -- conventions ------------------------------------------------------------------------------


def test_parameters_are_those_of_the_constructor():
    model = TaskThemes.paper(3, 5, prepare=PrepareConfig(pca=4), random_state=7)
    params = model.get_params()
    assert (params["task_themes"], params["image_themes"], params["random_state"]) == (3, 5, 7)
    assert params["prepare"] == PrepareConfig(pca=4)
    assert clone(model).get_params() == params
    assert clone(model) is not model
    assert model.set_params(delta=0.7, method="batch") is model
    assert (model.delta, model.method) == (0.7, "batch")
    with pytest.raises(ValueError, match="Invalid parameter 'themes'"):
        model.set_params(themes=3)
    model = TaskThemes.paper(3, random_state=1)
    assert repr(model) == "CoClustering(random_state=1, task_themes=3)"


def test_defaults_are_those_of_the_settings():
    params = TaskThemes.paper().get_params()
    for name, value in vars(FitConfig()).items():
        assert params[name] == value, name


def test_a_clone_is_not_fitted():
    copied = clone(fitted())
    assert not hasattr(copied, "mu_")
    assert copied.get_params() == fitted().get_params()


@pytest.mark.parametrize("method", ["transform", "score", "embed", "save"])
def test_an_unfitted_model_says_so(method: str, tmp_path: Path):
    given = tmp_path / "m" if method == "save" else small_tasks(3)
    with pytest.raises(NotFittedError, match=r"^This CoClustering instance is not fitted yet"):
        getattr(small_model(), method)(given)


def test_what_is_learned_ends_with_an_underscore():
    model = fitted()
    assert model.mu_.shape == (4, 3)
    assert model.Sigma_.shape == (4, 3, 3)
    assert model.alpha_.shape == (2, 4)
    assert model.theme_usage_.shape == (4,)
    assert model.theme_usage_.sum() == pytest.approx(1, abs=1e-5)
    assert model.elbo_history_.shape == (6, 2)
    np.testing.assert_array_equal(model.elbo_history_[:, 0], 32 * np.arange(1, 7))
    assert model.elbo_history_[-1, 1] > model.elbo_history_[0, 1] - 0.05
    assert model.n_features_in_ == 3
    assert len(model.fit_info_) == 12
    assert model.health_.ok
    assert len(model.members_) == len(model.states_) == 1
    assert model.pool_name_ == "blobs"
    assert model.pool_fingerprint_ == small_pool().fingerprint
    learned = {n for n in vars(model) if n not in model.get_params()}
    assert all(name.endswith("_") for name in learned)


def test_fit_does_not_change_parameters_and_returns_the_model():
    model = small_model()
    before = model.get_params()
    assert model.fit(small_tasks()) is model
    assert model.get_params() == before
    assert_same_model(model, fitted())  # the same seed, the same result


def test_transform_score_and_embed_agree():
    model, tasks = fitted(), held_out()
    lam = model.transform(tasks)
    assert lam.shape == (60, 2)
    np.testing.assert_allclose(lam.sum(axis=1), 1 + tasks.n_way, rtol=1e-5)
    embedded = model.embed(tasks)
    np.testing.assert_array_equal(embedded.lam, lam[None])
    assert embedded.header.model == model.fingerprint_
    assert embedded.header.unit == "nats"
    weights = 6 * tasks.n_way
    assert model.score(tasks) == pytest.approx((embedded.elbo * weights).sum() / weights.sum())
    np.testing.assert_array_equal(small_model().fit_transform(small_tasks()),
                                  model.transform(small_tasks()))  # fmt: skip


def test_themes_tell_the_two_kinds_of_classes_apart():
    even, odd = ([f"c{i}" for i in range(k, 16, 2)] for k in (0, 1))
    lam = fitted().transform(make_tasks(small_pool(), [even[:4], odd[:4]], n_shot=8))
    assert lam[0].argmax() != lam[1].argmax()
    assert lam.max(axis=1).min() > 3


def test_another_seed_gives_another_fit():
    other = fitted(random_state=1)
    assert not np.array_equal(other.mu_, fitted().mu_)


SECOND_PROCESS = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from fit_cases import arrays_of, small_model, small_tasks
model = small_model().fit(small_tasks())
lam = model.transform(small_tasks(60, seed=77))
np.savez({out!r}, lam, *arrays_of(model))
"""


@pytest.mark.slow
def test_a_second_process_gives_the_same_bits(tmp_path: Path):
    out = tmp_path / "second.npz"
    code = SECOND_PROCESS.format(
        tests=str(Path(__file__).parents[2]),
        out=str(out),
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ.copy())
    model = fitted()
    here = [model.transform(held_out())] + [np.asarray(a) for a in jax.tree.leaves(model.states_)]
    with np.load(out) as there:
        for ours, theirs in zip(here, there.values(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


# -- what is refused before any work ----------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task_themes": 0}, "task_themes=0 must be at least 1."),
        ({"ensemble": 0}, "ensemble=0 must be at least 1."),
        ({"n_restarts": 0}, "n_restarts=0 must be at least 1."),
        ({"n_restarts": "2"}, "n_restarts='2' must be a whole number."),
        ({"n_held_out": 0}, "n_held_out=0 must be at least 1."),
        ({"random_state": -1}, "random_state=-1 must be at least 0."),
        ({"random_state": 0.5}, "random_state=0.5 must be a whole number."),
        ({"prepare": "pca"}, "prepare='pca' must be 'auto', None or a PrepareConfig."),
    ],
)
def test_parameters_are_checked_first(settings: dict, message: str):
    with expect(message):
        small_model().set_params(**settings).fit(small_tasks(3))


def test_tasks_are_checked_first(tmp_path: Path):
    model, pool = small_model(), small_pool()
    with expect("a fit needs at least 2 tasks, got 1."):
        model.fit(small_tasks(1))
    with expect("concatenate needs at least one TaskSet."):
        model.fit([])
    with expect(
        "tasks must be a TaskSet, a TaskStream or several TaskSets, not int. Make them with "
        "sample_tasks."
    ):
        model.fit(iter([1, 2]))
    endless = sample_tasks(pool, n_way=4, n_shot=6, stream=True)
    with expect("a stream without end needs max_tasks, the number of tasks to use."):
        model.fit(endless)
    with expect("a stream without end has no full pass; use method='online'."):
        small_model(method="batch", max_tasks=50).fit(endless)
    with expect("validation has no tasks."):
        model.fit(small_tasks(), validation=small_tasks(5)[:0])
    with expect("checkpoint_every=0 must be at least 1."):
        model.fit(small_tasks(), checkpoint=tmp_path / "c", checkpoint_every=0)
    with expect("resume=True needs checkpoint, the file to resume from."):
        model.fit(small_tasks(), resume=True)
    other = ClassPool.from_classes(blobs(1), name="others")
    with expect(
        f"validation tasks are over {other!r}, the others over {pool!r}. Make both from one pool, "
        "each with its own split."
    ):
        model.fit(small_tasks(), validation=sample_tasks(other, 5, n_way=2, n_shot=6))
    assert not [name for name in vars(model) if name.endswith("_")]


def test_other_data_are_refused():
    pool = ClassPool.from_arrays(np.zeros((8, 5), np.float32), np.repeat([0, 1], 4))
    tasks = sample_tasks(pool, 3, n_way=2, n_shot=2)
    message = (
        f"samples of {pool!r} have 5 dimensions; the model was fitted on 3. Use the same kind of "
        "data, size and encoder."
    )
    for method in ("transform", "score", "partial_fit"):
        with expect(message):
            getattr(fitted(), method)(tasks)


@pytest.mark.parametrize("method", ["transform", "score"])
def test_there_must_be_tasks(method: str):
    with expect("there are no tasks to embed."):
        getattr(fitted(), method)(small_tasks(3)[:0])


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    model = copy.copy(fitted())
    model.set_params(prepare=PrepareConfig(pca=2), image_themes=1000)
    with pytest.raises(DataError, match=r"^image_themes=1000 and task_themes=2 need at least 1000"):
        model.fit(small_tasks())
    np.testing.assert_array_equal(model.transform(held_out()), fitted().transform(held_out()))


# -- where tasks come from --------------------------------------------------------------------


def test_several_sets_are_as_good_as_one():
    tasks = small_tasks()
    model = small_model().fit(part for part in (tasks[:30], tasks[30:]))
    assert_same_model(model, fitted())


def test_streams_with_and_without_end():
    wishes = {"n_way": (2, 4), "n_shot": 6, "split": "train", "seed": 0}
    ending = small_model().fit(sample_tasks(small_pool(), 100, **wishes, stream=True))
    assert [i.tasks for i in ending.fit_info_] == [16, 32, 48, 64, 80]  # 90 are learned from
    endless = small_model(max_tasks=64, n_held_out=10).fit(
        sample_tasks(small_pool(), **wishes, stream=True)
    )
    assert endless.fit_info_[-1].tasks == 64
    assert endless.fit_info_[-1].done == "the asked number of tasks is reached"
    again = small_model(max_tasks=64, n_held_out=10).fit(
        sample_tasks(small_pool(), **wishes, stream=True)
    )
    assert_same_model(again, endless)
    for model in (ending, endless):
        assert model.score(held_out()) > fitted().score(held_out()) - 0.2


def test_validation_tasks_evaluate_in_place_of_some_set_aside():
    tasks = small_tasks(64)
    model = small_model().fit(tasks, validation=small_tasks(20, seed=5, split="test"))
    assert len(model.fit_info_) == 12  # all 64 are learned from, 4 batches a pass
    evaluated = small_tasks(20, seed=5, split="test")
    seen = model.elbo_history_[model.elbo_history_[:, 1].argmax(), 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutlierTasksWarning)
        assert model.score(evaluated) == pytest.approx(seen, abs=2e-3)


def test_a_callback_hears_of_every_step():
    heard = []
    small_model(n_restarts=2).fit(
        small_tasks(), callback=lambda info, restart: heard.append((restart, info.t))
    )
    assert heard == [(r, t) for r in (0, 1) for t in range(1, 13)]


# -- resuming --------------------------------------------------------------------------------


def test_partial_fit_continues_where_the_fit_stands():
    first = small_model(max_passes=1).fit(small_tasks(20))
    before, t = first.score(held_out()), int(first.states_[0].t)
    learned = first.mu_.copy()
    assert first.partial_fit(small_tasks(160, seed=3)) is first
    assert int(first.states_[0].t) == t + 10
    assert first.score(held_out()) > before - 0.01
    assert not np.array_equal(first.mu_, learned)
    np.testing.assert_array_equal(first.mu_, first.states_[0].themes.mu)
    first.partial_fit(iter([small_tasks(5, seed=4), small_tasks(6, seed=5)]))
    first.partial_fit(sample_tasks(small_pool(), 32, n_way=4, n_shot=6, split="train", stream=True))
    assert int(first.states_[0].t) == t + 10 + 1 + 2


def test_partial_fit_improves_a_poor_fit():
    poor = small_model(max_tasks=16).fit(small_tasks())
    before = poor.score(held_out())
    for seed in range(3):
        poor.partial_fit(small_tasks(160, seed=10 + seed))
    assert poor.score(held_out()) > before


def test_partial_fit_of_an_unfitted_model_is_a_fit():
    assert_same_model(small_model().partial_fit(small_tasks()), fitted())


def test_partial_fit_has_its_limits():
    with expect("partial_fit is online; this model has method='batch'."):
        fitted(method="batch").partial_fit(small_tasks(20))
    with expect("partial_fit needs a task set or a stream with an end."):
        copy.copy(fitted()).partial_fit(sample_tasks(small_pool(), n_way=4, n_shot=6, stream=True))
    with expect("there are no tasks to learn from."):
        copy.copy(fitted()).partial_fit(small_tasks(3)[:0])


# -- several fits -----------------------------------------------------------------------------


def test_the_best_of_several_starts_is_kept():
    model = fitted(n_restarts=3)
    alone = fitted()
    assert not any(int(s.best_flaws) for s in fitted(n_restarts=3, ensemble=3).states_)
    bounds = [float(s.best_bound) for s in fitted(n_restarts=3, ensemble=3).states_]
    assert bounds == sorted(bounds, reverse=True)
    assert float(model.states_[0].best_bound) == bounds[0] >= float(alone.states_[0].best_bound)


def test_an_ensemble_embeds_under_every_member():
    model = fitted(n_restarts=3, ensemble=2)
    embedded = model.embed(held_out())
    assert len(fitted(ensemble=2).members_) == 2  # which takes as many restarts
    assert embedded.values.shape == (60, 4)
    assert embedded.lam.shape == (2, 60, 2)
    assert len(model.members_) == 2
    np.testing.assert_array_equal(embedded.lam[0], fitted(n_restarts=3).transform(held_out()))
    np.testing.assert_array_equal(model.mu_, model.members_[0].mu)
    score = np.average(embedded.elbo, weights=held_out().n_way)
    assert model.score(held_out()) == pytest.approx(score, rel=1e-5)
    going_on = copy.copy(model).partial_fit(small_tasks(32, seed=8))
    assert going_on.transform(held_out()).shape == (60, 4)
    assert going_on.factors_ == model.factors_


def test_distances_of_an_ensemble_are_about_one_between_training_tasks():
    model = fitted(n_restarts=3, ensemble=2)
    known = model.embed(small_tasks())
    assert mean_distance(known, known).mean() == pytest.approx(1, abs=0.1)
    apart = [mean_distance(known.factor(f.name), known.factor(f.name)) for f in model.factors_]
    by_hand = np.mean([d / f.scale for d, f in zip(apart, model.factors_, strict=True)], axis=0)
    np.testing.assert_allclose(mean_distance(known, known), by_hand)


# -- warnings ---------------------------------------------------------------------------------


def test_tasks_from_elsewhere_are_told_and_others_are_not():
    far = ClassPool.from_classes(blobs(2, offset=30.0), name="far away")
    tasks = sample_tasks(far, 40, n_way=(2, 4), n_shot=6)
    with pytest.warns(OutlierTasksWarning) as caught:
        fitted().transform(tasks)
    middle, spread = fitted().elbo_reference_
    pattern = (
        r"^40 of 40 tasks are explained far worse than new classes usually are \(nats per "
        rf"sample: down to -\d+\.\d\d, usually {middle:.2f} ± {spread:.2f}\)\. They may look near "
        r"while the model knows nothing like them: trust their distances less\.$"
    )
    assert re.match(pattern, str(caught[0].message))
    fitted().transform(small_tasks(500, seed=123))  # a warning would be an error here
    fitted().transform(small_tasks(500, seed=123, split="test"))


def test_few_tasks_are_enough_to_know_what_is_usual():
    model = small_model().fit(small_tasks(12))
    model.transform(small_tasks(100, seed=5))  # a warning would be an error here
    assert model.elbo_reference_[1] > 0.02


def test_a_fit_that_needs_attention_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "_RUNAWAY", 0.0)
    with pytest.warns(HealthWarning, match=r"^a task-theme has a total concentration of \d+: its"):
        model = small_model().fit(small_tasks())
    assert len(model.health_.advice) == 1
    assert not model.health_.ok


@pytest.mark.slow
def test_one_theme_of_each_kind_is_allowed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        model = small_model(task_themes=1, image_themes=1).fit(small_tasks())
    lam = model.transform(small_tasks(5))
    np.testing.assert_allclose(lam[:, 0], 0.5 + small_tasks(5).n_way, rtol=1e-5)


# -- preparation and precision ----------------------------------------------------------------


def test_the_preparation_is_learned_on_the_classes_of_the_tasks():
    model = fitted(prepare=PrepareConfig(pca=2))
    used = small_pool().samples[: 16 * 12]
    np.testing.assert_allclose(model.preparation_.mean, used.mean(axis=0), atol=1e-5)
    assert model.mu_.shape == (4, 2)
    assert model.n_features_in_ == 3
    auto = small_model(prepare="auto").fit(small_tasks())
    assert auto.preparation_.config == PrepareConfig(pca=None)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["online", "batch"])
def test_twice_the_precision_agrees(method: str):
    single = fitted(method=method)
    lam = single.transform(held_out())
    with jax.enable_x64(True):
        double = small_model(method=method).fit(small_tasks())
        assert double.mu_.dtype == np.float64
        finer = double.transform(held_out())
    np.testing.assert_allclose(double.mu_, single.mu_, atol=2e-3)
    np.testing.assert_allclose(double.Sigma_, single.Sigma_, atol=5e-3)
    np.testing.assert_allclose(double.alpha_, single.alpha_, rtol=2e-2)
    np.testing.assert_allclose(finer, lam, atol=2e-2)
    np.testing.assert_allclose(double.elbo_history_, single.elbo_history_, atol=1e-3)


# -- disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [
    {}, {"method": "batch"},
    {"n_restarts": 3, "ensemble": 2}, {"prepare": PrepareConfig(pca=2)}, {"update": "paper"},
], ids=str)  # fmt: skip
def test_a_model_comes_back_the_same(settings: dict, tmp_path: Path):
    model = fitted(**settings)
    model.save(tmp_path / "m")
    back = TaskThemes.load(tmp_path / "m")
    assert_same_model(back, model)
    assert back.get_params() == model.get_params()
    assert back.health_ == model.health_
    assert back.held_out_ == model.held_out_
    assert back.elbo_reference_ == model.elbo_reference_
    assert (back.pool_name_, back.pool_fingerprint_) == ("blobs", small_pool().fingerprint)
    np.testing.assert_array_equal(back.elbo_history_, model.elbo_history_)
    np.testing.assert_array_equal(back.theme_usage_, model.theme_usage_)
    np.testing.assert_array_equal(back.transform(held_out()), model.transform(held_out()))


def test_a_loaded_model_continues_as_the_saved_one_would(tmp_path: Path):
    model = copy.copy(fitted())
    model.save(tmp_path / "m")
    back = TaskThemes.load(tmp_path / "m")
    more = small_tasks(48, seed=6)
    assert_same_model(back.partial_fit(more), model.partial_fit(more))


def test_numbers_of_numpy_can_be_stored(tmp_path: Path):
    model = small_model().set_params(task_themes=np.int64(2), random_state=np.int64(0))
    model.fit(small_tasks()).save(tmp_path / "m")
    assert TaskThemes.load(tmp_path / "m").get_params() == fitted().get_params()


def test_parameters_changed_since_the_fit_do_not_spoil_the_model(tmp_path: Path):
    model = copy.copy(fitted()).set_params(task_themes=3, image_themes=5)
    model.save(tmp_path / "m")
    back = TaskThemes.load(tmp_path / "m")
    assert back.task_themes == 3
    assert_same_model(back, fitted())


def edit(folder: Path, **changes: object) -> None:
    path = folder / "header.json"
    header = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in header.items() if v is not None}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"params": None}, "'params' is missing: the model is damaged."),
        ({"params": {"prepare": None}, "preparation": {"pca": 0, "explained": 1.0}},
         "pca=0 must be at least 1."),
        ({"members": 2}, "member1.themes.alpha is missing: the model is damaged, or of "
         "other settings or another version."),
    ],
)  # fmt: skip
def test_an_edited_header_is_noticed(changes: dict, message: str, tmp_path: Path):
    fitted().save(tmp_path / "m")
    edit(tmp_path / "m", **changes)
    whole = f"{tmp_path / 'm'} cannot be read: {message}"
    with pytest.raises(DataError, match=f"^{re.escape(whole)}"):
        TaskThemes.load(tmp_path / "m")


def test_a_damaged_model_is_not_loaded(tmp_path: Path):
    fitted().save(tmp_path / "m")
    arrays = tmp_path / "m" / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-10])
    with expect(
        f"{tmp_path / 'm'} is damaged: arrays.safetensors does not match the checksum in "
        "header.json."
    ):
        TaskThemes.load(tmp_path / "m")
    edit(tmp_path / "m", what="embedding")
    with expect(f"{tmp_path / 'm'} does not hold a task model."):
        TaskThemes.load(tmp_path / "m")


def test_a_save_that_fails_leaves_the_model_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fitted().save(tmp_path / "m")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", fail)
        with pytest.raises(OSError, match="disk full"):
            fitted(random_state=1).save(tmp_path / "m")
    assert_same_model(TaskThemes.load(tmp_path / "m"), fitted())
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
