"""A schema in a TOML file: what each key means, and that nothing unknown passes."""

from __future__ import annotations

import pytest

from retriever import Analysis, InvalidInput, Numeric, Schema, Stored, Tag, Text, Vector
from retriever.declared import read_schema

WHOLE = """
name = "docs"
prefix = "d/"
analysis = { language = "german", stem = false, stop_words = ["der"] }
vector = { name = "v", dims = 3, metric = "l2", algorithm = "hnsw", m = 8, ef_construction = 64, initial_cap = 100 }
[fields]
category = "tag"
tags = { kind = "tag", many = true }
year = "numeric"
title = { kind = "text", weight = 2 }
url = { kind = "stored" }
"""


@pytest.fixture
def read(tmp_path):
    """Writes a file and reads it as a schema."""

    def read(text):
        path = tmp_path / "docs.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_schema(path)

    return read


def test_every_key_is_the_argument_of_its_name(read):
    """A file with all there is to say makes the schema that Python would."""
    fields = [Tag("category"), Tag("tags", many=True), Numeric("year"), Text("title", weight=2.0), Stored("url")]
    vector = Vector("v", dims=3, metric="L2", m=8, ef_construction=64, initial_cap=100)
    assert read(WHOLE) == Schema("docs", fields, vector, Analysis("german", stem=False, stop_words=["der"]), "d/")


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('name = "docs"', Schema("docs")),
        ('name = "docs"\nanalysis = false', Schema("docs", analysis=None)),
        ('name = "docs"\n[vector]\nalgorithm = "FLAT"', Schema("docs", vector=Vector(algorithm="FLAT"))),
        ('name = "docs"\n[analysis]\n[fields]\n[vector]', Schema("docs")),
    ],
)
def test_what_is_left_out_is_the_default(read, text, schema):
    """Only the name is needed; analysis = false indexes no text."""
    assert read(text) == schema


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the key name is missing"),
        ("name = docs", "no TOML"),
        (b'name = "\xff"', "no TOML"),
        ("a = " + "[" * 100_000, "no TOML"),
        ('name = "a b"', "index name 'a b'"),
        ("name = 5", "index name 5"),
        ('name = "docs"\nprefix = "d"', "prefix 'd' must end in a separator"),
        ('name = "docs"\nfeilds = {}', "unknown key 'feilds'; known: name, prefix, fields, vector, analysis"),
        ('name = "docs"\nfields = ["a"]', "[fields]: a table expected"),
        ('name = "docs"\nvector = 384', "[vector]: a table expected"),
        ('name = "docs"\nanalysis = true', "[analysis]: a table expected"),
        ('name = "docs"\n[vector]\ndim = 384', "[vector] unknown key 'dim'; known: name, dims"),
        ('name = "docs"\n[vector]\ndims = 3.5', "[vector] dims 3.5"),
        ('name = "docs"\n[vector]\nmetric = "cos"', "[vector] metric 'COS'"),
        ('name = "docs"\n[vector]\nmetric = ["cosine"]', "[vector] metric ['cosine']"),
        ('name = "docs"\n[analysis]\nlang = "english"', "[analysis] unknown key 'lang'"),
        ('name = "docs"\n[analysis]\nlanguage = "klingon"', "[analysis] no language 'klingon'"),
        ('name = "docs"\n[analysis]\nstop_words = "the"', "[analysis] stop_words"),
        ('name = "docs"\n[fields]\na = "keyword"', "[fields] a: kind 'keyword': one of text, tag, numeric, stored"),
        ('name = "docs"\n[fields]\na = { many = true }', "[fields] a: kind None"),
        ('name = "docs"\n[fields]\na = { kind = ["tag"] }', "[fields] a: kind ['tag']"),
        ('name = "docs"\n[fields]\na = true', "[fields] a: a table expected, not True"),
        ('name = "docs"\n[fields]\na = { kind = "numeric", many = true }', "[fields] a: unknown key 'many'"),
        ('name = "docs"\n[fields]\na = { kind = "tag", name = "b" }', "[fields] a: unknown key 'name'; known: many"),
        ('name = "docs"\n[fields]\na = { kind = "tag", many = "yes" }', "[fields] a: many is true or false"),
        ('name = "docs"\n[fields]\na = { kind = "text", weight = 0 }', "[fields] a: weight of 'a'"),
        ('name = "docs"\n[fields]\n"a b" = "tag"', "[fields] a b: field name 'a b'"),
        ('name = "docs"\n[fields]\nembedding = "tag"', "field 'embedding' is declared twice"),
    ],
)
def test_errors_name_file_and_key(read, text, said):
    """Whatever is wrong in a file is InvalidInput that starts with the file and names the key."""
    with pytest.raises(InvalidInput) as raised:
        read(text)
    message = str(raised.value)
    assert message.partition(": ")[0].endswith("docs.toml")
    assert said in message
