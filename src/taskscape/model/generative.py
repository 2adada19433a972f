"""The sampling story of the paper: synthetic tasks with known themes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Key

from taskscape.model.params import Themes


@register_dataclass
@dataclass(frozen=True, eq=False)
class SyntheticTasks:
    """Samples and the latent variables that made them; y and z are one-hot."""

    x: Float[Array, "M C N D"]
    phi: Float[Array, "M L"]
    y: Float[Array, "M C L"]
    theta: Float[Array, "M C K"]
    z: Float[Array, "M C N K"]


def generate(key: Key[Array, ""], themes: Themes, M: int, C: int, N: int) -> SyntheticTasks:
    r"""Draw M tasks of C classes with N samples each.

    .. math::
        \phi_d \sim \mathrm{Dir}(\delta), \quad y_{dc} \sim \mathrm{Cat}(\phi_d), \quad
        \theta_{dc} \sim \mathrm{Dir}(\alpha_{y_{dc}}), \quad
        z_{dcn} \sim \mathrm{Cat}(\theta_{dc}), \quad
        x_{dcn} \sim N(\mu_{z_{dcn}}, \Sigma_{z_{dcn}})

    Paper: sec:methodology, the process under fig:cclda.
    """
    key_phi, key_y, key_theta, key_z, key_x = jax.random.split(key, 5)
    phi = jax.random.dirichlet(key_phi, themes.delta, (M,))
    y = jax.random.categorical(key_y, jnp.log(phi), shape=(C, M)).T
    theta = jax.random.dirichlet(key_theta, themes.alpha[y])
    z = jnp.moveaxis(jax.random.categorical(key_z, jnp.log(theta), shape=(N, M, C)), 0, -1)
    z_one_hot = jax.nn.one_hot(z, themes.K, dtype=phi.dtype)
    return SyntheticTasks(
        x=draw_samples(key_x, themes, z_one_hot),
        phi=phi,
        y=jax.nn.one_hot(y, themes.L, dtype=phi.dtype),
        theta=theta,
        z=z_one_hot,
    )


def draw_samples(
    key: Key[Array, ""], themes: Themes, z: Float[Array, "M C N K"]
) -> Float[Array, "M C N D"]:
    r"""Samples whose image-themes are given, one-hot.

    .. math:: x_{dcn} \sim N(\mu_{z_{dcn}}, \Sigma_{z_{dcn}})

    Paper: the last step of the process under fig:cclda.
    """
    noise = jax.random.normal(key, (*z.shape[:-1], themes.D), themes.mu.dtype)
    scale = jnp.linalg.cholesky(themes.Sigma)

    # One product per theme over all samples: gathering a matrix per sample would need
    # M C N D^2 numbers.
    def add_theme(k: Array, x: Float[Array, "M C N D"]) -> Float[Array, "M C N D"]:
        drawn = themes.mu[k] + jnp.einsum("mcnd,ed->mcne", noise, scale[k], precision="highest")
        return x + jnp.where(z[..., k, None] > 0, drawn, 0)

    return jax.lax.fori_loop(0, themes.K, add_theme, jnp.zeros_like(noise))
