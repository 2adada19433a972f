"""Meta-learners: five algorithms behind one contract, one training loop, one evaluation."""

from taskscape.meta.abml import ABML
from taskscape.meta.bmaml import BMAML
from taskscape.meta.episodes import tasks_from_episodes
from taskscape.meta.evaluation import (
    Evaluation,
    evaluate,
    evaluate_many,
    weight_spread,
)
from taskscape.meta.learner import (
    Bayesian,
    Episode,
    Learner,
    LearnerEntry,
    Shots,
    nll,
)
from taskscape.meta.learners import LEARNERS, find_learner, label_of, make_learner
from taskscape.meta.maml import MAML
from taskscape.meta.networks import Architecture, Network, architecture, conv4, mlp
from taskscape.meta.protonet import ProtoNet
from taskscape.meta.training import (
    TRAINED,
    TrainConfig,
    Trained,
    TrainState,
    begin,
    learner_and_training,
    train,
    train_many,
)
from taskscape.meta.vampire import VAMPIRE

__all__ = [
    "ABML",
    "BMAML",
    "LEARNERS",
    "MAML",
    "TRAINED",
    "VAMPIRE",
    "Architecture",
    "Bayesian",
    "Episode",
    "Evaluation",
    "Learner",
    "LearnerEntry",
    "Network",
    "ProtoNet",
    "Shots",
    "TrainConfig",
    "TrainState",
    "Trained",
    "architecture",
    "begin",
    "conv4",
    "evaluate",
    "evaluate_many",
    "find_learner",
    "label_of",
    "learner_and_training",
    "make_learner",
    "mlp",
    "nll",
    "tasks_from_episodes",
    "train",
    "train_many",
    "weight_spread",
]
