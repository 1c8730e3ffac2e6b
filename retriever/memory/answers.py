"""What the tools of the MCP server answer: one model for each, and how an answer keeps to its size.

Rule: an answer is read by a model with little room. It holds at most ``BUDGET`` bytes of JSON; texts become previews
before anything is left out, what is left out is counted, and the answer says so. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from retriever.documents import Failure
from retriever.memory.chunks import Chunk, iso
from retriever.memory.indexing import Health, Indexed, Stats
from retriever.memory.ingesting import Ingested, IngestReport
from retriever.memory.keeping import Forgotten
from retriever.memory.rebuilding import Rebuilt
from retriever.memory.searching import Found

# Bytes of JSON, as it stands in the text of a result; hosts warn from some 10,000 tokens on.
BUDGET = 40_000
_ROOM = BUDGET - 2_000  # for what stands around a list
_LENGTHS = (100_000, 4_000, 1_500, 700, 300, 120)  # characters of a text, tried in this order
_NAME = 300  # characters of a source, a section, a reason
_TAGS, _TAG = 20, 100  # tags of a chunk, and characters of one
_METADATA = 1_500  # bytes of a chunk's metadata, as they stand in the answer: indented

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Piece(_Model):
    """A chunk: a piece of a document, as it was put in."""

    id: str
    doc_id: str
    chunk_index: int = Field(description="Its place in the document, from 0.")
    content: str
    truncated: bool = Field(
        description="Whether something of it is left out here; get_document_chunks(doc_id, chunk_index) has more."
    )
    section: str | None
    source: str | None = Field(description="The file or key that it came from.")
    speaker: str | None
    content_type: str | None
    tags: list[str]
    knowledge_type: str | None = Field(description="principle, paper, news or experiment; decides how fast it ages.")
    importance: float | None = Field(description="A person's rating, 0 to 1.")
    access_count: int = Field(description="How often it was read before.")
    last_accessed_at: str | None
    created_at: str
    source_date: str | None
    pending: bool = Field(description="Whether it is found by search only after update_index.")
    metadata: dict[str, Any]


class ScoredPiece(Piece):
    """A chunk with how well it answers."""

    score: float = Field(description="Relevance, 0 to 1: higher is better. It is not a distance.")
    channels: list[str] = Field(description="What found it: vector (meaning), text (words).")
    duplicates: int = Field(description="Chunks of the same text that were left out.")


class RankedPiece(Piece):
    """A chunk with its score by relevance, age and use."""

    score: float = Field(description="Relevance discounted by age, lifted by use: higher is better. Not a distance.")
    relevance: float = Field(description="The score that it was given with.")


class Answer(_Model):
    """What answers with a list have in common."""

    truncated: bool = Field(default=False, description="Whether something is left out, or only a preview.")
    notes: list[str] = Field(default_factory=list, description="What to know about this answer.")


class Embedding(_Model):
    """The vector that a query of the text has."""

    model: str | None
    dims: int
    vector: list[float]


class ChannelStats(_Model):
    """One channel of a search."""

    candidates: int
    ms: float = Field(description="Both channels share one round trip: each takes as long as both.")


class SearchStats(_Model):
    """What a search did."""

    k: int = Field(description="How many chunks are in this answer.")
    vector: ChannelStats | None = Field(description="Search by meaning; null where it did not run.")
    text: ChannelStats | None = Field(description="Search by words; null where it did not run.")
    embed_ms: float
    rerank_ms: float
    failed_channels: list[str]
    orphan_index_entries: int = Field(description="Entries of the index whose chunk is gone: expired, or just deleted.")
    duplicate_contents: int = Field(description="Chunks left out because another says the same.")
    complete: bool = Field(description="Whether all that could be found was looked at.")
    truncated: bool


class SearchAnswer(Answer):
    """The chunks that answer best, best first."""

    chunks: list[ScoredPiece]
    stats: SearchStats | None


class Place(_Model):
    """Where a chunk is, or would be."""

    doc_id: str
    chunk_index: int


class RerankAnswer(Answer):
    """The chunks by relevance, age and use, best first; and those that the store does not know."""

    chunks: list[RankedPiece]
    unknown: list[Place]


class IngestedSource(_Model):
    """What became of one file."""

    source: str
    status: str = Field(description="ingested, replaced, skipped or failed.")
    doc_id: str | None
    chunks: int
    reason: str | None
    duplicate_of: str | None = Field(description="Another document with the same content.")


class IngestAnswer(Answer):
    """What became of every file."""

    ingested: int
    replaced: int
    skipped: int
    failed: int
    chunks: int = Field(description="Chunks written.")
    seconds: float
    sources: list[IngestedSource]


class TaggedAnswer(_Model):
    """The chunk as it is now."""

    chunk: Piece


class ChunksAnswer(Answer):
    """Chunks in the order of their documents."""

    chunks: list[Piece]
    total: int = Field(description="How many there are, also those left out here.")


class DeletedAnswer(_Model):
    """What was deleted."""

    doc_id: str
    deleted: int = Field(description="How many chunks the document had; 0 if there was none.")
    notes: list[str]


class FailedChunk(_Model):
    """A chunk that could not be embedded."""

    id: str
    reason: str


class IndexedAnswer(Answer):
    """What update_index did."""

    embedded: int
    failed: list[FailedChunk]
    backlog: int = Field(description="How many chunks still wait.")


class RebuiltAnswer(Answer):
    """What rebuild_index did."""

    embedded: int
    failed: list[FailedChunk]
    generation: int = Field(description="The one that is searched from now on.")


class ForgottenPiece(_Model):
    """A chunk that was forgotten, or would be."""

    id: str
    doc_id: str
    chunk_index: int
    preview: str
    source: str | None
    knowledge_type: str | None
    importance: float | None
    score: float = Field(description="Higher is better kept.")
    reason: str
    deleted: bool


class ForgottenAnswer(Answer):
    """What forgetting took, or would take, worst first."""

    dry_run: bool
    total: int = Field(description="How many chunks it is about.")
    deleted: int = Field(description="How many are archived and deleted; 0 in a dry run.")
    archive: str = Field(description="The file that deleted chunks can be restored from.")
    chunks: list[ForgottenPiece]


class HealthFinding(_Model):
    """One thing that is not as it should be."""

    what: str
    count: int
    examples: list[str]
    advice: str


class HealthAnswer(_Model):
    """What is not as it should be, and what repairs it."""

    ok: bool
    chunks: int
    documents: int
    findings: list[HealthFinding]


class StatsAnswer(_Model):
    """What the memory holds."""

    documents: int
    chunks: int
    pending: int = Field(description="Chunks that search does not find before update_index.")
    by_type: dict[str, int]
    rated: float = Field(description="Share of chunks with an importance.")
    tagged: float = Field(description="Share of chunks with a tag.")
    uses: dict[str, int] = Field(description="How many chunks were read how often.")
    duplicates: int = Field(description="Groups of chunks that say the same.")
    bytes: int = Field(description="Of text.")


class DocumentAnswer(Answer):
    """A document's text, from its beginning, as its chunks hold it."""

    doc_id: str
    source: str | None
    chunks: int
    text: str


