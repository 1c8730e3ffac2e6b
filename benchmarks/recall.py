"""How many of the true ten nearest an HNSW index finds at the defaults, on clustered vectors.

The truth is an exact search by numpy. All sides ask one and the same graph (M 16, EF_CONSTRUCTION 200,
which are every side's defaults), each with the EF_RUNTIME that it sends by default. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any

import harness
import numpy as np
from harness import Client, Matrix
from valkey import Valkey
from valkey.asyncio import Valkey as AsyncValkey

from retriever import Document, Retriever

K = 10
LEAST = 0.99
NAME = f"{harness.NAME}-recall"
SCHEMA = harness.schema(NAME)
BETTERDB, REDISVL = "betterdb-retrieval", "redisvl"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=50_000)
    options.add_argument("--queries", type=int, default=500)
    given = options.parse_args()
    vectors, asked = harness.clustered(given.documents), harness.clustered(given.queries, seed=1)
    truth = nearest(vectors, asked)
    with harness.server_url() as url, Valkey.from_url(url) as client:
        harness.clear(client, NAME)
        try:
            with Retriever(client, SCHEMA) as retriever:
                retriever.create_index()
                started = time.perf_counter()
                retriever.upsert(Document(str(at), vector=row) for at, row in enumerate(vectors))
                built = f"built in {time.perf_counter() - started:.0f} s; {len(asked)} new vectors asked for, k={K}"
                about = f"{len(vectors):,} vectors of {harness.DIMS} dims in {harness.CLUSTERS} clusters, {built}"
                harness.print_head("recall", retriever.describe_index().engine, (about,))
                asyncio.run(compare(url, client, retriever, asked, truth))
        finally:
            harness.clear(client, NAME)


def nearest(vectors: Matrix, asked: Matrix) -> list[set[int]]:
    """The exact K nearest by cosine."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return [set(row.tolist()) for row in np.argpartition(-(asked @ (vectors / lengths).T), K, axis=1)[:, :K]]


async def compare(url: str, client: Client, retriever: Retriever, asked: Matrix, truth: list[set[int]]) -> None:
    def raw(row: Any) -> list[str]:
        words = f"*=>[KNN {K} @embedding $vec AS __score]"
        command = ("FT.SEARCH", SCHEMA.name, words, "PARAMS", 2, "vec", row.tobytes(), "RETURN", 1, "__score")
        return [key.decode() for key in client.execute_command(*command, "LIMIT", 0, K, "DIALECT", 2)[1::2]]

    def ours(ef_runtime: int | None) -> Callable[[Any], list[str]]:
        return lambda row: [hit.id for hit in retriever.query(vector=row, k=K, ef_runtime=ef_runtime)]

    rows = [
        line("raw, the engine's default", "10", [raw(row) for row in asked], truth),
        line("ours, defaults", "max(100, 4k)", [ours(None)(row) for row in asked], truth, LEAST),
        line("ours, ef_runtime=200", "200", [ours(200)(row) for row in asked], truth),
    ]
    if harness.version(BETTERDB):
        async with AsyncValkey.from_url(url) as async_client:
            peer = harness.betterdb_retriever(async_client, NAME, "hnsw", never_embeds)
            found = [[hit.id for hit in await peer.query(k=K, vector=row.tolist())] for row in asked]
            rows.append(line(f"{BETTERDB}, defaults", "10 (in the index only)", found, truth))
    if harness.version(REDISVL):
        index = harness.redisvl_index(url, NAME, "hnsw")
        ask = harness.redisvl_query
        found = [[hit["id"] for hit in index.query(ask(row.tobytes(), K, None, None))] for row in asked]
        rows.append(line(f"{REDISVL}, defaults", "10", found, truth))
    harness.print_table("", ["side", "EF_RUNTIME", f"recall@{K}", "worst query", "queries below 1", "target"], rows)


async def never_embeds(text: str) -> list[float]:
    raise AssertionError(f"no text is asked for here, {text!r} least of all")


def line(
    name: str, ef_runtime: str, found: list[list[str]], truth: list[set[int]], least: float | None = None
) -> list[str]:
    """A row of the table; found: ids, or keys that end in them, for each query."""
    shares = [
        len({int(each.rpartition(":")[2]) for each in ids} & true) / K for ids, true in zip(found, truth, strict=True)
    ]
    mean = float(np.mean(shares))
    target = "" if least is None else harness.verdict(mean, least=least)
    return [name, ef_runtime, f"{mean:.4f}", f"{min(shares):.1f}", str(sum(each < 1 for each in shares)), target]


if __name__ == "__main__":
    main()
