"""Everything a study found, as one object: what the report shows and the results folder holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.compare import Resemblance
from taskscape.diagram import CorrelationDiagram
from taskscape.embeddings import Embeddings
from taskscape.forecast import Forecasts, Judgement
from taskscape.pools import ClassPool
from taskscape.studies.outcome import Gain, SelectionTrial
from taskscape.themes.estimator import TaskThemes

__all__ = ["StudyResult"]


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What :func:`taskscape.studies.run_study` found."""

    pool: ClassPool
    """The samples as they came, for pictures."""
    model: TaskThemes
    train: Embeddings
    test: Embeddings
    distance: Float[np.ndarray, "tests"]
    """Mean distance from each test task to all training tasks, by the study's similarity."""
    nearest: Int[np.ndarray, "tests k"]
    """Rows of ``train``: the nearest training tasks of each test task."""
    nearest_distance: Float[np.ndarray, "tests k"]
    difficulty: Float[np.ndarray, "tests"]
    """How hard each test task is in itself; more is harder."""
    accuracy: Mapping[str, Float[np.ndarray, "tests episodes"]]
    """By learner, the accuracy of each test task in each evaluation episode."""
    diagram: CorrelationDiagram | None
    selection: tuple[SelectionTrial, ...]
    forecasts: Mapping[str, Forecasts]
    """By learner, for the test tasks."""
    judgements: Mapping[str, Judgement]
    findings: tuple[str, ...]
    """The main findings, a sentence each."""
    settings: Mapping[str, Any]
    """The effective settings, plain values, nested by stage."""
    seed: int
    timings: Mapping[str, float]
    """Seconds by stage."""
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    command: str
    """What makes the same study again."""
    resemblance: Resemblance | None = None
    """How like the test tasks are to tasks of held-out classes; None where it cannot be told."""
    gains: tuple[Gain, ...] = ()
    """What every rule is worth against random choice."""
    notes: tuple[str, ...] = ()
    """What had to be decided or lowered to fit the data, in sentences."""
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By stage, what needs attention."""
