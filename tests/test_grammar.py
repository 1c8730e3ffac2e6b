"""The checker itself: it agrees with what the two engines really answered, and refuses what it must.

And every command that any operation builds for Valkey Search, held to it: the operations run as plans on recorded
answers. A new operation that no use in ``USES`` comes through fails a test, and so does a parameter that none passes.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from contextlib import nullcontext, suppress
from importlib import import_module
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.filters import TAG_SEPARATOR
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from retriever import operations
from retriever.documents import Document
from retriever.engines import VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2, VALKEY_SEARCH_1_3
from retriever.errors import InvalidInput, NotSupported, RetrieverError
from retriever.operations.index import Live
from retriever.plans import Ask, Call, Embed, Node, Page, Primaries, Pull, Wait
from retriever.replies import as_dict
from retriever.schema import LAYOUT, Schema
from tests.grammar import (
    Group,
    Knn,
    Not,
    Query,
    Range,
    Refused,
    Tags,
    Word,
    check_command,
    check_create,
    check_search,
    holds,
    read_query,
)
from tests.recorded import OURS, ResponseError, replies
from tests.strategies import FILTERABLE, filters, json_values, numbers, schemas, short_texts, texts

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
        ("@t:é1_", Query(Word("t", "é1_"), None, words=True)),
        (
            "((@t:{a} @b:a)|(-@n:[1 1] (@b:b|@c:b)))",
            Query(
                Group(
                    "or",
                    (
                        Group("and", (Tags("t", ("a",)), Word("b", "a"))),
                        Group(
                            "and", (Not(Range("n", 1, False, 1, False)), Group("or", (Word("b", "b"), Word("c", "b"))))
                        ),
                    ),
                ),
                None,
                words=True,
            ),
        ),
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
        "(hello)",
        "(@t:a*)",
        "(@t:%a%)",
        "(@t:a-b)",
        '(@t:"a b")',
        "(@t:_)",
        "(@t:)",
        "@t:",
        "@t:a b",
        "@t:a|@t:b",
        "-@t:a",
        "(@t:a)" + KNN,
        "@t:a" + KNN,
        "(@t:{a} @b:a)" + KNN,
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
        "(" + "|".join(["@t:{a}"] * 501) + ")",
        "(@t:{" + "x" * 10_240 + "})",
    ],
    ids=lambda text: text[:40],
)
def test_queries_that_are_refused(text):
    """The checker refuses what either engine refuses, reads differently or cannot hold (case B84)."""
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


TEXT = ("FT.SEARCH", "i", "@b:a", "VERBATIM")
RETURN = ("RETURN", 1, "__terms")


def test_searches_by_words_that_are_taken():
    """Terms are counted, or their documents asked for; only an engine that ranks them is told by what."""
    for scores in (False, True):
        assert check_search((*TEXT, "LIMIT", 0, 0, *TAIL[3:]), scores=scores).words
        assert check_search((*TEXT, *RETURN, "LIMIT", 0, 400, *TAIL[3:]), scores=scores).words
    assert check_search((*TEXT, *RETURN, "SCORER", "BM25STD", *TAIL), scores=True).words
    assert check_search((*TEXT, *RETURN, "SCORER", "BM25STD", "WITHSCORES", *TAIL), scores=True).words
    (refused,) = {each.reply.args for each in replies("text, scored") if each.from_valkey_search}
    assert refused == ("Unexpected argument `SCORER`",)
    for words in (
        (*TEXT, *RETURN, "SCORER", "BM25STD", *TAIL),
        (*TEXT, *RETURN, "WITHSCORES", *TAIL),
        (*TEXT[:3], *RETURN, *TAIL),
        (*TEXT, *RETURN, "LIMIT", 0, 0, *TAIL[3:]),
        (*TEXT, "LIMIT", 0, 10, *TAIL[3:]),
    ):
        with pytest.raises(Refused):
            check_search(words)
    with pytest.raises(Refused):
        check_search((*TEXT, *RETURN, "SCORER", "TFIDF", *TAIL), scores=True)


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
        (*CREATE[:6], "{i}:", *CREATE[7:], *VECTOR),
        (*CREATE, *VECTOR, *(word for at in range(65) for word in (f"b{at}", "TEXT", "NOSTEM"))),
        (*CREATE, *VECTOR, *(word for at in range(1_000) for word in (f"n{at}", "NUMERIC"))),
        (*CREATE, *VECTOR[:2], "HNSW", 8, *VECTOR[4:], "M", 513),
        (*CREATE, *VECTOR[:2], "HNSW", 8, *VECTOR[4:], "EF_RUNTIME", 40_001),
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


PLAIN_CREATE = ("FT.CREATE", "i", "ON", "HASH", "PREFIX", 1, "i:", "SCHEMA")


@pytest.mark.parametrize(
    ("args", "route"),
    [
        (("HELLO",), None),
        (("CLIENT", "INFO"), None),
        (("FT._LIST",), None),
        (("FT.INFO", "i"), None),
        (("FT.INFO", b"\xff"), None),
        (("FT.DROPINDEX", "i"), None),
        (("SCAN", 0, "MATCH", "i:*", "COUNT", 10, "TYPE", "hash"), None),
        (("HSET", "k", "__text", b"a"), "k"),
        (("EVAL", "return redis.call('UNLINK', KEYS[1])", 1, "k"), "k"),
        ((*SEARCH, *TAIL), None),
        ((*PLAIN_CREATE, *VECTOR), None),
    ],
    ids=lambda part: repr(part)[:40],
)
def test_commands_that_are_taken(args, route):
    """What we send, and where it goes, has one form for every version of Valkey Search."""
    assert check_command(args, route, old=True) == args[0]
    if args[0] != "FT.CREATE":
        assert check_command(args, route) == args[0]


@pytest.mark.parametrize(
    ("args", "route"),
    [
        (("FT.DROPINDEX", "i", "DD"), None),
        (("FT.INFO", "i", "CLUSTER"), None),
        (("FT.INFO", ""), None),
        (("FT.ALTER", "i", "SCHEMA", "ADD", "n", "NUMERIC"), None),
        (("FT._LIST", "REGEX", "a"), None),
        (("HELLO", 3), None),
        (("CLIENT", "LIST"), None),
        (("FLUSHALL",), None),
        (("KEYS", "*"), None),
        (("MULTI",), None),
        (("CONFIG", "GET", "*"), None),
        (("SCAN", 0), None),
        (("SCAN", 0, "MATCH", "i:*", "COUNT", 0, "TYPE", "hash"), None),
        (("HSET", "k", "f", b"v"), None),
        (("HSET", "k", "f", b"v"), "other"),
        (("HSET", "k", "f", None), "k"),
        (("HSET", "k", "f", True), "k"),
        (("EVAL", "return redis.call('UNLINK', KEYS[1])", 2, "k", "l"), "k"),
        (("EVAL", "return redis.call('UNLINK', KEYS[1])", 1, "k"), "other"),
        (("EVAL", "return redis.call('FT.SEARCH', 'i', '*')", 1, "k"), "k"),
        (("EVAL", "return redis.call(ARGV[1], KEYS[1])", 1, "k"), "k"),
        (("EVAL", "return redis.pcall('UNLINK', KEYS[1])", 1, "k"), "k"),
        (("EVAL", "return 1", 1, "k"), "k"),
    ],
    ids=lambda part: repr(part)[:40],
)
def test_commands_that_are_refused(args, route):
    """A command, an option or a place that we did not mean to use is refused, also inside a script."""
    with pytest.raises(Refused):
        check_command(args, route)


@pytest.mark.parametrize(
    "args",
    [
        ("FT.SEARCH", "i", "(@t:{a})", "LIMIT", 0, 0, "TIMEOUT", 1, "DIALECT", 2),
        (*CREATE, *VECTOR),
        (*PLAIN_CREATE, *VECTOR, "b", "TEXT", "NOSTEM"),
        (*PLAIN_CREATE[:6], "{i}:", "SCHEMA", *VECTOR),
        ("FT.CREATE", "{i}", *PLAIN_CREATE[2:6], "{i}:", "SCHEMA", *VECTOR),
        (*PLAIN_CREATE, *VECTOR[:7], 32_768, *VECTOR[8:]),
        (*PLAIN_CREATE, *VECTOR, *(word for at in range(50) for word in (f"n{at}", "NUMERIC"))),
        (*PLAIN_CREATE, *VECTOR[:2], "HNSW", 8, *VECTOR[4:], "EF_RUNTIME", 4_097),
    ],
    ids=lambda args: repr(args)[:60],
)
def test_commands_that_valkey_search_1_0_refuses(args):
    """Before 1.2 there is no TEXT, no STOPWORDS, no query without a vector, and limits are lower."""
    with pytest.raises(Refused):
        check_command(args, None, old=True)


# --- every command of every operation -------------------------------------------------------------

ROWS = {VALKEY_SEARCH_1_0: 0x010001, VALKEY_SEARCH_1_2: 66049, VALKEY_SEARCH_1_3: 0x010300}  # row -> version number
UNIT = [1.0, 0.1, 0.0, 0.0]
HELLO, CLIENT = (replies(case, ours=True)[0].reply for case in ("hello", "client info"))
INFO, MISSING = (
    next(each.reply for each in replies(case) if each.from_valkey_search)
    for case in ("info, empty", "info of a missing index")
)


def recorded_info(name, prefix, schema=None, *, text=True):
    """FT.INFO as Valkey Search answered it, of another index: its attributes renamed, as many as the schema has."""
    info = as_dict(INFO)
    like = {as_dict(each)[b"type"]: each for each in info[b"attributes"]}
    attributes = []
    if schema is not None:
        wanted = [(each.name, each.kind.encode()) for each in schema.fields if isinstance(each, (Tag, Numeric))]
        wanted += [(each, b"TEXT") for each in schema.text_attributes if text] + [(schema.vector.name, b"VECTOR")]
        for attribute, kind in wanted:
            one = as_dict(like[kind]) | {b"identifier": attribute.encode(), b"attribute": attribute.encode()}
            if kind == b"TAG":
                one[b"SEPARATOR"] = TAG_SEPARATOR.encode()
            if kind == b"VECTOR":
                one[b"index"] = flat(vector_index(as_dict(one[b"index"]), schema.vector))
            attributes.append(flat(one))
    definition = as_dict(info[b"index_definition"]) | {b"prefixes": [prefix]}
    return flat(
        info
        | {b"num_docs": 1_000, b"index_name": name, b"index_definition": flat(definition), b"attributes": attributes}
    )


def vector_index(index, vector):
    """The nested part of a vector's attribute."""
    algorithm = as_dict(index[b"algorithm"])
    if vector.algorithm == "FLAT":
        algorithm = {b"name": b"FLAT", b"block_size": 1024}
    else:
        algorithm |= {b"m": vector.m, b"ef_construction": vector.ef_construction}
    return index | {
        b"dimensions": vector.dims,
        b"distance_metric": vector.metric.encode(),
        b"algorithm": flat(algorithm),
    }


