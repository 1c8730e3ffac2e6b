"""The commands ``retriever eval`` and ``retriever convert``: how well an index or a memory answers golden queries.

Rule: a command is a few lines over ``retriever.evaluation``, and reads only: an index or a namespace that is not there
is an error, never made. What evaluation needs (scipy, plotly) is imported when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text as Line

from retriever.client import Retriever
from retriever.declared import live_schema, read_schema
from retriever.errors import SchemaMismatch
from retriever.evaluation.arms import INDEX_ARMS, MEMORY_ARMS
from retriever.evaluation.converting import convert as convert_collection
from retriever.evaluation.golden import Golden, read_golden
from retriever.evaluation.measures import signed
from retriever.evaluation.page import packages
from retriever.evaluation.report import Report, read_report
from retriever.evaluation.running import WINDOW
from retriever.evaluation.running import evaluate as run_evaluation
from retriever.memory.named import embedder_named, reranker_named
from retriever.memory.store import MemoryStore
from retriever.memory_cli import existing
from retriever.schema import Schema
from retriever.screen import bare_table, plain, print_json, progress, say, table_console

NOTES = 10  # on stderr; the report has all

# --- the commands ---------------------------------------------------------------------------------


def evaluate(
    golden: Annotated[
        str, typer.Argument(metavar="GOLDEN", help="Golden queries: a .yaml or .jsonl file, or a folder as BEIR's.")
    ],
    index: Annotated[str | None, typer.Option(help="Name of a live index.", show_default=False)] = None,
    schema_file: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            metavar="SCHEMA.toml",
            exists=True,
            dir_okay=False,
            help="A file that declares a live index, in place of its name.",
            show_default=False,
        ),
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="A memory, in place of an index.", show_default=False)] = None,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="VALKEY_URL",
            help="Server with a search module; a memory may be the embedded engine's, which needs none.",
        ),
    ] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="The server is a node of a cluster.")] = False,
    user: Annotated[str | None, typer.Option(envvar="RETRIEVER_USER", help="Of a memory: this user's.")] = None,
    agent: Annotated[str | None, typer.Option(envvar="RETRIEVER_AGENT", help="Of a memory: this agent's.")] = None,
    session: Annotated[
        str | None, typer.Option(envvar="RETRIEVER_SESSION", help="Of a memory: this session's.")
    ] = None,
    embedder: Annotated[
        str,
        typer.Option(
            envvar="RETRIEVER_EMBEDDER",
            help="What made the vectors: local, a model of sentence-transformers (its name or folder), or "
            "module:name of your own.",
        ),
    ] = "local",
    reranker: Annotated[
        str | None,
        typer.Option(
            envvar="RETRIEVER_RERANKER",
            help="Run every arm with it too: a cross-encoder of sentence-transformers, or module:name of your own.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[str, typer.Option("--k", "-k", metavar="K,...", help="Where the measures look.")] = "1,3,5,10",
    authority_window: Annotated[
        int, typer.Option(min=1, max=1000, help="How far down the authority document is looked for.")
    ] = WINDOW,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="ARM,...",
            help=f"Of {', '.join((*INDEX_ARMS, *MEMORY_ARMS))}, the last two of a memory; all unless said. The others "
            "are compared with the first.",
            show_default=False,
        ),
    ] = None,
    document_field: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Of an index of parts: the field that names the whole, which is what the golden ids are of.",
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Choose alpha of linear, weights of rrf, and depth, on some queries; report on the others."
        ),
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD.json", exists=True, dir_okay=False, help="An older report to compare with.", show_default=False
        ),
    ] = None,
    output: Annotated[Path, typer.Option(file_okay=False, writable=True, help="Folder for the report.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines.")] = False,
) -> None:
    """Measure how well an index or a memory answers golden queries. Changes nothing.

    Asks each query in several ways, with and without a reranker, and writes
    eval_report_DATE as .md, .json and .html. Failed queries count 0.
    """
    if sum(each is not None for each in (index, schema_file, namespace)) != 1:
        raise typer.BadParameter("one of them is needed, and one only", param_hint="--index / --schema / --namespace")
    known = INDEX_ARMS if namespace is None else INDEX_ARMS + MEMORY_ARMS
    chosen, cuts = _chosen(arms, known), _cuts(k)
    if document_field is not None and namespace is not None:
        raise typer.BadParameter("it is for an index; of a memory it is known", param_hint="--document-field")
    packages()  # what the report needs and is missing is said before anything is asked
    asked: Golden = read_golden(golden)
    older = None if compare is None else read_report(compare)
    rerank = reranker_named(reranker) if reranker else None
    opened: AbstractContextManager[Retriever | MemoryStore]
    if namespace is None:
        opened = _index(url, index, schema_file, embedder=embedder, arms=chosen, cluster=cluster)
    else:
        scope = {"user": user, "agent": agent, "session": session}
        opened = _memory(url, namespace, embedder=embedder, scope=scope, cluster=cluster)
    with (
        opened as searched,
        progress(Console(stderr=True), len(asked.questions), "asking") as tell,
    ):
        output.mkdir(parents=True, exist_ok=True)  # where it cannot be written is said before anything is asked
        report = run_evaluation(
            searched,
            asked,
            ks=cuts,
            authority_window=authority_window,
            arms=chosen,
            rerank=rerank,
            document_field=document_field,
            tune=tune,
            compare=older,
            on_query=lambda done: tell(done, _done(done, len(asked.questions), tune)),
        )
    paths = report.write(output)
    if as_json:
        print_json(
            {
                "reports": [str(path) for path in paths],
                "queries": len(report.questions),
                "arms": {
                    arm.name: {
                        "p50_ms": arm.p50_ms,
                        "p95_ms": arm.p95_ms,
                        "failed": len(arm.failed),
                        "measures": {name: asdict(each) for name, each in arm.summary.items()},
                    }
                    for arm in report.arms
                },
                "notes": report.notes,
            }
        )
        return
    _print(report)
    for path in paths:
        typer.echo(path)


def convert(
    collection: Annotated[
        Path,
        typer.Argument(
            metavar="COLLECTION", exists=True, help="A folder as BEIR's, or a LongMemEval or LoCoMo file (.json)."
        ),
    ],
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the three files.", show_default=False)],
    index: Annotated[str, typer.Option(help="Name of the index that they are for.")] = "collection",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines.")] = False,
) -> None:
    """Turn a collection that others have judged into documents to load and golden queries.

    Writes schema.toml, documents.jsonl and golden.jsonl, for `create`, `load`
    and `eval`.
    """
    made = convert_collection(collection, output, index)
    counts = {"documents": len(made.documents), "queries": len(made.golden.questions)}
    if as_json:
        print_json({**counts, "notes": made.golden.notes})
        return
    for note in made.golden.notes:
        say(plain(note))
    typer.echo(f"{counts['documents']:,} documents and {counts['queries']:,} golden queries written to {output}")


# --- reaching what is evaluated -------------------------------------------------------------------


@contextmanager
def _index(
    url: str | None, name: str | None, file: Path | None, *, embedder: str, arms: list[str] | None, cluster: bool
) -> Iterator[Retriever]:
    declared = None if file is None else read_schema(file)
    index = declared.name if declared is not None else name or ""
    schema = _stored(url, index, cluster)
    if declared is not None:
        expected = declared if declared.vector.dims is not None else declared.with_dims(schema.vector.dims or 0)
        differences = expected.differences(schema.to_json())
        if differences:
            raise SchemaMismatch(
                f"index {index!r} is not what {file} declares: {'; '.join(differences)}", tuple(differences)
            )
    by_words = arms == ["text"]
    embed = None if by_words else embedder_named(embedder)
    with Retriever.connect(url, schema, embed=embed, cluster=cluster) as retriever:
        made_by = retriever.describe_index().embedder
        ours = getattr(embed, "name", None)
        if embed is not None and made_by is not None and ours is not None and made_by != ours:
            raise SchemaMismatch(
                f"the vectors of index {index!r} were made by {made_by!r}, and --embedder is {ours!r}; "
                f"name the one that made them, or evaluate --arms text alone"
            )
        yield retriever


@contextmanager
def _memory(
    url: str | None, namespace: str, *, embedder: str, scope: Mapping[str, Any], cluster: bool
) -> Iterator[MemoryStore]:
    with existing(url, namespace, cluster=cluster) as address:
        store = MemoryStore.open(
            address,
            namespace=namespace,
            embed=embedder_named(embedder),
            archive=os.devnull,  # nothing is forgotten here
            cluster=cluster,
            **scope,
        )
        with store:
            yield store


def _stored(url: str | None, index: str, cluster: bool) -> Schema:
    """The schema that a live index was made with."""
    with Retriever.connect(url, Schema(index), cluster=cluster) as unknown:
        return live_schema(unknown)


# --- what comes in, what goes out -----------------------------------------------------------------


def _chosen(arms: str | None, known: tuple[str, ...]) -> list[str] | None:
    if arms is None:
        return None
    names = [name.strip() for name in arms.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r}: of {', '.join(known)}", param_hint="--arms")
    if not names:
        raise typer.BadParameter(f"one or more of {', '.join(known)}", param_hint="--arms")
    return list(dict.fromkeys(names))


def _cuts(k: str) -> tuple[int, ...]:
    parts = [part.strip() for part in k.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= 1000 for part in parts):
        raise typer.BadParameter(f"numbers from 1 to 1000 with commas between, not {k!r}", param_hint="--k")
    return tuple(map(int, parts))


def _done(queries: int, of: int, tune: bool) -> str:
    """How far it is; what comes after the last query takes a while too."""
    if queries < of:
        return f"{queries:,} of {of:,} queries"
    return "the equal-budget table, and tuning" if tune else "the equal-budget table"


def _print(report: Report) -> None:
    for note in report.notes[:NOTES]:
        say(plain(note))
    if len(report.notes) > NOTES:
        say(f"and {len(report.notes) - NOTES} more; the report has all")
    for arm in report.arms:
        if arm.failed:
            first = plain(next(iter(arm.failed.values())))
            say(f"{arm.name}: {len(arm.failed)} of {len(report.questions)} queries failed and count 0: {first}")
    console = table_console()
    table = bare_table(None)
    baseline = report.arms[0].name
    others = [name for name in (f"R@{report.k}", "MRR", "authority rank") if name in report.measures]
    table.add_column("arm", style="green", no_wrap=True)
    table.add_column(report.headline, no_wrap=True)
    table.add_column(f"minus {baseline}", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    table.add_column("p50 ms", justify="right", style="cyan")
    moved = {each.arm: each for each in report.differences if each.measure == report.headline}
    for arm in report.arms:
        difference = moved.get(arm.name)
        against = "" if difference is None or difference.against != baseline else signed(difference.interval)
        p50 = "" if arm.p50_ms is None else f"{arm.p50_ms:.1f}"
        means = (f"{arm.summary[name].mean:.3f}" for name in others)
        table.add_row(arm.name, Line(str(arm.summary[report.headline])), Line(against), *means, p50)
    console.print(table)
    if report.compared:
        table = bare_table(None)
        for title in ("arm", f"{report.headline}, minus before", "better", "worse", ""):
            table.add_column(title, no_wrap=True)
        for each in report.compared:
            if each.measure == report.headline:
                counts = (str(count) for count in (each.better, each.worse))
                table.add_row(each.arm, Line(signed(each.interval)), *counts, each.verdict)
        console.print()
        console.print(table)
    if report.tuning is not None:
        table = bare_table(None)
        for title in ("tuned", "chosen", f"{report.tuning.measure}, held out", "minus the default"):
            table.add_column(title)
        for tuned in report.tuning.results:
            table.add_row(tuned.fusion, tuned.chosen, Line(str(tuned.held_out_chosen)), Line(signed(tuned.difference)))
        console.print()
        console.print(table)
