"""Asking: ``query``, and many at once.

What the engine leaves undone is done here: order (RediSearch returns rows in document order), the
signs of an answer that is not whole, and the check of what a reranker gave back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from math import isfinite
from operator import attrgetter
from typing import Any, TypedDict

import numpy.typing as npt

from fields.errors import InvalidInput
from fields.filters import number
from fields.kinds import Numeric
from fields.names import TEXT_FIELD, exact_field
from fields.vectors import embedding_matrix, vector_bytes, vector_from_bytes
from retriever.documents import Hit, Hits, hit
from retriever.errors import ReplyError
from retriever.operations.index import Live, check_size, known_schema
from retriever.plans import Ask, Call, Embed, Plan, parsed, together
from retriever.queries import (
    MAX_K,
    FilterSpec,
    build_ft_search_query,
    check_int,
    check_k,
    check_timeout,
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
    check_k(k)
    if (text is None) == (vector is None):
        raise InvalidInput("query takes one of text and vector, not " + ("both" if text is not None else "neither"))
    chosen = _reranker(live, rerank, reranker, text)
    depth = _depth(k, candidates, chosen)
    if max_distance is not None:
        number(max_distance, "max_distance")
    timeout_ms = check_timeout(timeout_ms)
    shape = _shape(live, return_fields, return_vectors, with_text=chosen is not None)
    words = build_ft_search_query(live.schema, depth, filter, ef_runtime=ef_runtime)
    if len(words) > 2_000:  # the check itself is not free
        yield from check_size(live, words)
    if text is not None:
        if not live.embeds:
            raise InvalidInput("a text needs an embedder: Retriever(..., embed=...), or pass vector=")
        _check_query_text(text)
        rows = yield Embed((text,), "query")
        vector = embedding_matrix(rows, 1, live.dims)[0]
    schema = live.schema if live.dims is not None else (yield from known_schema(live))
    data = _query_bytes(schema, vector, "the embedder's vector" if text is not None else "vector")
    command = search_command(schema, words, data, depth, shape.returned, timeout_ms)
    (reply,), seconds = yield Ask((command,))
    hits, reasons = shape.hits(parsed(command, reply))
    if max_distance is not None:
        hits = [each for each in hits if each.score <= max_distance]
    stats = {"search_ms": 1000 * seconds}
    if chosen is not None and hits:
        answer = yield Call(chosen, (text, list(hits)))
        hits = [
            replace(each, rerank_score=score, text="" if shape.lent else each.text)
            for each, score in ranked(answer, hits, k)
        ]
    if seconds * 1000 >= timeout_ms:
        # Neither engine says in RESP2 that it stopped early.
        reasons += (f"the engine took {seconds * 1000:.0f} ms of its {timeout_ms} and may have stopped early",)
    if live.filling:
        reasons += ("the index is still being filled",)
    return Hits(hits[:k], complete=not reasons, reasons=reasons, stats=stats)


def query_many(live: Live, reranker: Reranker | None, queries: Iterable[Query]) -> Plan[list[Hits[Hit] | Exception]]:
    """Every query's hits or its own error, in one embedder call and one round trip."""
    if isinstance(queries, (str, bytes, Mapping)) or not isinstance(queries, Iterable):
        raise InvalidInput("query_many takes a list of mappings, each with the arguments of query")
    return (yield from together([_checked(live, reranker, each) for each in queries]))


def _checked(live: Live, reranker: Reranker | None, each: Query) -> Plan[Hits[Hit]]:
    """A query whose wrong argument names are its own error, not the whole call's."""
    if not isinstance(each, Mapping) or not set(each) <= Query.__annotations__.keys():
        raise InvalidInput(f"query_many: the arguments of query by name expected, not {each!r}")
    return (yield from query(live, reranker, **each))


