"""Documents in and out: what goes in comes back, replaced whole, and nothing else is touched."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retriever import Document, InvalidInput, Numeric, Schema, Stored, Tag, Text, UpsertReport, Vector
from tests.fakes import DIMS, Embedder, document

pytestmark = pytest.mark.live


# --- round trips ----------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]))
awkward = st.text(st.sampled_from("a\x00\x1f\x7f ,*\\\"'{}|@\n\t\ue000\ue0fe\ue0ff\ue1ffé中😀"), max_size=6)
numbers = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(-(2.0**53), 2.0**53),
    st.sampled_from(
        [0, -0.0, 5e-324, 2.2250738585072014e-308, 2**53, -(2**53), 0.1 + 0.2, 1718000000.123456, 1e-5, 1e15]
    ),
)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
documents = st.builds(
    Document,
    ids,
    texts,
    st.fixed_dictionaries(
        {},
        optional={
            "category": awkward | texts.filter(lambda text: len(text) < 1000),
            "tags": st.lists(awkward, max_size=4),
            "year": numbers,
            "title": texts,
            "extra": json,
        },
    ),
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=DIMS, max_size=DIMS).filter(
        lambda row: math.fsum(each * each for each in row) > 1e-20
    ),
)


def alike(a, b):
    """Equal also in type and in the sign of zero, as ``==`` is not."""
    return repr(a) == repr(b)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(documents, min_size=1, max_size=5, unique_by=lambda each: each.id))
async def test_any_document_comes_back(docs, batch):
    """Any document that is accepted comes back the same by get, scan and query, and the engine indexed it."""
    await docs.delete(filter={}, everything=True)
    before = (await docs.describe_index()).failures
    assert await docs.upsert(batch) == UpsertReport(len(batch))
    got = await docs.get([each.id for each in batch], return_vectors=True)
    for put, back in zip(batch, got, strict=True):
        assert (back.id, back.text) == (put.id, put.text)
        assert alike({name: back.fields[name] for name in put.fields}, dict(put.fields))
        assert back.fields.keys() == put.fields.keys()
        assert np.array_equal(back.vector, np.array(put.vector, np.float32))
    assert sorted(await docs.scan(), key=lambda each: each.id) == sorted(got, key=lambda each: each.id)
    hits = await docs.query(vector=[1, 0, 0, 0], k=100, return_vectors=True)
    assert hits.complete
    assert {hit.id: (hit.text, repr(hit.fields), hit.vector.tobytes()) for hit in hits} == {
        back.id: (back.text, repr(back.fields), back.vector.tobytes()) for back in got
    }
    assert (await docs.describe_index()).failures == before


@pytest.mark.parametrize(
    "number",
    [0, -0.0, 5e-324, -5e-324, 1e-310, 2.2250738585072014e-308, 2**53, -(2**53), 0.1 + 0.2, 1718000000.123456, 1e15],
)
async def test_awkward_numbers_are_kept_and_found(docs, number):
    """A number comes back as it went in, in type and sign, and equality finds it (cases B27, B39)."""
    await docs.upsert([document("d", year=number), document("other", year=7)])
    assert alike((await docs.get("d")).fields["year"], number)
    hits = await docs.query(vector=[1, 0, 0, 0], filter=Numeric("year") == number)
    assert [(hit.id, repr(hit.fields["year"])) for hit in hits] == [("d", repr(number))]
    assert await docs.ids(Numeric("year") != number) == ["other"]
    assert (await docs.describe_index()).failures == 0


async def test_numpy_numbers_are_kept_as_plain_ones(docs):
    """numpy scalars come back as the int or float that they are."""
    await docs.upsert([document("i", year=np.int64(5)), document("f", year=np.float32(0.5))])
    assert [repr(each.fields["year"]) for each in await docs.get(["i", "f"])] == ["5", "0.5"]


async def test_text_is_kept_to_the_byte(docs):
    """NUL, newlines, odd white space and empty texts come back as they went in."""
    for at, text in enumerate(
        ["", "\x00", "a\nb\r\n\tc", " lead and trail ", "\u2028\ufeff", "😀" * 50, "x" * 100_000]
    ):
        await docs.upsert([document(f"d{at}", text, title=text)])
        assert (await docs.get(f"d{at}")) == Document(f"d{at}", text, {"title": text})
        assert (await docs.query(vector=[1, 0, 0, 0], k=50, filter=None))[0].id


async def test_stored_values_are_any_json(docs):
    """Stored keeps any JSON value; tuples come back as lists; fields like payload and score collide with nothing."""
    value = {"a": [1, 2.5, None, True, {"b": "ü"}], "": [], "big": 10**30}
    await docs.upsert([document("d", extra=value), document("t", extra=(1, (2,))), document("n", extra=None)])
    got = await docs.get(["d", "t", "n"])
    assert [each.fields["extra"] for each in got] == [value, [1, [2]], None]


async def test_field_names_collide_with_nothing(make, name):
    """Fields called payload, score, id, text, self or key are fields like others (case B77)."""
    names = ["payload", "score", "id", "text", "self", "key", "vector", "fields", "terms", "weight", "or"]
    shell = make(Schema(name, [Tag(each) for each in names], Vector(dims=DIMS, algorithm="FLAT")))
    await shell.create_index()
    fields = {each: f"value of {each}" for each in names}
    await shell.upsert([Document("1", "t", fields, [1, 0, 0, 0])])
    (hit,) = await shell.query(vector=[1, 0, 0, 0], filter={"score": "value of score", "or": "value of or"})
    assert (hit.id, hit.text, hit.fields) == ("1", "t", fields)


@pytest.mark.parametrize(
    "id", ["a:b", " ", "*", "{x}", "a\nb", "😀", "\x01", "@2", "[a-z]", "'", '"', "a" * 2000, "ä\u0308"]
)
async def test_any_id_is_an_id(docs, id):
    """An id of any characters is written, read, found and deleted as itself."""
    await docs.upsert([document(id), document("x" + id)])
    assert (await docs.get(id)).id == id
    assert await docs.exists(id) is True
    assert sorted(await docs.ids()) == sorted([id, "x" + id])
    assert await docs.update(id, {"year": 1}) is True
    assert await docs.delete(id) == 1
    assert [each.id for each in await docs.scan()] == ["x" + id]


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        np.array([1, 2, 3, 4], np.float64),
        np.array([1, 2, 3, 4], np.float16),
        np.array([1, 2, 3, 4], ">f4"),
        np.array([1, 2, 3, 4], ">f8"),
        np.array([1, 2, 3, 4], np.int8),
        np.array([1, 0, 2, 0, 3, 0, 4, 0], np.float32)[::2],
        np.array([4, 3, 2, 1], np.float32)[::-1],
        np.array([[1, 9], [2, 9], [3, 9], [4, 9]], np.float32)[:, 0],
        [1, 2, 3, 4],
        (1.0, 2, np.float32(3), 4),
    ],
    ids=["f8", "f2", "big f4", "big f8", "int8", "strided", "reversed", "column", "list", "tuple"],
)
async def test_vectors_are_converted(docs, given, raw, schema):
    """Arrays of any real dtype, order and stride are converted, never reinterpreted (case B44)."""
    await docs.upsert([document("d", vector=given)])
    assert raw.hget(f"{schema.prefix}d", "embedding") == np.array([1, 2, 3, 4], "<f4").tobytes()
    for query in (given, [1, 2, 3, 4]):
        (hit,) = await docs.query(vector=query, return_vectors=True)
        assert abs(hit.score) < 1e-6
        assert hit.vector.dtype == np.float32
        assert np.array_equal(hit.vector, [1, 2, 3, 4])


async def test_rows_of_a_matrix_are_vectors(docs):
    """Rows of one matrix, and rows of mixed kinds in one batch, each keep their own values."""
    matrix = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    await docs.upsert([document(f"m{at}", vector=row) for at, row in enumerate(matrix)])
    await docs.upsert([document("x", vector=matrix[0].astype(">f8")), document("y", vector=[2**24 + 1, 1, 1, 1])])
    got = await docs.get(["m0", "m1", "m2", "x", "y"], return_vectors=True)
    expected = [*matrix, matrix[0], np.array([2**24 + 1, 1, 1, 1], np.float32)]
    assert all(np.array_equal(each.vector, row) for each, row in zip(got, expected, strict=True))


# --- upsert replaces, update changes --------------------------------------------------------------


async def test_upsert_replaces_every_declared_field(docs, schema, raw):
    """A field left out is gone, from the hash and from every filter (case B73)."""
    whole = {"category": "old", "tags": ["a"], "year": 1, "title": "old title", "extra": {"x": 1}}
    await docs.upsert([document("d", "old text", **whole)])
    await docs.upsert([document("d", "new text")])
    assert await docs.get("d") == Document("d", "new text")
    for filter in ({"category": "old"}, {"tags": "a"}, {"year": 1}):
        assert await docs.ids(filter) == []
    stored = set(raw.hkeys(f"{schema.prefix}d"))
    assert stored == {b"__text", b"__terms", b"__of_embedding", b"embedding"}


async def test_upsert_of_full_and_sparse_documents_in_one_batch(docs):
    """Documents of one batch may have different fields; each is exactly itself."""
    await docs.upsert([document("a", category="x", year=1), document("b", year=2)])
    await docs.upsert([document("a", year=1), document("b", category="y", tags=[]), document("c", title="t")])
    assert [each.fields for each in await docs.get(["a", "b", "c"])] == [
        {"year": 1},
        {"category": "y", "tags": []},
        {"title": "t"},
    ]


async def test_upsert_leaves_foreign_fields_of_a_hash(docs, schema, raw):
    """A hash field that the schema does not declare is no business of an upsert."""
    await docs.upsert([document("d", year=1)])
    raw.hset(f"{schema.prefix}d", "theirs", "1")
    await docs.upsert([document("d")])
    assert raw.hget(f"{schema.prefix}d", "theirs") == b"1"


async def test_ttl_is_set_and_kept(docs, schema, raw):
    """ttl_s sets the expiry; None leaves a key's expiry as it is."""
    key = f"{schema.prefix}d"
    await docs.upsert([document("d"), document("e", ttl_s=0.5)])
    assert raw.pttl(key) == -1
    assert 0 < raw.pttl(f"{schema.prefix}e") <= 500
    await docs.upsert([document("d", ttl_s=1000)])
    assert 990_000 < raw.pttl(key) <= 1_000_000
    await docs.upsert([document("d", year=1)])
    assert 990_000 < raw.pttl(key) <= 1_000_000
    await docs.update("d", {"year": None})
    assert 990_000 < raw.pttl(key) <= 1_000_000


