import math

import numpy as np
import pytest

from taskscape import ClassPool, DataError
from taskscape.themes import prepare
from taskscape.themes.prepare import PrepareConfig, edge_histograms, learn_preparation

RNG = np.random.default_rng(0)


def one_pixel_after_another(image: np.ndarray, cells: int) -> np.ndarray:
    """The histograms of a grey image, before roots."""
    height, width = image.shape
    result = np.zeros((9, cells, cells))
    for y in range(height):
        for x in range(width):
            down = image[min(y + 1, height - 1), x] - image[max(y - 1, 0), x]
            across = image[y, min(x + 1, width - 1)] - image[y, max(x - 1, 0)]
            turn = math.atan2(down, across) % math.pi / math.pi * 9
            for direction in range(9):
                away = min(abs(turn - direction), 9 - abs(turn - direction))
                for i in range(cells):
                    for j in range(cells):
                        result[direction, i, j] += (
                            math.hypot(down, across)
                            * max(0, 1 - away)
                            * share(y, height, i, cells)
                            * share(x, width, j, cells)
                        )
    return result


def share(pixel: int, side: int, cell: int, cells: int) -> float:
    at = min(max((pixel + 0.5) * cells / side - 0.5, 0), cells - 1)
    return max(0, 1 - abs(at - cell))


def test_edges_are_those_of_a_plain_loop():
    image = RNG.random((11, 14)).astype(np.float32)
    want = np.sqrt(one_pixel_after_another(image, 3))
    result = edge_histograms(image[None], 3)[0, :81].reshape(9, 3, 3)  # direction, across, down
    want = np.swapaxes(want, 1, 2) / np.linalg.norm(want)
    np.testing.assert_allclose(result, want, atol=1e-5)


def test_edges_are_the_same_on_light_and_on_dark_ground():
    images = RNG.random((3, 16, 16)).astype(np.float32)
    np.testing.assert_allclose(
        edge_histograms(images, 4)[:, :144], edge_histograms(1 - images, 4)[:, :144], atol=1e-4
    )


def test_colours_of_cells_follow_the_edges():
    images = np.zeros((1, 16, 16, 3), dtype=np.float32)
    images[:, :8, :, 0] = 1  # the upper half is red
    colours = edge_histograms(images, 2)[0, 36:].reshape(2, 2, 3) * np.sqrt(12)
    assert colours.shape == (2, 2, 3)
    assert (colours[0, :, 0] > 0.8).all()
    assert (colours[1, :, 0] < 0.2).all()
    assert not colours[..., 1:].any()


def test_a_blank_image_has_no_edges_and_a_shifted_line_nearly_the_same():
    blank = np.ones((1, 16, 16), dtype=np.float32)
    assert not edge_histograms(blank, 4)[0, :144].any()
    lines = np.zeros((2, 20, 20), dtype=np.float32)
    lines[0, :, 9], lines[1, :, 10] = 1, 1
    a, b = edge_histograms(lines, 5)[:, :225]
    assert a @ b > 0.9
    assert lines[0].ravel() @ lines[1].ravel() == 0


def test_edges_are_learned_from_images_in_parts(monkeypatch):
    images = RNG.integers(0, 256, (40, 16, 18, 3)).astype(np.uint8)
    pool = ClassPool.from_arrays(images, np.repeat(np.arange(4), 10))
    config = PrepareConfig(edges=3, pca=7)
    preparation = learn_preparation(pool, np.arange(4), config)
    assert preparation.dims == 7
    monkeypatch.setattr("taskscape.themes.prepare._PIXELS_AT_ONCE", 16 * 18 * 3)
    again = learn_preparation(pool, np.arange(4), config)
    rows = np.arange(0, 40, 3)
    np.testing.assert_allclose(preparation(pool.take(rows)), again(pool.take(rows)), atol=1e-5)
    assert config.describe() == "edges in 3 × 3 cells → centring → 7 principal components"


def test_features_have_no_edges():
    pool = ClassPool.from_arrays(RNG.random((8, 6)), np.repeat(np.arange(4), 2))
    with pytest.raises(DataError, match=r"edges are those of images.*edges=None"):
        learn_preparation(pool, np.arange(4), PrepareConfig(edges=3))


def test_edges_of_a_pool_are_computed_once(monkeypatch: pytest.MonkeyPatch):
    images = RNG.random((12, 16, 16), dtype=np.float32)
    pool = ClassPool.from_arrays(images, np.repeat(np.arange(4), 3))
    preparation = learn_preparation(pool, np.arange(3), PrepareConfig(edges=3, pca=2))
    seen = []

    def counting(images: np.ndarray, cells: int) -> np.ndarray:
        seen.append(len(images))
        return edge_histograms(images, cells)

    monkeypatch.setattr(prepare, "edge_histograms", counting)
    np.testing.assert_allclose(
        preparation.of_rows(pool, np.arange(12)), preparation(pool.take(np.arange(12))), atol=1e-6
    )
    assert seen == [3, 12]  # the rows not learned from; the plain call
    preparation.of_rows(pool, np.array([4, 11]))
    assert len(seen) == 2
