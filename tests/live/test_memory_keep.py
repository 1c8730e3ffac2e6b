"""Keeping memory: tags, forgetting into the archive and back, what waits for the index, and what is wrong with it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace

import pytest
import valkey

from retriever import InvalidInput, Tag
from retriever.errors import RetrieverError
from retriever.memory import indexing, keeping
from retriever.memory.archive import Archive
from retriever.memory.keeping import CLEAR
from retriever.memory.policy import Policy
from retriever.memory.store import MemoryStore, Note, _ingest_plan
from tests.clients import Shell
from tests.fakes import DIMS, Embedder
from tests.memory_stores import DAY, Counted, Steps, chunk_ids, dump, keys, lines, memory_of, note
from tests.proxy import Proxy

pytestmark = pytest.mark.live


def contents(chunks):
    return [chunk.content for chunk in chunks]


def bare(chunk):
    """A chunk without what only a search, a revision or a model says of it."""
    return replace(chunk, revision="", embedder=None, relevance=None)


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


# --- set_chunk_tags -------------------------------------------------------------------------------


async def test_only_what_is_given_changes(remember, raw):
    """One field each, effective at once, nothing embedded anew; [] and CLEAR take away (B31)."""
    embed = Embedder()
    store = await remember(embed=embed)
    given = {"tags": ["a"], "importance": 0.5, "knowledge_type": "news", "source_date": "2024-01-01"}
    doc_id = (await store.ingest(note("one\ntwo", "s", **given), split=lines)).sources[0].doc_id
    calls = len(embed.calls)
    before, other = await store.get_document_chunks(doc_id)
    for change, expected in (
        ({"importance": 0}, {"importance": 0.0}),
        ({"importance": 1}, {"importance": 1.0}),
        ({"knowledge_type": "principle"}, {"knowledge_type": "principle"}),
        ({"tags": ["b", "c", "b"]}, {"tags": ("b", "c")}),
        ({"tags": []}, {"tags": ()}),
        ({"source_date": "1970-01-01"}, {"source_date": 0.0}),
        ({"importance": CLEAR, "knowledge_type": CLEAR, "source_date": CLEAR}, {}),
    ):
        values = expected or {"importance": None, "knowledge_type": None, "source_date": None}
        after = await store.set_chunk_tags(doc_id, 0, **change)
        before = replace(before, **values)
        assert bare(after) == bare(before), change
        assert (await store.get_document_chunks(doc_id))[1] == other
    await store.set_chunk_tags(doc_id, 0, tags=["z"])
    assert contents(await store.find_by_tag("z")) == ["one"]
    assert contents((await store.search("one", tags=["z"])).chunks) == ["one"]
    assert len(embed.calls) == calls + 1  # the question


BAD = [
    {},
    *({"importance": value} for value in (2, float("nan"), -0.1, True, "1")),
    *({"knowledge_type": value} for value in ("rumour", "")),
    *({"tags": value} for value in ("a", [""], [1], ["x" * 5000], ["\ud800"])),
    *({"source_date": value} for value in ("2024-01-01T00:00:00", "soon", float("inf"))),
]


@pytest.mark.parametrize("change", BAD, ids=lambda change: repr(change)[:40])
async def test_values_that_are_none(remember, raw, change):
    """A bad value is an error that names its field, and changes nothing; in metadata it fails the source (B31, B2)."""
    store = await remember()
    doc_id = (await store.ingest(note("one", "s"))).sources[0].doc_id
    before = dump(raw, store)
    with pytest.raises(InvalidInput, match=next(iter(change), "at least one")):
        await store.set_chunk_tags(doc_id, 0, **change)
    assert dump(raw, store) == before
    if change:
        assert len((await store.ingest(note("two", "t", **change))).failed) == 1
        assert len(chunk_ids(raw, store)) == 1
    for unknown in ((doc_id, 1), ("nope", 0), (doc_id, -1), (doc_id, "0")):
        with pytest.raises(InvalidInput):
            await store.set_chunk_tags(*unknown, tags=["a"])


async def test_redate(remember):
    """All chunks of a document get the date, or lose it."""
    store = await remember()
    doc_id = (await store.ingest(note("one\ntwo", "s"), split=lines)).sources[0].doc_id
    assert await store.redate(doc_id, "2020-01-01") == 2
    assert {chunk.source_date for chunk in await store.get_document_chunks(doc_id)} == {1_577_836_800.0}
    assert await store.redate(doc_id, CLEAR) == 2
    assert {chunk.source_date for chunk in await store.get_document_chunks(doc_id)} == {None}
    for bad in ((doc_id, "soon"), ("nope", "2020-01-01")):
        with pytest.raises(InvalidInput):
            await store.redate(*bad)


# --- deleting -------------------------------------------------------------------------------------


async def test_deleting_a_document(remember, raw):
    """Document, chunks and counters go, and their number is told; an unknown one is 0 (B32)."""
    store = await remember()
    doc_id = (await store.ingest(note("one\ntwo", "s"), split=lines)).sources[0].doc_id
    await store.search("one")
    assert await store.delete_document(doc_id) == 2
    assert keys(raw, store) == [memory_of(store).names.index.encode()]
    assert await store.delete_document(doc_id) == 0
    assert (await store.index_health()).ok
    for bad in ("", None, 5):
        with pytest.raises(InvalidInput):
            await store.delete_document(bad)


async def test_deleting_chunks(remember, raw):
    """By id, with their counters; with a reason they are in the archive first; nothing deletes nothing (B32, B62)."""
    store = await remember()
    await store.ingest(note("one\ntwo\nthree", "s"), split=lines)
    await store.search("one")
    ids = chunk_ids(raw, store)
    assert await store.delete_chunks([]) == 0
    assert await store.delete_chunks(["nope", "a/b/c"]) == 0
    assert await store.delete_chunks(ids[0]) == 1
    assert not remember.archive.exists()
    assert await store.delete_chunks([ids[1], ids[1]], reason="wrong") == 1
    assert [json.loads(line)["reason"] for line in remember.archive.read_text().splitlines()] == ["wrong"]
    assert chunk_ids(raw, store) == [ids[2]]
    assert raw.hkeys(memory_of(store).names.uses) == [ids[2].encode()]
    for bad in (None, 5, [""], [None]):
        with pytest.raises(InvalidInput):
            await store.delete_chunks(bad)


# --- forgetting -----------------------------------------------------------------------------------


async def aged(remember, **given):
    """A store with something for each rule: two chunks rated too low, one too old, the rest to be kept."""
    store = await remember(fields=[Tag("color")], **given)
    old = time.time() - 1000 * DAY
    for text, about in {
        "low": {"importance": 0.1, "tags": ["a b"], "color": "red", "deep": {"x": [1]}},
        "low principle": {"importance": 0.2, "knowledge_type": "principle"},
        "old news": {"knowledge_type": "news", "source_date": old, "speaker": "Zoë"},
        "old principle": {"knowledge_type": "principle", "source_date": old},
        "old thing": {"source_date": old},
        "fresh news": {"knowledge_type": "news"},
        "edge": {"importance": 0.3},
    }.items():
        await store.ingest(note(text, f"of {text}", **about))
    await store.search("low", k=1)
    return store


GONE = ["low", "low principle", "old news"]


async def test_a_dry_run_says_what_the_real_one_does(remember, raw):
    """The same list, and nothing changed; the real run archives and deletes just these (B33, B5, B10, B11)."""
    store = await aged(remember)
    before = dump(raw, store)
    listed = await store.forget()
    assert sorted(each.chunk.content for each in listed) == GONE
    assert [each.score for each in listed] == sorted(each.score for each in listed)
    assert not any(each.deleted for each in listed)
    assert dump(raw, store) == before
    assert not remember.archive.exists()
    done = await store.forget(dry_run=False)
    assert [(each.chunk, each.reason) for each in done] == [(each.chunk, each.reason) for each in listed]
    assert all(each.deleted for each in done)
    entries, damaged = Archive(remember.archive).read()
    assert damaged == []
    assert sorted(entry.content for entry in entries.values()) == GONE
    assert len(chunk_ids(raw, store)) == 4
    assert await store.forget(dry_run=False) == []
    assert sorted(contents((await store.search("low", k=9)).chunks)) == sorted(
        ["old principle", "old thing", "fresh news", "edge"]
    )


async def test_weights_of_one_run(remember):
    """A weight given replaces the policy's for the call; what cannot be a weight is an error (B33)."""
    store = await aged(remember)
    assert [each.chunk.content for each in await store.forget(importance_threshold=0)] == ["old news"]
    assert sorted(each.chunk.content for each in await store.forget(score_threshold=0)) == ["low", "low principle"]
    assert await store.forget(policy=Policy(importance_threshold=0, half_lives={"news": None})) == []
    for bad in ({"score_threshold": 2}, {"freq_weight": float("nan")}, {"policy": "x"}, {"dry_run": 1}):
        with pytest.raises(InvalidInput):
            await store.forget(**bad)
    with pytest.raises(InvalidInput, match="half-life"):
        await store.forget(policy=Policy(half_lives={"news": 0}))
    assert len(await store.forget()) == 3


