"""Clients of either library, blocking or awaited, by RESP2 or RESP3, decoding or not: nobody sees a difference.

Every test that uses ``make`` here runs over all sixteen, and over connections of the retriever's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time

import numpy as np
import pytest
import redis.asyncio
import redis.asyncio.sentinel
import redis.backoff
import redis.cache
import redis.connection
import redis.sentinel
import valkey.asyncio
import valkey.asyncio.sentinel
import valkey.sentinel

from retriever import (
    AsyncRetriever,
    Document,
    IndexMissing,
    InvalidInput,
    NotSupported,
    PermissionDenied,
    Retriever,
    Schema,
    ServerError,
    Tag,
    UpsertReport,
    Vector,
    interruption,
)
from retriever.embedded import EmbeddedServer, _find_server
from retriever.plans import Command
from tests.clients import KINDS, Shell, closed, lent
from tests.fakes import DIMS, Embedder, document

pytestmark = pytest.mark.live

# What a parser, a decoder or the query language might take for something else.
AWKWARD = ["a b", " ", "", "C++", "x,y", "é\u0301", "日本", 'a"b\\', "a\x00b", "{a|b}", "*", "@tags:{x}", "\r\n", "+OK"]
# Bytes that end a line, are no UTF-8 or look like a reply.
BINARY = np.frombuffer(b"\r\n$1\xff\xfe\x00\x01+OK\r\n\x80\x00\x01", "<f4")


def newest(text, hits):
    return sorted(hits, key=lambda hit: -hit.fields["year"])


# --- the whole of it ------------------------------------------------------------------------------


async def test_a_whole_life(make, schema, raw):
    """Made, filled, asked, changed, emptied and dropped: the answers are the same whoever carries the commands."""
    shell = make(schema, embed=Embedder())
    with pytest.raises(IndexMissing, match="create_index"):
        await shell.query(vector=[1, 0, 0, 0])
    with pytest.raises(IndexMissing):
        await shell.describe_index()
    assert await shell.create_index() is True
    assert await shell.create_index() is False

    full = {"category": "a \x00 b", "tags": ["x", ""], "year": 0.25, "title": "T", "extra": {"ü": [1, None]}}
    odd = [document(f"odd{at}", "", (0, 0, 1, at), category=value, year=at) for at, value in enumerate(AWKWARD)]
    report = await shell.upsert(
        [Document("full", "téxt", full), document("sparse", vector=(0, 1, 0, 0)), document("brief", ttl_s=99), *odd],
        batch_size=5,
    )
    assert report == UpsertReport(3 + len(AWKWARD))
    assert 90_000 < raw.pttl(f"{schema.prefix}brief") <= 99_000

    assert await shell.get("full") == Document("full", "téxt", full)
    first, missing, brief = await shell.get(["sparse", "no such", "brief"], return_vectors=True)
    assert (first.fields, list(first.vector), missing, brief.id) == ({}, [0, 1, 0, 0], None, "brief")
    assert await shell.exists("full") is True
    assert await shell.exists(["no such", "sparse"]) == [False, True]

    (hit,) = await shell.query(text="téxt", filter={"category": "a \x00 b"}, return_vectors=True)
    assert (hit.id, hit.text, hit.fields) == ("full", "téxt", full)
    assert abs(hit.score) < 1e-6
    assert np.array_equal(hit.vector, Embedder().vector("téxt"))
    for at, value in enumerate(AWKWARD):
        assert await shell.ids({"category": value}) == [f"odd{at}"], value
    assert await shell.ids(Tag("tags") == "") == ["full"]
    near = await shell.query(vector=[0, 1, 0, 0], max_distance=0.001)
    assert ([hit.id for hit in near], near.complete, near.reasons) == (["sparse"], True, ())
    ranked = await shell.query(text="any", k=2, filter={"year": {"gte": 1}}, rerank=newest, candidates=50)
    assert [hit.id for hit in ranked] == [f"odd{len(AWKWARD) - 1}", f"odd{len(AWKWARD) - 2}"]

    many = await shell.query_many([{"vector": [0, 1, 0, 0], "k": 1}, {"text": "téxt", "k": 1}, {"k": 1}])
    assert [many[0][0].id, many[1][0].id, type(many[2])] == ["sparse", "full", InvalidInput]

    assert await shell.update("sparse", {"category": "new", "year": 7}) is True
    assert await shell.update("no such", {"year": 7}) is False
    assert (await shell.get("sparse")).fields == {"category": "new", "year": 7}
    assert await shell.count() == 3 + len(AWKWARD)
    assert await shell.count({"category": "new"}) == 1
    scanned = {each.id: each for each in await shell.scan(batch_size=4, return_vectors=True)}
    assert scanned.keys() == {"full", "sparse", "brief", *(each.id for each in odd)}
    assert scanned["full"] == Document("full", "téxt", full)
    assert np.array_equal(scanned["full"].vector, Embedder().vector("téxt"))

    assert await shell.wait_until_indexed() is True
    report = await shell.describe_index()
    assert (report.documents, report.dims, report.metric, report.failures) == (len(scanned), DIMS, "COSINE", 0)
    raw.hset(f"{schema.prefix}bad", "year", "x")
    report = await shell.describe_index()
    assert (report.failures, report.last_error_key) == (1, f"{schema.prefix}bad")
    raw.unlink(f"{schema.prefix}bad")

    assert await shell.delete(["brief", "no such"]) == 1
    assert await shell.delete(filter={"year": {"lt": 2}, "category": {"any": AWKWARD}}) == 2
    assert await shell.count() == len(AWKWARD)
    assert await shell.drop_index(delete_documents=True) == len(AWKWARD)
    with pytest.raises(IndexMissing):
        await shell.count()


async def test_vectors_are_bytes_all_the_way(make, name):
    """A vector whose bytes end lines or are no text comes back bit by bit, from get, query and scan."""
    shell = make(Schema(name, [Tag("t")], Vector(dims=len(BINARY), algorithm="FLAT", metric="L2")))
    await shell.create_index()
    assert np.isfinite(BINARY).all()
    await shell.upsert([Document("b", "", {"t": "x"}, BINARY)])
    (hit,) = await shell.query(vector=BINARY, return_vectors=True)
    (document,) = await shell.scan(return_vectors=True)
    for vector in (hit.vector, document.vector, (await shell.get("b", return_vectors=True)).vector):
        assert vector.tobytes() == BINARY.tobytes()


# --- refusals and lost connections ----------------------------------------------------------------


async def test_what_the_server_refuses_has_our_class(make, schema, raw):
    """A refused document is in the report, a refused query is an error of its class, alone and in a pipeline."""
    shell = make(schema)
    await shell.create_index()
    raw.set(f"{schema.prefix}taken", "not a hash")
    report = await shell.upsert([document("a", year=1), document("taken"), document("b", year=1)])
    assert (report.written, [each.id for each in report.failed]) == (2, ["taken"])
    assert "WRONGTYPE" in report.failed[0].reason
    assert sorted(await shell.ids({"year": 1})) == ["a", "b"]
    raw.execute_command("FT.DROPINDEX", schema.name)
    raw.unlink(schema.name)
    await make(Schema(schema.name, vector=Vector(dims=2 * DIMS))).create_index()
    with pytest.raises(ServerError, match=r"FT\.SEARCH"):
        await shell.query(vector=[1, 0, 0, 0])
    for each in await shell.query_many([{"vector": [1, 0, 0, 0]}] * 2):
        assert type(each) is ServerError
    raw.execute_command("FT.DROPINDEX", schema.name)
    assert [type(each) for each in await shell.query_many([{"vector": [1, 0, 0, 0]}] * 2)] == [IndexMissing] * 2


@pytest.mark.one_server("connects to one server")
async def test_what_a_user_may_not_do(make, lend, docs, schema, raw, url, name):
    """A user of FT.SEARCH alone gets answers, and PermissionDenied for the rest."""
    await docs.upsert([document("d", year=1)])
    raw.execute_command("ACL", "SETUSER", name, "on", ">pw", "~*", "-@all", "+ft.search")
    try:
        shell = make(schema, client=lend(url, username=name, password="pw"))
        assert await shell.ids({"year": 1}) == ["d"]
        calls = (shell.get("d"), shell.exists(["d", "e"]), shell.upsert([document("e")]), shell.describe_index())
        for call in calls:
            with pytest.raises(PermissionDenied):
                await call
    finally:
        raw.execute_command("ACL", "DELUSER", name)


async def test_a_lost_connection_carries_the_interruption(make, lend, docs, schema, proxy):
    """The library's own ConnectionError stops an upsert, with what was confirmed and what was under way."""
    shell = make(schema, client=lend(proxy.url))
    confirmed = []

    def on_batch(ids):
        confirmed.extend(ids)
        if len(confirmed) == 4:
            proxy.refuse = True
            proxy.cut_after(10)

    with pytest.raises(make.way.exceptions.ConnectionError) as raised:
        await shell.upsert([document(f"d{at}") for at in range(10)], batch_size=2, on_batch=on_batch)
    told = interruption(raised.value)
    assert (told.report, told.in_flight) == (UpsertReport(4), ("d4", "d5"))
    with pytest.raises(make.way.exceptions.ConnectionError):
        await shell.get("d0")
    proxy.refuse = False
    assert (await shell.upsert([document(f"d{at}") for at in range(10)])).written == 10
    assert await docs.count() == 10


