"""Evaluation of a real index and a real memory: values by hand, failures, and nothing changed (D1-D6)."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from retriever import (
    Document,
    InvalidInput,
    Linear,
    MissingExtra,
    Retriever,
    Rrf,
    Schema,
    ServerError,
    Stored,
    Tag,
    Vector,
)
from retriever.evaluation import Golden, Question, evaluate, read_report, tuning
from retriever.evaluation.arms import channel_arm, target_of
from retriever.evaluation.budgets import WAYS
from retriever.evaluation.measures import measured
from retriever.evaluation.tuning import is_train
from retriever.memory.store import MemoryStore, Note
from retriever.operations import retrieve as retrieving
from tests.fakes import Embedder
from tests.memory_stores import Near, lines

pytest.importorskip("ir_measures")
pytest.importorskip("scipy")

pytestmark = [pytest.mark.live, pytest.mark.one_server("the engines of the test run answer alike")]

WORDS = ["anchor", "beacon", "compass", "dinghy", "ensign", "fender", "galley", "hawser", "island", "jetty"]
WORD_ARMS = ["text", "rrf", "linear", "append"]


def schema_of(name, *fields, **given):
    return Schema(name, [Tag("part"), Stored("whole"), *fields], vector=Vector(dims=4, algorithm="FLAT"), **given)


@pytest.fixture
def index(url, name):
    """Ten documents of a word each, nearer to "at 0" the earlier they come."""
    with Retriever.connect(url, schema_of(name), embed=Near(name="near")) as docs:
        docs.create_index()
        docs.upsert(
            Document(word, f"{word} at {100 * at}", {"part": "odd" if at % 2 else "even", "whole": f"w{at // 2}"})
            for at, word in enumerate(WORDS)
        )
        yield docs


@pytest.fixture
def memory(url, name, raw, tmp_path):
    """A memory of three documents; of the first one, two chunks are near to "at 0"."""
    with MemoryStore.open(
        url,
        namespace=name,
        embed=Near(name="near"),
        archive=tmp_path / "archive",
        vector=Vector(algorithm="FLAT"),
        context=(),
    ) as store:
        store.ingest(Note("near at 10\nnearer at 0\nfar at 1500", "one"), split=lines)
        store.ingest(Note("second at 100\nzebra at 1400", "two"), split=lines)
        store.ingest(Note("law at 1550", "three"), metadata={"knowledge_type": "principle"}, split=lines)
        yield store
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(f"{{memory.{name}".encode()):
            raw.execute_command("FT.DROPINDEX", index)
    for key in raw.scan_iter(f"{{memory.{name}*", count=1000):
        raw.unlink(key)


def doc_ids(store):
    """Source -> id of its document."""
    return {chunk.source: chunk.doc_id for chunk in store.search("at 0", k=40, reinforce=False).chunks}


def golden(*questions):
    return Golden(questions, "made")


def everything(raw, name):
    """All keys of the server by name, with the values of those that a test made; and all indexes."""
    keys = sorted(raw.scan_iter("*", count=1000))
    return keys, {key: raw.hgetall(key) for key in keys if name.encode() in key}, raw.execute_command("FT._LIST")


class Failing(Near):
    """Fails at texts with a word in them."""

    def __init__(self, word, error=None):
        super().__init__(name="near")
        self.word, self.error = word, error or OSError("no model")

    def __call__(self, texts):
        if any(self.word in text for text in texts):
            raise self.error
        return super().__call__(texts)


def values(report, arm, measure):
    """Query id -> value."""
    return next(each for each in report.arms if each.name == arm).values[measure]


def test_values_are_those_of_the_ranking(index):
    """By vector the order is that of the angle, by words the one document that has the word."""
    report = evaluate(
        index,
        golden(
            Question("at 0", {"compass": 1, "dinghy": 1}, authority="dinghy", noise=("anchor",), id="near"),
            Question("jetty at 77", {"jetty": 1}, id="word"),
        ),
        ks=(1, 3),
        authority_window=5,
    )
    assert [arm.name for arm in report.arms] == ["vector", *WORD_ARMS]
    assert values(report, "vector", "MRR") == {"near": pytest.approx(1 / 3), "word": 0.0}
    assert values(report, "vector", "R@3") == {"near": 0.5, "word": 0.0}
    assert values(report, "vector", "noise@3") == {"near": pytest.approx(1 / 3)}
    assert values(report, "vector", "authority rank") == {"near": 4.0}
    assert values(report, "text", "MRR")["word"] == 1.0
    assert report.arms[0].rankings["near"] == tuple(WORDS[:5])
    assert (report.size, report.wanted, report.headline) == (10, 5, "nDCG@3")
    assert all(arm.p50_ms > 0 and arm.p95_ms >= arm.p50_ms for arm in report.arms)
    assert [report.texts[at] for at in report.arms[0].shown["near"][:2]] == ["anchor at 0", "beacon at 100"]


def test_an_index_is_not_changed(index, raw, name):
    """Every key, its value and every index are after an evaluation what they were before (D5)."""
    before = everything(raw, name)
    report = evaluate(
        index,
        golden(*(Question(f"{word} at 0", {word: 1}) for word in WORDS)),
        rerank=lambda text, hits: list(reversed(hits)),
        tune=True,
    )
    assert len(report.arms) == 10
    assert everything(raw, name) == before


def test_a_memory_is_not_changed_and_counts_no_read(memory, raw, name):
    """No counter, no key and no index moves, whatever the arm (D5); the guaranteed chunk has its arm to tell it by."""
    ids = doc_ids(memory)
    before = everything(raw, name)
    assert len(before[1]) > 6
    questions = [Question(f"at {at}", {ids["one"]: 1}, authority=ids["one"]) for at in (0, 1, 2, 3, 4, 5, 6, 7)]
    report = evaluate(memory, golden(*questions), rerank=lambda text, hits: hits[:9], tune=True)
    plain = ["vector", *WORD_ARMS, "memory", "memory-no-guaranteed"]
    assert [arm.name for arm in report.arms] == [each for arm in plain for each in (arm, f"{arm}+rerank")]
    assert not any(arm.failed for arm in report.arms)
    assert everything(raw, name) == before
    assert all(chunk.access_count == 0 for chunk in memory.search("at 0", k=20, reinforce=False).chunks)


def test_chunks_of_a_memory_are_their_documents(memory):
    """Two near chunks of one document are one place, and the next document is second."""
    ids = doc_ids(memory)
    report = evaluate(memory, golden(Question("at 0", {ids["two"]: 1}, id="q")), arms=["vector", "text", "memory"])
    assert report.arms[0].rankings["q"][:2] == (ids["one"], ids["two"])
    assert values(report, "vector", "MRR") == {"q": 0.5}
    assert report.texts[report.arms[0].shown["q"][0]] == "nearer at 0"  # the chunk that it was found by


def test_enough_chunks_are_asked_for_to_see_the_documents(memory):
    """Four results for each document wanted: ten chunks of one document do not hide the next one."""
    memory.ingest(Note("\n".join(f"many at {at}" for at in range(12)), "many"), split=lines)
    ids = doc_ids(memory)
    asked = golden(Question("at 0", {ids["two"]: 1}, id="q"))
    report = evaluate(memory, asked, arms=["vector"], ks=(1,), authority_window=5)
    assert set(report.arms[0].rankings["q"]) >= {ids["many"], ids["one"], ids["two"]}


def test_the_arms_of_a_memory_differ_in_what_is_guaranteed(memory, monkeypatch):
    """Both order by memory score and count no read; one has the candidates that are always looked at."""
    one = golden(Question("at 0", {doc_ids(memory)["one"]: 1}))
    asked = []
    real = memory.search

    def search(*args, **given):
        asked.append(given)
        return real(*args, **given)

    monkeypatch.setattr(memory, "search", search)
    for name, guaranteed in (("memory", True), ("memory-no-guaranteed", False)):
        asked.clear()
        evaluate(memory, one, arms=[name])
        first = asked[0]
        assert (first["memory_rerank"], first["policy"].guaranteed) == (True, guaranteed)
        assert {given["reinforce"] for given in asked} == {False}


def test_the_scope_of_a_memory_holds(memory, url, name, tmp_path):
    """Each arm of a user's store finds that user's chunks and no others."""
    with MemoryStore.open(
        url,
        namespace=name,
        embed=Near(name="near"),
        user="ada",
        archive=tmp_path / "a",
        vector=Vector(algorithm="FLAT"),
        context=(),
    ) as hers:
        hers.ingest(Note("hers at 1200 zebra", "hers"), split=lines)
        (own,) = {chunk.doc_id for chunk in hers.search("at 0", k=5, reinforce=False).chunks}
        report = evaluate(hers, golden(Question("zebra at 0", {own: 1}, id="q")))
    assert {arm.name: arm.rankings["q"] for arm in report.arms} == {arm.name: (own,) for arm in report.arms}


def test_parts_of_a_document_are_one_result(index):
    """With document_field the golden ids are of wholes; of one whole the first part counts."""
    asked = Question("at 0", {"w1": 1}, id="q", filter={"part": {"any": ["odd", "even"]}})
    report = evaluate(index, golden(asked, Question("at 1", {"nowhere": 1})), document_field="whole", arms=["vector"])
    assert report.arms[0].rankings["q"] == ("w0", "w1", "w2", "w3", "w4")
    assert report.notes == (
        "1 of 2 ids that should be found are not in index " + index._live.schema.name + ": 'nowhere'",
    )


def test_a_filter_is_of_its_query(index):
    """A golden query's filter narrows every arm."""
    report = evaluate(index, golden(Question("at 0", {"beacon": 1}, filter={"part": "odd"}, id="q")))
    for arm in report.arms:
        assert set(arm.rankings["q"]) <= set(WORDS[1::2])
    assert values(report, "vector", "MRR") == {"q": 1.0}


