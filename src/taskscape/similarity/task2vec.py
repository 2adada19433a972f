"""Task2Vec: the Fisher information of a probe network's weights, for each task."""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from taskscape.arguments import Seed, check_choice, check_number, check_seed, check_whole
from taskscape.errors import DataError
from taskscape.meta import MAML, TrainConfig, Trained, mlp, train
from taskscape.meta.networks import Mlp, MlpWeights
from taskscape.pools import ClassPool
from taskscape.progress import progress_bar
from taskscape.similarity.known import PROBE_SAMPLES, PROBE_SHOTS
from taskscape.similarity.similarity import FeatureSimilarity, Rows, TaskVectors
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.prepare import Preparation, Prepare, PreparedSamples

_matmul = partial(jnp.matmul, precision="highest")
_CELLS_AT_ONCE = 1 << 21
"""Derivatives of a chunk of tasks: (tasks, samples, classes, units)."""
_NUMBERS_AT_ONCE = 1 << 18
"""Of two embeddings divided by each other: few enough for the processor's cache."""
_ROWS_AT_ONCE = 8192
_N_WAY, _N_QUERY = 5, 15
_NEVER = -1e9


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
        check_number(self.l2, "l2", 0, open_="low")  # without it weights grow for ever
        check_whole(self.head_steps, "head_steps", 1)


