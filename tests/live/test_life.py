"""The life of an index: made once however many try, compared, described, dropped."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import valkey

from retriever import (
    Analysis,
    IndexMissing,
    InvalidInput,
    NotSupported,
    Numeric,
    Retriever,
    RetrieverError,
    Schema,
    SchemaMismatch,
    ServerError,
    Stored,
    Tag,
    Text,
    Vector,
    build_ft_create_args,
)
from tests.fakes import DIMS, Embedder, document

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
FLAT = Vector(dims=DIMS, algorithm="FLAT")


def index_names(raw):
    return {name.decode() for name in raw.execute_command("FT._LIST")}


def create_raw(raw, schema):
    raw.execute_command(*build_ft_create_args(schema))


# --- create_index ---------------------------------------------------------------------------------


async def test_create_index_makes_it_once(make, schema):
    """The call that makes the index answers True, every later one False."""
    shell = make(schema)
    assert await shell.create_index() is True
    assert await shell.create_index() is False
    assert await make(schema).create_index() is False


async def test_create_index_takes_every_kind_of_field(make, name, raw):
    """An index of all kinds, HNSW and words is what was declared when asked again."""
    fields = [Tag("a"), Tag("b", many=True), Numeric("c"), Text("d", weight=2.5), Stored("e")]
    schema = Schema(name, fields, Vector(dims=7, metric="L2", m=8, ef_construction=50, ef_runtime=20, initial_cap=10))
    assert await make(schema).create_index() is True
    assert await make(schema).create_index() is False
    assert name in index_names(raw)


@pytest.mark.parametrize("metric", ["COSINE", "L2", "IP"])
@pytest.mark.parametrize("algorithm", ["FLAT", "HNSW"])
async def test_describe_index_names_metric_and_algorithm(make, name, metric, algorithm):
    """Dims, metric and algorithm of the live index are what was declared."""
    shell = make(Schema(name, vector=Vector("v", dims=3, metric=metric, algorithm=algorithm), analysis=None))
    await shell.create_index()
    report = await shell.describe_index()
    assert (report.dims, report.metric, report.algorithm) == (3, metric, algorithm)
    assert (report.name, report.prefix, report.documents, report.failures) == (name, f"{name}:", 0, 0)
    assert (report.indexing, report.percent_indexed, report.last_error, report.embedder) == (False, 100, None, None)
    assert "valkey" in report.engine.lower() or "redis" in report.engine.lower()


CREATOR = """
import sys
from retriever import Numeric, Retriever, Schema, SchemaMismatch, Vector
url, name, field = sys.argv[1:]
with Retriever.connect(url, Schema(name, [Numeric(field)], Vector(dims=4))) as docs:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(docs.create_index())
    except SchemaMismatch as error:
        print("mismatch", error.differences)
"""


def create_in_processes(url, name, fields):
    """One process per field name, all let go at the same moment; what each printed."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CREATOR, url, name]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen([*command, field], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ)
        for field in fields
    ]
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        for process in started:
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=60) for process in started]
        assert [error for _, error in said if error] == []
        return [out.strip() for out, _ in said]
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.one_server("connects to one server")
def test_twenty_processes_create_one_index(url, name):
    """Twenty processes at once: one makes it, nineteen find it, none fails (case B65)."""
    said = create_in_processes(url, name, ["year"] * 20)
    assert sorted(said) == ["False"] * 19 + ["True"]


@pytest.mark.one_server("connects to one server")
def test_of_two_schemas_racing_one_wins(url, name):
    """Processes that mean two different schemas: one wins, all of the other learn what differs."""
    said = create_in_processes(url, name, ["year", "month"] * 4)
    won = "year" if said[::2].count("True") else "month"
    winners, losers = (said[::2], said[1::2]) if won == "year" else (said[1::2], said[::2])
    assert sorted(winners) == ["False"] * 3 + ["True"]
    assert all(each.startswith("mismatch") and "'year'" in each and "'month'" in each for each in losers)


async def test_shells_of_one_loop_create_one_index(make, schema):
    """Ten retrievers of one process at once: one makes it."""
    made = await asyncio.gather(*(make(schema).create_index() for _ in range(10)))
    assert sorted(made) == [False] * 9 + [True]


