"""Fusing two rankings into one, and making one ranking varied."""

from __future__ import annotations

import copy
import functools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import InvalidInput
from retriever.fusion import Append, Fused, Linear, Rrf, as_fusion, fuse, greatest, mmr, rrf


def near(ids):
    """A vector ranking of these ids, one letter each: distances 0.1, 0.2, ..."""
    return [(id_, place / 10) for place, id_ in enumerate(ids, 1)]


def worded(ids):
    """A text ranking of these ids: scores 9, 8, ..."""
    return [(id_, float(10 - place)) for place, id_ in enumerate(ids, 1)]


def ids_of(fused):
    return [each.id for each in fused]


def by_sum(vector, text):
    """A fusion as users write one."""
    scores: dict[str, float] = {id_: -distance for id_, distance in vector}
    for id_, score in text:
        scores[id_] = scores.get(id_, 0.0) + score
    return scores.items()


few_ids = st.text(st.sampled_from("abcdeé"), min_size=1, max_size=2)
raw = st.floats(-1000, 1000) | st.sampled_from([0.0, -1.2e-7, 1.0])
rankings = st.lists(st.tuples(few_ids, raw), max_size=12, unique_by=lambda pair: pair[0])
vector_rankings = rankings.map(lambda pairs: sorted(pairs, key=lambda pair: (pair[1], pair[0])))
text_rankings = rankings.map(lambda pairs: sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
weights = st.floats(0, 100)
pairs_of_weights = st.tuples(weights, weights).filter(lambda pair: sum(pair) > 1e-9)
scoring_fusions = st.one_of(
    st.builds(Rrf, st.floats(0.1, 1000)),
    st.builds(lambda k, pair: Rrf(k, {"vector": pair[0], "text": pair[1]}), st.floats(0.1, 1000), pairs_of_weights),
    st.builds(Linear, st.floats(0, 1)),
)
fusions = scoring_fusions | st.builds(Append, st.integers(0, 12)) | st.just(by_sum)


# --- rrf -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rankings", "options", "expected"),
    [
        ([["a"], ["a"]], {}, [("a", 1 / 61 + 1 / 61)]),
        ([["a", "b"], ["b"]], {}, [("b", 1 / 62 + 1 / 61), ("a", 1 / 61)]),
        ([["a"], []], {}, [("a", 1 / 61)]),
        ([["a", "b"]], {"k": 1}, [("a", 1 / 2), ("b", 1 / 3)]),
        ([["a"], ["b"]], {"weights": [1, 3]}, [("b", 3 / 61), ("a", 1 / 61)]),
        ([["a"], ["b"]], {"weights": np.float32([0, 0.5])}, [("b", 0.5 / 61), ("a", 0.0)]),
        ([["b"], ["a"], ["c"]], {}, [("b", 1 / 61), ("a", 1 / 61), ("c", 1 / 61)]),
        ([["a", "a", "b"]], {}, [("a", 1 / 61), ("b", 1 / 63)]),
        (["xay", "bcy"], {}, [("y", 2 / 63), ("x", 1 / 61), ("b", 1 / 61), ("a", 1 / 62), ("c", 1 / 62)]),
        ([], {}, []),
        ([[], []], {}, []),
    ],
)  # fmt: skip
def test_rrf_by_hand(rankings, options, expected):
    """Ranks count from 1, an absent id adds nothing, ties keep their first appearance (case B88)."""
    assert rrf(*map(list, rankings), **options) == expected


@given(st.lists(st.lists(few_ids, max_size=8), max_size=5), st.randoms())
def test_rrf_does_not_depend_on_the_order_of_the_rankings(lists, random):
    """The same rankings in another order give every id the very same score."""
    shuffled = random.sample(lists, len(lists))
    assert dict(rrf(*lists)) == dict(rrf(*shuffled))
    assert {id_ for ranking in lists for id_ in ranking} == {id_ for id_, _ in rrf(*lists)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rrf(["a"], k=0), "k damps ranks and is > 0, not 0"),
        (lambda: rrf(["a"], k=-1), "> 0, not -1"),
        (lambda: rrf(["a"], k=math.nan), "k is nan, not a finite number"),
        (lambda: rrf(["a"], k="60"), "k is a number, not '60'"),
        (lambda: rrf(["a"], k=True), "k is a number, not True"),
        (lambda: rrf(["a"], ["b"], weights=[1]), "1 weights for 2 rankings"),
        (lambda: rrf(["a"], weights=[1, 2]), "2 weights for 1 rankings"),
        (lambda: rrf(["a"], ["b"], weights=[2, -1]), r"weights are >= 0.*-1\.0"),
        (lambda: rrf(["a"], ["b"], weights=[0, 0]), "not all 0"),
        (lambda: rrf(["a"], ["b"], weights=[1, math.nan]), r"weights\[1\] is nan"),
        (lambda: rrf(["a"], ["b"], weights=[1.7e308, 1.7e308], k=0.5), "finite"),
        (lambda: rrf(["a"], weights=[5e-324]), "not all 0"),
        (lambda: rrf(["a"], weights=[None]), r"weights\[0\] is a number, not None"),
        (lambda: rrf("abc"), "not the str 'abc'"),
    ],
)
def test_what_rrf_refuses(call, message):
    """Damping and weights that give no order are refused by name, and so is a str in place of a ranking."""
    with pytest.raises(InvalidInput, match=message):
        call()


