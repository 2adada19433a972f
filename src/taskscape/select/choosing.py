"""``select``: choose training tasks for test tasks; what was chosen, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt64

from taskscape.arguments import Seed, check_kind, check_seed, check_whole, public
from taskscape.compare import nearest
from taskscape.compare.posteriors import Tasks, class_hashes, read_classes, read_posterior
from taskscape.embeddings import Catalogue
from taskscape.errors import DataError
from taskscape.io.files import json_with
from taskscape.io.values import SavedAsJson
from taskscape.notebook import ShownInNotebooks
from taskscape.select.auto import LearnerScorer, Scorer, TrialOptions, choose_rule
from taskscape.select.known import AUTO, RANDOM, RULES, find_rule
from taskscape.select.rules import Run
from taskscape.similarity import (
    DEFAULT_SIMILARITY,
    DistanceSource,
    Similarity,
    SimilarityLike,
    distances_between,
    fitted_to,
)
from taskscape.tasks import TaskSet
from taskscape.tasks.draws import subkeys

_MOST_CANDIDATES = 20_000_000
SELECTION_FILE = json_with("a selection", what="selection")


@dataclass(frozen=True, eq=False)
class Selection(SavedAsJson, ShownInNotebooks):
    """Training tasks in the order they were chosen; ``tasks[selection.indices]`` picks them."""

    file, what = SELECTION_FILE, "selection"
    indices: Int[np.ndarray, "chosen"]
    scores: Float[np.ndarray, "chosen"]
    """What the rule went by, see ``score_is``."""
    for_test: Int[np.ndarray, "chosen"]
    """The test task that asked for each one, or -1 where the rule looks at all of them."""
    rule: str
    score_is: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Selection({len(self):,} tasks, rule={self.rule!r})"

    @property
    def why(self) -> list[str]:
        """A sentence for each task."""
        return [
            f"{self.score_is} {score:.4g}" + (f", for test task {test}" if test >= 0 else "")
            for score, test in zip(self.scores, self.for_test, strict=True)
        ]

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        chosen = zip(self.indices.tolist(), self.why, strict=True)
        return ({"task": index, "why": why} for index, why in chosen)

    def summary(self) -> str:
        """What was chosen, in a few words."""
        most = np.abs(self.scores).max(initial=0.0)
        return (
            f"{len(self):,} tasks by rule {self.rule!r}; {self.score_is}: mean "
            f"{self.scores.mean() if len(self) else 0.0:.4g}, largest {most:.4g}."
        )


@public
def select(
    test: Any,
    train: Any,
    n: int,
    rule: str = "coverage",
    *,
    similarity: SimilarityLike = DEFAULT_SIMILARITY,
    seed: Seed = 0,
    train_classes: Any = None,
    max_shared: int | None = None,
    validation: Any = None,
    scorer: Scorer | None = None,
    trial: TrialOptions | None = None,
) -> Selection:
    """Choose ``n`` training tasks for the test tasks, by any rule and any similarity measure.

    ``test`` and ``train`` are embedded tasks, or λ (tasks, L), compared by their posteriors; or
    task sets, which ``similarity`` is fitted to; or what a fitted similarity embedded; or None,
    where it is distances already (see :func:`taskscape.similarity.distances_between`). ``rule`` is
    one of ``RULES``, or ``"auto"``.

    ``train_classes`` is a TaskSet or class ids (tasks, way) padded with -1, and ``train`` itself
    where that is a TaskSet; ``max_shared`` then forbids two chosen tasks with more classes in
    common.

    ``rule="auto"`` tries the rules where the outcome can be seen: it selects *for validation
    tasks*, given like ``test``, and asks ``scorer``, which trains a learner on every list it
    is given and returns its scores on the validation tasks (:class:`LearnerScorer` does). The rule
    that beats random choice by more than the noise is then used for the test tasks; where none
    does, random choice. ``trial`` says how (:class:`TrialOptions`); what was tried is in
    ``settings["auto"]``.

    Ties, and the order in which test tasks take turns, are settled by a hash of the seed and of
    what the task is (posterior, classes, key), never of its place: the same tasks in another order
    give the same selection. Tasks that are equal in all of these are interchangeable.

    >>> lam = np.array([[1.0, 2.0], [2.0, 1.0], [4.0, 1.0]])
    >>> select(lam[:1], lam, 1, rule="nearest").indices.tolist()
    [0]
    """
    if rule != AUTO:
        find_rule(rule)
    elif validation is None or scorer is None:
        raise DataError(
            "rule='auto' needs validation, tasks to try the rules for, and scorer, which scores a "
            "learner trained on chosen tasks, such as taskscape.select.LearnerScorer."
        )
    if train_classes is None:
        known = scorer.train if isinstance(scorer, LearnerScorer) else train
        train_classes = known if isinstance(known, TaskSet) else None
    if max_shared is not None:
        check_whole(max_shared, "max_shared", 0)
    n, seed = check_whole(n, "n"), check_seed(seed)
    choose = partial(_choose, classes=train_classes, max_shared=max_shared)
    similarity = fitted_to(train, similarity, seed=seed)  # once, for test and validation tasks
    source = distances_between(test, train, similarity)
    if rule != AUTO or scorer is None:
        return choose(source, rule, n, seed)
    if isinstance(similarity, str | Similarity):
        held_out = distances_between(validation, train, similarity)
    else:
        held_out = distances_between(None, train, validation)
    trial = trial or TrialOptions()
    few, rules = trial.budget(n), trial.rules
    if rules is None:
        known = train_classes is not None
        rules = tuple(r for r in RULES if r != RANDOM and (known or not RULES[r].needs_classes))
    _check_trial(source, held_out, scorer)

    def try_rule(rule: str, seed: int) -> Int[np.ndarray, "_"]:
        return choose(held_out, rule, few, seed).indices

    rule, record = choose_rule(try_rule, scorer, rules, trial, seed)
    chosen = choose(source, rule, n, seed)
    record |= {"n": few, "n_validation": held_out.n_test}
    return replace(chosen, settings={**chosen.settings, "auto": record})


def _check_trial(source: DistanceSource, held_out: DistanceSource, scorer: Scorer) -> None:
    """Raise an error unless rules can be tried by what is known of the validation tasks."""
    if held_out.n_train != source.n_train:
        raise DataError(
            f"validation has distances to {held_out.n_train} training tasks, the test tasks to "
            f"{source.n_train}; both must be to the same."
        )
    if isinstance(scorer, LearnerScorer):
        scorer.check(train=source.n_train, validation=held_out.n_test)


def select_from_catalogue(
    test: Tasks, catalogue: Catalogue, n: int, *, seed: Seed = 0
) -> Selection:
    """Choose ``n`` tasks of a catalogue for the test tasks, by the rule ``coverage``.

    Each test task in turn takes its nearest unused task. Since at most ``n`` are ever taken, the
    ``n`` nearest of every test task hold all that can be chosen: only those are read. Of tasks at
    the same distance from a test task, the first ``n`` of the catalogue are looked at. ``indices``
    are places in the catalogue, for :meth:`Catalogue.take`.
    """
    asked = read_posterior(test, "test")
    check_kind(catalogue, Catalogue, "catalogue", "Open one with Catalogue(path).")
    check_whole(n, "n")
    if not 1 <= n <= len(catalogue):
        raise DataError(f"n={n} must lie between 1 and the {len(catalogue)} tasks of {catalogue}.")
    if len(asked) * n > _MOST_CANDIDATES:
        raise DataError(
            f"the {n} nearest tasks of {len(asked)} test tasks are more than "
            f"{_MOST_CANDIDATES:,} to look at; choose fewer, or for fewer test tasks."
        )
    places = np.unique(nearest(asked, catalogue.posteriors(), n).indices)
    known = catalogue.take(places)
    chosen = select(asked, known, n, "coverage", seed=seed, train_classes=known.classes)
    settings = {**chosen.settings, "n_train": len(catalogue)}
    return replace(chosen, indices=places[chosen.indices], settings=settings)


def _choose(
    source: DistanceSource, rule: str, n: int, seed: int, classes: Any, max_shared: int | None
) -> Selection:
    """Choose by one rule."""
    chosen_rule = find_rule(rule)
    ids = None if classes is None else read_classes(classes, source.n_train)
    if ids is None and (max_shared is not None or chosen_rule.needs_classes):
        why = "max_shared" if max_shared is not None else f"rule={rule!r}"
        raise DataError(f"{why} needs train_classes: a TaskSet, or class ids (tasks, way).")
    if not 1 <= n <= source.n_train:
        raise DataError(f"n={n} must lie between 1 and the {source.n_train} training tasks.")
    test_content, train_content = source.contents()
    if ids is not None:
        train_content = class_hashes(ids, train_content)
        keys = getattr(classes, "keys", None)
        if isinstance(keys, np.ndarray):
            train_content = subkeys(train_content, keys.view(np.int64))
    run = Run(source, _keys(train_content, seed), _keys(test_content, seed), n, ids, max_shared)
    chosen_rule.choose(run)
    if len(run.chosen) < n:
        raise DataError(
            f"only {len(run.chosen)} of the {n} tasks could be chosen by rule={rule!r} "
            f"with max_shared={max_shared}. Lower n, raise max_shared, or give more training tasks."
        )
    settings: dict[str, Any] = {
        "n": n,
        "seed": seed,
        "max_shared": max_shared,
        "n_test": source.n_test,
    }
    settings |= {"n_train": source.n_train, "distance": type(source).__name__}
    return Selection(
        indices=np.array(run.chosen, dtype=np.int64),
        scores=np.array(run.scores),
        for_test=np.array(run.for_test, dtype=np.int64),
        rule=rule,
        score_is=chosen_rule.score_is,
        settings=settings,
    )


def _keys(content: UInt64[np.ndarray, "tasks"], seed: int) -> UInt64[np.ndarray, "tasks"]:
    """Keys from content and seed; tasks of equal content are numbered, to get different ones."""
    order = np.argsort(content, kind="stable")
    ordered = content[order]
    new = np.r_[True, ordered[1:] != ordered[:-1]]
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    occurrence = np.empty(len(order), dtype=np.int64)
    occurrence[order] = np.arange(len(order)) - first
    base = subkeys(content, np.full(len(content), seed % 2**62, dtype=np.int64))
    return subkeys(base, occurrence)
