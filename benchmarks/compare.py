"""Comparing tasks: mean distance, search and quantiles, from 10⁴ to 2·10⁶ training tasks.

    python benchmarks/compare.py --out benchmarks/results/compare.json

The peers: for the mean, all pairs in blocks (on fewer test tasks, its time scaled up); for search,
a NumPy matrix product with argpartition, JAX's top-k, and FAISS where it is installed (likewise).
"""

import numpy as np
from record import over_training_sets, seconds

from taskscape.compare import distances, mean_kl, nearest
from taskscape.compare.posteriors import expected_log
from taskscape.embeddings.blocks import log_beta

N_TEST, K, WAY = 15_504, 10, 5


def tasks(rng: np.random.Generator, n: int, n_classes: int, L: int) -> np.ndarray:
    """λ of 5-way tasks whose classes mix the task-themes."""
    shares = rng.dirichlet(np.full(L, 0.3), n_classes)
    return 0.5 + shares[rng.integers(n_classes, size=(n, WAY))].sum(axis=1)


def by_matmul(test: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The k nearest as most people would write it, in float64."""
    scores = log_beta(train)[None] - expected_log(test) @ train.T
    return np.argpartition(scores, K, axis=1)[:, :K]


def by_faiss(test: np.ndarray, train: np.ndarray) -> float | None:
    try:
        import faiss
    except ImportError:
        return None
    index = faiss.IndexFlatIP(train.shape[1] + 1)  # −KL is an inner product in L + 1 dimensions
    index.add(np.column_stack([train, log_beta(train)]).astype(np.float32))
    queries = np.column_stack([expected_log(test), np.full(len(test), -1.0)]).astype(np.float32)
    return seconds(lambda: index.search(queries, K))


def one(rng: np.random.Generator, n_train: int, L: int) -> dict[str, object]:
    """Times in seconds for all 15,504 test tasks."""
    test, train = tasks(rng, N_TEST, 20, L), tasks(rng, n_train, 64, L)
    few = test[: max(16, min(N_TEST, 40_000_000 // n_train))]
    up = N_TEST / len(few)
    mean = min(seconds(lambda: mean_kl(test, train)) for _ in range(3))
    mean_peer = up * seconds(lambda: distances(few, train).mean(axis=1))
    full = distances(few[:16], train).mean(axis=1)
    error = float(np.max(np.abs(mean_kl(few[:16], train) / full - 1)))
    search = seconds(lambda: nearest(test, train, K, method="boxes"))
    one_query = min(seconds(lambda: nearest(test[:1], train, K)) for _ in range(3))
    search_peer = up * seconds(lambda: by_matmul(few, train))
    nearest(few[:16], train, K, method="matmul")  # compiles
    jax_peer = up * seconds(lambda: nearest(few, train, K, method="matmul"))
    faiss = by_faiss(few, train)
    return {
        "mean_kl_s": mean,
        "mean_kl_ratio_to_all_pairs": mean_peer / mean,
        "mean_kl_largest_relative_error": error,
        "nearest_s": search,
        "nearest_one_query_s": one_query,
        "nearest_ratio_to_matmul": search_peer / search,
        "nearest_ratio_to_jax_matmul": jax_peer / search,
        "nearest_ratio_to_faiss": None if faiss is None else up * faiss / search,
        "peers_measured_on_test_tasks": len(few),
    }


if __name__ == "__main__":
    over_training_sets(__doc__ or "", one, {"n_test": N_TEST, "k": K})
