"""Connections of our own: order, faults, second tries, closing; without a server, on both links."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import types
import weakref
from collections import deque

import numpy as np
import pytest
from valkey.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    InvalidResponse,
    ResponseError,
    TimeoutError,
)

from retriever import AsyncRetriever, InvalidInput, Retriever, Schema, Vector
from retriever.links import AsyncOwnLink, OwnLink
from retriever.plans import Ahead, Command


class Reply(list):
    """A reply that can be watched."""


class Pool:
    """A server that echoes, and connections to it.

    faults: (event, place) -> exception, raised once when that event of "connect", "send" and "read"
    happens for the place-th time. seen: every event, with the connection's number.
    during: called once in the middle of the next read.
    """

    def __init__(self, kind):
        self.kind = kind
        self.made, self.free = [], []
        self.faults, self.counts, self.seen = {}, {}, []
        self.during = None
        self.under_way = 0

    def event(self, name, connection):
        self.seen.append((name, connection.number))
        self.counts[name] = self.counts.get(name, 0) + 1
        fault = self.faults.pop((name, self.counts[name]), None)
        if fault is not None:
            raise fault

    def fail(self, name, *errors, after=0):
        """The next events of that name raise these, one after the other."""
        for at, error in enumerate(errors, start=1):
            self.faults[name, self.counts.get(name, 0) + after + at] = error

    def take(self):
        if not self.free:
            self.made.append(self.kind(self, len(self.made)))
        connection = self.free.pop() if self.free else self.made[-1]
        try:
            connection.open()
        except BaseException:
            self.free.append(connection)
            raise
        return connection

    def give(self, connection):
        assert connection not in self.free
        assert not connection.is_connected
        self.free.append(connection)

    def end_free(self, inuse_connections):
        assert inuse_connections is False  # a busy one is another thread's, who reads a reply from it
        for each in self.free:
            each.end()

    def names(self):
        return [name for name, _ in self.seen]


class Connection:
    """What a client's connection does, without the socket; replies wait until they are read or it is closed."""

    def __init__(self, pool, number):
        self.pool, self.number = pool, number
        self.is_connected = False
        self.waiting = deque()
        self.pieces = []
        self.news = False

    def open(self):
        if not self.is_connected:
            self.pool.event("connect", self)
            self.is_connected, self.news = True, False

    def pack_command(self, *args):
        return [b" ".join(str(arg).encode() for arg in args), b"\n"]

    def send(self, pieces, check_health):
        self.open()
        (piece,) = pieces
        commands = piece.decode().splitlines()
        self.pieces.append((len(commands), check_health))
        self.pool.event("send", self)
        self.waiting.extend(commands)
        self.pool.under_way = max(self.pool.under_way, len(self.waiting))

    def read(self, disable_decoding):
        assert disable_decoding is True
        assert self.is_connected
        during, self.pool.during = self.pool.during, None
        if during:
            during()
        self.pool.event("read", self)
        command = self.waiting.popleft()
        if command.startswith("refuse"):
            raise ResponseError(command)
        return Reply([command])

    def look(self):
        self.pool.seen.append(("look", self.number))
        if isinstance(self.news, BaseException):
            raise self.news
        return self.news

    def end(self):
        self.is_connected = False
        self.waiting.clear()


class Blocking(Connection):
    def send_packed_command(self, pieces, check_health):
        self.send(pieces, check_health)

    def read_response(self, disable_decoding):
        return self.read(disable_decoding)

    def can_read(self):
        return self.look()

    def disconnect(self):
        self.end()


class BlockingPool(Pool):
    def get_connection(self, name):
        return self.take()

    def release(self, connection):
        self.give(connection)

    def disconnect(self, inuse_connections):
        self.end_free(inuse_connections)


class Awaited(Connection):
    async def send_packed_command(self, pieces, check_health):
        self.send(pieces, check_health)

    async def read_response(self, disable_decoding):
        return self.read(disable_decoding)

    looked = False

    async def can_read_destructive(self):
        # A loop that was kept busy learns of news while the first look waits.
        self.looked = not self.looked
        return False if self.looked else self.look()

    async def disconnect(self, nowait=False):
        assert nowait is True
        self.end()


class AwaitedPool(Pool):
    async def get_connection(self, name):
        return self.take()

    async def release(self, connection):
        self.give(connection)

    async def disconnect(self, inuse_connections):
        self.end_free(inuse_connections)


