"""A TCP proxy before the server that can break connections at a byte."""

from __future__ import annotations

import contextlib
import socket
import threading

import valkey


class Proxy:
    """Passes bytes both ways; ``with`` gives it listening, ``url`` is where.

    cut_after(n): once n more bytes have come from clients, every connection is reset: what came before
    is passed on, nothing after. refuse: new connections are closed at once. flowing: cleared, replies
    are held back until it is set again.
    """

    def __init__(self, upstream):
        self.upstream = valkey.ConnectionPool.from_url(upstream).connection_kwargs
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"valkey://127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        self.left = None
        self.refuse = False
        self.flowing = threading.Event()
        self.flowing.set()
        self.accepted = 0
        self.cuts = 0
        self.sockets = set()
        self.threads = []

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        # shutdown, not only close: it wakes the thread that waits in accept.
        self.flowing.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()

    def cut_after(self, count):
        with self.lock:
            self.left = count

    def cut(self):
        """Break every connection now."""
        with self.lock:
            for each in self.sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    @property
    def open(self):
        """How many connections of clients are open."""
        with self.lock:
            return len(self.sockets) // 2

    def _start(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self.refuse:
                client.close()
                continue
            server = self._connect()
            with self.lock:
                self.sockets |= {client, server}
            self._start(self._serve, client, server)

    def _connect(self):
        if "path" in self.upstream:
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.upstream["path"])
            return server
        return socket.create_connection((self.upstream["host"], self.upstream.get("port", 6379)))

    def _serve(self, client, server):
        back = threading.Thread(target=self._pump, args=(server, client, False), daemon=True)
        back.start()
        self._pump(client, server, True)
        back.join()
        with self.lock:
            self.sockets -= {client, server}
        client.close()
        server.close()

    def _pump(self, source, target, counted):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if counted and self._counts_down(target, data):
                    break
                if not counted:
                    self.flowing.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _counts_down(self, target, data):
        """Whether these bytes reach the cut; then what is before it has been passed on."""
        with self.lock:
            if self.left is None:
                return False
            passed, self.left = data[: self.left], self.left - len(data)
            if self.left > 0:
                return False
            self.left = None
            self.cuts += 1
        target.sendall(passed)
        return True