async def test_create_index_waits_for_what_is_there(make, schema, raw):
    """Documents that exist before the index are all found by the first query after create_index (cases B67, B68)."""
    shell = make(schema)
    await shell.create_index()
    await shell.upsert([document(f"d{at}", vector=(1, at, 0, 0)) for at in range(3000)])
    assert await shell.drop_index() == 0
    assert await shell.create_index() is True
    hits = await shell.query(vector=[1, 0, 0, 0], k=3000)
    assert (len(hits), hits.complete) == (3000, True)
    assert await shell.wait_until_indexed() is True


async def test_a_backfill_seen_running_is_reported(make, schema):
    """A query of a process that saw the index still being filled says so, until it saw the end (case B67)."""
    shell = make(schema)
    await shell.create_index()
    await shell.upsert([document(f"d{at}", vector=(1, at, 0, 0)) for at in range(5000)])
    await shell.drop_index()
    await shell.create_index(timeout_s=0)
    hits = await shell.query(vector=[1, 0, 0, 0], k=10)
    assert not hits.complete
    assert "being filled" in hits.reasons[0]
    assert await shell.wait_until_indexed() is True
    assert (await shell.query(vector=[1, 0, 0, 0], k=10)).complete


# --- compared -------------------------------------------------------------------------------------

BASE = [Tag("a"), Tag("b", many=True), Numeric("n"), Text("t", weight=2.0), Stored("s")]

CHANGES = {
    "dims": ({"vector": Vector(dims=8)}, ["dims 8 declared, 4 "]),
    "metric": ({"vector": Vector(dims=DIMS, metric="L2")}, ["metric 'L2' declared, 'COSINE'"]),
    "algorithm": ({"vector": FLAT}, ["algorithm 'FLAT' declared, 'HNSW'"]),
    "m": ({"vector": Vector(dims=DIMS, m=8)}, ["m 8 declared, 16"]),
    "ef_construction": ({"vector": Vector(dims=DIMS, ef_construction=64)}, ["ef_construction 64 declared, 200"]),
    "vector name": ({"vector": Vector("other", dims=DIMS)}, ["'other'", "'embedding'"]),
    "kind": ({"fields": [Numeric("a"), *BASE[1:]]}, ["field 'a'", "NUMERIC", "TAG"]),
    "many": ({"fields": [BASE[0], Tag("b"), *BASE[2:]]}, ["field 'b': many False declared, True stored"]),
    "more": ({"fields": [*BASE, Tag("new")]}, ["field 'new': TAG declared, not in the"]),
    "fewer": ({"fields": BASE[1:]}, ["field 'a': TAG in the", "not declared"]),
    "a text more": ({"fields": [*BASE, Text("u")]}, ["_u'", "TEXT declared"]),
    "language": ({"analysis": Analysis("german")}, ["analysis", "'english' stored, 'german' here"]),
    "stemming": ({"analysis": Analysis(stem=False)}, ["stem: True stored, False here"]),
    "stop words": ({"analysis": Analysis(stop_words=["the"])}, ["stop words only stored: a, an"]),
    "no analysis": ({"analysis": None}, ["not declared"]),
    "several": (
        {"vector": Vector(dims=8, metric="IP"), "fields": BASE[1:]},
        ["dims 8 declared, 4", "metric 'IP' declared, 'COSINE'", "field 'a'"],
    ),
}


def declared(name, **changes):
    return Schema(name, **({"fields": BASE, "vector": Vector(dims=DIMS)} | changes))


@pytest.mark.parametrize("change", CHANGES)
async def test_another_schema_is_refused_by_every_difference(make, name, change, raw):
    """create_index and the first write name what differs; the live index stays as it is (cases B50, B66)."""
    changes, words = CHANGES[change]
    first = make(declared(name))
    await first.create_index()
    await first.upsert([document("kept")])
    with pytest.raises(SchemaMismatch) as found:
        await make(declared(name, **changes)).create_index()
    for word in words:
        assert word in str(found.value)
        assert any(word in difference for difference in found.value.differences)
    with pytest.raises(SchemaMismatch):
        await make(declared(name, **changes)).upsert([document("new", vector=[1] * (8 if "dims" in words[0] else 4))])
    assert await first.count() == 1
    assert raw.exists(f"{name}:new") == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"fields": [*BASE[:3], Text("t", weight=9.0), BASE[4]]},
        {"fields": BASE[:4]},
        {"fields": [*BASE, Stored("more")]},
        {"vector": Vector(dims=DIMS, ef_runtime=500)},
        {"vector": Vector(dims=DIMS, initial_cap=5000)},
        {"vector": Vector(dims=None)},
        {"fields": [*BASE[::-1]]},
    ],
    ids=["weight", "stored gone", "stored more", "ef_runtime", "initial_cap", "dims left out", "order"],
)
async def test_what_decides_no_answer_may_change(make, name, changes):
    """Weights, stored fields, EF_RUNTIME and reserved room are no difference, nor is the order of fields."""
    await make(declared(name)).create_index()
    shell = make(declared(name, **changes))
    assert await shell.create_index() is False
    await shell.upsert([document("d")])
    assert await shell.ids() == ["d"]


