"""The archive: what append has acknowledged is there, whatever happens to the process or the file."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import functools
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retriever.errors import InvalidInput
from retriever.memory import archive as module
from retriever.memory.archive import Archive, Archived, Damage

ROOT = Path(__file__).parents[2]
NOW = 1_785_254_389.25


def archived(id="d-1/r/0", **changes):
    """An entry with every field set."""
    given = {
        "doc_id": "d-1",
        "chunk_index": 0,
        "content": "first line\nsecond line",
        "metadata": {"tags": ["a"], "importance": None, "access_count": 3, "created_at": "2026-07-28T15:59:49Z"},
        "score": 0.04,
        "reason": "score 0.04 is below 0.05",
        "archived_at": NOW,
    }
    return Archived(id, **(given | changes))


def child(code, *args):
    """A process that runs the code with the arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def store(tmp_path):
    return Archive(tmp_path / "archive" / "chunks.jsonl")


# --- entries ---------------------------------------------------------------------------------------

strings = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=8,
)
entries = st.builds(
    Archived,
    id=strings.filter(bool),
    doc_id=strings,
    chunk_index=st.integers(0, 2**40),
    content=strings,
    metadata=st.dictionaries(strings, json_values, max_size=4),
    score=st.floats(0, 2),
    reason=strings,
    archived_at=st.floats(-62_135_596_800, 253_402_300_799),
)


@given(entries)
def test_an_entry_is_one_line_and_comes_back_equal(entry):
    """from_json(to_json(entry)) == entry, whatever characters it holds, and the line holds no line feed."""
    line = entry.to_json()
    assert "\n" not in line
    assert Archived.from_json(line) == entry


def test_a_line_shows_times_as_iso_8601_in_utc():
    """Outside, times are ISO 8601 with Z (B2), and the line has the nine keys of the form (B33)."""
    found = json.loads(archived().to_json())
    assert found["archived_at"] == "2026-07-28T15:59:49.250000Z"
    assert list(found) == [each.name for each in dataclasses.fields(Archived)]
    assert found["metadata"] == archived().metadata
    assert found["schema"] == 1


def test_text_is_readable_in_the_file(store):
    """Letters beyond ASCII stand in the file as themselves."""
    store.append([archived(content="Größe 日本")])
    assert "Größe 日本" in store.path.read_text("utf-8")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": ""}, "id: a non-empty string"),
        ({"id": 1}, "id: a string expected, not 1"),
        ({"content": None}, "content: a string expected, not None"),
        ({"chunk_index": -1}, "chunk_index: an int from 0 expected, not -1"),
        ({"chunk_index": True}, "chunk_index"),
        ({"metadata": []}, "metadata: a mapping expected"),
        ({"score": float("nan")}, "score: nan is not finite"),
        ({"score": "1"}, "score: a number expected"),
        ({"archived_at": float("inf")}, "archived_at"),
        ({"schema": 2}, "schema: 2 is not 1"),
        ({"schema": True}, "schema: True is not 1"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(changes, said):
    """What no chunk can be is InvalidInput, which names the field and the value."""
    with pytest.raises(InvalidInput, match=said):
        archived(**changes)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"a": float("nan")}, "Out of range float"),
        ({"a": {1: "b"}}, "key 1 is no string"),
        ({"a": {"b", "c"}}, "set is not JSON serializable"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": functools.reduce(lambda inner, _: [inner], range(300), 0)}, "nested deeper"),
    ],
)
def test_what_json_cannot_hold_is_refused_before_a_byte_is_written(store, metadata, said):
    """An entry that would come back as another one is InvalidInput, and none of its batch is written."""
    with pytest.raises(InvalidInput, match=f"d-2.*{said}"):
        store.append([archived(), archived("d-2/r/0", metadata=metadata)])
    assert not store.path.exists()


def test_metadata_as_deep_as_a_store_takes_it_can_be_archived():
    """A chunk whose stored field is nested as deep as a field may be can be archived too, and read again."""
    deep = 0
    for _ in range(module.MAX_STORED_DEPTH):
        deep = [deep]
    entry = archived(metadata={"metadata": {"deep": deep}})
    assert Archived.from_json(entry.to_json()) == entry


# --- appending -------------------------------------------------------------------------------------


