"""A user's own ``fields`` beside a script: named at once, instead of an odd AttributeError later."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = "import retriever\nprint('imported', retriever.Tag('a') == 'b')\n"


def run(folder, *args):
    """A Python process in a folder, with nothing but what is installed on its path."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([sys.executable, *args], cwd=folder, env=environ, capture_output=True, text=True, check=False)


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def assert_named(done, path):
    """The error is an ImportError whose last line names the path and the way out."""
    assert done.returncode == 1, done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {path} shadows")
    assert "rename it" in last


@pytest.mark.parametrize("name", ["fields.py", "fields/__init__.py"])
@pytest.mark.parametrize("content", ["", "Tag = None\n", "import retriever\n", "raise SystemExit('ran')\n"])
@pytest.mark.parametrize("start", [("main.py",), ("-m", "main"), ("-c", SCRIPT)])
def test_a_module_or_package_of_that_name_is_named(tmp_path, name, content, start):
    """Whatever it holds: it is not run, so it cannot fail first or import us halfway."""
    shadow = write(tmp_path, name, content)
    write(tmp_path, "main.py", SCRIPT)
    assert_named(run(tmp_path, *start), shadow)


def test_one_imported_before_is_named(tmp_path):
    """The user's own module, already imported as ``fields``, is not taken for ours."""
    shadow = write(tmp_path, "fields.py", "")
    write(tmp_path, "main.py", f"import fields\n{SCRIPT}")
    assert_named(run(tmp_path, "main.py"), shadow)


def test_a_script_of_that_name_is_named(tmp_path):
    """``python fields.py`` that imports retriever shadows ours with itself."""
    shadow = write(tmp_path, "fields.py", SCRIPT)
    assert_named(run(tmp_path, "fields.py"), shadow)


def test_a_folder_without_init_shadows_nothing(tmp_path):
    """A package that is installed goes before a folder of data, or of modules, of the same name."""
    write(tmp_path, "fields/data.py", "")
    write(tmp_path, "main.py", SCRIPT)
    done = run(tmp_path, "main.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("imported")


HIDE_OURS = """
import os, sys
from importlib.machinery import PathFinder

class Hider:
    def find_spec(self, name, path=None, target=None):
        if name == "fields":
            spec = PathFinder.find_spec(name, [os.getcwd()])
            if spec is None:
                raise ModuleNotFoundError(name)
            return spec

sys.meta_path.insert(0, Hider())
import retriever
"""


def test_without_ours_a_folder_is_named(tmp_path):
    """A broken installation, without our ``fields``: the folder that is found in its place is named."""
    folder = write(tmp_path, "fields/data.py", "").parent
    assert_named(run(tmp_path, "-c", HIDE_OURS), folder)


def test_without_any_the_installation_is_named(tmp_path):
    """No ``fields`` at all: the message says to reinstall."""
    done = run(tmp_path, "-c", HIDE_OURS.replace("raise ModuleNotFoundError(name)", "sys.meta_path.clear()"))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].endswith("reinstall valkey-retriever")
