"""One namespace's store, and finding what is in it by id, by field, by document. Nothing here is by meaning.

The store is the index: one hash per chunk, one small hash per document beside it, two hashes of counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fields.errors import InvalidInput
from fields.filters import Filter, as_filter, filter_text
from fields.names import stamp_field, utf8
from retriever.fusion import Fusion
from retriever.memory.archive import Archive
from retriever.memory.chunks import (
    SCOPES,
    Chunk,
    Names,
    Scope,
    check_tags,
    chunk_id,
    chunk_of,
    place_of,
    tags_filter,
)
from retriever.memory.policy import Policy
from retriever.memory.sources import RULES, Rule
from retriever.operations import read
from retriever.operations.index import Live, search_engine
from retriever.operations.write import MAX_BATCH
from retriever.plans import Command, Plan, ask_all, ask_one, raise_first
from retriever.queries import DEFAULT_TIMEOUT_MS, check_int
from retriever.replies import search_rows, text_map, values
from retriever.rerankers import Reranker

_FOUND = 10_000  # ids that one search by filter brings back; beyond, the keys are walked

# A chunk that is forgotten, or deleted by its id, leaves a mark in its document: a field of this name and its place.
# What is not there and has no mark was lost.
FORGOTTEN = "forgotten:"


@dataclass(frozen=True, slots=True)
class Memory:
    """One namespace, and how it is used: what its plans share."""

    names: Names
    scope: Scope
    live: Live
    policy: Policy
    fusion: Fusion
    reranker: Reranker | None
    archive: Archive
    context: tuple[str, ...]
    rules: Sequence[Rule] = RULES

    def filter(self, *filters: Filter | None) -> Filter | None:
        """All of the filters, within the scope."""
        scope = as_filter(self.scope.fields, self.live.schema.by_name)
        given = [each for each in (scope, *filters) if each is not None]
        if not given:
            return None
        whole = given[0]
        for each in given[1:]:
            whole = whole & each
        return whole


def matching(memory: Memory, *filters: Filter | None, limit: int = _FOUND) -> Plan[list[str]]:
    """Ids of the chunks that pass, within the scope, in their order. All of them: a pending chunk too."""
    live, whole = memory.live, memory.filter(*filters)
    engine = yield from search_engine(live)
    if whole is not None and engine.filter_alone:
        query, timeout = filter_text(whole), DEFAULT_TIMEOUT_MS
        args = ("FT.SEARCH", live.schema.name, query, "RETURN", 1, "doc_id", "LIMIT", 0, limit)
        rows = yield from ask_one(
            Command(
                (*args, "TIMEOUT", timeout, "DIALECT", 2),
                lambda reply: search_rows(reply, [b"doc_id"], limit=limit),
            )
        )
        if rows.total <= limit or limit < _FOUND:
            prefix = len(live.schema.prefix.encode())
            return _in_order(key[prefix:].decode(errors="replace") for key, _ in rows.rows)
    found = yield from read.matching_ids(live, whole)
    return _in_order(found)[: limit if limit < _FOUND else None]


def _in_order(ids: Iterable[str]) -> list[str]:
    """Those of the ids that are of chunks, by document, revision and place."""
    places = {id: place for id in ids if (place := place_of(id)) and "\ufffd" not in id}  # that was no text
    return sorted(places, key=places.__getitem__)


def chunks_by_id(memory: Memory, ids: Sequence[str]) -> Plan[list[Chunk]]:
    """Those of the chunks that are there, in the order of the ids, with their counters."""
    if not ids:
        return []
    documents = yield from read.get(memory.live, list(ids), return_vectors=False)
    assert isinstance(documents, list)
    found = [document for document in documents if document is not None]
    counted = yield from counters(memory, [document.id for document in found])
    return [chunk_of(document, *each) for document, each in zip(found, counted, strict=True)]


def counters(memory: Memory, ids: Sequence[str]) -> Plan[list[tuple[int, float | None]]]:
    """How often each chunk was read, and when last."""
    if not ids:
        return []
    keys = (memory.names.uses, memory.names.used)
    uses, used = yield from ask_all([Command(("HMGET", key, *ids), values, key) for key in keys])
    raise_first(uses, used)
    return [(int(count or 0), None if at is None else float(at)) for count, at in zip(uses, used, strict=True)]


def find_by_tag(memory: Memory, tag: str) -> Plan[list[Chunk]]:
    """See ``MemoryStore.find_by_tag``."""
    (checked,) = check_tags([tag])
    found = yield from chunks_by_id(memory, (yield from matching(memory, tags_filter([checked]))))
    return sorted(found, key=lambda chunk: (chunk.doc_id, chunk.chunk_index))


def document(memory: Memory, doc_id: str) -> Plan[dict[str, str]]:
    """The hash of a document of this scope; InvalidInput if there is none."""
    if not isinstance(doc_id, str) or not doc_id:
        raise InvalidInput(f"doc_id: a non-empty string expected, not {doc_id!r}")
    utf8(doc_id, "doc_id")
    key = memory.names.document(doc_id)
    stored = yield from ask_one(Command(("HGETALL", key), text_map, key))
    if "revision" not in stored or not memory.scope.holds(stored):
        raise InvalidInput(f"no document {doc_id!r}")
    return stored


def unknown_ids(memory: Memory, documents: Sequence[str], chunks: Sequence[str]) -> Plan[list[str]]:
    """Those of the ids that nothing in this scope has. What a killed ingest left of a document is known too."""
    unknown: list[str] = []
    for doc_id in documents:
        utf8(doc_id, "doc_id")
        key = memory.names.document(doc_id)
        stored = yield from ask_one(Command(("HGETALL", key), text_map, key))
        if not stored or not memory.scope.holds(stored):
            unknown.append(doc_id)
    found = yield from chunks_by_id(memory, list(dict.fromkeys(chunks)))
    there = {chunk.id for chunk in found if in_scope(memory, chunk)}
    return unknown + [id for id in dict.fromkeys(chunks) if id not in there]


def ids_of(doc_id: str, stored: Mapping[str, str]) -> list[str]:
    """The chunks of a document's current revision, as its hash tells."""
    if "revision" not in stored:
        return []
    return [chunk_id(doc_id, stored["revision"], at) for at in range(int(stored.get("chunk_count", 0)))]


