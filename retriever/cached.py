"""Vectors kept for texts that come again: in memory, or in Valkey for every process and the next one.

Rule: a cache may be slow or empty, never wrong. A key is a hash of the model's name, the kind and the text, so it
tells no text; what is read is checked before it counts, and a damaged entry is embedded and written again. A
server that cannot be reached is an error like any other: to embed silently instead would hide it, and its bill.

What to ask and what to embed is decided in one generator; the two classes answer it, one blocking, one awaited.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fields.names import utf8
from fields.vectors import embedding_matrix
from retriever.embedders import Embedder, embed_function, embedder_dims, embedder_name, is_async, positive, type_of
from retriever.errors import InvalidInput, classify, is_refusal
from retriever.links import check_client, is_cluster

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from retriever.documents import EmbedKind

__all__ = ["AsyncCachedEmbedder", "CachedEmbedder"]

# As the vectors of documents are stored; a machine of the other byte order reads the same.
_FLOAT32 = np.dtype("<f4")
# 10,000: arbitrary; 15 MB of vectors of 384 numbers.
_MAX_ENTRIES = 10_000
# 31,000 years: arbitrary; the server refuses an expiry whose milliseconds are beyond 2**63, with each SET.
_MAX_TTL_S = 10**12
# Keys looked at by one SCAN and removed by one pipeline. Arbitrary.
_CLEAR_SIZE = 1000
# Bytes of a hash in a key, written as twice as many hexadecimal digits: of the model's name, and of the text.
_NAME_HASH, _TEXT_HASH = 8, 20

_Command: TypeAlias = "tuple[Any, ...]"


class _Send(NamedTuple):
    """Commands for the server; answered with their replies."""

    commands: list[_Command]


class _Embed(NamedTuple):
    """Texts for the embedder; answered with what it returned."""

    function: Callable[..., Any]
    texts: list[str]


_Plan: TypeAlias = "Generator[_Send | _Embed, Any, NDArray[np.float32]]"


class _Cache:
    """What the two have in common: keys, checks, counts, and which texts are to be embedded."""

    def __init__(
        self,
        embed: Embedder,
        *,
        client: Any = None,
        ttl_s: float | None = None,
        prefix: str = "embedding:",
        max_entries: int | None = None,
    ) -> None:
        self._embed = embed
        self._functions = {kind: embed_function(embed, kind) for kind in ("document", "query")}
        self._model_name = embedder_name(embed)
        self._width = embedder_dims(embed)
        self._client = client
        self._ttl_ms = None if ttl_s is None else _milliseconds(ttl_s)
        self._memory: _Memory | None = None
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        if client is None:
            if ttl_s is not None:
                raise InvalidInput(
                    "ttl_s is of entries in Valkey, and there is no client; in memory max_entries bounds"
                )
            self._memory = _Memory(_MAX_ENTRIES if max_entries is None else positive(max_entries, "max_entries"))
        elif max_entries is not None:
            raise InvalidInput("max_entries is of a cache in memory; in Valkey ttl_s and the server's maxmemory bound")
        elif self._model_name is None:
            raise InvalidInput(
                f"{type_of(embed)} without a name cannot be cached in Valkey: another model's vectors for the same "
                "texts would be taken for its own; give it an attribute name, or cache in memory"
            )
        if not isinstance(prefix, str) or not prefix:
            raise InvalidInput(f"prefix is {prefix!r}, not a non-empty str")
        utf8(prefix, "prefix")
        self._prefix = f"{prefix}{_digest(self._model_name, _NAME_HASH)}:".encode()

    @property
    def name(self) -> str | None:
        """The embedder's name."""
        return self._model_name

    @property
    def dims(self) -> int | None:
        """The embedder's dims; where it does not say, the length of what it has embedded here, None before that."""
        return embedder_dims(self._embed) or self._width

    @property
    def truncated(self) -> int:
        """The embedder's count of texts that it cut, which are not counted again when their vectors are found here.

        Raises AttributeError if the embedder does not count.
        """
        count: int = self._embed.truncated  # type: ignore[attr-defined]
        return count

    @property
    def hits(self) -> int:
        """How many texts were answered without the embedder, also those that came twice in one call."""
        return self._hits

    @property
    def misses(self) -> int:
        """How many texts the embedder was asked for; with ``hits`` it makes the number of all texts."""
        return self._misses

    def __repr__(self) -> str:
        where = "in memory" if self._memory is not None else "in Valkey"
        name = self._model_name or "without a name"
        return f"<{type(self).__name__} {name}, {where}, hits={self._hits}, misses={self._misses}>"

    def _plan(self, texts: Sequence[str], kind: EmbedKind) -> _Plan:
        if isinstance(texts, str):
            raise InvalidInput("texts is one str, whose characters would be embedded one by one; pass [text]")
        texts = list(texts)
        keys = [self._key(text, kind) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))  # each text once, in the order of its first coming
        found = self._whole(dict(zip(wanted, (yield from self._read(list(wanted))), strict=True)))
        embedded = 0
        # Once; and again where the embedder's first vectors tell that what was read is of another length.
        while missing := [key for key in wanted if key not in found]:
            function = self._functions[kind]
            rows = self._rows((yield _Embed(function, [wanted[key] for key in missing])), len(missing))
            fresh = {key: row.tobytes() for key, row in zip(missing, rows, strict=True)}
            yield from self._write(fresh)
            embedded += len(missing)
            found = self._whole(found | fresh)
        with self._lock:
            self._misses += embedded
            self._hits += len(texts) - embedded
        vectors = np.frombuffer(b"".join(found[key] for key in keys), _FLOAT32)
        # A copy: frombuffer gives what cannot be written to.
        return vectors.reshape(len(texts), -1 if texts else self.dims or 0).astype(np.float32)

    def _key(self, text: str, kind: EmbedKind) -> bytes:
        if not isinstance(text, str):
            raise InvalidInput(f"a text is {type_of(text)}, not a str")
        return self._prefix + _digest([kind, text], _TEXT_HASH).encode()

    def _read(self, keys: list[bytes]) -> Generator[_Send, Any, list[Any]]:
        if not keys:
            return []
        if self._memory is not None:
            return self._memory.read(keys)
        if is_cluster(self._client):  # where one command's keys must be of one slot
            replies: list[Any] = yield _Send([("GET", key) for key in keys])
            return replies
        (reply,) = yield _Send([("MGET", *keys)])
        return list(reply)

    def _write(self, vectors: dict[bytes, bytes]) -> Generator[_Send, Any, None]:
        if self._memory is not None:
            self._memory.write(vectors)
            return
        expiry = () if self._ttl_ms is None else ("PX", self._ttl_ms)
        yield _Send([("SET", key, vector, *expiry) for key, vector in vectors.items()])

    def _whole(self, entries: dict[bytes, Any]) -> dict[bytes, bytes]:
        """The entries that are vectors, all of one length."""
        found = {key: value for key, value in entries.items() if _is_vector(value)}
        width = self.dims
        if width is None:
            lengths = {len(value) for value in found.values()}
            return found if len(lengths) < 2 else {}  # nobody knows which of them are damaged
        return {key: value for key, value in found.items() if len(value) == width * _FLOAT32.itemsize}

    def _rows(self, result: Any, count: int) -> NDArray[np.float32]:
        """What the embedder returned, fit to be kept."""
        rows = embedding_matrix(result, count, None)
        if self.dims not in (None, rows.shape[1]):
            raise InvalidInput(f"the embedder returned {rows.shape[1]} dimensions, and has {self.dims}")
        if not np.isfinite(rows).all():
            raise InvalidInput("the embedder returned NaN or an infinity, which is not kept")
        self._width = rows.shape[1]
        return rows

    def _pattern(self) -> bytes:
        """Matches this model's keys and no other: the rest is of hexadecimal digits alone."""
        return re.sub(rb"([*?\[\]\\^])", rb"\\\1", self._prefix) + b"[0-9a-f]" * (2 * _TEXT_HASH)


