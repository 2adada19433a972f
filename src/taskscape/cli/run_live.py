"""Live progress of a study: its stages, what the current one does, and the time left."""

import time
from types import TracebackType

import typer
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskscape.progress import duration
from taskscape.studies.pipeline import Listener, StudyConfig

__all__ = ["LiveStudy", "TimeLeft"]

_TYPICAL = {
    "quick": {
        "data": 1, "fit": 9, "embed": 5, "health": 0, "distances": 0, "learners": 3, "diagram": 0,
        "selection/chosen": 2, "selection": 5, "forecast": 3, "report": 3,
    },
    "default": {
        "data": 1, "fit": 17, "embed": 8, "health": 0, "distances": 0, "learners": 8, "diagram": 1,
        "selection/chosen": 22, "selection": 25, "forecast": 4, "report": 4,
    },
    "paper": {
        "data": 2, "fit": 180, "embed": 120, "health": 0, "distances": 60, "learners": 300,
        "diagram": 60, "selection/chosen": 300, "selection": 900, "forecast": 60, "report": 10,
    },
}  # fmt: skip
"""Seconds that the stages of each preset take on 2 cores (paper: on a GPU); a first guess."""
_TRUST = 5.0
"""Seconds after which the pace of this machine counts as much as the guess."""


class TimeLeft:
    """How long a study still takes: guesses by stage, scaled by the pace so far."""

    def __init__(self, preset: str, stages: list[str]) -> None:
        guesses = _TYPICAL.get(preset, _TYPICAL["default"])
        self.guess = {s: float(guesses.get(s, guesses.get(s.split("/")[0], 5))) for s in stages}
        self.waiting = list(stages)
        self.took = self.guessed = 0.0

    def end(self, stage: str, seconds: float, reused: bool) -> None:
        """Note that a stage is finished."""
        if stage in self.waiting:
            self.waiting.remove(stage)
        if not reused:
            self.took += seconds
            self.guessed += self.guess.get(stage, seconds)

    def seconds(self, current: str | None, part: float, since: float) -> float:
        """The time left, with ``part`` of the current stage done ``since`` seconds after it began.

        >>> TimeLeft("quick", ["fit", "embed"]).seconds("fit", 0.0, 0.0)
        14.0
        """
        pace = (self.took + _TRUST) / (self.guessed + _TRUST)
        left = pace * sum((self.guess[s] for s in self.waiting if s != current), 0.0)
        if current in self.waiting:
            guess = max(0.0, pace * self.guess[current] - since)
            seen = since * (1 - part) / part if part > 0 else guess
            left += part * seen + (1 - part) * guess
        return left


class LiveStudy(Listener):
    """A list of stages with a bar on a terminal, a line for each stage elsewhere."""

    def __init__(self, config: StudyConfig, quiet: bool = False) -> None:
        self.config, self.quiet = config, quiet
        self.console = Console(stderr=True)
        self.shown = not quiet and self.console.is_terminal
        self.live: Live | None = None
        self.stages: list[tuple[str, str]] = []
        self.ended: dict[str, tuple[float, bool]] = {}
        self.current, self.part, self.what = "", 0.0, ""
        self.began = self.stage_began = time.monotonic()
        self.time_left = TimeLeft(config.preset, [])

    def __enter__(self) -> "LiveStudy":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.current = ""
        if self.live is not None:
            self.live.stop()

    @property
    def finished(self) -> int:
        """How many stages are finished."""
        return len(self.ended)

    # -- what a study tells ---------------------------------------------------------------------

    def plan(self, stages: list[tuple[str, str]], notes: tuple[str, ...]) -> None:
        """Learn of all stages; the display starts here."""
        last = [("report", "write the report")] if self.config.report.enabled else []
        self.stages = [*stages, *last]
        self.time_left = TimeLeft(self.config.preset, [name for name, _ in self.stages])
        if not self.quiet:
            for note in notes:
                typer.echo(note, err=True)
        if self.shown:
            self.live = Live(
                console=self.console, get_renderable=self._picture, refresh_per_second=4
            )
            self.live.start()

    def begin(self, stage: str) -> None:
        """A stage begins."""
        self.current, self.part, self.what = stage, 0.0, ""
        self.stage_began = time.monotonic()

    def advance(self, done: float, what: str) -> None:
        """A part of the current stage is done."""
        self.part, self.what = min(max(done, 0.0), 1.0), what

    def end(self, stage: str, seconds: float, reused: bool) -> None:
        """A stage is finished."""
        self.ended[stage] = (seconds, reused)
        self.time_left.end(stage, seconds, reused)
        self.current = ""
        if not (self.quiet or self.shown):
            words = dict(self.stages).get(stage, stage)
            number = f"[{self.finished}/{len(self.stages)}]"
            took = "done before" if reused else duration(seconds)
            typer.echo(f"{number} {words}: {took}{self._left()}", err=True)

    def _left(self) -> str:
        if self.finished == len(self.stages):
            return ""
        since = time.monotonic() - self.stage_began
        left = self.time_left.seconds(self.current or None, self.part, since)
        return f" · about {duration(max(1, round(left)))} left"

    def _picture(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for name, words in self.stages:
            if name in self.ended:
                seconds, reused = self.ended[name]
                took = "done before" if reused else duration(seconds)
                table.add_row("[green]✓[/]", words, Text(took, style="dim"))
            elif name == self.current:
                bar = ProgressBar(total=1.0, completed=self.part, width=24)
                table.add_row("[cyan]▸[/]", Text(words, style="bold"), bar, Text(self.what))
            else:
                table.add_row(" ", Text(words, style="dim"), "")
        spent = f"{duration(time.monotonic() - self.began)} so far"
        table.add_row("", Text(spent + self._left(), style="bold"), "")
        return table
