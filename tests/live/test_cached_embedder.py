"""A cache in Valkey: what it asks, what it keeps, and what it makes of entries that are not as it wrote them."""

from __future__ import annotations

import asyncio
import inspect
import threading

import numpy as np
import pytest
import redis.asyncio
import valkey.asyncio

from retriever import (
    AsyncCachedEmbedder,
    CachedEmbedder,
    InvalidInput,
    NotSupported,
    PermissionDenied,
    Schema,
    Vector,
)
from tests.clients import BORROWED, Way, closed, lent
from tests.cluster import Cluster
from tests.fakes import DIMS, Embedder, document
from tests.proxy import Proxy

pytestmark = [pytest.mark.live, pytest.mark.one_server("about caches in one server")]


class Cached:
    """A cache of either kind; everything that asks the server is awaited."""

    def __init__(self, way, embed, client, **options):
        self.cache = (CachedEmbedder if way.blocking else AsyncCachedEmbedder)(embed, client=client, **options)

    def __getattr__(self, name):
        return getattr(self.cache, name)

    async def __call__(self, texts):
        return await self._done(self.cache(texts))

    async def embed_query(self, texts):
        return await self._done(self.cache.embed_query(texts))

    async def clear(self):
        return await self._done(self.cache.clear())

    @staticmethod
    async def _done(result):
        return await result if inspect.isawaitable(result) else result


@pytest.fixture(params=BORROWED, ids=str)
def way(request):
    return request.param


@pytest.fixture
async def cached(way, url, name):
    """Makes caches over a client of the declared kind, ``cached(embed, **options)``; keys start with ``name``."""
    clients = []

    def cached(embed, *, to=url, prefix=f"{name}:", encoding="utf-8", **options):
        clients.append(way.client(to, encoding=encoding))
        return Cached(way, embed, clients[-1], prefix=prefix, **options)

    yield cached
    for client in clients:
        await closed(client)


@pytest.fixture
def keys(raw, name):
    """The keys that the test has made, sorted."""
    return lambda: sorted(raw.scan_iter(f"{name}*", count=1000))


@pytest.fixture
def commands(raw):
    """The commands, without arguments, that ``run`` made other clients send: ``await commands(run)``."""

    async def commands(run, name):
        with raw.monitor() as monitor:
            await run()
            raw.echo(name)
            seen = []
            for each in monitor.listen():
                words = each["command"].split(" ")
                if words == ["ECHO", name]:
                    return seen
                if name in each["command"]:
                    seen.append(words[0])
        return None

    return commands


async def test_another_process_finds_what_one_has_embedded(cached):
    """What one cache has written another reads, bit for bit, and its embedder is asked for the rest alone."""
    one, other = Embedder(name="model"), Embedder(name="model")
    first = await cached(one)(["a", "b", "a"])
    embed = cached(other)
    np.testing.assert_array_equal(await embed(["b", "c", "a", "b"]), Embedder()(["b", "c", "a", "b"]))
    np.testing.assert_array_equal(first, Embedder()(["a", "b", "a"]))
    assert (one.calls, other.calls) == ([["a", "b"]], [["c"]])
    assert (embed.hits, embed.misses) == (3, 1)


async def test_kinds_and_models_are_kept_apart(cached):
    """A query's vector is not a document's, and one model's is not another's."""
    embed, other = cached(Embedder(name="model")), cached(Embedder(name="other"))
    await embed(["a"])
    await embed.embed_query(["a"])
    await other(["a"])
    assert (embed.misses, other.misses) == (2, 1)


async def test_a_key_tells_no_text_and_a_value_is_the_vector(cached, keys, raw, name):
    """A key is the prefix and two hashes, a value the vector's float32 bytes; without ttl_s it stays."""
    await cached(Embedder(name="model"))(["a secret"])
    (key,) = keys()
    assert len(key) == len(name) + 1 + 16 + 1 + 40
    assert b"secret" not in key
    assert raw.get(key) == Embedder().vector("a secret").astype("<f4").tobytes()
    assert raw.ttl(key) == -1


async def test_ttl_is_the_servers(cached, keys, raw):
    """With ttl_s the server drops an entry, counted from its writing, to the millisecond."""
    embed = cached(Embedder(name="model"), ttl_s=100.5)
    await embed(["a"])
    (key,) = keys()
    assert 90_000 < raw.pttl(key) <= 100_500
    raw.pexpire(key, 50_000)
    await embed(["a"])
    assert raw.pttl(key) <= 50_000


