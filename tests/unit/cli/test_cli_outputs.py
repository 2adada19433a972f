"""What commands write never takes the place of something of a user's, and is refused at once."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from taskscape import Embeddings, sample_tasks
from taskscape.cli import app
from taskscape.embeddings import Catalogue
from taskscape.errors import DataError
from taskscape.io.arrays import save_arrays, save_checkpoint
from taskscape.pools import load_pool

WORK = b"years of work"
ARRAYS = {"a": np.zeros(2)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data, tasks and embedded tasks of our own making, beside files and folders of a user's."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", X=rng.normal(size=(60, 3)), y=np.repeat(np.arange(12), 5))
    tasks = sample_tasks(load_pool(tmp_path / "d.npz"), 8, n_way=3, n_shot=2, seed=0)
    tasks.save(tmp_path / "tasks.parquet")
    embedded = Embeddings.of(tasks, np.ones((8, 2)))
    embedded.save(tmp_path / "e.parquet")
    Catalogue.append(tmp_path / "catalogue", embedded)
    save_arrays(tmp_path / "model", ARRAYS, {"what": "task-theme model"})
    save_checkpoint(tmp_path / "ours.checkpoint", ARRAYS, {"what": "fit checkpoint"})
    for name in ("mine.txt", "mine.parquet", "mine.csv", "mine.json", "mine.png", "new.checkpoint"):
        (tmp_path / name).write_bytes(WORK)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "header.json").write_bytes(b"{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


REFUSED = {  # the beginning of the message
    "data save d.npz --out mine": "mine exists and is not a stored pool",
    "fit d.npz --out mine": "mine exists and is not a task model",
    "fit d.npz --out .": "--out . is a folder that is there already",
    "fit d.npz --out mine.txt": "mine.txt exists and is not a folder",
    "fit d.npz --paper --out new": "new.checkpoint exists and is not",
    "fit d.npz --paper --out new --resume": "new.checkpoint exists and is not",
    "fit d.npz --paper --out ours": "ours.checkpoint is the checkpoint of a fit that did not fin",
    "tasks d.npz --out d.npz": "d.npz exists and is not a list of tasks",
    "tasks d.npz --out e.parquet": "e.parquet exists and is not a list of tasks",
    "tasks d.npz --out /dev/null": "/dev/null exists and is not a regular file",
    "embed model d.npz --out tasks.parquet": "tasks.parquet exists and is not a file of embedded",
    "embed model d.npz --out model": "model exists and is not a catalogue of embedded tasks",
    "embed model d.npz --out e.csv": "--out e.csv: expected a name that ends in .parquet",
    "compare e.parquet e.parquet --out mine.csv": "mine.csv exists and is not a table of dist",
    "diagram mine.csv --out mine.json": "mine.json exists and is not a correlation diagram",
    "select e.parquet e.parquet -n 2 --out mine.json": "mine.json exists and is not a selection",
    "select e.parquet e.parquet -n 2 --tasks tasks.parquet --out-tasks tasks.parquet": (
        "tasks.parquet is named twice"
    ),
    "forecast model d.npz --forecaster f --out mine.csv": "mine.csv exists and is not a table of",
    "forecast model d.npz --forecaster f --save model": "model exists and is not a forecaster",
    "data show d.npz --out mine.txt": "mine.txt exists and is not a picture",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_not_ours_is_refused_and_left(folder: Path, command: str):
    before = contents(folder)
    with pytest.raises(DataError, match=f"^{re.escape(REFUSED[command])}"):
        CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert contents(folder) == before
    assert Path("/dev/null").is_char_device()


def wrote(command: str) -> None:
    done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_what_is_ours_is_replaced_also_through_a_link(folder: Path):
    (folder / "link.parquet").symlink_to("tasks.parquet")
    wrote("tasks d.npz --n-tasks 5 --n-way 3 --n-shot 2 --out link.parquet")
    assert (folder / "link.parquet").is_symlink()
    assert not (folder / "tasks.parquet").is_symlink()
    for _ in range(2):
        wrote("compare e.parquet e.parquet --out distances.csv")
        wrote("select e.parquet e.parquet -n 2 --out selection.json")
        wrote("data show d.npz --out sheet.png")
    assert json.loads((folder / "selection.json").read_text())["what"] == "selection"


def test_a_table_with_a_column_of_a_users_is_left(folder: Path):
    wrote("compare e.parquet e.parquet --out distances.csv")
    lines = (folder / "distances.csv").read_text().splitlines()
    (folder / "distances.csv").write_text("\n".join(f"{line},accuracy" for line in lines))
    with pytest.raises(DataError, match=r"distances.csv exists and is not a table of distances"):
        wrote("compare e.parquet e.parquet --out distances.csv")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such shell")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_command_whose_output_is_closed_works_all_the_same(closed: str) -> None:
    words = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "taskscape", "data"]
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
