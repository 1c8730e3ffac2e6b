"""Asking: the true nearest, in order, with exactly what was asked for, and said when it is not whole."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest
import valkey
import valkey.asyncio

from retriever import (
    SCORE_FIELD,
    TEXT_FIELD,
    AsyncRetriever,
    Document,
    Hit,
    InvalidInput,
    Numeric,
    Retriever,
    Schema,
    SearchTimeout,
    Tag,
    Vector,
    build_ft_search_query,
)
from tests.fakes import DIMS, Embedder, document

pytestmark = pytest.mark.live


def distances(matrix, query, metric):
    """The engine's distances, in float64."""
    matrix, query = matrix.astype(np.float64), np.asarray(query, np.float64)
    if metric == "L2":
        return ((matrix - query) ** 2).sum(axis=1)
    dots = matrix @ query
    if metric == "IP":
        return 1 - dots
    return 1 - dots / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(query))


def clustered(count, dims, seed=0):
    """Vectors as embeddings are: many small clouds, which makes an approximate search work."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(count // 20, dims))
    return (centres[random.integers(len(centres), size=count)] + 0.3 * random.normal(size=(count, dims))).astype(
        np.float32
    )


async def load(shell, matrix, batch_size=500):
    await shell.create_index()
    await shell.upsert(
        (Document(f"{at:05}", f"text {at}", {}, row) for at, row in enumerate(matrix)), batch_size=batch_size
    )


# --- order and exactness --------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["COSINE", "L2", "IP"])
async def test_flat_is_brute_force(make, name, metric):
    """FLAT gives the k nearest of numpy's, nearest first, with numpy's distances (cases B41, B52, B53)."""
    matrix = np.random.default_rng(1).normal(size=(400, 16)).astype(np.float32)
    shell = make(Schema(name, vector=Vector(dims=16, metric=metric, algorithm="FLAT"), analysis=None))
    await load(shell, matrix)
    for query in np.random.default_rng(2).normal(size=(12, 16)):
        expected = distances(matrix, query, metric)
        for k in (1, 20, 400):
            hits = await shell.query(vector=query, k=k)
            assert hits.complete
            assert len(hits) == k
            order = [int(hit.id) for hit in hits]
            assert order == list(np.argsort(expected)[:k])
            assert np.allclose([hit.score for hit in hits], expected[order], rtol=1e-4, atol=1e-4)
            assert [type(hit.score) for hit in hits] == [float] * k


async def test_ties_are_in_the_order_of_ids(docs):
    """Documents at one distance come by id, whatever order they were written in (case B93)."""
    await docs.upsert([document(id) for id in "dbeac"])
    await docs.upsert([document("b"), document("far", vector=(0, 1, 0, 0)), document("near", vector=(1, 0.001, 0, 0))])
    assert await docs.ids() == ["a", "b", "c", "d", "e", "near", "far"]


async def test_a_vector_is_at_no_distance_from_itself(docs):
    """Self-distance under cosine is 0 within rounding, at any length of the vector (case B87)."""
    for at, scale in enumerate((1e-15, 1e-3, 1.0, 1e3, 1e15)):
        await docs.upsert([document(f"{at}", vector=np.array([1, 2, 3, 4]) * scale)])
    hits = await docs.query(vector=[1, 2, 3, 4])
    assert len(hits) == 5
    assert all(abs(hit.score) < 1e-6 for hit in hits)


async def test_k_limits(docs):
    """At most k hits, fewer where fewer pass, and ten unless said (cases B52, B54)."""
    await docs.upsert([document(f"{at:02}", vector=(1, at, 0, 0), year=at % 2) for at in range(30)])
    for k in (1, 10, 20, 30, 31, 10_000):
        assert await docs.ids(k=k) == [f"{at:02}" for at in range(min(k, 30))]
    assert len(await docs.query(vector=[1, 0, 0, 0])) == 10
    assert await docs.ids({"year": 1}, k=3) == ["01", "03", "05"]
    for k in (0, -1, 2.5, 3.0, True, "5", 10_001, None):
        with pytest.raises(InvalidInput, match="k "):
            await docs.query(vector=[1, 0, 0, 0], k=k)


async def test_a_filter_cuts_before_k(docs):
    """The k nearest of those that pass, not those that pass of the k nearest."""
    await docs.upsert([document(f"near{at}", vector=(1, at / 1000, 0, 0), category="x") for at in range(50)])
    await docs.upsert([document("far", vector=(0, 0, 0, 1), category="y")])
    assert await docs.ids({"category": "y"}, k=1) == ["far"]
    assert await docs.ids({"category": "never"}, k=1) == []


async def test_max_distance(docs):
    """Hits farther than max_distance are left out; one exactly there stays."""
    await docs.upsert([document(f"{at}", vector=np.eye(4)[at // 2] + (at % 2) * np.eye(4)[3]) for at in range(4)])
    hits = await docs.query(vector=[1, 0, 0, 0])
    exact = hits[1].score
    assert [hit.id for hit in await docs.query(vector=[1, 0, 0, 0], max_distance=exact)] == ["0", "1"]
    assert [hit.id for hit in await docs.query(vector=[1, 0, 0, 0], max_distance=exact - 1e-3)] == ["0"]
    assert len(await docs.query(vector=[1, 0, 0, 0], max_distance=-0.5)) == 0
    for wrong in ("0.3", float("nan"), True, float("inf")):
        with pytest.raises(InvalidInput):
            await docs.query(vector=[1, 0, 0, 0], max_distance=wrong)


# --- what comes back ------------------------------------------------------------------------------


async def test_return_fields_are_exact(docs):
    """Exactly the named fields come back, the text only if it is named."""
    fields = {"category": "c", "tags": ["t"], "year": 1, "title": "T", "extra": {"a": 1}}
    await docs.upsert([document("d", "the text", **fields)])
    for asked, text, expected in (
        (None, "the text", fields),
        ([], "", {}),
        ([TEXT_FIELD], "the text", {}),
        (["year"], "", {"year": 1}),
        (("extra", "category", "extra"), "", {"extra": {"a": 1}, "category": "c"}),
        ([TEXT_FIELD, "title", "tags"], "the text", {"title": "T", "tags": ["t"]}),
        (iter(["year"]), "", {"year": 1}),
    ):
        (hit,) = await docs.query(vector=[1, 0, 0, 0], return_fields=asked)
        assert (hit.text, hit.fields, hit.vector, hit.rerank_score) == (text, expected, None, None)
    for wrong in (["typo"], ["embedding"], [SCORE_FIELD], ["__terms"], "year", [1]):
        with pytest.raises(InvalidInput, match="return_fields"):
            await docs.query(vector=[1, 0, 0, 0], return_fields=wrong)


async def test_a_hit_holds_no_names_of_ours(docs):
    """fields holds declared fields that the document has, never our own names or the vector."""
    await docs.upsert([document("d", category="x")])
    (hit,) = await docs.query(vector=[1, 0, 0, 0], return_vectors=True)
    assert hit.fields == {"category": "x"}
    assert isinstance(hit, Hit)


async def test_return_vectors_are_what_was_put_in(docs):
    """The vectors come back to the bit, also those whose bytes are no text (case B46)."""
    rows = np.random.default_rng(3).normal(size=(20, DIMS)).astype(np.float32) * 1e10
    await docs.upsert([document(f"{at}", vector=row) for at, row in enumerate(rows)])
    hits = await docs.query(vector=[1, 0, 0, 0], k=20, return_vectors=True, return_fields=[])
    assert all(hit.vector.dtype == np.float32 and np.array_equal(hit.vector, rows[int(hit.id)]) for hit in hits)
    assert len(hits) == 20


async def test_the_public_query_string_is_what_the_engine_takes(docs, schema, raw):
    """build_ft_search_query with PARAMS 2 vec and the bytes is a whole command; its answer is ours."""
    await docs.upsert([document(f"{at}", vector=(1, at, 0, 0), category="a b", year=at) for at in range(20)])
    filter = {"category": "a b", "year": {"gte": 3}}
    words = build_ft_search_query(schema, 5, filter)
    vector = np.array([1, 0, 0, 0], "<f4").tobytes()
    reply = raw.execute_command("FT.SEARCH", schema.name, words, "PARAMS", 2, "vec", vector, "NOCONTENT", "DIALECT", 2)
    assert sorted(key.decode().removeprefix(schema.prefix) for key in reply[1:]) == await docs.ids(filter, k=5)


# --- one of text and vector -----------------------------------------------------------------------


async def test_text_or_vector(docs, make, schema):
    """One of the two, and a text needs an embedder; wrong calls do no I/O."""
    for wrong in ({}, {"text": "a", "vector": [1, 0, 0, 0]}, {"text": "a"}, {"text": ""}, {"text": " \n"}, {"text": 5}):
        with pytest.raises(InvalidInput):
            await docs.query(**wrong)
    embed = Embedder()
    shell = make(schema, to="valkey://127.0.0.1:1", embed=embed)
    for wrong in (
        {"text": ""},
        {"text": " "},
        {"text": b"x"},
        {"text": "a", "vector": [1, 0, 0, 0]},
        {"text": "a", "k": 0},
    ):
        with pytest.raises(InvalidInput):
            await shell.query(**wrong)
    assert embed.calls == []


@pytest.mark.parametrize(
    "text",
    [
        "hello | secret",
        "-hello",
        "foo-bar",
        "100% off: $x",
        'x" | @category:"b',
        "*",
        "a} | @category:{b",
        "(the)",
        "@a:b",
        "\\",
        "\x00",
    ],
)
async def test_a_text_is_never_syntax(make, schema, text):
    """Whatever is asked as text is embedded and no more: it neither fails nor widens a filter (cases B05, B06, B10)."""
    shell = make(schema, embed=Embedder())
    await shell.create_index()
    await shell.upsert([Document("a", "hello", {"category": "a"}), Document("b", "secret", {"category": "b"})])
    hits = await shell.query(text=text, filter={"category": "a"})
    assert [hit.id for hit in hits] == ["a"]
    await shell.upsert([Document("c", text, {"category": "c"})])
    assert (await shell.query(text=text))[0].id == "c"


async def test_a_text_is_embedded_as_a_query(make, schema):
    """embed_query embeds queries where there is one, and the call embeds documents."""

    class Two(Embedder):
        def embed_query(self, texts):
            return np.array([[0, 0, 0, 1]] * len(texts))

    shell = make(schema, embed=Two())
    await shell.create_index()
    await shell.upsert([Document("d", "a text"), document("for queries", vector=(0, 0, 0, 1))])
    assert (await shell.query(text="a text", k=1))[0].id == "for queries"


@pytest.mark.parametrize(
    "vector",
    [
        [0, 0, 0, 0],
        [np.nan, 0, 0, 1],
        [np.inf, 0, 0, 1],
        [1e39, 0, 0, 1],
        [1e-30, 0, 0, 0],
        [1, 2, 3],
        [1, 2, 3, 4, 5],
        [],
        [[1, 2, 3, 4]],
        "text",
        b"\0" * 16,
        ["1", "2", "3", "4"],
        [True, False, True, False],
        5,
        [1j, 0, 0, 0],
    ],
    ids=str,
)
async def test_a_vector_that_no_engine_can_compare_is_refused(docs, vector):
    """In queries and in documents: an error before I/O, and nothing of the batch is written (cases B42, B43, B44)."""
    with pytest.raises(InvalidInput):
        await docs.query(vector=vector)
    with pytest.raises(InvalidInput, match="bad"):
        await docs.upsert([document("good"), document("bad", vector=vector)])
    assert await docs.count() == 0
    assert await docs.scan() == []


async def test_a_zero_vector_is_a_point_under_l2(make, name):
    """Only cosine cannot compare a zero vector."""
    for metric in ("L2", "IP"):
        shell = make(Schema(f"{name}-{metric}", vector=Vector(dims=2, metric=metric, algorithm="FLAT")))
        await shell.create_index()
        await shell.upsert([document("zero", vector=[0, 0]), document("one", vector=[1, 0])])
        hits = await shell.query(vector=[0, 0])
        assert {hit.id: hit.score for hit in hits} == (
            {"zero": 0, "one": 1} if metric == "L2" else {"zero": 1, "one": 1}
        )


# --- approximate search ---------------------------------------------------------------------------


async def test_hnsw_recall_at_defaults(make, name, raw):
    """At the defaults ten of ten are found on clustered vectors, better than at the engines' EF of 10 (case B56)."""
    count, dims = 3000, 48
    matrix = clustered(count, dims)
    shell = make(Schema(name, vector=Vector(dims=dims), analysis=None))
    await load(shell, matrix)
    queries = clustered(count, dims, seed=0)[:100] + 0.1 * np.random.default_rng(5).normal(size=(100, dims))
    truth = [set(np.argsort(distances(matrix, query, "COSINE"))[:10]) for query in queries]

    async def recall(**asked):
        answers = await shell.query_many(
            [{"vector": query, "k": 10, "return_fields": [], **asked} for query in queries]
        )
        return (
            np.mean([len(true & {int(hit.id) for hit in hits}) for true, hits in zip(truth, answers, strict=True)]) / 10
        )

    at_defaults = await recall()
    assert at_defaults >= 0.99
    assert at_defaults >= await recall(ef_runtime=10)
    assert await recall(ef_runtime=1000) >= 0.999


