"""The MCP server in this process, with the SDK's own client, on a real engine."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra mcp")

from mcp.shared.exceptions import MCPError

from retriever.embedded import EmbeddedServer
from retriever.memory import answers
from retriever.memory.chunks import iso
from retriever.memory.roots import Roots
from retriever.memory.server import memory_server
from retriever.memory.store import AsyncMemoryStore, Note
from retriever.memory.writing import BATCH
from tests.agents import TOOLS, agent_of
from tests.fakes import Embedder
from tests.memory_stores import DAY

pytestmark = [pytest.mark.live, pytest.mark.one_server("about tools, which are the same at a cluster")]

# C2's table: tool -> its parameters, in order; a default, or ... where one must be given.
PARAMETERS = {
    "embed": {"text": ...},
    "hybrid_search": {
        "query": ...,
        "tags": None,
        "filters": None,
        "top_k": 5,
        "include_stats": False,
        "use_fts": True,
        "fusion": None,
        "reinforce": True,
    },
    "rerank": {"chunks": ..., "time_weight": None, "freq_weight": None, "importance_threshold": None},
    "ingest": {"file_paths": ..., "metadata": None, "rebuild_index": True, "source_key": None, "version": None},
    "set_chunk_tags": {"doc_id": ..., "chunk_index": ..., "importance": None, "knowledge_type": None, "tags": None},
    "find_by_tag": {"tag": ...},
    "get_document_chunks": {"doc_id": ..., "chunk_index": None, "window": 0},
    "delete_document": {"doc_id": ..., "rebuild_index": False},
    "update_index": {},
    "rebuild_index": {},
    "run_forgetting_batch": {
        "time_weight": None,
        "freq_weight": None,
        "importance_threshold": None,
        "score_threshold": None,
        "dry_run": True,
    },
    "index_health": {},
    "get_system_stats": {},
}
READING = {
    *("embed", "rerank", "find_by_tag", "get_document_chunks", "index_health", "get_system_stats"),
}


class Shop:
    """A folder to ingest from, and servers of one namespace, each with an agent at it."""

    def __init__(self, url, name, folder):
        self.folder = folder
        self.usual = {"namespace": name, "embed": Embedder(), "archive": folder.parent / "archive.jsonl"}
        self.url = url
        self.stores = []

    def write(self, name, text):
        """A file; its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    @asynccontextmanager
    async def agent(self, *, to=None, reranks=False, mode="auto", **given):
        """An agent at a server; its stores are in ``stores``, the newest last."""

        async def open():
            self.stores.append(await AsyncMemoryStore.open(to or self.url, **{**self.usual, **given}))
            return self.stores[-1]

        server = memory_server(open, roots=Roots([self.folder]), reranks=reranks)
        async with agent_of(server, mode) as agent:
            yield agent

    @asynccontextmanager
    async def store(self, **given):
        """The same namespace without a server."""
        async with await AsyncMemoryStore.open(self.url, **{**self.usual, **given}) as store:
            yield store


@pytest.fixture
def shop(url, raw, name, tmp_path):
    """See ``Shop``; all of the namespace is removed afterwards."""
    folder = tmp_path / "docs"
    folder.mkdir()
    yield Shop(url, name, folder)
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(f"{{memory.{name}".encode()):
            raw.execute_command("FT.DROPINDEX", index)
    for key in raw.scan_iter(f"{{memory.{name}*", count=1000):
        raw.unlink(key)


# --- what a host is told --------------------------------------------------------------------------


async def listed(shop):
    async with shop.agent() as agent:
        return {tool.name: tool for tool in (await agent.client.list_tools()).tools}


async def test_the_tools_and_their_parameters(shop):
    """Thirteen tools, with exactly these parameters and defaults, all described; no call opened the store (C2)."""
    tools = await listed(shop)
    assert list(tools) == list(PARAMETERS) == TOOLS
    for name, parameters in PARAMETERS.items():
        schema = tools[name].input_schema
        found = {each: given.get("default", ...) for each, given in schema.get("properties", {}).items()}
        assert (name, found) == (name, parameters)
        assert schema.get("required", []) == [each for each, default in parameters.items() if default is ...]
        assert schema["additionalProperties"] is False
        assert len(tools[name].description) > 60
    assert not shop.stores


