"""The pages under docs/ say the truth: their Python blocks and their ``retriever`` lines run.

They run in the order of the page, the Python ones in one namespace, in a folder of their own that holds ``examples``,
with those documents of its corpus that its golden file names: to embed all takes longer than everything else together.
A ``text`` block right behind a Python block is what it prints. A block after the comment
``<!-- not run: reason -->`` is only parsed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import valkey
import yaml

import retriever
from retriever import embedders, evaluation, memory
from retriever.declared import read_schema
from retriever.replies import index_prefixes

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$(?=(?P<joined>\n*```text\n)?)",
    re.DOTALL | re.MULTILINE,
)
KINDS = {"python", "sh", "text", "toml", "json", "yaml", ""}
loaded = cache(embedders._load)  # the model, once for all pages
TOLD = {"serve": "export VALKEY_URL=", "mcp": "serving the memory at"}  # commands that serve -> what they say then


class Block(NamedTuple):
    """One fenced block.

    line: where its text starts in the page. reason: why it is not run. joined: a text block follows right behind.
    """

    kind: str
    text: str
    line: int
    reason: str | None
    joined: bool


def blocks(page):
    return [
        Block(
            found["kind"],
            found["text"],
            page.count("\n", 0, found.start("text")) + 1,
            found["reason"],
            found["joined"] is not None,
        )
        for found in BLOCK.finditer(page)
    ]


def commands(block):
    """The words of every line of a shell block, without comments."""
    text = block.text.replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def test_blocks_are_found_with_their_kind_and_place():
    """A block knows its kind, its first line, why it is not run, and whether its output follows."""
    page = (
        "a\n\n```python\n1\n```\n\n```text\nx\n```\n\n<!-- not run: it would take a day -->\n\n```python\n2\n```\n\n"
        "So:\n\n```text\ny\n```\n\n```sh\nretriever a 'b c' \\\n  d  # e\n```\n"
    )
    assert blocks(page) == [
        Block("python", "1\n", 4, None, True),
        Block("text", "x\n", 8, None, False),
        Block("python", "2\n", 14, "it would take a day", False),
        Block("text", "y\n", 20, None, False),
        Block("sh", "retriever a 'b c' \\\n  d  # e\n", 24, None, False),
    ]
    assert commands(blocks(page)[-1]) == [["retriever", "a", "b c", "d"]]


def test_there_are_pages():
    """Pages are found where this file looks for them."""
    assert {"index.md", "security.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_can_be_read(page, tmp_path):
    """Each Python block compiles, each shell block splits into words, each TOML block is a schema."""
    for block in blocks(page.read_text(encoding="utf-8")):
        assert block.kind in KINDS, f"{page.name} line {block.line}"
        if block.kind == "python":
            ast.parse(block.text, f"{page.name} line {block.line}")
        if block.kind == "sh":
            assert commands(block)
        if block.kind == "toml":
            (tmp_path / "schema.toml").write_text(block.text, encoding="utf-8")
            read_schema(tmp_path / "schema.toml")


@pytest.fixture
def alone(url, monkeypatch, tmp_path):
    """A folder to run a page in; ``connect(None, ...)`` is the server of the test run, and left as it was found."""
    pytest.importorskip("typer")
    monkeypatch.setenv("VALKEY_URL", url)
    monkeypatch.setenv("RETRIEVER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedders, "_load", loaded)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    questions = evaluation.read_golden(ROOT / "examples" / "evaluation" / "golden.yaml").questions
    golden = {id for question in questions for id in (*question.relevant, *question.noise)}
    corpus = tmp_path / "examples" / "corpus.jsonl"
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    corpus.write_text("".join(line for line in lines if json.loads(line)["id"] in golden), encoding="utf-8")
    with valkey.Valkey.from_url(url) as client:
        known = client.execute_command("FT._LIST")
        before = signal.getsignal(signal.SIGTERM)
        yield
        signal.signal(signal.SIGTERM, before)
        for name in client.execute_command("FT._LIST"):
            if name not in known:
                (prefix,) = index_prefixes(client.execute_command("FT.INFO", name))
                client.execute_command("FT.DROPINDEX", name)
                for key in client.scan_iter(prefix[:-1] + b"*", count=1000):
                    client.unlink(key)


@pytest.mark.live
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.one_server("the pages connect to one server")
@pytest.mark.usefixtures("alone")
def test_a_page_runs(page, monkeypatch):
    """Every Python block runs and prints the text that is joined to it; every ``retriever`` line ends with 0."""
    namespace = {"__name__": page.stem}
    found = blocks(page.read_text(encoding="utf-8"))
    for block, follower in zip(found, [*found, None][1:], strict=True):
        where = f"{page.name} line {block.line}"
        if block.reason is not None:
            continue
        if block.kind == "python":
            printed = execute(block, page, namespace)
            if block.joined:
                (said, numbers), (shown, exactly) = apart(follower.text), apart(printed)
                assert said == shown, where
                assert numbers == pytest.approx(exactly, rel=1e-3), where
        if block.kind == "sh":
            for words in commands(block):
                if words[0] == "retriever":
                    run_command(words, where, monkeypatch)


def apart(text):
    """The lines of a text without its long numbers, and these: the last digit of a model's may differ by processor."""
    number = r"\d+\.\d{4,}"
    return re.sub(number, "#", text).splitlines(), [float(each) for each in re.findall(number, text)]