async def test_ef_runtime_means_something_to_hnsw_only(docs, make, name):
    """ef_runtime is taken for HNSW, refused for FLAT, and checked."""
    with pytest.raises(InvalidInput, match="FLAT"):
        await docs.query(vector=[1, 0, 0, 0], ef_runtime=100)
    shell = make(Schema(f"{name}-hnsw", vector=Vector(dims=DIMS, ef_runtime=7)))
    await shell.create_index()
    await shell.upsert([document("d")])
    for ef in (None, 1, 100, 40_000):
        assert len(await shell.query(vector=[1, 0, 0, 0], k=1, ef_runtime=ef)) == 1
    assert len(await shell.query(vector=[1, 0, 0, 0], k=10_000)) == 1
    for ef in (0, -1, 40_001, 10.0, True):
        with pytest.raises(InvalidInput, match="ef_runtime"):
            await shell.query(vector=[1, 0, 0, 0], ef_runtime=ef)


# --- not whole ------------------------------------------------------------------------------------


async def test_documents_that_expire_leave_no_trace(docs):
    """Documents that expire while queries run are left out; a row that expired under the engine is told."""
    await docs.upsert([document(f"{at}", ttl_s=0.15 + at / 2000) for at in range(300)])
    await docs.upsert([document("stays")])
    sizes = []
    for _ in range(2000):
        hits = await docs.query(vector=[1, 0, 0, 0], k=1000)
        sizes.append(len(hits))
        assert hits.complete == (not hits.reasons)
        assert all("expired while the engine was answering" in reason for reason in hits.reasons)
        assert "stays" in {hit.id for hit in hits}
        if len(hits) == 1:
            break
        await asyncio.sleep(0.001)
    assert sizes[-1] == 1
    assert sizes == sorted(sizes, reverse=True)


