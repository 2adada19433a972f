"""Targets, ways to choose for them, what to expect, and the advice that comes of it."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import t as student

from target_cases import DIMS, mixed_pool
from taskscape import DataError, TaskSet, TaskThemes, make_tasks, sample_tasks
from taskscape.pools import ClassPool
from taskscape.pools.glyphs import BLOCKS, SCRIPTS
from taskscape.similarity import make_similarity
from taskscape.similarity.retrieval import score_retrieval
from taskscape.statistics import Interval
from taskscape.targets import (
    Advice,
    AdvisorSettings,
    GainModel,
    GainSeen,
    Sources,
    Target,
    advise,
    advise_on,
    find_target,
    target_of_classes,
)
from taskscape.targets.advice import _held_out
from taskscape.targets.advisor import Found, WayTrials, mean_ranks
from taskscape.targets.gains import Expectation, decide, known_experience
from taskscape.themes.task_model import without_advice

SMALL = AdvisorSettings(
    candidates=60, n_way=3, n_shot=3, n_query=6, components=4, updates=8
)  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> ClassPool:
    return mixed_pool()


@pytest.fixture(scope="module")
def sources(pool: ClassPool) -> Sources:
    return Sources.of(pool, SMALL)


@pytest.fixture(scope="module")
def advice(sources: Sources, pool: ClassPool) -> Advice:
    target = sources.target("near left", pool)
    return advise_on(sources.look_at(target), 10, way="auto", trials=2)


# -- targets ------------------------------------------------------------------------------------


def test_a_group_is_a_target_whose_queries_are_not_its_labelled_samples(pool: ClassPool):
    target = find_target("near left", pool, n_way=3, n_shot=3, n_query=6)
    assert target.name == "near left"
    assert target.tasks.n_query == 0
    assert target.queries is not None
    batch = target.queries.pool_rows(slice(None))
    labelled = target.tasks.pool_rows(slice(None)).support
    assert not np.intersect1d(labelled, batch.query).size
    assert np.isin(batch.support, labelled).all()  # a class has the same labelled ones everywhere


def test_every_labelled_sample_is_left_out_once(pool: ClassPool):
    target = find_target("near left", pool, n_way=6, n_shot=4)
    folds = target.folds()
    assert folds is not None
    assert len(folds) == 4 * len(target.tasks)
    batch = folds.pool_rows(slice(None))
    assert np.array_equal(
        np.unique(batch.query), np.unique(target.tasks.pool_rows(slice(None)).support)
    )
    for support, query in zip(batch.support, batch.query, strict=True):
        assert not np.intersect1d(support, query).size


def test_of_many_labelled_samples_five_are_left_out(pool: ClassPool):
    folds = find_target("near left", pool, n_way=6, n_shot=9).folds()
    assert folds is not None
    batch = folds.pool_rows(slice(None))
    assert len(np.unique(batch.query)) == 6 * 5
    assert batch.support_mask.sum(axis=2).tolist() == [[8] * 6] * 5


def test_single_samples_leave_nothing_to_try(pool: ClassPool):
    assert find_target("near left", pool, n_shot=1).folds() is None


def test_few_samples_leave_no_queries(pool: ClassPool):
    target = target_of_classes(pool, np.arange(4), "few", n_shot=10)
    assert target.queries is None
    assert "4 classes, 10 labelled samples" in repr(target)


def test_arrays_from_outside_are_a_target(pool: ClassPool):
    x = np.random.default_rng(0).normal(size=(8, DIMS)).astype(np.float32)
    target = find_target((x, np.repeat([0, 1], 4)), pool)
    assert len(target.tasks) == 1  # both classes make one task
    assert target.queries is None


def test_pictures_are_brought_to_the_form_of_the_pool(tmp_path: Path):
    rng = np.random.default_rng(0)
    dark = ClassPool.from_classes(
        {f"c{i}": _drawings(rng, 8, 255, 0) for i in range(3)}, name="bright ink"
    )
    for name in ("a", "b"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for i, drawing in enumerate(_drawings(rng, 16, 0, 255)):
            Image.fromarray(drawing).save(tmp_path / "mine" / name / f"{i}.png")
    target = find_target(tmp_path / "mine", dark)
    assert target.pool.sample_shape == (8, 8)
    assert "from 16×16 to 8×8 pixels" in target.notes[0]
    assert "bright ink on black" in target.notes[0]
    assert np.median(target.pool.samples) < 100


def _drawings(rng: np.random.Generator, size: int, ink: int, paper: int) -> np.ndarray:
    images = np.full((4, size, size), paper, dtype=np.uint8)
    middle = slice(size // 4, 3 * size // 4)
    images[:, middle, middle] = np.where(rng.random((4, size // 2, size // 2)) < 0.5, ink, paper)
    return images


def test_a_list_of_tasks_is_a_target(pool: ClassPool, tmp_path: Path):
    tasks = sample_tasks(pool, 5, n_way=3, n_shot=2, n_query=3, split="test", seed=1)
    tasks.save(tmp_path / "mine.parquet")
    target = find_target(tmp_path / "mine.parquet", pool)
    assert target.queries is not None
    assert np.array_equal(
        target.queries.pool_rows(slice(None)).query, tasks.pool_rows(slice(None)).query
    )


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nowhere", "neither a file or folder nor a group"),
        (7, "a target is a path, a pool, arrays"),
        ((np.zeros((4, 3)), [0, 0, 1, 1]), "6 dimensions"),
        ((np.zeros((4, DIMS)), [0, 0, 0, 0]), "at least 2"),
    ],
)
def test_what_is_no_target_is_refused(what: object, said: str, pool: ClassPool):
    with pytest.raises(DataError, match=said):
        find_target(what, pool)


# -- ways ---------------------------------------------------------------------------------------


def test_ranks_weigh_measures_alike_whatever_their_scale():
    near = np.array([[1.0, 2.0, 3.0]])
    assert mean_ranks([near, 1000 * near]).tolist() == mean_ranks([near, near]).tolist()


def test_half_is_half_by_chance(sources: Sources, pool: ClassPool):
    outlook = sources.look_at(sources.target("near left", pool))
    near, half = (outlook.choose(way, n, seed=0) for way, n in (("ranks", 5), ("half", 10)))
    assert set(near.tolist()) == set(half[:5].tolist())
    assert len(set(half.tolist())) == 10


def test_ways_that_are_not_known_are_refused(sources: Sources, pool: ClassPool):
    with pytest.raises(DataError, match="way='magic'"):
        advise_on(sources.look_at(sources.target("near left", pool)), 5, way="magic")


# -- what to expect -----------------------------------------------------------------------------


def seen(slope: float, noise: float, targets: int = 12, seed: int = 0) -> list[GainSeen]:
    """Gains that the evidence predicts, on made-up targets."""
    rng = np.random.default_rng(seed)
    result = []
    for t in range(targets):
        for way in ("prototypes", "half"):
            evidence = float(rng.normal())
            gain = slope * evidence + noise * rng.normal()
            result.append(GainSeen(f"t{t}", "protonet", way, 100, gain, evidence))
    return result


def test_evidence_that_foretold_gains_is_believed():
    model = GainModel.fit(seen(slope=0.02, noise=0.002))
    good, bad = (model.expect("prototypes", e) for e in (1.5, -1.5))
    assert good.gain == pytest.approx(0.03, abs=0.006)
    assert bad.gain == pytest.approx(-0.03, abs=0.006)
    assert good.low < good.gain < good.high
    assert bad.loss > 0.9 > 0.1 > good.loss


def test_evidence_that_foretold_nothing_is_not():
    model = GainModel.fit(seen(slope=0.0, noise=0.02))
    e = model.expect("prototypes", 2.0)
    assert e.low < 0 < e.high
    assert e.high - e.low > 0.05


def test_intervals_hold_the_gains_of_other_targets():
    model = GainModel.fit(seen(0.02, 0.01, targets=40))
    others = seen(0.02, 0.01, targets=300, seed=1)
    inside = [e.low <= s.gain <= e.high for s in others for e in [model.expect(s.way, s.evidence)]]
    assert 0.83 < np.mean(inside) < 0.97  # they are 90 % intervals


def test_without_evidence_gains_may_be_whatever_they_were_elsewhere():
    model = GainModel.fit(seen(0.02, 0.002, targets=40))
    others = seen(0.02, 0.002, targets=300, seed=1)
    unknown = {way: model.expect(way, None) for way in model.ways}
    inside = [unknown[s.way].low <= s.gain <= unknown[s.way].high for s in others]
    assert 0.83 < np.mean(inside) < 0.97
    for way, e in unknown.items():
        assert e.gain == pytest.approx(e.usual, abs=0.002)
        lost = np.mean([s.gain < -0.01 for s in others if s.way == way])
        assert e.loss == pytest.approx(lost, abs=0.1)


def test_few_targets_are_no_experience():
    with pytest.raises(DataError, match="at least 4"):
        GainModel.fit(seen(0.02, 0.01, targets=3))


@pytest.mark.parametrize(
    ("whole", "half", "taken"),
    [
        ((0.03, 0.05), (0.01, 0.05), "ranks"),
        ((0.03, 0.30), (0.01, 0.05), "half"),
        ((0.03, 0.30), (0.01, 0.20), "random"),
        ((-0.01, 0.05), (-0.01, 0.05), "random"),
    ],
)
def test_it_knows_when_not_to_choose(
    whole: tuple[float, float], half: tuple[float, float], taken: str
):
    ways = [Expectation(w, g, g - 1, g + 1, loss, g) for w, (g, loss) in
            (("ranks", whole), ("half", half))]  # fmt: skip
    assert decide(ways).way == taken


def test_what_gained_most_elsewhere_is_taken_not_what_looks_best_here():
    usual = Expectation("prototypes", 0.01, 0.0, 0.02, 0.01, usual=0.02)
    lucky = Expectation("ranks", 0.03, 0.02, 0.04, 0.01, usual=0.01)
    assert decide([lucky, usual]).way == "prototypes"
    assert decide([lucky, usual]).expected[0] is lucky


def test_chance_is_not_said_to_be_safer_than_ways_that_were_not_asked():
    # as for playing cards: the table beside it shows that task-themes hardly risk a loss
    best = Expectation("prototypes", -0.06, -0.11, -0.01, 0.8, usual=0.02)
    half = Expectation("half", -0.01, -0.02, 0.01, 0.3, usual=0.01)
    safe = Expectation("themes", 0.01, -0.01, 0.02, 0.05, usual=0.001)
    might = (
        "Choosing nearest by class means gained most on other targets, but might gain nothing here "
        "or lose over a point"
    )
    also = f"{might}, and so might half by mean rank, half by chance."
    assert decide([best, half, safe]).why == also
    assert decide([best, safe]).why == f"{might}."
    assert decide([]).why == "What choosing gains is not known."


def test_experience_comes_with_the_package_and_has_no_test_group():
    known = known_experience("maml")
    assert {s.learner for s in known} == {"maml"}
    assert {s.learner for s in known_experience("another")} == {"protonet"}
    for_testing = {g.name for g in (*SCRIPTS, *BLOCKS) if g.split == "test"}
    assert not for_testing & {s.target for s in known}
    joined = known_experience("maml", joined=True)
    assert {s.target.split("/")[0] for s in joined} == {"glyphs", "omniglot"}
    assert not for_testing & {s.target.split("/")[1] for s in joined}


@pytest.mark.parametrize("joined", [False, True])
def test_more_evidence_for_a_way_is_never_more_risk(joined: bool):
    model = GainModel.fit(known_experience("protonet", joined=joined))
    for way in model.ways:
        expected = [model.expect(way, x * model.scale) for x in np.linspace(-2, 8, 41)]
        assert (np.diff([e.loss for e in expected]) <= 1e-9).all()
        assert (np.diff([e.gain for e in expected]) > 0).all()


def test_pools_of_several_sources_have_an_experience_of_their_own():
    usual = {j: GainModel.fit(known_experience("protonet", joined=j)).usual for j in (False, True)}
    assert max(usual[False], key=usual[False].__getitem__) == "ranks"
    assert max(usual[True], key=usual[True].__getitem__) == "themes"


# -- advice -------------------------------------------------------------------------------------


def test_the_nearest_source_is_where_the_target_lies(sources: Sources, pool: ClassPool):
    outlook = sources.look_at(sources.target("near left", pool))
    for measure in ("themes", "prototypes"):
        assert next(iter(outlook.by_source(measure))) == "left"
    chosen = outlook.choose("prototypes", 10, seed=0)
    assert {sources.group_of[i] for i in chosen} == {"left"}


def test_a_target_unlike_everything_is_not_chosen_for_by_themes(sources: Sources, pool: ClassPool):
    far = np.random.default_rng(0).normal(200, 50, size=(12, DIMS)).astype(np.float32)
    outlook = sources.look_at(sources.target((far, np.repeat([0, 1, 2], 4)), pool))
    assert not outlook.explained
    assert outlook.gap is not None
    assert outlook.gap > 15
    same = outlook.choose("ranks", 10, seed=0)
    assert np.array_equal(same, outlook.choose("prototypes", 10, seed=0))


def test_advice_says_what_is_expected_and_what_was_measured_apart(advice: Advice):
    values = advice.to_dict()
    assert {e["way"] for e in values["expected_gains"]} == {
        "prototypes", "themes", "ranks", "half"
    }  # fmt: skip
    assert set(values["measured_gains"]) == {"prototypes", "themes", "ranks", "half", "all"}
    assert set(values["measured_accuracy"]) == {*values["measured_gains"], "random"}
    assert ": left (" in advice.summary()
    assert "Expected accuracy" in advice.summary()
    json.dumps(values)


def test_expected_accuracy_is_as_sure_as_the_samples_left_out_are_many(
    sources: Sources, pool: ClassPool
):
    def expected(n_shot: int) -> Interval:
        target = target_of_classes(
            pool, pool.classes_in("test"), "near left", n_way=3, n_shot=n_shot
        )
        trials = WayTrials("random", 5, (), None, np.zeros(2), np.full((2, 60), 0.7))
        held_out = _held_out(trials, target)
        assert held_out is not None
        return held_out

    n = 6 * 5  # of each class five, whether it has five, or ten
    reach = student.ppf(0.975, n - 1) * np.sqrt(2 * (0.7 * n + 1) * (0.3 * n + 1) / (n + 2) ** 3)
    assert expected(5).reach == pytest.approx(reach)
    assert expected(10).reach == pytest.approx(reach)
    assert expected(3).reach > 1.2 * reach


def test_expected_accuracies_hold_what_is_measured(sources: Sources, pool: ClassPool):
    """Five samples of a class are few: the share of them that is right says little, its range does.

    On classes that overlap, by nearest class mean: 100 targets of five classes.
    """
    rng, errors, held = np.random.default_rng(0), [], []
    target = target_of_classes(pool, pool.classes_in("test")[:5], "five", n_shot=5)
    for _ in range(100):
        x = 0.4 * rng.normal(size=(5, 1, 8)) + rng.normal(size=(5, 45, 8))

        def right(support: np.ndarray, query: np.ndarray) -> float:
            far = ((query[:, :, None] - support.mean(axis=1)) ** 2).sum(axis=-1)
            return float((far.argmin(axis=2) == np.arange(5)[:, None]).mean())

        labelled, asked = x[:, :5], x[:, 5:]
        folds = [right(np.delete(labelled, i, axis=1), labelled[:, [i]]) for i in range(5)]
        trials = WayTrials("random", 5, (), None, np.zeros(2), np.array([folds, folds]))
        result, truth = _held_out(trials, target), right(labelled, asked)
        assert result is not None
        errors.append(result.value - truth)
        held.append(result.low <= truth <= result.high)
    assert abs(np.mean(errors)) < 0.03
    assert np.mean(held) > 0.9
    assert np.max(errors) > 0.15  # what a share alone would promise


def test_sources_are_as_far_as_what_finds_them_and_half_is_apart(
    sources: Sources, pool: ClassPool, tmp_path: Path
):
    outlook = sources.look_at(sources.target("near left", pool))
    advice = advise_on(outlook, 10, way="half", trials=2)
    assert advice.measure == "ranks"
    assert sum(s.chosen for s in advice.sources) == 5
    assert sum(s.at_random for s in advice.sources) == 5
    assert "; 5 more are at random" in advice.summary()
    assert advice.distance_is in advice.summary()
    nearest = advice.sources[0]
    assert nearest == advice.chosen_from[0]  # the nearest is what most are chosen from
    advice.save(tmp_path / "advice")
    header, *rows = (tmp_path / "advice" / "sources.csv").read_text().splitlines()
    assert header == "source,themes,prototypes,ranks,chosen,at_random"
    assert len(rows) == len(advice.sources)


def test_the_retrieval_test_decides_what_a_distance_to_a_source_is(
    sources: Sources, pool: ClassPool
):
    outlook = sources.look_at(sources.target("near left", pool))
    assert set(sources.tests) == {"themes", "prototypes"}
    assert "too few to test" in str(Found(np.nan, np.nan))
    assert str(Found(0.5, 0.25)) == (
        "A source is as far as its nearest task: that finds the own source of unseen classes in "
        "50 %, the mean over its tasks in 25 %."
    )
    apart = outlook.distances["prototypes"]
    of = np.asarray(sources.group_of)
    for by_nearest, over in ((0.5, np.min), (0.2, np.mean)):
        test = score_retrieval(np.eye(2), np.array(["a", "b"]), np.array(["a", "b"]))
        by = {"at_1": np.full(2, by_nearest), "by_mean": np.full(2, 0.33)}
        asked = replace(outlook, sources=replace(sources))
        vars(asked.sources)["tests"] = {"prototypes": replace(test, **by)}
        output = asked.by_source("prototypes")
        assert output["left"] == pytest.approx(over(apart[:, of == "left"], axis=1).mean())
    assert "as far as the mean over its tasks: that" in str(asked.finds_by("prototypes"))


def test_a_model_that_is_fitted_is_taken_as_it_is(pool: ClassPool, sources: Sources):
    model = TaskThemes(random_state=3).fit(sources.tasks)
    other = Sources.of(pool, SMALL, model=model)
    assert other.similarities["themes"].model is model
    outlook = other.look_at(other.target("near left", pool))
    with without_advice():
        explained = np.median(model.embed(outlook.target.tasks).elbo)
    usual, spread = model.elbo_reference_
    assert outlook.gap == pytest.approx((usual - explained) / spread)


def test_sources_are_named_by_what_tasks_are_chosen_by(pool: ClassPool):
    sources = Sources.of(pool, SMALL, {"prototypes": make_similarity("prototypes")})
    advice = advise_on(
        sources.look_at(sources.target("near left", pool)), 5, way="random", trials=2
    )
    assert re.search(
        r"Nearest to near left by mean rank under .*, in % of the candidates: left \([\d.]+\), ",
        advice.summary(),
    )


def test_tasks_that_share_a_class_are_a_target(pool: ClassPool, tmp_path: Path):
    classes = [["near left 0", "near left 1"], ["near left 0", "near left 2", "near left 3"]]
    tasks = make_tasks(pool, [[*c, "near left 4"] for c in classes], n_shot=3, n_query=4)
    tasks.save(tmp_path / "mine.parquet")
    advice = advise(pool, tmp_path / "mine.parquet", 5, way="random", settings=SMALL, trials=2)
    assert (
        advice.measured_gains["all"].low <= advice.measured_gains["all"].high
    )  # over trainings alone


def test_a_single_sample_of_each_class_is_no_evidence(sources: Sources, pool: ClassPool):
    alone = target_of_classes(pool, pool.classes_in("test"), "alone", n_way=3, n_shot=1)
    advice = advise_on(sources.look_at(alone), 5, trials=2)
    assert advice.expected_accuracy is None
    assert advice.expected_gains is not None
    known = GainModel.fit(known_experience("protonet"))
    for expected in advice.expected_gains:
        assert expected == known.expect(expected.way, None)


def test_advice_is_written_as_tasks_and_classes_to_train_on(
    advice: Advice, sources: Sources, tmp_path: Path
):
    advice.save(tmp_path / "advice")
    advice.save(tmp_path / "advice")  # its own folder may be replaced
    assert Advice.load(tmp_path / "advice", sources.pool).to_dict() == advice.to_dict()
    tasks = TaskSet.load(tmp_path / "advice" / "tasks.parquet", sources.pool)
    assert isinstance(tasks, TaskSet)
    assert len(tasks) == 10
    with (tmp_path / "advice" / "classes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(r["tasks"]) for r in rows) == 10 * 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="not an advice"):
        advice.save(tmp_path / "mine")


def test_only_gains_of_the_same_learner_are_experience(sources: Sources, pool: ClassPool):
    outlook = sources.look_at(sources.target("near left", pool))
    ledger = [*known_experience("protonet"), *known_experience("maml")]
    alone, both = (advise_on(outlook, 5, trials=2, experience=e) for e in (None, ledger))
    assert both.to_dict() == alone.to_dict()
    with pytest.raises(DataError, match="no gains of abml; it has those of maml, protonet"):
        advise_on(outlook, 5, learner="abml", experience=ledger)


def test_a_target_is_never_among_its_own_sources(pool: ClassPool):
    advice = advise(pool, "left", 5, way="random", settings=SMALL, trials=2)
    assert not any(name.startswith("left") for name in advice.chosen.pool.class_names)
    assert [s.name for s in advice.sources] != []


def test_its_classes_are_known_by_their_samples_whatever_they_are_called(
    pool: ClassPool, sources: Sources
):
    part = pool.subset([f"left {c}" for c in range(4)])
    copy = ClassPool.from_classes({f"mine {c}": part.samples_of(c) for c in range(4)})
    for target in (part, copy):
        advice = advise(pool, target, 5, way="random", settings=SMALL, trials=2)
        assert [n for n in advice.chosen.pool.class_names if n[:4] == "left"] == [
            "left 4", "left 5"
        ]  # fmt: skip
    for what in ("left", "right"):
        with pytest.raises(DataError) as error:
            sources.look_at(sources.target(what, pool))
        assert str(error.value) == (
            f"6 classes of the sources, such as '{what} 0', are the target's own: what is trained "
            f"on them has seen '{what}'. Draw the sources from a pool without them, or ask advise, "
            "which leaves them out."
        )
    with pytest.raises(DataError) as error:
        advise(part, part, 5, settings=SMALL)
    assert str(error.value) == (
        "all 4 classes of 'mixed' are those of the target 'mixed'; there is nothing to train on. "
        "Give a pool with others."
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 0}, "n=0 must be at least 1"),
        ({"way": "magic"}, "way='magic'"),
        ({"trials": 1}, "at least 2"),
        ({"learner": "nobody"}, "nobody"),
        ({"experience": []}, r"^experience has no gains of protonet; it has those of nobody\.$"),
        (
            {"experience": known_experience("maml")},
            r"^experience has no gains of protonet; it has those of maml\.$",
        ),
        (
            {"experience": [GainSeen("a", "protonet", "half", 100, 0.01, 0.0)]},
            r"^gains were seen on 1 targets; at least 4 are needed to know what to expect on",
        ),
    ],
)
def test_bad_requests_are_refused_before_anything_is_fitted(
    options: dict, said: str, pool: ClassPool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Sources, "of", lambda *_: pytest.fail("it began"))
    with pytest.raises(DataError, match=said):
        advise(pool, "near left", **{"n": 5, "settings": SMALL, **options})


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"updates": 0}, "updates=0 must be at least 1."),
        ({"batch_size": 0}, "batch_size=0 must be at least 1."),
        ({"n_query": 0}, "n_query=0 must be at least 1."),
        ({"n_shot": -1}, "n_shot=-1 must be at least 1."),
        ({"n_way": 1}, "n_way=1 must be at least 2."),
        ({"candidates": 0}, "candidates=0 must be at least 1."),
        ({"components": -1}, "components=-1 must be at least 0."),
        ({"seed": -1}, "seed=-1 must be at least 0."),
    ],
)
def test_settings_that_mean_nothing_are_refused(sizes: dict, said: str):
    with pytest.raises(DataError) as error:
        AdvisorSettings(**sizes)
    assert str(error.value) == said


def test_sizes_of_a_target_that_mean_nothing_are_refused(pool: ClassPool):
    for sizes in ({"n_way": 1}, {"n_shot": 0}, {"n_query": -1}):
        ((name, value),) = sizes.items()
        with pytest.raises(DataError, match=f"^{name}={value} must be at least [012]"):
            find_target("near left", pool, **sizes)


def test_targets_have_a_short_face(pool: ClassPool):
    assert isinstance(find_target("left", pool), Target)
    assert len(repr(find_target("left", pool))) < 100
