"""Every test runs with shapes and types checked, its own cache, and no progress bars."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

hook = install_import_hook("taskscape", "beartype.beartype")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, so that no test sees what another one left."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TASKSCAPE_CACHE", str(folder))
    return folder
