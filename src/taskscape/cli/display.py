"""What a terminal shows while a study runs, plain lines elsewhere; a fit in words."""

import sys
import time
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from taskscape.cli.options import print_result
from taskscape.compiling import seconds_compiling
from taskscape.embeddings.embeddings import describe_factors
from taskscape.pools import ClassPool
from taskscape.progress import duration
from taskscape.similarity.retrieval import TOO_FEW, retrieval_if_any
from taskscape.study import Listener
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.loop import Callback, FitInfo

_SECONDS_BETWEEN_LINES = 10.0
_MUCH_COMPILING = 1.0


def say_time(began: float, *, quiet: bool = False) -> None:
    """Say how long a command took, if much of that went into compiling."""
    compiling = _of_which_compiling(seconds_compiling())
    if compiling and not quiet:
        typer.echo(f"took {duration(time.monotonic() - began)}{compiling}", err=True)


def _of_which_compiling(seconds: float) -> str:
    return f", of which {duration(seconds)} compiling" if seconds > _MUCH_COMPILING else ""


def fit_lines(quiet: bool) -> Callback | None:
    """What says now and then how a long fit gets on; None on terminals, which have a bar."""
    if quiet or sys.stderr.isatty():
        return None
    last = time.monotonic()

    def say(info: FitInfo, restart: int) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES or info.done:
            last = time.monotonic()
            done = f"fit {restart + 1}: {info.tasks:,} tasks"
            typer.echo(f"{done}, {info.elbo:.3f} nats per sample", err=True)

    return say


def print_fit(model: CoClustering, pool: str, out: Path, as_json: bool) -> None:
    """Say what was learned, and on what it was evaluated."""
    last, bound = model.fit_info_[-1], float(model.elbo_history_[:, 1].max())
    learned = {
        "tasks": last.tasks,
        "held_out_elbo": bound,
        "held_out": model.held_out_,
        "stopped": last.done,
        "health": model.health_.to_dict(),
    }
    words = (
        f"learned from {last.tasks:,} tasks; stopped: {last.done}; bound (how well "
        f"{model.held_out_} are explained) {bound:.4f} nats per sample\n{model.health_.summary()}"
    )
    _print(model, pool, out, as_json, learned, words)


def print_themes(model: TaskThemes, pool: ClassPool, out: Path, as_json: bool) -> None:
    """Say what was learned, and whether tasks of one group find each other by it."""
    test = retrieval_if_any(pool, model)
    learned = {
        "image_themes": model.themes_.K,
        "settings": model.origin or "default",
        "retrieval": None if test is None else test.to_dict(),
    }
    words = f"learned: {describe_factors(model.factors_)}\n"
    words += f"settings: {model.origin}.\n" if model.origin else ""
    words += TOO_FEW if test is None else test.summary()
    _print(model, pool.name, out, as_json, learned, words)


def _print(
    model: CoClustering | TaskThemes, pool: str, out: Path, as_json: bool,
    learned: dict[str, object], words: str,
) -> None:  # fmt: skip
    prepared = model.preparation_.config.describe()
    about = {"model": str(out), "pool": pool, "preparation": prepared}
    print_result(as_json, about | learned, f"prepared by: {prepared}\n{words}\nmodel: {out}")


class StudyDisplay(Listener):
    """A bar for each stage on a terminal, a line for each elsewhere."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        console = Console(stderr=True)
        self.shown = not quiet and console.is_terminal
        what = TextColumn("{task.fields[what]}", markup=False)
        self.bars = Progress(
            "{task.description}", BarColumn(24), TimeElapsedColumn(), what, console=console,
            disable=not self.shown,
        )  # fmt: skip
        self.stages: dict[str, tuple[str, TaskID]] = {}
        self.took: dict[str, str] = {}  # by finished stage
        self.current = ""
        self.began = time.monotonic()
        self.compiled_before = 0.0

    def __enter__(self) -> "StudyDisplay":
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()
        say_time(self.began, quiet=self.quiet)

    def plan(self, stages: list[tuple[str, str]], notes: tuple[str, ...]) -> None:
        for name, words in (*stages, ("report", "write the report")):
            bar = self.bars.add_task(f"  {words}", start=False, total=1.0, what="")
            self.stages[name] = words, bar
        if not self.quiet:
            for note in notes:
                typer.echo(note, err=True)
        self.bars.start()

    def begin(self, stage: str) -> None:
        self.current, self.compiled_before = stage, seconds_compiling()
        words, bar = self.stages[stage]
        self.bars.start_task(bar)
        self.bars.update(bar, description=f"[cyan]▸[/] [bold]{words}[/]")

    def advance(self, done: float, what: str) -> None:
        self.bars.update(self.stages[self.current][1], completed=done, what=what)

    def end(self, stage: str, seconds: float, reused: bool) -> None:
        compiling = _of_which_compiling(seconds_compiling() - self.compiled_before)
        took = "done before" if reused else f"{duration(seconds)}{compiling}"
        self.took[stage] = took
        words, bar = self.stages[stage]
        self.bars.update(bar, completed=1.0, description=f"[green]✓[/] {words}", what=took)
        if not (self.quiet or self.shown):
            typer.echo(f"[{len(self.took)}/{len(self.stages)}] {words}: {took}", err=True)
