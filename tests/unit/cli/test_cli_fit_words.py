"""What ``taskscape fit`` says while it works and at the end: on what the fit was evaluated."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from taskscape import TaskThemes
from taskscape.cli import display
from taskscape.cli.display import fit_lines, print_fit
from taskscape.themes import CoClustering, FitInfo, PrepareConfig
from taskscape.themes.health import Health
from taskscape.themes.prepare import Preparation

HEALTH = Health((0.5, 0.5), (0.7, 0.3), "tasks of held-out classes", 500, 212, 1, 0.7, 0, 4.0,
                None, ())  # fmt: skip


def finished() -> CoClustering:
    model = TaskThemes.paper(2, 2)
    model.fit_info_ = [
        FitInfo(t=8, tasks=2048, elbo=-3.0, done="the held-out bound no longer rises")
    ]
    model.elbo_history_ = np.array([[1024, -3.2], [2048, -3.125]])
    model.held_out_, model.health_ = HEALTH.tested_on, HEALTH
    model.preparation_ = Preparation(PrepareConfig(pca=None), np.zeros(3, np.float32), None, 1.0)
    return model


def test_the_end_says_on_what_the_fit_was_evaluated(capsys: pytest.CaptureFixture[str]):
    print_fit(finished(), "glyphs", Path("model"), as_json=False)
    prepared, learned, *health, model = capsys.readouterr().out.splitlines()
    assert prepared == f"prepared by: {PrepareConfig(pca=None).describe()}"
    for fact in ("2,048 tasks", "no longer rises", "tasks of held-out classes", "-3.1250 nats"):
        assert fact in learned
    assert "\n".join(health) == HEALTH.summary()
    assert model == "model: model"


def test_so_does_the_json(capsys: pytest.CaptureFixture[str]):
    print_fit(finished(), "glyphs", Path("model"), as_json=True)
    output = json.loads(capsys.readouterr().out)
    assert (output["held_out_elbo"], output["held_out"]) == (-3.125, "tasks of held-out classes")
    assert output["health"]["tested_on"] == "tasks of held-out classes"


def test_where_there_is_no_terminal_lines_say_how_it_gets_on(capsys: pytest.CaptureFixture[str]):
    say = fit_lines(quiet=False)
    say(FitInfo(t=1, tasks=256, elbo=-3.5), 0)
    say(FitInfo(t=2, tasks=512, elbo=-3.4, done="x"), 0)
    assert capsys.readouterr().err == "fit 1: 512 tasks, -3.400 nats per sample\n"
    assert fit_lines(quiet=True) is None


def test_much_compiling_is_told_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(display, "seconds_compiling", lambda: 12.34)
    display.say_time(time.monotonic() - 60)
    assert capsys.readouterr() == ("", "took 1 min 0 s, of which 12 s compiling\n")
    display.say_time(time.monotonic() - 60, quiet=True)
    monkeypatch.setattr(display, "seconds_compiling", lambda: 0.9)
    display.say_time(time.monotonic() - 60)
    assert capsys.readouterr() == ("", "")
