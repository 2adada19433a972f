import csv
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fit_cases import fitted_themes, small_tasks
from taskscape.cli import app
from taskscape.cli import file_distances as compare
from taskscape.diagram import join_accuracies
from taskscape.embeddings import Catalogue, Embeddings
from taskscape.errors import DataError
from taskscape.pools import ClassPool, load_pool
from taskscape.select import Selection
from taskscape.similarity import SIMILARITIES, resemblance
from taskscape.tasks import TaskSet, make_tasks, sample_tasks
from taskscape.tasks.class_lists import write_classes

RNG = np.random.default_rng(0)
POOL = ClassPool.from_arrays(
    RNG.normal(size=(300, 3)),
    np.repeat(np.arange(30), 10),
    class_names=[f"class {i}" for i in range(30)],
    splits=["train"] * 20 + ["test"] * 10,
)
THEMES = RNG.dirichlet(np.full(4, 0.3), 30)


def embedded(tasks, model="m"):
    real = (tasks.classes >= 0)[:, :, None]
    lam = 0.5 + (THEMES[np.maximum(tasks.classes, 0)] * real).sum(axis=1)
    return Embeddings.of(tasks, lam.astype(np.float32), model=model, delta=0.5)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    train = sample_tasks(POOL, 2000, split="train", n_way=(2, 4), n_shot=3, n_query=1)
    test = sample_tasks(POOL, 40, split="test", n_way=3, n_shot=3)
    train.save(folder / "train_tasks.parquet")
    embedded(train).save(folder / "train.parquet")
    embedded(test).save(folder / "test.parquet")
    embedded(test, model="other").save(folder / "other.parquet")
    Catalogue.append(folder / "catalogue", embedded(train)[:500])
    Catalogue.append(folder / "catalogue", embedded(train)[500:])
    return folder


@pytest.fixture(scope="module")
def run():
    def invoke(*words):
        result = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


@pytest.mark.parametrize("command", ["compare", "nearest", "select", "diagram"])
def test_help_has_an_example(run, command):
    assert "Example:" in run(command, "--help")


@pytest.mark.parametrize("train", ["train.parquet", "catalogue"])
def test_compare(run, files, tmp_path, train):
    out = tmp_path / "d.csv"
    words = run("compare", files / "test.parquet", files / train, "--out", out)
    assert "Is the test set like the training set?" in words
    assert "mean distance to all training tasks: median" in words
    output = json.loads(run("compare", files / "test.parquet", files / train, "--json"))
    assert len(output["mean_distance"]) == 40
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[3]["distance"]) == pytest.approx(output["mean_distance"][3])
    test = Embeddings.load(files / "test.parquet")
    assert json.loads(rows[3]["classes"]) == list(test.names(3))
    assert len(test.names(3)) == 3


def test_tasks_of_one_group_find_each_other(run, files, tmp_path):
    rng = np.random.default_rng(0)
    places = 5 * rng.normal(size=(4, 3))[np.repeat(np.arange(4), 10)]
    np.savez(
        tmp_path / "own.npz",
        X=np.repeat(places, 8, axis=0) + rng.normal(size=(320, 3)),
        y=np.repeat(np.arange(40), 8),
        groups=np.repeat([f"g{i // 10}" for i in range(40)], 8),
    )
    asked = ["compare", "--retrieval", "--data", tmp_path / "own.npz", "--similarity", "task_means"]
    words = run(*asked, "--out", tmp_path / "who.png")
    assert words.startswith("Tasks of one group find each other in")
    assert "prototypes:" in words
    assert (tmp_path / "who.png").exists()
    small = [*asked, "--n-way", 3, "--n-shot", 2, "--json"]
    assert json.loads(run(*small))["measure"]["precision"]["value"] > 0.5
    with pytest.raises(DataError, match="--retrieval needs --data"):
        run("compare", "--retrieval")
    with pytest.raises(DataError, match="--n-way has no effect with TEST and TRAIN"):
        run("compare", files / "test.parquet", files / "test.parquet", "--n-way", 3)
    with pytest.raises(DataError, match="TEST and TRAIN have no effect with --retrieval"):
        run(*asked[:1], files / "test.parquet", *asked[1:])
    with pytest.raises(DataError, match="give TEST and TRAIN"):
        run("compare")


def test_compare_says_what_resemblance_says(run, files, tmp_path):
    POOL.save(tmp_path / "pool")
    asked, known = files / "test.parquet", files / "train.parquet"
    measure = ["--similarity", "task_themes", "--data", tmp_path / "pool"]
    words = run("compare", asked, known, *measure)
    own = resemblance(Embeddings.load(asked), Embeddings.load(known), "task_themes", pool=POOL)
    assert own.verdict in words
    assert "Unknown: give --data" in run("compare", asked, known)


