"""Hostile input by the thousand: does it end in a clear error, and never in a wrong number?

    python benchmarks/attack.py --cases 5000 --seed 0 --out benchmarks/results/attack.json

Cases are drawn from a seed and run in a worker process, one after another; a case that takes longer
than ``--limit`` seconds counts as a hang, and its worker is replaced. What counts as what is in
docs/reliability.md.
"""

import argparse
import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import record

HANG = "hang"
OUTCOMES = ("clear error", "rightly accepted", "harmless", "traceback", "silently wrong", HANG)
BAD = OUTCOMES[3:]
_START_SECONDS = 600
_WRITE_EVERY = 100


def worker(pipe: Connection, folder: str, seed: int, fits: bool, only: str | None) -> None:
    """Run the cases whose numbers come through the pipe."""
    os.environ["TASKSCAPE_CACHE"] = str(Path(folder) / "cache")
    import attack_cases as cases
    import numpy as np
    from sklearn.exceptions import NotFittedError

    from taskscape.errors import TaskscapeError

    warnings.simplefilter("ignore")
    ground = cases.Ground(Path(folder))
    if fits:
        ground.model  # noqa: B018  -- made before the first time limit
    names = list(cases.KINDS)
    chances = [share for share, _ in cases.KINDS.values()]
    pipe.send(None)
    while (number := pipe.recv()) is not None:
        rng = np.random.default_rng([seed, number])
        kind = only or names[int(rng.choice(len(names), p=chances))]
        case = cases.KINDS[kind][1](ground, rng, fits)
        pipe.send((kind, case.words))
        said = ""
        try:
            outcome = case.verdict(case.act())
        except (TaskscapeError, NotFittedError) as error:
            outcome, said = cases.CLEAR, str(error)
        except (OSError, IndexError) as error:  # Python's own way to say so, with its own words
            good = str(error) and not case.words.startswith("taskscape ")
            outcome, said = (cases.CLEAR if good else cases.TRACEBACK), str(error)
        except BaseException:  # also SystemExit, and what libraries raise that is no Exception
            outcome, said = cases.TRACEBACK, traceback.format_exc()
        pipe.send((outcome, said))


class Workers:
    """One worker process at a time; a new one where the last one hung or died."""

    def __init__(self, folder: str, args: argparse.Namespace) -> None:
        self.folder, self.args = folder, args
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        how = (self.args.seed, not self.args.without_fits, self.args.only)
        self.process = context.Process(target=worker, args=(other, self.folder, *how))
        self.process.start()
        other.close()
        if not self.pipe.poll(_START_SECONDS):
            raise SystemExit("the worker did not start")
        self.pipe.recv()

    def run(self, number: int) -> tuple[str, str, str, str]:
        """The kind of a case, the case in words, its outcome, and what was said."""
        self.pipe.send(number)
        kind, words = self.pipe.recv()
        try:
            if self.pipe.poll(self.args.limit):
                return kind, words, *self.pipe.recv()
            outcome = HANG
        except EOFError:
            outcome = "traceback"  # worse: the process died
        self.process.join(timeout=1)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        code = self.process.exitcode
        self._start()
        return kind, words, outcome, f"exit code {code}"

    def end(self) -> None:
        """Let the worker go."""
        self.pipe.send(None)
        self.process.join()


def main() -> None:
    """Run the cases, print the counts, and keep them."""
    options = record.parser(__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=500)
    options.add_argument("--first", type=int, default=0, help="the number of the first case")
    options.add_argument("--limit", type=float, default=60.0, help="seconds for a case")
    options.add_argument("--only", metavar="KIND", help="such as 'files in the way'")
    options.add_argument("--without-fits", action="store_true", help="leave out models and studies")
    args = options.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    bad: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="taskscape-attack-") as folder:
        workers = Workers(folder, args)
        for number in range(args.first, args.first + args.cases):
            kind, words, outcome, said = workers.run(number)
            counts[kind, outcome] += 1
            if outcome in BAD:
                bad.append(
                    {"case": number, "what": words, "outcome": outcome, "said": said[-1500:]}
                )
                print(f"{outcome}: case {number}, {words}\n{said[-1500:]}", flush=True)
            if (number + 1) % _WRITE_EVERY == 0:
                record.write(_figures(counts, bad), args)
        workers.end()
    figures = _figures(counts, bad)
    record.write(figures, args)
    for kind in (*sorted({kind for kind, _ in counts}), "all"):
        print(f"{kind:18s}", ", ".join(f"{n:,} {o}" for o, n in figures[kind].items()))
    raise SystemExit(1 if bad else 0)


def _figures(counts: Counter[tuple[str, str]], bad: list[dict[str, Any]]) -> dict[str, Any]:
    """How often each outcome was seen, in all and by kind, and every bad case."""
    kinds = sorted({kind for kind, _ in counts})
    table = {kind: {o: counts[kind, o] for o in OUTCOMES} for kind in kinds}
    total = {o: sum(row[o] for row in table.values()) for o in OUTCOMES}
    return {"cases": sum(counts.values()), "all": total, **table, "bad": bad}


if __name__ == "__main__":
    main()