def test_unknown_ids_are_reported(index):
    """Ids that are not in the index are named, those to be found apart from the others, and count as not found."""
    report = evaluate(
        index, golden(Question("at 0", {"anchor": 1, "anker": 1, "anka": 0}, noise=("boye",), id="q")), arms=["vector"]
    )
    there = f"are not in index {index._live.schema.name}"
    assert report.notes == (
        f"1 of 2 ids that should be found {there}: 'anker'",
        f"2 of 2 ids that should not be found {there}: 'anka', 'boye'",
    )
    assert values(report, "vector", "R@10") == {"q": 0.5}


def test_append_adds_words_behind_the_nearest_within_the_window(index):
    """Half of the documents asked for are the nearest, in their order; the other half what words find beside."""
    asked = Question("hawser island jetty at 0", {"jetty": 1}, id="q")
    report = evaluate(index, golden(asked), arms=["vector", "append"], ks=(1,), authority_window=6)
    by_name = {arm.name: arm.rankings["q"] for arm in report.arms}
    assert by_name["vector"] == tuple(WORDS[:6])
    assert by_name["append"][:3] == tuple(WORDS[:3])
    assert set(by_name["append"][3:]) == {"hawser", "island", "jetty"}


# --- what fails -----------------------------------------------------------------------------------


