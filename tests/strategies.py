"""Values as Hypothesis draws them: every awkward character, whole schemas, filters in both forms."""

from __future__ import annotations

import string
from functools import reduce
from operator import and_, or_

from hypothesis import strategies as st

from fields.analysis import Analysis
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from retriever.schema import Schema

# One of every kind of character that some engine reads as more than itself, and values that broke others.
PUNCTUATION = "".join(char for char in map(chr, range(0x20, 0x7F)) if not char.isalnum())
CONTROLS = "".join(map(chr, [*range(0x20), 0x7F]))
FOREIGN = (
    "éßİ中😀\u00a0\u200b\u2028\u3000\u0085\ufeff"
    "\ue000\ue020\ue02a\ue07f\ue080\ue0fe\ue0ff\ue1ff\ue200\ue2fe\ue3ff\uf8ff"
)
AWKWARD = [
    "", " ", "  ", " a", "a ", " a ", "a  b", "*", "**", "a*", "*a", "a*b", "\\", "\\\\", "a\\", "\\*", "a\\*", "a\\b",
    "C:\\x", "a\\-b", "a\\ b", "_", "__", "-", "|", "aa|bb", "a,b", "a;b", "openai/gpt-4o", "gemma:7b", "550e-41d4",
    'x" | @v:"secret', "}", "{", "a}|@t:{b", "})|(@t:{", "$vec", "$p", "@f", "@f:{x}", "%", "50% off", "~a", "(a", "a)",
    "[1 2]", "=>[KNN 1 @v $vec]", "and", "or", "not", "the", "AS", "KNN", "ismissing", "inf", "nan", "-inf", "1", "1.0",
    "-1", "2024-01-01", "AbC", "abc", "École", "école", "e\u0301", "Привет", "日本語テキスト", "İ", "ß", "a\x00bb",
    "\x00", "\x00a", "a\x1fb", "\x1f", "\x7f", "a\nb", "\n", "\r\n", "a\tb", "\t", "\u00a0", "\u00a0a", "\u200b",
    "\ufeff", "\u2028", "\ue000", "\ue0ff", "\ue0fe", "\ue0fe\ue2fe", "\ue02a", "a\ue02a", "\ue020", "\ue200", "\ue3ff",
    "\uf8ff", "\U0010ffff", "x" * 1023, "x" * 1024, "é" * 2048, "-" * 4096, "x" * 4096,
]  # fmt: skip

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from(PUNCTUATION + CONTROLS + FOREIGN + "ab0"), max_size=6),
    st.sampled_from(AWKWARD),
)
short_texts = texts.filter(lambda text: len(text) < 100)
numbers = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(-(2**53), 2**53),
    st.sampled_from([0, -0.0, 1, 1.0, 0.1, 1e-05, 5e-324, 1e-300, -1e15, 2.0**53, 123456789.125]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | short_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short_texts, inner, max_size=3),
    max_leaves=6,
)

field_names = st.builds(
    str.__add__,
    st.sampled_from(string.ascii_letters + "_"),
    st.text(st.sampled_from(string.ascii_letters + string.digits + "_"), max_size=8),
).filter(lambda name: not name.startswith(("__", "embedding")) and name.lower() != "as")
weights = st.floats(0.001, 1000)
fields = st.one_of(
    st.builds(Tag, field_names, many=st.booleans()),
    st.builds(Numeric, field_names),
    st.builds(Text, field_names, weight=weights),
    st.builds(Stored, field_names),
)
_caps = st.none() | st.integers(1, 1_000_000_000)
metrics = st.sampled_from(["COSINE", "L2", "IP"])
dims = st.integers(1, 32_768)
vectors = st.one_of(
    st.builds(Vector, dims=dims, metric=metrics, algorithm=st.just("FLAT"), initial_cap=_caps, block_size=_caps),
    st.builds(
        Vector,
        dims=dims,
        metric=metrics,
        m=st.none() | st.integers(1, 512),
        ef_construction=st.none() | st.integers(1, 4_096),
        ef_runtime=st.none() | st.integers(1, 40_000),
        initial_cap=_caps,
    ),
)
schemas = st.builds(
    Schema,
    st.text(st.sampled_from(string.ascii_letters + ":-_{}*é"), min_size=1, max_size=6),
    st.lists(fields, max_size=5, unique_by=lambda field: field.name),
    vectors,
    st.sampled_from([None, Analysis(), Analysis("german", stem=False, stop_words=["der"])]),
    st.sampled_from(["", "p:", "a/b/", "*|", "x#", "é."]),
)

# --- filters over three fields, in both forms ------------------------------------------------------

tag, tags, number = Tag("t"), Tag("m", many=True), Numeric("n")
FILTERABLE = {field.name: field for field in (tag, tags, number)}


def _tag_pairs(field):
    """(operator form, mapping form) of conditions on a TAG field."""
    several = st.lists(short_texts, min_size=1, max_size=3)
    return st.one_of(
        short_texts.map(lambda value: (field == value, {field.name: value})),
        short_texts.map(lambda value: (field == value, {field.name: {"eq": value}})),
        short_texts.map(lambda value: (field != value, {field.name: {"ne": value}})),
        short_texts.map(lambda value: (field.contains(value), {field.name: {"contains": value}})),
        several.map(lambda values: (field.isin(values), {field.name: {"in": values}})),
        several.map(lambda values: (field.isin(values), {field.name: {"any": tuple(values)}})),
        several.map(
            lambda values: (
                reduce(and_, (field.contains(value) for value in dict.fromkeys(values))),
                {field.name: {"all": values}},
            )
        ),
    )


_number_pairs = st.one_of(
    numbers.map(lambda value: (number == value, {"n": value})),
    numbers.map(lambda value: (number != value, {"n": {"ne": value}})),
    numbers.map(lambda value: (number > value, {"n": {"gt": value}})),
    numbers.map(lambda value: (number >= value, {"n": {"gte": value}})),
    numbers.map(lambda value: (number < value, {"n": {"lt": value}})),
    numbers.map(lambda value: (number <= value, {"n": {"lte": value}})),
    st.tuples(numbers, numbers).map(sorted).map(lambda ends: (number.between(*ends), {"n": {"between": ends}})),
    st.lists(numbers, min_size=1, max_size=3).map(lambda values: (number.isin(values), {"n": {"in": values}})),
)
pairs = st.one_of(_tag_pairs(tag), _tag_pairs(tags), _number_pairs)
filters = st.recursive(
    pairs.map(lambda pair: pair[0]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: reduce(and_, parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: reduce(or_, parts)),
        inner.map(lambda part: ~part),
    ),
    max_leaves=5,
)
field_values = st.fixed_dictionaries(
    {}, optional={"t": short_texts, "m": st.lists(short_texts, max_size=3), "n": numbers}
)
