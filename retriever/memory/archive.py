"""What was forgotten, kept in a file of JSON lines, so that it can be brought back.

Rule: an append returns only after the disk has its lines; whoever deletes, deletes after that. The file only
grows, so a reader needs no lock while it reads: it asks once how long the file is, at a moment when nobody
writes. To take lines out is to put another file in its place. A writer that is killed leaves at most one line
that is cut short; it stays as it is, ended by the next append, and readers report it. What this cannot help
against is a disk that says it has written and has not.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fields.errors import InvalidInput
from fields.filters import number
from fields.kinds import MAX_STORED_DEPTH
from fields.names import utf8
from retriever.errors import NotSupported
from retriever.memory.chunks import iso, timestamp

if sys.platform != "win32":  # on Windows the module must import, if only to say NotSupported
    import fcntl

__all__ = ["Archive", "Archived", "Damage"]

SCHEMA = 1
_KEYS = ("id", "doc_id", "chunk_index", "content", "metadata", "score", "reason", "archived_at", "schema")
# A stored field may be nested MAX_STORED_DEPTH deep, and stands in the metadata, and that in the line.
_MAX_DEPTH = MAX_STORED_DEPTH + 4


@dataclass(frozen=True, slots=True)
class Archived:
    """A chunk that was forgotten.

    id, doc_id, chunk_index, content: as in ``Chunk``. metadata: all else that it had, its counters too, as a JSON
        mapping with string keys; tuples come back as lists.
    score: what it was judged by, higher is better kept. reason: why it went, in words.
    archived_at: UTC seconds since the epoch, kept to the microsecond. schema: the form of the line.
    Raises InvalidInput for what cannot be.
    """

    id: str
    doc_id: str
    chunk_index: int
    content: str
    metadata: Mapping[str, Any]
    score: float
    reason: str
    archived_at: float
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.schema != SCHEMA or type(self.schema) is not int:
            raise InvalidInput(f"schema: {self.schema!r} is not {SCHEMA}, the only one that this version reads")
        for name in ("id", "doc_id", "content", "reason"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(f"{name}: a string expected, not {getattr(self, name)!r}")
        if not self.id:
            raise InvalidInput("id: a non-empty string expected")
        if type(self.chunk_index) is not int or self.chunk_index < 0:
            raise InvalidInput(f"chunk_index: an int from 0 expected, not {self.chunk_index!r}")
        if not isinstance(self.metadata, Mapping):
            raise InvalidInput(f"metadata: a mapping expected, not {self.metadata!r}")
        object.__setattr__(self, "score", float(number(self.score, "score")))
        object.__setattr__(self, "archived_at", timestamp(self.archived_at, "archived_at"))

    def __hash__(self) -> int:
        return hash(self.id)

    def to_json(self) -> str:
        """One line, without its end; times as ISO 8601 in UTC. InvalidInput for metadata that JSON cannot hold."""
        plain = {name: getattr(self, name) for name in _KEYS}
        plain |= {"metadata": dict(self.metadata), "archived_at": iso(self.archived_at)}
        what = f"archive of {self.id!r}"
        try:
            _check_json(plain)
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{what}: not a JSON value ({error})") from None
        utf8(text, what)
        return text

    @classmethod
    def from_json(cls, line: str) -> Archived:
        """The entry that ``to_json`` wrote. InvalidInput says what is wrong with the line; other keys are ignored."""
        try:
            found = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"not JSON: {error}") from None
        if not isinstance(found, dict):
            raise InvalidInput(f"a JSON object expected, not {type(found).__name__}")
        absent = [name for name in _KEYS if name not in found]
        if absent:
            raise InvalidInput(f"without {', '.join(absent)}")
        if not isinstance(found["archived_at"], str):
            raise InvalidInput(f"archived_at: an ISO 8601 string expected, not {found['archived_at']!r}")
        if "\\u" in line:  # else the line, which was UTF-8, holds no lone surrogate
            utf8(json.dumps(found, ensure_ascii=False), "its text")
        return cls(**{name: found[name] for name in _KEYS})


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that cannot be read. line: its number, from 1. reason: what is wrong with it."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Archive:
    """The forgotten chunks, in one file of JSON lines; of one id the last line counts.

    path: the file; the first ``append`` makes it, readable by its owner alone, and its folders.
    Any number of processes may append and read; a writer waits for the one before it. Blocks on the disk.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(given, str) or not given or "\0" in given:
            raise InvalidInput(f"archive: the path of a file expected, not {path!r}")
        self.path = Path(given).absolute()  # the working directory may change

    def __repr__(self) -> str:
        return f"Archive({str(self.path)!r})"

    def append(self, entries: Sequence[Archived]) -> None:
        """Add entries to the end, all or none; once this returns, they are on the disk.

        Raises InvalidInput for what JSON cannot hold and a path that is no plain file, before a byte is written;
        OSError, with the path and the reason, when the disk does not take them.
        """
        data = b"".join(f"{entry.to_json()}\n".encode() for entry in entries)
        if not data:
            return
        try:
            with _locked_for_writing(Path(os.path.realpath(self.path))) as file:
                _append(file, data)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the archive takes no entries, so nothing may be forgotten: {error.strerror}",
                str(self.path),
            ) from error

    def read(self) -> tuple[dict[str, Archived], list[Damage]]:
        """Entries by id, of one id the last, in the order of their lines; and the lines that cannot be read.

        A missing file holds nothing. Holds all entries in memory; ``entries`` does not.
        """
        found: dict[str, Archived] = {}
        damaged: list[Damage] = []
        for entry in self.entries():
            if isinstance(entry, Damage):
                damaged.append(entry)
            else:
                found.pop(entry.id, None)  # so that it stands where its last line does
                found[entry.id] = entry
        return found, damaged

    def entries(self) -> Iterator[Archived | Damage]:
        """Every line, first to last, in constant memory: an entry, or what is wrong with it.

        What is appended meanwhile is not among them. Raises InvalidInput for a path that is no plain file, OSError
        when the file is there and cannot be read.
        """
        try:
            _check_plain(os.stat(self.path), self.path)  # before it is opened: a pipe would be waited for
            file = open(self.path, "rb")  # noqa: SIM115 - closed by the with below, which must not hide FileNotFoundError
        except FileNotFoundError:
            return
        with file:
            _lock(file.fileno(), exclusive=False)  # a writer is done, or has not begun
            end = os.fstat(file.fileno()).st_size
            _unlock(file.fileno())
            at = 0
            for line_number, line in enumerate(file, 1):
                if at >= end:
                    return
                line, at = line[: end - at], at + len(line)
                if line.strip():
                    yield _entry(line, line_number)

    def remove(self, gone: Callable[[Archived], bool]) -> tuple[int, list[Damage]]:
        """Take out the entries that are ``gone``; how many there were, and the lines that cannot be read, which stay.

        Lines are numbered as they then are. A file is written anew beside it and then put in its place, so that one of
        the two is whole at any moment.
        Raises InvalidInput for a path that is no plain file; OSError, with the path, when the disk does not take it.
        """
        damaged, any_gone = list[Damage](), False
        for entry in self.entries():
            if isinstance(entry, Damage):
                damaged.append(entry)
            else:
                any_gone = any_gone or gone(entry)
        if not any_gone:  # then it need not be writable
            return 0, damaged
        path = Path(os.path.realpath(self.path))
        removed = kept = 0
        damaged.clear()
        try:
            with _locked_for_writing(path) as file, _replacing(path, os.fstat(file)) as (anew, replace):
                with open(path, "rb") as lines:
                    for line in lines:
                        read = _entry(line, kept + 1) if line.strip() else None
                        if isinstance(read, Archived) and gone(read):
                            removed += 1
                            continue
                        if isinstance(read, Damage):
                            damaged.append(read)
                        kept += 1
                        anew.write(line)
                replace()
        except OSError as error:
            raise OSError(
                error.errno, f"the archive cannot be written anew, and is as it was: {error.strerror}", str(self.path)
            ) from error
        return removed, damaged


