"""What an evaluation found: as values, as JSON that a later one is compared with, and in Markdown.

The JSON has every query's value of every measure and the ids that each arm found, so that nothing has to be run again
to look closer. It holds the queries and the beginnings of the texts found: it is as private as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fields.errors import InvalidInput
from retriever.evaluation.golden import Question
from retriever.evaluation.measures import Interval, better, is_lower_better, signed

__all__ = ["ArmResult", "Budget", "Difference", "Report", "Tuned", "Tuning", "by_category", "read_report"]

FORMAT = 1
SHOWN = 10  # worst queries, failures and the like, in Markdown; JSON and page have all


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm's results.

    values: measure -> query id -> value. summary: measure -> mean and interval. p50_ms, p95_ms: of one query, with its
    embedding and reranking, of those that were answered; None where none was. failed: query id -> why; each counts 0.
    incomplete: query id -> what its answer may lack. rankings: query id -> document ids, best first; shown: for each of
    these the number of the text that it was found by, among the report's texts.
    """

    name: str
    what: str
    reranked: bool
    values: Mapping[str, Mapping[str, float]]
    summary: Mapping[str, Interval]
    p50_ms: float | None
    p95_ms: float | None
    failed: Mapping[str, str]
    incomplete: Mapping[str, str]
    rankings: Mapping[str, Sequence[str]]
    shown: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Difference:
    """``arm`` minus ``against`` on the same queries: mean and interval, and how many queries became better or worse."""

    arm: str
    against: str
    measure: str
    interval: Interval
    better: int
    worse: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        low, high = self.interval.low, self.interval.high
        return low is not None and high is not None and (low > 0 or high < 0)

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.is_clear:
            return "not clear"
        return "better" if better(self.measure, self.interval.mean) else "worse"


@dataclass(frozen=True, slots=True)
class Budget:
    """Recall of one way to fill a budget of results, over one category. against: what the difference is to."""

    way: str
    category: str
    recall: Interval
    against: str
    difference: Interval


@dataclass(frozen=True, slots=True)
class Tuned:
    """One fusion as tuned: the default and the best found on the train split, both as they do on the held-out split."""

    fusion: str
    default: str
    chosen: str
    train_default: float
    train_chosen: float
    held_out_default: Interval
    held_out_chosen: Interval
    difference: Interval


