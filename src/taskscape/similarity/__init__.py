"""Other notions of similarity between tasks, behind one interface."""

from taskscape.similarity.hardness import TaskHardness
from taskscape.similarity.otdd import OTDD
from taskscape.similarity.prototypes import PrototypeDistance
from taskscape.similarity.similarity import TaskDistances, TaskEmbedding, ThemeEmbedding
from taskscape.similarity.task2vec import Task2Vec, Task2VecConfig

__all__ = [
    "OTDD",
    "PrototypeDistance",
    "Task2Vec",
    "Task2VecConfig",
    "TaskDistances",
    "TaskEmbedding",
    "TaskHardness",
    "ThemeEmbedding",
]