def test_a_reranker_that_fails_at_one_query_counts_there_alone(index):
    """That query counts 0 in the reranked arms and is said with its reason; the others and the plain arms are whole."""

    def rerank(text, hits):
        if "beacon" in text:
            raise RuntimeError("no <luck>")
        return hits

    questions = [Question(f"{word} at {100 * at}", {word: 1}, id=word) for at, word in enumerate(WORDS)]
    report = evaluate(index, golden(*questions), rerank=rerank, ks=(1,))
    for arm in report.arms:
        assert arm.failed == ({"beacon": "RuntimeError: no <luck>"} if arm.reranked else {})
        assert arm.values["nDCG@1"] == {**dict.fromkeys(WORDS, 1.0), "beacon": 0.0 if arm.reranked else 1.0}
        assert arm.summary["nDCG@1"].count == 10
    assert "no &lt;luck&gt;" in report.html()
    moved = {(each.arm, each.against): each for each in report.differences if each.measure == "nDCG@1"}
    assert moved["text+rerank", "text"].worse == 1
    assert moved["text+rerank", "text"].interval.mean == pytest.approx(-0.1)


def test_a_query_without_terms_fails_by_words_alone(index):
    """It counts 0 where only words are asked for, and not elsewhere."""
    report = evaluate(index, golden(Question("?", {"anchor": 1}, id="mark"), Question("anchor", {"anchor": 1})))
    assert [arm.name for arm in report.arms if "mark" in arm.failed] == ["text"]
    assert "holds no terms" in next(arm for arm in report.arms if arm.name == "text").failed["mark"]


