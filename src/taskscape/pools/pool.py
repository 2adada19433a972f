"""ClassPool: labelled samples grouped by class, the place all tasks draw from."""

import hashlib
import os
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike

from taskscape.arguments import check_whole, refuse_masked
from taskscape.errors import DataError
from taskscape.io.files import check_output
from taskscape.notebook import ShownInNotebooks

SPLITS = ("train", "val", "test")
_SPLIT_WORDS = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}  # fmt: skip
_BLOCK_BYTES = 1 << 26
_SHOWN = 5
PHOTOGRAPHS = (
    "The samples are colour pictures as they are. Distances between pixels say little about "
    "photographs: open them with an encoder, a network that makes features of them "
    "(docs/own-encoder.md)."
)
"""Of colour pictures that were opened without an encoder."""


def split_named(word: str) -> str | None:
    """The split that a word stands for, if it stands for one.

    >>> split_named("Validation")
    'val'
    """
    return _SPLIT_WORDS.get(word.strip().lower())


def parse_split(split: str) -> tuple[str, ...]:
    """Read a split such as ``"train"`` or ``"train+val"``; common synonyms are understood.

    >>> parse_split("train+validation")
    ('train', 'val')
    """
    names = []
    for word in str(split).split("+"):
        name = split_named(word)
        if name is None:
            raise DataError(
                f"split={split!r}: {word.strip()!r} is not a split. "
                "Use 'train', 'val', 'test', or several joined by '+', such as 'train+val'."
            )
        names.append(name)
    return tuple(dict.fromkeys(names))


def one_split(split: str) -> str:
    """The split of a class, which is one alone.

    >>> one_split("validation")
    'val'
    """
    first, *others = parse_split(split)
    if others:
        raise DataError(f"split={split!r} of a class: every class belongs to one split alone.")
    return first


