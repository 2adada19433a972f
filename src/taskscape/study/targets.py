"""The stage about targets: which sources are like each, and which tasks to train on for it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from taskscape.meta import label_of
from taskscape.study.plan import Plan, make_plan
from taskscape.study.stages import Stage, Steps
from taskscape.targets import Advice, AdvisorSettings, Sources, Target, advise_on, find_target
from taskscape.targets.advisor import draw_candidates
from taskscape.themes.estimator import TaskThemes


def _settings(plan: Plan) -> AdvisorSettings:
    asked, config = plan.config.targets, plan.config
    return AdvisorSettings(
        candidates=asked.candidates, n_way=config.tasks.n_way, n_shot=asked.n_shot,
        n_query=asked.n_query, updates=asked.updates, seed=config.seed,
        network=config.learners.network,
    )  # fmt: skip


def open_targets(plan: Plan) -> tuple[Plan, tuple[Target, ...]]:
    """The targets that the settings name, and the plan with what they are known by."""
    asked, settings = plan.config.targets, _settings(plan)
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
            sources = Sources.of(plan.pool, _settings(plan), model=model)
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
