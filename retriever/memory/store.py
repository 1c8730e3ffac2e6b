"""MemoryStore and AsyncMemoryStore: the same store, blocking and awaited.

Every method is one line over a plan, which the driver of a ``Retriever`` runs. The clock and new tokens are made here:
plans take them as arguments.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fields.analysis import Analysis
from fields.errors import InvalidInput
from fields.kinds import Vector
from retriever.client import AsyncRetriever, Retriever
from retriever.embedded import EmbeddedServer
from retriever.embedders import Embedder
from retriever.errors import MissingExtra, SchemaMismatch
from retriever.fusion import Fusion, Linear, as_fusion
from retriever.memory import finding, indexing, ingesting, keeping, rebuilding, searching
from retriever.memory.archive import Archive, Archived
from retriever.memory.chunks import Chunk, Field, Names, Scope, schema_of
from retriever.memory.finding import Memory
from retriever.memory.indexing import Health, Indexed, Stats
from retriever.memory.ingesting import Ingested, IngestReport
from retriever.memory.keeping import Erased, Forgotten, Restored
from retriever.memory.materials import Note, Split, sources_of
from retriever.memory.policy import Policy
from retriever.memory.rebuilding import Generations, Rebuilt
from retriever.memory.roots import Roots
from retriever.memory.searching import Context, Found
from retriever.memory.sources import RULES, Rule, knowledge_type
from retriever.operations.index import WAIT_S
from retriever.operations.read import id_list
from retriever.plans import Plan
from retriever.queries import FilterSpec, check_bool, check_seconds
from retriever.rerankers import Reranker

T = TypeVar("T")
CONTEXT = ("title", "section", "date", "speaker")
HNSW, FLAT = Vector(), Vector(algorithm="FLAT")


def home() -> Path:
    """Where a store without a server keeps its data: RETRIEVER_HOME, else the user's data directory."""
    given = os.environ.get("RETRIEVER_HOME")
    if given:
        return Path(given)
    try:
        from platformdirs import user_data_path
    except ImportError as error:
        raise MissingExtra(
            f"the user's data directory is told by platformdirs ({error}); pip install 'valkey-retriever[memory]', "
            f"or set RETRIEVER_HOME"
        ) from error
    return user_data_path("valkey-retriever")


