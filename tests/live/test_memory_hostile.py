"""What nobody should hand a store, and somebody does: it says so, and leaves nothing behind."""

from __future__ import annotations

import json

import pytest

from retriever import InvalidInput
from retriever.memory import keeping
from retriever.memory.store import Note
from retriever.operations import read
from tests.memory_stores import Steps, chunk_ids, dump, lines, note

pytestmark = pytest.mark.live

HALF = "\ud800"  # of a character: no UTF-8 can hold it


# --- ingest ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "options"),
    [
        pytest.param(Note("some text", HALF), {}, id="source"),
        pytest.param(Note("some text", "a", title=HALF), {}, id="title"),
        pytest.param(Note("some text", "a"), {"source_key": HALF}, id="source_key"),
        pytest.param(Note("some text", "a"), {"version": HALF}, id="version"),
        pytest.param(Note("some text", "a", metadata={"tags": [HALF]}), {}, id="tags"),
        pytest.param(Note("some text", "a", metadata={HALF: 1}), {}, id="metadata"),
    ],
)
async def test_half_a_character(remember, raw, given, options):
    """A source that says what no UTF-8 can hold fails, and leaves neither chunks nor a document."""
    store = await remember(context=())  # so that nothing but the document's hash holds the title
    before = dump(raw, store)
    (failed,) = (await store.ingest(given, **options)).sources
    assert failed.status == "failed"
    assert "surrogate" in failed.reason
    assert dump(raw, store) == before
    assert (await store.index_health()).ok


async def test_metadata_nested_too_deep_for_json(remember):
    """Such a source fails alone; the others of the call are ingested."""
    store = await remember()
    deep: list = []
    for _ in range(20_000):
        deep = [deep]
    report = await store.ingest([note("one text", "a", deep=deep), note("another", "b")])
    assert [each.status for each in report.sources] == ["failed", "ingested"]


async def test_what_each_chunk_would_keep_of_a_large_head(remember, raw, monkeypatch):
    """Metadata are kept with each chunk: of many chunks they are refused where together they would fill a server."""
    store = await remember()
    monkeypatch.setattr("retriever.memory.ingesting._MOST_SHARED", 10_000)
    head = {"all": "x" * 3_000}
    few = await store.ingest(note("one\ntwo\nthree", "few", **head), split=lines)
    many = await store.ingest(note("one\ntwo\nthree\nfour", "many", **head), split=lines)
    assert [each.status for each in (*few.sources, *many.sources)] == ["ingested", "failed"]
    assert "kept with each of 4 chunks" in many.sources[0].reason
    assert len(chunk_ids(raw, store)) == 3


async def test_a_title_of_a_megabyte(remember):
    """Before each chunk stands the beginning of a title, not all of it."""
    store = await remember()
    await store.ingest(Note("one\ntwo", "a", title="long " * 200_000), split=lines)
    found = await store.search("one", k=2)
    assert [len(chunk.context) for chunk in found.chunks] == [200, 200]


async def test_content_that_moves_to_another_source(remember):
    """Of two sources of one call the second has what the first had: it is no duplicate, and is not left out."""
    store = await remember()
    await store.ingest(Note("old words", "a"))
    report = await store.ingest([Note("new words", "a"), Note("old words", "b")], on_duplicate="skip")
    assert [(each.status, each.duplicate_of) for each in report.sources] == [("replaced", None), ("ingested", None)]
    found = await store.search("words", k=5)
    assert sorted(chunk.content for chunk in found.chunks) == ["new words", "old words"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Note("text", 5), "source"),
        (Note("text", "a", title=5), "title"),
    ],
)
async def test_a_note_of_other_types(remember, given, said):
    """Its source and its title are strings, or there are none."""
    store = await remember()
    with pytest.raises(InvalidInput, match=said):
        await store.ingest(given)


@pytest.mark.parametrize(
    "options",
    [
        {"update_index": "no"},
        {"dry_run": 1},
        {"on_source": 5},
        {"roots": "/"},
    ],
    ids=str,
)
async def test_options_of_ingest_that_are_none(remember, options):
    """They are refused by name before anything is read or written."""
    store = await remember()
    with pytest.raises(InvalidInput, match=next(iter(options))):
        await store.ingest(Note("text", "a"), **options)
    assert (await store.stats()).chunks == 0


# --- search ---------------------------------------------------------------------------------------


async def test_as_many_as_can_be_asked_for_where_some_are_alike(remember, monkeypatch):
    """A search for all that a page holds ends, though texts that are there twice leave fewer than k."""
    store = await remember()
    monkeypatch.setattr(read, "MAX_PAGE", 20)
    await store.ingest([Note("\n".join(f"line {at}" for at in range(25)), "a"), Note("line 0", "b")], split=lines)
    found = await store.search("line 0", k=20, use_fts=False)
    assert len(found.chunks) == 19
    assert [chunk.duplicates for chunk in found.chunks][:2] == [1, 0]


@pytest.mark.parametrize("scored", [None, 5, "abc", ["abc"], [("a", 0)], [("a", 0, 1.0, 2)], [None]], ids=repr)
async def test_what_rerank_cannot_take(remember, scored):
    """Anything but triples is refused, and shown."""
    store = await remember()
    with pytest.raises(InvalidInput, match="rerank"):
        await store.rerank(scored)


