"""What ``retriever demo`` shows: 300 short documents, asked in six ways, with the code that asks.

Rule: every line of code that is printed is the line that runs beside it. The demo makes an index under
a name of its own and drops it, however it ends; nothing else on the server is read or written.
"""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text as Line

from fields.kinds import Numeric, Stored, Tag, Text
from retriever.client import AsyncRetriever, Retriever
from retriever.documents import Document, Hit, Hits
from retriever.embedded import EmbeddedServer
from retriever.embedders import LocalEmbedder
from retriever.errors import RetrieverError
from retriever.schema import Schema

FIELDS = (Tag("category"), Tag("tags", many=True), Numeric("year"), Text("title", weight=2.0), Stored("url"))
SHOWN = ("category", "year", "tags")
BATCH_SIZE = 20  # small, so that the progress bar moves; embedding is what takes the time
WIDTH = 100

QUESTIONS = (
    "vegetarian food",
    "is there wifi on the ship",
    "someone fell into the water",
    "how are backups made",
    "may I use AI to write code",
)


def run(url: str | None) -> None:
    """Show the library at work on the server of the URL; None starts an embedded one for the time being."""
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
        docs = stack.enter_context(Retriever.connect(url, schema, embed=embed))
        stack.callback(docs.drop_index, delete_documents=True)
        docs.create_index()
        started = time.perf_counter()
        with _progress(console, len(documents)) as advance:
            docs.upsert(documents, batch_size=BATCH_SIZE, on_batch=advance)
        fill_s = time.perf_counter() - started

        report = docs.describe_index()
        where = f"embedded, started in {start_s:.2f} s" if embedded else "yours, at --url or VALKEY_URL"
        console.print()
        _facts(
            console,
            ("engine", f"{report.engine} ({where})"),
            ("embedder", f"{report.embedder}, {report.dims} dims, loaded in {load_s:.2f} s"),
            ("index", f"{report.documents} documents of a ferry company, embedded and written in {fill_s:.1f} s"),
            ("distance", f"{report.metric.lower()}: 0 is the same, lower is closer"),
        )
        _ask(console, docs)
        _ask_together(console, url, schema, embed)
    console.print()
    console.print("Gone again: the index and its documents" + (", the engine and its folder." if embedded else "."))
    console.print("Next: README.md and the scripts in examples/.")


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
    def show(number: int, title: str, code: str, ask: Callable[[], Hits[Hit]], note: str) -> None:
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


def _ask_together(console: Console, url: str, schema: Schema, embed: LocalEmbedder) -> None:
    async def ask() -> list[Hits[Hit]]:
        async with AsyncRetriever.connect(url, schema, embed=embed) as docs:
            return await asyncio.gather(*(docs.query(text=text, k=1) for text in QUESTIONS))

    started = time.perf_counter()
    answers = asyncio.run(ask())
    total_ms = 1000 * (time.perf_counter() - started)
    _heading(
        console,
        f"6  Async: {len(QUESTIONS)} questions at the same time",
        "async with AsyncRetriever.connect(url, schema, embed=embed) as docs:\n"
        "    await asyncio.gather(*(docs.query(text=text, k=1) for text in questions))",
        f"{total_ms:.1f} ms for all, connecting included",
    )
    table = _table(None)
    table.add_column("distance", justify="right", style="cyan", no_wrap=True, min_width=8)
    question_width = max(map(len, QUESTIONS))
    id_width = max(len(hits[0].id) for hits in answers)
    table.add_column("question", width=question_width, no_wrap=True)
    table.add_column("id", style="green", width=id_width, no_wrap=True)
    table.add_column("title", style="bold", width=console.width - question_width - id_width - 16, no_wrap=True)
    for question, hits in zip(QUESTIONS, answers, strict=True):
        table.add_row(_number(hits[0].score), question, hits[0].id, hits[0].fields["title"])
    console.print(table)


# --- how it looks ---------------------------------------------------------------------------------


def table_console() -> Console:
    """A console for tables: as wide as the terminal, within 60 and 120; 100 columns without a terminal."""
    console = Console(highlight=False)
    console.width = max(60, min(console.width, 120)) if console.is_terminal else WIDTH
    return console


def hits_table(hits: Hits[Hit], *, width: int, title: str | None, fields: Sequence[str]) -> Table:
    """A few lines a hit: distance and id beside title, text and fields; the reranker's number if it gave one.

    title: a field shown in bold above the text. fields: names shown as name=value below it.
    """
    table = _table(width)
    reranked = any(hit.rerank_score is not None for hit in hits)
    if reranked:
        table.add_column("rerank", justify="right", style="magenta")
    table.add_column("distance", justify="right", style="cyan")
    id_width = max(2, min(max(len(hit.id) for hit in hits), width // 4))
    table.add_column("id", style="green", width=id_width, no_wrap=True)
    text_width = width - id_width - (22 if reranked else 14)  # 6 and 8 for the numbers, 2 between columns
    table.add_column("text and fields", width=text_width)
    for hit in hits:
        rerank = ("" if hit.rerank_score is None else f"{hit.rerank_score:g}",) if reranked else ()
        lines = Line()
        if title is not None and title in hit.fields:
            lines.append(f"{_plain(str(hit.fields[title]))}\n", style="bold")
        lines.append("\n".join(textwrap.wrap(_plain(hit.text), text_width, max_lines=2, placeholder=" ...")))
        shown = "  ".join(f"{name}={_plain(_value(hit.fields[name]))}" for name in fields if name in hit.fields)
        lines.append(f"\n{shown}" if shown else "", style="dim")
        table.add_row(*rerank, _number(hit.score), Line(_plain(hit.id)), lines)
    return table


def _plain(text: str) -> str:
    """One line that cannot steer a terminal: documents may come from anywhere."""
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))


def _value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number(distance: float) -> str:
    return f"{distance:.3f}".replace("-0.000", "0.000")  # an engine's rounding may leave -1e-7


def _table(width: int | None) -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), width=width, header_style="dim")


def _heading(console: Console, title: str, code: str, timing: str) -> None:
    console.print()
    head = Line(title, style="bold")
    head.append(timing.rjust(max(2, console.width - len(title))), style="dim")
    console.print(head)
    for line in code.splitlines():
        console.print(Line(f"   {line}", style="yellow"))
    console.print()


def _facts(console: Console, *facts: tuple[str, str]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in facts:
        table.add_row(name, Line(value))
    console.print(table)


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[Sequence[str]], None]]:
    """A bar while documents are written, in a terminal only; gives what ``on_batch`` takes."""
    bar = Progress(
        TextColumn("embedding and writing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda ids: bar.advance(task, len(ids))
