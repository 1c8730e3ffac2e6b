"""The errors, and the one place that turns a server's wording into a class.

    RetrieverError
    |-- InvalidInput (also ValueError)   yours; before any I/O where no server is needed to know
    `-- ServerError                      the server's
        |-- IndexMissing                 no such index
        |-- SchemaMismatch               the live index is not the one you declared
        |-- NotSupported                 this server cannot do that
        |-- PermissionDenied             this user may not
        |-- SearchTimeout                the server gave up before it was done
        `-- ReplyError                   a reply that we cannot read

Connection errors of the client library pass through unrenamed. The servers' wordings differ by
engine and by command ("x: no such index", "Unknown Index name", "Index with name 'x' not found"),
hence a table, matched without regard to case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fields.errors import InvalidInput, RetrieverError

if TYPE_CHECKING:
    from retriever.documents import UpsertReport

__all__ = [
    "IndexMissing",
    "InvalidInput",
    "NotSupported",
    "PermissionDenied",
    "ReplyError",
    "RetrieverError",
    "SchemaMismatch",
    "SearchTimeout",
    "ServerError",
]


class ServerError(RetrieverError):
    """The server refused, or holds something else than expected."""


class IndexMissing(ServerError):
    """There is no index of that name; ``create_index()`` makes it."""


class SchemaMismatch(ServerError):
    """The live index differs from the declared schema; ``differences`` lists how."""

    def __init__(self, message: str, differences: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.differences = differences


class NotSupported(ServerError):
    """This server cannot do what was asked; the message names server, version and the way out."""


class PermissionDenied(ServerError):
    """The connected user may not run a command or touch a key."""


class SearchTimeout(ServerError):
    """The server stopped before it was done and there is no partial answer to give."""


class ReplyError(ServerError):
    """A reply that cannot be read. Never turned into an empty result."""
