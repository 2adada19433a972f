"""The paper's E-step: the posterior of each task given the themes, and the statistics it yields.

By default fits and embeddings use ``conditional`` instead, whose posterior is closer.
Every function takes one task or a batch of them (leading axes ``*M``). Masks are True where a
sample or class is real; what lies under a False mask changes nothing, not even when it is NaN.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.model.dirichlet import expected_log, log_beta
from taskscape.model.fixed_point import settle
from taskscape.model.params import (
    ConditionalPosterior,
    Count,
    Covariance,
    Scalar,
    TaskPosterior,
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
    covariance: Covariance = "full",
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
        S2=_second_moments(centred, r, covariance),
        w=eta.sum(tuple(range(eta.ndim - 1))),
        E_log_theta_sum=_einsum(
            f"...cl,...c{given_theme}k->lk", eta, expected_log(posterior.gamma)
        ),
        samples=r.sum(),
        classes=class_mask.sum(dtype=r.dtype),
        tasks=class_mask.any(-1).sum(dtype=r.dtype),
        covariance=covariance,
    )


def task_statistics(
    x: Float[Array, "*M C N D"],
    posterior: TaskPosterior,
    log_lik: Float[Array, "*M C N K"],
    sample_mask: Bool[Array, "*M C N"],
    class_mask: Bool[Array, "*M C"],
    shift: Float[Array, " D"],
    covariance: Covariance = "full",
) -> ThemeStatistics:
    """Sums for the M-step over one task or a batch of tasks, with r at its best given gamma."""
    r = update_r(log_lik, posterior.gamma, sample_mask & class_mask[..., None])
    return statistics(x, r, posterior, class_mask, shift, covariance)


def _second_moments(
    x: Float[Array, "S D"], r: Float[Array, "S K"], covariance: Covariance
) -> Float[Array, "K D D"] | Float[Array, "K D"] | Float[Array, "D D"]:
    if covariance == "full":
        # One matrix product per theme over all samples, holding S x D numbers at a time.
        return jax.lax.map(lambda r_k: _einsum("sd,se->de", x * r_k[:, None], x), r.T)
    if covariance == "diag":
        return _einsum("sk,sd->kd", r, x * x)
    return _einsum("sd,se->de", x * r.sum(-1, keepdims=True), x)
