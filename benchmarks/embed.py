"""Embedding tasks: tasks per second with cached log-likelihoods, against the paper's E-step.

    python benchmarks/embed.py --out benchmarks/results/embed.json

The peer is the paper's E-step over the same tasks, in one compiled while-loop for each chunk, where
every task waits for the slowest.
"""

import argparse
import json
import subprocess
import sys

import numpy as np
from record import keep, parser, peak_gigabytes, seconds

from taskscape import ClassPool, Embeddings, FitConfig, PrepareConfig, load_pool, sample_tasks
from taskscape.themes import Fit, TaskSource
from taskscape.themes.embed import embed
from taskscape.themes.prepare import PreparedSamples, learn_preparation

CLASSES, SAMPLES, D = 64, 600, 64


def made_up(dims: int, seed: int) -> ClassPool:
    """Classes that mix eight clusters, so that tasks differ in how soon they settle."""
    rng = np.random.default_rng(seed)
    clusters = (rng.normal(size=(8, dims)) * 2).astype(np.float32)
    which = np.stack(
        [rng.choice(8, SAMPLES, p=rng.dirichlet(np.full(8, 0.3))) for _ in range(CLASSES)]
    )
    X = 2 * rng.standard_normal((CLASSES, SAMPLES, dims), dtype=np.float32)
    for c in range(CLASSES):  # class by class: the benchmark's own memory should not count
        X[c] += clusters[which[c]]
    return ClassPool.from_arrays(X.reshape(-1, dims), np.repeat(np.arange(CLASSES), SAMPLES))


def one(shot: str, n_tasks: int, dims: int, seed: int) -> dict[str, float]:
    """Embed tasks with 16 or all samples per class."""
    pool = load_pool("letters", split="train") if dims == 0 else made_up(dims, seed)
    everything = np.arange(len(pool))
    prepared = PreparedSamples(
        pool,
        learn_preparation(pool, everything, PrepareConfig(pca=32 if dims == 0 else None)),
        everything,
    )
    learn = sample_tasks(pool, 3000, n_way=(5, 10), n_shot=16, seed=seed)
    source, held_out = TaskSource.of(learn, seed, 64)
    fit = Fit.several(source, held_out, prepared, FitConfig(), 1)[0]
    for t in range(10):
        fit.learn(t)
    themes = fit.state.themes
    tasks = sample_tasks(
        pool, n_tasks, n_way=5, n_shot="all" if shot == "all" else int(shot), seed=seed + 1
    )
    embed([themes], tasks, prepared)
    kept: dict[str, Embeddings] = {}
    ours = min(
        seconds(lambda: kept.update(done=embed([themes], tasks, prepared))) for _ in range(2)
    )
    few = tasks[: min(n_tasks, 8192 if shot != "all" else 512)]
    embed([themes], few, prepared, literal=True)
    peer = min(seconds(lambda: embed([themes], few, prepared, literal=True)) for _ in range(2))
    return {
        "tasks_per_second": n_tasks / ours,
        "tasks_per_second_of_the_papers_e_step": len(few) / peer,
        "ratio": n_tasks / ours * peer / len(few),
        "mean_sweeps": float(kept["done"].sweeps.mean()),
        "most_sweeps": float(kept["done"].sweeps.max()),
        "peak_gigabytes": peak_gigabytes(),
    }


def main() -> None:
    made: argparse.ArgumentParser = parser(__doc__ or "")
    made.add_argument("--one", help=argparse.SUPPRESS)
    made.add_argument("--dims", type=int, nargs="*", default=[0, 64, 640, 784], help="0: letters")
    made.add_argument("--n-tasks", type=int, default=100_000)
    args = made.parse_args()
    if args.one is not None:
        shot, dims = args.one.split(",")
        n = args.n_tasks if shot != "all" else args.n_tasks // 50
        print(json.dumps(one(shot, n, int(dims), args.seed)))
        return
    figures = {}
    for dims in args.dims:
        for shot in ("16", "all"):
            run = [sys.executable, __file__, "--one", f"{shot},{dims}", "--seed", str(args.seed)]
            finished = subprocess.run(
                [*run, "--n-tasks", str(args.n_tasks)], capture_output=True, text=True, check=True
            )
            for name, value in json.loads(finished.stdout.splitlines()[-1]).items():
                data = f"D={dims}" if dims else "letters, D=32"
                figures[f"{data} {shot}-shot {name}"] = value
    keep(figures, args)


if __name__ == "__main__":
    main()
