"""TaskThemes: a product of posteriors, its distance, and what it says when it cannot."""

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fit_cases import N, blobs, fitted_themes, small_model, small_pool, small_tasks
from taskscape import ClassPool, TaskThemes, make_tasks, nearest, sample_tasks
from taskscape.compare import distances, mean_distance
from taskscape.errors import DataError
from taskscape.themes import CoClustering, OutlierTasksWarning
from taskscape.themes.prepare import PreparedSamples

module = import_module("taskscape.themes.image_themes")


def themes(**settings: object) -> TaskThemes:
    return TaskThemes(**{"prepare": None, **settings}).fit(small_tasks())


def expect(message: str):
    return pytest.raises(DataError, match=f"^{re.escape(message)}")


# -- conventions ------------------------------------------------------------------------------


def test_parameters_are_those_of_the_constructor():
    model = TaskThemes(64, temperature=2.0, co_clustering=TaskThemes.paper(3))
    assert clone(model).get_params()["co_clustering__task_themes"] == 3
    assert model.set_params(co_clustering__task_themes=5).co_clustering.task_themes == 5
    assert repr(TaskThemes(64)) == "TaskThemes(image_themes=64)"
    assert isinstance(TaskThemes.paper(n_restarts=2), CoClustering)


@pytest.mark.parametrize("method", ["transform", "score", "embed", "save"])
def test_an_unfitted_model_says_so(method: str, tmp_path: Path):
    given = tmp_path / "m" if method == "save" else small_tasks(3)
    with pytest.raises(NotFittedError, match=r"^This TaskThemes instance is not fitted yet"):
        getattr(TaskThemes(), method)(given)


def test_what_is_embedded_has_named_factors_and_columns():
    model, tasks = fitted_themes(), small_tasks(9, seed=5)
    embedded = model.embed(tasks)
    assert [f.name for f in model.factors_] == ["image_themes", "position", "task_themes"]
    assert embedded.header.factors == model.factors_
    np.testing.assert_array_equal(model.transform(tasks), embedded.values)
    assert model.get_feature_names_out().tolist() == list(embedded.columns)
    np.testing.assert_array_equal(
        embedded.factor("task_themes").values, model.co_clustering_.transform(tasks)
    )
    assert embedded.header.unit == ""
    assert model.score(tasks) == pytest.approx(np.average(embedded.elbo, weights=tasks.n_way))


def test_the_shares_of_all_parts_make_one():
    assert sum(f.share for f in fitted_themes().factors_) == pytest.approx(1)
    weights = {"image_themes": 1.0, "kernel": 1.0, "task_themes": 2.0}
    model = themes(weights=weights, co_clustering=small_model())
    assert [f.share for f in model.factors_] == pytest.approx([0.25, 0.25, 0.5])


def test_fit_does_not_change_parameters_and_gives_the_same_again():
    model = TaskThemes(prepare=None)
    before = model.get_params()
    assert model.fit(small_tasks()) is model
    assert model.get_params() == before
    again = themes()
    assert again.fingerprint_ == model.fingerprint_
    other = themes(random_state=1)
    assert other.fingerprint_ != model.fingerprint_


def test_what_is_learned_follows_from_the_classes_not_from_their_tasks():
    model, other = themes(), TaskThemes(prepare=None).fit(small_tasks(40, seed=9))
    np.testing.assert_array_equal(model.themes_.mixture.mu, other.themes_.mixture.mu)


# -- the distance -----------------------------------------------------------------------------


def test_one_is_the_mean_distance_between_training_tasks():
    known = themes().embed(small_tasks())
    apart = mean_distance(known, known).mean() * 72 / 71
    assert apart == pytest.approx(1, abs=0.05)


def test_the_distance_of_a_pair_does_not_depend_on_other_tasks():
    model, tasks = themes(), small_tasks(30, seed=4)
    whole = distances(model.embed(tasks[:10]), model.embed(tasks[10:]))
    one = distances(model.embed(tasks[3]), model.embed(tasks[17]))
    np.testing.assert_allclose(one[0, 0], whole[3, 7], rtol=1e-4)


def test_a_task_is_known_again_by_other_samples_of_any_number():
    """The same classes are nearest, whether few samples are known of each, or all."""
    pool = ClassPool.from_classes(
        {f"c{i}": c + 3 * np.eye(24, 3)[i] * i for i, c in enumerate(blobs().values())}
    )
    model = TaskThemes(prepare=None).fit(sample_tasks(pool, 72, n_way=4, n_shot=6))
    classes = [[4 * i + j for j in range(4)] for i in range(6)]
    whole = model.embed(make_tasks(pool, classes))
    for few in (2, 6):
        asked = model.embed(make_tasks(pool, classes, n_shot=few, seed=3))
        assert (nearest(asked, whole, 1).indices[:, 0] == np.arange(6)).mean() > 0.6


