"""Operations as plans: run by hand with recorded answers, what they ask, in which order, and what they make of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fields.analysis import Analysis
from fields.errors import InvalidInput
from fields.kinds import Numeric, Tag, Text, Vector
from retriever.documents import Document, Failure, Hit, Interruption, UpsertReport, interruption
from retriever.engines import REDIS_8, REDISEARCH_2, VALKEY_SEARCH_1_2, Server
from retriever.errors import (
    IndexMissing,
    NotSupported,
    PermissionDenied,
    ReplyError,
    SchemaMismatch,
    SearchTimeout,
    ServerError,
)
from retriever.operations import index, read, search, write
from retriever.operations.index import Live
from retriever.plans import Ask, Call, Embed, Node, Page, Primaries, Pull, Wait
from retriever.schema import Schema, build_ft_create_args
from tests import grammar
from tests.recorded import OURS, ResponseError, replies

PLAIN = Schema("plain", [Tag("t"), Numeric("n")], Vector(dims=2, algorithm="FLAT"), None)
(HELLO, _), (CLIENT, _), (INFO, _), (METADATA, _), (ROWS, _), (SCAN, _), (DOCUMENT, _) = (
    [each.reply for each in replies(case, ours=True)]
    for case in [
        "hello",
        "client info",
        "info of our HNSW index",
        "metadata",
        "our query, everything back",
        "scan",
        "a document",
    ]
)
MISSING = ResponseError("Unknown index name")
NAMED = [*METADATA, b"name", b"ours"]  # as they are written since; without the name they were recorded
UNIT = [1.0, 0.1, 0.0, 0.0]


def play(plan, *answers, primaries=(None,)):
    """The plan's result and its steps; answers: what each step is sent, a list of replies for an Ask.

    primaries: the answer to each question where the keys are, which is not among the steps.
    """
    steps, left = [], list(answers)
    try:
        step = next(plan)
        while True:
            if isinstance(step, Primaries):
                step = plan.send(primaries)
                continue
            steps.append(step)
            assert left, f"nothing left to answer {step}"
            answer = left.pop(0)
            if isinstance(answer, BaseException):
                step = plan.throw(answer)
                continue
            if isinstance(step, Ask) and isinstance(answer, list):
                assert len(answer) == len(step.commands), step
                answer = answer, 0.001
            step = plan.send(answer)
    except StopIteration as end:
        assert not left, f"never asked for {left}"
        return end.value, steps
    finally:
        plan.close()


def words(step):
    """The first word of each command of a step."""
    return [command.args[0] for command in step.commands]


def with_prefix(prefix):
    """The definition of our index over another prefix."""
    info = [*INFO]
    info[info.index(b"index_definition") + 1] = [b"prefixes", [prefix]]
    return info


def live(schema=OURS, **known):
    return Live(schema, **{"engine": REDISEARCH_2, "checked": True, **known})


def ask(live_=None, reranker=None, **arguments):
    return search.query(live_ or live(), reranker, **arguments)


# --- query ----------------------------------------------------------------------------------------


def test_a_query_is_one_round_trip():
    """A vector, known dimensions: one FT.SEARCH, without a probe, within the grammar; hits nearest first."""
    hits, (step,) = play(ask(vector=UNIT, k=3, return_vectors=True), [ROWS])
    (command,) = step.commands
    assert grammar.check_search(command.args).knn == grammar.Knn(3, "embedding", 100)
    assert command.args[command.args.index("vec") + 1] == np.array(UNIT, "<f4").tobytes()
    assert [hit.id for hit in hits] == ["1", "naïve:é"]
    assert (hits.complete, hits.reasons) == (True, ())
    assert hits.stats["search_ms"] == pytest.approx(1.0)


def test_a_text_is_embedded_as_a_query():
    """A text costs one call of the embedder, then the same round trip."""
    (_, steps) = play(ask(live(embeds=True), text="a b", k=3, return_vectors=True), np.array([UNIT]), [ROWS])
    assert steps[0] == Embed(("a b",), "query")
    assert words(steps[1]) == ["FT.SEARCH"]


def test_unknown_dimensions_are_asked_once():
    """Dimensions that nobody told are taken from the live index, once."""
    knowing = live(Schema("ours", OURS.fields))
    _, steps = play(ask(knowing, vector=UNIT, k=3, return_vectors=True), [INFO], [ROWS])
    assert [words(step) for step in steps] == [["FT.INFO"], ["FT.SEARCH"]]
    assert knowing.dims == 4
    assert len(play(ask(knowing, vector=UNIT, k=3, return_vectors=True), [ROWS])[1]) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "one of text and vector, not neither"),
        ({"text": "a", "vector": UNIT}, "one of text and vector, not both"),
        ({"text": ""}, "a string with something in it"),
        ({"text": "  \n"}, "a string with something in it"),
        ({"text": 5}, "a string with something in it"),
        ({"text": ["a"]}, "a string with something in it"),
        *(({"vector": UNIT, "k": k}, "^k ") for k in (0, -1, 2.5, True, "5", 10_001)),
        ({"vector": UNIT, "filter": {"typo": "x"}}, "unknown field"),
        ({"vector": UNIT, "filter": {"category": None}}, "None"),
        ({"vector": UNIT, "filter": {"category": []}}, "list"),
        ({"vector": UNIT, "filter": {"title": "x"}}, "TEXT"),
        ({"vector": UNIT, "rerank": len}, "it needs text="),
        ({"text": "a", "rerank": True}, "needs a reranker"),
        ({"text": "a", "rerank": "model"}, "a callable expected"),
        ({"text": "a", "rerank": Hit}, "a callable expected"),
        ({"vector": UNIT, "candidates": 20}, "what a reranker sees"),
        ({"text": "a", "rerank": False, "candidates": 20}, "what a reranker sees"),
        ({"text": "a", "rerank": len, "k": 10, "candidates": 9}, "candidates 9: an int from 10"),
        ({"text": "a", "rerank": len, "candidates": 10_001}, "candidates"),
        ({"text": "a", "rerank": len, "candidates": 20.0}, "candidates"),
        ({"vector": UNIT, "max_distance": math.nan}, "max_distance"),
        ({"vector": UNIT, "max_distance": "0.5"}, "max_distance"),
        ({"vector": UNIT, "max_distance": True}, "max_distance"),
        ({"vector": UNIT, "return_fields": ["typo"]}, "unknown field 'typo'"),
        ({"vector": UNIT, "return_fields": ["__score"]}, "unknown field '__score'"),
        ({"vector": UNIT, "return_fields": ["embedding"]}, "unknown field 'embedding'"),
        ({"vector": UNIT, "return_fields": "category"}, "a list of names"),
        ({"vector": UNIT, "return_fields": 5}, "a list of names"),
        ({"vector": UNIT, "return_fields": [["category"]]}, "a list of names"),
        ({"vector": UNIT, "ef_runtime": 0}, "ef_runtime"),
        ({"vector": UNIT, "timeout_ms": 0}, "timeout_ms"),
        ({"vector": UNIT, "timeout_ms": 60_001}, "timeout_ms"),
        ({"vector": [0, 0, 0, 0]}, "a zero vector"),
        ({"vector": [1, math.nan, 0, 0]}, "nan at position 1"),
        ({"vector": [1, math.inf, 0, 0]}, "inf at position 1"),
        ({"vector": [1, 2, 3]}, "3 dimensions, the index has 4"),
        ({"vector": [UNIT]}, "one dimension"),
        ({"vector": "abcd"}, "an array of numbers"),
    ],
    ids=lambda part: repr(part)[:50],
)
def test_queries_that_are_refused_before_any_step(arguments, reason):
    """A query that cannot be meant asks nobody anything, cases B28, B43 and B54."""
    with pytest.raises(InvalidInput, match=reason):
        play(ask(live(embeds=True), **arguments))


def test_a_text_needs_an_embedder():
    """Without an embedder a text is refused, and the error says what to pass."""
    with pytest.raises(InvalidInput, match="needs an embedder"):
        play(ask(text="a"))


def test_a_blocking_driver_takes_no_coroutine_function():
    """A coroutine function as reranker is a TypeError under the blocking shell, and fine under the other."""

    async def rerank(text, hits):
        return hits

    with pytest.raises(TypeError, match="AsyncRetriever can"):
        play(ask(live(embeds=True), text="a", rerank=rerank))
    _, steps = play(
        ask(live(embeds=True, blocking=False), text="a", rerank=rerank, return_vectors=True), [UNIT], [ROWS], []
    )
    assert isinstance(steps[-1], Call)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ([], "the embedder"),
        ([UNIT, UNIT], "the embedder returned shape"),
        (UNIT, "the embedder returned shape"),
        ([[1, 2]], "the embedder returned 2 dimensions"),
        (None, "the embedder's result"),
        ([[0, 0, 0, 0]], "the embedder's vector: a zero vector"),
        ([[1, math.nan, 0, 0]], "the embedder's vector: nan"),
    ],
    ids=repr,
)
def test_a_wrong_vector_of_the_embedder_is_the_embedders(returned, reason):
    """What an embedder returned wrongly is never sent, and named as the embedder's, case B43."""
    with pytest.raises(InvalidInput, match=reason):
        play(ask(live(embeds=True), text="a"), returned)