def test_where_every_query_fails_it_is_an_error(url, name):
    """A broken embedder is no index of no quality."""
    good = Near()
    with Retriever.connect(url, schema_of(name), embed=good) as docs:
        docs.create_index()
        docs.upsert([Document("a", "at 0")])

    class Broken(Embedder):
        def __call__(self, texts):
            raise OSError("no model")

    with (
        Retriever.connect(url, schema_of(name), embed=Broken()) as docs,
        pytest.raises(ServerError, match="every query failed in every arm; the first: OSError: no model"),
    ):
        evaluate(docs, golden(Question("at 0", {"a": 1})), arms=["vector"])


def test_an_index_without_words_is_evaluated_by_vector(url, name):
    """Arms that need words are left out with a reason, and are an error where they were asked for."""
    with Retriever.connect(url, schema_of(name, analysis=None), embed=Near(name="near")) as docs:
        docs.create_index()
        docs.upsert([Document("a", "", vector=[1, 0, 0, 0])])
        asked = golden(Question("at 0", {"a": 1}, id="q"))
        report = evaluate(docs, asked)
        assert [arm.name for arm in report.arms] == ["vector"]
        assert report.notes == (
            "text, rrf, linear, append left out: the index holds no words: its schema has no analysis",
        )
        assert report.budgets == ()
        assert values(report, "vector", "MRR") == {"q": 1.0}
        with pytest.raises(InvalidInput, match="arms: rrf cannot run: the index holds no words"):
            evaluate(docs, asked, arms=["vector", "rrf"])
        with pytest.raises(InvalidInput, match="tune: .* has one channel"):
            evaluate(docs, asked, tune=True)


def test_an_index_without_an_embedder_is_evaluated_by_words(url, index, name):
    """What needs a vector of the query is left out."""
    with Retriever.connect(url, schema_of(name)) as docs:
        report = evaluate(docs, golden(Question("jetty", {"jetty": 1}, id="q")))
    assert [arm.name for arm in report.arms] == ["text"]
    assert "there is no embedder" in report.notes[0]
    assert values(report, "text", "MRR") == {"q": 1.0}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arms": ["vectors"]}, "no arm 'vectors' of index .*; choose from vector, text, rrf, linear, append"),
        ({"arms": ["memory"]}, "the others need a memory"),
        ({"arms": []}, "at least one arm"),
        ({"arms": "vector"}, "arms: a list of names expected, not 'vector'"),
        ({"ks": 5}, "ks: at least one k expected, not 5"),
        ({"ks": (1, "a")}, "k 'a': an int"),
        ({"ks": ()}, "at least one k"),
        ({"ks": (0,)}, "k"),
        ({"authority_window": 0}, "authority_window"),
        ({"document_field": "hole"}, "no field 'hole'; those declared: part, whole"),
        ({"rerank": "model"}, "rerank: a function"),
        ({"compare": {"arms": []}}, "compare: no report"),
        ({"tune": True}, "tune: 1 quer"),
    ],
)
def test_what_cannot_be_evaluated_is_said(index, given, said):
    """Wrong arguments are refused, and name what there is."""
    one = next(text for text in ("at 0", "at 1", "at 2", "at 3") if is_train(text))
    with pytest.raises(InvalidInput, match=said):
        evaluate(index, golden(Question(one, {"anchor": 1})), **given)


def test_an_empty_index_is_refused(url, name):
    """Where nothing is, nothing can be found: that is no quality of 0."""
    with Retriever.connect(url, schema_of(name), embed=Near(name="near")) as docs:
        docs.create_index()
        with pytest.raises(InvalidInput, match="is empty"):
            evaluate(docs, golden(Question("at 0", {"a": 1})))


# --- the budget, tuning, comparing ----------------------------------------------------------------


def test_the_equal_budget_table_is_per_category(index):
    """Each way for all queries and per category, with its difference to the sixty nearest (D6)."""
    report = evaluate(
        index,
        golden(
            Question("at 0", {"jetty": 1}, category="far"),
            Question("at 1", {"anchor": 1}, category="near"),
            Question("at 2", {"anchor": 1}),
        ),
        arms=["vector"],
    )
    assert [(each.category, each.way) for each in report.budgets] == [
        (category, way) for category in ("all", "far", "near") for way in WAYS
    ]
    assert {each.category: each.recall.count for each in report.budgets} == {"all": 3, "far": 1, "near": 1}
    assert all(each.recall.mean == 1 and each.difference.is_zero for each in report.budgets)  # of ten documents


def test_a_category_may_be_called_as_the_row_of_all_queries_is(index):
    """Both rows are there, each query counted once in each."""
    report = evaluate(
        index,
        golden(Question("at 0", {"jetty": 1}, category="all"), Question("at 1", {"anchor": 1})),
        arms=["vector"],
    )
    assert {each.category: each.recall.count for each in report.budgets} == {"all": 2, "category all": 1}


