"""The online fit: tasks per second, peak memory, and the share of the machine's GEMM rate.

    python benchmarks/fit.py --out benchmarks/results/fit.json

Each dimension runs in a process of its own, so that its peak memory is its own.
"""

import argparse
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from record import keep, parser, peak_gigabytes, seconds

from taskscape import ClassPool, FitConfig, PrepareConfig, sample_tasks
from taskscape.themes import Fit, TaskSource
from taskscape.themes.prepare import PreparedSamples, learn_preparation

CLASSES, SAMPLES, K, WAYS, SHOT = 100, 200, 8, (5, 10), 16


def gemm_rate(n: int = 2048) -> float:
    """Floating-point operations per second of a plain matrix product, the peer."""
    a = jnp.ones((n, n), jnp.float32)
    product = jax.jit(lambda x, y: jnp.matmul(x, y, precision="highest"))
    product(a, a).block_until_ready()
    best = min(seconds(lambda: product(a, a).block_until_ready()) for _ in range(5))
    return 2 * n**3 / best


def one(dims: int, seed: int, steps: int) -> dict[str, float]:
    """Fit tasks of random features of this dimension for some steps."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, dims)).astype(np.float32)
    X = np.repeat(centres, SAMPLES, axis=0) + rng.normal(size=(CLASSES * SAMPLES, dims)).astype(
        np.float32
    )
    pool = ClassPool.from_arrays(X, np.repeat(np.arange(CLASSES), SAMPLES))
    batch = 64 if dims > 200 else 256
    tasks = sample_tasks(pool, (steps + 3) * batch + 600, n_way=WAYS, n_shot=SHOT, seed=seed)
    everything = np.arange(CLASSES)
    preparation = learn_preparation(pool, everything, PrepareConfig(pca=None))
    prepared = PreparedSamples(pool, preparation, everything)
    source, held_out = TaskSource.of(tasks, seed, 64)
    fit = Fit.several(source, held_out, prepared, FitConfig(batch_size=batch), 1)[0]
    for t in range(3):  # compile for the shapes that occur
        fit.learn(t)
    began = time.perf_counter()
    for t in range(3, 3 + steps):
        fit.learn(t)
    took = time.perf_counter() - began
    rows = source.batch(3, batch).batch(slice(None))
    distinct = len(np.unique(rows.support[rows.support_mask]))
    rate = gemm_rate()
    # log-likelihood and second moments: two products of (samples, D) by (D, D) per theme
    work = 2 * 2 * K * distinct * dims**2 * steps
    return {
        "tasks_per_second": steps * batch / took,
        "peak_gigabytes": peak_gigabytes(),
        "share_of_gemm_rate": work / took / rate,
        "gemm_gigaflops": rate / 1e9,
        "distinct_samples_per_step": float(distinct),
        "batch_size": float(batch),
    }


def main() -> None:
    made: argparse.ArgumentParser = parser(__doc__ or "")
    made.add_argument("--dims", type=int, nargs="*", default=[64, 640, 784])
    made.add_argument("--one", type=int, help=argparse.SUPPRESS)
    made.add_argument("--steps", type=int, default=20)
    args = made.parse_args()
    if args.one is not None:
        print(json.dumps(one(args.one, args.seed, args.steps)))
        return
    figures = {}
    for dims in args.dims:
        run = [sys.executable, __file__, "--one", str(dims), "--seed", str(args.seed)]
        finished = subprocess.run(
            [*run, "--steps", str(args.steps)], capture_output=True, text=True, check=True
        )
        for name, value in json.loads(finished.stdout.splitlines()[-1]).items():
            figures[f"D={dims} {name}"] = value
    keep(figures, args)


if __name__ == "__main__":
    main()
