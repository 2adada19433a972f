"""The sampling story: shapes, the law of every latent, and reproducibility."""

import jax
import jax.numpy as jnp
import numpy as np

from taskscape.model import SyntheticTasks, Themes, draw_samples, generate

K, L, D = 3, 2, 2
MATRICES = np.array(
    [[[1.0, 0.5], [0.5, 2.0]], [[0.3, 0.0], [0.0, 0.3]], [[2.0, -1.0], [-1.0, 1.0]]]
)
compiled_generate = jax.jit(generate, static_argnames=("M", "C", "N"))


def some_themes() -> Themes:
    """Themes far apart, with known covariances."""
    return Themes(
        mu=jnp.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]),
        Sigma=jnp.asarray(MATRICES, jnp.float32),
        alpha=jnp.array([[5.0, 1.0, 0.5], [0.5, 2.0, 4.0]]),
        delta=jnp.array([1.0, 3.0]),
    )


def draw(seed: int = 0) -> SyntheticTasks:
    """Many small tasks."""
    return compiled_generate(jax.random.key(seed), some_themes(), M=2000, C=3, N=4)


def test_shapes_and_one_hot_latents() -> None:
    tasks = draw()
    assert tasks.x.shape == (2000, 3, 4, D)
    for latent, shape in [(tasks.y, (2000, 3, L)), (tasks.z, (2000, 3, 4, K))]:
        assert latent.shape == shape
        np.testing.assert_array_equal(latent.sum(-1), 1)
        np.testing.assert_array_equal(jnp.unique(latent), [0, 1])
    np.testing.assert_allclose(tasks.phi.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(tasks.theta.sum(-1), 1, rtol=1e-5)


def test_latents_follow_their_laws() -> None:
    tasks, themes = draw(), some_themes()
    np.testing.assert_allclose(tasks.phi.mean(0), [0.25, 0.75], atol=0.02)
    np.testing.assert_allclose(tasks.y.mean((0, 1)), [0.25, 0.75], atol=0.02)
    given_phi = jnp.einsum("ml,mcl->l", tasks.phi, tasks.y) / (2000 * 3)
    np.testing.assert_allclose(given_phi, (tasks.phi**2).mean(0), atol=0.02)
    for row in range(L):
        chosen = tasks.y[..., row] > 0
        mean = themes.alpha[row] / themes.alpha[row].sum()
        np.testing.assert_allclose(tasks.theta[chosen].mean(0), mean, atol=0.02)
    given_theta = (tasks.z.mean(2) * tasks.theta).mean((0, 1))
    np.testing.assert_allclose(given_theta, (tasks.theta**2).mean((0, 1)), atol=0.02)


def test_samples_have_the_moments_of_their_theme() -> None:
    z, themes = draw().z, some_themes()
    drawn = draw_samples(jax.random.key(7), themes, z)
    for k in range(K):
        x = np.asarray(drawn[z[..., k] > 0])
        np.testing.assert_allclose(x.mean(0), themes.mu[k], atol=0.12)
        np.testing.assert_allclose(np.cov(x.T), MATRICES[k], atol=0.15)


def test_samples_belong_to_their_theme() -> None:
    tasks, themes = draw(), some_themes()
    nearest = jnp.linalg.norm(tasks.x[..., None, :] - themes.mu, axis=-1).argmin(-1)
    assert (nearest == tasks.z.argmax(-1)).mean() > 0.99


def test_same_key_same_tasks() -> None:
    np.testing.assert_array_equal(draw(1).x, draw(1).x)
    assert (draw(1).x != draw(2).x).any()