def test_the_budget_tells_a_deeper_ranking_from_words_beside(url, name):
    """Each way has its own number of results: the 55th and the 70th nearest tell them apart, and words beside."""
    with Retriever.connect(url, schema_of(name), embed=Near(name="near")) as docs:
        docs.create_index()
        docs.upsert(Document(f"d{at}", f"{'zebra' if at == 90 else 'horse'} at {at}") for at in range(100))
        asked = Question("zebra at 0", {"d0": 1, "d55": 1, "d70": 1, "d90": 1})
        report = evaluate(docs, golden(asked), arms=["vector"])
    recalls = {each.way: each.recall.mean for each in report.budgets}
    assert recalls == {
        "vector@50": 1 / 4,
        "vector@60": 2 / 4,
        "vector@80": 3 / 4,
        "append 50+10": 2 / 4,  # the 55th is not there, the zebra is
        "rrf@60": 3 / 4,
        "linear@60": 3 / 4,
    }
    assert {each.way: each.difference.mean for each in report.budgets} == {
        way: recall - 2 / 4 for way, recall in recalls.items()
    }


def test_tuning_reports_on_queries_that_it_did_not_choose_on(index):
    """No query is in both halves, and only held-out ones are asked with the chosen parameters (D4)."""
    questions = [Question(f"{word} at {at}", {word: 1}, id=f"{word}{at}") for word in WORDS for at in (0, 300)]
    found = evaluate(index, golden(*questions), arms=["rrf", "linear"], ks=(1,), authority_window=1, tune=True).tuning
    train = {each.id for each in questions if is_train(each.query)}
    assert set(found.train) == train
    assert set(found.held_out) == {each.id for each in questions} - train
    assert min(len(found.train), len(found.held_out)) >= 2
    for each in found.results:
        assert each.held_out_default.count == each.held_out_chosen.count == len(found.held_out)
        assert each.train_chosen >= each.train_default


@pytest.mark.parametrize(
    ("arms", "fusions", "tried"),
    [
        (None, ["linear", "rrf"], 48),
        (["vector", "linear"], ["linear"], 33),
        (["rrf"], ["rrf"], 15),
    ],
)
def test_tuning_is_of_what_is_among_the_arms(index, arms, fusions, tried):
    """What nobody asked for is not tuned."""
    questions = [Question(f"{word} at {at}", {word: 1}) for word in WORDS for at in (0, 300)]
    found = evaluate(index, golden(*questions), arms=arms, ks=(1,), authority_window=1, tune=True).tuning
    assert ([each.fusion for each in found.results], found.tried) == (fusions, tried)


def test_nothing_to_tune_among_the_arms_is_said(index):
    """Before anything is asked."""
    questions = [Question(f"{word} at {at}", {word: 1}) for word in WORDS for at in (0, 300)]
    with pytest.raises(InvalidInput, match="tune: linear and rrf are what is tuned, and neither is among the arms"):
        evaluate(index, golden(*questions), arms=["vector", "append"], tune=True)


def test_a_query_that_lost_a_channel_is_chosen_on_as_0(index, monkeypatch):
    """On the train split too the other channel alone is no fusion."""
    real = retrieving._rank_worded

    def failing(leg, *given):
        if "at 300" in leg.text:
            raise ServerError("out of words")
        return real(leg, *given)

    monkeypatch.setattr(retrieving, "_rank_worded", failing)
    questions = [Question(f"{word} at {at}", {word: 1}) for word in WORDS for at in (0, 300)]
    report = evaluate(index, golden(*questions), arms=["rrf"], ks=(10,), authority_window=1, tune=True)
    train = [each.query for each in questions if is_train(each.query)]
    (found,) = report.tuning.results
    lost = sum("at 300" in query for query in train)
    assert 0 < lost < len(train)
    assert found.train_chosen <= 1 - lost / len(train)
    assert report.notes[-1].startswith(f"tuning: {lost + 2 * (10 - lost)} searches failed and count 0")


