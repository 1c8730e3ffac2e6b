"""Connections of our own on a real server: whoever asks gets its own reply, whatever happened before."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
import socket
import threading
import time

import pytest
import valkey
import valkey.asyncio

from retriever import AsyncRetriever, NotSupported, Retriever, Schema
from retriever.embedded import EmbeddedServer
from retriever.plans import Command
from tests.fakes import document
from tests.proxy import Proxy

pytestmark = [pytest.mark.live, pytest.mark.one_server("about connections to one server")]


@pytest.fixture(scope="module")
def own():
    """The URL of a server that may be configured, over TCP."""
    server = EmbeddedServer(port=0)
    try:
        started = server.start()
    except NotSupported as error:
        pytest.skip(str(error))
    yield started
    server.stop()


@pytest.fixture
def admin(own):
    with valkey.Valkey.from_url(own) as client:
        yield client


@pytest.fixture
def proxy(url):
    with Proxy(url) as proxy:
        yield proxy


class Link:
    """The way of a shell's commands; ``send`` is awaited and takes commands as tuples."""

    def __init__(self, shell):
        self.shell = shell
        self.link = shell.retriever._driver.link

    async def send(self, *commands, repeatable=True):
        result = self.link.send([Command(args, str, None, repeatable) for args in commands])
        return await result if asyncio.iscoroutine(result) else result

    async def close(self):
        await self.shell.close()

    @property
    def idle(self):
        return self.link._idle


@pytest.fixture
def connect(make, name):
    """Makes links to a URL."""
    return lambda to, **options: Link(make(Schema(name), to=to, **options))


def named(url, name):
    return f"{url}{'&' if '?' in url else '?'}client_name={name}"


def connections(raw, name):
    """The ids of the server's connections of that name."""
    return [int(each["id"]) for each in raw.client_list() if each["name"] == name]


def eventually(condition):
    """Whether it comes true within five seconds."""
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


def kill(raw, name):
    """End the connections of that name, and wait until the server has."""
    for id in connections(raw, name):
        raw.execute_command("CLIENT", "KILL", "ID", id)
    assert eventually(lambda: not connections(raw, name))


def echoes(who, count):
    """Commands whose replies tell whose they are, and these replies."""
    said = [f"{who}-{at}" for at in range(count)]
    return [("ECHO", each) for each in said], [each.encode() for each in said]


# --- whose reply it is ----------------------------------------------------------------------------


def test_threads_get_their_own_replies(url):
    """Sixteen threads that share a retriever, with batches of every size, refusals and lost connections among them."""
    failures = []
    with Proxy(url) as proxy, Retriever.connect(proxy.url, Schema("none")) as docs:
        link = docs._driver.link

        def work(who):
            for at in range(60):
                asked, expected = echoes(f"{who}-{at}", (1, 3, 40, 600)[(who + at) % 4 if at % 10 == 0 else at % 3])
                if at % 5 == 0:
                    asked[0], expected[0] = ("GET", "too", "many"), None
                try:
                    got = link.send([Command(args, str) for args in asked])
                except valkey.exceptions.ConnectionError:
                    continue  # lost twice
                if isinstance(got[0], valkey.exceptions.ResponseError):
                    got[0] = None
                if got != expected:
                    failures.append((who, at))

        threads = [threading.Thread(target=work, args=(who,)) for who in range(16)]
        for each in threads:
            each.start()
        for _ in range(5):
            time.sleep(0.02)
            proxy.cut()
        for each in threads:
            each.join()
        assert failures == []
        assert 0 < len(link._idle) <= 16
        assert len(set(map(id, link._idle))) == len(link._idle)


async def test_tasks_get_their_own_replies(url, name, raw):
    """Two hundred tasks at once, a third of them cancelled somewhere, and the next two hundred."""
    async with AsyncRetriever.connect(named(url, name), Schema("none")) as docs:
        link = docs._driver.link

        async def work(who):
            asked, expected = echoes(who, 1 + who % 70)
            await asyncio.sleep(who % 7 / 1000)
            assert await link.send([Command(args, str) for args in asked]) == expected

        for _ in range(2):
            tasks = [asyncio.create_task(work(who)) for who in range(200)]
            for at in range(0, 200, 3):
                await asyncio.sleep(0)
                tasks[at].cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in done} <= {type(None), asyncio.CancelledError}
            assert done.count(None) >= 133
        # Cancelled while it was opened, a connection may wait in the pool: nobody has sent anything on it.
        ready = len(link._idle) + sum(each.is_connected for each in link._pool._available_connections)
        assert await asyncio.to_thread(eventually, lambda: len(connections(raw, name)) == ready)
    assert await asyncio.to_thread(eventually, lambda: not connections(raw, name))


