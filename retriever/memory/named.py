"""Embedders and rerankers by name, as an option or an environment variable gives them.

Rule: a name says which, and nothing is guessed: ``local``; ``module:name`` for one of your own; anything else is a
model of sentence-transformers, by its name on the Hugging Face hub or its folder.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from fields.errors import InvalidInput
from retriever.embedders import Embedder, LocalEmbedder
from retriever.models import CrossEncoderReranker, SentenceTransformerEmbedder
from retriever.rerankers import Reranker

_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # not C:\models\mine


def embedder_named(name: str) -> Embedder:
    """The embedder of that name; no model is loaded before its first use.

    name: "local", which is ``LocalEmbedder``; "module:name" for an object, or a class that is made without arguments;
        else a model's name or folder, for ``SentenceTransformerEmbedder``. InvalidInput for what is not there.
    """
    if name == "local":
        return LocalEmbedder()
    found: Embedder = _own(name, "embedder") if _OBJECT.fullmatch(name) else SentenceTransformerEmbedder(name)
    return found


def reranker_named(name: str) -> Reranker:
    """The reranker of that name: "module:name", else a model's name or folder, for ``CrossEncoderReranker``."""
    found: Reranker = _own(name, "reranker") if _OBJECT.fullmatch(name) else CrossEncoderReranker(name)
    return found


def _own(name: str, what: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{what}: there is no {name!r} to import: {error}") from error
    return found() if isinstance(found, type) else found