# --- size -----------------------------------------------------------------------------------------


def size(model: BaseModel) -> int:
    """Bytes of an item of a list in an answer's JSON."""
    said = model.model_dump_json(indent=2)
    return len(said.encode()) + 4 * (said.count("\n") + 1) + 2  # indented twice, a comma and a line's end


def within(
    items: Sequence[T], show: Callable[[T, int], M], *, lengths: Sequence[int] = _LENGTHS, room: int = _ROOM
) -> list[M]:
    """As many items as there is room for, from the first, with texts as long as lets all of them in.

    show: (an item, characters that a text of it may have) -> what stands in the answer. room: bytes for all of them.
    """
    shown: list[M] = []
    for length in lengths:
        shown, left = [], room
        for item in items:
            each = show(item, length)
            left -= size(each)
            if left < 0:
                break
            shown.append(each)
        else:
            return shown
    return shown


def cut(text: str, length: int) -> str:
    """The text, or its beginning, whose end is marked."""
    return text if len(text) <= length else f"{text[: length - 4]} ..."


def _short(text: str | None) -> str | None:
    return None if text is None else cut(text, _NAME)


def _left_out(count: int, of: int, what: str, how: str) -> list[str]:
    return [f"{count} of {of} {what} are here, which is what there is room for; {how}"] if count < of else []


