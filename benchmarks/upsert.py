"""What an upsert costs over the raw client: documents a second beside a pipeline of ready HSETs.

The raw client sends finished arguments, the same hash fields as ours, 500 commands a pipeline. Ours
starts from Documents that hold rows of a float32 matrix, checks and encodes them. Each load goes into
an empty index of its own. Before that, the client's memory is watched while a generator is streamed.
See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import harness
import numpy as np
from harness import Client, Timings
from valkey import Valkey
from valkey.asyncio import Valkey as AsyncValkey

from retriever import Analysis, Document, Retriever, Schema, build_ft_create_args

BATCH = 500
NAME = f"{harness.NAME}-upsert"
FLAT_MB = 10  # of growth still called flat, while hundreds of megabytes pass through


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=10_000)
    options.add_argument("--passes", type=int, default=6, help="loads of all documents into FLAT")
    options.add_argument("--hnsw-passes", type=int, default=1, help="a graph takes seconds to build")
    options.add_argument("--stream", type=int, default=200_000, help="documents streamed to watch the memory")
    given = options.parse_args()
    with harness.server_url() as url, Valkey.from_url(url) as client:
        # First, in a process that has not yet allocated what a leak could hide in.
        memory = stream(client, given.stream)
        harness.print_head("upsert", memory.engine, notes(given.documents))
        documents = harness.documents(given.documents)
        flat, hnsw = flat_sides(url, client, documents), hnsw_sides(url, client, documents)
        gc.collect()
        gc.freeze()  # what was prepared is not looked at again by every collection
        count = given.documents
        print_loads(f"FLAT, {given.passes} passes", flat, run(client, flat, count, count // 5, given.passes))
        # Smaller slices: one pass has fewer of them otherwise than a median wants.
        print_loads(f"HNSW, {given.hnsw_passes} passes", hnsw, run(client, hnsw, count, count // 10, given.hnsw_passes))
        print(f"\nMemory\n{memory.said}")


def notes(count: int) -> tuple[str, ...]:
    return (
        f"{count:,} documents of {harness.WORDS} words, TAG, NUMERIC, {harness.DIMS} dims; {BATCH} a batch unless said",
        "(betterdb-retrieval sends one HSET a round trip and asks an embedder for lists of floats, here ready ones;",
        "redisvl gets ready dictionaries with the vector as bytes, and by default does not check them)",
    )


# --- sides ----------------------------------------------------------------------------------------


class Side(Protocol):
    """One way to load, with the documents in the form that it takes.

    least: the share of the raw client's throughput that it shall reach.
    """

    name: str
    key: str
    least: float | None

    def create(self) -> None:
        """Make an empty index."""

    def load(self, start: int, stop: int) -> None:
        """Write documents ``start`` to ``stop``."""


class Ours:
    """``Retriever.upsert``."""

    def __init__(
        self,
        name: str,
        url: str,
        declared: Schema,
        documents: Sequence[Document],
        *,
        least: float | None = None,
        batch: int = BATCH,
    ) -> None:
        self.name, self.key, self.least, self.batch = name, declared.prefix[:-1], least, batch
        self.url, self.declared, self.documents = url, declared, documents

    def create(self) -> None:
        """Make an empty index."""
        self.retriever = Retriever.connect(self.url, self.declared)
        self.retriever.create_index()

    def load(self, start: int, stop: int) -> None:
        """Write documents ``start`` to ``stop``."""
        report = self.retriever.upsert(islice(self.documents, start, stop), batch_size=self.batch)
        assert report.written == stop - start, report


class Raw:
    """valkey-py's pipeline of HSETs: the very hashes that ours wrote, read back, as finished arguments."""

    name: str = "raw"
    least: float | None = None

    def __init__(self, url: str, client: Client, declared: Schema, documents: Sequence[Document]) -> None:
        self.client, self.declared, self.key = client, declared, declared.prefix[:-1]
        ours = Ours("", url, declared, documents)
        harness.clear(client, self.key)
        ours.create()
        ours.load(0, len(documents))
        self.commands = [self.command(each.id) for each in documents]
        harness.clear(client, self.key)

    def command(self, id: str) -> tuple[str | bytes, ...]:
        """The HSET of a document that is there."""
        key = f"{self.key}:{id}"
        return ("HSET", key, *(word for pair in self.client.hgetall(key).items() for word in pair))

    def create(self) -> None:
        """Make an empty index."""
        self.client.execute_command(*build_ft_create_args(self.declared))

    def load(self, start: int, stop: int) -> None:
        """Write documents ``start`` to ``stop``."""
        for at in range(start, stop, BATCH):
            with self.client.pipeline(transaction=False) as pipeline:
                for command in self.commands[at : min(at + BATCH, stop)]:
                    pipeline.execute_command(*command)
                pipeline.execute()


