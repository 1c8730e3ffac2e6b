"""Files and texts as a memory takes them: their text, and what they say of themselves.

Rule: a format is a row in a table and a package that reads it; nothing is parsed by hand. HTML and Word files become
Markdown, so that their headings, lists, tables and code stay what they are. HTML goes through beautifulsoup4 (on lxml)
and markdownify rather than an extractor of articles such as trafilatura: that one leaves short and odd pages out, and
brings 50 MB with it. Here only scripts, styles and menus go. Blocking; reads one file, and writes none.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import PurePath
from typing import Any, BinaryIO

from fields.errors import InvalidInput
from retriever.errors import MissingExtra
from retriever.memory.chunks import timestamp
from retriever.memory.roots import Roots, check_kind

MAX_BYTES = 50_000_000  # arbitrary; the largest books are a tenth of it
_READINGS = 3  # of a file that changes meanwhile; arbitrary
EXTRA = "pip install 'valkey-retriever[documents]'"

LANGUAGES: Mapping[str, str] = {
    f".{ending}": language
    for language, endings in {
        "python": "py pyi",
        "javascript": "js mjs cjs jsx",
        "typescript": "ts mts cts tsx",
        "java": "java",
        "kotlin": "kt kts",
        "scala": "scala",
        "go": "go",
        "rust": "rs",
        "c": "c h",
        "cpp": "cc cpp cxx hh hpp hxx",
        "csharp": "cs",
        "ruby": "rb",
        "php": "php",
        "swift": "swift",
        "lua": "lua",
        "perl": "pl pm",
        "r": "r",
        "julia": "jl",
        "elixir": "ex exs",
        "haskell": "hs",
        "ocaml": "ml mli",
        "clojure": "clj cljs",
        "bash": "sh bash zsh",
        "powershell": "ps1",
        "sql": "sql",
        "css": "css scss less",
        "yaml": "yaml yml",
        "toml": "toml",
        "ini": "ini cfg conf",
        "xml": "xml",
        "protobuf": "proto",
        "terraform": "tf",
    }.items()
    for ending in endings.split()
}
CONTENT_TYPES: Mapping[str, str] = {
    **dict.fromkeys(LANGUAGES, "code"),
    **dict.fromkeys((".md", ".markdown", ".mdown"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".org", ".tex", ".csv", ".tsv"), "text"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    ".docx": "docx",
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "conversation"),
}
FILE_NAMES: Mapping[str, str] = {"dockerfile": "dockerfile", "makefile": "make", "cmakelists.txt": "cmake"}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one speaker said. date: seconds since the epoch, or None."""

    text: str
    speaker: str | None = None
    date: float | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document as text.

    text: what it says; Markdown for "markdown", "html" and "docx"; a conversation's turns, each after its speaker.
    content_type: "markdown", "text", "html", "pdf", "docx", "code" or "conversation". language: of code, else None.
    title: from front matter, the file's own data or a heading of level 1 that it starts with; None without.
    date: seconds since the epoch, from front matter alone. metadata: the rest of front matter, or what the file says of
        itself, as JSON can hold it.
    turns: of a conversation, in the file's order.
    """

    text: str
    content_type: str = "text"
    title: str | None = None
    language: str | None = None
    date: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    turns: tuple[Turn, ...] = ()


def load(
    path: str | os.PathLike[str],
    *,
    content_type: str | None = None,
    max_bytes: int = MAX_BYTES,
    roots: Roots | None = None,
) -> Loaded:
    """The document in a file. Reads it once, and not at all if it is too large.

    content_type: as in ``Loaded``, instead of what the file's name ends in. max_bytes: largest size, > 0.
    roots: folders that it must lie in; None reads any file.
    Text that is not UTF-8 is decoded as its byte order mark, its declaration (HTML) or detection says;
    ``metadata["encoding"]`` then names a detected encoding, which of a few words alone is a guess.
    Raises InvalidInput, naming the file, if it is missing, outside the roots, no file, unreadable, empty, too large,
    being written to, of a kind that is not known or not what its name says, if a date in it has no zone, a PDF is
    locked or has no text; MissingExtra if its kind needs the extra ``documents``.
    """
    name = os.fspath(path)
    if not isinstance(name, str):
        raise InvalidInput(f"path: a str expected, not {name!r}")
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise InvalidInput(f"max_bytes: an int > 0 expected, not {max_bytes!r}")
    try:
        kind = _content_type(name) if content_type is None else _checked_type(content_type)
    except InvalidInput:
        if roots is not None:
            roots.check(name)  # of a file elsewhere that is what is wrong: no other kind would help
        if os.path.isdir(name):
            raise InvalidInput(f"{name}: is a directory; name the files in it") from None
        raise
    data = _bytes_of(name, max_bytes, roots)
    if kind == "pdf":
        return _checked(_pdf(data, name), name)
    if kind == "docx":
        return _checked(_docx(data, name, max_bytes), name)
    if kind == "html" and not _is_utf8(data):
        return _checked(_html(data, name), name)  # it may declare its encoding
    text, encoding = _decoded(data, name)
    loaded = load_text(text, content_type=kind, language=_language(name) if kind == "code" else None, name=name)
    return loaded if encoding is None else replace(loaded, metadata={**loaded.metadata, "encoding": encoding})


def load_text(
    text: str,
    *,
    content_type: str = "text",
    title: str | None = None,
    language: str | None = None,
    name: str = "text",
) -> Loaded:
    """The document in a text: Markdown with its front matter, HTML, an exported conversation, code, or as it is.

    content_type: as in ``Loaded``, except the binary "pdf" and "docx". title: instead of the text's own.
    name: what errors call it. Raises InvalidInput and MissingExtra as ``load`` does.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{name}: a str expected, not {type(text).__name__}")
    kind = _checked_type(content_type)
    if kind in ("pdf", "docx"):
        raise InvalidInput(f"{name}: {kind} is no text; load(path) reads such files")
    loaded = _TEXTS[kind](text, name) if kind in _TEXTS else Loaded(text, kind, language=language)
    return _checked(loaded if title is None else replace(loaded, title=title), name)


