"""Readers and writers at once on one index for as long as asked, and what must hold then.

Threads share one Retriever, tasks of an event loop one AsyncRetriever; both query, count, get, scan, upsert, update
and delete. Every answer is checked as it comes, every writer has ids of its own and remembers what it wrote. At the
end: the documents are those, the engine's filters and ours find the same ones, this process has not grown, and no
connection, thread or key is left. Ends with exit code 1 if something does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from typing import Any

import harness
import numpy as np
from harness import Client
from valkey import Valkey

from retriever import (
    AsyncRetriever,
    Document,
    Filter,
    Numeric,
    Retriever,
    Schema,
    Stored,
    Tag,
    Text,
    UpsertReport,
    Vector,
)

NAME = f"{harness.NAME}-soak"
DIMS = 16
IDS = 500  # of each writer
GROWTH_MB = 10  # of resident memory from the first third to the last, still called none; arbitrary
FAILURES = 20  # that are told; the rest is counted

CATEGORY, LABELS, YEAR = Tag("category"), Tag("labels", many=True), Numeric("year")
FIELDS = (CATEGORY, LABELS, YEAR, Text("title"), Stored("extra"))
# FLAT finds every document that passes, so that sets of ids can be compared.
SCHEMA = Schema(f"{NAME}:idx", FIELDS, Vector(dims=DIMS, algorithm="FLAT"), prefix=f"{NAME}:")

WORDS = ("R&D", "C++", "", "a b", "a", "A", "wörter", "x,y", "{x}", "*", "-5", "日本")
FILTERS: tuple[Filter, ...] = (
    *(CATEGORY.isin([word]) for word in WORDS),
    CATEGORY != "a",
    CATEGORY.isin(["R&D", "a b", "never"]),
    LABELS.contains("C++"),
    LABELS.isin(["", "x,y"]),
    LABELS.contains("a") & LABELS.contains("A"),
    YEAR == 7,
    YEAR != 7,
    YEAR < 0,
    YEAR >= 2.5,
    YEAR.between(-3, 3.25),
    ~(YEAR < 5),
    (CATEGORY == "a") & (YEAR > 3),
    (CATEGORY == "a") | LABELS.contains("{x}"),
    (CATEGORY != "R&D") & ~LABELS.contains("*"),
    ~((CATEGORY == "A") | (YEAR <= 0)),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600)
    seconds = options.parse_args().seconds
    with harness.server_url() as url, Valkey.from_url(url) as client:
        harness.clear(client, NAME)
        try:
            with Retriever(client, SCHEMA) as retriever:
                retriever.create_index()
                harness.print_head("soak", retriever.describe_index().engine, (f"{seconds:g} s",))
            held = soak(url, client, seconds)
        finally:
            harness.clear(client, NAME)
    sys.exit(0 if held else 1)


# --- what is done -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What was done so far, and what went wrong; shared by threads."""

    calls: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, name: str, seconds: float, wrong: str) -> None:
        with self.lock:
            self.calls[name] = self.calls.get(name, 0) + 1
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self.longest[name] = max(self.longest.get(name, 0.0), seconds)
            if wrong:
                self.failed += 1
                if len(self.failures) < FAILURES:
                    self.failures.append(wrong)


@dataclass(frozen=True, slots=True)
class Call:
    """One call: a method, its arguments, and what its answer must fulfil."""

    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    fits: Callable[[Any], bool]


def document(id: str, rng: random.Random) -> Document:
    """A document of random fields, each of them absent now and then."""
    fields: dict[str, Any] = {
        "category": rng.choice(WORDS),
        "labels": rng.sample(WORDS, rng.randrange(4)),
        "year": rng.choice((rng.randint(-10, 10), rng.randint(-40, 40) / 4)),
        "title": f"title {rng.random()}",
        "extra": {"n": rng.randrange(9)},
    }
    kept = {name: value for name, value in fields.items() if rng.random() < 0.8}
    return Document(id, f"text of {id} {rng.random()}", kept, vector(rng))


def vector(rng: random.Random) -> Any:
    return np.random.default_rng(rng.getrandbits(32)).standard_normal(DIMS, dtype=np.float32)


def writes(owner: str, held: dict[str, Document]) -> Iterator[Call]:
    """Endless writes to ids of one's own; held: what is there when the last of them has been answered."""
    rng = random.Random(owner)
    ids = [f"{owner}-{at}" for at in range(IDS)]
    while True:
        kind = rng.choices(("upsert", "update", "delete"), (3, 4, 2))[0]
        chosen = rng.sample(ids, rng.choice((1, 2, 20)))
        if kind == "upsert":
            documents = [document(id, rng) for id in chosen]
            held.update((each.id, each) for each in documents)
            yield Call("upsert", (documents,), {}, partial(eq, UpsertReport(len(chosen))))
        elif kind == "delete":
            there = sum(held.pop(id, None) is not None for id in chosen)
            yield Call("delete", (chosen,), {}, partial(eq, there))
        else:
            old = held.get(chosen[0])
            changes = {"year": rng.randint(-10, 10), "labels": None, "category": rng.choice(WORDS)}
            if old is not None:
                fields = {name: value for name, value in {**old.fields, **changes}.items() if value is not None}
                held[old.id] = Document(old.id, old.text, fields, old.vector)
            yield Call("update", (chosen[0], changes), {}, partial(eq, old is not None))


