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
    indexed_text: what is embedded and searched by words where that is more than the text: with its title, its date or
        its speaker before it, say. Not kept and not compared by ``==``: hits and ``get`` give the text alone.
    """

    id: str
    text: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: npt.ArrayLike | None = field(default=None, compare=False)
    ttl_s: float | None = None
    indexed_text: str | None = field(default=None, compare=False)

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


@dataclass(slots=True)
class FusedHit:
    """One answer of ``retrieve``, and why it is there; to be read, not changed.

    fused_score: higher is better; to be compared within one answer only.
    vector_distance: as ``Hit.score``: lower is closer; None if the vector channel did not return it.
    text_score: BM25, higher is better; None if the text channel did not return it.
    channels: which did, of "vector" and "text", in that order. ranks: its place in each, from 1.
    contributions: what each added to the fused score, whose sum it is; "fusion" stands for a function of yours.
    terms: the query's terms that it holds, as the analysis makes them; () where the text channel did not return it.
    collapsed: how many other hits of the same value ``collapse`` left out.
    fusion, filter: how the rankings were fused, and the filter's query string, None without one; for ``explain()``.
    rerank_score, text, fields: as in ``Hit``.
    """

    id: str
    fused_score: float
    text: str
    fields: Mapping[str, Any]
    vector_distance: float | None
    text_score: float | None
    ranks: Mapping[str, int]
    contributions: Mapping[str, float]
    terms: tuple[str, ...] = ()
    rerank_score: float | None = None
    collapsed: int = 0
    fusion: str = ""
    filter: str | None = None

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that returned it, of "vector" and "text", in that order."""
        return tuple(self.ranks)

    def explain(self) -> str:
        """Why it is there, for people: a line per channel with rank, score and contribution, and the filter it passed.

        The words may change; the numbers are those of the attributes.
        """
        # As the index holds them, mostly stems: "decid" is no misprint.
        words = f" for the terms {', '.join(self.terms)}" if self.terms else ""
        said = {"vector": f"distance {self.vector_distance:.6g}"} if self.vector_distance is not None else {}
        said |= {"text": f"BM25 {self.text_score:.6g}{words}"} if self.text_score is not None else {}
        lines = [f"{self.id}: fused score {self.fused_score:.6g} by {self.fusion}"]
        for channel, rank in self.ranks.items():
            share = f", contributes {self.contributions[channel]:.6g}" if channel in self.contributions else ""
            lines.append(f"  {channel}: rank {rank}, {said[channel]}{share}")
        if "fusion" in self.contributions:
            lines.append(f"  fusion: contributes {self.contributions['fusion']:.6g}")
        if self.rerank_score is not None:
            lines.append(f"  reranker: {self.rerank_score:.6g}, which decides the order")
        if self.collapsed:
            lines.append(f"  stands for {self.collapsed} more of its group")
        if self.filter is not None:
            lines.append(f"  passed the filter {self.filter}")
        return "\n".join(lines)


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
