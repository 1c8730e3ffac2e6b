"""An agent's long-term memory, kept in the index itself: ``MemoryStore.open(url, namespace=..., embed=...)``.

docs/memory.md tells what it does. Younger than the rest of the library: it may still change.
"""

from retriever.memory.chunks import Chunk
from retriever.memory.keeping import CLEAR
from retriever.memory.materials import Note
from retriever.memory.policy import Policy
from retriever.memory.roots import Roots
from retriever.memory.store import AsyncMemoryStore, MemoryStore

__all__ = ["CLEAR", "AsyncMemoryStore", "Chunk", "MemoryStore", "Note", "Policy", "Roots"]