# --- files ----------------------------------------------------------------------------------------


def _content_type(name: str) -> str:
    path = PurePath(name)
    if path.name.lower() in FILE_NAMES:
        return "code"
    found = CONTENT_TYPES.get(path.suffix.lower())
    if found is None:
        raise InvalidInput(
            f"{name}: no known kind of file ends in {path.suffix!r}; .md, .txt, .html, .pdf, .docx, .json and .jsonl "
            'conversations and source code are; the content_type "text" in its metadata (--content-type text) reads it '
            "as text"
        )
    return found


def _language(name: str) -> str | None:
    path = PurePath(name)
    return FILE_NAMES.get(path.name.lower()) or LANGUAGES.get(path.suffix.lower())


def _checked_type(content_type: object) -> str:
    known = set(CONTENT_TYPES.values())
    if not isinstance(content_type, str) or content_type not in known:
        raise InvalidInput(f"content_type: one of {', '.join(sorted(known))} expected, not {content_type!r}")
    return content_type


def _bytes_of(name: str, max_bytes: int, roots: Roots | None) -> bytes:
    try:
        if roots is None:
            _check_file(os.stat(name), name, max_bytes)  # before it is opened: a pipe would be waited for
        with open(name if roots is None else roots.open(name), "rb") as opened:
            data = _at_rest(opened, name, max_bytes)
    except FileNotFoundError:
        raise InvalidInput(f"{name}: there is no such file; looked for in {os.getcwd()}") from None
    except PermissionError:
        raise InvalidInput(f"{name}: this user may not read the file; its permissions forbid it") from None
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        reason = getattr(error, "strerror", None) or error  # a name with NUL is a ValueError
        raise InvalidInput(f"{name!r}: the file cannot be read: {reason}") from error
    if len(data) > max_bytes:
        raise InvalidInput(f"{name}: grew past max_bytes, {max_bytes:,}, while it was read; split the file")
    if not data.strip():
        raise InvalidInput(f"{name}: the file is empty")
    return data


def _check_file(found: os.stat_result, name: str, max_bytes: int) -> None:
    check_kind(found.st_mode, name)
    if found.st_size > max_bytes:
        raise InvalidInput(f"{name}: {found.st_size:,} bytes are more than max_bytes, {max_bytes:,}; split the file")