def test_embedded_tasks_are_compared_by_one_factor(run, tmp_path):
    for name, seed in (("test", 1), ("train", 2)):
        posteriors = fitted_themes().embed(small_tasks(40, seed=seed))
        posteriors.save(tmp_path / f"{name}.parquet")
    files = [tmp_path / "test.parquet", tmp_path / "train.parquet"]
    far = {}
    for name in ("themes", "image_themes", "position", "task_themes"):
        output = json.loads(run("compare", *files, "--similarity", name, "--json"))
        far[name] = output["mean_distance"]
        words = run("compare", *files, "--similarity", name)
        assert (" nats (5 %" in words) == (name in ("image_themes", "task_themes"))
        chosen = run("select", *files, "-n", 3, "--similarity", name)
        assert chosen.startswith("3 tasks by rule 'coverage'")
    assert len({tuple(values) for values in far.values()}) == 4
    lam = tmp_path / "lam.parquet"
    Embeddings.load(files[0]).factor("task_themes").save(lam)
    with pytest.raises(DataError, match="no factor 'position' in these embeddings"):
        run("compare", lam, lam, "--similarity", "position")


def test_models_must_agree(run, files):
    with pytest.raises(DataError, match=r"distances only mean something within one model"):
        run("compare", files / "other.parquet", files / "train.parquet")
    with pytest.raises(DataError, match=r"distances only mean something within one model"):
        run("select", files / "other.parquet", files / "train.parquet", "-n", 3)


def test_nearest_by_id(run, files):
    words = run("nearest", "--catalogue", files / "catalogue", "--task", 1234, "-k", 3)
    assert words.startswith("nearest to the task of class ")
    output = json.loads(
        run("nearest", "--catalogue", files / "catalogue", "--query", files / "test.parquet",
            "--task", 7, "-k", 4, "--n-way", "2-3", "--any-class", "class 3", "--json")
    )  # fmt: skip
    assert len(output["nearest"]) == 4
    assert all("class 3" in row["classes"] for row in output["nearest"])
    assert all(len(row["classes"]) in (2, 3) for row in output["nearest"])
    distances = [row["distance"] for row in output["nearest"]]
    assert distances == sorted(distances)


def test_nearest_says_how_many_tie_and_puts_the_most_alike_first(run, tmp_path, monkeypatch):
    listed = [["class 0", "class 1"], ["class 2", "class 3"], ["class 4", "class 5"]]
    tasks = make_tasks(POOL, listed)
    lam = np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 9.0]], dtype=np.float32)
    Embeddings.of(tasks, lam, model="m").save(tmp_path / "train.parquet")
    Embeddings.of(make_tasks(POOL, [["class 3", "class 2"]]), lam[:1], model="m").save(
        tmp_path / "test.parquet"
    )
    asked = ("nearest", "--catalogue", tmp_path / "train.parquet", "--query",
             tmp_path / "test.parquet", "--task", 0, "-k", 3)  # fmt: skip
    words = run(*asked)
    assert "(distances: nats)" in words
    assert words.count("not told apart  task") == 2
    assert "nearest: 2 tasks (within 0.1 nats); their order means nothing; give the data" in words
    assert "compare --retrieval" in words  # how far to trust it
    monkeypatch.setattr(compare, "load_pool", lambda data: POOL)
    output = json.loads(run(*asked, "--data", "mine", "--json"))
    assert output["ties"] == 2
    assert [row["task"] for row in output["nearest"]] == [1, 0, 2]
    assert output["nearest"][0]["by_classes"] == pytest.approx(0, abs=1e-6)
    assert output["nearest"][2]["by_classes"] > output["nearest"][0]["by_classes"]
    assert "the most alike come first" in run(*asked, "--data", "mine")
    assert "as near as the first" in run(*asked[:-4], "--task", 0, "-k", 1, "--n-way", "2",
                                             "--any-class", "class 4")  # fmt: skip


def test_nearest_to_itself(run, files):
    output = json.loads(
        run("nearest", "--catalogue", files / "catalogue", "--task", 42, "-k", 1, "--json")
    )
    assert output["nearest"][0]["distance"] == pytest.approx(0, abs=1e-9)
    assert sorted(output["nearest"][0]["classes"]) == sorted(output["query"]["classes"])


def test_nearest_needs_to_know_the_task(run, files):
    with pytest.raises(DataError, match=r"expected the id of a task; classes need --model"):
        run("nearest", "--catalogue", files / "catalogue", "--task", "a,b")
    with pytest.raises(DataError, match=r"^--model needs --data"):
        run("nearest", "--catalogue", files / "catalogue", "--task", "a,b", "--model", files)


