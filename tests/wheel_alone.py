"""Install the wheel where nothing else is, and run what the README says there: ``make wheel``.

Everything lies in the folder that is named; pipx, too, gets an environment of its own in it.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BRING = """
import numpy as np
from pathlib import Path
from PIL import Image
from taskscape import load_pool

rng = np.random.default_rng(0)
y = np.repeat(np.arange(60), 20)
np.savez("features.npz", features=rng.normal(size=(60, 16))[y] + rng.normal(size=(1200, 16)), y=y)
pool = load_pool("symbols")
for name in ("Arrows/leftwards arrow", "Dingbats/black scissors", "Hexagrams/peace"):
    folder = Path("my_symbols", name.split("/")[1])
    folder.mkdir(parents=True)
    for i, drawing in enumerate(pool.samples_of(name)[:5]):
        Image.fromarray(drawing).save(folder / f"{i}.png")
"""
"""Makes what the README's commands are given: a user's own features, and a few own symbols."""


def main(dist: Path, place: Path) -> None:
    (wheel,) = dist.glob("taskscape-*.whl")
    shutil.rmtree(place, ignore_errors=True)
    work = place / "work"
    work.mkdir(parents=True)
    bare = environment(place / "venv")
    run(work, bare / "python", "-m", "pip", "install", "--quiet", wheel)
    python = bare / "python"
    where = "import taskscape; print(taskscape.__file__)"
    assert (place / "venv") in Path(run(work, python, "-c", where).strip()).parents

    run(work, bare / "taskscape", "--version")
    run(work, bare / "taskscape", "doctor")
    run(work, python, "-c", BRING)
    for line in re.findall(r"^    (taskscape .*)$", README, re.M):
        run(work, bare / "taskscape", *shlex.split(line.split("#")[0])[1:])
    for block in re.findall(r"```python\n(.*?)```", README, re.S):
        run(work, python, "-c", block)

    tools = environment(place / "pipx-venv")
    run(work, tools / "python", "-m", "pip", "install", "--quiet", "pipx")
    own = {"PIPX_HOME": place / "pipx", "PIPX_BIN_DIR": place / "pipx-bin"}
    run(work, tools / "pipx", "install", wheel, **own)
    run(work, place / "pipx-bin" / "taskscape", "doctor")


def environment(place: Path) -> Path:
    """The programs of a new environment with nothing in it but pip."""
    venv.create(place, with_pip=True)
    return place / "bin"


def run(folder: Path, *words: object, **env: Path) -> str:
    """What a command says, run in a folder without anything of this environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TASKSCAPE"))}
    kept |= {"TASKSCAPE_CACHE": str(folder.parent / "cache")}
    kept |= {name: str(value) for name, value in env.items()}
    shown = shlex.join("…" if "\n" in str(word) else Path(str(word)).name for word in words)
    began = time.monotonic()
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=kept, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    print(f"{time.monotonic() - began:6.1f} s  {shown}", flush=True)
    if done.returncode:
        sys.exit(f"{shown} failed:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main(*(Path(word).resolve() for word in sys.argv[1:]))