def flat(mapping):
    """Alternating names and values."""
    return [part for pair in mapping.items() for part in pair]


class ValkeySearch:
    """What Valkey Search answers to any of our commands, each of which is held to its grammar; sent: their names.

    there, stored: the index, and its metadata, exist. makes: FT.CREATE succeeds. total: what a count says.
    """

    def __init__(self, row, schema=OURS, *, there=True, stored=True, makes=True, total=1, nodes=(None,)):
        self.row, self.schema = row, schema
        self.there, self.stored, self.makes, self.total, self.nodes = there, stored, makes, total, nodes
        self.sent = []

    def __call__(self, command):
        route = None if isinstance(command.route, Node) else command.route
        old, scores = self.row is VALKEY_SEARCH_1_0, self.row is VALKEY_SEARCH_1_3
        self.sent.append(check_command(command.args, route, old=old, scores=scores))
        return getattr(self, self.sent[-1].lower().replace(".", "_"))(command.args)

    def hello(self, args):
        modules = [[b"name", b"search", b"ver", ROWS[self.row]]]
        mode = b"standalone" if self.nodes == (None,) else b"cluster"
        return flat(as_dict(HELLO) | {b"modules": modules, b"mode": mode})

    def client(self, args):
        return CLIENT

    def ft__list(self, args):
        return [b"other", b"\xff\xfe", *([self.schema.name.encode()] if self.there else [])]

    def ft_info(self, args):
        if args[1] != self.schema.name:
            name = args[1] if isinstance(args[1], bytes) else args[1].encode()
            return recorded_info(name, b"\xff" + name)
        if not self.there:
            return MISSING
        name, prefix = self.schema.name.encode(), self.schema.prefix.encode()
        return recorded_info(name, prefix, self.schema, text=self.row.text)

    def ft_create(self, args):
        self.there = self.makes
        return b"OK" if self.makes else ResponseError("OOM command not allowed when used memory > 'maxmemory'.")

    def ft_dropindex(self, args):
        return b"OK" if self.there else MISSING

    def ft_search(self, args):
        options = args[3:]  # an index may be called RETURN
        if "RETURN" not in options:
            return [self.total]
        held = {"__score": b"0.25", "__text": b"text"}
        at = options.index("RETURN")
        returned = options[at + 2 : at + 2 + options[at + 1]]
        row = {name.encode(): held.get(name, b" text ") for name in returned if name in held or name.startswith("__t")}
        return [1, self.schema.prefix.encode() + b"1", flat(row)]

    def hgetall(self, args):
        held = {"layout": LAYOUT, "name": self.schema.name, "schema": self.schema.to_json(), "dims": 4}
        return flat({name.encode(): str(value).encode() for name, value in held.items()}) if self.stored else []

    def eval(self, args):
        self.stored = self.stored or args[3] == self.schema.metadata_key  # the claim
        return 1

    def scan(self, args):
        return [b"0", [self.schema.prefix.encode() + b"1"]]

    def hmget(self, args):
        if args[1] == self.schema.metadata_key:  # counters
            return [b"7"] * (len(args) - 2)
        return [b"text", *[None] * (len(args) - 3)]

    def hsetnx(self, args):
        return 1

    hexists = delete = hsetnx
    locals()["del"] = hsetnx


