"""Whose memory it is: namespaces and users never see each other, whatever the argument."""

from __future__ import annotations

from itertools import combinations

import pytest

from retriever import InvalidInput, Tag
from tests.memory_stores import chunk_ids, dump, lines, note

pytestmark = pytest.mark.live

# Behind the test's own name: alike but for a separator, for case, or one the start of another.
NAMESPACES = [
    "",
    "-",
    "_",
    "a",
    "A",
    "ab",
    "a:b",
    "a b",
    "a%3Ab",
    "a|uses",
    "a|document:x",
    "}",
    "{a}",
    "*",
    "é",
    "\u202e",
]
SCOPES = [
    {},
    {"user": "ann"},
    {"user": "Ann"},
    {"user": "ann "},
    {"user": "an"},
    {"user": "ann,bob"},
    {"user": "*"},
    {"agent": "ann"},
    {"session": "ann"},
    {"user": "ann", "agent": "a"},
    {"user": "ann", "agent": "a", "session": "s"},
]


async def test_namespaces_are_apart(remember, name):
    """Each holds what was put into it, finds it, and nothing of the fifteen beside it (B3, cases B07, B60)."""
    stores = [await remember(namespace=f"{name}{each}") for each in NAMESPACES]
    for at, store in enumerate(stores):
        await store.ingest(note(f"ferry number {at}", "same source", tags=["t"]))
    for at, store in enumerate(stores):
        for found in (
            (await store.search("ferry", k=100)).chunks,
            (await store.search("ferry", k=100, use_fts=False)).chunks,
            await store.find_by_tag("t"),
            [chunk for group in await store.find_near_duplicates() for chunk in group] or await store.find_by_tag("t"),
        ):
            assert [chunk.content for chunk in found] == [f"ferry number {at}"], NAMESPACES[at]
        assert (await store.stats()).chunks == 1
        health = await store.index_health()
        assert health.ok, (NAMESPACES[at], health)
    await stores[0].delete_document((await stores[0].find_by_tag("t"))[0].doc_id)
    for at, store in enumerate(stores[1:], 1):
        assert len(await store.find_by_tag("t")) == 1, NAMESPACES[at]


def sees(one, other):
    """Whether a store of one scope is to see what a store of the other wrote."""
    return all(other.get(part) == value for part, value in one.items())


async def test_scopes_are_apart(remember, raw):
    """A store sees what has each part of its scope exactly as it is, and no more, by every way of reading (B3)."""
    stores = [(scope, await remember(**scope)) for scope in SCOPES]
    for scope, store in stores:
        await store.ingest(note(f"ferry of {sorted(scope.items())}", "same source", tags=["t"]))
    assert len(chunk_ids(raw, store)) == len(SCOPES)
    for mine, store in stores:
        expected = sorted(f"ferry of {sorted(scope.items())}" for scope in SCOPES if sees(mine, scope))
        for found in (
            (await store.search("ferry", k=100)).chunks,
            (await store.search("ferry", k=100, memory_rerank=True, rerank=lambda query, hits: hits)).chunks,
            (await store.search("ferry", k=100, use_fts=False, tags=["t"])).chunks,
            (await store.search("ferry", k=100, filter=Tag("user") != "nobody")).chunks,
            (await store.search("ferry", k=100, expand=lambda text: ["ferry of ann"])).chunks,
            await store.find_by_tag("t"),
        ):
            assert sorted(chunk.content for chunk in found) == expected, mine
        assert (await store.stats()).chunks == (await store.stats()).documents == len(expected)
        assert (await store.index_health()).chunks == len(expected)


