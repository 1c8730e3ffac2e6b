"""Several rankings into one, and one ranking into a varied one.

Rule: rankings are fused by what each alone says of an id: its rank, or its score among its own candidates.
A distance (lower is closer) and a text score (higher is better) are never compared with each other, and
fusion never looks at a document. Every fused score is the exact sum of what the channels contributed.
Weights weigh channels against each other, so a channel that ran alone counts with weight 1.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, NamedTuple, SupportsFloat, TypeAlias

import numpy as np
import numpy.typing as npt

from retriever.errors import InvalidInput

__all__ = [
    "Append",
    "Fused",
    "Fusion",
    "Linear",
    "Ranking",
    "Rrf",
    "as_fusion",
    "fuse",
    "greatest",
    "mmr",
    "rrf",
    "summed",
]

Channel: TypeAlias = Literal["vector", "text"]
CHANNELS: tuple[Channel, ...] = ("vector", "text")

# (id, distance) of the vector channel, (id, text score) of the text channel; best first.
Ranking: TypeAlias = Sequence[tuple[str, float]]


def rrf(*rankings: Sequence[str], k: float = 60, weights: Sequence[float] | None = None) -> list[tuple[str, float]]:
    """Fuse rankings by reciprocal rank: an id scores the sum of weight / (k + rank).

    rankings: ids best first. The rank is the place in the ranking, from 1; an absent id adds nothing, and of
        a repeated one the first place counts.
    k: damping in ranks, > 0; 60 is the paper's value.
    weights: one per ranking, >= 0 and not all 0; None weighs all alike, with 1.
    Returns (id, score), best first; equal scores keep the order of first appearance. Scores are summed by
    ``math.fsum``, so they do not depend on the order of the rankings.
    Raises InvalidInput for another k, for weights that do not fit, and for a str in place of a ranking.
    Source: Cormack, Clarke, Buettcher, SIGIR 2009, doi 10.1145/1571941.1572114.

    >>> [(id, round(score, 4)) for id, score in rrf(["a", "b"], ["b", "c"])]
    [('b', 0.0325), ('a', 0.0164), ('c', 0.0161)]
    """
    damping = _damping(k)
    if weights is None:
        factors = [1.0] * len(rankings)
    else:
        factors = [_number(weight, f"weights[{at}]") for at, weight in enumerate(weights)]
        if len(factors) != len(rankings):
            raise InvalidInput(f"{len(factors)} weights for {len(rankings)} rankings; give one per ranking")
        _check_weights(factors, damping)
    parts: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, factors, strict=True):
        if isinstance(ranking, str):
            raise InvalidInput(f"a ranking is a sequence of ids, not the str {ranking!r:.80}")
        for id_, rank in _ranks(ranking).items():
            parts.setdefault(id_, []).append(weight / (damping + rank))
    fused = [(id_, math.fsum(shares)) for id_, shares in parts.items()]
    fused.sort(key=lambda pair: -pair[1])
    return fused


@dataclass(frozen=True, slots=True)
class Rrf:
    """Reciprocal rank fusion: a document scores the sum of weight / (k + rank) over the channels; see ``rrf``.

    k: damping in ranks, > 0. weights: {"vector": ..., "text": ...}, both named, >= 0 and not both 0; None
    weighs them alike, with 1. Looks at ranks alone, so it needs no idea of the two scales; right where the
    channels are about equally good.
    Raises InvalidInput for anything else.
    """

    k: float = 60
    weights: Mapping[Channel, float] | None = field(default=None, hash=False)  # a dict has no hash

    def __post_init__(self) -> None:
        damping = _damping(self.k)
        if self.weights is None:
            return
        if not isinstance(self.weights, Mapping) or set(self.weights) != set(CHANNELS):
            raise InvalidInput(
                f'weights name both channels, as in {{"vector": 1.0, "text": 0.5}}, not {self.weights!r:.80}'
            )
        weights = {channel: _number(self.weights[channel], f"weights[{channel!r}]") for channel in CHANNELS}
        _check_weights(weights.values(), damping)
        object.__setattr__(self, "weights", weights)


@dataclass(frozen=True, slots=True)
class Linear:
    """Weighted sum of scores: alpha * vector + (1 - alpha) * text, each channel first brought to 0..1.

    alpha: 0..1, the weight of the vector channel. A channel's best candidate becomes 1 and its last 0, linearly
    (closeness is minus the distance); a single candidate, or all equal, becomes 1; absent adds nothing.
    Right where one channel is the better one: towards it.
    Raises InvalidInput for another alpha.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= _number(self.alpha, "alpha") <= 1:
            raise InvalidInput(f"alpha is the weight of the vector channel, 0 to 1, not {self.alpha!r}")


