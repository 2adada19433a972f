"""What the templates and the script of the page are given, from a study's results."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int

from taskscape.meta import label_of
from taskscape.pools import ClassPool
from taskscape.pools.pool import SPLITS
from taskscape.report import figures as charts
from taskscape.report.tasks import Shown, choose_shown, task_data, used_classes
from taskscape.report.themes import Sheet, ThemeViews, make_sheet, view_themes
from taskscape.select.known import RULES
from taskscape.select.trials import Outcome, outcomes
from taskscape.similarity.known import DEFAULT_SIMILARITY, TASK_THEMES
from taskscape.similarity.nearest_tasks import SAME, TIE
from taskscape.similarity.retrieval import BASELINES
from taskscape.study.result import StudyResult
from taskscape.targets import Advice
from taskscape.targets.known import WAYS
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.places import evenly_spaced

Content: TypeAlias = dict[str, Any]
Rows: TypeAlias = tuple[tuple[str, str], ...]
_RISING = 0.1
"""Of its whole rise: with more of it at the last look, a bound has not levelled off."""
_EXAMPLES, _ROWS_OF_GROUPS = 18, 8
_LONGEST = 120
"""Of a sentence, in characters."""
_PARTS = 4
"""Image-themes that are named as the parts of a task-theme."""


def gather(result: StudyResult) -> tuple[Content, Content, dict[str, str]]:
    """What the templates need, what the script needs, and the sheets of pictures by name."""
    shown = choose_shown(result)
    paper = result.model.co_clustering_
    assert paper is not None
    views = view_themes(result.pool, paper, result.train)
    book = _ClassBook.of(result, shown, views)
    colours = charts.learner_colours(_learners(result))
    unit, short_unit = _units(result)
    pictures = result.pool.is_images or len(result.pool.info.get("encoded_shape", ())) > 1
    figures: Content = {}
    trust = result.retrieval
    both = {
        "unit": unit,
        "short_unit": short_unit,
        "learners": colours,
        "asked": result.asked("evaluate"),
        "tie": TIE if short_unit else SAME,
        "figures": figures,
    }
    content = {
        "result": result,
        "shown": shown,
        "kind": "image" if pictures else "sample",
        "ways": WAYS,
        "n_themes": len(paper.alpha_),
        "n_image_themes": len(paper.mu_),
        "members": len(paper.members_),
        "found": _found(result, figures),
        "thumbnails": book.sheet,
        "book": book,
        "splits": split_rows(result.pool),
        "rows_of_groups": _ROWS_OF_GROUPS,
        "split_colours": charts.SPLITS,
        "themes": _themes(result.pool, paper, views, book),
        "settings": flat_settings(result.settings),
        "versions_and_hardware": {
            "Versions": in_rows(result.versions),
            "Hardware": in_rows(result.hardware),
        },
        "remarks": result.remarks(),
        "ties": None if result.ties is None else int(np.median(result.ties)),
        "representation_remarks": result.remarks("embed", "health"),
        "guessing": result.guessing,
        "chosen_asked": result.asked("selection"),
        "has_forecasts": any(result.has_forecast(name) for name in result.forecasts),
        "forecast_from": result.shot("forecast") or result.shot("tasks"),
        "targets": _targets(result, book.place),
        **_fit(paper, figures),
        **_outcomes(result, shown, colours, figures),
        "meanings": RULES,
    }
    data = task_data(result, shown, book.place) | {
        "classes": book.names,
        "said": book.said,
        "trust": trust and f"{trust.verdict} {trust.because}",
        "sheet": None if book.sheet is None else book.sheet.to_dict(),
        "scale": charts.SCALE,
    }
    images = {
        "classes": book.sheet,
        "samples": content["themes"]["sample_sheet"],
        "means": content["themes"]["mean_sheet"],
    }
    uris = {name: sheet.uri for name, sheet in images.items() if sheet is not None}
    return content | both, data | both, uris


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
        parts = [used_classes(result, shown), *views.classes]
        parts += [_few(members) for row in split_rows(pool) for _, members in row["groups"]]
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
    if (bound := charts.bound_chart(model)) is not None:
        figures["bound"] = bound
    looks = model.elbo_history_.reshape(-1, 2)[:, 1]
    return {
        "health": model.health_,
        "rising": len(looks) > 1
        and looks[-1] - looks[-2] > max(0.0, _RISING * (looks[-1] - looks[0])),
        "looks": len(looks),
        "best_bound": float(looks.max()) if len(looks) else None,
        "preparation": model.preparation_.config.describe(),
        "explained": model.preparation_.explained,
    }


def _themes(pool: ClassPool, model: CoClustering, views: ThemeViews, book: _ClassBook) -> Content:
    rows = [row for of_theme in views.samples for row in of_theme.tolist()]
    samples = []
    for at, row in enumerate(rows):
        c, sample = pool.locate_row(row)
        name, said = pool.class_names[c], said_of(pool, row)
        samples.append({"picture": at, "name": name, "sample": sample, "said": said})
    ends = np.cumsum([len(of_theme) for of_theme in views.samples], dtype=int).tolist()
    image_themes = [
        {
            "number": k + 1,
            "usage": usage,
            "samples": samples[ends[k] - len(views.samples[k]) : ends[k]] if ends else [],
        }
        for k, usage in enumerate(model.theme_usage_)
    ]
    mixture = model.alpha_ / model.alpha_.sum(axis=1, keepdims=True)
    task_themes = [
        {
            "number": i + 1,
            "usage": model.health_.task_theme_usage[i],
            "colour": charts.theme_colours(len(mixture))[i],
            "top": [(int(k), float(mixture[i, k])) for k in np.argsort(-mixture[i])[:_PARTS]],
            "classes": [int(book.place[c]) for c in classes],
        }
        for i, classes in enumerate(views.classes)
    ]
    return {
        "image_themes": image_themes,
        "task_themes": task_themes,
        "from_tasks": views.from_tasks,
        "sample_sheet": make_sheet(np.asarray(pool.samples[rows]))
        if pool.is_images and rows
        else None,
        "mean_sheet": None if views.means is None else make_sheet(views.means),
    }


def _outcomes(
    result: StudyResult, shown: Shown, colours: dict[str, str], figures: Content
) -> Content:
    if result.diagram is not None:
        figures["diagram"] = charts.diagram_chart(result.diagram, colours)
    trained = outcomes(result.selection)
    rules = charts.rule_colours([o.rule for o in trained])
    selection: dict[str, list[Outcome]] = {}
    for outcome in trained:
        selection.setdefault(outcome.learner, []).append(outcome)
    for i, own in enumerate(selection.values()):
        figures[f"selection-{i}"] = charts.selection_chart(own, rules, result.asked("selection"))
    evaluated = [n for n in result.forecasts if n in result.accuracy and result.has_forecast(n)]
    for i, name in enumerate(evaluated):
        figures[f"forecast-{i}"] = charts.forecast_chart(result, name, shown.test, colours[name])
    return {"selection": selection, "evaluated": evaluated}


# -- tables --------------------------------------------------------------------------------------


def split_rows(pool: ClassPool) -> list[Content]:
    """The splits of a pool, in order, with the classes of each group; one nameless where none."""
    splits = [""] if pool.splits is None else [s for s in SPLITS if s in pool.splits]
    rows = []
    for split in splits:
        classes = pool.classes_in(split or None)
        groups: dict[str, list[int]] = {}
        for c in classes.tolist():
            groups.setdefault("" if pool.groups is None else pool.groups[c], []).append(c)
        rows.append(
            {
                "split": split,
                "n_classes": len(classes),
                "n_samples": int(pool.counts[classes].sum()),
                "groups": [(name, tuple(own)) for name, own in groups.items()],
            }
        )
    return rows


def flat_settings(settings: Mapping[str, Any]) -> tuple[tuple[str, Rows], ...]:
    """Settings by stage, each as rows of a dotted name and a value in words."""
    stages = {name: values for name, values in settings.items() if isinstance(values, Mapping)}
    general = {name: value for name, value in settings.items() if name not in stages}
    named = {"general": general, **stages} if general else stages
    return tuple((str(stage), in_rows(values)) for stage, values in named.items())


def in_rows(values: Mapping[str, Any], before: str = "") -> Rows:
    """Nested values as rows of a dotted name and words."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += in_rows(value, f"{before}{name}.")
        else:
            rows.append((f"{before}{name}", _in_words(value)))
    return tuple(rows)


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_in_words(v) for v in value) or "none"
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


