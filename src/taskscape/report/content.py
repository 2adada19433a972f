"""What the templates and the script of the page are given, from a study's results."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, cycle
from textwrap import shorten
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int

from taskscape.diagram.plot import COLOURS
from taskscape.meta import label_of
from taskscape.pools import ClassPool
from taskscape.pools.pool import SPLITS
from taskscape.report import figures as charts
from taskscape.report.tasks import Shown, choose_shown, task_data, used_classes
from taskscape.report.themes import Numbered, Sheet, make_sheet, mean_pictures, view_themes
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
_EXAMPLES = 18
_LONGEST = 120
"""Of a sentence, in characters."""
_PARTS = 4
"""Image-themes that are named as the parts of a task-theme."""


def gather(result: StudyResult) -> tuple[Content, Content, dict[str, str]]:
    """What the templates need, what the script needs, and the sheets of pictures by name."""
    shown, paper = choose_shown(result), result.model.co_clustering_
    assert paper is not None
    samples, classes = view_themes(result.pool, paper)
    book = _ClassBook.of(result, shown, classes)
    unit, short_unit = _units(result)
    pictures = result.pool.is_images or len(result.pool.info.get("encoded_shape", ())) > 1
    learners = dict.fromkeys([*result.accuracy, *(trial.learner for trial in result.selection)])
    colours = dict(zip(learners, cycle(COLOURS), strict=False))
    looks = paper.elbo_history_.reshape(-1, 2)[:, 1]
    outcomes = _outcomes(result, shown, colours)
    both = {
        "unit": unit,
        "short_unit": short_unit,
        "learners": colours,
        "asked": result.asked("evaluate"),
        "tie": TIE if short_unit else SAME,
        "figures": outcomes["figures"] | {"bound": charts.bound_chart(paper)},
    }
    content = both | {
        "result": result,
        "paper": paper,
        "looks": looks,
        "rising": len(looks) > 1
        and looks[-1] - looks[:-1].max() > max(0.0, _RISING * (looks[-1] - looks[0])),
        "shown": shown,
        "kind": "image" if pictures else "sample",
        "ways": WAYS,
        "baselines": BASELINES,
        "book": book,
        "splits": split_rows(result.pool, book.place),
        "split_colours": charts.SPLITS,
        "themes": _themes(result.pool, paper, samples, classes, book),
        "settings": flat_settings(result.settings),
        "ties": None if result.ties is None else int(np.median(result.ties)),
        "targets": _targets(result, book.place),
        "selection": outcomes["selection"],
        "evaluated": outcomes["evaluated"],
        "meanings": RULES,
    }
    trust = result.retrieval
    data = both | task_data(result, shown, book.place)
    data |= {
        "classes": book.names,
        "said": book.said,
        "trust": trust and f"{trust.verdict} {trust.because}",
        "sheet": book.sheet and {"columns": book.sheet.columns},
        "scale": charts.SCALE,
    }
    images = {
        "classes": book.sheet,
        "samples": content["themes"]["sample_sheet"],
        "means": content["themes"]["mean_sheet"],
    }
    return content, data, {name: sheet.uri for name, sheet in images.items() if sheet}


def _units(result: StudyResult) -> tuple[str, str]:
    """What distances are, and what they are in."""
    by = result.settings.get("similarity", DEFAULT_SIMILARITY)
    if by == DEFAULT_SIMILARITY:
        return "distance (1 is the mean between training tasks)", ""
    nats = by == TASK_THEMES and result.test.factor(TASK_THEMES).header.unit
    return (f"KL divergence ({nats})", nats) if nats else (f"distance ({by})", "")


@dataclass(frozen=True, eq=False)
class _ClassBook:
    """The classes that the page shows, their names, and a picture of each."""

    place: Int[np.ndarray, "classes"]
    """Where each class of the pool is in the book; -1 if it is not."""
    names: list[str]
    sheet: Sheet | None
    said: list[str] | None
    """For samples that are sentences, the first of each class."""

    @staticmethod
    def of(result: StudyResult, shown: Shown, typical: Numbered) -> "_ClassBook":
        pool = result.pool
        some = [few for split in _by_group(pool).values() for few in map(_few, split.values())]
        parts = [used_classes(result, shown), *typical, *some]
        used = np.unique(np.concatenate(parts)).astype(np.int64)
        place = np.full(len(pool), -1, dtype=np.int64)
        place[used] = np.arange(len(used))
        names = [pool.class_names[c] for c in used.tolist()]
        if pool.is_images:
            return _ClassBook(place, names, make_sheet(pool.samples[pool.starts[used]]), None)
        said = [said_of(pool, row) for row in pool.starts[used].tolist()]
        return _ClassBook(place, names, None, said if any(said) else None)


def said_of(pool: ClassPool, row: int) -> str:
    """The sentence that a sample is, where its name is one; else nothing."""
    name = "" if pool.sample_names is None else pool.sample_names[row]
    return shorten(name, _LONGEST, placeholder=" …") if " " in name.strip() else ""


def _few(members: list[int]) -> Int[np.ndarray, "few"]:
    """A few classes from all over a group."""
    return evenly_spaced(np.asarray(members, dtype=np.int64), _EXAMPLES)


def _themes(
    pool: ClassPool, model: CoClustering, samples: Numbered, classes: Numbered, book: _ClassBook
) -> Content:
    pictures = count()

    def about(row: int) -> Content:
        c, sample = pool.locate_row(row)
        named = {"name": pool.class_names[c], "sample": sample, "said": said_of(pool, row)}
        return {"picture": next(pictures), **named}

    image_themes = [
        {"number": k, "usage": usage, "samples": [about(row) for row in rows.tolist()]}
        for k, usage, rows in zip(count(1), model.theme_usage_, samples, strict=False)
    ]
    mixture = model.alpha_ / model.alpha_.sum(axis=1, keepdims=True)
    task_themes = [
        {
            "number": i + 1,
            "usage": model.health_.task_theme_usage[i],
            "colour": charts.THEMES[i % len(charts.THEMES)],
            "top": [(int(k), float(mixture[i, k])) for k in np.argsort(-mixture[i])[:_PARTS]],
            "classes": book.place[typical].tolist(),
        }
        for i, typical in enumerate(classes)
    ]
    return {
        "image_themes": image_themes,
        "task_themes": task_themes,
        "sample_sheet": pool.is_images and make_sheet(pool.samples[np.concatenate(samples)]),
        "mean_sheet": pool.is_images and make_sheet(mean_pictures(pool, samples)),
    }


def _outcomes(result: StudyResult, shown: Shown, colours: dict[str, str]) -> Content:
    """The figures of what learners reached, their selection, and whose forecasts tell anything."""
    figures: Content = {}
    if result.diagram is not None:
        figures["diagram"] = charts.diagram_chart(result.diagram, colours)
    if result.retrieval is not None and result.retrieval.measure.by_group:
        figures["retrieval"] = charts.retrieval_chart(result.retrieval.measure)
    trained = outcomes(result.selection)
    rules = charts.rule_colours([o.rule for o in trained])
    selection: dict[str, list[Outcome]] = {}
    for outcome in trained:
        selection.setdefault(outcome.learner, []).append(outcome)
    for i, own in enumerate(selection.values()):
        figures[f"selection-{i}"] = charts.selection_chart(own, rules, result.asked("selection"))
    evaluated = [name for name in result.forecasts if result.has_forecast(name)]
    for i, name in enumerate(evaluated):
        figures[f"forecast-{i}"] = charts.forecast_chart(result, name, shown.test, colours[name])
    return {"figures": figures, "selection": selection, "evaluated": evaluated}


# -- tables --------------------------------------------------------------------------------------


def _by_group(pool: ClassPool) -> dict[str, dict[str, list[int]]]:
    """The classes of every split, by group; one nameless split or group where there are none."""
    rows: dict[str, dict[str, list[int]]] = {}
    for split in [s for s in SPLITS if s in pool.splits] if pool.splits else [""]:
        for c in pool.classes_in(split or None).tolist():
            group = pool.groups[c] if pool.groups else ""
            rows.setdefault(split, {}).setdefault(group, []).append(c)
    return rows


def split_rows(pool: ClassPool, place: Int[np.ndarray, "classes"]) -> list[Content]:
    """The splits of a pool: of each group its name, how many classes, and the places of some."""
    return [
        {
            "split": split,
            "n_classes": sum(map(len, groups.values())),
            "n_samples": sum(int(pool.counts[own].sum()) for own in groups.values()),
            "groups": [(name, len(own), place[_few(own)].tolist()) for name, own in groups.items()],
        }
        for split, groups in _by_group(pool).items()
    ]


def flat_settings(settings: Mapping[str, Any]) -> tuple[tuple[str, Rows], ...]:
    """Settings by stage, each as rows of a dotted name and a value in words."""
    stages = {name: values for name, values in settings.items() if isinstance(values, Mapping)}
    general = {name: value for name, value in settings.items() if name not in stages}
    named = {"general": general, **stages} if general else stages
    return tuple((stage, in_rows(values)) for stage, values in named.items())


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
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_in_words(v) for v in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


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