# --- what comes back ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """Which hash fields a search returns, and how a row of them becomes a Hit.

    returned: their names, the text (if asked for) first and the vector (likewise) last.
    readers: for the fields in between, name and how a stored value is read.
    lent: the text is returned for the reranker only.
    """

    returned: tuple[str, ...]
    readers: tuple[tuple[str, Callable[[bytes], Any]], ...]
    prefix: bytes
    text: bool
    vector: bool
    lent: bool = False

    def hits(self, rows: Rows) -> tuple[list[Hit], tuple[str, ...]]:
        """The hits, nearest first, ties by id; and why they may not be all."""
        found = [(key, values) for key, values in rows.rows if values is not None]
        reasons = rows.warnings
        if len(found) < len(rows.rows):
            reasons += (f"{len(rows.rows) - len(found)} hits expired while the engine was answering",)
        try:
            hits = self._read(found)
        except ValueError:
            # Another program wrote a hash under our prefix; our own writes are all checked.
            hits = []
            for row in found:
                with suppress(ValueError):
                    hits += self._read([row])
            reasons += (f"{len(found) - len(hits)} rows hold values that this library did not write",)
        hits.sort(key=_NEAREST)
        return hits, reasons

    def _read(self, rows: Sequence[tuple[bytes, Sequence[bytes | None]]]) -> list[Hit]:
        """Rows -> hits, column by column, which takes half the time of row by row. ValueError if one is unreadable."""
        if not rows:
            return []
        keys, values = zip(*rows, strict=True)
        columns = list(zip(*values, strict=True))
        skip = len(self.prefix)
        ids = [key[skip:].decode() for key in keys]
        distances = _distances(columns[0])
        texts = [(value or b"").decode() for value in columns[1]] if self.text else repeat("")
        fields: list[dict[str, Any]] = [{} for _ in rows]
        for (name, read), column in zip(self.readers, columns[1 + self.text :], strict=False):
            for of_hit, value in zip(fields, column, strict=True):
                if value is not None:
                    of_hit[name] = read(value)
        vectors = [value and vector_from_bytes(value) for value in columns[-1]] if self.vector else repeat(None)
        return list(map(hit, ids, distances, texts, fields, vectors))


_NEAREST = attrgetter("score", "id")


def _distances(column: Sequence[bytes | None]) -> list[float]:
    try:
        distances = list(map(float, column))  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ReplyError(f"FT.SEARCH: a row without a readable distance: {error}") from error
    if not all(map(isfinite, distances)):
        raise ValueError("a distance to a zero or NaN vector, which another program wrote")
    return distances


def _shape(live: Live, return_fields: Iterable[str] | None, return_vectors: bool, *, with_text: bool) -> Shape:
    names = _names(return_fields)
    key = (names, bool(return_vectors), with_text)
    found: Shape | None = live.shapes.get(key)
    if found is None:
        found = shape(live.schema, names, return_vectors=key[1], with_text=with_text)
        if len(live.shapes) < 64:  # arbitrary: a service asks in a handful of shapes
            live.shapes[key] = found
    return found


def _names(return_fields: Iterable[str] | None) -> tuple[str, ...] | None:
    if return_fields is None:
        return None
    if not isinstance(return_fields, str) and isinstance(return_fields, Iterable):
        names = tuple(return_fields)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidInput(f"return_fields: a list of names expected, not {return_fields!r}")


def shape(
    schema: Schema, return_fields: Sequence[str] | None, *, return_vectors: bool = False, with_text: bool = False
) -> Shape:
    """What a search shall return. InvalidInput on a name that is neither declared nor TEXT_FIELD."""
    names = [TEXT_FIELD, *schema.by_name] if return_fields is None else list(dict.fromkeys(return_fields))
    for name in names:
        if name != TEXT_FIELD and name not in schema.by_name:
            raise InvalidInput(
                f"return_fields: unknown field {name!r}; declared: {', '.join(schema.by_name) or 'none'}"
            )
    lent = with_text and TEXT_FIELD not in names
    if lent:
        names.append(TEXT_FIELD)
    text = TEXT_FIELD in names
    fields = [name for name in names if name != TEXT_FIELD]
    return Shape(
        returned=(
            *([TEXT_FIELD] if text else []),
            *(exact_field(name) if isinstance(schema.by_name[name], Numeric) else name for name in fields),
            *([schema.vector.name] if return_vectors else []),
        ),
        readers=tuple((name, schema.by_name[name].read) for name in fields),
        prefix=schema.prefix.encode(),
        text=text,
        vector=return_vectors,
        lent=lent,
    )


# --- what goes in ---------------------------------------------------------------------------------


def _reranker(live: Live, rerank: object, default: Reranker | None, text: str | None) -> Reranker | None:
    if rerank is None or rerank is False:
        return None
    chosen = default if rerank is True else rerank
    if chosen is None:
        raise InvalidInput("rerank=True needs a reranker: Retriever(..., rerank=...)")
    if text is None:
        raise InvalidInput("rerank compares texts: it needs text=, not vector=")
    return live.check_callable(chosen, "rerank")


def _depth(k: int, candidates: int | None, reranker: Reranker | None) -> int:
    if reranker is None:
        if candidates is not None:
            raise InvalidInput("candidates are what a reranker sees; pass rerank too")
        return k
    if candidates is None:
        return min(4 * k, MAX_K)
    return check_int("candidates", candidates, MAX_K, least=k)


def _check_query_text(text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"text: a string with something in it expected, not {text!r}")


def _query_bytes(schema: Schema, vector: Any, what: str) -> bytes:
    dims = schema.vector.dims
    if dims is None:
        raise InvalidInput(f"the live index {schema.name!r} has no vector {schema.vector.name!r}")
    return vector_bytes(vector, dims, schema.vector.metric, what)
