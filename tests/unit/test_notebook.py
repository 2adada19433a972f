"""What notebooks show: tables, figures, and how far a long job is."""

import re
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib.figure
import numpy as np

from taskscape import (
    ClassPool,
    TaskThemes,
    correlation_diagram,
    nearest,
    resemblance,
    retrieval,
    sample_tasks,
    select,
)
from taskscape.forecast import Forecasts
from taskscape.notebook import ShownInNotebooks
from taskscape.progress import progress_bar, track
from taskscape.statistics import Interval
from taskscape.study import StudyResult
from taskscape.targets import Advice
from taskscape.targets.advice import SourceShare
from taskscape.themes.health import Health


def a_pool() -> ClassPool:
    rng = np.random.default_rng(0)
    return ClassPool.from_classes(
        {f"<{c}>": rng.normal(c // 6, 1, (12, 4)).astype(np.float32) for c in range(24)},
        groups=[f"group {c // 6}" for c in range(24)],
    )


def test_every_result_shows_itself_with_its_own_numbers():
    pool = a_pool()
    tasks = sample_tasks(pool, 60, n_way=3, n_shot=4)
    embedded = TaskThemes(8).fit(tasks).embed(tasks)
    rng = np.random.default_rng(0)
    diagram = correlation_diagram(rng.random(60), {"mine": rng.random(60)})
    test = retrieval(pool, TaskThemes(8), n_way=3, n_shot=4, n_queries=2, n_candidates=4)
    values = rng.random(9)
    forecasts = Forecasts("mine", values, values - 0.1, values + 0.1, 0.9, {})
    advice = Advice(
        target="<0>", learner="protonet", way="half", why="Seen elsewhere.", chosen=tasks[:9],
        sources=(SourceShare("group 1", {"ranks": 0.1}, 5, 4),), explained=True, gap=None,
        measured_gains={"half": Interval(0.01, -0.01, 0.03)},
    )  # fmt: skip
    shown = {
        '<td style="text-align: left">group 3</td>': pool,
        "&lt;": tasks,
        "classes": embedded,
        "the training tasks": resemblance(tasks[:30], tasks[30:]),
        "find their own (%)": test,
        "mean distance 0.": select(embedded[:5], embedded[5:], 9, "nearest"),
        "How far to trust it": nearest(embedded[:5], embedded[5:], 3, pool=pool),
        "no clear gain was measured": advice,
        "<img": diagram,
        "expected accuracy": forecasts,
    }
    for own, result in shown.items():
        text = result._repr_html_()
        assert own in text, type(result)
        assert re.search(r"<strong>\w+\(", text)
        assert "<0>" not in text  # names are text, never markup
    assert issubclass(StudyResult, ShownInNotebooks)
    assert tasks._repr_html_().count("<tr>") == 8  # the head, six tasks, and that there are more


def test_health_is_read_at_a_glance():
    health = Health((0.5, 0.5), (1.0,), "tasks", 120, 7, 1, 1.0, 0, 2.0, None, ("use fewer",))
    assert repr(health) == "Health(1 remarks, see summary(); 120 tasks)"
    assert "! use fewer" in health._repr_html_()


def test_plots_are_figures_that_notebooks_show_and_files_if_asked(tmp_path):
    rng = np.random.default_rng(0)
    diagram = correlation_diagram(rng.random(60), {"mine": rng.random(60)})
    figure = diagram.plot()
    assert isinstance(figure, matplotlib.figure.Figure)
    assert "data:image/png;base64," in figure._repr_html_()
    assert isinstance(diagram.plot(tmp_path / "a.png"), matplotlib.figure.Figure)
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_notebook_has_a_line_that_says_how_far_a_long_job_is(monkeypatch: Any):
    said: list[str] = []
    line = SimpleNamespace(update=lambda data, raw: said.append(data["text/plain"]))

    def display(data: Any, raw: bool, display_id: bool) -> Any:
        said.append(data["text/plain"])
        return line

    ipython, shown = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    shown.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    assert list(track("ab", "quick")) == ["a", "b"]
    assert said == []
    clock = iter(np.arange(0, 100, 0.9).tolist())
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with progress_bar("fitting", 4) as advance:
        for _ in range(4):
            advance()
    assert said == ["fitting: 1 of 4", "fitting: 2 of 4", "fitting: 3 of 4", "fitting: 4 of 4"]
    monkeypatch.setenv("TASKSCAPE_PROGRESS", "0")
    assert list(track("ab", "quiet")) == ["a", "b"]
    assert len(said) == 4
