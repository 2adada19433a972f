"""Files that were damaged or edited after they were written are never read as other numbers."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posterior_cases import PRODUCT, posteriors
from taskscape import Embeddings, TaskSet, sample_tasks
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.select import Selection
from taskscape.study.stages import Stage, StageRunner

RNG = np.random.default_rng(0)
POOL = ClassPool.from_arrays(RNG.normal(size=(80, 3)), np.repeat(np.arange(8), 10))
TASKS = sample_tasks(POOL, 40, n_way=(2, 4), n_shot=2)
FACTORS = tuple(replace(f, half=True) for f in PRODUCT)
VALUES = posteriors(RNG, 40, FACTORS).values.astype(np.float32)
EMBEDDED = Embeddings.of(TASKS, VALUES, FACTORS, model="m", delta=0.5)


def values_of(loaded: Any) -> list[bytes]:
    names = ("classes", "keys", "n_shot", "values", "logs", "elbo", "ids")
    return [np.asarray(getattr(loaded, n)).tobytes() for n in names if hasattr(loaded, n)]


@pytest.mark.parametrize(
    ("save", "load"),
    [
        (TASKS.save, lambda path: TaskSet.load(path, POOL)),
        (EMBEDDED.save, Embeddings.load),
    ],
    ids=["tasks", "embeddings"],
)
def test_a_flipped_bit_is_an_error_or_changes_nothing(
    save: Callable[[Path], None], load: Callable[[Path], Any], tmp_path: Path
):
    path = tmp_path / "file.parquet"
    save(path)
    good, right = path.read_bytes(), values_of(load(path))
    refused = 0
    for place in RNG.choice(len(good), 150, replace=False):
        raw = bytearray(good)
        raw[place] ^= 1 << int(RNG.integers(8))
        path.write_bytes(raw)
        try:
            assert values_of(load(path)) == right
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
    assert refused > 75


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.pop("pool"), "does not hold what belongs"),
        (lambda header: header.update(format="x"), "format='x' is not a number"),
        (lambda header: header.update(model="n"), "does not match its own checksum"),
    ],
)
def test_headers_of_embeddings_are_checked(
    change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
):
    path = tmp_path / "e.parquet"
    EMBEDDED.save(path)
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[b"taskscape"])
    change(header)
    pq.write_table(table.replace_schema_metadata({b"taskscape": json.dumps(header)}), path)
    with pytest.raises(DataError, match=re.escape(message)):
        Embeddings.load(path)


def test_edited_values_are_noticed(tmp_path: Path):
    path = tmp_path / "e.parquet"
    EMBEDDED.save(path)
    table = pq.read_table(path)
    table = table.set_column(table.column_names.index("elbo"), "elbo", pa.array([1.0] * 40))
    pq.write_table(table, path)
    with pytest.raises(DataError, match="does not match its own checksum"):
        Embeddings.load(path)


def test_an_edited_header_is_noticed(tmp_path: Path):
    path = tmp_path / "t.parquet"
    TASKS.save(path)
    table = pq.read_table(path)
    header = table.schema.metadata[b"taskscape"].replace(b'"n_query": 0', b'"n_query": 1')
    pq.write_table(table.replace_schema_metadata({b"taskscape": header}), path)
    with pytest.raises(DataError, match=r"t\.parquet is damaged or was edited"):
        TaskSet.load(path, POOL)


def test_results_in_json_are_checked(tmp_path: Path):
    path = tmp_path / "s.json"
    numbers = {"scores": np.array([0.5, 0.25]), "for_test": np.array([0, 0])}
    chosen = Selection(np.array([3, 1]), **numbers, rule="nearest", score_is="nats")
    chosen.save(path)
    text = path.read_text()
    np.testing.assert_array_equal(Selection.load(path).indices, [3, 1])
    path.write_text(json.dumps(json.loads(text) | {"scores": {"a": 1}}))
    with pytest.raises(DataError, match=r"s\.json is damaged: it does not hold what belongs"):
        Selection.load(path)


def study_stage(value: str) -> Stage[str]:
    def make(folder: Path, steps: object) -> None:
        (folder / "value.txt").write_text(value)

    return Stage("fit", {"n": 1}, make, lambda folder: (folder / "value.txt").read_text())


def test_stages_of_a_study_know_their_files(tmp_path: Path):
    StageRunner(tmp_path, "data").run(study_stage("1"))
    assert StageRunner(tmp_path, "data", resume=True).run(study_stage("2")) == "1"
    (tmp_path / "fit" / "value.txt").write_text("3")
    message = r"stage 'fit' is damaged: .*value\.txt is not as it was written\."
    with pytest.raises(DataError, match=message):
        StageRunner(tmp_path, "data", read_only=True).run(study_stage("2"))
    with pytest.warns(UserWarning, match=message):
        again = StageRunner(tmp_path, "data", resume=True).run(study_stage("2"))
    assert again == "2"


def test_stages_of_other_data_are_refused(tmp_path: Path):
    StageRunner(tmp_path, "data").run(study_stage("1"))
    with pytest.raises(DataError, match=r"or from other data\. Run the study there again"):
        StageRunner(tmp_path, "others", read_only=True).run(study_stage("1"))
