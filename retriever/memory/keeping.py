"""Changing and deleting what is there: tags, dates, forgetting into the archive and restoring from it.

What is forgotten is archived and on the disk before it is deleted, and deleted only if it still is what was judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fields.errors import InvalidInput
from fields.kinds import Tag
from fields.names import check_id
from retriever.documents import Document
from retriever.memory.archive import Archived
from retriever.memory.chunks import (
    OURS,
    SCOPES,
    Chunk,
    check_importance,
    check_knowledge_type,
    check_metadata,
    check_tags,
    chunk_id,
    revision_of,
    timestamp,
)
from retriever.memory.finding import (
    FORGOTTEN,
    Memory,
    chunks_by_id,
    document,
    documents_of_scope,
    get_document_chunks,
    ids_of,
    in_scope,
    matching,
    walk,
)
from retriever.memory.policy import Policy, judge
from retriever.memory.writing import BATCH, remove, write_chunks
from retriever.operations import read, write
from retriever.operations.write import IS_DOCUMENT
from retriever.plans import Call, Command, Plan, ask_all, ask_one, raise_first
from retriever.queries import check_bool, check_int
from retriever.replies import integer, text_map

# What was judged must be what is there: its token and its count of uses. The document, if it still is of that
# revision, learns that the chunk is not missing by mistake.
_FORGET = (
    "if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[1] then return 0 end "
    "if (redis.call('HGET', KEYS[2], ARGV[2]) or '0') ~= ARGV[3] then return 0 end "
    "redis.call('HDEL', KEYS[2], ARGV[2]) redis.call('HDEL', KEYS[3], ARGV[2]) "
    "if redis.call('HGET', KEYS[4], 'revision') == ARGV[4] then redis.call('HSET', KEYS[4], ARGV[5], 1) end "
    "return redis.call('UNLINK', KEYS[1])"
)
# A chunk with its counters, and its document learns of it: at once, so that nobody is killed in between.
_DELETE = (
    "redis.call('HDEL', KEYS[2], ARGV[1]) redis.call('HDEL', KEYS[3], ARGV[1]) "
    "if redis.call('HGET', KEYS[4], 'revision') == ARGV[2] then redis.call('HSET', KEYS[4], ARGV[3], 1) end "
    f"if {IS_DOCUMENT} then return redis.call('UNLINK', KEYS[1]) end return 0"
)

# Only the version whose chunks were deleted, "" for none. It takes the marks of writers with it, who then begin again.
_UNLINK_DOCUMENT = (
    "if (redis.call('HGET', KEYS[1], 'revision') or '') ~= ARGV[1] then return 0 end "
    "return redis.call('UNLINK', KEYS[1])"
)


class _Unset:
    def __repr__(self) -> str:
        return "CLEAR"


CLEAR = _Unset()  # for set_chunk_tags: remove the value


def set_chunk_tags(
    memory: Memory,
    doc_id: str,
    chunk_index: int,
    *,
    importance: Any,
    knowledge_type: Any,
    tags: Any,
    source_date: Any,
    new_token: Callable[[], str],
) -> Plan[Chunk]:
    """See ``MemoryStore.set_chunk_tags``."""
    changes: dict[str, Any] = {}
    for name, value, check in (
        ("importance", importance, check_importance),
        ("knowledge_type", knowledge_type, check_knowledge_type),
        ("tags", tags, check_tags),
        ("source_date", source_date, lambda each: timestamp(each, "source_date")),
    ):
        if value is not None:
            changes[name] = None if value is CLEAR else check(value) or (None if name == "tags" else 0.0)
    if not changes:
        raise InvalidInput("set_chunk_tags: give at least one of importance, knowledge_type, tags, source_date")
    (chunk,) = (yield from get_document_chunks(memory, doc_id, chunk_index, 0)) or (None,)
    if chunk is None:
        raise InvalidInput(f"chunk {chunk_index} of document {doc_id!r} has been forgotten or has expired")
    # A new token: whoever judged the chunk as it was does not forget it as it is.
    changed = yield from write.update(memory.live, chunk.id, {**changes, "revision": new_token()})
    if not changed:
        raise InvalidInput(f"chunk {chunk_index} of document {doc_id!r} was deleted at the same time")
    after = yield from chunks_by_id(memory, [chunk.id])
    if not after:
        raise InvalidInput(f"chunk {chunk_index} of document {doc_id!r} was deleted at the same time")
    return after[0]


def redate(memory: Memory, doc_id: str, source_date: Any, new_token: Callable[[], str]) -> Plan[int]:
    """See ``MemoryStore.redate``."""
    when = None if source_date is CLEAR else timestamp(source_date, "source_date")
    stored = yield from document(memory, doc_id)
    changed = 0
    for id in ids_of(doc_id, stored):
        changed += yield from write.update(memory.live, id, {"source_date": when, "revision": new_token()})
    return changed


def delete_document(memory: Memory, doc_id: str) -> Plan[int]:
    """See ``MemoryStore.delete_document``."""
    try:
        stored = yield from document(memory, doc_id)
    except InvalidInput:
        if not isinstance(doc_id, str) or not doc_id:
            raise
        stored = {}  # an ingest of it may have been killed before it had a version
    key = memory.names.document(doc_id)
    marked = {} if stored else (yield from ask_one(Command(("HGETALL", key), text_map, key)))
    ours = bool(stored) or not memory.scope.fields or (bool(marked) and memory.scope.holds(marked))
    deleted = 0
    while True:
        ids = [*ids_of(doc_id, stored), *(yield from matching(memory, Tag("doc_id") == doc_id))]
        if not (ours or ids):
            return 0  # nothing tells that it is of this scope
        deleted += yield from remove(memory, list(dict.fromkeys(ids)))
        revision = stored.get("revision", "")
        if (yield from ask_one(Command(("EVAL", _UNLINK_DOCUMENT, 1, key, revision), integer, key))):
            return deleted
        try:  # an ingest has given it another version meanwhile, or another deletion was first
            stored = yield from document(memory, doc_id)
        except InvalidInput:
            return deleted


def delete_chunks(memory: Memory, ids: str | Iterable[str], reason: str | None, now: float) -> Plan[int]:
    """See ``MemoryStore.delete_chunks``."""
    found = yield from chunks_by_id(memory, list(dict.fromkeys(read.id_list(ids))))
    ours = [chunk for chunk in found if in_scope(memory, chunk)]
    if reason is not None and ours:
        entries = [_archived(memory, chunk, judge(chunk, memory.policy, now).score, reason, now) for chunk in ours]
        yield Call(memory.archive.append, (entries,))
    deleted = 0
    for start in range(0, len(ours), BATCH):
        answers = yield from ask_all([_deletion(memory, chunk) for chunk in ours[start : start + BATCH]])
        raise_first(*answers)
        deleted += sum(answers)
    return deleted


def _deletion(memory: Memory, chunk: Chunk) -> Command[int]:
    key, names = memory.live.schema.prefix + chunk.id, memory.names
    keys = (key, names.uses, names.used, names.document(chunk.doc_id))
    words = (chunk.id, revision_of(chunk.id), f"{FORGOTTEN}{chunk.chunk_index}")
    return Command(("EVAL", _DELETE, len(keys), *keys, *words), integer, key)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A chunk that forgetting takes, or would take. deleted: False in a dry run, and where it was used meanwhile."""

    chunk: Chunk
    score: float
    reason: str
    deleted: bool = False


