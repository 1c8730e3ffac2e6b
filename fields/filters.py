"""Filters: one expression, compiled for the engine and evaluated on the client alike.

The only place that encodes TAG values and escapes query syntax. Rules:

* A tree holds negation at its leaves only (De Morgan at construction), because RediSearch answers
  a doubly negated group wrongly.
* Values stand inline: Valkey Search binds no parameters inside filters.
* No spelling at all expresses a control character, NUL, an outer blank, the empty string, a final
  ``*`` or the separator on both engines, so those few are mapped reversibly into Unicode's private
  use area, in stored values and in filters alike. With that every string is an exact TAG value.
* Whatever cannot be meant (an unknown field, None, an empty list) is an error: a lost tenant id
  must never widen a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import inf, isfinite
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

import numpy as np

from fields.errors import InvalidInput
from fields.names import utf8

TAG_SEPARATOR = "\x1f"
MAX_TAG_BYTES = 4096  # RediSearch indexes the first 4,096 bytes: longer values would be equal to each other
MAX_EXACT = 2**53  # engines hold numbers as doubles: 2**53 and 2**53 + 1 are one number to them
MAX_ALTERNATIVES_NEGATED = 20
MAX_ALTERNATIVES = 10_000  # arbitrary: 5,000 were answered
MAX_DEPTH = 100  # RediSearch overflows its parser's stack at 500 nested parentheses

Kind: TypeAlias = Literal["TEXT", "TAG", "NUMERIC", "STORED", "VECTOR"]


class Filterable(Protocol):
    """What a filter needs to know of a declared field."""

    @property
    def kind(self) -> Kind:
        """Its kind, which decides the operators."""
        ...


Fields: TypeAlias = Mapping[str, Filterable]


class Filter:
    """A condition on TAG and NUMERIC fields; combine with ``&``, ``|`` and ``~``.

    Built by comparing fields (``Tag("category") == "db"``, ``Numeric("year") >= 2020``), never
    directly. ``!=`` and ``~`` include documents that lack the field. It has no truth value, which
    catches ``a == "x" & b == "y"`` and ``a and b``.

    >>> from retriever import Numeric, Tag
    >>> recent = (Tag("category") == "db") & ~(Numeric("year") < 2020)
    >>> recent.matches({"category": "db", "year": 2024}), recent.matches({"category": "db"})
    (True, True)
    """

    __slots__ = ()

    def __and__(self, other: Filter) -> Filter:
        return _group("and", self, other)

    def __or__(self, other: Filter) -> Filter:
        return _group("or", self, other)

    def __invert__(self) -> Filter:
        raise NotImplementedError

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a Filter is neither true nor false; combine with & | ~ and put parentheses around each comparison"
        )

    def matches(self, document: Any) -> bool:
        """Whether the document (or a mapping of its fields) passes; the same answer as the engine's."""
        return self._matches(getattr(document, "fields", document))

    def _matches(self, values: Mapping[str, Any]) -> bool:
        raise NotImplementedError

    def _leaves(self) -> Iterator[_Values | _Range]:
        raise NotImplementedError

    def _text(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Values(Filter):
    """The TAG field holds one of the values."""

    name: str
    values: tuple[str, ...]
    kind = "TAG"

    def __invert__(self) -> Filter:
        return _Not(self)

    def _matches(self, values: Mapping[str, Any]) -> bool:
        held = values.get(self.name)
        if held is None:
            return False
        if isinstance(held, str):
            return held in self.values
        return any(value in self.values for value in held)

    def _leaves(self) -> Iterator[_Values | _Range]:
        yield self

    def _text(self) -> str:
        return f"@{self.name}:{{{'|'.join(map(_spelled, self.values))}}}"


@dataclass(frozen=True, slots=True)
class _Range(Filter):
    """The NUMERIC field lies between two bounds."""

    name: str
    low: float = -inf
    high: float = inf
    low_open: bool = False
    high_open: bool = False
    kind = "NUMERIC"

    def __invert__(self) -> Filter:
        return _Not(self)

    def _matches(self, values: Mapping[str, Any]) -> bool:
        held = values.get(self.name)
        if held is None:
            return False
        above = held > self.low if self.low_open else held >= self.low
        below = held < self.high if self.high_open else held <= self.high
        return bool(above and below)

    def _leaves(self) -> Iterator[_Values | _Range]:
        yield self

    def _text(self) -> str:
        low = ("(" if self.low_open else "") + format_number(self.low)
        high = ("(" if self.high_open else "") + format_number(self.high)
        return f"@{self.name}:[{low} {high}]"


@dataclass(frozen=True, slots=True)
class _Not(Filter):
    part: _Values | _Range

    def __invert__(self) -> Filter:
        return self.part

    def _matches(self, values: Mapping[str, Any]) -> bool:
        return not self.part._matches(values)

    def _leaves(self) -> Iterator[_Values | _Range]:
        yield self.part

    def _text(self) -> str:
        return "-" + self.part._text()


@dataclass(frozen=True, slots=True)
class _Group(Filter):
    operator: Literal["and", "or"]
    parts: tuple[Filter, ...]
    depth: int

    def __invert__(self) -> Filter:
        flipped: Literal["and", "or"] = "or" if self.operator == "and" else "and"
        return _Group(flipped, tuple(~part for part in self.parts), self.depth)

    def _matches(self, values: Mapping[str, Any]) -> bool:
        results = (part._matches(values) for part in self.parts)
        return all(results) if self.operator == "and" else any(results)

    def _leaves(self) -> Iterator[_Values | _Range]:
        for part in self.parts:
            yield from part._leaves()

    def _text(self) -> str:
        # Every group stands in its own parentheses: a bare ``a b | c`` means another thing per dialect.
        return "(" + (" " if self.operator == "and" else "|").join(part._text() for part in self.parts) + ")"


def _group(operator: Literal["and", "or"], *filters: object) -> Filter:
    parts: list[Filter] = []
    for part in filters:
        if not isinstance(part, Filter):
            raise InvalidInput(f"{operator} combines filters, not {part!r}")
        parts.extend(part.parts if isinstance(part, _Group) and part.operator == operator else [part])
    if len(parts) == 1:
        return parts[0]
    depth = 1 + max(part.depth if isinstance(part, _Group) else 0 for part in parts)
    if depth > MAX_DEPTH:
        raise InvalidInput(f"filter nested deeper than {MAX_DEPTH} levels")
    return _Group(operator, tuple(parts), depth)


# --- leaves, from operators (kinds.py) and from mappings ------------------------------------------


def tag_in(name: str, values: Iterable[object]) -> _Values:
    """The TAG field ``name`` holds at least one of the values (strings; at least one)."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidInput(f"filter on {name!r}: a list of strings expected, not {values!r}")
    checked = tuple(dict.fromkeys(_tag_value(name, value) for value in values))
    if not checked:
        raise InvalidInput(f"filter on {name!r}: an empty list matches nothing; leave the filter out or name a value")
    return _Values(name, checked)


def number_range(
    name: str,
    low: object = None,
    high: object = None,
    *,
    low_open: bool = False,
    high_open: bool = False,
) -> Filter:
    """The NUMERIC field ``name`` lies between the bounds; None leaves a side open."""
    bottom = -inf if low is None else number(low, f"filter on {name!r}")
    top = inf if high is None else number(high, f"filter on {name!r}")
    if bottom > top or (bottom == top and (low_open or high_open)):
        # An error on Valkey Search, empty on RediSearch.
        raise InvalidInput(
            f"filter on {name!r}: the range {bottom} to {top} is {'reversed' if bottom > top else 'empty'}"
        )
    return _Range(name, bottom, top, low_open, high_open)


def number_in(name: str, values: Iterable[object]) -> Filter:
    """The NUMERIC field ``name`` equals one of the values (at least one)."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidInput(f"filter on {name!r}: a list of numbers expected, not {values!r}")
    checked = dict.fromkeys(number(value, f"filter on {name!r}") for value in values)
    if not checked:
        raise InvalidInput(f"filter on {name!r}: an empty list matches nothing; leave the filter out or name a value")
    return _group("or", *(_Range(name, value, value) for value in checked))


def number(value: object, what: str) -> int | float:
    """A finite int or float within +-2**53, or InvalidInput; numpy scalars are numbers, a bool is not."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInput(f"{what}: a number expected, not {value!r}")
    # Python's own number, because a subclass may print as anything: an IntEnum as <Level.HIGH: 3>.
    plain: int | float = int(value) if isinstance(value, (int, np.integer)) else float(value)
    # The range of an int first: one of 400 digits is no float at all.
    if isinstance(plain, float) and not isfinite(plain):
        raise InvalidInput(f"{what}: {plain} is not finite")
    if not -MAX_EXACT <= plain <= MAX_EXACT:
        raise InvalidInput(
            f"{what}: {plain:.17g} is beyond 2**53, where engines cannot tell neighbours apart; a Tag keeps it exact"
            if isinstance(plain, float)
            else f"{what}: an int of {plain.bit_length()} bits is beyond 2**53, where engines cannot tell neighbours "
            f"apart; a Tag keeps it exact"
        )
    return plain


def _tag_value(name: str, value: object) -> str:
    if type(value) is str and value.isalnum() and len(value) < 1024:
        return value  # needs no encoding and is no longer than 4,096 bytes
    if value is None:
        raise InvalidInput(f"filter on {name!r}: None is no value (a lost id must not widen a search)")
    if not isinstance(value, str):
        raise InvalidInput(f"filter on {name!r}: a TAG holds strings, not {value!r}")
    check_tag(value, f"filter on {name!r}")
    return str.__str__(value)


# --- the mapping form -----------------------------------------------------------------------------


def as_filter(spec: Filter | Mapping[str, Any] | None, fields: Fields) -> Filter | None:
    """A filter in either form as a Filter checked against the declared fields; None means everything.

    spec: a Filter, or a mapping of field name to value or to ``{operator: value}`` (operators eq ne
    gt gte lt lte in any all contains between), its entries ANDed; ``{}`` is everything.
    Raises InvalidInput on an unknown field or operator, a TEXT, STORED or VECTOR field, a value of
    None, an empty list.
    """
    if spec is None:
        return None
    if isinstance(spec, Filter):
        for leaf in spec._leaves():
            kind = _kind(leaf.name, fields)
            if kind != leaf.kind:
                raise InvalidInput(f"filter on {leaf.name!r}: the field is {kind}, the filter is for {leaf.kind}")
        return spec
    if not isinstance(spec, Mapping):
        raise InvalidInput(f"filter: a Filter or a mapping expected, not {spec!r}")
    parts: list[Filter] = []
    for key, value in spec.items():
        name = str.__str__(key) if isinstance(key, str) else key  # a str-Enum formats as its own name
        kind = _kind(name, fields)
        if kind == "TAG" and type(value) is str:  # what most filters are, ahead of all other questions
            parts.append(_Values(name, (_tag_value(name, value),)))
        else:
            parts += _entry(kind, name, value)
    if len(parts) < 2:
        return parts[0] if parts else None
    return _group("and", *parts)


def filter_text(filter: Filter) -> str:
    """The filter in query syntax, always one parenthesised group: ``(@category:{db})``.

    Raises InvalidInput for what no spelling makes RediSearch answer rightly (see ``_answerable``).
    """
    if not isinstance(filter, _Group):
        return f"({filter._text()})"
    return _answerable(filter)._text()


def filter_alternatives(filter: Filter) -> tuple[list[str], bool]:
    """The filter as one or more alternatives in query syntax, each one group; and whether a negation is among them.

    For joining it with other clauses: where there is a negation, only the form
    ``(alternative (a|b))|(alternative (a|b))`` is answered rightly by RediSearch, whose errors ``_answerable``
    describes; without one, ``(filter a)|(filter b)`` is too.
    """
    form = _answerable(filter) if isinstance(filter, _Group) else filter
    parts = form.parts if isinstance(form, _Group) else (form,)
    leaves = [leaf for part in parts for leaf in (part.parts if isinstance(part, _Group) else (part,))]
    negated = any(isinstance(leaf, _Not) for leaf in leaves)
    if negated and isinstance(form, _Group) and form.operator == "or":
        return [part._text() if isinstance(part, _Group) else f"({part._text()})" for part in parts], True
    return [form._text() if isinstance(form, _Group) else f"({form._text()})"], negated


def _answerable(group: _Group) -> _Group:
    """The group in a form that RediSearch answers rightly.

    It loses documents where an AND stands in an OR in an AND, and finds wrong ones, or never answers at
    all, where one of more than 20 alternatives holds a negation (measured on 2.10.5: 0.2 to 69 % of
    such queries; none of 12,600 in the forms let through here). So a filter is sent as it is where it is flat or
    an AND of conditions and of ORs of positive ones; otherwise as one OR of ANDs.
    """
    if group.operator == "and" and all(_is_leaf(part) or _is_positive_or(part) for part in group.parts):
        return group
    flat = all(_is_leaf(part) for part in group.parts)
    alternatives = [(part,) for part in group.parts] if flat else _alternatives(group)
    negated = any(isinstance(leaf, _Not) for alternative in alternatives for leaf in alternative)
    if len(alternatives) > (MAX_ALTERNATIVES_NEGATED if negated else MAX_ALTERNATIVES):
        raise _too_many(len(alternatives))
    return _Group("or", tuple(_group("and", *alternative) for alternative in alternatives), 2)


def _too_many(alternatives: int) -> InvalidInput:
    return InvalidInput(
        f"filter: it comes to {alternatives:,} or more alternatives; engines answer rightly up to "
        f"{MAX_ALTERNATIVES_NEGATED} where one is negated, {MAX_ALTERNATIVES:,} where none is. "
        f"Ask for fewer, or gather values of a field with isin"
    )


def _alternatives(filter: Filter) -> list[tuple[Filter, ...]]:
    """The filter as one OR of ANDs (its disjunctive normal form). InvalidInput if that grows too long."""
    if not isinstance(filter, _Group):
        return [(filter,)]
    parts = [_alternatives(part) for part in filter.parts]
    if filter.operator == "or":
        return _absorbed([alternative for part in parts for alternative in part])
    product: list[tuple[Filter, ...]] = [()]
    for part in parts:
        if len(product) * len(part) > MAX_ALTERNATIVES:  # before it is made: it may be millions
            raise _too_many(len(product) * len(part))
        product = _absorbed([tuple(dict.fromkeys((*one, *other))) for one in product for other in part])
    return product


def _absorbed(alternatives: list[tuple[Filter, ...]]) -> list[tuple[Filter, ...]]:
    """Without those that another one covers: ``a | (a & b)`` is ``a``. Long lists stay; it takes n * n steps."""
    if len(alternatives) > 500:
        return alternatives
    sets = [frozenset(alternative) for alternative in dict.fromkeys(alternatives)]
    return [
        tuple(alternative)
        for alternative, own in zip(dict.fromkeys(alternatives), sets, strict=True)
        if not any(other < own for other in sets)
    ]


def _is_leaf(filter: Filter) -> bool:
    return not isinstance(filter, _Group)


def _is_positive_or(filter: Filter) -> bool:
    return (
        isinstance(filter, _Group)
        and filter.operator == "or"
        and all(isinstance(part, (_Values, _Range)) for part in filter.parts)
    )


def _kind(name: object, fields: Fields) -> Kind:
    field = fields.get(name) if isinstance(name, str) else None
    if field is None:
        usable = [each for each, declared in fields.items() if declared.kind in ("TAG", "NUMERIC")]
        raise InvalidInput(f"filter on unknown field {name!r}; those are {', '.join(usable) or 'none'}")
    if field.kind not in ("TAG", "NUMERIC"):
        raise InvalidInput(f"filter on {name!r}: a {field.kind} field cannot be filtered, TAG and NUMERIC can")
    return field.kind


def _entry(kind: Kind, name: str, value: Any) -> Iterator[Filter]:
    if isinstance(value, Mapping):
        if not value:
            raise InvalidInput(f"filter on {name!r}: no operator given")
        for operator, operand in value.items():
            yield _condition(kind, name, operator, operand)
    elif isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidInput(
            f"filter on {name!r}: say how a list is meant: "
            f"{{'any': [...]}}" + (" or {'all': [...]}" if kind == "TAG" else "")
        )
    else:
        yield _condition(kind, name, "eq", value)


def _condition(kind: Kind, name: str, operator: object, operand: Any) -> Filter:
    if kind == "TAG":
        match operator:
            case "eq" | "contains":
                return tag_in(name, [operand])
            case "ne":
                return ~tag_in(name, [operand])
            case "in" | "any":
                return tag_in(name, operand)
            case "all":
                return _group("and", *(_Values(name, (value,)) for value in tag_in(name, operand).values))
    else:
        match operator:
            case "eq":
                return number_in(name, [operand])
            case "ne":
                return ~number_in(name, [operand])
            case "in" | "any":
                return number_in(name, operand)
            case "gt" | "gte":
                return number_range(name, low=_given(name, operand), low_open=operator == "gt")
            case "lt" | "lte":
                return number_range(name, high=_given(name, operand), high_open=operator == "lt")
            case "between":
                if not isinstance(operand, (list, tuple)) or len(operand) != 2:
                    raise InvalidInput(f"filter on {name!r}: between takes [low, high], not {operand!r}")
                return number_range(name, _given(name, operand[0]), _given(name, operand[1]))
    raise InvalidInput(
        f"filter on {name!r}: unknown operator {operator!r} for a {kind} field; "
        + ("eq ne in any all contains" if kind == "TAG" else "eq ne gt gte lt lte in any between")
    )


def _given(name: str, bound: object) -> object:
    if bound is None:
        raise InvalidInput(f"filter on {name!r}: None is no bound")
    return bound


# --- spelling: numbers and tags -------------------------------------------------------------------


def format_number(value: int | float) -> str:
    """A number as a query spells it: never with an exponent, which not every engine reads."""
    if value in (inf, -inf):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    text = repr(value)
    return format(Decimal(text), "f") if "e" in text else text


# Encoded: control characters, DEL, an outer blank, a final *, the empty string, and the characters
# that the encoding itself uses.
_ENCODED = re.compile(r"[\x00-\x1f\x7f\ue000-\ue1ff]|\A | \Z|\*\Z|\A\Z")
_EMPTY = "\ue0ff"
_SHIFT = "\ue0fe"  # before a character of U+E000..U+E1FF, which follows moved up by 0x200
_DECODED = re.compile(r"\ue0fe(.)|[\ue000-\ue07f]|\ue0ff", re.DOTALL)
_SYNTAX = re.compile(r"([\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f])")


def encode_tag(value: str) -> str:
    """The string under which a TAG value is stored and asked for; ``decode_tag`` is its inverse.

    >>> encode_tag("R&D"), encode_tag("all*"), encode_tag("")
    ('R&D', 'all\\ue02a', '\\ue0ff')
    """
    return value if value.isalnum() else _ENCODED.sub(_encode, value)


def decode_tag(stored: str) -> str:
    """The TAG value that ``encode_tag`` stored."""
    return stored if stored.isascii() else _DECODED.sub(_decode, stored)


def _encode(match: re.Match[str]) -> str:
    char = match[0]
    if not char:
        return _EMPTY
    code = ord(char)
    return _SHIFT + chr(code + 0x200) if code >= 0xE000 else chr(0xE000 + code)


def _decode(match: re.Match[str]) -> str:
    if match[1]:
        return chr(ord(match[1]) - 0x200)
    return "" if match[0] == _EMPTY else chr(ord(match[0]) - 0xE000)


def _spelled(value: str) -> str:
    """A TAG value as a query spells it: encoded, and a backslash before every ASCII character of another kind.

    Only before ASCII that is no letter or digit: before any other character it would not match.
    """
    return value if value.isalnum() else _SYNTAX.sub(r"\\\1", encode_tag(value))


def check_tag(value: str, what: str) -> bytes:
    """The stored bytes of one TAG value, or InvalidInput: lone surrogates, more than 4,096 bytes."""
    data = utf8(encode_tag(value), what)
    if len(data) > MAX_TAG_BYTES:
        raise InvalidInput(
            f"{what}: {len(data)} bytes; a TAG value holds {MAX_TAG_BYTES} (engines index no more); "
            f"store a hash of it, or use Stored"
        )
    return data
