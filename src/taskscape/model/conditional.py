r"""The E-step with a posterior in which a class's mixture depends on its task-theme.

.. math:: q = q(\phi; \lambda) \prod_c q(y_c; \eta_c)\, q(\theta_c \mid y_c; \gamma_c)
    \prod_n q(z_{cn} \mid y_c; r_{cn})

The paper has q(theta) and q(z) in place of q(theta | y) and q(z | y). Its bound is the lower one,
and its updates reinforce themselves: a class takes the prior of the task-theme that it seems to
belong to, and then seems to belong to it. Half of the tasks end in a poor optimum, with every class
wholly in one task-theme. Here every class is fitted under each task-theme by itself, once, and
only then do the classes of a task agree on its mixture of task-themes.

Axes ``*A`` are free: single classes, or the classes of many tasks (``*M C``). Masks are True where
a sample or class is real; what lies under a False mask changes nothing, not even when it is NaN.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.model.dirichlet import digamma, expected_log, kl_divergence
from taskscape.model.estep import scale_likelihood, update_lam
from taskscape.model.params import ConditionalPosterior, Count, Scalar

_LEAST_WEIGHT = 1e-30
"""Of a theme, relative to the heaviest: no sample is left without a theme by underflow."""
_TASK_TOL = 1e-5
_TASK_ROUNDS = 500
_DOUBT = 0.25
"""A task-theme that is improbable for a class may yet become probable, so it is watched too: by
this power of its probability."""
_LONGEST = 32.0
"""Of an extrapolation, in steps."""
_TINY = 1e-20
SWEEPS_AT_ONCE = 3

# Full precision is asked for because GPUs otherwise multiply float32 in fewer bits.
_einsum = partial(jnp.einsum, precision="highest")


@register_dataclass
@dataclass(frozen=True, eq=False)
class ClassFits:
    """Every class fitted under each task-theme, and where its sweeps stand.

    ``evidence`` is that before the last sweep; ``change`` is what part of
    gamma a sweep moved, weighed by how probable the task-theme is.
    """

    gamma: Float[Array, "*A L K"]
    evidence: Float[Array, "*A L"]
    change: Float[Array, "*A"]
    sweeps: Int[Array, "*A"]


def first_gamma(
    p: Float[Array, "*A N K"], sample_mask: Bool[Array, "*A N"], alpha: Float[Array, "L K"]
) -> Float[Array, "*A L K"]:
    r"""A start from what each task-theme expects, so that the posterior is a function of the task.

    .. math:: \gamma_{clk} = \alpha_{lk} + \sum_n
        \frac{p_{cnk}\, \alpha_{lk}}{\sum_j p_{cnj}\, \alpha_{lj}}
    """
    mean = jnp.maximum(alpha / alpha.max(-1, keepdims=True), _LEAST_WEIGHT)
    return alpha + _counts(jnp.broadcast_to(mean, (*p.shape[:-2], *alpha.shape)), p, sample_mask)[0]


def even_lam(class_mask: Bool[Array, "*M C"], delta: Float[Array, " L"]) -> Float[Array, "*M L"]:
    r"""A start that spreads every class over the task-themes.

    .. math:: \lambda_l = \delta_l + C\, \frac{\delta_l}{\sum_j \delta_j}
    """
    return delta + class_mask.sum(-1, keepdims=True).astype(delta.dtype) * (delta / delta.sum())


def cold_start_given_theme(
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> ConditionalPosterior:
    """The default start of :func:`infer`: no class favours a task-theme beyond the prior delta."""
    real = sample_mask & class_mask[..., None]
    p = scale_likelihood(jnp.where(real[..., None], log_lik, 0))
    eta = jnp.where(class_mask[..., None], delta / delta.sum(), 0)
    return ConditionalPosterior(even_lam(class_mask, delta), eta, first_gamma(p, real, alpha))


def _weights(
    gamma: Float[Array, "*A L K"],
) -> tuple[Float[Array, "*A L K"], Float[Array, "*A L"]]:
    r"""w with exp(E[ln theta]) = w exp(top), the largest w being 1."""
    psi = digamma(gamma)
    top = psi.max(-1)
    w = jnp.maximum(jnp.exp(psi - top[..., None]), _LEAST_WEIGHT)
    return w, top - digamma(gamma.sum(-1))


def update_gamma_given_theme(
    gamma: Float[Array, "*A L K"],
    p: Float[Array, "*A N K"],
    sample_mask: Bool[Array, "*A N"],
    alpha: Float[Array, "L K"],
) -> tuple[Float[Array, "*A L K"], Float[Array, "*A L"]]:
    r"""One sweep over the samples of each class under each task-theme; the evidence before it.

    .. math::
        r_{cnlk} = \frac{p_{cnk} w_{clk}}{\sum_j p_{cnj} w_{clj}}, \quad
        w_{clk} \propto \exp E[\ln\theta_{ck} \mid y_c = l], \quad
        \gamma_{clk} = \alpha_{lk} + \sum_n r_{cnlk}

    ``p`` are the likelihoods of ``scale_likelihood``; the evidence, too, is relative to them.

    Paper: eq:r and eq:gamma with eta one-hot, for every l.
    """
    w, top = _weights(gamma)
    counts, total = _counts(w, p, sample_mask)
    log_total = jnp.where(sample_mask[..., None, :], jnp.log(total) + top[..., None], 0)
    return counts + alpha, log_total.sum(-1) - kl_divergence(gamma, alpha)


def _counts(
    w: Float[Array, "*A L K"], p: Float[Array, "*A N K"], sample_mask: Bool[Array, "*A N"]
) -> tuple[Float[Array, "*A L K"], Float[Array, "*A L N"]]:
    r"""How many samples go to each image-theme of given weights, and each sample's total."""
    total = _einsum("...lk,...nk->...ln", w, p)
    share = jnp.where(sample_mask[..., None, :], 1 / total, 0)
    return w * _einsum("...ln,...nk->...lk", share, p), total