def _at_rest(opened: BinaryIO, name: str, max_bytes: int) -> bytes:
    """All bytes of a file that did not change meanwhile: half of one text and half of the next is neither."""
    for _ in range(_READINGS):
        before = os.fstat(opened.fileno())
        _check_file(before, name, max_bytes)
        opened.seek(0)
        data = opened.read(max_bytes + 1)
        after = os.fstat(opened.fileno())
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return data
    raise InvalidInput(f"{name}: it changed each of {_READINGS} times that it was read; take it when it is written")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# UTF-32's mark starts with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE = ["utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le"]


def _decoded(data: bytes, name: str) -> tuple[str, str | None]:
    """The text, and the encoding if it had to be detected."""
    encoding = next((each for mark, each in _MARKS if data.startswith(mark)), None)
    if encoding is None and (b"\0" in data or data.startswith((b"%PDF-", b"PK\x03\x04"))):
        raise InvalidInput(f"{name}: the file is binary, not the text that its name promises; give it its own ending")
    try:
        return data.decode(encoding or "utf-8"), None
    except UnicodeDecodeError as error:
        if encoding is not None:
            raise InvalidInput(f"{name}: starts as {encoding} and is not: {error.reason}; save it as UTF-8") from None
    with _reading(name, "text that is not UTF-8"):
        import charset_normalizer

        # Of four bytes, b"\xfcber", the detector makes two letters of UTF-16; wide encodings have a mark, or NULs.
        matches = list(charset_normalizer.from_bytes(data, cp_exclusion=_WIDE))
    if not matches:
        raise InvalidInput(f"{name}: the text is in no encoding that can be told; save it as UTF-8")
    # In short texts many encodings look alike to it; of equals the most frequent one is likelier.
    best = matches[0]
    equal = (each for each in matches if (each.chaos, each.coherence) == (best.chaos, best.coherence))
    if any("cp1252" in each.could_be_from_charset for each in equal):
        return data.decode("cp1252"), "cp1252"
    return str(best), best.encoding


@contextmanager
def _reading(name: str, what: str) -> Iterator[None]:
    """Any failure of a package, as an error that names the file: they raise whatever a broken file brings about."""
    try:
        yield
    except (InvalidInput, MemoryError):
        raise
    except ImportError as error:
        raise MissingExtra(f"{name}: reading {what} needs {error.name or 'a package'} ({error}); {EXTRA}") from error
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise InvalidInput(f"{name}: cannot be read as {what}: {reason}") from error


def _checked(loaded: Loaded, name: str) -> Loaded:
    if not loaded.text.strip():
        raise InvalidInput(f"{name}: there is no text in it")
    try:
        loaded.text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name}: a lone surrogate at character {error.start}, which no UTF-8 can hold") from None
    return loaded


# --- formats --------------------------------------------------------------------------------------


def _markdown(text: str, name: str) -> Loaded:
    metadata: dict[str, Any] = {}
    body = text
    if text.startswith("---"):
        with _reading(name, "front matter (a first line of --- opens it; write *** for a rule)"):
            from frontmatter.default_handlers import YAMLHandler

            yaml = YAMLHandler()
            if yaml.detect(text) and len(yaml.FM_BOUNDARY.split(text, 2)) == 3:
                head, rest = yaml.split(text)
                found = yaml.load(head) if head.strip() else {}
                # Anything but a mapping stands between two rules, and belongs to the text.
                if isinstance(found, dict):
                    metadata, body = _plain(found), rest.lstrip("\r\n")
    title, day = metadata.pop("title", None), metadata.pop("date", None)
    if "tags" in metadata:
        metadata["tags"] = _tags(metadata["tags"])
    return Loaded(
        body,
        "markdown",
        title=str(title) if title else _first_heading(body),
        date=_date(day, name),
        metadata=metadata,
    )


def _tags(value: object) -> object:
    """Tags as programs for notes write them: a list, in which 2024 is a number to YAML, or one text with commas."""
    if isinstance(value, dict):
        return value  # refused where all metadata are
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    return [tag for part in parts if part is not None and (tag := str(part).strip())]


