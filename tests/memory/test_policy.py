"""What counts and what may be forgotten: each rule of the two axes, for any chunk and any policy."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import dataclass, fields, replace
from enum import Enum
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retriever.errors import InvalidInput
from retriever.memory.policy import (
    DAY_S,
    HALF_LIVES,
    KNOWLEDGE_TYPES,
    Policy,
    age_s,
    judge,
    logistic,
    memory_score,
    passes,
    relevance_of_distance,
    relevance_of_rerank,
    staged,
)

NOW = 1_785_254_389.0
AGING = tuple(kind for kind, days in HALF_LIVES.items() if days is not None)


@dataclass(frozen=True)
class Rated:
    """What of a chunk is judged."""

    importance: float | None = None
    knowledge_type: str | None = None
    access_count: int = 0
    created_at: float = NOW
    source_date: float | None = None


def aged(days, **given):
    """A chunk of that age."""
    return Rated(source_date=NOW - days * DAY_S, **given)


shares = st.floats(0, 1)
boosts = st.floats(0, 100)
kinds = st.sampled_from([*KNOWLEDGE_TYPES, None, "no such kind", ""])
times = st.floats(-62_135_596_800, 253_402_300_799)
counts = st.integers(0, 2**63)
half_lives = st.dictionaries(st.sampled_from(KNOWLEDGE_TYPES), st.none() | st.floats(0, 1e308, exclude_min=True))
policies = st.builds(
    Policy,
    time_weight=shares,
    freq_weight=boosts,
    importance_threshold=shares,
    half_lives=half_lives,
    forget_time_weight=shares,
    score_threshold=shares,
)
rated = st.builds(Rated, st.none() | shares, kinds, counts, times, st.none() | times)


# --- importance, the first stage -------------------------------------------------------------------


@given(rated, policies)
def test_importance_cuts_below_the_threshold_alone(chunk, policy):
    """Stage 1 (B5): lower is cut, equal passes, unrated passes, whatever its age, kind and use."""
    expected = chunk.importance is None or chunk.importance >= policy.importance_threshold
    assert passes(chunk, policy) is expected
    assert bool(staged([(chunk, 1.0)], policy, NOW)) is expected


@given(shares)
def test_an_importance_equal_to_the_threshold_passes(threshold):
    """Equal passes (B5), exactly, and the next lower number does not."""
    policy = Policy(importance_threshold=threshold)
    assert passes(Rated(threshold), policy)
    assert judge(Rated(threshold), policy, NOW).reason is None
    assume(threshold > 0)
    assert not passes(Rated(math.nextafter(threshold, 0)), policy)


@given(policies, counts, times)
def test_an_old_principle_without_a_rating_is_neither_cut_nor_discounted(policy, uses, created):
    """Importance and age are two axes (B5): a principle that nobody rated keeps all of its relevance."""
    policy = policy.with_weights(half_lives={})
    chunk = Rated(None, "principle", uses, created)
    [(_, score)] = staged([(chunk, 0.5)], policy, NOW)
    assert score >= 0.5


# --- age, the second -------------------------------------------------------------------------------


def test_half_lives_are_the_documented_ones():
    """Days (B6): principle none, paper 180, news 30, experiment 90, unset none."""
    policy = Policy()
    days = {kind: policy.half_life_s(kind) / 86_400 for kind in (*KNOWLEDGE_TYPES, None)}
    assert days == {"principle": math.inf, "paper": 180, "news": 30, "experiment": 90, None: math.inf}


def test_half_lives_are_overridden_by_kind():
    """A store's half-lives replace those they name (B6), None for never, and leave the others."""
    policy = Policy(half_lives={"news": 7, "paper": None, "principle": 1000})
    days = {kind: policy.half_life_s(kind) / 86_400 for kind in KNOWLEDGE_TYPES}
    assert days == {"principle": 1000, "paper": math.inf, "news": 7, "experiment": 90}


