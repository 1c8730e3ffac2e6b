"""Words and vectors together: ``retrieve``, and many at once.

Each channel ranks by itself, both in one round trip; fusion makes one ranking of two; and only then the winners'
fields are fetched, which is cheaper than to carry the fields of all candidates. What follows (reranking,
collapsing, diversity, the cut to k) sees whole hits. A channel that fails leaves the other one standing, and the
answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from fields.errors import InvalidInput
from fields.filters import Filter, as_filter, filter_text
from fields.kinds import Tag
from fields.names import TEXT_FIELD, stamp_field, utf8
from fields.vectors import embedding_matrix, vector_bytes, vector_from_bytes
from retriever.documents import FusedHit, Hits
from retriever.errors import NotSupported, ServerError
from retriever.fusion import (
    CHANNELS,
    Append,
    Channel,
    Fused,
    Fusion,
    Linear,
    Rrf,
    as_fusion,
    fuse,
    greatest,
    mmr,
    summed,
)
from retriever.operations.index import Live, check_place, check_size, dims_of, known_schema, still_filling
from retriever.operations.search import Shape, each_alone, field_names, reranker_of, returned_names, shape
from retriever.operations.words import MAX_TERMS, Ranked, Words, text_engine, words
from retriever.plans import Ahead, Ask, Call, Command, Embed, Plan, ask_all, parsed, together
from retriever.queries import (
    MAX_K,
    FilterSpec,
    check_bool,
    check_finite,
    check_int,
    check_k,
    check_timeout,
    knn_clause,
    search_command,
)
from retriever.replies import Rows, values
from retriever.rerankers import Reranker, ranked
from retriever.schema import Schema

MAX_TEXTS = 16  # that an expansion may add; arbitrary
# Where more rows are ranked while the server works, the time for that would pass for the server's, and for a time-out.
_DEEPEST_AHEAD = 1000

Expansion = Callable[[str], Iterable[str]]


class Retrieval(TypedDict, total=False):
    """One question of ``retrieve_many``: the arguments of ``retrieve``, by their names."""

    text: str
    vector: npt.ArrayLike
    k: int
    filter: FilterSpec
    fusion: Any
    channels: Iterable[str]
    depth: int | None
    max_distance: float | None
    min_text_score: float | None
    rerank: Reranker | bool | None
    candidates: int | None
    diversity: float | None
    collapse: str | None
    expand: Expansion | None
    return_fields: Iterable[str] | None
    strict: bool
    ef_runtime: int | None
    timeout_ms: int | None


def retrieve(
    live: Live,
    reranker: Reranker | None,
    *,
    text: str | None = None,
    vector: npt.ArrayLike | None = None,
    k: int = 10,
    filter: FilterSpec = None,
    fusion: Any = "rrf",
    channels: Iterable[str] = CHANNELS,
    depth: int | None = None,
    max_distance: float | None = None,
    min_text_score: float | None = None,
    rerank: Reranker | bool | None = None,
    candidates: int | None = None,
    diversity: float | None = None,
    collapse: str | None = None,
    expand: Expansion | None = None,
    return_fields: Iterable[str] | None = None,
    strict: bool = False,
    ef_runtime: int | None = None,
    timeout_ms: int | None = None,
    also: tuple[Filter, int] | None = None,
) -> Plan[Hits[FusedHit]]:
    """The k best by words and by meaning. See ``Retriever.retrieve``.

    also: (a filter, n): the n nearest that pass it too are candidates of the vector channel, however far they are, and
        come back with the k best, up to n more.
    """
    asked = _Asked.of(
        live,
        k=k,
        filter=filter,
        fusion=fusion,
        depth=depth,
        max_distance=max_distance,
        min_text_score=min_text_score,
        chosen=None if rerank is None else reranker_of(live, rerank, reranker, text),
        candidates=candidates,
        diversity=diversity,
        collapse=collapse,
        return_fields=return_fields,
        strict=strict,
        ef_runtime=ef_runtime,
        timeout_ms=timeout_ms,
        also=also,
    )
    answer = _Answer()
    by_vector, by_text = _channels(live, text, vector, channels, answer)
    if by_vector and vector is not None and live.dims is not None:
        vector_bytes(vector, live.dims, live.schema.vector.metric, "vector")  # refused before any I/O
    if expand is not None:
        _check_expand(live, expand, text, asked.fusion)
    if live.database or live.cluster:
        yield from check_place(live)
    texts = [text] if text is not None else []
    if expand is not None:
        texts = yield from _expanded(expand, text)
    terms = [_terms(live.schema, each, answer) for each in texts] if by_text else []
    if by_text and not any(terms):
        by_text = False
        if not by_vector:
            raise InvalidInput(f"text {text!r:.80} holds no terms to search by; scan(filter) walks documents")
        answer.reasons.append("text: it holds no terms, so only the vector was searched by")
    if by_text:
        yield from text_engine(live)
    legs = [_Leg(each, terms[at] if by_text else ()) for at, each in enumerate(texts)] or [_Leg(None, ())]
    if by_vector:
        yield from _embed(live, legs, vector, asked, answer, alone=not by_text)
    yield from _search(live, legs, asked, answer)
    found = yield from _fetched(live, _fused(legs, asked), legs, asked, answer)
    appends = isinstance(asked.fusion, Append) and legs[0].near is not None
    kept: frozenset[str] = frozenset().union(*(leg.also for leg in legs))
    hits = yield from _refined(found, text, asked, kept, appends=appends)
    if live.filling and (yield from still_filling(live)):
        answer.lost("the index is still being filled")
    return Hits(hits, complete=not answer.partial, reasons=tuple(answer.reasons), stats=answer.stats)


def retrieve_many(
    live: Live, reranker: Reranker | None, queries: Iterable[Retrieval]
) -> Plan[list[Hits[FusedHit] | Exception]]:
    """Every question's hits or its own error, in shared embedder calls and round trips."""
    return (yield from each_alone("retrieve", Retrieval, partial(retrieve, live, reranker), queries))


