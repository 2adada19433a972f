"""Speed of meta-training and evaluation, in tasks per second, against plain loops over tasks.

    python benchmarks/meta_loops.py --out benchmarks/results/meta_loops.json

Peers run the same mathematics in the same process. ``compiled loop``: the function of one task is
compiled, Python calls it task by task and averages the gradients. ``plain loop``: nothing is
compiled; every operation is dispatched from Python, as eager frameworks do.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
import record

from taskscape.meta import Architecture, Learner, TrainConfig, begin, conv4, make_learner, mlp
from taskscape.meta.episodes import TaskFeed, gather, rows_of
from taskscape.meta.evaluation import score
from taskscape.meta.training import advance
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, sample_tasks

SETTINGS: dict[str, dict[str, Any]] = {
    "protonet": {},
    "maml": {"inner_rate": 0.1, "inner_steps": 5},
    "abml": {"inner_rate": 0.1, "inner_steps": 5},
    "bmaml": {"inner_rate": 0.1, "inner_steps": 5},
    "vampire": {"inner_rate": 0.1, "inner_steps": 5},
}


def rate(work: Callable[[], Any], tasks: int, seconds: float) -> float:
    """Tasks per second: the best of several rounds after a warm-up."""
    jax.block_until_ready(work())  # type: ignore[no-untyped-call]
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        jax.block_until_ready(work())  # type: ignore[no-untyped-call]
        best = min(best, time.perf_counter() - began)
        if time.perf_counter() > end:
            return tasks / best


class Case:
    """One learner with its tasks, ours and the peers' way."""

    def __init__(
        self, learner: Learner, network: Architecture, tasks: TaskSet, batch: int, updates: int
    ) -> None:
        self.learner, self.tasks, self.batch = learner, tasks, batch
        self.samples = jnp.asarray(tasks.pool.samples)
        self.updates = updates
        self.config = TrainConfig(updates=updates, batch_size=batch)
        self.trials = begin(learner, network, self.config, n_way=5)
        self.state = jax.tree.map(lambda leaf: leaf[0], self.trials.state)
        self.rows = rows_of(tasks)

    def train_ours(self) -> Any:
        feed = TaskFeed(self.tasks, seed=0)
        rows = feed.rows(0, self.updates * self.batch)
        rows = jax.tree.map(lambda r: r.reshape(1, -1, self.batch, *r.shape[1:]), rows)
        seeds = jnp.zeros(1, int)
        return advance(
            self.learner, self.config, self.samples, rows, self.updates, seeds, self.trials
        ).state

    def evaluate_ours(self) -> Any:
        states = jax.tree.map(lambda leaf: leaf[None], self.state)
        return score(self.learner, states, 1, self.samples, self.rows, 0)

    def loss(self, state: Any, rows: Any, key: Any) -> Any:
        return self.learner.loss(state, gather(self.samples, rows), key)

    def probabilities(self, state: Any, rows: Any, key: Any) -> Any:
        episode = gather(self.samples, rows)
        adapted = self.learner.adapt(state, episode.support, key)
        return self.learner.predict(adapted, episode.query, key)

    def train_loop(self, n_tasks: int, compiled: bool) -> Any:
        gradient = jax.grad(self.loss)
        gradient = self._compiled("gradient", gradient) if compiled else gradient
        optimiser = optax.adam(1e-3)
        state, opt_state = self.state, optimiser.init(self.state)
        key = jax.random.key(0)
        for start in range(0, n_tasks, self.batch):
            total = None
            for t in range(start, min(start + self.batch, n_tasks)):
                rows = jax.tree.map(lambda r, t=t: r[t % len(r)], self.rows)
                result = gradient(state, rows, jax.random.fold_in(key, t))
                total = result if total is None else jax.tree.map(jnp.add, total, result)
            mean = jax.tree.map(lambda g: g / self.batch, total)
            change, opt_state = optimiser.update(mean, opt_state)
            state = optax.apply_updates(state, change)
        return state

    def evaluate_loop(self, n_tasks: int, compiled: bool) -> Any:
        predict = self.probabilities
        predict = self._compiled("predict", predict) if compiled else predict
        key, right = jax.random.key(0), []
        for t in range(n_tasks):
            rows = jax.tree.map(lambda r, t=t: r[t % len(r)], self.rows)
            p = np.asarray(predict(self.state, rows, jax.random.fold_in(key, t)))
            labels = np.repeat(np.arange(5), self.rows.query.shape[2])
            right.append((p.argmax(1) == labels).mean())
        return np.mean(right)

    def _compiled(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if not hasattr(self, name):
            setattr(self, name, jax.jit(function))
        kept: Callable[..., Any] = getattr(self, name)
        return kept


def measure(case: Case, seconds: float, few: int, plain: bool) -> dict[str, float]:
    """Tasks per second of all ways to train and to evaluate."""
    result = {
        "train": rate(case.train_ours, case.updates * case.batch, seconds),
        "train_compiled_loop": rate(lambda: case.train_loop(few, True), few, seconds),
        "evaluate": rate(case.evaluate_ours, len(case.tasks), seconds),
        "evaluate_compiled_loop": rate(lambda: case.evaluate_loop(few, True), few, seconds),
    }
    if plain:
        with jax.disable_jit():
            result["train_plain_loop"] = rate(lambda: case.train_loop(1, False), 1, 0)
            result["evaluate_plain_loop"] = rate(lambda: case.evaluate_loop(1, False), 1, 0)
    ratios = {
        f"{what}_over_{peer}": result[what] / result[f"{what}_{peer}"]
        for what in ("train", "evaluate")
        for peer in ("compiled_loop", "plain_loop")
        if f"{what}_{peer}" in result
    }
    return {k: round(v, 3) for k, v in {**result, **ratios}.items()}


def random_pool(shape: tuple[int, ...], seed: int = 0) -> ClassPool:
    """40 classes of 40 samples: noise, since only the time matters."""
    rng = np.random.default_rng(seed)
    x = rng.random((1600, *shape), dtype=np.float32)
    if len(shape) > 1:
        x = (255 * x).astype(np.uint8)
    else:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return ClassPool.from_arrays(x, np.repeat(np.arange(40), 40))


def main() -> None:
    parser = record.parser(str(__doc__))
    parser.add_argument("--networks", default="mlp640,mlp32")
    parser.add_argument("--learners", default=",".join(SETTINGS))
    parser.add_argument("--n-shot", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument("--tasks", type=int, default=256, help="tasks of one evaluation")
    parser.add_argument("--few", type=int, default=32, help="tasks of one round of a peer")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for one measurement")
    parser.add_argument("--no-plain", action="store_true", help="leave out the plain loop")
    options = parser.parse_args()
    networks: dict[str, Architecture] = {
        "mlp640": mlp(640, scale=8.0),
        "mlp32": mlp(32, scale=8.0),
        "conv4": conv4((28, 28)),
    }
    figures: dict[str, Any] = {}
    for kind in options.networks.split(","):
        pool = random_pool(networks[kind].sample_shape)
        tasks = sample_tasks(pool, options.tasks, n_way=5, n_shot=options.n_shot, n_query=15)
        for name in options.learners.split(","):
            learner = make_learner(name, **SETTINGS[name])
            case = Case(learner, networks[kind], tasks, options.batch, options.updates)
            measured = measure(case, options.seconds, options.few, not options.no_plain)
            print(kind, name, json.dumps(measured), flush=True)
            figures |= {f"{kind} {name} {what}": value for what, value in measured.items()}
    record.keep({"unit": "tasks per second, and their ratios", **figures}, options)


if __name__ == "__main__":
    main()
