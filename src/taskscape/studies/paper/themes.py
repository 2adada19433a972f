"""The model of each version, fitted once, and where tasks lie under it."""

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from taskscape.compare.means import TrainSummary, summarise
from taskscape.compare.posteriors import read_lam
from taskscape.pools import ClassPool
from taskscape.studies.lab import Store
from taskscape.studies.paper.plan import VERSIONS, Fig2Plan, SelectionPlan
from taskscape.tasks import TaskSet, sample_tasks, stream_tasks
from taskscape.themes.estimator import TaskThemes

__all__ = ["embedded", "fitted", "measured_from"]

_PIECE = 10_000
_PIECE_ON_ACCELERATORS = 100_000


def fitted(
    store: Store, pool: ClassPool, plan: Fig2Plan | SelectionPlan, version: str, seed: int
) -> TaskThemes:
    """The paper's model, L = 4 and K = 8, on 5–10-way 16-shot tasks of the training classes."""

    def fit(checkpoint: Any) -> TaskThemes:
        tasks = sample_tasks(
            pool, plan.fit_tasks, n_way=(5, 10), n_shot=16, split=plan.train_split, seed=seed
        )
        model = TaskThemes(4, 8, delta=0.5, random_state=seed, **VERSIONS[version])
        return model.fit(tasks, checkpoint=checkpoint, resume=checkpoint.exists())

    return store.model(f"{pool.name}-{version}-{plan.fit_tasks}-{seed}", fit)


def measured_from(
    store: Store, pool: ClassPool, plan: Fig2Plan, version: str, seed: int, *, finish: bool = True
) -> TrainSummary | None:
    """The training tasks that distances are measured from, with all labelled samples.

    Only their means are needed; each piece is kept, so that millions can be embedded in several
    goes. Without ``finish``, what there is so far, or None.
    """
    where = f"{pool.name}-{version}-{plan.fit_tasks}-{seed}-train/{plan.measured_from}"
    pieces, done = [], 0
    while done < plan.measured_from and (finish or store.has_arrays(f"{where}-{done}")):
        make = partial(_piece, store, pool, plan, version, seed, done)
        piece = store.arrays(f"{where}-{done}", make)
        pieces.append(piece)
        done += int(piece["n_tasks"])
    if not pieces:
        return None
    weights = np.array([int(p["n_tasks"]) for p in pieces])
    return TrainSummary(
        done,
        np.average([p["mean_lam"] for p in pieces], axis=0, weights=weights),
        np.average([p["mean_log_beta"] for p in pieces], axis=0, weights=weights),
    )


def _piece(
    store: Store, pool: ClassPool, plan: Fig2Plan, version: str, seed: int, start: int
) -> dict[str, np.ndarray]:
    model = fitted(store, pool, plan, version, seed)
    tasks = stream_tasks(
        pool, plan.measured_from, n_shot="all", split=plan.train_split, seed=seed + 1
    )
    size = _PIECE if jax.default_backend() == "cpu" else _PIECE_ON_ACCELERATORS
    summary = summarise(model.transform(tasks[start : min(start + size, plan.measured_from)]))
    return {
        "n_tasks": np.array(summary.n_tasks),
        "mean_lam": summary.mean_lam,
        "mean_log_beta": summary.mean_log_beta,
    }


def embedded(
    store: Store, model: TaskThemes, tasks: TaskSet, name: str
) -> Float[np.ndarray, "members tasks L"]:
    """λ of tasks, kept under a name."""
    lam = store.arrays(name, lambda: {"lam": model.transform(tasks).astype(np.float32)})["lam"]
    return read_lam(lam, name)