class Link:
    """Either link; its methods are awaited."""

    def __init__(self, link):
        self.link = link
        self.pool = link._pool

    async def send(self, *words, repeatable=True):
        return await self.commands(Command((word,), str, None, repeatable) for word in words)

    async def commands(self, commands, ahead=None):
        result = self.link.send(list(commands), ahead)
        return await result if asyncio.iscoroutine(result) else result

    async def close(self):
        result = self.link.close()
        if asyncio.iscoroutine(result):
            await result

    def close_now(self):
        """Close from within a fake's call; nothing waits there."""
        result = self.link.close()
        if asyncio.iscoroutine(result):
            with pytest.raises(StopIteration):
                result.send(None)

    @property
    def open(self):
        """The numbers of the connections that are open."""
        return [each.number for each in self.pool.made if each.is_connected]


@pytest.fixture(params=[(OwnLink, BlockingPool, Blocking), (AsyncOwnLink, AwaitedPool, Awaited)], ids=["sync", "async"])
def link(request):
    kind, pool, connection = request.param
    return Link(kind(types.SimpleNamespace(connection_pool=pool(connection))))


def words(count, kind="word"):
    return [f"{kind}{at}" for at in range(count)]


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64, 65, 500, 512, 513, 2000])
async def test_replies_come_in_order(link, count):
    """Each command's own reply at its place; at most 32 commands travel in a piece, and 512 are under way."""
    assert await link.send(*words(count)) == [[word] for word in words(count)]
    (connection,) = link.pool.made
    sizes = [size for size, _ in connection.pieces]
    assert sum(sizes) == count
    assert sizes[:-1] == [32] * (len(sizes) - 1)
    assert sizes[-1] <= 32
    assert link.pool.under_way == min(count, 512)
    assert not connection.waiting


async def test_a_batch_of_500_is_sent_without_a_stop(link):
    """Up to 512 commands no reply is waited for before the last piece is sent."""
    await link.send(*words(500))
    assert link.pool.names() == ["connect"] + ["send"] * 16 + ["read"] * 500


async def test_nothing_to_send_is_nothing(link):
    """No commands, no replies, nothing on the way."""
    assert await link.send() == []
    assert "send" not in link.pool.names()


async def test_refusals_stand_in_their_places(link):
    """A refused command has its error where its reply would be, the rest is read, and the connection stays."""
    for sent in (["refuse"], ["refuse", "b"], ["a", "refuse", "b", "refuse"], [*words(600), "refuse", *words(600)]):
        got = await link.send(*sent)
        for word, reply in zip(sent, got, strict=True):
            if word == "refuse":
                assert type(reply) is ResponseError
            else:
                assert reply == [word]
    assert link.pool.names().count("connect") == 1


async def test_replies_are_not_kept(link):
    """When the caller lets go of the replies they are gone, without the garbage collector, also beside a refusal."""
    gc.disable()
    try:
        replies = await link.send("a", "refuse", "b")
        watched = [weakref.ref(replies[at]) for at in (0, 2)]
        assert replies[1].__traceback__ is None
        del replies
        assert [each() for each in watched] == [None, None]
    finally:
        gc.enable()


async def test_one_connection_serves_one_after_the_other(link):
    """An idle connection is used again without asking the pool or the socket."""
    for word in words(5):
        await link.send(word)
    assert link.pool.names() == ["connect"] + ["send", "read"] * 5


async def test_a_health_check_is_made_before_the_first_piece_only(link):
    """Its PING would otherwise read a reply that belongs to a command."""
    await link.send(*MANY)
    assert [checked for _, checked in link.pool.made[0].pieces] == [True] + [False] * 16


async def test_numbers_are_packed_as_text(link, monkeypatch):
    """libvalkey packs a number by calling back into Python, and ends the process if Ctrl-C comes in that moment."""
    packed = []
    real = Connection.pack_command

    def pack(self, *args):
        packed.extend(args)
        return real(self, *args)

    monkeypatch.setattr(Connection, "pack_command", pack)
    await link.commands([Command(("A", 5, 0.1, b"x", np.float64(2.5), True), str)])
    assert packed == ["A", "5", "0.1", b"x", "2.5", "True"]


# --- what goes ahead ------------------------------------------------------------------------------


