"""For ``taskscape compare``, ``nearest`` and ``diagram``: distances between tasks in files."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape import compare
from taskscape.cli.options import read_tasks_of
from taskscape.embeddings import Catalogue, Embeddings, TaskFilter
from taskscape.errors import DataError
from taskscape.io.files import atomic_write
from taskscape.io.tables import table_with, write_csv
from taskscape.pools import load_pool
from taskscape.similarity import make_similarity, resemblance
from taskscape.similarity.known import find_similarity
from taskscape.similarity.nearest_tasks import nearest
from taskscape.tasks import TaskSet, make_tasks
from taskscape.tasks.class_lists import parse_classes, write_classes
from taskscape.themes.task_model import TaskModel

_COLUMNS = ("task", "classes", "distance", "nearest")
TABLE = table_with("a table of distances", *_COLUMNS)


def compare_files(
    similarity: str, data: str | None, test: Path, train: Path, k: int, seed: int, out: Path | None
) -> tuple[dict[str, Any], str]:
    """How far the test tasks are, and whether they are like the training tasks: numbers, words."""
    measure, unit, pool = find_similarity(similarity), "", None
    asked, known = read_tasks_of(similarity, data, test, train, stream=True)
    if isinstance(known, TaskSet):
        pool, n_train, ids = known.pool, len(known), np.arange(len(asked))
        distances = make_similarity(similarity, seed=seed).fit(known).distances(asked, known)
        far, near = distances.mean_distance(), distances.nearest(ids, min(k, n_train))
    else:
        n_train, ids = len(Catalogue(train)), asked.ids
        pool = None if data is None else load_pool(data)
        far = compare.mean_distance(asked, known, kind=measure.kind)
        near = compare.nearest(asked, known, min(k, n_train), kind=measure.kind)
        unit = f" {asked.header.unit}".rstrip() if measure.kind == "kl" else ""
    plain: dict[str, Any] = {"n_test": len(asked), "n_train": n_train, "k": min(k, n_train)}
    means = near.distances.mean(axis=1)
    plain |= {"mean_distance": far.tolist(), "nearest_distance": means.tolist()}
    answer = "Unknown: give --data, the samples that the tasks are from, to leave out training "
    answer, plain["resemblance"] = f"{answer}classes in turn.", None
    if pool and isinstance(known, Embeddings | TaskSet):
        likeness = resemblance(asked, known, similarity, pool=pool, seed=seed)
        answer, plain["resemblance"] = likeness.summary(), likeness.to_dict()
    words = _spread("all training tasks", far, unit)
    words += _spread(f"the {plain['k']} nearest", means, unit)
    if out is not None:
        classes = [write_classes(asked.names(i)) for i in range(len(asked))]
        with atomic_write(out, TABLE) as file:
            write_csv(file, dict(zip(_COLUMNS, (ids, classes, far, means), strict=True)))
    return plain, f"{words}\nIs the test set like the training set?\n{answer}"


def _spread(name: str, distances: Float[np.ndarray, "tests"], unit: str) -> str:
    low, middle, high = np.quantile(distances, [0.05, 0.5, 0.95])
    spread = f"median {middle:.4g}{unit} (5 % to 95 %: {low:.4g} to {high:.4g})"
    return f"mean distance to {name}: {spread}\n"


def mean_distances(
    test: Path, train: Path, similarity: str
) -> tuple[Embeddings, Float[np.ndarray, "tests"]]:
    """Embedded test tasks, and the mean distance of each to the training tasks."""
    asked, known = read_tasks_of(similarity, None, test, train, stream=True)
    return asked, compare.mean_distance(asked, known, kind=find_similarity(similarity).kind)


def find_nearest(
    catalogue: Path, task: str, query: Path | None, model: Path | None, data: str | None, k: int,
    only: TaskFilter, similarity: str,
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """The k nearest tasks, with the data of equals the most alike first: as numbers, in words."""
    look_in, pool = Catalogue(catalogue), None if data is None else load_pool(data)
    if model is not None:
        if query is not None:
            raise DataError("give either --query, with embedded tasks, or --model, not both.")
        if pool is None:
            raise DataError("--model needs --data, the data whose classes --task names.")
        listed = parse_classes(task) or [name.strip() for name in task.split(",")]
        asked = TaskModel.load(model).embed(make_tasks(pool, [list(map(str, listed))]))
    elif task.lstrip("-").isdigit():
        asked = (look_in if query is None else Catalogue(query)).find(int(task))
    else:
        raise DataError(f"--task {task}: expected the id of a task; classes need --model, --data.")
    asked.header.check_same_model(look_in.header, str(query or model or catalogue), str(catalogue))
    unit = asked.header.unit or "1 is how far two training tasks are on average"
    lines = [f"nearest to the task of {', '.join(asked.names(0))} (distances: {unit}):"]
    about = {"task": int(asked.ids[0]), "classes": list(asked.names(0))}
    measure, there = find_similarity(similarity), look_in.posteriors(only)
    if measure.factor:
        asked, there = asked.factor(measure.factor), there.factor(measure.factor)
    near = nearest(asked, there, k, pool=pool, kind=measure.kind)
    rows, tasks, ties = [], look_in.take(near.indices[0], only), int(near.ties[0])
    for i, distance in enumerate(near.distances[0].tolist()):
        row = {"task": int(tasks.ids[i]), "distance": distance, "classes": list(tasks.names(i))}
        same = ties > 1 and distance - near.distances.min() <= near.tie
        line = "not told apart" if same else f"{distance:14.4g}"
        if near.by_classes is not None:
            row["by_classes"] = float(near.by_classes[0, i])
            line += f" {row['by_classes']:8.4g} apart"
        rows.append(row)
        lines.append(f"{line}  task {row['task']:<8} {', '.join(tasks.names(i))}")
    lines.append(near.summary())
    return {"query": about, "ties": ties, "nearest": rows}, "\n".join(lines)