async def test_every_answer_has_a_schema(shop):
    """One model for each tool; the score of a chunk says that it is no distance (C3)."""
    tools = await listed(shop)
    for tool in tools.values():
        assert tool.output_schema["type"] == "object", tool.name
    found = tools["hybrid_search"].output_schema
    assert set(found["properties"]) == {"chunks", "stats", "truncated", "notes"}
    said = found["$defs"]["ScoredPiece"]["properties"]["score"]["description"]
    assert "higher is better" in said
    assert "not a distance" in said


async def test_annotations_are_true(shop):
    """What reads, what takes away, what may be repeated; nothing reaches beyond the memory (C4)."""
    hints = {name: tool.annotations for name, tool in (await listed(shop)).items()}
    assert {name for name, hint in hints.items() if hint.read_only_hint} == READING
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {
        "delete_document",
        "run_forgetting_batch",
    }
    assert {name for name, hint in hints.items() if not hint.idempotent_hint} == {"hybrid_search"}
    assert not any(hint.open_world_hint for hint in hints.values())


async def test_reading_tools_change_nothing(shop, raw):
    """What is annotated so leaves every key as it was."""
    async with shop.agent() as agent:
        (source,) = (await agent.ingest(file_paths=[shop.write("a.txt", "alpha")]))["sources"]
        prefix = f"{{memory.{shop.usual['namespace']}*"
        before = {key: raw.hgetall(key) for key in raw.scan_iter(prefix)}
        await agent.embed(text="x")
        await agent.rerank(chunks=[{"doc_id": source["doc_id"], "chunk_index": 0, "score": 1}])
        await agent.find_by_tag(tag="x")
        await agent.get_document_chunks(doc_id=source["doc_id"])
        await agent.index_health()
        await agent.get_system_stats()
        await agent.run_forgetting_batch(score_threshold=1)
        await agent.hybrid_search(query="alpha", reinforce=False)
        assert {key: raw.hgetall(key) for key in raw.scan_iter(prefix)} == before


async def test_a_persons_yes_is_asked_for(shop):
    """Wherever an importance, a kind of knowledge or a real forgetting run can be given, and in every prompt (C8)."""
    async with shop.agent() as agent:
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        for name in ("ingest", "set_chunk_tags", "run_forgetting_batch"):
            assert "yes" in tools[name].description, name
        assert "person's yes" in agent.client.instructions
        for name, given in {
            "recall": {"question": "why?"},
            "session-to-memory": {"session_id": "s-1", "file_path": "s.jsonl"},
            "doc-to-memory": {"file_path": "a.md"},
        }.items():
            (message,) = (await agent.client.get_prompt(name, given)).messages
            said = " ".join(message.content.text.split())
            assert all(value in said for value in given.values())
            for what in ("yes", "importance", "knowledge_type", "dry_run=false"):
                assert what in said, name
        assert len((await agent.client.list_prompts()).prompts) == 3


# --- what is refused ------------------------------------------------------------------------------

CHUNK = {"doc_id": "a", "chunk_index": 0, "score": 0.5}


