import json
import os
import re
import threading
from dataclasses import replace

import numpy as np
import pytest

from taskscape.compare import mean_kl, nearest, summarise
from taskscape.embeddings import Catalogue, Embeddings, EmbeddingsFile, Shard, TaskFilter
from taskscape.embeddings.catalogue import note_exchange
from taskscape.errors import DataError
from taskscape.files import written_in_one_piece
from taskscape.pools import ClassPool
from taskscape.select import select, select_from_catalogue
from taskscape.tasks import sample_tasks

RNG = np.random.default_rng(0)
POOL = ClassPool.from_arrays(RNG.normal(size=(60, 3)), np.repeat(np.arange(20), 3))
N = 30_000
TASKS = sample_tasks(POOL, N, n_way=(2, 5), n_shot=2)
SHARES = RNG.dirichlet(np.full(4, 0.2), (2, 20))
LAM = (0.5 + SHARES[:, TASKS.classes[:, :2]].sum(axis=2)).astype(np.float32)
LAM += RNG.gamma(0.3, 0.1, LAM.shape).astype(np.float32)
LAM[:, ::50] = LAM[:, :1]  # equal tasks are equally far
ALL = Embeddings.of(TASKS, LAM, model="m1")
QUERIES = LAM[:, :300:3] + np.float32(0.05)


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