# --- chunks ---------------------------------------------------------------------------------------


def _is_roomy(metadata: Mapping[str, Any]) -> bool:
    """Whether there is room for it as it will stand: of deep lists each item has a line, mostly of blanks."""
    left = _METADATA
    for part in json.JSONEncoder(ensure_ascii=False, default=str, indent=2).iterencode(metadata):
        left -= len(part.encode())
        if left < 0:  # of a megabyte the rest is not looked at
            return False
    return True


def _fields(chunk: Chunk, length: int) -> dict[str, Any]:
    metadata = {**chunk.metadata, **chunk.fields}
    roomy = _is_roomy(metadata)
    tags = [cut(tag, _TAG) for tag in chunk.tags[:_TAGS]]
    names = (chunk.source, chunk.section, chunk.speaker, chunk.content_type)
    whole = len(chunk.content) <= length and roomy and tags == list(chunk.tags)
    return {
        "id": chunk.id,
        "doc_id": chunk.doc_id,
        "chunk_index": chunk.chunk_index,
        "content": cut(chunk.content, length),
        "truncated": not whole or any(len(name or "") > _NAME for name in names),
        "section": _short(chunk.section),
        "source": _short(chunk.source),
        "speaker": _short(chunk.speaker),
        "content_type": _short(chunk.content_type),
        "tags": tags,
        "knowledge_type": chunk.knowledge_type,
        "importance": chunk.importance,
        "access_count": chunk.access_count,
        "last_accessed_at": None if chunk.last_accessed_at is None else iso(chunk.last_accessed_at),
        "created_at": iso(chunk.created_at),
        "source_date": None if chunk.source_date is None else iso(chunk.source_date),
        "pending": chunk.pending,
        "metadata": metadata if roomy else {},
    }


def piece(chunk: Chunk, length: int) -> Piece:
    """A chunk, with so many characters of its text."""
    return Piece(**_fields(chunk, length))


def scored(chunk: Chunk, length: int) -> ScoredPiece:
    """A chunk that a search found."""
    return ScoredPiece(
        **_fields(chunk, length),
        score=chunk.relevance or 0.0,
        channels=list(chunk.channels),
        duplicates=chunk.duplicates,
    )


def _ranked(chunk: Chunk, length: int) -> RankedPiece:
    return RankedPiece(**_fields(chunk, length), score=chunk.memory_score or 0.0, relevance=chunk.relevance or 0.0)


def _place(place: tuple[str, int], length: int) -> Place:
    return Place(doc_id=cut(place[0], length), chunk_index=place[1])


def room_for(chunks: Sequence[Chunk]) -> int:
    """How many of a search's chunks an answer has room for, from the first; their counters are not read yet."""
    return len(within([replace(each, access_count=10**9, last_accessed_at=1e-6) for each in chunks], scored))


# --- answers --------------------------------------------------------------------------------------

_GONE = re.compile(r"(\d+) hits expired")  # behind the channel's name, where words found them
_FAILED = re.compile(r"(vector|text): \w+: ")  # then what the server said


