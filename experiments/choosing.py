"""Does ``rule="auto"`` choose well? Rules tried on validation classes, then tested on test classes.

    python -m experiments choosing --pool mini_imagenet --budgets 200 500 --out found.jsonl

For each learner, budget and seed: what auto chose, and on test tasks how learners trained on its
choice compare with those trained on random tasks.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.lab import Lab, option
from experiments.recipes import LEARNER_PRESETS, PIXEL_COMPONENTS
from taskscape.meta import learner_and_training, network_for
from taskscape.pools import ClassPool, load_pool
from taskscape.select import LearnerScorer, TrialOptions, select
from taskscape.similarity import DEFAULT_SIMILARITY
from taskscape.statistics import losing_share
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes import TaskThemes
from taskscape.themes.prepare import unit_length

__all__ = ["ChoosingSettings", "ChoosingSizes", "ChoosingStudy", "run"]

_PRESET = LEARNER_PRESETS["paper 5-shot"]


@dataclass(frozen=True)
class ChoosingSizes:
    """How many tasks, and trainings."""

    fit_tasks: int = 5000
    candidates: int = 5000
    val_tasks: int = 300
    test_tasks: int = 500
    trials: int = 4


@dataclass(frozen=True)
class ChoosingSettings:
    """What to study, and how."""

    pool: str = option("a known data set or a path, with validation classes")
    learners: tuple[str, ...] = option("", ("protonet", "maml", "maml-untuned"), commas=True)
    budgets: tuple[int, ...] = option("how many training tasks to choose", (100, 500))
    seeds: tuple[int, ...] = (0,)
    sizes: ChoosingSizes = ChoosingSizes()


@dataclass(frozen=True)
class ChoosingStudy:
    """Everything that decides a result but the learner, the budget and the seed."""

    pool: ClassPool
    """What the task-themes take."""
    features: ClassPool
    """The same classes and samples as the learners take them."""
    sizes: ChoosingSizes = ChoosingSizes()
    n_shot: int = 5
    n_query: int = 10
    rules: tuple[str, ...] = ("nearest", "coverage", "classes")

    def model(self, seed: int) -> TaskThemes:
        """What makes tasks of the training classes alike."""
        tasks = sample_tasks(
            self.pool, self.sizes.fit_tasks, n_way=(5, 10), n_shot=self.n_shot, split="train",
            seed=seed,
        )  # fmt: skip
        return TaskThemes(random_state=seed).fit(tasks)

    def tasks(self, pool: ClassPool, split: str, n: int, seed: int) -> TaskSet:
        """Five-way tasks of a split, the same whatever the pool."""
        return sample_tasks(
            pool, n, n_shot=self.n_shot, n_query=self.n_query, split=split, seed=seed
        )

    def results(self, model: TaskThemes, learner: str, budget: int, seed: int) -> dict[str, Any]:
        """What auto chose, and the test accuracies of its choice and of random ones."""
        kind, config = learner_and_training(learner, _PRESET[learner])
        network = network_for(self.features, _PRESET[learner], scale=8.0)
        s = self.sizes
        sizes = {"train": s.candidates, "val": s.val_tasks, "test": s.test_tasks}
        seeds = {split: 10 * seed + i for i, split in enumerate(sizes, start=1)}
        embedded, tasks = {}, {}
        for split, n in sizes.items():
            embedded[split] = model.embed(self.tasks(self.pool, split, n, seeds[split]))
            tasks[split] = self.tasks(self.features, split, n, seeds[split])
        trying, scorer = (
            LearnerScorer(kind, network, tasks["train"], tasks[split], training=config, seed=seed)
            for split in ("val", "test")
        )
        chosen = select(
            embedded["test"], embedded["train"], budget, "auto", validation=embedded["val"],
            scorer=trying,
            trial=TrialOptions(rules=self.rules, trials=s.trials), seed=seed,
        )  # fmt: skip
        rng = np.random.default_rng([seed, budget])
        by_chance = [rng.permutation(s.candidates)[:budget] for _ in range(s.trials)]
        ours = by_chance if chosen.rule == "random" else [chosen.indices] * s.trials
        scores = {"random": scorer(by_chance).tolist(), "auto": scorer(ours).tolist()}
        return {
            "rule": chosen.rule,
            "auto": chosen.settings["auto"],
            "scores": scores,
            "gain": float(np.mean(scores["auto"]) - np.mean(scores["random"])),
            "loses": losing_share(scores["auto"], scores["random"]),
        }


def run(settings: ChoosingSettings, lab: Lab) -> None:
    """Study what the settings ask for; a seed's model is fitted when its first cell is missing."""
    pool = load_pool(settings.pool)
    features = unit_length(pool, pca=PIXEL_COMPONENTS if pool.is_images else None)
    study = ChoosingStudy(pool, features, settings.sizes)
    for seed in settings.seeds:
        cells = [
            {"what": "auto", "distance": DEFAULT_SIMILARITY, "pool": pool.name,
             "learner": learner, "budget": budget, "seed": seed,
             "settings": dict(_PRESET[learner]), **asdict(settings.sizes)}
            for learner in settings.learners
            for budget in settings.budgets
        ]  # fmt: skip
        model: TaskThemes | None = None
        for cell in lab.missing(cells):
            lab.check_time()
            model = model or study.model(seed)
            results = study.results(model, cell["learner"], cell["budget"], seed)
            lab.add(cell, results)
            gain = f"{results['gain']:+.4f}"
            print(cell["learner"], cell["budget"], seed, results["rule"], gain)
