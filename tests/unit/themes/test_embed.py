"""Embedding tasks: a function of the task alone, equal to the plain E-step."""

import re
from dataclasses import replace
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fit_cases import fitted, small_pool, small_tasks
from taskscape import ClassPool, make_tasks, sample_tasks
from taskscape.errors import DataError
from taskscape.model import e_step, elbo, infer, log_likelihood, whiten
from taskscape.tasks import TaskSet
from taskscape.themes.data import gather
from taskscape.themes.embed import TaskPosteriors, embed, likelihoods
from taskscape.themes.prepare import PreparedSamples

module = import_module("taskscape.themes.embed")


def prepared() -> PreparedSamples:
    return PreparedSamples(small_pool(), fitted().preparation_, np.arange(len(small_pool())))


def embedded(tasks: TaskSet, **settings: object) -> TaskPosteriors:
    return embed(fitted().members_, tasks, prepared(), **settings)


def subset(posteriors: TaskPosteriors, rows: object) -> TaskPosteriors:
    """The posteriors of some of the tasks."""
    return TaskPosteriors(*(None if part is None else part[:, rows] for part in posteriors))


def same(a: TaskPosteriors, b: TaskPosteriors) -> None:
    """Equal up to rounding, and to what is left of the last sweep."""
    np.testing.assert_allclose(a.lam, b.lam, atol=5e-4)
    np.testing.assert_allclose(a.elbo, b.elbo, atol=1e-4)


def test_the_likelihood_of_a_sample_is_found_by_its_row():
    themes, classes = fitted().members_[0], np.array([20, 3])
    table = likelihoods(themes, prepared(), classes)
    rows = np.array([36, 47, 240, 251])
    expected = log_likelihood(
        jnp.asarray(small_pool().samples[rows]), whiten(themes.mu, themes.Sigma)
    )
    np.testing.assert_allclose(table.values[table.where[rows]], expected, rtol=1e-5)
    assert (table.where >= 0).sum() == 24
    assert table.values.shape == (24, 4)


def gathered(tasks: TaskSet) -> tuple[jax.Array, ...]:
    """What the E-steps of the model take: log-likelihoods, masks, alpha, delta."""
    themes = fitted().members_[0]
    batch = gather(tasks, prepared(), (len(tasks), tasks.max_way, tasks.max_shot))
    log_lik = log_likelihood(batch.x, whiten(themes.mu, themes.Sigma))[batch.index]
    return (log_lik, batch.sample_mask, batch.class_mask, themes.alpha, themes.delta)


def test_a_posterior_is_that_of_the_e_step_given_the_task_theme():
    tasks = small_tasks(40, seed=9, split="test")
    posteriors = embedded(tasks, keep_gamma=True)
    plain, bound, sweeps = jax.jit(infer)(*gathered(tasks))
    np.testing.assert_allclose(posteriors.lam[0], plain.lam, atol=5e-4)
    assert posteriors.gamma is not None
    gamma = np.einsum("mcl,mclk->mck", plain.eta, plain.gamma)
    real = tasks.classes >= 0
    np.testing.assert_allclose(posteriors.gamma[0, real], gamma[real], atol=5e-3)
    assert (posteriors.gamma[0, ~real] == 1).all()
    np.testing.assert_allclose(posteriors.elbo[0], np.asarray(bound) / (6 * tasks.n_way), atol=1e-4)
    # rounding may decide when the last sweep was
    assert np.mean(posteriors.sweeps[0] == np.asarray(sweeps)) > 0.8
    # what the E-step moves sums to the number of classes
    np.testing.assert_allclose(posteriors.lam[0].sum(axis=1), 2 * 0.5 + tasks.n_way, rtol=1e-5)
    assert embedded(tasks[:3]).gamma is None


def test_literally_it_is_that_of_the_paper():
    tasks = small_tasks(40, seed=9, split="test")
    posteriors = embedded(tasks, keep_gamma=True, literal=True)
    given = gathered(tasks)
    plain = jax.jit(e_step, static_argnames="max_iter")(*given, 1e-5, 500)
    np.testing.assert_allclose(posteriors.lam[0], plain.posterior.lam, atol=5e-4)
    assert posteriors.gamma is not None
    np.testing.assert_allclose(posteriors.gamma[0], plain.posterior.gamma, atol=5e-3)
    terms = elbo(plain.posterior, *given)
    np.testing.assert_allclose(
        posteriors.elbo[0], np.asarray(terms.total) / (6 * tasks.n_way), atol=1e-4
    )
    assert np.abs(posteriors.sweeps[0] - np.asarray(plain.sweeps)).max() <= 2
    assert (embedded(tasks).elbo > posteriors.elbo - 1e-4).all()


def test_with_all_samples_each_class_is_fitted_once_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
):
    tasks = sample_tasks(small_pool(), 90, n_way=(2, 4), n_shot="all", split="train", seed=3)
    fits, inner = [], module._Member.fit_classes

    def counted(*args: jax.Array) -> object:
        fits.append(int(args[2].any(0).sum()))
        return inner(*args)

    monkeypatch.setattr(module._Member, "fit_classes", counted)
    once = embedded(tasks, keep_gamma=True)
    assert fits == [16]
    listed = np.broadcast_to(np.arange(12), (90, 4, 12))
    support = np.where((tasks.classes >= 0)[..., None], listed, -1)
    drawn = make_tasks(
        small_pool(), [[int(c) for c in row if c >= 0] for row in tasks.classes], support=support
    )
    each = embedded(drawn, keep_gamma=True)
    assert fits[1:] == [int(tasks.n_way.sum())]
    same(once, each)
    assert once.gamma is not None
    assert each.gamma is not None
    np.testing.assert_allclose(once.gamma, each.gamma, atol=5e-3)
    same(embedded(tasks[7]), subset(once, [7]))


