"""Choosing training tasks from a catalogue that is larger than memory."""

from dataclasses import replace

import numpy as np

from taskscape.arguments import Seed, check_kind, check_whole
from taskscape.compare import nearest
from taskscape.compare.posteriors import Tasks, read_posterior
from taskscape.embeddings import Catalogue
from taskscape.errors import DataError
from taskscape.select.choosing import select
from taskscape.select.selection import Selection

_MOST_CANDIDATES = 20_000_000


def select_from_catalogue(
    test: Tasks, catalogue: Catalogue, n: int, *, seed: Seed = 0
) -> Selection:
    """Choose ``n`` tasks of a catalogue for the test tasks, by the rule ``coverage``.

    Each test task in turn takes its nearest unused task. Since at most ``n`` are ever taken, the
    ``n`` nearest of every test task hold all that can be chosen: only those are read. Of tasks at
    the same distance from a test task, the first ``n`` of the catalogue are looked at. ``indices``
    are places in the catalogue, for :meth:`Catalogue.take`.
    """
    asked = read_posterior(test, "test")
    check_kind(catalogue, Catalogue, "catalogue", "Open one with Catalogue(path).")
    check_whole(n, "n")
    if not 1 <= n <= len(catalogue):
        raise DataError(f"n={n} must lie between 1 and the {len(catalogue)} tasks of {catalogue}.")
    if len(asked) * n > _MOST_CANDIDATES:
        raise DataError(
            f"the {n} nearest tasks of {len(asked)} test tasks are more than "
            f"{_MOST_CANDIDATES:,} to look at; choose fewer, or for fewer test tasks."
        )
    places = np.unique(nearest(asked, catalogue.posteriors(), n).indices)
    known = catalogue.take(places)
    chosen = select(asked, known, n, "coverage", seed=seed, train_classes=known.classes)
    settings = {**chosen.settings, "n_train": len(catalogue)}
    return replace(chosen, indices=places[chosen.indices], settings=settings)