class MemoryStore:
    """An agent's long-term memory, blocking: documents in chunks, found by words, meaning, tags and document.

    ``open`` makes one; a ``with`` block or ``close()`` ends it. A namespace is an index of its own; user, agent and
    session are whose memory it is, and no argument of a method reaches beyond them. Safe to share between threads.
    """

    def __init__(self, retriever: Retriever, memory: Memory, server: EmbeddedServer | None, found: Generations) -> None:
        self._retriever, self._memory, self._server, self._ready = retriever, memory, server, found.ready

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        namespace: str = "default",
        embed: Embedder,
        rerank: Reranker | None = None,
        fields: Sequence[Field] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        policy: Policy | None = None,
        fusion: str | Fusion | None = None,
        context: Iterable[str] = CONTEXT,
        rules: Sequence[Rule] = RULES,
        archive: str | os.PathLike[str] | None = None,
        vector: Vector | None = None,
        analysis: Analysis | None = None,
        cluster: bool = False,
    ) -> Self:
        """The store of a namespace, made if there is none. A few round trips.

        url: of a server; None starts the embedded engine on the user's data directory, or on RETRIEVER_HOME.
        namespace: any non-empty string. embed: texts -> vectors; where a model of another name made the namespace, all
            but ``rebuild_index()`` raises SchemaMismatch, and so it is with another metric, dimension or other fields.
        fields: TAG, NUMERIC or Stored fields of your own, which metadata may then set and filters use. Like vector and
            analysis those that the namespace was made with, unless said; others need ``rebuild_index()``, and another
            analysis another namespace.
        user, agent, session: whose memory this is; None does not look. policy: the weights, see ``Policy``.
        fusion: of the two channels, ``Linear(alpha=0.3)`` unless said: words are the better channel for what people
            said, and meaning finds what words miss.
        context: what is indexed before a chunk's own text, of title, section, date, speaker, source, tags, previous
            (the chunk before it); what comes back is the text alone.
        rules: which sources hold which kind of knowledge, ``[("^notes/", "principle"), *RULES]``: a regular expression
            and a kind each, from the top; see ``retriever.memory.sources``.
        archive: the file of what is forgotten; ``archive/chunks_archive.jsonl`` beside the embedded engine's data.
        vector: its metric and algorithm; for a new namespace FLAT in the embedded engine (exact, and quick to start),
            else HNSW.
        Raises InvalidInput, SchemaMismatch where the analysis or a field's kind differs, NotSupported, ServerError.
        """
        server, address, default = _server(url)
        retriever: Retriever | None = None
        try:
            names, scope = Names(namespace), Scope(user, agent, session)
            schema = schema_of(names, fields or (), vector or default, Analysis() if analysis is None else analysis)
            retriever = Retriever.connect(address, schema, embed=embed, rerank=rerank, cluster=cluster)
            memory = _memory(retriever, names, scope, policy, fusion, context, archive, rerank, rules)
            unsaid = _unsaid(fields=fields, vector=vector, analysis=analysis)
            if unsaid:
                retriever._run("memory.open", rebuilding.inherit(retriever._live, unsaid))
            found = retriever._run("memory.open", rebuilding.choose(retriever._live))
            _settle(retriever, found)
            if found.ready:
                retriever.create_index()
        except BaseException:
            if retriever is not None:
                retriever.close()
            if server is not None:
                server.stop()
            raise
        return cls(retriever, memory, server, found)

    def ingest(
        self,
        sources: str | os.PathLike[str] | Note | Iterable[str | os.PathLike[str] | Note],
        *,
        metadata: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        update_index: bool = True,
        source_key: str | None = None,
        version: str | None = None,
        on_duplicate: str = "keep",
        split: Split | None = None,
        size: int = 512,
        tokens: Any = None,
        dry_run: bool = False,
        ttl_s: float | None = None,
        on_source: Callable[[Ingested], Any] | None = None,
        roots: Roots | None = None,
    ) -> IngestReport:
        """Read files and notes, cut them up, and write what is new or has changed.

        sources: paths, and ``Note(text, source)`` for what is no file; one or many. How a file is read follows from its
            type. A source that cannot be read fails alone, with its reason in the report.
        metadata: one mapping for all, or one per source: tags, knowledge_type, importance, source_date, speaker, your
            declared fields, and content_type, as which a source is read whatever its name ends in; anything else is
            kept and returned.
        update_index: False stores the chunks without vector and terms: found by tag and document at once, by search
            after ``update_index()``.
        source_key, version: of one source: the same key and version is skipped, another version replaces.
        on_duplicate: "keep" ingests content that another source holds too and says so; "skip" does not.
        split: text -> texts, instead of ours; size: characters a chunk has at most, or tokens, which ``tokens`` counts:
            a ``tokenizers.Tokenizer`` or a function text -> number.
        dry_run: what would be done, and nothing of it. ttl_s: seconds until the server lets the chunks expire.
        on_source: told what became of each source as it is done.
        roots: folders that files may be read from; None reads any. What lies outside fails alone.
        Running it again is safe: what is there already is skipped, and so is what was forgotten, until it is restored;
        what a killed run left or a server lost is put right.
        """
        return self._run(
            "ingest",
            _ingest_plan(
                self._memory,
                sources=sources,
                metadata=metadata,
                update_index=update_index,
                source_key=source_key,
                version=version,
                on_duplicate=on_duplicate,
                split=split,
                size=size,
                tokens=tokens,
                dry_run=dry_run,
                ttl_s=ttl_s,
                on_source=on_source,
                roots=roots,
            ),
        )

    def search(
        self,
        query: str,
        *,
        tags: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
        filter: FilterSpec = None,
        k: int = 5,
        use_fts: bool = True,
        fusion: str | Fusion | None = None,
        memory_rerank: bool = False,
        policy: Policy | None = None,
        reinforce: bool = True,
        rerank: Reranker | bool | None = None,
        depth: int | None = None,
        candidates: int | None = None,
        max_distance: float | None = None,
        min_text_score: float | None = None,
        diversity: float | None = None,
        collapse: str | None = None,
        expand: Callable[[str], Any] | None = None,
        fit: Callable[[Sequence[Chunk]], int] | None = None,
    ) -> Found:
        """The k chunks that answer a query best, each with its relevance (0..1, higher is better).

        tags: a list, all of which a chunk has, or {"any": [...]}. filter: as in ``Retriever.query``. Both act before
            the cut: k chunks come back if k pass.
        use_fts: False searches by vector alone. fusion: instead of the store's.
        memory_rerank: orders by ``memory_score``: relevance, discounted by age and lifted by use; and leaves out what
            is rated below the policy's threshold. policy: instead of the store's.
        reinforce: counts this read on the chunks that come back, and on no others.
        rerank, candidates, depth, max_distance, min_text_score, diversity, collapse, expand: as in
            ``Retriever.retrieve``; candidates also of memory_rerank, and expand fuses by rrf unless said.
        fit: the k chunks -> how many of them, from the first, there is room for; only those come back and are counted.
        Chunks of the same text come back once and count the others in ``duplicates``.
        """
        return self._run(
            "search",
            _search_plan(
                self._memory,
                query,
                tags=tags,
                filter=filter,
                k=k,
                use_fts=use_fts,
                fusion=fusion,
                memory_rerank=memory_rerank,
                policy=policy,
                reinforce=reinforce,
                rerank=rerank,
                depth=depth,
                candidates=candidates,
                max_distance=max_distance,
                min_text_score=min_text_score,
                diversity=diversity,
                collapse=collapse,
                expand=expand,
                fit=fit,
            ),
        )

    def context(self, query: str, budget: int, *, count: Callable[[str], int] | None = None, **search: Any) -> Context:
        """The best chunks laid out for a prompt, with their sources, within a budget of tokens.

        count: text -> tokens; a token for every four characters unless said. search: arguments of ``search``, k of
            which is 5 unless said; what did not fit is not counted as read.
        """
        return self._run("context", _context_plan(self._memory, query, budget, count, **search))

    def embed(self, text: str) -> list[float]:
        """The vector of a query of this text: as many floats as the index has dims. InvalidInput if it is blank."""
        return self._run("embed", searching.embed(self._memory, text))

    def rerank(
        self, scored: Sequence[tuple[str, int, float]], *, policy: Policy | None = None
    ) -> tuple[list[Chunk], list[tuple[str, int]]]:
        """(doc_id, chunk_index, relevance) -> chunks by their memory score, and what is unknown. Counts nothing."""
        chosen = _policy(policy, self._memory.policy)
        return self._run("rerank", searching.rerank(self._memory, scored, chosen, _now()))

    def find_by_tag(self, tag: str) -> list[Chunk]:
        """Every chunk with exactly this tag, by document and place; pending ones too. Counts nothing."""
        return self._run("find_by_tag", finding.find_by_tag(self._memory, tag))

    def get_document_chunks(self, doc_id: str, chunk_index: int | None = None, *, window: int = 0) -> list[Chunk]:
        """A document's chunks in order; with chunk_index that one and ``window`` on either side, as far as there are.

        Raises InvalidInput for an unknown document or place. Counts nothing.
        """
        return self._run("get_document_chunks", finding.get_document_chunks(self._memory, doc_id, chunk_index, window))

    def set_chunk_tags(
        self,
        doc_id: str,
        chunk_index: int,
        *,
        importance: Any = None,
        knowledge_type: Any = None,
        tags: Any = None,
        source_date: Any = None,
    ) -> Chunk:
        """Change what is given of one chunk and nothing else; effective at once, nothing is embedded anew.

        importance: 0..1. knowledge_type: principle, paper, news or experiment. tags: replaces all, [] removes them.
        source_date: a date with its zone. CLEAR removes a value. The chunk as it is then.
        """
        return self._run(
            "set_chunk_tags",
            keeping.set_chunk_tags(
                self._memory,
                doc_id,
                chunk_index,
                importance=importance,
                knowledge_type=knowledge_type,
                tags=tags,
                source_date=source_date,
                new_token=_token,
            ),
        )

    def redate(self, doc_id: str, source_date: Any) -> int:
        """Give all chunks of a document another source date (CLEAR: none); answers how many there were."""
        return self._run("redate", keeping.redate(self._memory, doc_id, source_date, _token))

    def delete_document(self, doc_id: str) -> int:
        """Delete a document with its chunks and counters; answers how many chunks there were, 0 if it is unknown."""
        return self._run("delete_document", keeping.delete_document(self._memory, doc_id))

    def delete_chunks(self, ids: str | Iterable[str], *, reason: str | None = None) -> int:
        """Delete chunks by id; answers how many there were. With a reason they are archived first."""
        return self._run("delete_chunks", keeping.delete_chunks(self._memory, ids, reason, _now()))

    def erase(self, *, everything: bool = False) -> Erased:
        """Delete for good all that this store sees: its documents, chunks and counters, and their lines of the archive.

        For whoever asks to be forgotten: open the store with ``user=`` and call it. everything: of a store that is
        opened without user, agent and session, the whole namespace; the empty index stays.
        What is ingested, forgotten or restored meanwhile may stay: call it again.
        Raises InvalidInput unless exactly one of the two is said, OSError for an archive that cannot be written anew
        (all else is then gone, and a second call does the rest).
        """
        return self._run("erase", keeping.erase(self._memory, everything=everything))

    def forget(self, *, dry_run: bool = True, policy: Policy | None = None, **weights: float | None) -> list[Forgotten]:
        """The chunks that the policy gives up, worst first; with dry_run=False they are archived, then deleted.

        Those rated below the threshold, and those whose score fell below ``score_threshold`` with age. weights:
        numbers of the policy to replace for this call. A chunk that was read or changed meanwhile stays.
        """
        chosen = _policy(policy, self._memory.policy).with_weights(**weights)
        return self._run("forget", keeping.forget(self._memory, chosen, dry_run=dry_run, now=_now()))

    def restore(self, ids: str | Iterable[str] | Callable[[Archived], bool]) -> Restored:
        """Bring archived chunks back, embedded anew, with their counters; by id or by a predicate.

        What is in the store stays as it is, and says so; of an id that was archived twice the last one counts.
        """
        return self._run("restore", keeping.restore(self._memory, _wanted(ids)))

    def update_index(self, *, stale: bool = False, timeout_s: float = WAIT_S) -> Indexed:
        """Make pending chunks searchable, and wait until they are. Safe to run twice, and by two at once.

        stale: also embed what has no vector of this model: what a store of another one ingested.
        timeout_s: how long to wait; a report whose ``filling`` is true says that the engine is not done.
        """
        return self._run(
            "update_index",
            indexing.update_index(self._memory, stale=stale, timeout_s=check_seconds("timeout_s", timeout_s)),
        )

    def rebuild_index(self, *, timeout_s: float = WAIT_S) -> Rebuilt:
        """Embed all of the namespace by this store's model into a new generation, which its readers use from then on.

        For another model, metric, dimension or other fields: open the store with them, and call this; nothing else
        works until it is done. Stores of the old model go on searching all the while. Stopped in between, it goes on
        when it is called again. Never needed after deleting.
        Raises SearchTimeout if the engine is still filling the index after timeout_s; readers stay where they were.
        """
        plan = rebuilding.rebuild(self._memory, check_seconds("timeout_s", timeout_s))
        rebuilt = self._run("rebuild_index", plan, unready=True)
        self._ready = True
        return rebuilt

    def drop_other_generations(self) -> int:
        """Drop the indexes and vectors of other models, whose readers find no more; answers how many there were."""
        return self._run("drop_other_generations", rebuilding.drop_others(self._memory))

    def index_health(self) -> Health:
        """What is not as it should be, and which call repairs it. Changes nothing; walks all chunks."""
        return self._run("index_health", indexing.index_health(self._memory))

    def stats(self) -> Stats:
        """What the store holds. Changes nothing; walks all chunks."""
        return self._run("stats", indexing.stats(self._memory))

    def find_near_duplicates(self) -> list[list[Chunk]]:
        """Groups of chunks that say the same but for blanks. Deletes nothing."""
        return self._run("find_near_duplicates", indexing.find_near_duplicates(self._memory))

    def close(self) -> None:
        """Close the connections, and let go of the embedded engine."""
        self._retriever.close()
        if self._server is not None:
            self._server.stop()

    @property
    def embedder(self) -> str | None:
        """The name of the model that embeds; None if it has none."""
        return self._memory.live.embedder

    @property
    def archive(self) -> Path:
        """The file of what is forgotten; it need not be there yet."""
        return self._memory.archive.path

    @property
    def embedded(self) -> bool:
        """Whether its engine is one that it started, or joined, itself."""
        return self._server is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(namespace={self._memory.names.namespace!r})"

    def _run(self, name: str, plan: Plan[T], *, unready: bool = False) -> T:
        if not (self._ready or unready):
            raise _not_ready(self._memory)
        return self._retriever._run(f"memory.{name}", plan)


