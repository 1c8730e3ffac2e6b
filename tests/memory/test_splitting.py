"""Where documents are cut: nothing is lost, whatever the text and the size, and structure is kept where it fits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import InvalidInput, MissingExtra
from retriever.memory.loading import Loaded, Turn, load
from retriever.memory.splitting import Piece, split

DOCUMENTS = Path(__file__).parent / "documents"
KINDS = ("markdown", "text", "html", "pdf", "docx", "code")

# What Markdown is made of, and what breaks splitters: blank runs, line ends of every kind, words without end, NUL.
MARKDOWN = [
    *("# A\n", "## B\r\n", "### C ###\n\n", "Title\n=====\n", "Title\r\n-----\r\n", "***\n", "---\n", "> # quoted\n"),
    *("```\ncode\n\n# no heading\n```\n", "~~~python\nx = 1\n", "    indented\n", "<div>\n", "<!-- # x -->\n"),
    *("| a | b |\n|---|---|\n| 1 | 2 |\n", "- item\n  - inner\n", "1. one\n", "[a]: http://a.b\n", "\\", "|", "`"),
]
BLANK = ["\n", "\r\n", "\r", "\n\n\n\n", "   ", "\t", "\0", "\x0c", "\x1c", "\x85", "\u2028", "\u00a0", "\ufeff"]
WORDS = [
    "a word ",
    "word.",
    "A sentence. Another one! ",
    "a" * 500,
    "👩\u200d👩\u200d👧",
    "e\u0301",
    "中文没有空格",
    "שלום",
]
PARTS = st.sampled_from([*MARKDOWN, *BLANK, *WORDS])
TEXTS = st.one_of(
    st.lists(PARTS, max_size=30).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
)
SPOKEN = TEXTS.filter(str.strip)  # what a document holds: loading refuses blank ones


def texts(pieces):
    return [piece.content for piece in pieces]


# --- properties -----------------------------------------------------------------------------------


@given(SPOKEN, st.sampled_from(KINDS), st.integers(1, 60) | st.integers(1, 2000))
def test_the_pieces_joined_are_the_text(text, kind, size):
    """Any text and size come to an end; no character is lost, doubled or moved, no piece is blank (B13, case B109)."""
    pieces = split(Loaded(text, kind), size=size)
    assert "".join(texts(pieces)) == text
    assert all(piece.content.strip() for piece in pieces)


@given(SPOKEN, st.sampled_from(KINDS), st.integers(1, 60) | st.integers(1, 2000))
def test_no_piece_is_longer_than_the_size(text, kind, size):
    """Blanks that stand with a neighbour aside, a piece has at most ``size`` characters (B13)."""
    assert all(len(piece.content.strip()) <= size for piece in split(Loaded(text, kind), size=size))


@given(SPOKEN, st.sampled_from(KINDS), st.integers(1, 30))
def test_the_same_in_tokens(text, kind, size):
    """With a measure of the caller's the pieces are that long at most, and joined they are the text (B13)."""

    def words(text):
        return len(text.split())

    pieces = split(Loaded(text, kind), size=size, tokens=words)
    assert "".join(texts(pieces)) == text
    assert all(words(piece.content) <= size for piece in pieces)


@given(st.lists(SPOKEN, min_size=1, max_size=5), st.integers(1, 50))
def test_the_pieces_of_a_turn_are_its_text(said, size):
    """Long turns are cut like any text; each piece knows who said it, and when."""
    turns = [Turn(text, f"speaker {number}", float(number)) for number, text in enumerate(said)]
    pieces = split(Loaded("all of it", "conversation", turns=tuple(turns)), size=size)
    for turn in turns:
        own = [piece.content for piece in pieces if (piece.speaker, piece.date) == (turn.speaker, turn.date)]
        assert "".join(own) == turn.text
    assert [piece.date for piece in pieces] == sorted(piece.date for piece in pieces)


@pytest.mark.parametrize("measure", [lambda text: 7 + len(text), lambda text: 0, lambda text: 10**9])
def test_measures_that_no_size_can_satisfy(measure):
    """A measure that counts everything as too long, or nothing, still comes to an end with all of the text."""
    for kind in KINDS:
        pieces = split(Loaded("# A\n\none two\n\n# B\n\nthree", kind), size=3, tokens=measure)
        assert "".join(texts(pieces)) == "# A\n\none two\n\n# B\n\nthree"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "a" * 5000,
        "a" * 300_000,
        "word " * 60_000,
        "\n" * 100_000 + "x" + " " * 100_000,
        "# h\n\nx\n\n" * 2000,
        "[" * 50_000,
    ],
    ids=["word", "long word", "long line", "blanks", "headings", "brackets"],
)
def test_large_and_odd_texts(kind, text):
    """Words and lines without end, blanks and thousands of headings are cut, and joined again."""
    pieces = split(Loaded(text, kind), size=512)
    assert "".join(texts(pieces)) == text
    assert all(0 < len(piece.content.strip()) <= 512 for piece in pieces)


