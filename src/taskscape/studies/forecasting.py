"""How good are forecasts? Calibrated on validation classes, judged on test classes.

    python -m taskscape.studies.forecasting --pool mini_imagenet --learners protonet,maml \
        --out docs/results/forecast-mini-imagenet.jsonl

One line of JSON for each learner, number of shots and number of labelled samples that the forecast
sees, with an ablation; a second run with the same file goes on where the first one stopped. The
test classes play no part in anything that is chosen.

    python -m taskscape.studies.forecasting --pool mini_imagenet --splits 1000 \
        --split-classes 8 10 --out docs/results/forecast-mini-imagenet.jsonl

touches no test class: it splits the validation classes 1,000 times into 8 (then 10) to calibrate
with and the others, and tells what the intervals held on average.
"""

import argparse
import json
import shlex
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.errors import DataError
from taskscape.forecast import Forecaster
from taskscape.meta import LEARNERS, TrainConfig, Trained, evaluate, mlp, split_settings, train
from taskscape.pools import ClassPool, load_pool
from taskscape.studies.class_splits import ClassSplits, coverage_over_splits
from taskscape.studies.learning import hold_out, unit_length
from taskscape.studies.ledger import Ledger, surroundings
from taskscape.tasks import TaskSet, enumerate_tasks, make_tasks, sample_tasks
from taskscape.themes.estimator import HealthWarning, TaskThemes

__all__ = ["ABLATION", "SETTINGS", "ForecastingStudy", "main"]

ABLATION: Mapping[str, tuple[str, ...] | None] = MappingProxyType(
    {
        "distance": ("distance",),
        "difficulty": ("difficulty",),
        "both": ("distance", "difficulty"),
        "all": None,
    }
)
"""What forecasts are allowed to look at."""

SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "protonet": {"scale": 2.0, "learning_rate": 3e-4},
        "maml": {"scale": 8.0, "learning_rate": 3e-4, "inner_rate": 0.1, "inner_steps": 20},
    }
)
"""Settings of learners other than their defaults, chosen on validation classes before."""

_PIXEL_COMPONENTS = 64
_HELD_OUT_SHARE = 6


