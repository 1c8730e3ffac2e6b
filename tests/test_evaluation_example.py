"""examples/evaluation: its walk-through says what happens, and its golden file fits the corpus."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import valkey

from retriever.evaluation import read_golden
from tests.test_docs import blocks, commands

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "evaluation"
NUMBER = re.compile(r"[+-]?\d+\.\d+")


def test_the_golden_file_fits_the_corpus():
    """Each id that it names is in the corpus, no entry is left out, and each category has queries."""
    golden = read_golden(EXAMPLE / "golden.yaml")
    lines = (ROOT / "examples" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    known = {json.loads(line)["id"] for line in lines}
    assert not golden.notes
    for question in golden.questions:
        assert {*question.relevant, *question.noise} <= known, question.query
        assert question.authority in question.relevant
    assert {question.category for question in golden.questions} == {"meaning", "words", "both"}


def test_the_real_golden_file_stays_out_of_the_repository():
    """.gitignore keeps the private file and the reports out, and not the example."""
    if not (ROOT / ".git").exists():
        pytest.skip("the sources are no checkout")
    names = ["golden.private.yaml", "reports/eval_report_2026-11-30.html", "golden.yaml", "README.md"]
    asked = "\n".join(str(EXAMPLE / name) for name in names)
    done = subprocess.run(
        ["git", "-C", str(ROOT), "check-ignore", "--no-index", "--stdin"],
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [Path(line).name for line in done.stdout.splitlines()] == [Path(name).name for name in names[:2]]


@pytest.mark.live
@pytest.mark.one_server("it runs at one server")
def test_the_walk_through_shows_what_happens(url, tmp_path):
    """Each command ends well, and prints the lines that are shown, with numbers as close as processors allow."""
    for package in ("ir_measures", "scipy", "plotly", "onnxruntime", "typer"):
        pytest.importorskip(package)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    found = blocks((EXAMPLE / "README.md").read_text(encoding="utf-8"))
    assert [block.kind for block in found] == ["sh", "text", "sh", "text"]
    with valkey.Valkey.from_url(url) as client:
        assert b"ferries" not in client.execute_command("FT._LIST")
        try:
            for block, shown in zip(found[::2], found[1::2], strict=True):
                done = [run(words, url, tmp_path) for words in commands(block) if words[0] == "retriever"]
                assert_alike(done[-1], shown.text)
        finally:
            run(["retriever", "drop", "--index", "ferries", "--delete-documents", "--yes"], url, tmp_path)


def run(words, url, folder):
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "VALKEY_URL": url, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), words
    return done.stdout


def assert_alike(printed, shown):
    """The same words in the same lines; numbers within 0.06, milliseconds and the day of the run apart.

    Of settings that are nearly as good another processor's rounding may choose another: of what was tuned, the name.
    """
    lines, expected = printed.splitlines(), shown.splitlines()
    assert len(lines) == len(expected), printed
    table = ""
    for line, other in zip(lines, expected, strict=True):
        if line.startswith(("arm", "tuned", "reports")):
            table = line.split()[0]
        plain, wanted = (re.sub(r"\d{4}-\d\d-\d\d", "DATE", NUMBER.sub("N", each)).split() for each in (line, other))
        ours, theirs = (list(map(float, NUMBER.findall(each))) for each in (line, other))
        if table == "tuned":
            assert plain[:1] == wanted[:1], printed
            continue
        assert plain == wanted, printed
        if table == "arm":
            ours, theirs = ours[:-1], theirs[:-1]  # without the milliseconds
        assert ours == pytest.approx(theirs, abs=0.06), line
