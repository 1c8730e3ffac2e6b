"""What a query costs over the raw client: ``Retriever.query(vector=..., k=10)`` beside ``FT.SEARCH``.

Every side asks one and the same HNSW index (EF_RUNTIME 100) of 10,000 documents. The raw client gets
finished arguments and leaves the reply as it came; ours starts from a row of a float32 matrix and ends
with Hits. Then the same over redis-py, many queries at once, and many in one call. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import harness
import numpy as np
from harness import AsyncSide, Client, Side, Timings
from valkey import Valkey
from valkey.asyncio import Valkey as AsyncValkey

from retriever import AsyncRetriever, Retriever

K = 10
EF_RUNTIME = 100
CATEGORY = harness.CATEGORIES[0]  # a tenth of the documents
NAME = f"{harness.NAME}-query"
# betterdb-retrieval takes EF_RUNTIME from the index alone, so the index has it for all.
SCHEMA = harness.schema(NAME, ef_runtime=EF_RUNTIME)
WARM_UP = 50  # queries of each side before the first round

OURS, BETTERDB, REDISVL = "ours", "betterdb-retrieval", "redisvl"
BORROWED = "ours, on the raw side's client"  # OURS is on connect()'s own
CONCURRENT = 16  # queries of an event loop under way at once
TOGETHER = 10  # queries of one query_many
FARTHER_S = 0.001


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=80)
    options.add_argument("--operations", type=int, default=25, help="queries of each side in a round")
    given = options.parse_args()
    with harness.server_url() as url, Valkey.from_url(url) as client:
        harness.clear(client, NAME)
        with Retriever.connect(url, SCHEMA) as retriever:
            retriever.create_index()
            retriever.upsert(harness.documents(given.documents))
            print_head(retriever.describe_index().engine, given.documents)
            try:
                asyncio.run(compare(url, client, retriever, given.rounds, given.operations))
            finally:
                harness.clear(client, NAME)


def print_head(engine: str, count: int) -> None:
    notes = (
        f"{count:,} documents, {harness.DIMS} dims, HNSW, EF_RUNTIME {EF_RUNTIME}, k={K}; distance, text and two",
        "fields come back (betterdb-retrieval has no choice of fields: all come, the vector too)",
    )
    harness.print_head("query", engine, notes)


async def compare(url: str, client: Client, retriever: Retriever, rounds: int, operations: int) -> None:
    vectors = harness.clustered(max(WARM_UP, rounds * operations), seed=1)
    gc.collect()
    gc.freeze()  # what was prepared is not looked at again by every collection
    async with (
        AsyncValkey.from_url(url) as async_client,
        AsyncRetriever.connect(url, SCHEMA) as async_retriever,
        async_redisvl(url) as index,
    ):
        for title, category, most in (("plain", None, 1.15), (f"filter: TAG {CATEGORY!r}", CATEGORY, 1.20)):
            commands = raw_commands(client, vectors, None if category is None else {"category": category})
            sides = blocking_sides(url, client, retriever, commands, vectors, category)
            check(category, {name: side(0) for name, side in sides.items()})
            warm_up(sides)
            print_rows(f"Blocking, {title}", harness.measure(sides, rounds=rounds, operations=operations), most)

            awaited = async_sides(index, async_client, async_retriever, commands, vectors, category)
            check(category, {name: await side(0) for name, side in awaited.items()})
            await warm_up_async(awaited)
            timings = await harness.measure_async(awaited, rounds=rounds, operations=operations)
            print_rows(f"Async, {title}", timings, most)
        await compare_redis(url, raw_commands(client, vectors, None), vectors, rounds, operations)
        await compare_concurrent(async_client, async_retriever, raw_commands(client, vectors, None), vectors, rounds)
        compare_together(url, vectors, rounds)
        print(f"\nours on a recorded reply, nothing waited for: {recorded_us(client, vectors[0]):.0f} us")


def warm_up(sides: Mapping[str, Side]) -> None:
    for side in sides.values():
        for number in range(WARM_UP):
            side(number)


async def warm_up_async(sides: Mapping[str, AsyncSide]) -> None:
    for side in sides.values():
        for number in range(WARM_UP):
            await side(number)


async def compare_redis(
    url: str, commands: Sequence[tuple[Any, ...]], vectors: harness.Matrix, rounds: int, operations: int
) -> None:
    """Raw redis-py, and ours on its clients."""
    if not harness.version("redis"):
        print("\nredis-py is not installed (pip install redis adds it)")
        return
    redis, rows = importlib.import_module("redis"), list(vectors)
    address = url.replace("valkeys://", "rediss://").replace("valkey://", "redis://")
    with redis.Redis.from_url(address) as client:
        send, query = client.execute_command, Retriever(client, SCHEMA).query
        sides: dict[str, Side] = {
            "raw": lambda at: send(*commands[at]),
            BORROWED: lambda at: query(vector=rows[at], k=K),
        }
        warm_up(sides)
        timings = harness.measure(sides, rounds=rounds, operations=operations)
        print_rows(f"Blocking, plain, {redis_py()}", timings, 1.20, most_us=None)
    async with importlib.import_module("redis.asyncio").Redis.from_url(address) as client:
        asend, aquery = client.execute_command, AsyncRetriever(client, SCHEMA).query
        awaited: dict[str, AsyncSide] = {
            "raw": lambda at: asend(*commands[at]),
            BORROWED: lambda at: aquery(vector=rows[at], k=K),
        }
        await warm_up_async(awaited)
        timings = await harness.measure_async(awaited, rounds=rounds, operations=operations)
        print_rows(f"Async, plain, {redis_py()}", timings, 1.20, most_us=None)


def redis_py() -> str:
    parser = f"hiredis {harness.version('hiredis')}" if harness.version("hiredis") else "its pure-Python parser"
    return f"raw: redis-py {harness.version('redis')} with {parser}"


async def compare_concurrent(
    client: Client,
    retriever: AsyncRetriever,
    commands: Sequence[tuple[Any, ...]],
    vectors: harness.Matrix,
    rounds: int,
) -> None:
    """How many queries an event loop gets answered that has many under way."""
    rows, count = list(vectors), len(vectors)
    send, query, borrowing = client.execute_command, retriever.query, AsyncRetriever(client, SCHEMA).query

    def some(at: int) -> list[int]:
        return [(at * CONCURRENT + each) % count for each in range(CONCURRENT)]

    sides: dict[str, AsyncSide] = {
        "raw": lambda at: asyncio.gather(*(send(*commands[each]) for each in some(at))),
        OURS: lambda at: asyncio.gather(*(query(vector=rows[each], k=K) for each in some(at))),
        BORROWED: lambda at: asyncio.gather(*(borrowing(vector=rows[each], k=K) for each in some(at))),
    }
    await warm_up_async(sides)
    timings = await harness.measure_async(sides, rounds=rounds, operations=5)
    print_throughput(f"{CONCURRENT} concurrent async queries", timings, "raw", CONCURRENT, 0.85)


def compare_together(url: str, vectors: harness.Matrix, rounds: int) -> None:
    """What one round trip saves over many, to a server that is not on this machine."""
    rows, count = list(vectors), len(vectors)
    with harness.delayed(url, FARTHER_S) as farther, Retriever.connect(farther, SCHEMA) as retriever:

        def some(at: int) -> list[Any]:
            return [rows[(at * TOGETHER + each) % count] for each in range(TOGETHER)]

        sides: dict[str, Side] = {
            "one by one": lambda at: [retriever.query(vector=row, k=K) for row in some(at)],
            "query_many": lambda at: retriever.query_many([{"vector": row, "k": K} for row in some(at)]),
        }
        alone, together = (side(0) for side in sides.values())
        if [list(hits) for hits in alone] != [list(hits) for hits in together]:
            raise SystemExit("query_many found something else than its queries one by one")
        timings = harness.measure(sides, rounds=rounds, operations=5)
    title = f"query_many of {TOGETHER} through a proxy that adds {1e3 * FARTHER_S:g} ms"
    print_throughput(title, timings, "one by one", TOGETHER, 3)


class Recorder:
    """A client that keeps what it was asked last, and its answer; or, told so, only gives that answer."""

    def __init__(self, client: Client) -> None:
        self.client, self.replays = client, False
        self.asked: tuple[Any, ...] = ()
        self.answer: Any = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """The client's answer."""
        if not self.replays:
            self.asked, self.answer = args, self.client.execute_command(*args, **options)
        return self.answer

    def pipeline(self, *, transaction: bool) -> Any:
        """A query needs none."""
        raise NotImplementedError


