"""Searching memory: candidates by words and meaning, what the policy makes of them, and the count of this read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from fields.errors import InvalidInput
from fields.filters import Filter, as_filter
from fields.kinds import Numeric, Tag
from fields.names import utf8
from fields.vectors import embedding_matrix
from retriever.documents import Document, FusedHit, Hit, Hits
from retriever.fusion import CHANNELS, Rrf, as_fusion
from retriever.memory.chunks import (
    Chunk,
    chunk_id,
    chunk_of,
    iso,
    tags_filter,
)
from retriever.memory.finding import Memory, chunks_by_id, counters, document
from retriever.memory.policy import Policy, relevance_of_distance, relevance_of_rerank, staged
from retriever.operations import read, retrieve, search
from retriever.plans import Call, Command, Embed, Plan, Wait, ask_all, raise_first
from retriever.queries import FilterSpec, check_bool, check_int, check_k
from retriever.replies import integer, values
from retriever.rerankers import Reranker

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """What a search of memory gave: chunks, best first, and whether that is all. stats: for people."""

    chunks: tuple[Chunk, ...]
    complete: bool = True
    reasons: tuple[str, ...] = ()
    stats: Mapping[str, float] = field(default_factory=dict)


def search_memory(
    memory: Memory,
    query: str,
    *,
    tags: object,
    filter: FilterSpec,
    k: int,
    use_fts: bool,
    fusion: Any,
    memory_rerank: bool,
    policy: Policy | None,
    reinforce: bool,
    rerank: Reranker | bool | None,
    depth: int | None,
    candidates: int | None,
    max_distance: float | None,
    min_text_score: float | None,
    diversity: float | None,
    collapse: str | None,
    expand: Any,
    fit: Callable[[Sequence[Chunk]], int] | None,
    now: float,
) -> Plan[Found]:
    """See ``MemoryStore.search``."""
    if not isinstance(query, str) or not query.strip():
        raise InvalidInput(f"query: a question in words expected, not {query!r:.80}")
    check_k(k)
    check_bool("use_fts", use_fts)
    check_bool("memory_rerank", memory_rerank)
    check_bool("reinforce", reinforce)
    if fit is not None and not callable(fit):
        raise InvalidInput(f"fit: a function of chunks expected, not {fit!r}")
    if fusion is not None and not use_fts:
        raise InvalidInput("fusion: use_fts=False searches by vector alone, and fuses nothing")
    chosen = memory.policy if policy is None else policy
    if not isinstance(chosen, Policy):
        raise InvalidInput(f"policy: a Policy expected, not {policy!r}")
    narrowed = as_filter(filter, memory.live.schema.by_name)
    tagged = tags_filter(tags)
    whole = memory.filter(narrowed, tagged)
    also = None
    ordered = memory_rerank or bool(rerank)
    if chosen.guaranteed and chosen.guaranteed_limit and narrowed is None and tagged is None and ordered:
        weighty = (Tag("knowledge_type") == "principle") | (Numeric("importance") >= chosen.guaranteed_importance)
        also = (weighty, chosen.guaranteed_limit)
    for name, value in (("depth", depth), ("candidates", candidates)):
        if value is not None:
            check_int(name, value, read.MAX_PAGE, least=k)
    if candidates is not None and not ordered:
        raise InvalidInput("candidates are what a reranker or memory_rerank sees; ask for one too")
    pool = (4 * k if candidates is None else candidates) if ordered else k
    pool = min(read.MAX_PAGE, pool + 10)  # room for the same text twice
    spent: dict[str, float] = {}
    while True:
        searched = _candidates(
            memory,
            query,
            whole,
            pool,
            use_fts=use_fts,
            fusion=fusion,
            rerank=rerank,
            depth=depth,
            max_distance=max_distance,
            min_text_score=min_text_score,
            diversity=diversity,
            collapse=collapse,
            expand=expand,
            also=also,
        )
        hits, relevance = yield from _timed(searched, spent)
        chunks = [_found(hit, value, pool) for hit, value in zip(hits, relevance, strict=True)]
        unique = _without_twins(chunks)
        if len(unique) >= k or len(hits) < pool or pool >= min(read.MAX_PAGE, 8 * (k + 10)):
            break
        pool = min(read.MAX_PAGE, 2 * pool)
    if memory_rerank:
        counted = yield from counters(memory, [chunk.id for chunk in chunks])
        chunks = [
            replace(chunk, access_count=uses, last_accessed_at=used)
            for chunk, (uses, used) in zip(chunks, counted, strict=True)
        ]
        pairs = [(chunk, chunk.relevance or 0.0) for chunk in chunks]
        # Twins may be rated, dated and read differently: the best of them stands for the others.
        unique = _without_twins(replace(chunk, memory_score=score) for chunk, score in staged(pairs, chosen, now))
    winners = unique[:k]
    if fit is not None:
        winners = winners[: check_int("fit", (yield Call(fit, (winners,))), k, least=0)]
    winners = yield from _read_deliberately(memory, winners, now, reinforce=reinforce)
    counted_too = {} if use_fts else {"vector_candidates": len(hits)}
    return Found(tuple(winners), hits.complete, hits.reasons, {**counted_too, **hits.stats, **spent})


def _timed(plan: Plan[T], spent: dict[str, float]) -> Plan[T]:
    """The same plan; what its calls took is added to ``embed_ms``, and to ``rerank_ms``: an expansion counts there."""
    try:
        step = next(plan)
        while True:
            name = {Embed: "embed_ms", Call: "rerank_ms"}.get(type(step))
            started = (yield Wait(0)) if name else 0.0
            try:
                answer = yield step
                if name:
                    spent[name] = spent.get(name, 0.0) + 1000 * ((yield Wait(0)) - started)
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        plan.close()


def _candidates(
    memory: Memory,
    query: str,
    whole: Filter | None,
    pool: int,
    *,
    use_fts: bool,
    fusion: Any,
    rerank: Reranker | bool | None,
    depth: int | None,
    max_distance: float | None,
    min_text_score: float | None,
    diversity: float | None,
    collapse: str | None,
    expand: Any,
    also: tuple[Filter, int] | None,
) -> Plan[tuple[Hits[Any], list[float]]]:
    """Hits, best first, and the relevance of each, 0..1."""
    live = memory.live
    plain = all(each is None for each in (diversity, collapse, expand, also, min_text_score, depth))
    if not use_fts and plain and not rerank:
        near = yield from search.query(live, None, text=query, k=pool, filter=whole, max_distance=max_distance)
        return near, [relevance_of_distance(hit.score, live.schema.vector.metric) for hit in near]
    if fusion is None:
        fusion = memory.fusion if expand is None else "rrf"  # the only one that fuses several texts
    chosen = as_fusion(fusion) if use_fts else Rrf()
    hits = yield from retrieve.retrieve(
        live,
        memory.reranker,
        text=query,
        k=pool,
        filter=whole,
        fusion=chosen,
        channels=CHANNELS if use_fts else ("vector",),
        depth=max(pool, depth) if depth is not None else None,
        max_distance=max_distance,
        min_text_score=min_text_score,
        rerank=rerank,
        candidates=pool if rerank else None,
        diversity=diversity,
        collapse=collapse,
        expand=expand,
        also=also,
    )
    if rerank:
        scores = [hit.rerank_score for hit in hits]
        if all(score is not None for score in scores):
            return hits, relevance_of_rerank([score for score in scores if score is not None])
        return hits, [1 - at / len(hits) for at in range(len(hits))]
    if not use_fts:
        metric = live.schema.vector.metric
        return hits, [relevance_of_distance(hit.vector_distance or 0.0, metric) for hit in hits]
    top = hits.stats.get("greatest") or max((hit.fused_score for hit in hits), default=1.0) or 1.0
    return hits, [min(1.0, max(0.0, hit.fused_score / top)) for hit in hits]


def _found(hit: Hit | FusedHit, relevance: float, pool: int) -> Chunk:
    chunk = chunk_of(Document(hit.id, hit.text, hit.fields))
    if isinstance(hit, Hit):
        return replace(chunk, relevance=relevance, vector_distance=hit.score, channels=("vector",))
    return replace(
        chunk,
        relevance=relevance,
        rerank_score=hit.rerank_score,
        vector_distance=hit.vector_distance,
        text_score=hit.text_score,
        channels=hit.channels,
        guaranteed=hit.ranks.get("vector", 0) > pool and hit.text_score is None,
    )


def _without_twins(chunks: Iterable[Chunk]) -> list[Chunk]:
    """The first of each text, which counts the others."""
    best: dict[str, int] = {}
    kept: list[Chunk] = []
    for chunk in chunks:
        at = best.get(chunk.content_hash)
        if at is not None and chunk.content_hash:
            kept[at] = replace(kept[at], duplicates=kept[at].duplicates + 1)
            continue
        best[chunk.content_hash] = len(kept)
        kept.append(chunk)
    return kept


def _read_deliberately(memory: Memory, chunks: Sequence[Chunk], now: float, *, reinforce: bool) -> Plan[list[Chunk]]:
    """The chunks with their counters as they were before this read, which is counted. One round trip."""
    if not chunks:
        return []
    ids = [chunk.id for chunk in chunks]
    uses_key, used_key = memory.names.uses, memory.names.used
    commands: list[Command[Any]] = [Command(("HMGET", key, *ids), values, key) for key in (uses_key, used_key)]
    if reinforce:
        commands += [Command(("HINCRBY", uses_key, id, 1), integer, uses_key, repeatable=False) for id in ids]
        stamps = [word for id in ids for word in (id, repr(now))]
        commands.append(Command(("HSET", used_key, *stamps), integer, used_key))
    uses, used, *rest = yield from ask_all(commands)
    raise_first(uses, used, *rest)
    return [
        replace(chunk, access_count=int(count or 0), last_accessed_at=None if at is None else float(at))
        for chunk, count, at in zip(chunks, uses, used, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Context:
    """Chunks laid out for a prompt. text: numbered, each with its source; tokens: of the text; chunks: those in it."""

    text: str
    tokens: int
    chunks: tuple[Chunk, ...]


def context(
    memory: Memory,
    search: Plan[Found],
    budget: int,
    count: Callable[[str], int] | None,
    *,
    now: float,
    reinforce: bool,
) -> Plan[Context]:
    """What a search found, as far as a budget of tokens goes: whole chunks, best first. See ``MemoryStore.context``.

    search: one that counts nothing; counted are the chunks that fit.
    """
    check_int("budget", budget, 10_000_000)
    check_bool("reinforce", reinforce)
    if count is not None and not callable(count):
        raise InvalidInput(f"count: a function of a text expected, not {count!r}")
    found = yield from search
    parts: list[str] = []
    tokens, chosen = 0, []
    for chunk in found.chunks:
        dated = "" if chunk.source_date is None else f", {iso(chunk.source_date)[:10]}"
        part = f"[{len(parts) + 1}] {chunk.source or chunk.doc_id}{dated}\n{chunk.content.strip()}"
        if count is None:
            size = (len(part) + 5) // 4
        else:
            size = check_int("count", (yield Call(count, (part + "\n\n",))), 2**53, least=0)
        if tokens + size > budget:
            continue  # a shorter one may still fit
        parts.append(part)
        chosen.append(chunk)
        tokens += size
    chosen = yield from _read_deliberately(memory, chosen, now, reinforce=reinforce)
    return Context("\n\n".join(parts), tokens, tuple(chosen))


def embed(memory: Memory, text: str) -> Plan[list[float]]:
    """The vector of a text, as a query's. See ``MemoryStore.embed``."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"text: a string with something in it expected, not {text!r}")
    utf8(text, "text")
    rows = yield Embed((text,), "query")
    vector: list[float] = embedding_matrix(rows, 1, memory.live.dims)[0].tolist()
    return vector


