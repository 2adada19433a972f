"""The networks: shapes, normalisation, convolution."""

import json
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.meta import Architecture, architecture, conv4, mlp
from taskscape.meta.networks import convolve, max_pool, normalise


def images(n: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(n, *shape)), jnp.float32)


@pytest.mark.parametrize(
    ("shape", "features"), [((28, 28), 64), ((84, 84, 3), 1600), ((33, 20), 2 * 64)]
)
def test_conv4_sizes(shape: tuple[int, ...], features: int) -> None:
    net = conv4(shape)
    x, mask = jax.ShapeDtypeStruct((2, *shape), float), jax.ShapeDtypeStruct((2,), bool)
    for outputs in (None, 7):
        out = jax.eval_shape(
            lambda x, mask, outputs=outputs: net.build(jax.random.key(0), outputs)(x, mask), x, mask
        )
        assert out.shape == (2, outputs or features)


def test_a_convolution_is_what_the_compiler_makes_of_one() -> None:
    x, kernel = images(2, 7, 5, 3), images(3, 3, 3, 4)
    axes = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=axes)
    np.testing.assert_allclose(convolve(x, kernel), expected, atol=1e-4)


def test_batch_normalisation_uses_the_real_samples_of_the_set() -> None:
    h = images(4, 3, 3, 2) * 5 + 1
    mask = jnp.array([True, False, True, True])
    out = np.asarray(normalise(h.at[1].set(1e4), mask, "batch"))[np.asarray(mask)]
    np.testing.assert_allclose(out.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(out.std((0, 1, 2)), 1, atol=1e-3)


def test_layer_normalisation_leaves_samples_to_themselves() -> None:
    h, mask = images(4, 3, 3, 2), jnp.ones(4, bool)
    alone = normalise(h[:1], mask[:1], "layer")
    np.testing.assert_allclose(normalise(h, mask, "layer")[:1], alone, atol=1e-6)


def test_max_pool_drops_odd_edges() -> None:
    h = jnp.arange(15.0).reshape(1, 3, 5, 1)
    np.testing.assert_array_equal(max_pool(h)[0, :, :, 0], [[6, 8]])


def test_mlp_without_layers_hands_its_input_on() -> None:
    x = images(3, 4)
    np.testing.assert_allclose(
        mlp(4, (), scale=2.0).build(jax.random.key(0))(x, jnp.ones(3, bool)), 2 * x
    )


def test_mlp_is_layers_with_relu_between() -> None:
    x, net = images(3, 4), mlp(4, (6, 5)).build(jax.random.key(0), 2)
    h = x
    for W, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        h = np.maximum(h @ W + b, 0)
    expected = h @ net.weights[-1] + net.biases[-1]
    np.testing.assert_allclose(net(x, jnp.ones(3, bool)), expected, rtol=1e-5)


@pytest.mark.parametrize("net", [mlp(640, (128, 64), 8.0), conv4((28, 28), 32, "layer")])
def test_architectures_survive_json(net: object) -> None:
    assert architecture(json.loads(json.dumps(net.config()))) == net  # type: ignore[attr-defined]


@pytest.mark.parametrize("net", [mlp(16 * 16), conv4((16, 16), filters=4)], ids=["mlp", "conv4"])
def test_half_the_bits_of_the_samples_give_nearly_the_same(net: Architecture) -> None:
    x, mask = images(6, *net.sample_shape), jnp.ones(6, bool)
    for outputs in (None, 5):
        weights = net.build(jax.random.key(0), outputs)
        exact, rough = weights(x, mask), weights(x.astype(jnp.bfloat16), mask)
        assert rough.dtype == jnp.float32
        assert 0 < float(jnp.abs(rough - exact).max()) < 0.05 * float(jnp.abs(exact).max())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: conv4((12, 28)), r"least 16×16; got \(12, 28\)"),
        (lambda: conv4((28, 28), filters=0), "filters=0 must be at least 1"),
        (lambda: conv4((28, 28), normalisation="x"), "normalisation='x' .* 'batch' or 'layer'"),
        (lambda: mlp(0), "dims=0 must be at least 1"),
        (lambda: mlp(6, (4, 0)), "widths=0"),
        (lambda: architecture({"kind": "rnn"}), "network='rnn' is not known"),
    ],
)
def test_errors_name_the_argument(make: Callable[[], Architecture], said: str) -> None:
    with pytest.raises(DataError, match=said):
        make()
