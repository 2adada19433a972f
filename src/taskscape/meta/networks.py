"""The networks that learners train (`NETWORKS`): `mlp` for features, `conv4` for images.

A network is called with a whole set of samples and a mask, because `conv4` normalises by the
statistics of that set. All its leaves are arrays, so that weights can be mapped, sampled and moved
as one tree. It computes in the precision of the samples: bfloat16 samples make bfloat16 products
and activations, whatever the weights are; statistics and what comes out have at least 32 bits.
"""

import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from taskscape.arguments import check_choice, check_whole
from taskscape.compiling import keep_programs
from taskscape.errors import DataError
from taskscape.pools import ClassPool

keep_programs()

NORMALISATIONS = ("batch", "layer")
PRECISIONS: Mapping[str, tuple[str, type[Any]]] = {
    "float32": ("float32", jnp.float32),
    "tf32": ("tensorfloat32", jnp.float32),
    "bfloat16": ("float32", jnp.bfloat16),
}
"""How exactly networks are computed: JAX's precision of products, type of samples."""
_EPSILON = 1e-5
_HEAD_SHRINKS = 0.1
"""How much smaller heads start than hidden layers. The first predictions are then nearly uniform,
and the first inner step writes the class means into the head: MAML on features gained 16 points
of accuracy at 5 steps, 4 at 10."""


@runtime_checkable
class Network(Protocol):
    """Weights that turn a set of samples into one vector each; a pytree of arrays."""

    def __call__(
        self, x: Float[Array, "n *shape"], mask: Bool[Array, "n"]
    ) -> Float[Array, "n outputs"]: ...


@runtime_checkable
class Architecture(Protocol):
    """What a network looks like, without its weights: hashable, and a dict away from JSON."""

    @property
    def sample_shape(self) -> tuple[int, ...]: ...

    def build(self, key: PRNGKeyArray, outputs: int | None = None) -> Network:
        """Fresh weights; with ``outputs`` a linear head on the last hidden layer, else none."""
        ...

    def config(self) -> dict[str, Any]: ...


class MlpWeights(eqx.Module):
    """Linear layers with ReLU between them, and after the last one where it is an embedding."""

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, "_"], ...]
    scale: float = eqx.field(static=True)
    embeds: bool = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, "n *shape"], mask: Bool[Array, "n"]
    ) -> Float[Array, "n outputs"]:
        del mask  # every sample is treated by itself
        h = self.scale * x.reshape(len(x), -1)
        last = len(self.weights) - 1
        for i, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = h @ W.astype(h.dtype) + b.astype(h.dtype)
            if i < last or self.embeds:
                h = jax.nn.relu(h)
        return at_least_32_bits(h)


@dataclass(frozen=True)
class Mlp:
    """A fully connected network for feature vectors; see :func:`mlp`."""

    dims: int
    widths: tuple[int, ...] = (128,)
    scale: float = 1.0

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return (self.dims,)

    def build(self, key: PRNGKeyArray, outputs: int | None = None) -> MlpWeights:
        sizes = (self.dims, *self.widths, *(() if outputs is None else (outputs,)))
        keys = jax.random.split(key, max(1, len(sizes) - 1))
        layers = list(zip(keys, sizes[:-1], sizes[1:], strict=False))
        weights = [_he_normal(k, (m, n), fan_in=m) for k, m, n in layers]
        if outputs is not None:
            weights[-1] = _HEAD_SHRINKS * weights[-1]
        return MlpWeights(
            weights=tuple(weights),
            biases=tuple(jnp.zeros(n) for _, _, n in layers),
            scale=self.scale,
            embeds=outputs is None,
        )

    def config(self) -> dict[str, Any]:
        return {"kind": "mlp", **asdict(self)}


