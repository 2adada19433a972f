"""``advise``: which tasks of a pool to train on for a target, and what to expect of it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from taskscape.arguments import check_choice, check_whole, public
from taskscape.errors import DataError
from taskscape.io.files import Kind, as_path, check_output, folder_in_one_piece, json_with
from taskscape.io.tables import write_csv
from taskscape.io.values import FORMAT, check_format, damage_named, read_json, write_json
from taskscape.meta.learners import find_learner
from taskscape.notebook import ShownInNotebooks
from taskscape.pools import ClassPool
from taskscape.pools.pool import PHOTOGRAPHS
from taskscape.select.known import AUTO, RANDOM
from taskscape.select.trials import gain_over
from taskscape.similarity.known import THEMES
from taskscape.statistics import Interval, Variance, t_interval
from taskscape.targets.advisor import AdvisorSettings, Outlook, Sources
from taskscape.targets.gains import (
    Decision,
    Expectation,
    GainModel,
    GainSeen,
    decide,
    evidence_of,
    known_experience,
)
from taskscape.targets.known import HALF, RANKS, WAYS
from taskscape.targets.target import Target, find_target
from taskscape.targets.trials import ALL, WayTrials, random_of, source_way, try_ways
from taskscape.targets.ways import measure_of, n_near
from taskscape.tasks import TaskSet

_FILES = {"advice.json", "tasks.parquet", "tasks.csv", "classes.csv", "sources.csv"}
ADVICE = Kind("an advice", lambda folder: {p.name for p in folder.iterdir()} == _FILES, folder=True)
"""Folders that :meth:`Advice.save` writes."""
_JSON = json_with("advice", what="advice")
_PLAIN = ("target", "learner", "way", "why", "measure", "distance_is", "explained", "gap")
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
    distance: float
    """That of them by which tasks were chosen."""
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
    decision: Decision | None
    """What was expected of every way; None where the way was given."""
    held_out: Interval | None
    """Accuracy to expect, from the labelled samples, each left out in turn (the first five of a
    class): over trainings, and over what other samples of that number would say."""
    measured: dict[str, Interval]
    """Gains over random choice on the target's own queries, where it has some: not expected but
    seen. Nothing was chosen by them."""
    accuracy: dict[str, float]
    """Mean accuracy on those queries after training by each way, and on ``all`` candidates."""
    best_source: tuple[str, float] | None = None
    """The source whose tasks alone gave the best accuracy on those queries, found by trying them
    all: nobody could have known it."""
    notes: tuple[str, ...] = ()
    measure: str = RANKS
    """What tasks were chosen by, and what the distances to the sources are by."""
    distance_is: str = ""
    """What the distance to a source is, and why, in words."""

    def __repr__(self) -> str:
        return f"Advice(target={self.target!r}, way={self.way!r}, {len(self.chosen)} tasks)"

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        near = self.sources
        return (
            {"source": s.name, "distance": f"{s.distance:.2f}", "chosen": s.chosen} for s in near
        )

    @property
    def chosen_from(self) -> tuple[SourceShare, ...]:
        """The sources of the chosen tasks, that of the most tasks first."""
        return tuple(sorted((s for s in self.sources if s.chosen), key=lambda s: -s.chosen))

    @property
    def by(self) -> str:
        """What tasks were chosen by, in words."""
        return "mean rank" if self.measure == RANKS else self.measure.replace("_", "-")

    @property
    def gain(self) -> Interval | None:
        """The gain of the way over random choice: measured, or expected where it was not."""
        if self.way in self.measured or self.decision is None:
            return self.measured.get(self.way)
        own = [e for e in self.decision.expected if e.way == self.way]
        return Interval(own[0].gain, own[0].low, own[0].high) if own else None

    @property
    def verdict(self) -> str:
        """Whether to choose, in a sentence: a gain is clear if its interval leaves out zero."""
        if self.way == RANDOM:
            return f"Do not choose training tasks for {self.target}."
        seen = "measured" if self.way in self.measured else "expected"
        return {
            1: f"Choose training tasks for {self.target} (by {self.way}).",
            0: f"No clear gain {seen} from choosing training tasks for {self.target} (by "
            f"{self.way}).",
            -1: f"Choosing training tasks for {self.target} (by {self.way}) loses.",
        }[1 if self.gain is None else self.gain.sign(3)]

    @property
    def comes_from(self) -> str:
        """The sources of the tasks to train on, those at random apart."""
        by = self.chosen_from
        near = [f"{s.name} ({s.chosen})" for s in by[:4]]
        drawn = sum(s.at_random for s in self.sources)
        words = f"{', '.join(near)}{' and others' if len(by) > 4 else ''}"
        if not by:
            return f"All {drawn} tasks are drawn at random."
        return f"Chosen tasks come from {words}{f'; {drawn} more are at random' if drawn else ''}."

    def summary(self) -> str:
        """The advice in plain words."""
        near = [f"{s.name} ({s.distance:.2f})" for s in self.sources[:3]]
        lines = [
            f"Target {self.target}: nearest sources {', '.join(near)}, by {self.by} "
            f"({self.distance_is}).",
            f"{self.verdict} {self.comes_from}",
            f"By {self.way}: {self.why}.",
        ]
        if not self.explained:
            lines.insert(
                1,
                "The image-themes know nothing like this target "
                f"({self.gap:.0f} spreads below the training tasks): its distances mean little.",
            )
        if self.held_out is not None:
            lines.append(
                f"Expected accuracy: {_range(self.held_out)} of its labelled samples, each left "
                f"out in turn; {self.learner})."
            )
        if self.way in self.measured:
            lines.append(
                f"Measured on its queries: {self.measured[self.way].in_points()} points over "
                f"random choice, accuracy {100 * self.accuracy[self.way]:.1f} %."
            )
        if ALL in self.measured:
            lines.append(
                f"Training on all candidates: {self.measured[ALL].in_points()} points over "
                f"random choice of {len(self.chosen)}."
            )
        if self.best_source is not None:
            lines.append(
                f"The best single source, found by trying all on its queries: "
                f"{self.best_source[0]}, accuracy {100 * self.best_source[1]:.1f} %."
            )
        return "\n".join([*lines, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tasks themselves, as plain values."""
        decision = self.decision
        return {
            "what": "advice",
            "format": FORMAT,
            **{name: getattr(self, name) for name in _PLAIN},
            "n_chosen": len(self.chosen),
            "sources": [vars(s) for s in self.sources],
            "expected_gains": None if decision is None else [asdict(e) for e in decision.expected],
            "expected_accuracy": None if self.held_out is None else vars(self.held_out),
            "measured_gains": {way: vars(gain) for way, gain in self.measured.items()},
            "measured_accuracy": self.accuracy,
            "best_source": self.best_source,
            "notes": list(self.notes),
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder: ``advice.json``, ``tasks.parquet`` and three tables as CSV.

        ``tasks.parquet`` is the list of chosen tasks, for :meth:`TaskSet.load`; to train on
        elsewhere, ``tasks.csv`` has their samples, by name and row (:meth:`TaskSet.rows`), and
        ``classes.csv`` how often each class occurs in them.
        """
        check_output(folder, ADVICE)
        with folder_in_one_piece(folder) as place:
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
            gains, accuracy = values["expected_gains"], values["expected_accuracy"]
            expected = tuple(Expectation(**e) for e in gains or ())
            known = None if gains is None else Decision(values["way"], expected, values["why"])
            return Advice(
                **{name: values[name] for name in _PLAIN},
                chosen=TaskSet.load(Path(folder) / "tasks.parquet", pool),
                sources=tuple(SourceShare(**s) for s in values["sources"]),
                decision=known,
                held_out=None if accuracy is None else Interval(**accuracy),
                measured={way: Interval(**gain) for way, gain in values["measured_gains"].items()},
                accuracy=values["measured_accuracy"],
                best_source=None if values["best_source"] is None else (*values["best_source"],),
                notes=tuple(values["notes"]),
            )


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
    try_sources: bool = False,
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
        sources.look_at(meant), n, learner=learner, way=way, experience=experience, trials=trials,
        try_sources=try_sources,
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
    try_sources: bool = False,
) -> Advice:
    """:func:`advise` for what :meth:`Sources.look_at` saw of a target.

    ``way="auto"`` trains the learner by each way, ``trials`` times, looks at how well it then does
    on the target's labelled samples, each left out in turn, and weighs that by ``experience``:
    gains of this learner that were seen on other targets (by default those that come with the
    package, in pools of one source or of several like this one; of those given, other learners'
    are left out). Where the target has queries, training
    on all candidates is measured too, and with ``try_sources`` on those of every source alone.
    """
    sources, target = outlook.sources, outlook.target
    _check(n, len(sources.tasks), trials, learner)
    model = _gain_model(learner, experience, sources.pool) if way == AUTO else None
    ways = [w for w in WAYS if w in (*outlook.distances, RANKS, HALF)] if way == AUTO else [way]
    asked = [(RANDOM, n, trials), *((w, n, trials) for w in ways if w != RANDOM)]
    if target.queries is not None:
        everything = len(sources.tasks)
        asked.append((ALL, everything, trials))
        asked += [(source_way(g), everything, 1) for g in sources.groups if try_sources]
    tried = try_ways(outlook, learner, asked, seed=sources.settings.seed)
    decision, why = None, "as asked for"
    if model is not None:
        decision = _decide(outlook, tried, n, model)
        way, why = decision.way, decision.why
    own = next(t for t in tried if t.way == way)
    accuracy = {t.way: float(t.accuracy.mean()) for t in tried if t.accuracy is not None}
    alone = {g: accuracy.pop(source_way(g)) for g in sources.groups if source_way(g) in accuracy}
    best = max(alone.items(), key=lambda item: item[1], default=None)
    return Advice(
        target=target.name,
        learner=learner,
        way=way,
        why=why,
        chosen=sources.tasks[own.chosen[0]],
        sources=_shares(outlook, way, own.chosen[0]),
        explained=outlook.explained,
        gap=outlook.gap,
        decision=decision,
        held_out=_held_out(own, target),
        measured=_measured(tried, target, n),
        accuracy=accuracy,
        best_source=best,
        notes=(*target.notes, *(n for n in sources.pool.info.get("notes", ()) if n == PHOTOGRAPHS)),
        measure=measure_of(way),
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
            group, {name: far[group] for name, far in by.items()}, distance,
            groups[:near].count(group), groups[near:].count(group),
        )
        for group, distance in by[measure_of(way)].items()
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
        if t.way != RANDOM and t.accuracy is not None and len(t.accuracy) > 1
    }


def _range(accuracy: Interval) -> str:
    """What the interval of an accuracy holds: of a few samples, their share alone says little."""
    low, share, high = (f"{100 * x:.0f}" for x in (accuracy.low, accuracy.value, accuracy.high))
    return f"{low} to {high} % ({share} %"
