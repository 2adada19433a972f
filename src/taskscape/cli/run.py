"""``taskscape run``: the whole study in one command."""

import json
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.run_live import LiveStudy
from taskscape.errors import DataError
from taskscape.files import check_output
from taskscape.progress import heard_by
from taskscape.studies.pipeline import PRESETS, StudyConfig, preset, read_config, run_study
from taskscape.studies.result import StudyResult

__all__ = ["register", "run"]

EPILOG = (
    "Example:  taskscape run --preset quick --out look  ·  "
    "taskscape run --data features.npz --out mine  ·  "
    "taskscape run --config mine/study.toml --seed 1 --out again  ·  "
    "taskscape run --out out --resume"
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("run", epilog=EPILOG)(run)


def run(
    out: Annotated[Path, typer.Option(help="The folder for all results.")] = Path("out"),
    preset_name: Annotated[
        str | None,
        typer.Option("--preset", help="quick, default, or paper (the paper's sizes, for a GPU)."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A known name, or your own data; default: glyphs."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML; options given besides go before them.")
    ] = None,
    learners: Annotated[
        str | None, typer.Option(help="protonet, maml, abml, bmaml, vampire; joined by commas.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="How many training tasks to choose: 500, or 50,500.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same result.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Re-use the finished stages in the folder.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Make a study that is in the folder anew.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Fit, embed, compare, train learners, select tasks, forecast, and write a report.

    Ctrl-C keeps every finished stage; the same command with --resume goes on from there. A stage is
    made again only if its settings, the data, or a stage before it have changed.
    """
    given = {
        "--preset": preset_name,
        "--data": data,
        "--config": None if config is None else str(config),
        "--learners": learners,
        "--budget": budget,
        "--seed": None if seed is None else str(seed),
    }
    wanted = settings(preset_name, config, data, learners, budget, seed)
    words = [w for option, value in given.items() if value is not None for w in (option, value)]
    command = shlex.join(["taskscape", "run", *words, "--out", str(out)])
    if wanted.report.enabled:
        from taskscape.report import REPORT

        check_output(out / "report.html", REPORT)
    live = LiveStudy(wanted, quiet=as_json)
    try:
        with live:
            result = run_study(
                None,
                wanted,
                out,
                resume=resume,
                overwrite=overwrite,
                command=command,
                listener=live,
            )
            report = _report(result, out, live) if wanted.report.enabled else None
    except KeyboardInterrupt:
        _keep_going("interrupted", live, out, command)
        raise typer.Exit(130) from None
    except Exception:
        if live.finished:
            _keep_going("the study broke off", live, out, command)
        raise
    _tell(result, out, report, as_json)


def settings(
    preset_name: str | None,
    config: Path | None,
    data: str | None,
    learners: str | None,
    budget: str | None,
    seed: int | None,
) -> StudyConfig:
    """The settings of the preset, changed by the file, changed by the options."""
    if preset_name is not None and preset_name not in PRESETS:
        raise DataError(f"--preset {preset_name!r} is not known; choose from {', '.join(PRESETS)}.")
    base = None if preset_name is None else preset(preset_name)
    made = (base or preset("default")) if config is None else read_config(config, base)
    if data is not None:
        made = replace(made, data=data)
    if seed is not None:
        made = replace(made, seed=seed)
    if learners is not None:
        names = tuple(name.strip() for name in learners.split(","))
        made = replace(made, learners=replace(made.learners, names=names))
    if budget is not None:
        try:
            budgets = tuple(int(word) for word in budget.split(","))
        except ValueError:
            raise DataError(
                f"--budget {budget!r}: use a number such as 500, or several: 50,500."
            ) from None
        made = replace(made, selection=replace(made.selection, budgets=budgets))
    return made


def _report(result: StudyResult, out: Path, live: LiveStudy) -> Path:
    from taskscape.report import write_report

    live.begin("report")
    began = time.perf_counter()
    with heard_by(lambda what, done, total: live.advance(done / total if total else 0.0, what)):
        write_report(result, out / "report.html")
    live.end("report", time.perf_counter() - began, False)
    return out / "report.html"


def _keep_going(what: str, live: LiveStudy, out: Path, command: str) -> None:
    typer.echo(
        f"\n{what}; {live.finished} finished stages are kept in {out}. Go on with:\n"
        f"  {command} --resume",
        err=True,
    )


def _tell(result: StudyResult, out: Path, report: Path | None, as_json: bool) -> None:
    if as_json:
        told = {
            "out": str(out),
            "report": None if report is None else str(report),
            "findings": list(result.findings),
            "notes": list(result.notes),
        }
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    typer.echo("")
    for number, finding in enumerate(result.findings, start=1):
        typer.echo(f"{number}. {finding}\n")
    typer.echo(f"results: {out}")
    if report is not None:
        typer.echo(f"report:  {report}")
