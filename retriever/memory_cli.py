"""The commands ``retriever memory``: an agent's memory, looked at and kept by a person or a script.

Rule: a command is a few lines over ``MemoryStore``. Exit code 1 tells of findings (health found something, a source was
not ingested), of what the store refuses and of a server that fails; 2 of a command line that cannot be understood. What
is put in makes a namespace; any other command on one that is not there is an error.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.text import Text as Line

from retriever.client import Retriever
from retriever.embedded import EmbeddedServer
from retriever.errors import IndexMissing
from retriever.memory.chunks import Chunk, Names, Scope, iso
from retriever.memory.finding import unknown_ids
from retriever.memory.ingesting import Ingested, IngestReport
from retriever.memory.keeping import CLEAR, Forgotten
from retriever.memory.loading import CONTENT_TYPES, FILE_NAMES
from retriever.memory.materials import Note
from retriever.memory.named import embedder_named
from retriever.memory.namespaces import check_there, namespaces
from retriever.memory.policy import DAY_S, KNOWLEDGE_TYPES, Policy, age_s
from retriever.memory.store import MemoryStore, home
from retriever.operations.index import WAIT_S, check_place
from retriever.schema import Schema
from retriever.screen import asker, bare_table, plain, print_facts, print_json, progress, say, table_console

SHOWN = 10  # failures and the like, on stderr; --json has all


app = typer.Typer(
    help="An agent's long-term memory: put in, asked, tagged, forgotten, kept healthy.",
    no_args_is_help=True,
)


# --- options --------------------------------------------------------------------------------------


Url = Annotated[
    str | None,
    typer.Option(
        envvar="VALKEY_URL",
        help="Server with a search module; without one an embedded engine keeps it in RETRIEVER_HOME, or in the "
        "user's data directory.",
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The server is a node of a cluster.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Whose memory, and where: options of every command, and of ``retriever mcp``."""

    url: Url = None
    cluster: Cluster = False
    namespace: Annotated[str, typer.Option(envvar="RETRIEVER_NAMESPACE", help="A memory of its own.")] = "default"
    user: Annotated[str | None, typer.Option(envvar="RETRIEVER_USER", help="Of this user alone.")] = None
    agent: Annotated[str | None, typer.Option(envvar="RETRIEVER_AGENT", help="Of this agent alone.")] = None
    session: Annotated[str | None, typer.Option(envvar="RETRIEVER_SESSION", help="Of this session alone.")] = None
    archive: Annotated[
        Path | None,
        typer.Option(
            envvar="RETRIEVER_ARCHIVE",
            dir_okay=False,
            help="File of what is forgotten; archive/chunks_archive.jsonl in RETRIEVER_HOME or the user's data "
            "directory unless said.",
        ),
    ] = None
    embedder: Annotated[
        str,
        typer.Option(
            envvar="RETRIEVER_EMBEDDER",
            help="What makes the vectors: local, a model of sentence-transformers (its name or folder), or "
            "module:name of your own.",
        ),
    ] = "local"

    @contextmanager
    def open(self, *, make: bool = False) -> Iterator[MemoryStore]:
        """The store, until the end of the block. make: the namespace, if there is none; else that is IndexMissing."""
        arguments = self.arguments()
        if make:
            with MemoryStore.open(self.url, **arguments) as store:
                yield store
        else:
            with (
                existing(self.url, self.namespace, cluster=self.cluster) as url,
                MemoryStore.open(url, **arguments) as store,
            ):
                yield store

    def arguments(self) -> dict[str, Any]:
        """What ``MemoryStore.open`` and ``AsyncMemoryStore.open`` take besides the URL."""
        _check_cluster(self.url, self.cluster)
        return {
            "namespace": self.namespace,
            "embed": embedder_named(self.embedder),
            "user": self.user,
            "agent": self.agent,
            "session": self.session,
            "archive": self.archive,
            "cluster": self.cluster,
        }


def _check_cluster(url: str | None, cluster: bool) -> None:
    if cluster and url is None:
        raise typer.BadParameter("the embedded engine is none; name a node with --url", param_hint="--cluster")


