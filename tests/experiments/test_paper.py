"""The paper's experiments at toy size: cells, resuming, selections, tables."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

from experiments import paper
from experiments.__main__ import main
from experiments.lab import Lab, OutOfTimeError, Store
from experiments.paper import PaperSettings, selection, summary
from experiments.paper.fig2 import Fig2
from experiments.paper.plan import (
    VERSIONS,
    Fig2Plan,
    SelectionPlan,
    fig2_plan,
    learner_settings,
    selection_plans,
)
from experiments.paper.published import FIG2, FIG3, FIG4
from experiments.paper.selection import Choice, SelectionFigure
from experiments.recipes import PREFERRED_SIZES
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.select.trials import outcomes
from taskscape.similarity import Task2VecConfig

CHOICES = (Choice("random", ""), Choice("nearest", "ours"), Choice("coverage", "ours"))


def store_in(
    folder: Path, pool: ClassPool, seed: int = 0, command: str = "", minutes: float | None = None
) -> Store:
    return Store(Lab(folder / "results.jsonl", command, minutes), pool.fingerprint, seed)


@pytest.fixture(scope="module")
def pool() -> ClassPool:
    rng = np.random.default_rng(0)
    centres = rng.gamma(2.0, size=(24, 6))
    X = np.repeat(centres, 20, axis=0) + 0.3 * rng.random((480, 6))
    return ClassPool.from_arrays(
        X.astype(np.float32),
        np.repeat(np.arange(24), 20),
        name="toy",
        splits=["train"] * 14 + ["val"] * 3 + ["test"] * 7,
    )


@pytest.fixture(autouse=True)
def _quick_models(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {"n_restarts": 2, "ensemble": 2, "max_passes": 1, "prepare": None}
    monkeypatch.setitem(VERSIONS, "ours", quick)


FIG2_PLAN = Fig2Plan(
    "toy", "train+val", 30, 50, n_query=4, episodes=3, fit_tasks=60, learner_tasks=16, seeds=(0, 1)
)
SELECTION_PLAN = SelectionPlan(
    budgets=(8, 16), random_trials=3, rule_trials=2, candidates=60, test_tasks=20, fit_tasks=60,
    n_query=4,
)  # fmt: skip
SMALL = replace(SELECTION_PLAN, budgets=(8,), random_trials=1, rule_trials=1, candidates=30)


@pytest.mark.filterwarnings("ignore::taskscape.themes.HealthWarning")
@pytest.mark.filterwarnings("ignore::taskscape.themes.OutlierTasksWarning")
class TestFig2:
    def test_runs_once_and_draws_what_is_there(self, pool: ClassPool, tmp_path: Path) -> None:
        store = store_in(tmp_path, pool, command="the command")
        figure = Fig2("fig2-mini-imagenet", pool, FIG2_PLAN, store)
        figure.train(["protonet"])
        assert figure.measured_from("ours") is None
        figure.prepare(["ours"])
        before = (tmp_path / "results.jsonl").read_text()
        again = replace(figure, store=store_in(tmp_path, pool, command="another command"))
        again.train(["protonet"])
        again.prepare(["ours"])
        assert (tmp_path / "results.jsonl").read_text() == before
        lines = [json.loads(line) for line in before.splitlines()]
        assert [line["cell"]["what"] for line in lines] == ["accuracy", "accuracy", "distance"]
        assert lines[0]["command"] == "the command"
        diagram = again.diagram(["protonet"], "ours")
        assert diagram.n_tasks == 21  # all combinations of 5 of the 7 test classes
        assert diagram.curves[0].n_evaluations == 3
        assert diagram.curves[0].partial is not None
        assert len({b.n_tasks for b in diagram.curves[0].bins}) <= 2  # 21 tasks in ten bins
        train = again.measured_from("ours")
        assert train is not None
        assert len(again.agreement("ours", train)) == 1  # a pair of fits

    def test_another_size_is_another_cell_and_has_files_of_its_own(
        self, pool: ClassPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        figure = Fig2("fig2-mini-imagenet", pool, FIG2_PLAN, store_in(tmp_path, pool))
        seen = []
        for n in (4, 32):
            size = {"task_themes": n, "image_themes": 16}
            monkeypatch.setitem(PREFERRED_SIZES, pool.name, size)
            seen.append((figure.named("sized"), figure._cell("sized")["model"]["task_themes"]))
        assert seen == [("sized-16x4", 4), ("sized-16x32", 32)]
        assert figure.named("ours") == "ours"
        assert "task_themes" not in figure._cell("ours")["model"]  # the paper's, as ever

    def test_stops_when_the_time_is_up(self, pool: ClassPool, tmp_path: Path) -> None:
        store = store_in(tmp_path, pool, minutes=1e-9)
        figure = Fig2("fig2-mini-imagenet", pool, FIG2_PLAN, store)
        with pytest.raises(OutOfTimeError):
            figure.train(["protonet"])
        with pytest.raises(OutOfTimeError):
            figure.prepare(["ours"])
        assert not (tmp_path / "results.jsonl").exists()


@pytest.mark.filterwarnings("ignore::taskscape.themes.HealthWarning")
@pytest.mark.filterwarnings("ignore::taskscape.themes.OutlierTasksWarning")
class TestSelection:
    def test_every_trial_is_a_line_and_is_not_run_again(
        self, pool: ClassPool, tmp_path: Path
    ) -> None:
        store = store_in(tmp_path, pool)
        figure = SelectionFigure("fig3", pool, SELECTION_PLAN, store)
        figure.prepare(CHOICES)
        figure.train(["protonet"], CHOICES)
        lines = (tmp_path / "results.jsonl").read_text()
        assert len(lines.splitlines()) == 2 * (3 + 2 + 2)
        replace(figure, store=store_in(tmp_path, pool)).train(["protonet"], CHOICES)
        assert (tmp_path / "results.jsonl").read_text() == lines
        compared = outcomes([summary.read_trial(e) for e in store.results(figure="fig3")])
        assert {(o.budget, o.rule, o.n_trials) for o in compared} >= {
            (8, "random", 3),
            (16, "nearest (ours)", 2),
        }

    def test_other_data_and_other_seeds_are_other_cells(
        self, pool: ClassPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = ClassPool.from_arrays(
            -pool.take(np.arange(480)),
            np.repeat(np.arange(24), 20),
            name=pool.name,
            splits=["train"] * 14 + ["val"] * 3 + ["test"] * 7,
        )
        monkeypatch.setattr(paper, "selection_plans", lambda figure, scale: (SMALL,))
        monkeypatch.setattr(selection, "choices_of", lambda figure, versions: CHOICES[:1])
        kept = []
        for data, seed in ((pool, 0), (other, 0), (pool, 1)):
            monkeypatch.setattr(paper, "load_pool", lambda name, data=data: data)
            asked = PaperSettings(("fig3",), ("protonet",), stages=("train",), seed=seed)
            paper.run(asked, Lab(tmp_path / "results.jsonl"))
            store = store_in(tmp_path, data, seed)
            kept += [e["accuracy"] for e in store.results(figure="fig3")]
            arrays = store.arrays("counted", lambda: {"a": np.array(len(kept))})  # noqa: B023
            assert arrays["a"] == len(kept)
        lines = [json.loads(x) for x in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert [line["accuracy"] for line in lines] == kept
        assert len(kept) == 3
        assert len({line["cell"]["data"] for line in lines}) == 2

    def test_all_figures_share_the_time_and_take_the_learners_that_they_have(
        self, pool: ClassPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paper, "selection_plans", lambda figure, scale: (SMALL,))
        monkeypatch.setattr(selection, "choices_of", lambda figure, versions: CHOICES[:1])
        monkeypatch.setattr(paper, "load_pool", lambda name: pool)
        asked = PaperSettings(learners=("maml-untuned",), stages=("train", "draw"))
        with pytest.raises(OutOfTimeError):
            paper.run(asked, Lab(tmp_path / "results.jsonl", minutes=1e-9))
        assert not list(tmp_path.iterdir())
        paper.run(asked, Lab(tmp_path / "results.jsonl"))
        lines = [json.loads(x) for x in (tmp_path / "results.jsonl").read_text().splitlines()]
        assert [line["cell"]["figure"] for line in lines] == ["fig3", "fig4"]
        assert all((tmp_path / name).exists() for name in ("fig3.md", "fig3.png", "fig4.png"))

    def test_what_is_chosen_depends_on_the_support_alone(
        self, pool: ClassPool, tmp_path: Path
    ) -> None:
        figure = SelectionFigure("fig3", pool, SELECTION_PLAN, store_in(tmp_path, pool))
        support = figure.tests().pool_rows(slice(None)).support
        chosen = figure.chosen(CHOICES[1], 0)
        assert len(set(chosen.tolist())) == 16
        fewer = replace(SELECTION_PLAN, n_query=2)
        other = SelectionFigure("fig3", pool, fewer, store_in(tmp_path / "other", pool))
        np.testing.assert_array_equal(other.tests().pool_rows(slice(None)).support, support)
        np.testing.assert_array_equal(other.chosen(CHOICES[1], 0), chosen)

    def test_random_choices_differ_by_trial_and_repeat_by_seed(
        self, pool: ClassPool, tmp_path: Path
    ) -> None:
        figure = SelectionFigure("fig3", pool, SELECTION_PLAN, store_in(tmp_path, pool))
        first, second = (figure.chosen(CHOICES[0], t) for t in (0, 1))
        assert set(first.tolist()) != set(second.tolist())
        np.testing.assert_array_equal(first, figure.chosen(CHOICES[0], 0))


def _entry(rule: str, trial: int, accuracy: float) -> dict:
    cell = {"learner": "maml", "rule": rule, "measure": "", "budget": 10, "trial": trial}
    cell["plan"] = {"way": 5}
    without = [accuracy - 0.01, accuracy, accuracy + 0.01]
    return {"cell": cell, "accuracy": accuracy, "without_class": without}


def test_gains_are_over_random_with_one_interval_over_trials_and_classes() -> None:
    entries = [_entry("random", t, a) for t, a in enumerate((0.50, 0.52, 0.54))]
    entries += [_entry("nearest", t, a) for t, a in enumerate((0.60, 0.62))]
    random, nearest = outcomes([summary.read_trial(e) for e in entries])
    assert random.gain is None
    assert random.losing_share is None
    assert random.spread == pytest.approx(0.02)
    assert nearest.losing_share == 0
    assert nearest.gain is not None
    assert nearest.gain.value == pytest.approx(0.09)
    # Welch: variances 2/2 and 4/3 of the means in points, 2.88 degrees of freedom, t = 3.26; all
    # classes gain the same
    assert (nearest.gain.high - nearest.gain.low) / 2 == pytest.approx(0.04975, abs=1e-4)
    assert nearest.gain.sign
    # another gain without each class: variances of 1, 4/3 and 2/3 * 2 * 9 points
    for entry, more in zip(entries[3:], (0.03, 0.03), strict=True):
        entry["without_class"][0] -= more
        entry["without_class"][2] += more
    _, nearest = outcomes([summary.read_trial(e) for e in entries])
    assert nearest.gain is not None
    total, freedom = 1 + 4 / 3 + 12, (1 + 4 / 3 + 12) ** 2 / (1 + (4 / 3) ** 2 / 2 + 12**2 / 2)
    reach = student.ppf(0.975, freedom) * total**0.5
    assert 100 * nearest.gain.high == pytest.approx(9 + reach)
    assert not nearest.gain.sign


def test_the_published_numbers_are_those_of_the_paper() -> None:
    assert FIG2["mini_imagenet"]["bmaml"][0] == (0.285, 0.6289)
    assert all(len(points) == 10 for d in FIG2.values() for points in d.values())
    assert FIG3["task2vec"]["maml"] == 61.17
    assert FIG4["protonet", 10]["nearest"][100] == 28.0


def test_a_scale_shrinks_every_count_and_full_size_is_the_papers() -> None:
    full, tiny = fig2_plan("fig2-mini-imagenet", 1.0), fig2_plan("fig2-mini-imagenet", 0.001)
    assert (full.test_tasks, full.measured_from) == (15_504, 2_000_000)
    assert (tiny.test_tasks, tiny.measured_from, tiny.learner_tasks) == (100, 2000, 100)
    five, ten = selection_plans("fig4", 1.0)
    assert (five.way, ten.way, five.random_trials) == (5, 10, 10)
    assert selection_plans("fig3", 1.0)[0].random_trials == 50
    assert max(selection_plans("fig4", 0.01)[0].budgets) == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learners": ("svm",)}, "learner 'svm' is not known; choose from "),
        ({"scale": 2.0}, "scale=2 must be above 0 and at most 1; 1 is the paper's size."),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    change: dict, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        paper.run(PaperSettings(("fig3",), **change), Lab(tmp_path / "out.jsonl"))
    assert message in str(error.value)


def test_nothing_finished_says_so(pool: ClassPool, tmp_path: Path) -> None:
    figure = SelectionFigure("fig3", pool, SELECTION_PLAN, store_in(tmp_path, pool))
    assert "no trial is finished yet" in summary.write_summary([figure], ["ours"], 0.1)
    assert "--scale 0.1" in (tmp_path / "fig3.md").read_text()


def test_figure_4_has_a_row_for_each_way_and_choice_and_says_how_learners_were_tuned(
    pool: ClassPool, tmp_path: Path
) -> None:
    store = store_in(tmp_path, pool)
    plans = selection_plans("fig4", 0.001)
    figures = [SelectionFigure("fig4", pool, plan, store) for plan in plans]
    for figure in figures:
        for cell in figure.cells("protonet", CHOICES[:2]):
            store.add(cell, {"accuracy": 0.5, "without_class": [0.4, 0.5]})
    text = summary.write_summary(figures, ["ours"], 0.001)
    assert "| protonet | 10-way | nearest (ours) |" in text
    assert (
        "ProtoNet and MAML were tuned for 100, 1,000 and 10,000 tasks at both numbers of ways"
        in text
    )


def test_learners_take_what_was_tuned_for_their_ways_and_the_nearest_number_of_tasks() -> None:
    five, ten = selection_plans("fig4", 1.0)
    of = {
        (plan.way, budget): learner_settings(plan, "protonet", budget)
        for plan in (five, ten)
        for budget in plan.budgets
    }
    assert of[5, 500] is of[5, 1000] is of[5, 2000]
    assert of[5, 5000] is of[5, 10_000]
    assert len({id(settings) for settings in of.values()}) == 6
    # not tuned for anything but 1,000 tasks of five classes
    assert learner_settings(ten, "abml", 100) is learner_settings(five, "abml", 1000)
    for figure in ("fig3", "fig4-omniglot"):
        for plan in selection_plans(figure, 1.0):
            assert all(learner_settings(plan, name, 1000) for name in ("protonet", "maml"))


def test_gains_are_marked_by_whether_they_survive_all_the_comparisons(
    pool: ClassPool, tmp_path: Path
) -> None:
    store = store_in(tmp_path, pool)
    (plan,) = selection_plans("fig3", 0.001)
    figure = SelectionFigure("fig3", pool, plan, store)
    choices = (CHOICES[0], Choice("nearest", "ours"), Choice("coverage", "ours"))
    rng = np.random.default_rng(0)
    more = {"random": 0.0, "nearest": 0.05, "coverage": 0.0025}
    cells = [
        {**cell, "trial": t}
        for cell in figure.cells("protonet", choices)
        if cell["trial"] == 0
        for t in range(8)
    ]
    for cell in cells:
        accuracy = 0.5 + more[cell["rule"]] + 0.002 * float(rng.normal())
        store.add(cell, {"accuracy": accuracy, "without_class": [accuracy] * 4})
    text = summary.write_summary([figure], ["ours"], 0.001)
    assert "as 2 of 2 do" in text
    assert "**Bold**: 1 that do so with the interval widened for 2 comparisons" in text
    rows = [line for line in text.splitlines() if line.startswith("| protonet | 5-way | ")]
    gains = {row.split(" | ")[2]: row.split(" | ")[3] for row in rows[:3]}
    assert gains["nearest (ours)"].startswith("**")
    assert gains["coverage (ours)"].startswith("*+")


def test_tasks_of_one_alphabet_are_a_plan_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.random((24 * 14, 16, 16)).astype(np.float32)
    drawings = ClassPool.from_arrays(
        images, np.repeat(np.arange(24), 14), name="toy",
        splits=["train"] * 12 + ["test"] * 12, groups=[f"alphabet {i // 6}" for i in range(24)],
    )  # fmt: skip
    across, within = selection_plans("fig4-omniglot", 0.0001)
    assert (across.within_group, within.within_group) == (False, True)
    small = {"budgets": (4,), "random_trials": 1, "candidates": 8, "test_tasks": 6, "n_query": 3}
    store = store_in(tmp_path, drawings)
    figures = [
        SelectionFigure("fig4-omniglot", drawings, replace(plan, **small), store)
        for plan in (across, within)
    ]
    for figure in figures:
        for tasks in (figure.candidates(), figure.tests()):
            alphabets = [{drawings.groups[c] for c in row} for row in tasks.classes.tolist()]
            assert all(len(a) == 1 for a in alphabets) == figure.plan.within_group
        figure.train(["protonet"], CHOICES[:1])
    text = summary.write_summary(figures, ["ours"], 0.0001)
    assert "| protonet | 5-way | random |" in text
    assert "| protonet | 5-way, within groups | random |" in text


def test_cells_say_where_the_probe_was_tuned(pool: ClassPool, tmp_path: Path) -> None:
    """Lines of before stay what they are where validation classes prefer the default probe."""
    store, choice = store_in(tmp_path, pool), Choice("nearest", "task2vec")
    features, drawings = (
        SelectionFigure("fig3", pool, replace(SMALL, pool=name), store)
        for name in ("mini_imagenet", "omniglot")
    )
    assert selection.probe_of("mini_imagenet") == Task2VecConfig()
    assert selection.probe_of("omniglot").train.learning_rate == 3e-3
    assert all("probe" not in cell for cell in features.cells("protonet", [choice]))
    (cell,) = drawings.cells("protonet", [choice])
    assert cell["probe"] == selection.PROBES["omniglot"]
    assert all("probe" not in cell for cell in drawings.cells("protonet", CHOICES))


def test_trials_are_in_groups_of_one_size(
    pool: ClassPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_most_together", lambda: 4)
    seen: list[tuple[int, int]] = []

    def trials(group: tuple, size: int, *_: object) -> list[dict]:
        seen.append((len(group[0]), size))
        return [{"accuracy": 0.5, "without_class": []}] * len(group[0])

    monkeypatch.setattr(selection, "_trials", trials)
    plan = replace(SMALL, random_trials=9)
    SelectionFigure("fig3", pool, plan, store_in(tmp_path, pool)).train(["protonet"], CHOICES[:1])
    assert seen == [(3, 3)] * 3


@pytest.mark.parametrize("words", [["--figures", "fig9"], ["--stages", "cook"]])
def test_words_that_are_not_known_are_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["paper", *words, "--out", str(tmp_path / "out.jsonl")])
    assert "invalid choice" in capsys.readouterr().err


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["paper", "--help"])
    assert "--minutes" in capsys.readouterr().out
