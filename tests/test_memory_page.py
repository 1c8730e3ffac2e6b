"""docs/memory.md shows fields, formulas, half-lives, commands and methods as they are."""

from __future__ import annotations

import math
import re
from inspect import getmembers, isfunction
from pathlib import Path

import pytest

from retriever.memory import MemoryStore, Policy
from retriever.memory.chunks import FIELDS, SETTABLE, Chunk
from retriever.memory.policy import DAY_S, HALF_LIVES, judge, memory_score

PAGE = (Path(__file__).parents[1] / "docs" / "memory.md").read_text(encoding="utf-8")
BEGIN, END = "<!-- the fields -->\n", "<!-- end of the fields -->\n"
NOW = 1_785_254_389.0


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_fields_are_those_of_a_chunk():
    """Every field in its order, with its kind and whether the user sets it; no other (B1)."""
    header, _, *rows = [cells(line) for line in PAGE.partition(BEGIN)[2].partition(END)[0].strip().splitlines()]
    assert header[:3] == ["field", "kind", "set by"]
    expected = [
        [
            f"`{each.name}`",
            f"{type(each).__name__}{', many' if getattr(each, 'many', False) else ''}",
            "you" if each.name in SETTABLE | {"metadata"} else "the store",
        ]
        for each in FIELDS
    ]
    assert [row[:3] for row in rows] == expected
    assert all(len(row) == 4 and row[3] for row in rows)


def test_the_half_lives_are_those_of_the_policy():
    """A row for each kind, with its days, and one for none."""
    rows = [cells(line) for line in PAGE.splitlines() if re.match(r"\| (`\w+`|none) \| (none|\d+) \|", line)]
    shown = {kind.strip("`"): None if days == "none" else float(days) for kind, days, _ in rows}
    assert shown == {**HALF_LIVES, "none": None}


def formula(name):
    """A formula of the page, as a function of its letters."""
    text = re.search(rf"^{name} = (.+)$", PAGE, re.MULTILINE)[1]
    code = compile(text.replace("^", "**"), name, "eval")
    return lambda **letters: eval(code, {"ln": math.log, "min": min, **letters})


@pytest.mark.parametrize("uses", [0, 1, 37, 100, 5000])
@pytest.mark.parametrize("days", [0, 30, 400])
@pytest.mark.parametrize(("wt", "wf"), [(0.5, 0.1), (1.0, 0.0), (0.0, 2.0), (0.25, 1.0)])
def test_the_formulas_are_those_of_the_policy(uses, days, wt, wf):
    """What the page says of a search and of forgetting, computed, is what comes out."""
    chunk = Chunk("a/b/0", "a", 0, "text", knowledge_type="news", access_count=uses, source_date=NOW - days * DAY_S)
    policy = Policy(time_weight=wt, freq_weight=wf, forget_time_weight=wt)
    letters = {"wt": wt, "wf": wf, "n": uses, "age": days, "H": 30.0}
    assert memory_score(0.7, chunk, policy, NOW) == pytest.approx(formula("memory_score")(relevance=0.7, **letters))
    assert judge(chunk, policy, NOW).score == pytest.approx(formula("score")(**letters))


def test_the_numbers_of_the_text_are_the_defaults():
    """Weights, thresholds and limits, as the text has them, and after how many days unread chunks go."""
    usual = Policy()
    for said in (
        f"`importance_threshold` ({usual.importance_threshold};",
        f"`time_weight` ({usual.time_weight})",
        f"`freq_weight` ({usual.freq_weight})",
        f"`forget_time_weight` ({usual.forget_time_weight})",
        f"`score_threshold` ({usual.score_threshold})",
        f"the {usual.guaranteed_limit} nearest chunks",
        f"rated {usual.guaranteed_importance} or more",
    ):
        assert said in " ".join(PAGE.split()), said
    (news, experiment, paper) = map(
        int, re.search(r"news after (\d+) days, experiments after (\d+), papers after (\d+)", PAGE).groups()
    )
    for kind, days in {"news": news, "experiment": experiment, "paper": paper}.items():
        told = [
            judge(Chunk("a/b/0", "a", 0, "x", knowledge_type=kind, created_at=NOW - each * DAY_S), usual, NOW).reason
            for each in (days - 1, days)
        ]
        assert told[0] is None
        assert told[1] is not None


def test_every_command_is_on_the_page():
    """Each command of ``retriever memory`` stands there with what it needs, to be run."""
    pytest.importorskip("typer")
    from retriever.memory_cli import app

    shown = set(re.findall(r"^retriever memory ([\w-]+)", PAGE, re.MULTILINE))
    assert shown == {command.name for command in app.registered_commands}


def test_every_method_is_on_the_page():
    """Nothing that a store does is left out."""
    methods = [name for name, _ in getmembers(MemoryStore, isfunction) if not name.startswith("_")]
    assert [name for name in methods if f"{name}(" not in PAGE and f"`{name}`" not in PAGE] == []
