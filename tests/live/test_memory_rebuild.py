"""A namespace is embedded by another model while it is searched: no reader misses a chunk or sees an error."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import pytest

from fields.analysis import Analysis
from retriever import IndexMissing, InvalidInput, Numeric, SchemaMismatch, SearchTimeout, Stored, Tag, Vector
from retriever.memory import rebuilding
from retriever.memory.store import MemoryStore, Note
from retriever.plans import Wait
from tests.fakes import Embedder
from tests.memory_stores import Steps, dump, memory_of, note

pytestmark = pytest.mark.live

FLAT = Vector(algorithm="FLAT")
# A plan is taken step by step by the blocking driver; it is the same plan for both kinds.
STEPWISE = pytest.mark.parametrize("remember", ["sync"], indirect=True)
MANY = 50  # chunks: more than two batches of a rebuild


def model(name, width):
    """An embedder that says its name and how long its vectors are."""
    return Embedder(width, name=name, dims=width)


OLD, NEW, THIRD = model("old", 4), model("new", 8), model("third", 6)


def texts(count=MANY):
    return sorted(f"ferry number {at}" for at in range(count))


async def filled(remember, count=MANY, **given):
    """A store of the old model with ``count`` chunks."""
    store = await remember(**{"embed": OLD, **given})
    await store.ingest([Note(text, text) for text in texts(count)])
    return store


async def found(store, **given):
    """What the vectors alone bring back for a search over everything."""
    answer = await store.search("ferry", k=1000, use_fts=False, reinforce=False, **given)
    return sorted(chunk.content for chunk in answer.chunks)


async def by_words(store):
    """What the words alone find."""
    answer = await store.search("ferry", k=1000, reinforce=False)
    return sorted(chunk.content for chunk in answer.chunks if "text" in chunk.channels)


def number(store):
    """Which generation a store works on."""
    return memory_of(store).live.schema.generation


def ready(store):
    return store.retriever._ready


def metadata(raw, store, of=1):
    """The metadata of a generation."""
    index = memory_of(store).names.index
    held = raw.hgetall(index if of == 1 else f"{index}@{of}")
    return {name.decode(): value.decode() for name, value in held.items()}


def rebuild(store):
    """The plan of a blocking store's rebuild, to be taken step by step."""
    return Steps(store.retriever, rebuilding.rebuild(memory_of(store), 60.0))


@asynccontextmanager
async def reading(remember, look):
    """Meanwhile, ``look()`` is taken again and again, in a thread or a task; gives the list of what it brought."""
    seen, first, enough = [], threading.Event(), threading.Event()

    async def loop():
        while not enough.is_set():
            try:
                seen.append(await look())
            except Exception as error:
                seen.append(error)
            first.set()

    if remember.blocking:
        thread = threading.Thread(target=asyncio.run, args=(loop(),))
        thread.start()
    else:
        task = asyncio.create_task(loop())
    await asyncio.to_thread(first.wait)
    try:
        yield seen
    finally:
        enough.set()
        if remember.blocking:
            thread.join()
        else:
            await task


# --- an engine that takes its time ----------------------------------------------------------------


def not_done(live, timeout_s):
    """An engine that is still filling an index when time is up."""
    yield Wait(0)
    return False


async def test_readers_are_not_sent_to_half_an_index(remember, raw, monkeypatch):
    """A rebuild that runs out of time raises, moves nobody, and goes on when it is called again (B36)."""
    old = await filled(remember)
    new = await remember(embed=NEW)
    with monkeypatch.context() as patched:
        patched.setattr("retriever.operations.index.wait", not_done)
        with pytest.raises(SearchTimeout, match="still being filled"):
            await new.rebuild_index()
    assert metadata(raw, old).get("generation", "1") == "1"
    assert await found(old) == texts()
    assert (await new.rebuild_index()).embedded == 0
    assert await found(new) == texts()


