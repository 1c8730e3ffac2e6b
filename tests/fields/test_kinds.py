"""The kinds of fields: what they say to FT.CREATE, what they write and read, what they refuse."""

from __future__ import annotations

import enum
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.errors import InvalidInput
from fields.kinds import FIELD_KINDS, Numeric, Stored, Tag, Text, Vector
from tests.fakes import shown
from tests.strategies import AWKWARD, json_values, numbers, texts, vectors

# --- round trips: what is written is what is read --------------------------------------------------

tag_values = texts.filter(lambda text: len(text) < 1000)


def there_and_back(field, value):
    (stored,) = field.write([value], ["id"])
    return field.read(stored)


@pytest.mark.parametrize("value", AWKWARD, ids=lambda value: repr(value[:20]))
def test_awkward_tags_come_back(value):
    """A tag comes back as it was, whatever its characters."""
    assert there_and_back(Tag("f"), value) == value
    assert there_and_back(Tag("f", many=True), [value, "x", value]) == [value, "x", value]


@given(tag_values)
def test_any_tag_comes_back(value):
    """A tag comes back as it was."""
    assert there_and_back(Tag("f"), value) == value


@given(st.lists(tag_values, max_size=4))
def test_any_list_of_tags_comes_back(values):
    """A list of tags comes back as it was, empty strings, blanks and separators included."""
    assert there_and_back(Tag("f", many=True), values) == values


@given(numbers)
def test_any_number_comes_back(value):
    """A number comes back with its value and its type."""
    back = there_and_back(Numeric("f"), value)
    assert (back, type(back)) == (value, type(value))


@given(texts)
def test_any_text_comes_back(value):
    """A text comes back as it was."""
    assert there_and_back(Text("f"), value) == value


@given(json_values)
def test_any_json_value_comes_back(value):
    """A stored JSON value comes back as it was."""
    assert there_and_back(Stored("f"), value) == value


@given(st.lists(st.tuples(tag_values, numbers), max_size=5))
def test_a_column_is_its_values_one_by_one(rows):
    """Writing a column gives what writing each of its values gives."""
    ids = [str(at) for at in range(len(rows))]
    for field, column in ((Tag("t"), [row[0] for row in rows]), (Numeric("n"), [row[1] for row in rows])):
        assert field.write(column, ids) == [field.write([value], ["x"])[0] for value in column]


def test_what_is_stored():
    """The stored form of plain values is plain, because indexes outlive releases."""
    assert Tag("f").write(["db", "a b", "C++"], "abc") == [b"db", b"a b", b"C++"]
    assert Tag("f", many=True).write([["a", "b"], [], ["x"]], "abc") == [b"a\x1fb", b"", b"x"]
    assert Numeric("f").write([1, 1.0, -0.5], "abc") == [b"1", b"1.0", b"-0.5"]
    assert Text("f").write(["é"], "a") == ["é".encode()]
    assert Stored("f").write([{"ü": [1, None]}], "a") == ['{"ü":[1,null]}'.encode()]


def test_sets_and_tuples_are_lists_of_tags():
    """A list field takes any of Python's plain collections."""
    assert there_and_back(Tag("f", many=True), ("a", "b")) == ["a", "b"]
    assert sorted(there_and_back(Tag("f", many=True), {"a", "b"})) == ["a", "b"]
    assert there_and_back(Stored("f"), (1, (2,))) == [1, [2]]


class Level(enum.IntEnum):
    HIGH = 3


class Colour(enum.StrEnum):
    RED = "red"


