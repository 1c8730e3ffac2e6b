"""Who may do what, what travels in the clear, and what is never told.

The users' rules are read from docs/security.md, so what that page says is what the live engine allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import socketserver
import subprocess
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
import valkey
import valkey.asyncio

from retriever import (
    AsyncRetriever,
    Document,
    EmbeddedServer,
    InvalidInput,
    NotSupported,
    PermissionDenied,
    Retriever,
    Schema,
    ServerError,
    Tag,
    UpsertReport,
    Vector,
)
from retriever.memory import MemoryStore, Note
from tests.clients import Shell, closed
from tests.fakes import DIMS, Embedder, document
from tests.tls import Authority, TlsProxy, encrypted_key

pytestmark = pytest.mark.live

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
# Texts have terms, so that an upsert counts them; the name is the one on the page.
SCHEMA = Schema("docs", [Tag("category"), Tag("labels", many=True)], vector=Vector(dims=DIMS, algorithm="FLAT"))
ERRORS = valkey.exceptions


@pytest.fixture(scope="module")
def server():
    """The URL of a server of this module's own: its users come and go."""
    own = EmbeddedServer(port=0)
    try:
        url = own.start()
    except NotSupported as error:
        pytest.skip(str(error))
    yield url
    own.stop()


@pytest.fixture(scope="module")
def admin(server):
    with valkey.Valkey.from_url(server) as client:
        yield client


@pytest.fixture(params=["sync", "async"])
async def connect(request, server):
    """Makes shells of either kind, ``connect(url)`` or of a borrowed client, and closes them."""
    made, clients = [], []

    def connect(to=server, schema=SCHEMA, *, borrowed=False, **kwargs):
        blocking = request.param == "sync"
        kind = Retriever if blocking else AsyncRetriever
        if borrowed:
            client = (valkey.Valkey if blocking else valkey.asyncio.Valkey).from_url(to)
            clients.append(client)
            made.append(Shell(kind(client, schema, **kwargs)))
        else:
            made.append(Shell(kind.connect(to, schema, **kwargs)))
        return made[-1]

    yield connect
    for shell in made:
        await shell.close()
    for client in clients:
        await closed(client)
    await idle()


async def idle():
    """Let the loop finish closing: over TLS both sides say goodbye first, and close() does not wait for it."""
    sockets = asyncio.get_running_loop()._selector.get_map()
    for _ in range(500):
        if len(sockets) == 1:  # the loop's own
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)


