"""Several pools as one: classes side by side, the source as the outer level of their groups.

And the classes that they have in common, by the names of groups and classes, and by looks.
"""

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped, UInt8

from taskscape.arguments import check_choice, check_kind, public
from taskscape.errors import DataError
from taskscape.pools.encode import encode_pool, own_encoder
from taskscape.pools.images import check_colour, check_image_size, images_in_shape
from taskscape.pools.pool import ClassPool

_SAME_LOOKS = 0.65
"""Mean drawings nearer than this many times the spread within a class are taken for one character.

Chosen by eye on the glyphs and Omniglot's training alphabets. There a printed and a handwritten
beta, zeta, mu and xi are at 0.57 to 0.66, each nearer than any other of the 1,623 characters; of
all pairs one in ten thousand is below 0.63, and half of the glyphs have nothing below 0.81.
"""
_SIDE = 20
_REACH = 2.2  # how many root mean square radii of the ink a normalised drawing shows, each way
_SAMPLES = 20  # of each class are looked at
_EXTREME, _MOST = 10, 0.8  # grey levels from black or white; share of the rim that is so


class LookAlikeWarning(UserWarning):
    """Classes to be tested on also stand among the training classes of another source."""


def join_pools(
    pools: Mapping[str, ClassPool],
    *,
    name: str | None = None,
    image_size: Any = None,
    colour: Any = None,
    look_alikes: str = "warn",
) -> ClassPool:
    """One pool of the classes of several, each under the name of its source.

    Groups become ``"source/group"``, or ``"source"`` where a source has none; class names that
    several sources have become ``"source/class"``. Every class keeps its split. ``pool.sources``
    has the source of each class; what is learned from all classes of a joined pool, such as
    principal components, gives every source the same weight, however many samples it has.

    Images are brought to one form, and ``pool.info["notes"]`` says what was changed: to the
    smallest height and width of the sources, or to ``image_size``; to colour if any source has it,
    unless ``colour=False``; and where some are drawings in bright ink and some in dark, to bright
    ink on black. Features must have the same number of dimensions. Images and features do not join.

    Sources may hold the same classes. Where a validation or test class of one stands among the
    training classes of another (see :func:`find_look_alikes`), ``look_alikes="warn"`` says so, also
    in ``pool.info["look_alikes"]``; ``"drop"`` leaves these training classes out, and ``"keep"``
    does not look.

    >>> digits, letters = (ClassPool.from_classes({"a": np.zeros((3, 2))}) for _ in range(2))
    >>> join_pools({"digits": digits, "letters": letters}).class_names
    ('digits/a', 'letters/a')
    """
    check_choice(look_alikes, "look_alikes", ("warn", "drop", "keep"))
    _check(pools)
    notes: list[str] = []
    leaks = [] if look_alikes == "keep" else _leaks(pools)
    if look_alikes == "drop":
        pools = _without(pools, leaks, notes)
        leaks = []
    samples = _in_one_form(pools, check_image_size(image_size), check_colour(colour), notes)
    every = list(pools.values())
    counts = np.concatenate([pool.counts for pool in every])
    joined = ClassPool(
        name=name or "+".join(pools),
        samples=samples,
        starts=np.cumsum(counts) - counts,
        counts=counts,
        class_names=_class_names(pools),
        groups=tuple(
            source if group is None else f"{source}/{group}"
            for source, pool in pools.items()
            for group in pool.groups or [None] * len(pool)
        ),
        splits=tuple(s for pool in every for s in pool.splits or ()) or None,
        sample_names=joined_sample_names(pools),
        info={
            "source": "joined",
            "sources": list(pools),
            "notes": notes,
            "look_alikes": [
                f"Validation or test classes of {source!r} are among the training classes of "
                f"{other!r}: {alike.in_common}."
                for source, other, alike in leaks
            ],
            "joined": {source: dict(pool.info) for source, pool in pools.items()},
        },
    )
    warn_of_look_alikes(joined)
    return joined


def warn_of_look_alikes(pool: ClassPool) -> None:
    """Say which held-out classes of a joined pool also stand in another source's training."""
    shared = pool.info.get("look_alikes")
    if shared:
        warnings.warn(
            f"{' '.join(shared)} A learner would know them. Leave these training classes out with "
            "join_pools(…, look_alikes='drop'), or keep them knowingly with 'keep'.",
            LookAlikeWarning,
            stacklevel=3,
        )