@dataclass(frozen=True, eq=False, repr=False)
class ClassPool(ShownInNotebooks):
    """Samples grouped by class, with an optional group and split for each class.

    The samples of class ``c`` are the rows ``starts[c] : starts[c] + counts[c]`` of ``samples``, so
    a pool of some of the classes shares its parent's array. Images are uint8,
    grey ``(rows, height, width)`` or colour ``(rows, height, width, 3)``; anything else is a
    feature vector ``(rows, dims)`` of floats. Build one with :func:`taskscape.load_pool`,
    :meth:`from_arrays` or :meth:`from_classes`.
    """

    name: str
    samples: Shaped[np.ndarray, "rows *shape"]
    starts: Int[np.ndarray, "classes"]
    counts: Int[np.ndarray, "classes"]
    class_names: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    splits: tuple[str, ...] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    """Where the data came from and how it was made; never part of the fingerprint."""
    class_digests: tuple[str, ...] | None = None
    """Content hash of each class where already known (a cache knows them); else computed lazily."""
    sample_names: tuple[str, ...] | None = None
    """What each row of ``samples`` is called, such as its file; never part of the fingerprint."""
    given_rows: Int[np.ndarray, "rows"] | None = None
    """Which row of the arrays, table or dataset that were opened each row of ``samples`` is; None:
    the same one. Never part of the fingerprint."""
    encoder: Any = None
    """What made features of the samples, for targets of raw ones; not stored."""

    def __post_init__(self) -> None:
        self._check_shapes()
        if self.class_digests is None:  # known digests mean that the samples were checked before
            self._check_finite()

    def _check_shapes(self) -> None:
        refuse_masked(self.samples, "samples")
        n = len(self.class_names)
        if n == 0:
            raise DataError(f"pool {self.name!r} has no classes.")
        for label, values in (("groups", self.groups), ("splits", self.splits)):
            if values is not None and len(values) != n:
                raise DataError(f"{label} has {len(values)} entries for {n} classes.")
        if self.sample_names is not None and len(self.sample_names) != len(self.samples):
            raise DataError(
                f"sample_names has {len(self.sample_names)} names for {len(self.samples)} samples."
            )
        if self.splits is not None and not set(self.splits) <= set(SPLITS):
            odd = min(set(self.splits) - set(SPLITS))
            raise DataError(f"splits: {odd!r} is not one of {', '.join(map(repr, SPLITS))}.")
        if len(set(self.class_names)) < n:
            twice = Counter(self.class_names).most_common(1)[0][0]
            raise DataError(f"class name {twice!r} is used twice; class names must differ.")
        if 0 in self.sample_shape:
            raise DataError(f"samples of shape {self.sample_shape} hold no numbers.")
        empty = np.flatnonzero(self.counts < 1)
        if empty.size:
            raise DataError(f"class {self.class_names[empty[0]]!r} has no samples.")
        if self.is_images:
            if self.samples.ndim == 4 and self.samples.shape[3] != 3:
                raise DataError(
                    f"colour images must have 3 channels last; samples have shape "
                    f"{self.samples.shape[1:]}. Move the channels last, or make them grey."
                )
        elif self.samples.ndim != 2 or self.samples.dtype.kind != "f":
            raise DataError(
                f"samples have shape {self.samples.shape} and type {self.samples.dtype}; expected "
                "uint8 images (rows, height, width[, 3]) or float features (rows, dims)."
            )

    def _check_finite(self) -> None:
        if self.samples.dtype.kind != "f":
            return
        for c, name in enumerate(self.class_names):
            bad = np.flatnonzero(~np.isfinite(self.samples_of(c)).all(axis=1))
            if bad.size:
                raise DataError(
                    f"class {name!r} has NaN or infinite features in {bad.size} of its "
                    f"{self.counts[c]} samples (the first is sample {bad[0]}). "
                    "Remove or impute them; what is beyond 3e38 counts as infinite: scale it."
                )

    # -- construction ---------------------------------------------------------------------------

    @classmethod
    def from_classes(cls, classes: Mapping[str, ArrayLike], **options: Any) -> "ClassPool":
        """A pool from one array of samples per class.

        ``options`` are ``name``, ``info``, ``skip_damaged``, and ``groups`` and ``splits`` in the
        order of the classes.

        >>> ClassPool.from_classes({"a": np.zeros((3, 2)), "b": np.ones((4, 2))})
        ClassPool('pool': 2 classes, 7 samples of 2 features)
        """
        from taskscape.pools.arrays import load_classes  # which makes pools of this class

        return load_classes(classes, **{"name": "pool", **options})

    @classmethod
    def from_arrays(cls, X: ArrayLike, y: ArrayLike, **options: Any) -> "ClassPool":
        """A pool from samples ``X`` and labels ``y``; classes are the sorted distinct labels.

        ``options`` are ``name``, ``info``, ``skip_damaged``; ``class_names``, ``groups`` and
        ``splits``, with an entry per class in that order, or indexed by whole-number labels; and
        ``sample_names``, with one per sample.

        >>> ClassPool.from_arrays(np.zeros((4, 2)), np.array(["cat", "dog", "cat", "dog"]))
        ClassPool('arrays': 2 classes, 4 samples of 2 features)
        """
        from taskscape.pools.arrays import load_arrays  # which makes pools of this class

        return load_arrays(X, y, **options)

    # -- reading --------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    def __repr__(self) -> str:
        shape = self.sample_shape
        kind = "×".join(map(str, shape)) if self.is_images else f"{shape[0]} features"
        splits = self.splits or ()
        counts = "".join(f", {splits.count(s)} {s}" for s in SPLITS if s in splits)
        return (
            f"ClassPool({self.name!r}: {len(self):,} classes{counts}, "
            f"{self.n_samples:,} samples of {kind})"
        )

    def parts(self) -> list[dict[str, Any]]:
        """Classes and samples by split and group, in the order of splits: rows of a table."""
        splits, groups = self.splits or ("",) * len(self), self.groups or ("",) * len(self)
        counts: dict[tuple[str, str], list[int]] = {}
        for key, count in zip(zip(splits, groups, strict=True), self.counts.tolist(), strict=True):
            counts.setdefault(key, []).append(count)
        order = (*SPLITS, "")
        return [
            {"split": s, "group": g, "classes": len(own), "samples": sum(own)}
            for (s, g), own in sorted(counts.items(), key=lambda r: (order.index(r[0][0]), r[0][1]))
        ]

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        return self.parts()

    def to_dict(self) -> dict[str, Any]:
        """What the pool has, in numbers and words."""
        return {
            "name": self.name,
            "classes": len(self),
            "samples": self.n_samples,
            "kind": "images" if self.is_images else "features",
            "sample_shape": self.sample_shape,
            "samples_per_class": [int(self.counts.min()), int(self.counts.max())],
            "fingerprint": self.fingerprint,
            "parts": self.parts(),
        }

    @property
    def is_images(self) -> bool:
        """Whether samples are images (uint8) rather than feature vectors."""
        return self.samples.dtype == np.uint8 and self.samples.ndim in (3, 4)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.samples.shape[1:]

    @property
    def n_samples(self) -> int:
        """How many samples the classes of this pool have in all."""
        return int(self.counts.sum())

    @property
    def sources(self) -> tuple[str, ...] | None:
        """The source of each class of a joined pool; None for a pool from one source."""
        if "sources" not in self.info or self.groups is None:
            return None
        return tuple(group.split("/")[0] for group in self.groups)

    def class_index(self, name: Any) -> int:
        """The index of a class given its name, or its index."""
        if not isinstance(name, str):
            return check_whole(name, "class", 0, len(self) - 1)
        try:
            return self._index_of_name[name]
        except KeyError:
            raise DataError(
                f"no class {name!r} in pool {self.name!r}; it has {len(self)} classes such as "
                f"{', '.join(map(repr, self.class_names[:3]))}."
            ) from None

    @cached_property
    def _index_of_name(self) -> dict[str, int]:
        return {name: c for c, name in enumerate(self.class_names)}

    def samples_of(self, which: int | str) -> Shaped[np.ndarray, "count *shape"]:
        """All samples of a class, by index or name, as stored; a view, not a copy."""
        c = self.class_index(which)
        return self.samples[self.starts[c] : self.starts[c] + self.counts[c]]

    @property
    def rows(self) -> Int[np.ndarray, "n_samples"]:
        """The rows of ``samples`` that belong to the classes of this pool, class by class."""
        ends = zip(self.starts, self.counts, strict=True)
        return np.concatenate([np.arange(start, start + count) for start, count in ends])

    def given(self, rows: Int[np.ndarray, "*n"]) -> Int[np.ndarray, "*n"]:
        """Rows of what was given to :func:`load_pool`, from rows of ``samples``.

        They are numbered as in your arrays, table or dataset; of an npz with arrays for each split,
        and of a dict of classes, one array after another. Pictures in folders, and known data sets,
        have no other order than that of ``samples``.
        """
        if "sources" in self.info:
            raise DataError(
                f"pool {self.name!r} is joined from several sources, and the same row may be in "
                "each. Give them to load_pool as one (arrays: np.concatenate; torch: "
                "ConcatDataset), with groups=… for the sources."
            )
        return rows if self.given_rows is None else self.given_rows[rows]

    def names_of(self, which: int | str) -> tuple[str, ...]:
        """What the samples of a class are called, such as their files; a number where unknown."""
        c = self.class_index(which)
        if self.sample_names is None:
            return tuple(map(str, range(self.counts[c])))
        return self.sample_names[self.starts[c] : self.starts[c] + self.counts[c]]

    def sample_index(self, which: int | str, name: Any) -> int:
        """Which of the samples of a class has this name; a path may be cut short in front.

        A number stands for itself.

        Where the pool has ``cat/01.png`` of the class ``cat``, ``01.png`` is enough, and
        ``images/cat/01.png`` is understood too.
        """
        c = self.class_index(which)
        if not isinstance(name, str):
            return check_whole(name, "sample", 0, int(self.counts[c]) - 1)
        if self.sample_names is None:
            raise DataError(
                f"{name!r}: the samples of pool {self.name!r} have no names; give their numbers, "
                f"from 0 to {self.counts[c] - 1} for class {self.class_names[c]!r}."
            )
        asked, names = f"/{name}", self.names_of(c)
        matching = [
            i
            for i in self._samples_by_end.get((c, name.rsplit("/", 1)[-1]), [])
            if asked.endswith(f"/{names[i]}") or f"/{names[i]}".endswith(asked)
        ]
        if len(matching) != 1:
            problem = f"names {len(matching)} samples" if matching else "is not a sample"
            raise DataError(
                f"{name!r} {problem} of class {self.class_names[c]!r}; it has {len(names)}, such "
                f"as {', '.join(map(repr, names[:3]))}."
            )
        return matching[0]

    @cached_property
    def _samples_by_end(self) -> dict[tuple[int, str], list[int]]:
        """The samples of each class by the last part of their names."""
        by_end: dict[tuple[int, str], list[int]] = {}
        for c in range(len(self)):
            for i, name in enumerate(self.names_of(c)):
                by_end.setdefault((c, name.rsplit("/", 1)[-1]), []).append(i)
        return by_end

    def locate_row(self, row: int) -> tuple[int, int]:
        """The class that a row of ``samples`` belongs to, and which of its samples it is."""
        c = int(np.flatnonzero((self.starts <= row) & (row < self.starts + self.counts))[0])
        return c, row - int(self.starts[c])

    def take(self, rows: Int[np.ndarray, "*batch"]) -> Float[np.ndarray, "..."]:
        """The given rows of ``samples`` as float32; the pixels of images scaled to [0, 1]."""
        taken = np.asarray(self.samples[rows])
        if self.is_images:
            return taken.astype(np.float32) / np.float32(255)
        return taken.astype(np.float32, copy=False)

    def classes_in(self, split: str | None = None) -> Int[np.ndarray, "found"]:
        """Indices of the classes of a split such as ``"train"`` or ``"train+val"``; None: all."""
        if split is None:
            return np.arange(len(self))
        names = parse_split(split)
        if self.splits is None:
            raise DataError(
                f"split={split!r}: pool {self.name!r} has no splits. Leave split out, or give it "
                "some: load_pool(…, splits=…), folders train/val/test, or split_classes(pool); on "
                "the command line, `taskscape data save` with --split-file or --deal."
            )
        missing = [s for s in names if s not in self.splits]
        if missing:
            have = ", ".join(s for s in SPLITS if s in self.splits)
            raise DataError(
                f"split={split!r}: pool {self.name!r} has no {missing[0]!r} classes; it has {have}."
            )
        return np.flatnonzero(np.isin(self.splits, names))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Keep the pool as a folder of its own, which :func:`taskscape.load_pool` opens.

        What was decided for it stays with it: splits, sizes, classes and samples left out. A pool
        that is there is replaced, anything else is not.
        """
        from taskscape.pools.cache import POOL, write_pool

        check_output(folder, POOL)
        write_pool(self, Path(folder), replace=True)

    def subset(self, classes: Int[np.ndarray, "some"] | Sequence[Any]) -> "ClassPool":
        """A pool of only these classes (indices or names); it shares the samples."""
        index = [self.class_index(c) for c in classes]
        rows = np.array(index, dtype=np.int64)
        return replace(
            self,
            starts=self.starts[rows],
            counts=self.counts[rows],
            class_names=tuple(self.class_names[i] for i in index),
            groups=_pick(self.groups, index),
            splits=_pick(self.splits, index),
            class_digests=_pick(self.__dict__.get("digests", self.class_digests), index),
        )

    def split(self, split: str) -> "ClassPool":
        """A pool of only the classes of a split such as ``"train+val"``."""
        return replace(self.subset(self.classes_in(split)), name=f"{self.name}[{split}]")

    def require(self, n_samples: int, why: str, classes: Sequence[int] | None = None) -> None:
        """Raise an error naming the classes that have fewer than ``n_samples`` samples."""
        index = np.arange(len(self)) if classes is None else np.asarray(classes)
        short = index[self.counts[index] < n_samples]
        if short.size:
            names = ", ".join(f"{self.class_names[c]!r} has {self.counts[c]}" for c in short[:5])
            more = f", and {short.size - 5} more classes have too few" if short.size > 5 else ""
            raise DataError(
                f"{why} needs {n_samples} samples per class; {names}{more}. "
                "Lower the numbers or drop these classes."
            )

    # -- handing over ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """What another process is handed: of samples mapped from a file, where they are."""
        state, samples = {**self.__dict__, "encoder": None}, self.samples
        if isinstance(samples, np.memmap) and samples.filename is not None:
            file, end = Path(samples.filename), samples.offset + samples.nbytes
            if samples.flags.c_contiguous and file.exists() and file.stat().st_size == end:
                state["samples"] = (file, samples.dtype, "r", samples.offset, samples.shape)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        mapped = state["samples"]
        if isinstance(mapped, tuple):
            if not mapped[0].exists():
                raise DataError(
                    f"the samples of pool {state['name']!r} lie in {mapped[0]}, which "
                    f"{socket.gethostname()} does not have. Let TASKSCAPE_CACHE name a folder that "
                    "all machines share."
                )
            state = {**state, "samples": np.memmap(*mapped)}
        self.__dict__.update(state)

    # -- identity -------------------------------------------------------------------------------

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """The content hash of each class: equal for classes of the same samples in one order."""
        return self.hash_classes() if self.class_digests is None else self.class_digests

    def hash_classes(self) -> tuple[str, ...]:
        """The content hash of each class, from the samples as they are now."""
        return tuple(_digest(self.samples_of(c)) for c in range(len(self)))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the classes, their samples, names, groups and splits, in order.

        The same content gives the same fingerprint on any machine; the pool's name, and where its
        files lie, do not enter.
        """
        h = hashlib.blake2b(digest_size=16)
        h.update(f"{self.samples.dtype.str} {self.sample_shape}".encode())
        for c, digest in enumerate(self.digests):
            group = "" if self.groups is None else self.groups[c]
            split = "" if self.splits is None else self.splits[c]
            h.update(repr((self.class_names[c], group, split, digest)).encode())
        return h.hexdigest()