def test_what_was_appended_is_read_in_order(store):
    """Entries of several appends come back, equal and in order, and nothing is damaged."""
    first, second, third = (archived(f"d/r/{n}", chunk_index=n) for n in range(3))
    store.append([first, second])
    store.append((third,))
    found, damaged = store.read()
    assert list(found.values()) == [first, second, third]
    assert list(found) == ["d/r/0", "d/r/1", "d/r/2"]
    assert damaged == []


def test_of_one_id_the_last_line_counts(store):
    """An id that was forgotten, restored and forgotten again is what it was last (B33), at its last place."""
    store.append([archived("a", score=0.01), archived("b"), archived("a", score=0.02)])
    found, damaged = store.read()
    assert [(entry.id, entry.score) for entry in found.values()] == [("b", 0.04), ("a", 0.02)]
    assert damaged == []


def test_a_missing_file_is_empty(store):
    """Reading before the first append gives nothing, and makes no file."""
    assert store.read() == ({}, [])
    assert not store.path.parent.exists()


def test_no_entries_make_no_file(store):
    """Appending nothing touches nothing."""
    store.append([])
    assert not store.path.parent.exists()


def test_the_file_and_its_folders_are_private(tmp_path):
    """Memories are personal: the file is 0600 and the folders made for it 0700."""
    old = os.umask(0o022)
    try:
        Archive(tmp_path / "a" / "b" / "c.jsonl").append([archived()])
    finally:
        os.umask(old)
    modes = [stat.S_IMODE((tmp_path / part).stat().st_mode) for part in ("a", "a/b", "a/b/c.jsonl")]
    assert modes == [0o700, 0o700, 0o600]


def test_the_path_is_kept_when_the_working_directory_changes(tmp_path, monkeypatch):
    """A relative path means the folder it was given in."""
    monkeypatch.chdir(tmp_path)
    store = Archive("chunks.jsonl")
    monkeypatch.chdir("/")
    store.append([archived()])
    assert (tmp_path / "chunks.jsonl").exists()


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes"])
def test_what_is_no_path_is_refused(path):
    """An empty path would be the working directory."""
    with pytest.raises(InvalidInput, match="archive: the path of a file"):
        Archive(path)


def test_append_returns_after_the_disk_has_all(store, monkeypatch):
    """The folder's entry is on the disk before the first line, the file after its last; later only the file."""
    synced = []

    def recorded(file, fsync=os.fsync):
        fsync(file)
        folder = stat.S_ISDIR(os.fstat(file).st_mode)
        synced.append(os.readlink(f"/proc/self/fd/{file}") if folder else store.path.stat().st_size)

    monkeypatch.setattr(module.os, "fsync", recorded)
    store.append([archived()])
    line = len(archived().to_json()) + 1
    folder = store.path.parent
    assert synced == [str(folder.parent), str(folder), line]
    store.append([archived(), archived()])
    assert synced[3:] == [3 * line]


# --- what cannot be written ------------------------------------------------------------------------


def test_a_path_under_a_file_is_an_error_with_path_and_reason(tmp_path):
    """Where no file can be made, append raises OSError that names the path and says why (B107)."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="nothing may be forgotten: Not a directory: '.*/file/a.jsonl'"):
        Archive(tmp_path / "file" / "a.jsonl").append([archived()])


def test_a_folder_in_its_place_is_an_error(tmp_path):
    """A folder is no archive, for writers and readers."""
    with pytest.raises(IsADirectoryError, match="the archive takes no entries"):
        Archive(tmp_path).append([archived()])
    with pytest.raises(IsADirectoryError):
        Archive(tmp_path).read()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/full"])
def test_a_device_is_refused(path):
    """/dev/null takes everything and keeps nothing: it is no archive."""
    with pytest.raises(InvalidInput, match=f"archive '{path}': not a plain file"):
        Archive(path).append([archived()])
    with pytest.raises(InvalidInput, match=f"archive '{path}': not a plain file"):
        Archive(path).read()


def test_a_pipe_is_not_waited_for(tmp_path):
    """A pipe without a writer is refused, to append to and to read from."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="not a plain file"):
        Archive(tmp_path / "pipe").append([archived()])
    with pytest.raises(InvalidInput, match="not a plain file"):
        Archive(tmp_path / "pipe").read()


