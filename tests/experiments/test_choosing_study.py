"""The study of ``rule="auto"`` at toy size."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.choosing import ChoosingSizes, ChoosingStudy
from taskscape.pools import ClassPool


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::taskscape.themes.HealthWarning")
@pytest.mark.filterwarnings("ignore::taskscape.themes.OutlierTasksWarning")
def test_a_cell_says_what_was_chosen_and_how_it_did_on_test_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(24, 6)), 16, axis=0) + 0.3 * rng.normal(size=(384, 6))
    splits = ["train"] * 12 + ["val"] * 6 + ["test"] * 6
    pool = ClassPool.from_arrays(
        X.astype(np.float32), np.repeat(np.arange(24), 16), name="toy", splits=splits
    )
    sizes = ChoosingSizes(fit_tasks=60, candidates=60, val_tasks=10, test_tasks=10, trials=3)
    study = ChoosingStudy(pool, pool, sizes, rules=("nearest",))
    result = study.results(study.model(0), "protonet", 12, 0)
    assert result["rule"] in ("nearest", "random")
    assert len(result["scores"]["auto"]) == len(result["scores"]["random"]) == 3
    if result["rule"] == "random":
        assert result["gain"] == 0
        assert result["loses"] == 0.5
    json.dumps(result)
