"""What every benchmark needs: peak memory, the machine, and a JSON file to keep."""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.devices import cores
from taskscape.io.values import versions


def seconds(job: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def peak_gigabytes() -> float:
    """The most memory this process has held so far."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**30 if sys.platform == "darwin" else 2**20)


def peak_gigabytes_on_device() -> float | None:
    """The most memory that arrays took on the accelerator so far; None without one."""
    import jax

    most = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return None if most is None else most / 2**30


def product_rate(n: int, products: str = "float32", dtype: Any = "float32") -> float:
    """Operations per second of a product of two n × n matrices, the best of five.

    ``products`` is the precision that JAX multiplies in, ``dtype`` that of the numbers.
    """
    import jax
    import jax.numpy as jnp

    a = jnp.asarray(np.random.default_rng(0).normal(size=(n, n)), dtype)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=products))
    product(a, a).block_until_ready()
    best = min(seconds(lambda: product(a, a).block_until_ready()) for _ in range(5))
    return 2 * n**3 / best


def in_own_process(script: str, case: str, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of one case, from a process of its own, so that its peak memory is its own."""
    run = [sys.executable, script, "--one", case, "--seed", str(args.seed)]
    finished = subprocess.run(run, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{case} failed:\n{finished.stderr}")
    output: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    print(case, output, flush=True)
    return output


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    import jax

    return {
        "cpu_cores": cores(),
        "machine": platform.machine(),
        "devices": [d.device_kind for d in jax.devices()],
        "load_average": os.getloadavg()[0],
        "versions": versions(),
    }


def parser(description: str) -> argparse.ArgumentParser:
    """Arguments common to all benchmarks."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--out", type=Path, help="write the figures here as JSON")
    options.add_argument("--seed", type=int, default=0)
    return options


def over_training_sets(
    description: str,
    one: Callable[[np.random.Generator, int, int], dict[str, Any]],
    about: dict[str, Any],
) -> None:
    """Run ``one(rng, n_train, L)`` for all sizes that were asked for, and keep the figures."""
    arguments = parser(description)
    arguments.add_argument("--n-train", type=int, nargs="*", default=[10_000, 100_000, 2_000_000])
    arguments.add_argument("--task-themes", type=int, nargs="*", default=[4, 8])
    options = arguments.parse_args()
    rng = np.random.default_rng(options.seed)
    figures: dict[str, Any] = dict(about)
    for L in options.task_themes:
        for n in options.n_train:
            result = one(rng, n, L)
            figures |= {f"L={L}, {n:,} training tasks: {name}": v for name, v in result.items()}
    keep(figures, options)


def keep(figures: dict[str, Any], args: argparse.Namespace) -> None:
    """Print the figures, and write them with the command and machine that made them."""
    for name, value in figures.items():
        print(f"{name:58s} {value:,.4g}" if isinstance(value, float) else f"{name:58s} {value}")
    write(figures, args)


def write(figures: dict[str, Any], args: argparse.Namespace) -> None:
    """Write the figures so far, if a file was asked for."""
    if args.out is not None:
        command = " ".join(["python", *sys.argv])
        args.out.parent.mkdir(parents=True, exist_ok=True)
        full = {"command": command, "seed": args.seed, "machine": machine(), "figures": figures}
        args.out.write_text(json.dumps(full, indent=2) + "\n")
