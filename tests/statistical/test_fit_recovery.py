"""CoClustering finds themes again, up to relabelling, from tasks drawn from them."""

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from known_themes import D, K, L, true_themes
from taskscape import ClassPool, make_tasks
from taskscape.model import generate
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.embed import embed
from taskscape.themes.prepare import PreparedSamples

M, C, N = 800, 6, 16
HELD_OUT = 200


@pytest.mark.slow
@pytest.mark.parametrize("method", ["online", "batch"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_themes_are_recovered_up_to_relabelling(seed: int, method: str):
    truth = true_themes(seed)
    drawn = generate(jax.random.key(seed), truth, M + HELD_OUT, C, N)
    n_classes = (M + HELD_OUT) * C
    samples = np.asarray(drawn.x).reshape(-1, D)
    pool = ClassPool.from_arrays(samples, np.repeat(np.arange(n_classes), N), name="drawn")
    tasks = make_tasks(pool, np.arange(n_classes).reshape(-1, C).tolist())
    # The prior of the covariances is made weaker than the default, which widens them on purpose.
    model = CoClustering(
        L, K, prepare=None, method=method, nu_fraction=1e-3, kappa=0.005, batch_size=64,
        max_passes=30, random_state=seed,
    ).fit(tasks[:M])  # fmt: skip

    distance = np.linalg.norm(model.mu_[:, None] - np.asarray(truth.mu), axis=-1)
    order = linear_sum_assignment(distance.T)[1]
    counts = np.asarray(drawn.z[:M].sum((0, 1, 2)))[:, None]
    sigma = np.sqrt(np.diagonal(truth.Sigma, axis1=1, axis2=2))
    # Online, the last steps average over fewer tasks than all: some more than a standard error.
    errors = 4.5 if method == "batch" else 7.0
    assert (np.abs(model.mu_[order] - truth.mu) < errors * sigma / np.sqrt(counts)).all()
    scale = (sigma[:, :, None] * sigma[:, None, :]) ** -1
    assert np.abs((model.Sigma_[order] - truth.Sigma) * scale).max() < 0.2

    alpha, true_alpha = model.alpha_[:, order], np.asarray(truth.alpha)
    share = alpha / alpha.sum(-1, keepdims=True)
    true_share = true_alpha / true_alpha.sum(-1, keepdims=True)
    rows = linear_sum_assignment(np.abs(share[:, None] - true_share).sum(-1).T)[1]
    assert np.abs(share[rows] - true_share).max() < 0.04
    # Mean-field posteriors are too sure of themselves, so the totals come out a little low.
    assert (np.abs(np.log(alpha[rows].sum(-1) / true_alpha.sum(-1))) < np.log(1.4)).all()

    unseen = tasks[M:]
    prepared = PreparedSamples(pool, model.preparation_, np.arange(M * C, n_classes))
    best = embed([truth], unseen, prepared).elbo[0]
    assert best.mean() - model.score(unseen) < 0.02
    assert model.health_.ok