def far_away(*where: tuple[str, int]) -> ClassPool:
    """The pool with some samples beyond all numbers that likelihoods can have."""
    pool = small_pool()
    classes = {
        name: pool.samples[start : start + 12].copy()
        for name, start in zip(pool.class_names, pool.starts, strict=True)
    }
    for i, (name, sample) in enumerate(where):
        classes[name][sample] = 3e25 * (i + 1)
    return ClassPool.from_classes(classes)


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize(("where", "more"), [
    ([("c3", 5)], ""),
    ([("c3", 5), ("c4", 0)], " There are 2 such samples."),
])  # fmt: skip
def test_a_sample_beyond_all_numbers_is_named(
    where: list[tuple[str, int]], more: str, literal: bool
):
    pool = far_away(*where)
    samples = PreparedSamples(pool, fitted().preparation_, np.arange(len(pool)))
    tasks = make_tasks(pool, [[0, 1], [2, 3], [3, 4]], n_shot=6)
    message = (
        "task 1 has class 'c3', whose sample 5 lies so far from what the model was fitted on that "
        "its likelihood is no number (largest value 3e+25). Repair it or leave it out." + more
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        embed(fitted().members_, tasks, samples, literal=literal)
    kept = make_tasks(pool, [[0, 1], [5, 6]], n_shot=6)
    assert np.isfinite(embed(fitted().members_, kept, samples, literal=literal).lam).all()


def test_the_size_of_chunks_does_not_matter(monkeypatch: pytest.MonkeyPatch):
    tasks = small_tasks(150, seed=4)
    whole = embedded(tasks, keep_gamma=True)
    for name, value in {"_BYTES_ON_CPU": 1 << 16, "_LEAST_BYTES": 1, "_FIRST_TASKS": 7}.items():
        monkeypatch.setattr(module, name, value)
    parts = embedded(tasks, keep_gamma=True)
    same(whole, parts)
    assert whole.gamma is not None
    assert parts.gamma is not None
    np.testing.assert_allclose(whole.gamma, parts.gamma, atol=5e-3)


@pytest.mark.parametrize("literal", [False, True])
def test_an_accelerator_takes_all_tasks_at_once_with_the_same_result(
    literal: bool, monkeypatch: pytest.MonkeyPatch
):
    tasks = small_tasks(600, seed=4)
    in_blocks = embedded(tasks, keep_gamma=True, literal=literal)
    side_by_side = import_module("taskscape.themes.side_by_side")
    for place in (module, side_by_side):
        monkeypatch.setattr(place, "on_cpu", lambda: False)
    at_once = embedded(tasks, keep_gamma=True, literal=literal)
    same(in_blocks, at_once)
    assert in_blocks.gamma is not None
    assert at_once.gamma is not None
    np.testing.assert_allclose(in_blocks.gamma, at_once.gamma, atol=5e-3)


def test_other_tasks_in_the_batch_do_not_matter():
    tasks = small_tasks(40, seed=4)
    whole = embedded(tasks)
    turned = embedded(tasks[::-1])
    same(whole, subset(turned, slice(None, None, -1)))
    for i in (0, 7):
        alone = embedded(tasks[i])
        same(subset(whole, [i]), alone)


@pytest.mark.parametrize("literal", [False, True])
def test_many_tasks_of_which_few_are_slow(literal: bool):
    """Image-themes that overlap need many sweeps; settled classes have left by then."""
    themes = fitted().members_[0]
    blurred = replace(themes, Sigma=16 * themes.Sigma, alpha=0.1 * themes.alpha)
    tasks = small_tasks(1500, seed=6)
    many = embed([blurred], tasks, prepared(), literal=literal)
    few = embed([blurred], tasks[700:800], prepared(), literal=literal)
    same(subset(many, slice(700, 800)), few)
    assert np.isfinite(many.lam).all()
    assert np.isfinite(many.elbo).all()
    assert many.sweeps.max() >= 2 * np.median(many.sweeps)


def test_tasks_may_have_any_number_of_classes_and_samples():
    pool = small_pool()
    tasks = make_tasks(
        pool, [[0, 1, 2], [3, 4]], support=[[[0, 1], [2, -1], [3, 4]], [[0, 1], [2, 3], [-1, -1]]]
    )
    posteriors = embedded(tasks)
    np.testing.assert_allclose(posteriors.lam[0].sum(axis=1), [4, 3], rtol=1e-5)
    second = make_tasks(pool, [[3, 4]], support=[[[0, 1], [2, 3]]])
    same(subset(posteriors, [1]), embedded(second))
    mixed = sample_tasks(pool, 20, n_way=(2, 5), n_shot=(1, 8), seed=3)
    assert np.isfinite(embedded(mixed).elbo).all()


@pytest.mark.parametrize("max_iter", [1, 6, 7])
def test_sweeps_end_at_the_asked_number(max_iter: int):
    sweeps = embedded(small_tasks(20), max_iter=max_iter, tol=0.0).sweeps
    assert (sweeps == max_iter).all()


def test_the_literal_e_step_ends_after_the_asked_number():
    assert embedded(small_tasks(20), max_iter=4, literal=True).sweeps.max() == 4


def test_a_finer_tolerance_needs_more_sweeps():
    tasks = small_tasks(60, seed=2)
    coarse, fine = embedded(tasks, tol=1e-2), embedded(tasks, tol=1e-6)
    assert coarse.sweeps.mean() < fine.sweeps.mean()
    assert np.abs(coarse.lam - fine.lam).max() < 0.5
