"""Notions of similarity between tasks, behind one contract."""

from taskscape.similarity.distances import (
    DistanceSource,
    EmbeddingSource,
    KLSource,
    MatrixSource,
)
from taskscape.similarity.hardness import TaskHardness
from taskscape.similarity.registry import (
    SIMILARITIES,
    TASK_THEMES,
    KnownSimilarity,
    SimilarityLike,
    distances_between,
    fitted_to,
    make_similarity,
)
from taskscape.similarity.similarity import FeatureSimilarity, Similarity
from taskscape.similarity.task2vec import Task2Vec, Task2VecConfig
from taskscape.similarity.task_themes import ThemeSimilarity
from taskscape.similarity.transport import OTDD, PrototypeDistance

__all__ = [
    "OTDD",
    "SIMILARITIES",
    "TASK_THEMES",
    "DistanceSource",
    "EmbeddingSource",
    "FeatureSimilarity",
    "KLSource",
    "KnownSimilarity",
    "MatrixSource",
    "PrototypeDistance",
    "Similarity",
    "SimilarityLike",
    "Task2Vec",
    "Task2VecConfig",
    "TaskHardness",
    "ThemeSimilarity",
    "distances_between",
    "fitted_to",
    "make_similarity",
]
