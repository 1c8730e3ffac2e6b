"""What the benchmarks share: a server, documents, rounds in shuffled order, tables, peers.

Rule: numbers are compared within one run only. In every round each side does the same work, in an
order drawn anew; a side is compared with the raw client round by round, and the median of those
ratios is reported with its quartiles, so that a machine that is busy for a while is busy for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import random
import re
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import numpy.typing as npt
from valkey import ConnectionPool
from valkey.exceptions import ResponseError
from valkey.utils import LIBVALKEY_AVAILABLE

from retriever import Document, EmbeddedServer, Numeric, Schema, Tag, Vector
from retriever.memory.chunks import Names

# betterdb-retrieval reports its use over the network unless this says no; a benchmark does not.
os.environ["BETTERDB_TELEMETRY"] = "false"

Matrix: TypeAlias = npt.NDArray[np.float32]
Client: TypeAlias = Any  # valkey.Valkey, whose methods have no types

DIMS = 384
CLUSTERS = 50
WORDS = 60  # of a text: a short paragraph
CATEGORIES = (
    "database",
    "search",
    "network",
    "storage",
    "kernel",
    "compiler",
    "graphics",
    "security",
    "audio",
    "tests",
)
SEED = 7
# Every index and key of a run starts with this; betterdb-retrieval calls its index "<name>:idx".
NAME = "retriever-benchmark"


# --- server and data ------------------------------------------------------------------------------


@contextlib.contextmanager
def server_url() -> Iterator[str]:
    """VALKEY_URL if it is set, else an embedded server for as long as the block runs."""
    if url := os.environ.get("VALKEY_URL"):
        yield url
        return
    with EmbeddedServer() as embedded:
        yield embedded


@contextlib.contextmanager
def delayed(url: str, seconds: float) -> Iterator[str]:
    """The URL of a proxy before a server, as if that were farther away: each command arrives so much later.

    A process of its own, so that its work is not in what is measured. Not for TLS: the name would be another.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("spawn").Process(
            target=_delay, args=(listener, url, seconds), daemon=True
        )
        process.start()
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0] + "@" if "@" in parts.netloc else ""
        here = f"{user}127.0.0.1:{listener.getsockname()[1]}"
        unix = parts.scheme == "unix"
        yield urlunsplit(("valkey" if unix else parts.scheme, here, "" if unix else parts.path, parts.query, ""))
        process.terminate()
        process.join()


def _delay(listener: socket.socket, url: str, seconds: float) -> None:
    pool: Any = ConnectionPool  # its methods have no types
    upstream = pool.from_url(url).connection_kwargs

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio does it for sockets that say they are TCP, which those of create_server do not; else replies
        # wait up to 40 ms for an acknowledgement.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if "path" in upstream:
            replies, commands = await asyncio.open_unix_connection(upstream["path"])
        else:
            replies, commands = await asyncio.open_connection(upstream["host"], upstream.get("port", 6379))
        await asyncio.gather(_pump(reader, commands, seconds), _pump(replies, writer, 0))

    async def serve() -> None:
        server = await asyncio.start_server(accept, sock=listener)
        await server.serve_forever()

    asyncio.run(serve())


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, seconds: float) -> None:
    """Pass bytes on; what comes meanwhile is not held up twice."""
    under_way: deque[bytes] = deque()
    later = asyncio.get_running_loop().call_later
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            if seconds:
                under_way.append(data)
                later(seconds, lambda: target.write(under_way.popleft()))
            else:
                target.write(data)
    target.close()


