"""Writing documents: ``upsert``, ``update``, ``delete``.

A batch is checked and embedded whole before its first command is sent. It is encoded by columns, one
pass per field, and each document becomes one command that replaces it: a plain HSET where every
declared field is given, otherwise a script on its one key, so that no reader ever sees half of a
document (measured without: up to 40 % of reads saw it missing or with a stale tag). No MULTI: cluster
pipelines have none, and one of 500 documents stalls readers for 110 ms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from fields.analysis import stored_terms
from fields.errors import InvalidInput
from fields.filters import as_filter, number
from fields.kinds import Field, Numeric, Text, texts_bytes
from fields.names import TERMS_FIELD, TEXT_FIELD, check_id, exact_field, stamp_field, terms_field
from fields.vectors import Matrix, embedding_matrix, matrix_rows
from retriever.documents import Document, Failure, UpsertReport, interrupted
from retriever.engines import Engine
from retriever.errors import OutOfMemory
from retriever.operations.index import (
    INDEX_NAMES,
    Live,
    check_before_delete,
    check_still_there,
    dims_of,
    drop_definition,
    ready_to_write,
    search_engine,
)
from retriever.operations.read import id_list, matching_ids, page, start_walk
from retriever.plans import Arg, Call, Command, Embed, Plan, Pull, ask_all, ask_one, raise_first
from retriever.queries import FilterSpec, check_bool, check_int
from retriever.replies import integer
from retriever.schema import Schema

MAX_BATCH = 10_000
# ARGV: how many fields to remove, their names, then the names and values to set.
# HSET comes first: after a script's first write, an HDEL too, the server no longer holds it to maxmemory.
_REPLACE = (
    "local added = redis.call('HSET', KEYS[1], unpack(ARGV, ARGV[1] + 2)) "
    "if ARGV[1] ~= '0' then redis.call('HDEL', KEYS[1], unpack(ARGV, 2, ARGV[1] + 1)) end "
    "return added"
)
# Where the document was refused, because the key is of another type, that key is not ours to expire.
_EXPIRE = "return redis.call('TYPE', KEYS[1]).ok == 'hash' and redis.call('PEXPIRE', KEYS[1], ARGV[1]) or 0"
# Only where the metadata are: after somebody's FLUSHALL, counters alone would stand in their place.
_COUNT = (
    "if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return 0 end "
    "for i = 1, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end return 1"
)
# What another program wrote under the prefix stays.
IS_DOCUMENT = "redis.call('TYPE', KEYS[1]).ok == 'hash' and redis.call('HEXISTS', KEYS[1], '__text') == 1"
_DELETE = f"if {IS_DOCUMENT} then return redis.call('UNLINK', KEYS[1]) end return 0"
_UPDATE = (
    f"if not ({IS_DOCUMENT}) then return 0 end "
    "if #ARGV > ARGV[1] + 1 then redis.call('HSET', KEYS[1], unpack(ARGV, ARGV[1] + 2)) end "
    "if ARGV[1] ~= '0' then redis.call('HDEL', KEYS[1], unpack(ARGV, 2, ARGV[1] + 1)) end "
    "return 1"
)


def upsert(live: Live, *, batch_size: int, on_batch: Callable[[Sequence[str]], Any] | None) -> Plan[UpsertReport]:
    """Write the documents that the driver pulls. See ``Retriever.upsert``."""
    check_int("batch_size", batch_size, MAX_BATCH)
    if on_batch is not None:
        live.check_callable(on_batch, "on_batch")
    report = UpsertReport()
    in_flight: Sequence[str] = ()
    try:
        while documents := (yield Pull(batch_size)):
            in_flight = ids = _ids(documents)
            failed = yield from _write_batch(live, documents, ids)
            in_flight = ()
            report = UpsertReport(report.written + len(ids) - len(failed), report.failed + failed)
            if on_batch is not None:
                refused = {failure.id for failure in failed}
                yield Call(on_batch, ([id for id in ids if id not in refused],))
    except GeneratorExit:
        raise
    except BaseException as error:
        interrupted(error, report, in_flight)
        raise
    return report


def _write_batch(live: Live, documents: Sequence[Document], ids: Sequence[str]) -> Plan[tuple[Failure, ...]]:
    batch = _Batch(live.schema, documents, ids)
    vectors = yield from _vectors(live, documents, ids)
    engine = yield from search_engine(live)
    schema = live.schema
    commands = batch.commands(schema, vectors, engine)
    *answers, names = yield from ask_all([*commands, INDEX_NAMES])
    failures = _failures(schema, commands, answers)
    yield from check_still_there(live, names)
    return failures


def _failures(schema: Schema, commands: Sequence[Command[Any]], answers: Sequence[Any]) -> tuple[Failure, ...]:
    """Each document that a command for it was refused for, once."""
    failures: dict[str, Failure] = {}
    for command, answer in zip(commands, answers, strict=True):
        if not isinstance(answer, Exception):
            continue
        if command.route == schema.metadata_key:
            # The counters of text lengths; where the documents were refused too, those tell why. One that finds
            # the memory full right after the last document that fitted costs a mean next to nothing.
            if not (failures or isinstance(answer, OutOfMemory)):
                raise answer
        else:
            id = str(command.route).removeprefix(schema.prefix)
            failures.setdefault(id, Failure(id, str(answer)))
    return tuple(failures.values())


def write_all(live: Live, documents: Sequence[Document]) -> Plan[tuple[Failure, ...]]:
    """Write one batch whole, as ``upsert`` does; answers what the server refused."""
    return (yield from _write_batch(live, documents, _ids(documents)))


def store(live: Live, documents: Sequence[Document]) -> Plan[tuple[Failure, ...]]:
    """Write documents with neither vector nor terms: found by id and filter, and by a search after ``complete``."""
    batch = _Batch(live.schema, documents, _ids(documents))
    yield from ready_to_write(live)
    commands = batch.stored(live.schema)
    return _failures(live.schema, commands, (yield from ask_all(commands)))


def complete(live: Live, documents: Sequence[Document], leave_out: str) -> Plan[tuple[Failure, ...]]:
    """Make stored documents searchable, and remove the field that said they were not. Their other fields stay.

    A document that has been deleted since stays deleted.
    """
    ids = _ids(documents)
    vectors = yield from _vectors(live, documents, ids)
    commands = _Batch(live.schema, documents, ids).completed(live.schema, vectors, leave_out)
    return _failures(live.schema, commands, (yield from ask_all(commands)))


def _ids(documents: Sequence[Document]) -> list[str]:
    for document in documents:
        if not isinstance(document, Document):
            raise InvalidInput(f"upsert takes Documents, not {document!r}")
    ids = [document.id for document in documents]
    # What is printable holds neither NUL nor half a character; anything else is looked at more closely.
    if not all(type(id) is str and id and id.isprintable() for id in ids):
        for id in ids:
            check_id(id)
    if len(set(ids)) < len(ids):
        twice = next(id for at, id in enumerate(ids) if id in ids[:at])
        raise InvalidInput(f"document {twice!r} is twice in one batch; which of them shall stay?")
    return ids


def _vectors(live: Live, documents: Sequence[Document], ids: Sequence[str]) -> Plan[list[bytes]]:
    """Each document's vector, its own or the embedder's; and all that must be true before the first write.

    The vectors that were given are checked before any I/O, unless only the server knows their length.
    """
    given = [at for at, document in enumerate(documents) if document.vector is not None]
    missing = [at for at, document in enumerate(documents) if document.vector is None]
    for at in missing:
        if not live.embeds:
            raise InvalidInput(f"document {ids[at]!r} has no vector, and there is no embedder to make it")
        if not _indexed(documents[at]).strip():
            raise InvalidInput(f"document {ids[at]!r} has neither a vector nor a text to embed")
    # Where nobody has said how long a vector is, the first one says it, and the others are held to it.
    dims = live.dims or (_length(documents[given[0]].vector, ids[given[0]]) if given else None)
    own = iter(_encoded(live.schema, dims, [documents[at].vector for at in given], [ids[at] for at in given]))
    schema = yield from ready_to_write(live, first_dims=dims)
    if given and schema.vector.dims != dims:
        raise InvalidInput(f"document {ids[given[0]]!r}, vector: {dims} dimensions, the index has {schema.vector.dims}")
    if not missing:
        return list(own)
    result = yield Embed([_indexed(documents[at]) for at in missing], "document")
    rows = embedding_matrix(result, len(missing), schema.vector.dims)
    embedded = iter(_encoded(schema, schema.vector.dims, rows, [ids[at] for at in missing]))
    return [next(embedded if document.vector is None else own) for document in documents]


def _encoded(schema: Schema, dims: int | None, rows: Sequence[Any] | Matrix, ids: Sequence[str]) -> list[bytes]:
    if not len(rows):
        return []
    width = dims_of(schema) if dims is None else dims
    return matrix_rows(rows, width, schema.vector.metric, lambda at: f"document {ids[at]!r}, vector")


def _length(row: Any, id: str) -> int:
    """The length of a vector whose values are still unchecked."""
    try:
        return len(row)
    except TypeError:
        raise InvalidInput(f"document {id!r}, vector: an array of numbers expected, not {row!r}") from None


class _Batch:
    """Documents as columns: names beside lists of bytes, None where a document lacks the field."""

    def __init__(self, schema: Schema, documents: Sequence[Document], ids: Sequence[str]) -> None:
        self.ids = ids
        self.keys = [schema.prefix + id for id in ids]
        self.expiries = [
            Command(("EVAL", _EXPIRE, 1, key, _milliseconds(document.ttl_s, document.id)), integer, key)
            for key, document in zip(self.keys, documents, strict=True)
            if document.ttl_s is not None
        ]
        texts = texts_bytes([document.text for document in documents], lambda at: f"document {ids[at]!r}, text")
        indexed = texts
        if any(document.indexed_text is not None for document in documents):
            indexed = texts_bytes(list(map(_indexed, documents)), lambda at: f"document {ids[at]!r}, indexed_text")
        # What is made from the indexed text, and what is kept beside it.
        self.made: list[tuple[str, Sequence[bytes | None]]] = [
            (stamp_field(schema.vector.name), [content_hash(text) for text in indexed])
        ]
        self.columns: list[tuple[str, Sequence[bytes | None]]] = [(TEXT_FIELD, texts)]
        self.counters: list[tuple[str, int]] = []
        self.sparse = False
        if schema.analysis is not None:
            self._analyse(schema, TERMS_FIELD, list(map(_indexed, documents)))
        mappings = self._fields(schema, documents)
        for field in schema.by_name.values():
            self._add(schema, field, mappings)

    def _fields(self, schema: Schema, documents: Sequence[Document]) -> list[Mapping[str, Any]]:
        mappings = [document.fields for document in documents]
        known = schema.by_name.keys()
        for id, mapping in zip(self.ids, mappings, strict=True):
            if type(mapping) is not dict and not isinstance(mapping, Mapping):
                raise InvalidInput(f"document {id!r}: fields is a mapping, not {mapping!r}")
            if not mapping.keys() <= known:
                unknown = next(name for name in mapping if name not in known)
                raise InvalidInput(f"document {id!r}: {_undeclared(unknown, schema)}")
        # A plain copy of what is no plain dict: a defaultdict would invent what is asked of it.
        return [mapping if type(mapping) is dict else dict(mapping) for mapping in mappings]

    def _add(self, schema: Schema, field: Field, mappings: Sequence[Mapping[str, Any]]) -> None:
        name, count = field.name, len(mappings)
        holding: Sequence[int] = range(count)
        try:
            given = [mapping[name] for mapping in mappings]
        except KeyError:
            self.sparse = True
            holding = [at for at, mapping in enumerate(mappings) if name in mapping]
            given = [mappings[at][name] for at in holding]
        ids = self.ids if len(holding) == count else [self.ids[at] for at in holding]
        column = _spread(field.write(given, ids), holding, count)
        self.columns.append((name, column))
        if isinstance(field, Numeric):
            self.columns.append((exact_field(name), column))
        if isinstance(field, Text) and schema.analysis is not None:
            self._analyse(schema, terms_field(name), given, holding)

    def _analyse(
        self, schema: Schema, attribute: str, texts: Sequence[str], holding: Sequence[int] | None = None
    ) -> None:
        assert schema.analysis is not None
        terms = [schema.analysis.terms(text) for text in texts]
        column = [stored_terms(each).encode() for each in terms]
        count = len(self.ids)
        self.made.append((attribute, _spread(column, range(count) if holding is None else holding, count)))
        # Their ratio is the mean length that BM25 needs; rewriting a document counts it again, which
        # moves a mean hardly at all.
        suffix = attribute.removeprefix(TERMS_FIELD)
        self.counters += [(f"documents{suffix}", len(texts)), (f"terms{suffix}", sum(map(len, terms)))]

    def commands(self, schema: Schema, vectors: Sequence[bytes], engine: Engine) -> list[Command[Any]]:
        """One command that replaces each document, then expiries, then counters."""
        columns = [*self.columns, *self.made, (schema.vector.name, vectors)]
        if self.sparse or engine.script_replace:
            writes = [
                Command(_replacement(key, [(name, column[at]) for name, column in columns]), integer, key)
                for at, key in enumerate(self.keys)
            ]
        else:
            words: list[Iterable[Any]] = [repeat("HSET"), self.keys]
            for name, column in columns:
                words += [repeat(name), column]
            # Not strict: some of the columns repeat for ever.
            writes = list(map(Command, zip(*words), repeat(integer), self.keys))  # noqa: B905
        return [*writes, *self.expiries, *self._counting(schema)]

    def stored(self, schema: Schema) -> list[Command[Any]]:
        """One command that writes each document with nothing to search by, then expiries."""
        columns = [
            *self.columns,
            *((name, [None] * len(self.ids)) for name, _ in (*self.made, (schema.vector.name, []))),
        ]
        writes = [
            Command(_replacement(key, [(name, column[at]) for name, column in columns]), integer, key)
            for at, key in enumerate(self.keys)
        ]
        return [*writes, *self.expiries]

    def completed(self, schema: Schema, vectors: Sequence[bytes], leave_out: str) -> list[Command[Any]]:
        """One command that makes each stored document searchable and removes a field, then counters."""
        columns: list[tuple[str, Sequence[bytes | None]]] = [*self.made, (schema.vector.name, vectors)]
        writes = [
            Command(
                _replacement(key, [(leave_out, None), *((name, column[at]) for name, column in columns)], _UPDATE),
                integer,
                key,
            )
            for at, key in enumerate(self.keys)
        ]
        return [*writes, *self._counting(schema)]

    def _counting(self, schema: Schema) -> list[Command[Any]]:
        if not self.counters:
            return []
        meta = schema.metadata_key
        counted = [word for pair in self.counters for word in pair]
        return [Command(("EVAL", _COUNT, 1, meta, *counted), integer, meta, repeatable=False)]


def _indexed(document: Document) -> str:
    return document.text if document.indexed_text is None else document.indexed_text


def _undeclared(name: object, schema: Schema) -> str:
    return f"field {name!r} is not declared; declared: {', '.join(schema.by_name) or 'none'}"


def _spread(column: Sequence[bytes], holding: Sequence[int], count: int) -> Sequence[bytes | None]:
    """The column with None in the places that are not among ``holding``."""
    if len(holding) == count:
        return column
    spread: list[bytes | None] = [None] * count
    for at, value in zip(holding, column, strict=True):
        spread[at] = value
    return spread


def _replacement(key: str, pairs: Sequence[tuple[str, bytes | None]], script: str = _REPLACE) -> tuple[Arg, ...]:
    absent = [name for name, value in pairs if value is None]
    given = [word for name, value in pairs if value is not None for word in (name, value)]
    return ("EVAL", script, 1, key, len(absent), *absent, *given)


def content_hash(text: bytes) -> bytes:
    """What a vector is stamped with: an 8-byte BLAKE2b of the text it was made from."""
    return hashlib.blake2b(text, digest_size=8).digest()


def _milliseconds(ttl_s: object, id: str) -> int:
    seconds = number(ttl_s, f"document {id!r}, ttl_s")
    if seconds < 0.001:
        raise InvalidInput(f"document {id!r}, ttl_s: {seconds} is less than a millisecond")
    return round(1000 * seconds)


def update(live: Live, id: str, fields: Mapping[str, Any]) -> Plan[bool]:
    """Change some fields of one document; None removes one. See ``Retriever.update``."""
    check_id(id)
    schema = live.schema
    if not isinstance(fields, Mapping) or not fields:
        raise InvalidInput(f"update: a mapping of at least one field expected, not {fields!r}")
    pairs: list[tuple[str, bytes | None]] = []
    for name, value in fields.items():
        field = schema.by_name.get(name)
        if field is None:
            raise InvalidInput(f"document {id!r}: {_undeclared(name, schema)}")
        written = None if value is None else field.write([value], [id])[0]
        pairs.append((name, written))
        if isinstance(field, Numeric):
            pairs.append((exact_field(name), written))
        if isinstance(field, Text) and schema.analysis is not None:
            terms = None if value is None else stored_terms(schema.analysis.terms(value)).encode()
            pairs.append((terms_field(name), terms))
    yield from ready_to_write(live)
    key = schema.prefix + id
    return bool((yield from ask_one(Command(_replacement(key, pairs, _UPDATE), integer, key))))


def delete(live: Live, ids: str | Iterable[str] | None, filter: FilterSpec, *, everything: bool) -> Plan[int]:
    """Delete by id or by filter. See ``Retriever.delete``."""
    if (ids is None) == (filter is None):
        raise InvalidInput("delete takes one of ids and filter, not " + ("both" if ids is not None else "neither"))
    check_bool("everything", everything)
    if ids is not None:
        if everything:
            raise InvalidInput("everything=True goes with filter={}")
        return (yield from _unlink(live.schema, id_list(ids)))
    checked = as_filter(filter, live.schema.by_name)
    if (checked is None) != everything:
        raise InvalidInput(
            "an empty filter deletes every document: say everything=True"
            if checked is None
            else "everything=True goes with an empty filter"
        )
    yield from check_before_delete(live)
    # Collected before the first is deleted, by walking the keys: paging through search results while
    # deleting leaves half of them, and an index does not know what it refused.
    found = yield from matching_ids(live, checked)
    return (yield from _unlink(live.schema, sorted(found)))


def _unlink(schema: Schema, ids: Sequence[str]) -> Plan[int]:
    deleted = 0
    for start in range(0, len(ids), 500):  # arbitrary
        keys = [schema.prefix + id for id in ids[start : start + 500]]
        # One key a command: in a cluster they live on different nodes. What another program wrote stays.
        answers = yield from ask_all([Command(("EVAL", _DELETE, 1, key), integer, key) for key in keys])
        raise_first(*answers)
        deleted += sum(answers)
    return deleted


def drop(live: Live, *, delete_documents: bool) -> Plan[int]:
    """Drop the index, then the documents if asked. See ``Retriever.drop_index``."""
    check_bool("delete_documents", delete_documents)
    yield from drop_definition(live, delete_documents=delete_documents)
    if not delete_documents:
        return 0
    deleted = 0
    walk = yield from start_walk()
    while walk.nodes:
        documents = yield from page(live, walk, None, 1000)
        deleted += yield from _unlink(live.schema, [document.id for document in documents])
    return deleted
