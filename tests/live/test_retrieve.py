"""Words and meaning on a real engine, with both ways to find candidates: the engine ranks text, or it does not.

The oracles are slow and exact: BM25 over all documents, and ``Filter.matches``.
"""

from __future__ import annotations

import logging
import math
from functools import reduce
from operator import and_, or_

import numpy as np
import pytest
import valkey
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fields.analysis import Analysis
from fields.filters import as_filter
from retriever import Document, InvalidInput, NotSupported, Numeric, Schema, ServerError, Tag, Text, Vector
from retriever.engines import VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2
from retriever.fusion import Append, Linear, Rrf
from tests.fakes import DIMS, Embedder, document
from tests.strategies import AWKWARD, short_texts, texts

pytestmark = pytest.mark.live

EAST = [1, 0, 0, 0]
LIVE = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=[None, VALKEY_SEARCH_1_2], ids=["its own way", "unranked"])
def engine(request):
    """How candidates are found: as the server's row says, or as on an engine that ranks no text."""
    return request.param


@pytest.fixture
async def words(make, schema, engine):
    """An empty index, asked in one of the two ways."""
    shell = make(schema, engine=engine)
    await shell.create_index()
    return shell


def texts_of(**by_id):
    """Documents with these texts, each a little farther from EAST than the one before."""
    return [document(id, text, (1, 0.1 * at, 0, 0)) for at, (id, text) in enumerate(by_id.items())]


def ids(hits):
    return [hit.id for hit in hits]


async def by_words(shell, text, **arguments):
    """The ids that the text channel alone finds."""
    return ids(await shell.retrieve(text=text, channels=["text"], **arguments))


def stable(hits):
    """What of an answer is promised not to change."""
    return [
        (hit.id, hit.fused_score, hit.vector_distance, hit.text_score, hit.channels, dict(hit.ranks)) for hit in hits
    ]


def bm25_of_all(schema, documents, query):
    """Exact BM25 of every document that holds a term of the query, one at a time, as the formula is printed."""
    terms = list(dict.fromkeys(schema.analysis.terms(query)))[:64]
    columns = [(1.0, {each.id: each.text for each in documents})]
    columns += [
        (field.weight, {each.id: each.fields[field.name] for each in documents if field.name in each.fields})
        for field in schema.texts
    ]
    scores = dict.fromkeys((each.id for each in documents), 0.0)
    for weight, column in columns:
        held = {id: schema.analysis.terms(text) for id, text in column.items()}
        mean = sum(map(len, held.values())) / max(1, len(held))
        for id, own in held.items():
            for term in terms:
                if tf := own.count(term):
                    df = sum(term in each for each in held.values())
                    idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
                    scores[id] += weight * idf * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * len(own) / mean))
    return {id: score for id, score in scores.items() if score > 0}


# --- shape ----------------------------------------------------------------------------------------


async def test_query_stays_as_it_is(words):
    """Beside retrieve, query finds by the vector alone, whatever the words are (A1)."""
    await words.upsert(texts_of(near="alpha", far="beta"))
    hits = await words.query(vector=EAST, k=2)
    assert [(hit.id, hit.text) for hit in hits] == [("near", "alpha"), ("far", "beta")]
    assert not hasattr(hits[0], "fused_score")


async def test_the_channels_that_run(make, schema, engine):
    """What is given and what there is decides: text and an embedder both, text alone words, a vector alone (A2)."""
    embed = Embedder()
    shell, bare = make(schema, embed=embed, engine=engine), make(schema, engine=engine)
    await shell.create_index()
    await shell.upsert(texts_of(a="alpha", b="beta"))
    for who, arguments, channels, calls, reason in (
        (shell, {"text": "alpha"}, {"vector", "text"}, [["alpha"]], None),
        (bare, {"text": "alpha"}, {"text"}, [], "neither an embedder nor vector="),
        (bare, {"text": "alpha", "channels": ["text"]}, {"text"}, [], None),
        (shell, {"vector": EAST}, {"vector"}, [], None),
        (shell, {"text": "alpha", "vector": EAST}, {"vector", "text"}, [], None),
        (shell, {"text": "alpha", "channels": ["text"]}, {"text"}, [], None),
        (shell, {"text": "alpha", "channels": ("vector",)}, {"vector"}, [["alpha"]], None),
        (shell, {"text": "the", "vector": EAST}, {"vector"}, [], "holds no terms"),
        (shell, {"text": "?!"}, {"vector"}, [["?!"]], "holds no terms"),
    ):
        embed.calls.clear()
        hits = await who.retrieve(**arguments)
        assert {channel for hit in hits for channel in hit.channels} == channels, arguments
        assert embed.calls == calls
        assert hits.complete
        assert len(hits.reasons) == (reason is not None), arguments
        assert (reason or "") in "".join(hits.reasons)


@pytest.mark.parametrize(
    "text", ["", "   ", "the and of", '"', "'", "?!", "__", "\x00", "\u200f", "🙂👩‍👩‍👧"], ids=repr
)
async def test_a_text_without_terms(words, text):
    """Nothing to search by is an error that names scan; with a vector it runs alone and says so (A2, case B19)."""
    await words.upsert(texts_of(a="the and of alpha", b="beta"))
    with pytest.raises(InvalidInput, match=r"holds no terms.*scan\(filter\)"):
        await words.retrieve(text=text)
    hits = await words.retrieve(text=text, vector=EAST, filter={"year": {"gte": 0}})
    assert ids(hits) == []  # nobody has a year: the filter holds, though the words are gone (case B20)
    hits = await words.retrieve(text=text, vector=EAST)
    assert ids(hits) == ["a", "b"]
    assert hits.complete
    assert any("holds no terms" in reason for reason in hits.reasons)


async def test_an_index_without_words(make, name):
    """A text is searched by its vector alone where the schema has no analysis, and the answer says so (A2)."""
    shell = make(Schema(name, vector=Vector(dims=DIMS, algorithm="FLAT"), analysis=None), embed=Embedder())
    await shell.create_index()
    await shell.upsert(texts_of(a="alpha"))
    hits = await shell.retrieve(text="alpha")
    assert [hit.channels for hit in hits] == [("vector",)]
    assert (hits.complete, hits.reasons) == (
        True,
        ("text: the schema has no analysis, so only the vector was searched by",),
    )
    assert (await shell.retrieve(text="alpha", channels=["vector"])).reasons == ()


async def test_a_document_is_the_same_by_either_channel(words):
    """Found by words, by the vector or by both: the same text and fields, those of query (A5)."""
    one = document(
        "a", "alpha\nBeta — é", (1, 0, 0, 0), category="x,y", tags=["b", "c"], year=0.1, title="T", extra={"a": [1]}
    )
    await words.upsert([one, document("b", "other", (0, 1, 0, 0))])
    (queried, _) = await words.query(vector=EAST)
    for arguments in ({"text": "beta"}, {"vector": EAST, "k": 1}, {"text": "beta", "vector": EAST, "k": 1}):
        (hit,) = await words.retrieve(**arguments)
        assert (hit.id, hit.text, hit.fields) == ("a", one.text, one.fields) == ("a", queried.text, queried.fields)


