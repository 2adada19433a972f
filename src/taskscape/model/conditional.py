r"""The E-step with a posterior in which a class's mixture depends on its task-theme.

.. math:: q = q(\phi; \lambda) \prod_c q(y_c; \eta_c)\, q(\theta_c \mid y_c; \gamma_c)
    \prod_n q(z_{cn} \mid y_c; r_{cn})

The paper has q(theta) and q(z) in place of q(theta | y) and q(z | y). Its bound is the lower one,
and its updates reinforce themselves: a class takes the prior of the task-theme that it seems to
belong to, and then seems to belong to it. Half of the tasks end in a poor optimum, with every class
wholly in one task-theme. Here every class is fitted under each task-theme by itself, once, and
only then do the classes of a task agree on its mixture of task-themes.

The classes of all tasks lie side by side on the last axis, ``A``, and so do the tasks, on ``M``:
see ``fixed_point``. :func:`infer` and :func:`responsibilities` take tasks as they come, with
leading axes. Masks are True where a sample or class is real; what lies under a False mask changes
nothing, not even when it is NaN.
"""

from dataclasses import dataclass
from functools import partial, reduce
from operator import add

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int, Shaped

from taskscape.model.dirichlet import (
    digamma,
    digamma_and_log_gamma,
    expected_log,
    kl_divergence,
)
from taskscape.model.fixed_point import (
    FixedPoint,
    begin,
    extrapolate,
    kept_once,
    max_rows,
    settle,
    sum_products,
    sum_rows,
)
from taskscape.model.params import ConditionalPosterior, Count, Scalar

_LEAST_WEIGHT = 1e-30
"""Of a theme, relative to the heaviest: no sample is left without a theme by underflow."""
TASK_TOL = 1e-5
"""Change of lam at which the classes of a task agree."""
TASK_ROUNDS = 500
_DOUBT = 0.25
"""A task-theme that is improbable for a class may yet become probable, so it is watched too: by
this power of its probability."""
_SAMPLES_AT_ONCE = 16
"""Samples that are written out one by one in a program; more are taken by turns."""


@register_dataclass
@dataclass(frozen=True, eq=False)
class ClassFits:
    """Every class fitted under each task-theme, the evidence for each, its sweeps and samples."""

    gamma: Float[Array, "L K A"]
    evidence: Float[Array, "L A"]
    sweeps: Int[Array, " A"]
    samples: Int[Array, " A"]


# -- classes ------------------------------------------------------------------------------------


def relative_likelihood(
    log_lik: Float[Array, "N K A"], sample_mask: Bool[Array, "N A"]
) -> tuple[Float[Array, "N K A"], Float[Array, " A"]]:
    r"""Likelihoods relative to each sample's best theme, and the logarithm of what they leave out.

    .. math:: p_{cnk} = N(x_{cn}; \mu_k, \Sigma_k) / m_{cn}, \quad \sum_n \ln m_{cn}, \quad
        m_{cn} = \max_k N(x_{cn}; \mu_k, \Sigma_k)
    """
    log_lik = jnp.where(sample_mask[:, None], log_lik, 0)
    top = kept_once(max_rows(log_lik))
    return kept_once(jnp.exp(log_lik - top[:, None])), top.sum(0)


def first_gamma(
    p: Float[Array, "N K A"], sample_mask: Bool[Array, "N A"], alpha: Float[Array, "L K"]
) -> Float[Array, "L K A"]:
    r"""A start from what each task-theme expects, so that the posterior is a function of the task.

    .. math:: \gamma_{clk} = \alpha_{lk} + \sum_n
        \frac{p_{cnk}\, \alpha_{lk}}{\sum_j p_{cnj}\, \alpha_{lj}}
    """
    mean = jnp.maximum(alpha / alpha.max(-1, keepdims=True), _LEAST_WEIGHT)
    w = kept_once(jnp.broadcast_to(mean[..., None], (*alpha.shape, p.shape[-1])))
    return alpha[..., None] + _counts(w, p, sample_mask)[0]