_FULL = """
import resource, sys
from retriever.memory.archive import Archive, Archived
entry = lambda id: Archived(id, "d", 0, "x" * 1000, {}, 0.0, "", 0.0)
store = Archive(sys.argv[1])
store.append([entry("kept")])
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
try:
    store.append([entry(str(n)) for n in range(9)])
except OSError as error:
    print(error.errno, error)
"""


def test_a_full_disk_leaves_the_file_as_it_was(store):
    """When the disk takes only part of an append, append raises and none of it stays."""
    process = child(_FULL, store.path)
    said, _ = process.communicate()
    assert process.returncode == 0
    assert said.startswith(f"{errno.EFBIG} ")
    assert str(store.path) in said
    found, damaged = store.read()
    assert (list(found), damaged) == (["kept"], [])
    assert store.path.read_bytes().endswith(b"}\n")


def test_a_disk_that_fails_to_sync_is_an_error(store, monkeypatch):
    """Lines that may not have reached the disk are not acknowledged, and taken back."""
    store.append([archived("a")])

    def fails(file):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", fails)
        with pytest.raises(OSError, match="nothing may be forgotten: Input/output error"):
            store.append([archived("b")])
    assert list(store.read()[0]) == ["a"]


# --- damage ----------------------------------------------------------------------------------------

GOOD = archived().to_json()


def line_with(**changes):
    return json.dumps(json.loads(GOOD) | changes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id": "a", "con', "not JSON: Unterminated string"),
        (b"\0" * 100, "not JSON"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        (b"[]", "a JSON object expected, not list"),
        (b"{}", "without id, doc_id"),
        (line_with(content="a").replace('"a"', '"\\ud800"').encode(), "lone surrogate"),
        (b"[" * 100_000, "not JSON"),
        (line_with(schema=2).encode(), "schema: 2 is not 1"),
        (line_with(archived_at=1.0).encode(), "archived_at: an ISO 8601 string expected"),
        (line_with(archived_at="2026-07-28T15:59:49").encode(), "no time zone"),
        (line_with(score=None).encode(), "score: a number expected, not None"),
        (line_with(score=float("nan")).encode(), "NaN is no number of JSON"),
        (line_with(metadata={"a": float("inf")}).encode(), "Infinity is no number of JSON"),
        (line_with(metadata="{}").encode(), "metadata: a mapping expected"),
        (line_with(chunk_index="0").encode(), "chunk_index"),
    ],
)
def test_a_damaged_line_is_reported_and_skipped(store, line, said):
    """A line that is no entry costs itself only: it is named by its number, with the reason."""
    store.append([archived("before")])
    with store.path.open("ab") as file:
        file.write(line + b"\n\n")
    store.append([archived("after")])
    found, damaged = store.read()
    assert list(found) == ["before", "after"]
    assert [each.line for each in damaged] == [2]
    assert said in damaged[0].reason


def test_keys_of_others_are_ignored(store):
    """A key that someone added to a line does not make it unreadable."""
    store.path.parent.mkdir()
    store.path.write_text(line_with(note="mine") + "\n")
    assert store.read() == ({archived().id: archived()}, [])


def test_a_line_cut_anywhere_is_healed_by_the_next_append(store):
    """Wherever a killed writer stopped, the lines before stay, the cut one alone is lost, the next append is whole."""
    store.append([archived("a"), archived("b", content="é\n")])
    whole = store.path.read_bytes()
    first = whole.index(b"\n") + 1
    for size in range(first, len(whole)):
        store.path.write_bytes(whole[:size])
        cut = store.read()
        store.append([archived("c")])
        found, damaged = store.read()
        has_b = size == len(whole) - 1  # only its line feed is missing
        assert list(found) == ["a", *(["b"] if has_b else []), "c"]
        assert [each.line for each in damaged] == ([] if has_b or size == first else [2])
        assert [each.reason.startswith("cut short: ") for each in cut[1]] == [True] * len(damaged)


@settings(max_examples=60)
@given(st.binary(max_size=300), st.integers(0, 3))
def test_no_bytes_are_fatal(tmp_path_factory, noise, place):
    """Whatever stands between the lines, reading ends, and finds the entries around it."""
    store = Archive(tmp_path_factory.mktemp("noise") / "a.jsonl")
    lines = [archived(f"id-{n}").to_json().encode() for n in range(3)]
    lines.insert(place, noise)
    store.path.write_bytes(b"\n".join(lines) + b"\n")
    found, damaged = store.read()
    assert list(found) == ["id-0", "id-1", "id-2"]
    assert len(damaged) <= noise.count(b"\n") + 1


