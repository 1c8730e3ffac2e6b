"""What goes in and what comes back: Document, Hit, Hits, and the reports of operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, overload

import numpy.typing as npt

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    id: any non-empty string, unique in its index.
    text: what is embedded (where no vector is given) and, with an analysis, searched by words.
    fields: values of declared fields; a field left out is absent, also where it was present before.
    vector: dims numbers, or None to let the retriever's embedder make it. Not compared by ``==``.
    ttl_s: seconds until the server lets the document expire; None leaves a key's expiry as it is.
    """

    id: str
    text: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: npt.ArrayLike | None = field(default=None, compare=False)
    ttl_s: float | None = None

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(slots=True)  # not frozen: setting six attributes past a guard takes four times as long, ten times a query
class Hit:
    """One answer of ``query``; to be read, not changed.

    score: the engine's **distance**: lower is closer. COSINE 1 - cos, 0..2 (rounding may give
        -1e-7); L2 the squared distance; IP 1 - dot product, which may be negative.
    text: the document's text; "" where ``return_fields`` leaves it out.
    fields: the declared fields that were asked for and that the document has.
    vector: float32 of shape (dims,), or None unless asked for. Not compared by ``==``.
    rerank_score: the reranker's number, higher is better; None unless reranked with scores.
    """

    id: str
    score: float
    text: str
    fields: Mapping[str, Any]
    vector: npt.NDArray[Any] | None = field(default=None, compare=False)
    rerank_score: float | None = None

    def __hash__(self) -> int:
        return hash(self.id)


class Hits(Sequence[H], Generic[H]):
    """An immutable sequence of hits, best first, that says whether it is whole.

    complete: False when the answer may lack hits (a timeout, an index still being filled, rows that
        could not be read); ``reasons`` then says why in words.
    stats: for people; its keys may change. ``search_ms``: the round trip, in milliseconds.
    """

    __slots__ = ("_hits", "complete", "reasons", "stats")

    def __init__(
        self,
        hits: Sequence[H] = (),
        *,
        complete: bool = True,
        reasons: tuple[str, ...] = (),
        stats: Mapping[str, float] | None = None,
    ) -> None:
        self._hits = tuple(hits)
        self.complete = complete
        self.reasons = reasons
        self.stats: Mapping[str, float] = {} if stats is None else stats

    @overload
    def __getitem__(self, index: int) -> H: ...
    @overload
    def __getitem__(self, index: slice) -> Hits[H]: ...
    def __getitem__(self, index: int | slice) -> H | Hits[H]:
        if isinstance(index, slice):
            return Hits(self._hits[index], complete=self.complete, reasons=self.reasons, stats=self.stats)
        return self._hits[index]

    def __len__(self) -> int:
        return len(self._hits)

    def __iter__(self) -> Iterator[H]:
        return iter(self._hits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hits):
            return NotImplemented
        return (self._hits, self.complete, self.reasons) == (other._hits, other.complete, other.reasons)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        partial = "" if self.complete else f", complete=False, reasons={self.reasons!r}"
        return f"Hits({list(self._hits)!r}{partial})"


@dataclass(frozen=True, slots=True)
class Failure:
    """One document that the server did not take, and its reason."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class UpsertReport:
    """What an upsert did: documents written, and every one that the server refused."""

    written: int = 0
    failed: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Interruption:
    """How far an upsert came before an error stopped it.

    report: the batches that the server confirmed.
    in_flight: ids of the batch that was being validated, embedded or sent: once sent, each of them
        may or may not have been written. Running the same upsert again gives the same end state.
    """

    report: UpsertReport
    in_flight: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What a live index is.

    documents: how many the engine holds. percent_indexed: 0..100, of keys that existed before it.
    failures: documents that the engine refused since the index was made, with the last one's error
    and key where the engine tells (Valkey Search counts only).
    """

    name: str
    prefix: str
    documents: int
    dims: int
    metric: str
    algorithm: str
    indexing: bool
    percent_indexed: float
    failures: int
    last_error: str | None
    last_error_key: str | None
    engine: str
    embedder: str | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One finished operation, as the ``on_operation`` hook is told of it.

    commands: how many were sent. hits: results given back, or documents written or deleted.
    error: the name of the exception's class, None if it succeeded.
    """

    name: str
    index: str
    seconds: float
    commands: int
    hits: int
    complete: bool
    error: str | None = None


EmbedKind = Literal["document", "query"]


def interruption(error: BaseException) -> Interruption | None:
    """How far the upsert came that this exception stopped; None if it stopped no upsert.

    Whatever stops an upsert passes through as it is (a connection error stays the client library's
    own); this is what it carries.
    """
    found = getattr(error, "_retriever_interruption", None)
    return found if isinstance(found, Interruption) else None


def interrupted(error: BaseException, report: UpsertReport, in_flight: Sequence[str]) -> None:
    """Let an exception carry how far its upsert came, and say it in a note."""
    try:
        error._retriever_interruption = Interruption(report, tuple(in_flight))  # type: ignore[attr-defined]
    except AttributeError:
        return  # an exception of the user's that takes no attributes, a frozen dataclass say, stays as it is
    error.add_note(f"upsert stopped after {report.written} documents; {len(in_flight)} were in flight")
