"""What a type checker takes for a reranker, and what not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from retriever import AsyncRetriever, CrossEncoderReranker, Document, Hit, Reranker, Retriever


def order(text: str, hits: list[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: len(hit.text))


def pairs(text: str, hits: Sequence[Hit]) -> list[tuple[Hit, float]]:
    return [(hit, float(hit.text.count(text))) for hit in hits]


def numpy_scores(text: str, hits: list[Hit]) -> zip[tuple[Hit, np.float32]]:
    return zip(hits, np.ones(len(hits), np.float32), strict=True)


def generated(text: str, hits: list[Hit]) -> Iterator[tuple[Hit, int]]:
    yield from ((hit, len(hit.text)) for hit in hits)


async def awaited(text: str, hits: list[Hit]) -> list[tuple[Hit, float]]:
    return pairs(text, hits)


class CrossEncoder:
    def __call__(self, text: str, hits: Sequence[Hit]) -> list[tuple[Hit, float]]:
        return pairs(text, hits)


class AsyncCrossEncoder:
    async def __call__(self, text: str, hits: Sequence[Hit]) -> list[Hit]:
        return list(hits)


def swapped(hits: list[Hit], text: str) -> list[Hit]:
    return hits


def scores_alone(text: str, hits: list[Hit]) -> list[float]:
    return [0.0 for _ in hits]


def of_documents(text: str, documents: list[Document]) -> list[Document]:
    return documents


def use(docs: Retriever) -> None:
    rerankers: list[Reranker] = [order, pairs, numpy_scores, generated, awaited, CrossEncoder(), AsyncCrossEncoder()]
    rerankers.append(CrossEncoderReranker("cross-encoder/ms-marco-MiniLM-L6-v2", batch_size=8))
    for rerank in rerankers:
        docs.query(text="a", rerank=rerank, candidates=20)
    docs.query(text="a", rerank=True)
    docs.query(text="a", rerank=lambda text, hits: hits[::-1])

    docs.query(text="a", rerank=swapped)  # type: ignore[arg-type]
    docs.query(text="a", rerank=scores_alone)  # type: ignore[arg-type]
    docs.query(text="a", rerank=of_documents)  # type: ignore[arg-type]
    docs.query(text="a", rerank="cross-encoder")  # type: ignore[arg-type]


async def use_async(docs: AsyncRetriever) -> None:
    await docs.query(text="a", rerank=order)
    await docs.query(text="a", rerank=awaited)