async def test_forgotten_and_restored_is_equal(remember, raw):
    """Fields, tags, dates and counters come back, and it is found by words and meaning again (B33, B34, case B107)."""
    store = await aged(remember, user="ann")
    listed = {each.chunk.id: each.chunk for each in await store.forget()}
    hashes = dump(raw, store)
    await store.forget(dry_run=False)
    restored = await store.restore(list(listed))
    assert sorted(restored.restored) == sorted(listed)
    assert (dict(restored.skipped), restored.damaged) == ({}, ())
    after = {each.chunk.id: each.chunk for each in await store.forget()}
    assert {id: replace(chunk, revision="") for id, chunk in after.items()} == {
        id: replace(chunk, revision="") for id, chunk in listed.items()
    }
    assert sum(chunk.access_count for chunk in after.values()) == 1
    meta = memory_of(store).names.index.encode()
    found = dump(raw, store)
    assert {key: value for key, value in found.items() if key != meta} == {k: v for k, v in hashes.items() if k != meta}
    assert contents((await store.search("low", k=1)).chunks) == ["low"]
    assert (await store.index_health()).ok
    again = await store.restore(list(listed))
    assert again.restored == ()
    assert len(again.skipped) == 3
    assert all("wins" in reason for reason in again.skipped.values())


async def test_what_changed_meanwhile_stays(memory):
    """A chunk that is read or tagged between the judgement and the deletion is kept (B31, B33, B40)."""
    for change in (
        lambda chunk: memory.search("low", k=5),
        lambda chunk: memory.set_chunk_tags(chunk.doc_id, 0, importance=0.9),
        lambda chunk: memory.set_chunk_tags(chunk.doc_id, 0, tags=["keep"]),
        lambda chunk: memory.redate(chunk.doc_id, "2024-01-01"),
    ):
        memory.ingest(note("low", "s", importance=0.1))
        (judged,) = memory.forget()
        plan = Steps(memory, keeping.forget(memory._memory, Policy(), dry_run=False, now=time.time()))
        while type(plan.waiting).__name__ != "Call":
            plan.take()
        change(judged.chunk)
        (told,) = plan.finish()
        assert not told.deleted
        (kept,) = memory.get_document_chunks(judged.chunk.doc_id)
        assert kept.content == "low"
        assert memory.restore(kept.id).restored == ()
        memory.delete_document(kept.doc_id)


