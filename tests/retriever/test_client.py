"""The shells and their drivers, without a server: what is refused when made, the hook, the log, cancellation."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading

import numpy as np
import pytest
import redis.asyncio
import valkey.asyncio

from fields.kinds import Tag, Vector
from retriever.client import AsyncRetriever, Retriever
from retriever.documents import Document, Hits, UpsertReport, interruption
from retriever.engines import REDISEARCH_2
from retriever.errors import IndexMissing, InvalidInput
from retriever.links import checked_url
from retriever.plans import Call, Embed, Page, Wait
from retriever.schema import Schema
from tests.fakes import Embedder, shown
from tests.recorded import ResponseError, replies

SCHEMA = Schema("docs", [Tag("t")], Vector(dims=2), None)
(HELLO, _), (CLIENT, _) = ([each.reply for each in replies(case, ours=True)] for case in ("hello", "client info"))
ROW = [1, b"docs:1", [b"__score", b"0.5", b"__text", b"secret text", b"t", b"secret tag"]]
DOCUMENTS = [Document("1", "secret text", {"t": "secret tag"}, [1, 2])]


class Pipeline:
    def __init__(self, client):
        self.client, self.commands = client, []

    def execute_command(self, *args, **options):
        self.commands.append((args, options))

    def replies(self, raise_on_error):
        assert raise_on_error is False  # else the client puts whole commands into its message
        return [self.client.reply(*command) for command in self.commands]


class BlockingPipeline(Pipeline):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.commands = None

    def execute(self, raise_on_error):
        return self.replies(raise_on_error)


class AwaitedPipeline(Pipeline):
    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        self.commands = None

    async def execute(self, raise_on_error):
        return self.replies(raise_on_error)


class Answers:
    """A client that answers each command by its first word; an exception is raised, or stands in a pipeline."""

    def __init__(self, **answers):
        self.answers = {"FT._LIST": [b"docs"]} | {name.replace("_", "."): answer for name, answer in answers.items()}
        self.sent = []
        self.closed = 0

    def reply(self, args, options):
        assert options == {"NEVER_DECODE": True}
        self.sent.append(args)
        answer = self.answers[args[0]]
        return answer.pop(0) if isinstance(answer, list) and answer and isinstance(answer[0], BaseException) else answer


class Blocking(Answers):
    def execute_command(self, *args, **options):
        reply = self.reply(args, options)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def pipeline(self, transaction):
        assert transaction is False
        return BlockingPipeline(self)

    def close(self):
        self.closed += 1


class Awaited(Answers):
    async def execute_command(self, *args, **options):
        return Blocking.execute_command(self, *args, **options)

    def pipeline(self, transaction):
        assert transaction is False
        return AwaitedPipeline(self)

    async def aclose(self):
        self.closed += 1


def searching(kind=Blocking, **answers):
    return kind(**{"FT_SEARCH": ROW, "HSET": 5, **answers})


def ready(retriever):
    retriever._live.checked = True
    return retriever


async def returned(result):
    return await result if asyncio.iscoroutine(result) else result


@pytest.fixture(params=[(Retriever, Blocking), (AsyncRetriever, Awaited)], ids=["blocking", "awaited"])
def shell(request):
    """Both shells, each over a client of its kind."""
    kind, client = request.param

    def make(answers=None, **options):
        borrowed = searching(client, **(answers or {}))
        return ready(kind(borrowed, SCHEMA, engine=REDISEARCH_2, **options)), borrowed

    return make


# --- made rightly, or not at all ------------------------------------------------------------------


async def coroutine_embedder(texts):
    return [[1, 2] for _ in texts]


class AsyncCall:
    async def __call__(self, texts):
        return [[1, 2] for _ in texts]


class AsyncQueries(Embedder):
    async def embed_query(self, texts):
        return [[1, 2] for _ in texts]


def unconnected(kind):
    """A client of the class whose constructor did not run, which would ask a server for its nodes."""
    return object.__new__(kind)


@pytest.mark.parametrize(
    ("shell", "client", "match"),
    [
        (Retriever, Awaited(), "AsyncRetriever takes it"),
        (Retriever, valkey.asyncio.Valkey(), "Retriever was given an async client .*AsyncRetriever takes it"),
        (Retriever, redis.asyncio.Redis(), "AsyncRetriever takes it"),
        (AsyncRetriever, Blocking(), "AsyncRetriever was given a blocking client .*; Retriever takes it"),
        (AsyncRetriever, valkey.Valkey(), "Retriever takes it"),
        (AsyncRetriever, redis.Redis(), "Retriever takes it"),
        (Retriever, None, "a client of valkey-py or redis-py expected, not NoneType"),
        (Retriever, "valkey://localhost", "expected, not str"),
        (AsyncRetriever, object(), "expected, not object"),
        (Retriever, valkey.ConnectionPool(), "expected, not ConnectionPool"),
        (Retriever, redis.Redis, "expected, not the class Redis"),
        (Retriever, redis.Redis().pipeline(), "expected, not Pipeline"),
        (AsyncRetriever, valkey.asyncio.Valkey().pipeline(), "expected, not Pipeline"),
        (Retriever, unconnected(valkey.asyncio.ValkeyCluster), r"an async client \(.*AsyncRetriever takes it"),
        (Retriever, unconnected(redis.asyncio.RedisCluster), r"an async client \(.*AsyncRetriever takes it"),
        (AsyncRetriever, unconnected(valkey.ValkeyCluster), r"a blocking client \(.*; Retriever takes it"),
        (AsyncRetriever, unconnected(redis.RedisCluster), r"a blocking client \(.*; Retriever takes it"),
        (AsyncRetriever, valkey.asyncio.cluster.ClusterPipeline(None), "expected, not ClusterPipeline"),
        (AsyncRetriever, redis.asyncio.cluster.ClusterPipeline(None), "expected, not ClusterPipeline"),
    ],
    ids=lambda part: type(part).__name__ if not isinstance(part, (str, type)) else str(part)[:30],
)
def test_the_wrong_client_is_a_type_error(shell, client, match):
    """A client of the other flavour, or none at all, is refused when the shell is made, and the error names the way."""
    with pytest.raises(TypeError, match=match):
        shell(client, SCHEMA)


@pytest.mark.parametrize(
    ("shell", "client"),
    [
        (Retriever, valkey.Valkey()),
        (Retriever, valkey.Valkey(decode_responses=True)),
        (Retriever, redis.Redis(protocol=3)),
        (Retriever, unconnected(valkey.ValkeyCluster)),
        (Retriever, unconnected(redis.RedisCluster)),
        (AsyncRetriever, valkey.asyncio.Valkey(protocol=3)),
        (AsyncRetriever, redis.asyncio.Redis()),
        (AsyncRetriever, unconnected(valkey.asyncio.ValkeyCluster)),
        (AsyncRetriever, unconnected(redis.asyncio.RedisCluster)),
    ],
    ids=lambda part: f"{type(part).__module__}.{type(part).__name__}",
)
def test_real_clients_are_taken_without_io(shell, client):
    """Making a shell does no I/O: these clients' servers need not exist."""
    assert shell(client, SCHEMA)


