"""Which server answers: told from HELLO, by numbers that two families count differently."""

from __future__ import annotations

import pytest

from retriever.engines import (
    REDIS_8,
    REDISEARCH_2,
    VALKEY_SEARCH_1_0,
    VALKEY_SEARCH_1_2,
    Engine,
    Server,
    identify,
)


@pytest.mark.parametrize(
    ("product", "modules", "expected"),
    [
        ("valkey", {"search": 66049}, VALKEY_SEARCH_1_2),
        ("valkey", {"search": 0x010200}, VALKEY_SEARCH_1_2),
        ("valkey", {"search": 0x010300}, VALKEY_SEARCH_1_2),
        ("valkey", {"search": 0x020000}, VALKEY_SEARCH_1_2),
        ("valkey", {"search": 0x010001}, VALKEY_SEARCH_1_0),
        ("valkey", {"search": 0x010100}, VALKEY_SEARCH_1_0),
        ("valkey", {"search": 21005}, REDISEARCH_2),
        ("valkey", {"search": 21005, "lua": 1}, REDISEARCH_2),
        ("redis", {"search": 20810}, REDISEARCH_2),
        ("redis", {"ft": 20000}, REDISEARCH_2),
        ("redis", {"search": 80000}, REDIS_8),
        ("redis", {"search": 80200, "ReJSON": 80200}, REDIS_8),
        ("valkey", {}, None),
        ("redis", {"ReJSON": 20609, "lua": 1}, None),
    ],
)
def test_an_engine_is_told_by_its_number(product, modules, expected):
    """Both families call their module search; the number, and above 80,000 the product, tells them apart."""
    assert identify(product, "9.1.2", "standalone", modules).engine is expected


def test_a_cluster_is_told_by_its_mode():
    """HELLO's mode says whether a server is one of many."""
    assert identify("valkey", "9", "cluster", {}).cluster
    assert not identify("valkey", "9", "standalone", {}).cluster
    assert not identify("redis", "8", "sentinel", {}).cluster


def test_a_server_says_what_it_is():
    """The name that errors and reports use holds product, version and engine."""
    assert str(identify("valkey", "9.1.2", "standalone", {"search": 66049})) == "valkey 9.1.2 with Valkey Search 1.2.1"
    assert str(identify("valkey", "9.1.2", "standalone", {"search": 21005})) == "valkey 9.1.2 with RediSearch 2.10.5"
    assert str(identify("redis", "8.2.1", "standalone", {"search": 80201})) == "redis 8.2.1 with Redis search 8.2.1"
    assert str(Server("redis", "7.2.4", True, None)) == "redis 7.2.4 with no search module"


def test_what_the_rows_say():
    """The rows hold what was measured: weights, databases, clusters, the way to replace, limits."""
    assert [engine.text for engine in (VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2, REDISEARCH_2, REDIS_8)] == [False] + [
        True
    ] * 3
    assert [engine.weight for engine in (VALKEY_SEARCH_1_2, REDISEARCH_2)] == [False, True]
    assert [engine.any_database for engine in (VALKEY_SEARCH_1_2, REDISEARCH_2)] == [True, False]
    assert [engine.covers_cluster for engine in (VALKEY_SEARCH_1_2, REDISEARCH_2)] == [True, False]
    assert [engine.script_replace for engine in (VALKEY_SEARCH_1_2, REDISEARCH_2)] == [True, False]
    assert [engine.count_limit for engine in (VALKEY_SEARCH_1_2, REDISEARCH_2)] == [100_000, None]
    assert Engine("new").max_dims == 32_768
