"""The command line: one thin command for each stage."""

import importlib
import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console

from taskscape import __version__
from taskscape.cli.interrupts import heed_interrupts
from taskscape.errors import TaskscapeError
from taskscape.pools.cache import cache_dir, cache_key

__all__ = ["app", "main"]

app = typer.Typer(
    name="taskscape",
    help="How similar are classification tasks? Embed, compare and select few-shot tasks.",
    epilog="Start with:  taskscape data  ·  taskscape data show glyphs",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_MODULES = (
    "run", "data", "themes", "sizes", "compare", "select", "learners", "forecast",
)  # fmt: skip


def _print_version(asked: bool | None) -> None:
    if asked:
        typer.echo(f"taskscape {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = None,
) -> None:
    """How similar are classification tasks? Embed, compare and select few-shot tasks."""


for _module in _MODULES:
    importlib.import_module(f"taskscape.cli.{_module}").register(app)


def _keep_compiled_programs() -> None:
    """Keep what takes long to compile, so that the next command starts at once.

    In a folder for this kind of processor, because a home folder may serve many machines; it is
    made when the first program is kept.
    """
    flags = Path("/proc/cpuinfo")
    kind = [platform.machine(), platform.processor(), jax.__version__]
    if flags.exists():
        kind += [line for line in flags.read_text().splitlines() if line.startswith("flags")][:1]
    folder = cache_dir() / "compiled" / cache_key(*kind)
    above = next(p for p in (folder, *folder.parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):  # works without, only slower
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)  # type: ignore[no-untyped-call]


def main() -> None:
    """Run the command line; errors that are the user's to mend are printed without a traceback."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _keep_compiled_programs()
    try:
        with heed_interrupts():
            app()
    except TaskscapeError as error:
        Console(stderr=True, soft_wrap=True).print("[bold red]error:[/]", end=" ")
        typer.echo(str(error), err=True)
        sys.exit(1)