@pytest.mark.parametrize(
    "options",
    [
        {"embed": coroutine_embedder},
        {"embed": functools.partial(coroutine_embedder)},
        {"embed": AsyncCall()},
        {"embed": AsyncQueries(2)},
        {"rerank": coroutine_embedder},
        {"rerank": AsyncCall()},
    ],
    ids=["function", "partial", "object", "embed_query", "reranker", "reranker object"],
)
def test_a_coroutine_function_needs_the_async_shell(options):
    """The blocking shell cannot await, and says so when it is made."""
    with pytest.raises(TypeError, match="AsyncRetriever can"):
        Retriever(Blocking(), SCHEMA, **options)
    AsyncRetriever(Awaited(), SCHEMA, **options)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"schema": "docs"}, "a Schema expected"),
        ({"schema": None}, "a Schema expected"),
        ({"embed": "model"}, "embed"),
        ({"embed": Embedder}, "an instance"),
        ({"embed": Embedder(2, embed_query="x")}, "embed_query"),
        ({"embed": Embedder(2, name=5)}, "name"),
        ({"embed": Embedder(2, name="")}, "name"),
        ({"embed": Embedder(2, dims=0)}, "dims"),
        ({"embed": Embedder(2, dims="2")}, "dims"),
        ({"embed": Embedder(3, dims=3)}, "makes 3 dimensions, the schema has 2"),
        ({"embed": Embedder(3, dims=3, name="model-a")}, "model-a makes 3 dimensions"),
        ({"rerank": "model"}, "a callable expected"),
        ({"rerank": Hits}, "a callable expected"),
    ],
    ids=lambda part: repr(part)[:40],
)
@pytest.mark.parametrize("shell", [(Retriever, Blocking), (AsyncRetriever, Awaited)], ids=["blocking", "awaited"])
def test_wrong_arguments_are_refused_when_made(shell, arguments, reason):
    """What cannot work is refused by the constructor, in both shells."""
    kind, client = shell
    with pytest.raises(InvalidInput, match=reason):
        kind(client(), **{"schema": SCHEMA, **arguments})


