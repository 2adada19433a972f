"""From a study's results to the page: what the templates and the script get, and the file."""

import base64
import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
from jaxtyping import Int
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from taskscape.arguments import public
from taskscape.io.files import Kind, atomic_write
from taskscape.io.values import plain
from taskscape.pools import ClassPool
from taskscape.progress import duration
from taskscape.report import figures as charts
from taskscape.report.palette import SCALE, SPLITS, learner_colours, rule_colours, theme_colours
from taskscape.report.tables import flat_settings, in_rows, percent, split_rows
from taskscape.report.targets import view_targets
from taskscape.report.tasks import Shown, choose_shown, task_data, used_classes
from taskscape.report.themes import Sheet, ThemeViews, make_sheet, view_themes
from taskscape.select.known import RULES
from taskscape.select.trials import Outcome, outcomes
from taskscape.similarity.known import DEFAULT_SIMILARITY, TASK_THEMES
from taskscape.similarity.nearest_tasks import SAME, TIE
from taskscape.similarity.retrieval import BASELINES
from taskscape.study.result import StudyResult
from taskscape.targets.known import WAYS
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.places import evenly_spaced

_SIGNED = b'<meta name="generator" content="taskscape">'
REPORT = Kind("a report", lambda path: _SIGNED in path.read_bytes())

_UNSAFE_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_SCRIPTS = ("page.js", "charts.js", "panel.js", "map.js", "start.js")
Content = dict[str, Any]
_RISING = 0.1
"""Of its whole rise: with more of it at the last look, a bound has not levelled off."""
_EXAMPLES, _ROWS_OF_GROUPS = 18, 8
_LONGEST = 120
"""Of a sentence, in characters."""
_PARTS = 4
"""Image-themes that are named as the parts of a task-theme."""


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
    content, data, images = _gather(result)
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
    environment.filters |= {"percent": percent, "duration": duration, "number": _number}
    environment.filters["true_minus"] = _true_minus
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


# -- what the templates and the script are given ------------------------------------------------


def _gather(result: StudyResult) -> tuple[Content, Content, dict[str, str]]:
    """What the templates need, what the script needs, and the sheets of pictures by name."""
    shown = choose_shown(result)
    paper = result.model.co_clustering_
    assert paper is not None
    views = view_themes(result.pool, paper, result.train)
    book = _ClassBook.of(result, shown, views)
    colours = learner_colours(_learners(result))
    unit, short_unit = _units(result)
    pictures = result.pool.is_images or len(result.pool.info.get("encoded_shape", ())) > 1
    kind = "image" if pictures else "sample"
    figures: dict[str, Any] = {}
    trust = result.retrieval
    content = {
        "result": result,
        "shown": shown,
        "learners": colours,
        "unit": unit,
        "kind": kind,
        "ways": WAYS,
        "n_themes": len(paper.alpha_),
        "n_image_themes": len(paper.mu_),
        "members": len(paper.members_),
        "found": _found(result, figures),
        "thumbnails": book.sheet,
        "book": book,
        "splits": split_rows(result.pool),
        "rows_of_groups": _ROWS_OF_GROUPS,
        "split_colours": SPLITS,
        "themes": _themes(result.pool, paper, views, book),
        "settings": flat_settings(result.settings),
        "versions_and_hardware": {
            "Versions": in_rows(result.versions),
            "Hardware": in_rows(result.hardware),
        },
        "remarks": result.remarks(),
        "ties": None if result.ties is None else int(np.median(result.ties)),
        "tie": TIE if short_unit else SAME,
        "short_unit": short_unit,
        "representation_remarks": result.representation_remarks,
        "guessing": result.guessing,
        "asked": result.asked("evaluate"),
        "chosen_asked": result.asked("selection"),
        "has_forecasts": any(result.has_forecast(name) for name in result.forecasts),
        "forecast_from": _forecast_from(result),
        "targets": view_targets(result, book.place),
        "figures": figures,
        **_fit(paper, figures),
        **_outcomes(result, shown, colours, figures),
        "meanings": RULES,
    }
    data = task_data(result, shown, book.place) | {
        "classes": book.names,
        "said": book.said,
        "trust": trust and f"{trust.verdict} {trust.because}",
        "sheet": None if book.sheet is None else book.sheet.to_dict(),
        "figures": figures,
        "learners": colours,
        "scale": SCALE,
        "unit": unit,
        "asked": content["asked"],
        "tie": content["tie"],
        "short_unit": short_unit,
    }
    images = {
        "classes": book.sheet,
        "samples": content["themes"]["sample_sheet"],
        "means": content["themes"]["mean_sheet"],
    }
    return content, data, {name: sheet.uri for name, sheet in images.items() if sheet is not None}


