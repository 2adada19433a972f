"""What a study will do, settled before it starts: the pool with its splits, and all tasks."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from taskscape.pools import ClassPool
from taskscape.pools.splits import deal_splits
from taskscape.settings import values_of
from taskscape.similarity import Similarity, make_similarity
from taskscape.study.checks import check_config, fitted_to, possible_tasks, splits_of
from taskscape.study.config import StudyConfig
from taskscape.tasks import TaskSet, sample_tasks

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
            within_group=self.config.tasks.within_group, seed=self._seed(_FIT),
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
        possible = possible_tasks(self.config, self.pool, split)
        return sample_tasks(
            self.pool, min(n_tasks, possible), split=split, n_way=tasks.n_way,
            n_shot=tasks.n_shot or "all", within_group=tasks.within_group, unique=True,
            seed=self._seed(offset),
        )  # fmt: skip

    def _seed(self, offset: int) -> int:
        return _SEEDS * self.config.seed + offset

    def settings(self, *parts: str, but: Collection[str] = ()) -> dict[str, Any]:
        """What the hash of a stage covers: the seed, and all settings of these sections.

        ``but`` names those that the stage does not look at. A setting that is added later is
        covered by itself, so that no stage is taken for one that was made with another value.
        """
        every, covered = values_of(self.config), ("seed", *parts)
        assert {*but, *covered} <= {*every, *vars(self.config)}
        kept = [n for n in every if n.partition(".")[0] in covered and n not in but]
        return {name: every[name] for name in kept}

    def learner_settings(self, name: str, but: Collection[str] = ()) -> dict[str, Any]:
        """The same of the section of learners, with the settings of one learner alone."""
        own = self.config.learners.settings.get(name, {})
        others = ("learners.names", "learners.settings")
        return self.settings("learners", but=(*others, *but)) | {"own": own}

    def measure(self, name: str) -> Similarity:
        """A similarity measure by name, not yet fitted."""
        updates = self.config.distances.probe_updates
        return make_similarity(name, seed=self.config.seed, updates=updates)

    def episodes(self, tasks: TaskSet, pool: ClassPool, section: str) -> TaskSet:
        """The same tasks with the shots and queries of a section, over another pool's samples."""
        part = getattr(self.config, section)
        return replace(tasks, pool=pool).with_samples(part.n_shot, part.n_query)


def make_plan(pool: ClassPool, config: StudyConfig) -> Plan:
    """Check everything; raise an error that says what to change."""
    check_config(config)
    tasks = config.tasks
    split, notes = deal_splits(pool, config.seed, tasks.test_share, tasks.val_share, tasks.n_way)
    if out := set(config.targets.kept_out):
        splits = (
            "test" if name in out and s == "train" else s
            for name, s in zip(split.class_names, split.splits or (), strict=True)
        )
        split = replace(split, splits=tuple(splits))
        notes.append(f"{len(out)} classes of the targets are test classes, and not trained on.")
    effective, cuts = fitted_to(config, split)
    opened = (*pool.info.get("notes", ()), *pool.info.get("look_alikes", ()))
    return Plan(split, effective, (*opened, *notes, *cuts))
