import json

import numpy as np
import pytest

from report_cases import EVIL_NAMES
from taskscape.plain_text import for_plotly
from taskscape.report.page import data_island


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_an_island_gives_back_what_was_put_in_and_holds_no_markup(name):
    text = str(data_island({name: [name]}))
    assert json.loads(text) == {name: [name]}
    assert not set(text) & set("<>&\u2028\u2029")


def test_numbers_are_rounded_and_unknown_ones_are_null():
    values = {"a": np.array([1 / 3, np.nan, np.inf]), "b": (np.float32(2), np.int64(7), 1.0, None)}
    island = str(data_island(values))
    assert json.loads(island) == {"a": [0.3333, None, None], "b": [2, 7, 1, None]}
    assert "2.0" not in island


def test_large_numbers_keep_their_digits_where_they_are_whole():
    values = json.loads(str(data_island([123456789.0, 1e300, 123456.7])))
    assert values == [123456789, 1e300, 123500.0]


def test_literal_leaves_plotly_nothing_to_read():
    for name in EVIL_NAMES:
        shown = for_plotly(name)
        assert not set(shown) & set("<>%$\n")
    assert for_plotly("a & b") == "a &amp; b"
