"""How commands travel: through a client of the user's, straight over connections of our own, or to a cluster's nodes.

A borrowed client is asked as anybody would ask it, so its own retries, hooks and limits hold. Where
``connect`` made the client, nobody else uses its connections, and the way is shorter: a connection is kept at
hand, a batch is packed in pieces of many commands, and replies are read as they come. A client's ``execute_command``
polls the socket and takes two locks for each command (measured: 30 of its 100 us), and its pipeline cuts 500
documents into 125 pieces.

In a cluster a command that names a key goes where its client sends it. One that names none goes to a primary of
our choice (valkey.asyncio cannot place FT.SEARCH by itself). It is tried only once there, so one that may be
repeated is sent once more, to another primary.

What an ``Ahead`` says is done on connections of our own alone; every other way, commands travel at once.

Every way, replies come undecoded, and a server's refusal stands in its place as an exception.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, pairwise
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fields.errors import InvalidInput
from retriever.embedders import is_async
from retriever.errors import is_lost_connection, is_refusal
from retriever.plans import Ahead, Arg, Command, Node
from retriever.queries import check_seconds

ANYWHERE: tuple[Node | None, ...] = (None,)  # the primaries of a server that is no cluster

# Commands a piece: while the server works on one, the next is packed. Arbitrary between 8 and 64.
_PIECE = 32
# Commands whose replies are not yet read, at most: what the server must hold for us, however large the batch.
_UNDER_WAY = 512  # arbitrary; a batch of 500 is sent without a stop
# Commands that an async cluster client has under way to one node, each on a connection of its own.
_AT_ONCE = 16  # arbitrary


def check_client(client: Any, takers: tuple[str, str], *, blocking: bool) -> None:
    """TypeError unless it is a client of the wanted kind; takers: the classes that take a blocking, an async one."""
    send = getattr(client, "execute_command", None)
    # A class has the methods and no connection; a pipeline keeps commands and answers nothing.
    usable = callable(send) and hasattr(client, "pipeline") and not hasattr(client, "command_stack")
    if isinstance(client, type) or not usable:
        got = f"the class {client.__name__}" if isinstance(client, type) else type(client).__name__
        raise TypeError(f"a client of valkey-py or redis-py expected, not {got}")
    if is_async(send) is blocking:
        ours, other = takers if blocking else takers[::-1]
        kind = "an async" if blocking else "a blocking"
        raise TypeError(f"{ours} was given {kind} client ({type(client).__module__}); {other} takes it")


def is_cluster(client: Any) -> bool:
    """Whether a client speaks to a cluster."""
    return hasattr(client, "get_primaries")


class ClientLink:
    """A borrowed blocking client; whatever it raises is the caller's."""

    def __init__(self, client: Any) -> None:
        self.client = client
        # redis-py's cache refuses a command whose keys are not named, and would keep its reply undecoded for all
        # who ask the same. A pipeline goes past it.
        self._caches = getattr(getattr(client, "connection_pool", None), "cache", None) is not None

    def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """A raw reply or the server's refusal for each command, in one round trip."""
        if len(commands) == 1 and not self._caches:
            try:
                return [self.client.execute_command(*commands[0].args, NEVER_DECODE=True)]
            except Exception as error:
                if is_refusal(error):
                    return [error]
                raise
        with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command.args, NEVER_DECODE=True)
            # raise_on_error would put whole commands, vectors and texts, into the message.
            replies: list[Any] = pipeline.execute(raise_on_error=False)
            return replies

    def primaries(self) -> Sequence[Node | None]:
        """Where keys can be walked: here."""
        return ANYWHERE

    def close(self) -> None:
        """A borrowed client stays open."""