async def test_functions_that_are_none_or_count_nothing(remember):
    """``fit`` and ``count`` are functions, and a count is a number from 0."""
    store = await remember()
    await store.ingest(Note("some text", "a"))
    with pytest.raises(InvalidInput, match="fit"):
        await store.search("text", fit=5)
    for count in (lambda text: "many", lambda text: -5, lambda text: 1.5):
        with pytest.raises(InvalidInput, match="count"):
            await store.context("text", 100, count=count)


# --- keeping --------------------------------------------------------------------------------------


async def test_a_weight_that_there_is_not(remember):
    """It is named, not a TypeError of the library's insides."""
    store = await remember()
    with pytest.raises(InvalidInput, match="half_life"):
        await store.forget(half_life=3)


@pytest.mark.parametrize("remember", ["sync"], indirect=True)  # whose plans are taken step by step
async def test_a_chunk_that_goes_while_its_tags_are_set(remember):
    """Who sets them is told that it was deleted, whichever step it went after."""
    store = await remember()
    told = []
    for at in range(8):
        doc_id = (await store.ingest(Note("some text", f"source {at}"))).sources[0].doc_id
        steps = _setting(store.retriever, doc_id).take(at)
        await store.delete_document(doc_id)
        try:
            steps.finish()
        except InvalidInput as error:
            told.append(str(error))
    assert any("was deleted at the same time" in each for each in told), told


def _setting(store, doc_id):
    plan = keeping.set_chunk_tags(
        store._memory,
        doc_id,
        0,
        importance=0.5,
        knowledge_type=None,
        tags=None,
        source_date=None,
        new_token=lambda: "token",
    )
    return Steps(store, plan)


@pytest.mark.parametrize(
    "metadata",
    [
        {"access_count": 10**30},
        {"access_count": -1},
        {"access_count": True},
        {"access_count": "7"},
        {"importance": 7},
        {"knowledge_type": "gossip"},
        {"tags": [""]},
        {"metadata": "words"},
        {"metadata": [1]},
        {"context": 5},
        {"section": ["a"]},
        {"source": 5},
    ],
    ids=str,
)
async def test_a_line_of_the_archive_that_somebody_edited(remember, raw, metadata):
    """What no chunk can be is passed over with its reason and leaves nothing; the lines beside it are restored."""
    store = await remember()
    await store.ingest(Note("bad\ngood", "a", metadata={"importance": 0.1}), split=lines)
    await store.forget(dry_run=False)
    entries = [json.loads(line) for line in remember.archive.read_text().splitlines()]
    bad, good = sorted(entries, key=lambda entry: entry["content"])
    bad["metadata"] |= metadata
    remember.archive.write_text("".join(f"{json.dumps(entry)}\n" for entry in (bad, good)))
    restored = await store.restore(lambda entry: True)
    assert restored.restored == (good["id"],)
    assert list(restored.skipped) == [bad["id"]]
    assert chunk_ids(raw, store) == [good["id"]]
    assert [chunk.to_dict()["content"] for chunk in (await store.search("good bad", k=5)).chunks] == ["good"]
    assert (await store.index_health()).ok


@pytest.mark.parametrize(
    "changes",
    [
        {"doc_id": "", "id": "/r/0"},
        {"doc_id": "d", "id": "d//0"},
        {"doc_id": "d\0", "id": "d\0/r/0"},
        {"doc_id": "d", "id": "d/r/1000000000", "chunk_index": 1_000_000_000},
    ],
    ids=["no document", "no revision", "NUL", "a billionth chunk"],
)
async def test_a_line_with_a_name_that_no_chunk_has(remember, raw, changes):
    """It is passed over, at no cost, and the others are restored."""
    store = await remember()
    await store.ingest(note("some text", "a", importance=0.1))
    await store.forget(dry_run=False)
    (line,) = remember.archive.read_text().splitlines()
    entry = json.loads(line)
    remember.archive.write_text(f"{json.dumps({**entry, **changes})}\n{line}\n")
    restored = await store.restore(lambda entry: True)
    assert restored.restored == (entry["id"],)
    assert list(restored.skipped) == [changes["id"]]
    assert chunk_ids(raw, store) == [entry["id"]]


async def test_a_line_that_sets_what_is_the_stores(remember):
    """A state, and a declared field that has a name of ours, are not taken from the archive."""
    store = await remember()
    await store.ingest(note("some text", "a", importance=0.1))
    await store.forget(dry_run=False)
    entry = json.loads(remember.archive.read_text())
    entry["metadata"] |= {"state": "pending", "fields": {"state": "pending", "user": "bob"}, "created_at": None}
    remember.archive.write_text(f"{json.dumps(entry)}\n")
    assert (await store.restore([entry["id"]])).restored == (entry["id"],)
    (chunk,) = (await store.search("text")).chunks
    assert (chunk.pending, chunk.user) == (False, None)
    assert chunk.created_at > 0


# --- whose ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [HALF, "u" * 4_097], ids=["half a character", "too long"])
async def test_a_user_that_no_tag_can_be(remember, value):
    """It is refused when the store is opened, not by each call."""
    with pytest.raises(InvalidInput, match="user"):
        await remember(user=value)


@pytest.mark.parametrize("given", [{"fields": "abc"}, {"fields": [5]}, {"archive": 5}], ids=str)
async def test_arguments_of_open_that_are_none(remember, given):
    """They are refused by name."""
    with pytest.raises(InvalidInput, match=next(iter(given))):
        await remember(**given)
