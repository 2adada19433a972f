"""What a terminal shows while a fit or a study runs, plain lines elsewhere; a fit in words."""

import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskscape.cli.options import print_result
from taskscape.compiling import seconds_compiling
from taskscape.embeddings.embeddings import describe_factors
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.progress import duration
from taskscape.similarity.retrieval import TOO_FEW, retrieval_if_any
from taskscape.study import Listener, StudyConfig
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.loop import FitInfo

_BLOCKS = " ▁▂▃▄▅▆▇█"
_SECONDS_BETWEEN_LINES = 10.0
_MUCH_COMPILING = 1.0


def say_time(began: float, *, quiet: bool = False) -> None:
    """Say how long a command took, if much of that went into compiling."""
    compiling = _of_which_compiling(seconds_compiling())
    if compiling and not quiet:
        typer.echo(f"took {duration(time.monotonic() - began)}{compiling}", err=True)


def _of_which_compiling(seconds: float) -> str:
    return f", of which {duration(seconds)} compiling" if seconds > _MUCH_COMPILING else ""


class FitDisplay:
    """Shows tasks/s, the bound, theme usage and the time left; give it to ``fit`` as callback."""

    def __init__(self, model: CoClustering, tensorboard: Path | None, quiet: bool) -> None:
        self.model, self.quiet = model, quiet
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.shown = not quiet and self.console.is_terminal
        self.log = _tensorboard(tensorboard)
        self.began = self.last_line = time.monotonic()
        self.first_tasks: int | None = None
        self.restart = 0
        self.held_out: float | None = None
        self.tested_on = "held-out tasks"

    def __enter__(self) -> "FitDisplay":
        if self.shown:
            self.live.start()
            self.live.update(Text("compiling and choosing a start …"))
        return self

    def __exit__(self, *error: object) -> None:
        if self.shown:
            self.live.stop()
        if self.log is not None:
            self.log.close()

    def __call__(self, info: FitInfo, restart: int) -> None:
        now = time.monotonic()
        if self.first_tasks is None or restart != self.restart:
            self.first_tasks, self.began, self.restart = info.tasks, now, restart
        self.held_out = info.held_out if info.held_out is not None else self.held_out
        self._log(info)
        if self.quiet:
            return
        rate = (info.tasks - self.first_tasks) / max(now - self.began, 1e-9)
        if self.shown:
            self.live.update(self._picture(info, rate))
        elif now - self.last_line > _SECONDS_BETWEEN_LINES or info.done:
            self.last_line = now
            typer.echo(self._line(info, rate), err=True)

    def _line(self, info: FitInfo, rate: float) -> str:
        usage = "".join(_BLOCKS[min(8, round(8 * u / max(info.usage)))] for u in info.usage)
        held = "" if self.held_out is None else f" · {self.held_out:.3f} on {self.tested_on}"
        n = self.model.n_restarts
        which = f"fit {self.restart + 1}/{n} · " if n > 1 else ""
        left = ""
        if info.most_tasks is not None and rate > 0:
            left = f" · at most {max(0.0, (info.most_tasks - info.tasks) / rate):,.0f} s left"
        return (
            f"{which}{info.tasks:,} tasks · {rate:,.0f} tasks/s · {info.elbo:.3f} nats/sample"
            f"{held} · themes {usage}{left}"
        )

    def _picture(self, info: FitInfo, rate: float) -> Group:
        total = info.most_tasks
        bar = ProgressBar(total=total or 1, completed=info.tasks if total else 0, width=40)
        return Group(bar, Text(self._line(info, rate)))

    def _log(self, info: FitInfo) -> None:
        values = {"elbo_per_sample": info.elbo, "held_out_elbo_per_sample": info.held_out}
        values |= {f"usage/image_theme_{k}": share for k, share in enumerate(info.usage)}
        for name, value in values.items():
            if self.log is not None and value is not None:
                self.log.add_scalar(f"fit{self.restart}/{name}", value, info.tasks)


def _tensorboard(folder: Path | None) -> Any:
    if folder is None:
        return None
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise DataError(
            "tensorboard needs tensorboardX: pip install 'taskscape[tensorboard]'"
        ) from None
    return SummaryWriter(str(folder))