class OwnLink:
    """A blocking client of our own; a broken connection is tried once more for what may be sent twice."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._pool = client.connection_pool
        self._idle: list[Any] = []
        self._process = os.getpid()
        self._closings = 0

    def send(self, commands: Sequence[Command[Any]], ahead: Ahead | None = None) -> list[Any]:
        """A raw reply or the server's refusal for each command, in one round trip."""
        repeatable = all(command.repeatable for command in commands)
        try:
            return self._send(commands, ahead, repeatable)
        except Exception as error:
            if is_refusal(error):  # of what the client says first: AUTH, HELLO, SELECT
                return [error] * len(commands)
            if not (repeatable and is_lost_connection(error)):
                raise
            self._drop_idle()  # the server they led to is gone
            return self._send(commands, ahead, repeatable)

    def _send(self, commands: Sequence[Command[Any]], ahead: Ahead | None, repeatable: bool) -> list[Any]:
        replies: list[Any] = []
        closings, connection = self._closings, self._connection()
        try:
            if not repeatable and _has_news(connection):
                connection.disconnect()  # sending opens it anew
            for start, end in _pieces(len(commands), ahead):
                piece = _packed(connection, commands[start:end])
                _read(connection, replies, end - _UNDER_WAY)
                # A health check reads a reply of its own, so there is one before the first piece only.
                connection.send_packed_command([piece], check_health=start == 0)
                if ahead and end == ahead.first:
                    ahead.prepare()
            if ahead:
                _read(connection, replies, ahead.first)
                ahead.read(replies[: ahead.first])
            _read(connection, replies, len(commands))
        except BaseException:
            # Replies may still be on their way; the next command must not read them.
            self._drop(connection)
            raise
        self._idle.append(connection)
        if closings != self._closings:  # closed meanwhile
            self._drop_idle()
        return replies

    def _connection(self) -> Any:
        self._forget_parents()
        try:  # no suppress(): it costs three calls, on the way of every query
            return self._idle.pop()
        except IndexError:  # also where another thread took the last one
            pass
        try:
            return self._pool.get_connection("_")
        except BaseException:
            # The pool takes back what was interrupted between AUTH and SELECT, and would give it as it is.
            self._pool.disconnect(inuse_connections=False)
            raise

    def _forget_parents(self) -> None:
        if self._process != os.getpid():  # a forked child must not talk on its parent's sockets
            self._idle, self._process = [], os.getpid()

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._drop(self._idle.pop())

    def _drop(self, connection: Any) -> None:
        connection.disconnect()
        self._pool.release(connection)

    def primaries(self) -> Sequence[Node | None]:
        """Where keys can be walked: here."""
        return ANYWHERE

    def close(self) -> None:
        """Close idle connections now and busy ones when they are done; sending again opens new ones."""
        self._forget_parents()
        self._closings += 1
        self._drop_idle()
        self._pool.disconnect(inuse_connections=False)


class AsyncClientLink:
    """A borrowed async client; whatever it raises is the caller's."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """A raw reply or the server's refusal for each command, in one round trip."""
        if len(commands) == 1:
            try:
                return [await self.client.execute_command(*commands[0].args, NEVER_DECODE=True)]
            except Exception as error:
                if is_refusal(error):
                    return [error]
                raise
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command.args, NEVER_DECODE=True)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
            return replies

    async def primaries(self) -> Sequence[Node | None]:
        """Where keys can be walked: here."""
        return ANYWHERE

    async def close(self) -> None:
        """A borrowed client stays open."""