@dataclass(frozen=True, slots=True)
class Append:
    """The k nearest in their order, then the first ``extra`` text hits that are not among them, in text order.

    extra: int >= 0; so up to k + extra hits. The score says the place and nothing else: 1 / place, all of it
    contributed by "vector" for the nearest and by "text" for the appended, which is how to tell them apart.
    If the vector channel did not run there is nothing to append to: the k best text hits.
    Raises InvalidInput for another extra.
    """

    extra: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.extra, int) or isinstance(self.extra, bool) or self.extra < 0:
            raise InvalidInput(f"extra is how many text hits to append, an int >= 0, not {self.extra!r:.80}")


# (vector, text) -> (id, score) pairs; see as_fusion.
FusionFunction: TypeAlias = Callable[
    [list[tuple[str, float]], list[tuple[str, float]]], Iterable[tuple[str, SupportsFloat]]
]
Fusion: TypeAlias = Rrf | Linear | Append | FusionFunction

_NAMED: dict[str, type[Rrf | Linear | Append]] = {"rrf": Rrf, "linear": Linear, "append": Append}
_CHOICES = '"rrf", "linear", "append", Rrf(...), Linear(...), Append(...) or a function (vector, text) -> (id, score)s'


def as_fusion(value: object) -> Fusion:
    """The fusion that a name, an instance or a function stands for.

    value: "rrf", "linear", "append" (each with its defaults), an instance of Rrf, Linear or Append, or a plain
    function. A function is handed two fresh lists, best first and without repeats: [(id, distance)] of the
    vector channel, lower is closer, and [(id, text score)], higher is better; a channel that found nothing or
    did not run gives []. It answers (id, score) pairs in any order, some ids or all of them, a higher score
    being better, any finite number.
    Raises InvalidInput, naming the choices, for anything else: a class, an ``async def``.
    """
    if isinstance(value, (Rrf, Linear, Append)):
        return value
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]()
    if isinstance(value, type):
        way_out = f"give an instance: {value.__name__}()" if value in _NAMED.values() else f"give {_CHOICES}"
        raise InvalidInput(f"fusion={value.__name__} is a class; {way_out}")
    if not callable(value):
        raise InvalidInput(f"no fusion {value!r:.80}; give {_CHOICES}")
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(value.__call__):
        raise InvalidInput(f"the fusion {_name(value)} is async; a fusion computes, so give a plain function")
    function: FusionFunction = value
    return function


class Fused(NamedTuple):
    """One id of a fused ranking, and why it is where it is.

    score: higher is better; to be compared within one fused ranking only.
    vector_distance: lower is closer; None if the vector channel did not return it.
    text_score: higher is better; None likewise.
    ranks: channel -> place in that channel, from 1; only the channels that returned it, "vector" before "text".
    contributions: channel -> its part of the score, in which ``sum(contributions.values()) == score`` exactly.
        A function's score cannot be taken apart: it stands whole under "fusion".
    """

    id: str
    score: float
    vector_distance: float | None
    text_score: float | None
    ranks: Mapping[str, int]
    contributions: Mapping[str, float]


