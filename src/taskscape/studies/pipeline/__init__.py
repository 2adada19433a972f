"""The whole study in one call: from data to findings, stage by stage, resumable."""

from taskscape.studies.pipeline.config import (
    PRESETS,
    StudyConfig,
    config_from,
    preset,
    read_config,
    to_toml,
)
from taskscape.studies.pipeline.run import load_study, run_study
from taskscape.studies.pipeline.stages import Listener

__all__ = [
    "PRESETS",
    "Listener",
    "StudyConfig",
    "config_from",
    "load_study",
    "preset",
    "read_config",
    "run_study",
    "to_toml",
]
