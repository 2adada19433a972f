"""Numbers of the embedded pools, so that a change of characters or drawings does not pass unseen.

Fonts are drawn by FreeType, whose versions differ by a grey level here and there: hence tolerances.
"""

from collections import Counter

import numpy as np
import pytest

from taskscape.pools.glyphs import load_glyphs
from taskscape.pools.pool import ClassPool

LETTERS = {
    "Latin": 355, "Cyrillic": 149, "Canadian syllabics": 367, "Hebrew": 26, "Lisu": 7,
    "Georgian": 106, "N'Ko": 19, "Ogham": 22, "Coptic": 8, "Old Italic": 15,
    "Arabic": 105, "Greek": 23, "Armenian": 48, "Tifinagh": 28, "Lao": 33,
}  # fmt: skip
SYMBOLS = {
    "Mathematical operators": 250, "Miscellaneous symbols": 176, "Emoticons": 52, "Braille": 165,
    "Tai Xuan Jing": 86, "Miscellaneous technical": 35, "Geometric shapes": 47, "Dominoes": 99,
    "Playing cards": 31, "Arrows": 148, "Dingbats": 83, "Box drawing": 23, "Hexagrams": 58,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize(
    ("name", "classes", "ink", "accuracy"),
    [
        ("letters", LETTERS, 30.28, {1: 0.676, 5: 0.881}),
        ("symbols", SYMBOLS, 34.39, {1: 0.693, 5: 0.876}),
    ],
)
def test_characters_ink_and_difficulty(
    name: str, classes: dict[str, int], ink: float, accuracy: dict[int, float]
) -> None:
    pool = load_glyphs(name)
    assert pool.groups is not None
    assert Counter(pool.groups) == classes
    assert pool.samples.mean() == pytest.approx(ink, rel=0.01)
    for shots, expected in accuracy.items():
        result = nearest_mean_accuracy(pool.split("test"), shots)
        assert result == pytest.approx(expected, abs=0.03)


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