class CachedEmbedder(_Cache):
    """An embedder that keeps vectors, so that a text is embedded once; in memory, or in Valkey.

    embed: the embedder whose vectors are kept; one that is async needs AsyncCachedEmbedder.
    client: a blocking client of valkey-py or redis-py, standalone or cluster, which stays yours. None keeps the
        vectors in this object.
    ttl_s: seconds until the server drops an entry, counted from its writing, > 0; None keeps it until the server
        needs the room (``maxmemory-policy``). With a client only.
    prefix: what the keys in Valkey begin with; a hash of the model's name and one of the text follow, so different
        models may share it. A key never tells a text, but a vector tells much of one: guard both alike.
    max_entries: most vectors kept in memory, > 0, of which the least recently used goes first; 10,000 by default.
        Without a client only.

    Call it with texts; returns float32 of shape (len(texts), dims), in the given order, yours to change. Queries
    and documents are kept apart. ``hits`` and ``misses`` count texts. ``name``, ``dims`` and ``truncated`` are the
    embedder's. In Valkey a call is one MGET (on a cluster a pipeline of GET), and a pipeline of SET for what was
    not there; a value is the vector's float32 bytes, little-endian, and one of another length or with a NaN is
    embedded and written again. Safe to share between threads; two that ask for a new text at once both embed it.

    Raises InvalidInput if an embedder without a name is to be cached in Valkey, if a text is no str, or if the
    embedder's answer is no finite (len(texts), dims). Connection errors of the client pass through unrenamed.

    >>> embed = CachedEmbedder(lambda texts: [[float(len(text)), 1.0] for text in texts])
    >>> embed(["three", "words", "three"]).tolist()
    [[5.0, 1.0], [5.0, 1.0], [5.0, 1.0]]
    >>> embed.misses, embed.hits
    (2, 1)
    """

    def __init__(
        self,
        embed: Embedder,
        *,
        client: Any = None,
        ttl_s: float | None = None,
        prefix: str = "embedding:",
        max_entries: int | None = None,
    ) -> None:
        super().__init__(embed, client=client, ttl_s=ttl_s, prefix=prefix, max_entries=max_entries)
        if client is not None:
            check_client(client, _SHELLS, blocking=True)
        if any(map(is_async, self._functions.values())):
            raise InvalidInput(f"{type_of(embed)} is async; AsyncCachedEmbedder takes it")

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """One vector per text, embedded as a document."""
        return self._run(self._plan(texts, "document"))

    def embed_query(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """One vector per text, embedded as a query."""
        return self._run(self._plan(texts, "query"))

    def clear(self) -> int:
        """Forget this model's vectors under this prefix; how many there were. In Valkey a SCAN, and an UNLINK a key."""
        if self._memory is not None:
            return self._memory.clear()
        removed: int = 0
        batch: list[_Command] = []
        for key in self._client.scan_iter(match=self._pattern(), count=_CLEAR_SIZE, NEVER_DECODE=True):
            batch.append(("UNLINK", key))
            if len(batch) == _CLEAR_SIZE:
                removed += sum(self._send(batch))
                batch = []
        removed += sum(self._send(batch))
        return removed

    def _run(self, plan: _Plan) -> NDArray[np.float32]:
        answer = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as end:
                vectors: NDArray[np.float32] = end.value
                return vectors
            answer = self._send(step.commands) if isinstance(step, _Send) else _embedded(step)

    def _send(self, commands: list[_Command]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command, NEVER_DECODE=True)
            # raise_on_error would put whole commands, vectors among them, into the message.
            return _checked(commands, pipeline.execute(raise_on_error=False))


class AsyncCachedEmbedder(_Cache):
    """``CachedEmbedder`` for ``AsyncRetriever``: to be awaited, with an async client.

    embed: async or not; one that is not runs in a thread, so that the event loop goes on.
    client: an async client of valkey-py or redis-py; None keeps the vectors in this object.
    Everything else is as in ``CachedEmbedder``.

    >>> import asyncio
    >>> embed = AsyncCachedEmbedder(lambda texts: [[float(len(text)), 1.0] for text in texts])
    >>> asyncio.run(embed(["three", "words", "three"])).tolist()
    [[5.0, 1.0], [5.0, 1.0], [5.0, 1.0]]
    """

    def __init__(
        self,
        embed: Embedder,
        *,
        client: Any = None,
        ttl_s: float | None = None,
        prefix: str = "embedding:",
        max_entries: int | None = None,
    ) -> None:
        super().__init__(embed, client=client, ttl_s=ttl_s, prefix=prefix, max_entries=max_entries)
        if client is not None:
            check_client(client, _SHELLS, blocking=False)

    async def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """See ``CachedEmbedder.__call__``."""
        return await self._run(self._plan(texts, "document"))

    async def embed_query(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """See ``CachedEmbedder.embed_query``."""
        return await self._run(self._plan(texts, "query"))

    async def clear(self) -> int:
        """See ``CachedEmbedder.clear``."""
        if self._memory is not None:
            return self._memory.clear()
        removed: int = 0
        batch: list[_Command] = []
        async for key in self._client.scan_iter(match=self._pattern(), count=_CLEAR_SIZE, NEVER_DECODE=True):
            batch.append(("UNLINK", key))
            if len(batch) == _CLEAR_SIZE:
                removed += sum(await self._send(batch))
                batch = []
        removed += sum(await self._send(batch))
        return removed

    async def _run(self, plan: _Plan) -> NDArray[np.float32]:
        answer = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as end:
                vectors: NDArray[np.float32] = end.value
                return vectors
            answer = await (self._send(step.commands) if isinstance(step, _Send) else _embedded_async(step))

    async def _send(self, commands: list[_Command]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command, NEVER_DECODE=True)
            return _checked(commands, await pipeline.execute(raise_on_error=False))


class _Memory:
    """Vectors in this process, the least recently used going first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._vectors: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            for key in keys:
                if key in self._vectors:
                    self._vectors.move_to_end(key)
            return [self._vectors.get(key) for key in keys]

    def write(self, vectors: dict[bytes, bytes]) -> None:
        with self._lock:
            for key, vector in vectors.items():
                self._vectors[key] = vector
                self._vectors.move_to_end(key)
            while len(self._vectors) > self._most:
                self._vectors.popitem(last=False)

    def clear(self) -> int:
        with self._lock:
            count = len(self._vectors)
            self._vectors.clear()
            return count


def _embedded(step: _Embed) -> Any:
    result = step.function(step.texts)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"{type_of(step.function)} returned an awaitable; AsyncCachedEmbedder takes it")
    return result


async def _embedded_async(step: _Embed) -> Any:
    if is_async(step.function):
        return await step.function(step.texts)
    result = await asyncio.to_thread(step.function, step.texts)
    return await result if inspect.isawaitable(result) else result


def _checked(commands: list[_Command], replies: list[Any]) -> list[Any]:
    """The replies; the first that is an error is raised, without the keys and vectors of its command."""
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, Exception):
            if is_refusal(reply):
                raise classify(reply, str(command[0])) from reply
            raise reply
    return replies


def _digest(value: object, size: int) -> str:
    # JSON, so that no two values read alike; it escapes lone surrogates, which have no bytes in UTF-8.
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=size).hexdigest()


def _is_vector(value: object) -> bool:
    if not isinstance(value, bytes) or not value or len(value) % _FLOAT32.itemsize:
        return False
    return bool(np.isfinite(np.frombuffer(value, _FLOAT32)).all())


def _milliseconds(ttl_s: object) -> int:
    try:
        seconds = float(ttl_s) if isinstance(ttl_s, Real) and not isinstance(ttl_s, bool) else math.nan
    except OverflowError:  # an int of 400 digits
        seconds = math.inf
    if not 0 < seconds <= _MAX_TTL_S:
        raise InvalidInput(f"ttl_s is {ttl_s!r:.80}, not a number of seconds > 0 and <= {_MAX_TTL_S:,}")
    return max(1, round(seconds * 1000))


_SHELLS = (CachedEmbedder.__name__, AsyncCachedEmbedder.__name__)