def search_answer(found: Found, *, include_stats: bool, left: int) -> SearchAnswer:
    """What a search found. left: chunks that there was no room for, which were not counted as read either."""
    chunks = within(found.chunks, scored)
    truncated = left > 0 or any(each.truncated for each in chunks)
    notes = _left_out(len(chunks), len(found.chunks) + left, "chunks", "ask for fewer, or narrow the question")
    stats = _search_stats(found, len(chunks), truncated=truncated) if include_stats else None
    reasons = [cut(reason, _NAME) for reason in found.reasons[:10]]
    return SearchAnswer(chunks=chunks, stats=stats, truncated=truncated, notes=[*reasons, *notes])


def _search_stats(found: Found, k: int, *, truncated: bool) -> SearchStats:
    given = found.stats
    channels = {
        name: ChannelStats(candidates=int(given[f"{name}_candidates"]), ms=round(given.get("search_ms", 0.0), 3))
        for name in ("vector", "text")
        if f"{name}_candidates" in given
    }
    failed = [match[1] for reason in found.reasons if (match := _FAILED.match(reason))]
    return SearchStats(
        k=k,
        vector=channels.get("vector"),
        text=channels.get("text"),
        embed_ms=round(given.get("embed_ms", 0.0), 3),
        rerank_ms=round(given.get("rerank_ms", 0.0), 3),
        failed_channels=failed,
        orphan_index_entries=sum(int(match[1]) for reason in found.reasons if (match := _GONE.search(reason))),
        duplicate_contents=sum(chunk.duplicates for chunk in found.chunks),
        complete=found.complete,
        truncated=truncated,
    )


