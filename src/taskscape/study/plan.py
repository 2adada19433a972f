"""What a study will do, settled before it starts: the pool with its splits, and all tasks.

Everything that can be wrong with settings and data is found here, before any work.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from taskscape.arguments import check_choice
from taskscape.errors import DataError
from taskscape.meta import LEARNERS, NETWORKS, find_learner
from taskscape.pools import ClassPool
from taskscape.pools.pool import SPLITS
from taskscape.pools.splits import deal_splits
from taskscape.select import RULES
from taskscape.settings import check_settings, values_of
from taskscape.similarity import SIMILARITIES, Similarity, make_similarity
from taskscape.similarity.known import find_similarity
from taskscape.study.config import LEAST_TEST_TASKS, StudyConfig
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


# -- checks --------------------------------------------------------------------------------------


def check_config(config: StudyConfig) -> None:
    """Raise an error for a setting that no data could make right."""
    check_settings(config)
    if config.fit.n_way[0] > config.fit.n_way[1]:
        raise DataError(f"fit.n_way={list(config.fit.n_way)} must ascend.")
    _check_names(config)
    targets = config.targets
    if targets.names and targets.budget > targets.candidates:
        raise DataError(
            f"targets.budget={targets.budget} is more than targets.candidates={targets.candidates}."
        )
    config.fit.model(config.seed).check_settings()


def _check_names(config: StudyConfig) -> None:
    """Learners, rules and similarity measures must be known, targets and learners different."""
    learners, targets, chosen = config.learners, config.targets, config.selection
    for what, names, needed in (
        ("learners.names", learners.names, True),
        ("targets.learners", targets.learners, bool(targets.names)),
        ("targets.names", targets.names, False),
    ):
        if needed and not names:
            raise DataError(f"{what} is empty; name at least one, such as ['protonet'].")
        if len(set(names)) < len(names):
            raise DataError(f"{what}={list(names)} names one twice.")
    for name in (*learners.names, *learners.settings, *targets.learners):
        find_learner(name)
        learners.learner(name)
    check_choice(learners.network, "learners.network", NETWORKS)
    find_similarity(config.similarity)
    for text in chosen.rules:
        read_rule(text, config.similarity)
    if chosen.rules and not chosen.budgets:
        raise DataError("selection.budgets is empty; give one, or empty selection.rules too.")


def read_rule(text: str, similarity: str) -> tuple[str, str]:
    """A rule and the similarity measure it goes by: ``rule:measure``, or one of the two alone.

    A rule alone goes by the study's ``similarity``; a measure alone means its nearest tasks.
    """
    rule, _, measure = text.partition(":")
    if rule in SIMILARITIES:
        rule, measure = "nearest", text
    named = measure.partition(":")[0] or similarity.partition(":")[0]
    if rule not in RULES or rule == "random" or named not in SIMILARITIES:
        rules = ", ".join(r for r in RULES if r != "random")
        hint = " Random choice is always there, to compare with." if rule == "random" else ""
        raise DataError(
            f"selection.rules: {text!r} is not a rule; choose from {rules}, alone or with a "
            f"similarity measure as in 'nearest:task2vec' ({', '.join(SIMILARITIES)}).{hint}"
        )
    find_similarity(measure or similarity)
    return rule, measure or similarity


def splits_of(pool: ClassPool) -> list[str]:
    """The splits that tasks are drawn from."""
    return [s for s in SPLITS if s != "val" or s in (pool.splits or ())]


def fitted_to(config: StudyConfig, pool: ClassPool) -> tuple[StudyConfig, list[str]]:
    """The settings with what is 'at most' cut to what the data have, and the cuts in words.

    What cannot be cut without changing the question (ways, shots, budgets) is an error instead.
    Learners get the settings that they start from; what is asked for takes precedence.
    """
    _check_classes(config, pool)
    learners = config.learners
    samples = "images" if NETWORKS[learners.network].images else "features"
    settings = dict(learners.settings)
    for name in learners.names:
        settings[name] = {**LEARNERS[name].start(samples), **settings.get(name, {})}
    config = replace(config, learners=replace(learners, settings=settings))
    smallest = min(int(pool.counts[pool.classes_in(s)].min()) for s in splits_of(pool))
    before, lowered = values_of(config), _lowered(config, pool, smallest)
    for name, value in lowered.items():
        section, _, own = name.partition(".")
        part = replace(getattr(config, section), **{own: value})
        config = replace(config, **{section: part})
    notes = [
        f"{name} was lowered from {_shown(before[name])} to {_shown(value)}."
        for name, value in lowered.items()
    ]
    if notes:
        notes.append(
            f"(The data have {_classes(pool)} classes and {smallest} samples in the smallest.)"
        )
    for budget in config.selection.budgets if config.selection.rules else ():
        if budget > config.selection.candidates:
            raise DataError(
                f"selection.budgets has {budget}; there are {config.selection.candidates} "
                "training tasks to choose from. Lower it, or raise "
                "selection.candidates and tasks.n_train."
            )
    return config, notes


def _lowered(config: StudyConfig, pool: ClassPool, smallest: int) -> dict[str, Any]:
    """The settings that the data cannot meet, with what they can."""
    values, largest = values_of(config), max(_may_meet(config, pool, "train"))
    most = {f"tasks.n_{s}": possible_tasks(config, pool, s) for s in splits_of(pool)}
    n_train = min(config.tasks.n_train, most["tasks.n_train"])
    limits = most | {
        "tasks.n_shot": smallest,
        "fit.n_shot": smallest,
        "forecast.n_shot": smallest,
        "evaluate.n_query": smallest - config.evaluate.n_shot,
        "selection.n_query": smallest - config.selection.n_shot,
        "learners.train_tasks": n_train,
        "selection.candidates": n_train,
        "distances.k": n_train,
        "fit.n_way": tuple(min(n, largest) for n in config.fit.n_way),
    }
    return {name: limit for name, limit in limits.items() if values[name] > limit}


def _may_meet(config: StudyConfig, pool: ClassPool, split: str) -> list[int]:
    """How many classes may meet in a task: those of the split, or of each of its groups."""
    classes = pool.classes_in(split)
    if not config.tasks.within_group:
        return [len(classes)]
    if pool.groups is None:
        raise DataError(
            f"tasks.within_group needs groups, and {pool.name!r} has none. Give it some "
            "(source.group_file), or leave it out."
        )
    return np.unique(np.asarray(pool.groups)[classes], return_counts=True)[1].tolist()


def possible_tasks(config: StudyConfig, pool: ClassPool, split: str) -> int:
    """How many different sets of classes the tasks of a split can have."""
    return sum(math.comb(n, config.tasks.n_way) for n in _may_meet(config, pool, split))


def _check_classes(config: StudyConfig, pool: ClassPool) -> None:
    """Every split must have classes for a task, and every class samples for an episode."""
    way = config.tasks.n_way
    for split in splits_of(pool):
        n = max(_may_meet(config, pool, split))
        if n < way:
            where = "a group of every split" if config.tasks.within_group else "every split"
            raise DataError(
                f"tasks.n_way={way} needs {way} classes in {where}; {pool.name!r} has {n} "
                f"{split} classes ({_classes(pool)}). Lower tasks.n_way, or give it more classes."
            )
    possible = possible_tasks(config, pool, "test")
    if possible < LEAST_TEST_TASKS:
        raise DataError(
            f"the {len(pool.classes_in('test'))} test classes of {pool.name!r} make only "
            f"{possible} different tasks of {way} classes; a study needs {LEAST_TEST_TASKS}. "
            "Lower tasks.n_way, or raise tasks.test_share."
        )
    index = [int(c) for s in splits_of(pool) for c in pool.classes_in(s)]
    for section in ("evaluate", "selection"):
        shots = getattr(config, section).n_shot
        if section == "evaluate" or config.selection.rules:
            pool.require(shots + 1, f"{section}.n_shot={shots} and at least one query", index)
    measures = {f"similarity={config.similarity!r}": config.similarity} | {
        f"the rule {text!r} of selection.rules": read_rule(text, config.similarity)[1]
        for text in config.selection.rules
    }
    for what, name in measures.items():
        pool.require(find_similarity(name).least_samples, what, pool.classes_in("train").tolist())
    if NETWORKS[config.learners.network].images:  # others take what is prepared
        config.learners.network_for("", pool)


def _classes(pool: ClassPool) -> str:
    return ", ".join(f"{(pool.splits or ()).count(s)} {s}" for s in splits_of(pool))


def _shown(value: object) -> str:
    return "–".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}"