def test_killed_at_any_step_of_forgetting(memory, raw):
    """Every chunk is in the store or in the archive, and restore brings all back (B33)."""
    memory.ingest(note("\n".join(f"low {at}" for at in range(5)), "s", importance=0.1), split=lines)
    doc_id = memory.ingest(note("low 0", "s"), dry_run=True).sources[0].doc_id
    everything = {chunk.id: chunk for chunk in memory.get_document_chunks(doc_id)}
    left = []
    for step in range(30):
        plan = keeping.forget(memory._memory, Policy(), dry_run=False, now=time.time())
        left.append(Steps(memory, plan).take(step))
        stored = set(chunk_ids(raw, Shell(memory)))
        archived, damaged = memory._memory.archive.read()
        assert stored | set(archived) == set(everything), step
        assert damaged == []
        assert memory.index_health().ok, step  # what was forgotten is nothing that is missing
        memory.restore(lambda entry: True)
        assert contents(memory.get_document_chunks(doc_id)) == contents(everything.values()), step
        assert memory.index_health().ok
        if left[-1].done:
            break
    assert 3 < step < 29


@pytest.mark.parametrize("at", [0, 300, 700, 1000])
async def test_a_connection_that_breaks_while_forgetting(remember, url, raw, at):
    """Cut after any byte of the deletion: in the store or in the archive, and an error of the client's own (B33)."""
    direct = await aged(remember)
    everything = set(chunk_ids(raw, direct))
    with Proxy(url) as proxy:
        store = await remember(to=proxy.url, fields=[Tag("color")])
        append = Archive.append

        def cut(self, entries):
            append(self, entries)
            proxy.refuse = True
            proxy.cut_after(at)

        Archive.append = cut
        try:
            with pytest.raises((valkey.exceptions.ConnectionError, ConnectionError)):
                await store.forget(dry_run=False)
        finally:
            Archive.append = append
    archived, _ = Archive(remember.archive).read()
    assert set(chunk_ids(raw, direct)) | set(archived) == everything
    await direct.restore(lambda entry: True)
    assert set(chunk_ids(raw, direct)) == everything


@pytest.mark.parametrize("how", ["folder", "below a file", "full"])
async def test_an_archive_that_cannot_be_written(remember, raw, tmp_path, how):
    """It is an error, and nothing is deleted (B33, case B107)."""
    (tmp_path / "file").write_text("")
    archive = {"folder": tmp_path, "below a file": tmp_path / "file" / "a.jsonl", "full": "/dev/full"}[how]
    store = await aged(remember, archive=archive)
    before = dump(raw, store)
    with pytest.raises((OSError, RetrieverError)) as raised:
        await store.forget(dry_run=False)
    assert str(archive) in str(raised.value)
    with pytest.raises((OSError, RetrieverError)):
        await store.delete_chunks(chunk_ids(raw, store), reason="all")
    assert dump(raw, store) == before


async def test_a_damaged_archive(remember, raw):
    """Lines that cannot be read or hold no chunk are reported, and the others come back (B33, B34)."""
    store = await aged(remember)
    await store.forget(dry_run=False)
    entries = [json.loads(line) for line in remember.archive.read_text().splitlines()]
    first = entries[0]

    def other(**changes):
        return json.dumps({**first, "id": f"{first['doc_id']}/{os.urandom(4).hex()}/0", **changes})

    with remember.archive.open("a") as file:
        for line in (
            '{"id": "cut sho',
            other(metadata={**first["metadata"], "tags": 5}),
            other(metadata={**first["metadata"], "fields": 7}),
            other(metadata={**first["metadata"], "created_at": "soon"}),
            other(metadata={**first["metadata"], "access_count": "many"}),
            other(chunk_index=7),
            other(id="no-chunk"),
            other(content=" "),
        ):
            file.write(line + "\n")
    restored = await store.restore(lambda entry: True)
    assert sorted(restored.restored) == sorted(entry["id"] for entry in entries)
    assert len(restored.damaged) == 1
    assert "line 4" in restored.damaged[0]
    assert len(restored.skipped) == 7, restored.skipped
    assert len(chunk_ids(raw, store)) == 7
    assert (await store.index_health()).ok


