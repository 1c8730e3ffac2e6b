"""When something breaks: how far it came is told, running it again is safe, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import threading
import time
import traceback

import pytest
import valkey
import valkey.asyncio

from retriever import AsyncRetriever, Document, InvalidInput, Retriever, UpsertReport, interruption
from tests.fakes import DIMS, Embedder, document

pytestmark = pytest.mark.live


def corpus(version, count=50):
    """Documents of one version; every second one lacks a field."""
    return [
        document(f"d{at:02}", f"text {at} {version}", (1, at, version, 0), category=f"v{version}", year=at)
        if at % 2
        else document(f"d{at:02}", f"text {at} {version}", (1, at, version, 0), category=f"v{version}")
        for at in range(count)
    ]


async def contents(shell):
    return {each.id: each for each in await shell.scan()}


@pytest.fixture
async def broken(make, schema, proxy):
    """A shell behind the proxy and one beside it, on an index that holds version 1 of the corpus."""
    direct = make(schema)
    await direct.create_index()
    await direct.upsert(corpus(1))
    shell = make(schema, to=proxy.url)
    shell.direct = direct
    await shell.upsert([])
    await shell.update("d00", {"category": "v1"})  # connected, and the index compared
    return shell


# --- an upsert that is stopped --------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 500, 4000, 8000])
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "borrowed"])
async def test_a_server_that_dies_in_an_upsert(make, borrow, schema, proxy, at, owned):
    """The client's own error carries the report and the batch in flight; running it again ends the same (case B75)."""
    direct = make(schema)
    await direct.create_index()
    await direct.upsert(corpus(1))
    shell = make(schema, to=proxy.url) if owned else make(schema, client=borrow(proxy.url))
    confirmed = []

    def on_batch(ids):
        confirmed.extend(ids)
        if len(confirmed) == 20:
            proxy.refuse = True
            proxy.cut_after(at)

    with pytest.raises(valkey.exceptions.ConnectionError) as raised:
        await shell.upsert(corpus(2), batch_size=10, on_batch=on_batch)
    stopped = interruption(raised.value)
    assert stopped.report.written >= 20
    assert stopped.report == UpsertReport(len(confirmed))
    assert confirmed == [each.id for each in corpus(2)[: len(confirmed)]]
    assert list(stopped.in_flight) == [each.id for each in corpus(2)[len(confirmed) : len(confirmed) + 10]]
    assert f"stopped after {len(confirmed)} documents; 10 were in flight" in str(raised.value.__notes__)
    old, new = ({each.id: each for each in corpus(version)} for version in (1, 2))
    now = await contents(direct)
    for id, each in now.items():
        allowed = [new[id]] if id in confirmed else [old[id], new[id]] if id in stopped.in_flight else [old[id]]
        assert each in allowed
    proxy.refuse = False
    assert await shell.upsert(corpus(2), batch_size=10) == UpsertReport(50)
    assert await contents(direct) == new
    assert await direct.count({"category": "v2"}) == 50
    assert await direct.count({"category": "v1"}) == 0


@pytest.mark.parametrize("cut", ["commands", "replies"])
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "borrowed"])
async def test_an_upsert_that_is_cut_anywhere(make, borrow, schema, proxy, cut, owned):
    """Wherever in two batches the connection ends: what was confirmed is written, what is neither is as it was."""
    direct = make(schema)
    await direct.create_index()
    shell = make(schema, to=proxy.url) if owned else make(schema, client=borrow(proxy.url))
    await shell.upsert(corpus(0, 10))
    arm, stride = (proxy.cut_after, 173) if cut == "commands" else (proxy.cut_replies_after, 3)
    seen = set()
    for at in range(0, 100 * stride, stride):
        assert await shell.exists("d00")  # connected
        old = await contents(direct)
        documents = corpus(at + 1, 10)
        new = {each.id: each for each in documents}
        confirmed = []
        proxy.refuse = True
        arm(at)
        try:
            await shell.upsert(documents, batch_size=5, on_batch=confirmed.extend)
        except valkey.exceptions.ConnectionError as error:
            stopped = interruption(error)
        else:
            break
        finally:
            proxy.refuse = False
            arm(None)
        assert stopped.report == UpsertReport(len(confirmed))
        assert list(stopped.in_flight) == [each.id for each in documents[len(confirmed) :][:5]]
        now = await contents(direct)
        for id, each in now.items():
            allowed = [new[id]] if id in confirmed else [old[id], new[id]] if id in stopped.in_flight else [old[id]]
            assert each in allowed
        written = sum(now[id] == new[id] for id in stopped.in_flight)
        seen.add((len(confirmed), written))
    assert await contents(direct) == new
    # Between the commands of either batch, or before the replies to what was written whole.
    expected = {(0, 0), (0, 2), (0, 5), (5, 0), (5, 2)} if cut == "commands" else {(0, 5), (5, 5)}
    assert expected <= seen


