import os
import re
import threading

import numpy as np
import pytest

from taskscape.compare import mean_distance, nearest
from taskscape.embeddings import (
    Catalogue,
    Embeddings,
    EmbeddingsFile,
    Shard,
    TaskFilter,
    embeddings,
)
from taskscape.errors import DataError
from taskscape.io.files import atomic_write
from taskscape.io.tables import read_row_group
from taskscape.pools import ClassPool
from taskscape.select import select, select_from_catalogue
from taskscape.tasks import sample_tasks

RNG = np.random.default_rng(0)
POOL = ClassPool.from_arrays(RNG.normal(size=(60, 3)), np.repeat(np.arange(20), 3))
N = 30_000
TASKS = sample_tasks(POOL, N, n_way=(2, 5), n_shot=2)
SHARES = RNG.dirichlet(np.full(4, 0.2), 20)
LAM = (0.5 + SHARES[TASKS.classes[:, :2]].sum(axis=1)).astype(np.float32)
LAM += RNG.gamma(0.3, 0.1, LAM.shape).astype(np.float32)
LAM[::50] = LAM[:1]  # equal tasks are equally far
ALL = Embeddings.of(TASKS, LAM, model="m1")
QUERIES = LAM[:300:3] + np.float32(0.05)


@pytest.fixture(scope="module")
def unsorted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalogue") / "c"
    for begin in range(0, N, 8_000):
        catalogue = Catalogue.append(folder, ALL[begin : begin + 8_000])
    return catalogue


@pytest.fixture
def catalogue(unsorted, tmp_path):
    folder = tmp_path / "c"
    folder.mkdir()
    for path in unsorted.path.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return Catalogue(folder)


def count_blocks(monkeypatch):
    """How many blocks are read from here on."""
    read = []

    def counted(file, path, number):
        read.append(number)
        return read_row_group(file, path, number)

    monkeypatch.setattr(embeddings, "read_row_group", counted)
    return read


def test_nearest_tasks_on_disk_are_those_in_memory(unsorted):
    catalogue = unsorted
    everything = catalogue.read()
    expected = nearest(QUERIES, everything, 7)
    near = nearest(QUERIES, catalogue.posteriors(), 7)
    np.testing.assert_array_equal(near.indices, expected.indices)
    np.testing.assert_allclose(near.distances, expected.distances, rtol=1e-12, atol=1e-14)
    one = nearest(QUERIES[:1], catalogue.posteriors(), 1200)
    np.testing.assert_array_equal(one.indices, nearest(QUERIES[:1], everything, 1200).indices)


def test_what_a_killed_process_left_is_deleted_and_what_is_being_written_is_not(catalogue):
    (catalogue.path / ".shard-old.parquet-unfinished-x").write_bytes(b"x")
    for left in catalogue.path.glob(".*"):
        os.utime(left, (0, 0))
    with atomic_write(catalogue.path / "shard-y.parquet") as being_written:
        Catalogue.append(catalogue.path, ALL[:1])
        assert list(catalogue.path.glob(".shard*")) == [being_written]


def test_tasks_of_two_models_are_not_mixed_by_two_who_begin_a_catalogue(tmp_path):
    # both looked before the other had added anything
    one = Shard.write(tmp_path / "shard-1.parquet", ALL[:5])
    other = Shard.write(tmp_path / "shard-2.parquet", Embeddings.of(TASKS, LAM, model="m2"))
    Catalogue.add_shards(tmp_path, [one])
    with pytest.raises(DataError, match="the new tasks"):
        Catalogue.add_shards(tmp_path, [other])
    assert len(Catalogue(tmp_path)) == 5


def test_a_file_is_part_of_a_catalogue_once(catalogue):
    # two processes that embed the same tasks write the same files, and both add them
    shard = Shard.write(catalogue.path / "shard-job-000000.parquet", ALL[:5])
    for _ in range(2):
        assert len(Catalogue.add_shards(catalogue.path, [shard])) == N + 5


def test_writers_do_not_disturb_each_other(tmp_path):
    def add(i):
        Catalogue.append(tmp_path / "c", ALL[10 * i : 10 * i + 10])

    Catalogue.append(tmp_path / "c", ALL[:10])
    threads = [threading.Thread(target=add, args=(i,)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(Catalogue(tmp_path / "c").read().ids) == list(range(90))


def test_a_file_that_no_manifest_names_is_not_there(tmp_path):
    ALL[:7].save(tmp_path / "c" / "shard-left-by-a-killed-process.parquet")
    with pytest.raises(DataError, match=r"has no embedded tasks in it \(no manifest\.json\)\.$"):
        Catalogue(tmp_path / "c")
    assert len(Catalogue.append(tmp_path / "c", ALL[:3])) == 3


def test_damage_is_noticed(catalogue):
    part = catalogue.parts()[1]
    whole = part.read_bytes()
    part.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"is damaged: shard-.* has .* bytes, not "):
        Catalogue(catalogue.path)
    manifest = catalogue.path / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace(f'"bytes": {len(whole)}', '"bytes": []'))
    with pytest.raises(DataError, match=r"manifest\.json is damaged: it does not hold"):
        Catalogue(catalogue.path)
    manifest.write_text(text)
    part.unlink()
    with pytest.raises(DataError, match=r"is damaged: shard-.* is missing\.$"):
        Catalogue(catalogue.path)
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 1
    part.write_bytes(flipped)
    damaged = Catalogue(catalogue.path)
    with pytest.raises(DataError, match="does not match its own checksum"):
        damaged.read()


