"""Divergences without a closed form: Jensen-Shannon by sampling, and the earth mover's distance."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from taskscape.compare.posteriors import log_beta
from taskscape.compare.rows import row_hashes

__all__ = ["Estimate", "earth_mover", "jensen_shannon", "sample_log_phi"]


class Estimate(NamedTuple):
    """Divergences and the standard error of each; zero for closed forms."""

    value: Float[np.ndarray, "*any"]
    stderr: Float[np.ndarray, "*any"]


def jensen_shannon(
    a: Float[np.ndarray, "*#any L"],
    b: Float[np.ndarray, "*#any L"],
    *,
    n_samples: int,
    seed: int,
) -> Estimate:
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
    rows = lam.reshape(-1, lam.shape[-1])
    drawn = np.stack(
        [
            sample_log_phi(
                row, n_samples, np.random.Generator(np.random.Philox(key=[int(h), seed % 2**64]))
            )
            for row, h in zip(rows, row_hashes(rows), strict=True)
        ]
    )
    return drawn.reshape(*lam.shape[:-1], n_samples, lam.shape[-1])


def sample_log_phi(
    lam: Float[np.ndarray, "L"], n_samples: int, rng: np.random.Generator
) -> Float[np.ndarray, "S L"]:
    r"""Logarithms of Dirichlet draws, finite however small λ is.

    .. math:: \ln g_l = \ln\mathrm{Gamma}(\lambda_l + 1) + \ln U / \lambda_l, \quad
        \ln\phi = \ln g - \mathrm{logsumexp}(\ln g)
    """
    size = (n_samples, len(lam))
    log_g = np.log(rng.standard_gamma(lam + 1, size)) - rng.standard_exponential(size) / lam
    most = log_g.max(axis=1, keepdims=True)
    return log_g - most - np.log(np.exp(log_g - most).sum(axis=1, keepdims=True))


def earth_mover(
    a: Float[np.ndarray, "*#any L"],
    b: Float[np.ndarray, "*#any L"],
    *,
    cost: Float[np.ndarray, "L L"],
) -> Float[np.ndarray, "*any"]:
    r"""Earth mover's distance between expected theme mixtures, solved exactly by POT.

    .. math:: \min_{T \ge 0} \sum_{lm} T_{lm} c_{lm} \quad \text{with} \quad
        \sum_m T_{lm} = \frac{a_l}{\sum_j a_j}, \quad \sum_l T_{lm} = \frac{b_m}{\sum_j b_j}
    """
    from ot import emd2  # slow to import

    first, second = np.broadcast_arrays(a / a.sum(-1, keepdims=True), b / b.sum(-1, keepdims=True))
    L = first.shape[-1]
    distances = [
        0.0 if np.array_equal(p, q) else float(emd2(p.copy(), q.copy(), cost))
        for p, q in zip(first.reshape(-1, L), second.reshape(-1, L), strict=True)
    ]
    return np.maximum(np.array(distances).reshape(first.shape[:-1]), 0.0)
