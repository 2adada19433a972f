"""Studies to report on: a full one of the embedded letters, and a bare one of awkward features.

Fits are real and small; accuracies, selection trials and forecasts are made up with a seed.
"""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np

from fit_cases import quick_starts
from taskscape import ClassPool, TaskSet, TaskThemes, load_pool, sample_tasks
from taskscape.compare import mean_distance, nearest
from taskscape.diagram import correlation_diagram
from taskscape.embeddings import Embeddings
from taskscape.forecast import ForecastEvaluation, Forecasts
from taskscape.select.trials import Trial
from taskscape.study.result import StudyResult
from taskscape.themes import HealthWarning, OutlierTasksWarning

EVIL = "<script>window.hacked = 1</script>"
"""A name that must be shown and never run."""
EVIL_NAMES = (
    EVIL,
    "</script><img src=x onerror='window.hacked = 1'>",
    "a & b \u2028 %{x} $y$ <b>bold</b>",
    "\"quoted\" 'twice'",
)
LEARNERS = ("protonet", "maml")
RULES = ("nearest", "coverage", "random")


@cache
def glyph_study(n_train: int = 300, n_test: int = 200) -> StudyResult:
    """Everything that a study can hold, on every sixth of the embedded letters."""
    letters = load_pool("letters")
    pool = letters.subset(range(0, len(letters), 6))
    learned = sample_tasks(pool, 300, split="train", n_way=(5, 10), n_shot=10, seed=0)
    train = sample_tasks(pool, n_train, split="train", n_way=5, n_shot=10, seed=1)
    test = sample_tasks(pool, n_test, split="test", n_way=5, n_shot=10, seed=2)
    result = bare_result(fit(learned, task_themes=4, image_themes=8, max_passes=2), train, test)
    return with_outcomes(result)


@cache
def bare_study(task_themes: int = 3, members: int = 1) -> StudyResult:
    """Features without groups, splits, pictures or learners; some class names are awkward."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(24, 6)) * 3
    names = [*EVIL_NAMES, *(f"class {i}" for i in range(20))]
    classes = {n: c + rng.normal(size=(15, 6)) for n, c in zip(names, centres, strict=True)}
    pool = ClassPool.from_classes(classes, name=f"features {EVIL}")
    tasks = sample_tasks(pool, 300, n_way=(2, 4), n_shot=8, seed=0)
    model = fit(
        tasks, task_themes=task_themes, image_themes=5, max_passes=1, n_held_out=50,
        n_restarts=members, ensemble=members,
    )  # fmt: skip
    return bare_result(model, tasks[:200], tasks[200:])


def awkward_study() -> StudyResult:
    """The bare study with awkward names everywhere, groups, outcomes, and some of them unknown."""
    result = bare_study()
    pool = replace(
        result.pool, groups=tuple(EVIL_NAMES[i % 4] for i in range(24)), class_digests=None
    )
    full = with_outcomes(replace(result, pool=pool), learners=(EVIL, "%{x} & <b>"))
    accuracy = {name: a.copy() for name, a in full.accuracy.items()}
    accuracy[EVIL][3] = np.nan
    difficulty = full.difficulty.copy()
    difficulty[:5] = np.nan
    return replace(
        full,
        accuracy=accuracy,
        difficulty=difficulty,
        settings={EVIL: {"name": EVIL, "nothing": None}, "flag": True},
        versions={EVIL: EVIL},
        hardware={"cores": 2, EVIL: None},
        command=f"taskscape study {EVIL}",
    )


def fit(tasks: TaskSet, **settings: object) -> TaskThemes:
    """A small fit without its warnings, which the report shows instead."""
    with warnings.catch_warnings(), quick_starts():
        warnings.simplefilter("ignore", HealthWarning)
        paper = TaskThemes.paper(random_state=0, **settings)
        return TaskThemes(co_clustering=paper).fit(tasks)


def bare_result(model: TaskThemes, train: TaskSet, test: TaskSet) -> StudyResult:
    """What a study without learners finds."""
    embedded = [embeddings(model, tasks) for tasks in (train, test)]
    near = nearest(embedded[1], embedded[0], k=5)
    rng = np.random.default_rng(0)
    return StudyResult(
        pool=train.pool,
        model=model,
        train=embedded[0],
        test=embedded[1],
        distance=mean_distance(embedded[1], embedded[0]),
        nearest=np.asarray(near.indices),
        nearest_distance=np.asarray(near.distances, dtype=np.float64),
        difficulty=rng.gamma(4.0, 1.0, len(test)),
        accuracy={},
        diagram=None,
        selection=(),
        forecasts={},
        evaluations={},
        settings={},
        seed=0,
        timings={},
        versions={},
        hardware={},
        command="",
    )


def embeddings(model: TaskThemes, tasks: TaskSet) -> Embeddings:
    """Embedded tasks as a study keeps them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutlierTasksWarning)
        return model.embed(tasks)


