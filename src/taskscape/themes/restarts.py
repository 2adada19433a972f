"""Several fits from different starts, with a checkpoint to go on from."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.errors import CheckpointError, DataError
from taskscape.files import check_output
from taskscape.progress import progress_bar
from taskscape.storage import CHECKPOINT, load_checkpoint, save_checkpoint
from taskscape.tasks import TaskSet
from taskscape.themes.arrays import posterior_from_arrays, state_from_arrays, to_arrays
from taskscape.themes.config import FitConfig
from taskscape.themes.data import TaskSource
from taskscape.themes.loop import Fit, FitInfo
from taskscape.themes.prepare import PreparedSamples

__all__ = ["Callback", "Restarts", "check_no_checkpoint"]

Callback = Callable[[FitInfo, int], None]


class Restarts:
    """The restarts of one call of ``fit``, with their checkpoint."""

    def __init__(
        self,
        params: Mapping[str, Any],
        config: FitConfig,
        source: TaskSource,
        held_out: TaskSet,
        prepared: PreparedSamples,
        checkpoint: str | os.PathLike[str] | None,
        every: int,
        callback: Callback | None,
    ) -> None:
        self.config, self.source, self.held_out, self.prepared = config, source, held_out, prepared
        self.path = None if checkpoint is None else Path(checkpoint)
        self.every, self.callback = every, callback
        self.n = int(params["n_restarts"])
        self.identity = _identity(params, source, held_out)

    def run(self, resume: bool) -> list[Fit]:
        """Run all fits that a checkpoint does not hold already."""
        fits = self._read() if resume else []
        if not fits:
            fits = Fit.several(self.source, self.held_out, self.prepared, self.config, self.n)
        for i, fit in enumerate(fits):
            label = "fitting" if self.n == 1 else f"fitting {i + 1}/{self.n}"
            with progress_bar(label, fit.most_updates()) as advance:
                self._finish(fits, i, advance)
        return fits

    def _finish(self, fits: list[Fit], i: int, advance: Callable[[int], None]) -> None:
        try:
            for info in fits[i]:
                advance(1)
                if self.path is not None and (info.t % self.every == 0 or info.done):
                    self._write(fits)
                if self.callback is not None:
                    self.callback(info, i)
        except KeyboardInterrupt:
            if self.path is not None:
                self._write(fits)
            raise

    def _write(self, fits: list[Fit]) -> None:
        assert self.path is not None
        arrays: dict[str, np.ndarray] = {}
        for i, fit in enumerate(fits):
            arrays |= to_arrays(fit.state, f"fit{i}")
            if fit.posteriors is not None and not (fit.history and fit.history[-1].done):
                arrays |= to_arrays(fit.posteriors, f"posteriors{i}")
        header = {
            "what": "fit checkpoint",
            "identity": self.identity,
            "histories": [[asdict(info) for info in fit.history] for fit in fits],
        }
        save_checkpoint(self.path, arrays, header)

    def _read(self) -> list[Fit]:
        if self.path is None or not self.path.exists():
            return []
        arrays, header = load_checkpoint(self.path)
        if header.get("identity") != self.identity:
            raise CheckpointError(
                f"{self.path} belongs to a fit with other settings, data or tasks. Use the same "
                "ones, or another checkpoint file."
            )
        try:
            return [self._fit(arrays, i, history) for i, history in enumerate(header["histories"])]
        except DataError as error:
            raise CheckpointError(
                f"{self.path} is not a readable checkpoint ({error}) Delete it and start anew."
            ) from error

    def _fit(self, arrays: Mapping[str, np.ndarray], i: int, history: list[dict[str, Any]]) -> Fit:
        """Restart ``i`` as a checkpoint holds it."""
        return Fit(
            self.source,
            self.held_out,
            self.prepared,
            self.config,
            state_from_arrays(arrays, f"fit{i}", self.config.covariance),
            [FitInfo(**{**info, "usage": tuple(info["usage"])}) for info in history],
            posterior_from_arrays(arrays, f"posteriors{i}"),
        )


def check_no_checkpoint(path: str | os.PathLike[str]) -> None:
    """Raise an error if a fit that starts anew would replace a checkpoint, or anything else."""
    check_output(path, CHECKPOINT)
    if Path(path).exists() and Path(path).stat().st_size:
        raise DataError(
            f"{os.fspath(path)} is the checkpoint of a fit that did not finish. Go on from it with "
            "resume=True (on the command line: --resume), or delete it to start anew."
        )


def _identity(params: Mapping[str, Any], source: TaskSource, held_out: TaskSet) -> str:
    """A hash of the settings, the pool and the tasks that a checkpoint belongs to."""
    h = hashlib.blake2b(digest_size=16)
    h.update(json.dumps(dict(params), default=str, sort_keys=True).encode())
    h.update(source.pool.fingerprint.encode())
    h.update(f"{source.n_tasks} {source.tasks.max_way} {source.tasks.max_shot}".encode())
    tasks = source.tasks if isinstance(source.tasks, TaskSet) else source.batch(0, 256)
    for part in (tasks, held_out):
        for values in (part.classes, part.keys, part.n_shot, part.support):
            h.update(b"-" if values is None else np.ascontiguousarray(values).tobytes())
    return h.hexdigest()
