"""docs/images/explain.svg is what ``explain()`` says; ``python -m tests.test_explain_picture`` draws it anew.

That starts the embedded engine.
"""

from __future__ import annotations

import io
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from retriever import Document, EmbeddedServer, LocalEmbedder, Retriever, Schema, Tag, Text

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "explain.svg"
QUESTION = 'docs.retrieve(text="may a dog sail free?", k=3, filter={"manual": "crew"})'
DOCUMENTS = [
    Document("hounds", "Hounds and cats sail free of charge.", {"manual": "crew", "title": "Animals"}),
    Document("seals", "A seal on the slipway is a guest; keep your pets away from it.", {"manual": "crew"}),
    Document("wages", "Whoever cannot sail when sick is paid all the same.", {"manual": "crew", "title": "Pay"}),
    Document("flow", "The alarm panel shows E-1182: clean the strainer.", {"manual": "engines"}),
]


def explained(url):
    """What each hit of the question says."""
    schema = Schema(f"explain-picture-{os.getpid()}", [Tag("manual"), Text("title", weight=2.0)])
    with Retriever.connect(url, schema, embed=LocalEmbedder()) as docs:
        docs.create_index()
        docs.upsert(DOCUMENTS)
        hits = eval(QUESTION)
        docs.drop_index(delete_documents=True)
    return [hit.explain() for hit in hits]


def drawn(said):
    """The picture, as SVG."""
    from rich.console import Console
    from rich.terminal_theme import SVG_EXPORT_THEME
    from rich.text import Text as Line

    console = Console(record=True, width=84, file=io.StringIO(), highlight=False)
    console.print(QUESTION, style="bold", markup=False)
    for each in said:
        first, *lines = each.splitlines()
        console.print(f"\n{first}", style="green", markup=False)
        for line in lines:
            shown = Line(line)
            shown.highlight_words(["vector:", "text:"], style="cyan")
            console.print(shown)
    svg = console.export_svg(title="hit.explain()", theme=SVG_EXPORT_THEME, unique_id="explain")
    # Rich's own form loads a font from another host; whoever reads has one.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    return "\n".join(map(str.rstrip, svg.splitlines())) + "\n"


def words(svg):
    """The text of a picture by its lines, and its numbers apart, since the last digit of a model's may differ."""
    lines = {}
    for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        lines[each.get("y")] = lines.get(each.get("y"), "") + "".join(each.itertext()).replace("\xa0", " ")
    text = "\n".join(lines.values())
    number = r"\d+\.\d+"
    return re.sub(number, "#", text), [float(each) for each in re.findall(number, text)]


@pytest.mark.live
@pytest.mark.one_server("it connects to one server")
def test_the_picture_shows_what_a_hit_says(url):
    """The text of docs/images/explain.svg is the hits' ``explain()`` and the call that gave them."""
    pytest.importorskip("rich")
    text, numbers = words(PICTURE.read_text(encoding="utf-8"))
    said = explained(url)
    shown, exactly = words(drawn(said))
    assert text == shown
    assert numbers == pytest.approx(exactly, rel=1e-3)
    for line in "\n".join([QUESTION, *said]).splitlines():
        assert re.sub(r"\d+\.\d+", "#", line.strip()) in text


def test_the_picture_asks_nobody():
    """No font, style or picture in it is another host's."""
    svg = PICTURE.read_text(encoding="utf-8")
    assert not re.search(r"(?:url\(|href=|@import)\s*[\"']?(?:https?:)?//", svg)


if __name__ == "__main__":
    with EmbeddedServer() as started:
        PICTURE.write_text(drawn(explained(started)), encoding="utf-8")
