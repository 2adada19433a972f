"""The registry of learners: the only list of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from taskscape.errors import DataError
from taskscape.meta import abml, bmaml, maml, protonet, vampire
from taskscape.meta.learner import Bayesian, Learner, LearnerEntry

__all__ = ["LEARNERS", "bayesian_labels", "find_learner", "label_of", "make_learner"]

_ALL = (
    protonet.ENTRY,
    maml.ENTRY,
    abml.ENTRY,
    bmaml.ENTRY,
    vampire.ENTRY,
)
LEARNERS: Mapping[str, LearnerEntry] = MappingProxyType({entry.name: entry for entry in _ALL})
"""Every learner by name."""


def find_learner(name: str) -> LearnerEntry:
    """The entry of the learner of that name."""
    if name not in LEARNERS:
        raise DataError(f"learner {name!r} is not known; choose from {', '.join(LEARNERS)}.")
    return LEARNERS[name]


def make_learner(name: str, **settings: Any) -> Learner:
    """A learner by name; other settings than its defaults can be given.

    >>> make_learner("maml", inner_steps=3)
    MAML(inner_rate=0.2, inner_steps=3, first_order=False)
    """
    entry = find_learner(name)
    odd = sorted(set(settings) - set(entry.defaults))
    if odd:
        has = ", ".join(sorted(entry.defaults)) or "none"
        raise DataError(f"{name} has no setting {odd[0]!r}; it has {has}.")
    learner: Learner = entry.kind(**settings)
    return learner


def label_of(name: str) -> str:
    """What results call a learner, or a variant of one that a study names.

    >>> label_of("protonet"), label_of("maml-untuned"), label_of("theirs")
    ('ProtoNet', 'MAML, untuned', 'theirs')
    """
    base, _, variant = name.partition("-")
    if base not in LEARNERS:
        return name
    return ", ".join([LEARNERS[base].label, *([variant] if variant else [])])


def bayesian_labels() -> str:
    """The learners that adapt many sets of weights, in words."""
    *most, last = sorted(e.label for e in LEARNERS.values() if issubclass(e.kind, Bayesian))
    return f"{', '.join(most)} and {last}" if most else last
