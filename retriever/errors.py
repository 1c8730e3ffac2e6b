"""The errors, and the one place that turns a server's wording into a class.

    RetrieverError
    |-- InvalidInput (also ValueError)   yours; before any I/O where no server is needed to know
    |-- MissingExtra (also ImportError)  an optional package is not there
    `-- ServerError                      the server's
        |-- IndexMissing                 no such index
        |-- SchemaMismatch               the live index is not the one you declared
        |-- NotSupported                 this server cannot do that
        |-- PermissionDenied             this user may not
        |-- SearchTimeout                the server gave up before it was done
        |-- IndexExists                  inside create_index() only
        |-- WrongType                    a key holds something other than a hash
        |-- OutOfMemory                  the server's maxmemory is reached
        `-- ReplyError                   a reply that we cannot read

Connection errors of the client library pass through unrenamed. The servers' wordings differ by
engine and by command ("x: no such index", "Unknown Index name", "Index with name 'x' not found"),
hence a table, matched without regard to case.
"""

from __future__ import annotations

import re

from fields.errors import InvalidInput, RetrieverError

__all__ = [
    "IndexMissing",
    "InvalidInput",
    "MissingExtra",
    "NotSupported",
    "PermissionDenied",
    "ReplyError",
    "RetrieverError",
    "SchemaMismatch",
    "SearchTimeout",
    "ServerError",
]


class MissingExtra(RetrieverError, ImportError):
    """A package of an optional extra is absent or not the pinned one; the message says what to install."""


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


class WrongType(ServerError):
    """A key that should be a hash holds another type; some other program wrote it."""


class OutOfMemory(ServerError):
    """The server is at its ``maxmemory`` and takes nothing that needs more."""


class IndexExists(ServerError):
    """FT.CREATE found an index of that name; ``create_index()`` compares instead of failing."""


SEARCH_NEEDS = "an index needs Valkey with Valkey Search (the valkey-bundle image) or a RediSearch server"

# Wording (lower case, anywhere in the message) -> class. The first that is found decides.
_WORDINGS: tuple[tuple[str, type[ServerError]], ...] = (
    (r"no such index|unknown index name|index with name .* not found", IndexMissing),
    (r"index already exists|index .* already exists", IndexExists),
    (r"wrongtype|wrong kind of value", WrongType),
    (r"command not allowed when used memory", OutOfMemory),
    (
        r"nopermissionerror|noperm|no permissions? to|has no permission|required permissions|a permission to",
        PermissionDenied,
    ),
    (r"unknown command '?`?(ft\.|hello)", NotSupported),
    (r"cannot create index on db != 0", NotSupported),
    (r"timeout limit was reached|timed? ?out", SearchTimeout),
)


def is_refusal(error: BaseException) -> bool:
    """Whether a server answered with an error, as opposed to a lost connection or our own fault.

    Recognised by the name of its class, because valkey-py and redis-py have one each.
    """
    return any(base.__name__ == "ResponseError" for base in type(error).__mro__)


def is_lost_connection(error: BaseException) -> bool:
    """Whether the connection broke (a time-out is not one: the server may still be at work)."""
    names = {base.__name__ for base in type(error).__mro__}
    # The clients derive these from ConnectionError too, though the server answered.
    answered = {"TimeoutError", "BusyLoadingError", "AuthenticationError"}
    return "ConnectionError" in names and names.isdisjoint(answered)


def is_loading(error: BaseException) -> bool:
    """Whether the server is still reading its data; the clients count that among lost connections."""
    return any(base.__name__ == "BusyLoadingError" for base in type(error).__mro__)


def classify(error: Exception, command: str, index: str | None = None) -> Exception:
    """The error to raise for what a server answered; anything but a server's answer is itself.

    command, index: what was asked, and of which index, for the message.
    """
    if not is_refusal(error):
        return error
    # "unknown command 'FT.SEARCH', with args beginning with: ..." goes on with what was sent: filters, passwords.
    said = str(error).partition(", with args beginning with:")[0]
    if said != str(error):
        error.args = (said,)  # it will be the cause of ours, and shown with it
    found = ServerError
    for wording, kind in _WORDINGS:
        if re.search(wording, f"{type(error).__name__} {said}".lower()):
            found = kind
            break
    if found is IndexMissing and index is not None:
        return IndexMissing(f"no index {index!r}; {_ADVICE[IndexMissing]}")
    asked = command if index is None else f"{command} {index}"
    advice = _ADVICE.get(found)
    if found is PermissionDenied:
        advice = _permission_advice(said)
    elif found is NotSupported and re.search(r"unknown command '?`?ft\.", said.lower()):
        advice = f"there is no search module: {SEARCH_NEEDS}"
    return found(f"{asked}: {said}" + (f"; {advice}" if advice else ""))


def _permission_advice(said: str) -> str:
    """What to ask an administrator for: the command that the server names, and otherwise a key pattern."""
    # Valkey and Redis 7: "User u has no permissions to run the 'client|info' command", in a script too; Redis 6: "this
    # user has no permissions to run the 'hget' command or its subcommand".
    refused = re.search(r"permissions to run the '([^']+)' command", said)
    if refused:
        return f"the user's ACL rule lacks +{refused[1].lower()}"
    # "No permissions to access a key"; Redis 6: "... one of the keys used as arguments"; RediSearch 8: "User does not
    # have the required permissions to query the index"; Valkey Search 1: "The user doesn't have a permission to execute
    # a command", which it says of the index's prefix alone.
    return (
        "the user's ACL rule allows the command and lacks a key pattern: it must cover the index's prefix, "
        "and its name, which RediSearch takes for a key"
    )


_ADVICE: dict[type[ServerError], str] = {
    IndexMissing: "create_index() makes it",
    SearchTimeout: "a larger timeout_ms or a narrower filter helps",
}
