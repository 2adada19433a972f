"""``taskscape compare``: how far test tasks are from training tasks, and whether that is usual.

Also registers the commands of the stages that follow from it: nearest, select and diagram.
"""

import csv
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Float

from taskscape.cli import diagram as diagram_command
from taskscape.cli import nearest as nearest_command
from taskscape.cli import select as select_command
from taskscape.compare import (
    Resemblance,
    mean_kl,
    member_scales,
    nearest,
    normalise_ways,
    resemblance,
)
from taskscape.embeddings import Catalogue, Embeddings
from taskscape.errors import DataError
from taskscape.files import check_output, csv_with, written_in_one_piece
from taskscape.tasks.class_lists import write_classes

__all__ = ["register"]

_MOST_IN_MEMORY = 5_000_000
_COLUMNS = ("task", "classes", "distance", "nearest", "percentile")
_TABLE = csv_with("a table of distances", *_COLUMNS)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        "compare",
        epilog="Example:  taskscape compare test.parquet train.parquet --out distances.csv",
    )(compare)
    nearest_command.register(app)
    select_command.register(app)
    diagram_command.register(app)


def compare(
    test: Annotated[Path, typer.Argument(help="Test tasks, written by `taskscape embed`.")],
    train: Annotated[Path, typer.Argument(help="Training tasks: such a file, or a catalogue.")],
    reference: Annotated[
        Path | None, typer.Option(help="Tasks of held-out classes, to compare the test tasks with.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many nearest training tasks to look at.")] = 10,
    normalise: Annotated[
        bool, typer.Option("--normalise-ways", help="As if all tasks had 5 classes.")
    ] = False,
    seed: Annotated[int, typer.Option(help="How classes are dealt into folds.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write a CSV with a row for every test task.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
) -> None:
    """Mean KL from each test task to the training tasks, and whether the two sets are alike."""
    if out is not None:
        check_output(out, _TABLE)
    asked = Embeddings.load(test)
    against = Catalogue(train)
    asked.header.check_same_model(against.header, str(test), str(train))
    n_train = len(against)
    whole = None if n_train > _MOST_IN_MEMORY else Embeddings.load(train)
    if normalise and whole is None:
        raise DataError(f"--normalise-ways reads all of {train}, which has {n_train:,} tasks.")
    test_lam = _lam(asked, normalise)
    train_lam: Any = against.lam() if whole is None else _lam(whole, normalise)
    scales = member_scales(test_lam, train_lam) if asked.header.members > 1 else None
    distance = mean_kl(test_lam, train_lam, scales=scales)
    near = nearest(test_lam, train_lam, min(k, n_train), scales=scales).distances.mean(axis=1)
    likeness, why_not = _likeness(test_lam, train_lam, whole, reference, normalise, seed)
    if out is not None:
        _write_csv(out, asked, distance, near, likeness)
    if as_json:
        found = {
            "n_test": len(asked),
            "n_train": n_train,
            "mean_kl": distance.tolist(),
            "nearest_kl": near.tolist(),
            "k": min(k, n_train),
            "resemblance": None if likeness is None else likeness.to_dict(),
        }
        typer.echo(json.dumps(found))
        return
    unit = "nats" if asked.header.members == 1 else "of the mean distance"
    for name, values in (
        ("all training tasks", distance),
        (f"the {min(k, n_train)} nearest", near),
    ):
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        typer.echo(
            f"mean KL to {name}: median {middle:.4g} {unit} (5 % to 95 %: {low:.4g} to {high:.4g})"
        )
    typer.echo("\nIs the test set like the training set?")
    typer.echo(why_not if likeness is None else likeness.summary())
    if out is not None:
        typer.echo(f"\nwritten to {out}")


def _lam(embeddings: Embeddings, normalise: bool) -> Float[np.ndarray, "members tasks L"]:
    if not normalise:
        return embeddings.lam.astype(np.float64)
    if embeddings.header.delta is None:
        raise DataError("--normalise-ways needs delta, which these embeddings do not name.")
    return normalise_ways(embeddings.lam, delta=embeddings.header.delta)


def _likeness(
    test_lam: Float[np.ndarray, "members tests L"],
    train_lam: Any,
    train: Embeddings | None,
    reference: Path | None,
    normalise: bool,
    seed: int,
) -> tuple[Resemblance | None, str]:
    """The answer, or why there is none."""
    if train is None:
        return None, f"Not asked: the catalogue has more than {_MOST_IN_MEMORY:,} tasks."
    if reference is not None:
        held_out = Embeddings.load(reference)
        held_out.header.check_same_model(train.header, str(reference), "the training tasks")
        return resemblance(test_lam, train_lam, reference=_lam(held_out, normalise)), ""
    try:
        return resemblance(test_lam, train_lam, train_classes=train.classes, seed=seed), ""
    except DataError as error:
        return None, f"Unknown: {error} (On the command line: --reference held_out.parquet.)"


def _write_csv(
    path: Path,
    tasks: Embeddings,
    distance: Float[np.ndarray, "tasks"],
    near: Float[np.ndarray, "tasks"],
    likeness: Resemblance | None,
) -> None:
    with (
        written_in_one_piece(path, _TABLE) as made,
        made.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for i in range(len(tasks)):
            classes = write_classes(tasks.names(i))
            percentile = "" if likeness is None else f"{likeness.percentile[i]:.2f}"
            writer.writerow([int(tasks.ids[i]), classes, distance[i], near[i], percentile])