async def test_an_update_that_runs_out_of_time_says_so(remember, monkeypatch):
    """It tells what it has embedded, and that the engine is not done (B35)."""
    store = await remember(embed=OLD)
    await store.ingest(note("ferry", "s"), update_index=False)
    with monkeypatch.context() as patched:
        patched.setattr("retriever.memory.indexing.wait", not_done)
        done = await store.update_index()
    assert (done.embedded, done.backlog, done.filling) == (1, 0, True)
    assert not (await store.update_index()).filling
    assert await found(store) == ["ferry"]


# --- readers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"embed": NEW},
        {"embed": model("new", 4)},
        {"embed": OLD, "vector": Vector(algorithm="FLAT", metric="L2")},
        {"embed": OLD, "vector": Vector()},
        {"embed": OLD, "fields": [Tag("color"), Numeric("page"), Stored("links")]},
    ],
    ids=["dims", "model", "metric", "algorithm", "fields"],
)
async def test_readers_miss_nothing(remember, given):
    """While a namespace gets another model, metric or fields, its readers find every chunk each time (B36)."""
    old = await filled(remember)
    reader = await remember(embed=OLD)
    new = await remember(**given)
    assert not ready(new)

    async def look():
        return await found(reader), await by_words(reader)

    async with reading(remember, look) as seen:
        rebuilt = await new.rebuild_index()
        fresh = await remember(**given)
        assert await found(fresh) == await by_words(fresh) == await found(new) == texts()
    assert (rebuilt.generation, rebuilt.embedded, rebuilt.failed) == (2, MANY, ())
    assert [each for each in seen if each != (texts(), texts())] == []
    assert (await new.index_health()).ok
    assert (await old.index_health()).ok
    assert (await fresh.index_health()).ok


async def test_new_fields_are_filled_and_filtered(remember):
    """What the new generation declares, its chunks may have, and the old one's readers see them as before."""
    old = await filled(remember, 2)
    new = await remember(embed=OLD, fields=[Tag("color")])
    await new.rebuild_index()
    await new.ingest(note("ferry red", "r", color="red"))
    assert await found(new, filter={"color": "red"}) == ["ferry red"]
    assert await by_words(old) == sorted([*texts(2), "ferry red"])
    with pytest.raises(InvalidInput, match="color"):
        await old.search("ferry", filter={"color": "red"})


async def test_fields_that_are_not_said_are_those_of_the_namespace(remember):
    """Who opens a namespace need not know its fields: commands and agents filter by what its maker declared."""
    store = await remember(embed=OLD, fields=[Tag("color"), Stored("links")])
    await store.ingest(note("ferry red", "r", color="red", links=[1]))
    other = await remember(embed=OLD)
    assert ready(other)
    assert await found(other, filter={"color": "red"}) == ["ferry red"]
    (chunk,) = (await other.search("ferry")).chunks
    assert chunk.fields == {"color": "red", "links": [1]}
    new = await remember(embed=NEW)
    assert not ready(new)
    await new.rebuild_index()
    assert await found(new, filter={"color": "red"}) == ["ferry red"]
    assert number(await remember(embed=OLD)) == 1
    assert not ready(await remember(embed=OLD, fields=[])), "said to be none: that is another index"


async def test_a_vector_and_an_analysis_that_are_not_said(remember):
    """They too are those of the namespace, so that a command opens what a program made."""
    store = await remember(embed=OLD, vector=Vector(algorithm="FLAT", metric="L2"), analysis=Analysis("german"))
    await store.ingest(note("die Katzen", "r"))
    other = await remember(embed=OLD, vector=None)
    assert ready(other)
    assert memory_of(other).live.schema == memory_of(store).live.schema
    (chunk,) = (await other.search("Katze", reinforce=False)).chunks
    assert "text" in chunk.channels
    new = await remember(embed=NEW, vector=None)
    await new.rebuild_index()
    vector = memory_of(new).live.schema.vector
    assert (vector.algorithm, vector.metric, vector.dims) == ("FLAT", "L2", 8)


