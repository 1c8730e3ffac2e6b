"""How much a chunk of memory counts: by importance, by age and kind, by use. And what may be forgotten.

Rule: three stages, never one weighted sum. First importance cuts; then age discounts, by the half-life of the kind
of knowledge; then use adds a little. Importance and age are two axes: an old principle that nobody rated is neither
cut nor discounted. Pure: the clock is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from numbers import Real
from typing import Any, Literal, Protocol, TypeVar, get_args

from fields.errors import InvalidInput

__all__ = [
    "HALF_LIVES",
    "KNOWLEDGE_TYPES",
    "Judgement",
    "Policy",
    "judge",
    "memory_score",
    "relevance_of_distance",
    "staged",
]

KnowledgeType = Literal["principle", "paper", "news", "experiment"]
KNOWLEDGE_TYPES: tuple[str, ...] = get_args(KnowledgeType)
DAY_S = 86_400.0
# Days after which a chunk of that kind counts half; None: it does not age.
HALF_LIVES: Mapping[str, float | None] = {"principle": None, "paper": 180.0, "news": 30.0, "experiment": 90.0}
# Numbers of a policy that lie within 0 to 1.
_SHARES = ("time_weight", "importance_threshold", "guaranteed_importance", "forget_time_weight", "score_threshold")
_MOST_USES = math.log(101)  # a hundred uses count as much as any more


@dataclass(frozen=True, slots=True)
class Policy:
    """The weights of a store's judgement.

    time_weight: 0..1, how far age can push a chunk down; freq_weight: >= 0, how much use can lift it, at most by this
        share. importance_threshold: 0..1, chunks rated lower are cut; an equal rating passes, and so does none.
    half_lives: days per kind, None for never; kinds left out keep ``HALF_LIVES``.
    forget_time_weight: the same as time_weight in ``judge``, where age may go all the way down.
    score_threshold: 0..1, chunks whose score in ``judge`` is lower are forgotten; what does not age scores 1 or more.
    guaranteed: where a search is ordered anew (memory_rerank, a reranker) and neither tags nor a filter narrow it, the
        ``guaranteed_limit`` nearest chunks that are principles, or rated ``guaranteed_importance`` or more, are
        candidates however far they are; they still have to win their place.
    Raises InvalidInput for numbers out of range and unknown kinds.
    """

    time_weight: float = 0.5
    freq_weight: float = 0.1
    importance_threshold: float = 0.3
    half_lives: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    forget_time_weight: float = 1.0
    score_threshold: float = 0.05
    guaranteed: bool = True
    guaranteed_importance: float = 0.7
    guaranteed_limit: int = 50

    def __post_init__(self) -> None:
        for name in (*_SHARES, "freq_weight"):
            number = _number(getattr(self, name), name)
            if number < 0 or (number > 1 and name in _SHARES):
                raise InvalidInput(f"{name}: {number:g} is {'not within 0 to 1' if name in _SHARES else 'less than 0'}")
            object.__setattr__(self, name, number)
        if not isinstance(self.half_lives, Mapping):
            raise InvalidInput(f"half_lives: a mapping of kinds to days expected, not {self.half_lives!r}")
        half_lives: dict[str, float | None] = {}  # a copy: the caller's may change
        for kind, given in self.half_lives.items():
            if kind not in KNOWLEDGE_TYPES:
                raise InvalidInput(f"half_lives: unknown kind {kind!r}; known: {', '.join(KNOWLEDGE_TYPES)}")
            days = None if given is None else _number(given, f"half-life of {kind!r}")
            if days is not None and days <= 0:
                raise InvalidInput(f"half-life of {kind!r}: {days:g} days; a number > 0, or None for never")
            half_lives[kind] = days
        object.__setattr__(self, "half_lives", half_lives)
        if not isinstance(self.guaranteed, bool):
            raise InvalidInput(f"guaranteed: True or False expected, not {self.guaranteed!r}")
        limit = self.guaranteed_limit
        if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= 1000:
            raise InvalidInput(f"guaranteed_limit: an int from 0 to 1,000 expected, not {limit!r}")

    def half_life_s(self, knowledge_type: str | None) -> float:
        """Seconds until a chunk of that kind counts half; infinite if it does not age or has no kind."""
        days = {**HALF_LIVES, **self.half_lives}.get(knowledge_type or "")
        return math.inf if days is None else days * DAY_S

    def with_weights(self, **weights: float | None) -> Policy:
        """The policy with some of its numbers replaced; None leaves one as it is."""
        unknown = weights.keys() - {each.name for each in dataclass_fields(self)}
        if unknown:
            raise InvalidInput(f"a policy has no weight {', '.join(sorted(unknown))}")
        given: dict[str, Any] = {name: value for name, value in weights.items() if value is not None}
        return replace(self, **given)


class Judged(Protocol):
    """What of a chunk is judged."""

    @property
    def importance(self) -> float | None: ...
    @property
    def knowledge_type(self) -> str | None: ...
    @property
    def access_count(self) -> int: ...
    @property
    def created_at(self) -> float: ...
    @property
    def source_date(self) -> float | None: ...


C = TypeVar("C", bound=Judged)


def age_s(chunk: Judged, now: float) -> float:
    """Seconds since the source's date, or since it was stored where there is none; a date to come is age 0."""
    since = chunk.created_at if chunk.source_date is None else chunk.source_date
    return max(0.0, now - since)


