"""What live tests share: an index name of one's own, and both shells behind one set of methods."""

from __future__ import annotations

import inspect
import uuid

import pytest
import valkey
import valkey.asyncio

from retriever import AsyncRetriever, Numeric, Retriever, Schema, Stored, Tag, Text, Vector
from tests.fakes import DIMS


class Shell:
    """A Retriever or an AsyncRetriever; every method is awaited, ``scan`` gives a list."""

    def __init__(self, retriever):
        self.retriever = retriever
        self.blocking = isinstance(retriever, Retriever)

    def __getattr__(self, name):
        method = getattr(self.retriever, name)

        async def call(*args, **kwargs):
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return call

    async def scan(self, *args, **kwargs):
        documents = self.retriever.scan(*args, **kwargs)
        return list(documents) if self.blocking else [document async for document in documents]

    async def ids(self, filter=None, *, k=10_000, vector=(1, 0, 0, 0)):
        """The ids that a search over everything finds, nearest first."""
        return [hit.id for hit in await self.query(vector=vector, k=k, filter=filter, return_fields=[])]


@pytest.fixture(scope="session")
def raw(url):
    """A client that is not ours, for looking and for meddling; answers bytes."""
    with valkey.Valkey.from_url(url) as client:
        yield client


@pytest.fixture
def name(raw):
    """A name that no other test has; every index and key that starts with it is removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(name.encode()):
            raw.execute_command("FT.DROPINDEX", index)
    keys = list(raw.scan_iter(f"{name}*", count=1000))
    for start in range(0, len(keys), 1000):
        raw.unlink(*keys[start : start + 1000])


@pytest.fixture(params=["sync", "async"])
async def make(request, url):
    """Makes shells of the declared kind, ``make(schema, **arguments of connect)``, and closes them."""
    made = []

    def make(schema, *, to=url, client=None, **kwargs):
        kind = Retriever if request.param == "sync" else AsyncRetriever
        retriever = kind.connect(to, schema, **kwargs) if client is None else kind(client, schema, **kwargs)
        made.append(Shell(retriever))
        return made[-1]

    make.blocking = request.param == "sync"
    yield make
    for shell in made:
        await shell.close()


@pytest.fixture
async def borrow(make):
    """Makes clients of the kind that ``make`` takes, ``borrow(url, **arguments)``, and closes them."""
    borrowed = []

    def borrow(url, kind=None, **kwargs):
        kind = kind or (valkey.Valkey if make.blocking else valkey.asyncio.Valkey)
        borrowed.append(kind.from_url(url, **kwargs))
        return borrowed[-1]

    yield borrow
    for client in borrowed:
        if make.blocking:
            client.close()
        else:
            await client.aclose()


@pytest.fixture
def schema(name):
    """One field of each kind; FLAT, so that answers are exact."""
    return Schema(
        name,
        [Tag("category"), Tag("tags", many=True), Numeric("year"), Text("title"), Stored("extra")],
        vector=Vector(dims=DIMS, algorithm="FLAT"),
    )


@pytest.fixture
async def docs(make, schema):
    """An empty index of ``schema``."""
    shell = make(schema)
    assert await shell.create_index()
    return shell
