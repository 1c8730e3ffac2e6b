"""The command ``retriever``: demo, serve, query.

Rule: a command is a few lines over the library. What went wrong is one sentence on stderr; exit code 1
is the server's or the input's fault, 2 a command line that cannot be understood.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from valkey import Valkey
from valkey.exceptions import ValkeyError

from fields.kinds import Text
from retriever.client import Retriever
from retriever.demo import hits_table, table_console
from retriever.demo import run as run_demo
from retriever.documents import Hit
from retriever.embedded import EmbeddedServer
from retriever.embedders import LocalEmbedder
from retriever.errors import IndexMissing, RetrieverError, SchemaMismatch, ServerError
from retriever.operations.index import stored_schema
from retriever.schema import Schema

app = typer.Typer(
    help="Valkey as a retriever: see it work, run an engine, ask an index.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Url = Annotated[
    str | None,
    typer.Option(
        envvar="VALKEY_URL", help="Server with a search module: valkey://, valkeys://, redis://, rediss:// or unix://."
    ),
]


def run() -> None:
    """Run the command line. Ends the process: 0, 1 with a sentence on stderr, or 2 for usage."""
    # So that a supervisor's SIGTERM unwinds as Ctrl-C does: index dropped, engine stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (RetrieverError, ValkeyError, OSError) as error:
        sys.stderr.write(f"retriever: {error}\n")
        raise SystemExit(1) from None


@app.command()
def demo(url: Url = None) -> None:
    """Load 300 documents and ask them in six ways.

    Starts an engine of its own unless there is a URL. Takes seconds and leaves nothing behind.
    """
    run_demo(url)


@app.command()
def serve(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder that keeps index and documents; without it nothing is kept.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port on 127.0.0.1, 0 for a free one; without it a Unix socket."),
    ] = None,
) -> None:
    """Run Valkey with a search module in the foreground, for development.

    Prints its URL. Ctrl-C or SIGTERM stops it.
    """
    with suppress(KeyboardInterrupt), EmbeddedServer(data_dir, port=port) as url, Valkey.from_url(url) as client:
        kept = f"Index and documents are kept in {data_dir}." if data_dir else "Nothing is kept."
        typer.echo(
            f"Valkey {client.info('server')['valkey_version']} with RediSearch is running. {kept} Ctrl-C stops it."
        )
        typer.echo(f"\n    export VALKEY_URL={url}\n")
        while True:
            time.sleep(1)
            try:
                client.ping()
            except ValkeyError as error:
                raise ServerError(f"the engine at {url} has ended") from error


@app.command()
def query(
    text: Annotated[str, typer.Argument(help="What to look for, in words.")],
    index: Annotated[str, typer.Option(help="Name of a live index.")],
    url: Url = None,
    k: Annotated[int, typer.Option("-k", min=1, max=10_000, help="How many hits.")] = 10,
    filter: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='Condition on fields: \'{"category": "db", "year": {"gte": 2020}}\'.',
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per hit and line, no table.")] = False,
) -> None:
    """Ask a live index by text, nearest first.

    The index says what its fields are. It must have been filled with LocalEmbedder's vectors.
    """
    condition = _condition(filter)
    schema = _open(url, index)
    with Retriever.connect(url, schema, embed=LocalEmbedder()) as docs:
        hits = docs.query(text=text, k=k, filter=condition)
    for reason in hits.reasons:
        typer.echo(f"retriever: not all hits may be here: {reason}", err=True)
    if as_json:
        for hit in hits:
            typer.echo(_json(hit))
    elif hits:
        console = table_console()
        title = next((each.name for each in schema.by_name.values() if isinstance(each, Text)), None)
        names = [name for name in schema.by_name if name != title]
        console.print(hits_table(hits, width=console.width, title=title, fields=names))
    else:
        typer.echo("retriever: no hits", err=True)


def _condition(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        condition = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--filter") from None
    if not isinstance(condition, dict):
        raise typer.BadParameter(f"a JSON object expected, not {text}", param_hint="--filter")
    return condition


def _open(url: str | None, index: str) -> Schema:
    """The schema that the live index was made with, if its vectors are LocalEmbedder's."""
    with Retriever.connect(url, Schema(index)) as unknown:
        try:
            schema = unknown._run("stored_schema", stored_schema(index))
        except IndexMissing as error:
            raise IndexMissing(f"no index {index!r} on this server") from error
    with Retriever.connect(url, schema) as docs:
        embedder = docs.describe_index().embedder
    if embedder != LocalEmbedder.name:
        made = f"by {embedder!r}" if embedder else "by an embedder without a name"
        raise SchemaMismatch(
            f"the vectors of index {index!r} were made {made}, and this command embeds with {LocalEmbedder.name!r}; "
            f"ask it from Python, with its own embedder"
        )
    return schema


def _json(hit: Hit) -> str:
    return json.dumps(
        {"id": hit.id, "score": hit.score, "text": hit.text, "fields": dict(hit.fields)}, ensure_ascii=False
    )
