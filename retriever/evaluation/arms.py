"""The ways to search that are compared, over an index or a memory.

Rule: an arm asks as its user would, through the public methods, and never writes: a memory is asked with
``reinforce=False``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from fields.errors import InvalidInput
from fields.filters import as_filter
from fields.vectors import embedding_matrix
from retriever.client import Retriever
from retriever.documents import FusedHit, Hits
from retriever.errors import RetrieverError, ServerError
from retriever.evaluation.golden import Question
from retriever.fusion import CHANNELS, Append, Fusion, Linear, Rrf
from retriever.memory import finding
from retriever.memory.searching import Found
from retriever.memory.store import MemoryStore
from retriever.operations import index
from retriever.operations.index import Live
from retriever.plans import Embed, Plan
from retriever.rerankers import Reranker

__all__ = ["Answer", "Arm", "Channel", "IndexTarget", "MemoryTarget", "Target", "arms_of", "channel_arm", "target_of"]

# Results asked for per document wanted, where several results may be of one document. Arbitrary: long documents of a
# memory have more chunks, but few of them answer one query.
PER_DOCUMENT = 4
SNIPPET = 320  # characters of a result's text that a report keeps
INDEX_ARMS = ("vector", "text", "rrf", "linear", "append")
MEMORY_ARMS = ("memory", "memory-no-guaranteed")
NEEDS_WORDS = frozenset({"text", "rrf", "linear", "append"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query found: document ids, best first, each once.

    results: how many came back before those of one document became one. texts: document id -> the beginning of the text
    that stands for it. complete, reasons: as in ``Hits``.
    """

    ids: tuple[str, ...]
    texts: Mapping[str, str] = field(default_factory=dict)
    results: int = 0
    complete: bool = True
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel's ranking, as fusion takes it: (result id, distance or text score); and each result's document."""

    ranking: Sequence[tuple[str, float]]
    documents: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to search. what: its parameters, in words. ask: (question, documents wanted) -> what it finds."""

    name: str
    what: str
    ask: Callable[[Question, int], Answer]
    reranked: bool = False


def why(error: Exception) -> str:
    """Why a query failed, in a line; the kind of what is not the library's own error is part of it."""
    return str(error) if isinstance(error, RetrieverError) else f"{type(error).__name__}: {error}"


# --- an index -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """An index. document_field: the field that names a result's document, None where a result is a document."""

    retriever: Retriever
    document_field: str | None = None

    def __post_init__(self) -> None:
        known = self.retriever._live.schema.by_name
        if self.document_field is not None and self.document_field not in known:
            said = ", ".join(known) or "none"
            raise InvalidInput(f"document_field: no field {self.document_field!r}; those declared: {said}")

    @property
    def name(self) -> str:
        """For people."""
        return f"index {self.retriever._live.schema.name}"

    @property
    def chunked(self) -> bool:
        """Whether several results may be of one document."""
        return self.document_field is not None

    @property
    def has_words(self) -> bool:
        """Whether there is a text channel."""
        return self.retriever._live.schema.analysis is not None

    @property
    def has_vectors(self) -> bool:
        """Whether there is a vector channel."""
        return self.retriever._live.embeds

    def ask(self, question: Question, results: int, *, fusion: Fusion, channels: Iterable[str], **given: Any) -> Answer:
        """What a query finds by channels and a fusion. given: rerank, candidates, depth."""
        chosen = tuple(channels)
        hits = self.retriever.retrieve(
            text=question.query, k=results, filter=question.filter, fusion=fusion, channels=chosen, **given
        )
        _check_channels(self.retriever._live, question, chosen, hits)
        return self._answer(hits)

    def channel(self, question: Question, name: str, depth: int) -> Channel:
        """What one channel alone ranks."""
        fields = [] if self.document_field is None else [self.document_field]
        hits = self.retriever.retrieve(
            text=question.query, k=depth, filter=question.filter, channels=[name], depth=depth, return_fields=fields
        )
        return _channel(hits, name, self._document)

    def unknown(self, ids: Sequence[str]) -> list[str]:
        """Those of the document ids that are not there; where a field names them, of which nothing is there."""
        if self.document_field is None:
            return [id for id, there in zip(ids, self.retriever.exists(ids), strict=True) if not there]
        wanted = dict.fromkeys(ids)
        for document in self.retriever.scan():  # a stored field cannot be searched by
            wanted.pop(str(document.fields.get(self.document_field, document.id)), None)
            if not wanted:
                break
        return list(wanted)

    def documents(self) -> int:
        """How many documents or chunks there are."""
        return self.retriever.describe_index().documents

    def words(self, question: Question) -> bool:
        """Whether a query has terms to search by."""
        return _has_terms(self.retriever._live, question)

    def check_embedder(self, text: str) -> str | None:
        """Embed a text; what to know of the embedder. Raises what this library refuses, MissingExtra among it."""
        live = self.retriever._live
        _try_embedder(self.retriever._run, live, text)
        return _unlike(self.name, live.embedder, self.retriever.describe_index().embedder)

    def _document(self, hit: FusedHit) -> str:
        return hit.id if self.document_field is None else str(hit.fields.get(self.document_field, hit.id))

    def _answer(self, hits: Hits[FusedHit]) -> Answer:
        texts: dict[str, str] = {}
        for hit in hits:
            texts.setdefault(self._document(hit), hit.text[:SNIPPET])
        return Answer(tuple(texts), texts, len(hits), hits.complete, hits.reasons)


