"""What ``Retriever.retrieve`` costs over the two searches it stands on, sent raw in one pipeline.

50,000 documents of made text, 384 dims, HNSW with EF_RUNTIME 200, which is what a depth of 50 asks for. The raw
pipeline is the nearest 50 (ids and distances) and BM25STD's best 50 (ids); it leaves the replies unread, and fetches
and fuses nothing. Ours starts from a text and a row of a float32 matrix and ends with ten whole hits. See README.md.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Mapping, Sequence
from typing import Any

import harness
import numpy as np
from harness import Client, Side, Timings
from valkey import Valkey

from retriever import VALKEY_SEARCH_1_2, Analysis, Document, Retriever, Schema, Vector
from retriever.operations import retrieve as operation
from retriever.plans import Ahead, Ask

K, DEPTH, EF_RUNTIME = 10, 50, 200
MOST = 2.0
NAME = f"{harness.NAME}-retrieve"
SCHEMA = Schema(f"{NAME}:idx", [], Vector(dims=harness.DIMS), prefix=f"{NAME}:")
WARM_UP = 5
OURS, COLD, THRESHOLD = "ours", "ours, terms never seen", "ours, as Valkey Search"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=50_000)
    options.add_argument("--rounds", type=int, default=40)
    options.add_argument("--operations", type=int, default=10, help="queries of each side in a round")
    options.add_argument("--scale", action="store_true", help="10,000, 50,000 and 200,000 documents in turn")
    given = options.parse_args()
    with harness.server_url() as url, Valkey.from_url(url) as client:
        for count in (10_000, 50_000, 200_000) if given.scale else (given.documents,):
            harness.clear(client, NAME)
            try:
                compare(url, client, count, given.rounds, given.operations)
            finally:
                harness.clear(client, NAME)
    print(f"\nanalysis of texts of 1,000 characters: {analysis_mb_s():.1f} MB/s")


def compare(url: str, client: Client, count: int, rounds: int, operations: int) -> None:
    texts = harness.zipf_texts(count)
    vectors = harness.clustered(rounds * operations, seed=1)
    with (
        Retriever.connect(url, SCHEMA) as retriever,
        Retriever.connect(url, SCHEMA, engine=VALKEY_SEARCH_1_2) as threshold,
        Retriever.connect(url, SCHEMA) as cold,
    ):
        retriever.create_index()
        rows = harness.clustered(count)
        retriever.upsert(
            Document(f"d{at}", text, vector=row) for at, (text, row) in enumerate(zip(texts, rows, strict=True))
        )
        notes = (f"{count:,} documents of {harness.WORDS} made words, {harness.DIMS} dims, HNSW, k={K}, depth {DEPTH}",)
        harness.print_head("retrieve", retriever.describe_index().engine, notes)
        queries = harness.zipf_queries(texts, rounds * operations)
        gc.collect()
        gc.freeze()  # what was prepared is not looked at again by every collection
        for kind in ("selective", "broad", "natural"):
            sides = sides_of(client, retriever, threshold, cold, queries[kind], vectors)
            for side in sides.values():
                for number in range(min(WARM_UP, len(vectors))):
                    side(number)
            # Every query once before, so that the frequencies of its terms are known.
            for shell in (retriever, threshold):
                for text, row in zip(queries[kind], vectors, strict=True):
                    shell.retrieve(text=text, vector=row, k=K)
            matches = np.mean([matching(client, text) for text in queries[kind][:50]])
            timings = harness.measure(sides, rounds=rounds, operations=operations)
            print_rows(f"{kind}: {matches:,.0f} matches", timings, MOST if kind == "selective" else None)
            print_parts(f"{kind}: where the time goes", retriever, queries[kind], vectors)


def sides_of(
    client: Client,
    retriever: Retriever,
    threshold: Retriever,
    cold: Retriever,
    texts: Sequence[str],
    vectors: harness.Matrix,
) -> dict[str, Side]:
    rows = list(vectors)
    commands = [raw_commands(text, row) for text, row in zip(texts, rows, strict=True)]

    def raw(at: int) -> Any:
        pipe = client.pipeline(transaction=False)
        for command in commands[at]:
            pipe.execute_command(*command)
        return pipe.execute()

    def unseen(at: int) -> Any:
        # What is known of the whole collection stays: it is asked for once a minute, whatever the words.
        known = cold._live.frequencies
        whole = {"": known[""]} if "" in known else {}
        known.clear()
        known.update(whole)
        return cold.retrieve(text=texts[at], vector=rows[at], k=K)

    return {
        "raw": raw,
        OURS: lambda at: retriever.retrieve(text=texts[at], vector=rows[at], k=K),
        THRESHOLD: lambda at: threshold.retrieve(text=texts[at], vector=rows[at], k=K),
        COLD: unseen,
    }


def raw_commands(text: str, row: Any) -> list[tuple[Any, ...]]:
    """The two searches, as finished arguments."""
    knn = f"*=>[KNN {DEPTH} @embedding $vec EF_RUNTIME {EF_RUNTIME} AS __score]"
    near = ("FT.SEARCH", SCHEMA.name, knn, "PARAMS", 2, "vec", row.tobytes(), "RETURN", 1, "__score")
    worded = ("FT.SEARCH", SCHEMA.name, union(text), "VERBATIM", "NOCONTENT", "SCORER", "BM25STD")
    end = ("LIMIT", 0, DEPTH, "DIALECT", 2)
    return [(*near, *end), (*worded, *end)]


def union(text: str) -> str:
    """Any of the words, none of which the analysis changes."""
    return f"({'|'.join(f'@__terms:{word}' for word in text.split())})"


def matching(client: Client, text: str) -> int:
    """How many documents hold one of the words."""
    return int(
        client.execute_command("FT.SEARCH", SCHEMA.name, union(text), "VERBATIM", "LIMIT", 0, 0, "DIALECT", 2)[0]
    )


PARTS = (
    PLANNING := "checking, analysing, planning",
    SEARCHES := "the two searches",
    WORDS := "in that time: words ranked",
    PARSING := "parsing both answers, by itself",
    FUSING := "distances read, fused",
    FETCH := "the fetch",
    HITS := "the hits",
)


def parts(retriever: Retriever, text: str, row: Any) -> dict[str, float]:
    """Seconds of each part of one call: what is between a plan's steps is computed, a step is a round trip."""
    taken = dict.fromkeys(PARTS, 0.0)

    def note(since: float, name: str) -> float:
        now = time.perf_counter()
        taken[name] += now - since
        return now

    def watched(ahead: Ahead) -> Ahead:
        def read(replies: Sequence[Any]) -> None:
            started = time.perf_counter()
            ahead.read(replies)
            note(started, WORDS)

        return ahead._replace(read=read)

    retriever.retrieve(text=text, vector=row, k=K)  # so that the frequencies of its terms are known for a minute
    plan = operation.retrieve(retriever._live, None, text=text, vector=row, k=K)
    names, at = iter((PLANNING, SEARCHES, FUSING, FETCH, HITS)), time.perf_counter()
    step = next(plan)
    try:
        while True:
            if not isinstance(step, Ask):  # the clock
                step = plan.send(retriever._driver.answer(step, iter(())))
                continue
            at = note(at, next(names))
            answer = retriever._driver.ask(step.commands, None if step.ahead is None else watched(step.ahead))
            at = note(at, next(names))
            if not taken[PARSING]:  # the first one
                for command, reply in zip(step.commands, answer[0], strict=True):
                    command.parse(reply)
                at = note(at, PARSING)
            step = plan.send(answer)
    except StopIteration:
        note(at, next(names))
    return taken


