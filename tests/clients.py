"""The ways to a server, its own connections and every kind of client, and both shells behind one set of methods."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import product

import redis.asyncio
import valkey.asyncio

from retriever import Retriever

KINDS = {
    ("valkey", True): valkey.Valkey,
    ("valkey", False): valkey.asyncio.Valkey,
    ("redis", True): redis.Redis,
    ("redis", False): redis.asyncio.Redis,
}

CLUSTERS = {
    ("valkey", True): valkey.ValkeyCluster,
    ("valkey", False): valkey.asyncio.ValkeyCluster,
    ("redis", True): redis.RedisCluster,
    ("redis", False): redis.asyncio.RedisCluster,
}


@dataclass(frozen=True, slots=True)
class Way:
    """Blocking or not; library: of the client that is lent, None for connections of the retriever's own."""

    blocking: bool
    library: str | None = None
    protocol: int = 2
    decodes: bool = False

    def __str__(self):
        flavour = "sync" if self.blocking else "async"
        if self.library is None:
            return flavour
        return f"{self.library}-RESP{self.protocol}-{'decoding' if self.decodes else 'bytes'}-{flavour}"

    @property
    def kind(self):
        """The class of the client that is lent."""
        return KINDS[self.library, self.blocking]

    @property
    def exceptions(self):
        """The module of the exceptions that a lost connection raises."""
        return redis.exceptions if self.library == "redis" else valkey.exceptions

    def client(self, url, *, cluster=False, **options):
        """A client of this kind, or of its library's for clusters; options are those of its ``from_url``."""
        kind = CLUSTERS[self.library, self.blocking] if cluster else self.kind
        return lent(kind, url, **{"protocol": self.protocol, "decode_responses": self.decodes, **options})


def lent(kind, url, **options):
    """A client of a class of either library: redis-py does not know the scheme ``valkey``."""
    return kind.from_url(url.replace("valkey://", "redis://", 1), **options)


OWN = [Way(True), Way(False)]
BORROWED = [
    Way(blocking, library, protocol, decodes)
    for library, protocol, decodes, blocking in product(("valkey", "redis"), (2, 3), (False, True), (True, False))
]
# What most users of redis-py have: RESP3 is its default.
USUAL = [way for way in BORROWED if way.library == "redis" and way.protocol == 3 and way.decodes]


async def closed(client):
    """Close a client of any kind, and a pool that it was given; a cluster's has one for each node."""
    pool = getattr(client, "connection_pool", None)
    for close in (getattr(client, "aclose", client.close), *([pool.disconnect] if pool else [])):
        closing = close()
        if inspect.isawaitable(closing):
            await closing


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
