"""Replies of both engines and both protocols are read alike; what cannot be read is a ReplyError."""

from __future__ import annotations

import copy
import math
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fields.kinds import Numeric, Tag, Text, Vector
from retriever.engines import REDISEARCH_2, VALKEY_SEARCH_1_2
from retriever.errors import IndexExists, IndexMissing, NotSupported, ReplyError, ServerError
from retriever.operations.index import info_command
from retriever.operations.search import shape
from retriever.plans import Command, parsed
from retriever.queries import search_command
from retriever.replies import (
    Rows,
    as_dict,
    database,
    done,
    index_info,
    index_names,
    index_prefixes,
    integer,
    scan_page,
    search_rows,
    search_total,
    server,
    text_map,
    values,
)
from retriever.schema import Schema
from tests.fakes import shown
from tests.recorded import OURS, RECORDED, of_command, replies

# The index that the two engines were compared with; n and t are as they were indexed, v its vector.
THEIRS = Schema("r", [Tag("g"), Numeric("n"), Text("t")], Vector("v", 4))


def asked_for(each):
    """The names that a recorded FT.SEARCH asked for."""
    words = list(each.command)
    if "RETURN" not in words:
        return [b"__score", b"t", b"g", b"n", b"v"]
    at = words.index("RETURN")
    return [word if isinstance(word, bytes) else word.encode() for word in words[at + 2 : at + 2 + words[at + 1]]]


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("each", replies("knn, return"), ids=str)
def test_rows_of_every_engine_and_protocol(each):
    """Rows are the values asked for, in that order, whoever sent them in whatever form."""
    assert search_rows(each.reply, asked_for(each)) == Rows(
        3,
        [
            (b"r:1", [b"0.00124764442444", b"alpha beta", b"1"]),
            (b"r:2", [b"0.00184160470963", b"beta gamma", b"2.5"]),
            (b"r:3", [b"0.950062394142", b"delta", b"-3"]),
        ],
    )


@pytest.mark.parametrize("each", replies("knn, everything back"), ids=str)
def test_rows_are_read_by_name_where_the_order_is_another(each):
    """An engine that sends more than was asked for, in its own order, is read by name."""
    rows = search_rows(each.reply, [b"v", b"n", b"none", b"__score"]).rows
    assert rows[0] == (b"r:1", [b"\0\0\x80?" + bytes(12), b"1", None, b"0.00124764442444"])


@pytest.mark.parametrize("each", replies("knn, nothing passes"), ids=str)
def test_no_rows(each):
    """An answer without rows is none, which is no error."""
    assert search_rows(each.reply, [b"__score"]) == Rows(0, [])
    assert search_total(each.reply) == 0


@pytest.mark.parametrize("each", replies("count"), ids=str)
def test_a_total(each):
    """A count is the reply's total."""
    assert search_total(each.reply) == 2


def test_a_key_that_expired_has_no_values():
    """(key, nil) is a row whose document is gone, in both protocols."""
    assert search_rows([1, b"k", None], [b"a"]).rows == [(b"k", None)]
    assert search_rows({b"total_results": 1, b"results": [{b"id": b"k"}]}, [b"a"]).rows == [(b"k", None)]


@pytest.mark.parametrize(
    "each",
    [each for each in of_command("FT.SEARCH") if isinstance(each.reply, dict) and not each.reply[b"warning"]],
    ids=str,
)
def test_warnings_are_read(each):
    """RESP3 says when an answer is cut short; what it gives is given, with the reason, case B55."""
    assert search_rows(each.reply, asked_for(each)).warnings == ()
    cut = search_rows({**each.reply, b"warning": [b"Timeout limit was reached"]}, asked_for(each))
    assert cut.warnings == ("Timeout limit was reached",)
    assert cut.rows == search_rows(each.reply, asked_for(each)).rows


@pytest.mark.parametrize("each", replies("our query, timed out", ours=True), ids=str)
def test_a_search_that_ran_out_of_time(each):
    """RediSearch answers nothing, without a word in RESP2, and in RESP3 with a warning and a row that has no id."""
    rows = search_rows(each.reply, asked_for(each), 3)
    assert (rows.total, rows.rows) == (0, [])
    if isinstance(each.reply, dict):
        hits, reasons = shape(OURS, ["__text"]).hits(rows)
        assert (hits, reasons) == ([], ("Timeout limit was reached",))
        with pytest.raises(ReplyError, match="'id'"):  # unless the engine says why, a row has an id
            search_rows({**each.reply, b"warning": []}, asked_for(each), 3)