@contextmanager
def _address(url: str | None, cluster: bool) -> Iterator[str]:
    """The URL of the server, or of the embedded engine if it keeps anything, until the end of the block."""
    _check_cluster(url, cluster)
    if url is not None:
        yield url
        return
    if not (home() / "engine").is_dir():
        raise IndexMissing(f"no memory is kept in {home()}; `retriever memory ingest` makes one")
    with EmbeddedServer(home() / "engine") as url:
        yield url


@contextmanager
def existing(url: str | None, namespace: str, *, cluster: bool) -> Iterator[str]:
    """The URL of the server that has the namespace, until the end of the block. IndexMissing if none has."""
    Names(namespace)  # InvalidInput before any server is asked
    with _address(url, cluster) as address:
        with Retriever.connect(address, Schema("namespaces"), cluster=cluster) as server:
            server._run("check_place", check_place(server._live))
            server._run("memory.namespaces", check_there(namespace))
        yield address


def placed(function: Callable[..., None]) -> Callable[..., None]:
    """The command of a function whose first parameter is a Place: it takes the options of one after its own."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    hints = get_type_hints(Place, include_extras=True)
    shared = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hint)
        for each, hint in ((each, hints[each.name]) for each in fields(Place))
    ]

    def call(**given: Any) -> None:
        place = Place(**{each.name: given.pop(each.name) for each in shared})
        function(place, **given)

    whole = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + shared
    call.__signature__ = inspect.Signature(whole)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in whole}
    call.__doc__ = function.__doc__
    return call


def _command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name)(placed(function))
        return function

    return register


class Kind(StrEnum):
    """What ``--knowledge-type`` takes."""

    principle = "principle"
    paper = "paper"
    news = "news"
    experiment = "experiment"


class Clearable(StrEnum):
    """What ``--clear`` takes."""

    tags = "tags"
    importance = "importance"
    knowledge_type = "knowledge_type"
    source_date = "source_date"


class ContentType(StrEnum):
    """What ``--content-type`` takes."""

    markdown = "markdown"
    text = "text"
    html = "html"
    pdf = "pdf"
    docx = "docx"
    code = "code"
    conversation = "conversation"


class Duplicate(StrEnum):
    """What ``--on-duplicate`` takes."""

    keep = "keep"
    skip = "skip"


Question = Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in words.", show_default=False)]
DocId = Annotated[str, typer.Argument(metavar="DOC_ID", help="Id of a document, as search shows it.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; again for more.", show_default=False)]
NoFts = Annotated[bool, typer.Option("--no-fts", help="By meaning alone, not by words.")]
MemoryRerank = Annotated[
    bool, typer.Option("--memory-rerank", help="Order by relevance, age and use; leave out what is rated low.")
]
NoReinforce = Annotated[bool, typer.Option("--no-reinforce", help="Do not count this read.")]
TimeWeight = Annotated[float | None, typer.Option(min=0, max=1, help="How much age counts.", show_default=False)]
FreqWeight = Annotated[float | None, typer.Option(min=0, help="How much use counts.", show_default=False)]
ImportanceThreshold = Annotated[
    float | None, typer.Option(min=0, max=1, help="What is rated lower is cut.", show_default=False)
]
Importance = Annotated[float | None, typer.Option(min=0, max=1, help="A rating.", show_default=False)]
KnowledgeType = Annotated[Kind | None, typer.Option(help="Decides how fast it ages.", show_default=False)]
SourceDate = Annotated[str | None, typer.Option(help="When it was written, ISO 8601.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds to wait for the index.")]


# --- putting in and finding -----------------------------------------------------------------------


@_command("ingest")
def ingest(
    place: Place,
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files and folders; - is a note on stdin.")],
    glob: Annotated[
        str | None,
        typer.Option(help="Which files of a folder: '**/*.md'. All that can be read unless said.", show_default=False),
    ] = None,
    tag: Tags = None,
    knowledge_type: KnowledgeType = None,
    importance: Importance = None,
    source_date: SourceDate = None,
    content_type: Annotated[
        ContentType | None,
        typer.Option(help="Read them as this, whatever their names end in.", show_default=False),
    ] = None,
    source_key: Annotated[
        str | None, typer.Option(help="What one source is called from now on.", show_default=False)
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="Of one source: the same is skipped, another replaces.", show_default=False)
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Characters that a chunk has at most.")] = 512,
    on_duplicate: Annotated[Duplicate, typer.Option(help="What another source says already.")] = Duplicate.keep,
    update_index: Annotated[
        bool, typer.Option("--update-index/--no-update-index", help="Searchable at once, or after update-index.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run/--no-dry-run", help="Say what would be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read files, cut them up and keep what is new or has changed.

    Running it again is safe. A source that cannot be read fails alone, and ends with 1.
    """
    given = {
        "tags": tag,
        "knowledge_type": None if knowledge_type is None else knowledge_type.value,
        "importance": importance,
        "source_date": source_date,
        "content_type": None if content_type is None else content_type.value,
    }
    sources = [source for path in paths for source in _sources(path, glob, source_key)]
    with place.open(make=True) as store, progress(Console(stderr=True), len(sources)) as tell:
        done: list[Ingested] = []

        def on_source(source: Ingested) -> None:
            done.append(source)
            tell(len(done), f"{len(done)} of {len(sources)}")

        try:
            report = store.ingest(
                sources,
                metadata={name: value for name, value in given.items() if value is not None},
                update_index=update_index,
                source_key=source_key,
                version=version,
                on_duplicate=on_duplicate.value,
                size=size,
                dry_run=dry_run,
                on_source=on_source,
            )
        except BaseException as error:
            if done or isinstance(error, KeyboardInterrupt):
                said = "looked at" if dry_run else "done"
                say(f"stopped: {len(done)} of {len(sources)} sources are {said}; run again, it skips those and goes on")
            raise
    _report_ingest(report, dry_run=dry_run, as_json=as_json)
    if report.failed:
        raise typer.Exit(1)