async def test_two_embedders_are_told_by_name(make, schema):
    """An index filled by one model refuses another of the same dims, naming both (case B49)."""
    first = make(schema, embed=Embedder(name="model-a"))
    await first.create_index()
    await first.upsert([document("d", vector=None)])
    assert (await first.describe_index()).embedder == "model-a"
    for attempt in ("create_index", "upsert"):
        other = make(schema, embed=Embedder(name="model-b"))
        with pytest.raises(SchemaMismatch, match=r"'model-b' given, 'model-a' made"):
            await (other.create_index() if attempt == "create_index" else other.upsert([document("e", vector=None)]))


async def test_an_embedder_without_name_is_not_compared(make, schema):
    """No name is unknown: it fits every index, and a named one that follows is noted."""
    await make(schema, embed=Embedder()).create_index()
    assert (await make(schema).describe_index()).embedder is None
    named = make(schema, embed=Embedder(name="model-a"))
    await named.upsert([document("d", vector=None)])
    assert (await named.describe_index()).embedder == "model-a"
    assert await make(schema, embed=Embedder()).create_index() is False
    assert await make(schema).create_index() is False
    with pytest.raises(SchemaMismatch, match="model-a"):
        await make(schema, embed=Embedder(name="model-b")).create_index()


async def test_a_named_embedder_after_an_unknown_one_is_stored_by_create_index(make, schema):
    """create_index of the first named embedder notes the name, as the first write does."""
    await make(schema).create_index()
    named = make(schema, embed=Embedder(name="model-a"))
    assert await named.create_index() is False
    await named.upsert([document("d", vector=None)])
    with pytest.raises(SchemaMismatch, match="model-a"):
        await make(schema, embed=Embedder(name="model-b")).create_index()


# --- metadata -------------------------------------------------------------------------------------


async def test_an_index_without_metadata_is_adopted(make, schema, raw):
    """An index that somebody made by the same words is compared with FT.INFO and gets its metadata."""
    create_raw(raw, schema)
    assert await make(schema).create_index() is False
    stored = raw.hgetall(schema.metadata_key)
    assert stored[b"schema"].decode() == schema.to_json()
    assert stored[b"layout"] == b"1"
    assert (stored[b"dims"], stored[b"metric"], stored[b"generation"]) == (b"4", b"COSINE", b"1")


async def test_the_first_write_adopts_an_index_without_metadata(make, schema, raw):
    """upsert adopts too, and refuses an index that differs."""
    create_raw(raw, schema)
    await make(schema).upsert([document("d")])
    assert raw.hget(schema.metadata_key, "schema").decode() == schema.to_json()
    raw.delete(schema.metadata_key)
    with pytest.raises(SchemaMismatch, match="month"):
        await make(dataclasses.replace(schema, fields=[*schema.fields, Numeric("month")])).upsert([document("e")])
    assert not raw.exists(schema.metadata_key)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["category", "TAG"], "not CASESENSITIVE"),
        (["category", "TAG", "CASESENSITIVE"], "not CASESENSITIVE with separator"),
        (["category", "TEXT"], "TEXT"),
    ],
)
async def test_an_index_that_would_filter_otherwise_is_not_adopted(make, name, raw, words, said):
    """A live TAG that folds case or splits at commas is a difference (cases B33, B34)."""
    schema = Schema(name, [Tag("category")], FLAT, analysis=None)
    vector = ["embedding", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "COSINE"]
    raw.execute_command("FT.CREATE", name, "PREFIX", 1, f"{name}:", "SCHEMA", *words, *vector)
    with pytest.raises(SchemaMismatch, match=said):
        await make(schema).create_index()


