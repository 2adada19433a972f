"""The registry of learners: the only list of them. A learner is imported when it is first used."""

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from taskscape.settings import changed

if TYPE_CHECKING:
    import taskscape.meta.learner

Setting: TypeAlias = int | float | str | bool


@dataclass(frozen=True)
class LearnerEntry:
    """An entry of ``LEARNERS``."""

    name: str
    """What commands, settings and files call it."""
    place: str
    """Where its class is: ``module:class``."""
    meaning: str
    """What it is, in a few words."""
    settings: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    """Where to start from, by kind of sample: ``features`` of unit length, their principal
    ``components``, ``images``. Its own settings, those of :class:`TrainConfig`, and the ``scale``
    of the network's inputs."""
    grid: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """What is worth trying when it is tuned on validation classes, for the same settings."""

    @property
    def kind(self) -> type[Any]:
        """Its class, a frozen dataclass of settings with the methods of :class:`Learner`."""
        return pkgutil.resolve_name(self.place)

    @property
    def label(self) -> str:
        """What results and figures call it."""
        return self.place.partition(":")[2]

    def start(self, samples: str = "features") -> Mapping[str, Setting]:
        """The settings for a kind of sample; what was not tried on components is as on features.

        What a caller asks for takes precedence over these, and these over the defaults of the class
        and of :class:`TrainConfig`.
        """
        features = {} if samples == "images" else self.settings.get("features", {})
        return self.settings.get(samples, features)


_GAUSSIAN_SETTINGS = {"features": {"scale": 8.0, "learning_rate": 0.001}}
_GAUSSIAN_GRID = {
    "inner_rate": (0.2, 0.5),
    "inner_steps": (10,),
    "kl_weight": (1e-4, 1e-3, 1e-2, 1.0),
    "initial_std": (0.02, 0.1),
}
# on features, chosen on validation classes of the letters; on components and images, the best of a
# few tried on validation classes of Omniglot; those of the Gaussian learners and BMAML untuned
_ALL = (
    LearnerEntry(
        "protonet",
        "taskscape.meta.protonet:ProtoNet",
        "nearest class mean in a learned embedding",
        settings={
            "features": {"scale": 2.0, "learning_rate": 0.003},
            "images": {"learning_rate": 1e-3},
        },
        grid={"scale": (1.0, 2.0, 4.0), "learning_rate": (3e-4, 1e-3)},
    ),
    LearnerEntry(
        "maml",
        "taskscape.meta.maml:MAML",
        "an initialisation for a few gradient steps",
        settings={
            "features": {"scale": 4.0, "learning_rate": 0.003, "inner_rate": 0.5},
            "components": {
                "scale": 8.0, "inner_rate": 0.2, "inner_steps": 10, "learning_rate": 3e-3,
            },
            "images": {"inner_rate": 0.4, "inner_steps": 3, "learning_rate": 1e-3},
        },
        grid={
            "inner_rate": (0.1, 0.2, 0.5),
            "inner_steps": (10, 20),
            "learning_rate": (3e-4, 1e-3),
        },
    ),
    LearnerEntry(
        "abml",
        "taskscape.meta.gaussian_weights:ABML",
        "a Gaussian over the weights with a hyper-prior; the loss is the bound on the whole task",
        settings=_GAUSSIAN_SETTINGS,
        grid=_GAUSSIAN_GRID,
    ),
    LearnerEntry(
        "bmaml",
        "taskscape.meta.bmaml:BMAML",
        "particles moved by Stein variational gradient descent",
        settings={"features": {"scale": 8.0, "learning_rate": 0.001}},
        grid={"inner_rate": (0.5, 1.0, 2.0), "inner_steps": (10,), "learning_rate": (3e-4, 1e-3)},
    ),
    LearnerEntry(
        "vampire",
        "taskscape.meta.gaussian_weights:VAMPIRE",
        "a Gaussian over the weights of each task; the loss is on the queries",
        settings=_GAUSSIAN_SETTINGS,
        grid=_GAUSSIAN_GRID,
    ),
)  # fmt: skip
LEARNERS: Mapping[str, LearnerEntry] = MappingProxyType({entry.name: entry for entry in _ALL})
"""Every learner by name; add a new one to it."""


def find_learner(name: str) -> LearnerEntry:
    """The entry of the learner of that name."""
    from taskscape.arguments import check_choice  # imports NumPy, which help texts do not need

    return LEARNERS[check_choice(name, "learner", LEARNERS)]


def make_learner(name: str, **settings: Any) -> "taskscape.meta.learner.Learner":
    """A learner by name; other settings than its defaults can be given.

    >>> make_learner("maml", inner_steps=3)
    MAML(inner_rate=0.2, inner_steps=3, first_order=False)
    """
    return changed(find_learner(name).kind(), settings, where=f"{name}.")


def label_of(name: str) -> str:
    """What results call a learner, or a variant of one that a study names.

    >>> label_of("protonet"), label_of("maml-untuned"), label_of("theirs")
    ('ProtoNet', 'MAML, untuned', 'theirs')
    """
    base, _, variant = name.partition("-")
    if base not in LEARNERS:
        return name
    return ", ".join([LEARNERS[base].label, *([variant] if variant else [])])
