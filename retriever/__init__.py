"""valkey-retriever: makes Valkey (with Valkey Search) or any RediSearch server a retriever.

Everything documented is imported from here.
"""

from importlib.util import find_spec as _find_spec
from pathlib import Path as _Path

# Looked up, not imported: a fields.py that is not ours may itself import retriever.
if (_spec := _find_spec("fields")) is None:
    raise ImportError("the package 'fields' that comes with retriever is missing; reinstall valkey-retriever")
if _Path(_spec.origin or "").resolve().parent.parent != _Path(__file__).resolve().parent.parent:
    _found = _spec.origin or ", ".join(_spec.submodule_search_locations or ())
    raise ImportError(
        f"{_found} shadows the package 'fields' that retriever needs; "
        f"rename it (a fields.py or a folder fields beside your script is found first)",
        name="fields",
        path=_found,
    )

from fields.analysis import Analysis
from fields.filters import Filter
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from fields.names import SCORE_FIELD, TEXT_FIELD
from retriever.cached import AsyncCachedEmbedder, CachedEmbedder
from retriever.client import AsyncRetriever, Retriever
from retriever.documents import (
    Document,
    Failure,
    FusedHit,
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
from retriever.engines import (
    REDIS_8,
    REDISEARCH_2,
    VALKEY_SEARCH_1_0,
    VALKEY_SEARCH_1_2,
    VALKEY_SEARCH_1_3,
    Engine,
)
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
from retriever.fusion import Append, Linear, Rrf, rrf
from retriever.models import CrossEncoderReranker, SentenceTransformerEmbedder
from retriever.operations.retrieve import Retrieval
from retriever.operations.search import Query
from retriever.queries import build_ft_search_query
from retriever.rerankers import Reranker
from retriever.schema import Schema, build_ft_create_args

__all__ = [
    "REDISEARCH_2",
    "REDIS_8",
    "SCORE_FIELD",
    "TEXT_FIELD",
    "VALKEY_SEARCH_1_0",
    "VALKEY_SEARCH_1_2",
    "VALKEY_SEARCH_1_3",
    "Analysis",
    "Append",
    "AsyncCachedEmbedder",
    "AsyncRetriever",
    "CachedEmbedder",
    "CrossEncoderReranker",
    "Document",
    "EmbeddedServer",
    "Embedder",
    "Engine",
    "Failure",
    "Filter",
    "FusedHit",
    "Hit",
    "Hits",
    "IndexMissing",
    "IndexReport",
    "Interruption",
    "InvalidInput",
    "Linear",
    "LocalEmbedder",
    "MissingExtra",
    "NotSupported",
    "Numeric",
    "Operation",
    "PermissionDenied",
    "Query",
    "ReplyError",
    "Reranker",
    "Retrieval",
    "Retriever",
    "RetrieverError",
    "Rrf",
    "Schema",
    "SchemaMismatch",
    "SearchTimeout",
    "SentenceTransformerEmbedder",
    "ServerError",
    "Stored",
    "Tag",
    "Text",
    "UpsertReport",
    "Vector",
    "build_ft_create_args",
    "build_ft_search_query",
    "interruption",
    "rrf",
]
