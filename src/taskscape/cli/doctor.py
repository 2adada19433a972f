"""``taskscape doctor``: is this machine ready?"""

import json
import os
import time
from importlib import metadata
from typing import Any

import typer

from taskscape.cli import options as opt

_CLASSES = 24
"""Of the small run, half of each kind."""


@opt.command("doctor")
def doctor(as_json: opt.AsJson = False) -> None:
    """Say what taskscape stands on, and try it: versions, devices, data, a small run.

    The run fits, embeds and compares a few tasks: about ten seconds, more the first time, when
    JAX has to compile. The exit status is 1 if something is wrong.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    checks: list[dict[str, Any]] = []
    for look in (_versions, _devices, _data, _small_run):
        name = look.__name__.strip("_").replace("_", " ")
        try:
            checks.append({"name": name, "good": True, "found": look()})
        except Exception as error:  # the others are made all the same
            checks.append(
                {"name": name, "good": False, "found": f"{type(error).__name__}: {error}"}
            )
    wrong = [check["name"] for check in checks if not check["good"]]
    if as_json:
        typer.echo(json.dumps({"ready": not wrong, "checks": checks}, indent=2))
    else:
        table = Table("", "what", "found")
        for check in checks:
            good = "[green]ok[/]" if check["good"] else "[bold red]wrong[/]"
            table.add_row(good, check["name"], Text(check["found"]))
        console = Console()
        console.print(table)
        verdict = f"[bold red]Not ready[/]: {', '.join(wrong)}. The table says what is wrong."
        console.print(verdict if wrong else "[bold green]Ready[/]: all that was tried works.")
    if wrong:
        raise typer.Exit(1)


def _versions() -> str:
    """Versions of what is needed; an error names those that are too old or missing."""
    from packaging.requirements import Requirement

    wrong, versions = [], [f"taskscape {metadata.version('taskscape')}"]
    for needed in map(Requirement, metadata.requires("taskscape") or []):
        if needed.marker is not None:  # an extra
            continue
        try:
            version = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            version = "missing"
        versions.append(f"{needed.name} {version}")
        if version == "missing" or not needed.specifier.contains(version, prereleases=True):
            wrong.append(f"{needed.name} is {version}, not {needed.specifier}")
    if wrong:
        raise RuntimeError(f"{'; '.join(wrong)}. Install taskscape again: pip install -U taskscape")
    return ", ".join(versions)


def _devices() -> str:
    """What JAX runs on."""
    import jax

    from taskscape.devices import cores, free_bytes

    words = [f"{cores()} processor cores"]
    for device in jax.devices():
        free = free_bytes(device)
        memory = "" if free is None else f", {free / 2**30:.0f} GiB free"
        words.append(f"{device.platform} {device.device_kind}{memory}")
    return "; ".join(words)


def _data() -> str:
    """Where data and caches lie; an error if the cache cannot be written to."""
    from taskscape.io.files import cache_dir
    from taskscape.pools import POOLS, data_dir

    cache = cache_dir()
    above = next(p for p in (cache, *cache.parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise PermissionError(f"{cache} cannot be written to; name another by TASKSCAPE_CACHE")
    used = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    here = [name for name, known in POOLS.items() if known.locate() is not None]
    there = f"cache {cache} ({used / 2**20:.0f} MB), data {data_dir()}"
    away = ", ".join(name for name in POOLS if name not in here) or "none"
    return f"{', '.join(here)}; not on this machine: {away}; {there}"


def _small_run() -> str:
    """Fit, embed and compare tasks of two kinds of class, which must come out apart."""
    import jax

    began, flag = time.perf_counter(), "jax_disable_most_optimizations"
    before = jax.config.values[flag]
    jax.config.update(flag, True)  # type: ignore[no-untyped-call]  # to compile in seconds
    try:
        apart = _two_kinds_are_apart()
    finally:
        jax.config.update(flag, before)  # type: ignore[no-untyped-call]
    if not apart:
        raise ArithmeticError(
            "tasks of two kinds were not told apart; JAX or this device computes wrongly here: "
            "try JAX_PLATFORMS=cpu, or other versions of jax and jaxlib"
        )
    return f"tasks of two kinds were told apart, in {time.perf_counter() - began:.0f} s"


def _two_kinds_are_apart() -> bool:
    import numpy as np

    from taskscape import TaskThemes, load_pool, make_tasks, nearest

    rng = np.random.default_rng(0)
    kind = np.arange(_CLASSES) % 2
    X = rng.normal(size=(_CLASSES, 12, 4)) + 8.0 * kind[:, None, None]
    pool = load_pool((X.reshape(-1, 4), np.repeat(np.arange(_CLASSES), 12)), name="two kinds")
    drawn = [rng.choice(np.flatnonzero(kind == i % 2), 3, replace=False) for i in range(128)]
    tasks = make_tasks(pool, [classes.tolist() for classes in drawn], n_shot=8, seed=0)
    embedded = TaskThemes(prepare=None).fit(tasks).embed(tasks)
    near = nearest(embedded[:32], embedded[32:], k=1).indices[:, 0] + 32
    return np.array_equal(near % 2, np.arange(32) % 2)
