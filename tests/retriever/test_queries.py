"""Query strings and argument lists: one spelling for both engines, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.errors import InvalidInput
from fields.filters import as_filter, encode_tag
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from retriever.engines import LEAST_QUERY_BYTES, REDISEARCH_2, VALKEY_SEARCH_1_2
from retriever.operations.search import shape
from retriever.queries import (
    build_ft_search_query,
    check_int,
    check_k,
    check_timeout,
    count_command,
    frequency_command,
    ranking_query,
    search_command,
    set_queries,
    term_clause,
    text_command,
)
from retriever.schema import Schema
from tests import grammar
from tests.strategies import FILTERABLE, field_values, filters, schemas

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


# --- words ----------------------------------------------------------------------------------------

A, B = Tag("t") == "a", Tag("t") == "b"


@pytest.mark.parametrize(
    ("attributes", "clause"),
    [(["__terms"], "@__terms:w"), (["__terms", "__terms_title"], "(@__terms:w|@__terms_title:w)")],
)
def test_a_term_in_any_copy(attributes, clause):
    """A term may stand in any of the analysed copies; terms are no syntax and need no escape."""
    assert term_clause(attributes, "w") == clause


@pytest.mark.parametrize(
    ("clauses", "filter", "query"),
    [
        (["@x:v"], None, "(@x:v)"),
        (["@x:v", "@x:w"], None, "(@x:v|@x:w)"),
        (["@x:v"], A, "(((@t:{a}) @x:v))"),
        (["@x:v", "@x:w"], A, "(((@t:{a}) @x:v)|((@t:{a}) @x:w))"),
        (["@x:v", "@x:w"], A & ~B, "(((@t:{a} -@t:{b}) @x:v)|((@t:{a} -@t:{b}) @x:w))"),
        (["@x:v", "@x:w"], A | ~B, "(((@t:{a}) (@x:v|@x:w))|((-@t:{b}) (@x:v|@x:w)))"),
    ],
)
def test_a_query_that_is_ranked(clauses, filter, query):
    """The filter stands beside each term, because beside an OR it changes RediSearch's text scores."""
    assert ranking_query(clauses, filter) == query


def test_a_filter_that_is_not_repeated():
    """More than 20 terms beside a negation, which RediSearch answers wrongly, or too long a filter: it stands once."""
    clauses = [f"@x:w{at}" for at in range(21)]
    assert ranking_query(clauses[:20], ~A).count("-@t:{a}") == 20
    assert ranking_query(clauses, ~A) == f"(((-@t:{{a}}) ({'|'.join(clauses)})))"
    wide = Tag("t").isin([f"{at:0100}" for at in range(100)])
    assert ranking_query(clauses, wide).count("@t:") == 1
    assert ranking_query(clauses[:3], wide).count("@t:") == 3


def test_queries_of_sets():
    """Each set is an AND, beside the filter; together they are one OR."""
    sets = [["@x:v"], ["@x:w", "@x:u"]]
    assert set_queries(sets, None, VALKEY_SEARCH_1_2) == ["((@x:v)|(@x:w @x:u))"]
    assert set_queries(sets, A, VALKEY_SEARCH_1_2) == ["(((@t:{a}) @x:v)|((@t:{a}) @x:w @x:u))"]
    assert set_queries(sets, A | ~B, REDISEARCH_2) == [
        "(((@t:{a}) @x:v)|((-@t:{b}) @x:v)|((@t:{a}) @x:w @x:u)|((-@t:{b}) @x:w @x:u))"
    ]


words = st.text("abcé_1", min_size=1, max_size=8).filter(lambda word: word.strip("_"))
term_sets = st.lists(st.lists(words, min_size=1, max_size=4, unique=True), min_size=1, max_size=40)


@given(term_sets, st.none() | filters, field_values, st.lists(words, max_size=8), st.sampled_from([1, 3]))
def test_queries_by_words_mean_what_they_shall(sets, filter, values, held, copies):
    """Read back by an independent parser: any of the sets, or any of the terms, within the filter, nobody else."""
    attributes = [f"__terms{at}" for at in range(copies)]
    document = {
        name: value if name == "n" else [encode_tag(each) for each in ([value] if name == "t" else value)]
        for name, value in values.items()
    } | {attributes[-1]: held}
    passes = filter is None or filter.matches(values)
    clauses = [[term_clause(attributes, term) for term in each] for each in sets]
    for engine in (VALKEY_SEARCH_1_2, REDISEARCH_2):
        queries = set_queries(clauses, filter, engine)
        read = [grammar.read_query(query).filter for query in queries]
        expected = passes and any(set(each) <= set(held) for each in sets)
        assert any(grammar.holds(tree, document) for tree in read) == expected
        assert all(len(query.encode()) <= LEAST_QUERY_BYTES for query in queries)
    (first, *_) = clauses
    tree = grammar.read_query(ranking_query(first, filter)).filter
    assert grammar.holds(tree, document) == (passes and bool(set(sets[0]) & set(held)))


def test_sets_are_split_by_the_engine_s_limits():
    """Not more than 500 conditions on Valkey Search, than 20 alternatives beside a negation, than 10,240 bytes."""
    sets = [[f"@x:w{at}"] for at in range(600)]
    assert [query.count("@x:") for query in set_queries(sets, None, VALKEY_SEARCH_1_2)] == [500, 100]
    assert [query.count("@x:") for query in set_queries(sets[:300], A, VALKEY_SEARCH_1_2)] == [250, 50]
    assert len(set_queries(sets, None, REDISEARCH_2)) == 1
    assert [query.count("@x:") for query in set_queries(sets[:50], ~A, VALKEY_SEARCH_1_2)] == [20, 20, 10]
    wide = Tag("t").isin([f"{at:0100}" for at in range(40)])
    assert [query.count("@x:") for query in set_queries(sets[:5], wide, REDISEARCH_2)] == [2, 2, 1]


def test_the_whole_search_by_words():
    """Word by word: only an engine that ranks is told a scorer; a count asks for no row."""
    ranked = text_command(SCHEMA, "(@x:v)", ["x", "y"], 50, 5_000, ranked=True)
    assert ranked.args == (
        *("FT.SEARCH", "docs", "(@x:v)", "VERBATIM", "RETURN", 2, "x", "y", "SCORER", "BM25STD"),
        *("LIMIT", 0, 50, "TIMEOUT", 5_000, "DIALECT", 2),
    )
    unranked = text_command(SCHEMA, "(@x:v)", ["x", "y"], 50, 5_000, ranked=False)
    assert unranked.args == (*ranked.args[:8], *ranked.args[10:])
    assert unranked.parse([1, b"k", [b"y", b"1"]]).rows == [(b"k", [None, b"1"])]
    count = frequency_command(SCHEMA, "@x:v", 5_000)
    assert count.args == ("FT.SEARCH", "docs", "@x:v", "VERBATIM", "LIMIT", 0, 0, "TIMEOUT", 5_000, "DIALECT", 2)
    assert count.parse([7]) == 7
    for command, scores in ((ranked, True), (unranked, False), (count, False)):
        assert grammar.check_search(command.args, scores=scores).words
