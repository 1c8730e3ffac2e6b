"""Asking: ``query``, and many at once.

What the engine leaves undone is done here: order (RediSearch returns rows in document order), the
signs of an answer that is not whole, and the check of what a reranker gave back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, nan
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypedDict

import numpy.typing as npt

from fields.errors import InvalidInput
from fields.filters import as_filter, filter_text
from fields.kinds import Field, Numeric
from fields.names import TEXT_FIELD, exact_field, utf8
from fields.vectors import embedding_matrix, vector_bytes, vector_from_bytes
from retriever.documents import H, Hit, Hits
from retriever.engines import LEAST_QUERY_BYTES
from retriever.errors import ReplyError
from retriever.operations.index import Live, check_place, check_size, dims_of, known_schema, still_filling
from retriever.plans import Ask, Call, Command, Embed, Plan, parsed, together
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
from retriever.replies import Rows
from retriever.rerankers import Reranker, ranked
from retriever.schema import Schema


class Query(TypedDict, total=False):
    """One question of ``query_many``: the arguments of ``query``, by their names."""

    text: str
    vector: npt.ArrayLike
    k: int
    filter: FilterSpec
    rerank: Reranker | bool | None
    candidates: int | None
    max_distance: float | None
    return_fields: Iterable[str] | None
    return_vectors: bool
    ef_runtime: int | None
    timeout_ms: int | None


def query(
    live: Live,
    reranker: Reranker | None,
    *,
    text: str | None = None,
    vector: npt.ArrayLike | None = None,
    k: int = 10,
    filter: FilterSpec = None,
    rerank: Reranker | bool | None = None,
    candidates: int | None = None,
    max_distance: float | None = None,
    return_fields: Iterable[str] | None = None,
    return_vectors: bool = False,
    ef_runtime: int | None = None,
    timeout_ms: int | None = None,
) -> Plan[Hits[Hit]]:
    """The k documents nearest to a text or a vector. See ``Retriever.query``."""
    if (text is None) == (vector is None):
        raise InvalidInput("query takes one of text and vector, not " + ("both" if text is not None else "neither"))
    chosen = None if rerank is None else reranker_of(live, rerank, reranker, text)
    asked = _asked(live, k, candidates, return_fields, return_vectors, ef_runtime, timeout_ms, chosen is not None)
    shape = asked.shape
    if max_distance is not None:
        check_finite("max_distance", max_distance)
    checked = None if filter is None else as_filter(filter, live.schema.by_name)
    words = f"{'*' if checked is None else filter_text(checked)}=>{asked.knn}"
    if live.database or live.cluster:
        yield from check_place(live)
    if len(words) > LEAST_QUERY_BYTES // 4:  # a character has at most 4 bytes, and counting them costs time
        yield from check_size(live, words)
    if text is not None:
        if not live.embeds:
            raise InvalidInput("a text needs an embedder: Retriever(..., embed=...), or pass vector=")
        _check_query_text(text)
        rows = yield Embed((text,), "query")
        vector = embedding_matrix(rows, 1, live.dims)[0]
    schema = live.schema if live.schema.vector.dims is not None else (yield from known_schema(live))
    what = "vector" if text is None else "the embedder's vector"
    data = vector_bytes(vector, dims_of(schema), schema.vector.metric, what)
    command = asked.command(words, data)
    (reply,), seconds = yield Ask((command,))
    hits, reasons = shape.hits(parsed(command, reply))
    if max_distance is not None:
        hits = [each for each in hits if each.score <= max_distance]
    stats = {"search_ms": 1000 * seconds}
    if chosen is not None and hits:
        # Copies: what the reranker does to its hits is not done to ours.
        copies = [replace(each, fields=dict(each.fields)) for each in hits]
        answer = yield Call(chosen, (text, copies))
        hits = [
            replace(each, rerank_score=score, text="" if shape.lent else each.text)
            for each, score in ranked(answer, hits, k)
        ]
    if seconds * 1000 >= asked.timeout_ms:
        # Neither engine says in RESP2 that it stopped early.
        reasons += (f"the engine took {seconds * 1000:.0f} ms of its {asked.timeout_ms} and may have stopped early",)
    if live.filling and (yield from still_filling(live)):
        reasons += ("the index is still being filled",)
    return Hits(hits if len(hits) <= k else hits[:k], complete=not reasons, reasons=reasons, stats=stats)


def query_many(live: Live, reranker: Reranker | None, queries: Iterable[Query]) -> Plan[list[Hits[Hit] | Exception]]:
    """Every query's hits or its own error, in one embedder call and one round trip."""
    return (yield from each_alone("query", Query, partial(query, live, reranker), queries))