async def test_update_changes_the_given_fields_only(docs, schema, raw):
    """update sets fields, None removes one, and text and vector stay as they are (case B45)."""
    await docs.upsert([document("d", "the text", (1, 2, 3, 4), category="old", year=1, title="a title")])
    before = raw.hgetall(f"{schema.prefix}d")
    assert await docs.update("d", {"category": "new", "year": None, "tags": ["x", ""]}) is True
    got = await docs.get("d", return_vectors=True)
    assert got == Document("d", "the text", {"category": "new", "tags": ["x", ""], "title": "a title"})
    assert np.array_equal(got.vector, [1, 2, 3, 4])
    assert await docs.ids({"category": "new", "tags": {"all": ["x", ""]}}) == ["d"]
    assert await docs.ids({"category": "old"}) == await docs.ids({"year": 1}) == []
    after = raw.hgetall(f"{schema.prefix}d")
    same = (b"__text", b"__terms", b"__terms_title", b"embedding", b"__of_embedding")
    assert [after[each] for each in same] == [before[each] for each in same]


async def test_update_of_a_text_field_changes_its_terms(docs, schema, raw):
    """The analysed copy of a Text field follows it, and goes with it."""
    await docs.upsert([document("d", title="old")])
    await docs.update("d", {"title": "Running dogs"})
    assert raw.hget(f"{schema.prefix}d", "__terms_title") == b" run  dog "
    await docs.update("d", {"title": None})
    assert raw.hget(f"{schema.prefix}d", "__terms_title") is None
    assert await docs.get("d") == Document("d", "some text")


