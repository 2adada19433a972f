"""Numbers of the embedded pool, so that a change of its letters or drawings does not pass unseen.

Fonts are drawn by FreeType, whose versions differ by a grey level here and there: hence tolerances.
"""

from collections import Counter

import numpy as np
import pytest

from taskscape.pools.glyphs import load_glyphs
from taskscape.pools.pool import ClassPool

CLASSES = {
    "Latin": 355, "Cyrillic": 149, "Canadian syllabics": 367, "Hebrew": 26, "Lisu": 7,
    "Georgian": 106, "N'Ko": 19, "Ogham": 22, "Coptic": 8, "Old Italic": 15,
    "Arabic": 105, "Greek": 23, "Armenian": 48, "Tifinagh": 28, "Lao": 33,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
def test_letters_ink_and_difficulty() -> None:
    pool = load_glyphs()
    assert pool.groups is not None
    counts = Counter(pool.groups)
    assert set(counts) == set(CLASSES)
    for script, expected in CLASSES.items():
        assert counts[script] == pytest.approx(expected, abs=max(1, 0.02 * expected)), script
    assert pool.samples.mean() == pytest.approx(30.28, rel=0.01)
    accuracy = {shots: nearest_mean_accuracy(pool.split("test"), shots) for shots in (1, 5)}
    assert accuracy == {1: pytest.approx(0.676, abs=0.03), 5: pytest.approx(0.881, abs=0.03)}


def nearest_mean_accuracy(pool: ClassPool, n_shot: int, n_tasks: int = 400) -> float:
    """Five-way accuracy of the nearest class mean on raw pixels."""
    rng = np.random.default_rng(0)
    right = []
    for _ in range(n_tasks):
        classes = rng.choice(len(pool), 5, replace=False)
        rows = np.stack([pool.starts[c] + rng.permutation(20)[: n_shot + 10] for c in classes])
        images = pool.take(rows).reshape(5, n_shot + 10, -1)
        means, queries = images[:, :n_shot].mean(axis=1), images[:, n_shot:]
        squared = ((queries[:, :, None] - means) ** 2).sum(axis=3)
        right.append((squared.argmin(axis=2) == np.arange(5)[:, None]).mean())
    return float(np.mean(right))