def _channel(hits: Hits[FusedHit], name: str, document: Callable[[FusedHit], str]) -> Channel:
    ranking = [(hit.id, hit.vector_distance if name == "vector" else hit.text_score) for hit in hits]
    scored = [(id, score) for id, score in ranking if score is not None]
    return Channel(scored, {hit.id: document(hit) for hit in hits})


# --- a memory -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """A namespace of memory, within the store's scope. A result is a chunk."""

    store: MemoryStore
    chunked = True
    has_words = True
    has_vectors = True

    @property
    def name(self) -> str:
        """For people."""
        return f"memory {self.store._memory.names.namespace}"

    def ask(self, question: Question, results: int, *, fusion: Fusion, channels: Iterable[str], **given: Any) -> Answer:
        """See ``IndexTarget``."""
        chosen = tuple(channels)
        if chosen == ("text",):  # which search has no argument for
            return self._answer_of_hits(self._retrieve(question, results, channels=chosen, **given))
        by_words = "text" in chosen
        return self.search(question, results, use_fts=by_words, fusion=fusion if by_words else None, **given)

    def search(self, question: Question, results: int, **given: Any) -> Answer:
        """What the store's own search finds."""
        found = self.store.search(question.query, k=results, filter=question.filter, reinforce=False, **given)
        channels = CHANNELS if given.get("use_fts", True) else ("vector",)
        _check_channels(self.store._memory.live, question, channels, found)
        texts: dict[str, str] = {}
        for chunk in found.chunks:
            texts.setdefault(chunk.doc_id, chunk.content[:SNIPPET])
        return Answer(tuple(texts), texts, len(found.chunks), found.complete, found.reasons)

    def channel(self, question: Question, name: str, depth: int) -> Channel:
        """See ``IndexTarget``."""
        hits = self._retrieve(question, depth, channels=(name,), depth=depth, return_fields=["doc_id"])
        return _channel(hits, name, _chunks_document)

    def unknown(self, ids: Sequence[str]) -> list[str]:
        """See ``IndexTarget``."""
        missing = []
        for id in ids:
            try:
                self.store._run("evaluation", finding.document(self.store._memory, id))
            except InvalidInput:
                missing.append(id)
        return missing

    def documents(self) -> int:
        """See ``IndexTarget``."""
        return self.store._run("evaluation", index.describe(self.store._memory.live)).documents

    def words(self, question: Question) -> bool:
        """See ``IndexTarget``."""
        return _has_terms(self.store._memory.live, question)

    def check_embedder(self, text: str) -> str | None:
        """See ``IndexTarget``."""
        live = self.store._memory.live
        _try_embedder(self.store._run, live, text)
        return _unlike(self.name, live.embedder, self.store._run("evaluation", index.describe(live)).embedder)

    def _retrieve(self, question: Question, results: int, **given: Any) -> Hits[FusedHit]:
        memory = self.store._memory
        filter = memory.filter(as_filter(question.filter, memory.live.schema.by_name))
        if given.get("rerank") is True:
            given["rerank"] = memory.reranker
        return self.store._retriever.retrieve(text=question.query, k=results, filter=filter, **given)

    def _answer_of_hits(self, hits: Hits[FusedHit]) -> Answer:
        texts: dict[str, str] = {}
        for hit in hits:
            texts.setdefault(_chunks_document(hit), hit.text[:SNIPPET])
        return Answer(tuple(texts), texts, len(hits), hits.complete, hits.reasons)


