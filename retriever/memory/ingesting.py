"""Sources become chunks.

Nothing is overwritten in place that a reader might be looking at. A changed source is written whole as a new
revision, the document is switched to it by one compare-and-set, and only then the old revision goes. Whoever is
killed in between leaves one version searchable or both, and the next ingest of that source removes what is left over.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fields.errors import InvalidInput, RetrieverError
from fields.kinds import Tag
from retriever.documents import Document
from retriever.errors import ServerError
from retriever.memory.chunks import (
    OURS,
    check_importance,
    check_knowledge_type,
    check_tags,
    chunk_id,
    content_hash,
    document_id,
    timestamp,
)
from retriever.memory.finding import Memory, ids_of, matching
from retriever.memory.splitting import Piece
from retriever.memory.writing import remove, write_chunks
from retriever.plans import Call, Command, Plan, Wait, ask_one
from retriever.replies import integer, text_map

log = logging.getLogger("retriever")


_ATTEMPTS = 20  # of an ingest whose source others ingest at the same time; arbitrary


# What may be indexed before a chunk's own text, in this order.
CONTEXT_PARTS = ("previous", "title", "section", "source", "tags", "date", "speaker")

# Whoever writes a revision leaves a mark in its document first, a field of this name and its token. The first to
# commit takes the others' marks away, and who finds its own gone has lost: so somebody always comes through. As long
# as a mark is there, the chunks of its token may still become the document's, and nobody else removes them. The last
# thing that a writer does is to remove its own: a mark that stays tells that chunks may have been left.
MARK = "writer:"
# ARGV: the mark, milliseconds until the document expires or 0, then names and values.
_COMMIT = (
    "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], ARGV[1], 1, unpack(ARGV, 3)) "
    "if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 1"
)


@dataclass(frozen=True, slots=True)
class Material:
    """One source, read and cut up. key: what tells it from other sources. date: of the source, None if unknown."""

    source: str
    key: str
    text: str
    pieces: Sequence[Piece]
    title: str | None = None
    content_type: str | None = None
    knowledge_type: str | None = None
    date: float | None = None
    version: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of one source.

    status: "ingested" (new), "replaced", "skipped" (unchanged, or a duplicate that was not wanted) or "failed";
        in a dry run "new", "changed", "unchanged" or "failed". duplicate_of: the document that holds the same content.
    """

    source: str
    status: str
    doc_id: str | None = None
    chunks: int = 0
    reason: str | None = None
    duplicate_of: str | None = None


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of every source, in their order."""

    sources: tuple[Ingested, ...]
    seconds: float = 0.0

    def _with(self, *statuses: str) -> tuple[Ingested, ...]:
        return tuple(each for each in self.sources if each.status in statuses)

    @property
    def ingested(self) -> tuple[Ingested, ...]:
        """New sources."""
        return self._with("ingested", "new")

    @property
    def replaced(self) -> tuple[Ingested, ...]:
        """Sources whose content changed."""
        return self._with("replaced", "changed")

    @property
    def skipped(self) -> tuple[Ingested, ...]:
        """Sources that were there already."""
        return self._with("skipped", "unchanged")

    @property
    def failed(self) -> tuple[Ingested, ...]:
        """Sources that could not be ingested, each with its reason."""
        return self._with("failed")

    @property
    def chunks(self) -> int:
        """Chunks written."""
        return sum(each.chunks for each in self.sources)


def ingest_all(
    memory: Memory,
    sources: Sequence[tuple[str, Callable[[], Material]]],
    on_source: Callable[[Ingested], Any] | None,
    **options: Any,
) -> Plan[IngestReport]:
    """Every source, one after the other. See ``ingest`` for the options."""
    done: list[Ingested] = []
    started = yield Wait(0)
    for source, load in sources:
        done.append((yield from ingest(memory, load, source, **options)))
        if on_source is not None:
            yield Call(on_source, (done[-1],))
    return IngestReport(tuple(done), (yield Wait(0)) - started)


def ingest(
    memory: Memory,
    load: Callable[[], Material],
    source: str,
    *,
    now: float,
    new_token: Callable[[], str],
    update_index: bool,
    on_duplicate: str,
    dry_run: bool,
    ttl_s: float | None,
) -> Plan[Ingested]:
    """One source: read it, and write it if it is new or has changed. A source that fails is a report, not an error.

    What the server or the connection fails at is raised: the other sources would fail too.
    """
    try:
        material: Material = yield Call(load, ())
        return (
            yield from _ingest(
                memory,
                material,
                now=now,
                new_token=new_token,
                update_index=update_index,
                on_duplicate=on_duplicate,
                dry_run=dry_run,
                ttl_s=ttl_s,
            )
        )
    except ServerError:
        raise
    except (RetrieverError, OSError, ValueError) as error:
        if isinstance(error, ConnectionError):
            raise
        return Ingested(source, "failed", reason=f"{type(error).__name__}: {error}")


def _ingest(
    memory: Memory,
    material: Material,
    *,
    now: float,
    new_token: Callable[[], str],
    update_index: bool,
    on_duplicate: str,
    dry_run: bool,
    ttl_s: float | None,
) -> Plan[Ingested]:
    doc_id = document_id(material.key, memory.scope)
    digest = content_hash(material.text)
    own = _chunks_of(memory, material, doc_id, digest, now)  # before any write: what is wrong with it is found here
    key = memory.names.document(doc_id)
    for _ in range(_ATTEMPTS):
        stored = yield from ask_one(Command(("HGETALL", key), text_map, key))
        if stored.get("key", material.key) != material.key:
            raise InvalidInput(
                f"its id {doc_id!r} is taken by {stored.get('source')!r}; give it a source_key of its own"
            )
        there = "revision" in stored
        unchanged = there and (
            stored.get("version") == material.version if material.version else stored.get("content_hash") == digest
        )
        if unchanged:
            if _marks(stored) and not dry_run:
                yield from _heal(memory, doc_id, stored)
            return Ingested(material.source, "unchanged" if dry_run else "skipped", doc_id, reason="unchanged")
        twin = yield from _holder(memory, digest, doc_id)
        if twin is not None and on_duplicate == "skip":
            status = "unchanged" if dry_run else "skipped"
            return Ingested(material.source, status, doc_id, reason=f"same content as {twin}", duplicate_of=twin)
        if dry_run:
            status = "changed" if there else "new"
            return Ingested(material.source, status, doc_id, len(own), duplicate_of=twin)
        token = new_token()
        yield from ask_one(Command(("HSET", key, MARK + token, 1), integer, key))
        ids = [chunk_id(doc_id, token, at) for at in range(len(own))]
        documents = [
            Document(id, text, {**fields, "revision": token}, ttl_s=ttl_s)
            for id, (text, fields) in zip(ids, own, strict=True)
        ]
        try:
            yield from write_chunks(memory, documents, pending=not update_index)
            committed = yield from _commit(memory, material, doc_id, digest, token, len(own), stored, now, ttl_s)
        except Exception:
            # The old version stays the document's; what was written of the new one goes, if the server lets it.
            yield from remove(memory, ids)
            yield from ask_one(Command(("HDEL", key, MARK + token), integer, key))
            raise
        if committed:
            yield from remove(memory, (yield from _others(memory, doc_id, stored)))
            yield from ask_one(Command(("HDEL", key, MARK + token), integer, key))
            return Ingested(material.source, "replaced" if there else "ingested", doc_id, len(own), duplicate_of=twin)
        yield from remove(memory, ids)
    raise InvalidInput(f"{material.source!r}: other ingests of it came first, {_ATTEMPTS} times in a row")


def _chunks_of(
    memory: Memory, material: Material, doc_id: str, digest: str, now: float
) -> list[tuple[str, dict[str, Any]]]:
    """(content, fields) of each chunk, checked."""
    given = dict(material.metadata)
    tags = check_tags(given.pop("tags", None) or [])
    shared: dict[str, Any] = {
        "doc_id": doc_id,
        "source": material.source,
        "content_type": given.pop("content_type", material.content_type),
        "tags": tags or None,
        "document_hash": digest,
        "created_at": now,
        "embedder": memory.live.embedder,
        **memory.scope.fields,
    }
    kind = given.pop("knowledge_type", None) or material.knowledge_type
    if kind is not None:
        shared["knowledge_type"] = check_knowledge_type(kind)
    if given.get("importance") is not None:
        shared["importance"] = check_importance(given["importance"])
    given.pop("importance", None)
    dated = next((given.pop(name) for name in ("source_date", "date") if given.get(name) is not None), None)
    day = material.date if dated is None else timestamp(dated, "source_date")
    speaker = given.pop("speaker", None)
    # A name of ours that is left, which front matter may well have ("user: bob"), is kept and means nothing.
    shared |= {name: given.pop(name) for name in list(given) if name in memory.live.schema.by_name.keys() - OURS}
    if given:
        shared["metadata"] = _plain(given)
    if not material.pieces:
        raise InvalidInput("it holds no text")
    chunks: list[tuple[str, dict[str, Any]]] = []
    before: str | None = None
    for at, piece in enumerate(material.pieces):
        said = day if piece.date is None else piece.date
        fields = shared | {
            "chunk_index": at,
            "section": piece.section,
            "speaker": piece.speaker or speaker,
            "source_date": said,
            "content_hash": content_hash(piece.content),
            "context": _context(memory, material, piece.speaker or speaker, piece.section, said, tags, before),
        }
        chunks.append((piece.content, {name: value for name, value in fields.items() if value is not None}))
        before = piece.content
    return chunks


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON; dates, which front matter has, become strings."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(metadata, default=lambda each: each.isoformat(), allow_nan=False))
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"metadata: not JSON: {error}") from None
    return plain


def _context(
    memory: Memory,
    material: Material,
    speaker: str | None,
    section: str | None,
    said: float | None,
    tags: Sequence[str],
    before: str | None,
) -> str | None:
    """What is indexed before a chunk's own text."""
    parts = {
        "previous": before,
        "title": material.title,
        "section": section,
        "source": material.source,
        "tags": ", ".join(tags),
        "date": None if said is None else f"[{_day(said)}]",
        "speaker": None if speaker is None else f"{speaker}:",
    }
    lines = [parts[name] for name in CONTEXT_PARTS if name in memory.context]
    return "\n".join(line for line in lines if line) or None