def reads(who: str) -> Iterator[Call]:
    """Endless questions, each with what its answer fulfils whatever the writers do."""
    rng = random.Random(who)
    while True:
        kind = rng.choices(("query", "query_many", "get", "exists", "count"), (6, 1, 2, 1, 2))[0]
        filter = rng.choice(FILTERS)
        ids = [f"{rng.choice(('thread', 'task'))}-{rng.randrange(IDS)}" for _ in range(5)]
        if kind == "query":
            options = {"vector": vector(rng), "k": rng.choice((1, 10, 100)), "filter": filter}
            yield Call("query", (), options, partial(pass_in_order, filter))
        elif kind == "query_many":
            queries = [{"vector": vector(rng), "filter": filter}, {"vector": vector(rng), "filter": filter, "k": 3}]
            yield Call("query_many", (queries,), {}, partial(all_pass_in_order, filter))
        elif kind == "get":
            yield Call("get", (ids,), {}, partial(named, ids))
        elif kind == "exists":
            yield Call("exists", (ids,), {}, of_five)
        else:
            yield Call("count", (filter,), {}, possible)


def pass_in_order(filter: Filter, hits: Any) -> bool:
    scores = [hit.score for hit in hits]
    return bool(hits.complete) and scores == sorted(scores) and all(filter.matches(hit) for hit in hits)


def all_pass_in_order(filter: Filter, answers: Any) -> bool:
    return all(pass_in_order(filter, hits) for hits in answers)


def named(ids: list[str], documents: list[Document | None]) -> bool:
    return all(each is None or each.id == id for each, id in zip(documents, ids, strict=True))


def of_five(answers: list[bool]) -> bool:
    return len(answers) == 5


def possible(count: int) -> bool:
    return 0 <= count <= 2 * IDS


def scanned(documents: list[Document], filter: Filter) -> str:
    """What is wrong with a scan's documents."""
    ids = [each.id for each in documents]
    if len(ids) != len(set(ids)):
        return "scan: an id came twice"
    return "" if all(map(filter.matches, documents)) else f"scan: a document does not pass {filter}"


def wrong(call: Call, answer: Any) -> str:
    return "" if call.fits(answer) else f"{call.method} {call.options or call.args!r:.200}: {answer!r:.300}"


# --- by whom ------------------------------------------------------------------------------------------


class Soak:
    """The workers of a run; each goes on until ``stop`` is set."""

    def __init__(self, url: str, docs: Retriever) -> None:
        self.url, self.docs = url, docs
        self.stop = threading.Event()
        self.tally = Tally()
        self.held: dict[str, dict[str, Document]] = {"thread": {}, "task": {}}

    def work(self, calls: Iterator[Call]) -> None:
        """One thread's calls, one after the other."""
        while not self.stop.is_set():
            call = next(calls)
            started = time.perf_counter()
            answer = getattr(self.docs, call.method)(*call.args, **call.options)
            self.tally.note(call.method, time.perf_counter() - started, wrong(call, answer))

    def scan(self) -> None:
        """Scans, one after the other."""
        rng = random.Random("scan")
        while not self.stop.is_set():
            filter = rng.choice(FILTERS)
            started = time.perf_counter()
            found = list(self.docs.scan(filter, batch_size=100))
            self.tally.note("scan", time.perf_counter() - started, scanned(found, filter))

    def loop(self) -> None:
        """An event loop with its own retriever."""
        asyncio.run(self.tasks())

    async def tasks(self) -> None:
        async with AsyncRetriever.connect(self.url, SCHEMA) as docs:
            calls = (reads("task 1"), reads("task 2"), writes("task", self.held["task"]))
            async with asyncio.TaskGroup() as group:
                for each in calls:
                    group.create_task(self.task(docs, each))
                group.create_task(self.scan_async(docs))

    async def task(self, docs: AsyncRetriever, calls: Iterator[Call]) -> None:
        while not self.stop.is_set():
            call = next(calls)
            started = time.perf_counter()
            answer = await getattr(docs, call.method)(*call.args, **call.options)
            self.tally.note(f"{call.method}, awaited", time.perf_counter() - started, wrong(call, answer))

    async def scan_async(self, docs: AsyncRetriever) -> None:
        rng = random.Random("scan, awaited")
        while not self.stop.is_set():
            filter = rng.choice(FILTERS)
            started = time.perf_counter()
            found = [each async for each in docs.scan(filter, batch_size=100)]
            self.tally.note("scan, awaited", time.perf_counter() - started, scanned(found, filter))

    def run(self, seconds: float) -> list[float]:
        """Work so long; resident megabytes, sampled all the while. Raises what a worker raised."""
        samples: list[float] = []
        with ThreadPoolExecutor(5) as pool:
            workers: list[Future[None]] = [
                pool.submit(self.work, reads("thread 1")),
                pool.submit(self.work, reads("thread 2")),
                pool.submit(self.work, writes("thread", self.held["thread"])),
                pool.submit(self.scan),
                pool.submit(self.loop),
            ]
            end = time.monotonic() + seconds
            while time.monotonic() < end and not any(each.done() for each in workers):
                time.sleep(min(0.1, seconds / 30))
                samples.append(resident_bytes() / 2**20)
            self.stop.set()
        for each in workers:
            each.result()
        return samples