def rerank_answer(chunks: Sequence[Chunk], unknown: Sequence[tuple[str, int]], given: int) -> RerankAnswer:
    """Chunks by their memory score. given: how many were asked about."""
    missing = within(unknown, _place, lengths=(_NAME, 60), room=_ROOM // 4)
    shown = within(chunks, _ranked, room=_ROOM * 3 // 4)
    cut = given - len(chunks) - len(unknown)
    notes = [f"{cut} of the chunks are rated below the importance threshold, or were given twice"] if cut > 0 else []
    notes += [f"{len(unknown)} of the chunks are not in the memory; search again"] if unknown else []
    notes += _left_out(len(shown), len(chunks), "chunks", "give fewer")
    return RerankAnswer(
        chunks=shown,
        unknown=missing,
        truncated=len(shown) < len(chunks) or len(missing) < len(unknown) or any(each.truncated for each in shown),
        notes=notes,
    )


def ingest_answer(report: IngestReport) -> IngestAnswer:
    """What became of the files."""

    def show(source: Ingested, length: int) -> IngestedSource:
        given = asdict(source)
        return IngestedSource(
            **given | {"source": cut(source.source, length), "reason": source.reason and cut(source.reason, length)}
        )

    shown = within(report.sources, show, lengths=(1_000, _NAME, 100))
    twins = sum(each.duplicate_of is not None for each in report.sources)
    return IngestAnswer(
        ingested=len(report.ingested),
        replaced=len(report.replaced),
        skipped=len(report.skipped),
        failed=len(report.failed),
        chunks=report.chunks,
        seconds=round(report.seconds, 3),
        sources=shown,
        truncated=len(shown) < len(report.sources),
        notes=_left_out(len(shown), len(report.sources), "files", "the counts are of all")
        + ([f"{twins} have the same content as another document, which duplicate_of names"] if twins else []),
    )


def chunks_answer(chunks: Sequence[Chunk], *, whole: bool) -> ChunksAnswer:
    """Chunks in their order. whole: rather fewer of them than previews; the others can be asked for by their place."""
    shown = within(chunks, piece, lengths=_LENGTHS[:1] if whole else _LENGTHS)
    how = "get_document_chunks reads the others" if not whole else "give chunk_index and window for those that follow"
    if whole and chunks and not shown:
        shown = within(chunks[:1], piece)
    return ChunksAnswer(
        chunks=shown,
        total=len(chunks),
        truncated=len(shown) < len(chunks) or any(each.truncated for each in shown),
        notes=_left_out(len(shown), len(chunks), "chunks", how),
    )


def tagged_answer(chunk: Chunk) -> TaggedAnswer:
    """One chunk."""
    return TaggedAnswer(chunk=within([chunk], piece)[0])


def _failures(failed: Sequence[Failure]) -> tuple[list[FailedChunk], dict[str, Any]]:
    shown = within(failed, lambda each, length: FailedChunk(id=each.id, reason=cut(each.reason, length)))
    return shown, {
        "truncated": len(shown) < len(failed),
        "notes": _left_out(len(shown), len(failed), "failures", "the command update-index --json lists all"),
    }


def indexed_answer(done: Indexed) -> IndexedAnswer:
    """What update_index did."""
    failed, rest = _failures(done.failed)
    rest["notes"] += ["the engine is still filling the index: searches are not complete yet"] if done.filling else []
    return IndexedAnswer(embedded=done.embedded, failed=failed, backlog=done.backlog, **rest)


def rebuilt_answer(done: Rebuilt) -> RebuiltAnswer:
    """What rebuild_index did."""
    failed, rest = _failures(done.failed)
    return RebuiltAnswer(embedded=done.embedded, failed=failed, generation=done.generation, **rest)


def forgotten_answer(gone: Sequence[Forgotten], *, dry_run: bool, archive: str) -> ForgottenAnswer:
    """What forgetting took, or would take."""

    def show(each: Forgotten, length: int) -> ForgottenPiece:
        chunk = each.chunk
        return ForgottenPiece(
            id=chunk.id,
            doc_id=chunk.doc_id,
            chunk_index=chunk.chunk_index,
            preview=cut(chunk.content, length),
            source=_short(chunk.source),
            knowledge_type=chunk.knowledge_type,
            importance=chunk.importance,
            score=round(each.score, 6),
            reason=cut(each.reason, _NAME),
            deleted=each.deleted,
        )

    shown = within(gone, show, lengths=(300, 120, 60))
    deleted = sum(each.deleted for each in gone)
    notes = _left_out(len(shown), len(gone), "chunks", "the worst come first, and the counts are of all")
    if dry_run and gone:
        notes.append("nothing was changed; show a person this list, and run it with dry_run=false only on their yes")
    elif deleted < len(gone):
        notes.append(f"{len(gone) - deleted} stayed: they were read or changed meanwhile")
    return ForgottenAnswer(
        dry_run=dry_run,
        total=len(gone),
        deleted=deleted,
        archive=archive,
        chunks=shown,
        truncated=len(shown) < len(gone) or any(len(each.chunk.content) > 300 for each in gone),
        notes=notes,
    )


def health_answer(health: Health) -> HealthAnswer:
    """What was found."""
    findings = [
        HealthFinding(
            what=cut(each.what, 2 * _NAME),
            count=each.count,
            examples=[cut(example, _NAME) for example in each.examples],
            advice=each.advice,
        )
        for each in health.findings
    ]
    return HealthAnswer(ok=health.ok, chunks=health.chunks, documents=health.documents, findings=findings)


def stats_answer(stats: Stats) -> StatsAnswer:
    """What there is."""
    return StatsAnswer(**asdict(stats))


def document_answer(doc_id: str, chunks: Sequence[Chunk]) -> DocumentAnswer:
    """A document as text: its chunks in their order, as far as there is room."""
    text = "".join(chunk.content for chunk in chunks)
    room = _ROOM
    while room and len(json.dumps(text[:room], ensure_ascii=False).encode()) > _ROOM:
        room = room * 3 // 4
    cut = len(text) > room
    return DocumentAnswer(
        doc_id=doc_id,
        source=_short(chunks[0].source) if chunks else None,
        chunks=len(chunks),
        text=text[:room],
        truncated=cut,
        notes=[f"the first {room} of {len(text)} characters; get_document_chunks reads on"] if cut else [],
    )
