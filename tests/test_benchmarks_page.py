"""docs/benchmarks.md and docs/scale.md have the shape of what their scripts write; the figures are a run's own."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.strategies import AWKWARD

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def scripts():
    """Name -> the script as a module; they find each other in their own folder."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield {name: module(name) for name in ("harness", "peers", "scale")}
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
        for name in ("harness", "peers", "scale"):
            sys.modules.pop(name, None)


def module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def generated(harness, page):
    """What stands between the marks of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert (text.count(harness.BEGIN), text.count(harness.END)) == (1, 1)
    return text.partition(harness.BEGIN)[2].partition(harness.END)[0]


def tables(text):
    """(title of the section, head, rows) of each table."""
    found = []
    for part in re.finditer(r"(?:^### ([^\n]+)\n(?:(?!\|).*\n)*)?((?:^\|.*\n)+)", text, re.MULTILINE):
        head, _, *rows = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in part[2].splitlines()
        ]
        found.append((part[1], head, rows))
    return found


def about(text):
    """What the list before the tables tells: name -> value."""
    return dict(re.findall(r"^\* ([A-Z]\w+): (.+)$", text, re.MULTILINE))


def test_the_page_of_benchmarks_has_the_tables_of_the_script(scripts):
    """Every table with its columns, every library in it, in order; where, when and how; no cell of a name is empty."""
    peers, text = scripts["peers"], generated(scripts["harness"], "benchmarks.md")
    shown = tables(text)
    assert [(title, tuple(head)) for title, head, _ in shown] == list(peers.TABLES.items())
    for title, head, rows in shown:
        assert list(dict.fromkeys(row[0] for row in rows)) == list(peers.SIDES), title
        assert all(len(row) == len(head) and row[1] for row in rows), title
        assert peers.NOT_INSTALLED not in str(rows), title
    told = about(text)
    assert told.keys() == {"Date", "Machine", "Engine", "Command", "Sizes"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", told["Date"])
    assert "load average" in told["Machine"]
    assert told["Command"].startswith("`python benchmarks/peers.py")


def test_the_page_of_scale_has_the_table_of_the_script(scripts):
    """A line for each size that was measured, the arithmetic behind it, and the picture that goes with it."""
    scale, text = scripts["scale"], generated(scripts["harness"], "scale.md")
    (_, head, rows), (title, grown, lines) = tables(text)
    assert (tuple(head), tuple(grown)) == (scale.MEASURED, scale.GROWN)
    assert title == "Larger sizes, by arithmetic"
    assert {"10,000 x 384", "50,000 x 384", "200,000 x 384"} <= {row[0] for row in rows}
    assert all(all(row) and len(row) == len(head) for row in rows)
    assert len({tuple(row[:2]) for row in lines}) == len(lines) > 1
    assert about(text).keys() == {"Date", "Machine", "Engine", "Command", "Asked"}
    picture = (DOCS / "images" / "scale.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_awkward_tags_are_those_of_the_property_tests(scripts):
    """No value is left out of the comparison."""
    assert scripts["peers"].AWKWARD == AWKWARD


def test_a_run_without_the_other_libraries_has_their_rows(scripts):
    """A library that is not installed is a row that says so, in its place, as wide as the others."""
    peers = scripts["peers"]
    rows = peers.with_missing("Loading", [[peers.OURS, "1", "2", "3", "4"], [peers.RAW, "1", "", "3", ""]])
    assert [row[:2] for row in rows] == [
        [peers.RAW, "1"], [peers.OURS, "1"], [peers.BETTERDB, "not installed"], [peers.REDISVL, "not installed"],
    ]  # fmt: skip
    assert {len(row) for row in rows} == {5}


def test_a_page_is_written_between_its_marks(scripts, tmp_path):
    """What stands before and behind the marks stays, what stood between is gone; a page without them is refused."""
    harness, page = scripts["harness"], tmp_path / "page.md"
    page.write_text(f"before\n{harness.BEGIN}\nold\n{harness.END}behind\n", encoding="utf-8")
    harness.write_page(page, "new\n")
    assert page.read_text(encoding="utf-8") == f"before\n{harness.BEGIN}\nnew\n\n{harness.END}behind\n"
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(SystemExit, match="has no place"):
        harness.write_page(page, "new")


def points(scale, sizes, query_p50, load, dims=8):
    """Measured points of a made-up engine."""
    rest = dict.fromkeys(("query_p99", "hybrid_p99", "last_rate"), 1.0) | {"server_busy": 0.5}
    rest |= dict.fromkeys(("client_busy", "query_server_share", "hybrid_server_share", "recall"), 0.9)
    rest |= dict.fromkeys(("server_rss", "client_bytes", "vector_bytes"), 1)
    return [
        scale.Point(
            documents=n,
            dims=dims,
            rate=0.5 / load(n),  # the server is half busy
            used_memory=1000 * n,
            query_p50=query_p50(n),
            hybrid_p50=1e-8 * n,
            **rest,
        )
        for n in sizes
    ]


def test_the_arithmetic_finds_the_lines_that_the_points_lie_on(scripts):
    """Of an engine whose every doubling costs 1 us, what is computed for more documents is what it would take."""
    scale = scripts["scale"]
    # Documents 1 to n in a + b log2(i) each: their mean is a + b (log2 n - 1 / ln 2).
    mean = lambda n: 1e-4 + 1e-6 * (scale.np.log2(n) - 1 / scale.np.log(2))  # noqa: E731
    measured = points(scale, (2**10, 2**13, 2**16), lambda n: 1e-6 * scale.np.log2(n), mean)
    grown = scale.growth(measured)
    assert grown.load == pytest.approx((1e-4, 1e-6))
    assert grown.query == pytest.approx((0, 1e-6), abs=1e-9)
    name, nodes, gigabytes, hours, query, hybrid = grown.line(2**30, 4)
    assert (name, nodes, gigabytes) == ("1,073,741,824 x 8", "4", f"{2**28 * 1000 / 1e9:.1f}")
    assert hours == f"{2**28 * mean(2**28) / 3600:.1f}"
    assert (query, hybrid) == (f"{1e3 * 28e-6:.1f}", f"{1e3 * 1e-8 * 2**28:,.0f}")


def test_the_arithmetic_needs_two_sizes_of_the_same_dims(scripts):
    """One point gives no line, nor do two of different dims."""
    scale = scripts["scale"]
    one, other = (points(scale, (1000,), lambda n: 1.0, lambda n: 1.0, dims=dims)[0] for dims in (8, 16))
    assert scale.growth([one, other]) is None
    assert "Two sizes" in scale.arithmetic([one])


def test_the_exact_search_is_exact_over_its_blocks(scripts):
    """The nearest by cosine, wherever in the blocks they are."""
    scale, np = scripts["scale"], scripts["scale"].np
    rng = np.random.default_rng(1)
    vectors, asked = rng.standard_normal((2 * scale.BLOCK + 5, 3), np.float32), rng.standard_normal((4, 3), np.float32)
    near = asked @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).T
    assert scale.nearest(vectors, asked) == [set(row[: scale.K].tolist()) for row in np.argsort(-near, axis=1)]