def kept_ids(doc_id: str, stored: Mapping[str, str]) -> list[str]:
    """Those of a document's chunks that nobody forgot or deleted, and so should be there."""
    return [id for at, id in enumerate(ids_of(doc_id, stored)) if f"{FORGOTTEN}{at}" not in stored]


def get_document_chunks(memory: Memory, doc_id: str, chunk_index: int | None, window: int) -> Plan[list[Chunk]]:
    """See ``MemoryStore.get_document_chunks``."""
    check_int("window", window, MAX_BATCH, least=0)
    if chunk_index is not None:
        check_int("chunk_index", chunk_index, 2**31, least=0)
    stored = yield from document(memory, doc_id)
    ids = ids_of(doc_id, stored)
    if chunk_index is not None:
        if chunk_index >= len(ids):
            raise InvalidInput(f"document {doc_id!r} has chunks 0 to {len(ids) - 1}, not {chunk_index}")
        ids = ids[max(0, chunk_index - window) : chunk_index + window + 1]
    return (yield from chunks_by_id(memory, ids))


def walk(memory: Memory) -> Plan[list[Chunk]]:
    """Every chunk of the scope, with its counters, by walking the keys: also what no index holds."""
    whole = memory.filter()
    chunks: list[Chunk] = []
    seen: set[str] = set()
    steps = yield from read.start_walk()
    while steps.nodes:
        page = yield from read.page(memory.live, steps, whole, 1000)
        fresh = [each for each in page if each.id not in seen and place_of(each.id) and each.fields.get("doc_id")]
        seen.update(document.id for document in fresh)
        counted = yield from counters(memory, [document.id for document in fresh])
        chunks += [chunk_of(document, *each) for document, each in zip(fresh, counted, strict=True)]
    return chunks


def in_scope(memory: Memory, chunk: Chunk) -> bool:
    """Whether a chunk belongs to whom the store is opened for."""
    return memory.scope.holds({name: getattr(chunk, name) for name in SCOPES})


def documents_of_scope(memory: Memory) -> Plan[dict[str, dict[str, str]]]:
    """The hash of every document of the scope, by its id."""
    prefix = memory.names.documents
    documents: dict[str, dict[str, str]] = {}
    steps = yield from read.start_walk()
    while steps.nodes:
        keys = yield from read.keys_of_page(steps, prefix, 1000)
        rows = yield from ask_all([Command(("HGETALL", key), text_map, key) for key in keys])
        raise_first(*rows)
        for key, stored in zip(keys, rows, strict=True):
            if memory.scope.holds(stored):
                documents[key.decode()[len(prefix) :]] = stored
    return documents


def optional(reply: Any) -> bytes | None:
    """The value of one hash field, None where it is absent."""
    return None if reply is None else bytes(reply)


def without_vector(memory: Memory) -> Plan[list[str]]:
    """Chunks of the whole namespace, not of the scope alone, that this generation has no vector of."""
    live = memory.live
    stamp, prefix = stamp_field(live.schema.vector.name), live.schema.prefix
    missing: dict[str, None] = {}
    steps = yield from read.start_walk()
    while steps.nodes:
        keys = yield from read.keys_of_page(steps, prefix, 1000)
        commands: list[Command[bytes | None]] = []
        for key in keys:
            commands += [Command(("HGET", key, name), optional, key) for name in (stamp, "state", "doc_id")]
        answers = yield from ask_all(commands)
        raise_first(*answers)
        for at, key in enumerate(keys):
            stamped, waits, document = answers[3 * at : 3 * at + 3]
            if stamped is None and waits is None and document is not None:
                missing[key.decode()[len(prefix) :]] = None
    return list(missing)