@pytest.mark.parametrize("each", replies("knn, return"), ids=str)
def test_rows_that_were_counted_and_not_given(each):
    """A reply that names more matches than it gives rows, and was not asked for fewer, is not whole and says so."""
    read = search_command(Schema("r", [], Vector("v", 4)), 3, ("t", "n"), 5_000)("*", b"").parse
    assert read(each.reply).warnings == ()
    cut = each.reply[:1] if isinstance(each.reply, list) else {**each.reply, b"results": []}
    assert read(cut) == Rows(3, [], ("the engine found 3 and gave 0",))
    assert (
        search_rows(each.reply[:5] if isinstance(each.reply, list) else each.reply, asked_for(each), 2).warnings == ()
    )


@pytest.mark.parametrize("each", replies("info, empty"), ids=str)
def test_index_info_of_every_engine_and_protocol(each):
    """FT.INFO tells the same of the same index, whoever sent it in whatever form."""
    info = index_info(each.reply)
    assert (info.name, info.prefixes, info.documents, info.failures) == ("r", ("r:",), 0, 0)
    assert (info.indexing, info.percent_indexed) == (False, 100.0)
    assert (info.last_error, info.last_error_key) == (None, None)
    assert info.attributes == {
        "t": {"type": "TEXT"},
        "g": {"type": "TAG", "exact": False},
        "n": {"type": "NUMERIC"},
        "v": {"type": "VECTOR", "algorithm": "HNSW", "dims": 4, "metric": "COSINE", "m": 16, "ef_construction": 200},
    }


@pytest.mark.parametrize("each", replies("info, four good documents, two bad ones, one without vector"), ids=str)
def test_failures_are_told(each):
    """Both engines count the documents that they could not index; RediSearch names the last one, case B36."""
    info = index_info(each.reply)
    assert info.failures == 2
    if each.from_valkey_search:
        assert (info.documents, info.last_error, info.last_error_key) == (7, None, None)
    else:
        assert (info.documents, info.last_error_key) == (5, "r:bad2")
        assert info.last_error == "Invalid numeric value: '1,000'"


@pytest.mark.parametrize(
    ("name", "value", "indexing", "percent"),
    [
        (b"indexing", 1, True, 100.0),
        (b"percent_indexed", b"0.25", False, 25.0),
        (b"percent_indexed", 0.25, False, 25.0),
        (b"percent_indexed", b"1.5", False, 100.0),
        (b"percent_indexed", b"-1", False, 0.0),
    ],
)
def test_an_index_that_is_being_filled(name, value, indexing, percent):
    """A backfill is told by both engines in words of their own, case B67."""
    (redisearch,) = [each for each in replies("info, empty") if each.source.endswith("redisearch-2.10.5-resp3")]
    info = index_info({**redisearch.reply, name: value})
    assert (info.indexing, info.percent_indexed) == (indexing, percent)


@pytest.mark.parametrize("each", replies("info, empty"), ids=str)
def test_a_backfill_of_valkey_search(each):
    """Valkey Search calls it backfill_in_progress and backfill_complete_percent, both strings."""
    if each.from_valkey_search:
        reply = as_dict(each.reply) | {b"backfill_in_progress": b"1", b"backfill_complete_percent": b"0.500000"}
        info = index_info(reply)
        assert (info.indexing, info.percent_indexed) == (True, 50.0)
        assert not index_info(reply | {b"backfill_in_progress": b"0"}).indexing


@pytest.mark.parametrize("each", replies("info, empty"), ids=str)
def test_the_definition_that_valkey_search_1_3_gives(each):
    """From 1.3 on the definition may hold a number and one pair more; it is read by name."""
    if each.from_valkey_search:
        info = as_dict(each.reply)
        definition = [*info[b"index_definition"][:-1], 0.5, b"score_field", b""]
        assert index_info(info | {b"index_definition": definition}) == index_info(each.reply)


@pytest.mark.parametrize(
    "reply",
    [
        [b"mode", b"PRIMARY", b"index_name", b"r", b"num_docs", b"4", b"num_records", b"9"],
        [b"mode", b"CLUSTER", b"index_name", b"r", b"backfill_in_progress", b"0", b"state", b"ready"],
    ],
    ids=["PRIMARY", "CLUSTER"],
)
def test_info_of_a_whole_cluster_is_no_info_of_an_index(reply):
    """What FT.INFO answers in Valkey Search's cluster scopes has no attributes, and is not taken for an index."""
    for parse in (index_info, index_prefixes):
        with pytest.raises(ReplyError):
            parse(reply)


