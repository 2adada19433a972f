"""The whole study in one call: from data to findings, stage by stage, resumable."""

from taskscape.studies.pipeline.config import PRESETS, StudyConfig, preset
from taskscape.studies.pipeline.reading import config_from, read_config, to_toml
from taskscape.studies.pipeline.run import open_study, run_study
from taskscape.studies.pipeline.stages import Silent, Watch

__all__ = [
    "PRESETS",
    "Silent",
    "StudyConfig",
    "Watch",
    "config_from",
    "open_study",
    "preset",
    "read_config",
    "run_study",
    "to_toml",
]
