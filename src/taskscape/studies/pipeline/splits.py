"""Which classes to train on, to validate on and to test on, where the data do not say."""

from dataclasses import replace

import numpy as np

from taskscape.pools import SPLITS, ClassPool
from taskscape.studies.pipeline.config import TaskSettings

__all__ = ["with_splits"]


def with_splits(pool: ClassPool, tasks: TaskSettings, seed: int) -> tuple[ClassPool, list[str]]:
    """The pool with training, validation and test classes, and what was done in words.

    Splits that the data have stay as they are. Missing ones are taken by chance: whole groups of
    classes where every split can have enough of them, else single classes.
    """
    shares = {"test": tasks.test_share, "val": tasks.val_share}
    if pool.splits is None:
        return _dealt(pool, np.arange(len(pool)), shares, tasks.n_way, seed)
    missing = {s: share for s, share in shares.items() if s not in pool.splits and share > 0}
    if not missing or "train" not in pool.splits:
        return pool, []
    return _dealt(pool, pool.classes_in("train"), missing, tasks.n_way, seed)


def _dealt(
    pool: ClassPool, classes: np.ndarray, shares: dict[str, float], n_way: int, seed: int
) -> tuple[ClassPool, list[str]]:
    """Give shares of these classes to other splits; the rest is for training."""
    wanted = {split: share for split, share in shares.items() if share > 0}
    rng = np.random.default_rng(seed)
    names = np.asarray(pool.class_names if pool.groups is None else pool.groups)[classes]
    by = "class" if pool.groups is None else "group"
    found = _deal(names, wanted, rng)
    if by == "group" and min(found.count(s) for s in ("train", *wanted)) < n_way:
        by = "class"
        found = _deal(np.asarray(pool.class_names)[classes], wanted, rng)
    splits = list(pool.splits or ("",) * len(pool))
    for c, split in zip(classes.tolist(), found, strict=True):
        splits[c] = split
    counts = ", ".join(f"{splits.count(s)} {s}" for s in SPLITS if s in splits)
    what = (
        "no training, validation or test"
        if pool.splits is None
        else f"no {' and no '.join(wanted)}"
    )
    return replace(pool, splits=tuple(splits)), [
        f"The data name {what} classes; they were dealt out by {by} with seed {seed}: {counts}."
    ]


def _deal(units: np.ndarray, shares: dict[str, float], rng: np.random.Generator) -> list[str]:
    """A split for each class; classes of one unit stay together."""
    distinct, sizes = np.unique(units, return_counts=True)
    split_of: dict[str, str] = {}
    order = rng.permutation(len(distinct)).tolist()
    for split, share in shares.items():
        need = round(share * len(units))
        for i in order:
            if need <= 0:
                break
            # a group that is far too large would leave little to train on
            if str(distinct[i]) not in split_of and sizes[i] <= 1.5 * need:
                split_of[str(distinct[i])] = split
                need -= int(sizes[i])
    return [split_of.get(str(unit), "train") for unit in units]
