"""Sources become chunks: new, changed, the same or broken; what is left when a writer is killed or is not alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import valkey

from retriever import InvalidInput, Numeric, Stored, Tag, Vector
from retriever.memory import keeping
from retriever.memory.chunks import Scope, document_id
from retriever.memory.materials import sources_of
from retriever.memory.sources import RULES
from retriever.memory.store import MemoryStore, Note, _ingest_plan
from tests.fakes import DIMS, Embedder
from tests.memory_stores import Counted, Steps, chunk_ids, dump, keys, lines, memory_of, note
from tests.proxy import Proxy

pytestmark = pytest.mark.live

LONG = "\n".join(f"ferry line {at}" for at in range(5))
SHORT = "ferry line 0\nplane 1"


def contents(chunks):
    return [chunk.content for chunk in chunks]


async def all_contents(shell):
    """What a search over everything finds."""
    found = await shell.search("ferry", k=1000, reinforce=False)
    return sorted(contents(found.chunks))


# --- fields ---------------------------------------------------------------------------------------


async def test_what_is_put_in_comes_out(remember):
    """Each field survives ingest, index and search unchanged; what is not declared is returned too (B1)."""
    store = await remember(
        fields=[Tag("source_type"), Numeric("page"), Stored("links")], user="ann", agent="bot", session="s 1"
    )
    when = "2024-02-29T12:00:00Z"
    given = {
        "tags": ["a b", "x:y", "A"],
        "knowledge_type": "paper",
        "importance": 0.25,
        "source_date": when,
        "speaker": "Zoë",
        "source_type": "design, old",
        "page": 3.5,
        "links": [{"a": None}],
        "color": ["red", {"deep": 1}],
    }
    text = "  Two  blanks\tand “quotes”.  "
    report = await store.ingest(Note(text, "notes/Ünï.md"), metadata=given)
    before = time.time()
    (chunk,) = (await store.search("quotes")).chunks
    assert chunk.content.strip() == text.strip()
    assert (chunk.doc_id, chunk.chunk_index) == (report.sources[0].doc_id, 0)
    assert (chunk.tags, chunk.knowledge_type, chunk.importance) == (("a b", "x:y", "A"), "paper", 0.25)
    assert (chunk.source, chunk.speaker, chunk.source_date) == ("notes/Ünï.md", "Zoë", 1_709_208_000.0)
    assert (chunk.user, chunk.agent, chunk.session) == ("ann", "bot", "s 1")
    assert dict(chunk.fields) == {"source_type": "design, old", "page": 3.5, "links": [{"a": None}]}
    assert dict(chunk.metadata) == {"color": ["red", {"deep": 1}]}
    assert abs(chunk.created_at - before) < 600
    assert chunk.to_dict()["source_date"] == when
    (same,) = await store.get_document_chunks(chunk.doc_id)
    assert (same.fields, same.metadata, same.tags) == (chunk.fields, chunk.metadata, chunk.tags)
    with pytest.raises(InvalidInput, match="color"):
        await store.search("quotes", filter={"color": "red"})
    assert (await store.search("quotes", filter={"source_type": "design, old", "page": {"gte": 3}})).chunks
    assert not (await store.search("quotes", filter={"source_type": "design"})).chunks


async def test_dates_without_a_zone_are_refused(remember):
    """A source whose date names no zone fails alone, and says so (B2, case B100)."""
    store = await remember()
    report = await store.ingest([note("one", date="2024-01-01T12:00:00"), note("two", date="2024-01-01")])
    assert [each.status for each in report.sources] == ["failed", "ingested"]
    assert "time zone" in report.failed[0].reason


async def test_a_document_keeps_its_id(remember):
    """The id follows the source and not the content; another source of the same file name has another (B4)."""
    store = await remember()
    one = (await store.ingest(Note("first", "a/ferry.md"))).sources[0]
    two = (await store.ingest(Note("second", "a/ferry.md"))).sources[0]
    other = (await store.ingest(Note("third", "b/ferry.md"))).sources[0]
    assert one.doc_id == two.doc_id != other.doc_id
    assert one.doc_id.startswith("ferry-md-")


async def test_chunks_are_in_order_and_are_the_text(remember):
    """chunk_index follows the text, and the chunks joined are the text, paragraphs and all (B13, B14)."""
    store = await remember()
    text = "\n\n".join(f"Paragraph {at}.\nIts second line." for at in range(60))
    (source,) = (await store.ingest(Note(text, "p"), size=120)).sources
    chunks = await store.get_document_chunks(source.doc_id)
    assert [chunk.chunk_index for chunk in chunks] == list(range(source.chunks))
    assert len(chunks) > 5
    assert "".join("".join(contents(chunks)).split()) == "".join(text.split())
    assert any("\n" in chunk.content for chunk in chunks)


async def test_a_chunk_is_as_long_as_was_said(remember):
    """In characters, 512 unless said, or in tokens that a function or a tokenizer counts (B13)."""
    store = await remember()
    text = " ".join(f"word{at}" for at in range(400))
    for at, (given, fits) in enumerate(
        [
            ({}, lambda chunk: len(chunk.strip()) <= 512),
            ({"size": 100}, lambda chunk: len(chunk.strip()) <= 100),
            ({"size": 7, "tokens": lambda text: len(text.split())}, lambda chunk: len(chunk.split()) <= 7),
        ]
    ):
        (source,) = (await store.ingest(Note(text, f"s{at}"), **given)).sources
        found = contents(await store.get_document_chunks(source.doc_id))
        assert len(found) > 5
        assert all(map(fits, found))
        assert "".join(found) == text
    with pytest.raises(InvalidInput, match="tokens"):
        await store.ingest(Note(text), tokens=7)


async def test_context_is_searched_and_not_returned(remember):
    """What goes before a chunk's text is found by words; the content is the text alone (B15)."""
    store = await remember(context=["previous", "title", "speaker", "tags"])
    text = "We met in Lisbon\nIt rained"
    await store.ingest(Note(text, "chat", title="Holidays", metadata={"speaker": "Zoe", "tags": ["trip"]}), split=lines)
    for word in ("Lisbon", "Holidays", "Zoe", "trip"):
        found = await store.search(word)
        assert "It rained" in [c.content for c in found.chunks if "text" in c.channels], word
    with pytest.raises(InvalidInput, match="context"):
        await remember(context=["speakers"])