def test_nearest_embeds_a_task_by_its_classes(run, files, monkeypatch):
    class Model:
        load = staticmethod(lambda path: Model())
        embed = staticmethod(embedded)

    monkeypatch.setattr(compare, "TaskModel", Model)
    monkeypatch.setattr(compare, "load_pool", lambda data: POOL)
    for task in ("class 1, class 2", '["class 1", "class 2"]'):
        words = run(
            "nearest", "--catalogue", files / "catalogue", "--task", task, "-k", 2,
            "--model", files, "--data", "my data",
        )  # fmt: skip
        assert words.startswith("nearest to the task of class 1, class 2 (distances: nats):")


def test_what_compare_writes_keeps_its_classes_in_a_diagram(run, files, tmp_path):
    out, with_accuracy = tmp_path / "d.csv", tmp_path / "a.csv"
    run("compare", files / "test.parquet", files / "train.parquet", "--out", out)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    with with_accuracy.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "ProtoNet"])
        writer.writeheader()
        writer.writerows({**row, "ProtoNet": i / 40} for i, row in enumerate(rows))
    assert "40 test tasks of 10 classes" in run("diagram", with_accuracy)


def test_select_writes_a_selection_and_its_tasks(run, files, tmp_path):
    words = run(
        "select", files / "test.parquet", files / "train.parquet", "-n", 25, "--rule", "coverage",
        "--max-shared", 2, "--out", tmp_path / "s.json", "--tasks", files / "train_tasks.parquet",
        "--out-tasks", tmp_path / "chosen.parquet",
    )  # fmt: skip
    assert words.startswith("25 tasks by rule 'coverage'")
    chosen = Selection.load(tmp_path / "s.json")
    tasks = TaskSet.load(tmp_path / "chosen.parquet", POOL)
    whole = TaskSet.load(files / "train_tasks.parquet", POOL)
    np.testing.assert_array_equal(tasks.keys, whole.keys[chosen.indices])
    assert pq.read_metadata(tmp_path / "chosen.parquet").num_rows == 25


