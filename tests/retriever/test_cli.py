"""The command line without a server: usage, exit codes, missing packages, how hits are laid out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from retriever import FusedHit, Hit, Hits


def words(text):
    """Text without colours, boxes and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs ``retriever`` with arguments; gives exit code, stdout, stderr."""
    pytest.importorskip("typer")
    from retriever.cli import run

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("VALKEY_URL", raising=False)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["retriever", *args])
        with pytest.raises(SystemExit) as ended:
            run()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    yield call
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_a_sentence_says_what_to_install(missing):
    """Without typer or rich the command ends with 2 and names the extra; no traceback."""
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    code = f"import sys; sys.modules[{missing!r}] = None; from retriever.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 2
    assert done.stderr == f"retriever needs {missing}; pip install 'valkey-retriever[cli]'\n"


def test_import_retriever_needs_no_command_line_packages():
    """The library imports neither typer nor rich."""
    code = "import sys, retriever; print(sorted({'typer', 'rich', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "[]\n"


COMMANDS = ["mcp", "demo", "serve", "create", "load", "query", "get", "delete", "info", "drop", "eval", "convert"]


@pytest.mark.parametrize("args", [("--help",), *((name, "-h") for name in COMMANDS)])
def test_help(call, args):
    """Every command explains itself and ends with 0."""
    code, out, err = call(*args)
    assert code == 0
    assert "Usage: retriever" in words(out)
    assert not err


def test_version(call):
    """The distribution's own version, and nothing else is done."""
    from importlib.metadata import version

    assert call("--version")[:2] == (0, f"retriever {version('valkey-retriever')}\n")


def test_help_lists_every_command(call):
    """Every command, and no more."""
    import retriever.cli

    shown = words(call("--help")[1]).partition("Commands")[2]
    names = [each.name or each.callback.__name__ for each in retriever.cli.app.registered_commands]
    assert names == COMMANDS
    assert all(name in shown for name in names)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("fly",), "No such command 'fly'"),
        (("query", "--index", "docs"), "Missing argument"),
        (("query", "text"), "Missing option '--index'"),
        (("query", "text", "--index", "docs", "-k", "0"), "Invalid value for '-k'"),
        (("query", "text", "--index", "docs", "-k", "10001"), "Invalid value for '-k'"),
        (("query", "text", "--index", "docs", "--filter", "{"), "no JSON"),
        (("query", "text", "--index", "docs", "--filter", "[]"), "a JSON object expected, not []"),
        (
            ("query", "text", "--index", "docs", "--fusion", "rrf"),
            "for --fusion: it fuses words and meaning, so it needs",
        ),
        (
            ("query", "text", "--index", "docs", "--alpha", "0.3"),
            "for --alpha: it fuses words and meaning, so it needs",
        ),
        (("query", "text", "--index", "docs", "--hybrid", "--alpha", "0.3"), "the weight of --fusion linear"),
        (("query", "text", "--index", "docs", "--hybrid", "--fusion", "rrf", "--alpha", "0"), "of --fusion linear"),
        (("query", "text", "--index", "docs", "--hybrid", "--fusion", "linear", "--alpha", "2"), "for '--alpha'"),
        (("query", "text", "--index", "docs", "--hybrid", "--fusion", "sum"), "Invalid value for '--fusion'"),
        (("demo", "--cluster"), "name a node with --url"),
        (("serve", "--port", "70000"), "Invalid value for '--port'"),
        (("create",), "Missing argument"),
        (("create", "no-such.toml"), "does not exist"),
        (("create", "."), "is a directory"),
        (("load", "no-such.jsonl", "--index", "docs"), "'no-such.jsonl' is no file"),
        (("load", ".", "--index", "docs"), "'.' is no file"),
        (("load", "-"), "Missing option '--index'"),
        (("load", "-", "--index", "docs", "--batch-size", "0"), "Invalid value for '--batch-size'"),
        (("get", "--index", "docs"), "Missing argument"),
        (("info",), "Missing option '--index'"),
        (("delete", "--index", "docs", "--yes"), "one of them is needed, and one only"),
        (("delete", "a", "--filter", '{"a": 1}', "--index", "docs", "--yes"), "one of them is needed, and one only"),
        (("delete", "a", "--everything", "--index", "docs", "--yes"), "one of them is needed, and one only"),
        (("delete", "--filter", "{}", "--index", "docs", "--yes"), "by no empty filter"),
        (("delete", "--filter", '{"a": 1}', "--everything", "--index", "docs", "--yes"), "by --everything alone"),
    ],
)
def test_usage_errors_end_with_2(call, args, said):
    """What cannot be understood is said on stderr, ends with 2 and asks no server."""
    code, out, err = call(*args)
    assert code == 2
    assert said in words(err)
    assert not out


