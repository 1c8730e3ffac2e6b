"""Recall for the same number of results: what is worth more, a deeper vector ranking or words beside it.

A prompt has room for so many results, however they are found. Sixty nearest, fifty nearest with ten by words, sixty of
a fusion: the budget is the same, so the recalls can be compared. Fifty and eighty nearest show what depth alone is
worth.
"""

from __future__ import annotations

from collections.abc import Sequence

from retriever.evaluation.arms import Answer, Target, linear_of, why
from retriever.evaluation.golden import Question
from retriever.evaluation.measures import intervals, measured
from retriever.evaluation.report import Budget
from retriever.fusion import CHANNELS, Append, Rrf

__all__ = ["BUDGET", "WAYS", "budgets"]

BUDGET = 60
AGAINST = "vector@60"
ALL = "all"
WAYS = ("vector@50", "vector@60", "vector@80", "append 50+10", "rrf@60", "linear@60")


def budgets(target: Target, questions: Sequence[Question]) -> tuple[tuple[Budget, ...], list[str]]:
    """Recall of each way over all queries and per category, and its paired difference to the sixty nearest; and notes.

    A result is what fills the budget: a chunk, where documents are found by chunks. A query that fails recalls nothing,
    and the notes say so.
    """
    failed: list[str] = []
    rankings: dict[str, dict[str, Sequence[str]]] = {way: {} for way in WAYS}
    for question in questions:
        for way in WAYS:
            rankings[way][question.id] = _ask(target, question, way, failed)
    recalls = {way: measured(questions, found, ks=(1_000,), window=1)["R@1000"] for way, found in rankings.items()}
    categories: dict[str, list[str]] = {ALL: [each.id for each in questions]}
    for question in questions:
        if question.category is not None:
            name = f"category {ALL}" if question.category == ALL else question.category
            categories.setdefault(name, []).append(question.id)
    rows = [(category, way) for category in categories for way in WAYS]
    values = [[recalls[way][id] for id in categories[category]] for category, way in rows]
    moved = [[recalls[way][id] - recalls[AGAINST][id] for id in categories[category]] for category, way in rows]
    notes = []
    if failed:
        count = f"{len(failed)} of {len(questions) * len(WAYS)}"
        notes.append(f"the equal-budget table: {count} searches failed and recall nothing; the first: {failed[0]}")
    return tuple(
        Budget(way, category, recall, AGAINST, difference)
        for (category, way), recall, difference in zip(rows, intervals(values), intervals(moved), strict=True)
    ), notes


def _ask(target: Target, question: Question, way: str, failed: list[str]) -> Sequence[str]:
    name, _, results = way.partition("@")
    try:
        answer: Answer
        if name == "vector":
            answer = target.ask(question, int(results), fusion=Rrf(), channels=("vector",))
        elif name == "rrf":
            answer = target.ask(question, BUDGET, fusion=Rrf(), channels=CHANNELS)
        elif name == "linear":
            answer = target.ask(question, BUDGET, fusion=linear_of(target), channels=CHANNELS)
        else:
            answer = target.ask(question, BUDGET - 10, fusion=Append(10), channels=CHANNELS)
    except Exception as error:
        failed.append(why(error))
        return ()
    return answer.ids
