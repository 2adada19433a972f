"""The similarity measures known by name: the only list of them.

What a measure needs is imported when it is first used.
"""

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from taskscape.errors import DataError

THEMES, TASK_THEMES, IMAGE_THEMES, POSITION = "themes", "task_themes", "image_themes", "position"
TASK_MEANS, PROTOTYPES = "task_means", "prototypes"
DEFAULT_SIMILARITY = THEMES
"""The similarity measure that is used where none is named."""
PROBE_SHOTS = 5
PROBE_SAMPLES = PROBE_SHOTS + 1
"""Samples that every class must have for the probe of Task2Vec to be trained."""


@dataclass(frozen=True)
class KnownSimilarity:
    """A similarity measure that can be asked for by name."""

    where: str
    """Where its class is, or the model whose posteriors it compares: ``module:name``."""
    meaning: str
    needs: str = "tasks"
    """What it looks at, in words."""
    least_samples: int = 1
    """Samples that every training class must have."""
    factor: str | None = None
    """The factor of embedded tasks that it compares; empty for all of them, None where it compares
    no embedded tasks."""
    kind: str = "kl"
    """The divergence between them: an entry of ``DIVERGENCES``."""

    @property
    def measure(self) -> Any:
        """The class, or the model."""
        return pkgutil.resolve_name(self.where)


SIMILARITIES: Mapping[str, KnownSimilarity] = MappingProxyType(
    {
        THEMES: KnownSimilarity(
            "taskscape.themes:TaskThemes",
            "posteriors over image-themes, and positions in feature space",
            "nothing besides tasks",
            factor="",
        ),
        IMAGE_THEMES: KnownSimilarity(
            "taskscape.themes:TaskThemes",
            "KL divergence between posteriors over image-themes",
            "nothing besides tasks",
            factor=IMAGE_THEMES,
        ),
        POSITION: KnownSimilarity(
            "taskscape.themes:TaskThemes",
            "distance between mean positions in feature space",
            "nothing besides tasks",
            factor=POSITION,
        ),
        TASK_THEMES: KnownSimilarity(
            "taskscape.themes:TaskThemes.paper",
            "KL divergence between posteriors over task-themes: the paper's",
            "nothing besides tasks",
            factor=TASK_THEMES,
        ),
        "task2vec": KnownSimilarity(
            "taskscape.similarity.task2vec:Task2Vec",
            "what a probe network needs to tell a task's classes apart: Fisher information",
            f"{PROBE_SAMPLES} samples of every training class, to train the probe",
            PROBE_SAMPLES,
        ),
        TASK_MEANS: KnownSimilarity(
            "taskscape.similarity.transport:TaskMeans",
            "distance between the means of all samples",
            "nothing besides tasks",
        ),
        PROTOTYPES: KnownSimilarity(
            "taskscape.similarity.transport:PrototypeDistance",
            "distance between class means under their best assignment",
            "nothing besides tasks",
        ),
        "otdd": KnownSimilarity(
            "taskscape.similarity.transport:OTDD",
            "optimal transport between classes taken as Gaussians",
            "a few samples of each class",
        ),
        "hardness": KnownSimilarity(
            "taskscape.similarity.hardness:TaskHardness",
            "difference in how likely a simple classifier errs within the task",
            "nothing besides tasks",
        ),
    }
)
"""Every similarity measure by name; a new one is a line of it."""


def find_similarity(name: str) -> KnownSimilarity:
    """The similarity measure of that name, or ``NAME:DIVERGENCE``, such as ``themes:jeffreys``.

    Measures that compare embedded tasks take any entry of ``DIVERGENCES`` in place of KL.
    """
    measure, _, kind = name.partition(":") if isinstance(name, str) else ("", "", "")
    if measure not in SIMILARITIES:
        raise DataError(
            f"similarity={name!r} is not known; use one of {', '.join(SIMILARITIES)}, a fitted "
            "similarity, or distances."
        )
    known = SIMILARITIES[measure]
    if not kind:
        return known
    from taskscape.compare import DIVERGENCES  # slow to import

    able = DIVERGENCES if known.factor is not None else ()
    if kind not in able:
        raise DataError(
            f"similarity={name!r}: {measure} has no divergence {kind!r}; those it can take: "
            f"{', '.join(able) or 'none'}."
        )
    return replace(known, kind=kind)