async def test_metadata_without_an_index_are_compared_then_used(make, schema, name, raw):
    """Metadata that outlived their index: the same schema is made anew, another is refused until dropped."""
    shell = make(schema)
    await shell.create_index()
    raw.execute_command("FT.DROPINDEX", name)
    other = make(Schema(name, [Tag("other")], FLAT))
    with pytest.raises(SchemaMismatch, match="'other'"):
        await other.create_index()
    assert name not in index_names(raw)
    assert await make(schema).create_index() is True
    raw.execute_command("FT.DROPINDEX", name)
    await other.drop_index()
    assert await other.create_index() is True


async def test_a_write_says_that_the_server_lost_the_index(make, schema, name, raw):
    """An index that is gone while its metadata stand is told as lost by the server."""
    await make(schema).create_index()
    raw.execute_command("FT.DROPINDEX", name)
    with pytest.raises(IndexMissing, match=r"server lost it; create_index\(\) makes it"):
        await make(schema).upsert([document("d")])


async def test_another_layout_is_refused(make, schema, raw):
    """An index stored by a release with another layout is named as such."""
    await make(schema).create_index()
    raw.hset(schema.metadata_key, "layout", "99")
    with pytest.raises(SchemaMismatch, match="layout '99'; this release knows 1"):
        await make(schema).create_index()


# --- prefixes and databases -----------------------------------------------------------------------


@pytest.mark.parametrize("order", ["wider first", "narrower first", "the same"])
async def test_a_prefix_that_overlaps_is_refused(make, name, raw, order):
    """A prefix that starts another index's, or is started by it, is refused either way (case B60)."""
    wide, narrow = f"{name}:", f"{name}:part:"
    prefixes = {"wider first": (wide, narrow), "narrower first": (narrow, wide), "the same": (wide, wide)}[order]
    first, second = (Schema(f"{name}-{at}", [], FLAT, prefix=prefix) for at, prefix in enumerate(prefixes))
    await make(first).create_index()
    with pytest.raises(InvalidInput, match=f"prefix '{prefixes[1]}'.*overlaps '{prefixes[0]}' of index '{first.name}'"):
        await make(second).create_index()
    assert second.name not in index_names(raw)
    if order != "the same":
        assert not raw.exists(second.metadata_key)


async def test_names_that_start_alike_do_not_overlap(make, name):
    """Index ``mem`` and index ``memory`` hold only their own documents (cases B60, B61)."""
    short, long = make(Schema(f"{name}m", [], FLAT)), make(Schema(f"{name}memory", [], FLAT))
    await short.create_index()
    await long.create_index()
    await short.upsert([document("1")])
    await long.upsert([document("1"), document("2")])
    assert (await short.count(), await long.count()) == (1, 2)
    assert len(await short.scan()) == 1
    assert await short.drop_index(delete_documents=True) == 1
    assert await long.count() == len(await long.scan()) == 2


async def test_a_foreign_index_that_takes_every_key_is_refused(make, name, raw):
    """An index without a prefix holds every key, ours too, and is named."""
    raw.execute_command("FT.CREATE", f"{name}-all", "PREFIX", 1, f"{name[:-1]}", "SCHEMA", "x", "TAG")
    with pytest.raises(InvalidInput, match=f"index '{name}-all'"):
        await make(Schema(name, [], FLAT)).create_index()


def in_database(url, number):
    return f"{url}{'&' if '?' in url else '?'}db={number}"


@pytest.mark.one_server("it has one database")
async def test_another_database_is_refused(make, schema, url, raw):
    """RediSearch indexes database 0 only: create_index elsewhere says so and leaves nothing behind."""
    shell = make(schema, to=in_database(url, 1))
    with pytest.raises(NotSupported, match="database 0 only"):
        await shell.create_index()
    with valkey.Valkey.from_url(in_database(url, 1)) as other:
        assert not other.exists(schema.metadata_key)
    assert schema.name not in index_names(raw)


@pytest.mark.one_server("it has one database")
async def test_another_database_is_refused_also_where_the_index_is(make, schema, url):
    """An index made in database 0 is not usable from database 1, whose keys it would take and never read."""
    await make(schema).create_index()
    shell = make(schema, to=in_database(url, 1))
    with pytest.raises(NotSupported, match="database 0 only; this client is in database 1"):
        await shell.create_index()
    with pytest.raises(NotSupported, match="database 0 only; this client is in database 1"):
        await make(schema, to=in_database(url, 1)).upsert([document("d")])
    with valkey.Valkey.from_url(in_database(url, 1)) as other:
        assert not other.exists(f"{schema.name}:d")
        assert not other.exists(schema.metadata_key)


