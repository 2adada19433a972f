"""The whole study: what it leaves behind, and that finished stages are never made twice."""

import csv
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from meta_cases import toy_pool
from run_cases import TINY, Recorder, go, own_features, tiny
from target_cases import DIMS, mixed_pool
from taskscape import Embeddings, TaskThemes, load_pool, sample_tasks
from taskscape.diagram import correlation_diagram, read_diagram_csv
from taskscape.errors import DataError
from taskscape.report import render_report
from taskscape.similarity import PrototypeDistance, RetrievalTest
from taskscape.study import StudyResult, config_from, learn, load_study, read_config
from taskscape.study.choosing import open_targets
from taskscape.study.plan import make_plan

pytestmark = pytest.mark.slow
STAGES = [
    "data", "fit", "embed", "health", "distances", "learners/protonet", "diagram",
    "selection/chosen", "selection/protonet", "forecast",
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyResult, Recorder]:
    out = tmp_path_factory.mktemp("study") / "out"
    return out, *go(out, command="taskscape run")


def contents(out: Path) -> dict[str, bytes]:
    """All results but what tells of times."""
    ignored = ("stage.json", "study.json", "header.json")
    files = [p for p in sorted(out.rglob("*")) if p.is_file() and p.name not in ignored]
    return {str(p.relative_to(out)): p.read_bytes() for p in files}


def test_every_stage_leaves_its_files(whole):
    out, result, heard = whole
    assert heard.stages == heard.made == STAGES
    for name in (
        "study.toml", "study.json", "results.json", "data/data.json", "data/contact_sheet.png",
        "data/classes.csv",
        "fit/model/arrays.safetensors", "embed/train.parquet", "embed/val.parquet",
        "embed/test.parquet", "health/health.json", "distances/distances.parquet",
        "diagram/tasks.csv", "distances/resemblance.json", "learners/protonet/test.parquet",
        "learners/protonet/val.parquet", "diagram/diagram.json",
        "diagram/diagram.png", "selection/chosen/chosen.json", "selection/protonet/selection.json",
        "forecast/forecast.json",
    ):  # fmt: skip
        assert (out / name).is_file(), name
    assert TaskThemes.load(out / "fit" / "model").fingerprint_ == result.model.fingerprint_
    assert len(Embeddings.load(out / "embed" / "test.parquet")) == len(result.test) == 30
    assert not list(out.glob("*.checkpoint"))
    assert all(0 <= part <= 1.001 for part in heard.parts)


