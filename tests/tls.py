"""A TLS-terminating proxy before the server, with certificates made for the test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading

import trustme
import valkey
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat


class Authority:
    """An authority of the test's own; its files lie in ``folder``."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = trustme.CA()
        self.path = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.path)

    def server(self, *hosts, client_certificates=False):
        """A context for a server of these names; client_certificates: it asks for one of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*hosts).configure_cert(context)
        if client_certificates:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context

    def client(self, name):
        """The paths of a client's certificate and of its key."""
        issued = self.ca.issue_cert(name)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        return certificate, key


def encrypted_key(folder, password):
    """The path of a private key that needs a password to be read."""
    path = folder / "encrypted.key"
    path.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
        )
    )
    return path


class TlsProxy:
    """Speaks TLS with clients and passes plain bytes on; ``with`` gives it listening, ``port`` is where.

    One event loop in a thread of its own: two threads may not read and write one TLS socket at a time.
    """

    def __init__(self, upstream, context):
        self.upstream = valkey.ConnectionPool.from_url(upstream).connection_kwargs
        self.context = context
        self.versions = set()
        self.loop = asyncio.new_event_loop()
        # Handshakes that fail are what tests are about; the loop would log each with its traceback.
        self.loop.set_exception_handler(lambda loop, context: None)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.tasks = set()
        self.server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context))
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_):
        self._run(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.loop.close()

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    async def _stop(self):
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        self.versions.add(writer.get_extra_info("ssl_object").version())
        if "path" in self.upstream:
            there, back = await asyncio.open_unix_connection(self.upstream["path"])
        else:
            there, back = await asyncio.open_connection(self.upstream["host"], self.upstream.get("port", 6379))
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            for each in (writer, back):
                each.transport.abort()

    async def _pump(self, source, target):
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        with contextlib.suppress(OSError):
            target.close()