def _units(result: StudyResult) -> tuple[str, str]:
    """What distances are, and what they are in."""
    by = result.settings.get("similarity", DEFAULT_SIMILARITY)
    if by == DEFAULT_SIMILARITY:
        return "distance (1 is the mean between training tasks)", ""
    nats = by == TASK_THEMES and result.test.factor(TASK_THEMES).header.unit
    return (f"KL divergence ({nats})", nats) if nats else (f"distance ({by})", "")


def _found(result: StudyResult, figures: Content) -> Content | None:
    """How often tasks find their own group, by this distance and the simplest others."""
    test = result.retrieval
    if test is None:
        return None
    if test.measure.by_group:
        figures["retrieval"] = charts.retrieval_chart(test.measure)
    rows: list[tuple[str, Any, Any]] = [("this distance", test.measure, None)]
    rows += [(BASELINES[name], b, test.measure.minus(b)) for name, b in test.baselines.items()]
    return {"rows": rows, "chance": test.measure.chance, "by_group": test.measure.by_group}


@dataclass(frozen=True, eq=False)
class _ClassBook:
    """The classes that the page shows, their names, and a picture of each."""

    place: Int[np.ndarray, "classes"]
    """Where each class of the pool is in the book; -1 if it is not."""
    names: list[str]
    sheet: Sheet | None
    said: list[str] | None
    """For samples that are sentences, the first of each class."""

    def few(self, members: tuple[int, ...]) -> list[int]:
        """Where a few classes of a group are in the book."""
        return self.place[_few(members)].tolist()

    @staticmethod
    def of(result: StudyResult, shown: Shown, views: ThemeViews) -> "_ClassBook":
        pool = result.pool
        parts = [used_classes(result, shown), *views.classes, *(views.sample_classes or ())]
        parts += [_few(members) for row in split_rows(pool) for _, members in row.groups]
        used = np.unique(np.concatenate(parts)).astype(np.int64)
        place = np.full(len(pool), -1, dtype=np.int64)
        place[used] = np.arange(len(used))
        names = [pool.class_names[c] for c in used.tolist()]
        if not pool.is_images:
            said = [said_of(pool, row) for row in pool.starts[used].tolist()]
            return _ClassBook(place, names, None, said if any(said) else None)
        sheet = make_sheet(np.asarray(pool.samples[pool.starts[used]]))
        return _ClassBook(place, names, sheet, None)


def said_of(pool: ClassPool, row: int) -> str:
    """The sentence that a sample is, where its name is one; else nothing."""
    name = "" if pool.sample_names is None else pool.sample_names[row]
    return shorten(name, _LONGEST, placeholder=" …") if " " in name.strip() else ""


def _few(members: tuple[int, ...]) -> Int[np.ndarray, "few"]:
    """A few classes from all over a group."""
    return evenly_spaced(np.asarray(members, dtype=np.int64), _EXAMPLES)


def _learners(result: StudyResult) -> list[str]:
    in_diagram = () if result.diagram is None else (c.learner for c in result.diagram.curves)
    chosen_for = (trial.learner for trial in result.selection)
    return [*result.accuracy, *in_diagram, *chosen_for, *result.forecasts]