def test_the_sheet_of_tasks_lists_classes_by_name(whole):
    out, result, _ = whole
    with (out / "diagram" / "tasks.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    listed = [tuple(json.loads(row["classes"])) for row in rows]
    assert listed == [result.test.names(i) for i in range(30)]


def test_the_diagram_command_reads_what_a_study_wrote(whole):
    out, result, _ = whole
    data = read_diagram_csv(out / "diagram" / "tasks.csv")
    np.testing.assert_allclose(data.distance, result.distance, rtol=1e-6)
    np.testing.assert_allclose(data.accuracy["ProtoNet"], result.accuracy["ProtoNet"], atol=1e-6)
    again = correlation_diagram(data.distance, data.accuracy, classes=data.classes)
    assert again.curves[0].learner == "ProtoNet"


def test_the_sheet_of_classes_tells_splits(whole):
    out, result, _ = whole
    path = out / "data" / "classes.csv"
    assert b"\r" not in path.read_bytes()
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == list(result.pool.class_names)
    assert load_pool(result.pool, splits=path).fingerprint == result.pool.fingerprint


def test_the_result_is_complete(whole):
    _, result, _ = whole
    assert result.distance.shape == result.difficulty.shape == (30,)
    assert result.nearest.shape == result.nearest_distance.shape == (30, 4)
    assert result.nearest.max() < len(result.train)
    assert result.accuracy["ProtoNet"].shape == (30, 3)
    assert result.diagram is not None
    assert [c.learner for c in result.diagram.curves] == ["ProtoNet"]
    cells = [(t.rule, t.budget, t.trial) for t in result.selection]
    assert cells == [("random", 10, t) for t in range(3)] + [("nearest", 10, t) for t in range(2)]
    assert [(g.rule, g.budget, g.low < g.value < g.high) for g in result.gains] == [
        ("nearest", 10, True)
    ]
    assert len(result.forecasts["ProtoNet"]) == result.evaluations["ProtoNet"].n_tasks == 30
    assert set(result.forecasts["ProtoNet"].reasons) >= {"own difficulty"}
    assert set(result.timings) == set(STAGES)
    assert result.settings["tasks"]["n_way"] == 3
    assert result.command == "taskscape run"
    assert result.retrieval is not None
    assert (
        "A test task has 3 classes that were not trained on, with 2 labelled samples of each."
        in (result.summary())
    )
    parts = ["map", "map", "diagram", "diagram", "forecasts", "selection"]
    assert [finding.about for finding in result.findings] == parts
    assert result.ties is not None
    assert result.ties.shape == (30,)
    assert result.ties.min() >= 1
    assert result.nearest_by_classes is not None
    assert result.nearest_by_classes.shape == (30, 4)


def test_what_is_written_says_what_was_found(whole):
    out, result, _ = whole
    output = json.loads((out / "results.json").read_text())
    assert output == json.loads(json.dumps(output))
    assert output["findings"] == [asdict(finding) for finding in result.findings]
    assert output["remarks"] == list(result.remarks())
    assert output["accuracy"] == {"ProtoNet": pytest.approx(result.accuracy["ProtoNet"].mean())}
    about = json.loads((out / "study.json").read_text())
    assert {"command", "seed", "settings", "timings", "versions", "hardware"} <= set(about)
    fit, health = (
        json.loads((out / name / f"{name}.json").read_text()) for name in ("fit", "health")
    )
    paper = result.model.co_clustering_
    assert fit["held_out"] == paper.held_out_
    assert paper.held_out_.endswith("(in-sample)")  # of a handful of training classes
    assert health["retrieval"] == output["retrieval"]
    assert RetrievalTest.from_dict(output["retrieval"]).summary() == result.retrieval.summary()
    assert read_config(out / "study.toml").to_dict() == result.settings
    assert result.settings["data"] == "arrays"  # the pool's name: it was given, not opened


def test_a_finished_study_is_read_back(whole, tmp_path):
    out, result, _ = whole
    read = load_study(out, toy_pool())
    assert read.to_dict() == result.to_dict()
    assert (read.command, read.settings, read.timings) == (
        "taskscape run", result.settings, result.timings,
    )  # fmt: skip
    assert (read.versions, read.hardware) == (result.versions, result.hardware)
    np.testing.assert_array_equal(read.nearest, result.nearest)
    assert read.selection == result.selection
    assert repr(read) == "StudyResult('arrays': 30 test and 56 training tasks, ProtoNet)"
    assert read.summary() == result.summary()
    other = replace(toy_pool(), class_names=tuple(f"k{c}" for c in range(24)))
    with pytest.raises(DataError, match="is not the data that the study in"):
        load_study(out, other)
    with pytest.raises(DataError, match=r"holds no finished study: it has no study\.json"):
        load_study(tmp_path, toy_pool())
    half = tmp_path / "half"
    shutil.copytree(out, half)
    shutil.rmtree(half / "diagram")
    with pytest.raises(DataError, match=r"stage 'diagram' in .* is not finished. Run the study"):
        load_study(half, toy_pool())
    note = json.loads((half / "embed" / "stage.json").read_text())
    edited = {**note, "needs": {"fit": "other"}}
    (half / "embed" / "stage.json").write_text(json.dumps(edited))
    with pytest.raises(DataError, match=r"stage 'embed' in .* with other settings or stages"):
        load_study(half, toy_pool())


def test_a_study_finds_its_data_from_another_folder(whole, tmp_path, monkeypatch):
    out, run_in = tmp_path / "out", tmp_path / "there"
    shutil.copytree(whole[0], out)
    toy_pool().save(run_in / "mine")
    about = json.loads((out / "study.json").read_text())
    assert about["folder"] == str(Path.cwd())
    about["folder"], about["settings"]["data"] = str(run_in), "mine"
    (out / "study.json").write_text(json.dumps(about))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert load_study(out).pool.fingerprint == toy_pool().fingerprint
    assert Path.cwd() == tmp_path / "here"


def test_interrupted_it_continues_to_the_same_results(whole, tmp_path, monkeypatch):
    def fail(*args: object, **rest: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learn, "correlation_diagram", fail)
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "out")
    assert not (tmp_path / "out" / "diagram").exists()
    _, heard = go(tmp_path / "out", resume=True, command="taskscape run")
    assert heard.reused == STAGES[:6]
    assert heard.made == STAGES[6:]
    assert contents(tmp_path / "out") == contents(whole[0])
    _, again = go(tmp_path / "out", resume=True)
    assert again.reused == STAGES
    assert contents(tmp_path / "out") == contents(whole[0])