@pytest.mark.parametrize("tool", TOOLS)
async def test_unknown_arguments_are_refused(shop, tool):
    """With what the tool takes, before anything is done (C5)."""
    async with shop.agent() as agent:
        said = await agent.refused(tool, namespace="other", **dict.fromkeys(PARAMETERS[tool]))
        assert "unknown argument 'namespace'" in said
        assert f"{tool} takes {', '.join(PARAMETERS[tool]) or 'nothing'}" in said
        assert not shop.stores


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("embed", {}, "text"),
        ("embed", {"text": 5}, "text"),
        ("embed", {"text": ""}, "at least 1 character"),
        ("embed", {"text": " "}, "should match pattern"),
        ("embed", {"text": "x" * 100_001}, "at most 100000 characters"),
        ("hybrid_search", {"query": ""}, "at least 1 character"),
        ("hybrid_search", {"query": " \n"}, "should match pattern"),
        ("hybrid_search", {"query": "x", "top_k": 101}, "less than or equal to 100"),
        ("hybrid_search", {"query": "x", "top_k": 0}, "greater than or equal to 1"),
        ("hybrid_search", {"query": "x", "top_k": 10**30}, "less than or equal to 100"),
        ("hybrid_search", {"query": "x", "top_k": "5"}, "valid integer"),
        ("hybrid_search", {"query": "x", "top_k": True}, "valid integer"),
        ("hybrid_search", {"query": "x", "reinforce": "no"}, "valid boolean"),
        ("hybrid_search", {"query": "x", "fusion": "best"}, "'rrf', 'linear' or 'append'"),
        ("hybrid_search", {"query": "x", "fusion": "rrf", "use_fts": False}, "fuses nothing"),
        ("hybrid_search", {"query": "x", "filters": {"nope": 1}}, "unknown field 'nope'"),
        ("hybrid_search", {"query": "x", "filters": {"importance": {"about": 1}}}, "about"),
        ("hybrid_search", {"query": "x", "filters": {"source": None}}, "None"),
        ("hybrid_search", {"query": "x", "filters": []}, "valid dictionary"),
        ("hybrid_search", {"query": "x", "tags": {"all": ["a"]}}, "tags"),
        ("hybrid_search", {"query": "x", "tags": [""]}, "tags.list"),
        ("rerank", {"chunks": []}, "at least 1 item"),
        ("rerank", {"chunks": [{"doc_id": "a", "chunk_index": 0}]}, "chunks.0.score"),
        ("rerank", {"chunks": [{**CHUNK, "score": 1.5}]}, "less than or equal to 1"),
        ("rerank", {"chunks": [{**CHUNK, "chunk_index": -1}]}, "greater than or equal to 0"),
        ("rerank", {"chunks": [CHUNK] * 201}, "at most 200 items"),
        ("rerank", {"chunks": [CHUNK], "time_weight": 2}, "less than or equal to 1"),
        ("ingest", {"file_paths": []}, "at least 1 item"),
        ("ingest", {"file_paths": ["a"] * 101}, "at most 100 items"),
        ("ingest", {"file_paths": "a.md"}, "valid list"),
        ("ingest", {"file_paths": ["a", "b"], "source_key": "k"}, "of one source, not of 2"),
        ("ingest", {"file_paths": ["a"], "metadata": {"user": "other"}}, "user: set by the store"),
        ("ingest", {"file_paths": ["a"], "metadata": {"x": "y" * 20_000}}, "more than 20,000 characters"),
        ("set_chunk_tags", {"doc_id": "a", "chunk_index": 0}, "give at least one of"),
        ("set_chunk_tags", {"doc_id": "a", "chunk_index": 0, "importance": 2}, "less than or equal to 1"),
        ("set_chunk_tags", {"doc_id": "a", "chunk_index": 0, "knowledge_type": "rumour"}, "'principle', 'paper'"),
        ("set_chunk_tags", {"doc_id": "a", "chunk_index": 0, "tags": ["x"]}, "no document 'a'"),
        ("find_by_tag", {"tag": ""}, "at least 1 character"),
        ("get_document_chunks", {"doc_id": "a"}, "no document 'a'"),
        ("get_document_chunks", {"doc_id": "a", "window": 1}, "needs chunk_index"),
        ("get_document_chunks", {"doc_id": "a", "chunk_index": 0, "window": 1001}, "less than or equal to 1000"),
        ("delete_document", {"doc_id": ""}, "at least 1 character"),
        ("run_forgetting_batch", {"dry_run": "false"}, "valid boolean"),
        ("run_forgetting_batch", {"score_threshold": -1}, "greater than or equal to 0"),
    ],
)
async def test_bad_input_is_told(shop, tool, arguments, said):
    """What was wrong, in words that an agent can act on; nothing of it is a crash (C5)."""
    async with shop.agent() as agent:
        refused = await agent.refused(tool, **arguments)
    assert said in refused
    assert "validation error" not in refused
    assert "type=" not in refused
    assert refused != f"Error executing tool {tool}"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("rerank", {"chunks": [{"doc_id": 1, "chunk_index": "x", "score": "y"}] * 200}),
        ("hybrid_search", {"query": "x", "filters": {"f" * 100_000: 1}}),
        ("hybrid_search", {"query": "x", "u" * 100_000: 1}),
        ("get_document_chunks", {"doc_id": "d" * 1_000}),
    ],
)
async def test_errors_keep_to_their_size(shop, tool, arguments):
    """What an agent gave is not given back to it at length."""
    async with shop.agent() as agent:
        assert len(await agent.refused(tool, **arguments)) < 2_500