# --- what becomes of a source ---------------------------------------------------------------------


async def test_a_file_and_its_neighbours(remember, tmp_path):
    """Files and notes are read in their order, one bad one fails alone, and each is told as it is done (B12, B16)."""
    store = await remember()
    good, missing = tmp_path / "good.md", tmp_path / "missing.md"
    good.write_text("# Ferries\n\nThe ferry leaves at nine.\n")
    seen = []
    report = await store.ingest(
        [good, missing, Note("  \n"), Note("ok")], metadata=[{"tags": ["t"]}, {}, {}, {}], on_source=seen.append
    )
    assert [each.status for each in report.sources] == ["ingested", "failed", "failed", "ingested"]
    assert seen == list(report.sources)
    assert "missing.md" in report.failed[0].reason
    assert "no text" in report.failed[1].reason
    assert report.chunks == sum(each.chunks for each in report.sources) >= 2
    assert report.seconds >= 0
    (chunk,) = await store.find_by_tag("t")
    assert (chunk.section, chunk.content_type) == ("Ferries", "markdown")
    assert (await store.index_health()).ok


DOCUMENTS = Path(__file__).parents[1] / "memory" / "documents"
KINDS_OF_FILES = {
    "guide.md": "markdown",
    "note.txt": "text",
    "page.html": "html",
    "guide.docx": "docx",
    "report.pdf": "pdf",
    "shapes.py": "code",
    "chat.json": "conversation",
    "talk.jsonl": "conversation",
}