def each_alone(
    name: str, arguments: type, ask: Callable[..., Plan[Hits[H]]], questions: object
) -> Plan[list[Hits[H] | Exception]]:
    """Every question's hits or its own error, in shared steps.

    name: of the operation, for messages. arguments: the TypedDict of what one question may say.
    ask: the operation, told one question's arguments. questions: the user's, unchecked.
    """
    if isinstance(questions, (str, bytes, Mapping)) or not isinstance(questions, Iterable):
        raise InvalidInput(f"{name}_many takes a list of mappings, each with the arguments of {name}")
    asked = list(questions)
    for each in asked:
        if not isinstance(each, Mapping):  # no question at all: every other one would be wrong in the same way
            raise InvalidInput(f"{name}_many: each question is a mapping, as {{'text': ...}}, not {each!r:.80}")

    def checked(each: Mapping[str, Any]) -> Plan[Hits[H]]:
        """A question whose wrong argument names are its own error, not the whole call's."""
        if not set(each) <= arguments.__annotations__.keys():
            raise InvalidInput(f"{name}_many: the arguments of {name} by name expected, not {each!r}")
        return (yield from ask(**each))

    return (yield from together([checked(each) for each in asked]))


# --- what comes back ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """Which hash fields a search returns, and how a row of them becomes a Hit.

    returned: their names, the text (if asked for) first and the vector (likewise) last.
    fields: what stands in between.
    lent: the text is returned for the reranker only.
    read_whole: rows in which nothing is absent -> hits; anything else makes it stumble.
    """

    returned: tuple[str, ...]
    fields: tuple[Field, ...]
    prefix: bytes
    text: bool
    vector: bool
    lent: bool
    read_whole: Callable[[Sequence[Any]], list[Hit]]

    def hits(self, rows: Rows) -> tuple[list[Hit], tuple[str, ...]]:
        """The hits, nearest first, ties by id; and why they may not be all."""
        reasons = rows.warnings
        try:
            hits = self.read_whole(rows.rows)
        except (TypeError, ValueError, AttributeError):
            hits, reasons = self._one_by_one(rows)
        if not isfinite(sum(map(_SCORE, hits))):
            # The distance to a zero or NaN vector, which is never one of ours.
            sound = [each for each in hits if isfinite(each.score)]
            reasons += (_foreign(len(hits) - len(sound)),)
            hits = sound
        hits.sort(key=_NEAREST)
        return hits, reasons

    def ranking(self, rows: Rows) -> tuple[list[tuple[str, float]], tuple[str, ...]]:
        """(id, distance) alone, as ``hits`` orders them; and why they may not be all."""
        start = len(self.prefix)
        try:
            pairs = [(key[start:].decode(), float(row[0])) for key, row in rows.rows]  # type: ignore[arg-type, index]
        except (TypeError, ValueError):
            pairs = [("", nan)]
        if not isfinite(sum(map(_DISTANCE, pairs))):
            hits, reasons = self.hits(rows)
            return [(hit.id, hit.score) for hit in hits], reasons
        pairs.sort(key=_CLOSEST)
        return pairs, rows.warnings

    def _one_by_one(self, rows: Rows) -> tuple[list[Hit], tuple[str, ...]]:
        """The same where a field is absent, a key has expired, or another program wrote under our prefix."""
        hits: list[Hit] = []
        expired = foreign = 0
        for key, values in rows.rows:
            if values is None:
                expired += 1
                continue
            try:
                distance = float(values[0])  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                raise ReplyError(f"FT.SEARCH: a row without a readable distance: {error}") from error
            try:
                hits.append(self._hit(key, distance, values))
            except ValueError:
                foreign += 1
        reasons = rows.warnings
        if expired:
            reasons += (f"{expired} hits expired while the engine was answering",)
        if foreign:
            reasons += (_foreign(foreign),)
        return hits, reasons

    def _hit(self, key: bytes, distance: float, values: Sequence[bytes | None]) -> Hit:
        vector = values[-1] if self.vector else None
        stored = zip(self.fields, values[1 + self.text :], strict=False)
        return Hit(
            key[len(self.prefix) :].decode(),
            distance,
            (values[1] or b"").decode() if self.text else "",
            {field.name: field.read(value) for field, value in stored if value is not None},
            None if vector is None else vector_from_bytes(vector),
        )


def _whole_reader(
    fields: Sequence[Field], prefix: bytes, *, text: bool, vector: bool
) -> Callable[[Sequence[Any]], list[Hit]]:
    """The loop over rows written out for one shape, as dataclasses write out their ``__init__``.

    It runs right after the wait for the server, when the processor's caches are cold and Python takes three
    times as long as in a loop of its own; written out it takes half of what it takes in general.
    Only names of declared fields enter the source, and those are identifiers.
    """
    places = ["distance", *(["text"] if text else []), *(f"v{at}" for at in range(len(fields)))]
    readers: dict[str, Any] = {"Hit": Hit, "vector_from_bytes": vector_from_bytes}
    cells = []
    for at, field in enumerate(fields):
        readers[f"read{at}"] = field.read
        value = f"read{at}(v{at})"
        if field.plain:
            value = f"v{at}.decode() if v{at}.isascii() else {value}"
        cells.append(f"{field.name!r}: {value}")
    source = (
        f"lambda rows: [Hit(key[{len(prefix)}:].decode(), float(distance), {'text.decode()' if text else repr('')}, "
        f"{{{', '.join(cells)}}}{', vector_from_bytes(vector)' if vector else ''}) "
        f"for key, ({', '.join([*places, *(['vector'] if vector else [])])},) in rows]"
    )
    reader: Callable[[Sequence[Any]], list[Hit]] = eval(source, readers)
    return reader


def _foreign(rows: int) -> str:
    return f"{rows} rows hold values that this library did not write"


_SCORE = attrgetter("score")
_NEAREST = attrgetter("score", "id")
_DISTANCE = itemgetter(1)
_CLOSEST = itemgetter(1, 0)


class _Asked(NamedTuple):
    """What of a query repeats from call to call, checked and put together: all but its text, vector and filter."""

    knn: str
    command: Callable[[str, bytes], Command[Rows]]
    shape: Shape
    timeout_ms: int


def _asked(
    live: Live,
    k: int,
    candidates: int | None,
    return_fields: Iterable[str] | None,
    return_vectors: bool,
    ef_runtime: int | None,
    timeout_ms: int | None,
    reranks: bool,
) -> _Asked:
    names = None if return_fields is None else field_names(return_fields)
    # With their types, since True and 1.0 are found under 1.
    numbers = (k, candidates, ef_runtime, timeout_ms)
    key = (*numbers, *map(type, numbers), names, return_vectors, type(return_vectors), reranks)
    try:
        found: _Asked | None = live.asked.get(key)
    except TypeError:  # unhashable, so no number at all: the checks below name it
        found = None
    if found is None:
        check_bool("return_vectors", return_vectors)
        depth = _depth(check_k(k), candidates, reranks=reranks)
        timeout_ms = check_timeout(timeout_ms)
        knn = knn_clause(live.schema, depth, ef_runtime)
        wanted = shape(live.schema, names, return_vectors=return_vectors, with_text=reranks)
        found = _Asked(knn, search_command(live.schema, depth, wanted.returned, timeout_ms), wanted, timeout_ms)
        if len(live.asked) < 64:  # arbitrary: a service asks in a handful of ways
            live.asked[key] = found
    return found


def field_names(return_fields: object) -> tuple[str, ...]:
    """The names in a list of them."""
    if not isinstance(return_fields, str) and isinstance(return_fields, Iterable):
        names = tuple(return_fields)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidInput(f"return_fields: a list of names expected, not {return_fields!r}")


def shape(
    schema: Schema, return_fields: Sequence[str] | None, *, return_vectors: bool = False, with_text: bool = False
) -> Shape:
    """What a search shall return. InvalidInput on a name that is neither declared nor TEXT_FIELD."""
    names = returned_names(schema, return_fields)
    lent = with_text and TEXT_FIELD not in names
    if lent:
        names.append(TEXT_FIELD)
    text = TEXT_FIELD in names
    fields = tuple(schema.by_name[name] for name in names if name != TEXT_FIELD)
    prefix = schema.prefix.encode()
    return Shape(
        returned=(
            *([TEXT_FIELD] if text else []),
            *(exact_field(field.name) if isinstance(field, Numeric) else field.name for field in fields),
            *([schema.vector.name] if return_vectors else []),
        ),
        fields=fields,
        prefix=prefix,
        text=text,
        vector=return_vectors,
        lent=lent,
        read_whole=_whole_reader(fields, prefix, text=text, vector=return_vectors),
    )


def returned_names(schema: Schema, return_fields: Sequence[str] | None) -> list[str]:
    """The text and declared fields that were asked for, each once; all of them for None."""
    if return_fields is None:
        return [TEXT_FIELD, *schema.by_name]
    for name in return_fields:
        if name != TEXT_FIELD and name not in schema.by_name:
            declared = ", ".join(schema.by_name) or "none"
            raise InvalidInput(f"return_fields: unknown field {name!r}; declared: {declared}")
    return list(dict.fromkeys(return_fields))


# --- what goes in ---------------------------------------------------------------------------------


def reranker_of(live: Live, rerank: object, default: Reranker | None, text: str | None) -> Reranker | None:
    """The reranker of a call: its own, the constructor's for True, none for False."""
    if rerank is False:
        return None
    chosen = default if rerank is True else rerank
    if chosen is None:
        raise InvalidInput("rerank=True needs a reranker: Retriever(..., rerank=...)")
    if text is None:
        raise InvalidInput("rerank compares texts: it needs text=, not vector=")
    return live.check_callable(chosen, "rerank")


def _depth(k: int, candidates: int | None, *, reranks: bool) -> int:
    if not reranks:
        if candidates is not None:
            raise InvalidInput("candidates are what a reranker sees; pass rerank too")
        return k
    if candidates is None:
        return min(4 * k, MAX_K)
    return check_int("candidates", candidates, MAX_K, least=k)


def _check_query_text(text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"text: a string with something in it expected, not {text!r}")
    utf8(text, "text")
