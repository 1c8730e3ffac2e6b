"""The commands ``retriever eval`` and ``retriever convert``: what a person sees, a script reads, and what stays."""

from __future__ import annotations

import json
import sys

import pytest

from retriever import Document, MissingExtra, Retriever, Schema, Tag, Vector
from retriever.memory.store import MemoryStore, Note
from tests.fakes import Embedder
from tests.terminal import answer, run

pytestmark = [pytest.mark.live, pytest.mark.one_server("about commands at one server")]
for package in ("ir_measures", "scipy", "plotly", "retriever.cli"):
    pytest.importorskip(package)


class Named(Embedder):
    """What --embedder names in these tests."""

    name = "named"
    dims = 4


class Lacking(Named):
    """The same model, whose package is not installed."""

    def __call__(self, texts):
        raise MissingExtra("pip install what is lacking")


class Other(Named):
    """Another model."""

    name = "other"


def backwards(text, hits):
    """A reranker for --reranker."""
    return list(reversed(hits))


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """--embedder tested_here:Named finds the class above, wherever pytest imported this file from."""
    monkeypatch.setitem(sys.modules, "tested_here", sys.modules[__name__])


@pytest.fixture
def index(url, name):
    """A live index, made with the embedder "named"."""
    schema = Schema(name, [Tag("kind")], vector=Vector(dims=4, algorithm="FLAT"))
    with Retriever.connect(url, schema, embed=Named()) as docs:
        docs.create_index()
        docs.upsert(Document(id, f"the word {id}", {"kind": "word"}) for id in ("anchor", "beacon", "compass"))
    return name


@pytest.fixture
def asked(tmp_path):
    """Golden queries for it, of which one names an id that is not there."""
    path = tmp_path / "golden.yaml"
    path.write_text(
        "- query: anchor\n  relevant: [anchor]\n  authority: anchor\n- query: beacon\n  relevant: [beacon, boye]\n",
        encoding="utf-8",
    )
    return path


def evaluate(url, golden, *args, **environment):
    return run("eval", str(golden), "--embedder", "tested_here:Named", *args, url=url, **environment)


def test_a_report_is_written_and_told(url, index, asked, tmp_path):
    """Three files, a line per arm, what is not there on stderr; --compare takes the JSON."""
    folder = tmp_path / "reports"
    done = evaluate(url, asked, "--index", index, "--output", str(folder), "--k", "1,2", "--arms", "text,vector")
    assert done.returncode == 0
    assert done.stderr == f"retriever: 1 of 3 ids that should be found are not in index {index}: 'boye'\n"
    head, *lines = done.stdout.splitlines()
    assert head.split()[:3] == ["arm", "nDCG@2", "minus"]
    assert [line.split()[0] for line in lines[:2]] == ["text", "vector"]
    assert lines[0].split()[1] == "0.807"  # (1 + 1 / (1 + 1 / log2(3))) / 2
    paths = sorted(folder.iterdir())
    assert sorted(lines[2:]) == [str(path) for path in paths]
    old = next(path for path in paths if path.suffix == ".json")
    assert json.loads(old.read_text(encoding="utf-8"))["target"] == f"index {index}"
    again = evaluate(url, asked, "--index", index, "--output", str(folder), "--compare", str(old), "--json")
    told = json.loads(again.stdout)
    assert [path.rpartition("_")[2] for path in told["reports"]] == ["2.md", "2.json", "2.html"]
    assert told["queries"] == 2
    assert told["arms"]["text"]["measures"]["MRR"]["mean"] == 1.0
    page = next(path for path in told["reports"] if path.endswith(".html"))
    with open(page, encoding="utf-8") as html:
        assert "Compared with" in html.read()