def test_changed_settings_make_only_what_depends_on_them(whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    _, heard = go(out, tiny(selection={"updates": 9}), resume=True)
    assert heard.made == ["selection/protonet"]
    _, heard = go(out, tiny(selection={"updates": 9}, diagram={"n_bins": 3}), resume=True)
    assert heard.made == ["diagram"]
    other = replace(toy_pool(), class_names=tuple(f"k{c}" for c in range(24)))
    _, heard = go(out, tiny(), other, resume=True)
    assert heard.made == STAGES


def test_a_folder_is_not_written_over(whole, tmp_path):
    out = whole[0]
    with pytest.raises(DataError, match=r"already has study.toml.*--resume.*--overwrite.*--out"):
        go(out)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match=r"data was not written by a study.*another --out"):
        go(tmp_path, overwrite=True)
    assert (tmp_path / "data" / "mine.txt").read_text() == "keep"
    with pytest.raises(DataError, match="use one of them"):
        go(tmp_path, overwrite=True, resume=True)


def test_damaged_stages_are_named(whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    (out / "embed" / "test.parquet").write_bytes(b"nothing")
    message = r"stage 'embed' is damaged: .*test\.parquet is not as it was written\."
    with pytest.raises(DataError, match=message):
        load_study(out, toy_pool())
    with pytest.warns(UserWarning, match=message):
        _, heard = go(out, resume=True)
    assert heard.made == ["embed"]
    note = out / "health" / "stage.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"warnings": True}))
    with pytest.raises(DataError, match=r"stage 'health' in .* is damaged"):
        load_study(out, toy_pool())


def test_own_features_without_splits_with_all_rules(tmp_path):
    rules = {"rules": ["coverage", "task2vec"], "n_shot": 2, "budgets": [6, 10]}
    config = tiny(selection=rules)
    pool = load_pool(own_features(n_classes=30))
    result, heard = go(tmp_path / "out", config, pool)
    assert "dealt out by class with seed 0: 18 train, 6 val, 6 test" in heard.notes[0]
    assert {t.rule for t in result.selection} == {"random", "coverage", "task2vec"}
    assert len(result.selection) == 2 * (3 + 2 + 2)
    assert [(g.rule, g.budget) for g in result.gains] == [
        (rule, budget) for rule in ("coverage", "task2vec") for budget in (6, 10)
    ]
    output = json.loads((tmp_path / "out" / "selection" / "chosen" / "chosen.json").read_text())
    by_cell = {(c["rule"], c["trial"], c["budget"]): c["tasks"] for c in output}
    assert by_cell["coverage", 1, 10][:6] == by_cell["coverage", 1, 6]
    assert result.to_dict()["notes"] == result.notes == heard.notes
    assert np.isfinite(result.difficulty).all()


def test_a_study_says_what_to_train_on_for_targets(tmp_path):
    x = np.random.default_rng(1).normal(8, 1, size=(12, DIMS)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", X=x, y=np.repeat(np.arange(3), 4))
    asked = {
        "names": ["near left", str(tmp_path / "mine.npz")], "budget": 6, "candidates": 30,
        "n_shot": 3, "n_query": 6, "trials": 2, "updates": 4,
    }  # fmt: skip
    sections = {**TINY, "targets": asked}
    result, heard = go(tmp_path / "out", config_from(sections), mixed_pool())
    assert "targets" in heard.made
    inside, outside = result.targets
    assert inside.sources[0].name == "left"
    assert set(inside.measured_gains) == {"prototypes", "themes", "ranks", "half", "all"}
    assert outside.measured_gains == {}
    assert [finding.about for finding in result.findings[:2]] == ["map", "targets"]
    page = render_report(result)
    assert "What to train on" in page
    assert "mine.npz" in page
    (tmp_path / "mine.npz").unlink()  # what was found is read back without it
    again = load_study(tmp_path / "out", mixed_pool())
    assert [a.to_dict() for a in again.targets] == [a.to_dict() for a in result.targets]


def test_targets_are_kept_out_of_training(tmp_path):
    """A group that was dealt to training, and a folder of the same samples as one."""
    pool = mixed_pool()
    left = pool.subset([f"left {c}" for c in range(6)])
    copies = np.concatenate([left.samples_of(c) for c in range(6)])
    np.savez(tmp_path / "copy.npz", X=copies, y=np.repeat(range(6), 12))
    assert set(left.splits) == {"train"}
    small = {"budget": 6, "candidates": 30, "n_shot": 3, "n_query": 6, "trials": 2, "updates": 4}
    config = config_from({**TINY, "targets": {"names": [str(tmp_path / "copy.npz")], **small}})
    result, _ = go(tmp_path / "out", config, pool)
    assert set(result.pool.subset(left.class_names).splits) == {"test"}
    assert "6 classes of the targets are test classes, and not trained on." in result.notes
    trained = np.unique(result.targets[0].chosen.class_ids)
    assert not {result.targets[0].chosen.pool.class_names[c] for c in trained} & {*left.class_names}
    (tmp_path / "copy.npz").unlink()
    assert load_study(tmp_path / "out", pool).pool.splits == result.pool.splits
    by_name = config_from({**TINY, "targets": {"names": ["left"], **small}})
    plan, _ = open_targets(make_plan(pool, by_name))
    assert plan.pool.splits == result.pool.splits


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"names": ["nowhere"]}, "neither a file or folder nor a group"),
        ({"names": ["near left"], "n_shot": 12}, r"^n_shot=12 \+ n_query=1 needs 13 samples"),
        (
            {"names": ["near left", "near left"]},
            r"^targets\.names=\['near left', 'near left'\] names one twice\.$",
        ),
        (
            {"names": ["near left"], "learners": ["maml", "maml"]},
            r"^targets\.learners=\['maml', 'maml'\] names one twice\.$",
        ),
    ],
)
def test_what_is_wrong_with_targets_is_told_before_work_begins(tmp_path, asked, said):
    config = config_from({**TINY, "targets": asked})
    with pytest.raises(DataError, match=said):
        go(tmp_path / "out", config, mixed_pool())
    assert not (tmp_path / "out").exists()


