"""Generations: the same chunks embedded by another model, beside the vectors that are there.

A generation is an index of its own over the same keys with a vector field of its own, so readers of the old model and
of the new one never see each other's. It is made while that field is absent everywhere, which takes moments, and then
vectors are written a few at a time: the engine has one thread, and readers wait behind each batch. The metadata of the
first generation point to the newest finished one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fields.errors import InvalidInput
from fields.names import stamp_field
from retriever.documents import Failure
from retriever.errors import SchemaMismatch
from retriever.memory.chunks import indexed_text
from retriever.memory.finding import Memory, without_vector
from retriever.operations import index, read, write
from retriever.operations.index import Live
from retriever.plans import Command, Plan, ask_all, ask_one, raise_first
from retriever.replies import done, integer, text_map
from retriever.schema import Schema

_FEW = 20  # vectors written at a time; readers' p95 beside batches of 5, 20 and 500: 1.5, 4.1 and 6.3 ms
_PASSES = 5  # over what others wrote meanwhile; arbitrary
_MOST = 99  # generations looked for; arbitrary


@dataclass(frozen=True, slots=True)
class Generations:
    """What there is. newest: the finished one that searches use; chosen: ours; ready: whether it can be searched."""

    newest: int
    chosen: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did. generation: that readers of this model use now. embedded, failed: chunks."""

    generation: int
    embedded: int
    failed: tuple[Failure, ...]


def choose(live: Live) -> Plan[Generations]:
    """Which generation a store with this embedder and this schema reads: the newest that was made so.

    Where none was, the next one, which is not there until it is rebuilt. SchemaMismatch if the analysis differs: the
    generations share their words.
    """
    schema = live.schema
    stored = yield from _stored(schema)
    if "schema" not in stored:
        return Generations(1, 1, ready=True)  # a new namespace
    newest = int(stored.get("generation", 1))
    gone = set(stored.get("dropped", "").split(","))
    for number in range(newest, 0, -1):
        if str(number) not in gone and not (yield from _differs(live, number)):
            return Generations(newest, number, ready=True)
    following = newest + 1
    while following < _MOST and (there := (yield from _stored(schema.of_generation(following)))):
        if "schema" in there and not (yield from _differs(live, following)):
            break  # a rebuild of ours that did not come to its end
        following += 1
    words = [each for each in schema.differences(stored["schema"]) if each.startswith("analysis")]
    if words:
        raise SchemaMismatch(f"{schema.name!r}: {'; '.join(words)}; take another namespace", tuple(words))
    return Generations(newest, following, ready=False)


def _differs(live: Live, number: int) -> Plan[bool]:
    """Whether a generation was made by another embedder, or with other fields or another vector."""
    schema = live.schema if number == 1 else live.schema.of_generation(number)
    stored = yield from _stored(schema)
    if "schema" not in stored:
        return True
    theirs = stored.get("embedder")
    named = live.embedder is not None and theirs is not None
    return bool(schema.differences(stored["schema"])) or (named and theirs != live.embedder)


def _stored(schema: Schema) -> Plan[Mapping[str, str]]:
    key = schema.metadata_key
    return (yield from ask_one(Command(("HGETALL", key), text_map, key)))


def rebuild(memory: Memory, timeout_s: float) -> Plan[Rebuilt]:
    """Embed every chunk of the namespace that this generation has no vector of; then readers of this model use it.

    Searches of other generations go on meanwhile. Stopped in between, it goes on where it was when run again.
    """
    live = memory.live
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
    yield from index.wait(live, timeout_s)
    if live.schema.generation > 1:
        base = _base(live.schema)
        fields = ("generation", live.schema.generation)
        yield from ask_one(Command(("HSET", base, *fields), integer, base))
    return Rebuilt(live.schema.generation, embedded, tuple(failures))


def _base(schema: Schema) -> str:
    """The metadata of the first generation."""
    return schema.prefix[:-1]


def drop_others(memory: Memory) -> Plan[int]:
    """Drop every generation but this one, and their vectors; answers how many indexes there were.

    Readers of another model find no index afterwards.
    """
    live = memory.live
    own, base = live.schema, _base(live.schema)
    stored = yield from ask_one(Command(("HGETALL", base), text_map, base))
    newest = int(stored.get("generation", 1))
    if own.generation > newest:
        raise InvalidInput("this generation is not finished; rebuild_index() first")
    first = _first(own)
    others = [number for number in range(1, newest + 1) if number != own.generation]
    dropped = 0
    for number in others:
        other = first if number == 1 else first.of_generation(number)
        (answer,) = yield from ask_all([Command(("FT.DROPINDEX", other.name), done, repeatable=False)])
        dropped += not isinstance(answer, Exception)
        if number > 1:
            yield from ask_one(Command(("DEL", other.metadata_key), integer, other.metadata_key))
    words = ",".join(map(str, others))
    yield from ask_one(Command(("HSET", base, "dropped", words), integer, base))
    names = [
        name
        for number in others
        for vector in ((first if number == 1 else first.of_generation(number)).vector.name,)
        for name in (vector, stamp_field(vector))
    ]
    walk = yield from read.start_walk()
    while walk.nodes and names:
        keys = yield from read.keys_of_page(walk, own.prefix, _FEW)
        raise_first(*(yield from ask_all([Command(("HDEL", key, *names), integer, key) for key in keys])))
    return dropped


def _first(schema: Schema) -> Schema:
    if schema.generation == 1:
        return schema
    suffix = f"_{schema.generation}"
    vector = replace(schema.vector, name=schema.vector.name.removesuffix(suffix))
    name = schema.name.removesuffix(f"@{schema.generation}")
    return Schema(name, schema.fields, vector, schema.analysis, schema.prefix)
