"""Which namespaces a server has. Reads only: to look for one never makes it."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import unquote

from retriever.errors import IndexMissing, PermissionDenied
from retriever.memory.chunks import Names
from retriever.operations.index import INDEX_NAMES, WAIT_S, Live, when_loaded, whole_index
from retriever.plans import Command, Plan, ask_one
from retriever.replies import text_map
from retriever.schema import Schema

_INDEX = re.compile(r"\{memory\.([^{}]+)\}(?:@(\d+))?")
_SHOWN = 20  # of an error; arbitrary


def namespaces(live: Live) -> Plan[dict[str, int]]:
    """Every namespace by its name, in order, and how many chunks its index holds."""
    found: dict[str, int] = {}
    for name, index in (yield from _indexes()).items():
        info = yield from whole_index(replace(live, schema=Schema(index)))
        found[name] = info.documents
    return found


def check_there(namespace: str) -> Plan[None]:
    """Return if the namespace was made, also if its index was dropped since; else IndexMissing that names others."""
    yield from when_loaded(lambda _: _check_there(namespace), WAIT_S)


def _check_there(namespace: str) -> Plan[None]:
    key = Names(namespace).index  # that of the index and that of its metadata
    stored = yield from ask_one(Command(("HGETALL", key), text_map, key))
    if "schema" in stored:
        return
    try:
        names = list((yield from _indexes()))
    except PermissionDenied:
        raise IndexMissing(f"no memory {namespace!r} on this server; `retriever memory ingest` makes one") from None
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    there = f"there {'is' if len(names) == 1 else 'are'} {', '.join(map(repr, names[:_SHOWN]))}{more}"
    raise IndexMissing(
        f"no memory {namespace!r} on this server; {there if names else 'there is none'}; "
        f"`retriever memory ingest` makes one"
    )


def _indexes() -> Plan[dict[str, str]]:
    """The index of each namespace's first generation that is there, by the namespace's name."""
    found: dict[str, str] = {}
    for index in (yield from ask_one(INDEX_NAMES)):
        match = _INDEX.fullmatch(index)
        if match is not None:
            found.setdefault(unquote(match[1]), index)
    return dict(sorted(found.items()))