async def test_update_of_a_missing_document_writes_nothing(docs, schema, raw):
    """update answers False for an id that is not there, and makes no key."""
    assert await docs.update("d", {"year": 1}) is False
    assert await docs.update("d", {"year": None}) is False
    assert not raw.exists(f"{schema.prefix}d")


async def test_a_batch_with_an_id_twice_is_refused(docs):
    """An id twice in a batch is an error that names it, and none of the batch is written."""
    with pytest.raises(InvalidInput, match="'b' is twice in one batch"):
        await docs.upsert([document("a"), document("b", year=1), document("b", year=2)])
    assert await docs.count() == 0
    await docs.upsert([document("b", year=1), document("b", year=2)], batch_size=1)
    assert (await docs.get("b")).fields == {"year": 2}


async def test_upsert_streams_a_generator(docs):
    """A generator is pulled batch by batch: no more than one batch is ever ahead of what was confirmed."""
    pulled, confirmed, ahead = 0, [], []

    def source():
        nonlocal pulled
        for at in range(25):
            pulled += 1
            yield document(f"d{at:02}")

    def on_batch(ids):
        confirmed.extend(ids)
        ahead.append(pulled - len(confirmed))

    report = await docs.upsert(source(), batch_size=10, on_batch=on_batch)
    assert report == UpsertReport(25)
    assert confirmed == [f"d{at:02}" for at in range(25)]
    assert ahead == [0, 0, 0]
    assert await docs.count() == 25


