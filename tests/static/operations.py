"""What the methods of both shells take and give back, as a type checker sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import redis.asyncio
import valkey.asyncio

from retriever import (
    Append,
    AsyncRetriever,
    Document,
    EmbeddedServer,
    FusedHit,
    Hit,
    Hits,
    IndexReport,
    Interruption,
    Linear,
    Query,
    Retrieval,
    Retriever,
    RetrieverError,
    Rrf,
    Schema,
    UpsertReport,
    Vector,
    build_ft_create_args,
    interruption,
)


def documents() -> Iterator[Document]:
    yield Document("a", "text", {"category": "db", "year": 2024}, np.zeros(2), ttl_s=60)


async def async_documents() -> AsyncIterator[Document]:
    for document in documents():
        yield document


def use(docs: Retriever, vector: npt.NDArray[np.float64]) -> None:
    hits = docs.query(text="a", k=5)
    assert_type(hits, Hits[Hit])
    assert_type(hits[0], Hit)
    assert_type(hits[:2], Hits[Hit])
    assert_type([hit.score for hit in hits], list[float])
    assert_type(hits[0].rerank_score, float | None)
    assert_type(hits.complete, bool)
    docs.query(vector=vector, k=5, filter=None, return_fields=["category"], return_vectors=True, timeout_ms=100)
    docs.query(vector=[1, 0], max_distance=0.5, ef_runtime=200)

    assert_type(docs.get("a"), Document | None)
    assert_type(docs.get(["a", "b"]), list[Document | None])
    assert_type(docs.get({"a", "b"}, return_vectors=True), list[Document | None])
    assert_type(docs.exists("a"), bool)
    assert_type(docs.exists(("a", "b")), list[bool])
    assert_type(docs.upsert(documents(), batch_size=100, on_batch=print), UpsertReport)
    assert_type(docs.update("a", {"year": None}), bool)
    assert_type(docs.delete("a"), int)
    assert_type(docs.delete(["a"]), int)
    assert_type(docs.count(), int)
    assert_type(docs.scan({"category": "db"}), Iterator[Document])
    assert_type(docs.describe_index(), IndexReport)
    assert_type(docs.create_index(timeout_s=1), bool)
    assert_type(docs.drop_index(delete_documents=True), int)
    try:
        docs.upsert(documents())
    except RetrieverError as error:
        assert_type(interruption(error), Interruption | None)

    docs.query("a")  # type: ignore[call-arg]
    docs.query(text="a", top_k=5)  # type: ignore[call-arg]
    docs.query(text=["a"])  # type: ignore[arg-type]
    docs.upsert(["a"])  # type: ignore[list-item]
    docs.upsert(async_documents())  # type: ignore[arg-type]
    docs.get(1)  # type: ignore[call-overload]


def use_many(docs: Retriever, vector: npt.NDArray[np.float32]) -> None:
    queries: list[Query] = [{"text": "a", "k": 5, "filter": {"year": 2024}}, {"vector": vector, "return_vectors": True}]
    for answer in docs.query_many(queries):
        if isinstance(answer, Exception):
            raise answer
        assert_type(answer, Hits[Hit])
    docs.query_many([{"text": "a"}, {"text": "b", "rerank": True, "candidates": 20}])

    docs.query_many([{"txt": "a"}])  # type: ignore[typeddict-unknown-key]
    docs.query_many([{"text": 1}])  # type: ignore[typeddict-item]
    docs.query_many(["a"])  # type: ignore[list-item]


def use_hybrid(docs: Retriever, vector: npt.NDArray[np.float32]) -> None:
    hits = docs.retrieve(text="a", k=5, fusion="linear", channels=["text"], depth=100, strict=True)
    assert_type(hits, Hits[FusedHit])
    assert_type(hits[0].fused_score, float)
    assert_type(hits[0].vector_distance, float | None)
    assert_type(hits[0].text_score, float | None)
    assert_type(hits[0].channels, tuple[str, ...])
    assert_type(hits[0].explain(), str)
    docs.retrieve(vector=vector, fusion=Rrf(weights={"vector": 1.0, "text": 0.5}), diversity=0.5, collapse="category")
    docs.retrieve(text="a", fusion=Append(extra=5), rerank=True, candidates=50, min_text_score=0.1, max_distance=0.5)
    docs.retrieve(text="a", fusion=lambda vector, text: [*vector, *text], expand=lambda text: [text.upper()])
    questions: list[Retrieval] = [{"text": "a", "k": 5, "fusion": Linear(0.3)}, {"vector": vector, "depth": 100}]
    for answer in docs.retrieve_many(questions):
        if isinstance(answer, Exception):
            raise answer
        assert_type(answer, Hits[FusedHit])

    docs.retrieve("a")  # type: ignore[call-arg]
    docs.retrieve(text="a", alpha=0.5)  # type: ignore[call-arg]
    docs.retrieve(text=["a"])  # type: ignore[arg-type]
    docs.retrieve(text="a", fusion=0.5)  # type: ignore[arg-type]
    docs.retrieve_many([{"txt": "a"}])  # type: ignore[typeddict-unknown-key]
    Linear("0.5")  # type: ignore[arg-type]
    hits[0].score  # type: ignore[attr-defined]


async def use_async(docs: AsyncRetriever) -> None:
    hits = await docs.query(text="a", k=5)
    assert_type(hits, Hits[Hit])
    assert_type(await docs.query_many([{"text": "a"}]), list[Hits[Hit] | Exception])
    assert_type(await docs.retrieve(text="a"), Hits[FusedHit])
    assert_type(await docs.retrieve_many([{"text": "a"}]), list[Hits[FusedHit] | Exception])
    assert_type(await docs.get("a"), Document | None)
    assert_type(await docs.get(["a", "b"]), list[Document | None])
    assert_type(await docs.exists("a"), bool)
    assert_type(await docs.exists(["a"]), list[bool])
    assert_type(await docs.upsert(documents()), UpsertReport)
    assert_type(await docs.upsert(async_documents()), UpsertReport)
    assert_type([document.id async for document in docs.scan()], list[str])

    docs.query(text="a").complete  # type: ignore[attr-defined]
    list(docs.scan())  # type: ignore[call-overload]


def borrow(schema: Schema) -> None:
    assert_type(Retriever(valkey.Valkey(), schema), Retriever)
    assert_type(Retriever(redis.Redis(), schema), Retriever)
    assert_type(AsyncRetriever(valkey.asyncio.Valkey(), schema), AsyncRetriever)
    assert_type(AsyncRetriever(redis.asyncio.Redis(), schema), AsyncRetriever)


def use_with(client: Any, schema: Schema) -> None:
    with EmbeddedServer() as url, Retriever.connect(url, schema) as docs:
        assert_type(url, str)
        assert_type(docs, Retriever)
    build_ft_create_args(schema, skip_initial_scan=True)
    Vector(dims=384, metric="L2", algorithm="FLAT")

    Vector(dims=384, metric="l2")  # type: ignore[arg-type]
    Retriever(client)  # type: ignore[call-arg]
    Retriever(client, schema, None)  # type: ignore[call-arg]


async def use_async_with(url: str, schema: Schema) -> None:
    async with AsyncRetriever.connect(url, schema) as docs:
        assert_type(docs, AsyncRetriever)
    with AsyncRetriever.connect(url, schema):  # type: ignore[attr-defined]
        pass
