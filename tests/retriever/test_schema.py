"""What a schema declares, how it is stored, what differs, and the FT.CREATE it becomes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given

from fields.analysis import Analysis
from fields.errors import InvalidInput
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from retriever.engines import REDIS_8, REDISEARCH_2, VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2
from retriever.errors import NotSupported
from retriever.replies import index_info
from retriever.schema import Schema, build_ft_create_args
from tests.grammar import check_create, hash_tag
from tests.recorded import OURS, replies
from tests.strategies import schemas

SCHEMA = Schema("docs", [Tag("category"), Numeric("year"), Text("title", weight=2.0), Stored("url")], Vector(dims=384))
# With OURS, the indexes that ``tests/replies/ours-*`` were recorded from.
FLAT = Schema("flat", [Tag("t")], Vector(dims=3, metric="L2", algorithm="FLAT"), None, "flat/")

# --- FT.CREATE ------------------------------------------------------------------------------------


def test_the_whole_command():
    """The documented command, word by word."""
    assert build_ft_create_args(SCHEMA) == [
        *["FT.CREATE", "docs", "ON", "HASH", "PREFIX", 1, "docs:", "STOPWORDS", 0, "SCHEMA"],
        *["category", "TAG", "SEPARATOR", "\x1f", "CASESENSITIVE", "year", "NUMERIC"],
        *["embedding", "VECTOR", "HNSW", 10, "TYPE", "FLOAT32", "DIM", 384, "DISTANCE_METRIC", "COSINE"],
        *["M", 16, "EF_CONSTRUCTION", 200],
        *["__terms", "TEXT", "NOSTEM", "__terms_title", "TEXT", "NOSTEM"],
    ]


def test_a_flat_index_without_text():
    """analysis=None indexes no text; the prefix and FLAT's own attributes are as declared."""
    schema = Schema("d", [Text("title")], Vector("v", 3, "IP", "FLAT", block_size=10), None, "x/")
    assert build_ft_create_args(schema, skip_initial_scan=True) == [
        *["FT.CREATE", "d", "ON", "HASH", "PREFIX", 1, "x/", "SKIPINITIALSCAN", "STOPWORDS", 0, "SCHEMA"],
        *["v", "VECTOR", "FLAT", 8, "TYPE", "FLOAT32", "DIM", 3, "DISTANCE_METRIC", "IP", "BLOCK_SIZE", 10],
    ]


@given(schemas)
def test_every_schema_stays_within_the_grammar(schema):
    """Without an engine, and for Valkey Search, the words are those that both engines take."""
    assume(hash_tag(schema.name) == hash_tag(schema.prefix))  # see test_what_an_engine_cannot_do
    kinds = {
        **dict.fromkeys(schema.text_attributes, "TEXT"),
        **{field.name: field.kind for field in schema.fields if isinstance(field, (Tag, Numeric))},
        schema.vector.name: "VECTOR",
    }
    for engine in (None, VALKEY_SEARCH_1_2):
        for skip in (False, True):
            assert check_create(build_ft_create_args(schema, engine=engine, skip_initial_scan=skip)) == kinds
    for engine in (REDISEARCH_2, REDIS_8):
        assert check_create(build_ft_create_args(schema, engine=engine), weights=True) == kinds


def test_an_engine_without_text_gets_none():
    """What an engine can do without is left out: Valkey Search 1.0 has no TEXT, 1.2 no WEIGHT."""
    assert not {"TEXT", "STOPWORDS"} & set(build_ft_create_args(SCHEMA, engine=VALKEY_SEARCH_1_0))
    assert "WEIGHT" not in build_ft_create_args(SCHEMA, engine=VALKEY_SEARCH_1_2)
    words = build_ft_create_args(SCHEMA, engine=REDISEARCH_2)
    assert words[words.index("WEIGHT") + 1] == "2.0"


def test_unknown_dimensions_have_no_command():
    """An index needs its dimensions."""
    with pytest.raises(InvalidInput, match="dimensions are not known"):
        build_ft_create_args(Schema("docs"))


