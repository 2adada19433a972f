import base64
import io

import numpy as np
from PIL import Image

from report_cases import bare_study
from taskscape.pools import ClassPool
from taskscape.report.themes import make_sheet, mean_pictures, view_themes

RNG = np.random.default_rng(0)
IMAGES = ClassPool.from_classes(
    {str(c): RNG.integers(0, 256, (30, 4, 5, 3)).astype(np.uint8) for c in range(4)}
)


def test_the_picture_of_a_theme_is_the_mean_of_its_typical_samples():
    samples = (np.array([0, 40, 119]), np.array([], dtype=int))
    pictures = mean_pictures(IMAGES, samples)
    np.testing.assert_allclose(pictures[0], IMAGES.samples[samples[0]].mean(axis=0), atol=0.51)
    assert not pictures[1].any()


def test_typical_samples_are_of_different_classes():
    result = bare_study()
    samples, _ = view_themes(result.pool, result.model.co_clustering_)
    assert len(samples) == 5
    for rows in samples:
        owners = {result.pool.locate_row(row)[0] for row in rows.tolist()}
        assert len(owners) == len(rows) <= 12


def test_every_class_is_typical_of_one_task_theme_at_most():
    result = bare_study()
    _, classes = view_themes(result.pool, result.model.co_clustering_)
    named = np.concatenate(classes)
    assert len(classes) == 3
    assert len(set(named)) == len(named)


def opened(sheet) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet.uri.split(",")[1]))))


def test_a_sheet_of_small_grey_images_keeps_every_pixel():
    images = RNG.integers(0, 256, (7, 6, 4)).astype(np.uint8)
    sheet = make_sheet(images)
    whole = opened(sheet)
    whole = whole[..., 0] if whole.ndim == 3 else whole
    assert whole.shape == (sheet.rows * 6, sheet.columns * 4)
    for i, image in enumerate(images):
        y, x = 6 * (i // sheet.columns), 4 * (i % sheet.columns)
        np.testing.assert_array_equal(whole[y : y + 6, x : x + 4], image)


def test_large_and_many_images_are_shrunk():
    assert make_sheet(np.zeros((1, 300, 200, 3), dtype=np.uint8)).height == 64
    many = make_sheet(np.zeros((5000, 64, 64), dtype=np.uint8))
    assert many.width < 30
    assert len(many.uri) < 100_000
