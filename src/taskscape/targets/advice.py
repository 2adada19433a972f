"""``advise``: which tasks of a pool to train on for a target, and what to expect of it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from jaxtyping import Int

from taskscape.arguments import check_choice, check_whole, public
from taskscape.errors import DataError
from taskscape.io.files import Kind, as_path, atomic_folder, check_output, json_with
from taskscape.io.tables import write_csv
from taskscape.io.values import (
    FORMAT,
    check_format,
    damage_named,
    from_plain,
    plain,
    read_json,
    write_json,
)
from taskscape.meta.learners import find_learner, label_of
from taskscape.notebook import ShownInNotebooks
from taskscape.pools import ClassPool
from taskscape.pools.pool import PHOTOGRAPHS
from taskscape.select.known import AUTO, RANDOM
from taskscape.select.trials import gain_over
from taskscape.similarity.known import THEMES
from taskscape.statistics import Interval, Variance, t_interval
from taskscape.targets.advisor import (
    ALL,
    Outlook,
    Sources,
    WayTrials,
    measure_of,
    n_near,
    random_of,
)
from taskscape.targets.gains import (
    Decision,
    Expectation,
    GainModel,
    GainSeen,
    decide,
    evidence_of,
    known_experience,
)
from taskscape.targets.known import HALF, RANKS, WAYS, AdvisorSettings
from taskscape.targets.target import Target, find_target
from taskscape.tasks import TaskSet

_FILES = {"advice.json", "tasks.parquet", "tasks.csv", "classes.csv", "sources.csv"}
ADVICE = Kind("an advice", lambda folder: {p.name for p in folder.iterdir()} == _FILES, folder=True)
"""Folders that :meth:`Advice.save` writes."""
_JSON = json_with("advice", what="advice")
_LEAST_TRIALS = 2
_TOGETHER = 2.0
"""So much more than n samples alone does the share vary that is right when each is left out, as the
others are told by it: with it, 94 to 98 % of 95 % intervals held what was then measured, without it
84 to 91 % (nearest class mean, 5 to 20 classes of 2 to 5 samples made by chance)."""


@dataclass(frozen=True)
class SourceShare:
    """A group of the pool as a source for a target."""

    name: str
    distances: Mapping[str, float]
    """From the target's tasks, by measure, and by the mean rank under all of them."""
    chosen: int
    """How many of the tasks that were chosen for being near are from it."""
    at_random: int = 0
    """How many of those that were drawn at random are."""


