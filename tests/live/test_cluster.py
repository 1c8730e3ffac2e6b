"""A cluster of three nodes: every key is reached where it lives, and all keys are walked.

RediSearch answers from one shard of a cluster and is refused, and no other search module can be had here. So these
nodes have none, and where an operation would look for the index first, the tests say that this was done
(``created``): what they look at are the plain commands.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import time

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from retriever import AsyncRetriever, InvalidInput, NotSupported, Numeric, Retriever, Schema, Tag, Vector
from retriever.engines import VALKEY_SEARCH_1_2
from retriever.errors import is_refusal
from retriever.links import AsyncClusterLink, ClusterLink
from retriever.plans import Command
from retriever.replies import integer, scan_page, server
from tests.clients import Shell
from tests.cluster import Cluster, move_slot
from tests.fakes import DIMS, document

pytestmark = pytest.mark.live

BUSY = "local n = 0 for i = 1, 3e7 do n = n + i end return 'late'"  # some tenths of a second
LOST = (valkey.exceptions.ConnectionError, valkey.exceptions.ValkeyClusterException)


def running(*, search=False):
    try:
        cluster = Cluster(search=search)
    except NotSupported as error:
        pytest.skip(str(error))
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster():
    """One cluster for all tests that leave it as it was."""
    yield from running()


@pytest.fixture(scope="module")
def redisearch():
    """A cluster with RediSearch on each node."""
    yield from running(search=True)


@pytest.fixture
def fragile():
    """A cluster whose nodes may be killed."""
    yield from running()


CLIENTS = {
    ("sync", "own"): None,
    ("async", "own"): None,
    ("sync", "valkey"): valkey.ValkeyCluster,
    ("async", "valkey"): valkey.asyncio.ValkeyCluster,
    ("sync", "redis"): redis.RedisCluster,
    ("async", "redis"): redis.asyncio.RedisCluster,
}


OURS = [("sync", "own"), ("async", "own")]  # a client of redis-py tries for 10 seconds before it gives up


@pytest.fixture(params=CLIENTS, ids="-".join)
async def clustered(request):
    """Makes shells on a cluster, over connections of their own or a borrowed client; each is closed.

    created: writes do not compare the index first.
    """
    how, whose = request.param
    made, clients = [], []

    def clustered(cluster, schema, *, created=False, **kwargs):
        kind = Retriever if how == "sync" else AsyncRetriever
        if whose == "own":
            retriever = kind.connect(cluster.url, schema, cluster=True, **kwargs)
        else:
            clients.append(CLIENTS[how, whose].from_url(cluster.url.replace("valkey:", f"{whose}:")))
            retriever = kind(clients[-1], schema, **kwargs)
        if created:  # as far as the retriever knows
            retriever._live.engine, retriever._live.checked = VALKEY_SEARCH_1_2, True
        made.append(Shell(retriever))
        return made[-1]

    clustered.blocking = how == "sync"
    clustered.own = whose == "own"
    yield clustered
    for shell in made:
        await shell.close()
    for client in clients:
        closed = client.close() if clustered.blocking else client.aclose()
        if inspect.isawaitable(closed):
            await closed


def schema(name):
    return Schema(name, [Tag("category"), Numeric("year")], vector=Vector(dims=DIMS, algorithm="FLAT"))


def corpus(count=120):
    return [document(f"d{at}", f"text {at}", category=f"c{at % 3}", year=at) for at in range(count)]


async def test_redisearch_without_a_coordinator_is_refused(redisearch, clustered):
    """One shard would answer for all of them, so no index is made and none is written to (case B79)."""
    shell = clustered(redisearch, schema("refused"))
    calls = [shell.create_index(), shell.upsert(corpus(1)), shell.delete(filter={"category": "c1"})]
    calls += [shell.query(vector=[1, 0, 0, 0]), shell.retrieve(vector=[1, 0, 0, 0]), shell.count()]
    for call in calls:
        with pytest.raises(NotSupported, match="RediSearch 2.10.5 in cluster mode answers from one shard only"):
            await call
    assert await shell.get(["d0", "refused"]) == [None, None]
    for at in range(3):
        with redisearch.node(at) as node:
            assert not list(node.scan_iter("refused*"))


async def test_documents_live_on_every_shard(cluster, clustered, request):
    """Writing, reading by id, walking, changing and deleting reach each key on its own node."""
    name = f"docs-{request.node.callspec.id}"
    shell = clustered(cluster, schema(name), created=True)
    confirmed = []
    report = await shell.upsert(corpus(), batch_size=50, on_batch=confirmed.extend)
    assert (report.written, report.failed) == (120, ())
    assert confirmed == [each.id for each in corpus()]
    for at in range(3):
        with cluster.node(at) as node:
            assert len(list(node.scan_iter(f"{name}:*"))) > 20
    got = await shell.get([each.id for each in corpus()])
    assert [(each.id, each.text, each.fields) for each in got] == [
        (each.id, each.text, each.fields) for each in corpus()
    ]
    assert await shell.exists(["d1", "nobody", "d119"]) == [True, False, True]
    assert await shell.update("d7", {"category": "changed"})
    assert not await shell.update("nobody", {"category": "changed"})
    walked = [each.id for each in await shell.scan(batch_size=7)]
    assert sorted(walked) == sorted(each.id for each in corpus())
    assert {each.id for each in await shell.scan({"category": "changed"})} == {"d7"}
    assert await shell.delete(["d0", "d1", "d2", "nobody"]) == 3
    assert await shell.delete(filter={"category": "c1"}) == 38  # 40, without d1 and the changed d7
    assert len(await shell.scan()) == 79
    assert await shell.delete(filter={}, everything=True) == 79
    assert await shell.scan() == []


async def test_a_slot_that_moves(cluster, clustered, request):
    """A client that learned the nodes before a slot moved still reads, writes and walks everything in it."""
    name = f"moves-{request.node.callspec.id}"
    shell = clustered(cluster, schema(name), created=True)
    await shell.upsert(corpus())
    key = f"{name}:d5"
    with cluster.node(0) as node:
        slot = node.execute_command("CLUSTER", "KEYSLOT", key)
    home = next(at for at in range(3) if _holds(cluster, at, key))
    away = (home + 1) % 3
    move_slot(cluster, slot, home, away)
    try:
        assert _holds(cluster, away, key)
        assert (await shell.get("d5")).fields == {"category": "c2", "year": 5}
        assert (await shell.upsert(corpus())).written == 120
        assert await shell.update("d5", {"year": 6})
        walked = await shell.scan()
        assert sorted(each.id for each in walked) == sorted(each.id for each in corpus())
        assert next(each for each in walked if each.id == "d5").fields["year"] == 6
        assert await shell.delete("d5") == 1
    finally:
        move_slot(cluster, slot, away, home)
    assert await shell.delete(filter={}, everything=True) == 119


def _holds(cluster, at, key):
    with cluster.node(at) as node:
        return key.encode() in node.scan_iter(key)


def test_a_client_that_forgot_a_primary_walks_it_too(cluster):
    """valkey-py takes a primary for a replica when it is told twice of one move; a walk asks the cluster itself."""
    with valkey.ValkeyCluster.from_url(cluster.url) as client:
        retriever = Retriever(client, schema("forgotten"))
        retriever._live.engine, retriever._live.checked = VALKEY_SEARCH_1_2, True
        retriever.upsert(corpus())
        client.get_primaries()[1].server_type = "replica"
        assert len(client.get_primaries()) == 2
        assert len(list(retriever.scan())) == 120
        assert retriever.delete(filter={}, everything=True) == 120


async def _sent(clustered, link, commands):
    return link.send(commands) if clustered.blocking else await link.send(commands)


async def test_a_batch_for_many_nodes_is_answered_in_order(cluster, clustered):
    """Commands with a key, for one node and for any stand in one batch; each has its own answer or refusal."""
    link = clustered(cluster, schema("batch")).retriever._driver.link
    nodes = link.primaries() if clustered.blocking else await link.primaries()
    assert len(nodes) == 3
    commands = [Command(("HELLO",), server)]
    commands += [Command(("HSET", f"batch:{at}", "n", at), integer, f"batch:{at}") for at in range(50)]
    commands += [Command(("SCAN", 0, "MATCH", "batch:*", "COUNT", 1000), scan_page, node) for node in nodes]
    commands += [Command(("HGET", f"batch:{at}", "n"), bytes, f"batch:{at}") for at in range(50)]
    commands += [Command(("GET", "batch:1"), bytes, "batch:1"), Command(("FT.NONSENSE",), bytes)]
    await _sent(clustered, link, commands[1:51])
    replies = await _sent(clustered, link, commands)
    assert server(replies[0]).cluster
    walked = [scan_page(reply)[1] for reply in replies[51:54]]
    assert all(walked)
    assert sorted(key for keys in walked for key in keys) == sorted(f"batch:{at}".encode() for at in range(50))
    assert replies[54:104] == [str(at).encode() for at in range(50)]
    assert is_refusal(replies[104])
    assert "WRONGTYPE" in str(replies[104])
    assert is_refusal(replies[105])
    await _sent(clustered, link, [Command(("DEL", f"batch:{at}"), integer, f"batch:{at}") for at in range(50)])


# --- nodes that are lost --------------------------------------------------------------------------


@pytest.mark.parametrize("clustered", OURS, indirect=True, ids="-".join)
async def test_a_read_goes_to_another_primary_once(fragile, clustered):
    """What may be repeated and names no key is answered by a node that lives; what may not is an error."""
    link = clustered(fragile, schema("lost")).retriever._driver.link
    await _sent(clustered, link, [Command(("HELLO",), server)])
    fragile.kill(1)
    for _ in range(6):  # each node has its turn, so the lost one is asked too
        assert server((await _sent(clustered, link, [Command(("HELLO",), server)]))[0]).cluster
        replies = await _sent(clustered, link, [Command(("HELLO",), server), Command(("TIME",), list)])
        assert server(replies[0]).cluster


@pytest.mark.parametrize("clustered", OURS, indirect=True, ids="-".join)
async def test_a_write_to_a_lost_node_is_not_sent_to_another(fragile, clustered):
    """What may not be repeated is an error of its connection when its node is gone, and the text is not in it."""
    link = clustered(fragile, schema("lost")).retriever._driver.link
    await _sent(clustered, link, [Command(("HELLO",), server)])
    once = Command(("ECHO", "private words"), bytes, repeatable=False)
    fragile.kill(1)
    errors = []
    for count in (1, 2, 1, 2, 1, 2):
        try:
            await _sent(clustered, link, [once] * count)
        except Exception as error:
            errors.append(error)
    assert errors
    for error in errors:
        assert {base.__name__ for base in type(error).__mro__} & {"ConnectionError", "RedisClusterException"}
        assert "private words" not in f"{error} {error.__cause__} {error.__context__}"


@pytest.mark.parametrize("clustered", OURS, indirect=True, ids="-".join)
async def test_one_shard_down(fragile, clustered):
    """Its keys are an error that says so, a walk is an error and never a part of the truth, and it heals by itself."""
    shell = clustered(fragile, schema("down"), created=True)
    await shell.upsert(corpus(30))
    fragile.kill(2)
    fragile.wait_until("fail")
    for call in (shell.get([f"d{at}" for at in range(30)]), shell.upsert(corpus(30)), shell.scan()):
        with pytest.raises(Exception, match=r"CLUSTERDOWN|[Cc]luster|[Cc]onnect|refused|closed") as raised:
            await call
        assert "text 1" not in str(raised.value)
    fragile.start(2)
    fragile.wait_until("ok")
    assert await shell.exists("d1") in (True, False)
    assert (await shell.get(["nobody"])) == [None]
    walked = {each.id for each in await shell.scan()}
    assert walked < {each.id for each in corpus(30)}  # what the node held is gone: it keeps nothing on disk
    assert walked


# --- connections of our own -----------------------------------------------------------------------


def test_making_one_does_no_io():
    """A server that is not there is found out by the first call."""
    for kind in (Retriever, AsyncRetriever):
        kind.connect("valkey://127.0.0.1:1", schema("nobody"), cluster=True)
    with pytest.raises(LOST):
        Retriever.connect("valkey://127.0.0.1:1", schema("nobody"), cluster=True).get("x")


def test_close_leaves_no_connection_and_using_it_again_opens_new_ones(cluster):
    """Closing ends every connection to every node; what comes after opens others."""
    before = _connections(cluster)
    with Retriever.connect(cluster.url, schema("closing"), cluster=True) as retriever:
        assert retriever.get("x") is None
        assert list(retriever.scan()) == []
        assert _connections(cluster) > before
        retriever.close()
        assert retriever.get("x") is None
    assert _connections(cluster) <= before  # those of the test before may have been on their way out


async def test_close_of_an_async_retriever_leaves_no_connection(cluster):
    """The same for the async one."""
    before = _connections(cluster)
    async with AsyncRetriever.connect(cluster.url, schema("closing"), cluster=True) as retriever:
        assert await retriever.get("x") is None
        await retriever.close()
        assert await retriever.get(["x", "y"]) == [None, None]
    assert _connections(cluster) <= before  # those of the test before may have been on their way out


def _connections(cluster):
    """Connections of clients to all nodes, once they have stopped changing."""
    seen = []
    while len(seen) < 5 or (len(seen) < 50 and len(set(seen[-5:])) != 1):
        total = 0
        for at in range(3):
            with cluster.node(at) as node:
                total += len([each for each in node.client_list() if each["flags"] == "N"])
        seen.append(total)
        time.sleep(0.02)
    return seen[-1]


def test_another_loop_is_told(cluster):
    """An async retriever belongs to the loop that first used it, until it is closed."""
    retriever = AsyncRetriever.connect(cluster.url, schema("loops"), cluster=True)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(retriever.get("x")) is None
        for call in (lambda: retriever.get("x"), lambda: retriever.delete(filter={}, everything=True)):
            with pytest.raises(InvalidInput, match="belongs to another event loop"):
                second.run(call())
        first.run(retriever.close())
        assert second.run(retriever.get("x")) is None
        second.run(retriever.close())


def test_an_interrupted_batch_leaves_no_reply_behind(cluster):
    """Whoever asks after a Ctrl-C in the middle of a batch gets its own reply, from every node."""
    link = ClusterLink(make=lambda: valkey.ValkeyCluster.from_url(cluster.url))
    keys = [f"interrupt:{at}" for at in range(30)]
    link.send([Command(("SET", key, key), bytes, key) for key in keys])

    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                link.send([Command(("EVAL", BUSY, 1, key), bytes, key) for key in keys[:3]])
            for key in keys:
                assert link.send([Command(("GET", key), bytes, key)]) == [key.encode()]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        link.send([Command(("DEL", key), integer, key) for key in keys])
        link.close()


async def test_a_cancelled_batch_leaves_no_reply_behind(cluster):
    """The same for a task that is cancelled while it waits for several nodes."""
    link = AsyncClusterLink(make=lambda: valkey.asyncio.ValkeyCluster.from_url(cluster.url))
    keys = [f"cancel:{at}" for at in range(30)]
    await link.send([Command(("SET", key, key), bytes, key) for key in keys])
    for count in (1, 3):
        task = asyncio.create_task(link.send([Command(("EVAL", BUSY, 1, key), bytes, key) for key in keys[:count]]))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for key in keys:
            assert await link.send([Command(("GET", key), bytes, key)]) == [key.encode()]
    await link.send([Command(("DEL", key), integer, key) for key in keys])
    await link.close()


def test_a_server_that_is_no_cluster_is_told(url):
    """cluster=True for a lone server is the client's own error, which says what is missing."""
    if url.startswith("unix:"):
        with pytest.raises(InvalidInput, match="a cluster is reached over TCP"):
            Retriever.connect(url, schema("lone"), cluster=True)
        return
    with pytest.raises(LOST):
        Retriever.connect(url, schema("lone"), cluster=True).get("x")


@pytest.mark.parametrize(
    ("url", "said"),
    [("valkey://h:1/2", "a cluster has one database, 0"), ("unix:///tmp/x", "a cluster is reached over TCP")],
)
@pytest.mark.parametrize("kind", [Retriever, AsyncRetriever])
def test_a_url_that_no_cluster_has(kind, url, said):
    """A cluster has no other database and no Unix socket."""
    with pytest.raises(InvalidInput, match=said):
        kind.connect(url, schema("x"), cluster=True)
