"""What docs/from-pytorch.md says, with PyTorch, which ``make torch`` installs."""

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make torch` has it")
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset  # noqa: E402

from fit_cases import quick_starts  # noqa: E402
from taskscape import load_pool, sample_tasks  # noqa: E402
from taskscape.pools import glyphs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # of PyTorch's own
PAGE = Path(__file__).parents[2] / "docs" / "from-pytorch.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
IMAGES = torch.rand(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([3, 1, 2, 0]).repeat(10)


def imported(name: str) -> Any:
    """A module, or None where it is not installed or, as torchvision may, does not fit PyTorch."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError):
        return None


def test_a_training_loop_on_chosen_tasks_takes_fifteen_lines():
    (loop,) = [block for block in BLOCKS if "batch_sampler=chosen.batch_sampler(repeat" in block]
    assert len(list(filter(None, loop.splitlines()))) <= 15


@pytest.mark.slow
def test_the_page_does_what_it_says(
    shared_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    every = glyphs.characters_of
    monkeypatch.setattr(glyphs, "characters_of", lambda g: every(g)[:: 1 + len(every(g)) // 20])
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    names: dict[str, object] = {"__name__": "__main__"}
    with quick_starts():
        for block in BLOCKS:
            other = re.search(r"(?:import|from) ((?:easyfsl|learn2learn)[\w.]*)", block)
            if other is None or imported(other[1]) is not None:
                exec(compile(block.replace("2000", "300"), PAGE.name, "exec"), names)
    assert names["batches"] == list(names["chosen"].batch_sampler())
    assert 0.2 < float(names["accuracy"].mean()) <= 1


def test_a_loader_gives_the_samples_of_each_task():
    dataset = TensorDataset(IMAGES, LABELS)
    tasks = sample_tasks(load_pool(dataset), 6, n_way=3, n_shot=2, n_query=3)
    y, asked = map(torch.as_tensor, tasks.episode_labels())
    for workers in (0, 2):
        loader = DataLoader(
            dataset, batch_sampler=tasks.batch_sampler(), num_workers=workers,
            multiprocessing_context="forkserver" if workers else None,
        )  # fmt: skip
        assert len(loader) == 6
        for i, (x, labels) in enumerate(loader):
            assert labels.tolist() == tasks.classes[i][torch.cat([y, asked])].tolist()
            assert torch.equal(x, IMAGES[tasks.rows(i)])


def test_datasets_of_datasets_have_rows_of_their_own():
    halves = [TensorDataset(IMAGES[half], LABELS[half]) for half in (slice(0, 15), slice(15, 40))]
    dataset = Subset(ConcatDataset(halves), list(range(39, 4, -1)))
    pool = load_pool(dataset)
    for c in range(len(pool)):
        rows = pool.given(pool.rows)[pool.starts[c] : pool.starts[c] + pool.counts[c]]
        assert {int(dataset[i][1]) for i in rows} == {c}
        for sample, row in zip(pool.samples_of(c), rows, strict=True):
            np.testing.assert_allclose(sample / 255, dataset[row][0][0], atol=0.5 / 255 + 1e-6)


def test_tensors_that_carry_gradients_and_short_floats():
    features = torch.rand(40, 5, dtype=torch.bfloat16, requires_grad=True)
    pool = load_pool((features, LABELS))
    of_items = load_pool(TensorDataset(features, LABELS))
    assert pool.fingerprint == of_items.fingerprint


def test_torchvision_gives_pictures_and_names(tmp_path: Path):
    datasets = imported("torchvision.datasets")
    if datasets is None:
        pytest.skip("torchvision is not installed, or does not fit this PyTorch")
    fake = datasets.FakeData(12, (3, 8, 9), num_classes=3, random_offset=1)
    assert load_pool(fake).sample_shape == (8, 9, 3)
    for i, (picture, label) in enumerate(fake):
        (tmp_path / f"kind {label}").mkdir(exist_ok=True)
        picture.save(tmp_path / f"kind {label}" / f"{i:02}.png")
    folder = datasets.ImageFolder(tmp_path)
    pool = load_pool(folder, image_size=4)
    assert pool.class_names == tuple(folder.classes)
    assert [folder.targets[row] for row in pool.given(pool.rows)] == sorted(folder.targets)
