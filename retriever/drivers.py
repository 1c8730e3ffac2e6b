"""The two drivers: they run plans, one blocking, one awaited, and tell the hook.

They answer a plan's steps: ask (``links.py`` carries the commands), call the user's functions, wait. Here alone a
client or a function of the user's is awaited for a plan; no plan knows which driver runs it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

from fields.errors import InvalidInput
from retriever.documents import Document, Hits, Operation, UpsertReport
from retriever.embedders import Embedder, embed_function, is_async
from retriever.links import AsyncClientLink, AsyncClusterLink, AsyncOwnLink, ClientLink, ClusterLink, OwnLink
from retriever.plans import Ahead, Ask, Call, Command, Embed, Page, Plan, Primaries, Pull, Step, Wait

T = TypeVar("T")
Hook = Callable[[Operation], None]
log = logging.getLogger("retriever")
NOTHING: Iterator[Document] = iter(())


class Driver:
    """Runs plans on a blocking client."""

    def __init__(self, link: ClientLink | OwnLink | ClusterLink, embed: Embedder | None) -> None:
        self.link = link
        self.embed = embed

    def run(self, plan: Plan[T], source: Iterator[Document]) -> T:
        """The plan's result; source: what it pulls documents from."""
        try:
            step = next(plan)
            while True:
                try:
                    answer = self.ask(*step) if type(step) is Ask else self.answer(step, source)
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            plan.close()

    def stream(self, plan: Plan[None]) -> Iterator[Any]:
        """The items of the plan's pages, as they come."""
        try:
            step = next(plan)
            while True:
                if isinstance(step, Page):
                    yield from step.items
                    step = plan.send(None)
                    continue
                try:
                    answer = self.answer(step, NOTHING)
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration:
            return
        finally:
            plan.close()

    def answer(self, step: Step, source: Iterator[Document]) -> Any:
        """What a step asks for."""
        match step:
            case Ask(commands, ahead):
                return self.ask(commands, ahead)
            case Embed(texts, kind):
                return self.call(_embedder(self.embed, kind), list(texts))
            case Call(function, args):
                return self.call(function, *args)
            case Wait(seconds):
                if seconds:  # sleeping for no time gives the processor away all the same
                    time.sleep(seconds)
                return time.monotonic()
            case Primaries():
                return self.link.primaries()
            case Pull(size):
                return list(islice(source, size))
        raise TypeError(f"no answer to {step!r}")

    def ask(self, commands: Sequence[Command[Any]], ahead: Ahead | None = None) -> tuple[list[Any], float]:
        """Raw replies or refusals, and the seconds that the round trip took."""
        started = time.perf_counter()
        if ahead is not None and isinstance(self.link, OwnLink):
            replies = self.link.send(commands, ahead)
        else:  # every other link sends all commands at once
            replies = self.link.send(commands)
        return replies, time.perf_counter() - started

    @staticmethod
    def call(function: Callable[..., Any], *args: Any) -> Any:
        """The result of a function of the user's."""
        result = _called(function, *args)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError(f"{function!r} returned an awaitable, which Retriever cannot await; AsyncRetriever can")
        return result


class AsyncDriver:
    """Runs plans on an async client."""

    def __init__(self, link: AsyncClientLink | AsyncOwnLink | AsyncClusterLink, embed: Embedder | None) -> None:
        self.link = link
        self.embed = embed

    async def run(self, plan: Plan[T], source: Iterator[Document] | AsyncIterator[Document]) -> T:
        """The plan's result; source: what it pulls documents from."""
        try:
            step = next(plan)
            while True:
                try:
                    answer = await (self.ask(*step) if type(step) is Ask else self.answer(step, source))
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            plan.close()

    async def stream(self, plan: Plan[None]) -> AsyncGenerator[Any, None]:
        """The items of the plan's pages, as they come."""
        try:
            step = next(plan)
            while True:
                if isinstance(step, Page):
                    for item in step.items:
                        yield item
                    step = plan.send(None)
                    continue
                try:
                    answer = await self.answer(step, NOTHING)
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration:
            return
        finally:
            plan.close()

    async def answer(self, step: Step, source: Iterator[Document] | AsyncIterator[Document]) -> Any:
        """What a step asks for."""
        match step:
            case Ask(commands, ahead):
                return await self.ask(commands, ahead)
            case Embed(texts, kind):
                return await self.call(_embedder(self.embed, kind), list(texts))
            case Call(function, args):
                return await self.call(function, *args)
            case Wait(seconds):
                if seconds:
                    await asyncio.sleep(seconds)
                return time.monotonic()
            case Primaries():
                return await self.of_this_loop(self.link.primaries())
            case Pull(size):
                return await _take(source, size)
        raise TypeError(f"no answer to {step!r}")

    async def ask(self, commands: Sequence[Command[Any]], ahead: Ahead | None = None) -> tuple[list[Any], float]:
        """Raw replies or refusals, and the seconds that the round trip took."""
        started = time.perf_counter()
        if ahead is not None and isinstance(self.link, AsyncOwnLink):
            replies = await self.of_this_loop(self.link.send(commands, ahead))
        else:
            replies = await self.of_this_loop(self.link.send(commands))
        return replies, time.perf_counter() - started

    @staticmethod
    async def of_this_loop(answer: Awaitable[T]) -> T:
        """What the client answers; InvalidInput if it belongs to another event loop."""
        try:
            return await answer
        except RuntimeError as error:
            if "different loop" in str(error) or "Event loop is closed" in str(error):
                raise InvalidInput("this client belongs to another event loop; make one per loop") from error
            raise

    @staticmethod
    async def call(function: Callable[..., Any], *args: Any) -> Any:
        """The result of a function of the user's; one that is not async runs in a thread."""
        if is_async(function):
            return await function(*args)
        result = await asyncio.to_thread(_called, function, *args)
        return await result if inspect.isawaitable(result) else result