def drive(plan, server, documents=()):
    """The plan's result, run to its end as a driver runs it."""
    left, clock = iter(documents), count()
    try:
        step = next(plan)
        while True:
            match step:
                case Ask(commands):
                    answer = [server(command) for command in commands], 0.001
                case Embed(texts, _):
                    answer = np.ones((len(texts), server.schema.vector.dims), "<f4")
                case Call(function, args):
                    answer = function(*args)
                case Wait():
                    answer = float(next(clock))
                case Pull(size):
                    answer = list(islice(left, size))
                case Primaries():
                    answer = list(server.nodes)
                case Page():
                    answer = None
                case _:
                    raise AssertionError(f"a step that no test answers: {step!r}")
            step = plan.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        plan.close()


def public_plans():
    """Every operation: the public generator functions of ``retriever.operations``."""
    found = {}
    for each in pkgutil.walk_packages(operations.__path__, f"{operations.__name__}."):
        module = import_module(each.name)
        for name, function in inspect.getmembers(module, inspect.isgeneratorfunction):
            if not name.startswith("_") and function.__module__ == each.name:
                found[f"{each.name.removeprefix(operations.__name__ + '.')}.{name}"] = function
    return found


def reversing(text, hits):
    return hits[::-1]


FILTER = {"category": "a*", "tags": {"any": ["", "x|y"]}, "year": {"gte": 2020.5, "lt": 2025}}
NEGATED = (Tag("category") != "a") & ((Numeric("year") == 1) | (Numeric("year") > 3))
MANY_WORDS = " ".join(f"word{at} wörd{at}" for at in range(40))
MANY_VALUES = (Tag("category").isin(map(str, range(100)))) & (Numeric("year").isin(range(5)))
DOCUMENTS = [
    Document("1", "a text", {"category": "db", "tags": ["a", ""], "year": 2024, "title": "b", "url": [1]}, UNIT),
    Document("é:*", "", {}, UNIT, ttl_s=60),
    Document("3", "another", {"category": "*"}),
]
# Operation that a Retriever calls -> what it is called with, apart from ``live``.
USES = {
    "index.create": [{"timeout_s": 1.0}],
    "index.wait": [{"timeout_s": 1.0}],
    "index.describe": [{}],
    "index.still_filling": [{}],
    "index.stored_schema": [{"name": "ours"}],
    "read.get": [{"ids": "1", "return_vectors": False}, {"ids": ["1", "é"], "return_vectors": True}],
    "read.exists": [{"ids": "1"}, {"ids": ["1", "é"]}],
    "read.count": [{"filter": None}, {"filter": FILTER}, {"filter": NEGATED}],
    "read.scan": [
        {"filter": None, "batch_size": 10_000, "return_vectors": True},
        {"filter": FILTER, "batch_size": 1, "return_vectors": False},
    ],
    "search.query": [
        {"vector": UNIT, "reranker": None},
        {"vector": UNIT, "reranker": None, "k": 10_000, "filter": FILTER, "timeout_ms": 60_000},
        {"vector": UNIT, "reranker": None, "filter": NEGATED, "ef_runtime": 40_000, "max_distance": 0.5},
        {"vector": UNIT, "reranker": None, "return_fields": [], "return_vectors": True},
        {"text": "a", "reranker": None, "return_fields": ["url", "year", "__text"], "timeout_ms": 1},
        {"text": "a", "reranker": reversing, "rerank": True, "candidates": 50, "k": 5, "return_fields": ["year"]},
        {"text": "a", "reranker": None, "rerank": reversing, "filter": FILTER},
    ],
    "search.query_many": [{"reranker": None, "queries": [{"vector": UNIT, "filter": FILTER}, {"text": "a", "k": 3}]}],
    "retrieve.retrieve": [
        {"text": "a fast store", "reranker": None},
        {"text": "store", "vector": UNIT, "reranker": None, "k": 3, "filter": FILTER, "timeout_ms": 60_000, "depth": 9},
        {"text": MANY_WORDS, "reranker": None, "channels": ["text"], "filter": NEGATED, "min_text_score": 0.1},
        {"text": MANY_WORDS, "reranker": None, "filter": MANY_VALUES, "k": 100, "depth": 10_000},
        {
            "text": "é1_ Straße 日本語",
            "reranker": None,
            "channels": ["text"],
            "filter": ~(Tag("category") == "x"),
            "strict": True,
        },
        {"text": "a store", "reranker": reversing, "rerank": True, "candidates": 20, "collapse": "category"},
        {"text": "store", "reranker": None, "fusion": "append", "diversity": 0.5, "return_fields": ["year"]},
        {
            "text": "store",
            "reranker": None,
            "expand": lambda text: [f"{text} more"],
            "max_distance": 0.5,
            "ef_runtime": 9,
        },
        {"vector": UNIT, "reranker": None, "return_fields": []},
        {"text": "store", "reranker": None, "filter": FILTER, "also": (Tag("category") == "x", 50)},
    ],
    "retrieve.retrieve_many": [{"reranker": None, "queries": [{"text": "store", "filter": FILTER}, {"vector": UNIT}]}],
    "write.upsert": [{"batch_size": 2, "on_batch": None}, {"batch_size": 500, "on_batch": len}],
    "write.update": [{"id": "1", "fields": {"year": 5, "tags": None, "title": "c"}}],
    "write.delete": [
        {"ids": "1", "filter": None, "everything": False},
        {"ids": ["1", "2"], "filter": None, "everything": False},
        {"ids": None, "filter": FILTER, "everything": False},
        {"ids": None, "filter": {}, "everything": True},
    ],
    "write.write_all": [{"documents": DOCUMENTS}],
    "write.store": [{"documents": DOCUMENTS}],
    "write.complete": [{"documents": DOCUMENTS, "leave_out": "category"}],
    "write.drop": [{"delete_documents": False}, {"delete_documents": True}],
}
# The world in which an operation finds itself, other than an index that is as declared.
WORLDS = [
    {"there": False},
    {"there": False, "stored": False},
    {"there": False, "stored": False, "makes": False},
    {"stored": False},
    {"total": 100_000},
    {"total": 300},
    {"nodes": (Node(1), Node(2))},
]


