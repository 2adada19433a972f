"""Every meta-learner of the registry keeps the same promises."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_cases import DIMS, toy_episode, toy_pool, toy_tasks
from taskscape.errors import DataError
from taskscape.meta import (
    LEARNERS as REGISTRY,
)
from taskscape.meta import (
    Episode,
    Evaluation,
    LearnerEntry,
    Shots,
    TrainConfig,
    Trained,
    evaluate,
    gaussian_weights,
    make_learner,
    mlp,
    train,
)
from taskscape.meta.gaussian_weights import GaussianLearner
from taskscape.settings import settings_in

SMALL = {"inner_rate": 0.3, "predict_samples": 4, "particles": 3}
"""Settings for a small problem; a learner gets those that it has."""


def small(entry: LearnerEntry) -> Any:
    own = settings_in(entry.kind)
    return make_learner(entry.name, **{k: v for k, v in SMALL.items() if k in own})


LEARNERS = {name: small(entry) for name, entry in REGISTRY.items()}
WAY, WIDTH = 5, 12
NETWORK = mlp(DIMS, (WIDTH,))
CONFIG = TrainConfig(updates=60, batch_size=4, learning_rate=1e-2, validate_every=30)


@pytest.fixture(scope="module", params=LEARNERS)
def name(request: pytest.FixtureRequest) -> str:
    """The learner's name; of module scope, so that the tests of a learner run one after another."""
    return str(request.param)


@dataclass(frozen=True)
class Course:
    """A learner trained and evaluated twice on other tasks, with its traces counted each time."""

    trained: Trained
    evaluation: Evaluation
    traces_after_first: int
    traces_after_second: int


def counting(learner: Any, traces: list[str]) -> Any:
    """The same learner, which notes whenever one of its methods is traced."""
    kind = type(learner)

    class Counted(kind):
        def loss(self, *args: Any) -> Any:
            traces.append("loss")
            return super().loss(*args)

        def predict(self, *args: Any) -> Any:
            traces.append("predict")
            return super().predict(*args)

    return Counted(**asdict(learner))


@cache
def course(name: str) -> Course:
    pool, traces, seen = toy_pool(), list[str](), []
    learner = counting(LEARNERS[name], traces)
    validation = toy_tasks(pool, "val", 32, n_way=(3, 4))
    for seed in (0, 1):
        tasks = toy_tasks(pool, "train", 120, seed=seed, n_way=(3, 4))
        trained = train(
            learner, NETWORK, tasks, CONFIG, seed=seed, n_way=WAY, validation=validation
        )
        test = toy_tasks(pool, "test", 32, seed=seed, n_way=(3, 4))
        evaluation = evaluate(learner, trained.state, test, seed=seed)
        seen.append(len(traces))
    plain = Trained(LEARNERS[name], *list(vars(trained).values())[1:])
    return Course(plain, evaluation, *seen)


def ask(learner: Any, state: Any, episode: Episode) -> tuple[jax.Array, jax.Array]:
    """Predictions for the queries, and the loss."""
    key = jax.random.key(3)
    adapted = learner.adapt(state, episode.support, key)
    return learner.predict(adapted, episode.query, key), learner.loss(state, episode, key)


ask_compiled = jax.jit(ask, static_argnums=0)


def over_keys(name: str, state: Any, episode: Episode, n: int = 200) -> np.ndarray:
    """Predictions under many keys."""
    learner = LEARNERS[name]

    def one(key: jax.Array) -> jax.Array:
        return learner.predict(learner.adapt(state, episode.support, key), episode.query, key)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), n)))


def with_mask(episode: Episode, has: list[bool], junk: float | None = None) -> Episode:
    """The episode without some of its classes; where their samples were there may be junk."""

    def masked(s: Shots) -> Shots:
        mask = jnp.array(has)[s.y]
        x = s.x if junk is None else jnp.where(mask[:, None], s.x, junk)
        return Shots(x, s.y, mask, jnp.array(has))

    return Episode(masked(episode.support), masked(episode.query))


def test_learns_a_toy_problem(name: str) -> None:
    result = course(name).evaluation.accuracy.mean()
    assert result > 0.7, result  # chance is below 1/3


def test_compiles_once_for_batches_of_one_shape(name: str) -> None:
    assert course(name).traces_after_first == course(name).traces_after_second


def test_predicts_probabilities_of_the_classes_that_the_task_has(name: str) -> None:
    episode = with_mask(toy_episode(WAY), [True, True, False, True, True])
    p, _ = ask_compiled(LEARNERS[name], course(name).trained.state, episode)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    assert (np.asarray(p) >= 0).all()
    assert (np.asarray(p)[:, 2] == 0).all()


def test_what_lies_under_the_mask_changes_nothing(name: str) -> None:
    state, has = course(name).trained.state, [True, True, False, True, False]
    (p, loss), (p_junk, loss_junk) = (
        ask_compiled(LEARNERS[name], state, with_mask(toy_episode(WAY), has, junk))
        for junk in (0.0, 100.0)
    )
    real = np.repeat(has, 4)
    np.testing.assert_allclose(p_junk[real], p[real], atol=1e-6)
    np.testing.assert_allclose(loss_junk, loss, rtol=1e-5)


