"""Hybrid retrieval as plans: what is asked, in how many round trips, and what is made of answers that fail."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from fields.errors import InvalidInput
from fields.kinds import Numeric, Tag, Text, Vector
from retriever.client import Retriever
from retriever.documents import FusedHit
from retriever.engines import REDISEARCH_2, VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2, VALKEY_SEARCH_1_3
from retriever.errors import IndexMissing, NotSupported, PermissionDenied, ReplyError, ServerError
from retriever.fusion import Append, Linear, Rrf
from retriever.operations.index import Live
from retriever.operations.retrieve import retrieve, retrieve_many
from retriever.operations.search import query
from retriever.plans import Ask, Call, Embed, Primaries, Wait
from retriever.schema import Schema
from tests import grammar
from tests.recorded import ResponseError, replies

SCHEMA = Schema("ours", [Tag("category"), Tag("tags", many=True), Numeric("year"), Text("title")], Vector(dims=2))
EAST = [1.0, 0.0]
INFO = [*replies("info of our HNSW index", ours=True)[0].reply]
INFO[INFO.index(b"num_docs") + 1] = b"100"
HELLO = replies("hello", ours=True)[0].reply
GONE = ResponseError("no such index")
WAYS = pytest.mark.parametrize("engine", [REDISEARCH_2, VALKEY_SEARCH_1_2], ids=["ranked", "unranked"])


def live(schema=SCHEMA, **known):
    return Live(schema, **{"engine": REDISEARCH_2, "checked": True, **known})


class Server:
    """An index of a few documents, (id, terms, distance), that answers commands and keeps what it was sent.

    replies: what to answer instead, by the first word of the command, or by ``knn``, ``words`` and ``count`` for the
    three kinds of FT.SEARCH: an exception, or a function of the command.
    """

    def __init__(self, *documents, clock=0.0, ahead=2, **replies):
        self.ahead = ahead  # how often it shows what goes ahead: a broken connection makes a second time
        self.documents = documents or (("a", "alpha", 0.1), ("b", "beta", 0.2))
        self.replies = replies
        self.clock = clock
        self.trips = []
        self.went_ahead = False

    @staticmethod
    def kind(command):
        """The command's first word, or which FT.SEARCH it is."""
        if command.args[0] != "FT.SEARCH":
            return command.args[0]
        if "=>[KNN" in command.args[2]:
            return "knn"
        return "count" if command.args[command.args.index("LIMIT") + 2] == 0 else "words"

    def answer(self, command):
        kind = self.kind(command)
        reply = self.replies.get(kind)
        if reply is not None:
            return reply if isinstance(reply, Exception) else reply(command)
        asked = re.findall(r"@\w+:(\w+)", str(command.args[2])) if command.args[0] == "FT.SEARCH" else []
        held = [each for each in self.documents if set(each[1].split()) & set(asked)]
        match kind:
            case "knn":
                rows = [[f"ours:{id}".encode(), [b"__score", str(far).encode()]] for id, _, far in self.documents]
                return [len(rows), *(part for row in rows for part in row)]
            case "count":
                return [len(held)]
            case "words":
                rows = [[f"ours:{id}".encode(), [b"__terms", f" {terms} ".encode()]] for id, terms, _ in held]
                return [len(rows), *(part for row in rows for part in row)]
            case "HMGET" if command.args[1] == SCHEMA.metadata_key:
                return [b"4", b"2"] * (len(command.args[2:]) // 2)
            case "HMGET":
                id = command.args[1].removeprefix("ours:")
                text = next((terms.encode() for each, terms, _ in self.documents if each == id), None)
                return [text if name in ("__text", "__of_embedding") else None for name in command.args[2:]]
            case "FT.INFO":
                return INFO
            case "HELLO":
                return HELLO
        raise AssertionError(command)

    def run(self, plan):
        """The plan's result; trips: the kinds of command of each round trip, and the names of the other steps."""
        try:
            step = next(plan)
            while True:
                match step:
                    case Ask(commands, ahead):
                        self.trips.append([self.kind(command) for command in commands])
                        try:
                            answer = [self.answer(command) for command in commands], 0.001
                            self.went_ahead |= ahead is not None
                            for _ in range(self.ahead if ahead else 0):
                                ahead.prepare()
                                ahead.read(answer[0][: ahead.first])
                        except ConnectionError as error:
                            step = plan.throw(error)
                            continue
                    case Embed(texts, _):
                        self.trips.append("embed")
                        answer = np.array([EAST] * len(texts), np.float32)
                    case Call(function, args):
                        answer = function(*args)
                    case Wait(0):
                        answer = self.clock
                    case Primaries():
                        answer = (None,)
                step = plan.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            plan.close()


def ask(server, live_=None, reranker=None, **arguments):
    return server.run(retrieve(live_ or live(), reranker, **arguments))


def ids(hits):
    return [hit.id for hit in hits]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "a text, a vector or both, not neither"),
        ({"text": 5}, "text: a string expected"),
        ({"text": "\ud800"}, "text"),
        ({"text": "the"}, r"holds no terms.*scan\(filter\)"),
        ({"text": ""}, "holds no terms"),
        *(({"vector": EAST, "k": k}, "^k ") for k in (0, -1, 2.5, True, "5", 10_001)),
        *(({"vector": EAST, "depth": depth}, "^depth ") for depth in (9, 10_001, 50.0, True, "50")),
        ({"vector": EAST, "fusion": "rff"}, 'no fusion \'rff\'; give "rrf", "linear", "append"'),
        ({"vector": EAST, "fusion": None}, "no fusion None"),
        ({"vector": EAST, "fusion": Linear}, "give an instance"),
        ({"vector": EAST, "channels": []}, "one or both of"),
        ({"vector": EAST, "channels": ["vector", "words"]}, "one or both of"),
        ({"vector": EAST, "channels": "vector"}, "a list of"),
        ({"vector": EAST, "channels": 5}, "a list of"),
        ({"vector": EAST, "channels": [["vector"]]}, "one or both of"),
        ({"vector": EAST, "channels": [np.array(["vector", "text"])]}, "one or both of"),
        ({"vector": EAST, "channels": ["text"]}, "needs a text"),
        ({"text": "alpha", "channels": ["vector"]}, "needs vector=, or an embedder"),
        ({"vector": EAST, "filter": {"typo": "x"}}, "unknown field"),
        ({"text": "alpha", "filter": {"category": None}}, "None"),
        ({"text": "alpha", "filter": {"title": "x"}}, "TEXT"),
        ({"text": "alpha", "filter": "@category:{x}"}, "a Filter or a mapping"),
        ({"text": "alpha", "max_distance": math.nan}, "max_distance"),
        ({"text": "alpha", "min_text_score": "1"}, "min_text_score"),
        ({"text": "alpha", "min_text_score": True}, "min_text_score"),
        ({"text": "alpha", "candidates": 20}, "what a reranker sees"),
        ({"text": "alpha", "rerank": len, "candidates": 9}, "candidates 9: an int from 10"),
        ({"text": "alpha", "rerank": True}, "needs a reranker"),
        ({"text": "alpha", "rerank": "model"}, "a callable expected"),
        ({"vector": EAST, "rerank": len}, "it needs text="),
        *(({"vector": EAST, "diversity": value}, "diversity") for value in (-0.1, 1.1, math.nan, "x", True)),
        ({"text": "alpha", "collapse": "title"}, "collapse: 'title' is no TAG field of one value; those are category"),
        ({"text": "alpha", "collapse": "tags"}, "no TAG field of one value"),
        ({"text": "alpha", "collapse": "year"}, "no TAG field of one value"),
        ({"text": "alpha", "collapse": "typo"}, "no TAG field of one value"),
        ({"text": "alpha", "collapse": ["category"]}, "no TAG field of one value"),
        ({"text": "alpha", "expand": "more"}, "expand: a callable expected"),
        ({"vector": EAST, "expand": len}, "it needs text="),
        ({"text": "alpha", "expand": len, "fusion": "linear"}, "fused by rrf"),
        ({"text": "alpha", "return_fields": ["typo"]}, "unknown field 'typo'"),
        ({"text": "alpha", "return_fields": "category"}, "a list of names"),
        ({"text": "alpha", "strict": 1}, "strict: True or False"),
        ({"text": "alpha", "ef_runtime": 0}, "ef_runtime"),
        ({"text": "alpha", "timeout_ms": 60_001}, "timeout_ms"),
        ({"text": "alpha", "vector": [0, 0]}, "a zero vector"),
        ({"text": "alpha", "vector": [1, math.nan]}, "nan at position 1"),
        ({"text": "alpha", "vector": [1, 2, 3]}, "3 dimensions, the index has 2"),
        ({"text": "alpha", "vector": "ab"}, "an array of numbers"),
    ],
    ids=lambda part: repr(part)[:50],
)
@pytest.mark.parametrize("database", [0, 1])
def test_what_is_refused_before_any_step(arguments, reason, database):
    """What cannot be meant asks nobody anything (A2, A3)."""
    server = Server()
    if database and "holds no terms" in reason:
        database = 0
    with pytest.raises(InvalidInput, match=reason):
        ask(server, live(database=database, engine=None), **arguments)
    assert server.trips == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(alpha=1.5),
        lambda: Linear(alpha=-0.1),
        lambda: Rrf(weights={"vector": 1.0}),
        lambda: Rrf(weights={"vector": 1.0, "text": -1.0}),
        lambda: Rrf(weights=[1.0, 2.0, 3.0]),
        lambda: Append(extra=-1),
    ],
)
def test_parameters_of_a_fusion(make):
    """A parameter that cannot be is refused where the fusion is made (A3)."""
    with pytest.raises(InvalidInput):
        make()


