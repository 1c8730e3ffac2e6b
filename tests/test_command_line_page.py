"""docs/command-line.md shows every command as it is; ``python -m tests.test_command_line_page`` writes them anew."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

typer = pytest.importorskip("typer")

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
BEGIN, END = "<!-- the commands: generated -->\n", "<!-- end of the commands -->\n"
SHARED = 4  # commands that have the same option, from which on it is shown once for all


class Row(NamedTuple):
    """One argument or option as the page shows it; usage: as it stands in a call, "" where it may be left out."""

    name: str
    said: str
    usage: str


def apps(app: Any, words: str = "") -> Iterator[tuple[str, Any]]:
    """An app and its groups, each with the words before its commands."""
    yield words, app
    for group in app.registered_groups:
        yield from apps(group.typer_instance, f"{words}{group.name} ")


def row(name: str, hint: Any, default: Any) -> Row:
    """What the page says of one parameter of a command."""
    kind, declared = get_args(hint)
    required = default is inspect.Parameter.empty
    said = re.sub(r"([|*<])", r"\\\1", declared.help)
    if isinstance(declared, typer.models.ArgumentInfo):
        shown = (declared.metavar or name.upper()) + (" ..." if "list" in str(kind) else "")
        return Row(f"`{shown}`", said, shown if required else f"[{shown}]")
    # Typer, too, takes the first name that is given from where a default would stand.
    names = [each for each in (declared.default, *(declared.param_decls or ())) if isinstance(each, str)]
    names = [part for each in names or [f"--{name.replace('_', '-')}"] for part in each.split("/")]
    value = of_value(kind, declared)
    said += f" Or `{declared.envvar}` in the environment." if declared.envvar else ""
    said += " Needed." if required else ""
    if not (required or default is None or default is False):
        usual = names[0] if default is True else f"{default:,}" if type(default) is int else default
        said += f" By default `{usual}`."
    return Row(", ".join(f"`{each}`" for each in names) + value, said, names[0] + value if required else "")


def of_value(kind: Any, declared: Any) -> str:
    """What an option is followed by: nothing if it is a flag."""
    kinds = [each for each in (get_args(kind) if isinstance(kind, UnionType) else [kind]) if each is not type(None)]
    (kind,) = [part for each in kinds for part in (get_args(each) or [each])]  # of list[str] the str
    if kind is bool:
        return ""
    if issubclass(kind, Enum):
        return f" {', '.join(each.value for each in kind)}"
    if declared.max is not None:
        return f" {declared.min} to {declared.max:,}"
    return f" {declared.metavar or {int: 'NUMBER', float: 'NUMBER', Path: 'PATH'}.get(kind, 'TEXT')}"


def table(rows: list[Row]) -> str:
    """The rows of a section; nothing for none."""
    lines = [f"| {row.name} | {row.said} |\n" for row in rows]
    return "".join(["\n| | |\n| --- | --- |\n", *lines]) if rows else ""


def generated() -> str:
    """The part of the page between the two marks."""
    from retriever.cli import app

    sections = []
    for words, group in apps(app):
        known = {}
        for command in group.registered_commands:
            function = command.callback
            hints = get_type_hints(function, include_extras=True)
            given = inspect.signature(function).parameters.values()
            name = words + (command.name or function.__name__.replace("_", "-"))
            known[name] = function, [row(each.name, hints[each.name], each.default) for each in given]
        often = Counter(each for _, rows in known.values() for each in rows)
        shared = [each for each in often if often[each] >= SHARED]
        if shared:
            title = f"Options of many `{words.strip()}` commands" if words else "Options of many commands"
            sections.append(f"## {title}\n{table(shared)}")
        for name, (function, rows) in known.items():
            usage = " ".join(["retriever", name, *(each.usage for each in rows if each.usage)])
            also = ", ".join(option for each in rows if each in shared for option in re.findall("`-[^`]+`", each.name))
            sections.append(
                f"## {name}\n\n```text\n{usage}\n```\n\n{inspect.cleandoc(function.__doc__)}\n"
                + table([each for each in rows if each not in shared])
                + (f"\nAlso {also}.\n" if also else "")
            )
    return "\n".join(sections)


def written(page: str) -> str:
    """A page with its part generated anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{generated()}\n{END}{after}"


def test_the_page_shows_the_commands_as_they_are():
    """The page's commands are the code's; ``python -m tests.test_command_line_page`` writes it anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert written(page) == page


def leaves(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    """Every command that typer knows, with the words that call it."""
    if not hasattr(command, "commands"):
        yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, f"{words} {name}".strip())


def test_every_command_and_option_that_typer_knows_is_on_the_page():
    """What can be typed is what is written: each command has its section, each of its options stands there."""
    from retriever.cli import app

    sections = dict(each.split("\n", 1) for each in PAGE.read_text(encoding="utf-8").split("\n## ")[1:])
    found = dict(leaves(typer.main.get_command(app), ""))
    assert found.keys() == {title for title in sections if not title.startswith("Options")}
    for words, command in found.items():
        for option in (each for part in command.params for each in (*part.opts, *part.secondary_opts)):
            if option.startswith("-"):  # an argument has a name, which nobody types
                assert f"`{option}`" in sections[words], f"{words} {option}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