def _weights(psi: Float[Array, "L K A"]) -> tuple[Float[Array, "L K A"], Float[Array, "L A"]]:
    r"""w with exp(psi) = w exp(top), the largest w being 1."""
    top = max_rows(psi)
    return kept_once(jnp.maximum(jnp.exp(psi - top[:, None]), _LEAST_WEIGHT)), top


def update_gamma_given_theme(
    gamma: Float[Array, "L K A"],
    p: Float[Array, "N K A"],
    sample_mask: Bool[Array, "N A"],
    alpha: Float[Array, "L K"],
) -> tuple[Float[Array, "L K A"], Float[Array, "L A"]]:
    r"""One sweep over the samples of each class under each task-theme; the evidence before it.

    .. math::
        r_{cnlk} = \frac{p_{cnk} w_{clk}}{\sum_j p_{cnj} w_{clj}}, \quad
        w_{clk} \propto \exp E[\ln\theta_{ck} \mid y_c = l], \quad
        \gamma_{clk} = \alpha_{lk} + \sum_n r_{cnlk}

    ``p`` are the likelihoods of ``relative_likelihood``; the evidence, too, is relative to them,
    and rounded: :func:`class_evidence` has it in full.

    Paper: eq:r and eq:gamma with eta one-hot, for every l.
    """
    psi, psi_total, minus_kl = _minus_kl(gamma, alpha[..., None])
    w, top = _weights(psi)
    counts, log_sum = _counts(w, p, sample_mask)
    evidence = log_sum + sample_mask.sum(0) * (top - psi_total) + minus_kl
    return kept_once(counts + alpha[..., None]), evidence


def _minus_kl(
    a: Float[Array, "R K A"], b: Float[Array, "R K 1"]
) -> tuple[Float[Array, "R K A"], Float[Array, "R A"], Float[Array, "R A"]]:
    """psi(a), psi of its sum, and -KL[Dir(a) || Dir(b)], rounded where concentrations are large.

    A sweep compares bounds; ``kl_divergence`` has all digits, and takes twice as long.
    """
    psi, log_gamma = kept_once(digamma_and_log_gamma(a))
    psi_total, log_gamma_total = kept_once(digamma_and_log_gamma(sum_rows(a)))
    terms = kept_once(log_gamma - (a - b) * (psi - psi_total[:, None]))
    prior = sum_rows(digamma_and_log_gamma(b)[1]) - digamma_and_log_gamma(sum_rows(b))[1]
    return psi, psi_total, sum_rows(terms) - log_gamma_total - prior


def _counts(
    w: Float[Array, "L K A"], p: Float[Array, "N K A"], sample_mask: Bool[Array, "N A"]
) -> tuple[Float[Array, "L K A"], Float[Array, "L A"]]:
    r"""How many samples go to each image-theme of given weights, and the logarithm of their fit.

    .. math:: \sum_n \frac{p_{cnk} w_{clk}}{\sum_j p_{cnj} w_{clj}}, \quad
        \sum_n \ln \sum_j p_{cnj} w_{clj}
    """
    N = len(p)

    def of_some(
        p: Float[Array, "n K A"], mask: Bool[Array, "n A"]
    ) -> tuple[Float[Array, "L K A"], Float[Array, "L A"]]:
        total = _mixture(w, p)
        share, log_total = kept_once(
            (jnp.where(mask, 1 / total, 0), jnp.where(mask, jnp.log(total), 0))
        )
        counts = reduce(add, [share[:, n, None] * p[None, n] for n in range(len(p))])
        return counts, sum_rows(log_total)

    if N <= 2 * _SAMPLES_AT_ONCE:
        counts, log_sum = of_some(p, sample_mask)
        return w * counts, log_sum
    turns = N // _SAMPLES_AT_ONCE
    by_turns = turns * _SAMPLES_AT_ONCE

    def turn(
        sums: tuple[Array, Array], part: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], None]:
        return jax.tree.map(add, sums, of_some(*part)), None

    rest = of_some(p[by_turns:], sample_mask[by_turns:]) if by_turns < N else None
    zero = (jnp.zeros_like(w), jnp.zeros_like(w[:, 0]))
    parts = tuple(
        x[:by_turns].reshape(turns, _SAMPLES_AT_ONCE, *x.shape[1:]) for x in (p, sample_mask)
    )
    (counts, log_sum), _ = jax.lax.scan(turn, zero if rest is None else rest, parts)
    return w * counts, log_sum