@pytest.fixture(scope="module")
def compacted(unsorted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compacted") / "c"
    folder.mkdir()
    for path in unsorted.path.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return Catalogue(folder).compact(shard_size=500)


def count_blocks(monkeypatch):
    """How many blocks are read from here on."""
    read = []
    block = EmbeddingsFile.block
    monkeypatch.setattr(
        EmbeddingsFile, "block", lambda self, *args: read.append(args[0]) or block(self, *args)
    )
    return read


def test_compaction_keeps_every_task(compacted):
    assert len(compacted) == N
    assert len(compacted.parts()) == 64
    assert max(shard.tasks for shard in compacted.shards) < 800
    back = Embeddings.load(compacted.path)
    order = np.argsort(back.ids)
    for name in ("ids", "classes", "keys", "n_way"):
        np.testing.assert_array_equal(getattr(back, name)[order], getattr(ALL, name))
    np.testing.assert_array_equal(back.lam[:, order], LAM)
    compacted.check()
    left = {path.name for path in compacted.path.iterdir()}
    assert left == {"manifest.json", *(path.name for path in compacted.parts())}


@pytest.mark.parametrize("which", ["unsorted", "compacted"])
def test_nearest_tasks_on_disk_are_those_in_memory(which, request):
    catalogue = request.getfixturevalue(which)
    everything = catalogue.read().lam
    expected = nearest(QUERIES, everything, 7)
    near = nearest(QUERIES, catalogue.lam(), 7)
    np.testing.assert_array_equal(near.indices, expected.indices)
    np.testing.assert_allclose(near.distances, expected.distances, rtol=1e-12, atol=1e-14)
    one = nearest(QUERIES[:, :1], catalogue.lam(), 1200)
    np.testing.assert_array_equal(one.indices, nearest(QUERIES[:, :1], everything, 1200).indices)
    with pytest.raises(DataError, match=r"^k=30001 is more than the 30000 training tasks"):
        nearest(QUERIES, catalogue.lam(), N + 1)


def test_a_search_reads_few_blocks_and_means_none(compacted, monkeypatch):
    read = count_blocks(monkeypatch)
    nearest(QUERIES[:, 20:21], compacted.lam(), 5)
    assert 0 < len(read) <= 24  # of 64 files of one block each
    read.clear()
    catalogue = Catalogue(compacted.path)
    compacted.take([17, 20_000])
    assert len(read) == 2
    monkeypatch.setattr(EmbeddingsFile, "batches", None)
    summary = summarise(catalogue.lam())
    np.testing.assert_allclose(summary.mean_lam, LAM.mean(axis=1, dtype=np.float64), rtol=1e-9)
    expected = mean_kl(QUERIES, LAM)
    np.testing.assert_allclose(mean_kl(QUERIES, catalogue.lam()), expected, rtol=1e-9)


@pytest.mark.parametrize("spread", [1e-9, 1e-8, 1e-7])
def test_large_concentrations_are_found_on_disk_as_in_memory(spread, tmp_path):
    # ln Γ of these is about 1e8, of which distances keep no more than seven digits
    rng = np.random.default_rng(0)
    middle = 2e6 * rng.dirichlet(np.full(16, 3.0))
    queries, lam = (middle * (1 + spread * rng.normal(size=(n, 16))) for n in (100, 1500))
    catalogue = Catalogue.append(tmp_path / "c", Embeddings.of(TASKS[:1500], lam))
    catalogue = catalogue.compact(shard_size=100)
    for k in (1, 10):
        near = nearest(queries, catalogue.lam(), k)
        expected = nearest(queries, catalogue.read().lam, k)
        np.testing.assert_array_equal(near.indices, expected.indices)
        np.testing.assert_array_equal(near.distances, expected.distances)


def test_what_is_added_after_a_compaction_is_found(catalogue):
    later = Catalogue.append(catalogue.compact().path, ALL[:10])
    near = nearest(LAM[:, 3:4], later.lam(), 2)
    assert near.indices[0, 1] == N + 3
    assert later.take(near.indices[0]).ids.tolist() == [3, 3]
    assert len(later.compact()) == N + 10


def test_what_others_append_during_a_compaction_is_kept(catalogue, monkeypatch):
    import taskscape.embeddings.compact as module

    pick_up = module._pick_up

    def late(*args):
        if args[0][0] == 0:
            Catalogue.append(catalogue.path, ALL[:5])
        return pick_up(*args)

    monkeypatch.setattr(module, "_pick_up", late)
    assert len(catalogue.compact()) == N + 5


def test_a_compaction_that_fails_changes_nothing(catalogue, monkeypatch):
    import taskscape.embeddings.compact as module

    before = sorted(path.name for path in catalogue.path.iterdir())
    pick_up = module._pick_up

    def fail(*args):
        if args[0][0] == 3:
            raise OSError("disk full")
        return pick_up(*args)

    monkeypatch.setattr(module, "_pick_up", fail)
    with pytest.raises(OSError, match="disk full"):
        catalogue.compact(shard_size=5_000)
    assert sorted(path.name for path in catalogue.path.iterdir()) == before
    monkeypatch.undo()
    Catalogue(catalogue.path).compact()
    with pytest.raises(DataError, match=r"was compacted by another process meanwhile\.$|is gone"):
        catalogue.compact()


def test_an_interrupt_after_the_manifest_was_written_loses_nothing(catalogue, monkeypatch):
    import taskscape.embeddings.compact as module

    change_shards = module.change_shards

    def interrupted(*args):
        change_shards(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "change_shards", interrupted)
    with pytest.raises(KeyboardInterrupt):
        catalogue.compact(shard_size=5_000)
    after = Catalogue(catalogue.path)
    after.check()
    assert np.array_equal(np.sort(after.read().ids), np.arange(N))
    left = {path.name for path in after.path.iterdir()}
    assert left == {"manifest.json", *(path.name for path in after.parts())}


def test_a_compaction_that_lacks_tasks_changes_nothing(catalogue, monkeypatch):
    import taskscape.embeddings.compact as module

    pick_up = module._pick_up

    def lose(cell, header, runs):
        if cell[0] == 0:
            min(runs.glob("*.arrow")).unlink()
        return pick_up(cell, header, runs)

    monkeypatch.setattr(module, "_pick_up", lose)
    before = sorted(path.name for path in catalogue.path.iterdir())
    message = (
        rf"^{re.escape(str(catalogue.path))}: 22,000 of 30,000 tasks came back from "
        r"\.compacting-\w+, so something deletes or damages files there\. "
        r"The catalogue is as it was\.$"
    )
    with pytest.raises(DataError, match=message):
        catalogue.compact(shard_size=5_000)
    assert sorted(path.name for path in catalogue.path.iterdir()) == before


def test_what_a_killed_process_left_is_deleted_and_what_is_being_written_is_not(catalogue):
    (catalogue.path / ".compacting-old").mkdir()
    (catalogue.path / ".compacting-old" / "000000-000000.arrow").write_bytes(b"x")
    (catalogue.path / ".shard-old.parquet-unfinished-x").write_bytes(b"x")
    for left in (*catalogue.path.glob(".*/*"), *catalogue.path.glob(".*")):
        os.utime(left, (0, 0))
    with written_in_one_piece(catalogue.path / "shard-y.parquet") as being_written:
        Catalogue.append(catalogue.path, ALL[:1])
        assert list(catalogue.path.glob(".*")) == [being_written]


@pytest.mark.parametrize("killed", ["before the manifest", "after it"])
def test_files_that_a_killed_compaction_left_are_deleted(catalogue, killed):
    folder, before = catalogue.path, {shard.file for shard in catalogue.shards}
    written = Shard.write(folder / "shard-written.parquet", ALL)
    runs = folder / ".compacting-x"
    runs.mkdir()
    note_exchange(runs, before, {written.file})
    if killed == "after it":
        manifest = json.loads((folder / "manifest.json").read_text())
        values = {**manifest, "shards": [written.to_dict()]}
        (folder / "manifest.json").write_text(json.dumps(values))
    ALL[:1].save(folder / "shard-0123456789ab-000000.parquet")  # of an embedding that is under way
    whole = Catalogue.append(folder, ALL[:2])
    assert len(whole) == N + 2
    whole.check()
    named = {shard.file for shard in whole.shards}
    there = {path.name for path in folder.glob("shard-*")}
    assert there - named == {"shard-0123456789ab-000000.parquet"}
    assert named >= (before if killed == "before the manifest" else {written.file})


def test_no_manifest_names_a_file_that_is_gone(catalogue):
    # another process added the same tasks, and the catalogue was compacted since
    shard = Shard.write(catalogue.path / "shard-job-000000.parquet", ALL[:5])
    (catalogue.path / shard.file).unlink()
    with pytest.raises(DataError, match=r"shard-job-000000\.parquet is gone or not as it was writ"):
        Catalogue.add_shards(catalogue.path, [shard])
    assert len(Catalogue(catalogue.path)) == N


def test_tasks_of_two_models_are_not_mixed_by_two_who_begin_a_catalogue(tmp_path):
    # both looked before the other had added anything
    one = Shard.write(tmp_path / "shard-1.parquet", ALL[:5])
    other = Shard.write(tmp_path / "shard-2.parquet", Embeddings.of(TASKS, LAM, model="m2"))
    Catalogue.add_shards(tmp_path, [one])
    with pytest.raises(DataError, match="the new tasks"):
        Catalogue.add_shards(tmp_path, [other])
    assert len(Catalogue(tmp_path)) == 5


def test_a_catalogue_that_is_compacted_while_it_is_opened(catalogue, monkeypatch):
    import taskscape.embeddings.catalogue as module

    def once(name):
        """Compact the catalogue when this is called for the first time from now on."""
        real, path = getattr(module, name), catalogue.path

        def with_compaction(*args):
            monkeypatch.setattr(module, name, real)
            Catalogue(path).compact()
            return real(*args)

        monkeypatch.setattr(module, name, with_compaction)

    once("check_format")  # the manifest was read, its files were not looked at
    assert len(Catalogue(catalogue.path)) == N
    once("EmbeddingsFile")  # its files were there
    assert len(Catalogue(catalogue.path)) == N


def test_a_file_is_part_of_a_catalogue_once(catalogue):
    # two processes that embed the same tasks write the same files, and both add them
    shard = Shard.write(catalogue.path / "shard-job-000000.parquet", ALL[:5])
    for _ in range(2):
        assert len(Catalogue.add_shards(catalogue.path, [shard])) == N + 5


def test_a_thousand_equal_tasks_do_not_fill_one_cell(tmp_path):
    same = Embeddings.of(TASKS, np.repeat(LAM[:, :1], N, axis=1))
    compacted = Catalogue.append(tmp_path / "c", same).compact(shard_size=4_000)
    assert max(shard.tasks for shard in compacted.shards) < 5_000
    near = nearest(LAM[:, 5:6], compacted.lam(), 3)
    assert near.indices.tolist() == [[0, 1, 2]]


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
    part.unlink()
    with pytest.raises(DataError, match=r"is damaged: shard-.* is missing\.$"):
        Catalogue(catalogue.path)
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 1
    part.write_bytes(flipped)
    damaged = Catalogue(catalogue.path)
    with pytest.raises(DataError, match=r"does not match its checksum in manifest\.json"):
        damaged.check()
    with pytest.raises(DataError, match=r"is not a readable Parquet file: .*(CRC|checksum)"):
        damaged.read()


def test_a_file_with_other_row_groups_is_read_as_a_whole(tmp_path):
    import pyarrow.parquet as pq

    catalogue = Catalogue.append(tmp_path / "c", ALL[:9000]).compact()
    (part,), copy = catalogue.parts(), tmp_path / "copy.parquet"
    expected = nearest(QUERIES, catalogue.lam(), 3)
    for size in (1000, 1 << 20):
        pq.write_table(pq.read_table(part), copy, row_group_size=size)
        near = nearest(QUERIES, Catalogue(copy).lam(), 3)
        np.testing.assert_array_equal(near.indices, expected.indices)


def test_concentrations_of_two_precisions_are_compacted_together(tmp_path):
    Catalogue.append(tmp_path / "c", ALL[:100])
    double = Embeddings.of(TASKS[100:200], LAM[:, 100:200].astype(np.float64), ids=range(100, 200))
    back = Catalogue.append(tmp_path / "c", double).compact().read()
    order = np.argsort(back.ids)
    np.testing.assert_array_equal(back.lam[:, order], LAM[:, :200])


def test_tasks_with_and_without_keys_are_not_compacted_together(tmp_path):
    Catalogue.append(tmp_path / "c", ALL[:5])
    catalogue = Catalogue.append(tmp_path / "c", replace(ALL[5:10], keys=None))
    message = (
        f"{tmp_path / 'c'} has tasks with keys and tasks without, which cannot lie in one file. "
        "The catalogue is as it was; keep two of them."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        catalogue.compact()
    assert len(Catalogue(catalogue.path)) == 10


def test_a_catalogue_without_tasks(tmp_path):
    with pytest.raises(DataError, match=r"^there are no tasks to add\.$"):
        Catalogue.append(tmp_path / "c", ALL[:0])
    (tmp_path / "c").mkdir()
    nothing = Shard.write(tmp_path / "c" / "shard-0.parquet", ALL[:0])
    empty = Catalogue.add_shards(tmp_path / "c", [nothing]).compact()
    with pytest.raises(DataError, match=r"^train has no tasks\.$"):
        mean_kl(QUERIES, empty.lam())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.take([-1]), "place -1 asked for; places are counted from 0."),
        (lambda c: c.take([0.7]), "places of type float64 cannot be taken; use whole numbers."),
        (lambda c: c.take([True]), "places of type bool cannot be taken; use whole numbers."),
        (lambda c: c.take([N]), f"place {N} asked for; there are {N} tasks."),
        (lambda c: c.scan(batch_size=0), "batch_size=0 must be at least 1."),
        (lambda c: c.lam(batch_size=-1), "batch_size=-1 must be at least 1."),
        (lambda c: c.compact(shard_size=0), "shard_size=0 must be at least 1."),
        (
            lambda c: c.read(TaskFilter(any_class="12")),
            "classes='12' must be a list of ids or names.",
        ),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(call, message, unsorted):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        call(unsorted)


def test_nothing_can_be_taken(unsorted):
    nothing = unsorted.take([])
    assert len(nothing) == 0
    assert nothing.header == unsorted.header


def test_tasks_are_chosen_from_a_catalogue_as_from_memory(compacted):
    everything = compacted.read()
    test = QUERIES[:, :20].astype(np.float64)
    expected = select(test, everything.lam.astype(np.float64), 40, train_classes=everything.classes)
    chosen = select_from_catalogue(test, compacted, 40)
    np.testing.assert_allclose(chosen.scores, expected.scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(chosen.for_test, expected.for_test)
    assert chosen.settings["n_train"] == N
    assert len(compacted.take(chosen.indices)) == 40
    with pytest.raises(DataError, match=r"^n=30001 must lie between 1 and the 30000 tasks of "):
        select_from_catalogue(test, compacted, N + 1)
