"""The online fit: tasks per second, seconds compiling, peak memory, share of the product rate.

    python benchmarks/fit.py --out benchmarks/results/fit_cpu.json     # on a CPU
    python benchmarks/fit.py --out benchmarks/results/fit_gpu.json     # where JAX finds a GPU

Every case runs in a process of its own, and compiles everything. A step draws the samples of
a mini-batch, infers the tasks' posteriors and updates all parameters; the share counts the two
products of (samples, D) by (D, D) for each image-theme, likelihoods and second moments, against
the rate of one large matrix product in float32 on the same machine.
"""

import argparse
import json
import os
from functools import partial

os.environ.setdefault("TASKSCAPE_KEEP_COMPILED", "0")

import jax
import numpy as np
from made_up import pool_and_themes
from record import (
    in_own_process,
    keep,
    parser,
    peak_gigabytes,
    peak_gigabytes_on_device,
    product_rate,
    seconds,
    write,
)

from taskscape import sample_tasks
from taskscape.compiling import seconds_compiling
from taskscape.themes import Fit, FitConfig, TaskSource
from taskscape.themes.start import Scale
from taskscape.themes.steps import init

WAYS, SHOT = (5, 10), 16
ON_CPU = ((64, 8, 4, 256, 200, 20), (64, 32, 16, 256, 200, 8), (640, 8, 4, 64, 200, 8))
ON_GPU = (
    (32, 8, 4, 256, 600, 100),
    (64, 8, 4, 4096, 600, 20),
    (640, 8, 4, 1024, 600, 10),
    (64, 32, 16, 4096, 600, 10),
)
"""Dimensions, K, L, tasks in a mini-batch, samples of a class, steps."""


def learn(fit: Fit, first: int, steps: int) -> None:
    """Some steps of a fit, from a first one."""
    for t in range(first, first + steps):
        fit.learn(fit.mini_batch(t))


def one(
    dims: int, K: int, L: int, batch: int, samples: int, steps: int, seed: int
) -> dict[str, float | None]:
    """Fit tasks of made-up features for some steps."""
    pool, prepared, themes = pool_and_themes(100, samples, dims, K, L, seed)
    tasks = sample_tasks(pool, (2 * steps + 3) * batch + 600, n_way=WAYS, n_shot=SHOT, seed=seed)
    source, held_out = TaskSource.of(tasks, seed, 64)
    scale = Scale(prepared.take(prepared.rows))
    state = init(themes, scale.shift, scale.Psi0)
    fit = Fit(source, held_out, prepared, FitConfig(L, K, batch_size=batch), state)
    before = seconds_compiling()
    first = seconds(partial(learn, fit, 0, 3))
    compiling = seconds_compiling() - before
    took = min(seconds(partial(learn, fit, at, steps)) for at in (3, 3 + steps))
    drawn = source.batch(3, batch).pool_rows(slice(None))
    distinct = len(np.unique(drawn.support[drawn.support_mask]))
    rate = product_rate(2048 if jax.default_backend() == "cpu" else 16384)
    work = 2 * 2 * K * distinct * dims**2 * steps
    return {
        "tasks_per_second": steps * batch / took,
        "milliseconds_of_a_step": 1000 * took / steps,
        "first_three_steps_seconds": first,
        "seconds_compiling": compiling,
        "share_of_product_rate": work / took / rate,
        "product_gigaflops": rate / 1e9,
        "distinct_samples_in_a_step": float(distinct),
        "peak_gigabytes": peak_gigabytes(),
        "peak_gigabytes_on_device": peak_gigabytes_on_device(),
    }


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__ or "")
    options.add_argument("--one", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one is not None:
        dims, K, L, batch, samples, steps = (int(n) for n in args.one.split(","))
        print(json.dumps(one(dims, K, L, batch, samples, steps, args.seed)))
        return
    figures: dict[str, float | None] = {}
    for case in ON_CPU if jax.default_backend() == "cpu" else ON_GPU:
        dims, K, L, batch, _, _ = case
        measured = in_own_process(__file__, ",".join(map(str, case)), args)
        name = f"D={dims}, K={K}, L={L}, {batch:,} tasks a step"
        figures |= {f"{name}: {key}": value for key, value in measured.items()}
        write(figures, args)
    keep(figures, args)


if __name__ == "__main__":
    main()
