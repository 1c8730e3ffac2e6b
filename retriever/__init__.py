"""valkey-retriever: makes Valkey (with Valkey Search) or any RediSearch server a retriever.

Everything documented is imported from here.
"""

from pathlib import Path as _Path

import fields as _fields

if _Path(_fields.__file__ or "").resolve().parent.parent != _Path(__file__).resolve().parent.parent:
    raise ImportError(
        f"{_fields.__file__ or _fields.__path__} shadows the package 'fields' that retriever needs; "
        f"rename it (a file fields.py beside your script is found first)"
    )

from fields.analysis import Analysis
from fields.filters import Filter
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from fields.names import SCORE_FIELD, TEXT_FIELD
from retriever.client import AsyncRetriever, Retriever
from retriever.documents import (
    Document,
    Failure,
    Hit,
    Hits,
    IndexReport,
    Interruption,
    Operation,
    UpsertReport,
    interruption,
)
from retriever.embedded import EmbeddedServer
from retriever.embedders import Embedder, LocalEmbedder
from retriever.engines import Engine
from retriever.errors import (
    IndexMissing,
    InvalidInput,
    MissingExtra,
    NotSupported,
    PermissionDenied,
    ReplyError,
    RetrieverError,
    SchemaMismatch,
    SearchTimeout,
    ServerError,
)
from retriever.operations.search import Query
from retriever.queries import build_ft_search_query
from retriever.rerankers import Reranker
from retriever.schema import Schema, build_ft_create_args

__all__ = [
    "SCORE_FIELD",
    "TEXT_FIELD",
    "Analysis",
    "AsyncRetriever",
    "Document",
    "EmbeddedServer",
    "Embedder",
    "Engine",
    "Failure",
    "Filter",
    "Hit",
    "Hits",
    "IndexMissing",
    "IndexReport",
    "Interruption",
    "InvalidInput",
    "LocalEmbedder",
    "MissingExtra",
    "NotSupported",
    "Numeric",
    "Operation",
    "PermissionDenied",
    "Query",
    "ReplyError",
    "Reranker",
    "Retriever",
    "RetrieverError",
    "Schema",
    "SchemaMismatch",
    "SearchTimeout",
    "ServerError",
    "Stored",
    "Tag",
    "Text",
    "UpsertReport",
    "Vector",
    "build_ft_create_args",
    "build_ft_search_query",
    "interruption",
]
