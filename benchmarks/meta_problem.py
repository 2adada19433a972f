"""What the benchmarks of meta-training share: networks, learners, made-up tasks, counts of work."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from taskscape.meta import Architecture, Learner, conv4, mlp
from taskscape.meta.episodes import gather, rows_of
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, sample_tasks

WAY, SHOT, QUERIES, FEATURES = 5, 5, 15, 64
CLASSES, SAMPLES, HELD_OUT = 80, 40, 20

LEARNERS: dict[str, dict[str, Any]] = {
    "protonet": {},
    "maml": {"inner_rate": 0.1, "inner_steps": 5},
    "vampire": {"inner_rate": 0.1, "inner_steps": 5},
    "bmaml": {"inner_rate": 0.5, "inner_steps": 5},
    "abml": {"inner_rate": 0.1, "inner_steps": 5},
}
"""Learners with their settings, the ones that matter most first."""


def networks(filters: int = 64) -> dict[str, Architecture]:
    """The networks by name."""
    return {"mlp": mlp(FEATURES, scale=8.0), "conv4": conv4((28, 28), filters)}


def made_up_pool(shape: tuple[int, ...], seed: int = 0) -> ClassPool:
    """Classes that can be told apart, but not easily; the last ones are held out for testing.

    Images are a pattern of 7×7 patches for each class, moved by up to two pixels, under noise;
    features are round clouds of unit length.
    """
    rng = np.random.default_rng(seed)
    n = CLASSES * SAMPLES
    if len(shape) == 1:
        centres = np.repeat(rng.normal(size=(CLASSES, *shape)), SAMPLES, axis=0)
        x = centres + 2 * rng.normal(size=(n, *shape))
        x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    else:
        patterns = np.kron(rng.random((CLASSES, 7, 7)), np.ones((1, 4, 4)))
        moves = rng.integers(-2, 3, size=(n, 2))
        moved = [np.roll(patterns[i // SAMPLES], move, (0, 1)) for i, move in enumerate(moves)]
        noisy = np.stack(moved) + 0.3 * rng.normal(size=(n, *shape))
        x = (255 * np.clip(noisy, 0, 1)).astype(np.uint8)
    splits = ["train"] * (CLASSES - HELD_OUT) + ["test"] * HELD_OUT
    return ClassPool.from_arrays(x, np.repeat(np.arange(CLASSES), SAMPLES), splits=splits)


def draw_tasks(pool: ClassPool, split: str, n_tasks: int, seed: int) -> TaskSet:
    """5-way 5-shot tasks with 15 queries for each class."""
    return sample_tasks(
        pool, n_tasks, n_way=WAY, n_shot=SHOT, n_query=QUERIES, split=split, seed=seed
    )


def product_flops(learner: Learner, network: Architecture, tasks: TaskSet) -> float:
    """Floating-point operations in the matrix products and convolutions of one task's gradient.

    Counted in the program as JAX differentiates it, with every step of the inner loop; what is
    done element by element is left out.
    """
    state = jax.eval_shape(lambda: learner.init(jax.random.key(0), network, WAY))
    samples, rows = jnp.asarray(tasks.pool.samples), rows_of(tasks[:1])

    def loss(state: Any) -> Any:
        episode = gather(samples, jax.tree.map(lambda r: r[0], rows))
        return learner.loss(state, episode, jax.random.key(0))

    return flops_of(jax.make_jaxpr(jax.value_and_grad(loss))(state).jaxpr)


def flops_of(jaxpr: Any) -> float:
    """Operations of the products in a program; loops count as often as they run."""
    total = 0.0
    for step in jaxpr.eqns:
        if step.primitive.name == "dot_general":
            (contracted, _), _ = step.params["dimension_numbers"]
            shape = step.invars[0].aval.shape
            total += 2 * step.outvars[0].aval.size * math.prod(shape[i] for i in contracted)
        elif step.primitive.name == "conv_general_dilated":
            kernel, numbers = step.invars[1].aval, step.params["dimension_numbers"]
            per_output = kernel.size // kernel.shape[numbers.rhs_spec[0]]
            total += 2 * step.outvars[0].aval.size * per_output
        times = step.params.get("length", 1) if step.primitive.name == "scan" else 1
        for value in step.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    total += times * flops_of(inner)
    return total
