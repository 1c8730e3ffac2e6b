"""The checker itself: it agrees with what the two engines really answered, and refuses what it must."""

from __future__ import annotations

import pytest

from tests.grammar import Group, Knn, Not, Query, Range, Refused, Tags, check_create, check_search, holds, read_query
from tests.recorded import replies

KNN = "=>[KNN 3 @v $vec AS __score]"
INF = float("inf")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("*" + KNN, Query(None, Knn(3, "v", None))),
        ("*=>[KNN 10000 @v $vec EF_RUNTIME 40000 AS __score]", Query(None, Knn(10_000, "v", 40_000))),
        ("(@t:{a})", Query(Group("and", (Tags("t", ("a",)),)), None)),
        (r"(@t:{a\_b|\*é})", Query(Group("and", (Tags("t", ("a_b", "*é")),)), None)),
        ("(@n:[(1 +inf])", Query(Group("and", (Range("n", 1.0, True, INF, False),)), None)),
        ("(@n:[-0.5 (2])", Query(Group("and", (Range("n", -0.5, False, 2.0, True),)), None)),
        ("(-@t:{a}|@n:[1 1])", Query(Group("or", (Not(Tags("t", ("a",))), Range("n", 1.0, False, 1.0, False))), None)),
    ],
)
def test_queries_that_are_read(text, query):
    """The checker reads the subset that both engines answer alike."""
    assert read_query(text) == query


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "**",
        "@t:{a}",
        "()",
        "( @t:{a})",
        "(@t:{a} )",
        "(@t:{a}  @t:{b})",
        "(@t:{a} @t:{b}|@t:{c})",
        "(@t:{a}",
        "(@t:{a}))",
        "(@t:{a})(@t:{b})",
        "(-(@t:{a}))",
        "(--@t:{a})",
        "(~@t:{a})",
        "(@t:(a b))",
        "(@t:a)",
        "(hello)",
        "(@t:{$p})",
        '(@t:{"a"})',
        "(@t:{})",
        "(@t:{a|})",
        "(@t:{ a})",
        "(@t:{a b})",
        "(@t:{a-b})",
        "(@t:{a_b})",
        "(@t:{a*})",
        r"(@t:{a\*})",
        r"(@t:{\ a})",
        r"(@t:{a\ })",
        r"(@t:{\a})",
        r"(@t:{\é})",
        "(@t:{a\\\n})",
        "(@t:{a\nb})",
        "(@t:{a\x1fb})",
        r"(@t\_x:{a})",
        "(@t-x:{a})",
        "(@:{a})",
        "(@n:[1])",
        "(@n:[1,2])",
        "(@n:[2 1])",
        "(@n:[(1 1])",
        "(@n:[1 (1])",
        "(@n:[1e5 2e5])",
        "(@n:[.1 .1])",
        "(@n:[1. 2.])",
        "(@n:[nan 1])",
        "(@n:[$a 1])",
        "(@n:[1 2)",
        "(@n:[ 1 2])",
        "(@t:{a})=>",
        "@t:{a}" + KNN,
        "(@t:{a})" + KNN + " ",
        "(*)" + KNN,
        "*=>[KNN 0 @v $vec AS __score]",
        "*=>[KNN 10001 @v $vec AS __score]",
        "*=>[KNN $k @v $vec AS __score]",
        "*=>[KNN 03 @v $vec AS __score]",
        "*=>[KNN 3 @v $vec EF_RUNTIME 0 AS __score]",
        "*=>[KNN 3 @v $vec EF_RUNTIME 40001 AS __score]",
        "*=>[KNN 3 @v $vec AS __score EF_RUNTIME 10]",
        "*=>[KNN 3 @v $my-vec AS __score]",
        "*=>[KNN 3 @v $vec]",
        "(" * 300 + "@t:{a}" + ")" * 300,
        "(@t:{" + "x" * 10_240 + "})",
    ],
    ids=lambda text: text[:40],
)
def test_queries_that_are_refused(text):
    """The checker refuses what either engine refuses, reads differently or cannot hold."""
    with pytest.raises(Refused):
        read_query(text)


@pytest.mark.parametrize("case", ["match all", "syntax error", "text, group in a field", "tag, bound parameter"])
def test_the_checker_is_no_laxer_than_valkey_search(case):
    """A recorded query that Valkey Search refused is one that the checker refuses."""
    refused = [each for each in replies(case) if each.from_valkey_search]
    assert len(refused) == 2
    for each in refused:
        assert isinstance(each.reply, Exception)
        with pytest.raises(Refused):
            check_search(each.command)


@pytest.mark.parametrize("case", ["knn, filtered", "knn, negated filter", "knn, ef_runtime", "knn, nothing passes"])
def test_the_checker_reads_what_both_engines_answered(case):
    """A recorded query of our kind, which all four recordings answered, is one that the checker reads."""
    for each in replies(case):
        assert not isinstance(each.reply, Exception)
        assert read_query(each.command[2]).knn


SEARCH = ("FT.SEARCH", "i", "*" + KNN, "PARAMS", 2, "vec", bytes(8), "RETURN", 2, "__score", "t")
TAIL = ("LIMIT", 0, 3, "TIMEOUT", 5000, "DIALECT", 2)


def test_searches_that_are_taken():
    """A nearest-neighbour search and a count are the two commands that we send."""
    assert check_search((*SEARCH, *TAIL)).knn == Knn(3, "v", None)
    assert check_search(("FT.SEARCH", "i", "(@t:{a})", "LIMIT", 0, 0, "TIMEOUT", 1, "DIALECT", 2)).knn is None


