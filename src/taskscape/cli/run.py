"""``taskscape run``, ``report`` and ``reproduce``: whole studies in one command."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from taskscape.cli.options import (
    AsJson,
    Engine,
    ImageSize,
    MinSamples,
    Seed,
    SkipDamaged,
    SplitFile,
    one_source,
    parse_numbers,
)
from taskscape.errors import DataError
from taskscape.files import check_output
from taskscape.meta.learners import LEARNERS
from taskscape.studies.pipeline.config import (
    PRESETS,
    StudyConfig,
    config_from,
    preset,
    read_config,
)

__all__ = ["register", "settings"]

EPILOG = (
    "Example:  taskscape run --preset quick --out look  ·  "
    "taskscape run --data features.npz --out mine  ·  "
    "taskscape run --data images/ --image-size 32 --min-samples 20 --n-way 3 --out mine  ·  "
    "taskscape run --data glyphs --target Hexagrams --target my_symbols/ --out targets  ·  "
    "taskscape run --config mine/study.toml --seed 1 --out again  ·  "
    "taskscape run --out out --resume"
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("run", epilog=EPILOG)(run)
    app.command(
        "report",
        epilog="Example:  taskscape report out  ·  taskscape report out --out page.html",
    )(report)
    app.command(
        "reproduce",
        epilog="Examples:  taskscape reproduce fig3 --scale 0.02 --out reproduced  ·  "
        "taskscape reproduce fig2-mini-imagenet --minutes 30  ·  "
        "taskscape reproduce --all --minutes 60  ·  "
        "taskscape reproduce fig4 --only draw",
    )(reproduce)


def run(
    out: Annotated[Path, typer.Option(help="The folder for all results.")] = Path("out"),
    preset_name: Annotated[
        str | None,
        typer.Option("--preset", help=f"{', '.join(PRESETS)} (paper: its sizes, for a GPU)."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A known name, or your own data; may be repeated; default: letters."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML; options given besides go before them.")
    ] = None,
    learners: Annotated[
        str | None, typer.Option(help=f"{', '.join(LEARNERS)}; joined by commas.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="How many training tasks to choose: 500, or 50,500.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Say what to train on for this: a group of the data, or a folder of your own with "
            "a few labelled samples a class; may be repeated."
        ),
    ] = None,
    n_way: Annotated[int | None, typer.Option(help="Classes of a task.")] = None,
    n_shot: Annotated[
        int | None, typer.Option(help="Labelled samples of each class that learners get.")
    ] = None,
    image_size: ImageSize = None,
    min_samples: MinSamples = None,
    skip_damaged: SkipDamaged = False,
    split_file: SplitFile = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same result.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Re-use the finished stages in the folder.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Make a study that is in the folder anew.")
    ] = False,
    engine: Engine = "here",
    as_json: AsJson = False,
) -> None:
    """Fit, embed, compare, train learners, select tasks, forecast, and write a report.

    Ctrl-C keeps every finished stage; the same command with --resume goes on from there. A stage is
    made again only if its settings, the data, or a stage before it have changed.
    """
    from taskscape.cli.work.display import StudyDisplay
    from taskscape.cli.work.run import print_findings, say_how_to_go_on, write_page
    from taskscape.engine import use_engine
    from taskscape.report import REPORT
    from taskscape.studies import run_study

    given = {
        "--data": one_source(data),
        "--learners": learners,
        "--budget": budget,
        "--n-way": n_way,
        "--n-shot": n_shot,
        "--image-size": image_size,
        "--min-samples": min_samples,
        "--split-file": None if split_file is None else str(split_file),
        "--seed": seed,
        "--skip-damaged": skip_damaged or None,
        "--target": target or None,
    }
    chosen = settings(preset_name, config, given)
    rest = {"--preset": preset_name, "--config": config}
    words = _as_typed(rest | given | {"--engine": None if engine == "here" else engine})
    command = shlex.join(["taskscape", "run", *words, "--out", str(out)])
    if chosen.report.enabled:
        check_output(out / "report.html", REPORT)
    display = StudyDisplay(chosen, quiet=as_json)
    try:
        with display, use_engine(engine):
            result = run_study(
                None,
                chosen,
                out,
                resume=resume,
                overwrite=overwrite,
                command=command,
                listener=display,
            )
            page = write_page(result, out, display) if chosen.report.enabled else None
    except KeyboardInterrupt:
        say_how_to_go_on("interrupted", display, out, command)
        raise typer.Exit(130) from None
    except Exception:
        if display.finished:
            say_how_to_go_on("the study broke off", display, out, command)
        raise
    print_findings(result, out, page, as_json)


_CHANGES: Mapping[str, tuple[str, ...]] = {
    "--data": ("data",),
    "--learners": ("learners.names",),
    "--budget": ("selection.budgets",),
    "--n-way": ("tasks.n_way",),
    "--n-shot": ("evaluate.n_shot", "selection.n_shot", "targets.n_shot"),
    "--image-size": ("source.image_size",),
    "--min-samples": ("source.min_samples",),
    "--split-file": ("source.split_file",),
    "--seed": ("seed",),
    "--skip-damaged": ("source.skip_damaged",),
    "--target": ("targets.names",),
}
"""The settings that each option changes."""


def settings(
    preset_name: str | None, config: Path | None, options: Mapping[str, Any]
) -> StudyConfig:
    """The settings of the preset, changed by the file, changed by the options that are given."""
    base = None if preset_name is None else preset(preset_name)
    study = (base or preset("default")) if config is None else read_config(config, base)
    values: dict[str, Any] = {}
    for option, value in options.items():
        if value is None:
            continue
        if option == "--learners":
            value = _words(value, option)
        elif option == "--budget":
            value = parse_numbers(value, option)
        for place in _CHANGES[option]:
            section, _, name = place.rpartition(".")
            (values.setdefault(section, {}) if section else values)[name] = value
    return config_from(values, "the options", study)


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


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a study, by `taskscape run`.")],
    out: Annotated[
        Path | None, typer.Option(help="The page to write; default: FOLDER/report.html.")
    ] = None,
) -> None:
    """Write the report of a finished study again, from the results in its folder."""
    from taskscape.report import REPORT, write_report
    from taskscape.studies import load_study

    page = out or folder / "report.html"
    check_output(page, REPORT)
    write_report(load_study(folder), page)
    typer.echo(f"report: {page}")


def reproduce(
    figure: Annotated[
        str | None,
        typer.Argument(help="fig2-mini-imagenet, fig2-omniglot, fig3, fig4 or fig4-omniglot."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All figures, one after another, in the same minutes.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="The folder of results; what is finished in it is not run again.")
    ] = Path("reproduced"),
    learners: Annotated[
        str | None, typer.Option(help=f"Some of {', '.join(LEARNERS)}; joined by commas.")
    ] = None,
    versions: Annotated[
        str,
        typer.Option(
            help="The model to the letter of the paper, ours at its size, and ours at the size "
            "that validation classes prefer."
        ),
    ] = "literal,ours,sized",
    only: Annotated[
        str | None, typer.Option(help="prepare, train or draw; default: one after another.")
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Shrink every count, for a machine without a GPU; 1: full size.")
    ] = 1.0,
    minutes: Annotated[
        float | None, typer.Option(help="Start nothing new after this long; run again to go on.")
    ] = None,
    seed: Seed = 0,
    engine: Engine = "here",
) -> None:
    """Run the paper's experiments on the real data under TASKSCAPE_DATA.

    The paper to the letter and our version side by side, with the published numbers in the table.
    At full size this is hours on a CPU; every finished cell is a line in results.jsonl.
    """
    from taskscape.engine import use_engine
    from taskscape.studies.paper import FIGURES, STAGES
    from taskscape.studies.paper import reproduce as run

    if (figure is None) != every:
        raise DataError(f"name one figure ({', '.join(FIGURES)}), or say --all.")
    figures = FIGURES if figure is None else (figure,)
    if minutes is not None and not 0 < minutes < float("inf"):
        raise DataError(f"--minutes {minutes:g} must be a positive number.")
    with use_engine(engine):
        finished = run(
            figures,
            out,
            learners=None if learners is None else _words(learners, "--learners"),
            versions=_words(versions, "--versions"),
            stages=STAGES if only is None else _words(only, "--only"),
            scale=scale,
            minutes=minutes,
            seed=seed,
            command="taskscape " + shlex.join(sys.argv[1:]),
        )
    if only is None or "draw" in only:
        for name in figures:
            if not (table := out / f"{name}.md").exists():
                continue  # the time was up before its first cell
            typer.echo(table.read_text(encoding="utf-8"))
            typer.echo(f"written to {table}, {name}.png and results.jsonl beside it")
    if not finished:
        typer.echo("the time was up; the same command goes on where this one stopped.")


def _words(text: str, option: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise DataError(f"{option} {text!r} names nothing.")
    return words