def _unsaid(**given: object) -> list[str]:
    return [name for name, value in given.items() if value is None]


def _settle(retriever: Retriever | AsyncRetriever, found: Generations) -> None:
    """Let the retriever work on the generation that was chosen for it."""
    live = retriever._live
    if found.chosen > 1:
        live.schema = live.schema.of_generation(found.chosen)


def _not_ready(memory: Memory) -> SchemaMismatch:
    return SchemaMismatch(
        f"namespace {memory.names.namespace!r} was embedded by another model, or with other fields; "
        f"rebuild_index() embeds it by this one, while readers of the other go on"
    )


def _now() -> float:
    """Seconds since the epoch, to the microsecond, which is what an ISO 8601 date in the archive can tell."""
    return round(time.time(), 6)


def _token() -> str:
    return uuid.uuid4().hex


def _server(url: str | None) -> tuple[EmbeddedServer | None, str, Vector]:
    if url is not None:
        return None, url, HNSW
    server = EmbeddedServer(home() / "engine")
    return server, server.start(), FLAT


def _memory(
    retriever: Retriever | AsyncRetriever,
    names: Names,
    scope: Scope,
    policy: Policy | None,
    fusion: str | Fusion | None,
    context: Iterable[str],
    archive: str | os.PathLike[str] | None,
    rerank: Reranker | None,
    rules: Sequence[Rule],
) -> Memory:
    parts = tuple(context)
    unknown = [part for part in parts if part not in ingesting.CONTEXT_PARTS]
    if unknown or isinstance(context, str):
        raise InvalidInput(f"context: of {', '.join(ingesting.CONTEXT_PARTS)}, not {context!r}")
    kept = Archive(home() / "archive" / "chunks_archive.jsonl" if archive is None else archive)
    chosen = as_fusion(Linear(0.3) if fusion is None else fusion)
    knowledge_type("", rules=rules)  # InvalidInput for a rule that is none
    memory = Memory(names, scope, retriever._live, _policy(policy, Policy()), chosen, rerank, kept, parts, tuple(rules))
    memory.filter()  # InvalidInput for a user, agent or session that no tag can be
    return memory


