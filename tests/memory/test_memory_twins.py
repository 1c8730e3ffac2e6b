"""The two stores are twins: the same methods, parameters and annotations, one of them awaited."""

from __future__ import annotations

import inspect

import pytest

from retriever.memory.store import AsyncMemoryStore, MemoryStore
from tests.test_twins import methods

BLOCKING, AWAITED = methods(MemoryStore), methods(AsyncMemoryStore)


def signature(function):
    """Names, kinds, defaults and annotations of what it takes, but for its retriever, and what it gives."""
    found = inspect.signature(function)
    parameters = [each for each in found.parameters.values() if each.name != "retriever"]
    return [str(each) for each in parameters], found.return_annotation


def test_both_have_the_same_methods():
    """A method of one is a method of the other, in the same order."""
    assert list(BLOCKING) == list(AWAITED)
    assert len(BLOCKING) > 20


@pytest.mark.parametrize("name", BLOCKING)
def test_both_take_and_give_the_same(name):
    """One is a coroutine function where the other blocks."""
    assert signature(BLOCKING[name]) == signature(AWAITED[name])
    assert not inspect.iscoroutinefunction(BLOCKING[name])
    assert inspect.iscoroutinefunction(AWAITED[name]) == (name not in ("__init__", "__repr__"))
