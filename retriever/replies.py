"""Replies of both protocols and both engines -> rows, index info, server. The only place that parses.

RESP2 sends lists of alternating names and values, RESP3 maps; Valkey Search sends the lists in both.
Every reply comes undecoded, as bytes. What cannot be read is a ReplyError, never an empty result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import chain
from typing import Any, NamedTuple, ParamSpec, TypeVar

from fields.filters import TAG_SEPARATOR
from retriever.engines import Server, identify
from retriever.errors import ReplyError

P = ParamSpec("P")
T = TypeVar("T")
_BYTES = {bytes}


def _reading(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Turn whatever a misshapen reply makes a parser stumble over into a ReplyError."""

    def decorate(parse: Callable[P, T]) -> Callable[P, T]:
        @wraps(parse)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return parse(*args, **kwargs)
            except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
                raise ReplyError(f"{what}: unreadable reply ({type(error).__name__}: {error})") from error

        return guarded

    return decorate


class Rows(NamedTuple):
    """An FT.SEARCH reply: the engine's total, (key, values) in its order, and its warnings.

    Values stand in the order in which they were asked for, None for a field that the document lacks;
    there are no values at all where the key expired while the engine was answering.
    """

    total: int
    rows: list[tuple[bytes, Sequence[bytes | None] | None]]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An FT.INFO reply, the same for every engine.

    attributes: name -> type (TEXT, TAG, NUMERIC, VECTOR) and, for a TAG, whether it is ``exact``
    (case-sensitive, our separator); for a VECTOR algorithm, dims, metric, m, ef_construction.
    records: entries in its lists of who holds which term, those of overwritten documents too until they are swept out.
    """

    name: str
    prefixes: tuple[str, ...]
    attributes: Mapping[str, Mapping[str, Any]]
    documents: int
    indexing: bool
    percent_indexed: float
    failures: int
    records: int
    last_error: str | None
    last_error_key: str | None


def whole(infos: Sequence[IndexInfo], *, arriving: bool) -> IndexInfo:
    """The index of which each reply tells one shard; arriving: there are nodes that do not know it yet."""
    first = infos[0]
    failed = next((info for info in infos if info.failures), first)
    return replace(
        first,
        documents=sum(info.documents for info in infos),
        indexing=arriving or any(info.indexing for info in infos),
        percent_indexed=min(info.percent_indexed for info in infos),
        failures=sum(info.failures for info in infos),
        records=sum(info.records for info in infos),
        last_error=failed.last_error,
        last_error_key=failed.last_error_key,
    )


@_reading("FT.SEARCH")
def search_rows(reply: Any, returned: list[bytes], limit: int | None = None) -> Rows:
    """The rows of an FT.SEARCH reply; returned: the names that RETURN asked for, in that order.

    limit: how many rows were asked for. A reply that names more matches than it gives rows has a warning that says so.
    """
    if type(reply) is list:
        keys, answers = reply[1::2], reply[2::2]
        if len(keys) != len(answers):
            raise ValueError("a key without its row")
        # Engines answer in the order asked for, and mostly nothing is absent: read at once what is so.
        whole = [row[1::2] for row in answers if type(row) is list and row[::2] == returned]
        if len(whole) == len(keys) and set(map(type, chain(keys, *whole))) <= _BYTES:
            if sum(map(len, whole)) != len(whole) * len(returned):
                raise ValueError("a name without its value")
            rows: list[Any] = list(zip(keys, whole))  # noqa: B905 - as many, and strict costs as much again
        else:
            rows = [(_bytes(key), _values(row, returned)) for key, row in zip(keys, answers, strict=True)]
        return _counted(_total(reply[0]), rows, limit)
    warnings = tuple(_text(each) for each in _list(reply.get(b"warning", [])))
    results = _list(reply[b"results"])
    if warnings:  # a search that ran out of time answers with a row that has no id (RediSearch 2.10)
        results = [row for row in results if b"id" in row]
    rows = [(_bytes(row[b"id"]), _values(row.get(b"extra_attributes"), returned)) for row in results]
    return _counted(_total(reply[b"total_results"]), rows, limit, warnings)


def _counted(total: int, rows: list[Any], limit: int | None, warnings: tuple[str, ...] = ()) -> Rows:
    if limit is not None and len(rows) < total and len(rows) < limit:
        warnings += (f"the engine found {min(total, limit)} and gave {len(rows)}",)
    return Rows(total, rows, warnings)


@_reading("FT.SEARCH")
def search_total(reply: Any) -> int:
    """The number of matches that an FT.SEARCH reply names."""
    return _total(reply[b"total_results"] if isinstance(reply, Mapping) else reply[0])


def _total(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"total {value!r}")
    return value


@_reading("FT.INFO")
def index_info(reply: Any) -> IndexInfo:
    """What FT.INFO tells of an index."""
    info = as_dict(reply)
    definition = as_dict(info[b"index_definition"])
    errors = as_dict(info.get(b"Index Errors", []))
    percent = float(info.get(b"percent_indexed", info.get(b"backfill_complete_percent", 1)))
    state = info.get(b"indexing", info.get(b"backfill_in_progress", 0))
    return IndexInfo(
        name=_text(info[b"index_name"]),
        prefixes=tuple(_text(each) for each in _list(definition[b"prefixes"])),
        attributes=dict(_attribute(each) for each in _list(info[b"attributes"])),
        documents=int(float(info[b"num_docs"])),
        indexing=bool(int(state)),
        percent_indexed=min(100.0, max(0.0, 100 * percent)),
        failures=int(info.get(b"hash_indexing_failures", 0)),
        records=int(float(info.get(b"num_records", 0))),
        last_error=_unless_none(errors.get(b"last indexing error")),
        last_error_key=_unless_none(errors.get(b"last indexing error key")),
    )


@_reading("FT.INFO")
def index_prefixes(reply: Any) -> tuple[bytes, ...]:
    """What the keys of an index start with. Nothing else is read of it: it may be another program's, of any kind."""
    definition = as_dict(as_dict(reply)[b"index_definition"])
    prefixes = tuple(_bytes(each) for each in _list(definition[b"prefixes"]))
    return prefixes or (b"",)  # without a prefix it takes every key


