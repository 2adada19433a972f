"""How well a learner does on each of many tasks.

Tasks are evaluated in one compiled pass, batches of them side by side; what a task gets does not
depend on the batch it is in. Batches are as large as is useful, and halved where the device's
memory runs out. Products have the whole precision of float32, however the learner was trained,
unless another is asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped

from taskscape.arguments import MOST_FOR_JAX, Seed, check_choice, check_seed, check_whole, public
from taskscape.errors import DataError, TaskscapeError
from taskscape.meta.episodes import EpisodeRows, gather, rows_of
from taskscape.meta.learner import Learner, Number, Shots, with_numbers, without_numbers
from taskscape.meta.networks import PRECISIONS
from taskscape.progress import track
from taskscape.tasks import TaskSet

T = TypeVar("T")

BINS = 15
"""Equal-width bins of the confidence, from 0 to 1, that calibration errors are computed with."""
_TINY = 1e-12
_USEFUL = 1024
"""Tasks and trials side by side that fill an accelerator."""


class TaskScores(eqx.Module):
    """The scores of one episode; ``bins`` are sums over its queries by confidence."""

    accuracy: Float[Array | np.ndarray, "*batch"]
    log_likelihood: Float[Array | np.ndarray, "*batch"]
    bins: Float[Array | np.ndarray, "*batch 3 bins"]


@dataclass(frozen=True, repr=False)
class Evaluation:
    r"""Scores of every task, averaged over its episodes (other draws of its samples).

    ``calibration_error`` is the expected calibration error over the queries of all tasks together,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \lvert \mathrm{acc}_b - \mathrm{conf}_b \rvert

    over 15 equal-width bins b of the confidence (the largest probability); Guo et al. 2017.
    """

    accuracy: Float[np.ndarray, "tasks"]
    log_likelihood: Float[np.ndarray, "tasks"]
    calibration_error: float
    accuracy_by_episode: Float[np.ndarray, "tasks episodes"]

    def __repr__(self) -> str:
        tasks, episodes = self.accuracy_by_episode.shape
        return (
            f"Evaluation(tasks={tasks}, episodes={episodes}, accuracy={self.accuracy.mean():.4f})"
        )

    def summary(self) -> str:
        """The means over the tasks in words."""
        tasks, episodes = self.accuracy_by_episode.shape
        return (
            f"accuracy {100 * self.accuracy.mean():.2f} %, log-likelihood "
            f"{self.log_likelihood.mean():.3f}, calibration error "
            f"{self.calibration_error:.3f}, over {tasks:,} tasks in {episodes} episode(s)"
        )

    def to_dict(self) -> dict[str, float]:
        """Means over the tasks, for JSON."""
        return {
            "accuracy": float(self.accuracy.mean()),
            "log_likelihood": float(self.log_likelihood.mean()),
            "calibration_error": self.calibration_error,
        }


@public
def evaluate(
    learner: Learner,
    state: PyTree,
    tasks: TaskSet,
    *,
    seed: Seed = 0,
    episodes: int = 1,
    precision: str = "float32",
) -> Evaluation:
    """Adapt to the support of every task and score its queries.

    ``episodes`` evaluates each task that often with freshly drawn samples. Random learners draw
    from ``seed``. ``precision`` is that of the network, as in
    :class:`taskscape.meta.TrainConfig`.
    """
    states = jax.tree.map(lambda leaf: leaf[None], state)
    return evaluate_many(learner, states, tasks, seed=seed, episodes=episodes, precision=precision)[
        0
    ]


def evaluate_many(
    learner: Learner,
    states: PyTree,
    tasks: TaskSet,
    *,
    seed: Seed = 0,
    episodes: int = 1,
    precision: str = "float32",
) -> list[Evaluation]:
    """:func:`evaluate` for many trained states at once, stacked along a first axis."""
    trials = next((leaf.shape[0] for leaf in jax.tree.leaves(states)), 1)
    check_choice(precision, "precision", PRECISIONS)
    check_whole(episodes, "episodes", 1)
    if len(tasks) == 0:
        raise DataError("there are no tasks to evaluate.")
    first = check_seed(seed, most=MOST_FOR_JAX - episodes + 1)
    samples = jnp.asarray(tasks.pool.samples)
    scores = [
        score(learner, states, trials, samples, rows_of(tasks.redrawn(e)), first + e, precision)
        for e in track(range(episodes), "evaluating")
    ]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *scores)
    return [_summarise(jax.tree.map(lambda a, t=t: a[:, t], stacked)) for t in range(trials)]


def score(
    learner: Learner,
    states: PyTree,
    trials: int,
    samples: Shaped[Array, "rows *shape"],
    rows: EpisodeRows,
    seed: int,
    precision: str = "float32",
) -> TaskScores:
    """Scores of (trials, tasks): one compiled pass, for trained states stacked along an axis."""
    n = len(rows.support)
    fixed, numbers = without_numbers(learner)

    def in_batches(size: int) -> TaskScores:
        index = np.minimum(np.arange(-(-n // size) * size), n - 1)  # the last task fills up
        full = jax.tree.map(lambda r: r[index], rows)
        return _score_all(
            fixed, precision, trials, size, numbers, states, samples, full, index, seed
        )

    scores, _ = halved_until_it_fits(
        min(n, tasks_at_once(trials)),
        in_batches,
        f"evaluating tasks with {trials} trained state(s)",
        "Evaluate fewer states together, tasks with fewer samples, or a smaller network.",
    )
    return jax.tree.map(lambda a: a[:, :n], jax.device_get(scores))


def tasks_at_once(trials: int = 1) -> int:
    """The default number of tasks that are evaluated side by side, each with every trial."""
    return 16 if jax.default_backend() == "cpu" else min(256, max(16, _USEFUL // trials))


@partial(jax.jit, static_argnames=("learner", "precision", "trials", "size"))
def _score_all(
    learner: Learner,
    precision: str,
    trials: int,
    size: int,
    numbers: Mapping[str, Number],
    states: PyTree,
    samples: Shaped[Array, "rows *shape"],
    rows: EpisodeRows,
    index: Int[Array, "tasks"],
    seed: int | Int[Array, ""],
) -> TaskScores:
    learner, base = with_numbers(learner, numbers), jax.random.key(seed)
    products, dtype = PRECISIONS[precision]

    def one(state: PyTree, rows: EpisodeRows, index: Int[Array, ""]) -> TaskScores:
        inner, outer = jax.random.split(jax.random.fold_in(base, index))
        episode = gather(samples, rows, dtype)
        adapted = learner.adapt(state, episode.support, inner)
        return task_scores(learner.predict(adapted, episode.query, outer), episode.query)

    def of_trial(state: PyTree) -> TaskScores:
        return jax.lax.map(lambda task: one(state, *task), (rows, index), batch_size=size)

    with jax.default_matmul_precision(products):
        # the axis size is given because a state without weights has no axis to tell it
        return jax.vmap(of_trial, axis_size=trials)(states)


def task_scores(p: Float[Array, "n way"], query: Shots) -> TaskScores:
    """Accuracy and mean log-likelihood of one task's queries.

    By bin of the confidence, their number, and the sums of their confidence and of what is right.
    """
    weight = query.mask.astype(p.dtype)
    n = jnp.maximum(weight.sum(), 1)
    confidence, right = p.max(1), (p.argmax(1) == query.y).astype(p.dtype)
    own = jnp.take_along_axis(p, query.y[:, None], axis=1)[:, 0]
    bin_of = jnp.clip((confidence * BINS).astype(int), 0, BINS - 1)
    in_bin = jax.nn.one_hot(bin_of, BINS) * weight[:, None]
    bins = jnp.stack([in_bin.sum(0), confidence @ in_bin, right @ in_bin])
    return TaskScores(
        accuracy=(weight * right).sum() / n,
        log_likelihood=(weight * jnp.log(jnp.maximum(own, _TINY))).sum() / n,
        bins=bins,
    )


def _summarise(scores: TaskScores) -> Evaluation:
    """From scores (episodes, tasks) to means over the episodes."""
    bins = np.asarray(scores.bins, dtype=np.float64).sum((0, 1))
    return Evaluation(
        accuracy=np.asarray(scores.accuracy).mean(0),
        log_likelihood=np.asarray(scores.log_likelihood).mean(0),
        calibration_error=float(np.abs(bins[2] - bins[1]).sum() / bins[0].sum()),
        accuracy_by_episode=np.asarray(scores.accuracy).T,
    )


def halved_until_it_fits(
    size: int, run: Callable[[int], T], what: str, remedy: str
) -> tuple[T, int]:
    """What ``run(size)`` gives, with the size halved as often as memory runs out; and that size."""
    while True:
        try:
            return jax.block_until_ready(run(size)), size  # type: ignore[no-untyped-call]
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if size == 1:
                reason = str(error).splitlines()[0]
                raise TaskscapeError(
                    f"the device's memory is too small for {what}, even one at a time: {reason} "
                    f"{remedy}"
                ) from error
        size = (size + 1) // 2