async def test_every_kind_of_file(remember):
    """Each is read as what it is and found by its words; a turn has its speaker and date; a scan fails alone (B12)."""
    store = await remember()
    report = await store.ingest([DOCUMENTS / name for name in (*KINDS_OF_FILES, "scanned.pdf")])
    assert [each.status for each in report.sources] == ["ingested"] * len(KINDS_OF_FILES) + ["failed"]
    for source, (name, kind) in zip(report.ingested, KINDS_OF_FILES.items(), strict=True):
        chunks = await store.get_document_chunks(source.doc_id)
        assert {chunk.content_type for chunk in chunks} == {kind}, name
        if kind == "conversation":
            assert any(chunk.speaker for chunk in chunks), name
            assert any(chunk.source_date is not None for chunk in chunks), name
        longest = max(chunks[0].content.split(), key=len)
        assert (await store.search(longest, filter={"doc_id": source.doc_id}, use_fts=True)).chunks, name


async def test_a_content_type_that_was_said(remember, tmp_path):
    """Metadata say how a file of any name is read, which its error tells, and how a note is; a binary stays none."""
    store = await remember()
    (tmp_path / "a.foo").write_text("# Dogs\n\nsail free")
    (tmp_path / "b.foo").write_bytes(b"a\0b")
    (failed,) = (await store.ingest(tmp_path / "a.foo")).failed
    assert 'the content_type "text" in its metadata' in failed.reason
    for kind, section in (("text", None), ("markdown", "Dogs")):
        for source in (tmp_path / "a.foo", Note("# Dogs\n\nsail free", kind)):
            report = await store.ingest(source, metadata={"content_type": kind}, version=kind)
            (chunk,) = await store.get_document_chunks(report.sources[0].doc_id)
            assert (chunk.content_type, chunk.section) == (kind, section)
    for path, kind in (("b.foo", "text"), ("a.foo", "novel")):
        assert (await store.ingest(tmp_path / path, metadata={"content_type": kind}, version="x")).failed


async def test_kind_and_date_of_a_source(remember, tmp_path):
    """By what it is called or registered as, which the store's rules and the metadata overrule; no date of a file's
    own (B7, B8)."""
    file = tmp_path / "plain.md"
    file.write_text("The ferry leaves.")
    os.utime(file, (0, 0))
    dated = tmp_path / "log-2024-05-06.txt"
    dated.write_text("The ferry left.")
    front = tmp_path / "front.md"
    front.write_text("---\ndate: 2020-01-01\n---\nThe ferry is painted.")
    given = [
        (Note("a", "https://arxiv.org/abs/2401.01234"), {}),
        (Note("b", "https://news.example/2024/01/15/x"), {}),
        (Note("c", "design.md"), {"source_type": "design"}),
        (Note("d", "runs/x.log"), {"knowledge_type": "principle", "source_date": "1999-01-01"}),
        (file, {}),
        (dated, {}),
        (front, {}),
    ]

    async def kinds_and_dates(store):
        report = await store.ingest([source for source, _ in given], metadata=[metadata for _, metadata in given])
        chunks = [(await store.get_document_chunks(each.doc_id))[0] for each in report.sources]
        dates = [chunk.to_dict()["source_date"] for chunk in chunks]
        return [chunk.knowledge_type for chunk in chunks], [each and each[:10] for each in dates]

    kinds = ["paper", "news", "principle", "principle", None, "experiment", None]
    days = ["2024-01-01", "2024-01-15", None, "1999-01-01", None, "2024-05-06", "2020-01-01"]
    assert await kinds_and_dates(await remember(user="ann")) == (kinds, days)
    ruled = await remember(user="bob", rules=[("plain[.]md$", "principle"), ("^https://arxiv", None), *RULES])
    assert await kinds_and_dates(ruled) == ([None, "news", "principle", "principle", "principle", *kinds[5:]], days)
    for bad in ([("(", "news")], [("a", "rumour")], ["a"]):
        with pytest.raises(InvalidInput, match="rules"):
            await remember(rules=bad)


