"""Query strings and argument lists. Pure: a schema and values in, words out.

One spelling serves both engines: ``KNN k`` with ``LIMIT 0 k`` and never SORTBY, which Valkey Search
refuses (the set of hits is the same without; we sort). Numbers stand inline, the vector is the only
parameter, since Valkey Search refuses a parameter that is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from fields.errors import InvalidInput
from fields.filters import MAX_ALTERNATIVES_NEGATED, Filter, as_filter, filter_alternatives, filter_text, number
from fields.names import SCORE_FIELD
from retriever.engines import LEAST_QUERY_BYTES, Engine
from retriever.plans import Arg, Command, Node
from retriever.replies import Rows, scan_page, search_rows, search_total
from retriever.schema import Schema

MAX_K = 10_000  # Valkey Search's limit; RediSearch takes more and slows down
MAX_EF_RUNTIME = 40_000  # accepted by both engines
MAX_TIMEOUT_MS = 60_000  # Valkey Search's limit
DEFAULT_TIMEOUT_MS = 5_000  # arbitrary: a query of a million documents takes milliseconds

FilterSpec = Filter | Mapping[str, Any] | None


def build_ft_search_query(schema: Schema, k: int, filter: FilterSpec = None, *, ef_runtime: int | None = None) -> str:
    """The query string of a nearest-neighbour search: ``(filter)=>[KNN k @embedding $vec ... AS __score]``.

    Pure. Dialect 2; ``vec`` is its only parameter, so ``PARAMS 2 vec <4 * dims bytes>`` completes it.
    k: an int from 1 to 10,000. filter: a Filter, a mapping, or None for ``*``.
    ef_runtime: how many vectors HNSW keeps in view, 1 to 40,000; max(100, 4k) unless said (here or in the
        schema); an error for FLAT, which looks at all.
    Raises InvalidInput: a wrong k or ef_runtime, an unknown or unfilterable field, a value that the
    field cannot hold.

    >>> from retriever import Numeric, Schema, Tag
    >>> schema = Schema("docs", [Tag("category"), Numeric("year")])
    >>> build_ft_search_query(schema, 3, {"category": "R&D", "year": {"gte": 2020}})
    '(@category:{R\\\\&D} @year:[2020 inf])=>[KNN 3 @embedding $vec EF_RUNTIME 100 AS __score]'
    """
    knn = knn_clause(schema, check_k(k), ef_runtime)
    checked = as_filter(filter, schema.by_name)
    return f"{'*' if checked is None else filter_text(checked)}=>{knn}"


def knn_clause(schema: Schema, k: int, ef_runtime: int | None) -> str:
    """What follows the ``=>``: how many, of which vector, and how hard to look for them."""
    vector = schema.vector
    if vector.algorithm == "HNSW":
        if ef_runtime is None:
            # The engines' default of 10 finds 0.60 of the true ten, 100 finds 0.99 (benchmarks/recall.py).
            ef_runtime = vector.ef_runtime or max(100, 4 * k)
        check_int("ef_runtime", ef_runtime, MAX_EF_RUNTIME)
        return f"[KNN {k} @{vector.name} $vec EF_RUNTIME {ef_runtime} AS {SCORE_FIELD}]"
    if ef_runtime is not None:
        raise InvalidInput("ef_runtime means nothing to FLAT, which looks at every vector")
    return f"[KNN {k} @{vector.name} $vec AS {SCORE_FIELD}]"


def search_command(
    schema: Schema, k: int, returned: Sequence[str], timeout_ms: int
) -> Callable[[str, bytes], Command[Rows]]:
    """FT.SEARCH for the k nearest, with exactly the named hash fields and the distance.

    Takes the query string and the vector's bytes when they are known; the rest is put together once.
    """
    tail: tuple[Arg, ...] = ("RETURN", len(returned) + 1, SCORE_FIELD, *returned)
    tail += ("LIMIT", 0, k, "TIMEOUT", timeout_ms, "DIALECT", 2)
    parse = partial(search_rows, returned=[SCORE_FIELD.encode(), *map(str.encode, returned)], limit=k)

    def command(query: str, vector: bytes) -> Command[Rows]:
        return Command(("FT.SEARCH", schema.name, query, "PARAMS", 2, "vec", vector, *tail), parse)

    return command


def count_command(schema: Schema, filter: Filter, timeout_ms: int) -> Command[int]:
    """FT.SEARCH that only counts the documents that pass a filter."""
    return Command(
        ("FT.SEARCH", schema.name, filter_text(filter), "LIMIT", 0, 0, "TIMEOUT", timeout_ms, "DIALECT", 2),
        search_total,
    )


def term_clause(attributes: Sequence[str], term: str) -> str:
    """The documents that hold a term in any of the analysed copies. Terms are letters, digits and ``_``: no syntax."""
    clauses = [f"@{attribute}:{term}" for attribute in attributes]
    return clauses[0] if len(clauses) == 1 else f"({'|'.join(clauses)})"


def ranking_query(clauses: Sequence[str], filter: Filter | None) -> str:
    """Any of the clauses, within the filter, for an engine that ranks what it finds.

    Beside an OR, a filter changes its text scores (RediSearch 2.10.5), so it is put beside each clause where that
    keeps the answer right and the string short.
    """
    union = "|".join(clauses)
    if filter is None:
        return f"({union})"
    alternatives, negated = filter_alternatives(filter)
    few = len(clauses) <= (MAX_ALTERNATIVES_NEGATED if negated else _MAX_DISTRIBUTED // len(alternatives[0]))
    if len(alternatives) == 1 and few:
        return f"({'|'.join(f'({alternatives[0]} {clause})' for clause in clauses)})"
    return f"({'|'.join(f'({alternative} ({union}))' for alternative in alternatives)})"


_MAX_DISTRIBUTED = 65_536  # bytes of a filter that is repeated; arbitrary


def set_queries(sets: Sequence[Sequence[str]], filter: Filter | None, engine: Engine) -> list[str]:
    """Queries whose answers together are the documents that hold all clauses of one of the sets, within the filter.

    As many as keep each one within the engine's limits, and within what RediSearch answers rightly.
    """
    alternatives, negated = ([""], False) if filter is None else filter_alternatives(filter)
    conjunctions = [
        f"({' '.join([alternative, *clauses] if alternative else clauses)})"
        for clauses in sets
        for alternative in alternatives
    ]
    most = MAX_ALTERNATIVES_NEGATED if negated else len(conjunctions)
    queries: list[str] = []
    current: list[str] = []
    size = held = 0
    for conjunction in conjunctions:
        # Valkey Search counts conditions: a term in each of its copies, and the filter's in each conjunction.
        length, conditions = len(conjunction.encode()) + 1, conjunction.count("@")
        full = engine.max_union is not None and held + conditions > engine.max_union
        if current and (full or len(current) >= most or size + length > LEAST_QUERY_BYTES - 2):
            queries.append(f"({'|'.join(current)})")
            current, size, held = [], 0, 0
        current.append(conjunction)
        size += length
        held += conditions
    return [*queries, f"({'|'.join(current)})"]


def text_command(
    schema: Schema, query: str, returned: Sequence[str], limit: int, timeout_ms: int, *, ranked: bool
) -> Command[Rows]:
    """FT.SEARCH by words, with the analysed copies; best first if the engine is to rank them, else in no order."""
    args: tuple[Arg, ...] = ("FT.SEARCH", schema.name, query, "VERBATIM", "RETURN", len(returned), *returned)
    if ranked:
        args += ("SCORER", "BM25STD")
    return Command(
        (*args, "LIMIT", 0, limit, "TIMEOUT", timeout_ms, "DIALECT", 2),
        partial(search_rows, returned=[*map(str.encode, returned)], limit=limit),
    )


def frequency_command(schema: Schema, query: str, timeout_ms: int) -> Command[int]:
    """FT.SEARCH that only counts the documents a query finds."""
    return Command(
        ("FT.SEARCH", schema.name, query, "VERBATIM", "LIMIT", 0, 0, "TIMEOUT", timeout_ms, "DIALECT", 2),
        search_total,
    )


def scan_command(prefix: str, node: Node | None, cursor: int, count: int) -> Command[tuple[int, list[bytes]]]:
    """One step of a walk over a node's hashes under a prefix; about ``count`` keys are looked at."""
    # MATCH takes a glob pattern: its own characters are escaped, so that the prefix stands for itself.
    pattern = re.sub(r"([*?\[\]\\^-])", r"\\\1", prefix) + "*"
    return Command(("SCAN", cursor, "MATCH", pattern, "COUNT", count, "TYPE", "hash"), scan_page, node)