async def test_no_argument_reaches_into_another_s(remember, raw):
    """Ids of another user's document and chunks are as unknown as any other, and nothing of them changes (B3)."""
    ann, bob = await remember(user="ann"), await remember(user="bob")
    await ann.ingest(note("ferry one\nferry two", "s", tags=["t"], importance=0.1), split=lines)
    theirs = await ann.find_by_tag("t")
    doc_id, ids = theirs[0].doc_id, [chunk.id for chunk in theirs]
    await ann.delete_chunks(ids[1], reason="archived")
    before = dump(raw, ann)
    for call in (
        bob.get_document_chunks(doc_id),
        bob.get_document_chunks(doc_id, 0, window=5),
        bob.set_chunk_tags(doc_id, 0, tags=["mine"]),
        bob.redate(doc_id, "2020-01-01"),
    ):
        with pytest.raises(InvalidInput, match="no document"):
            await call
    assert await bob.rerank([(doc_id, 0, 1.0)]) == ([], [(doc_id, 0)])
    assert await bob.delete_document(doc_id) == 0
    assert await bob.delete_chunks(ids) == 0
    assert await bob.delete_chunks(ids, reason="mine") == 0
    assert await bob.find_by_tag("t") == []
    assert await bob.forget(dry_run=False) == []
    assert await bob.forget(dry_run=False, importance_threshold=1.0, score_threshold=1.0) == []
    assert (await bob.restore(ids)).restored == ()
    assert (await bob.restore(lambda entry: True)).restored == ()
    assert (await bob.update_index(stale=True)).embedded == 0
    assert (await bob.search("ferry", filter={"user": "ann"})).chunks == ()
    assert (await bob.search("ferry", filter=(Tag("user") == "ann") | (Tag("doc_id") == doc_id))).chunks == ()
    assert (await bob.search("ferry", tags={"any": ["t"]})).chunks == ()
    assert (await bob.search("ferry", collapse="user")).chunks == ()
    assert (await bob.context("ferry", 100)).text == ""
    assert dump(raw, ann) == before
    assert (await ann.restore(ids)).restored == (ids[1],)


@pytest.mark.parametrize(
    "given", ["user", "agent", "session", "doc_id", "document_hash", "embedder", "revision", "state"]
)
async def test_metadata_cannot_say_whose_it_is(remember, tmp_path, given):
    """What the store sets is an error in metadata; in a file's front matter it is kept and means nothing (B3)."""
    ann, bob = await remember(user="ann", agent="a", session="s"), await remember(user="bob")
    with pytest.raises(InvalidInput, match=given):
        await ann.ingest(note("text"), metadata={given: "bob"})
    report = await ann.ingest(note("text", **{given: "bob"}))
    assert given in report.failed[0].reason
    file = tmp_path / "front.md"
    file.write_text(f"---\n{given}: bob\nuser: bob\n---\nThe ferry leaves.\n")
    assert (await ann.ingest(file)).ingested
    (chunk,) = (await ann.search("ferry")).chunks
    assert (chunk.user, chunk.agent, chunk.session) == ("ann", "a", "s")
    assert chunk.metadata[given] == "bob"
    assert not chunk.pending
    assert (await bob.search("ferry")).chunks == ()


@pytest.mark.parametrize(
    "given",
    [{"namespace": ""}, {"namespace": 5}, {"namespace": "x" * 2000}, {"namespace": "\ud800"}]
    + [{part: value} for part in ("user", "agent", "session") for value in ("", 5)],
    ids=repr,
)
async def test_a_scope_that_is_none(remember, given):
    """An empty or wrong namespace or user is an error and never everybody's memory (B3)."""
    with pytest.raises(InvalidInput, match=next(iter(given))):
        await remember(**given)


async def test_restored_by_somebody_who_sees_more(remember):
    """A store without a scope restores a user's chunk as the user's: they find it and its document again (B3, B34)."""
    ann, everybody = await remember(user="ann"), await remember()
    source = (await ann.ingest(note("ferry", "s"), source_key="key")).sources[0]
    (chunk,) = await ann.get_document_chunks(source.doc_id)
    await ann.delete_chunks(chunk.id, reason="by mistake")
    await ann.delete_document(source.doc_id)
    assert (await everybody.restore(chunk.id)).restored == (chunk.id,)
    (back,) = await ann.get_document_chunks(source.doc_id)
    assert (back.content, back.user) == ("ferry", "ann")
    assert (await ann.ingest(note("ferry, again", "s"), source_key="key")).sources[0].status == "replaced"


def test_the_scopes_differ():
    """The table holds pairs of every kind: apart, and one within the other."""
    pairs = list(combinations(SCOPES, 2))
    assert any(sees(one, other) for one, other in pairs)
    assert sum(not sees(one, other) and not sees(other, one) for one, other in pairs) > 20
