"""Settings of a fit: refused before any work, with the reason."""

import re

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.themes import FitConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task_themes": 0}, "task_themes=0 must be at least 1."),
        ({"image_themes": -1}, "image_themes=-1 must be at least 1."),
        ({"delta": 0.0}, "delta=0.0 must be a finite number above 0."),
        ({"delta": float("nan")}, "delta=nan must be a finite number above 0."),
        ({"batch_size": 0}, "batch_size=0 must be at least 1."),
        ({"tol": 0.0}, "tol=0.0 must be a finite number above 0."),
        ({"max_iter": 0}, "max_iter=0 must be at least 1."),
        ({"max_passes": 0}, "max_passes=0 must be at least 1."),
        ({"evaluate_every": 0}, "evaluate_every=0 must be at least 1."),
        ({"patience": 0}, "patience=0 must be at least 1."),
        ({"nu_fraction": 0.0}, "nu_fraction=0.0 must be a finite number above 0."),
        ({"kappa": 0.0}, "kappa=0.0 must be a finite number above 0."),
        ({"max_tasks": 0}, "max_tasks=0 must be at least 1."),
        (
            {"tau1": 0.5},
            "tau1=0.5 must be a number above 0.5 and at most 1.",
        ),
        (
            {"tau0": -1.0},
            "tau0=-1.0 must be a finite number of at least 0.",
        ),
        (
            {"method": "batch", "update": "paper"},
            "update='paper' is an online rule; use method='online' with it.",
        ),
    ],
)
def test_settings_are_checked(settings: dict, message: str):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        FitConfig(**settings)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("task_themes", 2.5, "task_themes=2.5 must be a whole number."),
        ("batch_size", "16", "batch_size='16' must be a whole number."),
        ("method", "slow", "method='slow' is not known; use 'online' or 'batch'."),
        ("update", "other", "update='other' is not known; use 'statistics' or 'paper'."),
    ],
)
def test_types_are_checked_without_the_type_checker(name: str, value: object, message: str):
    config = FitConfig()
    object.__setattr__(config, name, value)
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        config.__post_init__()


def test_numbers_of_numpy_will_do():
    config = FitConfig()
    object.__setattr__(config, "task_themes", np.int64(3))
    config.__post_init__()
    assert hash(config) == hash(FitConfig(task_themes=3))