async def test_a_poisoned_index_never_gives_a_score_that_is_no_number(docs, schema, raw):
    """A zero or NaN vector that another program wrote is left out, and the answer says that it is not whole."""
    await docs.upsert([document(f"{at}", vector=(1, at, 0, 0)) for at in range(10)])
    for id, row in (("nan", [np.nan] * 4), ("zero", [0] * 4), ("inf", [np.inf] * 4)):
        raw.hset(f"{schema.prefix}{id}", mapping={"__text": "t", "embedding": np.array(row, "<f4").tobytes()})
    hits = await docs.query(vector=[1, 0, 0, 0], k=100)
    assert np.isfinite([hit.score for hit in hits]).all()
    assert {hit.id for hit in hits}.isdisjoint({"nan", "zero", "inf"})
    assert not hits.complete
    assert "did not write" in hits.reasons[0]


async def test_a_timeout_that_was_reached_is_told(make, name):
    """A search that took as long as its timeout says that it may not be whole; another one is whole (case B55)."""
    matrix = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    shell = make(Schema(name, vector=Vector(dims=64, algorithm="FLAT"), analysis=None))
    await load(shell, matrix, batch_size=5000)
    best = np.argsort(distances(matrix, matrix[0], "COSINE"))[:10]
    for _ in range(20):
        try:
            hits = await shell.query(vector=matrix[0], k=10, timeout_ms=1)
        except SearchTimeout:
            continue
        if hits.complete:
            assert [int(hit.id) for hit in hits] == list(best)
        else:
            assert any("ms" in reason or "imeout" in reason for reason in hits.reasons)
    whole = await shell.query(vector=matrix[0], k=10, timeout_ms=60_000)
    assert whole.complete
    assert [int(hit.id) for hit in whole] == list(best)
    for wrong in (0, -1, 60_001, 1.5, True):
        with pytest.raises(InvalidInput, match="timeout_ms"):
            await shell.query(vector=matrix[0], timeout_ms=wrong)