def _check(pools: Mapping[str, ClassPool]) -> None:
    check_kind(pools, Mapping, "pools", "Name each: {'one': …, 'other': …}.")
    if len(pools) < 2:
        raise DataError(f"join_pools needs at least two pools; it got {len(pools)}.")
    for source, pool in pools.items():
        if not isinstance(source, str) or not source or "/" in source:
            raise DataError(
                f"{source!r} cannot name a source; use text without a slash, as it is the outer "
                "level of the groups."
            )
        if not isinstance(pool, ClassPool):
            raise DataError(
                f"{source!r} is a {type(pool).__name__}, not a pool. Open it with load_pool first."
            )
    images = [source for source, pool in pools.items() if pool.is_images]
    dims = {s: pool.sample_shape[0] for s, pool in pools.items() if not pool.is_images}
    if images and dims:
        raise DataError(
            f"{images[0]!r} has images and {next(iter(dims))!r} has features; they cannot be "
            "joined. Encode the images with the network that made the features: "
            "load_pool(…, encoder=…), or `taskscape data save --encoder module:function`."
        )
    if len(set(dims.values())) > 1:
        has = ", ".join(f"{source!r} has {n} dimensions" for source, n in dims.items())
        raise DataError(f"features cannot be joined: {has}. Make all with the same network.")
    without = [source for source, pool in pools.items() if pool.splits is None]
    if without and len(without) < len(pools):
        other = next(source for source in pools if source not in without)
        raise DataError(
            f"{without[0]!r} has no splits and {other!r} has. Give {without[0]!r} a split per "
            "class (splits=…), or join without splits."
        )


def _class_names(pools: Mapping[str, ClassPool]) -> tuple[str, ...]:
    used = Counter(name for pool in pools.values() for name in pool.class_names)
    return tuple(
        f"{source}/{name}" if used[name] > 1 else name
        for source, pool in pools.items()
        for name in pool.class_names
    )


def joined_sample_names(pools: Mapping[str, ClassPool]) -> tuple[str, ...] | None:
    """The names of all samples; those of a source that has none stay empty."""
    if all(pool.sample_names is None for pool in pools.values()):
        return None
    return tuple(
        "" if pool.sample_names is None else pool.sample_names[row]
        for pool in pools.values()
        for row in pool.rows
    )


# -- one form -----------------------------------------------------------------------------------


def _in_one_form(
    pools: Mapping[str, ClassPool],
    image_size: tuple[int, int] | None,
    colour: bool | None,
    notes: list[str],
) -> Shaped[np.ndarray, "rows *shape"]:
    """The samples of all classes, one after another; what was changed is added to the notes."""
    shapes = [pool.sample_shape for pool in pools.values()]
    shape = shapes[0]
    if len(shape) > 1:
        coloured = any(len(s) == 3 for s in shapes) if colour is None else colour
        size = image_size or (min(s[0] for s in shapes), min(s[1] for s in shapes))
        shape = (*size, 3) if coloured else size
    papers = {source: paper_of(pool) for source, pool in pools.items()}
    mixed = {"dark", "bright"} <= set(papers.values())
    samples = []
    for source, pool in pools.items():
        pool, changes = _in_form(pool, shape, mixed and papers[source] == "bright", source)
        samples.append(pool.samples[pool.rows])
        notes += changes
    return np.concatenate(samples)


def _in_form(
    pool: ClassPool, shape: tuple[int, ...], invert: bool, name: str
) -> tuple[ClassPool, list[str]]:
    """The pool with its images in another shape and polarity, and what was changed, in words."""
    changes = []
    if pool.is_images:
        (height, width, *channels), (high, wide, *asked) = pool.sample_shape, shape
        if (height, width) != (high, wide):
            changes.append(f"from {height}×{width} to {high}×{wide} pixels")
        if channels != asked:
            changes.append("from grey to colour" if asked else "from colour to grey")
        if invert:
            changes.append("from dark ink on white to bright ink on black")
    if not changes:
        return pool, []
    images = np.asarray(pool.samples)
    images = images_in_shape(255 - images if invert else images, shape)
    brought = replace(pool, samples=images, class_digests=None)
    return brought, [f"{name}: brought {', '.join(changes)}."]


def pool_in_size(pool: ClassPool, size: tuple[int, int]) -> ClassPool:
    """The pool with its images in another (height, width)."""
    if not pool.is_images:
        raise DataError(
            f"image_size is for pictures; {pool.name!r} has feature vectors of "
            f"{pool.sample_shape[0]} numbers."
        )
    return _in_form(pool, (*size, *pool.sample_shape[2:]), False, "")[0]