def test_more_dimensions_than_an_engine_takes():
    """What an engine cannot do is refused before it is asked, case B83."""
    with pytest.raises(NotSupported, match="384 dimensions"):
        build_ft_create_args(SCHEMA, engine=replace(VALKEY_SEARCH_1_2, max_dims=100))


@pytest.mark.parametrize(
    ("schema", "skip", "reasons"),
    [
        (Schema("d", vector=Vector(dims=32_768)), False, ["32768 dimensions", None, None]),
        (Schema("d", vector=Vector(dims=3, ef_runtime=4_097)), False, ["4097 vectors in view", None, None]),
        (Schema("d", [Numeric(f"n{at}") for at in range(49)], Vector(dims=3), None), False, [None, None, None]),
        (Schema("d", [Numeric(f"n{at}") for at in range(50)], Vector(dims=3), None), False, ["51 ind", None, None]),
        (Schema("d", [Numeric(f"n{at}") for at in range(999)], Vector(dims=3)), False, ["1000 ", "1001 ", None]),
        (Schema("d", [Stored(f"s{at}") for at in range(2_000)], Vector(dims=3)), False, [None, None, None]),
        (Schema("d", [Text(f"t{at}") for at in range(64)], Vector(dims=3)), False, [None, "65 analysed", None]),
        (Schema("d", [Text(f"t{at}") for at in range(128)], Vector(dims=3)), False, [None, "129 ana", "129 ana"]),
        (Schema("d", vector=Vector(dims=3), prefix="{d}:"), False, ["no hash tag", "same in both", None]),
        (Schema("{d}", vector=Vector(dims=3)), False, ["no hash tag", None, None]),
        (Schema("{}{d}", vector=Vector(dims=3)), False, [None, None, None]),
        (Schema("d", vector=Vector(dims=3)), True, ["always indexes", None, None]),
    ],
    ids=lambda part: repr(part)[:60],
)
def test_what_an_engine_cannot_do(schema, skip, reasons):
    """What Valkey Search 1.0 or 1.2 or RediSearch would refuse is refused before, and named, case B83."""
    for engine, reason in zip((VALKEY_SEARCH_1_0, VALKEY_SEARCH_1_2, REDISEARCH_2), reasons, strict=True):
        if reason is None:
            build_ft_create_args(schema, engine=engine, skip_initial_scan=skip)
        else:
            with pytest.raises(NotSupported, match=reason):
                build_ft_create_args(schema, engine=engine, skip_initial_scan=skip)


@pytest.mark.parametrize("name", ["weight", "NOSTEM", "phonetic"])
def test_a_field_named_like_an_option_of_text(name):
    """No field stands behind a TEXT attribute, which would read its name as an option."""
    for engine in (None, REDISEARCH_2):
        words = build_ft_create_args(Schema("d", [Text("title"), Tag(name)], Vector(dims=3)), engine=engine)
        assert check_create(words, weights=True)[name] == "TAG"


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": ""}, "index name"),
        ({"name": "a b"}, "index name"),
        ({"name": "docs@2"}, "index name"),
        ({"name": None}, "index name"),
        ({"prefix": "mem"}, "must end in a separator"),
        ({"prefix": 5}, "prefix 5"),
        ({"fields": [Tag("a"), Numeric("a")]}, "declared twice"),
        ({"fields": [Tag("embedding")]}, "declared twice"),
        ({"fields": [Tag("embedding_2")]}, "reserved"),
        ({"fields": [Tag("v_10")], "vector": Vector("v")}, "reserved"),
        ({"fields": ["a"]}, "Text, Tag, Numeric or Stored expected"),
        ({"fields": [Tag]}, "Text, Tag, Numeric or Stored expected"),
        ({"fields": [Vector("w")]}, "Text, Tag, Numeric or Stored expected"),
        ({"fields": [None]}, "Text, Tag, Numeric or Stored expected"),
        ({"fields": "abc"}, "Text, Tag, Numeric or Stored expected"),
        ({"fields": None}, "a list of fields expected"),
        ({"fields": Tag("a")}, "a list of fields expected"),
        ({"vector": "embedding"}, "a Vector expected"),
        ({"vector": None}, "a Vector expected"),
        ({"analysis": "english"}, "an Analysis or None expected"),
        ({"analysis": True}, "an Analysis or None expected"),
    ],
    ids=lambda part: repr(part)[:40],
)
def test_schemas_that_are_refused(arguments, reason):
    """A schema that could not be stored or asked is refused when it is made, cases B08, B60 and B77."""
    with pytest.raises(InvalidInput, match=reason):
        Schema(**{"name": "docs", **arguments})


