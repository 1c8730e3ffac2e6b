"""What a reranker may answer, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents import Hit, Hits
from retriever.errors import InvalidInput
from retriever.rerankers import ranked

A, B, C, D = HITS = [
    Hit(id_, score, f"text of {id_}", {}) for id_, score in [("a", 0.1), ("b", 0.2), ("c", 0.3), ("d", 0.4)]
]


@pytest.mark.parametrize(
    ("result", "k", "expected"),
    [
        ([C, A, B, D], 4, [("c", None), ("a", None), ("b", None), ("d", None)]),
        ((D, A), 4, [("d", None), ("a", None)]),
        ([C, A, B], 2, [("c", None), ("a", None)]),
        (Hits([B, A]), 4, [("b", None), ("a", None)]),
        (iter([B, A]), 4, [("b", None), ("a", None)]),
        (np.array([B, A], dtype=object), 4, [("b", None), ("a", None)]),
        ([], 4, []),
        ([A], 0, []),
        ([(A, 0.1), (B, 0.9), (C, 0.5)], 4, [("b", 0.9), ("c", 0.5), ("a", 0.1)]),
        ([(A, 0.1), (B, 0.9), (C, 0.5)], 1, [("b", 0.9)]),
        ([(A, -11.5), (B, 8.25), (C, -3.0)], 4, [("b", 8.25), ("c", -3.0), ("a", -11.5)]),
        ([(D, 1.0), (B, 1.0), (A, 2), (C, 1.0)], 4, [("a", 2.0), ("d", 1.0), ("b", 1.0), ("c", 1.0)]),
        ([(D, 0.0), (B, -0.0), (A, 0)], 4, [("d", 0.0), ("b", 0.0), ("a", 0.0)]),
        (zip(HITS, np.float32([0.5, 1.5, 0.0, 1.0]), strict=True), 3, [("b", 1.5), ("d", 1.0), ("a", 0.5)]),
    ],
)
def test_answers_that_are_read(result, k, expected):
    """An order is kept, pairs go by score from the highest with ties as given, and k cuts last."""
    assert [(hit.id, score) for hit, score in ranked(result, HITS, k)] == expected


@pytest.mark.parametrize(
    "score",
    [1, 1.0, np.float64(1), np.float32(1), np.float16(1), np.int64(1), np.uint8(1), np.array(1.0), Fraction(1)],
    ids=lambda score: type(score).__name__,
)
def test_scores_become_floats(score):
    """Any finite real number, and a 0-dimensional array of one, gives a plain float."""
    ((_, found),) = ranked([(A, score)], HITS, 1)
    assert (found, type(found)) == (1.0, float)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([A, Hit("x", 0.0, "", {})], "returned 'x', which is not among the hits"),
        ([(Hit("x", 0.0, "", {}), 1.0)], "returned 'x', which is not among the hits"),
        ([A, B, A], "returned 'a' twice"),
        ([(A, 1.0), (B, 2.0), (replace(A), 3.0)], "returned 'a' twice"),
        ([A, (B, 1.0)], "mixed hits and .* from position 1"),
        ([(A, 1.0), (B, 2.0), C], "mixed hits and .* from position 2"),
        ([(A, 1.0), (B, math.nan)], "score of 'b' is nan, not a finite number"),
        ([(A, np.float16(1)), (B, np.float16("nan"))], "score of 'b' is nan, not a finite number"),
        ([(A, math.inf)], "score of 'a' is inf, not a finite number"),
        ([(A, -np.float32(np.inf))], "score of 'a' is -inf, not a finite number"),
        ([(A, 10**400)], "score of 'a' is inf, not a finite number"),
        ([(A, True)], "score of 'a' is bool, not a number"),
        ([(A, np.True_)], "score of 'a' is bool, not a number"),
        ([(A, "0.5")], "score of 'a' is str, not a number"),
        ([(A, None)], "score of 'a' is NoneType, not a number"),
        ([(A, 1j)], "score of 'a' is complex, not a number"),
        ([(A, Decimal(1))], "score of 'a' is Decimal, not a number"),
        ([(A, np.array([1.0]))], "score of 'a' is ndarray, not a number"),
        ([(A, np.datetime64("2024-01-01"))], "score of 'a' is date, not a number"),
        ([(A, 1.0, 2)], "3 values at position 0"),
        ([()], "0 values at position 0"),
        ([(1.0, A)], "returned float at position 0"),
        ([("a", 1.0)], "returned str at position 0"),
        (["a", "b"], "returned str at position 0"),
        ([0.3, 0.2, 0.9, 0.1], "returned float at position 0"),
        (np.array([0.3, 0.2]), "returned float64 at position 0"),
        ([A, None], "returned NoneType at position 1"),
        ([[A, 1.0]], "returned list at position 0"),
        (None, "returned NoneType"),
        ("abcd", "returned str"),
        (b"abcd", "returned bytes"),
        (0.5, "returned float"),
        (A, "returned Hit"),
        ({"a": 1.0}, "returned dict"),
        ({A, B}, "returned set"),
    ],
)
def test_answers_that_are_refused(result, message):
    """An answer that could only be guessed at is an error that names the id or the place, never the text."""
    with pytest.raises(InvalidInput, match=message) as caught:
        ranked(result, HITS, 4)
    assert "text of" not in str(caught.value)


def test_what_k_cuts_off_is_checked_too():
    """A NaN far down is an error at any k: what a reranker may answer does not depend on how much is asked."""
    with pytest.raises(InvalidInput, match="'b' is nan"):
        ranked([(A, 1.0), (B, math.nan)], HITS, 1)


def test_a_reranker_orders_and_does_not_write():
    """The hits that come back are those that went in, whatever the reranker made of its copies."""
    ((found, score),) = ranked([(replace(B, text="rewritten", score=-1.0), 2.0)], HITS, 1)
    assert found is B
    assert score == 2.0


scores = st.floats(allow_nan=False, allow_infinity=False)
many = st.lists(st.text(min_size=1), unique=True).map(lambda names: [Hit(name, 0.0, "", {}) for name in names])


@given(st.data(), many, st.integers(0, 30))
def test_an_order_comes_back_as_it_is(data, hits, k):
    """Any order of any part of the hits comes back, cut at k, nothing lost and nothing added."""
    order = data.draw(st.permutations(hits))[: data.draw(st.integers(0, len(hits)))]
    assert ranked(order, hits, k) == [(hit, None) for hit in order[:k]]


@given(st.data(), many, st.integers(0, 30))
def test_scores_stay_with_their_hits(data, hits, k):
    """Every score comes back beside the hit it was given to, from the highest down, ties in the reranker's order."""
    order = data.draw(st.permutations(hits))
    # Few values, so that ties are common.
    pairs = [(hit, data.draw(st.sampled_from([-1.0, 0.0, 0.5]) | scores)) for hit in order]
    given_to = {hit.id: score for hit, score in pairs}
    found = ranked(pairs, hits, k)
    assert len(found) == min(k, len(hits))
    assert all(given_to[hit.id] == score for hit, score in found)
    keys = [(-score, order.index(hit)) for hit, score in found]
    assert keys == sorted(keys)
    assert [*found, *ranked(pairs, hits, len(hits))[k:]] == ranked(pairs, hits, len(hits))


@given(st.data(), many.filter(bool), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_one_score_that_is_no_number_spoils_the_answer(data, hits, score):
    """Wherever a NaN or an infinity stands, the answer is refused and the id is named."""
    at = data.draw(st.integers(0, len(hits) - 1))
    pairs = [(hit, score if position == at else 0.0) for position, hit in enumerate(hits)]
    with pytest.raises(InvalidInput) as caught:
        ranked(pairs, hits, len(hits))
    assert repr(hits[at].id) in str(caught.value)
