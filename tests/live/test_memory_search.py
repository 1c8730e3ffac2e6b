"""Searching memory: what filters, what counts, what the policy makes of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from retriever import InvalidInput, Tag
from retriever.memory import finding
from retriever.memory.policy import Policy
from tests.fakes import Embedder
from tests.memory_stores import DAY, Counted, Near, dump, lines, memory_of, note

pytestmark = pytest.mark.live


def contents(found):
    return [chunk.content for chunk in found.chunks]


async def near(remember, count, **given):
    """A store of chunks "at 0", "at 1" and so on, each farther from the query "at 0"."""
    store = await remember(embed=Near(), **given)
    await store.ingest(note("\n".join(f"at {at}" for at in range(count)), "many"), split=lines)
    return store


# --- the channels ---------------------------------------------------------------------------------


async def test_without_words_it_is_query(remember):
    """use_fts=False sends exactly the commands of ``query`` and of the count of this read (B23)."""
    store = await near(remember, 30)
    counted = Counted(store)
    found = await store.search("at 0", k=5, use_fts=False, reinforce=False)
    words = [args for args in counted.commands if str(args[0]).startswith("FT.")]
    counted.names()
    hits = (
        await store.retriever._retriever.query(text="at 0", k=15)
        if not remember.blocking
        else (store.retriever._retriever.query(text="at 0", k=15))
    )
    asked = [args for args in counted.commands if str(args[0]).startswith("FT.")]
    assert words == asked
    assert [chunk.id for chunk in found.chunks] == [hit.id for hit in hits][:5]
    assert {chunk.channels for chunk in found.chunks} == {("vector",)}


async def test_relevance_is_a_share(remember):
    """By vector alone 1 - distance / 2; fused, of what the fusion can give at most; always within 0 and 1 (B9)."""
    store = await near(remember, 30)
    for chunk in (await store.search("at 0", k=20, use_fts=False)).chunks:
        assert chunk.relevance == pytest.approx(1 - chunk.vector_distance / 2)
        assert chunk.memory_score is None
    for fusion in (None, "rrf", "linear", "append"):
        found = (await store.search("at 0", k=20, fusion=fusion)).chunks
        assert all(0 <= chunk.relevance <= 1 for chunk in found)
        assert found[0].relevance == max(chunk.relevance for chunk in found)
    scored = await store.search(
        "at 0", k=3, rerank=lambda query, hits: [(hit, -float(at)) for at, hit in enumerate(hits)]
    )
    assert [chunk.relevance for chunk in scored.chunks] == pytest.approx([0.5, 0.26894, 0.1192], abs=1e-4)
    assert [chunk.rerank_score for chunk in scored.chunks] == [0, -1, -2]


async def test_relevance_of_several_texts_is_a_share_too(remember):
    """What each of them contributes is added up, and so is what it can give at most: none is cut down to 1 (B9)."""
    store = await near(remember, 30)
    found = (await store.search("at 0", k=10, expand=lambda query: ["at 1", "at 2"])).chunks
    shares = [chunk.relevance for chunk in found]
    assert shares == sorted(shares, reverse=True)
    assert 0.5 < shares[0] < 1.0
    assert len(set(shares[:3])) == 3
    more = (await store.search("at 0", k=10, expand=lambda query: ["at 1", "at 2", "the"])).chunks
    assert more[0].relevance > 0.9 * shares[0]  # "the" has no words, so its words can give nothing


async def test_appended_words_change_nothing_else(remember):
    """fusion="append" keeps the vector ranking first, and adds what the words find (B23)."""
    store = await remember(embed=Near())
    await store.ingest(note("\n".join([*(f"at {at}" for at in range(40)), "zebra 1500"]), "s"), split=lines)
    plain = contents(await store.search("zebra", k=30, use_fts=False))
    assert "zebra 1500" not in plain
    found = await store.search("zebra", k=40, fusion="append", depth=60)
    assert contents(found)[:30] == plain
    assert contents(await store.search("zebra", k=5))[0] == "zebra 1500"  # the store's fusion trusts words more


async def test_the_same_text_comes_once(remember):
    """One of the chunks of the same text is kept, always the same, and counts the others (B22)."""
    store = await remember()
    await store.ingest([note("the ferry leaves", f"s{at}") for at in range(12)] + [note("the plane leaves", "p")])
    for given in ({"use_fts": False}, {}, {"memory_rerank": True}):
        first = await store.search("the ferry leaves", k=2, reinforce=False, **given)
        again = await store.search("the ferry leaves", k=2, reinforce=False, **given)
        assert sorted(contents(first)) == ["the ferry leaves", "the plane leaves"], given
        assert [chunk.id for chunk in first.chunks] == [chunk.id for chunk in again.chunks]
        assert {chunk.content: chunk.duplicates for chunk in first.chunks}["the ferry leaves"] == 11


async def test_the_best_of_a_text_s_chunks_is_the_one_kept(remember):
    """By memory that is the one that counts most, and one rated too low hides no other (B22, B5)."""
    store = await remember(embed=Near())
    old = time.time() - 300 * DAY
    for source, given in {
        "a": {"importance": 0.1},
        "b": {"knowledge_type": "news", "source_date": old},
        "c": {"importance": 0.9},
        "d": {"knowledge_type": "news", "source_date": old},
    }.items():
        await store.ingest(note("at 5", source, **given))
    for given in ({}, {"use_fts": False}, {"rerank": lambda query, hits: hits[::-1]}):
        (chunk,) = (await store.search("at 0", memory_rerank=True, reinforce=False, **given)).chunks
        assert (chunk.source, chunk.duplicates) == ("c", 2), given  # the one rated 0.1 is cut, not stood for
    (plain,) = (await store.search("at 0", reinforce=False)).chunks
    assert (plain.source, plain.duplicates) == ("a", 3)  # equally near: the smallest id
    for _ in range(9):
        await store.search("at 0", filter={"source": "d"})
    by_use = Policy(time_weight=0.0, freq_weight=1.0)
    (chunk,) = (await store.search("at 0", memory_rerank=True, policy=by_use, reinforce=False)).chunks
    assert (chunk.source, chunk.access_count) == ("d", 9)


# --- filters --------------------------------------------------------------------------------------


async def test_filters_act_before_the_cut(remember):
    """The k that pass come back, however far behind the others they are (B24)."""
    store = await near(remember, 300)
    await store.ingest(note("\n".join(f"at {1000 + at}" for at in range(5)), "far", tags=["far", "x"]), split=lines)
    await store.ingest(note("at 1200", "farther", tags=["x"], importance=0.9))
    expected = {f"at {1000 + at}" for at in range(5)}
    for given in ({}, {"use_fts": False}, {"memory_rerank": True}, {"fusion": "append"}):
        assert set(contents(await store.search("at 0", k=5, tags=["far"], **given))) == expected, given
        assert set(contents(await store.search("at 0", k=5, tags=["x", "far"], **given))) == expected, given
        either = await store.search("at 0", k=6, tags={"any": ["far", "x"]}, **given)
        assert set(contents(either)) == {*expected, "at 1200"}
        assert contents(await store.search("at 0", k=5, filter={"importance": {"gte": 0}}, **given)) == ["at 1200"]
        assert contents(await store.search("at 0", tags=["absent"], **given)) == []
        assert contents(await store.search("at 0", tags=["far"], filter={"source": "farther"}, **given)) == []


@pytest.mark.parametrize(
    "given",
    [{"tags": "a"}, {"tags": [""]}, {"tags": {"all": ["a"]}}, {"tags": {"any": []}}, {"tags": [5]}]
    + [{"filter": {"nope": 1}}, {"filter": {"source": None}}, {"filter": {"section": "s"}}, {"filter": Tag("x") == "y"}]
    + [{"k": value} for value in (0, -1, 20_000, True, 2.0, None)]
    + [{"use_fts": 1}, {"memory_rerank": "yes"}, {"reinforce": None}, {"policy": 0.5}, {"fusion": "max"}]
    + [{"use_fts": False, "fusion": "rrf"}, {"rerank": True}, {"rerank": 5}, {"depth": 0}, {"candidates": 0}]
    + [{"candidates": "9"}, {"candidates": -5, "memory_rerank": True}, {"candidates": "9", "memory_rerank": True}]
    + [{"diversity": 2}, {"collapse": "nope"}, {"expand": 5}, {"max_distance": float("nan")}],
    ids=repr,
)
async def test_what_a_search_refuses(remember, given):
    """An argument that means nothing is an error that names it, before anything is counted (B22, B24)."""
    store = await remember()
    await store.ingest(note("ferry"))
    with pytest.raises(InvalidInput):
        await store.search("ferry", **given)
    assert (await store.find_by_tag("t")) == []
    assert (await store.stats()).uses == {"0": 1, "1-9": 0, "10-99": 0, "100+": 0}


@pytest.mark.parametrize("query", ["", "  ", 5, None, "\ud800"])
async def test_a_query_that_is_none(remember, query):
    """No text to search for is an error."""
    store = await remember()
    await store.ingest(note("ferry"))
    with pytest.raises(InvalidInput):
        await store.search(query)
    with pytest.raises(InvalidInput):
        await store.embed(query)


@pytest.mark.parametrize(
    "tag",
    ["session_id:x", "2026-07-28T15:59:49Z", "a,b", " a", "a|b", "*", "a*", "{x}", "é\u202e", "\\", "\x1f", "\0", "Aa"],
)
async def test_any_tag_is_found_exactly(remember, tag):
    """Any characters, case and blanks count, and no other tag is found for it (B27)."""
    store = await remember()
    others = ["session_id:y", "2026", "a", "b", "ab", "aa", "x", "e", "A"]
    await store.ingest([note("with", "1", tags=[tag, "other"]), note("without", "2", tags=others)])
    (chunk,) = await store.find_by_tag(tag)
    assert (chunk.content, chunk.tags) == ("with", (tag, "other"))
    assert contents(await store.search("with", tags=[tag])) == ["with"]


async def test_what_expires_under_a_search(remember, raw):
    """A hit that is gone before it is fetched is left out, and the answer says so (B30)."""
    store = await remember()
    await store.ingest([note("ferry one", "1"), note("ferry two", "2")])

    class Expiring(Counted):
        def send(self, commands):
            if commands[0].args[0] == "HMGET" and len(commands) == 2:  # the fields of both
                raw.unlink(commands[0].args[1])
            return super().send(commands)

    Expiring(store)
    found = await store.search("ferry", reinforce=False)
    assert len(found.chunks) == 1
    assert not found.complete
    assert any("1 hits expired or were deleted" in reason for reason in found.reasons)


async def test_more_with_a_tag_than_one_search_gives(remember, monkeypatch):
    """Beyond what one search brings back the keys are walked: all come (B27)."""
    monkeypatch.setattr(finding, "_FOUND", 5)
    monkeypatch.setitem(finding.matching.__kwdefaults__, "limit", 5)
    store = await remember()
    texts = [f"line {at}" for at in range(12)]
    doc_id = (await store.ingest(note("\n".join(texts), "s", tags=["t"]), split=lines)).sources[0].doc_id
    await store.ingest(note("without", "other"))
    assert [chunk.content for chunk in await store.find_by_tag("t")] == texts
    assert await store.delete_document(doc_id) == 12


# --- counting -------------------------------------------------------------------------------------


async def test_only_deliberate_reads_count(remember, raw):
    """A search counts what it returns and nothing else does; the count shown is the one before (B25)."""
    store = await near(remember, 30)
    doc_id = (await store.ingest(note("ferry", "f", tags=["t"], importance=0.1))).sources[0].doc_id
    started = time.time()
    first = await store.search("ferry", k=1)
    assert [(chunk.access_count, chunk.last_accessed_at) for chunk in first.chunks] == [(0, None)]
    (chunk,) = (await store.search("ferry", k=1)).chunks
    assert chunk.access_count == 1
    assert started - 5 <= chunk.last_accessed_at <= time.time() + 5
    before = dump(raw, store)
    await store.search("ferry", k=5, reinforce=False)
    await store.find_by_tag("t")
    await store.get_document_chunks(doc_id)
    await store.rerank([(doc_id, 0, 0.5)])
    await store.index_health()
    await store.stats()
    await store.find_near_duplicates()
    await store.forget()
    await store.restore(["a/b/0"])
    await store.update_index()
    await store.rebuild_index()
    await store.ingest(note("ferry", "f"), dry_run=True)
    assert dump(raw, store) == before
    uses = memory_of(store).names.uses
    assert raw.hgetall(uses) == {chunk.id.encode(): b"2"}
    await store.search("at 0", k=3, memory_rerank=True)
    assert len(raw.hgetall(uses)) in (3, 4)
    await store.context("ferry", 1000, k=1)
    assert raw.hget(uses, chunk.id) in (b"3", b"4")


async def test_parallel_reads_count_each(remember, raw):
    """Two reads at once count two, and twenty twenty: nothing is read and written back (B25, B40, case B104)."""
    store = await remember()
    await store.ingest(note("ferry", "f"))
    if remember.blocking:
        await asyncio.gather(*(asyncio.to_thread(store.retriever.search, "ferry") for _ in range(20)))
    else:
        await asyncio.gather(*(store.search("ferry") for _ in range(20)))
    assert list(raw.hgetall(memory_of(store).names.uses).values()) == [b"20"]


async def test_counters_do_not_index_again(remember, raw):
    """They lie outside the index's prefix, and a read leaves the chunk's own hash as it was (B25, B4)."""
    store = await remember()
    await store.ingest(note("ferry", "f"))
    names = memory_of(store).names
    assert not any(key.startswith(names.prefix) for key in (names.uses, names.used, names.document("f")))
    (key,) = raw.scan_iter(f"{names.prefix}*", count=1000)
    before = raw.hgetall(key)
    await store.search("ferry")
    assert raw.hgetall(key) == before
    assert raw.hlen(names.uses) == raw.hlen(names.used) == 1


# --- the policy -----------------------------------------------------------------------------------


async def crowd(remember, **scope):
    """A store where the 500 nearest are rated too low to pass, and a few that are rated or no matter are far behind."""
    store = await remember(embed=Near(), **scope)
    await store.ingest(note("\n".join(f"at {at}" for at in range(1, 501)), "many", importance=0.1), split=lines)
    await store.ingest(note("at 0", "near"))
    await store.ingest(note("at 1400", "law", knowledge_type="principle", tags=["t"]))
    await store.ingest(note("at 1401", "rated", importance=0.7))
    await store.ingest(note("at 1402", "less", importance=0.69))
    return store


@pytest.mark.parametrize("given", [{}, {"use_fts": False}, {"fusion": "rrf"}, {"fusion": "append"}], ids=repr)
async def test_a_principle_far_behind_is_a_candidate(remember, given):
    """At rank 500 it is in the pool and marked, and stands below a nearer ordinary chunk (B26)."""
    store = await crowd(remember)
    found = (await store.search("nothing of these words", k=4, memory_rerank=True, **given)).chunks
    assert [chunk.content for chunk in found] == ["at 0", "at 1400", "at 1401"]
    assert [chunk.guaranteed for chunk in found] == [False, True, True]
    assert [chunk.vector_distance for chunk in found] == pytest.approx([0, 0.83, 0.83], abs=0.01)
    off = await store.search("nothing", k=4, memory_rerank=True, policy=Policy(guaranteed=False), **given)
    assert contents(off) == ["at 0"]
    few = await store.search("nothing", k=4, memory_rerank=True, policy=Policy(guaranteed_limit=1), **given)
    assert contents(few) == ["at 0", "at 1400"]


@pytest.mark.parametrize("given", [{}, {"use_fts": False}, {"fusion": "linear"}, {"fusion": "rrf"}], ids=repr)
async def test_what_is_guaranteed_is_judged_by_its_distance(remember, given):
    """The nearer is the more relevant, none as much as a nearer chunk; one that ages less may still win (B26)."""
    store = await remember(embed=Near())
    news = {"knowledge_type": "news", "source_date": time.time() - 3000 * DAY}
    await store.ingest(note("\n".join(f"at {at}" for at in range(10)), "near", **news), split=lines)
    await store.ingest(note("\n".join(f"at {at}" for at in range(10, 200)), "low", importance=0.1), split=lines)
    laws = [400, 700, 1000, 1300]
    await store.ingest([note(f"at {at}", f"law {at}", knowledge_type="principle") for at in laws])
    policy = {"policy": Policy(time_weight=0.0), "memory_rerank": True, "reinforce": False}
    found = (await store.search("nothing", k=20, **policy, **given)).chunks
    assert [chunk.content for chunk in found] == [f"at {at}" for at in (*range(10), *laws)]
    guaranteed = [chunk for chunk in found if chunk.guaranteed]
    assert list(found[10:]) == guaranteed
    relevance = [chunk.relevance for chunk in found]
    assert relevance == sorted(relevance, reverse=True)
    # The farthest candidate of a linear fusion has a share of 0, guaranteed or not; the others have more.
    assert all(chunk.relevance > 0 for chunk in guaranteed[:-1])
    # With all of the weight on age nothing is left of old news, and the nearest principle stands first.
    aged = await store.search("nothing", k=1, memory_rerank=True, policy=Policy(time_weight=1.0), **given)
    assert contents(aged) == ["at 400"]


@pytest.mark.parametrize("at", [10, 40, 60, 110, 130, 300])
async def test_a_principle_at_any_rank_is_a_candidate(remember, at):
    """Within the pool, within the depth of a channel, and beyond both (B26)."""
    store = await remember(embed=Near())
    others = [f"at {each}" for each in range(400) if each != at]
    await store.ingest(note("\n".join(others), "many", importance=0.1), split=lines)
    await store.ingest(note(f"at {at}", "law", knowledge_type="principle"))
    for given in ({}, {"use_fts": False}):
        assert contents(await store.search("nothing", k=5, memory_rerank=True, **given)) == [f"at {at}"]


async def test_a_reranker_sees_what_is_guaranteed(remember):
    """It sees the pool and the principle far behind it, and decides (B26, B22)."""
    store = await near(remember, 500)
    await store.ingest(note("at 1400", "law", knowledge_type="principle"))
    seen = []

    def rerank(query, hits):
        seen.append([hit.text for hit in hits])
        return sorted(hits, key=lambda hit: hit.text != "at 1400")

    found = await store.search("at 0", k=2, candidates=20, rerank=rerank)
    assert contents(found) == ["at 1400", "at 0"]
    assert "at 1400" in seen[0]
    assert len(seen[0]) <= 20 + 10 + 1


async def test_nothing_is_guaranteed_where_a_filter_is_given(remember):
    """With a filter or tags the candidates are those of the question alone; the scope does not count (B26)."""
    store = await crowd(remember, user="ann")
    given = {"k": 4, "memory_rerank": True}
    assert contents(await store.search("nothing", **given)) == ["at 0", "at 1400", "at 1401"]
    assert contents(await store.search("nothing", filter=Tag("source") != "x", **given)) == ["at 0"]
    assert contents(await store.search("nothing", tags=["t"], **given)) == ["at 1400"]
    assert "at 1400" not in contents(await store.search("nothing", k=4))
    other = await remember(embed=Near(), user="bob")
    assert contents(await other.search("nothing", **given)) == []


async def test_age_kind_and_use_reorder(remember):
    """Importance cuts, age discounts by kind, use lifts a little; relevance alone is as it was (B5, B9, B11)."""
    store = await remember(embed=Near())
    old = time.time() - 300 * DAY
    for text, given in {
        "at 1": {"knowledge_type": "news", "source_date": old},
        "at 2": {"knowledge_type": "principle", "source_date": old},
        "at 3": {"source_date": old},
        "at 4": {"importance": 0.29},
        "at 5": {"importance": 0.3},
        "at 6": {"knowledge_type": "paper", "source_date": time.time() + 9 * DAY},
    }.items():
        await store.ingest(note(text, text, **given))
    found = await store.search("at 0", k=6, use_fts=False, memory_rerank=True, reinforce=False)
    assert contents(found) == ["at 2", "at 3", "at 5", "at 6", "at 1"]
    by = {chunk.content: chunk for chunk in found.chunks}
    assert by["at 1"].memory_score == pytest.approx(by["at 1"].relevance * (0.5 + 0.5 * 2**-10), rel=1e-3)
    assert by["at 6"].memory_score == pytest.approx(by["at 6"].relevance)  # a date to come is age 0 (case B102)
    for _ in range(3):
        await store.search("at 5", k=1, use_fts=False)
    found = await store.search("at 0", k=6, use_fts=False, memory_rerank=True, reinforce=False)
    assert contents(found)[0] == "at 5"
    assert found.chunks[0].access_count == 3
    plain = await store.search("at 0", k=6, use_fts=False, reinforce=False)
    assert contents(plain) == [f"at {at}" for at in range(1, 7)]
    both = Policy(time_weight=1.0, freq_weight=0.0, half_lives={"news": None})
    found = await store.search("at 0", k=6, use_fts=False, memory_rerank=True, policy=both, reinforce=False)
    assert contents(found)[0] == "at 1"


async def test_rerank_of_what_another_found(remember, raw):
    """(document, place, relevance) in, chunks by memory score and the unknown out; the order of input is no matter."""
    store = await remember()
    doc_id = (await store.ingest(note("a\nb\nc", "s", knowledge_type="news"), split=lines)).sources[0].doc_id
    chunks, unknown = await store.rerank([(doc_id, 2, 0.1), (doc_id, 0, 0.9), (doc_id, 3, 1), ("nope", 0, 1)])
    assert [chunk.content for chunk in chunks] == ["a", "c"]
    assert [chunk.relevance for chunk in chunks] == [0.9, 0.1]
    assert set(unknown) == {(doc_id, 3), ("nope", 0)}
    for bad in (
        [(doc_id, 0, 2)],
        [(doc_id, 0, float("nan"))],
        [(doc_id, -1, 0.5)],
        [(5, 0, 0.5)],
        [(doc_id, "0", 0.5)],
    ):
        with pytest.raises(InvalidInput):
            await store.rerank(bad)
    with pytest.raises(InvalidInput, match="policy"):
        await store.rerank([], policy="x")


# --- reading --------------------------------------------------------------------------------------


async def test_a_chunk_and_its_neighbours(remember):
    """In order, clipped at the ends; an unknown document or place is an error (B28)."""
    store = await remember()
    doc_id = (await store.ingest(note("\n".join("abcdef"), "s"), split=lines)).sources[0].doc_id

    async def around(*args, **kwargs):
        return "".join([chunk.content for chunk in await store.get_document_chunks(doc_id, *args, **kwargs)])

    assert await around() == "abcdef"
    assert await around(0) == "a"
    assert await around(0, window=2) == "abc"
    assert await around(3, window=1) == "cde"
    assert await around(5, window=9) == "abcdef"
    for args, kwargs in (
        ((6,), {}),
        ((-1,), {}),
        ((0,), {"window": -1}),
        (("0",), {}),
        ((True,), {}),
        ((0,), {"window": 1.5}),
    ):
        with pytest.raises(InvalidInput):
            await around(*args, **kwargs)
    for unknown in ("nope", "", 5, None, "\ud800"):
        with pytest.raises(InvalidInput):
            await store.get_document_chunks(unknown)


async def test_a_prompt_within_its_budget(remember):
    """Whole chunks with their sources and dates, best first, never more tokens than asked for (B29)."""
    store = await remember()
    await store.ingest([note(f"ferry {'long ' * 20 * at}", f"s{at}", source_date="2024-05-06") for at in range(4)])
    for budget in (1, 20, 50, 200, 1000):
        laid = await store.context("ferry", budget, k=4, reinforce=False)
        assert laid.tokens <= budget
        assert len(laid.text) <= 4 * budget
        assert laid.text.count("2024-05-06") == len(laid.chunks)
    assert len(laid.chunks) == 4
    assert laid.text.startswith("[1] s0, 2024-05-06\nferry")
    words = await store.context("ferry", 30, count=lambda text: len(text.split()), k=4, reinforce=False)
    assert 0 < len(words.text.split()) <= 30
    for bad in ({"budget": 0}, {"budget": "9"}, {"budget": 9, "count": 5}, {"budget": 9, "nope": 1}):
        with pytest.raises(InvalidInput):
            await store.context("ferry", **bad)


async def test_what_fits_no_prompt_is_not_read(remember):
    """``context`` counts the read of the chunks that it lays out, as they were before, and of no others (B25)."""
    store = await remember()
    await store.ingest([note("ferry", "short"), note(f"ferry {'long ' * 80}", "long")])
    laid = await store.context("ferry", 20, k=2)
    assert [(chunk.source, chunk.access_count) for chunk in laid.chunks] == [("short", 0)]
    again = await store.context("ferry", 1000, k=2, reinforce=False)
    assert {chunk.source: chunk.access_count for chunk in again.chunks} == {"short": 1, "long": 0}
    again = await store.context("ferry", 1000, k=2, reinforce=False)
    assert {chunk.source: chunk.access_count for chunk in again.chunks} == {"short": 1, "long": 0}
    with pytest.raises(InvalidInput):
        await store.context("ferry", 20, reinforce="yes")


async def test_a_vector_is_the_query_s(remember):
    """``embed`` gives what a query of that text is searched with, as floats."""
    store = await remember()
    assert await store.embed("ferry") == pytest.approx(Embedder().vector("ferry").tolist())