def fuse(fusion: Fusion, vector: Ranking | None, text: Ranking | None, k: int) -> list[Fused]:
    """The k best of both channels, best first; ``Append(extra)`` gives up to k + extra.

    fusion: from ``as_fusion``.
    vector: (id, distance), nearest first. text: (id, text score), best first. Finite numbers; of a repeated id
        the first counts. None for a channel that did not run, [] for one that found nothing: what ran
        decides the weights, a channel alone counts with weight 1.
    k: int >= 0.
    Ties: the nearer first (an id without distance after those with one), then the higher text score, then the
    smaller id. So the result depends on the rankings alone.
    Raises InvalidInput, naming the function, if a fusion of your own returns an id that neither channel
    returned, an id twice, a score that is no finite number, or anything but (id, score) pairs.
    """
    given: tuple[tuple[Channel, Ranking | None], ...] = (("vector", vector), ("text", text))
    ran = {channel: _placed(ranking) for channel, ranking in given if ranking is not None}
    shares = _shares(fusion, ran, k)
    near, worded = ran.get("vector", _NOWHERE), ran.get("text", _NOWHERE)

    totals: dict[str, float] = {}
    for ids in shares.values():
        if not totals:
            totals = dict(ids)
            continue
        for id_, share in ids.items():
            totals[id_] = totals[id_] + share if id_ in totals else share
    if isinstance(fusion, Append):
        k = len(totals)
    # Of some hundred candidates ten are wanted: what is below the last of them is not looked at.
    least = sorted(totals.values())[-k] if 0 < k < len(totals) else -math.inf
    order = [
        (
            -total,
            near.raw(id_) if id_ in near.ranks else math.inf,
            -worded.raw(id_) if id_ in worded.ranks else math.inf,
            id_,
        )
        for id_, total in totals.items()
        if total >= least
    ]
    order.sort()
    return [
        Fused(
            id_,
            -minus_score,
            near.raw(id_) if id_ in near.ranks else None,
            worded.raw(id_) if id_ in worded.ranks else None,
            {channel: placed.ranks[id_] for channel, placed in ran.items() if id_ in placed.ranks},
            {channel: ids[id_] for channel, ids in shares.items() if id_ in ids},
        )
        for minus_score, _, _, id_ in order[:k]
    ]


def summed(rankings: Sequence[Sequence[Fused]]) -> list[Fused]:
    """One ranking of several texts', each fused by rrf: what they contribute to an id is added up.

    An id has the better distance, text score and rank of each channel. Ordered, with ties, as ``fuse`` does.
    """
    merged: dict[str, Fused] = {}
    for each in (each for ranking in rankings for each in ranking):
        other = merged.get(each.id)
        merged[each.id] = each if other is None else _sum(other, each)
    return sorted(
        merged.values(),
        key=lambda each: (
            -each.score,
            math.inf if each.vector_distance is None else each.vector_distance,
            math.inf if each.text_score is None else -each.text_score,
            each.id,
        ),
    )


def _sum(one: Fused, other: Fused) -> Fused:
    both = (one, other)
    contributions: dict[str, float] = {
        channel: sum(each.contributions.get(channel, 0.0) for each in both)
        for channel in CHANNELS
        if any(channel in each.contributions for each in both)
    }
    ranks: dict[str, int] = {
        channel: min(each.ranks[channel] for each in both if channel in each.ranks)
        for channel in CHANNELS
        if any(channel in each.ranks for each in both)
    }
    return Fused(
        one.id,
        sum(contributions.values()),
        min((each.vector_distance for each in both if each.vector_distance is not None), default=None),
        max((each.text_score for each in both if each.text_score is not None), default=None),
        ranks,
        contributions,
    )


def greatest(fusion: Fusion, channels: Collection[Channel]) -> float | None:
    """The score of a document that every channel puts first, so that score / greatest is within 0..1.

    channels: those that ran, at least one. None for a function: only its author knows.
    """
    if isinstance(fusion, Rrf):
        return sum(weight / (float(fusion.k) + 1) for weight in _weights(fusion, channels).values())
    return 1.0 if isinstance(fusion, (Linear, Append)) else None