class AsyncOwnLink:
    """An async client of our own; a broken connection is tried once more for what may be sent twice.

    Belongs to the event loop that first sends, until it is closed.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._pool = client.connection_pool
        self._idle: list[Any] = []
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closings = 0

    async def send(self, commands: Sequence[Command[Any]], ahead: Ahead | None = None) -> list[Any]:
        """A raw reply or the server's refusal for each command, in one round trip."""
        repeatable = all(command.repeatable for command in commands)
        try:
            return await self._send(commands, ahead, repeatable)
        except Exception as error:
            if is_refusal(error):
                return [error] * len(commands)
            if not (repeatable and is_lost_connection(error)):
                raise
            await self._drop_idle()
            return await self._send(commands, ahead, repeatable)

    async def _send(self, commands: Sequence[Command[Any]], ahead: Ahead | None, repeatable: bool) -> list[Any]:
        replies: list[Any] = []
        cancelled = _cancellations()
        closings, connection = self._closings, await self._connection()
        try:
            if not repeatable and await _has_news_async(connection):
                await connection.disconnect(nowait=True)
            for start, end in _pieces(len(commands), ahead):
                piece = _packed(connection, commands[start:end])
                await _read_async(connection, replies, end - _UNDER_WAY)
                await connection.send_packed_command([piece], check_health=start == 0)
                # Within is a wait_for, which in Python 3.11 may swallow a cancellation.
                if _cancellations() > cancelled:
                    raise asyncio.CancelledError  # noqa: TRY301 -- as if raised by the line before
                if ahead and end == ahead.first:
                    ahead.prepare()
            if ahead:
                await _read_async(connection, replies, ahead.first)
                ahead.read(replies[: ahead.first])
            await _read_async(connection, replies, len(commands))
        except BaseException:
            await self._drop(connection)
            raise
        self._idle.append(connection)
        if closings != self._closings:
            await self._drop_idle()
        return replies

    async def _connection(self) -> Any:
        self._forget_parents()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:  # a socket of another loop would send, and never hear the reply
            raise RuntimeError("connections are attached to a different loop")
        return self._idle.pop() if self._idle else await self._pool.get_connection("_")

    def _forget_parents(self) -> None:
        if self._process != os.getpid():
            self._idle, self._process, self._loop = [], os.getpid(), None

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._drop(self._idle.pop())

    async def _drop(self, connection: Any) -> None:
        # A closed loop closes no sockets: the garbage collector does.
        with suppress(RuntimeError):
            # nowait: a cancelled task has no time to wait for a polite goodbye.
            await connection.disconnect(nowait=True)
        if not connection.is_connected:
            await self._pool.release(connection)

    async def primaries(self) -> Sequence[Node | None]:
        """Where keys can be walked: here."""
        return ANYWHERE

    async def close(self) -> None:
        """Close idle connections now and busy ones when they are done; sending again opens new ones."""
        self._forget_parents()
        self._closings += 1
        self._loop = None
        await self._drop_idle()
        await self._pool.disconnect(inuse_connections=False)


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _pieces(count: int, ahead: Ahead | None) -> list[tuple[int, int]]:
    """Where each piece of so many commands begins and ends; none holds both what goes ahead and what does not."""
    first = 0 if ahead is None else ahead.first
    starts = [*range(0, first, _PIECE), *range(first, count, _PIECE)]
    return list(pairwise([*starts, count]))


def _packed(connection: Any, commands: Sequence[Command[Any]]) -> bytes:
    return b"".join([part for command in commands for part in connection.pack_command(*_words(command.args))])


def _words(args: Sequence[Arg]) -> list[str | bytes]:
    """Arguments as text: of a number libvalkey 4.2 makes it itself, and ends the process if Ctrl-C comes meanwhile."""
    return [arg if type(arg) is bytes or type(arg) is str else str(arg) for arg in args]


def _read(connection: Any, replies: list[Any], count: int) -> None:
    """Read until there are ``count`` replies."""
    while len(replies) < count:
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except Exception as error:
            if not is_refusal(error):
                raise
            # Its traceback leads back to the replies: a cycle that would keep them all.
            replies.append(error.with_traceback(None))


async def _read_async(connection: Any, replies: list[Any], count: int) -> None:
    while len(replies) < count:
        try:
            replies.append(await connection.read_response(disable_decoding=True))
        except Exception as error:
            if not is_refusal(error):
                raise
            replies.append(error.with_traceback(None))


def _has_news(connection: Any) -> bool:
    """Whether something came unasked: the end of the connection, as a rule."""
    try:
        return bool(connection.can_read())
    except Exception:
        return True