# --- Markdown -------------------------------------------------------------------------------------

GUIDE = """Before any heading.

# Guide

Intro.

## Install *it*

Copy the wheel.

Setext
------

### Deep ###

Deep text.

# Other

End.
"""


def test_a_heading_starts_a_section():
    """Each piece knows the path of its headings; those with nothing between them stay together (B13)."""
    assert split(Loaded(GUIDE, "markdown")) == [
        Piece("Before any heading.\n\n"),
        Piece("# Guide\n\nIntro.\n\n", "Guide"),
        Piece("## Install *it*\n\nCopy the wheel.\n\n", "Guide > Install *it*"),
        Piece("Setext\n------\n\n### Deep ###\n\nDeep text.\n\n", "Guide > Setext > Deep"),
        Piece("# Other\n\nEnd.\n", "Other"),
    ]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_sections_whatever_ends_a_line(newline):
    """The same sections under all three ends of lines."""
    found = split(Loaded(GUIDE.replace("\n", newline), "markdown"))
    assert [piece.section for piece in found] == [piece.section for piece in split(Loaded(GUIDE, "markdown"))]
    assert texts(found) == [text.replace("\n", newline) for text in texts(split(Loaded(GUIDE, "markdown")))]


@pytest.mark.parametrize(
    "text",
    [
        "```\n# A\n```\n\ntext\n",
        "text\n\n    # A\n",
        "> # A\n\ntext\n",
        "- # A\n\ntext\n",
        "<pre>\n# A\n</pre>\n",
        "#A\n\nb\n",
        "\\# A\n\nb\n",
    ],
    ids=["fence", "indented", "quote", "list", "html", "no blank", "escaped"],
)
def test_what_looks_like_a_heading(text):
    """Code, quotes, lists and HTML hold no heading of the document."""
    assert split(Loaded(text, "markdown")) == [Piece(text)]


def test_headings_without_text():
    """An empty heading is no part of the path; a document of headings alone is one piece."""
    assert split(Loaded("#\n\ntext\n", "markdown")) == [Piece("#\n\ntext\n")]
    assert split(Loaded("# A\n## B\n## C\n", "markdown")) == [Piece("# A\n## B\n## C\n", "A > C")]
    assert split(Loaded("\n\n# A\n", "markdown")) == [Piece("\n\n# A\n", "A")]


def test_a_long_heading_is_cut_in_the_path():
    """A path does not repeat a heading of any length in every piece."""
    (piece,) = split(Loaded(f"# {'word ' * 500}\n", "markdown"), size=5000)
    assert piece.section.startswith("word word")
    assert len(piece.section) == 200


CODE = "```python\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n```\n"
TABLE = "| name | value |\n|------|-------|\n| a    | 1     |\n| b    | 2     |\n"


@pytest.mark.parametrize(
    "block", [CODE, TABLE, "    indented\n\n    code\n\n    of three\n"], ids=["code", "table", "indented"]
)
@pytest.mark.parametrize(
    "before", ["# A\n\n", "# A\n\nSome words before it, many of them.\n\n"], ids=["heading", "text"]
)
def test_code_and_tables_stay_whole(block, before):
    """A block that fits stands in one piece, whatever is around it, and leaves its heading alone if it must (B13)."""
    text = f"{before}{block}\nSome words after it, as many as there may be before it.\n"
    for size in range(len(block), len(text) + 1):
        assert any(block.strip() in piece.content for piece in split(Loaded(text, "markdown"), size=size)), size


def test_a_heading_stays_with_what_follows():
    """A paragraph too long to stand with its heading gives it a part of itself."""
    text = f"# Heading\n\n{'A sentence of some words. ' * 30}\n"
    first, *others = split(Loaded(text, "markdown"), size=200)
    assert first.content.startswith("# Heading\n\nA sentence of some words. A sentence")
    assert len(first.content) <= 200
    assert {piece.section for piece in (first, *others)} == {"Heading"}


@pytest.mark.parametrize("name", ["guide.md", "page.html", "guide.docx", "note.txt", "shapes.py", "report.pdf"])
@pytest.mark.parametrize("size", [1, 40, 512])
def test_loaded_documents(name, size):
    """What loading reads is cut and joined again."""
    loaded = load(DOCUMENTS / name)
    assert "".join(texts(split(loaded, size=size))) == loaded.text


def test_code_is_cut_at_blank_lines():
    """A function stays whole with the comment above it."""
    assert texts(split(load(DOCUMENTS / "shapes.py"), size=130)) == [
        '"""Areas of shapes."""\n\nimport math\n\n\n',
        '# Radius in metres.\ndef circle(radius):\n    """The area of a circle."""\n'
        "    return math.pi * radius**2\n\n\n",
        'def square(side):\n    """The area of a square."""\n    return side * side\n',
    ]