class Watched:
    """What an Ahead was told, among the events of the pool."""

    def __init__(self, link, first, error=None):
        self.read_replies = []
        self.events = link.pool.seen
        self.ahead = Ahead(first, lambda: self.events.append(("prepare", 0)), self.read)
        self.error = error

    def read(self, replies):
        self.events.append(("show", 0))
        self.read_replies.append(replies)
        if self.error is not None:
            raise self.error


async def ask_ahead(link, sent, watched):
    return await link.commands([Command((word,), str) for word in sent], watched.ahead)


@pytest.mark.parametrize(("first", "count"), [(1, 2), (2, 5), (1, 40), (33, 70), (3, 600)])
async def test_the_first_are_sent_and_read_ahead(link, first, count):
    """The first commands travel in pieces of their own; their replies are shown when the others are on their way."""
    watched = Watched(link, first)
    assert await ask_ahead(link, words(count), watched) == [[word] for word in words(count)]
    assert watched.read_replies == [[[word] for word in words(first)]]
    sizes = [size for size, _ in link.pool.made[0].pieces]
    assert sum(sizes[: -(-first // 32)]) == first
    names = link.pool.names()
    assert names.index("prepare") == 1 + -(-first // 32)
    assert names.index("show") > max(at for at, name in enumerate(names) if name == "send")
    if count < 512:
        assert names[names.index("show") - first : names.index("show")] == ["read"] * first


async def test_refusals_are_shown_too(link):
    """A refused command of the first ones is shown as the error that stands in its place."""
    watched = Watched(link, 2)
    replies = await ask_ahead(link, ["a", "refuse", "b"], watched)
    assert replies[:2] == watched.read_replies[0]
    assert type(replies[1]) is ResponseError


async def test_a_second_try_reads_ahead_again(link):
    """What was shown before the connection broke is shown anew, from the second try."""
    watched = Watched(link, 1)
    link.pool.fail("read", ConnectionError("gone"), after=1)
    assert await ask_ahead(link, ["a", "b"], watched) == [["a"], ["b"]]
    assert watched.read_replies == [[["a"]], [["a"]]]


@pytest.mark.parametrize("error", [ValueError("ours"), KeyboardInterrupt("stop")], ids=repr)
async def test_what_reading_ahead_raises_drops_the_connection(link, error):
    """The other replies are nobody's any more; the next command reads its own."""
    with pytest.raises(type(error)):
        await ask_ahead(link, ["a", "b"], Watched(link, 1, error))
    assert link.open == []
    assert await link.send("c") == [["c"]]


# --- second tries ---------------------------------------------------------------------------------

LOST = [ConnectionError("gone"), ConnectionResetError("gone")]
NOT_LOST = [
    TimeoutError("slow"),
    BusyLoadingError("loading"),
    AuthenticationError("wrong password"),
    InvalidResponse("protocol"),
    ValueError("ours"),
]
# A batch of 17 pieces, so that some replies are read before the last is sent; and where it breaks: the event, and
# how many of its kind went well before.
MANY = words(544)
PLACES = [("send", 0), ("send", 1), ("send", 16), ("read", 0), ("read", 1), ("read", 543)]


@pytest.fixture
async def used(link):
    """A link with three idle connections."""
    await link.send("a")
    idle = [link.pool.take(), link.pool.take()]
    link.link._idle[:0] = idle
    assert link.open == [0, 1, 2]
    return link


@pytest.mark.parametrize("error", LOST, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(("event", "after"), PLACES)
async def test_a_lost_connection_is_tried_once_more(used, event, after, error):
    """Repeatable commands are sent again whole, once, on a new connection; all that were idle are dropped."""
    used.pool.fail(event, error, after=after)
    before = used.pool.names().count("connect")
    assert await used.send(*MANY) == [[word] for word in MANY]
    assert used.pool.names().count("connect") == before + 1
    assert len(used.open) == 1
    assert await used.send("b") == [["b"]]


@pytest.mark.parametrize("error", LOST, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(("event", "after"), PLACES)
async def test_what_is_not_repeatable_is_sent_once(used, event, after, error):
    """The error is raised, nothing is sent again, and the broken connection is closed."""
    used.pool.fail(event, error, after=after)
    with pytest.raises(type(error)):
        await used.send(*MANY, repeatable=False)
    assert len(used.open) == 2
    assert used.pool.names().count("connect") == 3
    assert await used.send("b") == [["b"]]


async def test_one_command_that_is_not_repeatable_decides(used):
    """A batch is sent again only if every command of it may be."""
    used.pool.fail("read", ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await used.commands(Command((word,), str, None, word != "b") for word in "abc")
    assert used.pool.names().count("send") == 2


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("error", NOT_LOST, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(("event", "after"), PLACES)
async def test_other_errors_are_not_tried_again(used, event, after, error, repeatable):
    """A time-out, LOADING and a wrong password come through at once; what is still to come is nobody's reply."""
    used.pool.fail(event, error, after=after)
    with pytest.raises(type(error)):
        await used.send(*MANY, repeatable=repeatable)
    assert used.pool.names().count("connect") == 3
    assert len(used.open) == 2
    assert await used.send("b") == [["b"]]


async def test_it_is_tried_twice_not_thrice(link):
    """A server that stays away is an error after the second try; after that the way is open again."""
    link.pool.fail("read", ConnectionError("one"), ConnectionError("two"))
    with pytest.raises(ConnectionError, match="two"):
        await link.send("a")
    assert link.pool.names() == ["connect", "send", "read"] * 2
    assert link.open == []
    assert await link.send("b") == [["b"]]


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_server_that_cannot_be_reached(link, repeatable):
    """Not reached: tried once more if it may be; the pool has its connection back."""
    link.pool.fail("connect", *[ConnectionError("refused")] * 2)
    with pytest.raises(ConnectionError):
        await link.send("a", repeatable=repeatable)
    assert link.pool.names() == ["connect"] * (2 if repeatable else 1)
    assert len(link.pool.free) == len(link.pool.made) == 1


# --- whatever else happens in the middle ----------------------------------------------------------


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit, MemoryError])
@pytest.mark.parametrize(("event", "after"), PLACES)
async def test_whatever_stops_a_batch_drops_its_connection(link, event, after, kind, repeatable):
    """It comes through as it is, is not tried again, and the next command reads its own reply."""
    link.pool.fail(event, kind("stop"), after=after)
    with pytest.raises(kind):
        await link.send(*MANY, repeatable=repeatable)
    assert link.open == []
    assert link.pool.free == link.pool.made
    assert await link.send("b", "c", repeatable=repeatable) == [["b"], ["c"]]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
async def test_stopped_while_looking(link, kind):
    """Also an idle connection that is being looked at is closed and given back."""
    await link.send("a")
    link.pool.made[0].news = kind("stop")
    with pytest.raises(kind):
        await link.send("b", repeatable=False)
    assert link.open == []
    assert await link.send("c", repeatable=False) == [["c"]]


async def test_interrupted_while_connecting(link):
    """A blocking pool takes a connection back that is open but not greeted (AUTH, SELECT); it is not used."""
    if not isinstance(link.link, OwnLink):
        return  # the awaited client closes it itself
    connection = Blocking(link.pool, 0)
    link.pool.made.append(connection)
    link.pool.free.append(connection)

    def half():
        del connection.open
        connection.is_connected = True
        raise KeyboardInterrupt

    connection.open = half
    with pytest.raises(KeyboardInterrupt):
        await link.send("a")
    assert link.open == []
    assert await link.send("b") == [["b"]]
    assert link.pool.names() == ["connect", "send", "read"]


async def test_a_cancellation_is_not_lost(link):
    """Where the client swallows a cancellation while it sends, as in Python 3.11, the call is still cancelled."""
    if isinstance(link.link, OwnLink):
        return
    await link.send("a")
    (connection,) = link.pool.made
    send = connection.send_packed_command

    async def swallow(pieces, check_health):
        await send(pieces, check_health)
        if len(connection.pieces) == 3:
            asyncio.current_task().cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    connection.send_packed_command = swallow
    task = asyncio.create_task(link.send(*MANY))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(connection.pieces) == 3
    assert link.open == []


async def test_a_task_that_was_cancelled_may_clean_up(link):
    """A task that is ending after a cancellation can still send."""

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            done.append(await link.send(*MANY))

    done = []
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [[[word] for word in MANY]]


# --- idle connections -----------------------------------------------------------------------------


@pytest.mark.parametrize("news", [True, ConnectionError("closed"), OSError("reset"), RuntimeError("odd")], ids=repr)
async def test_a_closed_connection_is_not_used_for_what_may_go_once(link, news):
    """An idle connection with news, its end as a rule, is opened anew before what must not be sent twice."""
    await link.send("a")
    link.pool.made[0].news = news
    assert await link.send("b", "c", repeatable=False) == [["b"], ["c"]]
    assert link.pool.names() == ["connect", "send", "read", "look", "connect", "send", "read", "read"]


async def test_repeatable_commands_do_not_look(link):
    """They may be sent again, so they need not ask the socket first."""
    await link.send("a")
    await link.send("b", repeatable=False)
    await link.send("c")
    assert link.pool.names() == ["connect", "send", "read", "look", "send", "read", "send", "read"]


async def test_close_closes_and_may_be_followed(used):
    """close() closes every idle connection, twice is no error, and sending again opens a new one."""
    await used.close()
    await used.close()
    assert used.open == []
    assert used.pool.free
    assert await used.send("b") == [["b"]]
    assert len(used.open) == 1


async def test_close_before_use(link):
    """A link that was never used has nothing to close."""
    await link.close()
    assert link.pool.seen == []


async def test_a_busy_connection_is_closed_when_it_is_done(used):
    """close() during a batch takes nothing from it: its replies come, then its connection is closed."""
    used.pool.during = used.close_now
    assert await used.send(*MANY) == [[word] for word in MANY]
    assert used.open == []
    assert await used.send("b") == [["b"]]
    assert len(used.open) == 1


@pytest.mark.parametrize("first", ["send", "close"])
async def test_a_forked_child_leaves_its_parents_connections_alone(used, first, monkeypatch):
    """In another process the idle connections are neither used nor closed, whatever comes first."""
    monkeypatch.setattr(os, "getpid", lambda: -1)
    before = len(used.pool.seen)
    if first == "close":
        await used.close()
    assert await used.send("b") == [["b"]]
    assert used.pool.seen[before:] == [("connect", 3), ("send", 3), ("read", 3)]
    await used.close()
    assert used.open == [0, 1, 2]


# --- event loops ----------------------------------------------------------------------------------


def async_link():
    return Link(AsyncOwnLink(types.SimpleNamespace(connection_pool=AwaitedPool(Awaited))))


def test_another_loop_is_refused_until_closed():
    """A link belongs to the loop that first sent; in another nothing is sent. close() ends that."""
    link = async_link()
    asyncio.run(link.send("a"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="different loop"):
            asyncio.run(link.send("b", repeatable=False))
    assert link.pool.names() == ["connect", "send", "read"]
    asyncio.run(link.close())
    assert link.open == []
    assert asyncio.run(link.send("c")) == [["c"]]


@pytest.mark.parametrize("ended", [True, False])
def test_a_loop_that_is_gone_cannot_say_goodbye(ended):
    """close() passes over what the first loop cannot do any more; only what is closed goes back to the pool."""
    link = async_link()
    asyncio.run(link.send("a"))
    (connection,) = link.pool.made

    async def disconnect(nowait):
        if ended:
            connection.end()
        raise RuntimeError("Event loop is closed")

    connection.disconnect = disconnect
    asyncio.run(link.close())
    assert link.pool.free == ([connection] if ended else [])
    assert asyncio.run(link.send("b")) == [["b"]]


async def test_a_refusal_while_connecting_stands_for_every_command(link):
    """What a server refuses before the first command, AUTH or SELECT, is the answer to all; later it is asked anew."""
    link.pool.fail("connect", ResponseError("no SELECT"))
    replies = await link.send("a", "b", repeatable=False)
    assert [str(reply) for reply in replies] == ["no SELECT"] * 2
    assert await link.send("c") == [["c"]]


# --- URLs -----------------------------------------------------------------------------------------

SHELLS = [Retriever, AsyncRetriever]
SCHEMA = Schema("docs", vector=Vector(dims=2))


def options(shell, url):
    """The class of connection and the options that a client of our own has; making one does no I/O."""
    pool = shell.connect(url, SCHEMA)._driver.link.client.connection_pool
    return pool.connection_class.__name__, pool.connection_kwargs


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("valkey://h", {"host": "h"}),
        ("VALKEY://h:1/2", {"host": "h", "port": 1, "db": 2}),
        ("valkey://h\n", {"host": "h"}),  # as it is read from a file
        ("valkey://", {}),
        ("valkey:///3", {"db": 3}),
        ("valkey://[::1]:6380/1", {"host": "::1", "port": 6380, "db": 1}),
        ("valkey://[2001:db8::1]", {"host": "2001:db8::1"}),
        ("redis://u:p%40%3A%2F%3F%23%25@h", {"host": "h", "username": "u", "password": "p@:/?#%"}),
        ("valkey://u:p@x@h", {"host": "h", "username": "u", "password": "p@x"}),
        ("valkey://:p@h", {"host": "h", "password": "p"}),
        ("valkey://h?username=u&password=p%2525", {"host": "h", "username": "u", "password": "p%"}),
        ("unix:///s", {"path": "/s"}),
        ("unix://u:p%2F@/s?db=1", {"path": "/s", "username": "u", "password": "p/", "db": 1}),
        ("unix:///s?password=p", {"path": "/s", "password": "p"}),
        ("unix:///a%20b", {"path": "/a b"}),
    ],
)
def test_what_a_url_means(shell, url, expected):
    """Host, port, database, user and password are those of the URL, percent-decoded."""
    _, found = options(shell, url)
    assert {
        name: found[name] for name in ("host", "port", "db", "username", "password", "path") if name in found
    } == expected


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("valky://h", "it starts with one of valkey://"),
        ("valkey:/h", "it starts with one of valkey://"),
        ("valkey:h", "it starts with one of valkey://"),
        ("h:6379", "it starts with one of valkey://"),
        ("h", "it starts with one of valkey://"),
        (" ", "it starts with one of valkey://"),
        (" valkey://h", "it starts with one of valkey://"),
        ("unix:/s", "it starts with one of valkey://"),
        ("valkey://h ", "host or port cannot be read"),
        ("valkey://a b", "host or port cannot be read"),
        ("valkey://h:99999", "host or port cannot be read"),
        ("valkey://h:-1", "host or port cannot be read"),
        ("valkey://h:x", "host or port cannot be read"),
        ("valkey://::1:6379", "host or port cannot be read"),
        ("valkey://[::1", "host or port cannot be read"),
        ("valkey://u:1#x@h", "percent-encode special characters of a password"),
        ("valkey://u:1?x@h", "percent-encode special characters of a password"),
        ("valkey://u:p/x@h", "percent-encode special characters of a password"),
        ("valkey://h?typo", "percent-encode special characters of a password"),
        ("valkey://u:1/x@h", "the number of a database"),
        ("valkey://h/x", "the number of a database"),
        ("valkey://h/-1", "the number of a database"),
        ("valkey://h/1/2", "the number of a database"),
        ("valkey://h?db=x", "an option cannot be read"),
        ("valkey://h?typo=1", "an option cannot be read"),
        ("valkey://h?ssl_ca_certs=x", "an option cannot be read"),  # a plain connection has no such option
        ("valkeys://h?ssl_cert_reqs=x", "an option cannot be read"),
        ("valkeys://h?ssl_min_version=TLSv1_3", "an option cannot be read"),
        ("valkeys://h?ssl_cert_reqs=none&ssl_check_hostname=true", "an option cannot be read"),
        ("unix://s", "unix:///path"),
        ("unix://s/t", "unix:///path"),
        ("unix:///", "unix:///path"),
        ("unix://", "unix:///path"),
        ("", "no server"),
    ],
)
def test_what_is_no_url(shell, url, said):
    """A URL with a slip of the pen is refused before any I/O, and never read as some other server or database."""
    with pytest.raises(InvalidInput) as raised:
        shell.connect(url, SCHEMA)
    assert said in str(raised.value)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("scheme", ["valkeys", "rediss"])
@pytest.mark.parametrize(
    ("asked", "checked"),
    [
        ("", True),
        ("?ssl_ca_certs=x", True),
        ("?ssl_cert_reqs=required", True),
        ("?ssl_check_hostname=true", True),
        ("?ssl_check_hostname=false", False),
        ("?ssl_cert_reqs=none", False),
    ],
)
def test_the_name_of_a_tls_server_is_checked(shell, scheme, asked, checked):
    """Unless the URL says not to, the certificate must be made out to the host; valkey-py alone takes any."""
    kind, found = options(shell, f"{scheme}://h{asked}")
    assert kind == "SSLConnection"
    assert found.get("ssl_check_hostname", False) is checked
