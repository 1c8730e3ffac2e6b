"""The command ``retriever``: demo, serve; create, load, query, get, delete, info, drop; and ``memory`` from its module.

Rule: a command is a few lines over the library. What went wrong is one sentence on stderr; exit code 1
is the server's or the input's fault, 2 a command line that cannot be understood. Only ``create`` reads a
schema from a file; every other command is told by the live index what its fields are.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console
from typer.core import TyperGroup
from valkey import Valkey
from valkey.exceptions import ConnectionError as Unreachable
from valkey.exceptions import ValkeyClusterException, ValkeyError

from fields.errors import InvalidInput
from fields.kinds import Text
from retriever.client import Retriever
from retriever.declared import live_schema, read_schema
from retriever.demo import run as run_demo
from retriever.documents import Document, FusedHit, Hit, Hits, IndexReport, UpsertReport, interruption
from retriever.embedded import EmbeddedServer
from retriever.embedders import LocalEmbedder
from retriever.errors import MissingExtra, RetrieverError, SchemaMismatch, ServerError
from retriever.evaluation_cli import convert, evaluate
from retriever.explain import Explanation, Unanswered, quoted
from retriever.fusion import Append, Fusion, Linear, Rrf
from retriever.jsonlines import JsonLines
from retriever.mcp_cli import mcp
from retriever.memory_cli import app as memory
from retriever.schema import Schema
from retriever.screen import (
    asker,
    discreet,
    hits_table,
    plain,
    print_facts,
    print_json,
    progress,
    say,
    table_console,
)

SHOWN_FAILURES = 10  # of a load, on stderr; --json has all

# --- what commands share: options -----------------------------------------------------------------

Url = Annotated[
    str | None,
    typer.Option(
        envvar="VALKEY_URL", help="Server with a search module: valkey://, valkeys://, redis://, rediss:// or unix://."
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The server is a node of a cluster.")]
Index = Annotated[str, typer.Option(help="Name of a live index.", show_default=False)]
Condition = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="JSON",
        help='Condition on fields: \'{"category": "db", "year": {"gte": 2020}}\'.',
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines; several things are a line each.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show the commands instead; those that only read are sent, no other is.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Fusing(StrEnum):
    """What ``--fusion`` takes."""

    rrf = "rrf"
    linear = "linear"
    append = "append"


@dataclass(frozen=True, slots=True)
class _Server:
    """What a command is told of where to go."""

    url: str | None
    cluster: bool


class _Group(TyperGroup):
    """Usage errors repeat what was typed; of a URL among it user and password are left out."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command of the context."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if isinstance(said := getattr(error, "message", None), str):
                with suppress(AttributeError):  # of an ExceptionGroup it cannot be set
                    error.message = discreet(said)  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"retriever {version('valkey-retriever')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Valkey as a retriever: see it work, run an engine, make an index, fill it, ask it."""


app.add_typer(memory, name="memory")
app.command("mcp")(mcp)


def run() -> None:
    """Run the command line. Ends the process: 0, 1 with a sentence on stderr, or 2 for usage."""
    # So that a supervisor's SIGTERM unwinds as Ctrl-C does: index dropped, engine stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (RetrieverError, ValkeyError, ValkeyClusterException, OSError) as error:
        # Not of its kinds, such as a wrong password, which the server itself tells.
        silent = type(error) is Unreachable
        say(f"no server answers: {error} `retriever serve` starts one" if silent else str(error))
        raise SystemExit(1) from None


# --- the commands ---------------------------------------------------------------------------------


@app.command()
def demo(url: Url = None, cluster: Cluster = False) -> None:
    """Load 300 documents and ask them in eight ways.

    Starts an engine of its own unless there is a URL. Takes seconds and leaves nothing behind.
    """
    if cluster and url is None:
        raise typer.BadParameter("the demo's own engine is none; name a node with --url", param_hint="--cluster")
    run_demo(url, cluster=cluster)