def _mixture(w: Float[Array, "L K A"], p: Float[Array, "N K A"]) -> Float[Array, "L N A"]:
    r"""How likely each sample is under weights of the image-themes.

    .. math:: \sum_k p_{cnk} w_{clk}
    """
    return kept_once(sum_products(w, p, "lka,nka->lna"))


def class_evidence(
    gamma: Float[Array, "L K A"],
    p: Float[Array, "N K A"],
    log_scale: Float[Array, " A"],
    sample_mask: Bool[Array, "N A"],
    alpha: Float[Array, "L K"],
) -> Float[Array, "L A"]:
    r"""The bound on ln p(x_c | y_c = l), with r at its best given gamma.

    .. math:: F_{cl} = \sum_n \ln \sum_k N(x_{cn}; \mu_k, \Sigma_k)\, e^{E[\ln\theta_{ck} | l]}
        - KL[\mathrm{Dir}(\gamma_{cl}) \| \mathrm{Dir}(\alpha_l)]

    ``p`` and ``log_scale`` are those of ``relative_likelihood``.

    Paper: the terms of eq:elbo_factorised that hold z and theta, with eta one-hot.
    """
    w, top = _weights(kept_once(digamma(gamma)))
    log_sum = _counts(w, p, sample_mask)[1]
    fit = log_sum + sample_mask.sum(0) * (top - digamma(sum_rows(gamma)))
    return log_scale + fit - kl_divergence(gamma, alpha[..., None], axis=1)


def sweep_classes(
    point: FixedPoint,
    p: Float[Array, "N K A"],
    sample_mask: Bool[Array, "N A"],
    alpha: Float[Array, "L K"],
    tol: Scalar,
) -> FixedPoint:
    r"""One sweep over the classes that still move.

    .. math:: \text{change}_c = \max_{lk} P_{cl}\, \frac{|\gamma_{clk}^{\text{new}} - \gamma_{clk}|}
        {\sum_j \gamma_{clj}}, \quad P_{cl} \propto e^{F_{cl} / 4}
    """
    gamma, evidence = update_gamma_given_theme(point.at, p, sample_mask, alpha)
    likely = jax.nn.softmax(_DOUBT * evidence, axis=0)
    moved = max_rows(jnp.abs(gamma - point.at)) / sum_rows(gamma)
    change = (likely * moved).max(0)
    return extrapolate(point, gamma, evidence, change, alpha[..., None], tol)


def fit_classes(
    log_lik: Float[Array, "N K A"],
    sample_mask: Bool[Array, "N A"],
    alpha: Float[Array, "L K"],
    tol: Scalar = 1e-6,
    max_iter: Count = 500,
    start: Float[Array, "L K A"] | None = None,
) -> ClassFits:
    """Every class fitted under each task-theme, by sweeps until gamma stands still."""
    p, log_scale = relative_likelihood(log_lik, sample_mask)
    gamma = first_gamma(p, sample_mask, alpha) if start is None else start
    sweep = partial(sweep_classes, p=p, sample_mask=sample_mask, alpha=alpha, tol=tol)
    point = settle(begin(gamma), sweep, tol, max_iter)
    return fitted_classes(point, p, log_scale, sample_mask, alpha)


def fitted_classes(
    point: FixedPoint,
    p: Float[Array, "N K A"],
    log_scale: Float[Array, " A"],
    sample_mask: Bool[Array, "N A"],
    alpha: Float[Array, "L K"],
) -> ClassFits:
    """What classes whose sweeps have ended come to."""
    return ClassFits(
        gamma=point.swept,
        evidence=class_evidence(point.swept, p, log_scale, sample_mask, alpha),
        sweeps=point.sweeps,
        samples=sample_mask.sum(0, dtype=jnp.int32),
    )


