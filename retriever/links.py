"""How commands travel: through a client of the user's, or straight over connections of our own.

A borrowed client is asked as anybody would ask it, so its own retries, hooks and limits hold. Where
``connect`` made the client, nobody else uses its connections, and the way is shorter: a connection is kept at
hand, a batch is packed into one buffer, and replies are read as they come. A client's ``execute_command``
polls the socket and takes two locks for each command (measured: 30 of 70 us), and its pipeline cuts 500
documents into 125 pieces.

Either way replies come undecoded, and a server's refusal stands in its place as an exception.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from retriever.errors import is_lost_connection, is_refusal
from retriever.plans import Command

# Commands a piece: while the server works on one, the next is packed. Arbitrary between 8 and 64.
_PIECE = 32


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
        connection = self._connection(repeatable)
        try:
            for start in range(0, len(commands), _PIECE):
                connection.send_packed_command([_packed(connection, commands[start : start + _PIECE])])
            replies = []
            for _ in commands:
                try:
                    replies.append(connection.read_response(disable_decoding=True))
                except Exception as error:
                    if not is_refusal(error):
                        raise
                    replies.append(error)
        except BaseException:
            # Replies may still be on their way; the next command must not read them.
            connection.disconnect()
            self._pool.release(connection)
            raise
        self._idle.append(connection)
        return replies

    def _connection(self, repeatable: bool) -> Any:
        if self._process != os.getpid():  # a forked child must not talk on its parent's sockets
            self._idle, self._process = [], os.getpid()
        while self._idle:
            connection = self._idle.pop()
            # What must not be sent twice goes on no connection that the server has closed meanwhile.
            if repeatable or not _has_news(connection):
                return connection
            connection.disconnect()
            self._pool.release(connection)
        return self._pool.get_connection("_")

    def _drop_idle(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            connection.disconnect()
            self._pool.release(connection)

    def close(self) -> None:
        """Close every connection; sending again would open new ones."""
        self._drop_idle()
        self.client.close()


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
    """An async client of our own; a broken connection is tried once more for what may be sent twice."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._pool = client.connection_pool
        self._idle: list[Any] = []
        self._process = os.getpid()

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
        connection = await self._connection(repeatable)
        try:
            for start in range(0, len(commands), _PIECE):
                await connection.send_packed_command([_packed(connection, commands[start : start + _PIECE])])
            replies = []
            for _ in commands:
                try:
                    replies.append(await connection.read_response(disable_decoding=True))
                except Exception as error:
                    if not is_refusal(error):
                        raise
                    replies.append(error)
        except BaseException:
            await self._drop(connection)
            raise
        self._idle.append(connection)
        return replies

    async def _connection(self, repeatable: bool) -> Any:
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()
        while self._idle:
            connection = self._idle.pop()
            if repeatable or not await _has_news_async(connection):
                return connection
            await self._drop(connection)
        return await self._pool.get_connection("_")

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._drop(self._idle.pop())

    async def _drop(self, connection: Any) -> None:
        # nowait: a cancelled task has no time to wait for a polite goodbye.
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    async def close(self) -> None:
        """Close every connection; sending again would open new ones."""
        await self._drop_idle()
        await self.client.aclose()


def _packed(connection: Any, commands: Sequence[Command[Any]]) -> bytes:
    if len(commands) == 1:
        return b"".join(connection.pack_command(*commands[0].args))
    return b"".join([part for command in commands for part in connection.pack_command(*command.args)])


def _has_news(connection: Any) -> bool:
    """Whether something came unasked: the end of the connection, as a rule."""
    try:
        return bool(connection.can_read())
    except Exception as error:
        if is_lost_connection(error) or isinstance(error, OSError):
            return True
        raise


async def _has_news_async(connection: Any) -> bool:
    try:
        return bool(await connection.can_read_destructive())
    except Exception as error:
        if is_lost_connection(error) or isinstance(error, OSError):
            return True
        raise