# --- what must hold -----------------------------------------------------------------------------------


def soak(url: str, client: Client, seconds: float) -> bool:
    """Run, print, and whether all of it holds."""
    gc.collect()
    threads, sockets = threading.active_count(), open_sockets()
    address = f"{url}{'&' if '?' in url else '?'}client_name={NAME}"
    results: list[list[str]] = []

    def holds(what: str, figure: str, held: bool) -> None:
        results.append([what, figure, "holds" if held else "DOES NOT HOLD"])

    with Retriever.connect(address, SCHEMA) as docs:
        run = Soak(address, docs)
        samples = run.run(seconds)
        tally = run.tally
        total = sum(tally.calls.values())
        holds("every answer fits its question", f"{total:,} calls, {tally.failed} do not", tally.failed == 0)
        expected = {id: each for held in run.held.values() for id, each in held.items()}
        found = {each.id: each for each in docs.scan(return_vectors=True)}
        alike = found == expected and all(
            np.array_equal(np.asarray(each.vector), np.asarray(expected[id].vector)) for id, each in found.items()
        )
        holds("what was written is there, and nothing else", f"{len(found):,} documents", alike)
        holds("the engine counts as many", f"{docs.count():,} documents", docs.count() == len(expected))
        differing = [filter for filter in FILTERS if not agree(docs, filter, found)]
        holds("filters: engine and matches() agree", f"{len(FILTERS)} filters, {len(differing)} differ", not differing)
        failures = [*tally.failures, *(f"filter {each}: another set of documents" for each in differing)]
        deleted = docs.drop_index(delete_documents=True)
        holds("every document is deleted", f"{deleted:,} documents", deleted == len(expected))
    third = len(samples) // 3
    growth = max(samples[-third:]) - max(samples[:third])
    figure = f"{max(samples[:third]):.0f} MB in the first third, {growth:+.1f} MB in the last"
    holds(f"memory grows by at most {GROWTH_MB} MB", figure, growth <= GROWTH_MB)
    gc.collect()
    left = threading.active_count() - threads
    holds("no thread is left", str(left), left == 0)
    left = open_sockets() - sockets
    holds("no socket is left", str(left), left == 0)
    connected = connections(client)
    holds("no connection is left on the server", str(connected), connected == 0)
    keys = list(client.scan_iter(match=f"{NAME}*", count=1000))
    holds("no key is left", str(len(keys)), not keys)
    rows = [
        [
            name,
            f"{count:,}",
            f"{count / seconds:,.0f}",
            f"{1e3 * tally.seconds[name] / count:.2f}",
            f"{1e3 * tally.longest[name]:.1f}",
        ]
        for name, count in sorted(tally.calls.items())
    ]
    harness.print_table("", ["operation", "calls", "a second", "mean, ms", "longest, ms"], rows)
    harness.print_table("", ["what must hold", "figures", ""], results)
    for each in failures:
        print(each, file=sys.stderr)
    return all(verdict == "holds" for *_, verdict in results)


def agree(docs: Retriever, filter: Filter, documents: Mapping[str, Document]) -> bool:
    """Whether the engine finds, and counts, the very documents that pass here."""
    passing = {id for id, each in documents.items() if filter.matches(each)}
    hits = docs.query(vector=np.ones(DIMS), k=10_000, filter=filter, return_fields=[])
    return {hit.id for hit in hits} == passing and docs.count(filter) == len(passing)


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_sockets() -> int:
    count = 0
    for each in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
        except FileNotFoundError:  # the listing's own
            continue
    return count


def connections(client: Client) -> int:
    """Connections of this run that the server knows; it learns of a closed one a moment later."""
    for _ in range(100):
        count = len([each for each in client.client_list() if each["name"] == NAME])
        if count == 0:
            return 0
        time.sleep(0.05)
    return count


if __name__ == "__main__":
    main()
