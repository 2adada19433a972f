"""Is my test set like my training set? Distances against a reference, answered in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from taskscape.arguments import Seed, as_array, check_choice, check_seed, check_whole
from taskscape.compare.means import mean_distance
from taskscape.compare.posteriors import Tasks, check_together, read_posterior
from taskscape.compare.rows import class_hashes
from taskscape.compare.search import nearest
from taskscape.embeddings import Posterior
from taskscape.errors import DataError

_ENOUGH = 200
LEAST_REFERENCES = 20
"""Fewer tasks to compare with do not make a verdict."""
_FEW_BEYOND, _MANY_BEYOND = 0.10, 0.50
_USUAL = (35.0, 65.0)


@dataclass(frozen=True, eq=False, repr=False)
class Resemblance:
    """Where test tasks stand among tasks that are known to be like the training tasks."""

    distance: Float[np.ndarray, "tasks"]
    """From each test task to the training tasks, averaged over folds."""
    percentile: Float[np.ndarray, "tasks"]
    """Share of reference tasks that are nearer, in percent; 50 is usual."""
    reference: Float[np.ndarray, "references"]
    """Distances of the reference tasks, all folds together."""
    measure: str
    n_train: int
    folds: int
    """Partitions of the training classes; 0 where the reference was given."""

    @staticmethod
    def of(
        distance: Float[np.ndarray, "tasks"],
        reference: Float[np.ndarray, "references"],
        measure: str,
        n_train: int,
    ) -> "Resemblance":
        """From distances to the training tasks by any measure, of test and reference tasks."""
        percentile = _percentiles(distance, reference)
        return Resemblance(distance, percentile, reference, measure, n_train, folds=0)

    def __repr__(self) -> str:
        return f"Resemblance({self.answer}: {len(self.distance):,} test tasks)"

    @property
    def median_percentile(self) -> float:
        """The percentile of the middle test task; about 50 if the sets are alike."""
        return float(np.median(self.percentile))

    @property
    def beyond(self) -> float:
        """Share of test tasks farther away than 95 % of the reference; about 0.05 if alike."""
        return float((self.percentile > 95).mean())

    @property
    def answer(self) -> str:
        """``"alike"``, ``"nearer"``, ``"somewhat farther"`` or ``"unlike"``."""
        if self.beyond > _MANY_BEYOND:
            return "unlike"
        if self.beyond > _FEW_BEYOND or self.median_percentile > _USUAL[1]:
            return "somewhat farther"
        return "nearer" if self.median_percentile < _USUAL[0] else "alike"

    def summary(self) -> str:
        """The answer in words, with the numbers it rests on."""
        verdict = {
            "alike": "Yes. The test tasks are about as far from the training tasks as tasks of "
            "held-out training classes are.",
            "nearer": "Yes. The test tasks are even nearer to the training tasks than tasks of "
            "held-out training classes usually are.",
            "somewhat farther": "Partly. The test tasks tend to be farther from the training tasks "
            "than tasks of held-out training classes are.",
            "unlike": "No. Most test tasks are farther from the training tasks than nearly all "
            "tasks of held-out training classes are.",
        }[self.answer]
        how = "given" if self.folds == 0 else f"from {self.folds} folds of the training classes"
        return (
            f"{verdict}\n"
            f"The middle test task is at percentile {self.median_percentile:.0f} of the reference "
            f"(50 is usual); {100 * self.beyond:.0f} % of the test tasks lie beyond its 95th "
            f"percentile (5 % is usual).\n"
            f"{self.measure}: test {np.median(self.distance):.3g}, reference "
            f"{np.median(self.reference):.3g} (medians). {len(self.distance):,} test tasks, "
            f"{self.n_train:,} training tasks, {len(self.reference):,} reference tasks {how}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists."""
        return {
            "answer": self.answer,
            "summary": self.summary(),
            "median_percentile": self.median_percentile,
            "beyond_95": self.beyond,
            "measure": self.measure,
            "n_train": self.n_train,
            "folds": self.folds,
            "distance": self.distance.tolist(),
            "percentile": self.percentile.tolist(),
            "reference": self.reference.tolist(),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Resemblance":
        """The answer that :meth:`to_dict` took apart."""
        arrays = ("distance", "percentile", "reference")
        read: dict[str, Any] = {k: np.array(values[k], np.float64) for k in arrays}
        return Resemblance(**read, **{k: values[k] for k in ("measure", "n_train", "folds")})


def resemblance(
    test: Tasks,
    train: Tasks,
    *,
    train_classes: object = None,
    reference: Tasks | None = None,
    measure: str = "mean",
    k: int = 10,
    kind: str = "kl",
    folds: int | None = None,
    seed: Seed = 0,
) -> Resemblance:
    """Compare the test tasks' distances with those of tasks from held-out training classes.

    The reference is either given (``reference``: tasks of classes that no training task has,
    such as validation classes), or made from the training tasks (``train_classes``: a TaskSet or
    class ids (tasks, way) padded with -1; ``Embeddings`` know their own): the classes are dealt
    into ``folds``; the reference tasks of a fold have all their classes in it, and are compared,
    like the test tasks, with the training tasks that have none. ``measure`` is ``"mean"`` (mean
    distance to all) or ``"nearest"`` (mean distance to the ``k`` nearest), by the divergence
    ``kind``.
    """
    a, b = read_posterior(test, "test"), read_posterior(train, "train")
    check_together(a, b)
    check_choice(measure, "measure", ("mean", "nearest"))
    k = check_whole(k, "k", 1)
    folds = None if folds is None else check_whole(folds, "folds")
    if reference is None and train_classes is None:
        train_classes = getattr(train, "classes", None)
    if (reference is None) == (train_classes is None):
        raise DataError(
            "give either train_classes, from which held-out classes are taken, or reference, "
            "tasks of classes that no training task has."
        )

    def distance(tasks: Posterior, to: Posterior) -> np.ndarray:
        if measure == "mean":
            return mean_distance(tasks, to, kind=kind)
        return nearest(tasks, to, min(k, len(to)), kind=kind).distances.mean(axis=1)

    if reference is not None:
        r = read_posterior(reference, "reference")
        check_together(r, b, ("reference", "train"))
        pairs, n_folds = [(distance(a, b), distance(r, b))], 0
    else:
        classes = read_classes(train_classes, len(b))
        splits = _folds(classes, folds, check_seed(seed))
        pairs = [(distance(a, b[out]), distance(b[inside], b[out])) for inside, out in splits]
        n_folds = len(splits)
    words = "mean distance" if measure == "mean" else f"mean distance to the {k} nearest"
    return Resemblance(
        distance=np.mean([d for d, _ in pairs], axis=0),
        percentile=np.mean([_percentiles(d, ref) for d, ref in pairs], axis=0),
        reference=np.concatenate([ref for _, ref in pairs]),
        measure=words,
        n_train=len(b),
        folds=n_folds,
    )


def read_classes(given: object, n_tasks: int, name: str = "train_classes") -> np.ndarray:
    """Class ids (tasks, way) of a TaskSet or an array, checked against the number of tasks."""
    classes = as_array(getattr(given, "classes", given))
    if classes.ndim != 2 or classes.dtype.kind not in "iu" or len(classes) != n_tasks:
        raise DataError(
            f"{name} has shape {classes.shape} and type {classes.dtype}; expected a TaskSet, or "
            f"class ids (tasks, way) padded with -1, for {n_tasks} tasks."
        )
    return classes.astype(np.int64)


def _percentiles(
    distance: Float[np.ndarray, "tasks"], reference: Float[np.ndarray, "references"]
) -> Float[np.ndarray, "tasks"]:
    ordered = np.sort(reference)
    below = np.searchsorted(ordered, distance, side="left")
    upto = np.searchsorted(ordered, distance, side="right")
    return 50.0 * (below + upto) / len(ordered)


def _folds(
    classes: Int[np.ndarray, "tasks way"], folds: int | None, seed: int
) -> list[tuple[Bool[np.ndarray, "tasks"], Bool[np.ndarray, "tasks"]]]:
    """Masks of the tasks wholly inside and wholly outside each fold of the classes."""
    real = classes >= 0
    ids = np.unique(classes[real])
    if len(ids) < 4:
        raise DataError(f"train_classes has {len(ids)} classes; folds need at least 4.")
    dealt = ids[np.argsort(class_hashes(ids[:, None], np.full(len(ids), seed % 2**64, np.uint64)))]
    for n_folds in (5, 4, 3, 2) if folds is None else (folds,):
        if not 2 <= n_folds <= len(ids):
            raise DataError(f"folds={n_folds} must lie between 2 and the {len(ids)} classes.")
        fold_of = np.full(int(ids.max()) + 1, -1)
        fold_of[dealt] = np.arange(len(ids)) % n_folds
        fold = np.where(real, fold_of[np.maximum(classes, 0)], -1)
        masks = [
            (((fold == f) | ~real).all(axis=1), (fold != f).all(axis=1)) for f in range(n_folds)
        ]
        splits = [(inside, out) for inside, out in masks if inside.any() and out.any()]
        n_reference = sum(int(inside.sum()) for inside, _ in splits)
        if n_reference >= _ENOUGH:
            break
    if n_reference < LEAST_REFERENCES:
        raise DataError(
            f"only {n_reference} training tasks lie wholly inside a fold of the training classes; "
            f"{LEAST_REFERENCES} are needed. Pass reference=, tasks sampled from held-out classes, "
            "or more training tasks."
        )
    return splits