async def test_the_last_line_of_an_id_counts(remember):
    """Forgotten twice, restored as it was the last time (B33)."""
    store = await remember()
    doc_id = (await store.ingest(note("low", "s", importance=0.1))).sources[0].doc_id
    (one,) = await store.forget(dry_run=False)
    await store.restore(one.chunk.id)
    await store.set_chunk_tags(doc_id, 0, importance=0.2, tags=["second"])
    await store.forget(dry_run=False)
    await store.restore([one.chunk.id, "unknown/x/0"])
    (chunk,) = await store.get_document_chunks(doc_id)
    assert (chunk.importance, chunk.tags) == (0.2, ("second",))


async def test_an_old_version_is_not_restored(remember):
    """Where a document has a newer version, what was archived of the older stays there, and that is said (B33, B34)."""
    store = await remember()
    await store.ingest(note("low", "s", importance=0.1))
    (gone,) = await store.forget(dry_run=False)
    await store.ingest(note("new", "s"))
    restored = await store.restore(gone.chunk.id)
    assert restored.restored == ()
    assert "newer version" in restored.skipped[gone.chunk.id]
    assert (await store.index_health()).ok


async def test_of_a_deleted_document_the_last_version_is_restored(remember):
    """Where two versions of it are in the archive, the one that was archived last comes back, whole (B33, B34)."""
    store = await remember()
    await store.ingest(note("low old", "s", importance=0.1))
    (old,) = await store.forget(dry_run=False)
    doc_id = (await store.ingest(note("low one\nlow two", "s", importance=0.1), split=lines)).sources[0].doc_id
    await store.forget(dry_run=False)
    await store.delete_document(doc_id)
    restored = await store.restore(lambda entry: True)
    assert contents(await store.get_document_chunks(doc_id)) == ["low one", "low two"]
    assert list(restored.skipped) == [old.chunk.id]
    assert "newer version" in restored.skipped[old.chunk.id]
    assert (await store.index_health()).ok


async def test_an_archive_of_many(remember, name):
    """One file serves several namespaces; each restores its own (B3, B34)."""
    one, other = await remember(), await remember(namespace=f"{name}-2")
    for store in (one, other):
        await store.ingest(note("low", "s", importance=0.1))
        await store.forget(dry_run=False)
    assert len((await one.restore(lambda entry: True)).restored) == 1
    assert (await other.stats()).chunks == 0


# --- what was forgotten, and what was lost --------------------------------------------------------


async def three(store):
    """A document of three chunks; gives its id."""
    return (await store.ingest(note("one\ntwo\nthree", "s"), split=lines)).sources[0].doc_id


async def again(store, text="one\ntwo\nthree", **given):
    """The same source once more: what became of it."""
    return (await store.ingest(note(text, "s"), split=lines, **given)).sources[0]


@pytest.mark.parametrize("how", ["forget", "delete_chunks"])
@pytest.mark.parametrize("places", [[1], [0, 1, 2]], ids=["one", "all"])
async def test_what_was_forgotten_does_not_come_back_by_itself(remember, raw, how, places):
    """Ingesting its source again leaves it forgotten and says so; health finds nothing wrong with it (B17, B37)."""
    store = await remember()
    doc_id = await three(store)
    for at in places:
        await store.set_chunk_tags(doc_id, at, importance=0.1)
    gone = [each.chunk.id for each in await store.forget()]
    if how == "forget":
        await store.forget(dry_run=False)
    else:
        assert await store.delete_chunks(gone, reason="wrong") == len(places)
    assert (await store.index_health()).ok
    before = dump(raw, store)
    for dry_run, status in ((True, "unchanged"), (False, "skipped")):
        told = await again(store, dry_run=dry_run)
        assert told.status == status
        assert f"{len(places)} of its 3 chunks were forgotten" in told.reason
    assert dump(raw, store) == before
    assert sorted((await store.restore(gone)).restored) == sorted(gone)
    assert (await again(store)).reason == "unchanged"
    assert contents(await store.get_document_chunks(doc_id)) == ["one", "two", "three"]
    assert (await store.index_health()).ok


@pytest.mark.parametrize("how", ["changed", "deleted first"])
async def test_a_forgotten_source_comes_back_if_it_is_meant_to(remember, how):
    """Another version of it is ingested whole, and so is the same one after delete_document() (B17, B33)."""
    store = await remember()
    doc_id = await three(store)
    for at in range(3):
        await store.set_chunk_tags(doc_id, at, importance=0)
    assert len(await store.forget(dry_run=False)) == 3
    if how == "changed":
        assert (await again(store, "one\ntwo\nfour")).status == "replaced"
    else:
        assert await store.delete_document(doc_id) == 0
        assert (await again(store)).status == "ingested"
    assert len(await store.get_document_chunks(doc_id)) == 3
    assert (await store.index_health()).ok
    assert (await again(store, "one\ntwo\nfour" if how == "changed" else "one\ntwo\nthree")).reason == "unchanged"