def test_tuning_turns_towards_the_channel_that_answers(url, name):
    """Where words answer and meaning misleads, their weight grows, and the held-out queries gain by it."""
    words = [f"{word}{letter}" for word in WORDS for letter in "ab"]
    with Retriever.connect(url, schema_of(name), embed=Near(name="near")) as docs:
        docs.create_index()
        docs.upsert(Document(f"near{at}", f"other {100 + at}") for at in range(110))  # more than are looked at
        docs.upsert(Document(word, f"{word} 1500") for word in words)
        questions = [Question(f"{word} 0", {word: 1}) for word in words]
        found = evaluate(
            docs, golden(*questions), arms=["rrf", "linear"], ks=(1,), authority_window=1, tune=True
        ).tuning
    by_name = {each.fusion: each for each in found.results}
    assert by_name["linear"].default == "alpha 0.5, depth as it is"
    assert by_name["linear"].chosen == "alpha 0, depth as it is"
    assert by_name["rrf"].chosen == "weights 1 : 2, depth as it is"  # the first of those that are right every time
    for each in found.results:
        assert (each.train_default, each.train_chosen) == (0.0, 1.0)
        assert (each.held_out_default.mean, each.held_out_chosen.mean, each.difference.low) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("fusion", [Linear(0.3), Linear(1.0), Rrf(), Rrf(weights={"vector": 1.0, "text": 4.0})])
def test_what_tuning_fuses_is_what_retrieve_fuses(index, fusion):
    """The ranking that a setting is judged by is the one that the library gives with it."""
    target = target_of(index)
    asked = [Question(f"{word} at {at}", {word: 1}, id=word) for at, word in enumerate(WORDS)]
    channels = {
        question.id: {name: target.channel(question, name, 100) for name in ("vector", "text")} for question in asked
    }
    judged = tuning._mean(tuning.Setting(fusion, 50), 50, channels, asked, 5, 5)
    arm = channel_arm(target, "real", fusion, depth=50)
    really = {question.id: arm.ask(question, 5).ids for question in asked}
    found = measured(asked, really, ks=(5,), window=1)["nDCG@5"]
    assert judged == pytest.approx(np.mean(list(found.values())))


def test_a_report_is_compared_with_an_older_one(index, tmp_path):
    """Differences are of the queries that both judge alike; new, gone and otherwise judged ones are said."""
    older = evaluate(
        index,
        golden(
            Question("at 0", {"beacon": 1}, id="same"),
            Question("at 1", {"beacon": 1}, id="judged"),
            Question("at 2", {"beacon": 1}, id="gone"),
            Question("at 3", {"beacon": 1}, id="too"),
        ),
        arms=["vector", "text"],
    )
    compare = read_report(older.write(tmp_path)[1])
    index.delete("anchor")
    newer = evaluate(
        index,
        golden(
            Question("at 0", {"beacon": 1}, id="same"),
            Question("at 1", {"beacon": 2}, id="judged"),
            Question("at 3", {"beacon": 1}, id="too"),
            Question("at 4", {"beacon": 1}, id="new"),
        ),
        arms=["vector", "rrf"],
        compare=compare,
    )
    (moved,) = (each for each in newer.compared if each.measure == "MRR")
    assert (moved.arm, moved.interval.mean, moved.interval.count, moved.better) == ("vector", 0.5, 2, 2)
    assert newer.notes == (
        "compared: 1 of the queries are new; they are not in the comparison",
        "compared: 1 of the older report's queries are no longer asked; they are not in the comparison",
        "compared: 1 of the queries are judged otherwise now; they are not in the comparison",
        "compared: arms of one report alone: rrf, text",
    )


def older(**changed):
    """The JSON of a report of one query by one arm."""
    return {
        "format": 1,
        "when": "yesterday",
        "target": "index old",
        "questions": [{"id": "q", "query": "at 0", "relevant": {"beacon": 1}}],
        "arms": [{"name": "vector", "values": {"MRR": {"q": 0.0}, "R@10": {"q": 0.0}, "authority rank": {"q": 21.0}}}],
        "authority_window": 20,
        "wanted": 20,
        **changed,
    }


