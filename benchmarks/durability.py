"""Faults injected into fits, embeddings, trainings, studies and reproductions, and what was lost.

    python benchmarks/durability.py --kills 200 --out benchmarks/results/durability.json

A job works in a folder of its own and resumes from what it finds there. It is killed (SIGKILL) at
random times, started again, and in the end its results must be those of an undisturbed run, bit for
bit. The same after SIGTERM, after a full disk (a limit on the size of files), after bytes were
changed in its files or these were cut off, and after two processes worked in one folder. A fault
counts as survived when the results are the same, or when the job refuses to resume with an error
that says what to do and the results are the same once that is done.
"""

import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from record import keep, parser

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments are not installed

from experiments.lab import Lab, Store
from experiments.paper.fig2 import Fig2
from experiments.paper.plan import VERSIONS, Fig2Plan
from taskscape.cli.interrupts import heed_interrupts
from taskscape.errors import DataError
from taskscape.io.arrays import (
    arrays_of,
    load_checkpoint,
    save_checkpoint,
    tree_from,
)
from taskscape.meta import ProtoNet, TrainConfig, TrainState, begin, mlp, train
from taskscape.pools import ClassPool
from taskscape.study import config_from, run_study
from taskscape.tasks import sample_tasks
from taskscape.themes import start
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.task_model import TaskModel

Job = Callable[[Path], None]
_CHANGING = ("seconds", "command", "versions", "hardware", "timings", "checksum")
"""What no two runs have in common."""
_KILLS_IN_A_ROW = 5
_STUDY = {
    "tasks": {"n_way": 3, "n_shot": 8, "n_train": 40, "n_val": 20, "n_test": 20},
    "fit": {
        "n_tasks": 60, "n_way": [3, 4], "n_shot": 8, "task_themes": 2, "image_themes": 3,
        "max_passes": 1, "prepare": "none",
    },
    "learners": {"names": ["protonet"], "widths": [8], "train_tasks": 20, "batch_size": 4},
    "evaluate": {"n_shot": 2, "n_query": 5, "episodes": 2},
    "distances": {"k": 4},
    "diagram": {"n_bins": 4},
    "selection": {"rules": []},
    "forecast": {"enabled": False},
}  # fmt: skip


# -- jobs ---------------------------------------------------------------------------------------


def made_up_pool() -> ClassPool:
    """Classes that are easy to tell apart, with splits."""
    rng = np.random.default_rng(0)
    centres = rng.gamma(2.0, size=(24, 6))
    X = np.repeat(centres, 20, axis=0) + 0.3 * rng.random((480, 6))
    splits = ["train"] * 12 + ["val"] * 5 + ["test"] * 7
    return ClassPool.from_arrays(
        X.astype(np.float32), np.repeat(np.arange(24), 20), name="toy", splits=splits
    )


def quick_model(**settings: Any) -> CoClustering:
    """The paper's update is the quickest to trace and to start, which takes longest here."""
    return CoClustering(2, 3, update="paper", n_held_out=20, prepare=None, **settings)


def fit(folder: Path) -> None:
    """A fit with a checkpoint after every step."""
    tasks = sample_tasks(made_up_pool(), 200, n_way=3, n_shot=5, seed=0)
    model, checkpoint = quick_model(batch_size=10, max_passes=2), folder / "model.checkpoint"
    model.fit(tasks, checkpoint=checkpoint, checkpoint_every=1, resume=True).save(folder / "model")
    checkpoint.unlink(missing_ok=True)


def embed(folder: Path) -> None:
    """An embedding into a file, by a model that all folders share."""
    model = folder.parent / "model"
    if not model.exists():
        tasks = sample_tasks(made_up_pool(), 40, n_way=3, n_shot=5, seed=0)
        quick_model(batch_size=10, max_passes=1).fit(tasks).save(model)
    tasks = sample_tasks(made_up_pool(), 2000, n_way=3, n_shot=5, seed=1)
    TaskModel.load(model).embed(tasks).save(folder / "tasks.parquet")


def meta_training(folder: Path) -> None:
    """A training of ProtoNet with a checkpoint after every dispatch."""
    pool, learner, network = made_up_pool(), ProtoNet(), mlp(6, (8,))
    tasks = sample_tasks(pool, 200, split="train", n_way=3, n_shot=3, n_query=3, seed=0)
    check = sample_tasks(pool, 10, split="val", n_way=3, n_shot=3, n_query=3, seed=1)
    config = TrainConfig(updates=60, batch_size=4, validate_every=3)
    file, resume = folder / "learner.checkpoint", None
    if file.exists():
        resume = tree_from(load_checkpoint(file)[0], begin(learner, network, config, n_way=3))

    def keep(state: TrainState) -> None:
        save_checkpoint(file, arrays_of(state), {"what": "training checkpoint"})

    trained = train(
        learner, network, tasks, config, seed=0, n_way=3, validation=check,
        checkpoint=keep, resume=resume,
    )  # fmt: skip
    trained.save(folder / "learner")
    file.unlink(missing_ok=True)


