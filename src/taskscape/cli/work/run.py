"""For ``taskscape run``: its last stage, and what came out."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import typer

from taskscape.cli.work.display import StudyDisplay
from taskscape.progress import heard_by
from taskscape.report import write_report
from taskscape.studies.result import StudyResult

__all__ = ["print_findings", "say_how_to_go_on", "write_page"]


def write_page(result: StudyResult, out: Path, display: StudyDisplay) -> Path:
    display.begin("report")
    began = time.perf_counter()
    with heard_by(lambda what, done, total: display.advance(done / total if total else 0.0, what)):
        write_report(result, out / "report.html")
    display.end("report", time.perf_counter() - began, False)
    return out / "report.html"


def say_how_to_go_on(what: str, display: StudyDisplay, out: Path, command: str) -> None:
    typer.echo(
        f"\n{what}; {display.finished} finished stages are kept in {out}. Go on with:\n"
        f"  {command} --resume",
        err=True,
    )


def print_findings(result: StudyResult, out: Path, page: Path | None, as_json: bool) -> None:
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
    if result.remarks():
        typer.echo("Read these remarks first:")
        for remark in result.remarks():
            typer.echo(f"! {remark}")
        typer.echo("")
    typer.echo(f"results: {out}")
    if page is not None:
        typer.echo(f"report:  {page}")