@pytest.mark.parametrize("args", [("delete", "a"), ("delete", "--everything"), ("drop",)])
def test_what_deletes_needs_yes_in_a_pipe(call, args):
    """Without a terminal to ask at nothing is deleted unasked: a usage error, before any server is asked."""
    code, out, err = call(*args, "--index", "docs", "--url", "valkey://localhost:1")
    assert (code, out) == (2, "")
    assert "--yes: needed where there is no terminal to ask at" in words(err)


@pytest.mark.parametrize(
    "args",
    [
        ("valkey://me:sEcret@localhost/1",),
        ("info", "valkey://me:sEcret@localhost/1", "--index", "docs"),
        *(
            ("info", "--index", "docs", "--url", url)
            for url in (
                "http://me:sEcret@localhost",
                "valkey://me:sEcret@localhost:1",
                "valkey://me:sEcret@localhost:99999",
                "valkey://me:sEcret@a..b:1",
                "valkey://me:sEc/ret@localhost:1",
                "valkey://localhost:1?password=sEcret&typo=1",
                "valkey://me:sEcret@localhost:1?socket_timeout=sEcret",
                "valkeys://me:sEcret@localhost:1?ssl_cert_reqs=sEcret",
                "valkey:me:sEcret@localhost:1",
            )
        ),
        ("demo", "--url", "valkey://me:sEcret@localhost:1?typo=1"),
    ],
)
def test_a_url_keeps_its_secret(call, args):
    """Whatever is wrong with a URL or its place, it is said without user and password, and without a traceback."""
    code, out, err = call(*args)
    assert (code, out) == (2 if "--url" not in args else 1, "")
    assert err
    assert "sEc" not in err
    assert "Traceback" not in err


REACHING = [
    ("demo",),
    ("create", str(Path(__file__).parents[2] / "examples" / "ferries.toml")),
    ("load", "-", "--index", "docs"),
    ("query", "text", "--index", "docs"),
    ("get", "a", "--index", "docs"),
    ("delete", "a", "--index", "docs", "--yes"),
    ("info", "--index", "docs"),
    ("drop", "--index", "docs", "--yes"),
]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("query", "text", "--index", "docs"), "no server: pass a URL or set VALKEY_URL"),
        (("query", "text", "--index", "a b", "--url", "valkey://localhost:1"), "index name 'a b'"),
        (("query", "text", "--index", "docs", "--url", "http://localhost"), "url: it starts with one of valkey://"),
        (("query", "text", "--index", "docs", "--url", "valkey://localhost:1"), "localhost:1"),
        (("demo", "--url", "valkey://localhost:1"), "localhost:1"),
        (("serve", "--data-dir", "/dev/null"), "'/dev/null'"),
        (("load", "-", "--index", "docs", "--url", "valkey://localhost:1"), "localhost:1"),
        (("get", "a", "--index", "docs", "--url", "valkey://localhost:1"), "localhost:1"),
        (("delete", "a", "--index", "docs", "--yes", "--url", "valkey://localhost:1"), "localhost:1"),
        (("info", "--index", "docs", "--explain"), "no server: pass a URL or set VALKEY_URL"),
        (("info", "--index", "docs", "--url", "unix:///no/such.sock"), "/no/such.sock"),
        (("info", "--index", "docs", "--cluster", "--url", "unix:///no/such.sock"), "a cluster is reached over TCP"),
        *(((*args, "--cluster", "--url", "valkey://localhost:1"), "Cluster cannot be connected") for args in REACHING),
        (("drop", "--index", "docs", "--yes", "--url", "valkey://localhost:1"), "localhost:1"),
    ],
)
def test_failures_are_one_sentence_and_end_with_1(call, args, said):
    """What went wrong is one line on stderr, and nothing on stdout."""
    if args[0] in ("demo", "create"):
        pytest.importorskip("onnxruntime")
    code, out, err = call(*args)
    assert code == 1
    assert err.startswith("retriever: ")
    assert err.count("\n") == 1
    assert said in err
    assert not out