def print_parts(title: str, retriever: Retriever, texts: Sequence[str], vectors: harness.Matrix) -> None:
    found = [parts(retriever, text, row) for text, row in zip(texts, vectors, strict=True)]
    rows = [[name, f"{harness.spread([1e6 * each[name] for each in found]):.0f}"] for name in PARTS]
    harness.print_table(title, ["part", "us"], rows)


def print_rows(title: str, timings: Mapping[str, Timings], most: float | None) -> None:
    raw = timings["raw"]
    rows = []
    for name, side in timings.items():
        wall, cpu = harness.spread([1e6 * each for each in side.wall]), 1e6 * float(np.median(side.cpu))
        row = [name, f"{wall:.0f}", "", f"{cpu:.0f}", ""]
        if name != "raw":
            ratio = harness.ratios(side.wall, raw.wall)
            row[2] = f"{ratio:.2f}"
            row[4] = harness.verdict(ratio.median, most=most) if name == OURS and most is not None else ""
        rows.append(row)
    harness.print_table(title, ["side", "p50, us", "times raw", "client CPU, us", "target"], rows)


def analysis_mb_s() -> float:
    """How fast texts become terms; the analysis remembers the words that it has seen."""
    words = " ".join(harness.texts(5_000))
    terms, texts = Analysis().terms, [words[at : at + 1000] for at in range(0, len(words), 1000)]
    started = time.perf_counter()
    for text in texts:
        terms(text)
    return sum(len(text) for text in texts) / (time.perf_counter() - started) / 1e6


if __name__ == "__main__":
    main()