async def test_only_what_was_asked_for_comes_back(words):
    """return_fields narrows; a document that has none of them is still there."""
    await words.upsert(
        [document("a", "alpha", EAST, category="x", year=1), document("b", "alpha", (1, 1, 0, 0), year=2)]
    )
    for names, found in (
        ([], [("", {}), ("", {})]),
        (["category"], [("", {"category": "x"}), ("", {})]),
        (["__text", "year"], [("alpha", {"year": 1}), ("alpha", {"year": 2})]),
    ):
        hits = await words.retrieve(text="alpha", vector=EAST, return_fields=names)
        assert [(hit.text, hit.fields) for hit in hits] == found
        assert hits.complete, hits.reasons


# --- why a hit is there ---------------------------------------------------------------------------


async def test_a_hit_says_which_channel_found_it(words):
    """A channel matched within its own depth only; scores, ranks and channels are None and absent where not (A6)."""
    near = texts_of(v1="one", v2="two", both="alpha alpha")
    await words.upsert([*near, document("t", "alpha and a long tail of words", (-1, 0, 0, 0))])
    hits = {hit.id: hit for hit in await words.retrieve(text="alpha", vector=EAST, depth=3, k=3, fusion="append")}
    assert {id: dict(hit.ranks) for id, hit in hits.items()} == {
        "v1": {"vector": 1},
        "v2": {"vector": 2},
        "both": {"vector": 3, "text": 1},
        "t": {"text": 2},
    }
    assert hits["both"].channels == ("vector", "text")
    assert hits["v1"].text_score is None
    assert hits["t"].vector_distance is None
    assert hits["both"].text_score > hits["t"].text_score > 0
    assert 0 <= hits["v2"].vector_distance < hits["both"].vector_distance
    assert hits["t"].terms == ("alpha",)


@pytest.mark.parametrize("fusion", ["rrf", "linear", "append", Rrf(weights={"vector": 2.0, "text": 0.5}), Linear(0.2)])
async def test_explain(words, fusion):
    """A line per channel with rank, raw score and contribution, which sum to the fused score; and the filter (A7)."""
    await words.upsert([document(f"{at}", "alpha " * at, (1, at, 0, 0), category="x-y") for at in range(5)])
    for hit in await words.retrieve(text="alpha", vector=EAST, fusion=fusion, filter={"category": "x-y"}):
        first, *lines = hit.explain().splitlines()
        assert first.startswith(f"{hit.id}: fused score {hit.fused_score:.6g} by ")
        assert sum(hit.contributions.values()) == hit.fused_score
        shown = {line.strip().partition(":")[0]: line for line in lines[:-1]}
        assert tuple(shown) == hit.channels
        for channel, line in shown.items():
            raw = hit.vector_distance if channel == "vector" else hit.text_score
            assert f"rank {hit.ranks[channel]}, " in line
            assert f" {raw:.6g}" in line
            if channel in hit.contributions:
                assert line.endswith(f"contributes {hit.contributions[channel]:.6g}")
        assert lines[-1] == r"  passed the filter (@category:{x\-y})"


async def test_a_filter_on_a_field_that_the_index_lacks(make, schema, words, engine):
    """A query does not compare schemas, but words ask FT.INFO: an answer that can only be empty says why."""
    await words.upsert([document("a", "alpha", EAST)])
    declared = Schema(schema.name, [*schema.by_name.values(), Tag("topic")], schema.vector, prefix=schema.prefix)
    shell = make(declared, engine=engine)
    hits = await shell.retrieve(text="alpha", vector=EAST, filter={"topic": "x"})
    assert (list(hits), hits.complete) == ([], False)
    assert "has no field topic" in hits.reasons[0]
    with pytest.raises(ServerError, match="has no field topic"):
        await shell.retrieve(text="alpha", filter={"topic": "x"})


async def test_thresholds_are_of_one_channel(words):
    """max_distance and min_text_score each cut their own channel, in its own direction (A8, cases B86 and B92)."""
    await words.upsert([*texts_of(a="alpha", b="alpha beta gamma delta"), document("c", "beta", (0, 0, 0, 1))])
    ask = {"text": "alpha", "vector": EAST}
    hits = {hit.id: hit for hit in await words.retrieve(**ask)}
    assert hits["a"].vector_distance < hits["b"].vector_distance < hits["c"].vector_distance
    near = await words.retrieve(**ask, max_distance=(hits["a"].vector_distance + hits["b"].vector_distance) / 2)
    assert {hit.id: hit.channels for hit in near} == {"a": ("vector", "text"), "b": ("text",)}
    good = await words.retrieve(**ask, min_text_score=(hits["a"].text_score + hits["b"].text_score) / 2)
    assert {hit.id: hit.channels for hit in good} == {"a": ("vector", "text"), "b": ("vector",), "c": ("vector",)}
    none = await words.retrieve(**ask, max_distance=-1.0, min_text_score=1000.0)
    assert ids(none) == []
    assert none.complete


async def test_two_calls_have_one_answer(make, schema, engine):
    """Ids, order, scores, channels and ranks are the same each time, from another client too (A9)."""
    one, other = make(schema, engine=engine), make(schema, engine=engine)
    await one.create_index()
    await one.upsert([document(f"{at:03}", f"alpha w{at % 7} w{at % 5}", (1, at % 9, 0, 0)) for at in range(60)])
    ask = {"text": "alpha w3 w1", "vector": [1, 0.5, 0, 0], "k": 30}
    first = stable(await one.retrieve(**ask))
    assert len(first) == 30
    assert first == stable(await one.retrieve(**ask)) == stable(await other.retrieve(**ask))


# --- fusion ---------------------------------------------------------------------------------------


async def test_rrf(words):
    """First in both lists is 1/61 + 1/61; ranks 1 and 2 are 1/61 + 1/62; absent adds nothing (A10, case B88)."""
    await words.upsert(texts_of(a="alpha beta", b="beta", c="gamma"))
    hits = await words.retrieve(text="alpha beta", vector=EAST)
    assert {hit.id: hit.fused_score for hit in hits} == {"a": 1 / 61 + 1 / 61, "b": 1 / 62 + 1 / 62, "c": 1 / 63}
    hits = await words.retrieve(text="beta", vector=EAST)
    assert {hit.id: hit.fused_score for hit in hits} == {"b": 1 / 62 + 1 / 61, "a": 1 / 61 + 1 / 62, "c": 1 / 63}
    assert ids(hits) == ["a", "b", "c"]  # of equal scores the nearer first


async def test_linear(words):
    """Each channel is brought to 0..1 over its own candidates; alpha weighs the vector's (A11)."""
    await words.upsert([document(id, text, vector) for id, text, vector in (
        ("a", "gamma", (1, 0, 0, 0)), ("b", "beta delta", (0, 1, 0, 0)), ("c", "beta beta", (-1, 0, 0, 0)),
    )])  # fmt: skip
    hits = {hit.id: hit for hit in await words.retrieve(text="beta", vector=EAST, fusion=Linear(0.25))}
    assert {id: hit.contributions for id, hit in hits.items()} == {
        "a": {"vector": 0.25},
        "b": {"vector": pytest.approx(0.125), "text": 0.0},
        "c": {"vector": 0.0, "text": 0.75},
    }
    (only,) = await words.retrieve(text="gamma", fusion="linear")
    assert only.fused_score == 1.0


