"""How loading, memory, queries and recall grow with the number of documents; and what limits them.

Each size is an index of its own on a fresh server: documents of 60 made words, a TAG, a NUMERIC field and a vector of
clustered data, HNSW, with the library's defaults. Asked are new vectors (k=10), and words with vectors. The truth for
recall is an exact search by numpy. --page writes what was found into docs/scale.md, with arithmetic for larger sizes;
--plot draws it, and needs matplotlib (`make bench-scale` brings it). See README.md.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Client, Matrix
from valkey import Valkey

from retriever import Document, Numeric, Retriever, Schema, Tag, Vector

K = 10
NAME = f"{harness.NAME}-scale"
SIZES = ("10000x384", "50000x384", "200000x384", "1000000x128")
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "scale.md"
BLOCK = 10_000  # rows of the exact search at once

MEASURED = (
    "documents x dims",
    "documents/s",
    "of the last tenth",
    "used_memory, GB",
    "server's RSS, GB",
    "bytes a document",
    "client's RSS, MB",
    "query p50 / p99, ms",
    "words and vectors p50 / p99, ms",
    "recall@10",
    "what takes the time",
)
GROWN = ("documents x dims", "nodes", "GB a node", "hours to load", "query, ms", "words and vectors, ms")


@dataclass(frozen=True, slots=True)
class Point:
    """What one size gave. Seconds, bytes, queries; p50 and p99 in seconds.

    server_busy, client_busy: processor time over the clock's while loading, 1 is one core. client_bytes: what loading
    added to this process. vector_bytes: of the graph and its vectors, as FT.INFO tells. The shares: the server's
    processor time over that of the answers.
    """

    documents: int
    dims: int
    rate: float
    last_rate: float
    server_busy: float
    client_busy: float
    used_memory: int
    server_rss: int
    client_bytes: int
    vector_bytes: int
    query_p50: float
    query_p99: float
    hybrid_p50: float
    hybrid_p99: float
    query_server_share: float
    hybrid_server_share: float
    recall: float

    @property
    def name(self) -> str:
        """Its size, as a row's first cell."""
        return f"{self.documents:,} x {self.dims}"

    @property
    def bytes_a_document(self) -> float:
        """What the server took for each."""
        return self.used_memory / self.documents

    def limited_by(self) -> str:
        """Where the time goes: loading, a query, words and vectors."""
        loading = "server" if self.server_busy > self.client_busy else "client"
        query, hybrid = (
            f"{'server' if share > 0.5 else 'the rest'} ({share:.0%} server)"
            for share in (self.query_server_share, self.hybrid_server_share)
        )
        cores = f"server {self.server_busy:.2f}, client {self.client_busy:.2f} cores"
        return f"loading: {loading} ({cores}); query: {query}; both: {hybrid}"

    def row(self) -> list[str]:
        """Its line of MEASURED."""
        return [
            self.name,
            f"{self.rate:,.0f}",
            f"{self.last_rate:,.0f}",
            f"{self.used_memory / 1e9:.2f}",
            f"{self.server_rss / 1e9:.2f}",
            f"{self.bytes_a_document:,.0f}",
            f"{self.client_bytes / 2**20:+.0f}",
            f"{1e3 * self.query_p50:.2f} / {1e3 * self.query_p99:.2f}",
            f"{1e3 * self.hybrid_p50:.1f} / {1e3 * self.hybrid_p99:.1f}",
            f"{self.recall:.4f}",
            self.limited_by(),
        ]


# --- one size -------------------------------------------------------------------------------------


