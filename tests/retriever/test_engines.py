"""Which server answers: told from HELLO, by numbers that two families count differently; and what each can do."""

from __future__ import annotations

from dataclasses import fields

import pytest

import retriever
from fields import kinds
from retriever import engines, queries
from retriever.engines import (
    ENGINES,
    LEAST_QUERY_BYTES,
    LEAST_UNION,
    REDIS_8,
    REDISEARCH_2,
    VALKEY_SEARCH_1_0,
    VALKEY_SEARCH_1_2,
    VALKEY_SEARCH_1_3,
    Engine,
    Server,
    identify,
)
from tests import grammar
from tests.recorded import replies

VALKEY_SEARCH = (VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2, VALKEY_SEARCH_1_3)


@pytest.mark.parametrize(
    ("product", "modules", "expected"),
    [
        ("valkey", {"search": 66049}, VALKEY_SEARCH_1_2),
        ("valkey", {"search": 0x010200}, VALKEY_SEARCH_1_2),
        ("valkey", {"search": 0x0102FF}, VALKEY_SEARCH_1_2),
        ("valkey", {"search": 0x010300}, VALKEY_SEARCH_1_3),
        ("valkey", {"search": 0x010400}, VALKEY_SEARCH_1_3),
        ("valkey", {"search": 0x020000}, VALKEY_SEARCH_1_3),
        ("valkey", {"search": 0x010000}, VALKEY_SEARCH_1_0),
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
    assert str(identify("valkey", "10", "standalone", {"search": 0x010300})) == "valkey 10 with Valkey Search 1.3.0"
    assert str(identify("valkey", "9.1.2", "standalone", {"search": 21005})) == "valkey 9.1.2 with RediSearch 2.10.5"
    assert str(identify("redis", "8.2.1", "standalone", {"search": 80201})) == "redis 8.2.1 with Redis search 8.2.1"
    assert str(Server("redis", "7.2.4", True, None)) == "redis 7.2.4 with no search module"


# --- the rows -------------------------------------------------------------------------------------


def test_every_row_is_in_the_table_and_importable():
    """What the module defines as a row is in the table, named apart, and can be given as engine=."""
    rows = {name: row for name, row in vars(engines).items() if isinstance(row, Engine)}
    assert sorted(map(id, rows.values())) == sorted(map(id, ENGINES))
    assert len({row.name for row in ENGINES}) == len(ENGINES)
    assert all(getattr(retriever, name) is row for name, row in rows.items())


@pytest.mark.parametrize("column", [column.name for column in fields(Engine) if column.name != "name"])
def test_every_column_tells_engines_apart(column):
    """A column in which all rows say the same tells nothing."""
    assert len({getattr(row, column) for row in ENGINES}) > 1


@pytest.mark.parametrize(
    ("column", "valkey_search", "redisearch"),
    [
        ("weight", False, True),
        ("any_database", True, False),
        ("covers_cluster", True, False),
        ("local_info", True, False),
        ("knn_ordered", True, False),
        ("drop_documents", False, True),
        ("script_replace", True, False),
        ("scores_text", False, True),
        ("count_limit", 100_000, None),
        ("max_union", 500, None),
        ("max_text_fields", 64, 128),
    ],
)
def test_where_the_two_engines_differ(column, valkey_search, redisearch):
    """The rows of the two engines that were tried hold what was found."""
    assert getattr(VALKEY_SEARCH_1_2, column) == valkey_search
    assert getattr(REDISEARCH_2, column) == redisearch


def test_what_came_with_which_release_of_valkey_search():
    """1.2 brought TEXT, filters without a vector and SKIPINITIALSCAN; 1.3 nothing that we use; none takes a WEIGHT."""
    for column, expected in {
        "text": [False, True, True],
        "filter_alone": [False, True, True],
        "skip_initial_scan": [False, True, True],
        "scores_text": [False, False, False],
        "weight": [False, False, False],
        "max_text_fields": [0, 64, 64],
        "max_fields": [50, 1_000, 1_000],
        "max_dims": [32_767, 32_768, 32_768],
        "max_ef_runtime": [4_096, 1_000_000, 1_000_000],
        "hash_tags": ["none", "the name's", "the name's"],
    }.items():
        assert [getattr(row, column) for row in VALKEY_SEARCH] == expected, column


@pytest.mark.parametrize(
    ("case", "column"),
    [
        ("text, scored", "scores_text"),  # SCORER, WITHSCORES
        ("text, one term", "text"),
        ("count", "filter_alone"),
        ("create", "skip_initial_scan"),
    ],
)
def test_a_row_says_what_its_engine_answered(case, column):
    """A command that uses what a column is about was answered where the row says so, and refused where not."""
    for each in replies(case):
        row = VALKEY_SEARCH_1_2 if each.from_valkey_search else REDISEARCH_2
        assert isinstance(each.reply, Exception) is not getattr(row, column), each


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ENGINES, ids=lambda row: row.name)
def test_our_limits_keep_to_every_engines(row):
    """What is refused before any I/O, whatever the engine, is refused at the strictest limit of all rows.

    All but EF_RUNTIME: below 1.2, Valkey Search takes 4,096. There a larger one is the server's error.
    """
    assert queries.MAX_K <= (row.max_k or queries.MAX_K)
    assert queries.MAX_TIMEOUT_MS <= (row.max_timeout_ms or queries.MAX_TIMEOUT_MS)
    if row is not VALKEY_SEARCH_1_0:
        assert queries.MAX_EF_RUNTIME <= (row.max_ef_runtime or queries.MAX_EF_RUNTIME)
    assert LEAST_QUERY_BYTES <= (row.max_query_bytes or LEAST_QUERY_BYTES)
    assert LEAST_UNION <= (row.max_union or LEAST_UNION)
    assert (row.max_prefixes or 1) >= 1  # of which a schema has one


def test_our_limits_are_no_stricter_than_need_be():
    """Each limit is some row's own."""
    assert min(row.max_k for row in ENGINES if row.max_k) == queries.MAX_K
    assert min(row.max_timeout_ms for row in ENGINES if row.max_timeout_ms) == queries.MAX_TIMEOUT_MS
    assert max(row.max_dims for row in ENGINES if row.max_dims) == kinds._VECTOR_LIMITS["dims"]
    assert (LEAST_QUERY_BYTES, LEAST_UNION) == (10_240, 500)


def test_the_checker_of_commands_has_the_same_limits():
    """tests/grammar.py, which knows nothing of the table, holds commands to the limits of the row that was tried."""
    row = VALKEY_SEARCH_1_2
    assert (grammar.MAX_K, grammar.MAX_TIMEOUT_MS, grammar.MAX_DIMS) == (row.max_k, row.max_timeout_ms, row.max_dims)
    assert (grammar.MAX_QUERY_BYTES, grammar.MAX_CONDITIONS) == (row.max_query_bytes, row.max_union)
    assert (grammar.MAX_PREFIXES, grammar.MAX_FIELDS) == (row.max_prefixes, row.max_fields)
    assert grammar.MAX_TEXT_FIELDS == row.max_text_fields
