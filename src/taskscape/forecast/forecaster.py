"""Forecaster: how well will a trained learner do on a task, given only its labelled samples?"""

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.errors import DataError
from taskscape.forecast.calibration import Calibration, Expected, calibrate
from taskscape.forecast.disk import from_disk, to_disk
from taskscape.forecast.features import (
    GROUPS,
    LESS_TRUSTED,
    MAIN,
    WORDS,
    Described,
    Describer,
    chosen_features,
)
from taskscape.forecast.judging import compare
from taskscape.forecast.reading import class_ids, classes_known, read_accuracy, read_train
from taskscape.forecast.result import Forecasts, Judgement
from taskscape.similarity import Similarity
from taskscape.storage import load_arrays, save_arrays
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

__all__ = ["ForecastWarning", "Forecaster"]

_MOST_TASKS = 20_000
_FEW_OUTSIDE = 0.05
_KIND = "forecaster"


class ForecastWarning(UserWarning):
    """A forecast was made, but something about it needs attention."""


class Forecaster:
    """The expected accuracy of one trained learner on tasks of classes it has not seen.

    ``model`` is a fitted :class:`taskscape.TaskThemes` and ``train`` the tasks that the learner
    was trained on, or others of the same classes: :class:`taskscape.Embeddings`, or λ (tasks, L)
    or (members, tasks, L). ``learner`` is its name, for the results. ``confidence`` is the part of
    tasks that intervals are meant to hold. ``groups`` are the things to look at, by default all of
    distance, difficulty, shape and uncertainty. ``similarity`` is a fitted notion of similarity to
    measure distances by, in place of the model's KL; ``train`` is then a TaskSet.

    ``fit`` wants tasks of *validation* classes, which neither the model nor the learner has learned
    from, and the learner's accuracy on them. Tasks are described by their support samples alone.
    """

    def __init__(
        self,
        model: TaskThemes,
        train: Any,
        learner: str = "learner",
        *,
        confidence: float = 0.9,
        groups: Sequence[str] | None = None,
        similarity: Similarity | None = None,
    ) -> None:
        if not 0.5 <= confidence < 1:
            raise DataError(f"confidence={confidence} must be at least 0.5 and below 1.")
        self.columns = chosen_features(groups)
        self.model, self.learner, self.confidence = model, learner, confidence
        self.similarity = similarity
        self.train = read_train(model, train, similarity)
        self._train_classes = classes_known(train)
        embedded = None if similarity is None else similarity.embed(train)
        self._describer = Describer(model, self.train, similarity, embedded)
        self.calibration: Calibration | None = None
        self._seen: tuple[str, frozenset[int]] = ("", frozenset())

    def describe(self, tasks: TaskSet) -> Described:
        """The numbers of each task that forecasts look at, from its support samples.

        They do not depend on the learner: pass them as ``described`` to the other methods, of this
        and other forecasters with the same model and training tasks, to save doing it again.
        """
        return self._describer(tasks)

    def fit(
        self, tasks: TaskSet, accuracy: Any, *, described: Described | None = None
    ) -> "Forecaster":
        """Learn from calibration tasks and the accuracies (tasks,) or (tasks, episodes) on them."""
        measured = read_accuracy(accuracy, len(tasks))
        if len(tasks) > _MOST_TASKS:
            raise DataError(
                f"{len(tasks):,} calibration tasks; the work grows with their square and the gain "
                f"does not. Give at most {_MOST_TASKS:,}."
            )
        self._warn_if_shared(tasks, self._train_classes, "training tasks", "too high")
        trust = np.array([1.0 if name in MAIN else LESS_TRUSTED for name in self.columns])
        self.calibration = calibrate(
            self.columns,
            self._numbers(tasks, described),
            measured.mean(axis=1),
            tasks.classes,
            trust,
        )
        self._seen = (tasks.pool.fingerprint, frozenset(class_ids(tasks)))
        found = self.calibration
        if found.shared:
            warnings.warn(
                f"{found.n_tasks:,} calibration tasks of {found.n_classes} classes are too few to "
                f"leave out all classes of a task: up to {found.shared} were shared, and the error "
                "on classes left out is flattering. Intervals allow for it by being wide; give "
                "more tasks, of more classes.",
                ForecastWarning,
                stacklevel=2,
            )
        return self

    def predict(self, tasks: TaskSet, *, described: Described | None = None) -> Forecasts:
        """The expected accuracy of each task with its interval, and the reasons for it."""
        calibration = self._fitted()
        X = self._numbers(tasks, described)
        expected = calibration.expect(X, tasks.n_way, self.confidence)
        beyond = calibration.outside(X)
        self._warn_of(beyond, len(tasks))
        return Forecasts(
            learner=self.learner,
            expected=expected.accuracy,
            low=expected.low,
            high=expected.high,
            confidence=self.confidence,
            reasons=self._reasons(expected),
            average=expected.average,
            outside=np.asarray(beyond.any(axis=1)),
        )

    def judge(
        self, tasks: TaskSet, accuracy: Any, *, described: Described | None = None
    ) -> Judgement:
        """Compare the forecasts for tasks with accuracies (tasks, episodes) measured on them."""
        measured = read_accuracy(accuracy, len(tasks))
        calibration = self._fitted()
        self._warn_if_shared(tasks, self._seen, "calibration tasks", "flattering")
        return compare(
            self.predict(tasks, described=described),
            measured,
            tasks.classes,
            calibration.mean_accuracy,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder (safetensors and JSON) that :meth:`load` reads, given the same model."""
        calibration = self._fitted()
        if self.similarity is not None:
            raise DataError(
                f"distances of this forecaster are by {type(self.similarity).__name__}, which is "
                "not stored; only those of a model of task-themes are."
            )
        arrays, header = to_disk(calibration)
        header |= {
            "what": _KIND,
            "learner": self.learner,
            "confidence": self.confidence,
            "model": self.model.fingerprint_,
            "calibration_pool": self._seen[0],
            "calibration_classes": sorted(self._seen[1]),
        }
        save_arrays(path, {**arrays, "train": self.train.astype(np.float32)}, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: TaskThemes) -> "Forecaster":
        """Read what :meth:`save` wrote; ``model`` must be the one it was made with."""
        arrays, header = load_arrays(path, _KIND)
        if header["model"] != model.fingerprint_:
            raise DataError(
                f"{os.fspath(path)} was made with another model (fingerprint "
                f"{header['model'][:12]}…, this one {model.fingerprint_[:12]}…)."
            )
        calibration = from_disk(arrays, header)
        groups = [g for g, names in GROUPS.items() if set(names) & set(calibration.columns)]
        made = cls(
            model, arrays["train"], header["learner"],
            confidence=header["confidence"], groups=groups,
        )  # fmt: skip
        made.calibration = calibration
        made._seen = (header["calibration_pool"], frozenset(header["calibration_classes"]))
        return made

    def _fitted(self) -> Calibration:
        if self.calibration is None:
            raise DataError("this forecaster is not fitted; call fit(tasks, accuracy) first.")
        return self.calibration

    def _numbers(
        self, tasks: TaskSet, described: Described | None
    ) -> Float[np.ndarray, "tasks columns"]:
        known = self._describer(tasks) if described is None else described
        X = np.stack([known[name] for name in self.columns], axis=1)
        if len(X) != len(tasks):
            raise DataError(f"described has {len(X)} tasks, not {len(tasks)}.")
        return X

    def _reasons(self, expected: Expected) -> Mapping[str, Float[np.ndarray, "tasks"]]:
        reasons = {}
        for group, names in GROUPS.items():
            which = [i for i, name in enumerate(self.columns) if name in names]
            if which:
                reasons[WORDS[group]] = expected.parts[:, which].sum(axis=1)
        if (expected.chance != 0).any() or WORDS["shape"] in reasons:
            reasons[WORDS["shape"]] = reasons.get(WORDS["shape"], 0.0) + expected.chance
        return reasons

    def _warn_if_shared(
        self, tasks: TaskSet, known: tuple[str, frozenset[int]], where: str, how: str
    ) -> None:
        shared = known[1] & set(class_ids(tasks)) if known[1] else ()
        if shared and tasks.pool.fingerprint == known[0]:
            warnings.warn(
                f"{len(shared)} classes, such as {tasks.pool.class_names[min(shared)]!r}, are "
                f"among those of the {where} too: the figures will be {how}. Use tasks of other "
                "classes.",
                ForecastWarning,
                stacklevel=3,
            )

    def _warn_of(self, beyond: np.ndarray, n: int) -> None:
        counts = beyond.sum(axis=0)
        strict = np.array([name in GROUPS["shape"] for name in self.columns])
        said = np.where(strict, counts > 0, counts > _FEW_OUTSIDE * n)
        if said.any():
            names = ", ".join(
                f"{name.replace('_', ' ')} ({count:,} of {n:,})"
                for name, count, tell in zip(self.columns, counts, said, strict=True)
                if tell
            )
            warnings.warn(
                f"tasks lie outside what the calibration tasks covered: {names}. Their forecasts "
                "extrapolate; calibrate with tasks of such ways, shots and distances.",
                ForecastWarning,
                stacklevel=3,
            )