@dataclass(frozen=True)
class ForecastingStudy:
    """Everything that decides a result but the learner and the numbers of samples."""

    pool: ClassPool
    features: ClassPool
    """The same samples as learners take them: feature vectors of unit length."""
    n_way: int = 5
    n_query: int = 15
    task_themes: int = 4
    image_themes: int = 8
    ensemble: int = 3
    fit_tasks: int = 20_000
    max_passes: int = 5
    known_tasks: int = 10_000
    """Training tasks that distances are measured to."""
    train_tasks: int = 10_000
    val_tasks: int = 5_000
    test_tasks: int = 20_000
    """At most; where there are fewer combinations of classes, all of them."""
    episodes: int = 20
    confidence: float = 0.9
    seed: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: SETTINGS)

    @cached_property
    def model(self) -> TaskThemes:
        """Task-themes of the training classes."""
        tasks = sample_tasks(
            self.pool, self.fit_tasks, split="train", n_way=(self.n_way, 2 * self.n_way),
            n_shot=self._many, seed=self.seed,
        )  # fmt: skip
        model = TaskThemes(
            self.task_themes, self.image_themes, max_passes=self.max_passes,
            n_restarts=self.ensemble, ensemble=self.ensemble, random_state=self.seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HealthWarning)
            return model.fit(tasks)

    @cached_property
    def known(self) -> np.ndarray:
        """λ of training tasks."""
        tasks = self._draw("train", self.known_tasks, self._many, 3)
        return np.asarray(self.model.transform(tasks))

    @property
    def _many(self) -> int:
        """Samples of a class that training tasks are described by."""
        return min(16, int(self.pool.counts.min()))

    def _draw(self, split: str, most: int, n_shot: int, seed: int, n_query: int = 0) -> TaskSet:
        """All combinations of classes, or a sample of distinct ones where there are more."""
        sizes: dict[str, Any] = {"n_way": self.n_way, "n_shot": n_shot, "n_query": n_query}
        everything = enumerate_tasks(self.pool, split=split, seed=self.seed + seed, **sizes)
        if len(everything) <= most:
            return everything.collect()
        return sample_tasks(
            self.pool, most, split=split, seed=self.seed + seed, unique=True, **sizes
        )

    def asked(self, split: str, n_shot: int) -> TaskSet:
        """The tasks that learners are evaluated on."""
        most, seed = (self.val_tasks, 1) if split == "val" else (self.test_tasks, 2)
        return self._draw(split, most, n_shot, seed, self.n_query)

    def trained(self, name: str, n_shot: int) -> Trained:
        """The learner, trained on training classes."""
        settings = dict(self.settings.get(name, {}))
        network = mlp(self.features.sample_shape[0], scale=settings.pop("scale", 1.0))
        learner, training = split_settings(name, settings)
        tasks = self._draw("train", self.train_tasks, n_shot, 4, self.n_query)
        config = TrainConfig.one_pass(len(tasks), **training)
        return train(learner, network, replace(tasks, pool=self.features), config, seed=self.seed)

    def accuracies(self, name: str, n_shot: int) -> dict[str, Float[np.ndarray, "_ episodes"]]:
        """The accuracy of the trained learner on each validation and test task, by episode."""
        made = self.trained(name, n_shot)
        return {s: self._measured(made, self.asked(s, n_shot)) for s in ("val", "test")}

    def _measured(self, made: Trained, tasks: TaskSet) -> Float[np.ndarray, "_ episodes"]:
        asked = replace(tasks, pool=self.features)
        found = evaluate(made.learner, made.state, asked, episodes=self.episodes, seed=self.seed)
        return found.accuracy_by_episode.astype(np.float64)

    def judged(
        self, learners: Sequence[str], n_shot: int, labelled: Sequence[int]
    ) -> dict[tuple[str, int], dict[str, Any]]:
        """What the forecasts for each learner are worth, by learner and labelled samples."""
        accuracy, seconds = {}, {}
        for name in learners:
            began = time.perf_counter()
            accuracy[name] = self.accuracies(name, n_shot)
            seconds[name] = time.perf_counter() - began
        found = {}
        for n in labelled:
            began = time.perf_counter()
            tasks = {s: self.asked(s, n_shot).with_samples(n) for s in ("val", "test")}
            blank = Forecaster(self.model, self.known)
            described = {s: blank.describe(t) for s, t in tasks.items()}
            took = time.perf_counter() - began
            for name in learners:
                found[name, n] = {
                    **self._judge(name, tasks, described, accuracy[name]),
                    "learner_seconds": seconds[name],
                    "describe_seconds": took,
                }
        return found

    def _judge(
        self,
        name: str,
        tasks: Mapping[str, TaskSet],
        described: Mapping[str, Mapping[str, np.ndarray]],
        accuracy: Mapping[str, Float[np.ndarray, "_ episodes"]],
    ) -> dict[str, Any]:
        results = {}
        for ablation, groups in ABLATION.items():
            forecaster = Forecaster(
                self.model, self.known, name, confidence=self.confidence, groups=groups
            ).fit(tasks["val"], accuracy["val"], described=described["val"])
            judgement = forecaster.judge(
                tasks["test"], accuracy["test"], described=described["test"]
            )
            calibration = forecaster.calibration
            assert calibration is not None
            weights = dict(zip(calibration.columns, calibration.ridge.weights, strict=True))
            results[ablation] = {
                **asdict(judgement),
                "summary": judgement.summary(),
                "held_out_error": calibration.error,
                "penalty": calibration.penalty,
                "weights": {k: round(float(w), 4) for k, w in weights.items()},
            }
        return {
            "results": results,
            "val_accuracy": float(accuracy["val"].mean()),
            "test_accuracy": float(accuracy["test"].mean()),
            "tasks": {s: len(t) for s, t in tasks.items()},
            "classes": {s: len(np.unique(t.classes)) for s, t in tasks.items()},
        }

    @property
    def val_classes(self) -> Int[np.ndarray, "classes"]:
        """Ids of the validation classes."""
        return np.flatnonzero(np.array(self.pool.splits) == "val")

    def covered(
        self, learners: Sequence[str], n_shot: int, labelled: Sequence[int], splits: ClassSplits
    ) -> dict[tuple[str, int], dict[str, Any]]:
        """What intervals hold over splits of the validation classes, as :meth:`judged` has it."""
        began = time.perf_counter()
        drawn = splits.draw(self.val_classes, self.n_way, self.seed)
        tasks = make_tasks(
            self.pool, drawn.tasks, n_shot=n_shot, n_query=self.n_query, seed=self.seed
        )
        accuracy = {name: self._measured(self.trained(name, n_shot), tasks) for name in learners}
        found = {}
        for n in labelled:
            seen = tasks.with_samples(n)
            described = Forecaster(self.model, self.known).describe(seen)
            for name in learners:
                made = Forecaster(self.model, self.known, name, confidence=self.confidence)
                told = coverage_over_splits(made, seen, accuracy[name], described, drawn)
                classes = {"calibration": splits.n_classes,
                           "left_out": len(self.val_classes) - splits.n_classes}  # fmt: skip
                sizes = {"classes": classes, "tasks": len(tasks)}
                found[name, n] = {**told, **sizes, "seconds": time.perf_counter() - began}
        return found

    def cell(self) -> dict[str, Any]:
        """What of the study enters the identity of its results."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        plain["pool"] = {"name": self.pool.name, "fingerprint": self.pool.fingerprint}
        plain["features"] = self.features.name
        return plain


def run(
    study: ForecastingStudy,
    ledger: Ledger,
    learners: Sequence[str],
    shots: Sequence[int],
    labelled: Sequence[int],
    splits: ClassSplits | None = None,
) -> None:
    """Judge all forecasts that the ledger does not hold yet.

    On test classes, or over splits of the validation classes where ``splits`` are given.
    """
    what: dict[str, Any] = {"what": "forecast"}
    if splits is not None:
        what = {"what": "forecast over splits of validation classes", "splits": asdict(splits)}
    for n_shot in shots:
        cells = {}
        for name in learners:
            for n in sorted({n_shot, *labelled}):
                own = {"learner": name, "settings": dict(study.settings.get(name, {}))}
                cell = {**what, **own, "n_shot": n_shot, "labelled": n}
                cells[name, n] = {**cell, **study.cell()}
        missing = [key for key, cell in cells.items() if ledger.get(cell) is None]
        if not missing:
            continue
        names = sorted({name for name, _ in missing}, key=list(learners).index)
        asked = names, n_shot, sorted({n for _, n in missing})
        found = study.judged(*asked) if splits is None else study.covered(*asked, splits)
        for key in missing:
            ledger.add(cells[key], found[key])
            print(f"{n_shot}-shot, {key[1]} labelled samples per class: {_in_words(found[key])}")


def _in_words(found: Mapping[str, Any]) -> str:
    if "results" in found:
        return str(found["results"]["all"]["summary"])
    low, high = found["coverage_interval"]
    return (
        f"calibrated with {found['classes']['calibration']} classes, the "
        f"{100 * found['confidence']:.0f} % interval held {100 * found['coverage']:.1f} % "
        f"({100 * low:.1f} to {100 * high:.1f}) of tasks of {found['classes']['left_out']} others, "
        f"averaged over {len(found['coverage_by_split'])} splits; mean width "
        f"{100 * found['mean_width']:.1f} points."
    )


def load(name: str) -> tuple[ClassPool, ClassPool]:
    """A pool with validation classes, and its samples as feature vectors of unit length."""
    pool = load_pool(name)
    if pool.splits is None:
        raise DataError(f"{pool!r} has no splits; forecasts need train, val and test classes.")
    if "val" not in pool.splits:
        groups = {g for g, s in zip(pool.groups or (), pool.splits, strict=False) if s == "train"}
        pool = hold_out(pool, max(1, len(groups) // _HELD_OUT_SHARE))
    return pool, unit_length(pool, pca=_PIXEL_COMPONENTS if pool.is_images else None)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; see the module's docstring."""
    options = _parser().parse_args(arguments)
    learners = options.learners.split(",")
    for name in learners:
        if name not in LEARNERS:
            raise DataError(f"learner {name!r} is not known; choose from {', '.join(LEARNERS)}.")
    pool, features = load(options.pool)
    numbers = {
        f.name: getattr(options, f.name)
        for f in fields(ForecastingStudy)
        if getattr(options, f.name, None) is not None and f.name not in ("pool", "settings")
    }
    settings = {**SETTINGS, **json.loads(options.settings)}
    study = ForecastingStudy(pool, features, settings=settings, **numbers)
    command = "python -m taskscape.studies.forecasting " + shlex.join(
        sys.argv[1:] if arguments is None else arguments
    )
    ledger = Ledger(Path(options.out), {"command": command, **surroundings()})
    splits: list[ClassSplits | None] = [None]
    if options.splits is not None:
        splits = [ClassSplits(n, options.splits) for n in options.split_classes]
    for each in splits:
        if each is not None:
            each.check(len(study.val_classes), study.n_way)
    for each in splits:
        run(study, ledger, learners, options.shots, options.labelled, each)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--pool", required=True, help="a known data set or a path")
    add("--learners", default="protonet,maml")
    add("--shots", type=int, nargs="+", default=[1, 5], help="what learners adapt to")
    more = "labelled samples per class that forecasts see, besides as many as learners do"
    add("--labelled", type=int, nargs="*", default=[16], help=more)
    instead = "split the validation classes so often, instead of judging on test classes"
    add("--splits", type=int, help=instead)
    of_them = "how many validation classes to calibrate with in each split"
    add("--split-classes", type=int, nargs="+", default=[8], help=of_them)
    add("--settings", default="{}", help='as JSON, such as {"maml": {"inner_rate": 0.2}}')
    for name in ("n_way", "n_query", "task_themes", "image_themes", "ensemble", "fit_tasks",
                 "max_passes", "known_tasks", "train_tasks", "val_tasks", "test_tasks", "episodes",
                 "seed"):  # fmt: skip
        add(f"--{name.replace('_', '-')}", type=int)
    add("--out", required=True, help="file of JSON lines; finished cells in it are not run again")
    return parser


if __name__ == "__main__":
    main()
