"""BM25 from stored terms, and the sets of terms that find what it puts first."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.analysis import Analysis, stored_terms
from retriever.scoring import bm25, idf, term_sets, term_weights

# Terms that are parts, beginnings and ends of others, and some beyond ASCII.
vocabulary = ["a", "b", "ab", "a_b", "ba", "aa", "é", "日本", "x" * 120]
texts_of_terms = st.lists(st.sampled_from(vocabulary), max_size=12)
collections = st.lists(texts_of_terms, min_size=1, max_size=6)
frequencies = st.integers(0, 10**9)


def stored(texts):
    return [stored_terms(terms).encode() for terms in texts]


def bm25_slowly(terms, query, df, documents, mean_length):
    """One text's score as the formula is printed, one term of the query at a time."""
    total = 0.0
    for term in query:
        tf = terms.count(term)
        frequency = min(df.get(term, 0), documents)
        rarity = math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))
        total += rarity * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * len(terms) / mean_length))
    return total


# --- idf and weights -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("df", "documents", "expected"),
    [
        (0, 10, math.log(1 + 10.5 / 0.5)),
        (1, 10, math.log(1 + 9.5 / 1.5)),
        (10, 10, math.log(1 + 0.5 / 10.5)),
        (11, 10, math.log(1 + 0.5 / 10.5)),
        (10**9, 10, math.log(1 + 0.5 / 10.5)),
        (0, 0, math.log(2)),
        (5, 0, math.log(2)),
        (10**18, 10**18, 5e-19),
    ],
)
def test_idf(df, documents, expected):
    """Lucene's formula; a frequency above the number of documents, counted at another moment, is that number."""
    assert idf([df], documents).tolist() == pytest.approx([expected], rel=1e-9, abs=0)


@given(st.lists(frequencies, max_size=8), frequencies)
def test_idf_is_finite_and_falls(df, documents):
    """A rarer term never weighs less, and none weighs nothing."""
    found = idf(sorted(df), documents).tolist()
    assert all(0 < each < math.inf for each in found)
    assert found == sorted(found, reverse=True)


def test_a_term_that_a_query_repeats_weighs_more():
    """Weights are idf times the count in the query; a term that no document has is scored like any other."""
    weights = term_weights(["b", "a", "b"], {"a": 3, "b": 2}, 10)
    assert list(weights) == ["b", "a"]
    rare, rarer = idf([3, 2], 10)
    assert weights == {"b": 2 * rarer, "a": rare}
    assert term_weights(["c"], {}, 10) == {"c": idf([0], 10)[0]}
    assert term_weights([], {"a": 1}, 10) == {}


# --- bm25 ------------------------------------------------------------------------------------------


@given(collections, texts_of_terms, st.dictionaries(st.sampled_from(vocabulary), frequencies), frequencies)
def test_bm25_agrees_with_the_formula(texts, query, df, documents):
    """The counted scores are those of the printed formula over the terms themselves."""
    mean_length = sum(map(len, texts)) / len(texts) or 1.0
    found = bm25(stored(texts), term_weights(query, df, documents), mean_length)
    expected = [bm25_slowly(terms, query, df, documents, mean_length) for terms in texts]
    assert found.tolist() == pytest.approx(expected, rel=1e-9)
    assert found.dtype == np.float64


@given(collections, texts_of_terms, st.floats(allow_nan=True, allow_infinity=True))
def test_bm25_is_finite_for_any_mean_length(texts, query, mean_length):
    """No mean, a negative or an infinite one spoils a score; a text scores exactly 0 if it holds no query term."""
    scores = bm25(stored(texts), term_weights(query, {}, 5), mean_length).tolist()
    assert all(0 <= score < math.inf for score in scores)
    if 1e-6 < mean_length < 1e6:
        assert [score > 0 for score in scores] == [not set(terms).isdisjoint(query) for terms in texts]


@given(texts_of_terms, st.sampled_from(vocabulary), st.sampled_from(vocabulary), st.integers(1, 50))
def test_bm25_grows_with_occurrences(terms, term, other, mean_length):
    """Of texts of one length the one that holds a term more often scores higher; a longer text scores lower."""
    if term == other:
        return
    weights = {term: 1.0}
    few, more, longer = bm25(
        stored([[*terms, term, other], [*terms, term, term], [*terms, term, other, other]]), weights, mean_length
    )
    assert longer < few < more


