"""The life of an index: probe, create, compare, describe, wait, drop.

Beside the index stands one hash of metadata that says what was declared. It is claimed in one step
before FT.CREATE; whoever comes second compares. So twenty processes may create the same index at
once, and two programs that mean different things find out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fields.errors import InvalidInput
from fields.names import GENERATION
from fields.vectors import embedding_matrix
from retriever.documents import IndexReport
from retriever.embedders import is_async
from retriever.engines import LEAST_QUERY_BYTES, LEAST_UNION, Engine, Server
from retriever.errors import (
    SEARCH_NEEDS,
    IndexExists,
    IndexMissing,
    NotSupported,
    PermissionDenied,
    SchemaMismatch,
    WrongType,
    is_loading,
)
from retriever.plans import Arg, Command, Embed, Node, Plan, Primaries, Wait, ask_all, ask_one, raise_first
from retriever.replies import (
    IndexInfo,
    database,
    done,
    index_info,
    index_names,
    index_prefixes,
    integer,
    text_map,
    whole,
)
from retriever.replies import server as read_server
from retriever.schema import LAYOUT, Schema, build_ft_create_args

T = TypeVar("T")
log = logging.getLogger("retriever")

WAIT_S = 600.0  # arbitrary: a million vectors are indexed in about that
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.2  # between looks at what is not there yet, each twice the last; arbitrary
INDEX_NAMES: Command[list[str]] = Command(("FT._LIST",), index_names)
# Sets the whole hash or nothing: two creators cannot mix their halves.
_CLAIM = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end redis.call('HSET', KEYS[1], unpack(ARGV)) return 1"

# A key in the metadata's place that another program wrote is not ours to delete.
_UNCLAIM = (
    "if redis.call('TYPE', KEYS[1]).ok == 'hash' and redis.call('HEXISTS', KEYS[1], 'schema') == 1 "
    "then return redis.call('DEL', KEYS[1]) end return 0"
)


@dataclass(slots=True)
class Live:
    """A declared index and what was learned of the live one so far.

    Shared by all plans of one Retriever, also across threads: whatever is learned is the same for
    all, so learning it twice does no harm.
    blocking: a blocking driver runs the plans, so nothing of the user's may be async.
    embeds: there is an embedder; embedder: its name, if it has one.
    engine: given by the user instead of the probe's. asked: a cache of ``search``. frequencies: one of ``words``.
    filling: this process saw a backfill that has not been seen to end.
    """

    schema: Schema
    blocking: bool = True
    database: int = 0  # as far as the client says
    cluster: bool = False  # the client speaks to one
    embeds: bool = False
    embedder: str | None = None
    engine: Engine | None = None
    server: Server | None = None
    checked: bool = False  # against what is stored, since the first write
    filling: bool = False
    asked: dict[Any, Any] = field(default_factory=dict)
    frequencies: dict[Any, Any] = field(default_factory=dict)

    @property
    def dims(self) -> int | None:
        """The vector's length, once known."""
        return self.schema.vector.dims

    def check_callable(self, function: object, what: str) -> Callable[..., Any]:
        """The function itself, if it can be called here: InvalidInput if not, TypeError if it is async."""
        if not callable(function) or isinstance(function, type):
            raise InvalidInput(f"{what}: a callable expected, not {function!r}")
        if self.blocking and is_async(function):
            raise TypeError(f"{what} is a coroutine function, which Retriever cannot await; AsyncRetriever can")
        return function


def probe(live: Live) -> Plan[Server]:
    """Which server this is; asked once."""
    if live.server is None:
        live.server = yield from ask_one(Command(("HELLO",), read_server))
    return live.server


def search_engine(live: Live) -> Plan[Engine]:
    """The row of the engine that answers, or the one the user named. NotSupported if there is none."""
    if live.engine is not None:
        return live.engine
    server = yield from probe(live)
    if server.engine is None:
        raise NotSupported(f"{server}: {SEARCH_NEEDS}")
    if server.cluster and not server.engine.covers_cluster:
        raise NotSupported(f"{server} in cluster mode answers from one shard only, without an error")
    return server.engine


def check_place(live: Live) -> Plan[None]:
    """Refuse a cluster of which the engine answers for one shard, and a database whose keys it does not index.

    As far as the client says where it is: a lone one in database 0 is not asked about.
    """
    if not (live.database or live.cluster):
        return
    engine = yield from search_engine(live)
    if live.database and not engine.any_database:
        raise NotSupported(f"{engine.name} indexes database 0 only; this client is in database {live.database}")


