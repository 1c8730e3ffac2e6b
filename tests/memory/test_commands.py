"""Every command that a plan of memory sends, held to what Valkey Search takes; and to one slot of a cluster."""

from __future__ import annotations

import inspect
import json
import operator
import re
import sys

import pytest

import retriever.memory as memory_package
from fields.analysis import Analysis
from fields.kinds import Tag, Vector
from retriever.engines import VALKEY_SEARCH_1_2
from retriever.fusion import Linear
from retriever.memory import finding, indexing, ingesting, keeping, rebuilding, searching
from retriever.memory.archive import Archive, Archived
from retriever.memory.chunks import Names, Scope, schema_of
from retriever.memory.finding import Memory
from retriever.memory.ingesting import Material
from retriever.memory.keeping import CLEAR
from retriever.memory.policy import Policy
from retriever.memory.splitting import Piece
from retriever.operations import index
from retriever.operations.index import Live
from retriever.plans import Node
from retriever.schema import build_ft_create_args
from tests.grammar import check_command, check_create, hash_tag
from tests.test_grammar import ValkeySearch, drive

NOW = 1_785_254_389.0
# Of a key besides what every operation sends; and what scripts call besides what every script calls.
OF_A_KEY = {"HGET", "HDEL", "HKEYS", "HINCRBY", "UNLINK"}
IN_SCRIPTS = {"TYPE", "HGET", "HSET", "HDEL", "HEXISTS", "DEL", "UNLINK", "PEXPIRE"}
CHUNK = "doc-1/0a/0"


class Server(ValkeySearch):
    """Valkey Search with one document of one chunk; document: the hash of the document."""

    def __init__(self, memory, document=None, **world):
        super().__init__(VALKEY_SEARCH_1_2, memory.live.schema, **world)
        self.names, self.live, self.first = memory.names, memory.live, memory.live.schema
        usual = {"revision": "0a", "chunk_count": "1", "source": "s", "key": "s", "user": "ann", "content_hash": "x"}
        self.document = usual if document is None else document

    def __call__(self, command):
        name, self.schema = str(command.args[0]), self.live.schema
        if name == "EVAL" and self._of_memory(command):
            self.sent.append(name)
            return 1
        if name in OF_A_KEY:
            assert command.route == command.args[1]
            self.sent.append(name)
            return getattr(self, name.lower())(command.args)
        return super().__call__(command)

    def _of_memory(self, command):
        """Whether it is a script on a document or on counters; then all its keys are in one slot, and it only calls."""
        _, script, count, *rest = command.args
        keys = rest[:count]
        if not any(key.startswith((self.names.documents, self.names.uses)) for key in keys):
            return False
        assert command.route in keys
        assert {hash_tag(key) for key in keys} == {hash_tag(self.names.index)} != {""}
        called = re.findall(r"redis\.call\('([A-Z]+)', KEYS\[(\d)\]", script)
        assert {name for name, _ in called} <= IN_SCRIPTS
        assert max(int(at) for _, at in called) <= count
        assert len(called) == script.count("redis.")
        return True

    def ft_search(self, args):
        reply = super().ft_search(args)
        if len(reply) > 1:
            reply[1] = self.names.prefix.encode() + CHUNK.encode()
        return reply

    def hgetall(self, args):
        key = args[1] if isinstance(args[1], str) else args[1].decode()
        if key.startswith(self.names.documents):
            return [word.encode() for pair in self.document.items() for word in pair]
        if self.schema.generation == 1:
            return super().hgetall(args)
        theirs = {"schema": self.first.to_json(), "embedder": "old", "generation": "2"}  # an older model's
        ours = {"schema": self.schema.to_json(), "name": self.schema.name, "finished": "1"}
        held = {"layout": "1", **(theirs if key == self.first.metadata_key else ours)}
        return [word.encode() for pair in held.items() for word in pair]

    def hmget(self, args):
        held = {"__text": b"text", "doc_id": b"doc-1", "revision": b"0a", "user": b"ann", "importance": b"0.1"}
        held |= {"chunk_index": b"0", "content_hash": b"x", CHUNK: b"1"}
        if args[1] == self.schema.metadata_key:
            return super().hmget(args)
        return [held.get(name) for name in args[2:]]

    def scan(self, args):
        start = args[args.index("MATCH") + 1].removesuffix("*").replace("\\", "")
        return [b"0", [start.encode() + (b"doc-1" if "document" in start else CHUNK.encode())]]

    def hget(self, args):
        return None if args[2] in ("state", "__of_embedding_2") else b"x"

    def hkeys(self, args):
        return [b"gone/0/0"]

    def hdel(self, args):
        return 1

    hincrby = unlink = hset = hdel