@pytest.mark.one_server("it has one database")
def test_a_client_moved_by_select_neither_drops_nor_deletes(docs, url, schema):
    """A client that was moved by SELECT says database 0 and is in 1: what would destroy asks the server."""
    with valkey.Valkey.from_url(url, single_connection_client=True) as client:
        client.execute_command("SELECT", 1)
        moved = Retriever(client, schema)
        for call in (
            lambda: moved.delete(filter={"category": "db"}),
            lambda: moved.drop_index(),
            lambda: moved.drop_index(delete_documents=True),
        ):
            with pytest.raises(NotSupported, match="database 0 only; this client is in database 1"):
                call()
    with Retriever.connect(url, schema) as at_home:
        assert at_home.count() == 0  # it is still there


# --- describe, missing ----------------------------------------------------------------------------


async def test_describe_index_names_what_the_engine_refused(docs, schema, raw):
    """A document that the engine left out is counted, with its key and the reason."""
    await docs.upsert([document("good", year=1)])
    raw.hset(f"{schema.prefix}bad", mapping={"year": "1,000", "embedding": b"\0" * 16})
    report = await docs.describe_index()
    assert (report.documents, report.failures) == (1, 1)
    assert report.last_error_key == f"{schema.prefix}bad"
    assert "year" in report.last_error or "1,000" in report.last_error or "numeric" in report.last_error.lower()


async def test_describe_index_says_where_the_engine_refused_a_binary_key(docs, schema, raw):
    """A refused key that is no text does not make the report unreadable."""
    raw.hset(schema.prefix.encode() + b"\xff\xfe", mapping={"year": "x"})
    assert (await docs.describe_index()).failures == 1


MISSING = {
    "query": lambda docs: docs.query(vector=[1, 0, 0, 0]),
    "filtered query": lambda docs: docs.query(vector=[1, 0, 0, 0], filter={"category": "x"}),
    "upsert": lambda docs: docs.upsert([document("d")]),
    "update": lambda docs: docs.update("d", {"year": 1}),
    "count": lambda docs: docs.count(),
    "filtered count": lambda docs: docs.count({"category": "x"}),
    "describe_index": lambda docs: docs.describe_index(),
    "wait_until_indexed": lambda docs: docs.wait_until_indexed(),
}


@pytest.mark.parametrize("method", MISSING)
async def test_a_missing_index_is_named_by_every_method(make, schema, method, raw):
    """Whatever needs the index raises IndexMissing and says what makes it; nothing is written (case B66)."""
    with pytest.raises(IndexMissing, match=rf"{schema.name}.*create_index\(\) makes it"):
        await MISSING[method](make(schema))
    assert list(raw.scan_iter(f"{schema.name}*")) == []


async def test_a_missing_index_is_each_ones_error_in_query_many(make, schema):
    """query_many gives IndexMissing to each query."""
    answers = await make(schema).query_many([{"vector": [1, 0, 0, 0]}, {"vector": [0, 1, 0, 0]}])
    assert [type(answer) for answer in answers] == [IndexMissing, IndexMissing]


async def test_documents_are_reached_by_id_without_an_index(docs, make, schema):
    """get, exists, scan and delete read keys: they work while there is no index."""
    await docs.upsert([document("d"), document("e")])
    await docs.drop_index()
    shell = make(schema)
    assert (await shell.get("d")).id == "d"
    assert await shell.exists(["d", "x"]) == [True, False]
    assert {each.id for each in await shell.scan()} == {"d", "e"}
    assert await shell.delete(["d"]) == 1
    assert await shell.delete(filter={}, everything=True) == 1


async def test_an_index_that_vanishes_under_a_retriever_is_told(docs, schema, raw):
    """A retriever that has written before still says IndexMissing when it asks."""
    await docs.upsert([document("d")])
    raw.execute_command("FT.DROPINDEX", schema.name)
    with pytest.raises(IndexMissing, match="create_index"):
        await docs.query(vector=[1, 0, 0, 0])
    assert await docs.create_index() is True
    assert await docs.ids() == ["d"]


# --- drop -----------------------------------------------------------------------------------------


async def test_drop_index_keeps_the_documents(docs):
    """Dropped without more, documents stay and the next index finds them; twice is no error."""
    await docs.upsert([document("a"), document("b")])
    assert await docs.drop_index() == 0
    assert await docs.drop_index() == 0
    assert await docs.exists(["a", "b"]) == [True, True]
    assert await docs.create_index() is True
    assert sorted(await docs.ids()) == ["a", "b"]


