"""What a store of memory costs: searching and counting reads, ingesting, forgetting, rebuilding beside a reader.

The store is filled with chunks of made text, whose vectors an embedder makes that takes no time, so that the store is
what is timed; 384 dims, FLAT, which is what the embedded engine has unless said otherwise (--algorithm HNSW: what a
server has). Only where ingest is held against the embedder it is LocalEmbedder, over texts that people could have
written. See README.md.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Client, Side
from valkey import Valkey

from retriever import LocalEmbedder, Vector
from retriever.memory import MemoryStore, Note

NAME = f"{harness.NAME}-memory"
SMALL = f"{NAME}-small"
CORPUS = Path(__file__).resolve().parent.parent / "examples" / "corpus.jsonl"
K = 10
LINES = 10  # chunks of the one ingest whose cost must not grow with the store
MOST_GROWTH, LEAST_OF_EMBEDDER = 1.2, 0.9
DAY_S = 86_400.0
# What writing to an index moves and reading does not; those of them that the engine has are looked at.
COUNTERS = (
    "num_docs",
    "max_doc_id",
    "num_records",
    "num_terms",
    "total_inverted_index_blocks",
    "total_indexing_time",
    "hash_indexing_failures",
    "mutation_queue_size",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done. small, middle, large: chunks of a store."""

    small: int = 1_000
    middle: int = 10_000
    large: int = 100_000
    rebuilt: int = 3_000
    rounds: int = 20
    operations: int = 20
    ingests: int = 3  # rounds
    texts: int = 300


WHOLE = Sizes()
SMOKE = Sizes(50, 100, 200, 60, 2, 2, 1, 20)


def main() -> None:
    parts = {"grow": grow, "ingest": ingest, "rebuild": rebuild}
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; all unless said")
    options.add_argument("--algorithm", choices=("FLAT", "HNSW"), default="FLAT", help="of the index that is filled")
    options.add_argument("--large", type=int, default=WHOLE.large, help="chunks of the largest store")
    options.add_argument("--smoke", action="store_true", help="as little of everything as there can be")
    given = options.parse_args()
    if unknown := set(given.parts) - set(parts):
        options.error(f"no part {', '.join(sorted(unknown))}; choose from {', '.join(parts)}")
    sizes = SMOKE if given.smoke else Sizes(large=given.large)
    vector = Vector(algorithm=given.algorithm)
    with harness.server_url() as url, Valkey.from_url(url) as client:
        print_head(url, vector)
        for part in given.parts or parts:
            for name in (NAME, SMALL):
                harness.clear_memory(client, name)
            try:
                parts[part](url, client, sizes, vector)
            finally:
                for name in (NAME, SMALL):
                    harness.clear_memory(client, name)


# --- a store that grows ---------------------------------------------------------------------------


def grow(url: str, client: Client, sizes: Sizes, vector: Vector) -> None:
    """Searches of a middle and of a large store; one ingest into a small and a large one; forgetting."""
    texts = harness.zipf_texts(sizes.large)
    queries = questions(texts, sizes.rounds * sizes.operations)
    with opened(url, NAME, Made(), vector) as store, opened(url, SMALL, Made(), vector) as small:
        held = 0
        for count in (sizes.middle, sizes.large):
            started = time.perf_counter()
            fill(store, texts[held:count], held)
            per_s = (count - held) / (time.perf_counter() - started)
            held = count
            print(f"\nfilled to {count:,} chunks: {per_s:,.0f} chunks/s")
            gc.collect()
            gc.freeze()  # what was prepared is not looked at again by every collection
            search(client, store, queries, f"search, {count:,} chunks", sizes)
        fill(small, texts[: sizes.small], 0)
        forget(store, held)
        one_ingest(client, small, store, sizes)