def test_an_embedder_that_cannot_run_ends_it_before_the_first_query(url, index, asked, tmp_path):
    """A package that is missing is exit 1 with what to install, and no report of answers by words alone."""
    folder = tmp_path / "reports"
    done = run(
        "eval", str(asked), "--index", index, "--embedder", "tested_here:Lacking", "--output", str(folder), url=url
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "retriever: pip install what is lacking\n"
    assert list(folder.iterdir()) == []


def test_an_index_is_named_by_its_schema_file(url, index, asked, tmp_path):
    """--schema takes the file that declares a live index, and refuses one that is otherwise."""
    file = tmp_path / "schema.toml"
    vector = '[vector]\nalgorithm = "flat"\ndims = 4\n'
    file.write_text(f'name = "{index}"\n{vector}[fields]\nkind = "tag"\n', encoding="utf-8")
    done = evaluate(url, asked, "--schema", str(file), "--output", str(tmp_path), "--arms", "text", "--json")
    assert json.loads(done.stdout)["arms"]["text"]["measures"]["MRR"]["mean"] == 1.0
    file.write_text(f'name = "{index}"\n{vector}[fields]\nkind = "numeric"\n', encoding="utf-8")
    done = evaluate(url, asked, "--schema", str(file), "--output", str(tmp_path))
    assert done.returncode == 1
    assert "is not what" in done.stderr
    assert "'kind'" in done.stderr


def test_a_reranker_runs_every_arm_again(url, index, asked, tmp_path):
    """--reranker names one, and each arm is there with and without it."""
    done = evaluate(
        url, asked, "--index", index, "--reranker", "tested_here:backwards", "--output", str(tmp_path), "--json"
    )
    arms = list(json.loads(done.stdout)["arms"])
    assert arms[:4] == ["vector", "vector+rerank", "text", "text+rerank"]


def test_a_memory_is_evaluated_and_not_changed(url, raw, name, tmp_path):
    """--namespace names it; its own fields are no obstacle, and no key is another afterwards."""
    with MemoryStore.open(
        url, namespace=name, embed=Named(), fields=[Tag("team")], archive=tmp_path / "archive"
    ) as store:
        store.ingest([Note("the word anchor", "one"), Note("the word beacon", "two")], metadata={"team": "deck"})
        (found,) = (chunk for chunk in store.search("anchor", reinforce=False).chunks if "anchor" in chunk.content)
    golden = tmp_path / "golden.jsonl"
    golden.write_text(json.dumps({"query": "anchor", "relevant": [found.doc_id]}) + "\n", encoding="utf-8")

    def held():
        return {key: raw.hgetall(key) for key in raw.scan_iter(f"{{memory.{name}*", count=1000)}

    try:
        before = held()
        done = evaluate(url, golden, "--namespace", name, "--output", str(tmp_path / "out"), "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert list(told["arms"])[-2:] == ["memory", "memory-no-guaranteed"]
        assert told["arms"]["memory"]["measures"]["MRR"]["mean"] == 1.0
        assert held() == before
    finally:
        for each in raw.execute_command("FT._LIST"):
            if each.startswith(f"{{memory.{name}".encode()):
                raw.execute_command("FT.DROPINDEX", each)
        for key in raw.scan_iter(f"{{memory.{name}*", count=1000):
            raw.unlink(key)


def test_what_is_not_there_is_not_made(url, raw, name, asked, tmp_path, monkeypatch):
    """An unknown index or namespace is an error, and neither is there afterwards; nor is an engine without data."""
    before = sorted(raw.scan_iter("*", count=1000)), raw.execute_command("FT._LIST")
    for options, said in (
        (("--index", name), f"no index '{name}' on this server"),
        (("--namespace", name), f"no memory '{name}' on this server"),
    ):
        done = evaluate(url, asked, *options)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert (sorted(raw.scan_iter("*", count=1000)), raw.execute_command("FT._LIST")) == before
    home = tmp_path / "home"
    done = evaluate(None, asked, "--namespace", name, RETRIEVER_HOME=str(home))
    assert done.returncode == 1
    assert "no memory is kept in" in done.stderr
    assert not home.exists()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((), 2, "one of them is needed"),
        (("--index", "a", "--namespace", "b"), 2, "one of them is needed"),
        (("--index", "a", "--k", "1,x"), 2, "numbers from 1 to 1000"),
        (("--index", "a", "--k", "0"), 2, "numbers from 1 to 1000"),
        (("--index", "a", "--arms", "vector,memory"), 2, "'memory': of vector, text, rrf, linear, append"),
        (("--index", "a", "--arms", ","), 2, "one or more of"),
        (("--namespace", "a", "--document-field", "whole"), 2, "it is for an index"),
        (("--index", "a", "--authority-window", "0"), 2, "greater than or equal to 1"),
        (("--index", "a", "--compare", "no such file"), 2, "does not exist"),
        (("--index", "a", "--reranker", "nowhere:nothing"), 1, "there is no 'nowhere:nothing' to import"),
    ],
)
def test_a_wrong_command_line(url, asked, args, code, said):
    """What cannot be understood ends with 2 and says what is possible."""
    done = evaluate(url, asked, *args)
    assert done.returncode == code
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_a_golden_file_is_read_before_anything_is_asked(url, tmp_path):
    """What is wrong with it is said with its line, also where the index is not there."""
    path = tmp_path / "golden.yaml"
    path.write_text("- query: a\n  relevant: [x]\n- question: b\n", encoding="utf-8")
    done = evaluate(url, path, "--index", "no-such-index")
    assert done.returncode == 1
    assert f"{path}:3: unknown key 'question'" in done.stderr


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_asked(url, index, asked, monkeypatch):
    """All that was asked would be lost, if it came out at the end."""
    monkeypatch.setattr("retriever.evaluation_cli.run_evaluation", lambda *args, **given: pytest.fail("it was asked"))
    done = evaluate(url, asked, "--index", index, "--output", str(asked / "reports"))
    assert done.returncode == 1
    assert "Not a directory" in done.stderr