@pytest.mark.parametrize("name", ["embedding_x", "embedding_", "embeddings", "embedding_2b", "payload", "id", "text"])
def test_names_that_only_look_reserved(name):
    """Only <vector>_<digits> and names with two leading underscores are ours, case B77."""
    assert Schema("docs", [Tag(name)]).by_name[name].name == name


def test_what_follows_from_a_name():
    """The prefix is the name and a colon; the metadata lie where no id can be; fields may come from a generator."""
    schema = Schema("docs", (Tag(name) for name in "ab"))
    assert (schema.prefix, schema.metadata_key) == ("docs:", "docs")
    assert [field.name for field in schema.fields] == ["a", "b"]
    assert Schema("docs", prefix="x/").metadata_key == "x"


# --- equality and storage -------------------------------------------------------------------------


@given(schemas)
def test_a_schema_comes_back_from_its_json(schema):
    """from_json undoes to_json; nothing differs from what was stored."""
    stored = schema.to_json()
    back = Schema.from_json(schema.name, stored)
    assert back == schema
    assert hash(back) == hash(schema)
    assert back.to_json() == stored
    assert schema.differences(stored) == []


def test_equal_schemas_declare_the_same():
    """Equality covers everything that was declared, the name included, and agrees with the hash."""
    assert Schema("docs", [Tag("a")]) == Schema("docs", [Tag("a")], prefix="docs:")
    for other in (
        Schema("docs", [Tag("b")]),
        Schema("docs", [Tag("a", many=True)]),
        Schema("docs", [Tag("a")], Vector(dims=3)),
        Schema("docs", [Tag("a")], analysis=None),
        Schema("docs", [Tag("a")], prefix="x:"),
        Schema("other", [Tag("a")], prefix="docs:"),
        "docs",
    ):
        assert Schema("docs", [Tag("a")]) != other


def test_dimensions_are_learned_into_a_copy():
    """A schema does not change; with_dims answers one that knows its length."""
    schema = Schema("docs", [Tag("a")], prefix="x:")
    assert schema.with_dims(3).vector.dims == 3
    assert schema.vector.dims is None
    assert schema.with_dims(3).prefix == "x:"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Schema("docs", SCHEMA.fields, Vector(dims=768)), ["vector: dims 384 declared, 768 stored"]),
        (
            Schema("docs", SCHEMA.fields, Vector(dims=384, metric="L2")),
            ["vector: metric 'COSINE' declared, 'L2' stored"],
        ),
        (Schema("docs", SCHEMA.fields, Vector(dims=384, m=32)), ["vector: m 16 declared, 32 stored"]),
        (Schema("docs", SCHEMA.fields, Vector("v", 384)), ["vector: name 'embedding' declared, 'v' stored"]),
        (
            Schema("docs", SCHEMA.fields[1:], Vector(dims=384)),
            ["field 'category': TAG declared, not in the index"],
        ),
        (
            Schema("docs", [*SCHEMA.fields, Tag("more")], Vector(dims=384)),
            ["field 'more': TAG in the index, not declared"],
        ),
        (
            Schema("docs", [Tag("category", many=True), *SCHEMA.fields[1:]], Vector(dims=384)),
            ["field 'category': many False declared, True stored"],
        ),
        (
            Schema("docs", [Numeric("category"), *SCHEMA.fields[1:]], Vector(dims=384)),
            ["field 'category': kind 'TAG' declared, 'NUMERIC' stored"],
        ),
        (Schema("docs", SCHEMA.fields, Vector(dims=384), prefix="x:"), ["prefix: 'docs:' declared, 'x:' stored"]),
        (Schema("docs", SCHEMA.fields, Vector(dims=384), None), ["analysis: one declared, the index differs"]),
        (
            Schema("docs", SCHEMA.fields, Vector(dims=384), Analysis(stem=False)),
            ["analysis: stem: False stored, True here"],
        ),
        (Schema("docs", [*SCHEMA.fields[:2], Text("title"), Stored("u")], Vector(dims=384)), []),
        (Schema("docs", SCHEMA.fields, Vector(dims=384, ef_runtime=500, initial_cap=10)), []),
        (Schema("docs", SCHEMA.fields, Vector()), []),
    ],
    ids=lambda part: "; ".join(part) if isinstance(part, list) else "",
)
def test_what_differs_from_what_is_stored(other, expected):
    """A stored declaration that decides other answers differs, in words that name both, cases B50 and B66."""
    assert SCHEMA.differences(other.to_json()) == expected


