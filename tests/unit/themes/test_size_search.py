"""The search for sizes: what it fits, what it reports, and what it refuses."""

import re
from dataclasses import replace

import pytest

from fit_cases import small_model, small_tasks
from taskscape.errors import DataError
from taskscape.themes import search_sizes
from taskscape.themes.size_search import GridPoint, SizeSearch


def point(K: int, L: int, elbo: float, error: float = 0.01) -> GridPoint:
    return GridPoint(K, L, elbo, behind=-1.0 - elbo, behind_error=error, distinct=9,
                     found_again=0.2, advice=0, seconds=1.0)  # fmt: skip


def test_the_smallest_of_those_about_as_good_is_named():
    found = SizeSearch((point(4, 2, -1.01), point(8, 4, -1.0), point(2, 2, -1.5)), 100)
    assert (found.best.image_themes, found.smallest.image_themes) == (8, 4)
    assert repr(found) == "SizeSearch(3 fits, best K=8, L=4)"
    assert "best: K=8, L=4; smallest within two standard errors: K=4, L=2." in found.summary()
    assert found.to_dict()["best"]["image_themes"] == 8


def test_for_search_it_recommends_what_finds_most_tasks_again():
    few, many = point(8, 4, -1.0), replace(point(8, 16, -1.02), found_again=0.4)
    flawed = replace(point(8, 32, -1.01), found_again=0.5, advice=1)
    unknown = replace(point(16, 4, -1.3), distinct=99, found_again=float("nan"))
    search = SizeSearch((few, many, flawed, unknown), 100)
    assert search.best.task_themes == 4
    assert search.for_search.task_themes == search.to_dict()["for_search"]["task_themes"] == 16
    assert search.summary().endswith(
        "for distances and nearest tasks: K=8, L=16, where 40% of 100 held-out tasks are nearest "
        "to themselves by the other half of their samples (best: 20%), 0.020 nats per sample "
        "behind."
    )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (((), (2,)), "image_themes and task_themes need at least one number each."),
        (((2, 0), (2,)), "image_themes=0 must be at least 1."),
    ],
)
def test_sizes_are_checked_before_anything_is_fitted(
    sizes: tuple[tuple[int, ...], tuple[int, ...]], message: str
):
    model = small_model()
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        search_sizes(small_tasks(), *sizes, model=model)
    assert not hasattr(model, "states_")