@_command("search")
def search(
    place: Place,
    query: Question,
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=10_000, help="How many chunks.")] = 5,
    tag: Tags = None,
    no_fts: NoFts = False,
    memory_rerank: MemoryRerank = False,
    time_weight: TimeWeight = None,
    freq_weight: FreqWeight = None,
    importance_threshold: ImportanceThreshold = None,
    no_reinforce: NoReinforce = False,
    as_json: AsJson = False,
) -> None:
    """The chunks that answer a question best.

    Counts as a read of them, unless --no-reinforce.
    """
    policy = _policy(
        memory_rerank,
        time_weight=time_weight,
        freq_weight=freq_weight,
        importance_threshold=importance_threshold,
    )
    with place.open() as store:
        found = store.search(
            query,
            tags=tag,
            k=k,
            use_fts=not no_fts,
            memory_rerank=memory_rerank,
            policy=policy,
            reinforce=not no_reinforce,
        )
    for reason in found.reasons:
        say(reason if found.complete else f"not all chunks may be here: {reason}")
    score = ("score", lambda chunk: f"{chunk.memory_score:.3f}") if memory_rerank else _RELEVANCE
    _print_chunks(found.chunks, as_json=as_json, score=score, otherwise="nothing found")


@_command("context")
def context(
    place: Place,
    query: Question,
    budget: Annotated[int, typer.Option(min=1, max=10_000_000, help="Tokens, of four characters each.")] = 1000,
    k: Annotated[int, typer.Option("--k", "-k", min=1, max=10_000, help="How many chunks at most.")] = 20,
    tag: Tags = None,
    no_fts: NoFts = False,
    memory_rerank: MemoryRerank = False,
    time_weight: TimeWeight = None,
    freq_weight: FreqWeight = None,
    importance_threshold: ImportanceThreshold = None,
    no_reinforce: NoReinforce = False,
    as_json: AsJson = False,
) -> None:
    """The best chunks laid out for a prompt, with their sources, within a budget.

    Counts as a read of those, unless --no-reinforce.
    """
    policy = _policy(
        memory_rerank,
        time_weight=time_weight,
        freq_weight=freq_weight,
        importance_threshold=importance_threshold,
    )
    with place.open() as store:
        laid = store.context(
            query,
            budget,
            tags=tag,
            k=k,
            use_fts=not no_fts,
            memory_rerank=memory_rerank,
            policy=policy,
            reinforce=not no_reinforce,
        )
    if as_json:
        print_json({"text": laid.text, "tokens": laid.tokens, "chunks": [chunk.to_dict() for chunk in laid.chunks]})
    elif laid.chunks:
        typer.echo(_harmless(laid.text) if sys.stdout.isatty() else laid.text)
    else:
        say("nothing found, or nothing that fits the budget")


