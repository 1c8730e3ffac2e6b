"""Measures by hand: what trec_eval's formulas give, and what is counted where there is nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.evaluation.golden import Question
from retriever.evaluation.measures import better, collapsed, intervals, is_lower_better, measured, names

pytest.importorskip("ir_measures")
pytest.importorskip("scipy")


def values(question, ids, *, ks=(1, 3, 5), window=20, failed=()):
    """Measure -> value of one query."""
    found = measured([question], {question.id: ids}, ks=ks, window=window, failed=failed)
    return {name: each[question.id] for name, each in found.items()}


def log_gain(*gains):
    """DCG of gains in their order."""
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))


GRADED = Question("q", {"a": 3, "b": 1, "c": 0}, authority="a", noise=("n", "m"))


@pytest.mark.parametrize(
    ("ids", "measure", "expected"),
    [
        (["a", "b"], "nDCG@3", 1.0),
        (["b", "a"], "nDCG@3", log_gain(1, 3) / log_gain(3, 1)),
        (["x", "a", "y", "b"], "nDCG@3", log_gain(0, 3) / log_gain(3, 1)),
        (["a"], "nDCG@3", log_gain(3) / log_gain(3, 1)),  # the ideal is of the judgements (case B111)
        (["a", "x", "y"], "P@3", 1 / 3),
        (["a"], "P@3", 1 / 3),  # of three places, also where one came back
        (["a", "x", "y"], "R@3", 1 / 2),
        (["c", "x", "y"], "R@3", 0.0),  # judged, and no answer
        (["x", "y", "z", "b"], "Hit@3", 0.0),
        (["x", "y", "z", "b"], "Hit@5", 1.0),
        (["x", "y", "z", "b"], "MRR", 1 / 4),
        (["x", "b", "a"], "authority rank", 3.0),
        (["x", "b", "a"], "authority found", 1.0),
        (["x"] + [f"y{at}" for at in range(19)] + ["a"], "authority rank", 21.0),  # beyond the window of 20
        (["x"] + [f"y{at}" for at in range(19)] + ["a"], "authority found", 0.0),
        (["x"] + [f"y{at}" for at in range(18)] + ["a"], "authority rank", 20.0),
        (["n", "a", "m"], "noise@1", 1.0),
        (["n", "a", "m"], "noise@3", 2 / 3),
        (["n"], "noise@5", 1 / 5),
    ],
)
def test_a_measure_is_what_the_formula_gives(ids, measure, expected):
    """Every measure has the value that its formula gives by hand."""
    assert values(GRADED, ids)[measure] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("ids", [["a", "b"], []])
def test_a_failed_query_counts_the_worst(ids):
    """Failed is 0 where more is better, and the worst where less is (D2, case B111)."""
    found = values(GRADED, ids, failed={GRADED.id})
    assert {name: value for name, value in found.items() if not is_lower_better(name)} == dict.fromkeys(
        (name for name in names((1, 3, 5)) if not is_lower_better(name)), 0.0
    )
    assert found["authority rank"] == 21
    assert [found[f"noise@{k}"] for k in (1, 3, 5)] == [1.0, 1.0, 1.0]


def test_a_query_that_found_nothing_has_a_value():
    """No answer is 0 for each measure of what was found, never NaN and never left out (case B112)."""
    found = measured([GRADED], {}, ks=(3,), window=5)
    assert {name: each[GRADED.id] for name, each in found.items()} == {
        "nDCG@3": 0.0,
        "R@3": 0.0,
        "P@3": 0.0,
        "Hit@3": 0.0,
        "MRR": 0.0,
        "authority found": 0.0,
        "authority rank": 6.0,
        "noise@3": 0.0,
    }


@pytest.mark.parametrize("ids", [["a9", "b1", "z0"], ["z0", "b1", "a9"], ["b1", "z0", "a9"]])
def test_the_place_decides_and_no_name(ids):
    """Which document comes first is where it stands: ids in any order of the alphabet keep their places (case B112)."""
    for place, id in enumerate(ids, 1):
        assert values(Question("q", {id: 1}), ids)["MRR"] == pytest.approx(1 / place)


def test_measures_without_a_judgement_are_of_those_that_have_one():
    """Authority and noise are counted over the queries that name them, and are absent if none does."""
    plain = Question("p", {"a": 1})
    found = measured([plain, GRADED], {plain.id: ["a"], GRADED.id: ["a"]}, ks=(1,), window=5)
    assert set(found["nDCG@1"]) == {plain.id, GRADED.id}
    assert set(found["authority rank"]) == set(found["noise@1"]) == {GRADED.id}
    assert not {"authority rank", "noise@1"} & set(measured([plain], {}, ks=(1,), window=5))


def test_chunks_of_a_document_are_one_by_first_appearance():
    """A repeated id counts at its first place, and what follows moves up."""
    assert collapsed(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]
    repeated = values(Question("q", {"a": 1, "c": 1}), ["b", "b", "a", "a", "c"])
    assert (repeated["P@3"], repeated["MRR"]) == (pytest.approx(2 / 3), 0.5)


@given(st.permutations(["a", "b", "x", "y", "n"]))
def test_measures_stay_within_their_bounds(ids):
    """Whatever the order: shares lie within 0 and 1, ranks within the list."""
    for name, value in values(GRADED, ids).items():
        assert (1 <= value <= 5) if name == "authority rank" else (0 <= value <= 1)


@pytest.mark.parametrize(("measure", "moved", "is_better"), [
    ("nDCG@3", 0.1, True), ("nDCG@3", -0.1, False), ("nDCG@3", 0.0, False),
    ("noise@3", -0.1, True), ("authority rank", -1.0, True), ("authority rank", 1.0, False),
])  # fmt: skip
def test_better_knows_the_direction(measure, moved, is_better):
    """More noise and a later authority are worse; more of anything else is better; no difference is neither."""
    assert better(measure, moved) is is_better


# --- intervals ------------------------------------------------------------------------------------


def test_an_interval_is_around_the_mean_and_narrows_with_the_queries():
    """The mean lies within, and four hundred queries tell more than ten."""
    few, many = intervals([[0.0, 1.0] * 5, [0.0, 1.0] * 200])
    for each in (few, many):
        assert each.mean == 0.5
        assert each.low < 0.5 < each.high
    assert (few.count, many.count) == (10, 400)
    assert many.high - many.low < (few.high - few.low) / 3


def test_the_interval_is_the_usual_one():
    """Of a hundred alternating values: 0.5 +- 1.96 * 0.05."""
    (interval,) = intervals([[0.0, 1.0] * 50])
    assert interval.low == pytest.approx(0.5 - 0.098, abs=0.015)
    assert interval.high == pytest.approx(0.5 + 0.098, abs=0.015)


def test_equal_values_have_no_width_and_one_value_no_interval():
    """Nothing is NaN: all alike is an interval of one point, one query tells nothing, none is 0."""
    alike, single, none = intervals([[0.25] * 7, [0.25], []])
    assert (alike.mean, alike.low, alike.high) == (0.25, 0.25, 0.25)
    assert (single.mean, single.low, single.high, single.count) == (0.25, None, None, 1)
    assert (none.mean, none.low, none.high, none.count) == (0.0, None, None, 0)


def test_two_arms_are_resampled_alike():
    """A paired difference that is the same for every query has no width, however the queries differ."""
    before = [at / 40 for at in range(40)]
    after = [value + 0.25 for value in before]
    (moved,) = intervals([[b - a for a, b in zip(before, after, strict=True)]])
    assert moved.low == pytest.approx(moved.high) == pytest.approx(0.25)
    low, high = intervals([before, after])
    assert high.low - low.low == pytest.approx(0.25)
    assert high.high - low.high == pytest.approx(0.25)


def test_the_same_values_give_the_same_interval():
    """A report of the same answers is the same report; what is resampled beside it changes nothing."""
    sample = [0.1, 0.9, 0.4, 0.6, 0.0]
    assert intervals([sample])[0] == intervals([[1.0, 0.0], sample, [0.5] * 5])[1]


def test_any_text_is_an_id():
    """Ids that C takes for one, or for none at all, are told apart as Python does (trec_eval is C)."""
    ids = ["a\0c", "a\0b", "\ud800"]
    asked = [Question("q", {"a": 1}, id=id) for id in ids]
    found = measured(asked, {"a\0c": ["a\0b", "a"], "a\0b": ["\ud800", "a\0", "a"]}, ks=(1,), window=5)
    assert found["MRR"] == {"a\0c": 1 / 2, "a\0b": pytest.approx(1 / 3), "\ud800": 0.0}
