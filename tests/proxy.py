"""A TCP proxy before the server that can break connections at a byte."""

from __future__ import annotations

import contextlib
import socket
import threading

import valkey


class Proxy:
    """Passes bytes both ways; ``with`` gives it listening, ``url`` is where.

    cut_after(n): once n more bytes have come from clients, their connection ends: what came before is
    passed on, nothing after. cut_replies_after(n): the same for what the server says. refuse: new
    connections are closed at once. flowing: cleared, replies are held back until it is set again;
    hold_after(n) clears it once n more bytes of replies have been passed on.
    """

    def __init__(self, upstream):
        self.upstream = valkey.ConnectionPool.from_url(upstream).connection_kwargs
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"valkey://127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        self.left = self.replies_left = self.held_after = None
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

    def cut_replies_after(self, count):
        with self.lock:
            self.replies_left = count

    def hold_after(self, count):
        with self.lock:
            self.held_after = count

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
        thread = threading.Thread(target=target, args=args, daemon=True, name="proxy")
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
        back = threading.Thread(target=self._pump, args=(server, client, False), daemon=True, name="proxy")
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
                if self._counts_down(target, data, "left" if counted else "replies_left"):
                    break
                if not counted:
                    data = self._held_back(target, data)
                    self.flowing.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _counts_down(self, target, data, which):
        """Whether these bytes reach the cut; then what is before it has been passed on."""
        with self.lock:
            left = getattr(self, which)
            if left is None:
                return False
            setattr(self, which, left - len(data) if left > len(data) else None)
            if left > len(data):
                return False
            self.cuts += 1
        target.sendall(data[:left])
        return True

    def _held_back(self, target, data):
        """What of these bytes is to wait; what is not has been passed on."""
        with self.lock:
            left = self.held_after
            if left is None or left > len(data):
                self.held_after = None if left is None else left - len(data)
                return data
            self.held_after = None
            self.flowing.clear()
        target.sendall(data[:left])
        return data[left:]
