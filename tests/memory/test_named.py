"""Embedders and rerankers by the names that options and the environment give."""

from __future__ import annotations

import pytest

from retriever import CrossEncoderReranker, LocalEmbedder, SentenceTransformerEmbedder
from retriever.errors import InvalidInput
from retriever.memory.named import embedder_named, reranker_named
from tests.fakes import Embedder

OBJECT = Embedder(width=3)


def test_local():
    """The word "local" is the embedder that needs no network."""
    assert isinstance(embedder_named("local"), LocalEmbedder)


def test_ones_own():
    """module:name is that object; a class is made."""
    assert isinstance(embedder_named("tests.fakes:Embedder"), Embedder)
    assert embedder_named(f"{__name__}:OBJECT") is OBJECT
    assert reranker_named(f"{__name__}:OBJECT") is OBJECT


@pytest.mark.parametrize("name", ["BAAI/bge-small-en-v1.5", "/models/mine", "C:\\models\\mine", "./mine"])
def test_anything_else_is_a_model(name):
    """By its name or its folder; none is loaded yet."""
    assert isinstance(embedder_named(name), SentenceTransformerEmbedder)
    assert isinstance(reranker_named(name), CrossEncoderReranker)


@pytest.mark.parametrize("name", ["nowhere:nothing", "tests.fakes:nothing"])
def test_what_is_not_there_is_told(name):
    """With the name as it was given."""
    with pytest.raises(InvalidInput, match=f"embedder: there is no '{name}' to import"):
        embedder_named(name)
    with pytest.raises(InvalidInput, match=f"reranker: there is no '{name}' to import"):
        reranker_named(name)