def test_only_what_was_asked_for_travels():
    """RETURN names exactly the wanted fields, the text among them where it is wanted."""
    for wanted, returned in (
        ([], ["__score"]),
        (["category"], ["__score", "category"]),
        (["url", "__text", "url"], ["__score", "__text", "url"]),
        (None, ["__score", "__text", "category", "tags", "__exact_year", "title", "url"]),
        (iter(["url"]), ["__score", "url"]),
    ):
        _, (step,) = play(ask(vector=UNIT, return_fields=wanted), [[0]])
        args = step.commands[0].args
        at = args.index("RETURN")
        assert list(args[at + 2 : at + 2 + args[at + 1]]) == returned


def row(id, distance, text="text"):
    return [f"ours:{id}".encode(), [b"__score", str(distance).encode(), b"__text", text.encode()]]


def found(*rows):
    return [len(rows), *(part for each in rows for part in each)]


def test_a_reranker_sees_candidates_and_its_order_wins():
    """It is called once with the text and 4k hits, nearest first; score stays the distance, cases B95 and B99."""

    def rerank(text, hits):
        raise AssertionError("only the driver calls it")

    rows = found(row("a", 0.3), row("b", 0.1), row("c", 0.2))
    plan = ask(live(embeds=True), text="q", rerank=rerank, k=2, return_fields=["__text"])
    step = next(plan)
    step = plan.send(np.array([UNIT]))
    assert grammar.check_search(step.commands[0].args).knn.k == 8
    step = plan.send(([rows], 0.001))
    assert step.function is rerank
    text, hits = step.args
    assert (text, [hit.id for hit in hits]) == ("q", ["b", "c", "a"])
    with pytest.raises(StopIteration) as end:
        plan.send([(hits[2], 0.9), (hits[0], 0.5), (hits[1], -3)])
    assert [(hit.id, hit.score, hit.rerank_score) for hit in end.value.value] == [("a", 0.3, 0.9), ("b", 0.1, 0.5)]


def test_the_constructors_reranker_runs_only_where_asked():
    """rerank=True takes the constructor's; without it nothing is reranked."""
    rows = found(row("a", 0.3))
    arguments = {"text": "q", "k": 2, "return_fields": ["__text"]}
    _, steps = play(ask(live(embeds=True), len, **arguments), [UNIT], [rows])
    assert len(steps) == 2
    _, steps = play(ask(live(embeds=True), len, rerank=True, candidates=2, **arguments), [UNIT], [rows], [])
    assert steps[-1].function is len
    assert grammar.check_search(steps[1].commands[0].args).knn.k == 2


def test_a_reranker_gets_texts_that_were_not_asked_for():
    """A reranker compares texts, so they travel even where return_fields leaves them out."""
    _, steps = play(ask(live(embeds=True), text="q", rerank=len, return_fields=[]), [UNIT], [[0]])
    assert "__text" in steps[1].commands[0].args


def test_a_text_lent_to_the_reranker_is_not_given_back():
    """The hits of a reranked query hold what was asked for, no more."""
    plan = ask(live(embeds=True), text="q", rerank=len, return_fields=[])
    hits, steps = play(plan, [UNIT], [found(row("a", 0.1, "the text"))], [Hit("a", 0.1, "", {})])
    assert steps[-1].args[1][0].text == "the text"
    assert hits[0].text == ""


def test_a_reranker_is_never_called_on_nothing():
    """No hits, or none near enough: nobody is called."""
    for rows in ([0], found(row("a", 0.9))):
        hits, steps = play(
            ask(live(embeds=True), text="q", rerank=len, max_distance=0.5, return_fields=["__text"]), [UNIT], [rows]
        )
        assert len(hits) == 0
        assert len(steps) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([Hit("invented", 0.1, "", {})], "not among the hits"),
        ([Hit("a", 0.1, "", {}), Hit("a", 0.1, "", {})], "twice"),
        ([(Hit("a", 0.1, "", {}), math.nan)], "not a finite number"),
        (None, "NoneType"),
        ("ab", "str"),
    ],
    ids=repr,
)
def test_what_a_reranker_returns_is_checked(answer, reason):
    """An invented or repeated id, a score that is no number, no hits at all: errors, case B96."""
    plan = ask(live(embeds=True), text="q", rerank=len, return_fields=["__text"])
    with pytest.raises(InvalidInput, match=reason):
        play(plan, [UNIT], [found(row("a", 0.1))], answer)


def test_hits_that_are_too_far_are_dropped():
    """max_distance is included; it may be negative, as IP distances are."""
    rows = found(row("a", 0.3), row("b", -0.1), row("c", 0.2))
    hits, _ = play(ask(vector=UNIT, max_distance=0.2, return_fields=["__text"]), [rows])
    assert [hit.id for hit in hits] == ["b", "c"]
    hits, _ = play(ask(vector=UNIT, max_distance=-0.1, return_fields=["__text"]), [rows])
    assert [hit.id for hit in hits] == ["b"]


def test_an_answer_as_slow_as_its_timeout_counts_as_cut():
    """No engine says in RESP2 that it stopped early, so time tells, case B55."""
    for seconds, complete in ((0.099, True), (0.1, False)):
        hits, _ = play(ask(vector=UNIT, timeout_ms=100, return_fields=["__text"]), ([found(row("a", 0.1))], seconds))
        assert hits.complete is complete
    assert "may have stopped early" in hits.reasons[0]


def test_an_answer_that_is_not_whole_says_why():
    """A warning of the engine, an expired hit, and a backfill that this process saw are told, cases B55 and B67."""
    reply = {b"total_results": 1, b"results": [{b"id": b"ours:1"}], b"warning": [b"Timeout limit was reached"]}
    filling = [*INFO]
    filling[filling.index(b"indexing") + 1] = 1
    known = live(filling=True)
    hits, _ = play(ask(known, vector=UNIT), [reply], [filling])
    assert not hits.complete
    assert [reason.split()[0] for reason in hits.reasons] == ["Timeout", "1", "the"]
    hits, _ = play(ask(known, vector=UNIT), [reply], [ResponseError("NOPERM this user has no permissions")])
    assert len(hits.reasons) == 3
    hits, _ = play(ask(known, vector=UNIT), [reply], [INFO])
    assert len(hits.reasons) == 2
    assert not known.filling


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ResponseError("ours: no such index"), IndexMissing),
        (ResponseError("Index with name 'ours' not found in database 0"), IndexMissing),
        (ResponseError("Timeout limit was reached"), SearchTimeout),
        (ResponseError("something new"), ServerError),
        (b"OK", ReplyError),
        ([1, b"ours:1"], ReplyError),
    ],
    ids=repr,
)
def test_what_a_server_refuses_is_an_error(reply, expected):
    """A refusal or an unreadable reply is raised, never an empty answer, cases B66 and B94."""
    with pytest.raises(expected):
        play(ask(vector=UNIT), [reply])