@pytest.mark.parametrize("parameter", ["alpha", "weights", "extra", "top_k", "min_score"])
def test_a_parameter_that_nobody_uses(parameter):
    """Parameters belong to the fusion that uses them; retrieve takes none of them beside it (A3, case B91)."""
    with pytest.raises(TypeError, match=parameter):
        retrieve(live(), None, text="alpha", **{parameter: 0.5})
    for fusion, theirs in ((Rrf, "alpha"), (Linear, "weights"), (Append, "alpha")):
        with pytest.raises(TypeError, match=theirs):
            fusion(**{theirs: 0.5})


# --- what is asked --------------------------------------------------------------------------------


def test_query_asks_as_ever():
    """query is one nearest-neighbour search, whatever retrieve does (A1)."""
    server = Server()
    server.run(query(live(), None, vector=EAST, return_fields=[]))
    assert server.trips == [["knn"]]


@WAYS
def test_round_trips(engine):
    """Both channels share one, the winners' fields are another, and a word that is new costs a third (A4)."""
    known = live(engine=engine, embeds=True)
    first, again, new, vector = (Server() for _ in range(4))
    assert ids(ask(first, known, text="alpha beta")) == ["a", "b"]
    counts = ["count"] * 4  # two terms, in the text and in the title
    assert first.trips == ["embed", [*counts, "HMGET", "FT.INFO"], ["words", "knn"], ["HMGET", "HMGET"]]
    ask(again, known, text="beta alpha")
    assert again.trips == ["embed", ["words", "knn"], ["HMGET", "HMGET"]]
    ask(new, known, text="beta gamma")
    assert new.trips == ["embed", ["count"] * 2 + ["HMGET"], ["words", "knn"], ["HMGET", "HMGET"]]
    ask(vector, known, vector=EAST)
    assert vector.trips == [["knn"], ["HMGET", "HMGET"]]


