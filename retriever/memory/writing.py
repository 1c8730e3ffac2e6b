"""Writing and deleting chunks, batch by batch: the only two ways in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from retriever.documents import Document
from retriever.errors import ServerError
from retriever.memory.chunks import PENDING, indexed_text
from retriever.memory.finding import Memory
from retriever.operations import write
from retriever.operations.write import IS_DOCUMENT
from retriever.plans import Command, Plan, ask_all, raise_first
from retriever.replies import integer

BATCH = 100  # chunks embedded and written at a time; arbitrary
# A chunk and its counters at once: of a process that is killed between the two, nobody would find the counters.
_REMOVE = (
    "redis.call('HDEL', KEYS[2], ARGV[1]) redis.call('HDEL', KEYS[3], ARGV[1]) "
    f"if {IS_DOCUMENT} then return redis.call('UNLINK', KEYS[1]) end return 0"
)


def write_chunks(memory: Memory, documents: Sequence[Document], *, pending: bool) -> Plan[None]:
    """Write chunks, batch by batch. ServerError if the server refuses one."""
    for start in range(0, len(documents), BATCH):
        batch = documents[start : start + BATCH]
        if pending:
            marked = [replace(each, fields={**each.fields, "state": PENDING}) for each in batch]
            failed = yield from write.store(memory.live, marked)
        else:
            failed = yield from write.write_all(
                memory.live, [replace(each, indexed_text=indexed_text(each)) for each in batch]
            )
        if failed:
            raise ServerError(f"chunk {failed[0].id!r} was refused: {failed[0].reason}")


def remove(memory: Memory, ids: Sequence[str]) -> Plan[int]:
    """Delete chunks and their counters; answers how many there were. Every explicit deletion goes through here."""
    names, prefix = memory.names, memory.live.schema.prefix
    deleted = 0
    for start in range(0, len(ids), BATCH):
        commands = [
            Command(("EVAL", _REMOVE, 3, prefix + id, names.uses, names.used, id), integer, prefix + id)
            for id in ids[start : start + BATCH]
        ]
        answers = yield from ask_all(commands)
        raise_first(*answers)
        deleted += sum(answers)
    return deleted
