"""The page of a report: one file that needs no network, with plots, and every query to click through to.

Rule: queries and documents are hostile text. Tables are escaped by the template, data go in as JSON in which no ``<``
stands, the script only ever sets ``textContent``, and the browser runs no script but the page's own two (a nonce in its
content security policy). Plots are given numbers and names of arms, never a query's text.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from retriever.errors import MissingExtra
from retriever.evaluation.golden import EXTRA
from retriever.evaluation.measures import is_lower_better, signed

if TYPE_CHECKING:
    from retriever.evaluation.report import ArmResult, Report

__all__ = ["packages", "page"]

_HERE = Path(__file__).parent


def packages() -> SimpleNamespace:
    """What a page is made with. Raises MissingExtra without the extra ``eval``."""
    try:
        import jinja2
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra(f"the page of a report needs jinja2 and plotly ({error}); {EXTRA}") from error
    return SimpleNamespace(jinja2=jinja2, Markup=Markup, get_plotlyjs=get_plotlyjs)


def page(report: Report) -> str:
    """The HTML of a report. Raises MissingExtra without the extra ``eval``."""
    from retriever.evaluation.report import by_category, milliseconds

    made = packages()
    environment = made.jinja2.Environment(
        loader=made.jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=made.jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}  # measures and arms have an order
    environment.filters |= {"interval": str, "signed": signed, "ms": milliseconds}
    text: str = environment.get_template("page.html").render(
        report=report,
        budgets=by_category(report.budgets),
        data=_data(report),
        shown=report.shown,
        lower=is_lower_better,
        nonce=secrets.token_urlsafe(16),
        style=made.Markup((_HERE / "page.css").read_text("utf-8")),
        script=made.Markup((_HERE / "page.js").read_text("utf-8")),
        plotly=made.Markup(made.get_plotlyjs()),
    )
    return text


def _data(report: Report) -> dict[str, Any]:
    """What the script draws from: lists of a value for each question, in their order."""
    pool: dict[str, int] = {}  # document id -> its number: arms mostly find the same

    def told(arm: ArmResult) -> dict[str, Any]:
        asked = [question.id for question in report.questions]
        values = {
            name: [round(each[id], 5) if id in each else None for id in asked] for name, each in arm.values.items()
        }
        found = [[pool.setdefault(each, len(pool)) for each in arm.rankings.get(id, ())] for id in asked]
        return {
            "name": arm.name,
            "p50_ms": arm.p50_ms,
            "p95_ms": arm.p95_ms,
            "summary": {name: asdict(each) for name, each in arm.summary.items()},
            "values": values,
            "found": found,
            "shown": [arm.shown.get(id, ()) for id in asked],
            "failed": [arm.failed.get(id) for id in asked],
            "incomplete": [arm.incomplete.get(id) for id in asked],
        }

    return {
        "headline": report.headline,
        "lower": [name for name in report.measures if is_lower_better(name)],
        "questions": [question.to_dict() for question in report.questions],
        "arms": [told(arm) for arm in report.arms],
        "ids": list(pool),
        "texts": report.texts,
    }
