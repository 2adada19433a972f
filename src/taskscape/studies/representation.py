"""Is the representation sound with default settings? One line of JSON per pool and seed.

    python -m taskscape.studies.representation --pools glyphs omniglot mini_imagenet \
        --out docs/results/representation.jsonl
"""

import argparse
import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.estimator import HealthWarning, TaskThemes
from taskscape.pools import ClassPool, load_pool
from taskscape.studies.ledger import Ledger, surroundings
from taskscape.tasks import sample_tasks

__all__ = ["main", "represent"]


def represent(pool: ClassPool, seed: int, n_train: int, n_test: int) -> dict[str, Any]:
    """Fit the default model on training tasks and embed test tasks with 16 samples per class."""
    train = sample_tasks(pool, n_train, split="train", n_way=(5, 10), n_shot=16, seed=seed)
    test = sample_tasks(pool, n_test, split="test", n_way=5, n_shot=16, seed=seed + 1)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)  # kept in the result instead
        model = TaskThemes(random_state=seed).fit(train)
    fitted = time.perf_counter()
    seen = model.embed(test)[0]
    took = time.perf_counter() - fitted
    return {
        "preparation": model.preparation_.config.describe(),
        "tasks_learned_from": model.fit_info_[-1].tasks,
        "stopped": model.fit_info_[-1].done,
        "held_out_elbo": float(model.elbo_history_[:, 1].max()),
        "smallest_image_theme_usage": float(model.theme_usage_.min()),
        "alpha_totals": [round(float(a), 3) for a in model.alpha_.sum(axis=1)],
        "distinct_of_test_tasks": len(np.unique(seen.lam.round(1), axis=0)),
        "test_tasks": len(test),
        "test_elbo": float(seen.elbo.mean()),
        "mean_sweeps": float(seen.sweeps.mean()),
        "advice": list(model.health_.advice),
        "fit_seconds": fitted - began,
        "embed_seconds": took,
        "model_fingerprint": model.fingerprint_,
    }


def main() -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", nargs="+", default=["glyphs"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--n-train", type=int, default=20_000)
    parser.add_argument("--n-test", type=int, default=5_000)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = "python -m taskscape.studies.representation " + shlex.join(sys.argv[1:])
    ledger = Ledger(options.out, {"command": command, **surroundings()})
    for name in options.pools:
        for seed in options.seeds:
            size = {"n_train": options.n_train, "n_test": options.n_test}
            cell = {"what": "representation", "pool": name, "seed": seed, **size}
            if ledger.get(cell) is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("default")
                    ledger.add(cell, represent(load_pool(name), seed, **size))
                print(ledger.get(cell))


if __name__ == "__main__":
    main()
