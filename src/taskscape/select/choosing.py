"""``select``: choose training tasks for test tasks."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt64

from taskscape.arguments import (
    Seed,
    as_array,
    as_numbers,
    check_choice,
    check_number,
    check_seed,
    check_whole,
    public,
)
from taskscape.compare.posteriors import class_hashes, read_classes
from taskscape.errors import DataError
from taskscape.select.auto import (
    Judge,
    LearnerJudge,
    TrialOptions,
    choose_rule,
    rules_to_try,
)
from taskscape.select.known import AUTO, RuleOptions, find_rule
from taskscape.select.rules import Run
from taskscape.select.selection import Selection
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
    train_samples: Any = None,
    test_weights: Any = None,
    max_shared: int | None = None,
    unit: str = "tasks",
    penalty: float = 0.25,
    candidates: int | None = None,
    max_test: int = 2000,
    validation: Any = None,
    judge: Judge | None = None,
    trial: TrialOptions | None = None,
) -> Selection:
    """Choose ``n`` training tasks for the test tasks, by any rule and any similarity measure.

    ``test`` and ``train`` are embedded tasks, or λ (tasks, L), compared by their posteriors; or
    task sets, which ``similarity`` is fitted to; or what a fitted similarity embedded; or None,
    where it is distances already (see :func:`taskscape.similarity.distances_between`). ``rule`` is
    one of ``RULES``, or ``"auto"``.

    ``train_classes`` is a TaskSet or class ids (tasks, way) padded with -1, and ``train`` itself
    where that is a TaskSet; ``max_shared`` then forbids two chosen tasks with more classes in
    common. ``test_weights`` says how much each test task counts. With ``unit="samples"``, ``n``
    counts samples: those of each task come from the TaskSet or from ``train_samples``, and tasks
    that no longer fit are passed over. ``penalty``, ``candidates`` and ``max_test`` are described
    in :class:`RuleOptions`.

    ``rule="auto"`` tries the rules where the outcome can be seen: it selects *for validation
    tasks*, given like ``test``, and asks ``judge``, which trains a learner on each list of tasks it
    is given and returns its scores on the validation tasks (:class:`LearnerJudge` does). The rule
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
    seed = check_seed(seed)
    if rule != AUTO:
        find_rule(rule)
    elif validation is None or judge is None:
        raise DataError(
            "rule='auto' needs validation, tasks to try the rules for, and judge, which scores a "
            "learner trained on chosen tasks, such as taskscape.select.LearnerJudge."
        )
    if train_classes is None:
        known = judge.train if isinstance(judge, LearnerJudge) else train
        train_classes = known if isinstance(known, TaskSet) else None
    n = check_whole(n, "n")
    if max_shared is not None:
        check_whole(max_shared, "max_shared", 0)
    check_number(penalty, "penalty", 0)
    if candidates is not None:
        check_whole(candidates, "candidates", 1)
    check_whole(max_test, "max_test", 1)
    request = _Request(
        n, unit, seed, test_weights, train_classes, train_samples, max_shared,
        RuleOptions(penalty, candidates, max_test),
    )  # fmt: skip
    similarity = fitted_to(train, similarity, seed=seed)  # once, for test and validation tasks
    source = distances_between(test, train, similarity)
    if rule != AUTO or judge is None:
        return _choose(source, rule, request)
    if isinstance(similarity, str | Similarity):
        trial_source = distances_between(validation, train, similarity)
    else:
        trial_source = distances_between(None, train, validation)
    return _choose_by_trial(source, trial_source, request, judge, trial or TrialOptions())


@dataclass(frozen=True, eq=False)
class _Request:
    """How many training tasks to choose, and what every rule keeps to."""

    n: int
    unit: str
    seed: int
    test_weights: Any
    train_classes: Any
    train_samples: Any
    max_shared: int | None
    options: RuleOptions


def _choose_by_trial(
    source: DistanceSource,
    validation: DistanceSource,
    request: _Request,
    judge: Judge,
    trial: TrialOptions,
) -> Selection:
    """Try the rules for the validation tasks, and choose by the one that helps."""
    if validation.n_train != source.n_train:
        raise DataError(
            f"validation has distances to {validation.n_train} training tasks, the test tasks to "
            f"{source.n_train}; both must be to the same."
        )
    if isinstance(judge, LearnerJudge):
        judge.check(source.n_train, validation.n_test)
    n = trial.budget(request.n, request.unit)
    choice = choose_rule(
        lambda rule, seed: _choose(
            validation, rule, replace(request, n=n, seed=seed, test_weights=None)
        ),
        judge,
        rules=rules_to_try(trial, request.train_classes is not None),
        trials=trial.trials,
        confidence=trial.confidence,
        seed=request.seed,
    )
    chosen = _choose(source, choice.rule, request)
    record = {**choice.to_dict(), "n": n, "n_validation": validation.n_test}
    return replace(chosen, settings={**chosen.settings, "auto": record})


