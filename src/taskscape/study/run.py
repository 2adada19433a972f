"""The whole study, stage by stage, into one folder, and back from it."""

import os
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

from taskscape import __version__
from taskscape.arguments import public
from taskscape.errors import DataError
from taskscape.forecast import ForecastEvaluation, Forecasts
from taskscape.io.arrays import CHECKPOINT
from taskscape.io.files import as_path, atomic_write, check_output, json_with, locked
from taskscape.io.values import damage_named, read_json, versions_and_hardware, write_json
from taskscape.meta import NETWORKS, label_of
from taskscape.pools import ClassPool, load_pool
from taskscape.select.trials import Trial, gains_of
from taskscape.study.choosing import chosen_stage, open_targets, selection_stage, targets_stage
from taskscape.study.config import StudyConfig, config_from, write_config
from taskscape.study.learn import diagram_stage, forecast_stage, learner_stage
from taskscape.study.plan import Plan, check_config, make_plan
from taskscape.study.represent import (
    data_stage,
    distances_stage,
    embed_stage,
    fit_stage,
    health_stage,
)
from taskscape.study.result import StudyResult
from taskscape.study.stages import Listener, StageRunner, read_note
from taskscape.targets import Target
from taskscape.themes.prepare import prepared_pool

_FILES = ("study.toml", "study.json", "results.json", "report.html", "fit.checkpoint")
_RESULTS = json_with("the results of a study", "findings", "notes", "retrieval", "gains")
_ABOUT = json_with("an account of a study", "command", "seed", "settings", "timings", "versions")


@public
def run_study(
    pool: ClassPool | None,
    config: StudyConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: str = "",
    listener: Listener | None = None,
) -> StudyResult:
    """Fit, embed, compare, train, correlate, select and forecast; all results go into ``out``.

    Without a pool, what ``config.data`` names is opened; with one, its name takes that place. What
    ``config.source`` asks for is done to both.
    Everything is checked before work starts. Every stage writes a folder of its own atomically;
    ``resume`` takes from there what was made from the same inputs (data, settings, the stages
    before, version) and makes the rest. Without it, ``out`` must not hold a study, unless
    ``overwrite`` says to make all of it again. Only one run at a time works in a folder. The HTML
    report, which `taskscape run` adds, is written from the result by
    :func:`taskscape.report.write_report`.
    """
    check_config(config)
    opened = load_pool(config.data if pool is None else pool, **config.source.options())
    if pool is not None:
        config = replace(config, data=pool.name)
    plan, targets = open_targets(make_plan(opened, config))
    folder = as_path(out)
    listener = listener or Listener()
    stages = stage_list(plan)
    if resume and overwrite:
        raise DataError("--resume keeps finished stages and --overwrite none; use one of them.")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; --out needs a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"another run works in {folder}. Wait until it has ended, or use another --out."
    with locked(folder / ".lock", busy):
        _check_folder(folder, [name for name, _ in stages], resume or overwrite)
        write_config(folder / "study.toml", plan.config, config)
        listener.plan(stages, plan.notes)
        runner = StageRunner(folder, plan.pool.fingerprint, resume, listener)
        about = versions_and_hardware()
        about |= {"command": command, "versions": {"taskscape": __version__, **about["versions"]}}
        result = _run(plan, runner, about, targets)
        _write_results(folder, result)
    return result


def stage_list(plan: Plan) -> list[tuple[str, str]]:
    """The stages of a study, by name and in words, in order."""
    learners = [(n, label_of(n)) for n in plan.config.learners.names]
    stages = [
        ("data", "describe the data and its classes"),
        ("fit", "fit themes"),
        ("embed", "embed tasks"),
        ("health", "check that distances measure"),
        ("distances", "measure distances"),
        *((f"learners/{n}", f"train and test {shown}") for n, shown in learners),
        ("diagram", "draw the correlation diagram"),
    ]
    if plan.config.selection.rules:
        stages.append(("selection/chosen", "choose training tasks"))
        stages += [(f"selection/{n}", f"train {shown} on chosen tasks") for n, shown in learners]
    if plan.config.targets.names:
        stages.append(("targets", "find what to train on for targets"))
    if plan.config.forecast.enabled and plan.val is not None:
        stages.append(("forecast", "forecast accuracy"))
    return stages