def _chunks_document(hit: FusedHit) -> str:
    return str(hit.fields["doc_id"])


Target: TypeAlias = IndexTarget | MemoryTarget

# --- both -----------------------------------------------------------------------------------------


def _has_terms(live: Live, question: Question) -> bool:
    return live.schema.analysis is not None and any(live.schema.analysis.terms(question.query))


def _check_channels(live: Live, question: Question, channels: Sequence[str], found: Hits[FusedHit] | Found) -> None:
    """Raise ServerError where one of two channels did not run.

    Such an answer is worth something to who asked, but it is the other channel's alone: counted, it would pass for
    fusion. Not so a query without terms, of which words never have a say.
    """
    if len(channels) < 2:
        return
    for channel in channels:
        if f"{channel}_candidates" in found.stats or (channel == "text" and not _has_terms(live, question)):
            continue
        said = [reason.partition(": ")[2] for reason in found.reasons if reason.startswith(f"{channel}: ")]
        raise ServerError(f"the {channel} channel did not run: {'; '.join(said) or 'nobody said why'}")


def _try_embedder(run: Callable[[str, Plan[None]], Any], live: Live, text: str) -> None:
    def plan() -> Plan[None]:
        rows = yield Embed((text,), "query")
        embedding_matrix(rows, 1, live.dims)

    try:
        run("evaluation", plan())
    except RetrieverError:  # a package or a dimension that is lacking: so at every query
        raise
    except Exception:  # of the embedder's own making: it may be this text's alone, and counts where it is asked
        return


def _unlike(name: str, ours: str | None, made_by: str | None) -> str | None:
    """What a report says of the embedder, unless it is known to have made the vectors."""
    if ours is None:
        made = "" if made_by is None else f", {made_by!r}"
        return f"the embedder has no name, so nobody compared it with what made the vectors of {name}{made}"
    if made_by is None:
        return f"{name} does not say what made its vectors, so nobody compared it with the embedder, {ours!r}"
    return None if ours == made_by else f"the vectors of {name} were made by {made_by!r}, and the embedder is {ours!r}"


# --- arms -----------------------------------------------------------------------------------------


def target_of(searched: Retriever | MemoryStore, document_field: str | None = None) -> IndexTarget | MemoryTarget:
    """What is evaluated, of a retriever or a store."""
    if isinstance(searched, Retriever):
        return IndexTarget(searched, document_field)
    if not isinstance(searched, MemoryStore):
        raise InvalidInput(f"a Retriever or a MemoryStore expected, not {searched!r:.80}")
    if document_field is not None:
        raise InvalidInput("document_field: a memory's results are chunks, whose document is known")
    return MemoryTarget(searched)


def arms_of(target: Target, chosen: Sequence[str] | None, rerank: Reranker | None) -> tuple[list[Arm], list[str]]:
    """The arms by their names (None: all that can run), each also reranked if there is a reranker; and notes.

    Raises InvalidInput for one that there is not, and for one that was chosen and cannot run.
    """
    known = INDEX_ARMS + (MEMORY_ARMS if isinstance(target, MemoryTarget) else ())
    if isinstance(chosen, str) or not isinstance(chosen, Sequence | None):
        raise InvalidInput(f"arms: a list of names expected, not {chosen!r:.80}")
    names = list(known if chosen is None else dict.fromkeys(chosen))
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        way = "; the others need a memory" if wrong and wrong[0] in MEMORY_ARMS else ""
        said = f"no arm {wrong[0]!r} of {target.name}" if wrong else "at least one arm"
        raise InvalidInput(f"arms: {said}; choose from {', '.join(known)}{way}")
    notes: list[str] = []
    lacking = {name: why for name in names if (why := _lacks(target, name))}
    if lacking and chosen is not None:
        name, why = next(iter(lacking.items()))
        raise InvalidInput(f"arms: {name} cannot run: {why}")
    for why in dict.fromkeys(lacking.values()):
        notes.append(f"{', '.join(name for name in lacking if lacking[name] == why)} left out: {why}")
    names = [name for name in names if name not in lacking]
    if not names:
        raise InvalidInput(f"arms: none can run on {target.name}: {'; '.join(notes)}")
    arms = [_arm(target, name) for name in names]
    if rerank is None:
        return arms, notes
    return [each for name, arm in zip(names, arms, strict=True) for each in (arm, _arm(target, name, rerank))], notes