def test_many_queries_are_one_call_and_one_round_trip():
    """Texts are embedded together, searches sent together; a wrong query is its own error only."""
    queries = [
        {"text": "a", "k": 1, "return_fields": ["__text"]},
        {"vector": UNIT, "return_fields": ["__text"]},
        {"text": "b", "k": 0},
        {"text": "c", "filter": {"typo": 1}},
        {"texts": "d"},
        {"text": "f", "return_fields": ["__text"]},
    ]
    plan = search.query_many(live(embeds=True), None, queries)
    results, steps = play(
        plan, np.array([UNIT, UNIT]), [found(row("x", 0.1)), found(row("y", 0.2)), ResponseError("no such index")]
    )
    assert [type(step) for step in steps] == [Embed, Ask]
    assert list(steps[0].texts) == ["a", "f"]
    assert words(steps[1]) == ["FT.SEARCH"] * 3
    kinds = [type(result).__name__ for result in results]
    assert kinds.count("Hits") == 2
    assert kinds.count("IndexMissing") == 1
    assert kinds[2:5] == ["InvalidInput"] * 3


@pytest.mark.parametrize("queries", ["a", b"a", {"text": "a"}, 5, None, [{"text": "a"}, "b"]], ids=repr)
def test_query_many_takes_a_list(queries):
    """One query is not many."""
    with pytest.raises(InvalidInput, match="mapping"):
        play(search.query_many(live(embeds=True), None, queries))


# --- upsert ---------------------------------------------------------------------------------------


def upsert(live_, *batches, on_batch=None, replies=(), batch_size=500):
    """The report and the steps of an upsert of batches; replies: what each round trip of writes answers."""
    plan = write.upsert(live_, batch_size=batch_size, on_batch=on_batch)
    answers = [
        answer
        for batch, reply in zip(batches, replies, strict=False)
        for answer in (batch, [*reply, [b"plain", b"docs"]])
    ]
    return play(plan, *answers, *batches[len(replies) :], [])


def test_a_full_document_is_one_plain_hset():
    """Where every declared field is given, RediSearch gets one HSET: all of our layout and nothing else."""
    documents = [Document("a", "text", {"t": "x y", "n": 1}, [1, 2]), Document("b", "", {"n": 2.5, "t": ""}, [3, 4])]
    report, steps = upsert(live(PLAIN), documents, replies=[[6, 6]])
    assert report == UpsertReport(2)
    assert steps[0] == Pull(500)
    one, two, listing = steps[1].commands
    assert listing.args == ("FT._LIST",)
    assert one.args[:2] == ("HSET", "plain:a")
    assert (one.route, one.repeatable) == ("plain:a", True)
    assert dict(zip(one.args[2::2], one.args[3::2], strict=True)) == {
        "__text": b"text",
        "__of_embedding": write.content_hash(b"text"),
        "t": b"x y",
        "n": b"1",
        "__exact_n": b"1",
        "embedding": np.array([1, 2], "<f4").tobytes(),
    }
    assert two.args[two.args.index("t") + 1] == "\ue0ff".encode()


@pytest.mark.parametrize("engine", [REDISEARCH_2, VALKEY_SEARCH_1_2], ids=lambda engine: engine.name)
def test_an_absent_field_is_removed_in_the_same_command(engine):
    """A script on one key removes what is not given and sets the rest: no reader sees half of it, case B73."""
    _, steps = upsert(live(PLAIN, engine=engine), [Document("a", "text", {"n": 1}, [1, 2])], replies=[[1]])
    command, _ = steps[1].commands
    word, script, count, key, removed, name, *pairs = command.args
    assert (word, count, key, removed, name) == ("EVAL", 1, "plain:a", 1, "t")
    assert "HDEL" in script
    assert set(pairs[::2]) == {"__text", "__of_embedding", "n", "__exact_n", "embedding"}


def test_valkey_search_always_gets_the_script():
    """There a script is faster than a plain HSET, which waits until it is indexed."""
    documents = [Document("a", "text", {"t": "x", "n": 1}, [1, 2])]
    _, steps = upsert(live(PLAIN, engine=VALKEY_SEARCH_1_2), documents, replies=[[1]])
    assert words(steps[1]) == ["EVAL", "FT._LIST"]
    assert steps[1].commands[0].args[4] == 0


def test_analysed_text_is_stored_and_counted():
    """With an analysis the terms stand beside the text, and two counters of each hold their mean length.

    They are counted by one script of the whole batch, which is never sent twice and counts only beside metadata.
    """
    schema = Schema("docs", [Text("title")], Vector(dims=2), Analysis())
    documents = [
        Document("a", "The stores", {"title": "Fast stores"}, [1, 2]),
        Document("b", "a", {"title": "x"}, [1, 2]),
    ]
    _, steps = upsert(live(schema), documents, replies=[[6, 6, 1]])
    one, _, count, _ = steps[1].commands
    pairs = dict(zip(one.args[2::2], one.args[3::2], strict=True))
    assert (pairs["__terms"], pairs["__terms_title"]) == (b" store ", b" fast  store ")
    word, script, keys, key, *counted = count.args
    assert (word, keys, key, count.route, count.repeatable) == ("EVAL", 1, "docs", "docs", False)
    assert script.startswith("if redis.call('HEXISTS', KEYS[1], 'schema') == 0 then return 0 end ")
    assert dict(zip(counted[::2], counted[1::2], strict=True)) == {
        "documents": 2,
        "terms": 1,
        "documents_title": 2,
        "terms_title": 3,
    }


def test_an_expiry_travels_in_the_same_round_trip():
    """ttl_s becomes milliseconds beside the write; None leaves a key's expiry as it is."""
    documents = [
        Document("a", "", {"t": "x", "n": 1}, [1, 2], ttl_s=1.5),
        Document("b", "", {"t": "x", "n": 1}, [1, 2]),
    ]
    _, steps = upsert(live(PLAIN), documents, replies=[[5, 5, 1]])
    expiry = steps[1].commands[2]
    assert expiry.route == "plain:a"
    assert expiry.args[-1] == 1500
    assert words(steps[1]) == ["HSET", "HSET", "EVAL", "FT._LIST"]


def test_only_documents_without_a_vector_are_embedded():
    """The embedder gets the texts that need it, as documents, and each row goes to its own."""
    documents = [
        Document("a", "one", {"t": "x", "n": 1}),
        Document("b", "two", {"t": "x", "n": 1}, [9, 9]),
        Document("c", "three", {"t": "x", "n": 1}),
    ]
    plan = write.upsert(live(PLAIN, embeds=True), batch_size=10, on_batch=None)
    _, steps = play(plan, documents, [[1, 2], [3, 4]], [5, 5, 5, PLAIN_NAMES], [])
    assert steps[1] == Embed(["one", "three"], "document")
    vectors = [np.frombuffer(command.args[-1], "<f4").tolist() for command in steps[2].commands[:3]]
    assert vectors == [[1, 2], [9, 9], [3, 4]]


