"""Findings in words: a verdict first, few numbers, and nothing reads as nothing."""

import re
from dataclasses import replace

import numpy as np
import pytest

from taskscape import ClassPool, make_tasks
from taskscape.diagram import CorrelationDiagram, Curve
from taskscape.forecast import ForecastEvaluation
from taskscape.select.trials import Gain
from taskscape.similarity import Resemblance
from taskscape.similarity.resemblance import Standing
from taskscape.similarity.retrieval import TOO_FEW
from taskscape.statistics import Interval
from taskscape.study.result import Finding, find
from taskscape.targets import Advice
from taskscape.targets.advice import SourceShare

FALLS, FLAT = Interval(-0.4, -0.6, -0.2), Interval(-0.1, -0.3, 0.1)
RISES, BARELY = Interval(0.3, 0.1, 0.5), Interval(-0.2, -0.4, -0.003)
WELL, ILL = (
    ForecastEvaluation(
        "A", 50, 0.5, 0.061, 0.88, 0.9, 0.9, 0.072, advantage_interval=(0.002, 0.02)
    ),
    ForecastEvaluation(
        "B", 50, 0.0, 0.0724, 0.88, 0.9, 0.9, 0.0721, advantage_interval=(-0.002, 0.002)
    ),
)


def likeness(percentile: float) -> Resemblance:
    return Resemblance("themes", Standing(float(percentile), 0.02, 20, 60))


def diagram(*curves: tuple[str, Interval, Interval | None]) -> CorrelationDiagram:
    built = [
        Curve(name, (), result, result, result, 0.7, 5, 0.8, 0.94, given, FALLS)
        for name, result, given in curves
    ]
    return CorrelationDiagram(
        tuple(built), 100, 20, "paper", 10, 0.95, "leaving out classes", "d", "a", 0.1
    )


def about(part: str, **result: object) -> Finding:
    return [f for f in find(**result) if f.about == part][-1]


def distance(*curves: tuple[str, Interval, Interval | None]) -> Finding:
    return about("diagram", diagram=diagram(*curves))


def selection(*gains: Gain) -> Finding:
    return about("selection", gains=gains)


def share(name: str, distance: float, chosen: int, at_random: int = 0) -> SourceShare:
    return SourceShare(name, {"ranks": distance}, chosen, at_random)


def advice(target: str, way: str, *, latin: int = 9, **measured: Interval) -> Advice:
    pool = ClassPool.from_classes({name: np.zeros((2, 1)) for name in "abc"})
    return Advice(
        target=target, learner="protonet", way=way, why="Seen elsewhere.",
        chosen=make_tasks(pool, [["a", "b"]]),
        sources=(share("Greek", 0.01, 3), share("Latin", 0.02, latin)), explained=True,
        gap=None, measured_gains=measured,
        distance_is="A source is as far as its nearest task.",
    )  # fmt: skip


def test_likeness():
    finding = about("map", resemblance=likeness(50))
    assert str(finding) == likeness(50).summary()  # one sentence, wherever it is said
    assert finding.verdict == "Test tasks are like the training tasks."
    assert "farther apart than 50 % of random deals" in finding.because
    odd = about("map", resemblance=likeness(50), unexplained=0.9)
    assert odd.verdict == finding.verdict  # the answer stands; what casts doubt on it stands beside
    assert odd.because == (
        f"{finding.because} The model explains 90 % of them far worse than new classes usually "
        "are: trust their distances less."
    )
    far = about("map", resemblance=likeness(99), unexplained=0.4)
    assert str(far) == likeness(99).summary()
    assert about("map").verdict.endswith("are like the training tasks cannot be told.")


def test_how_far_to_trust_distances_is_said_also_where_it_cannot_be_told():
    first, *_ = find()
    assert first.verdict == TOO_FEW


def test_accuracy_stands_beside_guessing():
    asked = "A test task has 5 classes."
    one = {"A": Interval(0.431, 0.4, 0.46)}
    assert str(about("diagram", accuracy=one, guessing=0.2, asked=asked)) == (
        f"A is right on 43.1 % of the queries; guessing would be on 20.0 %. {asked}"
    )
    two = {"A": Interval(0.5, 0.4, 0.6), "B": Interval(0.21, 0.19, 0.23)}
    poor = about("diagram", accuracy=two, guessing=0.2)
    assert poor.verdict == "B does not clearly better than guessing."
    assert poor.because.startswith("Learners are right on 21.0 % (B) to 50.0 % (A) of the queries")


