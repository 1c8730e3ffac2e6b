"""What fields, indexes, prefixes and ids may be called."""

from __future__ import annotations

import pytest

from fields.errors import InvalidInput
from fields.names import check_field_name, check_id, check_index_name, check_prefix, stamp_field, terms_field, utf8


@pytest.mark.parametrize(
    "name", ["a", "A", "_", "_a", "a1", "tenant_id", "__"[:1] + "x", "a__b", "payload", "id", "score"]
)
def test_field_names_that_are_taken(name):
    """Letters, digits and _ make a name, also words that other clients' result objects own, case B77."""
    assert check_field_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "my-field",
        "as",
        "Sortable",
        "NOINDEX",
        "my field",
        "a.b",
        "user@id",
        "@f",
        "f:g",
        "1a",
        "",
        "é",
        "a\n",
        "a\\_b",
        "$",
        "a{b}",
        'a"',
        "a,b",
        None,
        5,
        "__text",
        "__score",
        "__terms",
        "__of_embedding",
        "__",
        b"a",
    ],
    ids=repr,
)
def test_field_names_that_are_refused(name):
    """A name that would need escaping, or that begins with two underscores, is refused, case B08."""
    with pytest.raises(InvalidInput, match="field name"):
        check_field_name(name)


@pytest.mark.parametrize("name", ["docs", "Docs-2", "a:b", "naïve", "{slot}", "*"])
def test_index_names_that_are_taken(name):
    """An index name is any word without @."""
    assert check_index_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a\n", "docs@2", "a\x00", "a\x7f", "\ud800", "a\u3000b", None, 3], ids=repr
)
def test_index_names_that_are_refused(name):
    """An index name is not empty and holds no blank, control character, lone surrogate or @."""
    with pytest.raises(InvalidInput, match="index name"):
        check_index_name(name)


@pytest.mark.parametrize("prefix", ["docs:", "a/b/", "x|", "x#", "x.", "::", "*:"])
def test_prefixes_that_are_taken(prefix):
    """A prefix is something and then a separator."""
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["mem", ":", "", "a b:", "a:b", "a:\n", "a@2:", "\ud800:", None, 3], ids=repr)
def test_prefixes_that_are_refused(prefix):
    """A prefix without a separator at its end takes other indexes' keys too, cases B60 and B61."""
    with pytest.raises(InvalidInput, match="prefix"):
        check_prefix(prefix)


@pytest.mark.parametrize(
    "id", ["a", " ", "a b", "a:b", "*", "{a}", "é😀", "a\nb", "x" * 10_000], ids=lambda id: repr(id[:8])
)
def test_ids_that_are_taken(id):
    """Any string of at least one character is an id."""
    assert check_id(id) == id


@pytest.mark.parametrize("id", ["", None, 5, b"a", ["a"], "a\udc80", "a\x00b"], ids=repr)
def test_ids_that_are_refused(id):
    """An id that is empty, no string, has no UTF-8 form or holds NUL is refused."""
    with pytest.raises(InvalidInput, match="id"):
        check_id(id)


def test_a_lone_surrogate_is_named_with_its_place():
    """The error says what cannot be encoded and where."""
    with pytest.raises(InvalidInput, match=r"the text: lone surrogate '\\udc80' at 2"):
        utf8("ab\udc80c", "the text")


def test_our_names_are_none_that_a_field_may_have():
    """The names that we derive begin with two underscores, so no declared field is one of them."""
    for name in (terms_field("title"), stamp_field("embedding")):
        with pytest.raises(InvalidInput):
            check_field_name(name)
