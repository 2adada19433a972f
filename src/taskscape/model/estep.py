"""The paper's E-step: the posterior of each task given the themes, its statistics and its bound.

By default fits and embeddings use ``conditional`` instead, whose posterior is closer.
Every function takes one task or a batch of them (leading axes ``*M``). Masks are True where a
sample or class is real; what lies under a False mask changes nothing, not even when it is NaN.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, logsumexp, xlogy
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.model.dirichlet import alpha_objective, entropy, expected_log, log_beta
from taskscape.model.fixed_point import settle
from taskscape.model.gaussian import whiten
from taskscape.model.params import (
    ConditionalPosterior,
    Count,
    Scalar,
    TaskPosterior,
    ThemePrior,
    Themes,
    ThemeStatistics,
)

# Full precision is asked for because GPUs otherwise multiply float32 in fewer bits.
_einsum = partial(jnp.einsum, precision="highest")


@register_dataclass
@dataclass(frozen=True, eq=False)
class EStepState:
    """Where the E-step of each task stands: ``change`` is the last mean |change of lam|."""

    posterior: TaskPosterior
    change: Float[Array, "*M"]
    sweeps: Int[Array, "*M"]


def update_r(
    log_lik: Float[Array, "*M C N K"],
    gamma: Float[Array, "*M C K"],
    sample_mask: Bool[Array, "*M C N"],
) -> Float[Array, "*M C N K"]:
    r"""Responsibility of each image-theme for each sample.

    .. math:: r_{cnk} \propto \exp\{ E[\ln\theta_{ck}] + \ln N(x_{cn}; \mu_k, \Sigma_k) \}

    Paper: eq:r.
    """
    r = jax.nn.softmax(expected_log(gamma)[..., None, :] + log_lik, axis=-1)
    return jnp.where(sample_mask[..., None], r, 0)


def update_gamma(
    r: Float[Array, "*M C N K"],
    eta: Float[Array, "*M C L"],
    alpha: Float[Array, "L K"],
    class_mask: Bool[Array, "*M C"],
) -> Float[Array, "*M C K"]:
    r"""Posterior concentration of each class's mixture of image-themes.

    .. math:: \gamma_{ck} = \sum_n r_{cnk} + \sum_l \eta_{cl}\,\alpha_{lk}

    Paper: eq:gamma; its ones cancel because eta sums to one. A padded class, where eta and r are
    zero, keeps the one.
    """
    return r.sum(-2) + _einsum("...cl,lk->...ck", eta, alpha) + ~class_mask[..., None]


def update_eta(
    gamma: Float[Array, "*M C K"],
    lam: Float[Array, "*M L"],
    alpha: Float[Array, "L K"],
    class_mask: Bool[Array, "*M C"],
) -> Float[Array, "*M C L"]:
    r"""Probability of each task-theme for each class.

    .. math:: \eta_{cl} \propto \exp\{ E[\ln\phi_l] - \ln B(\alpha_l)
        + \sum_k \alpha_{lk}\, E[\ln\theta_{ck}] \}

    Paper: eq:eta; its (alpha - 1) differs by a factor common to all l, which cancels.
    """
    evidence = _einsum("...ck,lk->...cl", expected_log(gamma), alpha) - log_beta(alpha)
    eta = jax.nn.softmax(expected_log(lam)[..., None, :] + evidence, axis=-1)
    return jnp.where(class_mask[..., None], eta, 0)


def update_lam(eta: Float[Array, "*M C L"], delta: Float[Array, " L"]) -> Float[Array, "*M L"]:
    r"""Posterior concentration of the task's mixture of task-themes: its embedding.

    .. math:: \lambda_l = \delta_l + \sum_c \eta_{cl}

    Paper: eq:lambda.
    """
    return delta + eta.sum(-2)


def cold_start(
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> TaskPosterior:
    r"""A start that knows nothing of the samples and favours no image-theme.

    .. math:: \eta_{cl} = \frac{\delta_l}{\sum_j \delta_j}, \quad
        \gamma_{ck} = \frac1K \left[ N_c + \sum_{lj} \eta_{cl}\,\alpha_{lj} \right], \quad
        \lambda_l = \delta_l + \sum_c \eta_{cl}

    Paper: alg:online_ldcc, "initialise".
    Differs from the paper: deterministic, so that the embedding of a task is a function of it.
    """
    real = class_mask[..., None]
    eta = jnp.where(real, delta / delta.sum(), 0)
    counts = (sample_mask & real).sum(-1, keepdims=True)
    mass = counts + _einsum("...cl,lk->...c", eta, alpha)[..., None]
    K = alpha.shape[-1]
    gamma = jnp.broadcast_to(jnp.where(real, mass / K, 1), (*class_mask.shape, K))
    return TaskPosterior(lam=update_lam(eta, delta), eta=eta, gamma=gamma)


def sweep(
    posterior: TaskPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> TaskPosterior:
    """One round of updates, each with the newest values of the others.

    Paper: alg:online_ldcc, the body of the E-step.
    """
    r = update_r(log_lik, posterior.gamma, sample_mask & class_mask[..., None])
    gamma = update_gamma(r, posterior.eta, alpha, class_mask)
    eta = update_eta(gamma, posterior.lam, alpha, class_mask)
    return TaskPosterior(lam=update_lam(eta, delta), eta=eta, gamma=gamma)


def begin(posterior: TaskPosterior) -> EStepState:
    """The state of an E-step about to start from this posterior."""
    tasks = posterior.lam.shape[:-1]
    return EStepState(
        posterior=posterior,
        change=jnp.full(tasks, jnp.inf, posterior.lam.dtype),
        sweeps=jnp.zeros(tasks, jnp.int32),
    )


def advance(
    state: EStepState,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
    tol: Scalar,
) -> EStepState:
    """One sweep over the tasks that still move; the others stay exactly as they are.

    A task's result therefore does not depend on the tasks that share its batch.
    """
    swept = sweep(state.posterior, log_lik, sample_mask, class_mask, alpha, delta)
    moving = state.change >= tol
    change = jnp.abs(swept.lam - state.posterior.lam).mean(-1)
    return EStepState(
        posterior=TaskPosterior(
            lam=jnp.where(moving[..., None], swept.lam, state.posterior.lam),
            eta=jnp.where(moving[..., None, None], swept.eta, state.posterior.eta),
            gamma=jnp.where(moving[..., None, None], swept.gamma, state.posterior.gamma),
        ),
        change=jnp.where(moving, change, state.change),
        sweeps=state.sweeps + moving,
    )


def e_step(
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
    tol: Scalar = 1e-5,
    max_iter: Count = 200,
    start: TaskPosterior | None = None,
) -> EStepState:
    r"""Posterior of each task, by sweeps until lam stands still.

    .. math:: \tfrac1L \sum_l |\lambda_l^{\text{new}} - \lambda_l| < \text{tol}

    ``start`` continues from an earlier posterior of the same tasks; without it the start is cold.
    Only lam is watched, as in the paper: gamma may still be moving a little where lam is not.

    Paper: alg:online_ldcc, procedure E-step.
    """
    if start is None:
        start = cold_start(sample_mask, class_mask, alpha, delta)

    given = (log_lik, sample_mask, class_mask, alpha, delta)
    return settle(begin(start), lambda now: advance(now, *given, tol), tol, max_iter)


def statistics(
    x: Float[Array, "*S D"],
    r: Float[Array, "*S K"],
    posterior: TaskPosterior | ConditionalPosterior,
    class_mask: Bool[Array, "*M C"],
    shift: Float[Array, " D"],
) -> ThemeStatistics:
    """Sums for the M-step, from samples and the weight of each image-theme on each of them.

    The axes of ``x`` and ``r`` are free: the samples of a batch of tasks, or the samples of a
    pool with ``r`` summed over all the tasks they occur in, so that each counts once in the
    products.

    Paper: the sums of eq:m_step and apdx:alpha.
    Differs from the paper: moments are about ``shift``; about the origin S2/N - mu mu^T cancels.
    """
    r = r.reshape(-1, r.shape[-1])
    centred = (x - shift).reshape(-1, x.shape[-1])
    centred = jnp.where(r.sum(-1, keepdims=True) > 0, centred, 0)  # padding may be NaN
    eta = jnp.where(class_mask[..., None], posterior.eta, 0)
    given_theme = "l" if isinstance(posterior, ConditionalPosterior) else ""
    return ThemeStatistics(
        N_k=r.sum(0),
        S1=_einsum("sk,sd->kd", r, centred),
        # one product per theme over all samples, holding S x D numbers at a time
        S2=jax.lax.map(lambda r_k: _einsum("sd,se->de", centred * r_k[:, None], centred), r.T),
        w=eta.sum(tuple(range(eta.ndim - 1))),
        E_log_theta_sum=_einsum(
            f"...cl,...c{given_theme}k->lk", eta, expected_log(posterior.gamma)
        ),
        samples=r.sum(),
        classes=class_mask.sum(dtype=r.dtype),
        tasks=class_mask.any(-1).sum(dtype=r.dtype),
    )


def task_statistics(
    x: Float[Array, "*M C N D"],
    posterior: TaskPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    shift: Float[Array, " D"],
) -> ThemeStatistics:
    """Sums for the M-step over one task or a batch of tasks, with r at its best given gamma."""
    r = update_r(log_lik, posterior.gamma, sample_mask & class_mask[..., None])
    return statistics(x, r, posterior, class_mask, shift)


# -- the bound ----------------------------------------------------------------------------------


@register_dataclass
@dataclass(frozen=True, eq=False)
class ElboTerms:
    """The nine expectations of the bound under q, one number per task each.

    Paper: eq:elbo_factorised and apdx:elbo_derivation.
    """

    log_p_x: Float[Array, "*M"]
    log_p_z: Float[Array, "*M"]
    log_p_theta: Float[Array, "*M"]
    log_p_y: Float[Array, "*M"]
    log_p_phi: Float[Array, "*M"]
    log_q_z: Float[Array, "*M"]
    log_q_theta: Float[Array, "*M"]
    log_q_y: Float[Array, "*M"]
    log_q_phi: Float[Array, "*M"]

    @property
    def total(self) -> Float[Array, "*M"]:
        """The bound: what p expects less what q expects."""
        model = self.log_p_x + self.log_p_z + self.log_p_theta + self.log_p_y + self.log_p_phi
        return model - self.log_q_z - self.log_q_theta - self.log_q_y - self.log_q_phi


def elbo_terms(
    r: Float[Array, "*M C N K"],
    posterior: TaskPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> ElboTerms:
    r"""The nine terms of the bound of each task.

    .. math::
        E[\ln p(x|z)] &= \sum_{cnk} r_{cnk} \ln N(x_{cn}; \mu_k, \Sigma_k), &
        E[\ln p(z|\theta)] &= \sum_{cnk} r_{cnk}\, E[\ln\theta_{ck}] \\
        E[\ln p(\theta|y)] &= \sum_{cl} \eta_{cl} \left[ -\ln B(\alpha_l)
            + \sum_k (\alpha_{lk} - 1) E[\ln\theta_{ck}] \right], &
        E[\ln p(y|\phi)] &= \sum_{cl} \eta_{cl}\, E[\ln\phi_l] \\
        E[\ln p(\phi)] &= -\ln B(\delta) + \sum_l (\delta_l - 1) E[\ln\phi_l], &
        E[\ln q(z)] &= \sum_{cnk} r_{cnk} \ln r_{cnk} \\
        E[\ln q(\theta)] &= -\sum_c H[\mathrm{Dir}(\gamma_c)], \quad
        E[\ln q(y)] = \sum_{cl} \eta_{cl} \ln \eta_{cl}, &
        E[\ln q(\phi)] &= -H[\mathrm{Dir}(\lambda)]

    Paper: eq:elbo_factorised and apdx:elbo_derivation.
    Differs from the paper: the second term of eq:elbo is E[ln q]; the logarithm is missing there.
    """
    sample_mask = sample_mask & class_mask[..., None]
    r = jnp.where(sample_mask[..., None], r, 0)
    eta = jnp.where(class_mask[..., None], posterior.eta, 0)
    E_log_theta = expected_log(posterior.gamma)
    E_log_phi = expected_log(posterior.lam)
    log_dir = ((alpha - 1) * E_log_theta[..., None, :]).sum(-1) - log_beta(alpha)
    return ElboTerms(
        log_p_x=(r * jnp.where(sample_mask[..., None], log_lik, 0)).sum((-3, -2, -1)),
        log_p_z=(r.sum(-2) * E_log_theta).sum((-2, -1)),
        log_p_theta=(eta * log_dir).sum((-2, -1)),
        log_p_y=(eta.sum(-2) * E_log_phi).sum(-1),
        log_p_phi=((delta - 1) * E_log_phi).sum(-1) - log_beta(delta),
        log_q_z=xlogy(r, r).sum((-3, -2, -1)),
        log_q_theta=-jnp.where(class_mask, entropy(posterior.gamma), 0).sum(-1),
        log_q_y=xlogy(eta, eta).sum((-2, -1)),
        log_q_phi=-entropy(posterior.lam),
    )


def elbo(
    posterior: TaskPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> ElboTerms:
    """The nine terms of the bound of each task, with r at its best given gamma."""
    r = update_r(log_lik, posterior.gamma, sample_mask & class_mask[..., None])
    return elbo_terms(r, posterior, log_lik, sample_mask, class_mask, alpha, delta)


def collapsed_elbo(
    posterior: TaskPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> Float[Array, "*M"]:
    r"""``elbo(...).total``, with the three terms that hold r collapsed into one.

    .. math:: \max_r \sum_k r_{cnk} \left( \ln N(x_{cn}; \mu_k, \Sigma_k) + E[\ln\theta_{ck}]
        - \ln r_{cnk} \right) = \ln \sum_k N(x_{cn}; \mu_k, \Sigma_k)\, e^{E[\ln\theta_{ck}]}

    Paper: eq:elbo_factorised with eq:r put in.
    """
    joint = log_lik + expected_log(posterior.gamma)[..., None, :]
    evidence = jnp.where(sample_mask & class_mask[..., None], logsumexp(joint, axis=-1), 0)
    one = log_lik[..., :1, :]  # with r = 0 the samples have no effect on the other six terms
    rest = elbo_terms(
        jnp.zeros_like(one), posterior, one, sample_mask[..., :1], class_mask, alpha, delta
    )
    return evidence.sum((-2, -1)) + rest.total


def log_prior_covariance(themes: Themes, prior: ThemePrior) -> Float[Array, ""]:
    r"""Log-density of the covariances under their prior, up to a constant.

    .. math:: \ln p(\Sigma) = -\tfrac{\nu}{2} \sum_k \left[ \ln|\Sigma_k|
        + \mathrm{tr}(\Sigma_k^{-1} \Psi_0) \right]

    See ``params.ThemePrior``.
    """
    whitening = whiten(themes.mu, themes.Sigma)
    # W^T W is the inverse of Sigma, so the trace is a sum of squares.
    traces = (whitening.W**2 * prior.Psi0).sum()
    return -0.5 * prior.nu * (whitening.log_det_Sigma.sum() + traces)


def log_prior_alpha(themes: Themes, prior: ThemePrior) -> Float[Array, ""]:
    r"""Log-density of the task-themes under their prior, up to a constant.

    .. math:: \ln p(\alpha) = m_0 \sum_l \left[ -\ln B(\alpha_l)
        + \sum_k (\alpha_{lk} - 1)(\psi(a_0) - \psi(K a_0)) \right]

    See ``params.ThemePrior``.
    """
    E_log_theta = digamma(prior.alpha0) - digamma(themes.K * prior.alpha0)
    weight = jnp.broadcast_to(prior.pseudo_classes, themes.alpha.shape[:-1])
    log_theta_sum = jnp.broadcast_to(prior.pseudo_classes * E_log_theta, themes.alpha.shape)
    return alpha_objective(themes.alpha, weight, log_theta_sum).sum()


def penalised_bound(
    elbo_sum: Float[Array, ""], themes: Themes, prior: ThemePrior
) -> Float[Array, ""]:
    r"""The bound that warm-started E-steps and the M-step can only raise.

    .. math:: \sum_d \mathsf{L}_d + \ln p(\Sigma) + \ln p(\alpha)

    ``elbo_sum`` is the sum of ``ElboTerms.total`` over all tasks.
    """
    return elbo_sum + log_prior_covariance(themes, prior) + log_prior_alpha(themes, prior)
