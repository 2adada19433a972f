"""Experiments: data in, result objects out."""

from taskscape.studies.pipeline import StudyConfig, config_from, preset, read_config, run_study

__all__ = ["StudyConfig", "config_from", "preset", "read_config", "run_study"]