def _html(markup: str | bytes, name: str) -> Loaded:
    with _reading(name, "HTML"):
        import bs4

        with warnings.catch_warnings():  # of text that looks like a file's name, and of XHTML, which is read well
            warnings.simplefilter("ignore", bs4.UnusualUsageWarning)
            soup = bs4.BeautifulSoup(markup, "lxml")
        title = soup.title.get_text(" ", strip=True) if soup.title else None
        metadata = {}
        for tag in soup.find_all("meta"):
            about, value = str(tag.get("name", "")).lower(), tag.get("content")
            if about in ("author", "description") and value:
                metadata[about] = str(value)
        text = _markdown_of(soup)
    return Loaded(text, "html", title=title or _first_heading(text), metadata=metadata)


def _markdown_of(soup: Any) -> str:
    from markdownify import MarkdownConverter

    for tag in soup.find_all(["head", "script", "style", "template", "noscript", "svg", "iframe", "object", "nav"]):
        tag.decompose()
    for image in soup.find_all("img"):
        image.replace_with(str(image.get("alt") or ""))  # its address may be the whole picture, in base 64
    mains = soup.find_all("main")
    converter = MarkdownConverter(
        heading_style="ATX",
        bullets="-",
        table_infer_header=True,
        code_language_callback=_code_language,
        escape_asterisks=False,  # CUDA\_ERROR is not the word that is looked for
        escape_underscores=False,
    )
    return str(converter.convert_soup(mains[0] if len(mains) == 1 else soup)).strip("\n") + "\n"


def _code_language(pre: Any) -> str:
    classes = [each for tag in (pre, *pre.find_all("code")) for each in tag.get("class") or ()]
    return next((each.removeprefix("language-") for each in classes if each.startswith("language-")), "")


def _docx(data: bytes, name: str, max_bytes: int) -> Loaded:
    with _reading(name, "a Word document (.docx)"):
        import bs4
        import mammoth

        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(each.file_size for each in archive.infolist() if each.filename.endswith((".xml", ".rels")))
        if unpacked > max_bytes:  # a small archive may hold any size
            raise InvalidInput(f"{name}: unpacks to {unpacked:,} bytes, more than max_bytes, {max_bytes:,}")
        html = mammoth.convert_to_html(
            io.BytesIO(data),
            style_map="p[style-name='Title'] => h1:fresh",
            convert_image=mammoth.images.img_element(lambda _: {"src": ""}),
        ).value
        text = _markdown_of(bs4.BeautifulSoup(f"<div>{html}</div>", "lxml"))
    return Loaded(text, "docx", title=_first_heading(text))


def _pdf(data: bytes, name: str) -> Loaded:
    with _reading(name, "a PDF"):
        import pypdf
        import pypdf.errors

        # What it mends it warns of; without a handler of yours that would be printed.
        logging.getLogger("pypdf").addHandler(logging.NullHandler())
        try:
            reader = pypdf.PdfReader(io.BytesIO(data))
            pages = [page.extract_text() for page in reader.pages]
            info: Mapping[str, Any] = reader.metadata or {}
        except pypdf.errors.FileNotDecryptedError:
            raise InvalidInput(f"{name}: the PDF is protected by a password; save a copy without one") from None
        except pypdf.errors.DependencyError as error:
            raise MissingExtra(f"{name}: the PDF is encrypted; pip install 'pypdf[crypto]' ({error})") from error
    text = _sound("\n\n".join(pages))
    if not text.strip():
        raise InvalidInput(
            f"{name}: no text in the PDF, pages: {len(pages)}; if they are scanned, run OCR on it first (ocrmypdf)"
        )
    known = {
        key: _sound(str(info[f"/{key.title()}"])).strip()
        for key in ("title", "author", "subject")
        if info.get(f"/{key.title()}")
    }
    title = known.pop("title", None)
    return Loaded(text, "pdf", title=title or None, metadata={**known, "pages": len(pages)})


