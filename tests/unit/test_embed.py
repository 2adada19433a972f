"""Embedding tasks: a function of the task alone, equal to the plain E-step."""

from importlib import import_module

import jax.numpy as jnp
import numpy as np
import pytest

from fit_cases import fitted, small_pool, small_tasks
from taskscape import make_tasks, sample_tasks
from taskscape.embed import Embedding, LikelihoodTable, embed
from taskscape.fit.data import gather
from taskscape.model import e_step, elbo, log_likelihood, whiten
from taskscape.prepare import PreparedSamples
from taskscape.tasks import TaskSet

module = import_module("taskscape.embed")


def prepared() -> PreparedSamples:
    return PreparedSamples(small_pool(), fitted().preparation_, np.arange(len(small_pool())))


def embedded(tasks: TaskSet, **settings: object) -> Embedding:
    return embed(fitted().members_[0], tasks, prepared(), **settings)


def same(a: Embedding, b: Embedding) -> None:
    """Equal up to rounding, and to what is left of the last sweep."""
    np.testing.assert_allclose(a.lam, b.lam, atol=5e-4)
    np.testing.assert_allclose(a.elbo, b.elbo, atol=1e-4)


def test_the_likelihood_of_a_sample_is_found_by_its_row():
    themes, classes = fitted().members_[0], np.array([20, 3])
    table = LikelihoodTable(themes, prepared(), classes)
    rows = np.array([36, 47, 240, 251])
    expected = log_likelihood(jnp.asarray(small_pool().samples[rows]), whiten(themes))
    np.testing.assert_allclose(table.values[table.where[rows]], expected, rtol=1e-5)
    assert (table.where >= 0).sum() == 24
    assert table.values.shape == (24, 4)


def test_a_posterior_is_that_of_the_e_step():
    tasks, themes = small_tasks(40, seed=9, split="test"), fitted().members_[0]
    found = embedded(tasks, keep_gamma=True)
    batch = gather(tasks, prepared(), (40, 4, 6))
    log_lik = log_likelihood(batch.x, whiten(themes))[batch.index]
    masks = (batch.sample_mask, batch.class_mask)
    plain = e_step(log_lik, *masks, themes.alpha, themes.delta, tol=1e-5, max_iter=500)
    np.testing.assert_allclose(found.lam, plain.posterior.lam, atol=5e-4)
    assert found.gamma is not None
    np.testing.assert_allclose(found.gamma, plain.posterior.gamma, atol=5e-3)
    terms = elbo(plain.posterior, log_lik, *masks, themes.alpha, themes.delta)
    samples = 6 * tasks.n_way
    np.testing.assert_allclose(found.elbo, np.asarray(terms.total) / samples, atol=1e-4)
    assert (found.sweeps >= np.asarray(plain.iterations) - 1).all()
    # what the E-step moves sums to the number of classes
    np.testing.assert_allclose(found.lam.sum(axis=1), 2 * 0.5 + tasks.n_way, rtol=1e-5)
    assert len(found) == 40
    assert embedded(tasks[:3]).gamma is None


def test_the_size_of_chunks_does_not_matter(monkeypatch: pytest.MonkeyPatch):
    tasks = small_tasks(150, seed=4)
    whole = embedded(tasks, keep_gamma=True)
    monkeypatch.setattr(module, "_CELLS_AT_ONCE", 1)
    parts = embedded(tasks, keep_gamma=True)
    same(whole, parts)
    assert whole.gamma is not None
    assert parts.gamma is not None
    np.testing.assert_allclose(whole.gamma, parts.gamma, atol=5e-3)


def test_other_tasks_in_the_batch_do_not_matter():
    tasks = small_tasks(40, seed=4)
    whole = embedded(tasks)
    turned = embedded(tasks[::-1])
    same(whole, Embedding(turned.lam[::-1], turned.elbo[::-1], turned.sweeps[::-1]))
    for i in (0, 7):
        alone = embedded(tasks[i])
        same(Embedding(whole.lam[[i]], whole.elbo[[i]], whole.sweeps[[i]]), alone)


def test_many_tasks_of_which_few_are_slow():
    tasks = small_tasks(1500, seed=6)
    many = embedded(tasks)
    few = embedded(tasks[700:800])
    same(Embedding(many.lam[700:800], many.elbo[700:800], many.sweeps[700:800]), few)
    assert np.isfinite(many.lam).all()
    assert np.isfinite(many.elbo).all()
    assert many.sweeps.max() > 2 * np.median(many.sweeps)


def test_tasks_may_have_any_number_of_classes_and_samples():
    pool = small_pool()
    tasks = make_tasks(
        pool, [[0, 1, 2], [3, 4]], support=[[[0, 1], [2, -1], [3, 4]], [[0, 1], [2, 3], [-1, -1]]]
    )
    found = embedded(tasks)
    np.testing.assert_allclose(found.lam.sum(axis=1), [4, 3], rtol=1e-5)
    second = make_tasks(pool, [[3, 4]], support=[[[0, 1], [2, 3]]])
    same(Embedding(found.lam[1:], found.elbo[1:], found.sweeps[1:]), embedded(second))
    mixed = sample_tasks(pool, 20, n_way=(2, 5), n_shot=(1, 8), seed=3)
    assert np.isfinite(embedded(mixed).elbo).all()


def test_sweeps_end_after_the_asked_number():
    assert embedded(small_tasks(20), max_iter=4).sweeps.max() <= 4


def test_a_finer_tolerance_needs_more_sweeps():
    tasks = small_tasks(60, seed=2)
    coarse, fine = embedded(tasks, tol=1e-2), embedded(tasks, tol=1e-6)
    assert coarse.sweeps.mean() < fine.sweeps.mean()
    assert np.abs(coarse.lam - fine.lam).max() < 0.5
