"""A ledger of the study as Markdown tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskscape.meta import label_of
from taskscape.plain_text import markdown_table

__all__ = ["tables"]

_STATISTICS = {
    "spearman": "Spearman",
    "partial": "given separation",
    "partial_all": "given all of difficulty",
}
_NOTION = ("notion", "divergence", "fits", "summary", "reference")
_VARIATION = ("image_themes", "task_themes", "prepare", "covariance", "embed_shot",
              "reference_shot", "fits")  # fmt: skip
_WORDS = {"image_themes": "K", "task_themes": "L", "prepare": "preparation",
          "embed_shot": "samples", "reference_shot": "training samples",
          "reference": "training tasks"}  # fmt: skip
_Entries = Sequence[Mapping[str, Any]]


def tables(entries: _Entries, overview: str | None = None) -> str:
    """All tables of a ledger, or pools side by side for one summary of distances."""
    if overview is not None:
        return _overview(entries, overview)
    parts = []
    for what, keys in (("notion", _NOTION), ("variation", _VARIATION)):
        own = [e for e in entries if e["cell"]["what"] == what]
        for place in dict.fromkeys(_where(e["cell"]) for e in own):
            parts.append(_at_place([e for e in own if _where(e["cell"]) == place], keys))
    return "\n".join(parts)


def _overview(entries: _Entries, summary: str) -> str:
    """Notions against pools and learners, a table for each statistic.

    Of the summaries only one is shown; the reader should not have to trust a choice among them.
    """
    own = [
        e
        for e in entries
        if e["cell"]["what"] == "notion" and e["cell"]["summary"] in (summary, "the task alone")
    ]
    keys = ("notion", "divergence", "fits", "reference")
    places = list(dict.fromkeys(_where(e["cell"]) for e in own))
    parts = []
    for statistic, words in _STATISTICS.items():
        rows = []
        for key, group in _grouped(own, keys).items():
            at = [[e[statistic] for e in group if _where(e["cell"]) == place] for place in places]
            rows.append([*key, *(_over_seeds(values) if values else "" for values in at)])
        columns = [f"{pool}, {split}, {label_of(who)}" for pool, split, who in places]
        parts.append(_markdown(f"{words}, {summary} over training tasks", keys, columns, rows))
    return "\n".join(parts)


def _at_place(entries: _Entries, keys: Sequence[str]) -> str:
    """The table of one pool, split and learner; notions in the order of their correlation."""
    groups = _grouped(entries, keys)
    rows = [
        [*key, *(_over_seeds([e[s] for e in group]) for s in _STATISTICS)]
        for key, group in groups.items()
    ]
    if keys == _NOTION:
        order = np.argsort([_sortable(group) for group in groups.values()], kind="stable")
        rows = [rows[i] for i in order]
    pool, split, learner = _where(entries[0]["cell"])
    largest = max(e["n_tasks"] for e in entries)
    whole = [e for e in entries if e["n_tasks"] == largest]
    seeds = {s for e in entries for s in e["cell"].get("seeds", [e["cell"].get("seed")])}
    many = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    heading = (
        f"{pool}, {split} classes, {label_of(learner)}: "
        f"{largest:,} tasks of {whole[0]['n_classes']} classes, accuracy "
        f"{np.mean([e['mean_accuracy'] for e in whole]):.3f}, noise ceiling "
        f"{np.mean([e['ceiling'] for e in whole]):.2f}, {many}"
    )
    return _markdown(heading, keys, list(_STATISTICS.values()), rows)


def _markdown(
    heading: str, keys: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    names = [*(_WORDS.get(k, k) for k in keys), *columns]
    return f"### {heading}\n\n{markdown_table(names, rows)}"


def _grouped(
    entries: _Entries, keys: Sequence[str]
) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(tuple(_value(entry["cell"], key) for key in keys), []).append(entry)
    return groups


def _where(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    return cell["pool"]["name"], cell["split"], cell["learner"]


def _value(cell: Mapping[str, Any], key: str) -> str:
    if key == "fits" and "seeds" in cell:
        return str(len(cell["seeds"]))
    if key == "reference":
        return "" if cell["summary"] == "the task alone" else f"{cell[key]:,}"
    return str(cell[key])


def _over_seeds(values: Sequence[Sequence[float | None]]) -> str:
    """Mean over seeds, their standard deviation, and the mean ends of the intervals."""
    value, low, high = (_mean([v[i] for v in values]) for i in range(3))
    if value is None:
        return "–"
    spread = np.std([v[0] for v in values if v[0] is not None], ddof=1) if len(values) > 1 else None
    text = f"{value:.2f}" if spread is None else f"{value:.2f} ± {spread:.2f}"
    return text if low is None or high is None else f"{text} [{low:.2f}, {high:.2f}]"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _sortable(entries: Sequence[Mapping[str, Any]]) -> float:
    value = _mean([e["spearman"][0] for e in entries])
    return 2.0 if value is None else value