@pytest.mark.parametrize("places", [[0], [0, 1, 2]], ids=["one", "all"])
@pytest.mark.parametrize("version", [None, "1"])
async def test_what_was_lost_is_ingested_again(remember, raw, places, version):
    """Chunks that a server lost and nobody forgot come back with the source, unchanged as it is (B17, B37)."""
    store = await remember()

    async def put(**given):
        given |= {"source_key": "s", "version": version} if version else {}
        return (await store.ingest(note("one\ntwo\nthree", "s"), split=lines, **given)).sources[0]

    doc_id = (await put()).doc_id
    ids = chunk_ids(raw, store)
    for at in places:
        raw.unlink(memory_of(store).names.prefix + ids[at])
    (finding,) = (await store.index_health()).findings
    assert (finding.what, finding.examples) == ("documents that lack chunks", (doc_id,))
    lost = f"{len(places)} of its 3 chunks had been lost"
    for told, status in ((await put(dry_run=True), "changed"), (await put(), "replaced")):
        assert (told.status, told.reason, told.chunks) == (status, lost, 3)
    assert contents(await store.get_document_chunks(doc_id)) == ["one", "two", "three"]
    assert len(chunk_ids(raw, store)) == 3
    assert (await store.index_health()).ok
    assert (await put()).reason == "unchanged"


async def test_a_part_of_a_deleted_document_is_restored(remember):
    """Of a document that was deleted since, the chunk that is asked for comes back, and lacks no others (B34, B37)."""
    store = await remember()
    doc_id = await three(store)
    first, _, third = await store.get_document_chunks(doc_id)
    await store.delete_chunks([first.id, third.id], reason="why not")
    await store.delete_document(doc_id)
    assert (await store.restore(third.id)).restored == (third.id,)
    assert contents(await store.get_document_chunks(doc_id)) == ["three"]
    assert (await store.index_health()).ok
    assert (await store.restore(first.id)).restored == (first.id,)
    assert contents(await store.get_document_chunks(doc_id)) == ["one", "three"]
    assert (await store.index_health()).ok
    assert (await again(store)).status == "replaced"
    assert len(await store.get_document_chunks(doc_id)) == 3


def test_deleting_chunks_killed_at_any_step(memory):
    """What is gone was marked before it went, so no ingest takes it for lost; the next call ends it (B17, B32)."""
    left = []
    for step in range(20):
        doc_id = memory.ingest(note("one\ntwo", "s"), split=lines).sources[0].doc_id
        ids = [chunk.id for chunk in memory.get_document_chunks(doc_id)]
        left.append(Steps(memory, keeping.delete_chunks(memory._memory, ids, None, time.time())).take(step))
        assert memory.ingest(note("one\ntwo", "s"), split=lines).sources[0].status == "skipped", step
        memory.delete_chunks(ids)
        assert memory.get_document_chunks(doc_id) == []
        assert memory.index_health().ok, step
        memory.delete_document(doc_id)
        if left[-1].done:
            break
    assert 2 < step < 19


def test_a_new_version_is_not_marked_by_who_forgets_the_old(memory):
    """A document that is replaced while it is being forgotten lacks nothing (B33, B40)."""
    for plan in (
        lambda chunk: keeping.forget(memory._memory, Policy(), dry_run=False, now=time.time()),
        lambda chunk: keeping.delete_chunks(memory._memory, chunk.id, "wrong", time.time()),
    ):
        for step in range(20):
            memory.ingest(note("low", "s", importance=0.1))
            (judged,) = memory.forget()
            steps = Steps(memory, plan(judged.chunk)).take(step)
            if steps.done:
                break
            assert memory.ingest(note("new", "s")).sources[0].status == "replaced"
            steps.finish()
            assert contents(memory.get_document_chunks(judged.chunk.doc_id)) == ["new"], step
            assert memory.ingest(note("new", "s")).sources[0].reason == "unchanged", step
            assert memory.index_health().ok, step
            memory.delete_document(judged.chunk.doc_id)
        memory.delete_document(judged.chunk.doc_id)
        assert 2 < step < 19


async def test_what_a_killed_writer_left_is_forgotten_alone(remember, raw):
    """A chunk of another version goes, and the document's own of that place is not taken for forgotten (B33)."""
    store = await remember()
    await store.ingest(note("one", "s"))
    (id,) = chunk_ids(raw, store)
    prefix, left = memory_of(store).names.prefix, f"{id.split('/')[0]}/0a0b/0"
    raw.copy(prefix + id, prefix + left)
    raw.hset(prefix + left, "importance", "0.1")
    (gone,) = await store.forget(dry_run=False)
    assert (gone.chunk.id, gone.deleted) == (left, True)
    raw.unlink(prefix + id)
    assert (await store.ingest(note("one", "s"))).sources[0].reason == "1 of its 1 chunks had been lost"


# --- the index ------------------------------------------------------------------------------------