async def test_an_embedder_that_fails_in_the_third_batch(make, schema):
    """Its own error carries the two batches before it; again with a well one, all are there."""
    calls = []

    def embed(texts):
        calls.append(texts)
        if len(calls) == 3:
            raise OSError("out of memory")
        return Embedder()(texts)

    embed.dims = DIMS
    batch = [Document(f"d{at}", f"text {at}") for at in range(30)]
    shell = make(schema, embed=embed)
    await shell.create_index()
    with pytest.raises(OSError, match="out of memory") as raised:
        await shell.upsert(batch, batch_size=10)
    stopped = interruption(raised.value)
    assert stopped.report == UpsertReport(20)
    assert stopped.in_flight == tuple(f"d{at}" for at in range(20, 30))
    assert await shell.count() == 20
    assert await shell.upsert(batch, batch_size=10) == UpsertReport(30)
    assert await shell.count() == 30


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, RuntimeError, InvalidInput])
@pytest.mark.parametrize("where", ["source", "on_batch"])
async def test_whatever_stops_an_upsert_carries_how_far_it_came(docs, kind, where):
    """An exception of the source or of on_batch, an interrupt too, passes through and carries the report."""
    if kind in (KeyboardInterrupt, SystemExit) and not docs.blocking and where == "on_batch":
        return  # from a thread's future asyncio raises these out of the loop itself

    def source():
        for at in range(30):
            if at == 25 and where == "source":
                raise kind("stop")
            yield document(f"d{at}")

    def on_batch(ids):
        if where == "on_batch" and "d10" in ids:
            raise kind("stop")

    try:
        await docs.upsert(source(), batch_size=10, on_batch=on_batch)
    except BaseException as error:
        raised = error
    assert type(raised) is kind
    stopped = interruption(raised)
    assert stopped.report == UpsertReport(20)
    assert stopped.in_flight == ()
    assert await docs.count() == 20


async def test_a_cancelled_upsert_carries_how_far_it_came(make, schema):
    """A task that is cancelled while embedding: the batch is in flight, nothing of it is written."""
    if make.blocking:
        return
    third = asyncio.Event()

    async def embed(texts):
        if "text 20" in texts:
            third.set()
            await asyncio.sleep(60)
        return Embedder()(texts)

    embed.dims = DIMS
    shell = make(schema, embed=embed)
    await shell.create_index()
    raised = []

    async def load():
        try:
            await shell.upsert([Document(f"d{at}", f"text {at}") for at in range(30)], batch_size=10)
        except asyncio.CancelledError as error:
            raised.append(error)
            raise

    task = asyncio.create_task(load())
    await third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stopped = interruption(raised[0])
    assert (stopped.report.written, len(stopped.in_flight)) == (20, 10)
    assert await shell.count() == 20


async def test_a_cancelled_call_leaves_no_reply_behind(make, schema, proxy):
    """Cancelled while its reply is on the way: the next call gets its own reply, not that one."""
    if make.blocking:
        return
    shell = make(schema, to=proxy.url)
    await shell.create_index()
    await shell.upsert([document(f"d{at}", vector=(1, at, 0, 0)) for at in range(50)])
    for call in (shell.query(vector=[1, 0, 0, 0], k=50), shell.get(["d1", "d2"]), shell.upsert([document("d1")])):
        proxy.flowing.clear()
        task = asyncio.create_task(call)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.flowing.set()
        assert (await shell.get("d7")).id == "d7"
        assert await shell.exists(["d7", "x", "d8"]) == [True, False, True]
        assert await shell.ids(k=1) in (["d0"], ["d1"])


