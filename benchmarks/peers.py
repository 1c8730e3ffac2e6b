"""The same work through four libraries, in one run: what each takes, what it finds, and what it does not offer.

A raw client, this library, betterdb-retrieval and redisvl load the same documents into an index each and are asked the
same questions, side by side in an order drawn anew each round. Each is used as its own documentation says, in the form
that suits it best. A library that is not installed has a row that says so: `make bench-peers` installs them into an
environment of their own. --page writes what was found into docs/benchmarks.md. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import gc
import importlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import harness
import numpy as np
from harness import Client, Matrix, Timings
from valkey import Valkey
from valkey.asyncio import Valkey as AsyncValkey
from valkey.utils import LIBVALKEY_AVAILABLE

from retriever import AsyncRetriever, Document, Numeric, Retriever, Schema, Tag, Vector

K = 10
EF_RUNTIME = 100  # of the index without words, and of every query to it
BATCH = 500
CONCURRENT = 16
CATEGORY = harness.CATEGORIES[0]  # a tenth of the documents
NAME = f"{harness.NAME}-peers"
RAW, OURS, BETTERDB, REDISVL = "raw client", "valkey-retriever", "betterdb-retrieval", "redisvl"
SIDES = (RAW, OURS, BETTERDB, REDISVL)
# Of the indexes: without words and tuned; as a library makes one by default, with words; of awkward tags.
PLAIN, WORDS, TAGS = "plain", "words", "tags"
NOT_OFFERED, NOT_INSTALLED = "not offered", "not installed"
SEPARATOR = "\x1f"  # for tags, where one may be declared: a character that texts do not have
PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

TABLES: dict[str, tuple[str, ...]] = {
    "Versions": ("library", "version", "over"),
    "Loading": ("library", "documents/s", "times raw", "with words, documents/s", "times raw, with words"),
    "Queries, blocking": ("library", "p50, us", "times raw", "TAG filter, p50, us", "times raw, TAG filter"),
    "Queries, async": ("library", "p50, us", "times raw", "TAG filter, p50, us", "times raw, TAG filter"),
    "16 queries at once, async": ("library", "queries/s", "times raw"),
    "Words and vectors together": ("library", "p50, us", "names of documents found", "what it does"),
    "What is found": (
        "library",
        "nearest came first",
        "of the 10 nearest, EF_RUNTIME 100",
        "of the 10 nearest, TAG filter",
        "of the 10 nearest, its defaults",
        "what came instead",
    ),
    "Awkward tags": ("library", "declared", "found exactly", "found nothing", "found others", "error", "for instance"),
}

FOUR = np.ones(4, np.float32)  # the vector of every document of TAGS

# What the property tests of filters draw too: each is one document's tag, and asked for alone.
AWKWARD = [
    "", " ", "  ", " a", "a ", " a ", "a  b", "*", "**", "a*", "*a", "a*b", "\\", "\\\\", "a\\", "\\*", "a\\*", "a\\b",
    "C:\\x", "a\\-b", "a\\ b", "_", "__", "-", "|", "aa|bb", "a,b", "a;b", "openai/gpt-4o", "gemma:7b", "550e-41d4",
    'x" | @v:"secret', "}", "{", "a}|@t:{b", "})|(@t:{", "$vec", "$p", "@f", "@f:{x}", "%", "50% off", "~a", "(a", "a)",
    "[1 2]", "=>[KNN 1 @v $vec]", "and", "or", "not", "the", "AS", "KNN", "ismissing", "inf", "nan", "-inf", "1", "1.0",
    "-1", "2024-01-01", "AbC", "abc", "École", "école", "e\u0301", "Привет", "日本語テキスト", "İ", "ß", "a\x00bb",
    "\x00", "\x00a", "a\x1fb", "\x1f", "\x7f", "a\nb", "\n", "\r\n", "a\tb", "\t", "\u00a0", "\u00a0a", "\u200b",
    "\ufeff", "\u2028", "\ue000", "\ue0ff", "\ue0fe", "\ue0fe\ue2fe", "\ue02a", "a\ue02a", "\ue020", "\ue200", "\ue3ff",
    "\uf8ff", "\U0010ffff", "x" * 1023, "x" * 1024, "é" * 2048, "-" * 4096, "x" * 4096,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Data:
    """What is loaded, and what is asked: a row of vectors is a question, texts[at] the words that go with it.

    named: the document whose number is the first word of a text; its vector has nothing to do with the question's.
    """

    documents: Sequence[Document]
    vectors: Matrix
    texts: Sequence[str]
    named: Sequence[str]


@dataclass(frozen=True, slots=True)
class Run:
    """Where, when and how the work was done, and its tables."""

    date: str
    machine: str
    load: tuple[float, float]
    command: str
    engine: str
    sizes: str
    tables: dict[str, list[list[str]]] = field(default_factory=dict)

    def markdown(self) -> str:
        """What the page shows between its marks."""
        before, after = self.load
        head = (
            f"* Date: {self.date}\n* Machine: {self.machine}; load average {before:.1f} at the start, {after:.1f} at "
            f"the end\n* Engine: {self.engine}\n* Command: `{self.command}`\n* Sizes: {self.sizes}\n"
        )
        parts = (f"### {title}\n\n{harness.as_markdown(TABLES[title], rows)}" for title, rows in self.tables.items())
        return "\n".join([head, *parts])


# --- sides ----------------------------------------------------------------------------------------


class Library(Protocol):
    """One library, connected. at: the number of a question; an answer is whatever it gives.

    declared: how tags may be declared -> the words for it. blocks, fuses: whether it can.
    """

    name: str
    over: str
    blocks: bool
    fuses: str
    declared: Mapping[bool, str]

    async def create(self, index: str) -> None:
        """Make the index without words, or the one with words, empty."""

    async def load(self, index: str, start: int, stop: int) -> None:
        """Write documents ``start`` to ``stop``."""

    def query(self, at: int, category: str | None) -> Any:
        """The nearest, blocking."""

    def aquery(self, at: int, category: str | None) -> Coroutine[Any, Any, Any]:
        """The nearest, awaited."""

    async def by_default(self, at: int) -> Any:
        """The nearest, of the index with words, with nothing said that need not be."""

    def fused(self, at: int) -> Any:
        """Words and vectors together, blocking; only where ``fuses`` says what that is."""

    def ids(self, answer: Any) -> list[str]:
        """The ids of an answer, in its order."""

    async def create_tags(self, exact: bool) -> None:
        """An index of one TAG field and a vector of 4 numbers; exact: declared as exactly as it can be."""

    async def put_tag(self, id: str, value: str) -> None:
        """Write one document."""

    async def find_tag(self, value: str) -> list[str]:
        """The ids with this value, as far as the filter says so."""


def valkey_py() -> str:
    parser = f"libvalkey {harness.version('libvalkey')}" if LIBVALKEY_AVAILABLE else "its pure-Python parser"
    return f"valkey-py {harness.version('valkey')} with {parser}"


def key(side: str, index: str) -> str:
    return f"{NAME}-{side.split()[0]}-{index}"


class RawClient:
    """valkey-py alone, with commands as the engine's documentation writes them, as finished arguments."""

    name = RAW
    blocks = True
    fuses = "the two searches in one pipeline; nothing is fused, nothing read"
    declared: Mapping[bool, str] = {False: "TAG", True: "TAG SEPARATOR CASESENSITIVE INDEXEMPTY"}
    FIELDS = ("RETURN", 4, "score", "text", "category", "year", "SORTBY", "score", "LIMIT", 0, K, "DIALECT", 2)

    def __init__(self, data: Data, client: Client, aclient: Client) -> None:
        self.over = valkey_py()
        self.client, self.aclient, self.data = client, aclient, data
        self.blobs = [row.tobytes() for row in data.vectors]
        self.plain = {
            category: [self._nearest(PLAIN, blob, category, f" EF_RUNTIME {EF_RUNTIME}") for blob in self.blobs]
            for category in (None, CATEGORY)
        }
        self.writes = {index: [self._write(index, each) for each in data.documents] for index in (PLAIN, WORDS)}

    @staticmethod
    def _nearest(index: str, blob: bytes, category: str | None, ef_runtime: str) -> tuple[Any, ...]:
        chosen = "*" if category is None else f"(@category:{{{category}}})"
        words = f"{chosen}=>[KNN {K} @embedding $vec{ef_runtime} AS score]"
        return ("FT.SEARCH", f"{key(RAW, index)}:idx", words, "PARAMS", 2, "vec", blob, *RawClient.FIELDS)

    @staticmethod
    def _write(index: str, each: Document) -> tuple[Any, ...]:
        pairs = {"text": each.text, **each.fields, "embedding": np.asarray(each.vector).tobytes()}
        return ("HSET", f"{key(RAW, index)}:{each.id}", *(word for pair in pairs.items() for word in pair))

    async def create(self, index: str) -> None:
        """Make an empty index."""
        words = ("text", "TEXT") if index == WORDS else ()
        vector = ("VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", harness.DIMS, "DISTANCE_METRIC", "COSINE")
        made = ("category", "TAG", "year", "NUMERIC", *words, "embedding", *vector)
        self._create(key(RAW, index), made)

    def _create(self, name: str, fields: Sequence[Any]) -> None:
        start = ("FT.CREATE", f"{name}:idx", "ON", "HASH", "PREFIX", 1, f"{name}:", "SCHEMA")
        self.client.execute_command(*start, *fields)

    async def load(self, index: str, start: int, stop: int) -> None:
        """Write some documents."""
        for at in range(start, stop, BATCH):
            with self.client.pipeline(transaction=False) as pipeline:
                for command in self.writes[index][at : min(at + BATCH, stop)]:
                    pipeline.execute_command(*command)
                pipeline.execute()

    def query(self, at: int, category: str | None) -> Any:
        """The nearest."""
        return self.client.execute_command(*self.plain[category][at])

    async def aquery(self, at: int, category: str | None) -> Any:
        """The nearest, awaited."""
        return await self.aclient.execute_command(*self.plain[category][at])

    async def by_default(self, at: int) -> Any:
        """The nearest, with the engine's EF_RUNTIME."""
        return self.client.execute_command(*self._nearest(WORDS, self.blobs[at], None, ""))

    def fused(self, at: int) -> Any:
        """Both searches."""
        words = "|".join(re.findall(r"\w+", self.data.texts[at]))
        worded = ("FT.SEARCH", f"{key(RAW, WORDS)}:idx", f"@text:({words})", "SCORER", "BM25STD")
        with self.client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*self._nearest(WORDS, self.blobs[at], None, ""))
            pipeline.execute_command(*worded, "RETURN", 3, "text", "category", "year", "LIMIT", 0, K, "DIALECT", 2)
            return pipeline.execute()

    def ids(self, answer: Any) -> list[str]:
        """The ids of a reply."""
        return [each.decode().rpartition(":")[2] for each in answer[1::2]]

    async def create_tags(self, exact: bool) -> None:
        """An index of tags."""
        how = ("SEPARATOR", SEPARATOR, "CASESENSITIVE", "INDEXEMPTY") if exact else ()
        vector = ("VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "COSINE")
        self._create(key(RAW, TAGS), ("value", "TAG", *how, "embedding", *vector))

    async def put_tag(self, id: str, value: str) -> None:
        """Write one document."""
        self.client.hset(f"{key(RAW, TAGS)}:{id}", mapping={"value": value, "embedding": FOUR.tobytes()})

    async def find_tag(self, value: str) -> list[str]:
        """With a backslash before each character that the documentation names, which it leaves to the program."""
        escaped = re.sub(r"[,.<>{}\[\]\"':;!@#$%^&*()\-+=~|/\\ ]", r"\\\g<0>", value)
        escaped = escaped or '""'
        words = f"(@value:{{{escaped}}})=>[KNN {len(AWKWARD)} @embedding $vec AS score]"
        ask = ("FT.SEARCH", f"{key(RAW, TAGS)}:idx", words, "PARAMS", 2, "vec", FOUR.tobytes(), "NOCONTENT")
        reply = self.client.execute_command(*ask, "LIMIT", 0, len(AWKWARD), "DIALECT", 2)
        return [each.decode().rpartition(":")[2] for each in reply[1:]]


class ThisLibrary:
    """Retriever and AsyncRetriever on connections of their own."""

    name = OURS
    blocks = True
    fuses = "retrieve: BM25 and vectors, fused by rank"
    declared: Mapping[bool, str] = {True: "Tag"}

    def __init__(self, data: Data, docs: Mapping[str, Retriever], adocs: AsyncRetriever) -> None:
        self.over = valkey_py()
        self.data, self.rows, self.docs, self.adocs = data, list(data.vectors), docs, adocs
        self.filters = {None: None, CATEGORY: {"category": CATEGORY}}

    @staticmethod
    def schema(index: str) -> Schema:
        """What is declared for an index."""
        start = key(OURS, index)
        if index == TAGS:
            return Schema(f"{start}:idx", [Tag("value")], Vector(dims=4, algorithm="FLAT"), None, f"{start}:")
        fields, vector = (Tag("category"), Numeric("year")), Vector(dims=harness.DIMS)
        if index == PLAIN:
            return Schema(f"{start}:idx", fields, vector, analysis=None, prefix=f"{start}:")
        return Schema(f"{start}:idx", fields, vector, prefix=f"{start}:")

    async def create(self, index: str) -> None:
        """Make an empty index."""
        self.docs[index].create_index()

    async def load(self, index: str, start: int, stop: int) -> None:
        """Write some documents."""
        report = self.docs[index].upsert(self.data.documents[start:stop])
        assert report.written == stop - start, report

    def query(self, at: int, category: str | None) -> Any:
        """The nearest."""
        return self.docs[PLAIN].query(vector=self.rows[at], k=K, filter=self.filters[category], ef_runtime=EF_RUNTIME)

    async def aquery(self, at: int, category: str | None) -> Any:
        """The nearest, awaited."""
        return await self.adocs.query(vector=self.rows[at], k=K, filter=self.filters[category], ef_runtime=EF_RUNTIME)

    async def by_default(self, at: int) -> Any:
        """The nearest, with nothing said."""
        return self.docs[WORDS].query(vector=self.rows[at], k=K)

    def fused(self, at: int) -> Any:
        """Words and vectors."""
        return self.docs[WORDS].retrieve(text=self.data.texts[at], vector=self.rows[at], k=K)

    def ids(self, answer: Any) -> list[str]:
        """The ids of hits."""
        return [hit.id for hit in answer]

    async def create_tags(self, exact: bool) -> None:
        """An index of tags."""
        assert exact  # there is no other way
        self.docs[TAGS].create_index()

    async def put_tag(self, id: str, value: str) -> None:
        """Write one document."""
        report = self.docs[TAGS].upsert([Document(id, fields={"value": value}, vector=FOUR)])
        assert report.written == 1, report

    async def find_tag(self, value: str) -> list[str]:
        """The ids with this value."""
        return [hit.id for hit in self.docs[TAGS].query(vector=FOUR, k=len(AWKWARD), filter={"value": value})]


class BetterDB:
    """betterdb-retrieval: async alone; text is stored and embedded, its index ranks no words."""

    name = BETTERDB
    blocks = False
    fuses = ""
    declared: Mapping[bool, str] = {False: "tag", True: "tag, separator"}

    def __init__(self, data: Data, client: Client) -> None:
        self.over = valkey_py()
        self.data, self.client = data, client
        entry = harness.betterdb_entry
        self.entries = [entry(each.id, each.text, each.fields) for each in data.documents]
        self.embeddings: dict[str, list[float]] = {
            each.text: np.asarray(each.vector).tolist() for each in data.documents
        }
        self.lists = data.vectors.tolist()
        self.filters = {None: None, CATEGORY: {"category": CATEGORY}}
        tuned = {"efRuntime": EF_RUNTIME}  # it takes EF_RUNTIME from the index alone
        fields = {"category": {"type": "tag"}, "year": {"type": "numeric"}}
        vector = {"algorithm": "hnsw", "metric": "cosine", "dims": harness.DIMS}
        self.retrievers = {
            PLAIN: self._retriever(PLAIN, fields, vector | tuned),
            WORDS: self._retriever(WORDS, fields, vector),
        }

    def _retriever(self, index: str, fields: Mapping[str, Any], vector: Mapping[str, Any]) -> Any:
        make = importlib.import_module("betterdb_retrieval").Retriever
        schema = {"fields": fields, "vector": vector}
        return make(self.client, key(BETTERDB, index), schema, embed_fn=self.embed, analytics=False)

    async def embed(self, text: str) -> list[float]:
        """The ready vector of a text."""
        return self.embeddings[text]

    async def create(self, index: str) -> None:
        """Make an empty index."""
        await self.retrievers[index].create_index()

    async def load(self, index: str, start: int, stop: int) -> None:
        """Write some documents."""
        await self.retrievers[index].upsert(self.entries[start:stop])

    def query(self, at: int, category: str | None) -> Any:
        """It has no blocking client."""
        raise NotImplementedError

    async def aquery(self, at: int, category: str | None) -> Any:
        """The nearest, awaited."""
        return await self.retrievers[PLAIN].query(vector=self.lists[at], k=K, filter=self.filters[category])

    async def by_default(self, at: int) -> Any:
        """The nearest, of an index that was declared without EF_RUNTIME."""
        return await self.retrievers[WORDS].query(vector=self.lists[at], k=K)

    def fused(self, at: int) -> Any:
        """Its hybrid="rerank" is a function of the caller's over the nearest; it searches no words."""
        raise NotImplementedError

    def ids(self, answer: Any) -> list[str]:
        """The ids of hits."""
        return [hit.id for hit in answer]

    async def create_tags(self, exact: bool) -> None:
        """An index of tags."""
        tag = {"type": "tag", "separator": SEPARATOR} if exact else {"type": "tag"}
        vector = {"algorithm": "flat", "metric": "cosine", "dims": 4}
        self.retrievers[TAGS] = self._retriever(TAGS, {"value": tag}, vector)
        self.embeddings["of tags"] = FOUR.tolist()
        await self.retrievers[TAGS].create_index()

    async def put_tag(self, id: str, value: str) -> None:
        """Write one document."""
        await self.retrievers[TAGS].upsert([harness.betterdb_entry(id, "of tags", {"value": value})])

    async def find_tag(self, value: str) -> list[str]:
        """The ids with this value."""
        asked = {"vector": FOUR.tolist(), "k": len(AWKWARD), "filter": {"value": value}}
        return [hit.id for hit in await self.retrievers[TAGS].query(**asked)]


class RedisVL:
    """redisvl's SearchIndex and AsyncSearchIndex, over redis-py."""

    name = REDISVL
    blocks = True
    fuses = "AggregateHybridQuery: words reorder the nearest; HybridQuery, which fuses, is for Redis 8.4"
    declared: Mapping[bool, str] = {False: "tag", True: "tag, separator, case_sensitive, index_empty"}

    def __init__(self, url: str, data: Data, aindex: Any) -> None:
        parser = f"hiredis {harness.version('hiredis')}" if harness.version("hiredis") else "its pure-Python parser"
        self.over = f"redis-py {harness.version('redis')} with {parser}"
        self.url, self.data, self.aindex = url, data, aindex
        self.blobs = [row.tobytes() for row in data.vectors]
        self.rows = [
            {"id": each.id, "text": each.text, **each.fields, "embedding": np.asarray(each.vector).tobytes()}
            for each in data.documents
        ]
        self.queries, self.filters = (
            importlib.import_module("redisvl.query"),
            importlib.import_module("redisvl.query.filter"),
        )
        self.indexes = {index: redisvl_index(url, index) for index in (PLAIN, WORDS)}

    async def create(self, index: str) -> None:
        """Make an empty index."""
        self.indexes[index].create()

    async def load(self, index: str, start: int, stop: int) -> None:
        """Write some documents."""
        self.indexes[index].load(self.rows[start:stop], id_field="id", batch_size=BATCH)

    def _nearest(self, at: int, category: str | None, ef_runtime: int | None) -> Any:
        chosen = None if category is None else self.filters.Tag("category") == category
        fields = ["text", "category", "year"]
        return self.queries.VectorQuery(
            self.blobs[at], "embedding", fields, chosen, num_results=K, ef_runtime=ef_runtime
        )

    def query(self, at: int, category: str | None) -> Any:
        """The nearest."""
        return self.indexes[PLAIN].query(self._nearest(at, category, EF_RUNTIME))

    async def aquery(self, at: int, category: str | None) -> Any:
        """The nearest, awaited."""
        return await self.aindex.query(self._nearest(at, category, EF_RUNTIME))

    async def by_default(self, at: int) -> Any:
        """The nearest, with nothing said."""
        return self.indexes[WORDS].query(self._nearest(at, None, None))

    def fused(self, at: int) -> Any:
        """Words and vectors, in the way that engines before Redis 8.4 know."""
        fields = ["id", "text", "category", "year"]
        make = self.queries.AggregateHybridQuery
        return self.indexes[WORDS].query(
            make(self.data.texts[at], "text", self.blobs[at], "embedding", num_results=K, return_fields=fields)
        )

    def ids(self, answer: Any) -> list[str]:
        """The ids of rows: a key, or the field of an aggregation."""
        return [row["id"].rpartition(":")[2] for row in answer]

    async def create_tags(self, exact: bool) -> None:
        """An index of tags."""
        how = {"separator": SEPARATOR, "case_sensitive": True, "index_empty": True} if exact else {}
        self.indexes[TAGS] = redisvl_index(self.url, TAGS, how)
        self.indexes[TAGS].create()

    async def put_tag(self, id: str, value: str) -> None:
        """Write one document."""
        self.indexes[TAGS].load([{"id": id, "value": value, "embedding": FOUR.tobytes()}], id_field="id")

    async def find_tag(self, value: str) -> list[str]:
        """The ids with this value."""
        chosen, most = self.filters.Tag("value") == value, len(AWKWARD)
        query = self.queries.VectorQuery(FOUR.tobytes(), "embedding", ["value"], chosen, num_results=most)
        return self.ids(self.indexes[TAGS].query(query))


def redisvl_index(url: str, index: str, tag: Mapping[str, Any] | None = None, *, blocking: bool = True) -> Any:
    """redisvl's index object; makes nothing on the server. tag: attributes of the field of TAGS."""
    name = key(REDISVL, index)
    vector = {"algorithm": "hnsw", "dims": harness.DIMS, "distance_metric": "cosine", "datatype": "float32"}
    fields: list[dict[str, Any]] = [{"name": "category", "type": "tag"}, {"name": "year", "type": "numeric"}]
    if index == WORDS:
        fields.append({"name": "text", "type": "text"})
    if index == TAGS:
        vector |= {"algorithm": "flat", "dims": 4}
        fields = [{"name": "value", "type": "tag", "attrs": dict(tag or {})}]
    declared = {
        "index": {"name": f"{name}:idx", "prefix": name, "storage_type": "hash"},
        "fields": [*fields, {"name": "embedding", "type": "vector", "attrs": vector}],
    }
    module = importlib.import_module("redisvl.index")
    made = importlib.import_module("redisvl.schema").IndexSchema.from_dict(declared)
    make = module.SearchIndex if blocking else module.AsyncSearchIndex
    return make(made, redis_url=url.replace("valkeys://", "rediss://").replace("valkey://", "redis://"))


@contextlib.asynccontextmanager
async def libraries(url: str, client: Client, data: Data) -> AsyncIterator[dict[str, Library]]:
    """Those that are installed, connected, with no index of theirs left from before."""
    async with contextlib.AsyncExitStack() as stack:
        aclient = await stack.enter_async_context(AsyncValkey.from_url(url))
        docs = {
            index: stack.enter_context(Retriever.connect(url, ThisLibrary.schema(index)))
            for index in (PLAIN, WORDS, TAGS)
        }
        adocs = await stack.enter_async_context(AsyncRetriever.connect(url, ThisLibrary.schema(PLAIN)))
        found: dict[str, Library] = {RAW: RawClient(data, client, aclient), OURS: ThisLibrary(data, docs, adocs)}
        if harness.version(BETTERDB):
            found[BETTERDB] = BetterDB(data, aclient)
        if harness.version(REDISVL):
            aindex = await stack.enter_async_context(redisvl_index(url, PLAIN, blocking=False))
            found[REDISVL] = RedisVL(url, data, aindex)
        yield found


# --- what is measured -----------------------------------------------------------------------------


async def load(sides: Mapping[str, Library], index: str, count: int) -> dict[str, Timings]:
    """Every side loads all documents, in tenths that take turns, so that all indexes are alike in size."""
    for side in sides.values():
        await side.create(index)
    timings = {name: Timings() for name in sides}
    size = count // 10
    for at, name in harness.schedule(sides, 10):
        started, started_cpu = time.perf_counter(), time.process_time()
        await sides[name].load(index, at * size, (at + 1) * size)
        timings[name].wall.append((time.perf_counter() - started) / size)
        timings[name].cpu.append((time.process_time() - started_cpu) / size)
    return timings


def loads(sides: Mapping[str, Library], plain: Mapping[str, Timings], words: Mapping[str, Timings]) -> list[list[str]]:
    rows = []
    for name in sides:
        row = [name]
        for timings, offered in ((plain, True), (words, bool(sides[name].fuses))):
            if not offered:
                row += [NOT_OFFERED, ""]
                continue
            speed = harness.spread([1 / each for each in timings[name].wall])
            ratio = harness.ratios(timings[RAW].wall, timings[name].wall)  # of throughput: raw's time over its own
            row += [f"{speed:,.0f}", f"{ratio:.2f}" if name != RAW else ""]
        rows.append(row)
    return rows


async def queries(sides: Mapping[str, Library], rounds: int, operations: int, *, blocking: bool) -> list[list[str]]:
    """p50 of a query, plain and filtered."""
    rows = [[name] for name in sides]
    for category in (None, CATEGORY):
        able = {name: side for name, side in sides.items() if side.blocks or not blocking}
        if blocking:
            asked = {name: bound(side.query, category) for name, side in able.items()}
            for ask in asked.values():
                ask(0)
            timings = harness.measure(asked, rounds=rounds, operations=operations)
        else:
            awaited = {name: bound(side.aquery, category) for name, side in able.items()}
            for wait in awaited.values():
                await wait(0)
            timings = await harness.measure_async(awaited, rounds=rounds, operations=operations)
        for row in rows:
            row += times(timings, row[0])
    return rows


def bound(ask: Callable[[int, str | None], Any], category: str | None) -> Callable[[int], Any]:
    return lambda at: ask(at, category)


def times(timings: Mapping[str, Timings], name: str) -> list[str]:
    """p50 and how many times raw; or that it is not offered."""
    if name not in timings:
        return [NOT_OFFERED, ""]
    wall = harness.spread([1e6 * each for each in timings[name].wall])
    return [f"{wall:.0f}", f"{harness.ratios(timings[name].wall, timings[RAW].wall):.2f}" if name != RAW else ""]


async def at_once(sides: Mapping[str, Library], count: int, rounds: int, operations: int) -> list[list[str]]:
    """Queries a second of an event loop that has CONCURRENT under way."""

    def some(side: Library) -> Callable[[int], Any]:
        return lambda at: asyncio.gather(
            *(side.aquery((at * CONCURRENT + each) % count, None) for each in range(CONCURRENT))
        )

    asked = {name: some(side) for name, side in sides.items()}
    for ask in asked.values():
        await ask(0)
    timings = await harness.measure_async(asked, rounds=rounds, operations=operations)
    rows = []
    for name in sides:
        rate = harness.spread([CONCURRENT / each for each in timings[name].wall])
        ratio = harness.ratios(timings[RAW].wall, timings[name].wall)
        rows.append([name, f"{rate:.0f}", f"{ratio:.2f}" if name != RAW else ""])
    return rows


def together(sides: Mapping[str, Library], data: Data, rounds: int, operations: int) -> list[list[str]]:
    """Words and vectors: the time, and whether a document comes that the words name and the vector does not."""
    able = {name: side for name, side in sides.items() if side.fuses}
    for side in able.values():
        side.fused(0)
    timings = harness.measure({name: side.fused for name, side in able.items()}, rounds=rounds, operations=operations)
    rows = []
    for name, side in sides.items():
        found, count = NOT_OFFERED, min(len(data.named), 100)
        if side.fuses and name != RAW:
            hits = sum(data.named[at] in side.ids(side.fused(at)) for at in range(count))
            found = f"{hits} of {count}"
        p50 = times(timings, name)[0]
        rows.append([name, p50, found, side.fuses or 'hybrid="rerank" is your function over the nearest'])
    return rows


def true_order(data: Data, category: str | None) -> list[list[str]]:
    """For every question the ids by exact cosine distance, the nearest first."""
    kept = [each for each in data.documents if category is None or each.fields["category"] == category]
    matrix = np.asarray([each.vector for each in kept], np.float32)
    near = data.vectors @ (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).T
    return [[kept[each].id for each in row] for row in np.argsort(-near, axis=1)]


async def found(sides: Mapping[str, Library], data: Data, count: int) -> list[list[str]]:
    """What share of the truth comes, and whether it comes in order."""
    truth, filtered = true_order(data, None)[:count], true_order(data, CATEGORY)[:count]
    rows = []
    for name, side in sides.items():
        plain = [side.ids(await side.aquery(at, None)) for at in range(count)]
        tagged = [side.ids(await side.aquery(at, CATEGORY)) for at in range(count)]
        default = [side.ids(await side.by_default(at)) for at in range(count)]
        first = sum(ids[:1] == true[:1] for ids, true in zip(plain, truth, strict=True))
        wrong = [
            (at, true.index(ids[0]) + 1)
            for at, (ids, true) in enumerate(zip(plain, truth, strict=True))
            if ids and ids[0] != true[0]
        ]
        instead = f"to question {wrong[0][0]} the nearest but {wrong[0][1] - 1} came first" if wrong else "-"
        shares = [f"{recall(*pair):.3f}" for pair in ((plain, truth), (tagged, filtered), (default, truth))]
        rows.append([name, f"{first} of {count}", *shares, instead])
    return rows


def recall(answers: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> float:
    """The share of the true K that came; fewer where the filter leaves fewer."""
    pairs = zip(answers, truth, strict=True)
    return float(np.mean([len({*ids} & {*true[:K]}) / len(true[:K]) for ids, true in pairs]))


async def awkward(client: Client, sides: Mapping[str, Library]) -> list[list[str]]:
    """Each value is the tag of one document; which documents does a filter for it find?"""
    rows = []
    for name, side in sides.items():
        for exact, declared in side.declared.items():
            harness.clear(client, key(name, TAGS))
            await side.create_tags(exact)
            outcomes = await tag_outcomes(side)
            kinds = [kind for kind, _ in outcomes]
            worst = next((kind for kind in ("others", "error", "nothing") if kind in kinds), "exactly")
            example = next(said for kind, said in outcomes if kind == worst)
            counts = [str(kinds.count(kind)) for kind in ("exactly", "nothing", "others", "error")]
            rows.append([name, declared, f"{counts[0]} of {len(AWKWARD)}", *counts[1:], example])
    return rows


async def tag_outcomes(side: Library) -> list[tuple[str, str]]:
    """For each value what a filter for it found, and that in words."""
    failed: dict[int, str] = {}
    for at, value in enumerate(AWKWARD):
        try:
            await side.put_tag(str(at), value)
        except Exception as error:  # whatever a library raises is what it returned
            failed[at] = one_line(error)
    outcomes = []
    for at, value in enumerate(AWKWARD):
        shown = f"`{json.dumps(value[:20])}`"
        try:
            ids = set() if at in failed else set(await side.find_tag(value))
        except Exception as error:
            failed[at] = one_line(error)
        if at in failed:
            outcomes.append(("error", f"{shown}: {failed[at]}"))
        elif ids == {str(at)}:
            outcomes.append(("exactly", "-"))
        elif ids:
            outcomes.append(
                ("others", f"{shown} found {len(ids)} documents" if len(ids) > 1 else f"{shown}: another's")
            )
        else:
            outcomes.append(("nothing", f"{shown} found none"))
    return outcomes


def one_line(error: Exception) -> str:
    """An error's class and the beginning of what it says, without what a table cannot hold."""
    said = " ".join(ascii(str(error))[1:-1].replace("`", "'").split())
    return f"{type(error).__name__}, {said[:50]}"


# --- the run --------------------------------------------------------------------------------------


def with_missing(title: str, rows: list[list[str]]) -> list[list[str]]:
    """The rows in the order of SIDES, with one for each library that is not installed."""
    width = len(TABLES[title])
    there = {row[0] for row in rows}
    rows += [[name, NOT_INSTALLED, *[""] * (width - 2)] for name in SIDES if name not in there]
    return sorted(rows, key=lambda row: SIDES.index(row[0]))


async def run(url: str, client: Client, given: argparse.Namespace) -> Run:
    data = prepared(given.documents, max(given.rounds * given.operations, CONCURRENT, given.checks))
    before, asked = os.getloadavg()[0], len(data.vectors)
    tables: dict[str, list[list[str]]] = {}

    def add(title: str, rows: list[list[str]]) -> None:
        tables[title] = with_missing(title, rows)
        harness.print_table(title, TABLES[title], tables[title])

    async with libraries(url, client, data) as sides:
        versions = {RAW: "valkey", OURS: "valkey-retriever"}
        add("Versions", [[name, str(harness.version(versions.get(name, name))), s.over] for name, s in sides.items()])
        gc.collect()
        gc.freeze()  # what was prepared is not looked at again by every collection
        plain = await load(sides, PLAIN, given.documents)
        words = await load(sides, WORDS, given.documents)
        await asyncio.to_thread(settled, client, sides)
        with Retriever(client, ThisLibrary.schema(PLAIN)) as docs:
            engine = docs.describe_index().engine
        add("Loading", loads(sides, plain, words))
        add("Queries, blocking", await queries(sides, given.rounds, given.operations, blocking=True))
        add("Queries, async", await queries(sides, given.rounds, given.operations, blocking=False))
        add("16 queries at once, async", await at_once(sides, asked, given.rounds, max(1, given.operations // 5)))
        add("Words and vectors together", together(sides, data, given.rounds, given.operations))
        add("What is found", await found(sides, data, given.checks))
        add("Awkward tags", await awkward(client, sides))
    sizes = (
        f"{given.documents:,} documents of {harness.WORDS} words and {harness.DIMS} dims, HNSW, k={K}; "
        f"{given.rounds} rounds of {given.operations} questions; {given.checks} questions for what is found"
    )
    load_average = (before, os.getloadavg()[0])
    date = datetime.datetime.now().astimezone().strftime("%Y-%m-%d")
    return Run(date, harness.machine(), load_average, harness.command_line(), engine, sizes, tables)


def prepared(count: int, asked: int) -> Data:
    documents, vectors = harness.documents(count), harness.clustered(asked, seed=1)
    named = [documents[(at * 37) % count] for at in range(asked)]
    return Data(documents, vectors, [" ".join(each.text.split()[:4]) for each in named], [each.id for each in named])


def settled(client: Client, sides: Mapping[str, Library]) -> None:
    """Wait until no index is still being filled."""
    for name in sides:
        for index in (PLAIN, WORDS):
            while dict(pairs(client.execute_command("FT.INFO", f"{key(name, index)}:idx")))[b"indexing"] not in (
                0,
                b"0",
            ):
                time.sleep(0.05)


def pairs(reply: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(reply[::2], reply[1::2], strict=True))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=40)
    options.add_argument("--operations", type=int, default=25, help="queries of each library in a round")
    options.add_argument("--checks", type=int, default=200, help="questions whose answers are compared with the truth")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the run there")
    options.add_argument("--page", action="store_true", help="write the run into docs/benchmarks.md")
    given = options.parse_args()
    with harness.server_url() as url, Valkey.from_url(url) as client:
        names = [key(name, index) for name in SIDES for index in (PLAIN, WORDS, TAGS)]
        try:
            for name in names:
                harness.clear(client, name)
            done = asyncio.run(run(url, client, given))
        finally:
            for name in names:
                harness.clear(client, name)
    if given.json:
        given.json.write_text(json.dumps(asdict(done), indent=1) + "\n", "utf-8")
    if given.page:
        harness.write_page(PAGE, done.markdown())
    print(f"\n{done.engine}; {done.machine}; load {done.load[0]:.1f} to {done.load[1]:.1f}")


if __name__ == "__main__":
    main()
