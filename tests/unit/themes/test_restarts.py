"""Checkpoints: a fit stopped at any moment continues to the very same end."""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fit_cases import (
    arrays_of,
    assert_same_model,
    fitted,
    small_model,
    small_pool,
    small_tasks,
)
from taskscape import sample_tasks
from taskscape.errors import DataError
from taskscape.io.arrays import load_checkpoint, save_checkpoint
from taskscape.themes import Fit, FitInfo, PrepareConfig

SETTINGS = {"n_restarts": 2, "ensemble": 2}


def stop_at(restart: int, t: int):
    def callback(info: FitInfo, at: int) -> None:
        if (at, info.t) == (restart, t):
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("method", ["online", "batch"])
def test_an_interrupted_fit_saves_and_continues_to_the_same_end(method: str, tmp_path: Path):
    whole, path = fitted(method=method, **SETTINGS), tmp_path / "c"
    last = 3 if method == "batch" else 12
    for restart, t in ((0, 1), (0, last), (1, 2), (1, last)):
        with pytest.raises(KeyboardInterrupt):
            small_model(method=method, **SETTINGS).fit(
                small_tasks(),
                checkpoint=path,
                checkpoint_every=1000,
                resume=True,
                callback=stop_at(restart, t),
            )
        _, header = load_checkpoint(path)
        # the starts of all restarts are prepared first, and kept
        assert [len(h) for h in header["histories"]] == ([last] * restart + [t, 0])[:2]
        assert {p.name for p in tmp_path.iterdir()} <= {"c"}
    heard = []
    model = small_model(method=method, **SETTINGS).fit(
        small_tasks(), checkpoint=path, resume=True, callback=lambda *a: heard.append(a)
    )
    assert heard == []  # all of it was done
    assert_same_model(model, whole)
    assert model.fit_info_ == whole.fit_info_
    np.testing.assert_array_equal(model.elbo_history_, whole.elbo_history_)
    np.testing.assert_array_equal(model.transform(small_tasks()), whole.transform(small_tasks()))


@pytest.mark.parametrize("method", ["online", "batch"])
def test_a_fit_stopped_before_its_first_step_continues_from_its_starts(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "c"
    settings = {"method": method, **SETTINGS}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Fit, "learn" if method == "online" else "_full_pass", stop)
        with pytest.raises(KeyboardInterrupt):
            small_model(**settings).fit(small_tasks(), checkpoint=path)
    assert load_checkpoint(path)[1]["histories"] == [[], []]
    monkeypatch.setattr(Fit, "several", stop)  # not again
    model = small_model(**settings).fit(small_tasks(), checkpoint=path, resume=True)
    assert_same_model(model, fitted(**settings))
    assert model.fit_info_ == fitted(**settings).fit_info_


def test_a_checkpoint_is_written_as_often_as_asked_and_does_not_change_the_fit(tmp_path: Path):
    written = []
    path = tmp_path / "c"

    def callback(info: FitInfo, _: int) -> None:
        written.append(len(load_checkpoint(path)[1]["histories"][0]) if path.exists() else 0)

    model = small_model().fit(small_tasks(), checkpoint=path, checkpoint_every=5, callback=callback)
    assert written == [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 12]
    assert_same_model(model, fitted())


def test_without_resume_a_fit_replaces_nothing(tmp_path: Path):
    path = tmp_path / "c"
    path.write_bytes(b"of something else")
    with pytest.raises(DataError) as raised:
        small_model().fit(small_tasks(), checkpoint=path)
    assert str(raised.value) == (
        f"{path} exists and is not a checkpoint written by taskscape; it is left as it is. "
        "Choose another name."
    )
    assert path.read_bytes() == b"of something else"
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        small_model().fit(small_tasks(), checkpoint=path, callback=stop_at(0, 1))
    before = path.read_bytes()
    with pytest.raises(DataError) as raised:
        small_model(random_state=1).fit(small_tasks(), checkpoint=path)
    assert str(raised.value) == (
        f"{path} is the checkpoint of a fit that did not finish. Resume it with resume=True "
        "(on the command line: --resume), or delete it to start again."
    )
    assert path.read_bytes() == before


def test_there_may_be_no_checkpoint_yet(tmp_path: Path):
    model = small_model().fit(small_tasks(), checkpoint=tmp_path / "new" / "c", resume=True)
    assert_same_model(model, fitted())