@pytest.mark.parametrize("each", of_command("FT.INFO"), ids=str)
def test_prefixes_of_an_index(each):
    """Of another program's index the prefixes alone are read, as bytes, whatever else it holds."""
    expected = {"info of our HNSW index": b"ours:", "info of our FLAT index": b"flat/"}.get(each.case, b"r:")
    assert index_prefixes(each.reply) == (expected,)
    foreign = as_dict(each.reply) | {b"attributes": [[b"identifier", b"\xff", b"type", b"GEO", b"NOBODY KNOWS"]]}
    with pytest.raises(ReplyError):
        index_info(foreign)
    assert index_prefixes(foreign) == (expected,)
    assert index_prefixes(foreign | {b"index_definition": [b"prefixes", [b"\xff:", b"a"]]}) == (b"\xff:", b"a")
    assert index_prefixes(foreign | {b"index_definition": [b"prefixes", []]}) == (b"",)


def test_names_that_are_no_text():
    """An index of another program may have any bytes for a name: they are kept, and hide no other."""
    names = index_names([b"ours", b"\xff\xfe", "é".encode()])
    assert [name.encode(errors="surrogateescape") for name in names] == [b"ours", "é".encode(), b"\xff\xfe"]


@pytest.mark.parametrize("each", [*replies("list"), *replies("indexes", ours=True)], ids=str)
def test_names_of_indexes(each):
    """FT._LIST is a list or a set, and comes sorted."""
    expected = ["r"] if each.case == "list" else ["flat", "ours"]
    assert index_names(each.reply) == expected
    assert index_names(set(each.reply)) == expected


@pytest.mark.parametrize("each", replies("hello", ours=True), ids=str)
def test_the_server_of_hello(each):
    """HELLO names the server, its mode and its search engine."""
    found = server(each.reply)
    assert (found.name, found.version, found.cluster, found.engine) == ("valkey", "9.1.2", False, REDISEARCH_2)
    assert str(found) == "valkey 9.1.2 with RediSearch 2.10.5"


@pytest.mark.parametrize("each", replies("modules"), ids=str)
def test_the_engine_of_recorded_modules(each):
    """The modules that both engines load are told apart by their version numbers."""
    (hello,) = [hello for hello in replies("hello", ours=True) if hello.source[-1] == each.source[-1]]
    expected = VALKEY_SEARCH_1_2 if each.from_valkey_search else REDISEARCH_2
    assert server(as_dict(hello.reply) | {b"modules": each.reply}).engine is expected


def test_plain_replies():
    """The replies of plain commands, as both protocols send them."""
    for each in replies("metadata", ours=True):
        read = text_map(each.reply)
        assert (read["layout"], read["dims"], read["metric"], read["generation"]) == ("1", "4", "COSINE", "1")
        assert Schema.from_json("ours", read["schema"]) == OURS
    for each in replies("metadata, none", ours=True):
        assert text_map(each.reply) == {}
    for each in replies("scan", ours=True):
        assert scan_page(each.reply) == (0, [b"ours:1", "ours:naïve:é".encode()])
    for each in replies("no document", ours=True):
        assert values(each.reply) == [None, None]
    for each in replies("exists", ours=True):
        assert integer(each.reply) == 1
    for each in replies("client info", ours=True):
        assert database(each.reply) == 0
    assert scan_page([17, [b"k"]]) == scan_page([b"17", [b"k"]]) == (17, [b"k"])
    assert done(b"OK") is None


@pytest.mark.parametrize("each", replies("our query, everything back", ours=True), ids=str)
def test_hits_of_recorded_rows(each):
    """From recorded bytes to hits: distances are numbers, fields what was written, ids without prefix, case B41."""
    wanted = shape(OURS, None, return_vectors=True)
    assert [name.encode() for name in ("__score", *wanted.returned)] == asked_for(each)
    hits, reasons = wanted.hits(search_rows(each.reply, asked_for(each)))
    assert reasons == ()
    assert [(hit.id, hit.score, hit.text) for hit in hits] == [
        ("1", 0.00496286153793, "alpha beta"),
        ("naïve:é", 0.91100114584, "gamma"),
    ]
    assert hits[0].fields == {
        "category": "db",
        "tags": ["a", "", "x "],
        "year": 2024,
        "title": "A title",
        "url": {"a": [1]},
    }
    assert hits[1].fields == {"category": "*"}
    assert [hit.vector.tolist() for hit in hits] == [[1, 0, 0, 0], [0, 1, 0, 0.5]]


