"""A ledger with a clock, and accuracies kept as counts."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from experiments.lab import Lab, OutOfTimeError, accuracy_of, count_right, packed


def test_cells_of_the_compressed_part_are_finished(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    Lab(path).add({"n": 0}, {"accuracy": 0.5})
    packed(path).write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    lab = Lab(path)
    assert lab.missing([{"n": 0}, {"n": 1}]) == [{"n": 1}]
    assert lab.results({"n": 0}, dict)["accuracy"] == 0.5
    lab.add({"n": 1}, {})
    assert len(path.read_text().splitlines()) == 1


def test_nothing_begins_when_the_time_is_up(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "found.jsonl", minutes=1e-9)
    assert lab.missing([]) == []
    with pytest.raises(OutOfTimeError):
        lab.missing([{"n": 0}])


@pytest.mark.parametrize(("episodes", "blocks"), [(20, 4), (4, 4), (3, 3)])
def test_accuracies_are_kept_in_blocks_with_their_mean(episodes: int, blocks: int) -> None:
    right = np.random.default_rng(0).integers(0, 76, (50, episodes))
    kept = count_right(right / 75, 75)
    assert kept.shape == (50, blocks)
    back = accuracy_of(kept, 75, episodes)
    np.testing.assert_allclose(back.mean(axis=1), right.mean(axis=1) / 75)
