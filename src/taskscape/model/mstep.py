"""The M-step: themes from accumulated statistics, and the paper's literal online update."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.model.dirichlet import (
    alpha_gradient,
    alpha_hessian_constant,
    alpha_hessian_diagonal,
    expected_log,
    newton_direction,
    solve_alpha,
)
from taskscape.model.params import Scalar, TaskPosterior, ThemePrior, Themes, ThemeStatistics

# Full precision is asked for because GPUs otherwise multiply float32 in fewer bits.
_einsum = partial(jnp.einsum, precision="highest")
_LEAST_COUNT = 1e-3


def m_step(
    stats: ThemeStatistics, prior: ThemePrior, previous: Themes, shift: Float[Array, " D"]
) -> Themes:
    r"""The themes that maximise the penalised bound, given the statistics.

    .. math::
        \mu_k = s + \frac{S1_k}{N_k}, \quad
        \Sigma_k = \frac{S_k + \nu \Psi_0}{N_k + \nu}, \quad
        S_k = S2_k - \frac{S1_k S1_k^\top}{N_k}

    and alpha from ``solve_alpha`` with the pseudo-classes added to the classes. Sigma is the mode
    of the prior of ``params.ThemePrior`` times the likelihood. A theme without samples keeps its
    mean.

    Paper: eq:m_step and apdx:alpha.
    Differs from the paper: the prior takes the place of 1e-6 I, and alpha is solved for.
    """
    used = stats.N_k > 0
    offset = jnp.where(
        used[:, None], stats.S1 / jnp.where(used, stats.N_k, 1)[:, None], previous.mu - shift
    )
    between = jax.lax.map(lambda t: t[0] * jnp.outer(t[1], t[1]), (stats.N_k, offset))
    scatter = stats.S2 - between
    scatter = (scatter + jnp.swapaxes(scatter, -1, -2)) / 2 + prior.nu * jnp.diag(prior.Psi0)
    weight = (stats.N_k + prior.nu)[:, None, None]
    known = weight > 0
    E_log_theta = digamma(prior.alpha0) - digamma(previous.K * prior.alpha0)
    return Themes(
        mu=shift + offset,
        Sigma=jnp.where(known, scatter / jnp.where(known, weight, 1), previous.Sigma),
        alpha=solve_alpha(
            stats.w + prior.pseudo_classes,
            stats.E_log_theta_sum + prior.pseudo_classes * E_log_theta,
            previous.alpha,
        ),
        delta=previous.delta,
    )


def step_size(t: Scalar | int | Int[Array, ""], tau0: Scalar, tau1: Scalar) -> Scalar:
    r"""Step of the online update number t = 1, 2, ...

    .. math:: \rho_t = (\tau_0 + t)^{-\tau_1}, \quad \tau_0 \ge 0, \quad \tau_1 \in (0.5, 1]

    Paper: eq:online_update.
    """
    return (tau0 + t) ** -tau1


@register_dataclass
@dataclass(frozen=True, eq=False)
class LocalThemes:
    """Themes fitted to a task alone, or their average over a mini-batch; only for ``paper_step``.

    ``used`` is 1 where the task used the theme and 0 where the old values stand in (on average:
    the share of tasks that used it).
    """

    mu: Float[Array, "*M K D"]
    Sigma: Float[Array, "*M K D D"]
    used: Float[Array, "*M K"]
    w: Float[Array, "*M L"]
    E_log_theta_sum: Float[Array, "*M L K"]


def local_themes(
    x: Float[Array, "C N D"],
    r: Float[Array, "C N K"],
    posterior: TaskPosterior,
    themes: Themes,
) -> LocalThemes:
    r"""Mean and covariance of every image-theme from the samples of one task.

    .. math::
        \tilde\mu_k = \frac{1}{N_k} \sum_{cn} r_{cnk} x_{cn}, \quad
        \tilde\Sigma_k = \frac{1}{N_k} \sum_{cn} r_{cnk}
            (x_{cn} - \tilde\mu_k)(x_{cn} - \tilde\mu_k)^\top

    Paper: eq:m_step for one task, as alg:online_ldcc uses it.
    Differs from the paper: a theme with N_k below 0.001 keeps its old values.
    """
    x, r = x.reshape(-1, x.shape[-1]), r.reshape(-1, r.shape[-1])
    x = jnp.where(r.sum(-1, keepdims=True) > 0, x, 0)  # padding may be NaN
    N_k = r.sum(0)
    used = N_k > _LEAST_COUNT
    count = jnp.where(used, N_k, 1)
    mu = jnp.where(used[:, None], _einsum("sk,sd->kd", r, x) / count[:, None], themes.mu)

    def scatter(theme: tuple[Float[Array, " S"], Float[Array, " D"]]) -> Float[Array, "D D"]:
        r_k, mu_k = theme
        centred = x - mu_k
        return _einsum("sd,se->de", centred * r_k[:, None], centred)

    Sigma = jax.lax.map(scatter, (r.T, mu)) / count[:, None, None]
    return LocalThemes(
        mu=mu,
        Sigma=jnp.where(used[:, None, None], Sigma, themes.Sigma),
        used=used.astype(x.dtype),
        w=posterior.eta.sum(-2),
        E_log_theta_sum=_einsum("cl,ck->lk", posterior.eta, expected_log(posterior.gamma)),
    )


def mean_local_themes(
    x: Float[Array, "M C N D"],
    r: Float[Array, "M C N K"],
    posterior: TaskPosterior,
    class_mask: Bool[Array, "M C"],
    themes: Themes,
) -> LocalThemes:
    """Local themes averaged over a mini-batch, one task in memory at a time.

    Every field is an average over tasks; a padded task, without a real class, has no say.

    Paper: the mini-batch paragraph after eq:online_update.
    """
    real = class_mask.any(-1).astype(x.dtype)
    share = real / jnp.maximum(real.sum(), 1)

    def add(
        mean: LocalThemes, task: tuple[Array, Array, TaskPosterior, Array]
    ) -> tuple[LocalThemes, None]:
        x_d, r_d, posterior_d, share_d = task
        local = local_themes(x_d, r_d, posterior_d, themes)
        return jax.tree.map(lambda m, v: m + share_d * v, mean, local), None

    nothing = LocalThemes(
        mu=jnp.zeros_like(themes.mu),
        Sigma=jnp.zeros_like(themes.Sigma),
        used=jnp.zeros_like(themes.mu[:, 0]),
        w=jnp.zeros_like(themes.delta),
        E_log_theta_sum=jnp.zeros_like(themes.alpha),
    )
    return jax.lax.scan(add, nothing, (x, r, posterior, share))[0]


def paper_step(
    themes: Themes, local: LocalThemes, rho: Scalar, jitter: Scalar = 1e-6, max_fall: Scalar = 0.9
) -> Themes:
    r"""The literal online update, kept for comparison with ``params.blend`` and ``m_step``.

    .. math::
        \mu \gets (1 - \rho)\mu + \rho\tilde\mu, \quad
        \Sigma \gets (1 - \rho)\Sigma + \rho(\tilde\Sigma + \epsilon I), \quad
        \alpha \gets \alpha - \rho H^{-1} g

    Paper: eq:online_update, eq:inverse_hessian_gradient; ``jitter`` is the 1e-6 under eq:m_step.
    Differs from the paper: a component of alpha loses at most the share ``max_fall`` of itself,
    which keeps it positive, and a task-theme that no class uses stays.
    """
    weighted = local.w > 0
    w = jnp.where(weighted, local.w, 1)
    direction = newton_direction(
        alpha_gradient(themes.alpha, w, local.E_log_theta_sum),
        alpha_hessian_diagonal(themes.alpha, w),
        alpha_hessian_constant(themes.alpha, w),
    )
    stepped = jnp.maximum(themes.alpha - rho * direction, themes.alpha * (1 - max_fall))
    ridge = jitter * jnp.eye(themes.D, dtype=themes.mu.dtype)
    return Themes(
        mu=(1 - rho) * themes.mu + rho * local.mu,
        Sigma=(1 - rho) * themes.Sigma + rho * (local.Sigma + ridge),
        alpha=jnp.where(weighted[:, None], stepped, themes.alpha),
        delta=themes.delta,
    )
