"""Nearest tasks through FAISS, for catalogues beyond memory; needs the extra ``faiss``."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.compare.index import Neighbours
from taskscape.compare.means import weights_for
from taskscape.compare.posteriors import (
    Tasks,
    check_together,
    expected_log,
    log_beta,
    member_weights,
    read_chunks,
    read_lam,
    read_scales,
)
from taskscape.compare.search import rank_again
from taskscape.errors import DataError

__all__ = ["FaissIndex"]

_FLOAT32_STEP = 2.0**-23


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise DataError(
            "FaissIndex needs FAISS, which is not installed: pip install 'taskscape[faiss]'."
        ) from None
    return faiss


class FaissIndex:
    """A flat inner-product index over (λ, ln B(λ)), filled chunk by chunk, kept in a file.

    Search returns what :func:`nearest` returns for λ stored in float32, as catalogues store it:
    FAISS gives candidates in float32, float64 their order, and more candidates are asked for until
    nothing left out can be nearer. ``open`` maps the file instead of reading it.
    """

    def __init__(self, index: Any, members: int) -> None:
        self._index = index
        self.members = members
        self.L = index.d // members - 1

    @staticmethod
    def build(train: Tasks | Iterable[Tasks]) -> "FaissIndex":
        """An index of an array of λ, embedded tasks, or an iterable of chunks of them."""
        faiss = _faiss()
        index: FaissIndex | None = None
        for chunk in read_chunks(train, "train"):
            if index is None:
                width = chunk.shape[0] * (chunk.shape[2] + 1)
                index = FaissIndex(faiss.IndexFlatIP(width), chunk.shape[0])
            vectors = [np.c_[lam, log_beta(lam)] for lam in chunk]
            index._index.add(np.concatenate(vectors, axis=1).astype(np.float32))
        if index is None:
            raise DataError("train has no tasks.")
        return index

    @staticmethod
    def open(path: str | os.PathLike[str], members: int = 1) -> "FaissIndex":
        """An index that :meth:`save` wrote, mapped into memory."""
        faiss = _faiss()
        try:
            index = faiss.read_index(os.fspath(path), faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise DataError(f"{os.fspath(path)} is not a readable FAISS index: {error}") from error
        return FaissIndex(index, members)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file."""
        _faiss().write_index(self._index, os.fspath(path))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def nearest(self, test: Tasks, k: int = 10, *, scales: object = None) -> Neighbours:
        """The ``k`` tasks with the smallest KL from each test task; see :func:`nearest`."""
        a = read_lam(test, "test")
        check_together(a, np.ones((self.members, 1, self.L)))
        if not 1 <= k <= len(self):
            raise DataError(f"k={k} must lie between 1 and the {len(self)} tasks of the index.")
        if scales is None and self.members > 1:
            raise DataError(
                "an ensemble's distances are relative to each member's mean; pass "
                "scales=member_scales(test, train)."
            )
        weights = (
            weights_for(a, (), None)
            if scales is None
            else member_weights(read_scales(scales, self.members))
        )
        indices = np.empty((a.shape[1], k), dtype=np.int64)
        distances = np.empty((a.shape[1], k))
        waiting, keep = np.arange(a.shape[1]), min(2 * k + 16, len(self))
        while waiting.size:
            best, sure = self._candidates(a[:, waiting], k, keep, weights)
            done = sure | (keep == len(self))
            indices[waiting[done]], distances[waiting[done]] = (x[done] for x in best)
            waiting, keep = waiting[~done], min(4 * keep, len(self))
        return Neighbours(indices, distances)

    def _candidates(
        self,
        a: Float[np.ndarray, "members queries L"],
        k: int,
        keep: int,
        weights: Float[np.ndarray, "members"],
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """The k nearest of ``keep`` candidates, and whether nothing else can be nearer."""
        log_phi = expected_log(a) * weights[:, None, None]
        ones = np.ones((a.shape[1], 1))
        query = np.concatenate(
            [np.c_[g, -w * ones] for g, w in zip(log_phi, weights, strict=True)], axis=1
        ).astype(np.float32)
        scores, places = self._index.search(query, keep)
        used, at = np.unique(places, return_inverse=True)
        vectors = self._index.reconstruct_batch(used).astype(np.float64)
        lam = vectors.reshape(len(used), self.members, self.L + 1)[:, :, :-1]
        own, distances = rank_again(a, np.moveaxis(lam, 1, 0), at.reshape(places.shape), k, weights)
        constant = (a * log_phi).sum(axis=(0, 2)) - weights @ log_beta(a)
        size = np.abs(query) @ np.abs(vectors).max(axis=0)
        error = _FLOAT32_STEP * (query.shape[1] + 2) * (size + np.abs(constant))
        sure = distances[:, -1] < constant - scores[:, -1] - 2 * error
        return (used[own], distances), sure