@WAYS
@pytest.mark.parametrize("words", [None, ResponseError("SEARCH_TIMEOUT Timeout limit was reached"), [1, b"ours:a"]])
def test_what_is_read_ahead_changes_no_answer(engine, words):
    """Words' answers read while vectors are searched for, once, twice or not at all: the same hits and reasons."""
    replies = {} if words is None else {"words": words if isinstance(words, Exception) else lambda _: words}
    answers = []
    for times in (0, 1, 2):
        server = Server(ahead=times, **replies)
        try:
            hits = ask(server, live(engine=engine), text="alpha beta", vector=EAST)
            answers.append((list(hits), hits.complete, hits.reasons))
        except ReplyError as error:
            answers.append(str(error))
        assert ["words", "knn"] in server.trips
    assert answers[0] == answers[1] == answers[2]


@WAYS
def test_commands_are_those_that_engines_take(engine):
    """Every command of a retrieval stays within the grammar of its engine (A4)."""
    sent = []

    class Watching(Server):
        def answer(self, command):
            sent.append(command)
            return super().answer(command)

    filter = (Tag("category") == "x") & ~(Tag("tags", many=True) == "y")
    ask(Watching(), live(engine=engine), text="alpha beta", vector=EAST, filter=filter)
    for command in sent:
        if command.args[0] == "FT.SEARCH":
            grammar.check_search(command.args, scores=engine.scores_text)
    assert {Server.kind(command) for command in sent} == {"count", "HMGET", "FT.INFO", "knn", "words"}