@_reading("FT._LIST")
def index_names(reply: Any) -> list[str]:
    """The names that FT._LIST answers (a list, or a set in RESP3).

    A name that another program wrote may be no text: ``encode(errors="surrogateescape")`` gives its bytes back.
    """
    if not isinstance(reply, (list, set, frozenset)):
        raise TypeError(f"a list expected, not {type(reply).__name__}")
    return sorted(each if isinstance(each, str) else _bytes(each).decode(errors="surrogateescape") for each in reply)


@_reading("HELLO")
def server(reply: Any) -> Server:
    """The server that HELLO describes."""
    hello = as_dict(reply)
    modules = [as_dict(each) for each in _list(hello[b"modules"])]
    return identify(
        _text(hello[b"server"]),
        _text(hello[b"version"]),
        _text(hello[b"mode"]),
        {_text(each[b"name"]): int(each[b"ver"]) for each in modules},
    )


@_reading("CLIENT INFO")
def database(reply: Any) -> int:
    """The number of the database that the asking client has selected."""
    (number,) = re.findall(r"\bdb=(\d+)", _text(reply))
    return int(number)


@_reading("HGETALL")
def text_map(reply: Any) -> dict[str, str]:
    """A hash of texts, as HGETALL answers it."""
    return {_text(name): _text(value) for name, value in as_dict(reply).items()}


@_reading("SCAN")
def scan_page(reply: Any) -> tuple[int, list[bytes]]:
    """The next cursor (0 at the end; some clients read it as an int, some leave it) and the keys of one SCAN reply."""
    cursor, keys = reply
    if isinstance(cursor, dict):  # a cluster's client puts the one node's name before it
        (cursor,) = cursor.values()
    return int(cursor), [_bytes(key) for key in _list(keys)]