def test_entries_are_every_line_in_order(store):
    """entries() gives each line as it comes, an id's earlier ones too, and damage in its place."""
    store.append([archived("a"), archived("a", score=1.0)])
    with store.path.open("a") as file:
        file.write("?\n")
    store.append([archived("b")])
    found = list(store.entries())
    assert [each.id if isinstance(each, Archived) else each.line for each in found] == ["a", "a", 3, "b"]
    assert isinstance(found[2], Damage)


def test_what_is_appended_while_reading_is_not_read(store):
    """A reader sees the file as it was when it began, and holds no lock: it may append to what it reads."""
    store.append([archived("a"), archived("b")])
    seen = []
    for entry in store.entries():
        seen.append(entry.id)
        store.append([archived(f"{entry.id}-again")])
    assert seen == ["a", "b"]
    assert list(store.read()[0]) == ["a", "b", "a-again", "b-again"]


def test_a_line_healed_while_reading_is_still_cut_short(store):
    """A reader sees the last line as it was when it began, also if an append ends it meanwhile."""
    store.append([archived("a")])
    with store.path.open("ab") as file:
        file.write(b'{"id"')
    found = store.entries()
    assert next(found).id == "a"
    store.append([archived("b")])
    [damage] = found
    assert str(damage).startswith("line 2: cut short: not JSON")


def test_a_long_file_is_read_in_constant_memory(store):
    """Iterating costs the memory of a line, not of the file."""
    store.append([archived(f"d/r/{n}", content="x" * 1000) for n in range(5_000)])
    sum(1 for _ in store.entries())  # what the first run imports and caches is not the file's
    tracemalloc.start()
    try:
        assert sum(1 for _ in store.entries()) == 5_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert store.path.stat().st_size > 5_000_000
    assert peak < 500_000


# --- several processes -----------------------------------------------------------------------------


def test_a_writer_waits_for_the_one_before_it(store):
    """While another holds the file's lock, an append writes nothing, and then does."""
    store.append([archived("a")])
    size = store.path.stat().st_size
    with store.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writer = threading.Thread(target=store.append, args=([archived("b")],))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert store.path.stat().st_size == size
    writer.join()
    assert list(store.read()[0]) == ["a", "b"]


def test_a_file_that_was_moved_meanwhile_is_not_written(store):
    """A writer that waited for a file which then was moved away writes to the path, not to the moved file."""
    store.append([archived("a")])
    moved = store.path.with_name("moved.jsonl")
    with store.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writer = threading.Thread(target=store.append, args=([archived("b")],))
        writer.start()
        writer.join(0.2)
        store.path.rename(moved)
    writer.join()
    assert list(store.read()[0]) == ["b"]
    assert list(Archive(moved).read()[0]) == ["a"]


_LOOP = """
import sys
from retriever.memory.archive import Archive, Archived
path, name, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = Archive(path)
for n in range(count):
    store.append([Archived(f"{name}-{n}-{part}", name, part, "x" * size, {"n": n}, 0.0, "", 0.0) for part in range(3)])
    print(f"{name}-{n}", flush=True)
"""


def test_processes_that_append_at_once_lose_nothing(store):
    """Four processes on one file: every entry of each is there, each append in one piece."""
    processes = [child(_LOOP, store.path, name, 25, 20_000) for name in "abcd"]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    found, damaged = store.read()
    assert damaged == []
    assert set(found) == {f"{name}-{n}-{part}" for name in "abcd" for n in range(25) for part in range(3)}
    ids = list(found)
    assert all(ids[at].rpartition("-")[0] == ids[at + 2].rpartition("-")[0] for at in range(0, len(ids), 3))


