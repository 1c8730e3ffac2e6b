"""Readers beside writers, and one retriever shared by threads and tasks."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from retriever import AsyncRetriever, Document, Retriever, Vector
from retriever.engines import VALKEY_SEARCH_1_2
from tests.fakes import Embedder, document

pytestmark = pytest.mark.live

WHOLE = {"category": "even", "tags": ["even"], "year": 0, "title": "even title", "extra": "even"}
OTHER = {"category": "odd", "tags": ["odd"], "year": 1, "title": "odd title", "extra": "odd"}
BARE = {"category": "odd"}


def version(fields, text, vector):
    return Document("d", text, fields, vector)


# Where a script replaces faster, it is always a script: the row of that engine makes it one here too.
@pytest.mark.parametrize("engine", [None, VALKEY_SEARCH_1_2], ids=["", "by script"])
@pytest.mark.parametrize("algorithm", ["FLAT", "HNSW"])
@pytest.mark.parametrize("other", [OTHER, BARE], ids=["with all fields", "with absent fields"])
@pytest.mark.one_server("connects to one server")
def test_a_reader_never_sees_half_of_a_document(url, schema, algorithm, other, engine):
    """While a document is replaced over and over, every read is one of its two versions, whole, and never nothing."""
    schema = dataclasses.replace(schema, vector=Vector(dims=4, algorithm=algorithm))
    one = version(WHOLE, "even text", [1, 0, 0, 0])
    two = version(other, "odd text", [0, 1, 0, 0])
    both = {"even text": one, "odd text": two}
    wrong, reads, stop = [], [0], threading.Event()

    def read():
        with Retriever.connect(url, schema) as docs:
            while not stop.is_set():
                got = docs.get("d", return_vectors=True)
                if got is None or got != both[got.text] or not np.array_equal(got.vector, both[got.text].vector):
                    wrong.append(got)
                hits = docs.query(vector=[1, 1, 0, 0], return_vectors=True)
                if len(hits) != 1:
                    wrong.append(hits)
                    continue
                expected = both[hits[0].text]
                if hits[0].fields != expected.fields or not np.array_equal(hits[0].vector, expected.vector):
                    wrong.append(hits[0])
                even, odd = docs.query_many(
                    [{"vector": [1, 1, 0, 0], "filter": {"category": each}} for each in ("even", "odd")]
                )
                wrong.extend(hit for hit in even if hit.text != "even text")
                wrong.extend(hit for hit in odd if hit.text != "odd text")
                reads[0] += 1

    with Retriever.connect(url, schema, engine=engine) as docs:
        docs.create_index()
        docs.upsert([one])
        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            end = time.monotonic() + 0.7
            while time.monotonic() < end:
                docs.upsert([two])
                docs.upsert([one])
            stop.set()
            for reader in readers:
                reader.result()
    assert wrong == []
    assert reads[0] > 20


@pytest.mark.one_server("connects to one server")
def test_threads_share_one_retriever(url, schema):
    """Eight threads write, ask, count and delete through one object, each finding its own."""
    with Retriever.connect(url, schema, embed=Embedder()) as docs:
        docs.create_index()

        def work(thread):
            for at in range(15):
                docs.upsert([Document(f"{thread}-{at}", f"text {thread}-{at}", {"category": f"c{thread}", "year": at})])
                assert docs.query(text=f"text {thread}-{at}", k=1)[0].id == f"{thread}-{at}"
                assert docs.count({"category": f"c{thread}"}) == at + 1
            assert docs.delete([f"{thread}-{at}" for at in range(5)]) == 5
            return {each.id for each in docs.scan({"category": f"c{thread}"})}

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(work, range(8)))
        assert found == [{f"{thread}-{at}" for at in range(5, 15)} for thread in range(8)]
        assert docs.count() == 80


@pytest.mark.one_server("connects to one server")
def test_the_first_calls_of_a_shared_retriever_may_be_at_once(url, schema):
    """Threads that use one fresh object at the same moment learn the same of the index."""
    with Retriever.connect(url, schema) as made:
        made.create_index()
    unknown = dataclasses.replace(schema, vector=Vector(algorithm="FLAT"))
    with Retriever.connect(url, unknown) as docs:
        barrier = threading.Barrier(8)

        def work(thread):
            barrier.wait()
            docs.upsert([document(f"{thread}", year=thread)])
            return len(docs.query(vector=[1, 0, 0, 0], filter={"year": thread}))

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, range(8))) == [1] * 8


@pytest.mark.one_server("connects to one server")
async def test_tasks_share_one_retriever(url, schema):
    """Many tasks at once on one AsyncRetriever, each with its own answer."""
    async with AsyncRetriever.connect(url, schema, embed=Embedder()) as docs:
        await docs.create_index()

        async def work(task):
            await docs.upsert([Document(f"{task}", f"text {task}")])
            return (await docs.query(text=f"text {task}", k=1))[0].id

        assert await asyncio.gather(*(work(task) for task in range(40))) == [f"{task}" for task in range(40)]
        assert await docs.count() == 40


async def test_a_scan_may_feed_an_upsert(make, schema, name):
    """One retriever's scan is another's source, or its own, page by page."""
    docs, copy = make(schema), make(dataclasses.replace(schema, name=f"{name}-copy", prefix=f"{name}-copy:"))
    await docs.create_index()
    await copy.create_index()
    await docs.upsert([document(f"d{at}", vector=(1, at, 0, 0), year=at) for at in range(200)])
    for target in (copy, docs):
        source = docs.retriever.scan(batch_size=30, return_vectors=True)
        assert (await target.upsert(source, batch_size=50)).written == 200
    assert sorted(await copy.scan(), key=lambda each: each.id) == sorted(await docs.scan(), key=lambda each: each.id)
    assert await copy.ids(k=5) == await docs.ids(k=5) == [f"d{at}" for at in range(5)]


async def test_two_writers_of_one_document_leave_one_of_both(make, schema):
    """Of two that replace a document at once one stays, whole."""
    first, second = make(schema), make(schema)
    await first.create_index()
    one, two = version(WHOLE, "even text", [1, 0, 0, 0]), version(BARE, "odd text", [0, 1, 0, 0])
    for _ in range(20):
        await asyncio.gather(first.upsert([one]), second.upsert([two]))
        assert await first.get("d") in (one, two)