# -- tasks --------------------------------------------------------------------------------------


def even_lam(class_mask: Bool[Array, "C M"], delta: Float[Array, " L"]) -> Float[Array, "L M"]:
    r"""A start that spreads every class over the task-themes.

    .. math:: \lambda_l = \delta_l + C\, \frac{\delta_l}{\sum_j \delta_j}
    """
    share = delta / delta.sum()
    return delta[:, None] + share[:, None] * class_mask.sum(0).astype(delta.dtype)


def update_eta_given_evidence(
    evidence: Float[Array, "L C M"], lam: Float[Array, "L M"], class_mask: Bool[Array, "C M"]
) -> tuple[Float[Array, "L C M"], Float[Array, "C M"]]:
    r"""Probability of each task-theme for each class, and what it leaves of the class's bound.

    .. math:: \eta_{cl} \propto \exp\{ E[\ln\phi_l] + F_{cl} \}, \quad
        \ln \sum_l e^{E[\ln\phi_l] + F_{cl}}

    Paper: eq:eta, with the evidence of the class in place of E[ln p(theta_c | y_c = l)].
    """
    return _eta(expected_log(lam, axis=0), evidence, class_mask)


def _eta(
    log_phi: Float[Array, "L M"], evidence: Float[Array, "L C M"], class_mask: Bool[Array, "C M"]
) -> tuple[Float[Array, "L C M"], Float[Array, "C M"]]:
    logits = kept_once(log_phi[:, None] + jnp.where(class_mask, evidence, 0))
    top = max_rows(logits, axis=0)
    weights = kept_once(jnp.exp(logits - top))
    total = kept_once(sum_rows(weights, axis=0))
    left = jnp.where(class_mask, top + jnp.log(total), 0)
    return jnp.where(class_mask, weights / total, 0), left


def sweep_tasks(
    point: FixedPoint,
    evidence: Float[Array, "L C M"],
    class_mask: Bool[Array, "C M"],
    delta: Float[Array, " L"],
    tol: Scalar,
) -> FixedPoint:
    r"""One turn of eta and lam for the tasks that still move; lam is the only row of ``point``.

    .. math:: \lambda_l = \delta_l + \sum_c \eta_{cl}, \quad
        \text{change} = \max_l |\lambda_l^{\text{new}} - \lambda_l|

    Paper: eq:eta and eq:lambda.
    """
    prior = delta[None, :, None]
    psi, psi_total, minus_kl = _minus_kl(point.at, prior)
    eta, left = _eta(psi[0] - psi_total, evidence, class_mask)
    moved = prior + sum_rows(eta)
    change = jnp.abs(moved - point.at)[0].max(0)
    return extrapolate(point, moved, left.sum(0) + minus_kl, change, prior, tol)


def infer_tasks(
    evidence: Float[Array, "L C M"],
    class_mask: Bool[Array, "C M"],
    delta: Float[Array, " L"],
    tol: Scalar = TASK_TOL,
    start: Float[Array, "L M"] | None = None,
) -> tuple[Float[Array, "L M"], Float[Array, "L C M"]]:
    r"""Lam and eta of each task from the evidence of its classes, by turns until lam stands still.

    Paper: eq:eta and eq:lambda, alg:online_ldcc, procedure E-step.
    """
    lam = even_lam(class_mask, delta) if start is None else start
    sweep = partial(sweep_tasks, evidence=evidence, class_mask=class_mask, delta=delta, tol=tol)
    lam = settle(begin(lam[None]), sweep, tol, TASK_ROUNDS).swept[0]
    return lam, update_eta_given_evidence(evidence, lam, class_mask)[0]


