"""Documents from JSON lines: what a key means, and that a fault has a file and a line."""

from __future__ import annotations

import pytest

from retriever import InvalidInput, Numeric, Schema, Stored, Tag, Text
from retriever.jsonlines import JsonLines

SCHEMA = Schema("docs", [Tag("tag"), Numeric("year"), Text("title"), Stored("more")])


def read(*lines, schema=SCHEMA, **options):
    return list(
        JsonLines([line if isinstance(line, bytes) else line.encode() for line in lines], "f", schema, **options)
    )


def test_a_line_is_a_document():
    """id, text, declared fields and the vector are taken; blank lines and a byte order mark are nothing."""
    (a, b) = read(
        b"\xef\xbb\xbf"
        + b'{"id": "a", "text": "t", "tag": "x", "year": 1, "title": "T", "more": [1], "vector": [1, 2]}\n',
        "\n",
        " \r\n",
        '{"id": 7}',
    )
    assert (a.id, a.text, a.fields, a.vector) == ("a", "t", {"tag": "x", "year": 1, "title": "T", "more": [1]}, [1, 2])
    assert (b.id, b.text, b.fields, b.vector) == ("7", "", {}, None)


def test_null_is_absent_but_in_a_stored_field():
    """A null is no value of a field, except where any JSON value is one."""
    (document,) = read(
        '{"id": "a", "text": null, "tag": null, "year": null, "title": null, "more": null, "vector": null}'
    )
    assert (document.text, document.fields, document.vector) == ("", {"more": None}, None)


def test_other_keys_may_hold_id_and_text():
    """A declared field may be the id or the text as well; a field called vector is a field."""
    (document,) = read('{"tag": "a", "title": "t"}', id_field="tag", text_field="title")
    assert (document.id, document.text, document.fields) == ("a", "t", {"tag": "a", "title": "t"})
    (document,) = read('{"id": "a", "vector": "x"}', schema=Schema("docs", [Tag("vector")]))
    assert (document.fields, document.vector) == ({"vector": "x"}, None)


def test_unknown_keys_are_an_error_unless_ignored():
    """A typo in a key would lose its values, so it stops the load; with ignore_unknown it is passed over."""
    line = '{"id": "a", "tga": "x", "tag": "y"}'
    with pytest.raises(InvalidInput, match="^f:1: unknown key 'tga'; known: id, text, tag, year, title, more, vector$"):
        read(line)
    (document,) = read(line, ignore_unknown=True)
    assert document.fields == {"tag": "y"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "no JSON"),
        (b'{"id": "\xff"}', "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("5", "a JSON object expected, not 5"),
        ("{}", "the key 'id' is missing"),
        ('{"id": ""}', "id ''"),
        ('{"id": null}', "id None"),
        ('{"id": true}', "id True"),
        ('{"id": 1.5}', "id 1.5"),
        ('{"id": "a", "vector": "x"}', "vector: a list of numbers expected"),
    ],
)
def test_a_bad_line_is_named(line, said):
    """The message starts with file and line; documents before it have been given."""
    lines = iter(JsonLines([b'{"id": "a"}\n', b"\n", line if isinstance(line, bytes) else line.encode()], "f", SCHEMA))
    assert next(lines).id == "a"
    with pytest.raises(InvalidInput) as raised:
        next(lines)
    assert str(raised.value).startswith("f:3: ")
    assert said in str(raised.value)


def test_a_fault_found_later_has_its_line_too():
    """An error about a document that is not written yet gets file and line; any other stays as it is."""
    lines = JsonLines([b'{"id": "a"}', b'{"id": "a\'"}', b'{"id": "b"}', b'{"id": "b"}'], "f", SCHEMA)
    documents = list(lines)
    assert [str(lines.placed(InvalidInput(f"document {each.id!r}, text: x"))) for each in documents] == [
        "f:1: document 'a', text: x",
        'f:2: document "a\'", text: x',
        "f:4: document 'b', text: x",
        "f:4: document 'b', text: x",
    ]
    for error in (InvalidInput("document 'c', text: x"), OSError("document 'a'"), KeyboardInterrupt()):
        assert lines.placed(error) is error
    assert lines.bytes_read == 45
    lines.written(4)
    assert lines.documents == 4
    error = InvalidInput("document 'a', text: x")
    assert lines.placed(error) is error