def _choose(source: DistanceSource, rule: str, request: _Request) -> Selection:
    """Choose by one rule."""
    chosen_rule = find_rule(rule)
    run = _start(source, rule, request)
    chosen_rule.choose(run, request.options)
    n, unit, max_shared = request.n, request.unit, request.max_shared
    if not run.chosen or (unit == "tasks" and len(run.chosen) < n):
        raise DataError(
            f"only {len(run.chosen)} of the {n} {unit} could be chosen by rule={rule!r} "
            f"with max_shared={max_shared}. Lower n, raise max_shared or candidates, or "
            "give more training tasks."
        )
    settings = {"n": n, "unit": unit, "seed": request.seed, "max_shared": max_shared}
    settings |= {"weighted": request.test_weights is not None, "n_test": source.n_test}
    settings |= {"n_train": source.n_train, "distance": type(source).__name__}
    settings |= {name: getattr(request.options, name) for name in chosen_rule.options}
    return Selection(
        indices=np.array(run.chosen, dtype=np.int64),
        scores=np.array(run.scores),
        for_test=np.array(run.for_test, dtype=np.int64),
        rule=rule,
        score_is=chosen_rule.score_is,
        settings=settings,
    )


def _start(source: DistanceSource, rule: str, request: _Request) -> Run:
    """A selection of nothing yet, after a check of everything that it is to keep to."""
    n, unit, max_shared = request.n, request.unit, request.max_shared
    given = request.train_classes
    classes = None if given is None else read_classes(given, source.n_train)
    if classes is None and (max_shared is not None or find_rule(rule).needs_classes):
        why = "max_shared" if max_shared is not None else f"rule={rule!r}"
        raise DataError(f"{why} needs train_classes: a TaskSet, or class ids (tasks, way).")
    costs = _read_costs(unit, given, request.train_samples, source.n_train)
    if n < 1 or (unit == "tasks" and n > source.n_train):
        raise DataError(f"n={n} must lie between 1 and the {source.n_train} training tasks.")
    test_content, train_content = source.contents()
    if classes is not None:
        train_content = class_hashes(classes, train_content)
        keys = getattr(given, "keys", None)
        if isinstance(keys, np.ndarray):
            train_content = subkeys(train_content, keys.view(np.int64))
    return Run(
        source,
        tie_keys=_keys(train_content, request.seed),
        test_keys=_keys(test_content, request.seed),
        weights=_read_weights(request.test_weights, source.n_test),
        budget=n,
        costs=costs,
        classes=classes,
        max_shared=max_shared,
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


def _read_weights(weights: Any, n_test: int) -> Float[np.ndarray, "tests"]:
    if weights is None:
        return np.full(n_test, 1 / n_test)
    values = as_numbers(weights)
    if values.shape != (n_test,) or not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(
            f"test_weights has shape {values.shape}; expected {n_test} numbers of at least 0."
        )
    if values.sum() <= 0:
        raise DataError("test_weights are all 0; at least one test task must count.")
    return values / values.sum()


def _read_costs(unit: str, tasks: Any, samples: Any, n_train: int) -> Int[np.ndarray, "trains"]:
    """What each training task takes from the budget."""
    if check_choice(unit, "unit", ("tasks", "samples")) == "tasks":
        return np.ones(n_train, dtype=np.int64)
    if samples is None and not hasattr(tasks, "n_shot"):
        raise DataError(
            "unit='samples' needs to know the samples of each task: pass train_samples, or a "
            "TaskSet as train_classes."
        )
    costs = _samples_of(tasks) if samples is None else as_array(samples)
    if costs.shape != (n_train,) or costs.dtype.kind not in "iu" or (costs < 1).any():
        raise DataError(
            f"train_samples has shape {costs.shape} and type {costs.dtype}; expected {n_train} "
            "whole numbers of at least 1."
        )
    return costs.astype(np.int64)


def _samples_of(tasks: Any) -> Int[np.ndarray, "trains"]:
    """How many samples, support and query, each task of a TaskSet has."""
    real = tasks.classes >= 0
    if tasks.support is not None:
        asked = 0 if tasks.query is None else (tasks.query >= 0).sum(axis=(1, 2))
        return (tasks.support >= 0).sum(axis=(1, 2)) + asked
    counts = np.where(real, tasks.pool.counts[np.maximum(tasks.classes, 0)], 0).sum(axis=1)
    drawn = real.sum(axis=1) * (tasks.n_shot + tasks.n_query)
    return np.where(tasks.n_shot == 0, counts, drawn)