def plans(name, schema=OURS):
    """One plan for each use of an operation."""
    function = public_plans()[name]
    for use in USES[name]:
        live = {"live": Live(schema, embeds=True, embedder="e")}
        yield function(**use, **(live if "live" in inspect.signature(function).parameters else {}))


def everywhere(name, row=VALKEY_SEARCH_1_2):
    """Each use of an operation in each world: the names of the commands that were sent."""
    for world in ({}, *WORLDS):
        for schema in (OURS, Schema("ours", OURS.fields)):  # the dimensions are declared, or not
            for plan in plans(name, schema=schema):
                server = ValkeySearch(row, **world)
                with suppress(RetrieverError, ResponseError):
                    drive(plan, server, DOCUMENTS)
                yield from server.sent


def test_every_operation_is_driven_with_every_parameter():
    """A plan that no use comes through, or a parameter that none passes, may send commands that nobody looked at."""
    entered = set()

    def profile(frame, event, _):
        if event == "call":
            entered.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        for name in USES:
            for _ in everywhere(name):
                pass
    finally:
        sys.setprofile(before)
    assert [name for name, function in public_plans().items() if function.__code__ not in entered] == []
    for name, uses in USES.items():
        passed = {word for use in uses for word in use}
        assert passed == inspect.signature(public_plans()[name]).parameters.keys() - {"live"}, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", USES)
