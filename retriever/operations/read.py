"""Reading documents by id, and all of them: ``get``, ``exists``, ``count``, ``scan``.

``scan`` walks the keys and evaluates the filter here. It is complete under concurrent writes, sees
what the index refused or has not reached, and so is what every count and delete can be held against.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fields.errors import InvalidInput
from fields.filters import Filter, as_filter, filter_text
from fields.names import TEXT_FIELD, check_id
from fields.vectors import vector_from_bytes
from retriever.documents import Document
from retriever.errors import ReplyError, SearchTimeout, WrongType
from retriever.operations.index import Live, check_place, check_size, search_engine, whole_index
from retriever.plans import Ask, Command, Node, Page, Plan, Primaries, ask_all, ask_one, parsed, raise_first
from retriever.queries import DEFAULT_TIMEOUT_MS, FilterSpec, check_bool, check_int, count_command, scan_command
from retriever.replies import integer, values
from retriever.schema import Schema

MAX_PAGE = 10_000
_CHUNK = 500  # keys per round trip of get; arbitrary
log = logging.getLogger("retriever")


def id_list(ids: str | Iterable[str]) -> list[str]:
    """One id or many as a list, each checked."""
    if not isinstance(ids, Iterable) or isinstance(ids, (bytes, Mapping)):
        raise InvalidInput(f"ids: an id or a list of them expected, not {ids!r}")
    return [check_id(id) for id in ([ids] if isinstance(ids, str) else ids)]


def get(live: Live, ids: str | Iterable[str], *, return_vectors: bool) -> Plan[Document | list[Document | None] | None]:
    """The document of one id, or those of many in their order; None where there is none."""
    check_bool("return_vectors", return_vectors)
    checked = id_list(ids)
    documents: list[Document | None] = []
    for start in range(0, len(checked), _CHUNK):
        chunk = checked[start : start + _CHUNK]
        rows = yield from _rows(live.schema, [live.schema.prefix + id for id in chunk], return_vectors)
        raise_first(*rows)
        for id, row in zip(chunk, rows, strict=True):
            documents.append(_document(live.schema, id, row, return_vectors))
    return documents[0] if isinstance(ids, str) else documents


def exists(live: Live, ids: str | Iterable[str]) -> Plan[bool | list[bool]]:
    """Whether there is a document of one id, or of each of many. One round trip."""
    keys = [live.schema.prefix + id for id in id_list(ids)]
    answers = yield from ask_all([Command(("HEXISTS", key, TEXT_FIELD), integer, key) for key in keys])
    raise_first(*answers, but=WrongType)  # another program's key is no document
    found = [answer == 1 for answer in answers]
    return found[0] if isinstance(ids, str) else found


def count(live: Live, filter: FilterSpec) -> Plan[int]:
    """How many documents the index holds, or how many of them pass a filter; the engine counts."""
    checked = as_filter(filter, live.schema.by_name)
    yield from check_place(live)
    if checked is None:
        info = yield from whole_index(live)
        return info.documents
    yield from check_size(live, filter_text(checked))
    engine = yield from search_engine(live)
    if engine.filter_alone:
        command = count_command(live.schema, checked, DEFAULT_TIMEOUT_MS)
        (reply,), seconds = yield Ask((command,))
        total = parsed(command, reply)
        if seconds * 1000 >= DEFAULT_TIMEOUT_MS:
            raise SearchTimeout(f"counting took {seconds:.1f} s; the engine may have stopped early")
        if engine.count_limit is None or total < engine.count_limit:
            return total
    # The engine cannot count these, or stops at its limit; walking the keys does not.
    ids = yield from matching_ids(live, checked)
    return len(ids)


def scan(live: Live, filter: FilterSpec, *, batch_size: int, return_vectors: bool) -> Plan[None]:
    """Every document that passes the filter, in pages, each id once, in no order."""
    check_int("batch_size", batch_size, MAX_PAGE)
    check_bool("return_vectors", return_vectors)
    checked = as_filter(filter, live.schema.by_name)
    # SCAN may name a key twice while the server's table is being resized.
    seen: set[str] = set()
    walk = yield from start_walk()
    while walk.nodes:
        documents = yield from page(live, walk, checked, batch_size, return_vectors=return_vectors)
        fresh = [document for document in documents if document.id not in seen]
        seen.update(document.id for document in fresh)
        if fresh:
            yield Page(fresh)


def matching_ids(live: Live, filter: Filter | None) -> Plan[set[str]]:
    """The ids of every document that passes, by walking the keys."""
    ids: set[str] = set()
    walk = yield from start_walk()
    while walk.nodes:
        documents = yield from page(live, walk, filter, 1000)
        ids.update(document.id for document in documents)
    return ids


@dataclass(slots=True)
class Walk:
    """Where a walk over all keys has come to: the primaries not yet done, and the cursor in the first of them."""

    nodes: list[Node | None]
    cursor: int = 0


def start_walk() -> Plan[Walk]:
    """A walk that has not begun: one cursor after the other, since each primary has its own."""
    return Walk(list((yield Primaries())))


def keys_of_page(walk: Walk, prefix: str, batch_size: int) -> Plan[list[bytes]]:
    """The hashes of one SCAN page; the walk moves on, and has no nodes left at its end."""
    walk.cursor, keys = yield from ask_one(scan_command(prefix, walk.nodes[0], walk.cursor, batch_size))
    if walk.cursor == 0:
        del walk.nodes[0]
    return keys


def page(
    live: Live, walk: Walk, filter: Filter | None, batch_size: int, *, return_vectors: bool = False
) -> Plan[list[Document]]:
    """The documents of one SCAN page that pass the filter; the walk moves on, and has no nodes left at its end.

    Hashes under the prefix that another program wrote are passed over and counted in the log.
    """
    schema = live.schema
    keys = yield from keys_of_page(walk, schema.prefix, batch_size)
    rows = yield from _rows(schema, keys, return_vectors)
    documents, foreign = [], 0
    for key, row in zip(keys, rows, strict=True):
        try:
            raise_first(row)
            id = key[len(schema.prefix.encode()) :].decode()
            document = _document(schema, id, row, return_vectors)
        except (ReplyError, WrongType, UnicodeDecodeError):  # or it became another type since it was scanned
            foreign += 1
            continue
        if document is not None and (filter is None or filter.matches(document)):
            documents.append(document)
    if foreign:
        log.warning("index %r: passed over %d hashes that this library did not write", schema.name, foreign)
    return documents


def _rows(schema: Schema, keys: Sequence[str | bytes], return_vectors: bool) -> Plan[list[Any]]:
    if not keys:
        return []
    names = [TEXT_FIELD, *schema.by_name, *([schema.vector.name] if return_vectors else [])]
    return (yield from ask_all([Command(("HMGET", key, *names), values, key) for key in keys]))


def _document(schema: Schema, id: str, row: list[bytes | None], return_vectors: bool) -> Document | None:
    """The document of one HMGET reply; None without a text, which every document of ours has."""
    text, *stored = row
    if text is None:
        return None
    vector = stored.pop() if return_vectors else None
    if vector is not None and schema.vector.dims is not None and len(vector) != 4 * schema.vector.dims:
        raise ReplyError(
            f"key {schema.prefix + id!r} holds a vector of {len(vector)} bytes that this library did not write: "
            f"{schema.vector.dims} dimensions are {4 * schema.vector.dims}"
        )
    try:
        return Document(
            id,
            text.decode(),
            {
                field.name: field.read(value)
                for field, value in zip(schema.by_name.values(), stored, strict=True)
                if value is not None
            },
            None if vector is None else vector_from_bytes(vector),
        )
    except ValueError as error:
        raise ReplyError(
            f"key {schema.prefix + id!r} holds a value that this library did not write: {error}"
        ) from error