def retries(way, count):
    """What makes a client of this kind try again, at once."""
    library = redis if way.library == "redis" else valkey
    kind = library.retry.Retry if way.blocking else library.asyncio.retry.Retry
    return kind(library.backoff.NoBackoff(), count)


@pytest.mark.parametrize("made", ["from a URL", "told to retry", "by its class"])
async def test_a_clients_own_retries_reach_the_server_again(make, lend, proxy, name, raw, made):
    """What a client of yours repeats, it repeats whatever the command: one that counts may count twice.

    The reply is lost after the server has counted. redis-py repeats ten times, but not if it is made from a URL.
    """
    lost = make.way.exceptions.ConnectionError
    options = {}
    if made == "told to retry":
        options = {"retry": retries(make.way, 3), "retry_on_error": [lost]}
    elif made == "by its class":
        defaults = make.way.kind().connection_pool.connection_kwargs
        options = {each: defaults[each] for each in ("retry", "retry_on_error")}
    repeats = made == "told to retry" or (made == "by its class" and make.way.library == "redis")
    link = make(Schema(name), client=lend(proxy.url, **options)).retriever._driver.link
    count = Command(("INCR", name), int, name, repeatable=False)

    async def send():
        return await asyncio.to_thread(link.send, [count]) if make.blocking else await link.send([count])

    assert await send() == [1]
    proxy.flowing.clear()  # the reply waits in the proxy, and goes with the connection
    task = asyncio.create_task(send())
    for _ in range(500):
        if raw.get(name) == b"2":
            break
        await asyncio.sleep(0.01)
    proxy.cut()
    proxy.flowing.set()
    if repeats:
        assert await task == [3]
    else:
        with pytest.raises(lost):
            await task
    assert raw.get(name) == (b"3" if repeats else b"2")