# -- notes: what was left out of a pool, dealt out or changed, in words -------------------------


def few_names(names: Sequence[Any], most: int = 3) -> str:
    """The first names, quoted, for a message.

    >>> few_names(["a", "b", "c"], 2)
    "'a', 'b', …"
    """
    return (", ".join(map(repr, names[:most])) or "nothing") + (", …" if len(names) > most else "")


def left_out(names: Sequence[str], what: str) -> list[str]:
    """A note on what was left out, with a few of the names; none where nothing was.

    >>> left_out(["a.png", "b.png"], "of 30 pictures could not be read")
    ['2 of 30 pictures could not be read and were left out: a.png, b.png.']
    """
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    text = f"{len(names):,} {what} and were left out: {', '.join(names[:_SHOWN])}{more}."
    return [text] if names else []


def with_notes(pool: ClassPool, *notes: str) -> ClassPool:
    """The pool with more in ``info["notes"]``, which commands and reports show."""
    return replace(pool, info={**pool.info, "notes": [*pool.info.get("notes", ()), *notes]})


def _pick(values: Sequence[str] | None, index: Iterable[int]) -> tuple[str, ...] | None:
    return None if values is None else tuple(str(values[i]) for i in index)


def as_samples(X: ArrayLike) -> Shaped[np.ndarray, "rows *shape"]:
    """Bring samples to what a pool holds: uint8 images or float features."""
    X = np.asarray(X)
    if X.dtype == object:
        raise DataError("samples are Python objects, not numbers; are the rows of equal length?")
    if X.dtype.kind not in "uifb":
        raise DataError(f"samples have type {X.dtype}; expected numbers.")
    if X.ndim in (3, 4) and X.dtype != np.uint8:
        return _as_pixels(X)
    if X.ndim == 2 and X.dtype.kind != "f":
        return X.astype(np.float32)
    if X.dtype != np.float64:
        return X
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is reported as that
        return X.astype(np.float32)


def _as_pixels(X: Shaped[np.ndarray, "rows *shape"]) -> Shaped[np.ndarray, "rows *shape"]:
    if X.size and not np.isfinite(X).all():
        raise DataError("images have NaN or infinite pixels.")
    low, high = (float(X.min()), float(X.max())) if X.size else (0.0, 0.0)
    if low < 0 or high > 255:
        raise DataError(
            f"images have pixels from {low:g} to {high:g}; expected 0 to 255, or 0 to 1. Undo any "
            "normalisation, or pass flat feature vectors (rows, dims)."
        )
    scale = 255 if X.dtype.kind in "fb" and high <= 1 else 1
    return np.round(X * np.float32(scale)).astype(np.uint8)


def _digest(samples: Shaped[np.ndarray, "rows *shape"]) -> str:
    h = hashlib.blake2b(str(samples.shape).encode(), digest_size=16)
    step = max(1, _BLOCK_BYTES // max(1, samples[:1].nbytes))
    for start in range(0, len(samples), step):
        block = np.ascontiguousarray(samples[start : start + step])
        h.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data)
    return h.hexdigest()