def test_every_command_of_an_operation_is_one_that_valkey_search_takes(name, row):
    """Each operation, on an index that is as declared, comes to its end and sends nothing but what the engine takes."""
    for plan in plans(name):
        server = ValkeySearch(row)
        with suppress(NotSupported) if (name, row.text) == ("retrieve.retrieve", False) else nullcontext():
            drive(plan, server, DOCUMENTS)
        assert server.sent


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("name", USES)
def test_so_it_is_whatever_the_operation_finds(name, row):
    """Without an index, without metadata, in a cluster, with too many matches: the same, or an error that says why."""
    assert list(everywhere(name, row))


def test_the_uses_reach_every_command():
    """All that the checker knows of is sent by some operation in some world, but for HSET, which Valkey Search gets in
    a script.
    """
    sent = {command for name in USES for command in everywhere(name)}
    assert sent == {
        *("FT.CREATE", "FT.SEARCH", "FT.INFO", "FT._LIST", "FT.DROPINDEX"),
        *("HELLO", "SCAN", "EVAL", "HMGET", "HGETALL", "HEXISTS", "HSETNX", "DEL"),
    }


def documents_of(schema):
    """Documents with awkward ids and values, some of them absent."""
    values = {Tag: short_texts, Numeric: numbers, Text: short_texts, Stored: json_values}
    one = {
        field.name: st.lists(short_texts, max_size=3) if getattr(field, "many", False) else values[type(field)]
        for field in schema.fields
    }
    ids = short_texts.filter(lambda id: id and "\0" not in id)
    return st.lists(
        st.builds(
            Document,
            ids,
            short_texts.filter(str.strip),
            st.fixed_dictionaries({}, optional=one),
            ttl_s=st.none() | st.floats(0.001, 1e6),
        ),
        max_size=3,
        unique_by=lambda document: document.id,
    )


