"""A study's folder: what a user has put or edited there is left, and said before work starts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meta_cases import toy_pool
from run_cases import go, tiny
from taskscape.cli import app
from taskscape.errors import DataError
from taskscape.study import read_config
from taskscape.study.config import write_config

OTHER = tiny(diagram={"n_bins": 3})


def test_settings_are_replaced_until_they_are_edited(tmp_path: Path):
    path = tmp_path / "study.toml"
    for config in (tiny(), OTHER, tiny()):
        write_config(path, config)
        assert read_config(path) == config
    edited = "# what I tried first\n" + path.read_text()
    path.write_text(edited)
    write_config(path, tiny())  # says the same: nothing to write
    write_config(path, OTHER, tiny())
    with pytest.raises(DataError) as raised:
        write_config(path, OTHER)
    assert str(raised.value) == (
        f"{path} was edited, and has other settings than this run. Run with them by --config "
        f"{path}, or move the file away."
    )
    assert path.read_text() == edited
    path.write_text("not TOML at all")
    with pytest.raises(DataError, match=r"study.toml is not readable TOML"):
        write_config(path, tiny())


@pytest.mark.parametrize("how", ["resume", "overwrite"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data/mine.txt", "keep", "data was not written by a study; writing there would delete it"),
        ("data/stage.json", "{}", "data was not written by a study; writing there would delete it"),
        ("study.toml", "seed = 5 # mine", "study.toml was edited, and has other settings than"),
        ("results.json", "[1, 2]", "results.json exists and is not the results of a study"),
        ("study.json", '{"mine": 1}', "study.json exists and is not an account of a study"),
        ("fit.checkpoint", "keep", "fit.checkpoint exists and is not a checkpoint written by"),
    ],
)
def test_what_is_not_a_studys_is_left(
    tmp_path: Path, how: str, name: str, content: str, message: str
):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        go(tmp_path, pool=toy_pool(), **{how: True})
    there = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert there - {".lock"} == {Path(name).name}
    assert (tmp_path / name).read_text() == content


def test_a_page_that_is_no_report_is_left(tmp_path: Path):
    (tmp_path / "report.html").write_text("<p>mine</p>")
    with pytest.raises(DataError, match=r"report.html exists and is not a report written by"):
        CliRunner().invoke(
            app, ["run", "--preset", "quick", "--out", str(tmp_path), "--resume"],
            catch_exceptions=False,
        )  # fmt: skip
    assert (tmp_path / "report.html").read_text() == "<p>mine</p>"
