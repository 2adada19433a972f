"""Work on a local Ray cluster with two workers, whose worker and disk fail."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import ray_cases
from ray_cases import TASKS, Model
from taskscape.distributed.engine import map_work, use_engine
from taskscape.errors import DataError
from taskscape.progress import reported_to
from taskscape.study.stages import Listener, Stage, StageRunner
from taskscape.themes.task_model import embed_into

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'taskscape[ray]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # Ray's own
    pytest.mark.xdist_group("ray"),
]


@pytest.fixture(scope="module")
def cluster():
    ray.init(**ray_cases.CLUSTER)
    for module in (ray_cases, sys.modules[__name__]):  # workers cannot import them
        ray.cloudpickle.register_pickle_by_value(module)
    with use_engine("ray"):
        yield
    ray.shutdown()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def slowly(item, factor):
    time.sleep(0.05)
    return item * factor, os.getpid()


def test_all_workers_do_the_work_and_tell_of_it(cluster):
    heard = []
    with reported_to(lambda what, done, total: heard.append((what, done, total))):
        results = list(map_work(slowly, range(12), shared=(3,), description="thrice"))
    assert [value for value, _ in results] == list(range(0, 36, 3))
    assert os.getpid() not in {pid for _, pid in results}
    assert heard[0] == ("thrice", 0, 12)
    assert heard[-1] == ("thrice", 12, 12)


def test_what_a_killed_worker_had_begun_is_done_again(cluster, tmp_path):
    with use_engine("local"):
        expected = embed_into(tmp_path / "here" / "c", Model(), TASKS, shard_size=1000)
    built = embed_into(
        tmp_path / "ray" / "c", Model(tmp_path / "dead", die), TASKS, shard_size=1000
    )
    assert (tmp_path / "dead").exists()
    assert content(built.path) == content(expected.path)


def test_relative_paths_are_those_of_the_one_who_asks(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # workers were started elsewhere
    built = embed_into("c", Model(), TASKS[:2000], shard_size=1000)
    assert len(built.read()) == 2000
    assert list(map_work(lambda item: os.getcwd(), [1])) == [str(tmp_path)]  # noqa: PTH109


def fill_disk(item):
    if item == 2:
        with open("/dev/full", "w") as file:  # noqa: PTH123
            file.write("x")
    return item


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_and_wrong_data_on_a_worker_are_told_of(cluster):
    with pytest.raises(OSError, match="No space left on dev"):
        list(map_work(fill_disk, range(4)))

    def refuse(item):
        raise DataError("task 7 has no classes.")

    with pytest.raises(DataError, match=r"^task 7 has no classes\.$"):
        list(map_work(refuse, [1]))
    with pytest.raises(ZeroDivisionError):
        list(map_work(lambda item: 1 / item, [0]))


def stage(name, wait=0.0, broken=()):
    def make(folder, steps):
        time.sleep(wait)
        if any(path.exists() for path in broken):
            raise DataError("the data are gone.")
        (folder / "pid").write_text(str(os.getpid()))

    return Stage(name, {}, make, lambda folder: int((folder / "pid").read_text()))


def test_stages_of_a_study_are_shared_out_and_kept(cluster, tmp_path):
    broken = tmp_path / "broken"
    broken.touch()
    stages = [
        stage("learners/a", 0.3),
        stage("learners/b", 0.3),
        stage("learners/c", 0.6, [broken]),
    ]
    runner, out = StageRunner(tmp_path / "study", "data"), tmp_path / "study" / "learners"
    with pytest.raises(DataError, match="the data are gone"):
        runner.run_together(stages)
    deadline = time.monotonic() + 20  # the others finish what they have begun
    while not all((out / name / "stage.json").exists() for name in "ab"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    before = (out / "a" / "pid").read_text()
    broken.unlink()
    heard = []
    listener = Listener()
    listener.end = lambda name, seconds, reused: heard.append((name, reused))
    runner = StageRunner(tmp_path / "study", "data", resume=True, listener=listener)
    made_by = runner.run_together([*stages, stage("learners/d")])
    assert made_by[0] == int(before)
    assert os.getpid() not in made_by
    assert heard == [(f"learners/{name}", name in "ab") for name in "abcd"]


def test_sigterm_ends_the_command_and_the_cluster_it_started():
    code = """
import os, signal, sys, threading, time
from taskscape.cli.interrupts import heed_interrupts
from taskscape.distributed.engine import map_work, use_engine

def wait(item):
    time.sleep(60)

with heed_interrupts(), use_engine("ray"):
    next(map_work(abs, [1], description="begun"))
    import ray
    print(ray.get_runtime_context().gcs_address, flush=True)
    threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    list(map_work(wait, [1, 2]))
"""
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, timeout=300, env=environment,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "SIGTERM received" not in done.stderr  # Ray's own words, with a trace of C++
    host, port = done.stdout.strip().rsplit(":", 1)
    with pytest.raises(OSError, match=r"refused|timed out"):
        socket.create_connection((host, int(port)), timeout=5)
