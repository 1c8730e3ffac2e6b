"""The kinds of fields: Text, Tag, Numeric, Stored, Vector.

Each knows its own FT.CREATE words, how a value is written and read, what an engine would lose (and
so refuses), and how it is filtered. Engines drop a whole document from the index for one bad field
while HSET says OK, so every value is checked before it is sent. Values are written by column, one
pass per field over a batch: row by row costs a quarter of the throughput.

``eq=False``: ``Tag("a") == "b"`` builds a Filter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from fields.errors import InvalidInput
from fields.filters import (
    MAX_EXACT,
    TAG_SEPARATOR,
    Filter,
    Kind,
    check_tag,
    decode_tag,
    number,
    number_in,
    number_range,
    tag_in,
)
from fields.names import check_field_name, terms_field, utf8
from fields.vectors import Metric

Word: TypeAlias = str | int


@dataclass(frozen=True, slots=True, eq=False)
class Tag:
    """An exact, case-sensitive string; with ``many=True`` a list of them.

    Filter with ``==``, ``!=``, ``isin``, ``contains``; on a list, equality means that the list holds
    the value. Any string is a value, the empty one too, up to 4,096 bytes.
    """

    name: str
    many: bool = False
    kind: ClassVar[Kind] = "TAG"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_field_name(self.name))
        if not isinstance(self.many, bool):
            raise InvalidInput(f"many of {self.name!r}: True or False expected, not {self.many!r}")

    @property
    def plain(self) -> bool:
        """Whether a stored value that is all ASCII is the value itself."""
        return not self.many

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]
        return tag_in(self.name, [other])

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]
        return ~tag_in(self.name, [other])

    __hash__ = object.__hash__

    def isin(self, values: Iterable[str]) -> Filter:
        """Documents that hold at least one of the values; an empty list is an error."""
        return tag_in(self.name, values)

    def contains(self, value: str) -> Filter:
        """Documents whose list holds the value; join with ``&`` to ask for several."""
        return tag_in(self.name, [value])

    def index_words(self) -> list[Word]:
        """FT.CREATE's words. Always case-sensitive; the separator is one no stored value can hold."""
        return [self.name, "TAG", "SEPARATOR", TAG_SEPARATOR, "CASESENSITIVE"]

    def write(self, values: Sequence[Any], ids: Sequence[str]) -> list[bytes]:
        """The values as stored bytes; InvalidInput names the document and the field."""
        if self.many:
            return [self._list(value, id) for value, id in zip(values, ids, strict=True)]
        try:
            return [
                value.encode() if value.isalnum() and len(value) < 1024 else self._one(value, id)
                for value, id in zip(values, ids, strict=True)
            ]
        except AttributeError:  # some value is no string: a mistake that _one names
            return [self._one(value, id) for value, id in zip(values, ids, strict=True)]

    def read(self, stored: bytes) -> str | list[str]:
        """The value that ``write`` stored."""
        text = stored.decode()
        if not self.many:
            return text if text.isascii() else decode_tag(text)
        # The empty list is stored as nothing; an empty string in a list has an encoding of its own.
        return [decode_tag(part) for part in text.split(TAG_SEPARATOR)] if text else []

    def _one(self, value: Any, id: str) -> bytes:
        if not isinstance(value, str):
            hint = ""
            if value is None:
                hint = "; leave an absent field out"
            elif isinstance(value, (list, tuple)):
                hint = "; declare Tag(..., many=True) for lists"
            raise InvalidInput(f"document {id!r}, field {self.name!r}: a string expected, not {value!r}{hint}")
        return check_tag(value, f"document {id!r}, field {self.name!r}")

    def _list(self, value: Any, id: str) -> bytes:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise InvalidInput(f"document {id!r}, field {self.name!r}: a list of strings expected, not {value!r}")
        return TAG_SEPARATOR.encode().join([self._one(part, id) for part in value])