async def test_a_server_s_index_is_hnsw(remember, raw, name):
    """Unless another is said (B30)."""
    for vector, algorithm in ((None, b"HNSW"), (Vector(algorithm="FLAT"), b"FLAT")):
        store = await remember(namespace=f"{name} {algorithm}", vector=vector)
        reply = raw.execute_command("FT.INFO", memory_of(store).names.index)
        (found,) = [each for each in reply[reply.index(b"attributes") + 1] if b"VECTOR" in each]
        assert found[found.index(b"algorithm") + 1] == algorithm


async def test_the_same_again_is_skipped(remember, raw):
    """Same source, same content: nothing is written, whatever its blanks (B17)."""
    store = await remember()
    await store.ingest(Note(LONG, "s"), split=lines)
    before = dump(raw, store)
    report = await store.ingest(Note(LONG + "\n  ", "s"), split=lines)
    assert [each.status for each in report.sources] == ["skipped"]
    assert report.chunks == 0
    assert dump(raw, store) == before


async def test_a_change_replaces_and_the_old_tail_goes(remember, raw):
    """A shorter version leaves nothing of the longer one, in no index and under no key (B17, case B76)."""
    store = await remember()
    await store.ingest(Note(LONG, "s"), split=lines)
    await store.search("ferry")
    report = await store.ingest(Note(SHORT, "s"), split=lines)
    assert [(each.status, each.chunks) for each in report.sources] == [("replaced", 2)]
    assert await all_contents(store) == sorted(SHORT.splitlines())
    assert len(chunk_ids(raw, store)) == 2
    assert not raw.exists(memory_of(store).names.uses)  # counters go with their chunks


async def test_the_same_content_elsewhere(remember):
    """It is ingested and names the document that holds it too, or is left out if so asked (B17, case B106)."""
    store = await remember()
    first = (await store.ingest(Note("same words", "a"))).sources[0]
    kept = (await store.ingest(Note("same  words", "b"))).sources[0]
    assert (kept.status, kept.duplicate_of) == ("ingested", first.doc_id)
    left = (await store.ingest(Note("same words ", "c"), on_duplicate="skip")).sources[0]
    assert left.status == "skipped"
    assert left.duplicate_of in (first.doc_id, kept.doc_id)
    assert (await store.stats()).documents == 2
    changed = (await store.ingest(Note("same word", "b"))).sources[0]
    assert changed.duplicate_of is None


async def test_keys_and_versions(remember):
    """Same key and version: skipped; another version: replaced; another key: created (B18)."""
    store = await remember()

    async def put(text, key, version):
        report = await store.ingest(Note(text, "page"), source_key=key, version=version)
        return report.sources[0]

    assert (await put("one", "k", "1")).status == "ingested"
    assert (await put("one, changed", "k", "1")).status == "skipped"
    replaced = await put("two", "k", "2")
    assert replaced.status == "replaced"
    assert (await put("two", "l", "2")).status == "ingested"
    assert (await put("two", "k", "3")).status == "replaced"
    assert contents(await store.get_document_chunks(replaced.doc_id)) == ["two"]
    with pytest.raises(InvalidInput, match="one source"):
        await store.ingest([Note("a"), Note("b")], source_key="k")


async def test_the_cost_of_an_ingest_does_not_grow(remember):
    """As many commands and round trips into a store of 300 chunks as into an empty one (B19)."""
    store = await remember()
    counted = Counted(store)

    async def cost(at):
        await store.ingest(Note(f"text of {at}", f"source {at}"))
        return counted.trips, counted.names()

    await cost(0)
    few = await cost(1)
    await store.ingest(Note("\n".join(f"line {at}" for at in range(300)), "big"), split=lines)
    counted.names()
    assert await cost(2) == few
    assert len(few[1]) < 20