@app.command()
def serve(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder that keeps index and documents; without it nothing is kept.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port on 127.0.0.1, 0 for a free one; without it a Unix socket."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run Valkey with a search module in the foreground, for development.

    Prints its URL. Ctrl-C or SIGTERM stops it.
    """
    with suppress(KeyboardInterrupt), EmbeddedServer(data_dir, port=port) as url, Valkey.from_url(url) as client:
        version = client.info("server")["valkey_version"]
        kept = f"Index and documents are kept in {data_dir}." if data_dir else "Nothing is kept."
        if as_json:
            print_json({"url": url, "version": version, "data_dir": str(data_dir) if data_dir else None})
        else:
            typer.echo(f"Valkey {version} with RediSearch is running. {kept} Ctrl-C stops it.")
            typer.echo(f"\n    export VALKEY_URL={url}\n")
        while True:
            time.sleep(1)
            try:
                client.ping()
            except ValkeyError as error:
                raise ServerError(f"the engine at {url} has ended") from error


@app.command()
def create(
    schema_file: Annotated[
        Path,
        typer.Argument(
            metavar="SCHEMA.toml", exists=True, dir_okay=False, help="Name, fields, vector and analysis of the index."
        ),
    ],
    url: Url = None,
    cluster: Cluster = False,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Make the index that a file declares, unless it is there.

    Another index of that name is left as it is, and what differs is said.
    Without dims in the file the index is for LocalEmbedder's vectors.
    """
    schema = read_schema(schema_file)
    embed = LocalEmbedder() if schema.vector.dims is None else None
    with _explaining(explain, as_json) as watch, _connect(_Server(url, cluster), schema, watch, embed=embed) as docs:
        try:
            made = docs.create_index()
        except SchemaMismatch as error:
            if not error.differences:
                raise
            if as_json and not explain:
                print_json({"index": schema.name, "created": False, "differences": error.differences})
            said = "; ".join(error.differences)
            raise SchemaMismatch(f"index {schema.name!r} is not what {schema_file} declares: {said}") from None
        if as_json and not explain:
            print_json({"index": schema.name, "created": made, "differences": []})
        elif not explain:
            typer.echo(f"index {schema.name!r} {'created' if made else 'is already there, as declared'}")


@app.command()
def load(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help="One JSON object a line: id, text, declared fields and, if it has one, vector. - is stdin.",
        ),
    ],
    index: Index,
    url: Url = None,
    cluster: Cluster = False,
    text_field: Annotated[str, typer.Option(help="Key of the text.")] = "text",
    id_field: Annotated[str, typer.Option(help="Key of the id.")] = "id",
    batch_size: Annotated[int, typer.Option(min=1, max=10_000, help="Documents per round trip.")] = 100,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Pass over keys that are not declared.")
    ] = False,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Write documents into a live index, each replacing the one of its id.

    A line without a vector is embedded with LocalEmbedder. A line that is
    wrong stops the load before its batch is written; loading again is safe.
    """
    server = _Server(url, cluster)
    with _explaining(explain, as_json) as watch, _reading(file) as stream:
        schema, described = _described(server, index, watch)
        place = "stdin" if str(file) == "-" else str(file)
        lines = JsonLines(
            stream, place, schema, id_field=id_field, text_field=text_field, ignore_unknown=ignore_unknown
        )
        size = None if place == "stdin" else file.stat().st_size or None  # a named pipe has no size
        report, unknown = UpsertReport(), 0
        try:
            embed, documents = _embedding(described, iter(lines))
            with (
                _connect(server, schema, watch, embed=embed) as docs,
                progress(Console(stderr=True, quiet=explain), size) as tell,
            ):

                def on_batch(ids: Sequence[str]) -> None:
                    lines.written(len(ids))
                    tell(lines.bytes_read, _documents(lines.documents))

                report = docs.upsert(documents, batch_size=batch_size, on_batch=on_batch)
        except BaseException as error:
            stopped = interruption(error)
            if stopped is not None:
                report = stopped.report
                # A batch that is wrong or not embedded was not sent; of one that may have been nobody knows.
                unknown = 0 if isinstance(error, (InvalidInput, MissingExtra)) else len(stopped.in_flight)
            raise lines.placed(error) from None
        finally:
            if not explain:
                _report_load(index, report, unknown, as_json)
    if report.failed:
        raise typer.Exit(1)


@app.command()
def query(
    text: Annotated[str, typer.Argument(help="What to look for, in words.")],
    index: Index,
    url: Url = None,
    cluster: Cluster = False,
    k: Annotated[int, typer.Option("-k", min=1, max=10_000, help="How many hits.")] = 10,
    filter: Condition = None,
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="By words as well; says of every hit why it is there.")
    ] = False,
    fusion: Annotated[
        Fusing | None,
        typer.Option(help="How words and meaning make one ranking; rrf unless said.", show_default=False),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="With --fusion linear: the weight of meaning, 0.5 unless said.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Ask a live index by text, best first.

    It must have been filled with LocalEmbedder's vectors.
    """
    server = _Server(url, cluster)
    condition, how = _condition(filter), _fusion(fusion, alpha, hybrid=hybrid)
    with _explaining(explain, as_json) as watch:
        schema, report = _described(server, index, watch)
        if report.embedder != LocalEmbedder.name:
            raise SchemaMismatch(f"{_made_by(report)}; ask it from Python, with its own embedder")
        if how is not None and schema.analysis is None:
            raise SchemaMismatch(
                f"index {index!r} holds no words: it was made without an analysis; ask without --hybrid"
            )
        with _connect(server, schema, watch, embed=LocalEmbedder()) as docs:
            hits: Hits[Hit] | Hits[FusedHit]
            if how is None:
                hits = docs.query(text=text, k=k, filter=condition)
            else:
                hits = docs.retrieve(text=text, k=k, filter=condition, fusion=how)
    if explain:
        return
    for reason in hits.reasons:
        say(reason if hits.complete else f"not all hits may be here: {reason}")
    if as_json:
        for hit in hits:
            print_json(_row(hit))
    elif hits:
        console = table_console()
        title = next((each.name for each in schema.by_name.values() if isinstance(each, Text)), None)
        names = [name for name in schema.by_name if name != title]
        console.print(hits_table(hits, width=console.width, title=title, fields=names))
    else:
        say("no hits")