def recorded_us(client: Client, vector: Any) -> float:
    """The client's time for one query, in caches that no other process and no wait have emptied."""
    recorder = Recorder(client)
    retriever = Retriever(recorder, SCHEMA)
    retriever.query(vector=vector, k=K)
    recorder.replays = True
    timings = harness.measure({OURS: lambda _: retriever.query(vector=vector, k=K)}, rounds=20, operations=200)
    return 1e6 * min(timings[OURS].wall)


def raw_commands(client: Client, vectors: harness.Matrix, filter: dict[str, str] | None) -> list[tuple[Any, ...]]:
    """The very words that ours sends, as finished arguments."""
    recorder = Recorder(client)
    Retriever(recorder, SCHEMA).query(vector=vectors[0], k=K, filter=filter)
    at = recorder.asked.index("vec") + 1
    return [(*recorder.asked[:at], row.tobytes(), *recorder.asked[at + 1 :]) for row in vectors]


def blocking_sides(
    url: str,
    client: Client,
    retriever: Retriever,
    commands: Sequence[tuple[Any, ...]],
    vectors: harness.Matrix,
    category: str | None,
) -> dict[str, Side]:
    rows, filter = list(vectors), None if category is None else {"category": category}
    send, query, borrowing = client.execute_command, retriever.query, Retriever(client, SCHEMA).query
    sides: dict[str, Side] = {
        "raw": lambda at: send(*commands[at]),
        OURS: lambda at: query(vector=rows[at], k=K, filter=filter),
        BORROWED: lambda at: borrowing(vector=rows[at], k=K, filter=filter),
    }
    if harness.version(REDISVL):
        index = harness.redisvl_index(url, NAME, "hnsw")
        ask = harness.redisvl_query
        sides[REDISVL] = lambda at: index.query(ask(rows[at].tobytes(), K, category, EF_RUNTIME))
    return sides


