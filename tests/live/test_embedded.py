"""The embedded server as a process: shared, killed, restarted, and never left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import valkey

from retriever import embedded
from retriever.embedded import EmbeddedServer
from retriever.errors import InvalidInput, NotSupported, ServerError

try:
    embedded._find_server()
    missing = ""
except NotSupported as error:
    missing = str(error)
pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(missing), reason=missing)]

PATIENCE_S = 20  # a bound for polling, not a promise

# A user in a process of its own: says which server it has, then waits for its end of input.
USER = """
import sys
import valkey
from retriever.embedded import EmbeddedServer
with EmbeddedServer(sys.argv[1] or None) as url:
    with valkey.from_url(url) as client:
        print(client.info("server")["process_id"], url, flush=True)
    sys.stdin.read()
"""


def python(code, *args, **more):
    root = str(Path(embedded.__file__).parents[1])
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    argv = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, **more)


@contextlib.contextmanager
def users(*folders):
    """One process for each folder, all started before any is waited for; yields [(process, pid, url)]."""
    processes = [python(USER, folder) for folder in folders]
    try:
        said = [process.stdout.readline().split() for process in processes]
        yield [(process, int(pid), url) for process, (pid, url) in zip(processes, said, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def leave(process):
    process.communicate()
    assert process.returncode == 0


def running():
    """What this test started and still lives, pid -> command line; a zombie is init's to collect.

    Known by environment, or by working folder: the server overwrites its environment with its title.
    """
    root = os.environ["XDG_RUNTIME_DIR"].removesuffix("run")
    found = {}
    for pid in set(filter(str.isdigit, os.listdir("/proc"))) - {str(os.getpid())}:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            ours = f"XDG_RUNTIME_DIR={root}run".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            if state != "Z" and (ours or os.readlink(f"/proc/{pid}/cwd").startswith(root)):
                found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return found


def children():
    """Pids of this process's children, zombies among them."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(pid)
    return found


def until(condition):
    give_up = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < give_up, "waited too long"
        time.sleep(0.005)
    return value


def run(url, *command):
    with valkey.from_url(url, decode_responses=True) as client:
        return client.execute_command(*command)


def kill_server(url):
    with valkey.from_url(url) as client:
        os.kill(client.info("server")["process_id"], signal.SIGKILL)


