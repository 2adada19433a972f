"""``taskscape run`` and ``report``: a whole study in one command, and its report again."""

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from taskscape.cli import options as opt
from taskscape.errors import DataError
from taskscape.io.files import check_output
from taskscape.meta.learners import LEARNERS
from taskscape.study.config import PRESETS, StudyConfig, config_from, preset, read_config

if TYPE_CHECKING:
    import taskscape.cli.display
    import taskscape.study


@opt.command(
    "run --preset quick --out look",
    "run --data features.npz --out mine",
    "run --data images/ --image-size 32 --min-samples 20 --n-way 3 --out mine",
    "run --data glyphs --target Hexagrams --target my_symbols/ --out targets",
    "run --config mine/study.toml --seed 1 --out again",
    "run --out out --resume",
)
def run(
    out: Annotated[Path, Option(help="The folder for all results.")] = Path("out"),
    preset_name: Annotated[
        str | None, Option("--preset", help=f"{', '.join(PRESETS)} (paper: its sizes, for a GPU).")
    ] = None,
    data: Annotated[
        list[str] | None,
        Option(help="A known name, or your own data; may be repeated; default: letters."),
    ] = None,
    config: Annotated[
        Path | None, Option(help="Settings in TOML; options given besides go before them.")
    ] = None,
    learners: Annotated[
        str | None, Option(help=f"{', '.join(LEARNERS)}; joined by commas.")
    ] = None,
    budget: Annotated[
        str | None, Option(help="How many training tasks to choose: 500, or 50,500.")
    ] = None,
    target: Annotated[
        list[str] | None,
        Option(
            help="Say what to train on for this: a group of the data, or a folder of your own with "
            "a few labelled samples a class; may be repeated."
        ),
    ] = None,
    n_way: Annotated[int | None, Option(help="Classes of a task.")] = None,
    n_shot: Annotated[
        int | None, Option(help="Labelled samples of each class that learners get.")
    ] = None,
    image_size: opt.ImageSize = None,
    min_samples: opt.MinSamples = None,
    skip_damaged: opt.SkipDamaged = False,
    split_file: opt.SplitFile = None,
    group_file: opt.GroupFile = None,
    encoder: opt.Encoder = None,
    within_group: Annotated[
        bool, Option("--within-group", help="All classes of a task from one group.")
    ] = False,
    seed: Annotated[int | None, Option(min=0, help="The same seed gives the same result.")] = None,
    resume: Annotated[
        bool, Option("--resume", help="Re-use the finished stages in the folder.")
    ] = False,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Make a study that is in the folder again.")
    ] = False,
    engine: opt.Engine = "local",
    as_json: opt.AsJson = False,
) -> None:
    """Fit, embed, compare, train learners, select tasks, forecast, and write a report.

    Ctrl-C keeps every finished stage; the same command with --resume goes on from there. A stage is
    made again only if its settings, the data, or a stage before it have changed.
    """
    from taskscape.cli.display import StudyDisplay
    from taskscape.distributed import use_engine
    from taskscape.report import REPORT
    from taskscape.study import run_study

    given = {
        "--data": opt.one_source(data),
        "--learners": learners,
        "--budget": budget,
        "--n-way": n_way,
        "--n-shot": n_shot,
        "--image-size": image_size,
        "--min-samples": min_samples,
        "--split-file": None if split_file is None else str(split_file),
        "--group-file": None if group_file is None else str(group_file),
        "--encoder": encoder,
        "--within-group": within_group or None,
        "--seed": seed,
        "--skip-damaged": skip_damaged or None,
        "--target": target or None,
    }
    chosen = settings(preset_name, config, given)
    rest = {"--preset": preset_name, "--config": config}
    words = _as_typed(rest | given | {"--engine": None if engine == "local" else engine})
    command = shlex.join(["taskscape", "run", *words, "--out", str(out)])
    if chosen.report.enabled:
        check_output(out / "report.html", REPORT)
    display = StudyDisplay(chosen, quiet=as_json)
    try:
        with display, use_engine(engine):
            result = run_study(
                None, chosen, out, resume=resume, overwrite=overwrite, command=command,
                listener=display,
            )  # fmt: skip
            page = _write_page(result, out, display) if chosen.report.enabled else None
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


