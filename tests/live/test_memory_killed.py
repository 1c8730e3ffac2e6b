"""Nothing of a store of memory is lost when a process that works on it is really killed, by SIGKILL, at any point.

A point is any command for the server, also within a round trip of many, and any write of the archive to the disk,
which is then half done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
import signal
import traceback

import pytest
import valkey

from retriever import Vector, embedded
from retriever.embedded import EmbeddedServer
from retriever.errors import NotSupported
from retriever.memory.keeping import CLEAR
from retriever.memory.store import MemoryStore, Note
from retriever.plans import Command
from tests.clients import Shell
from tests.fakes import Embedder
from tests.memory_stores import chunk_ids, dump, keys, lines, note

# From Python 3.12 on a fork beside threads warns; other tests may have left some, which hold nothing.
pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]

LONG = [f"ferry line {at}" for at in range(4)]
SHORT = ["ferry line 0", "ferry plane 1"]
OTHER = ["ferry other"]


def dropped(raw, namespaces):
    """Drop every index and key of the namespaces whose names begin so."""
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(f"{{memory.{namespaces}".encode()):
            raw.execute_command("FT.DROPINDEX", index)
    for key in raw.scan_iter(f"{{memory.{namespaces}*", count=1000):
        raw.unlink(key)


@pytest.fixture
def open_store(url, name, raw, clustered, tmp_path):
    """Opens blocking stores of the test's own namespaces, ``open_store(**arguments of open)``, and closes them."""
    opened = []

    def open_store(to=url, **given):
        usual = {"namespace": name, "embed": Embedder(), "archive": tmp_path / "a.jsonl", "cluster": clustered}
        opened.append(MemoryStore.open(to, **{**usual, "vector": Vector(algorithm="FLAT"), **given}))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()
    dropped(raw, name)


@pytest.fixture
def memory(open_store):
    """A blocking store, which forked processes use over connections of their own."""
    return open_store()


# --- processes that die ---------------------------------------------------------------------------


class Points:
    """The points that a process passes; at the one of a number ``end`` is called."""

    def __init__(self, at, end):
        self.left, self.end = at, end

    def passed(self):
        self.left -= 1
        if self.left == -1:
            self.end()


def every_point():
    """0, 1, 2 and so on, for a test that ends when there are no more points to be killed at."""
    yield from range(150)
    raise AssertionError("the processes come to no end")


