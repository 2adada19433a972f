"""From a study's results to the page: templates, scripts and the file."""

import base64
import hashlib
import json
import os
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from taskscape.arguments import public
from taskscape.io.files import Kind, atomic_write
from taskscape.io.values import plain
from taskscape.progress import duration
from taskscape.report.content import gather, in_rows
from taskscape.study.result import StudyResult

_SIGNED = b'<meta name="generator" content="taskscape">'
REPORT = Kind("a report", lambda path: _SIGNED in path.read_bytes())

_UNSAFE_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_SCRIPTS = ("page.js", "charts.js", "panel.js", "map.js", "start.js")


@public
def write_report(result: StudyResult, path: str | os.PathLike[str]) -> Path:
    """Write the results of a study as one HTML file that needs nothing but a browser.

    Pictures, script and data are inside; the page loads nothing and may be mailed as it is.
    """
    text = render_report(result)
    with atomic_write(path, REPORT) as file:
        file.write_text(text, encoding="utf-8", newline="\n")
    return Path(path)


def render_report(result: StudyResult) -> str:
    """The page as a string."""
    content, data, images = gather(result)
    scripts = [_plotly(), _script()]
    template = _environment().get_template("report.html.j2")
    return template.render(
        **content,
        style=Markup(_file("report.css")),
        images=images,
        island=data_island(data),
        scripts=[Markup(script) for script in scripts],
        allowed=" ".join(_fingerprint(script) for script in scripts),
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
    environment.filters |= {"percent": _percent, "duration": duration, "number": _number}
    environment.filters |= {"true_minus": _true_minus, "in_rows": in_rows}
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


def data_island(value: Any) -> Markup:
    """A value as JSON that can stand inside a ``<script>`` element and cannot end it.

    Names come from anybody's data. Numbers are rounded to four digits, and unknown ones are null.
    """
    rounded = json.loads(json.dumps(plain(value)), parse_float=_rounded)
    text = json.dumps(rounded, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.translate(_UNSAFE_IN_SCRIPT))


def _rounded(digits: str) -> float | int:
    number = float(digits)
    whole = round(number)
    return whole if number == whole and abs(number) < 1e15 else float(f"{number:.4g}")


def _number(value: Any, digits: int = 2) -> str:
    """A number with so many decimals and a true minus; a dash where it is unknown."""
    if value is None or value != value:
        return "–"
    return f"{value:z,.{digits}f}".replace("-", "−")


def _true_minus(text: str) -> str:
    """The text with a true minus before numbers."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)


def _percent(value: float | np.floating) -> str:
    """A share in per cent; a dash where it is unknown."""
    return f"{100 * value:.1f} %" if np.isfinite(value) else "–"
