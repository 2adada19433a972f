"""Ways to choose training tasks for a target: by a similarity measure, by several, by chance."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from taskscape.arguments import check_choice
from taskscape.errors import DataError
from taskscape.select import select
from taskscape.select.known import RANDOM
from taskscape.targets.known import HALF, RANKS


def choose(
    way: str,
    distances: Mapping[str, Float[np.ndarray, "tests trains"]],
    n: int,
    *,
    seed: int,
    ranked: Sequence[str] = (),
) -> Int[np.ndarray, "n"]:
    """The candidates that a way chooses for the tasks of a target, by rule ``coverage``.

    ``distances`` are those from the tasks of the target to the candidates, by similarity measure;
    ``ranked`` are the measures whose ranks are averaged, by default all.
    """
    n_candidates = next(iter(distances.values())).shape[1]
    if not 1 <= n <= n_candidates:
        raise DataError(f"a budget of {n} must lie between 1 and the {n_candidates} candidates.")
    by_chance = np.random.default_rng([seed, 7]).permutation(n_candidates)
    if way == RANDOM:
        return by_chance[:n]
    if way == HALF:
        near = choose(RANKS, distances, n_near(way, n), seed=seed, ranked=ranked)
        rest = by_chance[~np.isin(by_chance, near)]
        return np.concatenate([near, rest[: n - len(near)]])
    check_choice(way, "way", [*distances, RANKS, HALF, RANDOM])
    matrix = chosen_by(way, distances, ranked)
    return select(None, None, n, "coverage", similarity=matrix, seed=seed).indices


def n_near(way: str, n: int) -> int:
    """How many of n tasks a way chooses for being near; the rest, the last ones, are by chance."""
    return {RANDOM: 0, HALF: max(1, n // 2)}.get(way, n)


def measure_of(way: str) -> str:
    """What a way goes by, and what the distances to sources are by: a measure, or ranks."""
    return RANKS if way in (HALF, RANDOM) else way


def chosen_by(
    way: str, distances: Mapping[str, Float[np.ndarray, "tests trains"]], ranked: Sequence[str] = ()
) -> Float[np.ndarray, "tests trains"]:
    """The distances that a way goes by."""
    name = measure_of(way)
    if name == RANKS:
        return mean_ranks([distances[each] for each in ranked or distances])
    return distances[name]


def mean_ranks(
    matrices: Sequence[Float[np.ndarray, "tests trains"]],
) -> Float[np.ndarray, "tests trains"]:
    """For each task of the target, every candidate's mean rank: no measure rules by its scale.

    As a part of the candidates: those of a rank of 0.1 are among the nearest tenth.
    """
    return np.mean([rankdata(m, axis=1) / m.shape[1] for m in matrices], axis=0)