async def test_each_model_has_its_own_fields(remember):
    """Of several generations the fields are those of the newest of the reader's model."""
    old = await filled(remember, 1, fields=[Tag("color")])
    new = await remember(embed=NEW, fields=[Tag("shape")])
    await new.rebuild_index()
    for model_, name in ((OLD, "color"), (NEW, "shape"), (THIRD, "shape")):
        store = await remember(embed=model_)
        assert [each.name for each in memory_of(store).live.schema.fields][-1] == name
    assert ready(old)


@STEPWISE
async def test_each_step_of_a_rebuild_leaves_readers_everything(remember):
    """Between any two steps of a rebuild the readers of the old model find every chunk, by words and by vector."""
    old = await filled(remember, 25)
    new = await remember(embed=NEW)
    steps = rebuild(new)
    while not steps.done:
        assert await found(old) == await by_words(old) == texts(25)
        steps.take()
    assert steps.result.embedded == 25


async def test_text_scores_are_the_same(remember):
    """BM25 counts the same collection in both generations: scores differ by less than 1 %."""
    old = await remember(embed=OLD)
    await old.ingest([Note(f"ferry {'harbour ' * (at % 7)}{'x' * (at % 3)}", f"s{at}") for at in range(40)])
    new = await remember(embed=NEW)
    await new.rebuild_index()
    scores = []
    for store in (old, new):
        answer = await store.search("ferry harbour", k=40, reinforce=False)
        scores.append({chunk.id: chunk.text_score for chunk in answer.chunks if chunk.text_score})
    assert scores[0].keys() == scores[1].keys() != set()
    for id, score in scores[0].items():
        assert scores[1][id] == pytest.approx(score, rel=0.01)


async def test_the_metadata_of_a_generation(remember, raw):
    """Each generation describes itself, counts what it embedded, and the first one points to the newest finished."""
    old = await filled(remember)
    new = await remember(embed=NEW)
    await new.rebuild_index()
    first, second = metadata(raw, old), metadata(raw, old, 2)
    assert (first["embedder"], first["dims"], first["generation"]) == ("old", "4", "2")
    assert (second["embedder"], second["dims"], second["name"]) == ("new", "8", f"{first['name']}@2")
    assert second["documents"] == first["documents"] == str(MANY)
    assert second["terms"] == first["terms"]


# --- stopped, and not alone -----------------------------------------------------------------------


@STEPWISE
async def test_a_rebuild_that_is_stopped_goes_on(remember, raw):
    """Stopped after any step, its readers notice nothing; the next call embeds what is left, nothing twice (B36)."""
    old = await filled(remember, 45)
    before = memory_of(old).names
    for step in range(3, 300, 3):
        one = Embedder(5, name=f"model {step}", dims=5)
        new = await remember(embed=one)
        left = rebuild(new).take(step)
        if left.done:
            break
        assert await found(old) == await by_words(old) == texts(45)
        again = await remember(embed=one)
        # Nothing of it is searched until it is whole, and it is the same generation that goes on.
        if not ready(again):
            made = raw.exists(f"{before.index}@{number(new)}")
            assert not made or number(again) == number(new)
            await again.rebuild_index()
        assert await found(again) == texts(45)
        embedded = [text for call in one.calls for text in call if text.startswith("ferry number")]
        assert len(embedded) <= 45 + 20  # at most the batch that was on its way is embedded again
        assert set(embedded) == set(texts(45))
    assert 10 < step < 297
    assert await found(old) == texts(45)