def test_a_policy_keeps_its_own_half_lives():
    """A mapping that the caller changes afterwards does not change a policy that was checked."""
    given = {"news": 7.0}
    policy = Policy(half_lives=given)
    given["news"] = -1.0
    assert policy.half_life_s("news") == 7 * DAY_S


@pytest.mark.parametrize("kind", AGING)
@given(relevance=shares)
def test_half_remains_at_one_half_life(kind, relevance):
    """With a time weight of 1, one half-life halves (B9), two quarter."""
    policy = Policy(time_weight=1, freq_weight=0)
    assert memory_score(relevance, aged(HALF_LIVES[kind], knowledge_type=kind), policy, NOW) == relevance / 2
    assert memory_score(relevance, aged(2 * HALF_LIVES[kind], knowledge_type=kind), policy, NOW) == relevance / 4


def test_the_default_weights_discount_half_as_much():
    """Defaults (B9): wt 0.5, wf 0.1, threshold 0.3; news of 30 days keeps three quarters; 100 uses add a tenth."""
    policy = Policy()
    assert (policy.time_weight, policy.freq_weight, policy.importance_threshold) == (0.5, 0.1, 0.3)
    assert memory_score(1.0, aged(30, knowledge_type="news"), policy, NOW) == 0.75
    assert memory_score(1.0, Rated(access_count=100), policy, NOW) == 1.1
    assert memory_score(0.8, aged(30, knowledge_type="news", access_count=9), policy, NOW) == pytest.approx(
        0.8 * 0.75 * (1 + 0.1 * math.log(10) / math.log(101))
    )


@given(rated, policies, times)
def test_a_date_to_come_is_age_0(chunk, policy, now):
    """A future date makes nothing fresher than now (B8)."""
    since = chunk.created_at if chunk.source_date is None else chunk.source_date
    assert age_s(chunk, now) == max(0.0, now - since)
    future = Rated(chunk.importance, chunk.knowledge_type, chunk.access_count, now, now + 86_400)
    present = Rated(chunk.importance, chunk.knowledge_type, chunk.access_count, now)
    assert age_s(future, now) == 0
    assert memory_score(1.0, future, policy, now) == memory_score(1.0, present, policy, now)
    assert judge(future, policy, now) == judge(present, policy, now)


def test_age_counts_from_the_source_s_date_before_the_storing():
    """Age = now - source_date, or created_at where there is none (B8); a date of 0 is a date."""
    assert age_s(Rated(created_at=NOW - 5), NOW) == 5
    assert age_s(Rated(created_at=NOW - 5, source_date=NOW - 50), NOW) == 50
    assert age_s(Rated(created_at=NOW - 5, source_date=0.0), NOW) == NOW


@given(rated, policies, shares, times, times)
def test_older_never_counts_more(chunk, policy, relevance, one, other):
    """Both scores fall or stay as age grows (B9, B10)."""
    early, late = sorted((one, other))
    assert memory_score(relevance, chunk, policy, late) <= memory_score(relevance, chunk, policy, early)
    assert judge(chunk, policy, late).score <= judge(chunk, policy, early).score


@given(rated, policies, shares)
def test_age_reorders_and_never_hides(chunk, policy, relevance):
    """Search keeps a floor (B9): at least the share 1 - wt of relevance remains at any age (case B103)."""
    score = memory_score(relevance, chunk, policy, NOW)
    assert score >= relevance * (1 - policy.time_weight) * (1 - 1e-12)


# --- use, the third --------------------------------------------------------------------------------