class OneByOne:
    """A link that carries commands one by one, each a point that is passed before it."""

    def __init__(self, link, points):
        self.link, self.points = link, points

    def __getattr__(self, name):
        return getattr(self.link, name)

    def send(self, commands):
        replies = []
        for command in commands:
            self.points.passed()
            replies += self.link.send([command])
        return replies


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def doomed(store, at):
    """Let this process be killed at a point of what it does with the store."""
    points = Points(at, die)
    driver = store._retriever._driver
    driver.link = OneByOne(driver.link, points)
    write, sync = os.write, os.fsync

    def write_half(file, data):
        if not points.left:
            write(file, bytes(data)[: len(data) // 2])
        points.passed()
        return write(file, data)

    def passed_and_synced(file):
        points.passed()
        return sync(file)

    os.write, os.fsync = write_half, passed_and_synced


def begun(work):
    """The pid of a forked process that does it. It ends with 1 if the work raises, by SIGALRM if it takes a minute."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.alarm(60)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def ended(pid):
    """Whether a process came to its end; the other way is SIGKILL, and nothing else."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def killed(store, at, work):
    """Whether a process that does ``work(store)`` was killed at a point; not if it has fewer."""

    def child():
        doomed(store, at)
        work(store)

    return not ended(begun(child))


def at_once(*works):
    """Do them in a process each, begun at one moment; which came to their end."""
    waits, starts = os.pipe()

    def child(work):
        os.close(starts)
        os.read(waits, 1)
        work()

    pids = [begun(lambda work=work: child(work)) for work in works]
    os.close(starts)
    os.close(waits)
    return [ended(pid) for pid in pids]


class Unanswered:
    """A link that executes the command of a number, and then says that its reply did not come in time."""

    def __init__(self, link, at):
        self.link, self.left = link, at

    def __getattr__(self, name):
        return getattr(self.link, name)

    def send(self, commands):
        self.left, before = self.left - len(commands), self.left
        replies = self.link.send(commands[: before + 1] if self.left < 0 <= before else commands)
        if self.left < 0 <= before:
            raise valkey.exceptions.TimeoutError("no reply")
        return replies


@contextlib.contextmanager
def linked(store, link):
    """Meanwhile, the store's commands go through ``link(its own)``."""
    driver = store._retriever._driver
    own, driver.link = driver.link, link(driver.link)
    try:
        yield driver.link
    finally:
        driver.link = own


# --- what there is --------------------------------------------------------------------------------


def found(store):
    """What a search over everything brings, by words and by vector."""
    by_words = store.search("ferry", k=1000, reinforce=False).chunks
    by_vector = store.search("ferry", k=1000, reinforce=False, use_fts=False).chunks
    return (
        sorted(chunk.content for chunk in by_words if "text" in chunk.channels),
        sorted(chunk.content for chunk in by_vector),
    )


def both(texts):
    return (sorted(texts), sorted(texts))


def held(raw, store):
    """All that a namespace holds but the index's own metadata, whose lengths of texts a repeated write counts again."""
    return {key: value for key, value in dump(raw, Shell(store)).items() if key != store._memory.names.index.encode()}


def ids(raw, store):
    return set(chunk_ids(raw, Shell(store)))


def put(store, texts=LONG, **given):
    """Ingest lines as one source, which is read once, so that it has counters."""
    report = store.ingest(note("\n".join(texts), "s", tags=["t"], colour="red", **given), split=lines)
    assert report.failed == ()
    store.search("ferry", k=3)
    return report.sources[0].doc_id


# --- ingesting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", [SHORT, LONG, OTHER], ids=["again", "as before", "another"])
def test_ingesting_a_changed_source(memory, then):
    """The old version or the new one is whole, by words and by vector; the next ingest leaves one, and no orphan."""
    for at in every_point():
        doc_id = put(memory)
        survived = not killed(memory, at, lambda store: store.ingest(Note("\n".join(SHORT), "s"), split=lines))
        version = [chunk.content for chunk in memory.get_document_chunks(doc_id)]
        assert version in (LONG, SHORT), at
        for seen in found(memory):
            assert set(version) <= set(seen), at
        memory.ingest(Note("\n".join(then), "s"), split=lines)
        assert found(memory) == both(then), at
        assert memory.index_health().findings == (), at
        memory.delete_document(doc_id)
        if survived:
            break
    assert at > 12


@pytest.mark.parametrize("update_index", [True, False])
def test_ingesting_a_new_source(memory, raw, update_index):
    """The next ingest leaves it whole, and health is well."""

    def ingest(store):
        return store.ingest(note("\n".join(LONG), "s"), split=lines, update_index=update_index)

    for at in every_point():
        survived = not killed(memory, at, ingest)
        (source,) = ingest(memory).sources
        assert source.status in ("ingested", "skipped"), at
        memory.update_index()
        assert found(memory) == both(LONG), at
        assert memory.index_health().findings == (), at
        memory.delete_document(source.doc_id)
        assert keys(raw, Shell(memory)) == [memory._memory.names.index.encode()]
        if survived:
            break
    assert at > 8


def test_a_new_source_that_does_not_come_again(memory, raw):
    """Deleting its document takes all that a killed ingest of it left."""
    (source,) = memory.ingest(Note("ferry", "s"), dry_run=True).sources
    for at in every_point():
        survived = not killed(memory, at, lambda store: store.ingest(Note("\n".join(LONG), "s"), split=lines))
        left = len(ids(raw, memory))
        assert memory.delete_document(source.doc_id) == left, at
        assert keys(raw, Shell(memory)) == [memory._memory.names.index.encode()], at
        if survived:
            break
    assert at > 8


@pytest.mark.parametrize("then", [SHORT, OTHER], ids=["again", "another"])
def test_ingesting_where_one_reply_is_lost(memory, then):
    """The client's own error; one version is whole, and the next ingest leaves one, and no orphan."""
    for at in every_point():
        doc_id = put(memory)
        with linked(memory, lambda link, at=at: Unanswered(link, at)), contextlib.suppress(valkey.TimeoutError):
            memory.ingest(Note("\n".join(SHORT), "s"), split=lines)
            break
        version = [chunk.content for chunk in memory.get_document_chunks(doc_id)]
        assert version in (LONG, SHORT), at
        for seen in found(memory):
            assert set(version) <= set(seen), at
        memory.ingest(Note("\n".join(then), "s"), split=lines)
        assert found(memory) == both(then), at
        assert memory.index_health().findings == (), at
        memory.delete_document(doc_id)
    assert at > 12


# --- forgetting -----------------------------------------------------------------------------------


def test_forgetting(memory, raw):
    """Every chunk is in the store or in the archive; the next run ends it, and restore brings all back equal."""
    put(memory, importance=0.1)
    memory.ingest(note("ferry kept", "k"))
    before, everything = held(raw, memory), ids(raw, memory)
    cut = 0
    for at in every_point():
        survived = not killed(memory, at, lambda store: store.forget(dry_run=False))
        archived, damaged = memory._memory.archive.read()
        assert ids(raw, memory) | archived.keys() == everything, at
        assert len(damaged) - cut in (0, 1)
        cut = len(damaged)
        memory.forget(dry_run=False)
        archived, damaged = memory._memory.archive.read()
        assert (len(archived), len(damaged)) == (len(LONG), cut)
        assert ids(raw, memory) == everything - archived.keys()
        restored = memory.restore(lambda entry: True)
        assert (set(restored.restored), dict(restored.skipped)) == (archived.keys(), {})
        assert len(restored.damaged) == cut
        assert held(raw, memory) == before, at
        assert memory.index_health().findings == (), at
        if survived:
            break
    assert at > 8
    assert cut > 0


# --- a second call ends what a killed one began ---------------------------------------------------


def ingested_pending(store):
    return [put(store, update_index=False)]


def ingested(store):
    return [put(store, importance=0.1)]


def forgotten(store):
    ingested(store)
    return [each.chunk.id for each in store.forget(dry_run=False)]


# What there is before, what is done twice, and what is found afterwards.
TWICE = {
    "update_index": (ingested_pending, lambda store, given: store.update_index(), LONG),
    "restore": (forgotten, lambda store, given: store.restore(given), LONG),
    "delete_document": (ingested, lambda store, given: store.delete_document(*given), []),
    "delete_chunks": (
        ingested,
        lambda store, given: store.delete_chunks(
            [chunk.id for doc_id in given for chunk in store.get_document_chunks(doc_id)], reason="wrong"
        ),
        [],
    ),
    "set_chunk_tags": (
        ingested,
        lambda store, given: store.set_chunk_tags(*given, 1, tags=["u"], importance=0.5),
        LONG,
    ),
    "redate": (ingested, lambda store, given: store.redate(*given, "2020-01-01"), LONG),
    "clear": (ingested, lambda store, given: store.set_chunk_tags(*given, 0, tags=CLEAR, importance=CLEAR), LONG),
}


@pytest.mark.parametrize("name_of", TWICE)
def test_a_second_call(memory, raw, name_of):
    """Killed at any point, a second call leaves what one leaves that nobody killed, in every field and counter."""
    prepare, work, expected = TWICE[name_of]

    def values():
        names = "content tags importance source_date access_count metadata pending".split()
        return {
            (chunk.source, chunk.chunk_index): [getattr(chunk, each) for each in names]
            for chunk in memory.find_by_tag("t") + memory.find_by_tag("u")
        }

    (source,) = memory.ingest(Note("ferry", "s"), dry_run=True).sources
    given = prepare(memory)
    work(memory, given)
    once = values()
    archived = memory._memory.archive.read()[0].keys()
    for at in every_point():
        memory.delete_document(source.doc_id)
        memory._memory.archive.path.unlink(missing_ok=True)
        given = prepare(memory)
        everything = ids(raw, memory) | memory._memory.archive.read()[0].keys()
        survived = not killed(memory, at, lambda store, given=given: work(store, given))
        if name_of != "delete_document":
            assert ids(raw, memory) | memory._memory.archive.read()[0].keys() == everything, at
        work(memory, given)
        assert values() == once, at
        assert found(memory) == both(expected), at
        assert len(memory._memory.archive.read()[0]) == len(archived), at
        assert memory.index_health().findings == (), at
        if survived:
            break
    assert at > 0


# --- generations ----------------------------------------------------------------------------------


NEW = {"embed": Embedder(3, name="new", dims=3)}


def test_rebuilding(name, raw, open_store):
    """Killed at any point, readers of the old model miss nothing, and the next call makes the new one whole."""
    for at in every_point():
        namespace = f"{name}-{at}"
        old = open_store(namespace=namespace)
        put(old, SHORT)
        survived = not killed(open_store(namespace=namespace, **NEW), at, lambda store: store.rebuild_index())
        assert found(old) == both(SHORT), at
        new = open_store(namespace=namespace, **NEW)
        new.rebuild_index()
        assert found(new) == found(open_store(namespace=namespace, **NEW)) == found(old) == both(SHORT), at
        for store in (old, new):
            assert store.index_health().findings == (), at
        if survived:
            break
        dropped(raw, namespace)  # making an index asks about every other one
    assert at > 20


def test_dropping_other_generations(name, raw, open_store):
    """Killed at any point, the own generation is whole; the next call drops the others, and all can be rebuilt."""
    for at in every_point():
        namespace = f"{name}-{at}"
        old = open_store(namespace=namespace)
        put(old)
        new = open_store(namespace=namespace, **NEW)
        new.rebuild_index()
        survived = not killed(new, at, lambda store: store.drop_other_generations())
        assert found(new) == both(LONG), at
        new.drop_other_generations()
        assert found(new) == both(LONG), at
        assert new.index_health().findings == (), at
        again = open_store(namespace=namespace)
        again.rebuild_index()
        assert found(again) == found(new) == both(LONG), at
        if survived:
            break
        dropped(raw, namespace)
    assert at > 5


def test_opening(name, raw, open_store):
    """Killed at any point while a namespace is made, it can be opened and used."""
    for at in every_point():
        namespace = f"{name}-{at}"

        def child(at=at, namespace=namespace):
            make = MemoryStore.open.__globals__["Retriever"]
            connect = make.connect

            def connected(*args, **given):
                retriever = connect(*args, **given)
                retriever._driver.link = OneByOne(retriever._driver.link, Points(at, die))
                return retriever

            make.connect = connected
            open_store(namespace=namespace)

        survived = ended(begun(child))
        store = open_store(namespace=namespace)
        put(store)
        assert found(store) == both(LONG), at
        assert store.index_health().findings == ()
        if survived:
            break
        dropped(raw, namespace)
    assert at > 5


# --- processes that are not alone -----------------------------------------------------------------


def versions(count):
    """Texts of different lengths."""
    return [[f"ferry {at} of {version}" for at in range(version + 1)] for version in range(count)]


def test_one_source_ingested_by_several(memory):
    """One version is left, whole, with no tail of another; none of the processes fails (B40)."""
    texts = versions(5)
    works = [lambda text=text: put(memory, text) for text in texts]
    for _ in range(4):
        assert all(at_once(*works))
        by_words, by_vector = found(memory)
        assert by_words == by_vector
        assert by_words in [sorted(text) for text in texts]
        health = memory.index_health()
        assert (health.documents, health.ok) == (1, True), health


def test_one_source_ingested_by_several_that_are_killed(memory):
    """At least one version is whole as soon as one was; the next that is another one leaves itself alone (B40)."""
    texts = versions(4)
    put(memory, LONG)

    def dies(text, at):
        doomed(memory, at)
        put(memory, text)

    for at in range(1, 24, 3):
        works = [lambda text=text, at=at + who: dies(text, at) for who, text in enumerate(texts)]
        at_once(*works, lambda: put(memory, SHORT))
        whole = [text for text in [*texts, SHORT, LONG] if all(set(text) <= set(seen) for seen in found(memory))]
        assert whole, at
        put(memory, LONG)
        assert found(memory) == both(LONG), at
        health = memory.index_health()
        assert (health.documents, health.ok) == (1, True), (at, health)


def test_reads_of_several_processes(memory):
    """Each is counted (B25, B40)."""
    doc_id = memory.ingest(Note("\n".join(LONG), "s"), split=lines).sources[0].doc_id

    def read():
        for _ in range(20):
            assert len(memory.search("ferry", k=4).chunks) == 4

    assert all(at_once(*[read] * 4))
    assert [chunk.access_count for chunk in memory.get_document_chunks(doc_id)] == [80] * 4


def test_forgetting_while_others_ingest(memory, raw):
    """Of every source the last version is whole, in the store and the archive together; restore brings it (B40)."""

    def ingest(source):
        for text in [*versions(6), LONG]:
            memory.ingest(note("\n".join(f"{source} {line}" for line in text), source, importance=0.1), split=lines)

    def forget():
        for _ in range(20):
            memory.forget(dry_run=False)

    assert all(at_once(lambda: ingest("a"), forget, lambda: ingest("b"), forget))
    memory.forget(dry_run=False)
    restored = memory.restore(lambda entry: True)
    assert restored.damaged == ()
    assert len(restored.restored) == 2 * len(LONG)
    for source in "ab":
        (report,) = memory.ingest(Note("ferry", source), dry_run=True).sources
        chunks = memory.get_document_chunks(report.doc_id)
        assert [chunk.content for chunk in chunks] == [f"{source} {line}" for line in LONG]
    assert found(memory) == both([f"{source} {line}" for source in "ab" for line in LONG])
    health = memory.index_health()
    assert health.ok, health


# --- an archive that cannot be written, or read ---------------------------------------------------


def no_rights(path):
    os.chmod(path.parent, 0o500)
    if not os.geteuid():
        os.seteuid(65534)


def no_room(path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 700,) * 2)


def no_disk(path):
    def fail(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    os.fsync = fail


@pytest.mark.parametrize("trouble", [no_rights, no_room, no_disk])
def test_an_archive_that_takes_nothing(open_store, raw, tmp_path, trouble):
    """Nothing is deleted, and the archive is as it was: no rights, a disk that is full midway or fails (B33)."""
    store = open_store(archive=tmp_path / "folder" / "a.jsonl")
    store.ingest(note("ferry first", "f", importance=0.1))
    store.forget(dry_run=False)
    put(store, importance=0.1)
    path = store._memory.archive.path
    kept, before = path.read_bytes(), dump(raw, Shell(store))

    def child():
        store.index_health()  # what it connects to, before it loses its rights
        trouble(path)
        for work in (
            lambda: store.forget(dry_run=False),
            lambda: store.delete_chunks([each.chunk.id for each in store.forget()], reason="all"),
        ):
            with pytest.raises(OSError, match="nothing may be forgotten"):
                work()

    assert ended(begun(child))
    assert path.read_bytes() == kept
    assert dump(raw, Shell(store)) == before
    os.chmod(path.parent, 0o700)
    assert len([each for each in store.forget(dry_run=False) if each.deleted]) == len(LONG)


@pytest.mark.parametrize("line", range(len(LONG)))
@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"{}", b'{"id": "', b"[" * 100_000, b"\0" * 4096])
def test_a_damaged_line(memory, raw, line, damage):
    """It is reported by its number, unless it is empty, and all others come back (B34)."""
    put(memory, importance=0.1)
    everything = ids(raw, memory)
    lost = memory.forget(dry_run=False)[line].chunk.id
    path = memory._memory.archive.path
    whole = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*whole[:line], damage, *whole[line + 1 :], b""]))
    restored = memory.restore(lambda entry: True)
    assert [words.partition(":")[0] for words in restored.damaged] == [f"line {line + 1}"] * bool(damage)
    assert ids(raw, memory) == everything - {lost}


