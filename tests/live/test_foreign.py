"""Indexes of other programs on the same server: theirs, whatever they are called, and in nobody's way."""

from __future__ import annotations

import pytest

from retriever import InvalidInput, Schema, Vector


@pytest.fixture
def foreign(raw, name):
    """Makes an index of another program, ``foreign(suffix of its name, its prefixes, what it indexes)``."""

    def make(suffix, *prefixes, schema=("t", "TAG")):
        raw.execute_command("FT.CREATE", name.encode() + suffix, "PREFIX", len(prefixes), *prefixes, "SCHEMA", *schema)

    return make


async def test_a_name_that_is_no_text_stands_in_nobodys_way(make, name, foreign):
    """An index whose name and prefix are no UTF-8 is compared by its bytes, and does not keep ours from being made."""
    foreign(b"\xff\xfe", name.encode() + b"\xc3:")
    ours = make(Schema(name, vector=Vector(dims=4)))
    assert await ours.create_index()
    assert await ours.drop_index(delete_documents=True) == 0


async def test_a_prefix_that_is_no_text_may_overlap(make, name, foreign):
    """Prefixes are bytes: the first half of a character is the start of ours."""
    foreign(b"\xff", name.encode() + b"\xc3")
    with pytest.raises(InvalidInput, match=r"overlaps .*\\xc3"):
        await make(Schema(name, vector=Vector(dims=4), prefix=f"{name}é:")).create_index()


async def test_whatever_another_program_indexes(make, name, foreign):
    """Fields of kinds that we know nothing of are not read."""
    foreign(
        b"-other", f"{name}-other:", schema=("p", "GEO", "s", "GEOSHAPE", "FLAT", "a b", "TEXT", "PHONETIC", "dm:en")
    )
    assert await make(Schema(name, vector=Vector(dims=4))).create_index()