@pytest.mark.parametrize(
    "words",
    [
        SEARCH,
        (*SEARCH, *TAIL, "NOCONTENT"),
        (*SEARCH, "SORTBY", "__score", *TAIL),
        (*SEARCH, "LIMIT", 0, 10, *TAIL[3:]),
        (*SEARCH, *TAIL[:3], "DIALECT", 2),
        (*SEARCH, *TAIL[:3], "TIMEOUT", 60_001, "DIALECT", 2),
        (*SEARCH, *TAIL[:3], "TIMEOUT", 0, "DIALECT", 2),
        (*SEARCH, *TAIL[:-1], 1),
        (*SEARCH, *TAIL[:-2]),
        (*SEARCH[:3], *SEARCH[7:], *TAIL),
        (*SEARCH[:4], 4, "vec", bytes(8), "p", "x", *SEARCH[7:], *TAIL),
        (*SEARCH[:6], "text", *SEARCH[7:], *TAIL),
        (*SEARCH[:6], bytes(7), *SEARCH[7:], *TAIL),
        (*SEARCH[:8], 3, "__score", "t", *TAIL),
        (*SEARCH[:8], 2, "__score", "__score", *TAIL),
        (*SEARCH[:8], 2, "__score", "a-b", *TAIL),
        ("FT.SEARCH", "i", "(@t:{a})", "PARAMS", 2, "vec", bytes(8), "LIMIT", 0, 0, "TIMEOUT", 1, "DIALECT", 2),
        ("FT.SEARCH", "i", "(@t:{a})", "LIMIT", 0, 10, "TIMEOUT", 1, "DIALECT", 2),
    ],
)
def test_searches_that_are_refused(words):
    """Words that one engine refuses, unused parameters and a LIMIT that cuts are refused, cases B12, B52, B53."""
    with pytest.raises(Refused):
        check_search(words)


CREATE = ("FT.CREATE", "i", "ON", "HASH", "PREFIX", 1, "i:", "STOPWORDS", 0, "SCHEMA")
TAG = ("t", "TAG", "SEPARATOR", "\x1f", "CASESENSITIVE")
VECTOR = ("v", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 3, "DISTANCE_METRIC", "L2")


def test_creations_that_are_taken():
    """Every kind of field has one spelling that both engines take."""
    assert check_create((*CREATE, "b", "TEXT", "NOSTEM", *TAG, "n", "NUMERIC", *VECTOR)) == {
        "b": "TEXT",
        "t": "TAG",
        "n": "NUMERIC",
        "v": "VECTOR",
    }
    check_create((*CREATE, "b", "TEXT", "NOSTEM", "WEIGHT", "2.0", *VECTOR), weights=True)


@pytest.mark.parametrize(
    "words",
    [
        CREATE,
        (*CREATE, *TAG),
        (*CREATE, *VECTOR, *VECTOR),
        (*CREATE, *VECTOR, "w", *VECTOR[1:]),
        (*CREATE, "b", "TEXT", "NOSTEM", "WEIGHT", "2.0", *VECTOR),
        (*CREATE, "b", "TEXT", *VECTOR),
        (*CREATE, "t", "TAG", "SEPARATOR", ",", "CASESENSITIVE", *VECTOR),
        (*CREATE, "t", "TAG", "SEPARATOR", "\x1f\x1f", "CASESENSITIVE", *VECTOR),
        (*CREATE, "t", "TAG", "SEPARATOR", "\x1f", *VECTOR),
        (*CREATE, *TAG, "INDEXEMPTY", *VECTOR),
        (*CREATE, "n", "NUMERIC", "NOINDEX", *VECTOR),
        (*CREATE, "n", "NUMERIC", "SORTABLE", "UNF", *VECTOR),
        (*CREATE, "g", "GEO", *VECTOR),
        (*CREATE, *TAG, "Sortable", "NUMERIC", *VECTOR),
        (*CREATE, "b", "TEXT", "NOSTEM", "weight", "NUMERIC", *VECTOR),
        (*CREATE, "my-field", "NUMERIC", *VECTOR),
        (*CREATE, *VECTOR[:5], "FLOAT64", *VECTOR[6:]),
        (*CREATE, *VECTOR[:7], 32_769, *VECTOR[8:]),
        (*CREATE, *VECTOR[:7], 0, *VECTOR[8:]),
        (*CREATE, *VECTOR[:3], 8, *VECTOR[4:], "M", 16),
        (*CREATE, *VECTOR[:3], 8, *VECTOR[4:]),
        (*CREATE[:5], 9, *"abcdefghi", *CREATE[7:], *VECTOR),
        (*CREATE[:6], "", *CREATE[7:], *VECTOR),
        (*CREATE[:7], "SCHEMA", *VECTOR),
    ],
    ids=repr,
)
def test_creations_that_are_refused(words):
    """Whatever Valkey Search lacks is refused, and so is what differs from our layout."""
    with pytest.raises(Refused):
        check_create(words)


def test_a_tree_is_evaluated():
    """The second reading of a filter has the semantics of the engines."""
    tree = read_query("((@t:{a|b} -@n:[(1 2])|@m:{c})").filter
    assert holds(tree, {"t": ["b"], "n": 1})
    assert holds(tree, {"t": ["a"]})
    assert holds(tree, {"m": ["x", "c"], "n": 2})
    assert not holds(tree, {"t": ["a"], "n": 1.5})
    assert not holds(tree, {})