class Task2Vec(FeatureSimilarity):
    r"""How much each part of a probe network matters for a task.

    A classifier of the task's own is fitted on the probe's last layer, from the support samples;
    then the embedding is the diagonal of the Fisher information of the probe's weights

    .. math:: F_w = \frac1N \sum_n \sum_y p(y \mid x_n)
        \left(\frac{\partial \ln p(y \mid x_n)}{\partial w}\right)^2

    exactly, averaged over each layer (``per="layer"``, 3 numbers for 3 hidden layers: the paper's
    setting) or over each unit's incoming weights (``per="unit"``).

    The probe is a fully connected network trained by MAML on 5-way 5-shot tasks of the training
    tasks' classes.

    Achille et al. 2019, "Task2Vec: task embedding for meta-learning".

    Paper: the paragraphs on task selection, which use this as the baseline.

    Differs from the Task2Vec paper: the Fisher information is exact, not a variational
    approximation, as in the paper on similarity of tasks; the distance is their symmetric one.
    """

    cheap = True

    @classmethod
    def usual(cls, seed: int, updates: int | None) -> "Task2Vec":
        config = None if updates is None else Task2VecConfig(train=TrainConfig(updates=updates))
        return cls(config=config, seed=seed)

    def __init__(
        self,
        *,
        per: str = "layer",
        config: Task2VecConfig | None = None,
        prepare: Prepare = "auto",
        seed: Seed = 0,
    ) -> None:
        super().__init__(prepare=prepare)
        self.per = check_choice(per, "per", ("layer", "unit"))
        self.seed = check_seed(seed)
        self.config = config or Task2VecConfig()
        self.probe_: Trained | None = None

    def fit(self, tasks: TaskSet) -> "Task2Vec":
        """Learn the preparation, and train the probe on tasks of the training tasks' classes."""
        super().fit(tasks)
        assert self.preparation_ is not None
        pool = prepared_classes(tasks, self.preparation_)
        self.probe_ = train_probe(pool, self.config, self.seed)
        last = probe_layers(self.probe_.state, jnp.asarray(pool.samples)).hidden[-1]
        self._unit_scale = float(jnp.sqrt((last**2).mean()))
        if not self._unit_scale > 0:
            raise DataError(
                "no unit of the probe's last layer answers to any sample. Lower the learning "
                "rate in config.train, or try another seed."
            )
        return self

    def embed(self, tasks: TaskSet) -> TaskVectors:
        preparation = self._fitted(tasks)
        assert self.probe_ is not None
        where, layers = layers_of_samples(self.probe_.state, tasks, preparation)
        way, n = tasks.max_way, tasks.max_way * tasks.max_shot
        most = max(1, _CELLS_AT_ONCE // (n * way * max(self.config.widths)))
        # a power of two, so that calls with other numbers of tasks compile nothing
        size = min(256, most, 1 << (len(tasks) - 1).bit_length())
        vectors = []
        with progress_bar("embedding tasks", len(tasks)) as advance:
            for batch in tasks.batches(size):
                short = [(0, size - len(batch)), (0, 0), (0, 0)]
                rows = np.where(batch.support_mask, where[batch.support], -1)
                rows = np.pad(rows, short, constant_values=-1)
                units = embed_chunk(
                    self.probe_.state, layers, rows, self._unit_scale,
                    self.config.l2, self.config.head_steps,
                )  # fmt: skip
                parts = [np.asarray(u, dtype=np.float64)[: len(batch)] for u in units]
                if self.per == "layer":
                    parts = [u.mean(axis=1, keepdims=True) for u in parts]
                vectors.append(np.concatenate(parts, axis=1))
                advance(len(batch))
        return np.concatenate(vectors)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        step = max(1, _NUMBERS_AT_ONCE // b.size)

        def rows_of(part: slice) -> Float[np.ndarray, "some others"]:
            starts = range(part.start, part.stop, step)
            parts = [normalised_cosine(a[i : min(i + step, part.stop)], b) for i in starts]
            return np.concatenate(parts)

        return rows_of


def normalised_cosine(
    a: Float[np.ndarray, "tasks dims"], b: Float[np.ndarray, "others dims"]
) -> Float[np.ndarray, "tasks others"]:
    r"""Cosine distance of embeddings that are normalised by each other, weight by weight.

    .. math:: d = d_{\cos}\left(\frac{F_a}{F_a + F_b}, \frac{F_b}{F_a + F_b}\right)

    Large and small parts of the network then count alike. It is 0 between tasks whose Fisher
    information differs by a factor only.

    Achille et al. 2019, the symmetric distance.
    """
    total = a[:, None] + b[None]
    # a part that neither task needs counts as shared
    s = np.divide(a[:, None], total, out=np.full_like(total, 0.5), where=total > 0)
    t = 1 - s
    lengths = np.sqrt(np.einsum("abd,abd->ab", s, s) * np.einsum("abd,abd->ab", t, t))
    return np.clip(1 - np.einsum("abd,abd->ab", s, t) / np.maximum(lengths, 1e-300), 0.0, 1.0)


def prepared_classes(tasks: TaskSet, preparation: Preparation) -> ClassPool:
    """A pool of the tasks' classes whose samples are prepared features."""
    pool = tasks.pool
    rows = {c: pool.starts[c] + np.arange(pool.counts[c]) for c in tasks.class_ids}
    prepared = {pool.class_names[c]: preparation(pool.take(own)) for c, own in rows.items()}
    return ClassPool.from_classes(prepared, name=f"{pool.name} (prepared)")


def train_probe(pool: ClassPool, config: Task2VecConfig, seed: int) -> Trained:
    """MAML on 5-way 5-shot tasks of the pool's classes, as far as it has them."""
    pool.require(PROBE_SAMPLES, "training the probe")
    n_query = min(_N_QUERY, int(pool.counts.min()) - PROBE_SHOTS)
    n_way = min(_N_WAY, len(pool))
    tasks = sample_tasks(
        pool, n_way=n_way, n_shot=PROBE_SHOTS, n_query=n_query, seed=seed, stream=True
    )
    network = probe_network(pool.samples, config.widths)
    return train(config.learner, network, tasks, config.train, seed=seed)


def probe_network(x: Float[np.ndarray, "samples dims"], widths: tuple[int, ...]) -> Mlp:
    """The probe for features like these: inputs of mean square 1, whatever the preparation.

    One learning rate then suits all.
    """
    scale = 1 / max(float(np.sqrt(np.mean(np.square(x, dtype=np.float64)))), 1e-12)
    return mlp(x.shape[1], widths, scale)


class Layers(NamedTuple):
    """What the probe makes of samples; it does not depend on the task they are in."""

    squares: Float[Array, "*batch"]
    """Squared length of the input."""
    hidden: tuple[Float[Array, "*batch _"], ...]


@jax.jit
def probe_layers(probe: MlpWeights, x: Float[Array, "rows dims"]) -> Layers:
    x = probe.scale * x
    return Layers((x**2).sum(-1), hidden_layers(probe.weights[:-1], probe.biases[:-1], x))


def layers_of_samples(
    probe: MlpWeights, tasks: TaskSet, preparation: Preparation
) -> tuple[Int[np.ndarray, "samples"], Layers]:
    """Where each sample of the tasks' classes is, and the probe's layers for all of them."""
    prepared, parts = PreparedSamples(tasks.pool, preparation, tasks.class_ids), []
    for start in range(0, len(prepared.rows), _ROWS_AT_ONCE):
        x = prepared.take(prepared.rows[start : start + _ROWS_AT_ONCE])
        parts.append(probe_layers(probe, jnp.asarray(x)))
    return prepared.where, jax.tree.map(lambda *p: jnp.concatenate(p), *parts)


@partial(jax.jit, static_argnames="steps")
def embed_chunk(
    probe: MlpWeights,
    table: Layers,
    rows: Int[Array, "tasks way shot"] | Int[np.ndarray, "tasks way shot"],
    unit_scale: float | Float[Array, ""],
    l2: float | Float[Array, ""],
    steps: int,
) -> list[Float[Array, "tasks _"]]:
    """Fisher information per unit of every layer."""
    tasks, way, shot = rows.shape
    class_mask: Bool[Array, "tasks way"] = jnp.asarray((rows >= 0).any(axis=2))
    flat = jnp.asarray(rows).reshape(tasks, way * shot)
    mask = flat >= 0
    layers = jax.tree.map(lambda t: t[jnp.maximum(flat, 0)], table)
    y = jax.nn.one_hot(jnp.repeat(jnp.arange(way), shot), way)
    f = layers.hidden[-1] / unit_scale * mask[..., None]
    head = fit_heads(f, y * mask[..., None], class_mask, l2, steps)
    return fisher_per_unit(
        probe.weights[:-1], layers.squares, layers.hidden, head / unit_scale, mask, class_mask
    )


# -- a classifier and its Fisher information ----------------------------------------------------


def hidden_layers(
    weights: tuple[Float[Array, "_ _"], ...],
    biases: tuple[Float[Array, "_"], ...],
    x: Float[Array, "*batch dims"],
) -> tuple[Float[Array, "*batch _"], ...]:
    """The output of every ReLU layer."""
    layers = []
    for W, b in zip(weights, biases, strict=True):
        x = jax.nn.relu(jnp.matmul(x, W, precision="highest") + b)
        layers.append(x)
    return tuple(layers)


def fit_heads(
    f: Float[Array, "tasks n width"],
    targets: Float[Array, "tasks n way"],
    class_mask: Bool[Array, "tasks way"],
    l2: float | Float[Array, ""],
    steps: int,
) -> Float[Array, "tasks width way"]:
    r"""Multinomial logistic regression of every task, by accelerated steps on a fixed bound.

    .. math:: \min_V -\sum_n \ln p_V(y_n \mid f_n) + \tfrac{l}{2} \lVert V \rVert^2, \quad
        p_V(\cdot \mid f) = \mathrm{softmax}(V^\top f)

    The Hessian is never above :math:`\tfrac12 F^\top F + l` (Böhning 1992), so steps by its inverse
    descend, and the inverse is needed once. Nesterov's momentum, reset where it points uphill,
    speeds them up. With fewer samples than features the same steps are taken on A, where
    :math:`V = F^\top A`. Padded samples have features and targets of zero.
    """
    n, width = f.shape[1:]
    real = targets.sum(axis=2, keepdims=True)
    dual = n <= width
    gram = _matmul(f, f.mT) if dual else _matmul(f.mT, f)
    push = gram if dual else f
    inverse = jnp.linalg.inv(gram / 2 + l2 * jnp.eye(gram.shape[-1]))

    def slope(theta: Float[Array, "tasks rank way"]) -> Float[Array, "tasks rank way"]:
        logits = jnp.where(class_mask[:, None], _matmul(push, theta), _NEVER)
        left = real * jax.nn.softmax(logits) - targets
        return (left if dual else _matmul(f.mT, left)) + l2 * theta

    Carry = tuple[Array, Array, Array]

    def step(carry: Carry, _: None) -> tuple[Carry, None]:
        theta, ahead, age = carry
        g = slope(ahead)
        new = ahead - _matmul(inverse, g)
        # uphill, measured in the space of V where the objective lives
        moved = new - theta
        inner = (g * (_matmul(gram, moved) if dual else moved)).sum((1, 2), keepdims=True)
        age = jnp.where(inner > 0, 0.0, age + 1)
        return (new, new + age / (age + 3) * moved, age), None

    zero = jnp.zeros((*f.shape[:1], gram.shape[-1], targets.shape[2]))
    start = (zero, zero, jnp.zeros((len(f), 1, 1)))
    theta = jax.lax.scan(step, start, length=steps)[0][0]
    return _matmul(f.mT, theta) if dual else theta


def fisher_per_unit(
    weights: tuple[Float[Array, "_ _"], ...],
    squares: Float[Array, "tasks n"],
    layers: tuple[Float[Array, "tasks n _"], ...],
    head: Float[Array, "tasks width way"],
    mask: Bool[Array, "tasks n"],
    class_mask: Bool[Array, "tasks way"],
) -> list[Float[Array, "tasks _"]]:
    r"""The Fisher information's diagonal, averaged over the weights and the bias of each unit.

    .. math:: F_w = \frac1N \sum_n \sum_y p(y \mid x_n)
        \left(\frac{\partial \ln p(y \mid x_n)}{\partial w}\right)^2

    over the model's own predictions. With :math:`g_{ny}` the derivative of logit y by the input of
    unit j, that is for weight (i, j) of a layer with inputs h

    .. math:: F_{ij} = \frac1N \sum_n h_{ni}^2 e_{nj}, \quad
        e_{nj} = \sum_y p_{ny} \Bigl(g_{ny} - \sum_k p_{nk} g_{nk}\Bigr)^2

    and on average

    .. math:: F_j = \frac1N \sum_n e_{nj} \frac{1 + \sum_i h_{ni}^2}{1 + I}

    The average needs no matrix of the layer's size, and of the first layer's inputs only their
    squared lengths, ``squares``.
    """
    logits = jnp.where(class_mask[:, None], _matmul(layers[-1], head), _NEVER)
    p = jax.nn.softmax(logits) * mask[..., None]
    lengths = [squares, *((h**2).sum(-1) for h in layers[:-1])]
    count = jnp.maximum(mask.sum(1), 1)[:, None]
    # (tasks, n, way, width): derivatives of all logits by the last layer's input
    g = head.mT[:, None] * (layers[-1] > 0)[:, :, None]
    units = []
    for i in range(len(weights) - 1, -1, -1):
        centred = g - jnp.einsum("tny,tnyw->tnw", p, g)[:, :, None]
        e = jnp.einsum("tny,tnyw->tnw", p, centred**2)
        units.append(jnp.einsum("tn,tnw->tw", 1 + lengths[i], e) / (1 + len(weights[i])) / count)
        if i:
            g = jnp.matmul(g, weights[i].T, precision="highest") * (layers[i - 1] > 0)[:, :, None]
    return units[::-1]