def mmr(relevance: Sequence[float], vectors: npt.NDArray[np.floating], k: int, lambda_: float) -> list[int]:
    """The positions of k candidates, each relevant and unlike those before it: maximal marginal relevance.

    relevance: n finite numbers, higher is better, on any scale: the greatest becomes 1 and the least 0.
    vectors: shape (n, d), of any length each: their cosine is the likeness. A row that holds NaN or infinity, or
        is all zero, has no direction and is taken to resemble nothing.
    k: int >= 0; all n positions if k is larger.
    lambda_: 0..1; 1 is the order of relevance, 0 the greatest unlikeness. The first is the most relevant always.
    Each step takes the highest lambda * relevance - (1 - lambda) * (greatest cosine to those taken); of equal
    ones the first position. Costs n * d operations a step.
    Raises InvalidInput for another lambda_, for relevance that is not finite, and for shapes that differ.
    Source: Carbonell, Goldstein, SIGIR 1998, doi 10.1145/290941.291025.
    """
    weight = _number(lambda_, "lambda")
    if not 0 <= weight <= 1:
        raise InvalidInput(f"lambda is the weight of relevance, 0 to 1, not {lambda_!r}")
    matrix = np.asarray(vectors, dtype=np.float64)
    if matrix.ndim != 2 or len(matrix) != len(relevance):
        raise InvalidInput(f"{len(relevance)} candidates need vectors of shape (n, d), not {matrix.shape}")
    scores = np.asarray(relevance, dtype=np.float64)
    if not np.isfinite(scores).all():
        raise InvalidInput(f"relevance is not finite at position {int(np.argmin(np.isfinite(scores)))}")
    if not len(scores):
        return []

    # Squares of float32 numbers neither overflow nor vanish in float64.
    lengths = np.sqrt((matrix * matrix).sum(axis=1, keepdims=True))
    directed = np.isfinite(lengths) & (lengths > 0)
    units = np.divide(matrix, lengths, out=np.zeros_like(matrix), where=directed)

    relevant = weight * np.array(_normalized(scores.tolist()))
    likeness = np.full(len(scores), -np.inf)
    taken = [int(np.argmax(scores))]
    while len(taken) < min(k, len(scores)):
        # Not a matrix product: its sums depend on a row's place, and equal vectors would no longer tie.
        np.maximum(likeness, (units * units[taken[-1]]).sum(axis=1), out=likeness)
        marginal = relevant - (1 - weight) * likeness
        marginal[taken] = -np.inf
        taken.append(int(np.argmax(marginal)))
    return taken[:k]


def _ranks(ids: Sequence[str]) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for rank, id_ in enumerate(ids, 1):
        ranks.setdefault(id_, rank)
    return ranks


class _Placed(NamedTuple):
    """A channel's ranking, and the place of each id in it, from 1."""

    ranks: dict[str, int]
    ranking: Ranking

    def raw(self, id_: str) -> float:
        """The distance or text score."""
        return self.ranking[self.ranks[id_] - 1][1]


_NOWHERE = _Placed({}, ())


def _placed(ranking: Ranking) -> _Placed:
    ids = [id_ for id_, _ in ranking]
    ranks = dict(zip(ids, range(1, len(ids) + 1), strict=True))
    return _Placed(ranks if len(ranks) == len(ids) else _ranks(ids), ranking)