async def test_append(words):
    """The nearest in their order, then the first extra text hits that are not there yet, in text order (A12)."""
    await words.upsert(
        [
            *texts_of(a="one", b="alpha", c="two", d="alpha x", e="alpha x x"),
            document("f", "alpha x x x", (0, 0, 0, 1)),
        ]
    )
    ask = {"text": "alpha", "vector": EAST}
    assert ids(await words.retrieve(**ask, k=2, fusion="append")) == ["a", "b", "d", "e", "f"]
    assert ids(await words.retrieve(**ask, k=2, fusion=Append(extra=1))) == ["a", "b", "d"]
    assert ids(await words.retrieve(**ask, k=2, fusion=Append(extra=0))) == ["a", "b"]
    hits = await words.retrieve(**ask, k=2, fusion="append")
    assert [hit.fused_score for hit in hits] == [1 / place for place in range(1, 6)]
    assert [tuple(hit.contributions) for hit in hits] == [("vector",)] * 2 + [("text",)] * 3
    assert ids(await words.retrieve(**ask, k=1, fusion="append", max_distance=-1.0)) == ["b", "d", "e", "f"]


@pytest.mark.parametrize(
    ("after", "nearest"),
    [
        ({"rerank": lambda text, hits: hits[::-1], "candidates": 4}, ["d", "c"]),
        ({"rerank": lambda text, hits: [(hit, -at) for at, hit in enumerate(hits)]}, ["a", "b"]),
        ({"collapse": "category"}, ["a", "c"]),
        ({"diversity": 0.0}, ["a", "b"]),
    ],
    ids=["reordered", "scored", "collapsed", "diverse"],
)
async def test_append_after_fusion(words, after, nearest):
    """Reranking, collapsing, varying work on the nearest; text hits that are then not among the k follow (A12, A24)."""
    rows = {"a": ("one", "x"), "b": ("alpha", "x"), "c": ("alpha y", "y"), "d": ("two", "y"), "e": ("alpha y y", "z")}
    await words.upsert(
        [document(id, text, (1, 0.1 * at, 0, 0), category=group) for at, (id, (text, group)) in enumerate(rows.items())]
    )
    hits = await words.retrieve(text="alpha", vector=EAST, k=2, fusion=Append(extra=2), **after)
    assert ids(hits)[:2] == nearest
    left = [id for id in "bce" if id not in nearest]
    if "collapse" in after:
        left = ["e"]
        assert [hit.collapsed for hit in hits] == [1, 1, 0]
    assert ids(hits)[2:] == left[:2]
    # Places go on behind those of the nearest that are left.
    assert min(hit.fused_score for hit in hits[:2]) > max(hit.fused_score for hit in hits[2:])
    assert all(sum(hit.contributions.values()) == hit.fused_score for hit in hits)


async def test_a_fusion_of_your_own(words):
    """A function sees both rankings in their raw numbers; its scores decide."""
    await words.upsert(texts_of(a="alpha", b="alpha alpha beta", c="gamma"))
    seen = []

    def mine(vector, text):
        seen.append((vector, text))
        return [(id, score) for id, score in text] + [("c", -1.0)]

    hits = await words.retrieve(text="beta alpha", vector=EAST, fusion=mine)
    ((vector, text),) = seen
    assert [id for id, _ in vector] == ["a", "b", "c"]
    assert [(hit.id, hit.fused_score) for hit in hits] == [*text, ("c", -1.0)]
    assert all(hit.contributions == {"fusion": hit.fused_score} for hit in hits)


async def test_ties(words):
    """Equal scores: the nearer first, then the higher text score, then the smaller id; rewriting changes nothing
    (A13, case B93)."""
    documents = [document(id, "alpha beta", (1, 0, 0, 0)) for id in ("é", "b", "a", "c", "B")]
    await words.upsert(documents)
    expected = sorted("é b a c B".split())
    for _ in range(2):
        for fusion in ("rrf", "linear"):
            assert ids(await words.retrieve(text="alpha", fusion=fusion)) == expected
            assert ids(await words.retrieve(text="alpha", vector=EAST, fusion=fusion)) == expected
        await words.upsert(documents[::-1])


async def test_fusion_keys_on_ids(words):
    """Two documents of one text are two hits, never merged by what they say (A13)."""
    await words.upsert([document(id, "the very same alpha", EAST) for id in ("a", "b")])
    hits = await words.retrieve(text="alpha", vector=EAST)
    assert [(hit.id, hit.channels) for hit in hits] == [("a", ("vector", "text")), ("b", ("vector", "text"))]


async def test_depth(words):
    """Each channel ranks max(50, 4k) unless said; what lies deeper was not matched (A14)."""
    await words.upsert([document(f"{at:03}", "alpha " + "x " * at, (1, at / 100, 0, 0)) for at in range(70)])
    for k, depth, ranked in ((1, None, 50), (15, None, 60), (5, 7, 7)):
        hits = await words.retrieve(text="alpha", vector=EAST, k=k, depth=depth, fusion=Append(1000))
        assert hits.stats["vector_candidates"] == hits.stats["text_candidates"] == ranked
        assert max(hit.ranks.get("text", 0) for hit in hits) <= ranked


# --- the text channel -----------------------------------------------------------------------------


async def test_words_are_ored(words):
    """One word of a question is enough to be found; who holds more of them, and rarer ones, comes first (A15)."""
    await words.upsert(
        texts_of(a="the cat sat", b="a dog sat", c="an owl flew", d="the cat and the dog sat", e="rain", f="snow")
    )
    found = await by_words(words, "Did any cat, or dog, or unicorn ever sit?")
    assert found[0] == "d"
    assert set(found) == {"a", "b", "d"}


async def test_words_that_most_documents_hold(words):
    """A common word beside a rare one still finds its documents, after those with the rare one (A15)."""
    await words.upsert(texts_of(a="python alpha", b="python", c="python", d="python", e="java", f="rollout"))
    for filter in (None, ~(Tag("category") == "x")):
        found = await by_words(words, "python alpha rollout", filter=filter)
        assert set(found[:2]) == {"a", "f"}
        assert set(found) == {"a", "b", "c", "d", "f"}


SPECIALS = "+-=&|><!(){}[]^\"~*?:\\/@$%;,|#'`._\x00\n\t\x1f\x7f\u00a0\u200b\u2028\u3000\ufeff—’"
SHAPES = ["{0}", "{0}{0}", "alpha{0}beta", "alpha{0}{0}beta", "{0}alpha", "beta{0}", "{0}alpha{0}", "alpha {0} beta"]
INJECTIONS = [
    "@category:{theirs}",
    "@field:{x}",
    "*",
    "*=>[KNN 9 @embedding $vec]",
    "alpha)=>[KNN",
    "(",
    ")",
    "((",
    "alpha) | (beta",
    'alpha" | @__terms:"beta',
    "alpha}|@category:{theirs",
    "-alpha",
    "~alpha",
    "%alpha%",
    "alpha*",
    "w'al*'",
    "alpha|beta",
    "=>{$weight: 9}",
    "alpha AND NOT beta",
    "alpha && beta",
    "alpha^4",
    "alpha~2",
    "\\",
    "\\\\",
    "alpha\\",
    "$vec",
    "$p",
    "@__terms:alpha",
    "@category:alpha",
    "[0 inf]",
    "@year:[-inf inf]",
    "ismissing(@category)",
    "alpha => beta",
    "",
    " ",
    "\u202ealpha\u202c",
    "אלפא",
    "👩‍👩‍👧‍👦 alpha",
    "🇫🇷",
    "alpha\ufe0f",
    "a\u0301lpha",
    "ALPHA",
    "alpha\x00beta",
    "ａｌｐｈａ",
]


