"""Filters: the encoding of tags, the two forms, what they mean, how they are spelled, what is refused."""

from __future__ import annotations

import re
from functools import reduce
from math import inf, nan
from operator import and_, or_

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fields.errors import InvalidInput
from fields.filters import (
    MAX_DEPTH,
    Filter,
    as_filter,
    check_tag,
    decode_tag,
    encode_tag,
    filter_alternatives,
    filter_text,
    format_number,
    number_range,
)
from fields.kinds import Numeric, Stored, Tag, Text, Vector
from retriever.documents import Document
from tests import grammar
from tests.fakes import shown
from tests.strategies import AWKWARD, FILTERABLE, field_values, filters, pairs, texts

FIELDS = {
    field.name: field
    for field in (Tag("t"), Tag("m", many=True), Numeric("n"), Text("title"), Stored("url"), Vector(dims=3))
}

# --- the encoding ---------------------------------------------------------------------------------


@given(texts)
@example("")
@example("\ue0fe\ue2fe")
def test_encoding_can_be_undone(value):
    """decode(encode(value)) is the value, whatever its characters."""
    assert decode_tag(encode_tag(value)) == value


@given(texts)
def test_an_encoded_value_is_exact_on_every_engine(value):
    """No encoded value is empty, ends in *, has an outer blank or holds a control character, cases B07, B35."""
    encoded = encode_tag(value)
    assert encoded
    assert not encoded.endswith("*")
    assert encoded == encoded.strip(" ")
    assert not re.search(r"[\x00-\x1f\x7f]", encoded)


@given(texts, texts)
def test_two_values_are_never_stored_as_one(one, other):
    """The encoding is injective."""
    assert (encode_tag(one) == encode_tag(other)) is (one == other)


def test_awkward_values_are_all_different_when_stored():
    """Each awkward value has a stored form of its own, case and normal forms among them (cases B02, B04, B33)."""
    values = list(dict.fromkeys(AWKWARD))
    assert len(values) >= 96
    assert len({encode_tag(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("db", "db"),
        ("a b", "a b"),
        ("a*b", "a*b"),
        ("C:\\x", "C:\\x"),
        ("École", "École"),
        ("", "\ue0ff"),
        (" ", "\ue020"),
        (" a ", "\ue020a\ue020"),
        ("a*", "a\ue02a"),
        ("*", "\ue02a"),
        ("**", "*\ue02a"),
        ("a\nb", "a\ue00ab"),
        ("a\x1fb", "a\ue01fb"),
        ("\x00", "\ue000"),
        ("\x7f", "\ue07f"),
        ("\ue000", "\ue0fe\ue200"),
        ("\ue0fe", "\ue0fe\ue2fe"),
        ("\ue1ff", "\ue0fe\ue3ff"),
        ("\ue200", "\ue200"),
    ],
    ids=repr,
)
def test_the_stored_form_of_a_tag(value, stored):
    """The encoding touches what no engine can hold and nothing else; it is part of the storage layout."""
    assert encode_tag(value) == stored


def test_a_tag_is_measured_as_it_is_stored():
    """4,096 encoded bytes fit, one more does not, case B35."""
    assert len(check_tag("x" * 4096, "here")) == 4096
    assert len(check_tag("x" * 4093 + "*", "here")) == 4096
    for value in ("x" * 4097, "x" * 4094 + "*"):
        with pytest.raises(InvalidInput, match="here: 4097 bytes"):
            check_tag(value, "here")


# --- the two forms --------------------------------------------------------------------------------


@given(pairs)
def test_both_forms_are_one_filter(pair):
    """A mapping and its operators compile to the same Filter."""
    by_operators, by_mapping = pair
    assert as_filter(by_mapping, FILTERABLE) == by_operators == as_filter(by_operators, FILTERABLE)


@given(st.lists(pairs, min_size=1, max_size=3, unique_by=lambda pair: next(iter(pair[1]))))
def test_entries_of_a_mapping_are_anded(several):
    """A mapping of several fields is their conjunction, in its order."""
    mapping = {name: value for _, each in several for name, value in each.items()}
    assert as_filter(mapping, FILTERABLE) == reduce(and_, (each for each, _ in several))


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({"t": "db", "n": {"gte": 2020}}, (Tag("t") == "db") & (Numeric("n") >= 2020)),
        ({"n": {"gt": 1, "lte": 5}}, (Numeric("n") > 1) & (Numeric("n") <= 5)),
        ({"m": {"any": ["a", "b"]}}, Tag("m").isin(["a", "b"])),
        ({"m": {"all": ["a", "b"]}}, Tag("m").contains("a") & Tag("m").contains("b")),
        ({"m": {"all": iter("ab")}}, Tag("m").contains("a") & Tag("m").contains("b")),
        ({"m": {"in": {"a"}}}, Tag("m") == "a"),
        ({"m": "a"}, Tag("m").contains("a")),
        ({"n": 0}, Numeric("n").between(0, 0)),
        ({"n": np.int64(3)}, Numeric("n") == 3),
        ({"n": {"between": (1, 2)}}, Numeric("n").between(1, 2)),
        ({"t": np.str_("a")}, Tag("t") == "a"),
        ({"t": ""}, Tag("t") == ""),
    ],
    ids=shown,
)
def test_mappings_that_are_read(mapping, expected):
    """A scalar is equality, also 0 and the empty string, case B27; operators are read, not spelled out, case B30."""
    assert as_filter(mapping, FIELDS) == expected


