"""Names, ids, hashes and dates of a store of memory."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from enum import Enum
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.analysis import Analysis
from fields.filters import filter_text
from fields.kinds import Numeric, Tag, Vector
from retriever.documents import Document
from retriever.errors import InvalidInput
from retriever.memory.chunks import (
    FIELDS,
    Chunk,
    Names,
    Scope,
    check_importance,
    check_knowledge_type,
    check_tags,
    chunk_id,
    chunk_of,
    content_hash,
    document_id,
    indexed_text,
    iso,
    schema_of,
    tags_filter,
    timestamp,
)

NOW = 1_785_254_389.0

# --- names -----------------------------------------------------------------------------------------

LIKE = [
    "a",
    "ab",
    "a:b",
    "A",
    "a-b",
    "a_b",
    "a.b",
    "a{",
    "{a}",
    "}",
    "a|uses",
    "a|document:",
    "a%3Ab",
    "%",
    "a:",
    "é",
    "日本",
]
plain = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
namespaces = st.sampled_from(LIKE) | st.text("ab:{}|%/@. A-_\n\0é", min_size=1, max_size=6) | plain


def keys_of(names, id):
    """A key of every kind that the namespace has."""
    return [f"{names.prefix}{id}", names.uses, names.used, names.document(id)]


def held_apart(one, other, id):
    """No key of the one starts with what holds the other's keys, nor is the other's name."""
    one, other = Names(one), Names(other)
    assert one.index != other.index
    for key in keys_of(one, id):
        assert not key.startswith((other.prefix, other.documents, other.uses, other.used))


@pytest.mark.parametrize(("one", "other"), [*permutations(LIKE, 2)])
def test_namespaces_that_look_alike_are_apart(one, other):
    """No namespace's keys are within another's prefix (B3), however alike the two names are."""
    held_apart(one, other, "d/r/0")


@given(st.lists(namespaces, min_size=2, max_size=2, unique=True), plain)
def test_namespaces_are_apart(pair, id):
    """The same for any two names and any id (B3)."""
    held_apart(*pair, id)
    held_apart(*reversed(pair), id)


@given(namespaces, plain)
def test_a_namespace_s_keys_share_one_hash_tag(namespace, id):
    """What stands in the first braces decides a key's slot: it is the index's name, in every key of a namespace."""
    names = Names(namespace)
    for key in keys_of(names, id):
        assert key.startswith("{")
        assert key[: key.index("}") + 1] == names.index


@given(namespaces, plain)
def test_the_index_holds_chunks_alone(namespace, id):
    """Documents and counters stand outside the index's prefix (B4), so the engine never indexes one."""
    names = Names(namespace)
    chunk, *others = keys_of(names, id)
    assert chunk.startswith(names.prefix)
    assert not any(key.startswith(names.prefix) for key in others)
    assert names.uses != names.used
    assert not any(key.startswith(names.documents) for key in (chunk, names.uses, names.used))


@given(namespaces)
def test_a_namespace_makes_a_schema(namespace):
    """Any name makes an index name and a prefix that the engines take."""
    names = Names(namespace)
    schema = schema_of(names, [Tag("topic")], Vector(dims=3), Analysis())
    assert (schema.name, schema.prefix) == (names.index, names.prefix)


@pytest.mark.parametrize("namespace", ["", None, 1, b"a", "a\ud800", "x" * 2000, "é" * 200])
def test_what_is_no_namespace_is_refused(namespace):
    """A name is a non-empty string that UTF-8 and a key can hold."""
    with pytest.raises(InvalidInput, match="namespace"):
        Names(namespace)


@pytest.mark.parametrize("name", [each.name for each in FIELDS])
def test_a_field_of_the_store_s_own_name_is_refused(name):
    """A declared field may not take the place of one of ours; the error names it (B1)."""
    with pytest.raises(InvalidInput, match=f"fields: {name} "):
        schema_of(Names("a"), [Tag("topic"), Tag(name)], Vector(dims=3), Analysis())


@pytest.mark.parametrize("part", ["user", "agent", "session"])
@pytest.mark.parametrize("value", ["", 1, b"u", True])
def test_a_scope_is_of_strings(part, value):
    """A lost id must not widen a search: an empty string is an error, None alone means everyone (B3)."""
    assert Scope(**{part: None}).fields == {}
    assert Scope(**{part: "U"}).fields == {part: "U"}
    with pytest.raises(InvalidInput, match=part):
        Scope(**{part: value})


# --- documents -------------------------------------------------------------------------------------

words = st.text(st.sampled_from('ab/\x1f=:",\\ é') | st.characters(exclude_categories=["Cs"]), max_size=12)
parts = st.none() | words.filter(bool)
scopes = st.builds(Scope, parts, parts, parts)


