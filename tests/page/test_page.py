"""The page of a report as a person uses it: its numbers, a click to a query, and nothing else happens."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from retriever.evaluation.golden import Question
from tests.evaluation_reports import HOSTILE, report
from tests.evaluation_reports import arm as arm_of

SLOW_MS = 30_000  # what a busy machine may take


class Opened:
    """A page in the browser, and all that it said and asked for."""

    def __init__(self, browser, path, width=1280):
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.set_default_timeout(SLOW_MS)
        self.page.goto(path.as_uri())

    def text(self, selector):
        return self.page.locator(selector).first.text_content()

    def wait_for_query(self, number):
        """Until it is shown: the address changes first, and the page follows it."""
        expect(self.page.locator("#detail-title")).to_have_text(f"Query {number}", timeout=SLOW_MS)

    def shown(self):
        """Numbers of the queries in the list."""
        return self.page.eval_on_selector_all("#moved tbody tr", "rows => rows.map(row => Number(row.dataset.query))")

    def bars(self):
        """The queries of the bars of the plot, in their order."""
        return self.page.evaluate("document.getElementById('moves').data[0].customdata")


@pytest.fixture
def made():
    return report()


@pytest.fixture
def opened(browser, made, tmp_path):
    """The page of ``made``; afterwards it has said nothing and asked for nothing but itself."""
    path = tmp_path / "report.html"
    path.write_text(made.html(), encoding="utf-8")
    opened = Opened(browser, path)
    yield opened
    said, asked, hit = opened.said, opened.asked, opened.page.evaluate("window.hit")
    opened.page.close()
    assert (said, asked, hit) == ([], [path.as_uri()], None)


def test_the_numbers_are_those_of_the_report(opened, made):
    """Table and plots show the means, the intervals and the milliseconds that were measured."""
    for arm in made.arms:
        cell = opened.text(f"td[data-arm='{arm.name}'][data-measure='nDCG@3'] b")
        assert cell == f"{arm.summary['nDCG@3'].mean:.3f}"
    quality = opened.page.evaluate("document.getElementById('quality').data[0]")
    assert quality["y"] == ["vector", "linear"]
    assert quality["x"] == pytest.approx([arm.summary["nDCG@3"].mean for arm in made.arms])
    summary = made.arms[0].summary["nDCG@3"]
    assert quality["error_x"]["array"][0] == pytest.approx(summary.high - summary.mean)
    latency = opened.page.evaluate("document.getElementById('latency').data[0]")
    assert latency["x"] == [10, 20]
    assert latency["text"] == ["vector", "linear"]
    assert opened.page.locator("#quality svg.main-svg").count() > 0


ARMS = ("vector", "text", "rrf", "linear", "append", "memory", "memory-no-guaranteed")


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("more", [False, True], ids=["plain", "reranked"])
def test_the_page_fits(browser, tmp_path, width, more):
    """On a wide screen every column of the arms is there without scrolling, on a small one what failed; no plot leaves
    its card, and no name of an arm stands over another, though all are as good and as fast."""
    names = [each for name in ARMS for each in ([name, f"{name}+rerank"] if more else [name])]
    questions = (
        Question("which boat", {"a": 1}, authority="a", noise=("z",), id="q"),
        Question("who", {"b": 1}, id="p"),
    )
    arms = tuple(
        arm_of(name, {"q": ["a", "z"], "p": ["x", "b"]}, questions, failed={"p": "no luck"} if name == "rrf" else {})
        for name in names
    )
    path = tmp_path / "report.html"
    path.write_text(report(questions=questions, arms=arms, differences=()).html(), encoding="utf-8")
    opened = Opened(browser, path, width)
    expect(opened.page.locator("#latency .annotation-text")).to_have_count(len(names), timeout=SLOW_MS)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    table = opened.page.evaluate(
        "(({clientWidth, scrollWidth}) => [clientWidth, scrollWidth])(document.querySelector('.wide'))"
    )
    assert width == 420 or table[0] == table[1]
    failed = (
        opened.page.locator("#arms tbody tr", has=opened.page.locator("th", has_text="what rrf is")).locator("td").first
    )
    assert failed.text_content() == "1"
    box = failed.bounding_box()
    assert box["x"] + box["width"] < width
    for plot in ("quality", "latency", "moves"):
        outer, inner = (
            opened.page.locator(each).first.bounding_box() for each in (f"section:has(#{plot})", f"#{plot} .main-svg")
        )
        assert outer["x"] < inner["x"]
        assert inner["x"] + inner["width"] < outer["x"] + outer["width"]
    boxes = [each.bounding_box() for each in opened.page.locator("#latency .annotation-text").all()]
    for at, one in enumerate(boxes):
        for other in boxes[:at]:
            apart_x = max(one["x"], other["x"]) >= min(each["x"] + each["width"] for each in (one, other))
            apart_y = max(one["y"], other["y"]) >= min(each["y"] + each["height"] for each in (one, other))
            assert apart_x or apart_y, (names[at], one, other)
    opened.page.close()


def test_another_measure_is_drawn(opened, made):
    """Choosing a measure draws all three plots by it."""
    opened.page.select_option("#measure", "MRR")
    quality = opened.page.evaluate("document.getElementById('quality').data[0].x")
    assert quality == pytest.approx([arm.summary["MRR"].mean for arm in made.arms])
    assert opened.page.evaluate("document.getElementById('moves').data[0].y") == pytest.approx([-0.5, -0.5, 0.5])


def test_a_person_sees_which_queries_got_worse(opened):
    """The list is of the worse ones first; better, changed and all can be chosen, and the arms turned round."""
    assert opened.text("#count") == "2 worse, 1 better, 0 the same"
    assert opened.shown() == [3, 2]  # from .63 to 0, from 1 to .63
    opened.page.select_option("#which", "better")
    assert opened.shown() == [1]
    opened.page.select_option("#which", "all")
    assert opened.shown() == [3, 2, 1] == opened.bars()
    opened.page.select_option("#which", "worse")
    opened.page.select_option("#from", "linear")
    opened.page.select_option("#to", "vector")
    assert opened.shown() == [1]


def test_a_click_on_a_line_leads_to_the_query(opened):
    """It shows the query's text as text, what both arms found, with its judgements, and why one failed."""
    assert not opened.page.locator("#detail").is_visible()
    opened.page.locator("#moved tbody tr[data-query='2']").click()
    opened.wait_for_query(2)
    assert opened.page.url.endswith("#query-2")
    assert opened.text("#detail-query") == HOSTILE
    found = opened.page.eval_on_selector_all("#detail-to li", "all => all.map(each => each.firstChild.textContent)")
    assert found == ["x", "c"]
    assert opened.text("#detail-to li.relevant .mark") == "relevant"
    assert opened.text("#detail-to li.relevant .snippet") == f"the text of c {HOSTILE}"
    opened.page.locator("#moved tbody tr[data-query='3']").press("Enter")
    opened.wait_for_query(3)
    assert opened.text("#detail-to p") == "failed: ValueError: no <i>luck</i>"
    opened.page.go_back()
    opened.wait_for_query(2)


