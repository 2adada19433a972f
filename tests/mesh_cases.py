"""Fits whose tasks are split over devices; also a script, run with simulated devices."""

import sys
import warnings
from pathlib import Path

import jax
import numpy as np

from fit_cases import SMALL, small_model, small_pool, small_tasks
from taskscape.distributed.mesh import all_devices, on_one_device
from taskscape.themes.config import FitConfig
from taskscape.themes.data import TaskSource
from taskscape.themes.loop import Fit
from taskscape.themes.prepare import PrepareConfig, PreparedSamples, learn_preparation
from taskscape.themes.start import Scale, start_themes
from taskscape.themes.steps import init

__all__ = ["PAPER", "learned"]

PAPER = {"update": "paper", "max_passes": 2}
"""Of a fit that is quick to start."""


def learned(method: str) -> dict[str, np.ndarray]:
    """What some steps teach, and a look at held-out tasks, on all devices that there are."""
    pool, tasks = small_pool(), small_tasks(39)  # no multiple of the devices
    known = {k: v for k, v in SMALL.items() if k != "prepare"}
    config = FitConfig(**{**known, "method": method, "max_passes": 2})
    classes = tasks.class_ids
    preparation = learn_preparation(pool, classes, PrepareConfig(centre=False, pca=None))
    prepared = PreparedSamples(pool, preparation, classes)
    x = prepared.take(prepared.rows)
    scale = Scale(x)
    themes = start_themes(x, np.repeat(np.arange(len(classes)), 12), scale, config, 0)
    source = TaskSource(pool, tasks, seed=0)
    state = init(themes, scale.shift, scale.Psi0)
    fit = Fit(source, small_tasks(10, seed=1), prepared, config, state, mesh=all_devices())
    infos = list(fit)
    leaves = jax.tree.leaves(on_one_device(fit.state))
    arrays = {f"state{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays["elbo"] = np.array([info.elbo for info in infos])
    arrays["sweeps"] = np.array([info.sweeps for info in infos])
    return arrays


def stop_soon(info: object, restart: int) -> None:
    """A callback that interrupts a fit after its third step."""
    if info.t == 3:  # type: ignore[attr-defined]
        raise KeyboardInterrupt


def main(folder: Path) -> None:
    """What tests compare with one device: arrays, and the checkpoint of a fit that was stopped."""
    warnings.simplefilter("ignore")
    for method in ("online", "batch"):
        np.savez(folder / f"{method}.npz", devices=len(jax.devices()), **learned(method))
    checkpoint = folder / "fit.checkpoint"
    try:
        small_model(**PAPER).fit(
            small_tasks(), distributed=True, checkpoint=checkpoint, callback=stop_soon
        )
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