# --- what is not ----------------------------------------------------------------------------------

# What an engine said -> what becomes of it; whatever is not here is a plain ServerError.
SAID = {
    "info of a missing index": IndexMissing,
    "search of a missing index": IndexMissing,
    "drop of a missing index": IndexMissing,
    "create again": IndexExists,
    "alias": NotSupported,
    "alter": NotSupported,
}


@pytest.mark.parametrize("each", [each for each in RECORDED if isinstance(each.reply, Exception)], ids=str)
def test_every_recorded_refusal_is_an_error_of_its_class(each):
    """A refusal goes the way of every reply: it is raised, as its class, with what the engine said or what to do."""
    with pytest.raises(ServerError) as caught:
        parsed(Command(each.command, done), each.reply)
    assert type(caught.value) is SAID.get(each.case, ServerError)
    assert str(each.reply) in str(caught.value) or "create_index() makes it" in str(caught.value)


@pytest.mark.parametrize("each", [each for each in of_command("FT.SEARCH") if "RETURN" in each.command], ids=str)
def test_every_recorded_search_is_read_whole(each):
    """Every row that an engine gave is read, whoever gave it in whatever form."""
    if "WITHSCORES" in each.command and isinstance(each.reply, list):
        return  # not ours, see test_rows_of_another_shape_are_not_guessed
    rows = parsed(Command(each.command, lambda reply: search_rows(reply, asked_for(each), 1_000)), each.reply)
    if isinstance(each.reply, dict) and each.reply[b"warning"]:
        return  # see test_a_search_that_ran_out_of_time
    given = each.reply[b"results"] if isinstance(each.reply, dict) else each.reply[1::2]
    assert (len(rows.rows), rows.total, rows.warnings) == (len(given), len(given), ())
    assert all(len(values) == len(asked_for(each)) for _, values in rows.rows)
    if "KNN" in each.command[2]:
        assert all(math.isfinite(float(values[0])) for _, values in rows.rows)


@pytest.mark.parametrize("each", of_command("FT.INFO"), ids=str)
def test_every_recorded_index_is_read_whole(each):
    """FT.INFO, on the way that create and describe take: no attribute is lost."""
    info = parsed(info_command(each.command[1]), each.reply)
    assert info.name == each.command[1]
    assert len(info.attributes) == len(as_dict(each.reply)[b"attributes"])


@pytest.mark.parametrize(
    ("parse", "reply"),
    [
        (lambda reply: search_rows(reply, [b"a"]), None),
        (lambda reply: search_rows(reply, [b"a"]), b"OK"),
        (lambda reply: search_rows(reply, [b"a"]), 0),
        (lambda reply: search_rows(reply, [b"a"]), []),
        (lambda reply: search_rows(reply, [b"a"]), {}),
        (lambda reply: search_rows(reply, [b"a"]), [1, b"k"]),
        (lambda reply: search_rows(reply, [b"a"]), [1, b"k", b"v"]),
        (lambda reply: search_rows(reply, [b"a"]), [1, "k", [b"a", b"1"]]),
        (lambda reply: search_rows(reply, [b"a"]), [1, b"k", [b"a"]]),
        (lambda reply: search_rows(reply, [b"a"]), [1, b"k", [b"a", None]]),
        (lambda reply: search_rows(reply, [b"a"]), [1, b"k", [b"a", 5]]),
        (lambda reply: search_rows(reply, [b"a"]), [None, b"k", [b"a", b"1"]]),
        (lambda reply: search_rows(reply, [b"a"]), {b"total_results": 1, b"results": b""}),
        (lambda reply: search_rows(reply, [b"a"]), {b"total_results": 1, b"results": {}}),
        (lambda reply: search_rows(reply, [b"a"]), {b"total_results": 1, b"results": [{}]}),
        (search_total, None),
        (search_total, []),
        (search_total, [True]),
        (search_total, [-1]),
        (search_total, [b"1"]),
        (index_info, []),
        (index_info, [b"index_name"]),
        (index_info, {b"index_name": b"r"}),
        (index_names, None),
        (index_names, b""),
        (index_names, {}),
        (index_names, [None]),
        (server, []),
        (server, b"HELLO"),
        (server, {b"server": b"valkey", b"version": b"9", b"mode": b"standalone", b"modules": b""}),
        (text_map, None),
        (text_map, [b"a"]),
        (text_map, [b"a", b"\xff"]),
        (scan_page, None),
        (scan_page, [b"0"]),
        (scan_page, [b"x", []]),
        (scan_page, [b"0", b""]),
        (scan_page, [b"0", None]),
        (scan_page, [b"0", ["k"]]),
        (values, None),
        (values, b"a"),
        (values, [5]),
        (integer, None),
        (integer, b"1"),
        (database, b"id=3"),
        (database, None),
    ],
    ids=shown,
)
def test_replies_that_cannot_be_read(parse, reply):
    """A reply that cannot be read is a ReplyError, never an empty result."""
    with pytest.raises(ReplyError, match="unreadable reply") as caught:
        parse(reply)
    assert isinstance(caught.value, ServerError)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("case", ["knn, nocontent", "tag", "text, scored"])
