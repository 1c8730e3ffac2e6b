"""Running an evaluation: every query through every arm, and what it comes to.

Rule: a query that fails in an arm is one query that failed in that arm: it counts there, and the evaluation goes on.
The arms take turns at being first, since the first to see a query pays for what is remembered afterwards.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fields.errors import InvalidInput
from retriever.client import Retriever
from retriever.errors import MissingExtra, ServerError
from retriever.evaluation.arms import Arm, Target, arms_of, target_of, why
from retriever.evaluation.budgets import budgets
from retriever.evaluation.golden import Golden, Question
from retriever.evaluation.measures import AUTHORITY_FOUND, AUTHORITY_RANK, MRR, better, intervals, measured
from retriever.evaluation.report import ArmResult, Difference, Report
from retriever.evaluation.tuning import TUNABLE, check_tunable
from retriever.evaluation.tuning import tune as tuned
from retriever.memory.store import MemoryStore
from retriever.queries import check_bool, check_int
from retriever.rerankers import Reranker

__all__ = ["KS", "WINDOW", "evaluate"]

KS = (1, 3, 5, 10)
WINDOW = 20
NAMED = 10  # ids that a note names


def evaluate(
    searched: Retriever | MemoryStore,
    golden: Golden,
    *,
    ks: Sequence[int] = KS,
    authority_window: int = WINDOW,
    arms: Sequence[str] | None = None,
    rerank: Reranker | None = None,
    document_field: str | None = None,
    tune: bool = False,
    compare: Mapping[str, Any] | None = None,
    on_query: Callable[[int], Any] | None = None,
) -> Report:
    """How well an index or a memory answers golden queries, in several ways. Reads only; counts no read.

    ks: of nDCG@k, R@k, P@k, Hit@k and noise@k. authority_window: how far down the authority document is looked for.
    arms: of vector, text, rrf, linear, append and, of a memory, memory, memory-no-guaranteed; all that can run unless
        said. Differences are to the first of them.
    rerank: runs every arm a second time, reranked.
    document_field: of an index whose documents are parts of larger ones: the field that names the whole. The golden ids
        are of wholes then, and of one whole the best part counts.
    tune: also looks for the alpha of linear, the weights of rrf and their depth, of those two that are among the arms,
        on about half of the queries, and reports them on the others.
    compare: an older report, from ``read_report``. on_query: told how many queries are done.
    A query that fails, or of whose two channels one fails, counts 0 and is listed. Each arm asks for max(ks and
    authority_window) documents.
    Raises InvalidInput for what cannot be evaluated, MissingExtra without the extra ``eval``, ServerError.
    """
    if not isinstance(golden, Golden):
        raise InvalidInput(f"golden: a Golden expected, from read_golden, not {golden!r:.80}")
    cuts = _cuts(ks)
    check_int("authority_window", authority_window, 1_000)
    check_bool("tune", tune)
    if rerank is not None and not callable(rerank):
        raise InvalidInput(f"rerank: a function (text, hits) expected, not {rerank!r:.80}")
    before = None if compare is None else _older(compare)
    target = target_of(searched, document_field)
    chosen, notes = arms_of(target, arms, rerank)
    fusions = [arm.name for arm in chosen if arm.name in TUNABLE]
    if tune:
        check_tunable(target, golden.questions)
        if not fusions:
            raise InvalidInput(f"tune: {' and '.join(TUNABLE)} are what is tuned, and neither is among the arms")
    intervals([[0.0, 1.0]])  # a missing package is said now, not after the last query
    size = target.documents()
    if not size:
        raise InvalidInput(f"{target.name} is empty: there is nothing to find")
    notes = [*golden.notes, *notes, *_unknown(target, golden.questions)]
    if target.has_vectors:
        unlike = target.check_embedder(golden.questions[0].query)
        notes = [*notes, unlike] if unlike else notes

    wanted = max(*cuts, authority_window)
    logs = _asked(golden.questions, chosen, wanted, on_query)
    results = tuple(_result(log, golden.questions, cuts, authority_window) for log in logs)
    if all(len(each.failed) == len(golden.questions) for each in results):
        raise ServerError(f"every query failed in every arm; the first: {next(iter(results[0].failed.values()))}")
    headline = f"nDCG@{max(cuts)}"
    report = Report(
        when=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        target=target.name,
        size=size,
        golden=golden.source,
        ks=cuts,
        authority_window=authority_window,
        wanted=wanted,
        headline=headline,
        questions=golden.questions,
        arms=results,
        differences=_differences([(each, against) for each, against in _pairs(results)]),
        texts=tuple(logs[0].pool),
    )
    if target.has_words and target.has_vectors:
        rows, said = budgets(target, golden.questions)
        report, notes = replace(report, budgets=rows), [*notes, *said]
    if tune:
        tuning, said = tuned(target, golden.questions, wanted, max(cuts), fusions)
        report, notes = replace(report, tuning=tuning), [*notes, *said]
    if before is not None:
        differences, said = _compared(report, before)
        report, notes = replace(report, compared=differences, compared_with=before.name), [*notes, *said]
    return replace(report, notes=tuple(notes))


def _cuts(ks: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(ks, Sequence) or isinstance(ks, str) or not ks:
        raise InvalidInput(f"ks: at least one k expected, not {ks!r:.80}")
    return tuple(sorted({check_int("k", k, 1_000) for k in ks}))


def _unknown(target: Target, questions: Sequence[Question]) -> list[str]:
    """What the golden queries name and the target does not have."""
    named = list(dict.fromkeys(id for each in questions for id in (*each.relevant, *each.noise)))
    missing = set(target.unknown(named))
    answers = {id: None for each in questions for id, gain in each.relevant.items() if gain}  # an ordered set
    notes = []
    for ids, what in (
        (list(answers), "that should be found"),
        ([id for id in named if id not in answers], "that should not be found"),
    ):
        lost = [id for id in ids if id in missing]
        if lost:
            more = ", ..." if len(lost) > NAMED else ""
            said = f"{', '.join(map(repr, lost[:NAMED]))}{more}"
            notes.append(f"{len(lost)} of {len(ids)} ids {what} are not in {target.name}: {said}")
    return notes


# --- asking ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Log:
    """What one arm answered. pool: text -> its number, of all arms: they mostly find the same."""

    arm: Arm
    pool: dict[str, int] = field(default_factory=dict)
    rankings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    shown: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def ask(self, question: Question, wanted: int) -> None:
        """Ask one query, and remember what became of it."""
        begun = time.perf_counter()
        try:
            answer = self.arm.ask(question, wanted)
        except Exception as error:  # the user's reranker or embedder may raise anything
            self.failed[question.id] = why(error)
            return
        self.seconds.append(time.perf_counter() - begun)
        ids = answer.ids[:wanted]
        self.rankings[question.id] = ids
        self.shown[question.id] = tuple(self.pool.setdefault(answer.texts[id], len(self.pool)) for id in ids)
        if not answer.complete:
            self.incomplete[question.id] = "; ".join(answer.reasons)


def _asked(
    questions: Sequence[Question], arms: Sequence[Arm], wanted: int, on_query: Callable[[int], Any] | None
) -> list[_Log]:
    for arm in arms:  # models are loaded and connections made before anything is timed
        try:
            arm.ask(questions[0], wanted)
        except MissingExtra:  # a reranker's: so at every query
            raise
        except Exception:  # counted where it is asked in earnest
            continue
    pool: dict[str, int] = {}
    logs = [_Log(arm, pool) for arm in arms]
    for done, question in enumerate(questions):
        first = done % len(logs)
        for log in (*logs[first:], *logs[:first]):
            log.ask(question, wanted)
        if on_query is not None:
            on_query(done + 1)
    return logs


# --- counting -------------------------------------------------------------------------------------


def _result(log: _Log, questions: Sequence[Question], ks: Sequence[int], window: int) -> ArmResult:
    values = measured(questions, log.rankings, ks=ks, window=window, failed=log.failed)
    summary = dict(zip(values, intervals([list(each.values()) for each in values.values()]), strict=True))
    p50, p95 = (float(np.percentile(log.seconds, at)) * 1000 if log.seconds else None for at in (50, 95))
    return ArmResult(
        log.arm.name,
        log.arm.what,
        log.arm.reranked,
        values,
        summary,
        p50,
        p95,
        dict(log.failed),
        dict(log.incomplete),
        dict(log.rankings),
        dict(log.shown),
    )


def _pairs(arms: Sequence[ArmResult]) -> list[tuple[ArmResult, ArmResult]]:
    """Each arm and the first; each reranked one and itself without."""
    first = arms[0]
    plain = {arm.name: arm for arm in arms if not arm.reranked}
    pairs = [(arm, first) for arm in arms[1:] if not arm.reranked]
    return pairs + [(arm, plain[arm.name.removesuffix("+rerank")]) for arm in arms if arm.reranked]


def _differences(pairs: Sequence[tuple[ArmResult, ArmResult]]) -> tuple[Difference, ...]:
    named = [(arm.name, against.name, name) for arm, against in pairs for name in arm.values]
    samples = [
        [value - against.values[name][id] for id, value in arm.values[name].items()]
        for arm, against in pairs
        for name in arm.values
    ]
    return _told(named, samples)


def _told(named: Sequence[tuple[str, str, str]], samples: Sequence[Sequence[float]]) -> tuple[Difference, ...]:
    return tuple(
        Difference(
            arm,
            against,
            measure,
            interval,
            sum(better(measure, each) for each in sample),
            sum(better(measure, -each) for each in sample),
        )
        for (arm, against, measure), sample, interval in zip(named, samples, intervals(samples), strict=True)
    )


# --- comparing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Older:
    """What is compared of an older report. judged: query id -> what was asked, and how it is judged."""

    name: str
    judged: Mapping[str, Mapping[str, Any]]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    authority_window: int
    wanted: int


def _older(report: Mapping[str, Any]) -> _Older:
    """An older report, read before anything is asked: it may be of another program, or changed by hand."""
    try:
        return _Older(
            f"{report['when']}, {report['target']}",
            {each["id"]: _judged(each) for each in report["questions"]},
            {
                arm["name"]: {
                    measure: {id: _number(value) for id, value in each.items()}
                    for measure, each in arm["values"].items()
                }
                for arm in report["arms"]
            },
            report["authority_window"],
            report["wanted"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInput(f"compare: no report of `retriever eval`: {error!r}") from None


def _number(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is no value of a measure")
    return float(value)


def _judged(entry: Mapping[str, Any]) -> dict[str, Any]:
    asked = {name: entry.get(name) for name in ("filter", "relevant", "authority", "noise")}
    return {**asked, "query": " ".join(entry["query"].split())}


def _compared(report: Report, older: _Older) -> tuple[tuple[Difference, ...], list[str]]:
    """This report minus an older one, on the queries that both judge alike; and what could not be compared."""
    # As they are once written: JSON has no tuples.
    now = {each.id: _judged(json.loads(json.dumps(each.to_dict()))) for each in report.questions}
    before, theirs = older.judged, older.values
    both = [id for id in now if before.get(id) == now[id]]
    notes = []
    for count, what in (
        (sum(id not in before for id in now), "of the queries are new"),
        (sum(id not in now for id in before), "of the older report's queries are no longer asked"),
        (sum(id in before and before[id] != now[id] for id in now), "of the queries are judged otherwise now"),
    ):
        if count:
            notes.append(f"compared: {count} {what}; they are not in the comparison")
    arms = {arm.name: arm.values for arm in report.arms}
    lone = sorted(arms.keys() ^ theirs.keys())
    if lone:
        notes.append(f"compared: arms of one report alone: {', '.join(lone)}")
    unlike = {AUTHORITY_FOUND, AUTHORITY_RANK} if older.authority_window != report.authority_window else set()
    unlike |= {MRR} if older.wanted != report.wanted else set()
    if unlike:  # their worst value, or where they stop looking, was another
        notes.append(f"compared: not by {', '.join(sorted(unlike))}: the older report looked to another depth")
    named, samples = [], []
    for arm in (each for each in arms if each in theirs):
        for measure in (each for each in arms[arm] if each in theirs[arm] and each not in unlike):
            ours, old = arms[arm][measure], theirs[arm][measure]
            ids = [id for id in both if id in ours and id in old]
            if ids:
                named.append((arm, "before", measure))
                samples.append([ours[id] - old[id] for id in ids])
    if not samples:
        notes.append("compared: the two reports have nothing in common")
    return _told(named, samples), notes
