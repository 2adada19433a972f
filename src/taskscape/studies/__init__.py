"""Experiments: data in, result objects out."""

from taskscape.studies.pipeline import (
    StudyConfig,
    config_from,
    load_study,
    preset,
    read_config,
    run_study,
)
from taskscape.studies.result import StudyResult

__all__ = [
    "StudyConfig",
    "StudyResult",
    "config_from",
    "load_study",
    "preset",
    "read_config",
    "run_study",
]