def _engine_of_database(live: Live) -> Plan[Engine]:
    """The engine's row, after the same, asked of the server: a client that was moved by a bare SELECT does not know."""
    engine = yield from search_engine(live)
    if engine.any_database or live.server is None or live.server.cluster:
        return engine
    (number,) = yield from ask_all((Command(("CLIENT", "INFO"), database),))
    # Whoever may not ask is not refused: FT.CREATE still is, by the engine.
    if isinstance(number, int) and number != 0:
        raise NotSupported(f"{live.server} indexes database 0 only; this client is in database {number}")
    return engine


def check_size(live: Live, words: str) -> Plan[None]:
    """Refuse a query string that is longer than the engine takes, or holds more conditions."""
    size = len(words.encode())
    # In a value, : and the bracket behind it are escaped, each for itself.
    conditions = words.count(":{") + words.count(":[")
    if size > LEAST_QUERY_BYTES or conditions > LEAST_UNION:  # only then does it matter which engine it is for
        engine = yield from search_engine(live)
        for count, limit, what in (
            (size, engine.max_query_bytes, "bytes"),
            (conditions, engine.max_union, "conditions"),
        ):
            if limit is not None and count > limit:
                raise NotSupported(f"a filter of {count} {what}: {engine.name} takes {limit}")


def info_command(name: str, node: Node | None = None) -> Command[IndexInfo]:
    """FT.INFO of an index, as one node sees it, or any."""
    return Command(("FT.INFO", name), index_info, node)


def whole_index(live: Live) -> Plan[IndexInfo]:
    """FT.INFO of the index on all shards: its documents added up where each node tells of its own only.

    An index that has not arrived on every node yet counts as still being filled.
    """
    name = live.schema.name
    nodes = yield Primaries()
    if len(nodes) > 1:
        engine = yield from search_engine(live)
        if engine.local_info:
            infos = yield from ask_all([info_command(name, node) for node in nodes])
            raise_first(*infos, but=IndexMissing)
            there = [info for info in infos if isinstance(info, IndexInfo)]
            if not there:
                raise_first(*infos)
            return whole(there, arriving=len(there) < len(nodes))
    return (yield from ask_one(info_command(name)))


def _metadata_command(schema: Schema) -> Command[dict[str, str]]:
    return Command(("HGETALL", schema.metadata_key), text_map, schema.metadata_key)


def dims_of(schema: Schema) -> int:
    """The vector's length, or SchemaMismatch: it was asked of a live index that has no such vector."""
    if schema.vector.dims is None:
        raise SchemaMismatch(f"the live index {schema.name!r} has no vector {schema.vector.name!r}")
    return schema.vector.dims


def known_schema(live: Live) -> Plan[Schema]:
    """The schema with its dimensions; asks the live index if they are not known. One round trip at most."""
    if live.dims is None:
        info = yield from ask_one(info_command(live.schema.name))
        _learn_dims(live, info)
    return live.schema


def _learn_dims(live: Live, info: IndexInfo) -> None:
    attribute = info.attributes.get(live.schema.vector.name, {})
    if live.dims is None and "dims" in attribute:
        live.schema = live.schema.with_dims(attribute["dims"])


def embedder_dims(live: Live) -> Plan[None]:
    """Learn the dimensions from the embedder by embedding one word, if it does not state them."""
    if live.dims is None and live.embeds:
        rows = yield Embed(("dimensions",), "document")
        live.schema = live.schema.with_dims(embedding_matrix(rows, 1, None).shape[1])


def create(live: Live, timeout_s: float) -> Plan[bool]:
    """Make the index if there is none, compare it if there is one, wait until it is filled.

    Answers whether this call made it.
    """
    return (yield from when_loaded(lambda left_s: _create_or_compare(live, left_s), timeout_s))


