"""Stages that are kept: each writes its own folder atomically, known by a hash of its inputs."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from taskscape import __version__
from taskscape.distributed.engine import map_work, on_workers
from taskscape.errors import DataError
from taskscape.forecast import ForecastWarning
from taskscape.io.files import atomic_folder, sha256_of
from taskscape.io.values import write_json
from taskscape.progress import reported_to
from taskscape.themes.task_model import HealthWarning, OutlierTasksWarning

T = TypeVar("T")
_FORMAT = 4
"""Raised when stages of before must not be used again: their numbers would be other ones now."""
_NOTE = "stage.json"
_NOTED = {"hash", "seconds", "warnings", "sha256"}
_RESUME = "Run the study there again with --resume"
_KEPT = (HealthWarning, OutlierTasksWarning, ForecastWarning)
"""Warnings that are kept with the results instead of printed."""


class Listener:
    """Hears how a study gets on. This base class ignores it; override what you want to show."""

    def plan(self, stages: list[tuple[str, str]], notes: tuple[str, ...]) -> None:
        """All stages, by name and in words, and what had to be decided before them."""

    def begin(self, stage: str) -> None:
        """A stage begins."""

    def advance(self, done: float, what: str) -> None:
        """The part of the current stage that is done, and what it is doing."""

    def end(self, stage: str, seconds: float, reused: bool) -> None:
        """A stage is finished, or was before."""


@dataclass(frozen=True)
class Stage(Generic[T]):
    """A step of a study: what it depends on, how it is made, and how it is read back."""

    name: str
    """Also its folder, such as ``learners/maml``."""
    settings: Mapping[str, Any]
    """Plain values that decide the result, besides the stages before it."""
    make: Callable[[Path, "Steps"], None]
    """Writes the result into a folder."""
    load: Callable[[Path], T]
    needs: tuple[str, ...] = ()


class Steps:
    """Divides the time of a stage among its steps, and passes on the progress inside them."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._done = listener, 0.0

    @contextmanager
    def step(self, share: float, what: str) -> Iterator[None]:
        """A step that takes about this share of the stage; several bars in it start again."""
        begin = self._done
        self._listener.advance(begin, what)

        def listen(description: str, done: int, total: int | None) -> None:
            part = min(done / total, 1.0) if total else 0.0
            self._listener.advance(begin + share * part, what)

        with reported_to(listen):
            yield
        self._done = begin + share
        self._listener.advance(self._done, what)


@dataclass
class StageRunner:
    """Runs stages in a folder, or takes them from there where they are finished."""

    out: Path
    data: str
    """The fingerprint of the data, which all stages depend on."""
    resume: bool = False
    listener: Listener = field(default_factory=Listener)
    read_only: bool = False
    """Take every stage from the folder, whatever version wrote it; make none."""
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What finished stages wrote down about themselves."""
    made_elsewhere: set[str] = field(default_factory=set)
    """Stages that workers have made in this run."""

    def run_together(self, stages: Sequence[Stage[T]]) -> list[T]:
        """The results of stages that need nothing of each other: several workers share them."""
        if on_workers() and not self.read_only:
            missing = [stage for stage in stages if not (self.resume and self._finished(stage))]
            self.listener.begin(stages[0].name)
            with Steps(self.listener).step(1.0, f"{len(missing)} stages on workers"):
                maker = replace(self, listener=Listener())
                for note in map_work(maker._make, missing, description="stages"):
                    self.made_elsewhere.add(note["stage"])
        return [self.run(stage) for stage in stages]

    def run(self, stage: Stage[T]) -> T:
        """The result of a stage, made now or before; always as it was read back from disk."""
        self.listener.begin(stage.name)
        elsewhere = stage.name in self.made_elsewhere
        note = self._finished(stage) if self.resume or self.read_only or elsewhere else None
        reused = note is not None and not elsewhere
        note = note or self._make(stage)
        try:
            result = stage.load(self.out / stage.name)
            said: dict[str, Any] = {
                "seconds": float(note["seconds"]),
                "warnings": tuple(note["warnings"]),
            }
            self.notes[stage.name] = note | said
        except (DataError, OSError, KeyError, ValueError, TypeError) as error:
            raise DataError(
                f"stage {stage.name!r} in {self.out / stage.name} is damaged: {error} Delete that "
                "folder and run the same command with --resume."
            ) from error
        self.listener.end(stage.name, said["seconds"], reused)
        return result

    def _finished(self, stage: Stage[Any]) -> dict[str, Any] | None:
        """What a stage with the same inputs wrote down about itself; None where it must be made."""
        folder, inputs = self.out / stage.name, self._inputs(stage)
        note = read_note(folder, stage.name)
        if self.read_only:
            del inputs["version"]
        if note is None or {name: note.get(name) for name in inputs} != inputs:
            if not self.read_only:
                return None
            what = "was made with other settings or stages, or from other data"
            what = "is not finished" if note is None else what
            raise DataError(f"stage {stage.name!r} in {self.out} {what}. {_RESUME}.")
        for name, checksum in note["sha256"].items():
            if not (folder / name).is_file() or sha256_of(folder / name) != checksum:
                what = f"stage {stage.name!r} is damaged: {folder / name} is not as it was written."
                if self.read_only:
                    raise DataError(f"{what} {_RESUME}, which runs it again.")
                warnings.warn(f"{what} It is run again.", stacklevel=3)
                return None
        return note

    def _make(self, stage: Stage[Any]) -> dict[str, Any]:
        began, inputs = time.perf_counter(), self._inputs(stage)
        with atomic_folder(self.out / stage.name) as new:
            with warnings.catch_warnings(record=True) as heard:
                for kind in _KEPT:
                    warnings.simplefilter("always", kind)
                stage.make(new, Steps(self.listener))
            kept = {str(w.message) for w in heard if issubclass(w.category, _KEPT)}
            for other in (w for w in heard if not issubclass(w.category, _KEPT)):
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
            written = sorted(path for path in new.rglob("*") if path.is_file())
            text = json.dumps(inputs, sort_keys=True, ensure_ascii=False)
            note = {
                **inputs,
                "hash": hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
                "warnings": sorted(kept),
                "seconds": round(time.perf_counter() - began, 3),
                "sha256": {str(p.relative_to(new)): sha256_of(p) for p in written},
            }
            write_json(new / _NOTE, note)
        return note

    def _inputs(self, stage: Stage[Any]) -> dict[str, Any]:
        """All that decides the result of a stage, as JSON has it."""
        inputs = {
            "format": _FORMAT,
            "stage": stage.name,
            "data": self.data,
            "version": __version__,
            "settings": dict(stage.settings),
            "needs": {name: self.notes[name]["hash"] for name in stage.needs},
        }
        same: dict[str, Any] = json.loads(json.dumps(inputs))
        return same


def read_note(folder: Path, name: str) -> dict[str, Any] | None:
    """What a stage of any version wrote down about itself; None if no stage wrote the folder."""
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(note, dict) and note.get("stage") == name and set(note) >= _NOTED
    return note if ours else None