def test_the_engine_is_asked_for_once():
    """Which engine it is, is asked before anything else, once (A4)."""
    known = live(engine=None)
    server = Server()
    ask(server, known, text="alpha")
    ask(server, known, text="alpha")
    assert [trip for trip in server.trips if "HELLO" in trip] == [["HELLO"]]
    assert server.trips[0] == ["HELLO"]


def test_many_share_their_round_trips():
    """Questions of many kinds take no more round trips than the longest of them (A4)."""
    server = Server()
    questions = [{"text": "alpha"}, {"text": "beta"}, {"vector": EAST}, {"text": "alpha", "vector": EAST}]
    answers = server.run(retrieve_many(live(), None, questions))
    assert [ids(each) for each in answers] == [["a"], ["b"], ["a", "b"], ["a", "b"]]
    assert len(server.trips) == 3


def test_expansions_share_them_too():
    """Each of several texts is counted, searched and fetched in the same round trips (A27)."""
    server = Server()
    hits = ask(server, live(embeds=True), text="alpha", expand=lambda text: ["beta", "gamma"])
    assert server.trips == [
        "embed",
        ["count", "count", "HMGET", "FT.INFO"] * 3,
        ["words"] * 3 + ["knn"] * 3,
        ["HMGET", "HMGET"],
    ]
    assert ids(hits) == ["a", "b"]


@pytest.mark.parametrize("blocking", [True, False])
def test_async_callables(blocking):
    """The blocking shell refuses a coroutine function before any I/O; the other one calls it (A24, A27)."""

    async def mine(*args):
        return []

    for name in ("rerank", "expand"):
        plan = retrieve(live(blocking=blocking), None, text="alpha", **{name: mine})
        if blocking:
            with pytest.raises(TypeError, match="AsyncRetriever can"):
                next(plan)
        else:
            assert isinstance(next(plan), Call if name == "expand" else Wait)
        plan.close()