def as_user(server, user, password="PASSWORD"):
    scheme, address = server.split("://")
    return f"{scheme}://{user}:{quote(password, safe='')}@{address}"


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def tls(server, authority):
    """A server that speaks TLS as ``localhost``."""
    with TlsProxy(server, authority.server("localhost")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def mutual(server, authority):
    """The same, for clients with a certificate."""
    with TlsProxy(server, authority.server("localhost", client_certificates=True)) as proxy:
        yield proxy


@pytest.mark.parametrize("scheme", ["valkeys", "rediss"])
async def test_either_name_of_tls(connect, tls, authority, scheme):
    """Both schemes speak TLS of at least 1.2 with a server whose authority is named."""
    shell = connect(f"{scheme}://localhost:{tls.port}?ssl_ca_certs={authority.path}")
    await shell.create_index()
    batch = [document(f"d{at}", vector=(1, at, 0, 0)) for at in range(300)]
    assert await shell.upsert(batch) == UpsertReport(300)
    assert await shell.ids(k=2) == ["d0", "d1"]
    assert await shell.drop_index(delete_documents=True) == 300
    assert tls.versions
    assert tls.versions <= {"TLSv1.2", "TLSv1.3"}


async def test_a_certificate_of_an_unknown_authority_is_refused(connect, tls, another):
    """By default, and beside another authority: the client's own ConnectionError says that it cannot be verified."""
    for options in ("", f"?ssl_ca_certs={another.path}"):
        with pytest.raises(ERRORS.ConnectionError, match=f"localhost:{tls.port}.*certificate verify failed"):
            await connect(f"valkeys://localhost:{tls.port}{options}").exists("d")


async def test_a_certificate_of_another_host_is_refused(connect, tls, authority):
    """Names are compared unless the URL says not to; valkey-py alone would not."""
    url = f"valkeys://127.0.0.1:{tls.port}?ssl_ca_certs={authority.path}"
    with pytest.raises(ERRORS.ConnectionError, match=r"not valid for '127\.0\.0\.1'"):
        await connect(url).exists("d")
    with pytest.raises(ERRORS.ConnectionError, match=r"not valid for '127\.0\.0\.1'"):
        await connect(f"{url}&ssl_check_hostname=true").exists("d")
    assert await connect(f"{url}&ssl_check_hostname=false").exists("d") is False


async def test_the_name_is_checked_of_a_cluster_too(connect, tls, authority):
    """A cluster's certificate of another host is refused; unless the URL says so, when it is found to be no cluster."""
    url = f"valkeys://127.0.0.1:{tls.port}?ssl_ca_certs={authority.path}"
    with pytest.raises(ERRORS.ValkeyClusterException, match=r"not valid for '127\.0\.0\.1'"):
        await connect(url, cluster=True).exists("d")
    with pytest.raises(ERRORS.ValkeyClusterException, match="Cluster mode is not enabled"):
        await connect(f"{url}&ssl_check_hostname=false", cluster=True).exists("d")


async def test_no_verification_must_be_asked_for(connect, tls):
    """ssl_cert_reqs=none takes any certificate; with a name to compare it is a contradiction, told before any I/O."""
    url = f"valkeys://127.0.0.1:{tls.port}?ssl_cert_reqs=none"
    assert await connect(url).exists("d") is False
    with pytest.raises(InvalidInput, match="url: "):
        connect(f"{url}&ssl_check_hostname=true")


async def test_client_certificates(connect, mutual, authority, another):
    """A server that asks for a certificate takes one of its authority, and neither another one nor none."""
    url = f"valkeys://localhost:{mutual.port}?ssl_ca_certs={authority.path}"
    certificate, key = authority.client("reader")
    assert await connect(f"{url}&ssl_certfile={certificate}&ssl_keyfile={key}").exists("d") is False
    certificate, key = another.client("reader")
    for options in ("", f"&ssl_certfile={certificate}&ssl_keyfile={key}"):
        with pytest.raises(ERRORS.ConnectionError):
            await connect(f"{url}{options}").exists("d")


async def test_files_that_are_not_there(connect, tls):
    """A certificate file that cannot be read is told by the client's ConnectionError."""
    with pytest.raises(ERRORS.ConnectionError, match="No such file"):
        await connect(f"valkeys://localhost:{tls.port}?ssl_ca_certs=/no/such.pem").exists("d")


async def test_plain_words_at_a_tls_port(connect, tls):
    """valkey:// there is a connection that the server closed."""
    with pytest.raises(ERRORS.ConnectionError, match="closed by server|reset by peer"):
        await connect(f"valkey://localhost:{tls.port}").exists("d")


async def test_tls_at_a_plain_port(connect, server):
    """valkeys:// there is a time-out of connecting, since a server waits for the end of what it cannot read."""
    url = server.replace("valkey://", "valkeys://")
    with pytest.raises(ERRORS.TimeoutError, match="connecting to server"):
        await connect(f"{url}?socket_connect_timeout=0.3", timeout_s=0.3).exists("d")


# --- the rules of the page ------------------------------------------------------------------------


class Line(NamedTuple):
    """One ACL line of the page, with the operations it is for."""

    user: str
    operations: tuple[str, ...]
    words: tuple[str, ...]


def lines(page):
    found, operations = [], ()
    for line in page.splitlines():
        if line.startswith("# "):
            operations = tuple(line[2:].split(", "))
        elif line.startswith("ACL SETUSER "):
            _, _, user, *words = line.split()
            found.append(Line(user, operations, tuple(words)))
    return found


(BLOCK,) = re.findall(r"^```text\n(# query.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
LINES = lines(BLOCK)
USERS = list(dict.fromkeys(line.user for line in LINES))
WORDS = {user: [word for line in LINES if line.user == user for word in line.words] for user in USERS}
COMMANDS = [(line, word[1:]) for line in LINES for word in line.words if word.startswith("+")]
PATTERNS = [(user, word) for user in USERS for word in WORDS[user] if word.startswith(("~", "%"))]

# Documents that lack a field, that have all, and that expire are written in three ways.
WRITTEN = [document("c", category="x"), document("d", category="x", labels=["y"]), document("e", ttl_s=100)]
OPERATIONS = {
    "query": lambda docs: docs.query(vector=[1, 0, 0, 0], filter={"category": "x"}),
    "query_many": lambda docs: docs.query_many([{"vector": [1, 0, 0, 0]}, {"vector": [0, 1, 0, 0]}]),
    "count(filter)": lambda docs: docs.count({"category": "x"}),
    "retrieve": lambda docs: docs.retrieve(text="some text", vector=[1, 0, 0, 0], strict=True),
    "retrieve_many": lambda docs: docs.retrieve_many([{"text": "some text", "strict": True}]),
    "get": lambda docs: docs.get(["a", "b"]),
    "exists": lambda docs: docs.exists("a"),
    "count": lambda docs: docs.count(),
    "scan": lambda docs: docs.scan({"category": "x"}),
    "upsert": lambda docs: docs.upsert(WRITTEN),
    "update": lambda docs: docs.update("a", {"category": "z", "labels": None}),
    "delete": lambda docs: docs.delete(["a", "b"]),
    "create_index": lambda docs: docs.create_index(),
    "describe_index": lambda docs: docs.describe_index(),
    "wait_until_indexed": lambda docs: docs.wait_until_indexed(),
    "delete(filter)": lambda docs: docs.delete(filter={"category": "x"}),
    "drop_index": lambda docs: docs.drop_index(delete_documents=True),
}


# What a user's commands add up to beyond what his lines are for.
BESIDES = {
    "docs-reader": {"wait_until_indexed"},
    "docs-writer": {"count", "exists", "describe_index", "wait_until_indexed"},
    "docs-owner": {"count", "exists", "get", "scan", "delete"},
}


def setuser(admin, user, *words):
    admin.execute_command("ACL", "SETUSER", user, *words)


async def attempt(connect, server, user, name):
    """What an operation says when it is refused, on an index of two documents; None when it is not."""
    with Retriever.connect(server, SCHEMA) as docs:
        docs.drop_index(delete_documents=True)
        if name != "create_index":
            docs.create_index()
            docs.upsert([document("a", category="x"), document("b", labels=["x"])])
    shell = connect(as_user(server, user))
    try:
        result = await OPERATIONS[name](shell)
    except PermissionDenied as error:
        return str(error)
    finally:
        await shell.close()
    if isinstance(result, UpsertReport):
        return "; ".join(each.reason for each in result.failed) or None
    answers = result if name.endswith("_many") else ()
    return next((str(each) for each in answers if isinstance(each, PermissionDenied)), None)


def test_the_page_has_a_rule_for_every_operation():
    """Three users, each public operation once, and no commands or keys that a rule names in bulk."""
    public = {name for name in vars(Retriever) if not name.startswith("_")} - {"connect", "close"}
    assert {name.partition("(")[0] for name in OPERATIONS} == public
    named = [name for line in LINES for name in line.operations]
    assert sorted(named) == sorted(OPERATIONS)
    assert USERS == ["docs-reader", "docs-writer", "docs-owner"]
    assert not [word for line in LINES for word in line.words if "@" in word or word in ("allkeys", "~*")]


def grant(admin, user):
    """All lines of the page."""
    for line in LINES:
        if line.user == user:
            setuser(admin, user, *line.words)


def grant_line(admin, line):
    """A line of the page alone, after the one that makes the user."""
    first = next(each for each in LINES if each.user == line.user)
    for each in dict.fromkeys((first, line)):
        setuser(admin, line.user, *each.words)


def purposes(user):
    return [name for line in LINES if line.user == user for name in line.operations]


def title(line):
    return f"{line.user}: {line.operations[0]}"


@pytest.mark.parametrize("line", LINES, ids=title)
async def test_a_line_of_the_page_is_enough(connect, server, admin, line):
    """With a line and the one that makes the user, the line's operations work."""
    grant_line(admin, line)
    for name in line.operations:
        assert await attempt(connect, server, line.user, name) is None, name


@pytest.mark.parametrize(
    ("line", "command"), COMMANDS, ids=[f"{title(line)} without {command}" for line, command in COMMANDS]
)
async def test_every_command_of_a_line_is_needed(connect, server, admin, line, command):
    """Without one command of a line some operation of the line is refused, and says that it is this command."""
    grant_line(admin, line)
    setuser(admin, line.user, f"-{command}")
    said = [await attempt(connect, server, line.user, name) for name in line.operations]
    assert any(refusal and f"the user's ACL rule lacks +{command}" in refusal for refusal in said)


@pytest.mark.parametrize("user", USERS)
async def test_a_rule_of_the_page_is_not_more_than_enough(connect, server, admin, user):
    """With all lines of a user nothing works but what they are for, and what is known to come with it."""
    grant(admin, user)
    works = {name for name in OPERATIONS if await attempt(connect, server, user, name) is None}
    assert works == set(purposes(user)) | BESIDES[user]


@pytest.mark.parametrize(("user", "pattern"), PATTERNS)
async def test_every_key_pattern_of_a_rule_is_needed(connect, server, admin, user, pattern):
    """Without one key pattern of the rule some operation is refused, and says that it is the key and no command."""
    grant(admin, user)
    setuser(admin, user, "resetkeys", *(each for who, each in PATTERNS if who == user and each != pattern))
    said = [await attempt(connect, server, user, name) for name in purposes(user)]
    assert any(refusal and "lacks a key pattern" in refusal for refusal in said)
    assert not any(refusal and "lacks +" in refusal for refusal in said)


@pytest.mark.parametrize("user", ["docs-writer", "docs-owner"])
async def test_an_index_without_an_embedder_takes_the_name_of_the_first(connect, server, admin, user):
    """Whoever gives a name to an index that has none needs HSETNX, as the page says; afterwards nobody does."""
    grant(admin, user)
    with Retriever.connect(server, SCHEMA) as docs:
        docs.drop_index(delete_documents=True)
        docs.create_index()
    for expected in ("the user's ACL rule lacks +hsetnx", None):
        shell = connect(as_user(server, user), embed=Embedder(dims=DIMS, name="model"))
        operation = shell.upsert([Document("a", "text")]) if user == "docs-writer" else shell.create_index()
        if expected:
            with pytest.raises(PermissionDenied) as raised:
                await operation
            assert expected in str(raised.value)
            with Retriever.connect(server, SCHEMA, embed=Embedder(dims=DIMS, name="model")) as docs:
                docs.create_index()
        else:
            await operation


async def test_a_query_needs_no_more_than_ft_search(connect, server, admin):
    """A user allowed nothing but FT.SEARCH can query; what he may not is PermissionDenied and changes nothing."""
    setuser(admin, "asker", "reset", "on", ">PASSWORD", "~docs", "+ft.search")
    with Retriever.connect(server, SCHEMA) as docs:
        docs.drop_index(delete_documents=True)
        docs.create_index()
        docs.upsert([document("d", category="x")])
        shell = connect(as_user(server, "asker"))
        assert await shell.ids({"category": "x"}) == ["d"]
        assert await shell.count({"category": "x"}) == 1
        for call in (
            shell.count(),
            shell.get("d"),
            shell.scan(),
            shell.delete("d"),
            shell.upsert([document("e")]),
            shell.update("d", {"category": "y"}),
            shell.create_index(),
            shell.drop_index(delete_documents=True),
            shell.describe_index(),
        ):
            with pytest.raises(PermissionDenied):
                await call
        assert [(each.id, each.fields) for each in docs.scan()] == [("d", {"category": "x"})]


async def test_a_scan_that_may_not_read_is_refused(connect, server, admin):
    """Who may walk the keys but not read them is told so; nothing found would be a lie."""
    setuser(admin, "walker", "reset", "on", ">PASSWORD", "~docs", "~docs:*", "+scan")
    with Retriever.connect(server, SCHEMA) as docs:
        docs.create_index()
        docs.upsert([document("d")])
    with pytest.raises(PermissionDenied, match=r"lacks \+hmget"):
        await connect(as_user(server, "walker")).scan()


# --- what a reader can and cannot do --------------------------------------------------------------


@pytest.fixture
def theirs(admin):
    """An index of another program, with one document."""
    admin.execute_command("FT.CREATE", "theirs", "PREFIX", 1, "theirs:", "SCHEMA", "t", "TAG")
    admin.hset("theirs:1", "t", "private")
    yield "theirs"
    admin.execute_command("FT.DROPINDEX", "theirs", "DD")


async def test_a_reader_stays_within_his_index(connect, server, admin, theirs):
    """He reads no other index and no other key, writes nothing, and by SCAN sees the names of all keys."""
    grant(admin, "docs-reader")
    url = as_user(server, "docs-reader")
    other = connect(url, Schema(theirs, vector=Vector(dims=DIMS, algorithm="FLAT")))
    for call in (other.query(vector=[1, 0, 0, 0]), other.get("1"), other.count()):
        with pytest.raises(PermissionDenied, match="lacks a key pattern"):
            await call
    with valkey.Valkey.from_url(url) as client:
        for write in (lambda: client.hset("docs:a", "__text", "x"), lambda: client.delete("docs:a")):
            with pytest.raises(ERRORS.NoPermissionError):
                write()
        assert b"theirs:1" in client.scan(count=1000)[1]


def test_who_may_create_may_read(server, admin, theirs):
    """RediSearch 2 looks at an index's name alone: its owner reads foreign keys through it, as the page warns."""
    setuser(admin, "creator", "reset", "on", ">PASSWORD", "~mine", "+ft.create", "+ft.search", "+ft.dropindex")
    with valkey.Valkey.from_url(as_user(server, "creator")) as client:
        client.execute_command("FT.CREATE", "mine", "PREFIX", 1, "theirs:", "SCHEMA", "t", "TAG")
        admin.hset("theirs:1", "t", "private")  # what is written now is indexed now, what was there some time later
        try:
            assert client.execute_command("FT.SEARCH", "mine", "@t:{private}")[1] == b"theirs:1"
        finally:
            client.execute_command("FT.DROPINDEX", "mine")


(MEMORY,) = re.findall(
    r"^```text\n# a memory.*?\n(ACL .*?)\n^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)
MEMORY_COMMANDS = [word for word in MEMORY.split() if word.startswith("+")]


def remember(url, archive):
    """Everything that a store of memory can do."""
    models = [Embedder(name="one", dims=DIMS), Embedder(width=8, name="two", dims=8)]
    open_ = partial(MemoryStore.open, url, namespace="notes", archive=archive)
    with open_(embed=models[0]) as store:
        notes = [Note("one", "s"), Note("old", "t", metadata={"importance": 0.1, "tags": ["x"]})]
        first, second = (each.doc_id for each in store.ingest(notes).sources)
        for text in ("one two", "one two"):
            store.ingest(Note(text, "s"))
        assert not store.ingest(Note("soon gone", "e"), ttl_s=1000).failed
        store.ingest(Note("waiting", "p"), update_index=False)
        store.update_index(stale=True)
        assert store.search("one", k=3, memory_rerank=True).complete
        assert store.context("one", 100).chunks
        assert store.find_by_tag("x")
        store.set_chunk_tags(first, 0, tags=["y"])
        store.redate(first, "2024-01-01")
        assert store.index_health().ok
        assert (store.stats().chunks, store.find_near_duplicates()) == (4, [])
        (gone,) = store.forget(dry_run=False)
        assert store.restore(gone.chunk.id).restored
        assert store.delete_chunks(gone.chunk.id) == 1
        store.delete_document(second)
    with open_(embed=models[1]) as store:
        assert store.rebuild_index().embedded == 3
        assert store.drop_other_generations() == 1
    with open_(embed=models[1]) as store:
        assert store.erase(everything=True).chunks == 3


@pytest.fixture
def notes(admin):
    """Removes the namespace ``notes`` and its user."""
    yield
    for index in admin.execute_command("FT._LIST"):
        if index.startswith(b"{memory.notes}"):
            admin.execute_command("FT.DROPINDEX", index)
    for key in admin.scan_iter("{memory.*"):
        admin.unlink(key)
    admin.execute_command("ACL", "DELUSER", "notes-agent")


@pytest.mark.usefixtures("notes")
def test_the_rule_of_a_memory_is_enough_and_reaches_no_other(server, admin, tmp_path):
    """All of a store works, and another namespace's index and keys are refused."""
    with MemoryStore.open(server, namespace="notes2", embed=Embedder(), archive=tmp_path / "b") as other:
        other.ingest(Note("theirs", "s"))
        admin.execute_command(*MEMORY.split())
        remember(as_user(server, "notes-agent"), tmp_path / "a")
        with pytest.raises(PermissionDenied):
            MemoryStore.open(
                as_user(server, "notes-agent"), namespace="notes2", embed=Embedder(), archive=tmp_path / "b"
            )
        with valkey.Valkey.from_url(as_user(server, "notes-agent")) as client:
            for key in admin.scan_iter("{memory.notes2}*"):
                with pytest.raises(ERRORS.NoPermissionError):
                    client.hgetall(key)
        admin.execute_command("FT.DROPINDEX", other._memory.live.schema.name)


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize("command", MEMORY_COMMANDS)
def test_every_command_of_a_memory_s_rule_is_needed(server, admin, tmp_path, command):
    """Without any of them something of a store is refused."""
    admin.execute_command(*(word for word in MEMORY.split() if word != command))
    with pytest.raises((PermissionDenied, ServerError, AssertionError)):
        remember(as_user(server, "notes-agent"), tmp_path / "a")


async def test_an_owner_passes_over_what_he_may_not_look_at(connect, server, admin, theirs, caplog):
    """Indexes that he may not FT.INFO are named in one warning, and his own is made; an overlap he sees is refused."""
    grant(admin, "docs-owner")
    admin.execute_command("FT.CREATE", "more", "PREFIX", 1, "more:", "SCHEMA", "t", "TAG")
    admin.execute_command("FT.CREATE", "seen", "PREFIX", 1, "docs:sub:", "SCHEMA", "t", "TAG")
    with Retriever.connect(server, SCHEMA) as docs:
        docs.drop_index()
    shell = connect(as_user(server, "docs-owner"))
    try:
        with caplog.at_level(logging.WARNING, "retriever"):
            setuser(admin, "docs-owner", "~seen")
            with pytest.raises(InvalidInput, match="'docs:sub:' of index 'seen'"):
                await shell.create_index()
            caplog.clear()
            admin.execute_command("FT.DROPINDEX", "seen")
            assert await shell.create_index() is True
        (record,) = caplog.records
        assert "may not FT.INFO" in record.getMessage()
        assert "'theirs'" in record.getMessage()
        assert "'more'" in record.getMessage()
        with pytest.raises(PermissionDenied, match=r"ft\.info|FT.INFO"):
            await shell.drop_index(delete_documents=True)
        assert await shell.drop_index() == 0
    finally:
        admin.execute_command("FT.DROPINDEX", "more")
        with contextlib.suppress(ERRORS.ResponseError):
            admin.execute_command("FT.DROPINDEX", "seen")


# --- refusals of the connection -------------------------------------------------------------------


@pytest.mark.parametrize("borrowed", [False, True], ids=["owned", "borrowed"])
async def test_a_wrong_password(connect, server, admin, borrowed):
    """It is the client's own AuthenticationError, alone and in a pipeline, and does not say what the password was."""
    grant(admin, "docs-reader")
    shell = connect(as_user(server, "docs-reader", "hushhush"), borrowed=borrowed)
    for call in (shell.get("a"), shell.get(["a", "b"]), shell.query(vector=[1, 0, 0, 0])):
        with pytest.raises(ERRORS.AuthenticationError, match="invalid username-password pair") as raised:
            await call
        assert "hushhush" not in "".join(traceback.format_exception(raised.value))


async def test_a_user_who_is_removed(connect, server, admin):
    """Whose user is gone is told so at his next operation, and is let in again when it is back."""
    grant(admin, "docs-reader")
    shell = connect(as_user(server, "docs-reader"))
    assert await shell.exists("none") is False
    admin.execute_command("ACL", "DELUSER", "docs-reader")
    with pytest.raises(ERRORS.AuthenticationError, match="invalid username-password pair"):
        await shell.exists("none")
    grant(admin, "docs-reader")
    assert await shell.exists("none") is False


@pytest.mark.parametrize("borrowed", [False, True], ids=["owned", "borrowed"])
async def test_a_database_that_the_user_may_not_select(connect, server, admin, borrowed):
    """What is refused before the first command is a PermissionDenied too, and names that command."""
    grant(admin, "docs-reader")
    shell = connect(f"{as_user(server, 'docs-reader')}/1", borrowed=borrowed)
    with pytest.raises(PermissionDenied, match=r"lacks \+select"):
        await shell.exists("a")


@pytest.mark.parametrize("password", ["@", ":", "/", "?", "#", "%", "%41", "a b+c", "ünï", "1#2/3?4@5:6"])
async def test_passwords_of_any_characters(connect, server, admin, password):
    """A percent-encoded password is the one that the server knows, whatever it holds."""
    grant(admin, "docs-reader")
    setuser(admin, "docs-reader", "resetpass", f">{password}")
    assert await connect(as_user(server, "docs-reader", password)).exists("none") is False
    socket_path = admin.config_get("unixsocket")["unixsocket"]
    for address in (
        f"unix://docs-reader:{quote(password, safe='')}@{socket_path}",
        f"unix://{socket_path}?username=docs-reader&password={quote(quote(password, safe=''), safe='')}",
    ):
        assert await connect(address).exists("none") is False


# --- secrets --------------------------------------------------------------------------------------

SECRET = "hushhush"
SOMEONE = "somebody"


class Service(socketserver.ThreadingTCPServer):
    """Answers every command but the first of a connection with one line, and the first with ``greeting``."""

    daemon_threads = True

    def __init__(self, answer, greeting="+OK"):
        super().__init__(("127.0.0.1", 0), Answering)
        self.greeting, self.answer = greeting, answer
        self.address = f"127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join(10)
        self.server_close()


class Answering(socketserver.StreamRequestHandler):
    def handle(self):
        answer = self.server.greeting
        with contextlib.suppress(OSError):
            while count := self.rfile.readline()[1:]:
                words = []
                for _ in range(int(count)):
                    size = int(self.rfile.readline()[1:])
                    words.append(self.rfile.read(size + 2)[:-2].decode(errors="replace"))
                # As Valkey and Redis word it: the arguments and all, in one line.
                rest = " ".join(f"'{word}'" for word in words[1:]).translate({10: " ", 13: " "})
                line = answer.format(command=words[0], rest=rest)
                self.wfile.write(f"{line}\r\n".encode())
                answer = self.server.answer


UNKNOWN = "-ERR unknown command '{command}', with args beginning with: {rest}"


@pytest.fixture
def places(server, tls, admin, authority, tmp_path):
    """Everything that can be wrong with a URL that holds a secret, by name."""
    user = f"{SOMEONE}:{SECRET}@"
    word = f"username={SOMEONE}&password={SECRET}"
    plain = server.removeprefix("valkey://")
    key = encrypted_key(tmp_path, "another password")
    certificate, _ = authority.client("reader")
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Service(UNKNOWN) as unsearching,
        Service(UNKNOWN, UNKNOWN) as strange,
        Service("-MOVED 1234 127.0.0.1:1") as moved,
        Service("-MOVED 1234 127.0.0.1:1", "-MOVED 1234 127.0.0.1:1") as moved_at_once,
        Service("$-what is this?") as nonsense,
    ):
        yield {
            "nobody listens": f"valkey://{user}127.0.0.1:1",
            "nobody listens, in options": f"valkey://127.0.0.1:1?{word}",
            "no socket": f"unix://{user}/no/such.sock",
            "no socket, in options": f"unix:///no/such.sock?{word}",
            "wrong password": f"valkey://{user}{plain}",
            "wrong password, in options": f"valkey://{plain}?{word}",
            "unknown authority": f"valkeys://{user}localhost:{tls.port}",
            "wrong host": f"valkeys://{user}127.0.0.1:{tls.port}?ssl_ca_certs={authority.path}",
            "plain words at a TLS port": f"valkey://{user}localhost:{tls.port}",
            "TLS at a plain port": f"valkeys://{user}{plain}?socket_connect_timeout=0.2",
            "a key file's password": (
                f"valkeys://{user}localhost:{tls.port}?ssl_certfile={certificate}&ssl_keyfile={key}&ssl_password={SECRET}"
            ),
            "no host of that name": f"valkey://{user}no.such.host.invalid",
            "a server that never answers": f"valkey://{user}127.0.0.1:{silent.getsockname()[1]}",
            "no search module": f"valkey://{user}{unsearching.address}",
            "no AUTH": f"valkey://{user}{strange.address}",
            "moved": f"valkey://{user}{moved.address}",
            "moved at once": f"valkey://{user}{moved_at_once.address}",
            "no protocol": f"valkey://{user}{nonsense.address}",
            "unknown option": f"valkey://{user}127.0.0.1:1?typo=1",
            "an option's value": f"valkey://{user}127.0.0.1:1?socket_timeout={SECRET}",
            "a port that is none": f"valkey://{user}127.0.0.1:99999",
            "a password as port": f"valkey://{SOMEONE}:{SECRET}",
            "a sign that was not encoded": f"valkey://{SOMEONE}:1#{SECRET}@127.0.0.1",
            "a database that is none": f"valkey://{user}127.0.0.1:1/{SECRET}",
            "no such scheme": f"valky://{user}127.0.0.1:1",
            "one slash": f"valkey:/{user}127.0.0.1:1",
            "no scheme": f"{user}127.0.0.1:1",
        }


async def ask(connect, url, said):
    """Connect and query with secrets; ``said`` gets every repr and what the hook is told."""
    shell = connect(url, embed=Embedder(), timeout_s=0.3, on_operation=lambda each: said.append(repr(each)))
    link = shell.retriever._driver.link
    said += map(repr, (shell.retriever, shell.retriever._driver, link, link.client))
    await shell.query(text=f"{SECRET} question", filter={"category": f"{SECRET} tag"})


async def test_no_way_to_fail_tells_a_secret(connect, places, caplog):
    """User, password, texts and filters are in no repr, error, cause, note, hook record or log line, down to DEBUG."""
    told = []
    with caplog.at_level(logging.DEBUG):
        for name, url in places.items():
            said = []
            with pytest.raises(Exception) as raised:  # noqa: PT011 -- whatever comes is searched
                await ask(connect, url, said)
            said += [*traceback.format_exception(raised.value), repr(raised.value)]
            told.append(name)
            assert SECRET not in "".join(said), name
            assert SOMEONE not in "".join(said), name
    assert told == list(places)
    assert SECRET not in caplog.text
    assert SOMEONE not in caplog.text


def test_the_command_tells_no_secret_either(places):
    """``retriever info --url`` fails in one line, for the same URLs, with neither user nor password."""
    names = ["wrong password, in options", "unknown authority", "no AUTH", "no host of that name"]
    for name in (*names, "a sign that was not encoded"):
        command = [sys.executable, "-m", "retriever", "info", "--index", "docs", "--url", places[name]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), name
        assert SECRET not in done.stderr, name
        assert SOMEONE not in done.stderr, name
