"""Sources become chunks.

Nothing is overwritten in place that a reader might be looking at. A changed source is written whole as a new
revision, the document is switched to it by one compare-and-set, and only then the old revision goes. Whoever is
killed in between leaves one version searchable or both, and the next ingest of that source removes what is left over.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fields.errors import InvalidInput, RetrieverError
from fields.kinds import Tag
from fields.names import utf8
from retriever.documents import Document
from retriever.errors import ServerError
from retriever.memory.chunks import (
    OURS,
    SCOPES,
    check_importance,
    check_knowledge_type,
    check_tags,
    chunk_id,
    content_hash,
    document_id,
    iso,
    revision_of,
)
from retriever.memory.finding import Memory, ids_of, kept_ids, matching
from retriever.memory.loading import MAX_BYTES
from retriever.memory.splitting import Piece
from retriever.memory.writing import BATCH, remove, write_chunks
from retriever.operations import read
from retriever.operations.index import search_engine
from retriever.plans import Call, Command, Plan, Wait, ask_one, together
from retriever.replies import integer, text_map

log = logging.getLogger("retriever")
T = TypeVar("T")

_MOST_SHARED = 2 * MAX_BYTES  # characters of metadata that a source's chunks hold together; arbitrary
_LONGEST_TITLE = 200  # characters of it before each chunk; arbitrary
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

# ARGV: the mark. With the last of a document that was never written it goes too.
_UNMARK = (
    "redis.call('HDEL', KEYS[1], ARGV[1]) for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do "
    f"if name == 'revision' or string.sub(name, 1, {len(MARK)}) == '{MARK}' then return 0 end end "
    "redis.call('DEL', KEYS[1]) return 0"
)


@dataclass(frozen=True, slots=True)
class Material:
    """One source, read and cut up.

    key: what tells it from other sources. date: of the source, None if unknown. metadata: without title and dates.
    """

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
    reason: why it failed or was skipped, and whether chunks of it were forgotten; or that it had lost some, and so was
        replaced although it had not changed.
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
    """Every source, in its order: read it, and write it if it is new or has changed. See ``MemoryStore.ingest``.

    As many small ones as make a batch of chunks go together, with one call of the embedder for all of them. A source
    that fails is a report, not an error; what the server or the connection fails at is raised.
    options: now, new_token, update_index, on_duplicate, dry_run, ttl_s.
    """
    done: list[Ingested] = []
    started = yield Wait(0)
    batch = _Batch(memory)
    for at, (source, load) in enumerate(sources, 1):
        given = yield from _reported(_read(load), source)
        if batch.holds_like(given):  # of two that are alike the second one finds the first
            done += yield from _ingest_batch(batch, on_source, options)
            batch = _Batch(memory)
        batch.add(source, given)
        if batch.chunks >= BATCH or at == len(sources):
            done += yield from _ingest_batch(batch, on_source, options)
            batch = _Batch(memory)
    return IngestReport(tuple(done), (yield Wait(0)) - started)


class _Batch:
    """Sources that are ingested together, and reports of those that could not be read, in their order."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.sources = memory, list[tuple[str, _Read | Ingested, Collection[str]]]()
        self.chunks, self._documents, self._digests = 0, list[str](), set[str]()

    def holds_like(self, given: _Read | Ingested) -> bool:
        """Whether there is one of the same document, or of the same content."""
        if isinstance(given, Ingested):
            return False
        return self._document(given) in self._documents or given.digest in self._digests

    def add(self, source: str, given: _Read | Ingested) -> None:
        self.sources.append((source, given, tuple(self._documents)))
        if not isinstance(given, Ingested):
            self._documents.append(self._document(given))
            self._digests.add(given.digest)
            self.chunks += len(given.material.pieces)

    def _document(self, given: _Read) -> str:
        return document_id(given.material.key, self.memory.scope)


def _ingest_batch(
    batch: _Batch, on_source: Callable[[Ingested], Any] | None, options: Mapping[str, Any]
) -> Plan[list[Ingested]]:
    def plan(source: str, given: _Read | Ingested, before: Collection[str]) -> Plan[Ingested]:
        if isinstance(given, Ingested):
            return given
        return (yield from _reported(_ingest(batch.memory, given, before=before, **options), source))

    several = len(batch.sources) > 1
    done: list[Ingested | Exception]
    if several:
        done = yield from together([plan(*each) for each in batch.sources])
    else:
        done = [(yield from plan(*batch.sources[0]))]
    reports: list[Ingested] = []
    for each, report in zip(batch.sources, done, strict=True):
        if isinstance(report, Exception):
            raise report
        # The embedder may have failed at one text, and with it all that were embedded in that call.
        again = several and report.status == "failed"
        reports.append((yield from plan(*each)) if again else report)
        if on_source is not None:
            yield Call(on_source, (reports[-1],))
    return reports


@dataclass(frozen=True, slots=True)
class _Read:
    """A source that was read. digest: of its content."""

    material: Material
    digest: str