def when_loaded(attempt: Callable[[float], Plan[T]], timeout_s: float) -> Plan[T]:
    """The result of a plan that is made of the seconds that are left.

    A server that is still reading its data is asked again until it has, or until time has run out: then its own error
    is raised.
    """
    started: float | None = None
    waited, pause = 0.0, _FIRST_PAUSE_S
    while True:
        try:
            return (yield from attempt(max(0.0, timeout_s - waited)))
        except Exception as error:
            if not is_loading(error):
                raise
            if started is None:
                started = yield Wait(0)
            if waited >= timeout_s:
                raise
        waited = (yield Wait(pause)) - started
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _create_or_compare(live: Live, timeout_s: float) -> Plan[bool]:
    engine = yield from _engine_of_database(live)
    yield from embedder_dims(live)
    schema = live.schema
    stored, info, names = yield from ask_all((_metadata_command(schema), info_command(schema.name), INDEX_NAMES))
    _check_metadata(schema, stored)
    raise_first(stored, names)
    made = False
    if isinstance(info, IndexInfo):
        _learn_dims(live, info)
        _compare_live(live.schema, info, engine)
        yield from _claim(live)
    else:
        raise_first(info, but=IndexMissing)
        if live.dims is None:
            raise InvalidInput(
                f"index {schema.name!r}: the dimensions are not known; pass Vector(dims=...), or an embedder"
            )
        args = build_ft_create_args(schema, engine=engine)
        yield from _check_prefix(schema, names)
        claimed = yield from _claim(live)
        made = yield from _create(live, args, engine, claimed=claimed)
    live.checked = True
    yield from wait(live, timeout_s)
    return made


def _create(live: Live, args: Sequence[str | int], engine: Engine, *, claimed: bool) -> Plan[bool]:
    try:
        yield from ask_one(Command(tuple(args), done, repeatable=False))
    except IndexExists:
        info = yield from ask_one(info_command(live.schema.name))
        _compare_live(live.schema, info, engine)
        return False
    except Exception:
        if claimed:
            # Nothing was made under the claim, so it must not stand in the way of another schema.
            yield from ask_one(Command(("DEL", live.schema.metadata_key), integer, live.schema.metadata_key))
        raise
    return True


def _check_prefix(schema: Schema, names: Iterable[str], *, destroys: bool = False) -> Plan[None]:
    """Refuse a prefix that is the start of another index's, or the other way round.

    An index that this user may not look at is passed over and told in the log, since whoever shares a server could
    else make no index at all; but not where documents are to be deleted, which may be that one's.
    """
    ours = schema.prefix.encode()
    ours_in_all = schema.name.split(GENERATION)[0]  # its generations share their keys
    others = [name for name in names if name.split(GENERATION)[0] != ours_in_all]
    infos = yield from ask_all([Command(("FT.INFO", _as_sent(name)), index_prefixes) for name in others])
    unseen = [name for name, info in zip(others, infos, strict=True) if isinstance(info, PermissionDenied)]
    if destroys:
        raise_first(*infos, but=IndexMissing)
    if unseen:
        named = ", ".join(map(repr, unseen))
        log.warning(
            "index %r: this user may not FT.INFO %s; an overlap of prefixes was not looked for", schema.name, named
        )
    for name, info in zip(others, infos, strict=True):
        if isinstance(info, (IndexMissing, PermissionDenied)):  # dropped in between, or told above
            continue
        raise_first(info)
        for prefix in info:
            if prefix.startswith(ours) or ours.startswith(prefix):
                raise InvalidInput(
                    f"prefix {schema.prefix!r} of index {schema.name!r} overlaps "
                    f"{prefix.decode(errors='backslashreplace')!r} of index {name!r}: "
                    f"each would hold the other's documents"
                )


def _as_sent(name: str) -> str | bytes:
    """The name of an index, which is only bytes where another program chose so (see ``index_names``)."""
    return name if name.isprintable() else name.encode(errors="surrogateescape")


def _claim(live: Live) -> Plan[bool]:
    """Write the metadata if there are none, else compare them. Answers whether they were written."""
    schema = live.schema
    metadata: dict[str, str] = {
        "layout": str(LAYOUT),
        "name": schema.name,
        "schema": schema.to_json(),
        "dims": str(schema.vector.dims),
        "metric": schema.vector.metric,
        "generation": str(schema.generation),
    }
    if live.embedder is not None:
        metadata["embedder"] = live.embedder
    key = schema.metadata_key
    args: tuple[Arg, ...] = ("EVAL", _CLAIM, 1, key, *(word for pair in metadata.items() for word in pair))
    claimed, stored = yield from ask_all((Command(args, integer, key), _metadata_command(schema)))
    raise_first(claimed, stored)
    compare_stored(live, stored)
    if live.embedder is not None and "embedder" not in stored:
        # So far nobody's had a name. Read again: another process may have been first.
        note = Command(("HSETNX", key, "embedder", live.embedder), integer, key)
        noted, stored = yield from ask_all((note, _metadata_command(schema)))
        raise_first(noted, stored)
        compare_stored(live, stored)
    return bool(claimed)


