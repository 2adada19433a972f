"""For ``taskscape compare`` and ``nearest``: distances between tasks that lie in files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape import compare
from taskscape.cli.options import read_tasks_of
from taskscape.compare import Resemblance
from taskscape.csv_tables import write_csv
from taskscape.embeddings import Catalogue, Embeddings, TaskFilter
from taskscape.errors import DataError
from taskscape.files import csv_with, written_in_one_piece
from taskscape.pools import load_pool
from taskscape.similarity import distances_between, make_similarity
from taskscape.similarity.known import PROTOTYPES
from taskscape.similarity.nearest_tasks import TIE, settle_ties, tie_levels
from taskscape.tasks import TaskSet, make_tasks
from taskscape.tasks.class_lists import parse_classes, write_classes
from taskscape.themes.estimator import TaskThemes

_MOST_IN_MEMORY = 5_000_000
_SAMPLES = 50
"""Of each class, at most so many are looked at for its mean."""
_COLUMNS = ("task", "classes", "distance", "nearest", "percentile")
TABLE = csv_with("a table of distances", *_COLUMNS)


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
    word: str
    unit: str = ""

    def summary(self) -> str:
        """The spread of the distances, and whether the test set is like the training set."""
        words = ""
        spread = {"all training tasks": self.distance, f"the {self.k} nearest": self.near}
        for name, values in spread.items():
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
            words += f"mean {self.word} to {name}: median {middle:.4g} {self.unit}"
            words += f"(5 % to 95 %: {low:.4g} to {high:.4g})\n"
        answer = self.why_not if self.likeness is None else self.likeness.summary()
        return f"{words}\nIs the test set like the training set?\n{answer}"

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


def by_themes(
    test: Path, train: Path, reference: Path | None, k: int, normalise: bool, seed: int
) -> Compared:
    asked, against = _same_model(test, train)
    n_train = len(against)
    whole = None if n_train > _MOST_IN_MEMORY else Embeddings.load(train)
    if normalise and whole is None:
        raise DataError(f"--normalise-ways reads all of {train}, which has {n_train:,} tasks.")
    test_lam = _lam(asked, normalise)
    train_lam: Any = against.lam() if whole is None else _lam(whole, normalise)
    scales = compare.member_scales(test_lam, train_lam) if asked.header.members > 1 else None
    distance = compare.mean_kl(test_lam, train_lam, scales=scales)
    k = min(k, n_train)
    near = compare.nearest(test_lam, train_lam, k, scales=scales).distances.mean(axis=1)
    likeness, why_not = _likeness(test_lam, train_lam, whole, reference, normalise, seed)
    unit = "nats " if asked.header.members == 1 else "of the mean distance "
    return Compared(asked, distance, near, n_train, k, likeness, why_not, "KL", unit)


def _same_model(test: Path, train: Path) -> tuple[Embeddings, Catalogue]:
    asked, against = Embeddings.load(test), Catalogue(train)
    asked.header.check_same_model(against.header, str(test), str(train))
    return asked, against


def mean_distances(test: Path, train: Path) -> tuple[Embeddings, Float[np.ndarray, "tests"]]:
    """Embedded test tasks, and the mean KL of each to the training tasks."""
    asked, against = _same_model(test, train)
    return asked, compare.mean_kl(_lam(asked, normalise=False), against.lam())


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
    return Compared(asked, distance, near, len(known), k, likeness, why_not, "distance")


def _lam(embeddings: Embeddings, normalise: bool) -> Float[np.ndarray, "members tasks L"]:
    if not normalise:
        return embeddings.lam.astype(np.float64)
    if embeddings.header.delta is None:
        raise DataError("--normalise-ways needs delta, which these embeddings do not name.")
    return compare.normalise_ways(embeddings.lam, delta=embeddings.header.delta)


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
        return compare.resemblance(test_lam, train_lam, reference=_lam(held_out, normalise)), ""
    try:
        return compare.resemblance(test_lam, train_lam, train_classes=train.classes, seed=seed), ""
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
    return TaskThemes.load(model).embed(tasks)


def find_nearest(
    look_in: Catalogue, asked: Embeddings, k: int, only: TaskFilter, data: str | None
) -> tuple[list[dict[str, Any]], int]:
    """A row for each of the k nearest tasks, and how many are equally near as the nearest.

    With the data, equally near ones come in the order of their class means.
    """
    query = asked.lam.astype(np.float64)
    scales = compare.member_scales(query, look_in.lam(only)) if len(query) > 1 else None
    near = compare.nearest(query, look_in.lam(only), k, scales=scales)
    places, far = _within(look_in, query, only, scales, float(near.distances[0, -1]) + TIE)
    level = tie_levels(far, TIE)
    if data is None:
        tasks, distances, apart = look_in.take(near.indices[0], only), near.distances[0], None
    else:
        chosen, apart = settle_ties(
            level, k, lambda which: _apart(data, asked, look_in.take(places[which], only))
        )
        tasks, distances = look_in.take(places[chosen], only), far[chosen]
    rows = []
    for i, kl in enumerate(distances.tolist()):
        row = {"task": int(tasks.ids[i]), "kl": kl, "classes": list(tasks.names(i))}
        rows.append(row if apart is None else row | {"by_classes": float(apart[i])})
    return rows, int((level == 0).sum())


def _within(
    look_in: Catalogue, query: Float[np.ndarray, "members one L"], only: TaskFilter,
    scales: object, most: float,
) -> tuple[Int[np.ndarray, "some"], Float[np.ndarray, "some"]]:  # fmt: skip
    """The places of all tasks that are not farther than so many nats, and their distances."""
    places, distances, begin = [], [], 0
    for lam in look_in.lam(only):
        chunk = np.asarray(lam, dtype=np.float64)
        n = chunk.shape[-2]
        far = distances_between(query, chunk, scales=scales).block(np.array([0]), np.arange(n))[0]
        here = np.flatnonzero(far <= most)
        places.append(here + begin)
        distances.append(far[here])
        begin += n
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