@dataclass(frozen=True, eq=False)
class Advice(ShownInNotebooks):
    """What to train on for a target, why, and what to expect."""

    target: str
    learner: str
    way: str
    """How the tasks were chosen: a similarity measure, ``ranks``, ``half`` or ``random``."""
    why: str
    chosen: TaskSet
    """The tasks to train on, the first choice first."""
    sources: tuple[SourceShare, ...]
    """The nearest first."""
    explained: bool
    """Whether the image-themes know anything like the target; if not, they were left out."""
    gap: float | None
    """Spreads by which the target is explained worse than usual."""
    expected_gains: tuple[Expectation, ...] | None = None
    """By every way, the best first; None where the way was given."""
    expected_accuracy: Interval | None = None
    """From the labelled samples, each left out in turn (the first five of a class): over trainings,
    and over what other samples of that number would say."""
    measured_gains: Mapping[str, Interval] = field(default_factory=dict)
    """Over random choice on the target's own queries, where it has some: not expected but seen.
    Nothing was chosen by them."""
    measured_accuracy: Mapping[str, float] = field(default_factory=dict)
    """The mean on those queries after training by each way, and on ``all`` candidates."""
    notes: tuple[str, ...] = ()
    distance_is: str = ""
    """What the distance to a source is, and why, in words."""

    def __repr__(self) -> str:
        return f"Advice(target={self.target!r}, way={self.way!r}, {len(self.chosen)} tasks)"

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        near = self.sources
        return ({"source": s.name, "distance": self.far(s), "chosen": s.chosen} for s in near)

    @property
    def measure(self) -> str:
        """What tasks were chosen by, and what the distances to the sources are by."""
        return measure_of(self.way)

    def far(self, source: SourceShare) -> str:
        """How far a source is by that, as it is shown: mean ranks in % of the candidates."""
        return f"{source.distances[self.measure] * (100 if self.measure == RANKS else 1):.3g}"

    @property
    def chosen_from(self) -> tuple[SourceShare, ...]:
        """The sources of the chosen tasks, that of the most tasks first."""
        return tuple(sorted((s for s in self.sources if s.chosen), key=lambda s: -s.chosen))

    @property
    def gain(self) -> Interval | None:
        """The gain of the way over random choice: measured, or expected where it was not."""
        expected = {e.way: e.interval for e in self.expected_gains or ()}
        return self.measured_gains.get(self.way, expected.get(self.way))

    @property
    def nearest(self) -> str:
        """Which sources are like the target, and by what, in sentences."""
        unit = ", in % of the candidates" if self.measure == RANKS else ""
        near = ", ".join(f"{s.name} ({self.far(s)})" for s in self.sources[:3])
        by = WAYS.get(self.measure, f"by {self.measure}").removeprefix("nearest ")
        said = f"Nearest to {self.target} {by}{unit}: {near}. {self.distance_is}"
        if self.explained:
            return said
        what = "so its distances mean little" if self.measure == THEMES else "and were left out"
        return f"{said} The themes know nothing like it, {what}."

    @property
    def verdict(self) -> str:
        """Whether to choose, in a sentence: a gain is clear if its interval leaves out zero."""
        who = f"For {label_of(self.learner)} on {self.target}"
        if self.way == RANDOM and self.expected_gains is None:
            return f"{who}, training tasks are drawn at random."
        if self.way == RANDOM:
            return f"{who}, no clear gain is expected from choosing training tasks."
        how = WAYS.get(self.way, f"nearest by {self.way}")
        if self.gain is None:
            return f"{who}, what choosing training tasks ({how}) gains is not known."
        seen = "was measured" if self.way in self.measured_gains else "is expected"
        return {
            1: f"{who}, choose training tasks ({how}).",
            0: f"{who}, no clear gain {seen} from choosing training tasks ({how}).",
            -1: f"{who}, choosing training tasks ({how}) loses.",
        }[self.gain.sign(3)]

    @property
    def because(self) -> str:
        """What the verdict rests on: gains expected and measured, and where the tasks are from."""
        said = self.why
        if self.way in self.measured_gains:
            gain = self.measured_gains[self.way].in_points()
            said += f" Measured on its queries: {gain} points over random choice."
        by, drawn = self.chosen_from, sum(s.at_random for s in self.sources)
        if not by:
            return f"{said} All {drawn} tasks are drawn at random."
        words = ", ".join(f"{s.name} ({s.chosen})" for s in by[:2])
        others = " and others" if len(by) > 2 else ""
        random = f"; {drawn} more are at random" if drawn else ""
        return f"{said} Chosen tasks come from {words}{others}{random}."

    @property
    def to_expect(self) -> str:
        """The accuracy to expect, in a sentence; empty where that is not known.

        Of a few samples, the share that is right says little alone.
        """
        expected, measured = self.expected_accuracy, self.measured_accuracy.get(self.way)
        if expected is None:
            return ""
        also = "" if measured is None else f"; measured: {100 * measured:.0f} %"
        low, high, share = (f"{100 * x:.0f}" for x in (expected.low, expected.high, expected.value))
        return (
            f"Expected accuracy of {label_of(self.learner)}: {low} to {high} % ({share} % of its "
            f"labelled samples, each left out in turn){also}."
        )

    def summary(self) -> str:
        """The advice in plain words."""
        lines = [self.nearest, f"{self.verdict} {self.because}", self.to_expect]
        if ALL in self.measured_gains:
            lines.append(
                f"Training on all candidates: {self.measured_gains[ALL].in_points()} points over "
                f"random choice of {len(self.chosen)}."
            )
        return "\n".join(filter(None, [*lines, *self.notes]))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tasks themselves, as plain values."""
        known = {name: plain(getattr(self, name)) for name in _IN_JSON}
        return {"what": "advice", "format": FORMAT, "n_chosen": len(self.chosen), **known}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder: ``advice.json``, ``tasks.parquet`` and three tables as CSV.

        ``tasks.parquet`` is the list of chosen tasks, for :meth:`TaskSet.load`; to train on
        elsewhere, ``tasks.csv`` has their samples, by name and row (:meth:`TaskSet.rows`), and
        ``classes.csv`` how often each class occurs in them.
        """
        check_output(folder, ADVICE)
        with atomic_folder(folder) as place:
            write_json(place / "advice.json", self.to_dict())
            for file in ("tasks.parquet", "tasks.csv"):
                self.chosen.save(place / file)
            pool = self.chosen.pool
            uses = np.bincount(self.chosen.classes[self.chosen.classes >= 0], minlength=len(pool))
            ids = [c for c in np.argsort(-uses, kind="stable").tolist() if uses[c]]
            names, groups = pool.class_names, pool.groups or ("",) * len(pool)
            by_class = {"class": [names[c] for c in ids], "source": [groups[c] for c in ids]}
            write_csv(place / "classes.csv", {**by_class, "tasks": uses[ids]})
            table: dict[str, Any] = {"source": [s.name for s in self.sources]}
            for name in self.sources[0].distances:
                table[name] = [f"{s.distances[name]:.6g}" for s in self.sources]
            table |= {k: [getattr(s, k) for s in self.sources] for k in ("chosen", "at_random")}
            write_csv(place / "sources.csv", table)

    @staticmethod
    def load(folder: str | os.PathLike[str], pool: ClassPool) -> "Advice":
        """Read what :meth:`save` wrote; ``pool`` is the one that the tasks are from."""
        file = as_path(folder) / "advice.json"
        if not file.is_file() or not _JSON.known(file):
            raise DataError(f"{os.fspath(folder)} holds no advice that this taskscape can read.")
        values = read_json(file)
        check_format(values, file)
        with damage_named(file, "advice"):
            chosen = TaskSet.load(Path(folder) / "tasks.parquet", pool)
            types = get_type_hints(Advice)
            known = {name: from_plain(types[name], values[name]) for name in _IN_JSON}
            return Advice(chosen=chosen, **known)