async def test_a_big_batch_that_is_cancelled(connect, url, name):
    """Wherever a pipeline of 20,000 commands is cancelled, the next command reads its own reply."""
    link = connect(named(url, name))
    if link.shell.blocking:
        return
    asked, _ = echoes("cancelled", 20_000)
    for at in range(8):
        task = asyncio.create_task(link.send(*asked))
        await asyncio.sleep(at / 200)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await link.send(("ECHO", at), ("ECHO", "b")) == [str(at).encode(), b"b"]
        assert len(link.idle) == 1


def test_a_big_batch_that_is_interrupted(url):
    """Wherever Ctrl-C meets a pipeline, the next command reads its own reply."""
    asked = [Command(args, str) for args in echoes("interrupted", 5000)[0]]

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Retriever.connect(url, Schema("none")) as docs:
            link = docs._driver.link
            link.send(asked)
            for at in range(15):
                with pytest.raises(KeyboardInterrupt):  # noqa: PT012 -- until it comes
                    signal.setitimer(signal.ITIMER_REAL, 0.003 + at / 1000)
                    while True:
                        link.send(asked)
                assert link.send([Command(("ECHO", at), str)]) == [str(at).encode()]
                assert len(link._idle) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


async def test_a_call_that_is_thrown_away(connect, proxy):
    """A coroutine that is closed in its middle, not cancelled, leaves no reply to the next."""
    link = connect(proxy.url)
    if link.shell.blocking:
        return
    await link.send(("PING",))
    proxy.flowing.clear()

    class Driven:
        def __await__(self):
            self.call = link.send(("ECHO", "thrown away")).__await__()
            yield next(self.call)

    driven = Driven()
    task = asyncio.ensure_future(driven)
    await asyncio.sleep(0.05)
    with contextlib.suppress(RuntimeError):  # the client's own goodbye needs a task
        driven.call.close()
    proxy.flowing.set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await link.send(("ECHO", "a"), ("ECHO", "b")) == [b"a", b"b"]
    await link.link._pool.disconnect()  # what was thrown away had no task to close it


# --- connections that the server closed -----------------------------------------------------------


async def test_what_must_go_once_goes_once(connect, url, name, raw):
    """An idle connection that the server has closed is not used for it; the command arrives, exactly once."""
    link = connect(named(url, name))
    for at in range(1, 6):
        kill(raw, name)
        assert await link.send(("INCR", name), repeatable=False) == [at]
        kill(raw, name)
        assert await link.send(("GET", name)) == [str(at).encode()]
    assert len(link.idle) == 1


async def test_what_must_go_once_in_a_loop_that_was_busy(connect, url, name, raw):
    """Also where the loop had no time yet to see the end of the connection."""
    link = connect(named(url, name))
    await link.send(("PING",), ("PING",))
    kill(raw, name)  # blocks, as careless code would
    assert await link.send(("INCR", name), ("INCR", name), repeatable=False) == [1, 2]


async def test_a_server_that_tires_of_idle_connections(make, schema, own, admin):
    """The server's ``timeout`` closes an idle connection; nothing of it is seen, not by a write either."""
    with Proxy(own) as proxy:
        shell = make(schema, to=proxy.url)
        await shell.create_index()
        await shell.upsert([document("a", category="x")])
        admin.config_set("timeout", 1)
        try:
            assert await asyncio.to_thread(eventually, lambda: proxy.open == 0)
        finally:
            admin.config_set("timeout", 0)
        await shell.upsert([document("b", category="x")])
        assert await shell.count({"category": "x"}) == 2
        await shell.drop_index(delete_documents=True)


