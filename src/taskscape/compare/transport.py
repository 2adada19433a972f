"""Optimal transport: the least cost of moving weights from one set of places to another."""

from math import lcm

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import csc_array, eye_array, kron, vstack

_PAIRS_AT_ONCE = 128
"""Problems in one linear programme: fewer cost more calls, more cost a longer search."""
_MOST_COPIES = 512
"""Up to this many places an assignment is quicker than a linear programme."""


def move_weights(
    costs: Float[np.ndarray, "#pairs n m"],
    a: Float[np.ndarray, "pairs n"],
    b: Float[np.ndarray, "pairs m"],
) -> Float[np.ndarray, "pairs"]:
    r"""Least cost of moving the weights ``a`` onto the weights ``b``, for every pair of them.

    .. math:: \min_{T \ge 0} \sum_{ij} T_{ij} c_{ij} \quad \text{with} \quad
        \sum_j T_{ij} = a_i, \quad \sum_i T_{ij} = b_j

    Both weights of a pair have the same sum. Solved exactly, as linear programmes.
    """
    costs = np.broadcast_to(costs, (len(a), a.shape[1], b.shape[1]))
    total = a.sum(axis=1, keepdims=True)
    a, b = (x / np.where(total > 0, total, 1.0) for x in (a, b))  # the solver's tolerance is 1e-7
    least = np.empty(len(a))
    for start in range(0, len(a), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        least[part] = _move_some(costs[part], a[part], b[part])
    return least * total[:, 0]


def _move_some(
    costs: Float[np.ndarray, "pairs n m"],
    a: Float[np.ndarray, "pairs n"],
    b: Float[np.ndarray, "pairs m"],
) -> Float[np.ndarray, "pairs"]:
    pairs, n, m = costs.shape
    can_move = ((a > 0)[:, :, None] & (b > 0)[:, None, :]).ravel()
    if not can_move.any():
        return np.zeros(pairs)
    sums = csc_array(kron(eye_array(pairs), _sums(n, m)))[:, can_move]
    weights = np.concatenate([a, b[:, :-1]], axis=1).ravel()
    moved = np.zeros(costs.size)
    solution = linprog(costs.ravel()[can_move], A_eq=sums, b_eq=weights, method="highs-ds")
    if solution.x is None:
        raise ArithmeticError(f"optimal transport was not solved: {solution.message}")
    moved[can_move] = solution.x
    return (moved.reshape(pairs, -1) * costs.reshape(pairs, -1)).sum(axis=1)


def _sums(n: int, m: int) -> csc_array:
    """Sums over rows and columns of a plan; the last column's follows from the others."""
    rows = kron(eye_array(n), np.ones((1, m)))
    columns = kron(np.ones((1, n)), eye_array(m).tocsr()[:-1])
    return csc_array(vstack([rows, columns]))


def move_equal_weights(costs: Float[np.ndarray, "n m"]) -> float:
    r"""Least cost where the n places of the first set weigh :math:`1/n` each, the others 1/m.

    Places are copied until both sets have as many, and then assigned to each other.
    """
    n, m = costs.shape
    copies = lcm(n, m)
    if copies > max(n, m, _MOST_COPIES):
        return float(move_weights(costs[None], np.full((1, n), 1 / n), np.full((1, m), 1 / m))[0])
    square = np.repeat(np.repeat(costs, copies // n, axis=0), copies // m, axis=1)
    return float(square[linear_sum_assignment(square)].mean())
