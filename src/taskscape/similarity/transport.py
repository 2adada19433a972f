"""Optimal transport between the classes of many pairs of tasks."""

from functools import cache
from itertools import permutations

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

__all__ = ["transport", "transport_classes"]

_TRY_ALL = 5
"""Up to this many classes all assignments (120) are tried at once, in one matrix product."""


def transport_classes(
    costs: Float[np.ndarray, "tasks others way another_way"],
    n_way: Int[np.ndarray, "tasks"],
    other_way: Int[np.ndarray, "others"],
) -> Float[np.ndarray, "tasks others"]:
    r"""Least mean cost of moving the classes of one task onto those of another.

    .. math:: \min_T \sum_{cd} T_{cd} C_{cd}, \quad T 1 = 1/C_a, \quad T^\top 1 = 1/C_b

    Every class of a task weighs the same. Between tasks with as many classes this is the optimal
    assignment; with different numbers of classes, a class is divided among several.
    """
    found = np.empty(costs.shape[:2])
    for way in np.unique(n_way):
        for other in np.unique(other_way):
            place = np.ix_(n_way == way, other_way == other)
            some = costs[place][..., :way, :other]
            flat = some.reshape(-1, int(way), int(other))
            found[place] = _transport_all(flat).reshape(some.shape[:2])
    return found


def _transport_all(costs: Float[np.ndarray, "pairs way other"]) -> Float[np.ndarray, "pairs"]:
    _, way, other = costs.shape
    if way != other:
        a, b = np.full(way, 1 / way), np.full(other, 1 / other)
        return np.array([transport(c, a, b) for c in costs])
    if way <= _TRY_ALL:
        return (costs.reshape(len(costs), -1) @ _assignments(way)).min(axis=1) / way
    return np.array([c[linear_sum_assignment(c)].mean() for c in costs])


@cache
def _assignments(way: int) -> Float[np.ndarray, "cells assignments"]:
    """Every assignment as a column of zeros and ones over the cells of a cost matrix."""
    orders = np.array(list(permutations(range(way))))
    return np.eye(way)[orders].reshape(len(orders), way * way).T


def transport(
    costs: Float[np.ndarray, "n m"], a: Float[np.ndarray, "n"], b: Float[np.ndarray, "m"]
) -> float:
    """Least cost of moving the weights ``a`` onto the weights ``b``."""
    from ot import emd2

    return float(emd2(a, b, np.ascontiguousarray(costs), check_marginals=False))