def test_targets_are_told_apart_and_known_by_their_samples(tmp_path):
    plan = make_plan(mixed_pool(), tiny())

    def opened(*names: str) -> tuple[list[str], tuple[str, ...]]:
        asked = replace(plan.config.targets, names=names, n_shot=3, n_query=5)
        then, targets = open_targets(replace(plan, config=replace(plan.config, targets=asked)))
        return [t.name for t in targets], then.config.targets.fingerprints

    rng = np.random.default_rng(1)
    paths = [str(tmp_path / folder / "mine.npz") for folder in "ab"]
    for path in paths:
        Path(path).parent.mkdir()
        np.savez(path, X=rng.normal(size=(12, DIMS)), y=np.repeat(np.arange(3), 4))
    assert opened(*paths)[0] == paths
    assert opened("near left", paths[0])[0] == ["near left", "mine.npz"]
    known = []
    for seed in (0, 1):
        tasks = sample_tasks(plan.pool, 2, n_way=3, n_shot=2, split="test", seed=seed)
        tasks.save(tmp_path / "tasks.parquet")
        known.append(opened(str(tmp_path / "tasks.parquet"))[1])
    assert known[0] != known[1]  # another list over the same pool


def test_a_study_by_another_similarity(tmp_path):
    rules = {"rules": ["coverage", "nearest:hardness", "nearest:task_themes"], "repeats": 1}
    config = replace(tiny(selection=rules), similarity="prototypes")
    result, _ = go(tmp_path / "out", config)
    plan = make_plan(toy_pool(), config)
    measure = PrototypeDistance().fit(plan.train)
    distances = measure.distances(plan.test, plan.train)
    np.testing.assert_allclose(result.distance, distances.mean_distance())
    assert result.resemblance is not None
    assert result.resemblance.measure == "PrototypeDistance"
    assert result.resemblance.validation is not None
    assert result.diagram is not None
    assert result.diagram.distance_label == "mean distance to the training tasks (prototypes)"
    assert {t.rule for t in result.selection} == {"random", *rules["rules"]}
