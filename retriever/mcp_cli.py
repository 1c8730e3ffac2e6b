"""The command ``retriever mcp``: the memory as an MCP server, over stdin and stdout or over HTTP.

Rule: stdout is the wire. Before anything else is imported it is put aside, and from then on whatever a library prints,
also while it is loaded and when it fails, goes to stderr.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fields.errors import InvalidInput
from retriever.errors import MissingExtra
from retriever.memory_cli import Place, placed
from retriever.screen import discreet, say

if TYPE_CHECKING:
    from anyio import CancelScope
    from mcp.server.mcpserver import MCPServer

# Hosts that only programs of this machine reach, and whose names the SDK checks in every request: whoever reaches the
# server has the memory, since it asks for no password.
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GRACE_S = 3  # for requests under way when it ends; arbitrary


@placed
def mcp(
    place: Place,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Over HTTP instead, at /mcp of this address: 127.0.0.1:8000; port 0 is a free one.",
            show_default=False,
        ),
    ] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            envvar="RETRIEVER_ROOTS",
            help="A folder that files may be ingested from; again for more. The working directory unless said.",
            show_default=False,
        ),
    ] = None,
    reranker: Annotated[
        str | None,
        typer.Option(
            envvar="RETRIEVER_RERANKER",
            help="What orders hits anew: a cross-encoder of sentence-transformers, or module:name of your own.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve the memory to agents: thirteen tools of the Model Context Protocol.

    Over stdin and stdout, as a host starts it, unless --http is given. The
    memory is opened by the first call that needs it.
    """
    address = None if http is None else _address(http)
    listening = None if address is None else socket.create_server(address, family=_family(address[0]))
    at_terminal = os.isatty(0)
    wire = _private_stdout()
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")  # an agent cannot follow them
    logging.basicConfig(level=logging.WARNING, handlers=[_handler()])
    server = _server(place, root or [Path.cwd()], reranker)
    if address is None or listening is None:
        if at_terminal:
            say(
                "waiting for a host's messages on stdin, one JSON object a line, until Ctrl-C; hosts start this "
                "command themselves (docs/mcp.md), and --http serves the memory at an address instead"
            )
        _serve_stdio(server, wire)
    else:
        os.close(wire)
        with listening:
            _serve_http(server, address[0], listening)


def _private_stdout() -> int:
    """A descriptor of what stdout is; stdout itself becomes stderr, for this process and its children."""
    sys.stdout.flush()
    wire = os.dup(1)
    os.dup2(2, 1)
    return wire


class _Discreet(logging.Formatter):
    """What is logged, without the user and password of a URL."""

    def format(self, record: logging.LogRecord) -> str:
        return discreet(super().format(record))


def _handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Discreet("retriever: %(levelname)s %(name)s: %(message)s"))
    return handler


def _server(place: Place, folders: list[Path], reranker: str | None) -> MCPServer[None]:
    try:
        import mcp  # noqa: F401 - before ours, so that its absence is told from that of anything else
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"retriever mcp cannot import {error.name} ({error}); pip install 'valkey-retriever[mcp]'"
        ) from error
    from retriever.memory.named import reranker_named
    from retriever.memory.roots import Roots
    from retriever.memory.server import memory_server
    from retriever.memory.store import AsyncMemoryStore

    arguments: dict[str, Any] = place.arguments()  # one embedder, also if the store is opened again
    if reranker:
        arguments["rerank"] = reranker_named(reranker)

    async def open() -> AsyncMemoryStore:
        return await AsyncMemoryStore.open(place.url, **arguments)

    return memory_server(open, roots=Roots(folders), reranks=bool(reranker))


def _serve_stdio(server: MCPServer[None], wire: int) -> None:
    import anyio
    from mcp.server.stdio import stdio_server

    # The SDK's own run("stdio") gives descriptor 1 back when it ends, and what was printed meanwhile and waits in a
    # buffer would then be flushed onto the wire. A stream of ours is left alone.
    stdout = os.fdopen(wire, "w", encoding="utf-8", newline="\n")
    stdin = _private_stdin()
    interrupted = False

    async def serve() -> None:
        lines: Any = _lines(stdin)  # all that the SDK does with a file of anyio's is to iterate over it
        async with stdio_server(stdin=lines, stdout=anyio.wrap_file(stdout)) as (incoming, outgoing):
            inner = server._lowlevel_server
            await inner.run(incoming, outgoing, inner.create_initialization_options())

    async def end_when_told(scope: CancelScope) -> None:
        """End as at the end of stdin: a file that is being ingested is finished, the engine is let go."""
        nonlocal interrupted
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async for each in received:
                interrupted = each == signal.SIGINT
                scope.cancel()
                break  # another SIGINT does not wait for anything

    async def until_told() -> None:
        async with anyio.create_task_group() as tasks:
            if sys.platform != "win32":
                tasks.start_soon(end_when_told, tasks.cancel_scope)
            await serve()
            tasks.cancel_scope.cancel()

    try:
        anyio.run(until_told)
    except* BrokenPipeError:  # the host is gone, and what waits in the buffer is nobody's
        os.dup2(os.open(os.devnull, os.O_WRONLY), wire)
    if interrupted:
        raise typer.Exit(130)


def _private_stdin() -> int:
    """A descriptor of what stdin is; stdin itself is empty, for this process and its children."""
    wire = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return wire


async def _lines(descriptor: int) -> AsyncIterator[str]:
    """The lines of a descriptor.

    Read by a thread that the end of the process does not wait for: a read of a terminal ends with the next line alone,
    and the threads of the SDK's own reader are waited for.
    """
    import anyio
    from anyio import from_thread, lowlevel

    sending, receiving = anyio.create_memory_object_stream[str]()
    token = lowlevel.current_token()

    def read() -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stdin:
            try:
                for line in stdin:
                    from_thread.run(sending.send, line, token=token)
                from_thread.run_sync(sending.close, token=token)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, RuntimeError):
                pass  # the server has ended

    threading.Thread(target=read, name="stdin", daemon=True).start()
    with sending, receiving:
        async for line in receiving:
            yield line


def _address(http: str) -> tuple[str, int]:
    host, colon, port = http.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(f"--http: HOST:PORT expected, such as 127.0.0.1:8000, not {http!r}")
    if host not in _LOOPBACK:
        raise InvalidInput(
            f"--http: {host or 'every address'!r} can be reached by others, and the server asks for no password; "
            f"serve at 127.0.0.1, and put a proxy before it that checks who asks"
        )
    return host, int(port)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _serve_http(server: MCPServer[None], host: str, listening: socket.socket) -> None:
    import anyio
    import uvicorn

    app = server.streamable_http_app(host=host)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_S)
    where = f"[{host}]" if ":" in host else host
    say(f"serving the memory at http://{where}:{listening.getsockname()[1]}/mcp")
    anyio.run(lambda: uvicorn.Server(config).serve(sockets=[listening]))
