"""What live tests share: an index name of one's own, and shells for every way to the server.

``make`` reaches the server over connections of the shells' own; with CLIENTS=all in the environment every test
that uses it runs over each kind of borrowed client as well. These runs have the mark ``borrowed``.

The server of VALKEY_URL may be a node of a cluster: ``clustered`` says so, ``raw`` and every client that ``make``
brings are then a cluster's, and what is about one server (the mark ``one_server``, ``borrow``, ``lend``) is skipped.
Servers that a test starts itself are what they are.
"""

from __future__ import annotations

import os
import uuid

import pytest
import valkey
import valkey.asyncio

from retriever import AsyncRetriever, Numeric, Retriever, Schema, Stored, Tag, Text, Vector
from retriever.memory.store import AsyncMemoryStore, MemoryStore
from tests.clients import BORROWED, OWN, USUAL, Shell, closed
from tests.fakes import DIMS, Embedder
from tests.proxy import Proxy

# Modules that always run over borrowed clients too, and over which.
LENT = {"test_clients": BORROWED, "test_search": USUAL, "test_documents": USUAL}


def pytest_generate_tests(metafunc):
    if "make" not in metafunc.fixturenames:
        return
    module = metafunc.module.__name__.rpartition(".")[2]
    lent = BORROWED if os.environ.get("CLIENTS") == "all" else LENT.get(module, [])
    if "borrow" in metafunc.fixturenames:
        lent = []  # brings clients of its own, which would be the same ones each time
    own = [] if "lend" in metafunc.fixturenames else OWN
    ways = [*own, *(pytest.param(way, marks=pytest.mark.borrowed) for way in lent)]
    metafunc.parametrize("make", ways, indirect=True, ids=map(str, [*own, *lent]))


class Nodes(valkey.ValkeyCluster):
    """A cluster's client that asks one node for what names no key or, as an index's, no key of its own."""

    def execute_command(self, *args, **kwargs):
        """The reply; through the same node each time, which sees its own changes at once."""
        if str(args[0]).upper().startswith("FT."):
            kwargs.setdefault("target_nodes", self.get_primaries()[0])
        return super().execute_command(*args, **kwargs)


@pytest.fixture(scope="session")
def raw(url, clustered):
    """A client that is not ours, for looking and for meddling; answers bytes."""
    with (Nodes if clustered else valkey.Valkey).from_url(url) as client:
        yield client


@pytest.fixture
def proxy(url, clustered):
    """What stands between shell and server, and can delay, cut or change what passes."""
    if clustered:
        pytest.skip("VALKEY_URL's server is a cluster: a proxy stands before one server")
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
def name(raw):
    """A name that no other test has; every index and key that starts with it is removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(name.encode()):
            raw.execute_command("FT.DROPINDEX", index)
    with raw.pipeline(transaction=False) as pipeline:  # a key each: in a cluster two may be in different slots
        for key in raw.scan_iter(f"{name}*", count=1000):
            pipeline.unlink(key)
        pipeline.execute()


@pytest.fixture
async def make(request, url, clustered):
    """Makes shells of the declared kind, ``make(schema, **arguments of connect)``, and closes them.

    client: one to borrow. Where ``make.way`` is a borrowed client, ``to``, ``timeout_s`` and ``cluster``, which are
    arguments of ``connect`` alone, skip the test. ``to`` another server is to one that is no cluster.
    """
    made, clients = [], []
    way = request.param
    kind = Retriever if way.blocking else AsyncRetriever

    def make(schema, *, client=None, **kwargs):
        if client is None and way.library is None:
            to = kwargs.pop("to", url)
            retriever = kind.connect(to, schema, **{"cluster": clustered and to == url, **kwargs})
        else:
            if kwargs.keys() & {"to", "timeout_s", "cluster"}:
                pytest.skip("about connect(): its URL, its timeout or its cluster")
            if client is None:
                client = way.client(url, cluster=clustered)
                clients.append(client)
            retriever = kind(client, schema, **kwargs)
        made.append(Shell(retriever))
        return made[-1]

    make.way, make.blocking = way, way.blocking
    yield make
    for shell in made:
        await shell.close()
    for client in clients:
        await closed(client)


@pytest.fixture
async def lend(make, url, clustered):
    """Makes clients of the kind that ``make.way`` borrows, ``lend(url, **options of from_url)``, and closes them."""
    clients, ours = [], url

    def lend(url, **options):
        _not_of_a_cluster(url, ours, clustered)
        clients.append(make.way.client(url, **options))
        return clients[-1]

    yield lend
    for client in clients:
        await closed(client)


@pytest.fixture
async def borrow(make, url, clustered):
    """Makes valkey-py's clients of the flavour that ``make`` takes, ``borrow(url, **arguments)``, and closes them."""
    borrowed, ours = [], url

    def borrow(url, kind=None, **kwargs):
        _not_of_a_cluster(url, ours, clustered)
        kind = kind or (valkey.Valkey if make.blocking else valkey.asyncio.Valkey)
        borrowed.append(kind.from_url(url, **kwargs))
        return borrowed[-1]

    yield borrow
    for client in borrowed:
        await closed(client)


def _not_of_a_cluster(url, ours, clustered):
    if clustered and url == ours:
        pytest.skip("VALKEY_URL's server is a cluster: about a client of one server")


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


@pytest.fixture(params=["sync", "async"])
async def remember(request, url, raw, name, tmp_path, clustered):
    """Opens stores of memory of the declared kind, ``await remember(**arguments of open)``, and closes them.

    Unless said otherwise: the namespace is the test's own name, the archive its own file, the index exact, the
    embedder one that knows no meaning. A namespace that a test gives starts with its name.
    """
    kind = MemoryStore if request.param == "sync" else AsyncMemoryStore
    opened = []

    async def remember(to=url, **given):
        usual = {
            "namespace": name,
            "embed": Embedder(),
            "archive": remember.archive,
            "cluster": clustered and to == url,
        }
        store = kind.open(to, **{**usual, "vector": Vector(algorithm="FLAT"), **given})
        opened.append(Shell(store if kind is MemoryStore else await store))
        return opened[-1]

    remember.blocking, remember.archive = kind is MemoryStore, tmp_path / "archive.jsonl"
    yield remember
    for shell in opened:
        await shell.close()
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(f"{{memory.{name}".encode()):
            raw.execute_command("FT.DROPINDEX", index)
    for key in raw.scan_iter(f"{{memory.{name}*", count=1000):
        raw.unlink(key)
