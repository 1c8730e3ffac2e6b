"""When a whole server fails: killed, restarted, emptied, full, still loading, or never able to search.

Every test has a server of its own, which it may do anything to.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import valkey

from retriever import (
    Document,
    IndexMissing,
    NotSupported,
    Numeric,
    Retriever,
    Schema,
    SchemaMismatch,
    SearchTimeout,
    ServerError,
    Stored,
    Tag,
    Text,
    UpsertReport,
    Vector,
    embedded,
    interruption,
)
from retriever.operations import read
from tests.fakes import DIMS, document

try:
    embedded._find_server()
    missing = ""
except NotSupported as error:
    missing = str(error)
pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(missing), reason=missing)]

FLAT = Vector(dims=DIMS, algorithm="FLAT")
VECTOR = np.ones(DIMS, "<f4").tobytes()
FIELDS = [Tag("category"), Tag("tags", many=True), Numeric("year"), Text("title"), Stored("extra")]
SCHEMA = Schema("docs", FIELDS, FLAT)
CONNECTION_ERROR = valkey.exceptions.ConnectionError
PATIENCE_S = 20  # a bound for polling, not a promise


class Own:
    """A server in a folder of its own, whose socket stays the same however often it is started anew."""

    def __init__(self, *, keep=True, module=True):
        self.folder = Path(tempfile.mkdtemp(prefix="retriever-own-"))  # short, for the sake of the socket's path
        binary, search = embedded._find_server()
        argv = embedded._server_argv(binary, search, str(self.folder), f"{self.folder}/socket", port=0, keep=keep)
        at = argv.index("--loadmodule")
        # By default a reply may leave before its command is in the file, while a sync is under way.
        self.argv = [*argv[:at], "--appendfsync", "always"]
        self.module = argv[at:] if module else []
        self.url = f"unix://{self.folder}/socket"
        self.raw = valkey.Valkey.from_url(self.url)
        self.process = None

    def start(self, *options, loaded=True):
        """Start it, and wait until it has loaded its data, or until it answers that it is about to."""
        out = subprocess.DEVNULL
        self.process = subprocess.Popen([*self.argv, *options, *self.module], stdout=out, stderr=out)
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            with contextlib.suppress(CONNECTION_ERROR):  # LOADING is one, to the client
                try:
                    self.raw.ping()
                except valkey.exceptions.BusyLoadingError:
                    if loaded:
                        raise
                return
            time.sleep(0.005)
        raise AssertionError(f"no server, exit code {self.process.poll()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def forget(self):
        """Kill it, and lose all that it kept."""
        self.kill()
        shutil.rmtree(self.folder / "appendonlydir")

    @contextlib.contextmanager
    def dies(self):
        """Whatever is asked of the server within is taken and never answered, and then the server is killed."""
        self.process.send_signal(signal.SIGSTOP)
        death = threading.Timer(0.05, self.kill)
        death.start()
        try:
            yield
        finally:
            death.join()

    def close(self):
        if self.process is not None:
            self.kill()
        self.raw.close()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def serving(**kwargs):
    server = Own(**kwargs)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def own():
    with serving() as server:
        yield server


async def back(own):
    """Start it again, and let a loop that was kept busy see that its connections have gone.

    A borrowed client would otherwise use one of them once more, and say so; that is its owner's business.
    """
    own.start()
    await asyncio.sleep(0.01)


@pytest.fixture(params=["owned", "borrowed"])
async def shell(request, make, borrow, own):
    """A shell on an index of fifty documents, over connections of its own or a borrowed client."""
    shell = make(SCHEMA, to=own.url) if request.param == "owned" else make(SCHEMA, client=borrow(own.url))
    assert await shell.create_index()
    assert await shell.upsert(corpus(1)) == UpsertReport(50)
    return shell


def corpus(version, count=50):
    """Documents of one version; every second one lacks a field."""
    return [
        document(f"d{at:02}", f"text {at} {version}", (1, at, version, 0), category=f"v{version}", title=f"title {at}")
        if at % 2
        else document(f"d{at:02}", f"text {at} {version}", (1, at, version, 0), category=f"v{version}")
        for at in range(count)
    ]


async def contents(shell):
    return {each.id: each for each in await shell.scan()}


def by_id(documents):
    return {each.id: each for each in documents}


async def one_by_one(shell, **kwargs):
    """A scan's documents as they come."""
    documents = shell.retriever.scan(**kwargs)
    if shell.blocking:
        for each in documents:
            yield each
    else:
        async for each in documents:
            yield each


