"""docs/mcp.md shows the tools of the server as they are; ``python -m tests.test_mcp_page`` writes them anew."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp")

from retriever.memory import answers, loading, server

PAGE = Path(__file__).parents[1] / "docs" / "mcp.md"
BEGIN, END = "<!-- the tools: generated -->\n", "<!-- end of the tools -->\n"


def tools() -> list[Any]:
    """The tools, as a host is told of them."""

    async def never() -> Any:
        raise AssertionError("listing tools opens no store")

    return asyncio.run(server.memory_server(never, roots=server.Roots(["."])).list_tools())


def kind(schema: dict[str, Any]) -> str:
    """What a parameter takes, in a word or two."""
    found = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    said = []
    for each in found:
        name = {"object": "mapping", "array": "list"}.get(each.get("type", ""), each.get("type", "mapping"))
        if "enum" in each:
            name = ", ".join(each["enum"])
        if name == "list":
            inner = kind(each["items"])
            name = f"list of {inner}s"
        bounds = [f"{each[word]:,}" for word in ("minimum", "maximum") if word in each]
        if len(bounds) == 2 and each["maximum"] < 10**6:
            name += f" {' to '.join(bounds)}"
        said.append(name)
    return " or ".join(dict.fromkeys(said))


def usual(schema: dict[str, Any]) -> str:
    """What stands where a parameter is left out."""
    if "default" not in schema:
        return "needed"
    return f"`{json.dumps(schema['default'])}`"


def does(hints: Any) -> str:
    """What a tool's annotations say."""
    if hints.read_only_hint:
        return "reads"
    if hints.destructive_hint:
        return "takes away"
    return "writes" if hints.idempotent_hint else "counts reads"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def generated() -> str:
    """The part of the page between the two marks: the tools, then their parameters."""
    lines = ["| tool | | what it does | answer |\n", "|---|---|---|---|\n"]
    rows = ["| tool | parameter | type | default | |\n", "|---|---|---|---|---|\n"]
    for tool in tools():
        first = tool.description.partition("\n\n")[0]
        fields = ", ".join(f"`{name}`" for name in tool.output_schema["properties"])
        answer = f"`{tool.output_schema['title']}`: {fields}"
        lines.append(f"| `{tool.name}` | {does(tool.annotations)} | {cell(first)} | {answer} |\n")
        for name, schema in tool.input_schema.get("properties", {}).items():
            said = cell(schema.get("description", ""))
            rows.append(f"| `{tool.name}` | `{name}` | {kind(schema)} | {usual(schema)} | {said} |\n")
    return f"\n{''.join(lines)}\n{''.join(rows)}\n"


def test_the_page_shows_the_tools_as_they_are():
    """The page's tables are the server's; ``python -m tests.test_mcp_page`` writes them anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == generated()


def test_every_parameter_is_described():
    """No cell of the tables is empty that an agent would read."""
    for tool in tools():
        for name, schema in tool.input_schema.get("properties", {}).items():
            assert len(schema.get("description", "")) > 10, f"{tool.name} {name}"


def test_every_variable_is_on_the_page():
    """What the command reads from the environment stands there, and nothing else does."""
    pytest.importorskip("typer")
    from retriever.mcp_cli import mcp

    read = {each.__metadata__[0].envvar for each in mcp.__annotations__.values()} - {None}
    section = PAGE.read_text(encoding="utf-8").partition("## Environment\n")[2].partition("\n## ")[0]
    named = {
        name for line in section.splitlines() if line.startswith("| `") for name in re.findall(r"`([A-Z_]+)`", line)
    }
    assert named == read | {"RETRIEVER_HOME"}


def test_bounds_are_those_of_the_code():
    """Each number of the page's table of bounds is a constant."""
    section = PAGE.read_text(encoding="utf-8").partition("## What is bounded\n")[2].partition("\n## ")[0]
    for number in (
        answers.BUDGET,
        server.MAX_TOP_K,
        server.MAX_TEXT,
        server.MAX_RERANKED,
        server.MAX_FILES,
        loading.MAX_BYTES,
        server.MAX_METADATA,
    ):
        assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", section), number


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}{generated()}{END}{tail}", encoding="utf-8")
