"""The pages under docs/ say the truth: their Python blocks run, in the order of the page, in one namespace.

A block after the comment ``<!-- not run: reason -->`` is only parsed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

PAGES = sorted((Path(__file__).resolve().parents[1] / "docs").glob("*.md"))
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?^```python\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    """One Python block; ``line`` is where its text starts in the page, ``reason`` why it is not run."""

    text: str
    line: int
    reason: str | None


def blocks(page):
    return [
        Block(found["text"], page.count("\n", 0, found.start("text")) + 1, found["reason"])
        for found in BLOCK.finditer(page)
    ]


def test_blocks_are_found_with_their_place():
    """A block knows its first line and, where it is not run, why."""
    page = "a\n\n```python\n1\n```\n\n<!-- not run: it would take a day -->\n\n```python\n2\n```\n\n```sh\nls\n```\n"
    assert blocks(page) == [Block("1\n", 4, None), Block("2\n", 10, "it would take a day")]


def test_there_are_pages():
    """Pages are found where this file looks for them."""
    assert "security.md" in [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_can_be_read(page):
    """Each Python block compiles, also one that is not run."""
    for block in blocks(page.read_text(encoding="utf-8")):
        ast.parse(block.text, f"{page.name} line {block.line}")


@pytest.mark.live
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.one_server("the pages connect to one server")
def test_a_page_runs(page, url, monkeypatch):
    """Every Python block runs to its end; ``connect(None, ...)`` is the server of the test run."""
    monkeypatch.setenv("VALKEY_URL", url)
    namespace = {"__name__": page.stem}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.reason is None:
            # Padding puts the page's own line numbers into a traceback.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)