# --- kinds of clients -----------------------------------------------------------------------------


class Counts:
    """A user's subclass that looks at commands."""

    def execute_command(self, *args, **options):
        self.__dict__.setdefault("seen", []).append(args[0])
        return super().execute_command(*args, **options)


class CountsRedis(Counts, redis.Redis):
    pass


class CountsValkey(Counts, valkey.Valkey):
    pass


class CountsAsyncRedis(redis.asyncio.Redis):
    async def execute_command(self, *args, **options):
        return await super().execute_command(*args, **options)


class CountsAsyncValkey(valkey.asyncio.Valkey):
    async def execute_command(self, *args, **options):
        return await super().execute_command(*args, **options)


SUBCLASSES = {
    ("redis", True): CountsRedis,
    ("valkey", True): CountsValkey,
    ("redis", False): CountsAsyncRedis,
    ("valkey", False): CountsAsyncValkey,
}


def as_is(kind, url):
    return lent(kind, url)


def single(kind, url):
    return lent(kind, url, single_connection_client=True)


def pooled(kind, url):
    module = redis if issubclass(kind, (redis.Redis, redis.asyncio.Redis)) else valkey
    module = module.asyncio if kind.__module__.split(".")[1] == "asyncio" else module
    pool = module.BlockingConnectionPool.from_url(url.replace("valkey://", "redis://"), max_connections=2, timeout=5)
    return kind(connection_pool=pool)


