"""Histograms of edge directions (HOG): what strokes look like, wherever in a cell they lie."""

import numpy as np
from jaxtyping import Float

_DIRECTIONS = 9
_PIXELS_AT_ONCE = 1 << 20


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
