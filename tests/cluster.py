"""A cluster of three Valkey nodes from the binaries that the embedded engine has."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import valkey

from retriever import embedded

SLOTS = 16384


class Cluster:
    """Three primaries; ``with`` gives it running, ``url`` leads to the first. search: each loads RediSearch."""

    def __init__(self, *, search):
        binary, module = embedded._find_server()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="retriever-cluster-"))
        self.argv = [binary, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--bind", "127.0.0.1"]
        self.argv += ["--save", "", "--logfile", "server.log", *(["--loadmodule", module] if search else [])]
        self.ports = [_free_port() for _ in range(3)]
        self.processes = [None] * 3

    @property
    def url(self):
        return f"valkey://127.0.0.1:{self.ports[0]}"

    def __enter__(self):
        try:
            for at in range(3):
                self.start(at)
            self._join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for at in range(3):
            self.kill(at)
        shutil.rmtree(self.folder)

    def start(self, at):
        """Start a node, or start it again; it keeps what the cluster is, not what it held."""
        folder = self.folder / str(at)
        folder.mkdir(exist_ok=True)
        argv = [*self.argv, "--dir", str(folder), "--port", str(self.ports[at]), "--cluster-port", str(_free_port())]
        self.processes[at] = subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=folder)
        _until(lambda: self.node(at).ping())

    def kill(self, at):
        process, self.processes[at] = self.processes[at], None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def node(self, at):
        """A client of one node alone."""
        return valkey.Valkey(port=self.ports[at], socket_timeout=5)

    def wait_until(self, state):
        """Until every running node says that the cluster is ``ok`` or in ``fail``."""
        for at in range(3):
            if self.processes[at] is not None:
                _until(lambda at=at: self.node(at).cluster("INFO")["cluster_state"] == state)

    def _join(self):
        per = SLOTS // 3 + 1
        for at in range(3):
            with self.node(at) as node:
                node.execute_command("CLUSTER", "ADDSLOTSRANGE", at * per, min(SLOTS, (at + 1) * per) - 1)
                node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        with self.node(0) as first:
            for at in (1, 2):
                with self.node(at) as other:
                    bus = other.config_get("cluster-port")["cluster-port"]
                first.execute_command("CLUSTER", "MEET", "127.0.0.1", self.ports[at], bus)
        self.wait_until("ok")


def move_slot(cluster, slot, source, target):
    """Give a slot's keys and the slot itself to another node, as resharding does; clients learn of it by MOVED."""
    with cluster.node(source) as old, cluster.node(target) as new:
        ids = [node.execute_command("CLUSTER", "MYID").decode() for node in (old, new)]
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        while keys := old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            old.execute_command("MIGRATE", "127.0.0.1", cluster.ports[target], "", 0, 5000, "KEYS", *keys)
        for at in (target, source, 3 - source - target):
            with cluster.node(at) as node:
                node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _until(holds, seconds=20):
    give_up = time.monotonic() + seconds
    while True:
        with contextlib.suppress(valkey.exceptions.ConnectionError):
            if holds():
                return
        assert time.monotonic() < give_up, "the cluster did not get there"
        time.sleep(0.02)
