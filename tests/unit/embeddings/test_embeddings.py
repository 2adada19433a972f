import json
import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from posterior_cases import PRODUCT, posteriors
from taskscape.compare import distances, mean_distance, nearest
from taskscape.embeddings import Catalogue, Embeddings, Factor, TaskFilter
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks import sample_tasks

RNG = np.random.default_rng(0)
POOL = ClassPool.from_arrays(
    RNG.normal(size=(200, 3)), np.repeat(np.arange(20), 10), groups=["ab"[i % 2] for i in range(20)]
)
TASKS = sample_tasks(POOL, 900, n_way=(2, 5), n_shot=2)
FACTORS = (
    *(replace(f, half=True) for f in PRODUCT),
    Factor("task_themes", "dirichlet", 4, share=0.0),
)
VALUES = posteriors(RNG, 900, FACTORS).values.astype(np.float16).astype(np.float32)
ALL = Embeddings.of(TASKS, VALUES, FACTORS, model="m1", elbo=VALUES.sum(axis=1), delta=0.5)


@pytest.fixture
def catalogue(tmp_path):
    for rows in (slice(0, 300), slice(300, 301), slice(301, 900)):
        built = Catalogue.append(tmp_path / "c", ALL[rows])
    return built


def test_what_was_appended_is_read(catalogue):
    assert len(catalogue) == 900
    assert len(catalogue.parts()) == 3
    back = Embeddings.load(catalogue.path)
    assert back.header == ALL.header
    for name in ("ids", "classes", "values", "logs", "elbo", "keys", "n_way"):
        np.testing.assert_array_equal(getattr(back, name), getattr(ALL, name))
    assert back.values.dtype == np.float32
    assert back.names(5) == TASKS.names(5)


def test_one_file_is_a_catalogue_too(tmp_path):
    ALL.save(tmp_path / "e.parquet")
    assert len(Catalogue(tmp_path / "e.parquet")) == 900
    with pytest.raises(DataError, match=r"is a file; a catalogue that can grow is a folder\.$"):
        Catalogue.append(tmp_path / "e.parquet", ALL)


def test_a_scan_holds_one_batch_at_a_time(catalogue):
    batches = list(catalogue.scan(batch_size=100))
    assert max(len(b) for b in batches) <= 100
    assert sum(len(b) for b in batches) == 900


@pytest.mark.parametrize(
    ("where", "good"),
    [
        (TaskFilter(any_class=[3, "7"]), lambda c: bool({3, 7} & set(c))),
        (TaskFilter(group="a"), lambda c: all(i % 2 == 0 for i in c)),
        (TaskFilter(n_way=3), lambda c: len(c) == 3),
        (TaskFilter(n_way=(2, 4), group="b"), lambda c: len(c) <= 4 and all(i % 2 for i in c)),
    ],
)
def test_filters(catalogue, where, good):
    expected = [i for i in range(900) if good([c for c in TASKS.classes[i] if c >= 0])]
    assert 0 < len(expected) < 900
    result = catalogue.read(where)
    np.testing.assert_array_equal(result.ids, expected)
    streamed = Embeddings.concatenate(list(catalogue.posteriors(where, batch_size=64)))
    np.testing.assert_array_equal(streamed.values, VALUES[expected])


def test_streams_give_what_arrays_give(catalogue):
    stream = catalogue.posteriors(batch_size=70)
    np.testing.assert_allclose(
        mean_distance(ALL[:9], stream), mean_distance(ALL[:9], ALL), rtol=1e-9
    )
    neighbours = nearest(ALL[:9], stream, 4)
    np.testing.assert_array_equal(neighbours.indices, nearest(ALL[:9], ALL, 4).indices)