def test_labels_of_queries_are_not_looked_at(name: str) -> None:
    episode, state = toy_episode(WAY), course(name).trained.state
    query = episode.query
    blind = Shots(query.x, jnp.zeros_like(query.y), query.mask, query.class_mask)
    np.testing.assert_array_equal(
        ask_compiled(LEARNERS[name], state, Episode(episode.support, blind))[0],
        ask_compiled(LEARNERS[name], state, episode)[0],
    )


def permute_head(tree: Any, order: np.ndarray) -> Any:
    """Reorder the outputs of the heads of all networks in a state."""
    return jax.tree.map(
        lambda leaf: leaf[..., order] if leaf.shape[-1] == WAY else leaf,
        tree,
    )


def permuted_noise(order: np.ndarray) -> Callable[..., jax.Array]:
    """The random numbers of the weights, those of the head reordered with it."""

    def noise(q: Any, key: Any, samples: int) -> jax.Array:
        leaves, parts, at = jax.tree.leaves(q.rebuild(q.mean)), [], 0
        eps = gaussian_noise(q, key, samples)
        for leaf in leaves:
            part = eps[:, at : at + leaf.size].reshape(samples, *leaf.shape)
            parts.append(permute_head(part, order).reshape(samples, -1))
            at += leaf.size
        return jnp.concatenate(parts, axis=1)

    return noise


def permuted_signs(order: np.ndarray) -> Callable[..., jax.Array]:
    """The random signs of samples and classes, reordered with the classes."""
    return lambda shots, key, samples: gaussian_signs(shots, key, samples)[..., order]


gaussian_noise, gaussian_signs = gaussian_weights.noise, gaussian_weights.signs


def test_permuting_classes_permutes_predictions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    episode, state = toy_episode(WAY), course(name).trained.state
    order = np.array([3, 0, 4, 1, 2])  # class order[i] becomes class i
    rank = jnp.asarray(np.argsort(order))
    turned = Episode(*(
        Shots(s.x, rank[s.y], s.mask, s.class_mask[order]) for s in (episode.support, episode.query)
    ))  # fmt: skip
    before, loss_before = ask_compiled(LEARNERS[name], state, episode)
    state = permute_head(state, order)  # where there is a head
    if isinstance(LEARNERS[name], GaussianLearner):  # its random numbers belong to the classes
        monkeypatch.setattr(gaussian_weights, "noise", permuted_noise(order))
        monkeypatch.setattr(gaussian_weights, "signs", permuted_signs(order))
    after, loss_after = jax.jit(lambda *args: ask(LEARNERS[name], *args))(state, turned)
    if np.allclose(after, before[:, order], atol=1e-5):
        np.testing.assert_allclose(loss_after, loss_before, rtol=1e-4)
        return
    # random numbers of its own may belong to classes: then it is the average that is permuted
    there, here = course(name).trained.state, state
    many, turned_many = over_keys(name, there, episode), over_keys(name, here, turned)
    error = np.sqrt((many.var(0)[:, order] + turned_many.var(0)) / len(many))
    assert error.max() > 1e-4, "nothing in it is random, and predictions are not permuted"
    apart = np.abs(turned_many.mean(0) - many.mean(0)[:, order])
    assert (apart <= 5 * error + 1e-5).all()


def test_heads_serve_tasks_of_fewer_classes_and_refuse_more(name: str) -> None:
    state, few = course(name).trained.state, toy_episode(way=2)
    whole = toy_episode(WAY)

    def beside(s: Shots, wide: Shots) -> Shots:
        x = wide.x.at[: len(s.x)].set(s.x)
        return Shots(x, wide.y, jnp.arange(len(x)) < len(s.x), jnp.arange(WAY) < 2)

    padded = Episode(beside(few.support, whole.support), beside(few.query, whole.query))
    narrow, loss = ask_compiled(LEARNERS[name], state, few)
    wide, loss_wide = ask_compiled(LEARNERS[name], state, padded)
    assert narrow.shape == (8, 2)
    np.testing.assert_allclose(wide[:8, :2], narrow, atol=1e-5)
    np.testing.assert_allclose(loss_wide, loss, rtol=1e-4)
    if all(leaf.shape[-1] != WAY for leaf in jax.tree.leaves(state)):  # there is no head
        return
    with pytest.raises(DataError, match=r"up to 7 classes, the head has 5 .* n_way=7"):
        ask_compiled(LEARNERS[name], state, toy_episode(way=7))


def test_saved_and_loaded_it_predicts_the_same(name: str, tmp_path: Path) -> None:
    trained, episode = course(name).trained, toy_episode(WAY)
    trained.save(tmp_path / "learner")
    again = Trained.load(tmp_path / "learner")
    assert repr(again) == repr(trained)
    assert again.summary() == trained.summary()
    assert len(repr(again)) < 500
    assert again.learner == trained.learner
    assert again.network == trained.network
    assert again.n_way == trained.n_way
    np.testing.assert_array_equal(again.losses, trained.losses)
    np.testing.assert_array_equal(
        ask_compiled(again.learner, again.state, episode)[0],
        ask_compiled(trained.learner, trained.state, episode)[0],
    )
