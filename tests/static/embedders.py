"""What a type checker takes for an embedder, and what not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

from retriever import (
    AsyncCachedEmbedder,
    AsyncRetriever,
    CachedEmbedder,
    Embedder,
    LocalEmbedder,
    Retriever,
    Schema,
    SentenceTransformerEmbedder,
)


def rows(texts: list[str]) -> list[list[float]]:
    return [[1.0, 0.0] for _ in texts]


def matrix(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    return np.zeros((len(texts), 2), np.float32)


def any_iterable(texts: Iterable[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.zeros((len(list(texts)), 2))


async def awaited(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    return matrix(texts)


class Model:
    name = "model"
    dims = 2

    def __call__(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return matrix(texts)

    def embed_query(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return matrix(texts)


class AsyncModel:
    async def __call__(self, texts: Sequence[str], batch_size: int = 32) -> list[list[float]]:
        return rows(list(texts))


def takes_one(text: str) -> list[float]:
    return [1.0]


def takes_two(texts: list[str], model: str) -> list[list[float]]:
    return [[1.0]]


def returns_none(texts: list[str]) -> None: ...


def use(client: Any, schema: Schema) -> None:
    embedders: list[Embedder] = [rows, matrix, any_iterable, awaited, Model(), AsyncModel(), LocalEmbedder()]
    for embed in embedders:
        Retriever(client, schema, embed=embed)
        AsyncRetriever(client, schema, embed=embed)
    Retriever(client, schema, embed=lambda texts: [[1.0] for _ in texts])

    embedders += [
        SentenceTransformerEmbedder("intfloat/e5-small-v2", query_prompt="query: ", normalize=False),
        SentenceTransformerEmbedder(Path("model"), name="mine"),
        CachedEmbedder(LocalEmbedder(), client=client, ttl_s=60),
        CachedEmbedder(rows, max_entries=100),
        AsyncCachedEmbedder(awaited, client=client),
        AsyncCachedEmbedder(CachedEmbedder(matrix)),
    ]
    assert_type(CachedEmbedder(rows).embed_query(["a"]), npt.NDArray[np.float32])
    assert_type(CachedEmbedder(rows).clear(), int)

    CachedEmbedder(takes_one)  # type: ignore[arg-type]
    CachedEmbedder(rows, max_entries="100")  # type: ignore[arg-type]
    SentenceTransformerEmbedder("model", query_prompt=1)  # type: ignore[arg-type]

    Retriever(client, schema, embed=takes_one)  # type: ignore[arg-type]
    Retriever(client, schema, embed=takes_two)  # type: ignore[arg-type]
    Retriever(client, schema, embed=returns_none)  # type: ignore[arg-type]
    AsyncRetriever.connect("valkey://localhost", schema, embed="all-MiniLM-L6-v2")  # type: ignore[arg-type]


async def use_async(embed: AsyncCachedEmbedder) -> None:
    assert_type(await embed(["a"]), npt.NDArray[np.float32])
    assert_type(await embed.clear(), int)

    embed(["a"]).shape  # type: ignore[attr-defined]