def _write_page(
    result: "taskscape.study.StudyResult", out: Path, display: "taskscape.cli.display.StudyDisplay"
) -> Path:
    """The last stage: the report."""
    from taskscape.progress import heard_by
    from taskscape.report import write_report

    display.begin("report")
    began = time.perf_counter()
    with heard_by(lambda what, done, total: display.advance(done / total if total else 0.0, what)):
        write_report(result, out / "report.html")
    display.end("report", time.perf_counter() - began, False)
    return out / "report.html"


def _print_findings(
    result: "taskscape.study.StudyResult", out: Path, page: Path | None, as_json: bool
) -> None:
    if as_json:
        outcome = {
            "out": str(out),
            "report": None if page is None else str(page),
            "findings": [asdict(finding) for finding in result.findings],
            "notes": list(result.notes),
            "remarks": list(result.remarks()),
        }
        typer.echo(json.dumps(outcome, indent=2))
        return
    typer.echo("")
    for number, finding in enumerate(result.findings, start=1):
        typer.echo(f"{number}. {finding}\n")
    if remarks := [f"! {remark}\n" for remark in result.remarks()]:
        typer.echo(f"Read these remarks first:\n{''.join(remarks)}")
    typer.echo(f"results: {out}")
    if page is not None:
        typer.echo(f"report:  {page}")


_CHANGES: Mapping[str, tuple[str, ...]] = {
    "--data": ("data",),
    "--learners": ("learners.names",),
    "--budget": ("selection.budgets",),
    "--n-way": ("tasks.n_way",),
    "--n-shot": ("evaluate.n_shot", "selection.n_shot", "targets.n_shot"),
    "--image-size": ("source.image_size",),
    "--min-samples": ("source.min_samples",),
    "--split-file": ("source.split_file",),
    "--group-file": ("source.group_file",),
    "--encoder": ("source.encoder",),
    "--within-group": ("tasks.within_group",),
    "--seed": ("seed",),
    "--skip-damaged": ("source.skip_damaged",),
    "--target": ("targets.names",),
}
"""The settings that each option changes."""


def settings(name: str | None, config: Path | None, options: Mapping[str, Any]) -> StudyConfig:
    """The settings of the preset, changed by the file, changed by the options that are given."""
    base = None if name is None else preset(name)
    study = (base or preset("default")) if config is None else read_config(config, base)
    values: dict[str, Any] = {}
    for option, value in options.items():
        if value is None:
            continue
        if option in ("--learners", "--budget"):
            value = _listed(value, option)
        for place in _CHANGES[option]:
            section, _, name = place.rpartition(".")
            (values.setdefault(section, {}) if section else values)[name] = value
    return config_from(values, "the options", study)


def _listed(text: str, option: str) -> tuple[Any, ...]:
    """Read names, or numbers as in ``4,8,16``."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    try:
        return words if option == "--learners" else tuple(int(word) for word in words)
    except ValueError:
        raise DataError(
            f"{option} {text!r}: use a number, or several joined by commas, such as 4,8,16."
        ) from None


def _as_typed(options: Mapping[str, Any]) -> list[str]:
    """The options that were given, as words of a command line."""
    words: list[str] = []
    for option, value in options.items():
        if value is True:
            words.append(option)
        elif value is not None:
            for one in value if isinstance(value, list) else [value]:
                words += [option, str(one)]
    return words


@opt.command("report out", "report out --out page.html")
def report(
    folder: Annotated[Path, Argument(help="The folder of a study, by `taskscape run`.")],
    out: Annotated[
        Path | None, Option(help="The page to write; default: FOLDER/report.html.")
    ] = None,
) -> None:
    """Write the report of a finished study again, from the results in its folder."""
    from taskscape.report import REPORT, write_report
    from taskscape.study import load_study

    page = out or folder / "report.html"
    check_output(page, REPORT)
    write_report(load_study(folder), page)
    typer.echo(f"report: {page}")