def fill(store: MemoryStore, texts: Sequence[str], start: int) -> None:
    """A chunk of each text, 1,000 to a document; of the documents, news, every second is too old to be kept."""
    now = time.time()
    for at in range(0, len(texts), 1_000):
        source = f"part {start + at}"
        age = 400 if (start + at) // 1_000 % 2 else 10
        metadata = {"knowledge_type": "news", "source_date": now - age * DAY_S}
        report = store.ingest(Note("\n".join(texts[at : at + 1_000]), source), metadata=metadata, split=str.splitlines)
        if report.failed:
            raise SystemExit(f"{source}: {report.failed[0].reason}")


def search(client: Client, store: MemoryStore, queries: Sequence[str], title: str, sizes: Sizes) -> None:
    """Searches with and without counting what they return, and what the counting moves in the index: nothing."""

    def side(**arguments: Any) -> Side:
        return lambda at: store.search(queries[at], k=K, **arguments)

    plain, counted = "search, not counted", "search, counted as read"
    sides = {
        plain: side(reinforce=False),
        counted: side(),
        "by age and use besides": side(reinforce=False, memory_rerank=True),
        "by vector alone": side(reinforce=False, use_fts=False),
    }
    for query in queries:  # once before, so that the frequencies of the terms are known
        store.search(query, k=K, reinforce=False)
    taken = latencies(sides, sizes.rounds, sizes.operations)
    base = np.percentile(taken[plain], 95)
    rows = [
        [name, *(f"{1e3 * np.percentile(each, at):.1f}" for at in (50, 95)), f"{np.percentile(each, 95) / base:.2f}"]
        for name, each in taken.items()
    ]
    harness.print_table(title, ["side", "p50, ms", "p95, ms", "p95 over not counted"], rows)

    before = counters(client, store)
    for query in queries:
        store.search(query, k=K)
    after = counters(client, store)
    moved = [[name, before[name], after[name], "same" if before[name] == after[name] else "MOVED"] for name in before]
    title = f"FT.INFO before and after {len(queries):,} counted searches, which index nothing anew"
    harness.print_table(title, ["counter", "before", "after", ""], moved)


def counters(client: Client, store: MemoryStore) -> dict[str, str]:
    reply = client.execute_command("FT.INFO", store._memory.live.schema.name)
    pairs = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    return {
        name: pairs[name].decode() if isinstance(pairs[name], bytes) else str(pairs[name])
        for name in COUNTERS
        if name in pairs
    }


def one_ingest(client: Client, small: MemoryStore, large: MemoryStore, sizes: Sizes) -> None:
    """One new document of a few chunks, into either store in turn; and as many hashes of its kind, sent raw."""
    text = "\n".join(harness.texts(LINES))
    number = itertools.count()

    def ingest(store: MemoryStore) -> Side:
        return lambda _: store.ingest(
            Note(f"document {next(number)}\n{text}", f"one {next(number)}"), split=str.splitlines
        )

    def raw(store: MemoryStore) -> Side:
        report = store.ingest(Note(f"{next(number)}\n{text}", f"one {next(number)}"), split=str.splitlines)
        prefix, vector = store._memory.live.schema.prefix, store._memory.live.schema.vector.name
        chunks = store.get_document_chunks(report.sources[0].doc_id or "")
        hashes = [client.hgetall(f"{prefix}{chunk.id}") for chunk in chunks]
        rows = iter(harness.clustered(len(hashes) * (1 + sizes.rounds) * sizes.operations, seed=2))

        def write(_: int) -> None:
            pipe = client.pipeline(transaction=False)
            for each in hashes:
                pipe.hset(f"{prefix}raw {next(number)}", mapping=each | {vector: next(rows).tobytes()})
            pipe.execute()

        return write

    sides = {}
    for kind, side in (("ingest", ingest), ("its hashes, raw", raw)):
        for count, store in ((sizes.small, small), (sizes.large, large)):
            sides[kind, count] = side(store)
            sides[kind, count](0)  # once before: what a store asks the server but once
    timings = harness.measure(
        {f"{kind} {count}": side for (kind, count), side in sides.items()},
        rounds=sizes.rounds,
        operations=sizes.operations,
    )
    rows = []
    for kind, count in sides:
        wall, first = timings[f"{kind} {count}"].wall, timings[f"{kind} {sizes.small}"].wall
        row = [kind, f"{count:,}", f"{harness.spread([1e3 * each for each in wall]):.1f}", "", ""]
        if count != sizes.small:
            over = harness.ratios(wall, first)
            row[3] = f"{over:.2f}"
            row[4] = harness.verdict(over.median, most=MOST_GROWTH) if kind == "ingest" else ""
        rows.append(row)
    head = ["", "store of", "p50, ms", f"times that of {sizes.small:,}", "target"]
    harness.print_table(f"one ingest of {LINES + 1} chunks", head, rows)


