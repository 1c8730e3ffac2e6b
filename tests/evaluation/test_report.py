"""A report in its three forms, and what hostile texts do there: nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

pytest.importorskip("ir_measures")
pytest.importorskip("scipy")
pytest.importorskip("plotly")

from fields.errors import InvalidInput
from retriever.evaluation.measures import Interval
from retriever.evaluation.report import Budget, Difference, Tuned, Tuning, read_report
from tests.evaluation_reports import HOSTILE, report


class Page(HTMLParser):
    """What a browser would make of the page: elements, and the text of each script."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.cells, self._in, self._cell = [], [], {}, None, None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag == "script":
            self.scripts.append([attrs, ""])
            self._in = self.scripts[-1]
        if tag == "td" and "data-arm" in attrs:
            self._cell = (attrs["data-arm"], attrs["data-measure"])

    def handle_endtag(self, tag):
        self._in = None if tag == "script" else self._in
        self._cell = None if tag == "td" else self._cell

    def handle_data(self, text):
        if self._in is not None:
            self._in[1] += text
        if self._cell is not None:
            self.cells[self._cell] = self.cells.get(self._cell, "") + text


def test_the_page_has_three_scripts_whatever_the_texts_hold():
    """Data, plotly and the page's own, and no element that a text brought; what runs has the policy's nonce."""
    html = report().html()
    page = Page(html)
    kinds = [attrs.get("type") for attrs, _ in page.scripts]
    assert kinds == ["application/json", None, None]
    (policy,) = (attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    (nonce,) = re.findall(r"script-src 'nonce-([^']+)'", policy)
    assert [attrs.get("nonce") for attrs, _ in page.scripts] == [None, nonce, nonce]
    assert not {"img", "iframe", "a", "i"} & {tag for tag, _ in page.tags}
    assert "49" not in re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)  # no template of a text's is run


def test_the_page_needs_no_network():
    """It names no other file: no source, no link but an empty icon; its policy lets nothing be fetched."""
    page = Page(report().html())
    assert not [attrs for _, attrs in page.tags if "src" in attrs]
    assert [attrs["href"] for _, attrs in page.tags if "href" in attrs] == ["data:,"]
    (policy,) = (attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'")


def test_the_page_holds_what_was_measured():
    """The table shows each arm's means, the data every query's text, values and results."""
    made = report()
    page = Page(made.html())
    shown = page.cells["linear", "MRR"].split()
    assert shown[0] == f"{made.arms[1].summary['MRR'].mean:.3f}"
    data = json.loads(page.scripts[0][1])
    assert [question["query"] for question in data["questions"]] == [each.query for each in made.questions]
    assert data["questions"][1]["query"] == HOSTILE
    found = [[data["ids"][at] for at in each] for each in data["arms"][0]["found"]]
    assert found == [["z", "a"], ["c", "x"], ["y", "d"]]
    assert data["texts"][data["arms"][0]["shown"][0][1]] == f"the text of a {HOSTILE}"
    assert data["arms"][1]["failed"] == [None, None, "ValueError: no <i>luck</i>"]


def test_every_part_has_its_place_on_the_page_and_in_markdown():
    """Tuning, the equal-budget table and the comparison are shown where they were made."""
    zero = Interval(0.0, 0.0, 0.0, 3)
    half = Interval(0.5, 0.25, 0.75, 3)
    budgets = tuple(Budget(way, "all", half, "vector@60", zero) for way in ("vector@60", "rrf@60"))
    tuned = Tuned("rrf", "weights 1 : 1", "weights 4 : 1", 0.25, 0.5, half, half, zero)
    made = report(
        budgets=budgets,
        tuning=Tuning("nDCG@3", ("q1",), ("q2", "q3"), 48, (tuned,)),
        compared=(Difference("vector", "before", "nDCG@3", half, 2, 0),),
        compared_with="yesterday",
    )
    page, text = made.html(), made.markdown()
    for part in ("Recall at an equal budget", "Tuning", "Compared with yesterday", "weights 4 : 1", "+0.500"):
        assert part in page
        assert part in text
    assert "Tuning" not in report().html()
    assert "Tuning" not in report().markdown()


def test_markdown_keeps_hostile_texts_in_their_cells():
    """A query makes no link, no markup and no column of its own."""
    text = report().markdown()
    assert "<script" not in text.replace("\\<", "")
    assert "[a](" not in text
    tables = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    assert any("window.hit" in line for table in tables for line in table)
    for head, *rows in tables:
        for row in rows:
            assert len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"(?<!\\)\|", head)), row


def test_failures_are_listed_in_each_form():
    """Who failed and why stands in Markdown, page and JSON."""
    made = report()
    assert "linear failed at" in made.markdown()
    assert "1 failed and count 0" in made.html()
    assert made.to_dict()["arms"][1]["failed"] == {"q3": "ValueError: no <i>luck</i>"}


def test_what_got_worse_is_named():
    """Markdown names the queries that the best arm answers worse than the first one."""
    made = report(rankings=({"q1": ["x"], "q2": ["c"], "q3": []}, {"q1": ["a", "b"], "q2": ["x", "c"], "q3": ["d"]}))
    part = made.markdown().partition("## What linear answers worse than vector")[2].partition("##")[0]
    assert "0.631" in part
    assert "-0.369" in part
    assert "which boat" not in part


def test_a_report_is_written_and_read_again(tmp_path):
    """Three files of one name; a second report of a day has a number, and the JSON is what compare takes."""
    made = report()
    paths = made.write(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [f"eval_report_2026-11-30.{kind}" for kind in ("md", "json", "html")]
    again = made.write(tmp_path / "new" / "folder")
    assert [path.name for path in again] == [f"eval_report_2026-11-30_2.{kind}" for kind in ("md", "json", "html")]
    assert read_report(paths[1]) == json.loads(json.dumps(made.to_dict()))


def test_a_lone_surrogate_is_written():
    """A text that is no UTF-8 does not lose the report."""
    made = report()
    broken = replace(made, notes=("\ud800",), texts=("\udfff",) * len(made.texts))
    assert "\\ud" in json.dumps(broken.to_dict())
    assert broken.html()


@pytest.mark.parametrize("text", ["", "[]", '{"arms": []}', '{"format": 99}', "<html>"])
def test_another_file_is_no_report(tmp_path, text):
    """Only the JSON of a report is one."""
    path = tmp_path / "old.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"old\.json: no "):
        read_report(path)


@pytest.mark.parametrize(
    ("interval", "measure", "verdict"),
    [
        (Interval(0.1, 0.05, 0.2, 9), "nDCG@3", "better"),
        (Interval(-0.1, -0.2, -0.05, 9), "nDCG@3", "worse"),
        (Interval(-1.0, -2.0, -0.5, 9), "authority rank", "better"),
        (Interval(0.1, 0.05, 0.2, 9), "noise@3", "worse"),
        (Interval(0.1, -0.01, 0.2, 9), "nDCG@3", "not clear"),
        (Interval(0.1, 0.0, 0.2, 9), "nDCG@3", "not clear"),
        (Interval(0.1, None, None, 1), "nDCG@3", "not clear"),
    ],
)
def test_a_difference_is_clear_where_its_interval_leaves_zero_out(interval, measure, verdict):
    """Better and worse are said of what the queries tell apart, in the measure's direction."""
    assert Difference("b", "a", measure, interval, 0, 0).verdict == verdict