async def test_a_killed_process_is_taken_over(remember, url, name, clustered):
    """A process that is killed while it rebuilds leaves what it wrote to the one that goes on."""
    old = await filled(remember)
    program = f"""
import os, signal
from retriever import Vector
from retriever.memory.store import MemoryStore
from tests.fakes import Embedder
class Dies(Embedder):
    def __call__(self, texts):
        if len(self.calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(texts)
store = MemoryStore.open({url!r}, namespace={name!r}, embed=Dies(8, name="new", dims=8), archive="none",
    vector=Vector(algorithm="FLAT"), cluster={clustered})
store.rebuild_index()
"""

    async def look():
        return await found(old)

    async with reading(remember, look) as seen:
        child = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True)
        assert child.returncode == -signal.SIGKILL, child.stderr
        new = await remember(embed=NEW)
        assert not ready(new)
        rebuilt = await new.rebuild_index()
    assert [each for each in seen if each != texts()] == []
    assert (rebuilt.generation, rebuilt.embedded) == (2, MANY - 40)
    assert await found(new) == texts()


async def test_two_rebuilds_of_one_model(remember, raw):
    """Two at once make one generation, which is whole, and whose mean length is right."""
    old = await filled(remember)
    stores = [await remember(embed=NEW) for _ in range(2)]
    if remember.blocking:
        threads = [threading.Thread(target=store.retriever.rebuild_index) for store in stores]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    else:
        await asyncio.gather(*(store.rebuild_index() for store in stores))
    for store in (*stores, await remember(embed=NEW)):
        assert ready(store)
        assert number(store) == 2
        assert await found(store) == texts()
    first, second = metadata(raw, old), metadata(raw, old, 2)
    mean = int(first["terms"]) / int(first["documents"])
    assert int(second["terms"]) / int(second["documents"]) == pytest.approx(mean)


async def test_two_models_that_chose_one_number(remember):
    """Who opened a store before another model took the generation gets the next one."""
    await filled(remember, 3)
    new, third = await remember(embed=NEW), await remember(embed=THIRD)
    assert number(new) == number(third) == 2
    assert (await new.rebuild_index()).generation == 2
    assert (await third.rebuild_index()).generation == 3
    assert await found(new) == await found(third) == texts(3)


@STEPWISE
async def test_a_rebuild_that_another_model_overtakes(remember, raw):
    """It stays unfinished, whatever is newest, until its own end, which does not turn the newest one back."""
    old = await filled(remember)
    slow = await remember(embed=NEW)
    steps = rebuild(slow)
    while not any(call and call[0].startswith("ferry number") for call in NEW.calls[-1:]):
        steps.take()
    third = await remember(embed=THIRD)
    assert (await third.rebuild_index()).generation == 3
    other = await remember(embed=NEW)
    assert not ready(other)
    assert number(other) == 2
    steps.finish()
    for embed, chosen in ((OLD, 1), (NEW, 2), (THIRD, 3)):
        store = await remember(embed=embed)
        assert (ready(store), number(store)) == (True, chosen)
        assert await found(store) == texts()
    assert metadata(raw, old)["generation"] == "3"


# --- what others write meanwhile ------------------------------------------------------------------


async def test_what_the_old_store_ingests_meanwhile(remember):
    """Chunks that a store of the old model writes during a rebuild or after it are embedded by one call, once named."""
    old = await filled(remember)
    new = await remember(embed=NEW)
    written = iter(range(1000))

    async def write():
        await old.ingest(Note(f"ferry late {next(written)}", f"late {len(late)}"))
        late.append(1)

    late = []
    async with reading(remember, write) as seen:
        await new.rebuild_index()
    assert not any(isinstance(each, Exception) for each in seen)
    await old.ingest(Note("ferry after", "after"))
    health = await new.index_health()
    (bare,) = health.findings
    assert "update_index(stale=True)" in bare.advice
    assert bare.count >= 1
    assert (await new.update_index()).embedded == 0
    everything = await by_words(old)
    assert len(everything) == MANY + len(late) + 1
    assert await by_words(new) == everything
    indexed = await new.update_index(stale=True)
    assert (indexed.embedded, indexed.failed, indexed.backlog) == (bare.count, (), 0)
    assert await found(new) == await found(old) == everything
    assert (await new.index_health()).ok
    assert (await new.update_index(stale=True)).embedded == 0