def forget(store: MemoryStore, count: int) -> None:
    """A dry run, which judges every chunk; once by the clock, and once more for the memory, which slows it."""
    started = time.perf_counter()
    taken = store.forget(dry_run=True)
    seconds = time.perf_counter() - started
    del taken[1:]
    gc.collect()
    tracemalloc.start()
    taken = store.forget(dry_run=True)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    row = [f"{count:,}", f"{len(taken):,}", f"{seconds:.1f}", f"{count / seconds:,.0f}"]
    row += [f"{peak / 1e6:.0f}", f"{kept / 1e6:.0f}"]
    head = ["chunks", "would go", "seconds", "chunks/s", "client memory at most, MB", "of that the answer, MB"]
    harness.print_table("forget(dry_run=True)", head, [row])


# --- ingest beside the embedder -------------------------------------------------------------------


def ingest(url: str, _client: Client, sizes: Sizes, vector: Vector) -> None:
    """LocalEmbedder over the texts that an ingest gives it, in one call, beside the whole ingest."""
    embed = Heard(LocalEmbedder())
    embed(["loads the model"])
    texts = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()[: sizes.texts]]
    parts = [f"## {each['title']}\n\n{each['text']}\n" for each in texts]
    kinds = {
        "documents of about 30 sections": ["\n".join(parts[at : at + 30]) for at in range(0, len(parts), 30)],
        "notes of one section": parts,
    }
    rows = []
    with opened(url, NAME, embed, vector) as store:
        for kind, documents in kinds.items():

            def ours(at: int, kind: str = kind, documents: Sequence[str] = documents) -> None:
                report = store.ingest(
                    [Note(each, f"{kind} {at}/{n}", None, "markdown") for n, each in enumerate(documents)]
                )
                if report.failed:
                    raise SystemExit(f"{kind}: {report.failed[0].reason}")

            embed.heard.clear()
            ours(-1)
            heard = list(embed.heard)
            sides: dict[str, Side] = {
                "ingest": ours,
                "embedder": lambda _, heard=heard: embed.embed(heard),  # type: ignore[misc]
            }
            timings = harness.measure(sides, rounds=sizes.ingests, operations=1)
            per_s = {
                name: harness.spread([len(heard) / seconds for seconds in each.wall]) for name, each in timings.items()
            }
            share = harness.ratios(timings["embedder"].wall, timings["ingest"].wall)
            target = harness.verdict(share.median, least=LEAST_OF_EMBEDDER) if kind == next(iter(kinds)) else ""
            rows.append([kind, f"{len(heard)}", *(f"{per_s[name]:.0f}" for name in sides), f"{share:.2f}", target])
    head = ["sources", "chunks", "ingest, chunks/s", "embedder alone, texts/s", "ingest over embedder", "target"]
    harness.print_table("ingest with LocalEmbedder, beside it alone with all texts in one call", head, rows)


# --- rebuilding beside a reader -------------------------------------------------------------------


