"""How hits, facts and progress look on a terminal, what is said there, and what is asked.

Rule: what a document says is text and nothing else; no markup, no control character of it reaches the terminal.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text as Line

from retriever.documents import FusedHit, Hit, Hits

WIDTH = 100  # without a terminal


def table_console() -> Console:
    """A console for tables: as wide as the terminal, within 60 and 120; 100 columns without a terminal."""
    console = Console(highlight=False)
    console.width = max(60, min(console.width, 120)) if console.is_terminal else WIDTH
    return console


def hits_table(hits: Hits[Hit] | Hits[FusedHit], *, width: int, title: str | None, fields: Sequence[str]) -> Table:
    """A few lines a hit: distance and id beside title, text and fields; the reranker's number if it gave one.

    A fused hit has its fused score for a distance, and a line that says why it is there.

    title: a field shown in bold above the text. fields: names shown as name=value below it.
    """
    table = bare_table(width)
    reranked = any(hit.rerank_score is not None for hit in hits)
    if reranked:
        table.add_column("rerank", justify="right", style="magenta")
    fused = any(isinstance(hit, FusedHit) for hit in hits)
    table.add_column("fused" if fused else "distance", justify="right", style="cyan", min_width=8)
    id_width = max(2, min(max(len(hit.id) for hit in hits), width // 4))
    table.add_column("id", style="green", width=id_width, no_wrap=True)
    text_width = width - id_width - (22 if reranked else 14)  # 6 and 8 for the numbers, 2 between columns
    table.add_column("text and fields", width=text_width)
    for hit in hits:
        rerank = ("" if hit.rerank_score is None else f"{hit.rerank_score:g}",) if reranked else ()
        lines = Line()
        if title is not None and title in hit.fields:
            lines.append(f"{plain(str(hit.fields[title]))}\n", style="bold")
        lines.append("\n".join(textwrap.wrap(plain(hit.text), text_width, max_lines=2, placeholder=" ...")))
        shown = "  ".join(f"{name}={plain(_value(hit.fields[name]))}" for name in fields if name in hit.fields)
        lines.append(f"\n{shown}" if shown else "", style="dim")
        score = number(hit.score) if isinstance(hit, Hit) else f"{hit.fused_score:.4f}"
        if isinstance(hit, FusedHit):
            lines.append(f"\n{why(hit)}", style="cyan")
        table.add_row(*rerank, score, Line(plain(hit.id)), lines)
    return table


def why(hit: FusedHit) -> str:
    """What ``explain()`` says of a hit beside its id and score, in one line."""
    lines = hit.explain()[len(hit.id) :].splitlines()[1:]  # an id may hold line breaks
    return plain("; ".join(map(str.strip, lines)))


def plain(text: str) -> str:
    """One line that cannot steer a terminal: documents may come from anywhere."""
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))


def _value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def number(distance: float) -> str:
    """A distance, short."""
    return f"{distance:.3f}".replace("-0.000", "0.000")  # an engine's rounding may leave -1e-7


def bare_table(width: int | None) -> Table:
    """A table without lines; width None is as wide as its columns."""
    return Table(box=None, padding=(0, 2, 0, 0), width=width, header_style="dim")


def print_facts(console: Console, *facts: tuple[str, str]) -> None:
    """Names beside values, one pair a line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in facts:
        table.add_row(name, Line(value))
    console.print(table)


@contextmanager
def progress(
    console: Console, total: int | None, doing: str = "embedding and writing"
) -> Iterator[Callable[[int, str], None]]:
    """A bar while something is done, in a terminal only; gives what is told how much is done, and in words."""
    bar = Progress(
        TextColumn(doing),
        BarColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total, said="")
        yield lambda done, said: bar.update(task, completed=done, said=said)


def discreet(said: str) -> str:
    """A message without user and password of a URL."""
    return re.sub(r"(?<=password=)[^&\s]+", "***", re.sub(r"(?<=://)\S*@", "***@", said))


def say(sentence: str) -> None:
    """One line on stderr, without secrets."""
    sys.stderr.write(f"retriever: {discreet(' '.join(sentence.split()))}\n")


def print_json(value: object) -> None:
    """One line of JSON on stdout."""
    line = json.dumps(value, ensure_ascii=False)
    typer.echo(line.encode(errors="backslashreplace").decode())  # a file's name may hold what is no UTF-8


def asker(*, silent: bool) -> Callable[[str], object]:
    """What asks at the terminal and ends the command on a no; a usage error where nobody could answer."""
    if silent:
        return str
    if not sys.stdin.isatty():
        raise typer.BadParameter("needed where there is no terminal to ask at", param_hint="--yes")
    return lambda question: typer.confirm(question, abort=True, err=True)
