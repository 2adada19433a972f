"""What a forecaster is given, read and checked before work starts."""

from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.compare.posteriors import check_together, read_lam
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.similarity import Similarity
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

__all__ = ["class_ids", "classes_known", "read_accuracy", "read_train"]


def read_train(
    model: TaskThemes, train: Any, similarity: Similarity | None = None
) -> Float[np.ndarray, "members tasks L"]:
    """λ of the training tasks, seen to be of this model."""
    if similarity is not None:
        if not isinstance(train, TaskSet):
            raise DataError(
                f"train is {type(train).__name__}; with a similarity it must be a TaskSet, to "
                "measure distances to."
            )
        train = model.transform(train)
    if isinstance(train, TaskSet):
        raise DataError("train must be embedded tasks or λ; pass model.transform(tasks).")
    header = getattr(train, "header", None)
    if header is not None and header.model and header.model != model.fingerprint_:
        raise DataError(
            f"train was embedded by another model (fingerprint {header.model[:12]}…, this one "
            f"{model.fingerprint_[:12]}…). Embed the training tasks with this model."
        )
    lam = read_lam(train, "train")
    like = np.ones((len(model.members_), 1, model.members_[0].L))
    check_together(lam, like, ("train", "the model"))
    return lam


def read_accuracy(accuracy: Any, n_tasks: int) -> Float[np.ndarray, "tasks episodes"]:
    """Accuracies as (tasks, episodes), of an array or an evaluation."""
    values = np.asarray(getattr(accuracy, "accuracy_by_episode", accuracy), dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != n_tasks or values.shape[1] == 0:
        raise DataError(
            f"accuracy has shape {np.shape(values)}; expected ({n_tasks},) or ({n_tasks}, "
            "episodes), a value for every task."
        )
    if not ((values >= 0) & (values <= 1)).all():
        bad = values[~((values >= 0) & (values <= 1))][0]
        raise DataError(f"accuracy holds {bad:g}; give fractions from 0 to 1, not percent.")
    if n_tasks == 0:
        raise DataError("there are no tasks.")
    return values


def class_ids(tasks: TaskSet) -> list[int]:
    return np.unique(tasks.classes[tasks.classes >= 0]).tolist()


def classes_known(train: Any) -> tuple[str, frozenset[int]]:
    if isinstance(train, TaskSet):
        return train.pool.fingerprint, frozenset(class_ids(train))
    if not isinstance(train, Embeddings):
        return "", frozenset()
    return train.header.fingerprint, frozenset(
        np.unique(train.classes[train.classes >= 0]).tolist()
    )