def test_places_and_ids(catalogue):
    np.testing.assert_array_equal(catalogue.take([800, 3, 300, 3]).ids, [800, 3, 300, 3])
    where = TaskFilter(n_way=2)
    places = np.flatnonzero(TASKS.n_way == 2)
    np.testing.assert_array_equal(catalogue.take([1, 0], where).ids, places[[1, 0]])
    assert catalogue.find(555).ids.tolist() == [555]
    with pytest.raises(DataError, match=r"^no task with id 9999 in .*, which has 900 tasks\.$"):
        catalogue.find(9999)
    with pytest.raises(DataError, match=r"^place 900 asked for; there are 900 tasks\.$"):
        catalogue.take([900])


def test_tasks_of_another_model_or_pool_are_refused(catalogue):
    other = replace(ALL, header=replace(ALL.header, model="another model altogether"))
    message = (
        f"the new tasks has model another mode…, {catalogue.path} m1; distances only mean "
        "something within one model. Embed both with the same one."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Catalogue.append(catalogue.path, other)
    other = replace(ALL, header=replace(ALL.header, fingerprint="0" * 32))
    with pytest.raises(DataError, match=r"their class ids mean different classes"):
        Catalogue.append(catalogue.path, other)
    single = Embeddings.of(TASKS, VALUES[:, :4] + 1, model="m1")
    with pytest.raises(DataError, match=r"^the new tasks has factors 4 task-themes, "):
        Catalogue.append(catalogue.path, single)
    assert len(Catalogue(catalogue.path)) == 900


def test_an_append_that_fails_leaves_nothing(catalogue, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        Catalogue.append(catalogue.path, ALL)
    files = {p.name for p in catalogue.path.iterdir()} - {".lock"}
    assert files == {"manifest.json", *(p.name for p in catalogue.parts())}
    assert len(Catalogue(catalogue.path)) == 900


def test_what_is_no_catalogue_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"^no such catalogue: "):
        Catalogue(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"has no embedded tasks in it \(no manifest\.json\)\.$"):
        Catalogue(tmp_path)
    (tmp_path / "x.parquet").write_text("nothing")
    with pytest.raises(DataError, match=r"is not a readable Parquet file"):
        Catalogue(tmp_path / "x.parquet")


def test_unknown_classes_and_groups_are_refused(catalogue):
    with pytest.raises(DataError, match=r"^no class 'zebra' in pool 'arrays'; it has 20 classes "):
        catalogue.read(TaskFilter(any_class=["zebra"]))
    with pytest.raises(DataError, match=r"^no group 'c' in pool 'arrays'; it has 'a', 'b'\.$"):
        catalogue.read(TaskFilter(group="c"))


def test_what_is_in_memory_is_short_to_show_and_plain_to_keep():
    factors = "6 image-themes, position in 5 dimensions, 4 task-themes"
    assert repr(ALL) == f"Embeddings(900 tasks over 'arrays': {factors})"
    first, *more = ALL.summary().splitlines()
    assert first == f"900 tasks over pool 'arrays', embedded by model m1: {factors}."
    assert more[0] == "Each has 2 to 5 classes."
    assert more[1].startswith("Mean share of each task-theme: ")
    assert more[2].startswith("Explained by ")
    plain = json.loads(json.dumps(ALL[:2].to_dict()))
    assert plain["model"] == "m1"
    assert plain["tasks"][1]["classes"] == list(TASKS.names(1))
    np.testing.assert_allclose(plain["tasks"][1]["image_themes"], VALUES[1, :6])


def test_an_array_of_embedded_tasks_has_all_factors_side_by_side():
    np.testing.assert_array_equal(np.asarray(ALL), VALUES)
    assert ALL.columns[:2] == ("image_themes_0", "image_themes_1")
    assert ALL.columns[-1] == "task_themes_3"
    np.testing.assert_array_equal(ALL.lam, VALUES[None, :, -4:])


def test_one_factor_alone_is_compared_by_its_plain_divergence():
    themes = ALL.factor("task_themes")
    assert (themes.header.unit, ALL.header.unit) == ("nats", "")
    assert (themes.header.counts_themes, ALL.header.counts_themes) == (True, False)
    lam = VALUES[:, -4:].astype(np.float64)
    np.testing.assert_allclose(distances(themes[:5], themes[5:20]), distances(lam[:5], lam[5:20]))
    with pytest.raises(DataError, match=r"^no factor 'x' in these embeddings; they have image_the"):
        ALL.factor("x")


def test_fits_of_an_ensemble_keep_their_own_scales_when_taken_alone():
    fits = tuple(
        Factor(f"task_themes_{i}", "dirichlet", 4, 0.1, scale) for i, scale in ((1, 2.0), (2, 0.5))
    )
    lam = 0.5 + RNG.gamma(1, 1, (900, 8))
    both = Embeddings.of(TASKS, lam, fits).factor("task_themes")
    assert [(f.share, f.scale) for f in both.header.factors] == [(0.5, 2.0), (0.5, 0.5)]
    assert both.header.unit == ""
    assert both.lam.shape == (2, 900, 4)
    assert both.factor("task_themes_2").header.unit == "nats"


def test_what_is_not_known_of_tasks_stays_so(tmp_path):
    Embeddings.of(TASKS, VALUES[:, -4:]).save(tmp_path / "e.parquet")
    back = Embeddings.load(tmp_path / "e.parquet")
    assert np.isnan(back.elbo).all()
    assert "Explained" not in back.summary()
    assert "elbo" not in back[0].to_dict()["tasks"][0]


def test_numbers_that_are_no_posterior_are_refused():
    for values, message in (
        (VALUES[:5], "values have shape (5, 15) and type float32; expected floating-point numbers"),
        (
            VALUES[:, :9],
            "values has 9 columns; 6 image-themes, position in 5 dimensions, 4 task-themes are 15.",
        ),
        (-VALUES, "values holds -"),
    ):
        with pytest.raises(DataError, match=f"^{re.escape(message)}"):
            Embeddings.of(TASKS, values, FACTORS)


def test_pieces_are_joined():
    narrow, wide = ALL[TASKS.n_way <= 3], ALL[TASKS.n_way > 3]
    narrow = replace(narrow, classes=narrow.classes[:, :3])
    both = Embeddings.concatenate([narrow, wide])
    assert len(both) == 900
    assert both[0].names(0) == narrow.names(0)
    np.testing.assert_array_equal(both.logs[: len(narrow)], narrow.logs)


def test_pieces_of_two_models_are_not_joined():
    other = replace(ALL[:5], header=replace(ALL.header, model="m2"))
    message = (
        "piece 1 has model m2, piece 0 m1; distances only mean something within one model. "
        "Embed both with the same one."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Embeddings.concatenate([ALL[:5], other])


@pytest.mark.parametrize("name", ["values", "logs", "elbo"])
def test_masked_numbers_are_refused(name):
    pool = ClassPool.from_arrays(np.eye(6, dtype=np.float32), np.arange(6) % 3)
    tasks = sample_tasks(pool, 4, n_way=2, n_shot=1)
    given = {"values": np.ones((4, 2), np.float32), "logs": np.zeros((4, 1)), "elbo": np.zeros(4)}
    masked = np.ma.masked_array(given[name], mask=False)
    masked.flat[1] = np.ma.masked
    given[name] = masked
    with pytest.raises(DataError, match=r"^an array has 1 masked values"):
        Embeddings.of(tasks, **given)


def test_a_header_that_holds_other_things_is_named(tmp_path):
    ALL.save(tmp_path / "e.parquet")
    table = pq.read_table(tmp_path / "e.parquet")
    header = json.loads(table.schema.metadata[b"taskscape"])
    header["factors"][0]["name"] = []
    changed = table.replace_schema_metadata({b"taskscape": json.dumps(header)})
    pq.write_table(changed, tmp_path / "e.parquet")
    with pytest.raises(DataError, match=r"e\.parquet is damaged: it does not hold what belongs"):
        Embeddings.load(tmp_path / "e.parquet")
