"""Batches of tasks as arrays: rows of the pool with masks, or the samples themselves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from taskscape.pools import ClassPool

IGNORED_TARGET = -100
"""Target of padded samples in the flat layout: what PyTorch's cross-entropy ignores by default."""


@dataclass(frozen=True)
class PoolRows:
    """Rows of ``pool.samples`` for a batch of tasks.

    Where a mask is False there is no class or no sample; the row there is 0, which can be gathered
    but must not be used. ``classes`` has -1 there.
    """

    classes: Int[np.ndarray, "tasks way"]
    class_mask: Bool[np.ndarray, "tasks way"]
    support: Int[np.ndarray, "tasks way shot"]
    support_mask: Bool[np.ndarray, "tasks way shot"]
    query: Int[np.ndarray, "tasks way asked"]
    query_mask: Bool[np.ndarray, "tasks way asked"]

    def __len__(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class Episodes(PoolRows):
    """Support and query samples of a batch of tasks, laid out ``(task, class, sample, …)``.

    The label of a sample is its position on the class axis. Padded samples are zero.
    """

    support: Float[np.ndarray, "tasks way shot *shape"]
    query: Float[np.ndarray, "tasks way asked *shape"]

    @staticmethod
    def gather(pool: ClassPool, batch: PoolRows) -> "Episodes":
        """Fetch the samples of a batch."""
        support = _gather(pool, batch.support, batch.support_mask)
        query = _gather(pool, batch.query, batch.query_mask)
        return Episodes(**{**vars(batch), "support": support, "query": query})

    def flat(self) -> "FlatEpisodes":
        """The layout of learn2learn and torchmeta: ``(task, class * sample, …)`` with targets."""
        parts = {"support": self.support, "query": self.query}
        for name, mask in (("support", self.support_mask), ("query", self.query_mask)):
            labels = np.arange(mask.shape[1])[None, :, None]
            parts[f"{name}_targets"] = np.where(mask, labels, IGNORED_TARGET)
        flat = {
            n: p.reshape(len(p), p.shape[1] * p.shape[2], *p.shape[3:]) for n, p in parts.items()
        }
        return FlatEpisodes(self.classes, **flat)


@dataclass(frozen=True)
class FlatEpisodes:
    """Support and query samples with integer targets; padded samples have target -100."""

    classes: Int[np.ndarray, "tasks way"]
    support: Float[np.ndarray, "tasks supports *shape"]
    support_targets: Int[np.ndarray, "tasks supports"]
    query: Float[np.ndarray, "tasks queries *shape"]
    query_targets: Int[np.ndarray, "tasks queries"]

    def __len__(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class BatchSampler:
    """The rows of one task after another, as ``DataLoader(dataset, batch_sampler=…)`` takes them.

    See :meth:`TaskSet.batch_sampler`. Each time it is gone through it gives the same.
    """

    n_tasks: int
    repeat: int
    seed: int | None
    rows: Callable[[int, int], Int[np.ndarray, "n"]]
    """Of a pass and a task: the rows of its samples."""

    def __len__(self) -> int:
        return self.repeat * self.n_tasks

    def __iter__(self) -> Iterator[list[int]]:
        for turn in range(self.repeat):
            order = np.arange(self.n_tasks)
            if self.seed is not None:
                order = np.random.default_rng([self.seed, turn]).permutation(self.n_tasks)
            for task in order:
                yield self.rows(turn, int(task)).tolist()


def _gather(
    pool: ClassPool, rows: Int[np.ndarray, "tasks way n"], mask: Bool[np.ndarray, "tasks way n"]
) -> Float[np.ndarray, "tasks way n *shape"]:
    taken = pool.take(rows)
    if not mask.all():
        taken[~mask] = 0
    return taken