def in_form_of(pool: ClassPool, like: ClassPool, name: str) -> tuple[ClassPool, list[str]]:
    """The pool with its images in the size, colour and polarity of another's, and as features where
    that has features and its encoder is known; what was changed."""
    encoder = None if pool.sample_shape == like.sample_shape else own_encoder(like)
    if encoder is None:
        _check({"pool": replace(like, splits=None), "target": replace(pool, splits=None)})
    shape = like.sample_shape if encoder is None else tuple(like.info["encoded_shape"])
    papers = paper_of(pool), paper_of(like)
    pool, notes = _in_form(pool, shape, None not in papers and papers[0] != papers[1], name)
    if encoder is not None:
        called = like.info["encoder"]
        pool = encode_pool(pool, encoder, encoder_name=called)
        notes.append(f"{name}: encoded by {called}, as the pool was.")
    return pool, notes


# -- look-alikes --------------------------------------------------------------------------------


def _leaks(pools: Mapping[str, ClassPool]) -> list[tuple[str, str, "LookAlikes"]]:
    """(source, other source, what its held-out classes share with the other's training classes)."""
    shared = []
    for (source, pool), (other, known) in permutations(pools.items(), 2):
        held = np.flatnonzero(np.isin(pool.splits or (), ("val", "test")))
        trained = np.flatnonzero(np.isin(known.splits or (), "train"))
        if len(held) and len(trained):
            alike = find_look_alikes(pool.subset(held), known.subset(trained))
            shared += [(source, other, alike)] if len(alike) else []
    return shared


def _without(
    pools: Mapping[str, ClassPool], leaks: list[tuple[str, str, "LookAlikes"]], notes: list[str]
) -> dict[str, ClassPool]:
    """The pools without training classes that stand in a held-out split of another source."""
    kept = {}
    for source, pool in pools.items():
        shared = [alike for _, other, alike in leaks if other == source]
        groups = {group for alike in shared for _, group in alike.groups}
        names = {n for alike in shared for n in (*alike.classes, *(p.other for p in alike.pairs))}
        of_groups = zip(pool.class_names, pool.groups or (), pool.splits or (), strict=False)
        names |= {n for n, g, s in of_groups if g in groups and s == "train"}
        classes = [c for c, name in enumerate(pool.class_names) if name not in names]
        if not classes:
            raise DataError(
                f"look_alikes='drop' would leave no class of {source!r}: all of them stand in a "
                "held-out split of another source. Do not join it."
            )
        if names:
            notes.append(
                f"{source}: {len(names)} training classes that other sources are validated or "
                "tested on were left out."
            )
        kept[source] = pool.subset(classes)
    return kept


class LookAlike(NamedTuple):
    """Two classes that look the same."""

    name: str
    other: str
    distance: float
    """Between their mean drawings, in units of the spread within a class."""


@dataclass(frozen=True, repr=False)
class LookAlikes:
    """What two pools have in common."""

    pools: tuple[str, str]
    groups: tuple[tuple[str, str], ...]
    """Groups of the one and of the other that have the same name."""
    classes: tuple[str, ...]
    """Class names that both have."""
    pairs: tuple[LookAlike, ...]
    """Classes that look the same, the nearest first."""

    def __len__(self) -> int:
        return len(self.groups) + len(self.classes) + len(self.pairs)

    def __repr__(self) -> str:
        return f"LookAlikes({self.summary()})"

    @property
    def in_common(self) -> str:
        """The first few of each kind, in words."""
        groups = list(dict.fromkeys(a for a, _ in self.groups))[:6]
        same = [[repr(b) for a, b in self.groups if a == name] for name in groups]
        shared = [
            f"group {name!r} is also {' and '.join(others)}"
            for name, others in zip(groups, same, strict=True)
        ]
        shared += [f"class {name!r} is in both" for name in self.classes[:3]]
        shared += [f"{p.name!r} looks like {p.other!r}" for p in self.pairs[:3]]
        more = len(self) - sum(map(len, same)) - len(self.classes[:3]) - len(self.pairs[:3])
        return "; ".join([*shared, *([f"and {more} more"] if more else [])]) or "nothing in common"

    def summary(self) -> str:
        """What they have in common, in words."""
        return f"{' and '.join(map(repr, self.pools))}: {self.in_common}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "pairs": [pair._asdict() for pair in self.pairs]}


