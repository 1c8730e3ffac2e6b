"""What a store of memory holds: chunks, the fields they are kept in, the names of its keys, and dates.

A namespace is an index of its own, ``{memory.<name>}``, with the name percent-encoded: no namespace is the start of
another one. All its keys share one hash tag, so a script may touch a chunk, its document and its counters at once,
in a cluster too; Valkey Search takes a tag in the keys only if the index's name has the same. Chunk ``D/R/n`` is
number n of document D as of revision R; a revision is written whole beside the one before it, and the document then
points to it. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from math import inf
from numbers import Real
from typing import Any
from urllib.parse import quote

from fields.analysis import Analysis
from fields.errors import InvalidInput
from fields.filters import Filter, as_filter, number
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from fields.names import utf8
from retriever.documents import Document
from retriever.memory.policy import KNOWLEDGE_TYPES
from retriever.schema import Schema

Field = Tag | Numeric | Text | Stored

# What every chunk has a place for. TAG and NUMERIC can be filtered by; the rest is kept and returned.
FIELDS: tuple[Field, ...] = (
    Tag("doc_id"),
    Numeric("chunk_index"),
    Stored("section"),
    Tag("source"),
    Tag("speaker"),
    Tag("content_type"),
    Tag("tags", many=True),
    Tag("knowledge_type"),
    Numeric("importance"),
    Numeric("created_at"),
    Numeric("source_date"),
    Tag("content_hash"),
    Tag("document_hash"),
    Tag("embedder"),
    Tag("user"),
    Tag("agent"),
    Tag("session"),
    Tag("state"),
    Stored("context"),
    Tag("revision"),
    Stored("metadata"),
)
PENDING = "pending"  # the state of a chunk that has neither vector nor terms yet; others have no state
OURS = frozenset(each.name for each in FIELDS)
# What the user may say of a source besides fields of their own; the store sets the rest itself.
SETTABLE = frozenset({"tags", "knowledge_type", "importance", "source_date", "speaker", "content_type"})


SCOPES = ("user", "agent", "session")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory it is. A part that is None is not looked at."""

    user: str | None = None
    agent: str | None = None
    session: str | None = None

    def __post_init__(self) -> None:
        for name, value in self.fields.items():
            if not isinstance(value, str) or not value:
                raise InvalidInput(f"{name}: a non-empty string or None expected, not {value!r}")

    @property
    def fields(self) -> dict[str, str]:
        """The parts that are set, as fields of a chunk."""
        parts = ((name, getattr(self, name)) for name in SCOPES)
        return {name: value for name, value in parts if value is not None}

    def holds(self, found: Mapping[str, Any]) -> bool:
        """Whether what has these fields is within it: beside ``Memory.filter`` the rule that keeps users apart."""
        return all(found.get(name) == value for name, value in self.fields.items())


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one namespace's index and keys."""

    namespace: str

    def __post_init__(self) -> None:
        if not isinstance(self.namespace, str) or not self.namespace:
            raise InvalidInput(f"namespace: a non-empty string expected, not {self.namespace!r}")
        utf8(self.namespace, "namespace")
        if len(self.index) > 1000:
            raise InvalidInput(f"namespace: {len(self.namespace)} characters are too many for a key")

    @property
    def index(self) -> str:
        """The name of the index."""
        return f"{{memory.{quote(self.namespace, safe='')}}}"

    @property
    def prefix(self) -> str:
        """What the keys of chunks start with."""
        return f"{self.index}:"

    @property
    def uses(self) -> str:
        """The hash chunk id -> how often it was read."""
        return f"{self.index}|uses"

    @property
    def used(self) -> str:
        """The hash chunk id -> when it was last read."""
        return f"{self.index}|used"

    def document(self, doc_id: str) -> str:
        """The hash of one document."""
        return f"{self.documents}{doc_id}"

    @property
    def documents(self) -> str:
        """What the keys of documents start with."""
        return f"{self.index}|document:"