_IN_JSON = tuple(f.name for f in fields(Advice) if f.name != "chosen")


@public
def advise(
    pool: ClassPool,
    target: Any,
    n: int = 100,
    *,
    learner: str = "protonet",
    way: str = AUTO,
    settings: AdvisorSettings | None = None,
    experience: Sequence[GainSeen] | None = None,
    trials: int = 4,
) -> Advice:
    """Which ``n`` tasks of a pool's training classes to train a learner on for a target.

    ``target`` is what :func:`taskscape.targets.find_target` takes: a path, arrays, or a group of
    the pool. Candidates are drawn, and similarities fitted, on the pool's training classes without
    those of the target. For several targets of one pool, or several learners, make
    :meth:`Sources.of` once and ask :func:`advise_on`.
    """
    settings = settings or AdvisorSettings()
    check_choice(way, "way", (AUTO, *WAYS))
    _check(n, settings.candidates, trials, learner)
    if way == AUTO:
        _gain_model(learner, experience, pool)  # refused before anything is fitted
    meant = find_target(target, pool, **settings.target_sizes())
    sources = Sources.of(without_classes_of(meant, pool), settings)
    return advise_on(
        sources.look_at(meant), n, learner=learner, way=way, experience=experience, trials=trials
    )  # fmt: skip


def without_classes_of(target: Target, pool: ClassPool) -> ClassPool:
    """The classes of a pool that are not the target's own."""
    own = set(target.classes_in(pool))
    if len(own) == len(pool):
        raise DataError(
            f"all {len(pool)} classes of {pool.name!r} are those of the target {target.name!r}; "
            "there is nothing to train on. Give a pool with others."
        )
    return pool.subset([c for c in range(len(pool)) if c not in own]) if own else pool