@given(collections, texts_of_terms, st.floats(1, 50), st.data())
def test_a_score_depends_on_its_text_alone(texts, query, mean_length, data):
    """To the last bit: other candidates, their number and order change nothing, so ties stay ties."""
    weights = term_weights(query, dict.fromkeys(vocabulary, 3), 7)
    scores = bm25(stored(texts), weights, mean_length).tolist()
    places = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=40))
    assert bm25(stored([texts[at] for at in places]), weights, mean_length).tolist() == [scores[at] for at in places]


def test_edges_of_bm25():
    """No candidates, a query without terms, and texts that are missing or empty."""
    assert bm25([], {"a": 1.0}, 3).shape == (0,)
    assert bm25(stored([["a"]]), {}, 3).tolist() == [0.0]
    assert bm25([None, b"", *stored([["a"]])], {"a": 1.0}, 1).tolist() == pytest.approx([0, 0, 1 / 2.2])


def test_without_a_mean_length_the_candidates_mean_stands_in():
    """A lost counter (0, or nothing yet) costs accuracy, not an error."""
    texts = stored([["a", "b"], ["a", "b", "ab", "ba"]])
    expected = bm25(texts, {"a": 1.0}, 3).tolist()
    assert bm25(texts, {"a": 1.0}, 0).tolist() == bm25(texts, {"a": 1.0}, math.nan).tolist() == expected
    assert bm25([b"", b""], {"a": 1.0}, 0).tolist() == [0.0, 0.0]
    assert bm25(texts, {"a": 1.0}, 5e-324).tolist() == expected


def test_terms_as_the_analysis_stores_them():
    """What one analysis makes of document and query meets: identifiers, accents, signs, neighbours, no parts."""
    analysis = Analysis()
    texts = stored([analysis.terms(text) for text in ["C++ C++ École", "POLICY-123", "policy 123", "policies123"]])

    def score(query):
        return bm25(texts, dict.fromkeys(analysis.terms(query), 1.0), 3)

    assert np.flatnonzero(score("c++")).tolist() == [0]
    assert np.flatnonzero(score("école")).tolist() == [0]
    assert np.flatnonzero(score("policy-123")).tolist() == [1, 2]
    assert np.argmax(score("policy-123")) == 1


# --- which sets to ask for -------------------------------------------------------------------------

words = st.text(st.sampled_from("abc"), min_size=1, max_size=3)


def rows_of(terms, df, documents, share):
    """What a set is expected to return."""
    rarest, *others = sorted(df[term] / documents for term in terms)
    return share * documents * rarest * math.prod(part * (2 - part) for part in others)


@given(st.dictionaries(words, frequencies, max_size=20), frequencies, st.integers(1, 1000), st.floats(0, 1))
def test_what_all_plans_keep(df, documents, budget, share):
    """Sets are non-empty, known, few, rarest first, and none contains another; the plan is the same every time."""
    sets = term_sets(df, documents, budget, share)
    present = {term for term in df if df[term] > 0}
    assert bool(sets) == bool(present)
    assert len(sets) <= 60
    assert len(set(map(frozenset, sets))) == len(sets)
    for each in sets:
        assert each
        assert len(set(each)) == len(each)
        assert set(each) <= present
        assert [df[term] for term in each] == sorted(df[term] for term in each)
    assert not any(set(one) < set(other) for one in sets for other in sets)
    assert sets == term_sets(dict(reversed(df.items())), documents, budget, share)
    if sum(df.values()) * share <= budget:
        assert sets == [(term,) for term in sorted(present, key=lambda term: (df[term], term))]


@given(st.dictionaries(words, st.integers(1, 5000), min_size=1, max_size=9), st.integers(1, 2000), st.floats(0.1, 1))
def test_plans_fit_or_are_one_set(df, budget, share):
    """The rows that a plan is expected to return fit the budget; if none can, all terms are asked for together."""
    sets = term_sets(df, 5000, budget, share)
    if sum(rows_of(each, df, 5000, share) for each in sets) > budget + 1e-3:
        assert [set(each) for each in sets] == [set(df)]


@given(st.dictionaries(words, st.integers(1, 5000), min_size=1, max_size=6), st.integers(1, 2000))
def test_nothing_better_is_affordable(df, budget):
    """Of all thresholds over all numbers of rarest terms, the plan's bound on what it misses is the least."""
    sets = term_sets(df, 5000, budget)
    terms = sorted(df, key=lambda term: (df[term], term))
    weight = dict(zip(terms, idf([df[term] for term in terms], 5000).tolist(), strict=True))
    subsets = [each for size in range(1, len(terms) + 1) for each in combinations(terms, size)]

    def worth(each):
        return sum(weight[term] for term in each)

    def heaviest_missed(plan):
        return max((worth(each) for each in subsets if not any(set(one) <= set(each) for one in plan)), default=0.0)

    missed = heaviest_missed(sets)
    for used in range(1, len(terms) + 1):
        for threshold in {worth(each) for each in subsets if set(each) <= set(terms[:used])}:
            reach = [each for each in subsets if set(each) <= set(terms[:used]) and worth(each) >= threshold]
            minimal = [each for each in reach if not any(set(one) < set(each) for one in reach)]
            cost = sum(rows_of(each, df, 5000, 1.0) for each in minimal)
            if cost < budget - 1e-3 and len(minimal) <= 60:
                assert missed < threshold + sum(weight[term] for term in terms[used:]) + 1e-9


