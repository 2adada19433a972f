"""The command ``run``: what it prints, how options and files go together, and Ctrl-C."""

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from meta_cases import DIMS, toy_pool
from pool_files import png
from run_cases import tiny
from taskscape.cli import app, display
from taskscape.cli.display import StudyDisplay
from taskscape.cli.options import given_settings, one_source
from taskscape.cli.run import settings
from taskscape.errors import DataError
from taskscape.study import PRESETS, StudyConfig, learn, to_toml


def invoke(*args: object) -> Result:
    return CliRunner().invoke(app, ["run", *(str(a) for a in args)], catch_exceptions=False)


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A folder of class folders of small pictures, without splits."""
    rng = np.random.default_rng(0)
    for c in range(30):
        pattern = rng.integers(0, 200, (8, 8))
        for i in range(9):
            pixels = (pattern + rng.integers(0, 56, (8, 8))).astype(np.uint8)
            path = tmp_path / "pictures" / f"class{c:02}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(pixels))
    return tmp_path / "pictures"


@pytest.fixture
def study(tmp_path: Path, own_data: Path) -> Path:
    path = tmp_path / "study.toml"
    config = tiny(fit={"prepare": f"centre,pca={DIMS}"}, selection={"n_shot": 2, "budgets": [8]})
    path.write_text(to_toml(replace(config, data=str(own_data))))
    return path


@pytest.mark.slow
def test_interrupted_it_says_how_to_resume_and_ends_with_the_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    toy_pool().save(tmp_path / "pool")  # of one size with other tests, to be compiled once
    study = tmp_path / "toy.toml"
    study.write_text(to_toml(replace(tiny(), data=str(tmp_path / "pool"))))

    def fail(*args: object, **rest: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(learn, "correlation_diagram", fail)
        broken = invoke("--config", study, "--out", out)
    assert broken.exit_code == 130
    assert "interrupted; 6 finished stages are kept in" in broken.stderr
    assert f"taskscape run --config {study} --out {out} --resume" in broken.stderr
    done = invoke("--config", study, "--out", out, "--resume")
    assert done.exit_code == 0, done.output
    assert "fit themes: done before" in done.stderr
    assert "tasks.n_train was lowered from 60 to 56" in done.stderr
    numbered = [line[:3] for line in done.stdout.splitlines() if line[1:2] == "."]
    assert numbered == [f"{n}. " for n in range(1, 7)]
    assert "Read these remarks first:\n! " in done.stdout  # of so small a study
    assert done.stdout.rstrip().endswith(str(out / "report.html"))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "ProtoNet" in page
    output = json.loads((out / "study.json").read_text())
    assert output["command"] == f"taskscape run --config {study} --out {out}"
    again = invoke("--config", study, "--out", out, "--resume", "--json")
    findings = json.loads(again.stdout)["findings"]
    assert findings == json.loads((out / "results.json").read_text())["findings"]
    assert again.stderr == ""


@pytest.mark.slow
def test_a_study_that_breaks_off_keeps_what_it_has(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*args: object, **rest: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("taskscape.study.represent.difficulty", fail)
    with pytest.raises(OSError, match="no space left"):
        invoke("--config", study, "--out", tmp_path / "out")
    kept = {p.name for p in (tmp_path / "out").iterdir()} - {".lock"}
    assert kept == {"data", "embed", "fit", "health", "study.toml"}


def test_options_go_before_the_file_and_the_file_before_the_preset(study: Path):
    flags = {"learners": ["maml, protonet"], "seed": ["3"], "data": ["a", "2024"], "n_way": None}
    given, typed = given_settings(StudyConfig, flags, ["selection.budgets=5,7"])
    assert typed == shlex.split(
        "--data a --data 2024 --seed 3 --learners 'maml, protonet' --set selection.budgets=5,7"
    )
    built = settings(None, study, given)
    assert built.learners.names == ("maml", "protonet")
    assert (built.selection.budgets, built.seed, built.data) == ((5, 7), 3, "a+2024")
    assert built.tasks == tiny().tasks
    assert settings("quick", None, {"data": "other"}) == replace(PRESETS["quick"], data="other")
    assert settings(None, None, {}) == PRESETS["default"]


def test_options_that_take_a_list_are_repeated_or_have_commas():
    for typed in (["a", "b, c"], ['["a", "b, c"]']):
        given = given_settings(StudyConfig, {"target": typed}, None)[0]
        assert settings(None, None, given).targets.names == ("a", "b, c")
    given = given_settings(StudyConfig, {"target": ["a,b"]}, ["learners.settings.maml.scale=2"])[0]
    built = settings(None, None, given)
    assert (built.targets.names, built.learners.settings) == (("a", "b"), {"maml": {"scale": 2}})
    given = given_settings(StudyConfig, {"target": ["2024"]})[0]  # a group may be called so
    assert settings(None, None, given).targets.names == ("2024",)


def test_what_one_always_changes_has_options(
    study: Path, own_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def remember(pool: None, config: StudyConfig, out: Path, **rest: object) -> None:
        asked.extend([config, rest["command"]])
        raise DataError("enough")

    monkeypatch.setattr("taskscape.study.run_study", remember)
    values = ["image_size=6", "min_samples=5", "skip_damaged=true", "encoder=my:net"]
    values += [f"split_file={tmp_path / 's.csv'}", f"group_file={tmp_path / 'g.csv'}"]
    options = ["--seed", 3, "--n-way", 4, "--n-shot", 2, "--set", "tasks.within_group=true"]
    options += [word for value in values for word in ("--set", f"source.{value}")]
    with pytest.raises(DataError, match="enough"):
        invoke("--config", study, *options, "--out", tmp_path / "out")
    config, command = asked
    assert config.tasks.n_way == 4
    assert [config.evaluate.n_shot, config.selection.n_shot, config.targets.n_shot] == [2] * 3
    assert config.tasks.within_group
    assert config.source.options() == {
        "image_size": 6, "min_samples": 5, "skip_damaged": True, "encoder": "my:net",
        "splits": str(tmp_path / "s.csv"), "groups": str(tmp_path / "g.csv"),
    }  # fmt: skip
    words = " ".join(map(str, options))
    assert command == f"taskscape run {words} --config {study} --out {tmp_path / 'out'}"


def test_wrong_options_are_named():
    with pytest.raises(DataError) as raised:
        settings("huge", None, {})
    assert str(raised.value) == "preset='huge' is not known; use 'quick', 'default' or 'paper'."
    with pytest.raises(DataError, match=r"^selection.budgets='many' must be a whole number\.$"):
        invoke("--set", "selection.budgets=many", "--out", "nowhere")
    with pytest.raises(DataError, match=r"^budgets=5 is not .* did you mean selection.budgets\?"):
        invoke("--set", "budgets=5", "--out", "nowhere")
    with pytest.raises(DataError, match=r"^tasks.n_way='five' must be a whole number\.$"):
        invoke("--n-way", "five", "--out", "nowhere")
    with pytest.raises(DataError, match=r"^learner='sgd' is not known; use "):
        invoke("--learners", "sgd", "--out", "nowhere")
    assert not Path("nowhere").exists()


def test_help_has_an_example():
    assert "Example:" in invoke("--help").stdout


def test_the_display_shows_what_is_done_and_what_is_being_done():
    live = StudyDisplay(quiet=True)
    live.plan([("data", "look at the data"), ("fit", "fit task-themes")], ())
    live.begin("data")
    live.end("data", 1.23, False)
    live.begin("fit")
    live.advance(0.5, "fitting")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(live.bars.get_renderable())
    text = console.export_text()
    for words in ("✓ look at the data", "1.2 s", "▸ fit task-themes", "fitting", "0:00:0"):
        assert words in text
    assert "write the report" in text


def test_seconds_of_compiling_are_told_by_stage_and_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = iter([0.5, 8.0, 8.0, 8.2, 8.2])
    monkeypatch.setattr(display, "seconds_compiling", lambda: next(compiled))
    with StudyDisplay() as live:
        live.plan([("data", "look at the data"), ("fit", "fit task-themes")], ())
        for stage in ("fit", "data"):
            live.begin(stage)
            live.end(stage, 9.0, False)
    first, second, last = capsys.readouterr().err.splitlines()
    assert first == "[1/3] fit task-themes: 9.0 s, of which 7.5 s compiling"
    assert second == "[2/3] look at the data: 9.0 s"
    assert last.endswith(", of which 8.2 s compiling")


def test_what_the_docs_type_is_understood():
    root = Path(__file__).parents[3]
    pages = [(root / page).read_text(encoding="utf-8") for page in ("README.md", "docs/run.md")]
    typed = [line for page in pages for line in page.splitlines() if "    taskscape run" in line]
    lines = [line.split("#")[0].split() for line in typed]
    options = {word for words in lines for word in words if word.startswith("--")}
    text = invoke("--help").stdout
    assert len(lines) >= 4
    assert all(option.strip("`:") in text for option in options)


def test_data_given_several_times_are_one_source():
    assert one_source(None) is None
    assert one_source(["letters", "omniglot"]) == "letters+omniglot"
    with pytest.raises(DataError, match=r"^source='nowhere.npz' is neither a known data set"):
        invoke("--data", "nowhere.npz", "--data", "letters")