@given(schemas, st.sampled_from(list(ROWS)), st.data())
def test_no_schema_and_no_document_leaves_the_grammar(schema, row, data):
    """Whatever is declared and written, it is sent in words that the engine takes, or refused before."""
    server = ValkeySearch(row, schema, there=False, stored=False)
    operation = public_plans()
    live = Live(schema, embeds=True)
    try:
        drive(operation["index.create"](live, timeout_s=1.0), server)
    except NotSupported:
        assert "FT.CREATE" not in server.sent
        return
    documents = data.draw(documents_of(schema))
    written = drive(operation["write.upsert"](live, batch_size=2, on_batch=None), server, documents).written
    assert written == len(documents)
    drive(operation["search.query"](live, None, text="a", k=3, return_vectors=True), server)
    drive(operation["read.get"](live, [document.id for document in documents], return_vectors=True), server)
    drive(operation["write.drop"](live, delete_documents=True), server)


@given(filters, texts, st.sampled_from(list(ROWS)))
def test_no_filter_and_no_text_leaves_the_grammar(filter, text, row):
    """Whatever is asked for, it is sent in words that the engine takes, or refused before."""
    server = ValkeySearch(row, Schema("mixed", FILTERABLE.values(), Vector(dims=4)))
    operation = public_plans()
    for name, words in (
        ("search.query", {"reranker": None, "vector": UNIT, "filter": filter}),
        ("retrieve.retrieve", {"reranker": None, "text": text, "vector": UNIT, "filter": filter}),
        ("read.count", {"filter": filter}),
        ("read.scan", {"filter": filter, "batch_size": 10, "return_vectors": False}),
        ("write.delete", {"ids": None, "filter": filter, "everything": False}),
    ):
        with suppress(InvalidInput, NotSupported):
            drive(operation[name](Live(server.schema), **words), server)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_more_conditions_than_valkey_search_takes(row):
    """Valkey Search takes 500 conditions in one query; more are refused before they are sent."""
    for size, refused in ((500, False), (501, True)):
        filter = Numeric("year").isin(range(size))
        for name, words in (
            ("search.query", {"reranker": None, "vector": UNIT, "filter": filter}),
            ("read.count", {"filter": filter}),
        ):
            server = ValkeySearch(row)
            if refused:
                with pytest.raises(NotSupported, match=f"501 conditions: {row.name} takes 500"):
                    drive(public_plans()[name](Live(OURS), **words), server)
                assert "FT.SEARCH" not in server.sent
            else:
                drive(public_plans()[name](Live(OURS), **words), server)