@pytest.mark.parametrize(
    ("curves", "verdict"),
    [
        ([("A", FLAT, FLAT)], "Distance to the training tasks does not clearly explain accuracy."),
        (
            [("A", BARELY, FLAT)],
            "Distance to the training tasks does not clearly explain accuracy.",
        ),
        (
            [("A", Interval(-0.5), None)],
            "Distance to the training tasks does not clearly explain accuracy.",
        ),
        (
            [("A", Interval(float("nan")), None)],
            "Whether distance to the training tasks explains accuracy cannot be told.",
        ),
        ([("A", FALLS, None)], "Accuracy falls with distance to the training tasks."),
        (
            [("A", FALLS, FLAT)],
            "Accuracy falls with distance to the training tasks, but not clearly so among tasks "
            "that are equally difficult.",
        ),
        (
            [("A", FALLS, FALLS), ("B", FALLS, FALLS)],
            "Accuracy falls with distance to the training tasks, also among tasks that are "
            "equally difficult.",
        ),
        (
            [("A", FALLS, FALLS), ("B", FALLS, BARELY)],
            "Accuracy falls with distance to the training tasks, among equally difficult tasks "
            "clearly so for A.",
        ),
        (
            [("A", FALLS, FLAT), ("B", FLAT, FLAT)],
            "Accuracy clearly falls with distance to the training tasks for A only, but not "
            "clearly so among tasks that are equally difficult.",
        ),
        (
            [("A", FALLS, FLAT), ("B", RISES, FLAT)],
            "Accuracy does not just fall with distance to the training tasks: it clearly falls "
            "for A and rises for B.",
        ),
    ],
)
def test_distance_and_accuracy(curves, verdict):
    assert distance(*curves).verdict == verdict


def test_an_interval_is_said_for_one_learner_and_its_end_is_never_minus_zero():
    assert distance(("A", BARELY, FLAT)).because == (
        "Their rank correlation (Spearman) is -0.20 [-0.40, 0.00]."
    )
    assert distance(("A", FLAT, FLAT), ("B", FALLS, FLAT)).because == (
        "Their rank correlation (Spearman) is -0.10 for A and -0.40 for B."
    )


def test_a_forecast_that_does_not_beat_the_mean_is_none():
    assert str(about("forecasts", evaluations={"A": WELL})) == (
        "Forecasts come closer to the accuracy on a test task than the mean does. A: off by 6.1 "
        "points on average, always expecting the mean by 7.2. Its 90 % intervals held 88 % of the "
        "tasks."
    )
    none = about("forecasts", evaluations={"B": ILL}).verdict
    assert none.startswith("No clear gain from forecasts: expecting the mean")
    both = about("forecasts", evaluations={"A": WELL, "B": ILL}).verdict
    assert both.endswith("than the mean does for A, not clearly for B.")


def test_forecasts_are_no_gain_if_that_holds_zero_and_poor_coverage_stands_in_the_headline():
    open_ = replace(WELL, advantage_interval=(-0.001, 0.02))
    assert about("forecasts", evaluations={"A": open_}).verdict.startswith("No clear gain")
    narrow = about("forecasts", evaluations={"A": replace(WELL, coverage=0.67)})
    assert narrow.verdict.endswith("than the mean does, but their intervals are too narrow.")
    assert "held 67 %" in narrow.because
    clearly = replace(WELL, coverage=0.84, coverage_interval=(0.8, 0.88))
    assert clearly.too_narrow
    assert not replace(clearly, coverage_interval=(0.7, 0.95)).too_narrow


def test_selection():
    none, gain = (
        Gain("A", "nearest", 50, -0.01, -0.03, 0.01),
        Gain("A", "cover", 50, 0.02, 0.01, 0.03),
    )
    harm, barely = (
        Gain("B", "nearest", 500, -0.05, -0.06, -0.04),
        Gain("A", "cover", 50, 0.02, 0.0004, 0.04),
    )
    assert find(gains=()) == find()
    assert str(selection(none)) == (
        "Choosing training tasks for all test tasks together made no clear difference. The one "
        "comparison with random choice was -1.0 points (A, 50 tasks by nearest)."
    )
    assert "made no clear difference" in selection(none, barely).verdict
    assert "clearly helped in 1 of 2 comparisons" in selection(none, gain).verdict
    assert str(selection(none, gain, harm)) == (
        "Choosing training tasks for all test tasks together clearly helped in 1 and did harm in 1 "
        "of 3 comparisons with random choice. The most it gained was +2.0 points (A, 50 tasks by "
        "cover). The most it lost was -5.0 points (B, 500 tasks by nearest)."
    )


