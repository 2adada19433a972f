"""What the README and the pages of the docs say works as it stands: their Python, their commands.

All of it runs in this process, a page after the other, so that programs are compiled once. Three
commands have tests of their own: ``doctor``, ``advise``, and ``run``, with the installed package in
``test_packages.py``.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fit_cases import quick_starts
from taskscape.cli import app
from taskscape.pools import glyphs
from taskscape.pools.glyphs import characters_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::taskscape.themes.HealthWarning"),
    # with a dozen characters of each group, the other groups are strange to the model
    pytest.mark.filterwarnings("ignore::taskscape.themes.OutlierTasksWarning"),
]
ROOT = Path(__file__).parent.parent
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "docs/index.md",
        "docs/tutorial.md",
        "docs/own-data.md",
        "docs/own-encoder.md",
        "docs/own-accuracies.md",
    )
}
STEPS = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8").split("## Is this")[0]
ELSEWHERE = ("advise", "doctor", "run")
FEWER = {"500": "200", "1000": "300", "2000": "400", "4000": "400", "20000": "1000"}
"""Tasks: as written there are thousands, which only takes longer."""


@pytest.fixture(autouse=True)
def few_starts() -> Iterator[None]:
    """Looking for a good start would be most of what the fits of the pages take."""
    with quick_starts():
        yield


@pytest.fixture
def few_glyphs(shared_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All groups of the embedded pool, with a dozen characters or so of each."""
    every = characters_of
    monkeypatch.setattr(
        glyphs, "characters_of", lambda group: (result := every(group))[:: 1 + len(result) // 20]
    )


def commands(text: str) -> list[list[str]]:
    """The lines of a page that call taskscape, as words."""
    lines = [line for line in text.splitlines() if line.startswith("    taskscape ")]
    return [shlex.split(line.split("#")[0])[1:] for line in lines]


def call(words: list[str]) -> None:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, (words, result.output)


def execute(code: str, name: str) -> None:
    code = re.sub(r"\b\d+\b", lambda number: FEWER.get(number[0], number[0]), code)
    exec(compile(code, name, "exec"), {"__name__": "__main__"})


@pytest.mark.usefixtures("few_glyphs")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGES[page], re.S)
    assert blocks
    execute("\n".join(blocks), page)
    for words in commands(PAGES[page]):
        if words[0] not in ELSEWHERE:
            call([FEWER.get(word, word) for word in words])


@pytest.mark.usefixtures("few_glyphs")
def test_the_steps_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    few = {"fit": ["--n-tasks", "400"]}
    steps = commands(STEPS)
    assert len(steps) == 9
    assert {*few, "embed"} < {words[0] for words in steps}
    for words in steps:
        call([FEWER.get(word, word) for word in words] + few.get(words[0], []))
    assert (tmp_path / "test.parquet").exists()


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    execute(script.read_text(encoding="utf-8"), script.name)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGES["README.md"]):
        if "://" not in target:
            assert (ROOT / target).exists(), target