# -- targets -------------------------------------------------------------------------------------


def _targets(result: StudyResult, place: Int[np.ndarray, "classes"]) -> Content | None:
    """A matrix of distances, and a card for each target; None where a study has none.

    ``rows`` are distances, with how near each is, from 0 for the farthest to 1.
    """
    if not result.targets:
        return None
    by_name: dict[str, list[Advice]] = {}
    for advice in result.targets:
        by_name.setdefault(advice.target, []).append(advice)
    sources = sorted(s.name for s in result.targets[0].sources)
    return {
        "sources": sources,
        "shot": result.shot("targets"),
        "rows": [_row(name, own[0], sources) for name, own in by_name.items()],
        "cards": [_card(result, name, own, place) for name, own in by_name.items()],
    }


def _row(name: str, advice: Advice, sources: list[str]) -> Content:
    shown = {s.name: advice.far(s) for s in advice.sources}
    distance = {s.name: s.distances[advice.measure] for s in advice.sources}
    least, most = min(distance.values()), max(distance.values())
    cells = [
        {
            "distance": shown[source],
            "near": (most - distance[source]) / ((most - least) or 1.0),
            "nearest": distance[source] == least,
        }
        for source in sources
    ]
    return {"name": name, "cells": cells}


def _card(
    result: StudyResult, name: str, own: list[Advice], place: Int[np.ndarray, "classes"]
) -> Content:
    groups = result.pool.groups or ()
    members = [c for c, group in enumerate(groups) if group == name and place[c] >= 0]
    return {
        "name": name,
        "classes": [int(place[c]) for c in members[:10]],
        "nearest": own[0].nearest,
        "advice": [(label_of(advice.learner), advice) for advice in own],
    }