def retrying(kind, url):
    library = redis if issubclass(kind, (redis.Redis, redis.asyncio.Redis)) else valkey
    module = library.asyncio if kind.__module__.split(".")[1] == "asyncio" else library
    return lent(kind, url, retry=module.retry.Retry(library.backoff.ExponentialBackoff(), 3), retry_on_timeout=True)


def checked(kind, url):
    return lent(kind, url, health_check_interval=1, protocol=3)


def subclassed(kind, url):
    return lent(SUBCLASSES[next(at for at, each in KINDS.items() if each is kind)], url)


@pytest.mark.parametrize("made", [as_is, single, pooled, retrying, checked, subclassed], ids=lambda made: made.__name__)
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
@pytest.mark.one_server("connects to one server")
async def test_a_client_as_users_make_it(url, name, kind, made):
    """Pools that wait, a single connection, retries, subclasses and no option at all: many calls at once."""
    client = made(kind, url)
    schema = Schema(name, [Tag("t")], Vector(dims=2, algorithm="FLAT"))
    blocking = kind in (valkey.Valkey, redis.Redis)
    shell = Shell((Retriever if blocking else AsyncRetriever)(client, schema))
    try:
        assert await shell.create_index() is True
        written = [Document(f"d{at}", f"é{at}", {"t": f"{at % 2}"}, [1, at]) for at in range(20)]
        assert (await shell.upsert(written)).written == 20
        assert await shell.get(["d1", "d2"]) == written[1:3]
        calls = [lambda at=at: shell.retriever.query(vector=[1, at], k=1) for at in range(20)]
        if made is single:  # valkey-py guards it by no lock
            answers = [await call() if not blocking else call() for call in calls]
        elif blocking:
            answers = await asyncio.gather(*(asyncio.to_thread(call) for call in calls))
        else:
            answers = await asyncio.gather(*(call() for call in calls))
        assert [hits[0].id for hits in answers] == [each.id for each in written]
        assert len(await shell.scan({"t": "1"})) == 10
        assert await shell.drop_index(delete_documents=True) == 20
        if isinstance(client, Counts):
            assert {"FT.CREATE", "FT.SEARCH", "FT.INFO"} <= set(client.seen)
    finally:
        await closed(client)


@pytest.mark.parametrize("decodes", [False, True], ids=["bytes", "decoding"])
@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
@pytest.mark.one_server("connects to one server")
async def test_messages_that_come_unasked(url, raw, schema, blocking, decodes):
    """What the server pushes between replies by RESP3 (here: keys that changed) is no reply to anybody.

    Of redis-py: valkey-py 6.2 with libvalkey takes a push for a reply in its own methods, too.
    """
    client = lent(KINDS["redis", blocking], url, protocol=3, decode_responses=decodes, single_connection_client=True)
    try:
        tracking = client.execute_command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", schema.prefix)
        if not blocking:
            await tracking
        shell = Shell((Retriever if blocking else AsyncRetriever)(client, schema))
        await shell.create_index()
        for at in range(20):
            Retriever(raw, schema).upsert([document(f"d{at}", year=at)])
            assert await shell.exists([f"d{at}", "x"]) == [True, False]
            raw.hset(f"{schema.prefix}d{at}", "year", -at)
            assert (await shell.get(f"d{at}")).fields == {"year": -at}
            raw.hset(f"{schema.prefix}d{at}", "year", at)
            assert await shell.count({"year": at}) == 1
    finally:
        await closed(client)


