"""Reranking: asked for, checked, cut to k, and never able to invent a hit."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest

from retriever import TEXT_FIELD, Document, Hit, InvalidInput
from tests.fakes import Embedder

pytestmark = pytest.mark.live
IDS = [f"{at:02}" for at in range(40)]


class Line(Embedder):
    """Embeds the text "n" at n steps from the text "0", so that ids are in the order of distance."""

    def vector(self, text):
        return np.array([1, int(text) / 100, 0, 0], np.float32)


@pytest.fixture
async def line(make, schema):
    shell = make(schema, embed=Line())
    await shell.create_index()
    await shell.upsert([Document(id, id, {"year": int(id)}) for id in IDS])
    return shell


def as_async(function):
    async def awaited(text, hits):
        return function(text, hits)

    return awaited


def farthest_first(text, hits):
    return hits[::-1]


def by_year(text, hits):
    return [(hit, float(hit.fields["year"] % 10)) for hit in hits]


async def test_a_reranker_sees_candidates_and_its_order_wins(line):
    """It gets the text and 4k mapped hits, nearest first; k of its order come back, score the distance."""
    seen = []

    def rerank(text, hits):
        seen.append((text, hits))
        return hits[::-1]

    hits = await line.query(text="0", k=3, rerank=rerank)
    ((text, given),) = seen
    assert text == "0"
    assert [hit.id for hit in given] == IDS[:12]
    assert all(isinstance(hit, Hit) and hit.text == hit.id and hit.rerank_score is None for hit in given)
    assert [hit.id for hit in hits] == ["11", "10", "09"]
    assert [hit.score for hit in hits] == [given[at].score for at in (11, 10, 9)]
    assert [hit.rerank_score for hit in hits] == [None] * 3


async def test_scores_travel_with_their_hits(line):
    """Pairs are sorted by their score, equal ones in the reranker's order, whatever order it gave (cases B95, B99)."""
    hits = await line.query(text="0", k=4, candidates=20, rerank=by_year)
    assert [(hit.id, hit.rerank_score) for hit in hits] == [("09", 9), ("19", 9), ("08", 8), ("18", 8)]
    shuffled = await line.query(
        text="0", k=2, rerank=lambda text, hits: [(hits[at], -10.5 * at) for at in (5, 1, 7, 0)]
    )
    assert [(hit.id, hit.rerank_score) for hit in shuffled] == [("00", 0.0), ("01", -10.5)]
    saturated = await line.query(text="0", k=2, rerank=lambda text, hits: [(hit, np.float16(1)) for hit in hits[::-1]])
    assert [(hit.id, hit.rerank_score) for hit in saturated] == [("07", 1.0), ("06", 1.0)]


async def test_true_takes_the_constructors(make, schema, line):
    """rerank=True is the constructor's reranker, False and None are none, and True without one is an error."""
    shell = make(schema, embed=Line(), rerank=farthest_first)
    assert [hit.id for hit in await shell.query(text="0", k=2, rerank=True)] == ["07", "06"]
    for none in (None, False):
        assert [hit.id for hit in await shell.query(text="0", k=2, rerank=none)] == ["00", "01"]
    other = await shell.query(text="0", k=2, rerank=lambda text, hits: hits[1:])
    assert [hit.id for hit in other] == ["01", "02"]
    with pytest.raises(InvalidInput, match="needs a reranker"):
        await line.query(text="0", k=2, rerank=True)


async def test_async_rerankers(line, make, schema):
    """A coroutine function is awaited by AsyncRetriever and a TypeError for Retriever, before any I/O."""
    rerank = as_async(by_year)
    if line.blocking:
        with pytest.raises(TypeError, match="coroutine function"):
            await line.query(text="0", k=2, rerank=rerank)
        with pytest.raises(TypeError, match="coroutine function"):
            make(schema, rerank=rerank)
        with pytest.raises(TypeError, match="returned an awaitable"):
            await line.query(text="0", k=2, rerank=lambda text, hits: rerank(text, hits))
        return
    for each in (rerank, lambda text, hits: rerank(text, hits)):
        assert [hit.id for hit in await line.query(text="0", k=2, candidates=20, rerank=each)] == ["09", "19"]
    assert [hit.id for hit in await make(schema, embed=Line(), rerank=rerank).query(text="0", k=1, rerank=True)] == [
        "03"
    ]


async def test_candidates(line):
    """candidates sets how many it sees, at least k, and means nothing without a reranker."""
    seen = []

    def rerank(text, hits):
        seen.append(len(hits))
        return hits

    for k, candidates in ((1, 1), (3, 3), (3, 35), (5, 10_000), (5, None), (10_000, None)):
        hits = await line.query(text="0", k=k, candidates=candidates, rerank=rerank)
        assert len(hits) == min(k, 40)
    assert seen == [1, 3, 35, 40, 20, 40]
    for wrong in (
        {"candidates": 5},
        {"candidates": 2, "rerank": rerank, "k": 3},
        {"candidates": 10_001, "rerank": rerank},
    ):
        with pytest.raises(InvalidInput, match="candidates"):
            await line.query(text="0", **wrong)
    for wrong in (0, 2.5, True, "5"):
        with pytest.raises(InvalidInput, match="candidates"):
            await line.query(text="0", k=1, rerank=rerank, candidates=wrong)


