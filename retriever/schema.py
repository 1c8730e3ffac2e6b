"""All about an index that can be known without a server, and how it differs from a live one.

Rule: what decides an answer (kinds, dims, metric, algorithm, analysis) is an index's identity and is
compared; what does not (weights, stored fields, default EF_RUNTIME, reserved room) may change freely.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fields.analysis import Analysis
from fields.errors import InvalidInput
from fields.kinds import FIELD_KINDS, Field, Stored, Text, Vector, Word
from fields.names import GENERATION, TERMS_FIELD, check_index_name, check_prefix, terms_field
from retriever.engines import Engine
from retriever.errors import NotSupported

if TYPE_CHECKING:
    from retriever.replies import IndexInfo

LAYOUT = 1  # of a hash and of the metadata; another number is another way to store
_FREE = {"weight", "ef_runtime", "initial_cap", "block_size"}


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """Declares an index.

    name: the index's name. fields: Text, Tag, Numeric and Stored fields, each name once.
    vector: the one vector. analysis: how text becomes terms; None indexes no text at all.
    prefix: what every key starts with; ``name + ":"`` unless given; it must end in a separator and
        must not overlap another index's.
    Two schemas are equal if they declare the same.
    generation: 1, and more for an index that was rebuilt over the same prefix, see ``of_generation``.
    """

    name: str
    fields: Iterable[Field] = ()
    vector: Vector = field(default_factory=Vector)
    analysis: Analysis | None = field(default_factory=Analysis)
    prefix: str = ""
    generation: int = field(default=1, kw_only=True)
    by_name: Mapping[str, Field] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.generation == 1:
            object.__setattr__(self, "name", check_index_name(self.name))
        if not isinstance(self.fields, Iterable):
            raise InvalidInput(f"fields: a list of fields expected, not {self.fields!r}")
        fields = tuple(self.fields)
        if not isinstance(self.vector, Vector):
            raise InvalidInput(f"vector: a Vector expected, not {self.vector!r}")
        if self.analysis is not None and not isinstance(self.analysis, Analysis):
            raise InvalidInput(f"analysis: an Analysis or None expected, not {self.analysis!r}")
        by_name: dict[str, Field] = {}
        for each in fields:
            if type(each) not in FIELD_KINDS.values():
                raise InvalidInput(f"fields: Text, Tag, Numeric or Stored expected, not {each!r}")
            if each.name in by_name or each.name == self.vector.name:
                raise InvalidInput(f"field {each.name!r} is declared twice")
            by_name[each.name] = each
            # A rebuilt index keeps its vectors in embedding_2, embedding_3, ... beside the old ones.
            if each.name.startswith(f"{self.vector.name}_") and each.name[len(self.vector.name) + 1 :].isdecimal():
                raise InvalidInput(f"field {each.name!r}: names of the form {self.vector.name}_<digits> are reserved")
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "by_name", by_name)
        object.__setattr__(self, "prefix", check_prefix(self.prefix or f"{self.name}:"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return (self.name, self.to_json()) == (other.name, other.to_json())

    def __hash__(self) -> int:
        return hash((self.name, self.prefix))

    @property
    def metadata_key(self) -> str:
        """The hash that describes the index: the prefix without its separator, where no id can be."""
        return self.prefix[:-1] if self.generation == 1 else f"{self.prefix[:-1]}{GENERATION}{self.generation}"

    @property
    def texts(self) -> tuple[Text, ...]:
        """The Text fields that are analysed; none without an analysis."""
        return tuple(each for each in self.fields if isinstance(each, Text)) if self.analysis else ()

    def with_dims(self, dims: int) -> Schema:
        """The same schema with the vector's length known."""
        vector = dataclasses.replace(self.vector, dims=dims)
        return Schema(self.name, self.fields, vector, self.analysis, self.prefix, generation=self.generation)

    def of_generation(self, generation: int) -> Schema:
        """The same declaration as another index over the same keys: ``name@2`` with a vector ``embedding_2``.

        Both live side by side, each with vectors of its own, and a reader of one never sees the other.
        """
        if self.generation != 1 or generation < 2:
            raise InvalidInput(f"generation {generation} of generation {self.generation}: from 2 on, of the first only")
        vector = dataclasses.replace(self.vector, name=f"{self.vector.name}_{generation}")
        name = f"{self.name}{GENERATION}{generation}"
        return Schema(name, self.fields, vector, self.analysis, self.prefix, generation=generation)

    def to_json(self) -> str:
        """The whole declaration as JSON text, as it is stored with the index."""
        return json.dumps(
            {
                "prefix": self.prefix,
                "fields": [_declared(each) for each in self.fields],
                "vector": _declared(self.vector),
                "analysis": self.analysis.to_json() if self.analysis else None,
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, name: str, text: str) -> Schema:
        """The schema that ``to_json`` wrote. Raises InvalidInput if it is not one."""
        try:
            read = json.loads(text)
            fields = [FIELD_KINDS[each.pop("kind")](**each) for each in read["fields"]]
            read["vector"].pop("kind")
            analysis = Analysis.from_json(read["analysis"]) if read["analysis"] else None
            generation = _generation(name)
            return cls(name, fields, Vector(**read["vector"]), analysis, read["prefix"], generation=generation)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(f"stored schema of {name!r} cannot be read: {error}") from error

    def differences(self, stored: str) -> list[str]:
        """In words, how a stored declaration differs from this one; empty if it is the same index."""
        there = json.loads(stored)
        here = json.loads(self.to_json())
        found = []
        if here["prefix"] != there["prefix"]:
            found.append(f"prefix: {here['prefix']!r} declared, {there['prefix']!r} stored")
        found += _differing("vector", here["vector"], there["vector"])
        ours, theirs = _indexed(here["fields"]), _indexed(there["fields"])
        for name in ours.keys() | theirs.keys():
            if name not in theirs:
                found.append(f"field {name!r}: {ours[name]['kind']} declared, not in the index")
            elif name not in ours:
                found.append(f"field {name!r}: {theirs[name]['kind']} in the index, not declared")
            else:
                found += _differing(f"field {name!r}", ours[name], theirs[name])
        if (self.analysis is None) != (there["analysis"] is None):
            found.append(f"analysis: {'none' if self.analysis is None else 'one'} declared, the index differs")
        elif self.analysis is not None:
            found += [f"analysis: {each}" for each in self.analysis.differences(there["analysis"])]
        return sorted(found)

    def live_differences(self, info: IndexInfo, engine: Engine | None = None) -> list[str]:
        """In words, how a live index (its FT.INFO) differs from what ``build_ft_create_args`` declares."""
        found = []
        if info.name != self.name:
            found.append(f"name: {self.name!r} is an alias of index {info.name!r}")
        if info.prefixes != (self.prefix,):
            found.append(f"prefix: {self.prefix!r} declared, live {', '.join(map(repr, info.prefixes))}")
        expected: dict[str, dict[str, Any]] = {
            each.name: {"type": each.kind} for each in self.fields if not isinstance(each, (Text, Stored))
        }
        if engine is None or engine.text:
            expected |= {name: {"type": "TEXT"} for name in self.text_attributes}
        vector = self.vector
        expected[vector.name] = {
            "type": "VECTOR",
            "algorithm": vector.algorithm,
            "dims": vector.dims,
            "metric": vector.metric,
            "m": vector.m,
            "ef_construction": vector.ef_construction,
        }
        for name in expected.keys() | info.attributes.keys():
            if name not in info.attributes:
                found.append(f"field {name!r}: {expected[name]['type']} declared, not in the live index")
            elif name not in expected:
                found.append(f"field {name!r}: {info.attributes[name]['type']} in the live index, not declared")
            else:
                found += _differing(f"field {name!r}", expected[name], info.attributes[name], "live")
        for name, attribute in info.attributes.items():
            if attribute["type"] == "TAG" and name in expected and not attribute["exact"]:
                found.append(f"field {name!r}: the live TAG is not CASESENSITIVE with separator 0x1f")
        return sorted(found)

    @property
    def text_attributes(self) -> list[str]:
        """The hash fields that hold analysed text: the document's and each Text field's."""
        return [TERMS_FIELD, *(terms_field(each.name) for each in self.texts)] if self.analysis else []


def build_ft_create_args(
    schema: Schema, *, engine: Engine | None = None, skip_initial_scan: bool = False
) -> list[str | int]:
    """The whole FT.CREATE command for a schema. Pure.

    engine: the row of ``engines.py`` it is for; None gives words for any engine that has TEXT fields (all
    but Valkey Search 1.0). What an engine can do without is left out (WEIGHT, TEXT: our own scorer weighs,
    and vectors need no text).
    skip_initial_scan: do not index keys that already exist under the prefix.
    Raises InvalidInput if the dimensions are not known, NotSupported for what the engine cannot do.
    """
    if engine is not None:
        _check_engine(schema, engine, skip_initial_scan=skip_initial_scan)
    words: list[Word] = ["FT.CREATE", schema.name, "ON", "HASH", "PREFIX", 1, schema.prefix]
    if skip_initial_scan:
        words.append("SKIPINITIALSCAN")
    if engine is None or engine.text:
        # STOPWORDS 0: our analysis has dropped what shall be dropped; the engine must drop nothing more.
        words += ["STOPWORDS", 0]
    words.append("SCHEMA")
    for each in schema.fields:
        if not isinstance(each, (Text, Stored)):
            words += each.index_words()
    words += schema.vector.index_words()
    # TEXT stands last: engines would read a field called weight or phonetic behind it as its option.
    if schema.analysis and (engine is None or engine.text):
        words += [TERMS_FIELD, "TEXT", "NOSTEM"]
        for text in schema.texts:
            words += text.index_words(weight=engine is not None and engine.weight)
    return words


def _check_engine(schema: Schema, engine: Engine, *, skip_initial_scan: bool) -> None:
    """NotSupported for what the engine would refuse, or answer wrongly."""
    texts = len(schema.text_attributes) if engine.text else 0
    others = sum(not isinstance(each, (Text, Stored)) for each in schema.fields)
    for count, limit, what in (
        (schema.vector.dims, engine.max_dims, "dimensions"),
        (schema.vector.ef_runtime, engine.max_ef_runtime, "vectors in view (ef_runtime)"),
        (1 + others + texts, engine.max_fields, "indexed fields"),
        (texts, engine.max_text_fields, "analysed texts"),
    ):
        if count is not None and limit is not None and count > limit:
            raise NotSupported(f"{count} {what}: {engine.name} takes {limit}")
    if skip_initial_scan and not engine.skip_initial_scan:
        raise NotSupported(f"skip_initial_scan: {engine.name} always indexes the keys that are there")
    tags = {_hash_tag(schema.name), _hash_tag(schema.prefix)}
    if (engine.hash_tags == "none" and tags != {None}) or (engine.hash_tags == "the name's" and len(tags) > 1):
        raise NotSupported(
            f"index {schema.name!r}, prefix {schema.prefix!r}: {engine.name} takes no hash tag {{...}} in them"
            + (" but the same in both" if engine.hash_tags == "the name's" else "")
        )


def _hash_tag(text: str) -> str | None:
    """What a cluster hashes of a key instead of the whole: the first ``{...}`` with something in it."""
    tag, closed, _ = text.partition("{")[2].partition("}")
    return tag if closed and tag else None


def _generation(name: str) -> int:
    """Which generation an index is by its name; ValueError for a name that none has."""
    first, at, number = name.partition(GENERATION)
    if not at:
        return 1
    generation = int(number)
    if generation < 2:
        raise ValueError(f"{first!r} has no generation {number}")
    return generation


def _declared(each: Field | Vector) -> dict[str, Any]:
    values = {part.name: getattr(each, part.name) for part in dataclasses.fields(each)}
    return {"kind": each.kind} | {name: value for name, value in values.items() if value is not None}


def _indexed(fields: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in fields if each["kind"] != "STORED"}


def _differing(what: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str = "stored") -> list[str]:
    return [
        f"{what}: {name} {ours[name]!r} declared, {theirs[name]!r} {where}"
        for name in ours
        if name not in _FREE and name in theirs and ours[name] is not None and ours[name] != theirs[name]
    ]
