"""What two engines really answered, RESP2 and RESP3: ``tests/replies``, read back as a client reads it.

A file is one engine and one protocol: {engine, resp, recorded: [{case, command, reply}]}. A value is
``{"s": text}`` for an ASCII string, ``{"b64": ...}`` for other bytes, ``{"map": [[key, value], ...]}``,
``{"set": [...]}``, ``{"float": text}`` for what JSON cannot write, ``{"error": text}``; numbers, lists
and null stand for themselves. The ``ours-`` files hold an index that this library made.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

from retriever import Numeric, Schema, Stored, Tag, Text, Vector

FOLDER = Path(__file__).parent / "replies"
# The index of the ``ours-`` files.
OURS = Schema(
    "ours",
    [Tag("category"), Tag("tags", many=True), Numeric("year"), Text("title", weight=2.0), Stored("url")],
    Vector(dims=4),
)


class ResponseError(Exception):
    """An error reply, told by the name of its class as the client libraries' own is."""


class Recorded(NamedTuple):
    """One command and its reply; from_valkey_search: which of the two engines it was."""

    source: str
    case: str
    command: tuple[Any, ...]
    reply: Any

    @property
    def from_valkey_search(self) -> bool:
        return "valkey-search" in self.source

    def __str__(self) -> str:
        return f"{self.source}: {self.case}"


def value(node: Any) -> Any:
    """A recorded value as Python's."""
    if isinstance(node, list):
        return [value(each) for each in node]
    if not isinstance(node, dict):
        return node
    ((form, held),) = node.items()
    match form:
        case "s":
            return held.encode()
        case "b64":
            return base64.b64decode(held)
        case "map":
            return {value(key): value(each) for key, each in held}
        case "set":
            return {value(each) for each in held}
        case "float":
            return float(held)
        case "error":
            return ResponseError(held)
    raise ValueError(f"no form {form!r}")


def _read(path: Path) -> list[Recorded]:
    return [
        Recorded(path.stem, each["case"], tuple(value(word) for word in each["command"]), value(each["reply"]))
        for each in json.loads(path.read_text())["recorded"]
    ]


RECORDED = [each for path in sorted(FOLDER.glob("*.json")) for each in _read(path)]


def replies(case: str, *, ours: bool = False) -> list[Recorded]:
    """What each engine and protocol answered in one case; ours: to an index that this library made."""
    found = [each for each in RECORDED if each.case == case and each.source.startswith("ours-") is ours]
    assert found, case
    return found


def of_command(name: str) -> list[Recorded]:
    """Every recorded reply to a command that is no error."""
    return [each for each in RECORDED if each.command[0] == name and not isinstance(each.reply, Exception)]
