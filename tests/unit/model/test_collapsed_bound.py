"""The paper's bound with r put in, against the sum of its nine terms."""

import jax.numpy as jnp
import numpy as np

from taskscape.model import cold_start, collapsed_elbo, elbo, sweep


def test_the_collapsed_bound_is_the_sum_of_the_nine_terms():
    rng = np.random.default_rng(0)
    log_lik = jnp.asarray(5 * rng.normal(size=(6, 4, 7, 5)), jnp.float32)
    class_mask = jnp.asarray(rng.random((6, 4)) < 0.8).at[:, 0].set(True)
    sample_mask = jnp.asarray(rng.random((6, 4, 7)) < 0.8).at[:, :, 0].set(True)
    alpha = jnp.asarray(rng.uniform(0.02, 2, (3, 5)), jnp.float32)
    given = (log_lik, sample_mask, class_mask, alpha, jnp.full(3, 0.5))
    posterior = sweep(cold_start(*given[1:]), *given)
    terms = elbo(posterior, *given)
    np.testing.assert_allclose(collapsed_elbo(posterior, *given), terms.total, rtol=1e-5)