def schema_of(names: Names, fields: Sequence[Field], vector: Vector, analysis: Analysis) -> Schema:
    """The schema of a namespace's index. InvalidInput for a field of the user's that has a name of ours."""
    taken = [each.name for each in fields if getattr(each, "name", None) in OURS]
    if taken:
        raise InvalidInput(f"fields: {', '.join(taken)} are names of the store's own")
    return Schema(names.index, [*FIELDS, *fields], vector=vector, prefix=names.prefix, analysis=analysis)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of memory.

    id: of this chunk, as ``delete_chunks`` takes it. doc_id, chunk_index: its document and its place in it, from 0.
    content: the text as it was put in. tags, knowledge_type, importance (0..1 or None), source_date: what can be set.
    access_count, last_accessed_at: deliberate reads before this one. pending: searchable only after update_index().
    revision: changes whenever one of its fields is set. document_hash: of the whole document's content.
    context: what is indexed before its text.
    fields: values of the user's declared fields; metadata: what was given besides. Times: UTC seconds since the epoch.
    relevance: 0..1, higher is better; None where no question was asked. memory_score: after the staged rerank, else
        None. rerank_score: what a reranker gave, on its own scale. vector_distance (lower is closer), text_score
        (higher is better), channels: as in ``FusedHit``.
    guaranteed: it was among the candidates for its importance or kind. duplicates: hits of the same text left out.
    """

    id: str
    doc_id: str
    chunk_index: int
    content: str
    section: str | None = None
    source: str | None = None
    speaker: str | None = None
    content_type: str | None = None
    tags: tuple[str, ...] = ()
    knowledge_type: str | None = None
    importance: float | None = None
    access_count: int = 0
    last_accessed_at: float | None = None
    created_at: float = 0.0
    source_date: float | None = None
    content_hash: str = ""
    embedder: str | None = None
    user: str | None = None
    agent: str | None = None
    session: str | None = None
    pending: bool = False
    revision: str = ""
    document_hash: str = ""
    context: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    relevance: float | None = None
    memory_score: float | None = None
    rerank_score: float | None = None
    vector_distance: float | None = None
    text_score: float | None = None
    channels: tuple[str, ...] = ()
    guaranteed: bool = False
    duplicates: int = 0

    def __hash__(self) -> int:
        return hash(self.id)

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON, with times as ISO 8601 in UTC, ``2026-07-28T15:59:49Z``."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        for name in ("last_accessed_at", "created_at", "source_date"):
            plain[name] = None if plain[name] is None else iso(plain[name])
        return plain | {
            "tags": list(self.tags),
            "channels": list(self.channels),
            "fields": dict(self.fields),
            "metadata": dict(self.metadata),
        }


def chunk_id(doc_id: str, revision: str, index: int) -> str:
    """The id of a chunk."""
    return f"{doc_id}/{revision}/{index}"


def place_of(id: str) -> tuple[str, str, int] | None:
    """A chunk's document, the revision of it, and its place there.

    None for what is no chunk's id: another program may keep hashes under the prefix.
    """
    parts = id.split("/")
    # No document has 10 digits of chunks, and int() refuses 5,000.
    if len(parts) != 3 or not all(parts) or not parts[2].isdecimal() or len(parts[2]) > 9:
        return None
    return parts[0], parts[1], int(parts[2])


def revision_of(id: str) -> str:
    """The revision of its document that a chunk belongs to, which its own is only until something of it is set."""
    return id.split("/")[1]


def chunk_of(document: Document, uses: int = 0, used: float | None = None) -> Chunk:
    """The chunk that a stored document is."""
    given = document.fields
    return Chunk(
        id=document.id,
        doc_id=given.get("doc_id", ""),
        chunk_index=int(given.get("chunk_index", 0)),
        content=document.text,
        section=given.get("section"),
        source=given.get("source"),
        speaker=given.get("speaker"),
        content_type=given.get("content_type"),
        tags=tuple(given.get("tags") or ()),
        knowledge_type=given.get("knowledge_type"),
        importance=given.get("importance"),
        access_count=uses,
        last_accessed_at=used,
        created_at=float(given.get("created_at", 0)),
        source_date=given.get("source_date"),
        content_hash=given.get("content_hash", ""),
        embedder=given.get("embedder"),
        user=given.get("user"),
        agent=given.get("agent"),
        session=given.get("session"),
        pending=given.get("state") == PENDING,
        revision=given.get("revision", ""),
        document_hash=given.get("document_hash", ""),
        context=given.get("context"),
        fields={name: value for name, value in given.items() if name not in OURS},
        metadata=given.get("metadata") or {},
    )


def indexed_text(document: Document) -> str:
    """What of a chunk is embedded and searched by words: its context, then its text."""
    context = document.fields.get("context")
    return f"{context}\n{document.text}" if context else document.text


# --- documents ------------------------------------------------------------------------------------


def document_id(source: str, scope: Scope) -> str:
    """A document's id: a readable slug of its source and 8 hex digits that tell it from any other; 24 within a scope.

    The same for the same source and scope, whatever the content; another for another user's same source.
    """
    identity = json.dumps([source, scope.fields], sort_keys=True)  # quotes, so that no source spells another's scope
    # 100,000 users, each with a source of the same name, meet within 32 bits. Without a scope sources that meet are
    # rare, and the second one is refused.
    digest = hashlib.blake2b(identity.encode(), digest_size=12 if scope.fields else 4).hexdigest()
    plain = unicodedata.normalize("NFKD", source).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.rstrip("/").rpartition("/")[2].lower()).strip("-")[:40].strip("-")
    return f"{slug or 'document'}-{digest}"


def content_hash(text: str) -> str:
    """The hash of a text as it reads: NFKC, runs of blanks as one, none at the ends. Case and paragraphs count."""
    lines = (" ".join(line.split()) for line in unicodedata.normalize("NFKC", text).strip().splitlines())
    normal = re.sub(r"\n{2,}", "\n\n", "\n".join(lines))
    return hashlib.blake2b(normal.encode(errors="surrogatepass"), digest_size=16).hexdigest()


# --- what may be set on a chunk -------------------------------------------------------------------


def check_importance(value: object) -> float:
    """A rating from 0 to 1, or InvalidInput."""
    rating = float(number(value, "importance"))
    if not 0 <= rating <= 1:
        raise InvalidInput(f"importance: a number from 0 to 1 expected, not {rating:g}")
    return rating


def check_knowledge_type(value: object) -> str:
    """One of the kinds of knowledge, or InvalidInput."""
    if not isinstance(value, str) or value not in KNOWLEDGE_TYPES:
        raise InvalidInput(f"knowledge_type: one of {', '.join(KNOWLEDGE_TYPES)} expected, not {value!r}")
    return str.__str__(value)  # a str-Enum would format as its member's name


def check_metadata(metadata: object) -> Mapping[str, Any]:
    """A mapping that sets nothing which is the store's to set, or InvalidInput."""
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata: a mapping expected, not {metadata!r}")
    ours = [name for name in metadata if name in OURS - SETTABLE]
    if ours:
        raise InvalidInput(f"metadata: {', '.join(ours)}: set by the store; use another name")
    return metadata