def test_an_embedders_dims_become_the_schemas():
    """Dimensions that the schema leaves open are the embedder's, without changing the user's schema."""
    schema = Schema("docs")
    retriever = Retriever(Blocking(), schema, embed=Embedder(3, dims=3))
    assert retriever._live.dims == 3
    assert schema.vector.dims is None


# --- URLs and secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["valkey://h", "valkeys://h:6380/0", "redis://u:p@h:1", "rediss://h", "unix:///tmp/s?db=1", "valkey://[::1]:6379"],
)
def test_urls_that_are_taken(url):
    """The schemes of both client libraries are taken."""
    assert checked_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://user:S3CRET@host",
        "user:S3CRET@host:6379",
        "//user:S3CRET@host",
        "valkey//user:S3CRET@host",
        "valkey://user:S3CRET/x@host:6379",
        "valkey://user:x/S3CRET@host:6379",
        "valkey://user:S3CRET@[host",
        "valkey://user:S3CRET@host\u2100",
        "valkey://user:S3CRET@host:99999",
        "valkey://user:S3CRET@host:S3CRET",
        "",
        5,
        b"valkey://user:S3CRET@host",
    ],
    ids=repr,
)
@pytest.mark.parametrize("shell", [Retriever, AsyncRetriever])
def test_urls_that_are_refused_without_their_secrets(shell, url, monkeypatch):
    """A URL that cannot be used is InvalidInput, before any I/O, and its password is in no part of the error."""
    monkeypatch.delenv("VALKEY_URL", raising=False)
    with pytest.raises(InvalidInput) as caught:
        shell.connect(url, SCHEMA)
    error = caught.value
    assert "S3CRET" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


def test_the_url_of_the_environment(monkeypatch):
    """None takes VALKEY_URL; without it the error says what there is to do."""
    monkeypatch.setenv("VALKEY_URL", "valkey://somewhere")
    assert checked_url(None) == "valkey://somewhere"
    monkeypatch.delenv("VALKEY_URL")
    with pytest.raises(InvalidInput, match="VALKEY_URL.*EmbeddedServer"):
        checked_url(None)
    assert "VALKEY_URL" not in os.environ


@pytest.mark.parametrize("shell", [Retriever, AsyncRetriever])
async def test_a_shell_that_connects_owns_its_client(shell):
    """connect does no I/O, sets timeouts, shows no secret in its repr, and closes what it made."""
    retriever = shell.connect("valkey://user:S3CRET@host.invalid:1/0", SCHEMA, timeout_s=3.0)
    assert repr(retriever) == f"{shell.__name__}(index='docs')"
    options = retriever._driver.link.client.connection_pool.connection_kwargs
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (3.0, 5.0)
    assert options["socket_keepalive"] is True
    await returned(retriever.close())
    await returned(retriever.close())
    assert shell.connect("unix:///tmp/none.sock", SCHEMA)


