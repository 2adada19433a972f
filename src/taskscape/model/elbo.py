"""The evidence lower bound, term by term, and the penalised bound that a fit never lowers."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.scipy.special import digamma, logsumexp, xlogy
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float

from taskscape.model.dirichlet import alpha_objective, entropy, expected_log, log_beta
from taskscape.model.estep import update_r
from taskscape.model.gaussian import whiten
from taskscape.model.params import TaskPosterior, ThemePrior, Themes


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

    with one term, not K, for "tied". See ``params.ThemePrior``.
    """
    whitening = whiten(themes)
    # W^T W is the inverse of Sigma, so the trace is a sum of squares.
    traces = (whitening.W**2 * prior.Psi0).sum()
    log_dets = whitening.log_det_Sigma
    log_det = log_dets[0] if themes.covariance == "tied" else log_dets.sum()
    return -0.5 * prior.nu * (log_det + traces)


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