def execute(block, page, namespace):
    """What a block prints. Padding puts the page's own line numbers into a traceback."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_command(words, where, monkeypatch):
    """Run one command line to its end in this process; what serves, in one of its own until it has told where."""
    if words[1] in TOLD:
        listens = words[1] == "serve" or "--http" in words  # mcp ends with its stdin
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen([sys.executable, "-m", *words], env=os.environ, text=True, **streams) as server:
            try:
                assert not listens or any(TOLD[words[1]] in line for line in server.stdout), where
            finally:
                if listens:
                    server.send_signal(signal.SIGTERM)
            assert server.wait(30) in (0, 130), where  # 130: uvicorn passes the signal on
        return
    from retriever.cli import run

    monkeypatch.setattr(sys, "argv", words)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        run()
    assert (ended.value.code or 0, err.getvalue()) == (0, ""), where
    assert out.getvalue(), where


# --- the site and llms.txt ------------------------------------------------------------------------


def pages_of(nav):
    """The files that a part of mkdocs.yml's nav names, in its order."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(part)]


NAV = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])


def test_every_page_is_in_the_navigation():
    """mkdocs.yml names each page of docs/ once, and no other."""
    assert sorted(NAV) == [page.name for page in PAGES]


def test_llms_txt_is_of_its_form_and_lists_every_page():
    """As llmstxt.org says: a title, a summary, then lists of links with notes; each page of the navigation is one."""
    text = (FOLDER / "llms.txt").read_text(encoding="utf-8")
    title, blank, summary = text.splitlines()[:3]
    assert title == "# valkey-retriever"
    assert blank == ""
    assert summary.startswith("> ")
    links = []
    for line in text[text.index("\n## ") :].splitlines():
        if line and not line.startswith("## "):
            found = re.fullmatch(r"- \[[^]]+\]\(([^)]+)\): .+", line)
            assert found, line
            links.append(found[1])
    assert sorted(links) == sorted(NAV)


PUBLIC = [f"{module.__name__}.{name}" for module in (retriever, evaluation, memory) for name in module.__all__]


def test_the_reference_has_every_public_name_once():
    """Each name of ``retriever`` and its two packages is shown, and nothing that is not public."""
    text = (FOLDER / "reference.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(PUBLIC)


@pytest.mark.parametrize(
    ("html", "refused"),
    [
        ('<a href="https://valkey.io">Valkey</a>', False),
        ('<script src="assets/javascripts/bundle.js">', False),
        ('<link rel="stylesheet" href="../assets/main.css">', False),
        ('<script async src="https://cdn.example/x.js">', True),
        ("<script src=//cdn.example/x.js>", True),
        ('<link rel="stylesheet" href="https://fonts.example/css">', True),
        ('<p>a</p><img alt="" src="http://example/a.png">', True),
    ],
)
def test_a_page_that_loads_from_another_host_is_told(html, refused):
    """Scripts, style sheets and pictures of other hosts are found; links to them are the reader's to follow."""
    fetched = runpy.run_path(str(FOLDER / "mkdocs" / "pages.py"))["fetched"]
    assert (fetched(html) is not None) is refused


def test_a_docstring_is_laid_out(monkeypatch):
    """Arguments become a list, examples a block of code, and the rest stays as it is."""
    monkeypatch.setitem(sys.modules, "griffe", SimpleNamespace(Extension=object))  # mkdocs brings it
    laid_out = runpy.run_path(str(FOLDER / "mkdocs" / "docstrings.py"))["laid_out"]
    text = (
        "What it does.\n\nMore of it:\nk: how many,\n    1 to 10. And\nmore.\nm (16), n: two numbers.\nother: prose.\n"
        "Raises.\n\n>>> f(1)\n2\n\nSource: a paper."
    )
    assert laid_out(text, {"k", "m", "n"}) == (
        "What it does.\n\nMore of it:\n\n- **k**: how many,\n  1 to 10. And\n  more.\n- **m (16), n**: two numbers.\n\n"
        "other: prose.\nRaises.\n\n\n```pycon\n>>> f(1)\n2\n```\n\nSource: a paper."
    )
