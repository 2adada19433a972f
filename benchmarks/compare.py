"""Comparing tasks: mean distance and search, from 10⁴ to 2·10⁶ training tasks.

    python benchmarks/compare.py --out benchmarks/results/compare.json

Posteriors are of task-themes (L columns), or of the default model (256 image-themes and 128 numbers
of position: L = 384). The peers: for the mean, all pairs in blocks (on fewer test tasks, its time
scaled up); for search, a NumPy matrix product with argpartition, JAX's top-k, and FAISS where it is
installed (likewise).
"""

import numpy as np
from record import over_training_sets, seconds

from taskscape.compare import distances, mean_distance, nearest
from taskscape.embeddings import Factor, Posterior

N_TEST, K, WAY = 1000, 10, 5
DEFAULT = 384


def tasks(rng: np.random.Generator, n: int, n_classes: int, L: int) -> Posterior:
    """Posteriors of 5-way tasks whose classes mix the task-themes, or of the default model."""
    if L != DEFAULT:
        shares = rng.dirichlet(np.full(L, 0.3), n_classes)
        lam = 0.5 + shares[rng.integers(n_classes, size=(n, WAY))].sum(axis=1)
        return Posterior.of(lam, (Factor("task_themes", "dirichlet", L),))
    shares = rng.dirichlet(np.full(256, 0.1), n_classes).astype(np.float32)
    places = rng.standard_normal((n_classes, 128), dtype=np.float32)
    values = np.empty((n, DEFAULT), dtype=np.float32)
    for begin in range(0, n, 1 << 16):
        drawn = rng.integers(n_classes, size=(len(values[begin : begin + (1 << 16)]), WAY))
        values[begin : begin + len(drawn), :256] = 1.01 + 16 * shares[drawn].sum(axis=1)
        values[begin : begin + len(drawn), 256:] = places[drawn].mean(axis=1)
    noise = np.float32(1) + np.float32(0.02) * rng.standard_normal(DEFAULT, dtype=np.float32)
    factors = (
        Factor("image_themes", "dirichlet", 256, 0.3, 60.0),
        Factor("position", "gaussian", 128, 0.7, 10.0),
    )
    return Posterior.of(values * np.abs(noise), factors)


def by_matmul(test: Posterior, train: Posterior) -> np.ndarray:
    """The k nearest as most people would write it, in float64."""
    scores = train.log_normaliser - test.gradient @ train.values.astype(np.float64).T
    return np.argpartition(scores, K, axis=1)[:, :K]


def by_faiss(test: Posterior, train: Posterior) -> float | None:
    try:
        import faiss
    except ImportError:
        return None
    index = faiss.IndexFlatIP(train.values.shape[1] + 1)  # an inner product in L + 1 dimensions
    index.add(np.column_stack([train.values, train.log_normaliser]).astype(np.float32))
    queries = np.column_stack([test.gradient, np.full(len(test), -1.0)]).astype(np.float32)
    return seconds(lambda: index.search(queries, K))


def one(rng: np.random.Generator, n_train: int, L: int) -> dict[str, object]:
    """Times in seconds for all test tasks."""
    test, train = tasks(rng, N_TEST, 20, L), tasks(rng, n_train, 64, L)
    few = test[: max(16, min(N_TEST, 40_000_000 // n_train))]
    up = N_TEST / len(few)
    mean = min(seconds(lambda: mean_distance(test, train)) for _ in range(3))
    mean_peer = up * seconds(lambda: distances(few, train).mean(axis=1))
    full = distances(few[:16], train).mean(axis=1)
    error = float(np.max(np.abs(mean_distance(few[:16], train) / full - 1)))
    search = seconds(lambda: nearest(test, train, K))
    one_query = min(seconds(lambda: nearest(test[:1], train, K)) for _ in range(3))
    search_peer = up * seconds(lambda: by_matmul(few, train))
    faiss = by_faiss(few, train)
    return {
        "mean_distance_s": mean,
        "mean_distance_ratio_to_all_pairs": mean_peer / mean,
        "mean_distance_largest_relative_error": error,
        "nearest_s": search,
        "nearest_one_query_s": one_query,
        "nearest_ratio_to_matmul": search_peer / search,
        "nearest_ratio_to_faiss": None if faiss is None else up * faiss / search,
        "peers_measured_on_test_tasks": len(few),
    }


if __name__ == "__main__":
    over_training_sets(__doc__ or "", one, {"n_test": N_TEST, "k": K})