def measured(url: str, client: Client, count: int, dims: int, asked: int, checks: int) -> Point:
    """Load, ask, compare with the truth."""
    vectors, questions = harness.clustered(count, dims=dims), harness.clustered(asked, seed=1, dims=dims)
    texts = harness.zipf_texts(count)
    rng = random.Random(harness.SEED)
    worded = [" ".join(rng.sample(rng.choice(texts).split(), 8)) for _ in range(asked)]
    declared = Schema(f"{NAME}:idx", (Tag("category"), Numeric("year")), Vector(dims=dims), prefix=f"{NAME}:")
    before, stamps = client.info("memory")["used_memory"], list[float]()
    with Retriever.connect(url, declared, timeout_s=60) as docs:
        docs.create_index()
        gc.collect()
        gc.freeze()  # what was prepared is not looked at again by every collection
        resident, cpu, own = resident_bytes(), server_seconds(client), time.process_time()
        started = time.perf_counter()
        report = docs.upsert(documents(texts, vectors, stamps))
        taken = time.perf_counter() - started
        busy, own_busy = (server_seconds(client) - cpu) / taken, (time.process_time() - own) / taken
        grown = resident_bytes() - resident
        assert report.written == count, report
        memory = client.info("memory")
        info = client.execute_command("FT.INFO", declared.name)
        facts = {bytes(name).decode(): value for name, value in zip(info[::2], info[1::2], strict=True)}
        cpu = server_seconds(client)
        plain = latencies(lambda at: docs.query(vector=questions[at], k=K), asked)
        share = (server_seconds(client) - cpu) / sum(plain)
        cpu = server_seconds(client)
        hybrid = latencies(lambda at: docs.retrieve(text=worded[at], vector=questions[at], k=K), asked)
        hybrid_share = (server_seconds(client) - cpu) / sum(hybrid)
        found = [{int(hit.id) for hit in docs.query(vector=row, k=K, return_fields=[])} for row in questions[:checks]]
    truth = nearest(vectors, questions[:checks])
    return Point(
        documents=count,
        dims=dims,
        rate=count / taken,
        last_rate=(count - 9 * (count // 10)) / (started + taken - stamps[9]),
        server_busy=busy,
        client_busy=own_busy,
        used_memory=memory["used_memory"] - before,
        server_rss=memory["used_memory_rss"],
        client_bytes=grown,
        vector_bytes=int(float(facts["vector_index_sz_mb"]) * 2**20),
        query_p50=float(np.percentile(plain, 50)),
        query_p99=float(np.percentile(plain, 99)),
        hybrid_p50=float(np.percentile(hybrid, 50)),
        hybrid_p99=float(np.percentile(hybrid, 99)),
        query_server_share=min(1.0, share),
        hybrid_server_share=min(1.0, hybrid_share),
        recall=float(np.mean([len(ids & true) / K for ids, true in zip(found, truth, strict=True)])),
    )


def documents(texts: Sequence[str], vectors: Matrix, stamps: list[float]) -> Iterator[Document]:
    """Documents one by one; stamps: when each tenth began."""
    rng = random.Random(harness.SEED)
    tenth = len(texts) // 10
    for at, (text, row) in enumerate(zip(texts, vectors, strict=True)):
        if at % tenth == 0:
            stamps.append(time.perf_counter())
        yield Document(str(at), text, {"category": rng.choice(harness.CATEGORIES), "year": 1990 + at % 40}, row)


def latencies(ask: Callable[[int], Any], count: int) -> list[float]:
    taken = []
    for at in range(count):
        started = time.perf_counter()
        ask(at)
        taken.append(time.perf_counter() - started)
    return taken


def nearest(vectors: Matrix, asked: Matrix) -> list[set[int]]:
    """The exact K nearest by cosine, in blocks, so that 200,000 rows do not stand beside their distances."""
    best: list[list[tuple[float, int]]] = [[] for _ in asked]
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        near = asked @ (block / np.linalg.norm(block, axis=1, keepdims=True)).T
        few = min(K, near.shape[1])
        places = np.argpartition(-near, few - 1, axis=1)[:, :few]
        for at, row in enumerate(places.tolist()):
            best[at] = sorted([*best[at], *((float(near[at, each]), start + each) for each in row)], reverse=True)[:K]
    return [{place for _, place in row} for row in best]


def server_seconds(client: Client) -> float:
    """The server's processor time so far."""
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- what follows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """Lines through the points of the most dims that were measured at two sizes or more, over log2 of the documents.

    load: the server's processor time for a document, which other programs disturb less than the clock; query: p50; in
    seconds. What grows in proportion is taken from the largest: bytes and the p50 of words and vectors, a document.
    """

    dims: int
    bytes_a_document: float
    load: tuple[float, float]
    query: tuple[float, float]
    hybrid_a_document: float

    def line(self, count: int, nodes: int) -> list[str]:
        """A row of GROWN: documents are spread evenly, and every node answers every query."""
        each, doublings = count / nodes, float(np.log2(count / nodes))
        # Loading slows as a node fills: the time of all its documents is the sum over them, here the integral.
        seconds = each * (self.load[0] + self.load[1] * (doublings - 1 / float(np.log(2))))
        query = self.query[0] + self.query[1] * doublings
        return [
            f"{count:,} x {self.dims}",
            str(nodes),
            f"{each * self.bytes_a_document / 1e9:.1f}",
            f"{seconds / 3600:.1f}",
            f"{1e3 * query:.1f}",
            f"{1e3 * self.hybrid_a_document * each:,.0f}",
        ]


def growth(points: Sequence[Point]) -> Growth | None:
    """None unless two sizes of the same dims were measured."""
    dims = max((each.dims for each in points if sum(one.dims == each.dims for one in points) > 1), default=None)
    if dims is None:
        return None
    alike = sorted((each for each in points if each.dims == dims), key=lambda each: each.documents)
    doublings = np.log2([each.documents for each in alike])
    # A load's mean time a document is that of documents 1 to n: a + b (log2 n - 1 / ln 2).
    load = fitted(doublings - 1 / np.log(2), [each.server_busy / each.rate for each in alike])
    query, last = fitted(doublings, [each.query_p50 for each in alike]), alike[-1]
    return Growth(dims, last.bytes_a_document, load, query, last.hybrid_p50 / last.documents)


def fitted(at: Any, values: Sequence[float]) -> tuple[float, float]:
    """(where it starts, what a doubling adds), by least squares; never falling."""
    slope, start = (float(each) for each in np.polyfit(at, values, 1))
    return (start, slope) if slope > 0 else (float(np.mean(values)), 0.0)


def arithmetic(points: Sequence[Point]) -> str:
    grown = growth(points)
    if grown is None:
        return "Two sizes of the same dims are needed for it.\n"
    rows = [grown.line(count, nodes) for count in (1_000_000, 10_000_000, 100_000_000) for nodes in (1, 4, 16)]
    load, query = grown.load, grown.query
    said = (
        f"At {grown.dims} dims, with N documents on n nodes: **memory** of a node {grown.bytes_a_document:,.0f} bytes "
        f"* N / n; **loading** a document {1e6 * load[0]:.0f} + {1e6 * load[1]:.1f} * log2(documents there) us "
        f"of one thread; **a query** {1e3 * query[0]:.2f} + {1e3 * query[1]:.3f} * log2(N / n) ms; **words and "
        f"vectors** {1e9 * grown.hybrid_a_document:.0f} ns * N / n.\n"
    )
    return f"{said}\n{harness.as_markdown(GROWN, rows)}"


def markdown(points: Sequence[Point], load: tuple[float, float], engine: str, asked: int, checks: int) -> str:
    date = datetime.datetime.now().astimezone().strftime("%Y-%m-%d")
    head = (
        f"* Date: {date}\n* Machine: {harness.machine()}; load average {load[0]:.1f} at the start, {load[1]:.1f} at "
        f"the end\n* Engine: {engine}\n* Command: `{harness.command_line()}`\n* Asked: {asked:,} questions of each "
        f"kind, one after the other; recall over {checks:,}\n"
    )
    table = harness.as_markdown(MEASURED, [each.row() for each in points])
    return f"{head}\n{table}\n### Larger sizes, by arithmetic\n\n{arithmetic(points)}"


def plot(points: Sequence[Point], file: Path) -> None:
    """Four pictures over the number of documents, a line for each number of dims."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("svg" if file.suffix == ".svg" else "agg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": NAME, "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    )  # the same points, the same file
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), layout="constrained")
    pictures: list[tuple[str, dict[str, Callable[[Point], float]]]] = [
        ("documents loaded a second", {"all": lambda one: one.rate, "last tenth": lambda one: one.last_rate}),
        ("GB", {"used_memory": lambda one: one.used_memory / 1e9, "vectors": lambda one: one.vector_bytes / 1e9}),
        (
            "ms",
            {
                "query p50": lambda one: 1e3 * one.query_p50,
                "query p99": lambda one: 1e3 * one.query_p99,
                "words and vectors p50": lambda one: 1e3 * one.hybrid_p50,
                "words and vectors p99": lambda one: 1e3 * one.hybrid_p99,
            },
        ),
        ("recall@10", {"defaults": lambda one: one.recall}),
    ]
    for axis, (title, lines) in zip(axes.flat, pictures, strict=True):
        for dims in sorted({each.dims for each in points}, reverse=True):
            alike = sorted((each for each in points if each.dims == dims), key=lambda each: each.documents)
            for name, value in lines.items():
                label, counts = f"{name}, {dims} dims", [each.documents for each in alike]
                axis.plot(counts, [value(each) for each in alike], marker="o", markersize=4, label=label)
        axis.set(xscale="log", yscale="log" if title == "ms" else "linear", xlabel="documents", ylabel=title)
        if title != "ms":
            axis.set_ylim((None, 1.005) if title == "recall@10" else (0, None))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def sized(text: str) -> tuple[int, int]:
    """Documents and dims of "200000x384"."""
    documents, _, dims = text.partition("x")
    return int(documents), int(dims or harness.DIMS)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--sizes", nargs="+", type=sized, default=[sized(each) for each in SIZES], metavar="DOCUMENTSxDIMS"
    )
    options.add_argument("--queries", type=int, default=1000, help="questions of each kind")
    options.add_argument("--checks", type=int, default=200, help="questions whose answers are compared with the truth")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, after every size")
    options.add_argument("--plot", type=Path, metavar="FILE", help="draw them: an SVG or a PNG")
    options.add_argument("--page", action="store_true", help="write the run into docs/scale.md")
    given = options.parse_args()
    before, points, engine = os.getloadavg()[0], list[Point](), ""
    for count, dims in given.sizes:
        with harness.server_url() as url, Valkey.from_url(url) as client:
            harness.clear(client, NAME)
            try:
                point = measured(url, client, count, dims, given.queries, min(given.checks, given.queries))
                with Retriever(client, Schema(f"{NAME}:idx", vector=Vector(dims=dims))) as docs:
                    engine = docs.describe_index().engine
            finally:
                harness.clear(client, NAME)
        gc.unfreeze()
        points.append(point)
        for title, cell in zip(MEASURED, point.row(), strict=True):
            print(f"{title:32} {cell}", flush=True)
        print(flush=True)
        if given.json:
            given.json.write_text(json.dumps([asdict(each) for each in points], indent=1) + "\n", "utf-8")
    harness.print_table(f"scale\n{engine}", MEASURED, [each.row() for each in points])
    print(f"\n{arithmetic(points)}")
    if given.plot:
        plot(points, given.plot)
    if given.page:
        load = (before, os.getloadavg()[0])
        harness.write_page(PAGE, markdown(points, load, engine, given.queries, min(given.checks, given.queries)))


if __name__ == "__main__":
    main()
