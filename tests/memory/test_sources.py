"""What sources are told to hold, and when they are from: one table of names each."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import InvalidInput
from retriever.memory.chunks import timestamp
from retriever.memory.loading import Loaded
from retriever.memory.policy import KNOWLEDGE_TYPES
from retriever.memory.sources import RULES, knowledge_type, source_date

# --- kinds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "metadata", "kind"),
    [
        ("design.md", {"source_type": "design"}, "principle"),
        ("https://a.b/design", {"source_type": "design document"}, "principle"),
        ("0001-use-valkey.md", {"source_type": "ADR"}, "principle"),
        ("notes.md", {"source_type": "paper"}, "paper"),
        ("notes.md", {"source_type": "search result"}, "news"),
        ("arxiv.org/log", {"source_type": "session"}, "experiment"),
        ("https://arxiv.org/abs/2401.01234", {}, "paper"),
        ("http://export.arxiv.org/pdf/2401.01234v2", None, "paper"),
        ("HTTPS://WWW.ARXIV.ORG/abs/2401.01234", None, "paper"),
        ("https://doi.org/10.1145/1571941.1572114", None, "paper"),
        ("https://dx.doi.org/10.1145/1571941.1572114", None, "paper"),
        ("arXiv:2401.01234", None, "paper"),
        ("doi:10.1145/1571941", None, "paper"),
        ("https://a.b/papers/Attention.PDF", None, "paper"),
        ("https://a.b/attention.pdf?download=1", None, "paper"),
        ("papers/attention.pdf", None, "paper"),
        ("C:\\papers\\attention.pdf", None, "paper"),
        ("https://news.example.org/2024/01/15/valkey", None, "news"),
        ("https://search.example.org/?q=arxiv.org", None, "news"),
        ("https://arxiv.org.example.com/abs/2401.01234", None, "news"),
        ("https://notarxiv.org/abs/2401.01234", None, "news"),
        ("https://a.b/?file=x.pdf", None, "news"),
        ("server.log", None, "experiment"),
        ("/var/logs/server.txt", None, "experiment"),
        ("runs/2024-01-15/result.json", None, "experiment"),
        ("C:\\work\\sessions\\a.md", None, "experiment"),
        ("session-2024-01-15.jsonl", None, "experiment"),
        ("run_17.md", None, "experiment"),
        ("my-experiment.md", None, "experiment"),
        ("session:42", None, "experiment"),
        ("notes.md", None, None),
        ("notes.md", {"source_type": "manual"}, None),
        ("notes.md", {"source_type": 5}, None),
        ("design.md", None, None),  # a name alone makes no principle
        ("catalog.md", None, None),
        ("blog.md", None, None),
        ("runtime/notes.md", None, None),
        ("prune.md", None, None),
        ("arxiv.md", None, None),
        ("note-0123456789abcdef", None, None),
        ("", None, None),
    ],
)
def test_kind_of_a_source(source, metadata, kind):
    """How it was registered decides, then its name; what fits no rule has no kind (B7)."""
    assert knowledge_type(source, metadata) == kind


def test_a_given_kind_decides():
    """``knowledge_type`` in the metadata is the kind, and one of the four."""
    assert knowledge_type("https://a.b", {"knowledge_type": "principle", "source_type": "log"}) == "principle"
    assert knowledge_type("https://a.b", {"knowledge_type": None}) == "news"
    with pytest.raises(InvalidInput, match="knowledge_type: one of principle, .* not 'rumour'"):
        knowledge_type("https://a.b", {"knowledge_type": "rumour"})


def test_rules_of_the_callers():
    """Rules are read from the top; None in one ends the search, and other rules than ours can stand alone (B7)."""
    rules = [("^notes/", "principle"), ("^https://docs[.]", None), *RULES]
    assert knowledge_type("notes/a.pdf", rules=rules) == "principle"
    assert knowledge_type("https://docs.example.org", rules=rules) is None
    assert knowledge_type("https://news.example.org", rules=rules) == "news"
    assert knowledge_type("https://news.example.org", rules=[]) is None


@pytest.mark.parametrize(
    "rule", [("(", "paper"), ("a", "rumour"), ("a", ["paper"]), ("a",), "ab", (5, "paper"), 5, ("a", "paper", "b")]
)
def test_rules_that_are_none(rule):
    """A rule is a regular expression and a kind, whether or not it would be reached."""
    with pytest.raises(InvalidInput, match=r"^rules: "):
        knowledge_type("a.pdf", rules=[*RULES, rule])


# --- dates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "day"),
    [
        ("2024-01-15-notes.md", "2024-01-15"),
        ("notes_2024_01_15.md", "2024-01-15"),
        ("notes 2024.01.15.md", "2024-01-15"),
        ("20240115.log", "2024-01-15"),
        ("IMG20240115120000.txt", None),  # eight digits among more are any number
        ("report-20240115T120000.txt", "2024-01-15"),
        ("session-2026-07-28T15:59:49Z.jsonl", "2026-07-28"),
        ("2024-01-notes.md", "2024-01-01"),
        ("notes-2024-01.md", "2024-01-01"),
        ("2024-01-15_2024-02-20.md", "2024-01-15"),
        ("2024-02-30 2024-03-01.md", "2024-03-01"),
        ("2024-02-30.md", None),
        ("2024-13-01.md", None),
        ("2024-01.15.md", "2024-01-01"),
        ("2024.md", None),
        ("v1.2024.md", None),
        ("0001-decision.md", None),
        ("2023/05/01/notes.md", None),  # a folder's date is not the file's
        ("2023-05-01/2024-01-15.md", "2024-01-15"),
        ("C:\\2023-05-01\\2024-01-15.md", "2024-01-15"),
        ("https://news.example.org/2024/01/15/valkey", "2024-01-15"),
        ("https://news.example.org/2024/01/valkey", "2024-01-01"),
        ("https://news.example.org/a-2024-01-15.html?d=2020-01-01#2021-01-01", "2024-01-15"),
        ("https://news.example.org/a%2F2024-01-15", "2024-01-15"),
        ("https://2020-01-01.example.org/a", None),
        ("https://news.example.org/id/120240115", None),
        ("https://arxiv.org/abs/2401.01234", "2024-01-01"),
        ("https://arxiv.org/abs/2401.01234v2", "2024-01-01"),
        ("https://arxiv.org/pdf/0704.0001.pdf", "2007-04-01"),
        ("https://arxiv.org/abs/hep-th/9901001", "1999-01-01"),
        ("https://arxiv.org/abs/math.GT/0309136v1", "2003-09-01"),
        ("arXiv:2401.01234", "2024-01-01"),
        ("arXiv:hep-th/9901001", "1999-01-01"),
        ("papers/2401.01234.pdf", "2024-01-01"),
        ("papers/2401.01234v3.pdf", "2024-01-01"),
        ("2401.01234.txt", None),
        ("2413.01234.pdf", None),
        ("https://a.b/2401.01234", None),
        ("https://doi.org/10.1145/1571941.1572114", None),
        ("http://[", None),
        ("notes.md", None),
        ("", None),
    ],
)
def test_date_in_a_name(source, day):
    """A day, or the first of a month, in a file's own name, a URL's path or an arXiv id (B8)."""
    assert source_date(source) == (None if day is None else timestamp(day))


def test_what_is_said_goes_before_the_name():
    """Metadata first, then the document's own date, then the name (B8)."""
    loaded = Loaded("text", date=timestamp("2022-01-01"))
    name = "2024-01-15.md"
    assert source_date(name, loaded, {"source_date": "2020-01-01", "date": "2021-01-01"}) == timestamp("2020-01-01")
    assert source_date(name, loaded, {"date": "2021-01-01T00:00:00Z"}) == timestamp("2021-01-01")
    assert source_date(name, loaded, {"source_date": None}) == timestamp("2022-01-01")
    assert source_date(name, Loaded("text"), {}) == timestamp("2024-01-15")
    assert source_date(name, Loaded("text", date=0.0)) == 0.0
    assert source_date("notes.md", Loaded("text")) is None


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"source_date": "2024-05-01T10:00:00"}, "source_date: .* no time zone"),
        ({"date": "soon"}, "date: 'soon'"),
        ({"source_date": ""}, "source_date: ''"),
        ({"source_date": True}, "source_date: a date expected"),
    ],
)
def test_metadata_that_are_no_date(metadata, reason):
    """A date that was given and cannot be read is an error, not another date."""
    with pytest.raises(InvalidInput, match=reason):
        source_date("2024-01-15.md", None, metadata)


# --- properties -----------------------------------------------------------------------------------


@dataclass
class Dated:
    date: float | None


@given(st.text(), st.one_of(st.none(), st.dictionaries(st.sampled_from(["source_type", "other"]), st.text())))
def test_any_name_is_told(source, metadata):
    """No name brings an error."""
    assert knowledge_type(source, metadata) in {*KNOWLEDGE_TYPES, None}
    assert source_date(source, Dated(None), metadata) is None or source


@given(
    st.dates(),
    st.sampled_from(["{0:%Y-%m-%d} a.md", "a_{0:%Y%m%d}.md", "http://a.b/{0:%Y/%m/%d}/c", "http://a.b/{0:%Y-%m-%d}"]),
)
def test_every_day_of_two_centuries_is_found(day, form):
    """A day is found as it was written; years that are none of ours are numbers."""
    found = source_date(form.format(day))
    assert found == (timestamp(day) if 1900 <= day.year < 2100 else None)