@given(rated, policies, counts)
def test_use_lifts_within_its_weight_and_never_lowers(chunk, policy, more):
    """Both scores rise or stay with use, and the boost is at most wf (B9, B10)."""
    unused = Rated(chunk.importance, chunk.knowledge_type, 0, chunk.created_at, chunk.source_date)
    used = Rated(chunk.importance, chunk.knowledge_type, chunk.access_count + more, chunk.created_at, chunk.source_date)
    for score in (lambda each: memory_score(1.0, each, policy, NOW), lambda each: judge(each, policy, NOW).score):
        assert score(unused) <= score(chunk) <= score(used)
        assert score(used) <= score(unused) * (1 + policy.freq_weight) * (1 + 1e-12)


@given(boosts)
def test_a_hundred_uses_are_the_most(weight):
    """The boost is wf * ln(1 + n) / ln(101) up to 100 uses, and constant from there (B9)."""
    policy = Policy(freq_weight=weight)
    assert memory_score(1.0, Rated(access_count=10), policy, NOW) == pytest.approx(
        1 + weight * math.log(11) / math.log(101)
    )
    assert memory_score(1.0, Rated(access_count=100), policy, NOW) == 1 + weight
    assert memory_score(1.0, Rated(access_count=10**6), policy, NOW) == 1 + weight


def test_a_counter_below_0_is_no_use():
    """A counter that someone set to less than 0 counts as 0, and is no error."""
    assert memory_score(1.0, Rated(access_count=-5), Policy(), NOW) == 1.0


# --- the stages together ---------------------------------------------------------------------------

candidates = st.lists(st.tuples(rated, shares), max_size=8)


@given(candidates, policies, times)
def test_scores_are_numbers_from_0(pairs, policy, now):
    """Never NaN, never infinite, never negative (B9), for any date and any policy."""
    scores = [score for _, score in staged(pairs, policy, now)] + [
        judge(chunk, policy, now).score for chunk, _ in pairs
    ]
    assert all(math.isfinite(score) and score >= 0 for score in scores)


@given(candidates, policies)
def test_staged_sorts_and_is_stable(pairs, policy):
    """Best first; equal scores keep the order they came in (B9)."""
    pairs = [(replace(chunk), value) for chunk, value in pairs]  # so that each is another object
    places = {id(chunk): place for place, (chunk, _) in enumerate(pairs)}
    keys = [(-score, places[id(chunk)]) for chunk, score in staged(pairs, policy, NOW)]
    assert keys == sorted(keys)
    assert len(keys) == sum(passes(chunk, policy) for chunk, _ in pairs)


def test_equal_scores_keep_their_order():
    """A tie is decided by the place in the input, whatever the chunks are (B9)."""
    pairs = [(Rated(access_count=uses), 0.5) for uses in (100, 200, 150)]
    assert [chunk for chunk, _ in staged(pairs, Policy(), NOW)] == [chunk for chunk, _ in pairs]


@given(rated, st.lists(shares, max_size=20), times)
def test_what_is_alike_keeps_the_order_of_relevance(chunk, values, now):
    """Chunks of one kind, age, rating and use stay in the order of their relevance, under the default policy (B9)."""
    assume(passes(chunk, Policy()))
    pairs = [(replace(chunk), value) for value in sorted(values, reverse=True)]  # so that each is another object
    found = [id(each) for each, _ in staged(pairs, Policy(), now)]
    assert found == [id(each) for each, _ in pairs]


@given(candidates, policies)
def test_staged_leaves_its_input_as_it_is(pairs, policy):
    """The input is not changed (B9), and its chunks come back themselves."""
    before = copy.deepcopy(pairs)
    found = staged(pairs, policy, NOW)
    assert pairs == before
    assert {id(chunk) for chunk, _ in found} <= {id(chunk) for chunk, _ in pairs}


