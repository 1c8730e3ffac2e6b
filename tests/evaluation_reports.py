"""Reports as tests need them: made of rankings that are written down, without a server."""

from __future__ import annotations

from retriever.evaluation.golden import Question
from retriever.evaluation.measures import better, intervals, measured
from retriever.evaluation.report import ArmResult, Difference, Report

HOSTILE = (
    "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 2'> "
    "{{ 7 * 7 }} | [a](javascript:1) <a href='javascript:window.hit = 3'>b</a> \u2028"
)


def arm(name, rankings, questions, *, failed=None, seconds=0.01, ks=(1, 3), window=5):
    """One arm's results; rankings: query id -> ids."""
    failed = failed or {}
    values = measured(questions, rankings, ks=ks, window=window, failed=failed)
    summary = dict(zip(values, intervals([list(each.values()) for each in values.values()]), strict=True))
    shown = {id: [ord(each) - ord("a") for each in ids] for id, ids in rankings.items()}
    return ArmResult(
        name, f"what {name} is", False, values, summary, 1000 * seconds, 2000 * seconds, failed, {}, rankings, shown
    )


def difference(arm, against, measure):
    """Of a measure, on the queries of both."""
    moved = [value - against.values[measure][id] for id, value in arm.values[measure].items()]
    (interval,) = intervals([moved])
    ups, downs = (sum(better(measure, sign * each) for each in moved) for sign in (1, -1))
    return Difference(arm.name, against.name, measure, interval, ups, downs)


def report(*, questions=None, rankings=None, **given):
    """A report of three queries and two arms, of which the second is better at one query and worse at another."""
    questions = questions or (
        Question("which boat is first", {"a": 2, "b": 1}, authority="a", noise=("z",), category="boats", id="q1"),
        Question(HOSTILE, {"c": 1}, id="q2"),
        Question("who sings <b>at night</b>", {"d": 1}, category="people", id="q3"),
    )
    rankings = rankings or (
        {"q1": ["z", "a"], "q2": ["c", "x"], "q3": ["y", "d"]},
        {"q1": ["a", "b"], "q2": ["x", "c"], "q3": []},
    )
    arms = (
        arm("vector", rankings[0], questions),
        arm("linear", rankings[1], questions, failed={"q3": "ValueError: no <i>luck</i>"}, seconds=0.02),
    )
    texts = tuple(f"the text of {letter} {HOSTILE}" for letter in "abcdefghijklmnopqrstuvwxyz")
    made = {
        "when": "2026-11-30T08:00:00Z",
        "target": "index test",
        "size": 9,
        "golden": "golden.yaml",
        "ks": (1, 3),
        "authority_window": 5,
        "wanted": 5,
        "headline": "nDCG@3",
        "questions": questions,
        "arms": arms,
        "differences": tuple(difference(arms[1], arms[0], name) for name in arms[0].values),
        "notes": (f"a note with {HOSTILE}",),
        "texts": texts,
    }
    return Report(**{**made, **given})
