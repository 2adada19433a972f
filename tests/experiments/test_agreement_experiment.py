"""Agreement of fits to other classes, at its smallest size."""

from pathlib import Path

import numpy as np
import pytest

from experiments import agreement
from experiments.__main__ import main
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool


def test_fits_to_other_classes_agree_and_explain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    far = np.linspace(1, 6, 36)[:, None] * rng.normal(size=(36, 4))  # some near, some far out
    pool = ClassPool.from_arrays(
        np.repeat(far, 12, axis=0) + rng.normal(size=(432, 4)), np.repeat(np.arange(36), 12),
        splits=["test" if c % 3 == 0 else "train" for c in range(36)],
    )  # fmt: skip
    monkeypatch.setattr(agreement, "load_pool", lambda name: pool)
    words = ["agreement", "--pool", "toy", "--seeds", "0", "1", "--n-test", "30", "--n-train", "50",
             "--out", str(tmp_path / "fits.jsonl")]  # fmt: skip
    main(words)
    fits = read_ledger(tmp_path / "fits.jsonl")
    assert len(fits) == 2
    assert agreement.agreement(fits, "themes")[0] > 0.5
    assert set(fits[0]["given_difficulty"]) == {"themes", "image_themes", "position"}