# --- forgetting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", AGING)
@given(
    threshold=st.floats(0, 1, exclude_min=True),
    weight=st.floats(0.001, 1),
    boost=boosts,
    uses=counts,
    days=st.none() | st.floats(0.001, 1e6),
)
def test_every_kind_that_ages_is_forgotten_some_day(kind, threshold, weight, boost, uses, days):
    """For every type with a half-life some age falls below any threshold, however much it was used (B10)."""
    policy = Policy(
        forget_time_weight=weight,
        freq_weight=boost,
        score_threshold=threshold,
        half_lives={} if days is None else {kind: days},
    )
    # 2 ** -1200 is less than any float; the boost makes up for 7 half-lives at most.
    old = 1200 / weight * policy.half_life_s(kind)
    chunk = Rated(1.0, kind, uses, NOW - old)
    found = judge(chunk, policy, NOW)
    assert found.score < threshold
    assert found.reason is not None


def test_news_is_forgotten_after_some_130_days():
    """At the default threshold of 0.05, unread news goes after 30 * log2(20) = 129.7 days (B10)."""
    assert judge(aged(129, knowledge_type="news"), Policy(), NOW).reason is None
    found = judge(aged(130, knowledge_type="news"), Policy(), NOW)
    assert found.score == pytest.approx(2 ** (-130 / 30))
    assert found.reason == "score 0.0496 is below 0.05"


@given(policies, counts, times, st.none() | times)
def test_a_principle_does_not_fade_but_can_be_cut(policy, uses, created, date):
    """A principle scores at least 1 at any age, so that only its importance lets it be forgotten (B11)."""
    policy = policy.with_weights(half_lives={})
    for kind in ("principle", None):
        kept = judge(Rated(None, kind, uses, created, date), policy, NOW)
        assert kept.score >= 1
        assert kept.reason is None
    strict = policy.with_weights(importance_threshold=0.5)
    found = judge(Rated(0.25, "principle", uses, created, date), strict, NOW)
    assert found.reason == "importance 0.25 is below 0.5"


@given(rated, policies)
def test_a_judgement_has_a_reason_exactly_when_the_chunk_goes(chunk, policy):
    """A chunk goes if stage 1 cuts it or its score is below the threshold (B33), and then the reason says so."""
    found = judge(chunk, policy, NOW)
    assert (found.reason is not None) is (not passes(chunk, policy) or found.score < policy.score_threshold)


def test_a_score_equal_to_the_threshold_stays():
    """Only what is below the threshold is forgotten (B33), so that a threshold of 1 keeps what does not age."""
    assert judge(aged(30, knowledge_type="news"), Policy(score_threshold=0.5), NOW).reason is None
    assert judge(Rated(), Policy(score_threshold=1), NOW).reason is None


def test_forgetting_has_a_time_weight_of_its_own():
    """The weight of search does not touch forgetting, whose own is 1.0 unless given (B10)."""
    news = aged(30, knowledge_type="news")
    assert judge(news, Policy(time_weight=0), NOW).score == 0.5
    assert judge(news, Policy(forget_time_weight=0.5), NOW).score == pytest.approx(2**-0.5)
    assert memory_score(1.0, news, Policy(forget_time_weight=0, freq_weight=0), NOW) == 0.75


# --- policies --------------------------------------------------------------------------------------

_SHARES = ("time_weight", "importance_threshold", "guaranteed_importance", "forget_time_weight", "score_threshold")


class Kind(str, Enum):  # noqa: UP042 - formats as Kind.NEWS, as a StrEnum does not
    NEWS = "news"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in _SHARES for value in (-0.01, 1.01, math.nan, math.inf, True, "0.5", None, 10**400)),
        *(("freq_weight", value) for value in (-0.01, math.nan, math.inf, -math.inf, False, "1", None, 10**400)),
        *(("half_lives", value) for value in (None, 30, [("news", 3)], {"New": 3}, {None: 3}, {"news": 0})),
        *(("half_lives", {"news": value}) for value in (-1, math.nan, math.inf, True, "30", 10**400)),
        *(("guaranteed", value) for value in (1, None, "yes")),
        *(("guaranteed_limit", value) for value in (-1, 1001, 5.0, True, None)),
    ],
)
def test_bad_numbers_are_refused(name, value):
    """A weight out of range, NaN, a bool or a word is InvalidInput that names it (B9, B10)."""
    with pytest.raises(InvalidInput, match=name.partition("_")[0]):
        Policy(**{name: value})