def forget(memory: Memory, policy: Policy, *, dry_run: bool, now: float) -> Plan[list[Forgotten]]:
    """See ``MemoryStore.forget``. Archived, flushed to disk, and only then deleted."""
    check_bool("dry_run", dry_run)
    taken: list[Forgotten] = []
    for chunk in (yield from walk(memory)):
        judgement = judge(chunk, policy, now)
        if judgement.reason is not None:
            taken.append(Forgotten(chunk, judgement.score, judgement.reason))
    taken.sort(key=lambda each: (each.score, each.chunk.id))
    if dry_run or not taken:
        return taken
    result: list[Forgotten] = []
    for start in range(0, len(taken), 1000):
        batch = taken[start : start + 1000]
        keys = [memory.live.schema.prefix + each.chunk.id for each in batch]
        yield Call(
            memory.archive.append, ([_archived(memory, each.chunk, each.score, each.reason, now) for each in batch],)
        )
        deleted = yield from ask_all(
            [
                Command(
                    (
                        *("EVAL", _FORGET, 4, key, memory.names.uses, memory.names.used),
                        *(memory.names.document(each.chunk.doc_id), each.chunk.revision, each.chunk.id),
                        *(each.chunk.access_count, revision_of(each.chunk.id), f"{FORGOTTEN}{each.chunk.chunk_index}"),
                    ),
                    integer,
                    key,
                )
                for key, each in zip(keys, batch, strict=True)
            ]
        )
        raise_first(*deleted)
        result += [replace(each, deleted=bool(gone)) for each, gone in zip(batch, deleted, strict=True)]
    return result


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure took: chunks, and lines of the archive. unread: lines that may be anybody's, and stay."""

    chunks: int
    archived: int
    unread: tuple[str, ...] = ()