async def test_a_text_is_words_and_never_syntax(words):
    """Every special character, in every place, is no more than a separator: no error, no wider answer
    (A16, cases B05, B06, B10 and B11)."""
    text = "alpha beta alpha_beta"
    await words.upsert(
        [
            document("mine", text, EAST, category="mine", year=1),
            document("theirs", text, EAST, category="theirs", year=1),
            document("else", "gamma delta", EAST, category="mine", year=1),
        ]
    )
    asked = [shape.format(char) for char in SPECIALS for shape in SHAPES] + INJECTIONS
    filter = Tag("category") == "mine"
    terms = set(Analysis().terms(text))
    answers = await words.retrieve_many([{"text": each, "filter": filter, "channels": ["text"]} for each in asked])
    for each, answer in zip(asked, answers, strict=True):
        own = Analysis().terms(each)
        if isinstance(answer, Exception):
            assert isinstance(answer, InvalidInput), each
            assert not own, each
        else:
            assert answer.complete, each
            assert ids(answer) == (["mine"] if terms & set(own) else []), each
    answers = await words.retrieve_many([{"text": each, "filter": filter, "vector": EAST} for each in asked])
    for each, answer in zip(asked, answers, strict=True):
        assert set(ids(answer)) == {"mine", "else"}, each


async def test_texts_that_are_no_text(words):
    """Half a character is refused, as is what is no string (A16)."""
    for text in ("\ud800", "alpha \udfff", 5, b"alpha", ["alpha"]):
        with pytest.raises(InvalidInput, match="text"):
            await words.retrieve(text=text)
        with pytest.raises(InvalidInput, match="text"):
            await words.retrieve(text=text, vector=EAST)


async def test_a_megabyte_of_text(make, schema, engine):
    """A text of any length is searched by its first 64 different terms, which the answer says (A16)."""
    shell = make(schema, engine=engine, embed=Embedder())
    await shell.create_index()
    await shell.upsert([document("a", "word63 and more", EAST), document("b", "word64", EAST)])
    long = " ".join(f"word{at}" for at in range(130_000))
    assert len(long) > 1_000_000
    hits = await shell.retrieve(text=long, channels=["text"])
    assert ids(hits) == ["a"]
    assert hits.complete
    assert any("first 64" in reason for reason in hits.reasons)
    assert ids(await shell.retrieve(text="word64 " * 150_000, channels=["text"])) == ["b"]
    assert len(await shell.retrieve(text=long)) == 2


IDENTIFIERS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "CUDA_ERROR_OUT_OF_DATE",
    "RTX-4090": "RTX-4080",
    "API/HTTP": "API/GRPC",
    "parse_config()": "parse_args()",
    "POLICY-123": "POLICY-124",
    "service-a": "service-b",
    "C++": "C",
    "C#": "C",
    "192.168.0.1": "192.168.0.2",
    "123e4567-e89b-12d3-a456-426614174000": "123e4567-e89b-12d3-a456-426614174001",
    "https://a.b/c-d?e=1": "https://a.b/c-d?e=2",
    "s3://b/k.md": "s3://b/j.md",
    "C:\\Users\\me": "C:\\Users\\you",
    "3.14": "3.15",
    "привет": "пока",
    "ÉCOLE": "lycée",
    "user@example.com": "user@example.org",
    "日本語": "韓国語",
}


async def test_exact_identifiers(words):
    """An identifier comes first where its like stands beside it, as part of a sentence and in another case
    (A17, cases B16, B25 and B26)."""
    documents = []
    for at, (one, other) in enumerate(IDENTIFIERS.items()):
        documents += [document(f"{at}", f"see {one}, here", EAST), document(f"{at} not", f"see {other}, here", EAST)]
    await words.upsert(documents)
    for at, one in enumerate(IDENTIFIERS):
        for asked in (one, f"what about {one}?", one.lower(), one.upper()):
            assert (await by_words(words, asked))[0] == f"{at}", asked


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("line alpha\nbeta line", "alpha"),
        ("line alpha\r\nbeta line", "beta"),
        ("alpha\vbeta\fgamma", "beta"),
        ("foo—bar", "foo"),
        ("foo\u00a0bar", "bar"),
        ("foo\u3000bar", "bar"),
        ("\ufefffoo", "foo"),
        ("foo\u200bbar", "bar"),
        ("l’été", "été"),
        ("Привет, Мир", "привет"),
        ("École", "école"),
        ("STRASSE", "straße"),
        ("x" * 129, "x" * 129),
        ("é" * 100, "é" * 100),
        ("alpha\x00secret", "secret"),
        ("running", "runs"),
        ("C:\\Users\\me", "users"),
        (r"\alpha\beta", "beta"),
        ("日本語テキスト", "日本語"),
        ("ภาษาไทย", "ไทย"),
        ("हिन्दी", "हिन्दी"),
        ("ελληνικά", "ΕΛΛΗΝΙΚΆ"),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_our_analysis_and_not_the_engines(words, text, asked):
    """What an engine's own tokenizer joins, cuts or loses is found, and the text comes back unchanged
    (A18, cases B14, B15, B16, B18, B24, B25 and B26)."""
    await words.upsert([document("a", text, EAST), document("b", "other words", EAST)])
    (hit,) = await words.retrieve(text=asked)
    assert (hit.id, hit.text) == ("a", text)


async def test_words_that_engines_take_for_their_own(make, name, engine):
    """Operators, numbers and stop words of an engine are terms like any other (case B09)."""
    schema = Schema(name, vector=Vector(dims=DIMS, algorithm="FLAT"), analysis=Analysis(stem=False, stop_words=[]))
    shell = make(schema, engine=engine)
    await shell.create_index()
    own = (
        "and or not as inf nan true false knn load the 1e5 0x1f 00012 5 2024 limit params ismissing a i x 1e400".split()
    )
    await shell.upsert([document(word, word, EAST) for word in own])
    answers = await shell.retrieve_many([{"text": word} for word in own])
    assert [ids(answer) for answer in answers] == [[word] for word in own]


async def test_stemming_is_a_choice(make, name, engine):
    """Without a stemmer a word finds itself alone (case B24)."""
    schema = Schema(name, vector=Vector(dims=DIMS, algorithm="FLAT"), analysis=Analysis(stem=False))
    shell = make(schema, engine=engine)
    await shell.create_index()
    await shell.upsert(texts_of(a="university", b="universe", c="running"))
    assert await by_words(shell, "universe") == ["b"]
    assert await by_words(shell, "run") == []


async def test_more_than_two_hundred_words_of_one_beginning(words):
    """No word is a prefix of another, so no engine stops at 200 of them (case B22)."""
    await words.upsert([document(f"{at}", f"word{at}", EAST) for at in range(1000)])
    assert await by_words(words, "word") == []
    asked = " ".join(f"word{at}" for at in range(0, 1000, 20))
    assert set(await by_words(words, asked, k=100)) == {f"{at}" for at in range(0, 1000, 20)}


