"""What the ledgers of forecasts say of test classes: tables.

    python -m experiments.tables.forecasts

Writes the tables of ``docs/forecast.md``. Where a forecast was evaluated at several sizes, the one
with the most test tasks counts.
"""

from typing import Any

from experiments.tables import DOCS, POOLS, Blocks, ledger, markdown_table

SHOWN = ("forecast", "protonet", 1)
PAGE = DOCS / "forecast.md"


def evaluated() -> list[dict[str, Any]]:
    """ProtoNet's 1-shot forecasts for test classes, by data set and labelled samples.

    More shots, or MAML, hardly change what forecasts are worth.
    """
    largest: dict[tuple[int, int], dict[str, Any]] = {}
    for name in ("glyphs", "letters", "mini-imagenet", "omniglot"):
        for entry in ledger(f"forecast-{name}"):
            cell = entry["cell"]
            if (cell["what"], cell.get("learner"), cell.get("n_shot")) != SHOWN:
                continue
            place = list(POOLS).index(cell["pool"]["name"]), cell["labelled"]
            if place not in largest or _size(entry) >= _size(largest[place]):
                largest[place] = entry
    return [largest[place] for place in sorted(largest)]


def _size(entry: dict[str, Any]) -> int:
    return int(entry["tasks"]["test"])


def test_classes() -> str:
    """What forecasts are worth; beside them, what forecasts by less are."""
    rows = []
    for entry in evaluated():
        cell, by = entry["cell"], entry["results"]
        one = by["all"]
        rows.append(
            [
                POOLS[cell["pool"]["name"]],
                str(cell["labelled"]),
                _between(one["spearman"], one["spearman_interval"]),
                f"{100 * one['mean_absolute_error']:.1f}",
                f"{100 * one['coverage']:.0f} %",
                f"{100 * one['mean_width']:.1f}",
                f"{by['difficulty']['spearman']:z.2f}".replace("-", "−"),
            ]
        )
    names = ["", "labelled", "rank correlation", "mean error, points", "held by the interval",
             "mean width", "by difficulty alone"]  # fmt: skip
    return markdown_table(names, rows)


def _between(value: float, ends: tuple[float, float]) -> str:
    shown, low, high = (f"{v:.2f}".replace("-", "−") for v in (value, *ends))
    return f"{shown} [{low}, {high}]"


TABLES = Blocks(
    "experiments/tables/forecasts.py",
    {"test_classes": test_classes},
)

if __name__ == "__main__":
    TABLES.write(PAGE)