# --- many at once ---------------------------------------------------------------------------------


def counting(kind):
    """A client class that counts its round trips."""

    class Counting(kind):
        trips = 0

        def pipeline(self, *args, **kwargs):
            type(self).trips += 1
            return super().pipeline(*args, **kwargs)

    if issubclass(kind, valkey.Valkey):

        def execute_command(self, *args, **kwargs):
            type(self).trips += 1
            return kind.execute_command(self, *args, **kwargs)

    else:

        async def execute_command(self, *args, **kwargs):
            type(self).trips += 1
            return await kind.execute_command(self, *args, **kwargs)

    Counting.execute_command = execute_command
    return Counting


@pytest.fixture
async def counted(make, borrow, schema, url):
    """A shell over a borrowed client that counts round trips, with an embedder and three documents."""
    client = borrow(url, counting(valkey.Valkey if make.blocking else valkey.asyncio.Valkey))
    embed = Embedder()
    shell = make(schema, client=client, embed=embed)
    await shell.create_index()
    await shell.upsert([Document(id, id, {"category": id}) for id in ("one", "two", "three")])
    embed.calls.clear()
    type(client).trips = 0
    shell.client, shell.embed = client, embed
    return shell


async def test_a_query_is_one_round_trip(counted):
    """A query is one command, by text one embedder call more; a get of many is one pipeline."""
    assert (await counted.query(text="one"))[0].id == "one"
    assert (type(counted.client).trips, counted.embed.calls) == (1, [["one"]])
    await counted.query(vector=[1, 0, 0, 0], filter={"category": "two"})
    assert type(counted.client).trips == 2
    await counted.get(["one", "two", "x"])
    assert type(counted.client).trips == 3


