"""Findings in words: what is clear is said with its numbers, and nothing reads as nothing."""

import numpy as np

from taskscape.compare import Resemblance
from taskscape.diagram import CorrelationDiagram, Curve
from taskscape.forecast import Judgement
from taskscape.statistics import Interval
from taskscape.studies.outcome import Gain
from taskscape.studies.result import find

WELL = {"advice": [], "warnings": []}
FALLS, FLAT = Interval(-0.4, -0.6, -0.2), Interval(-0.1, -0.3, 0.1)
RISES = Interval(0.3, 0.1, 0.5)


def likeness(percentile: float) -> Resemblance:
    at = np.full(20, float(percentile))
    return Resemblance(at, at, at, "mean KL", 100, 0)


def diagram(*curves: tuple[str, Interval, Interval]) -> CorrelationDiagram:
    made = [
        Curve(name, (), found, found, found, 0.7, 5, 0.8, 0.94, given, FALLS)
        for name, found, given in curves
    ]
    return CorrelationDiagram(
        tuple(made), 100, 20, "paper", 10, 0.95, "leaving out classes", "d", "a", 0.1
    )


def second(*curves: tuple[str, Interval, Interval], **judged: Judgement) -> str:
    return find(likeness(50), WELL, diagram(*curves), [], judged)[1]


def third(*gains: Gain) -> str:
    return find(likeness(50), WELL, diagram(("A", FLAT, FLAT)), gains, {})[2]


def test_likeness():
    first = find(likeness(50), WELL, diagram(("A", FLAT, FLAT)), [], {})[0]
    assert first == (
        "Test tasks resemble the training tasks: the middle one lies farther from them than 50 % "
        "of tasks of validation classes do (50 % is usual), and 0 % lie beyond the 95th percentile "
        "(5 % is usual)."
    )
    ill = {"advice": ["x"], "warnings": ["y"]}
    far = find(likeness(99), ill, diagram(("A", FLAT, FLAT)), [], {})[0]
    assert far.startswith("Test tasks are unlike the training tasks: ")
    assert far.endswith(
        "But the health check has 2 remarks on the representation; read health.json first."
    )
    unknown = find(None, WELL, diagram(("A", FLAT, FLAT)), [], {})[0]
    assert unknown.startswith("Whether the test tasks are like the training tasks cannot be told")


def test_distance_and_accuracy():
    assert second(("A", FLAT, FLAT)) == (
        "Distance to the training tasks does not clearly explain accuracy: A Spearman -0.10 "
        "[-0.30, 0.10], -0.10 [-0.30, 0.10] given difficulty, noise ceiling 0.94."
    )
    assert second(("A", FALLS, FLAT)).startswith(
        "Accuracy falls with distance to the training tasks, but not clearly so among tasks that "
        "are equally difficult: A Spearman -0.40"
    )
    assert second(("A", FALLS, FALLS), ("B", FALLS, FALLS)).startswith(
        "Accuracy falls with distance to the training tasks, also among tasks that are equally "
        "difficult: "
    )
    assert second(("A", FALLS, FALLS), ("B", FALLS, FLAT)).startswith(
        "Accuracy falls with distance to the training tasks, among equally difficult tasks "
        "clearly so for A: "
    )
    assert second(("A", FALLS, FLAT), ("B", FLAT, FLAT)).startswith(
        "Accuracy clearly falls with distance to the training tasks for A only, but not clearly so "
    )
    assert second(("A", FALLS, FLAT), ("B", RISES, FLAT)).startswith(
        "Accuracy does not fall with distance to the training tasks throughout: "
    )


def test_intervals_that_are_not_known_are_not_clear():
    assert second(("A", Interval(-0.5), Interval(-0.5))).startswith(
        "Distance to the training tasks does not clearly explain accuracy: A Spearman -0.50, "
    )


def test_forecasts():
    judged = Judgement("A", 50, 0.5, 0.061, 0.88, 0.9, 0.9, 0.072)
    assert second(("A", FLAT, FLAT), A=judged).endswith(
        " Forecasts of test accuracy from validation tasks: A off by 6.1 points on average (7.2 if "
        "always expecting the mean), 88 % within intervals meant for 90 %."
    )


def test_selection():
    none, gain = (
        Gain("A", "nearest", 50, -0.01, -0.03, 0.01),
        Gain("A", "cover", 50, 0.02, 0.01, 0.03),
    )
    harm = Gain("B", "nearest", 500, -0.05, -0.06, -0.04)
    assert third() == "Selection of training tasks was not looked at."
    assert third(none) == (
        "Choosing training tasks made no clear difference in the one comparison with random "
        "choice; the largest was A, 50 tasks by nearest: -1.0 points [-3.0, +1.0]."
    )
    assert third(none, none).startswith(
        "Choosing training tasks made no clear difference in any of 2 comparisons with random"
    )
    assert third(none, gain) == (
        "Choosing training tasks helped clearly in 1 of 2 comparisons with random choice (most: A, "
        "50 tasks by cover: +2.0 points [+1.0, +3.0])."
    )
    assert third(none, gain, harm) == (
        "Choosing training tasks helped clearly in 1 of 3 comparisons with random choice (most: A, "
        "50 tasks by cover: +2.0 points [+1.0, +3.0]) and did clear harm in 1 (most: B, 500 tasks "
        "by nearest: -5.0 points [-6.0, -4.0])."
    )