def test_with_weights_replaces_what_is_given():
    """None leaves a number as it is, 0 does not; the policy itself stays; what is replaced is checked."""
    policy = Policy(time_weight=0.25, half_lives={"news": 7})
    changed = policy.with_weights(time_weight=None, freq_weight=0, score_threshold=0.5)
    assert changed == Policy(time_weight=0.25, freq_weight=0, score_threshold=0.5, half_lives={"news": 7})
    assert policy == Policy(time_weight=0.25, half_lives={"news": 7})
    assert policy.with_weights() == policy
    with pytest.raises(InvalidInput, match="time_weight"):
        policy.with_weights(time_weight=2)


@pytest.mark.parametrize("half", [Fraction(1, 2), np.float32(0.5), np.float64(0.5)])
def test_numbers_of_other_types_become_floats(half):
    """numpy's numbers and fractions are numbers; what comes of them is a float that JSON takes and prints."""
    policy = Policy(half, half, half, {"news": half}, half, half, guaranteed_importance=half)
    numbers = [getattr(policy, each.name) for each in fields(policy) if each.name not in ("half_lives", "guaranteed")]
    assert {type(number) for number in numbers} == {float, int}
    score = memory_score(1.0, aged(1, knowledge_type="news"), policy, NOW)
    assert json.loads(json.dumps(score)) == 0.625
    assert judge(aged(99, knowledge_type="news"), policy, NOW).reason.endswith("is below 0.5")


def test_a_policy_is_a_value():
    """Equal policies are equal and hash alike, and go through pickle."""
    one, other = Policy(half_lives={"news": 7}), Policy(half_lives={Kind.NEWS: 7.0})
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != Policy()


# --- relevance -------------------------------------------------------------------------------------


@given(st.floats(0, 1e308), st.sampled_from(["COSINE", "L2", "IP"]))
def test_relevance_is_within_0_and_1(distance, metric):
    """Whatever the metric and the distance, relevance is 0..1 (B9)."""
    for each in (distance, -distance) if metric == "IP" else (distance, -1e-7):
        assert 0 <= relevance_of_distance(each, metric) <= 1


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.sampled_from(["COSINE", "L2", "IP"]))
def test_closer_is_at_least_as_relevant(one, other, metric):
    """Relevance rises or stays as distance falls, under every metric (B9)."""
    near, far = sorted((one, other))
    assert relevance_of_distance(near, metric) >= relevance_of_distance(far, metric)


@pytest.mark.parametrize(
    ("distance", "metric", "expected"),
    [
        (0.0, "COSINE", 1.0),
        (0.5, "COSINE", 0.75),
        (2.0, "COSINE", 0.0),
        (-1e-7, "COSINE", 1.0),
        (0.0, "L2", 1.0),
        (1.0, "L2", 0.5),
        (1.0, "IP", 0.5),
    ],
)
def test_relevance_of_known_distances(distance, metric, expected):
    """Cosine: 1 - distance / 2 (B9), also where rounding made it negative; L2 halves at 1; IP at right angles."""
    assert relevance_of_distance(distance, metric) == expected


@given(st.lists(st.floats(-1e308, 1e308), max_size=6))
def test_a_reranker_s_scores_become_relevance_in_the_same_order(scores):
    """Scores within 0..1 stay; else all become their logistic (B9): within 0..1 and in the same order."""
    found = relevance_of_rerank(iter(scores))
    assert all(0 <= each <= 1 for each in found)
    assert found == (scores if all(0 <= each <= 1 for each in scores) else [logistic(each) for each in scores])
    pairs = sorted(zip(scores, found, strict=True))
    assert [each for _, each in pairs] == sorted(found)