def _read(load: Callable[[], Material]) -> Plan[_Read]:
    material: Material = yield Call(load, ())
    return _Read(material, content_hash(material.text))


def _reported(plan: Plan[T], source: str) -> Plan[T | Ingested]:
    """What the plan gives, or the report of a source that failed.

    What the server or the connection fails at is raised: the other sources would fail too.
    """
    try:
        return (yield from plan)
    except ServerError:
        raise
    except (RetrieverError, OSError, ValueError) as error:
        if isinstance(error, ConnectionError):
            raise
        return Ingested(source, "failed", reason=f"{type(error).__name__}: {error}")


def _ingest(
    memory: Memory,
    given: _Read,
    *,
    before: Collection[str],
    now: float,
    new_token: Callable[[], str],
    update_index: bool,
    on_duplicate: str,
    dry_run: bool,
    ttl_s: float | None,
) -> Plan[Ingested]:
    material, digest = given.material, given.digest
    doc_id = document_id(material.key, memory.scope)
    own = _chunks_of(memory, material, doc_id, digest, now)  # before any write: what is wrong with it is found here
    key = memory.names.document(doc_id)
    for _ in range(_ATTEMPTS):
        stored = yield from ask_one(Command(("HGETALL", key), text_map, key))
        theirs = any(stored.get(name) != memory.scope.fields.get(name) for name in SCOPES) and "revision" in stored
        if stored.get("key", material.key) != material.key or theirs:
            raise InvalidInput(
                f"its id {doc_id!r} is taken by {stored.get('source')!r}; give it a source_key of its own"
            )
        there = "revision" in stored
        unchanged = there and (
            stored.get("version") == material.version if material.version else stored.get("content_hash") == digest
        )
        lost = None
        if unchanged:
            lost = yield from _lost(memory, doc_id, stored)
            if lost is None:
                continue
        if unchanged and not lost:
            if not dry_run:
                yield from _heal(memory, doc_id, stored)
            status = "unchanged" if dry_run else "skipped"
            return Ingested(material.source, status, doc_id, reason=f"unchanged{_forgotten(doc_id, stored)}")
        healed = f"{lost} of its {stored['chunk_count']} chunks had been lost" if lost else None
        # Those before it in its batch have other contents: one that still holds this content is about to lose it.
        twin = yield from _holder(memory, digest, [doc_id, *before])
        if twin is not None and on_duplicate == "skip":
            status = "unchanged" if dry_run else "skipped"
            return Ingested(material.source, status, doc_id, reason=f"same content as {twin}", duplicate_of=twin)
        if dry_run:
            status = "changed" if there else "new"
            return Ingested(material.source, status, doc_id, len(own), reason=healed, duplicate_of=twin)
        token = new_token()
        whose = [word for pair in memory.scope.fields.items() for word in pair]  # so that erasing finds it too
        yield from ask_one(Command(("HSET", key, MARK + token, 1, *whose), integer, key))
        ids = [chunk_id(doc_id, token, at) for at in range(len(own))]
        documents = [
            Document(id, text, {**fields, "revision": token}, ttl_s=ttl_s)
            for id, (text, fields) in zip(ids, own, strict=True)
        ]
        committing = False
        try:
            yield from write_chunks(memory, documents, pending=not update_index)
            committing = True
            committed = yield from _commit(memory, material, doc_id, digest, token, len(own), stored, now, ttl_s)
        except Exception as error:
            if committing and not isinstance(error, RetrieverError):
                raise  # no refusal: it may have come through, and these chunks be the document's
            # The old version stays the document's; what was written of the new one goes, if the server lets it.
            yield from remove(memory, ids)
            if not _unanswered(error):  # else what was sent may still arrive
                yield from ask_one(Command(("EVAL", _UNMARK, 1, key, MARK + token), integer, key))
            raise
        if committed:
            yield from remove(memory, (yield from _others(memory, doc_id, stored)))
            yield from ask_one(Command(("HDEL", key, MARK + token), integer, key))
            status = "replaced" if there else "ingested"
            return Ingested(material.source, status, doc_id, len(own), reason=healed, duplicate_of=twin)
        yield from remove(memory, ids)
    raise InvalidInput(f"{material.source!r}: other ingests of it came first, {_ATTEMPTS} times in a row")