@pytest.mark.parametrize("spec", [None, {}], ids=repr)
def test_everything(spec):
    """None and {} are the only ways to say everything, case B28."""
    assert as_filter(spec, FIELDS) is None


def test_a_comparison_the_other_way_round_is_the_same():
    """``2020 <= field`` is ``field >= 2020``."""
    year = Numeric("n")
    assert (2020 <= year) == (year >= 2020)
    assert (2020 > year) == (year < 2020)
    assert ("db" == Tag("t")) == (Tag("t") == "db")


# --- what it means --------------------------------------------------------------------------------

DOCUMENT = {"t": "db", "m": ["a", "b"], "n": 5}


@pytest.mark.parametrize(
    ("condition", "with_field", "without"),
    [
        (Tag("t") == "db", True, False),
        (Tag("t") == "DB", False, False),
        (Tag("t") == "d", False, False),
        (Tag("t") != "db", False, True),
        (Tag("t") != "x", True, True),
        (Tag("t").isin(["x", "db"]), True, False),
        (~Tag("t").isin(["x", "y"]), True, True),
        (Tag("m") == "a", True, False),
        (Tag("m") != "a", False, True),
        (Tag("m").contains("b"), True, False),
        (Tag("m").isin(["b", "z"]), True, False),
        (Numeric("n") == 5, True, False),
        (Numeric("n") == 5.0, True, False),
        (Numeric("n") != 5, False, True),
        (Numeric("n") > 5, False, False),
        (Numeric("n") >= 5, True, False),
        (Numeric("n") < 5, False, False),
        (Numeric("n") <= 5, True, False),
        (Numeric("n").between(5, 5), True, False),
        (Numeric("n").between(0, 4), False, False),
        (Numeric("n").isin([1, 5]), True, False),
        (~(Numeric("n") > 5), True, True),
    ],
    ids=repr,
)
def test_what_passes(condition, with_field, without):
    """A condition holds for a document that has the field; negation includes those that lack it, case B37."""
    assert condition.matches(DOCUMENT) is with_field
    assert condition.matches({}) is without
    assert condition.matches(Document("id", "", DOCUMENT)) is with_field


@given(filters, field_values)
def test_a_negation_is_the_opposite(condition, document):
    """De Morgan at construction changes nothing: ~f holds exactly where f does not."""
    assert (~condition).matches(document) is not condition.matches(document)


@given(filters)
def test_a_double_negation_is_the_filter(condition):
    """~~f is f, so no engine ever sees a negated negation, which RediSearch answers wrongly."""
    assert ~~condition == condition