async def test_a_borrowed_client_stays_open(shell):
    """close() and the end of a with block leave a client alone that the shell did not make."""
    retriever, client = shell()
    await returned(retriever.close())
    if isinstance(retriever, Retriever):
        with retriever as entered:
            assert entered is retriever
    else:
        async with retriever as entered:
            assert entered is retriever
    assert client.closed == 0


# --- talking --------------------------------------------------------------------------------------


async def test_both_shells_send_identical_commands():
    """One query and one upsert: the same commands, byte for byte, from either shell."""
    sent = []
    for kind, client in ((Retriever, Blocking), (AsyncRetriever, Awaited)):
        borrowed = searching(client)
        retriever = ready(kind(borrowed, SCHEMA, engine=REDISEARCH_2, embed=Embedder(2)))
        await returned(retriever.query(text="a", k=3, filter={"t": "x"}))
        await returned(retriever.query_many([{"text": "b"}, {"vector": [1, 2]}]))
        await returned(retriever.upsert(DOCUMENTS))
        sent.append(borrowed.sent)
    assert sent[0] == sent[1]
    assert [args[0] for args in sent[0]] == ["FT.SEARCH"] * 3 + ["HSET", "FT._LIST"]


async def test_a_refusal_is_classified_and_a_lost_connection_is_not(shell):
    """A server's refusal is our error with its cause; a connection error passes through unrenamed."""
    refusal = ResponseError("docs: no such index")
    retriever, _ = shell({"FT_SEARCH": refusal})
    with pytest.raises(IndexMissing) as caught:
        await returned(retriever.query(vector=[1, 2]))
    assert caught.value.__cause__ is refusal
    lost = valkey.ConnectionError("gone")
    retriever, client = shell({"FT_SEARCH": lost})
    with pytest.raises(valkey.ConnectionError) as broken:
        await returned(retriever.query(vector=[1, 2]))
    assert broken.value is lost
    assert len(client.sent) == 1


async def test_an_embedder_may_be_async_only_in_the_async_shell():
    """An async embedder is awaited; a sync one runs in a thread, so that the loop goes on."""
    threads = []

    def embed(texts):
        threads.append(threading.current_thread())
        return [[1, 2] for _ in texts]

    for embedder in (coroutine_embedder, AsyncCall(), AsyncQueries(2), embed, lambda texts: coroutine_embedder(texts)):
        retriever = ready(AsyncRetriever(searching(Awaited), SCHEMA, engine=REDISEARCH_2, embed=embedder))
        assert len(await retriever.query(text="a")) == 1
    assert threads
    assert threads[0] is not threading.main_thread()


def test_a_hidden_awaitable_is_a_type_error():
    """A plain function that returns a coroutine is found out when it is called, and leaves no warning."""
    retriever = ready(
        Retriever(searching(), SCHEMA, engine=REDISEARCH_2, embed=lambda texts: coroutine_embedder(texts))
    )
    with pytest.raises(TypeError, match="AsyncRetriever can"):
        retriever.query(text="a")


async def test_an_async_iterable_needs_the_async_shell():
    """Documents come from any sync or async iterable; the blocking shell takes sync ones only."""

    async def source():
        for document in DOCUMENTS:
            yield document

    retriever = ready(AsyncRetriever(searching(Awaited), SCHEMA, engine=REDISEARCH_2))
    assert await retriever.upsert(source()) == UpsertReport(1)
    assert await retriever.upsert(iter(DOCUMENTS)) == UpsertReport(1)
    with pytest.raises(TypeError, match="AsyncRetriever"):
        Retriever(Blocking(), SCHEMA).upsert(source())


@pytest.mark.parametrize("documents", [None, 5, "abc", b"abc", {"id": "a"}, DOCUMENTS[0]], ids=repr)
async def test_documents_are_an_iterable(shell, documents):
    """One document is not many, and a string is none."""
    retriever, client = shell()
    with pytest.raises(InvalidInput, match="an iterable of Documents"):
        await returned(retriever.upsert(documents))
    assert client.sent == []