def _policy(given: object, otherwise: Policy) -> Policy:
    if given is None:
        return otherwise
    if not isinstance(given, Policy):
        raise InvalidInput(f"policy: a Policy expected, not {given!r}")
    return given


def _ingest_plan(
    memory: Memory,
    *,
    sources: Any,
    metadata: Any,
    update_index: bool,
    source_key: str | None,
    version: str | None,
    on_duplicate: str,
    split: Split | None,
    size: int,
    dry_run: bool,
    ttl_s: float | None,
    on_source: Any,
    roots: Roots | None,
    tokens: Any = None,
) -> Plan[IngestReport]:
    if on_duplicate not in ("keep", "skip"):
        raise InvalidInput(f"on_duplicate: 'keep' or 'skip' expected, not {on_duplicate!r}")
    check_bool("update_index", update_index)
    check_bool("dry_run", dry_run)
    if not (on_source is None or callable(on_source)):
        raise InvalidInput(f"on_source: a function of an Ingested expected, not {on_source!r}")
    if not (roots is None or isinstance(roots, Roots)):
        raise InvalidInput(f"roots: a Roots expected, not {roots!r}")
    read = sources_of(
        sources,
        metadata,
        source_key=source_key,
        version=version,
        split=split,
        size=size,
        roots=roots,
        tokens=tokens,
        rules=memory.rules,
    )
    return ingesting.ingest_all(
        memory,
        read,
        on_source,
        now=_now(),
        new_token=_token,
        update_index=update_index,
        on_duplicate=on_duplicate,
        dry_run=dry_run,
        ttl_s=ttl_s,
    )


