"""The stages about what to train on: what rules choose, what that is worth, advice on targets."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from taskscape.arguments import MOST_FOR_JAX
from taskscape.io.values import from_plain, read_json, write_json
from taskscape.meta import TrainConfig, label_of
from taskscape.pools import ClassPool
from taskscape.select import select
from taskscape.select.known import RANDOM
from taskscape.select.trials import Trial, gains_of, train_and_test, without_classes
from taskscape.similarity import DistanceSource, distances_between
from taskscape.similarity.known import find_similarity
from taskscape.study.plan import Plan, make_plan, read_rule
from taskscape.study.represent import Embedded, distances_by_samples
from taskscape.study.stages import Stage, Steps
from taskscape.targets import Advice, AdvisorSettings, Sources, Target, advise_on, find_target
from taskscape.targets.advisor import draw_candidates
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.task_model import without_advice

Chosen: TypeAlias = list[dict[str, Any]]
"""Of each training: its rule, budget and trial, and its tasks, as rows of the training tasks."""


def chosen_stage(plan: Plan, model: TaskThemes, embedded: Embedded) -> Stage[Chosen]:
    """What every rule chooses, for each budget and trial; a smaller budget gets the first ones.

    A test task is known by its labelled samples only: as many as learners will have.
    """
    setting = plan.config.selection

    def make(folder: Path, steps: Steps) -> None:
        candidates = plan.train[: setting.candidates]
        turns = _turns(plan)
        measures = dict.fromkeys(measure for *_, measure in turns)
        distances = {}
        for measure in measures:
            with steps.step(0.8 / len(measures), f"distances by {measure}"):
                distances[measure] = _distances(plan, measure, model, embedded)
        choices: Chosen = []
        with steps.step(0.2, "choosing tasks"):
            for name, trial, rule, measure in turns:
                chosen = select(
                    None, None, max(setting.budgets), rule, similarity=distances[measure],
                    seed=1000 * plan.config.seed + trial, train_classes=candidates,
                ).indices  # fmt: skip
                choices += [
                    {"rule": name, "budget": budget, "trial": trial, "tasks": chosen[:budget]}
                    for budget in setting.budgets
                ]
        write_json(folder / "chosen.json", choices)

    other = ("selection.updates", "selection.episodes", "distances.k")
    settings = plan.settings("selection", "similarity", "distances", but=other)
    return Stage(
        "selection/chosen", settings, make, lambda f: read_json(f / "chosen.json"), ("embed",)
    )


def _turns(plan: Plan) -> list[tuple[str, int, str, str]]:
    """Every choice to make: its name, its trial, the rule and the similarity measure."""
    setting, own = plan.config.selection, plan.config.similarity
    turns = {RANDOM: setting.trials} | dict.fromkeys(setting.rules, setting.repeats)
    read = {RANDOM: (RANDOM, own)} | {text: read_rule(text, own) for text in setting.rules}
    return [(name, trial, *read[name]) for name, n in turns.items() for trial in range(n)]


def _distances(plan: Plan, measure: str, model: TaskThemes, embedded: Embedded) -> DistanceSource:
    """From the test tasks, by as many labelled samples as learners will have, to the candidates."""
    candidates = plan.train[: plan.config.selection.candidates]
    test = plan.episodes(plan.test, plan.pool, "selection")
    if find_similarity(measure).factor is not None:
        known = embedded["train"][: len(candidates)]
        with without_advice():  # of the same classes, embedding has said it
            return distances_between(model.embed(test), known, measure)
    train = plan.episodes(candidates, plan.pool, "selection")
    return distances_by_samples(plan, measure, test, train)


def selection_stage(
    plan: Plan, features: ClassPool, name: str, chosen: Chosen
) -> Stage[tuple[Trial, ...]]:
    """Train a learner on what each rule chose, and test it on all test tasks."""

    def make(folder: Path, steps: Steps) -> None:
        setting, learners, seed = plan.config.selection, plan.config.learners, plan.config.seed
        learner, training = learners.learner(name)
        candidates = plan.episodes(plan.train[: setting.candidates], features, "selection")
        with steps.step(1.0, "training on chosen tasks"):
            (evaluations,) = train_and_test(
                learner,
                learners.network_for(name, features),
                [candidates[np.array(c["tasks"])] for c in chosen],
                [plan.episodes(plan.test, features, "selection")],
                TrainConfig(setting.updates, learners.batch_size, **training),
                seeds=[(1000 * seed + c["trial"]) % (MOST_FOR_JAX + 1) for c in chosen],
                seed=seed,
                episodes=setting.episodes,
            )
        trials = []
        for c, evaluation in zip(chosen, evaluations, strict=True):
            own = evaluation.accuracy.astype(np.float64)
            without = without_classes(own, plan.test.classes)
            cell = label_of(name), c["rule"], c["budget"], c["trial"]
            trials.append(Trial(*cell, float(own.mean()), without))
        write_json(folder / "selection.json", {"trials": trials, "gains": gains_of(trials)})

    def load(folder: Path) -> tuple[Trial, ...]:
        stored = read_json(folder / "selection.json")["trials"]
        return tuple(from_plain(Trial, trial) for trial in stored)

    random = ("learners.train_tasks", "learners.epochs")
    settings = plan.settings("selection") | plan.learner_settings(name, but=random)
    return Stage(f"selection/{name}", settings, make, load, ("selection/chosen",))


# -- targets ------------------------------------------------------------------------------------


def _advisor(plan: Plan) -> AdvisorSettings:
    asked, config = plan.config.targets, plan.config
    return AdvisorSettings(
        candidates=asked.candidates, n_way=config.tasks.n_way, n_shot=asked.n_shot,
        n_query=asked.n_query, updates=asked.updates, seed=config.seed,
        network=config.learners.network,
    )  # fmt: skip


def open_targets(plan: Plan) -> tuple[Plan, tuple[Target, ...]]:
    """The targets that the settings name, and the plan with what they are known by."""
    asked, settings = plan.config.targets, _advisor(plan)
    if not asked.names:
        return plan, ()
    sizes, training = settings.target_sizes(), plan.pool.split("train")
    targets = [find_target(name, plan.pool, **sizes) for name in asked.names]
    names = [target.name for target in targets]
    for i, target in enumerate(targets):
        if names.count(target.name) > 1:  # such as two folders: each by how it was asked for
            targets[i] = replace(target, name=asked.names[i])
    own = {training.class_names[c] for t in targets for c in t.classes_in(training)}
    known = replace(
        asked, fingerprints=tuple(t.fingerprint for t in targets),
        kept_out=tuple(sorted({*asked.kept_out, *own})),
    )  # fmt: skip
    after = make_plan(plan.pool, replace(plan.config, targets=known))
    draw_candidates(after.pool, settings)  # an error now, and not after the stages before
    notes = dict.fromkeys((*plan.notes, *after.notes))
    return replace(after, notes=tuple(notes)), tuple(targets)


def targets_stage(
    plan: Plan, model: TaskThemes, targets: Sequence[Target]
) -> Stage[tuple[Advice, ...]]:
    """Advice for every target and learner, in a folder each."""
    asked, names = plan.config.targets, plan.config.targets.learners

    def make(folder: Path, steps: Steps) -> None:
        with steps.step(0.1, "drawing candidates"):
            sources = Sources.of(plan.pool, _advisor(plan), model=model)
        share = 0.9 / (len(targets) * len(names))
        for t, target in enumerate(targets):
            outlook = sources.look_at(target)
            for name in names:
                with steps.step(share, f"{label_of(name)} for {target.name}"):
                    advice = advise_on(outlook, asked.budget, learner=name, trials=asked.trials)
                advice.save(folder / f"{t + 1}-{name}")

    def load(folder: Path) -> tuple[Advice, ...]:
        pool = plan.pool.split("train")
        return tuple(
            Advice.load(folder / f"{t + 1}-{name}", pool)
            for t in range(len(asked.names))
            for name in names
        )

    settings = plan.settings("targets", "learners", but=("learners.names", "learners.settings"))
    return Stage("targets", settings, make, load, ("fit",))
