"""TaskThemes: what tasks are alike, behind one scikit-learn-style estimator."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from sklearn.base import clone

from taskscape.arguments import Seed, check_kind, check_seed, public
from taskscape.embeddings import Embeddings
from taskscape.embeddings.factors import TASK_THEMES, Factor
from taskscape.errors import DataError
from taskscape.io.arrays import arrays_of
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.config import FitConfig
from taskscape.themes.image_themes import (
    WEIGHTS,
    ImageThemeSettings,
    embed_in_themes,
    explained_without,
    image_themes_from,
    learn_image_themes,
)
from taskscape.themes.prepare import PrepareConfig, PreparedSamples, check_prepare, preparation_for
from taskscape.themes.task_model import TaskModel, Tasks, as_tasks, seed_of, usual, without_advice

_FROM_STREAM = 4096
_BESIDE = "co_clustering."


@public
@dataclass(eq=False, repr=False)
class TaskThemes(TaskModel):
    """Where tasks lie among each other: a product of posteriors, learned from a pool of tasks.

    The posterior of a task is a Dirichlet over ``image_themes``, clusters of samples with a
    likelihood tempered by ``temperature``, times a Gaussian position: the mean of its samples in
    the space of a kernel (``bandwidth``, in units of the median squared distance between samples)
    and as they are. The distance between two tasks is KL of the product, each part divided by its
    mean between training tasks and weighed: 1 is how far two training tasks are on average. Tasks
    may have any number of classes and samples.

    ``weights`` are those of the parts (``image_themes``, ``kernel``, ``mean``, ``task_themes``);
    ``"auto"`` takes those that were chosen for images or for features. ``prepare``: ``"auto"``
    chooses from the data, None takes samples as they are, or a
    :class:`taskscape.themes.PrepareConfig`. With a ``co_clustering``, the paper's model
    (:meth:`paper`), the Dirichlet over its task-themes is a third factor; by itself it weighs
    nothing, since it did not help to find tasks of one source. ``random_state`` is the seed of the
    clusters; with None one is drawn, and kept as ``random_state_``. ``origin`` says in words where
    the settings come from (:func:`taskscape.similarity.choose_settings` fills it in); it has no
    effect.

    After ``fit``: ``themes_``, ``factors_``, ``co_clustering_``, ``preparation_``,
    ``random_state_``, ``n_features_in_``.
    """

    far_below: ClassVar[float] = 4.0

    image_themes: int = 256
    _: KW_ONLY
    temperature: float = 3.0
    bandwidth: float = 0.4
    weights: Mapping[str, float] | Literal["auto"] = "auto"
    prepare: PrepareConfig | Literal["auto"] | None = "auto"
    co_clustering: CoClustering | None = None
    random_state: Seed | None = 0
    origin: str = ""

    @staticmethod
    def paper(
        task_themes: int = FitConfig.task_themes,
        image_themes: int = FitConfig.image_themes,
        **settings: Any,
    ) -> CoClustering:
        """The paper's model and nothing else, of the paper's size; distances are KL in nats.

        ``settings`` are those of :class:`taskscape.themes.CoClustering`.
        """
        return CoClustering(task_themes, image_themes, **settings)

    def fit(
        self, tasks: Tasks | Iterable[TaskSet], y: None = None, **co_clustering: Any
    ) -> "TaskThemes":
        """Learn from the classes of tasks, all of their samples.

        Further arguments are those of :meth:`CoClustering.fit`, where there is one.
        """
        self.check_settings()
        if self.co_clustering is None and co_clustering:
            raise DataError(f"{', '.join(co_clustering)} has no effect without co_clustering.")
        tasks = as_tasks(tasks)
        first = tasks if isinstance(tasks, TaskSet) else tasks[0:_FROM_STREAM]
        if len(first) == 0:
            raise DataError("there are no tasks to fit on.")
        settings, seed = self._settings(tasks.pool.is_images), seed_of(self.random_state)
        with progress_bar("fitting image-themes", 2) as advance:
            self.preparation_ = preparation_for(self.prepare, tasks.pool, tasks.class_ids)
            prepared = PreparedSamples(first.pool, self.preparation_, tasks.class_ids, keep=False)
            advance()
            self.themes_, factors = learn_image_themes(first, prepared, settings, seed)
            advance()
        self.elbo_reference_ = usual([explained_without(self.themes_, first, prepared)])
        self.co_clustering_: CoClustering | None = None
        if self.co_clustering is not None:
            share = settings.share(TASK_THEMES)
            with nullcontext() if share else without_advice():  # what is no part of distances
                self.co_clustering_ = clone(self.co_clustering).fit(tasks, **co_clustering)
            factors += tuple(
                replace(f, share=share * f.share) for f in self.co_clustering_.factors_
            )
        self.factors_: tuple[Factor, ...] = factors
        self._learned_from(tasks.pool, seed)
        return self

    def check_settings(self) -> None:
        """Raise an error unless the settings can work, whatever the tasks."""
        check_prepare(self.prepare)
        check_kind(self.origin, str, "origin", "Say in words where the settings are from.")
        if self.random_state is not None:
            check_seed(self.random_state, "random_state")
        if self.co_clustering is not None:
            check_kind(self.co_clustering, CoClustering, "co_clustering", "See TaskThemes.paper.")
            self.co_clustering.check_settings()
        self._settings(images=True)

    def _settings(self, images: bool) -> ImageThemeSettings:
        """The settings for images or for features."""
        weights = self.weights
        if not isinstance(weights, Mapping):
            if not isinstance(weights, str) or weights != "auto":
                raise DataError(f"weights={weights!r} must be 'auto', or name parts and weights.")
            weights = WEIGHTS["images" if images else "features"]
        return ImageThemeSettings(self.image_themes, self.temperature, self.bandwidth, weights)

    def _embed(self, tasks: TaskSet, prepared: PreparedSamples) -> Embeddings:
        own = embed_in_themes(self.themes_, tasks, prepared)
        values, logs, delta = [own.values], [own.logs], None
        if self.co_clustering_ is not None:
            others = PreparedSamples(tasks.pool, self.co_clustering_.preparation_, tasks.class_ids)
            beside = self.co_clustering_._embed(tasks, others)
            values.append(beside.values)
            logs.append(beside.logs)
            delta = beside.header.delta
        return Embeddings.of(
            tasks, np.concatenate(values, axis=1), self.factors_, model=self.fingerprint_,
            logs=np.concatenate(logs, axis=1), elbo=own.elbo, delta=delta,
        )  # fmt: skip

    def _learned(self) -> list[Any]:
        beside = None if self.co_clustering_ is None else self.co_clustering_.fingerprint_.encode()
        return [*jax.tree.leaves(self.themes_), beside]

    def _own_to_disk(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, beside = arrays_of(self.themes_, "themes"), None
        if self.co_clustering_ is not None:
            own, beside = self.co_clustering_.to_disk()
            arrays |= {_BESIDE + name: values for name, values in own.items()}
        return arrays, {"co_clustering": beside}

    def _own_from_disk(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self.themes_ = image_themes_from(arrays, "themes")
        self.co_clustering_ = None
        if header["co_clustering"] is not None:
            own = {k.removeprefix(_BESIDE): v for k, v in arrays.items() if k.startswith(_BESIDE)}
            self.co_clustering_ = TaskModel.from_disk(own, header["co_clustering"])
            self.co_clustering = clone(self.co_clustering_)