def rerank(
    memory: Memory, scored: Sequence[tuple[str, int, float]], policy: Policy, now: float
) -> Plan[tuple[list[Chunk], list[tuple[str, int]]]]:
    """(doc_id, chunk_index, relevance) -> chunks by their memory score, and which are unknown. Changes nothing."""
    wanted: list[tuple[str, int, float]] = []
    for each in [scored] if isinstance(scored, str) or not isinstance(scored, Iterable) else scored:
        if not isinstance(each, Sequence) or isinstance(each, str) or len(each) != 3:
            raise InvalidInput(f"rerank: (doc_id, chunk_index, score) expected, not {each!r}")
        doc_id, index, score = each
        if not isinstance(doc_id, str) or isinstance(score, bool) or not isinstance(score, (int, float, np.floating)):
            raise InvalidInput(f"rerank: (doc_id, chunk_index, score) expected, not {(doc_id, index, score)!r}")
        check_int("chunk_index", index, 2**31, least=0)
        if not 0 <= float(score) <= 1:
            raise InvalidInput(f"score of {doc_id!r}: relevance is from 0 to 1, not {score!r}")
        wanted.append((doc_id, index, float(score)))
    revisions: dict[str, dict[str, str]] = {}
    unknown: list[tuple[str, int]] = []
    for doc_id in dict.fromkeys(doc_id for doc_id, _, _ in wanted):
        try:
            revisions[doc_id] = yield from document(memory, doc_id)
        except InvalidInput:
            continue
    ids: dict[str, tuple[str, int, float]] = {}
    for doc_id, index, score in wanted:
        stored = revisions.get(doc_id, {})
        if index < int(stored.get("chunk_count", 0)):
            ids[chunk_id(doc_id, stored["revision"], index)] = (doc_id, index, score)
        else:
            unknown.append((doc_id, index))
    found = {chunk.id: chunk for chunk in (yield from chunks_by_id(memory, list(ids)))}
    unknown += [(doc_id, index) for id, (doc_id, index, _) in ids.items() if id not in found]
    pairs = [(replace(found[id], relevance=score), score) for id, (_, _, score) in ids.items() if id in found]
    return [replace(chunk, memory_score=score) for chunk, score in staged(pairs, policy, now)], unknown
