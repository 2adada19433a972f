"""``taskscape run`` and ``report``: a whole study in one command, and its report again."""

import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from taskscape.cli import options as opt
from taskscape.io.files import check_output
from taskscape.study.config import PRESETS, StudyConfig, config_from, preset, read_config


@opt.command(
    "run --preset quick --out look",
    "run --data features.npz --out mine",
    "run --data images/ --set source.image_size=32 --n-way 3 --out mine",
    "run --data glyphs --target Hexagrams --target my_symbols/ --out targets",
    "run --config mine/study.toml --seed 1 --out again",
    "run --out out --resume",
)
@opt.takes_settings(StudyConfig)
def run(
    out: Annotated[Path, Option(help="The folder for all results.")] = Path("out"),
    preset_name: Annotated[
        str | None, Option("--preset", help=f"{', '.join(PRESETS)} (paper: its sizes, for a GPU).")
    ] = None,
    config: Annotated[
        Path | None, Option(help="Settings in TOML; options take precedence over them.")
    ] = None,
    set_values: opt.SetValues = None,
    resume: Annotated[bool, Option("--resume", help="Re-use finished stages.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Make all stages again.")] = False,
    engine: opt.Engine = "local",
    as_json: opt.AsJson = False,
    **flags: Any,
) -> None:
    """Fit, embed, compare, train learners, select tasks, forecast, and write a report.

    Ctrl-C keeps every finished stage; the same command with --resume resumes from there. A stage is
    made again only if its settings, the data, or a stage before it have changed.
    """
    from taskscape.cli.display import StudyDisplay
    from taskscape.distributed import use_engine
    from taskscape.report import REPORT, write_report
    from taskscape.study import run_study
    from taskscape.study.stages import Steps

    values, typed = opt.given_settings(StudyConfig, flags, set_values)
    chosen = settings(preset_name, config, values)
    rest = {"--preset": preset_name, "--config": config, "--out": out}
    if engine != "local":
        rest["--engine"] = engine
    words = [str(w) for option in rest.items() if option[1] is not None for w in option]
    command = shlex.join(["taskscape", "run", *typed, *words])
    page = out / "report.html"
    check_output(page, REPORT)
    display = StudyDisplay(quiet=as_json)
    try:
        with display, use_engine(engine):
            result = run_study(
                None, chosen, out, resume=resume, overwrite=overwrite, command=command,
                listener=display,
            )  # fmt: skip
            began = time.perf_counter()
            display.begin("report")
            with Steps(display).step(1.0, ""):
                write_report(result, page)
            display.end("report", time.perf_counter() - began, False)
    except (KeyboardInterrupt, Exception) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        if interrupted or display.took:
            what = "interrupted" if interrupted else "the study broke off"
            kept = f"{len(display.took)} finished stages are kept in {out}"
            typer.echo(f"\n{what}; {kept}. Resume with:\n  {command} --resume", err=True)
        if interrupted:
            raise typer.Exit(130) from None
        raise
    _print_findings(result, out, page, as_json)


def _print_findings(result: Any, out: Path, page: Path, as_json: bool) -> None:
    outcome = {
        "out": str(out),
        "report": str(page),
        "findings": [asdict(finding) for finding in result.findings],
        "notes": result.notes,
        "remarks": result.remarks(),
    }
    lines = [f"\n{number}. {found}" for number, found in enumerate(result.findings, start=1)]
    if remarks := [f"! {remark}" for remark in result.remarks()]:
        lines += ["\nRead these remarks first:", *remarks]
    lines += [f"\nresults: {out}", f"report:  {page}"]
    opt.print_result(as_json, outcome, "\n".join(lines))


def settings(name: str | None, config: Path | None, values: Mapping[str, Any]) -> StudyConfig:
    """The settings of the preset, changed by the file, changed by what the options give."""
    base = None if name is None else preset(name)
    study = (base or preset("default")) if config is None else read_config(config, base)
    return config_from(values, base=study)


@opt.command("report out", "report out --out page.html")
def report(
    folder: Annotated[Path, Argument(help="The folder of a study, by `taskscape run`.")],
    out: Annotated[Path | None, Option(help="Default: FOLDER/report.html.")] = None,
) -> None:
    """Write the report of a finished study again, from the results in its folder."""
    from taskscape.report import REPORT, write_report
    from taskscape.study import load_study

    page = out or folder / "report.html"
    check_output(page, REPORT)
    write_report(load_study(folder), page)
    typer.echo(f"report: {page}")