def print_fit(model: CoClustering, pool: str, out: Path, as_json: bool) -> None:
    """Say what was learned, and on what it was evaluated."""
    last, bound = model.fit_info_[-1], float(model.elbo_history_[:, 1].max())
    prepared = model.preparation_.config.describe()
    outcome = {
        "model": str(out),
        "pool": pool,
        "tasks": last.tasks,
        "held_out_elbo": bound,
        "held_out": model.held_out_,
        "stopped": last.done,
        "preparation": prepared,
        "health": model.health_.to_dict(),
    }
    words = (
        f"prepared by: {prepared}\nlearned from {last.tasks:,} tasks; stopped: {last.done}; bound "
        f"(how well {model.held_out_} are explained) {bound:.4f} nats per sample\n"
        f"{model.health_.summary()}\nmodel: {out}"
    )
    print_result(as_json, outcome, words)


def print_themes(model: TaskThemes, pool: ClassPool, out: Path, as_json: bool) -> None:
    """Say what was learned, and whether tasks of one group find each other by it."""
    test = retrieval_if_any(pool, model)
    prepared = model.preparation_.config.describe()
    outcome = {
        "model": str(out),
        "pool": pool.name,
        "image_themes": model.themes_.K,
        "preparation": prepared,
        "settings": model.origin or "default",
        "retrieval": None if test is None else test.to_dict(),
    }
    settings = f"settings: {model.origin}.\n" if model.origin else ""
    words = (
        f"prepared by: {prepared}\nlearned: {describe_factors(model.factors_)}\n{settings}"
        f"{TOO_FEW if test is None else test.summary()}\nmodel: {out}"
    )
    print_result(as_json, outcome, words)


class StudyDisplay(Listener):
    """A list of stages with a bar on a terminal, a line for each stage elsewhere."""

    def __init__(self, config: StudyConfig, quiet: bool = False) -> None:
        self.config, self.quiet = config, quiet
        self.console = Console(stderr=True)
        self.shown = not quiet and self.console.is_terminal
        self.live: Live | None = None
        self.stages: list[tuple[str, str]] = []
        self.took: dict[str, str] = {}  # by finished stage
        self.current, self.part, self.what = "", 0.0, ""
        self.began = time.monotonic()
        self.compiled_before = 0.0

    def __enter__(self) -> "StudyDisplay":
        return self

    def __exit__(self, *error: object) -> None:
        self.current = ""
        if self.live is not None:
            self.live.stop()
        say_time(self.began, quiet=self.quiet)

    def plan(self, stages: list[tuple[str, str]], notes: tuple[str, ...]) -> None:
        """Learn of all stages; the display starts here."""
        last = [("report", "write the report")] if self.config.report.enabled else []
        self.stages = [*stages, *last]
        if not self.quiet:
            for note in notes:
                typer.echo(note, err=True)
        if self.shown:
            show = self._picture
            self.live = Live(console=self.console, get_renderable=show, refresh_per_second=4)
            self.live.start()

    def begin(self, stage: str) -> None:
        """A stage begins."""
        self.current, self.part, self.what = stage, 0.0, ""
        self.compiled_before = seconds_compiling()

    def advance(self, done: float, what: str) -> None:
        """A part of the current stage is done."""
        self.part, self.what = min(max(done, 0.0), 1.0), what

    def end(self, stage: str, seconds: float, reused: bool) -> None:
        """A stage is finished."""
        compiling = _of_which_compiling(seconds_compiling() - self.compiled_before)
        self.took[stage] = "done before" if reused else f"{duration(seconds)}{compiling}"
        self.current = ""
        if not (self.quiet or self.shown):
            words = dict(self.stages).get(stage, stage)
            number = f"[{len(self.took)}/{len(self.stages)}]"
            typer.echo(f"{number} {words}: {self.took[stage]}", err=True)

    def _picture(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for name, words in self.stages:
            if name in self.took:
                table.add_row("[green]✓[/]", words, Text(self.took[name], style="dim"))
            elif name == self.current:
                bar = ProgressBar(total=1.0, completed=self.part, width=24)
                table.add_row("[cyan]▸[/]", Text(words, style="bold"), bar, Text(self.what))
            else:
                table.add_row(" ", Text(words, style="dim"), "")
        spent = f"{duration(time.monotonic() - self.began)} so far"
        table.add_row("", Text(spent, style="bold"), "")
        return table
