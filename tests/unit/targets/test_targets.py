"""Targets, ways to choose for them, what to expect, and the advice that comes of it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from target_cases import DIMS, mixed_pool
from taskscape import DataError, TaskSet, load_tasks, sample_tasks, save_tasks
from taskscape.pools import ClassPool
from taskscape.pools.glyphs import BLOCKS, SCRIPTS
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
from taskscape.targets.gains import Expectation, decide, known_experience
from taskscape.targets.ways import choose, mean_ranks

SMALL = AdvisorSettings(
    candidates=60, n_way=3, n_shot=3, n_query=6, image_themes=2, task_themes=2, components=4,
    updates=8,
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
    return advise_on(sources, target, 10, way="auto", trials=2)


# -- targets ------------------------------------------------------------------------------------


def test_a_group_is_a_target_whose_queries_are_not_its_labelled_samples(pool: ClassPool):
    target = find_target("near left", pool, n_way=3, n_shot=3, n_query=6)
    assert target.tasks.n_query == 0
    assert target.queries is not None
    batch = target.queries.batch(slice(None))
    labelled = target.tasks.batch(slice(None)).support
    assert not np.intersect1d(labelled, batch.query).size
    assert np.isin(batch.support, labelled).all()  # a class has the same labelled ones everywhere
    assert target.n_labelled == 6 * 3


def test_every_labelled_sample_is_left_out_once(pool: ClassPool):
    target = find_target("near left", pool, n_way=6, n_shot=4, n_tasks=5)
    folds = target.folds()
    assert folds is not None
    assert len(folds) == 4 * len(target.tasks)
    batch = folds.batch(slice(None))
    assert np.array_equal(
        np.unique(batch.query), np.unique(target.tasks.batch(slice(None)).support)
    )
    for support, query in zip(batch.support, batch.query, strict=True):
        assert not np.intersect1d(support, query).size


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
    save_tasks(tasks, tmp_path / "mine.parquet")
    target = find_target(tmp_path / "mine.parquet", pool)
    assert target.queries is not None
    assert np.array_equal(target.queries.batch(slice(None)).query, tasks.batch(slice(None)).query)


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


def test_ranks_weigh_notions_alike_whatever_their_scale():
    near = np.array([[1.0, 2.0, 3.0]])
    assert mean_ranks([near, 1000 * near]).tolist() == mean_ranks([near, near]).tolist()


def test_half_is_half_by_chance():
    distances = {"a": np.arange(40.0)[None]}
    chosen = choose("half", distances, 10, seed=0)
    assert set(range(5)) <= set(chosen.tolist())
    assert len(set(chosen.tolist())) == 10


def test_a_budget_beyond_the_candidates_is_refused():
    with pytest.raises(DataError, match="between 1 and the 3"):
        choose("random", {"a": np.ones((1, 3))}, 4, seed=0)
    with pytest.raises(DataError, match="not known"):
        choose("magic", {"a": np.ones((1, 3))}, 2, seed=0)


# -- what to expect -----------------------------------------------------------------------------


def seen(slope: float, noise: float, targets: int = 12, seed: int = 0) -> list[GainSeen]:
    """Gains that the evidence foretells, on made-up targets."""
    rng = np.random.default_rng(seed)
    found = []
    for t in range(targets):
        for way in ("prototypes", "half"):
            evidence = float(rng.normal())
            gain = slope * evidence + noise * rng.normal()
            found.append(GainSeen(f"t{t}", "protonet", way, 100, gain, evidence))
    return found


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
    ways = [Expectation(w, g, g - 1, g + 1, loss) for w, (g, loss) in
            (("ranks", whole), ("half", half))]  # fmt: skip
    assert decide(ways).way == taken


def test_experience_comes_with_the_package_and_has_no_test_group():
    known = known_experience("maml")
    assert {s.learner for s in known} == {"maml"}
    assert {s.learner for s in known_experience("another")} == {"protonet"}
    for_testing = {g.name for g in (*SCRIPTS, *BLOCKS) if g.split == "test"}
    assert not for_testing & {s.target for s in known}


# -- advice -------------------------------------------------------------------------------------


def test_the_nearest_source_is_where_the_target_lies(sources: Sources, pool: ClassPool):
    outlook = sources.look_at(sources.target("near left", pool))
    for notion in ("task_themes", "prototypes"):
        assert next(iter(outlook.by_source(notion))) == "left"
    chosen = outlook.choose("prototypes", 10, seed=0)
    assert {sources.group_of[i] for i in chosen} == {"left"}


def test_a_target_unlike_everything_is_not_chosen_for_by_task_themes(
    sources: Sources, pool: ClassPool
):
    far = np.random.default_rng(0).normal(200, 50, size=(12, DIMS)).astype(np.float32)
    outlook = sources.look_at(sources.target((far, np.repeat([0, 1, 2], 4)), pool))
    assert not outlook.explained
    assert outlook.gap is not None
    assert outlook.gap > 8
    same = outlook.choose("ranks", 10, seed=0)
    assert np.array_equal(same, outlook.choose("prototypes", 10, seed=0))


def test_advice_says_what_is_expected_and_what_was_measured_apart(advice: Advice):
    values = advice.to_dict()
    assert {e["way"] for e in values["expected_gains"]} == {
        "prototypes", "task_themes", "ranks", "half"
    }  # fmt: skip
    assert set(values["measured_gains"]) == {"prototypes", "task_themes", "ranks", "half"}
    assert "nearest sources left" in advice.summary()
    assert "Expected accuracy" in advice.summary()
    json.dumps(values)


def test_advice_is_written_as_tasks_and_classes_to_train_on(
    advice: Advice, sources: Sources, tmp_path: Path
):
    advice.save(tmp_path / "advice")
    advice.save(tmp_path / "advice")  # its own folder may be replaced
    tasks = load_tasks(tmp_path / "advice" / "tasks.parquet", sources.pool)
    assert isinstance(tasks, TaskSet)
    assert len(tasks) == 10
    with (tmp_path / "advice" / "classes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(r["tasks"]) for r in rows) == 10 * 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="not an advice"):
        advice.save(tmp_path / "mine")


def test_a_target_is_never_among_its_own_sources(pool: ClassPool):
    advice = advise(pool, "left", 5, way="random", settings=SMALL, trials=2)
    assert not any(name.startswith("left") for name in advice.chosen.pool.class_names)
    assert [s.name for s in advice.sources] != []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 0}, "between 1 and the 60"),
        ({"way": "magic"}, "way='magic'"),
        ({"trials": 1}, "at least 2"),
        ({"learner": "nobody"}, "nobody"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_fitted(
    options: dict, said: str, pool: ClassPool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Sources, "of", lambda *_: pytest.fail("it began"))
    with pytest.raises(DataError, match=said):
        advise(pool, "near left", **{"n": 5, "settings": SMALL, **options})


def test_targets_have_a_short_face(pool: ClassPool):
    assert isinstance(find_target("left", pool), Target)
    assert len(repr(find_target("left", pool))) < 100
