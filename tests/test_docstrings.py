"""Examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fields
import retriever

MODULES = [
    module.name
    for package in (fields, retriever)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    # These need the extra cli.
    if module.name.removeprefix("retriever.")
    not in ("__main__", "cli", "memory_cli", "evaluation_cli", "demo", "screen")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    """What a docstring shows is what happens."""
    assert doctest.testmod(importlib.import_module(name), raise_on_error=False).failed == 0


def test_there_are_examples():
    """The test above looks at something."""
    finder = doctest.DocTestFinder()
    assert sum(len(each.examples) for name in MODULES for each in finder.find(importlib.import_module(name))) >= 8