async def test_upsert_of_nothing(docs):
    """No documents are no error, and on_batch is not called."""
    assert await docs.upsert([], on_batch=lambda ids: pytest.fail("called")) == UpsertReport()
    assert await docs.upsert(iter(())) == UpsertReport()


async def test_upsert_takes_an_async_generator(docs):
    """An async generator is streamed by AsyncRetriever and a TypeError for Retriever."""

    async def source():
        for at in range(25):
            yield document(f"d{at}")

    if docs.blocking:
        with pytest.raises(TypeError, match="AsyncRetriever"):
            await docs.upsert(source())
        return
    sizes = []

    async def on_batch(ids):
        sizes.append(len(ids))

    assert await docs.upsert(source(), batch_size=10, on_batch=on_batch) == UpsertReport(25)
    assert sizes == [10, 10, 5]
    assert await docs.count() == 25


async def test_a_refused_document_is_named_and_the_others_written(docs, schema, raw):
    """A key of another type under the prefix: the report names it with the reason, the rest is in (case B75)."""
    raw.set(f"{schema.prefix}bad", "theirs")
    raw.rpush(f"{schema.prefix}worse", "theirs")
    told = []
    batch = [document("a", year=1), document("bad"), document("b"), document("worse", ttl_s=100)]
    report = await docs.upsert(batch, on_batch=told.extend)
    assert report.written == 2
    assert [failure.id for failure in report.failed] == ["bad", "worse"]
    assert all("WRONGTYPE" in failure.reason for failure in report.failed)
    assert told == ["a", "b"]
    assert sorted(await docs.ids()) == ["a", "b"]
    assert raw.get(f"{schema.prefix}bad") == b"theirs"
    full = {"category": "x", "tags": ["y"], "year": 1, "title": "t", "extra": 1}
    report = await docs.upsert([document("bad", **full), document("c", **full)])
    assert (report.written, [failure.id for failure in report.failed]) == (1, ["bad"])


async def test_a_refused_document_keeps_the_key_that_is_there(docs, schema, raw):
    """A ttl of a refused document does not fall on the foreign key in its place."""
    raw.set(f"{schema.prefix}bad", "theirs")
    await docs.upsert([document("bad", ttl_s=100)])
    assert raw.pttl(f"{schema.prefix}bad") == -1


async def test_the_counters_follow_batches(docs, schema, raw):
    """The metadata count documents and terms as they are written."""
    await docs.upsert([document("a", "one two three", title="four"), document("b", "five")])
    stored = raw.hgetall(schema.metadata_key)
    assert (stored[b"documents"], stored[b"terms"]) == (b"2", b"4")
    assert (stored[b"documents_title"], stored[b"terms_title"]) == (b"1", b"1")


# --- delete, count, scan, get ---------------------------------------------------------------------


async def test_delete_counts_what_was_there(docs):
    """delete answers how many documents there were; a missing or repeated id counts nothing."""
    await docs.upsert([document(f"d{at}") for at in range(5)])
    assert await docs.delete("d0") == 1
    assert await docs.delete("d0") == 0
    assert await docs.delete(["d1", "d2", "d1", "x"]) == 2
    assert await docs.delete(each for each in ["d3"]) == 1
    assert await docs.ids() == ["d4"]


async def test_an_empty_list_deletes_nothing(docs):
    """delete([]) is no delete of everything (case B62)."""
    await docs.upsert([document("d")])
    assert await docs.delete([]) == 0
    assert await docs.delete(iter(())) == 0
    assert await docs.count() == 1


async def test_everything_must_be_said(docs):
    """An empty filter deletes all documents only with everything=True, which goes with nothing else."""
    await docs.upsert([document("a"), document("b", year=1)])
    for wrong in (
        {"filter": {}},
        {},
        {"everything": True},
        {"ids": ["a"], "filter": {}},
        {"ids": ["a"], "everything": True},
        {"filter": {"year": 1}, "everything": True},
    ):
        with pytest.raises(InvalidInput):
            await docs.delete(**wrong)
    assert await docs.count() == 2
    assert await docs.delete(filter={}, everything=True) == 2
    assert await docs.count() == 0