@given(words, scopes)
def test_a_document_s_id_is_a_slug_and_hex_digits(source, scope):
    """The id is stable for the same source and scope (B4), readable, and without a slash, so D/R/n can be split."""
    found = document_id(source, scope)
    assert found == document_id(source, Scope(**scope.fields))
    slug, _, digest = found.rpartition("-")
    assert len(digest) == (24 if scope.fields else 8)
    assert set(digest) <= set("0123456789abcdef")
    assert 0 < len(slug) <= 40
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert chunk_id(found, "r", 7).split("/") == [found, "r", "7"]


@given(st.lists(st.tuples(words, scopes), min_size=2, max_size=2, unique=True))
def test_other_sources_and_other_scopes_have_other_ids(pair):
    """Another user's same source is another document (B3, B4)."""
    one, other = (document_id(*each) for each in pair)
    assert one != other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a\x1fuser=b", Scope()), ("a", Scope(user="b"))),
        (("a", Scope(agent="b\x1fuser=c")), ("a", Scope(agent="b", user="c"))),
        (("a", Scope(user="b")), ("a", Scope(agent="b"))),
        (('a", {"user": "b"}', Scope()), ("a", Scope(user="b"))),
        (("a", Scope(user="b")), ("a", Scope(user="B"))),
        (("docs/a.md", Scope()), ("notes/a.md", Scope())),
    ],
)
def test_no_source_spells_another_s_scope(one, other):
    """What separates source and scope cannot be written into either."""
    assert document_id(*one) != document_id(*other)


@pytest.mark.parametrize(
    ("source", "slug"),
    [
        ("docs/Design Notes.md", "design-notes-md"),
        ("https://a.b/c-d?e=1", "c-d-e-1"),
        ("https://a.b/guide/", "guide"),
        ("Café.txt", "cafe-txt"),
        ("日本", "document"),
        ("", "document"),
        ("x" * 99, "x" * 40),
        (f"{'x' * 39}.md", "x" * 39),
    ],
)
def test_a_slug_is_the_readable_end_of_the_source(source, slug):
    """The last part of a path or URL, in ASCII, at most 40 characters (B4)."""
    assert document_id(source, Scope()).rpartition("-")[0] == slug


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a b", "  a \t b\n"),
        ("a\n\nb", "a  \r\n \r\n\r\n\r\n b"),
        ("a\nb", "a\r\nb"),
        ("e\u0301", "\u00e9"),
        ("\ufb01t", "fit"),
        ("a\u00a0b", "a b"),
        ("", " \n\n "),
    ],
)
def test_texts_that_read_alike_have_one_hash(one, other):
    """Blanks, line ends and the way a character is written do not count (B14, B39)."""
    assert content_hash(one) == content_hash(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a\n\nb", "a\nb"),
        ("a\nb", "a b"),
        ("a", "A"),
        ("ab", "a b"),
        ("v1 took 12 ms", "v1 took 13 ms"),
        ("a\n\nb", "a b"),
    ],
)
def test_texts_that_read_otherwise_have_another_hash(one, other):
    """Paragraphs, lines, case and every digit count (B14; case B106)."""
    assert content_hash(one) != content_hash(other)


@given(st.text())
def test_a_content_hash_is_32_hex_digits(text):
    """Of any text, one with half a character too."""
    assert len(content_hash(text)) == 32
    assert content_hash(f" {text}\n") == content_hash(text)


# --- what may be set -------------------------------------------------------------------------------


class Word(str, Enum):  # noqa: UP042 - formats as Word.PAPER, as a StrEnum does not
    PAPER = "paper"


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
def test_an_importance_is_a_float(value):
    """Any number from 0 to 1, as Python's own float (B5)."""
    assert type(check_importance(value)) is float
    assert check_importance(value) == float(value)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, True, np.True_, "0.5", None, 10**400, [1]])
def test_what_is_no_importance_is_refused(value):
    """Out of range, NaN, a bool or a word is InvalidInput (B31)."""
    with pytest.raises(InvalidInput, match="importance"):
        check_importance(value)


def test_a_knowledge_type_is_one_of_four():
    """The kinds are principle, paper, news and experiment (B6); a str-Enum is its value; all else is refused."""
    assert [check_knowledge_type(each) for each in ("principle", "paper", "news", "experiment")]
    assert f"{check_knowledge_type(Word.PAPER)}" == "paper"
    for value in ("Paper", "", None, 1, ["paper"], np.array(["paper", "news"])):
        with pytest.raises(InvalidInput, match="knowledge_type: one of principle, paper, news, experiment"):
            check_knowledge_type(value)