def task_bound(
    evidence: Float[Array, "L C M"],
    lam: Float[Array, "L M"],
    class_mask: Bool[Array, "C M"],
    delta: Float[Array, " L"],
) -> Float[Array, " M"]:
    r"""The bound of each task, with eta at its best given lam.

    .. math:: \mathsf{L} = \sum_c \ln \sum_l e^{E[\ln\phi_l] + F_{cl}}
        - KL[\mathrm{Dir}(\lambda) \| \mathrm{Dir}(\delta)]

    Paper: eq:elbo_factorised with eq:eta put in.
    """
    left = update_eta_given_evidence(evidence, lam, class_mask)[1]
    return left.sum(0) - kl_divergence(lam, delta[:, None], axis=0)


# -- tasks as they come -------------------------------------------------------------------------


def cold_start_given_theme(
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> ConditionalPosterior:
    """The default start of :func:`infer`: no class favours a task-theme beyond the prior delta."""
    real = items_last(sample_mask & class_mask[..., None], 1)
    p, _ = relative_likelihood(items_last(log_lik, 2), real)
    eta = jnp.where(class_mask[..., None], delta / delta.sum(), 0)
    lam = even_lam(items_last(class_mask, 1), delta)
    tasks, classes = class_mask.shape[:-1], class_mask.shape
    gamma = items_first(first_gamma(p, real, alpha), classes)
    return ConditionalPosterior(items_first(lam, tasks), eta, gamma)


def infer(
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
    tol: Scalar = 1e-6,
    max_iter: Count = 500,
    start: ConditionalPosterior | None = None,
) -> tuple[ConditionalPosterior, Float[Array, "*M"], Int[Array, "*M"]]:
    """Posterior, bound and sweeps of each task: its classes first, then their mixture.

    ``start`` continues from an earlier posterior of the same tasks.
    """
    real = items_last(sample_mask & class_mask[..., None], 1)
    gamma, lam = None, None
    if start is not None:
        gamma, lam = items_last(start.gamma, 2), items_last(start.lam, 1)
    fits = fit_classes(items_last(log_lik, 2), real, alpha, tol, max_iter, gamma)
    tasks, classes = class_mask.shape[:-1], class_mask.shape
    evidence = fits.evidence.reshape(len(delta), -1, classes[-1]).swapaxes(1, 2)
    mask = items_last(class_mask, 1)
    lam, eta = infer_tasks(evidence, mask, delta, TASK_TOL, lam)
    bound = task_bound(evidence, lam, mask, delta)
    posterior = ConditionalPosterior(
        items_first(lam, tasks),
        items_first(eta.swapaxes(0, 1), tasks),
        items_first(fits.gamma, classes),
    )
    return posterior, bound.reshape(tasks), fits.sweeps.reshape(classes).max(-1)


def responsibilities(
    posterior: ConditionalPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
) -> Float[Array, "*M C N K"]:
    r"""Responsibility of each image-theme for each sample, whatever the class's task-theme.

    .. math:: r_{cnk} = \sum_l \eta_{cl}\, r_{cnlk}

    Paper: eq:r.
    """
    mask = items_last(sample_mask, 1)
    p, _ = relative_likelihood(items_last(log_lik, 2), mask)
    w, _ = _weights(kept_once(digamma(items_last(posterior.gamma, 2))))
    eta = items_last(posterior.eta, 1)
    share = kept_once(jnp.where(mask, eta[:, None] / _mixture(w, p), 0))
    r = p * sum_products(share, w, "lna,lka->nka")
    return items_first(r, sample_mask.shape[:-1])


def items_last(x: Shaped[Array, "..."], own: int) -> Shaped[Array, "..."]:
    """All axes but the last ``own`` as one, behind these."""
    return jnp.moveaxis(x.reshape(-1, *x.shape[x.ndim - own :]), 0, -1)


def items_first(x: Shaped[Array, "..."], items: tuple[int, ...]) -> Shaped[Array, "..."]:
    """The last axis as these axes, before the others."""
    return jnp.moveaxis(x, -1, 0).reshape(*items, *x.shape[:-1])
