"""Meta-learners: five algorithms behind one contract, one training loop, one evaluation."""

from taskscape.meta.abml import ABML
from taskscape.meta.bmaml import BMAML
from taskscape.meta.episodes import tasks_from_episodes
from taskscape.meta.evaluation import Evaluation, evaluate, evaluate_many
from taskscape.meta.learner import Episode, Learner, Shots, nll
from taskscape.meta.maml import MAML
from taskscape.meta.networks import Architecture, Network, architecture, conv4, mlp
from taskscape.meta.protonet import ProtoNet
from taskscape.meta.spread import Bayesian, weight_spread
from taskscape.meta.stored import LEARNERS, make_learner, restore, to_store
from taskscape.meta.training import train, train_many
from taskscape.meta.trials import TrainConfig, Trained, TrainState, begin
from taskscape.meta.vampire import VAMPIRE

__all__ = [
    "ABML",
    "BMAML",
    "LEARNERS",
    "MAML",
    "VAMPIRE",
    "Architecture",
    "Bayesian",
    "Episode",
    "Evaluation",
    "Learner",
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
    "make_learner",
    "mlp",
    "nll",
    "restore",
    "tasks_from_episodes",
    "to_store",
    "train",
    "train_many",
    "weight_spread",
]