async def test_pending_chunks(remember, raw):
    """Without vector and terms: found by tag and document at once, by search only after update_index() (B20, B27)."""
    store = await remember()
    pending = (await store.ingest(Note("ferry at nine", "s", metadata={"tags": ["t"]}), update_index=False)).sources[0]
    (key,) = [key for key in keys(raw, store) if b"/" in key]
    assert not {b"embedding", b"__terms", b"__of_embedding"} & set(raw.hkeys(key))
    (chunk,) = await store.find_by_tag("t")
    assert chunk.pending
    assert contents(await store.get_document_chunks(pending.doc_id)) == ["ferry at nine"]
    assert not (await store.search("ferry")).chunks
    assert not (await store.search("ferry", use_fts=False)).chunks
    done = await store.update_index()
    assert (done.embedded, done.failed, done.backlog) == (1, (), 0)
    (chunk,) = (await store.search("ferry")).chunks
    assert not chunk.pending
    assert set(chunk.channels) == {"vector", "text"}


async def test_a_dry_run(remember, raw):
    """It lists what is new, changed, unchanged and failed, and writes nothing: the status of a long ingest (B21)."""
    store = await remember()
    await store.ingest([Note("one", "a"), Note("two", "b")])
    before = dump(raw, store)
    given = [Note("one", "a"), Note("two!", "b"), Note("three", "c"), Note(" ", "d"), Note("one", "e")]
    report = await store.ingest(given, dry_run=True)
    assert [each.status for each in report.sources] == ["unchanged", "changed", "new", "failed", "new"]
    assert report.sources[4].duplicate_of == report.sources[0].doc_id
    assert dump(raw, store) == before
    assert [each.status for each in (await store.ingest(given)).sources] == [
        "skipped",
        "replaced",
        "ingested",
        "failed",
        "ingested",
    ]


async def test_what_expires(remember, raw):
    """The server lets chunks and their document expire; then the source can be ingested again (B30)."""
    store = await remember()
    report = await store.ingest(Note(LONG, "s"), split=lines, ttl_s=0.3)
    assert len(report.ingested) == 1
    await store.search("ferry", k=2)
    await asyncio.sleep(0.5)
    assert not (await store.search("ferry")).chunks
    health = await store.index_health()
    assert health.ok
    assert [(each.count, each.harmless) for each in health.findings] == [(2, True)]  # counts of reads, left over
    assert (await store.ingest(Note(LONG, "s"), split=lines)).sources[0].status == "ingested"
    assert len((await store.search("ferry")).chunks) == 5
    assert all(raw.ttl(key) == -1 for key in keys(raw, store))


# --- a writer that is killed ----------------------------------------------------------------------


def ingest_plan(store, text, **given):
    usual = {
        "metadata": None,
        "update_index": True,
        "source_key": None,
        "version": None,
        "on_duplicate": "keep",
        "split": lines,
        "size": 512,
        "dry_run": False,
        "ttl_s": None,
        "on_source": None,
        "roots": None,
    }
    return _ingest_plan(store._memory, sources=Note(text, "s"), **{**usual, **given})


@pytest.fixture
def memory(url, name, raw, clustered, tmp_path):
    """A blocking store whose plans a test takes step by step."""
    with MemoryStore.open(
        url, namespace=name, embed=Embedder(), archive=tmp_path / "a.jsonl", cluster=clustered
    ) as store:
        yield store
    raw.execute_command("FT.DROPINDEX", store._memory.names.index)
    for key in raw.scan_iter(f"{store._memory.names.index}*", count=1000):
        raw.unlink(key)


@pytest.mark.parametrize("then", [SHORT, LONG, "third"], ids=["again", "as before", "another"])
def test_a_writer_killed_before_any_step(memory, monkeypatch, then):
    """The old version or the new one is searchable, never neither; the next ingest leaves one and no orphan (B17)."""
    monkeypatch.setattr("retriever.memory.writing.BATCH", 1)
    left = []  # a generator that is collected would run its finally
    for step in range(40):
        memory.ingest(Note(LONG, "s"), split=lines)
        left.append(Steps(memory, ingest_plan(memory, SHORT)).take(step))
        found = {chunk.content for chunk in memory.search("ferry", k=100, reinforce=False).chunks}
        assert found >= set(LONG.splitlines()) or found >= set(SHORT.splitlines()), step
        memory.ingest(Note(then, "s"), split=lines)
        found = sorted(chunk.content for chunk in memory.search("ferry", k=100, reinforce=False).chunks)
        assert found == sorted(then.splitlines()), step
        health = memory.index_health()
        assert health.ok, (step, health)
        if left[-1].done:
            break
    assert 10 < step < 39


