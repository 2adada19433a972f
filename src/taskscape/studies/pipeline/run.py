"""``run_study``: the whole study, stage by stage, into one folder."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from taskscape import __version__
from taskscape.errors import DataError
from taskscape.files import check_output, json_with, written_in_one_piece
from taskscape.meta import label_of
from taskscape.pools import ClassPool, load_pool
from taskscape.storage import CHECKPOINT, write_json
from taskscape.studies.folder_lock import only_run_in
from taskscape.studies.ledger import surroundings
from taskscape.studies.pipeline.checks import check_config
from taskscape.studies.pipeline.choosing import Outcome, chosen_stage, selection_stage
from taskscape.studies.pipeline.config import StudyConfig
from taskscape.studies.pipeline.distances import distances_stage
from taskscape.studies.pipeline.findings import find
from taskscape.studies.pipeline.foresee import Foreseen, forecast_stage
from taskscape.studies.pipeline.learn import Accuracy, diagram_stage, learner_stage
from taskscape.studies.pipeline.plan import Plan, make_plan, prepared_pool
from taskscape.studies.pipeline.reading import read_config, write_config
from taskscape.studies.pipeline.represent import (
    data_stage,
    embed_stage,
    fit_stage,
    health_stage,
)
from taskscape.studies.pipeline.stages import Keeper, Silent, Watch, read_note
from taskscape.studies.result import StudyResult

__all__ = ["open_study", "run_study"]

_FILES = ("study.toml", "study.json", "results.json", "report.html", "fit.checkpoint")
_RESULTS = json_with("the results of a study", "findings", "notes", "health", "gains")
_ABOUT = json_with("an account of a study", "command", "seed", "settings", "timings", "versions")


def run_study(
    pool: ClassPool | None,
    config: StudyConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: str = "",
    watch: Watch | None = None,
) -> StudyResult:
    """Fit, embed, compare, train, correlate, select and forecast; all results go into ``out``.

    Without a pool, what ``config.data`` names is opened; with one, its name takes that place.
    Everything is checked before work starts. Every stage writes a folder of its own in one piece;
    ``resume`` takes from there what was made from the same inputs (data, settings, the stages
    before, version) and makes the rest. Without it, ``out`` must not hold a study, unless
    ``overwrite`` says to make all of it anew. Only one run at a time works in a folder. The HTML
    report is written from the result, by :func:`taskscape.report.write_report`.
    """
    check_config(config)
    config = replace(config, seed=int(config.seed))
    if pool is None:
        pool = load_pool(config.data)
    else:
        config = replace(config, data=pool.name)
    plan, folder = make_plan(pool, config), Path(out)
    watch = watch or Silent()
    stages = stage_list(plan)
    check = partial(_check_folder, folder, [name for name, _ in stages], resume, overwrite)
    check()
    folder.mkdir(parents=True, exist_ok=True)
    with only_run_in(folder):
        check()  # another run may have ended there in between
        write_config(folder / "study.toml", plan.config, config)
        watch.plan(stages, plan.notes)
        identity = f"{plan.pool.fingerprint} {__version__}"
        result = _run(plan, Keeper(folder, identity, resume, watch), folder, command)
        _write_results(folder, result)
    return result


def open_study(folder: str | os.PathLike[str]) -> StudyResult:
    """The result of a finished study, read back from its folder; nothing is made or written."""
    out = Path(folder)
    try:
        about = json.loads((out / "study.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(
            f"{out} holds no finished study: it has no study.json that can be read. Finish the "
            f"study with: taskscape run --config {out / 'study.toml'} --out {out} --resume"
        ) from None
    config = read_config(out / "study.toml")
    plan = make_plan(load_pool(config.data), config)
    identity = f"{plan.pool.fingerprint} {__version__}"
    keeper = Keeper(out, identity, resume=True, watch=Silent(), only_finished=True)
    result = _run(plan, keeper, out, about["command"])
    return replace(result, versions=about["versions"], hardware=about["hardware"])


def stage_list(plan: Plan) -> list[tuple[str, str]]:
    """The stages of a study, by name and in words, in order."""
    learners = [(n, label_of(n)) for n in plan.config.learners.names]
    stages = [
        ("data", "look at the data"),
        ("fit", "fit task-themes"),
        ("embed", "embed tasks"),
        ("health", "check the representation"),
        ("distances", "measure distances"),
        *((f"learners/{n}", f"train and test {shown}") for n, shown in learners),
        ("diagram", "draw the correlation diagram"),
    ]
    if plan.config.selection.rules:
        stages.append(("selection/chosen", "choose training tasks"))
        stages += [(f"selection/{n}", f"train {shown} on chosen tasks") for n, shown in learners]
    if plan.config.forecast.enabled and plan.val is not None:
        stages.append(("forecast", "forecast accuracy"))
    return stages


def _run(plan: Plan, keeper: Keeper, folder: Path, command: str) -> StudyResult:
    config = plan.config
    keeper.run(data_stage(plan))
    model = keeper.run(fit_stage(plan, folder))
    embedded = keeper.run(embed_stage(plan, model))
    warned = keeper.warnings["embed"]
    health = keeper.run(health_stage(model, embedded, warned))
    prepared = prepared_pool(plan.pool, model)
    distances = keeper.run(distances_stage(plan, embedded, prepared))
    features = plan.pool if config.learners.network == "conv4" else prepared
    names = config.learners.names
    accuracies: list[Accuracy] = [keeper.run(learner_stage(plan, features, n)) for n in names]
    diagram = keeper.run(diagram_stage(plan, distances, accuracies))
    outcomes: list[Outcome] = []
    if config.selection.rules:
        chosen = keeper.run(chosen_stage(plan, model, embedded))
        outcomes = [keeper.run(selection_stage(plan, features, n, chosen)) for n in names]
    foreseen: list[Foreseen] = []
    if config.forecast.enabled and plan.val is not None:
        foreseen = keeper.run(forecast_stage(plan, model, embedded, accuracies))
    judgements = {f.judgement.learner: f.judgement for f in foreseen}
    gains = tuple(g for outcome in outcomes for g in outcome.gains)
    about = surroundings()
    return StudyResult(
        pool=plan.pool,
        model=model,
        train=embedded.train,
        test=embedded.test,
        distance=distances.distance,
        nearest=distances.nearest,
        nearest_distance=distances.nearest_distance,
        difficulty=distances.difficulty,
        accuracy={a.learner: a.test for a in accuracies},
        diagram=diagram,
        selection=tuple(t for outcome in outcomes for t in outcome.trials),
        forecasts={f.forecasts.learner: f.forecasts for f in foreseen},
        judgements=judgements,
        findings=find(distances.resemblance, health, diagram, gains, judgements),
        settings=config.to_dict(),
        seed=config.seed,
        timings=dict(keeper.timings),
        versions={"taskscape": __version__, **about["versions"]},
        hardware=about["hardware"],
        command=command,
        resemblance=distances.resemblance,
        gains=gains,
        notes=plan.notes,
        warnings={stage: tuple(said) for stage, said in keeper.warnings.items() if said},
    )


def _check_folder(folder: Path, stages: list[str], resume: bool, overwrite: bool) -> None:
    """Never write over what is not a study, nor over a study without being told to."""
    if resume and overwrite:
        raise DataError("--resume keeps finished stages and --overwrite none; use one of them.")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; --out needs a folder.")
    there = [name for name in (*_FILES, *stages) if (folder / name).exists()]
    if there and not (resume or overwrite):
        raise DataError(
            f"{folder} already has {there[0]}. Use --resume to go on with the study there, which "
            "re-uses its finished stages; --overwrite to make it anew; or another --out."
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
    with written_in_one_piece(folder / "results.json", _RESULTS) as made:
        write_json(made, results_of(result))
    about = {k: getattr(result, k) for k in ("command", "seed", "settings", "timings", "versions")}
    about |= {"hardware": result.hardware, "data": repr(result.pool)}
    with written_in_one_piece(folder / "study.json", _ABOUT) as made:
        write_json(made, about)


def results_of(result: StudyResult) -> dict[str, Any]:
    """The main numbers of a study as plain values: the same for the same inputs."""
    likeness: Mapping[str, Any] | None = None
    if result.resemblance is not None:
        kept = ("answer", "summary", "median_percentile", "beyond_95", "measure", "folds")
        likeness = {k: v for k, v in result.resemblance.to_dict().items() if k in kept}
    return {
        "findings": result.findings,
        "notes": result.notes,
        "warnings": result.warnings,
        "data": {"name": result.pool.name, "fingerprint": result.pool.fingerprint},
        "health": result.model.health_.to_dict(),
        "resemblance": likeness,
        "accuracy": {name: float(a.mean()) for name, a in result.accuracy.items()},
        "diagram": None if result.diagram is None else result.diagram.to_dict(),
        "gains": [asdict(g) for g in result.gains],
        "forecasts": {name: j.to_dict() for name, j in result.judgements.items()},
    }
