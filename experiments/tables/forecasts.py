"""What the ledgers of forecasts say of test classes: tables.

    python -m experiments.tables.forecasts

Writes the tables of ``docs/forecast.md``. Where a forecast was evaluated at several sizes, the one
with the most test tasks counts.
"""

from collections.abc import Iterator
from typing import Any

from experiments.tables import DOCS, POOLS, Blocks, ledger
from taskscape.meta import label_of
from taskscape.plain_text import markdown_table

LEARNERS = ("protonet", "maml")
N_SHOT = 1
"""Samples of each class that the learner adapts to; more hardly change what forecasts are worth."""
PARTS = ("distance", "difficulty")
PAGE = DOCS / "forecast.md"


def evaluated() -> list[dict[str, Any]]:
    """The forecasts for test classes: by data set, learner, shots and labelled samples."""
    largest: dict[tuple[int, int, int, int], dict[str, Any]] = {}
    for name in ("glyphs", "letters", "mini-imagenet", "omniglot"):
        for entry in ledger(f"forecast-{name}"):
            cell = entry["cell"]
            if cell["what"] != "forecast":
                continue
            place = (
                list(POOLS).index(cell["pool"]["name"]),
                LEARNERS.index(cell["learner"]),
                cell["n_shot"],
                cell["labelled"],
            )
            if place not in largest or _size(entry) >= _size(largest[place]):
                largest[place] = entry
    return [largest[place] for place in sorted(largest)]


def _size(entry: dict[str, Any]) -> int:
    return int(entry["tasks"]["test"])


def _rows() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Every forecast with the first cells of its row; a name stands in the first of its rows."""
    before = ""
    for entry in evaluated():
        cell = entry["cell"]
        name = f"{POOLS[cell['pool']['name']]}, {label_of(cell['learner'])}"
        if cell["n_shot"] == N_SHOT:
            yield entry, ["" if name == before else name, str(cell["labelled"])]
            before = name


def about() -> str:
    """Tasks, classes and sizes."""
    rows = {}
    for entry in evaluated():
        cell, tasks, classes = entry["cell"], entry["tasks"], entry["classes"]
        row = [
            POOLS[cell["pool"]["name"]],
            *(f"{tasks[s]:,} of {classes[s]} classes" for s in ("val", "test")),
            f"{cell['fit_tasks']:,}",
            f"{cell['train_tasks']:,}",
            str(cell["episodes"]),
        ]
        rows[tuple(row)] = row
    names = [
        "",
        "calibration tasks",
        "test tasks",
        "tasks of the fit",
        "of the learner",
        "episodes",
    ]
    return markdown_table(names, list(rows.values()))


def test_classes() -> str:
    """What forecasts from one sample a class for the learner are worth; beside them, by less."""
    rows = []
    for entry, first in _rows():
        by = entry["results"]
        one = by["all"]
        rows.append(
            [
                *first,
                _between(one["spearman"], one["spearman_interval"], "{:.2f}"),
                f"{one['ceiling']:.2f}",
                _between(one["mean_absolute_error"], one["error_interval"], "{:.1f}", 100),
                f"{100 * one['always_mean_error']:.1f}",
                f"{_between(one['coverage'], one['coverage_interval'], '{:.0f}', 100)} %",
                f"{100 * one['mean_width']:.1f}",
                *(f"{by[name]['spearman']:z.2f}".replace("-", "−") for name in PARTS),
            ]
        )
    names = ["", "labelled", "rank correlation", "ceiling", "mean error, points",
             "always the mean", "held by the interval", "mean width",
             *(f"by {name} alone" for name in PARTS)]  # fmt: skip
    return markdown_table(names, rows)


def _between(value: float, ends: tuple[float, float], how: str, times: float = 1) -> str:
    shown, low, high = (how.format(times * v).replace("-", "−") for v in (value, *ends))
    return f"{shown} [{low}, {high}]"


TABLES = Blocks(
    "experiments/tables/forecasts.py",
    {"about": about, "test_classes": test_classes},
)

if __name__ == "__main__":
    TABLES.write(PAGE)