def run(folder: Path) -> None:
    """A study of all stages but selection and forecasts."""
    run_study(made_up_pool(), config_from(_STUDY), folder / "out", resume=True)


def reproduce(folder: Path) -> None:
    """The cells of a figure of the paper, with their ledger, arrays and model."""
    quick = {"max_passes": 1, "prepare": None, "update": "paper"}
    VERSIONS["literal"] = quick  # type: ignore[index]
    pool = made_up_pool()
    plan = Fig2Plan(
        "toy", "train+val", 30, 50, n_query=4, episodes=2, fit_tasks=40, learner_tasks=16,
        seeds=(0, 1),
    )  # fmt: skip
    store = Store(Lab(folder / "results.jsonl"), pool.fingerprint, 0)
    Fig2("fig2-mini-imagenet", pool, plan, store).run(
        ("prepare", "train"), ["protonet"], ["literal"]
    )


JOBS: dict[str, tuple[Job, float]] = {
    "fit": (fit, 0.3),
    "embed": (embed, 0.2),
    "meta-training": (meta_training, 0.3),
    "run": (run, 0.08),
    "reproduce": (reproduce, 0.12),
}
"""With the share of the kills that each gets: studies take longest."""


# -- what came out ------------------------------------------------------------------------------


def results(folder: Path) -> dict[str, str]:
    """A checksum of every file in a folder, without what no two runs have in common."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    aside = ("unfinished", ".damaged", ".lock")
    files = (p for p in files if not any(name in str(p) for name in aside))
    kept = {str(p.relative_to(folder)): _content(p) for p in files}
    return {name: hashlib.sha256(content).hexdigest() for name, content in kept.items() if content}


def _content(file: Path) -> bytes:
    if file.suffix == ".jsonl":
        lines = (json.loads(line) for line in file.read_text().splitlines())
        different = {json.dumps(_lasting(line)) for line in lines}  # two may have done one cell
        return "\n".join(sorted(different)).encode()
    if file.name == "stage.json" or file.name == "study.json":
        return b""  # times
    if file.suffix == ".json":
        return json.dumps(_lasting(json.loads(file.read_text()))).encode()
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))
    return file.read_bytes()


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _lasting(v) for k, v in sorted(value.items()) if k not in _CHANGING}
    return [_lasting(v) for v in value] if isinstance(value, list) else value


# -- processes ----------------------------------------------------------------------------------


class Child:
    """A job in a process of its own; everything is imported already, nothing is computed yet."""

    def __init__(self, job: Job, folder: Path, file_bytes: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder.with_name(f"{folder.name}.log")
        self.pid = os.fork()
        self.code: int | None = None
        if self.pid == 0:
            self._work(job, folder, file_bytes)

    def _work(self, job: Job, folder: Path, file_bytes: int | None) -> None:
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = 1
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        try:
            with heed_interrupts(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                job(folder)
            code = 0
        except KeyboardInterrupt:
            code = 130
        except DataError as error:
            code = 2
            with suppress(OSError):  # the limit of a full disk is also that of the log
                print(error)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def wait(self, seconds: float = 600.0) -> int | None:
        """The exit code; None if it runs on after so many seconds."""
        end = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                return None
            else:
                time.sleep(0.005)
        return self.code

    def send(self, number: int) -> int:
        """Send a signal and wait for the end."""
        os.kill(self.pid, number)
        code = self.wait()
        assert code is not None, "it does not end"
        return code


# -- faults -------------------------------------------------------------------------------------


class Faults:
    """Injects faults into one job, and counts those that were survived and lost."""

    def __init__(self, name: str, work: Path, rng: random.Random) -> None:
        self.name, self.job, self.rng = name, JOBS[name][0], rng
        self.work, self.n = work / name, 0
        self.finish(self.fresh())  # compiles
        folder, began = self.fresh(), time.monotonic()
        self.finish(folder)
        self.seconds = time.monotonic() - began
        self.expected = results(folder)
        self.whole = folder
        self.survived: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    def fresh(self) -> Path:
        """A new folder."""
        self.n += 1
        return self.work / str(self.n)

    def finish(self, folder: Path) -> None:
        """Let the job work undisturbed; what was refused is deleted, as the error says."""
        for _ in range(3):
            child = Child(self.job, folder)
            code = child.wait()
            if code == 0:
                return
            said = child.log.read_text()
            named = [w.rstrip(".,:") for w in said.split() if w.startswith(str(folder))]
            if code != 2 or not named:
                raise SystemExit(f"{self.name} in {folder} ended with {code}:\n{said}")
            there = Path(named[0])
            shutil.rmtree(there) if there.is_dir() else there.unlink()

    def count(self, fault: str, times: int, folder: Path) -> None:
        """Finish the job and compare."""
        self.finish(folder)
        same = results(folder) == self.expected
        (self.survived if same else self.lost)[fault] += times
        if same:
            shutil.rmtree(folder)
        else:
            print(f"LOST: {self.name}, {fault}, {folder}", flush=True)

    def signals(self, number: signal.Signals, times: int) -> None:
        """Signals at random times, several in a row into one folder, each followed by a restart."""
        done = 0
        while done < times:
            folder, in_a_row = self.fresh(), 0
            while in_a_row < min(_KILLS_IN_A_ROW, times - done):
                child = Child(self.job, folder)
                if child.wait(self.rng.uniform(0, 1.1 * self.seconds)) is not None:
                    break
                child.send(number)
                in_a_row += 1
            done += in_a_row
            if in_a_row:
                self.count(number.name, in_a_row, folder)

    def damaged_files(self, times: int) -> None:
        """A byte changed in, or the end cut off, a file of a job that was killed or has ended."""
        done = 0
        while done < times:
            folder = self.fresh()
            if done % 2:
                shutil.copytree(self.whole, folder)
            else:
                child = Child(self.job, folder)
                child.wait(self.rng.uniform(0.5 * self.seconds, self.seconds))
                if child.code is None:
                    child.send(signal.SIGKILL)
            files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.stat().st_size]
            files = [p for p in files if p.suffix not in (".png", ".toml")]
            if files:
                self._damage(self.rng.choice(files), cut=self.rng.random() < 0.5)
                self.count("damaged file", 1, folder)
                done += 1

    def _damage(self, file: Path, cut: bool) -> None:
        content = bytearray(file.read_bytes())
        at = self.rng.randrange(len(content))
        if cut:
            del content[at:]
        else:
            content[at] ^= 0xFF
        file.write_bytes(bytes(content))

    def full_disk(self, times: int) -> None:
        """No file may grow beyond some bytes; then the disk has room again."""
        largest = max(p.stat().st_size for p in self.whole.rglob("*") if p.is_file())
        for _ in range(times):
            folder = self.fresh()
            child = Child(self.job, folder, self.rng.randrange(64, largest))
            if child.wait() != 2:
                print(f"{self.name}: full disk ended with {child.code}: {child.log.read_text()}")
            self.count("full disk", 1, folder)

    def two_writers(self, times: int) -> None:
        """Two processes do the same in one folder; one may have to wait."""
        for _ in range(times):
            folder = self.fresh()
            both = [Child(self.job, folder), Child(self.job, folder)]
            for child in both:
                child.wait()
            self.count("two writers", 1, folder)


def main() -> None:
    """Inject faults into all jobs."""
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--kills", type=int, default=200, help="SIGKILLs over all jobs")
    arguments.add_argument(
        "--others", type=int, default=4, help="of each other fault, for each job"
    )
    arguments.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    options = arguments.parse_args()
    rng, figures = random.Random(options.seed), {}
    if options.out is not None and options.out.exists():  # figures of other jobs stay
        figures = json.loads(options.out.read_text())["figures"]
    start._TRIED = start._FEW = start._MANY = 1  # a study's fit would mostly look for good starts
    with tempfile.TemporaryDirectory(prefix="taskscape-durability-") as work:
        os.environ.setdefault("TASKSCAPE_CACHE", f"{work}/cache")
        for name in options.jobs:
            faults = Faults(name, Path(work), rng)
            print(f"{name}: {faults.seconds:.1f} s undisturbed", flush=True)
            faults.signals(signal.SIGKILL, math.ceil(options.kills * JOBS[name][1]))
            faults.signals(signal.SIGTERM, options.others)
            faults.damaged_files(options.others)
            faults.full_disk(options.others)
            faults.two_writers(options.others)
            for fault in (*faults.survived, *faults.lost):
                figures[f"{name}: {fault}"] = {
                    "injected": faults.survived[fault] + faults.lost[fault],
                    "survived": faults.survived[fault],
                    "lost": faults.lost[fault],
                }
            print(dict(faults.survived), "lost", dict(faults.lost), flush=True)
    keep(figures, options)


if __name__ == "__main__":
    main()
