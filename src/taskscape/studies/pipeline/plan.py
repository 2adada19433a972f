"""What a study will do, settled before it starts: the pool with its splits, and all tasks."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from taskscape.pools import SPLITS, ClassPool
from taskscape.studies.pipeline.checks import check_config, fitted_to, splits_of
from taskscape.studies.pipeline.config import StudyConfig, TaskSettings
from taskscape.tasks import TaskSet, sample_tasks

__all__ = ["Plan", "joined", "make_plan", "with_splits"]

_FIT, _TRAIN, _VAL, _TEST = range(4)
_SEEDS = 10
"""Seeds of tasks that belong to one seed of a study."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A pool, the settings as they fit it, and what had to be decided."""

    pool: ClassPool
    config: StudyConfig
    notes: tuple[str, ...]

    @cached_property
    def fit_tasks(self) -> TaskSet:
        """The tasks that the model learns from."""
        fit = self.config.fit
        return sample_tasks(
            self.pool, fit.n_tasks, split="train", n_way=fit.n_way, n_shot=fit.n_shot,
            seed=self._seed(_FIT),
        )  # fmt: skip

    @cached_property
    def train(self) -> TaskSet:
        """The training tasks."""
        return self._tasks("train", self.config.tasks.n_train, _TRAIN)

    @cached_property
    def val(self) -> TaskSet | None:
        """The validation tasks, if there are validation classes."""
        if "val" not in splits_of(self.pool):
            return None
        return self._tasks("val", self.config.tasks.n_val, _VAL)

    @cached_property
    def test(self) -> TaskSet:
        """The test tasks."""
        return self._tasks("test", self.config.tasks.n_test, _TEST)

    def _tasks(self, split: str, n_tasks: int, offset: int) -> TaskSet:
        """Different sets of classes, in an order of chance."""
        tasks = self.config.tasks
        possible = math.comb(len(self.pool.classes_in(split)), tasks.n_way)
        return sample_tasks(
            self.pool, min(n_tasks, possible), split=split, n_way=tasks.n_way,
            n_shot=tasks.n_shot or "all", unique=True, seed=self._seed(offset),
        )  # fmt: skip

    def _seed(self, offset: int) -> int:
        return _SEEDS * self.config.seed + offset

    def episodes(self, tasks: TaskSet, pool: ClassPool, section: str) -> TaskSet:
        """The same tasks with the shots and queries of a section, over another pool's samples."""
        part = getattr(self.config, section)
        shots = np.full(len(tasks), part.n_shot, dtype=np.int32)
        return replace(tasks, pool=pool, n_shot=shots, n_query=part.n_query)


def make_plan(pool: ClassPool, config: StudyConfig) -> Plan:
    """Check everything; raise an error that says what to change."""
    check_config(config)
    split, notes = with_splits(pool, config.tasks, config.seed)
    effective, cuts = fitted_to(config, split)
    joined = (*pool.info.get("notes", ()), *pool.info.get("look_alikes", ()))
    return Plan(split, effective, (*joined, *notes, *cuts))


def joined(first: TaskSet, second: TaskSet | None) -> TaskSet:
    """Tasks one after another, so that one pass serves both."""
    if second is None:
        return first
    return replace(
        first,
        classes=np.concatenate([first.classes, second.classes]),
        keys=np.concatenate([first.keys, second.keys]),
        n_shot=np.concatenate([first.n_shot, second.n_shot]),
    )


def with_splits(pool: ClassPool, tasks: TaskSettings, seed: int) -> tuple[ClassPool, list[str]]:
    """The pool with training, validation and test classes, and what was done in words.

    Splits that the data have stay as they are. Missing ones are taken by chance: whole groups of
    classes where every split can have enough of them, else single classes.
    """
    shares = {"test": tasks.test_share, "val": tasks.val_share}
    if pool.splits is None:
        return _dealt(pool, np.arange(len(pool)), shares, tasks.n_way, seed)
    missing = {s: share for s, share in shares.items() if s not in pool.splits and share > 0}
    if not missing or "train" not in pool.splits:
        return pool, []
    return _dealt(pool, pool.classes_in("train"), missing, tasks.n_way, seed)


def _dealt(
    pool: ClassPool, classes: np.ndarray, shares: dict[str, float], n_way: int, seed: int
) -> tuple[ClassPool, list[str]]:
    """Give shares of these classes to other splits; the rest is for training."""
    given = {split: share for split, share in shares.items() if share > 0}
    rng = np.random.default_rng(seed)
    names = np.asarray(pool.class_names if pool.groups is None else pool.groups)[classes]
    by = "class" if pool.groups is None else "group"
    dealt = _deal(names, given, rng)
    if by == "group" and min(dealt.count(s) for s in ("train", *given)) < n_way:
        by = "class"
        dealt = _deal(np.asarray(pool.class_names)[classes], given, rng)
    splits = list(pool.splits or ("",) * len(pool))
    for c, split in zip(classes.tolist(), dealt, strict=True):
        splits[c] = split
    counts = ", ".join(f"{splits.count(s)} {s}" for s in SPLITS if s in splits)
    what = (
        "no training, validation or test" if pool.splits is None else f"no {' and no '.join(given)}"
    )
    return replace(pool, splits=tuple(splits)), [
        f"The data name {what} classes; they were dealt out by {by} with seed {seed}: {counts}."
    ]


def _deal(units: np.ndarray, shares: dict[str, float], rng: np.random.Generator) -> list[str]:
    """A split for each class; classes of one unit stay together."""
    distinct, sizes = np.unique(units, return_counts=True)
    split_of: dict[str, str] = {}
    order = rng.permutation(len(distinct)).tolist()
    for split, share in shares.items():
        need = round(share * len(units))
        for i in order:
            if need <= 0:
                break
            # a group that is far too large would leave little to train on
            if str(distinct[i]) not in split_of and sizes[i] <= 1.5 * need:
                split_of[str(distinct[i])] = split
                need -= int(sizes[i])
    return [split_of.get(str(unit), "train") for unit in units]
