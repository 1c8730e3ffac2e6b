"""Documents as pieces: where a text is cut.

Rule: a package finds the places, we only say between which. Headings (markdown-it-py) start a section; within one,
semantic-text-splitter takes the highest level of structure that fits: blocks, so that code and tables stay whole,
then lines, sentences, words, characters. There is no overlap, and nothing is trimmed: the pieces joined are the text.
Source code is cut at its blank lines and lines: a grammar per language would part a function from its comment.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from fields.errors import InvalidInput
from retriever.errors import MissingExtra
from retriever.memory.loading import EXTRA, Loaded

SIZE = 512

_MARKDOWN = frozenset({"markdown", "html", "docx"})  # what loading gives as Markdown
_WHOLE = frozenset({"fence", "code_block", "table_open"})  # blocks that a heading never takes a part of
_NEWLINE = re.compile(r"\r\n?|\n")  # the ends of lines as markdown-it counts them
# The splitter's time grows with the square of a line's length: 17 s for a line of 2 MB. Such lines are cut before it.
_LONG_LINE = re.compile(r"[^\r\n]{20000}[^\s]{0,200}[^\S\r\n]?")
_LONGEST_TITLE = 200  # characters; arbitrary


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document, to become a chunk.

    section: the headings it stands under, outermost first, "Guide > Install"; None before the first and without any.
    speaker, date (seconds since the epoch): of a conversation's turn.
    """

    content: str
    section: str | None = None
    speaker: str | None = None
    date: float | None = None


def split(
    loaded: Loaded,
    *,
    size: int = SIZE,
    tokens: Any = None,
    split: Callable[[str], Iterable[str]] | None = None,
) -> list[Piece]:
    """The pieces of a document, in its order.

    size: greatest length of a piece, in characters; in tokens if ``tokens`` is given, a ``tokenizers.Tokenizer`` (its
        special tokens are not counted, its truncation is ignored) or a callable text -> number. Blanks at a piece's
        ends are not counted; blanks alone are no piece, but stay with a neighbour.
    split: a callable text -> texts that cuts instead; blank texts among them are left out.

    The pieces joined are ``loaded.text``; of a conversation the pieces of a turn are its text, each turn starting
    anew. A heading starts a piece, and stays with what follows it where both fit.
    Raises InvalidInput for a size below 1, and for what ``tokens`` or ``split`` should not return; MissingExtra without
    the extra ``documents`` for more than a plain text no longer than size.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidInput(f"size: an int > 0 expected, not {size!r}")
    if split is not None and not callable(split):
        raise InvalidInput(f"split: a callable text -> texts expected, not {split!r}")
    if split is not None:
        return [
            Piece(text, None, speaker, date) for whole, speaker, date in _parts(loaded) for text in _given(split, whole)
        ]
    cutter = _Cutter(size, tokens, markdown=loaded.content_type in _MARKDOWN or bool(loaded.turns))
    pieces = []
    for whole, speaker, date in _parts(loaded):
        sections = _sections(whole) if loaded.content_type in _MARKDOWN else [_Section(whole)]
        cut = [(text, section.path) for section in sections for text in cutter.section(section)]
        pieces += [Piece(text, path, speaker, date) for text, path in _without_blank(cut)]
    return pieces


def _parts(loaded: Loaded) -> Iterator[tuple[str, str | None, float | None]]:
    if not loaded.turns:
        yield loaded.text, None, None
    for turn in loaded.turns:
        yield turn.text, turn.speaker, turn.date


def _given(split: Callable[[str], Iterable[str]], text: str) -> list[str]:
    found = split(text)
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise InvalidInput(f"split: a list of texts expected, not {found!r}")
    texts = list(found)
    for each in texts:
        if not isinstance(each, str):
            raise InvalidInput(f"split: a list of texts expected, and one of them is {each!r}")
    kept = [each for each in texts if each.strip()]
    if not kept:
        raise InvalidInput(f"split: no text came back for one of {len(text):,} characters")
    return kept


def _without_blank(pieces: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """(text, section) pairs; a blank text stands at the end of the one before it, or else at the next one's start."""
    found: list[tuple[str, str | None]] = []
    waiting: list[str] = []  # the blanks since the last piece
    for text, path in pieces:
        if not text.strip():
            waiting.append(text)
            continue
        if found:
            found[-1] = ("".join((found[-1][0], *waiting)), found[-1][1])
            found.append((text, path))
        else:
            found.append(("".join((*waiting, text)), path))
        waiting.clear()
    if found:
        found[-1] = ("".join((found[-1][0], *waiting)), found[-1][1])
    return found


# --- sections -------------------------------------------------------------------------------------


class _Section(NamedTuple):
    """head: how many characters at its start are headings. whole: what follows them is code or a table."""

    text: str
    path: str | None = None
    head: int = 0
    whole: bool = False


class _Block(NamedTuple):
    """A block of Markdown that stands in no other. level: of a heading, else 0."""

    start: int
    level: int
    title: str
    whole: bool


