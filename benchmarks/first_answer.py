"""Seconds that a person waits for the first answer, by what they go into.

    python benchmarks/first_answer.py --out benchmarks/results/first_answer.json
    python docs/tables.py       # writes the table of docs/performance.md from that file

A model is fitted to tasks of glyphs and embeds them. Every measurement is a process of its own:
with an empty cache of compiled programs, with what that one left, and the latter again while
another process keeps a core busy. What is traced, compiled or read back from the cache counts as
compiling, and not where it happens. scikit-learn's models learn from the same prepared samples, or
from the counts of image-themes of the same tasks, in the same run.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from record import keep, parser, write

BEGAN = time.perf_counter()
DEFAULT, PAPER = "default", ("8x4", "32x16", "64x32")
STATES = ("first", "again", "beside a busy process")
PHASES = ("import", "open", "prepare", "start", "learn", "embed", "compile")
PEERS = ("GaussianMixture", "LatentDirichletAllocation")
ROUNDS = 30


class Phases:
    """Seconds by phase; what a phase contains of others, and compiling, is not counted in it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.within = ["import"]
        self.since = BEGAN
        self.waits: list[tuple[float, float]] = []

    def turn(self, change: Callable[[], Any]) -> None:
        now = time.perf_counter()
        self.seconds[self.within[-1]] += now - self.since
        self.since = now
        change()

    def of(self, phase: str, job: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(job)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.turn(lambda: self.within.append(phase))
            try:
                return job(*args, **kwargs)
            finally:
                self.turn(self.within.pop)

        return timed

    def compiling(self, event: str, duration_secs: float, **_: Any) -> None:
        """Count a stretch of compiling, which may contain others that were counted before."""
        if not event.startswith("/jax/core/compile/"):
            return
        end, fresh = time.perf_counter(), duration_secs
        start = end - fresh
        while self.waits and self.waits[-1][1] > start:
            before = self.waits.pop()
            fresh -= before[1] - max(start, before[0])
            start = min(start, before[0])
        self.waits.append((start, end))
        self.seconds["compile"] += fresh
        self.seconds[self.within[-1]] -= fresh


def one(model: str, n_tasks: int, seed: int) -> dict[str, float]:
    """Seconds of a model by phase, in this process from its beginning."""
    phases = Phases()
    import jax

    from taskscape import load_pool, sample_tasks
    from taskscape.themes import TaskThemes, co_clustering, estimator, image_themes, loop, prepare

    jax.monitoring.register_event_duration_secs_listener(phases.compiling)
    for module, name, phase in (
        (estimator, "preparation_for", "prepare"),
        (co_clustering, "preparation_for", "prepare"),
        (prepare.PreparedSamples, "__init__", "prepare"),
        (prepare.PreparedSamples, "take", "prepare"),
        (image_themes, "_clusters", "start"),
        (loop, "starts", "start"),
    ):
        setattr(module, name, phases.of(phase, getattr(module, name)))

    def open_tasks() -> Any:
        pool = load_pool("glyphs", split="train")
        return sample_tasks(pool, n_tasks, n_way=5, n_shot=16, seed=seed)

    tasks = phases.of("open", open_tasks)()
    chosen = TaskThemes()
    if model != DEFAULT:
        K, L = map(int, model.split("x"))
        chosen = TaskThemes.paper(L, K)
    phases.of("learn", chosen.fit)(tasks)
    phases.of("embed", chosen.embed)(tasks)
    phases.turn(lambda: None)
    result = {phase: phases.seconds[phase] for phase in PHASES}
    before = result["import"] + result["open"] + result["embed"]
    return result | {"fit": sum(result.values()) - before, "all": sum(result.values())}


def peers(n_tasks: int, seed: int) -> dict[str, float]:
    """Seconds that scikit-learn's nearest relatives learn."""
    import warnings

    import numpy as np
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.mixture import GaussianMixture

    from taskscape import load_pool, sample_tasks
    from taskscape.themes.prepare import PreparedSamples, preparation_for

    warnings.simplefilter("ignore")  # few rounds are meant
    pool = load_pool("glyphs", split="train")
    tasks = sample_tasks(pool, n_tasks, n_way=5, n_shot=16, seed=seed)
    everything = np.arange(len(pool))
    prepared = PreparedSamples(pool, preparation_for("auto", pool, everything), everything)
    x = prepared.take(prepared.rows)[:20_000]
    drawn, result = tasks.pool_rows(slice(None)), {}
    task = np.broadcast_to(np.arange(n_tasks)[:, None, None], drawn.support.shape)
    for size in PAPER:
        K, L = map(int, size.split("x"))
        began = time.perf_counter()
        mixture = GaussianMixture(K, max_iter=ROUNDS, tol=0.0, random_state=seed).fit(x)
        result[f"{size}: {PEERS[0]}"] = time.perf_counter() - began
        counts = np.zeros((n_tasks, K))
        theme = mixture.predict(prepared.take(np.arange(len(pool.samples))))
        np.add.at(counts, (task[drawn.support_mask], theme[drawn.support[drawn.support_mask]]), 1)
        began = time.perf_counter()
        LatentDirichletAllocation(L, max_iter=ROUNDS, random_state=seed).fit_transform(counts)
        result[f"{size}: {PEERS[1]}"] = time.perf_counter() - began
    return result


def measured(case: str, args: argparse.Namespace, programs: str) -> dict[str, float]:
    """The figures of one case, from a process of its own with this cache of programs."""
    run = [sys.executable, __file__, "--one", case, "--seed", str(args.seed)]
    kept = {
        "JAX_COMPILATION_CACHE_DIR": programs,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    finished = subprocess.run(
        [*run, "--n-tasks", str(args.n_tasks)], env=os.environ | kept, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if finished.returncode:
        raise SystemExit(f"{case} failed:\n{finished.stderr}")
    output: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    return output


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--one", help=argparse.SUPPRESS)
    options.add_argument("--n-tasks", type=int, default=2000)
    options.add_argument("--models", nargs="*", default=[DEFAULT, *PAPER])
    args = options.parse_args()
    if args.one is not None:
        job = peers if args.one == "peers" else functools.partial(one, args.one)
        print(json.dumps(job(args.n_tasks, args.seed)))
        return
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        measured(DEFAULT, args, f"{folder}/warm-up")  # draws the glyphs, reads what is imported
        for model in args.models:
            for state in STATES:
                busy = None
                if state == STATES[-1]:
                    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                try:
                    result = measured(model, args, f"{folder}/{model}")
                finally:
                    if busy is not None:
                        busy.kill()
                figures |= {f"{model}, {state}: {name}": value for name, value in result.items()}
                print(model, state, {k: round(v, 2) for k, v in result.items()}, flush=True)
                write(figures, args)
        figures |= measured("peers", args, f"{folder}/peers")
    keep(figures, args)


if __name__ == "__main__":
    main()