# --- sentinel -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentinel(tmp_path_factory):
    """The address of a sentinel that watches a server of its own by the name ``mine``."""
    server = EmbeddedServer(port=0)
    try:
        watched = server.start().rpartition(":")[2]
    except NotSupported as error:
        pytest.skip(str(error))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    config = tmp_path_factory.mktemp("sentinel") / "sentinel.conf"
    monitor = f"sentinel monitor mine 127.0.0.1 {watched} 1"
    config.write_text(f"bind {address[0]}\nport {address[1]}\ndir {config.parent}\n{monitor}\n")
    command = [_find_server()[0], str(config), "--sentinel"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        try:
            for _ in range(500):
                with contextlib.suppress(OSError), socket.create_connection(address, 1):
                    break
                time.sleep(0.01)
            yield address
        finally:
            process.terminate()
    server.stop()


SENTINELS = {
    ("valkey", True): valkey.sentinel.Sentinel,
    ("valkey", False): valkey.asyncio.sentinel.Sentinel,
    ("redis", True): redis.sentinel.Sentinel,
    ("redis", False): redis.asyncio.sentinel.Sentinel,
}


@pytest.mark.parametrize("at", SENTINELS, ids=lambda at: f"{at[0]}-{'sync' if at[1] else 'async'}")
async def test_a_client_that_asks_a_sentinel(sentinel, name, at):
    """A client of ``master_for`` is a client like any other: it finds the primary, and is lent."""
    kind, blocking = SENTINELS[at], at[1]
    found = kind([sentinel])
    client = found.master_for("mine")
    shell = Shell((Retriever if blocking else AsyncRetriever)(client, Schema(name, vector=Vector(dims=2))))
    try:
        assert await shell.create_index() is True
        await shell.upsert([Document("d", "text", {}, [1, 2])])
        assert [hit.id for hit in await shell.query(vector=[1, 2])] == ["d"]
        assert await shell.exists(["d", "x"]) == [True, False]
        assert await shell.drop_index(delete_documents=True) == 1
    finally:
        await closed(client)
        for each in found.sentinels:
            await closed(each)


async def test_a_client_that_caches_replies(proxy, name, monkeypatch):
    """redis-py's cache is neither asked nor filled: it wants each command's keys, and would keep undecoded replies.

    It caches for Redis 7.4 or newer alone, and is told here that this server is one.
    """
    monkeypatch.setattr(redis.connection.CacheProxyConnection, "MIN_ALLOWED_VERSION", "7.2.0")
    monkeypatch.setattr(redis.connection.CacheProxyConnection, "DEFAULT_SERVER_NAME", "valkey")
    config = redis.cache.CacheConfig()
    client = lent(redis.Redis, proxy.url, protocol=3, decode_responses=True, cache_config=config)
    docs = Retriever(client, Schema(name, [Tag("t")], Vector(dims=2)))
    try:
        docs.create_index()
        docs.upsert([Document("d", "text", {"t": "x"}, [1, 2])])
        for tag in ("x", "y"):
            assert docs.update("d", {"t": tag})
            assert docs.get("d").fields == {"t": tag}
            assert docs.exists("d")
            assert [each.fields for each in docs.scan()] == [{"t": tag}]
            assert [hit.fields for hit in docs.query(vector=[1, 2])] == [{"t": tag}]
        assert client.get_cache().size == 0
        assert client.hget(f"{name}:d", "t") == "y"
        assert docs.drop_index(delete_documents=True) == 1
    finally:
        await closed(client)