class Odd(float):
    def __repr__(self):
        return "odd"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.longdouble(1.5), 1.5),
        (Level.HIGH, 3),
        (Odd(2.5), 2.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_other_types_become_plain(value, expected):
    """A number of a subclass or of numpy is stored as the plain number, never by its repr, case B36."""
    back = there_and_back(Numeric("f"), value)
    assert (back, type(back)) == (expected, type(expected))


def test_strings_of_a_subclass_are_strings():
    """An enum of strings is the string that it is."""
    assert there_and_back(Tag("f"), Colour.RED) == "red"
    assert there_and_back(Tag("f"), np.str_("a b")) == "a b"


# --- refusals: every one names the document and the field -------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (Tag("f"), None, "leave an absent field out"),
        (Tag("f"), 5, "a string expected"),
        (Tag("f"), b"bytes", "a string expected"),
        (Tag("f"), True, "a string expected"),
        (Tag("f"), ["a"], "many=True"),
        (Tag("f"), "x" * 4097, "4097 bytes"),
        (Tag("f"), "é" * 2049, "4098 bytes"),
        (Tag("f"), "\x00" * 1366, "4098 bytes"),
        (Tag("f"), "a\ud800", "lone surrogate"),
        (Tag("f", many=True), "abc", "a list of strings expected"),
        (Tag("f", many=True), "a b", "a list of strings expected"),
        (Tag("f", many=True), None, "a list of strings expected"),
        (Tag("f", many=True), {"a": 1}, "a list of strings expected"),
        (Tag("f", many=True), ["a", None], "a string expected"),
        (Tag("f", many=True), ["a", 5], "a string expected"),
        (Tag("f", many=True), [["a"]], "a string expected"),
        (Tag("f", many=True), ["x" * 4097], "4097 bytes"),
        (Numeric("f"), "", "a number expected"),
        (Numeric("f"), "abc", "a number expected"),
        (Numeric("f"), "5", "a number expected"),
        (Numeric("f"), None, "a number expected"),
        (Numeric("f"), True, "a number expected"),
        (Numeric("f"), np.True_, "a number expected"),
        (Numeric("f"), Decimal(1), "a number expected"),
        (Numeric("f"), Fraction(1, 2), "a number expected"),
        (Numeric("f"), 1j, "a number expected"),
        (Numeric("f"), [1], "a number expected"),
        (Numeric("f"), float("nan"), "not finite"),
        (Numeric("f"), float("inf"), "not finite"),
        (Numeric("f"), np.float32("inf"), "not finite"),
        (Numeric("f"), 2**53 + 1, "beyond"),
        (Numeric("f"), -(2**53) - 1, "beyond"),
        (Numeric("f"), 1e16, "beyond"),
        (Numeric("f"), 10**400, "beyond"),
        (Text("f"), None, "a string expected"),
        (Text("f"), 5, "a string expected"),
        (Text("f"), b"bytes", "a string expected"),
        (Text("f"), "\udfff", "lone surrogate"),
        (Stored("f"), float("nan"), "not a JSON value"),
        (Stored("f"), {"a": float("inf")}, "not a JSON value"),
        (Stored("f"), {1: "a"}, "no string"),
        (Stored("f"), {"a": [{None: 1}]}, "no string"),
        (Stored("f"), object(), "not a JSON value"),
        (Stored("f"), {1, 2}, "not a JSON value"),
        (Stored("f"), np.float32(1), "not a JSON value"),
        (Stored("f"), "\ud800", "lone surrogate"),
        (Stored("f"), {"\ud800": 1}, "lone surrogate"),
    ],
    ids=shown,
)
def test_values_that_are_refused(field, value, reason):
    """A value that an engine would lose, or read as another, is refused by document and field, cases B34 to B36."""
    good = {"TAG": ["a"] if getattr(field, "many", False) else "a", "NUMERIC": 1, "TEXT": "a", "STORED": 1}
    with pytest.raises(InvalidInput, match=reason) as caught:
        field.write([good[field.kind], value], ["fine", "bad-1"])
    assert "document 'bad-1', field 'f'" in str(caught.value)


def test_a_nested_value_that_could_not_be_read_again_is_refused():
    """JSON deeper than any reader's stack is refused when it is written, and no crash when it is read."""
    deep = shallow = 0
    for _ in range(900):
        deep = [deep]
    for _ in range(100):
        shallow = [shallow]
    with pytest.raises(InvalidInput, match="nested deeper"):
        Stored("f").write([deep], ["a"])
    assert there_and_back(Stored("f"), shallow) == shallow
    with pytest.raises(ValueError, match="nested too deep"):
        Stored("f").read(b"[" * 100_000)


def test_a_value_that_holds_itself_is_refused():
    """A cycle is no JSON value."""
    cycle = []
    cycle.append(cycle)
    with pytest.raises(InvalidInput, match="not a JSON value"):
        Stored("f").write([cycle], ["a"])


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        (Tag("f"), b"\xff"),
        (Tag("f", many=True), b"\xff"),
        (Numeric("f"), b"abc"),
        (Numeric("f"), b""),
        (Text("f"), b"\xff"),
        (Stored("f"), b"{"),
        (Stored("f"), b""),
        (Stored("f"), b"\xff"),
    ],
    ids=repr,
)
def test_bytes_of_another_program_are_a_value_error(field, stored):
    """Reading what no write of ours stores is a ValueError, which its caller turns into a ReplyError."""
    with pytest.raises(ValueError):  # noqa: PT011 - of several standard kinds
        field.read(stored)


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (Tag("f"), ["f", "TAG", "SEPARATOR", "\x1f", "CASESENSITIVE"]),
        (Tag("f", many=True), ["f", "TAG", "SEPARATOR", "\x1f", "CASESENSITIVE"]),
        (Numeric("f"), ["f", "NUMERIC"]),
        (
            Vector(dims=3),
            [
                "embedding",
                "VECTOR",
                "HNSW",
                10,
                "TYPE",
                "FLOAT32",
                "DIM",
                3,
                "DISTANCE_METRIC",
                "COSINE",
                "M",
                16,
                "EF_CONSTRUCTION",
                200,
            ],
        ),
        (
            Vector("v", 3, "L2", m=8, ef_construction=99, ef_runtime=50, initial_cap=1000),
            [
                "v",
                "VECTOR",
                "HNSW",
                14,
                "TYPE",
                "FLOAT32",
                "DIM",
                3,
                "DISTANCE_METRIC",
                "L2",
                "M",
                8,
                "EF_CONSTRUCTION",
                99,
                "EF_RUNTIME",
                50,
                "INITIAL_CAP",
                1000,
            ],
        ),
        (
            Vector(dims=3, metric="IP", algorithm="FLAT", initial_cap=1, block_size=2),
            [
                "embedding",
                "VECTOR",
                "FLAT",
                10,
                "TYPE",
                "FLOAT32",
                "DIM",
                3,
                "DISTANCE_METRIC",
                "IP",
                "INITIAL_CAP",
                1,
                "BLOCK_SIZE",
                2,
            ],
        ),
    ],
    ids=repr,
)
def test_the_words_of_a_field(field, words):
    """A field says its own FT.CREATE words; a TAG is always case-sensitive, case B33."""
    assert field.index_words() == words


