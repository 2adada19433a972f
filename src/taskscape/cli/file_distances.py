"""For ``taskscape compare`` and ``nearest``: distances between tasks that lie in files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape import compare
from taskscape.arguments import check_whole
from taskscape.cli.options import read_tasks_of
from taskscape.compare import Resemblance
from taskscape.embeddings import Catalogue, Embeddings, TaskFilter
from taskscape.errors import DataError
from taskscape.io.files import written_in_one_piece
from taskscape.io.tables import table_with, write_csv
from taskscape.pools import load_pool
from taskscape.similarity import distances_between, make_similarity
from taskscape.similarity.known import PROTOTYPES, KnownSimilarity, find_similarity
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
    similarity: str, test: Path, train: Path, reference: Path | None, k: int, seed: int
) -> Compared:
    """Embedded tasks compared, by all factors or by one of them."""
    asked, known, n_train, measure = _read_embedded(similarity, test, train)
    distance, k = compare.mean_distance(asked, known, kind=measure.kind), min(k, n_train)
    near = compare.nearest(asked, known, k, kind=measure.kind).distances.mean(axis=1)
    likeness, why_not = _likeness(asked, known, reference, measure, seed)
    unit = f" {asked.header.unit}".rstrip() if measure.kind == "kl" else ""
    return Compared(asked, distance, near, n_train, k, likeness, why_not, unit)


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
    elif measure.factor:
        raise DataError(f"{train} has {n_train:,} tasks: too many to compare by one factor.")
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
    test: Embeddings, train: Any, reference: Path | None, measure: KnownSimilarity, seed: int
) -> tuple[Resemblance | None, str]:
    """The answer, or why there is none."""
    if not isinstance(train, Embeddings):
        return None, f"Not asked: the catalogue has more than {_MOST_BYTES >> 30} GiB of tasks."
    if reference is not None:
        held_out = Embeddings.load(reference)
        held_out = held_out.factor(measure.factor) if measure.factor else held_out
        held_out.header.check_same_model(train.header, str(reference), "the training tasks")
        return compare.resemblance(test, train, reference=held_out, kind=measure.kind), ""
    try:
        return compare.resemblance(test, train, seed=seed, kind=measure.kind), ""
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
    look_in: Catalogue,
    asked: Embeddings,
    k: int,
    only: TaskFilter,
    data: str | None,
    similarity: str,
) -> tuple[list[dict[str, Any]], int]:
    """A row for each of the k nearest tasks, and how many are equally near as the nearest.

    With the data, equally near ones come in the order of their class means.
    """
    chunks = look_in.posteriors(only)
    blocks = [distances_between(asked, chunk, similarity).matrix()[0] for chunk in chunks]
    far = np.concatenate([*blocks, np.empty(0)])
    check_whole(k, "k", 1, len(far))
    level = tie_levels(far, TIE if asked.header.counts_themes else 0.0)
    if data is None:
        chosen, apart = np.argsort(far, kind="stable")[:k], None
    else:
        chosen, apart = settle_ties(
            level, k, lambda which: _apart(data, asked, look_in.take(which, only))
        )
    tasks, rows = look_in.take(chosen, only), []
    for i, distance in enumerate(far[chosen].tolist()):
        row = {"task": int(tasks.ids[i]), "distance": distance, "classes": list(tasks.names(i))}
        rows.append(row if apart is None else row | {"by_classes": float(apart[i])})
    return rows, int((level == 0).sum())


def _apart(data: str, asked: Embeddings, others: Embeddings) -> Float[np.ndarray, "others"]:
    """How far the class means of the asked task are from those of the others."""
    pool = load_pool(data)
    shot = min(_SAMPLES, int(pool.counts.min()))
    query, known = (
        make_tasks(pool, [list(tasks.names(i)) for i in range(len(tasks))], n_shot=shot)
        for tasks in (asked, others)
    )
    return make_similarity(PROTOTYPES).fit(known).cdist(query, known)[0]
