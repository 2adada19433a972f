"""Selection by the rule that helps a given learner: tried on validation tasks by training it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.errors import DataError
from taskscape.meta import (
    Architecture,
    Learner,
    TrainConfig,
    evaluate_many,
    make_learner,
    train_many,
)
from taskscape.seeds import Seed, check_seed
from taskscape.select import Selection, TrialOptions, select
from taskscape.tasks import TaskSet

__all__ = ["LearnerJudge", "select_auto"]


@dataclass(frozen=True, eq=False)
class LearnerJudge:
    """Scores lists of training tasks by training a learner on each.

    The trials of one call are trained side by side, with seeds 0, 1, … in every call, so that all
    rules start from the same weights. A score is the mean accuracy over the validation tasks.
    """

    learner: Learner
    network: Architecture
    train: TaskSet
    """The training tasks, with queries, over the pool that the learner takes."""
    validation: TaskSet
    """The validation tasks, likewise."""
    epochs: int = 1
    batch_size: int = 4
    episodes: int = 1
    training: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of :class:`taskscape.meta.TrainConfig`, such as ``learning_rate``."""
    seed: int = 0

    def __call__(self, chosen: Sequence[Int[np.ndarray, "_"]]) -> Float[np.ndarray, "trials"]:
        """The score of each list of training tasks."""
        most = max(len(rows) for rows in chosen)
        trained = train_many(
            self.learner,
            self.network,
            [self.train[rows] for rows in chosen],
            TrainConfig.one_pass(most, self.batch_size, self.epochs, **self.training),
            seeds=[self.seed + trial for trial in range(len(chosen))],
            n_way=max(self.train.max_way, self.validation.max_way),
        )
        found = evaluate_many(
            self.learner, trained.state, self.validation, seed=self.seed, episodes=self.episodes
        )
        return np.array([float(e.accuracy.mean()) for e in found])


def select_auto(
    test: Any,
    train: Any,
    n: int,
    *,
    learner: Learner | str,
    network: Architecture,
    train_tasks: TaskSet,
    validation: Any,
    validation_tasks: TaskSet,
    trial: TrialOptions | None = None,
    epochs: int = 1,
    batch_size: int = 4,
    episodes: int = 1,
    training: Mapping[str, Any] | None = None,
    seed: Seed = 0,
    **options: Any,
) -> Selection:
    """Choose ``n`` training tasks by the rule that helps ``learner`` on validation tasks.

    ``test``, ``train`` and ``validation`` are embedded tasks or λ, as :func:`taskscape.select`
    takes them. ``train_tasks`` and ``validation_tasks`` are the same training and validation tasks
    with queries, over the pool that the learner takes; validation classes must be new to it.
    Every rule, and random choice, selects for the validation tasks at a small budget; the learner
    is trained on what was chosen and scored on the validation tasks' queries. The rule that beats
    random choice by more than the noise then selects for the test tasks; where none does, chance.

    What was tried is in ``settings["auto"]``. ``options`` are those of :func:`taskscape.select`.
    """
    seed = check_seed(seed)
    named = make_learner(learner) if isinstance(learner, str) else learner
    for what, tasks, embedded in (
        ("train", train_tasks, train),
        ("validation", validation_tasks, validation),
    ):
        lam = np.asarray(getattr(embedded, "lam", embedded))
        if lam.ndim < 2 or lam.shape[-2] != len(tasks):
            raise DataError(
                f"{what} has λ of shape {lam.shape} and {what}_tasks {len(tasks)} tasks; both must "
                "be the same tasks in the same order."
            )
        if tasks.n_query == 0:
            raise DataError(f"{what}_tasks have no queries; make them with n_query=15, say.")
    judge = LearnerJudge(
        named, network, train_tasks, validation_tasks,
        epochs, batch_size, episodes, training or {}, seed,
    )  # fmt: skip
    return select(
        test, train, n, "auto", seed=seed, validation=validation, judge=judge, trial=trial,
        **{"train_classes": train_tasks, **options},
    )  # fmt: skip
