"""Every test runs with shapes and types checked, its own cache, and no progress bars."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Programs compiled for one test serve all others, in whatever process they run.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.mkdtemp(prefix="taskscape-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

hook = install_import_hook("taskscape", "beartype.beartype")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, so that no test sees what another one left."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TASKSCAPE_CACHE", str(folder))
    return folder


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