def test_tags_are_kept_once_in_their_order():
    """Any iterable of strings, repeated ones once; case counts (B24)."""
    assert check_tags(iter(["b", "a", "b", "A"])) == ["b", "a", "A"]
    assert check_tags([]) == []
    assert [f"{tag}" for tag in check_tags([Word.PAPER])] == ["paper"]


@pytest.mark.parametrize("tags", ["a", b"a", {"a": 1}, 1, None, [""], [1], [None], [["a"]], [{}]])
def test_what_are_no_tags_is_refused(tags):
    """A string is no list of its letters, and no tag is empty or something else than a string (B31)."""
    with pytest.raises(InvalidInput, match="tags"):
        check_tags(tags)


def test_tags_filter_means_all_of_a_list_or_any_of_a_mapping():
    """A list means all of them, {"any": [...]} one of them (B24); none at all is no filter."""
    assert tags_filter(None) is None
    assert tags_filter([]) is None
    tags = Tag("tags", many=True)
    assert filter_text(tags_filter(["a", "b"])) == filter_text(tags.contains("a") & tags.contains("b"))
    assert filter_text(tags_filter(["a"])) == filter_text(tags.contains("a"))
    assert filter_text(tags_filter({"any": ["a", "b"]})) == filter_text(tags.isin(["a", "b"]))


@pytest.mark.parametrize(
    "tags", ["a", {}, {"all": ["a"]}, {"any": ["a"], "all": ["b"]}, {"any": []}, {"any": "a"}, [1], 5]
)
def test_other_forms_of_tags_are_refused(tags):
    """A form that is not known must not widen a search to everything."""
    with pytest.raises(InvalidInput):
        tags_filter(tags)


# --- dates -----------------------------------------------------------------------------------------


class Nowhere(tzinfo):
    """A zone that does not know its offset: such a datetime is as naive as one without a zone."""

    def utcoffset(self, when):
        return None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-07-28T15:59:49Z", NOW),
        (" 2026-07-28T15:59:49Z\n", NOW),
        ("2026-07-28T15:59:49.250Z", NOW + 0.25),
        ("2026-07-28T17:59:49+02:00", NOW),
        ("2026-07-28 10:29:49-05:30", NOW),
        ("20260728T155949Z", NOW),
        ("2026-07-28", NOW - 57_589),
        ("20260728", NOW - 57_589),
        (date(2026, 7, 28), NOW - 57_589),
        (datetime(2026, 7, 28, 15, 59, 49, tzinfo=UTC), NOW),
        (datetime(2026, 7, 28, 17, 59, 49, tzinfo=timezone(timedelta(hours=2))), NOW),
        (0, 0.0),
        (-1.5, -1.5),
        (NOW, NOW),
        (np.float64(NOW), NOW),
        (np.int64(5), 5.0),
        ("0001-01-01", -62_135_596_800.0),
        ("9999-12-31T23:59:59Z", 253_402_300_799.0),
    ],
)
def test_a_date_in_any_form_is_seconds_since_the_epoch(value, seconds):
    """Seconds, aware datetimes, days and ISO 8601 with its zone become UTC seconds (B2; case B100)."""
    found = timestamp(value)
    assert found == seconds
    assert type(found) is float


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (datetime(2026, 7, 28), "no time zone"),
        (datetime(2026, 7, 28, tzinfo=Nowhere()), "no time zone"),
        ("2026-07-28T15:59:49", "no time zone; end it in Z"),
        ("2026-07-28 15:59", "no time zone"),
        ("yesterday", "no ISO 8601 date"),
        ("", "no ISO 8601 date"),
        ("1785254389", "no ISO 8601 date"),
        ("2026-02-30", "no ISO 8601 date"),
        ("２０２６-０７-２８", "no ISO 8601 date"),
        (True, "a date expected"),
        (None, "a date expected"),
        (b"2026-07-28", "a date expected"),
        (math.nan, "nan seconds"),
        (math.inf, "years 1 to 9999"),
        (-math.inf, "years 1 to 9999"),
        (10**400, "years 1 to 9999"),
        pytest.param(10**5000, "years 1 to 9999", id="an int too long to print"),
        (NOW * 1000, "years 1 to 9999"),
        (253_402_300_800, "years 1 to 9999"),
        (-62_135_596_801, "years 1 to 9999"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=2))), "years 1 to 9999"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-2))), "years 1 to 9999"),
        ("10000-01-01", "no ISO 8601 date"),
    ],
)
def test_what_is_no_date_is_refused(value, said):
    """A time without a zone, milliseconds, NaN, a bool, the year 10000 are InvalidInput that names the field (B2)."""
    with pytest.raises(InvalidInput, match=f"source_date: .*{said}"):
        timestamp(value, "source_date")


