"""How commands travel: through a client of the user's, or straight over connections of our own.

A borrowed client is asked as anybody would ask it, so its own retries, hooks and limits hold. Where
``connect`` made the client, nobody else uses its connections, and the way is shorter: a connection is kept at
hand, a batch is packed in pieces of many commands, and replies are read as they come. A client's ``execute_command``
polls the socket and takes two locks for each command (measured: 30 of its 100 us), and its pipeline cuts 500
documents into 125 pieces.

Either way replies come undecoded, and a server's refusal stands in its place as an exception.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from fields.errors import InvalidInput
from retriever.errors import is_lost_connection, is_refusal
from retriever.plans import Command
from retriever.queries import check_seconds

# Commands a piece: while the server works on one, the next is packed. Arbitrary between 8 and 64.
_PIECE = 32
# Commands whose replies are not yet read, at most: what the server must hold for us, however large the batch.
_UNDER_WAY = 512  # arbitrary; a batch of 500 is sent without a stop


class ClientLink:
    """A borrowed blocking client; whatever it raises is the caller's."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """A raw reply or the server's refusal for each command, in one round trip."""
        if len(commands) == 1:
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

    def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """A raw reply or the server's refusal for each command, in one round trip."""
        repeatable = all(command.repeatable for command in commands)
        try:
            return self._send(commands, repeatable)
        except Exception as error:
            if not (repeatable and is_lost_connection(error)):
                raise
            self._drop_idle()  # the server they led to is gone
            return self._send(commands, repeatable)

    def _send(self, commands: Sequence[Command[Any]], repeatable: bool) -> list[Any]:
        replies: list[Any] = []
        closings, connection = self._closings, self._connection()
        try:
            if not repeatable and _has_news(connection):
                connection.disconnect()  # sending opens it anew
            for start in range(0, len(commands), _PIECE):
                piece = _packed(connection, commands[start : start + _PIECE])
                _read(connection, replies, start + _PIECE - _UNDER_WAY)
                # A health check reads a reply of its own, so there is one before the first piece only.
                connection.send_packed_command([piece], check_health=start == 0)
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

    async def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """A raw reply or the server's refusal for each command, in one round trip."""
        repeatable = all(command.repeatable for command in commands)
        try:
            return await self._send(commands, repeatable)
        except Exception as error:
            if not (repeatable and is_lost_connection(error)):
                raise
            await self._drop_idle()
            return await self._send(commands, repeatable)

    async def _send(self, commands: Sequence[Command[Any]], repeatable: bool) -> list[Any]:
        replies: list[Any] = []
        cancelled = _cancellations()
        closings, connection = self._closings, await self._connection()
        try:
            if not repeatable and await _has_news_async(connection):
                await connection.disconnect(nowait=True)
            for start in range(0, len(commands), _PIECE):
                piece = _packed(connection, commands[start : start + _PIECE])
                await _read_async(connection, replies, start + _PIECE - _UNDER_WAY)
                await connection.send_packed_command([piece], check_health=start == 0)
                # Within is a wait_for, which in Python 3.11 may swallow a cancellation.
                if _cancellations() > cancelled:
                    raise asyncio.CancelledError  # noqa: TRY301 -- as if raised by the line before
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


def _packed(connection: Any, commands: Sequence[Command[Any]]) -> bytes:
    if len(commands) == 1:
        return b"".join(connection.pack_command(*commands[0].args))
    return b"".join([part for command in commands for part in connection.pack_command(*command.args)])


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


# --- a client of our own ---------------------------------------------------------------------------

SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")
CONNECT_TIMEOUT_S = 5.0
# Twice a search's own TIMEOUT of 5 s: an answer that the engine cut short still arrives.
REPLY_TIMEOUT_S = 10.0


def checked_url(url: str | None) -> str:
    """The URL, or the environment's VALKEY_URL. InvalidInput names no more of it than its scheme."""
    found = os.environ.get("VALKEY_URL") if url is None else url
    if not found:
        raise InvalidInput("no server: pass a URL, set VALKEY_URL, or start one with retriever.embedded.EmbeddedServer")
    if not isinstance(found, str):
        raise InvalidInput(f"url: a string expected, not {type(found).__name__}")
    scheme = _scheme(found)
    if scheme is None:
        raise InvalidInput("url: host or port cannot be read; percent-encode special characters of a password")
    if scheme not in SCHEMES:
        raise InvalidInput(f"url: it starts with one of {', '.join(f'{each}://' for each in SCHEMES)}")
    database = urlsplit(found).path.strip("/")
    if scheme != "unix" and database and not database.isdecimal():  # valkey-py would take database 0
        raise InvalidInput("url: what follows the host is the number of a database")
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
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
        (urlsplit(url).hostname or "").encode("idna")
    except (TypeError, ValueError, ValkeyError):
        raise InvalidInput(
            "url: the host or an option cannot be read; it is scheme://host:port/database?option=value"
        ) from None
    return client


def _options(url: str, timeout_s: float) -> dict[str, Any]:
    check_seconds("timeout_s", timeout_s, least=0.001)  # a socket takes 0 for "never wait"
    options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    # valkey-py refuses the word for a Unix socket, which has no peer to lose.
    return options if url.startswith("unix:") else options | {"socket_keepalive": True}
