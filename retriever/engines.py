"""Which server answers, and what it can do.

Rule: a difference between engines is a row or a column of this table, never an ``if`` elsewhere.
A row says on which version it was seen: tried on a live server or on its recorded replies, or read in
the engine's documentation and source. docs/engines.md shows the table and cites the sources. The probe
is ``HELLO`` without arguments: even a user who may do nothing but FT.SEARCH gets an answer that names
the server, its mode and its modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of search engine.

    seen: the version that the row was tried on, or that it was read.
    text: it has TEXT fields, and STOPWORDS. weight: TEXT takes a WEIGHT other than 1.
    scores_text: it is asked to rank the matches of a text query (SCORER).
    filter_alone: FT.SEARCH answers a filter without a KNN clause, so it can count.
    skip_initial_scan: FT.CREATE takes SKIPINITIALSCAN.
    hash_tags: which hash tag of a cluster, ``{tag}``, an index's prefix may hold.
    any_database: indexes work in databases other than 0.
    covers_cluster: one query covers every shard of a cluster.
    local_info: there FT.INFO tells of one node's shard only.
    knn_ordered: it promises the rows of a KNN query nearest first.
    drop_documents: FT.DROPINDEX takes DD, which deletes whatever lies under the prefix.
    script_replace: replacing a document by a script is faster than a plain HSET (Valkey Search holds
    each HSET until it is indexed; measured 1.3 to 2.8 times).
    count_limit: it stops counting matches there, None if it does not.

    Its limits, None if it names none. max_k: nearest neighbours. max_ef_runtime, max_timeout_ms, max_dims.
    max_fields, max_text_fields, max_prefixes: of one index. max_query_bytes: of a query string.
    max_union: conditions and terms in one query string, joined in whatever way.
    """

    name: str
    seen: str = "documentation"
    text: bool = True
    weight: bool = True
    scores_text: bool = True
    filter_alone: bool = True
    skip_initial_scan: bool = True
    hash_tags: Literal["any", "the name's", "none"] = "any"
    any_database: bool = False
    covers_cluster: bool = False
    local_info: bool = False
    knn_ordered: bool = False
    drop_documents: bool = True
    script_replace: bool = False
    count_limit: int | None = None
    max_k: int | None = None
    max_ef_runtime: int | None = None
    max_timeout_ms: int | None = None
    max_dims: int | None = None
    max_fields: int | None = None
    max_text_fields: int | None = None
    max_prefixes: int | None = None
    max_query_bytes: int | None = None
    max_union: int | None = None


VALKEY_SEARCH_1_2 = Engine(
    "Valkey Search 1.2",
    seen="tried on 1.2.1",
    weight=False,
    scores_text=False,
    hash_tags="the name's",
    any_database=True,
    covers_cluster=True,
    local_info=True,
    knn_ordered=True,
    drop_documents=False,
    script_replace=True,
    count_limit=100_000,
    max_k=10_000,
    max_ef_runtime=1_000_000,
    max_timeout_ms=60_000,
    max_dims=32_768,
    max_fields=1_000,
    max_text_fields=64,
    max_prefixes=8,
    max_query_bytes=10_240,
    max_union=500,
)
# Also 1.1, which answers filters alone: there the keys are walked without need.
VALKEY_SEARCH_1_0 = replace(
    VALKEY_SEARCH_1_2,
    name="Valkey Search 1.0",
    seen="documentation and source",
    text=False,
    filter_alone=False,
    skip_initial_scan=False,
    hash_tags="none",
    count_limit=None,
    max_ef_runtime=4_096,
    max_dims=32_767,
    max_fields=50,
    max_text_fields=0,
)
# The head. It scores text, which is left unused until it was tried: it is asked as 1.2 is.
VALKEY_SEARCH_1_3 = replace(VALKEY_SEARCH_1_2, name="Valkey Search 1.3", seen="documentation")
REDISEARCH_2 = Engine("RediSearch 2", seen="tried on 2.10.5", max_k=1_000_000, max_fields=1_024, max_text_fields=128)
REDIS_8 = replace(REDISEARCH_2, name="Redis search 8", seen="documentation", covers_cluster=True)

ENGINES = (VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2, VALKEY_SEARCH_1_3, REDISEARCH_2, REDIS_8)
NO_ENGINE = "no search module"  # a server without one has no row: its engine is None
# The smallest limits of any row: what keeps to them need not know its engine.
LEAST_QUERY_BYTES = min(row.max_query_bytes for row in ENGINES if row.max_query_bytes is not None)
LEAST_UNION = min(row.max_union for row in ENGINES if row.max_union is not None)
# A module's version number, at least -> its row. RediSearch counts MMmmpp in decimal (21005 is 2.10.5), Redis 8
# starts at 80000, Valkey Search counts 0xMMmmpp (66049 is 1.2.1); 1.2 is its first release with TEXT fields.
_VALKEY_SEARCH = ((0x010300, VALKEY_SEARCH_1_3), (0x010200, VALKEY_SEARCH_1_2), (0x010000, VALKEY_SEARCH_1_0))


@dataclass(frozen=True, slots=True)
class Server:
    """What HELLO told: the product, its version, whether it is a cluster, its search engine and that one's version."""

    name: str
    version: str
    cluster: bool
    engine: Engine | None
    engine_version: str = ""

    def __str__(self) -> str:
        family = self.engine.name.rpartition(" ")[0] if self.engine else NO_ENGINE
        return f"{self.name} {self.version} with {family} {self.engine_version}".rstrip()


def identify(server: str, version: str, mode: str, modules: dict[str, int]) -> Server:
    """The server that calls itself so; modules: name -> version number.

    Both families call their module "search"; its number, and from 80,000 on the product, tells them apart.
    """
    number = modules.get("search", modules.get("ft"))
    if number is None:
        return Server(server, version, mode == "cluster", None)
    engine_version = f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    if number < 0x010000:
        engine = REDISEARCH_2
    elif server == "valkey" or number < 80_000:
        engine = next(row for least, row in _VALKEY_SEARCH if number >= least)
        engine_version = f"{number >> 16}.{number >> 8 & 255}.{number & 255}"
    else:
        engine = REDIS_8
    return Server(server, version, mode == "cluster", engine, engine_version)