@given(filters, filters, field_values)
def test_groups_are_all_and_any(one, other, document):
    """& is both and | is either, however the parts are built."""
    held = one.matches(document), other.matches(document)
    assert (one & other).matches(document) is all(held)
    assert (one | other).matches(document) is any(held)


@given(filters, filters, filters)
def test_groups_do_not_depend_on_parentheses(one, two, three):
    """a & (b & c) is (a & b) & c, and so for |."""
    assert one & (two & three) == (one & two) & three
    assert one | (two | three) == (one | two) | three


def test_a_filter_has_no_truth_value():
    """``and``, ``not`` and a forgotten parenthesis are errors, not other filters, case B05."""
    tag, year = Tag("t"), Numeric("n")
    for mistake in (
        lambda: tag == "a" and year == 2,
        lambda: not tag == "a",  # noqa: SIM201
        lambda: 1 < year < 3,
        lambda: bool(tag == "a"),
    ):
        with pytest.raises(TypeError, match="parentheses"):
            mistake()
    with pytest.raises(TypeError):
        tag == "x" & year == 2  # noqa: B015 - the missing parentheses are the subject


# --- how it is spelled ----------------------------------------------------------------------------


def stored(values):
    """Field values as an engine holds them."""
    held = {}
    for name, value in values.items():
        held[name] = value if name == "n" else [encode_tag(each) for each in ([value] if name == "t" else value)]
    return held


@given(filters, field_values)
def test_the_spelling_means_the_filter(condition, document):
    """Read back by an independent parser, a filter's text passes the very documents that the filter does, case B06."""
    tree = grammar.read_query(filter_text(condition)).filter
    assert grammar.holds(tree, stored(document)) is condition.matches(document)


@given(texts.filter(lambda text: len(text) < 2000), texts.filter(lambda text: len(text) < 100))
def test_a_value_stays_a_value(one, other):
    """No character of a value closes its clause, widens it or adds another, cases B01 to B05."""
    condition = (Tag("t") == one) & ~Tag("m").isin([other, "x"])
    (tag, negated) = grammar.read_query(filter_text(condition)).filter.parts
    assert tag == grammar.Tags("t", (encode_tag(one),))
    assert negated == grammar.Not(grammar.Tags("m", tuple(dict.fromkeys([encode_tag(other), "x"]))))


@given(texts)
def test_every_special_character_is_escaped(value):
    """In a value nothing but letters, digits and non-ASCII stands without a backslash; non-ASCII never has one."""
    text = filter_text(Tag("t") == value)
    inner = text.removeprefix("(@t:{").removesuffix("})")
    plain = re.sub(r"\\[ -/:-@\[-`{-~]", "", inner)
    assert not re.search(r"[\x00-\x7f]", re.sub(r"[A-Za-z0-9]", "", plain))


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Tag("t") == "db", "(@t:{db})"),
        (Tag("t") == "a_b c", r"(@t:{a\_b\ c})"),
        (Tag("t") == "550e-41d4", r"(@t:{550e\-41d4})"),
        (Tag("t") == "openai/gpt-4o", r"(@t:{openai\/gpt\-4o})"),
        (Tag("t") == "aa|bb", r"(@t:{aa\|bb})"),
        (Tag("t") == "C:\\x", r"(@t:{C\:\\x})"),
        (Tag("t") == "é中", "(@t:{é中})"),
        (Tag("t") == "", "(@t:{\ue0ff})"),
        (Tag("t") == "a*", "(@t:{a\ue02a})"),
        (Tag("t").isin(["a", "b", "a"]), "(@t:{a|b})"),
        (Tag("t") != "a", "(-@t:{a})"),
        (Numeric("n") == 5, "(@n:[5 5])"),
        (Numeric("n") == 0.1, "(@n:[0.1 0.1])"),
        (Numeric("n") > 5, "(@n:[(5 inf])"),
        (Numeric("n") <= -2.5, "(@n:[-inf -2.5])"),
        (Numeric("n").between(-1, 1), "(@n:[-1 1])"),
        (Numeric("n").isin([1, 2]), "(@n:[1 1]|@n:[2 2])"),
        (Numeric("n") != 1, "(-@n:[1 1])"),
        (~Numeric("n").isin([1, 2]), "(-@n:[1 1] -@n:[2 2])"),
        ((Tag("t") == "a") & (Numeric("n") > 1), "(@t:{a} @n:[(1 inf])"),
        (((Tag("t") == "a") | (Tag("t") == "b")) & (Numeric("n") < 1), "((@t:{a}|@t:{b}) @n:[-inf (1])"),
        (~((Tag("t") == "a") & (Numeric("n") < 1)), "(-@t:{a}|-@n:[-inf (1])"),
    ],
    ids=str,
)
def test_the_text_of_a_filter(condition, text):
    """A filter's text is one parenthesised group, one spelling for both engines, cases B01 to B09."""
    assert filter_text(condition) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (7, "7"),
        (7.0, "7.0"),
        (1e-05, "0.00001"),
        (-1.5e-07, "-0.00000015"),
        (1e16, "10000000000000000"),
        (0.30000000000000004, "0.30000000000000004"),
        (2**53, "9007199254740992"),
        (inf, "inf"),
        (-inf, "-inf"),
    ],
)
def test_the_text_of_a_number(value, text):
    """A number is spelled in full, never with an exponent."""
    assert format_number(value) == text