def _lacks(target: Target, name: str) -> str | None:
    if name in NEEDS_WORDS and not target.has_words:
        return "the index holds no words: its schema has no analysis"
    if name != "text" and not target.has_vectors:
        return "there is no embedder for the queries"
    return None


def fetched(target: Target, wanted: int) -> int:
    """How many results are asked for to see so many documents."""
    return PER_DOCUMENT * wanted if target.chunked else wanted


def channel_arm(
    target: Target,
    name: str,
    fusion: Fusion,
    channels: Sequence[str] = CHANNELS,
    *,
    rerank: Reranker | None = None,
    depth: int | None = None,
) -> Arm:
    """An arm over channels and a fusion; what a name in INDEX_ARMS stands for, and what tuning tries."""

    def ask(question: Question, wanted: int) -> Answer:
        results, chosen = fetched(target, wanted), fusion
        if isinstance(fusion, Append):  # the window is shared: what is appended comes within it
            extra = min(fusion.extra, results // 2)
            results, chosen = results - extra, replace(fusion, extra=extra)
        given: dict[str, Any] = {}
        if rerank is not None:
            given |= {"rerank": rerank, "candidates": max(results, 4 * wanted)}
        if depth is not None:
            given["depth"] = max(depth, results)
        return target.ask(question, results, fusion=chosen, channels=channels, **given)

    how = f"by {channels[0]} alone" if len(channels) == 1 else _said(fusion)
    if depth is not None:
        how += f", depth {depth}"
    return Arm(name, f"{how}, reranked" if rerank is not None else how, ask, rerank is not None)


def linear_of(target: Target) -> Linear:
    """The linear fusion as it is unless said: the store's own, where that is one."""
    own = target.store._memory.fusion if isinstance(target, MemoryTarget) else None
    return own if isinstance(own, Linear) else Linear()


def _arm(target: Target, name: str, rerank: Reranker | None = None) -> Arm:
    title = f"{name}+rerank" if rerank is not None else name
    if name not in MEMORY_ARMS:
        fusions: dict[str, Fusion] = {"linear": linear_of(target), "append": Append()}
        fusion = fusions.get(name, Rrf())
        channels = (name,) if name in CHANNELS else CHANNELS
        return channel_arm(target, title, fusion, channels, rerank=rerank)
    assert isinstance(target, MemoryTarget)
    store, policy = target, target.store._memory.policy
    if name == "memory-no-guaranteed":
        policy = replace(policy, guaranteed=False)

    def ask(question: Question, wanted: int) -> Answer:
        results = fetched(store, wanted)
        given: dict[str, Any] = {"memory_rerank": True, "policy": policy, "candidates": results}
        if rerank is not None:
            given["rerank"] = rerank
        return store.search(question, results, **given)

    own = target.store._memory.fusion
    how = f"{_said(own)}, then importance, age and use"
    how += "" if policy.guaranteed else ", no guaranteed candidates"
    return Arm(title, f"{how}, reranked" if rerank is not None else how, ask, rerank is not None)


def _said(fusion: Fusion) -> str:
    if isinstance(fusion, Rrf):
        weights = fusion.weights
        return "rrf" if weights is None else f"rrf, weights {weights['vector']:g} : {weights['text']:g}"
    if isinstance(fusion, Linear):
        return f"linear, alpha {fusion.alpha:g}"
    if isinstance(fusion, Append):
        return f"append, the nearest, then up to {fusion.extra} by words"
    return f"fusion {getattr(fusion, '__name__', 'of your own')}"
