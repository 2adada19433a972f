"""Names of places as a pool: which countries, and what a name becomes."""

import numpy as np

from experiments.places import LEAST, MOST, arrays_of, as_letters


def test_countries_with_enough_names_are_classes() -> None:
    counts = {"AA": LEAST - 1, "BB": LEAST, "CC": MOST + 5, "XX": LEAST}
    cities = [
        {"countrycode": c, "name": f"{c} {'x' * i}"} for c, n in counts.items() for i in range(n)
    ]
    built = arrays_of([*cities, cities[-1]], {"AA": "EU", "BB": "EU", "CC": "AS"})
    assert dict(zip(*np.unique(built["y"], return_counts=True), strict=True)) == {
        "BB": LEAST, "CC": MOST
    }  # fmt: skip
    assert set(zip(built["y"], built["groups"], strict=True)) == {("BB", "EU"), ("CC", "AS")}
    assert built["X"].shape == (LEAST + MOST, 256)


def test_like_names_are_near() -> None:
    a, b, c = as_letters(["Neustadt", "Neustadl", "Ouro Preto"])
    assert a @ b > 0.6 > a @ c
    np.testing.assert_allclose(np.linalg.norm([a, b, c], axis=1), 1, rtol=1e-6)
