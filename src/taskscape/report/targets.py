"""The part of the page about targets: a matrix of distances, and a card for each."""

import math
from dataclasses import dataclass
from typing import Any

from taskscape.meta import label_of
from taskscape.studies.result import StudyResult
from taskscape.targets import Advice

__all__ = ["TargetsView", "view_targets"]

_NEAREST = 3
_FROM = 4


@dataclass(frozen=True)
class TargetsView:
    """What the template shows."""

    sources: list[str]
    rows: list[dict[str, Any]]
    """A row of distances for each target, with how near each is from 0 to 1."""
    cards: list[dict[str, Any]]


def view_targets(result: StudyResult, place: Any) -> TargetsView | None:
    """The targets of a study, or None where it has none.

    ``place`` says which classes have a picture, and where.
    """
    if not result.targets:
        return None
    by_name: dict[str, list[Advice]] = {}
    for advice in result.targets:
        by_name.setdefault(advice.target, []).append(advice)
    sources = sorted(s.name for s in result.targets[0].sources)
    rows = [_row(name, own[0], sources) for name, own in by_name.items()]
    cards = [_card(result, name, own, place) for name, own in by_name.items()]
    return TargetsView(sources, rows, cards)


def _row(name: str, advice: Advice, sources: list[str]) -> dict[str, Any]:
    distance = {s.name: s.distance for s in advice.sources}
    least = min(distance.values())
    cells = [
        {
            "distance": distance[source],
            "near": math.exp((least - distance[source]) / max(least, 1.0)),
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
        "nearest": own[0].sources[:_NEAREST],
        "explained": own[0].explained,
        "advice": [
            {
                "learner": advice.learner,
                "shown": label_of(advice.learner),
                "way": advice.way,
                "why": advice.why,
                "chosen": advice.chosen,
                "from_": [
                    s for s in sorted(advice.sources, key=lambda s: -s.chosen)[:_FROM] if s.chosen
                ],
                "held_out": advice.held_out,
                "expected": () if advice.decision is None else advice.decision.expected,
                "measured": advice.measured,
                "accuracy": advice.accuracy,
            }
            for advice in own
        ],
    }