def _check_metadata(schema: Schema, stored: object) -> None:
    """Refuse a key in the metadata's place that another program wrote."""
    if isinstance(stored, WrongType) or (isinstance(stored, dict) and stored and "schema" not in stored):
        raise SchemaMismatch(
            f"key {schema.metadata_key!r} is no metadata of ours, and index {schema.name!r} needs that place; "
            f"take another name or prefix"
        )


def _not_ours(schema: Schema, stored: dict[str, str]) -> SchemaMismatch:
    """Two prefixes that differ in their separator alone have one place for metadata: the first has it."""
    return SchemaMismatch(
        f"key {schema.metadata_key!r} holds the metadata of index {stored.get('name')!r}, and index "
        f"{schema.name!r} needs that place; take another prefix"
    )


def compare_stored(live: Live, stored: dict[str, str]) -> None:
    """Raise SchemaMismatch unless the stored metadata describe this very index and embedder."""
    schema = live.schema
    _check_metadata(schema, stored)
    if stored.get("layout") != str(LAYOUT):
        raise SchemaMismatch(
            f"index {schema.name!r} is stored in layout {stored.get('layout')!r}; this release knows {LAYOUT}"
        )
    if stored.get("name", schema.name) != schema.name:
        raise _not_ours(schema, stored)
    try:
        found = schema.differences(stored["schema"])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise SchemaMismatch(f"the schema at key {schema.metadata_key!r} cannot be read: {error}") from error
    theirs = stored.get("embedder")
    if live.embedder is not None and theirs is not None and live.embedder != theirs:
        found.append(f"embedder: {live.embedder!r} given, {theirs!r} made its vectors")
    if found:
        raise _mismatch(schema, found)


def _compare_live(schema: Schema, info: IndexInfo, engine: Engine) -> None:
    found = schema.live_differences(info, engine)
    if found:
        raise _mismatch(schema, found)


def _mismatch(schema: Schema, found: list[str]) -> SchemaMismatch:
    return SchemaMismatch(
        f"index {schema.name!r} is not what was declared: {'; '.join(found)}. Declare what it is, take another "
        f"name, or drop_index() and create it anew",
        tuple(found),
    )


def ready_to_write(live: Live, first_dims: int | None = None) -> Plan[Schema]:
    """Before the first write: learn the engine, compare what is stored, adopt an index without metadata.

    first_dims: the length of the first document's vector. Where nothing else told the dimensions,
    nobody can have made the index yet, so it is made now, from them.
    """
    if live.checked:
        return live.schema
    engine = yield from _engine_of_database(live)
    yield from embedder_dims(live)
    stored, info = yield from ask_all((_metadata_command(live.schema), info_command(live.schema.name)))
    _check_metadata(live.schema, stored)
    raise_first(stored)
    if isinstance(info, IndexMissing):
        if live.dims is None and first_dims is not None:
            live.schema = live.schema.with_dims(first_dims)
            yield from create(live, timeout_s=WAIT_S)
            return live.schema
        lost = "; its metadata are there, so the server lost it" if stored else ""
        raise IndexMissing(f"no index {live.schema.name!r}{lost}; create_index() makes it") from info
    raise_first(info)
    _learn_dims(live, info)
    _compare_live(live.schema, info, engine)
    yield from _claim(live)
    live.filling = info.indexing
    live.checked = True
    return live.schema


def check_still_there(live: Live, names: object) -> Plan[None]:
    """After a write: IndexMissing if its index has gone since it was compared, so that nobody finds what was written.

    names: what INDEX_NAMES answered in the same round trip, since somebody else's FLUSHALL may come at any time. It
    costs a tenth of FT.INFO. A user who may not ask is not told.
    """
    if isinstance(names, list) and live.schema.name not in names:
        live.checked = False
        yield from ready_to_write(live)


def check_before_delete(live: Live) -> Plan[None]:
    """Before documents are deleted by a filter: it means what it says only of the index that it was written for.

    Raises SchemaMismatch if the live index, or what is stored of a lost one, is another than the declared;
    InvalidInput if there is none of this name and the prefix overlaps one that is.
    """
    yield from check_place(live)
    if live.checked:
        return
    engine = yield from _engine_of_database(live)
    schema = live.schema
    stored, info, names = yield from ask_all((_metadata_command(schema), info_command(schema.name), INDEX_NAMES))
    _check_metadata(schema, stored)
    raise_first(stored, names)
    raise_first(info, but=IndexMissing)
    if stored:
        if live.dims is None and stored.get("dims", "").isdecimal():
            live.schema = live.schema.with_dims(int(stored["dims"]))
        compare_stored(live, stored)
    if isinstance(info, IndexInfo):
        _learn_dims(live, info)
        _compare_live(live.schema, info, engine)
    else:
        yield from _check_prefix(schema, names, destroys=True)