def test_paragraphs_stay_whole():
    """Two paragraphs that do not fit together are two pieces; at 512 characters unless told."""
    assert texts(split(Loaded("one two\n\nthree four\n"), size=12)) == ["one two\n\n", "three four\n"]
    assert [len(piece.content) for piece in split(Loaded("a" * 512 + "\n\n" + "b" * 512))] == [514, 512]


# --- conversations --------------------------------------------------------------------------------


def test_a_turn_is_a_piece():
    """Each turn has its speaker and date, and no section."""
    assert split(load(DOCUMENTS / "talk.jsonl")) == [
        Piece("Shall we meet?", None, "Ann", 1714550400.0),
        Piece("On Friday.", None, "Bob", 1714521600.0),
    ]


# --- tokens ---------------------------------------------------------------------------------------


def tokenizer():
    """One token a word, and two around a text."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[CLS]": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [CLS]", special_tokens=[("[CLS]", 1)]
    )
    return made


@pytest.mark.parametrize("kind", ["text", "markdown"])
def test_a_tokenizer_counts(kind):
    """Pieces hold that many of its tokens, not counting the special ones; the tokenizer stays as it was."""
    tokens = tokenizer()
    tokens.enable_truncation(3)  # as an embedder's is: it would count three in any text
    tokens.enable_padding(length=9)
    assert texts(split(Loaded("a b c d e f g h i j k", kind), size=5, tokens=tokens)) == [
        "a b c d e ",
        "f g h i j ",
        "k",
    ]
    assert tokens.truncation["max_length"] == 3
    assert tokens.padding["length"] == 9


def test_a_heading_and_its_paragraph_in_tokens():
    """The room that a heading leaves is counted in tokens too."""
    text = "# Head\n\n" + "word " * 30
    first = split(Loaded(text, "markdown"), size=12, tokens=tokenizer())[0]
    assert first.content == "# Head\n\n" + "word " * 10


@pytest.mark.parametrize("counted", [-1, 1.5, "3", None, True])
def test_what_a_measure_returns(counted):
    """A measure returns a number of tokens."""
    with pytest.raises(InvalidInput, match="tokens: .*an int >= 0"):
        split(Loaded("a b c"), size=1, tokens=lambda text: counted)


def test_an_error_of_the_measure_is_its_own():
    """What the caller's function raises comes through."""
    with pytest.raises(ZeroDivisionError):
        split(Loaded("a b c"), size=1, tokens=lambda text: 1 // 0)


# --- the caller's own -----------------------------------------------------------------------------


def test_a_splitter_of_the_callers():
    """Its texts are the pieces, in its order and whatever they are; blank ones are left out (B13)."""
    assert split(Loaded("one. two.", "markdown"), split=lambda text: ["two", " ", "", "one"]) == [
        Piece("two"),
        Piece("one"),
    ]
    assert split(Loaded("a b"), split=lambda text: iter(text.split())) == [Piece("a"), Piece("b")]


def test_a_splitter_of_the_callers_sees_turns():
    """Of a conversation it gets each turn, whose speaker and date are kept."""
    loaded = Loaded("", "conversation", turns=(Turn("a b", "Ann", 1.0), Turn("c", "Bob")))
    assert split(loaded, split=str.split) == [
        Piece("a", None, "Ann", 1.0),
        Piece("b", None, "Ann", 1.0),
        Piece("c", None, "Bob"),
    ]


@pytest.mark.parametrize("returned", [[], [" "], "text", b"x", None, 5, ["a", 5], [b"a"]])
def test_what_a_splitter_returns(returned):
    """A list of texts that says something."""
    with pytest.raises(InvalidInput, match=r"^split: "):
        split(Loaded("text"), split=lambda text: returned)


@pytest.mark.parametrize("size", [0, -1, 1.5, "512", True, None])
def test_sizes(size):
    """A size is a whole number above 0; there is no greatest one."""
    with pytest.raises(InvalidInput, match="size: an int > 0"):
        split(Loaded("text"), size=size)
    assert split(Loaded("# A\n\ntext", "markdown"), size=2**70) == [Piece("# A\n\ntext", "A")]


@pytest.mark.parametrize("tokens", [5, "gpt", object()])
def test_what_counts_tokens(tokens):
    """A tokenizer or a function."""
    with pytest.raises(InvalidInput, match=r"tokens: a tokenizers\.Tokenizer or a callable"):
        split(Loaded("text"), tokens=tokens)


def test_splitters_are_functions():
    """``split`` is called, so it is a function."""
    with pytest.raises(InvalidInput, match="split: a callable"):
        split(Loaded("text"), split="words")


@pytest.mark.parametrize("package", ["markdown_it", "semantic_text_splitter"])
def test_missing_packages_are_named(monkeypatch, package):
    """Without the extra, cutting says what to install; a plain text that fits and a splitter of one's own need none."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package}.*; pip install 'valkey-retriever\[documents\]'"):
        split(Loaded("# A\n\ntext", "markdown"), size=4)
    assert split(Loaded("text"), size=4) == [Piece("text")]
    assert split(Loaded("# A", "markdown"), split=str.split) == [Piece("#"), Piece("A")]