# --- what a fusion is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("rrf", Rrf(60, None)),
        ("linear", Linear(0.5)),
        ("append", Append(10)),
        (Rrf(k=10), Rrf(k=10)),
        (by_sum, by_sum),
    ],
)
def test_names_instances_and_functions_are_fusions(given_, expected):
    """A name stands for its defaults; an instance and a function for themselves."""
    assert as_fusion(given_) == expected


async def _async_fusion(vector, text):
    return []


class _AsyncCall:
    async def __call__(self, vector, text):
        return []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("RRF", 'no fusion \'RRF\'; give "rrf", "linear", "append", Rrf'),
        ("", "no fusion ''; give"),
        (None, "no fusion None; give"),
        (0.5, "no fusion 0.5; give"),
        ({"alpha": 0.5}, "no fusion .*; give"),
        (["rrf"], "no fusion .*; give"),
        (Rrf, r"fusion=Rrf is a class; give an instance: Rrf\(\)"),
        (Linear, r"give an instance: Linear\(\)"),
        (Append, r"give an instance: Append\(\)"),
        (dict, 'fusion=dict is a class; give "rrf"'),
        (_async_fusion, "'_async_fusion' is async"),
        (functools.partial(_async_fusion), "'partial' is async"),
        (_AsyncCall(), "'_AsyncCall' is async"),
    ],
)
def test_what_is_no_fusion(value, message):
    """Anything else is refused with the choices; a class and an async function with what to give instead."""
    with pytest.raises(InvalidInput, match=message):
        as_fusion(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rrf(k=0), "k damps ranks"),
        (lambda: Rrf(k=math.inf), "k is inf"),
        (lambda: Rrf(k=10**400), "k is inf"),
        (lambda: Rrf(weights=(1, 2)), "weights name both channels.*not"),
        (lambda: Rrf(weights={"vector": 1}), "weights name both channels"),
        (lambda: Rrf(weights={}), "weights name both channels"),
        (lambda: Rrf(weights={"vector": 1, "text": 1, "image": 1}), "weights name both channels"),
        (lambda: Rrf(weights={"vector": 2, "text": -1}), "weights are >= 0"),
        (lambda: Rrf(weights={"vector": 0, "text": 0}), "not all 0"),
        (lambda: Rrf(weights={"vector": 1, "text": math.nan}), r"weights\['text'\] is nan"),
        (lambda: Rrf(weights={"vector": "1", "text": 1}), r"weights\['vector'\] is a number, not '1'"),
        (lambda: Linear(alpha=1.01), "alpha is the weight of the vector channel, 0 to 1, not 1.01"),
        (lambda: Linear(alpha=-0.01), "0 to 1"),
        (lambda: Linear(alpha=math.nan), "alpha is nan"),
        (lambda: Linear(alpha=None), "alpha is a number, not None"),
        (lambda: Append(extra=-1), "extra is how many text hits to append, an int >= 0, not -1"),
        (lambda: Append(extra=1.0), "not 1.0"),
        (lambda: Append(extra=True), "not True"),
    ],
)
def test_parameters_that_cannot_be(make, message):
    """A parameter out of its range is refused where it is given, and named."""
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize("kind", [Rrf, Linear, Append])
@pytest.mark.parametrize("parameter", ["k", "weights", "alpha", "extra"])
def test_a_parameter_of_another_fusion_is_refused(kind, parameter):
    """A fusion takes its own parameters only, so none is silently ignored (case B91)."""
    if parameter in kind.__dataclass_fields__:
        return
    with pytest.raises(TypeError, match=parameter):
        kind(**{parameter: 1})