# --- a server that is killed ----------------------------------------------------------------------

try:
    embedded._find_server()
    missing = ""
except NotSupported as error:
    missing = str(error)
served = pytest.mark.skipif(bool(missing), reason=missing)


@contextlib.contextmanager
def serving(folder, archive):
    """A store on a server of its own, which keeps its data in a folder."""
    given = {"namespace": "n", "embed": Embedder(), "archive": archive, "vector": Vector(algorithm="FLAT")}
    with EmbeddedServer(folder) as url, MemoryStore.open(url, **given) as store:
        yield store


def process_of(store):
    (reply,) = store._retriever._driver.link.send([Command(("INFO", "server"), str)])
    return int(re.search(rb"process_id:(\d+)", reply)[1])


def sync(store):
    """Wait until what the server has confirmed is on its disk: while one sync is slow it puts off writing."""
    (reply,) = store._retriever._driver.link.send([Command(("WAITAOF", 1, 0, 9000), str)])
    assert reply[0] == 1, reply


def kill_server(store, at, work):
    """Whether the server was killed at a point of ``work(store)``, which then raised the client's own error."""
    server = process_of(store)
    points = Points(at, lambda: os.kill(server, signal.SIGKILL))
    with linked(store, lambda link: OneByOne(link, points)):
        try:
            work(store)
        except (valkey.ConnectionError, ConnectionError):
            assert points.left < 0
            return True
    os.kill(server, signal.SIGKILL)
    return False


