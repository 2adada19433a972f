"""A real browser, where there is one; tests that need it skip where there is not."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Chromium without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    wanted = os.environ.get("TASKSCAPE_BROWSER")
    path = wanted or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium here: `make browser` installs one, or set TASKSCAPE_BROWSER.")
    flags = ["--no-sandbox", "--disable-gpu"]
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=flags)
        yield chromium
        chromium.close()


@dataclass
class Opened:
    """A report in the browser, with everything it complained of or asked for."""

    page: object
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ready(self) -> "Opened":
        """Wait until all figures are drawn."""
        self.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        return self

    def point(self, kind: str, index: int) -> tuple[float, float]:
        """Where a task is on the map, on the screen."""
        code = index if kind == "test" else -1 - index
        return tuple(
            self.page.evaluate(
                """(code) => {
                  const div = document.getElementById("chart-map");
                  div.scrollIntoView({block: "center"});
                  const box = div.getBoundingClientRect();
                  const {xaxis, yaxis} = div._fullLayout;
                  const trace = div.data.find((t) => t.customdata?.includes(code));
                  const i = trace.customdata.indexOf(code);
                  return [box.left + xaxis._offset + xaxis.l2p(trace.x[i]),
                          box.top + yaxis._offset + yaxis.l2p(trace.y[i])];
                }""",
                code,
            )
        )


@pytest.fixture(scope="module")
def open_report(browser) -> Iterator:
    """Opens a file in a page of its own: ``open_report(path, "phone")``."""
    contexts = []

    def opening(path: Path, size: str = "desktop", **options) -> Opened:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        opened = Opened(page)
        page.on(
            "console",
            lambda m: opened.complaints.append(m.text) if m.type == "error" else None,
        )
        page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(path.as_uri())
        return opened

    yield opening
    for context in contexts:
        context.close()