@given(st.floats(-(2**53), 2**53))
def test_the_text_of_a_number_is_the_number(value):
    """No digit is lost in a number's spelling."""
    assert float(format_number(value)) == value


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"t": None}, "None is no value (a lost id must not widen a search)"),
        ({"n": None}, "a number expected"),
        ({"t": {"eq": None}}, "None is no value (a lost id must not widen a search)"),
        ({"t": {"in": [None]}}, "None is no value (a lost id must not widen a search)"),
        ({"t": {"ne": None}}, "None is no value (a lost id must not widen a search)"),
        ({"n": {"gte": None}}, "None is no bound"),
        ({"n": {"between": [None, 5]}}, "None is no bound"),
        ({"n": {"between": [5]}}, "between takes"),
        ({"n": {"between": 5}}, "between takes"),
        ({"n": {"between": [2, 1]}}, "reversed"),
        ({"t": []}, "say how a list is meant"),
        ({"t": ["a"]}, "say how a list is meant"),
        ({"n": (1, 2)}, "say how a list is meant"),
        ({"t": {"in": []}}, "empty list"),
        ({"m": {"any": []}}, "empty list"),
        ({"m": {"all": []}}, "empty list"),
        ({"n": {"in": []}}, "empty list"),
        ({"t": {"in": "abc"}}, "a list of strings"),
        ({"m": {"all": "abc"}}, "a list of strings"),
        ({"m": {"all": {"a": 1}}}, "a list of strings"),
        ({"n": {"in": "12"}}, "a list of numbers"),
        ({"n": {"in": 5}}, "a list of numbers"),
        ({"t": {}}, "no operator"),
        ({"typo": "x"}, "unknown field 'typo'; those are t"),
        ({5: "x"}, "unknown field 5"),
        ({"OR": [{"t": "a"}]}, "unknown field"),
        ({"title": "x"}, "a TEXT field cannot be filtered"),
        ({"url": "x"}, "a STORED field cannot be filtered"),
        ({"embedding": "x"}, "a VECTOR field cannot be filtered"),
        ({"t": {"gte": "a"}}, "unknown operator 'gte' for a TAG"),
        ({"t": {"$eq": "a"}}, "unknown operator"),
        ({"n": {"contains": 5}}, "unknown operator 'contains' for a NUMERIC"),
        ({"n": {"all": [5]}}, "unknown operator"),
        ({"t": 5}, "a TAG holds strings"),
        ({"t": True}, "a TAG holds strings"),
        ({"t": b"a"}, "a TAG holds strings"),
        ({"t": {"in": [["a"]]}}, "a TAG holds strings"),
        ({"t": "x" * 4097}, "4097 bytes"),
        ({"t": "\ud800"}, "lone surrogate"),
        ({"n": "5"}, "a number expected"),
        ({"n": True}, "a number expected"),
        ({"n": np.True_}, "a number expected"),
        ({"n": nan}, "not finite"),
        ({"n": {"gt": inf}}, "not finite"),
        ({"n": 2**53 + 1}, "beyond"),
        ({"n": 10**400}, "beyond"),
        ({"n": {"lt": -(10**400)}}, "beyond"),
        ("t == 'a'", "a Filter or a mapping"),
        ([("t", "a")], "a Filter or a mapping"),
        (Tag("t"), "a Filter or a mapping"),
        (True, "a Filter or a mapping"),
        (Tag("typo") == "x", "unknown field"),
        (~(Tag("typo") == "x"), "unknown field"),
        ((Tag("t") == "a") | (Tag("typo") == "x"), "unknown field"),
        (Tag("n") == "x", "the field is NUMERIC, the filter is for TAG"),
        (Numeric("t") == 1, "the field is TAG, the filter is for NUMERIC"),
        (Tag("title") == "x", "a TEXT field cannot be filtered"),
        (Tag("embedding") == "x", "a VECTOR field cannot be filtered"),
    ],
    ids=lambda part: repr(part)[:40],
)
def test_specifications_that_are_refused(spec, reason):
    """What cannot be meant is an error, never everything and never nothing, cases B28 to B30."""
    with pytest.raises(InvalidInput, match=re.escape(reason)):
        as_filter(spec, FIELDS)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: Tag("t") == None,  # noqa: E711
        lambda: Tag("t") != None,  # noqa: E711
        lambda: Tag("t") == 5,
        lambda: Tag("t") == ["a"],
        lambda: Tag("t").isin("abc"),
        lambda: Tag("t").isin(None),
        lambda: Tag("t").isin(5),
        lambda: Tag("t").isin([]),
        lambda: Tag("t").isin(iter(())),
        lambda: Tag("t").contains(["a"]),
        lambda: Numeric("n") == "5",
        lambda: Numeric("n") == None,  # noqa: E711
        lambda: Numeric("n") != True,  # noqa: E712
        lambda: Numeric("n") > None,
        lambda: Numeric("n") >= nan,
        lambda: Numeric("n") < inf,
        lambda: Numeric("n") <= "x",
        lambda: Numeric("n") == 10**400,
        lambda: Numeric("n").between(2, 1),
        lambda: Numeric("n").between(None, 1),
        lambda: Numeric("n").isin([]),
        lambda: Numeric("n").isin(5),
        lambda: number_range("n", 2, 1),
        lambda: number_range("n", 1, 1, low_open=True),
        lambda: number_range("n", 1, 1.0, high_open=True),
        lambda: (Tag("t") == "a") & "b",
        lambda: (Tag("t") == "a") | None,
        lambda: (Tag("t") == "a") & {"n": 1},
    ],
)
def test_operators_that_are_refused(mistake):
    """An operator refuses a value that cannot be meant, where it is written, cases B28 to B30."""
    with pytest.raises(InvalidInput, match=r"filter on|combines filters"):
        mistake()


