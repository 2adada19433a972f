"""Live progress of a fit on a terminal, plain lines elsewhere, TensorBoard on request."""

import time
from pathlib import Path
from types import TracebackType
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from taskscape.errors import DataError
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.loop import FitInfo

__all__ = ["LiveFit"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_SECONDS_BETWEEN_LINES = 10.0


class LiveFit:
    """Shows tasks/s, the bound, theme usage and the time left; give it to ``fit`` as callback."""

    def __init__(self, model: TaskThemes, tensorboard: Path | None, quiet: bool) -> None:
        self.model, self.quiet = model, quiet
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.shown = not quiet and self.console.is_terminal
        self.log = _tensorboard(tensorboard)
        self.began = self.last_line = time.monotonic()
        self.first_tasks: int | None = None
        self.restart = 0
        self.held_out: float | None = None
        self.judged_on = "held-out tasks"

    def __enter__(self) -> "LiveFit":
        if self.shown:
            self.live.start()
            self.live.update(Text("compiling and choosing a start …"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        held = "" if self.held_out is None else f" · {self.held_out:.3f} on {self.judged_on}"
        n = self.model.n_restarts
        which = f"fit {self.restart + 1}/{n} · " if n > 1 else ""
        return (
            f"{which}{info.tasks:,} tasks · {rate:,.0f} tasks/s · {info.elbo:.3f} nats/sample"
            f"{held} · themes {usage}{self._left(info, rate)}"
        )

    def _left(self, info: FitInfo, rate: float) -> str:
        if info.most_tasks is None or rate <= 0:
            return ""
        return f" · at most {max(0.0, (info.most_tasks - info.tasks) / rate):,.0f} s left"

    def _picture(self, info: FitInfo, rate: float) -> Group:
        total = info.most_tasks
        bar = ProgressBar(total=total or 1, completed=info.tasks if total else 0, width=40)
        return Group(bar, Text(self._line(info, rate)))

    def _log(self, info: FitInfo) -> None:
        if self.log is None:
            return
        name = f"fit{self.restart}"
        self.log.add_scalar(f"{name}/elbo_per_sample", info.elbo, info.tasks)
        if info.held_out is not None:
            self.log.add_scalar(f"{name}/held_out_elbo_per_sample", info.held_out, info.tasks)
        for k, share in enumerate(info.usage):
            self.log.add_scalar(f"{name}/usage/image_theme_{k}", share, info.tasks)


def _tensorboard(folder: Path | None) -> Any:
    if folder is None:
        return None
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise DataError(
            "--tensorboard needs tensorboardX: pip install 'taskscape[tensorboard]'"
        ) from None
    return SummaryWriter(str(folder))