async def test_other_keys_of_a_chunk_are_ignored(shop):
    """Whole chunks of a search may be given to rerank: what is not theirs to say is read from the store."""
    async with shop.agent() as agent:
        await agent.ingest(file_paths=[shop.write("a.txt", "alpha")], metadata={"importance": 0.1})
        (chunk,) = (await agent.hybrid_search(query="alpha"))["chunks"]
        ranked = await agent.rerank(chunks=[{**chunk, "importance": 1.0}])
        assert (ranked["chunks"], len(ranked["notes"])) == ([], 1)  # rated below the threshold of 0.3


# --- one conversation -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_one_session(shop, mode):
    """In and found by meaning, by identifier and by tag; tagged, ranked, read around, checked, forgotten, deleted."""
    pytest.importorskip("onnxruntime")
    from retriever import LocalEmbedder

    ferry = "# Ferries\n\nDogs sail free of charge on every crossing.\n\n## Cats\n\nThe fare is named in POLICY-123.\n"
    files = [shop.write("ferry.md", ferry), shop.write("wages.txt", "Wages arrive on the last Friday.\n")]
    async with shop.agent(embed=LocalEmbedder(), mode=mode) as agent:
        report = await agent.ingest(file_paths=files, metadata={"tags": ["session_id:x"]})
        assert [report[each] for each in ("ingested", "replaced", "skipped", "failed", "chunks")] == [2, 0, 0, 0, 3]
        assert (await agent.ingest(file_paths=files))["skipped"] == 2

        found = await agent.hybrid_search(query="do puppies pay on a boat?", top_k=1, use_fts=False)
        assert found["chunks"][0]["content"].startswith("# Ferries")
        assert found["stats"] is None
        found = await agent.hybrid_search(query="POLICY-123", include_stats=True)
        best = found["chunks"][0]
        assert "POLICY-123" in best["content"]
        assert best["channels"] == ["vector", "text"]
        assert 0 < best["score"] <= 1
        assert found["stats"]["text"]["candidates"] == 1
        assert found["stats"]["embed_ms"] > 0

        tagged = await agent.find_by_tag(tag="session_id:x")
        assert (tagged["total"], tagged["truncated"]) == (3, False)
        changed = await agent.set_chunk_tags(
            doc_id=best["doc_id"], chunk_index=best["chunk_index"], tags=["fares"], importance=0.9
        )
        assert (changed["chunk"]["tags"], changed["chunk"]["importance"]) == (["fares"], 0.9)
        assert (await agent.hybrid_search(query="fare", tags=["fares"]))["chunks"][0]["id"] == best["id"]

        ranked = await agent.rerank(chunks=[*found["chunks"], {"doc_id": "none-1", "chunk_index": 0, "score": 1}])
        assert ranked["chunks"][0]["id"] == best["id"]
        assert ranked["unknown"] == [{"doc_id": "none-1", "chunk_index": 0}]
        around = await agent.get_document_chunks(doc_id=best["doc_id"], chunk_index=1, window=1)
        assert [each["chunk_index"] for each in around["chunks"]] == [0, 1]
        assert "".join(each["content"] for each in around["chunks"]) == ferry

        assert (await agent.index_health())["ok"]
        assert (await agent.get_system_stats())["documents"] == 2
        vector = await agent.embed(text="a boat")
        assert (vector["dims"], len(vector["vector"])) == (384, 384)
        assert "MiniLM" in vector["model"]

        wages = report["sources"][1]["doc_id"]
        await agent.set_chunk_tags(doc_id=wages, chunk_index=0, importance=0.1)
        dry = await agent.run_forgetting_batch()
        assert (dry["dry_run"], dry["total"], dry["deleted"]) == (True, 1, 0)
        assert any("yes" in note for note in dry["notes"])
        assert (await agent.get_system_stats())["chunks"] == 3
        real = await agent.run_forgetting_batch(dry_run=False)
        assert (real["total"], real["deleted"], real["archive"]) == (1, 1, str(shop.usual["archive"]))
        assert [each["id"] for each in real["chunks"]] == [each["id"] for each in dry["chunks"]]
        assert (await agent.get_system_stats())["chunks"] == 2

        gone = await agent.delete_document(doc_id=best["doc_id"], rebuild_index=True)
        assert (gone["deleted"], len(gone["notes"])) == (2, 1)
        assert (await agent.hybrid_search(query="POLICY-123"))["chunks"] == []
        again = await agent.delete_document(doc_id=best["doc_id"])
        assert (again["deleted"], again["notes"]) == (0, ["there is no such document, or it had no chunks left"])