# --- StopIteration, cancellation ------------------------------------------------------------------


def stops(*args):
    raise StopIteration("mine")


@pytest.mark.parametrize("where", ["embed", "rerank", "on_batch", "embed in many", "embed documents"])
async def test_a_stop_iteration_of_a_users_function_ends_nothing(shell, where):
    """StopIteration from an embedder, a reranker or on_batch is an error, never an early result or a hang."""
    retriever, client = shell(embed=Embedder(2) if where in ("rerank", "on_batch") else stops)

    async def act():
        match where:
            case "embed":
                return await returned(retriever.query(text="a"))
            case "rerank":
                return await returned(retriever.query(text="a", rerank=stops))
            case "on_batch":
                return await returned(retriever.upsert(DOCUMENTS, on_batch=stops))
            case "embed documents":
                return await returned(retriever.upsert([Document("1", "text", {"t": "x"})]))
            case "embed in many":
                (result,) = await returned(retriever.query_many([{"text": "a"}]))
                raise result

    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await asyncio.wait_for(act(), 5)
    if where == "on_batch":
        assert interruption(caught.value).report == UpsertReport(1)
    if where == "embed documents":
        assert interruption(caught.value).in_flight == ("1",)
        assert client.sent == []


@pytest.mark.parametrize("step", [Wait(60), Call(asyncio.sleep, (60,)), Embed(("a",), "query")], ids=shown)
async def test_a_cancelled_plan_is_closed(step):
    """On cancellation a plan's own finally runs before the error goes on."""
    closed = asyncio.Event()

    def plan():
        try:
            yield step
        finally:
            closed.set()

    async def slow(texts):
        await asyncio.sleep(60)

    driver = AsyncRetriever(Awaited(), SCHEMA, embed=slow)._driver
    task = asyncio.create_task(driver.run(plan(), iter(())))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()


async def test_a_cancelled_upsert_tells_how_far_it_came():
    """CancelledError is itself, and carries the report."""

    async def source():
        yield DOCUMENTS[0]
        await asyncio.sleep(60)

    retriever = ready(AsyncRetriever(searching(Awaited), SCHEMA, engine=REDISEARCH_2))
    task = asyncio.create_task(retriever.upsert(source(), batch_size=1))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert interruption(caught.value).report == UpsertReport(1)


def test_a_plan_is_closed_when_a_step_fails():
    """Also in the blocking shell a plan's finally runs, and the failure is its own."""
    closed = []

    def plan():
        try:
            yield Call(stops, ())
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError):
        Retriever(Blocking(), SCHEMA)._driver.run(plan(), iter(()))
    assert closed == [True]


PAGES = {"SCAN": [b"0", [b"docs:1", b"docs:2"]], "HMGET": [b"text", b"tag"]}


async def test_a_scan_that_is_left_early_is_closed(shell):
    """Leaving a scan in its middle closes its plan, and the hook is told of what was given."""
    seen = []
    retriever, _ = shell(PAGES, on_operation=seen.append)
    documents = retriever.scan()
    if isinstance(retriever, Retriever):
        assert next(documents).id == "1"
        documents.close()
    else:
        assert (await anext(documents)).id == "1"
        await documents.aclose()
    assert [(each.name, each.commands, each.error) for each in seen] == [("scan", 3, None)]


async def test_a_stream_that_is_left_early_closes_its_plan(shell):
    """The plan's finally has run when close() of the stream is done, not when the garbage is collected."""
    closed = []

    def plan():
        try:
            yield Page(["a", "b"])
        finally:
            closed.append(True)

    retriever, _ = shell()
    stream = retriever._stream("scan", plan())
    if isinstance(retriever, Retriever):
        assert next(stream) == "a"
        stream.close()
    else:
        assert await anext(stream) == "a"
        await stream.aclose()
    assert closed == [True]


