"""What the words of a query find, on judged collections, by either way of looking for candidates.

The collections come from the folder that benchmarks/quality.py reads; the German set lies beside the script.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("RETRIEVER_DATA") or ROOT / "benchmarks" / "data")
WAYS = {"own", "as Valkey Search"}


def figures(url: str, *args: str) -> list[dict[str, object]]:
    """The rows of the script's JSON; it ends with 1 where a target is missed, which the tests judge themselves."""
    command = [sys.executable, str(ROOT / "benchmarks" / "quality.py"), "--words", "--json", *args]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "VALKEY_URL": url}, timeout=120
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def values(rows: list[dict[str, object]], what: str, measure: str) -> dict[str, float]:
    """Way -> value."""
    return {row["way"]: row["value"] for row in rows if (row["what"], row["measure"]) == (what, measure)}


def test_cranfield(url):
    """Words find on Cranfield what BM25 finds, on both ways, and within a filter at least 0.98 of it."""
    if not (DATA / "cranfield").is_dir():
        pytest.skip(f"no folder {DATA / 'cranfield'}; RETRIEVER_DATA names the one that holds it")
    rows = figures(url, "cranfield")
    exact = values(rows, "text", "nDCG@10")
    assert set(exact) == WAYS | {"exact BM25"}
    assert min(exact.values()) >= 0.355
    assert max(exact.values()) - min(exact.values()) <= 0.005
    filtered = values(rows, "text, filter that keeps 3/4", "of exact BM25's")
    assert set(filtered) == WAYS
    assert min(filtered.values()) >= 0.98
    rewritten = values(rows, "text, every document written again", "nDCG@10 moved")
    assert set(rewritten) == WAYS
    assert max(rewritten.values()) <= 0.005


def test_memory(url):
    """In a store of memory words find a turn by its speaker and date, and more with the turn before it beside."""
    if not (DATA / "locomo").is_dir():
        pytest.skip(f"no folder {DATA / 'locomo'}; RETRIEVER_DATA names the one that holds it")
    rows = [row for row in figures(url, "memory") if row["of"] == "all"]
    alone, beside = values(rows, "text", "R@10"), values(rows, "text, turn before too", "R@10")
    assert alone["own"] >= 0.59
    assert beside["own"] >= 0.72


def test_german(url):
    """German words are found in another case, number and spelling, by their stems and not without them."""
    rows = figures(url, "german")
    stemmed, whole = values(rows, "german", "nDCG@10"), values(rows, "german, stem=False", "nDCG@10")
    assert set(stemmed) == set(whole) == WAYS
    assert min(stemmed.values()) >= 0.95
    assert max(whole.values()) <= 0.80


def test_made_text(url):
    """Of made text nearly all of exact BM25's ten come back, for every kind of query, filtered or not."""
    rows = figures(url, "zipf", "--documents", "2000", "--queries", "5")
    assert {row["way"] for row in rows} == WAYS
    assert len(rows) == 16
    assert min(row["value"] for row in rows) >= 0.90
