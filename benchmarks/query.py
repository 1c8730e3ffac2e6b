"""What a query costs over the raw client: ``Retriever.query(vector=..., k=10)`` beside ``FT.SEARCH``.

Every side asks one and the same HNSW index (EF_RUNTIME 100) of 10,000 documents. The raw client gets
finished arguments and leaves the reply as it came; ours starts from a row of a float32 matrix and ends
with Hits. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
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
            for side in awaited.values():
                for number in range(WARM_UP):
                    await side(number)
            timings = await harness.measure_async(awaited, rounds=rounds, operations=operations)
            print_rows(f"Async, {title}", timings, most)
        print(f"\nours on a recorded reply, nothing waited for: {recorded_us(client, vectors[0]):.0f} us")


def warm_up(sides: Mapping[str, Side]) -> None:
    for side in sides.values():
        for number in range(WARM_UP):
            side(number)


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


def print_rows(title: str, timings: Mapping[str, Timings], most: float) -> None:
    raw = timings["raw"]
    rows = []
    for name in ("raw", OURS, BORROWED, BETTERDB, REDISVL):
        if name not in timings:
            if harness.version(name):
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
                limits = (harness.verdict(ratio.median, most=most), harness.verdict(over.median, most=40, unit=" us"))
                row[6] = ", ".join(limits)
        rows.append(row)
    head = ["side", "p50, us", "times raw", "over raw, us", "client CPU, us", "over raw", "target"]
    harness.print_table(title, head, rows)


if __name__ == "__main__":
    main()
