"""What ``taskscape doctor`` says of this machine, and of one where something is wrong."""

import json
from importlib import metadata

import pytest
from typer.testing import CliRunner

from taskscape.cli import app, doctor


def run(*words):
    return CliRunner().invoke(app, ["doctor", *words], catch_exceptions=False)


@pytest.mark.slow
def test_a_machine_that_passes_the_tests_is_ready():
    result = run("--json")
    report = json.loads(result.output)
    assert report["ready"], report
    assert result.exit_code == 0
    results = {check["name"]: check["found"] for check in report["checks"]}
    assert "jax" in results["versions"]
    assert "processor cores" in results["devices"]
    assert "glyphs" in results["data"]
    assert "told apart" in results["small run"]


def test_all_that_is_wrong_is_named_and_the_rest_is_still_looked_at(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TASKSCAPE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=1", "jax>=99", "no-such>=1"])
    monkeypatch.setattr(doctor, "_two_kinds_are_apart", lambda: False)
    result = run()
    words = " ".join(result.output.replace("│", " ").split())
    assert result.exit_code == 1
    assert "jax" in words
    assert "not >=99" in words
    assert "no-such is missing" in words
    assert "TASKSCAPE_CACHE" in words
    assert "tasks of two kinds were not told apart" in words
    assert "Not ready: versions, data, small run" in words
    assert "processor cores" in words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_had_for_the_usual_shells(shell):
    asked = {"_TASKSCAPE_COMPLETE": f"source_{shell}"}
    result = CliRunner().invoke(app, [], prog_name="taskscape", env=asked)
    assert "_TASKSCAPE_COMPLETE" in result.output