def memory_of(tmp_path, namespace="a:b {c}", **scope):
    names = Names(namespace)
    schema = schema_of(names, [Tag("color")], Vector(dims=4), Analysis())
    live = Live(schema, embeds=True, embedder="e")
    archive = Archive(tmp_path / "a.jsonl")
    entry = {"namespace": namespace, "user": "ann", "access_count": 2, "last_accessed_at": "2024-01-01T00:00:00Z"}
    archive.append([Archived("doc-1/0a/7", "doc-1", 7, "text", entry, 0.1, "old", NOW)])
    return Memory(names, Scope(**scope), live, Policy(), Linear(0.3), None, archive, ("title", "speaker"))


def material(**given):
    pieces = [Piece("one", None, None, None), Piece("two", "Section", "Zoe", NOW)]
    metadata = {"tags": ["a*", "b|c"], "color": "{x}", "importance": 0.5}
    return lambda: Material("s", "s", "one two", pieces, metadata=metadata, **given)


INGEST = {
    "now": NOW,
    "new_token": lambda: "0b",
    "update_index": True,
    "on_duplicate": "keep",
    "dry_run": False,
    "ttl_s": None,
}
SEARCH = {
    **dict.fromkeys("tags filter fusion policy rerank depth candidates max_distance min_text_score".split()),
    **dict.fromkeys("diversity collapse expand fit".split()),
    "k": 5,
    "use_fts": True,
    "memory_rerank": False,
    "reinforce": True,
    "now": NOW,
}
TAGS = {"importance": None, "knowledge_type": None, "tags": None, "source_date": None, "new_token": lambda: "0c"}


def regenerated(memory):
    """The store of a second generation, as open() leaves it."""
    memory.live.schema = memory.live.schema.of_generation(2)
    return memory


def reversing(text, hits):
    return hits[::-1]


# What is done -> the plan of it, of a memory.
PLANS = {
    "ingest": lambda m: ingesting.ingest_all(m, [("s", material())], None, **INGEST),
    "ingest, pending": lambda m: ingesting.ingest_all(
        m, [("s", material())], None, **{**INGEST, "update_index": False}
    ),
    "ingest, expiring": lambda m: ingesting.ingest_all(m, [("s", material())], None, **{**INGEST, "ttl_s": 60}),
    "ingest, skipping": lambda m: ingesting.ingest_all(
        m, [("s", material())], None, **{**INGEST, "on_duplicate": "skip"}
    ),
    "ingest, versioned": lambda m: ingesting.ingest_all(m, [("s", material(version="2", title="T"))], None, **INGEST),
    "ingest, dry": lambda m: ingesting.ingest_all(m, [("s", material())], None, **{**INGEST, "dry_run": True}),
    "ingest all": lambda m: ingesting.ingest_all(m, [("s", material())], str, **INGEST),
    "search": lambda m: searching.search_memory(m, "some words", **SEARCH),
    "search, no words": lambda m: searching.search_memory(m, "some words", **{**SEARCH, "use_fts": False}),
    "search, filtered": lambda m: searching.search_memory(
        m, "some words", **{**SEARCH, "tags": ["a*", "b|c"], "filter": {"color": "{x}", "importance": {"gte": 0.5}}}
    ),
    "search, any tag": lambda m: searching.search_memory(m, "a word", **{**SEARCH, "tags": {"any": ["a*", "-"]}}),
    "search, by memory": lambda m: searching.search_memory(m, "a word", **{**SEARCH, "memory_rerank": True}),
    "search, reranked": lambda m: searching.search_memory(m, "a word", **{**SEARCH, "rerank": reversing}),
    "search, all": lambda m: searching.search_memory(
        m,
        "a word",
        **{**SEARCH, "diversity": 0.5, "collapse": "doc_id", "depth": 90, "fusion": "append", "min_text_score": 0.1},
    ),
    "search, many texts": lambda m: searching.search_memory(m, "a word", **{**SEARCH, "expand": lambda text: ["more"]}),
    "context": lambda m: searching.context(
        m, searching.search_memory(m, "a word", **{**SEARCH, "reinforce": False}), 100, None, now=NOW, reinforce=True
    ),
    "embed": lambda m: searching.embed(m, "text"),
    "rerank": lambda m: searching.rerank(m, [("doc-1", 0, 0.5), ("doc-1", 9, 0.5)], Policy(), NOW),
    "find_by_tag": lambda m: finding.find_by_tag(m, "a|*{"),
    "get_document_chunks": lambda m: finding.get_document_chunks(m, "doc-1", 0, 3),
    "set_chunk_tags": lambda m: keeping.set_chunk_tags(m, "doc-1", 0, **{**TAGS, "tags": ["-"], "importance": CLEAR}),
    "redate": lambda m: keeping.redate(m, "doc-1", "2024-01-01", lambda: "0c"),
    "delete_document": lambda m: keeping.delete_document(m, "doc-1"),
    "delete_chunks": lambda m: keeping.delete_chunks(m, CHUNK, None, NOW),
    "delete_chunks, archived": lambda m: keeping.delete_chunks(m, CHUNK, "why", NOW),
    "erase": lambda m: keeping.erase(m, everything=not m.scope.fields),
    "forget": lambda m: keeping.forget(m, Policy(), dry_run=False, now=NOW),
    "forget, dry": lambda m: keeping.forget(m, Policy(), dry_run=True, now=NOW),
    "restore": lambda m: keeping.restore(m, lambda entry: True),
    "update_index": lambda m: indexing.update_index(m, stale=True, timeout_s=1.0),
    "index_health": indexing.index_health,
    "open": lambda m: rebuilding.choose(m.live),
    "open, nothing said": lambda m: rebuilding.inherit(m.live, ["fields", "vector", "analysis"]),
    "rebuild_index": lambda m: rebuilding.rebuild(regenerated(m), 1.0),
    "drop_other_generations": lambda m: rebuilding.drop_others(regenerated(m)),
    "stats": indexing.stats,
    "find_near_duplicates": indexing.find_near_duplicates,
}
WORLDS = [
    {},
    {"document": {}},
    {"document": {"revision": "0z", "chunk_count": "3", "writer:0y": "1", "user": "ann"}},
    {"total": 100_000},
    {"nodes": (Node(1), Node(2))},
]