class Conv4Weights(eqx.Module):
    """Four modules of convolution, normalisation, ReLU and pooling; then the head, if any."""

    kernels: tuple[Float[Array, "3 3 _ filters"], ...]
    gains: tuple[Float[Array, "filters"], ...]
    offsets: tuple[Float[Array, "filters"], ...]
    head: MlpWeights | None
    normalisation: str = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, "n *shape"], mask: Bool[Array, "n"]
    ) -> Float[Array, "n outputs"]:
        h = x[..., None] if x.ndim == 3 else x
        for kernel, gain, offset in zip(self.kernels, self.gains, self.offsets, strict=True):
            h = normalise(convolve(h, kernel.astype(h.dtype)), mask, self.normalisation)
            h = max_pool(jax.nn.relu(gain.astype(h.dtype) * h + offset.astype(h.dtype)))
        flat = h.reshape(len(h), -1)
        return at_least_32_bits(flat) if self.head is None else self.head(flat, mask)


@dataclass(frozen=True)
class Conv4:
    """The four-module convolutional network of the few-shot literature; see :func:`conv4`."""

    sample_shape: tuple[int, ...]
    filters: int = 64
    normalisation: str = "batch"

    def build(self, key: PRNGKeyArray, outputs: int | None = None) -> Conv4Weights:
        height, width, *rest = self.sample_shape
        channels = (rest[0] if rest else 1, *(self.filters,) * 4)
        *keys, head_key = jax.random.split(key, 5)
        features = (height // 16) * (width // 16) * self.filters
        head = None if outputs is None else Mlp(features, ()).build(head_key, outputs)
        return Conv4Weights(
            kernels=tuple(
                _he_normal(k, (3, 3, m, n), fan_in=9 * m)
                for k, m, n in zip(keys, channels[:-1], channels[1:], strict=True)
            ),
            gains=tuple(jnp.ones(self.filters) for _ in keys),
            offsets=tuple(jnp.zeros(self.filters) for _ in keys),
            head=head,
            normalisation=self.normalisation,
        )

    def config(self) -> dict[str, Any]:
        return {"kind": "conv4", **asdict(self)}


def mlp(dims: int, widths: tuple[int, ...] = (128,), scale: float = 1.0) -> Mlp:
    """A fully connected network for features: ReLU layers of these widths, inputs times ``scale``.

    >>> mlp(640)
    Mlp(dims=640, widths=(128,), scale=1.0)
    """
    sizes = tuple(check_whole(width, "widths", 1) for width in widths)
    return Mlp(check_whole(dims, "dims", 1), sizes, scale)


def conv4(sample_shape: tuple[int, ...], filters: int = 64, normalisation: str = "batch") -> Conv4:
    """Four modules of 3×3 convolution, normalisation, ReLU and 2×2 max-pooling, for images.

    ``normalisation="batch"`` uses the mean and variance of the set that is passed through: the
    support set while adapting, the query set when predicting, in training and in testing alike; no
    running averages are kept. Predictions are therefore transductive: the queries of a task
    influence each other through these statistics. ``"layer"`` normalises every sample by itself.

    >>> conv4((28, 28)).filters
    64
    """
    if len(sample_shape) not in (2, 3) or min(sample_shape[:2]) < 16:
        raise DataError(
            f"conv4 halves images four times, so they must be (height, width[, channels]) of at "
            f"least 16×16; got {tuple(sample_shape)}."
        )
    check_choice(normalisation, "normalisation", NORMALISATIONS)
    return Conv4(tuple(sample_shape), check_whole(filters, "filters", 1), normalisation)


@dataclass(frozen=True)
class Sizes:
    """What is asked of a network; each takes what it has a use for."""

    widths: tuple[int, ...] = (128,)
    filters: int = 64
    scale: float = 1.0


@dataclass(frozen=True)
class KnownNetwork:
    """A network that can be asked for by name, the ``kind`` in its ``config()``."""

    maker: str
    """Where the class or function is that makes it of the rest of its config: ``module:name``."""
    fit_to: Callable[[tuple[int, ...], Sizes], dict[str, Any]]
    """That config, for samples of a shape and the sizes asked for."""
    images: bool
    """Whether it takes images; others take features."""
    meaning: str

    @property
    def make(self) -> Callable[..., Architecture]:
        """Makes it of its config."""
        return pkgutil.resolve_name(self.maker)


NETWORKS: Mapping[str, KnownNetwork] = MappingProxyType(
    {
        "mlp": KnownNetwork(
            "taskscape.meta.networks:mlp",
            lambda shape, sizes: {"dims": shape[0], "widths": sizes.widths, "scale": sizes.scale},
            False,
            "fully connected layers, on prepared features",
        ),
        "conv4": KnownNetwork(
            "taskscape.meta.networks:conv4",
            lambda shape, sizes: {"sample_shape": shape, "filters": sizes.filters},
            True,
            "four modules of convolution, on images",
        ),
    }
)
"""Every network by name; add a new one to it."""


def find_network(name: str) -> KnownNetwork:
    """The network of that name."""
    return NETWORKS[check_choice(name, "network", NETWORKS)]


def network_for(
    pool: ClassPool, settings: Mapping[str, Any], name: str | None = None, **sizes: Any
) -> Architecture:
    """A network for the samples of a pool, of the :class:`Sizes` given.

    Without a name, ``conv4`` for images and ``mlp`` for features. The settings of a learner may
    have a ``scale`` that goes before that of the sizes.
    """
    name = name or ("conv4" if pool.is_images else "mlp")
    known = find_network(name)
    if known.images != pool.is_images:
        kinds = ("features", "images")
        fit = ", ".join(n for n, k in NETWORKS.items() if k.images == pool.is_images)
        raise DataError(
            f"network={name!r} takes {kinds[known.images]}; {pool.name!r} has "
            f"{kinds[pool.is_images]}. Use {fit}."
        )
    asked = Sizes(**sizes)
    scale = float(settings.get("scale", asked.scale))
    return known.make(**known.fit_to(tuple(pool.sample_shape), replace(asked, scale=scale)))


def architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture whose ``config()`` this is, also after a round trip through JSON."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
    return find_network(values.pop("kind", "")).make(**values)


def normalise(
    h: Float[Array, "n height width channels"], mask: Bool[Array, "n"], how: str
) -> Float[Array, "n height width channels"]:
    r"""Subtract the mean and divide by the standard deviation, over the real samples of the set.

    .. math:: \hat h = (h - m) / \sqrt{v + 10^{-5}}

    with m and v per channel over samples and places ("batch"), or per sample ("layer").
    """
    given, h = h.dtype, at_least_32_bits(h)
    if how == "layer":
        m, v = h.mean((1, 2, 3), keepdims=True), h.var((1, 2, 3), keepdims=True)
    else:
        weight = mask.astype(h.dtype) / jnp.maximum(mask.sum(), 1) / (h.shape[1] * h.shape[2])
        m = jnp.einsum("n,nhwc->c", weight, h)
        v = jnp.einsum("n,nhwc->c", weight, (h - m) ** 2)
    return ((h - m) * jax.lax.rsqrt(v + _EPSILON)).astype(given)


def max_pool(
    h: Float[Array, "n height width channels"],
) -> Float[Array, "n half_height half_width channels"]:
    """The largest value of each 2×2 block; an odd last row or column is dropped."""
    n, height, width, channels = h.shape
    even = h[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))


def convolve(
    h: Float[Array, "n height width channels"], kernel: Float[Array, "3 3 channels filters"]
) -> Float[Array, "n height width filters"]:
    """3×3 convolution as one matrix product.

    Mapped over weights it is a batched product; the compiler would make it a grouped convolution,
    which took five times as long on a CPU.
    """
    _, height, width, channels = h.shape
    padded = jnp.pad(h, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifts, axis=-1) @ kernel.reshape(9 * channels, -1)


def at_least_32_bits(h: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The values in float32, or in float64 where they are."""
    return h.astype(jnp.promote_types(h.dtype, jnp.float32))


def _he_normal(key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int) -> Float[Array, "..."]:
    flat = jax.random.normal(key, (math.prod(shape),))  # a row compiles sooner than a table
    return jnp.sqrt(2 / fan_in) * flat.reshape(shape)
