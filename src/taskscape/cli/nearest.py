"""``taskscape nearest``: the training tasks that are nearest to a task, with their classes."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from taskscape.cli.ranges import parse_range
from taskscape.compare import nearest as nearest_tasks
from taskscape.embeddings import Catalogue, Embeddings, TaskFilter
from taskscape.errors import DataError
from taskscape.tasks.class_lists import parse_classes

__all__ = ["embed_query", "register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "nearest",
        epilog="Example:  taskscape nearest --catalogue train.parquet --query test.parquet "
        "--task 17  ·  taskscape nearest --catalogue train.parquet --model model --data glyphs "
        "--task Greek/alpha,Greek/beta",
    )(nearest)


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
        str | None, typer.Option(help="With --model: the data that has the classes.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many tasks.")] = 10,
    any_class: Annotated[
        list[str] | None, typer.Option(help="Only tasks with this class; may be repeated.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only tasks within this group.")] = None,
    n_way: Annotated[
        str | None, typer.Option(help="Only tasks of this many classes: 5, or 5-10.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
) -> None:
    """The tasks of a catalogue with the smallest KL from one task."""
    look_in = Catalogue(catalogue)
    asked = _find(look_in, task, query, model, data)
    asked.header.check_same_model(look_in.header, str(query or model or catalogue), str(catalogue))
    ways = None if n_way is None else parse_range(n_way, "--n-way")
    only = TaskFilter(any_class=any_class or None, group=group, n_way=ways)
    found = nearest_tasks(asked.lam.astype(np.float64), look_in.lam(only), k)
    tasks = look_in.take(found.indices[0], only)
    rows = [
        {"task": int(tasks.ids[i]), "kl": float(d), "classes": list(tasks.names(i))}
        for i, d in enumerate(found.distances[0])
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
    from taskscape.pools import load_pool
    from taskscape.tasks import make_tasks
    from taskscape.themes.estimator import TaskThemes

    tasks = make_tasks(load_pool(data), [classes])
    return TaskThemes.load(model).embed(tasks)