@_command("find")
def find(
    place: Place,
    tag: Annotated[str, typer.Argument(metavar="TAG", help="The whole tag, as it was written.")],
    as_json: AsJson = False,
) -> None:
    """All chunks with exactly this tag, also those that wait to be searchable. Counts nothing."""
    with place.open() as store:
        found = store.find_by_tag(tag)
    _print_chunks(found, as_json=as_json, otherwise=f"no chunk has the tag {tag!r}")


@_command("show")
def show(
    place: Place,
    doc_id: DocId,
    chunk: Annotated[int | None, typer.Option(min=0, help="This chunk alone, from 0.", show_default=False)] = None,
    window: Annotated[int, typer.Option(min=0, help="With --chunk: as many on either side.")] = 0,
    as_json: AsJson = False,
) -> None:
    """A document's chunks in their order, with all that is known of them. Counts nothing."""
    if window and chunk is None:
        raise typer.BadParameter("it is around one chunk, so it needs --chunk", param_hint="--window")
    with place.open() as store:
        chunks = store.get_document_chunks(doc_id, chunk, window=window)
    console = table_console()
    for each in chunks:
        if as_json:
            print_json(each.to_dict())
        else:
            facts = {name: value for name, value in each.to_dict().items() if not _is_empty(value)}
            print_facts(console, *((name, plain(_said(value))) for name, value in facts.items()))
            console.print()
    if not chunks:
        say(f"no chunk of document {doc_id!r} is left: forgotten, or expired")


# --- keeping --------------------------------------------------------------------------------------