class RedisVL:
    """redisvl's ``SearchIndex.load``."""

    name: str = "redisvl"
    least: float | None = None

    def __init__(self, url: str, key: str, algorithm: str, documents: Sequence[Document]) -> None:
        self.key, self.index = key, harness.redisvl_index(url, key, algorithm)
        self.rows = [
            {"id": each.id, "__text": each.text, **each.fields, "embedding": np.asarray(each.vector).tobytes()}
            for each in documents
        ]

    def create(self) -> None:
        """Make an empty index."""
        self.index.create()

    def load(self, start: int, stop: int) -> None:
        """Write documents ``start`` to ``stop``."""
        self.index.load(self.rows[start:stop], id_field="id", batch_size=BATCH)


class BetterDB:
    """betterdb-retrieval's ``Retriever.upsert``, which is async."""

    name: str = "betterdb-retrieval"
    least: float | None = None

    def __init__(self, url: str, key: str, algorithm: str, documents: Sequence[Document]) -> None:
        self.url, self.key, self.algorithm = url, key, algorithm
        self.vectors: dict[str, list[float]] = {each.text: np.asarray(each.vector).tolist() for each in documents}
        self.entries = [harness.betterdb_entry(each.id, each.text, each.fields) for each in documents]

    async def embed(self, text: str) -> list[float]:
        """The ready vector of a text."""
        return self.vectors[text]

    def create(self) -> None:
        """Make an empty index."""
        asyncio.run(self._run("create_index"))

    def load(self, start: int, stop: int) -> None:
        """Write documents ``start`` to ``stop``."""
        asyncio.run(self._run("upsert", self.entries[start:stop]))

    async def _run(self, method: str, *args: Any) -> None:
        async with AsyncValkey.from_url(self.url) as client:
            retriever = harness.betterdb_retriever(client, self.key, self.algorithm, self.embed)
            await getattr(retriever, method)(*args)


def flat_sides(url: str, client: Client, documents: Sequence[Document]) -> list[Side]:
    def declared(name: str) -> Schema:
        return harness.schema(f"{NAME}-flat-{name}", algorithm="FLAT")

    without_year = [replace(each, fields={"category": each.fields["category"]}) for each in documents]
    sides: list[Side] = [
        Raw(url, client, declared("raw"), documents),
        Ours("ours", url, declared("ours"), documents, least=0.90),
        Ours("ours, a field left out", url, declared("sparse"), without_year, least=0.60),
        # The library's BATCH_SIZE rests on these.
        Ours("ours, 100 a batch", url, declared("100"), documents, batch=100),
        Ours("ours, 2,000 a batch", url, declared("2000"), documents, batch=2000),
    ]
    return sides + peers(url, f"{NAME}-flat", "flat", documents)


def hnsw_sides(url: str, client: Client, documents: Sequence[Document]) -> list[Side]:
    def declared(name: str) -> Schema:
        return harness.schema(f"{NAME}-hnsw-{name}")

    plain = declared("analysed")
    analysed = Schema(plain.name, plain.fields, plain.vector, Analysis(), plain.prefix)
    sides: list[Side] = [
        Raw(url, client, declared("raw"), documents),
        Ours("ours", url, declared("ours"), documents, least=0.95),
        Ours("ours with analysis", url, analysed, documents, least=0.55),
    ]
    return sides + peers(url, f"{NAME}-hnsw", "hnsw", documents)


