"""What all models of tasks have in common: tasks in, posteriors out, folders and catalogues."""

import hashlib
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from taskscape.arguments import Seed, check_kind, check_whole, public
from taskscape.distributed.engine import map_work
from taskscape.embeddings import Catalogue, Embeddings, Factor, Shard
from taskscape.embeddings.catalogue import new_name
from taskscape.errors import DataError
from taskscape.io.arrays import load_arrays, save_arrays
from taskscape.io.files import as_path
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, TaskStream
from taskscape.themes.prepare import Preparation, PrepareConfig, PreparedSamples

Tasks: TypeAlias = TaskSet | TaskStream
_SHARD = 1 << 18
MODEL = "task model"
"""What a folder holds that :meth:`TaskModel.save` wrote."""
_PLAIN = ("random_state", "elbo_reference", "n_features_in", "pool_name", "pool_fingerprint")


_A_FEW = 0.05
"""Of the tasks: so many lie as far below by chance."""


class HealthWarning(UserWarning):
    """The fit works, but something about the representation needs attention."""


class OutlierTasksWarning(UserWarning):
    """Tasks that the model explains far worse than new classes usually are."""


@contextmanager
def without_advice() -> Iterator[None]:
    """Silence the warnings about health and outliers, where results keep the same facts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        warnings.simplefilter("ignore", OutlierTasksWarning)
        yield


class TaskModel(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A model that turns tasks into posteriors; scikit-learn's ``fit``, ``transform``, ``score``.

    A subclass says how it is fitted, what the posterior of tasks is, what identifies what it has
    learned, and what of it is stored.
    """

    preparation_: Preparation
    factors_: tuple[Factor, ...]
    """What the posterior of a task is a product of."""
    elbo_reference_: tuple[float, float]
    """How well tasks of new classes are usually explained, and the spread, in nats per sample."""
    far_below: ClassVar[float] = 15.0
    """Spreads below that at which a task counts as explained far worse."""
    random_state_: int
    n_features_in_: int
    pool_name_: str
    pool_fingerprint_: str

    @abstractmethod
    def fit(self, tasks: Any, y: None = None) -> "TaskModel":
        """Learn from tasks."""

    @abstractmethod
    def check_settings(self) -> None:
        """Raise an error unless the settings can work, whatever the tasks."""

    @abstractmethod
    def _embed(self, tasks: TaskSet, prepared: PreparedSamples) -> Embeddings:
        """The posteriors of checked tasks."""

    @abstractmethod
    def _learned(self) -> list[Any]:
        """The arrays that were learned besides the preparation."""

    @abstractmethod
    def _own_to_disk(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What to store of it besides what all models have: arrays, and plain values."""

    @abstractmethod
    def _own_from_disk(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        """Take what :meth:`_own_to_disk` gave."""

    @property
    def fingerprint_(self) -> str:
        """Identifies the fitted model: distances mean something within one model only."""
        check_is_fitted(self, "factors_")
        h, prepared = hashlib.blake2b(digest_size=16), self.preparation_
        for part in (*self._learned(), prepared.mean, prepared.components):
            h.update(b"" if part is None else np.asarray(part).tobytes())
        return h.hexdigest()

    def _learned_from(self, pool: ClassPool, seed: int) -> None:
        """Remember what the model was fitted on."""
        self.random_state_ = seed
        self.n_features_in_ = int(np.prod(pool.sample_shape))
        self.pool_fingerprint_, self.pool_name_ = pool.fingerprint, pool.name

    def embed(self, tasks: TaskSet) -> Embeddings:
        """The posterior of each task, with how well the model explains it."""
        check_is_fitted(self, "factors_")
        check_kind(tasks, TaskSet, "tasks", "Make one with sample_tasks.")
        self._check_pool(tasks.pool)
        if len(tasks) == 0:
            raise DataError("there are no tasks to embed.")
        prepared = PreparedSamples(tasks.pool, self.preparation_, tasks.class_ids)
        embedded = self._embed(tasks, prepared)
        self.warn_of_outliers(embedded)
        return embedded

    def transform(self, tasks: TaskSet) -> Float[np.ndarray, "tasks columns"]:
        """The numbers of the posterior of each task, all factors side by side."""
        return self.embed(tasks).values

    def get_feature_names_out(self, input_features: None = None) -> np.ndarray:
        """The names of the columns of :meth:`transform`, for pipelines and tables."""
        check_is_fitted(self, "factors_")
        names = [f"{f.name}_{i}" for f in self.factors_ for i in range(f.size)]
        return np.array(names, dtype=object)

    def score(self, tasks: TaskSet, y: None = None) -> float:
        """How well the tasks are explained, in nats per sample."""
        explained = self.embed(tasks).elbo
        n_samples = np.concatenate([b.support_mask.sum(axis=(1, 2)) for b in tasks.batches(4096)])
        return float(np.average(explained, weights=n_samples))

    def _check_pool(self, pool: ClassPool) -> None:
        dims = int(np.prod(pool.sample_shape))
        if dims != self.n_features_in_:
            raise DataError(
                f"samples of {pool!r} have {dims} dimensions; the model was fitted on "
                f"{self.n_features_in_}. Use the same kind of data, size and encoder."
            )

    def outliers(self, embedded: Embeddings) -> Bool[np.ndarray, "tasks"]:
        """Which embedded tasks the model explains far worse than new classes usually are."""
        middle, spread = self.elbo_reference_
        return np.asarray(embedded.elbo < middle - self.far_below * spread)

    def warn_of_outliers(self, embedded: Embeddings, called: str = "tasks") -> None:
        """Warn of embedded tasks, called so, that the model explains far worse than is usual."""
        middle, spread = self.elbo_reference_
        far = int(self.outliers(embedded).sum())
        if far > _A_FEW * len(embedded):
            warnings.warn(
                f"{far:,} of {len(embedded):,} {called} are explained far worse than new classes "
                f"usually are (nats per sample: down to {embedded.elbo.min():.2f}, usually "
                f"{middle:.2f} ± {spread:.2f}). They may look near while the model knows "
                "nothing like them: trust their distances less.",
                OutlierTasksWarning,
                stacklevel=3,
            )

    # -- disk -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder: arrays (safetensors) and a header (JSON)."""
        arrays, header = self.to_disk()
        save_arrays(path, arrays, {"what": MODEL, **header})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Any:
        """Read a model written by :meth:`save`, of whichever class it is."""
        arrays, header = load_arrays(path, MODEL)
        try:
            return TaskModel.from_disk(arrays, header)
        except KeyError as error:
            raise DataError(
                f"{os.fspath(path)} cannot be read: {error} is missing: the model is damaged."
            ) from error
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise DataError(f"{os.fspath(path)} cannot be read: {error}") from error

    def to_disk(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What to store of a fitted model: arrays, and a header of plain values."""
        check_is_fitted(self, "factors_")
        arrays, own = self._own_to_disk()
        arrays["preparation.mean"] = self.preparation_.mean
        if self.preparation_.components is not None:
            arrays["preparation.components"] = self.preparation_.components
        params = self.get_params(deep=False)
        params = {k: v for k, v in params.items() if not isinstance(v, TaskModel)}
        if isinstance(params["prepare"], PrepareConfig):
            params["prepare"] = asdict(params["prepare"])
        return arrays, {
            "class": type(self).__name__,
            "params": params,
            "preparation": self.preparation_.settings(),
            "factors": [asdict(f) for f in self.factors_],
            **{name: getattr(self, f"{name}_") for name in _PLAIN},
            **own,
        }

    @staticmethod
    def from_disk(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Any:
        """The model that :meth:`to_disk` took apart."""
        params = dict(header["params"])
        if isinstance(params["prepare"], dict):
            params["prepare"] = PrepareConfig(**params["prepare"])
        kinds = {kind.__name__: kind for kind in TaskModel.__subclasses__()}
        model: Any = kinds[header["class"]](**params)
        settings = dict(header["preparation"])
        explained = settings.pop("explained")
        model.preparation_ = Preparation(
            PrepareConfig(**settings),
            arrays["preparation.mean"],
            arrays.get("preparation.components"),
            explained,
        )
        for name in _PLAIN:
            value = header[name]
            setattr(model, f"{name}_", tuple(value) if isinstance(value, list) else value)
        model._own_from_disk(arrays, header)
        model.factors_ = tuple(Factor(**f) for f in header["factors"])
        return model


def usual(parts: Sequence[Float[np.ndarray, "_"]]) -> tuple[float, float]:
    """How well tasks are usually explained, and the spread: the least of these, and the widest."""
    middles = [float(np.median(part)) for part in parts]
    spreads = [
        1.4826 * float(np.median(np.abs(part - middle)))
        for part, middle in zip(parts, middles, strict=True)
    ]
    return min(middles), max(*spreads, 1e-3)


def seed_of(random_state: Seed | None) -> int:
    """The seed that was asked for, or a drawn one."""
    drawn = int(np.random.SeedSequence().generate_state(1)[0])
    return drawn if random_state is None else int(random_state)


def as_tasks(tasks: Tasks | Iterable[TaskSet]) -> Tasks:
    """Tasks to learn from, of one task set, a stream, or several task sets."""
    if isinstance(tasks, TaskSet | TaskStream):
        return tasks
    listed = isinstance(tasks, Iterable) and not isinstance(tasks, np.ndarray)
    sets: list[Any] = list(tasks) if listed else [tasks]
    for each in sets:
        if not isinstance(each, TaskSet):
            raise DataError(
                f"tasks must be a TaskSet, a TaskStream or several TaskSets, not "
                f"{type(each).__name__}. Make them with sample_tasks."
            )
    return TaskSet.concatenate(sets)


# -- into a catalogue ---------------------------------------------------------------------------


@public
def embed_into(
    path: str | os.PathLike[str],
    model: TaskModel,
    tasks: TaskSet | TaskStream,
    *,
    shard_size: int = _SHARD,
) -> Catalogue:
    """Embed tasks, of a set or a stream, and add them to the catalogue at ``path``.

    Every ``shard_size`` tasks are one piece of work (:mod:`taskscape.distributed.engine`) that
    reads what its tasks need and writes a file of its own. All become part of the catalogue at
    once, when all are there. Interrupted, the same call resumes: files that were finished are
    kept. Repeated, it adds nothing.
    """
    folder, fingerprint = as_path(path), model.fingerprint_  # an error where it is not fitted
    n_tasks = tasks.n_tasks if isinstance(tasks, TaskStream) else len(tasks)
    if n_tasks is None:
        raise DataError("a stream without end fills no catalogue; give it n_tasks.")
    if not n_tasks:
        raise DataError("there are no tasks to embed.")
    check_whole(shard_size, "shard_size", 1)
    columns = sum(f.size for f in model.factors_)
    nothing = Embeddings.of(
        tasks[0:0], np.zeros((0, columns), np.float32), model.factors_, model=fingerprint
    )
    Catalogue.check_can_add(folder, nothing.header)
    folder.mkdir(parents=True, exist_ok=True)
    job = _name_of_job(model, tasks, n_tasks, shard_size)
    pieces = [
        (begin, min(begin + shard_size, n_tasks), folder / new_name(f"{job}-{i:06d}"))
        for i, begin in enumerate(range(0, n_tasks, shard_size))
    ]
    work = map_work(_embed_piece, pieces, shared=(model, tasks), description="embedding tasks")
    return Catalogue.add_shards(folder, list(work))


def _embed_piece(
    piece: tuple[int, int, Path], model: TaskModel, tasks: TaskSet | TaskStream
) -> Shard:
    """Embed the tasks from one number up to another and write them, unless that is done."""
    begin, end, file = piece
    if file.exists():  # it was written atomically, so it is whole
        return Shard.of(file)
    embedded = model.embed(tasks[begin:end])
    return Shard.write(file, replace(embedded, ids=np.arange(begin, end)))


def _name_of_job(
    model: TaskModel, tasks: TaskSet | TaskStream, n_tasks: int, shard_size: int
) -> str:
    """The same for the same tasks and model, by which an interrupted job is known.

    What others add meanwhile changes nothing of it; a catalogue that has these tasks already stays
    as it is.
    """
    h = hashlib.blake2b(digest_size=6)
    h.update(repr((model.fingerprint_, tasks.pool.fingerprint, n_tasks, shard_size)).encode())
    ends = [tasks[:1000], tasks[max(0, n_tasks - 1000) : n_tasks]]  # a stream follows from its seed
    for part in [tasks] if isinstance(tasks, TaskSet) else ends:
        part.add_to_hash(h)
    return h.hexdigest()
