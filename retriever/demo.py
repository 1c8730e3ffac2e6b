"""What ``retriever demo`` shows: 300 short documents, asked in eight ways, with the code that asks.

Rule: every line of code that is printed is the line that runs beside it. The demo makes an index under
a name of its own and drops it, however it ends; nothing else on the server is read or written.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text as Line

from fields.kinds import Numeric, Stored, Tag, Text
from retriever.client import AsyncRetriever, Retriever
from retriever.documents import Document, FusedHit, Hit, Hits
from retriever.embedded import EmbeddedServer
from retriever.embedders import LocalEmbedder
from retriever.errors import NotSupported, RetrieverError
from retriever.schema import Schema
from retriever.screen import bare_table, hits_table, number, print_facts, progress, table_console

FIELDS = (Tag("category"), Tag("tags", many=True), Numeric("year"), Text("title", weight=2.0), Stored("url"))
SHOWN = ("category", "year", "tags")
BATCH_SIZE = 20  # small, so that the progress bar moves; embedding is what takes the time

QUESTIONS = (
    "vegetarian food",
    "is there wifi on the ship",
    "someone fell into the water",
    "how are backups made",
    "may I use AI to write code",
)


def run(url: str | None, *, cluster: bool = False) -> None:
    """Show the library at work on the server of the URL; None starts an embedded one for the time being.

    cluster: the server is a node of a cluster.
    """
    console = table_console()
    documents = corpus()
    with ExitStack() as stack:
        started = time.perf_counter()
        embedded = url is None
        if url is None:
            url = stack.enter_context(EmbeddedServer())
        start_s = time.perf_counter() - started

        started = time.perf_counter()
        embed = LocalEmbedder()
        embed(["warm"])
        load_s = time.perf_counter() - started

        schema = Schema(f"retriever-demo-{uuid.uuid4().hex[:8]}", FIELDS)
        docs = stack.enter_context(Retriever.connect(url, schema, embed=embed, cluster=cluster))
        stack.callback(_drop, docs)
        docs.create_index()
        started = time.perf_counter()
        written = 0
        with progress(console, len(documents)) as tell:

            def on_batch(ids: Sequence[str]) -> None:
                nonlocal written
                written += len(ids)
                tell(written, f"{written}/{len(documents)}")

            docs.upsert(documents, batch_size=BATCH_SIZE, on_batch=on_batch)
        fill_s = time.perf_counter() - started

        report = docs.describe_index()
        where = f"embedded, started in {start_s:.2f} s" if embedded else "yours, at --url or VALKEY_URL"
        console.print()
        print_facts(
            console,
            ("engine", f"{report.engine} ({where})"),
            ("embedder", f"{report.embedder}, {report.dims} dims, loaded in {load_s:.2f} s"),
            ("index", f"{report.documents} documents of a ferry company, embedded and written in {fill_s:.1f} s"),
            ("distance", f"{report.metric.lower()}: 0 is the same, lower is closer"),
            ("fused", "of words and distance together: higher is better"),
        )
        _ask(console, docs)
        _ask_together(console, url, schema, embed, cluster=cluster)
    console.print()
    console.print("Gone again: the index and its documents" + (", the engine and its folder." if embedded else "."))
    console.print("Next: README.md and the scripts in examples/.")


def _drop(docs: Retriever) -> None:
    with suppress(NotSupported):  # where there is no index to make; create_index() says so better
        docs.drop_index(delete_documents=True)


def corpus() -> list[Document]:
    """The example documents: of the installed package, else of the checkout it runs from."""
    here = Path(__file__).resolve()
    places = (here.with_name("corpus.jsonl"), here.parents[1] / "examples" / "corpus.jsonl")
    for place in places:
        if place.is_file():
            lines = place.read_text(encoding="utf-8").split("\n")  # splitlines() also cuts at U+2028
            return [_document(json.loads(line)) for line in lines if line.strip()]
    raise RetrieverError(f"the example documents are missing: neither {places[0]} nor {places[1]} is there")


def _document(row: dict[str, object]) -> Document:
    return Document(str(row["id"]), str(row["text"]), {field.name: row[field.name] for field in FIELDS})


def words_in_common(text: str, hits: Sequence[Hit]) -> Iterator[tuple[Hit, int]]:
    """A reranker of three lines: how many words of the query a hit holds, those of its title twice."""
    wanted = _words(text)
    for hit in hits:
        yield hit, 2 * len(wanted & _words(hit.fields["title"])) + len(wanted & _words(hit.text))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]+", text.lower()))


def _ask(console: Console, docs: Retriever) -> None:
    def show(number: int, title: str, code: str, ask: Callable[[], Hits[Hit] | Hits[FusedHit]], note: str) -> None:
        started = time.perf_counter()
        hits = ask()
        total_ms = 1000 * (time.perf_counter() - started)
        _heading(console, f"{number}  {title}", code, f"{total_ms:.1f} ms, {hits.stats['search_ms']:.1f} at the engine")
        console.print(hits_table(hits, width=console.width, title="title", fields=SHOWN))
        console.print(f"   {note}", style="dim")

    show(
        1,
        "By meaning",
        'docs.query(text="can I bring my dog", k=3)',
        lambda: docs.query(text="can I bring my dog", k=3),
        "The best answer shares no word with the question.",
    )
    show(
        2,
        "With a tag",
        'docs.query(text="payment for being available at night", k=2,\n           filter={"tags": "on-call"})',
        lambda: docs.query(text="payment for being available at night", k=2, filter={"tags": "on-call"}),
        "The engine filters before it ranks, so two on-call documents come back.",
    )
    show(
        3,
        "With a tag and a range of numbers",
        'docs.query(text="allergic reaction", k=2,\n'
        '           filter={"category": "incident",\n'
        '                   "year": {"between": [2020, 2022]}})',
        lambda: docs.query(
            text="allergic reaction", k=2, filter={"category": "incident", "year": {"between": [2020, 2022]}}
        ),
        "A distance tells how far the others are: only the first is about it.",
    )
    cake = docs.get("incident-2021-09", return_vectors=True)
    assert cake is not None  # it was written above
    show(
        4,
        "By a vector: what else is there about that cake?",
        'cake = docs.get("incident-2021-09", return_vectors=True)\n'
        "docs.query(vector=cake.vector, k=2,\n"
        '           filter=(Tag("category") == "kitchen") & (Numeric("year") >= 2020))',
        lambda: docs.query(vector=cake.vector, k=2, filter=(Tag("category") == "kitchen") & (Numeric("year") >= 2020)),
        "A filter may be an expression too.",
    )
    before = [hit.id for hit in docs.query(text="HX-4410", k=2)]
    show(
        5,
        "Reranked by a function of yours",
        'docs.query(text="HX-4410", k=2, rerank=words_in_common, candidates=20)',
        lambda: docs.query(text="HX-4410", k=2, rerank=words_in_common, candidates=20),
        f"By distance alone the order is {', '.join(before)}.",
    )
    nearest = docs.query(text="Q-77120", k=1)[0].id
    show(
        6,
        "By words and by meaning: what vectors alone miss",
        'docs.retrieve(text="Q-77120", k=2)',
        lambda: docs.retrieve(text="Q-77120", k=2),
        f"By distance alone {nearest} comes first. The line below each says why it is there.",
    )
    worded = docs.retrieve(text="can my child cross by itself", k=1, channels=["text"])[0].id
    show(
        7,
        "The same, for what words alone miss",
        'docs.retrieve(text="can my child cross by itself", k=2)',
        lambda: docs.retrieve(text="can my child cross by itself", k=2),
        f"By words alone {worded} comes first.",
    )


def _ask_together(console: Console, url: str, schema: Schema, embed: LocalEmbedder, *, cluster: bool) -> None:
    async def ask() -> list[Hits[Hit]]:
        async with AsyncRetriever.connect(url, schema, embed=embed, cluster=cluster) as docs:
            return await asyncio.gather(*(docs.query(text=text, k=1) for text in QUESTIONS))

    started = time.perf_counter()
    answers = asyncio.run(ask())
    total_ms = 1000 * (time.perf_counter() - started)
    _heading(
        console,
        f"8  Async: {len(QUESTIONS)} questions at the same time",
        "async with AsyncRetriever.connect(url, schema, embed=embed) as docs:\n"
        "    await asyncio.gather(*(docs.query(text=text, k=1) for text in questions))",
        f"{total_ms:.1f} ms for all, connecting included",
    )
    table = bare_table(None)
    table.add_column("distance", justify="right", style="cyan", no_wrap=True, min_width=8)
    question_width = max(map(len, QUESTIONS))
    id_width = max(len(hits[0].id) for hits in answers)
    table.add_column("question", width=question_width, no_wrap=True)
    table.add_column("id", style="green", width=id_width, no_wrap=True)
    table.add_column("title", style="bold", width=console.width - question_width - id_width - 16, no_wrap=True)
    for question, hits in zip(QUESTIONS, answers, strict=True):
        table.add_row(number(hits[0].score), question, hits[0].id, hits[0].fields["title"])
    console.print(table)


def _heading(console: Console, title: str, code: str, timing: str) -> None:
    console.print()
    head = Line(title, style="bold")
    head.append(timing.rjust(max(2, console.width - len(title))), style="dim")
    console.print(head)
    for line in code.splitlines():
        console.print(Line(f"   {line}", style="yellow"))
    console.print()
