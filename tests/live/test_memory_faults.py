"""A store of memory whose engine goes away: the client's own error, nothing half done that cannot be put right."""

from __future__ import annotations

import pytest
import valkey

from retriever import InvalidInput
from retriever.memory.store import Note
from tests.memory_stores import lines, note
from tests.proxy import Proxy

pytestmark = pytest.mark.live

OPERATIONS = {
    "search": lambda store: store.search("ferry"),
    "find_by_tag": lambda store: store.find_by_tag("t"),
    "get_document_chunks": lambda store: store.get_document_chunks("x"),
    "set_chunk_tags": lambda store: store.set_chunk_tags("x", 0, tags=["a"]),
    "delete_document": lambda store: store.delete_document("x"),
    "delete_chunks": lambda store: store.delete_chunks("x/y/0"),
    "forget": lambda store: store.forget(dry_run=False),
    "update_index": lambda store: store.update_index(),
    "index_health": lambda store: store.index_health(),
    "stats": lambda store: store.stats(),
    "find_near_duplicates": lambda store: store.find_near_duplicates(),
    "rerank": lambda store: store.rerank([("x", 0, 0.5)]),
    "ingest": lambda store: store.ingest([Note("a"), Note("b")]),
}


@pytest.mark.parametrize("name_of", OPERATIONS)
async def test_an_engine_that_is_gone(remember, url, name_of):
    """The client's own connection error, not an empty answer, and never a report of sources that failed."""
    with Proxy(url) as proxy:
        store = await remember(to=proxy.url)
        await store.ingest(note("ferry", "s", tags=["t"]))
        proxy.refuse = True
        proxy.cut()
        with pytest.raises((valkey.exceptions.ConnectionError, ConnectionError)):
            await OPERATIONS[name_of](store)


@pytest.mark.parametrize("name_of", OPERATIONS)
@pytest.mark.parametrize("at", [40, 160, 400, 1200])
async def test_an_engine_that_goes_meanwhile(remember, url, raw, name_of, at):
    """After any byte that it hears: the whole answer or the client's own error, and a store that works again."""
    direct = await remember()
    await direct.ingest(note("ferry one\nferry two", "s", tags=["t"], importance=0.1), split=lines)
    await direct.ingest(note("later", "p"), update_index=False)
    with Proxy(url) as proxy:
        store = await remember(to=proxy.url)
        await store.ingest([])
        proxy.refuse = True
        proxy.cut_after(at)
        try:
            result = await OPERATIONS[name_of](store)
        except (valkey.exceptions.ConnectionError, ConnectionError):
            result = None
        except InvalidInput:  # there is no such document
            assert name_of in ("get_document_chunks", "set_chunk_tags")
            result = None
        assert not getattr(result, "failed", ())
    await direct.restore(lambda entry: True)
    await direct.update_index()
    await direct.ingest([Note("a"), Note("b")])
    found = (await direct.search("ferry", k=9)).chunks
    assert sorted(chunk.content for chunk in found) == ["a", "b", "ferry one", "ferry two", "later"]
    assert (await direct.index_health()).ok
