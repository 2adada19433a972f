"""How the cost of a fit step and of embedding grows with tasks, samples, image-themes, dimensions.

    python benchmarks/growth.py --out benchmarks/results/growth_cpu.json     # on a CPU
    python benchmarks/growth.py --out benchmarks/results/growth_gpu.json     # where JAX finds a GPU
    python benchmarks/growth.py --plot docs/images/growth.png                # from the file above

One size at a time is changed, the others stay as they are by default: M = 256 tasks a step, or
20,000 to embed, N = 16 samples of a class, K = 8 image-themes, D = 32 dimensions; L = 4 task-themes
throughout. Tasks have 5 to 10 classes where they are learned from and 5 where they are embedded.
Compiling is not counted. Times are the best of several; ``cpu_seconds`` counts the seconds of this
process alone, on all cores, and can be compared where others use the same cores.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

os.environ.setdefault("TASKSCAPE_KEEP_COMPILED", "0")

from made_up import pool_and_themes
from record import keep, parser, seconds, write

from taskscape import sample_tasks
from taskscape.themes import Fit, FitConfig, TaskSource
from taskscape.themes.embed import embed
from taskscape.themes.start import Scale
from taskscape.themes.steps import init

L, CLASSES, SAMPLES = 4, 100, 200
REPEATS = 5


@dataclass(frozen=True)
class Size:
    """What is changed: tasks, samples of a class, image-themes, dimensions."""

    M: int
    N: int = 16
    K: int = 8
    D: int = 32


FIT, EMBED = Size(256), Size(20_000)
AXES = {"N": (4, 8, 16, 32), "K": (4, 8, 16, 32), "D": (16, 32, 64, 128, 256)}
TASKS = {"fit": (64, 256, 1024), "embed": (1250, 5000, 20_000, 80_000)}
QUICK = {"M": (64, 256), "N": (8, 16), "K": (4, 8), "D": (32, 64)}
MEANING = {
    "M": "tasks (M)",
    "N": "samples of a class (N)",
    "K": "image-themes (K)",
    "D": "dimensions (D)",
}


def best(job: Callable[[int], object]) -> dict[str, float]:
    """Seconds of a job and those of this process, the best of several."""
    took = busy = float("inf")
    for i in range(REPEATS):
        began = time.process_time()
        took = min(took, seconds(partial(job, i)))
        busy = min(busy, time.process_time() - began)
    return {"seconds": took, "cpu_seconds": busy}


def fit_step(size: Size, seed: int) -> dict[str, float]:
    """One step of a fit."""
    pool, prepared, themes = pool_and_themes(CLASSES, SAMPLES, size.D, size.K, L, seed)
    n_tasks = (REPEATS + 2) * size.M + 600
    tasks = sample_tasks(pool, n_tasks, n_way=(5, 10), n_shot=size.N, seed=seed)
    source, held_out = TaskSource.of(tasks, seed, 64)
    scale = Scale(prepared.take(prepared.rows))
    state = init(themes, scale.shift, scale.Psi0)
    fit = Fit(source, held_out, prepared, FitConfig(L, size.K, batch_size=size.M), state)

    def step(t: int) -> None:
        fit.learn(fit.mini_batch(t))
        fit.state.themes.mu.block_until_ready()

    for t in range(2):  # compiles
        step(t)
    return best(lambda i: step(2 + i))


def embedding(size: Size, seed: int) -> dict[str, float]:
    """Embedding all tasks."""
    pool, prepared, themes = pool_and_themes(CLASSES, SAMPLES, size.D, size.K, L, seed)
    tasks = sample_tasks(pool, size.M, n_way=5, n_shot=size.N, seed=seed + 1)
    embed([themes], tasks, prepared)  # compiles
    return best(lambda _: embed([themes], tasks, prepared))


def plot(figures: dict[str, float], on_cpu: bool, out: Path) -> None:
    """Small multiples: a row for each path, a column for each size, both axes logarithmic."""
    from matplotlib.figure import Figure

    unit = "CPU seconds" if on_cpu else "seconds"
    end = ": cpu_seconds" if on_cpu else ": seconds"
    rows = {"fit": f"one step of a fit\n{unit}", "embed": f"embedding\n{unit}"}
    figure = Figure(figsize=(9.6, 4.8), layout="constrained")
    panels = figure.subplots(len(rows), len(MEANING), sharey="row", squeeze=False)
    for row, (work, label) in zip(panels, rows.items(), strict=True):
        for panel, (axis, words) in zip(row, MEANING.items(), strict=True):
            start = f"{work}, {axis}="
            result = {
                int(name.removeprefix(start).removesuffix(end)): value
                for name, value in figures.items()
                if name.startswith(start) and name.endswith(end)
            }
            x, y = list(result), list(result.values())
            usual = asdict(FIT if work == "fit" else EMBED)[axis]
            at = usual if usual in result else x[0]
            panel.loglog(
                x, [result[at] * n / at for n in x], color="0.7", ls="--", label="in proportion"
            )
            panel.loglog(x, y, color="#1b6ca8", marker="o", ms=4, label="measured")
            panel.loglog(
                [at], [result[at]], color="#d1495b", marker="o", ms=7, ls="", label="default"
            )
            panel.set_xticks(x, [f"{n:,}" for n in x], fontsize=8)
            panel.minorticks_off()
            panel.grid(color="0.92")
            panel.spines[["top", "right"]].set_visible(False)
            if work == "embed" or axis == "M":
                panel.set_xlabel("tasks a step (M)" if work == "fit" else words)
        row[0].set_ylabel(label)
    panels[0, 0].legend(fontsize=8, frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130, metadata={"Software": None})


def main() -> None:
    options = parser(str(__doc__))
    options.add_argument("--quick", action="store_true", help="two sizes of each, and fewer tasks")
    options.add_argument(
        "--plot", type=Path, help="draw the figures of --from, and measure nothing"
    )
    options.add_argument(
        "--from", type=Path, default=Path(__file__).parent / "results/growth_cpu.json", dest="of"
    )
    args = options.parse_args()
    if args.plot is not None:
        kept = json.loads(args.of.read_text())
        plot(kept["figures"], kept["machine"]["devices"] == ["cpu"], args.plot)
        return
    figures: dict[str, float] = {}
    for work, usual, measure in (("fit", FIT, fit_step), ("embed", EMBED, embedding)):
        if args.quick:
            usual = replace(usual, M=256)
        known: dict[Size, dict[str, float]] = {}
        for axis, values in (QUICK if args.quick else {"M": TASKS[work], **AXES}).items():
            for value in values:
                size = replace(usual, **{axis: value})
                if size not in known:
                    known[size] = measure(size, args.seed)
                    print(work, size, known[size], flush=True)
                figures |= {f"{work}, {axis}={value}: {k}": v for k, v in known[size].items()}
            write(figures, args)
    keep(figures, args)


if __name__ == "__main__":
    main()