@pytest.mark.parametrize("copies", [1, 6, 10])
@pytest.mark.parametrize("total", [1, 20, 300])
@pytest.mark.parametrize("filter", [None, FILTER, NEGATED], ids=repr)
def test_many_words_in_many_texts(copies, total, filter):
    """A term is a condition for each Text field that may hold it; the sets of terms are split before they are 500."""
    declared = [field for field in OURS.fields if isinstance(field, (Tag, Numeric))]
    schema = Schema("ours", [*declared, *(Text(f"t{at}") for at in range(copies))], Vector(dims=4))
    server = ValkeySearch(VALKEY_SEARCH_1_2, schema, total=total)
    words = {"text": MANY_WORDS, "channels": ["text"], "filter": filter}
    hits = drive(public_plans()["retrieve.retrieve"](Live(schema), None, **words), server)
    assert [hit.id for hit in hits] in ([], ["1"])


def test_what_an_old_valkey_search_cannot_count_is_walked():
    """Valkey Search 1.0 answers no query without a vector, so a count with a filter walks the keys."""
    server = ValkeySearch(VALKEY_SEARCH_1_0)
    assert drive(public_plans()["read.count"](Live(OURS), {"category": "db"}), server) == 0
    assert server.sent == ["HELLO", "SCAN", "HMGET"]
    assert drive(public_plans()["read.count"](Live(OURS), ~(Tag("category") == "db")), server) == 1