def test_rows_of_another_shape_are_not_guessed(case):
    """Keys without fields and rows with scores between are no rows of ours, and no empty result in RESP2."""
    for each in replies(case):
        if isinstance(each.reply, list):
            with pytest.raises(ReplyError):
                search_rows(each.reply, [b"t"])


@pytest.mark.parametrize("distance", [None, b"", b"abc", b"0,5"], ids=repr)
def test_a_row_without_a_distance(distance):
    """A distance that is no number is a ReplyError, case B41."""
    with pytest.raises(ReplyError, match="without a readable distance"):
        shape(OURS, []).hits(Rows(1, [(b"ours:1", [distance])]))


@pytest.mark.parametrize(
    ("bad", "fine", "wanted"),
    [
        ([b"nan"], [b"0.1"], shape(OURS, [])),
        ([b"-nan"], [b"0.1"], shape(OURS, [])),
        ([b"inf"], [b"0.1"], shape(OURS, [])),
        ([b"0.5", b"\xff"], [b"0.1", b"text"], shape(OURS, ["__text"])),
        ([b"0.5", b"\xff"], [b"0.1", b"db"], shape(OURS, ["category"])),
        ([b"0.5", b"abc"], [b"0.1", b"7"], shape(OURS, ["year"])),
        ([b"0.5", b"{"], [b"0.1", b"{}"], shape(OURS, ["url"])),
        ([b"0.5", b"[" * 100_000], [b"0.1", b"[]"], shape(OURS, ["url"])),
        ([b"0.5", b"12345"], [b"0.1", bytes(16)], shape(OURS, [], return_vectors=True)),
    ],
    ids=lambda part: repr(part)[:30],
)
def test_rows_that_another_program_wrote(bad, fine, wanted):
    """A row whose values are none of ours is left out and told, and takes no other with it, case B43."""
    hits, reasons = wanted.hits(Rows(2, [(b"ours:1", bad), (b"ours:2", fine)]))
    assert [hit.id for hit in hits] == ["2"]
    assert reasons == ("1 rows hold values that this library did not write",)


def test_hits_that_expired_are_told():
    """A row without values is counted, and the answer is not whole."""
    hits, reasons = shape(OURS, []).hits(Rows(2, [(b"ours:1", None), (b"ours:2", [b"0.5"])], ("cut",)))
    assert [hit.id for hit in hits] == ["2"]
    assert reasons == ("cut", "1 hits expired while the engine was answering")


@given(st.lists(st.tuples(st.integers(0, 5), st.text("abé", min_size=1, max_size=3)), unique_by=lambda row: row[1]))
def test_hits_stand_nearest_first_and_ties_by_id(rows):
    """Whatever order an engine sends, hits come by (distance, id), case B53."""
    found = Rows(len(rows), [(f"ours:{id}".encode(), [str(score / 4).encode()]) for score, id in rows])
    hits, _ = shape(OURS, []).hits(found)
    assert [(hit.score, hit.id) for hit in hits] == sorted((score / 4, id) for score, id in rows)


# --- mutations ------------------------------------------------------------------------------------