async def test_delete_by_filter_deletes_exactly_those(docs):
    """Thousands that pass are deleted, all others stay (case B59)."""
    await docs.upsert([document(f"d{at}", year=at % 3) for at in range(3000)])
    assert await docs.delete(filter={"year": {"gte": 1}}) == 2000
    assert await docs.count() == await docs.count({"year": 0}) == 1000
    assert len(await docs.scan()) == 1000


@pytest.mark.parametrize(
    "wrong",
    [{"typo": "x"}, Tag("typo") == "x", ~(Tag("typo") == "x"), {"category": None}, {"category": []}, {"title": "x"}],
)
async def test_a_filter_that_cannot_be_meant_deletes_nothing(docs, wrong):
    """An unknown field, a None, an empty list, a TEXT field: an error for delete, count and scan (cases B28, B29)."""
    await docs.upsert([document("a", category="x")])
    for method in (docs.count, docs.scan, lambda wrong: docs.delete(filter=wrong)):
        with pytest.raises(InvalidInput):
            await method(wrong)
    with pytest.raises(InvalidInput):
        await docs.query(vector=[1, 0, 0, 0], filter=wrong)
    assert await docs.count() == 1


async def test_what_is_left_of_a_longer_version_can_be_deleted(docs):
    """A document in parts that became shorter: the parts of its old version go by one filter (case B76)."""
    old = [document(f"a#{at}", category="a", year=1) for at in range(5)]
    await docs.upsert([*old, document("b#0", category="b", year=1)])
    await docs.upsert([document(f"a#{at}", category="a", year=2) for at in range(2)])
    assert await docs.delete(filter=(Tag("category") == "a") & (Numeric("year") != 2)) == 3
    assert sorted(await docs.ids()) == ["a#0", "a#1", "b#0"]


async def test_delete_reaches_what_the_engine_refused(docs, schema, raw):
    """A document of ours that is no longer indexed is still scanned and deleted by filter."""
    await docs.upsert([document("a", category="x"), document("b", category="x")])
    raw.hset(f"{schema.prefix}a", "embedding", b"short")
    assert await docs.count() == 1
    assert len(await docs.scan({"category": "x"})) == 2
    assert await docs.delete(filter={"category": "x"}) == 2


async def test_count_agrees_with_scan(docs):
    """count asks the engine, scan walks the keys; both see the same."""
    await docs.upsert([document(f"d{at}", year=at % 7, category=f"c{at % 3}") for at in range(500)])
    for filter in (None, {}, {"year": 3}, {"category": {"ne": "c1"}}, {"year": {"gt": 2}, "category": "c0"}):
        assert await docs.count(filter) == len(await docs.scan(filter))


async def test_scan_gives_each_document_once(docs):
    """Each document once, whatever the page size, with its vector if asked for."""
    await docs.upsert([document(f"d{at}", vector=(1, at, 0, 0), year=at % 2) for at in range(700)])
    for size in (1, 10, 1000):
        found = Counter(each.id for each in await docs.scan(batch_size=size))
        assert found == Counter(f"d{at}" for at in range(700))
    some = await docs.scan({"year": 1}, return_vectors=True)
    assert {each.id for each in some} == {f"d{at}" for at in range(1, 700, 2)}
    assert all(np.array_equal(each.vector, (1, int(each.id[1:]), 0, 0)) for each in some)
    assert all(each.vector is None for each in await docs.scan({"year": 1}))


async def test_scan_sees_all_that_stays_under_writes(docs):
    """Documents that are there all the time are seen, however many come and go meanwhile."""
    await docs.upsert([document(f"d{at}") for at in range(300)])
    seen = []

    async def see(each):
        seen.append(each.id)
        if len(seen) % 50 == 0 and len(seen) <= 250:
            await docs.upsert([document(f"new{len(seen)}-{at}") for at in range(500)])
            await docs.delete([f"new{len(seen) - 50}-{at}" for at in range(500)])

    if docs.blocking:
        for each in docs.retriever.scan(batch_size=10):
            await see(each)
    else:
        async for each in docs.retriever.scan(batch_size=10):
            await see(each)
    assert {f"d{at}" for at in range(300)} <= set(seen)
    assert len(seen) == len(set(seen))