async def _has_news_async(connection: Any) -> bool:
    try:
        # A loop that was kept busy learns of it while the first look waits, and the second sees it.
        return bool(await connection.can_read_destructive() or await connection.can_read_destructive())
    except Exception:
        return True


# --- clusters ---------------------------------------------------------------------------------------


class ClusterLink:
    """A blocking cluster client: borrowed, or made by ``make`` when first used, since making one does I/O."""

    def __init__(self, client: Any = None, make: Callable[[], Any] | None = None) -> None:
        self.client = client
        self._make = make
        self._making = Lock()
        self._turns = count()

    def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """A raw reply or a refusal for each command, in their order; which node is asked first is not told."""
        client = self._client()
        node = _any_node(client, next(self._turns))
        try:
            return self._send(client, commands, node)
        except Exception as error:
            if not _may_move(commands, error):
                raise
            client.nodes_manager.initialize()  # whether the cluster has noticed too
            return self._send(client, commands, _another(client, node))

    def _send(self, client: Any, commands: Sequence[Command[Any]], node: Any) -> list[Any]:
        replies: list[Any] = [None] * len(commands)
        for target, places in _by_target(commands, node):
            some = [commands[at] for at in places]
            if target is None:
                answers = self._send_keyed(client, some)
            else:
                answers = ClientLink(_client_of(client, target)).send(some)
            for at, reply in zip(places, answers, strict=True):
                replies[at] = reply
        return _answered(replies)

    def _send_keyed(self, client: Any, commands: Sequence[Command[Any]]) -> list[Any]:
        try:
            return ClientLink(client).send(commands)
        except Exception:
            raise
        except BaseException:
            # Interrupted between two nodes: the pipeline has given back connections whose replies are on their way.
            for each in client.get_nodes():
                _client_of(client, each).connection_pool.disconnect(inuse_connections=False)
            raise

    def _client(self) -> Any:
        if self.client is None:
            assert self._make is not None
            with self._making:
                if self.client is None:
                    self.client = self._make()
        return self.client

    def primaries(self) -> Sequence[Node | None]:
        """The nodes whose keys are all the keys there are, as the cluster says now."""
        client = self._client()
        # What the client remembers may lack one: a new one that it never met, or one that valkey-py took for a
        # replica, which it does when two threads are told of the same move.
        client.nodes_manager.initialize()
        return [Node(each) for each in client.get_primaries()]

    def close(self) -> None:
        """A borrowed client stays open; our own is closed, and made anew if it is used again."""
        if self._make is not None:
            client, self.client = self.client, None
            if client is not None:
                for node in client.get_nodes():  # its own close() leaves their connections open
                    _client_of(client, node).connection_pool.disconnect()
                client.close()


class AsyncClusterLink:
    """An async cluster client: borrowed, or made by ``make`` for the event loop that first uses it."""

    def __init__(self, client: Any = None, make: Callable[[], Any] | None = None) -> None:
        self.client = client
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = count()

    async def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """A raw reply or a refusal for each command, in their order; which node is asked first is not told."""
        client = await self._client()
        node = _any_node(client, next(self._turns))
        try:
            return await self._send(client, commands, node)
        except Exception as error:
            if not _may_move(commands, error):
                raise
            await client.initialize()  # it forgot its nodes when it lost one
            return await self._send(client, commands, _another(client, node))

    async def _send(self, client: Any, commands: Sequence[Command[Any]], node: Any) -> list[Any]:
        replies: list[Any] = [None] * len(commands)
        for target, places in _by_target(commands, node):
            some = [commands[at] for at in places]
            answers = await (
                AsyncClientLink(client).send(some) if target is None else self._send_to(client, some, target)
            )
            for at, reply in zip(places, answers, strict=True):
                replies[at] = reply
        return _answered(replies)

    async def _send_to(self, client: Any, commands: Sequence[Command[Any]], node: Any) -> list[Any]:
        async def send(command: Command[Any]) -> Any:
            try:
                return await client.execute_command(*command.args, target_nodes=node, NEVER_DECODE=True)
            except Exception as error:
                if is_refusal(error):
                    return error
                raise

        replies: list[Any] = []
        for start in range(0, len(commands), _AT_ONCE):
            replies += await asyncio.gather(*map(send, commands[start : start + _AT_ONCE]))
        return replies

    async def _client(self) -> Any:
        if self._make is not None:
            loop = asyncio.get_running_loop()
            if self.client is None:
                self.client, self._loop = self._make(), loop
            if self._loop is not loop:
                raise RuntimeError("connections are attached to a different loop")
        await self.client.initialize()
        return self.client

    async def primaries(self) -> Sequence[Node | None]:
        """The nodes whose keys are all the keys there are, as the cluster says now."""
        client = await self._client()
        await client.nodes_manager.initialize()
        return [Node(each) for each in client.get_primaries()]

    async def close(self) -> None:
        """A borrowed client stays open; our own is closed, and made anew if it is used again."""
        if self._make is not None:
            client, self.client = self.client, None
            if client is not None:
                with suppress(RuntimeError):  # a closed loop closes no sockets
                    await client.aclose()