def _run(
    plan: Plan, runner: StageRunner, about: Mapping[str, Any], targets: Sequence[Target] = ()
) -> StudyResult:
    config = plan.config
    runner.run(data_stage(plan))
    model = runner.run(fit_stage(plan, runner.out))
    embedded = runner.run(embed_stage(plan, model))
    result = runner.run(health_stage(plan, model))
    prepared = features = plan.pool  # what learners take; where all is read, nothing is looked at
    if not runner.read_only:
        prepared = prepared_pool(plan.pool, model.preparation_, unit_length=True)
    if not NETWORKS[config.learners.network].images:
        features = prepared
    distances = runner.run(distances_stage(plan, model, embedded, prepared))
    names = config.learners.names
    accuracies = runner.run_together([learner_stage(plan, features, name) for name in names])
    diagram = runner.run(diagram_stage(plan, distances, accuracies))
    trials: list[Trial] = []
    if config.selection.rules:
        chosen = runner.run(chosen_stage(plan, model, embedded))
        stages = [selection_stage(plan, features, name, chosen) for name in names]
        trials = [trial for own in runner.run_together(stages) for trial in own]
    asked = config.targets.names
    advice = runner.run(targets_stage(plan, model, targets)) if asked else ()
    forecasts: list[tuple[Forecasts, ForecastEvaluation]] = []
    if config.forecast.enabled and plan.val is not None:
        forecasts = runner.run(forecast_stage(plan, model, embedded, accuracies))
    return StudyResult(
        pool=plan.pool,
        model=model,
        train=embedded["train"],
        test=embedded["test"],
        **distances,
        retrieval=result,
        accuracy={a.learner: a.test for a in accuracies},
        diagram=diagram,
        selection=tuple(trials),
        forecasts={expected.learner: expected for expected, _ in forecasts},
        evaluations={evaluation.learner: evaluation for _, evaluation in forecasts},
        settings=config.to_dict(),
        seed=config.seed,
        timings={name: note["seconds"] for name, note in runner.notes.items()},
        **about,
        gains=gains_of(trials),
        targets=advice,
        notes=plan.notes,
        warnings={
            n: tuple(made["warnings"]) for n, made in runner.notes.items() if made["warnings"]
        },
    )


def load_study(folder: str | os.PathLike[str], pool: ClassPool | None = None) -> StudyResult:
    """Read back what :func:`run_study` wrote into a folder; nothing is computed again.

    The data are opened by the name in the settings, as seen from here or else from the folder where
    the study was run, unless ``pool`` is given: a study of a pool in memory needs it. It must be
    the data that the study was made from.
    """
    folder = as_path(folder)
    for name in ("study.json", "results.json"):
        if not (folder / name).is_file():
            raise DataError(
                f"{folder} holds no finished study: it has no {name}. Give the folder that "
                "taskscape run wrote (--out), or finish the study there with --resume."
            )
    with damage_named(folder / "study.json", _ABOUT.name):
        about = read_json(folder / "study.json")
        config = config_from(about["settings"], str(folder / "study.json"))
        run_in = Path(about.get("folder", "."))
        about = {k: about[k] for k in ("versions", "hardware", "command")}
    with damage_named(folder / "results.json", _RESULTS.name):
        written = read_json(folder / "results.json")
        known, notes = written["data"]["fingerprint"], tuple(written["notes"])
    check_config(config)
    data = config.data if pool is None else pool
    try:
        opened = load_pool(data, **config.source.options())
    except DataError:
        if not run_in.is_dir():
            raise
        with chdir(run_in):  # where relative paths of data and of splits were found
            opened = load_pool(data, **config.source.options())
    plan = make_plan(opened, config)
    if plan.pool.fingerprint != known:
        raise DataError(
            f"{plan.pool.name!r} is not the data that the study in {folder} was made from; those "
            f"had the fingerprint {known}. Give them as pool."
        )
    return _run(replace(plan, notes=notes), StageRunner(folder, known, read_only=True), about)


def _check_folder(folder: Path, stages: list[str], again: bool) -> None:
    """Never write over what is not a study, nor over a study unless asked to."""
    there = [name for name in (*_FILES, *stages) if (folder / name).exists()]
    if there and not again:
        raise DataError(
            f"{folder} already has {there[0]}. Use --resume to resume the study there, which "
            "re-uses its finished stages; --overwrite to make it again; or another --out."
        )
    for name in stages:
        if (folder / name).exists() and read_note(folder / name, name) is None:
            raise DataError(
                f"{folder / name} was not written by a study; writing there would delete it. Use "
                "another --out."
            )
    check_output(folder / "results.json", _RESULTS)
    check_output(folder / "study.json", _ABOUT)
    check_output(folder / "fit.checkpoint", CHECKPOINT)


def _write_results(folder: Path, result: StudyResult) -> None:
    """All findings in one file, and beside it what made them."""
    with atomic_write(folder / "results.json", _RESULTS) as file:
        write_json(file, result.to_dict())
    about = {k: getattr(result, k) for k in ("command", "seed", "settings", "timings", "versions")}
    about |= {"hardware": result.hardware, "data": repr(result.pool), "folder": str(Path.cwd())}
    with atomic_write(folder / "study.json", _ABOUT) as file:
        write_json(file, about)
