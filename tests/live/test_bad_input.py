"""Bad input: a clear error before the batch is written, and nothing written."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from retriever import Document, InvalidInput, Retriever, interruption
from tests.fakes import DIMS, Embedder, document

pytestmark = pytest.mark.live
ONE = (1, 0, 0, 0)

DOCUMENTS = {
    "a str where a list is declared": document("bad", tags="x"),
    "a str of letters where a list is declared": document("bad", tags="letters"),
    "a list where a str is declared": document("bad", category=["x"]),
    "a number in a TAG": document("bad", category=5),
    "bytes in a TAG": document("bad", category=b"x"),
    "None in a TAG": document("bad", category=None),
    "None in a list": document("bad", tags=["x", None]),
    "a number in a list": document("bad", tags=[1]),
    "half a character in a TAG": document("bad", category="\ud800"),
    "half a character in a list": document("bad", tags=["\udc00"]),
    "half a character in a text": Document("bad", "\ud800", {}, ONE),
    "half a character in a TEXT": document("bad", title="a\ud800"),
    "half a character in Stored": document("bad", extra={"a": "\ud800"}),
    "a TAG too long": document("bad", category="x" * 4097),
    "an empty number": document("bad", year=""),
    "a number of letters": document("bad", year="abc"),
    "a number of digits in a str": document("bad", year="5"),
    "a number with a comma": document("bad", year="1,000"),
    "a NaN number": document("bad", year=float("nan")),
    "an infinite number": document("bad", year=float("inf")),
    "a numpy NaN": document("bad", year=np.float32("nan")),
    "a bool number": document("bad", year=True),
    "a numpy bool": document("bad", year=np.True_),
    "a None number": document("bad", year=None),
    "a number beyond 2**53": document("bad", year=2**53 + 1),
    "a number below -2**53": document("bad", year=-(2**53) - 1),
    "a float beyond 2**53": document("bad", year=1e300),
    "a complex number": document("bad", year=1j),
    "a TEXT that is none": document("bad", title=5),
    "a None TEXT": document("bad", title=None),
    "a text that is none": Document("bad", 5, {}, ONE),
    "bytes as a text": Document("bad", b"x", {}, ONE),
    "None as a text": Document("bad", None, {}, ONE),
    "a set in Stored": document("bad", extra={1, 2}),
    "a NaN in Stored": document("bad", extra=[float("nan")]),
    "a key that is no str in Stored": document("bad", extra={1: 2}),
    "bytes in Stored": document("bad", extra=b"x"),
    "an unknown field": document("bad", typo=1),
    "our own name as a field": document("bad", __text="x"),
    "the vector's name as a field": document("bad", embedding="x"),
    "fields that are no mapping": Document("bad", "", ["category"], ONE),
    "fields that are None": Document("bad", "", None, ONE),
    "no vector and no embedder": document("bad", vector=None),
    "a ttl of nothing": document("bad", ttl_s=0),
    "a negative ttl": document("bad", ttl_s=-5),
    "a ttl that is none": document("bad", ttl_s="5"),
    "a NaN ttl": document("bad", ttl_s=float("nan")),
    "a bool ttl": document("bad", ttl_s=True),
    "a dict in place of a document": {"id": "bad", "vector": ONE},
    "None in place of a document": None,
}


@pytest.mark.parametrize("what", DOCUMENTS)
async def test_a_bad_document_stops_its_batch(docs, what):
    """The error names the document; none of its batch is written, the batches before it are (case B36)."""
    bad = DOCUMENTS[what]
    with pytest.raises(InvalidInput, match=r"bad|None") as raised:
        await docs.upsert([document("good"), bad, document("also good")])
    assert await docs.scan() == []
    stopped = interruption(raised.value)
    assert stopped.report.written == 0
    with pytest.raises(InvalidInput) as raised:
        await docs.upsert([document("a"), document("b"), document("c"), bad], batch_size=2)
    stopped = interruption(raised.value)
    assert (stopped.report.written, sorted(await docs.ids())) == (2, ["a", "b"])


@pytest.mark.parametrize("what", DOCUMENTS)
async def test_a_bad_document_is_told_before_any_io(make, schema, what):
    """No server is needed to know: the same error where there is none."""
    with pytest.raises(InvalidInput):
        await make(schema, to="valkey://127.0.0.1:1").upsert([DOCUMENTS[what]])


@pytest.mark.parametrize(
    "fields",
    [
        {"category": 5},
        {"category": ["x"]},
        {"tags": "letters"},
        {"year": "5"},
        {"year": True},
        {"typo": 1},
        {},
        None,
        ["year"],
    ],
    ids=str,
)
async def test_a_bad_update_changes_nothing(docs, fields):
    """update checks as upsert does; one bad field keeps the good ones from being written."""
    await docs.upsert([document("d", category="old", year=1)])
    with pytest.raises(InvalidInput):
        await docs.update("d", fields if not fields or not isinstance(fields, dict) else {"year": 2, **fields})
    assert (await docs.get("d")).fields == {"category": "old", "year": 1}


async def test_bad_arguments_of_upsert(docs):
    """Batch sizes, on_batch and what is no iterable of documents are checked."""
    for size in (0, -1, 10_001, 2.5, True, "5", None):
        with pytest.raises(InvalidInput, match="batch_size"):
            await docs.upsert([document("d")], batch_size=size)
    with pytest.raises(InvalidInput, match="on_batch"):
        await docs.upsert([document("d")], on_batch="print")
    for wrong in ("text", b"x", 5, None, {"id": "d"}, document("d")):
        with pytest.raises(InvalidInput, match="documents"):
            await docs.upsert(wrong)
    for size in (0, 10_001, True, 1.5):
        with pytest.raises(InvalidInput, match="batch_size"):
            await docs.scan(batch_size=size)
    assert await docs.count() == 0


async def test_bad_ids(docs):
    """What is no id and no list of ids is refused."""
    for wrong in (5, None, [5], [None], [""], b"d"):
        for method in (docs.get, docs.exists, docs.delete):
            with pytest.raises(InvalidInput):
                await method(wrong)


# --- embedders ------------------------------------------------------------------------------------

ANSWERS = {
    "one dimension": (lambda texts: np.ones(DIMS), "shape"),
    "three dimensions": (lambda texts: np.ones((len(texts), 1, DIMS)), "shape"),
    "too few rows": (lambda texts: np.ones((len(texts) - 1, DIMS)), "shape"),
    "too many rows": (lambda texts: np.ones((len(texts) + 1, DIMS)), "shape"),
    "no rows": (lambda texts: [], "shape"),
    "too wide": (lambda texts: np.ones((len(texts), DIMS + 1)), "5 dimensions, the index has 4"),
    "too narrow": (lambda texts: np.ones((len(texts), DIMS - 1)), "3 dimensions, the index has 4"),
    "ragged": (lambda texts: [[1, 2, 3, 4]] * (len(texts) - 1) + [[1, 2]], "array|dimensions"),
    "a NaN row": (lambda texts: [[1, 2, 3, 4]] * (len(texts) - 1) + [[1, np.nan, 0, 0]], "nan"),
    "an infinite row": (lambda texts: [[1, 2, 3, 4]] * (len(texts) - 1) + [[1, np.inf, 0, 0]], "inf"),
    "a zero row": (lambda texts: [[1, 2, 3, 4]] * (len(texts) - 1) + [[0, 0, 0, 0]], "zero vector"),
    "strings": (lambda texts: [["a", "b", "c", "d"]] * len(texts), "numbers"),
    "bools": (lambda texts: np.ones((len(texts), DIMS), bool), "numbers"),
    "None": (lambda texts: None, "numbers"),
    "a str": (lambda texts: "vectors", "numbers"),
    "a dict": (lambda texts: {"embeddings": []}, "numbers"),
    "complex": (lambda texts: np.ones((len(texts), DIMS), complex), "numbers"),
}


def awaited(function):
    async def embed(texts):
        return function(texts)

    return embed


@pytest.mark.parametrize("what", ANSWERS)
async def test_a_wrong_answer_of_an_embedder_writes_nothing(make, schema, what):
    """Whatever is wrong with it is named, in upsert and in query, and none of the batch is written."""
    answer, said = ANSWERS[what]
    await make(schema).create_index()
    for embed in (answer, awaited(answer)):
        if make.blocking and embed is not answer:
            continue
        shell = make(schema, embed=embed)
        with pytest.raises(InvalidInput, match=said):
            await shell.upsert([Document("a", "text a"), document("own vector"), Document("b", "text b")])
        assert await shell.count() == 0
        assert await shell.scan() == []
        with pytest.raises(InvalidInput, match=said):
            await shell.query(text="a text")


async def test_an_embedder_that_raises_writes_nothing(make, schema):
    """Its own error comes through, with how far the upsert came."""

    def embed(texts):
        raise ConnectionResetError("no model server")

    await make(schema).create_index()
    shell = make(schema, embed=embed)
    with pytest.raises(ConnectionResetError, match="no model server") as raised:
        await shell.upsert([document("own vector"), Document("a", "text")])
    assert interruption(raised.value).in_flight == ("own vector", "a")
    assert await shell.count() == 0
    with pytest.raises(ConnectionResetError):
        await shell.query(text="a")


async def test_a_document_without_text_cannot_be_embedded(make, schema):
    """No vector and a blank text: named, before the embedder is called."""
    embed = Embedder(dims=DIMS)
    shell = make(schema, embed=embed)
    await shell.create_index()
    for text in ("", " \n\t"):
        with pytest.raises(InvalidInput, match="'bad' has neither a vector nor a text"):
            await shell.upsert([Document("good", "text"), Document("bad", text)])
    assert embed.calls == []
    assert await shell.count() == 0


@pytest.mark.one_server("connects to one server")
async def test_embedders_are_awaited_or_refused(make, schema, url):
    """A coroutine function is an embedder for AsyncRetriever and a TypeError for Retriever's constructor."""
    embed = awaited(Embedder())
    if make.blocking:
        for each in (embed, functools.partial(embed)):
            with pytest.raises(TypeError, match="coroutine function"):
                make(schema, embed=each)
        shell = make(schema, embed=lambda texts: embed(texts))
        with pytest.raises(TypeError, match="returned an awaitable"):
            await shell.query(text="a")
        return
    shell = make(schema, embed=embed)
    await shell.create_index()
    await shell.upsert([Document("d", "a text")])
    for each in (embed, lambda texts: embed(texts), Embedder()):
        assert [hit.id for hit in await make(schema, embed=each).query(text="a text")] == ["d"]


async def test_a_blocking_embedder_leaves_the_loop_free(make, schema):
    """AsyncRetriever runs a blocking embedder in a thread, not on the loop."""
    import threading

    if make.blocking:
        return
    threads = []

    class Noting(Embedder):
        def __call__(self, texts):
            threads.append(threading.current_thread())
            return super().__call__(texts)

    shell = make(schema, embed=Noting())
    await shell.create_index()
    await shell.upsert([Document("d", "text")])
    assert threading.main_thread() not in threads


def test_what_is_no_schema_or_url(schema, monkeypatch):
    """A schema that is none and a URL that cannot be used are errors that hold no secret."""
    with pytest.raises(InvalidInput, match="a Schema expected"):
        Retriever.connect("valkey://localhost", "docs")
    for wrong in ("http://user:hushhush@host", "user:hushhush@host:6379", ""):
        with pytest.raises(InvalidInput) as raised:
            Retriever.connect(wrong, schema)
        assert "hushhush" not in str(raised.value)
    monkeypatch.delenv("VALKEY_URL", raising=False)
    with pytest.raises(InvalidInput, match="VALKEY_URL"):
        Retriever.connect(None, schema)