def test_an_interrupted_call_leaves_no_reply_behind(url, schema, proxy):
    """Ctrl-C while a reply is on the way: the next call gets its own reply, and an upsert says how far it came."""

    def interrupt():
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    with Retriever.connect(proxy.url, schema) as docs:
        docs.create_index()
        docs.upsert([document(f"d{at}", vector=(1, at, 0, 0)) for at in range(50)])
        for call in (
            lambda: docs.query(vector=[1, 0, 0, 0], k=50),
            lambda: docs.get(["d1", "d2"]),
            lambda: docs.upsert([document("d1"), document("d2")]),
        ):
            proxy.flowing.clear()
            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt) as raised:
                call()
            thread.join()
            proxy.flowing.set()
            assert docs.get("d7").id == "d7"
            assert docs.exists(["d7", "x", "d8"]) == [True, False, True]
        assert interruption(raised.value).in_flight == ("d1", "d2")


@pytest.mark.parametrize(
    "call", [lambda docs: docs.get("d1"), lambda docs: docs.get(["d1", "d2"])], ids=["one", "pipeline"]
)
async def test_a_reply_that_came_too_late_is_nobodys(make, schema, proxy, call):
    """After a timeout the next call gets its own reply."""
    shell = make(schema, to=proxy.url, timeout_s=0.2)
    await shell.create_index()
    await shell.upsert([document(f"d{at}") for at in range(10)])
    proxy.flowing.clear()
    with pytest.raises(valkey.exceptions.TimeoutError):
        await call(shell)
    proxy.flowing.set()
    assert (await shell.get("d7")).id == "d7"
    assert await shell.exists(["d7", "x", "d8"]) == [True, False, True]


def test_interruption_of_other_errors_is_none():
    """An error that stopped no upsert carries nothing."""
    assert interruption(ValueError()) is None


# --- reads and a lost connection ------------------------------------------------------------------

READS = {
    "query": lambda docs: docs.query(vector=[1, 0, 0, 0], k=3),
    "query_many": lambda docs: docs.query_many([{"vector": [1, 0, 0, 0]}, {"vector": [0, 1, 0, 0]}]),
    "get": lambda docs: docs.get("d01"),
    "get many": lambda docs: docs.get(["d01", "d02"]),
    "exists": lambda docs: docs.exists(["d01", "x"]),
    "count": lambda docs: docs.count({"category": "v1"}),
    "scan": lambda docs: docs.scan(),
    "describe_index": lambda docs: docs.describe_index(),
}


CUTS = {"in the command": lambda proxy: proxy.cut_after(20), "in the reply": lambda proxy: proxy.cut_replies_after(5)}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("method", READS)
async def test_an_owned_client_reads_again_once(broken, proxy, method, cut):
    """A connection that is lost before the reply of a read is whole: asked again on a new one, with the same answer."""
    expected = await READS[method](broken.direct)
    await READS[method](broken)
    CUTS[cut](proxy)
    got = await READS[method](broken)
    assert proxy.cuts == 1
    if method == "scan":
        assert sorted(each.id for each in got) == sorted(each.id for each in expected)
    else:
        assert got == expected


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("method", READS)
async def test_a_borrowed_client_is_not_asked_again(make, borrow, schema, proxy, broken, method, cut):
    """A borrowed client's retries are its owner's business: its ConnectionError comes through."""
    shell = make(schema, client=borrow(proxy.url))
    await READS[method](shell)
    CUTS[cut](proxy)
    if method == "query_many":
        assert [type(each) for each in await READS[method](shell)] == [valkey.exceptions.ConnectionError] * 2
    else:
        with pytest.raises(valkey.exceptions.ConnectionError):
            await READS[method](shell)
    assert proxy.cuts == 1
    assert await shell.exists("d01") is True


async def test_a_server_that_stays_away_is_an_error(broken, proxy):
    """Asked again once, not for ever: the client's own error comes through."""
    proxy.refuse = True
    proxy.cut()
    before = proxy.accepted
    with pytest.raises(valkey.exceptions.ConnectionError):
        await broken.query(vector=[1, 0, 0, 0])
    assert proxy.accepted - before <= 4
    proxy.refuse = False
    assert len(await broken.query(vector=[1, 0, 0, 0], k=3)) == 3


