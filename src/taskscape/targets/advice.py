"""``advise``: which tasks of a pool to train on for a target, and what to expect of it."""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from taskscape.errors import DataError
from taskscape.files import Kind, check_output, folder_in_one_piece
from taskscape.meta.learners import find_learner
from taskscape.pools import ClassPool
from taskscape.similarity.known import TASK_THEMES
from taskscape.statistics import Interval, Variance, t_interval
from taskscape.storage import read_json, write_json
from taskscape.targets.advisor import AdvisorSettings, Outlook, Sources
from taskscape.targets.cues import evidence_of
from taskscape.targets.gains import (
    Decision,
    Expectation,
    GainModel,
    GainSeen,
    decide,
    known_experience,
)
from taskscape.targets.target import Target, find_target
from taskscape.targets.trials import WayTrials, gain_over, random_of, try_ways
from taskscape.targets.ways import HALF, RANDOM, RANKS
from taskscape.tasks import TaskSet, load_tasks, save_tasks

__all__ = ["ADVICE", "Advice", "SourceShare", "advise", "advise_on", "without_classes_of"]

_FILES = {"advice.json", "tasks.parquet", "classes.csv", "sources.csv"}
ADVICE = Kind("an advice", lambda folder: {p.name for p in folder.iterdir()} == _FILES, folder=True)
"""Folders that :meth:`Advice.save` writes."""
_FORMAT = 1
AUTO = "auto"
_TRIED = ("prototypes", TASK_THEMES, RANKS, HALF)
"""Ways that are weighed against random choice."""
_LEAST_TRIALS = 2


@dataclass(frozen=True)
class SourceShare:
    """A group of the pool as a source for a target."""

    name: str
    distance: float
    """Mean KL divergence from the target's tasks to the group's."""
    chosen: int
    """How many of the chosen tasks are from it."""


