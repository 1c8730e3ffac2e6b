"""What a reranker may answer, and what is refused; and a cross-encoder, as far as it needs no model."""

from __future__ import annotations

import math
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents import Hit, Hits
from retriever.errors import InvalidInput, MissingExtra
from retriever.models import CrossEncoderReranker
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


# --- CrossEncoderReranker without its model ---------------------------------------------------------


class Scorer:
    """What the reranker asks of a CrossEncoder: a pair's score is the length of its texts."""

    def __init__(self, source="object", *, local_files_only=None, labels=0):
        self.source, self.local_files_only, self.labels = source, local_files_only, labels
        self.options = []

    def predict(self, pairs, **options):
        self.options.append(options)
        scores = np.float32([len(text) * 100 + len(other) for text, other in pairs])
        return np.tile(scores[:, None], self.labels) if self.labels else scores


def test_a_cross_encoder_scores_each_hit():
    """Pairs (hit, score) come back in the given order with plain floats; no hits ask no model."""
    model = Scorer()
    rerank = CrossEncoderReranker(model, batch_size=2)
    hits = [replace(B, text="four"), replace(A, text="")]
    assert rerank("query", hits) == [(hits[0], 504.0), (hits[1], 500.0)]
    assert {type(score) for _, score in rerank("query", hits)} == {float}
    assert model.options[0] == {"batch_size": 2, "convert_to_numpy": True, "show_progress_bar": False}
    assert rerank("query", []) == []
    assert len(model.options) == 2


def test_a_model_that_classifies_is_no_reranker():
    """A model of several numbers a pair is refused, since none of them is the score."""
    with pytest.raises(InvalidInput, match="gives 3 numbers for a pair, not one"):
        CrossEncoderReranker(Scorer(labels=3))("query", [A])


def test_a_nan_of_the_model_is_refused_where_it_is_read():
    """A model's NaN is no score: the answer that holds it is refused, with the id."""
    model = Scorer()
    model.predict = lambda pairs, **options: np.float32([1.0, math.nan])
    with pytest.raises(InvalidInput, match="score of 'b' is nan"):
        ranked(CrossEncoderReranker(model)("query", [A, B]), [A, B], 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": ""}, "the model of CrossEncoderReranker is ''"),
        ({"model": 1}, "is an int; pass a name, a folder or a CrossEncoder of sentence-transformers 5"),
        ({"model": Scorer}, "is the class Scorer; pass"),
        ({"batch_size": 0}, "batch_size is 0, not a positive int"),
    ],
)
def test_what_is_no_setting_of_a_cross_encoder_is_refused(arguments, message):
    """Settings are checked at construction, before anything is loaded."""
    with pytest.raises(InvalidInput, match=message):
        CrossEncoderReranker(**{"model": "org/model", **arguments})


def test_a_missing_sentence_transformers_names_the_extra(monkeypatch):
    """Without the package, the first call names the pip command; making the object does not fail."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    rerank = CrossEncoderReranker("org/model")
    with pytest.raises(MissingExtra, match=r"pip install 'valkey-retriever\[sentence-transformers\]'"):
        rerank("query", [A])


def test_a_cross_encoder_is_loaded_once_by_its_first_use(monkeypatch):
    """Threads that call at once load one model, by its name."""
    loaded, together = [], threading.Barrier(6)
    module = types.ModuleType("sentence_transformers")
    module.CrossEncoder = lambda *args, **options: loaded.append(Scorer(*args, **options)) or loaded[-1]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    rerank = CrossEncoderReranker("org/model")
    assert (loaded, repr(rerank)) == ([], "<CrossEncoderReranker org/model>")

    def work(number):
        together.wait()
        return rerank("x" * number, [A])

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(6)))
    assert [score for ((_, score),) in results] == [number * 100 + len(A.text) for number in range(6)]
    assert [(model.source, model.local_files_only) for model in loaded] == [("org/model", False)]