def check_tags(tags: object) -> list[str]:
    """Tags, each once, in their order; or InvalidInput."""
    if isinstance(tags, (str, bytes, Mapping)) or not isinstance(tags, Iterable):
        raise InvalidInput(f"tags: a list of strings expected, not {tags!r}")
    found: list[str] = []
    for tag in tags:
        if not isinstance(tag, str) or not tag:
            raise InvalidInput(f"tags: a non-empty string expected, not {tag!r}")
        found.append(str.__str__(tag))
    return list(dict.fromkeys(found))


def tags_filter(tags: object) -> Filter | None:
    """All of a list of tags, or {"any": [...]}: one of them. None for no tags at all."""
    if tags is None:
        return None
    if isinstance(tags, Mapping):
        if set(tags) != {"any"}:
            raise InvalidInput(f'tags: a list (all of them), or {{"any": [...]}}, not {tags!r}')
        return Tag("tags", many=True).isin(check_tags(tags["any"]))
    found = check_tags(tags)
    return as_filter({"tags": {"all": found}}, {"tags": Tag("tags", many=True)}) if found else None


# --- dates ----------------------------------------------------------------------------------------

# What datetime can show: 0001-01-01, and the first second of the year 10000.
_FIRST_S, _END_S = -62_135_596_800, 253_402_300_800


def timestamp(value: object, what: str = "date") -> float:
    """Seconds since the epoch, of seconds, an aware datetime, a date, or an ISO 8601 string with its zone.

    A day without a time is its midnight in UTC. InvalidInput for a time without a zone, and what is no date.
    """
    if isinstance(value, bool):
        raise InvalidInput(f"{what}: a date expected, not {value!r}")
    if isinstance(value, str):
        value = _parsed(value.strip(), what)
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidInput(f"{what}: {value.isoformat()} has no time zone; end it in Z for UTC")
        seconds = value.timestamp()
    elif isinstance(value, date):
        seconds = datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    elif isinstance(value, Real):
        try:
            seconds = float(value)
        except OverflowError:  # an int of 400 digits
            seconds = inf
    else:
        raise InvalidInput(f"{what}: a date expected, not {value!r}")
    if not _FIRST_S <= seconds < _END_S:  # not for NaN either
        raise InvalidInput(f"{what}: {seconds} seconds since 1970 are not within the years 1 to 9999")
    return round(seconds, 6)  # what a datetime, and so an ISO 8601 date in the archive, can tell


def _parsed(text: str, what: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass  # no day alone: 2026-07-28, 20260728
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{what}: {text!r} is no ISO 8601 date: {error}") from None


def iso(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC; fractions of a second only where there are some."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