def check_k(k: object) -> int:
    """k itself, or InvalidInput: an int (not a bool, not 3.0) from 1 to 10,000."""
    return check_int("k", k, MAX_K)


def check_timeout(timeout_ms: object) -> int:
    """The time-out itself, 5,000 for None, or InvalidInput: an int from 1 to 60,000."""
    return DEFAULT_TIMEOUT_MS if timeout_ms is None else check_int("timeout_ms", timeout_ms, MAX_TIMEOUT_MS)


def check_finite(name: str, value: object) -> None:
    """InvalidInput unless it is a finite number; a squared distance may be larger than a NUMERIC field takes."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInput(f"{name}: a number expected, not {value!r}")
    try:
        finite = isfinite(value)
    except OverflowError:  # an int that no float holds
        finite = False
    if not finite:
        raise InvalidInput(f"{name}: {value if isinstance(value, float) else 'the number'} is not finite")


def check_seconds(name: str, value: object, *, least: float = 0.0) -> float:
    """The value itself, or InvalidInput: a finite number of seconds, not less than ``least``."""
    seconds = number(value, name)
    if seconds < least:
        raise InvalidInput(f"{name} {value!r}: at least {least:g} seconds")
    return seconds


def check_bool(name: str, value: object) -> bool:
    """The value itself, or InvalidInput: True or False and nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{name}: True or False expected, not {value!r}")
    return value


def check_int(name: str, value: object, limit: int, least: int = 1) -> int:
    """The value itself, or InvalidInput: an int, not a bool, within its limits."""
    if type(value) is not int or not least <= value <= limit:
        raise InvalidInput(f"{name} {value!r}: an int from {least} to {limit:,}")
    return value