async def test_many_lost_connections_at_once(connect, url, name, raw):
    """After a server has gone none of many idle connections is tried a second time."""
    link = connect(named(url, name))
    if link.shell.blocking:
        threads = [threading.Thread(target=link.link.send, args=([Command(("PING",), str)] * 2000,)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    else:
        await asyncio.gather(*(link.send(("PING",)) for _ in range(4)))
    kill(raw, name)
    assert await link.send(("PING",)) == [b"PONG"]
    assert len(link.idle) == len(connections(raw, name)) == 1


LOADING = b"-LOADING Valkey is loading the dataset in memory\r\n"


@contextlib.contextmanager
def loading(answers):
    """A server that takes connections but no commands; ``answers`` is how many it has refused."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                thread = threading.Thread(target=answer, args=(client,))
                thread.start()
                threads.append(thread)

    def answer(client):
        with client, contextlib.suppress(OSError):
            while data := client.recv(65536):
                for command in re.findall(rb"\*\d+\r\n\$\d+\r\n(\w+)", data):
                    answers.append(command)
                    client.sendall(b"+OK\r\n" if command == b"CLIENT" else LOADING)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=serve)]
        threads[0].start()
        yield f"valkey://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for each in threads:
        each.join(5)


async def test_a_server_that_is_loading(connect):
    """LOADING is the client's own error, at once; what follows it is read by nobody."""
    answers = []
    with loading(answers) as url:
        link = connect(url)
        for count in (1, 3):
            with pytest.raises(valkey.exceptions.BusyLoadingError):
                await link.send(*[("PING",)] * count)
            assert link.idle == []
        assert 2 <= answers.count(b"PING") <= 4
        await link.close()


# --- closing and forking --------------------------------------------------------------------------


async def test_closed_and_used_again(connect, url, name, raw):
    """close() leaves no connection on the server; a later call opens one, and close() closes that."""
    link = connect(named(url, name))
    for _ in range(2):
        assert await link.send(("PING",), ("PING",)) == [b"PONG"] * 2
        assert len(connections(raw, name)) == 1
        await link.close()
        await link.close()
        assert await asyncio.to_thread(eventually, lambda: not connections(raw, name))


async def test_closed_by_another_in_the_middle(connect, url, name, raw):
    """Who is waiting for a reply still gets it; its connection is closed then."""
    link = connect(named(url, name))
    waiting = ("BLPOP", f"{name}-list", 5)
    if link.shell.blocking:
        task = asyncio.create_task(asyncio.to_thread(link.link.send, [Command(waiting, str)]))
    else:
        task = asyncio.create_task(link.send(waiting))
    await asyncio.to_thread(eventually, lambda: connections(raw, name))
    await asyncio.sleep(0.02)
    await link.close()
    raw.rpush(f"{name}-list", "x")
    assert await task == [[f"{name}-list".encode(), b"x"]]
    assert await asyncio.to_thread(eventually, lambda: not connections(raw, name))


def in_a_child(work):
    """What ``work()`` returns, a short text, in a forked child, and what ``beside()`` does meanwhile here."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


def outcome(pid, read):
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


# From Python 3.12 on a fork beside threads warns; other tests may have left some.
forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@forking
@pytest.mark.parametrize("closes", [False, True])
def test_parent_and_child_have_their_own_connections(url, name, raw, closes):
    """After a fork both go on, at the same time, each with its own replies; a child that closes closes its own."""
    with Retriever.connect(named(url, name), Schema("none")) as docs:
        link = docs._driver.link

        def work(who):
            for at in range(100):
                asked, expected = echoes(f"{who}-{at}", 1 + at % 40)
                if link.send([Command(args, str) for args in asked]) != expected:
                    return "another's reply"
            return "well"

        def child():
            if closes:
                docs.close()
            done = work("child")
            docs.close()
            return done

        assert work("before") == "well"
        before = connections(raw, name)
        forked = in_a_child(child)
        assert work("parent") == "well"
        assert outcome(*forked) == "well"
        assert work("after") == "well"
        assert connections(raw, name) == before


@forking
def test_parent_and_child_have_their_own_loops(url, name, raw):
    """An AsyncRetriever that is inherited works in the child's own loop, and the parent's works on."""
    docs = AsyncRetriever.connect(named(url, name), Schema("none"))
    link = docs._driver.link

    async def work(who):
        for at in range(50):
            asked, expected = echoes(f"{who}-{at}", 1 + at % 40)
            assert await link.send([Command(args, str) for args in asked]) == expected
        return "well"

    async def child():
        done = await work("child")
        await docs.close()
        return done

    with asyncio.Runner() as runner:
        runner.run(work("before"))
        before = connections(raw, name)
        forked = in_a_child(lambda: asyncio.run(child()))
        assert runner.run(work("parent")) == "well"
        assert outcome(*forked) == "well"
        assert runner.run(work("after")) == "well"
        assert connections(raw, name) == before
        runner.run(docs.close())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_another_loop_sends_nothing(url, name, raw):
    """In another loop than its first a command is refused before it is sent, every time, until close()."""
    docs = AsyncRetriever.connect(url, Schema("none"))
    link = docs._driver.link
    for repeatable in (True, False):
        asyncio.run(link.send([Command(("SET", name, 1), str)]))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="different loop"):
                asyncio.run(link.send([Command(("INCR", name), str, None, repeatable)]))
        assert raw.get(name) == b"1"
        asyncio.run(docs.close())
    del docs, link
    gc.collect()


# --- what a URL says ------------------------------------------------------------------------------

OPTIONS = ["protocol=3", "decode_responses=True", "protocol=3&decode_responses=True", "health_check_interval=1"]


@pytest.mark.parametrize("options", OPTIONS)
async def test_replies_are_bytes_whatever_the_url_says(connect, url, name, options):
    """Protocol and decoding in the URL make no difference: texts come undecoded, refusals as errors."""
    link = connect(f"{url}{'&' if '?' in url else '?'}{options}")
    for _ in range(2):
        for connection in link.idle:
            connection.next_health_check = 0  # as if the interval were over
        got = await link.send(("HSET", name, "é", b"\xff"), ("HGETALL", name), ("GET", name), ("ECHO", "é"))
        assert got[1] in ([b"\xc3\xa9", b"\xff"], {b"\xc3\xa9": b"\xff"})
        assert isinstance(got[2], valkey.exceptions.ResponseError)
        assert got[3] == "é".encode()
        asked, expected = echoes("é", 1000)
        assert [each.decode() for each in await link.send(*asked)] == [each.decode() for each in expected]


@pytest.mark.parametrize("options", OPTIONS)
async def test_a_retriever_is_the_same_whatever_the_url_says(make, schema, url, options):
    """Writing, searching and reading give the same with each of these URLs."""
    shell = make(schema, to=f"{url}{'&' if '?' in url else '?'}{options}")
    await shell.create_index()
    written = [document(f"é{at}", "naïve", (1, at, 0, 0), category="ü", year=at) for at in range(3)]
    await shell.upsert(written)
    assert await shell.get([each.id for each in written]) == written
    assert await shell.ids({"category": "ü"}) == ["é0", "é1", "é2"]
    assert (await shell.describe_index()).documents == 3


async def test_a_health_check_in_the_middle_of_a_batch(connect, url):
    """However long a batch takes to send, no health check takes a reply that belongs to a command."""
    link = connect(f"{url}{'&' if '?' in url else '?'}health_check_interval=1")
    await link.send(("PING",))
    asked, expected = echoes("a", 1000)

    class Slow(list):
        def __getitem__(self, at):
            for connection in busy:
                connection.next_health_check = 0
            return list.__getitem__(self, at)

    busy = list(link.idle)
    result = link.link.send(Slow(Command(args, str) for args in asked))
    assert (await result if asyncio.iscoroutine(result) else result) == expected


async def test_a_database_of_ones_own(connect, own, admin):
    """The URL's number is the database, on every new connection too."""
    link = connect(f"{own}/3")
    for at in range(2):
        await link.send(("SET", f"k{at}", "x"))
        await link.close()
    assert admin.dbsize() == 0
    assert await link.send(("DBSIZE",), ("FLUSHDB",)) == [2, b"OK"]


def test_interrupted_before_the_database_is_chosen(own, monkeypatch):
    """Ctrl-C in the middle of connecting: the half-made connection, which is in database 0, is not used."""
    with Retriever.connect(f"{own}/3", Schema("none")) as docs:
        link = docs._driver.link
        with monkeypatch.context() as patched:
            patched.setattr(valkey.Connection, "on_connect", lambda self: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                link.send([Command(("PING",), str)])
        (info,) = link.send([Command(("CLIENT", "INFO"), str)])
        assert b" db=3 " in info


@pytest.mark.parametrize("options", ["", "protocol=3"])
async def test_a_user_of_ones_own(connect, own, admin, options):
    """User and password of the URL are given on every new connection; a wrong one is tried once, and is an error."""
    admin.acl_setuser("alice", enabled=True, passwords=["+p@ss/word"], commands=["+@all"], keys=["a*"])
    admin.acl_log_reset()
    try:
        address = own.removeprefix("valkey://")
        link = connect(f"redis://alice:p%40ss%2Fword@{address}?client_name=alice&{options}".rstrip("&"))
        for _ in range(2):
            assert await link.send(("ACL", "WHOAMI"), ("GET", "a"), ("ECHO", "x")) == [b"alice", None, b"x"]
            (refused,) = await link.send(("GET", "b"))
            assert isinstance(refused, valkey.exceptions.NoPermissionError)
            kill(admin, "alice")
        admin.acl_log_reset()
        wrong = connect(f"valkey://alice:wrong@{address}?{options}".rstrip("?"))
        with pytest.raises(valkey.exceptions.AuthenticationError):
            await wrong.send(("PING",))
        assert [each["reason"] for each in admin.acl_log()] == ["auth"]
        assert sum(int(each["count"]) for each in admin.acl_log()) == 1
    finally:
        admin.acl_deluser("alice")


async def test_no_more_connections_than_the_url_allows(connect, url, name, raw):
    """Beyond ``max_connections`` it is the client's own error; whoever got one is not disturbed."""
    link = connect(f"{named(url, name)}&max_connections=2")
    waiting = [("BLPOP", f"{name}-{at}", 5) for at in range(2)]
    if link.shell.blocking:
        tasks = [asyncio.create_task(asyncio.to_thread(link.link.send, [Command(each, str)])) for each in waiting]
    else:
        tasks = [asyncio.create_task(link.send(each)) for each in waiting]
    assert await asyncio.to_thread(eventually, lambda: len(connections(raw, name)) == 2)
    for _ in range(2):
        with pytest.raises(valkey.exceptions.ConnectionError, match="Too many connections"):
            await link.send(("PING",))
    for at in range(2):
        raw.rpush(f"{name}-{at}", "x")
    assert [each[0][1] for each in await asyncio.gather(*tasks)] == [b"x"] * 2
    for _ in range(5):  # nor do losses use them up
        kill(raw, name)
        assert await link.send(("PING",)) == [b"PONG"]


# --- much at once ---------------------------------------------------------------------------------


async def test_50_mb_of_commands(connect, url, name):
    """20,000 commands in one batch arrive, without the two sides waiting for each other."""
    link = connect(url)
    text = "x" * 2500
    assert await link.send(*[("SET", f"{name}-{at}", text) for at in range(20_000)]) == [b"OK"] * 20_000


async def test_50_mb_of_replies(connect, own, admin):
    """5,000 replies of 10 kB come, though the server may hold no more than 8 MB for a client."""
    admin.config_set("client-output-buffer-limit", "normal 8000000 0 0")
    try:
        link = connect(own)
        await link.send(("HSET", "big", "a", "x" * 5000, "b", "y" * 5000))
        got = await link.send(*[("HMGET", "big", "a", "b")] * 5000, repeatable=False)
        assert len(got) == 5000
        assert all(each == [b"x" * 5000, b"y" * 5000] for each in got)
    finally:
        admin.config_set("client-output-buffer-limit", "normal 0 0 0")
        admin.delete("big")


async def test_much_both_ways(connect, url):
    """Large commands with large replies: 100 MB each way."""
    link = connect(url)
    text = "x" * 100_000
    got = await link.send(*[("ECHO", text)] * 1000)
    assert len(got) == 1000
    assert set(got) == {text.encode()}