@pytest.mark.parametrize("fusion", [Rrf(), Rrf(10, {"vector": 1, "text": 0.5}), Linear(0.3), Append(3)])
def test_fusions_are_values(fusion):
    """They compare, hash, copy and pickle, and a caller's mapping may change afterwards."""
    assert {fusion, copy.deepcopy(fusion), pickle.loads(pickle.dumps(fusion))} == {fusion}
    mine = {"text": 2.0, "vector": 1.0}
    held = Rrf(weights=mine)
    mine["text"] = -1.0
    assert held == Rrf(weights={"vector": 1, "text": 2})


# --- fuse ------------------------------------------------------------------------------------------


def test_rrf_of_two_channels():
    """Case B88: what both channels found comes first; each hit carries ranks, raw scores and contributions."""
    fused = fuse(Rrf(), near("xay"), worded("bcy"), 10)
    assert ids_of(fused) == ["y", "x", "b", "a", "c"]
    assert fused[0] == Fused(
        "y", 1 / 63 + 1 / 63, 0.3, 7.0, {"vector": 3, "text": 3}, {"vector": 1 / 63, "text": 1 / 63}
    )
    assert fused[2] == Fused("b", 1 / 61, None, 9.0, {"text": 1}, {"text": 1 / 61})


@pytest.mark.parametrize(
    ("fusion", "vector", "text", "expected"),
    [
        (Rrf(), near("ab"), worded("ab"), {"a": 1 / 61 + 1 / 61, "b": 1 / 62 + 1 / 62}),
        (Rrf(), near("ab"), worded("ba"), {"a": 1 / 61 + 1 / 62, "b": 1 / 61 + 1 / 62}),
        (Rrf(weights={"vector": 1, "text": 3}), near("ab"), worded("b"), {"b": 1 / 62 + 3 / 61, "a": 1 / 61}),
        (Rrf(weights={"vector": 0, "text": 1}), near("ab"), worded("b"), {"b": 1 / 61, "a": 0.0}),
        (Rrf(weights={"vector": 0, "text": 1}), near("ab"), None, {"a": 1 / 61, "b": 1 / 62}),
        (Rrf(weights={"vector": 0.5, "text": 1}), near("a"), [], {"a": 0.5 / 61}),
        (Linear(0.25), [("a", 0.1), ("b", 0.2), ("c", 0.5)], [("c", 8.0), ("b", 6.0), ("d", 4.0)],
         {"c": 0.75, "b": 0.25 * 0.75 + 0.75 * 0.5, "a": 0.25, "d": 0.0}),
        (Linear(0.25), [("a", -1.2e-7)], [("a", 3.0)], {"a": 1.0}),
        (Linear(0.25), [("a", -1.2e-7), ("b", 1.0)], [], {"a": 0.25, "b": 0.0}),
        (Linear(0.25), [("a", 0.2), ("b", 0.2)], [("c", 1.0)], {"c": 0.75, "a": 0.25, "b": 0.25}),
        (Linear(0.25), [("a", -0.0), ("b", 0.0)], None, {"a": 1.0, "b": 1.0}),
        (Linear(0.25), None, worded("abc"), {"a": 1.0, "b": 0.5, "c": 0.0}),
        (Linear(1.0), None, worded("ab"), {"a": 1.0, "b": 0.0}),
        (Linear(1.0), None, [("a", 1e308), ("b", 0.0), ("c", -1e308)], {"a": 1.0, "b": 0.5, "c": 0.0}),
        (Linear(1.0), [("a", -5.0), ("b", -3.0), ("c", -4.0)], [], {"a": 1.0, "c": 0.5, "b": 0.0}),
        (Append(1), near("ab"), worded("bcd"), {"a": 1.0, "b": 1 / 2, "c": 1 / 3}),
        (Append(0), near("ab"), worded("c"), {"a": 1.0, "b": 1 / 2}),
        (Append(1), [], worded("ab"), {"a": 1.0}),
        (Append(0), None, worded("ab"), {"a": 1.0, "b": 1 / 2}),
        (by_sum, near("ab"), worded("b"), {"b": 8.8, "a": -0.1}),
    ],
)  # fmt: skip
def test_scores_by_hand(fusion, vector, text, expected):
    """Each fusion's arithmetic; a channel alone counts whole (None), one that found nothing keeps its weight ([])."""
    fused = fuse(fusion, vector, text, 10)
    assert {each.id: each.score for each in fused} == pytest.approx(expected, abs=1e-12)
    assert sorted(expected, key=lambda id_: (-expected[id_], id_)) == ids_of(fused)