async def test_what_the_new_store_ingests(remember):
    """The old store finds it by words at once, and by vector after its own update_index(stale=True)."""
    old = await filled(remember, 2)
    new = await remember(embed=NEW)
    await new.rebuild_index()
    await new.ingest(Note("ferry new", "new"))
    assert await found(old) == texts(2)
    assert "ferry new" in await by_words(old)
    assert (await old.update_index(stale=True)).embedded == 1
    assert await found(old) == await found(new) == sorted([*texts(2), "ferry new"])


async def test_pending_chunks_stay_pending(remember):
    """A rebuild embeds what was searchable; what waits goes on waiting for update_index()."""
    old = await filled(remember, 3)
    await old.ingest(Note("ferry waiting", "w"), update_index=False)
    new = await remember(embed=NEW)
    assert (await new.rebuild_index()).embedded == 3
    assert await found(new) == texts(3)
    assert (await new.stats()).pending == 1
    assert (await new.update_index()).embedded == 1
    assert "ferry waiting" in await found(new)


async def test_a_rebuild_is_of_the_whole_namespace(remember):
    """Whoever the store was opened for, every user's chunks are embedded, and none sees another's."""
    ann, bob = await remember(embed=OLD, user="ann"), await remember(embed=OLD, user="bob")
    await ann.ingest(Note("ferry of ann", "s"))
    await bob.ingest(Note("ferry of bob", "s"))
    new = await remember(embed=NEW, user="ann")
    assert (await new.rebuild_index()).embedded == 2
    assert await found(new) == ["ferry of ann"]
    assert await found(await remember(embed=NEW, user="bob")) == ["ferry of bob"]


async def test_what_is_refused_is_told(remember):
    """An embedder that fails leaves the generation unfinished, and the next call goes on where it was."""
    await filled(remember)

    class Fails(Embedder):
        def __call__(self, given):
            if len(self.calls) == 1:
                self.calls.append([])
                raise RuntimeError("no model")
            return super().__call__(given)

    new = await remember(embed=Fails(8, name="new", dims=8))
    with pytest.raises(RuntimeError, match="no model"):
        await new.rebuild_index()
    assert not ready(new)
    with pytest.raises(SchemaMismatch, match=r"rebuild_index\(\)"):
        await new.search("ferry")
    assert (await new.rebuild_index()).embedded == MANY - 20
    assert await found(new) == texts()


async def test_rebuilding_what_is_there(remember):
    """A store that is whole is not embedded again."""
    store = await filled(remember, 3)
    assert await store.rebuild_index() == rebuilding.Rebuilt(1, 0, ())
    new = await remember(embed=NEW)
    await new.rebuild_index()
    assert await new.rebuild_index() == rebuilding.Rebuilt(2, 0, ())


# --- which generation -----------------------------------------------------------------------------


async def test_each_model_opens_its_generation(remember):
    """open() picks the generation of its embedder; the embedder that comes back later finds its own again."""
    await filled(remember, 3)
    for at, embed in enumerate((NEW, THIRD), 2):
        store = await remember(embed=embed)
        assert (await store.rebuild_index()).generation == at
    for at, embed in enumerate((OLD, NEW, THIRD), 1):
        store = await remember(embed=embed)
        assert (ready(store), number(store)) == (True, at)
        assert await found(store) == texts(3)


async def test_an_embedder_without_name_or_dims(remember):
    """One that says neither is told from another by the length of its vectors."""
    await filled(remember, 3, embed=Embedder(4))
    new = await remember(embed=Embedder(8))
    assert not ready(new)
    await new.rebuild_index()
    for at, width in enumerate((4, 8), 1):
        store = await remember(embed=Embedder(width))
        assert number(store) == at
        assert await found(store) == texts(3)