async def test_resources(shop):
    """What the memory holds, and a document's text; an unknown one is an error that names it (C8)."""
    async with shop.agent() as agent:
        text = "One.\n\n" + "Two. " * 200
        (source,) = (await agent.ingest(file_paths=[shop.write("a.txt", text)]))["sources"]
        (stats,) = (await agent.client.read_resource("memory://stats")).contents
        assert json.loads(stats.text) == await agent.get_system_stats()
        (document,) = (await agent.client.read_resource(f"memory://document/{source['doc_id']}")).contents
        assert json.loads(document.text)["text"] == text
        with pytest.raises(MCPError, match="no document 'none-1'"):
            await agent.client.read_resource("memory://document/none-1")


async def test_ingest_reads_under_the_roots_alone(shop, tmp_path):
    """A file elsewhere fails with the folders that are allowed; the others are ingested (C7)."""
    (tmp_path / "secret.txt").write_text("secret")
    (shop.folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    paths = [str(tmp_path / "secret.txt"), f"{shop.folder}/link.txt", f"{shop.folder}/../secret.txt"]
    async with shop.agent() as agent:
        report = await agent.ingest(file_paths=[*paths, shop.write("a.txt", "mine")])
        assert [each["status"] for each in report["sources"]] == ["failed"] * 3 + ["ingested"]
        assert all(str(shop.folder) in each["reason"] for each in report["sources"][:2])
        assert (await agent.get_system_stats())["chunks"] == 1


async def test_pending_until_update_index(shop):
    """rebuild_index=false leaves chunks to update_index; a rebuild on the same model embeds nothing anew."""
    async with shop.agent() as agent:
        await agent.ingest(file_paths=[shop.write("a.txt", "alpha")], rebuild_index=False)
        assert (await agent.hybrid_search(query="alpha"))["chunks"] == []
        assert (await agent.index_health())["findings"][0]["advice"].startswith("update_index()")
        assert await agent.update_index() == {
            "embedded": 1, "failed": [], "backlog": 0, "truncated": False, "notes": [],
        }  # fmt: skip
        assert len((await agent.hybrid_search(query="alpha"))["chunks"]) == 1
        assert (await agent.rebuild_index())["failed"] == []
        assert (await agent.index_health())["ok"]


async def test_versions_of_one_source(shop):
    """source_key and version: the same version is skipped, another replaces."""
    async with shop.agent() as agent:
        path = shop.write("a.txt", "alpha")
        statuses = []
        for version in ("1", "1", "2"):
            report = await agent.ingest(file_paths=[path], source_key="key", version=version)
            statuses.append(report["sources"][0]["status"])
        assert statuses == ["ingested", "skipped", "replaced"]
        assert (await agent.get_system_stats())["documents"] == 1


# --- whose memory ---------------------------------------------------------------------------------


async def test_no_argument_widens_the_scope(shop):
    """A server for one user finds, reads, changes and deletes nothing of another's, whatever it is asked (C7)."""
    async with shop.agent(user="bob") as bob:
        (source,) = (await bob.ingest(file_paths=[shop.write("a.txt", "alpha")], metadata={"tags": ["t"]}))["sources"]
    theirs = source["doc_id"]
    async with shop.agent(user="eve") as eve:
        for filters in ({"user": "bob"}, {"doc_id": theirs}, {"user": {"in": ["bob", "eve"]}}):
            assert (await eve.hybrid_search(query="alpha", filters=filters))["chunks"] == []
        assert (await eve.find_by_tag(tag="t"))["chunks"] == []
        assert "no document" in await eve.refused("get_document_chunks", doc_id=theirs)
        assert "no document" in await eve.refused("set_chunk_tags", doc_id=theirs, chunk_index=0, tags=[])
        ranked = await eve.rerank(chunks=[{"doc_id": theirs, "chunk_index": 0, "score": 1}])
        assert ranked["unknown"] == [{"doc_id": theirs, "chunk_index": 0}]
        assert (await eve.delete_document(doc_id=theirs))["deleted"] == 0
        assert (await eve.run_forgetting_batch(score_threshold=1, dry_run=False))["total"] == 0
        assert (await eve.get_system_stats())["documents"] == 0
        with pytest.raises(MCPError, match="no document"):
            await eve.client.read_resource(f"memory://document/{theirs}")
    async with shop.agent(user="bob") as bob:
        assert len((await bob.hybrid_search(query="alpha"))["chunks"]) == 1


# --- size -----------------------------------------------------------------------------------------


def said_bytes(result):
    (content,) = result.content
    return len(content.text.encode())


async def filled(shop, count, length, **metadata):
    """Documents of one long chunk each."""
    async with shop.store() as store:
        notes = [Note(f"word{at} " + "é" * length, f"note-{at:03}", metadata=metadata) for at in range(count)]
        await store.ingest(notes, split=lambda text: [text])


async def test_answers_keep_to_their_size(shop):
    """Long texts become previews, then chunks are left out; the answer says both, and k (C6, case B116)."""
    await filled(shop, 100, 20_000, tags=["t", "x" * 500], anything="y" * 5_000)
    async with shop.agent() as agent:
        for tool, arguments in {
            "hybrid_search": {"query": "word7", "top_k": 100, "include_stats": True},
            "find_by_tag": {"tag": "t"},
            "run_forgetting_batch": {"score_threshold": 1, "freq_weight": 0, "importance_threshold": 1},
        }.items():
            result = await agent.client.call_tool(tool, arguments)
            assert said_bytes(result) <= answers.BUDGET, tool
        found = await agent.hybrid_search(query="word7", top_k=100, include_stats=True)
        assert found["truncated"]
        assert found["stats"]["truncated"]
        assert 20 < len(found["chunks"]) == found["stats"]["k"] < 100
        assert f"{found['stats']['k']} of 100 chunks are here" in found["notes"][-1]
        assert all(each["truncated"] and each["content"].endswith(" ...") for each in found["chunks"])
        few = await agent.hybrid_search(query="word7", top_k=3)
        assert len(few["chunks"]) == 3
        assert min(len(each["content"]) for each in few["chunks"]) > 1_000
        (tagged, total) = ((answer := await agent.find_by_tag(tag="t"))["chunks"], answer["total"])
        assert (len(tagged) < total, total) == (True, 100)


async def test_what_there_is_no_room_for_is_not_counted_as_read(shop):
    """Only chunks that an agent was given are reinforced."""
    await filled(shop, 100, 1_000, x="y" * 900)
    async with shop.agent() as agent:
        given = len((await agent.hybrid_search(query="word7", top_k=100))["chunks"])
        uses = (await agent.get_system_stats())["uses"]
        assert 0 < given < 100
        assert (uses["0"], uses["1-9"]) == (100 - given, given)


async def test_a_long_document_can_be_read_to_its_end(shop):
    """Whole chunks, as many as there is room for, and a note that says how to go on."""
    text = "".join(f"Sentence number {at} of a long document.\n\n" for at in range(3_000))
    async with shop.agent() as agent:
        (source,) = (await agent.ingest(file_paths=[shop.write("a.txt", text)]))["sources"]
        read, size = "", 0
        while size < source["chunks"]:
            given = {"chunk_index": size + 10, "window": 10} if size else {}
            if given and given["chunk_index"] >= source["chunks"]:
                given = {"chunk_index": source["chunks"] - 1, "window": source["chunks"] - 1 - size}
            result = await agent.client.call_tool("get_document_chunks", {"doc_id": source["doc_id"], **given})
            assert said_bytes(result) <= answers.BUDGET
            chunks = result.structured_content["chunks"]
            assert chunks[0]["chunk_index"] == size
            read += "".join(each["content"] for each in chunks)
            size += len(chunks)
        assert read == text
        (document,) = (await agent.client.read_resource(f"memory://document/{source['doc_id']}")).contents
        assert len(document.text.encode()) <= answers.BUDGET
        assert json.loads(document.text)["truncated"]


# --- weights --------------------------------------------------------------------------------------


async def test_time_weight_is_that_of_forgetting(shop):
    """run_forgetting_batch's time_weight reaches all the way down: with 0 nothing ages."""
    async with shop.store() as store:
        old = iso(time.time() - 200 * DAY)
        await store.ingest(Note("old news", "n", metadata={"knowledge_type": "news", "source_date": old}))
    async with shop.agent() as agent:
        assert (await agent.run_forgetting_batch())["total"] == 1
        assert (await agent.run_forgetting_batch(time_weight=0))["total"] == 0
        assert (await agent.run_forgetting_batch(time_weight=0, score_threshold=1))["total"] == 0
        (gone,) = (await agent.run_forgetting_batch(time_weight=0.5, score_threshold=0.2))["chunks"]
        assert gone["score"] == pytest.approx(2 ** (-0.5 * 200 / 30), rel=1e-3)


async def test_time_weight_of_rerank_is_that_of_a_search(shop):
    """There age takes at most the weight: half of the relevance with 0.5."""
    async with shop.store() as store:
        old = iso(time.time() - 3_000 * DAY)
        report = await store.ingest(Note("old news", "n", metadata={"knowledge_type": "news", "source_date": old}))
    chunk = {"doc_id": report.sources[0].doc_id, "chunk_index": 0, "score": 0.8}
    async with shop.agent() as agent:
        for weight, score in ((None, 0.4), (0, 0.8), (1, 0)):
            (ranked,) = (await agent.rerank(chunks=[chunk], time_weight=weight))["chunks"]
            assert (ranked["score"], ranked["relevance"]) == (pytest.approx(score, abs=1e-9), 0.8)


async def test_a_reranker_orders_the_hits(shop):
    """With one, a search's score is its; and what it took is told."""

    def shortest(text, hits):
        return [(hit, 1 / len(hit.text)) for hit in hits]

    async with shop.agent(rerank=shortest, reranks=True) as agent:
        await agent.ingest(file_paths=[shop.write(f"{at}.txt", "word " * at) for at in (3, 1, 2)])
        found = await agent.hybrid_search(query="word", include_stats=True)
        assert [each["score"] for each in found["chunks"]] == [pytest.approx(1 / length) for length in (5, 10, 15)]
        assert found["stats"]["rerank_ms"] > 0


async def test_stats_of_a_search(shop):
    """Same texts are counted, and so are entries of the index whose chunk has just expired."""
    async with shop.store() as store:
        await store.ingest([Note("alpha", "one"), Note("alpha", "two"), Note("beta", "three")])
    async with shop.agent() as agent:
        found = await agent.hybrid_search(query="alpha", include_stats=True)
        stats = found["stats"]
        assert (stats["duplicate_contents"], stats["k"], stats["failed_channels"]) == (1, 2, [])
        assert (stats["vector"]["candidates"], stats["text"]["candidates"]) == (3, 2)
        alone = (await agent.hybrid_search(query="alpha", include_stats=True, use_fts=False))["stats"]
        assert (alone["vector"]["candidates"], alone["text"]) == (3, None)


# --- what goes wrong ------------------------------------------------------------------------------


async def test_an_archive_that_cannot_be_written_deletes_nothing(shop, tmp_path):
    """The error names the file, and the chunks stay."""
    (tmp_path / "file").write_text("")
    async with shop.agent(archive=tmp_path / "file" / "archive.jsonl") as agent:
        await agent.ingest(file_paths=[shop.write("a.txt", "alpha")], metadata={"importance": 0})
        said = await agent.refused("run_forgetting_batch", dry_run=False)
        assert "the archive takes no entries, so nothing may be forgotten" in said
        assert str(tmp_path / "file") in said
        assert (await agent.get_system_stats())["chunks"] == 1


async def test_an_engine_that_is_gone_is_told_and_found_again(shop):
    """A call while it is away is an error that says so; once it runs again, the next call works."""
    with EmbeddedServer(port=0) as to:
        port = int(to.rpartition(":")[2])
        async with shop.agent(to=to) as agent:
            await agent.ingest(file_paths=[shop.write("a.txt", "alpha")])
    # The same server process object cannot be had again; another one at its port stands for its restart.
    async with shop.agent(to=to) as agent:
        said = await agent.refused("hybrid_search", query="alpha")
        assert "cannot be reached" in said
        assert "Call again once it runs" in said
        with EmbeddedServer(port=port):
            assert (await agent.hybrid_search(query="alpha"))["chunks"] == []


async def test_an_index_that_was_dropped_is_made_anew(shop, raw):
    """The error says so, and the next call finds an index again."""
    async with shop.agent() as agent:
        await agent.ingest(file_paths=[shop.write("a.txt", "alpha")])
        raw.execute_command("FT.DROPINDEX", f"{{memory.{shop.usual['namespace']}}}")
        assert "the memory's index is gone" in await agent.refused("hybrid_search", query="alpha")
        assert len((await agent.hybrid_search(query="alpha"))["chunks"]) == 1
        assert len(shop.stores) == 2


async def test_a_password_is_never_told(shop, caplog):
    """Not in an answer and not in a log, when it is wrong and when nobody answers."""
    for to in ("valkey://bob:hunter2@127.0.0.1:1", shop.url.replace("unix://", "unix://bob:hunter2@")):
        async with shop.agent(to=to) as agent:
            assert "hunter2" not in await agent.refused("get_system_stats")

    def away(texts):
        raise OSError("no answer from https://bob:hunter2@model.example/v1")

    async with shop.agent(embed=away) as agent:
        said = await agent.refused("embed", text="x")
        assert "https://***@model.example/v1" in said
    assert "hunter2" not in caplog.text


async def test_what_is_our_own_fault_is_kept(shop, caplog):
    """An exception that nobody expects is logged, and an agent reads no word of it."""

    def broken(texts):
        raise RuntimeError("secret of ours")

    async with shop.agent(embed=broken) as agent:
        assert await agent.refused("embed", text="x") == "Error executing tool embed"
    assert "secret of ours" in caplog.text


async def test_another_model_is_told(shop):
    """A namespace that another model filled names the tool that mends it, which does."""
    async with shop.agent(embed=Embedder(name="one")) as agent:
        await agent.ingest(file_paths=[shop.write("a.txt", "alpha")])
    async with shop.agent(embed=Embedder(width=8, name="two")) as agent:
        assert "rebuild_index()" in await agent.refused("hybrid_search", query="alpha")
        assert (await agent.rebuild_index())["embedded"] == 1
        assert len((await agent.hybrid_search(query="alpha"))["chunks"]) == 1


# --- together -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_goes_leaves_whole_documents(shop, mode):
    """Who disconnects in the middle of an ingest: the files under way are finished, the next ones are not begun."""
    # Files as long as a batch of chunks are written one by one.
    paths = [shop.write(f"{at}.txt", f"text {at}. {'word ' * 80}\n\n" * BATCH) for at in range(3)]
    entered, go_on = anyio.Event(), anyio.Event()

    class Slow(Embedder):
        async def __call__(self, texts):
            if "text 1" in str(texts):
                entered.set()
                await go_on.wait()
            return Embedder.__call__(self, texts)

    async with shop.agent(embed=Slow(), mode=mode) as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.client.call_tool("ingest", {"file_paths": paths}))
            await entered.wait()
            tasks.cancel_scope.cancel()
            asyncio.get_running_loop().call_later(0.2, go_on.set)  # when the server has been told
        await go_on.wait()
        for _ in range(600):  # until the file under way is written
            if (health := await agent.index_health())["ok"]:
                break
            await anyio.sleep(0.05)
        assert (health["ok"], health["documents"]) == (True, 2)
        assert (await agent.ingest(file_paths=paths))["skipped"] == 2