@dataclass(frozen=True, eq=False)
class Advice:
    """What to train on for a target, why, and what to expect."""

    target: str
    learner: str
    way: str
    """How the tasks were chosen: a notion of similarity, ``ranks``, ``half`` or ``random``."""
    why: str
    chosen: TaskSet
    """The tasks to train on, the first choice first."""
    sources: tuple[SourceShare, ...]
    """The nearest first."""
    explained: bool
    """Whether the task-themes know anything like the target; if not, they were left out."""
    gap: float | None
    """Spreads by which the target's bound lies below the usual one."""
    decision: Decision | None
    """What was expected of every way; None where the way was given."""
    held_out: Interval | None
    """Accuracy to expect, from the labelled samples, each left out in turn: over trainings, and
    over what other samples of that number would say."""
    measured: dict[str, Interval]
    """Gains over random choice on the target's own queries, where it has some: not expected but
    seen. Nothing was chosen by them."""
    accuracy: dict[str, float]
    """Mean accuracy on those queries after training by each way."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Advice(target={self.target!r}, way={self.way!r}, {len(self.chosen)} tasks)"

    def summary(self) -> str:
        """The advice in plain words."""
        near = [f"{s.name} ({s.distance:.1f} nats)" for s in self.sources[:3]]
        by = sorted(self.sources, key=lambda s: -s.chosen)
        from_ = [f"{s.name} ({s.chosen})" for s in by[:4] if s.chosen]
        lines = [
            f"Target {self.target}: nearest sources {', '.join(near)}, by task-themes.",
            f"Train on {len(self.chosen)} tasks chosen by {self.way}: {self.why}.",
            f"They come from {', '.join(from_)}{' and others' if len(by) > 4 else ''}.",
        ]
        if not self.explained:
            lines.insert(
                1,
                "The task-themes know nothing like this target "
                f"({self.gap:.0f} spreads below the training tasks): its distances mean little.",
            )
        if self.held_out is not None:
            lines.append(
                f"Expected accuracy: {_percent(self.held_out)} (its labelled samples, each left "
                f"out in turn; {self.learner})."
            )
        if self.way in self.measured:
            lines.append(
                f"Measured on its queries: {_points(self.measured[self.way])} points over random "
                f"choice, accuracy {100 * self.accuracy[self.way]:.1f} %."
            )
        return "\n".join([*lines, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tasks themselves, as plain values."""
        decision = None
        if self.decision is not None:
            decision = [e.to_dict() for e in self.decision.expected]
        return {
            "what": "advice",
            "format": _FORMAT,
            "target": self.target,
            "learner": self.learner,
            "way": self.way,
            "why": self.why,
            "n_chosen": len(self.chosen),
            "sources": [vars(s) for s in self.sources],
            "explained": self.explained,
            "gap": self.gap,
            "expected_gains": decision,
            "expected_accuracy": None if self.held_out is None else vars(self.held_out),
            "measured_gains": {way: vars(gain) for way, gain in self.measured.items()},
            "measured_accuracy": self.accuracy,
            "notes": list(self.notes),
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder: ``advice.json``, ``tasks.parquet``, ``classes.csv``, ``sources.csv``.

        ``tasks.parquet`` is the list of chosen tasks, for :func:`taskscape.load_tasks`;
        ``classes.csv`` how often each class occurs in them, to train on elsewhere.
        """
        check_output(folder, ADVICE)
        with folder_in_one_piece(folder) as place:
            write_json(place / "advice.json", self.to_dict())
            save_tasks(self.chosen, place / "tasks.parquet")
            pool = self.chosen.pool
            ids, uses = np.unique(self.chosen.classes, return_counts=True)
            rows = [
                [pool.class_names[c], (pool.groups or [""] * len(pool))[c], n]
                for c, n in zip(ids.tolist(), uses.tolist(), strict=True)
                if c >= 0
            ]
            rows.sort(key=lambda row: -row[2])
            _write_csv(place / "classes.csv", ["class", "source", "tasks"], rows)
            shares = [[s.name, f"{s.distance:.6g}", s.chosen] for s in self.sources]
            _write_csv(place / "sources.csv", ["source", "distance", "chosen"], shares)

    @staticmethod
    def load(folder: str | os.PathLike[str], pool: ClassPool) -> "Advice":
        """Read what :meth:`save` wrote; ``pool`` is the one that the tasks are from."""
        values = read_json(Path(folder) / "advice.json")
        if values.get("what") != "advice" or values.get("format") != _FORMAT:
            raise DataError(f"{os.fspath(folder)} holds no advice that this taskscape can read.")
        expected, accuracy = values["expected_gains"], values["expected_accuracy"]
        decision = None
        if expected is not None:
            known = tuple(Expectation(**e) for e in expected)
            decision = Decision(values["way"], known, values["why"])
        return Advice(
            target=values["target"],
            learner=values["learner"],
            way=values["way"],
            why=values["why"],
            chosen=load_tasks(Path(folder) / "tasks.parquet", pool),
            sources=tuple(SourceShare(**s) for s in values["sources"]),
            explained=values["explained"],
            gap=values["gap"],
            decision=decision,
            held_out=None if accuracy is None else Interval(**accuracy),
            measured={way: Interval(**gain) for way, gain in values["measured_gains"].items()},
            accuracy=values["measured_accuracy"],
            notes=tuple(values["notes"]),
        )


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


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
    those of the target. For several targets of one pool, make :meth:`Sources.of` once and ask
    :func:`advise_on`.
    """
    settings = settings or AdvisorSettings()
    find_learner(learner)
    if way not in (AUTO, RANDOM, *_TRIED):
        raise DataError(f"way={way!r} is not known; use {AUTO}, {', '.join(_TRIED)} or {RANDOM}.")
    _check(n, settings.candidates, trials)
    found = find_target(target, pool, **settings.target_sizes())
    sources = Sources.of(without_classes_of(found, pool), settings)
    return advise_on(
        sources, found, n, learner=learner, way=way, experience=experience, trials=trials
    )


def without_classes_of(target: Target, pool: ClassPool) -> ClassPool:
    """The training classes of a pool that are not the target's own."""
    rest = pool if pool.splits is None else pool.split("train")
    if target.pool.fingerprint != pool.fingerprint:
        return rest
    own = {pool.class_names[c] for c in target.tasks.class_ids.tolist()}
    kept = [i for i, name in enumerate(rest.class_names) if name not in own]
    return rest if len(kept) == len(rest) else rest.subset(kept)


def advise_on(
    sources: Sources,
    target: Target,
    n: int = 100,
    *,
    learner: str = "protonet",
    way: str = AUTO,
    experience: Sequence[GainSeen] | None = None,
    trials: int = 4,
) -> Advice:
    """:func:`advise` for sources that are at hand.

    ``way="auto"`` trains the learner by each way, ``trials`` times, looks at how well it then does
    on the target's labelled samples, each left out in turn, and weighs that by ``experience``:
    gains that were seen on other targets (by default those that come with the package).
    """
    _check(n, len(sources.tasks), trials)
    outlook = sources.look_at(target)
    ways = [w for w in _TRIED if w in (*outlook.distances, RANKS, HALF)] if way == AUTO else [way]
    asked = [(RANDOM, n, trials), *((w, n, trials) for w in ways if w != RANDOM)]
    tried = try_ways(outlook, learner, asked, seed=sources.settings.seed)
    decision, why = None, "as asked for"
    if way == AUTO:
        decision = _decide(outlook, tried, learner, experience)
        way, why = decision.way, decision.why
    own = next(t for t in tried if t.way == way)
    return Advice(
        target=target.name,
        learner=learner,
        way=way,
        why=why,
        chosen=sources.tasks[own.chosen[0]],
        sources=_shares(outlook, own.chosen[0]),
        explained=outlook.explained,
        gap=outlook.gap,
        decision=decision,
        held_out=_held_out(own, target),
        measured=_measured(tried, target, n),
        accuracy={t.way: float(t.accuracy.mean()) for t in tried if t.accuracy is not None},
        notes=target.notes,
    )


def _check(n: int, candidates: int, trials: int) -> None:
    if trials < _LEAST_TRIALS:
        raise DataError(f"trials={trials} must be at least {_LEAST_TRIALS}, to know the noise.")
    if not 1 <= n <= candidates:
        raise DataError(f"n={n} must lie between 1 and the {candidates} candidates.")


def _decide(
    outlook: Outlook,
    tried: Sequence[WayTrials],
    learner: str,
    experience: Sequence[GainSeen] | None,
) -> Decision:
    model = GainModel.fit(known_experience(learner) if experience is None else experience)
    random = next(t for t in tried if t.way == RANDOM)
    others = [t for t in tried if t.way != RANDOM and t.way in model.ways]
    if not outlook.explained:
        others = [t for t in others if t.way != TASK_THEMES]
    return decide([model.expect(t.way, evidence_of(t, random)) for t in others])


def _shares(outlook: Outlook, chosen: Int[np.ndarray, "n"]) -> tuple[SourceShare, ...]:
    notion = TASK_THEMES if TASK_THEMES in outlook.distances else next(iter(outlook.distances))
    groups = np.asarray(outlook.sources.group_of)[chosen].tolist()
    return tuple(
        SourceShare(name, distance, groups.count(name))
        for name, distance in outlook.by_source(notion).items()
    )


def _held_out(trials: WayTrials, target: Target) -> Interval | None:
    if trials.held_out_accuracy is None:
        return None
    by_training = trials.held_out_accuracy.mean(axis=1)
    p, n = float(by_training.mean()), target.n_labelled
    trainings = Variance(float(by_training.var(ddof=1)) / len(by_training), len(by_training) - 1)
    # a sample is right or wrong; two are added that are neither, so that 100 % is not certain
    samples = Variance((p * n + 1) * (n - p * n + 1) / (n + 2) ** 3, n - 1)
    return t_interval(p, [trainings, samples]).within(0.0, 1.0)


def _measured(tried: Sequence[WayTrials], target: Target, n: int) -> dict[str, Interval]:
    if target.queries is None:
        return {}
    random = random_of(tried, n)
    return {t.way: gain_over(t, random, target.queries.classes) for t in tried if t.way != RANDOM}


def _points(gain: Interval) -> str:
    return f"{100 * gain.value:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"


def _percent(accuracy: Interval) -> str:
    return f"{100 * accuracy.value:.0f} % [{100 * accuracy.low:.0f}, {100 * accuracy.high:.0f}]"
