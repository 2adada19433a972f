"""Selection by the rule that helps a learner, tried by training it on validation tasks."""

import numpy as np
import pytest

from meta_cases import DIMS, toy_pool, toy_tasks
from taskscape.errors import DataError
from taskscape.meta import ProtoNet, mlp
from taskscape.select import LearnerScorer, TrialOptions, select

POOL = toy_pool()
TRAIN, VAL = (toy_tasks(POOL, split, n, n_way=3) for split, n in (("train", 40), ("val", 10)))
RNG = np.random.default_rng(0)
LAM = {n: RNG.gamma(1, 2, (n, 3)) + 0.1 for n in (40, 10, 6)}


def test_a_scorer_trains_on_what_was_chosen():
    scorer = LearnerScorer(
        ProtoNet(), mlp(DIMS, (8,)), TRAIN, VAL, training={"learning_rate": 0.01}
    )
    scores = scorer([np.arange(8), np.arange(8, 16), np.arange(8)])
    assert scores.shape == (3,)
    assert ((scores > 0.5) & (scores <= 1)).all()
    np.testing.assert_array_equal(scores, scorer([np.arange(8), np.arange(8, 16), np.arange(8)]))


def test_selection_by_a_scorer_keeps_a_record():
    chosen = select(
        LAM[6], LAM[40], 12, "auto", validation=LAM[10],
        scorer=LearnerScorer("protonet", mlp(DIMS, (8,)), TRAIN, VAL),
        trial=TrialOptions(rules=("nearest", "classes"), trials=3, n=8),
    )  # fmt: skip
    assert len(chosen) == 12
    output = chosen.settings["auto"]
    assert [t["rule"] for t in output["tried"]] == ["random", "nearest", "classes"]
    assert chosen.rule in ("random", "nearest", "classes")
    assert all(0 <= s <= 1 for t in output["tried"] for s in t["scores"])


def test_tasks_and_embeddings_must_belong_together():
    network = mlp(DIMS, (8,))
    with pytest.raises(DataError, match=r"the scorer has 9 validation tasks, .* of 10"):
        select(
            LAM[6], LAM[40], 5, "auto", validation=LAM[10],
            scorer=LearnerScorer("protonet", network, TRAIN, VAL[:9]),
        )  # fmt: skip
    with pytest.raises(DataError, match=r"train tasks .* no queries; .*n_query"):
        LearnerScorer("protonet", network, TRAIN.with_samples(3), VAL)
