"""What the ledgers of sizes say, as a figure.

    python -m experiments.tables.representation

Draws ``docs/images/sizes.png`` from ``sizes.jsonl`` (fits; of seeds that it does not have, those of
``representation.jsonl``) and ``sizes-targets.jsonl`` (what choosing by them gains on rotated
targets).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np

from experiments.representation import agreement
from experiments.tables import DOCS, POOLS, ledger

FITS, EARLIER_FITS, TARGETS = "sizes", "representation", "sizes-targets"
IMAGE = DOCS / "images" / "sizes.png"
IMAGE_THEMES, TASK_THEMES = (8, 16, 32, 64), (4, 8, 16, 32)
N_TARGETS = 28
"""Groups of the embedded pool: one that is not among them was not finished."""

Size = tuple[int, int]
Entry = dict[str, Any]


def all_fits(pool: str) -> dict[Size, list[Entry]]:
    """The fits to all classes of a data set by size; of a seed that was run twice, today's."""
    by_size = fits_of([*ledger(EARLIER_FITS), *ledger(FITS)], pool)
    sizes = [(K, L) for K in IMAGE_THEMES for L in TASK_THEMES]
    return {size: by_size[size] for size in sizes if size in by_size}


def fits_of(entries: Sequence[Entry], pool: str) -> dict[Size, list[Entry]]:
    """The fits of a ledger to all classes of a data set by size, a fit for each seed."""
    by_seed: dict[Size, dict[int, Entry]] = {}
    for entry in entries:
        cell = entry["cell"]
        if (cell["pool"], cell["ensemble"], cell["class_share"]) == (pool, 1, 1.0):
            size = cell["image_themes"], cell["task_themes"]
            by_seed.setdefault(size, {})[cell["seed"]] = entry
    return {size: [own[s] for s in sorted(own)] for size, own in by_seed.items() if own}


def values(fits: Sequence[Entry], name: str) -> np.ndarray:
    """A number of every fit."""
    return np.array([fit[name] for fit in fits], dtype=float)


def gains(entries: Sequence[Entry]) -> dict[Size, np.ndarray]:
    """What tasks chosen by each size gain on every target, as a share of queries."""
    by_target: dict[Size, dict[str, float]] = {}
    for entry in entries:
        cell = entry["cell"]
        own = by_target.setdefault((cell["image_themes"], cell["task_themes"]), {})
        for tried in entry["ways"]:
            if tried["way"] == "task_themes":
                own[cell["target"]] = tried["gain"]
    return {size: np.array(list(own.values())) for size, own in by_target.items() if own}


def below_the_best(by_size: Mapping[Size, list[Entry]]) -> dict[Size, float]:
    """How far the validation bound of each size is below that of the best."""
    means = {size: values(own, "validation_bound").mean() for size, own in by_size.items()}
    return {size: mean - max(means.values()) for size, mean in means.items()}


def mean_agreement(by_size: Mapping[Size, list[Entry]]) -> dict[Size, float]:
    """Over all pairs of seeds."""
    return {size: float(np.mean(agreement(own))) for size, own in by_size.items() if own[1:]}


def mean_correlation(by_size: Mapping[Size, list[Entry]]) -> dict[Size, float]:
    """Over seeds."""
    named = "correlation_with_accuracy"
    return {size: float(values(own, named).mean()) for size, own in by_size.items()}


MEASURES: Mapping[str, tuple[Callable[[Any], dict[Size, float]], str, float, float]] = {
    "fits agree\n(1: the same distances)": (mean_agreement, "Blues", 0.5, 1.0),
    "bound on new classes\n(0: the best size)": (below_the_best, "Greens", -2.0, 0.0),
    "distance predicts accuracy\n(−1: wholly)": (mean_correlation, "Oranges_r", -0.6, 0.0),
}
"""What a row of the figure shows: how it is computed, and the ends of its colours."""


def draw() -> None:
    """Every measure by size, a column for each data set, and the gains in one of their own."""
    from matplotlib import pyplot as plt

    by_gain = gains(ledger(TARGETS))
    by_gain = {size: x for size, x in by_gain.items() if len(x) >= N_TARGETS}  # comparable ones
    pools = {pool: own for pool in POOLS if (own := all_fits(pool))}
    if not pools and not by_gain:
        return
    width = len(pools) + bool(by_gain)
    figure = plt.figure(figsize=(0.9 + 2.35 * width, 6.6), layout="constrained")
    grid = figure.add_gridspec(len(MEASURES), width)
    for column, (pool, by_size) in enumerate(pools.items()):
        for row, (words, (measure, colours, low, high)) in enumerate(MEASURES.items()):
            axis = figure.add_subplot(grid[row, column])
            _heat(axis, measure(by_size), colours, (low, high), "{:z.2f}")
            if row == 0:
                axis.set_title(POOLS[pool], fontsize=11)
            if column == 0:
                axis.set_ylabel(f"{words}\n\nimage-themes K", fontsize=8)
            if row == len(MEASURES) - 1:
                axis.set_xlabel("task-themes L", fontsize=8)
    if by_gain:
        axis = figure.add_subplot(grid[0, width - 1])
        _heat_of_gains(axis, by_gain)
    figure.savefig(IMAGE, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _heat(
    axis: Any, shown: Mapping[Size, float], colours: str, ends: tuple[float, float], form: str
) -> None:
    """Sizes as squares, darker where they are better, with their numbers; empty: not measured."""
    matrix = np.array([[shown.get((K, L), np.nan) for L in TASK_THEMES] for K in IMAGE_THEMES])
    image = axis.imshow(matrix, cmap=colours, vmin=ends[0], vmax=ends[1], aspect="auto")
    axis.set_facecolor("0.93")
    axis.set_xticks(range(len(TASK_THEMES)), map(str, TASK_THEMES), fontsize=8)
    axis.set_yticks(range(len(IMAGE_THEMES)), map(str, IMAGE_THEMES), fontsize=8)
    axis.tick_params(length=0)
    for i, j in np.argwhere(np.isfinite(matrix)):
        light = np.dot(image.to_rgba(matrix[i, j])[:3], (0.3, 0.6, 0.1)) > 0.5
        axis.text(
            j, i, form.format(matrix[i, j]).replace("-", "−"), ha="center", va="center",
            fontsize=8, color="black" if light else "white",
        )  # fmt: skip


def _heat_of_gains(axis: Any, by_gain: Mapping[Size, np.ndarray]) -> None:
    means = {size: 100 * float(x.mean()) for size, x in by_gain.items()}
    most = max(1.0, *map(abs, means.values()))
    _heat(axis, means, "PRGn", (-most, most), "{:+z.1f}")
    axis.set_title("letters and symbols", fontsize=11)
    axis.set_xlabel("task-themes L", fontsize=8)
    axis.set_ylabel("chosen tasks gain on a target\n(points over random choice)", fontsize=8)


if __name__ == "__main__":
    mpl.use("agg")
    draw()