def _day(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _commit(
    memory: Memory,
    material: Material,
    doc_id: str,
    digest: str,
    token: str,
    count: int,
    stored: Mapping[str, str],
    now: float,
    ttl_s: float | None,
) -> Plan[bool]:
    key = memory.names.document(doc_id)
    fields: dict[str, str | int | float] = {
        "source": material.source,
        "key": material.key,
        "content_hash": digest,
        "revision": token,
        "chunk_count": count,
        "created_at": stored.get("created_at", repr(now)),
        "updated_at": repr(now),
        **memory.scope.fields,
    }
    fields |= {name: value for name, value in (("version", material.version), ("title", material.title)) if value}
    words = [word for pair in fields.items() for word in pair]
    expiry = 0 if ttl_s is None else round(1000 * ttl_s)  # with its chunks, so that the source can be ingested again
    return bool((yield from ask_one(Command(("EVAL", _COMMIT, 1, key, MARK + token, expiry, *words), integer, key))))


def _others(memory: Memory, doc_id: str, stored: Mapping[str, str]) -> Plan[list[str]]:
    """Chunks of a document that are not of its revision: the one before, and what killed writers left.

    Those of a writer that has begun meanwhile are not among them. The document is read after its chunks were found:
    a token that it does not name by then never becomes its revision.
    """
    found = [*ids_of(doc_id, stored), *(yield from matching(memory, Tag("doc_id") == doc_id))]
    key = memory.names.document(doc_id)
    after = yield from ask_one(Command(("HGETALL", key), text_map, key))
    alive = {after.get("revision"), *(mark.removeprefix(MARK) for mark in _marks(after))}
    return [id for id in dict.fromkeys(found) if id.split("/")[1] not in alive]


def _marks(stored: Mapping[str, str]) -> list[str]:
    """The marks of writers that have not come to their end."""
    return [name for name in stored if name.startswith(MARK)]


def _heal(memory: Memory, doc_id: str, stored: Mapping[str, str]) -> Plan[None]:
    """Take over from writers that did not come to their end, and remove what they left."""
    key, token = memory.names.document(doc_id), stored["revision"]
    marks = [mark for mark in _marks(stored) if mark != MARK + token]
    if marks:
        yield from ask_one(Command(("HDEL", key, *marks), integer, key))
    yield from remove(memory, (yield from _others(memory, doc_id, {})))
    yield from ask_one(Command(("HDEL", key, MARK + token), integer, key))


def _holder(memory: Memory, digest: str, doc_id: str) -> Plan[str | None]:
    """Another document of this scope that holds the same content."""
    same = memory.filter(Tag("document_hash") == digest, Tag("doc_id") != doc_id)
    assert same is not None
    ids = yield from matching(memory, same, limit=1)
    return ids[0].split("/")[0] if ids else None