async def test_many_texts_are_one_mget_and_one_set_each(cached, commands, name):
    """A call asks once for all texts, and writes what was not there; what was there is not written again."""
    embed = cached(Embedder(name="model"))
    assert await commands(lambda: embed(["a", "b", "a"]), name) == ["MGET", "SET", "SET"]
    assert await commands(lambda: embed(["b", "c", "a"]), name) == ["MGET", "SET"]
    assert await commands(lambda: embed(["c"]), name) == ["MGET"]
    assert await commands(lambda: embed([]), name) == []


@pytest.mark.parametrize("dims", [DIMS, None])
@pytest.mark.parametrize(
    "damage",
    [b"", b"x", b"\0" * (DIMS * 4 - 1), b"\0" * (DIMS * 4 - 4), b"\0" * (DIMS * 4 + 4), b"\xff" * DIMS * 4],
    ids=["empty", "one byte", "a byte short", "a number short", "a number long", "NaN"],
)
async def test_a_damaged_entry_is_embedded_and_written_again(cached, keys, raw, damage, dims):
    """A value that is no vector of the right length is a miss; afterwards it is whole."""
    embed = cached(Embedder(name="model", **({"dims": dims} if dims else {})))
    await embed(["a", "b"])
    whole = {key: raw.get(key) for key in keys()}
    raw.set(keys()[0], damage)
    np.testing.assert_array_equal(await embed(["a", "b"]), Embedder()(["a", "b"]))
    assert {key: raw.get(key) for key in keys()} == whole
    assert (embed.hits, embed.misses) == (1, 3)


async def test_a_key_of_another_type_is_written_over(cached, keys, raw):
    """What is no string cannot be one of our vectors, and stands in the way of one."""
    embed = cached(Embedder(name="model"))
    await embed(["a"])
    (key,) = keys()
    raw.delete(key)
    raw.sadd(key, "member")
    np.testing.assert_array_equal(await embed(["a"]), Embedder()(["a"]))
    assert raw.type(key) == b"string"


async def test_lengths_that_nobody_knows_are_told_by_the_embedder(cached, keys, raw):
    """A cache that knows no dims, and finds vectors of several lengths or only wrong ones, believes the embedder."""
    await cached(Embedder(name="model"))(["a", "b"])
    raw.set(keys()[0], b"\0" * 4)
    embed = cached(Embedder(name="model"))
    np.testing.assert_array_equal(await embed(["a", "b"]), Embedder()(["a", "b"]))
    assert (embed.hits, embed.misses) == (0, 2)
    for key in keys():
        raw.set(key, b"\0" * 4)
    embed = cached(Embedder(name="model"))
    np.testing.assert_array_equal(await embed(["a", "c", "b"]), Embedder()(["a", "c", "b"]))
    assert (embed.hits, embed.misses) == (0, 3)


async def test_clear_takes_this_models_keys_and_no_other(cached, keys, raw, name):
    """clear() removes what this model has under this prefix; the prefix's own * and [ are letters, as any other."""
    prefix = f"{name}[a-c]*?\\^:"
    embed = cached(Embedder(name="model"), prefix=prefix)
    other = cached(Embedder(name="other"), prefix=prefix)
    near = cached(Embedder(name="model"), prefix=f"{name}a*?\\^:")
    await embed(["a", "b", "c"])
    foreign = [keys()[0] + b":of somebody else", f"{prefix}of somebody else".encode()]
    raw.mset(dict.fromkeys(foreign, "value"))
    await other(["a", "b", "c"])
    await near(["a", "b", "c"])
    assert await embed.clear() == 3
    assert await embed.clear() == 0
    assert raw.mget(foreign) == [b"value"] * 2
    for each in (embed, other, near):
        await each(["a", "b", "c"])
    assert [each.misses for each in (embed, other, near)] == [6, 3, 3]


async def test_a_prefix_may_be_of_any_letters(cached, name):
    """Whatever encoding the client has, keys are UTF-8, and are found to be cleared."""
    embed = cached(Embedder(name="model"), prefix=f"{name}:é東:", encoding="ascii")
    await embed(["a"])
    await embed(["a"])
    assert (embed.hits, embed.misses) == (1, 1)
    assert await embed.clear() == 1


async def test_clear_takes_more_than_one_page(cached, keys):
    """Every key goes, also where there are more than one SCAN or one pipeline takes."""
    embed = cached(Embedder(name="model"))
    await embed([str(number) for number in range(2500)])
    assert len(keys()) == 2500
    assert await embed.clear() == 2500
    assert keys() == []


async def test_an_embedder_without_a_name_is_not_cached_in_valkey(cached):
    """Its vectors could not be told from another model's, which is said at construction."""
    with pytest.raises(InvalidInput, match="an Embedder without a name cannot be cached in Valkey"):
        cached(Embedder())


