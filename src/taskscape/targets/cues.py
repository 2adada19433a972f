"""What can be known of a choice before anyone has seen the target's queries."""

import math

import numpy as np

from taskscape.similarity.known import TASK_THEMES
from taskscape.targets.advisor import Outlook
from taskscape.targets.trials import WayTrials

__all__ = ["cues_of", "evidence_of"]

_MOST_GAP = 8.0


def evidence_of(trials: WayTrials, random: WayTrials) -> float | None:
    """What the target's labelled samples, each left out in turn, say for a way over chance.

    In nats per sample; None where a class has a single sample.
    """
    if trials.held_out is None or random.held_out is None:
        return None
    return float(trials.held_out.mean() - random.held_out.mean())


def cues_of(outlook: Outlook, trials: WayTrials, random: WayTrials) -> dict[str, float]:
    """The cues of what a way chose for a target.

    - ``nearest``: logarithm of the distance to the nearest source
    - ``contrast``: logarithm of the distance to the middle source over that to the nearest
    - ``gap``: how far the target's bound lies below that of training tasks
    - ``agreement``: share of the tasks that both task-themes and prototypes choose
    - ``focus``: share of the chosen tasks that come from one source
    - ``room``: error on the target's labelled samples, each left out, after random training
    - ``evidence``: log-likelihood of those samples, more than after random training
    - ``budget``: logarithm of the number of tasks
    """
    by_source = np.array(list(outlook.by_source(TASK_THEMES).values()))
    chosen = trials.chosen[0]
    groups = np.asarray(outlook.sources.group_of)[chosen]
    shares = np.unique(groups, return_counts=True)[1] / len(chosen)
    budget = random.budget
    near = [set(outlook.choose(name, budget, seed=0).tolist()) for name in outlook.ranked]
    agreement = len(set.intersection(*near)) / budget
    room = 0.5
    if random.held_out_accuracy is not None:
        room = float(1 - random.held_out_accuracy.mean())
    return {
        "nearest": math.log(max(float(by_source.min()), 1e-3)),
        "contrast": math.log(max(float(np.median(by_source)), 1e-3) / max(by_source.min(), 1e-3)),
        "gap": float(np.clip(outlook.gap or 0.0, -_MOST_GAP, _MOST_GAP)),
        "agreement": agreement,
        "focus": float(shares.max()),
        "room": room,
        "evidence": evidence_of(trials, random) or 0.0,
        "budget": math.log(budget),
    }
