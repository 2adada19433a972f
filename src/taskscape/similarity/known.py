"""The notions of similarity known by name: the only list of them.

What a notion needs is imported when it is first used.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from taskscape.errors import DataError

TASK_THEMES, TASK_MEANS, PROTOTYPES = "task_themes", "task_means", "prototypes"
IMAGE_THEMES = "image_themes"
"""The notion that is used where none is named."""
PROBE_SHOTS = 5
PROBE_SAMPLES = PROBE_SHOTS + 1
"""Samples that every class must have for the probe of Task2Vec to be trained."""


@dataclass(frozen=True)
class KnownSimilarity:
    """A notion of similarity that can be asked for by name."""

    maker: str
    """Where the function is that makes it: ``module:function``."""
    meaning: str
    needs: str = "tasks"
    """What it looks at, in words."""
    least_samples: int = 1
    """Samples that every training class must have."""
    source_of_embedded: str | None = None
    """Where the distances are between embeddings that come without a fitted similarity."""

    @property
    def make(self) -> Callable[[int, int | None], Any]:
        """From a seed, and the number of updates where a network is trained (None: the usual)."""
        return pkgutil.resolve_name(self.maker)

    @property
    def of_embedded(self) -> Callable[..., Any] | None:
        """Distances between embeddings of test and training tasks, given their scales."""
        place = self.source_of_embedded
        return None if place is None else pkgutil.resolve_name(place)


SIMILARITIES: Mapping[str, KnownSimilarity] = MappingProxyType(
    {
        TASK_THEMES: KnownSimilarity(
            "taskscape.similarity.registry:make_task_themes",
            "KL divergence between posteriors over task-themes",
            "a model of task-themes, or tasks to fit one to",
            source_of_embedded="taskscape.similarity.distances:KLSource",
        ),
        "task2vec": KnownSimilarity(
            "taskscape.similarity.registry:make_task2vec",
            "what a probe network needs to tell a task's classes apart: Fisher information",
            f"{PROBE_SAMPLES} samples of every training class, to train the probe",
            PROBE_SAMPLES,
        ),
        IMAGE_THEMES: KnownSimilarity(
            "taskscape.similarity.registry:make_image_themes",
            "KL divergence between posteriors over image-themes, and distance of mean positions",
            "nothing besides tasks",
        ),
        TASK_MEANS: KnownSimilarity(
            "taskscape.similarity.registry:make_task_means",
            "distance between the means of all samples",
            "nothing besides tasks",
        ),
        PROTOTYPES: KnownSimilarity(
            "taskscape.similarity.registry:make_prototypes",
            "distance between class means under their best assignment",
            "nothing besides tasks",
        ),
        "otdd": KnownSimilarity(
            "taskscape.similarity.registry:make_otdd",
            "optimal transport between classes taken as Gaussians",
            "a few samples of each class",
        ),
        "hardness": KnownSimilarity(
            "taskscape.similarity.registry:make_hardness",
            "difference in how likely a simple classifier errs within the task",
            "nothing besides tasks",
        ),
    }
)
"""Every notion of similarity by name; a new one is a line here."""


def find_similarity(name: str) -> KnownSimilarity:
    """The notion of that name."""
    if name not in SIMILARITIES:
        raise DataError(
            f"similarity={name!r} is not known; use one of {', '.join(SIMILARITIES)}, a fitted "
            "similarity, or distances."
        )
    return SIMILARITIES[name]