def other_fits():
    tasks = small_tasks()
    wishes = {"n_way": (2, 4), "n_shot": 6, "split": "train"}
    return {
        "settings": (small_model(kappa=0.03), tasks),
        "seed": (small_model(random_state=1), tasks),
        "preparation": (small_model(prepare=PrepareConfig(pca=2)), tasks),
        "fewer tasks": (small_model(), tasks[:-1]),
        "other samples": (small_model(), small_tasks(seed=1)),
        "more shots": (small_model(), tasks.with_samples(7)),
        "a stream": (small_model(), sample_tasks(small_pool(), 72, seed=0, **wishes, stream=True)),
    }


@pytest.mark.parametrize("difference", list(other_fits()))
def test_a_checkpoint_of_another_fit_is_refused(difference: str, tmp_path: Path):
    path = tmp_path / "c"
    with pytest.raises(KeyboardInterrupt):
        small_model().fit(small_tasks(), checkpoint=path, callback=stop_at(0, 1))
    before = path.read_bytes()
    model, tasks = other_fits()[difference]
    message = (
        f"{path} belongs to a fit with other settings, data or tasks. Use the same ones, or "
        "another checkpoint file."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        model.fit(tasks, checkpoint=path, resume=True)
    assert path.read_bytes() == before


def test_streams_of_other_lengths_are_other_tasks(tmp_path: Path):
    wishes = {"n_way": (2, 4), "n_shot": 6, "split": "train"}
    path = tmp_path / "c"
    settings = {"n_held_out": 2}
    with pytest.raises(KeyboardInterrupt):
        small_model(**settings).fit(
            sample_tasks(small_pool(), 100, **wishes, stream=True),
            checkpoint=path,
            callback=stop_at(0, 2),
        )
    with pytest.raises(DataError, match="belongs to a fit with other settings, data or tasks"):
        small_model(**settings).fit(
            sample_tasks(small_pool(), 200, **wishes, stream=True), checkpoint=path, resume=True
        )
    model = small_model(**settings).fit(
        sample_tasks(small_pool(), 100, **wishes, stream=True), checkpoint=path, resume=True
    )
    assert_same_model(
        model, small_model(**settings).fit(sample_tasks(small_pool(), 100, **wishes, stream=True))
    )


def test_a_damaged_checkpoint_is_refused(tmp_path: Path):
    path = tmp_path / "c"
    with pytest.raises(KeyboardInterrupt):
        small_model().fit(small_tasks(), checkpoint=path, callback=stop_at(0, 1))
    whole = path.read_bytes()
    for raw in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(raw)
        with pytest.raises(DataError, match=r"c is not a readable checkpoint \(.*start again\.$"):
            small_model().fit(small_tasks(), checkpoint=path, resume=True)
        assert path.read_bytes() == raw
    path.write_bytes(whole)
    arrays, header = load_checkpoint(path)
    del arrays["fit0.best.mu"]
    save_checkpoint(path, arrays, header)
    message = "fit0.best.mu is missing: the model is damaged, or of other settings"
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        small_model().fit(small_tasks(), checkpoint=path, resume=True)


CHILD = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from fit_cases import arrays_of, small_model, small_tasks
model = small_model(**{settings!r})
def callback(info, restart):
    print(restart, info.t, flush=True)
model.fit(small_tasks(), checkpoint={path!r}, checkpoint_every={every}, resume=True,
          callback=callback)
np.savez({out!r}, model.transform(small_tasks()), *arrays_of(model))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["online", "batch"])
def test_a_killed_fit_continues_to_the_same_end(method: str, tmp_path: Path):
    whole = fitted(method=method, **SETTINGS)
    settings = {"method": method, **SETTINGS}
    folder = tmp_path / "run"
    folder.mkdir()
    path, out = folder / "c", tmp_path / "out.npz"
    code = CHILD.format(
        tests=str(Path(__file__).parents[2]),
        settings=settings, path=str(path), every=2 if method == "online" else 1, out=str(out),
    )  # fmt: skip
    steps = 24 if method == "online" else 6
    heard: list[str] = []
    # Killed while it works: at a step of the first restart, and a little after one of the second.
    for patience, delay in ((steps // 3, 0.0), (steps // 2, 0.01)):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(patience):
            heard.append(child.stdout.readline().strip())
        time.sleep(delay)
        child.kill()
        child.communicate()
        assert child.returncode == -9
        assert not out.exists()
        load_checkpoint(path)  # whole, whenever it was written
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    with np.load(out) as there:
        here = [whole.transform(small_tasks()), *arrays_of(whole)]
        for ours, theirs in zip(here, there.values(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert heard[0] == "0 1"
    assert "" not in heard
    left = {p.name for p in folder.iterdir()} - {"c"}
    assert all(name.startswith(".c-unfinished-") for name in left)
    assert path.stat().st_size > 0