def advise_on(
    outlook: Outlook,
    n: int = 100,
    *,
    learner: str = "protonet",
    way: str = AUTO,
    experience: Sequence[GainSeen] | None = None,
    trials: int = 4,
) -> Advice:
    """:func:`advise` for what :meth:`Sources.look_at` saw of a target.

    ``way="auto"`` trains the learner by each way, ``trials`` times, looks at how well it then does
    on the target's labelled samples, each left out in turn, and weighs that by ``experience``:
    gains of this learner that were seen on other targets (by default those that come with the
    package, in pools of one source or of several like this one; of those given, other learners'
    are left out). Where the target has queries, training on all candidates is measured too.
    """
    sources, target = outlook.sources, outlook.target
    check_choice(way, "way", dict.fromkeys((AUTO, *WAYS, *outlook.distances)))
    _check(n, len(sources.tasks), trials, learner)
    model = _gain_model(learner, experience, sources.pool) if way == AUTO else None
    ways = [w for w in WAYS if w in (*outlook.distances, RANKS, HALF)] if way == AUTO else [way]
    asked = [(RANDOM, n, trials), *((w, n, trials) for w in ways if w != RANDOM)]
    if target.queries is not None:
        asked.append((ALL, len(sources.tasks), trials))
    tried = outlook.try_ways(learner, asked, sources.settings.seed)
    expected, why = None, "This way was asked for."
    if model is not None:
        decision = _decide(outlook, tried, n, model)
        way, why, expected = decision.way, decision.why, decision.expected
    own = next(t for t in tried if t.way == way)
    accuracy = {t.way: float(t.accuracy.mean()) for t in tried if t.accuracy is not None}
    return Advice(
        target=target.name,
        learner=learner,
        way=way,
        why=why,
        chosen=sources.tasks[own.chosen[0]],
        sources=_shares(outlook, way, own.chosen[0]),
        explained=outlook.explained,
        gap=outlook.gap,
        expected_gains=expected,
        expected_accuracy=_held_out(own, target),
        measured_gains=_measured(tried, target, n),
        measured_accuracy=accuracy,
        notes=(*target.notes, *(n for n in sources.pool.info.get("notes", ()) if n == PHOTOGRAPHS)),
        distance_is=str(outlook.finds_by(way)),
    )


def _check(n: int, candidates: int, trials: int, learner: str) -> None:
    find_learner(learner)
    check_whole(trials, "trials", _LEAST_TRIALS)
    check_whole(n, "n", 1, candidates)


def _gain_model(learner: str, experience: Sequence[GainSeen] | None, pool: ClassPool) -> GainModel:
    """What a learner's gains on other targets tell of its gain on another."""
    if experience is None:
        several = len(set(pool.sources or ())) > 1
        return GainModel.fit(known_experience(learner, joined=several))
    own = [seen for seen in experience if seen.learner == learner]
    if not own:
        others = ", ".join(sorted({seen.learner for seen in experience})) or "nobody"
        raise DataError(f"experience has no gains of {learner}; it has those of {others}.")
    return GainModel.fit(own)


def _decide(outlook: Outlook, tried: Sequence[WayTrials], n: int, model: GainModel) -> Decision:
    random = random_of(tried, n)
    others = [t for t in tried if t.way != RANDOM and t.way in model.ways]
    if not outlook.explained:
        others = [t for t in others if t.way != THEMES]
    return decide([model.expect(t.way, evidence_of(t, random)) for t in others])


def _shares(outlook: Outlook, way: str, chosen: Int[np.ndarray, "n"]) -> tuple[SourceShare, ...]:
    groups = np.asarray(outlook.sources.group_of)[chosen].tolist()
    near = n_near(way, len(groups))
    by = {name: outlook.by_source(name) for name in (*outlook.distances, RANKS)}
    return tuple(
        SourceShare(
            group, {name: far[group] for name, far in by.items()},
            groups[:near].count(group), groups[near:].count(group),
        )
        for group in by[measure_of(way)]
    )  # fmt: skip


def _held_out(trials: WayTrials, target: Target) -> Interval | None:
    folds = target.folds()
    if folds is None or trials.held_out_accuracy is None:
        return None
    by_training = trials.held_out_accuracy.mean(axis=1)
    asked = folds.pool_rows(slice(None))
    p, n = float(by_training.mean()), len(np.unique(asked.query[asked.query_mask]))
    trainings = Variance(float(by_training.var(ddof=1)) / len(by_training), len(by_training) - 1)
    # a sample is right or wrong; two are added that are neither, so that 100 % is not certain
    samples = Variance(_TOGETHER * (p * n + 1) * (n - p * n + 1) / (n + 2) ** 3, n - 1)
    return t_interval(p, [trainings, samples]).within(0.0, 1.0)


def _measured(tried: Sequence[WayTrials], target: Target, n: int) -> dict[str, Interval]:
    random = random_of(tried, n)
    if target.queries is None or random.accuracy is None:
        return {}
    classes = target.queries.classes
    return {
        t.way: gain_over(t.accuracy, random.accuracy, classes)
        for t in tried
        if t.way != RANDOM and t.accuracy is not None
    }