def clustered(count: int, seed: int = SEED, dims: int = DIMS) -> Matrix:
    """Vectors around CLUSTERS centres of length 1, each off its centre by a vector of about length 1.

    The centres are the same for every seed. Uniformly random vectors would be the wrong test: they
    have no neighbours, and every graph index fails on them as it never does on embeddings.
    """
    centres = np.random.default_rng(SEED).standard_normal((CLUSTERS, dims), dtype=np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    rng = np.random.default_rng([SEED, seed])
    noise = rng.standard_normal((count, dims), dtype=np.float32) / np.float32(np.sqrt(dims))
    return np.asarray(centres[rng.integers(CLUSTERS, size=count)] + noise, dtype=np.float32)


def texts(count: int) -> list[str]:
    """Texts of WORDS words each, drawn as often as the example corpus has them; each unlike the others."""
    corpus = Path(__file__).resolve().parent.parent / "examples" / "corpus.jsonl"
    words = [word for line in corpus.read_text("utf-8").splitlines() for word in json.loads(line)["text"].split()]
    rng = random.Random(SEED)
    return [f"{at} " + " ".join(rng.choices(words, k=WORDS - 1)) for at in range(count)]


VOCABULARY = 30_000
TOPICS = 500


def zipf_texts(count: int) -> list[str]:
    """Made texts of WORDS words: the word of rank r is about as frequent as 1 / r, as in any language.

    Half of a text's words are of its topic, which has 200 words of its own, drawn as often as their rank says: so
    words come together more often than by chance, as they do in texts that people write.
    """
    rng = np.random.default_rng(SEED)
    share = 1 / np.arange(1, VOCABULARY + 1)
    share /= share.sum()
    topics = np.array([rng.choice(VOCABULARY, 200, replace=False, p=share) for _ in range(TOPICS)])
    common = rng.choice(VOCABULARY, (count, WORDS), p=share)
    of_topic = topics[rng.integers(TOPICS, size=count)[:, np.newaxis], rng.integers(200, size=(count, WORDS))]
    ranks = np.where(rng.random((count, WORDS)) < 0.5, of_topic, common)
    return [" ".join(f"w{rank}" for rank in row) for row in ranks.tolist()]


def zipf_queries(texts: Sequence[str], count: int) -> dict[str, list[str]]:
    """Kind -> queries of made text: of a document's words, of common, of rare, of a few that are in very many."""
    rng = random.Random(SEED)
    frequency = Counter(word for text in texts for word in set(text.split()))
    by_frequency = [word for word, _ in frequency.most_common()]

    def words_in(least: float, most: float) -> list[str]:
        """Words that such a share of the documents holds."""
        return [word for word in by_frequency if least <= frequency[word] / len(texts) <= most]

    common, rare, broad = words_in(0.05, 1), words_in(0.0005, 0.003), words_in(0.08, 0.16)
    return {
        "natural": [" ".join(rng.sample(rng.choice(texts).split(), 8)) for _ in range(count)],
        "common words": [" ".join(rng.sample(common, 5)) for _ in range(count)],
        "selective": [" ".join(rng.sample(rare, 4)) for _ in range(count)],
        "broad": [" ".join(rng.sample(broad, min(3, len(broad)))) for _ in range(count)],
    }


def documents(count: int) -> list[Document]:
    """Documents of text, TAG, NUMERIC and a row of a float32 matrix."""
    rng = random.Random(SEED)
    return [
        Document(f"d{at}", text, {"category": rng.choice(CATEGORIES), "year": rng.randint(1990, 2030)}, row)
        for at, (text, row) in enumerate(zip(texts(count), clustered(count), strict=True))
    ]


def schema(name: str, **vector: Any) -> Schema:
    """The index that fits ``documents``, without analysis; name: what keys start with, before a colon."""
    fields = (Tag("category"), Numeric("year"))
    return Schema(f"{name}:idx", fields, Vector(dims=DIMS, **vector), analysis=None, prefix=f"{name}:")


def clear(client: Client, name: str) -> None:
    """Drop an index, whoever made it, its metadata and the documents under its prefix, as far as they exist."""
    with contextlib.suppress(ResponseError):  # there may be none
        client.execute_command("FT.DROPINDEX", f"{name}:idx")
    client.unlink(name)
    for keys in _batches(client.scan_iter(match=f"{name}:*", count=1000), 1000):
        client.unlink(*keys)


def clear_memory(client: Client, namespace: str) -> None:
    """Drop the index of a namespace of memory, those of its other generations, and all its keys, as far as they exist.

    They start with the braces that keep them together in a cluster, and so not with NAME.
    """
    start = Names(namespace).index
    for index in client.execute_command("FT._LIST"):
        if index.decode().partition("@")[0] == start:
            client.execute_command("FT.DROPINDEX", index)
    for keys in _batches(client.scan_iter(match=f"{start}*", count=1000), 1000):
        client.unlink(*keys)


def _batches(keys: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(keys, size)):
        yield batch


# --- rounds ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timings:
    """What one side took, round by round, in seconds per operation.

    wall: the median of the round's operations, by the clock. cpu: their mean in this process alone,
    which other programs disturb less; what the server computes is not in it.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} ({self.low:{spec}}-{self.high:{spec}})"


def spread(values: Sequence[float]) -> Spread:
    low, median, high = np.percentile(np.asarray(values), [25, 50, 75])
    return Spread(float(median), float(low), float(high))


def ratios(ours: Sequence[float], raw: Sequence[float]) -> Spread:
    """How many times raw, round by round."""
    return spread([mine / theirs for mine, theirs in zip(ours, raw, strict=True)])


Side: TypeAlias = Callable[[int], Any]  # told the number of the operation
AsyncSide: TypeAlias = Callable[[int], Awaitable[Any]]


def measure(sides: Mapping[str, Side], *, rounds: int, operations: int) -> dict[str, Timings]:
    """Time every side: in each round the same operations, the sides in an order drawn anew."""
    timings = {name: Timings() for name in sides}
    for at, name in schedule(sides, rounds):
        side, taken, started_cpu = sides[name], [], time.process_time()
        for number in range(at * operations, (at + 1) * operations):
            started = time.perf_counter()
            side(number)
            taken.append(time.perf_counter() - started)
        _note(timings[name], taken, time.process_time() - started_cpu)
    return timings


async def measure_async(sides: Mapping[str, AsyncSide], *, rounds: int, operations: int) -> dict[str, Timings]:
    """``measure`` for sides that are awaited, one operation after the other."""
    timings = {name: Timings() for name in sides}
    for at, name in schedule(sides, rounds):
        side, taken, started_cpu = sides[name], [], time.process_time()
        for number in range(at * operations, (at + 1) * operations):
            started = time.perf_counter()
            await side(number)
            taken.append(time.perf_counter() - started)
        _note(timings[name], taken, time.process_time() - started_cpu)
    return timings


def schedule(sides: Mapping[str, Any], rounds: int) -> Iterator[tuple[int, str]]:
    """(round, name of a side) for every turn to take."""
    shuffle = random.Random(SEED).shuffle
    for at in range(rounds):
        order = list(sides)
        shuffle(order)
        for name in order:
            yield at, name


def _note(timings: Timings, taken: Sequence[float], cpu: float) -> None:
    timings.wall.append(float(np.median(taken)))
    timings.cpu.append(cpu / len(taken))


# --- what is printed ------------------------------------------------------------------------------


def print_head(title: str, engine: str, notes: Sequence[str] = ()) -> None:
    """The title, what runs, and which peers take part. engine: of ``describe_index``."""
    parser = "libvalkey" if LIBVALKEY_AVAILABLE else "the pure-Python parser"
    busy = os.getloadavg()[0]
    print(
        f"{title}\n{engine}; {os.cpu_count()} cores, load {busy:.1f}; raw: valkey-py {version('valkey')} with {parser}"
    )
    print(f"ours: valkey-retriever {version('valkey-retriever')}; {peers_line()}")
    print(*notes, sep="\n")


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    print(f"\n{title}" if title else "")
    for row in [head, ["-" * width for width in widths], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def verdict(value: float, *, most: float | None = None, least: float | None = None, unit: str = "") -> str:
    """A target and whether it is met."""
    if most is not None:
        return f"<= {most:g}{unit} {'met' if value <= most else 'MISSED'}"
    assert least is not None
    return f">= {least:g}{unit} {'met' if value >= least else 'MISSED'}"


# --- pages of the manual --------------------------------------------------------------------------

BEGIN, END = "<!-- the last run: generated -->\n", "<!-- end of the last run -->\n"


def machine() -> str:
    """Processor, cores, memory and system, as far as they tell."""
    with contextlib.suppress(OSError):
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        return f"{os.cpu_count()} cores of {names[0]}, {memory:.0f} GB, {platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def command_line() -> str:
    """What was typed, without folders."""
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def as_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def write_page(page: Path, generated: str) -> None:
    """Put what a run found between the marks of a page; all else stays."""
    text = page.read_text("utf-8")
    head, found, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{page} has no place for a run: the lines {BEGIN.strip()} and {END.strip()}")
    page.write_text(f"{head}{BEGIN}\n{generated.strip()}\n\n{END}{tail}", "utf-8")


# --- peers ----------------------------------------------------------------------------------------


def version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def peers_line() -> str:
    """Which peers are installed, with versions; or how to have them."""
    found = [f"{name} {version(name)}" for name in ("betterdb-retrieval", "redisvl") if version(name)]
    if not found:
        return "no peers (pip install betterdb-retrieval redisvl adds them)"
    if version("redisvl"):
        parser = f"hiredis {version('hiredis')}" if version("hiredis") else "its pure-Python parser"
        found.append(f"redis-py {version('redis')} with {parser}")
    return "peers: " + ", ".join(found)


def redisvl_index(url: str, name: str, algorithm: str, *, blocking: bool = True) -> Any:
    """redisvl's index object for what ``schema(name)`` declares; makes nothing on the server."""
    vector: dict[str, Any] = {"algorithm": algorithm, "dims": DIMS, "distance_metric": "cosine", "datatype": "float32"}
    declared = {
        "index": {"name": f"{name}:idx", "prefix": name, "storage_type": "hash"},
        "fields": [
            {"name": "category", "type": "tag"},
            {"name": "year", "type": "numeric"},
            {"name": "embedding", "type": "vector", "attrs": vector},
        ],
    }
    module = importlib.import_module("redisvl.index")
    made = importlib.import_module("redisvl.schema").IndexSchema.from_dict(declared)
    index = module.SearchIndex if blocking else module.AsyncSearchIndex
    return index(made, redis_url=url.replace("valkeys://", "rediss://").replace("valkey://", "redis://"))


def redisvl_query(vector: bytes, k: int, category: str | None, ef_runtime: int | None) -> Any:
    """redisvl's nearest-neighbour query, with the fields that ours returns."""
    chosen: Any = None
    if category is not None:
        chosen = importlib.import_module("redisvl.query.filter").Tag("category") == category
    make = importlib.import_module("redisvl.query").VectorQuery
    fields = ["__text", "category", "year"]
    return make(vector, "embedding", fields, chosen, num_results=k, ef_runtime=ef_runtime)


def betterdb_retriever(client: Any, name: str, algorithm: str, embed: Callable[[str], Awaitable[Any]]) -> Any:
    """betterdb-retrieval's retriever for what ``schema(name)`` declares; client: a valkey.asyncio one."""
    declared = {
        "fields": {"category": {"type": "tag"}, "year": {"type": "numeric"}},
        "vector": {"algorithm": algorithm, "metric": "cosine", "dims": DIMS},
    }
    make = importlib.import_module("betterdb_retrieval").Retriever
    return make(client, name, declared, embed_fn=embed, analytics=False)


def betterdb_entry(id: str, text: str, fields: Mapping[str, Any]) -> Any:
    """betterdb-retrieval's document."""
    return importlib.import_module("betterdb_retrieval").UpsertEntry(id=id, text=text, fields=dict(fields))