def peers(url: str, name: str, algorithm: str, documents: Sequence[Document]) -> list[Side]:
    found: list[Side] = []
    if harness.version("betterdb-retrieval"):
        found.append(BetterDB(url, f"{name}-betterdb", algorithm, documents))
    if harness.version("redisvl"):
        found.append(RedisVL(url, f"{name}-redisvl", algorithm, documents))
    return found


def run(client: Client, sides: Sequence[Side], count: int, size: int, passes: int) -> dict[str, Timings]:
    """Every side loads all documents into an index of its own, in slices that take turns.

    So all indexes are alike in size when two sides are compared, and the machine is as busy.
    """
    timings: dict[str, Timings] = {side.name: Timings() for side in sides}
    by_name = {side.name: side for side in sides}
    try:
        for _ in range(passes):
            for side in sides:
                harness.clear(client, side.key)
                side.create()
            for at, name in harness.schedule(by_name, count // size):
                started, started_cpu = time.perf_counter(), time.process_time()
                by_name[name].load(at * size, (at + 1) * size)
                timings[name].wall.append((time.perf_counter() - started) / size)
                timings[name].cpu.append((time.process_time() - started_cpu) / size)
    finally:
        for side in sides:
            harness.clear(client, side.key)
    return timings


# --- memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """What streaming did to this process, in a sentence; and which engine was written to."""

    said: str
    engine: str


def stream(client: Client, count: int) -> Memory:
    """Watch this process's resident memory while documents stream from a generator."""
    declared = harness.schema(f"{NAME}-stream", algorithm="FLAT")
    samples: list[int] = []
    harness.clear(client, declared.prefix[:-1])
    try:
        with Retriever(client, declared) as retriever:
            retriever.create_index()
            started = time.perf_counter()
            report = retriever.upsert(generated(count, max(1, count // 100), samples))
            taken = time.perf_counter() - started
            engine = retriever.describe_index().engine
    finally:
        harness.clear(client, declared.prefix[:-1])
    assert report.written == count, report
    tenth = len(samples) // 10  # by then modules, pools and buffers are there
    begin, settled = samples[0] / 2**20, samples[tenth] / 2**20
    growth = max(samples[tenth:]) / 2**20 - settled
    through = count * (4 * harness.DIMS + 6 * harness.WORDS) / 2**20
    said = (
        f"{count:,} documents (about {through:.0f} MB) from a generator in {taken:.1f} s, FLAT: the client's resident\n"
        f"memory was {begin:.0f} MB at the start, {settled:.0f} MB after a tenth, at most {growth:.1f} MB more later; "
        f"{harness.verdict(growth, most=FLAT_MB, unit=' MB')}"
    )
    return Memory(said, engine)


def generated(count: int, every: int, samples: list[int]) -> Iterator[Document]:
    texts, matrix = harness.texts(1000), harness.clustered(1000)
    for at in range(count):
        if at % every == 0:
            samples.append(resident_bytes())
        yield Document(f"s{at}", texts[at % 1000], {"category": "database", "year": at % 100}, matrix[at % 1000])
    samples.append(resident_bytes())


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- what is printed ------------------------------------------------------------------------------


def print_loads(title: str, sides: Sequence[Side], timings: Mapping[str, Timings]) -> None:
    raw = timings["raw"]
    rows = []
    for side in sides:
        taken = timings[side.name]
        speed = harness.spread([1 / each for each in taken.wall])
        row = [side.name, f"{speed:,.0f}", "", f"{1e6 * float(np.median(taken.cpu)):.1f}", ""]
        if side.name != "raw":
            ratio = harness.ratios(raw.wall, taken.wall)  # of throughput: raw's time over its own
            row[2] = f"{ratio:.2f}"
            row[4] = "" if side.least is None else harness.verdict(ratio.median, least=side.least)
        rows.append(row)
    head = ["side", "documents/s", "times raw", "client CPU, us a document", "target"]
    harness.print_table(title, head, rows)


if __name__ == "__main__":
    main()