def replace_it(store):
    return store.ingest(note("\n".join(SHORT), "s", importance=0.1), split=lines)


def forget_it(store):
    return store.forget(dry_run=False)


def check_replaced(store, doc_id, at):
    """One version is whole, and the next ingest leaves it alone."""
    version = [chunk.content for chunk in store.get_document_chunks(doc_id)]
    assert version in (LONG, SHORT), at
    for seen in found(store):
        assert set(version) <= set(seen), at
    replace_it(store)
    assert found(store) == both(SHORT), at


def check_forgotten(store, doc_id, at):
    """What is not in the store is in the archive, and comes back."""
    store.restore(lambda entry: True)
    assert found(store) == both(LONG), at
    assert [chunk.content for chunk in store.get_document_chunks(doc_id)] == LONG, at


@served
@pytest.mark.parametrize(
    ("work", "check"), [(replace_it, check_replaced), (forget_it, check_forgotten)], ids=["ingest", "forget"]
)
def test_a_server_killed_at_a_point(tmp_path, work, check):
    """What was on its disk is there when it starts again, and the next call ends what was begun."""
    for at in range(0, 40, 4):
        with serving(tmp_path / str(at), tmp_path / f"{at}.jsonl") as store:
            doc_id = put(store, importance=0.1)
            sync(store)
            died = kill_server(store, at, work)
        with serving(tmp_path / str(at), tmp_path / f"{at}.jsonl") as store:
            check(store, doc_id, at)
            assert store.index_health().findings == (), at
        if not died:
            break
    assert 3 < at < 39