def class_evidence(
    gamma: Float[Array, "*A L K"],
    log_lik: Float[Array, "*A N K"],
    sample_mask: Bool[Array, "*A N"],
    alpha: Float[Array, "L K"],
) -> Float[Array, "*A L"]:
    r"""The bound on ln p(x_c | y_c = l), with r at its best given gamma.

    .. math:: F_{cl} = \sum_n \ln \sum_k N(x_{cn}; \mu_k, \Sigma_k)\, e^{E[\ln\theta_{ck} | l]}
        - KL[\mathrm{Dir}(\gamma_{cl}) \| \mathrm{Dir}(\alpha_l)]

    Paper: the terms of eq:elbo_factorised that hold z and theta, with eta one-hot.
    """
    scale = jnp.where(sample_mask, log_lik.max(-1), 0).sum(-1)
    _, relative = update_gamma_given_theme(gamma, scale_likelihood(log_lik), sample_mask, alpha)
    return relative + scale[..., None]


def sweep_classes(
    fits: ClassFits,
    p: Float[Array, "*A N K"],
    sample_mask: Bool[Array, "*A N"],
    alpha: Float[Array, "L K"],
    tol: Scalar,
) -> ClassFits:
    r"""Three sweeps over the classes that still move; the others stay exactly as they are.

    .. math:: g_1 = T(g_0), \quad g_2 = T(g_1), \quad g_3 = T(g_0 + 2 s\, u + s^2 v), \quad
        u = g_1 - g_0, \quad v = g_2 - 2 g_1 + g_0, \quad s = \|u\| / \|v\|

    with g the logarithm of gamma of one class under one task-theme and T a sweep: a squared
    extrapolation (Varadhan and Roland 2008), since a theme that the samples can do without leaves
    by ever smaller steps. It is taken where it raises the bound, else g_2 is.
    """
    moving = fits.change >= tol

    def sweep(last: tuple[Array, Array, Array], i: Int[Array, ""]) -> tuple[tuple, Array]:
        far = i == SWEEPS_AT_ONCE - 1
        start = jax.lax.cond(far, _extrapolate, lambda *points: points[-1], *last)
        start = jnp.maximum(start, alpha)  # as after any sweep
        moved, evidence = update_gamma_given_theme(start, p, sample_mask, alpha)
        return (last[1], last[2], moved), evidence

    turns = jnp.arange(SWEEPS_AT_ONCE)
    (first, second, third), evidences = jax.lax.scan(sweep, (fits.gamma,) * 3, turns)
    higher = evidences[2] > evidences[1]
    gamma = jnp.where(higher[..., None], third, second)
    evidence = evidences[1:].max(0)
    likely = jax.nn.softmax(_DOUBT * evidence, axis=-1)
    moved = jnp.abs(second - first).max(-1) / second.sum(-1)
    change = (likely * moved).max(-1)
    return ClassFits(
        gamma=jnp.where(moving[..., None, None], gamma, fits.gamma),
        evidence=jnp.where(moving[..., None], evidence, fits.evidence),
        change=jnp.where(moving, change, fits.change),
        sweeps=fits.sweeps + SWEEPS_AT_ONCE * moving,
    )


