"""The index of a store: what waits to be searchable, what is wrong, what there is. Only update_index changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fields.kinds import Tag
from fields.names import stamp_field
from retriever.documents import Failure
from retriever.memory.chunks import (
    PENDING,
    Chunk,
    indexed_text,
    revision_of,
)
from retriever.memory.finding import (
    Memory,
    documents_of_scope,
    kept_ids,
    matching,
    optional,
    walk,
    without_vector,
)
from retriever.memory.ingesting import MARK
from retriever.memory.writing import BATCH
from retriever.operations import read, write
from retriever.operations.index import describe, known_schema, search_engine, wait, whole_index
from retriever.plans import Command, Plan, ask_all, ask_one, raise_first
from retriever.queries import check_bool


@dataclass(frozen=True, slots=True)
class Indexed:
    """What update_index did: chunks embedded, those that failed, and how many still wait.

    filling: time ran out while the engine was still filling the index, so that searches are not complete yet.
    """

    embedded: int
    failed: tuple[Failure, ...]
    backlog: int
    filling: bool = False


def update_index(memory: Memory, *, stale: bool, timeout_s: float) -> Plan[Indexed]:
    """See ``MemoryStore.update_index``."""
    check_bool("stale", stale)
    ids = yield from matching(memory, Tag("state") == PENDING)
    if stale:
        # Of the whole namespace: who embeds with another model leaves them out for every user.
        ids = list(dict.fromkeys([*ids, *(yield from without_vector(memory))]))
    embedded = 0
    failures: list[Failure] = []
    for start in range(0, len(ids), BATCH):
        found = yield from read.get(memory.live, ids[start : start + BATCH], return_vectors=False)
        assert isinstance(found, list)
        documents = [replace(each, indexed_text=indexed_text(each)) for each in found if each is not None]
        failed = (yield from write.complete(memory.live, documents, "state")) if documents else ()
        failures += failed
        embedded += len(documents) - len(failed)
    filled = yield from wait(memory.live, timeout_s)
    backlog = yield from matching(memory, Tag("state") == PENDING)
    return Indexed(embedded, tuple(failures), len(backlog), not filled)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be. count: of how many. advice: the call that repairs it.

    harmless: nothing needs doing.
    """

    what: str
    count: int
    examples: tuple[str, ...]
    advice: str
    harmless: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """What index_health found; ok if nothing that needs doing."""

    findings: tuple[Finding, ...]
    chunks: int
    documents: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found, or only what is harmless."""
        return all(finding.harmless for finding in self.findings)


def index_health(memory: Memory) -> Plan[Health]:
    """See ``MemoryStore.index_health``. Changes nothing."""
    live = memory.live
    before = yield from describe(live)
    held = yield from _hashes(memory)
    report = yield from describe(live)
    # Counted before and after, since others may write meanwhile. The engine's own count of failures never goes back.
    gone = min(before.documents, report.documents) - held
    refused = held - max(before.documents, report.documents)
    differs = yield from _drift(memory)
    chunks = yield from walk(memory)
    stamps = yield from _stamps(memory, [chunk.id for chunk in chunks])
    documents = yield from documents_of_scope(memory)
    uses = yield from ask_one(
        Command(("HKEYS", memory.names.uses), lambda reply: [bytes(each).decode() for each in reply], memory.names.uses)
    )
    known = {chunk.id for chunk in chunks}
    homeless = [
        chunk.id
        for chunk in chunks
        if chunk.doc_id not in documents or documents[chunk.doc_id].get("revision") != revision_of(chunk.id)
    ]
    short = [doc_id for doc_id, stored in documents.items() if any(id not in known for id in kept_ids(doc_id, stored))]
    unfinished = [doc_id for doc_id, stored in documents.items() if any(name.startswith(MARK) for name in stored)]
    pending = [chunk.id for chunk in chunks if chunk.pending]
    bare = [chunk.id for chunk, stamp in zip(chunks, stamps, strict=True) if stamp is None and not chunk.pending]
    orphans = [id for id in uses if id not in known] if not memory.scope.fields else []
    table: list[tuple[str, Sequence[str], str]] = [
        ("chunks that wait to be searchable", pending, "update_index() embeds them"),
        ("chunks without a vector of this model", bare, "update_index(stale=True) embeds them"),
        (
            "chunks of no document's current version",
            homeless,
            "delete_chunks(); the next version of their source takes them along",
        ),
        (
            "documents that lack chunks",
            short,
            "no fault if they are just expiring; else ingest the source again, which writes all of it anew",
        ),
        ("ingests that did not come to their end", unfinished, "ingest the source again, or delete_document()"),
    ]
    findings = [Finding(what, len(ids), tuple(ids[:5]), advice) for what, ids, advice in table if ids]
    if differs:
        advice = "drop it (FT.DROPINDEX, without DD); open() then makes it anew, of the chunks that are there"
        findings.append(Finding("the index is not the one that was declared", len(differs), differs[:5], advice))
    if report.failures and refused > 0:
        last = f"; the last one: {report.last_error} at {report.last_error_key}" if report.last_error else ""
        advice = "delete_document() of the one named there, then ingest its source again"
        findings.append(Finding(f"chunks refused by the engine{last}", refused, (), advice))
    if orphans:  # of chunks that expired
        what, advice = "use counts of chunks that are gone", "harmless; nothing needs doing"
        findings.append(Finding(what, len(orphans), tuple(orphans[:5]), advice, harmless=True))
    if gone > 0:
        advice = "searches leave them out; a namespace whose index is dropped (FT.DROPINDEX) is indexed anew by open()"
        findings.append(Finding("index entries of chunks that are gone", gone, (), advice))
    if report.indexing:
        findings.append(Finding("the index is still being filled", 1, (), "wait, or search and see complete=False"))
    return Health(tuple(findings), len(chunks), sum("revision" in stored for stored in documents.values()))


def _drift(memory: Memory) -> Plan[tuple[str, ...]]:
    """In words, how the live index differs from the store's."""
    engine = yield from search_engine(memory.live)
    schema = yield from known_schema(memory.live)
    return tuple(schema.live_differences((yield from whole_index(memory.live)), engine))


