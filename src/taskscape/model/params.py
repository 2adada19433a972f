"""What the model learns, infers and accumulates: frozen dataclasses that are JAX pytrees.

Leading axes ``*E`` (an ensemble of fits) and ``*M`` (tasks) may be absent.
"""

from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

Scalar: TypeAlias = float | Float[Array, ""]
Count: TypeAlias = int | Int[Array, ""]


@register_dataclass
@dataclass(frozen=True, eq=False)
class Themes:
    """Image-themes (mu, Sigma), task-themes (alpha) and the prior of the task mixture (delta)."""

    mu: Float[Array, "*E K D"]
    Sigma: Float[Array, "*E K D D"]
    alpha: Float[Array, "*E L K"]
    delta: Float[Array, "*E L"]

    @property
    def K(self) -> int:  # noqa: N802
        """Number of image-themes."""
        return self.alpha.shape[-1]

    @property
    def L(self) -> int:  # noqa: N802
        """Number of task-themes."""
        return self.alpha.shape[-2]

    @property
    def D(self) -> int:  # noqa: N802
        """Number of feature dimensions."""
        return self.mu.shape[-1]


@register_dataclass
@dataclass(frozen=True, eq=False)
class TaskPosterior:
    """The variational posterior q(phi; lam) q(y; eta) q(theta; gamma) of each task.

    q(z; r) is left out because it is large and follows from gamma: see ``estep.update_r``.
    A padded class has eta = 0 and gamma = 1.
    """

    lam: Float[Array, "*M L"]
    eta: Float[Array, "*M C L"]
    gamma: Float[Array, "*M C K"]


@register_dataclass
@dataclass(frozen=True, eq=False)
class ConditionalPosterior:
    """The posterior q(phi; lam) q(y; eta) q(theta | y; gamma) of each task.

    The mixture of a class depends on its task-theme l; q(z | y) follows from gamma: see
    ``conditional.responsibilities``. A padded class has eta = 0.
    """

    lam: Float[Array, "*M L"]
    eta: Float[Array, "*M C L"]
    gamma: Float[Array, "*M C L K"]


@register_dataclass
@dataclass(frozen=True, eq=False)
class ThemeStatistics:
    r"""The sums over tasks that the M-step needs, with moments about a fixed shift s.

    .. math::
        N_k = \sum_{dcn} r_{dcnk}, \quad S1_k = \sum_{dcn} r_{dcnk} (x_{dcn} - s), \quad
        S2_k = \sum_{dcn} r_{dcnk} (x_{dcn} - s)(x_{dcn} - s)^\top

    .. math::
        w_l = \sum_{dc} \eta_{dcl}, \quad
        E\_log\_theta\_sum_{lk} = \sum_{dc} \eta_{dcl}\, E[\ln\theta_{dck}]

    Statistics of disjoint sets of tasks add up; ``*`` scales them and ``blend`` averages them over
    time.
    """

    N_k: Float[Array, "*E K"]
    S1: Float[Array, "*E K D"]
    S2: Float[Array, "*E K D D"]
    w: Float[Array, "*E L"]
    E_log_theta_sum: Float[Array, "*E L K"]
    samples: Float[Array, "*E"]
    classes: Float[Array, "*E"]
    tasks: Float[Array, "*E"]

    def __add__(self, other: "ThemeStatistics") -> "ThemeStatistics":
        return jax.tree.map(jnp.add, self, other)

    def __mul__(self, factor: Scalar) -> "ThemeStatistics":
        return jax.tree.map(lambda leaf: factor * leaf, self)

    __rmul__ = __mul__


def zero_statistics(K: int, L: int, D: int, dtype: DTypeLike | None = None) -> ThemeStatistics:
    """The statistics of no task at all."""
    nothing = jnp.zeros((), dtype)
    return ThemeStatistics(
        N_k=jnp.zeros(K, dtype),
        S1=jnp.zeros((K, D), dtype),
        S2=jnp.zeros((K, D, D), dtype),
        w=jnp.zeros(L, dtype),
        E_log_theta_sum=jnp.zeros((L, K), dtype),
        samples=nothing,
        classes=nothing,
        tasks=nothing,
    )


def blend(running: ThemeStatistics, fresh: ThemeStatistics, rho: Scalar) -> ThemeStatistics:
    r"""Running average of statistics, the sound form of the online update.

    .. math:: S \gets (1 - \rho)\, S + \rho\, \tilde S

    Paper: takes the place of eq:online_update.
    Differs from the paper: statistics are averaged, not means and covariances, so a task that
    never used a theme has no say in it and the scatter between task means is kept.
    """
    return running * (1 - rho) + fresh * rho


@register_dataclass
@dataclass(frozen=True, eq=False)
class ThemePrior:
    r"""Weak conjugate priors that keep Sigma regular and alpha finite.

    .. math::
        \ln p(\Sigma_k) = -\tfrac{\nu}{2} \left[ \ln|\Sigma_k|
            + \mathrm{tr}(\Sigma_k^{-1} \Psi_0) \right] + \text{const}, \quad
        \ln p(\alpha_l) = m_0 \left[ -\ln B(\alpha_l)
            + \sum_k (\alpha_{lk} - 1) (\psi(a_0) - \psi(K a_0)) \right] + \text{const}

    ``nu`` counts pseudo-samples per covariance matrix, each with scatter diag(``Psi0``): the
    inverse-Wishart density with scale nu Psi0 and nu - D - 1 degrees of freedom, improper when
    nu <= 2 D, which a penalty may be. ``pseudo_classes`` is m0, the number of pseudo-classes per
    task-theme, drawn from the symmetric Dirichlet with concentration ``alpha0``.

    Both weights are plain numbers: the penalised bound never falls while they are held fixed.
    Paper: none; it adds 1e-6 I to Sigma and leaves alpha unpenalised.
    """

    nu: Float[Array, "*E"]
    Psi0: Float[Array, "*E D"]
    pseudo_classes: Float[Array, "*E"]
    alpha0: Float[Array, "*E"]


def relative_prior(
    stats: ThemeStatistics,
    Psi0: Float[Array, " D"],
    nu_fraction: Scalar = 1e-3,
    kappa: Scalar = 0.02,
    alpha0: Scalar = 1.0,
) -> ThemePrior:
    r"""Priors whose weights are fractions of the samples and classes that were counted.

    .. math:: \nu = f\, \frac{\text{samples}}{K}, \quad m_0 = \kappa\, \frac{\text{classes}}{L}

    The counts depend on the task set alone, not on the themes, so over a fixed task set this is
    the same prior at every pass and the penalised bound is monotone. Online, call it with the
    running statistics, whose size the weights then follow.
    """
    K, L = stats.N_k.shape[-1], stats.w.shape[-1]
    return ThemePrior(
        nu=nu_fraction * stats.samples / K,
        Psi0=Psi0,
        pseudo_classes=kappa * stats.classes / L,
        alpha0=jnp.asarray(alpha0, stats.samples.dtype),
    )