def _by_target(commands: Sequence[Command[Any]], node: Any) -> list[tuple[Any, list[int]]]:
    """(None, places of the commands with a key, which the client routes), (a node, places of those that are for it).

    A cluster's own pipeline does not take both. When it tries again it has forgotten which node was named, and
    then puts the whole command, vector and text, into an error.
    """
    groups: dict[str, tuple[Any, list[int]]] = {}
    for at, command in enumerate(commands):
        if isinstance(command.route, (str, bytes)):
            groups.setdefault("", (None, []))[1].append(at)
        else:
            target = node if command.route is None else command.route.handle
            groups.setdefault(target.name, (target, []))[1].append(at)
    return list(groups.values())


def _client_of(client: Any, node: Any) -> Any:
    """The blocking client of one node of a cluster's."""
    find = getattr(client, "get_valkey_connection", None) or client.get_redis_connection
    return find(node)


def _answered(replies: list[Any]) -> list[Any]:
    """The replies; raises what is no answer of a server: one of the nodes was lost."""
    for reply in replies:
        if isinstance(reply, Exception) and not is_refusal(reply):
            raise reply
    return replies


def _may_move(commands: Sequence[Command[Any]], error: Exception) -> bool:
    """Whether another primary may be asked for what a lost one did not answer."""
    return is_lost_connection(error) and all(
        command.repeatable and not isinstance(command.route, Node) for command in commands
    )


def _any_node(client: Any, turn: int) -> Any:
    """A primary, each in its turn."""
    nodes = client.get_primaries() or client.get_nodes()
    return nodes[turn % len(nodes)]


def _another(client: Any, lost: Any) -> Any:
    """A primary other than the lost one, if there is one."""
    return next((node for node in client.get_primaries() if node.name != lost.name), lost)


# --- a client of our own ---------------------------------------------------------------------------

SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")
CONNECT_TIMEOUT_S = 5.0
# Twice a search's own TIMEOUT of 5 s: an answer that the engine cut short still arrives.
REPLY_TIMEOUT_S = 10.0


def checked_url(url: str | None) -> str:
    """The URL, or the environment's VALKEY_URL. InvalidInput names no more of it than its scheme."""
    found = os.environ.get("VALKEY_URL") if url is None else url
    if not found:
        raise InvalidInput("no server: pass a URL or set VALKEY_URL; `retriever serve` or EmbeddedServer starts one")
    if not isinstance(found, str):
        raise InvalidInput(f"url: a string expected, not {type(found).__name__}")
    scheme = _scheme(found)
    if scheme is None:
        raise InvalidInput("url: host or port cannot be read; percent-encode special characters of a password")
    if scheme not in SCHEMES:
        raise InvalidInput(f"url: it starts with one of {', '.join(f'{each}://' for each in SCHEMES)}")
    parts = urlsplit(found)
    path = parts.path.strip("/")
    if scheme != "unix" and path and not path.isdecimal():  # valkey-py would take database 0
        raise InvalidInput("url: what follows the host is the number of a database")
    if scheme == "unix" and (parts.hostname or not path):  # valkey-py would leave the host out
        raise InvalidInput("url: of a Unix socket it is unix:///path, or unix://user:password@/path")
    return found


