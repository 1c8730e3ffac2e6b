"""Reading files under given folders, and nothing beside them; and files that change meanwhile."""

from __future__ import annotations

import os
import sys

import pytest

from retriever.errors import InvalidInput
from retriever.memory import loading
from retriever.memory.loading import load
from retriever.memory.roots import Roots

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes")


@pytest.fixture
def root(tmp_path):
    """An allowed folder with a file in it, beside one that is not allowed."""
    for folder in ("allowed/deep", "secret", "allowed-too"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "allowed" / "a.txt").write_text("allowed")
    (tmp_path / "allowed" / "deep" / "b.txt").write_text("deep")
    (tmp_path / "secret" / "key.txt").write_text("secret")
    (tmp_path / "allowed-too" / "key.txt").write_text("secret")
    return tmp_path / "allowed"


@pytest.mark.parametrize("name", ["a.txt", "deep/b.txt", "./deep/./b.txt", "deep//b.txt"])
def test_files_under_a_root_are_read(root, name, monkeypatch):
    """By their whole path, and by one that starts in the working directory."""
    said = load(f"{root}/{name}", roots=Roots([root])).text
    monkeypatch.chdir(root)
    assert load(name, roots=Roots(["."])).text == said


@pytest.mark.parametrize(
    "name",
    [
        "{tmp}/secret/key.txt",
        "{tmp}/secret/nothing.txt",
        "{tmp}/allowed-too/key.txt",  # whose name starts with the root's
        "{root}/out.txt",
        "{root}/folder-out/key.txt",
        "{root}/deep/chain.txt",
        "/etc/hosts.txt",
        "/etc/hostname",  # of no known kind either
        "/dev/zero.txt",
    ],
)
def test_files_elsewhere_are_not(root, tmp_path, name):
    """Not by their path and by no link; the error is the same whether or not they are there, and names the roots."""
    (root / "out.txt").symlink_to(tmp_path / "secret" / "key.txt")
    (root / "folder-out").symlink_to(tmp_path / "secret")
    (root / "deep" / "chain.txt").symlink_to(root / "out.txt")
    with pytest.raises(InvalidInput, match="outside the folders that may be read from, which are .*allowed;"):
        load(name.format(tmp=tmp_path, root=root), roots=Roots([root]))


@pytest.mark.parametrize("name", ["../secret/key.txt", "deep/../a.txt", "../allowed/a.txt"])
def test_dots_are_not_followed(root, name):
    """Not even where they lead back."""
    with pytest.raises(InvalidInput, match=r"'\.\.' is not followed"):
        load(f"{root}/{name}", roots=Roots([root]))


def test_links_that_stay_inside_are_followed(root):
    """To files and to folders."""
    (root / "in.txt").symlink_to("a.txt")
    (root / "folder-in").symlink_to(root / "deep")
    assert load(root / "in.txt", roots=Roots([root])).text == "allowed"
    assert load(root / "folder-in" / "b.txt", roots=Roots([root])).text == "deep"


def test_a_link_that_is_put_there_in_between_leads_nowhere(root, tmp_path, monkeypatch):
    """What was a folder when the path was checked, and is a link to elsewhere when it is opened, is not passed."""
    before = os.path.realpath
    roots = Roots([root])

    def realpath(path, **options):
        found = before(path, **options)
        (root / "deep").rename(root / "moved")
        (root / "deep").symlink_to(tmp_path / "secret")
        return found

    (root / "deep" / "key.txt").write_text("mine")
    monkeypatch.setattr(os.path, "realpath", realpath)
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(f"{root}/deep/key.txt", roots=roots)


def test_a_root_is_what_it_was(root, tmp_path):
    """A root that is replaced by a link does not move to where that leads."""
    roots = Roots([root])
    root.rename(tmp_path / "moved")
    root.symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match="outside the folders"):
        load(root / "key.txt", roots=roots)


@pytest.mark.parametrize("roots", [True, False])
def test_what_is_no_file_is_not_read(root, roots):
    """A pipe is not waited for, a folder is not walked."""
    given = {"roots": Roots([root])} if roots else {}
    os.mkfifo(root / "pipe.txt")
    (root / "folder.txt").mkdir()
    with pytest.raises(InvalidInput, match="is no regular file"):
        load(root / "pipe.txt", **given)
    with pytest.raises(InvalidInput, match="is a directory"):
        load(root / "folder.txt", **given)
    with pytest.raises(InvalidInput, match="there is no such file"):
        load(root / "nothing.txt", **given)
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(f"{root}/a\0.txt", **given)


def test_too_much_is_not_read(root):
    """The bound on a file's size holds under roots too."""
    with pytest.raises(InvalidInput, match="7 bytes are more than max_bytes, 6"):
        load(root / "a.txt", roots=Roots([root]), max_bytes=6)


@pytest.mark.parametrize("given", [[], ["{root}/a.txt"], ["{root}", "{root}/nothing"]])
def test_roots_are_folders(root, given):
    """None at all, a file and what is not there are refused at once."""
    with pytest.raises(InvalidInput, match="roots: "):
        Roots([each.format(root=root) for each in given])


class Changing:
    """A file that somebody writes to so many times while it is read."""

    def __init__(self, path, times):
        self.path, self.left = path, times

    def __call__(self, file, mode):
        opened = open(file, mode)  # noqa: SIM115 - handed on
        before = opened.read

        class Read:
            def __enter__(read):
                return read

            def __exit__(read, *_):
                opened.close()

            fileno, seek = opened.fileno, opened.seek

            def read(read, most):
                if self.left:
                    self.left -= 1
                    with self.path.open("a") as writer:
                        writer.write(f" and {self.left}")
                return before(most)

        return Read()


def test_a_file_that_changes_is_read_again(root, monkeypatch):
    """What is taken was one state of the file."""
    path = root / "a.txt"
    monkeypatch.setattr(loading, "open", Changing(path, 2), raising=False)
    assert load(path).text == path.read_text() == "allowed and 1 and 0"


def test_a_file_that_goes_on_changing_is_left(root, monkeypatch):
    """With an error that says when to take it."""
    monkeypatch.setattr(loading, "open", Changing(root / "a.txt", 100), raising=False)
    with pytest.raises(InvalidInput, match="changed each of 3 times that it was read"):
        load(root / "a.txt", roots=None)