UNREADY = {
    "search": lambda store: store.search("ferry"),
    "context": lambda store: store.context("ferry", 100),
    "embed": lambda store: store.embed("ferry"),
    "rerank": lambda store: store.rerank([("x", 0, 0.5)]),
    "ingest": lambda store: store.ingest(Note("a", "a")),
    "find_by_tag": lambda store: store.find_by_tag("t"),
    "get_document_chunks": lambda store: store.get_document_chunks("x"),
    "set_chunk_tags": lambda store: store.set_chunk_tags("x", 0, tags=["a"]),
    "redate": lambda store: store.redate("x", "2024-01-01"),
    "delete_document": lambda store: store.delete_document("x"),
    "delete_chunks": lambda store: store.delete_chunks("x/y/0"),
    "erase": lambda store: store.erase(everything=True),
    "forget": lambda store: store.forget(dry_run=False),
    "restore": lambda store: store.restore("x/y/0"),
    "update_index": lambda store: store.update_index(stale=True),
    "drop_other_generations": lambda store: store.drop_other_generations(),
    "index_health": lambda store: store.index_health(),
    "stats": lambda store: store.stats(),
    "find_near_duplicates": lambda store: store.find_near_duplicates(),
}


async def test_a_store_that_is_not_ready(remember, raw):
    """Every method names rebuild_index(), and neither it nor opening the store changes anything."""
    old = await filled(remember, 2)
    before = dump(raw, old)
    new = await remember(embed=NEW)
    public = {
        name for name, each in vars(MemoryStore).items() if not name.startswith("_") and not isinstance(each, property)
    }
    assert public == UNREADY.keys() | {"open", "close", "rebuild_index"}
    for call in UNREADY.values():
        with pytest.raises(SchemaMismatch, match=r"rebuild_index\(\)"):
            await call(new)
    assert dump(raw, old) == before


async def test_another_analysis_is_refused(remember, raw):
    """Generations share their terms: another analysis needs another namespace, and nothing is made."""
    old = await filled(remember, 2)
    before = dump(raw, old)
    with pytest.raises(SchemaMismatch, match=r"analysis.*take another namespace"):
        await remember(embed=NEW, analysis=Analysis("german"))
    assert dump(raw, old) == before


@pytest.mark.parametrize(
    ("stored", "declared"),
    [(Tag("page"), Numeric("page")), (Tag("page"), Stored("page")), (Tag("page"), Tag("page", many=True))],
    ids=["number", "stored", "many"],
)
async def test_another_kind_of_field_is_refused(remember, stored, declared):
    """Generations share the fields' values: read as another kind, one value could hide its whole chunk (case B36)."""
    old = await remember(embed=OLD, fields=[stored])
    await old.ingest(note("ferry", "s", page="iv"))
    with pytest.raises(SchemaMismatch, match=r"'page'.*take another namespace"):
        await remember(embed=NEW, fields=[declared])
    await (await remember(embed=NEW)).rebuild_index()


async def test_a_key_of_another_program_in_the_place(remember, raw, name):
    """Not ours to read: opening says so, whatever type the key has."""
    raw.set(f"{{memory.{name}}}", "theirs")
    with pytest.raises(SchemaMismatch, match="no metadata of ours"):
        await remember()


# --- dropping -------------------------------------------------------------------------------------


