"""Plans: every operation written once, as a generator of steps. The one idea to learn.

A plan yields what it wants done and is sent the answer; ``drivers.py`` has two drivers, one that
blocks and one that awaits, and a plan cannot tell which runs it. A step that fails is raised at the
``yield``. Plans hold no clock and no socket, so a test runs one with ``next()`` and ``send()``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from retriever.documents import EmbedKind
from retriever.errors import classify, is_refusal

T = TypeVar("T")
Arg: TypeAlias = str | bytes | int | float


class Node(NamedTuple):
    """One primary of a cluster; handle: what its client knows it by."""

    handle: Any


class Command(NamedTuple, Generic[T]):
    """One command for the server.

    args: as sent. parse: the raw reply -> T. route: the key it belongs to, the node it is for, or None for any.
    repeatable: sending it twice does no more than sending it once, so a lost connection may be
        answered by sending it again.
    """

    args: tuple[Arg, ...]
    parse: Callable[[Any], T]
    route: str | bytes | Node | None = None
    repeatable: bool = True


class Ahead(NamedTuple):
    """What a plan does while the first commands of an Ask are under way. It computes, and waits for nothing.

    first: how many they are, fewer than all. prepare: called when they are sent. read: called with their raw replies or
        exceptions, while the server works on the others. Both may be called twice, and where commands all travel at
        once, not at all. What they raise fails the step, so no class of the client's: it would pass for the server's.
    """

    first: int
    prepare: Callable[[], object]
    read: Callable[[Sequence[Any]], object]


class Ask(NamedTuple):
    """Commands for one round trip. Answer: (a raw reply or an exception for each, seconds it took).

    ahead: what to do with the first of them meanwhile, where it can be done.
    """

    commands: Sequence[Command[Any]]
    ahead: Ahead | None = None


class Embed(NamedTuple):
    """Texts for the embedder. Answer: whatever it returned, unchecked."""

    texts: Sequence[str]
    kind: EmbedKind


class Call(NamedTuple):
    """A function of the user's, sync or async. Answer: its result."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


class Wait(NamedTuple):
    """Time to pass. Answer: a monotonic clock's seconds, read afterwards."""

    seconds: float


class Primaries(NamedTuple):
    """Where the keys are. Answer: a Node for each primary of a cluster; one None where there is no cluster."""


class Pull(NamedTuple):
    """The next documents of the user's iterable. Answer: at most ``size``, none at its end."""

    size: int


class Page(NamedTuple):
    """A page of results for the caller of a streaming operation. Answer: None."""

    items: Sequence[Any]


Step: TypeAlias = Ask | Embed | Call | Wait | Primaries | Pull | Page
Plan: TypeAlias = Generator[Step, Any, T]


def ask_one(command: Command[T]) -> Plan[T]:
    """One command's parsed reply. A refusal is raised, classified."""
    (reply,), _ = yield Ask((command,))
    return parsed(command, reply)


def ask_all(commands: Sequence[Command[Any]]) -> Plan[list[Any]]:
    """Parsed replies of one round trip; a refused command's place holds its classified error.

    Anything but a refusal (a connection that broke) is raised.
    """
    if not commands:
        return []
    replies, _ = yield Ask(commands)
    answers = []
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, Exception):
            if not is_refusal(reply):
                raise reply
            answers.append(_classified(command, reply))
        else:
            answers.append(command.parse(reply))
    return answers


def raise_first(*answers: Any, but: type[Exception] | None = None) -> None:
    """Raise the first answer that is an exception, unless it is of the class that is expected."""
    for answer in answers:
        if isinstance(answer, Exception) and not (but and isinstance(answer, but)):
            raise answer


def parsed(command: Command[T], reply: Any) -> T:
    """The reply, parsed; or raised, if it is an exception."""
    if isinstance(reply, Exception):
        raise _classified(command, reply) from (reply if is_refusal(reply) else None)
    return command.parse(reply)


def _classified(command: Command[Any], reply: Exception) -> Exception:
    # The second word of an FT command is its index; that of any other may be a key or a script.
    word, *rest = command.args
    index = str(rest[0]) if rest and str(word).startswith("FT.") else None
    return classify(reply, str(word), index)


def watched(plan: Plan[T], tally: Callable[[Step], None]) -> Plan[T]:
    """The same plan, with every step shown to ``tally`` before it is taken."""
    try:
        step = next(plan)
        while True:
            tally(step)
            try:
                answer = yield step
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        plan.close()


def together(plans: Sequence[Plan[T]]) -> Plan[list[T | Exception]]:
    """Run independent plans in shared steps: one embedder call, one round trip, where they meet.

    Each has its own result or its own exception, in the order given. Steps that cannot be shared
    (a call, a wait) are taken one after the other. What an Ask would do ahead is not done: its commands travel with
    the others'.
    """
    results: list[Any] = [None] * len(plans)
    waiting: dict[int, Step] = {}

    def resume(at: int, step: Callable[[], Step]) -> None:
        waiting.pop(at, None)
        try:
            waiting[at] = step()
        except StopIteration as end:
            results[at] = end.value
        except Exception as error:
            results[at] = error

    def answer(at: int, value: Any) -> None:
        plan = plans[at]
        resume(at, (lambda: plan.throw(value)) if isinstance(value, Exception) else (lambda: plan.send(value)))

    try:
        for at, plan in enumerate(plans):
            resume(at, lambda plan=plan: next(plan))  # type: ignore[misc]
        while waiting:
            embeds = {at: step for at, step in waiting.items() if isinstance(step, Embed)}
            asks = {at: step for at, step in waiting.items() if isinstance(step, Ask)}
            if embeds:
                yield from _embed_together(embeds, answer)
            elif len(asks) == len(waiting):
                yield from _ask_together(asks, answer)
            else:
                at, step = next((at, step) for at, step in waiting.items() if not isinstance(step, Ask))
                answer(at, (yield from _attempt(step)))
    finally:
        for plan in plans:
            plan.close()
    return results


def _attempt(step: Step) -> Plan[Any]:
    try:
        return (yield step)
    except Exception as error:
        return error


def _embed_together(embeds: dict[int, Embed], answer: Callable[[int, Any], None]) -> Plan[None]:
    kind = next(iter(embeds.values())).kind
    alike = {at: step for at, step in embeds.items() if step.kind == kind}
    texts = [text for step in alike.values() for text in step.texts]
    rows = yield from _attempt(Embed(texts, kind))
    start = 0
    for at, step in alike.items():
        end = start + len(step.texts)
        answer(at, rows if isinstance(rows, Exception) else _cut(rows, start, end, len(texts)))
        start = end


def _cut(rows: Any, start: int, end: int, count: int) -> Any:
    """Some rows of an embedder's result; all of what cannot be cut, for each plan's own check to name the fault."""
    try:
        return rows[start:end] if len(rows) == count else rows
    except (TypeError, LookupError):
        return rows


def _ask_together(asks: dict[int, Ask], answer: Callable[[int, Any], None]) -> Plan[None]:
    commands = [command for step in asks.values() for command in step.commands]
    got = yield from _attempt(Ask(commands))
    start = 0
    for at, step in asks.items():
        end = start + len(step.commands)
        answer(at, got if isinstance(got, Exception) else (got[0][start:end], got[1]))
        start = end
