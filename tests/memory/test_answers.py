"""Answers keep to their size, whatever is in a chunk; and say what they leave out."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pydantic", reason="the extra mcp")

from hypothesis import given, settings
from hypothesis import strategies as st

from retriever.documents import Failure
from retriever.memory import answers
from retriever.memory.chunks import Chunk
from retriever.memory.indexing import Finding, Health, Indexed
from retriever.memory.ingesting import Ingested, IngestReport
from retriever.memory.keeping import Forgotten
from retriever.memory.searching import Found


def said(answer):
    """The text of a result, as the SDK writes it."""
    return answer.model_dump_json(indent=2).encode()


def chunk(at=0, content="text", **given):
    return Chunk(f"doc/{'r' * 32}/{at}", "doc", at, content, relevance=0.5, **given)


# What makes a byte of text many bytes of JSON, at lengths that no bound of the store holds back. Small as a value, so
# that a failure can be shown.
LETTERS = ("x", "\0", "😀", "\\", "\n")


def long(letter, length):
    return LETTERS[letter] * length


def made(shapes):
    """Chunks of (letter, length of text, of source and section, tags, length of one, of metadata)."""
    return [
        chunk(
            at,
            long(letter, text),
            source=long(letter, name),
            section=long(letter, name),
            tags=tuple(f"{tag}{long(letter, length)}" for tag in range(tags)),
            metadata={"m": long(letter, metadata)},
            access_count=10**9,
            last_accessed_at=1.5,
        )
        for at, (letter, text, name, tags, length, metadata) in enumerate(shapes)
    ]


def sizes(*numbers):
    return st.sampled_from(numbers)


shapes = st.lists(
    st.tuples(
        st.integers(0, len(LETTERS) - 1),
        sizes(0, 1, 120, 500, 2_000, 100_000),
        sizes(0, 10, 4_096),
        sizes(0, 1, 40),
        sizes(0, 10, 4_096),
        sizes(0, 100, 900, 5_000),
    ),
    max_size=60,
)


@settings(max_examples=50)
@given(shapes)
def test_a_search_keeps_to_its_size(shapes):
    """Whatever it found, there is room for the first chunk; and what ``room_for`` promised is in the answer."""
    found = made(shapes)
    room = answers.room_for(found)
    assert room >= min(1, len(found))
    answer = answers.search_answer(Found(tuple(found[:room])), include_stats=True, left=len(found) - room)
    assert len(said(answer)) <= answers.BUDGET
    assert [each.id for each in answer.chunks] == [each.id for each in found[:room]]
    assert answer.truncated == (room < len(found) or any(each.truncated for each in answer.chunks))


@settings(max_examples=50)
@given(shapes, st.booleans())
def test_lists_of_chunks_keep_to_their_size(shapes, whole):
    """Whole or as previews, there is room for the first; how many there are is told."""
    found = made(shapes)
    answer = answers.chunks_answer(found, whole=whole)
    assert len(said(answer)) <= answers.BUDGET
    assert len(answer.chunks) >= min(1, len(found))
    assert answer.total == len(found)
    assert answer.truncated or [each.content for each in answer.chunks] == [each.content for each in found]


@settings(max_examples=50)
@given(shapes)
def test_other_answers_keep_to_their_size(shapes):
    """Ranking, forgetting, a document's text."""
    found = made(shapes)
    gone = [Forgotten(each, 0.01, "x" * 1_000) for each in found] * 20
    for answer in (
        answers.rerank_answer(found, [("d" * 1_000, at) for at in range(200)], len(found) + 200),
        answers.forgotten_answer(gone, dry_run=True, archive="a.jsonl"),
        answers.document_answer("doc", found),
    ):
        assert len(said(answer)) <= answers.BUDGET