def _called(function: Callable[..., Any], *args: Any) -> Any:
    # A StopIteration would end a plan as if it were done, and a future of Python 3.11 never takes one.
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError(f"{function!r} raised StopIteration") from error


async def _take(source: Iterator[Document] | AsyncIterator[Document], count: int) -> list[Document]:
    if not isinstance(source, AsyncIterator):
        return list(islice(source, count))
    taken: list[Document] = []
    while len(taken) < count:
        try:
            taken.append(await source.__anext__())
        except StopAsyncIteration:
            break
    return taken


def async_documents(documents: Any) -> Iterator[Document] | AsyncIterator[Document]:
    """What AsyncRetriever takes, sync or async, as an iterator."""
    return documents.__aiter__() if isinstance(documents, AsyncIterable) else blocking_documents(documents)


def blocking_documents(documents: Any) -> Iterator[Document]:
    """What Retriever takes as an iterator; InvalidInput or TypeError for anything else."""
    if isinstance(documents, AsyncIterable):
        raise TypeError("an async iterable needs AsyncRetriever")
    if isinstance(documents, (str, bytes, Mapping)) or not isinstance(documents, Iterable):
        raise InvalidInput(f"documents: an iterable of Documents expected, not {documents!r}")
    return iter(documents)


def _embedder(embed: Embedder | None, kind: Any) -> Callable[..., Any]:
    assert embed is not None  # a plan embeds only where there is an embedder
    return embed_function(embed, kind)


class Watch:
    """Times one operation and tells the hook and the log; names and sizes only, never contents."""

    def __init__(self, name: str, index: str, hook: Hook | None) -> None:
        self.name, self.index, self.hook = name, index, hook
        self.commands = self.hits = 0
        self.complete = True
        self.started = time.perf_counter()

    def tally(self, step: Step) -> None:
        """Count a step that is about to be taken, and log its commands' names and sizes."""
        if isinstance(step, Page):
            self.hits += len(step.items)
        if not isinstance(step, Ask):
            return
        self.commands += len(step.commands)
        if log.isEnabledFor(logging.DEBUG):
            for command in step.commands:
                size = sum(len(arg) for arg in command.args if isinstance(arg, (str, bytes)))
                log.debug("%s %s: %s, %d bytes", self.name, self.index, command.args[0], size)

    def result(self, result: T) -> T:
        """The operation's result itself, with what it gave back counted."""
        match result:
            case Hits():
                self.hits, self.complete = len(result), result.complete
            case UpsertReport():
                self.hits, self.complete = result.written, not result.failed
            case bool() | None:
                pass
            case int():
                self.hits = result
            case Document():
                self.hits = 1
            case list():
                found = [each for each in result if each and not isinstance(each, Exception)]
                self.hits = sum(len(each) if isinstance(each, Hits) else 1 for each in found)
                self.complete = all(each.complete for each in result if isinstance(each, Hits))
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        seconds = time.perf_counter() - self.started
        # Whoever leaves a scan early has made no error.
        failed = kind.__name__ if kind and kind is not GeneratorExit else None
        log.debug("%s %s: %.4f s, %d commands, %s", self.name, self.index, seconds, self.commands, failed or "done")
        if self.hook is not None:
            self.hook(
                Operation(self.name, self.index, seconds, self.commands, self.hits, self.complete and not kind, failed)
            )