# --- the table ------------------------------------------------------------------------------------


def table(hits, width=60, **kwargs):
    pytest.importorskip("rich")
    from rich.console import Console

    from retriever.screen import hits_table

    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(hits_table(Hits(hits), width=width, **{"title": None, "fields": (), **kwargs}))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_hit_is_shown_with_distance_id_text_and_fields():
    """Title, text and fields stand below each other; a field that the hit lacks is left out."""
    hits = [
        Hit("a", 0.25, "Some text.", {"title": "A title", "tags": ["x", "y"], "year": 2020, "price": 2.5}),
        Hit("b", -1e-7, "", {}),
    ]
    assert table(hits, title="title", fields=["tags", "year", "price"]) == [
        "distance  id  text and fields",
        "   0.250  a   A title",
        "              Some text.",
        "              tags=x, y  year=2020  price=2.5",
        "   0.000  b",
    ]


def test_long_texts_and_ids_do_not_widen_the_table():
    """Text is cut after two lines, an id after a quarter of the width; every line fits."""
    lines = table([Hit("i" * 80, 0.5, "word " * 200, {"f": "v" * 200})], fields=["f"])
    assert max(map(len, lines)) <= 60
    assert sum("word" in line for line in lines) == 2


def test_a_text_cannot_write_to_the_terminal():
    """Brackets are text and not markup; control characters do not reach the terminal."""
    lines = table([Hit("a[red]", 0.5, "see [bold]this[/bold]\x1b[31m\x07", {"f": "[x]\x1b[2J"})], fields=["f"])
    shown = "\n".join(lines)
    assert "a[red]" in shown
    assert "[bold]this[/bold]" in shown
    assert "f=[x]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_reranked_hits_show_both_numbers():
    """The reranker's number comes first, beside the distance; an empty place where it gave none."""
    lines = table([Hit("a", 0.5, "t", {}, rerank_score=3.0), Hit("b", 0.25, "t", {})])
    assert lines == [
        "rerank  distance  id  text and fields",
        "     3     0.500  a   t",
        "           0.250  b   t",
    ]


def fused(id, **kwargs):
    channels = {"vector_distance": 0.5, "ranks": {"vector": 2}, "contributions": {"vector": 0.25}}
    return FusedHit(id, 0.25, "t", {}, **{"text_score": None, "fusion": "rrf, k=60", **channels, **kwargs})


def test_a_fused_hit_is_shown_with_why_it_is_there():
    """Its fused score, and what explain() says of it in one line; nothing of it can steer a terminal."""
    by_words = {"text_score": 7.5, "ranks": {"text": 1}, "contributions": {"text": 0.25}, "terms": ("dog", "sail")}
    lines = table(
        [
            fused("a\nb: fused score"),
            fused("c", vector_distance=None, **by_words, filter='@category:{"x\x1b[2J"}'),
        ],
        width=100,
    )
    assert lines == [
        "   fused  id                text and fields",
        "  0.2500  a b: fused score  t",
        "                            vector: rank 2, distance 0.5, contributes 0.25",
        "  0.2500  c                 t",
        "                            text: rank 1, BM25 7.5 for the terms dog, sail, contributes 0.25;",
        '                            passed the filter @category:{"x\ufffd[2J"}',
    ]


# --- the demo's parts -----------------------------------------------------------------------------


def test_words_in_common_counts_a_title_word_twice():
    """The demo's reranker scores the document whose title names the part above one that mentions it."""
    pytest.importorskip("rich")
    from retriever.demo import words_in_common

    mention = Hit("a", 0.1, "not the HX-4410, but", {"title": "Parts"})
    named = Hit("b", 0.2, "HX-4410 cools", {"title": "The HX-4410"})
    other = Hit("c", 0.3, "HX-44", {"title": "HX"})
    assert [(hit.id, score) for hit, score in words_in_common("hx-4410", [mention, named, other])] == [
        ("a", 1),
        ("b", 3),
        ("c", 0),
    ]


def test_the_corpus_is_found():
    """300 documents, of the installed package or of the checkout, that fit the demo's fields."""
    pytest.importorskip("rich")
    from retriever.demo import FIELDS, corpus

    documents = corpus()
    assert len({document.id for document in documents}) == 300
    assert all(set(document.fields) == {field.name for field in FIELDS} for document in documents)