GOOD = Document("good", "text", {"t": "x", "n": 1}, [1, 2])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("text", "upsert takes Documents"),
        ({"id": "a"}, "upsert takes Documents"),
        (None, "upsert takes Documents"),
        (Document("", vector=[1, 2]), "id ''"),
        (Document(None, vector=[1, 2]), "id None"),
        (Document(5, vector=[1, 2]), "id 5"),
        (Document(b"a", vector=[1, 2]), "id b'a'"),
        (Document("a\ud800", vector=[1, 2]), "lone surrogate"),
        (Document("good", vector=[1, 2]), "'good' is twice in one batch"),
        (Document("bad", None, vector=[1, 2]), "document 'bad', text: a string expected"),
        (Document("bad", 5, vector=[1, 2]), "document 'bad', text: a string expected"),
        (Document("bad", "\ud800", vector=[1, 2]), "document 'bad', text: lone surrogate"),
        (Document("bad", fields=None, vector=[1, 2]), "document 'bad': fields is a mapping"),
        (Document("bad", fields=[("t", "x")], vector=[1, 2]), "document 'bad': fields is a mapping"),
        (Document("bad", fields={"typo": 1}, vector=[1, 2]), "document 'bad': field 'typo' is not declared"),
        (Document("bad", fields={"__text": "x"}, vector=[1, 2]), "document 'bad': field '__text' is not declared"),
        (Document("bad", fields={"embedding": b""}, vector=[1, 2]), "document 'bad': field 'embedding'"),
        (Document("bad", fields={"t": None}, vector=[1, 2]), "document 'bad', field 't': a string expected"),
        (Document("bad", fields={"t": ["x"]}, vector=[1, 2]), "document 'bad', field 't': a string expected"),
        (Document("bad", fields={"t": "x" * 4097}, vector=[1, 2]), "document 'bad', field 't': 4097 bytes"),
        (Document("bad", fields={"t": "\ud800"}, vector=[1, 2]), "document 'bad', field 't': lone surrogate"),
        (Document("bad", fields={"n": ""}, vector=[1, 2]), "document 'bad', field 'n': a number expected"),
        (Document("bad", fields={"n": "abc"}, vector=[1, 2]), "document 'bad', field 'n': a number expected"),
        (Document("bad", fields={"n": True}, vector=[1, 2]), "document 'bad', field 'n': a number expected"),
        (Document("bad", fields={"n": math.nan}, vector=[1, 2]), "document 'bad', field 'n': nan"),
        (Document("bad", fields={"n": 2**53 + 1}, vector=[1, 2]), "document 'bad', field 'n': .*beyond"),
        (Document("bad", vector=[0, 0]), "document 'bad', vector: a zero vector"),
        (Document("bad", vector=[1, math.nan]), "document 'bad', vector: nan"),
        (Document("bad", vector=[math.inf, 1]), "document 'bad', vector: inf"),
        (Document("bad", vector=[1, 2, 3]), "document 'bad', vector: 3 dimensions, the index has 2"),
        (Document("bad", vector=np.array(1.0)), "document 'bad', vector: "),
        (Document("bad", vector="ab"), "document 'bad', vector: an array of numbers"),
        (Document("bad", vector=b"12345678"), "document 'bad', vector: an array of numbers"),
        (Document("bad", "no embedder"), "document 'bad' has no vector"),
        (Document("bad", vector=[1, 2], ttl_s=0), "document 'bad', ttl_s"),
        (Document("bad", vector=[1, 2], ttl_s=-1), "document 'bad', ttl_s"),
        (Document("bad", vector=[1, 2], ttl_s="5"), "document 'bad', ttl_s"),
        (Document("bad", vector=[1, 2], ttl_s=math.inf), "document 'bad', ttl_s"),
    ],
    ids=lambda part: repr(part)[:60],
)
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
def test_a_bad_document_is_refused_before_any_io(bad, reason, first):
    """One bad document refuses its whole batch, by name, before anybody is asked, cases B34 to B38 and B42 to B45."""
    plan = write.upsert(live(PLAIN, checked=False, engine=None), batch_size=10, on_batch=None)
    batch = [bad, GOOD] if first else [GOOD, bad]
    with pytest.raises(InvalidInput, match=reason):
        play(plan, batch)


def test_a_document_needs_a_vector_or_a_text():
    """With an embedder, a document without either cannot be embedded."""
    for text in ("", " \n"):
        with pytest.raises(InvalidInput, match="neither a vector nor a text"):
            upsert(live(PLAIN, embeds=True), [GOOD, Document("bad", text)])


@pytest.mark.parametrize(
    "returned", [[[1, 2]], [[0, 0], [1, 2]], [[1, math.nan], [1, 2]], None, [[1, 2, 3]] * 2], ids=repr
)
def test_a_wrong_result_of_the_embedder_writes_nothing(returned):
    """Too few rows, zeros, NaN or another width: nothing of the batch is written."""
    documents = [Document("a", "one"), Document("b", "two")]
    plan = write.upsert(live(PLAIN, embeds=True), batch_size=10, on_batch=None)
    with pytest.raises(InvalidInput):
        play(plan, documents, returned)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, True, "5", 10_001], ids=repr)
def test_batch_sizes_that_are_refused(batch_size):
    """A batch has 1 to 10,000 documents."""
    with pytest.raises(InvalidInput, match="batch_size"):
        next(write.upsert(live(PLAIN), batch_size=batch_size, on_batch=None))


def test_on_batch_is_a_callable():
    """What is to be called is checked before anything is pulled."""
    with pytest.raises(InvalidInput, match="on_batch"):
        next(write.upsert(live(PLAIN), batch_size=5, on_batch="print"))


def documents(*ids):
    return [Document(id, "text", {"t": "x", "n": 1}, [1, 2]) for id in ids]


PLAIN_NAMES = [b"other", b"plain"]


def test_every_refused_document_is_named():
    """The report counts what was written and names each failure with its reason; on_batch hears the rest, case B75."""
    wrong = ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
    plan = write.upsert(live(PLAIN), batch_size=2, on_batch=len)
    report, steps = play(
        plan, documents("a", "b"), [5, wrong, PLAIN_NAMES], None, documents("c"), [5, PLAIN_NAMES], None, []
    )
    assert report == UpsertReport(2, (Failure("b", f"HSET: {wrong}"),))
    assert [step.args for step in steps if isinstance(step, Call)] == [(["a"],), (["c"],)]


def test_whatever_stops_an_upsert_carries_how_far_it_came():
    """The error is itself, with the report and the batch in flight, case B75."""
    lost = ConnectionError("gone")
    for last in (lost, [5, lost, PLAIN_NAMES]):
        plan = write.upsert(live(PLAIN), batch_size=2, on_batch=None)
        with pytest.raises(ConnectionError) as caught:
            play(plan, documents("a", "b"), [5, 5, PLAIN_NAMES], documents("c", "d"), last)
        assert caught.value is lost
        assert interruption(lost) == Interruption(UpsertReport(2), ("c", "d"))


def test_an_error_of_the_source_or_of_validation_carries_it_too():
    """Also what the user's own iterable raises, and a bad document in a later batch."""
    plan = write.upsert(live(PLAIN), batch_size=2, on_batch=None)
    with pytest.raises(OSError, match="file gone") as caught:
        play(plan, documents("a"), [5, PLAIN_NAMES], OSError("file gone"))
    assert interruption(caught.value) == Interruption(UpsertReport(1), ())
    plan = write.upsert(live(PLAIN), batch_size=2, on_batch=None)
    with pytest.raises(InvalidInput) as invalid:
        play(plan, documents("a"), [5, PLAIN_NAMES], [Document("bad", vector=[0, 0])])
    assert interruption(invalid.value) == Interruption(UpsertReport(1), ("bad",))


def test_the_first_write_compares_what_is_stored():
    """Before its first batch, and only then, an upsert probes, compares the live index and claims its metadata."""
    fresh = Live(OURS)
    full = [Document("a", "x", {"category": "c", "tags": [], "year": 1, "title": "t", "url": None}, UNIT)]
    written = [[5, 1, [b"ours"]]]
    plan = write.upsert(fresh, batch_size=10, on_batch=None)
    _, steps = play(plan, full, [HELLO], [CLIENT], [METADATA, INFO], [0, METADATA], *written, full, *written, [])
    asked = [words(step) for step in steps if isinstance(step, Ask)]
    assert asked[:4] == [["HELLO"], ["CLIENT"], ["HGETALL", "FT.INFO"], ["EVAL", "HGETALL"]]
    assert asked[4] == asked[5] == ["HSET", "EVAL", "FT._LIST"]
    assert fresh.checked


