"""The registry of learners: what commands, messages and figures are made from."""

import pytest

from taskscape.errors import DataError
from taskscape.meta import LEARNERS, MAML, label_of, learner_and_training, make_learner


def test_entries_are_found_by_their_names() -> None:
    for name, entry in LEARNERS.items():
        assert entry.name == name
        assert type(make_learner(name)) is entry.kind
        assert label_of(name) == entry.label
        assert label_of(f"{name}-untuned") == f"{entry.label}, untuned"
        for samples in ("features", "components", "images"):
            learner_and_training(name, entry.start(samples))  # all of them are settings
        assert all(len(entry.start(samples)) for samples in ("features", "components"))
        learner_and_training(name, {setting: tried[0] for setting, tried in entry.grid.items()})


def test_unknown_learners_and_settings_are_told_what_there_is() -> None:
    with pytest.raises(DataError, match="learner='sgd' is not known; use 'protonet', "):
        make_learner("sgd")
    with pytest.raises(DataError, match=r"maml.speed=1 is not a setting.*maml.first_order"):
        make_learner("maml", speed=1)


def test_settings_are_split_between_learner_and_training() -> None:
    learner, rest = learner_and_training("maml", {"inner_steps": 2, "learning_rate": 0.1})
    assert learner == MAML(inner_steps=2)
    assert rest == {"learning_rate": 0.1}
    with pytest.raises(DataError, match="speed=1 is not a setting; maml has scale, "):
        learner_and_training("maml", {"speed": 1})
    with pytest.raises(DataError, match="learner='sgd' is not known; use 'protonet', "):
        learner_and_training("sgd", {})
