"""The package as others get it: built, installed where no checkout is, and run from there."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="pip install hatchling to build the packages")
pytest.importorskip("pip", reason="pip is needed to install the packages")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


def run(*words: object, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Iterator[Path]:
    """A wheel that is built from the source distribution, not from the checkout."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("taskscape-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    assert {"README.md", "CITATION.cff", "docs", "tests"} <= {p.name for p in source.iterdir()}
    assert not (source / "experiments" / "results").exists()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (built,) = folder.glob("taskscape-*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"taskscape"}
    assert "taskscape/py.typed" in names
    assert "taskscape/report/templates/report.html.j2" in names
    here = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*") if p.is_file()}
    assert {name for name in here if "__pycache__" not in name} <= set(names)


@pytest.mark.usefixtures("shared_cache")
def test_a_study_runs_from_the_installed_wheel(wheel: Path, folder: Path):
    place = folder / "installed"
    venv.create(place)
    paths = {key: sysconfig.get_path(key) for key in ("purelib", "platlib")}
    inside = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    # what taskscape needs is taken from this environment, taskscape itself from the wheel
    (inside / "needed.pth").write_text("\n".join(dict.fromkeys(paths.values())))
    python, taskscape = place / "bin" / "python", place / "bin" / "taskscape"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index"]
    run(*pip, "--no-deps", "--ignore-installed", wheel, cwd=folder)
    where = run(python, "-c", "import taskscape; print(taskscape.__file__)", cwd=folder)
    assert Path(where.strip()).is_relative_to(place)
    said = run(taskscape, "run", "--preset", "quick", "--out", "look", cwd=folder)
    assert "report" in said
    assert (folder / "look" / "report.html").stat().st_size > 100_000