def test_another_embedder_is_refused(url, index, asked, tmp_path):
    """Vectors of another model have nothing to do with the query's; by words it can be evaluated all the same."""
    command = ("eval", str(asked), "--index", index, "--output", str(tmp_path), "--embedder", "tested_here:Other")
    done = run(*command, url=url)
    assert done.returncode == 1
    assert "were made by 'named', and --embedder is 'other'" in done.stderr
    assert run(*command, "--arms", "text", url=url).returncode == 0


def test_failed_queries_are_said(url, index, tmp_path):
    """A query that words cannot be asked of is said with its arm, and the command ends well."""
    golden = tmp_path / "golden.yaml"
    golden.write_text("- query: '?!'\n  relevant: [anchor]\n- query: anchor\n  relevant: [anchor]\n", encoding="utf-8")
    done = evaluate(url, golden, "--index", index, "--output", str(tmp_path / "out"))
    assert done.returncode == 0
    assert "text: 1 of 2 queries failed and count 0:" in done.stderr


def test_a_collection_is_converted_loaded_and_evaluated(url, name, tmp_path):
    """The three files are what create, load and eval take; a question finds its answer within its own haystack."""
    pytest.importorskip("onnxruntime")
    item = {
        "question_id": "q1",
        "question_type": "kind",
        "question": "What is the boat called?",
        "haystack_session_ids": ["s1", "s2"],
        "haystack_dates": ["2023/05/20", "2023/05/21"],
        "haystack_sessions": [
            [{"role": "user", "content": "My boat is called Petrel."}],
            [{"role": "user", "content": "I like soup."}],
        ],
        "answer_session_ids": ["s1"],
    }
    given, folder = tmp_path / "given.json", tmp_path / "out"
    given.write_text(json.dumps([item, {**item, "question_id": "q2_abs"}]), encoding="utf-8")
    done = run("convert", str(given), "--output", str(folder), "--index", name)
    assert done.returncode == 0
    assert done.stdout.startswith("2 documents and 1 golden queries written to")
    assert "1 question ('q2_abs') that nothing answers: left out" in done.stderr
    assert answer(run("convert", str(given), "--output", str(folder), "--index", name, "--json"))["documents"] == 2
    assert run("create", str(folder / "schema.toml"), url=url).returncode == 0
    assert run("load", str(folder / "documents.jsonl"), "--index", name, url=url).returncode == 0
    command = ("eval", str(folder / "golden.jsonl"), "--index", name, "--output", str(folder), "--json")
    told = answer(run(*command, url=url))
    assert {arm: each["measures"]["MRR"]["mean"] for arm, each in told["arms"].items()} == dict.fromkeys(
        ("vector", "text", "rrf", "linear", "append"), 1.0
    )