SERVER = Server("valkey", "9.1.2", cluster=False, engine=REDISEARCH_2)


def test_an_index_that_vanished_is_told_with_the_batch_that_it_missed():
    """Each batch asks which indexes there are; where ours is not, it is looked for, and the next batch looks first."""
    known = live(OURS, server=SERVER)
    batch = [Document("a", "x", {"category": "c", "tags": [], "year": 1, "title": "t", "url": None}, UNIT)]
    with pytest.raises(
        IndexMissing, match=r"no index 'ours'; its metadata are there.*create_index\(\) makes it"
    ) as told:
        play(
            write.upsert(known, batch_size=1, on_batch=None),
            *(batch, [5, 1, [b"ours"]]),
            *(batch, [5, 1, [b"other"]], [CLIENT], [METADATA, MISSING]),
        )
    assert interruption(told.value) == Interruption(UpsertReport(1), ("a",))
    assert not known.checked


@pytest.mark.parametrize(
    "names", [ResponseError("NOPERM this user has no permissions to run the 'ft._list' command"), [b"ours"]]
)
def test_who_may_not_ask_for_indexes_may_write(names):
    """A refused FT._LIST stops no upsert."""
    known = live(OURS, server=SERVER)
    batch = [Document("a", "x", {"category": "c", "tags": [], "year": 1, "title": "t", "url": None}, UNIT)]
    assert play(write.upsert(known, batch_size=1, on_batch=None), batch, [5, 1, names], [])[0] == UpsertReport(1)


def test_a_memory_that_is_full_after_the_last_document_loses_no_report():
    """The counters of lengths are refused for want of memory: what was written is reported; other refusals raise."""
    full = ResponseError("OOM command not allowed when used memory > 'maxmemory'.")
    batch = [Document("a", "x", {"category": "c", "tags": [], "year": 1, "title": "t", "url": None}, UNIT)]
    report, _ = play(write.upsert(live(OURS), batch_size=1, on_batch=None), batch, [5, full, [b"ours"]], [])
    assert report == UpsertReport(1)
    refused = ResponseError("NOPERM No permissions to access a key")
    with pytest.raises(PermissionDenied):
        play(write.upsert(live(OURS), batch_size=1, on_batch=None), batch, [5, refused, [b"ours"]])


def test_a_first_write_without_an_index_is_an_error():
    """No index, known dimensions: the error says what makes one."""
    plan = write.upsert(Live(OURS), batch_size=10, on_batch=None)
    with pytest.raises(IndexMissing, match=r"create_index\(\) makes it"):
        play(plan, [Document("a", "x", {}, UNIT)], [HELLO], [CLIENT], [[], MISSING])
    plan = write.upsert(Live(OURS), batch_size=10, on_batch=None)
    with pytest.raises(IndexMissing, match="the server lost it"):
        play(plan, [Document("a", "x", {}, UNIT)], [HELLO], [CLIENT], [METADATA, MISSING])


# --- create_index ---------------------------------------------------------------------------------


def create(known=None):
    return index.create(known or Live(OURS), timeout_s=1)


def test_an_index_is_made():
    """Probe, look, claim, create, wait: in this order, with the words of build_ft_create_args."""
    made, steps = play(create(), [HELLO], [CLIENT], [[], MISSING, []], [1, METADATA], [b"OK"], 0.0, [INFO])
    assert made is True
    asked = [words(step) for step in steps if isinstance(step, Ask)]
    assert asked == [
        ["HELLO"],
        ["CLIENT"],
        ["HGETALL", "FT.INFO", "FT._LIST"],
        ["EVAL", "HGETALL"],
        ["FT.CREATE"],
        ["FT.INFO"],
    ]
    (command,) = steps[4].commands
    assert list(command.args) == build_ft_create_args(OURS, engine=REDISEARCH_2)
    assert not command.repeatable


class BusyLoadingError(ConnectionError):
    """As the client libraries tell LOADING."""


def test_a_server_that_is_loading_is_waited_for():
    """create_index asks again from the start until the server has its data; the wait for a backfill is the rest."""
    loading = BusyLoadingError("loading")
    answers = ([HELLO], [CLIENT], loading, 100.0, 100.1, [CLIENT], loading, 100.3, [CLIENT])
    made, steps = play(create(), *answers, [METADATA, INFO, [b"ours"]], [0, METADATA], 0.0, [INFO])
    assert made is False
    waits = [step.seconds for step in steps if isinstance(step, Wait)]
    assert waits[0] == 0
    assert 0 < waits[1] < waits[2]


@pytest.mark.parametrize("timeout_s", [0, 0.2])
def test_a_server_that_is_loading_for_longer_is_an_error(timeout_s):
    """When timeout_s has passed the client's own error is raised."""
    loading = BusyLoadingError("loading")
    later = [100.1, [CLIENT], loading, 100.3, [CLIENT], loading] if timeout_s else []
    with pytest.raises(BusyLoadingError) as raised:
        play(index.create(Live(OURS), timeout_s), [HELLO], [CLIENT], loading, 100.0, *later)
    assert raised.value is loading


def test_an_index_that_is_there_is_compared():
    """The same index is no error and not made again; another is one that names both, case B66."""
    made, _ = play(create(), [HELLO], [CLIENT], [METADATA, INFO, [b"ours"]], [0, METADATA], 0.0, [INFO])
    assert made is False
    other = Live(Schema("ours", OURS.fields, Vector(dims=8)))
    with pytest.raises(SchemaMismatch, match="dims 8 declared, 4 live") as caught:
        play(create(other), [HELLO], [CLIENT], [METADATA, INFO, [b"ours"]])
    assert caught.value.differences == ("field 'embedding': dims 8 declared, 4 live",)


def test_the_loser_of_a_race_compares():
    """Another process creates it between our look and our FT.CREATE: compared, not an error, case B65."""
    for said in ("Index already exists", "Index ours in database 0 already exists."):
        made, _ = play(
            create(),
            [HELLO],
            [CLIENT],
            [[], MISSING, []],
            [0, METADATA],
            [ResponseError(said)],
            [INFO],
            0.0,
            [INFO],
        )
        assert made is False


def test_the_loser_of_a_race_finds_another_schema():
    """Two programs that mean different things find out, at the claim already, cases B50 and B65."""
    other = Live(Schema("ours", [Tag("category")], Vector(dims=4)))
    with pytest.raises(SchemaMismatch, match="in the index, not declared"):
        play(create(other), [HELLO], [CLIENT], [[], MISSING, []], [0, METADATA])


def test_a_refused_creation_takes_its_claim_back():
    """Where FT.CREATE fails, our claim does not stand in the way; another's claim stays."""
    refusal = ResponseError("OOM command not allowed")
    with pytest.raises(ServerError, match="OOM"):
        play(create(), [HELLO], [CLIENT], [[], MISSING, []], [1, METADATA], [refusal], [1])
    with pytest.raises(ServerError, match="OOM"):
        play(create(), [HELLO], [CLIENT], [[], MISSING, []], [0, METADATA], [refusal])


@pytest.mark.parametrize("prefix", [b"ours:", b"ours:x/", b"our", b"o", b""], ids=repr)
def test_an_overlapping_prefix_is_refused(prefix):
    """A prefix that begins another index's, or the other way round, would take its documents, cases B60 and B61."""
    with pytest.raises(InvalidInput, match="overlaps"):
        play(create(), [HELLO], [CLIENT], [[], MISSING, [b"other"]], [with_prefix(prefix)])


def test_other_prefixes_are_no_matter():
    """Other indexes beside, generations of one's own, and indexes dropped meanwhile do not refuse a creation."""
    other = with_prefix(b"other:")
    made, _ = play(
        create(),
        [HELLO],
        [CLIENT],
        [[], MISSING, [b"other", b"ours@2", b"gone"]],
        [MISSING, other],
        [1, METADATA],
        [b"OK"],
        0.0,
        [INFO],
    )
    assert made