def _extrapolate(
    gamma: Float[Array, "*A L K"],
    first: Float[Array, "*A L K"],
    second: Float[Array, "*A L K"],
) -> Float[Array, "*A L K"]:
    g_0, g_1, g_2 = jnp.log(gamma), jnp.log(first), jnp.log(second)
    u, v = g_1 - g_0, g_2 - 2 * g_1 + g_0
    s = jnp.sqrt((u**2).sum(-1, keepdims=True) / ((v**2).sum(-1, keepdims=True) + _TINY))
    s = jnp.clip(s, 1, _LONGEST)
    return jnp.exp(g_0 + 2 * s * u + s**2 * v)


def begin_classes(gamma: Float[Array, "*A L K"]) -> ClassFits:
    """Fits about to start from these concentrations."""
    classes = gamma.shape[:-2]
    return ClassFits(
        gamma=gamma,
        evidence=jnp.zeros(gamma.shape[:-1], gamma.dtype),
        change=jnp.full(classes, jnp.inf, gamma.dtype),
        sweeps=jnp.zeros(classes, jnp.int32),
    )


def fit_classes(
    log_lik: Float[Array, "*A N K"],
    sample_mask: Bool[Array, "*A N"],
    alpha: Float[Array, "L K"],
    tol: Scalar = 1e-6,
    max_iter: Count = 500,
    start: Float[Array, "*A L K"] | None = None,
) -> ClassFits:
    r"""Every class fitted under each task-theme, by sweeps until gamma stands still.

    .. math:: \max_{lk} P_{cl}\, \frac{|\gamma_{clk}^{\text{new}} - \gamma_{clk}|}
        {\sum_j \gamma_{clj}} < \text{tol}, \quad P_{cl} \propto e^{F_{cl} / 4}
    """
    p = scale_likelihood(jnp.where(sample_mask[..., None], log_lik, 0))
    gamma = first_gamma(p, sample_mask, alpha) if start is None else start

    def unfinished(carry: tuple[Int[Array, ""], ClassFits]) -> Bool[Array, ""]:
        i, fits = carry
        return (i < max_iter) & jnp.any(fits.change >= tol)

    def body(carry: tuple[Int[Array, ""], ClassFits]) -> tuple[Int[Array, ""], ClassFits]:
        i, fits = carry
        return i + SWEEPS_AT_ONCE, sweep_classes(fits, p, sample_mask, alpha, tol)

    first = (jnp.zeros((), jnp.int32), begin_classes(gamma))
    fits = jax.lax.while_loop(unfinished, body, first)[1]
    return ClassFits(
        gamma=fits.gamma,
        evidence=class_evidence(
            fits.gamma, jnp.where(sample_mask[..., None], log_lik, 0), sample_mask, alpha
        ),
        change=fits.change,
        sweeps=fits.sweeps,
    )


