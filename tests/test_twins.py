"""The two shells are twins: the same methods, parameters, defaults and annotations, but for what must differ."""

from __future__ import annotations

import inspect
import re

import pytest

from retriever import AsyncRetriever, Retriever
from retriever.operations import retrieve, search
from retriever.operations.retrieve import Retrieval
from retriever.operations.search import Query

# The one mechanical difference, and the annotations that must differ, by method and parameter.
SPELLED = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
DIFFERENT = {
    ("upsert", "documents"): ("Iterable[Document]", "Iterable[Document] | AsyncIterable[Document]"),
    ("scan", "return"): ("Iterator[Document]", "AsyncIterator[Document]"),
}
NOT_AWAITED = {"connect", "scan", "__init__", "__repr__"}


def methods(shell):
    """The public methods of a shell, under the names that they have in the blocking one."""
    found = {
        name: member
        for name, member in vars(shell).items()
        if (not name.startswith("_") or name in {"__init__", "__repr__", *SPELLED, *SPELLED.values()})
        and (callable(member) or isinstance(member, classmethod))
    }
    return {SPELLED.get(name, name): getattr(member, "__func__", member) for name, member in found.items()}


BLOCKING, AWAITED = methods(Retriever), methods(AsyncRetriever)


def test_both_have_the_same_methods():
    """A method of one is a method of the other, in the same order."""
    assert list(BLOCKING) == list(AWAITED)
    assert {"query", "query_many", "upsert", "update", "get", "exists", "delete", "count", "scan"} <= BLOCKING.keys()


@pytest.mark.parametrize("name", BLOCKING)
def test_both_take_the_same(name):
    """Names, kinds, order, defaults and annotations of the parameters are the same, but for the documented ones."""
    one, other = inspect.signature(BLOCKING[name]), inspect.signature(AWAITED[name])
    assert list(one.parameters) == list(other.parameters)
    for parameter in one.parameters:
        ours, theirs = one.parameters[parameter], other.parameters[parameter]
        assert (ours.kind, ours.default) == (theirs.kind, theirs.default), parameter
        expected = DIFFERENT.get((name, parameter), (ours.annotation, ours.annotation))
        assert (ours.annotation, theirs.annotation) == expected, parameter
    expected = DIFFERENT.get((name, "return"), (one.return_annotation, one.return_annotation))
    assert (one.return_annotation, other.return_annotation) == expected


@pytest.mark.parametrize("name", BLOCKING)
def test_one_is_awaited_where_the_other_blocks(name):
    """Every method that does I/O is a coroutine function in the async shell, and none is in the other."""
    assert not inspect.iscoroutinefunction(BLOCKING[name])
    assert inspect.iscoroutinefunction(AWAITED[name]) is (name not in NOT_AWAITED)


@pytest.mark.parametrize("name", [name for name in BLOCKING if not name.startswith("__")])
def test_the_async_docstring_points_to_the_blocking_one(name):
    """What a method does is said once."""
    assert BLOCKING[name].__doc__
    assert f"See ``Retriever.{name}``" in AWAITED[name].__doc__


@pytest.mark.parametrize("name", [name for name in BLOCKING if name not in {"connect", "__init__"}])
def test_both_run_the_same_plan(name):
    """The bodies differ in await and async words alone."""

    def body(method):
        lines = inspect.getsource(method).split('"""')[-1]
        bare = re.sub(r"\b(await|async|_async)\b|__a(?=enter|exit)", "", lines).replace(
            "async_documents", "blocking_documents"
        )
        return re.sub(r"\s+", "", bare.replace("__enter__", "enter"))[-120:]

    if name not in {"__enter__", "__exit__", "close", "__repr__"}:
        assert body(BLOCKING[name]) == body(AWAITED[name])


@pytest.mark.parametrize(
    ("method", "plan", "arguments"),
    [(Retriever.query, search.query, Query), (Retriever.retrieve, retrieve.retrieve, Retrieval)],
    ids=["query", "retrieve"],
)
def test_a_query_of_many_has_the_arguments_of_one(method, plan, arguments):
    """Query names every argument of query, Retrieval of retrieve, and both methods pass every one of their own on."""
    own = [name for name in inspect.signature(method).parameters if name != "self"]
    assert list(arguments.__annotations__) == own
    inner = {"live", "reranker", "also"}  # what the shells do not offer
    assert [name for name in inspect.signature(plan).parameters if name not in inner] == own
    source = inspect.getsource(method)
    assert all(f"{name}={name}," in source for name in own)
    defaults = {name: each.default for name, each in inspect.signature(method).parameters.items()}
    for name, each in inspect.signature(plan).parameters.items():
        if name in own:
            assert each.default == defaults[name]
