"""Classes that two pools have in common: by the names of groups and classes, and by looks."""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy import ndimage

from taskscape.arguments import check_number, public
from taskscape.pools.pool import ClassPool

SAME_LOOKS = 0.65
"""Mean drawings nearer than this many times the spread within a class are taken for one character.

Chosen by eye on the glyphs and Omniglot's training alphabets. There a printed and a handwritten
beta, zeta, mu and xi are at 0.57 to 0.66, each nearer than any other of the 1,623 characters; of
all pairs one in ten thousand is below 0.63, and half of the glyphs have nothing below 0.81.
"""
_SIDE = 20
_REACH = 2.2  # how many root mean square radii of the ink a normalised drawing shows, each way
_SAMPLES = 20  # of each class are looked at
_EXTREME, _MOST = 10, 0.8  # grey levels from black or white; share of the rim that is so


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

    def summary(self) -> str:
        """What they have in common, in words."""
        shared = [f"group {a!r} is also {b!r}" for a, b in self.groups[:3]]
        shared += [f"class {name!r} is in both" for name in self.classes[:3]]
        shared += [f"{p.name!r} looks like {p.other!r}" for p in self.pairs[:3]]
        more = len(self) - len(shared)
        text = "; ".join(shared) + (f"; and {more} more" if more else "")
        return f"{' and '.join(map(repr, self.pools))}: {text or 'nothing in common'}"


@public
def find_look_alikes(
    pool: ClassPool,
    other: ClassPool,
    *,
    same_looks: float = SAME_LOOKS,
    looks: "Looks | None" = None,
    other_looks: "Looks | None" = None,
) -> LookAlikes:
    """Look for classes that two pools have in common, such as Greek letters in two data sets.

    Groups are the same if all words of the one's name are in the other's ("Georgian" and
    "Mkhedruli_(Georgian)"), classes if their names are equal and no mere numbers. Looks are
    compared where both pools are drawings on empty paper: two classes look the same if their mean
    drawings, with the ink's centre and size made the same, are less than ``same_looks`` times the
    spread within the classes apart. This is quick and errs both ways; it is a hint, no proof.
    Whoever has the :class:`Looks` of a pool already can hand them over.
    """
    check_number(same_looks, "same_looks", 0)
    groups = [
        (a, b)
        for a in dict.fromkeys(pool.groups or ())
        for b in dict.fromkeys(other.groups or ())
        if same_name(a, b)
    ]
    both = set(other.class_names)
    names = tuple(name for name in pool.class_names if name in both and not name.isdecimal())
    looks, others = looks or Looks.of(pool), other_looks or Looks.of(other)
    pairs = tuple(
        LookAlike(pool.class_names[i], other.class_names[j], distance)
        for i, j, distance in looks.nearer_than(same_looks, others)
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


@dataclass(frozen=True)
class Looks:
    """The mean drawing of every class, with the ink's centre and size made the same."""

    mean: Float[np.ndarray, "classes pixels"]
    spread: Float[np.ndarray, "classes"]
    """Root mean square distance of a class's drawings from their mean; not a number where a class
    is not of drawings."""

    @staticmethod
    def of(pool: ClassPool) -> "Looks":
        """The looks of all classes of a pool."""
        mean, spread = np.zeros((len(pool), _SIDE**2)), np.full(len(pool), np.nan)
        paper = paper_of(pool)
        for c in range(len(pool)) if paper is not None else ():
            images = np.asarray(pool.samples_of(c)[:_SAMPLES])
            drawings = _normalised(images if paper == "dark" else 255 - images)
            mean[c] = drawings.mean(axis=0)
            spread[c] = np.sqrt(((drawings - mean[c]) ** 2).sum(axis=1).mean())
        several = spread > 0  # a class of one sample has no spread of its own
        usual = np.median(spread[several]) if several.any() else 1.0
        return Looks(mean, np.where(spread == 0, usual, spread))

    def subset(self, classes: Int[np.ndarray, "some"]) -> "Looks":
        """The looks of some of the classes."""
        return Looks(self.mean[classes], self.spread[classes])

    def nearer_than(self, most: float, other: "Looks") -> list[tuple[int, int, float]]:
        """Classes of these and of other looks, and their distance, the nearest first."""
        squares = [np.square(looks.mean).sum(axis=1) for looks in (self, other)]
        squared = squares[0][:, None] + squares[1] - 2 * self.mean @ other.mean.T
        distance = np.sqrt(np.maximum(squared, 0) / np.outer(self.spread, other.spread))
        rows, columns = np.nonzero(distance < most)
        order = np.argsort(distance[rows, columns], kind="stable")
        return [
            (i, j, float(distance[i, j]))
            for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True)
        ]


def _normalised(
    images: UInt8[np.ndarray, "n height width *channels"],
) -> Float[np.ndarray, "n pixels"]:
    """Drawings with the centre and the size of their ink made the same, and unit length."""
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
