"""Other notions of similarity between tasks, behind one interface."""

from taskscape.baselines.hardness import TaskHardness
from taskscape.baselines.otdd import OTDD
from taskscape.baselines.prototypes import PrototypeDistance
from taskscape.baselines.similarity import TaskDistances, TaskEmbedding, ThemeEmbedding
from taskscape.baselines.task2vec import Task2Vec, Task2VecConfig

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
