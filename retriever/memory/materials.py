"""From what the user names to what is ingested: a path or a note, read and cut up when its turn comes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fields.errors import InvalidInput
from retriever.memory import loading, sources, splitting
from retriever.memory.chunks import check_metadata
from retriever.memory.ingesting import Material
from retriever.memory.loading import Loaded
from retriever.memory.roots import Roots
from retriever.queries import check_int

Split = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Note:
    """A text that is no file. source: what it is called; a note without one is told by its text."""

    text: str
    source: str | None = None
    title: str | None = None
    content_type: str = "text"
    metadata: Mapping[str, Any] = field(default_factory=dict)


def sources_of(
    given: Any,
    metadata: Any,
    *,
    source_key: str | None,
    version: str | None,
    split: Split | None,
    size: int,
    roots: Roots | None,
    tokens: Any = None,
    rules: Sequence[sources.Rule] = sources.RULES,
) -> list[tuple[str, Callable[[], Material]]]:
    """(name, what reads it) for each source. InvalidInput for arguments that do not fit each other."""
    alone = isinstance(given, (str, os.PathLike, Note))
    if not alone and (isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable)):
        raise InvalidInput(f"sources: a path, a Note or a list of them expected, not {given!r}")
    items = [given] if alone else list(given)
    check_int("size", size, 1_000_000)
    if (source_key is not None or version is not None) and len(items) != 1:
        raise InvalidInput(f"source_key and version are of one source, not of {len(items)}")
    for name, value in (("source_key", source_key), ("version", version)):
        if value is not None and (not isinstance(value, str) or not value):
            raise InvalidInput(f"{name}: a non-empty string expected, not {value!r}")
    if split is not None and not callable(split):
        raise InvalidInput(f"split: a function of a text expected, not {split!r}")
    splitting.check_tokens(tokens)
    if metadata is None or isinstance(metadata, Mapping):
        each_metadata: Sequence[Mapping[str, Any]] = [metadata or {}] * len(items)
    elif isinstance(metadata, Sequence) and not isinstance(metadata, (str, bytes)) and len(metadata) == len(items):
        each_metadata = metadata
    else:
        raise InvalidInput(f"metadata: one mapping, or one for each of {len(items)} sources, not {metadata!r:.80}")
    found: list[tuple[str, Callable[[], Material]]] = []
    for item, own in zip(items, each_metadata, strict=True):
        check_metadata(own)
        name = _name(item)
        read = partial(_material, item, name, own, source_key or name, version, split, size, roots, tokens, rules)
        found.append((name, read))
    return found


def _name(item: object) -> str:
    if isinstance(item, Note):
        if not isinstance(item.text, str):
            raise InvalidInput(f"note: a text expected, not {item.text!r}")
        for what, value in (("source", item.source), ("title", item.title)):
            if not (value is None or isinstance(value, str)):
                raise InvalidInput(f"note: its {what} is a string or None, not {value!r}")
        digest = hashlib.blake2b(item.text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
        return item.source or f"note-{digest}"
    if isinstance(item, (str, os.PathLike)):
        path = os.fspath(item)
        if isinstance(path, str):
            return path
    raise InvalidInput(f"sources: a path or a Note expected, not {item!r}")


def _material(
    item: Any,
    name: str,
    metadata: Mapping[str, Any],
    key: str,
    version: str | None,
    split: Split | None,
    size: int,
    roots: Roots | None,
    tokens: Any,
    rules: Sequence[sources.Rule],
) -> Material:
    if isinstance(item, Note):
        own = {**check_metadata(item.metadata), **metadata}
        kind = own.get("content_type") or item.content_type
        loaded: Loaded = loading.load_text(item.text, title=item.title, content_type=kind)
        given = {**loaded.metadata, **own}
    else:
        loaded = loading.load(item, content_type=metadata.get("content_type"), roots=roots)
        given = {**loaded.metadata, **metadata}
        key = os.path.realpath(item) if key == name else key
    return Material(
        source=name,
        key=key,
        text=loaded.text,
        pieces=splitting.split(loaded, size=size, tokens=tokens, split=split),
        title=loaded.title,
        content_type=loaded.content_type,
        knowledge_type=sources.knowledge_type(name, given, rules=rules),
        date=sources.source_date(name, loaded, given),
        version=version,
        metadata={each: value for each, value in given.items() if each not in ("title", "source_date", "date")},
    )
