"""``taskscape doctor``: is this machine ready?"""

import json

import typer

from taskscape.cli.options import AsJson

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(epilog="Example:  taskscape doctor")(doctor)


def doctor(as_json: AsJson = False) -> None:
    """Say what taskscape stands on here, and try it: versions, devices, data, a small run.

    The run fits, embeds and compares a few tasks: about ten seconds, more the first time, when
    JAX has to compile. The exit status is 1 if something is wrong.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from taskscape.cli.work.doctor import examine

    checks = list(examine())
    wrong = [check.name for check in checks if not check.good]
    if as_json:
        report = {"ready": not wrong, "checks": [vars(check) for check in checks]}
        typer.echo(json.dumps(report, indent=2))
    else:
        table = Table("", "what", "found")
        for check in checks:
            mark = "[green]ok[/]" if check.good else "[bold red]wrong[/]"
            table.add_row(mark, check.name, Text(check.found))
        console = Console()
        console.print(table)
        verdict = f"[bold red]Not ready[/]: {', '.join(wrong)}. The table says what is wrong."
        console.print(verdict if wrong else "[bold green]Ready[/]: all that was tried works.")
    if wrong:
        raise typer.Exit(1)
