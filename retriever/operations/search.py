"""Asking: ``query``, and many at once.

What the engine leaves undone is done here: order (RediSearch returns rows in document order), the
signs of an answer that is not whole, and the check of what a reranker gave back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, TypedDict

import numpy.typing as npt

from fields.errors import InvalidInput
from fields.filters import number
from fields.names import SCORE_FIELD, TEXT_FIELD
from fields.vectors import embedding_matrix, vector_bytes, vector_from_bytes
from retriever.documents import Hit, Hits
from retriever.errors import ReplyError
from retriever.operations.index import Live, known_schema
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
        hits = [hit for hit in hits if hit.score <= max_distance]
    stats = {"search_ms": 1000 * seconds}
    if chosen is not None and hits:
        answer = yield Call(chosen, (text, hits))
        hits = [replace(hit, rerank_score=score) for hit, score in ranked(answer, hits, k)]
    if seconds * 1000 >= timeout_ms:
        # Neither engine says in RESP2 that it stopped early.
        reasons += (f"the engine took {seconds * 1000:.0f} ms of its {timeout_ms} and may have stopped early",)
    if live.filling:
        reasons += ("the index is still being filled",)
    return Hits(hits[:k], complete=not reasons, reasons=reasons, stats=stats)


def query_many(live: Live, reranker: Reranker | None, queries: Iterable[Query]) -> Plan[list[Hits[Hit] | Exception]]:
    """Every query's hits or its own error, in one embedder call and one round trip."""
    if isinstance(queries, (str, bytes, Mapping)):
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
    """Which hash fields a search returns, and how a row of them becomes a Hit."""

    returned: tuple[str, ...]
    readers: tuple[tuple[bytes, str, Callable[[bytes], Any]], ...]
    prefix: bytes
    vector: bytes | None

    def hits(self, rows: Rows) -> tuple[list[Hit], tuple[str, ...]]:
        """The hits, nearest first, ties by id; and why they may not be all."""
        hits: list[Hit] = []
        expired = unreadable = 0
        skip, readers, vector_name = len(self.prefix), self.readers, self.vector
        for key, row in rows.rows:
            if row is None:
                expired += 1
                continue
            try:
                distance = float(row[_SCORE])
            except (KeyError, ValueError) as error:
                raise ReplyError(f"FT.SEARCH: a row without a readable distance ({error!r})") from error
            if not isfinite(distance):
                unreadable += 1
                continue
            try:
                hits.append(
                    Hit(
                        key[skip:].decode(),
                        distance,
                        row.get(_TEXT, b"").decode(),
                        {name: read(row[raw]) for raw, name, read in readers if raw in row},
                        vector_from_bytes(row[vector_name]) if vector_name is not None else None,
                    )
                )
            except (KeyError, ValueError):
                # Another program wrote this hash under our prefix; our own writes are all checked.
                unreadable += 1
        hits.sort(key=_nearest)
        reasons = rows.warnings
        if expired:
            reasons += (f"{expired} hits expired while the engine was answering",)
        if unreadable:
            reasons += (f"{unreadable} rows hold values that this library did not write",)
        return hits, reasons


_SCORE, _TEXT = SCORE_FIELD.encode(), TEXT_FIELD.encode()


def _nearest(hit: Hit) -> tuple[float, str]:
    return hit.score, hit.id


def _shape(live: Live, return_fields: Iterable[str] | None, return_vectors: bool, *, with_text: bool) -> Shape:
    if isinstance(return_fields, str):
        raise InvalidInput(f"return_fields: a list of names expected, not {return_fields!r}")
    key = (None if return_fields is None else tuple(return_fields), bool(return_vectors), with_text)
    found: Shape | None = live.shapes.get(key)
    if found is None:
        found = shape(live.schema, key[0], return_vectors=key[1], with_text=with_text)
        if len(live.shapes) < 64:  # arbitrary: a service asks in a handful of shapes
            live.shapes[key] = found
    return found


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
    if with_text and TEXT_FIELD not in names:
        names.append(TEXT_FIELD)
    readers = tuple((name.encode(), name, schema.by_name[name].read) for name in names if name != TEXT_FIELD)
    vector = schema.vector.name if return_vectors else None
    returned = (*names, vector) if vector else tuple(names)
    return Shape(returned, readers, schema.prefix.encode(), vector.encode() if vector else None)


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