@public
def find_look_alikes(pool: ClassPool, other: ClassPool) -> LookAlikes:
    """Look for classes that two pools have in common, such as Greek letters in two data sets.

    Groups are the same if all words of the one's name are in the other's ("Georgian" and
    "Mkhedruli_(Georgian)"), classes if their names are equal and no mere numbers. Looks are
    compared where both pools are drawings on empty paper: two classes look the same if their mean
    drawings, with the ink's centre and size made the same, are less than 0.65 times the
    spread within the classes apart. This is quick and errs both ways; it is a hint, no proof.
    """
    groups = [
        (a, b)
        for a in dict.fromkeys(pool.groups or ())
        for b in dict.fromkeys(other.groups or ())
        if same_name(a, b)
    ]
    both = set(other.class_names)
    names = tuple(name for name in pool.class_names if name in both and not name.isdecimal())
    (mean, spread), (others, their_spread) = _mean_drawings(pool), _mean_drawings(other)
    squared = np.square(mean).sum(axis=1)[:, None] + np.square(others).sum(axis=1)
    squared = np.maximum(squared - 2 * mean @ others.T, 0)
    distance = np.sqrt(squared / np.outer(spread, their_spread))
    near = np.argwhere(distance < _SAME_LOOKS)
    near = near[np.argsort(distance[tuple(near.T)], kind="stable")]
    pairs = tuple(
        LookAlike(pool.class_names[i], other.class_names[j], float(distance[i, j])) for i, j in near
    )
    return LookAlikes((pool.name, other.name), tuple(groups), names, pairs)


def same_name(group: str, other: str) -> bool:
    """Whether all words of one group's name are in the other's.

    >>> same_name("glyphs/Georgian", "omniglot/Mkhedruli_(Georgian)")
    True
    """
    # The words of a script, not of its source, in small letters.
    ours, theirs = (
        set(re.findall(r"[^\W_\d]+", name.rsplit("/", 1)[-1].lower())) for name in (group, other)
    )
    return bool(ours and theirs) and (ours <= theirs or theirs <= ours)


def paper_of(pool: ClassPool) -> str | None:
    """``"dark"`` or ``"bright"`` for drawings on paper that is so; None for photos and features."""
    if not pool.is_images:
        return None
    step = max(1, len(pool) // 1000)
    images = np.asarray(pool.samples[pool.starts[::step]])
    rim = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], axis=1)
    if (rim <= _EXTREME).mean() >= _MOST:
        return "dark"
    return "bright" if (rim >= 255 - _EXTREME).mean() >= _MOST else None


def _mean_drawings(
    pool: ClassPool,
) -> tuple[Float[np.ndarray, "classes pixels"], Float[np.ndarray, "classes"]]:
    """The mean drawing of every class, with the ink's centre and size made the same, and the root
    mean square distance of its drawings from that; NaN for what is not of drawings."""
    mean, spread = np.zeros((len(pool), _SIDE**2)), np.full(len(pool), np.nan)
    paper = paper_of(pool)
    for c in range(len(pool)) if paper is not None else ():
        images = np.asarray(pool.samples_of(c)[:_SAMPLES])
        drawings = _normalised(images if paper == "dark" else 255 - images)
        mean[c] = drawings.mean(axis=0)
        spread[c] = np.sqrt(((drawings - mean[c]) ** 2).sum(axis=1).mean())
    several = spread > 0  # a class of one sample has no spread of its own
    usual = np.median(spread[several]) if several.any() else 1.0
    return mean, np.where(spread == 0, usual, spread)


def _normalised(
    images: UInt8[np.ndarray, "n height width *channels"],
) -> Float[np.ndarray, "n pixels"]:
    """Drawings with the centre and the size of their ink made the same, and unit length."""
    from scipy import ndimage  # imports slowly, and few pools are joined

    small = np.zeros((len(images), _SIDE, _SIDE))
    place = np.indices(images.shape[1:3])
    for i, ink in enumerate(images.reshape(*images.shape[:3], -1).mean(axis=3)):
        total = max(ink.sum(), 1e-9)
        centre = (place * ink).sum(axis=(1, 2)) / total
        far = (np.square(place - centre[:, None, None]) * ink).sum() / total
        reach = _REACH * max(np.sqrt(far), 0.5)
        ndimage.affine_transform(
            ink, np.eye(2) * 2 * reach / (_SIDE - 1), centre - reach, output=small[i], order=1,
            mode="grid-constant",
        )  # fmt: skip
    flat = small.reshape(len(images), -1)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    return flat / np.where(length > 0, length, 1)