# --- killed ---------------------------------------------------------------------------------------

CALLS = {
    "query": lambda docs: docs.query(vector=[1, 0, 0, 0], k=3, filter={"category": "v1"}),
    "get": lambda docs: docs.get(["d01", "d02"]),
    "count": lambda docs: docs.count({"category": "v1"}),
    "scan": lambda docs: contents(docs),
    "create_index": lambda docs: docs.create_index(),
    "describe_index": lambda docs: docs.describe_index(),
    "delete": lambda docs: docs.delete(["no such id"]),
    "update": lambda docs: docs.update("no such id", {"year": 1}),
}


@pytest.mark.parametrize("method", CALLS)
async def test_a_server_that_is_killed_in_the_middle_of_a_call(shell, own, method):
    """The client's own error; the same object works when the server is back, with all that it had (cases B69, B75)."""
    expected = await CALLS[method](shell)
    for attempt in range(2):  # asked and never answered, then not even reached
        with pytest.raises(CONNECTION_ERROR) as raised, own.dies() if not attempt else contextlib.nullcontext():
            await CALLS[method](shell)
        assert type(raised.value) is CONNECTION_ERROR
    await back(own)
    assert await shell.wait_until_indexed()  # the engine looks through its keys again
    assert await CALLS[method](shell) == expected
    assert await contents(shell) == by_id(corpus(1))
    assert await shell.ids() == [f"d{at:02}" for at in range(50)]


async def test_a_server_that_is_killed_while_an_index_is_made(make, own):
    """Whatever step of create_index it dies in, a second one ends with the index, and nothing stands in its way."""
    shell = make(SCHEMA, to=own.url)
    with pytest.raises(CONNECTION_ERROR), own.dies():
        await shell.create_index()
    await back(own)
    assert await shell.create_index() is True
    assert await shell.upsert(corpus(1)) == UpsertReport(50)
    assert len(await shell.ids()) == 50


async def test_a_server_that_is_killed_in_an_upsert(shell, own):
    """What was confirmed is there when the server is back; the error carries the rest, and again ends the same."""
    confirmed = []
    dying = contextlib.ExitStack()

    def on_batch(ids):
        confirmed.extend(ids)
        if len(confirmed) == 20:
            dying.enter_context(own.dies())

    with pytest.raises(CONNECTION_ERROR) as raised, dying:
        await shell.upsert(corpus(2), batch_size=10, on_batch=on_batch)
    assert type(raised.value) is CONNECTION_ERROR
    stopped = interruption(raised.value)
    assert stopped.report == UpsertReport(20)
    assert stopped.in_flight == tuple(f"d{at:02}" for at in range(20, 30))
    await back(own)
    old, new = by_id(corpus(1)), by_id(corpus(2))
    now = await contents(shell)
    assert {id: now[id] for id in confirmed} == {id: new[id] for id in confirmed}
    assert {id: each for id, each in now.items() if id >= "d30"} == {id: old[id] for id in old if id >= "d30"}
    assert all(now[id] in (old[id], new[id]) for id in stopped.in_flight)
    assert await shell.upsert(corpus(2), batch_size=10) == UpsertReport(50)
    assert await contents(shell) == new
    assert [await shell.count({"category": each}) for each in ("v1", "v2")] == [0, 50]


