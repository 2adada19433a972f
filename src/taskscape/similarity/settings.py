"""Settings that choose themselves: those by which tasks of held-out groups find each other."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import clone

from taskscape.arguments import Seed, check_choice, check_kind, check_number, check_seed
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.progress import progress_bar
from taskscape.similarity.registry import ModelSimilarity
from taskscape.similarity.retrieval import Dealt, deal
from taskscape.statistics import Interval, mean_interval
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.image_themes import WEIGHTS
from taskscape.themes.places import evenly_spaced
from taskscape.themes.prepare import PrepareConfig, choose_config, learn_preparation, prepared_pool
from taskscape.themes.task_model import TaskModel, without_advice

CRITERIA = ("retrieval", "bound")
_LEAST_GROUPS = 5
"""With fewer groups to query, classes are held out one by one."""
_FOLDS, _FOLDS_OF_CLASSES = 3, 5
_QUERIES, _CANDIDATES = 20, 20
_SAMPLES = 12_000
"""Looked at, evenly over the classes, but at least so many of a class as two tasks need."""
_DOUBT = 0.05
"""Chance that some value of a setting is taken for better though none is."""


@dataclass(frozen=True)
class Trial:
    """A value of a setting that was tried, the others being the best so far."""

    setting: str
    value: Any
    score: float
    gain: Interval
    """Over the best so far, paired by held-out group, or fold of classes."""
    taken: bool = False

    def __str__(self) -> str:
        value = self.value.describe() if isinstance(self.value, PrepareConfig) else self.value
        return f"{self.setting} = {value}"


@dataclass(frozen=True, eq=False, repr=False)
class SettingsSearch:
    """What was tried, and a model with what was chosen, not yet fitted."""

    model: Any
    criterion: str
    score: float
    """Of the settings that the search began with."""
    trials: tuple[Trial, ...]
    held_out: str
    """What was held out, in words."""
    untried: int
    """Values that there was no time for."""
    seconds: float

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that are not those that the search began with."""
        return {t.setting: t.value for t in self.trials if t.taken}

    def __repr__(self) -> str:
        return f"SettingsSearch({len(self.trials)} trials, chosen={self.chosen})"

    def _points(self, gain: Interval) -> str:
        return f"{gain.in_points()} points" if self.criterion == "retrieval" else f"{gain} nats"

    def _say(self, score: float) -> str:
        return f"{100 * score:.0f} %" if self.criterion == "retrieval" else f"{score:.3f}"

    def origin(self) -> str:
        """Where the settings come from, in a sentence."""
        if not self.trials:
            return f"Those asked for: no other was tried in {self.seconds:.0f} s, for lack of time"
        late = f" ({self.untried} more were not, for lack of time)" if self.untried else ""
        tried = f"of {len(self.trials)} that were tried{late}"
        tried += f", by {self.criterion} on {self.held_out}"
        if not self.chosen:
            return f"None {tried}, is clearly better than those asked for ({self._say(self.score)})"
        steps = (f"{t} ({self._points(t.gain)})" for t in self.trials if t.taken)
        return f"Chosen {tried}: {'; '.join(steps)}"

    def summary(self) -> str:
        """What was chosen and by how much, and all that was tried."""
        lines = [f"{self.origin()}.", f"{self._say(self.score):>8}  at first"]
        for t in self.trials:
            taken = ", taken" if t.taken else ""
            lines.append(f"{self._say(t.score):>8}  {t} ({self._points(t.gain)}{taken})")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists."""
        trials = [asdict(t) for t in self.trials]
        plain = {k: v for k, v in vars(self).items() if k not in ("model", "trials")}
        chosen = {t["setting"]: t["value"] for t in trials if t["taken"]}
        return {**plain, "chosen": chosen, "trials": trials}


def choose_settings(
    tasks: TaskSet,
    model: TaskModel | None = None,
    values: Mapping[str, Sequence[Any]] | None = None,
    *,
    by: str = "retrieval",
    n_way: int = 5,
    n_shot: int = 5,
    seconds: float = 60.0,
    seed: Seed = 0,
) -> SettingsSearch:
    """Settings for a model of these tasks, found on their classes alone.

    Groups are held out in folds; without five groups, classes. ``by="retrieval"`` asks how many of
    the ten tasks nearest to one of a held-out group are of that group, or how often the nearest has
    the same held-out classes (:func:`taskscape.retrieval`); ``by="bound"`` how well held-out tasks
    are explained, in nats per sample, which only compares models that prepare alike. Samples
    are prepared, and models fitted, without what is held out.

    One setting after the other is tried at the ``values`` given for it, by default the preparation,
    the weights of the parts, the temperature and the number of image-themes of
    :class:`taskscape.TaskThemes`. A value is taken if it is clearly better than what the model has:
    the interval of the difference, over groups or folds of classes and wide enough for all values
    of the setting, is above zero. Before ``seconds`` have passed the search ends with what it has.

    The model returned has the settings and says where they are from (``origin``); ``model`` itself
    is left as it is.
    """
    check_kind(tasks, TaskSet, "tasks", "Make them with sample_tasks.")
    check_choice(by, "by", CRITERIA)
    check_number(seconds, "seconds", 0, open_="low")
    began = time.monotonic()
    asked = TaskThemes() if model is None else model
    folds = Folds.of_classes(tasks, n_way, n_shot, check_seed(seed))
    simple, best = clone(asked), _resolved(asked, folds.pool)
    if isinstance(simple, TaskThemes):
        simple.set_params(co_clustering=None)
        values = usual_values(folds.pool, best["prepare"]) if values is None else values
    values = _checked(values, simple)
    trials: list[Trial] = []
    with progress_bar("choosing settings", 1 + sum(map(len, values.values()))) as advance:
        at_best = first = folds.scores(simple, best, by)
        advance()
        took = time.monotonic() - began
        for name, listed in values.items():
            tried: list[tuple[Trial, Float[np.ndarray, "units"]]] = []
            sure = 1 - 2 * _DOUBT / len(listed)  # of an interval of which the low end alone counts
            for value in listed:
                started = time.monotonic()
                if started + took > began + seconds:
                    break
                scores = folds.scores(simple, {**best, name: value}, by)
                gain = mean_interval(scores - at_best, sure)
                tried.append((Trial(name, value, float(scores.mean()), gain), scores))
                took = time.monotonic() - started
                advance()
            better = [i for i, (trial, _) in enumerate(tried) if trial.gain.low > 0]
            if better:
                i = max(better, key=lambda i: tried[i][0].score)
                best[name], at_best = listed[i], tried[i][1]
                tried[i] = replace(tried[i][0], taken=True), at_best
            trials += [trial for trial, _ in tried]
    untried = sum(map(len, values.values())) - len(trials)
    search = SettingsSearch(
        clone(asked), by, float(first.mean()), tuple(trials), folds.held_out, untried,
        time.monotonic() - began,
    )  # fmt: skip
    search.model.set_params(**search.chosen)
    if isinstance(asked, TaskThemes):
        search.model.set_params(origin=search.origin())
    return search


def _resolved(model: TaskModel, pool: ClassPool) -> dict[str, Any]:
    """What the settings of a model that go by the kind of samples are for this pool."""
    prepare = model.get_params(deep=False)["prepare"]
    automatic = isinstance(prepare, str)
    best = {"prepare": choose_config(pool, np.arange(len(pool))) if automatic else prepare}
    if isinstance(model, TaskThemes):
        best["weights"] = model._settings(pool.is_images).weights
    return best


def _checked(
    values: Mapping[str, Sequence[Any]] | None, model: TaskModel
) -> dict[str, Sequence[Any]]:
    """The values to try, each of which the model can have."""
    if not isinstance(values, Mapping) or not values:
        raise DataError("values must name settings to try: values={'image_themes': [8, 16, 32]}.")
    for name, listed in values.items():
        if name not in model.get_params(deep=False):
            raise DataError(f"values: {name!r} is not a setting of {type(model).__name__}.")
        if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
            raise DataError(f"values[{name!r}]={listed!r} must be a list of values to try.")
        for value in listed:
            clone(model).set_params(**{name: value}).check_settings()
    return dict(values)


@dataclass(frozen=True, eq=False)
class Folds:
    """Groups, or classes, that are held out in turn from what is prepared and learned."""

    pool: ClassPool
    of: tuple[int, ...]
    """The fold of every class."""
    by_group: bool
    held_out: str
    """What is held out, in words."""
    n_way: int
    n_shot: int
    seed: int
    _dealt: dict[tuple[int, PrepareConfig | None], Dealt] = field(default_factory=dict)

    @staticmethod
    def of_classes(tasks: TaskSet, n_way: int, n_shot: int, seed: int) -> "Folds":
        """Folds of the classes of tasks: whole groups, if enough of them can be queried."""
        pool = _few_samples(tasks, 2 * n_shot)
        n_shot = max(1, min(n_shot, int(pool.counts.min()) // 2))
        rng = np.random.default_rng(seed)
        names, of, sizes = np.unique(
            pool.groups or range(len(pool)), return_inverse=True, return_counts=True
        )
        large = rng.permutation(np.flatnonzero(sizes >= 2 * n_way))
        if pool.groups is None or len(large) < _LEAST_GROUPS:
            folds = min(_FOLDS_OF_CLASSES, len(pool) // (n_way + 1))
            if folds < 2:
                raise DataError(
                    f"settings are chosen by tasks of n_way={n_way} held-out classes, which needs "
                    f"{2 * (n_way + 1)} classes without groups; these tasks have {len(pool)}. "
                    "Lower n_way, or leave the settings as they are."
                )
            fold = rng.permutation(len(pool)) % folds
            words = f"{len(pool)} classes held out in {folds} folds"
            pool = replace(pool, groups=None)
            return Folds(pool, tuple(fold.tolist()), False, words, n_way, n_shot, seed)
        fold = rng.permutation(len(names)) % _FOLDS  # small groups cannot be queried in any
        fold[large] = np.arange(len(large)) % _FOLDS
        words = f"{len(large)} held-out groups in {_FOLDS} folds"
        return Folds(pool, tuple(fold[of].tolist()), True, words, n_way, n_shot, seed)

    def dealt(self, fold: int, steps: PrepareConfig | None) -> Dealt:
        """What to query in a fold, with samples prepared without it."""
        if (fold, steps) not in self._dealt:
            splits = tuple("val" if f == fold else "train" for f in self.of)
            pool = replace(self.pool, splits=splits)
            if steps is not None:
                pool = prepared_pool(pool, learn_preparation(pool, pool.classes_in("train"), steps))
            self._dealt[fold, steps] = deal(
                pool, None, self.n_way, self.n_shot, (_QUERIES, _CANDIDATES), self.seed
            )
        return self._dealt[fold, steps]

    def scores(
        self, model: TaskModel, settings: Mapping[str, Any], by: str
    ) -> Float[np.ndarray, "units"]:
        """How a model with these settings does, by held-out group or fold of classes."""
        parts = []
        for fold in range(max(self.of) + 1):
            dealt = self.dealt(fold, settings["prepare"])
            own = clone(model).set_params(**{**settings, "prepare": None})
            if by == "retrieval":
                result = dealt.score(ModelSimilarity(own))
                # of the ten nearest where it can be: that varies less by chance
                part = result.at_10 if self.by_group else result.at_1
            else:
                with without_advice():
                    nats = own.fit(dealt.train).embed(dealt.queries).elbo
                owner = dealt.owners[0]
                part = np.array([nats[owner == name].mean() for name in np.unique(owner)])
            parts.append(part if self.by_group else part.mean(keepdims=True))
        return np.concatenate(parts)


def usual_values(pool: ClassPool, usual: PrepareConfig | None) -> dict[str, list[Any]]:
    """What is tried of every setting of :class:`taskscape.TaskThemes`, most promising first."""
    dims, least = int(np.prod(pool.sample_shape)), min(map(float, pool.take(pool.rows[:1000]).flat))
    steps = [PrepareConfig(), PrepareConfig(pca=128), PrepareConfig(l2=True, pca=64)]
    if pool.is_images:
        steps = [PrepareConfig(), PrepareConfig(edges=5, pca=64)]
    elif least >= 0:
        steps += [PrepareConfig(power=0.5, l2=True), PrepareConfig(power=0.5, l2=True, pca=128)]
    few = min(dims, pool.n_samples // 2)
    steps = [s if s.edges or (s.pca or 0) < few else replace(s, pca=None) for s in steps]
    return {
        "prepare": [s for s in dict.fromkeys(steps) if s != usual],
        "weights": [
            WEIGHTS["features" if pool.is_images else "images"],
            {"image_themes": 1.0},
            {"kernel": 1.0},
        ],
        "temperature": [1.0, 10.0],
        "image_themes": [64],
    }


def _few_samples(tasks: TaskSet, least: int) -> ClassPool:
    """The classes of the tasks by themselves, with so many samples as are looked at."""
    pool = tasks.pool.subset(tasks.class_ids.tolist())
    each = max(least, _SAMPLES // len(pool))
    of = zip(pool.starts, pool.counts, strict=True)
    rows = [start + evenly_spaced(np.arange(n), each) for start, n in of]
    counts = np.array([len(r) for r in rows])
    return replace(
        pool, samples=pool.samples[np.concatenate(rows)], starts=np.cumsum(counts) - counts,
        counts=counts, class_digests=None, sample_names=None, given_rows=None,
    )  # fmt: skip
