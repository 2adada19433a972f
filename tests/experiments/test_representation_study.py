"""The study of sizes and agreement at toy size."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments import representation
from experiments.__main__ import main
from experiments.representation import Size, agreement, represent
from fit_cases import blobs
from taskscape.pools import ClassPool


def toy() -> ClassPool:
    one, two = blobs(n_classes=40), blobs(n_classes=40, seed=1)
    classes = {name: np.concatenate([one[name], two[name]]) for name in one}
    return ClassPool.from_classes(classes, name="toy", splits=["train"] * 32 + ["val"] * 8)


def tiny(*args: object, **more: object) -> Size:
    return Size(*args, n_evaluated=20, n_reference=30, **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_cell_says_how_sound_a_fit_is_and_fits_agree():
    size = tiny(4, 2, n_train=80)
    rows = [represent(toy(), size, seed) for seed in (0, 1, 2)]
    assert len(agreement(rows)) == 3  # pairs of fits
    assert min(agreement(rows)) > 0.5
    row = rows[1]
    assert row["seed"] == 1
    assert row["dead_or_duplicate_themes"] == [0]
    assert 0 < row["least_used_image_theme"] <= 1 / 4
    assert 0 < row["least_used_task_theme"] <= 1 / 2
    assert 0.5 <= row["largest_share"] <= 1
    assert row["agreement_within_ensemble"] is None
    assert 1 < row["distinct"] <= 20
    assert len(row["alpha_totals"]) == 2
    assert len(row["distances"]) == 20
    assert -1 <= row["correlation_with_accuracy"] <= 1
    json.dumps(row)


def test_a_finished_fit_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked = []

    def noted(pool: ClassPool, size: Size, seed: int) -> dict:
        asked.append((pool.name, size, seed))
        return {"distances": [1.0, 2.0, 3.0 + seed]}

    monkeypatch.setattr(representation, "load_pool", lambda name: toy())
    monkeypatch.setattr(representation, "represent", noted)
    out = tmp_path / "r.jsonl"
    options = ["--seeds", 3, 4, "--n-train", 80, "--out", out]
    for sizes in ([4], [4], [4, 6]):
        main(["representation", *map(str, [*options, "--image-themes", *sizes])])
    assert asked == [("toy", Size(K, n_train=80), seed) for K in (4, 6) for seed in (3, 4)]
    assert "letters 6 4 agreement [1.0]" in capsys.readouterr().out
    first, *_ = (json.loads(line) for line in out.read_text().splitlines())
    assert first["cell"] == {
        "what": "representation", "pool": "letters", "seed": 3, **vars(Size(4, n_train=80)),
    }  # fmt: skip
    assert first["command"].startswith("python -m experiments representation --seeds 3 4")


def test_fits_may_see_only_a_part_of_the_classes():
    parts = [representation._part(toy(), 0.75, seed) for seed in (0, 1)]
    train = [set(part.classes_in("train").tolist()) for part in parts]
    assert [len(classes) for classes in train] == [24, 24]
    assert train[0] != train[1]
    for part in parts:
        np.testing.assert_array_equal(part.classes_in("val"), toy().classes_in("val"))
    assert representation._part(toy(), 1.0, 0).splits == toy().splits