def test_no_search_module():
    """A server without one is told by its HELLO, and the error says what is needed."""
    hello = [*HELLO]
    hello[hello.index(b"modules") + 1] = []
    with pytest.raises(NotSupported, match="no search module.*valkey-bundle"):
        play(create(), [hello])


def test_a_cluster_without_a_coordinator():
    """RediSearch in cluster mode answers from one shard, so it is refused, case B79."""
    hello = [*HELLO]
    hello[hello.index(b"mode") + 1] = b"cluster"
    with pytest.raises(NotSupported, match="one shard only"):
        play(create(), [hello])


def test_another_database():
    """RediSearch indexes database 0 only; an engine that indexes any is not asked."""
    with pytest.raises(NotSupported, match="database 3"):
        play(create(), [HELLO], [CLIENT.replace(b" db=0 ", b" db=3 ")])
    made, steps = play(
        create(Live(OURS, engine=VALKEY_SEARCH_1_2)), [[], MISSING, []], [1, METADATA], [b"OK"], 0.0, [INFO]
    )
    assert made
    assert "CLIENT" not in [word for step in steps if isinstance(step, Ask) for word in words(step)]


def test_dimensions_come_from_the_embedder():
    """Unknown dimensions are learned by embedding one word; without an embedder they are an error."""
    unknown = Live(Schema("ours", OURS.fields), embeds=True)
    _, steps = play(create(unknown), [HELLO], [CLIENT], [UNIT], [[], MISSING, []], [1, METADATA], [b"OK"], 0.0, [INFO])
    assert isinstance(steps[2], Embed)
    assert unknown.dims == 4
    with pytest.raises(InvalidInput, match=r"pass Vector\(dims"):
        play(create(Live(Schema("ours", OURS.fields))), [HELLO], [CLIENT], [[], MISSING, []])


def stored(**changes):
    pairs = dict(zip(METADATA[::2], METADATA[1::2], strict=True))
    pairs |= {name.encode(): value.encode() for name, value in changes.items()}
    return [word for pair in pairs.items() for word in pair]


def test_another_embedder_is_refused():
    """An index keeps the name of the embedder that filled it; another one is an error that names both, case B49."""
    named = Live(OURS, embedder="model-b")
    with pytest.raises(SchemaMismatch, match="embedder: 'model-b' given, 'model-a' made its vectors"):
        play(create(named), [HELLO], [CLIENT], [METADATA, INFO, []], [0, stored(embedder="model-a")])
    unnamed = Live(OURS)
    play(create(unnamed), [HELLO], [CLIENT], [METADATA, INFO, []], [0, stored(embedder="model-a")], 0.0, [INFO])


def test_an_embedder_is_noted_where_none_was():
    """The first embedder with a name is noted; who was first in between wins."""
    named = Live(OURS, embedder="model-b")
    look = [METADATA, INFO, []]
    _, steps = play(create(named), [HELLO], [CLIENT], look, [0, METADATA], [1, stored(embedder="model-b")], 0.0, [INFO])
    assert words(steps[4]) == ["HSETNX", "HGETALL"]
    with pytest.raises(SchemaMismatch, match="model-a"):
        play(create(named), [CLIENT], look, [0, METADATA], [0, stored(embedder="model-a")])


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ([b"a", b"b"], "no metadata of ours"),
        (stored(layout="2"), "layout '2'"),
        (stored(schema="{"), "cannot be read"),
        (stored(schema="[]"), "cannot be read"),
        (stored(schema="null"), "cannot be read"),
    ],
    ids=["foreign", "newer layout", "no JSON", "a list", "null"],
)
def test_metadata_that_are_not_ours(held, reason):
    """A foreign hash in the metadata's place, or another layout, is a mismatch that says so."""
    with pytest.raises(SchemaMismatch, match=reason):
        play(create(), [HELLO], [CLIENT], [held, INFO, []], [0, held])


def test_a_backfill_is_waited_for():
    """create_index waits until what was there is indexed, longer each time, and tells if it was not, case B67."""
    filling = [*INFO]
    filling[filling.index(b"indexing") + 1] = 1
    known = live()
    done, steps = play(index.wait(known, 1.0), 10.0, [filling], 10.1, [filling], 10.2, [INFO])
    assert done is True
    assert [step.seconds for step in steps if isinstance(step, Wait)] == [0, 0.002, 0.004]
    assert not known.filling
    done, _ = play(index.wait(known, 1.0), 10.0, [filling], 11.0)
    assert done is False
    assert known.filling


# --- the others -----------------------------------------------------------------------------------


def test_an_index_is_described():
    """describe_index reads the probe, the metadata and FT.INFO, and changes nothing."""
    report, steps = play(index.describe(Live(OURS)), [HELLO], [METADATA, INFO])
    assert [words(step) for step in steps] == [["HELLO"], ["HGETALL", "FT.INFO"]]
    assert (report.name, report.prefix, report.documents, report.dims) == ("ours", "ours:", 2, 4)
    assert (report.metric, report.algorithm, report.indexing, report.percent_indexed) == ("COSINE", "HNSW", False, 100)
    assert (report.failures, report.last_error, report.embedder) == (0, None, None)
    assert report.engine == "valkey 9.1.2 with RediSearch 2.10.5"
    with pytest.raises(IndexMissing):
        play(index.describe(Live(OURS)), [HELLO], [[], MISSING])


def test_a_stored_schema_is_read_back():
    """The schema of a live index comes from its metadata."""
    schema, _ = play(index.stored_schema("ours"), [INFO], [METADATA])
    assert schema == OURS
    with pytest.raises(SchemaMismatch, match="not made by this library"):
        play(index.stored_schema("ours"), [INFO], [[]])


def test_the_stored_schema_of_a_generation():
    """Read from the metadata of that generation, not of the first."""
    second = OURS.of_generation(2)
    schema, steps = play(index.stored_schema("ours@2"), [INFO], [[b"schema", second.to_json().encode()]])
    assert steps[1].commands[0].args == ("HGETALL", "ours@2")
    assert schema == second


def test_documents_are_got():
    """get answers one or many, in their order, None where there is none; vectors only when asked for."""
    document, steps = play(read.get(live(), "1", return_vectors=True), [DOCUMENT])
    assert document == Document(
        "1",
        "alpha beta",
        {"category": "db", "tags": ["a", "", "x "], "year": 2024, "title": "A title", "url": {"a": [1]}},
    )
    assert document.vector.tolist() == [1, 0, 0, 0]
    assert steps[0].commands[0].args == (
        *("HMGET", "ours:1", "__text", "category", "tags", "year", "title", "url", "embedding"),
    )
    nothing = [None] * 6
    many, steps = play(read.get(live(), ["x", "1", "x"], return_vectors=False), [nothing, DOCUMENT[:-1], nothing])
    assert [each and each.id for each in many] == [None, "1", None]
    assert play(read.get(live(), [], return_vectors=False)) == ([], [])
    with pytest.raises(ReplyError, match="'ours:1' holds a value that this library did not write"):
        play(read.get(live(), "1", return_vectors=False), [[b"text", None, None, b"abc", None, None]])


@pytest.mark.parametrize("ids", [None, 5, [None], [""], ["a", 5], b"a", ["a\ud800"]], ids=repr)
def test_ids_that_are_refused(ids):
    """An id that is none is refused before any I/O, in every operation that takes ids."""
    operations = [
        lambda: read.get(live(), ids, return_vectors=False),
        lambda: read.exists(live(), ids),
        lambda: write.delete(live(), ids, None, everything=False),
    ]
    for operation in operations[: 2 if ids is None else 3]:
        with pytest.raises(InvalidInput, match="id"):
            play(operation())


