"""A small batch of tasks with padding, and a posterior that is not at its optimum."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, logsumexp

from taskscape.model import (
    ElboTerms,
    TaskPosterior,
    Themes,
    elbo_terms,
    log_likelihood,
    whiten,
)

M, C, N, K, L, D = 3, 3, 4, 3, 2, 2

compiled_terms = jax.jit(elbo_terms)


def summed_bound(*arguments: Any) -> jax.Array:
    """The sum of the bound over tasks, with the arguments of ``elbo_terms``."""
    return elbo_terms(*arguments).total.sum()


# Compiled once and shared by the tests: compiling is nearly all of their time.
gradient_of_posterior = jax.jit(jax.grad(summed_bound, argnums=(0, 1)))
gradient_of_alpha = jax.jit(jax.grad(summed_bound, argnums=5))
hessian_of_alpha = jax.jit(jax.hessian(summed_bound, argnums=5))


@dataclass(frozen=True)
class Case:
    """Everything the bound depends on, in generic position."""

    x: jax.Array
    sample_mask: jax.Array
    class_mask: jax.Array
    themes: Themes
    posterior: TaskPosterior
    r: jax.Array
    log_lik: jax.Array

    def arguments(self, r: jax.Array, posterior: TaskPosterior) -> tuple[Any, ...]:
        """What ``elbo_terms`` takes, for given variational parameters."""
        masks, themes = (self.sample_mask, self.class_mask), self.themes
        return (r, posterior, self.log_lik, *masks, themes.alpha, themes.delta)

    def terms(self, r: jax.Array, posterior: TaskPosterior) -> ElboTerms:
        """The nine terms for given variational parameters."""
        return compiled_terms(*self.arguments(r, posterior))

    def gradient(self, r: jax.Array, posterior: TaskPosterior) -> tuple[jax.Array, TaskPosterior]:
        """Gradient of the bound with respect to r and to the rest of the posterior."""
        return gradient_of_posterior(*self.arguments(r, posterior))


@cache
def build_case() -> Case:
    """Three tasks; the second has two classes only, and one class of the third two samples."""
    rng = np.random.default_rng(0)
    class_mask = np.ones((M, C), bool)
    class_mask[1, 2] = False
    sample_mask = np.ones((M, C, N), bool) & class_mask[..., None]
    sample_mask[2, 0, 2:] = False
    roots = rng.normal(size=(K, D, D))
    themes = Themes(
        mu=jnp.asarray(rng.normal(size=(K, D))),
        Sigma=jnp.asarray(roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(D)),
        alpha=jnp.asarray(rng.gamma(2.0, 1.0, (L, K)) + 0.2),
        delta=jnp.asarray([0.5, 0.8]),
    )
    x = jnp.asarray(rng.normal(size=(M, C, N, D)) * 1.5)
    eta = rng.dirichlet(np.ones(L), (M, C)) * class_mask[..., None]
    posterior = TaskPosterior(
        lam=jnp.asarray(rng.gamma(2.0, 1.0, (M, L)) + 0.3),
        eta=jnp.asarray(eta),
        gamma=jnp.asarray(rng.gamma(2.0, 1.0, (M, C, K)) + 0.3),
    )
    r = jnp.asarray(rng.dirichlet(np.ones(K), (M, C, N)) * sample_mask[..., None])
    return Case(
        x=x,
        sample_mask=jnp.asarray(sample_mask),
        class_mask=jnp.asarray(class_mask),
        themes=themes,
        posterior=posterior,
        r=r,
        log_lik=log_likelihood(x, whiten(themes.mu, themes.Sigma)),
    )


def log_dirichlet_multinomial(counts: np.ndarray, alpha: np.ndarray) -> float:
    """Log-probability of one sequence of assignments with these counts."""
    both = gammaln(alpha + counts) - gammaln(alpha)
    return both.sum() + gammaln(alpha.sum()) - gammaln(alpha.sum() + counts.sum())


def exact_log_evidence(
    log_lik: Sequence[np.ndarray] | np.ndarray, alpha: jax.Array, delta: jax.Array
) -> float:
    """ln p(x) of one task by enumeration of every y and z, from log-likelihoods by class."""
    concentrations, prior = np.asarray(alpha), np.asarray(delta)
    L, K = concentrations.shape
    per_class = []
    for own in log_lik:
        paths = [np.array(z) for z in product(range(K), repeat=len(own))]
        likelihoods = [own[np.arange(len(z)), z].sum() for z in paths]
        counts = [np.bincount(z, minlength=K) for z in paths]
        per_class.append(
            [
                logsumexp(
                    [
                        lik + log_dirichlet_multinomial(n, a)
                        for lik, n in zip(likelihoods, counts, strict=True)
                    ]
                )
                for a in concentrations
            ]
        )
    return float(
        logsumexp(
            [
                sum(row[y_c] for row, y_c in zip(per_class, y, strict=True))
                + log_dirichlet_multinomial(np.bincount(y, minlength=L), prior)
                for y in product(range(L), repeat=len(per_class))
            ]
        )
    )
