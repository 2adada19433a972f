"""Principal components: both ways agree with a full decomposition, and an interrupt is heard."""

import signal
import sys
import time
import tracemalloc

import numpy as np
import pytest
from sklearn.decomposition import PCA

from interrupt_cases import start_hearing
from taskscape import ClassPool
from taskscape.themes import PrepareConfig
from taskscape.themes import prepare as module
from taskscape.themes.prepare import learn_preparation, principal_components


def samples(n: int, dims: int, seed: int = 0) -> np.ndarray:
    """Centred samples whose variances fall like those of images."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(dims, min(dims, 60))))[0]
    spread = 1 / np.arange(1, turn.shape[1] + 1)
    X = rng.normal(size=(n, len(spread))) * spread @ turn.T + 0.01 * rng.normal(size=(n, dims))
    return (X - X.mean(axis=0)).astype(np.float32)


@pytest.mark.parametrize(
    ("n", "dims"), [(400, 50), (50, 400), (300, 1100), (1100, 1030), (1200, 1300)]
)
def test_components_are_those_of_an_exact_decomposition(n: int, dims: int) -> None:
    X = samples(n, dims)
    components = principal_components(X, 12)
    exact = PCA(12, svd_solver="full").fit(X.astype(np.float64))
    np.testing.assert_allclose(components.components, exact.components_, atol=2e-3)
    np.testing.assert_allclose(
        components.components @ components.components.T, np.eye(12), atol=1e-5
    )
    assert components.explained == pytest.approx(exact.explained_variance_ratio_.sum(), rel=1e-5)


def test_the_way_they_are_found_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    X = samples(500, 200)
    exact = principal_components(X, 10)
    monkeypatch.setattr(module, "_EXACT_UP_TO", 0)
    iterated = principal_components(X, 10)
    np.testing.assert_allclose(iterated.components, exact.components, atol=1e-3)
    assert iterated.explained == pytest.approx(exact.explained, rel=1e-5)
    again = principal_components(X, 10)
    np.testing.assert_array_equal(again.components, iterated.components)


def test_signs_hold_where_the_largest_entries_tie() -> None:
    rng = np.random.default_rng(0)
    X = np.outer(rng.normal(size=50), [1.0, -1.0, 0.2]).astype(np.float32)
    X[:, 1] += 1e-5 * rng.normal(size=50).astype(np.float32)
    for flip in (1, -1):
        assert principal_components(flip * X, 1).components[0, 0] > 0.7


@pytest.mark.parametrize("limit", [1024, 0])
def test_fewer_directions_than_components(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(module, "_EXACT_UP_TO", limit)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 3)) @ rng.normal(size=(3, 80))).astype(np.float32)
    components = principal_components(X - X.mean(axis=0), 7)
    np.testing.assert_allclose(
        components.components @ components.components.T, np.eye(7), atol=1e-4
    )
    assert components.explained == pytest.approx(1, rel=1e-4)


def test_all_components_of_few_samples() -> None:
    X = samples(20, 1500)
    components = principal_components(X, 20)
    np.testing.assert_allclose(
        components.components @ components.components.T, np.eye(20), atol=1e-4
    )
    assert components.explained == pytest.approx(1, rel=1e-4)


def test_large_images_need_little_memory() -> None:
    """The covariance of 21,168 dimensions alone would take 1.8 GB, in float32."""
    coarse = np.random.default_rng(0).integers(0, 256, (1100, 6, 6, 3)).astype(np.uint8)
    images = coarse.repeat(14, axis=1).repeat(14, axis=2)
    pool = ClassPool.from_arrays(images, np.repeat(np.arange(11), 100))
    tracemalloc.start()
    preparation = learn_preparation(pool, np.arange(11), PrepareConfig(pca=32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert preparation.dims == 32
    assert peak < 700e6
    small = PCA(32, svd_solver="full").fit(coarse.reshape(1100, -1) / 255.0)
    assert preparation.explained == pytest.approx(small.explained_variance_ratio_.sum(), rel=1e-4)


MANY = """
import numpy as np
from taskscape.themes import prepare as module
X = np.random.default_rng(0).normal(size=(3000, 8000)).astype(np.float32)
print("begun", flush=True)
module.principal_components(X, 1000)
print("done", flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_is_heard_while_components_are_sought() -> None:
    child = start_hearing([sys.executable, "-c", MANY])
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    time.sleep(2)
    child.send_signal(signal.SIGINT)
    began = time.perf_counter()
    out, err = child.communicate(timeout=60)
    assert time.perf_counter() - began < 5
    assert "KeyboardInterrupt" in err
    assert "done" not in out
