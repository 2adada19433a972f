"""For ``taskscape compare`` and ``nearest``: distances between tasks that lie in files."""

from dataclasses import dataclass
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
from taskscape.similarity import Resemblance, make_similarity, resemblance
from taskscape.similarity.known import KnownSimilarity, find_similarity
from taskscape.similarity.nearest_tasks import NearestTasks, nearest
from taskscape.tasks import TaskSet, make_tasks
from taskscape.tasks.class_lists import parse_classes, write_classes
from taskscape.themes.task_model import TaskModel

_MOST_BYTES = 1 << 31
"""Of a catalogue that is read into memory."""
_COLUMNS = ("task", "classes", "distance", "nearest")
TABLE = table_with("a table of distances", *_COLUMNS)


@dataclass(frozen=True, eq=False)
class Compared:
    """How far the test tasks are, and whether they are like the training tasks."""

    tasks: Embeddings | TaskSet
    distance: Float[np.ndarray, "tests"]
    near: Float[np.ndarray, "tests"]
    """Mean over the nearest training tasks."""
    n_train: int
    k: int
    likeness: Resemblance | None
    """None where the samples are not known."""
    unit: str = ""

    def summary(self) -> str:
        """The spread of the distances, and whether the test set is like the training set."""
        words = ""
        spread = {"all training tasks": self.distance, f"the {self.k} nearest": self.near}
        for name, values in spread.items():
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
            words += f"mean distance to {name}: median {middle:.4g}{self.unit} "
            words += f"(5 % to 95 %: {low:.4g} to {high:.4g})\n"
        answer = "Unknown: give --data, the samples that the tasks are from, to leave out training "
        answer = f"{answer}classes in turn." if self.likeness is None else self.likeness.summary()
        return f"{words}\nIs the test set like the training set?\n{answer}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists."""
        return {
            "n_test": len(self.tasks),
            "n_train": self.n_train,
            "mean_distance": self.distance.tolist(),
            "nearest_distance": self.near.tolist(),
            "k": self.k,
            "resemblance": None if self.likeness is None else self.likeness.to_dict(),
        }


def by_posteriors(
    similarity: str, data: str | None, test: Path, train: Path, validation: Path | None, k: int,
    seed: int,
) -> Compared:  # fmt: skip
    """Embedded tasks compared, by all factors or by one of them."""
    asked, known, n_train, measure = _read_embedded(similarity, test, train)
    distance, k = compare.mean_distance(asked, known, kind=measure.kind), min(k, n_train)
    near = compare.nearest(asked, known, k, kind=measure.kind).distances.mean(axis=1)
    likeness, unit = None, f" {asked.header.unit}".rstrip() if measure.kind == "kl" else ""
    if data is not None and isinstance(known, Embeddings):
        beside = None if validation is None else Embeddings.load(validation)
        likeness = resemblance(
            asked, known, similarity, validation=beside, pool=load_pool(data), seed=seed
        )
    return Compared(asked, distance, near, n_train, k, likeness, unit)


def _read_embedded(
    similarity: str, test: Path, train: Path
) -> tuple[Embeddings, Any, int, KnownSimilarity]:
    """Test tasks, training tasks or a stream of very many, their number, and what compares them."""
    measure, asked, against = find_similarity(similarity), Embeddings.load(test), Catalogue(train)
    asked.header.check_same_model(against.header, str(test), str(train))
    n_train = len(against)
    known: Any = against.posteriors()
    if 4 * n_train * asked.values.shape[1] <= _MOST_BYTES:
        known = Embeddings.load(train)
    if measure.factor:
        asked, known = asked.factor(measure.factor), known.factor(measure.factor)
    return asked, known, n_train, measure


def mean_distances(
    test: Path, train: Path, similarity: str
) -> tuple[Embeddings, Float[np.ndarray, "tests"]]:
    """Embedded test tasks, and the mean distance of each to the training tasks."""
    asked, known, _, measure = _read_embedded(similarity, test, train)
    return asked, compare.mean_distance(asked, known, kind=measure.kind)


def by_samples(
    similarity: str, data: str | None, test: Path, train: Path, validation: Path | None, k: int,
    seed: int,
) -> Compared:  # fmt: skip
    asked, known = read_tasks_of(similarity, data, test, train)
    fitted = make_similarity(similarity, seed=seed).fit(known)
    trains = fitted.embed(known)
    distances, k = fitted.distances(asked, trains), min(k, len(known))
    near = distances.nearest(np.arange(len(asked)), k).distances.mean(axis=1)
    beside = None if validation is None else TaskSet.load(validation, known.pool)
    likeness = resemblance(asked, known, similarity, validation=beside, seed=seed)
    return Compared(asked, distances.mean_distance(), near, len(known), k, likeness)


def write_distances(path: Path, compared: Compared) -> None:
    tasks = compared.tasks
    ids = tasks.ids if isinstance(tasks, Embeddings) else range(len(tasks))
    classes = [write_classes(tasks.names(i)) for i in range(len(tasks))]
    columns = (ids, classes, compared.distance, compared.near)
    with atomic_write(path, TABLE) as unfinished:
        write_csv(unfinished, dict(zip(_COLUMNS, columns, strict=True)))


def find_task(
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
    return TaskModel.load(model).embed(tasks)


def find_nearest(
    look_in: Catalogue,
    asked: Embeddings,
    k: int,
    only: TaskFilter,
    data: str | None,
    similarity: str,
) -> tuple[list[dict[str, Any]], NearestTasks]:
    """A row for each of the k nearest tasks; with the data, of equals the most alike first."""
    measure, there = find_similarity(similarity), look_in.posteriors(only)
    if measure.factor:
        asked, there = asked.factor(measure.factor), there.factor(measure.factor)
    near = nearest(
        asked, there, k, pool=None if data is None else load_pool(data), kind=measure.kind
    )
    tasks, rows = look_in.take(near.indices[0], only), []
    for i, distance in enumerate(near.distances[0].tolist()):
        row = {"task": int(tasks.ids[i]), "distance": distance, "classes": list(tasks.names(i))}
        known = near.by_classes
        rows.append(row if known is None else row | {"by_classes": float(known[0, i])})
    return rows, near
