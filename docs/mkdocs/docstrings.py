"""An extension of griffe, which reads docstrings for the reference page.

Our docstrings tell of an argument in a line that begins with its name, ``k: 1 to 10,000``, and go on in deeper lines,
or in the middle of a sentence. Markdown would run such lines together, so each becomes an item of a list; examples
become blocks of code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ITEM = re.compile(r"(?P<names>\w+(?: \([^)]*\))?(?:, \w+(?: \([^)]*\))?)*): ")


def laid_out(text: str, names: set[str]) -> str:
    """A docstring in Markdown.

    names: of arguments and attributes. A line that begins with one of them and a colon is an item, and goes on in the
    lines that are deeper or begin with a small letter; ``>>>`` begins an example, a blank line ends it.
    """
    lines: list[str] = []
    kind = "prose"
    for line in text.splitlines():
        found = _ITEM.match(line)
        if kind == "example" and line:
            lines.append(line)
        elif line.startswith(">>> "):
            lines += ["", "```pycon", line]
            kind = "example"
        elif found and set(re.findall(r"\w+", found["names"])) & names:
            lines += [*([""] if kind == "prose" else []), f"- **{found['names']}**: {line[found.end() :]}"]
            kind = "list"
        elif kind == "list" and (line[:1].isspace() or (line[:1].islower() and not found)):
            lines.append(f"  {line.strip()}")
        else:
            lines += ["```"] if kind == "example" else [""] if kind == "list" else []
            lines.append(line)
            kind = "prose"
    return "\n".join([*lines, *(["```"] if kind == "example" else [])])


class LaidOut(griffe.Extension):
    """Applies ``laid_out`` to every docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for each module, class, function and attribute once all are read."""
        if obj.docstring is None:
            return
        names = {each.name for each in obj.parameters} if obj.is_function else set(obj.members)
        if obj.is_class and "__init__" in obj.members:
            names |= {each.name for each in obj.members["__init__"].parameters}
        obj.docstring.value = laid_out(obj.docstring.value, names)
