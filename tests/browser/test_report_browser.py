"""The report as a reader meets it: opened from disk, pointed at, clicked, searched, printed."""

import re
from pathlib import Path

import pytest

from report_cases import EVIL, awkward_study, bare_study, glyph_study
from taskscape.report import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    studies = {"glyphs": glyph_study(), "awkward": awkward_study(), "bare": bare_study()}
    return {name: write_report(study, folder / f"{name}.html") for name, study in studies.items()}


@pytest.fixture(scope="module")
def glyphs(reports, open_report):
    """The report on the glyphs, which several tests use one after another."""
    return open_report(reports["glyphs"]).ready()


def click_and_wait_for(opened, title: str) -> None:
    opened.page.mouse.down()
    opened.page.mouse.up()
    shown = "(title) => document.getElementById('panel-title').innerText === title"
    opened.page.wait_for_function(shown, arg=title)


def panel_title(opened) -> str:
    return opened.page.inner_text("#panel-title")


@pytest.mark.parametrize(
    ("name", "size"), [("glyphs", "phone"), ("awkward", "phone"), ("bare", "desktop")]
)
def test_it_opens_quietly_and_fits_the_screen(reports, open_report, name, size):
    opened = open_report(reports[name], size).ready()
    assert opened.complaints == []
    assert all(url.split(":")[0] in ("file", "data", "blob") for url in opened.requests)
    assert [url for url in opened.requests if url.startswith("file")] == [reports[name].as_uri()]
    wide = opened.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    undrawn = ".chart:not(:has(.main-svg))"
    assert opened.page.locator(undrawn).count() == 0


def test_tables_that_do_not_fit_a_phone_say_that_they_scroll(reports, open_report):
    widths = """[...document.querySelectorAll('.scroll')].map(
        (d) => [d.scrollWidth > d.clientWidth + 1, getComputedStyle(d, '::before').content])"""
    phone = open_report(reports["glyphs"], "phone").ready().page.evaluate(widths)
    assert any(wide for wide, _ in phone)
    for wide, hint in phone + open_report(reports["glyphs"]).ready().page.evaluate(widths):
        assert ("Scroll sideways" in hint) == wide


def test_names_are_shown_and_never_run(reports, open_report):
    opened = open_report(reports["awkward"]).ready()
    page = opened.page
    page.select_option("#colour", "group")
    page.mouse.move(*opened.point("test", 5))
    page.wait_for_selector("#tip:not([hidden])")
    for option in page.locator("#tasks option").all()[:8]:
        page.select_option("#tasks", option.get_attribute("value"))
    assert page.evaluate("window.hacked") is None
    assert opened.complaints == []
    assert EVIL in page.inner_text("#findings")
    legend = page.evaluate(
        "[...document.querySelectorAll('#chart-map .legendtext')].map((t) => t.textContent)"
    )
    assert EVIL in legend
    assert page.locator("main img, main b").count() == 0


def test_a_click_on_a_word_says_what_it_means(glyphs):
    page = glyphs.page
    meaning = page.locator("#word-spearman")
    assert not meaning.is_visible()
    page.locator("#findings .word[popovertarget=word-spearman]").click()
    assert meaning.is_visible()
    assert "rank correlation" in meaning.inner_text()
    page.keyboard.press("Escape")
    assert not meaning.is_visible()


def test_pointing_and_clicking_on_the_map(glyphs):
    opened, page = glyphs, glyphs.page
    page.mouse.move(*opened.point("test", 3))
    page.wait_for_selector("#tip:not([hidden])")
    assert page.locator("#tip .thumb").count() == 5
    # Tasks lie close together; whichever the tip names is the one that a click must open.
    named = page.inner_text("#tip strong")
    click_and_wait_for(opened, named)
    if named.startswith("Test"):
        assert page.locator(".near li").count() == 5
        assert "expected" in page.inner_text("#panel")
    assert opened.complaints == []


def test_every_colour_can_be_chosen(glyphs):
    opened = glyphs
    values = opened.page.eval_on_selector_all("#colour option", "all => all.map(o => o.value)")
    assert {"split", "group", "distance", "accuracy:maml", "forecast:maml"} <= set(values)
    for value in values:
        opened.page.select_option("#colour", value)
    assert opened.complaints == []


def test_tasks_are_found_and_opened_by_keyboard(glyphs):
    opened, page = glyphs, glyphs.page
    page.get_by_label("Find a test task").focus()
    page.keyboard.type("tifinagh")
    assert re.match(r"\(\d+ of 200", page.inner_text("#found"))
    page.keyboard.press("Enter")
    assert "tifinagh" in page.inner_text("#panel").lower()
    assert "is shown" in page.inner_text("#status")
    page.locator("#tasks").focus()
    first = panel_title(opened)
    page.keyboard.press("ArrowDown")
    assert panel_title(opened) != first
    page.locator(".near button").first.focus()
    page.keyboard.press("Enter")
    assert panel_title(opened).startswith("Training task")
    page.get_by_role("button", name="Back to test task").click()
    assert panel_title(opened).startswith("Test task")
    page.get_by_label("Find a test task").fill("no such task")
    assert page.inner_text("#found") == "(0 of 200)"
    assert opened.complaints == []


def test_a_forecast_opens_its_task(glyphs):
    opened = glyphs
    where = opened.page.evaluate(
        """() => {
          const div = document.getElementById("chart-forecast-0");
          div.scrollIntoView({block: "center"});
          const box = div.getBoundingClientRect();
          const {xaxis, yaxis} = div._fullLayout;
          const {x, y} = div.data[2];
          return [box.left + xaxis._offset + xaxis.l2p(x[0]),
                  box.top + yaxis._offset + yaxis.l2p(y[0])];
        }"""
    )
    opened.page.mouse.move(*where)
    opened.page.wait_for_selector("#chart-forecast-0 .hoverlayer .hovertext")
    shown = opened.page.locator("#chart-forecast-0 .hoverlayer").text_content()
    number = re.search(r"test task (\d+)", shown).group(1)
    click_and_wait_for(opened, f"Test task {number}")


def test_landmarks_headings_and_controls_have_names(glyphs):
    page = glyphs.page
    for role, name in (
        ("navigation", "Contents"), ("main", None), ("banner", None), ("contentinfo", None),
        ("heading", "Findings"), ("heading", "Map of tasks"), ("searchbox", "Find a test task"),
        ("combobox", "Colour by"), ("listbox", "Test tasks"), ("button", "Copy"),
    ):  # fmt: skip
        result = page.get_by_role(role, name=name) if name else page.get_by_role(role)
        assert result.count() == 1, (role, name)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    assert page.locator("a, button, input, select").first.inner_text() == "Skip to the findings"


def test_it_prints_and_comes_back(glyphs):
    opened = glyphs
    assert opened.page.pdf(format="A4").startswith(b"%PDF")
    opened.page.wait_for_selector("#chart-map .scatterlayer")
    assert opened.complaints == []


def test_without_javascript_words_and_tables_remain(reports, open_report):
    page = open_report(reports["glyphs"], java_script_enabled=False).page
    assert page.locator("table").count() > 6
    assert "need JavaScript" in page.inner_text("noscript")