@pytest.mark.parametrize("size", [50, 1_000_000])
def test_a_killed_writer_loses_nothing_that_was_acknowledged(store, size):
    """SIGKILL at any moment: all acknowledged entries are readable, at most the last line of each life is cut."""
    chance = random.Random(size)
    acknowledged = set()
    lives = 6
    for life in range(lives):
        process = child(_LOOP, store.path, f"life{life}", 1_000_000, size)
        lines = [process.stdout.readline().strip()]  # it is at work
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        lines += process.communicate()[0].splitlines()
        assert process.returncode == -signal.SIGKILL
        acknowledged |= {f"{name}-{part}" for name in lines for part in range(3)}
        found, damaged = store.read()
        assert acknowledged <= set(found)
        assert len(damaged) <= life + 1
    store.append([archived("after")])
    found, damaged = store.read()
    assert acknowledged | {"after"} <= set(found)
    # Beyond what was acknowledged: the one append of each life that was under way.
    assert len(found) <= len(acknowledged) + 3 * lives + 1
    assert all("not JSON" in each.reason for each in damaged)


# --- taking lines out -----------------------------------------------------------------------------


def test_lines_are_taken_out_and_the_others_stay_as_they_are(store):
    """Whatever is not gone keeps its bytes, also what cannot be read, which is told; so do mode and folder."""
    store.append([archived("a"), archived("b"), archived("a", reason="again")])
    with open(store.path, "a") as file:
        file.write("\n{broken\n")
    store.append([archived("c")])
    os.chmod(store.path, 0o640)
    lines = store.path.read_text().splitlines(keepends=True)
    removed, damaged = store.remove(lambda entry: entry.id == "a")
    assert (removed, [each.line for each in damaged]) == (2, [3])
    assert store.path.read_text() == "".join([lines[1], *lines[3:]])
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o640
    assert os.listdir(store.path.parent) == [store.path.name]


def test_nothing_to_take_out_writes_nothing(store):
    """No file is made where there is none, and one of others is not touched."""
    assert store.remove(lambda entry: True) == (0, [])
    assert not store.path.parent.exists()
    store.append([archived("a")])
    before = store.path.stat()
    assert store.remove(lambda entry: False) == (0, [])
    assert os.path.samestat(store.path.stat(), before)
    assert os.listdir(store.path.parent) == [store.path.name]


@pytest.mark.parametrize("call", ["replace", "fsync", "fchmod"])
def test_a_disk_that_takes_no_new_file_leaves_the_old_one(store, monkeypatch, call):
    """The error names the archive, which is as it was; nothing lies beside it."""
    store.append([archived("a"), archived("b")])
    before = store.path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, call, full)
    with pytest.raises(OSError, match="is as it was") as raised:
        store.remove(lambda entry: entry.id == "a")
    monkeypatch.undo()
    assert raised.value.filename == str(store.path)
    assert store.path.read_bytes() == before
    assert os.listdir(store.path.parent) == [store.path.name]


def test_whoever_appends_meanwhile_loses_nothing(store):
    """Appends from threads while lines are taken out again and again: all of theirs are there in the end."""
    store.append([archived("gone")])
    done = threading.Event()

    def append(who):
        for at in range(60):
            store.append([archived(f"{who}-{at}"), archived("gone")])

    def remove():
        while not done.is_set():
            store.remove(lambda entry: entry.id == "gone")

    remover = threading.Thread(target=remove)
    writers = [threading.Thread(target=append, args=(who,)) for who in "abc"]
    for each in (remover, *writers):
        each.start()
    for each in writers:
        each.join()
    done.set()
    remover.join()
    store.remove(lambda entry: entry.id == "gone")
    found, damaged = store.read()
    assert not damaged
    assert set(found) == {f"{who}-{at}" for who in "abc" for at in range(60)}


def test_what_a_killed_process_left_goes_with_the_next(store):
    """The file that it was writing, which held others' lines, has one name and is begun anew."""
    store.append([archived("a"), archived("b")])
    left = store.path.with_name(f".{store.path.name}.anew")
    left.write_text("lines of others")
    assert store.remove(lambda entry: entry.id == "a") == (1, [])
    assert os.listdir(store.path.parent) == [store.path.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_archive_stays_its_owner_s(store):
    """Who runs the service goes on appending after root took lines out."""
    store.append([archived("a"), archived("b")])
    os.chown(store.path, 65534, 65534)
    store.remove(lambda entry: entry.id == "a")
    assert (store.path.stat().st_uid, store.path.stat().st_gid) == (65534, 65534)


def test_what_holds_nothing_of_it_need_not_be_writable(store, monkeypatch):
    """A file without a line to take out is read and no more."""
    store.append([archived("a")])
    monkeypatch.setattr(module, "_locked_for_writing", None)
    assert store.remove(lambda entry: entry.id == "b") == (0, [])
