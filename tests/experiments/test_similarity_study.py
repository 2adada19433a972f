"""The study of similarity measures: one line a cell, resumable, and the same as brute force."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import similarity
from experiments.__main__ import main
from experiments.lab import Lab, OutOfTimeError, Store
from experiments.recipes import PREFERRED_SIZES, hold_out
from experiments.similarity import (
    FAMILIES,
    Measured,
    SimilarityStudy,
    Sizes,
    measured_accuracies,
    run_measures,
)
from experiments.similarity.measures import summarise_distances
from experiments.similarity.study import (
    AccuracyTarget,
    association,
    measured_difficulty,
)
from experiments.tables import ledger
from meta_cases import toy_pool
from taskscape.diagram import correlation_diagram
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool
from taskscape.statistics import partial_spearman

ROOT = Path(__file__).parents[3]
SIZES = Sizes(
    tasks=40, fit_tasks=60, reference=50, few_tasks=20, few_reference=25,
    learner_tasks=8, episodes=3, probe_updates=2,
)  # fmt: skip
FAST = ("difficulty", "themes", "themes, other divergences", "prototypes", "hardness")


def pool() -> ClassPool:
    """Places of classes in three groups, and samples that no preparation can mistake for pixels."""
    return replace(toy_pool(), groups=tuple(f"g{c // 4}" for c in range(24)))


def study(split: str = "val") -> SimilarityStudy:
    return SimilarityStudy(
        pool(), split, SIZES, n_way=3, n_query=4, fit_way=(3, 4), embed_shot=5
    )  # fmt: skip


def made_up(n: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(size=(n, 4))
    episodes = difficulty.sum(axis=1)[:, None] + rng.normal(size=(n, 6))
    classes = np.stack([rng.permutation(9)[:3] for _ in range(n)])
    return {"x": rng.normal(size=n) + difficulty[:, 0], "accuracies": episodes,
            "difficulty": difficulty, "classes": classes}  # fmt: skip


def test_summaries_agree_with_brute_force() -> None:
    distances = np.random.default_rng(0).gamma(1.0, size=(7, 1200))
    summaries = summarise_distances(distances)
    ordered = np.sort(distances, axis=1)
    assert list(summaries) == ["mean", "nearest 1", "nearest 10", "nearest 100"]
    np.testing.assert_allclose(summaries["mean"], ordered.mean(axis=1))
    for k in (1, 10, 100):
        np.testing.assert_allclose(summaries[f"nearest {k}"], ordered[:, :k].mean(axis=1))
    assert list(summarise_distances(distances[:, :50])) == ["mean", "nearest 1"]
    assert list(summarise_distances(distances[:, :5])) == ["mean"]


def test_associations_are_those_of_the_diagram() -> None:
    built = made_up()
    x = built.pop("x")
    result = association(x, AccuracyTarget.of(**built))
    y, z = built["accuracies"].mean(axis=1), built["difficulty"]
    for name, n in (("partial", 1), ("partial_more", 3), ("partial_all", 4)):
        assert result[name][0] == pytest.approx(partial_spearman(x, y, z[:, :n]), abs=1e-4)
    diagram = correlation_diagram(
        x - x.min(), built["accuracies"], classes=built["classes"], difficulty=z[:, 0]
    )
    (curve,) = diagram.curves
    assert curve.partial is not None
    for name, one in (("spearman", curve.spearman), ("partial", curve.partial)):
        np.testing.assert_allclose(result[name], [one.value, one.low, one.high], atol=1e-4)
    assert result["ceiling"] == pytest.approx(curve.ceiling, abs=1e-4)
    assert (result["n_tasks"], result["n_classes"]) == (60, 9)


def test_nothing_is_left_of_difficulty_given_itself() -> None:
    built = made_up()
    built.pop("x")
    result = association(built["difficulty"][:, 0], AccuracyTarget.of(**built))
    assert result["spearman"][0] > 0
    assert result["partial"] == [None, None, None]


def test_scaled_sizes() -> None:
    assert Sizes.scaled(1.0) == Sizes()
    small = Sizes.scaled(0.1)
    assert small.tasks == 1_000
    assert small.episodes == Sizes().episodes


def test_tasks_of_a_study_are_all_combinations_or_some_of_them() -> None:
    every = replace(study(), sizes=replace(SIZES, tasks=None)).tasks
    assert len(every) == 56  # every 3 of 8 classes
    assert len(study().tasks) == 40
    assert len(np.unique(np.sort(study().tasks.classes, axis=1), axis=0)) == 40
    val = set(pool().classes_in("val").tolist())
    assert set(study().tasks.classes.ravel().tolist()) <= val


def test_what_is_measured_is_kept_beside_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(Lab(tmp_path / "found.jsonl"), pool().fingerprint)
    first = measured_accuracies(store, study(), "protonet", [0, 1])
    assert first[1].shape == (40, SIZES.episodes)
    right = 12 * first[1]  # three classes with four queries each
    np.testing.assert_allclose(right, np.rint(right), atol=1e-9)
    hard = measured_difficulty(store, study())
    np.testing.assert_allclose(hard, study().difficulty(), rtol=1e-6)
    monkeypatch.setattr("experiments.similarity.study.train_and_test", None)
    monkeypatch.setattr(SimilarityStudy, "difficulty", None)
    # how many tasks distances look at has no part in it
    fewer = replace(study(), sizes=replace(SIZES, few_tasks=10, few_reference=5, reference=20))
    again = measured_accuracies(store, fewer, "protonet", [0, 1])
    np.testing.assert_array_equal(first[1], again[1])
    np.testing.assert_array_equal(hard, measured_difficulty(store, fewer))
    with pytest.raises(TypeError):
        measured_accuracies(store, study("test"), "protonet", [0])


def go(path: Path, minutes: float | None = None) -> list[dict]:
    measured = {"protonet": {0: made_up(40)["accuracies"]}}
    run_measures(
        study(), Lab(path, "test", minutes),
        lambda: Measured(measured, made_up(40, seed=1)["difficulty"]),
        learners=["protonet"], seeds=[0], families=FAST,
    )  # fmt: skip
    return read_ledger(path)


def test_cells_are_lines_and_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "found.jsonl"
    with pytest.raises(OutOfTimeError):
        go(path, minutes=-1.0)
    assert not path.exists()
    lines = go(path)
    wanted = sum(len(FAMILIES[f].variants) * len(FAMILIES[f].summaries(study())) for f in FAST)
    assert len(lines) == len({json.dumps(line["cell"]) for line in lines}) == wanted
    one = next(line for line in lines if line["cell"]["divergence"] == "hellinger")
    assert one["cell"]["split"] == "val"
    assert one["spearman"][1] < one["spearman"][0] < one["spearman"][2]
    monkeypatch.setattr("experiments.similarity.measures.TaskThemes", None)
    assert go(path) == lines


def test_the_size_that_validation_classes_prefer_is_fitted_where_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str) -> list[dict]:
        path = tmp_path / f"{name}.jsonl"
        measured = {"protonet": {0: made_up(40)["accuracies"]}}
        run_measures(
            replace(study(), pool=replace(pool(), name=name)), Lab(path),
            lambda: Measured(measured, made_up(40, seed=1)["difficulty"]),
            learners=["protonet"], seeds=[0], families=["themes, chosen size"],
        )  # fmt: skip
        return read_ledger(path) if path.exists() else []

    # the size of the test above, so nothing new compiles
    size = {"task_themes": 4, "image_themes": 8}
    monkeypatch.setitem(PREFERRED_SIZES, "omniglot", size)
    assert run("blobs") == []  # nobody has chosen a size for it
    lines = run("omniglot")
    assert [line["cell"]["fits"] for line in lines] == [1, 1, 3, 3]  # for the mean, the nearest
    for line in lines:
        assert size.items() <= line["cell"].items()
        assert line["cell"]["measure"] == "task-themes, chosen size"
        assert line["n_tasks"] == 40


def test_preferred_sizes_are_the_smallest_that_are_not_clearly_below_the_best() -> None:
    bounds: dict[str, dict[tuple[int, int], dict[int, float]]] = {}
    for name in ("representation", "sizes"):  # of a seed that was run twice, the later counts
        for line in ledger(name):
            cell = line["cell"]
            if (cell["ensemble"], cell["class_share"]) == (1, 1.0):
                size = (cell["task_themes"], cell["image_themes"])
                seeds = bounds.setdefault(cell["pool"], {}).setdefault(size, {})
                seeds[cell["seed"]] = line["validation_bound"]
    for name in ("letters", "omniglot", "mini_imagenet"):
        result = {size: np.array(list(seeds.values())) for size, seeds in bounds[name].items()}
        assert len(result) == 16
        mean = {size: own.mean() for size, own in result.items()}
        error = {size: own.std(ddof=1) / np.sqrt(len(own)) for size, own in result.items()}
        best = max(mean, key=lambda size: mean[size])
        near = [s for s in mean if mean[best] - mean[s] <= 2 * np.hypot(error[best], error[s])]
        assert min(near, key=np.prod) == tuple(PREFERRED_SIZES[name].values())
    assert PREFERRED_SIZES["glyphs"] == PREFERRED_SIZES["letters"]


def test_cells_of_models_of_the_default_size_do_not_say_it() -> None:
    assert all(not f.size(study()) for n, f in FAMILIES.items() if n != "themes, chosen size")


def test_every_family_says_what_it_computes() -> None:
    assert {"task2vec", "otdd", "themes, few"} <= set(FAMILIES)
    variants = [v for f in FAMILIES.values() for v in f.variants]
    assert len(variants) == len(set(variants)) + 1  # mean KL for many and for few tasks


def test_the_command_line_runs_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = replace(pool(), splits=("train",) * 20 + ("test",) * 4)
    wide = replace(without, samples=np.abs(without.samples))
    big = ClassPool.from_classes(
        {n: np.tile(wide.samples_of(n), (2, 1)) for n in wide.class_names},
        groups=wide.groups, splits=wide.splits,
    )  # fmt: skip
    monkeypatch.setattr(similarity, "load_pool", lambda name: hold_out(big, 2))
    measured = {0: made_up(30)["accuracies"]}
    monkeypatch.setattr(similarity, "measured_accuracies", lambda *_: measured)
    out = tmp_path / "found.jsonl"
    given = [
        "similarity", "--pool", "toy", "--learners", "protonet", "--seeds", "0", "--tasks", "30",
        "--episodes", "2", "--families", "difficulty", "--out", str(out),
    ]  # fmt: skip
    main(given)
    assert len(read_ledger(out)) == 4
    with pytest.raises(SystemExit):
        main(["similarity", "--split", "val"])
