"""Settings of a study: presets, TOML, and every mistake by its whole message."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from meta_cases import toy_pool
from run_cases import TINY, tiny
from taskscape.cli.options import given_settings
from taskscape.errors import DataError
from taskscape.meta import LEARNERS, MAML
from taskscape.select import RULES
from taskscape.settings import changed, flags_of, setting, settings_in
from taskscape.similarity import SIMILARITIES
from taskscape.study import (
    PRESETS,
    StudyConfig,
    config_from,
    preset,
    read_config,
    to_toml,
)
from taskscape.study.config import TaskSettings
from taskscape.study.plan import check_config, make_plan


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_sound_and_survive_toml(name: str):
    config = preset(name, seed=3)
    check_config(config)
    assert config.preset == name
    assert config_from(tomllib.loads(to_toml(config))).to_dict() == config.to_dict()


def test_the_paper_preset_has_the_papers_sizes():
    paper = PRESETS["paper"]
    assert (paper.fit.task_themes, paper.fit.image_themes, paper.fit.delta) == (4, 8, 0.5)
    assert (paper.fit.n_way, paper.fit.n_shot) == ((5, 10), 16)
    assert paper.tasks.n_train == 1_000_000
    assert len(paper.learners.names) == 5
    assert paper.selection.budgets == (100, 500, 1000, 2000, 5000, 10_000)
    assert paper.selection.trials == 50


def test_a_file_changes_its_preset_and_only_what_it_names(tmp_path: Path):
    path = tmp_path / "study.toml"
    path.write_text(
        'preset = "quick"\nseed = 7\n[fit]\ndelta = 1\n[learners]\nnames = ["maml"]\n'
        "[learners.settings.maml]\ninner_steps = 2\n"
    )
    config = read_config(path)
    assert (config.preset, config.seed, config.fit.delta) == ("quick", 7, 1.0)
    assert isinstance(config.fit.delta, float)
    assert config.tasks == PRESETS["quick"].tasks
    assert config.learners.learner("maml") == (MAML(inner_steps=2), {})


def test_what_is_asked_of_a_learner_goes_before_its_start_and_that_before_its_class():
    asked = {"settings": {"maml": {"inner_steps": 2, "scale": 1.0}}, "names": ["maml"]}
    learners = make_plan(toy_pool(), tiny(learners=asked)).config.learners
    start = LEARNERS["maml"].start()
    assert learners.settings["maml"] == {**start, **asked["settings"]["maml"]}
    learner, rest = learners.learner("maml")
    assert learner == MAML(inner_rate=start["inner_rate"], inner_steps=2)
    assert rest == {"learning_rate": start["learning_rate"]}


def one_of(names: Iterable[str]) -> str:
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}"


OTHER_RULES = ", ".join(rule for rule in RULES if rule != "random")
WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"tasks": {"n_ways": 5}},
        "tasks.n_ways=5 is not a setting; did you mean tasks.n_way or tasks.n_val or tasks.n_test? "
        "There are tasks.n_way, tasks.n_shot, tasks.n_train, tasks.n_val, tasks.n_test, "
        "tasks.val_share, tasks.test_share, tasks.within_group.",
    ),
    ({"tasks": 5}, "tasks=5 must be a section, [tasks], with settings in it."),
    ({"seed": "one"}, "seed='one' must be a whole number."),
    ({"fit": {"delta": "small"}}, "fit.delta='small' must be a finite number above 0."),
    ({"fit": {"n_tasks": True}}, "fit.n_tasks=True must be a whole number."),
    ({"data": 3}, "data=3 must be text in quotes."),
    ({"forecast": {"enabled": 1}}, "forecast.enabled=1 must be True or False."),
    ({"fit": {"n_way": [5]}}, "fit.n_way=[5] must be a list of 2, such as [5, 10]."),
    ({"fit": {"n_way": 5}}, "fit.n_way=[5] must be a list of 2, such as [5, 10]."),
    (
        {"learners": {"settings": {"maml": 3}}},
        "learners.settings={'maml': 3} must have a table for each name, such as "
        "[learners.settings.maml] with inner_steps = 5 in it.",
    ),
    ({"preset": "large"}, "preset='large' is not known; use 'quick', 'default' or 'paper'."),
    ({"preset": 1}, "preset='1' is not known; use 'quick', 'default' or 'paper'."),
    ({"seed": -1}, "seed=-1 must be at least 0."),
    ({"tasks": {"n_way": 1}}, "tasks.n_way=1 must be at least 2."),
    ({"selection": {"trials": 1}}, "selection.trials=1 must be at least 2."),
    (
        {"tasks": {"val_share": 0.9}},
        "tasks.val_share=0.9 must be a number of at least 0 and at most 0.8.",
    ),
    (
        {"forecast": {"confidence": 1.0}},
        "forecast.confidence=1.0 must be a number of at least 0.5 and below 1.",
    ),
    ({"diagram": {"bins": "ten"}}, "diagram.bins='ten' is not known; use 'paper' or 'quantile'."),
    ({"learners": {"widths": [0]}}, "learners.widths=0 must be at least 1."),
    ({"selection": {"budgets": [0]}}, "selection.budgets=0 must be at least 1."),
]


@pytest.mark.parametrize(("values", "message"), WRONG, ids=lambda v: str(v)[:30])
def test_wrong_settings_are_named(values: dict[str, Any], message: str):
    with pytest.raises(DataError) as raised:
        config_from(values)
    assert str(raised.value) == message


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"fit": {"n_way": [9, 5]}}, "fit.n_way=[9, 5] must ascend."),
    (
        {"fit": {"prepare": "pcb=3"}},
        "fit.prepare='pcb=3': use auto, none, or some of edges=5,power=0.5,l2,centre,pca=32.",
    ),
    (
        {"learners": {"names": []}},
        "learners.names is empty; name at least one, such as ['protonet'].",
    ),
    ({"learners": {"names": ["maml", "maml"]}}, "learners.names=['maml', 'maml'] names one twice."),
    (
        {"learners": {"names": ["sgd"]}},
        f"learner='sgd' is not known; use {one_of(LEARNERS)}.",
    ),
    (
        {"learners": {"network": "resnet"}},
        "learners.network='resnet' is not known; use 'mlp' or 'conv4'.",
    ),
    (
        {"learners": {"settings": {"maml": {"inner_steps": "five"}}}},
        "learners.settings.maml.inner_steps='five' must be a whole number.",
    ),
    (
        {"selection": {"rules": ["random"]}},
        f"selection.rules: 'random' is not a rule; choose from {OTHER_RULES}, alone or with a "
        f"similarity measure as in 'nearest:task2vec' ({', '.join(SIMILARITIES)}). Random choice "
        "is always there, to compare with.",
    ),
    (
        {"selection": {"rules": ["nearest:kl"]}},
        f"selection.rules: 'nearest:kl' is not a rule; choose from {OTHER_RULES}, alone or with a "
        f"similarity measure as in 'nearest:task2vec' ({', '.join(SIMILARITIES)}).",
    ),
    (
        {"similarity": "kl"},
        f"similarity='kl' is not known; use one of {', '.join(SIMILARITIES)}, a fitted similarity, "
        "or distances.",
    ),
    (
        {"selection": {"budgets": []}},
        "selection.budgets is empty; give one, or empty selection.rules too.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), IMPOSSIBLE, ids=lambda v: str(v)[:30])
def test_impossible_settings_are_named_before_any_work(values: dict[str, Any], message: str):
    with pytest.raises(DataError) as raised:
        check_config(config_from(values))
    assert str(raised.value) == message


def test_unknown_settings_of_a_learner_are_named_with_the_known_ones():
    config = config_from({"learners": {"settings": {"maml": {"speed": 1}}}})
    with pytest.raises(DataError) as raised:
        check_config(config)
    assert str(raised.value).startswith(
        "learners.settings.maml.speed=1 is not a setting; maml has scale, first_order, "
        "inner_rate, inner_steps, clip_norm, fresh_samples, learning_rate"
    )


def test_unreadable_files_are_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"^no such file: .*nowhere\.toml\.$"):
        read_config(tmp_path / "nowhere.toml")
    (tmp_path / "bad.toml").write_text("seed = = 1")
    with pytest.raises(DataError, match=r"bad\.toml is not readable TOML: "):
        read_config(tmp_path / "bad.toml")


def test_every_setting_says_what_it_is_and_few_are_options():
    for name, of in settings_in(StudyConfig).items():
        assert of.metadata["help"], name
    flags = flags_of(StudyConfig)
    assert len(flags) <= 8
    assert flags["--n-shot"] == ["evaluate.n_shot", "selection.n_shot", "targets.n_shot"]


def test_a_setting_is_its_field_and_nothing_else():
    """One more field is checked, read, listed, an option of its command, and part of the hash."""

    @dataclass(frozen=True)
    class More(TaskSettings):
        colour: str = setting("red", "the colour of tasks", choices=("red", "blue"), flag="--hue")

    @dataclass(frozen=True)
    class Study(StudyConfig):
        tasks: More = field(default_factory=More)  # type: ignore[assignment]

    given, _ = given_settings(Study, {"hue": ["blue"]}, ["tasks.n_way=3"])
    study = changed(Study(), given)
    assert (study.tasks.colour, study.tasks.n_way) == ("blue", 3)
    with pytest.raises(DataError, match=r"^tasks.colour='green' is not known; use 'red' or 'blue'"):
        changed(study, {"tasks": {"colour": "green"}})
    tasks = {**TINY["tasks"], **given["tasks"]}
    plan = make_plan(toy_pool(), changed(Study(), {**TINY, "tasks": tasks}))
    assert plan.settings("tasks")["tasks.colour"] == "blue"


def test_settings_can_be_compared_and_replaced():
    assert StudyConfig() == preset("default")
    assert replace(preset("quick"), seed=1) == preset("quick", seed=1)
