"""The files beside this one, through mypy --strict: what users write passes, what is wrong is found.

Each ``type: ignore`` in them names the error that mypy must find there; one that it does not find is
itself an error (strict has warn_unused_ignores).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="the typing tests need the dependency group test")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(*paths):
    """Run it as `make types` does, with the same settings and the same cache."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_users_write_passes_and_what_is_wrong_is_found():
    """mypy finds the errors that are announced in these files, and no other."""
    paths = sorted(path for path in HERE.glob("*.py") if path != Path(__file__))
    assert len(paths) == 4
    code, output = mypy(*paths)
    assert code == 0, output


def test_an_error_that_is_not_announced_is_found(tmp_path):
    """The test above can fail: without the announcements mypy reports each of those lines."""
    bare = tmp_path / "bare.py"
    text = (HERE / "filters.py").read_text()
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if "# type: ignore" in line}
    bare.write_text(re.sub(r"  # type: ignore.*", "", text))
    code, output = mypy(bare)
    assert code == 1
    assert {int(number) for number in re.findall(r"bare\.py:(\d+): error", output)} == wrong