async def test_a_subset_and_nothing_are_answers(line):
    """A reranker may leave hits out, or all of them."""
    assert [hit.id for hit in await line.query(text="0", k=3, rerank=lambda text, hits: [hits[7]])] == ["07"]
    assert len(await line.query(text="0", k=3, rerank=lambda text, hits: [])) == 0
    assert [hit.id for hit in await line.query(text="0", k=1, rerank=lambda text, hits: iter(hits[2:]))] == ["02"]


async def test_what_it_made_of_its_copies_is_not_taken(line):
    """The hits that come back are ours, also where the reranker changed its own."""
    hits = await line.query(text="0", k=1, rerank=lambda text, hits: [(replace(hits[0], score=-1, text="no"), 5)])
    assert (hits[0].id, hits[0].text, hits[0].rerank_score) == ("00", "00", 5.0)
    assert abs(hits[0].score) < 1e-6


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda hits: [replace(hits[0], id="invented")], "invented"),
        (lambda hits: [hits[0], hits[0]], "twice"),
        (lambda hits: [(hits[0], 1.0), (hits[0], 0.5)], "twice"),
        (lambda hits: [(hits[0], math.nan), (hits[1], 0.3)], "nan"),
        (lambda hits: [(hits[0], 0.3), (hits[1], np.float16("nan"))], "nan"),
        (lambda hits: [(hits[0], math.inf)], "inf"),
        (lambda hits: [(hits[0], True)], "bool"),
        (lambda hits: [(hits[0], "0.5")], "str"),
        (lambda hits: [hits[0], (hits[1], 1.0)], "mixed"),
        (lambda hits: None, "NoneType"),
        (lambda hits: "text", "str"),
        (lambda hits: {hits[0]}, "set"),
        (lambda hits: [0.1] * len(hits), "float"),
        (lambda hits: [hit.id for hit in hits], "str"),
        (lambda hits: [*hits[:1], replace(hits[0], id="late")], "late"),
    ],
)
async def test_a_wrong_answer_is_an_error(line, answer, said):
    """Invented and repeated ids, scores that are no number, and other shapes are named (case B96)."""
    for rerank in (lambda text, hits: answer(hits), as_async(lambda text, hits: answer(hits))):
        if line.blocking and inspect.iscoroutinefunction(rerank):
            continue
        with pytest.raises(InvalidInput, match=f"(?i){said}"):
            await line.query(text="0", k=1, rerank=rerank)


async def test_a_failing_reranker_is_raised(line):
    """What the reranker raises comes through, never results that look reranked (case B94)."""

    def rerank(text, hits):
        raise ZeroDivisionError("model")

    with pytest.raises(ZeroDivisionError, match="model"):
        await line.query(text="0", k=1, rerank=rerank)
    failed, fine = await line.query_many([{"text": "0", "rerank": rerank}, {"text": "0", "k": 1}])
    assert isinstance(failed, ZeroDivisionError)
    assert [hit.id for hit in fine] == ["00"]


async def test_rerank_needs_text_and_hits(line):
    """With a vector it is an error; where nothing was found it is not called."""

    def rerank(text, hits):
        pytest.fail("called")

    with pytest.raises(InvalidInput, match="needs text="):
        await line.query(vector=[1, 0, 0, 0], rerank=rerank)
    assert len(await line.query(text="0", rerank=rerank, filter={"category": "none"})) == 0
    assert len(await line.query(text="0", rerank=rerank, max_distance=-1)) == 0
    with pytest.raises(InvalidInput, match="callable"):
        await line.query(text="0", rerank="cross-encoder")


async def test_rerank_sees_the_text_also_where_it_is_not_returned(line):
    """A reranker reads texts whatever return_fields says, and the caller gets what it asked for."""
    seen = []

    def rerank(text, hits):
        seen.extend(hit.text for hit in hits)
        return hits

    (hit,) = await line.query(text="0", k=1, candidates=2, rerank=rerank, return_fields=["year"])
    assert seen == ["00", "01"]
    assert (hit.text, hit.fields) == ("", {"year": 0})
    (hit,) = await line.query(text="0", k=1, rerank=rerank, return_fields=[TEXT_FIELD])
    assert (hit.text, hit.fields) == ("00", {})


async def test_rerank_in_query_many(line):
    """Each query of query_many has its own reranker; its answer is the one of query."""
    asked = [
        {"text": "0", "k": 2, "rerank": farthest_first},
        {"text": "5", "k": 3},
        {"text": "0", "k": 2, "rerank": by_year},
    ]
    assert await line.query_many(asked) == [await line.query(**each) for each in asked]


async def test_filter_and_distance_come_before_rerank(line):
    """What is filtered out or too far is never a candidate."""
    seen = []

    def rerank(text, hits):
        seen.extend(hit.id for hit in hits)
        return hits[::-1]

    await line.query(text="0", k=5, candidates=40, rerank=rerank, filter={"year": {"gte": 30}})
    assert seen == IDS[30:]
    seen.clear()
    await line.query(text="0", k=5, candidates=40, rerank=rerank, max_distance=0.005)
    assert seen
    assert seen == IDS[: len(seen)]
    assert len(seen) < 20