def test_reports_keep_to_their_size():
    """A hundred files with long reasons, ten thousand failures, long findings."""
    report = IngestReport(tuple(Ingested("p" * 4_000, "failed", reason="r" * 5_000) for _ in range(100)))
    failures = tuple(Failure(f"id-{at}", "r" * 1_000) for at in range(10_000))
    findings = tuple(Finding("w" * 5_000, 1, ("e" * 5_000,) * 5, "a") for _ in range(8))
    for answer in (
        answers.ingest_answer(report),
        answers.indexed_answer(Indexed(0, failures, 0)),
        answers.health_answer(Health(findings, 1, 1)),
    ):
        assert len(said(answer)) <= answers.BUDGET
    assert answers.ingest_answer(report).failed == 100
    assert "still filling" in answers.indexed_answer(Indexed(0, (), 0, filling=True)).notes[0]
    indexed = answers.indexed_answer(Indexed(0, failures, 0))
    assert indexed.truncated
    assert f"{len(indexed.failed)} of 10000 failures are here" in indexed.notes[0]


def test_what_fits_is_whole():
    """Nothing is cut where there is room, and nothing says so."""
    answer = answers.chunks_answer([chunk(at, "x" * 1_000) for at in range(10)], whole=False)
    assert [len(each.content) for each in answer.chunks] == [1_000] * 10
    assert (answer.truncated, answer.notes) == (False, [])


def test_previews_come_before_leaving_out():
    """Long texts are cut alike, so that each chunk has its place."""
    answer = answers.chunks_answer([chunk(at, "x" * 10_000) for at in range(20)], whole=False)
    assert {len(each.content) for each in answer.chunks} == {700}
    assert (len(answer.chunks), answer.truncated, answer.notes) == (20, True, [])


def test_no_chunk_is_too_large_to_be_shown():
    """Whatever a chunk holds, an answer has room for it, and what follows it is not lost with it."""
    nested: list = [0] * 400
    for _ in range(90):
        nested = [nested]
    worst = chunk(
        content="\x01" * 30_000,
        source="\x01" * 4_096,
        section="\x01" * 9_000,
        speaker="\x01" * 4_096,
        content_type="\x01" * 4_096,
        tags=tuple("\x01" * 700 + str(at) for at in range(100)),
        metadata={"m": nested},
    )
    assert len(said(answers.tagged_answer(worst))) <= answers.BUDGET
    found = answers.search_answer(Found((chunk(1, metadata={"m": nested}), chunk(2))), include_stats=False, left=0)
    assert [each.chunk_index for each in found.chunks] == [1, 2]
    assert [each.truncated for each in found.chunks] == [True, False]


def test_what_there_is_no_room_for_is_not_looked_at():
    """Of a thousand long chunks only those are shown that fit, at each length: the others cost nothing."""
    looked = []

    def show(item, length):
        looked.append(item)
        return answers.piece(chunk(item, "x" * length), length)

    shown = answers.within(range(1_000), show)
    assert 10 < len(shown) < 100
    assert max(looked) == len(shown)


def test_metadata_that_is_too_long_is_left_out():
    """The chunk says that something is missing."""
    (few, many) = (
        answers.piece(chunk(metadata=metadata), 100) for metadata in ({"page": 7}, {"everything": "x" * 1_501})
    )
    assert (few.metadata, few.truncated) == ({"page": 7}, False)
    assert (many.metadata, many.truncated) == ({}, True)


def test_reasons_become_stats():
    """Expired hits are counted and channels that failed named, from what the store says of them."""
    reasons = (
        "text: SearchTimeout: FT.SEARCH: timed out",
        "3 hits expired or were deleted while they were fetched",
        "text: 2 hits expired while the engine was answering",
        "text: it holds no terms, so only the vector was searched by",
    )
    found = Found((), complete=False, reasons=reasons, stats={"vector_candidates": 4, "search_ms": 2.0})
    stats = answers.search_answer(found, include_stats=True, left=0).stats
    assert (stats.failed_channels, stats.orphan_index_entries, stats.complete) == (["text"], 5, False)
    assert (stats.vector.candidates, stats.vector.ms, stats.text) == (4, 2.0, None)


def test_dates_are_iso_8601():
    """In UTC, ending in Z."""
    told = json.loads(said(answers.piece(chunk(created_at=0.0, source_date=86_400.0), 100)))
    assert (told["created_at"], told["source_date"], told["last_accessed_at"]) == (
        "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z", None,
    )  # fmt: skip
