"""Which notion of similarity predicts accuracy, and how settings change the answer.

    python -m taskscape.studies.similarity --pool mini_imagenet --split test \
        --learners protonet,maml --seeds 0 1 2 --minutes 8 --out found.jsonl
    python -m taskscape.studies.similarity --pool mini_imagenet --split val --vary --out vary.jsonl
    python -m taskscape.studies.similarity --table found.jsonl

Every finished cell is one line of JSON; a second run with the same file goes on where the first
one stopped. Measured accuracies are kept in the cache folder.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from taskscape.pools import ClassPool, load_pool
from taskscape.studies.learning import hold_out
from taskscape.studies.ledger import Ledger, read_ledger, surroundings
from taskscape.studies.similarity.accuracies import centroid_accuracy, measured_accuracies
from taskscape.studies.similarity.families import FAMILIES
from taskscape.studies.similarity.notions import run_notions
from taskscape.studies.similarity.study import SimilarityStudy, Sizes
from taskscape.studies.similarity.table import (
    markdown_tables,
    overview_tables,
    print_tables,
)
from taskscape.studies.similarity.variation import run_variations

__all__ = ["main"]

_HELD_OUT_GROUPS = 5


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; see the module's docstring."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    options = parser.parse_args(given)
    if options.table:
        entries = [e for path in options.table for e in read_ledger(path)]
        by = options.overview
        print(overview_tables(entries, by) if by else markdown_tables(entries))
        return
    if not options.pool or not options.out:
        parser.error("--pool and --out are needed.")
    until = time.monotonic() + 60 * options.minutes
    sizes = Sizes.scaled(options.scale)
    wishes = {f.name: getattr(options, f.name) for f in fields(Sizes)}
    sizes = replace(sizes, **{k: v for k, v in wishes.items() if v is not None})
    study = SimilarityStudy(
        with_validation(load_pool(options.pool)), options.split, sizes, network=options.network
    )
    command = "python -m taskscape.studies.similarity " + shlex.join(given)
    ledger = Ledger(options.out, {"command": command, **surroundings()})
    _say(f"{study.pool!r}; {study.tasks!r} of split {options.split!r}")
    learners = options.learners.split(",")
    accuracies = {name: measured_accuracies(study, name, options.seeds) for name in learners}
    for name, by_seed in accuracies.items():
        _say(f"{name}: " + ", ".join(f"{a.mean():.3f}" for a in by_seed.values()))
    centroid = centroid_accuracy(study).mean(axis=1)
    _say(f"nearest centroid: {centroid.mean():.3f}")
    difficulty = np.concatenate([study.difficulty(), -centroid[:, None]], axis=1)
    if options.vary:
        run_variations(study, ledger, accuracies, difficulty, seeds=options.seeds, until=until)
    else:
        run_notions(
            study, ledger, accuracies, difficulty,
            seeds=options.seeds, families=options.families, until=until,
        )  # fmt: skip
    print_tables(list(ledger.cells.values()))


def with_validation(pool: ClassPool) -> ClassPool:
    """The pool, with some groups of training classes held out if it has no validation classes."""
    if pool.splits is not None and "val" in pool.splits:
        return pool
    return hold_out(pool, _HELD_OUT_GROUPS)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--pool", help="a known data set or a path")
    add("--split", default="val", choices=("val", "test"))
    add("--learners", default="protonet,maml")
    add("--network", default="mlp", choices=("mlp", "conv4"))
    add("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    add("--vary", action="store_true", help="settings of the model, on validation classes")
    add("--scale", type=float, default=1.0, help="below 1: fewer tasks of every kind")
    for field in fields(Sizes):
        add(f"--{field.name.replace('_', '-')}", type=int)
    add("--minutes", type=float, default=1e9, help="start nothing after this long")
    add("--out", type=Path, help="file of JSON lines; finished cells in it are not run again")
    add("--table", type=Path, nargs="+", help="print these files as Markdown tables, and stop")
    add("--overview", metavar="SUMMARY", help="with --table: pools side by side, such as 'mean'")
    return parser


if __name__ == "__main__":
    main()