def paths(node, path=()):
    """Where each node of a reply stands."""
    yield path
    if isinstance(node, list):
        for at, each in enumerate(node):
            yield from paths(each, (*path, at))
    elif isinstance(node, dict):
        for key, each in node.items():
            yield from paths(each, (*path, key))


STRANGE = [None, 0, -1, 5, 2.5, math.nan, math.inf, True, b"", b"x", b"\xff", "", "text", [], [None], [b"a", b"b"]]
STRANGE += [{}, {b"a": b"b"}, {b"a": None}, set(), object(), 10**400, ReplyError("x"), [[[]]]]


def mutated(reply, data):
    """The reply with one node replaced, dropped, repeated or cut short."""
    path = data.draw(st.sampled_from(list(paths(reply))))
    strange = data.draw(st.sampled_from(STRANGE))
    if not path:
        return strange
    whole = copy.deepcopy(reply)
    parent = whole
    for step in path[:-1]:
        parent = parent[step]
    at = path[-1]
    match data.draw(st.sampled_from(["replace", "drop", "repeat", "cut"])):
        case "replace":
            parent[at] = strange
        case "drop":
            del parent[at]
        case "repeat" if isinstance(parent, list):
            parent.insert(at, parent[at])
        case "cut" if isinstance(parent, list):
            del parent[at:]
        case "cut" if isinstance(parent[at], (bytes, list)):
            parent[at] = parent[at][: data.draw(st.integers(0, len(parent[at])))]
    return whole


def read_search(each, reply):
    """As a search reads it: rows, then hits. An answer that counts rows and has none is never a whole one."""
    schema, names = (OURS if each.source.startswith("ours") else THEIRS), [name.decode() for name in asked_for(each)]
    rows = search_rows(reply, [name.encode() for name in names], 1_000)
    assert len(rows.rows) >= rows.total or rows.warnings
    if names[0] == "__score":
        fields = [name for name in names[1:] if name in schema.by_name or name == "__text"]
        wanted = shape(schema, fields, return_vectors=names[-1] == schema.vector.name)
        if list(wanted.returned) == names[1:]:
            wanted.hits(rows)
    return rows


READERS = {
    "FT.SEARCH": [read_search, lambda each, reply: search_total(reply)],
    "FT.INFO": [
        lambda each, reply: index_prefixes(reply),
        lambda each, reply: OURS.live_differences(index_info(reply)),
    ],
    "FT._LIST": [lambda each, reply: [name.encode(errors="surrogateescape") for name in index_names(reply)]],
    "HELLO": [lambda each, reply: str(server(reply))],
    "HGETALL": [lambda each, reply: text_map(reply)],
    "SCAN": [lambda each, reply: scan_page(reply)],
    "HMGET": [lambda each, reply: values(reply)],
    "EXISTS": [lambda each, reply: integer(reply)],
    "CLIENT": [lambda each, reply: database(reply)],
}


@pytest.mark.parametrize(
    "commands",
    [["FT.SEARCH"], ["FT.INFO"], [command for command in READERS if command not in ("FT.SEARCH", "FT.INFO")]],
    ids=["FT.SEARCH", "FT.INFO", "the others"],
)
@settings(max_examples=300)
@given(data=st.data())
def test_any_mutation_parses_or_raises_reply_error(commands, data):
    """A reply with a node replaced, dropped, repeated or cut is read, or is a ReplyError; nothing else is raised."""
    command = data.draw(st.sampled_from(commands))
    each = data.draw(st.sampled_from(of_command(command)))
    reply = mutated(each.reply, data)
    if data.draw(st.booleans()):
        reply = mutated(reply, data)
    for read in READERS[command]:
        with suppress(ReplyError):
            read(each, reply)


@pytest.mark.parametrize("command", READERS)
def test_every_prefix_parses_or_raises_reply_error(command):
    """A reply that stops after any number of its parts is read, or is a ReplyError."""
    for each in of_command(command):
        for read in READERS[command]:
            for end in range(len(each.reply) if isinstance(each.reply, list) else 0):
                with suppress(ReplyError):
                    read(each, each.reply[:end])


def test_every_recording_has_a_reader_or_is_not_ours():
    """The commands that this library sends are among those that the mutations cover."""
    others = {"FT.CREATE", "FT.DROPINDEX", "FT.AGGREGATE", "MODULE", "FT.ALIASADD", "FT.ALTER"}
    assert {each.command[0] for each in RECORDED} == READERS.keys() | others
