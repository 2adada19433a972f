"""``taskscape compare``, ``nearest`` and ``diagram``: distances, and what they explain."""

import json
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.options import (
    AsJson,
    Engine,
    Seed,
    SimilarityName,
    TestTasks,
    TrainTasks,
    one_source,
    parse_range,
    refuse_given,
)
from taskscape.errors import DataError
from taskscape.files import PICTURE, check_output
from taskscape.similarity.known import TASK_THEMES, find_similarity

__all__ = ["register"]


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
        epilog="Example:  taskscape diagram test.parquet train.parquet --accuracies mine.csv "
        "--out diagram.png  ·  taskscape diagram results.csv --out diagram.png",
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
    engine: Engine = "local",
    as_json: AsJson = False,
) -> None:
    """Mean distance from each test task to the training tasks, and whether the sets are alike."""
    import numpy as np

    from taskscape.cli.file_distances import TABLE, by_samples, by_themes, write_distances
    from taskscape.distributed.engine import use_engine

    if out is not None:
        check_output(out, TABLE)
    find_similarity(similarity)
    if similarity == TASK_THEMES:
        with use_engine(engine):
            compared = by_themes(test, train, reference, k, normalise, seed)
    elif normalise:
        raise DataError("--normalise-ways is for task-themes; leave it out with --similarity.")
    else:
        compared = by_samples(similarity, one_source(data), test, train, reference, k, seed)
    if out is not None:
        write_distances(out, compared)
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
        typer.Option(
            help="The data that has the classes: needed with --model, and else to put the most "
            "alike of equally near tasks first; may be repeated."
        ),
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
    from taskscape.cli.file_distances import find_nearest, find_task
    from taskscape.embeddings import Catalogue, TaskFilter

    look_in = Catalogue(catalogue)
    asked = find_task(look_in, task, query, model, one_source(data))
    asked.header.check_same_model(look_in.header, str(query or model or catalogue), str(catalogue))
    ways = None if n_way is None else parse_range(n_way, "--n-way")
    only = TaskFilter(any_class=any_class or None, group=group, n_way=ways)
    near = find_nearest(look_in, asked, k, only, one_source(data))
    if as_json:
        about = {"task": int(asked.ids[0]), "classes": list(asked.names(0))}
        answer = {"query": about, "ties": near.ties, "nearest": near.rows()}
        typer.echo(json.dumps(answer))
        return
    typer.echo(f"nearest to the task of {', '.join(asked.names(0))}:")
    for row in near.rows():
        alike = f" {row['by_classes']:8.4g} apart" if "by_classes" in row else ""
        typer.echo(f"{row['kl']:10.4g}{alike}  task {row['task']:<8} {', '.join(row['classes'])}")
    typer.echo(near.summary())


def diagram(
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV with a row for every test task; or, with TRAIN, test tasks by `taskscape "
            "embed`."
        ),
    ],
    train: Annotated[
        Path | None,
        typer.Argument(help="Training tasks by `taskscape embed`: distances are then computed."),
    ] = None,
    accuracies: Annotated[
        Path | None,
        typer.Option(
            help="With TRAIN: a CSV of accuracies, with a column for each learner, and task (its "
            "number) or classes to say which task a row is of."
        ),
    ] = None,
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
    from taskscape.diagram import (
        DIAGRAM_FILE,
        correlation_diagram,
        join_accuracies,
        read_diagram_csv,
    )
    from taskscape.diagram.plot import FORMATS

    for path in out or []:
        if path.suffix.lower() not in (*FORMATS, ".json"):
            raise DataError(f"--out {path}: expected .json, {', '.join(FORMATS)}.")
        check_output(path, DIAGRAM_FILE if path.suffix.lower() == ".json" else PICTURE)
    if (train is None) != (accuracies is None):
        raise DataError(
            "give TEST and TRAIN with --accuracies, such as: taskscape diagram test.parquet "
            "train.parquet --accuracies mine.csv; or one CSV that has distances and accuracies."
        )
    if train is not None and accuracies is not None:
        from taskscape.cli.file_distances import mean_distances

        beside = "TRAIN: distances and classes are those of the tasks"
        refuse_given(diagram, beside, distance=distance, classes=classes)

        tested, distances = mean_distances(table, train)
        data, how = join_accuracies(
            accuracies, tested, distances, accuracy=accuracy, difficulty=difficulty
        )
        typer.echo(how, err=True)
    else:
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
        typer.echo(json.dumps(drawn.to_dict()))
        return
    typer.echo(drawn.summary())
    for path in out or []:
        typer.echo(f"written to {path}")