async def test_a_server_that_is_killed_in_a_scan(shell, own):
    """A scan ends with the client's own error, not as if that had been all; the next one gives every document."""
    seen = []

    async def scan():
        async for each in one_by_one(shell, batch_size=5):
            if not seen:
                own.kill()
            seen.append(each.id)

    with pytest.raises(CONNECTION_ERROR) as raised:
        await scan()
    assert type(raised.value) is CONNECTION_ERROR
    assert 0 < len(seen) < 50
    await back(own)
    assert await contents(shell) == by_id(corpus(1))


# --- started anew, with and without what it had ---------------------------------------------------


async def test_a_server_that_lost_everything(shell, own):
    """Started without its data: asking and writing say that there is no index, create_index makes it (case B69)."""
    own.forget()
    await back(own)
    with pytest.raises(IndexMissing, match=r"create_index\(\) makes it"):
        await shell.query(vector=[1, 0, 0, 0])
    with pytest.raises(IndexMissing, match=r"create_index\(\) makes it"):
        await shell.upsert(corpus(1))
    assert await shell.create_index() is True
    assert await shell.upsert(corpus(1)) == UpsertReport(50)
    assert len(await shell.ids()) == 50


@pytest.mark.parametrize("loss", ["index dropped", "keys restored elsewhere"])
async def test_documents_without_their_index(make, own, shell, loss):
    """Keys are there and the index is not: asking and writing say so, create_index finds every document again."""
    if loss == "index dropped":
        own.raw.execute_command("FT.DROPINDEX", SCHEMA.name)
    else:
        dumped = [(key, own.raw.dump(key)) for key in own.raw.scan_iter()]
        own.forget()
        await back(own)
        for key, data in dumped:
            own.raw.restore(key, 0, data)
    for each in (shell, make(SCHEMA, to=own.url)):
        with pytest.raises(IndexMissing, match=r"create_index\(\) makes it"):
            await each.query(vector=[1, 0, 0, 0])
        with pytest.raises(IndexMissing, match=r"create_index\(\) makes it"):
            await each.upsert(corpus(2))
    assert await shell.create_index() is True
    assert (await shell.query(vector=[1, 0, 0, 0])).complete
    assert len(await shell.ids()) == 50
    assert await shell.upsert(corpus(2)) == UpsertReport(50)
    assert await shell.count({"category": "v2"}) == 50


@pytest.mark.parametrize("command", ["FLUSHDB", "FLUSHALL"])
async def test_a_server_that_somebody_flushed(make, own, shell, command):
    """The index is gone with the keys: both ways say so, and nothing that is left locks anybody out."""
    own.raw.execute_command(command)
    for _ in range(2):
        with pytest.raises(IndexMissing, match=r"create_index\(\) makes it"):
            await shell.query(vector=[1, 0, 0, 0])
        with pytest.raises(IndexMissing, match=r"create_index\(\) makes it"):
            await shell.upsert(corpus(1)[:1])
    assert not own.raw.exists(SCHEMA.metadata_key)
    other = make(dataclasses.replace(SCHEMA, fields=[Tag("category"), Text("title")]), to=own.url)
    assert await other.create_index() is True
    with pytest.raises(SchemaMismatch):
        await shell.upsert(corpus(1))
    await other.drop_index()
    assert await shell.create_index() is True
    assert await shell.upsert(corpus(1)) == UpsertReport(50)
    assert len(await shell.ids()) == 50