def _scheme(url: str) -> str | None:
    """The scheme, "" where none is followed by ``://``; None where host or port cannot be read.

    Told by a value and not by an error: that would carry a part of the URL, which may be of the password.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError:
        return None
    # Of user:1#x@host urlsplit makes a host and a port, and the error of connecting there would name them.
    options = parts.query.split("&") if parts.query else ()
    if parts.fragment or any("=" not in each for each in options) or any(map(str.isspace, parts.netloc)):
        return None
    return parts.scheme if url.lower().startswith(f"{parts.scheme}://") else ""


def own_client(kind: Any, url: str | None, timeout_s: float) -> Any:
    """A client of valkey-py for a URL. Nothing of the URL is in what is raised: it may be the password."""
    from valkey.exceptions import ValkeyError

    url = checked_url(url)
    options = _options(url, timeout_s)
    try:
        client = kind.from_url(url, **options)
        # A pool reads the URL's options only when it connects; making a connection, without connecting it,
        # finds out now what is unknown or cannot be read.
        _check_tls(client.connection_pool.connection_class(**client.connection_pool.connection_kwargs))
        (urlsplit(url).hostname or "").encode("idna")
    except (TypeError, ValueError, ValkeyError):
        raise InvalidInput(
            "url: the host or an option cannot be read; it is scheme://host:port/database?option=value"
        ) from None
    return client


def own_cluster(kind: Any, client: Any, url: str | None, timeout_s: float) -> Callable[[], Any]:
    """What makes a cluster client of the class ``kind`` for a URL: its constructor may connect, so it runs later.

    client: what ``own_client`` made of the same URL, which is thereby known to be readable.
    """
    from valkey import ConnectionPool

    url = checked_url(url)
    if url.startswith("unix:"):
        raise InvalidInput("url: a cluster is reached over TCP")
    if client.connection_pool.connection_kwargs.get("db"):
        raise InvalidInput("url: a cluster has one database, 0")
    options = _options(url, timeout_s)
    checks = client.connection_pool.connection_kwargs.get("ssl_check_hostname")
    if checks and isinstance(client.connection_pool, ConnectionPool):
        # The blocking cluster client drops the word on its way to its connections, without an error.
        options["connection_pool_class"] = partial(ConnectionPool, ssl_check_hostname=True)
    return partial(kind.from_url, url, **options)


def _check_tls(connection: Any) -> None:
    """ValueError for what ssl would refuse only when it connects, with errors of its own."""
    unverified = getattr(connection, "cert_reqs", None) == 0  # ssl.CERT_NONE
    if unverified and connection.check_hostname:
        raise ValueError("ssl compares no name where it verifies no certificate")
    # valkey-py hands a URL's word on, where ssl wants a value; the attribute is called so in its two clients.
    if isinstance(getattr(connection, "ssl_min_version", getattr(connection, "min_version", None)), str):
        raise ValueError("ssl_min_version is no text")  # noqa: TRY004


def _options(url: str, timeout_s: float) -> dict[str, Any]:
    check_seconds("timeout_s", timeout_s, least=0.001)  # a socket takes 0 for "never wait"
    options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    parts = urlsplit(url)
    # valkey-py refuses the word for a Unix socket, which has no peer to lose.
    if parts.scheme == "unix":
        return options
    # By default valkey-py takes any certificate of a known authority, whatever host it was made out to. The
    # URL's own options win. Where no certificate is asked for, ssl refuses to compare names.
    if parts.scheme in ("valkeys", "rediss") and parse_qs(parts.query).get("ssl_cert_reqs") != ["none"]:
        options["ssl_check_hostname"] = True
    return options | {"socket_keepalive": True}