def test_a_stored_schema_that_cannot_be_read():
    """What is no stored schema is an error that names the index."""
    good = json.loads(SCHEMA.to_json())
    for broken in (
        "",
        "null",
        "[]",
        "{}",
        json.dumps({**good, "fields": [{"kind": "GEO", "name": "a"}]}),
        json.dumps({**good, "fields": [{"name": "a"}]}),
        json.dumps({**good, "fields": [{"kind": "TAG", "name": "a", "size": 1}]}),
        json.dumps({**good, "vector": None}),
        json.dumps({**good, "vector": {**good["vector"], "metric": "DOT"}}),
        json.dumps({**good, "analysis": {"language": "klingon", "stem": True, "stop_words": []}}),
        json.dumps({**good, "prefix": "docs"}),
    ):
        with pytest.raises(InvalidInput, match="'docs'"):
            Schema.from_json("docs", broken)


# --- generations ----------------------------------------------------------------------------------


def test_another_generation():
    """name@2 over the same prefix, with a vector of its own beside the same fields; each has a place for metadata."""
    schema = replace(SCHEMA, prefix="d/")
    second, tenth = schema.of_generation(2), schema.of_generation(10)
    assert (second.name, second.prefix, second.vector.name) == ("docs@2", "d/", "embedding_2")
    assert (tenth.name, tenth.prefix, tenth.vector.name) == ("docs@10", "d/", "embedding_10")
    assert [each.metadata_key for each in (schema, second, tenth)] == ["d", "d@2", "d@10"]
    assert second.fields == schema.fields
    assert second.analysis == schema.analysis
    assert (second.vector.dims, second.vector.metric, second.vector.algorithm) == (384, "COSINE", "HNSW")
    assert second != schema
    assert second.differences(second.to_json()) == []
    assert second.differences(schema.to_json()) == ["vector: name 'embedding_2' declared, 'embedding' stored"]


def test_the_dimensions_of_a_generation():
    """They are learned after it was chosen as well as before."""
    late = Schema("docs").of_generation(2).with_dims(8)
    assert late == Schema("docs").with_dims(8).of_generation(2)
    assert (late.generation, late.metadata_key, late.vector.dims) == (2, "docs@2", 8)


@pytest.mark.parametrize("generation", [1, 0, -1])
def test_there_is_no_generation_before_the_second(generation):
    """The first is the schema itself."""
    with pytest.raises(InvalidInput, match=f"generation {generation} of generation 1"):
        SCHEMA.of_generation(generation)


def test_a_generation_has_none_of_its_own():
    """Every generation is one of the first: docs@2@3 would be an index that nobody looks for."""
    with pytest.raises(InvalidInput, match="generation 3 of generation 2"):
        SCHEMA.of_generation(2).of_generation(3)


