"""Selecting training tasks: 10,000 of up to 2·10⁶, for 1,000 test tasks.

    python benchmarks/selection.py --out benchmarks/results/selection.json

The peer of ``coverage`` looks at all training tasks for every turn (measured on a few turns and
scaled up); that of ``nearest`` is the mean of all pairs (on fewer test tasks, scaled up).
"""

from functools import partial

import numpy as np
from compare import N_TEST, tasks
from record import over_training_sets, seconds

from taskscape.compare import distances
from taskscape.embeddings import Posterior
from taskscape.select import select

RULES = ("nearest", "random", "coverage", "classes", "facility")
N_CLASSES, WAY = 64, 5


def plain_coverage(test: Posterior, train: Posterior, turns: int) -> None:
    """Every turn looks at everything."""
    normaliser, used = train.log_normaliser, np.zeros(len(train), dtype=bool)
    for slope in test[:turns].gradient:
        scores = normaliser - train.values @ slope
        scores[used] = np.inf
        used[np.argmin(scores)] = True


def one(rng: np.random.Generator, n_train: int, L: int) -> dict[str, object]:
    test, train = tasks(rng, N_TEST, 20, L), tasks(rng, n_train, N_CLASSES, L)
    classes = rng.integers(N_CLASSES, size=(n_train, WAY))
    n = min(10_000, n_train // 4)
    times = {
        rule: seconds(partial(select, test, train, n, rule, train_classes=classes))
        for rule in RULES
    }
    few = test[: max(16, min(N_TEST, 40_000_000 // n_train))]
    all_pairs = N_TEST / len(few) * seconds(lambda: distances(few, train).mean(axis=0))
    plain = n / 50 * seconds(lambda: plain_coverage(test, train, 50))
    return {
        "n_chosen": n,
        **{f"{rule}_s": t for rule, t in times.items()},
        "nearest_ratio_to_all_pairs": all_pairs / times["nearest"],
        "coverage_ratio_to_plain": plain / times["coverage"],
    }


if __name__ == "__main__":
    over_training_sets(__doc__ or "", one, {"n_test": N_TEST})