@_command("tag")
def tag_chunk(
    place: Place,
    doc_id: DocId,
    chunk: Annotated[int, typer.Argument(metavar="CHUNK", min=0, help="Its place in the document, from 0.")],
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Replaces all tags; again for more.", show_default=False)
    ] = None,
    importance: Importance = None,
    knowledge_type: KnowledgeType = None,
    source_date: SourceDate = None,
    clear: Annotated[list[Clearable] | None, typer.Option(help="Remove a value.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Change a chunk's tags, importance, kind or date, and nothing else."""
    given: dict[str, Any] = {
        "tags": tag or None,
        "importance": importance,
        "knowledge_type": None if knowledge_type is None else knowledge_type.value,
        "source_date": source_date,
    }
    for name in clear or ():
        if given[name.value] is not None:
            raise typer.BadParameter(f"{name.value} is given as well", param_hint="--clear")
        given[name.value] = CLEAR
    if all(value is None for value in given.values()):
        raise typer.BadParameter(
            "at least one is needed", param_hint="--tag / --importance / --knowledge-type / --source-date / --clear"
        )
    with place.open() as store:
        changed = store.set_chunk_tags(doc_id, chunk, **given)
    _print_chunks([changed], as_json=as_json, otherwise="")


@_command("redate")
def redate(
    place: Place,
    doc_id: DocId,
    source_date: Annotated[
        str | None, typer.Argument(metavar="DATE", help="When it was written, ISO 8601.", show_default=False)
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="No date; its age is then that of the chunk.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give all chunks of a document another date."""
    if clear == (source_date is not None):
        raise typer.BadParameter("one of them is needed, and one only", param_hint="DATE / --clear")
    with place.open() as store:
        changed = store.redate(doc_id, CLEAR if clear else source_date)
    if as_json:
        print_json({"doc_id": doc_id, "changed": changed})
    else:
        typer.echo(f"{_chunks(changed)} of {doc_id} {'without a date now' if clear else 'redated'}")


@_command("delete")
def delete(
    place: Place,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of documents; with a / in it, of a chunk.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete documents with all their chunks, or single chunks, for good.

    Asks first; in a pipe it needs --yes. An unknown id is said, and ends with 1.
    What is to be found again is for forget.
    """
    ask = asker(silent=yes)
    documents, chunks = [each for each in ids if "/" not in each], [each for each in ids if "/" in each]
    with place.open() as store:
        ask(f"Delete {', '.join(map(plain, ids))}?")
        unknown = store._run("unknown", unknown_ids(store._memory, documents, chunks))
        deleted = sum(store.delete_document(each) for each in documents)
        deleted += store.delete_chunks(chunks) if chunks else 0
    if as_json:
        print_json({"deleted": deleted, "unknown": unknown})
    else:
        typer.echo(f"{_chunks(deleted)} deleted")
        _say_some([f"no {'chunk' if '/' in each else 'document'} {each!r}" for each in unknown])
    if unknown:
        raise typer.Exit(1)


@_command("erase")
def erase(
    place: Place,
    everything: Annotated[bool, typer.Option("--everything", help="The whole namespace, of all users.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete all of a user, agent or session for good, from the archive too.

    Of this namespace and this archive. Asks first; in a pipe it needs --yes. Where
    nothing was there it ends with 1. So does a line of the archive that cannot be
    read: it may be anybody's, and stays.
    """
    said = [f"{name} {value!r}" for name, value in Scope(place.user, place.agent, place.session).fields.items()]
    if bool(said) == everything:
        raise typer.BadParameter("one of them is needed", param_hint="--user, --agent, --session / --everything")
    ask, whose = asker(silent=yes), plain(f"{', '.join(said) or 'everybody'} in namespace {place.namespace!r}")
    with place.open() as store:
        archive = store.archive
        ask(
            f"Erase the {_chunks(store.stats().chunks)} of {whose}, and their lines of {plain(str(archive))}, for good?"
        )
        gone = store.erase(everything=everything)
    if as_json:
        print_json({**asdict(gone), "archive": str(archive)})
    else:
        absent = "" if archive.exists() else ", which is not there"
        typer.echo(f"{_chunks(gone.chunks)} erased, and {gone.archived} of the archive {plain(str(archive))}{absent}")
        _say_some([f"{archive} {line}; it may be anybody's, and stays" for line in gone.unread])
        if not (gone.chunks or gone.archived):
            say(f"nothing was there of {whose}")
    if gone.unread or not (gone.chunks or gone.archived):
        raise typer.Exit(1)


@_command("forget")
def forget(
    place: Place,
    time_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="How far age can push a score down.", show_default=False)
    ] = None,
    freq_weight: FreqWeight = None,
    importance_threshold: ImportanceThreshold = None,
    score_threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="What scores lower goes.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run/--no-dry-run", help="Only say what would go, and why.")] = True,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Archive, then delete, what is rated low or has aged out.

    Shows what would go, and why. With --no-dry-run it then does it, and at a
    terminal asks before. A chunk that is read or changed meanwhile stays.
    """
    policy = Policy().with_weights(
        forget_time_weight=time_weight,
        freq_weight=freq_weight,
        importance_threshold=importance_threshold,
        score_threshold=score_threshold,
    )
    with place.open() as store:
        gone = store.forget(policy=policy)
        if not as_json:
            _print_forgotten(gone)
        if not dry_run and gone:
            asker(silent=yes or not sys.stdin.isatty())(f"Archive and delete {_chunks(len(gone))}?")
            gone = store.forget(policy=policy, dry_run=False)
    if as_json:
        for each in gone:
            why = {"score": each.score, "reason": each.reason, "deleted": each.deleted}
            print_json({**each.chunk.to_dict(), **why})
    elif dry_run:
        typer.echo(f"{_chunks(len(gone))} would be forgotten{'; --no-dry-run does it' if gone else ''}")
    else:
        deleted = sum(each.deleted for each in gone)
        stayed = f"; {len(gone) - deleted} stayed, read or changed meanwhile" if deleted < len(gone) else ""
        typer.echo(f"{_chunks(deleted)} archived and deleted{stayed}")


@_command("restore")
def restore(
    place: Place,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of chunks.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All that the archive has.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring archived chunks back, with their counters.

    One that is asked for and does not come back ends with 1; --everything ends
    with 0 also where there is nothing.
    """
    if bool(ids) == everything:
        raise typer.BadParameter("one of them is needed, and one only", param_hint="ID... / --everything")
    with place.open(make=True) as store:
        back = store.restore((lambda _: True) if everything else ids or [])
        archive = store.archive
    missing = [each for each in ids or () if each not in back.restored and each not in back.skipped]
    if as_json:
        print_json(
            {
                "restored": back.restored,
                "skipped": {**back.skipped, **dict.fromkeys(missing, "it is not in the archive")},
                "damaged": back.damaged,
            }
        )
    else:
        typer.echo(f"{_chunks(len(back.restored))} restored")
        _say_some([f"{id}: {reason}" for id, reason in back.skipped.items()])
        _say_some([f"no chunk {id!r} in the archive" for id in missing])
        if everything and not (back.restored or back.skipped or back.damaged):
            say(f"the archive {archive} holds no chunk of this memory")
        _say_some([f"the archive's {line}" for line in back.damaged])
    if back.damaged or (ids and len(back.restored) < len(set(ids))):
        raise typer.Exit(1)


# --- the index ------------------------------------------------------------------------------------


@_command("update-index")
def update_index(
    place: Place,
    stale: Annotated[bool, typer.Option("--stale", help="Also what has no vector of this model.")] = False,
    timeout: Timeout = WAIT_S,
    as_json: AsJson = False,
) -> None:
    """Make searchable what waits for it. Failures end with 1."""
    with place.open() as store:
        done = store.update_index(stale=stale, timeout_s=timeout)
    if as_json:
        print_json(asdict(done))
    else:
        filling = "; the engine is still filling the index" if done.filling else ""
        typer.echo(f"{_chunks(done.embedded)} embedded, {done.backlog} waiting{filling}")
        _say_some([f"chunk {each.id!r}: {each.reason}" for each in done.failed])
    if done.failed:
        raise typer.Exit(1)


@_command("rebuild-index")
def rebuild_index(place: Place, timeout: Timeout = WAIT_S, as_json: AsJson = False) -> None:
    """Embed the namespace anew, where another model made its vectors. Failures end with 1.

    Readers of the other model go on searching. Never needed after deleting.
    """
    with place.open() as store:
        done = store.rebuild_index(timeout_s=timeout)
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(f"{_chunks(done.embedded)} embedded; generation {done.generation} is in use")
        _say_some([f"chunk {each.id!r}: {each.reason}" for each in done.failed])
    if done.failed:
        raise typer.Exit(1)


@_command("health")
def health(place: Place, as_json: AsJson = False) -> None:
    """What is not as it should be, and what repairs it. What needs doing ends with 1. Changes nothing."""
    with place.open() as store:
        found = store.index_health()
    if as_json:
        print_json({"ok": found.ok, **asdict(found)})
    elif not found.findings:
        typer.echo(f"all is well: {_chunks(found.chunks)} of {found.documents:,} documents")
    else:
        console = table_console()
        table = bare_table(console.width)
        table.add_column("", justify="right", style="cyan")
        table.add_column("found")
        for each in found.findings:
            said = Line(plain(each.what), style="bold")
            said.append(f"\n{plain(_in_the_shell(each.advice))}", style="not bold")
            if each.examples:
                more = each.count - len(each.examples)
                named = plain(", ".join(each.examples)) + (f", and {more:,} more" if more > 0 else "")
                said.append(f"\n{named}", style="not bold dim")
            table.add_row(f"{each.count:,}", said)
        console.print(table)
    if not found.ok:
        raise typer.Exit(1)


@_command("stats")
def stats(place: Place, as_json: AsJson = False) -> None:
    """What there is: documents, chunks, kinds, ratings, tags, reads. Changes nothing."""
    with place.open() as store:
        held = store.stats()
    if as_json:
        print_json(asdict(held))
        return
    print_facts(
        table_console(),
        ("documents", f"{held.documents:,}"),
        ("chunks", f"{held.chunks:,}"),
        ("pending", f"{held.pending:,}"),
        ("kinds", ", ".join(f"{kind} {held.by_type[kind]:,}" for kind in _in_order(held.by_type)) or "none"),
        ("rated", f"{held.rated:.0%}"),
        ("tagged", f"{held.tagged:.0%}"),
        ("reads", ", ".join(f"{often}: {count:,}" for often, count in held.uses.items())),
        ("duplicate texts", f"{held.duplicates:,}"),
        ("bytes of text", f"{held.bytes:,}"),
    )


@_command("duplicates")
def duplicates(place: Place, as_json: AsJson = False) -> None:
    """Groups of chunks that say the same. Deletes nothing."""
    with place.open() as store:
        groups = store.find_near_duplicates()
    for group in groups:
        if as_json:
            print_json({"content_hash": group[0].content_hash, "chunks": [chunk.to_dict() for chunk in group]})
        else:
            typer.echo(textwrap.shorten(plain(group[0].content), 100, placeholder=" ..."))
            for chunk in group:
                typer.echo(f"    {plain(chunk.id)}  {plain(chunk.source or '')}")
    if not groups and not as_json:
        say("no two chunks say the same")


@app.command("namespaces")
def list_namespaces(url: Url = None, cluster: Cluster = False, as_json: AsJson = False) -> None:
    """The namespaces that there are, and how many chunks each has. Changes nothing."""
    with _address(url, cluster) as address, Retriever.connect(address, Schema("namespaces"), cluster=cluster) as server:
        found = server._run("memory.namespaces", namespaces(server._live))
    for name, chunks in found.items():
        if as_json:
            print_json({"namespace": name, "chunks": chunks})
        else:
            typer.echo(f"{chunks:>9,}  {plain(name)}")
    if not found and not as_json:
        say("no memory on this server; `retriever memory ingest` makes one")


# --- what comes in --------------------------------------------------------------------------------


def _sources(path: str, glob: str | None, source_key: str | None) -> list[str | Note]:
    """The sources that one argument names."""
    if path == "-":
        try:
            return [Note(sys.stdin.buffer.read().decode(), source_key)]
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"stdin is no UTF-8: {error}", param_hint="PATH") from None
    if not os.path.isdir(path):
        return [path]
    folder = Path(path)
    try:
        found = [each for each in folder.glob("**/*" if glob is None else glob) if each.is_file()]
    except (ValueError, NotImplementedError) as error:
        raise typer.BadParameter(f"{glob!r} is no pattern: {error}", param_hint="--glob") from None
    if glob is None:
        found = [each for each in found if _is_read(each.relative_to(folder))]
    if not found:
        what = "that can be read" if glob is None else f"like {glob!r}"
        raise typer.BadParameter(f"no file {what} in folder {path!r}", param_hint="PATH")
    return [str(each) for each in sorted(found)]


def _is_read(path: PurePath) -> bool:
    """Whether a file of a folder is of a kind that can be read, and not hidden."""
    known = path.suffix.lower() in CONTENT_TYPES or path.name.lower() in FILE_NAMES
    return known and not any(part.startswith(".") for part in path.parts)


def _policy(memory_rerank: bool, **weights: float | None) -> Policy | None:
    for name, value in weights.items():
        if value is not None and not memory_rerank:
            raise typer.BadParameter(
                "it is a weight of --memory-rerank, so it needs that", param_hint=f"--{name.replace('_', '-')}"
            )
    return Policy().with_weights(**weights) if memory_rerank else None


# --- what goes out --------------------------------------------------------------------------------

Score = tuple[str, Callable[[Chunk], str]]
_RELEVANCE: Score = ("relevance", lambda chunk: f"{chunk.relevance:.3f}")


def _chunks(count: int) -> str:
    return f"{count:,} chunk{'' if count == 1 else 's'}"


def _harmless(text: str) -> str:
    """A text in its lines that cannot steer a terminal."""
    return "\n".join(
        "".join(char if char.isprintable() else "\ufffd" for char in line.expandtabs()) for line in text.splitlines()
    )


def _is_empty(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})


