"""A ledger of the study as tables: Markdown for documents, rich for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from taskscape.meta import label_of

__all__ = [
    "Table",
    "markdown_tables",
    "overview_tables",
    "print_tables",
    "tables_of",
]

_STATISTICS = {
    "spearman": "Spearman",
    "partial": "given separation",
    "partial_all": "given all of difficulty",
}


class Table:
    """A heading, names of columns, and rows of text."""

    def __init__(self, heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.heading, self.columns, self.rows = heading, list(columns), [list(r) for r in rows]

    def markdown(self) -> str:
        """The table as Markdown, under its heading."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join([f"### {self.heading}", "", *(f"| {' | '.join(r)} |" for r in lines), ""])


def markdown_tables(entries: Sequence[Mapping[str, Any]]) -> str:
    """All tables of a ledger as Markdown."""
    return "\n".join(table.markdown() for table in tables_of(entries))


def overview_tables(entries: Sequence[Mapping[str, Any]], summary: str = "mean") -> str:
    """Notions against pools and learners, a table for each statistic, as Markdown.

    Of the summaries only one is shown; the reader should not have to trust a choice among them.
    """
    own = [
        e
        for e in entries
        if e["cell"]["what"] == "notion" and e["cell"]["summary"] in (summary, "the task alone")
    ]
    keys = ("notion", "divergence", "fits", "reference")
    places = list(dict.fromkeys(_where(e["cell"]) for e in own))
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in own:
        groups.setdefault(tuple(_value(entry["cell"], key) for key in keys), []).append(entry)
    tables = []
    for statistic, words in _STATISTICS.items():
        rows = []
        for key, some in groups.items():
            at = [[e[statistic] for e in some if _where(e["cell"]) == place] for place in places]
            rows.append([*key, *(_over_seeds(found) if found else "" for found in at)])
        columns = [f"{pool}, {split}, {label_of(who)}" for pool, split, who in places]
        heading = f"{words}, {summary} over training tasks"
        tables.append(Table(heading, [*(_WORDS.get(k, k) for k in keys), *columns], rows))
    return "\n".join(table.markdown() for table in tables)


def print_tables(entries: Sequence[Mapping[str, Any]]) -> None:
    """All tables of a ledger on the terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    console.width = max(console.width, 160)
    for table in tables_of(entries):
        shown = RichTable(*table.columns, title=table.heading, title_justify="left")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)


def tables_of(entries: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """One table for each pool, split and learner: the notions; then the variations."""
    for what, keys in (("notion", _NOTION), ("variation", _VARIATION)):
        own = [e for e in entries if e["cell"]["what"] == what]
        where = [_where(e["cell"]) for e in own]
        for place in dict.fromkeys(where):
            some = [e for e, w in zip(own, where, strict=True) if w == place]
            yield _table(what, place, some, keys)


_NOTION = ("notion", "divergence", "fits", "summary", "reference")
_VARIATION = ("image_themes", "task_themes", "prepare", "covariance", "embed_shot",
              "reference_shot", "fits")  # fmt: skip
_WORDS = {"image_themes": "K", "task_themes": "L", "prepare": "preparation",
          "embed_shot": "samples", "reference_shot": "training samples",
          "reference": "training tasks"}  # fmt: skip


def _where(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    return cell["pool"]["name"], cell["split"], cell["learner"]


def _table(
    what: str,
    place: tuple[str, str, str],
    entries: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
) -> Table:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(tuple(_value(entry["cell"], key) for key in keys), []).append(entry)
    rows = [
        [*key, *(_over_seeds([e[s] for e in some]) for s in _STATISTICS)]
        for key, some in groups.items()
    ]
    if what == "notion":
        order = np.argsort([_sortable(groups[k]) for k in groups], kind="stable")
        rows = [rows[i] for i in order]
    pool, split, learner = place
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
    return Table(heading, [*(_WORDS.get(k, k) for k in keys), *_STATISTICS.values()], rows)


def _value(cell: Mapping[str, Any], key: str) -> str:
    if key == "fits" and "seeds" in cell:
        return str(len(cell["seeds"]))
    if key == "reference":
        return "" if cell["summary"] == "the task alone" else f"{cell[key]:,}"
    return str(cell[key])


def _over_seeds(found: Sequence[Sequence[float | None]]) -> str:
    """Mean over seeds, their standard deviation, and the mean ends of the intervals."""
    value, low, high = (_mean([f[i] for f in found]) for i in range(3))
    if value is None:
        return "–"
    spread = np.std([f[0] for f in found if f[0] is not None], ddof=1) if len(found) > 1 else None
    text = f"{value:.2f}" if spread is None else f"{value:.2f} ± {spread:.2f}"
    return text if low is None or high is None else f"{text} [{low:.2f}, {high:.2f}]"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _sortable(entries: Sequence[Mapping[str, Any]]) -> float:
    value = _mean([e["spearman"][0] for e in entries])
    return 2.0 if value is None else value
