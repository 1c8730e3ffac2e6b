"""The tree of errors, and the one table from a server's wording to a class."""

from __future__ import annotations

import pytest
import valkey.exceptions
from redis import exceptions as redis_exceptions

import retriever
from retriever import errors
from retriever.errors import (
    IndexExists,
    IndexMissing,
    InvalidInput,
    MissingExtra,
    NotSupported,
    OutOfMemory,
    PermissionDenied,
    ReplyError,
    RetrieverError,
    SchemaMismatch,
    SearchTimeout,
    ServerError,
    WrongType,
    classify,
    is_loading,
    is_lost_connection,
    is_refusal,
)
from tests.recorded import RECORDED, ResponseError, replies


def test_one_root_and_two_sides():
    """Every error of ours has one root; yours are ValueErrors, the server's are ServerErrors."""
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(issubclass(each, RetrieverError) for each in classes)
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(MissingExtra, ImportError)
    for each in (IndexMissing, SchemaMismatch, NotSupported, PermissionDenied, SearchTimeout, ReplyError, IndexExists):
        assert issubclass(each, ServerError)
        assert not issubclass(each, InvalidInput)


def test_every_public_error_is_exported():
    """All errors that may reach a user are imported from ``retriever``."""
    for name in errors.__all__:
        assert getattr(retriever, name) is getattr(errors, name)
        assert name in retriever.__all__


def test_what_differs_is_kept_as_data():
    """A mismatch tells its differences one by one."""
    assert SchemaMismatch("no", ("a", "b")).differences == ("a", "b")
    assert SchemaMismatch("no").differences == ()


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("info of a missing index", IndexMissing),
        ("search of a missing index", IndexMissing),
        ("drop of a missing index", IndexMissing),
        ("create again", IndexExists),
        ("knn, wrong query length", ServerError),
        ("syntax error", None),
        ("alias", None),
    ],
)
def test_recorded_wordings(case, expected):
    """What two engines say in three commands for one thing is one class, case B66."""
    for each in replies(case):
        if isinstance(each.reply, Exception):
            found = classify(each.reply, "FT.X")
            wanted = expected or (NotSupported if each.case == "alias" else ServerError)
            assert type(found) is wanted
            assert str(found).startswith(f"FT.X: {each.reply}")


def test_every_recorded_error_is_a_server_error():
    """No recorded refusal is taken for anything but the server's."""
    for each in RECORDED:
        if isinstance(each.reply, Exception):
            assert isinstance(classify(each.reply, "x"), ServerError)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("x: no such index", IndexMissing),
        ("Unknown index name", IndexMissing),
        ("Unknown Index name", IndexMissing),
        ("UNKNOWN INDEX NAME", IndexMissing),
        ("Index with name 'x' not found in database 0", IndexMissing),
        ("Index already exists", IndexExists),
        ("Index x in database 0 already exists.", IndexExists),
        ("unknown command 'FT.SEARCH', with args beginning with: 'x'", NotSupported),
        ("unknown command `FT.SEARCH`, with args beginning with: `x`", NotSupported),
        ("unknown command 'ft.info', with args beginning with:", NotSupported),
        ("unknown command 'HELLO'", NotSupported),
        ("unknown command 'GET'", ServerError),
        ("Cannot create index on db != 0", NotSupported),
        ("User nobody has no permissions to run the 'ft.search' command", PermissionDenied),
        ("this user has no permissions to run the 'ft.search' command or its subcommand", PermissionDenied),
        (
            "ACL failure in script: User u has no permissions to run the 'hdel' command script: on @x:1.",
            PermissionDenied,
        ),
        ("NOPERM this user has no permissions to access one of the keys", PermissionDenied),
        ("No permissions to access a key", PermissionDenied),
        ("User does not have the required permissions to query the index", PermissionDenied),
        ("The user doesn't have a permission to execute a command", PermissionDenied),
        ("Timeout limit was reached", SearchTimeout),
        ("Search operation cancelled due to timeout: timed out", SearchTimeout),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongType),
        ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory),
        ("command not allowed when used memory > 'maxmemory'. script: on @user_script:1.", OutOfMemory),
        ("", ServerError),
    ],
)
@pytest.mark.parametrize("kind", [ResponseError, valkey.exceptions.ResponseError, redis_exceptions.ResponseError])
def test_wordings(kind, said, expected):
    """A refusal is classified by its words, without regard to case or to the client library."""
    found = classify(kind(said), "FT.SEARCH docs")
    assert type(found) is expected
    assert str(found).startswith(f"FT.SEARCH docs: {said.partition(', with args')[0]}")