# --- what is asked --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """The arguments of one call, checked."""

    schema: Schema
    k: int
    filter: Filter | None
    fusion: Fusion
    depth: int
    max_distance: float | None
    min_text_score: float | None
    reranker: Reranker | None
    candidates: int
    diversity: float | None
    collapse: str | None
    returned: tuple[str, ...]
    knn: str
    strict: bool
    timeout_ms: int
    also: tuple[str, int] | None  # its query string

    @classmethod
    def of(
        cls,
        live: Live,
        *,
        k: int,
        filter: FilterSpec,
        fusion: Any,
        depth: int | None,
        max_distance: float | None,
        min_text_score: float | None,
        chosen: Reranker | None,
        candidates: int | None,
        diversity: float | None,
        collapse: str | None,
        return_fields: Iterable[str] | None,
        strict: bool,
        ef_runtime: int | None,
        timeout_ms: int | None,
        also: tuple[Filter, int] | None,
    ) -> _Asked:
        schema = live.schema
        check_k(k)
        if chosen is None and candidates is not None:
            raise InvalidInput("candidates are what a reranker sees; pass rerank too")
        if candidates is not None:
            check_int("candidates", candidates, MAX_K, least=k)
        deep = min(MAX_K, max(50, 4 * k, candidates or 0))
        if depth is not None:
            deep = check_int("depth", depth, MAX_K, least=k)
        numbers = {"max_distance": max_distance, "min_text_score": min_text_score, "diversity": diversity}
        for name, value in numbers.items():
            if value is not None:
                check_finite(name, value)
        if diversity is not None and not 0 <= diversity <= 1:
            raise InvalidInput(f"diversity: a number from 0 (by relevance alone) to 1 expected, not {diversity!r}")
        if collapse is not None:
            _check_collapse(schema, collapse)
        check_bool("strict", strict)
        checked = as_filter(filter, schema.by_name)
        beside = None
        if also is not None:
            both = also[0] if checked is None else checked & also[0]
            beside = (f"{filter_text(both)}=>{knn_clause(schema, also[1], ef_runtime)}", also[1])
        return cls(
            schema=schema,
            k=k,
            filter=checked,
            fusion=as_fusion(fusion),
            depth=deep,
            max_distance=max_distance,
            min_text_score=min_text_score,
            reranker=chosen,
            candidates=min(MAX_K, 4 * k) if candidates is None else candidates,
            diversity=diversity,
            collapse=collapse,
            returned=tuple(returned_names(schema, None if return_fields is None else field_names(return_fields))),
            knn=knn_clause(schema, deep, ef_runtime),
            strict=strict,
            timeout_ms=check_timeout(timeout_ms),
            also=beside,
        )

    @property
    def pool(self) -> int:
        """How many of the fused ranking are looked at: more than k where something after fusion chooses."""
        if self.reranker is not None:
            return self.candidates
        return self.k if self.collapse is None and self.diversity is None else 2 * self.depth

    @cached_property
    def columns(self) -> _Columns:
        """What is fetched of the fused ranking's documents."""
        # Since the engine answered, a document may have been written anew, and into another tenant's hands.
        looked_at = [] if self.filter is None else [leaf.name for leaf in self.filter._leaves()]
        if self.collapse is not None:
            looked_at.append(self.collapse)
        declared = [name for name in dict.fromkeys([*self.returned, *looked_at]) if name != TEXT_FIELD]
        text = TEXT_FIELD in self.returned or self.reranker is not None
        # Every document has its text and the short hash of it: without both, it is no longer there.
        there = TEXT_FIELD if text else stamp_field(self.schema.vector.name)
        vector = [] if self.diversity is None else [self.schema.vector.name]
        return _Columns(
            names=(*declared, there, *vector),
            readers=[(name, self.schema.by_name[name].read) for name in declared],
            hidden=frozenset(declared).difference(self.returned),
            text=text,
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which hash fields are fetched: the declared ones, the text or what shows that it is there, the vector.

    readers: of the declared ones, in their order. hidden: those that are looked at and not given back.
    """

    names: tuple[str, ...]
    readers: list[tuple[str, Callable[[bytes], Any]]]
    hidden: frozenset[str]
    text: bool


def _check_collapse(schema: Schema, name: object) -> None:
    found = schema.by_name.get(name) if isinstance(name, str) else None
    if not isinstance(found, Tag) or found.many:
        single = [each.name for each in schema.by_name.values() if isinstance(each, Tag) and not each.many]
        raise InvalidInput(f"collapse: {name!r} is no TAG field of one value; those are {', '.join(single) or 'none'}")


def _channels(live: Live, text: object, vector: object, channels: object, answer: _Answer) -> tuple[bool, bool]:
    """Which channels run; one that was wanted and cannot is a reason. InvalidInput where none can."""
    if isinstance(channels, (str, bytes)) or not isinstance(channels, Iterable):
        raise InvalidInput(f"channels: a list of 'vector' and 'text' expected, not {channels!r}")
    wanted = list(channels)
    if not wanted or any(not isinstance(each, str) or each not in CHANNELS for each in wanted):
        raise InvalidInput(f"channels: one or both of 'vector' and 'text' expected, not {wanted!r}")
    if text is None and vector is None:
        raise InvalidInput("retrieve takes a text, a vector or both, not neither")
    if text is not None:
        if not isinstance(text, str):
            raise InvalidInput(f"text: a string expected, not {text!r}")
        utf8(text, "text")
    by_vector = "vector" in wanted and (vector is not None or live.embeds)
    by_text = "text" in wanted and text is not None
    if by_text and live.schema.analysis is None:
        if not by_vector:
            raise InvalidInput(f"index {live.schema.name!r} holds no words: its schema has no analysis")
        by_text = False
        answer.reasons.append("text: the schema has no analysis, so only the vector was searched by")
    if "vector" in wanted and by_text and not by_vector:
        answer.reasons.append("vector: there is neither an embedder nor vector=, so only words were searched by")
    if not (by_vector or by_text):
        lacking = "a text" if text is None else "vector=, or an embedder: Retriever(..., embed=...)"
        raise InvalidInput(f"channels: {wanted!r} alone needs {lacking}")
    return by_vector, by_text


def _check_expand(live: Live, expand: object, text: str | None, fusion: Fusion) -> None:
    live.check_callable(expand, "expand")
    if text is None:
        raise InvalidInput("expand makes texts of a text: it needs text=, not vector=")
    if not isinstance(fusion, Rrf):
        raise InvalidInput("expand: several texts are fused by rrf; another fusion has no say")


def _expanded(expand: Expansion, text: str | None) -> Plan[list[str]]:
    """The text and what the expansion makes of it."""
    answer = yield Call(expand, (text,))
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        raise InvalidInput(f"expand: it must return texts, not {answer!r:.80}")
    more = list(answer)
    for each in more:
        if not isinstance(each, str) or not each.strip():
            raise InvalidInput(f"expand: it must return texts with something in them, not {each!r:.80}")
        utf8(each, "expand")
    texts = list(dict.fromkeys([text, *more]))
    if len(texts) > 1 + MAX_TEXTS:
        raise InvalidInput(f"expand: it returned {len(texts) - 1} texts; {MAX_TEXTS} at most")
    return texts


# --- the two channels -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Answer:
    """What is to be said of an answer, besides its hits."""

    reasons: list[str] = field(default_factory=list)
    partial: bool = False
    stats: dict[str, float] = field(default_factory=dict)

    def lost(self, *reasons: str) -> None:
        """Say why hits may be lacking."""
        self.reasons += reasons
        self.partial = self.partial or bool(reasons)


@dataclass(slots=True)
class _Leg:
    """One text on its way through both channels. A ranking is None where its channel did not run or failed."""

    text: str | None
    terms: Sequence[str]
    vector: bytes | None = None
    near: list[tuple[str, float]] | None = None
    also: frozenset[str] = frozenset()  # ids of ``near`` that are there however far they are
    worded: list[tuple[str, float]] | None = None
    held: Callable[[str], tuple[str, ...]] = lambda _: ()

    @property
    def ran(self) -> list[Channel]:
        """The channels that gave it a ranking."""
        channels: tuple[tuple[Channel, object], ...] = (("vector", self.near), ("text", self.worded))
        return [channel for channel, ranking in channels if ranking is not None]


def _terms(schema: Schema, text: str, answer: _Answer) -> list[str]:
    assert schema.analysis is not None
    terms = list(dict.fromkeys(schema.analysis.terms(text)))
    if len(terms) > MAX_TERMS:
        answer.reasons.append(f"text: of its {len(terms)} different terms the first {MAX_TERMS} were searched by")
    return terms[:MAX_TERMS]


def _embed(live: Live, legs: Sequence[_Leg], vector: Any, asked: _Asked, answer: _Answer, *, alone: bool) -> Plan[None]:
    """Give each leg its vector. An embedder that fails is a channel that fails, unless it is the only one."""
    texts = [leg.text or "" for leg in legs]
    if vector is None and not all(map(str.strip, texts)):
        blank = next(each for each in texts if not each.strip())
        raise InvalidInput(f"text: {blank!r} holds nothing to search by; scan(filter) walks documents")
    schema = live.schema if live.dims is not None else (yield from known_schema(live))
    try:
        what, rows = "vector", [vector] * len(legs)
        if vector is None:
            what = "the embedder's vector"
            rows = [*embedding_matrix((yield Embed(texts, "query")), len(texts), live.dims)]
        for leg, row in zip(legs, rows, strict=True):
            leg.vector = vector_bytes(row, dims_of(schema), schema.vector.metric, what)
    except Exception as error:
        if alone or asked.strict or vector is not None:
            raise
        answer.lost(f"vector: {type(error).__name__}: {error}")


def _search(live: Live, legs: Sequence[_Leg], asked: _Asked, answer: _Answer) -> Plan[None]:
    """Let each leg have its rankings: all channels of all legs in one round trip."""
    by_filter = "*" if asked.filter is None else filter_text(asked.filter)
    by_vector = f"{by_filter}=>{asked.knn}"
    yield from check_size(live, by_vector)
    worded = [leg for leg in legs if leg.terms]
    plans = [words(live, leg.terms, asked.filter, asked.depth, asked.timeout_ms) for leg in worded]
    ready = list(zip(worded, (yield from together(plans)), strict=True))
    failed = [_of_channel("text", made, asked, answer) for _, made in ready if isinstance(made, Exception)]
    sound = [(leg, made) for leg, made in ready if not isinstance(made, Exception)]
    commands = [command for _, made in sound for command in made.commands]
    words_first = len(commands)
    near = search_command(live.schema, asked.depth, (), asked.timeout_ms)
    for leg in legs:
        if leg.vector is not None:
            commands.append(near(by_vector, leg.vector))
            if asked.also is not None:
                query, limit = asked.also
                commands.append(search_command(live.schema, limit, (), asked.timeout_ms)(query, leg.vector))
    if not commands:
        if failed:
            raise failed[0]
        # Words that no document holds: nothing to ask for, and nothing found.
        for leg, _ in sound:
            leg.worded = []
        return
    rankings: list[Ranked | Exception] = []

    def read(replies: Sequence[Any]) -> None:
        left = iter(zip(commands[:words_first], replies, strict=True))
        rankings[:] = [_ranked(made, [next(left) for _ in made.commands]) for _, made in sound]

    def prepare() -> None:  # what is remembered once it was asked for
        _ = asked.columns, [made.weights for _, made in sound]

    # Words are sent first, and their answers ranked while the server looks for the nearest: 2.1 ms instead of 2.5 in
    # an index of 50,000. What is prepared in between gives the server time to begin: of commands that come as one it
    # answers none before the last.
    ahead = Ahead(words_first, prepare, read)
    overlaps = 0 < words_first < len(commands) and asked.depth <= _DEEPEST_AHEAD
    replies, seconds = yield Ask(commands, ahead if overlaps else None)
    if not rankings:
        read(replies[:words_first])
    answer.stats["search_ms"] = 1000 * seconds
    if seconds * 1000 >= asked.timeout_ms:
        answer.lost(f"the engine took {seconds * 1000:.0f} ms of its {asked.timeout_ms} and may have stopped early")
    for (leg, made), ranking in zip(sound, rankings, strict=True):
        if isinstance(ranking, Exception):
            failed.append(_of_channel("text", ranking, asked, answer))
        else:
            _rank_worded(leg, made, ranking, asked, answer)
    left = iter(zip(commands[words_first:], replies[words_first:], strict=True))
    for leg in legs:
        if leg.vector is not None:
            own = [next(left) for _ in range(1 if asked.also is None else 2)]
            try:
                _rank_near(live, leg, own, asked, answer)
            except Exception as error:
                failed.append(_of_channel("vector", error, asked, answer))
    if all(leg.near is None and leg.worded is None for leg in legs):
        raise failed[0]
    for name, found in (("vector", [leg.near for leg in legs]), ("text", [leg.worded for leg in legs])):
        if any(ranking is not None for ranking in found):
            answer.stats[f"{name}_candidates"] = sum(len(ranking or ()) for ranking in found)
    bounds = [greatest(asked.fusion, ran) for leg in legs if (ran := leg.ran)]
    if None not in bounds:
        answer.stats["greatest"] = sum(bound for bound in bounds if bound is not None)


def _ranked(made: Words, replies: Sequence[tuple[Command[Rows], Any]]) -> Ranked | Exception:
    try:
        return made.ranking([parsed(*each) for each in replies])
    except Exception as error:
        return error


def _rank_near(
    live: Live, leg: _Leg, replies: Sequence[tuple[Command[Rows], Any]], asked: _Asked, answer: _Answer
) -> None:
    """Give a leg the ranking of its vector channel, from the nearest and, where there are, those of ``also``."""
    (nearest, reasons), *others = [_near(live).ranking(parsed(*each)) for each in replies]
    ranking = nearest[: asked.depth]
    if others:
        farther, more = others[0]
        leg.also = frozenset(id for id, _ in farther)  # the near ones too: no cut is theirs
        ranking = sorted({*ranking, *farther}, key=itemgetter(1, 0))
        reasons = tuple(dict.fromkeys((*reasons, *more)))
    answer.lost(*reasons)
    most = asked.max_distance
    leg.near = ranking if most is None else [pair for pair in ranking if pair[1] <= most]


def _rank_worded(leg: _Leg, made: Words, ranking: Ranked, asked: _Asked, answer: _Answer) -> None:
    """Give a leg the ranking of its text channel, and which of its terms a document holds."""
    answer.lost(*ranking.reasons)
    least = asked.min_text_score
    leg.worded = [pair for pair in ranking.pairs if least is None or pair[1] >= least][: asked.depth]
    leg.held = made.holding(ranking.rows)


def _of_channel(channel: str, error: Exception, asked: _Asked, answer: _Answer) -> Exception:
    """Note what the server refused a channel. Raises what no other channel can stand in for."""
    if asked.strict or not isinstance(error, ServerError) or isinstance(error, NotSupported):
        raise error
    answer.lost(f"{channel}: {type(error).__name__}: {error}")
    return error


def _near(live: Live) -> Shape:
    """How rows of the vector channel are read: ids and distances alone."""
    found: Shape | None = live.asked.get(_near)
    if found is None:
        found = live.asked[_near] = shape(live.schema, ())
    return found


# --- one ranking of two ---------------------------------------------------------------------------


def _fused(legs: Sequence[_Leg], asked: _Asked) -> list[Fused]:
    """The fused ranking, as long as what follows looks at."""
    also: frozenset[str] = frozenset().union(*(leg.also for leg in legs))
    if len(legs) == 1:
        if not also:
            return fuse(asked.fusion, legs[0].near, legs[0].worded, asked.pool)
        ranking = fuse(asked.fusion, legs[0].near, legs[0].worded, 2 * asked.depth + len(also))
        if isinstance(asked.fusion, Append):  # what it appends depends on how many are nearest
            nearest = fuse(asked.fusion, legs[0].near, legs[0].worded, asked.pool)
            return [
                *({each.id: each for each in nearest} | {each.id: each for each in ranking if each.id in also}).values()
            ]
        return _first(ranking, asked.pool, also)
    assert isinstance(asked.fusion, Rrf)
    rankings = [fuse(asked.fusion, leg.near, leg.worded, 2 * asked.depth + len(also)) for leg in legs]
    return _first(summed(rankings), asked.pool, also)


def _first(ranking: Sequence[Fused], most: int, also: frozenset[str]) -> list[Fused]:
    return [each for at, each in enumerate(ranking) if at < most or each.id in also]


# --- whole hits -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Candidate:
    """A hit, and what of its document is looked at after fusion but not given back."""

    hit: FusedHit
    text: str
    group: str | None
    vector: npt.NDArray[Any] | None


def _fetched(
    live: Live, ranking: Sequence[Fused], legs: Sequence[_Leg], asked: _Asked, answer: _Answer
) -> Plan[list[_Candidate]]:
    """The documents of the ranking, in its order. One round trip."""
    if not ranking:
        return []
    columns, checked = asked.columns, asked.filter
    keys = [live.schema.prefix + each.id for each in ranking]
    rows = yield from ask_all([Command(("HMGET", key, *columns.names), values, key) for key in keys])
    readers, hidden = columns.readers, columns.hidden
    gives_text = TEXT_FIELD in asked.returned
    by = _named(asked.fusion)
    passed = None if checked is None else filter_text(checked)
    candidates: list[_Candidate] = []
    gone = changed = foreign = 0
    for fused, row in zip(ranking, rows, strict=True):
        if isinstance(row, Exception):
            raise row
        if row.count(None) == len(row):
            gone += 1
            continue
        stored = row[len(readers)]
        try:
            text = stored.decode() if columns.text and stored is not None else ""
            fields = {name: read(cell) for (name, read), cell in zip(readers, row, strict=False) if cell is not None}
            if checked is not None and not checked.matches(fields):
                changed += 1
                continue
            vector = row[-1] if asked.diversity is not None else None
            candidates.append(
                _Candidate(
                    FusedHit(
                        fused.id,
                        fused.score,
                        text if gives_text else "",
                        {name: value for name, value in fields.items() if name not in hidden} if hidden else fields,
                        fused.vector_distance,
                        fused.text_score,
                        fused.ranks,
                        fused.contributions,
                        _terms_held(legs, fused.id),
                        fusion=by,
                        filter=passed,
                    ),
                    text,
                    _group(fields, asked.collapse),
                    None if vector is None else vector_from_bytes(vector),
                )
            )
        except ValueError:
            foreign += 1
    if gone:
        answer.lost(f"{gone} hits expired or were deleted while they were fetched")
    if changed:
        answer.lost(f"{changed} hits were changed while they were fetched, and no longer pass the filter")
    if foreign:
        answer.lost(f"{foreign} rows hold values that this library did not write")
    return candidates


def _terms_held(legs: Sequence[_Leg], id: str) -> tuple[str, ...]:
    """The terms of all texts that a document holds, each once."""
    if len(legs) == 1:
        return legs[0].held(id)
    return tuple(dict.fromkeys(term for leg in legs for term in leg.held(id)))


def _group(fields: Mapping[str, Any], collapse: str | None) -> str | None:
    value = None if collapse is None else fields.get(collapse)
    return value if isinstance(value, str) else None


def _named(fusion: Fusion) -> str:
    match fusion:
        case Rrf(k, None):
            return f"rrf, k={k:g}"
        case Rrf(k, weights):
            return f"rrf, k={k:g}, weights={dict(weights or {})}"
        case Linear(alpha):
            return f"linear, alpha={alpha:g}"
        case Append(extra):
            return f"append, extra={extra}"
    return str(getattr(fusion, "__name__", fusion))


def _refined(
    candidates: list[_Candidate], text: str | None, asked: _Asked, also: frozenset[str], *, appends: bool
) -> Plan[list[FusedHit]]:
    """What happens after fusion: rerank, collapse, diversity, in this order, and the cut to k, which spares ``also``.

    appends: text hits are appended to what becomes of the nearest; they are neither reordered nor cut to k.
    """
    nearest = [each for each in candidates if not appends or "vector" in each.hit.contributions]
    left = nearest
    if asked.reranker is not None and nearest:
        # Copies: what the reranker does to its hits is not done to ours. They hold the text also where ours do not.
        copies = [replace(each.hit, text=each.text, fields=dict(each.hit.fields)) for each in nearest]
        ordered = yield Call(asked.reranker, (text, copies))
        by_id = {each.hit.id: each for each in nearest}
        left = []
        for hit, score in ranked(ordered, copies, len(copies)):
            each = by_id[hit.id]
            each.hit.rerank_score = score
            left.append(each)
    best = left if asked.collapse is None else _collapsed(left)
    if asked.diversity is not None and best:
        best = _diverse(best, asked.k, asked.diversity, reranked=asked.reranker is not None)
    best = [each for at, each in enumerate(best) if at < asked.k or each.hit.id in also]
    if isinstance(asked.fusion, Append) and appends:
        refused = {each.hit.id for each in nearest} - {each.hit.id for each in left}
        worded = [each for each in candidates if "text" in each.hit.ranks and each.hit.id not in refused]
        best = _appended(best, worded, asked.fusion.extra, collapses=asked.collapse is not None)
    return [each.hit for each in best]


def _appended(best: list[_Candidate], worded: list[_Candidate], extra: int, *, collapses: bool) -> list[_Candidate]:
    """The best, and the first text hits that are not among them, scored by their place as ``Append`` says.

    Of the nearest some may have given way to farther ones: the places go on behind the farthest that is left.
    """
    there = {each.hit.id for each in best}
    added = sorted((each for each in worded if each.hit.id not in there), key=lambda each: each.hit.ranks["text"])
    if collapses:
        # Those near ones that the best stand for have been counted.
        groups = {each.group for each in best if each.group is not None}
        added = [each for each in added if each.group not in groups or "vector" not in each.hit.contributions]
        for each in added:
            each.hit.collapsed = 0
        added = _collapsed([*best, *added])[len(best) :]
    last = max((each.hit.ranks["vector"] for each in best), default=0)
    for place, each in enumerate(added[:extra], last + 1):
        each.hit.fused_score, each.hit.contributions = 1 / place, {"text": 1 / place}
    return [*best, *added[:extra]]


def _collapsed(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The first of each group, with the others counted; who has no group stands for itself."""
    best: dict[str, _Candidate] = {}
    kept: list[_Candidate] = []
    for each in candidates:
        if each.group is not None and each.group in best:
            best[each.group].hit.collapsed += 1
            continue
        if each.group is not None:
            best[each.group] = each
        kept.append(each)
    return kept


def _diverse(candidates: Sequence[_Candidate], k: int, diversity: float, *, reranked: bool) -> list[_Candidate]:
    """The k that are relevant and unlike each other: by the reranker's scores, or its order where it gave no scores."""
    relevance = [each.hit.fused_score for each in candidates]
    if reranked:
        scores = [each.hit.rerank_score for each in candidates]
        relevance = [-float(at) if score is None else score for at, score in enumerate(scores)]
    width = next((len(each.vector) for each in candidates if each.vector is not None), 1)
    unknown = np.full(width, np.nan, np.float32)
    vectors = np.array(
        [unknown if each.vector is None or len(each.vector) != width else each.vector for each in candidates]
    )
    return [candidates[at] for at in mmr(relevance, vectors, k, 1 - diversity)]
