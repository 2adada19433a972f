"""Putting the page together: numbers and pictures into the templates, and the file onto disk."""

import base64
import hashlib
import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from taskscape.files import Kind, written_in_one_piece
from taskscape.progress import duration
from taskscape.report.content import gather
from taskscape.report.escaping import data_island
from taskscape.report.tables import percent
from taskscape.studies.result import StudyResult

__all__ = ["REPORT", "render_report", "write_report"]

_SIGNED = b'<meta name="generator" content="taskscape">'
REPORT = Kind("a report", lambda path: _SIGNED in path.read_bytes())

_SCRIPTS = ("page.js", "charts.js", "panel.js", "map.js", "start.js")


def write_report(result: StudyResult, path: str | os.PathLike[str]) -> Path:
    """Write the results of a study as one HTML file that needs nothing but a browser.

    Pictures, script and data are inside; the page loads nothing and may be mailed as it is.
    """
    text = render_report(result)
    with written_in_one_piece(path, REPORT) as file:
        file.write_text(text, encoding="utf-8", newline="\n")
    return Path(path)


def render_report(result: StudyResult) -> str:
    """The page as a string."""
    content, data, images = gather(result)
    scripts = [_plotly(), _script()]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            **content,
            style=Markup(_file("report.css")),
            images=images,
            island=data_island(data),
            scripts=[Markup(script) for script in scripts],
            allowed=" ".join(_fingerprint(script) for script in scripts),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("taskscape.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "duration": duration, "number": _number}
    return environment


def _file(name: str) -> str:
    return resources.files("taskscape.report").joinpath("templates", name).read_text("utf-8")


@cache
def _script() -> str:
    parts = "".join(_file(name) for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    # A browser reads line ends as \n before it compares the script with its fingerprint.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


@cache
def _fingerprint(script: str) -> str:
    """What the page's security policy knows a script by: no other script in the page runs."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _number(value: Any, digits: int = 2) -> str:
    """A number with so many decimals and a true minus; a dash where it is unknown."""
    if value is None or value != value:
        return "–"
    return f"{value:,.{digits}f}".replace("-", "−")
