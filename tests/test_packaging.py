"""The wheel: what is in it, and that it works where the sources are not.

The fresh environment holds the wheel, what it requires and what tests need; no extra, no checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="building the wheel needs the dependency group test")

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Beside the copied tests: pytest itself must have imported what was installed.
WHERE = '''
"""Both packages, as this very process imported them."""
import sys
from pathlib import Path

import fields
import retriever


def test_where():
    """They come from the environment, and nothing on the path leads to another copy."""
    for package in (fields, retriever):
        assert Path(package.__file__).is_relative_to(sys.prefix)
    others = [each for each in sys.path if Path(each, "fields", "kinds.py").exists()]
    assert len(others) == 1
'''


def run(*args, cwd):
    """A process that knows nothing of this checkout; its output, once it has succeeded."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, args)),
        cwd=cwd,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the sdist, built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    """The wheel's path."""
    (path,) = built.glob("*.whl")
    return path


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_both_packages_and_nothing_else(wheel):
    """Every module and py.typed of ``fields`` and ``retriever``, the example corpus, the licence; no test."""
    info = f"valkey_retriever-{PROJECT['project']['version']}.dist-info"
    found = names(wheel)
    assert {name.partition("/")[0] for name in found} == {"fields", "retriever", info}
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in ("fields", "retriever")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"fields/py.typed", "retriever/py.typed"} <= ours
    assert {name for name in found if not name.startswith(info)} == ours | {"retriever/corpus.jsonl"}
    assert f"{info}/licenses/LICENSE" in found
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("retriever/corpus.jsonl") == (ROOT / "examples" / "corpus.jsonl").read_bytes()


def test_the_wheel_requires_three_packages_without_extras(wheel):
    """valkey, numpy and the stemmer; it runs on any platform; everything else is an extra's."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(path).decode())
    required = metadata.get_all("Requires-Dist") or []
    hard = [line for line in required if "extra ==" not in line]
    assert sorted(line.partition("<")[0].partition(">")[0] for line in hard) == [
        "numpy",
        "pystemmer",
        "valkey[libvalkey]",
    ]
    assert not any("redis-om" in line for line in required)
    assert metadata["License-Expression"] == "MIT"
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_sdist_builds_the_same_wheel(built, wheel, tmp_path):
    """Whoever builds from the sdist gets the same files."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", cwd=source)
    (again,) = (tmp_path / "dist").glob("*.whl")
    assert names(again) == names(wheel)


def test_the_pure_tests_pass_where_only_the_wheel_is(wheel, tmp_path):
    """In a fresh environment, from another folder, tests/fields and tests/retriever run against the wheel."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=os.name != "nt")
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    needed = PROJECT["dependency-groups"]["pure"]
    # Our pip installs into it: quicker than giving it one of its own.
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-compile", wheel, *needed, cwd=tmp_path)

    away = tmp_path / "away"
    tests = away / "tests"
    tests.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", away)  # pytest's settings
    for folder in ("fields", "retriever", "replies"):
        shutil.copytree(TESTS / folder, tests / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in TESTS.glob("*.py"):
        if not path.name.startswith("test_"):
            shutil.copy(path, tests)
    (tests / "test_where.py").write_text(WHERE)

    run(python.with_name("pytest"), "-p", "no:cacheprovider", tests, cwd=away)
