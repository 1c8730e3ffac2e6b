"""What a host waits for: ``retriever mcp`` from its start to its first answer, and what a call costs after that.

The memory is under a folder of its own, with the embedded engine and LocalEmbedder, which is what a user has who sets
nothing: so the first answer pays for Python's imports, the engine's start, the model's loading and the search. The
target is 3 s on two cores. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CORPUS = Path(__file__).resolve().parent.parent / "examples" / "corpus.jsonl"
TARGET_S = 3.0


class Host:
    """A host without the SDK, so that nothing but the server is timed; speaks the revision that most hosts speak."""

    def __init__(self, home: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "retriever", "mcp"],
            env={**os.environ, "RETRIEVER_HOME": home, "RETRIEVER_ROOTS": home, "VALKEY_URL": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.calls = 0

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.calls += 1
        request = {"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}
        self.process.stdin.write(f"{json.dumps(request)}\n")
        self.process.stdin.flush()
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self.calls:
                return answer["result"]

    def tool(self, name: str, **arguments: Any) -> Mapping[str, Any]:
        """What a tool answers."""
        result = self.ask("tools/call", name=name, arguments=arguments)
        assert not result.get("isError"), result
        answer: Mapping[str, Any] = result["structuredContent"]
        return answer

    def greet(self) -> None:
        """Open the conversation."""
        about = {"name": "benchmark", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
        assert self.process.stdin is not None
        self.process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.communicate()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=300)
    options.add_argument("--starts", type=int, default=5)
    options.add_argument("--calls", type=int, default=50)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="retriever-benchmark-") as home:
        fill(Path(home), given.documents)
        greeted, answered, ended = [], [], []
        calls: list[float] = []
        for _ in range(given.starts):
            started = time.perf_counter()
            with Host(home) as host:
                host.greet()
                greeted.append(time.perf_counter() - started)
                assert host.tool("hybrid_search", query="do dogs sail free of charge?", reinforce=False)["chunks"]
                answered.append(time.perf_counter() - started)
                for at in range(given.calls):
                    begun = time.perf_counter()
                    host.tool("hybrid_search", query=f"what does crossing {at} cost?", reinforce=False)
                    calls.append(time.perf_counter() - begun)
                begun = time.perf_counter()
            ended.append(time.perf_counter() - begun)
    print(f"{given.documents} documents, {given.starts} starts, medians (least to most)\n")
    for what, seconds in (
        ("start to initialize", greeted),
        ("start to first answer", answered),
        ("end of stdin to exit", ended),
    ):
        print(f"{what:<24}{statistics.median(seconds):7.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})")
    if calls:
        said = f"({1000 * min(calls):.1f} to {1000 * max(calls):.1f})"
        print(f"{'a search after that':<24}{1000 * statistics.median(calls):7.1f} ms  {said}")
    met = "met" if statistics.median(answered) < TARGET_S else "not met"
    print(f"\ntarget: first answer within {TARGET_S:g} s: {met}")


def fill(home: Path, documents: int) -> None:
    """A memory of so many short documents."""
    paths = []
    for line in CORPUS.read_text(encoding="utf-8").splitlines()[:documents]:
        document = json.loads(line)
        path = home / f"{document['id']}.txt"
        path.write_text(document["text"], encoding="utf-8")
        paths.append(str(path))
    with Host(str(home)) as host:
        host.greet()
        for start in range(0, len(paths), 100):
            assert host.tool("ingest", file_paths=paths[start : start + 100])["failed"] == 0


if __name__ == "__main__":
    main()
