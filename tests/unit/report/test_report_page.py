import base64
import hashlib
import json
import math
import re
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from report_cases import EVIL, awkward_study, bare_study, with_outcomes
from taskscape.diagram import correlation_diagram
from taskscape.embeddings import Embeddings
from taskscape.report import render_report, write_report
from taskscape.select.trials import Trial, gains_of
from taskscape.similarity import RetrievalTest
from taskscape.similarity.retrieval import TOO_FEW, score_retrieval
from taskscape.study.result import StudyResult


class Page(HTMLParser):
    """The elements of a page, and the contents of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def ids(self) -> list[str]:
        return [a["id"] for _, a in self.elements if a.get("id")]


def ensemble(result: StudyResult) -> StudyResult:
    """The study as two fits would have made it."""

    def twice(tasks: Embeddings) -> Embeddings:
        *others, one = tasks.header.factors
        fits = [replace(one, name=f"task_themes_{i}") for i in (1, 2)]
        values = np.concatenate([tasks.values, tasks.lam[0, :, ::-1]], axis=1)
        logs = np.concatenate([tasks.logs, tasks.logs[:, -1:]], axis=1)
        header = replace(tasks.header, factors=(*others, *fits))
        return replace(tasks, header=header, values=values, logs=logs)

    return replace(result, test=twice(result.test), train=twice(result.train))


CASES = {
    "bare": bare_study,
    "awkward": awkward_study,
    "full": lambda: with_outcomes(bare_study()),
    "ensemble": lambda: ensemble(with_outcomes(bare_study())),
    "one learner": lambda: with_outcomes(bare_study(), learners=("maml",)),
}


@pytest.fixture(scope="module", params=CASES)
def page(request) -> Page:
    return Page(render_report(CASES[request.param]()))


def test_the_page_is_whole_and_named(page):
    ids = page.ids()
    assert len(set(ids)) == len(ids)
    for tag, attributes in page.elements:
        for pointer in ("aria-labelledby", "for", "popovertarget"):
            assert attributes.get(pointer, ids[0]) in ids, (tag, attributes)
        if tag == "a":
            assert attributes["href"].removeprefix("#") in ids
        if attributes.get("role") in ("img", "region"):
            assert attributes["aria-label"]
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == tags.count("main") == tags.count("nav") == 1


def test_headings_never_skip_a_level(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_it_loads_nothing_and_runs_only_its_own_scripts(page):
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
        assert tag not in ("iframe", "object", "embed", "link", "base")
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    island, *scripts = page.scripts
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert json.loads(island)["classes"]


def test_every_figure_has_its_place_and_every_place_its_figure(page):
    places = {a["data-figure"] for _, a in page.elements if "data-figure" in a}
    assert places == set(json.loads(page.scripts[0])["figures"])


def test_missing_parts_are_left_out():
    page = Page(render_report(bare_study()))
    assert not {"diagram", "selection", "forecasts"} & set(page.ids())


def test_all_parts_are_there():
    page = Page(render_report(with_outcomes(bare_study())))
    sections = {"findings", "data", "fit", "map", "themes", "diagram", "selection"}
    assert sections | {"forecasts", "reproduce"} <= set(page.ids())
    for words in ("taskscape study letters", "5 min 12 s", "93.0 %", "task_themes", "Seed 0."):
        assert words in page.text


def test_the_fit_says_on_what_it_was_evaluated():
    result = bare_study()
    page, tested_on = Page(render_report(result)), result.model.co_clustering_.held_out_
    assert f"explains tasks that it did not learn from ({tested_on}), as learning" in page.text
    bound = json.loads(page.scripts[0])["figures"]["bound"]
    assert bound["data"][-1]["name"] == tested_on


def text_of(result: StudyResult) -> str:
    return Page(render_report(result)).text


def test_remarks_and_findings_never_contradict_each_other():
    well = with_outcomes(bare_study())
    assert not well.remarks()
    assert "Distances need attention." not in text_of(well)
    said = "12 of 100 tasks are far outside the training tasks."
    ill = replace(well, warnings={"embed": (said,)})
    page = text_of(ill)
    assert "Distances need attention." in page
    assert page.count(said) == 2  # with the findings, and with the map
    other = replace(well, warnings={"forecast": ("tasks extrapolate.",)})
    page = text_of(other)
    assert "Needs attention." in page
    assert "tasks extrapolate." in page
    assert "Distances need attention." not in page


def test_task_themes_that_need_attention_cast_no_doubt_on_distances():
    result = bare_study()
    model, paper = copy(result.model), copy(result.model.co_clustering_)
    model.co_clustering_, said = paper, "2 of 3 task-themes are hardly used."
    paper.health_ = replace(paper.health_, advice=(said,))
    page = text_of(replace(result, model=model))
    assert f"The task-themes need attention. Distances do not depend on them. {said}" in page
    assert page.count(said) == 1


def test_the_page_says_how_far_to_trust_distances():
    queries, candidates = np.repeat(["a", "b"], 4), np.repeat(["a", "b", "c"], 5)
    own = (queries[:, None] != candidates).astype(float)
    half = np.where(np.arange(8)[:, None] % 2, own, 1 - own)
    test = RetrievalTest(
        score_retrieval(half, queries, candidates),
        {"task_means": score_retrieval(own, queries, candidates)},
    )
    page = Page(render_report(replace(bare_study(), retrieval=test)))
    said = (
        "Tasks of one group find each other in 50 % of cases. Means of all samples would find "
        "100 %; chance would find 33 %. So means of all samples tell more here than this distance "
        "does."
    )
    assert said in page.text
    assert test.summary().startswith(said)  # the same sentences, wherever it is said
    assert json.loads(page.scripts[0])["trust"] == said
    assert "this distance 50.0 %" in page.text
    assert "−50.0" in page.text
    heat = json.loads(page.scripts[0])["figures"]["retrieval"]["data"][0]
    assert heat["x"] == ["a", "b", "c"]
    assert TOO_FEW in Page(render_report(bare_study())).text


def test_what_was_decided_for_the_data_is_on_the_page():
    notes = ("Classes were dealt out by class.", "tasks.n_shot was lowered from 16 to 8.")
    page = text_of(replace(bare_study(), notes=notes))
    assert all(note in page for note in notes)


def test_accuracies_say_how_many_shots_they_are_of():
    settings = {"evaluate": {"n_shot": 1}, "selection": {"n_shot": 5}}
    page = Page(render_report(replace(with_outcomes(bare_study()), settings=settings)))
    assert "The main numbers, 2- to 4-way 1-shot" in page.text
    assert (
        "Accuracies here are 2- to 4-way 5-shot , those of the other parts 2- to 4-way 1-shot"
        in (page.text)
    )
    figures = json.loads(page.scripts[0])["figures"]
    title = figures["selection-0"]["layout"]["yaxis"]["title"]["text"]
    assert title == "2- to 4-way 5-shot accuracy, mean"


def test_whether_a_rule_helps_is_told_by_one_interval():
    result = with_outcomes(bare_study())
    result = replace(result, gains=gains_of(result.selection))
    page = text_of(result)
    assert "where the bars do not overlap" not in page
    clear = sum(abs(g.sign) for g in result.gains)
    assert page.count(" better ") + page.count(" worse ") >= clear
    assert f"helped in {sum(g.sign > 0 for g in result.gains)} of" in page


def test_a_table_of_selection_has_the_interval_of_each_mean_and_calls_clear_what_findings_do():
    many = {
        "random": (0.50, 0.51, 0.52),
        "good": (0.70, 0.71),
        "bad": (0.30, 0.31),
        "same": (0.5, math.nan),
    }
    trials = tuple(
        Trial("maml", f"nearest:{rule}" if rule != "random" else rule, 100, i, accuracy)
        for rule, reached in many.items()
        for i, accuracy in enumerate(reached)
    )
    page = text_of(replace(bare_study(), selection=trials))
    low, high = stats.t.interval(0.95, 2, 0.51, stats.sem(many["random"]))
    assert f"100 random 51.0 % ± {50 * (high - low):.1f} 3 – –" in page
    assert "nearest:same 50.0 % 1 " in page
    for rule, verdict in (("good", "better"), ("bad", "worse"), ("same", "no")):
        assert re.search(rf"nearest:{rule} [^a-z]* {verdict} ", page)


def test_without_a_forecast_no_reasons_are_given():
    result = with_outcomes(bare_study())
    evaluated = {n: replace(j, mean_absolute_error=0.0621) for n, j in result.evaluations.items()}
    page = Page(render_report(replace(result, evaluations=evaluated)))
    assert "No clear gain from forecasts: expecting the mean" in page.text
    assert "No forecast for maml." in page.text
    assert json.loads(page.scripts[0])["test"]["forecast"] == {}
    assert "expected accuracy of" not in page.text
    assert "the reasons for it" not in page.text


def test_words_are_explained_one_click_away():
    page = Page(render_report(with_outcomes(bare_study())))
    asked = {a["popovertarget"] for _, a in page.elements if "popovertarget" in a}
    assert {"word-spearman", "word-ceiling", "word-difficulty"} <= asked


def test_ties_reach_the_page():
    result = bare_study()
    ties, alike = np.arange(100) + 1, np.full(result.nearest.shape, 0.5)
    tied = replace(result, ties=ties, nearest_by_classes=alike)
    output = json.loads(Page(render_report(tied)).scripts[0])["test"]
    assert output["ties"] == ties.tolist()
    assert np.shape(output["nearest_by_classes"]) == np.shape(output["nearest"])


def test_awkward_names_are_shown_and_never_markup():
    text = render_report(awkward_study())
    page = Page(text)
    assert len(page.scripts) == 3
    assert not any(tag in ("img", "b") for tag, _ in page.elements)
    assert page.text.count(EVIL) > 10
    names = json.loads(page.scripts[0])["classes"]
    assert EVIL in names
    figures = json.loads(page.scripts[0])["figures"]
    assert "<script" not in json.dumps(figures)


def test_figures_do_not_read_names_as_templates():
    learner = "%{x} $a$"
    result = bare_study()
    accuracy = {learner: np.random.default_rng(0).uniform(size=(100, 3))}
    diagram = correlation_diagram(result.distance, accuracy, n_bins=4)
    text = render_report(replace(result, accuracy=accuracy, diagram=diagram))
    trace = json.loads(Page(text).scripts[0])["figures"]["diagram"]["data"][0]
    assert trace["name"] == "&#37;{x} &#36;a&#36;"
    assert "%{x} $" not in trace["hovertemplate"]


def test_unknown_numbers_do_not_break_the_page():
    result = with_outcomes(bare_study())
    nothing = {name: np.full_like(a, np.nan) for name, a in result.accuracy.items()}
    page = Page(render_report(replace(result, accuracy=nothing)))
    assert json.loads(page.scripts[0])["test"]["accuracy"]["maml"] == [None] * 100


def test_more_tasks_than_fit_are_sampled_and_the_page_says_so():
    result = bare_study()
    rows = np.arange(3000) % 100
    many = replace(
        result,
        test=replace(result.test[rows], ids=np.arange(3000)),
        **{
            name: getattr(result, name)[rows]
            for name in ("distance", "nearest", "nearest_distance", "difficulty")
        },
    )
    page = Page(render_report(many))
    assert (
        "Of 3,000 test and 200 training tasks, 1,800 and 200 are shown, drawn by chance "
        "(seed 0)." in page.text
    )
    assert len(json.loads(page.scripts[0])["test"]["id"]) == 1800


def test_the_same_study_gives_the_same_file(tmp_path):
    path = write_report(bare_study(), tmp_path / "new folder" / "report.html")
    assert path.read_text(encoding="utf-8") == render_report(bare_study())
    assert path.stat().st_size < 8_000_000


def test_sentences_are_shown_as_sentences_and_themes_are_of_samples():
    bare = bare_study()

    def page_of(names: list[str]) -> tuple[str, object]:
        page = render_report(replace(bare, pool=replace(bare.pool, sample_names=tuple(names))))
        return page, json.loads(re.search(r'id="data-island">(.*?)</script>', page)[1])["said"]

    rows = range(len(bare.pool.samples))
    page, said = page_of([f"What is number {i}?" for i in rows])
    assert re.search(r"<li>What is number \d+\? <span", page[page.index('id="themes"') :])
    assert said[0].startswith("What is number")
    assert "<h3>Sample-themes</h3>" in page
    assert "mage-theme" not in page
    assert page_of([f"{i}.wav" for i in rows])[1] is None  # no sentences


def test_rules_are_explained_where_they_stand():
    page = render_report(with_outcomes(bare_study()))
    assert "<em>random</em>: by chance." in page


@pytest.mark.parametrize(
    ("bounds", "rising"),
    [
        ((-9.0, -8.0), True),
        ((-9.0, -8.0, -7.95), False),
        ((-9.0, -8.0, -8.1), False),
        ((-9.0, -8.0, -8.4, -8.2), False),  # it had been higher
    ],
)
def test_a_bound_that_still_rises_gets_a_remark(bounds: tuple[float, ...], rising: bool) -> None:
    result = bare_study()
    model = result.model.co_clustering_
    assert model is not None
    model.elbo_history_ = np.array([[100 * i, b] for i, b in enumerate(bounds)])
    assert ("It still rose when it was looked at" in render_report(result)) == rising
