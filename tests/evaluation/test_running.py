"""The order in which arms are asked, and what is kept of their answers."""

from __future__ import annotations

from retriever.evaluation.arms import Answer, Arm
from retriever.evaluation.golden import Question
from retriever.evaluation.running import _asked

QUESTIONS = [Question(text, {"a": 1}, id=text) for text in ("one", "two", "three", "four")]


def arm(name, told, answer=None):
    """An arm that tells of each query, and answers the same each time or raises."""

    def ask(question, wanted):
        told.append((question.id, name))
        if isinstance(answer, Exception):
            raise answer
        return answer or Answer(("a", "b", "c"), {"a": "A", "b": "B", "c": "C"})

    return Arm(name, name, ask)


def test_arms_take_turns_at_being_first():
    """Each is asked once before anything counts, and then a query's first is another than that of the query before."""
    told = []
    _asked(QUESTIONS, [arm("x", told), arm("y", told), arm("z", told)], 3, None)
    assert told[:3] == [("one", "x"), ("one", "y"), ("one", "z")]
    assert told[3:] == [(q, each) for q, turn in zip(
        ("one", "two", "three", "four"), ("xyz", "yzx", "zxy", "xyz"), strict=True) for each in turn]  # fmt: skip


def test_an_answer_is_cut_and_its_texts_are_kept_once():
    """No more documents than were asked for; a text that several arms found has one number."""
    told = []
    other = Answer(("c", "a"), {"c": "C", "a": "another A"}, complete=False, reasons=("slow", "lost"))
    first, second = _asked(QUESTIONS[:1], [arm("x", told), arm("y", told, other)], 2, None)
    assert first.rankings == {"one": ("a", "b")}
    assert second.rankings == {"one": ("c", "a")}
    assert list(first.pool) == ["A", "B", "C", "another A"]
    assert (first.shown, second.shown) == ({"one": (0, 1)}, {"one": (2, 3)})
    assert (first.incomplete, second.incomplete) == ({}, {"one": "slow; lost"})


def test_a_failure_is_of_its_arm_and_has_no_time():
    """It is kept with its kind; the other arm's answers and milliseconds are its own."""
    told = []
    good, bad = _asked(QUESTIONS, [arm("x", told), arm("y", told, ZeroDivisionError("by nothing"))], 3, None)
    assert bad.failed == {question.id: "ZeroDivisionError: by nothing" for question in QUESTIONS}
    assert (bad.rankings, bad.seconds, good.failed) == ({}, [], {})
    assert len(good.seconds) == 4
