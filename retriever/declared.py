"""A schema for the command line: in a TOML file, or that of a live index.

    name = "docs"                     # prefix = "docs:" unless given
    [vector]                          # the arguments of Vector; without dims those of the local embedder
    metric = "cosine"
    [analysis]                        # the arguments of Analysis; analysis = false indexes no text
    language = "english"
    [fields]                          # name = kind, or a table where there is more to say
    category = "tag"
    tags = { kind = "tag", many = true }
    title = { kind = "text", weight = 2.0 }
    year = "numeric"
    url = "stored"

Rule: a key means the argument of that name in Python and nothing else; what is not known is an error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields as parts
from pathlib import Path
from typing import Any, TypeVar

from fields.analysis import Analysis
from fields.errors import InvalidInput
from fields.kinds import FIELD_KINDS, Field, Vector
from retriever.client import Retriever
from retriever.errors import IndexMissing, PermissionDenied, ServerError
from retriever.operations.index import INDEX_NAMES, check_place, search_engine, stored_schema
from retriever.plans import ask_one
from retriever.schema import Schema

T = TypeVar("T")

_SHOWN = 10  # indexes in an error; arbitrary
_KINDS = {name.lower(): kind for name, kind in FIELD_KINDS.items()}


def read_schema(path: Path) -> Schema:
    """The schema that a TOML file declares; the head of this module shows the format.

    Raises InvalidInput naming the file, and the key at fault; OSError if the file cannot be read.
    """
    try:
        declared = tomllib.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: no TOML: {error}") from None
    try:
        return _schema(declared)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def live_schema(unknown: Retriever) -> Schema:
    """The schema that a live index was made with. unknown: a retriever of which the index's name alone is right.

    Raises IndexMissing, ServerError.
    """
    unknown._run("check_place", check_place(unknown._live))
    try:
        return unknown._run("stored_schema", stored_schema(unknown._live.schema.name))
    except IndexMissing:
        name = unknown._live.schema.name
        raise IndexMissing(f"no index {name!r} on this server{_there(unknown)}; `retriever create` makes one") from None
    except ServerError:
        unknown._run("search_engine", search_engine(unknown._live))  # says which server it is, and what is needed
        raise


def _there(unknown: Retriever) -> str:
    """The indexes that there are, but for those of memories, which have commands of their own."""
    try:
        names = unknown._run("index_names", ask_one(INDEX_NAMES))
    except PermissionDenied:
        return ""
    shown = [repr(name) for name in names if not name.startswith("{memory.")]
    more = f", and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"; there is {', '.join(shown[:_SHOWN])}{more}" if shown else ""


def _schema(declared: Mapping[str, Any]) -> Schema:
    _check_keys(declared, "", ("name", "prefix", "fields", "vector", "analysis"))
    if "name" not in declared:
        raise InvalidInput("the key name is missing; it names the index")
    analysis = declared.get("analysis", {})
    fields = _table(declared.get("fields", {}), "[fields]")
    return Schema(
        declared["name"],
        [_field(name, value) for name, value in fields.items()],
        _vector(_table(declared.get("vector", {}), "[vector]")),
        None if analysis is False else _analysis(_table(analysis, "[analysis]")),
        declared.get("prefix", ""),
    )


def _vector(given: Mapping[str, Any]) -> Vector:
    _check_keys(given, "[vector] ", [part.name for part in parts(Vector)])
    # The servers write these two in capitals, people mostly do not.
    words = {
        name: value.upper() if name in ("metric", "algorithm") and isinstance(value, str) else value
        for name, value in given.items()
    }
    return _made(Vector, "[vector] ", words)


def _analysis(given: Mapping[str, Any]) -> Analysis:
    _check_keys(given, "[analysis] ", ("language", "stem", "stop_words"))
    return _made(Analysis, "[analysis] ", given)


def _field(name: str, value: object) -> Field:
    where = f"[fields] {name}: "
    given: dict[str, Any] = {"kind": value} if isinstance(value, str) else dict(_table(value, f"[fields] {name}"))
    chosen = given.pop("kind", None)
    kind = _KINDS.get(chosen) if isinstance(chosen, str) else None
    if kind is None:
        raise InvalidInput(f"{where}kind {chosen!r}: one of {', '.join(_KINDS)}")
    _check_keys(given, where, [part.name for part in parts(kind) if part.name != "name"])
    if not isinstance(given.get("many", False), bool):
        raise InvalidInput(f"{where}many is true or false, not {given['many']!r}")
    make: Callable[..., Field] = kind
    return _made(make, where, {"name": name, **given})


def _made(kind: Callable[..., T], where: str, words: Mapping[str, Any]) -> T:
    try:
        return kind(**words)
    except (InvalidInput, TypeError) as error:
        raise InvalidInput(f"{where}{error}") from None


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: a table expected, not {value!r}")
    return value


def _check_keys(given: Mapping[str, Any], where: str, known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise InvalidInput(f"{where}unknown key {name!r}; known: {', '.join(known) or 'kind'}")