def test_ties():
    """Fused score down, then the nearer (those with a distance first), the higher text score, the smaller id."""

    def level(vector, text):
        return [(id_, 1.0) for id_ in dict.fromkeys([id_ for id_, _ in vector] + [id_ for id_, _ in text])]

    vector = [("b", 0.2), ("c", 0.2), ("a", 0.3)]
    text = [("e", 5.0), ("c", 4.0), ("d", 2.0), ("f", 2.0)]
    assert ids_of(fuse(level, vector, text, 10)) == ["c", "b", "a", "e", "d", "f"]


def test_append_gives_up_to_k_and_extra():
    """The k nearest keep their order, then the first extra text hits that are not among them, in text order."""
    fused = fuse(Append(2), near("abcd"), worded("bdcef"), 3)
    assert ids_of(fused) == ["a", "b", "c", "d", "e"]
    assert [list(each.contributions) for each in fused] == [["vector"]] * 3 + [["text"]] * 2
    assert fused[3] == Fused("d", 1 / 4, 0.4, 8.0, {"vector": 4, "text": 2}, {"text": 1 / 4})
    assert ids_of(fuse(Append(2), None, worded("abc"), 2)) == ["a", "b"]


def test_a_repeated_id_counts_once():
    """Of an id that a ranking repeats the first place and score count."""
    fused = fuse(Rrf(), [("a", 0.1), ("a", 0.2), ("b", 0.3)], [("b", 2.0), ("b", 1.0)], 5)
    assert [(each.id, each.vector_distance, each.text_score, each.ranks) for each in fused] == [
        ("b", 0.3, 2.0, {"vector": 3, "text": 1}),
        ("a", 0.1, None, {"vector": 1}),
    ]


@given(fusions, st.none() | vector_rankings, st.none() | text_rankings, st.integers(0, 15))
def test_what_every_fusion_keeps(fusion, vector, text, k):
    """No id is invented, doubled or changed; scores are the exact sum of contributions, and order is (score, ties)."""
    fused = fuse(fusion, vector, text, k)
    distances, scores = dict(vector or ()), dict(text or ())
    limit = k + fusion.extra if isinstance(fusion, Append) and vector is not None else k
    assert len(fused) <= limit
    assert len(set(ids_of(fused))) == len(fused)
    for each in fused:
        assert each.id in distances or each.id in scores
        assert each.vector_distance == distances.get(each.id)
        assert each.text_score == scores.get(each.id)
        assert set(each.ranks) == {name for name, ids in (("vector", distances), ("text", scores)) if each.id in ids}
        assert list(each.ranks) == sorted(each.ranks, reverse=True)
        for channel, ranking in (("vector", vector), ("text", text)):
            assert channel not in each.ranks or ranking[each.ranks[channel] - 1][0] == each.id
        assert sum(each.contributions.values()) == math.fsum(each.contributions.values()) == each.score
    keys = [(-each.score, distances.get(each.id, math.inf), -scores.get(each.id, -math.inf), each.id) for each in fused]
    assert keys == sorted(keys)


@given(fusions, vector_rankings, text_rankings, st.integers(0, 15))
def test_k_only_cuts(fusion, vector, text, k):
    """The k best are the first k of all; nothing but append's cut and k loses an id."""
    everything = fuse(fusion, vector, text, 1000)
    if isinstance(fusion, Append):
        assert (
            ids_of(fuse(fusion, vector, text, k))[:k]
            == ids_of(everything)[: min(k, len(vector))]
            + [id_ for id_, _ in text if id_ not in dict(vector[:k])][: max(0, min(k - len(vector), fusion.extra))]
        )
        return
    assert fuse(fusion, vector, text, k) == everything[:k]
    assert set(ids_of(everything)) == dict(vector).keys() | dict(text).keys()


@given(scoring_fusions | st.builds(Append), st.none() | vector_rankings, st.none() | text_rankings)
def test_no_score_exceeds_the_greatest(fusion, vector, text):
    """Score over greatest is within 0..1, and 1 for what every channel puts first."""
    ran = [name for name, ranking in (("vector", vector), ("text", text)) if ranking is not None]
    if not ran:
        return
    most = greatest(fusion, ran)
    assert all(0 <= each.score / most <= 1 for each in fuse(fusion, vector, text, 20))
    first = fuse(
        fusion,
        None if vector is None else [("first", -2000.0), *vector],
        None if text is None else [("first", 2000.0), *text],
        20,
    )
    assert {each.id: each.score for each in first}["first"] == most