def _sound(text: str) -> str:
    """The text without what broken fonts leave in it: surrogate pairs joined, lone ones replaced, no NUL."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "")


def _first_heading(text: str) -> str | None:
    found = re.search(r"\A\s*# +(\S.*?) *#*\s*$", text, re.MULTILINE)
    return found[1] if found else None


# --- conversations --------------------------------------------------------------------------------

_FORMS = (
    "a list of messages, each with a speaker (speaker, author, name, sender or role), text (text or content) and, if "
    "known, a date (date, timestamp or created_at), or an object with such a list as messages, chat_messages or turns"
)
_SPEAKER = ("speaker", "author", "name", "sender", "role")
_TEXT = ("text", "content")
_DATE = ("date", "timestamp", "created_at")
_LISTS = ("messages", "chat_messages", "turns")


def _conversation(text: str, name: str) -> Loaded:
    found = _json(text, name)
    title = None
    if isinstance(found, dict):
        title = found.get("title") or found.get("name")
        found = next((found[key] for key in _LISTS if isinstance(found.get(key), list)), found)
    messages = found if isinstance(found, list) else [found]
    turns = []
    for number, message in enumerate(messages, 1):
        where = f"{name}: message {number}"
        if not isinstance(message, dict) or not any(key in message for key in _TEXT):
            raise InvalidInput(
                f'{where} has no text; a conversation is {_FORMS}; the content_type "text" in its metadata reads it so'
            )
        said = _said(next((message[key] for key in _TEXT if message.get(key)), None), where)
        if said.strip():  # a call of a tool says nothing
            day = _first(message, _DATE)
            turns.append(
                Turn(said, _speaker(message, where), None if day is None else timestamp(day, f"{where}: date"))
            )
    lines = (turn.text if turn.speaker is None else f"{turn.speaker}: {turn.text}" for turn in turns)
    return Loaded("\n\n".join(lines), "conversation", title=str(title) if title else None, turns=tuple(turns))


def _json(text: str, name: str) -> Any:
    """One JSON value, or the list of those that stand on a line each."""
    with _reading(name, "JSON"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as whole:
            lines = [line for line in text.splitlines() if line.strip()]
            if len(lines) < 2 or not lines[0].rstrip().endswith("}"):
                raise
            found = []
            for number, line in enumerate(lines, 1):
                try:
                    found.append(json.loads(line))
                except json.JSONDecodeError as error:
                    problem = whole if number == 1 else f"line {number} is no JSON: {error}"
                    raise InvalidInput(f"{name}: {problem}") from None
            return found


def _first(message: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((message[key] for key in keys if message.get(key) not in (None, "")), None)


def _speaker(message: Mapping[str, Any], where: str) -> str | None:
    found = _first(message, _SPEAKER)
    if isinstance(found, dict):
        found = found.get("name") or found.get("role")
    if found is not None and not isinstance(found, str):
        raise InvalidInput(f"{where}: its speaker is {found!r}; a string expected")
    return found


def _said(content: Any, where: str) -> str:
    """The text of a message: a string, or the texts among its parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, (str, dict)) for part in content):
        texts = [part if isinstance(part, str) else part.get("text") for part in content]
        return "\n\n".join(text for text in texts if isinstance(text, str))
    raise InvalidInput(f"{where}: its text is {content!r}; a string or a list of parts expected")


# --- values ---------------------------------------------------------------------------------------

_TEXTS: Mapping[str, Callable[[str, str], Loaded]] = {
    "markdown": _markdown,
    "html": _html,
    "conversation": _conversation,
}
_MOST_VALUES = 10_000  # arbitrary; YAML's references can name one list a billion times


def _plain(values: dict[Any, Any]) -> dict[str, Any]:
    """Front matter as JSON can hold it, with dates as ISO 8601. Raises ValueError if that is too much."""
    left = _MOST_VALUES

    def plain(value: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"more than {_MOST_VALUES:,} values")
        if isinstance(value, dict):
            return {_iso(key): plain(each) for key, each in value.items()}
        if isinstance(value, (list, tuple, set)):
            return [plain(each) for each in value]
        return value if value is None or isinstance(value, (bool, int, float, str)) else _iso(value)

    return {_iso(key): plain(value) for key, value in values.items()}


def _iso(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _date(value: Any, where: str) -> float | None:
    """The date of front matter as seconds since the epoch; a year or a month is its first day."""
    if value is None or value == "":
        return None
    # YAML reads 2024 and 20240501 as numbers, and they are no seconds.
    partial = re.fullmatch(r"(\d{4})-?(\d{2})?-?(\d{2})?", str(value))
    if partial:
        value = "-".join((partial[1], partial[2] or "01", partial[3] or "01"))
    return timestamp(value, f"{where}: date")