def rebuild(url: str, _client: Client, sizes: Sizes, vector: Vector) -> None:
    """Searches of one model while another's vectors are written, by a thread of the same process, without a pause."""
    texts = harness.zipf_texts(sizes.rebuilt)
    queries = questions(texts, 100)
    short = 0

    def read(store: MemoryStore, at: int) -> float:
        nonlocal short
        started = time.perf_counter()
        found = store.search(queries[at % len(queries)], k=K, reinforce=False)
        seconds = time.perf_counter() - started
        short += len(found.chunks) < K or not found.complete
        return seconds

    with opened(url, NAME, Made("one"), vector) as store:
        fill(store, texts, 0)
        for at in range(len(queries)):
            read(store, at)
        before = [read(store, at) for at in range(len(queries) * 3)]
        with opened(url, NAME, Made("another"), vector) as other, ThreadPoolExecutor(1) as pool:
            started = time.perf_counter()
            rebuilding = pool.submit(other.rebuild_index)
            meanwhile = [read(store, at) for at in _until(rebuilding.done)]
            rebuilt, seconds = rebuilding.result(), time.perf_counter() - started
    rows = [
        [name, f"{len(taken)}", *(f"{1e3 * np.percentile(taken, at):.1f}" for at in (50, 95))]
        for name, taken in (("before", before), ("while vectors are written", meanwhile))
    ]
    done = f"{rebuilt.embedded:,} chunks in {seconds:.1f} s"
    title = f"a reader beside rebuild_index() of {done}; searches that came up short: {short}"
    harness.print_table(title, ["searches", "of them", "p50, ms", "p95, ms"], rows)


def _until(done: Callable[[], bool]) -> Iterator[int]:
    """0, 1, 2 and so on, at least once, until it is done."""
    for at in itertools.count():
        yield at
        if done():
            return


# --- what they share ------------------------------------------------------------------------------


class Made:
    """An embedder whose vectors are made in no time, each unlike the others. name: the model that it passes for."""

    dims = harness.DIMS

    def __init__(self, name: str | None = None) -> None:
        self.name, self._seeds = name, itertools.count(random.Random(name).randrange(2**31))

    def __call__(self, texts: list[str], /) -> harness.Matrix:
        """One row for each text, whatever it says."""
        return harness.clustered(len(texts), seed=next(self._seeds))


class Heard:
    """An embedder that keeps the texts it was given."""

    def __init__(self, embed: LocalEmbedder) -> None:
        self.embed, self.heard = embed, list[str]()

    def __call__(self, texts: list[str], /) -> Any:
        """What the embedder answers."""
        self.heard += texts
        return self.embed(texts)


def opened(url: str, namespace: str, embed: Any, vector: Vector) -> MemoryStore:
    archive = "nothing-is-forgotten.jsonl"  # every run is dry
    return MemoryStore.open(url, namespace=namespace, embed=embed, vector=vector, archive=archive)


def print_head(url: str, vector: Vector) -> None:
    with opened(url, NAME, Made(), vector) as store:
        notes = (f"{harness.DIMS} dims, {vector.algorithm}, k={K}; chunks of {harness.WORDS} made words unless said",)
        harness.print_head("memory", store._retriever.describe_index().engine, notes)


def questions(texts: Sequence[str], count: int) -> list[str]:
    """Eight words each, of one of the texts."""
    rng = random.Random(harness.SEED)
    return [" ".join(rng.sample(rng.choice(texts).split(), 8)) for _ in range(count)]


def latencies(sides: Mapping[str, Side], rounds: int, operations: int) -> dict[str, list[float]]:
    """Seconds of every operation of every side; in each round the same operations, in an order drawn anew."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for at, name in harness.schedule(sides, rounds):
        for number in range(at * operations, (at + 1) * operations):
            started = time.perf_counter()
            sides[name](number)
            taken[name].append(time.perf_counter() - started)
    return taken


if __name__ == "__main__":
    main()
