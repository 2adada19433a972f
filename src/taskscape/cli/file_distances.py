"""For ``taskscape compare`` and ``nearest``: distances between tasks that lie in files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape import compare
from taskscape.cli.options import read_tasks_of
from taskscape.compare import Resemblance
from taskscape.embeddings import Catalogue, Embeddings, TaskFilter
from taskscape.errors import DataError
from taskscape.io.files import written_in_one_piece
from taskscape.io.tables import table_with, write_csv
from taskscape.pools import load_pool
from taskscape.similarity import distances_between, make_similarity
from taskscape.similarity.known import PROTOTYPES
from taskscape.similarity.nearest_tasks import TIE, settle_ties, tie_levels
from taskscape.tasks import TaskSet, make_tasks
from taskscape.tasks.class_lists import parse_classes, write_classes
from taskscape.themes.task_model import TaskModel

_MOST_BYTES = 1 << 31
"""Of a catalogue that is read into memory."""
_SAMPLES = 50
"""Of each class, at most so many are looked at for its mean."""
_COLUMNS = ("task", "classes", "distance", "nearest", "percentile")
TABLE = table_with("a table of distances", *_COLUMNS)


@dataclass(frozen=True, eq=False)
class Compared:
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
    unit: str = ""

    def summary(self) -> str:
        """The spread of the distances, and whether the test set is like the training set."""
        words = ""
        spread = {"all training tasks": self.distance, f"the {self.k} nearest": self.near}
        for name, values in spread.items():
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
            words += f"mean distance to {name}: median {middle:.4g}{self.unit} "
            words += f"(5 % to 95 %: {low:.4g} to {high:.4g})\n"
        answer = self.why_not if self.likeness is None else self.likeness.summary()
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
    factor: str, test: Path, train: Path, reference: Path | None, k: int, seed: int
) -> Compared:
    """Embedded tasks compared, by all factors or by one of them."""
    asked, against = _same_model(test, train)
    n_train = len(against)
    known: Any = against.posteriors()
    if 4 * n_train * asked.values.shape[1] <= _MOST_BYTES:
        known = Embeddings.load(train)
    elif factor:
        raise DataError(f"{train} has {n_train:,} tasks: too many to compare by one factor.")
    if factor:
        asked, known = asked.factor(factor), known.factor(factor)
    distance, k = compare.mean_distance(asked, known), min(k, n_train)
    near = compare.nearest(asked, known, k).distances.mean(axis=1)
    likeness, why_not = _likeness(asked, known, reference, factor, seed)
    unit = f" {asked.header.unit}".rstrip()
    return Compared(asked, distance, near, n_train, k, likeness, why_not, unit)


def _same_model(test: Path, train: Path) -> tuple[Embeddings, Catalogue]:
    asked, against = Embeddings.load(test), Catalogue(train)
    asked.header.check_same_model(against.header, str(test), str(train))
    return asked, against


def mean_distances(test: Path, train: Path) -> tuple[Embeddings, Float[np.ndarray, "tests"]]:
    """Embedded test tasks, and the mean distance of each to the training tasks."""
    asked, against = _same_model(test, train)
    return asked, compare.mean_distance(asked, against.posteriors())


def by_samples(
    similarity: str, data: str | None, test: Path, train: Path, reference: Path | None, k: int,
    seed: int,
) -> Compared:  # fmt: skip
    asked, known = read_tasks_of(similarity, data, test, train)
    fitted = make_similarity(similarity, seed=seed).fit(known)
    trains = fitted.embed(known)
    distances, k = fitted.distances(asked, trains), min(k, len(known))
    near = distances.nearest(np.arange(len(asked)), k).distances.mean(axis=1)
    distance, likeness = distances.mean_distance(), None
    if reference is not None:
        usual = fitted.mean_distance(TaskSet.load(reference, known.pool), trains)
        likeness = Resemblance.of(distance, usual, f"mean distance ({similarity})", len(known))
    why_not = "Unknown: give --reference, tasks of classes that no training task has."
    return Compared(asked, distance, near, len(known), k, likeness, why_not)


def _likeness(
    test: Embeddings, train: Any, reference: Path | None, factor: str, seed: int
) -> tuple[Resemblance | None, str]:
    """The answer, or why there is none."""
    if not isinstance(train, Embeddings):
        return None, f"Not asked: the catalogue has more than {_MOST_BYTES >> 30} GiB of tasks."
    if reference is not None:
        held_out = Embeddings.load(reference)
        held_out = held_out.factor(factor) if factor else held_out
        held_out.header.check_same_model(train.header, str(reference), "the training tasks")
        return compare.resemblance(test, train, reference=held_out), ""
    try:
        return compare.resemblance(test, train, seed=seed), ""
    except DataError as error:
        return None, f"Unknown: {error} (On the command line: --reference held_out.parquet.)"


def write_distances(path: Path, compared: Compared) -> None:
    tasks, likeness = compared.tasks, compared.likeness
    ids = tasks.ids if isinstance(tasks, Embeddings) else range(len(tasks))
    classes = [write_classes(tasks.names(i)) for i in range(len(tasks))]
    usual = [""] * len(tasks) if likeness is None else [f"{p:.2f}" for p in likeness.percentile]
    columns = (ids, classes, compared.distance, compared.near, usual)
    with written_in_one_piece(path, TABLE) as unfinished:
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
    look_in: Catalogue, asked: Embeddings, k: int, only: TaskFilter, data: str | None
) -> tuple[list[dict[str, Any]], int]:
    """A row for each of the k nearest tasks, and how many are equally near as the nearest.

    With the data, equally near ones come in the order of their class means.
    """
    near = compare.nearest(asked, look_in.posteriors(only), k)
    tie = TIE if asked.header.counts_themes else 0.0
    places, far = _within(look_in, asked, only, float(near.distances[0, -1]) + tie)
    level = tie_levels(far, tie)
    if data is None:
        tasks, distances, apart = look_in.take(near.indices[0], only), near.distances[0], None
    else:
        chosen, apart = settle_ties(
            level, k, lambda which: _apart(data, asked, look_in.take(places[which], only))
        )
        tasks, distances = look_in.take(places[chosen], only), far[chosen]
    rows = []
    for i, distance in enumerate(distances.tolist()):
        row = {"task": int(tasks.ids[i]), "distance": distance, "classes": list(tasks.names(i))}
        rows.append(row if apart is None else row | {"by_classes": float(apart[i])})
    return rows, int((level == 0).sum())


def _within(
    look_in: Catalogue, query: Embeddings, only: TaskFilter, most: float
) -> tuple[Int[np.ndarray, "some"], Float[np.ndarray, "some"]]:
    """The places of all tasks that are not farther than this, and their distances."""
    places, distances, begin = [], [], 0
    for chunk in look_in.posteriors(only):
        source = distances_between(query, chunk)
        far = source.block(np.array([0]), np.arange(len(chunk)))[0]
        here = np.flatnonzero(far <= most)
        places.append(here + begin)
        distances.append(far[here])
        begin += len(chunk)
    return np.concatenate(places), np.concatenate(distances)


def _apart(data: str, asked: Embeddings, others: Embeddings) -> Float[np.ndarray, "others"]:
    """How far the class means of the asked task are from those of the others."""
    pool = load_pool(data)
    shot = min(_SAMPLES, int(pool.counts.min()))
    query, known = (
        make_tasks(pool, [list(tasks.names(i)) for i in range(len(tasks))], n_shot=shot)
        for tasks in (asked, others)
    )
    return make_similarity(PROTOTYPES).fit(known).cdist(query, known)[0]
