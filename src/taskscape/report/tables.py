"""The numbers of the page as rows of tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from taskscape.pools import ClassPool
from taskscape.pools.pool import SPLITS

Rows: TypeAlias = tuple[tuple[str, str], ...]
Number: TypeAlias = float | int | np.floating


@dataclass(frozen=True)
class SplitRow:
    """The classes of one split, by group."""

    split: str
    n_classes: int
    n_samples: int
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    """Each group with its classes; one nameless group where the pool has none."""


def split_rows(pool: ClassPool) -> tuple[SplitRow, ...]:
    """The splits of a pool, in order; one nameless split where it has none."""
    splits = [""] if pool.splits is None else [s for s in SPLITS if s in pool.splits]
    rows = []
    for split in splits:
        classes = pool.classes_in(split or None)
        groups: dict[str, list[int]] = {}
        for c in classes.tolist():
            groups.setdefault("" if pool.groups is None else pool.groups[c], []).append(c)
        members = tuple((name, tuple(own)) for name, own in groups.items())
        rows.append(SplitRow(split, len(classes), int(pool.counts[classes].sum()), members))
    return tuple(rows)


def flat_settings(settings: Mapping[str, Any]) -> tuple[tuple[str, Rows], ...]:
    """Settings by stage, each as rows of a dotted name and a value in words."""
    general = {k: v for k, v in settings.items() if not isinstance(v, Mapping)}
    named: dict[str, Mapping[str, Any]] = {"general": general} if general else {}
    named |= {k: v for k, v in settings.items() if isinstance(v, Mapping)}
    return tuple((str(stage), in_rows(values)) for stage, values in named.items())


def in_rows(values: Mapping[str, Any], before: str = "") -> Rows:
    """Nested values as rows of a dotted name and words."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += in_rows(value, f"{before}{name}.")
        else:
            rows.append((f"{before}{name}", _in_words(value)))
    return tuple(rows)


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_in_words(v) for v in value) or "none"
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def percent(value: Number) -> str:
    """A share in per cent; a dash where it is unknown."""
    return f"{100 * value:.1f} %" if np.isfinite(value) else "–"
