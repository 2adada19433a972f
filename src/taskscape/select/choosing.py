"""``select``: choose training tasks for test tasks."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt64

from taskscape.compare.posteriors import Tasks
from taskscape.compare.resemblance import read_classes
from taskscape.compare.rows import class_hashes
from taskscape.errors import DataError
from taskscape.seeds import Seed, check_seed
from taskscape.select.auto import AUTO, Judge, TrialOptions, choose_rule, rules_to_try
from taskscape.select.rules import RuleOptions, find_rule
from taskscape.select.run import Run
from taskscape.select.selection import Selection
from taskscape.select.sources import DistanceSource, KLSource
from taskscape.tasks.draws import subkeys

__all__ = ["select", "select_by"]


def select(
    test: Tasks,
    train: Tasks,
    n: int,
    rule: str = "coverage",
    *,
    seed: Seed = 0,
    scales: object = None,
    validation: Tasks = None,
    **options: Any,
) -> Selection:
    """Choose ``n`` training tasks for the test tasks, by KL between their posteriors.

    ``test`` and ``train`` are λ (tasks, L), ensembles (members, tasks, L), or embedded tasks.
    Rules: ``nearest`` (the paper's), ``coverage``, ``facility``, ``classes``, ``random``, and
    ``auto``, which tries them on ``validation`` tasks (λ like the others) by a ``judge``. The
    options are those of :func:`select_by`, which also takes distances of other kinds.

    Ties, and the order in which test tasks take turns, are settled by a hash of the seed and of
    what the task is (λ, classes, key), never of its place: the same tasks in another order give
    the same selection. Tasks that are equal in all of these are interchangeable.

    >>> lam = np.array([[1.0, 2.0], [2.0, 1.0], [4.0, 1.0]])
    >>> select(lam[:1], lam, 1, rule="nearest").indices.tolist()
    [0]
    """
    if validation is not None:
        options["validation"] = KLSource(validation, train, scales=scales)
    return select_by(KLSource(test, train, scales=scales), n, rule, seed=seed, **options)


def select_by(
    source: DistanceSource,
    n: int,
    rule: str = "coverage",
    *,
    seed: Seed = 0,
    validation: DistanceSource | None = None,
    judge: Judge | None = None,
    trial: TrialOptions | None = None,
    test_weights: object = None,
    **options: Any,
) -> Selection:
    """Choose training tasks by distances from any source; see :func:`select`.

    ``train_classes`` is a TaskSet or class ids (tasks, way) padded with -1; ``max_shared`` then
    forbids two chosen tasks with more classes in common. ``test_weights`` says how much each test
    task counts. With ``budget="samples"``, ``n`` counts samples: those of each task come from the
    TaskSet or from ``train_samples``, and tasks that no longer fit are passed over. ``penalty``,
    ``candidates`` and ``max_test`` are described in :class:`RuleOptions`.

    ``rule="auto"`` tries the rules where the outcome can be seen: it selects *for validation
    tasks*, given by their distances to the same training tasks, and asks ``judge``, which trains
    a learner on each list of tasks it is given and returns its scores on the validation tasks. The
    rule that beats random choice by more than the noise is then used for the test tasks; where none
    does, random choice. ``trial`` says how (:class:`TrialOptions`); what was tried is in
    ``settings["auto"]``. :func:`taskscape.studies.auto.select_auto` brings a judge along.
    """
    seed = check_seed(seed)
    if rule != AUTO:
        return _select_by(source, n, rule, seed=seed, test_weights=test_weights, **options)
    if validation is None or judge is None:
        raise DataError(
            "rule='auto' needs validation, tasks to try the rules for, and judge, which scores a "
            "learner trained on chosen tasks; taskscape.studies.auto.select_auto has one."
        )
    if validation.n_train != source.n_train:
        raise DataError(
            f"validation has distances to {validation.n_train} training tasks, the test tasks to "
            f"{source.n_train}; both must be to the same."
        )
    trial = trial or TrialOptions()
    rules = rules_to_try(trial, options.get("train_classes") is not None)
    m = trial.budget(n, options.get("budget", "tasks"))
    choice = choose_rule(
        lambda name, number: _select_by(validation, m, name, seed=number, **options),
        judge, rules=rules, trials=trial.trials, confidence=trial.confidence, seed=seed,
    )  # fmt: skip
    chosen = _select_by(source, n, choice.rule, seed=seed, test_weights=test_weights, **options)
    record = {**choice.to_dict(), "n": m, "n_validation": validation.n_test}
    return replace(chosen, settings={**chosen.settings, "auto": record})


def _select_by(
    source: DistanceSource,
    n: int,
    rule: str,
    *,
    seed: int,
    train_classes: Any = None,
    train_samples: object = None,
    test_weights: object = None,
    max_shared: int | None = None,
    budget: str = "tasks",
    penalty: float = 0.25,
    candidates: int | None = None,
    max_test: int = 2000,
) -> Selection:
    """Choose by one rule."""
    chosen_rule = find_rule(rule)
    classes = None if train_classes is None else read_classes(train_classes, source.n_train)
    if classes is None and (max_shared is not None or chosen_rule.needs_classes):
        why = "max_shared" if max_shared is not None else f"rule={rule!r}"
        raise DataError(f"{why} needs train_classes: a TaskSet, or class ids (tasks, way).")
    if max_shared is not None and max_shared < 0:
        raise DataError(f"max_shared={max_shared} must not be negative.")
    if penalty < 0:
        raise DataError(f"penalty={penalty} must not be negative.")
    costs = _read_costs(budget, train_classes, train_samples, source.n_train)
    if n < 1 or (budget == "tasks" and n > source.n_train):
        raise DataError(f"n={n} must lie between 1 and the {source.n_train} training tasks.")
    test_content, train_content = source.contents()
    if classes is not None:
        train_content = class_hashes(classes, train_content)
        keys = getattr(train_classes, "keys", None)
        if isinstance(keys, np.ndarray):
            train_content = subkeys(train_content, keys.view(np.int64))
    run = Run(
        source,
        tie_keys=_keys(train_content, seed),
        test_keys=_keys(test_content, seed),
        weights=_read_weights(test_weights, source.n_test),
        budget=n,
        costs=costs,
        classes=classes,
        max_shared=max_shared,
    )
    chosen_rule.choose(run, RuleOptions(penalty, candidates, max_test))
    if not run.chosen or (budget == "tasks" and len(run.chosen) < n):
        raise DataError(
            f"only {len(run.chosen)} of the {n} {budget} could be chosen by rule={rule!r} with "
            f"max_shared={max_shared}. Lower n, raise max_shared or candidates, or give more "
            "training tasks."
        )
    settings = {"n": n, "budget": budget, "seed": seed, "max_shared": max_shared}
    settings |= {"weighted": test_weights is not None, "n_test": source.n_test}
    settings |= {"n_train": source.n_train, "distance": type(source).__name__}
    if rule == "classes":
        settings |= {"penalty": penalty}
    if rule in ("classes", "facility"):
        settings |= {"candidates": candidates}
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


def _read_weights(weights: Any, n_test: int) -> Float[np.ndarray, "tests"]:
    if weights is None:
        return np.full(n_test, 1 / n_test)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n_test,) or not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(
            f"test_weights has shape {values.shape}; expected {n_test} numbers of at least 0."
        )
    if values.sum() <= 0:
        raise DataError("test_weights are all 0; at least one test task must count.")
    return values / values.sum()


def _read_costs(budget: str, tasks: Any, samples: Any, n_train: int) -> Int[np.ndarray, "trains"]:
    """What each training task takes from the budget."""
    if budget == "tasks":
        return np.ones(n_train, dtype=np.int64)
    if budget != "samples":
        raise DataError(f"budget={budget!r} is not known; use 'tasks' or 'samples'.")
    if samples is None and not hasattr(tasks, "n_shot"):
        raise DataError(
            "budget='samples' needs to know the samples of each task: pass train_samples, or a "
            "TaskSet as train_classes."
        )
    costs = _samples_of(tasks) if samples is None else np.asarray(samples)
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