def _said(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_said(each)}" for name, each in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


# Calls that advice names, and the commands that do the same.
_COMMANDS = {
    "update_index()": "update-index",
    "update_index(stale=True)": "update-index --stale",
    "delete_document()": "delete DOC_ID",
    "delete_chunks()": "delete ID",
    "rebuild_index()": "rebuild-index",
}


def _in_the_shell(advice: str) -> str:
    """The advice, and the command for a call that it names."""
    commands = [f"`retriever memory {command}`" for call, command in _COMMANDS.items() if call in advice]
    return f"{advice} (in the shell: {', '.join(commands)})" if commands else advice


def _say_some(sentences: Sequence[str]) -> None:
    for sentence in sentences[:SHOWN]:
        say(plain(sentence))
    if len(sentences) > SHOWN:
        say(f"and {len(sentences) - SHOWN} more; --json lists all")


def _in_order(kinds: Mapping[str, int]) -> list[str]:
    return [kind for kind in (*KNOWLEDGE_TYPES, "unset") if kind in kinds]


def _report_ingest(report: IngestReport, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        sources = [asdict(each) for each in report.sources]
        print_json({"dry_run": dry_run, "sources": sources, "chunks": report.chunks, "seconds": report.seconds})
        return
    if dry_run:
        console = table_console()
        table = bare_table(console.width)
        table.add_column("", style="cyan", no_wrap=True)
        table.add_column("chunks", justify="right")
        table.add_column("source", overflow="fold")
        for each in report.sources:
            table.add_row(each.status, str(each.chunks or ""), Line(plain(each.source)))
        console.print(table)
    counted = ", ".join(
        f"{len(getattr(report, status)):,} {said}"
        for status, said in (
            ("ingested", "new"),
            ("replaced", "changed"),
            ("skipped", "unchanged"),
            ("failed", "failed"),
        )
        if getattr(report, status)
    )
    what = f"{len(report.sources):,} source{'' if len(report.sources) == 1 else 's'}"
    typer.echo(f"{what}: {counted}; {_chunks(report.chunks)}{' would be' if dry_run else ''} written")
    _say_some(
        [f"{each.source}: the same content as {each.duplicate_of}" for each in report.sources if each.duplicate_of]
    )
    told = [each for each in report.sources if each.status != "failed" and not each.duplicate_of]
    _say_some([f"{each.source}: {each.reason}" for each in told if each.reason not in (None, "unchanged")])
    reasons = [
        (each.source, re.sub(r"^(InvalidInput|MissingExtra): ", "", each.reason or "")) for each in report.failed
    ]
    _say_some([reason if source in reason else f"{source}: {reason}" for source, reason in reasons])


def _print_chunks(chunks: Sequence[Chunk], *, as_json: bool, otherwise: str, score: Score | None = None) -> None:
    if as_json:
        for chunk in chunks:
            print_json(chunk.to_dict())
        return
    if not chunks:
        say(otherwise)
        return
    console = table_console()
    table = bare_table(console.width)
    if score is not None:
        table.add_column(score[0], justify="right", style="cyan", no_wrap=True)
    table.add_column("document", style="green", overflow="fold", max_width=console.width // 3)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("text", ratio=1)
    for chunk in chunks:
        text = Line("\n".join(textwrap.wrap(plain(chunk.content), console.width // 2, max_lines=2, placeholder=" ...")))
        text.append(f"\n{_about(chunk)}", style="dim")
        first = () if score is None else (score[1](chunk),)
        table.add_row(*first, Line(plain(chunk.doc_id)), str(chunk.chunk_index), text)
    console.print(table)


def _about(chunk: Chunk) -> str:
    """What a person asks of a chunk besides its text, in one line."""
    facts = {
        "source": chunk.source,
        "date": None if chunk.source_date is None else iso(chunk.source_date)[:10],
        "type": chunk.knowledge_type,
        "importance": None if chunk.importance is None else f"{chunk.importance:g}",
        "tags": ", ".join(chunk.tags) or None,
        "reads": chunk.access_count or None,
        "found by": ", ".join(chunk.channels) or None,
        "same text": f"{chunk.duplicates} more" if chunk.duplicates else None,
        "pending": "not searchable yet" if chunk.pending else None,
    }
    return "  ".join(f"{name}={plain(str(value))}" for name, value in facts.items() if value is not None)


def _print_forgotten(gone: Sequence[Forgotten]) -> None:
    if not sys.stdout.isatty():
        for each in gone:
            typer.echo("\t".join((plain(each.chunk.id), f"{each.score:.3f}", each.reason)))
        return
    if not gone:
        return
    console = table_console()
    table = bare_table(console.width)
    table.add_column("id", style="green", overflow="fold", max_width=console.width // 3)
    table.add_column("text", ratio=1)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("type", no_wrap=True)
    table.add_column("score", justify="right", style="cyan", no_wrap=True)
    table.add_column("reason", max_width=console.width // 4)
    now = time.time()
    for each in gone:
        preview = textwrap.shorten(plain(each.chunk.content), 60, placeholder=" ...")
        age = f"{age_s(each.chunk, now) / DAY_S:,.0f} d"
        kind = each.chunk.knowledge_type or "unset"
        table.add_row(Line(plain(each.chunk.id)), Line(preview), age, kind, f"{each.score:.3f}", each.reason)
    console.print(table)