async def test_users_whose_documents_would_have_one_id(remember, monkeypatch):
    """Ids within a scope have 96 bits; should two meet all the same, the second is refused and the first stays."""
    assert len(document_id("notes.md", Scope("ann")).rpartition("-")[2]) == 24
    monkeypatch.setattr("retriever.memory.ingesting.document_id", lambda source, scope: "notes-1")
    anns, bobs = await remember(user="ann"), await remember(user="bob")
    await anns.ingest(note("of ann", "notes.md"))
    report = await bobs.ingest(note("of bob", "notes.md"))
    assert "is taken" in report.failed[0].reason
    assert [chunk.content for chunk in (await anns.search("ann", k=9)).chunks] == ["of ann"]


def test_what_is_deleted_meanwhile_is_not_lost(memory):
    """A chunk that somebody deletes while its source is ingested unchanged does not come back."""
    memory.ingest(Note(LONG, "s"), split=lines)
    gone = memory.search("ferry", k=1).chunks[0]
    for step in range(1, 12):
        same = Steps(memory, ingest_plan(memory, LONG)).take(step)
        if same.done:
            break
        memory.delete_chunks(gone.id)
        assert same.finish().sources[0].status == "skipped", step
        memory.delete_document(gone.doc_id)
        memory.ingest(Note(LONG, "s"), split=lines)
        gone = memory.search("ferry", k=1).chunks[0]
    assert step > 3


def test_a_writer_that_lost_and_is_killed(memory, monkeypatch):
    """It may have written on after the winner cleaned up, without a mark; an unchanged ingest still heals (B17)."""
    monkeypatch.setattr("retriever.memory.writing.BATCH", 1)
    left, strays = [], 0
    for before in range(3, 12):
        for after in (1, 2, 3):
            loser = Steps(memory, ingest_plan(memory, f"{before} {after}\n{LONG}"))
            left.append(loser)
            loser.take(before)
            memory.ingest(Note(SHORT, "s"), split=lines)
            loser.take(after)
            strays += not memory.index_health().ok and not loser.done
            report = memory.ingest(Note(SHORT, "s"), split=lines)
            assert report.sources[0].status == ("replaced" if loser.done else "skipped"), (before, after)
            found = sorted(chunk.content for chunk in memory.search("ferry", k=100, reinforce=False).chunks)
            assert found == sorted(SHORT.splitlines()), (before, after)
            assert memory.index_health().ok, (before, after)
    assert strays > 5


def test_a_new_source_whose_writer_is_killed(memory, raw):
    """What is left of it is named by health, and goes with the next ingest (B17, B37)."""
    left = []
    for step in range(40):
        left.append(Steps(memory, ingest_plan(memory, LONG)).take(step))
        if left[-1].done:
            break
        documents = list(raw.scan_iter(f"{memory._memory.names.documents}*"))
        marked = any(field.startswith(b"writer:") for key in documents for field in raw.hkeys(key))
        assert memory.index_health().ok != marked, step
        report = memory.ingest(Note(SHORT, "s"), split=lines)
        assert report.sources[0].status in ("ingested", "replaced")
        assert memory.index_health().ok
        assert sorted(c.content for c in memory.search("ferry", k=100).chunks) == sorted(SHORT.splitlines())
        memory.delete_document(report.sources[0].doc_id)
    assert 5 < step < 39