def test_select_lists_the_rows_of_shuffled_data(run, tmp_path):
    order = RNG.permutation(300)
    X, y = RNG.normal(size=(300, 3)).astype(np.float32), np.repeat(np.arange(30), 10)
    np.savez(tmp_path / "own.npz", features=X[order], label=y[order])
    pool = load_pool(tmp_path / "own.npz")
    for name, low in (("test", 20), ("train", 0)):
        classes = [[low + i, low + i + 1, low + i + 2] for i in range(7)]
        make_tasks(pool, classes, n_shot=3).save(tmp_path / f"{name}.parquet")
    run(
        "select", tmp_path / "test.parquet", tmp_path / "train.parquet", "-n", 2, "--data",
        tmp_path / "own.npz", "--similarity", "prototypes", "--out-tasks", tmp_path / "chosen.csv",
    )  # fmt: skip
    with (tmp_path / "chosen.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 3 * 3
    assert all(pool.class_names[y[order][int(n["row"])]] == n["class"] for n in lines)


def test_select_needs_data_to_list_the_samples_of_embedded_tasks(run, files, tmp_path):
    words = ["select", files / "test.parquet", files / "train.parquet", "-n", 5]
    words += ["--tasks", files / "train_tasks.parquet", "--out-tasks", tmp_path / "chosen.csv"]
    with pytest.raises(DataError, match=r"chosen\.csv lists samples: give --data"):
        run(*words)
    POOL.save(tmp_path / "data")
    run(*words, "--data", tmp_path / "data")
    assert len(TaskSet.load(tmp_path / "chosen.csv", POOL)) == 5


QUICK = [n for n, s in SIMILARITIES.items() if s.factor is None and s.least_samples == 1]


@pytest.mark.parametrize("similarity", QUICK)  # without those that train a network
def test_other_similarities_need_tasks_and_no_model(run, tmp_path, similarity):
    np.savez(tmp_path / "own.npz", features=RNG.normal(size=(300, 3)).astype(np.float32),
             label=np.repeat(np.arange(30), 10))  # fmt: skip
    pool = load_pool(tmp_path / "own.npz")
    names = ("test", "train", "val")
    for name, low in zip(names, (20, 0, 10), strict=True):
        classes = [low + RNG.choice(10, 3, replace=False) for _ in range(12)]
        rows = [c.tolist() for c in classes]
        make_tasks(pool, rows, n_shot=3).save(tmp_path / f"{name}.parquet")
    files = [tmp_path / "test.parquet", tmp_path / "train.parquet"]
    rest = ["--similarity", similarity, "--data", tmp_path / "own.npz"]
    out = tmp_path / "chosen.parquet"
    output = json.loads(run("select", *files, "-n", 5, *rest, "--out-tasks", out, "--json"))
    chosen, whole = TaskSet.load(out, pool), TaskSet.load(files[1], pool)
    np.testing.assert_array_equal(chosen.keys, whole.keys[output["indices"]])
    assert run("select", *files, "-n", 5, *rest).startswith("5 tasks by rule 'coverage'")
    words = run("compare", *files, *rest)
    assert words.startswith("mean distance to all training tasks: median ")
    printed = json.loads(run("compare", *files, *rest, "--json"))
    assert len(printed["mean_distance"]) == 12
    assert printed["resemblance"]["verdict"] in words
    with pytest.raises(DataError, match=f"^--similarity {similarity} looks at samples: give --dat"):
        run("compare", *files, "--similarity", similarity)


def test_select_refuses_other_tasks(run, files, tmp_path):
    sample_tasks(POOL, 2000, n_way=3, n_shot=3, seed=9).save(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"row by row; give the tasks that were embedded\.$"):
        run("select", files / "test.parquet", files / "train.parquet", "-n", 2, "--tasks",
            tmp_path / "t.parquet", "--out-tasks", tmp_path / "c.parquet")  # fmt: skip


def test_diagram(run, tmp_path):
    distance = RNG.random(60)
    lines = ["distance,ProtoNet"] + [f"{d},{1 - d / 3}" for d in distance]
    (tmp_path / "r.csv").write_text("\n".join(lines))
    words = run(
        "diagram", tmp_path / "r.csv", "--out", tmp_path / "d.png", "--out", tmp_path / "d.json"
    )
    assert "ProtoNet: Spearman -1.00" in words
    assert (tmp_path / "d.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "d.json").read_text())["n_tasks"] == 60
    assert json.loads(run("diagram", tmp_path / "r.csv", "--json"))["n_tasks"] == 60
    with pytest.raises(DataError, match=r"expected \.json, \.png, \.svg, \.pdf\.$"):
        run("diagram", tmp_path / "r.csv", "--out", tmp_path / "d.gif")


def test_diagram_joins_accuracies_by_itself(run, files, tmp_path):
    both = ["diagram", files / "test.parquet", files / "train.parquet", "--accuracies"]
    test = Embeddings.load(files / "test.parquet")
    mine, order = tmp_path / "mine.csv", RNG.permutation(40)
    run("compare", *both[1:3], "--out", tmp_path / "d.csv")
    with (tmp_path / "d.csv").open() as file:
        distance = [float(row["distance"]) for row in csv.DictReader(file)]
    assert b"\r" not in (tmp_path / "d.csv").read_bytes()
    header = "task,log_likelihood,Net/1,Net/2"
    mine.write_text("\n".join([header, *(f"{i},-1,{-distance[i]},{-distance[i]}" for i in order)]))
    words = run(*both, mine)
    assert "accuracies of 40 tasks joined by column 'task'\n" in words
    assert "Net: Spearman -1.00" in words
    mine.write_text("\n".join(["task,Net", *(f"{i},{-distance[i]}" for i in order[:30])]))
    assert "30 tasks joined by column 'task'; 10 of the tasks have none" in run(*both, mine)
    names = {tuple(sorted(test.names(i))): i for i in range(40)}
    assert len(names) < 40  # the same classes twice: they do not tell the task
    mine.write_text("Net\n" + "\n".join(str(-d) for d in distance))
    assert "joined by order, row by row" in run(*both, mine)


def test_accuracies_that_cannot_be_joined(run, files, tmp_path):
    both = ["diagram", files / "test.parquet", files / "train.parquet"]
    mine = tmp_path / "mine.csv"
    for text, message in (
        ("task,Net\n99,0.5\n", "task 99 is not one of the 40 tasks"),
        ("task,Net\n1,0.5\n1,0.6\n", "task 1 has two rows. Give evaluations of a task as col"),
        ("task,Net\nx,0.5\n", "line 2: 'x' in column 'task' is not the number of a task"),
        ("Net\n0.5\n", "has 1 rows for 40 tasks, and no column task that says which is which"),
        ('classes,Net\n"[""class 1""]",1\n', "several tasks have the same classes"),
    ):
        mine.write_text(text)
        with pytest.raises(DataError, match=re.escape(message)):
            run(*both, "--accuracies", mine)
    with pytest.raises(DataError, match=r"^--distance has no effect with TRAIN: distances"):
        run(*both, "--accuracies", mine, "--distance", "far")
    with pytest.raises(DataError, match="give TEST and TRAIN with --accuracies"):
        run(*both)


def test_accuracies_are_joined_by_classes(tmp_path):
    tasks = sample_tasks(POOL, "all", n_way=2, n_shot=3, split="test")[:12]
    test = embedded(tasks)
    rows = [write_classes(reversed(test.names(i))) for i in range(12)]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("classes", "Net"), *((rows[i], i) for i in range(11, -1, -1))])
    data, how = join_accuracies(tmp_path / "a.csv", test, np.arange(12.0))
    assert how == "accuracies of 12 tasks joined by column 'classes'"
    np.testing.assert_array_equal(data.accuracy["Net"][:, 0], np.arange(12))
