"""Where the dimensions come from: the schema, the embedder, the live index, the first document."""

from __future__ import annotations

import numpy as np
import pytest

from retriever import Document, InvalidInput, Schema, SchemaMismatch, Vector
from tests.fakes import Embedder, document

pytestmark = pytest.mark.live


@pytest.fixture
def open_schema(name):
    return Schema(name, vector=Vector(algorithm="FLAT"))


async def test_dims_from_the_embedders_attribute(make, open_schema):
    """An embedder that states its dims is not called to learn them."""
    embed = Embedder(6, dims=6)
    shell = make(open_schema, embed=embed)
    await shell.create_index()
    assert (await shell.describe_index()).dims == 6
    assert embed.calls == []


async def test_dims_from_asking_the_embedder(make, open_schema):
    """An embedder that states nothing embeds one word, once."""
    embed = Embedder(6)
    shell = make(open_schema, embed=embed)
    await shell.create_index()
    assert (await shell.describe_index()).dims == 6
    assert [len(call) for call in embed.calls] == [1]
    await shell.upsert([Document("d", "a text")])
    assert [hit.id for hit in await shell.query(text="a text")] == ["d"]


async def test_dims_from_the_live_index(make, open_schema):
    """A retriever without embedder or dims asks the index, also for its first query or write."""
    await make(open_schema, embed=Embedder(6)).create_index()
    writer, reader, again = make(open_schema), make(open_schema), make(open_schema)
    await writer.upsert([document("d", vector=[1] * 6)])
    assert [hit.id for hit in await reader.query(vector=[1] * 6)] == ["d"]
    assert await again.create_index() is False
    with pytest.raises(InvalidInput, match="4 dimensions, the index has 6"):
        await make(open_schema).query(vector=[1] * 4)


async def test_dims_from_the_live_index_for_many_queries(make, open_schema):
    """query_many learns the dimensions too."""
    first = make(open_schema, embed=Embedder(6))
    await first.create_index()
    await first.upsert([document("d", vector=[1] * 6)])
    answers = await make(open_schema).query_many([{"vector": [1] * 6}, {"vector": [2] * 6}, {"vector": [1]}])
    assert [hit.id for answer in answers[:2] for hit in answer] == ["d", "d"]
    assert isinstance(answers[2], InvalidInput)


async def test_dims_from_the_first_document(make, open_schema, raw):
    """Where nothing else knows them, the first document's vector decides, and the index is made from it."""
    shell = make(open_schema)
    await shell.upsert([document("d", vector=np.ones(5)), document("e", vector=[1, 2, 3, 4, 5])])
    report = await shell.describe_index()
    assert (report.dims, report.documents) == (5, 2)
    assert raw.hget(open_schema.metadata_key, "dims") == b"5"
    with pytest.raises(InvalidInput, match="document 'f', vector: 4 dimensions, the index has 5"):
        await shell.upsert([document("f", vector=[1] * 4)])


async def test_a_bad_first_document_makes_no_index(make, open_schema, raw):
    """A first document that cannot be written leaves neither an index nor metadata behind."""
    shell = make(open_schema)
    for vector in ([], [np.nan, 1], [0, 0], ["a"], 5, [[1, 2]]):
        with pytest.raises(InvalidInput):
            await shell.upsert([document("d", vector=vector)])
    with pytest.raises(InvalidInput):
        await shell.upsert([document("d", vector=[1, 2, 3]), document("e", vector=[1, 2])])
    assert list(raw.scan_iter(f"{open_schema.name}*")) == []
    assert open_schema.name.encode() not in raw.execute_command("FT._LIST")
    await shell.upsert([document("d", vector=[1, 2, 3])])
    assert await shell.count() == 1


async def test_create_index_without_any_source_says_pass_dims(make, open_schema):
    """With nothing to learn them from, the error says what to pass."""
    with pytest.raises(InvalidInput, match=r"the dimensions are not known; pass Vector\(dims=...\), or an embedder"):
        await make(open_schema).create_index()


async def test_an_embedder_of_other_dims_is_refused(make, open_schema):
    """An embedder whose width is not the live index's is a difference, before anything is written (case B50)."""
    await make(open_schema, embed=Embedder(6)).create_index()
    with pytest.raises(SchemaMismatch, match="dims 8 declared, 6"):
        await make(open_schema, embed=Embedder(8)).upsert([Document("d", "a text")])
    with pytest.raises(InvalidInput, match="8 dimensions, the index has 6"):
        await make(Schema(open_schema.name, vector=Vector(dims=6, algorithm="FLAT")), embed=Embedder(8)).query(
            text="a text"
        )
