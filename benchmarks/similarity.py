"""Similarity measures: tasks embedded per second and pairs compared per second.

    python benchmarks/similarity.py --out benchmarks/results/similarity.json

The peer of Task2Vec is a plain loop over tasks with the same mathematics: scikit-learn fits the
classifier, automatic differentiation gives the gradient of every sample and label. The peers of
the others are loops over pairs of tasks with SciPy.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from record import keep, parser, peak_gigabytes, seconds
from scipy.linalg import sqrtm
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression

from taskscape import ClassPool, TaskSet, sample_tasks
from taskscape.meta import TrainConfig
from taskscape.similarity import OTDD, PrototypeDistance, Task2Vec, Task2VecConfig, TaskHardness

CLASSES, SAMPLES, WAY, SHOT = 64, 200, 5, 5


def features(dims: int, seed: int) -> ClassPool:
    """Classes as clouds in a low-dimensional part of the space, as network features are."""
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(CLASSES, 1, 16)) @ rng.normal(size=(16, dims)) / 4
    X = (places + rng.normal(size=(CLASSES, SAMPLES, dims))).astype(np.float32)
    return ClassPool.from_arrays(X.reshape(-1, dims), np.repeat(np.arange(CLASSES), SAMPLES))


def task2vec(pool: ClassPool, n_tasks: int, n_loop: int, seed: int) -> dict[str, float]:
    """Tasks per second, compiled before, against the loop."""
    train = sample_tasks(pool, 200, seed=seed)
    config = Task2VecConfig(train=TrainConfig(updates=100))
    measure = Task2Vec(config=config, prepare=None, seed=seed)
    fitting = seconds(lambda: measure.fit(train))
    tasks = sample_tasks(pool, n_tasks, n_way=WAY, n_shot=SHOT, seed=seed + 1)
    measure.embed(tasks[:256])
    kept: dict[str, np.ndarray] = {}
    ours = seconds(lambda: kept.update(ours=measure.embed(tasks)))
    few = tasks[:n_loop]
    loop = _loop(measure, few)
    loop(few[:1])
    peer = seconds(lambda: kept.update(peer=loop(few)))
    worst = np.abs(kept["ours"][: len(few)] / kept["peer"] - 1).max()
    return {
        "tasks_per_second": n_tasks / ours,
        "tasks_per_second_of_the_plain_loop": len(few) / peer,
        "ratio": n_tasks / ours * peer / len(few),
        "largest_relative_difference_from_the_loop": float(worst),
        "seconds_to_train_the_probe_100_updates": fitting,
        "peak_gigabytes": peak_gigabytes(),
    }


def _loop(measure: Task2Vec, tasks: TaskSet) -> Callable[[TaskSet], np.ndarray]:
    """Task by task, sample by sample, label by label."""
    assert measure.probe_ is not None
    assert measure.preparation_ is not None
    probe = measure.probe_.state
    n_hidden = len(probe.weights) - 1
    y = np.repeat(np.arange(WAY), SHOT)

    def hidden(weights: Any, x: jax.Array) -> jax.Array:
        h = probe.scale * x
        for W, b in zip(*weights, strict=True):
            h = jax.nn.relu(h @ W + b)
        return h

    def log_p(weights: Any, head: jax.Array, x: jax.Array, label: int) -> jax.Array:
        return jax.nn.log_softmax(hidden(weights, x) @ head)[label]

    answer = jax.jit(hidden)
    gradient = jax.jit(jax.value_and_grad(log_p))
    weights = (probe.weights[:n_hidden], probe.biases[:n_hidden])
    sizes = [W.size + b.size for W, b in zip(*weights, strict=True)]

    def one(x: np.ndarray) -> np.ndarray:
        f = np.asarray(answer(weights, x)) / measure._unit_scale
        peer = LogisticRegression(C=1 / measure.config.l2, fit_intercept=False, tol=1e-6)
        head = jnp.asarray(peer.fit(f, y).coef_.T / measure._unit_scale, jnp.float32)
        total = np.zeros(n_hidden)
        for sample in x:
            for label in range(WAY):
                value, (dW, db) = gradient(weights, head, sample, label)
                p = np.exp(float(value)) / len(x)
                squares = [float((W**2).sum() + (b**2).sum()) for W, b in zip(dW, db, strict=True)]
                total += p * np.array(squares) / sizes
        return total

    def run(part: TaskSet) -> np.ndarray:
        x = next(part.episodes(len(part))).support
        return np.stack([one(task.reshape(WAY * SHOT, -1)) for task in x])

    return run


def pairs(
    measure: Any, peer: Any, pool: ClassPool, n: int, few: int, seed: int
) -> dict[str, float]:
    """Pairs of tasks per second, against a loop over pairs of the same embeddings."""
    tasks = sample_tasks(pool, n, n_way=WAY, n_shot=SHOT, seed=seed)
    embedded = measure.fit(tasks).embed(tasks)
    kept: dict[str, Any] = {}
    ours = seconds(lambda: kept.update(ours=measure.cdist(embedded, embedded)))
    part = embedded[:few]
    theirs = seconds(lambda: kept.update(peer=[[peer(a, b) for b in part] for a in part]))
    worst = np.abs(kept["ours"][:few, :few] - np.array(kept["peer"])).max()
    return {
        "pairs_per_second": n**2 / ours,
        "pairs_per_second_of_the_plain_loop": few**2 / theirs,
        "ratio": n**2 / ours * theirs / few**2,
        "largest_difference_from_the_loop": float(worst),
    }


def _prototypes(a: np.ndarray, b: np.ndarray) -> float:
    squares = cdist(a, b, "sqeuclidean")
    return float(np.sqrt(squares[linear_sum_assignment(squares)].mean()))


def _classes(a: np.ndarray, b: np.ndarray) -> float:
    costs = np.array([[_bures(x, y) for y in b] for x in a])
    return float(np.sqrt(2 * max(costs[linear_sum_assignment(costs)].mean(), 0.0)))


def _bures(x: np.ndarray, y: np.ndarray) -> float:
    S, T = x[1:].T.astype(float) @ x[1:], y[1:].T.astype(float) @ y[1:]
    root = sqrtm(S)
    cross = np.trace(sqrtm(root @ T @ root)).real
    return float(((x[0] - y[0]) ** 2).sum() + np.trace(S + T) - 2 * cross)


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__ or "")
    options.add_argument("--n-tasks", type=int, default=20_000)
    options.add_argument("--loop", type=int, default=8, help="tasks of the plain loop")
    args = options.parse_args()
    figures: dict[str, float] = {}

    def note(name: str, result: dict[str, float]) -> None:
        figures.update({f"{name} {k}": v for k, v in result.items()})

    for dims in (32, 640):
        pool = features(dims, args.seed)
        note(f"task2vec D={dims}", task2vec(pool, args.n_tasks, args.loop, args.seed))
    pool = features(32, args.seed)
    note("prototypes D=32", pairs(PrototypeDistance(), _prototypes, pool, 1000, 60, args.seed))
    note("otdd classes D=32", pairs(OTDD(), _classes, pool, 100, 5, args.seed))
    by_sample = OTDD(level="samples").fit(sample_tasks(pool, 10, seed=args.seed))
    part = by_sample.embed(sample_tasks(pool, 40, seed=args.seed))
    taken = seconds(lambda: by_sample.cdist(part, part))
    figures["otdd samples D=32 pairs_per_second"] = len(part) ** 2 / taken
    tasks = sample_tasks(pool, args.n_tasks, seed=args.seed)
    hardness = TaskHardness().fit(tasks)
    taken = seconds(lambda: hardness.embed(tasks))
    figures["hardness D=32 tasks_per_second"] = len(tasks) / taken
    keep(figures, args)


if __name__ == "__main__":
    main()