def test_candidates_beside_an_appended_ranking():
    """Candidates that are there however far they are take no place of the text hits that are appended (A12)."""
    documents = [(f"v{at}", "alpha" if at == 3 else "other", 0.1 * at + 0.1) for at in range(6)]

    def near(command):
        rows = [(f"ours:{id}".encode(), [b"__score", str(far).encode()]) for id, _, far in documents]
        if "KNN 3 " in command.args[2]:  # the one that passes
            rows = [(b"ours:far", [b"__score", b"1.9"])]
        return [len(rows), *(part for row in rows for part in row)]

    seen = []

    def keeping(text, hits):
        seen.append(ids(hits))
        return hits

    ask_for = {"text": "alpha", "vector": EAST, "k": 1, "fusion": "append", "also": (Tag("category") == "x", 3)}
    server = Server(*documents, ("far", "other", 1.9), knn=near)
    assert ids(ask(server, **ask_for)) == ["v0", "far", "v3"]
    assert ids(ask(server, **ask_for, rerank=keeping, candidates=2)) == ["v0", "far", "v3"]
    assert seen == [["v0", "v1", "far"]]


# --- answers that fail ----------------------------------------------------------------------------

REFUSAL = ResponseError("Syntax error at offset 3")


@WAYS
@pytest.mark.parametrize(
    ("replies", "channel", "left"),
    [
        ({"knn": REFUSAL}, "vector", ["a"]),
        ({"words": REFUSAL}, "text", ["a", "b"]),
        ({"count": REFUSAL}, "text", ["a", "b"]),
        (
            {"FT.INFO": ResponseError("NOPERM User u has no permissions to run the 'ft.info' command")},
            "text",
            ["a", "b"],
        ),
        ({"knn": lambda _: [b"nonsense"]}, "vector", ["a"]),
        ({"words": lambda _: {b"nonsense": 1}}, "text", ["a", "b"]),
    ],
    ids=["knn", "words", "count", "info", "unreadable knn", "unreadable words"],
)
def test_a_channel_that_fails(engine, replies, channel, left):
    """The other one answers, complete is False and the reason names the channel; strict raises (A23, case B94)."""
    known = {"engine": engine}
    hits = ask(Server(**replies), live(**known), text="alpha", vector=EAST)
    assert ids(hits) == left
    assert not hits.complete
    assert len(hits.reasons) == 1
    assert hits.reasons[0].startswith(f"{channel}: ")
    assert {each for hit in hits for each in hit.channels} == {"vector", "text"} - {channel}
    with pytest.raises(ServerError):
        ask(Server(**replies), live(**known), text="alpha", vector=EAST, strict=True)
    alone = {"text": "alpha"} if channel == "text" else {"vector": EAST}
    with pytest.raises(ServerError):
        ask(Server(**replies), live(**known), **alone)


@WAYS
def test_both_channels_fail(engine):
    """With nobody left to answer the first error is raised (A23)."""
    with pytest.raises(IndexMissing):
        ask(Server(knn=GONE, words=GONE, count=GONE), live(engine=engine), text="alpha", vector=EAST)


@pytest.mark.parametrize("kind", ["knn", "words", "count", "HMGET"])
def test_a_lost_connection_is_no_channel(kind):
    """A connection that breaks is raised, also where it is only one command's reply (A23)."""
    lost = ConnectionError("gone")
    with pytest.raises(ConnectionError):
        ask(Server(**{kind: lost}), text="alpha", vector=EAST)


def test_unknown_dimensions_are_no_channel():
    """What fails before there is a channel, asking for the dimensions say, is raised (A23)."""
    known = live(Schema("ours", SCHEMA.fields), embeds=True)
    for error in (ConnectionError("gone"), ResponseError("Unknown index name")):
        with pytest.raises((ConnectionError, IndexMissing)):
            ask(Server(**{"FT.INFO": error}), known, text="alpha")