def test_a_filter_may_be_wide_but_not_deep():
    """Thousands of parts fit in one group; nesting stops long before RediSearch's parser does."""
    wide = reduce(or_, (Tag("t") == str(at) for at in range(2_000)))
    assert wide.matches({"t": "1999"})
    part, deep = Tag("t") == "b", Tag("t") == "a"
    for _ in range(MAX_DEPTH // 2):
        deep = part | (part & deep)
    grammar.read_query(filter_text(deep))
    with pytest.raises(InvalidInput, match=f"deeper than {MAX_DEPTH}"):
        part & deep


def test_the_error_names_a_numeric_value_but_not_all_of_its_digits():
    """An error about a giant number is short."""
    with pytest.raises(InvalidInput) as caught:
        as_filter({"n": 10**400}, FIELDS)
    assert len(str(caught.value)) < 200


def test_filters_are_values():
    """Filters are compared, hashed and frozen."""
    one, same = (Tag("t") == "a") & (Numeric("n") > 1), (Tag("t") == "a") & (Numeric("n") > 1)
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same}) == 1
    assert isinstance(one, Filter)


# --- forms that the engine answers rightly --------------------------------------------------------

A, B, C, D = (Tag("t") == value for value in "abcd")


@pytest.mark.parametrize(
    ("filter", "text"),
    [
        (A & B, "(@t:{a} @t:{b})"),
        (A & ~B, "(@t:{a} -@t:{b})"),
        (A & (B | C), "(@t:{a} (@t:{b}|@t:{c}))"),
        (A & (B | ~C), "((@t:{a} @t:{b})|(@t:{a} -@t:{c}))"),
        (A | (B & (C | D)), "(@t:{a}|(@t:{b} @t:{c})|(@t:{b} @t:{d}))"),
        (A & (B | (C & D)), "((@t:{a} @t:{b})|(@t:{a} @t:{c} @t:{d}))"),
        (A | (A & B), "(@t:{a})"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_nested_filter_becomes_one_or_of_ands(filter, text):
    """What is flat, or an AND with ORs of positive conditions, is sent as it is; anything else as one OR of ANDs."""
    assert filter_text(filter) == text


@pytest.mark.parametrize(
    ("filter", "alternatives", "negated"),
    [
        (A, ["(@t:{a})"], False),
        (~A, ["(-@t:{a})"], True),
        (A & B, ["(@t:{a} @t:{b})"], False),
        (A & ~B, ["(@t:{a} -@t:{b})"], True),
        (A | B, ["(@t:{a}|@t:{b})"], False),
        (A | ~B, ["(@t:{a})", "(-@t:{b})"], True),
        (A & (B | C), ["(@t:{a} (@t:{b}|@t:{c}))"], False),
        (A & (B | C) & ~D, ["(@t:{a} (@t:{b}|@t:{c}) -@t:{d})"], True),
        (A & (B | ~C), ["(@t:{a} @t:{b})", "(@t:{a} -@t:{c})"], True),
        ((A & B) | C, ["((@t:{a} @t:{b})|@t:{c})"], False),
        ((A & ~B) | C, ["(@t:{a} -@t:{b})", "(@t:{c})"], True),
        (A | (A & ~B), ["(@t:{a})"], False),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, list) else "",
)
def test_alternatives(filter, alternatives, negated):
    """An OR that holds a negation is taken apart; anything else stays one group, in the form of filter_text."""
    assert filter_alternatives(filter) == (alternatives, negated)
    if not negated:
        assert alternatives == [filter_text(filter)]


@given(filters, field_values)
def test_alternatives_together_are_the_filter(filter, values):
    """A document passes one of the alternatives exactly if it passes the filter, and each is a group by itself."""
    alternatives, negated = filter_alternatives(filter)
    read = [grammar.read_query(each).filter for each in alternatives]
    assert any(grammar.holds(tree, stored(values)) for tree in read) == filter.matches(values)
    assert negated is ("-@" in filter_text(filter))


def test_too_many_alternatives_are_refused():
    """More than 20 with a negation among them, or more than 10,000 without, are an error that says what helps."""
    positive = reduce(or_, [Tag("t") == str(at) for at in range(5000)])
    assert filter_text(positive).count("|") == 4999
    negated = reduce(or_, [Tag("t") != str(at) for at in range(21)])
    with pytest.raises(InvalidInput, match="21 or more alternatives.*isin"):
        filter_text(negated)
    assert filter_text(~negated).startswith("(@t:{0} @t:{1} ")
    ten = [reduce(or_, [(Tag("t") == f"{side}{at}") & A for at in range(10)]) for side in "vwxyz"]
    with pytest.raises(InvalidInput, match="alternatives"):
        filter_text(reduce(and_, ten))


def test_a_product_of_alternatives_is_refused_before_it_is_made():
    """Two nested ORs of thousands are an error at once, not millions of tuples."""
    left, right = (reduce(or_, [(Tag("t") == f"{side}{at}") & A for at in range(3000)]) for side in "lr")
    with pytest.raises(InvalidInput, match=r"9,000,000 or more alternatives"):
        filter_text(left & right)