def erase(memory: Memory, *, everything: bool) -> Plan[Erased]:
    """See ``MemoryStore.erase``. Stopped in between, it is done when it is called again."""
    check_bool("everything", everything)
    if everything and memory.scope.fields:
        raise InvalidInput("erase: everything=True is for a store that was opened without user, agent and session")
    if not everything and not memory.scope.fields:
        raise InvalidInput("erase: this store sees everybody's memory; open it with user=, or say everything=True")
    erased = 0
    for doc_id in (yield from documents_of_scope(memory)):
        erased += yield from delete_document(memory, doc_id)
    # Ingested meanwhile, or left by a killed ingest. With its document each, whose running writers then begin again:
    # chunks that were taken from them alone would leave a document without.
    for doc_id in {chunk.doc_id: None for chunk in (yield from walk(memory))}:
        erased += yield from delete_document(memory, doc_id)
    if everything:  # the counters of chunks that expired
        for key in (memory.names.uses, memory.names.used):
            yield from ask_one(Command(("DEL", key), integer, key))
    archived, unread = yield Call(_take_out, (memory,))
    return Erased(erased, archived, unread)


def _take_out(memory: Memory) -> tuple[int, tuple[str, ...]]:
    """Take a store's lines out of its archive: how many there were, and those of which nobody knows whose they are."""
    removed, damaged = memory.archive.remove(partial(_is_ours, memory))
    entries = [entry for entry in memory.archive.entries() if isinstance(entry, Archived)]
    nobodys = [entry.id for entry in entries if not isinstance(entry.metadata.get("namespace"), str)]
    return removed, (*map(str, damaged), *(f"the line of {id}: it says no namespace" for id in nobodys))


# What an archived chunk is made of again; the rest of a Chunk tells of one search.
_KEPT = (
    "section source speaker content_type tags knowledge_type importance access_count last_accessed_at created_at "
    "source_date content_hash document_hash context embedder user agent session fields metadata"
).split()
_COUNTERS = ("access_count", "last_accessed_at")
# Of one document; arbitrary. Those before a restored one that are not there get a mark each in the document.
_MOST_CHUNKS = 1_000_000


