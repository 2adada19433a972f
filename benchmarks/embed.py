"""Embedding tasks: tasks per second, seconds compiling, sweeps and peak memory.

    python benchmarks/embed.py --out benchmarks/results/embed_cpu.json     # on a CPU
    python benchmarks/embed.py --out benchmarks/results/embed_gpu.json     # where JAX finds a GPU

Every case runs in a process of its own, and compiles everything: ``first_seconds`` is what
the first call takes, ``tasks_per_second`` is the best of three later ones, drawing of the samples,
transfers and the table of likelihoods included. ``papers_e_step`` is the E-step to the letter, in
one compiled loop for each piece, where every task waits for the slowest: the peer.
"""

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

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
    seconds,
    write,
)

from taskscape import load_pool, sample_tasks
from taskscape.compiling import seconds_compiling
from taskscape.themes import Fit, FitConfig, PrepareConfig, TaskSource
from taskscape.themes.embed import embed
from taskscape.themes.image_themes import (
    WEIGHTS,
    ImageThemeSettings,
    embed_in_themes,
    learn_image_themes,
)
from taskscape.themes.prepare import PreparedSamples, learn_preparation

ON_CPU = (  # K = 256 with L = 0 is the default model: image-themes and position
    ("letters", 256, 0, "16", 100_000),
    ("letters", 8, 4, "16", 100_000),
    ("features", 256, 0, "16", 100_000),
    ("features", 256, 0, "all", 200_000),
    ("features", 8, 4, "16", 100_000),
    ("features", 8, 4, "all", 200_000),
    ("features", 32, 16, "16", 10_000),
    ("features", 32, 16, "all", 50_000),
)
ON_GPU = (
    ("features", 256, 0, "16", 2_000_000),
    ("features", 256, 0, "all", 2_000_000),
    ("features", 8, 4, "16", 200_000),
    ("features", 8, 4, "16", 2_000_000),
    ("features", 8, 4, "all", 2_000_000),
    ("features", 32, 16, "16", 200_000),
)


def one(data: str, K: int, L: int, shot: str, n_tasks: int, seed: int) -> dict[str, float | None]:
    """Embed tasks of five classes."""
    if data == "letters":
        pool = load_pool("letters", split="train")
        everything = np.arange(len(pool))
        preparation = learn_preparation(pool, everything, PrepareConfig(pca=32))
        prepared = PreparedSamples(pool, preparation, everything)
        learn = sample_tasks(pool, 3000, n_way=(5, 10), n_shot=16, seed=seed)
        source, held_out = TaskSource.of(learn, seed, 64)
        fit = Fit.several(source, held_out, prepared, FitConfig(L or 4, min(K, 8)), 1)[0]
        for t in range(10):
            fit.learn(fit.mini_batch(t))
        themes = fit.state.themes
    else:
        pool, prepared, themes = pool_and_themes(100, 600, 64, min(K, 32), L or 4, seed)
    n_shot = "all" if shot == "all" else int(shot)
    tasks = sample_tasks(pool, n_tasks, n_way=5, n_shot=n_shot, seed=seed + 1)
    if L == 0:
        settings = ImageThemeSettings(K, 3.0, 0.4, WEIGHTS["images"])
        fine, _ = learn_image_themes(tasks[:1000], prepared, settings, seed)
        embed_all: Callable[[], Any] = lambda: embed_in_themes(fine, tasks, prepared)  # noqa: E731
    else:
        embed_all = lambda: embed([themes], tasks, prepared)  # noqa: E731
    before = seconds_compiling()
    first = seconds(embed_all)
    compiling = seconds_compiling() - before
    kept: dict[str, Any] = {}
    best = min(seconds(lambda: kept.update(done=embed_all())) for _ in range(3))
    result: dict[str, float | None] = {
        "tasks_per_second": n_tasks / best,
        "first_seconds": first,
        "seconds_compiling": compiling,
        "peak_gigabytes": peak_gigabytes(),
        "peak_gigabytes_on_device": peak_gigabytes_on_device(),
    }
    if L == 0:
        return result
    few = tasks[: 2048 if shot != "all" else 256]
    embed([themes], few, prepared, literal=True)
    peer = min(seconds(lambda: embed([themes], few, prepared, literal=True)) for _ in range(2))
    return result | {
        "mean_sweeps": float(kept["done"].sweeps.mean()),
        "most_sweeps": float(kept["done"].sweeps.max()),
        "tasks_per_second_of_the_papers_e_step": len(few) / peer,
    }


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__ or "")
    options.add_argument("--one", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one is not None:
        data, K, L, shot, n = args.one.split(",")
        print(json.dumps(one(data, int(K), int(L), shot, int(n), args.seed)))
        return
    figures: dict[str, float | None] = {}
    for case in ON_CPU if jax.default_backend() == "cpu" else ON_GPU:
        data, K, L, shot, n = case
        measured = in_own_process(__file__, ",".join(map(str, case)), args)
        name = f"{data}, K={K}, L={L}, {shot}-shot, {n:,} tasks"
        figures |= {f"{name}: {key}": value for key, value in measured.items()}
        write(figures, args)
    keep(figures, args)


if __name__ == "__main__":
    main()
