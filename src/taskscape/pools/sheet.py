"""A picture of a pool: sample images of its classes, or a map of its features."""

import os
from typing import TYPE_CHECKING

import numpy as np

from taskscape.io.pictures import save_picture
from taskscape.plain_text import for_matplotlib
from taskscape.pools.pool import SPLITS, ClassPool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS, _ROWS = 20, 40
_COLOURS = {"train": "#0072B2", "val": "#E69F00", "test": "#D55E00", "": "#0072B2"}
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""


def contact_sheet(pool: ClassPool, path: str | os.PathLike[str]) -> None:
    """Write a PNG: for images a row of classes per group, for features a two-dimensional map."""
    figure = _images(pool) if pool.is_images else _features(pool)
    figure.axes[0].set_title(for_matplotlib(repr(pool)[len("ClassPool(") : -1]), fontsize=10)
    save_picture(figure, path, dpi=150, facecolor="white", bbox_inches="tight", pad_inches=0.1)


def _rows(pool: ClassPool) -> list[tuple[str, str, list[int]]]:
    """(split, group, classes) in the order of the sheet, at most ``_ROWS`` of them."""
    rows: dict[tuple[str, str], list[int]] = {}
    splits = pool.splits or ("",) * len(pool)
    groups = pool.groups or [str(c // _COLUMNS) for c in range(len(pool))]  # a split fills several
    for c, place in enumerate(zip(splits, groups, strict=True)):
        rows.setdefault(place, []).append(c)
    shown = sorted(rows, key=lambda place: (*SPLITS, "").index(place[0]))[:_ROWS]
    return [(*place, rows[place]) for place in shown]


def _images(pool: ClassPool) -> "Figure":
    from matplotlib.figure import Figure

    rows = _rows(pool)
    height, width = pool.sample_shape[:2]
    gap = max(1, width // 14)
    tall, wide = height + gap, width + gap
    figure = Figure(figsize=(10, 0.9 + 0.42 * len(rows) * height / width), layout="constrained")
    axes = figure.subplots()
    shape = (len(rows) * tall, _COLUMNS * wide, *pool.sample_shape[2:])
    sheet = np.full(shape, 255, dtype=np.uint8)
    for r, (_, _, classes) in enumerate(rows):
        picks = np.linspace(0, len(classes) - 1, min(_COLUMNS, len(classes))).astype(int)
        for column, c in enumerate(np.asarray(classes)[picks]):
            image = pool.samples_of(int(c))[column % pool.counts[c]]
            sheet[r * tall :, column * wide :][:height, :width] = image
    axes.imshow(sheet, cmap="gray", interpolation="nearest", vmin=0, vmax=255)
    labels = [" ".join(p for p in (s, pool.groups and g, f"({len(c)})") if p) for s, g, c in rows]
    middles = [r * tall + height / 2 for r in range(len(rows))]
    axes.set_yticks(middles, list(map(for_matplotlib, labels)))
    for tick, (s, _, _) in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(_COLOURS[s])
    axes.set_xticks([])
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    return figure


def _features(pool: ClassPool) -> "Figure":
    from matplotlib.figure import Figure
    from sklearn.decomposition import PCA

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots()
    means = np.stack([pool.samples_of(c).astype(np.float64).mean(axis=0) for c in range(len(pool))])
    n = min(2, *means.shape)
    flat = PCA(n_components=n, random_state=0).fit(means)
    where = np.pad(flat.transform(means), ((0, 0), (0, 2 - n)))
    splits = np.asarray(pool.splits or ("",) * len(pool))
    for split in (s for s in (*SPLITS, "") if s in splits):
        chosen = splits == split
        axes.scatter(
            where[chosen, 0], where[chosen, 1], s=26, color=_COLOURS[split], label=split or None
        )
    if len(pool) <= 120:
        for c, name in enumerate(pool.class_names):
            text, offset = for_matplotlib(name), "offset points"
            axes.annotate(text, where[c], fontsize=5, xytext=(3, 2), textcoords=offset)
    share = flat.explained_variance_ratio_
    axes.set_xlabel(f"first principal component of the class means ({share[0]:.0%})")
    axes.set_ylabel(f"second ({share[1]:.0%})" if n > 1 else "")
    if pool.splits is not None:
        axes.legend(frameon=False, loc="upper right")  # the best place is slow to find
    axes.spines[["top", "right"]].set_visible(False)
    return figure
