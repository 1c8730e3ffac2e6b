"""Which server answers, and what it can do.

Rule: a difference between engines is a row or a column of this table, never an ``if`` elsewhere.
Rows marked T were tried on a live server or on its recorded replies; the others cite the engine's
documentation or source. The probe is ``HELLO`` without arguments: even a user who may do nothing
but FT.SEARCH gets an answer that names the server, its mode and its modules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of search engine.

    text: it has TEXT fields. weight: TEXT takes a WEIGHT other than 1. any_database: indexes work in
    databases other than 0. covers_cluster: one query covers every shard of a cluster.
    script_replace: replacing a document by a script is faster than a plain HSET (Valkey Search holds
    each HSET until it is indexed; measured 1.3 to 2.8 times). count_limit: it stops counting matches
    there, None if it does not. max_dims, max_query_bytes: its limits, None if it names none.
    """

    name: str
    text: bool = True
    weight: bool = True
    any_database: bool = False
    covers_cluster: bool = False
    script_replace: bool = False
    count_limit: int | None = None
    max_dims: int = 32_768
    max_query_bytes: int | None = None


VALKEY_SEARCH_1_0 = Engine(  # its documentation and source
    "Valkey Search 1.0",
    text=False,
    weight=False,
    any_database=True,
    covers_cluster=True,
    script_replace=True,
    count_limit=100_000,
    max_query_bytes=10_240,
)
VALKEY_SEARCH_1_2 = Engine(  # T: 1.2.1
    "Valkey Search 1.2",
    weight=False,
    any_database=True,
    covers_cluster=True,
    script_replace=True,
    count_limit=100_000,
    max_query_bytes=10_240,
)
LEAST_QUERY_BYTES = 10_240  # the smallest limit of any row
REDISEARCH_2 = Engine("RediSearch 2")  # T: 2.10.5
REDIS_8 = Engine("Redis search 8", covers_cluster=True)  # its documentation


@dataclass(frozen=True, slots=True)
class Server:
    """What HELLO told: the product, its version, whether it is a cluster, its search engine and that one's version."""

    name: str
    version: str
    cluster: bool
    engine: Engine | None
    engine_version: str = ""

    def __str__(self) -> str:
        family = self.engine.name.rpartition(" ")[0] if self.engine else "no search module"
        return f"{self.name} {self.version} with {family} {self.engine_version}".rstrip()


def identify(server: str, version: str, mode: str, modules: dict[str, int]) -> Server:
    """The server that calls itself so; modules: name -> version number.

    Both families call their module "search". Valkey Search counts 0xMMmmpp (66049 is 1.2.1),
    RediSearch MMmmpp in decimal (21005 is 2.10.5), and Redis 8 starts at 80000.
    """
    number = modules.get("search", modules.get("ft"))
    if number is None:
        return Server(server, version, mode == "cluster", None)
    engine_version = f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    if number < 0x010000:
        engine = REDISEARCH_2
    elif server == "valkey" or number < 80_000:
        # 0x010200: the first release with TEXT fields.
        engine = VALKEY_SEARCH_1_2 if number >= 0x010200 else VALKEY_SEARCH_1_0
        engine_version = f"{number >> 16}.{number >> 8 & 255}.{number & 255}"
    else:
        engine = REDIS_8
    return Server(server, version, mode == "cluster", engine, engine_version)
