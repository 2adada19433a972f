"""How well the meta-learners do on a pool: settings tuned on validation classes, then tested.

    python -m taskscape.studies.learning --pool mini_imagenet --tune --minutes 20 --out found.jsonl

Every finished cell (learner, settings, seed) is one line of JSON; a second run with the same file
goes on where the first one stopped. Test classes are looked at only with the chosen settings.
"""

import argparse
import itertools
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from taskscape.errors import DataError
from taskscape.meta import (
    LEARNERS,
    Architecture,
    Bayesian,
    Evaluation,
    Learner,
    ProtoNet,
    TrainConfig,
    conv4,
    evaluate,
    evaluate_many,
    find_learner,
    mlp,
    split_settings,
    train_many,
    weight_spread,
)
from taskscape.meta.networks import Mlp
from taskscape.pools import ClassPool, load_pool
from taskscape.statistics import class_interval
from taskscape.studies.ledger import Ledger, surroundings
from taskscape.tasks import TaskSet, enumerate_tasks, sample_tasks
from taskscape.themes.prepare import PrepareConfig, learn_preparation

__all__ = ["LearningStudy", "hold_out", "main", "unit_length"]


@dataclass(frozen=True)
class LearningStudy:
    """Everything that decides a result but the learner, its settings and the seed."""

    pool: ClassPool
    network: Architecture
    n_way: int = 5
    n_shot: int = 5
    n_query: int = 15
    train_way: int = 5
    train_tasks: int = 10_000
    epochs: int = 1
    batch_size: int = 4
    tune_tasks: int = 10_000
    val_tasks: int = 500
    test_tasks: int | None = None
    """None: every combination of test classes, or 10,000 where there are more than 20,000."""
    episodes: int = 1
    patience: int | None = None

    def training(self, seed: int, n_tasks: int) -> TaskSet:
        """The training tasks of a seed."""
        return self._tasks("train", n_tasks, 1000 + seed, self.train_way)

    def validation(self) -> TaskSet:
        """The validation tasks, the same for all."""
        return self._tasks("val", self.val_tasks, 1)

    def testing(self) -> TaskSet:
        """The test tasks, the same for all."""
        if self.test_tasks is None:
            everything = enumerate_tasks(
                self.pool,
                n_way=self.n_way,
                n_shot=self.n_shot,
                n_query=self.n_query,
                split="test",
                seed=2,
            )
            if len(everything) <= 20_000:
                return everything.collect()
        return self._tasks("test", self.test_tasks or 10_000, 2)

    def _tasks(self, split: str, n_tasks: int, seed: int, way: int | None = None) -> TaskSet:
        return sample_tasks(
            self.pool,
            n_tasks,
            n_way=way or self.n_way,
            n_shot=self.n_shot,
            n_query=self.n_query,
            split=split,
            seed=seed,
        )

    def fit(
        self, name: str, settings: Mapping[str, Any], seeds: Sequence[int], n_tasks: int
    ) -> tuple[Learner, Any, np.ndarray, float]:
        """Train all seeds side by side: the learner, their states, validation scores, seconds."""
        learner, config = split_settings(name, settings)
        network = self.network
        if "scale" in settings and isinstance(network, Mlp):
            network = replace(network, scale=settings["scale"])
        began = time.perf_counter()
        trained = train_many(
            learner,
            network,
            [self.training(seed, n_tasks) for seed in seeds],
            TrainConfig.one_pass(
                n_tasks, self.batch_size, self.epochs, patience=self.patience, **config
            ),
            seeds=seeds,
            n_way=max(self.n_way, self.train_way),
            validation=self.validation(),
        )
        seconds = time.perf_counter() - began
        return learner, trained.state, np.nanmax(trained.scores, axis=1), seconds

    def tune(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Validation scores of one candidate, trained with seed 0; NaN if it diverges."""
        nothing = dict.fromkeys(("val_accuracy", "val_log_likelihood"), float("nan"))
        try:
            learner, states, _, seconds = self.fit(name, settings, [0], self.tune_tasks)
        except DataError:
            raise
        except Exception as error:  # a candidate that diverges loses; the study goes on
            print(f"  {name} {settings}: {error}", file=sys.stderr)
            return {**nothing, "train_seconds": 0.0}
        scores = evaluate_many(learner, states, self.validation())[0].to_dict()
        found = {f"val_{score}": value for score, value in scores.items()}
        return {**found, "train_seconds": seconds}

    def test(
        self, name: str, settings: Mapping[str, Any], seeds: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Test results of the chosen settings, one for each seed."""
        learner, states, val, seconds = self.fit(name, settings, seeds, self.train_tasks)
        began = time.perf_counter()
        tasks = self.testing()
        found = evaluate_many(learner, states, tasks, episodes=self.episodes)
        each = (time.perf_counter() - began) / len(seeds)
        return [
            {
                **result(evaluation, tasks),
                **spread(learner, jax.tree.map(lambda a, t=t: a[t], states), tasks),
                "val_accuracy": float(val[t]),
                "train_seconds": seconds / len(seeds),
                "test_seconds": each,
            }
            for t, evaluation in enumerate(found)
        ]

    def nearest_centroid(self) -> dict[str, Any]:
        """Nearest class mean of the samples as they are: what learning has to beat."""
        flat = mlp(int(np.prod(self.pool.sample_shape)), ())
        tasks = self.testing()
        state = ProtoNet().init(jax.random.key(0), flat, self.n_way)
        return result(evaluate(ProtoNet(), state, tasks, episodes=self.episodes), tasks)


def result(evaluation: Evaluation, tasks: TaskSet) -> dict[str, Any]:
    """Means over the test tasks with the interval that leaves out classes."""
    around = class_interval(evaluation.accuracy, tasks.classes)
    return {**evaluation.to_dict(), "interval": [around.low, around.high], "test_tasks": len(tasks)}


def spread(learner: Learner, state: Any, tasks: TaskSet) -> dict[str, Any]:
    """Means over tasks of how far a Bayesian learner's weights spread; nothing for the others."""
    if not isinstance(learner, Bayesian):
        return {}
    by_task = weight_spread(learner, state, tasks)
    return {"spread": {name: float(values.mean()) for name, values in by_task.items()}}


def candidates(
    name: str, fixed: Mapping[str, Any], tried: Mapping[str, Sequence[Any]] | None = None
) -> Iterator[dict[str, Any]]:
    """The grid of a learner, changed by ``tried``, without the settings that are fixed."""
    grid = {k: v for k, v in {**find_learner(name).grid, **(tried or {})}.items() if k not in fixed}
    for values in itertools.product(*grid.values()):
        yield {**dict(zip(grid, values, strict=True)), **fixed}


def unit_length(pool: ClassPool, power: float | None = None, pca: int | None = None) -> ClassPool:
    """The pool with every feature vector scaled to length one.

    Before that, where asked for, a power of the features, and principal components of the training
    classes about their mean.
    """
    config = PrepareConfig(power=power, l2=True, centre=pca is not None, pca=pca)
    x = learn_preparation(pool, pool.classes_in("train"), config)(np.asarray(pool.samples))
    length = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    name = f"{pool.name} ({config.describe()} → unit length)"
    return replace(pool, name=name, samples=x / length, class_digests=None)


def upright_tests(pool: ClassPool) -> list[int]:
    """All classes but the rotated ones among the test classes: those only enlarge training."""
    splits = pool.splits or ("",) * len(pool)
    return [
        c
        for c, (name, split) in enumerate(zip(pool.class_names, splits, strict=True))
        if split != "test" or "/rot" not in name
    ]


def hold_out(pool: ClassPool, n_groups: int, seed: int = 0) -> ClassPool:
    """The pool with some groups of its training classes as validation classes."""
    if pool.splits is None or pool.groups is None:
        raise DataError("validation classes are held out by group; the pool has none.")
    train = sorted({g for g, s in zip(pool.groups, pool.splits, strict=True) if s == "train"})
    held = set(np.random.default_rng(seed).permutation(train)[:n_groups].tolist())
    splits = tuple(
        "val" if s == "train" and g in held else s
        for g, s in zip(pool.groups, pool.splits, strict=True)
    )
    return replace(pool, splits=splits)


def run(
    study: LearningStudy,
    ledger: Ledger,
    learners: Sequence[str],
    seeds: Sequence[int],
    *,
    fixed: Mapping[str, Mapping[str, Any]],
    tune: bool,
    minutes: float,
    tune_by: str = "accuracy",
    tried: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
) -> None:
    """Tune and test the learners, cell by cell, until done or until the time is up.

    ``tune_by`` is the score on validation tasks that chooses: accuracy or log_likelihood.
    """
    end = time.monotonic() + 60 * minutes
    about = study_cell(study)
    centroid = {"what": "nearest_centroid", **about}
    if ledger.get(centroid) is None:
        ledger.add(centroid, study.nearest_centroid())
    for name in learners:
        chosen = dict(fixed.get(name, {}))
        if tune:
            scores: list[tuple[float, dict[str, Any]]] = []
            for settings in candidates(name, chosen, (tried or {}).get(name)):
                cell = {"what": "tune", "learner": name, "settings": settings, **about}
                if ledger.get(cell) is None:
                    if time.monotonic() > end:
                        return
                    ledger.add(cell, study.tune(name, settings))
                scores.append((ledger.get(cell)[f"val_{tune_by}"], settings))  # type: ignore[index]
            chosen = max((s for s in scores if s[0] == s[0]), key=lambda s: s[0])[1]
        cells = [
            {"what": "test", "learner": name, "settings": chosen, "seed": s, **about} for s in seeds
        ]
        missing = [cell for cell in cells if ledger.get(cell) is None]
        if missing and time.monotonic() > end:
            return
        if missing:
            found = study.test(name, chosen, [int(c["seed"]) for c in missing])
            for cell, one in zip(missing, found, strict=True):
                ledger.add(cell, one)


def study_cell(study: LearningStudy) -> dict[str, Any]:
    """What of a study enters the identity of its cells."""
    plain = {f.name: getattr(study, f.name) for f in fields(study)}
    plain["pool"] = {"name": study.pool.name, "fingerprint": study.pool.fingerprint}
    return {**plain, "network": study.network.config()}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; see the module's docstring."""
    options = _parser().parse_args(arguments)
    pool = load_pool(options.pool, rotations=True if options.rotations else None)
    if options.rotations:
        pool = pool.subset(upright_tests(pool))
    if options.hold_out:
        pool = hold_out(pool, options.hold_out)
    if pool.is_images:
        network: Architecture = conv4(pool.sample_shape, options.filters)
    else:
        pool = unit_length(pool, options.power, options.pca)
        network = mlp(pool.sample_shape[0], tuple(options.widths), options.scale)
    numbers = {
        f.name: getattr(options, f.name)
        for f in fields(LearningStudy)
        if getattr(options, f.name, None) is not None and f.name != "pool"
    }
    study = LearningStudy(pool, network, **numbers)
    command = "python -m taskscape.studies.learning " + shlex.join(
        sys.argv[1:] if arguments is None else arguments
    )
    run(
        study,
        Ledger(Path(options.out), {"command": command, **surroundings()}),
        options.learners.split(","),
        options.seeds,
        fixed=_by_learner(options.set),
        tried=_by_learner(options.grid),
        tune=options.tune,
        tune_by=options.tune_by,
        minutes=options.minutes,
    )


def _by_learner(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``["maml.inner_rate=0.1"]`` as ``{"maml": {"inner_rate": 0.1}}``."""
    found: dict[str, dict[str, Any]] = {}
    for word in words:
        where, value = word.split("=", 1)
        learner, setting = where.split(".", 1)
        found.setdefault(learner, {})[setting] = json.loads(value)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--pool", required=True, help="a known data set or a path")
    add("--rotations", action="store_true", help="rotated characters as further classes (omniglot)")
    add("--hold-out", type=int, default=0, help="groups of training classes kept for validation")
    add("--learners", default=",".join(LEARNERS))
    add("--seeds", type=int, nargs="+", default=[0])
    add("--tune", action="store_true", help="choose settings on the validation classes first")
    add("--tune-by", choices=("accuracy", "log_likelihood"), default="accuracy")
    add("--set", nargs="*", default=[], metavar="LEARNER.NAME=VALUE", help="fix a setting")
    add("--grid", nargs="*", default=[], metavar="LEARNER.NAME=[…]", help="values to try")
    add("--widths", type=int, nargs="*", default=[128], help="hidden layers of the mlp")
    add("--scale", type=float, default=8.0, help="factor on unit-length features")
    add("--power", type=float, help="power of the features before unit length")
    add("--pca", type=int, help="principal components of the features, before unit length")
    add("--filters", type=int, default=64, help="filters of conv4")
    for name in ("n_way", "n_shot", "n_query", "train_way", "train_tasks", "epochs", "batch_size",
                 "tune_tasks", "val_tasks", "test_tasks", "episodes", "patience"):  # fmt: skip
        add(f"--{name.replace('_', '-')}", type=int)
    add("--minutes", type=float, default=1e9, help="start no new cell after this long")
    add("--out", required=True, help="file of JSON lines; finished cells in it are not run again")
    return parser


if __name__ == "__main__":
    main()