async def test_query_many_is_one_call_and_one_round_trip(counted):
    """Texts and vectors mixed: one embedder call, one round trip, each with its own hits or its own error."""
    answers = await counted.query_many(
        [
            {"text": "one", "k": 1},
            {"vector": counted.embed.vector("two"), "k": 1},
            {"text": "three", "k": 2, "filter": {"category": "three"}},
            {"text": "one", "k": 0},
            {"text": "one", "filter": {"typo": 1}},
            {"vector": [0, 0, 0, 0]},
            {"txt": "one"},
            {},
            {"text": "two", "return_fields": ["category"], "max_distance": 0.01},
        ]
    )
    assert counted.embed.calls == [["one", "three", "two"]]
    assert type(counted.client).trips == 1
    assert [hit.id for hit in answers[0]] == ["one"]
    assert [hit.id for hit in answers[1]] == ["two"]
    assert [hit.id for hit in answers[2]] == ["three"]
    assert [type(each) for each in answers[3:8]] == [InvalidInput] * 5
    assert [(hit.id, hit.text, hit.fields) for hit in answers[8]] == [("two", "", {"category": "two"})]


async def test_query_many_of_nothing_and_of_nonsense(counted):
    """No queries are no round trip; what is no list of mappings is an error."""
    assert await counted.query_many([]) == []
    assert type(counted.client).trips == 0
    for wrong in ("text", {"text": "a"}, b"x"):
        with pytest.raises(InvalidInput):
            await counted.query_many(wrong)