def test_all_samples_of_classes_are_summed_once_with_the_same_result():
    model = themes()
    tasks = sample_tasks(small_pool(), 50, n_way=(2, 4), n_shot="all", split="train", seed=3)
    listed = np.broadcast_to(np.arange(N), (50, 4, N))
    support = np.where((tasks.classes >= 0)[..., None], listed, -1)
    ids = [[int(c) for c in row if c >= 0] for row in tasks.classes]
    drawn = make_tasks(small_pool(), ids, support=support)
    once, each = model.embed(tasks), model.embed(drawn)
    np.testing.assert_allclose(once.values, each.values, atol=2e-3)
    np.testing.assert_allclose(once.elbo, each.elbo, rtol=1e-5)


@pytest.mark.parametrize("n_shot", [6, "all", 1])
def test_an_accelerator_sums_with_the_same_result(n_shot: object, monkeypatch: pytest.MonkeyPatch):
    model = themes()
    tasks = sample_tasks(small_pool(), 150, n_way=(2, 4), n_shot=n_shot, seed=3)
    on_host = model.embed(tasks)
    for place in (module, import_module("taskscape.themes.embed")):
        monkeypatch.setattr(place, "on_cpu", lambda: False)
    on_device = model.embed(tasks)
    np.testing.assert_allclose(on_device.values, on_host.values, atol=4e-3)
    np.testing.assert_allclose(on_device.logs, on_host.logs, atol=0.05, rtol=1e-3)


def test_where_few_samples_are_drawn_only_those_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    model, tasks = themes(), small_tasks(2, seed=8).with_samples(1)
    looked: list[int] = []
    taken = PreparedSamples.to_device

    def counted(self: PreparedSamples, rows: np.ndarray, size: int) -> jax.Array:
        looked.append(len(np.unique(rows)))
        return taken(self, rows, size)

    monkeypatch.setattr(PreparedSamples, "to_device", counted)
    few = model.embed(tasks)
    assert sum(looked) <= int(tasks.n_way.sum())
    monkeypatch.setattr(module, "_DRAWN_TWICE", 1000)
    np.testing.assert_array_equal(model.embed(tasks).values, few.values)


def test_tasks_in_pieces_are_the_same_as_at_once(monkeypatch: pytest.MonkeyPatch):
    model, tasks = themes(), small_tasks(150, seed=4)
    whole = model.embed(tasks)
    monkeypatch.setattr(module, "_TASKS_ON_CPU", 16)
    np.testing.assert_array_equal(model.embed(tasks).values, whole.values)


# -- what is refused, and warned of -----------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_themes": 1}, "image_themes=1 must be at least 2."),
        ({"temperature": 0.0}, "temperature=0.0 must be a finite number above 0."),
        ({"bandwidth": -1.0}, "bandwidth=-1.0 must be a finite number above 0."),
        ({"weights": np.ones(2)}, "weights=array([1., 1.]) must be 'auto', or name parts and weig"),
        ({"weights": "even"}, "weights='even' must be 'auto', or name parts and weights."),
        ({"weights": {"size": 1.0}}, "weights={'size': 1.0} must weigh some of image_themes, "),
        ({"weights": {"kernel": 0.0}}, "weights={'kernel': 0.0} must weigh some of image_themes"),
        ({"weights": {"kernel": -1.0, "mean": 3.0}}, "weights['kernel']=-1.0 must be a finite"),
        ({"prepare": "pca"}, "prepare='pca' must be 'auto', None or a PrepareConfig."),
        ({"random_state": -1}, "random_state=-1 must be at least 0."),
        ({"co_clustering": 4}, "co_clustering must be a CoClustering, not int."),
        ({"origin": ("a", "b")}, "origin must be a str, not tuple."),
        ({"co_clustering": TaskThemes.paper(0)}, "task_themes=0 must be at least 1."),
    ],
)
def test_parameters_are_checked_first(settings: dict, message: str):
    with expect(message):
        TaskThemes().set_params(**settings).fit(small_tasks(3))


