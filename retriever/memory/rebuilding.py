"""Generations: the same chunks embedded by another model, beside the vectors that are there.

A generation is an index of its own over the same keys with a vector field of its own, so readers of the old model and
of the new one never see each other's. It is made while that field is absent everywhere, which takes moments, and then
vectors are written a few at a time: the engine has one thread, and readers wait behind each batch. The metadata of the
first generation point to the newest finished one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from fields.names import stamp_field
from retriever.documents import Failure
from retriever.errors import IndexMissing, SchemaMismatch, SearchTimeout, WrongType
from retriever.memory.chunks import indexed_text
from retriever.memory.finding import Memory, without_vector
from retriever.operations import index, read, write
from retriever.operations.index import WAIT_S, Live
from retriever.plans import Command, Plan, ask_all, ask_one, raise_first
from retriever.replies import done, integer, text_map
from retriever.schema import LAYOUT, Schema

# Vectors written, and taken away, at a time: readers wait behind each batch. Beside an HNSW index of 3,000 chunks their
# p95 of 6 ms became 61 ms while 20 at a time were written, 32 with 5, which also makes four times the calls of the
# embedder; while they were taken away 158 and 40 ms, in the same time.
_FEW, _FEWER = 20, 5
_PASSES = 5  # over what others wrote meanwhile; arbitrary
# Only where the metadata are: a generation may have been dropped since.
_FINISH = (
    "if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return 0 end "
    "redis.call('HSET', KEYS[1], 'finished', 1) return 1"
)
# Never back to a lower number: of two models' rebuilds the one that began first may end last.
_POINT = (
    "if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return 0 end "
    "if tonumber(redis.call('HGET', KEYS[1], 'generation') or 1) >= tonumber(ARGV[1]) then return 0 end "
    "redis.call('HSET', KEYS[1], 'generation', ARGV[1]) return 1"
)


@dataclass(frozen=True, slots=True)
class Generations:
    """What there is. newest: of the finished ones; chosen: ours; ready: whether it can be searched."""

    newest: int
    chosen: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did. generation: that readers of this model use now. embedded, failed: chunks."""

    generation: int
    embedded: int
    failed: tuple[Failure, ...]


def inherit(live: Live, unsaid: Collection[str]) -> Plan[None]:
    """Declare what the namespace was made with, by this model's newest generation, else by the newest of all.

    unsaid: which of "fields" (the user's), "vector", "analysis" the user left open. Nothing, for a new namespace.
    """
    yield from index.when_loaded(lambda _: _inherit(live, unsaid), WAIT_S)


def _inherit(live: Live, unsaid: Collection[str]) -> Plan[None]:
    schema = live.schema
    first = yield from _stored(schema)
    if "schema" not in first or first.get("layout") != str(LAYOUT):
        return
    gone = _dropped(first)
    made: list[tuple[str | None, Schema]] = []
    for number in range(_newest(first), 0, -1):
        if number in gone:
            continue
        numbered = _numbered(schema, number)
        stored = first if number == 1 else (yield from _stored(numbered))
        if "schema" in stored:
            made.append((stored.get("embedder"), Schema.from_json(numbered.name, stored["schema"])))
    if made:
        theirs = next((each for embedder, each in made if embedder == live.embedder), made[0][1])
        fields = [*schema.fields]
        if "fields" in unsaid:
            fields += [each for each in theirs.fields if each.name not in schema.by_name]
        vector = schema.vector
        if "vector" in unsaid:  # but for its name, which a generation numbers, and its length, which the embedder says
            vector = replace(theirs.vector, name=vector.name, dims=vector.dims)
        analysis = theirs.analysis if "analysis" in unsaid else schema.analysis
        live.schema = Schema(schema.name, fields, vector, analysis, schema.prefix)


def choose(live: Live) -> Plan[Generations]:
    """Which generation a store with this embedder and this schema reads: the newest that was made so.

    Where none was, the next one, which is not there until it is rebuilt. SchemaMismatch if the analysis differs, or
    the kind of a field: the generations share what the hashes hold.
    """
    return (yield from index.when_loaded(lambda _: _choose(live), WAIT_S))


def _choose(live: Live) -> Plan[Generations]:
    yield from index.embedder_dims(live)
    schema = live.schema
    first = yield from _stored(schema)
    if "schema" not in first or first.get("layout") != str(LAYOUT):
        return Generations(1, 1, ready=True)  # a new namespace, or what create_index refuses
    newest, gone = _newest(first), _dropped(first)
    there: list[str] = []
    begun: int | None = None
    for number in range(newest, 0, -1):
        if number in gone:
            continue
        stored = first if number == 1 else (yield from _stored(schema.of_generation(number)))
        if "schema" not in stored:
            continue
        there.append(stored["schema"])
        if _differs(live, number, stored):
            continue
        if number == 1 or "finished" in stored:
            return Generations(newest, number, ready=True)
        begun = number  # a rebuild of ours that another model's overtook
    following = newest + 1
    while begun is None and (stored := (yield from _stored(_numbered(schema, following)))):
        if "schema" in stored and not _differs(live, following, stored):
            break  # a rebuild of ours that did not come to its end
        following += 1
    words = sorted({word for each in there for word in _clashes(schema, each)})
    if words:
        raise SchemaMismatch(f"{schema.name!r}: {'; '.join(words)}; take another namespace", tuple(words))
    return Generations(newest, following if begun is None else begun, ready=False)


def _differs(live: Live, number: int, stored: Mapping[str, str]) -> bool:
    """Whether a generation was made by another embedder, or with other fields or another vector."""
    theirs = stored.get("embedder")
    named = live.embedder is not None and theirs is not None
    return bool(_numbered(live.schema, number).differences(stored["schema"])) or (named and theirs != live.embedder)


