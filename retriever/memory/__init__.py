"""An agent's long-term memory, kept in the index itself: ``MemoryStore.open(url, namespace=..., embed=...)``.

docs/memory.md tells what it does. Younger than the rest of the library: it may still change.
"""

from retriever.memory.chunks import Chunk
from retriever.memory.indexing import Finding, Health, Indexed, Stats
from retriever.memory.ingesting import Ingested, IngestReport
from retriever.memory.keeping import CLEAR, Erased, Forgotten, Restored
from retriever.memory.materials import Note
from retriever.memory.policy import Policy
from retriever.memory.rebuilding import Rebuilt
from retriever.memory.roots import Roots
from retriever.memory.searching import Context, Found
from retriever.memory.sources import RULES
from retriever.memory.store import AsyncMemoryStore, MemoryStore

__all__ = [
    "CLEAR",
    "RULES",
    "AsyncMemoryStore",
    "Chunk",
    "Context",
    "Erased",
    "Finding",
    "Forgotten",
    "Found",
    "Health",
    "Indexed",
    "IngestReport",
    "Ingested",
    "MemoryStore",
    "Note",
    "Policy",
    "Rebuilt",
    "Restored",
    "Roots",
    "Stats",
]
