"""The report's section on targets: what distances are in, and where chosen tasks come from."""

import re
from dataclasses import replace

from report_cases import bare_study
from taskscape.report import render_report
from taskscape.study.result import StudyResult
from taskscape.targets import Advice
from taskscape.targets.advice import SourceShare
from taskscape.tasks import make_tasks


def advice(result: StudyResult, n_sources: int) -> Advice:
    names = list(result.pool.class_names[:2])
    shares = tuple(
        SourceShare(f"source {i}", {"ranks": 0.5 + i / 100}, 9 - i) for i in range(n_sources)
    )
    return Advice(
        target="runes", learner="protonet", way="ranks", why="This way was asked for.",
        chosen=make_tasks(result.pool, [names] * 10), sources=shares, explained=True, gap=0.0,
        expected_gains=(),
    )  # fmt: skip


def section(result: StudyResult, *targets: Advice) -> str:
    """The words of the section."""
    page = render_report(replace(result, targets=targets))
    section = page.split('<section id="targets"')[1].split("</section>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", section)).replace(" .", ".")


def test_distances_say_what_they_are_relative_to():
    shown = section(bare_study(), advice(bare_study(), 3))
    assert "by what its tasks were chosen by" in shown
    assert "in % of the candidates: source 0 (50), source 1 (51)" in shown
    assert "nats" not in shown


def test_sources_that_are_not_named_are_said_to_be_others():
    result = bare_study()
    two = "Chosen tasks come from source 0 (9), source 1 (8)"
    assert f"{two}." in section(result, advice(result, 2))
    assert f"{two} and others." in section(result, advice(result, 5))
    own = advice(result, 5)
    for said in (own.nearest, own.verdict, own.because):  # what the command and Python say
        assert said in section(result, own)
        assert said in own.summary()
