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
    PermissionDenied,
    ReplyError,
    RetrieverError,
    SchemaMismatch,
    SearchTimeout,
    ServerError,
    WrongType,
    classify,
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
        ("NOPERM this user has no permissions to access one of the keys", PermissionDenied),
        ("Timeout limit was reached", SearchTimeout),
        ("Search operation cancelled due to timeout: timed out", SearchTimeout),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongType),
        ("OOM command not allowed when used memory > 'maxmemory'.", ServerError),
        ("", ServerError),
    ],
)
@pytest.mark.parametrize("kind", [ResponseError, valkey.exceptions.ResponseError, redis_exceptions.ResponseError])
def test_wordings(kind, said, expected):
    """A refusal is classified by its words, without regard to case or to the client library."""
    found = classify(kind(said), "FT.SEARCH docs")
    assert type(found) is expected
    assert str(found).startswith(f"FT.SEARCH docs: {said}")


@pytest.mark.parametrize("library", [valkey.exceptions, redis_exceptions], ids=["valkey", "redis"])
def test_a_missing_permission_by_its_class(library):
    """The clients cut NOPERM off the message and raise a class of its own."""
    assert type(classify(library.NoPermissionError("no"), "x")) is PermissionDenied


def test_the_way_out_is_named():
    """A missing index and a timeout say what helps."""
    assert str(classify(ResponseError("docs: no such index"), "FT.SEARCH docs")).endswith("create_index() makes it")
    assert "timeout_ms" in str(classify(ResponseError("Timeout limit was reached"), "x"))


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
    assert not is_lost_connection(library.AuthenticationError("wrong password"))
    assert not is_lost_connection(library.ResponseError("no"))
    assert not is_lost_connection(TimeoutError("slow"))
    both = type("ConnectTimeout", (library.ConnectionError, library.TimeoutError), {})
    assert not is_lost_connection(both("slow"))
