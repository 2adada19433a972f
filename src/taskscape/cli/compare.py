"""``taskscape compare``: how far test tasks are from training tasks, and whether that is usual.

Also registers the commands of the stages that follow from it: nearest, select and diagram.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Float

from taskscape.cli import diagram as diagram_command
from taskscape.cli import nearest as nearest_command
from taskscape.cli import select as select_command
from taskscape.cli.select import SIMILARITY_HELP, read_tasks_of
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
from taskscape.similarity import TASK_THEMES, make_similarity
from taskscape.similarity.registry import find_similarity
from taskscape.tasks import TaskSet, load_tasks
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
    test: Annotated[
        Path,
        typer.Argument(
            help="Test tasks, written by `taskscape embed`; with another --similarity, by "
            "`taskscape tasks`."
        ),
    ],
    train: Annotated[
        Path, typer.Argument(help="Training tasks: such a file, or a catalogue of embedded ones.")
    ],
    similarity: Annotated[
        str, typer.Option(help=f"{SIMILARITY_HELP}. All but the first need --data and no model.")
    ] = TASK_THEMES,
    data: Annotated[
        str | None, typer.Option(help="For --similarity: the data that the tasks are from.")
    ] = None,
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
    """Mean distance from each test task to the training tasks, and whether the sets are alike."""
    if out is not None:
        check_output(out, _TABLE)
    find_similarity(similarity)
    if similarity == TASK_THEMES:
        found = _by_themes(test, train, reference, k, normalise, seed)
    elif normalise:
        raise DataError("--normalise-ways is for task-themes; leave it out with --similarity.")
    else:
        found = _by_samples(similarity, data, test, train, reference, k, seed)
    if out is not None:
        _write_csv(out, found)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    for name, values in (
        ("all training tasks", found.distance),
        (f"the {found.k} nearest", found.near),
    ):
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        typer.echo(
            f"mean {found.word} to {name}: median {middle:.4g} {found.unit}(5 % to 95 %: "
            f"{low:.4g} to {high:.4g})"
        )
    typer.echo("\nIs the test set like the training set?")
    typer.echo(found.why_not if found.likeness is None else found.likeness.summary())
    if out is not None:
        typer.echo(f"\nwritten to {out}")


@dataclass(frozen=True, eq=False)
class _Compared:
    """How far the test tasks are, and whether that is usual."""

    tasks: Embeddings | TaskSet
    distance: Float[np.ndarray, "tests"]
    near: Float[np.ndarray, "tests"]
    """Mean over the nearest training tasks."""
    n_train: int
    k: int
    likeness: Resemblance | None
    why_not: str
    """Why that is not known."""
    word: str
    unit: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists."""
        what = self.word.lower()
        return {
            "n_test": len(self.tasks),
            "n_train": self.n_train,
            f"mean_{what}": self.distance.tolist(),
            f"nearest_{what}": self.near.tolist(),
            "k": self.k,
            "resemblance": None if self.likeness is None else self.likeness.to_dict(),
        }


def _by_themes(
    test: Path, train: Path, reference: Path | None, k: int, normalise: bool, seed: int
) -> _Compared:
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
    k = min(k, n_train)
    near = nearest(test_lam, train_lam, k, scales=scales).distances.mean(axis=1)
    likeness, why_not = _likeness(test_lam, train_lam, whole, reference, normalise, seed)
    unit = "nats " if asked.header.members == 1 else "of the mean distance "
    return _Compared(asked, distance, near, n_train, k, likeness, why_not, "KL", unit)


def _by_samples(
    similarity: str,
    data: str | None,
    test: Path,
    train: Path,
    reference: Path | None,
    k: int,
    seed: int,
) -> _Compared:
    asked, known = read_tasks_of(similarity, data, test, train)
    fitted = make_similarity(similarity, seed=seed).fit(known)
    trains = fitted.embed(known)
    distances, k = fitted.distances(asked, trains), min(k, len(known))
    near = distances.nearest(np.arange(len(asked)), k).distances.mean(axis=1)
    distance, likeness = distances.mean_distance(), None
    if reference is not None:
        usual = fitted.mean_distance(load_tasks(reference, known.pool), trains)
        likeness = Resemblance.of(distance, usual, f"mean distance ({similarity})", len(known))
    why_not = "Unknown: give --reference, tasks of classes that no training task has."
    return _Compared(asked, distance, near, len(known), k, likeness, why_not, "distance")


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


def _write_csv(path: Path, found: _Compared) -> None:
    tasks, likeness = found.tasks, found.likeness
    ids = tasks.ids if isinstance(tasks, Embeddings) else range(len(tasks))
    with (
        written_in_one_piece(path, _TABLE) as made,
        made.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for i, (task, distance, near) in enumerate(
            zip(ids, found.distance, found.near, strict=True)
        ):
            percentile = "" if likeness is None else f"{likeness.percentile[i]:.2f}"
            classes = write_classes(tasks.names(i))
            writer.writerow([int(task), classes, distance, near, percentile])
