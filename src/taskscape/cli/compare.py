"""``taskscape compare``, ``nearest`` and ``diagram``: distances, and what they explain."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Float

from taskscape.cli.options import (
    AsJson,
    Seed,
    SimilarityName,
    TestTasks,
    TrainTasks,
    one_source,
    parse_range,
)
from taskscape.cli.select import read_tasks_of
from taskscape.compare import Resemblance, mean_kl, member_scales, normalise_ways, resemblance
from taskscape.compare import nearest as nearest_tasks
from taskscape.diagram import DIAGRAM_FILE, correlation_diagram, read_diagram_csv
from taskscape.diagram.plot import FORMATS
from taskscape.embeddings import Catalogue, Embeddings, TaskFilter
from taskscape.errors import DataError
from taskscape.files import PICTURE, check_output, csv_with, written_in_one_piece
from taskscape.pools import load_pool
from taskscape.similarity import TASK_THEMES, make_similarity
from taskscape.similarity.registry import find_similarity
from taskscape.tasks import TaskSet, load_tasks, make_tasks
from taskscape.tasks.class_lists import parse_classes, write_classes
from taskscape.themes.estimator import TaskThemes

__all__ = ["embed_query", "register"]

_MOST_IN_MEMORY = 5_000_000
_COLUMNS = ("task", "classes", "distance", "nearest", "percentile")
_TABLE = csv_with("a table of distances", *_COLUMNS)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        "compare",
        epilog="Example:  taskscape compare test.parquet train.parquet --out distances.csv",
    )(compare)
    app.command(
        "nearest",
        epilog="Example:  taskscape nearest --catalogue train.parquet --query test.parquet "
        "--task 17  ·  taskscape nearest --catalogue train.parquet --model model --data glyphs "
        "--task Greek/alpha,Greek/beta",
    )(nearest)
    app.command(
        "diagram",
        epilog="Example:  taskscape diagram results.csv --out diagram.png --out diagram.json",
    )(diagram)


def compare(
    test: TestTasks,
    train: TrainTasks,
    similarity: SimilarityName = TASK_THEMES,
    data: Annotated[
        list[str] | None,
        typer.Option(help="For --similarity: the data that the tasks are from; may be repeated."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Tasks of held-out classes, to compare the test tasks with.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many nearest training tasks to look at.")] = 10,
    normalise: Annotated[
        bool, typer.Option("--normalise-ways", help="As if all tasks had 5 classes.")
    ] = False,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write a CSV with a row for every test task.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Mean distance from each test task to the training tasks, and whether the sets are alike."""
    if out is not None:
        check_output(out, _TABLE)
    find_similarity(similarity)
    if similarity == TASK_THEMES:
        compared = _by_themes(test, train, reference, k, normalise, seed)
    elif normalise:
        raise DataError("--normalise-ways is for task-themes; leave it out with --similarity.")
    else:
        compared = _by_samples(similarity, one_source(data), test, train, reference, k, seed)
    if out is not None:
        _write_csv(out, compared)
    if as_json:
        typer.echo(json.dumps(compared.to_dict()))
        return
    for name, values in (
        ("all training tasks", compared.distance),
        (f"the {compared.k} nearest", compared.near),
    ):
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        typer.echo(
            f"mean {compared.word} to {name}: median {middle:.4g} {compared.unit}(5 % to 95 %: "
            f"{low:.4g} to {high:.4g})"
        )
    typer.echo("\nIs the test set like the training set?")
    typer.echo(compared.why_not if compared.likeness is None else compared.likeness.summary())
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
    near = nearest_tasks(test_lam, train_lam, k, scales=scales).distances.mean(axis=1)
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


