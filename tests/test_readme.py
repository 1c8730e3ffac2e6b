"""The README says the truth: its Python runs and prints what is shown, its command lines work.

Blocks run in the order of the page, the Python ones in one namespace, against the server of the test run.
A block after the comment ``<!-- docker -->`` needs Docker and is only parsed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import retriever
from retriever import Retriever, Schema

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"(?P<docker><!-- docker -->\n+)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One fenced block; ``line`` is where its text starts in the README."""

    kind: str
    text: str
    line: int
    docker: bool


def blocks(page):
    return [
        Block(found["kind"], found["text"], page.count("\n", 0, found.start("text")) + 1, bool(found["docker"]))
        for found in BLOCK.finditer(page)
    ]


PAGE = README.read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)


def commands(block):
    """The words of every line of a shell block, without comments."""
    lines = (line.removeprefix("$ ") for line in block.text.splitlines())
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_blocks_are_found_with_their_kind_and_place():
    """A block knows its kind, its first line, and whether it needs Docker."""
    page = "a\n\n```sh\nls\n```\n\n<!-- docker -->\n\n```python\n1\n```\n\n```\nx\n```\n"
    assert blocks(page) == [
        Block("sh", "ls\n", 4, False),
        Block("python", "1\n", 10, True),
        Block("", "x\n", 14, False),
    ]


def test_the_page_is_short_and_starts_with_the_two_commands():
    """Under 200 lines, with make demo and make test on the first screen."""
    assert len(PAGE.splitlines()) < 200
    first_screen = "\n".join(PAGE.splitlines()[:12])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_every_block_can_be_read():
    """Each Python block compiles, each shell block splits into words, no block has an unknown kind."""
    assert BLOCKS
    for block in BLOCKS:
        assert block.kind in ("python", "sh", "text", ""), f"README line {block.line}"
        if block.kind == "python":
            ast.parse(block.text, f"README line {block.line}")
        if block.kind == "sh":
            assert commands(block)


def test_make_targets_and_extras_exist():
    """Every make target and every extra that the page names is there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (demo|test|check)\b", PAGE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    for names in re.findall(r"valkey-retriever\[([\w,-]+)\]", PAGE):
        for name in names.split(","):
            assert re.search(rf"^{name} = ", extras, re.MULTILINE), name


def test_errors_of_the_page_are_the_errors_of_the_package():
    """The error tree names every public error and no other."""
    tree = next(block.text for block in BLOCKS if block.text.startswith("RetrieverError"))
    public = {
        name
        for name in retriever.__all__
        if isinstance(value := getattr(retriever, name), type) and issubclass(value, retriever.RetrieverError)
    }
    assert public == set(re.findall(r"\b[A-Z]\w+", tree)) & set(retriever.__all__)


@pytest.mark.live
@pytest.mark.one_server("the page connects to one server")
def test_the_page_runs(url, monkeypatch, tmp_path):
    """Every Python block runs and prints the output block that follows; every ``retriever`` line works."""
    monkeypatch.setenv("VALKEY_URL", url)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    namespace = {"__name__": "readme"}
    drop(url, "docs")
    drop(url, "ferries")
    try:
        for block, follower in zip(BLOCKS, [*BLOCKS[1:], None], strict=True):
            if block.docker:
                continue
            if block.kind == "python":
                printed = execute(block, namespace)
                if follower is not None and follower.kind == "text":
                    assert printed.splitlines() == follower.text.splitlines(), f"README line {follower.line}"
            elif block.kind == "sh":
                for words in commands(block):
                    if words[0] == "retriever":
                        run_command(words[1:], tmp_path)
    finally:
        if "docs" in namespace:
            namespace["docs"].close()
        drop(url, "docs")
        drop(url, "ferries")


def execute(block, namespace):
    """What a block prints. Padding puts the README's own line numbers into a traceback."""
    code = compile("\n" * (block.line - 1) + block.text, str(README), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_command(words, folder):
    """Run one command line to its end; ``serve`` is stopped once it has told its URL."""
    command = [sys.executable, "-m", "retriever", *words]
    if words[0] == "serve":
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert any("export VALKEY_URL=" in line for line in server.stdout)
            finally:
                server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        return
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


def drop(url, name):
    """Remove an index that the page makes, and its documents."""
    with Retriever.connect(url, Schema(name)) as docs:
        docs.drop_index(delete_documents=True)