@contextlib.asynccontextmanager
async def async_redisvl(url: str) -> AsyncIterator[Any]:
    """redisvl's async index, if it is installed, closed afterwards."""
    if harness.version(REDISVL):
        async with harness.redisvl_index(url, NAME, "hnsw", blocking=False) as index:
            yield index
    else:
        yield None


def async_sides(
    index: Any,
    client: Client,
    retriever: AsyncRetriever,
    commands: Sequence[tuple[Any, ...]],
    vectors: harness.Matrix,
    category: str | None,
) -> dict[str, AsyncSide]:
    rows, filter = list(vectors), None if category is None else {"category": category}
    send, query, borrowing = client.execute_command, retriever.query, AsyncRetriever(client, SCHEMA).query
    sides: dict[str, AsyncSide] = {
        "raw": lambda at: send(*commands[at]),
        OURS: lambda at: query(vector=rows[at], k=K, filter=filter),
        BORROWED: lambda at: borrowing(vector=rows[at], k=K, filter=filter),
    }
    if index is not None:
        ask = harness.redisvl_query
        sides[REDISVL] = lambda at: index.query(ask(rows[at].tobytes(), K, category, EF_RUNTIME))
    if harness.version(BETTERDB):
        peer = harness.betterdb_retriever(client, NAME, "hnsw", never_embeds)
        lists = vectors.tolist()  # it takes lists of floats; making them is not counted
        sides[BETTERDB] = lambda at: peer.query(k=K, vector=lists[at], filter=filter)
    return sides


async def never_embeds(text: str) -> list[float]:
    raise AssertionError(f"no text is asked for here, {text!r} least of all")


def check(category: str | None, answers: Mapping[str, Any]) -> None:
    """All sides found the same documents."""
    prefix = SCHEMA.prefix
    found = {
        "raw": {key.decode().removeprefix(prefix) for key in answers["raw"][1::2]},
        OURS: {hit.id for hit in answers[OURS]},
        BORROWED: {hit.id for hit in answers[BORROWED]},
        REDISVL: {row["id"].removeprefix(prefix) for row in answers.get(REDISVL, ())},
        BETTERDB: {hit.id for hit in answers.get(BETTERDB, ())},
    }
    for name, ids in found.items():
        if name in answers and (ids != found["raw"] or len(ids) != K):
            raise SystemExit(f"{name} found {sorted(ids)}, the raw client {sorted(found['raw'])} ({category=})")


def print_throughput(title: str, timings: Mapping[str, Timings], base: str, queries: int, least: float) -> None:
    """Queries a second of each side, which sent so many in each operation."""
    rows = []
    for name, side in timings.items():
        rate = harness.spread([queries / each for each in side.wall])
        row = [name, f"{rate:.0f}", "", ""]
        if name != base:
            ratio = harness.ratios(timings[base].wall, side.wall)  # by time: upside down, it is by throughput
            row[2:] = [f"{ratio:.2f}", harness.verdict(ratio.median, least=least)]
        rows.append(row)
    harness.print_table(title, ["side", "queries/s", f"times {base}", "target"], rows)


def print_rows(title: str, timings: Mapping[str, Timings], most: float, most_us: float | None = 40) -> None:
    raw = timings["raw"]
    rows = []
    for name in ("raw", OURS, BORROWED, BETTERDB, REDISVL):
        if name not in timings:
            if OURS in timings and harness.version(name):
                rows.append([name, "not offered", "", "", "", "", ""])
            continue
        side = timings[name]
        wall, cpu = harness.spread([1e6 * each for each in side.wall]), 1e6 * float(np.median(side.cpu))
        row = [name, f"{wall:.0f}", "", "", f"{cpu:.0f}", "", ""]
        if name != "raw":
            ratio = harness.ratios(side.wall, raw.wall)
            over = harness.spread([1e6 * (ours - theirs) for ours, theirs in zip(side.wall, raw.wall, strict=True)])
            over_cpu = harness.spread([1e6 * (ours - theirs) for ours, theirs in zip(side.cpu, raw.cpu, strict=True)])
            row[2:4] = [f"{ratio:.2f}", f"{over:.0f}"]
            row[5] = f"{over_cpu.median:.0f}"
            if name in (OURS, BORROWED):
                limits = [harness.verdict(ratio.median, most=most)]
                if most_us is not None:
                    limits.append(harness.verdict(over.median, most=most_us, unit=" us"))
                row[6] = ", ".join(limits)
        rows.append(row)
    head = ["side", "p50, us", "times raw", "over raw, us", "client CPU, us", "over raw", "target"]
    harness.print_table(title, head, rows)


if __name__ == "__main__":
    main()
