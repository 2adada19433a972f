"""The probe network of Task2Vec: its training, and chunks of tasks through it."""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from taskscape.errors import DataError
from taskscape.meta import MAML, TrainConfig, Trained, mlp, train
from taskscape.meta.networks import MlpWeights
from taskscape.pools import ClassPool
from taskscape.similarity.features import classes_of
from taskscape.similarity.fisher import fisher_per_unit, fit_heads, hidden_layers
from taskscape.tasks import TaskSet, stream_tasks
from taskscape.themes.prepare import Preparation, all_rows

__all__ = [
    "LayerTable",
    "Layers",
    "Task2VecConfig",
    "averaged",
    "embed_chunk",
    "probe_layers",
    "train_probe",
]

_ROWS_AT_ONCE = 8192
_N_WAY, _N_SHOT, _N_QUERY = 5, 5, 15


@dataclass(frozen=True)
class Task2VecConfig:
    """How the probe looks and is trained, and how each task's classifier is fitted."""

    widths: tuple[int, ...] = (128, 128, 128)
    learner: MAML = field(default_factory=MAML)
    train: TrainConfig = field(default_factory=lambda: TrainConfig(updates=2000))
    l2: float = 1.0
    """Penalty on the classifier's weights, for features of mean square 1."""
    head_steps: int = 150

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise DataError(f"widths={self.widths} must be one or more sizes of at least 1.")
        if not self.l2 > 0:
            raise DataError(f"l2={self.l2} must be positive; without it weights grow for ever.")
        if self.head_steps < 1:
            raise DataError(f"head_steps={self.head_steps} must be at least 1.")


def train_probe(pool: ClassPool, config: Task2VecConfig, seed: int) -> Trained:
    """MAML on 5-way 5-shot tasks of the pool's classes, as far as it has them."""
    pool.require(_N_SHOT + 1, "training the probe")
    n_query = min(_N_QUERY, int(pool.counts.min()) - _N_SHOT)
    tasks = stream_tasks(
        pool, n_way=min(_N_WAY, len(pool)), n_shot=_N_SHOT, n_query=n_query, seed=seed
    )
    # inputs of mean square 1, whatever the preparation, so that one learning rate suits all
    scale = 1 / max(float(np.sqrt(np.mean(np.square(pool.samples, dtype=np.float64)))), 1e-12)
    network = mlp(pool.sample_shape[0], config.widths, scale)
    return train(config.learner, network, tasks, config.train, seed=seed)


class Layers(NamedTuple):
    """What the probe makes of samples; it does not depend on the task they are in."""

    squares: Float[Array, "*batch"]
    """Squared length of the input."""
    hidden: tuple[Float[Array, "*batch _"], ...]


@jax.jit
def probe_layers(probe: MlpWeights, x: Float[Array, "rows dims"]) -> Layers:
    x = probe.scale * x
    return Layers((x**2).sum(-1), hidden_layers(probe.weights[:-1], probe.biases[:-1], x))


class LayerTable:
    """The probe's layers for all samples of the tasks' classes, and where each row is."""

    def __init__(self, probe: MlpWeights, tasks: TaskSet, preparation: Preparation) -> None:
        rows = all_rows(tasks.pool, classes_of(tasks))
        self.where = np.full(len(tasks.pool.samples), -1, dtype=np.int32)
        self.where[rows] = np.arange(len(rows), dtype=np.int32)
        parts = []
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            x = preparation(tasks.pool.take(rows[start : start + _ROWS_AT_ONCE]))
            parts.append(probe_layers(probe, jnp.asarray(x)))
        self.layers: Layers = jax.tree.map(lambda *p: jnp.concatenate(p), *parts)


def averaged(
    units: tuple[Float[Array, "tasks _"], ...], per: str
) -> Float[np.ndarray, "tasks dims"]:
    layers = [np.asarray(u, dtype=np.float64) for u in units]
    if per == "layer":
        return np.stack([layer.mean(axis=1) for layer in layers], axis=1)
    return np.concatenate(layers, axis=1)


@partial(jax.jit, static_argnames="steps")
def embed_chunk(
    probe: MlpWeights,
    table: Layers,
    rows: Int[Array, "tasks way shot"] | Int[np.ndarray, "tasks way shot"],
    unit_scale: float | Float[Array, ""],
    l2: float | Float[Array, ""],
    steps: int,
) -> tuple[tuple[Float[Array, "tasks _"], ...], Float[Array, "tasks"]]:
    """Fisher information per unit of every layer, and the gradients of the heads."""
    tasks, way, shot = rows.shape
    class_mask: Bool[Array, "tasks way"] = jnp.asarray((rows >= 0).any(axis=2))
    flat = jnp.asarray(rows).reshape(tasks, way * shot)
    mask = flat >= 0
    layers = jax.tree.map(lambda t: t[jnp.maximum(flat, 0)], table)
    y = jax.nn.one_hot(jnp.repeat(jnp.arange(way), shot), way)
    f = layers.hidden[-1] / unit_scale * mask[..., None]
    head = fit_heads(f, y * mask[..., None], class_mask, l2, steps)
    units = fisher_per_unit(
        probe.weights[:-1], layers.squares, layers.hidden, head.weights / unit_scale,
        mask, class_mask,
    )  # fmt: skip
    return tuple(units), head.gradient