async def test_update_index_twice_and_by_two(remember, raw):
    """Running it again does nothing; two workers at once embed each chunk, and leave none behind (B35)."""
    stores = [await remember(), await remember()]
    text = "\n".join(f"line {at}" for at in range(250))
    await stores[0].ingest(Note(text, "s"), split=lines, update_index=False)
    done = await asyncio.gather(*(store.update_index() for store in stores))
    assert [each.backlog for each in done] == [0, 0]
    assert [each.failed for each in done] == [(), ()]
    assert sum(each.embedded for each in done) >= 250
    again = await stores[0].update_index()
    assert (again.embedded, again.backlog) == (0, 0)
    assert (await stores[1].index_health()).ok
    assert len((await stores[1].search("line", k=300)).chunks) == 250
    for bad in ({"stale": 1}, {"timeout_s": -1}, {"timeout_s": float("nan")}):
        with pytest.raises(InvalidInput):
            await stores[0].update_index(**bad)


def test_update_index_killed_at_any_step(memory):
    """What is left is pending or searchable, and the next run ends it (B35)."""
    left = []
    for step in range(40):
        memory.ingest(note("ferry one\nferry two", "s"), split=lines, update_index=False)
        left.append(Steps(memory, indexing.update_index(memory._memory, stale=False, timeout_s=5.0)).take(step))
        memory.update_index()
        assert len(memory.search("ferry").chunks) == 2, step
        assert memory.index_health().ok
        (source,) = {chunk.doc_id for chunk in memory.search("ferry").chunks}
        memory.delete_document(source)
        if left[-1].done:
            break
    assert 3 < step < 39


async def test_chunks_without_a_vector(remember, raw):
    """What has lost its vector is embedded anew by update_index(stale=True), as its text is (B35, B37)."""
    store = await remember(embed=Embedder(name="new"))
    await store.ingest([note("one"), note("two")])
    key = memory_of(store).names.prefix + chunk_ids(raw, store)[0]
    before = raw.hgetall(key)
    raw.hdel(key, "embedding", "__of_embedding")
    assert (await store.update_index()).embedded == 0
    assert (await store.update_index(stale=True)).embedded == 1
    assert raw.hgetall(key) == before
    assert (await store.update_index(stale=True)).embedded == 0


BREAKS = {
    "chunks that wait to be searchable": "update_index",
    "chunks without a vector of this model": "stale",
    "chunks of no document's current version": "delete",
    "documents that lack chunks": "ingest anew",
    "chunks refused by the engine": "delete and ingest",
    "use counts of chunks that are gone": None,
}


@pytest.mark.parametrize("what", BREAKS)
async def test_each_finding(remember, raw, what):
    """Something is really broken; health names it, changes nothing, and what it advises repairs it (B37)."""
    store = await remember()
    doc_id = (await store.ingest(Note("one\ntwo", "s"), split=lines)).sources[0].doc_id
    names = memory_of(store).names
    first = names.prefix + chunk_ids(raw, store)[0]
    assert (await store.index_health()).ok
    match what:
        case "chunks that wait to be searchable":
            await store.ingest(Note("three"), update_index=False)
        case "chunks without a vector of this model":
            raw.hdel(first, "embedding", "__of_embedding")
        case "chunks of no document's current version":
            raw.unlink(names.document(doc_id))
        case "documents that lack chunks":
            raw.unlink(first)
        case "chunks refused by the engine":
            raw.hset(first, "importance", "much")
        case "use counts of chunks that are gone":
            raw.hset(names.uses, "gone/x/0", 3)
    before = dump(raw, store)
    health = await store.index_health()
    assert dump(raw, store) == before
    found = {finding.what.partition(";")[0]: finding for finding in health.findings}
    assert what in found, health
    assert health.ok == (BREAKS[what] is None)
    assert found[what].count == 2 if "no document" in what else found[what].count >= 1
    assert found[what].advice
    if what == "chunks refused by the engine":
        assert found[what].count == 1
        assert "much" in str(health)
        assert first in str(health)
    match BREAKS[what]:
        case "update_index":
            await store.update_index()
        case "stale":
            assert "stale=True" in found[what].advice
            await store.update_index(stale=True)
        case "ingest anew":
            assert "ingest the source again" in found[what].advice
            await store.ingest(Note("one\ntwo", "s"), split=lines)
        case "delete and ingest":
            assert "delete_document()" in found[what].advice
            await store.delete_document(doc_id)
            await store.ingest(Note("one\ntwo", "s"), split=lines)
        case "delete":
            await store.ingest(Note("one\ntwo", "s"), split=lines)
    if BREAKS[what]:
        assert (await store.index_health()).ok