def test_the_words_of_a_text_field():
    """Only the analysed copy is indexed, unstemmed, weighted where the engine takes a weight."""
    assert Text("title", weight=2).index_words(weight=True) == ["__terms_title", "TEXT", "NOSTEM", "WEIGHT", "2.0"]
    assert Text("title", weight=2).index_words(weight=False) == ["__terms_title", "TEXT", "NOSTEM"]
    assert Text("title").index_words(weight=True) == ["__terms_title", "TEXT", "NOSTEM"]


@given(vectors)
def test_a_vector_counts_its_attributes(vector):
    """The number in front of a vector's attributes is their number."""
    words = vector.index_words()
    assert words[3] == len(words[4:])


def test_a_vector_of_unknown_length_has_no_words():
    """Dimensions that nobody has told are an error that says where to put them."""
    with pytest.raises(InvalidInput, match=r"pass Vector\(dims="):
        Vector().index_words()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": "__v"}, "reserved"),
        ({"name": "my-vec"}, "field name"),
        ({"dims": 0}, "dims"),
        ({"dims": -1}, "dims"),
        ({"dims": 32_769}, "dims"),
        ({"dims": 3.0}, "dims"),
        ({"dims": True}, "dims"),
        ({"dims": "3"}, "dims"),
        ({"metric": "cosine"}, "metric"),
        ({"metric": "DOT"}, "metric"),
        ({"algorithm": "IVF"}, "algorithm"),
        ({"m": 0}, "m 0"),
        ({"m": 513}, "m 513"),
        ({"ef_construction": 0}, "ef_construction"),
        ({"ef_runtime": 40_001}, "ef_runtime"),
        ({"initial_cap": 0}, "initial_cap"),
        ({"block_size": 5}, "block_size means nothing to HNSW"),
        ({"algorithm": "FLAT", "m": 16}, "m means nothing to FLAT"),
        ({"algorithm": "FLAT", "ef_construction": 200}, "ef_construction means nothing to FLAT"),
        ({"algorithm": "FLAT", "ef_runtime": 10}, "ef_runtime means nothing to FLAT"),
    ],
    ids=repr,
)
def test_vectors_that_are_refused(arguments, reason):
    """A vector that an engine would refuse, or whose words mean nothing to its algorithm, is refused."""
    with pytest.raises(InvalidInput, match=reason):
        Vector(**arguments)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), True, "2", None], ids=repr)
def test_weights_that_are_refused(weight):
    """A weight is a finite number above 0."""
    with pytest.raises(InvalidInput, match="weight of 'title'"):
        Text("title", weight=weight)


@pytest.mark.parametrize("kind", [*FIELD_KINDS.values(), Vector], ids=lambda kind: kind.__name__)
def test_every_kind_checks_its_name(kind):
    """No kind takes a name that would need escaping."""
    with pytest.raises(InvalidInput, match="field name"):
        kind("my-field")


@pytest.mark.parametrize("kind", FIELD_KINDS.values(), ids=lambda kind: kind.__name__)
def test_fields_can_be_kept_in_sets(kind):
    """A field is hashable and frozen, although == of some build filters."""
    field = kind("f")
    assert field in {field}
    with pytest.raises(AttributeError):
        field.name = "g"


def test_a_text_field_is_not_compared_with_a_string():
    """``Text("title") == "x"`` is no filter and says so, instead of being silently False."""
    with pytest.raises(InvalidInput, match="cannot be filtered"):
        Text("title") == "x"  # noqa: B015 - the comparison is the subject
