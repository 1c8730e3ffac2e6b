"""Folders that files may be read from, and nothing beside them.

Rule: what is opened is what was checked. A path is resolved, looked for under the folders, and then opened folder by
folder without following a link: one that is put there in between leads nowhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePath

from fields.errors import InvalidInput

# Windows has neither; there the path is resolved a second time instead.
_WALKS = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")


class Roots:
    """The folders under which a path may lie, links resolved.

    folders: at least one; each is resolved now, so that a link put in its place later moves nothing.
    Raises InvalidInput for none, and for what is no folder.
    """

    def __init__(self, folders: Iterable[str | os.PathLike[str]]) -> None:
        given = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
        if not given:
            raise InvalidInput("roots: at least one folder is needed")
        for each in given:
            if not os.path.isdir(each):
                raise InvalidInput(f"roots: {os.fspath(each)!r} is no folder")
        self.folders = tuple(Path(os.path.realpath(each)) for each in given)

    def __repr__(self) -> str:
        return f"Roots({[str(each) for each in self.folders]!r})"

    def open(self, name: str) -> int:
        """A descriptor of the file, for reading. Links that stay under the folders are followed.

        Raises InvalidInput for ``..``, for what lies outside, whether or not it is there, and for what is no regular
        file; OSError as ``os.open`` does.
        """
        root, real = self.check(name)
        if not _WALKS:
            return self._open_again(name, real)
        return _walk(root, real.relative_to(root).parts, name)

    def check(self, name: str) -> tuple[Path, Path]:
        """The folder of ours that the path lies under, and the real path. Raises InvalidInput as ``open`` does."""
        if ".." in PurePath(name).parts:
            raise InvalidInput(f"{name}: '..' is not followed; give the path without it")
        real = Path(os.path.realpath(name))
        root = next((each for each in self.folders if real.is_relative_to(each)), None)
        if root is None:
            raise InvalidInput(
                f"{name}: it lies outside the folders that may be read from, which are "
                f"{', '.join(map(str, self.folders))}; copy it there, or have that folder allowed"
            )
        return root, real

    def _open_again(self, name: str, real: Path) -> int:
        check_kind(os.stat(real).st_mode, name)
        opened = os.open(real, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        if Path(os.path.realpath(name)) != real or not os.path.samestat(os.fstat(opened), os.stat(real)):
            os.close(opened)
            raise InvalidInput(f"{name}: it was replaced while it was opened")
        return opened


def check_kind(mode: int, name: str) -> None:
    """InvalidInput unless the mode of a file is that of a regular one."""
    if stat.S_ISDIR(mode):
        raise InvalidInput(f"{name}: is a directory; name the files in it")
    if not stat.S_ISREG(mode):  # to open a device may already do something
        raise InvalidInput(f"{name}: is no regular file")


def _walk(root: Path, parts: tuple[str, ...], name: str) -> int:
    # O_PATH: a folder that may be entered and not listed is passed through all the same.
    folder = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
    here = os.open(root, folder)
    try:
        for part in parts[:-1]:
            below = os.open(part, folder, dir_fd=here)
            os.close(here)
            here = below
        # O_NONBLOCK: a pipe without a writer would be waited for.
        how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        last = parts[-1] if parts else "."
        check_kind(os.stat(last, dir_fd=here, follow_symlinks=False).st_mode, name)
        return os.open(last, how, dir_fd=here)
    finally:
        os.close(here)