@pytest.mark.parametrize("at", [0, 200, 700, 1500, 3000, 4500, 6000])
async def test_a_connection_that_breaks(remember, url, raw, at):
    """Cut after any byte, the error is the client's own, one version is whole, and ingesting again heals (B17)."""
    direct = await remember()
    await direct.ingest(Note(LONG, "s"), split=lines)
    with Proxy(url) as proxy:
        store = await remember(to=proxy.url)
        await store.ingest([])
        proxy.refuse = True
        proxy.cut_after(at)
        with contextlib.suppress(valkey.exceptions.ConnectionError, ConnectionError):
            await store.ingest(Note(SHORT, "s"), split=lines)
        found = set(await all_contents(direct))
        assert found >= set(LONG.splitlines()) or found >= set(SHORT.splitlines())
        await direct.ingest(Note(SHORT, "s"), split=lines)
        assert await all_contents(direct) == sorted(SHORT.splitlines())
        assert len(chunk_ids(raw, direct)) == 2
        assert (await direct.index_health()).ok


async def test_an_embedder_that_fails(remember, raw):
    """The old version stays, nothing of the new one does, and no mark of a writer either (B17)."""
    embed = Embedder()
    store = await remember(embed=embed)
    await store.ingest(Note(LONG, "s"), split=lines)
    before = dump(raw, store)
    whole = embed.vector
    embed.vector = lambda text: [float("nan")] * DIMS if text == "plane 1" else whole(text)
    report = await store.ingest([Note(SHORT, "s"), Note("other", "o")], split=lines)
    assert [each.status for each in report.sources] == ["failed", "ingested"]
    await store.delete_document(report.sources[1].doc_id)
    after = dump(raw, store)
    meta = memory_of(store).names.index.encode()
    assert before.keys() == after.keys()
    assert {key: value for key, value in after.items() if key != meta} == {
        key: value for key, value in before.items() if key != meta
    }


async def test_small_sources_are_embedded_together(remember, tmp_path):
    """Notes share calls of the embedder and round trips; each is told of, in its order, as if it had been alone."""
    embed, told = Embedder(), []
    store = await remember(embed=embed)
    before, counted = len(embed.calls), Counted(store)
    notes = [Note(f"text of {at}", f"source {at}") for at in range(230)]
    sources = [*notes[:150], str(tmp_path / "missing.md"), *notes[150:]]
    report = await store.ingest(sources, on_source=told.append)
    assert [len(call) for call in embed.calls[before:]] == [100, 100, 30]
    assert counted.trips < 50
    assert [each.source for each in report.sources] == [getattr(each, "source", each) for each in sources]
    assert told == list(report.sources)
    assert [each.source for each in report.failed] == [sources[150]]
    assert report.chunks == 230
    assert {each.status for each in (await store.ingest(notes)).sources} == {"skipped"}
    assert (await store.index_health()).ok


async def test_alike_sources_of_one_call(remember):
    """Of two with the same content, or of the same name, the second finds the first, as in two calls (B17)."""
    store = await remember()
    report = await store.ingest([Note("same words", "a"), Note("same  words", "b"), Note("other words", "a")])
    assert [each.status for each in report.sources] == ["ingested", "ingested", "replaced"]
    assert report.sources[1].duplicate_of == report.sources[0].doc_id
    left = await store.ingest([Note("more words", "c"), Note("more words ", "d")], on_duplicate="skip")
    assert [each.status for each in left.sources] == ["ingested", "skipped"]
    assert left.sources[1].duplicate_of == left.sources[0].doc_id
    assert sorted(await all_contents(store)) == ["more words", "other words", "same  words"]


async def test_a_text_that_the_embedder_refuses(remember):
    """It fails alone, though others were embedded in the same call (B16)."""
    embed = Embedder()
    store = await remember(embed=embed)

    def refusing(texts, whole=embed.vector):
        if any("bad" in text for text in texts):
            raise ValueError("too bad")
        return [whole(text) for text in texts]

    store.retriever._retriever._driver.embed = refusing
    report = await store.ingest([Note("ferry a", "a"), Note("bad", "b"), Note("ferry c", "c")])
    assert [each.status for each in report.sources] == ["ingested", "failed", "ingested"]
    assert "too bad" in report.failed[0].reason
    assert (await store.index_health()).ok


# --- writers that are not alone -------------------------------------------------------------------