def test_nothing_can_be_taken(unsorted):
    nothing = unsorted.take([])
    assert len(nothing) == 0
    assert nothing.header == unsorted.header


def test_means_read_no_task_and_single_ones_few_blocks(unsorted, monkeypatch):
    read = count_blocks(monkeypatch)
    catalogue = Catalogue(unsorted.path)
    unsorted.take([17, 20_000])
    assert len(read) == 2
    monkeypatch.setattr(EmbeddingsFile, "batches", None)
    sums = catalogue.posteriors().sums()
    np.testing.assert_allclose(sums.values, LAM.sum(axis=0, dtype=np.float64), rtol=1e-9)
    expected = mean_distance(QUERIES, LAM)
    computed = mean_distance(QUERIES, catalogue.posteriors())
    np.testing.assert_allclose(computed, expected, rtol=1e-9)


@pytest.mark.parametrize("spread", [1e-9, 1e-8, 1e-7])
def test_large_concentrations_are_found_on_disk_as_in_memory(spread, tmp_path):
    # ln Γ of these is about 1e8, of which distances keep no more than seven digits
    rng = np.random.default_rng(0)
    middle = 2e6 * rng.dirichlet(np.full(16, 3.0))
    queries, lam = (middle * (1 + spread * rng.normal(size=(n, 16))) for n in (100, 1500))
    catalogue = Catalogue.append(tmp_path / "c", Embeddings.of(TASKS[:1500], lam))
    for k in (1, 10):
        near = nearest(queries, catalogue.posteriors(), k)
        expected = nearest(queries, catalogue.read(), k)
        np.testing.assert_array_equal(near.indices, expected.indices)
        np.testing.assert_array_equal(near.distances, expected.distances)


def test_no_manifest_names_a_file_that_is_gone(catalogue):
    shard = Shard.write(catalogue.path / "shard-job-000000.parquet", ALL[:5])
    (catalogue.path / shard.file).unlink()
    with pytest.raises(DataError, match=r"shard-job-000000\.parquet is gone or not as it was writ"):
        Catalogue.add_shards(catalogue.path, [shard])
    assert len(Catalogue(catalogue.path)) == N


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.take([-1]), "place -1 asked for; places are counted from 0."),
        (lambda c: c.take([0.7]), "places of type float64 cannot be taken; use whole numbers."),
        (lambda c: c.take([True]), "places of type bool cannot be taken; use whole numbers."),
        (lambda c: c.take([N]), f"place {N} asked for; there are {N} tasks."),
        (lambda c: next(c.scan(batch_size=0)), "batch_size=0 must be at least 1."),
        (lambda c: c.posteriors(batch_size=-1), "batch_size=-1 must be at least 1."),
        (
            lambda c: c.read(TaskFilter(any_class="12")),
            "classes='12' must be a list of ids or names.",
        ),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(call, message, unsorted):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        call(unsorted)


def test_tasks_are_chosen_from_a_catalogue_as_from_memory(unsorted):
    everything = unsorted.read()
    test = QUERIES[:20].astype(np.float64)
    expected = select(test, everything, 40, train_classes=everything.classes)
    chosen = select_from_catalogue(test, unsorted, 40)
    np.testing.assert_allclose(chosen.scores, expected.scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(chosen.for_test, expected.for_test)
    assert chosen.settings["n_train"] == N
    assert len(unsorted.take(chosen.indices)) == 40
    with pytest.raises(DataError, match=r"^n=30001 must lie between 1 and the 30000 tasks of "):
        select_from_catalogue(test, unsorted, N + 1)


def test_a_catalogue_without_tasks(tmp_path):
    with pytest.raises(DataError, match=r"^there are no tasks to add\.$"):
        Catalogue.append(tmp_path / "c", ALL[:0])
    (tmp_path / "c").mkdir()
    nothing = Shard.write(tmp_path / "c" / "shard-0.parquet", ALL[:0])
    empty = Catalogue.add_shards(tmp_path / "c", [nothing])
    with pytest.raises(DataError, match=r"^train has no tasks\.$"):
        mean_distance(QUERIES, empty.posteriors())