def corpus(seed, count, words=60):
    """Documents of Zipf-like text, some with a title."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, words + 1)
    weights /= weights.sum()
    made = []
    for at in range(count):
        text = " ".join(f"w{word}" for word in rng.choice(words, rng.integers(0, 30), p=weights))
        fields = {"category": "abc"[at % 3], "year": int(at % 10)}
        if at % 2:
            fields["title"] = " ".join(f"w{word}" for word in rng.choice(words, 3))
        made.append(document(f"{at:04}", text, tuple(rng.normal(size=DIMS)), **fields))
    return made


@pytest.mark.parametrize("asked", ["w50", "w3 w17 w40", "w0 w1 w2", "w0 w1 w5 w30 w59 never"])
async def test_scores_are_exact_bm25(make, name, engine, asked):
    """text_score is BM25 over all documents, each Text field with its own frequencies, length and weight: the same
    number whichever way the candidates were found (A19, A20)."""
    schema = Schema(name, [Tag("category"), Numeric("year"), Text("title", weight=2.5)], Vector(dims=DIMS))
    shell = make(schema, engine=engine)
    await shell.create_index()
    documents = corpus(1, 300)
    await shell.upsert(documents)
    exact = bm25_of_all(schema, documents, asked)
    hits = await shell.retrieve(text=asked, k=300, depth=10_000)
    assert {hit.id: hit.text_score for hit in hits} == pytest.approx(exact, rel=1e-12)
    assert ids(hits) == [id for id, _ in sorted(exact.items(), key=lambda pair: (-pair[1], pair[0]))]
    assert hits.complete
    filter = (Tag("category") == "a") & (Numeric("year") > 3)
    passing = {each.id for each in documents if filter.matches(each)}
    hits = await shell.retrieve(text=asked, k=300, depth=10_000, filter=filter)
    assert {hit.id: hit.text_score for hit in hits} == pytest.approx(
        {id: score for id, score in exact.items() if id in passing}, rel=1e-12
    )


async def test_the_best_ten_of_many(make, name, engine):
    """Among more documents than are looked at, most of BM25's best ten are found, also by common words (A20)."""
    schema = Schema(name, [Tag("category"), Text("title")], Vector(dims=DIMS, algorithm="FLAT"))
    shell = make(schema, engine=engine)
    await shell.create_index()
    documents = [
        Document(each.id, each.text, {"category": each.fields["category"]}, each.vector)
        for each in corpus(2, 3000, words=2000)
    ]
    await shell.upsert(documents)
    found = wanted = 0
    for asked in ("w0 w1 w2", "w3 w20 w150", "w7 w8 w9 w10", "w1000 w0 w5", "w600"):
        exact = sorted(bm25_of_all(schema, documents, asked).items(), key=lambda pair: (-pair[1], pair[0]))[:10]
        hits = await shell.retrieve(text=asked)
        found += len({id for id, _ in exact} & set(ids(hits)))
        wanted += len(exact)
        assert [hit.text_score for hit in hits] == sorted((hit.text_score for hit in hits), reverse=True)
    assert found >= 0.8 * wanted


async def test_rewriting_keeps_the_ranking(make, schema, engine):
    """Documents that were overwritten, and count no more, change neither candidates nor scores (A19, case B93)."""
    documents = corpus(3, 200)
    shell = make(schema, engine=engine)
    await shell.create_index()
    await shell.upsert(documents)
    ask = {"text": "w2 w9 w33", "k": 20}
    first = stable(await shell.retrieve(**ask))
    for _ in range(4):
        await shell.upsert(documents)
    again = make(schema, engine=engine)  # whose frequencies are new
    # Candidates are then planned, not the engine's best: farther down there may be one that its ranking had missed.
    assert stable(await again.retrieve(**ask))[:10] == first[:10]


async def test_what_was_just_written_is_found(words):
    """A word that was nowhere when first asked for is found as soon as it is written, though counts are kept (A19)."""
    await words.upsert(texts_of(a="alpha"))
    assert await by_words(words, "novel") == []
    await words.upsert(texts_of(b="novel"))
    (hit,) = await words.retrieve(text="novel")
    assert hit.id == "b"
    assert hit.text_score > 0


async def test_an_empty_index(words):
    """Nothing is found in nothing, and that is no error."""
    hits = await words.retrieve(text="alpha", vector=EAST)
    assert (ids(hits), hits.complete, hits.reasons) == ([], True, ())


async def test_no_text_fields(make, schema):
    """Words on an engine without TEXT are refused with what is needed; a vector alone is not (A21)."""
    docs = make(schema)
    await docs.create_index()
    await docs.upsert(texts_of(a="alpha"))
    shell = make(schema, engine=VALKEY_SEARCH_1_0)
    for arguments in ({"text": "alpha"}, {"text": "alpha", "vector": EAST}):
        with pytest.raises(NotSupported, match="no TEXT fields; words need Valkey Search 1.2 or newer, or RediSearch"):
            await shell.retrieve(**arguments)
    assert ids(await shell.retrieve(vector=EAST)) == ["a"]
    assert ids(await shell.retrieve(text="alpha", vector=EAST, channels=["vector"])) == ["a"]


async def test_a_schema_without_analysis(make, name):
    """Where no words are kept, a text alone is refused before any I/O; with a vector that runs alone."""
    shell = make(Schema(name, vector=Vector(dims=DIMS, algorithm="FLAT"), analysis=None))
    await shell.create_index()
    await shell.upsert(texts_of(a="alpha"))
    with pytest.raises(InvalidInput, match="no analysis"):
        await shell.retrieve(text="alpha")
    assert ids(await shell.retrieve(text="alpha", vector=EAST)) == ["a"]


async def test_one_index_for_both(words, raw, name):
    """create_index makes the one index that both channels search; nobody makes another by hand (A22)."""
    assert [each for each in raw.execute_command("FT._LIST") if each.startswith(name.encode())] == [name.encode()]
    await words.upsert(texts_of(a="alpha"))
    (hit,) = await words.retrieve(text="alpha", vector=EAST)
    assert hit.channels == ("vector", "text")


# --- failures -------------------------------------------------------------------------------------


async def test_an_embedder_that_fails(make, schema, engine):
    """The words are searched all the same, which the answer says; strict raises, and so does no other channel
    (A23, case B94)."""

    def broken(texts):
        raise RuntimeError("the model is gone")

    shell = make(schema, embed=broken, engine=engine)
    await make(schema).create_index()
    await make(schema).upsert(texts_of(a="alpha", b="beta"))
    hits = await shell.retrieve(text="alpha")
    assert ids(hits) == ["a"]
    assert not hits.complete
    assert any("RuntimeError: the model is gone" in reason for reason in hits.reasons)
    for arguments in ({"text": "alpha", "strict": True}, {"text": "the"}, {"text": "alpha", "channels": ["vector"]}):
        with pytest.raises(RuntimeError, match="the model is gone"):
            await shell.retrieve(**arguments)


async def test_words_that_fail(make, schema, raw, engine):
    """Where the words cannot be counted, the vector's hits come back with the reason; strict raises (A23, case B94)."""
    shell = make(schema, engine=engine)
    await shell.create_index()
    await shell.upsert(texts_of(a="alpha", b="beta"))
    raw.set(schema.metadata_key, "no hash")  # where the mean lengths are
    hits = await shell.retrieve(text="alpha", vector=EAST)
    assert ids(hits) == ["a", "b"]
    assert not hits.complete
    assert hits.reasons[0].startswith("text: ")
    for arguments in ({"text": "alpha"}, {"text": "alpha", "vector": EAST, "strict": True}):
        with pytest.raises(ServerError):
            await shell.retrieve(**arguments)


