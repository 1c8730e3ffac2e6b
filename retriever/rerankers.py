"""What a reranker is, and what it may answer.

Rule: a reranker orders, it does not write. Its answer is read here and nowhere else, hits are told by
their id, and a score travels with its hit from end to end: scores in one order beside hits in another
was a bug of other libraries, and so was sorting by NaN, which leaves any order at all.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterable, Mapping, Sequence, Set
from numbers import Real
from typing import TYPE_CHECKING, Protocol, SupportsFloat, TypeAlias, TypeVar

from retriever.errors import InvalidInput

if TYPE_CHECKING:
    from retriever.documents import Hit

__all__ = ["Reranker", "ranked"]


Ranking: TypeAlias = "Iterable[Hit] | Iterable[tuple[Hit, SupportsFloat]]"


class Reranker(Protocol):
    """A plain function, an ``async def`` or an object with ``__call__``: (query text, hits) -> an order of the hits.

    It is handed a list, nearest first, and answers one of two things, with all of the hits or some:
    the hits, best first; or pairs (hit, score), a higher score being better, any finite number (raw logits
    are fine): these are sorted by score, and equal scores keep the reranker's order.
    Both may be any ordered iterable: a list, ``zip(hits, scores)``, a generator.
    """

    def __call__(self, text: str, hits: list[Hit], /) -> Ranking | Awaitable[Ranking]:
        """The hits, best first, or (hit, score) pairs."""
        ...


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


H = TypeVar("H", bound=_Identified)


def ranked(result: object, hits: Sequence[H], k: int) -> list[tuple[H, float | None]]:
    """The k best (hit, score) of a reranker's answer, best first; score is None where it gave an order only.

    result: what the reranker returned, see ``Reranker``; one already awaited.
    hits: what it was given, ids unique. The hits that come back are these, whatever it made of its copies.
    k: int >= 0; a shorter answer, or an empty one, is no error.
    Raises InvalidInput, naming the id, if a hit was not among those given or comes twice, if a score is no
    finite number (a bool is none), or if the answer is not one of the two forms. The whole answer is
    checked, also what k cuts off.
    """
    given = {hit.id: hit for hit in hits}
    ranking: dict[str, float | None] = {}
    scored = False
    for position, item in enumerate(_ordered(result)):
        paired = isinstance(item, tuple)
        if position and paired != scored:
            raise InvalidInput(f"the reranker mixed hits and (hit, score) pairs, from position {position} on")
        scored = paired
        id_, score = _read(item, position)
        if id_ not in given:
            raise InvalidInput(f"the reranker returned {id_!r}, which is not among the hits that it was given")
        if id_ in ranking:
            raise InvalidInput(f"the reranker returned {id_!r} twice")
        ranking[id_] = score
    best = list(ranking.items())
    if scored:
        best.sort(key=lambda pair: pair[1] or 0.0, reverse=True)
    return [(given[id_], score) for id_, score in best[:k]]


def _ordered(result: object) -> Iterable[object]:
    # A set has no order, and a mapping or a str would be read as its keys or its characters.
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping, Set)):
        raise InvalidInput(
            f"the reranker returned {type(result).__name__}; it must return hits, best first, or (hit, score) pairs"
        )
    return result


def _read(item: object, position: int) -> tuple[str, float | None]:
    if not isinstance(item, tuple):
        return _id(item, position), None
    if len(item) != 2:
        raise InvalidInput(f"the reranker returned {len(item)} values at position {position}, not (hit, score)")
    id_ = _id(item[0], position)
    return id_, _score(item[1], id_)


def _id(item: object, position: int) -> str:
    id_ = getattr(item, "id", None)
    if not isinstance(id_, str):
        raise InvalidInput(
            f"the reranker returned {type(item).__name__} at position {position}; "
            "it must return hits, best first, or (hit, score) pairs"
        )
    return id_


def _score(value: object, id_: str) -> float:
    # Scalars and 0-dimensional arrays of numpy, torch and the like become Python's own number here.
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # type: ignore[attr-defined]
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidInput(f"the reranker's score of {id_!r} is {type(value).__name__}, not a number")
    try:
        score = float(value)
    except OverflowError:
        score = math.inf
    if not math.isfinite(score):
        raise InvalidInput(f"the reranker's score of {id_!r} is {score}, not a finite number")
    return score