@given(st.floats(-62_135_596_800, 253_402_300_800, exclude_max=True))
def test_what_is_taken_can_be_shown_and_taken_again(seconds):
    """iso shows every date that timestamp takes, in UTC with Z, and it comes back to the microsecond (B2)."""
    shown = iso(timestamp(seconds))
    assert shown.endswith("Z")
    assert timestamp(shown) == pytest.approx(seconds, abs=1e-6, rel=1e-15)
    assert iso(timestamp(shown)) == shown


def test_iso_shows_fractions_only_where_there_are_some():
    """Whole seconds have no fraction."""
    assert iso(NOW) == "2026-07-28T15:59:49Z"
    assert iso(NOW + 0.5) == "2026-07-28T15:59:49.500000Z"
    assert iso(-1) == "1969-12-31T23:59:59Z"


# --- chunks ----------------------------------------------------------------------------------------

STORED = {
    "doc_id": "d",
    "chunk_index": 3,
    "section": "Intro",
    "source": "d.md",
    "speaker": "Ann",
    "content_type": "text/markdown",
    "tags": ["a", "b"],
    "knowledge_type": "paper",
    "importance": 0.5,
    "created_at": 5,
    "source_date": 4.5,
    "content_hash": "c",
    "document_hash": "e",
    "embedder": "m",
    "user": "u",
    "agent": "g",
    "session": "s",
    "state": "pending",
    "context": "Title",
    "revision": "r",
    "metadata": {"page": 1, "nested": {"list": [1, None]}},
    "topic": "x",
    "year": 2026,
}


def test_a_stored_document_is_a_chunk():
    """Every field that was stored comes back under its own name, the user's own beside them (B1)."""
    assert set(STORED) == {each.name for each in FIELDS} | {"topic", "year"}
    chunk = chunk_of(Document("d/r/3", "text", STORED), uses=2, used=NOW)
    same = (
        "doc_id chunk_index section source speaker content_type knowledge_type importance created_at source_date "
        "content_hash embedder user agent session metadata"
    ).split()
    assert {name: getattr(chunk, name) for name in same} == {name: STORED[name] for name in same}
    assert (chunk.id, chunk.content, chunk.tags, chunk.pending) == ("d/r/3", "text", ("a", "b"), True)
    assert (chunk.access_count, chunk.last_accessed_at) == (2, NOW)
    assert chunk.fields == {"topic": "x", "year": 2026}


def test_a_chunk_without_fields_has_the_defaults():
    """What is not stored is None, empty or 0, and a chunk without a state is not pending."""
    assert chunk_of(Document("d/r/0", "text", {})) == Chunk("d/r/0", "", 0, "text")


def test_a_chunk_as_a_dict_is_json():
    """to_dict is JSON as it stands: every attribute, times as ISO 8601 with Z, absent ones null (B2)."""
    chunk = chunk_of(Document("d/r/3", "text", STORED), used=NOW)
    found = chunk.to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert set(found) == set(Chunk.__slots__)
    assert (found["created_at"], found["source_date"]) == ("1970-01-01T00:00:05Z", "1970-01-01T00:00:04.500000Z")
    assert found["last_accessed_at"] == "2026-07-28T15:59:49Z"
    assert Chunk("i", "d", 0, "").to_dict()["source_date"] is None
    assert found["tags"] == ["a", "b"]


def test_chunks_are_values():
    """Equal chunks are equal and hash alike, though they hold mappings; another field makes another chunk."""
    one, other = (chunk_of(Document("d/r/3", "text", STORED)) for _ in range(2))
    assert one == other
    assert len({one, other}) == 1
    assert one != chunk_of(Document("d/r/3", "text", STORED), uses=1)


def test_indexed_text_carries_the_context():
    """What is searched is the context, then the text (B15); without a context the text alone."""
    assert indexed_text(Document("d/r/0", "text", {"context": "Title"})) == "Title\ntext"
    assert indexed_text(Document("d/r/0", "text")) == "text"


def test_what_filters_act_on_is_tag_or_numeric():
    """The fields that a search narrows by are indexed, and scope and tags are case-sensitive tags (B1, B3)."""
    kinds = {each.name: type(each) for each in FIELDS}
    tags = "doc_id source speaker content_type tags knowledge_type content_hash embedder user agent session".split()
    assert all(kinds[name] is Tag for name in tags)
    assert all(kinds[name] is Numeric for name in ("chunk_index", "importance", "created_at", "source_date"))
    assert all("CASESENSITIVE" in each.index_words() for each in FIELDS if isinstance(each, Tag))
