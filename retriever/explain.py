"""What ``--explain`` shows: the commands of an operation, without their effects.

Rule: a command that only reads is sent, so that the commands behind it are those that would follow. Any
other is shown, kept back and taken to succeed. Where an answer would depend on what was kept back, the
operation ends with ``Unanswered``, which says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from retriever.plans import Arg, Command, Node

# A command that is in neither table is kept back and not taken for anything.
_READS = frozenset(
    ("HELLO", "PING", "CLIENT INFO", "FT.INFO", "FT._LIST", "FT.SEARCH", "HEXISTS", "HGETALL", "HMGET", "SCAN")
)
_SUCCESS: dict[str, Any] = {
    "FT.CREATE": b"OK",
    "FT.DROPINDEX": b"OK",
    "EVAL": 1,
    "HSET": 1,
    "HSETNX": 1,
    "DEL": 1,
}
# Arbitrary: a line on a screen.
_LONGEST = 200

# Also a size, which stands for what is not shown.
_SIMPLE = re.compile(r"""[^\s"'\\]+|<\d+ (bytes|characters)>""")

Show = Callable[[list[str], bool], None]


class Unanswered(Exception):
    """What follows depends on an answer that only a command that was kept back could give."""


class Explanation:
    """Stands between a Retriever and its server: shows every command, sends those that cannot write.

    show: told the words of each command (vectors and long texts by their size), and whether it was sent.
    """

    def __init__(self, show: Show) -> None:
        self._show = show
        self._created: set[Arg] = set()
        self._unwritten: dict[Arg, list[bytes]] = {}  # the last script's key -> its names and values

    def between(self, link: Any) -> _Link:
        """A link to put in another's place."""
        return _Link(self, link)

    def send(self, link: Any, commands: Sequence[Command[Any]]) -> list[Any]:
        """The server's replies to what reads, and success for all else."""
        for command in commands:
            if command.args[0] == "FT.INFO" and command.args[1] in self._created:
                raise Unanswered(f"then FT.INFO {_word(command.args[1])}, repeated until the index is filled")
        reads = [command for command in commands if _name(command) in _READS]
        for command in commands:
            self._show([_word(arg) for arg in command.args], _name(command) in _READS)
        answers = iter(link.send(reads) if reads else ())
        return [
            self._known(command, next(answers)) if _name(command) in _READS else self._kept_back(command)
            for command in commands
        ]

    def _kept_back(self, command: Command[Any]) -> Any:
        name = _name(command)
        if name not in _SUCCESS:
            raise Unanswered(f"what follows depends on the answer to {name}")
        if name == "FT.CREATE":
            self._created.add(command.args[1])
        if name == "EVAL":  # EVAL script 1 key name value ...
            self._unwritten = {command.args[3]: [str(arg).encode() for arg in command.args[4:]]}
        return _SUCCESS[name]

    def _known(self, command: Command[Any], reply: Any) -> Any:
        # An index is claimed by writing its metadata and reading them back in one round trip.
        if command.args[0] == "HGETALL" and not reply:
            return self._unwritten.get(command.args[1], reply)
        return reply


class _Link:
    def __init__(self, explanation: Explanation, link: Any) -> None:
        self._explanation, self._link = explanation, link

    def send(self, commands: Sequence[Command[Any]]) -> list[Any]:
        return self._explanation.send(self._link, commands)

    def primaries(self) -> Sequence[Node | None]:
        return self._link.primaries()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._link.close()


def _name(command: Command[Any]) -> str:
    words = command.args[: 2 if command.args[0] == "CLIENT" else 1]
    return " ".join(map(str, words))


def _word(arg: Arg) -> str:
    if isinstance(arg, bytes):
        try:
            text = arg.decode()
        except UnicodeDecodeError:
            return f"<{len(arg)} bytes>"
        return text if len(text) <= _LONGEST and text.isprintable() else f"<{len(arg)} bytes>"
    text = str(arg)
    return text if len(text) <= _LONGEST else f"<{len(text)} characters>"


def quoted(words: Sequence[str]) -> str:
    """Words as a command line shows them: in quotes what would be none or several, or could steer a terminal."""
    return " ".join(
        word
        if _SIMPLE.fullmatch(word) and word.isprintable()
        else json.dumps(word, ensure_ascii=not word.isprintable())
        for word in words
    )
