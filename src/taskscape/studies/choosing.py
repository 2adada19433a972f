"""Does ``rule="auto"`` choose well? Rules tried on validation classes, then judged on test classes.

    python -m taskscape.studies.choosing --pool mini_imagenet --budgets 200 500 --out found.jsonl

For each learner, budget and seed: what auto chose, and on test tasks how learners trained on its
choice compare with those trained on random tasks. Every finished cell is one line of JSON.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.meta import split_settings
from taskscape.pools import ClassPool
from taskscape.select import LearnerJudge, TrialOptions, select
from taskscape.statistics import losing_share
from taskscape.studies.learning import unit_length
from taskscape.studies.ledger import Ledger, surroundings
from taskscape.studies.paper.fig2 import network_for
from taskscape.studies.paper.plan import SETTINGS
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.estimator import TaskThemes

__all__ = ["ChoosingStudy", "main"]


@dataclass(frozen=True)
class ChoosingStudy:
    """Everything that decides a result but the learner, the budget and the seed."""

    pool: ClassPool
    """What the task-themes take."""
    features: ClassPool
    """The same classes and samples as the learners take them."""
    n_shot: int = 5
    n_query: int = 10
    fit_tasks: int = 5000
    candidates: int = 5000
    val_tasks: int = 300
    test_tasks: int = 500
    trials: int = 4
    rules: tuple[str, ...] = ("nearest", "coverage", "classes")

    def model(self, seed: int) -> TaskThemes:
        """Task-themes of the training classes."""
        tasks = sample_tasks(
            self.pool, self.fit_tasks, n_way=(5, 10), n_shot=self.n_shot, split="train", seed=seed
        )
        return TaskThemes(max_passes=3, random_state=seed).fit(tasks)

    def tasks(self, pool: ClassPool, split: str, n: int, seed: int) -> TaskSet:
        """Five-way tasks of a split, the same whatever the pool."""
        return sample_tasks(
            pool, n, n_shot=self.n_shot, n_query=self.n_query, split=split, seed=seed
        )

    def cell(self, model: TaskThemes, learner: str, budget: int, seed: int) -> dict[str, Any]:
        """What auto chose, and the test accuracies of its choice and of random ones."""
        settings = dict(SETTINGS[5][learner])
        made, config = split_settings(learner.split("-")[0], settings)
        network = network_for(self.features, settings)
        sizes = {"train": self.candidates, "val": self.val_tasks, "test": self.test_tasks}
        seeds = {split: 10 * seed + i for i, split in enumerate(sizes, start=1)}
        lam, tasks = {}, {}
        for split, n in sizes.items():
            lam[split] = model.transform(self.tasks(self.pool, split, n, seeds[split]))
            tasks[split] = self.tasks(self.features, split, n, seeds[split])
        chosen = select(
            lam["test"],
            lam["train"],
            budget,
            "auto",
            validation=lam["val"],
            judge=LearnerJudge(
                made, network, tasks["train"], tasks["val"], training=config, seed=seed
            ),
            trial=TrialOptions(rules=self.rules, trials=self.trials),
            seed=seed,
        )
        judge = LearnerJudge(
            made, network, tasks["train"], tasks["test"], training=config, seed=seed
        )
        rng = np.random.default_rng([seed, budget])
        by_chance = [rng.permutation(self.candidates)[:budget] for _ in range(self.trials)]
        ours = by_chance if chosen.rule == "random" else None
        scores = {
            "random": judge(by_chance).tolist(),
            "auto": judge(ours or [chosen.indices] * self.trials).tolist(),
        }
        return {
            "rule": chosen.rule,
            "auto": chosen.settings["auto"],
            "scores": scores,
            "gain": float(np.mean(scores["auto"]) - np.mean(scores["random"])),
            "loses": losing_share(scores["auto"], scores["random"]),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--pool", required=True, help="a known data set or a path, with validation classes")
    add("--learners", default="protonet,maml,maml-untuned")
    add("--budgets", type=int, nargs="+", default=[100, 500])
    add("--seeds", type=int, nargs="+", default=[0])
    add("--minutes", type=float, default=1e9, help="start no new cell after this long")
    for name in ("fit_tasks", "candidates", "val_tasks", "test_tasks", "trials"):
        add(f"--{name.replace('_', '-')}", type=int, default=getattr(ChoosingStudy, name))
    add("--out", required=True, help="file of JSON lines; finished cells in it are not run again")
    options = parser.parse_args(arguments)
    from taskscape.pools.load import load_pool

    pool = load_pool(options.pool)
    sizes = {n: getattr(options, n)
             for n in ("fit_tasks", "candidates", "val_tasks", "test_tasks", "trials")}  # fmt: skip
    study = ChoosingStudy(pool, unit_length(pool, pca=64 if pool.is_images else None), **sizes)
    command = shlex.join(sys.argv[1:] if arguments is None else arguments)
    about = {"command": f"python -m taskscape.studies.choosing {command}", **surroundings()}
    ledger = Ledger(Path(options.out), about)
    end = time.monotonic() + 60 * options.minutes
    for seed in options.seeds:
        model: TaskThemes | None = None
        for learner in options.learners.split(","):
            for budget in options.budgets:
                cell = {"what": "auto", "pool": pool.name, "learner": learner, "budget": budget,
                        "seed": seed, "settings": dict(SETTINGS[5][learner]), **sizes}  # fmt: skip
                if ledger.get(cell) is not None or time.monotonic() > end:
                    continue
                model = model or study.model(seed)
                found = study.cell(model, learner, budget, seed)
                ledger.add(cell, found)
                print(learner, budget, seed, found["rule"], f"{found['gain']:+.4f}")


if __name__ == "__main__":
    main()