@pytest.mark.parametrize("text", ["alpha", "new"], ids=["searching", "counting"])
@pytest.mark.parametrize(
    "cut", [lambda proxy: proxy.cut_after(20), lambda proxy: proxy.cut_replies_after(5)], ids=["sending", "reading"]
)
async def test_a_connection_that_breaks(make, borrow, schema, proxy, cut, text):
    """It is no failed channel: a borrowed client's error comes through, an owned one asks again (A23)."""
    docs = make(schema)
    await docs.create_index()
    await docs.upsert(texts_of(a="alpha", b="beta"))
    borrowed, owned = make(schema, client=borrow(proxy.url)), make(schema, to=proxy.url)
    for shell in (borrowed, owned):
        assert ids(await shell.retrieve(text="alpha", vector=EAST)) == ["a", "b"]
    ask = {"text": text, "vector": EAST}
    cut(proxy)
    with pytest.raises(valkey.exceptions.ConnectionError):
        await borrowed.retrieve(**ask)
    cut(proxy)
    hits = await owned.retrieve(**ask)
    assert (ids(hits), hits.complete) == (["a", "b"], True)
    assert proxy.cuts == 2


async def test_no_index(make, schema, engine):
    """Nobody made the index: that is an error, not an answer without hits."""
    shell = make(schema, engine=engine)
    for arguments in ({"text": "alpha"}, {"vector": EAST}, {"text": "alpha", "vector": EAST}):
        with pytest.raises(ServerError, match=r"create_index\(\) makes it"):
            await shell.retrieve(**arguments)


async def test_hits_that_expire(words, raw, schema):
    """A winner that goes between the two round trips is left out, and the answer says so."""
    await words.upsert(texts_of(a="alpha", b="beta"))

    def deleting(vector, text):
        raw.delete(f"{schema.prefix}a")
        return vector and [(id, -distance) for id, distance in vector]

    hits = await words.retrieve(text="alpha", vector=EAST, fusion=deleting)
    assert ids(hits) == ["b"]
    assert not hits.complete
    assert "1 hits expired or were deleted" in hits.reasons[0]


async def test_hits_that_change_hands(words, raw, schema):
    """A winner that stops passing the filter between the two round trips is left out, and the answer says so."""
    await words.upsert([document(id, "alpha", EAST, category="x") for id in "ab"])

    def moving(vector, text):
        raw.hset(f"{schema.prefix}a", "category", "y")
        return [(id, -distance) for id, distance in vector]

    hits = await words.retrieve(text="alpha", vector=EAST, filter={"category": "x"}, fusion=moving)
    assert ids(hits) == ["b"]
    assert not hits.complete
    assert "1 hits were changed while they were fetched" in hits.reasons[0]


# --- after fusion ---------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["def", "async def"])
def called(request, make):
    """Makes of a function one of the kind that is tried; the blocking shell takes no async ones."""
    if request.param and make.blocking:
        pytest.skip("Retriever takes no async function")

    def called(function):
        async def awaited(*args):
            return function(*args)

        return awaited if request.param else function

    return called


@pytest.fixture
async def five(words):
    """Five documents in three groups, nearest first."""
    await words.upsert(
        [
            document("a", "alpha", (1, 0, 0, 0), category="x"),
            document("b", "alpha beta", (1, 0.01, 0, 0), category="x"),
            document("c", "alpha beta gamma", (1, 0.5, 0, 0), category="y"),
            document("d", "delta", (1, 0, 0.7, 0), category="x"),
            document("e", "delta delta", (1, 0, 0, 0.9)),
        ]
    )
    return words


async def test_rerank(five, called):
    """The reranker sees candidates with their texts, its order wins, its score is set, the others stay (A24)."""
    seen = []

    def scored(text, hits):
        seen.append((text, [(hit.id, hit.text) for hit in hits]))
        for hit in hits:
            hit.fields = {"changed": True}
        return [(hit, float(ord(hit.id))) for hit in hits if hit.id != "c"]

    ask = {"text": "alpha", "vector": EAST}
    plain = {hit.id: hit for hit in await five.retrieve(**ask)}
    hits = await five.retrieve(**ask, k=2, rerank=called(scored), return_fields=["category"])
    ((text, given_),) = seen
    assert text == "alpha"
    assert [id for id, _ in given_] == list(plain)
    assert all(shown for _, shown in given_)
    assert [(hit.id, hit.rerank_score) for hit in hits] == [("e", 101.0), ("d", 100.0)]
    assert stable(hits) == stable([plain[hit.id] for hit in hits])
    assert [(hit.text, hit.fields) for hit in hits] == [("", {}), ("", {"category": "x"})]
    assert "reranker: 101, which decides the order" in hits[0].explain()


async def test_how_many_a_reranker_sees(words):
    """4k unless said, and as many as were asked for: the channels rank at least so deep (A24)."""
    await words.upsert([document(f"{at:03}", "alpha", (1, at / 200, 0, 0)) for at in range(200)])
    seen = []

    def keeping(text, hits):
        seen.append(len(hits))
        return hits

    for arguments in ({"k": 3}, {"k": 3, "candidates": 7}, {"k": 3, "candidates": 150}):
        assert len(await words.retrieve(text="alpha", vector=EAST, rerank=keeping, **arguments)) == 3
    assert seen == [12, 7, 150]
    assert ids(await words.retrieve(text="never", rerank=keeping)) == []
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda text, hits: [*hits, hits[0]], "twice"),
        (lambda text, hits: [(hits[0], math.nan)], "nan"),
        (lambda text, hits: "abc", "must return hits"),
        (lambda text, hits: None, "must return hits"),
        (lambda text, hits: [(hits[0], 1.0, 2)], "3 values"),
    ],
)
async def test_a_wrong_reranker(five, answer, said):
    """Duplicates, NaN and wrong shapes are errors (A24)."""
    with pytest.raises(InvalidInput, match=said):
        await five.retrieve(text="alpha", vector=EAST, rerank=answer)


async def test_an_invented_hit(five):
    """A reranker may not bring hits of its own (A24)."""
    (other,) = await five.retrieve(text="gamma")
    with pytest.raises(InvalidInput, match="not among the hits"):
        await five.retrieve(text="delta", rerank=lambda text, hits: [other])


async def test_diversity(five):
    """A hit that resembles those before it gives way, before the cut to k; 0 is relevance alone (A25)."""
    ask = {"vector": EAST, "k": 2}
    assert ids(await five.retrieve(**ask)) == ids(await five.retrieve(**ask, diversity=0)) == ["a", "b"]
    assert ids(await five.retrieve(**ask, diversity=1)) == ["a", "e"]
    both = await five.retrieve(**ask, text="alpha delta", diversity=1.0)
    assert both[0].id == ids(await five.retrieve(text="alpha delta", vector=EAST))[0]
    reordered = await five.retrieve(**ask, text="alpha", diversity=0.0, rerank=lambda text, hits: hits[::-1])
    everything = ids(await five.retrieve(vector=EAST, text="alpha"))
    assert ids(reordered) == everything[::-1][:2]