@dataclass(frozen=True, slots=True, eq=False)
class Numeric:
    """A finite number within +-2**53; comes back as the int or float it was.

    Filter with ``== != < <= > >=``, ``between`` (both ends included), ``isin``.
    """

    name: str
    kind: ClassVar[Kind] = "NUMERIC"
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_field_name(self.name))

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]
        return number_in(self.name, [other])

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]
        return ~number_in(self.name, [other])

    __hash__ = object.__hash__

    def __gt__(self, other: float) -> Filter:
        return number_range(self.name, low=number(other, f"filter on {self.name!r}"), low_open=True)

    def __ge__(self, other: float) -> Filter:
        return number_range(self.name, low=number(other, f"filter on {self.name!r}"))

    def __lt__(self, other: float) -> Filter:
        return number_range(self.name, high=number(other, f"filter on {self.name!r}"), high_open=True)

    def __le__(self, other: float) -> Filter:
        return number_range(self.name, high=number(other, f"filter on {self.name!r}"))

    def between(self, low: float, high: float) -> Filter:
        """Documents with low <= value <= high; a reversed range is an error."""
        what = f"filter on {self.name!r}"
        return number_range(self.name, number(low, what), number(high, what))

    def isin(self, values: Iterable[float]) -> Filter:
        """Documents whose value equals one of these; an empty list is an error."""
        return number_in(self.name, values)

    def index_words(self) -> list[Word]:
        """FT.CREATE's words."""
        return [self.name, "NUMERIC"]

    def write(self, values: Sequence[Any], ids: Sequence[str]) -> list[bytes]:
        """The values as stored bytes; InvalidInput names the document and the field."""
        return [
            repr(value).encode()
            if type(value) is int and -MAX_EXACT <= value <= MAX_EXACT
            else repr(number(value, f"document {id!r}, field {self.name!r}")).encode()
            for value, id in zip(values, ids, strict=True)
        ]

    def read(self, stored: bytes) -> int | float:
        """The value that ``write`` stored."""
        try:
            return int(stored)
        except ValueError:
            return float(stored)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Words of its own beside the document's text, such as a title; searched, never filtered.

    weight: how much its text score counts beside the document text's 1.0; > 0.
    """

    name: str
    weight: float = 1.0
    kind: ClassVar[Kind] = "TEXT"
    plain: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_field_name(self.name))
        weight = number(self.weight, f"weight of {self.name!r}")
        if weight <= 0:
            raise InvalidInput(f"weight of {self.name!r}: {weight} is not greater than 0")
        object.__setattr__(self, "weight", float(weight))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            raise InvalidInput(f"filter on {self.name!r}: a TEXT field cannot be filtered, TAG and NUMERIC can")
        return self is other

    __hash__ = object.__hash__

    def index_words(self, *, weight: bool) -> list[Word]:
        """FT.CREATE's words for the analysed copy; weight: whether the engine takes WEIGHT."""
        words: list[Word] = [terms_field(self.name), "TEXT", "NOSTEM"]
        return [*words, "WEIGHT", repr(self.weight)] if weight and self.weight != 1.0 else words

    def write(self, values: Sequence[Any], ids: Sequence[str]) -> list[bytes]:
        """The values as stored bytes; InvalidInput names the document and the field."""
        return texts_bytes(values, lambda at: f"document {ids[at]!r}, field {self.name!r}")

    def read(self, stored: bytes) -> str:
        """The value that ``write`` stored."""
        return stored.decode()


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Any JSON value, kept and returned, never indexed; tuples come back as lists."""

    name: str
    kind: ClassVar[Kind] = "STORED"
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_field_name(self.name))

    def write(self, values: Sequence[Any], ids: Sequence[str]) -> list[bytes]:
        """The values as stored bytes; InvalidInput names the document and the field."""
        return [
            self._one(value, f"document {id!r}, field {self.name!r}") for value, id in zip(values, ids, strict=True)
        ]

    def read(self, stored: bytes) -> Any:
        """The value that ``write`` stored."""
        try:
            return json.loads(stored)
        except RecursionError:
            raise ValueError("nested too deep to be ours") from None

    @staticmethod
    def _one(value: Any, what: str) -> bytes:
        try:
            _check_json(value)
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"{what}: not a JSON value ({error})") from None
        return utf8(text, what)


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """The embedding: float32, exact (FLAT) or approximate (HNSW) nearest neighbours.

    dims: length; None takes it from the embedder, the live index or the first document.
    metric: COSINE (1 - cos, 0..2), L2 (the squared distance) or IP (1 - dot product); lower is closer.
    m (16), ef_construction (200), ef_runtime: HNSW only: links per node, and how many vectors are
    kept in view while building and while asking. ef_runtime None asks each query with max(100, 4k): the engines'
    own default of 10 finds 0.60 of the true ten nearest, 100 finds 0.99 (benchmarks/recall.py).
    initial_cap: documents to reserve room for; block_size (FLAT only): vectors per block.
    """

    name: str = "embedding"
    dims: int | None = None
    metric: Metric = "COSINE"
    algorithm: Literal["HNSW", "FLAT"] = "HNSW"
    m: int | None = None
    ef_construction: int | None = None
    ef_runtime: int | None = None
    initial_cap: int | None = None
    block_size: int | None = None
    kind: ClassVar[Kind] = "VECTOR"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_field_name(self.name))
        if self.metric not in ("COSINE", "L2", "IP"):
            raise InvalidInput(f"metric {self.metric!r}: COSINE, L2 or IP")
        if self.algorithm not in ("HNSW", "FLAT"):
            raise InvalidInput(f"algorithm {self.algorithm!r}: HNSW or FLAT")
        foreign = ("block_size",) if self.algorithm == "HNSW" else ("m", "ef_construction", "ef_runtime")
        for name in foreign:
            if getattr(self, name) is not None:
                raise InvalidInput(f"{name} means nothing to {self.algorithm}")
        if self.algorithm == "HNSW":
            # The engines' own defaults; sent and compared, so that an engine's change of mind is seen.
            object.__setattr__(self, "m", 16 if self.m is None else self.m)
            object.__setattr__(self, "ef_construction", 200 if self.ef_construction is None else self.ef_construction)
        # 32,768 dims is Valkey Search's limit; the others only keep nonsense out.
        for name, limit in _VECTOR_LIMITS.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= limit):
                raise InvalidInput(f"{name} {value!r}: an int from 1 to {limit:,}")

    def index_words(self) -> list[Word]:
        """FT.CREATE's words: the name, the algorithm and its counted attributes."""
        if self.dims is None:
            raise InvalidInput(f"vector {self.name!r}: the dimensions are not known; pass Vector(dims=...)")
        attributes: list[Word] = ["TYPE", "FLOAT32", "DIM", self.dims, "DISTANCE_METRIC", self.metric]
        for name in ("m", "ef_construction", "ef_runtime", "initial_cap", "block_size"):
            value = getattr(self, name)
            if value is not None:
                attributes += [name.upper(), value]
        return [self.name, "VECTOR", self.algorithm, len(attributes), *attributes]