def _shares(fusion: Fusion, ran: Mapping[Channel, _Placed], k: int) -> dict[str, dict[str, float]]:
    """Who contributes -> id -> how much of its score."""
    if isinstance(fusion, Rrf):
        damping, weights = float(fusion.k), _weights(fusion, ran)
        return {
            channel: {id_: weights[channel] / (damping + rank) for id_, rank in placed.ranks.items()}
            for channel, placed in ran.items()
        }
    if isinstance(fusion, Linear):
        weights = _weights(fusion, ran)
        shares: dict[str, dict[str, float]] = {}
        for channel, placed in ran.items():
            sign = -1 if channel == "vector" else 1
            closeness = _normalized([sign * placed.ranking[rank - 1][1] for rank in placed.ranks.values()])
            shares[channel] = {id_: weights[channel] * part for id_, part in zip(placed.ranks, closeness, strict=True)}
        return shares
    if isinstance(fusion, Append):
        near, worded = ran.get("vector", _NOWHERE), ran.get("text", _NOWHERE)
        nearest = dict.fromkeys(list(near.ranks)[:k])  # an ordered set
        room = fusion.extra if "vector" in ran else k
        appended = [id_ for id_ in worded.ranks if id_ not in nearest][:room]
        return {
            "vector": {id_: 1 / place for place, id_ in enumerate(nearest, 1)},
            "text": {id_: 1 / place for place, id_ in enumerate(appended, len(nearest) + 1)},
        }
    return {"fusion": _answer(fusion, ran)}


def _weights(fusion: Rrf | Linear, channels: Collection[Channel]) -> dict[Channel, float]:
    if len(channels) == 1:
        # Otherwise Linear(alpha=1) would call all hits of a lone text channel equal, with score 0.
        return dict.fromkeys(channels, 1.0)
    if isinstance(fusion, Linear):
        return {"vector": float(fusion.alpha), "text": 1 - float(fusion.alpha)}
    return dict(fusion.weights or dict.fromkeys(CHANNELS, 1.0))


def _normalized(values: Sequence[float]) -> list[float]:
    """The greatest becomes 1, the least 0, in between linearly; a single one, or all equal, 1."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low == high:
        return [1.0] * len(values)
    if math.isinf(high - low):  # scores of a function may be any finite numbers
        return _normalized([value / 2 for value in values])
    return [(value - low) / (high - low) for value in values]


def _answer(fusion: FusionFunction, ran: Mapping[Channel, _Placed]) -> dict[str, float]:
    """The scores that a function gave, read."""
    name = _name(fusion)
    channels = [ran.get(channel, _NOWHERE) for channel in CHANNELS]
    rankings = [[(id_, placed.raw(id_)) for id_ in placed.ranks] for placed in channels]
    result: object = fusion(*rankings)
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping)):
        raise InvalidInput(f"the fusion {name} returned {type(result).__name__}; it must return (id, score) pairs")
    scores: dict[str, float] = {}
    for position, item in enumerate(result):
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise InvalidInput(f"the fusion {name} returned {item!r:.80} at position {position}, not (id, score)")
        id_, score = item
        if not any(id_ in placed.ranks for placed in channels):
            raise InvalidInput(f"the fusion {name} returned {id_!r}, which is in neither ranking")
        if id_ in scores:
            raise InvalidInput(f"the fusion {name} returned {id_!r} twice")
        scores[id_] = _number(score, f"the fusion {name}'s score of {id_!r}")
    return scores


def _name(function: object) -> str:
    return repr(getattr(function, "__name__", type(function).__name__))


def _damping(k: object) -> float:
    if (damping := _number(k, "k")) <= 0:
        raise InvalidInput(f"k damps ranks and is > 0, not {k!r}")
    return damping


def _check_weights(weights: Collection[float], damping: float) -> None:
    # The sum of the greatest shares, so that no score overflows and not all vanish.
    if min(weights, default=0) < 0 or not 0 < sum(weight / (damping + 1) for weight in weights) < math.inf:
        raise InvalidInput(f"weights are >= 0, finite and not all 0, not {list(weights)!r:.80}")


def _number(value: object, what: str) -> float:
    # Scalars and 0-dimensional arrays of numpy, torch and the like become Python's own number here.
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # type: ignore[attr-defined]
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidInput(f"{what} is a number, not {value!r:.80}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(f"{what} is {number}, not a finite number")
    return number
