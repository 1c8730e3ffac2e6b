"""Retriever and AsyncRetriever: the same operations, blocking and awaited.

Every method is one line: it hands a plan to a driver (``drivers.py``). Making one does no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import numpy.typing as npt

from fields.errors import InvalidInput
from retriever.documents import Document, FusedHit, Hit, Hits, IndexReport, UpsertReport
from retriever.drivers import NOTHING, AsyncDriver, Driver, Hook, Watch, async_documents, blocking_documents
from retriever.embedders import Embedder, embed_function, embedder_dims, embedder_name, is_async
from retriever.engines import Engine
from retriever.fusion import CHANNELS, Fusion
from retriever.links import (
    REPLY_TIMEOUT_S,
    AsyncClientLink,
    AsyncClusterLink,
    AsyncOwnLink,
    ClientLink,
    ClusterLink,
    OwnLink,
    check_client,
    is_cluster,
    own_client,
    own_cluster,
)
from retriever.operations import index, read, retrieve, search, write
from retriever.operations.index import WAIT_S, Live
from retriever.operations.retrieve import Retrieval
from retriever.operations.search import Query
from retriever.plans import Plan, watched
from retriever.queries import FilterSpec, check_seconds
from retriever.rerankers import Reranker
from retriever.schema import Schema

T = TypeVar("T")
log = logging.getLogger("retriever")

BATCH_SIZE = 500  # arbitrary; 2,000 gained nothing in benchmarks/upsert.py, 100 cost a seventh


class Retriever:
    """A declared index on a server, blocking.

    ``Retriever(client, schema)`` borrows a client of valkey-py or redis-py, standalone or cluster, and never closes it;
    ``Retriever.connect(url, schema)`` makes one and owns it. Making either does no I/O.

    embed: texts -> array of shape (n, dims); see ``Embedder``. rerank: see ``Reranker``.
    engine: a row of ``retriever.engines`` instead of what the server says it is.
    on_operation: called after each operation with an ``Operation``; what it raises is raised.
    A borrowed client's own retries hold for every command. Each may be repeated; what a call says that it did
    (``create_index``, ``delete``) is then what the repeated command did. Safe to share between threads if the
    client is, as all are but valkey-py's ``single_connection_client``.
    Raises TypeError for an async client or function.
    """

    def __init__(
        self,
        client: Any,
        schema: Schema,
        *,
        embed: Embedder | None = None,
        rerank: Reranker | None = None,
        engine: Engine | None = None,
        on_operation: Hook | None = None,
    ) -> None:
        check_client(client, _SHELLS, blocking=True)
        self._live = _live(client, schema, embed, rerank, engine, blocking=True)
        self._rerank = rerank
        self._driver = Driver(ClusterLink(client) if is_cluster(client) else ClientLink(client), embed)
        self._hook = _checked_hook(on_operation)

    @classmethod
    def connect(
        cls,
        url: str | None,
        schema: Schema,
        *,
        embed: Embedder | None = None,
        rerank: Reranker | None = None,
        engine: Engine | None = None,
        on_operation: Hook | None = None,
        cluster: bool = False,
        timeout_s: float = REPLY_TIMEOUT_S,
    ) -> Self:
        """A retriever with a client of its own, closed by ``close()`` or the end of a ``with`` block.

        url: ``valkey://``, ``redis://``, with TLS ``valkeys://``, ``rediss://``, or ``unix://``; None takes the
            environment's ``VALKEY_URL``.
        cluster: the server is a node of a cluster; the others are asked for through it.
        timeout_s: seconds to wait for a reply, > 0; connecting has 5. A broken connection is tried once
        more for what may be sent twice.
        """
        from valkey import Valkey, ValkeyCluster

        client = own_client(Valkey, url, timeout_s)
        retriever = cls(client, schema, embed=embed, rerank=rerank, engine=engine, on_operation=on_operation)
        retriever._live.cluster = cluster
        retriever._driver.link = (
            ClusterLink(make=own_cluster(ValkeyCluster, client, url, timeout_s)) if cluster else OwnLink(client)
        )
        return retriever

    def query(
        self,
        *,
        text: str | None = None,
        vector: npt.ArrayLike | None = None,
        k: int = 10,
        filter: FilterSpec = None,
        rerank: Reranker | bool | None = None,
        candidates: int | None = None,
        max_distance: float | None = None,
        return_fields: Iterable[str] | None = None,
        return_vectors: bool = False,
        ef_runtime: int | None = None,
        timeout_ms: int | None = None,
    ) -> Hits[Hit]:
        """The k documents nearest to a text or a vector, nearest first, ties by id.

        One round trip; where neither schema nor embedder told the dimensions, the first query asks for them.
        Does not compare the schema or the embedder with the live index: ``create_index()`` does.

        text: embedded by ``embed``; vector: dims numbers. One of the two.
        k: 1 to 10,000; fewer come back if fewer pass.
        filter: a Filter or a mapping (``{"category": "db", "year": {"gte": 2020}}``), applied by the
            engine before the cut; None and ``{}`` are everything.
        rerank: a callable, or True for the constructor's; needs text. It sees ``candidates`` (4k, at most
            10,000) hits and its order wins; ``score`` stays the distance, ``rerank_score`` is its number.
        max_distance: drops hits farther than this.
        return_fields: names to bring back (``TEXT_FIELD`` for the text); None is the text and all.
        ef_runtime: how many vectors HNSW keeps in view, 1 to 40,000; max(100, 4k) unless said; an error for FLAT.
        timeout_ms: the engine's own limit, 1 to 60,000, 5,000 unless said; ``complete`` tells when it was
            reached. Beyond the client's own time-out (``connect(timeout_s=)``, 10 s) that one comes first.
        Raises InvalidInput before any I/O, IndexMissing, ServerError; connection errors as they are.
        """
        return self._run(
            "query",
            search.query(
                self._live,
                self._rerank,
                text=text,
                vector=vector,
                k=k,
                filter=filter,
                rerank=rerank,
                candidates=candidates,
                max_distance=max_distance,
                return_fields=return_fields,
                return_vectors=return_vectors,
                ef_runtime=ef_runtime,
                timeout_ms=timeout_ms,
            ),
        )

    def query_many(self, queries: Iterable[Query]) -> list[Hits[Hit] | Exception]:
        """Many queries in one embedder call and one round trip; each has its own hits or its own error.

        queries: mappings of ``query``'s arguments, ``[{"text": "a", "k": 5}, {"vector": v}]``.
        """
        return self._run("query_many", search.query_many(self._live, self._rerank, queries))

    def retrieve(
        self,
        *,
        text: str | None = None,
        vector: npt.ArrayLike | None = None,
        k: int = 10,
        filter: FilterSpec = None,
        fusion: str | Fusion = "rrf",
        channels: Iterable[str] = CHANNELS,
        depth: int | None = None,
        max_distance: float | None = None,
        min_text_score: float | None = None,
        rerank: Reranker | bool | None = None,
        candidates: int | None = None,
        diversity: float | None = None,
        collapse: str | None = None,
        expand: Callable[[str], Any] | None = None,
        return_fields: Iterable[str] | None = None,
        strict: bool = False,
        ef_runtime: int | None = None,
        timeout_ms: int | None = None,
    ) -> Hits[FusedHit]:
        """The k best by words and by meaning, fused; every hit says why it is there: ``hit.explain()``.

        Two round trips: both channels at once, then the winners' fields; one more when a word is first seen.
        Needs ``Schema(analysis=Analysis())`` for words, an embedder or ``vector=`` for meaning; what is there runs.

        text, vector: one or both; with both the embedder is not called. channels: narrows it to one of them.
        k: 1 to 10,000. filter: as in ``query``, on both channels, before the cut.
        fusion: "rrf" (ranks alone), "linear" (scores, each brought to 0..1), "append" (the k nearest, then the first
            10 text hits that are not among them); Rrf(k=, weights=), Linear(alpha=), Append(extra=); or a function.
        depth: how many each channel ranks, at least k; max(50, 4k) unless said.
        max_distance: drops what the vector channel finds farther away; min_text_score: what the text channel scores
            lower. Each is of one channel: what the other one found stays.
        rerank, candidates: as in ``query``, after fusion; "append" reranks the nearest only.
        diversity: 0 to 1, how much a hit that resembles those before it gives way (MMR with lambda = 1 - diversity).
        collapse: a TAG field of one value; the best hit of each value stays and counts the others in ``collapsed``.
        expand: text -> more texts (up to 16), each searched in the same round trips and fused by rrf.
        return_fields, ef_runtime, timeout_ms: as in ``query``.
        strict: raise where otherwise one channel's failure leaves ``complete=False`` and a reason.
        Order, ids, scores, ``channels``, ``ranks`` are stable; ``stats``, ``reasons`` and ``explain()`` are for people.
        Raises InvalidInput before any I/O, also for a text without terms where no vector helps; NotSupported for words
        on an engine without TEXT fields; IndexMissing, ServerError.
        """
        return self._run(
            "retrieve",
            retrieve.retrieve(
                self._live,
                self._rerank,
                text=text,
                vector=vector,
                k=k,
                filter=filter,
                fusion=fusion,
                channels=channels,
                depth=depth,
                max_distance=max_distance,
                min_text_score=min_text_score,
                rerank=rerank,
                candidates=candidates,
                diversity=diversity,
                collapse=collapse,
                expand=expand,
                return_fields=return_fields,
                strict=strict,
                ef_runtime=ef_runtime,
                timeout_ms=timeout_ms,
            ),
        )

    def retrieve_many(self, queries: Iterable[Retrieval]) -> list[Hits[FusedHit] | Exception]:
        """Many retrievals in shared embedder calls and round trips; each has its own hits or its own error.

        queries: mappings of ``retrieve``'s arguments, ``[{"text": "a", "k": 5}, {"vector": v}]``.
        """
        return self._run("retrieve_many", retrieve.retrieve_many(self._live, self._rerank, queries))

    def upsert(
        self,
        documents: Iterable[Document],
        *,
        batch_size: int = BATCH_SIZE,
        on_batch: Callable[[Sequence[str]], Any] | None = None,
    ) -> UpsertReport:
        """Write documents, each replacing the one of its id; streams any iterable.

        A round trip per batch of ``batch_size`` (1 to 10,000), and a few before the first.

        Each batch is checked and embedded whole before its first write; an id may be in a batch once.
        No reader sees half of a document. on_batch: told the ids of each batch that was written.
        The report names every document that the server refused. Whatever stops the upsert is raised
        as it is and carries how far it came: see ``interruption``; running it again is safe. IndexMissing
        after a batch: somebody has removed the index; ``create_index()`` finds what was written.
        """
        plan = write.upsert(self._live, batch_size=batch_size, on_batch=on_batch)
        return self._run("upsert", plan, blocking_documents(documents))

    def update(self, id: str, fields: Mapping[str, Any]) -> bool:
        """Change the given fields of one document and no others; a value of None removes the field. One round trip.

        Neither text nor vector change. Answers False, and writes nothing, if there is no such document.
        """
        return self._run("update", write.update(self._live, id, fields))

    @overload
    def get(self, ids: str, *, return_vectors: bool = False) -> Document | None: ...  # type: ignore[overload-overlap]
    @overload
    def get(self, ids: Iterable[str], *, return_vectors: bool = False) -> list[Document | None]: ...
    def get(self, ids: str | Iterable[str], *, return_vectors: bool = False) -> Any:
        """The document of an id, or a list of them for many, in their order; None where there is none.

        A round trip per 500 ids. Raises ReplyError for a hash that another program wrote there.
        """
        return self._run("get", read.get(self._live, ids, return_vectors=return_vectors))

    @overload
    def exists(self, ids: str) -> bool: ...  # type: ignore[overload-overlap]
    @overload
    def exists(self, ids: Iterable[str]) -> list[bool]: ...
    def exists(self, ids: str | Iterable[str]) -> Any:
        """Whether there is a document of an id, or of each of many. One round trip."""
        return self._run("exists", read.exists(self._live, ids))

    def delete(
        self, ids: str | Iterable[str] | None = None, *, filter: FilterSpec = None, everything: bool = False
    ) -> int:
        """Delete documents by id, or all that pass a filter; answers how many there were.

        An empty list deletes nothing. ``filter={}`` deletes every document and needs everything=True. What
        another program wrote stays. By filter it first compares the schema with the live index, as writes do.
        By id a round trip per 500. A filter is evaluated by walking the keys first, so that documents which
        the engine refused to index or has not reached are deleted too; its cost grows with their number.
        """
        return self._run("delete", write.delete(self._live, ids, filter, everything=everything))

    def count(self, filter: FilterSpec = None) -> int:
        """How many documents the index holds, or how many of them pass a filter.

        The engine counts, in one round trip; Valkey Search stops at 100,000, beyond which the keys are
        walked. Raises SearchTimeout where the engine may have stopped early.
        """
        return self._run("count", read.count(self._live, filter))

    def scan(
        self, filter: FilterSpec = None, *, batch_size: int = 1000, return_vectors: bool = False
    ) -> Iterator[Document]:
        """Every document that passes the filter, each once, in no order, by walking the keys.

        Two round trips per ``batch_size`` (1 to 10,000) keys. Complete under concurrent writes; sees documents
        that the engine refused. Holds the ids seen. A wrong argument is refused at the first document.
        """
        return self._stream("scan", read.scan(self._live, filter, batch_size=batch_size, return_vectors=return_vectors))

    def create_index(self, *, timeout_s: float = WAIT_S) -> bool:
        """Make the index if there is none; answers whether this call made it. Safe to call at any time.

        An index that is there is compared: SchemaMismatch says what differs. Documents that are there
        already are indexed; waits for that up to timeout_s, and queries say so if it was not enough. A server
        that is still loading its data is waited for as well; any other call raises the client's own error.
        Raises NotSupported without a search module, InvalidInput if the prefix overlaps another index's.
        """
        return self._run("create_index", index.create(self._live, check_seconds("timeout_s", timeout_s)))

    def wait_until_indexed(self, *, timeout_s: float = WAIT_S) -> bool:
        """Wait until the engine has indexed what was there before the index; False if time ran out.

        Asks again and again, five times a second at the most. timeout_s: 0 asks once.
        """
        return self._run("wait_until_indexed", index.wait(self._live, check_seconds("timeout_s", timeout_s)))

    def describe_index(self) -> IndexReport:
        """What the live index is: documents, dims, metric, progress, failures with the last one's error.

        Read only. One round trip, on a cluster two; before the first of a retriever, one that asks which server it is.
        """
        return self._run("describe_index", index.describe(self._live))

    def drop_index(self, *, delete_documents: bool = False) -> int:
        """Drop the index, and with delete_documents its documents; answers how many were deleted.

        Without, the documents stay and ``create_index()`` indexes them anew. Never touches a key that
        this library did not write. An index that is not there is no error.
        """
        return self._run("drop_index", write.drop(self._live, delete_documents=delete_documents))

    def close(self) -> None:
        """Close the client that ``connect`` made; a borrowed one stays open. Safe to call twice.

        Calls under way finish first; using the retriever again opens new connections.
        """
        self._driver.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(index={self._live.schema.name!r})"

    def _run(self, name: str, plan: Plan[T], source: Iterator[Document] = NOTHING) -> T:
        if self._hook is None and not log.isEnabledFor(logging.DEBUG):
            return self._driver.run(plan, source)
        watch = Watch(name, self._live.schema.name, self._hook)
        with watch:
            return watch.result(self._driver.run(watched(plan, watch.tally), source))

    def _stream(self, name: str, plan: Plan[None]) -> Iterator[Document]:
        watch = Watch(name, self._live.schema.name, self._hook)
        with watch:
            yield from self._driver.stream(watched(plan, watch.tally))


class AsyncRetriever:
    """A declared index on a server, awaited. The same operations as Retriever's, with ``await``.

    Takes a client of ``valkey.asyncio`` or ``redis.asyncio``; embed and rerank may be async, and run in a
    thread if they are not. Holds nothing that belongs to an event loop but its client.
    """

    def __init__(
        self,
        client: Any,
        schema: Schema,
        *,
        embed: Embedder | None = None,
        rerank: Reranker | None = None,
        engine: Engine | None = None,
        on_operation: Hook | None = None,
    ) -> None:
        check_client(client, _SHELLS, blocking=False)
        self._live = _live(client, schema, embed, rerank, engine, blocking=False)
        self._rerank = rerank
        self._driver = AsyncDriver(AsyncClusterLink(client) if is_cluster(client) else AsyncClientLink(client), embed)
        self._hook = _checked_hook(on_operation)

    @classmethod
    def connect(
        cls,
        url: str | None,
        schema: Schema,
        *,
        embed: Embedder | None = None,
        rerank: Reranker | None = None,
        engine: Engine | None = None,
        on_operation: Hook | None = None,
        cluster: bool = False,
        timeout_s: float = REPLY_TIMEOUT_S,
    ) -> Self:
        """A retriever with a client of its own; no await, it does no I/O. See ``Retriever.connect``."""
        from valkey.asyncio import Valkey, ValkeyCluster

        client = own_client(Valkey, url, timeout_s)
        retriever = cls(client, schema, embed=embed, rerank=rerank, engine=engine, on_operation=on_operation)
        retriever._live.cluster = cluster
        retriever._driver.link = (
            AsyncClusterLink(make=own_cluster(ValkeyCluster, client, url, timeout_s))
            if cluster
            else AsyncOwnLink(client)
        )
        return retriever

    async def query(
        self,
        *,
        text: str | None = None,
        vector: npt.ArrayLike | None = None,
        k: int = 10,
        filter: FilterSpec = None,
        rerank: Reranker | bool | None = None,
        candidates: int | None = None,
        max_distance: float | None = None,
        return_fields: Iterable[str] | None = None,
        return_vectors: bool = False,
        ef_runtime: int | None = None,
        timeout_ms: int | None = None,
    ) -> Hits[Hit]:
        """See ``Retriever.query``."""
        return await self._run(
            "query",
            search.query(
                self._live,
                self._rerank,
                text=text,
                vector=vector,
                k=k,
                filter=filter,
                rerank=rerank,
                candidates=candidates,
                max_distance=max_distance,
                return_fields=return_fields,
                return_vectors=return_vectors,
                ef_runtime=ef_runtime,
                timeout_ms=timeout_ms,
            ),
        )

    async def query_many(self, queries: Iterable[Query]) -> list[Hits[Hit] | Exception]:
        """See ``Retriever.query_many``."""
        return await self._run("query_many", search.query_many(self._live, self._rerank, queries))

    async def retrieve(
        self,
        *,
        text: str | None = None,
        vector: npt.ArrayLike | None = None,
        k: int = 10,
        filter: FilterSpec = None,
        fusion: str | Fusion = "rrf",
        channels: Iterable[str] = CHANNELS,
        depth: int | None = None,
        max_distance: float | None = None,
        min_text_score: float | None = None,
        rerank: Reranker | bool | None = None,
        candidates: int | None = None,
        diversity: float | None = None,
        collapse: str | None = None,
        expand: Callable[[str], Any] | None = None,
        return_fields: Iterable[str] | None = None,
        strict: bool = False,
        ef_runtime: int | None = None,
        timeout_ms: int | None = None,
    ) -> Hits[FusedHit]:
        """See ``Retriever.retrieve``; ``expand`` may be async."""
        return await self._run(
            "retrieve",
            retrieve.retrieve(
                self._live,
                self._rerank,
                text=text,
                vector=vector,
                k=k,
                filter=filter,
                fusion=fusion,
                channels=channels,
                depth=depth,
                max_distance=max_distance,
                min_text_score=min_text_score,
                rerank=rerank,
                candidates=candidates,
                diversity=diversity,
                collapse=collapse,
                expand=expand,
                return_fields=return_fields,
                strict=strict,
                ef_runtime=ef_runtime,
                timeout_ms=timeout_ms,
            ),
        )

    async def retrieve_many(self, queries: Iterable[Retrieval]) -> list[Hits[FusedHit] | Exception]:
        """See ``Retriever.retrieve_many``."""
        return await self._run("retrieve_many", retrieve.retrieve_many(self._live, self._rerank, queries))

    async def upsert(
        self,
        documents: Iterable[Document] | AsyncIterable[Document],
        *,
        batch_size: int = BATCH_SIZE,
        on_batch: Callable[[Sequence[str]], Any] | None = None,
    ) -> UpsertReport:
        """See ``Retriever.upsert``; also takes an async iterable."""
        plan = write.upsert(self._live, batch_size=batch_size, on_batch=on_batch)
        return await self._run("upsert", plan, async_documents(documents))

    async def update(self, id: str, fields: Mapping[str, Any]) -> bool:
        """See ``Retriever.update``."""
        return await self._run("update", write.update(self._live, id, fields))

    @overload
    async def get(self, ids: str, *, return_vectors: bool = False) -> Document | None: ...  # type: ignore[overload-overlap]
    @overload
    async def get(self, ids: Iterable[str], *, return_vectors: bool = False) -> list[Document | None]: ...
    async def get(self, ids: str | Iterable[str], *, return_vectors: bool = False) -> Any:
        """See ``Retriever.get``."""
        return await self._run("get", read.get(self._live, ids, return_vectors=return_vectors))

    @overload
    async def exists(self, ids: str) -> bool: ...  # type: ignore[overload-overlap]
    @overload
    async def exists(self, ids: Iterable[str]) -> list[bool]: ...
    async def exists(self, ids: str | Iterable[str]) -> Any:
        """See ``Retriever.exists``."""
        return await self._run("exists", read.exists(self._live, ids))

    async def delete(
        self, ids: str | Iterable[str] | None = None, *, filter: FilterSpec = None, everything: bool = False
    ) -> int:
        """See ``Retriever.delete``."""
        return await self._run("delete", write.delete(self._live, ids, filter, everything=everything))

    async def count(self, filter: FilterSpec = None) -> int:
        """See ``Retriever.count``."""
        return await self._run("count", read.count(self._live, filter))

    def scan(
        self, filter: FilterSpec = None, *, batch_size: int = 1000, return_vectors: bool = False
    ) -> AsyncIterator[Document]:
        """See ``Retriever.scan``; iterate with ``async for``."""
        return self._stream("scan", read.scan(self._live, filter, batch_size=batch_size, return_vectors=return_vectors))

    async def create_index(self, *, timeout_s: float = WAIT_S) -> bool:
        """See ``Retriever.create_index``."""
        return await self._run("create_index", index.create(self._live, check_seconds("timeout_s", timeout_s)))

    async def wait_until_indexed(self, *, timeout_s: float = WAIT_S) -> bool:
        """See ``Retriever.wait_until_indexed``."""
        return await self._run("wait_until_indexed", index.wait(self._live, check_seconds("timeout_s", timeout_s)))

    async def describe_index(self) -> IndexReport:
        """See ``Retriever.describe_index``."""
        return await self._run("describe_index", index.describe(self._live))

    async def drop_index(self, *, delete_documents: bool = False) -> int:
        """See ``Retriever.drop_index``."""
        return await self._run("drop_index", write.drop(self._live, delete_documents=delete_documents))

    async def close(self) -> None:
        """See ``Retriever.close``."""
        await self._driver.link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(index={self._live.schema.name!r})"

    async def _run(self, name: str, plan: Plan[T], source: Iterator[Document] | AsyncIterator[Document] = NOTHING) -> T:
        if self._hook is None and not log.isEnabledFor(logging.DEBUG):
            return await self._driver.run(plan, source)
        watch = Watch(name, self._live.schema.name, self._hook)
        with watch:
            return watch.result(await self._driver.run(watched(plan, watch.tally), source))

    async def _stream(self, name: str, plan: Plan[None]) -> AsyncIterator[Document]:
        watch = Watch(name, self._live.schema.name, self._hook)
        with watch:
            async with aclosing(self._driver.stream(watched(plan, watch.tally))) as documents:
                async for document in documents:
                    yield document


# --- making one -----------------------------------------------------------------------------------

_SHELLS = (Retriever.__name__, AsyncRetriever.__name__)


def _live(
    client: Any,
    schema: Schema,
    embed: Embedder | None,
    rerank: Reranker | None,
    engine: Engine | None,
    *,
    blocking: bool,
) -> Live:
    if not isinstance(schema, Schema):
        raise InvalidInput(f"schema: a Schema expected, not {schema!r}")
    if engine is not None and not isinstance(engine, Engine):
        raise InvalidInput(f"engine: a row of retriever.engines expected, not {engine!r}")
    live = Live(schema, blocking=blocking, engine=engine, database=_database(client), cluster=is_cluster(client))
    if rerank is not None:
        live.check_callable(rerank, "rerank")
    if embed is None:
        return live
    live.embeds = True
    for kind in ("document", "query"):
        live.check_callable(embed_function(embed, kind), "embed")
    live.embedder = embedder_name(embed)
    dims = embedder_dims(embed)
    if dims is not None and live.dims is None:
        live.schema = schema.with_dims(dims)
    if dims is not None and dims != live.dims:
        raise InvalidInput(
            f"the embedder {live.embedder or 'given'} makes {dims} dimensions, the schema has {live.dims}"
        )
    return live


def _checked_hook(hook: Hook | None) -> Hook | None:
    if hook is not None and (not callable(hook) or is_async(hook)):
        raise InvalidInput(f"on_operation: a function that is not async expected, not {hook!r}")
    return hook


def _database(client: Any) -> int:
    """The database that a client is in, as far as it tells."""
    options = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {})
    number = options.get("db") if isinstance(options, dict) else None
    return number if isinstance(number, int) else 0
