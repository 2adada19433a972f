"""The Fisher diagonal against a loop over samples and labels with automatic gradients."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from taskscape.similarity.task2vec import (
    fisher_per_unit,
    fit_heads,
    hidden_layers,
)

WIDTHS, DIMS, WAY, SHOT = (7, 6, 5), 4, 3, 4


@pytest.fixture(name="case")
def make_case():
    rng = np.random.default_rng(0)
    sizes = (DIMS, *WIDTHS)
    pairs = list(pairwise(sizes))
    weights = tuple(jnp.asarray(rng.normal(size=(m, n)), jnp.float32) for m, n in pairs)
    biases = tuple(jnp.asarray(rng.normal(size=n), jnp.float32) for _, n in pairs)
    x = jnp.asarray(rng.normal(size=(2, WAY * SHOT, DIMS)), jnp.float32)
    head = jnp.asarray(rng.normal(size=(2, WIDTHS[-1], WAY)), jnp.float32)
    # the second task lacks its last class, and its first class a sample
    mask, class_mask = np.ones((2, WAY * SHOT), bool), np.ones((2, WAY), bool)
    mask[1, -SHOT:], mask[1, 0], class_mask[1, -1] = False, False, False
    return weights, biases, x, head, jnp.asarray(mask), jnp.asarray(class_mask)


def log_p(layers, x, head, y, way):
    weights, biases = layers
    return jax.nn.log_softmax(hidden_layers(weights, biases, x)[-1] @ head[:, :way])[y]


def looped(weights, biases, x, head, mask, way):
    """E over samples and over labels from the model of the squared gradient, one at a time."""
    total = jax.tree.map(np.zeros_like, jax.device_get((weights, biases)))
    gradient = jax.jit(jax.value_and_grad(log_p), static_argnames="way")
    rows = np.flatnonzero(mask)
    for n in rows:
        for y in range(way):
            value, g = gradient((weights, biases), x[n], head, y, way=way)
            share = np.exp(value) / len(rows)
            total = jax.tree.map(lambda t, d, s=share: t + s * np.asarray(d) ** 2, total, g)
    return total


def test_average_per_unit_is_that_of_a_loop_over_samples_and_labels(case):
    weights, biases, x, head, mask, class_mask = case
    layers = hidden_layers(weights, biases, x)
    units = fisher_per_unit(weights, (x**2).sum(-1), layers, head, mask, class_mask)
    for task, way in ((0, WAY), (1, WAY - 1)):
        looped_layers = looped(weights, biases, x[task], head[task], mask[task], way)
        for unit, F_weights, F_biases in zip(units, *looped_layers, strict=True):
            average = (F_weights.sum(0) + F_biases) / (len(F_weights) + 1)
            np.testing.assert_allclose(unit[task], average, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("width", [40, 6])  # with fewer samples than features, and with more
def test_heads_are_those_of_scikit_learn(width):
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(WAY), 8)
    f = rng.normal(size=(3, len(y), width)) + 0.5 * rng.normal(size=(3, WAY, width))[:, y]
    targets = np.broadcast_to(np.eye(WAY)[y], (3, len(y), WAY))
    fit = jax.jit(partial(fit_heads, l2=1.0, steps=150))
    head = fit(
        jnp.asarray(f, jnp.float32), jnp.asarray(targets, jnp.float32), jnp.ones((3, WAY), bool)
    )
    for task in range(3):
        peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=2000)
        wanted = peer.fit(f[task], y).coef_.T
        np.testing.assert_allclose(head[task], wanted, atol=2e-4)


def test_padded_samples_and_classes_change_no_head():
    rng = np.random.default_rng(2)
    y = np.repeat(np.arange(2), 3)
    f = jnp.asarray(rng.normal(size=(1, 6, 9)), jnp.float32)
    targets = jnp.asarray(np.eye(2)[y][None], jnp.float32)
    fit = jax.jit(partial(fit_heads, l2=1.0, steps=150))
    plain = fit(f, targets, jnp.ones((1, 2), bool))
    padded = fit(
        jnp.pad(f, ((0, 0), (0, 2), (0, 0))),
        jnp.pad(targets, ((0, 0), (0, 2), (0, 1))),
        jnp.asarray([[True, True, False]]),
    )
    np.testing.assert_allclose(padded[..., :2], plain, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(padded[..., 2]), 0)
