"""Feature preparation, learned on training classes and stored with the model.

Raw network features can put every task on one point: a few large, skewed dimensions decide the
likelihood. A power transform, unit length, centring and a few principal components undo that. Of
images, pixels tell little: two strokes that lie beside each other share none. Edges do.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int
from scipy.sparse.linalg import svds

from taskscape.arguments import public
from taskscape.devices import one_thread
from taskscape.distributed.mesh import own_places, split_over_devices
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.settings import check_settings, setting
from taskscape.themes.places import SamplePlaces, all_rows, evenly_spaced

_ROWS_TO_LEARN_FROM = 50_000
_NUMBERS_TO_LEARN_FROM = 1 << 28
"""Samples times dimensions: 1 GiB. Images of 84 × 84 in colour are learned from 12,681 of them."""
_ROWS_AT_ONCE = 8192
_NUMBERS_AT_ONCE = 1 << 24
_KEEP_BELOW_BYTES = 1 << 29
_EDGES_BELOW_BYTES = 1 << 28
"""Of all images of a pool; of larger pools they are computed whenever they are needed."""
_COMPONENTS = 32
_CELLS, _LEAST_SIDE = 5, 16
_DIRECTIONS = 9
"""Of edges."""
_PIXELS_AT_ONCE = 1 << 20
_LARGEST = 1e15
"""Of a prepared feature: the squares of many must fit into float32."""


@public
@dataclass(frozen=True)
class PrepareConfig:
    """Which steps to take, in this order; each can be left out."""

    edges: int | None = setting(
        None, "histograms of edge directions in so many cells a side, not pixels", at_least=1
    )
    power: float | None = setting(
        None, "of non-negative features; 0.5 makes skewed ones rounder", above=0, at_most=1
    )
    l2: bool = setting(False, "scale every sample to unit length")
    centre: bool = setting(True, "subtract the mean of the training classes")
    pca: int | None = setting(32, "principal components of the training classes", at_least=1)

    def __post_init__(self) -> None:
        check_settings(self)

    def describe(self) -> str:
        """The steps in words.

        >>> PrepareConfig(power=0.5, l2=True).describe()
        'power 0.5 → unit length → centring → 32 principal components'
        """
        steps = [
            f"edges in {self.edges} × {self.edges} cells" if self.edges is not None else "",
            f"power {self.power:g}" if self.power is not None else "",
            "unit length" if self.l2 else "",
            "centring" if self.centre else "",
            f"{self.pca} principal components" if self.pca is not None else "",
        ]
        return " → ".join(s for s in steps if s) or "none"


def parse_prepare(text: str, source: str = "prepare=") -> PrepareConfig | str | None:
    """Read ``auto``, ``none``, or steps such as ``edges=5,centre,pca=64`` or ``power=0.5,l2``.

    ``source`` is what stands before the text in an error: the option or setting that it is from.

    >>> parse_prepare("l2,pca=16")
    PrepareConfig(edges=None, power=None, l2=True, centre=False, pca=16)
    """
    if text in ("auto", "none"):
        return text if text == "auto" else None
    steps: dict[str, Any] = {"centre": False, "pca": None}
    try:
        for word in text.split(","):
            name, _, value = word.strip().partition("=")
            if name in ("l2", "centre") and not value:
                steps[name] = True
            elif name in ("edges", "power", "pca"):
                steps[name] = float(value) if name == "power" else int(value)
            else:
                raise ValueError(name)
    except ValueError:
        raise DataError(
            f"{source}{text!r}: use auto, none, or some of edges=5,power=0.5,l2,centre,pca=32."
        ) from None
    return PrepareConfig(**steps)


def choose_config(pool: ClassPool, classes: Int[np.ndarray, "some"]) -> PrepareConfig:
    """The preparation that suits the data: images, non-negative network features, or others.

    Images of 16 × 16 pixels and more: edges in 5 × 5 cells, centring and 64 principal components.
    Signed features, and smaller images: centring and 32 components. Non-negative features, as they
    come out of a ReLU: square root, unit length, then the same. Where there are not more dimensions
    than components, they are all kept.
    """
    dims = int(np.prod(pool.sample_shape))
    rows = evenly_spaced(all_rows(pool, classes), 4096)
    if pool.is_images and min(pool.sample_shape[:2]) >= _LEAST_SIDE:
        return PrepareConfig(edges=_CELLS, pca=min(2 * _COMPONENTS, len(rows)))
    pca = min(_COMPONENTS, len(rows)) if dims > _COMPONENTS else None
    if pool.is_images:
        return PrepareConfig(pca=pca)
    if pool.take(rows).min() >= 0 and dims > 1:
        return PrepareConfig(power=0.5, l2=True, pca=pca)
    return PrepareConfig(pca=pca)


@dataclass(frozen=True, eq=False)
class Preparation:
    """Steps with what they learned: samples in, feature vectors out."""

    config: PrepareConfig
    mean: Float[np.ndarray, "raw"]
    components: Float[np.ndarray, "dims raw"] | None
    explained: float = 1.0
    """Share of the training classes' variance that the principal components keep."""

    @property
    def dims(self) -> int:
        """The number of features that come out."""
        return len(self.mean) if self.components is None else len(self.components)

    def __call__(self, samples: Float[np.ndarray, "rows *shape"]) -> Float[np.ndarray, "rows dims"]:
        """Prepare samples as :meth:`ClassPool.take` gives them."""
        return self._centred(_before_centring(samples, self.config))

    def of_rows(
        self, pool: ClassPool, rows: Int[np.ndarray, "rows"]
    ) -> Float[np.ndarray, "rows dims"]:
        """Prepare these rows of a pool."""
        return self._centred(_of_rows(pool, rows, self.config))

    def _centred(self, X: Float[np.ndarray, "rows raw"]) -> Float[np.ndarray, "rows dims"]:
        if X.shape[1] != len(self.mean):
            raise DataError(
                f"samples have {X.shape[1]} dimensions; the preparation was learned on "
                f"{len(self.mean)}. Use data of the same kind as the model was fitted on."
            )
        X = X - self.mean
        return X if self.components is None else X @ self.components.T

    def settings(self) -> dict[str, Any]:
        """The settings as plain values, to be stored beside the arrays."""
        return asdict(self.config) | {"explained": self.explained}