@given(schemas)
def test_a_generation_stays_within_the_grammar_and_is_stored(schema):
    """Its FT.CREATE is one that both engines take, and from_json undoes its to_json."""
    assume(hash_tag(schema.name) == hash_tag(schema.prefix))
    second = schema.of_generation(2)
    kinds = check_create(build_ft_create_args(second, engine=VALKEY_SEARCH_1_2))
    assert kinds[f"{schema.vector.name}_2"] == "VECTOR"
    assert schema.vector.name not in kinds
    back = Schema.from_json(second.name, second.to_json())
    assert (back, back.generation, back.metadata_key) == (second, 2, second.metadata_key)


@pytest.mark.parametrize("name", ["docs@", "docs@x", "docs@1", "docs@0", "docs@-1", "docs@2@3"])
def test_a_name_of_no_generation(name):
    """What stands behind the @ is a number from 2 on."""
    with pytest.raises(InvalidInput, match="cannot be read"):
        Schema.from_json(name, SCHEMA.to_json())


# --- against a live index -------------------------------------------------------------------------


@pytest.mark.parametrize("each", replies("info of our HNSW index", ours=True), ids=str)
def test_a_live_index_is_the_one_that_was_declared(each):
    """FT.INFO of an index that we made shows no difference, with or without known dimensions."""
    assert OURS.live_differences(index_info(each.reply)) == []
    assert replace_vector(OURS, Vector()).live_differences(index_info(each.reply)) == []


@pytest.mark.parametrize("each", replies("info of our FLAT index", ours=True), ids=str)
def test_a_live_flat_index_is_the_one_that_was_declared(each):
    """A FLAT index without text shows no difference either."""
    assert FLAT.live_differences(index_info(each.reply)) == []


def replace_vector(schema, vector):
    return Schema(schema.name, schema.fields, vector, schema.analysis, schema.prefix)


@pytest.mark.parametrize("each", replies("info of our HNSW index", ours=True), ids=str)
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (replace_vector(OURS, Vector(dims=5)), "field 'embedding': dims 5 declared, 4 live"),
        (replace_vector(OURS, Vector(dims=4, metric="IP")), "field 'embedding': metric 'IP' declared, 'COSINE' live"),
        (
            replace_vector(OURS, Vector(dims=4, algorithm="FLAT")),
            "field 'embedding': algorithm 'FLAT' declared, 'HNSW' live",
        ),
        (replace_vector(OURS, Vector(dims=4, m=8)), "field 'embedding': m 8 declared, 16 live"),
        (replace_vector(OURS, Vector("v", 4)), "field 'v': VECTOR declared, not in the live index"),
        (Schema("ours", OURS.fields[1:], OURS.vector), "field 'category': TAG in the live index, not declared"),
        (Schema("ours", [*OURS.fields, Tag("x")], OURS.vector), "field 'x': TAG declared, not in the live index"),
        (
            Schema("ours", [Numeric("category"), *OURS.fields[1:]], OURS.vector),
            "field 'category': type 'NUMERIC' declared, 'TAG' live",
        ),
        (Schema("ours", OURS.fields, OURS.vector, prefix="x:"), "prefix: 'x:' declared, live 'ours:'"),
        (
            Schema("ours", OURS.fields, OURS.vector, None),
            "field '__terms': TEXT in the live index, not declared",
        ),
        (
            Schema("ours", [*OURS.fields, Text("more")], OURS.vector),
            "field '__terms_more': TEXT declared, not in the live index",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_differs_from_a_live_index(each, schema, expected):
    """A live index of another shape differs, in words that name both, cases B50 and B66."""
    assert expected in schema.live_differences(index_info(each.reply))


@pytest.mark.parametrize("each", replies("info, empty"), ids=str)
def test_a_tag_with_another_separator_differs(each):
    """A TAG that splits at | or folds case cannot hold every string, case B34."""
    schema = Schema("r", [Tag("g"), Numeric("n")], Vector("v", 4))
    differences = schema.live_differences(index_info(each.reply))
    assert "field 'g': the live TAG is not CASESENSITIVE with separator 0x1f" in differences