async def test_query_many_gives_what_query_gives(docs):
    """Every answer of query_many is the one that query gives alone."""
    await docs.upsert([document(f"{at}", vector=(1, at, at % 3, 0), year=at) for at in range(40)])
    asked = [{"vector": [1, at, 0, 1], "k": 1 + at, "filter": Numeric("year") >= at} for at in range(20)]
    assert await docs.query_many(asked) == [await docs.query(**each) for each in asked]


async def test_query_many_with_a_failing_embedder(make, schema):
    """An embedder that fails fails the texts; queries by vector have their hits."""

    def embed(texts):
        raise RuntimeError("model gone")

    shell = make(schema, embed=embed)
    await shell.create_index()
    await shell.upsert([document("d")])
    by_text, by_vector = await shell.query_many([{"text": "a"}, {"vector": [1, 0, 0, 0]}])
    assert isinstance(by_text, RuntimeError)
    assert [hit.id for hit in by_vector] == ["d"]


# --- told to others -------------------------------------------------------------------------------


async def test_the_hook_is_told_each_operation(make, schema):
    """on_operation gets the name, index, commands, hits and the class of an error, and no contents."""
    told = []
    shell = make(schema, on_operation=told.append)
    await shell.create_index()
    await shell.upsert([document("a", category="x"), document("b")])
    await shell.query(vector=[1, 0, 0, 0], k=1)
    await shell.count({"category": "x"})
    await shell.delete(["a", "b", "c"])
    with pytest.raises(InvalidInput):
        await shell.query(vector=[1, 0, 0, 0], k=0)
    assert [each.name for each in told] == ["create_index", "upsert", "query", "count", "delete", "query"]
    assert {each.index for each in told} == {schema.name}
    assert [each.hits for each in told[1:5]] == [2, 1, 1, 2]
    assert [each.complete for each in told] == [True] * 5 + [False]
    assert [each.error for each in told] == [None] * 5 + ["InvalidInput"]
    assert [each.commands for each in told][2] == 1
    assert all(each.seconds >= 0 for each in told)


async def test_the_log_holds_no_contents(make, schema, caplog):
    """At DEBUG the log names commands and sizes, never a text, a value or a vector."""
    with caplog.at_level(logging.DEBUG, "retriever"):
        shell = make(schema, embed=Embedder())
        await shell.create_index()
        await shell.upsert([Document("d", "hushhush text", {"category": "hushhush tag"})])
        await shell.query(text="hushhush question", filter={"category": "hushhush tag"})
    assert "FT.SEARCH" in caplog.text
    assert "hushhush" not in caplog.text


# --- the eight kinds of client --------------------------------------------------------------------


