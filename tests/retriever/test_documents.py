"""Documents, hits and reports as values."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from retriever.documents import (
    Document,
    Failure,
    Hit,
    Hits,
    Interruption,
    UpsertReport,
    interrupted,
    interruption,
)

A, B, C = (Hit(id, score, "text", {"n": 1}) for id, score in (("a", 0.1), ("b", 0.2), ("c", 0.3)))


def test_a_document_is_its_id_its_text_and_its_fields():
    """Documents are compared without their vectors, whose == is no bool, and hashed by id."""
    one = Document("a", "text", {"n": 1}, np.zeros(3))
    assert one == Document("a", "text", {"n": 1}, [1, 2, 3])
    assert hash(one) == hash(Document("a"))
    assert one != Document("a", "text", {"n": 2})
    assert Document("a") == Document("a", "", {}, None, None)


def test_a_hit_is_compared_without_its_vector():
    """Hits are compared without their vectors, and hashed by id."""
    assert dataclasses.replace(A, vector=np.zeros(3)) == A
    assert hash(dataclasses.replace(A, score=0.5)) == hash(A)
    assert dataclasses.replace(A, score=0.5) != A


@pytest.mark.parametrize(
    ("value", "name"),
    [(Document("a"), "id"), (Failure("a", "b"), "id"), (UpsertReport(), "written")],
    ids=repr,
)
def test_values_are_frozen(value, name):
    """No value that goes in and no report can be changed."""
    with pytest.raises(AttributeError):
        setattr(value, name, "b")
    assert not hasattr(value, "__dict__")


def test_hits_are_a_sequence():
    """Hits can be counted, indexed, sliced, searched and walked, and keep what they say of themselves."""
    hits = Hits([A, B, C], complete=False, reasons=("cut",), stats={"search_ms": 1.0})
    assert (len(hits), hits[0], hits[-1], list(hits), B in hits, hits.index(C)) == (3, A, C, [A, B, C], True, 2)
    assert list(reversed(hits)) == [C, B, A]
    first = hits[:2]
    assert isinstance(first, Hits)
    assert (list(first), first.complete, first.reasons, first.stats) == ([A, B], False, ("cut",), {"search_ms": 1.0})
    with pytest.raises(IndexError):
        hits[3]


def test_hits_are_true_if_there_are_any():
    """An empty answer is false, as an empty list is."""
    assert not Hits()
    assert Hits([A])


def test_hits_are_equal_if_they_say_the_same():
    """Equality looks at the hits and at completeness, not at timings; no list is equal to hits."""
    assert Hits([A], stats={"search_ms": 1.0}) == Hits([A], stats={"search_ms": 2.0})
    assert Hits([A]) != Hits([B])
    assert Hits([A]) != Hits([A], complete=False, reasons=("cut",))
    assert Hits([A]) != [A]
    with pytest.raises(TypeError):
        hash(Hits())


def test_hits_do_not_follow_the_list_they_were_made_of():
    """Hits are immutable, also when made of a list."""
    source = [A]
    hits = Hits(source)
    source.append(B)
    assert len(hits) == 1


def test_a_partial_answer_shows():
    """The repr of an answer that is not whole says so and why."""
    assert repr(Hits([])) == "Hits([])"
    assert repr(Hits([], complete=False, reasons=("cut",))) == "Hits([], complete=False, reasons=('cut',))"


def test_an_error_carries_how_far_its_upsert_came():
    """Whatever stops an upsert is itself, and tells what was written and what was in flight, case B75."""
    error = ConnectionError("gone")
    assert interruption(error) is None
    report = UpsertReport(500, (Failure("x", "WRONGTYPE"),))
    interrupted(error, report, ["a", "b"])
    assert interruption(error) == Interruption(report, ("a", "b"))
    assert error.__notes__ == ["upsert stopped after 500 documents; 2 were in flight"]
    assert str(error) == "gone"