Prepare: TypeAlias = PrepareConfig | str | None
"""How to prepare samples: given steps, ``"auto"`` to choose them by the data, or None for none."""


def check_prepare(prepare: Prepare) -> None:
    """Refuse what is no way to prepare samples."""
    words = prepare is None or (isinstance(prepare, str) and prepare == "auto")
    if not words and not isinstance(prepare, PrepareConfig):
        raise DataError(f"prepare={prepare!r} must be 'auto', None or a PrepareConfig.")


def preparation_for(
    prepare: Prepare, pool: ClassPool, classes: Int[np.ndarray, "some"]
) -> Preparation:
    """The preparation that was asked for, learned from these classes."""
    if prepare is None:
        prepare = PrepareConfig(centre=False, pca=None)
    elif not isinstance(prepare, PrepareConfig):
        prepare = choose_config(pool, classes)
    return learn_preparation(pool, classes, prepare)


def learn_preparation(
    pool: ClassPool, classes: Int[np.ndarray, "some"], config: PrepareConfig
) -> Preparation:
    """Learn mean and principal components from (a spread of) the samples of these classes.

    At most 50,000 samples are looked at, and at most 1 GiB of them. The sources of a joined pool
    weigh the same, however many samples they have.
    """
    raw = int(np.prod(pool.sample_shape))
    most = min(_ROWS_TO_LEARN_FROM, max(_NUMBERS_TO_LEARN_FROM // raw, 1024))
    rows = evenly_spaced(all_rows(pool, classes), most)
    dims = _of_rows(pool, rows[:1], config).shape[1]
    X = _by_parts(lambda part: _of_rows(pool, part, config), rows, raw, dims)
    weights = source_weights(pool, classes, rows)
    if weights is None:
        mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    else:
        mean = (weights @ X / len(X)).astype(np.float32)
    kept = mean if config.centre else np.zeros_like(mean)
    if config.pca is None:
        return Preparation(config, kept, None)
    if config.pca > min(X.shape):
        raise DataError(
            f"pca={config.pca} is more than the {min(X.shape)} that {len(X)} samples of "
            f"{dims} dimensions allow. Lower it, or leave it out with pca=None."
        )
    if np.array_equal(X.min(axis=0), X.max(axis=0)):
        raise DataError("all samples are the same; there is nothing to tell apart.")
    X -= mean
    if weights is not None:
        X *= np.sqrt(weights)[:, None]
    leading = principal_components(X, config.pca)
    return Preparation(config, kept, leading.components.astype(np.float32), leading.explained)


class PreparedSamples(SamplePlaces):
    """Prepared rows of a pool: all made once where they fit in memory, else made when asked for.

    With ``keep=False`` they are made when asked for in any case: where few of them are.
    """

    def __init__(
        self,
        pool: ClassPool,
        preparation: Preparation,
        classes: Int[np.ndarray, "some"],
        *,
        keep: bool = True,
    ) -> None:
        super().__init__(pool, classes)
        self.pool, self.preparation = pool, preparation
        self._kept: Float[np.ndarray, "rows dims"] | None = None
        self._on_meshes: dict[Mesh, Float[Array, "copies dims"]] = {}
        if keep and len(self.rows) * preparation.dims * 4 <= _KEEP_BELOW_BYTES:
            self._kept = self._prepare(self.rows)

    def take(self, rows: Int[np.ndarray, "some"]) -> Float[np.ndarray, "some dims"]:
        """The prepared features of these rows of the pool, which must belong to the classes."""
        if self._kept is not None:
            return self._kept[self.where[rows]]
        return self._prepare(rows)

    def _prepare(self, rows: Int[np.ndarray, "some"]) -> Float[np.ndarray, "some dims"]:
        raw, of_rows = int(np.prod(self.pool.sample_shape)), self.preparation.of_rows
        return _by_parts(partial(of_rows, self.pool), rows, raw, self.preparation.dims)

    @cached_property
    def on_device(self) -> Float[Array, "rows dims"] | None:
        """All prepared samples on the device, where they are kept."""
        return None if self._kept is None else jnp.asarray(self._kept, dtype=float)

    def on_devices(self, mesh: Mesh) -> Float[Array, "copies dims"]:
        """All prepared samples on every device of a mesh, one copy after another."""
        assert self.on_device is not None
        if mesh not in self._on_meshes:
            copies = [self.on_device] * len(own_places(mesh))
            self._on_meshes[mesh] = split_over_devices(copies, mesh)
        return self._on_meshes[mesh]

    def to_device(
        self, rows: Int[np.ndarray, "some"], size: int | None = None
    ) -> Float[Array, "size dims"]:
        """The prepared features of these rows of the pool on the device, repeated up to a size."""
        size = len(rows) if size is None else size
        if self.on_device is None:
            x = self.take(rows)
            return jnp.asarray(np.resize(x, (size, x.shape[1])), dtype=float)
        return self.on_device[self.where[np.resize(rows, size)]]


def check_samples(x: Float[np.ndarray, "S D"], rows: Int[np.ndarray, "S"], pool: ClassPool) -> None:
    """Raise an error unless something can be learned from these prepared rows of a pool."""
    if not np.var(x, dtype=np.float64) > 0:
        raise DataError("all samples are the same; there is nothing to tell apart.")
    largest = np.abs(x).max(axis=1)
    if not largest.max() < _LARGEST:
        c, n = pool.locate_row(int(rows[int(np.argmax(largest))]))
        raise DataError(
            f"sample {n} of class {pool.class_names[c]!r} has a feature of {largest.max():g}, "
            "whose square is too large to sum. Repair or scale the samples."
        )


def source_weights(
    pool: ClassPool, classes: Int[np.ndarray, "some"], rows: Int[np.ndarray, "rows"]
) -> Float[np.ndarray, "rows"] | None:
    """Weights of rows that give the sources of a joined pool the same weight; 1 on average."""
    if pool.sources is None:
        return None
    order = np.argsort(pool.starts[classes])
    of_row = np.searchsorted(pool.starts[classes][order], rows, side="right") - 1
    sources = np.array(pool.sources)[classes[order][of_row]]
    names, index, counts = np.unique(sources, return_inverse=True, return_counts=True)
    return (len(rows) / (len(names) * counts[index])).astype(np.float32)


def _by_parts(
    make: Callable[[Int[np.ndarray, "_"]], Float[np.ndarray, "_ dims"]],
    rows: Int[np.ndarray, "rows"],
    raw: int,
    dims: int,
) -> Float[np.ndarray, "rows dims"]:
    """What is made of rows, in parts that are small while samples have ``raw`` dimensions."""
    built = np.empty((len(rows), dims), dtype=np.float32)
    size = max(1, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // raw))
    for start in range(0, len(rows), size):
        built[start : start + size] = make(rows[start : start + size])
    return built


_edges: WeakKeyDictionary[ClassPool, dict[int, tuple[np.ndarray, np.ndarray]]] = WeakKeyDictionary()
"""Of a pool, by cells: edges of all images, and which of them are known."""


def _of_rows(
    pool: ClassPool, rows: Int[np.ndarray, "rows"], config: PrepareConfig
) -> Float[np.ndarray, "rows raw"]:
    """Rows of a pool before centring; edges are computed once while the pool lives."""
    cells, images = config.edges, pool.samples
    if cells is None or not pool.is_images or len(images) * 4 * cells**2 * 12 > _EDGES_BELOW_BYTES:
        return _before_centring(pool.take(rows), config)
    kept = _edges.setdefault(pool, {})
    if cells not in kept:
        width = edge_histograms(pool.take(rows[:1]), cells).shape[1]
        kept[cells] = np.empty((len(images), width), np.float32), np.zeros(len(images), bool)
    values, known = kept[cells]
    missing = rows[~known[rows]]
    if len(missing):
        values[missing] = edge_histograms(pool.take(missing), cells)
        known[missing] = True
    return _scaled(values[rows], config)


def _before_centring(
    samples: Float[np.ndarray, "rows *shape"], config: PrepareConfig
) -> Float[np.ndarray, "rows raw"]:
    if config.edges is not None:
        if samples.ndim < 3:
            raise DataError("edges are those of images; these samples are features: edges=None.")
        samples = edge_histograms(samples, config.edges)
    return _scaled(samples, config)


def _scaled(
    samples: Float[np.ndarray, "rows *shape"], config: PrepareConfig
) -> Float[np.ndarray, "rows raw"]:
    """To the power, and to unit length, where asked for."""
    X = samples.reshape(len(samples), -1).astype(np.float32, copy=False)
    if config.power is not None:
        if X.size and X.min() < 0:
            raise DataError(
                f"power={config.power:g} needs non-negative features; the smallest is "
                f"{X.min():g}. Set power=None."
            )
        X = np.power(X, np.float32(config.power)) if config.power != 0.5 else np.sqrt(X)
    if config.l2:
        largest = np.abs(X).max(axis=1, initial=0, keepdims=True)
        # before squaring, which could overflow
        X = np.asarray(X / np.where(largest > 0, largest, 1), dtype=np.float32)
        length = np.linalg.norm(X, axis=1, keepdims=True)
        X = np.asarray(X / np.where(length > 0, length, 1), dtype=np.float32)
    return X


# -- principal components -----------------------------------------------------------------------

_EXACT_UP_TO = 1024
"""Dimensions, or samples, of which the whole covariance, or Gram matrix, is decomposed."""
_OPERATIONS_AT_ONCE = 1 << 32
"""Of one product, which takes well below a second, so that an interrupt is heard."""
_TIE = 1e-3


class PrincipalComponents(NamedTuple):
    """Orthonormal directions of largest variance, the largest first."""

    components: Float[np.ndarray, "k dims"]
    explained: float
    """Share of the total variance."""


def principal_components(X: Float[np.ndarray, "n dims"], k: int) -> PrincipalComponents:
    r"""The k leading eigenvectors of the covariance of centred samples.

    .. math:: X^\top X\, v_i = \lambda_i v_i

    The first of the entries that are largest, to a thousandth, in absolute value is positive, so
    that the sign does not depend on the solver. The same samples give the same components.
    """
    n, dims = X.shape
    total = float(np.einsum("ij,ij->", X, X, dtype=np.float64))
    if dims <= _EXACT_UP_TO:
        values, vectors = _leading(X.T, k)
    elif n <= _EXACT_UP_TO:
        values, U = _leading(X, k)
        # directions without variance, if any, come out as an orthonormal rest
        vectors, _ = np.linalg.qr(X.T @ U.astype(X.dtype))
    else:
        start = np.random.default_rng(0).standard_normal(min(X.shape)).astype(X.dtype)
        with one_thread():
            _, roots, rows = svds(X, k, v0=start)
        values, vectors = roots[::-1].astype(np.float64) ** 2, rows[::-1].T
    size = np.abs(vectors)
    first = np.argmax(size >= (1 - _TIE) * size.max(axis=0), axis=0)
    signs = np.where(vectors[first, np.arange(k)] < 0, -1, 1)
    return PrincipalComponents((vectors * signs).T, float(np.maximum(values, 0).sum() / total))


def _leading(
    A: Float[np.ndarray, "m n"], k: int
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "m k"]]:
    """The k largest eigenvalues of A Aᵀ, the largest first, and their vectors."""
    m, n = A.shape
    step = max(1, _OPERATIONS_AT_ONCE // (4 * m * m))
    product = np.zeros((m, m))
    for start in range(0, n, step):
        part = A[:, start : start + step]
        product += part @ part.T
    with one_thread():
        values, vectors = np.linalg.eigh((product + product.T) / 2)
    return values[: -k - 1 : -1], vectors[:, : -k - 1 : -1]


def prepared_pool(
    pool: ClassPool,
    how: PrepareConfig | Preparation,
    *,
    unit_length: bool = False,
) -> ClassPool:
    """The pool with prepared samples: as a model does, or learned on the training classes."""
    if isinstance(how, PrepareConfig):
        how = learn_preparation(pool, pool.classes_in("train"), how)
    learned, name = how, how.config.describe()
    rows, raw = np.arange(len(pool.samples)), int(np.prod(pool.sample_shape))
    x = _by_parts(lambda part: learned(pool.take(part)), rows, raw, learned.dims)
    if unit_length:
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.float32(1e-12))
        name = f"{name} → unit length"
    return replace(pool, name=f"{pool.name} ({name})", samples=x, class_digests=None)


def unit_length(pool: ClassPool, power: float | None = None, pca: int | None = None) -> ClassPool:
    """The pool with every feature vector scaled to length one.

    Before that, where asked for, a power of the features, and principal components of the training
    classes about their mean.
    """
    config = PrepareConfig(power=power, l2=True, centre=pca is not None, pca=pca)
    return prepared_pool(pool, config, unit_length=True)


# -- edges --------------------------------------------------------------------------------------


def edge_histograms(
    images: Float[np.ndarray, "rows height width *channels"], cells: int
) -> Float[np.ndarray, "rows numbers"]:
    """How much edge of each direction lies in each of ``cells`` × ``cells`` cells of an image.

    After Dalal and Triggs, "Histograms of oriented gradients for human detection" (2005): an edge
    counts by its contrast for the two nearest of nine directions, and for the nearest cells. Roots
    are taken, and each image is scaled to unit length. The mean colour of every cell follows, since
    edges are those of the brightness, and the same on light and on dark ground.
    """
    if images.ndim == 3:
        images = images[..., None]
    _, height, width, _ = images.shape
    rows, columns = _cell_weights(height, cells), _cell_weights(width, cells)
    step = max(1, _PIXELS_AT_ONCE // (height * width))
    parts = [
        _histograms(images[start : start + step], rows, columns)
        for start in range(0, len(images), step)
    ]
    return np.concatenate(parts or [_histograms(images, rows, columns)])


def _cell_weights(side: int, cells: int) -> Float[np.ndarray, "side cells"]:
    """How much each pixel of a side counts for each cell: linear between the nearest two."""
    at = (np.arange(side) + 0.5) * cells / side - 0.5
    weights = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(cells)))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _histograms(
    images: Float[np.ndarray, "n height width channels"],
    rows: Float[np.ndarray, "height cells"],
    columns: Float[np.ndarray, "width cells"],
) -> Float[np.ndarray, "n numbers"]:
    n, light = len(images), images.mean(axis=3)
    framed = np.pad(light, ((0, 0), (1, 1), (1, 1)), mode="edge")
    down = framed[:, 2:, 1:-1] - framed[:, :-2, 1:-1]
    across = framed[:, 1:-1, 2:] - framed[:, 1:-1, :-2]
    image, y, x = np.nonzero((down != 0) | (across != 0))
    down, across = down[image, y, x], across[image, y, x]
    contrast = np.hypot(down, across)
    turn = np.arctan2(down, across) * np.float32(_DIRECTIONS / np.pi) % _DIRECTIONS
    below = np.minimum(turn.astype(np.intp), _DIRECTIONS - 1)
    share = turn - below
    edges = np.zeros((n, _DIRECTIONS, *light.shape[1:]), dtype=np.float32)
    edges[image, below, y, x] = contrast * (1 - share)
    edges[image, (below + 1) % _DIRECTIONS, y, x] = contrast * share
    shares = np.sqrt(np.swapaxes(edges @ columns, 2, 3) @ rows).reshape(n, -1)
    shares /= np.maximum(np.linalg.norm(shares, axis=1, keepdims=True), np.float32(1e-12))
    colours = np.einsum(
        "nyxc,yi,xj->nijc", images, rows / rows.sum(axis=0), columns / columns.sum(axis=0),
        optimize=True,
    ).reshape(n, -1)  # fmt: skip
    return np.concatenate([shares, colours / np.float32(np.sqrt(colours.shape[1]))], axis=1)