@pytest.mark.parametrize("decode", [False, True], ids=["bytes", "decoding"])
@pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])
async def test_every_kind_of_client(make, borrow, schema, url, raw, decode, protocol):
    """A borrowed client gives the same answers by either protocol, decoding or not, and stays open.

    Whatever dialect the server or the client would take by itself (case B12).
    """
    client = borrow(url, protocol=protocol, decode_responses=decode)
    shell = make(schema, client=client, embed=Embedder())
    assert await shell.create_index() is True
    assert await shell.create_index() is False
    fields = {"category": "a \x00 b", "tags": ["x", ""], "year": 0.25, "title": "T", "extra": {"ü": [1]}}
    report = await shell.upsert(
        [Document("d", "téxt", fields), document("e", category="y"), document("gone", ttl_s=99)]
    )
    assert (report.written, report.failed) == (3, ())
    assert await shell.update("e", {"year": 3}) is True
    assert await shell.get("d") == Document("d", "téxt", fields)
    (hit,) = await shell.query(text="téxt", filter={"category": "a \x00 b"}, return_vectors=True)
    assert (hit.id, hit.text, hit.fields) == ("d", "téxt", fields)
    assert abs(hit.score) < 1e-6
    assert np.array_equal(hit.vector, Embedder().vector("téxt"))
    many = await shell.query_many([{"vector": [1, 0, 0, 0], "k": 2}, {"text": "téxt", "k": 1}, {"k": 1}])
    assert [len(many[0]), many[1][0].id, type(many[2])] == [2, "d", InvalidInput]
    assert await shell.count() == 3
    assert await shell.count(Tag("tags") == "") == 1
    assert {each.id for each in await shell.scan(batch_size=1)} == {"d", "e", "gone"}
    assert await shell.exists(["d", "x"]) == [True, False]
    assert await shell.delete(["gone", "x"]) == 1
    report = await shell.describe_index()
    assert (report.documents, report.dims, report.metric, report.failures) == (2, 4, "COSINE", 0)
    raw.hset(f"{schema.prefix}bad", "year", "x")
    report = await shell.describe_index()
    assert (report.failures, report.last_error_key) == (1, f"{schema.prefix}bad")
    raw.unlink(f"{schema.prefix}bad")
    assert await shell.wait_until_indexed() is True
    assert await shell.drop_index(delete_documents=True) == 2
    await shell.close()
    pong = client.ping()
    assert (pong if make.blocking else await pong) is True


async def test_resp3_warnings_are_reasons(make, borrow, name, url):
    """What RESP3 warns of makes the answer incomplete (case B55)."""
    matrix = np.random.default_rng(0).normal(size=(20_000, 32)).astype(np.float32)
    schema = Schema(name, vector=Vector(dims=32, algorithm="FLAT"), analysis=None)
    client = borrow(url, protocol=3)
    shell = make(schema, client=client)
    await load(shell, matrix, batch_size=5000)
    best = list(np.argsort(distances(matrix, matrix[0], "COSINE"))[:10])
    for _ in range(10):
        try:
            hits = await shell.query(vector=matrix[0], k=10, timeout_ms=1)
        except SearchTimeout:
            continue
        assert not hits.complete or [int(hit.id) for hit in hits] == best


async def test_the_wrong_flavour_of_client_is_a_type_error(url, schema):
    """An async client for Retriever, a blocking one for AsyncRetriever, and no client at all are named."""
    with valkey.Valkey.from_url(url) as blocking:
        with pytest.raises(TypeError, match="AsyncRetriever was given a blocking client.*Retriever takes it"):
            AsyncRetriever(blocking, schema)
        awaited = valkey.asyncio.Valkey.from_url(url)
        with pytest.raises(TypeError, match="Retriever was given an async client.*AsyncRetriever takes it"):
            Retriever(awaited, schema)
        await awaited.aclose()
    for nothing in (None, url, object()):
        for kind in (Retriever, AsyncRetriever):
            with pytest.raises(TypeError, match="a client of valkey-py"):
                kind(nothing, schema)
