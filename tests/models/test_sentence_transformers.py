"""SentenceTransformerEmbedder and CrossEncoderReranker over the package itself, with a real model and a made one."""

from __future__ import annotations

import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentence_transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from retriever import (
    CachedEmbedder,
    CrossEncoderReranker,
    Document,
    Hit,
    InvalidInput,
    LocalEmbedder,
    Retriever,
    Schema,
    SentenceTransformerEmbedder,
)
from tests.test_imports import resolved

TEXTS = [
    "Valkey is a fast in-memory store.",
    "How do I reset my password?",
    "The stock market fell sharply today, and investors lost money.",
    "A dog is playing in the park.",
    "Bread needs flour, water, salt and time. " * 8,
    "The ferry leaves at seven in the morning, weather permitting.",
    "a",
]


@pytest.fixture
def no_network(monkeypatch):
    """Whoever opens a connection or looks up a host fails."""

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def loads(monkeypatch):
    """Counts the models that the package loads."""
    loaded = []
    for name in ("SentenceTransformer", "CrossEncoder"):
        kind = getattr(sentence_transformers, name)

        def load(*args, kind=kind, **options):
            loaded.append(kind.__name__)
            return kind(*args, **options)

        monkeypatch.setattr(sentence_transformers, name, load)
    return loaded


# --- the embedder -----------------------------------------------------------------------------------


