"""The part of the page about targets: a matrix of distances, and a card for each."""

from collections.abc import Mapping
from typing import Any

from taskscape.meta import label_of
from taskscape.study.result import StudyResult
from taskscape.targets import Advice


def view_targets(result: StudyResult, place: Any) -> dict[str, Any] | None:
    """What the template shows of the targets of a study, or None where it has none.

    ``rows`` are distances, with how near each is, from 0 for the farthest to 1. ``place`` says
    which classes have a picture, and where.
    """
    if not result.targets:
        return None
    by_name: dict[str, list[Advice]] = {}
    for advice in result.targets:
        by_name.setdefault(advice.target, []).append(advice)
    sources = sorted(s.name for s in result.targets[0].sources)
    settings = result.settings.get("targets")
    shot = settings.get("n_shot") if isinstance(settings, Mapping) else None
    return {
        "sources": sources,
        "labelled": f"{'a few' if shot is None else f'up to {shot}'} labelled samples",
        "rows": [_row(name, own[0], sources) for name, own in by_name.items()],
        "cards": [_card(result, name, own, place) for name, own in by_name.items()],
    }


def _row(name: str, advice: Advice, sources: list[str]) -> dict[str, Any]:
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


def _card(result: StudyResult, name: str, own: list[Advice], place: Any) -> dict[str, Any]:
    groups = result.pool.groups or ()
    members = [c for c, group in enumerate(groups) if group == name and place[c] >= 0]
    return {
        "name": name,
        "classes": [int(place[c]) for c in members[:10]],
        "nearest": own[0].nearest,
        "advice": [(label_of(advice.learner), advice) for advice in own],
    }