async def test_scan_passes_over_what_is_not_ours(docs, schema, raw, caplog):
    """Foreign hashes and keys under the prefix are left out of scan, get and query, with a count in the log."""
    await docs.upsert([document("ours", category="x")])
    vector = np.ones(4, "<f4").tobytes()
    raw.set(f"{schema.prefix}string", "x")
    raw.hset(f"{schema.prefix}no-text", mapping={"category": "x", "embedding": vector})
    raw.hset(f"{schema.prefix}bad-number", mapping={"__text": "t", "year": "1", "extra": "{", "embedding": vector})
    raw.hset(schema.prefix.encode() + b"\xff", mapping={"__text": "t", "embedding": vector})
    with caplog.at_level("WARNING", "retriever"):
        assert [each.id for each in await docs.scan()] == ["ours"]
    assert "passed over 2 hashes" in caplog.text
    assert await docs.get("no-text") is None
    hits = await docs.query(vector=[1, 1, 1, 1], k=10)
    assert {hit.id for hit in hits} == {"ours", "no-text"}
    assert not hits.complete
    assert "2 rows hold values that this library did not write" in hits.reasons


async def test_get_one_and_many(docs):
    """One id gives a document or None, many give a list in their order with None in the gaps."""
    await docs.upsert([document("a", year=1), document("b")])
    assert await docs.get("x") is None
    assert (await docs.get("a")).fields == {"year": 1}
    assert (await docs.get("a")).vector is None
    got = await docs.get(["b", "x", "a", "b"])
    assert [each and each.id for each in got] == ["b", None, "a", "b"]
    assert await docs.get([]) == []
    assert await docs.exists(each for each in ["a", "x"]) == [True, False]
    assert await docs.exists([]) == []
    many = [f"m{at}" for at in range(1234)]
    await docs.upsert([document(each) for each in many])
    assert [each.id for each in await docs.get(many)] == many


@pytest.mark.parametrize("id", ["", None, 1, b"a", ["a"], "\ud800", "a\0b"])
async def test_an_id_that_is_none_is_refused(docs, id):
    """Empty, non-string and half-character ids are errors of every method, and nothing is written."""
    with pytest.raises(InvalidInput):
        await docs.upsert([document("good"), document(id)])
    with pytest.raises(InvalidInput):
        await docs.update(id, {"year": 1})
    for method in (docs.get, docs.exists, docs.delete):
        with pytest.raises(InvalidInput):
            await method([id])
    assert await docs.count() == 0


# --- without words, with words --------------------------------------------------------------------


async def test_an_index_without_analysis_stores_no_terms(make, name, raw):
    """analysis=None writes neither terms nor counters, and documents are found by vector and tag."""
    schema = Schema(name, [Tag("t"), Text("title"), Stored("s")], Vector(dims=DIMS), analysis=None)
    shell = make(schema)
    await shell.create_index()
    await shell.upsert([document("d", "words", t="x", title="y", s=1)])
    assert set(raw.hkeys(f"{name}:d")) == {b"__text", b"embedding", b"__of_embedding", b"t", b"title", b"s"}
    assert b"documents" not in raw.hkeys(schema.metadata_key)
    assert await shell.ids({"t": "x"}) == ["d"]


@pytest.mark.parametrize(
    "text", ["alpha\nbeta", "alpha\x00beta", "alpha\u2014beta", "alpha\\beta", "a" * 500 + " beta", "the beta"]
)
async def test_the_analysed_copy_holds_every_word(docs, raw, schema, text):
    """Whatever separates words in a text, each is a term of the index on its own (cases B14, B15, B18, B25)."""
    await docs.upsert([document("d", text)])
    found = raw.execute_command("FT.SEARCH", schema.name, "@__terms:beta", "NOCONTENT", "DIALECT", 2)
    assert found == [1, f"{schema.prefix}d".encode()]


async def test_texts_are_embedded_where_no_vector_is_given(make, schema):
    """Documents with a vector keep it, the others get the embedder's, in one call per batch."""
    embed = Embedder()
    shell = make(schema, embed=embed)
    await shell.create_index()
    embed.calls.clear()
    await shell.upsert(
        [document("a", "text a", None), document("b", "text b", (1, 2, 3, 4)), document("c", "text c", None)]
    )
    assert embed.calls == [["text a", "text c"]]
    a, b, c = await shell.get(["a", "b", "c"], return_vectors=True)
    assert np.array_equal(a.vector, embed.vector("text a"))
    assert np.array_equal(b.vector, [1, 2, 3, 4])
    assert np.array_equal(c.vector, embed.vector("text c"))
