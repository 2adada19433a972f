"""How good are forecasts? Calibrated on validation classes, evaluated on test classes.

    python -m experiments forecasting --pool mini_imagenet --learners protonet,maml \\
        --labelled 1 5 16 --out experiments/results/forecast-mini-imagenet.jsonl

A cell is a learner, a number of shots and a number of labelled samples that the forecast sees, with
an ablation. Nothing is chosen by the test classes. Measured accuracies, by
episode, are kept in ``arrays`` beside the ledger.

    python -m experiments forecasting --pool mini_imagenet --splits 1000 \\
        --split-classes 8 10 --out experiments/results/forecast-mini-imagenet.jsonl

touches no test class: it splits the validation classes 1,000 times into 8 (then 10) to calibrate
with and the others, and tells what the intervals held on average.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from experiments.class_splits import ClassSplits, coverage_over_splits
from experiments.lab import Lab, Store, accuracy_of, count_right, option
from experiments.recipes import LEARNER_PRESETS, PIXEL_COMPONENTS, with_validation
from taskscape.embeddings import Embeddings
from taskscape.forecast import Forecaster
from taskscape.forecast.features import COLUMNS, DIFFICULTY, DISTANCE
from taskscape.meta import (
    TrainConfig,
    Trained,
    evaluate,
    find_learner,
    learner_and_training,
    network_for,
    train,
)
from taskscape.pools import ClassPool, load_pool
from taskscape.pools.cache import cache_key
from taskscape.similarity import DEFAULT_SIMILARITY
from taskscape.tasks import TaskSet, make_tasks, sample_tasks
from taskscape.tasks.sampling import draw_tasks
from taskscape.themes import TaskThemes
from taskscape.themes.prepare import unit_length

__all__ = [
    "ABLATION",
    "ForecastingSettings",
    "ForecastingSizes",
    "ForecastingStudy",
    "evaluate_all",
    "run",
]

ABLATION: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "distance": (DISTANCE,),
        "difficulty": (DIFFICULTY,),
        "both": (DISTANCE, DIFFICULTY),
        "all": tuple(COLUMNS.values()),
    }
)
"""What forecasts are allowed to look at; other numbers are as if they were not known."""
_PRESET = LEARNER_PRESETS["forecasting"]


@dataclass(frozen=True)
class ForecastingSizes:
    """The tasks, and how many of them."""

    n_way: int = 5
    n_query: int = 15
    fit_tasks: int = 20_000
    known_tasks: int = option("training tasks that distances are measured to", 10_000)
    train_tasks: int = 10_000
    val_tasks: int = 5_000
    test_tasks: int = option("at most; where there are fewer combinations, all of them", 20_000)
    episodes: int = 20
    confidence: float = 0.9
    seed: int = 0


@dataclass(frozen=True)
class ForecastingSettings:
    """What to study, and how."""

    pool: str = option("a known data set or a path")
    learners: tuple[str, ...] = option("", ("protonet", "maml"), commas=True)
    shots: tuple[int, ...] = option("what learners adapt to", (1, 5))
    labelled: tuple[int, ...] = option(
        "labelled samples per class that forecasts see, besides as many as learners do",
        (16,),
        nargs="*",
    )
    splits: int | None = option(
        "split the validation classes so often, instead of evaluating on test classes", None
    )
    split_classes: tuple[int, ...] = option(
        "how many validation classes to calibrate with in each split", (8,)
    )
    fixed: Mapping[str, Mapping[str, Any]] = option(
        "another setting of a learner", factory=dict, flag="set"
    )
    sizes: ForecastingSizes = ForecastingSizes()


@dataclass(frozen=True)
class ForecastingStudy:
    """Everything that decides a result but the learner and the numbers of samples."""

    pool: ClassPool
    features: ClassPool
    """The same samples as learners take them: feature vectors of unit length."""
    sizes: ForecastingSizes = ForecastingSizes()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _PRESET)

    @cached_property
    def model(self) -> TaskThemes:
        """What makes tasks of the training classes alike."""
        s = self.sizes
        tasks = sample_tasks(
            self.pool, s.fit_tasks, split="train", n_way=(s.n_way, 2 * s.n_way), n_shot=self._many,
            seed=s.seed,
        )  # fmt: skip
        return TaskThemes(random_state=s.seed).fit(tasks)

    @cached_property
    def known(self) -> Embeddings:
        """The posteriors of training tasks."""
        return self.model.embed(self._draw("train", self.sizes.known_tasks, self._many, 3))

    @property
    def _many(self) -> int:
        """Samples of a class that training tasks are described by."""
        return min(16, int(self.pool.counts.min()))

    def _draw(self, split: str, most: int, n_shot: int, seed: int, n_query: int = 0) -> TaskSet:
        return draw_tasks(
            self.pool, most, split=split, n_way=self.sizes.n_way, n_shot=n_shot, n_query=n_query,
            seed=self.sizes.seed + seed,
        )  # fmt: skip

    def asked(self, split: str, n_shot: int) -> TaskSet:
        """The tasks that learners are evaluated on."""
        most, seed = (self.sizes.val_tasks, 1) if split == "val" else (self.sizes.test_tasks, 2)
        return self._draw(split, most, n_shot, seed, self.sizes.n_query)

    def trained(self, name: str, n_shot: int) -> Trained:
        """The learner, trained on training classes."""
        settings = self.settings.get(name, {})
        learner, training = learner_and_training(name, settings)
        network = network_for(self.features, settings)
        tasks = self._draw("train", self.sizes.train_tasks, n_shot, 4, self.sizes.n_query)
        config = TrainConfig.one_pass(len(tasks), **training)
        return train(
            learner, network, replace(tasks, pool=self.features), config, seed=self.sizes.seed
        )

    def accuracies(self, name: str, n_shot: int) -> dict[str, Float[np.ndarray, "_ episodes"]]:
        """The accuracy of the trained learner on each validation and test task, by episode."""
        trained = self.trained(name, n_shot)
        return {s: self._accuracy(trained, self.asked(s, n_shot)) for s in ("val", "test")}

    def _accuracy(self, trained: Trained, tasks: TaskSet) -> Float[np.ndarray, "_ episodes"]:
        evaluation = evaluate(
            trained.learner, trained.state, replace(tasks, pool=self.features),
            episodes=self.sizes.episodes, seed=self.sizes.seed,
        )  # fmt: skip
        return evaluation.accuracy_by_episode.astype(np.float64)

    def measured(
        self, store: Store, name: str, n_shot: int
    ) -> tuple[dict[str, Float[np.ndarray, "_ episodes"]], float]:
        """:meth:`accuracies` and their seconds, kept beside the ledger as counts of right answers.

        What was measured before, with the same data and settings, is read.
        """
        s = self.sizes
        sizes = [s.n_way, s.n_query, s.train_tasks, s.val_tasks, s.test_tasks, s.episodes, s.seed]
        key = cache_key(self.pool.fingerprint, self.features.name, self.settings.get(name), sizes)
        queries = s.n_way * s.n_query

        def measure() -> dict[str, np.ndarray]:
            began = time.perf_counter()
            accuracy = self.accuracies(name, n_shot)
            right = {of: count_right(a, queries) for of, a in accuracy.items()}
            return {**right, "seconds": np.array(time.perf_counter() - began)}

        kept = store.arrays(f"forecast-{name}-{n_shot}-shot-{key[:8]}", measure)
        seconds = float(kept.pop("seconds"))
        return {of: accuracy_of(r, queries, s.episodes) for of, r in kept.items()}, seconds

    def evaluated(
        self, store: Store, learners: Sequence[str], n_shot: int, labelled: Sequence[int]
    ) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        """What the forecasts for each learner are worth, by learner and labelled samples."""
        measured = {name: self.measured(store, name, n_shot) for name in learners}
        for n in labelled:
            began = time.perf_counter()
            tasks = {s: self.asked(s, n_shot).with_samples(n) for s in ("val", "test")}
            blank = Forecaster(self.model, self.known)
            described = {s: blank.describe(t) for s, t in tasks.items()}
            took = time.perf_counter() - began
            for name, (accuracy, seconds) in measured.items():
                yield (
                    (name, n),
                    {
                        **self._evaluate(name, tasks, described, accuracy),
                        "learner_seconds": seconds,
                        "describe_seconds": took,
                    },
                )

    def _evaluate(
        self,
        name: str,
        tasks: Mapping[str, TaskSet],
        described: Mapping[str, Mapping[str, np.ndarray]],
        accuracy: Mapping[str, Float[np.ndarray, "_ episodes"]],
    ) -> dict[str, Any]:
        results = {}
        for ablation, allowed in ABLATION.items():
            val, test = (
                {c: v if COLUMNS[c] in allowed else np.full_like(v, np.nan) for c, v in of.items()}
                for of in (described["val"], described["test"])
            )
            forecaster = Forecaster(
                self.model, self.known, name, confidence=self.sizes.confidence
            ).fit(tasks["val"], accuracy["val"], described=val)
            evaluation = forecaster.evaluate(tasks["test"], accuracy["test"], described=test)
            calibration = forecaster.calibration
            assert calibration is not None
            weights = dict(zip(calibration.columns, calibration.ridge.weights, strict=True))
            results[ablation] = {
                **asdict(evaluation),
                "summary": evaluation.summary(),
                "held_out_error": calibration.error,
                "penalty": calibration.penalty,
                "weights": {
                    c: round(float(w), 4) for c, w in weights.items() if COLUMNS[c] in allowed
                },
            }
        return {
            "results": results,
            "val_accuracy": float(accuracy["val"].mean()),
            "test_accuracy": float(accuracy["test"].mean()),
            "tasks": {s: len(t) for s, t in tasks.items()},
            "classes": {s: len(t.class_ids) for s, t in tasks.items()},
        }

    @property
    def val_classes(self) -> Int[np.ndarray, "classes"]:
        """Ids of the validation classes."""
        return self.pool.classes_in("val")

    def covered(
        self, learners: Sequence[str], n_shot: int, labelled: Sequence[int], splits: ClassSplits
    ) -> dict[tuple[str, int], dict[str, Any]]:
        """What intervals hold over splits of the validation classes, as in :meth:`evaluated`."""
        began = time.perf_counter()
        drawn = splits.draw(self.val_classes, self.sizes.n_way, self.sizes.seed)
        tasks = make_tasks(
            self.pool, drawn.tasks, n_shot=n_shot, n_query=self.sizes.n_query, seed=self.sizes.seed
        )
        accuracy = {name: self._accuracy(self.trained(name, n_shot), tasks) for name in learners}
        results = {}
        for n in labelled:
            seen = tasks.with_samples(n)
            described = Forecaster(self.model, self.known).describe(seen)
            for name in learners:
                forecaster = Forecaster(
                    self.model, self.known, name, confidence=self.sizes.confidence
                )
                held = coverage_over_splits(forecaster, seen, accuracy[name], described, drawn)
                classes = {"calibration": splits.n_classes,
                           "left_out": len(self.val_classes) - splits.n_classes}  # fmt: skip
                sizes = {"classes": classes, "tasks": len(tasks)}
                results[name, n] = {**held, **sizes, "seconds": time.perf_counter() - began}
        return results

    def cell(self) -> dict[str, Any]:
        """What of the study enters the identity of its results."""
        pool = {"name": self.pool.name, "fingerprint": self.pool.fingerprint}
        return {"pool": pool, "features": self.features.name, **asdict(self.sizes)}


def evaluate_all(
    study: ForecastingStudy,
    settings: ForecastingSettings,
    lab: Lab,
    splits: ClassSplits | None = None,
) -> None:
    """Evaluate all forecasts that the ledger does not hold yet.

    On test classes, or over splits of the validation classes where ``splits`` are given.
    """
    what: dict[str, Any] = {"what": "forecast", "distance": DEFAULT_SIMILARITY}
    if splits is not None:
        name = "forecast over splits of validation classes"
        what |= {"what": name, "splits": asdict(splits)}
    for n_shot in settings.shots:
        cells = [
            {**what, "learner": name, "settings": dict(study.settings.get(name, {})),
             "n_shot": n_shot, "labelled": n, **study.cell()}
            for name in settings.learners
            for n in sorted({n_shot, *settings.labelled})
        ]  # fmt: skip
        missing = {(c["learner"], c["labelled"]): c for c in lab.missing(cells)}
        if not missing:
            continue
        names = list(dict.fromkeys(name for name, _ in missing))
        asked = names, n_shot, sorted({n for _, n in missing})
        if splits is None:
            store = Store(lab, study.pool.fingerprint, study.sizes.seed)
            evaluated = study.evaluated(store, *asked)
        else:
            evaluated = iter(study.covered(*asked, splits).items())
        for key, results in evaluated:
            if key in missing:
                lab.add(missing[key], results)
                print(f"{n_shot}-shot, {key[1]} labelled samples per class: {_in_words(results)}")


def _in_words(results: Mapping[str, Any]) -> str:
    if "results" in results:
        return str(results["results"]["all"]["summary"])
    low, high = results["coverage_interval"]
    return (
        f"calibrated with {results['classes']['calibration']} classes, the "
        f"{100 * results['confidence']:.0f} % interval held {100 * results['coverage']:.1f} % "
        f"({100 * low:.1f} to {100 * high:.1f}) of tasks of {results['classes']['left_out']} "
        f"others, averaged over {len(results['coverage_by_split'])} splits; mean width "
        f"{100 * results['mean_width']:.1f} points."
    )


def run(settings: ForecastingSettings, lab: Lab) -> None:
    """Study what the settings ask for."""
    for name in settings.learners:
        find_learner(name)
    pool = with_validation(load_pool(settings.pool), n_groups=None)
    features = unit_length(pool, pca=PIXEL_COMPONENTS if pool.is_images else None)
    names = {*_PRESET, *settings.fixed}
    learners = {n: {**_PRESET.get(n, {}), **settings.fixed.get(n, {})} for n in names}
    study = ForecastingStudy(pool, features, settings.sizes, learners)
    if settings.splits is None:
        evaluate_all(study, settings, lab)
        return
    every = [ClassSplits(n, settings.splits) for n in settings.split_classes]
    for splits in every:
        splits.check(len(study.val_classes), settings.sizes.n_way)
    for splits in every:
        evaluate_all(study, settings, lab, splits)