def test_a_refusal_takes_nothing_from_the_next_text():
    """Where one of several commands for a text fails, the replies of the next text are still its own (A23, A27)."""
    schema = Schema("ours", [Tag("category")], Vector(dims=2))
    documents = [(f"{at}", "alpha beta", 0.1) for at in range(3)]
    refused = []

    def first_only(command):
        if "alpha" in command.args[2] and not refused:
            refused.append(command)
            return REFUSAL
        return [1, b"ours:1", [b"__terms", b" beta "]] if "beta" in command.args[2] else [0]

    # What is fetched of a winner passes the filter; the metadata are numbers.
    server = Server(*documents, words=first_only, HMGET=lambda command: [b"0" * 200] * len(command.args[2:]))
    wide = Tag("category").isin([f"{at:0200}" for at in range(40)])
    text = "alpha " + " ".join(f"w{at}" for at in range(60))
    hits = ask(server, live(schema, engine=VALKEY_SEARCH_1_2), text=text, expand=lambda _: ["beta"], filter=wide)
    assert server.trips[1].count("words") > 2
    assert ids(hits) == ["1"]
    assert not hits.complete


def test_a_search_that_took_its_time():
    """An engine that used up its time may have stopped early, which neither says (case B55)."""
    server = Server()
    hits = ask(server, text="alpha", vector=EAST, timeout_ms=1)
    assert not hits.complete
    assert "may have stopped early" in hits.reasons[0]


@pytest.mark.parametrize("arguments", [{"text": "alpha"}, {"vector": EAST}])
def test_a_filter_of_too_many_conditions(arguments):
    """What Valkey Search does not take is refused before anything is counted or searched, in either channel."""
    server = Server()
    with pytest.raises(NotSupported, match=r"501 conditions: Valkey Search 1\.2 takes 500"):
        ask(server, live(engine=VALKEY_SEARCH_1_2), filter=Numeric("year").isin(range(501)), **arguments)
    assert server.trips == []


def test_an_index_that_is_being_filled():
    """What this process saw being filled may lack documents."""
    filling = [*INFO]
    filling[filling.index(b"indexing") + 1] = 1
    known = live(filling=True)
    hits = ask(Server(**{"FT.INFO": lambda _: filling}), known, text="alpha", channels=["text"])
    assert (hits.complete, hits.reasons) == (False, ("the index is still being filled",))
    assert ask(Server(), known, text="alpha", channels=["text"]).complete
    assert not known.filling


def test_a_deep_question_is_asked_at_once():
    """Where ranking takes as long as a search it would pass for the server's time, and that for a time-out."""
    for depth, ahead in ((1000, True), (1001, False)):
        server = Server()
        ask(server, live(), text="alpha", vector=EAST, depth=depth)
        assert (server.trips[-2], server.went_ahead) == (["words", "knn"], ahead)


def test_a_winner_without_the_fields_is_there():
    """A document that lacks what was asked for has not expired; one that is gone has."""
    server = Server(HMGET=lambda command: _fields(command))

    def _fields(command):
        if command.args[1] == "ours":
            return [b"1"] * len(command.args[2:])
        there = command.args[1] == "ours:a"
        return [b"x" if there and name.startswith("__") else None for name in command.args[2:]]

    hits = ask(server, vector=EAST, return_fields=["category"])
    assert [(hit.id, hit.fields) for hit in hits] == [("a", {})]
    assert hits.reasons == ("1 hits expired or were deleted while they were fetched",)


@pytest.mark.parametrize(("stored", "left"), [(b"y", []), (None, []), (b"x", ["a"])])
def test_a_winner_that_no_longer_passes_the_filter(stored, left):
    """A document that another tenant has been given between the two round trips is left out, and the answer says so."""
    held = {"__text": b"alpha", "__of_embedding": b"x", "category": stored}
    server = Server(("a", "alpha", 0.1), HMGET=lambda command: [held.get(name, b"1") for name in command.args[2:]])
    for return_fields in (None, []):
        hits = ask(server, vector=EAST, filter={"category": "x"}, return_fields=return_fields)
        assert ids(hits) == left
        assert all("category" in hit.fields for hit in hits) is (return_fields is None or not left)
        assert hits.complete is bool(left)
        assert left or "1 hits were changed while they were fetched" in hits.reasons[0]


