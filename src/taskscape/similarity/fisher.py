"""A task's own classifier on frozen features, and the Fisher information of what made them.

Everything treats many tasks at once. Layers of the probe are shared by the tasks, so the costly
products are single large ones; per-sample gradients are never formed, because the gradient of a
dense layer's weights is an outer product, whose square is the outer product of the squares.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_NEVER = -1e9


class Head(NamedTuple):
    """Linear classifiers of many tasks on the probe's last layer, and how well they converged."""

    weights: Float[Array, "tasks width way"]
    gradient: Float[Array, "tasks"]
    """Length of the objective's gradient at the end, relative to that at zero weights."""


def hidden_layers(
    weights: tuple[Float[Array, "_ _"], ...],
    biases: tuple[Float[Array, "_"], ...],
    x: Float[Array, "*batch dims"],
) -> tuple[Float[Array, "*batch _"], ...]:
    """The output of every ReLU layer."""
    layers = []
    for W, b in zip(weights, biases, strict=True):
        x = jax.nn.relu(jnp.matmul(x, W, precision="highest") + b)
        layers.append(x)
    return tuple(layers)


def fit_heads(
    f: Float[Array, "tasks n width"],
    targets: Float[Array, "tasks n way"],
    class_mask: Bool[Array, "tasks way"],
    l2: float | Float[Array, ""],
    steps: int,
) -> Head:
    r"""Multinomial logistic regression of every task, by accelerated steps on a fixed bound.

    .. math:: \min_V -\sum_n \ln p_V(y_n \mid f_n) + \tfrac{l}{2} \lVert V \rVert^2, \quad
        p_V(\cdot \mid f) = \mathrm{softmax}(V^\top f)

    The Hessian is never above :math:`\tfrac12 F^\top F + l` (Böhning 1992), so steps by its inverse
    descend, and the inverse is needed once. Nesterov's momentum, reset where it points uphill,
    speeds them up. With fewer samples than features the same steps are taken on A, where
    :math:`V = F^\top A`. Padded samples have features and targets of zero.
    """
    n, width = f.shape[1:]
    real = targets.sum(axis=2, keepdims=True)
    dual = n <= width
    gram = _matmul(f, f.mT) if dual else _matmul(f.mT, f)
    push = gram if dual else f
    inverse = jnp.linalg.inv(gram / 2 + l2 * jnp.eye(gram.shape[-1]))

    def slope(theta: Float[Array, "tasks rank way"]) -> Float[Array, "tasks rank way"]:
        logits = jnp.where(class_mask[:, None], _matmul(push, theta), _NEVER)
        left = real * jax.nn.softmax(logits) - targets
        return (left if dual else _matmul(f.mT, left)) + l2 * theta

    Carry = tuple[Array, Array, Array]

    def step(carry: Carry, _: None) -> tuple[Carry, None]:
        theta, ahead, age = carry
        g = slope(ahead)
        new = ahead - _matmul(inverse, g)
        # uphill, measured in the space of V where the objective lives
        moved = new - theta
        inner = (g * (_matmul(gram, moved) if dual else moved)).sum((1, 2), keepdims=True)
        age = jnp.where(inner > 0, 0.0, age + 1)
        return (new, new + age / (age + 3) * moved, age), None

    zero = jnp.zeros((*f.shape[:1], gram.shape[-1], targets.shape[2]))
    start = (zero, zero, jnp.zeros((len(f), 1, 1)))
    theta = jax.lax.scan(step, start, length=steps)[0][0]

    def length(g: Float[Array, "tasks rank way"]) -> Float[Array, "tasks"]:
        squares = (g * _matmul(gram, g)) if dual else g**2
        return jnp.sqrt(jnp.maximum(squares.sum((1, 2)), 0))

    first = jnp.maximum(length(slope(zero)), 1e-30)
    return Head(_matmul(f.mT, theta) if dual else theta, length(slope(theta)) / first)


def fisher_per_unit(
    weights: tuple[Float[Array, "_ _"], ...],
    squares: Float[Array, "tasks n"],
    layers: tuple[Float[Array, "tasks n _"], ...],
    head: Float[Array, "tasks width way"],
    mask: Bool[Array, "tasks n"],
    class_mask: Bool[Array, "tasks way"],
) -> list[Float[Array, "tasks _"]]:
    r"""The Fisher information's diagonal, averaged over the weights and the bias of each unit.

    .. math:: F_w = \frac1N \sum_n \sum_y p(y \mid x_n)
        \left(\frac{\partial \ln p(y \mid x_n)}{\partial w}\right)^2

    over the model's own predictions. With :math:`g_{ny}` the derivative of logit y by the input of
    unit j, that is for weight (i, j) of a layer with inputs h

    .. math:: F_{ij} = \frac1N \sum_n h_{ni}^2 e_{nj}, \quad
        e_{nj} = \sum_y p_{ny} \Bigl(g_{ny} - \sum_k p_{nk} g_{nk}\Bigr)^2

    and on average

    .. math:: F_j = \frac1N \sum_n e_{nj} \frac{1 + \sum_i h_{ni}^2}{1 + I}

    The average needs no matrix of the layer's size, and of the first layer's inputs only their
    squared lengths, ``squares``.
    """
    logits = jnp.where(class_mask[:, None], _matmul(layers[-1], head), _NEVER)
    p = jax.nn.softmax(logits) * mask[..., None]
    lengths = [squares, *((h**2).sum(-1) for h in layers[:-1])]
    count = jnp.maximum(mask.sum(1), 1)[:, None]
    # (tasks, n, way, width): derivatives of all logits by the last layer's input
    g = head.mT[:, None] * (layers[-1] > 0)[:, :, None]
    units = []
    for i in range(len(weights) - 1, -1, -1):
        centred = g - jnp.einsum("tny,tnyw->tnw", p, g)[:, :, None]
        e = jnp.einsum("tny,tnyw->tnw", p, centred**2)
        units.append(jnp.einsum("tn,tnw->tw", 1 + lengths[i], e) / (1 + len(weights[i])) / count)
        if i:
            g = jnp.matmul(g, weights[i].T, precision="highest") * (layers[i - 1] > 0)[:, :, None]
    return units[::-1]


def _matmul(a: Float[Array, "*batch n m"], b: Float[Array, "*batch m k"]) -> Array:
    return jnp.matmul(a, b, precision="highest")