def _archived(memory: Memory, chunk: Chunk, score: float, reason: str, now: float) -> Archived:
    held = {name: value for name, value in chunk.to_dict().items() if name in _KEPT}
    held["namespace"] = memory.names.namespace  # one archive may serve many
    return Archived(
        id=chunk.id,
        doc_id=chunk.doc_id,
        chunk_index=chunk.chunk_index,
        content=chunk.content,
        metadata=held,
        score=score,
        reason=reason,
        archived_at=now,
    )


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore brought back. skipped: id -> why not. damaged: lines of the archive that cannot be read."""

    restored: tuple[str, ...]
    skipped: Mapping[str, str]
    damaged: tuple[str, ...] = ()


def restore(memory: Memory, wanted: Callable[[Archived], bool]) -> Plan[Restored]:
    """See ``MemoryStore.restore``."""
    entries, damage = yield Call(memory.archive.read, ())
    chosen: list[Archived] = []
    skipped: dict[str, str] = {}
    for entry in entries.values():
        if not (wanted(entry) and _is_ours(memory, entry)):
            continue
        try:
            _check(memory, entry)
        except (TypeError, ValueError) as error:
            skipped[entry.id] = f"its line holds no chunk: {error}"
            continue
        chosen.append(entry)
    there = (yield from read.exists(memory.live, [entry.id for entry in chosen])) if chosen else []
    assert isinstance(there, list)
    absent: list[Archived] = []
    for entry, exists in zip(chosen, there, strict=True):
        if exists:
            skipped[entry.id] = "it is in the store, which wins"
        else:
            absent.append(entry)
    # A document that is gone comes back as it was last.
    latest = {entry.doc_id: revision_of(entry.id) for entry in absent}
    back: list[Archived] = []
    for entry in absent:
        key = memory.names.document(entry.doc_id)
        stored = yield from ask_one(Command(("HGETALL", key), text_map, key))
        revision = revision_of(entry.id)
        if stored.get("revision", latest[entry.doc_id]) != revision:
            skipped[entry.id] = "its document has a newer version"
            continue
        yield from _revive_document(memory, entry, stored, revision)
        back.append(entry)
    for start in range(0, len(back), BATCH):
        skipped |= yield from _bring_back(memory, back[start : start + BATCH])
    restored = tuple(entry.id for entry in back if entry.id not in skipped)
    return Restored(restored, skipped, tuple(map(str, damage)))


def _bring_back(memory: Memory, batch: Sequence[Archived]) -> Plan[dict[str, str]]:
    """Write chunks of the archive with their counters; answers which cannot be written, and why."""
    commands: list[Command[Any]] = []
    for entry in batch:
        uses, used = _counters_of(entry)
        for key, value in ((memory.names.uses, uses or None), (memory.names.used, used)):
            words = ("HDEL", key, entry.id) if value is None else ("HSET", key, entry.id, repr(value))
            commands.append(Command(words, integer, key))
        key = memory.names.document(entry.doc_id)
        commands.append(Command(("HDEL", key, f"{FORGOTTEN}{entry.chunk_index}"), integer, key))
    # The chunks come last: killed in between, this is done when it is run again, which passes over what is there.
    raise_first(*(yield from ask_all(commands)))
    try:
        yield from write_chunks(memory, [_document_of(memory, entry) for entry in batch], pending=False)
    except InvalidInput as error:
        if len(batch) > 1:
            refused: dict[str, str] = {}
            for entry in batch:  # which of them it was
                refused |= yield from _bring_back(memory, [entry])
            return refused
        (entry,) = batch
        key = memory.names.document(entry.doc_id)
        undo = [Command(("HDEL", each, entry.id), integer, each) for each in (memory.names.uses, memory.names.used)]
        undo.append(Command(("HSET", key, f"{FORGOTTEN}{entry.chunk_index}", 1), integer, key))
        raise_first(*(yield from ask_all(undo)))
        return {entry.id: str(error)}
    return {}


def _check(memory: Memory, entry: Archived) -> None:
    """TypeError or ValueError for what a person may have made of a line of the archive."""
    check_id(entry.id)
    parts = entry.id.split("/")
    if len(parts) != 3 or not all(parts) or entry.id != chunk_id(entry.doc_id, parts[1], entry.chunk_index):
        raise InvalidInput(f"{entry.id!r} is no id of chunk {entry.chunk_index} of {entry.doc_id!r}")
    check_int("chunk_index", entry.chunk_index, _MOST_CHUNKS, least=0)
    held = entry.metadata
    for name, check in (
        ("importance", check_importance),
        ("knowledge_type", check_knowledge_type),
        ("tags", check_tags),
        ("metadata", check_metadata),
    ):
        if held.get(name) is not None:
            check(held[name])
    for name in ("section", "context"):
        if not isinstance(held.get(name), (str, type(None))):
            raise InvalidInput(f"{name}: a string expected, not {held[name]!r}")
    _document_of(memory, entry)
    _counters_of(entry)


def _counters_of(entry: Archived) -> tuple[int, float | None]:
    uses, used = entry.metadata.get("access_count") or 0, entry.metadata.get("last_accessed_at")
    # A greater one could not be counted on, and every search that finds the chunk would fail at it.
    count = check_int("access_count", uses, 2**53, least=0)
    return count, None if used is None else timestamp(used, "last_accessed_at")


def _is_ours(memory: Memory, entry: Archived) -> bool:
    return entry.metadata.get("namespace") == memory.names.namespace and memory.scope.holds(entry.metadata)


def _revive_document(memory: Memory, entry: Archived, stored: Mapping[str, str], revision: str) -> Plan[None]:
    """The document of a restored chunk has room for it, and lacks none of those before it by mistake."""
    key = memory.names.document(entry.doc_id)
    known = int(stored.get("chunk_count", 0))
    fields: dict[str, str | int] = {"revision": revision, "chunk_count": max(known, entry.chunk_index + 1)}
    fields |= {f"{FORGOTTEN}{at}": 1 for at in range(known, entry.chunk_index)}
    if "revision" not in stored:
        source = str(entry.metadata.get("source") or entry.doc_id)
        # Not its key, which may be no source; and whose it was, which the scope of who restores it need not say.
        fields |= {"source": source, "created_at": repr(_document_of(memory, entry).fields["created_at"])}
        fields |= {name: str(entry.metadata[name]) for name in SCOPES if entry.metadata.get(name)}
    words = [word for pair in fields.items() for word in pair]
    yield from ask_one(Command(("HSET", key, *words), integer, key))


def _document_of(memory: Memory, entry: Archived) -> Document:
    own = {name: value for name, value in dict(entry.metadata.get("fields") or {}).items() if name not in OURS}
    held = {name: value for name, value in entry.metadata.items() if name in _KEPT and name not in _COUNTERS}
    if held.get("created_at") is None:
        held["created_at"] = entry.archived_at
    held["embedder"] = memory.live.embedder  # it is embedded anew
    for name in ("created_at", "source_date"):
        if held.get(name) is not None:
            held[name] = timestamp(held[name], name)
    fields = {name: value for name, value in held.items() if value not in (None, [], {})}
    known = memory.live.schema.by_name
    fields |= {"doc_id": entry.doc_id, "chunk_index": entry.chunk_index, "revision": revision_of(entry.id)}
    whole = {**own, **fields}
    return Document(entry.id, entry.content, {name: value for name, value in whole.items() if name in known})
