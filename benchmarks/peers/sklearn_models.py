"""scikit-learn's nearest relatives of the task-theme model, in the same run on the same data.

    cd benchmarks && python -m peers.sklearn_models --out results/sklearn_models.json

One step of the online fit (responsibilities of image-themes, class and task posteriors, statistics,
new themes) against one EM iteration of `GaussianMixture` (the image-themes alone) with as many
components, full covariances and samples; and the embedding of a task from its samples against
`LatentDirichletAllocation.transform` of the counts of its image-themes, which are given to it.
"""

import warnings
from functools import partial

import numpy as np
from made_up import pool_and_themes
from record import keep, parser, seconds
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from taskscape import sample_tasks
from taskscape.themes import Fit, FitConfig, TaskSource
from taskscape.themes.embed import embed

CLASSES, SAMPLES, K, L, WAYS, SHOT, BATCH = 100, 200, 8, 4, (5, 10), 16, 256


def em_iteration(X: np.ndarray, seed: int, iterations: int = 10) -> float:
    """Seconds of one EM iteration; the start and the end of a fit make one more."""
    mixture = GaussianMixture(
        K, covariance_type="full", init_params="random_from_data", tol=0.0, max_iter=iterations,
        random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is meant to stop early
        return min(seconds(lambda: mixture.fit(X)) for _ in range(3)) / (iterations + 1)


def theme_counts(mixture_of: np.ndarray, rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """How many samples of each task (tasks, classes, samples) belong to each image-theme."""
    counts = np.zeros((len(rows), K))
    task = np.broadcast_to(np.arange(len(rows))[:, None, None], rows.shape)
    np.add.at(counts, (task[mask], mixture_of[rows[mask]]), 1)
    return counts


def one(dims: int, steps: int, n_tasks: int, seed: int) -> dict[str, float]:
    """Figures for features of this dimension."""
    pool, prepared, _ = pool_and_themes(CLASSES, SAMPLES, dims, K, L, seed)
    learn = sample_tasks(pool, (steps + 3) * BATCH + 600, n_way=WAYS, n_shot=SHOT, seed=seed)
    source, held_out = TaskSource.of(learn, seed, 64)
    config = FitConfig(image_themes=K, task_themes=L, batch_size=BATCH)
    fit = Fit.several(source, held_out, prepared, config, 1)[0]

    def step(t: int) -> None:
        fit.learn(fit.mini_batch(t))

    for t in range(3):  # compile for the shapes that occur
        step(t)
    ours = min(seconds(partial(step, t)) for t in range(3, 3 + steps))
    rows = source.batch(3, BATCH).pool_rows(slice(None))
    distinct = np.unique(rows.support[rows.support_mask])
    X = pool.samples[distinct].astype(np.float64)
    peer = em_iteration(X, seed)

    themes = fit.state.themes
    tasks = sample_tasks(pool, n_tasks, n_way=5, n_shot=SHOT, seed=seed + 1)
    embed([themes], tasks, prepared)
    embedding = min(seconds(lambda: embed([themes], tasks, prepared)) for _ in range(3))
    mixture = GaussianMixture(K, max_iter=20, tol=1e-2, random_state=seed).fit(X)
    batch = tasks.pool_rows(slice(None))
    counts = theme_counts(mixture.predict(pool.samples), batch.support, batch.support_mask)
    lda = LatentDirichletAllocation(L, max_iter=3, random_state=seed).fit(counts[:2000])
    transform = min(seconds(lambda: lda.transform(counts)) for _ in range(3))
    return {
        "samples of one step": float(len(distinct)),
        "ms of one fit step": 1e3 * ours,
        "ms of one EM iteration of GaussianMixture": 1e3 * peer,
        "EM iteration over fit step": peer / ours,
        "tasks embedded per second": n_tasks / embedding,
        "documents per second of LatentDirichletAllocation": n_tasks / transform,
        "embedding over LatentDirichletAllocation": transform / embedding,
    }


def main() -> None:
    options = parser(str(__doc__))
    options.add_argument("--dims", type=int, nargs="*", default=[32, 64])
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--n-tasks", type=int, default=20_000)
    args = options.parse_args()
    figures: dict[str, float] = {}
    for dims in args.dims:
        result = one(dims, args.steps, args.n_tasks, args.seed)
        figures |= {f"D={dims} {name}": value for name, value in result.items()}
    keep(figures, args)


if __name__ == "__main__":
    main()