def _blocks(text: str) -> list[_Block]:
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise _missing(error) from error
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.disable("inline")  # only blocks are looked at
    tokens = parser.parse(text)
    starts = [0, *(found.end() for found in _NEWLINE.finditer(text))]
    return [
        _Block(
            starts[token.map[0]],
            int(token.tag[1:]) if token.type == "heading_open" else 0,
            " ".join(tokens[place + 1].content.split())[:_LONGEST_TITLE] if token.type == "heading_open" else "",
            token.type in _WHOLE,
        )
        for place, token in enumerate(tokens)
        if token.level == 0 and token.map is not None and token.nesting >= 0
    ]


def _sections(text: str) -> list[_Section]:
    """A Markdown text, cut before its headings; headings with nothing between them are not parted."""
    blocks = _blocks(text)
    firsts = [
        place for place, block in enumerate(blocks) if block.level and (place == 0 or not blocks[place - 1].level)
    ]
    ends = [*(blocks[place].start for place in firsts), len(text)]
    found = [_Section(text[: ends[0]])] if ends[0] else []
    titles: dict[int, str] = {}
    for place, end in zip(firsts, ends[1:], strict=True):
        start = blocks[place].start
        while place < len(blocks) and blocks[place].level:
            level = blocks[place].level
            titles = {each: title for each, title in titles.items() if each < level} | {level: blocks[place].title}
            place += 1
        follows = blocks[place] if place < len(blocks) else None
        head = (end if follows is None else follows.start) - start
        path = " > ".join(title for title in titles.values() if title)
        found.append(_Section(text[start:end], path or None, head, follows is not None and follows.whole))
    return found


# --- cutting --------------------------------------------------------------------------------------


def check_tokens(tokens: Any) -> None:
    """InvalidInput for what measures nothing."""
    if not (tokens is None or callable(tokens) or hasattr(tokens, "to_str")):
        raise InvalidInput(f"tokens: a tokenizers.Tokenizer or a callable text -> number expected, not {tokens!r}")


class _Cutter:
    """Cuts texts to a size, in characters or tokens."""

    def __init__(self, size: int, tokens: Any, *, markdown: bool) -> None:
        self.size = min(size, sys.maxsize)
        self.markdown = markdown
        self.tokenizer: Any = None
        self.count: Callable[[str], int] = len
        if callable(tokens):
            self.count = lambda text: _checked_count(tokens(text))
        elif hasattr(tokens, "to_str"):
            # An embedder's own tokenizer is set to cut texts, and would count 256 tokens in any longer one.
            self.tokenizer = type(tokens).from_str(tokens.to_str())
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
            self.count = lambda text: len(self.tokenizer.encode(text, add_special_tokens=False).ids)
        else:
            check_tokens(tokens)
        self._splitter: Any = None  # made once: it copies the tokenizer

    def section(self, section: _Section) -> list[str]:
        """The texts that a section is cut into."""
        pieces = self.cut(section.text)
        heading = section.text[: section.head]
        if len(pieces) < 2 or section.whole or pieces[0].strip() != heading.strip():
            return pieces
        # The next block is too long to stand with its heading: a part of it does.
        room = self.size - self.count(heading)
        if room < self.size // 2 or room < 1:
            return pieces
        body = section.text[section.head :]
        first = _pieces(self._new(room), next(self._strips(body)))[0]
        if self.count(heading + first) > self.size:  # tokens of two texts may be more in one
            return pieces
        return [heading + first, *self.cut(body[len(first) :])]

    def cut(self, text: str) -> list[str]:
        """The texts that a text is cut into; joined they are the text."""
        if not self.markdown and self.count is len and len(text) <= self.size:
            return [text]
        if self._splitter is None:
            self._splitter = self._new(self.size)
        return [piece for strip in self._strips(text) for piece in _pieces(self._splitter, strip)]

    @staticmethod
    def _strips(text: str) -> Iterator[str]:
        start = 0
        for found in _LONG_LINE.finditer(text):
            yield text[start : found.end()]
            start = found.end()
        if start < len(text):
            yield text[start:]

    def _new(self, size: int) -> Any:
        try:
            from semantic_text_splitter import MarkdownSplitter, TextSplitter
        except ImportError as error:
            raise _missing(error) from error
        kind: Any = MarkdownSplitter if self.markdown else TextSplitter
        if self.count is len:
            return kind(size)
        if self.tokenizer is not None and size == self.size:
            return kind.from_huggingface_tokenizer(self.tokenizer, size)
        return kind.from_callback(self.count, size)


def _pieces(splitter: Any, text: str) -> list[str]:
    """The texts between the places where a splitter cuts; it trims what it measures, and this does not."""
    places = [place for place, _ in splitter.chunk_indices(text)]
    return [text[start:end] for start, end in pairwise([0, *places[1:], len(text)])]


def _checked_count(found: object) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise InvalidInput(f"tokens: a number of tokens, an int >= 0, expected of it, not {found!r}")
    return found


def _missing(error: ImportError) -> MissingExtra:
    return MissingExtra(f"split: cutting texts needs {error.name or 'a package'} ({error}); {EXTRA}")
