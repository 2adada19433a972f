"""A catalogue of many made-up tasks: written, averaged over, searched; flat in memory.

    python benchmarks/catalogue.py --folder /tmp/catalogue --out benchmarks/results/catalogue.json

Every stage runs in a process of its own, whose peak memory is its own.
"""

import argparse
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from record import in_own_process, keep, parser, peak_gigabytes, seconds

from taskscape.compare import mean_distance, nearest
from taskscape.embeddings import Catalogue, Embeddings
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, sample_tasks

CLASSES, WAY, L, SHARD = 200, 5, 8, 1 << 20
STAGES = ("written", "averaged", "searched")


def pool() -> ClassPool:
    """Classes without samples to speak of: only λ matters here."""
    return ClassPool.from_arrays(np.zeros((CLASSES, 1), np.float32), np.arange(CLASSES), name="x")


def made_up(tasks: TaskSet, rng: np.random.Generator) -> Embeddings:
    """λ of tasks whose classes mix the task-themes, as the E-step finds them: a little uneven."""
    shares = np.random.default_rng(1).dirichlet(np.full(L, 0.3), CLASSES).astype(np.float32)
    noise = 0.05 * rng.standard_normal((len(tasks), L), dtype=np.float32)
    lam = shares[tasks.classes].sum(axis=1) * np.exp(noise)
    return Embeddings.of(tasks, np.float32(0.5) + lam, model="made up")


def queries(seed: int, n: int) -> Embeddings:
    tasks = sample_tasks(pool(), n, n_way=WAY, n_shot=1, seed=seed + 10_000)
    return made_up(tasks, np.random.default_rng(seed + 10_000))


def written(folder: Path, n_tasks: int, seed: int) -> dict[str, Any]:
    for number, begin in enumerate(range(0, n_tasks, SHARD)):
        part = min(SHARD, n_tasks - begin)
        tasks = sample_tasks(pool(), part, n_way=WAY, n_shot=1, seed=seed + number)
        Catalogue.append(folder, made_up(tasks, np.random.default_rng(seed + number)))
    return {"bytes_per_task": sum(s.bytes for s in Catalogue(folder).shards) / n_tasks}


def averaged(folder: Path, n_tasks: int, seed: int) -> dict[str, Any]:
    asked, known = queries(seed, 10_000), Catalogue(folder).posteriors()
    return {"mean_distance_10000_queries_s": seconds(lambda: mean_distance(asked, known))}


def searched(folder: Path, n_tasks: int, seed: int) -> dict[str, Any]:
    """The ten nearest tasks of single queries, and of many at once: a scan of all files."""
    catalogue, asked = Catalogue(folder), queries(seed, 1000)
    figures: dict[str, Any] = {}
    for n in (1, 1000):
        starts = range(3 if n == 1 else 1)
        known = catalogue.posteriors()
        took = [seconds(partial(nearest, asked[i : i + n], known, 10)) for i in starts]
        figures[f"{n}_queries_s"] = float(np.median(took))
    return figures


DO = dict(zip(STAGES, (written, averaged, searched), strict=True))


def one(stage: str, args: argparse.Namespace) -> None:
    figures: dict[str, Any] = {}
    folder, n_tasks = Path(stage.split("@")[1]), int(stage.split("@")[2])
    name = stage.split("@")[0]
    took = seconds(lambda: figures.update(DO[name](folder, n_tasks, args.seed)))
    print(json.dumps({"s": took, **figures, "peak_gb": peak_gigabytes()}))


if __name__ == "__main__":
    arguments = parser(__doc__ or "")
    arguments.add_argument("--folder", type=Path, default=Path("/tmp/taskscape-catalogue"))
    arguments.add_argument(
        "--n-tasks", type=int, nargs="*", default=[1_000_000, 10_000_000, 50_000_000]
    )
    arguments.add_argument("--one", help="for this script itself")
    options = arguments.parse_args()
    if options.one:
        one(options.one, options)
    else:
        all_figures: dict[str, Any] = {"task_themes": L, "n_way": WAY, "classes": CLASSES}
        for n in options.n_tasks:
            shutil.rmtree(options.folder, ignore_errors=True)
            for stage in STAGES:
                case = f"{stage}@{options.folder}@{n}"
                figures = in_own_process(__file__, case, options)
                all_figures |= {f"{n:,} tasks, {stage}: {k}": v for k, v in figures.items()}
        shutil.rmtree(options.folder, ignore_errors=True)
        keep(all_figures, options)
