"""Every test runs with shapes and types checked, its own cache, and no progress bars."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Tests compile far more than they compute: programs are left as they are, not made fast. JAX ends
# the process at a flag that it does not know, so they are tried in another one.
QUICK_TO_COMPILE = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 "
    "--xla_cpu_parallel_codegen_split_count=1"  # small programs are not worth cutting up
)
if "XLA_FLAGS" not in os.environ:
    tried = os.environ | {"XLA_FLAGS": QUICK_TO_COMPILE, "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", "import jax; jax.devices()"]
    if subprocess.run(words, env=tried, capture_output=True, check=False).returncode == 0:
        os.environ["XLA_FLAGS"] = QUICK_TO_COMPILE

# What was compiled or drawn once serves all tests, in whatever process they run.
if "PYTEST_XDIST_WORKER" not in os.environ:
    shared = Path(tempfile.mkdtemp(prefix="taskscape-tests-"))
    atexit.register(shutil.rmtree, shared, ignore_errors=True)
    os.environ["TASKSCAPE_CACHE"] = str(shared / "cache")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(shared / "compiled")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
SHARED_CACHE = os.environ["TASKSCAPE_CACHE"]

hook = install_import_hook("taskscape", "beartype.beartype")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, few tests before many: no worker is left with a long one at
    the end (with ``--no-loadscope-reorder``, else xdist has an order of its own).
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    number = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, number[item.path]))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, so that no test sees what another one left."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TASKSCAPE_CACHE", str(folder))
    return folder


@pytest.fixture
def shared_cache(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache folder of all tests instead, for those that only use glyphs or Omniglot: drawing
    the one and converting the other takes many seconds.
    """
    monkeypatch.setenv("TASKSCAPE_CACHE", SHARED_CACHE)


@pytest.fixture(autouse=True, scope="module")
def few_programs() -> Iterator[None]:
    """Let go of compiled programs before they are too many: each keeps pieces of memory mapped,
    of which Linux allows a process 65,530, and the one that finds none left crashes.
    """
    yield
    mapped = Path("/proc/self/maps")
    if mapped.exists() and mapped.read_bytes().count(b"\n") > 20_000:
        import jax  # not before the environment above is set

        jax.clear_caches()