def wait(live: Live, timeout_s: float) -> Plan[bool]:
    """Wait until the engine has indexed the keys that were there before the index; False if time ran out."""
    started = yield Wait(0)
    pause = _FIRST_PAUSE_S
    while True:
        info = yield from whole_index(live)
        live.filling = info.indexing
        if not info.indexing:
            return True
        now = yield Wait(pause)
        if now - started >= timeout_s:
            return False
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def still_filling(live: Live) -> Plan[bool]:
    """Whether the engine still fills the index, which it did when it was last asked; as far as this user may ask."""
    try:
        info = yield from whole_index(live)
    except PermissionDenied:
        return live.filling
    live.filling = info.indexing
    return live.filling


def describe(live: Live) -> Plan[IndexReport]:
    """What the live index is. Read only."""
    yield from check_place(live)
    server = yield from probe(live)
    stored, info = yield from ask_all((_metadata_command(live.schema), info_command(live.schema.name)))
    _check_metadata(live.schema, stored)
    raise_first(stored, info)
    if server.cluster:
        info = yield from whole_index(live)
    live.filling = info.indexing
    vector = info.attributes.get(live.schema.vector.name)
    if vector is None or vector["type"] != "VECTOR":
        raise SchemaMismatch(f"index {live.schema.name!r} has no vector {live.schema.vector.name!r}")
    return IndexReport(
        name=live.schema.name,
        prefix=", ".join(info.prefixes),
        documents=info.documents,
        dims=vector["dims"],
        metric=vector["metric"],
        algorithm=vector["algorithm"],
        indexing=info.indexing,
        percent_indexed=info.percent_indexed,
        failures=info.failures,
        last_error=info.last_error,
        last_error_key=info.last_error_key,
        engine=str(server),
        embedder=stored.get("embedder"),
    )


def stored_schema(name: str) -> Plan[Schema]:
    """The schema that a live index was declared with, from its metadata. Two round trips."""
    info = yield from ask_one(info_command(name))
    key = info.prefixes[0][:-1] + "".join(name.partition(GENERATION)[1:])
    stored = yield from ask_one(Command(("HGETALL", key), text_map, key))
    if "schema" not in stored:
        raise SchemaMismatch(f"index {name!r} has no metadata at {key!r}; it was not made by this library")
    return Schema.from_json(name, stored["schema"])


def drop_definition(live: Live, *, delete_documents: bool) -> Plan[None]:
    """Drop the index and its metadata; the documents stay. An index that is not there is dropped already.

    Raises SchemaMismatch for an index or metadata that are not this schema's; delete_documents: also
    InvalidInput, if the prefix overlaps another index's, whose documents would go too.
    """
    schema, key = live.schema, live.schema.metadata_key
    yield from check_place(live)
    engine = yield from _engine_of_database(live)
    stored, info = yield from ask_all((_metadata_command(schema), info_command(schema.name)))
    raise_first(stored, but=WrongType)
    raise_first(info, but=IndexMissing)
    described = isinstance(stored, dict) and "schema" in stored
    if described and stored.get("name", schema.name) != schema.name:
        raise _not_ours(schema, stored)
    if isinstance(info, IndexInfo):
        if info.name != schema.name:
            raise SchemaMismatch(f"{schema.name!r} is an alias of index {info.name!r}, which is not ours to drop")
        if info.prefixes != (schema.prefix,) or not (described or not schema.live_differences(info, engine)):
            raise SchemaMismatch(f"index {schema.name!r} was made by another program, or with another prefix")
    if delete_documents:
        names = yield from ask_one(INDEX_NAMES)
        yield from _check_prefix(schema, names, destroys=True)
    # FT.DROPINDEX and never its DD: that deletes whatever lies under the prefix.
    dropped, deleted = yield from ask_all(
        (
            Command(("FT.DROPINDEX", schema.name), done, repeatable=False),
            Command(("EVAL", _UNCLAIM, 1, key), integer, key),
        )
    )
    raise_first(dropped, but=IndexMissing)
    raise_first(deleted)
    live.checked = False
