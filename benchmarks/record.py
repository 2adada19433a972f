"""What every benchmark needs: peak memory, the machine, and a JSON file to keep."""

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.storage import versions


def seconds(job: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def peak_gigabytes() -> float:
    """The most memory this process has held so far."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**30 if sys.platform == "darwin" else 2**20)


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    import jax

    return {
        "cpu_cores": os.cpu_count(),
        "machine": platform.machine(),
        "devices": [d.device_kind for d in jax.devices()],
        "load_average": os.getloadavg()[0],
        "versions": versions(),
    }


def parser(description: str) -> argparse.ArgumentParser:
    """Arguments common to all benchmarks."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--out", type=Path, help="write the figures here as JSON")
    made.add_argument("--seed", type=int, default=0)
    return made


def over_training_sets(
    description: str,
    one: Callable[[np.random.Generator, int, int], dict[str, Any]],
    about: dict[str, Any],
) -> None:
    """Run ``one(rng, n_train, L)`` for all sizes that were asked for, and keep the figures."""
    made = parser(description)
    made.add_argument("--n-train", type=int, nargs="*", default=[10_000, 100_000, 2_000_000])
    made.add_argument("--task-themes", type=int, nargs="*", default=[4, 8])
    options = made.parse_args()
    rng = np.random.default_rng(options.seed)
    figures: dict[str, Any] = dict(about)
    for L in options.task_themes:
        for n in options.n_train:
            found = one(rng, n, L)
            figures |= {f"L={L}, {n:,} training tasks: {name}": v for name, v in found.items()}
    keep(figures, options)


def keep(figures: dict[str, Any], args: argparse.Namespace) -> None:
    """Print the figures, and write them with the command and machine that made them."""
    for name, value in figures.items():
        print(f"{name:58s} {value:,.4g}" if isinstance(value, float) else f"{name:58s} {value}")
    if args.out is not None:
        command = " ".join(["python", *sys.argv])
        args.out.parent.mkdir(parents=True, exist_ok=True)
        full = {"command": command, "seed": args.seed, "machine": machine(), "figures": figures}
        args.out.write_text(json.dumps(full, indent=2) + "\n")