def test_the_greatest_of_a_function_is_unknown():
    """Only a function's author knows how high its scores go."""
    assert greatest(by_sum, ["vector", "text"]) is None
    assert greatest(Rrf(), ["vector"]) == 1 / 61
    assert greatest(Rrf(weights={"vector": 0.0, "text": 2.0}), ["vector"]) == 1 / 61


# --- functions -------------------------------------------------------------------------------------


def test_what_a_function_is_handed():
    """Two fresh lists, best first and without repeats; [] for a channel that did not run."""
    seen = []

    def greedy(vector, text):
        seen.append((list(vector), list(text)))
        vector.clear()
        return [("a", 1)]

    ranking = [("a", 0.1), ("b", 0.2), ("a", 0.3)]
    (only,) = fuse(greedy, ranking, None, 10)
    assert seen == [([("a", 0.1), ("b", 0.2)], [])]
    assert only == Fused("a", 1.0, 0.1, None, {"vector": 1}, {"fusion": 1.0})
    assert len(ranking) == 3


@pytest.mark.parametrize(
    "result",
    [
        [("b", 1.0), ("a", 2.0)],
        {"b": 1, "a": 2}.items(),
        zip(["b", "a"], np.float32([1, 2]), strict=True),
        iter([("a", np.array(2.0)), ("b", np.float16(1))]),
        rrf(["a", "b"]),
    ],
    ids=["list", "items", "zip", "iterator", "rrf"],
)
def test_answers_that_are_read(result):
    """(id, score) pairs of any iterable in any order; the score decides, as a plain float."""
    fused = fuse(lambda vector, text: result, near("ab"), worded("c"), 10)
    assert ids_of(fused) == ["a", "b"]
    assert {type(each.score) for each in fused} == {float}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([("x", 1.0)], "returned 'x', which is in neither ranking"),
        ([("a", 1.0), ("b", 1.0), ("a", 0.5)], "returned 'a' twice"),
        ([("a", math.nan)], "score of 'a' is nan, not a finite number"),
        ([("a", -math.inf)], "score of 'a' is -inf"),
        ([("a", 10**400)], "score of 'a' is inf"),
        ([("a", None)], "score of 'a' is a number, not None"),
        ([("a", True)], "score of 'a' is a number, not True"),
        ([("a", "1")], "score of 'a' is a number, not '1'"),
        (["a", "b"], "returned 'a' at position 0, not"),
        ([("a", 1.0), ("b", 1.0, 2.0)], r"returned \('b', 1.0, 2.0\) at position 1"),
        ([(1.0, "a")], "at position 0, not"),
        ([["a", 1.0]], "at position 0, not"),
        ({"a": 1.0}, "returned dict; it must return"),
        ("ab", "returned str"),
        (None, "returned NoneType"),
        (1.0, "returned float"),
    ],
)
def test_answers_that_are_refused(result, message):
    """Invented ids, repeats, scores that are no finite numbers and other shapes are errors that name the function."""

    def mine(vector, text):
        return result

    with pytest.raises(InvalidInput, match=f"the fusion 'mine'.*{message}"):
        fuse(mine, near("ab"), worded("bc"), 1)


def test_errors_of_a_function_pass_through():
    """What the function raises is the caller's to see as it is."""
    with pytest.raises(ZeroDivisionError):
        fuse(lambda vector, text: 1 / 0, near("a"), [], 1)


# --- mmr -------------------------------------------------------------------------------------------


def mmr_slowly(relevance, vectors, weight):
    """As the paper says it, one number at a time: the first position, and the marginal value of any other."""
    low, high = min(relevance), max(relevance)
    scaled = [(value - low) / (high - low) if high > low else 1.0 for value in relevance]

    def cosine(a, b):
        lengths = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
        return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths and math.isfinite(lengths) else 0.0

    taken = [max(range(len(relevance)), key=lambda at: (relevance[at], -at))]

    def marginal(at):
        return weight * scaled[at] - (1 - weight) * max(cosine(vectors[at], vectors[other]) for other in taken)

    return taken, marginal


