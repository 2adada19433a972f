"""The whole study on your own features: from arrays to findings and a folder of results.

    python examples/own_study.py

Features are made up here; bring yours as an array (rows, dims) with a label per row. On the
command line: taskscape run --data features.npz --out mine
"""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from taskscape import load_pool
from taskscape.study import config_from, run_study


def main() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(6, 16)) * 2  # six kinds of image, of which every class is a mixture
    mixtures = rng.dirichlet(np.full(6, 0.4), size=50)
    which = np.stack([rng.choice(6, 24, p=mixture) for mixture in mixtures])
    X = (kinds[which] + rng.normal(size=(50, 24, 16))).reshape(-1, 16)
    y = np.repeat([f"class {c:02d}" for c in range(50)], 24)

    config = config_from(
        {
            "preset": "quick",
            "tasks": {"n_way": 3, "n_train": 1000},
            "fit": {"task_themes": 3, "image_themes": 6, "n_tasks": 1000},
            "learners": {"names": ["protonet"], "train_tasks": 1000},
            "selection": {"budgets": [20], "candidates": 500},
        }
    )
    out = Path(mkdtemp()) / "study"
    result = run_study(load_pool((X, y), name="mine"), config, out)
    print(*result.notes, "", result.summary(), "", f"everything is in {out}", sep="\n")


if __name__ == "__main__":
    main()