def _search_plan(memory: Memory, query: str, **given: Any) -> Plan[Found]:
    names = (
        "tags filter fusion policy rerank depth candidates max_distance min_text_score diversity collapse expand fit"
    )
    defaults: dict[str, Any] = dict.fromkeys(names.split())
    defaults |= {"k": 5, "use_fts": True, "memory_rerank": False, "reinforce": True}
    unknown = given.keys() - defaults.keys()
    if unknown:
        raise InvalidInput(f"search has no argument {', '.join(sorted(unknown))}")
    return searching.search_memory(memory, query, **{**defaults, **given}, now=_now())


def _context_plan(
    memory: Memory, query: str, budget: int, count: Callable[[str], int] | None, **given: Any
) -> Plan[Context]:
    reinforce = given.pop("reinforce", True)
    found = _search_plan(memory, query, **given, reinforce=False)
    return searching.context(memory, found, budget, count, now=_now(), reinforce=reinforce)


def _wanted(ids: Any) -> Callable[[Archived], bool]:
    if callable(ids):
        predicate: Callable[[Archived], bool] = ids
        return predicate
    chosen = frozenset(id_list(ids))
    return lambda entry: entry.id in chosen


class AsyncMemoryStore:
    """The same store, awaited: ``await AsyncMemoryStore.open(...)``, and ``async with``. See ``MemoryStore``."""

    def __init__(
        self, retriever: AsyncRetriever, memory: Memory, server: EmbeddedServer | None, found: Generations
    ) -> None:
        self._retriever, self._memory, self._server, self._ready = retriever, memory, server, found.ready

    @classmethod
    async def open(
        cls,
        url: str | None = None,
        *,
        namespace: str = "default",
        embed: Embedder,
        rerank: Reranker | None = None,
        fields: Sequence[Field] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        policy: Policy | None = None,
        fusion: str | Fusion | None = None,
        context: Iterable[str] = CONTEXT,
        rules: Sequence[Rule] = RULES,
        archive: str | os.PathLike[str] | None = None,
        vector: Vector | None = None,
        analysis: Analysis | None = None,
        cluster: bool = False,
    ) -> Self:
        """See ``MemoryStore.open``. A started engine blocks for a moment."""
        server, address, default = _server(url)
        retriever: AsyncRetriever | None = None
        try:
            names, scope = Names(namespace), Scope(user, agent, session)
            schema = schema_of(names, fields or (), vector or default, Analysis() if analysis is None else analysis)
            retriever = AsyncRetriever.connect(address, schema, embed=embed, rerank=rerank, cluster=cluster)
            memory = _memory(retriever, names, scope, policy, fusion, context, archive, rerank, rules)
            unsaid = _unsaid(fields=fields, vector=vector, analysis=analysis)
            if unsaid:
                await retriever._run("memory.open", rebuilding.inherit(retriever._live, unsaid))
            found = await retriever._run("memory.open", rebuilding.choose(retriever._live))
            _settle(retriever, found)
            if found.ready:
                await retriever.create_index()
        except BaseException:
            if retriever is not None:
                await retriever.close()
            if server is not None:
                server.stop()
            raise
        return cls(retriever, memory, server, found)

    async def ingest(
        self,
        sources: str | os.PathLike[str] | Note | Iterable[str | os.PathLike[str] | Note],
        *,
        metadata: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        update_index: bool = True,
        source_key: str | None = None,
        version: str | None = None,
        on_duplicate: str = "keep",
        split: Split | None = None,
        size: int = 512,
        tokens: Any = None,
        dry_run: bool = False,
        ttl_s: float | None = None,
        on_source: Callable[[Ingested], Any] | None = None,
        roots: Roots | None = None,
    ) -> IngestReport:
        """See ``MemoryStore.ingest``."""
        return await self._run(
            "ingest",
            _ingest_plan(
                self._memory,
                sources=sources,
                metadata=metadata,
                update_index=update_index,
                source_key=source_key,
                version=version,
                on_duplicate=on_duplicate,
                split=split,
                size=size,
                tokens=tokens,
                dry_run=dry_run,
                ttl_s=ttl_s,
                on_source=on_source,
                roots=roots,
            ),
        )

    async def search(
        self,
        query: str,
        *,
        tags: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
        filter: FilterSpec = None,
        k: int = 5,
        use_fts: bool = True,
        fusion: str | Fusion | None = None,
        memory_rerank: bool = False,
        policy: Policy | None = None,
        reinforce: bool = True,
        rerank: Reranker | bool | None = None,
        depth: int | None = None,
        candidates: int | None = None,
        max_distance: float | None = None,
        min_text_score: float | None = None,
        diversity: float | None = None,
        collapse: str | None = None,
        expand: Callable[[str], Any] | None = None,
        fit: Callable[[Sequence[Chunk]], int] | None = None,
    ) -> Found:
        """See ``MemoryStore.search``."""
        return await self._run(
            "search",
            _search_plan(
                self._memory,
                query,
                tags=tags,
                filter=filter,
                k=k,
                use_fts=use_fts,
                fusion=fusion,
                memory_rerank=memory_rerank,
                policy=policy,
                reinforce=reinforce,
                rerank=rerank,
                depth=depth,
                candidates=candidates,
                max_distance=max_distance,
                min_text_score=min_text_score,
                diversity=diversity,
                collapse=collapse,
                expand=expand,
                fit=fit,
            ),
        )

    async def context(
        self, query: str, budget: int, *, count: Callable[[str], int] | None = None, **search: Any
    ) -> Context:
        """See ``MemoryStore.context``."""
        return await self._run("context", _context_plan(self._memory, query, budget, count, **search))

    async def embed(self, text: str) -> list[float]:
        """See ``MemoryStore.embed``."""
        return await self._run("embed", searching.embed(self._memory, text))

    async def rerank(
        self, scored: Sequence[tuple[str, int, float]], *, policy: Policy | None = None
    ) -> tuple[list[Chunk], list[tuple[str, int]]]:
        """See ``MemoryStore.rerank``."""
        chosen = _policy(policy, self._memory.policy)
        return await self._run("rerank", searching.rerank(self._memory, scored, chosen, _now()))

    async def find_by_tag(self, tag: str) -> list[Chunk]:
        """See ``MemoryStore.find_by_tag``."""
        return await self._run("find_by_tag", finding.find_by_tag(self._memory, tag))

    async def get_document_chunks(self, doc_id: str, chunk_index: int | None = None, *, window: int = 0) -> list[Chunk]:
        """See ``MemoryStore.get_document_chunks``."""
        return await self._run(
            "get_document_chunks", finding.get_document_chunks(self._memory, doc_id, chunk_index, window)
        )

    async def set_chunk_tags(
        self,
        doc_id: str,
        chunk_index: int,
        *,
        importance: Any = None,
        knowledge_type: Any = None,
        tags: Any = None,
        source_date: Any = None,
    ) -> Chunk:
        """See ``MemoryStore.set_chunk_tags``."""
        return await self._run(
            "set_chunk_tags",
            keeping.set_chunk_tags(
                self._memory,
                doc_id,
                chunk_index,
                importance=importance,
                knowledge_type=knowledge_type,
                tags=tags,
                source_date=source_date,
                new_token=_token,
            ),
        )

    async def redate(self, doc_id: str, source_date: Any) -> int:
        """See ``MemoryStore.redate``."""
        return await self._run("redate", keeping.redate(self._memory, doc_id, source_date, _token))

    async def delete_document(self, doc_id: str) -> int:
        """See ``MemoryStore.delete_document``."""
        return await self._run("delete_document", keeping.delete_document(self._memory, doc_id))

    async def delete_chunks(self, ids: str | Iterable[str], *, reason: str | None = None) -> int:
        """See ``MemoryStore.delete_chunks``."""
        return await self._run("delete_chunks", keeping.delete_chunks(self._memory, ids, reason, _now()))

    async def erase(self, *, everything: bool = False) -> Erased:
        """See ``MemoryStore.erase``."""
        return await self._run("erase", keeping.erase(self._memory, everything=everything))

    async def forget(
        self, *, dry_run: bool = True, policy: Policy | None = None, **weights: float | None
    ) -> list[Forgotten]:
        """See ``MemoryStore.forget``."""
        chosen = _policy(policy, self._memory.policy).with_weights(**weights)
        return await self._run("forget", keeping.forget(self._memory, chosen, dry_run=dry_run, now=_now()))

    async def restore(self, ids: str | Iterable[str] | Callable[[Archived], bool]) -> Restored:
        """See ``MemoryStore.restore``."""
        return await self._run("restore", keeping.restore(self._memory, _wanted(ids)))

    async def update_index(self, *, stale: bool = False, timeout_s: float = WAIT_S) -> Indexed:
        """See ``MemoryStore.update_index``."""
        return await self._run(
            "update_index",
            indexing.update_index(self._memory, stale=stale, timeout_s=check_seconds("timeout_s", timeout_s)),
        )

    async def rebuild_index(self, *, timeout_s: float = WAIT_S) -> Rebuilt:
        """See ``MemoryStore.rebuild_index``."""
        plan = rebuilding.rebuild(self._memory, check_seconds("timeout_s", timeout_s))
        rebuilt = await self._run("rebuild_index", plan, unready=True)
        self._ready = True
        return rebuilt

    async def drop_other_generations(self) -> int:
        """See ``MemoryStore.drop_other_generations``."""
        return await self._run("drop_other_generations", rebuilding.drop_others(self._memory))

    async def index_health(self) -> Health:
        """See ``MemoryStore.index_health``."""
        return await self._run("index_health", indexing.index_health(self._memory))

    async def stats(self) -> Stats:
        """See ``MemoryStore.stats``."""
        return await self._run("stats", indexing.stats(self._memory))

    async def find_near_duplicates(self) -> list[list[Chunk]]:
        """See ``MemoryStore.find_near_duplicates``."""
        return await self._run("find_near_duplicates", indexing.find_near_duplicates(self._memory))

    async def close(self) -> None:
        """See ``MemoryStore.close``."""
        await self._retriever.close()
        if self._server is not None:
            self._server.stop()

    @property
    def embedder(self) -> str | None:
        """See ``MemoryStore.embedder``."""
        return self._memory.live.embedder

    @property
    def archive(self) -> Path:
        """See ``MemoryStore.archive``."""
        return self._memory.archive.path

    @property
    def embedded(self) -> bool:
        """See ``MemoryStore.embedded``."""
        return self._server is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(namespace={self._memory.names.namespace!r})"

    async def _run(self, name: str, plan: Plan[T], *, unready: bool = False) -> T:
        if not (self._ready or unready):
            raise _not_ready(self._memory)
        return await self._retriever._run(f"memory.{name}", plan)