def _write_csv(path: Path, compared: _Compared) -> None:
    tasks, likeness = compared.tasks, compared.likeness
    ids = tasks.ids if isinstance(tasks, Embeddings) else range(len(tasks))
    with (
        written_in_one_piece(path, _TABLE) as unfinished,
        unfinished.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for i, (task, distance, near) in enumerate(
            zip(ids, compared.distance, compared.near, strict=True)
        ):
            percentile = "" if likeness is None else f"{likeness.percentile[i]:.2f}"
            classes = write_classes(tasks.names(i))
            writer.writerow([int(task), classes, distance, near, percentile])


def nearest(
    catalogue: Annotated[Path, typer.Option(help="Where to look: a catalogue, or one file of it.")],
    task: Annotated[
        str,
        typer.Option(
            help='The id of a task in --query; with --model, classes: a,b,c or ["a, b", "c"].'
        ),
    ],
    query: Annotated[
        Path | None, typer.Option(help="Embedded tasks; without it, ids are the catalogue's.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Embeds a task given by its classes.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="With --model: the data that has the classes; may be repeated."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many tasks.")] = 10,
    any_class: Annotated[
        list[str] | None, typer.Option(help="Only tasks with this class; may be repeated.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only tasks within this group.")] = None,
    n_way: Annotated[
        str | None, typer.Option(help="Only tasks of this many classes: 5, or 5-10.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The tasks of a catalogue with the smallest KL from one task."""
    look_in = Catalogue(catalogue)
    asked = _find(look_in, task, query, model, one_source(data))
    asked.header.check_same_model(look_in.header, str(query or model or catalogue), str(catalogue))
    ways = None if n_way is None else parse_range(n_way, "--n-way")
    only = TaskFilter(any_class=any_class or None, group=group, n_way=ways)
    near = nearest_tasks(asked.lam.astype(np.float64), look_in.lam(only), k)
    tasks = look_in.take(near.indices[0], only)
    rows = [
        {"task": int(tasks.ids[i]), "kl": float(d), "classes": list(tasks.names(i))}
        for i, d in enumerate(near.distances[0])
    ]
    if as_json:
        about = {"task": int(asked.ids[0]), "classes": list(asked.names(0))}
        typer.echo(json.dumps({"query": about, "nearest": rows}, ensure_ascii=False))
        return
    typer.echo(f"nearest to the task of {', '.join(asked.names(0))}:")
    for row in rows:
        typer.echo(f"{row['kl']:10.4g}  task {row['task']:<8} {', '.join(row['classes'])}")  # type: ignore[arg-type]


def _find(
    look_in: Catalogue, task: str, query: Path | None, model: Path | None, data: str | None
) -> Embeddings:
    if model is not None:
        if query is not None:
            raise DataError("give either --query, with embedded tasks, or --model, not both.")
        if data is None:
            raise DataError("--model needs --data, the data whose classes --task names.")
        listed = parse_classes(task) or [name.strip() for name in task.split(",")]
        return embed_query(model, data, [str(name) for name in listed])
    if not task.lstrip("-").isdigit():
        raise DataError(f"--task {task}: expected the id of a task; classes need --model, --data.")
    return (look_in if query is None else Catalogue(query)).find(int(task))


def embed_query(model: Path, data: str, classes: list[str]) -> Embeddings:
    """The task of these classes, with all their samples, embedded by a fitted model."""
    tasks = make_tasks(load_pool(data), [classes])
    return TaskThemes.load(model).embed(tasks)


def diagram(
    table: Annotated[Path, typer.Argument(help="A CSV with a row for every test task.")],
    distance: Annotated[str, typer.Option(help="The column of distances.")] = "distance",
    accuracy: Annotated[
        list[str] | None,
        typer.Option(help="A column of accuracies; may be repeated. Default: all that is left."),
    ] = None,
    difficulty: Annotated[
        list[str] | None,
        typer.Option(help="A column of difficulties; default: those called difficulty…"),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="The column of classes: JSON lists of names, or ids.")
    ] = None,
    n_bins: Annotated[int, typer.Option(help="How many bins.")] = 10,
    bins: Annotated[str, typer.Option(help="paper: of equal width; quantile: equal counts.")] = (
        "paper"
    ),
    interval: Annotated[str, typer.Option(help="jackknife or bootstrap, over classes.")] = (
        "jackknife"
    ),
    seed: Seed = 0,
    title: Annotated[str | None, typer.Option(help="A title for the picture.")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="Write .png, .svg, .pdf or .json; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Does distance to the training tasks explain accuracy? Numbers, and a picture."""
    for path in out or []:
        if path.suffix.lower() not in (*FORMATS, ".json"):
            raise DataError(f"--out {path}: expected .json, {', '.join(FORMATS)}.")
        check_output(path, DIAGRAM_FILE if path.suffix.lower() == ".json" else PICTURE)
    data = read_diagram_csv(
        table, distance=distance, accuracy=accuracy, difficulty=difficulty, classes=classes
    )
    drawn = correlation_diagram(
        data.distance,
        data.accuracy,
        classes=data.classes,
        difficulty=data.difficulty,
        n_bins=n_bins,
        bins=bins,
        interval=interval,
        seed=seed,
    )
    for path in out or []:
        if path.suffix.lower() == ".json":
            drawn.save(path)
        else:
            drawn.plot(path, title=title)
    if as_json:
        typer.echo(json.dumps(drawn.to_dict(), ensure_ascii=False))
        return
    typer.echo(drawn.summary())
    for path in out or []:
        typer.echo(f"written to {path}")