_VECTOR_LIMITS = {
    "dims": 32_768,
    "m": 512,
    "ef_construction": 4_096,
    "ef_runtime": 40_000,
    "initial_cap": 1_000_000_000,
    "block_size": 1_000_000_000,
}

# What is written must be readable in any reader's stack; Python's own limit is 1,000 calls, all told.
MAX_STORED_DEPTH = 200

Field: TypeAlias = Text | Tag | Numeric | Stored
FIELD_KINDS: dict[str, type[Text] | type[Tag] | type[Numeric] | type[Stored]] = {
    kind.kind: kind for kind in (Text, Tag, Numeric, Stored)
}


def texts_bytes(values: Sequence[Any], what: Callable[[int], str]) -> list[bytes]:
    """Texts in UTF-8, or InvalidInput: no string, or lone surrogates. what: position -> its name."""
    try:
        return [str.encode(value) for value in values]
    except (TypeError, UnicodeEncodeError):
        return [_text_bytes(value, what(at)) for at, value in enumerate(values)]


def _text_bytes(value: Any, what: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidInput(f"{what}: a string expected, not {value!r}")
    return utf8(value, what)


def _check_json(value: Any, depth: int = 0) -> None:
    """json.dumps turns the key 1 into "1" and back comes another value; refuse it instead."""
    if depth > MAX_STORED_DEPTH:
        raise ValueError(f"nested deeper than {MAX_STORED_DEPTH}")
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no string")
            _check_json(part, depth + 1)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_json(part, depth + 1)