@pytest.mark.parametrize(
    "changed",
    [
        {"questions": {"a": 1}},
        {"questions": [{"id": [1], "query": "at 0"}]},
        {"arms": 5},
        {"arms": [{"name": "vector", "values": 5}]},
        {"arms": [{"name": "vector", "values": {"MRR": "high"}}]},
        {"arms": [{"name": "vector", "values": {"MRR": {"q": "high"}}}]},
        {"arms": [{"name": "vector", "values": {"MRR": {"q": float("nan")}}}]},
        {"arms": [{"name": "vector", "values": {"MRR": {"q": 10**400}}}]},
    ],
)
def test_an_older_report_of_another_shape_is_refused_before_anything_is_asked(index, changed):
    """What cannot be compared would lose all that was asked, if it came out at the end."""
    told = []
    with pytest.raises(InvalidInput, match="compare: no report of `retriever eval`"):
        evaluate(index, golden(Question("at 0", {"beacon": 1}, id="q")), compare=older(**changed), on_query=told.append)
    assert told == []


@pytest.mark.parametrize(
    "question",
    [
        {"query": "at 100"},
        {"relevant": {"beacon": 2}},
        {"authority": "beacon"},
        {"noise": ("anchor",)},
        {"filter": {"part": "odd"}},
    ],
)
def test_a_query_of_the_same_id_that_is_asked_or_judged_otherwise_is_not_compared(index, question):
    """An id of one's own says nothing of what was asked, and every judgement changes what a measure is of."""
    asked = Question(**{"query": "at 0", "relevant": {"beacon": 1}, "id": "q", **question})
    report = evaluate(index, golden(asked), arms=["vector"], compare=older())
    assert report.compared == ()
    assert any("1 of the queries are judged otherwise now" in note for note in report.notes)


@pytest.mark.parametrize(
    ("changed", "measures"),
    [
        ({}, ["R@10", "MRR"]),
        ({"wanted": 50}, ["R@10"]),
        ({"authority_window": 5}, ["R@10", "MRR"]),
    ],
)
def test_measures_that_looked_to_another_depth_are_not_compared(index, changed, measures):
    """The worst rank is the window and one, and MRR sees what was asked for: both were something else."""
    asked = golden(Question("at 0", {"beacon": 1}, id="q"))
    report = evaluate(index, asked, arms=["vector"], compare=older(**changed))
    assert [each.measure for each in report.compared] == measures
    assert any("looked to another depth" in note for note in report.notes) is bool(changed)


def test_an_index_that_vanishes_is_said_of_the_tables_too(index):
    """Searches that failed after the last query are no recall of 0 without a word."""
    questions = [Question(f"{word} at {at}", {word: 1}) for word in WORDS for at in (0, 300)]

    def vanish(done):
        if done == len(questions):
            index.drop_index()

    report = evaluate(index, golden(*questions), arms=["rrf"], tune=True, on_query=vanish)
    assert not report.arms[0].failed
    table, tuned = report.notes
    assert table.startswith(
        f"the equal-budget table: {6 * 20} of {6 * 20} searches failed and recall nothing; the first: "
    )
    assert "no index" in table
    assert tuned.startswith("tuning: ")
    assert "no index" in tuned


def test_a_fusion_that_lost_a_channel_is_no_fusion(index, monkeypatch):
    """The other channel's answer would pass for it: the query counts 0 in every fused arm, with the reason."""
    real = retrieving._ranked

    def failing(made, replies):
        return ServerError("out of words") if "anchor" in made.terms else real(made, replies)

    monkeypatch.setattr(retrieving, "_ranked", failing)
    report = evaluate(index, golden(Question("anchor at 0", {"anchor": 1}, id="q"), Question("at 9", {"jetty": 1})))
    by_name = {arm.name: arm for arm in report.arms}
    for fused in ("rrf", "linear", "append"):
        assert by_name[fused].failed == {"q": "the text channel did not run: ServerError: out of words"}
        assert by_name[fused].values["MRR"]["q"] == 0.0
    assert list(by_name["text"].failed) == ["q"]
    assert by_name["vector"].values["MRR"]["q"] == 1.0
    assert report.notes == (
        "the equal-budget table: 3 of 12 searches failed and recall nothing; the first: the text channel did not run: "
        "ServerError: out of words",
    )


def test_a_memorys_search_that_lost_a_channel_is_no_fusion(memory):
    """The store's own search answers by words where the embedder fails, and a report of it counts 0."""
    ids = doc_ids(memory)
    embed = memory._retriever._driver.embed
    memory._retriever._driver.embed = Failing("zebra")
    try:
        report = evaluate(memory, golden(Question("zebra", {ids["two"]: 1}, id="q"), Question("at 0", {ids["one"]: 1})))
    finally:
        memory._retriever._driver.embed = embed
    for arm in report.arms:
        lost = "" if arm.name == "vector" else "the vector channel did not run: "
        assert arm.failed == ({} if arm.name == "text" else {"q": f"{lost}OSError: no model"})
        assert arm.values["MRR"]["q"] == float(arm.name == "text")