def test_existence_is_one_round_trip():
    """exists answers one or many, in their order; what holds no text of ours is no document, nor is another type."""
    assert play(read.exists(live(), "a"), [1])[0] is True
    answers, steps = play(read.exists(live(), ["a", "b"]), [0, 1])
    assert answers == [False, True]
    assert [command.args for command in steps[0].commands] == [
        ("HEXISTS", "ours:a", "__text"),
        ("HEXISTS", "ours:b", "__text"),
    ]
    wrong = ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
    assert play(read.exists(live(), ["a", "b"]), [wrong, 1])[0] == [False, True]
    with pytest.raises(ServerError):
        play(read.exists(live(), ["a", "b"]), [1, ResponseError("NOPERM")])


def test_an_empty_list_deletes_nothing():
    """delete([]) asks nothing, case B62."""
    assert play(write.delete(live(), [], None, everything=False)) == (0, [])


@pytest.mark.parametrize(
    ("ids", "filter", "everything", "reason"),
    [
        (None, None, False, "not neither"),
        (None, None, True, "not neither"),
        (["a"], {}, False, "not both"),
        (["a"], None, True, "goes with filter"),
        (None, {}, False, "say everything=True"),
        (None, {"category": "x"}, True, "goes with an empty filter"),
        (None, {"typo": "x"}, False, "unknown field"),
        (None, {"category": None}, False, "None"),
        (None, {"category": []}, False, "list"),
        (None, Tag("typo") != "x", False, "unknown field"),
    ],
)
def test_deletions_that_are_refused(ids, filter, everything, reason):
    """A filter that cannot be meant, or would mean everything unsaid, deletes nothing, cases B28, B29 and B62."""
    with pytest.raises(InvalidInput, match=reason):
        play(write.delete(live(), ids, filter, everything=everything))


def test_a_filter_deletes_what_passes():
    """Ids are collected by walking the keys, all of them before the first is deleted, case B59."""
    other = [b"t", b"web", None, None, None, None]
    plan = write.delete(live(), None, {"category": "db"}, everything=False)
    deleted, steps = play(plan, [[b"5", [b"ours:1"]]], [DOCUMENT[:-1]], [[b"0", [b"ours:2"]]], [other], [1])
    assert deleted == 1
    assert [words(step) for step in steps] == [["SCAN"], ["HMGET"], ["SCAN"], ["HMGET"], ["EVAL"]]
    assert_deletes(steps[-1], "ours:1")


def assert_deletes(step, *keys):
    """Each key by a script of its own, which looks whether the key is a document of ours."""
    assert [(command.args, command.route) for command in step.commands] == [
        (("EVAL", write._DELETE, 1, key), key) for key in keys
    ]
    look, _, unlink = write._DELETE.partition(" then ")
    assert "'TYPE', KEYS[1]).ok == 'hash'" in look
    assert "'HEXISTS', KEYS[1], '__text') == 1" in look
    assert unlink == "return redis.call('UNLINK', KEYS[1]) end return 0"


def test_ids_are_deleted_in_one_round_trip():
    """A delete by id asks nothing else, also of an index that was never looked at; it counts what the server says."""
    deleted, (step,) = play(write.delete(Live(OURS), ["a", "b", "c"], None, everything=False), [1, 0, 1])
    assert deleted == 2
    assert_deletes(step, "ours:a", "ours:b", "ours:c")


def delete_by_filter(known=None):
    return write.delete(known or Live(OURS), None, {"category": "db"}, everything=False)


@pytest.mark.parametrize("looked", [[METADATA, INFO, [b"ours"]], [[], INFO, [b"ours"]], [METADATA, MISSING, []]])
def test_a_filter_is_compared_before_it_deletes(looked):
    """Of an index that was not looked at, metadata and definition are read first; each alone may do."""
    deleted, steps = play(delete_by_filter(), [HELLO], [CLIENT], looked, [[b"0", [b"ours:1"]]], [DOCUMENT[:-1]], [1])
    assert deleted == 1
    assert [words(step) for step in steps[2:4]] == [["HGETALL", "FT.INFO", "FT._LIST"], ["SCAN"]]


@pytest.mark.parametrize(
    ("schema", "looked", "reason"),
    [
        (Schema("ours", [Tag("category")], Vector(dims=4)), [METADATA, INFO, [b"ours"]], "in the index, not declared"),
        (Schema("ours", [Tag("category")], Vector(dims=4)), [METADATA, MISSING, []], "in the index, not declared"),
        (Schema("ours", [Tag("category")], Vector(dims=4)), [[], INFO, [b"ours"]], "in the live index, not declared"),
        (OURS, [[b"a", b"b"], MISSING, []], "no metadata of ours"),
        (OURS, [ResponseError("WRONGTYPE"), MISSING, []], "no metadata of ours"),
        (Schema("mine", OURS.fields, Vector(dims=4), prefix="ours/"), [NAMED, MISSING, []], "of index 'ours'"),
    ],
)
def test_a_filter_of_another_index_deletes_nothing(schema, looked, reason):
    """What was declared is not what is live, or stored of a lost index: no key is walked, let alone deleted."""
    with pytest.raises(SchemaMismatch, match=reason):
        play(delete_by_filter(Live(schema)), [HELLO], [CLIENT], looked)


def test_a_filter_deletes_nothing_of_an_index_it_overlaps():
    """Where no index has the name, a prefix that begins another's would mean the other's documents."""
    with pytest.raises(InvalidInput, match="overlaps"):
        play(delete_by_filter(), [HELLO], [CLIENT], [[], MISSING, [b"other"]], [with_prefix(b"ours:x:")])


def test_a_refused_deletion_is_raised():
    """What the server refuses to delete is no smaller count."""
    with pytest.raises(ServerError):
        play(write.delete(live(), ["a", "b"], None, everything=False), [1, ResponseError("READONLY")])


def test_counting():
    """Everything is counted by FT.INFO, a filter by a search without rows; a slow count is no count, case B83."""
    assert play(read.count(live(), None), [INFO])[0] == 2
    total, (step,) = play(read.count(live(), {"category": "db"}), [[7]])
    assert total == 7
    assert grammar.check_search(step.commands[0].args).knn is None
    with pytest.raises(SearchTimeout):
        play(read.count(live(), {"category": "db"}), ([[7]], 5.0))


SHARDS = (Node("one"), Node("two"), Node("three"))


def shard(*, documents, indexing=0, failures=0):
    """What one shard says of the recorded index."""
    reply = [*INFO]
    for name, value in ((b"num_docs", documents), (b"indexing", indexing), (b"hash_indexing_failures", failures)):
        reply[reply.index(name) + 1] = value
    return reply


def test_counting_all_shards():
    """Where FT.INFO tells of one node's shard, each primary is asked and the documents are added up."""
    shards = [shard(documents=3), shard(documents=4), shard(documents=5)]
    total, (step,) = play(read.count(live(engine=VALKEY_SEARCH_1_2), None), shards, primaries=SHARDS)
    assert total == 12
    assert [command.route for command in step.commands] == [*SHARDS]
    total, (step,) = play(read.count(live(engine=REDIS_8), None), [shard(documents=12)], primaries=SHARDS)
    assert total == 12
    assert step.commands[0].route is None


def test_an_index_that_reaches_the_nodes_one_by_one():
    """FT.CREATE arrives later on other nodes; it is waited for until all have filled the index (case B81)."""
    alive = live(engine=VALKEY_SEARCH_1_2)
    plan = index.wait(alive, 60)
    some = [shard(documents=1), MISSING, shard(documents=1, failures=2)]
    filling = [shard(documents=1), shard(documents=1, indexing=1), shard(documents=1)]
    full = [shard(documents=1)] * 3
    done, steps = play(plan, 0.0, some, 0.1, filling, 0.2, full, primaries=SHARDS)
    assert done
    assert sum(isinstance(step, Ask) for step in steps) == 3
    with pytest.raises(IndexMissing):
        play(read.count(alive, None), [MISSING] * 3, primaries=SHARDS)
    with pytest.raises(ServerError, match="READONLY"):
        play(read.count(alive, None), [full[0], ResponseError("READONLY"), full[0]], primaries=SHARDS)