def test_targets():
    one = advice("runes", "half", half=Interval(0.08, 0.05, 0.11))
    said = about("targets", targets=[one])
    assert str(said) == (
        "For ProtoNet on runes, choose training tasks (half by mean rank, half by chance). Seen "
        "elsewhere. Measured on its queries: +8.0 [+5.0, +11.0] points over random choice. Chosen "
        "tasks come from Latin (9), Greek (3). Nearest to runes by mean rank under themes and "
        "class means, in % of the candidates: Greek (1), Latin (2). A source is as far as "
        "its nearest task."
    )
    for part in (one.nearest, f"{one.verdict} {one.because}"):
        assert part in one.summary()  # the same sentences, wherever it is said
        assert part in str(said)
    asked = advice("runes", "random")
    none = replace(asked, expected_gains=())
    for said_of, verdict in (
        (none, "no clear gain is expected from choosing training tasks."),
        (asked, "training tasks are drawn at random."),
        (advice("runes", "ranks"), "what choosing training tasks (by mean rank under themes and "
         "class means) gains is not known."),
    ):  # fmt: skip
        assert about("targets", targets=[said_of]).verdict == f"For ProtoNet on runes, {verdict}"
    gains = {"half": Interval(0.01), "ranks": Interval(0.03)}
    many = [
        advice("a", "half", **gains),
        advice("b", "ranks", **gains),
        *[advice("c", "random")] * 2,
    ]
    each = [f for f in find(targets=many[:3]) if f.about == "targets"]
    assert [f.verdict for f in each] == [one.verdict for one in many[:3]]  # of a few, one by one
    output = str(about("targets", targets=many))
    assert output.startswith("Choosing training tasks is advised in 2 of 4 cases and clearly gains")
    assert "gains in none. That gained +2.0" in output
    assert "The least was +1.0 (a, ProtoNet), the most +3.0 (b, ProtoNet)." in output


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (Interval(0.036, -0.043, 0.114), "no clear gain was measured from choosing training tasks"),
        (Interval(0.036, 0.0004, 0.07), "no clear gain was measured from choosing training tasks"),
        (Interval(0.036, 0.01, 0.06), "choose training tasks (half by mean rank"),
        (
            Interval(-0.036, -0.06, -0.01),
            "choosing training tasks (half by mean rank, half by chance) loses.",
        ),
    ],
)
def test_whether_to_choose_follows_from_the_interval(gain, verdict):
    one = replace(advice("runes", "half", half=gain), measured_accuracy={"half": 0.5})
    assert verdict in about("targets", targets=[one]).verdict
    assert verdict in one.summary()
    also = [one, *[advice("c", "random")] * 3]
    n = "1" if gain.sign(3) > 0 else "none"
    assert f"clearly gains in {n}" in about("targets", targets=also).verdict


def test_no_sentence_has_more_than_three_numbers():
    names = ("A", "B", "C", "D", "E")
    gains = [Gain(n, "nearest", 500, v, v - 0.01, v + 0.01) for n in names for v in (0.1, -0.1)]
    gain = {"half": Interval(0.08, 0.05, 0.11)}
    for n in (1, 3, 5):
        output = find(
            resemblance=likeness(99),
            accuracy={k: Interval(0.5, 0.4, 0.6) for k in names[:n]},
            guessing=0.2,
            diagram=diagram(*((k, FALLS, FALLS) for k in names[:n])),
            evaluations=dict.fromkeys(names[:n], WELL),
            gains=gains[:n],
            targets=[advice(k, "half", **gain) for k in names[:n]],
        )
        assert {f.about for f in output} == {"map", "targets", "diagram", "forecasts", "selection"}
        for sentence in re.split(r"(?<=[.;]) (?=[A-Z])", " ".join(map(str, output))):
            assert len(re.findall(r"\d+(?:[.,]\d+)?", sentence)) <= 3, sentence