def with_outcomes(result: StudyResult, learners: tuple[str, ...] = LEARNERS) -> StudyResult:
    """The study with made-up learners that find far and hard tasks harder."""
    rng = np.random.default_rng(1)
    far, hard = (_rank(v) - 0.5 for v in (result.distance, result.difficulty))
    accuracy, forecasts, evaluations = {}, {}, {}
    for i, name in enumerate(learners):
        mean = 0.72 - 0.06 * i - (0.12 + 0.05 * i) * far - 0.15 * hard
        mean = mean + rng.normal(0, 0.03, len(mean))
        noise = rng.normal(0, 0.08, (len(mean), 10))
        accuracy[name] = np.clip(mean[:, None] + noise, 0, 1)
        by = {
            "distance to the training tasks": -(0.12 + 0.05 * i) * far,
            "difficulty": -0.15 * hard,
        }
        expected = 0.72 - 0.06 * i + sum(by.values())
        forecasts[name] = Forecasts(name, expected, expected - 0.06, expected + 0.06, 0.9, by)
        evaluations[name] = ForecastEvaluation(
            name, len(mean), 0.81 - 0.1 * i, 0.031, 0.93, 0.9, 0.95, 0.062
        )
    diagram = correlation_diagram(
        result.distance, accuracy, classes=result.test, difficulty=result.difficulty, n_bins=8
    )
    trials = tuple(
        Trial(name, rule, budget, trial, _chosen(rng, i, rule, budget))
        for i, name in enumerate(learners)
        for rule in RULES
        for budget in (100, 500, 1000)
        for trial in range(5 if rule == "random" else 3)
    )
    return replace(
        result,
        accuracy=accuracy,
        diagram=diagram,
        selection=trials,
        forecasts=forecasts,
        evaluations=evaluations,
        settings={
            "pool": {"name": result.pool.name, "splits": "train, val, test"},
            "fit": {**result.model.co_clustering_.get_params()},
            "learners": {name: {"epochs": 3, "network": {"filters": 32}} for name in learners},
        },
        timings={"pool": 1.7, "fit": 42.0, "embed": 3.2, "learners": 312.5, "report": 2.1},
        versions={"taskscape": "0.1.0", "python": "3.12.3", "jax": "0.5.0"},
        hardware={"device": "cpu", "cores": 2},
        command="taskscape study letters --n-train 300 --n-test 200 --seed 0 --out out/study",
    )


def _rank(values: np.ndarray) -> np.ndarray:
    return values.argsort().argsort() / max(1, len(values) - 1)


def _chosen(rng: np.random.Generator, learner: int, rule: str, budget: int) -> float:
    gain = {"nearest": 0.02, "coverage": 0.035}.get(rule, 0.0)
    base = 0.48 + 0.05 * np.log10(budget / 10) + 0.02 * learner
    return float(base + gain * np.log10(budget / 50) + rng.normal(0, 0.012))
