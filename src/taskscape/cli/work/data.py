"""For all commands: the tasks that options name; for ``taskscape data``: a pool in words."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from taskscape.cli.options import parse_range, parse_shots
from taskscape.plain_text import low_to_high
from taskscape.pools import SPLITS, ClassPool
from taskscape.tasks import TaskSet, TaskStream, load_tasks, sample_tasks

__all__ = ["get_tasks", "print_summary", "summarise"]


Drawn = TypeVar("Drawn", TaskSet, TaskStream)


def get_tasks(
    pool: ClassPool,
    tasks: Path | None,
    split: str | None,
    n_tasks: int,
    n_way: str,
    n_shot: str,
    seed: int,
    n_query: int = 0,
    draw: Callable[..., Drawn] = sample_tasks,  # type: ignore[assignment]
) -> TaskSet | Drawn:
    """The tasks of a file, or else tasks drawn as the other options say.

    With ``draw=stream_tasks`` they are drawn only when they are needed, however many they are.
    """
    if tasks is not None:
        return load_tasks(tasks, pool)
    return draw(
        pool, n_tasks, split=split, n_way=parse_range(n_way, "--n-way"),
        n_shot=parse_shots(n_shot, "--n-shot"), n_query=n_query, seed=seed,
    )  # fmt: skip


def summarise(pool: ClassPool) -> dict[str, object]:
    """What ``data show`` tells, as plain values."""
    groups = pool.groups or ("",) * len(pool)
    splits = pool.splits or ("",) * len(pool)
    rows: dict[tuple[str, str], list[int]] = {}
    for c, key in enumerate(zip(splits, groups, strict=True)):
        rows.setdefault(key, []).append(int(pool.counts[c]))
    order = {s: i for i, s in enumerate(SPLITS)}
    return {
        "name": pool.name,
        "classes": len(pool),
        "samples": pool.n_samples,
        "kind": "images" if pool.is_images else "features",
        "sample_shape": list(pool.sample_shape),
        "fewest_samples": int(pool.counts.min()),
        "most_samples": int(pool.counts.max()),
        "fingerprint": pool.fingerprint,
        "parts": [
            {"split": s, "group": g, "classes": len(counts), "samples": sum(counts)}
            for (s, g), counts in sorted(
                rows.items(), key=lambda row: (order.get(row[0][0], 9), row[0][1])
            )
        ],
    }


def print_summary(pool: ClassPool, summary: dict[str, object]) -> None:
    console = Console()
    table = Table("split", "group", "classes", "samples")
    parts = summary["parts"]
    assert isinstance(parts, list)
    for part in parts:
        table.add_row(
            part["split"] or "–",
            part["group"] or "–",
            f"{part['classes']:,}",
            f"{part['samples']:,}",
        )
    console.print(table)
    per_class = low_to_high(pool.counts.tolist())
    console.print(f"{pool!r}; {per_class} samples per class", soft_wrap=True, highlight=False)
    console.print(f"fingerprint {pool.fingerprint}", highlight=False)
    for note in pool.info.get("notes", ()):
        console.print(note, soft_wrap=True, highlight=False)
