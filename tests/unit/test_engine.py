"""The engine in this process; tests/unit/test_ray.py has the same on Ray."""

import pytest

from taskscape.distributed.engine import EngineError, map_work, use_engine
from taskscape.progress import reported_to


def times(item, factor):
    return item * factor


def test_results_come_in_the_order_of_the_items():
    heard = []
    with reported_to(lambda what, done, total: heard.append((what, done, total))):
        results = list(map_work(times, range(5), shared=(2,), description="twice"))
    assert results == [0, 2, 4, 6, 8]
    assert heard[-1] == ("twice", 5, 5)


def test_errors_of_the_work_are_its_own():
    with pytest.raises(ZeroDivisionError):
        list(map_work(lambda item: 1 / item, [0]))


def test_unknown_engines_are_refused(monkeypatch):
    message = r"^engine 'spark' is not known; use local, ray, ray://host:port\.$"
    with pytest.raises(EngineError, match=message), use_engine("spark"):
        pass
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = r"^engine 'ray' needs Ray: pip install 'taskscape\[ray\]'\.$"
    with pytest.raises(EngineError, match=message), use_engine("ray"):
        pass