def check_remembered(store, doc_id, at):
    """All of it is found, though the document may not know of it; the next ingest ends what was begun."""
    store.restore(lambda entry: True)
    assert found(store) == both(LONG), at
    put(store)
    assert [chunk.content for chunk in store.get_document_chunks(doc_id)] == LONG, at
    assert found(store) == both(LONG), at


@served
@pytest.mark.parametrize(
    ("work", "check"),
    [(replace_it, check_replaced), (forget_it, check_forgotten), (forget_it, check_remembered)],
    ids=["ingest", "forget", "ingest and forget"],
)
def test_a_server_that_loses_the_last_it_confirmed(tmp_path, work, check):
    """Wherever its file ends, which a sync every second leaves to chance, nothing that was older is lost."""
    archive = tmp_path / "a.jsonl"
    with serving(tmp_path / "whole", archive) as store:
        (file,) = (tmp_path / "whole").glob("appendonlydir/*.incr.aof")
        sync(store)
        opened = file.stat().st_size
        doc_id = put(store, importance=0.1)
        sync(store)
        begin = opened if check is check_remembered else file.stat().st_size
        work(store)
        sync(store)
        end = file.stat().st_size
        os.kill(process_of(store), signal.SIGKILL)
    for cut in range(begin, end, (end - begin) // 6):
        shutil.copytree(tmp_path / "whole", tmp_path / str(cut))
        os.truncate(tmp_path / str(cut) / file.relative_to(tmp_path / "whole"), cut)
        with serving(tmp_path / str(cut), archive) as store:
            check(store, doc_id, cut)
            assert store.index_health().findings == (), cut