@dataclass(frozen=True, slots=True)
class Tuning:
    """What tuning found. measure: what was looked at. train, held_out: ids of queries; no id is in both."""

    measure: str
    train: tuple[str, ...]
    held_out: tuple[str, ...]
    tried: int
    results: tuple[Tuned, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """An evaluation.

    when: ISO 8601, UTC. target: what was evaluated; size: documents or chunks in it; golden: where the queries are
    from. wanted: documents that were asked for per query. headline: the measure that a table of one column shows.
    differences: of each arm to the first one, and of each reranked arm to itself without. compared: to an older report.
    texts: the beginnings of the texts that were found. notes: what was left out, and what to know.
    """

    when: str
    target: str
    size: int
    golden: str
    ks: tuple[int, ...]
    authority_window: int
    wanted: int
    headline: str
    questions: tuple[Question, ...]
    arms: tuple[ArmResult, ...]
    differences: tuple[Difference, ...]
    budgets: tuple[Budget, ...] = ()
    tuning: Tuning | None = None
    compared: tuple[Difference, ...] = ()
    compared_with: str | None = None
    notes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def measures(self) -> list[str]:
        """The measures that some arm has, in their order."""
        return list(self.arms[0].summary)

    @property
    def k(self) -> str:
        """The k of the headline."""
        return self.headline.partition("@")[2]

    @property
    def shown(self) -> list[str]:
        """The measures of a table that has room for one k: the headline's."""
        return [name for name in self.measures if "@" not in name or name.endswith(f"@{self.k}")]

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {
            "format": FORMAT,
            **{
                name: getattr(self, name) for name in ("when", "target", "size", "golden", "authority_window", "wanted")
            },
            "ks": list(self.ks),
            "headline": self.headline,
            "notes": list(self.notes),
            "questions": [question.to_dict() for question in self.questions],
            "arms": [asdict(arm) for arm in self.arms],
            "differences": [_told(each) for each in self.differences],
            "budgets": [asdict(each) for each in self.budgets],
            "tuning": None if self.tuning is None else asdict(self.tuning),
            "compared_with": self.compared_with,
            "compared": [_told(each) for each in self.compared],
            "texts": list(self.texts),
        }

    def markdown(self) -> str:
        """The tables, for people and for a pull request."""
        return "\n".join(_markdown(self))

    def html(self) -> str:
        """One page that needs no network: tables, plots, and every query."""
        from retriever.evaluation.page import page

        return page(self)

    def write(self, folder: str | Path = ".") -> tuple[Path, Path, Path]:
        """Write ``eval_report_DATE.md``, ``.json`` and ``.html``; a day's second one is numbered. The three paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        stem, number = f"eval_report_{self.when[:10]}", 1
        while any((folder / f"{stem}.{kind}").exists() for kind in ("md", "json", "html")):
            number += 1
            stem = f"eval_report_{self.when[:10]}_{number}"
        told = json.dumps(self.to_dict(), ensure_ascii=False, indent=1)
        texts = {"md": self.markdown(), "json": told, "html": self.html()}  # all, before any is written
        for kind, text in texts.items():
            (folder / f"{stem}.{kind}").write_bytes(text.encode(errors="backslashreplace"))
        return folder / f"{stem}.md", folder / f"{stem}.json", folder / f"{stem}.html"


def _told(difference: Difference) -> dict[str, Any]:
    return {**asdict(difference), "verdict": difference.verdict}


def read_report(path: str | Path) -> dict[str, Any]:
    """The JSON of an older report. Raises InvalidInput for anything else."""
    try:
        report = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: no JSON: {error}") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise InvalidInput(f"{path}: no report of `retriever eval`; it is the .json beside the page")
    return report


# --- Markdown -------------------------------------------------------------------------------------


def _markdown(report: Report) -> list[str]:
    lines = [
        f"# Evaluation of {_cell(report.target)}",
        "",
        f"{report.when}. {len(report.questions):,} golden queries of {_cell(report.golden)} against {report.size:,} "
        f"documents or chunks; {report.wanted} documents asked for per query. In brackets: 95 % bootstrap intervals.",
        "",
    ]
    head = ["arm", *map(_headed, report.shown), "p50 ms", "p95 ms", "failed"]
    rows = [
        [
            arm.name,
            *(str(arm.summary[name]) for name in report.shown),
            milliseconds(arm.p50_ms),
            milliseconds(arm.p95_ms),
            str(len(arm.failed)),
        ]
        for arm in report.arms
    ]
    lines += ["## Arms", "", *_table(head, rows)]
    lines += [f"* `{arm.name}`: {_cell(arm.what)}" for arm in report.arms]
    others = [name for name in report.measures if name not in report.shown]
    if others:
        rows = [[arm.name, *(f"{arm.summary[name].mean:.3f}" for name in others)] for arm in report.arms]
        lines += ["", "### At other k", "", *_table(["arm", *map(_headed, others)], rows)]
    for title, differences in (
        ("Differences", report.differences),
        (f"Compared with {_cell(report.compared_with or '')}", report.compared),
    ):
        main = (report.headline, f"R@{report.k}", "MRR", "authority rank")
        told = [each for each in differences if each.measure in main]
        if told:
            head = ["arm", "against", "measure", "difference", "better", "worse", ""]
            rows = [
                [
                    each.arm,
                    each.against,
                    _headed(each.measure),
                    signed(each.interval),
                    str(each.better),
                    str(each.worse),
                    each.verdict,
                ]
                for each in told
            ]
            lines += ["", f"## {title}", "", *_table(head, rows)]
    if report.budgets:
        ways = list(dict.fromkeys(each.way for each in report.budgets))
        rows = [
            [_cell(category), str(found[0].recall.count), *(_budget(each) for each in found)]
            for category, found in by_category(report.budgets).items()
        ]
        cells = f"In each cell the recall, then the difference to {report.budgets[0].against} on the same queries."
        lines += ["", "## Recall at an equal budget", "", cells, "", *_table(["category", "queries", *ways], rows)]
    if report.tuning is not None:
        lines += ["", *_tuning(report.tuning)]
    lines += ["", *_worst(report)]
    said = [*report.notes, *_failures(report)]
    if said:
        lines += ["", "## Notes", "", *(f"* {_cell(note)}" for note in said)]
    return [*lines, ""]


def by_category(budgets: Sequence[Budget]) -> dict[str, list[Budget]]:
    """Category -> its row of the equal-budget table."""
    rows: dict[str, list[Budget]] = {}
    for each in budgets:
        rows.setdefault(each.category, []).append(each)
    return rows


def _budget(budget: Budget) -> str:
    moved = "the same" if budget.difference.is_zero else signed(budget.difference)
    return f"{budget.recall.mean:.3f}" + ("" if budget.way == budget.against else f" ({moved})")


def _tuning(tuning: Tuning) -> list[str]:
    head = ["fusion", "default", "chosen", "default, held out", "chosen, held out", "difference"]
    rows = [
        [
            each.fusion,
            each.default,
            each.chosen,
            str(each.held_out_default),
            str(each.held_out_chosen),
            signed(each.difference),
        ]
        for each in tuning.results
    ]
    said = (
        f"{tuning.measure}; chosen of {tuning.tried} settings on {len(tuning.train)} queries, and reported on the "
        f"{len(tuning.held_out)} others."
    )
    return ["## Tuning", "", said, "", *_table(head, rows)]


def _worst(report: Report) -> list[str]:
    """The queries that the best arm answers worse than the first one; the worst ones where the first is the best."""
    measure = report.headline
    first, best = report.arms[0], max(report.arms, key=lambda arm: arm.summary[measure].mean)
    before, after = first.values[measure], best.values[measure]
    if first is best:
        chosen = sorted(report.questions, key=lambda each: before[each.id])[:SHOWN]
        rows = [[_cell(each.query), f"{before[each.id]:.3f}"] for each in chosen]
        return [f"## What {first.name} answers worst", "", *_table(["query", measure], rows)]
    moved = {each.id: after[each.id] - before[each.id] for each in report.questions}
    fell = [each for each in sorted(report.questions, key=lambda each: moved[each.id]) if moved[each.id] < 0]
    rows = [
        [_cell(each.query), f"{before[each.id]:.3f}", f"{after[each.id]:.3f}", f"{moved[each.id]:+.3f}"]
        for each in fell[:SHOWN]
    ]
    head = ["query", first.name, best.name, measure]
    title = f"## What {best.name} answers worse than {first.name}"
    return [title, "", *(_table(head, rows) if rows else ["Nothing."])]


def _failures(report: Report) -> list[str]:
    asked = {question.id: question.query for question in report.questions}
    said = []
    for arm in report.arms:
        for what, found in (("failed", arm.failed), ("may lack hits", arm.incomplete)):
            said += [f"{arm.name} {what} at {asked[id]!r:.80}: {why}" for id, why in list(found.items())[:SHOWN]]
            if len(found) > SHOWN:
                said.append(f"{arm.name} {what} at {len(found) - SHOWN} more")
    return said


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)] + [""]


def _cell(text: str) -> str:
    """A text that stays within its cell and makes no markup of its own."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#!" else char for char in flat[:200])


def _headed(measure: str) -> str:
    return f"{measure} (less is better)" if is_lower_better(measure) else measure


def milliseconds(value: float | None) -> str:
    """As a cell shows them."""
    return "" if value is None else f"{value:.1f}"
