"""How far apart tasks are: one contract for every divergence between posteriors, and its means."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from taskscape.arguments import (
    Seed,
    as_array,
    as_numbers,
    check_choice,
    check_flag,
    check_memory,
    check_seed,
    check_whole,
)
from taskscape.compare.posteriors import (
    THREADS,
    Affine,
    Tasks,
    check_factors_alike,
    check_together,
    read_chunks,
    read_posterior,
    row_hashes,
)
from taskscape.embeddings import Embeddings, Factor, Posterior, PosteriorStream, Sums
from taskscape.embeddings.factors import TASK_THEMES, expected_log, log_beta, split_columns
from taskscape.errors import DataError
from taskscape.progress import track
from taskscape.statistics import pairwise_spearman

_MOST_SAMPLES = 1_000_000
_BLOCK_NUMBERS = 1 << 22
"""How many numbers a block of a distance matrix may hold while it is computed."""


Lam: TypeAlias = Float[np.ndarray, "*#any L"]


class Estimate(NamedTuple):
    """Divergences and the standard error of each; zero for closed forms."""

    value: Float[np.ndarray, "*any"]
    stderr: Float[np.ndarray, "*any"]


def _itself(total: np.ndarray) -> np.ndarray:
    return total


@dataclass(frozen=True)
class Divergence:
    """A distance between posteriors of tasks, computed factor by factor.

    ``compute`` takes broadcastable arrays (…, L) of concentrations, and the options that
    ``needs_alpha`` and ``has_stderr`` announce: ``cost`` between task-themes, and ``n_samples``
    and ``seed``. It returns the values, or an :class:`Estimate` where it has a standard error.
    ``gaussian`` is the same for means of unit covariance; without it, Dirichlets alone can be
    compared. The values of several factors are summed by weight, and ``finish`` makes the distance
    of the sum.
    """

    name: str
    compute: Callable[..., Any]
    symmetric: bool
    meaning: str
    gaussian: Callable[..., Any] | None = None
    finish: Callable[[np.ndarray], np.ndarray] = _itself
    needs_alpha: bool = False
    has_stderr: bool = False
    most: float = np.inf
    """The largest value it can take."""


def kl(a: Lam, b: Lam) -> np.ndarray:
    r"""Kullback-Leibler divergence from Dirichlet(a) to Dirichlet(b).

    .. math:: KL[a \| b] = \ln B(b) - \ln B(a) + \sum_l (a_l - b_l)\, E_a[\ln\phi_l]
    """
    values = log_beta(b) - log_beta(a) + ((a - b) * expected_log(a)).sum(-1)
    return np.maximum(values, 0.0)


def _squared(a: Lam, b: Lam) -> np.ndarray:
    return np.asarray(((a - b) ** 2).sum(-1))


def kl_reverse(a: Lam, b: Lam) -> np.ndarray:
    r"""KL from the second task to the first.

    .. math:: KL[b \| a]
    """
    return kl(b, a)


def jeffreys(a: Lam, b: Lam) -> np.ndarray:
    r"""Sum of both KL divergences, in which the normalisers cancel.

    .. math:: J = \sum_l (a_l - b_l) (E_a[\ln\phi_l] - E_b[\ln\phi_l])
    """
    return np.maximum(((a - b) * (expected_log(a) - expected_log(b))).sum(-1), 0.0)


def bhattacharyya(a: Lam, b: Lam) -> np.ndarray:
    r"""Bhattacharyya distance.

    .. math:: D_B = \tfrac12 \ln B(a) + \tfrac12 \ln B(b) - \ln B(\tfrac{a + b}{2})
    """
    return np.maximum((log_beta(a) + log_beta(b)) / 2 - log_beta((a + b) / 2), 0.0)


def hellinger(bhattacharyya: np.ndarray) -> np.ndarray:
    r"""Hellinger distance, between 0 and 1, from that of Bhattacharyya.

    .. math:: H = \sqrt{1 - e^{-D_B}}
    """
    return np.sqrt(-np.expm1(-bhattacharyya))


def theme_cost(alpha: Float[np.ndarray, "L K"]) -> Float[np.ndarray, "L L"]:
    r"""Ground cost between task-themes: the Hellinger distance of their class mixtures.

    .. math:: c_{lm} = H(\mathrm{Dir}(\alpha_l), \mathrm{Dir}(\alpha_m))

    A metric, so that the earth mover's distance built on it is one.
    """
    cost = hellinger(bhattacharyya(alpha[:, None], alpha[None]))
    np.fill_diagonal(cost, 0.0)
    return (cost + cost.T) / 2


def jensen_shannon(a: Lam, b: Lam, *, n_samples: int, seed: int) -> Estimate:
    r"""Jensen-Shannon divergence, estimated from points of both distributions.

    .. math:: JS = \ln 2 - E_{(p + q)/2}[h(w)], \quad w = \frac{p}{p + q}, \quad
        h(w) = -w \ln w - (1 - w) \ln(1 - w)

    Since h is at most ln 2, no point contributes a negative value, and equal tasks give exactly
    zero. A task's points depend on its λ and the seed alone, so the order of the two is immaterial.
    """
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    ratio = log_beta(b) - log_beta(a)
    halves = [_information(ratio, a - b, _points(source, n_samples, seed)) for source in (a, b)]
    value = sum(np.broadcast_to(h.mean(-1), shape) for h in halves) / 2
    variance = sum(np.broadcast_to(h.var(-1, ddof=1), shape) for h in halves) / (4 * n_samples)
    return Estimate(np.asarray(value), np.sqrt(variance))


def _information(
    ratio: Float[np.ndarray, "*any"],
    slope: Float[np.ndarray, "*any L"],
    log_phi: Float[np.ndarray, "*one S L"],
) -> Float[np.ndarray, "*any S"]:
    u = ratio[..., None] + (log_phi @ slope[..., None])[..., 0]  # ln p - ln q at every point
    size = np.exp(-np.abs(u))
    entropy = np.log1p(size) + np.abs(u) * size / (1 + size)
    return np.maximum(np.log(2) - entropy, 0.0)


def _points(
    lam: Float[np.ndarray, "*any L"], n_samples: int, seed: int
) -> Float[np.ndarray, "*any S L"]:
    r"""Logarithms of Dirichlet draws, finite however small λ is.

    .. math:: \ln g_l = \ln\mathrm{Gamma}(\lambda_l + 1) + \ln U / \lambda_l, \quad
        \ln\phi = \ln g - \mathrm{logsumexp}(\ln g)
    """
    rows, size = lam.reshape(-1, lam.shape[-1]), (n_samples, lam.shape[-1])
    drawn = np.empty((len(rows), *size))
    for i, (row, h) in enumerate(zip(rows, row_hashes(rows), strict=True)):
        rng = np.random.Generator(np.random.Philox(key=[int(h), seed % 2**64]))
        log_g = np.log(rng.standard_gamma(row + 1, size)) - rng.standard_exponential(size) / row
        log_g -= log_g.max(axis=1, keepdims=True)
        drawn[i] = log_g - np.log(np.exp(log_g).sum(axis=1, keepdims=True))
    return drawn.reshape(*lam.shape[:-1], *size)


def earth_mover(a: Lam, b: Lam, *, cost: Float[np.ndarray, "L L"]) -> Float[np.ndarray, "*any"]:
    r"""Earth mover's distance between expected theme mixtures, solved exactly.

    .. math:: \min_{T \ge 0} \sum_{lm} T_{lm} c_{lm} \quad \text{with} \quad
        \sum_m T_{lm} = \frac{a_l}{\sum_j a_j}, \quad \sum_l T_{lm} = \frac{b_m}{\sum_j b_j}
    """
    from taskscape.compare.transport import move_weights  # slow to import

    first, second = np.broadcast_arrays(a / a.sum(-1, keepdims=True), b / b.sum(-1, keepdims=True))
    shape, L = first.shape[:-1], first.shape[-1]
    first, second = first.reshape(-1, L), second.reshape(-1, L)
    stays = np.minimum(first, second)  # the cost is a metric: what both have need not move
    return move_weights(cost[None], first - stays, second - stays).reshape(shape)


_ALL = (
    Divergence(
        "kl", kl, False, "what is lost when the second task stands in for the first (the paper's)",
        lambda a, b: _squared(a, b) / 2,
    ),
    Divergence(
        "kl_reverse", kl_reverse, False, "what is lost when the first stands in for the other",
        lambda a, b: _squared(a, b) / 2,
    ),
    Divergence("jeffreys", jeffreys, True, "sum of both KL divergences", _squared),
    Divergence(
        "hellinger", bhattacharyya, True, "between 0 and 1; a metric",
        lambda a, b: _squared(a, b) / 8, hellinger, most=1.0,
    ),
    Divergence(
        "bhattacharyya", bhattacharyya, True, "minus the logarithm of the overlap",
        lambda a, b: _squared(a, b) / 8,
    ),
    Divergence(
        "jensen_shannon", jensen_shannon, True,
        "information that a point gives on which task it came from; at most ln 2 nats",
        has_stderr=True, most=float(np.log(2)),
    ),
    Divergence(
        "emd", earth_mover, True,
        "cost of moving one expected theme mixture onto the other, between 0 and 1",
        needs_alpha=True, most=1.0,
    ),
)  # fmt: skip
DIVERGENCES: Mapping[str, Divergence] = MappingProxyType({d.name: d for d in _ALL})
"""Every divergence by name."""


def find_divergence(kind: str) -> Divergence:
    """The divergence of that name."""
    return DIVERGENCES[check_choice(kind, "kind", DIVERGENCES)]


def divergence_with_error(
    test: Tasks,
    train: Tasks,
    kind: str = "kl",
    *,
    alpha: Any = None,
    n_samples: int = 1024,
    seed: Seed = 0,
) -> Estimate:
    """Distances pair by pair, with the standard error of what is estimated by sampling.

    As :func:`distances` with ``paired=True``.
    """
    one = [not isinstance(x, Posterior) and as_array(x).ndim == 1 for x in (test, train)]
    a, b = (
        read_posterior(as_array(x)[None] if alone else x, name)
        for x, name, alone in zip((test, train), ("test", "train"), one, strict=True)
    )
    check_together(a, b)
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        raise DataError(
            f"test has {len(a)} tasks and train {len(b)}; pairs need as many of each, or "
            "one. For all against all leave paired=True out."
        )
    compute = _bind(kind, alpha, n_samples, seed, a.factors)
    value, stderr = compute(a.values.astype(np.float64), b.values.astype(np.float64))
    return Estimate(value[0], stderr[0]) if all(one) else Estimate(value, stderr)


def distances(
    test: Tasks,
    train: Tasks | None = None,
    kind: str = "kl",
    *,
    paired: bool = False,
    alpha: Any = None,
    n_samples: int = 1024,
    seed: Seed = 0,
) -> Any:
    """Distance from every task of ``test`` to every task of ``train``, as a matrix.

    Both are embedded tasks, or λ (tasks, L). Without ``train``, the square matrix of all pairs of
    ``test``, with zeros on the diagonal. With ``paired``, distances from each task to the one in
    the same place; one task (L,) meets many. ``kind`` is an entry of ``DIVERGENCES``; the default
    is KL from the test task to the training task, of each factor by its weight. ``"emd"`` needs
    ``alpha``; ``n_samples`` and ``seed`` steer ``"jensen_shannon"``, whose standard error
    :func:`divergence_with_error` gives.

    For the mean over a large training set use :func:`taskscape.compare.mean_distance`, for the
    nearest tasks :func:`nearest`: neither makes a matrix.

    >>> float(distances(np.array([1.0, 2.0]), np.array([1.0, 2.0]), paired=True))
    0.0
    """
    options: dict[str, Any] = {"alpha": alpha, "n_samples": n_samples, "seed": seed}
    if check_flag(paired, "paired"):
        if train is None:
            raise DataError("paired=True needs train: the task that each task is compared with.")
        return divergence_with_error(test, train, kind, **options).value
    a = read_posterior(test, "test")
    b = a if train is None else read_posterior(train, "train")
    matrix = _matrix(a, b, kind, options)
    if train is None:
        np.fill_diagonal(matrix, 0.0)
    return matrix


def _matrix(
    a: Posterior, b: Posterior, kind: str, options: dict[str, Any]
) -> Float[np.ndarray, "tests trains"]:
    check_together(a, b)
    compute = _bind(kind, options["alpha"], options["n_samples"], options["seed"], a.factors)
    check_memory(
        8 * len(a) * len(b),
        f"a matrix of {len(a):,} × {len(b):,} distances",
        "Use mean_distance or nearest, which make no matrix, or fewer tasks.",
    )
    affine: dict[str, Callable[[], np.ndarray]] = {
        "kl": lambda: Affine.of(a).to_all(b),
        "kl_reverse": lambda: Affine.of(b).to_all(a).T,
    }
    if kind in affine:  # two matrix products, where others go pair by pair
        return affine[kind]()
    matrix = np.empty((len(a), len(b)))
    width = b.values.size * (options["n_samples"] if DIVERGENCES[kind].has_stderr else 1)
    step = max(1, _BLOCK_NUMBERS // width)
    starts, others = range(0, len(a), step), b.values.astype(np.float64)

    def fill(start: int) -> None:
        rows = slice(start, start + step)
        matrix[rows] = compute(a.values[rows, None].astype(np.float64), others).value

    with ThreadPoolExecutor(THREADS) as pool:  # NumPy and SciPy let go of the interpreter lock
        for _ in track(pool.map(fill, starts), f"{kind} distances", len(starts)):
            pass
    return matrix


def _bind(
    kind: str, alpha: Any, n_samples: int, seed: Seed, factors: tuple[Factor, ...]
) -> Callable[[np.ndarray, np.ndarray], Estimate]:
    """The divergence as a function of two arrays of columns, with its options checked."""
    spec = find_divergence(kind)
    others = [f.name for f in factors if f.kind == "gaussian"]
    if others and spec.gaussian is None:
        raise DataError(
            f"kind={kind!r} compares Dirichlets alone, and {', '.join(others)} is none; pass one "
            "factor, such as embeddings.factor('task_themes')."
        )
    costs = [theme_cost(a) for a in _read_alpha(alpha, factors)] if spec.needs_alpha else []
    check_whole(n_samples, "n_samples", 2, _MOST_SAMPLES)
    start = check_seed(seed)

    def of_factor(i: int, factor: Factor, a: np.ndarray, b: np.ndarray) -> Estimate:
        if factor.kind == "gaussian":
            assert spec.gaussian is not None
            values = spec.gaussian(a, b)
        elif spec.has_stderr:
            return spec.compute(a, b, n_samples=n_samples, seed=start)
        else:
            values = spec.compute(a, b, cost=costs[i]) if spec.needs_alpha else spec.compute(a, b)
        return Estimate(values, np.zeros_like(values))

    def compute(a: np.ndarray, b: np.ndarray) -> Estimate:
        parts = zip(factors, split_columns(a, factors), split_columns(b, factors), strict=True)
        each = [(f.weight, of_factor(i, f, *both)) for i, (f, *both) in enumerate(parts)]
        total = np.asarray(sum(w * e.value for w, e in each))
        variance = np.asarray(sum((w * e.stderr) ** 2 for w, e in each))
        return Estimate(spec.finish(total), np.sqrt(variance))

    return compute


def _read_alpha(alpha: Any, factors: tuple[Factor, ...]) -> Float[np.ndarray, "factors L K"]:
    if alpha is None:
        raise DataError(
            "kind='emd' needs alpha, the concentrations of the task-themes (L, K), for the cost "
            "of moving between themes. Pass alpha=model.alpha_."
        )
    given, L = as_numbers(alpha), factors[0].size
    values = given[None] if given.ndim == 2 else given
    right_shape = values.ndim == 3 and values.shape[:2] == (len(factors), L) and values.size > 0
    if not right_shape or not ((values > 0) & (values < np.inf)).all():
        raise DataError(
            f"alpha has shape {given.shape}; expected positive concentrations ({L}, K), or "
            f"({len(factors)}, {L}, K) for an ensemble of {len(factors)}."
        )
    return values


# -- means --------------------------------------------------------------------------------------


def mean_distance(
    test: Tasks, train: Tasks | Iterable[Tasks] | Sums, *, kind: str = "kl"
) -> Float[np.ndarray, "tasks"]:
    r"""Mean distance from each test task to all training tasks, for KL in O(M + T).

    .. math:: \bar D_i = \overline{F} - F(a_i) + \nabla F(a_i) \cdot (a_i - \bar b)

    The distance is affine in (b, F(b)) of the training task, so its mean needs only their means.
    ``train`` is embedded tasks, λ (tasks, L), or an iterable of chunks of either, such as
    ``Catalogue.posteriors()``, whose files know these sums: none is read; or the sums themselves.
    Another ``kind``, an entry of ``DIVERGENCES``, goes pair by pair.

    Paper: the first equation of its section on the correlation diagram.

    >>> float(mean_distance(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))[0])
    0.0
    """
    a = read_posterior(test, "test")
    if len(a) == 0:
        raise DataError("test has no tasks.")
    if kind != "kl" and not isinstance(train, Sums):
        rows = [distances(a, chunk, kind) for chunk in read_chunks(train, "train")]
        return np.concatenate(rows or [np.empty((len(a), 0))], axis=1).mean(axis=1)
    sums, factors = _sums(train, a.factors)
    if sums.tasks == 0:
        raise DataError("train has no tasks.")
    check_factors_alike(a.factors, factors, ("test", "train"))
    each = zip(factors, _mean_of_factors(a, sums), strict=True)
    return np.asarray(sum(f.weight * distances for f, distances in each))


def _mean_of_factors(a: Posterior, train: Sums) -> Float[np.ndarray, "factors tasks"]:
    """Mean KL of each factor, from each test task to the training tasks of these sums."""
    parts = split_columns(a.values.astype(np.float64), a.factors)
    means = split_columns(train.values / train.tasks, a.factors)
    distances = []
    for f, part, mean, own, F in zip(a.factors, parts, means, a.logs.T, train.logs, strict=True):
        linear = ((part - mean) * f.gradient(part)).sum(axis=1)
        distances.append(np.maximum(F / train.tasks - own + linear, 0.0))
    return np.stack(distances)


def _sums(
    train: Tasks | Iterable[Tasks] | Sums, factors: tuple[Factor, ...]
) -> tuple[Sums, tuple[Factor, ...]]:
    """The sums over all training tasks of the factors that weigh something."""
    if isinstance(train, Sums):
        return train, factors
    if isinstance(train, PosteriorStream) and (known := train.sums()) is not None:
        return _of_weighing(known, train.catalogue.header.factors)
    total: Sums | None = None
    first = None
    for chunk in read_chunks(train, "train"):
        first = first or chunk
        check_together(chunk, first, ("a chunk of train", "another"))
        total = Sums.of(chunk) if total is None else total + Sums.of(chunk)
    if total is None or first is None:
        raise DataError("train has no tasks.")
    return total, first.factors


def _of_weighing(sums: Sums, factors: tuple[Factor, ...]) -> tuple[Sums, tuple[Factor, ...]]:
    which = [i for i, f in enumerate(factors) if f.share > 0]
    parts = split_columns(sums.values, factors)
    values = np.concatenate([parts[i] for i in which])
    return Sums(sums.tasks, values, sums.logs[which]), tuple(factors[i] for i in which)


def member_agreement(test: Tasks, train: Tasks | Sums) -> Float[np.ndarray, "pairs"]:
    """Rank correlation of the tasks' mean KL to the training tasks, for each pair of fits.

    Where the fits of an ensemble of task-themes disagree about the distances of some tasks, one
    fit's word on them is worth little; 0 for a pair of which one has all tasks at the same
    distance.
    """
    if isinstance(test, Embeddings):
        test = test.factor(TASK_THEMES)
    if isinstance(train, Embeddings):
        train = train.factor(TASK_THEMES)
    a = read_posterior(test, "test")
    sums, _ = _sums(train, a.factors)
    return np.nan_to_num(np.array(pairwise_spearman(_mean_of_factors(a, sums))))