@pytest.mark.parametrize("scope", [{}, {"user": "ann"}], ids=["all", "ann"])
@pytest.mark.parametrize("name", PLANS)
def test_every_command_is_one_that_valkey_search_takes(tmp_path, name, scope):
    """Each plan, whatever it finds, sends nothing but what the engine takes."""
    sent = []
    for world in WORLDS:
        memory = memory_of(tmp_path, **scope)
        server = Server(memory, **world)
        try:
            drive(PLANS[name](memory), server)
        except Exception as error:
            if "no document" not in str(error):
                raise
        sent += server.sent
    assert sent or name == "embed"


@pytest.mark.parametrize("more", [(0, 0), (3, 3), (3, 0), (0, 3)])
def test_entries_of_chunks_that_are_gone(tmp_path, more):
    """Health tells that the index counts more than there are hashes, but not while somebody writes or deletes (B37)."""
    memory, asked = memory_of(tmp_path), iter(more)

    class Counting(Server):
        def ft_info(self, args):
            reply = super().ft_info(args)
            reply[reply.index(b"num_docs") + 1] = str(1 + next(asked, more[1])).encode()
            return reply

    health = drive(indexing.index_health(memory), Counting(memory))
    found = {finding.what: finding.count for finding in health.findings}
    assert found.get("index entries of chunks that are gone") == (min(more) or None)


def test_every_plan_of_a_store_is_driven():
    """What the store calls, a plan above drives: a new method that none comes through fails here."""
    from retriever.memory import store

    source = inspect.getsource(store)
    called = set(re.findall(r"\b(?:finding|indexing|ingesting|keeping|rebuilding|searching)\.[a-z_]+", source))
    driven = inspect.getsource(sys.modules[__name__])
    plans = {name for name in called if inspect.isgeneratorfunction(operator.attrgetter(name)(memory_package))}
    assert len(plans) > 15
    assert {name for name in plans if not re.search(rf"\b{name}\b", driven)} == set()


@pytest.mark.parametrize("namespace", ["a", "a:b", "{a}", "}", "é", "a@2", " "])
def test_the_index_of_any_namespace_is_one_that_valkey_search_makes(namespace):
    """Its keys have a hash tag, which the engine takes only where the index's name has the same."""
    schema = schema_of(Names(namespace), [Tag("color")], Vector(dims=4), Analysis())
    words = build_ft_create_args(schema, engine=VALKEY_SEARCH_1_2)
    assert check_create(words)["color"] == "TAG"
    assert hash_tag(schema.name) == hash_tag(schema.prefix) != ""
    check_command(words, None)


def test_a_namespace_is_made(tmp_path):
    """Creating the index where there is none sends nothing but what the engine takes."""
    memory = memory_of(tmp_path)
    server = Server(memory, there=False, stored=False)
    drive(index.create(memory.live, timeout_s=1.0), server)
    assert "FT.CREATE" in server.sent


def test_what_is_archived_is_a_line_of_its_own(tmp_path):
    """A forgotten chunk's line names the namespace and the user, so that one file serves many (B33)."""
    memory = memory_of(tmp_path, user="ann")
    drive(PLANS["forget"](memory), Server(memory))
    line = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[-1])
    assert (line["id"], line["content"], line["schema"]) == (CHUNK, "text", 1)
    assert (line["metadata"]["namespace"], line["metadata"]["user"]) == ("a:b {c}", "ann")
    assert line["archived_at"] == "2026-07-28T15:59:49Z"