@app.command()
def get(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of documents.")],
    index: Index,
    url: Url = None,
    cluster: Cluster = False,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Print documents by id.

    An id without a document is said, and ends with 1.
    """
    server = _Server(url, cluster)
    with _explaining(explain, as_json) as watch, _connect(server, _schema(server, index, watch), watch) as docs:
        found = docs.get(ids)
    if explain:
        return
    console = table_console()
    for document in (each for each in found if each is not None):
        if as_json:
            print_json(_row(document))
        else:
            facts = {"id": document.id, "text": document.text, **document.fields}
            print_facts(console, *((name, plain(_readable(value))) for name, value in facts.items()))
            console.print()
    missing = [id for id, document in zip(ids, found, strict=True) if document is None]
    if missing:
        say(f"no document {', '.join(map(repr, missing))} in index {index!r}")
        raise typer.Exit(1)


@app.command()
def delete(
    index: Index,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of documents.", show_default=False)] = None,
    url: Url = None,
    cluster: Cluster = False,
    filter: Condition = None,
    everything: Annotated[bool, typer.Option("--everything", help="Delete every document.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Delete documents by id, or all that pass a filter.

    Asks first; in a pipe it needs --yes.
    """
    server = _Server(url, cluster)
    condition = {} if everything and filter is None else _condition(filter)
    if bool(ids) == (condition is not None):
        raise typer.BadParameter("one of them is needed, and one only", param_hint="ID... / --filter / --everything")
    if condition is not None and bool(condition) == everything:
        raise typer.BadParameter(
            "every document is deleted by --everything alone, and by no empty filter", param_hint="--filter"
        )
    ask = asker(silent=yes or explain)
    with _explaining(explain, as_json) as watch, _connect(server, _schema(server, index, watch), watch) as docs:
        what = _documents(len(ids)) if ids else "every document" if everything else f"what passes {filter}"
        ask(f"Delete {what} in index {index!r}?")
        deleted = (
            docs.delete(ids, everything=everything) if ids else docs.delete(filter=condition, everything=everything)
        )
    if explain:
        if not as_json:
            typer.echo(f"{_documents(deleted)} would be deleted from index {index!r}")
    elif as_json:
        print_json({"index": index, "deleted": deleted})
    else:
        typer.echo(f"{_documents(deleted)} deleted from index {index!r}")


@app.command()
def info(
    index: Index, url: Url = None, cluster: Cluster = False, as_json: AsJson = False, explain: Explain = False
) -> None:
    """Tell what a live index is: engine, documents, vector, fields, progress, failures."""
    with _explaining(explain, as_json) as watch:
        schema, report = _described(_Server(url, cluster), index, watch)
    if explain:
        return
    if as_json:
        print_json({**asdict(report), "schema": json.loads(schema.to_json())})
        return
    filled = f", {report.percent_indexed:.0f} % indexed so far" if report.indexing else ""
    last = f"; the last, {report.last_error_key}: {report.last_error}" if report.last_error else ""
    print_facts(
        table_console(),
        ("index", f"{report.name}, keys {report.prefix}*"),
        ("engine", report.engine),
        ("documents", f"{report.documents:,}{filled}"),
        ("refused", f"{report.failures:,}{plain(last)}"),
        ("vector", f"{schema.vector.name}: {report.dims} dims, {report.algorithm}, {report.metric}"),
        ("embedder", plain(report.embedder or "without a name")),
        ("fields", ", ".join(f"{name} ({each.kind.lower()})" for name, each in schema.by_name.items()) or "none"),
        ("analysis", schema.analysis.language if schema.analysis else "none"),
    )


@app.command()
def drop(
    index: Index,
    url: Url = None,
    cluster: Cluster = False,
    delete_documents: Annotated[
        bool, typer.Option("--delete-documents", help="The documents too; otherwise they stay.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    explain: Explain = False,
) -> None:
    """Drop a live index. Asks first; in a pipe it needs --yes.

    Documents that stay are indexed again by `create`, with the same schema.
    """
    server = _Server(url, cluster)
    ask = asker(silent=yes or explain)
    with _explaining(explain, as_json) as watch, _connect(server, _schema(server, index, watch), watch) as docs:
        ask(f"Drop index {index!r}{' and delete its documents' if delete_documents else ''}?")
        deleted = docs.drop_index(delete_documents=delete_documents)
    if as_json and not explain:
        print_json({"index": index, "dropped": True, "deleted": deleted})
    elif not explain:
        typer.echo(
            f"index {index!r} dropped, {f'{_documents(deleted)} deleted' if delete_documents else 'documents kept'}"
        )


app.command("eval")(evaluate)
app.command("convert")(convert)

# --- reaching an index ----------------------------------------------------------------------------


def _connect(
    server: _Server, schema: Schema, watch: Explanation | None, *, embed: LocalEmbedder | None = None
) -> Retriever:
    docs = Retriever.connect(server.url, schema, embed=embed, cluster=server.cluster)
    if watch is not None:
        link: Any = watch.between(docs._driver.link)
        docs._driver.link = link
    return docs


def _schema(server: _Server, index: str, watch: Explanation | None) -> Schema:
    """The schema that the live index was made with."""
    with _connect(server, Schema(index), watch) as unknown:
        return live_schema(unknown)


def _described(server: _Server, index: str, watch: Explanation | None) -> tuple[Schema, IndexReport]:
    schema = _schema(server, index, watch)
    with _connect(server, schema, watch) as docs:
        return schema, docs.describe_index()


def _embedding(report: IndexReport, documents: Iterator[Document]) -> tuple[LocalEmbedder | None, Iterator[Document]]:
    """The embedder for documents without a vector, and the documents.

    LocalEmbedder, if it made the vectors that are there, or if there are none and it makes the first; otherwise
    None, and a document without a vector is an error.
    """
    first = list(islice(documents, 1))
    unfilled = report.embedder is None and report.documents == 0 and report.dims == LocalEmbedder.dims
    if report.embedder == LocalEmbedder.name or (unfilled and first and first[0].vector is None):
        return LocalEmbedder(), chain(first, documents)
    return None, _with_vectors(chain(first, documents), _made_by(report))


def _with_vectors(documents: Iterable[Document], otherwise: str) -> Iterator[Document]:
    for document in documents:
        if document.vector is None:
            raise InvalidInput(f"document {document.id!r} has no vector, and {otherwise}")
        yield document


def _made_by(report: IndexReport) -> str:
    made = f"by {report.embedder!r}" if report.embedder else "by an embedder without a name"
    return f"the vectors of index {report.name!r} were made {made}, and this command embeds with {LocalEmbedder.name!r}"


@contextmanager
def _explaining(explain: bool, as_json: bool) -> Iterator[Explanation | None]:
    """With ``--explain``, what stands between; the commands are printed as they come."""
    if not explain:
        yield None
        return

    def show(words: list[str], sent: bool) -> None:
        print_json({"sent": sent, "command": words})

    lines = _Lines()
    try:
        yield Explanation(show if as_json else lines.show)
    except Unanswered as end:
        if not as_json:
            lines.end(str(end))
    lines.end()


class _Lines:
    """Commands for people to read: of many that differ in their second word alone, the first, and how many follow."""

    def __init__(self) -> None:
        self._last: tuple[bool, list[str], list[str]] | None = None
        self._more = 0

    def show(self, words: list[str], sent: bool) -> None:
        alike = sent, words[:1], words[2:]
        if alike == self._last:
            self._more += 1
            return
        self.end()
        self._last = alike
        typer.echo(f"{'sent' if sent else 'not sent':10}{quoted(words)}")

    def end(self, *notes: str) -> None:
        """Say what was left out, and the notes."""
        if self._more:
            notes = (f"and {self._more:,} more like it, for other keys", *notes)
        self._more, self._last = 0, None
        for note in notes:
            typer.echo(f"{'':10}{note}")


# --- what comes in --------------------------------------------------------------------------------


def _condition(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        condition = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--filter") from None
    if not isinstance(condition, dict):
        raise typer.BadParameter(f"a JSON object expected, not {text}", param_hint="--filter")
    return condition


def _fusion(named: Fusing | None, alpha: float | None, *, hybrid: bool) -> Fusion | None:
    """How to fuse; None is a query by meaning alone."""
    for value, option in ((named, "--fusion"), (alpha, "--alpha")):
        if value is not None and not hybrid:
            raise typer.BadParameter("it fuses words and meaning, so it needs --hybrid", param_hint=option)
    if alpha is not None and named is not Fusing.linear:
        raise typer.BadParameter("it is the weight of --fusion linear, and of no other", param_hint="--alpha")
    if not hybrid:
        return None
    match named:
        case Fusing.linear:
            return Linear() if alpha is None else Linear(alpha)
        case Fusing.append:
            return Append()
    return Rrf()


@contextmanager
def _reading(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
    elif not file.exists() or file.is_dir():
        raise typer.BadParameter(f"{str(file)!r} is no file", param_hint="FILE.jsonl")
    else:
        with file.open("rb") as stream:
            yield stream


# --- what goes out --------------------------------------------------------------------------------


def _documents(count: int) -> str:
    return f"{count:,} document{'' if count == 1 else 's'}"


def _row(found: Document | Hit | FusedHit) -> dict[str, Any]:
    why: dict[str, Any] = {}
    if isinstance(found, Hit):
        why = {"score": found.score}
    elif isinstance(found, FusedHit):
        names = ("fused_score", "vector_distance", "text_score", "channels", "ranks", "contributions", "terms")
        why = {name: getattr(found, name) for name in names}
    return {"id": found.id, **why, "text": found.text, "fields": dict(found.fields)}


def _readable(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _report_load(index: str, report: UpsertReport, unknown: int, as_json: bool) -> None:
    if as_json:
        failed = [asdict(failure) for failure in report.failed]
        print_json({"index": index, "written": report.written, "unknown": unknown, "failed": failed})
        return
    refused = f", {len(report.failed)} refused" if report.failed else ""
    lost = f", of {unknown} more it is not known" if unknown else ""
    typer.echo(f"{_documents(report.written)} written to index {index!r}{refused}{lost}")
    for failure in report.failed[:SHOWN_FAILURES]:
        say(f"document {failure.id!r}: {failure.reason}")
    if len(report.failed) > SHOWN_FAILURES:
        say(f"and {len(report.failed) - SHOWN_FAILURES} more; --json lists all")