def update_eta_given_evidence(
    evidence: Float[Array, "*M C L"], lam: Float[Array, "*M L"], class_mask: Bool[Array, "*M C"]
) -> Float[Array, "*M C L"]:
    r"""Probability of each task-theme for each class.

    .. math:: \eta_{cl} \propto \exp\{ E[\ln\phi_l] + F_{cl} \}

    Paper: eq:eta, with the evidence of the class in place of E[ln p(theta_c | y_c = l)].
    """
    eta = jax.nn.softmax(expected_log(lam)[..., None, :] + evidence, axis=-1)
    return jnp.where(class_mask[..., None], eta, 0)


def infer_tasks(
    evidence: Float[Array, "*M C L"],
    class_mask: Bool[Array, "*M C"],
    delta: Float[Array, " L"],
    tol: Scalar = _TASK_TOL,
    start: Float[Array, "*M L"] | None = None,
) -> tuple[Float[Array, "*M L"], Float[Array, "*M C L"]]:
    r"""Lam and eta of each task from the evidence of its classes, by turns until lam stands still.

    Paper: eq:eta and eq:lambda, alg:online_ldcc, procedure E-step.
    """
    evidence = jnp.where(class_mask[..., None], evidence, 0)
    if start is None:
        start = even_lam(class_mask, delta)

    def unfinished(carry: tuple[Int[Array, ""], Array, Array]) -> Bool[Array, ""]:
        i, _, change = carry
        return (i < _TASK_ROUNDS) & jnp.any(change >= tol)

    def body(carry: tuple[Int[Array, ""], Array, Array]) -> tuple[Int[Array, ""], Array, Array]:
        i, lam, change = carry
        moved = update_lam(update_eta_given_evidence(evidence, lam, class_mask), delta)
        moving = change >= tol
        return (
            i + 1,
            jnp.where(moving[..., None], moved, lam),
            jnp.where(moving, jnp.abs(moved - lam).max(-1), change),
        )

    first = (jnp.zeros((), jnp.int32), start, jnp.full(start.shape[:-1], jnp.inf, start.dtype))
    lam = jax.lax.while_loop(unfinished, body, first)[1]
    return lam, update_eta_given_evidence(evidence, lam, class_mask)


def task_bound(
    evidence: Float[Array, "*M C L"],
    lam: Float[Array, "*M L"],
    class_mask: Bool[Array, "*M C"],
    delta: Float[Array, " L"],
) -> Float[Array, "*M"]:
    r"""The bound of each task, with eta at its best given lam.

    .. math:: \mathsf{L} = \sum_c \ln \sum_l e^{E[\ln\phi_l] + F_{cl}}
        - KL[\mathrm{Dir}(\lambda) \| \mathrm{Dir}(\delta)]

    Paper: eq:elbo_factorised with eq:eta put in.
    """
    classes = logsumexp(expected_log(lam)[..., None, :] + evidence, axis=-1)
    return jnp.where(class_mask, classes, 0).sum(-1) - kl_divergence(lam, delta)


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
    real = sample_mask & class_mask[..., None]
    gamma, lam = (None, None) if start is None else (start.gamma, start.lam)
    fits = fit_classes(log_lik, real, alpha, tol, max_iter, gamma)
    lam, eta = infer_tasks(fits.evidence, class_mask, delta, _TASK_TOL, lam)
    bound = task_bound(fits.evidence, lam, class_mask, delta)
    return ConditionalPosterior(lam, eta, fits.gamma), bound, fits.sweeps.max(-1)


def responsibilities(
    posterior: ConditionalPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
) -> Float[Array, "*M C N K"]:
    r"""Responsibility of each image-theme for each sample, whatever the class's task-theme.

    .. math:: r_{cnk} = \sum_l \eta_{cl}\, r_{cnlk}

    Paper: eq:r.
    """
    p = scale_likelihood(jnp.where(sample_mask[..., None], log_lik, 0))
    w, _ = _weights(posterior.gamma)
    total = _einsum("...lk,...nk->...ln", w, p)
    share = jnp.where(sample_mask[..., None, :], posterior.eta[..., None] / total, 0)
    return p * _einsum("...ln,...lk->...nk", share, w)