async def test_collapse(five):
    """The best hit of each value stays and counts the others; who has no value stands for itself (A26)."""
    hits = await five.retrieve(vector=EAST, collapse="category", k=3)
    assert [(hit.id, hit.collapsed) for hit in hits] == [("a", 2), ("c", 0), ("e", 0)]
    hits = await five.retrieve(text="delta alpha", collapse="category", return_fields=[])
    assert len(hits) == 3
    assert all(hit.fields == {} for hit in hits)
    assert "stands for 2 more of its group" in (await five.retrieve(vector=EAST, collapse="category"))[0].explain()
    best = await five.retrieve(
        text="alpha",
        vector=EAST,
        k=1,
        collapse="category",
        rerank=lambda text, hits: sorted(hits, key=lambda h: h.id)[1:],
    )
    assert [(hit.id, hit.collapsed) for hit in best] == [("b", 1)]


async def test_expand(five, called):
    """More texts are searched beside the one, and fused by rrf; a text that comes twice counts once (A27)."""
    hits = await five.retrieve(text="gamma", expand=called(lambda text: ["delta", text, "delta"]))
    assert set(ids(hits)) == {"c", "d", "e"}
    scores = {hit.id: hit.fused_score for hit in hits}
    assert scores == {"c": 1 / 61, "e": 1 / 61, "d": 1 / 62}
    assert all(sum(hit.contributions.values()) == hit.fused_score for hit in hits)
    assert ids(await five.retrieve(text="gamma", expand=called(lambda text: []))) == ["c"]


async def test_a_blank_text_is_no_fault_of_its_expansion(words):
    """Beside a vector, or where more texts have words, a text without any is expanded; else it is named (A27)."""
    await words.upsert(texts_of(a="alpha", b="beta"))
    for ask in ({"text": ""}, {"text": "", "vector": EAST}):
        hits = {hit.id: hit for hit in await words.retrieve(**ask, expand=lambda text: ["beta"])}
        assert hits["b"].terms == ("beta",)
    with pytest.raises(InvalidInput, match="text '' holds no terms"):
        await words.retrieve(text="", expand=lambda text: [])


async def test_expand_with_an_embedder(make, schema, engine):
    """All texts are embedded in one call, and each runs in both channels (A27)."""
    embed = Embedder()
    shell = make(schema, embed=embed, engine=engine)
    await shell.create_index()
    await shell.upsert([Document("a", "alpha"), Document("b", "beta")])
    embed.calls.clear()
    hits = await shell.retrieve(text="alpha", expand=lambda text: ["beta"])
    assert embed.calls == [["alpha", "beta"]]
    one = 1 / 61 + 1 / 62
    assert {hit.id: dict(hit.contributions) for hit in hits} == {
        "a": {"vector": pytest.approx(one), "text": 1 / 61},
        "b": {"vector": pytest.approx(one), "text": 1 / 61},
    }


@pytest.mark.parametrize(
    ("expand", "said"),
    [
        (lambda text: "beta", "must return texts"),
        (lambda text: None, "must return texts"),
        (lambda text: {"a": 1}, "must return texts"),
        (lambda text: ["beta", 5], "something in them"),
        (lambda text: [""], "something in them"),
        (lambda text: [["beta"]], "something in them"),
        (lambda text: ["\ud800"], "expand"),
        (lambda text: [f"{text}{at}" for at in range(17)], "17 texts; 16 at most"),
    ],
)
async def test_a_wrong_expansion(words, expand, said):
    """What is no list of up to 16 texts is an error (A27)."""
    with pytest.raises(InvalidInput, match=said):
        await words.retrieve(text="alpha", expand=expand)


# --- many, and what is told -----------------------------------------------------------------------


async def test_retrieve_many(five):
    """Each question has its own hits or its own error, as alone."""
    questions = [
        {"text": "alpha", "vector": EAST, "k": 2},
        {"text": "delta"},
        {"vector": EAST, "collapse": "category"},
        {"text": "the"},
        {"k": 0, "text": "alpha"},
        {"txt": "alpha"},
        {"text": "gamma", "expand": lambda text: ["delta"], "rerank": lambda text, hits: hits[::-1]},
    ]
    answers = await five.retrieve_many(questions)
    for question, answer in zip(questions, answers, strict=True):
        if isinstance(answer, Exception):
            assert isinstance(answer, InvalidInput)
            with pytest.raises(InvalidInput):
                await (five.retrieve_many(question) if "txt" in question else five.retrieve(**question))
        else:
            assert stable(answer) == stable(await five.retrieve(**question))
    assert [isinstance(answer, Exception) for answer in answers] == [False] * 3 + [True] * 3 + [False]
    assert await five.retrieve_many([]) == []


async def test_nothing_of_a_text_is_told(make, schema, engine, caplog):
    """The hook and the log at DEBUG name commands, sizes and counts, never words, values or texts."""
    told = []
    shell = make(schema, engine=engine, on_operation=told.append)
    await shell.create_index()
    await shell.upsert([document("a", "confidential", EAST, category="secret-tenant")])
    told.clear()
    with caplog.at_level(logging.DEBUG, "retriever"):
        (hit,) = await shell.retrieve(text="confidential", vector=EAST, filter={"category": "secret-tenant"})
        await shell.retrieve_many([{"text": "confidential"}, {"vector": EAST}])
    assert hit.id == "a"
    one, many = told
    assert (one.name, one.index, one.hits, one.complete, one.error) == ("retrieve", schema.name, 1, True, None)
    assert (many.name, many.hits) == ("retrieve_many", 2)
    assert one.commands >= 3
    for said in (caplog.text, *map(repr, told)):
        assert not any(word in said for word in ("confidenti", "secret"))


@pytest.mark.parametrize("metric", ["COSINE", "L2", "IP"])
async def test_the_distance_is_the_querys(make, name, metric):
    """vector_distance is what query calls score, lower closer, also where rounding leaves less than 0
    (cases B86 and B87)."""
    schema = Schema(name, vector=Vector(dims=DIMS, algorithm="FLAT", metric=metric))
    shell = make(schema)
    await shell.create_index()
    rng = np.random.default_rng(4)
    vectors = [vector / np.linalg.norm(vector) for vector in rng.normal(size=(50, DIMS))]
    await shell.upsert([document(f"{at}", "alpha", vector) for at, vector in enumerate(vectors)])
    for vector in vectors[:10]:
        hits = await shell.retrieve(vector=vector, fusion="linear", k=50)
        assert [(hit.id, hit.vector_distance) for hit in hits] == [
            (hit.id, hit.score) for hit in await shell.query(vector=vector, k=50)
        ]
        assert all(0 <= hit.fused_score <= 1 for hit in hits)


# --- properties: no leak, and exactly what passes -------------------------------------------------

FUSIONS = [
    "rrf",
    "linear",
    "append",
    Append(0),
    Linear(0.0),
    Rrf(k=1),
    lambda vector, text: [*dict(vector + text).items()],
]