async def test_a_client_of_another_loop_is_told():
    """The clients' own words about loops become an error that says what to do."""
    for said in ("Task got Future attached to a different loop", "Event loop is closed"):
        retriever = ready(AsyncRetriever(searching(Awaited, FT_SEARCH=RuntimeError(said)), SCHEMA, engine=REDISEARCH_2))
        with pytest.raises(InvalidInput, match="another event loop"):
            await retriever.query(vector=[1, 2])
    retriever = ready(AsyncRetriever(searching(Awaited, FT_SEARCH=RuntimeError("mine")), SCHEMA, engine=REDISEARCH_2))
    with pytest.raises(RuntimeError, match="mine"):
        await retriever.query(vector=[1, 2])


# --- hook and log ---------------------------------------------------------------------------------


async def test_the_hook_is_told_of_every_operation(shell):
    """Name, index, seconds, commands, hits, completeness and the error's class; once per operation."""
    seen = []
    retriever, _ = shell({**PAGES, "HEXISTS": 1, "EVAL": 1}, on_operation=seen.append, embed=Embedder(2))
    await returned(retriever.query(vector=[1, 2]))
    await returned(retriever.query_many([{"vector": [1, 2]}, {"vector": [1, 2, 3]}, {"text": "a"}]))
    await returned(retriever.upsert(DOCUMENTS))
    await returned(retriever.get("1"))
    await returned(retriever.get(["1", "2"]))
    await returned(retriever.exists(["1", "2"]))
    await returned(retriever.delete(["1", "2"]))
    with pytest.raises(InvalidInput):
        await returned(retriever.query(vector=[0, 0]))
    found = [(each.name, each.index, each.commands, each.hits, each.complete, each.error) for each in seen]
    assert found == [
        ("query", "docs", 1, 1, True, None),
        ("query_many", "docs", 2, 2, True, None),
        ("upsert", "docs", 2, 1, True, None),
        ("get", "docs", 1, 1, True, None),
        ("get", "docs", 2, 2, True, None),
        ("exists", "docs", 2, 2, True, None),
        ("delete", "docs", 2, 2, True, None),
        ("query", "docs", 0, 0, False, "InvalidInput"),
    ]
    assert all(0 <= each.seconds < 60 for each in seen)


async def test_the_hook_is_told_of_a_partial_answer(shell):
    """complete is the answer's own, and false where documents were refused."""
    seen = []
    cut = {b"total_results": 0, b"results": [], b"warning": [b"Timeout limit was reached"]}
    retriever, _ = shell({"FT_SEARCH": cut, "HSET": ResponseError("WRONGTYPE")}, on_operation=seen.append)
    await returned(retriever.query(vector=[1, 2]))
    await returned(retriever.query_many([{"vector": [1, 2]}]))
    report = await returned(retriever.upsert(DOCUMENTS))
    assert len(report.failed) == 1
    assert [(each.name, each.complete) for each in seen] == [("query", False), ("query_many", False), ("upsert", False)]


async def test_the_log_holds_names_and_sizes_only(shell, caplog):
    """DEBUG shows command names and sizes, never texts, tags, vectors or credentials."""
    vector = np.array([0.123456789, 2], np.float32)
    retriever, _ = shell(embed=Embedder(2))
    with caplog.at_level(logging.DEBUG, "retriever"):
        await returned(retriever.query(text="secret question", filter={"t": "secret filter"}))
        await returned(retriever.query(vector=vector))
        await returned(retriever.upsert(DOCUMENTS))
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "query docs: FT.SEARCH, " in said
    assert "upsert docs: HSET, " in said
    assert "secret" not in said
    assert "0.123" not in said
    assert repr(vector.tobytes()) not in said
    assert all(record.name == "retriever" for record in caplog.records)


async def test_nothing_is_logged_above_debug(shell, caplog):
    """A library that works is silent."""
    retriever, _ = shell()
    with caplog.at_level(logging.INFO):
        await returned(retriever.query(vector=[1, 2]))
        await returned(retriever.upsert(DOCUMENTS))
    assert [record for record in caplog.records if record.name == "retriever"] == []