def test_a_click_on_a_bar_leads_to_the_query(opened):
    """The bars are queries too: the last one is the one that got better."""
    opened.page.locator("#moves").scroll_into_view_if_needed()
    box = opened.page.locator("#moves .bars .point").last.bounding_box()
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    opened.page.mouse.move(*place)
    # Plotly clicks what it has found under the mouse.
    expect(opened.page.locator("#moves .hovertext")).to_have_text("query 1: +0.520", timeout=SLOW_MS)
    opened.page.mouse.click(*place)
    opened.wait_for_query(1)
    assert opened.text("#detail-query") == "which boat is first"
    marks = opened.page.eval_on_selector_all("#detail-from li .mark", "all => all.map(each => each.textContent)")
    assert marks == ["noise", "relevant, 2", "authority"]


def test_a_link_to_a_query_opens_it(browser, made, tmp_path):
    """A page's address with a query's number shows that query at once; one that is not there shows none."""
    path = tmp_path / "report.html"
    path.write_text(made.html(), encoding="utf-8")
    for anchor, visible in (("#query-3", True), ("#query-99", False)):
        page = browser.new_page()
        page.goto(path.as_uri() + anchor)
        assert page.locator("#detail").is_visible() is visible
        page.close()


def test_what_answers_nothing_is_not_called_relevant(browser, tmp_path):
    """A gain of 0 is a judgement too, and is named apart; characters that no line shows are no obstacle."""
    asked = Question("\0\x07\x1b[31m \u202e <!--<script>", {"a": 2, "b": 1, "c": 0}, id="q")
    path = tmp_path / "report.html"
    path.write_text(report(questions=(asked,), rankings=({"q": ["a"]}, {"q": ["c"]})).html(), encoding="utf-8")
    opened = Opened(browser, path)
    opened.page.select_option("#which", "all")
    opened.page.locator("#moved tbody tr").click()
    opened.wait_for_query(1)
    assert opened.text("#detail-judged") == "Judged relevant: a (2), b. Judged, and no answer: c."
    assert opened.text("#detail-query") == asked.query
    assert opened.said == []
    opened.page.close()