async def test_dropping_the_others(remember, raw):
    """Their readers find no index, their vectors are gone, and ours find everything all the while (B36)."""
    old = await filled(remember)
    for embed in (NEW, THIRD):
        store = await remember(embed=embed)
        await store.rebuild_index()
    last = await remember(embed=THIRD)

    async def look():
        return await found(last), await by_words(last)

    async with reading(remember, look) as seen:
        assert await store.drop_other_generations() == 2
    assert [each for each in seen if each != (texts(), texts())] == []
    with pytest.raises(IndexMissing):
        await old.search("ferry")
    held = {key.decode() for key in raw.hgetall(next(raw.scan_iter(f"{memory_of(old).names.prefix}*", count=1000)))}
    assert {each for each in held if "embedding" in each} == {"embedding_3", "__of_embedding_3"}
    assert not metadata(raw, old, 2)
    assert (await store.index_health()).ok
    assert await store.drop_other_generations() == 0
    back = await remember(embed=OLD)
    assert (ready(back), number(back)) == (False, 4)
    assert (await back.rebuild_index()).embedded == MANY
    assert await found(back) == await found(last) == texts()


async def test_dropping_what_was_called_otherwise(remember, raw):
    """The vectors that go are the dropped generation's, whatever it calls them."""
    old = await filled(remember, 2)
    new = await remember(embed=NEW, vector=Vector("v", algorithm="FLAT"))
    await new.rebuild_index()
    assert await new.drop_other_generations() == 1
    for key in raw.scan_iter(f"{memory_of(old).names.prefix}*", count=1000):
        held = raw.hgetall(key)
        assert b"embedding" not in held
        assert {b"v_2", b"__of_v_2"} <= held.keys()
    assert await found(new) == texts(2)


async def test_the_first_generation_may_drop_the_later_ones(remember):
    """A rebuild that is regretted is dropped by a store of the old model."""
    old = await filled(remember, 3)
    new = await remember(embed=NEW)
    await new.rebuild_index()
    assert await old.drop_other_generations() == 1
    with pytest.raises(IndexMissing):
        await new.search("ferry")
    assert await found(old) == texts(3)
    again = await remember(embed=NEW)
    assert (ready(again), number(again)) == (False, 3)


async def test_a_dropped_store_drops_nothing(remember):
    """Whose own generation was dropped must not take the last one away; rebuilding makes it one of its own."""
    old = await filled(remember, 3)
    new = await remember(embed=NEW)
    await new.rebuild_index()
    await new.drop_other_generations()
    with pytest.raises(IndexMissing, match=r"rebuild_index\(\)"):
        await old.drop_other_generations()
    assert await found(new) == texts(3)
    assert (await old.rebuild_index()).generation == 3
    assert await found(old) == await found(new) == texts(3)
    assert number(await remember(embed=OLD)) == 3


@STEPWISE
async def test_a_drop_that_is_stopped(remember, raw, name):
    """After any step the remaining generation is whole, and the next call finishes."""
    for step in range(1, 40):
        namespace = f"{name} {step}"
        await filled(remember, 25, namespace=namespace)
        new = await remember(embed=NEW, namespace=namespace)
        await new.rebuild_index()
        done = Steps(new.retriever, rebuilding.drop_others(memory_of(new))).take(step).done
        assert await found(new) == await by_words(new) == texts(25)
        # Whoever opens a store of a model that is about to go neither fails nor brings its index back.
        gone = metadata(raw, new).get("dropped", "")
        assert ready(await remember(embed=OLD, namespace=namespace)) == (gone != "1")
        await new.drop_other_generations()
        assert await found(new) == texts(25)
        names = memory_of(new).names
        here = [each.decode() for each in raw.execute_command("FT._LIST")]
        assert [each for each in here if each.split("@")[0] == names.index] == [f"{names.index}@2"]
        for key in raw.scan_iter(f"{names.prefix}*", count=1000):
            assert b"embedding_2" in (held := raw.hgetall(key))
            assert not held.keys() & {b"embedding", b"__of_embedding"}
        if done:
            break
    assert 5 < step < 39


async def test_there_is_nothing_to_drop(remember, raw):
    """A namespace of one generation stays as it is."""
    old = await filled(remember, 2)
    before = dump(raw, old)
    assert await old.drop_other_generations() == 0
    assert dump(raw, old) == before
