"""Dirichlet distributions: expectations, divergences, and the concentration that fits best."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma as library_digamma
from jax.scipy.special import gammaln, polygamma
from jaxtyping import Array, Bool, Float, Int

from taskscape.model.fixed_point import sum_rows

_INVERSE_DIGAMMA_STEPS = 5  # Minka: five Newton steps reach 14 digits
_LOG_TOTAL_BOUNDS = (-14.0, 14.0)  # sum of alpha between 1e-6 and 1e6
_DIGAMMA_WITHOUT_SHIFT = 50.0  # beyond, the series alone is exact in float32
_LOG_GAMMA_WITHOUT_SHIFT = 4.0  # likewise
_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
_LOG_TOTAL_TOLERANCE = 1e-6  # of the last step; Newton's error is about its square


class _Search(NamedTuple):
    """Bracketed search for the logarithm of the sum of alpha."""

    log_s: Float[Array, "*A L"]
    low: Float[Array, "*A L"]
    high: Float[Array, "*A L"]
    step: Float[Array, "*A L"]
    i: Int[Array, ""]


def _sum(x: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    """Sum over an axis. Over the last one it is a product with ones: what it sums is then computed
    before, which is several times faster on a CPU. Over another one it is written out, so that
    whatever lies side by side on the last axis is summed side by side.
    """
    if axis in (-1, x.ndim - 1):
        return jnp.einsum("...k,k->...", x, jnp.ones(x.shape[-1], x.dtype), precision="highest")
    return sum_rows(x, axis)


def digamma(x: Float[Array, "*A"]) -> Float[Array, "*A"]:
    r"""Derivative of ln Γ, for positive x; the E-step spends much of its time here.

    .. math:: \psi(x) = \ln y - \frac{1}{2y} - \frac{1}{12 y^2} + \frac{1}{120 y^4}
        - \frac{1}{252 y^6} + \frac{1}{240 y^8} - \sum_{i=0}^5 \frac{1}{x + i}, \quad y = x + 6

    In float32 this is as accurate as the library's function and several times faster on a CPU; the
    six fractions are summed over one denominator. In float64 the library's function is used.
    """
    return digamma_and_log_gamma(x)[0]


def digamma_and_log_gamma(
    x: Float[Array, "*A"],
) -> tuple[Float[Array, "*A"], Float[Array, "*A"]]:
    r"""ψ(x) and ln Γ(x), which share most of their work; see :func:`digamma`.

    .. math:: \ln\Gamma(x) = (y - \tfrac12) \ln y - y + \tfrac12 \ln 2\pi + \frac{1}{12 y}
        - \frac{1}{360 y^3} + \frac{1}{1260 y^5} - \ln \prod_{i=0}^5 (x + i), \quad y = x + 6

    Rounded to float32, a difference of two large ln Γ keeps few digits: see :func:`log_beta`.
    """
    if x.dtype != jnp.float32:
        return library_digamma(x), gammaln(x)
    far = x > _DIGAMMA_WITHOUT_SHIFT
    near = jnp.where(far, 1, x)
    p = near * (near + 5)  # x (x + 5); then (x + 1)(x + 4) = p + 4 and (x + 2)(x + 3) = p + 6
    pairs = (p + 4) * (p + 6)
    fractions = (2 * near + 5) * (pairs + p * (2 * p + 10)) / (p * pairs)
    y = jnp.where(far, x, x + 6)
    v = 1 / y
    w, log_y = v * v, -jnp.log(v)
    series = v * (0.5 + v * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w / 240))))
    stirling = (y - 0.5) * log_y - y + _HALF_LOG_2_PI + v * (1 / 12 - w * (1 / 360 - w / 1260))
    psi = log_y - series - jnp.where(far, 0, fractions)
    return psi, stirling - jnp.where(far, 0, jnp.log(p * pairs))


def trigamma(x: Float[Array, "*A"]) -> Float[Array, "*A"]:
    """Derivative of the digamma function."""
    return polygamma(1, x)


def log_beta(alpha: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    r"""Logarithm of the Dirichlet normaliser.

    .. math:: \ln B(\alpha) = \sum_k \ln\Gamma(\alpha_k) - \ln\Gamma(\sum_k \alpha_k)

    In float32 the difference would lose digits where the sum of alpha is large, by 0.2 nats at 1e5;
    there Stirling's formula cancels what is large beforehand, and a few roundings of the result
    are left. In float64 the library's function is used.

    Paper: eq:log_dirichlet_normalized_const.
    """
    if alpha.dtype != jnp.float32:
        return _sum(gammaln(alpha), axis) - gammaln(_sum(alpha, axis))
    return _log_beta_float32(alpha, axis)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _log_beta_float32(alpha: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    r"""Logarithm of the Dirichlet normaliser, without the difference of large numbers.

    .. math:: \ln B(\alpha) = \sum_k \alpha_k \ln\frac{\alpha_k}{\alpha_0}
        + \sum_k c(\alpha_k) - c(\alpha_0) + \tfrac{K - 1}{2} \ln 2\pi,
        \quad \alpha_0 = \sum_k \alpha_k

    with c of ``_small_part``. Shares are taken of the largest component m, which makes the first
    sum one of terms with one sign, none of them rounded from a share near one:

    .. math:: \sum_k \alpha_k \ln\frac{\alpha_k}{\alpha_0} = \sum_k \alpha_k \ln\frac{\alpha_k}{m}
        - \alpha_0 \ln\left(1 + \frac{\alpha_0 - m}{m}\right)
    """
    others = tuple(i for i in range(alpha.ndim) if i != axis % alpha.ndim)
    place = jnp.expand_dims(jnp.arange(alpha.shape[axis]), others)
    largest = place == alpha.argmax(axis, keepdims=True)
    m = alpha.max(axis, keepdims=True)
    rest = _sum(jnp.where(largest, 0, alpha), axis)
    top = jnp.squeeze(m, axis)
    total = top + rest
    # the compiler may multiply by 1/m, so that m/m is not quite 1
    large = _sum(jnp.where(largest, 0, alpha * jnp.log(alpha / m)), axis)
    large = large - total * jnp.log1p(rest / top)
    small = _sum(_small_part(alpha), axis) - _small_part(total)
    return large + small + (alpha.shape[axis] - 1) * _HALF_LOG_2_PI


@_log_beta_float32.defjvp
def _log_beta_slope(
    axis: int, at: tuple[Float[Array, "..."]], along: tuple[Float[Array, "..."]]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """The derivative of ln B is the expected logarithm."""
    return _log_beta_float32(at[0], axis), _sum(expected_log(at[0], axis) * along[0], axis)


def _small_part(x: Float[Array, "*A"]) -> Float[Array, "*A"]:
    r"""What Stirling's formula leaves of ln Γ besides x ln x, x and the constant.

    .. math:: c(x) = \ln\Gamma(x) - x \ln x + x - \tfrac12 \ln 2\pi
        = -\tfrac12 \ln x + \frac{1}{12x} - \frac{1}{360x^3} + \frac{1}{1260x^5} - \frac{1}{1680x^7}

    Below 4 it comes from ln Γ(x) = ln Γ(x + 4) - ln x(x + 1)(x + 2)(x + 3).
    """
    near = x < _LOG_GAMMA_WITHOUT_SHIFT
    s = jnp.where(near, x, 1)
    y = jnp.where(near, x + 4, x)
    v = 1 / y
    w = v * v
    series = v * (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w / 1680)))
    p = s * (s + 3)  # then (x + 1)(x + 2) = p + 2
    shift = jnp.where(near, 4 + jnp.log(p * (p + 2)) + s * jnp.log(s), 0)
    return jnp.where(near, s + 3.5, -0.5) * jnp.log(y) + series - shift


def expected_log(alpha: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    r"""Expected logarithm of a Dirichlet variable.

    .. math:: E[\ln \theta_k] = \psi(\alpha_k) - \psi(\sum_j \alpha_j)

    Paper: eq:log_tilde_theta, eq:log_tilde_phi.
    Differs from the paper: for phi the sum runs over the L task-themes, not over K.
    """
    return digamma(alpha) - jnp.expand_dims(digamma(_sum(alpha, axis)), axis)


def log_density(theta: Float[Array, "*A K"], alpha: Float[Array, "*A K"]) -> Float[Array, "*A"]:
    r"""Log-density of points on the simplex.

    .. math:: \ln p(\theta) = -\ln B(\alpha) + \sum_k (\alpha_k - 1) \ln\theta_k
    """
    return ((alpha - 1) * jnp.log(theta)).sum(-1) - log_beta(alpha)


def entropy(alpha: Float[Array, "..."], axis: int = -1) -> Float[Array, "..."]:
    r"""Differential entropy.

    .. math:: H = \ln B(\alpha) - \sum_k (\alpha_k - 1)\, E[\ln\theta_k]

    In float32 the large parts of both terms, which are the same, are left out beforehand:

    .. math:: H = \sum_k h(\alpha_k) - h(\alpha_0) + \sum_k E[\ln\theta_k]
        + \tfrac{K - 1}{2} \ln 2\pi, \quad h(x) = c(x) + x (\ln x - \psi(x)),
        \quad \alpha_0 = \sum_k \alpha_k

    with c of ``_small_part``.
    """
    if alpha.dtype != jnp.float32:
        return log_beta(alpha, axis) - _sum((alpha - 1) * expected_log(alpha, axis), axis)

    def h(x: Float[Array, "*B"]) -> Float[Array, "*B"]:
        far = x > _DIGAMMA_WITHOUT_SHIFT
        near, v = jnp.where(far, 1, x), 1 / jnp.where(far, x, 1)
        lag = jnp.where(far, 0.5 + v / 12 - v**3 / 120, near * (jnp.log(near) - digamma(near)))
        return _small_part(x) + lag

    K, total = alpha.shape[axis], _sum(alpha, axis)
    constant = (K - 1) * _HALF_LOG_2_PI
    return _sum(h(alpha) + digamma(alpha), axis) - K * digamma(total) - h(total) + constant


def kl_divergence(
    a: Float[Array, "..."], b: Float[Array, "..."], axis: int = -1
) -> Float[Array, "..."]:
    r"""Kullback-Leibler divergence from Dirichlet(a) to Dirichlet(b).

    .. math:: KL[a \| b] = \ln B(b) - \sum_k (b_k - 1)\, E_a[\ln\theta_k] - H(a)
    """
    cross = _sum((b - 1) * digamma(a), axis) - _sum(b - 1, axis) * digamma(_sum(a, axis))
    return log_beta(b, axis) - cross - entropy(a, axis)


def inverse_digamma(y: Float[Array, "*A"]) -> Float[Array, "*A"]:
    r"""The positive x with digamma(x) = y.

    .. math:: x \gets x - \frac{\psi(x) - y}{\psi'(x)}

    The start is Minka's (Estimating a Dirichlet distribution, appendix C).
    """
    far_left = y < -2.22
    start = jnp.where(
        far_left,
        -1 / (jnp.where(far_left, y, -3.0) - digamma(jnp.ones((), y.dtype))),
        jnp.exp(jnp.where(far_left, 0.0, y)) + 0.5,
    )

    def newton(_: Int[Array, ""], x: Float[Array, "*A"]) -> Float[Array, "*A"]:
        return jnp.maximum(x - (digamma(x) - y) / trigamma(x), x / 16)

    return jax.lax.fori_loop(0, _INVERSE_DIGAMMA_STEPS, newton, start)


def moment_match(
    theta: Float[Array, "S K"], weights: Float[Array, " S"], min_share: float = 1e-3
) -> Float[Array, " K"]:
    r"""The Dirichlet with the weighted mean and the total variance of points on the simplex.

    .. math:: \alpha = m \left( \frac{\sum_k m_k (1 - m_k)}{\sum_k v_k} - 1 \right)

    Components are kept above ``min_share`` of the total, and the total between 1e-1 and 1e3:
    a single point, or points at the corners, would otherwise give no usable concentration.
    """
    share = weights / weights.sum()
    mean = jnp.einsum("s,sk->k", share, theta, precision="highest")
    variance = jnp.einsum("s,sk->k", share, (theta - mean) ** 2, precision="highest")
    total = (mean * (1 - mean)).sum() / jnp.maximum(variance.sum(), 1e-12) - 1
    mean = jnp.maximum(mean, min_share)
    return mean / mean.sum() * jnp.clip(total, 1e-1, 1e3)


def alpha_objective(
    alpha: Float[Array, "*A L K"], w: Float[Array, "*A L"], E_log_theta_sum: Float[Array, "*A L K"]
) -> Float[Array, "*A L"]:
    r"""The part of the bound that holds alpha, for each task-theme.

    .. math:: -w_l \ln B(\alpha_l) + \sum_k (\alpha_{lk} - 1)
        \sum_{dc} \eta_{dcl}\, E[\ln\theta_{dck}]

    Paper: first equation of apdx:alpha.
    """
    return ((alpha - 1) * E_log_theta_sum).sum(-1) - w * log_beta(alpha)


def alpha_gradient(
    alpha: Float[Array, "*A L K"], w: Float[Array, "*A L"], E_log_theta_sum: Float[Array, "*A L K"]
) -> Float[Array, "*A L K"]:
    r"""Gradient g of the bound with respect to alpha.

    .. math:: g_{lk} = w_l [\psi(\textstyle\sum_j \alpha_{lj}) - \psi(\alpha_{lk})]
        + \sum_{dc} \eta_{dcl}\, E[\ln\theta_{dck}]

    Paper: apdx:alpha.
    Differs from the paper: w_l sums eta over tasks and classes; the paper writes M times the sum
    over the classes of one task.
    """
    return E_log_theta_sum - w[..., None] * expected_log(alpha)


def alpha_hessian_diagonal(
    alpha: Float[Array, "*A L K"], w: Float[Array, "*A L"]
) -> Float[Array, "*A L K"]:
    r"""Diagonal part q of the Hessian H_l = diag(q_l) + u_l 1 1^T.

    .. math:: q_{lk} = -w_l\, \psi'(\alpha_{lk})

    Paper: apdx:alpha.
    Differs from the paper: w_l as in ``alpha_gradient``.
    """
    return -w[..., None] * trigamma(alpha)


def alpha_hessian_constant(
    alpha: Float[Array, "*A L K"], w: Float[Array, "*A L"]
) -> Float[Array, "*A L"]:
    r"""Constant part u of the Hessian H_l = diag(q_l) + u_l 1 1^T.

    .. math:: u_l = w_l\, \psi'(\textstyle\sum_k \alpha_{lk})

    Paper: apdx:alpha.
    Differs from the paper: w_l as in ``alpha_gradient``.
    """
    return w * trigamma(alpha.sum(-1))


def newton_direction(
    g: Float[Array, "*A L K"], q: Float[Array, "*A L K"], u: Float[Array, "*A L"]
) -> Float[Array, "*A L K"]:
    r"""The inverse Hessian times the gradient, in time linear in K.

    .. math:: (H_l^{-1} g_l)_k = \frac{g_{lk} - b_l}{q_{lk}}, \quad
        b_l = \frac{\sum_j g_{lj} / q_{lj}}{1 / u_l + \sum_j 1 / q_{lj}}

    Paper: eq:inverse_hessian_gradient.
    Differs from the paper: b_l divides g by q; the paper's last form multiplies.
    """
    b = (g / q).sum(-1) / (1 / u + (1 / q).sum(-1))
    return (g - b[..., None]) / q


def solve_alpha(
    w: Float[Array, "*A L"],
    E_log_theta_sum: Float[Array, "*A L K"],
    start: Float[Array, "*A L K"],
    max_iter: int = 64,
) -> Float[Array, "*A L K"]:
    r"""The concentration of each task-theme that maximises ``alpha_objective``.

    .. math:: \psi(\alpha_{lk}) = \psi(s_l) + m_{lk}, \quad \sum_k \alpha_{lk} = s_l, \quad
        m_{lk} = \frac{1}{w_l} \sum_{dc} \eta_{dcl}\, E[\ln\theta_{dck}]

    This is Minka's fixed point, solved rather than iterated: given the total s every alpha
    follows, so one increasing scalar is sought, by Newton steps on ln s inside a bracket that
    only shrinks. The objective is concave, hence the root is unique and any start will do.
    A task-theme with w = 0 keeps its start.

    Paper: apdx:alpha.
    Differs from the paper: the maximum itself instead of one Newton step, which can leave the
    positive numbers and can run away.
    """
    if start.shape[-1] == 1:  # theta is the constant one, and says nothing about alpha
        return start
    has_classes = w > 0
    m = E_log_theta_sum / jnp.where(has_classes, w, 1)[..., None]

    def alpha_given(log_s: Float[Array, "*A L"]) -> Float[Array, "*A L K"]:
        return inverse_digamma(digamma(jnp.exp(log_s))[..., None] + m)

    def unfinished(at: _Search) -> Bool[Array, ""]:
        return (at.i < max_iter) & jnp.any(jnp.abs(at.step) > _LOG_TOTAL_TOLERANCE)

    def narrow(at: _Search) -> _Search:
        s, alpha = jnp.exp(at.log_s), alpha_given(at.log_s)
        excess = jnp.log(alpha.sum(-1)) - at.log_s
        low = jnp.where(excess > 0, at.log_s, at.low)
        high = jnp.where(excess > 0, at.high, at.log_s)
        slope = s * trigamma(s) * (1 / trigamma(alpha)).sum(-1) / alpha.sum(-1) - 1
        newton = at.log_s - excess / slope
        log_s = jnp.where((newton > low) & (newton < high), newton, (low + high) / 2)
        return _Search(log_s, low, high, log_s - at.log_s, at.i + 1)

    low, high = (jnp.full_like(w, bound) for bound in _LOG_TOTAL_BOUNDS)
    log_s = jnp.clip(jnp.log(start.sum(-1)), low, high)
    search = _Search(log_s, low, high, jnp.full_like(w, jnp.inf), jnp.zeros((), jnp.int32))
    solution = alpha_given(jax.lax.while_loop(unfinished, narrow, search).log_s)
    return jnp.where(has_classes[..., None], solution, start)