def test_tasks_are_checked_first(tmp_path: Path):
    model = TaskThemes(prepare=None)
    with expect("there are no tasks to fit on."):
        model.fit(small_tasks(3)[:0])
    with expect("checkpoint has no effect without co_clustering."):
        model.fit(small_tasks(), checkpoint=tmp_path / "c")
    same = ClassPool.from_arrays(np.ones((40, 3), np.float32), np.repeat(np.arange(4), 10))
    with expect("all samples are the same; there is nothing to tell apart."):
        model.fit(sample_tasks(same, 5, n_way=2, n_shot=2))
    assert not [name for name in vars(model) if name.endswith("_") and name != "preparation_"]


def test_few_samples_give_few_themes():
    few = ClassPool.from_classes({k: v[:3] for k, v in list(blobs().items())[:4]})
    model = TaskThemes(prepare=None).fit(sample_tasks(few, 5, n_way=2, n_shot=2))
    assert model.themes_.K == 2
    repeated = ClassPool.from_arrays(
        np.repeat(np.arange(4.0), 50)[:, None] * np.ones(3), np.repeat(np.arange(4), 50)
    )
    assert TaskThemes(prepare=None).fit(sample_tasks(repeated, 5, n_way=2, n_shot=2)).themes_.K == 4


def test_tasks_from_elsewhere_are_told_and_others_are_not():
    far = ClassPool.from_classes(blobs(2, offset=30.0), name="far away")
    with pytest.warns(OutlierTasksWarning, match=r"^40 of 40 tasks are explained far worse than"):
        posteriors = fitted_themes().embed(sample_tasks(far, 40, n_way=(2, 4), n_shot=6))
    assert np.isfinite(posteriors.values).all()
    fitted_themes().embed(small_tasks(200, seed=12, split="test"))  # a warning would be an error


def test_classes_like_those_learned_from_are_no_outliers_in_spaces_that_themes_fill():
    rng = np.random.default_rng(0)
    own = rng.normal(size=(80, 1, 48)) + 1.3 * rng.normal(size=(80, 30, 48))
    groups = [f"g{i // 8}" for i in range(80)]
    classes = {f"c{i}": x.astype(np.float32) for i, x in enumerate(own)}
    pool = ClassPool.from_classes(
        classes, groups=groups, splits=["train", "train", "test"] * 26 + ["train"] * 2
    )
    for of in (pool, replace(pool, groups=None)):
        model = TaskThemes().fit(sample_tasks(of, 300, split="train", n_shot=5))
        known = model.embed(sample_tasks(of, 200, split="train", n_shot=5, seed=1)).elbo
        new = model.embed(sample_tasks(of, 200, split="test", n_shot=5)).elbo  # nor is it told
        assert np.median(known) > np.median(new)


def test_a_sample_beyond_all_numbers_is_named():
    classes = blobs()
    classes["c3"][5] = 3e25
    pool = ClassPool.from_classes(classes)
    with expect("task 1 has class 'c3', whose sample 5 lies so far from what the model was fitt"):
        fitted_themes().embed(make_tasks(pool, [[0, 1], [2, 3]]))


# -- disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [False, True])
def test_a_model_comes_back_the_same(beside: bool, tmp_path: Path):
    model = fitted_themes() if beside else themes(weights={"image_themes": 1.0, "mean": 1.0})
    model.save(tmp_path / "m")
    back = TaskThemes.load(tmp_path / "m")
    assert back.fingerprint_ == model.fingerprint_
    assert back.factors_ == model.factors_
    assert back.elbo_reference_ == model.elbo_reference_
    assert repr(back) == repr(model)
    tasks = small_tasks(20, seed=3)
    np.testing.assert_array_equal(back.transform(tasks), model.transform(tasks))
    if beside:
        assert back.co_clustering_.health_ == model.co_clustering_.health_
    clone(back).fit(small_tasks())


def test_half_precision_costs_nothing(tmp_path: Path):
    embedded = themes().embed(small_tasks(200, seed=2))
    exact = np.concatenate([embedded.values[:, :-3], embedded.values[:, -3:] * (1 + 1e-5)], axis=1)
    rounded = replace(embedded, values=exact.astype(np.float16).astype(np.float32))
    near = [nearest(e[:50], e[50:], 3).indices for e in (embedded, rounded)]
    assert (near[0] == near[1]).mean() > 0.99
    embedded.save(tmp_path / "e.parquet")
    back = type(embedded).load(tmp_path / "e.parquet")
    np.testing.assert_array_equal(back.values, embedded.values)
    np.testing.assert_array_equal(back.logs, embedded.logs)