def tenant_filters(name):
    """Filters of every shape that none but this tenant's documents pass."""
    mine = Tag("category") == name
    one, two, odd = Numeric("year") == 1, Numeric("year") == 2, Tag("tags", many=True) == "odd"
    return [
        mine,
        {"category": name},
        {"category": {"in": [name]}, "year": {"gte": 0}},
        mine & one,
        mine & (one | two),
        mine & ~one,
        mine & ~(one | odd),
        ~(~mine),
        ~(~mine | one),
        mine & (one | ~odd),
        mine & (one | (two & odd)),
        mine & ~(one & odd),
        (mine & one) | (mine & two),
        (one | ~odd) & (two | odd) & mine,
        ~(Tag("category") != name) & (Numeric("year") != 5),
        mine & ((one & odd) | (two & ~odd) | (mine & one)),
    ]


@LIVE
@given(
    one=short_texts,
    other=short_texts,
    text=st.one_of(texts, texts.map(lambda text: f"alpha {text} beta"), st.sampled_from(INJECTIONS)),
    fusion=st.sampled_from(FUSIONS),
    shape=st.integers(0, len(tenant_filters("x")) - 1),
    channels=st.sampled_from([["vector", "text"], ["text"], ["vector"]]),
    k=st.integers(1, 20),
)
@example("*", "acme", "alpha", "rrf", 0, ["vector", "text"], 20)
@example("a", "A", "alpha) | (beta", "append", 3, ["vector", "text"], 20)
@example("x", "y", "alpha} | @category:{y", "linear", 13, ["text"], 20)
async def test_no_tenant_sees_another(words, schema, one, other, text, fusion, shape, channels, k):
    """Two tenants, each other's nearest neighbours, in all the same words: a filter on one never lets a hit of the
    other through, whatever they are called, whatever is asked, however it is fused (A16, cases B03, B05, B06, B07)."""
    documents = [
        document(
            f"{who}{at}", "alpha beta gamma", (1, at / 10, place / 100, 0),
            category=name, year=at % 3, tags=["odd"] if at % 2 else ["even"],
        )
        for place, (who, name) in enumerate([("mine", one), ("theirs", other)])
        for at in range(6)
    ]  # fmt: skip
    await words.upsert(documents)
    filter = as_filter(tenant_filters(one)[shape], schema.by_name)
    passing = {each.id for each in documents if filter.matches(each)}
    assert one == other or not any(id.startswith("theirs") for id in passing)
    ask = {"text": text, "vector": EAST, "fusion": fusion, "filter": filter, "channels": channels, "k": k}
    terms = Analysis().terms(text)
    (hits,) = await words.retrieve_many([ask])
    if isinstance(hits, InvalidInput):
        assert (channels, terms) == (["text"], [])
        return
    assert hits.complete, hits.reasons
    assert set(ids(hits)) <= passing
    if channels != ["text"] or {"alpha", "beta", "gamma"} & set(terms[:64]):
        assert len(hits) >= min(k, len(passing))


small_leaves = st.one_of(
    st.lists(st.sampled_from("abc*"), min_size=1, max_size=2).map(Tag("category").isin),
    st.sampled_from("abc*").map(lambda value: Tag("category") != value),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=2).map(Tag("tags", many=True).isin),
    st.sampled_from("abc").map(lambda value: Tag("tags", many=True) != value),
    st.integers(0, 5).map(lambda value: Numeric("year") >= value),
    st.integers(0, 5).map(lambda value: Numeric("year") < value),
    st.integers(0, 5).map(lambda value: Numeric("year") != value),
)
small_filters = st.recursive(
    small_leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: reduce(and_, parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: reduce(or_, parts)),
        inner.map(lambda part: ~part),
    ),
    max_leaves=8,
)


@pytest.fixture
async def hundred(words):
    """A hundred documents of a few words each, most with each field."""
    rng = np.random.default_rng(5)

    def maybe(value, name):
        return {name: value} if rng.random() < 0.8 else {}

    documents = [
        document(
            f"{at}",
            " ".join(f"w{word}" for word in rng.integers(0, 40, rng.integers(0, 6))),
            (1, at / 100, 0, 0),
            **maybe("abc*"[rng.integers(4)], "category"),
            **maybe(["abc"[at % 3], "abc"[rng.integers(3)]][: rng.integers(3)], "tags"),
            **maybe(int(rng.integers(6)), "year"),
            **maybe(f"w{rng.integers(40)} w{rng.integers(40)}", "title"),
        )
        for at in range(100)
    ]
    await words.upsert(documents)
    return words, documents


@settings(LIVE, max_examples=100)
@given(filter=st.none() | small_filters, asked=st.lists(st.integers(0, 42), min_size=1, max_size=45, unique=True))
async def test_exactly_what_passes_is_found_by_words(hundred, schema, filter, asked):
    """Any filter beside any words: exactly the documents that hold one of them and pass, with their exact scores, in
    either way (A15, A19, A20)."""
    shell, documents = hundred
    query = " ".join(f"w{word}" for word in asked)
    ask = {"text": query, "k": 100, "depth": 10_000, "filter": filter}
    (hits,) = await shell.retrieve_many([ask])
    if isinstance(hits, InvalidInput):  # more alternatives than the engine answers rightly
        assert "alternatives" in str(hits)
        return
    exact = bm25_of_all(schema, documents, query)
    passing = {each.id for each in documents if filter is None or filter.matches(each)}
    expected = {id: score for id, score in exact.items() if id in passing}
    assert {hit.id: hit.text_score for hit in hits} == pytest.approx(expected, rel=1e-9)
    assert hits.complete, hits.reasons
    assert [hit.ranks["text"] for hit in hits] == list(range(1, len(hits) + 1))


@LIVE
@given(
    text=st.lists(st.integers(0, 42), max_size=5),
    y=st.floats(-1, 1),
    fusion=st.sampled_from(FUSIONS),
    k=st.integers(1, 30),
    filter=st.none() | small_leaves,
)
async def test_what_every_answer_keeps(hundred, text, y, fusion, k, filter):
    """Contributions sum to the score, order follows it, ranks are places, channels those with a rank (A6, A7, A13)."""
    shell, _ = hundred
    words = " ".join(f"w{word}" for word in text)
    hits = await shell.retrieve(text=words, vector=[1, y, 0, 0], fusion=fusion, k=k, filter=filter)
    assert len({hit.id for hit in hits}) == len(hits) <= k + (10 if fusion == "append" else 0)
    assert [hit.fused_score for hit in hits] == sorted((hit.fused_score for hit in hits), reverse=True)
    for hit in hits:
        assert sum(hit.contributions.values()) == hit.fused_score
        assert hit.channels == tuple(hit.ranks) != ()
        assert (hit.vector_distance is not None) is ("vector" in hit.ranks)
        assert (hit.text_score is not None) is ("text" in hit.ranks) is bool(hit.terms)
    for channel, raw in (("vector", lambda hit: hit.vector_distance), ("text", lambda hit: -hit.text_score)):
        placed = sorted((hit.ranks[channel], raw(hit), hit.id) for hit in hits if channel in hit.ranks)
        assert placed == sorted(placed, key=lambda each: each[1:])


def test_the_names_are_awkward():
    """The texts hold every special character of Lucene and RediSearch, and tenants are named by what broke others."""
    assert {*'+-=&|><!(){}[]^"~*?:\\/@$%;,#'} <= set(SPECIALS)
    assert {"*", "a*", "a}|@t:{b", "a\x00bb", "", "\x1f"} <= set(AWKWARD)
