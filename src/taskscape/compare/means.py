"""Mean distance to a whole training set, exactly and without a matrix, and quantiles of it."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from taskscape.compare.index import THREADS
from taskscape.compare.posteriors import (
    Tasks,
    check_together,
    combine_members,
    expected_log,
    member_weights,
    read_chunks,
    read_lam,
    read_scales,
    typical,
)
from taskscape.embeddings import LamStream
from taskscape.embeddings.blocks import log_beta
from taskscape.errors import DataError
from taskscape.statistics import pairwise_spearman

_ROWS = 1 << 16
_PAIRS = 1 << 21
_SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class TrainSummary:
    r"""All that the mean KL needs to know of a training set.

    .. math:: \bar\lambda = \frac1M \sum_d \lambda_d, \quad
        \overline{\ln B} = \frac1M \sum_d \ln B(\lambda_d)
    """

    n_tasks: int
    mean_lam: Float[np.ndarray, "members L"]
    mean_log_beta: Float[np.ndarray, "members"]


def summarise(train: Tasks | Iterable[Tasks]) -> TrainSummary:
    """Mean λ and mean ln B of the training tasks, in one pass, summed in float64.

    ``train`` is an array of λ, embedded tasks, or an iterable of chunks of either, of which only
    one is in memory at a time. A catalogue knows both sums of each of its files: none is read.
    """
    if isinstance(train, TrainSummary):
        return train
    known = train.sums() if isinstance(train, LamStream) else None
    if known is not None:
        n_tasks = sum(s.tasks for s in known)
        if n_tasks == 0:
            raise DataError("train has no tasks.")
        lam_sum = np.sum([s.lam for s in known], axis=0)
        log_beta_sum = np.sum([s.log_beta for s in known], axis=0)
        return TrainSummary(n_tasks, lam_sum / n_tasks, log_beta_sum / n_tasks)
    n_tasks, shape = 0, None
    lam_sum = log_beta_sum = np.zeros(())
    for chunk in read_chunks(train, "train"):
        if shape is None:
            shape = (chunk.shape[0], chunk.shape[2])
        elif shape != (chunk.shape[0], chunk.shape[2]):
            raise DataError(
                f"train has chunks of {shape[0]} members and {shape[1]} task-themes, and of "
                f"{chunk.shape[0]} and {chunk.shape[2]}; embed all with the same model."
            )
        n_tasks += chunk.shape[1]
        lam_sum = lam_sum + chunk.sum(axis=1)
        log_beta_sum = log_beta_sum + _log_beta_sum(chunk)
    if n_tasks == 0:
        raise DataError("train has no tasks.")
    return TrainSummary(n_tasks, lam_sum / n_tasks, log_beta_sum / n_tasks)


def _log_beta_sum(lam: Float[np.ndarray, "members tasks L"]) -> Float[np.ndarray, "members"]:
    def of(piece: np.ndarray) -> np.ndarray:
        return gammaln(piece).sum(axis=(1, 2)) - gammaln(piece.sum(axis=2)).sum(axis=1)

    pieces = [lam[:, start : start + _ROWS] for start in range(0, lam.shape[1], _ROWS)]
    if len(pieces) < 4:
        return np.asarray(sum(map(of, pieces)))
    with ThreadPoolExecutor(THREADS) as pool:  # SciPy lets go of the interpreter lock
        return np.asarray(sum(pool.map(of, pieces)))


def mean_kl(
    test: Tasks, train: Tasks | Iterable[Tasks] | TrainSummary, *, scales: object = None
) -> Float[np.ndarray, "tasks"]:
    r"""Mean KL divergence from each test task to all training tasks, in O(M + T).

    .. math:: \bar D_i = \overline{\ln B} - \ln B(\lambda_i)
        + \sum_l (\lambda_{il} - \bar\lambda_l)\, E_i[\ln\phi_l]

    KL is affine in (λ_d, ln B(λ_d)) of the training task, so its mean needs only their means.
    ``train`` may be an iterable of chunks, or what :func:`summarise` made of it. An ensemble's
    distances are averaged over members, each divided by ``scales``, by default the member's mean
    over these test tasks (see :func:`member_scales`).

    Paper: the first equation of its section on the correlation diagram.

    >>> float(mean_kl(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))[0])
    0.0
    """
    a = read_lam(test, "test")
    return combine_members(_mean_kl_of_members(a, summarise(train)), scales)


def _mean_kl_of_members(
    a: Float[np.ndarray, "members tasks L"], train: TrainSummary
) -> Float[np.ndarray, "members tasks"]:
    check_together(a, train.mean_lam[:, None])
    linear = ((a - train.mean_lam[:, None]) * expected_log(a)).sum(-1)
    return np.maximum(train.mean_log_beta[:, None] - log_beta(a) + linear, 0.0)


def member_scales(
    test: Tasks, train: Tasks | Iterable[Tasks] | TrainSummary
) -> Float[np.ndarray, "members"]:
    """Mean KL over all pairs of test and training tasks, for each member of an ensemble.

    It is 1 for a member whose tasks all fall on one point.
    Pass it as ``scales`` to several calls whose results are to be compared with each other.
    """
    means = _mean_kl_of_members(read_lam(test, "test"), summarise(train)).mean(axis=1)
    return typical(means)


def member_agreement(
    test: Tasks, train: Tasks | Iterable[Tasks] | TrainSummary
) -> Float[np.ndarray, "pairs"]:
    """Rank correlation of the tasks' mean KL to the training tasks, for each pair of members.

    Where the fits of an ensemble disagree about the distances of some tasks, one fit's word on them
    is worth little; 0 for a pair of which one has all tasks at the same distance.

    >>> lam = np.array([[[1.0, 2.0], [1.0, 5.0]], [[2.0, 1.0], [7.0, 1.0]]])
    >>> member_agreement(lam, lam[:, :1]).round(3).tolist()
    [1.0]
    """
    distances = _mean_kl_of_members(read_lam(test, "test"), summarise(train))
    return np.nan_to_num(np.array(pairwise_spearman(distances)))


def weights_for(
    a: Float[np.ndarray, "members tasks L"], train: Tasks | Iterable[Tasks], scales: object
) -> Float[np.ndarray, "members"]:
    """What each member's KL is multiplied by before the sum over members."""
    if scales is not None:
        return member_weights(read_scales(scales, len(a)))
    if len(a) == 1:
        return np.ones(1)
    if isinstance(train, Iterable) and iter(train) is train:
        raise DataError(
            "train can be read only once, and an ensemble needs each member's mean distance "
            "first. Pass a list of chunks, a catalogue, or scales=member_scales(test, train)."
        )
    return member_weights(member_scales(a, train))