@pytest.mark.parametrize(
    ("df", "documents", "budget", "share", "expected"),
    [
        ({}, 100, 10, 1.0, []),
        ({"a": 0}, 100, 10, 1.0, []),
        ({"a": 0, "b": 3}, 100, 10, 1.0, [("b",)]),
        ({"a": 4, "b": 3, "c": 3}, 100, 10, 1.0, [("b",), ("c",), ("a",)]),
        ({"a": 100}, 100, 10, 1.0, [("a",)]),
        ({"a": 100, "b": 100}, 100, 10, 1.0, [("a", "b")]),
        ({"a": 100, "b": 100}, 100, 10, 0.05, [("a",), ("b",)]),
        ({"flow": 700, "wing": 200, "slipstream": 10}, 1400, 200, 1.0, [("slipstream",), ("wing", "flow")]),
        ({"flow": 700, "wing": 200, "slipstream": 10}, 1400, 209, 1.0, [("slipstream",), ("wing", "flow")]),
        ({"flow": 700, "wing": 200, "slipstream": 10}, 1400, 210, 1.0, [("slipstream",), ("wing",)]),
        ({"flow": 700, "wing": 200, "slipstream": 10}, 1400, 41, 0.2, [("slipstream",), ("wing", "flow")]),
        ({"flow": 700, "wing": 200, "slipstream": 10}, 1400, 43, 0.2, [("slipstream",), ("wing",)]),
        ({"a": 9, "b": 9}, 0, 5, 1.0, [("a", "b")]),
    ],
)
def test_plans_by_hand(df, documents, budget, share, expected):
    """Single terms while they fit, then conjunctions of the common ones; a filter's share leaves room for more."""
    assert term_sets(df, documents, budget, share) == expected


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_few_rows_hold_the_best(share):
    """In 20,000 documents of Zipf's words and topics, 400 planned rows hold 97 of a hundred of the true ten best."""
    rng = np.random.default_rng(7)
    documents, vocabulary_size, topics, length = 20_000, 10_000, 150, 40
    ranks = 1 / np.arange(1, vocabulary_size + 1)
    tokens = rng.choice(vocabulary_size, (documents, length), p=ranks / ranks.sum())
    of_topic = rng.integers(50, vocabulary_size, (topics, 100))[rng.integers(topics, size=documents)]
    of_topic = np.take_along_axis(of_topic, rng.integers(0, 100, (documents, length)), axis=1)
    tokens = np.where(rng.random((documents, length)) < 0.3, of_topic, tokens)
    passes = rng.random(documents) < share

    overlaps = []
    for source in rng.integers(documents, size=40):
        query = np.unique(rng.choice(tokens[source], 8, replace=False))
        tf = np.stack([(tokens == term).sum(axis=1) for term in query], axis=1)
        df = {str(term): int(count) for term, count in zip(query, (tf > 0).sum(axis=0), strict=True)}
        scores = np.where(passes, (tf / (tf + 1.2)) @ idf(list(df.values()), documents), 0)
        place = {str(term): at for at, term in enumerate(query)}
        found = np.zeros(documents, dtype=bool)
        for each in term_sets(df, documents, 400, share):
            found |= np.logical_and.reduce([tf[:, place[term]] > 0 for term in each])
        best = np.argsort(-scores, kind="stable")[:10]
        overlaps.append(found[best].mean())
    assert np.mean(overlaps) >= 0.97


def test_a_long_query_is_planned_over_its_rarest_terms():
    """Common terms of a long query are left out of the candidates, not of the score; rare ones are all asked for."""
    df = Counter({f"rare{number}": 30 + number for number in range(5)})
    df.update({f"common{number:02}": 4000 + number for number in range(40)})
    sets = term_sets(df, 5000, 400)
    assert {term for each in sets for term in each} >= {f"rare{number}" for number in range(5)}
    assert len(term_sets({f"t{number:03}": 1 for number in range(100)}, 5000, 400)) == 60
    assert len(term_sets({f"t{number:03}": 50 for number in range(50)}, 5000, 400, share=0.1)) == 50