def test_two_writers_step_by_step(memory, raw):
    """However their steps interleave, one version remains, whole, and no chunk of the other (B40)."""
    for offset in range(16):
        memory.ingest(Note(LONG, "s"), split=lines)
        one = Steps(memory, ingest_plan(memory, SHORT)).take(offset)
        other = Steps(memory, ingest_plan(memory, "ferry A\nferry B\nferry C"))
        while not (one.done and other.done):
            other.take()
            one.take()
        assert [each.result.failed for each in (one, other)] == [(), ()]
        found = sorted(chunk.content for chunk in memory.search("ferry", k=100, reinforce=False).chunks)
        assert found in (sorted(SHORT.splitlines()), ["ferry A", "ferry B", "ferry C"]), offset
        assert memory.index_health().ok, offset


def test_a_writer_that_begins_while_another_ends(memory):
    """One is stopped anywhere, another anywhere, the first ends, then the other: one version, whole (B40)."""
    texts = ["ferry A\nferry a", "ferry B\nferry b\nferry c"]
    done = False
    for first in range(40):
        for second in range(4, 40):
            memory.ingest(Note("ferry", "s"), split=lines)
            one = Steps(memory, ingest_plan(memory, texts[0])).take(first)
            other = Steps(memory, ingest_plan(memory, texts[1])).take(second)
            done, over = one.done, other.done
            one.finish()
            other.finish()
            found = sorted(chunk.content for chunk in memory.search("ferry", k=100, reinforce=False).chunks)
            assert found in [sorted(text.splitlines()) for text in texts], (first, second)
            assert memory.index_health().ok, (first, second)
            if over:
                break
        if done:
            break
    assert done


@pytest.mark.parametrize("alike", [True, False])
def test_eight_at_once(memory, url, name, clustered, tmp_path, alike):
    """Eight writers of one source end with one version and no orphan; none of them fails (B40)."""
    barrier = threading.Barrier(8)

    def write(at):
        with MemoryStore.open(
            url, namespace=name, embed=Embedder(), archive=tmp_path / "a.jsonl", cluster=clustered
        ) as store:
            barrier.wait()
            text = LONG if alike else "\n".join(f"ferry {at} {line}" for line in range(at + 1))
            return store.ingest(Note(text, "s"), split=lines)

    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(write, range(8)))
    assert [report.failed for report in reports] == [()] * 8
    found = [chunk.content for chunk in memory.search("ferry", k=100, reinforce=False).chunks]
    if alike:
        assert sorted(found) == sorted(LONG.splitlines())
    else:
        (winner,) = {content.split()[1] for content in found}
        assert len(found) == int(winner) + 1
    health = memory.index_health()
    assert health.ok, health
    assert health.documents == 1


@pytest.mark.parametrize("text", [SHORT, LONG], ids=["another", "the same"])
@pytest.mark.parametrize("first", ["ingest", "delete"])
def test_a_document_deleted_while_it_is_written(memory, first, text):
    """Whichever is stopped for the other: then there is what was ingested whole, or nothing at all (B40)."""
    for step in range(40):
        doc_id = memory.ingest(Note(LONG, "s"), split=lines).sources[0].doc_id
        plans = {"ingest": ingest_plan(memory, text), "delete": keeping.delete_document(memory._memory, doc_id)}
        stopped = Steps(memory, plans.pop(first)).take(step)
        Steps(memory, *plans.values()).finish()
        last = stopped.done
        stopped.finish()
        found = sorted(chunk.content for chunk in memory.search("ferry", k=100, reinforce=False).chunks)
        assert found in ([], sorted(text.splitlines())), step
        health = memory.index_health()
        assert health.ok, (step, health)
        memory.delete_document(doc_id)
        if last:
            break
    assert 3 < step < 39


def test_sources_are_checked_before_any_is_read():
    """Arguments that do not fit each other are errors before any source is read."""
    usual = {"source_key": None, "version": None, "split": None, "size": 512, "roots": None}
    for given, metadata in ((5, None), ([5], None), ({"a": 1}, None), ([Note("a")], [{}, {}]), ([Note("a")], "x")):
        with pytest.raises(InvalidInput):
            sources_of(given, metadata, **usual)