async def test_a_server_that_is_loading(make, borrow, own):
    """LOADING is the client's own error, at once; create_index waits until it is over, or its time is (case B69)."""
    shell, lent = make(SCHEMA, to=own.url), make(SCHEMA, client=borrow(own.url))
    await shell.create_index()
    await shell.upsert(corpus(1))
    with own.raw.pipeline(transaction=False) as pipeline:
        for at in range(20_000):  # the server looks up from loading once in a thousand
            pipeline.set(f"filler-{at}", "x")
        pipeline.execute()
    own.kill()
    own.start("--key-load-delay", "50", loaded=False)
    for each in (shell, lent):
        with pytest.raises(valkey.exceptions.BusyLoadingError):
            await each.query(vector=[1, 0, 0, 0])
    with pytest.raises(valkey.exceptions.BusyLoadingError) as raised:
        await shell.upsert(corpus(2), batch_size=10)
    assert interruption(raised.value).report == UpsertReport()
    with pytest.raises(valkey.exceptions.BusyLoadingError):
        await shell.create_index(timeout_s=0)
    made = await asyncio.gather(*(each.create_index(timeout_s=PATIENCE_S) for each in (lent, shell)))
    assert made == [False, False]
    assert await contents(shell) == by_id(corpus(1))
    assert len(await lent.ids()) == 50


# --- full -----------------------------------------------------------------------------------------


async def test_a_server_without_memory(make, own, shell):
    """Every document that does not fit is named with the server's words; reading and deleting go on (case B75)."""
    own.raw.config_set("appendonly", "no")
    large = [document(f"l{at}", "x" * 10_000, category="large", title="t") for at in range(500)]
    own.raw.config_set("maxmemory", own.raw.info("memory")["used_memory"] + 2_000_000)
    report = await shell.upsert(large, batch_size=100)
    assert 0 < report.written < 500
    assert report.written + len(report.failed) == 500
    assert all("used memory > 'maxmemory'" in failure.reason for failure in report.failed)
    assert all("x" * 100 not in failure.reason for failure in report.failed)
    refused = {failure.id for failure in report.failed}
    kept = {each.id for each in large} - refused
    assert {each.id for each in await shell.scan({"category": "large"})} == kept
    own.raw.config_set("maxmemory", 1)
    assert {failure.id for failure in (await shell.upsert(large)).failed} == {each.id for each in large}
    with pytest.raises(ServerError, match="used memory > 'maxmemory'"):
        await make(Schema("more", FIELDS, FLAT), to=own.url).create_index()
    assert own.raw.keys("more*") == []
    assert own.raw.execute_command("FT._LIST") == [b"docs"]
    assert await shell.ids({"category": "v1"}, k=3) == ["d00", "d01", "d02"]
    assert (await shell.get("d01")).id == "d01"
    assert await shell.count({"category": "v1"}) == 50
    assert await shell.delete(filter={"category": "large"}) == len(kept)
    own.raw.config_set("maxmemory", 0)
    assert await shell.upsert(large) == UpsertReport(500)
    assert await make(Schema("more", FIELDS, FLAT), to=own.url).create_index() is True


# --- too slow -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    """A server with an index of 100,000 vectors."""
    with serving(keep=False) as server:
        with Retriever.connect(server.url, LARGE) as docs:
            docs.create_index()
        with server.raw.pipeline(transaction=False) as pipeline:
            for at in range(100_000):
                pipeline.execute_command("HSET", f"large:{at}", "embedding", VECTOR, "year", at, "__text", "")
            pipeline.execute()
        yield server


LARGE = Schema("large", [Numeric("year")], FLAT, analysis=None)
QUESTION = {"vector": [1, 0, 0, 0], "k": 10, "filter": {"year": {"gte": 1}}}


async def test_a_query_that_the_engine_cut_short(make, large):
    """What took as long as its timeout says that it may not be whole; with time enough it is (case B55)."""
    shell = make(LARGE, to=large.url)
    hits = await shell.query(**QUESTION, timeout_ms=1)
    assert not hits.complete
    assert "may have stopped early" in hits.reasons[0]
    whole = await shell.query(**QUESTION, timeout_ms=60_000)
    assert (len(whole), whole.complete, whole.reasons) == (10, True, ())