@given(st.data(), st.integers(1, 10), st.integers(1, 4), st.floats(0, 1))
def test_mmr_agrees_with_the_slow_one(data, n, dims, weight):
    """Each step takes a candidate whose marginal value is the greatest there is."""
    numbers = st.integers(-4, 4).map(float) | st.just(math.nan)
    vectors = data.draw(st.lists(st.lists(numbers, min_size=dims, max_size=dims), min_size=n, max_size=n))
    relevance = data.draw(st.lists(st.floats(-10, 10), min_size=n, max_size=n))
    order = mmr(relevance, np.float32(vectors), n, weight)
    assert sorted(order) == list(range(n))
    taken, marginal = mmr_slowly(relevance, vectors, weight)
    assert order[:1] == taken
    for at in order[1:]:
        assert marginal(at) >= max(marginal(other) for other in range(n) if other not in taken) - 1e-9
        taken.append(at)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12), st.integers(0, 15))
def test_lambda_one_is_the_order_of_relevance(relevance, k):
    """With lambda 1 vectors do not matter, ties go by position, and k cuts."""
    vectors = np.random.default_rng(0).standard_normal((len(relevance), 3)).astype(np.float32)
    # Values apart by less than a float64 can hold of 0..1 are one value.
    low, high = min(relevance), max(relevance)
    scaled = [(value / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 1.0 for value in relevance]
    found = mmr(relevance, vectors, k, 1.0)
    assert [round(scaled[at], 12) for at in found] == sorted((round(each, 12) for each in scaled), reverse=True)[:k]


def test_lambda_zero_is_pure_unlikeness():
    """With lambda 0 the most relevant is still the first; then comes what is least like all taken."""
    vectors = np.float32([[1, 0], [0.9, 0.1], [0, 1], [-1, 0]])
    assert mmr([0.9, 0.8, 0.1, 0.0], vectors, 4, 0.0) == [0, 3, 2, 1]
    assert mmr([0.1, 0.8, 0.2, 0.9], vectors, 2, 0.0) == [3, 0]


def test_duplicates_wait():
    """A copy of what is taken already comes after something less relevant but new, whatever the vectors' lengths."""
    vectors = np.float32([[1, 2, 3], [10, 20, 30], [3, 0, -1]])
    assert mmr([1.0, 0.99, 0.5], vectors, 3, 0.5) == [0, 2, 1]
    assert mmr([1.0, 0.99, 0.5], vectors, 3, 1.0) == [0, 1, 2]


@pytest.mark.parametrize("dims", [33, 127, 383, 384, 385])
def test_equal_candidates_keep_their_order(dims):
    """Of equally relevant copies the first comes first, wherever they stand in the matrix."""
    row = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    for count in (3, 7, 37):
        assert mmr([0.5] * count, np.tile(row, (count, 1)), count, 0.3) == list(range(count))


def test_rows_without_a_direction_resemble_nothing():
    """NaN, infinite and zero rows have likeness 0: after a like vector's, before an unlike one's value."""
    vectors = np.float32([[1, 0], [1, 0.1], [math.nan, 1], [0, 0], [math.inf, 0], [-1, 0]])
    assert mmr([1.0] * 6, vectors, 6, 0.5) == [0, 5, 2, 3, 4, 1]


def test_mmr_of_extreme_vectors():
    """The shortest and the longest float32 vectors have directions like any other."""
    vectors = np.float32([[1e-45, 0], [3e38, 3e38], [0, 1e-45]])
    assert mmr([1.0, 0.5, 0.5], vectors, 3, 0.0) == [0, 2, 1]


@pytest.mark.parametrize(
    ("relevance", "vectors", "lambda_", "message"),
    [
        ([1.0], np.zeros((1, 2)), 1.1, "lambda is the weight of relevance, 0 to 1, not 1.1"),
        ([1.0], np.zeros((1, 2)), -0.1, "0 to 1"),
        ([1.0], np.zeros((1, 2)), math.nan, "lambda is nan"),
        ([1.0], np.zeros((1, 2)), None, "lambda is a number, not None"),
        ([1.0, math.nan], np.zeros((2, 2)), 0.5, "relevance is not finite at position 1"),
        ([1.0], np.zeros((2, 2)), 0.5, r"1 candidates need vectors of shape \(n, d\), not \(2, 2\)"),
        ([1.0], np.zeros(2), 0.5, r"not \(2,\)"),
    ],
)
def test_what_mmr_refuses(relevance, vectors, lambda_, message):
    """Another lambda, relevance that is not finite and shapes that differ are named."""
    with pytest.raises(InvalidInput, match=message):
        mmr(relevance, vectors, 1, lambda_)


def test_mmr_of_nothing():
    """No candidates, or none wanted, is an empty answer."""
    assert mmr([], np.zeros((0, 3), np.float32), 5, 0.5) == []
    assert mmr([1.0], np.ones((1, 3), np.float32), 0, 0.5) == []