async def test_a_server_that_is_gone_is_an_error(cached, way, url):
    """A lost connection is what the client raises, and neither a miss nor anything of ours."""
    with Proxy(url) as proxy:
        embed = cached(Embedder(name="model"), to=proxy.url)
        await embed([])  # asks nobody
        proxy.refuse = True
        with pytest.raises(way.exceptions.ConnectionError):
            await embed(["a"])
        with pytest.raises(way.exceptions.ConnectionError):
            await embed.clear()
    assert embed.misses == 0


async def test_what_the_server_refuses_has_our_class(way, url, raw, name):
    """A user who may not write is told so, in a message without a key or a vector."""
    user = f"user-{name}"
    raw.execute_command("ACL", "SETUSER", user, "on", ">password", f"~{name}*", "+@read", "+@connection", "-set")
    client = way.client(url, username=user, password="password")
    embed = Cached(way, Embedder(name="model"), client, prefix=f"{name}:")
    try:
        with pytest.raises(PermissionDenied, match="SET: .*permission") as caught:
            await embed(["a", "b"])
        assert len(str(caught.value)) < 200
        assert f"{name}:" not in str(caught.value)
    finally:
        await closed(client)
        raw.execute_command("ACL", "DELUSER", user)


async def test_a_retriever_with_a_cache(make, url, name):
    """A cache is an embedder: it names the index's model, and the same text is asked of the model once."""
    way = make.way if make.way.library else Way(make.blocking, "valkey")
    client, model = way.client(url), Embedder(name="model", dims=DIMS)
    embed = Cached(way, model, client, prefix=f"{name}:cache:").cache
    docs = make(Schema(name, [], vector=Vector(dims=DIMS, algorithm="FLAT")), embed=embed)
    await docs.create_index()
    await docs.upsert([document("1", "a", None), document("2", "b", None)])
    await docs.upsert([document("3", "a", None)])
    for _ in range(2):
        assert sorted([hit.id for hit in await docs.query(text="a", k=2)]) == ["1", "3"]
    assert (await docs.describe_index()).embedder == "model"
    assert model.calls == [["a", "b"], ["a"]]  # the second is the query
    await closed(client)


# --- a cluster --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    try:
        cluster = Cluster(search=False)
    except NotSupported as error:
        pytest.skip(str(error))
    with cluster:
        yield cluster


CLUSTERS = {
    ("valkey", True): valkey.ValkeyCluster,
    ("valkey", False): valkey.asyncio.ValkeyCluster,
    ("redis", True): redis.RedisCluster,
    ("redis", False): redis.asyncio.RedisCluster,
}


async def test_a_cluster_holds_a_cache(cluster, way):
    """Keys live on every node and are read, written and cleared there; a damaged one is found."""
    kind = CLUSTERS[way.library, way.blocking]
    client = lent(kind, cluster.url, decode_responses=way.decodes, protocol=way.protocol)
    model, texts = Embedder(name="model"), [str(number) for number in range(300)]
    embed = Cached(way, model, client)
    nodes = [cluster.node(at) for at in range(3)]
    try:
        for _ in range(2):
            np.testing.assert_array_equal(await embed(texts), Embedder()(texts))
        assert (embed.misses, embed.hits) == (300, 300)
        assert all(node.dbsize() > 50 for node in nodes)
        nodes[0].set(nodes[0].randomkey(), b"damaged")
        np.testing.assert_array_equal(await embed(texts), Embedder()(texts))
        assert embed.misses == 301
        assert await embed.clear() == 300
        assert [node.dbsize() for node in nodes] == [0, 0, 0]
    finally:
        for node in nodes:
            node.close()
        await Cached._done(client.close() if way.blocking else client.aclose())


# --- many at once -----------------------------------------------------------------------------------


def test_threads_share_a_cache_and_its_client(url, name):
    """Threads over one client get each text's own vector."""
    with valkey.Valkey.from_url(url) as client:
        embed, failed = CachedEmbedder(Embedder(name="model"), client=client, prefix=f"{name}:"), []

        def work(number):
            try:
                for turn in range(20):
                    texts = [str((number + turn + at) % 9) for at in range(4)]
                    np.testing.assert_array_equal(embed(texts), Embedder()(texts))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert embed.hits + embed.misses == 6 * 20 * 4


async def test_tasks_share_a_cache_and_its_client(url, name):
    """So do tasks over one async client."""
    async with valkey.asyncio.Valkey.from_url(url) as client:
        embed = AsyncCachedEmbedder(Embedder(name="model"), client=client, prefix=f"{name}:")

        async def work(number):
            for turn in range(20):
                texts = [str((number + turn + at) % 9) for at in range(4)]
                np.testing.assert_array_equal(await embed(texts), Embedder()(texts))

        await asyncio.gather(*map(work, range(6)))
    assert embed.hits + embed.misses == 6 * 20 * 4