async def test_urls_of_either_name(make, schema, proxy, monkeypatch):
    """valkey:// and redis:// are one; without a URL it is the environment's."""
    assert await make(schema, to=proxy.url.replace("valkey://", "redis://")).create_index() is True
    monkeypatch.setenv("VALKEY_URL", proxy.url)
    assert await make(schema, to=None).create_index() is False
    assert proxy.accepted >= 2


async def test_nobody_listens(make, schema):
    """No server at all is the client library's ConnectionError, for every method."""
    shell = make(schema, to="valkey://127.0.0.1:1")
    for each in (READS["get"], READS["query"], READS["count"], lambda docs: docs.create_index()):
        with pytest.raises(valkey.exceptions.ConnectionError):
            await each(shell)


async def test_a_server_that_never_answers_is_a_timeout(make, schema, url):
    """timeout_s bounds the wait for a reply; a read that timed out is not asked again."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        shell = make(schema, to=f"valkey://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(valkey.exceptions.TimeoutError):
            await shell.get("d")


@pytest.mark.parametrize("owned", [True, False], ids=["owned", "borrowed"])
async def test_a_create_index_that_is_cut_anywhere(make, borrow, schema, proxy, raw, owned):
    """Whatever step of it the connection ends in, the next one finds or makes the index, and it takes documents."""
    made = set()
    for at in range(0, 20_000, 149):
        shell = make(schema, to=proxy.url) if owned else make(schema, client=borrow(proxy.url))
        proxy.cut_after(at)
        try:
            made.add(await shell.create_index())
            proxy.cut_after(None)
        except valkey.exceptions.ConnectionError:
            made.add(await shell.create_index())
        assert await shell.upsert([document("d")]) == UpsertReport(1)
        assert await shell.ids() == ["d"]
        assert await shell.drop_index(delete_documents=True) == 1
        assert list(raw.scan_iter(f"{schema.name}*")) == []
        if proxy.cuts < len(range(0, at + 1, 149)):
            break  # all of it came before the cut
    assert proxy.cuts > 5
    assert True in made


# --- a server that hangs --------------------------------------------------------------------------


def own_threads():
    return {each for each in threading.enumerate() if each.name != "proxy"}


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("method", ["query", "get", "get many", "exists", "count", "scan", "describe_index"])
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "borrowed"])
async def test_a_server_that_hangs(make, borrow, schema, proxy, owned, method, after):
    """No reply, or half of one: TimeoutError; nothing stays behind, and afterwards a call reads its own reply."""
    direct = make(schema)
    await direct.create_index()
    await direct.upsert(corpus(1))
    client = None if owned else borrow(proxy.url, socket_timeout=0.1)
    shell = make(schema, to=proxy.url, timeout_s=0.1) if owned else make(schema, client=client)
    await READS[method](shell)
    threads = own_threads()
    proxy.hold_after(after)
    with pytest.raises(valkey.exceptions.TimeoutError) as raised:
        await READS[method](shell)
    assert type(raised.value) is valkey.exceptions.TimeoutError
    proxy.flowing.set()
    assert await shell.exists(["x", "d07", "d08"]) == [False, True, True]
    got, expected = await READS[method](shell), await READS[method](direct)
    if method == "scan":
        got, expected = [sorted(each, key=lambda each: each.id) for each in (got, expected)]
    assert got == expected
    assert own_threads() == threads
    await shell.close()
    if not owned:
        client.connection_pool.disconnect() if make.blocking else await client.connection_pool.disconnect()
    assert await asyncio.to_thread(eventually, lambda: proxy.open == 0)


@pytest.mark.parametrize("after", [0, 1, 6])
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "borrowed"])
async def test_a_server_that_hangs_in_an_upsert(make, borrow, schema, proxy, owned, after):
    """The TimeoutError says how far it came; what was on its way is not counted, and again ends the same."""
    shell = (
        make(schema, to=proxy.url, timeout_s=0.1)
        if owned
        else make(schema, client=borrow(proxy.url, socket_timeout=0.1))
    )
    await shell.create_index()
    await shell.upsert(corpus(1))
    with pytest.raises(valkey.exceptions.TimeoutError) as raised:
        await shell.upsert(corpus(2), batch_size=10, on_batch=lambda ids: proxy.hold_after(after))
    stopped = interruption(raised.value)
    assert stopped.report == UpsertReport(10)
    assert stopped.in_flight == tuple(f"d{at}" for at in range(10, 20))
    proxy.flowing.set()
    assert await shell.upsert(corpus(2)) == UpsertReport(50)
    assert await contents(shell) == {each.id: each for each in corpus(2)}


# --- secrets --------------------------------------------------------------------------------------


async def test_no_secret_in_errors_reprs_or_logs(make, schema, proxy, caplog):
    """A password, a text, a tag or a vector is in no repr, error, note or log line."""
    secret = "hushhush"
    address = proxy.url.removeprefix("valkey://")
    said = []

    async def told(call):
        with pytest.raises(Exception) as raised:  # noqa: PT011 -- whatever comes is searched
            await call
        said.extend(traceback.format_exception(raised.value, chain=True)[-1:])
        said.append(repr(raised.value))

    with caplog.at_level(logging.DEBUG, "retriever"):
        shell = make(schema, to=f"valkey://:{secret}@{address}")
        said.append(repr(shell.retriever))
        await told(shell.query(vector=[1, 0, 0, 0]))
        await told(make(schema, to=f"valkey://user:{secret}@127.0.0.1:1").create_index())
        shell = make(schema, to=proxy.url, embed=Embedder())
        await told(shell.query(text=f"{secret} question", filter={"category": f"{secret} tag"}))
        await shell.create_index()
        await shell.upsert([document("d")])
        proxy.refuse = True
        proxy.cut_after(10)
        await told(shell.upsert([Document("e", f"{secret} text", {"category": f"{secret} tag"})]))
    assert len(said) == 9
    assert secret not in "\n".join(said)
    assert secret not in caplog.text


async def test_a_refused_command_is_named_without_its_contents(docs, schema, raw):
    """The reason of a refused document holds the server's words, not the document's."""
    raw.set(f"{schema.prefix}d", "x")
    report = await docs.upsert([Document("d", "hushhush text", {"category": "hushhush"}, [1, 0, 0, 0]), document("e")])
    assert "hushhush" not in repr(report)
    with pytest.raises(Exception, match="WRONGTYPE") as raised:
        await docs.get("d")
    assert "hushhush" not in repr(raised.value)


async def test_another_program_s_key_is_no_document(docs, schema, raw):
    """A string or a foreign hash under the prefix does not exist, is not changed and not deleted, by id or filter."""
    raw.set(f"{schema.prefix}s", "x")
    raw.hset(f"{schema.prefix}h", "category", "theirs")
    assert await docs.exists(["s", "h"]) == [False, False]
    assert await docs.update("s", {"category": "ours"}) is False
    assert await docs.update("h", {"category": "ours"}) is False
    assert await docs.delete(["s", "h"]) == 0
    assert await docs.delete(filter={}, everything=True) == 0
    assert raw.get(f"{schema.prefix}s") == b"x"
    assert raw.hgetall(f"{schema.prefix}h") == {b"category": b"theirs"}


# --- nothing left behind --------------------------------------------------------------------------


def open_sockets():
    found = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return sorted(each for each in found if each.startswith("socket:"))


class Ours:
    """A URL whose connections carry a name, and how many of them the server sees."""

    def __init__(self, url, name, raw):
        self.url = f"{url}{'&' if '?' in url else '?'}client_name={name}"
        self.name, self.raw = name, raw

    def count(self):
        return sum(each["name"] == self.name for each in self.raw.client_list())

    def gone(self):
        """Whether none is left; the server learns of a closed socket a moment later."""
        return eventually(lambda: self.count() == 0)


@pytest.fixture
def ours(url, name, raw):
    return Ours(url, name, raw)


def eventually(condition):
    """Whether it comes true within five seconds."""
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_close_leaves_nothing_of_a_blocking_retriever(ours, schema):
    """After close() there is no socket, no thread and no client of ours on the server; twice is no error."""
    gc.collect()
    sockets, threads = open_sockets(), threading.active_count()
    docs = Retriever.connect(ours.url, schema, embed=Embedder(), rerank=lambda text, hits: hits)
    docs.create_index()
    docs.upsert(Document(f"d{at}", f"text {at}") for at in range(20))
    docs.query(text="text 1", rerank=True)
    next(docs.scan(batch_size=1))
    workers = [threading.Thread(target=docs.count) for _ in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert ours.count() > 0
    docs.close()
    docs.close()
    assert open_sockets() == sockets
    assert threading.active_count() == threads
    assert ours.gone()


async def test_close_leaves_nothing_of_an_async_retriever(ours, schema):
    """After close() there is no socket, no task and no client of ours on the server; twice is no error."""
    gc.collect()
    sockets, tasks = open_sockets(), asyncio.all_tasks()
    docs = AsyncRetriever.connect(ours.url, schema, embed=Embedder(), rerank=lambda text, hits: hits)
    await docs.create_index()
    await docs.upsert(Document(f"d{at}", f"text {at}") for at in range(20))
    await docs.query(text="text 1", rerank=True)
    await asyncio.gather(*(docs.count() for _ in range(5)))
    pages = docs.scan(batch_size=1)
    await anext(pages)
    await pages.aclose()
    assert ours.count() > 0
    await docs.close()
    await docs.close()
    await asyncio.sleep(0)
    assert open_sockets() == sockets
    assert asyncio.all_tasks() == tasks
    assert await asyncio.to_thread(ours.gone)


async def test_with_closes_also_after_an_error(make, schema, ours):
    """The end of a with block closes, however it ends."""

    async def use():
        if make.blocking:
            with Retriever.connect(ours.url, schema) as docs:
                docs.get("d")
                docs.query(vector=[1], k=0)
        async with AsyncRetriever.connect(ours.url, schema) as docs:
            await docs.get("d")
            await docs.query(vector=[1], k=0)

    with pytest.raises(InvalidInput):
        await use()
    assert await asyncio.to_thread(ours.gone)


async def test_failed_operations_leave_no_connection_open(make, schema, proxy):
    """Connections that broke are given back or closed: after close() none is open."""
    shell = make(schema, to=proxy.url)
    await shell.create_index()
    for _ in range(5):
        proxy.cut_after(30)
        with pytest.raises(valkey.exceptions.ConnectionError):
            # A counter is not added twice, so these writes are not sent again.
            await shell.upsert([document("d")])
    await shell.close()
    assert await asyncio.to_thread(eventually, lambda: proxy.open == 0)


# A connection that its loop did not close is the mistake that these two make.
mistaken = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@mistaken
@pytest.mark.parametrize(
    "call", [lambda docs: docs.count(), lambda docs: docs.get(["a", "b"])], ids=["one", "pipeline"]
)
def test_another_loop_is_told(url, schema, call):
    """An AsyncRetriever used from a second event loop says so, and that one client goes with one loop."""
    docs = AsyncRetriever.connect(url, schema)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        first.run_until_complete(docs.create_index())
        with pytest.raises(InvalidInput, match="another event loop; make one per loop"):
            second.run_until_complete(call(docs))
        second.run_until_complete(docs.close())
    finally:
        first.close()
        second.close()
    del docs
    gc.collect()


@mistaken
def test_a_closed_loop_is_told(url, schema):
    """asyncio.run twice with one AsyncRetriever: the second says what is wrong."""
    docs = AsyncRetriever.connect(url, schema)
    asyncio.run(docs.create_index())

    async def again(docs):
        with pytest.raises(InvalidInput, match="another event loop; make one per loop"):
            await docs.count()
        await docs.close()

    asyncio.run(again(docs))
    del docs
    gc.collect()


def test_an_async_retriever_is_made_outside_a_loop(url, schema):
    """Making one needs no running loop; the loop that first uses it is its own."""
    docs = AsyncRetriever.connect(url, schema)

    async def use():
        async with docs:
            await docs.create_index()
            await docs.upsert([document("d")])
            return [hit.id for hit in await docs.query(vector=[1, 0, 0, 0])]

    assert asyncio.run(use()) == ["d"]
