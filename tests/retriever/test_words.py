"""The text channel as plans: what is known of the collection, what is asked for, and what is made of the rows."""

from __future__ import annotations

import re

import pytest

from fields.kinds import Numeric, Tag, Text, Vector
from retriever.engines import REDISEARCH_2, VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2
from retriever.errors import NotSupported, ServerError
from retriever.operations import words as module
from retriever.operations.index import Live
from retriever.operations.words import BUDGET, COMMON, KEEP_S, attributes, text_engine, words
from retriever.plans import Ask, Primaries, Wait
from retriever.replies import Rows
from retriever.schema import Schema
from retriever.scoring import bm25, term_weights
from tests.recorded import ResponseError, replies

PLAIN = Schema("ours", [Tag("category"), Numeric("year")], Vector(dims=2))
TITLED = Schema("ours", [Tag("category"), Text("title", weight=2.0), Text("note")], Vector(dims=2))
INFO = [*replies("info of our HNSW index", ours=True)[0].reply]
FILTER = Tag("category") == "x"
PASSES = "(@category:{x})"


def live(schema=PLAIN, engine=REDISEARCH_2, **known):
    return Live(schema, engine=engine, **known)


class Counts:
    """Counts of a collection: term or filter -> documents; mean lengths from terms and documents counted."""

    def __init__(self, documents=100, lengths=(b"500", b"100"), records=0, **by_term):
        self.documents, self.lengths, self.records, self.by_term = documents, lengths, records, by_term
        self.clock = 0.0
        self.counted = []  # the terms or filters of each round trip
        self.infos = 0

    def answer(self, command):
        match command.args[0]:
            case "FT.INFO":
                self.infos += 1
                info = [*INFO]
                info[info.index(b"num_docs") + 1] = str(self.documents).encode()
                info[info.index(b"num_records") + 1] = str(self.records).encode()
                return info
            case "HMGET":
                return [*self.lengths] * (len(command.args[2:]) // 2)
            case "FT.SEARCH":
                query = command.args[2]
                self.counted[-1].append(query)
                found = self.by_term.get(query.rpartition(":")[2] if query[0] == "@" else "passing", 0)
                return found if isinstance(found, Exception) else [found]
        raise AssertionError(command)

    def run(self, plan):
        try:
            step = next(plan)
            while True:
                match step:
                    case Ask(commands):
                        self.counted.append([])
                        answer = [self.answer(command) for command in commands], 0.001
                    case Wait(0):
                        answer = self.clock
                    case Primaries():
                        answer = (None,)
                step = plan.send(answer)
        except StopIteration as end:
            return end.value

    def words(self, known, *terms, filter=None, depth=50):
        return self.run(words(known, terms, filter, depth, 5000))


def asked(found):
    """Of each command: the sets of terms that are ORed, each term by its first attribute."""
    return [re.findall(r"@__terms:(\w+)", command.args[2]) for command in found.commands]


# --- what is known of the collection --------------------------------------------------------------


def test_frequencies_are_asked_for_once_a_minute():
    """A term's count is asked for when it is first seen, and again after a minute (A4, A19)."""
    counts, known = Counts(alpha=10, beta=20), live()
    first = counts.words(known, "alpha", "beta")
    assert counts.counted == [["@__terms:alpha", "@__terms:beta"]]
    counts.clock = KEEP_S
    again = counts.words(known, "beta", "alpha")
    assert len(counts.counted) == 1
    assert again.frequencies.count("__terms", "beta") == first.frequencies.count("__terms", "beta") == 20
    counts.words(known, "beta", "gamma")
    assert counts.counted[1:] == [["@__terms:gamma"]]
    counts.clock = 2 * KEEP_S + 1
    counts.words(known, "beta", "gamma")
    assert counts.counted[2:] == [["@__terms:beta", "@__terms:gamma"]]


def test_shares_are_kept_and_not_counts():
    """Each count is kept as a share of the documents of its own moment, so a collection may grow meanwhile (A19)."""
    counts, known = Counts(documents=100, alpha=10), live()
    assert counts.words(known, "alpha").frequencies.count("__terms", "alpha") == 10
    counts.documents, counts.lengths = 1000, (b"5000", b"1000")
    found = counts.words(known, "alpha", "beta").frequencies
    assert (found.documents, found.count("__terms", "alpha")) == (1000, 100)


def test_documents_are_counted_anew_when_many_were_written():
    """FT.INFO walks all terms, so it is asked once a minute, or when over a tenth has been written since (A4, A19)."""
    counts, known = Counts(documents=100, lengths=(b"500", b"100"), alpha=10, beta=11), live()
    counts.words(known, "alpha")
    counts.documents, counts.lengths = 110, (b"550", b"110")
    found = counts.words(known, "beta").frequencies
    assert (counts.infos, found.documents, found.share["__terms", "beta"]) == (1, 100, 0.11)
    counts.documents, counts.lengths = 111, (b"555", b"111")
    found = counts.words(known, "alpha", "gamma").frequencies
    assert (counts.infos, found.documents) == (2, 111)
    assert len(counts.counted) == 4, "a round trip of its own, for what is seldom"
    counts.words(known, "delta")
    assert counts.infos == 2
    counts.clock = KEEP_S + 1
    counts.words(known, "alpha")
    assert counts.infos == 3


def test_a_count_that_exceeds_the_documents():
    """Counts of different moments: a share is never more than all (A19)."""
    found = Counts(documents=10, alpha=20).words(live(), "alpha").frequencies
    assert found.share["__terms", "alpha"] == 1.0
    found = Counts(documents=0, alpha=3).words(live(), "alpha").frequencies
    assert (found.documents, found.count("__terms", "alpha")) == (0, 0)


def test_the_mean_length_is_of_two_counters():
    """Terms over documents, for the text and for each Text field; nothing counted is 0 (A19)."""
    counts = Counts(lengths=(b"500", b"100"))
    found = counts.words(live(TITLED), "alpha").frequencies
    assert found.whole.mean_lengths == {"__terms": 5.0, "__terms_title": 5.0, "__terms_note": 5.0}
    (command,) = [each for each in _commands(words(live(TITLED), ["alpha"], None, 50, 5000)) if each.args[0] == "HMGET"]
    assert command.args[1:] == (
        *("ours", "terms", "documents", "terms_title", "documents_title", "terms_note", "documents_note"),
    )
    assert Counts(lengths=(None, None)).words(live(), "alpha").frequencies.whole.mean_lengths == {"__terms": 0.0}


def _commands(plan):
    step = next(plan)
    while not isinstance(step, Ask):
        step = plan.send(0.0 if isinstance(step, Wait) else (None,))
    plan.close()
    return step.commands


def test_what_passes_a_filter_is_counted_where_it_matters():
    """Only where the engine ranks nothing does the plan need the filter's share; it is counted once a minute (A20)."""
    ranked, unranked = Counts(alpha=10, passing=30), Counts(alpha=10, passing=30)
    assert ranked.words(live(), "alpha", filter=FILTER).frequencies.passing == 1.0
    assert ranked.counted == [["@__terms:alpha"]]
    known = live(engine=VALKEY_SEARCH_1_2)
    assert unranked.words(known, "alpha", filter=FILTER).frequencies.passing == 0.3
    assert unranked.counted == [["@__terms:alpha", "(@category:{x})"]]
    unranked.words(known, "alpha", filter=FILTER)
    assert len(unranked.counted) == 1
    unranked.words(known, "alpha", filter=Tag("category") == "y")
    assert unranked.counted[1:] == [["(@category:{y})"]]


def test_the_cache_is_bounded(monkeypatch):
    """When it is full it starts anew."""
    monkeypatch.setattr(module, "MAX_KEPT", 3)
    counts, known = Counts(), live()
    for at in range(10):
        counts.words(known, f"w{at}")
    assert len(known.frequencies) <= 5


def test_a_refused_count_is_raised():
    """Half a collection is not known: the first refusal is the channel's."""
    with pytest.raises(ServerError, match="Syntax error"):
        Counts(alpha=ResponseError("Syntax error")).words(live(), "alpha", "beta")


def test_an_engine_without_text():
    """The row says whether there are TEXT fields (A21)."""
    with pytest.raises(NotSupported, match="Valkey Search 1.0 has no TEXT fields"):
        Counts().run(text_engine(live(engine=VALKEY_SEARCH_1_0)))
    assert Counts().run(text_engine(live())) is REDISEARCH_2


# --- what is asked for ----------------------------------------------------------------------------


def test_every_copy_is_searched():
    """The text and each Text field, with their weights; a term may be in any of them."""
    assert attributes(TITLED) == [("__terms", 1.0), ("__terms_title", 2.0), ("__terms_note", 1.0)]
    found = Counts(alpha=10).words(live(TITLED), "alpha")
    assert [command.args[2] for command in found.commands] == [
        "((@__terms:alpha|@__terms_title:alpha|@__terms_note:alpha))"
    ]


def test_common_words_are_asked_for_apart():
    """Beside rarer ones a word that most documents hold would decide which come back, by a score that may be broken;
    it is left out only where the rarer ones fill the ranking alone (A15, A20)."""
    counts = Counts(alpha=10, beta=60, never=0, many=40)
    assert COMMON == 0.4
    for terms, filter, depth, expected in (
        (["alpha", "never"], None, 50, [["alpha", "never"]]),
        (["alpha", "beta"], None, 50, [["alpha"], ["beta"]]),
        (["alpha", "beta"], None, 10, [["alpha"]]),
        (["alpha", "beta"], FILTER, 10, [["alpha"], ["beta"]]),
        (["beta"], None, 50, [["beta"]]),
        (["many", "beta"], None, 40, [["many"]]),
    ):
        found = counts.words(live(), *terms, filter=filter, depth=depth)
        assert [list(dict.fromkeys(each)) for each in asked(found)] == expected
        assert found.ranked
        assert found.limit == depth


def test_sets_of_words_where_nothing_is_ranked():
    """What fits the budget is asked for whole; of more, those documents that hold several words (A20)."""
    rare = Counts(documents=10_000, alpha=100, beta=200).words(live(engine=VALKEY_SEARCH_1_2), "alpha", "beta")
    assert [command.args[2] for command in rare.commands] == ["((@__terms:alpha)|(@__terms:beta))"]
    common = Counts(documents=10_000, alpha=1000, beta=2000).words(live(engine=VALKEY_SEARCH_1_2), "alpha", "beta")
    assert [command.args[2] for command in common.commands] == ["((@__terms:alpha @__terms:beta))"]
    assert (common.ranked, common.limit) == (False, 10 * BUDGET)
    deeper = Counts(documents=10_000, alpha=1000, beta=2000).words(
        live(engine=VALKEY_SEARCH_1_2), "alpha", "beta", depth=3000
    )
    assert [command.args[2] for command in deeper.commands] == ["((@__terms:alpha)|(@__terms:beta))"]
    assert deeper.limit == 10_000


def test_a_new_word_is_asked_for_all_the_same():
    """A word that no document held a minute ago may be there now, and takes no other word's place (A20)."""
    terms = ["alpha", *(f"new{at}" for at in range(63))]
    found = Counts(alpha=10).words(live(engine=VALKEY_SEARCH_1_2), *terms)
    assert asked(found) == [terms]
    assert asked(Counts(documents=0).words(live(engine=VALKEY_SEARCH_1_2), "alpha")) == [["alpha"]]


# --- what is made of the rows ---------------------------------------------------------------------


def row(id, terms, title=None, note=None):
    cells = [
        None if each is None else "".join(f" {term} " for term in each.split()).encode()
        for each in (terms, title, note)
    ]
    return f"ours:{id}".encode(), cells


def test_the_ranking():
    """Scored from each copy with its own frequencies and weight, best first, ties by id; 0 is left out (A19)."""
    found = Counts(alpha=10, beta=20).words(live(TITLED), "alpha", "beta")
    rows = [row("b", "alpha"), row("a", "alpha"), row("t", "beta", "alpha"), row("none", "gamma", "delta", "x")]
    ranking, by_id, reasons = found.ranking([Rows(4, rows[:2]), Rows(2, rows[2:])])
    weights = term_weights(["alpha", "beta"], {"alpha": 10, "beta": 20}, 100)
    plain = bm25([b" alpha ", b" beta "], weights, 5.0)
    assert dict(ranking) == pytest.approx(
        {"a": plain[0], "b": plain[0], "t": plain[1] + 2.0 * bm25([b" alpha "], weights, 5.0)[0]}
    )
    assert [id for id, _ in ranking] == ["t", "a", "b"]
    assert [found.holding(by_id)(id) for id in ("a", "t", "none")] == [("alpha",), ("alpha", "beta"), ()]
    assert reasons == ()


@pytest.mark.parametrize(("records", "ranked"), [(0, True), (600, True), (601, False)])
def test_an_engine_full_of_overwritten_documents_is_not_asked_to_rank(records, ranked):
    """Its scores count them: beyond 1.2 entries a term, candidates are planned as without scores (A19)."""
    # 100 documents of 5 terms.
    counts = Counts(documents=100, lengths=(b"500", b"100"), records=records, alpha=10, passing=40)
    made = counts.words(live(), "alpha", filter=FILTER)
    assert made.ranked is ranked
    assert {"SCORER" in command.args for command in made.commands} == {ranked}
    # The share of documents that pass is asked for where it is planned with, and only there.
    asked = [query for trip in counts.counted for query in trip]
    assert asked == ["@__terms:alpha", *([] if ranked else [PASSES])]


def test_an_answer_may_lack_rows():
    """Expired and foreign rows, an engine's warnings, and a cut where nothing is ranked are reasons."""
    ranked = Counts(alpha=10).words(live(), "alpha")
    rows = [(b"ours:a", None), (b"ours:\xff", [b" alpha "]), (b"ours:b", [b" alpha "])]
    ranking, _, reasons = ranked.ranking([Rows(500, rows, ("timeout",))])
    assert [id for id, _ in ranking] == ["b"]
    assert reasons == (
        "timeout",
        "text: 1 hits expired while the engine was answering",
        "text: 1 rows hold values that this library did not write",
    )
    unranked = Counts(alpha=10).words(live(engine=VALKEY_SEARCH_1_2), "alpha")
    _, _, reasons = unranked.ranking([Rows(7000, rows[2:])])
    assert reasons == ("text: 7000 candidates, of which the engine was asked for 6000",)


def test_no_rows():
    """Nothing found is an empty ranking."""
    assert Counts(alpha=10).words(live(), "alpha").ranking([Rows(0, [])]) == ([], {}, ())
    assert Counts(alpha=10).words(live(), "alpha").ranking([]) == ([], {}, ())
