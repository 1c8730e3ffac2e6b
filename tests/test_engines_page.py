"""docs/engines.md shows the table of retriever/engines.py as it is; ``python -m tests.test_engines_page`` writes it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from retriever.engines import ENGINES, NO_ENGINE, Engine

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"
BEGIN, END = "<!-- the table: generated -->\n", "<!-- end of the table -->\n"

# Column -> what the page calls it, in the page's order.
LABELS = {
    "seen": "seen",
    "text": "TEXT fields",
    "weight": "TEXT takes a WEIGHT",
    "scores_text": "asked to rank a text's matches",
    "filter_alone": "filter without a vector",
    "skip_initial_scan": "SKIPINITIALSCAN",
    "hash_tags": "hash tag in a prefix",
    "any_database": "databases other than 0",
    "covers_cluster": "one query covers a cluster",
    "local_info": "FT.INFO tells of one node",
    "knn_ordered": "KNN rows nearest first",
    "drop_documents": "FT.DROPINDEX ... DD",
    "script_replace": "a script replaces faster",
    "count_limit": "stops counting at",
    "max_k": "k",
    "max_ef_runtime": "EF_RUNTIME",
    "max_timeout_ms": "TIMEOUT, ms",
    "max_dims": "dimensions",
    "max_fields": "fields of an index",
    "max_text_fields": "TEXT fields of an index",
    "max_prefixes": "prefixes of an index",
    "max_query_bytes": "bytes of a query",
    "max_union": "conditions of a query",
}


def cell(value: object) -> str:
    """One value as the page writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def table() -> str:
    """The table: a line for each column of engines.py, a column for each row, and one for a server without any."""
    lines = [["", *(row.name for row in ENGINES), NO_ENGINE]]
    lines += [[label, *(cell(getattr(row, name)) for row in ENGINES), "-"] for name, label in LABELS.items()]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_the_page_shows_the_table_as_it_is():
    """The page's table is the code's; ``python -m tests.test_engines_page`` writes it anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == f"\n{table()}\n"


def test_every_column_is_on_the_page():
    """No column is known to the code alone."""
    assert LABELS.keys() == {column.name for column in fields(Engine)} - {"name"}


@pytest.mark.parametrize("row", [row for row in ENGINES if not row.seen.startswith("tried")], ids=lambda row: row.name)
def test_what_was_not_tried_has_its_source(row):
    """A row that was only read has a section that says where."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {row.name}\n")[2].partition("\n## ")[0]
    assert "https://" in section


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n{table()}\n{END}{tail}", encoding="utf-8")