def memory_score(relevance: float, chunk: Judged, policy: Policy, now: float) -> float:
    """Relevance, discounted by age and lifted by use; higher is better, >= 0.

    relevance: 0..1, higher is better. now: seconds since the epoch.
    relevance * ((1 - wt) + wt * 2 ** (-age / H)) * (1 + wf * min(1, ln(1 + n) / ln(101))), H the half-life of its
    kind and n the uses: age takes at most the share wt, so it reorders and never hides; use adds at most wf.
    """
    fresh = math.exp2(-age_s(chunk, now) / policy.half_life_s(chunk.knowledge_type))
    return relevance * ((1 - policy.time_weight) + policy.time_weight * fresh) * _use(chunk, policy)


def staged(chunks: Sequence[tuple[C, float]], policy: Policy, now: float) -> list[tuple[C, float]]:
    """(chunk, relevance) pairs -> (chunk, memory score), best first; those rated below the threshold are left out.

    Equal scores keep their order. The input stays as it is.
    """
    kept = [(chunk, memory_score(value, chunk, policy, now)) for chunk, value in chunks if passes(chunk, policy)]
    return sorted(kept, key=lambda pair: -pair[1])


def passes(chunk: Judged, policy: Policy) -> bool:
    """Whether importance lets it through: not rated, or at least the threshold."""
    return chunk.importance is None or chunk.importance >= policy.importance_threshold


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a chunk is to be forgotten. score: higher is better kept. reason: why it goes, None if it stays."""

    score: float
    reason: str | None


def judge(chunk: Judged, policy: Policy, now: float) -> Judgement:
    """What forgetting thinks of a chunk: no question is asked, so only importance, age and use count.

    Score: 2 ** (-wt * age / H) * (1 + wf * min(1, ln(1 + n) / ln(101))), wt being ``forget_time_weight``. Without a
    floor, so every kind with a half-life falls below any threshold some day (news below 0.05 after some 130 days).
    """
    fresh = math.exp2(-policy.forget_time_weight * age_s(chunk, now) / policy.half_life_s(chunk.knowledge_type))
    score = fresh * _use(chunk, policy)
    if not passes(chunk, policy):
        return Judgement(score, f"importance {chunk.importance:g} is below {policy.importance_threshold:g}")
    if score < policy.score_threshold:
        return Judgement(score, f"score {score:.3g} is below {policy.score_threshold:g}")
    return Judgement(score, None)


def relevance_of_distance(distance: float, metric: str) -> float:
    """A vector's distance as relevance, 0..1, higher is better.

    COSINE: 1 - distance / 2. L2, whose squared distance has no greatest value: 1 / (1 + distance). IP, 1 - dot
    product and without bounds: the logistic of the dot product.
    """
    if metric == "COSINE":
        return min(1.0, max(0.0, 1 - distance / 2))
    if metric == "L2":
        return 1 / (1 + max(0.0, distance))
    return logistic(1 - distance)


def relevance_of_rerank(scores: Iterable[float]) -> list[float]:
    """A reranker's scores as relevance: as they are if all are within 0..1, else the logistic of each."""
    found = list(scores)
    return found if all(0 <= score <= 1 for score in found) else [logistic(score) for score in found]


def logistic(value: float) -> float:
    """1 / (1 + e ** -value), without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    power = math.exp(value)
    return power / (1 + power)


def _use(chunk: Judged, policy: Policy) -> float:
    return 1 + policy.freq_weight * min(1.0, math.log1p(max(0, chunk.access_count)) / _MOST_USES)


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidInput(f"{what}: a number expected, not {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an int of 400 digits
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(f"{what}: {number} is not finite")
    return number
