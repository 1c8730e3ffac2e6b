"""Query strings and argument lists: one spelling for both engines, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.errors import InvalidInput
from fields.filters import as_filter
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from retriever.operations.search import shape
from retriever.queries import build_ft_search_query, check_int, check_k, check_timeout, count_command, search_command
from retriever.schema import Schema
from tests import grammar
from tests.strategies import FILTERABLE, filters, schemas

SCHEMA = Schema("docs", [Tag("category"), Numeric("year"), Text("title"), Stored("url")], Vector(dims=3))
FLAT = Schema("docs", [Tag("category")], Vector(dims=3, algorithm="FLAT"))
MIXED = Schema("docs", FILTERABLE.values(), Vector(dims=3))


@pytest.mark.parametrize(
    ("schema", "arguments", "query"),
    [
        (SCHEMA, {"k": 3}, "*=>[KNN 3 @embedding $vec EF_RUNTIME 100 AS __score]"),
        (SCHEMA, {"k": 3, "filter": {}}, "*=>[KNN 3 @embedding $vec EF_RUNTIME 100 AS __score]"),
        (SCHEMA, {"k": 25}, "*=>[KNN 25 @embedding $vec EF_RUNTIME 100 AS __score]"),
        (SCHEMA, {"k": 26}, "*=>[KNN 26 @embedding $vec EF_RUNTIME 104 AS __score]"),
        (SCHEMA, {"k": 10_000}, "*=>[KNN 10000 @embedding $vec EF_RUNTIME 40000 AS __score]"),
        (SCHEMA, {"k": 3, "ef_runtime": 10}, "*=>[KNN 3 @embedding $vec EF_RUNTIME 10 AS __score]"),
        (FLAT, {"k": 3}, "*=>[KNN 3 @embedding $vec AS __score]"),
        (Schema("d", vector=Vector("v", ef_runtime=7)), {"k": 3}, "*=>[KNN 3 @v $vec EF_RUNTIME 7 AS __score]"),
        (
            FLAT,
            {"k": 1, "filter": Tag("category") == "a-b"},
            r"(@category:{a\-b})=>[KNN 1 @embedding $vec AS __score]",
        ),
        (
            SCHEMA,
            {"k": 1, "filter": {"category": "db", "year": {"gte": 2020}}, "ef_runtime": 50},
            "(@category:{db} @year:[2020 inf])=>[KNN 1 @embedding $vec EF_RUNTIME 50 AS __score]",
        ),
        (
            SCHEMA,
            {"k": 1, "filter": {"year": 3}, "ef_runtime": 1},
            "(@year:[3 3])=>[KNN 1 @embedding $vec EF_RUNTIME 1 AS __score]",
        ),
    ],
)
def test_the_query_string(schema, arguments, query):
    """The string is complete but for its one parameter, vec; EF_RUNTIME follows k, case B56."""
    assert build_ft_search_query(schema, **arguments) == query


@pytest.mark.parametrize("k", [0, -1, 2.5, 3.0, True, "5", None, 10_001, [5]], ids=repr)
def test_k_that_is_refused(k):
    """k is an int from 1 to 10,000, case B54."""
    with pytest.raises(InvalidInput, match="^k "):
        build_ft_search_query(SCHEMA, k)
    with pytest.raises(InvalidInput, match="^k "):
        check_k(k)


@pytest.mark.parametrize("ef_runtime", [0, -1, 1.5, True, "10", 40_001], ids=repr)
def test_ef_runtime_that_is_refused(ef_runtime):
    """ef_runtime is an int from 1 to 40,000, and means nothing to FLAT."""
    with pytest.raises(InvalidInput, match="ef_runtime"):
        build_ft_search_query(SCHEMA, 3, ef_runtime=ef_runtime)
    with pytest.raises(InvalidInput, match="ef_runtime means nothing to FLAT"):
        build_ft_search_query(FLAT, 3, ef_runtime=100)


@pytest.mark.parametrize(
    ("filter", "reason"),
    [
        ({"typo": "x"}, "unknown field 'typo'"),
        (Tag("typo") != "x", "unknown field 'typo'"),
        ({"title": "x"}, "TEXT field cannot be filtered"),
        ({"url": "x"}, "STORED field cannot be filtered"),
        ({"embedding": "x"}, "unknown field 'embedding'"),
        ({"year": "2020"}, "a number expected"),
        ({"year": True}, "a number expected"),
        ({"year": float("inf")}, "not finite"),
        ({"category": None}, "None"),
        ({"category": []}, "list"),
        ("@category:{x}", "a Filter or a mapping"),
    ],
    ids=lambda part: repr(part)[:40],
)
def test_filters_that_are_refused(filter, reason):
    """A filter that cannot be meant never reaches a server, cases B28 and B29."""
    with pytest.raises(InvalidInput, match=reason):
        build_ft_search_query(SCHEMA, 3, filter)


@pytest.mark.parametrize("timeout_ms", [0, -1, 1.5, True, "10", 60_001], ids=repr)
def test_timeouts_that_are_refused(timeout_ms):
    """timeout_ms is an int from 1 to 60,000; None is 5,000."""
    with pytest.raises(InvalidInput, match="timeout_ms"):
        check_timeout(timeout_ms)
    assert check_timeout(None) == 5_000
    assert check_timeout(60_000) == 60_000


def test_an_int_within_limits():
    """Limits are included on both sides, and named in the error."""
    assert [check_int("x", value, 5, least=2) for value in (2, 5)] == [2, 5]
    with pytest.raises(InvalidInput, match=re.escape("x 1: an int from 2 to 5,000")):
        check_int("x", 1, 5_000, least=2)


@given(filters, st.integers(1, 10_000), st.none() | st.integers(1, 40_000))
def test_every_filtered_query_stays_within_the_grammar(filter, k, ef_runtime):
    """Whatever the filter, the query is its text and the KNN clause, as both engines read it."""
    query = grammar.read_query(build_ft_search_query(MIXED, k, filter, ef_runtime=ef_runtime))
    assert query.knn == grammar.Knn(k, "embedding", ef_runtime or max(100, 4 * k))
    assert query.filter is not None


@given(schemas, st.integers(1, 10_000), st.integers(1, 60_000), st.booleans(), st.data())
def test_every_search_stays_within_the_grammar(schema, k, timeout_ms, return_vectors, data):
    """Whatever the schema and the fields asked for, the command is one that both engines take, cases B12, B52, B53."""
    names = data.draw(st.none() | st.lists(st.sampled_from(["__text", *schema.by_name]), unique=True))
    wanted = shape(schema, names, return_vectors=return_vectors)
    query = build_ft_search_query(schema, k)
    command = search_command(schema, k, wanted.returned, timeout_ms)(query, bytes(4 * 3))
    assert grammar.check_search(command.args).knn.k == k
    assert command.args[1] == schema.name
    assert (schema.vector.name in wanted.returned) is return_vectors
    # A number comes back from its copy, because RediSearch prints the indexed one anew.
    copies = {f"__exact_{name}": name for name, field in schema.by_name.items() if isinstance(field, Numeric)}
    returned = {copies.get(name, name) for name in wanted.returned} - {schema.vector.name}
    assert returned == set(["__text", *schema.by_name] if names is None else names)


@given(filters)
def test_every_count_stays_within_the_grammar(filter):
    """A count sends the filter alone and asks for no row."""
    command = count_command(MIXED, as_filter(filter, FILTERABLE), 5_000)
    assert grammar.check_search(command.args).knn is None
    assert command.parse([7]) == 7


def test_the_whole_search():
    """The documented command, word by word."""
    command = search_command(SCHEMA, 3, ("__text", "year"), 5_000)("*=>[KNN 3 @embedding $vec AS __score]", bytes(12))
    assert command.args == (
        *("FT.SEARCH", "docs", "*=>[KNN 3 @embedding $vec AS __score]", "PARAMS", 2, "vec", bytes(12)),
        *("RETURN", 3, "__score", "__text", "year", "LIMIT", 0, 3, "TIMEOUT", 5_000, "DIALECT", 2),
    )
    assert command.route is None
    assert command.repeatable