def test_an_answer_that_may_lack_hits_is_said(index, monkeypatch):
    """Lesser reasons, hits that expired say, leave an answer that counts, and that the report names."""
    real = retrieving._rank_worded

    def lacking(leg, made, replies, asked, answer):
        real(leg, made, replies, asked, answer)
        answer.lost("text: 2 hits expired")

    monkeypatch.setattr(retrieving, "_rank_worded", lacking)
    report = evaluate(index, golden(Question("anchor at 0", {"anchor": 1}, id="q")))
    by_name = {arm.name: arm for arm in report.arms}
    assert by_name["rrf"].incomplete == {"q": "text: 2 hits expired"}
    assert not by_name["rrf"].failed
    assert by_name["rrf"].values["MRR"]["q"] == 1.0
    assert "may lack hits" in report.markdown()


@pytest.mark.parametrize(
    ("error", "said"),
    [(MissingExtra("no onnxruntime"), "no onnxruntime"), (InvalidInput("no such model"), "no such model")],
)
@pytest.mark.parametrize("arms", [None, ["text", "rrf"]])
def test_an_embedder_that_cannot_run_is_said_before_the_first_query(url, index, name, error, said, arms):
    """Fused arms would answer by words alone, and seem better than the vector that fails."""
    told = []
    with (
        Retriever.connect(url, schema_of(name), embed=Failing("", error)) as docs,
        pytest.raises(type(error), match=said),
    ):
        evaluate(docs, golden(Question("anchor at 0", {"anchor": 1})), arms=arms, on_query=told.append)
    assert told == []


def test_vectors_of_other_dimensions_are_said_before_the_first_query(url, index, name):
    """They would fail at every query."""
    with Retriever.connect(url, schema_of(name), embed=Embedder(5)) as docs, pytest.raises(InvalidInput, match="5"):
        evaluate(docs, golden(Question("anchor at 0", {"anchor": 1})))


def test_a_reranker_whose_package_is_missing_is_said_before_the_first_query(index):
    """It would fail at every query."""

    def rerank(text, hits):
        raise MissingExtra("no sentence-transformers")

    told = []
    with pytest.raises(MissingExtra, match="no sentence-transformers"):
        evaluate(index, golden(Question("anchor at 0", {"anchor": 1})), rerank=rerank, on_query=told.append)
    assert told == []


@pytest.mark.parametrize(
    ("made_by", "ours", "said"),
    [
        ("near", "near", None),
        ("near", None, "the embedder has no name, so nobody compared it with what made the vectors of {}, 'near'"),
        (None, None, "the embedder has no name, so nobody compared it with what made the vectors of {}"),
        (None, "near", "{} does not say what made its vectors, so nobody compared it with the embedder, 'near'"),
        ("near", "far", "the vectors of {} were made by 'near', and the embedder is 'far'"),
    ],
)
def test_an_embedder_that_nobody_compared_with_the_index_is_to_be_known(url, name, made_by, ours, said):
    """Vectors of another model of the same dimensions are found by, and mean nothing."""
    makers = [Near(**({} if each is None else {"name": each})) for each in (made_by, ours)]
    with Retriever.connect(url, schema_of(name), embed=makers[0]) as docs:
        docs.create_index()
        docs.upsert([Document("a", "at 0")])
    with Retriever.connect(url, schema_of(name), embed=makers[1]) as docs:
        report = evaluate(docs, golden(Question("at 0", {"a": 1})), arms=["vector"])
    assert report.notes == (() if said is None else (said.format(f"index {name}"),))


def test_progress_is_told(index):
    """After each query, how many are done."""
    told = []
    evaluate(index, golden(*(Question(f"at {at}", {"anchor": 1}) for at in range(3))), on_query=told.append)
    assert told == [1, 2, 3]


def test_the_report_is_data(index):
    """All of it is JSON: nothing is lost on the way."""
    report = evaluate(index, golden(Question("at 0", {"anchor": 1}, id="q")))
    told = json.loads(json.dumps(report.to_dict()))
    assert told["arms"][0]["summary"]["MRR"] == asdict(report.arms[0].summary["MRR"])
    assert told["arms"][0]["values"]["MRR"] == {"q": 1.0}
    assert told["format"] == 1