async def test_an_index_that_somebody_made_anew(remember, raw):
    """An index that lacks fields is named with what it lacks; dropped as advised, open() makes it whole (B37)."""
    store = await remember()
    await store.ingest(note("ferry", "s", tags=["t"]))
    names = memory_of(store).names
    raw.execute_command("FT.DROPINDEX", names.index)
    vector = ("embedding", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", DIMS, "DISTANCE_METRIC", "COSINE")
    raw.execute_command(
        *("FT.CREATE", names.index, "ON", "HASH", "PREFIX", 1, names.prefix, "SCHEMA", "tags", "TAG"), *vector
    )
    (finding,) = (await store.index_health()).findings
    assert finding.what == "the index is not the one that was declared"
    assert finding.count > len(finding.examples) == 5
    assert all(each.startswith("field ") for each in finding.examples), finding
    assert "FT.DROPINDEX" in finding.advice
    raw.execute_command("FT.DROPINDEX", names.index)
    again = await remember()
    assert await again.update_index() is not None  # waits until it is filled
    assert (await again.index_health()).ok
    assert contents((await again.search("ferry", tags=["t"])).chunks) == ["ferry"]


async def test_a_chunk_of_another_version(remember, raw):
    """One that its document does not name is found although the document is there, and deleted as is advised (B37)."""
    store = await remember()
    await store.ingest(Note("one", "s"))
    (id,) = chunk_ids(raw, store)
    left = f"{id.split('/')[0]}/0a0b/0"
    raw.copy(memory_of(store).names.prefix + id, memory_of(store).names.prefix + left)
    (finding,) = (await store.index_health()).findings
    assert (finding.what, finding.examples) == ("chunks of no document's current version", (left,))
    assert "delete_chunks()" in finding.advice
    assert await store.delete_chunks(finding.examples) == 1
    assert (await store.index_health()).ok


async def test_stats(remember, raw):
    """Counts by kind, shares, pending, uses, twins and bytes, of what is there (B38)."""
    store = await remember()
    await store.ingest(
        [note("é one", "1", knowledge_type="news", tags=["a"]), note("two", "2", importance=0), note("two", "3")]
    )
    await store.ingest(note("pending", "4"), update_index=False)
    for _ in range(10):
        await store.search("one", k=1, use_fts=True, tags=["a"])
    before = dump(raw, store)
    stats = await store.stats()
    assert dump(raw, store) == before
    assert (stats.documents, stats.chunks, stats.pending) == (4, 4, 1)
    assert stats.by_type == {"news": 1, "unset": 3}
    assert (stats.rated, stats.tagged) == (0.25, 0.25)
    assert stats.uses == {"0": 3, "1-9": 0, "10-99": 1, "100+": 0}
    assert (stats.duplicates, stats.bytes) == (1, len("é onetwotwopending".encode()))


async def test_an_empty_store(remember):
    """Nothing is there, and nothing is wrong with that (B37, B38)."""
    store = await remember()
    stats = await store.stats()
    assert (stats.documents, stats.chunks, stats.rated) == (0, 0, 0)
    assert (await store.index_health()).ok
    assert (await store.search("ferry")).chunks == ()
    assert await store.forget(dry_run=False) == []
    assert (await store.update_index()).embedded == 0
    assert (await store.context("ferry", 10)).text == ""
    assert (await store.restore(lambda entry: True)).restored == ()


async def test_duplicates_are_listed_and_kept(remember, raw):
    """Groups of equal normalised text, every member, and what differs in a digit is none (B39, cases B105, B106)."""
    store = await remember()
    texts = ["v1 took 12 ms", "v1  took 12 ms ", "v1 took 13 ms", "V1 took 12 ms", "v1 took 12 ms"]
    await store.ingest([Note(text, str(at)) for at, text in enumerate(texts)])
    (group,) = await store.find_near_duplicates()
    assert sorted(chunk.source for chunk in group) == ["0", "1", "4"]
    assert len(chunk_ids(raw, store)) == 5


async def test_restore_costs_nothing_where_nothing_is_to_restore(remember):
    """An empty archive is no round trip."""
    store = await remember()
    counted = Counted(store)
    await store.restore(lambda entry: True)
    assert counted.names() == []


# --- erasing --------------------------------------------------------------------------------------


async def test_one_user_is_erased_and_nobody_else(remember, raw, name):
    """Documents, chunks, counters and archived lines of one user go; all others', in one file with them, stay."""
    whose = ({"user": "ann"}, {"user": "bob"}, {"user": "Ann"}, {"user": "ann", "namespace": f"{name}-2"})
    anns, bobs, namesakes, elsewhere = [await remember(**given) for given in whose]
    for store in (anns, bobs, namesakes, elsewhere):
        await store.ingest([note("one\ntwo", "s"), note("old", "t", importance=0.1)], split=lines)
        await store.search("one", k=2)
        await store.forget(dry_run=False)
    others = [(await store.search("one", k=9, reinforce=False)).chunks for store in (bobs, namesakes, elsewhere)]
    assert await anns.erase() == keeping.Erased(2, 1)
    assert (await anns.stats()).documents == 0
    assert (await anns.restore(lambda entry: True)).restored == ()
    left = [(await store.search("one", k=9, reinforce=False)).chunks for store in (bobs, namesakes, elsewhere)]
    assert [{chunk.id: chunk.access_count for chunk in each} for each in left] == [
        {chunk.id: chunk.access_count for chunk in each} for each in others
    ]
    owners = [(each.metadata["namespace"], each.metadata["user"]) for each in Archive(remember.archive).entries()]
    assert sorted(owners) == sorted([(name, "bob"), (name, "Ann"), (f"{name}-2", "ann")])
    assert await anns.erase() == keeping.Erased(0, 0)
    whole = await remember()
    assert (await whole.index_health()).ok
    assert await whole.erase(everything=True) == keeping.Erased(4, 2)
    assert chunk_ids(raw, whole) == []
    assert len((await elsewhere.restore(lambda entry: True)).restored) == 1


@pytest.mark.parametrize(("scope", "given"), [({}, {}), ({"user": "a"}, {"everything": True}), ({}, {"everything": 1})])
async def test_what_erase_refuses(remember, scope, given):
    """Whose memory goes is said once, by how the store was opened; nothing is erased by mistake."""
    store = await remember(**scope)
    await store.ingest(note("one", "s"))
    with pytest.raises(InvalidInput):
        await store.erase(**given)
    assert (await store.stats()).chunks == 1


def test_an_erasure_that_is_killed_is_done_by_the_next(memory, raw):
    """Stopped before any step, and where an ingest was killed before: a second call leaves nothing."""
    left = []
    for step in range(60):
        memory.ingest([Note("one\ntwo", "s"), Note("old", "t", metadata={"importance": 0.1})], split=lines)
        memory.forget(dry_run=False)
        left.append(Steps(memory, keeping.erase(memory._memory, everything=True)).take(step))
        memory.erase(everything=True)
        assert chunk_ids(raw, Shell(memory)) == [], step
        assert memory._memory.archive.read() == ({}, []), step
        assert memory.index_health().ok, step
        if left[-1].done:
            break
    assert 5 < step < 59


async def test_a_line_that_cannot_be_read_is_nobody_s(remember):
    """It stays in the archive, and the report names it."""
    store = await remember(user="a")
    await store.ingest(note("old", "t", importance=0.1))
    await store.forget(dry_run=False)
    (entry,) = Archive(remember.archive).entries()
    remember.archive.write_text("{broken\n")
    nobodys = replace(entry, id="d/r/0", metadata={"user": "a"})
    Archive(remember.archive).append([nobodys, entry])
    erased = await store.erase()
    assert (erased.archived, len(erased.unread)) == (1, 2)
    assert erased.unread[1] == "the line of d/r/0: it says no namespace"
    assert erased.unread[0].startswith("line 1: not JSON")
    assert remember.archive.read_text() == f"{{broken\n{nobodys.to_json()}\n"


def ingesting_of(store, text="one\ntwo", source="s"):
    """The plan of an ingest."""
    given = {
        **dict.fromkeys("metadata source_key version tokens ttl_s on_source roots".split()),
        "update_index": True,
        "on_duplicate": "keep",
        "split": lines,
        "size": 512,
        "dry_run": False,
    }
    return _ingest_plan(store._memory, sources=Note(text, source), **given)


def test_an_ingest_beside_an_erasure_stays_whole_or_not_at_all(memory, url, raw, tmp_path):
    """Whoever of the two is stopped at any step, no document is left without its chunks."""
    with MemoryStore.open(
        url, namespace=memory._memory.names.namespace, user="u", embed=Embedder(), archive=tmp_path / "a.jsonl"
    ) as own:
        for step in range(1, 30):
            erasing = Steps(own, keeping.erase(own._memory, everything=False)).take(step)
            own.ingest(Note("one\ntwo", "s"), split=lines)
            erasing.finish()
            assert own.index_health().ok, step
            writing = Steps(own, ingesting_of(own, "three")).take(step)
            own.erase()
            writing.finish()
            assert own.index_health().ok, step
            assert {chunk.content for chunk in own.search("three", k=9).chunks} <= {"three"}
            own.erase()
            assert chunk_ids(raw, Shell(own)) == []


def test_an_erasure_finds_what_a_killed_ingest_left(memory, url, raw, tmp_path):
    """A writer that was killed before its first chunk has left the source's name, and it goes too."""
    left = []
    with MemoryStore.open(
        url, namespace=memory._memory.names.namespace, user="u", embed=Embedder(), archive=tmp_path / "a.jsonl"
    ) as own:
        for step in range(1, 30):
            left.append(Steps(own, ingesting_of(own)).take(step))
            own.erase()
            assert not [key for key in keys(raw, Shell(own)) if b"document:" in key], step
            if left[-1].done:
                break
    assert 5 < step < 29


async def test_the_counters_of_what_expired_go_with_everything(remember, raw):
    """A whole namespace that is erased holds no count of chunks that are gone."""
    store = await remember()
    await store.ingest(note("one", "s"), ttl_s=0.05)
    await store.search("one", k=1)
    await asyncio.sleep(0.1)
    await store.erase(everything=True)
    assert [key for key in keys(raw, store) if key.endswith((b"|uses", b"|used"))] == []


@pytest.mark.parametrize("key", [b"\xff", b"x", b"no/number/here"])
async def test_hashes_of_other_programs_under_the_prefix(remember, raw, key):
    """They are no chunks: passed over by health, an unchanged ingest and an erasure."""
    store = await remember(user="u")
    doc_id = (await store.ingest(note("one", "s"))).sources[0].doc_id
    raw.hset(memory_of(store).names.prefix.encode() + key, mapping={"doc_id": doc_id, "user": "u"})
    assert (await store.ingest(note("one", "s"))).sources[0].status == "skipped"
    assert (await store.index_health()).chunks == 1
    assert (await store.erase()).chunks == 1
    assert raw.exists(memory_of(store).names.prefix.encode() + key)