def _entry(line: bytes, line_number: int) -> Archived | Damage:
    try:
        return Archived.from_json(line.removesuffix(b"\n").decode())
    except ValueError as error:  # UnicodeDecodeError is one too
        return Damage(line_number, str(error) if line.endswith(b"\n") else f"cut short: {error}")


# --- the file -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked_for_writing(path: Path) -> Iterator[int]:
    """The file's descriptor, its only writer; made if there is none."""
    _make_folder(path.parent)
    while True:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _check_plain(os.fstat(file), path)
            _lock(file, exclusive=True)
            if not _is_at(file, path):
                continue  # moved or removed while we waited: what is written to it would be lost
            if not os.fstat(file).st_size:
                _sync_folder(path.parent)  # before the first line, so that no file with lines lacks its name
            yield file
            return
        finally:
            os.close(file)  # and with it goes the lock


@contextlib.contextmanager
def _replacing(path: Path, like: os.stat_result) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """A file beside the path, and what puts it in its place; without that it is gone again.

    Of one name, for whoever holds the lock: so the next one takes away what a killed process left.
    """
    beside = path.with_name(f".{path.name}.anew")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as anew:

        def replace() -> None:
            anew.flush()
            made = os.fstat(anew.fileno())
            if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
                os.fchown(anew.fileno(), like.st_uid, like.st_gid)  # whose it was must be able to go on
            os.fchmod(anew.fileno(), stat.S_IMODE(like.st_mode))
            os.fsync(anew.fileno())
            os.replace(beside, path)
            _sync_folder(path.parent)

        try:
            yield anew, replace
        finally:
            with contextlib.suppress(FileNotFoundError):  # it has another name
                os.unlink(beside)


def _check_plain(found: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"archive {str(path)!r}: not a plain file")


def _append(file: int, data: bytes) -> None:
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        data = b"\n" + data  # a writer was killed within a line
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except BaseException:
        with contextlib.suppress(OSError):  # all or none, as far as the disk lets us
            os.ftruncate(file, size)
        raise


def _make_folder(folder: Path) -> None:
    """Make it and those above it, private, each known to the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):  # another process was faster; a file there fails at the next step
        os.mkdir(folder, 0o700)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(file: int, *, exclusive: bool) -> None:
    if sys.platform == "win32":
        raise NotSupported("the archive needs flock(2), which Windows lacks; use it on Linux or macOS")
    fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)


def _unlock(file: int) -> None:
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_UN)


# --- JSON -----------------------------------------------------------------------------------------


def _check_json(value: Any, depth: int = 0) -> None:
    """json.dumps turns the key 1 into "1", and back comes another value; refuse it instead."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no string")
            _check_json(part, depth + 1)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_json(part, depth + 1)


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")