async def test_two_servers_on_one_store_lose_nothing(shop):
    """Both ingest the same and different files and read at once; each file is there once, each read is counted."""
    shared = [shop.write(f"shared-{at}.txt", f"shared {at}") for at in range(5)]
    async with shop.agent() as one, shop.agent() as two:
        async with anyio.create_task_group() as tasks:
            for name, agent in (("one", one), ("two", two)):
                own = [shop.write(f"{name}-{at}.txt", f"{name} {at}") for at in range(5)]
                tasks.start_soon(lambda agent=agent, own=own: agent.ingest(file_paths=[*shared, *own]))
        assert (await one.get_system_stats())["documents"] == 15
        async with anyio.create_task_group() as tasks:
            for agent in (one, two) * 5:
                tasks.start_soon(lambda agent=agent: agent.hybrid_search(query="shared 1", top_k=1, use_fts=True))
        (chunk,) = (await two.hybrid_search(query="shared 1", top_k=1))["chunks"]
        assert chunk["access_count"] == 10
        assert (await two.index_health())["ok"]


async def test_progress_is_reported(shop):
    """One step for each file."""
    paths = [shop.write(f"{at}.txt", f"text {at}") for at in range(3)]
    steps = []

    async def progress(done, total, message):
        steps.append((done, total, os.path.basename(message)))

    async with shop.agent() as agent:
        await agent.client.call_tool("ingest", {"file_paths": paths}, progress_callback=progress)
    assert steps == [(1, 3, "0.txt"), (2, 3, "1.txt"), (3, 3, "2.txt")]