def test_a_folder_is_loaded_by_the_first_call_and_without_a_network(folder, no_network, loads):
    """Until the first call nothing is loaded and dims are unknown; then there are 384, and a unit vector a text."""
    embed = SentenceTransformerEmbedder(folder)
    assert (embed.dims, embed.name, loads) == (None, None, [])
    vectors = embed(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((len(TEXTS), 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (embed.dims, loads) == (384, ["SentenceTransformer"])
    assert embed([]).shape == (0, 384)


def test_threads_load_one_model_and_share_it(folder, loads, model):
    """Threads that call at once load the model once, and each gets the vectors of its own texts."""
    embed, together = SentenceTransformerEmbedder(str(folder)), threading.Barrier(4)

    def work(number):
        together.wait()
        return embed([f"text {number}", TEXTS[number]])

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert loads == ["SentenceTransformer"]
    alone = SentenceTransformerEmbedder(model)
    for number, result in enumerate(results):
        np.testing.assert_allclose(result, alone([f"text {number}", TEXTS[number]]), atol=1e-5)


def test_the_vectors_are_those_of_the_local_embedder(model):
    """The model in float32 and LocalEmbedder's in int8 agree: a cosine of at least 0.99 for every English text."""
    cosines = np.sum(SentenceTransformerEmbedder(model)(TEXTS) * LocalEmbedder()(TEXTS), axis=1)
    assert cosines.min() >= 0.99


def test_a_prompt_is_what_is_put_before_the_text(model):
    """A prompt changes the vector to that of the prompt and the text, for its own kind alone."""
    plain = SentenceTransformerEmbedder(model)
    prompted = SentenceTransformerEmbedder(model, query_prompt="query: ", document_prompt="passage: ")
    query, document = prompted.embed_query(TEXTS), prompted(TEXTS)
    np.testing.assert_allclose(query, plain([f"query: {text}" for text in TEXTS]), atol=1e-5)
    np.testing.assert_allclose(document, plain([f"passage: {text}" for text in TEXTS]), atol=1e-5)
    for one, other in ((query, document), (query, plain(TEXTS)), (document, plain(TEXTS))):
        assert np.abs(one - other).max() > 0.01


def test_the_models_own_prompts_hold_unless_replaced(folder):
    """A model that has prompts puts them before texts; "" leaves them out."""
    prompts = {"query": "query: ", "document": "passage: "}
    own = SentenceTransformer(str(folder), local_files_only=True, prompts=prompts)
    embed = SentenceTransformerEmbedder(own)
    plain = SentenceTransformerEmbedder(own, query_prompt="", document_prompt="")
    np.testing.assert_allclose(embed.embed_query(["x"]), plain(["query: x"]), atol=1e-5)
    np.testing.assert_allclose(embed(["x"]), plain(["passage: x"]), atol=1e-5)
    embed.embed_query(["word " * 253])  # fits, with the two marks around, but for what the model puts before
    assert embed.truncated == 1


def test_normalize_gives_unit_length(folder):
    """normalize makes vectors of length 1 of a model that does not itself, in the same direction."""
    whole = SentenceTransformer(str(folder), local_files_only=True)
    raw = SentenceTransformer(modules=list(whole)[:2])  # without its last module, which normalizes
    as_is, unit = SentenceTransformerEmbedder(raw, normalize=False)(TEXTS), SentenceTransformerEmbedder(raw)(TEXTS)
    lengths = np.linalg.norm(as_is, axis=1, keepdims=True)
    assert np.abs(lengths - 1).min() > 0.1
    np.testing.assert_allclose(unit, as_is / lengths, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_a_vector_does_not_depend_on_its_batch(model, batch_size):
    """Whatever the batch size and the order, a text has the same vector to 1e-5, in its own place."""
    expected = np.vstack([SentenceTransformerEmbedder(model)([text]) for text in TEXTS])
    embed = SentenceTransformerEmbedder(model, batch_size=batch_size)
    np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(embed(TEXTS[::-1]), expected[::-1], atol=1e-5)


def test_a_shorter_vector_is_the_models_matter(folder):
    """A SentenceTransformer that cuts its vectors says how long they are, and they have unit length after it."""
    embed = SentenceTransformerEmbedder(SentenceTransformer(str(folder), local_files_only=True, truncate_dim=64))
    assert embed.dims == 64
    np.testing.assert_allclose(np.linalg.norm(embed(TEXTS), axis=1), 1, atol=1e-5)


def test_a_cut_text_is_counted_and_said_once(model, caplog):
    """256 tokens pass; a text that is longer, with its prompt, is counted, warned of once and never quoted."""
    embed = SentenceTransformerEmbedder(model)
    prompted = SentenceTransformerEmbedder(model, query_prompt="query ")
    with caplog.at_level(logging.WARNING):
        whole = embed(["word " * 254])
        assert (embed.truncated, caplog.records) == (0, [])
        cut = embed(["word " * 255, "short", "word " * 254 + "secret"])
        embed(["word " * 1000])
        assert embed.truncated == 3
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("retriever", "WARNING")
    assert "SentenceTransformerEmbedder cut 2 text(s) at 256 tokens" in record.getMessage()
    assert "secret" not in record.getMessage()
    np.testing.assert_allclose(cut[[0, 2]], np.vstack([whole, whole]), atol=1e-5)
    prompted.embed_query(["word " * 253, "word " * 254])
    assert prompted.truncated == 1


# --- the reranker -----------------------------------------------------------------------------------

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the ferry leaves at seven bread needs flour water and time".split()
HITS = [Hit(str(at), 0.1 * at, " ".join(WORDS[5 + at :]), {}) for at in range(8)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes folders with a small cross-encoder of random weights, which scores anything; ``made(labels)``."""
    import torch

    def made(labels):
        folder = tmp_path_factory.mktemp("cross-encoder")
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        torch.manual_seed(7)
        config = BertConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
            num_labels=labels,
            initializer_range=1.0,  # large, so that scores differ
        )
        BertForSequenceClassification(config).save_pretrained(folder)
        BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
        return folder

    return made


@pytest.fixture(scope="module")
def cross_encoder(made):
    return made(labels=1)


def test_a_cross_encoder_scores_each_pair_by_itself(cross_encoder, no_network, loads):
    """The scores are the model's for (query, text), in the order of the hits, whatever the batch."""
    rerank = CrossEncoderReranker(cross_encoder, batch_size=3)
    assert loads == []
    found = rerank("ferry at seven", HITS)
    assert loads == ["CrossEncoder"]
    assert [hit for hit, _ in found] == HITS
    scores = [score for _, score in found]
    model = CrossEncoder(str(cross_encoder), local_files_only=True)
    expected = [float(model.predict([("ferry at seven", hit.text)])[0]) for hit in HITS]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert len({round(score, 4) for score in scores}) > 4
    assert {type(score) for score in scores} == {float}
    by_object = [score for _, score in CrossEncoderReranker(model)("ferry at seven", HITS)]
    np.testing.assert_allclose(by_object, expected, atol=1e-5)


def test_a_classifier_is_refused(made):
    """A model of three labels has no one score for a pair."""
    with pytest.raises(InvalidInput, match="gives 3 numbers for a pair, not one"):
        CrossEncoderReranker(made(labels=3))("ferry", HITS)


# --- a retriever ------------------------------------------------------------------------------------


def test_a_retriever_with_both(url, model, cross_encoder):
    """Documents are embedded, found, cached and reranked; the model tells dims and its name stays beside the index."""
    documents = [Document(str(at), text) for at, text in enumerate(TEXTS)]
    embed = CachedEmbedder(SentenceTransformerEmbedder(model, name="all-MiniLM-L6-v2", query_prompt=""))
    schema = Schema("test-models-sentence-transformers")
    with Retriever.connect(url, schema, embed=embed, rerank=CrossEncoderReranker(cross_encoder)) as docs:
        try:
            docs.create_index()
            report = docs.describe_index()
            assert (report.embedder, report.dims) == ("all-MiniLM-L6-v2", 384)
            docs.upsert(documents)
            docs.upsert(documents)
            assert (embed.misses, embed.hits) == (len(TEXTS), len(TEXTS))
            assert docs.query(text="I forgot my login credentials.", k=1)[0].id == "1"
            assert docs.query(text="The puppy runs around on the grass.", k=1)[0].id == "3"
            hits = docs.query(text="ferry at seven", k=3, rerank=True, candidates=len(TEXTS))
            scores = [hit.rerank_score for hit in hits]
            assert scores == sorted(scores, reverse=True)
            assert len(hits) == 3
        finally:
            docs.drop_index(delete_documents=True)


def test_the_extra_brings_no_client_of_another_library():
    """Neither redis-py nor redis-om comes with sentence-transformers."""
    assert not {"redis", "redis-om"} & resolved({"sentence-transformers"})