@_reading("HMGET")
def values(reply: Any) -> list[bytes | None]:
    """The values of an HMGET reply, in the order asked for."""
    return [None if each is None else _bytes(each) for each in _list(reply)]


@_reading("reply")
def integer(reply: Any) -> int:
    """A whole number."""
    if not isinstance(reply, int):  # a borrowed client makes a bool of some
        raise TypeError(f"an integer expected, not {reply!r}")
    return int(reply)


def done(reply: Any) -> None:
    """The reply of a command that answers nothing but that it was done."""


def as_dict(reply: Any) -> dict[Any, Any]:
    """A map, or a list of alternating names and values, as a dict.

    RediSearch mixes bare flags into the attributes of FT.INFO (``... CASESENSITIVE NOSTEM``); those
    are read where they stand, by ``_attribute``.
    """
    if isinstance(reply, Mapping):
        return dict(reply)
    if not isinstance(reply, list) or len(reply) % 2:
        raise TypeError("alternating names and values expected")
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _attribute(reply: Any) -> tuple[str, dict[str, Any]]:
    flags: Iterable[Any] = ()
    if isinstance(reply, Mapping):
        attribute = dict(reply)
        flags = attribute.get(b"flags", ())
    else:
        attribute, flags = _with_flags(reply)
    read: dict[str, Any] = {"type": _text(attribute[b"type"])}
    if read["type"] == "TAG":
        sensitive = b"CASESENSITIVE" in flags or attribute.get(b"CASESENSITIVE") == b"1"
        read["exact"] = sensitive and _text(attribute.get(b"SEPARATOR", b"")) == TAG_SEPARATOR
    if read["type"] == "VECTOR":
        read |= _vector_attribute(attribute)
    return _text(attribute.get(b"identifier", attribute.get(b"attribute"))), read


def _vector_attribute(attribute: dict[Any, Any]) -> dict[str, Any]:
    nested = attribute.get(b"index")
    if nested is not None:  # Valkey Search
        index = as_dict(nested)
        algorithm = as_dict(index[b"algorithm"])
        name, dims, metric = algorithm[b"name"], index[b"dimensions"], index[b"distance_metric"]
        m, ef_construction = algorithm.get(b"m"), algorithm.get(b"ef_construction")
    else:
        name, dims, metric = attribute[b"algorithm"], attribute[b"dim"], attribute[b"distance_metric"]
        m, ef_construction = attribute.get(b"M"), attribute.get(b"ef_construction")
    read = {"algorithm": _text(name), "dims": int(dims), "metric": _text(metric)}
    if read["algorithm"] == "HNSW":
        read |= {"m": int(m), "ef_construction": int(ef_construction)}  # type: ignore[arg-type]
    return read


_FLAGS = frozenset(b"NOSTEM CASESENSITIVE SORTABLE UNF NOINDEX WITHSUFFIXTRIE INDEXEMPTY INDEXMISSING".split())


def _with_flags(reply: list[Any]) -> tuple[dict[Any, Any], set[Any]]:
    """Alternating names and values with bare flags among them; a flag's name followed by b"0"/b"1" is a pair."""
    pairs: dict[Any, Any] = {}
    flags: set[Any] = set()
    at = 0
    while at < len(reply):
        name = reply[at]
        valued = at + 1 < len(reply) and reply[at + 1] in (b"0", b"1")
        if name in _FLAGS and not valued:
            flags.add(name)
            at += 1
        else:
            pairs[name] = reply[at + 1]
            at += 2
    return pairs, flags


def _values(row: Any, returned: list[bytes]) -> Sequence[bytes | None] | None:
    if row is None:
        return None
    pairs = as_dict(row)
    return [_bytes(pairs[name]) if name in pairs else None for name in returned]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list expected, not {type(value).__name__}")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"bytes expected, not {value!r}")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(_bytes(value)).decode()


def _unless_none(value: Any) -> str | None:
    # A foreign key under the prefix may be no text at all.
    text = value if value is None or isinstance(value, str) else _bytes(value).decode(errors="backslashreplace")
    return None if text in (None, "", "N/A") else text