def fill(url, documents=20):
    with valkey.from_url(url) as client:
        vector = ("VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "L2")
        client.execute_command("FT.CREATE", "docs", "PREFIX", 1, "docs:", "SCHEMA", "embedding", *vector)
        pipeline = client.pipeline(transaction=False)
        for i in range(documents):
            pipeline.hset(f"docs:{i}", "embedding", struct.pack("<4f", i, i % 7, 1, 0))
        pipeline.execute()


def nearest_to_three(url):
    """How many documents the index has, and the key of the nearest one to document 3."""
    with valkey.from_url(url, decode_responses=True) as client:
        count = dict(zip(*[iter(client.execute_command("FT.INFO", "docs"))] * 2, strict=True))["num_docs"]
        words = ("PARAMS", 2, "v", struct.pack("<4f", 3, 3, 1, 0), "RETURN", 0, "DIALECT", 2)
        hits = client.execute_command("FT.SEARCH", "docs", "*=>[KNN 1 @embedding $v]", *words)
        return int(count), hits[1]


@pytest.fixture(autouse=True)
def home(monkeypatch):
    """A folder for the test, its temporary files and its sockets; after the test nothing may be left.

    Nothing: no process, child, thread, open file, socket or temporary folder. Of its own and with a short
    path, so that other tests on this machine are not counted and sockets fit.
    """
    threads, files, before = threading.active_count(), len(os.listdir("/proc/self/fd")), children()
    with tempfile.TemporaryDirectory(prefix="eb-", dir="/tmp") as root:
        for name in ("run", "tmp", "data"):
            os.mkdir(f"{root}/{name}", 0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{root}/run")
        monkeypatch.setenv("TMPDIR", f"{root}/tmp")
        monkeypatch.setattr(tempfile, "tempdir", f"{root}/tmp")
        yield Path(root, "data")
        until(lambda: not running())
        assert os.listdir(f"{root}/tmp") == []
        assert list(Path(root, "run").glob("*/*")) == []
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= files
    assert children() <= before


def test_with_gives_a_url_that_answers_searches():
    """Inside the with block the search module answers; afterwards nothing does."""
    with EmbeddedServer() as url:
        assert url.startswith("unix:///")
        assert run(url, "FT._LIST") == []
        assert len(running()) == 2  # the server and its keeper
    assert not running()
    with pytest.raises(valkey.ConnectionError):
        run(url, "PING")


def test_start_and_stop_are_the_same_without_with():
    """start() twice gives one server; stop() twice is one stop; an object starts again, empty."""
    server = EmbeddedServer()
    url = server.start()
    assert server.start() == url == server.url
    run(url, "SET", "a", "1")
    server.stop()
    server.stop()
    with pytest.raises(ServerError, match="not running"):
        server.url  # noqa: B018 -- the property raises
    with server as url:
        assert run(url, "DBSIZE") == 0


def test_temporary_servers_are_private_and_keep_nothing():
    """Two objects without a data_dir have two servers, with neither snapshots nor append-only file."""
    with EmbeddedServer() as one, EmbeddedServer() as other:
        run(one, "SET", "a", "1")
        assert run(other, "DBSIZE") == 0
        assert run(one, "CONFIG", "GET", "save") == ["save", ""]
        assert run(one, "CONFIG", "GET", "appendonly") == ["appendonly", "no"]


def test_only_the_owner_can_reach_it(home):
    """Folder, socket and files are the owner's alone, and no TCP port is open unless asked for."""
    with EmbeddedServer(home / "new") as url:
        path = Path(url.removeprefix("unix://"))
        assert stat.S_IMODE((home / "new").stat().st_mode) == 0o700
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert all(file.stat().st_mode & 0o077 == 0 for file in (home / "new").rglob("*"))
        assert run(url, "CONFIG", "GET", "port") == ["port", "0"]


def test_a_port_is_on_loopback_only():
    """port=0 gives a free port of 127.0.0.1."""
    with EmbeddedServer(port=0) as url:
        assert url.startswith("valkey://127.0.0.1:")
        assert run(url, "CONFIG", "GET", "bind") == ["bind", "127.0.0.1"]


def test_a_port_that_is_taken_is_told_with_the_log():
    """A server that dies at start is an error that ends with what it logged."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = EmbeddedServer(port=taken.getsockname()[1])
        with pytest.raises(ServerError, match=r"(?s)did not start.*in use"):
            server.start()


def test_a_running_server_is_not_given_another_port(home):
    """Who joins with a port that the running server has not is refused; the others keep it."""
    with EmbeddedServer(home, port=0) as url:
        port = int(url.rpartition(":")[2])
        with EmbeddedServer(home, port=port) as same, EmbeddedServer(home, port=0) as any_port:
            assert url == same == any_port
        with pytest.raises(ServerError, match=f"already runs at port {port}.*leave port out"):
            EmbeddedServer(home, port=port - 1).start()
        with EmbeddedServer(home) as unix:
            assert run(unix, "PING")
        assert run(url, "PING")


def test_documents_and_index_survive_a_restart(home):
    """stop() and start() on one folder find index and documents, and the URL comes when all are loaded."""
    with EmbeddedServer(home) as url:
        fill(url, documents=2000)
    with EmbeddedServer(home) as url:
        assert nearest_to_three(url) == (2000, "docs:3")


def test_documents_and_index_survive_sigkill_of_the_server(home):
    """A server killed by SIGKILL loses nothing it confirmed, and the next start is a new server."""
    server = EmbeddedServer(home)
    fill(server.start())
    kill_server(server.url)
    with EmbeddedServer(home) as url:
        assert nearest_to_three(url) == (20, "docs:3")
        assert run(server.url, "PING")  # the users of the dead one find it at the same place
    server.stop()


def test_a_torn_end_of_the_append_only_file_loses_only_the_torn(home):
    """A write that was cut off in the middle is dropped, all before it is there."""
    with EmbeddedServer(home) as url:
        fill(url)
        run(url, "SET", "last", "x" * 100)
    (file,) = home.glob("appendonlydir/*.incr.aof")
    os.truncate(file, file.stat().st_size - 10)
    with EmbeddedServer(home) as url:
        assert nearest_to_three(url) == (20, "docs:3")
        assert run(url, "EXISTS", "last") == 0


@pytest.mark.parametrize("kind", ["", "kept"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_owner_leaves_no_server_behind(home, kind, how):
    """However the only user dies, its server ends, cleanly: temporary or with a folder."""
    folder = home / kind if kind else ""
    with users(folder) as [(owner, _, url)]:
        if kind:
            fill(url)
        owner.send_signal(how)
        owner.communicate()
        until(lambda: not running())
    if kind:
        with EmbeddedServer(folder) as url:
            assert nearest_to_three(url) == (20, "docs:3")


def test_two_objects_and_two_processes_share_one_server(home):
    """Whoever opens a folder gets the server that runs on it."""
    with users(home, home) as [(_, pid, url), (_, other_pid, other_url)]:
        assert (pid, url) == (other_pid, other_url)
        with EmbeddedServer(home) as here, EmbeddedServer(str(home) + "/.") as again:
            assert url == here == again
        assert run(url, "PING")


@pytest.mark.parametrize("how", ["leaves", "is killed"])
def test_the_server_stays_while_another_uses_it(home, how):
    """The starter may leave or be killed first; the last user's end is the server's."""
    with users(home) as [(starter, pid, url)], users(home) as [(last, same, _)]:
        assert pid == same
        leave(starter) if how == "leaves" else starter.kill()
        starter.wait()
        time.sleep(0.2)  # long enough for a wrong end to show
        run(url, "SET", "a", "1")
        last.kill()
        until(lambda: not running())


def test_eight_at_once_start_one_server(home):
    """Processes that open a folder at the same moment get one server between them."""
    with users(*[home] * 8) as eight:
        assert len({(pid, url) for _, pid, url in eight}) == 1


def test_a_storm_of_openings_has_one_server_at_a_time(home):
    """Opening and closing from many threads counts every write once: no two servers hold the folder."""
    failed = []

    def open_often():
        try:
            for _ in range(6):
                with EmbeddedServer(home) as url:
                    run(url, "INCR", "openings")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=open_often) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with EmbeddedServer(home) as url:
        assert run(url, "GET", "openings") == "30"


def test_a_killed_keeper_takes_the_server_along(home):
    """The server does not outlive the process that watches it, and the next start is a new one."""
    server = EmbeddedServer(home)
    fill(server.start())
    (keeper,) = [pid for pid, words in running().items() if "waitid" in words]
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not running())
    with EmbeddedServer(home) as url:
        assert nearest_to_three(url) == (20, "docs:3")
    server.stop()


def test_a_forked_child_does_not_end_the_parents_server():
    """A child that exits, or calls stop(), leaves its parent's server up; it can use it by its URL."""
    script = """
import os, sys, valkey
from retriever.embedded import EmbeddedServer
with EmbeddedServer() as url:
    pid = os.fork()
    if not pid:
        with valkey.from_url(url) as client:
            client.set("from", "child")
        sys.exit()  # leaves the with block: stop()
    assert os.waitpid(pid, 0)[1] == 0
    with valkey.from_url(url) as client:
        print(client.get("from").decode())
"""
    process = python(script)
    assert process.communicate()[0] == "child\n"
    assert process.returncode == 0


def test_a_forked_child_does_not_keep_the_server_alive():
    """A child that outlives its parent, worker pools do, holds no server up."""
    script = """
import os, sys, time, valkey
from retriever.embedded import EmbeddedServer
server = EmbeddedServer()
with valkey.from_url(server.start()) as client:
    pid = client.info("server")["process_id"]
child = os.fork()
if not child:
    time.sleep(60)
print(pid, child, flush=True)
os.kill(os.getpid(), 9)
"""
    process = python(script)
    pid, child = map(int, process.stdout.readline().split())
    try:
        until(lambda: pid not in running())
        assert Path(f"/proc/{child}").exists()
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_blanks_quotes_and_length_in_the_path_are_fine(home):
    """A folder's path may hold anything and be longer than a socket's path may."""
    folder = home / "two  blanks 'quote\" \\ é" / ("x" * 120)
    with EmbeddedServer(folder) as url:
        fill(url)
    assert (folder / "appendonlydir").is_dir()
    with EmbeddedServer(folder) as url:
        assert nearest_to_three(url) == (20, "docs:3")


def test_no_configuration_is_read_from_the_working_directory(home, monkeypatch):
    """A valkey.conf or redis.conf that lies about is not ours."""
    for name in ("valkey.conf", "redis.conf"):
        (home / name).write_text("maxmemory 123mb\n")
    monkeypatch.chdir(home)
    with EmbeddedServer("data") as url:
        assert run(url, "CONFIG", "GET", "maxmemory") == ["maxmemory", "0"]
    assert (home / "data/appendonlydir").is_dir()


@pytest.mark.parametrize("below", ["", "folder"])
def test_a_data_dir_that_is_a_file_is_refused(home, below):
    """A file, or a folder below a file, is your error and named."""
    (home / "file").write_text("x")
    with pytest.raises(InvalidInput, match="file"):
        EmbeddedServer(home / "file" / below).start()


def test_a_folder_that_cannot_be_written_is_refused():
    """A read-only folder is refused before anything is started. (Root may write anywhere: it becomes nobody.)"""
    script = """
import os, sys
from retriever import embedded
found = embedded._find_server()
embedded._find_server = lambda: found
if os.getuid() == 0:
    os.setuid(65534)
try:
    embedded.EmbeddedServer(sys.argv[1]).start()
except embedded.InvalidInput as error:
    print(error)
"""
    folder = tempfile.mkdtemp(dir="/tmp")
    try:
        os.chmod(folder, 0o555)
        assert "is not writable; give a folder" in python(script, folder).communicate()[0]
    finally:
        shutil.rmtree(folder)


def test_a_start_out_of_time_leaves_no_server(home):
    """When timeout_s is over the error says so, and the server that was being started is ended."""
    with pytest.raises(ServerError, match=r"timeout_s=0\.001"):
        EmbeddedServer(home, timeout_s=0.001).start()
    assert not running()