async def test_a_count_that_the_engine_cut_short(make, large, monkeypatch):
    """A number that may be too small is none: SearchTimeout (case B55)."""
    shell = make(LARGE, to=large.url)
    with monkeypatch.context() as patch:
        patch.setattr(read, "DEFAULT_TIMEOUT_MS", 1)
        with pytest.raises(SearchTimeout, match="may have stopped early"):
            await shell.count({"year": {"gte": 1}})
    assert await shell.count({"year": {"gte": 1}}) == 99_999


async def test_an_engine_that_refuses_what_takes_too_long(make, large):
    """An engine that was set to fail at its timeout: SearchTimeout with the ways out, from query and from count."""
    shell = make(LARGE, to=large.url)
    large.raw.execute_command("FT.CONFIG", "SET", "ON_TIMEOUT", "FAIL")
    try:
        with pytest.raises(SearchTimeout, match="a larger timeout_ms or a narrower filter helps"):
            await _until_raised(lambda: shell.query(**QUESTION, timeout_ms=1))
    finally:
        large.raw.execute_command("FT.CONFIG", "SET", "ON_TIMEOUT", "RETURN")


async def _until_raised(call):
    for _ in range(100):  # the engine looks at its clock now and then only
        await call()


# --- foreign hashes -------------------------------------------------------------------------------

SOUND = {
    "__text": "t",
    "__exact_year": "1",
    "category": "x",
    "tags": "a",
    "year": "1",
    "title": "t",
    "extra": "1",
    "embedding": VECTOR,
}
FOREIGN = {
    "a short vector": {"embedding": VECTOR[:8]},
    "a long vector": {"embedding": VECTOR * 2},
    "an empty vector": {"embedding": b""},
    "a vector that is no number": {"embedding": np.full(4, np.nan, "<f4").tobytes()},
    "a text of bytes": {"__text": b"\xff\xfe"},
    "a tag of bytes": {"category": b"\xff\xfe"},
    "tags of bytes": {"tags": b"a\xff\x1f\xfe"},
    "words of bytes": {"title": b"\xff\xfe"},
    "a number that is none": {"year": "1,000"},
    "two numbers that differ": {"__exact_year": "many"},
    "JSON that is none": {"extra": "{"},
    "a distance": {"__score": "far"},
    "no vector": {"embedding": None},
    "no text": {"__text": None},
    "no tag": {"category": None},
    "nothing of ours": dict.fromkeys(SOUND) | {"name": "theirs"},
}
# What the engine indexes all the same, and no field of ours can be read from.
COUNTED = {"a vector that is no number", "a text of bytes", "a tag of bytes", "tags of bytes", "JSON that is none"}


@pytest.fixture(scope="module")
def foreign():
    """A server for documents of ours beside hashes of other programs."""
    with serving(keep=False) as server:
        yield server


@pytest.mark.parametrize("what", FOREIGN)
async def test_a_foreign_hash_stops_nothing(make, foreign, what, caplog):
    """Whatever another program writes under the prefix: no call fails for it, and ours is found and counted."""
    name = f"docs-{time.monotonic_ns()}"
    shell = make(dataclasses.replace(SCHEMA, name=name, prefix=f"{name}:"), to=foreign.url)
    await shell.create_index()
    ours = document("ours", "t", (1, 1, 0, 0), category="x", tags=["a"], year=1, title="t", extra=1)
    await shell.upsert([ours])
    written = {key: value for key, value in (SOUND | FOREIGN[what]).items() if value is not None}
    foreign.raw.hset(f"{name}:theirs", mapping=written)
    filters = (None, {"category": "x"}, {"year": {"gte": 0}}, {"tags": {"any": ["a"]}}, {"category": {"ne": "y"}})
    for filter in filters:
        for kwargs in ({}, {"return_vectors": True}, {"return_fields": []}, {"return_fields": ["category"]}):
            hits = await shell.query(vector=[1, 1, 1, 1], filter=filter, **kwargs)
            assert "ours" in {hit.id for hit in hits} <= {"ours", "theirs"}
            assert hits.complete == (not hits.reasons)
            assert set(hits.reasons) <= {"1 rows hold values that this library did not write"}
            if what in COUNTED and filter is None and "return_fields" not in kwargs:
                assert ([hit.id for hit in hits], len(hits.reasons)) == (["ours"], 1)
        (many,) = await shell.query_many([{"vector": [1, 1, 1, 1], "filter": filter}])
        assert "ours" in {hit.id for hit in many}
        assert await shell.count(filter) in (1, 2)
        for return_vectors in (False, True):
            caplog.clear()
            found = {each.id: each for each in await shell.scan(filter, return_vectors=return_vectors)}
            assert found["ours"] == ours
            assert found.keys() <= {"ours", "theirs"}
            if return_vectors:
                assert all(np.shape(each.vector) == (DIMS,) for each in found.values() if each.vector is not None)
            assert all("passed over 1 hashes" in record.message for record in caplog.records)
    assert await shell.exists(["ours", "theirs"]) == [True, "__text" in written]
    assert await shell.delete(filter={"year": {"gte": 5}}) == 0
    assert await shell.delete(filter={}, everything=True) in (1, 2)
    assert await shell.exists("ours") is False