def test_a_walk_has_a_cursor_for_each_primary():
    """Every primary is walked to its end, one after the other, each with the cursors that it gave itself."""
    plan = read.scan(live(), None, batch_size=10, return_vectors=False)
    pages = [[b"7", [b"ours:1"]]], [DOCUMENT[:-1]], None, [[b"0", []]], [[b"0", [b"ours:2"]]], [DOCUMENT[:-1]], None
    _, steps = play(plan, *pages, primaries=SHARDS[:2])
    scans = [step.commands[0] for step in steps if isinstance(step, Ask) and words(step) == ["SCAN"]]
    assert [(scan.route, scan.args[1]) for scan in scans] == [(SHARDS[0], 0), (SHARDS[0], 7), (SHARDS[1], 0)]
    assert [[each.id for each in step.items] for step in steps if isinstance(step, Page)] == [["1"], ["2"]]


def test_counting_beyond_where_an_engine_stops():
    """Valkey Search stops at 100,000 matches; there the keys are walked."""
    counting = read.count(live(engine=VALKEY_SEARCH_1_2), {"category": "db"})
    total, steps = play(counting, [[100_000]], [[b"0", [b"ours:1"]]], [DOCUMENT[:-1]])
    assert total == 1
    assert [words(step) for step in steps] == [["FT.SEARCH"], ["SCAN"], ["HMGET"]]


def test_scanning():
    """scan walks the keys under the prefix, gives each id once, and passes over what others wrote."""
    foreign = [None] * 6
    broken = [b"t", None, None, b"abc", None, None]
    plan = read.scan(live(), None, batch_size=10, return_vectors=False)
    _, steps = play(
        plan,
        [[b"3", [b"ours:1", b"ours:x"]]],
        [DOCUMENT[:-1], foreign],
        None,
        [[b"0", [b"ours:1", b"ours:y", b"ours:\xff"]]],
        [DOCUMENT[:-1], broken, DOCUMENT[:-1]],
    )
    pages = [step for step in steps if isinstance(step, Page)]
    assert [[document.id for document in page.items] for page in pages] == [["1"]]
    assert steps[0].commands[0].args == ("SCAN", 0, "MATCH", "ours:*", "COUNT", 10, "TYPE", "hash")


@pytest.mark.parametrize(
    ("prefix", "pattern"), [("a*:", r"a\*:*"), ("[x]/", r"\[x\]/*"), ("a?b#", r"a\?b#*"), ("a\\:", "a\\\\:*")]
)
def test_a_prefix_is_no_pattern(prefix, pattern):
    """A prefix of special characters walks its own keys only, case B07."""
    plan = read.scan(live(Schema("x", prefix=prefix)), None, batch_size=10, return_vectors=False)
    _, (step,) = play(plan, [[b"0", []]])
    assert step.commands[0].args[3] == pattern


def test_an_update_changes_what_it_names():
    """update sets some fields and removes others in one script; no document, nothing written, case B45."""
    changed, steps = play(write.update(live(), "a", {"year": 5, "category": None, "title": "New title"}), [1])
    assert changed is True
    (command,) = steps[0].commands
    assert command.args[3:] == (
        *("ours:a", 1, "category"),
        *("year", b"5", "__exact_year", b"5", "title", b"New title", "__terms_title", b" new  titl "),
    )
    assert play(write.update(live(), "a", {"year": 5}), [0])[0] is False


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "at least one field"),
        (None, "at least one field"),
        ([("year", 5)], "at least one field"),
        ({"typo": 5}, "not declared"),
        ({"embedding": [1, 2]}, "not declared"),
        ({"__text": "x"}, "not declared"),
        ({"year": "5"}, "a number expected"),
        ({"tags": "abc"}, "a list of strings"),
        ({"category": ["a"]}, "a string expected"),
        ({"title": 5}, "a string expected"),
    ],
    ids=repr,
)
def test_updates_that_are_refused(fields, reason):
    """A bad value is refused before any I/O, also with an index that was never looked at."""
    with pytest.raises(InvalidInput, match=reason):
        play(write.update(Live(OURS), "a", fields))
    with pytest.raises(InvalidInput, match="id"):
        play(write.update(Live(OURS), "", {"year": 5}))


def test_dropping_an_index_keeps_its_documents():
    """FT.DROPINDEX never carries DD; an index that is not there is dropped already, cases B61, B62 and B72."""
    for stored, info, answer in (
        (METADATA, INFO, b"OK"),
        (METADATA, INFO, MISSING),
        (METADATA, MISSING, MISSING),
        ([], INFO, b"OK"),
        ([], MISSING, MISSING),
    ):
        known = live()
        deleted, steps = play(write.drop(known, delete_documents=False), [stored, info], [answer, 1])
        assert deleted == 0
        assert [words(step) for step in steps[:-1]] == [["HGETALL", "FT.INFO"]]
        assert [(command.args[0], command.args[-1]) for command in steps[-1].commands] == [
            ("FT.DROPINDEX", "ours"),
            ("EVAL", "ours"),
        ]
        assert not known.checked
    with pytest.raises(ServerError):
        play(write.drop(live(), delete_documents=False), [METADATA, INFO], [ResponseError("no permission"), 0])


@pytest.mark.parametrize("delete_documents", [False, True])
def test_an_alias_is_not_dropped(delete_documents):
    """A name that is another index's alias drops nothing, case B62."""
    other = live(Schema("other", OURS.fields, OURS.vector))
    with pytest.raises(SchemaMismatch, match="alias of index 'ours'"):
        play(write.drop(other, delete_documents=delete_documents), [[], INFO])


@pytest.mark.parametrize("delete_documents", [False, True])
@pytest.mark.parametrize(
    ("schema", "stored", "info", "reason"),
    [
        (OURS, METADATA, with_prefix(b"else:"), "by another program, or with another prefix"),
        (OURS, [], with_prefix(b"else:"), "by another program, or with another prefix"),
        (Schema("ours", [Tag("category")], Vector(dims=4)), [], INFO, "by another program"),
        (Schema("mine", OURS.fields, Vector(dims=4), prefix="ours/"), NAMED, MISSING, "of index 'ours'"),
    ],
)
def test_an_index_of_another_program_is_not_dropped(schema, stored, info, reason, delete_documents):
    """What is refused: another prefix, what is neither described nor as declared, another index's metadata."""
    with pytest.raises(SchemaMismatch, match=reason):
        play(write.drop(live(schema), delete_documents=delete_documents), [stored, info])


def test_what_cannot_be_read_is_not_dropped():
    """A refused look is raised and nothing dropped; a key of another type in the metadata's place may stay there."""
    for looked in ([ResponseError("NOPERM"), INFO], [METADATA, ResponseError("NOPERM")]):
        with pytest.raises(ServerError, match="NOPERM"):
            play(write.drop(live(), delete_documents=False), looked)
    assert play(write.drop(live(), delete_documents=False), [ResponseError("WRONGTYPE"), INFO], [b"OK", 0])[0] == 0


def test_dropping_documents_deletes_only_ours():
    """With delete_documents the keys are walked and those that we wrote deleted, one by one."""
    foreign = [None] * 6
    deleted, steps = play(
        write.drop(live(), delete_documents=True),
        [METADATA, INFO],
        [[b"ours"]],
        [b"OK", 1],
        [[b"0", [b"ours:1", b"ours:foreign"]]],
        [DOCUMENT[:-1], foreign],
        [1],
    )
    assert deleted == 1
    assert_deletes(steps[-1], "ours:1")


@pytest.mark.parametrize("prefix", [b"ours:", b"ours:x:", b"our"], ids=repr)
def test_dropping_documents_spares_another_index(prefix):
    """Where another index shares keys, nothing is dropped: its documents would go too."""
    with pytest.raises(InvalidInput, match="overlaps"):
        play(write.drop(live(), delete_documents=True), [METADATA, INFO], [[b"ours", b"other"]], [with_prefix(prefix)])
