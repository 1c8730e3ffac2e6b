"""What a type checker takes for an embedder, and what not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from retriever import AsyncRetriever, Embedder, LocalEmbedder, Retriever, Schema


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

    Retriever(client, schema, embed=takes_one)  # type: ignore[arg-type]
    Retriever(client, schema, embed=takes_two)  # type: ignore[arg-type]
    Retriever(client, schema, embed=returns_none)  # type: ignore[arg-type]
    AsyncRetriever.connect("valkey://localhost", schema, embed="all-MiniLM-L6-v2")  # type: ignore[arg-type]