def _clashes(schema: Schema, stored: str) -> list[str]:
    """In words, what differs of that which generations share: the terms, and the fields' values as they are written."""
    ours, theirs = (
        {each["name"]: (each["kind"], each.get("many")) for each in json.loads(text)["fields"]}
        for text in (schema.to_json(), stored)
    )
    return [each for each in schema.differences(stored) if each.startswith("analysis")] + [
        f"field {name!r}: the chunks hold it as another kind than {ours[name][0]}, or another number of values"
        for name in ours.keys() & theirs.keys()
        if ours[name] != theirs[name]
    ]


def _stored(schema: Schema) -> Plan[Mapping[str, str]]:
    """The metadata of a generation; none where another program's key is in their place, which create_index refuses."""
    key = schema.metadata_key
    (stored,) = yield from ask_all([Command(("HGETALL", key), text_map, key)])
    raise_first(stored, but=WrongType)
    return {} if isinstance(stored, WrongType) else stored


def _newest(first: Mapping[str, str]) -> int:
    return int(first.get("generation", 1))


def _dropped(first: Mapping[str, str]) -> set[int]:
    return {int(number) for number in first.get("dropped", "").split(",") if number}


def _numbered(first: Schema, number: int) -> Schema:
    return first if number == 1 else first.of_generation(number)


def _choose_anew(live: Live) -> Plan[None]:
    """What was ours when the store was opened may have been taken by another model since, or dropped."""
    fresh = replace(live, schema=_first(live.schema))
    found = yield from choose(fresh)
    chosen = _numbered(fresh.schema, found.chosen)
    if chosen.name != live.schema.name:
        live.schema, live.checked = chosen, False
        live.asked.clear()
        live.frequencies.clear()


def rebuild(memory: Memory, timeout_s: float) -> Plan[Rebuilt]:
    """Embed every chunk of the namespace that this generation has no vector of; then readers of this model use it.

    Searches of other generations go on meanwhile. Stopped in between, it goes on where it was when run again.
    """
    live = memory.live
    yield from _choose_anew(live)
    yield from index.create(live, timeout_s)
    embedded = 0
    failures: list[Failure] = []
    for _ in range(_PASSES):
        missing = [id for id in (yield from without_vector(memory)) if id not in {each.id for each in failures}]
        if not missing:
            break
        for start in range(0, len(missing), _FEW):
            found = yield from read.get(live, missing[start : start + _FEW], return_vectors=False)
            assert isinstance(found, list)
            # What waits to be searchable goes on waiting: update_index() is for that.
            documents = [
                replace(each, indexed_text=indexed_text(each))
                for each in found
                if each is not None and "state" not in each.fields
            ]
            if documents:
                failed = yield from write.complete(live, documents, "state")
                failures += failed
                embedded += len(documents) - len(failed)
    if not (yield from index.wait(live, timeout_s)):  # readers must not be sent to half an index
        raise SearchTimeout(
            f"index {live.schema.name!r} is still being filled after {timeout_s:g} s; rebuild_index() again goes on"
        )
    number = live.schema.generation
    if number > 1:
        base = _first(live.schema).metadata_key
        for script, key, *args in ((_FINISH, live.schema.metadata_key), (_POINT, base, number)):
            yield from ask_one(Command(("EVAL", script, 1, key, *args), integer, key))
    return Rebuilt(number, embedded, tuple(failures))


def drop_others(memory: Memory) -> Plan[int]:
    """Drop every generation but this one, and their vectors; answers how many indexes there were.

    Readers of another model find no index afterwards. Stopped in between, it is done when it is run again.
    """
    own = memory.live.schema
    first = _first(own)
    base = first.metadata_key
    stored = yield from _stored(first)
    newest = _newest(stored)
    if "schema" not in stored or own.generation > newest or own.generation in _dropped(stored):
        raise IndexMissing(f"index {own.name!r} has been dropped; rebuild_index() makes another one")
    others = [_numbered(first, number) for number in range(1, newest + 1) if number != own.generation]
    if not others:
        return 0
    vectors: list[str] = []
    for other in others:
        made = yield from _stored(other)
        # Whoever made it may have called its vector otherwise.
        vectors.append(json.loads(made["schema"])["vector"]["name"] if "schema" in made else other.vector.name)
    # Before the first is dropped: whoever opened a store of it meanwhile would make it again.
    words = ",".join(str(other.generation) for other in others)
    yield from ask_one(Command(("HSET", base, "dropped", words), integer, base))
    dropped = 0
    for other in others:
        (answer,) = yield from ask_all([Command(("FT.DROPINDEX", other.name), done, repeatable=False)])
        raise_first(answer, but=IndexMissing)
        dropped += not isinstance(answer, IndexMissing)
    names = [name for vector in vectors for name in (vector, stamp_field(vector))]
    walk = yield from read.start_walk()
    while walk.nodes:
        keys = yield from read.keys_of_page(walk, own.prefix, 1000)
        for start in range(0, len(keys), _FEWER):
            commands = [Command(("HDEL", key, *names), integer, key) for key in keys[start : start + _FEWER]]
            raise_first(*(yield from ask_all(commands)), but=WrongType)  # what was a hash when it was scanned
    for other in others:
        if other.generation > 1:
            key = other.metadata_key
            yield from ask_one(Command(("DEL", key), integer, key))
    return dropped


def _first(schema: Schema) -> Schema:
    if schema.generation == 1:
        return schema
    suffix = f"_{schema.generation}"
    vector = replace(schema.vector, name=schema.vector.name.removesuffix(suffix))
    name = schema.name.removesuffix(f"@{schema.generation}")
    return Schema(name, schema.fields, vector, schema.analysis, schema.prefix)