@pytest.mark.parametrize("kind", ["string", "list", "set", "zset", "stream"])
async def test_a_foreign_key_of_another_type_stops_nothing(make, foreign, kind):
    """A key under the prefix that is no hash: an upsert names it, everything else passes it over."""
    name = f"docs-{time.monotonic_ns()}"
    shell = make(dataclasses.replace(SCHEMA, name=name, prefix=f"{name}:"), to=foreign.url)
    await shell.create_index()
    key = f"{name}:theirs"
    {
        "string": lambda: foreign.raw.set(key, "x"),
        "list": lambda: foreign.raw.rpush(key, "x"),
        "set": lambda: foreign.raw.sadd(key, "x"),
        "zset": lambda: foreign.raw.zadd(key, {"x": 1}),
        "stream": lambda: foreign.raw.xadd(key, {"x": 1}),
    }[kind]()
    for fields in ({}, {"category": "x", "tags": ["a"], "year": 1, "title": "t", "extra": 1}):
        report = await shell.upsert([document("ours"), Document("theirs", "t", fields, [1, 0, 0, 0])])
        assert (report.written, [each.id for each in report.failed]) == (1, ["theirs"])
        assert "WRONGTYPE" in report.failed[0].reason
    assert await shell.ids() == ["ours"]
    assert await shell.count() == await shell.count({"category": {"ne": "y"}}) == 1
    assert [each.id for each in await shell.scan()] == ["ours"]
    assert await shell.exists(["ours", "theirs"]) == [True, False]
    assert await shell.update("theirs", {"year": 1}) is False
    assert await shell.delete(["theirs"]) == 0
    assert await shell.delete(filter={}, everything=True) == 1
    assert foreign.raw.exists(key)


# --- not able to ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain():
    """A server without a search module."""
    with serving(keep=False, module=False) as server:
        yield server


@pytest.mark.parametrize("method", ["query", "count", "create_index", "describe_index", "upsert", "drop_index"])
async def test_a_server_without_a_search_module(make, plain, method):
    """NotSupported names server and version or the command, says what is needed, and nothing is written."""
    shell = make(SCHEMA, to=plain.url)
    calls = CALLS | {"upsert": lambda docs: docs.upsert(corpus(1)), "drop_index": lambda docs: docs.drop_index()}
    with pytest.raises(NotSupported, match="Valkey Search") as raised:
        await calls[method](shell)
    assert "v1" not in str(raised.value)
    assert plain.raw.dbsize() == 0


async def test_a_server_too_old_to_say_what_it_is(make, own):
    """A server that does not know HELLO is told as such, and not taken for one that has no modules."""
    own.kill()
    own.start("--rename-command", "HELLO", "")
    with pytest.raises(NotSupported, match="HELLO"):
        await make(SCHEMA, to=own.url).create_index()