@pytest.mark.parametrize("kind", ["string", "hash"])
async def test_another_program_s_key_in_the_metadata_s_place_stays(make, schema, raw, name, kind):
    """A key where the metadata belong is neither deleted nor written; the error names it and the way out."""
    if kind == "string":
        raw.set(name, "mine")
    else:
        raw.hset(name, "mine", "1")
    shell = make(schema)
    assert await shell.drop_index(delete_documents=True) == 0
    with pytest.raises(SchemaMismatch, match=rf"key '{name}' is no metadata of ours.*another name or prefix"):
        await shell.create_index()
    assert raw.type(name) == kind.encode()
    assert name not in index_names(raw)


async def test_deleted_documents_do_not_come_back(docs, raw, name):
    """drop_index(delete_documents=True), then create_index: nothing is there (case B72)."""
    await docs.upsert([document(f"d{at}") for at in range(2500)])
    assert await docs.drop_index(delete_documents=True) == 2500
    assert await docs.drop_index(delete_documents=True) == 0
    assert list(raw.scan_iter(f"{name}*")) == []
    await docs.create_index()
    assert await docs.count() == 0
    assert await docs.ids() == []


async def test_delete_documents_spares_what_this_library_did_not_write(docs, raw, schema, name):
    """Keys of other types, hashes of other programs, and other prefixes stay (case B61)."""
    prefix = schema.prefix
    raw.set(f"{prefix}string", "theirs")
    raw.rpush(f"{prefix}list", "theirs")
    raw.hset(f"{prefix}hash", mapping={"category": "theirs"})
    raw.hset(f"{name}x:1", mapping={"__text": "another index's"})
    raw.hset(prefix.encode() + b"\xff", mapping={"category": "theirs"})
    await docs.upsert([document("ours", category="x")])
    assert await docs.drop_index(delete_documents=True) == 1
    left = {key.removeprefix(name.encode()) for key in raw.scan_iter(f"{name}*")}
    assert left == {b":string", b":list", b":hash", b"x:1", b":\xff"}


async def test_an_alias_is_not_the_index(make, name, raw):
    """An alias of our name for another index: neither created on, nor does dropping it drop that index (case B62)."""
    other = make(Schema(f"{name}-other", [], FLAT))
    await other.create_index()
    await other.upsert([document("theirs")])
    raw.execute_command("FT.ALIASADD", f"{name}-alias", f"{name}-other")
    ours = make(Schema(f"{name}-alias", [], FLAT))
    with pytest.raises(SchemaMismatch):
        await ours.create_index()
    with pytest.raises(SchemaMismatch):
        await ours.upsert([document("ours")])
    with contextlib.suppress(ServerError):
        await ours.drop_index(delete_documents=True)
    assert await other.count() == 1
    assert await other.ids() == ["theirs"]
    same = make(Schema(f"{name}-alias", [], FLAT, prefix=f"{name}-other:"))
    with pytest.raises(RetrieverError):
        await same.create_index()
    with contextlib.suppress(RetrieverError):
        await same.drop_index()
    assert await other.ids() == ["theirs"]


async def test_glob_characters_in_a_prefix_are_literal(make, name, raw):
    """A prefix with ``*`` or ``[`` takes and deletes its own keys only (cases B07, B61)."""
    one = make(Schema(f"{name}-1", [], FLAT, prefix=f"{name}a*[b]?\\:"))
    other = make(Schema(f"{name}-2", [], FLAT, prefix=f"{name}axxb:"))
    for shell in (one, other):
        await shell.create_index()
        await shell.upsert([document("1"), document("2")])
    raw.hset(f"{name}axxbz\\:3", mapping={"__text": "matches the glob"})
    assert len(await one.scan()) == await one.count() == 2
    assert await one.drop_index(delete_documents=True) == 2
    assert await other.count() == 2


async def test_a_dropped_and_changed_index_is_made_by_the_same_retriever(docs, make, schema):
    """After drop_index another schema may take the name, and the old retriever's write is refused."""
    await docs.upsert([document("a")])
    await docs.drop_index(delete_documents=True)
    other = make(dataclasses.replace(schema, fields=[Tag("other")]))
    assert await other.create_index() is True
    with pytest.raises(SchemaMismatch):
        await docs.upsert([document("b", category="x")])


def test_constructors_do_no_io(url, schema):
    """Making a retriever, sync or async, for a server that is not there is no error."""
    Retriever.connect("valkey://127.0.0.1:1", schema).close()