def test_foreign_rows_are_told():
    """A row that another program wrote is left out, and the answer says so."""
    server = Server(HMGET=lambda command: [b"\xff" if name == "__text" else None for name in command.args[2:]])
    hits = ask(server, vector=EAST)
    assert ids(hits) == []
    assert hits.reasons == ("2 rows hold values that this library did not write",)


@pytest.mark.parametrize("row", [VALKEY_SEARCH_1_0, None])
def test_no_text_fields(row):
    """Words on an engine without them name the engine and what is needed; nothing is sent for them (A21)."""
    server = Server()
    known = live(engine=VALKEY_SEARCH_1_0) if row else live(engine=None)
    if row is None:
        known.server = _old_server()
    with pytest.raises(NotSupported, match=r"Valkey Search 1\.0.*no TEXT fields; words need Valkey Search 1\.2"):
        ask(server, known, text="alpha", vector=EAST)
    assert server.trips == []


def _old_server():
    from retriever.engines import Server as Found

    return Found("valkey", "8.1.0", False, VALKEY_SEARCH_1_0, "1.0.1")


def test_an_engine_that_scores_but_was_not_tried():
    """A row decides whether the engine ranks: Valkey Search 1.3 is asked as 1.2 is (A20)."""
    sent = []
    server = Server(words=lambda command: sent.append(command.args) or [0])
    ask(server, live(engine=VALKEY_SEARCH_1_3), text="alpha")
    assert "SCORER" not in sent[0]


def test_the_scorer_is_always_named():
    """An engine that ranks is told by what, since servers differ in what they do unasked (A20, case B93)."""
    sent = []
    server = Server(words=lambda command: sent.append(command.args) or [0])
    ask(server, text="alpha")
    (args,) = sent
    assert args[args.index("SCORER") + 1] == "BM25STD"
    assert "VERBATIM" in args


@pytest.mark.parametrize("more", [{}, {"fields": {"category": "x"}}])
def test_a_hit_is_a_value(more):
    """Hits are equal by what they hold, and hashed by their id; channels follow from ranks (A6)."""
    given = {"text": "", "fields": {}, "vector_distance": 0.1, "text_score": None, "ranks": {"vector": 1}} | more
    one, same = (FusedHit("a", 1.0, contributions={"vector": 1.0}, **given) for _ in range(2))
    assert one == same
    assert len({one, same}) == 1
    assert one.channels == ("vector",)


def test_explain_of_a_function():
    """A score of a function of yours cannot be taken apart, and explain says whose it is (A7)."""
    (hit, _) = ask(Server(), text="alpha", vector=EAST, fusion=lambda vector, text: [("a", 2.5), ("b", 1)])
    assert hit.explain().splitlines() == [
        "a: fused score 2.5 by <lambda>",
        "  vector: rank 1, distance 0.1",
        f"  text: rank 1, BM25 {hit.text_score:.6g} for the terms alpha",
        "  fusion: contributes 2.5",
    ]


def test_what_is_stable_is_said():
    """The docstring tells what may be relied on and what is for people (A9)."""
    said = " ".join(Retriever.retrieve.__doc__.split())
    assert "Order, ids, scores, ``channels``, ``ranks`` are stable" in said
    assert "``stats``, ``reasons`` and ``explain()`` are for people" in said


@pytest.mark.parametrize("queries", ["alpha", b"alpha", {"text": "alpha"}, 5])
def test_many_are_a_list(queries):
    """One question, or a text, is no list of questions."""
    with pytest.raises(InvalidInput, match="a list of mappings"):
        next(retrieve_many(live(), None, queries))


def test_a_question_with_an_unknown_argument():
    """A name that retrieve does not know is that question's own error."""
    (answer,) = Server().run(retrieve_many(live(), None, [{"txt": "alpha"}]))
    assert isinstance(answer, InvalidInput)
    assert not isinstance(answer, (ReplyError, PermissionDenied))