@pytest.mark.parametrize("library", [valkey.exceptions, redis_exceptions], ids=["valkey", "redis"])
def test_a_missing_permission_by_its_class(library):
    """The clients cut NOPERM off the message and raise a class of its own."""
    assert type(classify(library.NoPermissionError("no"), "x")) is PermissionDenied


def test_the_way_out_is_named():
    """A missing index and a timeout say what helps."""
    assert str(classify(ResponseError("docs: no such index"), "FT.SEARCH docs")).endswith("create_index() makes it")
    assert "timeout_ms" in str(classify(ResponseError("Timeout limit was reached"), "x"))


# Valkey 9 and Redis 7 and 8, a script's, a subcommand's, Redis 6; of keys also RediSearch 8 and Valkey Search.
REFUSED_COMMANDS = [
    ("User u has no permissions to run the 'ft.search' command", "ft.search"),
    ("User u has no permissions to run the 'FT.SEARCH' command", "ft.search"),
    ("ACL failure in script: User u has no permissions to run the 'hdel' command script: on @user_script:1.", "hdel"),
    ("User u has no permissions to run the 'client|info' command", "client|info"),
    ("this user has no permissions to run the 'ft.search' command or its subcommand", "ft.search"),
]
REFUSED_KEYS = [
    "No permissions to access a key",
    "ACL failure in script: No permissions to access a key script: on @user_script:1.",
    "this user has no permissions to access one of the keys used as arguments",
    "User does not have the required permissions to query the index",
    "The user doesn't have a permission to execute a command",
]


@pytest.mark.parametrize(("said", "command"), REFUSED_COMMANDS)
def test_a_command_that_a_rule_lacks_is_named(said, command):
    """Whichever command the server refuses, also inside a script, the way out is that command."""
    assert str(classify(ResponseError(said), "EVAL")) == f"EVAL: {said}; the user's ACL rule lacks +{command}"


@pytest.mark.parametrize("said", REFUSED_KEYS)
def test_a_key_that_a_rule_lacks_is_told_from_a_command(said):
    """Where the command is allowed and the key is not, the way out is a key pattern and no command."""
    found = str(classify(ResponseError(said), "FT.SEARCH", "docs"))
    assert found.startswith(f"FT.SEARCH docs: {said}; the user's ACL rule allows the command and lacks a key pattern")
    assert "+" not in found


@pytest.mark.parametrize("quote", ["'", "`"])
def test_what_a_server_repeats_of_a_command_is_left_out(quote):
    """An unknown command's arguments, a filter or a password, are in neither the error nor its cause."""
    cause = ResponseError(f"unknown command {quote}AUTH{quote}, with args beginning with: 'me' 'hushhush' ")
    found = classify(cause, "FT.SEARCH", "docs")
    assert str(found) == f"FT.SEARCH docs: unknown command {quote}AUTH{quote}"
    assert "hushhush" not in repr(cause)


@pytest.mark.parametrize("library", [valkey.exceptions, redis_exceptions], ids=["valkey", "redis"])
def test_a_wrong_password_passes_through(library):
    """It is the client's own AuthenticationError, which is no refusal of a command and is not tried again."""
    error = library.AuthenticationError("invalid username-password pair or user is disabled.")
    assert classify(error, "FT.SEARCH", "docs") is error
    assert not is_refusal(error)
    assert not is_lost_connection(error)


@pytest.mark.parametrize("library", [valkey.exceptions, redis_exceptions], ids=["valkey", "redis"])
def test_what_is_no_refusal_passes_through(library):
    """Connection errors, and whatever else is no answer, are themselves."""
    for error in (library.ConnectionError("gone"), library.TimeoutError("slow"), ValueError("x"), KeyError("y")):
        assert not is_refusal(error)
        assert classify(error, "FT.SEARCH") is error


@pytest.mark.parametrize("library", [valkey.exceptions, redis_exceptions], ids=["valkey", "redis"])
def test_what_a_lost_connection_is(library):
    """A broken connection may be tried again; a time-out may not, the server may still be at work; nor may LOADING."""
    assert is_lost_connection(library.ConnectionError("gone"))
    assert is_lost_connection(ConnectionResetError("gone"))
    assert not is_lost_connection(library.TimeoutError("slow"))
    assert not is_lost_connection(library.BusyLoadingError("loading"))
    assert is_loading(library.BusyLoadingError("loading"))
    assert not is_loading(library.ConnectionError("gone"))
    assert not is_lost_connection(library.AuthenticationError("wrong password"))
    assert not is_lost_connection(library.ResponseError("no"))
    assert not is_lost_connection(TimeoutError("slow"))
    both = type("ConnectTimeout", (library.ConnectionError, library.TimeoutError), {})
    assert not is_lost_connection(both("slow"))
