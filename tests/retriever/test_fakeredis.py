"""Plain hashes on a fake server, and a server without a search module, through both shells.

fakeredis answers HELLO and hash commands but has no scripts here (EVAL needs its Lua extra) and no FT
commands of ours, so what is written below stands in the hashes as the storage layout says. Reading is
tested here whole; of writing and deleting only that they are refused and change nothing.
"""

from __future__ import annotations

import inspect

import fakeredis
import numpy as np
import pytest

from fields.filters import encode_tag
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from retriever.client import AsyncRetriever, Retriever
from retriever.documents import Document
from retriever.errors import NotSupported, ServerError
from retriever.schema import Schema
from tests.strategies import AWKWARD

SCHEMA = Schema(
    "docs", [Tag("t"), Tag("m", many=True), Numeric("n"), Text("title"), Stored("s")], Vector(dims=2), None, "docs[*]:"
)
VECTOR = np.array([1, 2], "<f4").tobytes()


@pytest.fixture(params=["valkey", "redis", "valkey decoding"])
def clients(request):
    """A blocking and an async client of one fake server, and a plain one to write with."""
    server = fakeredis.FakeServer(server_type="redis" if request.param == "redis" else "valkey")
    library = "Redis" if request.param == "redis" else "Valkey"
    options = {"server": server, "decode_responses": "decoding" in request.param}
    blocking = getattr(fakeredis, f"Fake{library}")(**options)
    awaited = getattr(fakeredis, f"FakeAsync{library}")(**options)
    return blocking, awaited, fakeredis.FakeRedis(server=server)


@pytest.fixture(params=["blocking", "awaited"])
def docs(request, clients):
    """One of the shells, and the plain client."""
    blocking, awaited, raw = clients
    retriever = Retriever(blocking, SCHEMA) if request.param == "blocking" else AsyncRetriever(awaited, SCHEMA)
    return retriever, raw


async def call(result):
    if inspect.isawaitable(result):
        return await result
    return [each async for each in result] if inspect.isasyncgen(result) else result


def store(raw, id, text="text", **fields):
    raw.hset(f"docs[*]:{id}", mapping={"__text": text, "embedding": VECTOR, **fields})


async def test_documents_are_read_from_hashes(docs):
    """get reads a hash of our layout, also from a client that decodes; None where there is none."""
    retriever, raw = docs
    store(raw, "a:é b", "the text", t="\ue0ff", m="x\x1f\ue0ff", n="2.5", title="A title", s='{"k":[1]}')
    fields = {"t": "", "m": ["x", ""], "n": 2.5, "title": "A title", "s": {"k": [1]}}
    document = await call(retriever.get("a:é b", return_vectors=True))
    assert document == Document("a:é b", "the text", fields)
    assert document.vector.tolist() == [1, 2]
    assert await call(retriever.get(["nope", "a:é b"])) == [None, document]
    assert (await call(retriever.get("a:é b"))).vector is None


async def test_existence(docs):
    """exists answers one or many; another program's hash or string is no document."""
    retriever, raw = docs
    store(raw, "a")
    raw.hset("docs[*]:foreign", mapping={"n": "1"})
    raw.set("docs[*]:string", "x")
    assert await call(retriever.exists("a")) is True
    assert await call(retriever.exists(["b", "a", "foreign", "string"])) == [False, True, False, False]


async def test_awkward_values_are_found_by_walking(docs):
    """scan with a filter finds exactly the document of each awkward value, whatever its characters."""
    retriever, raw = docs
    values = list(dict.fromkeys(AWKWARD))
    for at, value in enumerate(values):
        store(raw, at, t=encode_tag(value))
    for at in range(0, len(values), 7):
        found = list(await call(retriever.scan({"t": values[at]}, batch_size=50)))
        assert [(document.id, document.fields["t"]) for document in found] == [(str(at), values[at])]
    assert len(list(await call(retriever.scan({"t": {"ne": values[0]}})))) == len(values) - 1


async def test_a_scan_sees_its_own_documents_only(docs):
    """A prefix is no pattern, case B07; foreign hashes and other types under the prefix are passed over, case B61."""
    retriever, raw = docs
    for at in range(25):
        store(raw, at, n=str(at))
    raw.hset("docs*:x", mapping={"__text": "other prefix"})
    raw.hset("docs[*]", mapping={"layout": "1"})
    raw.hset("docs[*]:foreign", mapping={"a": "b"})
    raw.hset("docs[*]:broken", mapping={"__text": "t", "n": "abc"})
    raw.set("docs[*]:string", "x")
    found = [document.id for document in await call(retriever.scan(batch_size=3))]
    assert sorted(found, key=int) == [str(at) for at in range(25)]
    assert len(list(await call(retriever.scan({"n": {"lt": 5}})))) == 5


async def test_deleting_needs_scripts_and_an_index(docs):
    """An empty list deletes nothing; ids need EVAL, a filter an index to be compared with: told, and nothing deleted.

    What a delete counts and spares is in tests/live, on servers that have both.
    """
    retriever, raw = docs
    for at in range(30):
        store(raw, at, n=str(at))
    raw.hset("docs[*]:foreign", mapping={"n": "1"})
    assert await call(retriever.delete([])) == 0
    for ids in ("2", ["0", "nope", "1"]):
        with pytest.raises(ServerError, match="(?i)^EVAL: unknown command"):
            await call(retriever.delete(ids))
    for passes in ({"filter": {"n": {"lt": 20}}}, {"filter": {}, "everything": True}):
        with pytest.raises(NotSupported, match="no search module: an index needs Valkey with Valkey Search"):
            await call(retriever.delete(**passes))
    assert len(raw.keys()) == 31


async def test_a_server_without_a_search_module(docs):
    """Whatever needs an index says what the server is and what it needs, and writes nothing."""
    retriever, raw = docs
    document = Document("a", "text", {"t": "x"}, [1, 2])
    for operation in (
        lambda: retriever.create_index(),
        lambda: retriever.upsert([document]),
        lambda: retriever.update("a", {"t": "y"}),
        lambda: retriever.count({"t": "x"}),
    ):
        with pytest.raises(NotSupported, match="no search module: an index needs Valkey with Valkey Search"):
            await call(operation())
    assert raw.keys() == []


async def test_asking_a_server_without_a_search_module(docs):
    """A query needs no probe; there the unknown command is a clear NotSupported, not a connection error."""
    retriever, _ = docs
    for operation in (
        lambda: retriever.query(vector=[1, 2]),
        lambda: retriever.count(),
        lambda: retriever.describe_index(),
        lambda: retriever.wait_until_indexed(),
        lambda: retriever.drop_index(),
    ):
        with pytest.raises(NotSupported, match="(?i)unknown command|no search module"):
            await call(operation())
    (result,) = await call(retriever.query_many([{"vector": [1, 2]}]))
    assert isinstance(result, NotSupported)