def _fit(model: CoClustering, figures: Content) -> Content:
    health = model.health_
    bound = charts.bound_chart(model)
    if bound is not None:
        figures["bound"] = bound
    steps = getattr(model, "fit_info_", None) or []
    looks = model.elbo_history_.reshape(-1, 2)
    return {
        "health": health,
        "stopped": steps[-1].done if steps else "",
        "tasks_seen": int(steps[-1].tasks) if steps else None,
        "rising": len(looks) > 1
        and looks[-1, 1] - looks[-2, 1] > max(0.0, _RISING * (looks[-1, 1] - looks[0, 1])),
        "looks": len(looks),
        "best_bound": float(looks[:, 1].max()) if len(looks) else None,
        "preparation": model.preparation_.config.describe(),
        "explained": model.preparation_.explained,
    }


def _themes(pool: ClassPool, model: CoClustering, views: ThemeViews, book: _ClassBook) -> Content:
    pictured = pool.is_images and views.samples is not None
    image_themes, at = [], 0
    for k in range(len(model.mu_)):
        rows = () if views.samples is None else views.samples[k].tolist()
        owners = () if views.sample_classes is None else views.sample_classes[k].tolist()
        samples = [
            {
                "picture": at + i,
                "name": pool.class_names[c],
                "sample": row - pool.starts[c],
                "said": said_of(pool, row),
            }
            for i, (row, c) in enumerate(zip(rows, owners, strict=True))
        ]
        image_themes.append({"number": k + 1, "usage": model.theme_usage_[k], "samples": samples})
        at += len(rows)
    mixture = model.alpha_ / model.alpha_.sum(axis=1, keepdims=True)
    task_themes = [
        {
            "number": i + 1,
            "usage": model.health_.task_theme_usage[i],
            "colour": theme_colours(len(mixture))[i],
            "top": [(int(k), float(mixture[i, k])) for k in np.argsort(-mixture[i])[:_PARTS]],
            "classes": [int(book.place[c]) for c in classes],
        }
        for i, classes in enumerate(views.classes)
    ]
    shown = np.concatenate(views.samples) if pictured and views.samples else np.zeros(0, int)
    return {
        "image_themes": image_themes,
        "task_themes": task_themes,
        "from_tasks": views.from_tasks,
        "sample_sheet": make_sheet(np.asarray(pool.samples[shown])) if len(shown) else None,
        "mean_sheet": None if views.means is None else make_sheet(views.means),
    }


def _outcomes(
    result: StudyResult, shown: Shown, colours: dict[str, str], figures: Content
) -> Content:
    if result.diagram is not None:
        figures["diagram"] = charts.diagram_chart(result.diagram, colours)
    trained = outcomes(result.selection)
    rules = rule_colours([o.rule for o in trained])
    selection: dict[str, list[Outcome]] = {}
    for outcome in trained:
        selection.setdefault(outcome.learner, []).append(outcome)
    for i, own in enumerate(selection.values()):
        figures[f"selection-{i}"] = charts.selection_chart(own, rules, result.asked("selection"))
    evaluated = [n for n in result.forecasts if n in result.accuracy and result.has_forecast(n)]
    for i, name in enumerate(evaluated):
        figures[f"forecast-{i}"] = charts.forecast_chart(result, name, shown.test, colours[name])
    return {"selection": selection, "evaluated": evaluated}


def _forecast_from(result: StudyResult) -> str:
    """How many labelled samples forecasts knew, where the settings say so."""
    shots = [result.shot(section) for section in ("forecast", "tasks")]
    if None in shots:
        return ""
    shot = shots[0] or shots[1]
    samples = f"{shot} labelled sample{'s' if shot != 1 else ''}" if shot else "all samples"
    return f", known by {samples} of each class"