def _hashes(memory: Memory) -> Plan[int]:
    """How many hashes there are under the index's prefix, whoever's."""
    found: set[bytes] = set()
    steps = yield from read.start_walk()
    while steps.nodes:
        found.update((yield from read.keys_of_page(steps, memory.live.schema.prefix, 1000)))
    return len(found)


def _stamps(memory: Memory, ids: Sequence[str]) -> Plan[list[bytes | None]]:
    """The hash of what each vector was made from; None where there is no vector."""
    name, prefix = stamp_field(memory.live.schema.vector.name), memory.live.schema.prefix
    found: list[bytes | None] = []
    for start in range(0, len(ids), 500):
        keys = [prefix + id for id in ids[start : start + 500]]
        rows = yield from ask_all([Command(("HGET", key, name), optional, key) for key in keys])
        raise_first(*rows)
        found += rows
    return found


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds.

    documents, chunks, pending: how many. by_type: kind, or "unset" -> chunks. rated, tagged: shares, 0..1.
    uses: how often read ("0", "1-9", "10-99", "100+") -> chunks. duplicates: groups of chunks that say the same.
    bytes: of their texts, in UTF-8.
    """

    documents: int
    chunks: int
    pending: int
    by_type: Mapping[str, int]
    rated: float
    tagged: float
    uses: Mapping[str, int]
    duplicates: int
    bytes: int


def stats(memory: Memory) -> Plan[Stats]:
    """See ``MemoryStore.stats``. Changes nothing."""
    chunks = yield from walk(memory)
    documents = yield from documents_of_scope(memory)
    by_type: dict[str, int] = {}
    uses = dict.fromkeys(("0", "1-9", "10-99", "100+"), 0)
    for chunk in chunks:
        kind = chunk.knowledge_type or "unset"
        by_type[kind] = by_type.get(kind, 0) + 1
        count = chunk.access_count
        uses["0" if not count else "1-9" if count < 10 else "10-99" if count < 100 else "100+"] += 1
    total = max(1, len(chunks))
    return Stats(
        documents=sum("revision" in stored for stored in documents.values()),
        chunks=len(chunks),
        pending=sum(chunk.pending for chunk in chunks),
        by_type=by_type,
        rated=sum(chunk.importance is not None for chunk in chunks) / total,
        tagged=sum(bool(chunk.tags) for chunk in chunks) / total,
        uses=uses,
        duplicates=sum(1 for _ in _twins(chunks)),
        bytes=sum(len(chunk.content.encode()) for chunk in chunks),
    )


def find_near_duplicates(memory: Memory) -> Plan[list[list[Chunk]]]:
    """See ``MemoryStore.find_near_duplicates``."""
    return list(_twins((yield from walk(memory))))


def _twins(chunks: Iterable[Chunk]) -> Iterable[list[Chunk]]:
    groups: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        groups.setdefault(chunk.content_hash, []).append(chunk)
    for group in groups.values():
        if len(group) > 1:
            yield sorted(group, key=lambda chunk: chunk.id)
