"""Trained learners as named arrays and a JSON-able description, and back."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from taskscape.errors import DataError
from taskscape.meta.abml import ABML
from taskscape.meta.bmaml import BMAML
from taskscape.meta.learner import Learner
from taskscape.meta.maml import MAML
from taskscape.meta.networks import architecture
from taskscape.meta.protonet import ProtoNet
from taskscape.meta.trials import Trained
from taskscape.meta.vampire import VAMPIRE
from taskscape.storage import arrays_of, tree_from

__all__ = ["LEARNERS", "make_learner", "restore", "to_store"]

LEARNERS: Mapping[str, Callable[..., Learner]] = {
    "protonet": ProtoNet,
    "maml": MAML,
    "abml": ABML,
    "bmaml": BMAML,
    "vampire": VAMPIRE,
}


def make_learner(name: str, **settings: Any) -> Learner:
    """A learner by name; other settings than its defaults can be given.

    >>> make_learner("maml", inner_steps=3)
    MAML(inner_rate=0.2, inner_steps=3, first_order=False)
    """
    if name not in LEARNERS:
        raise DataError(f"learner {name!r} is not known; choose from {', '.join(LEARNERS)}.")
    return LEARNERS[name](**settings)


def to_store(trained: Trained) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The learned arrays by name, and what is needed besides them to use them again."""
    name = next((n for n, kind in LEARNERS.items() if type(trained.learner) is kind), None)
    if name is None:
        raise DataError(f"{trained.learner!r} is not one of {', '.join(LEARNERS)}.")
    arrays = arrays_of(trained.state)
    arrays |= {"history.losses": trained.losses, "history.scores": trained.scores}
    return arrays, {
        "learner": name,
        "settings": asdict(trained.learner),  # type: ignore[call-overload]
        "network": trained.network.config(),
        "n_way": trained.n_way,
    }


def restore(arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> Trained:
    """The inverse of :func:`to_store`, for a single trained learner."""
    learner = make_learner(config["learner"], **config["settings"])
    network, n_way = architecture(config["network"]), int(config["n_way"])
    like = jax.eval_shape(lambda: learner.init(jax.random.key(0), network, n_way))
    return Trained(
        learner=learner,
        network=network,
        n_way=n_way,
        state=tree_from(arrays, like),
        losses=arrays["history.losses"],
        scores=arrays["history.scores"],
    )
