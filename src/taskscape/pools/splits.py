"""Which classes are for training, validation and testing: named by the user, or dealt by chance."""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from taskscape.arguments import Seed, check_number, check_seed, check_whole, public
from taskscape.errors import DataError
from taskscape.io.tables import read_csv
from taskscape.pools.arrays import as_numpy
from taskscape.pools.pool import SPLITS, ClassPool, few_names, left_out, one_split, with_notes

_CLASS_COLUMNS = ("class", "class_name", "name", "label")


@public
def split_classes(
    pool: ClassPool,
    seed: Seed = 0,
    *,
    test_share: float = 0.2,
    val_share: float = 0.2,
    n_way: int = 5,
) -> ClassPool:
    """The pool with training, validation and test classes, dealt out by chance.

    Splits that the pool has stay, and only missing ones are taken from its training classes. Whole
    groups go to one split where every split can have ``n_way`` classes or more that way, else
    single classes. ``pool.info["notes"]`` tells what was done, and `taskscape run` does the same.

    >>> pool = ClassPool.from_classes({str(c): np.zeros((3, 2)) for c in range(20)})
    >>> split_classes(pool, seed=0)
    ClassPool('pool': 20 classes, 12 train, 4 val, 4 test, 60 samples of 2 features)
    """
    check_number(test_share, "test_share", 0, 0.8)
    check_number(val_share, "val_share", 0, 0.8)
    check_whole(n_way, "n_way", 1)
    dealt, notes = deal_splits(pool, check_seed(seed), test_share, val_share, n_way)
    return with_notes(dealt, *notes)


def deal_splits(
    pool: ClassPool, seed: int, test_share: float, val_share: float, n_way: int
) -> tuple[ClassPool, list[str]]:
    """What :func:`split_classes` does, with the notes apart."""
    splits = list(pool.splits or ("train",) * len(pool))
    shares = {"test": test_share, "val": val_share}
    given = {s: share for s, share in shares.items() if s not in splits and share > 0}
    if pool.splits is not None and (not given or "train" not in splits):
        return pool, []
    classes = np.flatnonzero(np.asarray(splits) == "train")
    rng = np.random.default_rng(seed)
    by = "class" if pool.groups is None else "group"
    dealt = _deal(np.asarray(pool.groups or pool.class_names)[classes], given, rng)
    if by == "group" and min(dealt.count(s) for s in ("train", *given)) < n_way:
        by = "class"
        dealt = _deal(np.asarray(pool.class_names)[classes], given, rng)
    for c, split in zip(classes.tolist(), dealt, strict=True):
        splits[c] = split
    counts = ", ".join(f"{splits.count(s)} {s}" for s in SPLITS if s in splits)
    what = (
        "no training, validation or test" if pool.splits is None else f"no {' and no '.join(given)}"
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


# -- named by the user --------------------------------------------------------------------------


def named_splits(
    pool: ClassPool, splits: Any = None, groups: Any = None, dropped: Iterable[str] = ()
) -> ClassPool:
    """The pool with these splits and groups: by name of the class, or one per class in order.

    ``splits`` may be a dict, a sequence, or the path of a CSV file with the columns ``class`` and
    ``split``, such as the ``data/classes.csv`` of a study; an empty split leaves a class out.
    ``dropped`` names classes that may be named too, since they were left out before.
    """
    if groups is not None:
        pool = replace(pool, groups=tuple(_by_class(pool, groups, "groups", "group", dropped)))
    if splits is None:
        return pool
    named = _by_class(pool, splits, "splits", "split", dropped)
    kept = [c for c, split in enumerate(named) if split]
    if not kept:
        raise DataError("splits leaves out all classes; name train, val or test for some.")
    read = ("train" if not split else one_split(split) for split in named)
    given = replace(pool, splits=tuple(read))
    if len(kept) == len(pool):
        return given
    note = f"{len(pool) - len(kept):,} of {len(pool):,} classes were left out: they have no split."
    return with_notes(given.subset(kept), note)


def _by_class(
    pool: ClassPool, values: Any, argument: str, column: str, dropped: Iterable[str]
) -> list[str]:
    """A text for each class of the pool."""
    where = argument
    if isinstance(values, str | os.PathLike):
        where = os.fspath(values)
        values = _read_class_table(values, column)
    if not isinstance(values, Mapping):
        texts = ["" if v is None else str(v) for v in as_numpy(values, argument).tolist()]
        if len(texts) != len(pool):
            raise DataError(
                f"{argument} has {len(texts)} entries for the {len(pool)} classes of "
                f"{pool.name!r}; give one for each, in the order of pool.class_names, or a dict of "
                f"class: {column}."
            )
        return texts
    by_name = {str(name): "" if value is None else str(value) for name, value in values.items()}
    known = {*pool.class_names, *dropped}
    unknown = next((name for name in by_name if name not in known), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, pool.class_names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {few_names(pool.class_names)}."
        raise DataError(f"{where}: pool {pool.name!r} has no class {unknown!r}; {hint}")
    missing = [name for name in pool.class_names if name not in by_name]
    if missing:
        remedy = "; an empty one leaves a class out" if column == "split" else ""
        raise DataError(
            f"{where} has no {column} for {len(missing)} of the {len(pool)} classes of "
            f"{pool.name!r}, such as {few_names(missing)}. Give one for each class{remedy}."
        )
    return [by_name[name] for name in pool.class_names]


def _read_class_table(path: str | os.PathLike[str], column: str) -> dict[str, str]:
    """The split or group of each class in a CSV file."""
    expected = f"expected a CSV file with the columns class and {column}"
    table = read_csv(path, expected, column, any_case=True)
    of_class = next((name for name in _CLASS_COLUMNS if name in table.columns), "class")
    table.need(of_class)
    by_name: dict[str, str] = {}
    for row, name in enumerate(table.columns[of_class]):
        value = table.columns[column][row]
        if by_name.setdefault(name, value) != value:
            raise DataError(
                f"{table.place(row)}: class {name!r} is in both {by_name[name]!r} and {value!r}. "
                "Splits and groups are of classes: each class belongs to one."
            )
    return by_name


def drop_small_classes(pool: ClassPool, min_samples: Any) -> ClassPool:
    """The pool without the classes that have fewer samples, with a note that says so."""
    check_whole(min_samples, "min_samples", 1)
    small = np.flatnonzero(pool.counts < min_samples)
    if len(small) == len(pool):
        raise DataError(
            f"min_samples={min_samples}: the largest class of {pool.name!r} has "
            f"{pool.counts.max()} samples, so that none is left. Lower it."
        )
    if not small.size:
        return pool
    names = [f"{pool.class_names[c]!r} ({pool.counts[c]})" for c in small]
    what = f"of {len(pool):,} classes have fewer than {min_samples} samples"
    kept = pool.subset(np.flatnonzero(pool.counts >= min_samples))
    return with_notes(kept, *left_out(names, what))