def _chunks_of(
    memory: Memory, material: Material, doc_id: str, digest: str, now: float
) -> list[tuple[str, dict[str, Any]]]:
    """(content, fields) of each chunk, checked."""
    # The document's hash holds them too, and is written last: an error there would leave chunks of no document.
    for name, value in (("source", material.source), ("source_key", material.key), ("title", material.title)):
        utf8(value or "", name)
    utf8(material.version or "", "version")
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
    given.pop("knowledge_type", None)  # the material's own is what became of it
    if material.knowledge_type is not None:
        shared["knowledge_type"] = check_knowledge_type(material.knowledge_type)
    if given.get("importance") is not None:
        shared["importance"] = check_importance(given["importance"])
    given.pop("importance", None)
    speaker = given.pop("speaker", None)
    # A name of ours that is left, which front matter may well have ("user: bob"), is kept and means nothing.
    shared |= {name: given.pop(name) for name in list(given) if name in memory.live.schema.by_name.keys() - OURS}
    if given:
        shared["metadata"] = _plain(given)
    if not material.pieces:
        raise InvalidInput("it holds no text")
    _check_amount(shared, len(material.pieces))
    chunks: list[tuple[str, dict[str, Any]]] = []
    before: str | None = None
    for at, piece in enumerate(material.pieces):
        said = material.date if piece.date is None else piece.date
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


def _check_amount(shared: Mapping[str, Any], chunks: int) -> None:
    """Each chunk keeps all that is said of its source: a file of 50 MB could fill a server of a terabyte."""
    size = len(json.dumps(shared, default=str))
    if size * chunks > _MOST_SHARED:
        raise InvalidInput(
            f"metadata: {size:,} characters as JSON, kept with each of {chunks:,} chunks, are more than "
            f"{_MOST_SHARED:,}; keep what is long in the text"
        )


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON; dates, which front matter has, become strings."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(metadata, default=lambda each: each.isoformat(), allow_nan=False))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
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
        "title": material.title and material.title[:_LONGEST_TITLE],
        "section": section,
        "source": material.source,
        "tags": ", ".join(tags),
        "date": None if said is None else f"[{iso(said)[:10]}]",
        "speaker": None if speaker is None else f"{speaker}:",
    }
    lines = [parts[name] for name in CONTEXT_PARTS if name in memory.context]
    return "\n".join(line for line in lines if line) or None


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
    return [id for id in dict.fromkeys(found) if revision_of(id) not in alive]


def _lost(memory: Memory, doc_id: str, stored: Mapping[str, str]) -> Plan[int | None]:
    """How many chunks of a document are gone that nobody forgot; None if it has another revision by now."""
    ids = kept_ids(doc_id, stored)
    there = yield from read.exists(memory.live, ids)
    assert isinstance(there, list)
    key = memory.names.document(doc_id)
    # Asked last: whoever replaces a document takes its chunks away only after it has the new revision, and whoever
    # forgets or deletes a chunk marks it at the latest when it goes.
    after = yield from ask_one(Command(("HGETALL", key), text_map, key))
    if after.get("revision") != stored["revision"]:
        return None
    kept = set(kept_ids(doc_id, after))
    return sum(id in kept and not exists for id, exists in zip(ids, there, strict=True))


def _forgotten(doc_id: str, stored: Mapping[str, str]) -> str:
    """What is to be said of the chunks that were forgotten: they do not come back by themselves."""
    every = ids_of(doc_id, stored)
    count = len(every) - len(kept_ids(doc_id, stored))
    if not count:
        return ""
    return (
        f"; {count} of its {len(every)} chunks were forgotten or deleted: restore() brings back what was archived, "
        f"and after delete_document() it is ingested anew"
    )


def _unanswered(error: Exception) -> bool:
    """Whether a connection broke or a reply was too late, which the clients have classes of these names for."""
    return not {"ConnectionError", "TimeoutError"}.isdisjoint(base.__name__ for base in type(error).__mro__)


def _marks(stored: Mapping[str, str]) -> list[str]:
    """The marks of writers that have not come to their end."""
    return [name for name in stored if name.startswith(MARK)]


def _heal(memory: Memory, doc_id: str, stored: Mapping[str, str]) -> Plan[None]:
    """Take over from writers that did not come to their end, and remove what they left."""
    key, token = memory.names.document(doc_id), stored["revision"]
    if others := [mark for mark in _marks(stored) if mark != MARK + token]:
        yield from ask_one(Command(("HDEL", key, *others), integer, key))
    elif not _marks(stored) and not (yield from _strays(memory, doc_id, stored)):
        return
    yield from remove(memory, (yield from _others(memory, doc_id, {})))
    yield from ask_one(Command(("HDEL", key, MARK + token), integer, key))


def _strays(memory: Memory, doc_id: str, stored: Mapping[str, str]) -> Plan[bool]:
    """Whether there are more chunks than the document has: of a writer that lost, wrote on and was killed.

    Not known where the engine cannot count them: to walk all keys for every unchanged source would be too much.
    """
    engine = yield from search_engine(memory.live)
    if not engine.filter_alone:
        return False
    found = yield from read.count(memory.live, memory.filter(Tag("doc_id") == doc_id))
    return found > len(kept_ids(doc_id, stored))


def _holder(memory: Memory, digest: str, but: Collection[str]) -> Plan[str | None]:
    """Another document of this scope that holds the same content."""
    ids = yield from matching(memory, Tag("document_hash") == digest, ~Tag("doc_id").isin(but), limit=1)
    return ids[0].split("/")[0] if ids else None
