"""Files and texts as documents: one of each kind in ``documents/``, and all that can be wrong with a file."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import InvalidInput, MissingExtra
from retriever.memory import loading
from retriever.memory.chunks import timestamp
from retriever.memory.loading import CONTENT_TYPES, LANGUAGES, Loaded, Turn, load, load_text

DOCUMENTS = Path(__file__).parent / "documents"
TEN = timestamp("2024-05-01T10:00:00Z")


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- one of each kind -----------------------------------------------------------------------------


def test_markdown_and_its_front_matter():
    """Title and date come from the front matter, the rest of it is metadata fit for JSON, and the text follows it."""
    loaded = load(DOCUMENTS / "guide.md")
    whole = (DOCUMENTS / "guide.md").read_text(encoding="utf-8")
    assert (loaded.content_type, loaded.title, loaded.date) == ("markdown", "The guide", TEN)
    assert loaded.metadata == {"tags": ["install", "guide"], "author": "Ann", "reviewed": "2024-06-02"}
    assert json.loads(json.dumps(loaded.metadata)) == loaded.metadata
    assert loaded.text == whole[whole.index("# Guide") :]


def test_text_stays_as_it_is():
    """Not a blank or a line's end of a text is touched."""
    loaded = load(DOCUMENTS / "note.txt")
    assert loaded == Loaded((DOCUMENTS / "note.txt").read_bytes().decode(), "text")
    assert "\r\n\r\n" in loaded.text


def test_html_becomes_markdown():
    """Headings, lists, code and tables stay; scripts, styles, menus and pictures go; identifiers are not escaped."""
    loaded = load(DOCUMENTS / "page.html")
    assert loaded == Loaded(
        "# Errors\n\nThe error `CUDA_ERROR_OUT_OF_MEMORY` means 2 * 3 things.\n\n- first\n- second\n\n"
        "```python\ndef f():\n    return 1\n```\n\n| name | value |\n| --- | --- |\n| a | 1 |\n\nA picture\n",
        "html",
        title="Errors & ways out",
        metadata={"author": "Ann"},
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("plain", "plain\n"),  # bs4 takes it for a file's name
        ("https://a.b/c", "https://a.b/c\n"),
        ('<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>x</p></body></html>', "x\n"),
        ("<p>a_b_c and a*b*c", "a_b_c and a*b*c\n"),
        ("<p>one<p>two", "one\n\ntwo\n"),
        ("<main>a</main><main>b</main>", "ab\n"),
        ("<p>before<main>a</main><p>after", "a\n"),
    ],
)
def test_odd_html(markup, text):
    """HTML without tags, XHTML and unclosed tags are read, without a warning."""
    assert load_text(markup, content_type="html").text == text


def test_word_becomes_markdown():
    """Headings, lists and tables of a Word file stay what they are; its title is its first heading."""
    loaded = load(DOCUMENTS / "guide.docx")
    assert loaded == Loaded(
        "# The guide\n\nSet RTX_4090 in the file.\n\n# Install\n\n- copy it\n- start it\n\n"
        "| name | value |\n| --- | --- |\n| a | 1 |\n\n## Later\n\nThe end.\n",
        "docx",
        title="The guide",
    )


@pytest.mark.parametrize("name", ["report.pdf", "owned.pdf", "owned-aes.pdf"])
def test_pdf(name):
    """A PDF's pages follow each other; one that only its owner's password protects is read."""
    loaded = load(DOCUMENTS / name)
    assert loaded.text.split() == "The index holds the vectors. Second paragraph. Page two ends it.".split()
    assert (loaded.content_type, loaded.title) == ("pdf", "A report")
    assert loaded.metadata == {"author": "Ann", "pages": 2}


def test_code_knows_its_language():
    """Source code stays as it is; what its name ends in, or its whole name, tells the language."""
    loaded = load(DOCUMENTS / "shapes.py")
    assert loaded == Loaded((DOCUMENTS / "shapes.py").read_text(), "code", language="python")


@pytest.mark.parametrize(
    ("name", "language"),
    [("Dockerfile", "dockerfile"), ("Makefile", "make"), ("A.TSX", "typescript"), ("x.y.go", "go")],
)
def test_languages_by_name(tmp_path, name, language):
    """Case does not count, and the last ending decides."""
    loaded = load(written(tmp_path, name, "x = 1\n"))
    assert (loaded.content_type, loaded.language) == ("code", language)


def test_conversation_of_messages():
    """Role or name, text or parts, and dates are kept; messages that say nothing are left out."""
    loaded = load(DOCUMENTS / "chat.json")
    assert loaded.turns == (
        Turn("Which index is exact?", "user", TEN),
        Turn("FLAT is.", "assistant", None),
        Turn("flat.md", "look", TEN),
    )
    assert (loaded.content_type, loaded.title) == ("conversation", "Which index")
    assert loaded.text == "user: Which index is exact?\n\nassistant: FLAT is.\n\nlook: flat.md"


def test_conversation_of_lines():
    """JSON Lines hold a message each; a zone counts, and a day is its midnight in UTC."""
    loaded = load(DOCUMENTS / "talk.jsonl")
    assert loaded.turns == (
        Turn("Shall we meet?", "Ann", TEN - 2 * 3600),
        Turn("On Friday.", "Bob", timestamp("2024-05-01")),
    )


@pytest.mark.parametrize(
    ("exported", "turn"),
    [
        ([{"role": "user", "content": "x"}], Turn("x", "user")),
        ({"messages": [{"role": "user", "content": ["x", {"type": "image"}, {"text": "y"}]}]}, Turn("x\n\ny", "user")),
        (
            {"chat_messages": [{"sender": "human", "text": "x", "created_at": "2024-05-01T10:00:00Z"}]},
            Turn("x", "human", TEN),
        ),
        ({"turns": [{"author": "Ann", "text": "x", "timestamp": TEN}]}, Turn("x", "Ann", TEN)),
        ({"name": "Ann", "role": "user", "content": "x"}, Turn("x", "Ann")),
        ([{"text": "", "content": "x", "date": None}], Turn("x")),
    ],
)
def test_forms_of_exports(exported, turn):
    """Lists of messages, objects that hold one, and a single message are conversations."""
    assert load_text(json.dumps(exported), content_type="conversation").turns == (turn,)


# --- front matter ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "day"),
    [
        ("date: 2024-05-01", "2024-05-01"),
        ("date: '2024-05-01T10:00:00+02:00'", "2024-05-01T08:00:00Z"),
        ("date: 2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00Z"),
        ("date: 2024-05", "2024-05-01"),
        ("date: 2024", "2024-01-01"),
        ("date: 20240501", "2024-05-01"),
        ("date:", None),
        ("other: 1", None),
    ],
)
def test_dates_of_front_matter(head, day):
    """A moment with its zone, a day, a month or a year, which are their first moment in UTC."""
    loaded = load_text(f"---\n{head}\n---\ntext\n", content_type="markdown")
    assert loaded.date == (None if day is None else timestamp(day))
    assert loaded.text == "text\n"


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nBetween rules.\n\n---\n\nmore\n",
        "---\nnever closed\n",
        "---x\n\n---\n\nmore\n",
        "----\n\ntext\n",
        "text\n---\n",
    ],
)
def test_rules_are_no_front_matter(text):
    """What stands between two rules is text, and none of it is lost."""
    assert load_text(text, content_type="markdown").text == text


@pytest.mark.parametrize(
    ("head", "tags"),
    [
        ("tags: ferry", ["ferry"]),
        ("tags: ferry, crew ,", ["ferry", "crew"]),
        ("tags: [ferry, 2024]", ["ferry", "2024"]),
        ("tags: 2024", ["2024"]),
        ("tags:", []),
    ],
)
def test_tags_of_front_matter(tmp_path, head, tags):
    """A list, one tag, several with commas, numbers: as people write them (B12)."""
    path = tmp_path / "a.md"
    path.write_text(f"---\n{head}\n---\nText.\n")
    assert load(path).metadata["tags"] == tags


def test_empty_front_matter():
    """Front matter may hold nothing, and stands in Markdown alone."""
    assert load_text("---\n---\ntext\n", content_type="markdown") == Loaded("text\n", "markdown")
    assert load_text("---\na: 1\n---\ntext\n").text == "---\na: 1\n---\ntext\n"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("a: [1", "front matter"),
        ("a: b: c", "front matter"),
        ("date: 2024-13-45", "month must be"),
        ("date: 2024-05-01 10:00:00", "no time zone; end it in Z"),
        ("date: 2024-05-01T10:00", "no time zone; end it in Z"),
        ("date: soon", "no ISO 8601 date"),
        ("date: [1]", "a date expected"),
        ("a: &a [*a]", "recursion"),
        ("a: &a [" + "1," * 200 + "]\nb: &b [" + "*a," * 200 + "]", "more than 10,000 values"),
    ],
)
def test_front_matter_that_cannot_be_read(tmp_path, head, reason):
    """Broken YAML, endless YAML and a date without a zone are errors that name the file."""
    path = written(tmp_path, "note.md", f"---\n{head}\n---\ntext\n")
    with pytest.raises(InvalidInput, match=f"note.md.*{reason}"):
        load(path)


def test_title_of_the_text():
    """Front matter before the first heading, and the caller before both."""
    assert load_text("# A *b* #\n\ntext", content_type="markdown").title == "A *b*"
    assert load_text("text\n\n# A\n", content_type="markdown").title is None
    assert load_text("---\ntitle: B\n---\n# A\n", content_type="markdown").title == "B"
    assert load_text("---\ntitle: B\n---\n# A\n", content_type="markdown", title="C").title == "C"


# --- encodings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_by_its_mark(tmp_path, encoding):
    """A byte order mark decides, and is no part of the text."""
    assert load(written(tmp_path, "a.txt", "Grüße 👋\n".encode(encoding))) == Loaded("Grüße 👋\n", "text")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("caf\xe9", "cp1252"),
        ("price: 5 €", "cp1252"),
        ("naïve café notes\nfor the server", "cp1252"),
        ("Überraschung für die Käufer: das Gerät läuft, größer als zuvor.", "cp1252"),
        ("Привет, как дела? Это записка о сервере.", "cp1251"),
        ("日本語のメモです。サーバーについて。", "cp932"),
    ],
)
def test_other_encodings_are_detected(tmp_path, text, encoding):
    """Text that is not UTF-8 is decoded by detection, which the metadata name."""
    loaded = load(written(tmp_path, "a.txt", text.encode(encoding)))
    assert (loaded.text, loaded.metadata) == (text, {"encoding": encoding})


def test_detection_never_finds_wide_encodings(tmp_path):
    """Text without a byte order mark and without NUL is not UTF-16, however short it is."""
    assert load(written(tmp_path, "a.txt", b"\xfcber")).text.endswith("er")


def test_html_declares_its_encoding():
    """HTML is decoded as it says."""
    loaded = load(DOCUMENTS / "declared.html")
    assert (loaded.title, loaded.text) == ("Привет", "Мир\n")


def test_utf_8_is_not_taken_for_what_it_declares(tmp_path):
    """HTML that is UTF-8 is read so, whatever it was when the declaration was written."""
    path = written(tmp_path, "a.html", "<meta charset=latin-1><p>Grüße")
    assert load(path).text == "Grüße\n"


# --- bad input ------------------------------------------------------------------------------------

ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as made:
    made.writestr("a.txt", "x")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", "", "the file is empty"),
        ("a.md", " \n\n", "the file is empty"),
        ("a.md", "---\na: 1\n---\n\n", "there is no text in it"),
        ("a.html", "<html><script>x</script></html>", "there is no text in it"),
        ("a.txt", b"text\0text", "binary"),
        ("a.py", b"\x7fELF\x02\0", "binary"),
        ("a.txt", b"%PDF-1.4\n...", "binary"),
        ("a.txt", bytes(range(128, 256)) * 10, "save it as UTF-8"),
        ("a.txt", b"\xff\xfeabc", "starts as utf-16 and is not"),
        ("a.xyz", "x", 'content_type="text" reads it'),
        ("a", "x", "no known kind of file"),
        ("a.pdf", "hello", "cannot be read as a PDF"),
        ("a.pdf", b"%PDF-1.4\njunk", "cannot be read as a PDF"),
        ("a.docx", "hello", "cannot be read as a Word document"),
        ("a.docx", ZIP.getvalue(), "cannot be read as a Word document"),
        ("a.json", "{", "cannot be read as JSON"),
        ("a.json", "[" * 100_000, "cannot be read as JSON: maximum recursion"),
        ("a.json", '{"a": 1}', "message 1 has no text; a conversation is a list"),
        ("a.json", "[]", "there is no text in it"),
        ("a.json", "[1]", "message 1 has no text"),
        ("a.json", '[{"text": 5}]', "message 1: its text is 5"),
        ("a.json", '[{"text": "x", "role": 5}]', "message 1: its speaker is 5"),
        ("a.json", '[{"text": "x"}, {"text": "y", "date": "2024-05-01T10:00:00"}]', "message 2: date: .* no time zone"),
        ("a.json", '[{"text": "x", "date": 1714557600000}]', "message 1: date: .*seconds since 1970"),
        ("a.json", '[{"text": "\\ud800"}]', "a lone surrogate at character 0"),
        ("a.jsonl", '{"text": "x"}\n{"text"\n', "line 2 is no JSON"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, reason):
    """What is wrong, in an error that names the file."""
    with pytest.raises(InvalidInput, match=rf"{name}: .*{reason}"):
        load(written(tmp_path, name, content))


@pytest.mark.parametrize("name", ["locked.pdf", "locked-aes.pdf"])
def test_a_locked_pdf_says_so(name):
    """A PDF that needs a password is an error, and what to do about it."""
    with pytest.raises(InvalidInput, match=f"{name}: the PDF is protected by a password; save a copy without one"):
        load(DOCUMENTS / name)


def test_a_scanned_pdf_says_so():
    """A PDF without text is an error, not an empty document."""
    with pytest.raises(InvalidInput, match="scanned.pdf: no text in the PDF.*OCR"):
        load(DOCUMENTS / "scanned.pdf")


def test_no_file(tmp_path, monkeypatch):
    """A missing file, a folder, a loop of links, a pipe and names that no file can have."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "loop.md").symlink_to("loop.md")
    os.mkfifo(tmp_path / "pipe.md")
    for name, reason in {
        "gone.md": f"there is no such file; looked for in {tmp_path}",
        "folder.md": "is a directory; name the files in it",
        "loop.md": "cannot be read: ",
        "pipe.md": "is no regular file",
        "nul\0.md": "cannot be read: embedded null byte",
        f"{'a' * 300}.md": "cannot be read: File name too long",
    }.items():
        with pytest.raises(InvalidInput) as caught:
            load(name)
        assert reason in str(caught.value)


def test_an_unreadable_file(tmp_path):
    """A file that this user may not read is an error that says so."""
    path = written(tmp_path, "secret.md", "text")
    path.chmod(0)
    me = os.geteuid()
    if me == 0:  # root reads everything
        os.seteuid(65534)
    try:
        with pytest.raises(InvalidInput, match="secret.md: this user may not read the file"):
            load(path)
    finally:
        os.seteuid(me)


def test_a_large_file_is_not_read(tmp_path, monkeypatch):
    """100 MB are refused by their size, before the file is opened."""
    path = tmp_path / "large.txt"
    with path.open("wb") as opened:
        opened.truncate(100_000_000)

    def no_open(*args):
        raise AssertionError(args)

    monkeypatch.setattr(loading, "open", no_open, raising=False)
    with pytest.raises(InvalidInput, match="large.txt: 100,000,000 bytes are more than max_bytes, 50,000,000"):
        load(path)


def test_the_greatest_size_is_the_callers(tmp_path):
    """A file of max_bytes is read, and one more byte is too many."""
    path = written(tmp_path, "a.txt", "12345")
    assert load(path, max_bytes=5).text == "12345"
    with pytest.raises(InvalidInput, match="5 bytes are more than max_bytes, 4"):
        load(path, max_bytes=4)


def test_a_word_file_that_unpacks_to_too_much(tmp_path):
    """A small archive of a large document is as large as the document."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", " " * 1_000_000)
    with pytest.raises(InvalidInput, match="unpacks to 1,000,000 bytes"):
        load(written(tmp_path, "a.docx", packed.getvalue()), max_bytes=100_000)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"max_bytes": 0}, "max_bytes: an int > 0 expected, not 0"),
        ({"max_bytes": True}, "max_bytes"),
        ({"content_type": "word"}, "content_type: one of code, conversation, docx, .* not 'word'"),
        ({"content_type": ["text"]}, "content_type"),
    ],
)
def test_arguments_of_load(arguments, reason):
    """What cannot be right is refused before the file is looked at."""
    with pytest.raises(InvalidInput, match=reason):
        load("gone.md", **arguments)


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        (b"x", {}, "a str expected, not bytes"),
        ("", {}, "there is no text in it"),
        ("\ud800", {}, "a lone surrogate"),
        ("x", {"content_type": "pdf"}, r"pdf is no text; load\(path\)"),
        ("x", {"content_type": None}, "content_type"),
    ],
)
def test_arguments_of_load_text(text, arguments, reason):
    """A note is a text that can be stored."""
    with pytest.raises(InvalidInput, match=reason):
        load_text(text, **arguments)


def test_bytes_are_no_path():
    """Paths are strings."""
    with pytest.raises(InvalidInput, match="path: a str expected"):
        load(b"a.md")


def test_naming_the_kind_of_an_unknown_file(tmp_path):
    """``content_type`` reads a file whose name tells nothing, or something else."""
    assert load(written(tmp_path, "a.xyz", "x"), content_type="text") == Loaded("x", "text")
    assert load(written(tmp_path, "a.json", '{"a": 1}'), content_type="text").text == '{"a": 1}'
    assert load(written(tmp_path, "a.txt", "<p>x"), content_type="html").text == "x\n"


# --- packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("guide.md", "frontmatter"),
        ("page.html", "bs4"),
        ("page.html", "markdownify"),
        ("guide.docx", "mammoth"),
        ("report.pdf", "pypdf"),
    ],
)
def test_missing_packages_are_named(monkeypatch, name, package):
    """Without the extra, what needs it says what to install."""
    for module in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{name}: .*{package}.*; pip install 'valkey-retriever\[documents\]'"):
        load(DOCUMENTS / name)


def test_a_missing_detector_is_named(monkeypatch, tmp_path):
    """Only text that is not UTF-8 needs the detector."""
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    with pytest.raises(MissingExtra, match=r"a.txt: .*not UTF-8.*valkey-retriever\[documents\]"):
        load(written(tmp_path, "a.txt", b"caf\xe9"))


def test_encrypted_pdfs_without_cryptography():
    """A PDF whose cipher no installed package knows says which one to install."""
    code = (
        "import sys\nsys.modules['cryptography'] = sys.modules['Crypto'] = None\n"
        "from retriever.memory.loading import load\nload(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, DOCUMENTS / "owned-aes.pdf"], capture_output=True, text=True, check=False
    )
    assert "MissingExtra" in done.stderr
    assert "owned-aes.pdf: the PDF is encrypted; pip install 'pypdf[crypto]'" in done.stderr


def test_texts_need_no_package():
    """Markdown without front matter, text, code and conversations are read where the extra is not installed."""
    blocked = (
        "yaml frontmatter bs4 lxml markdownify mammoth pypdf charset_normalizer semantic_text_splitter markdown_it"
    )
    names = ["note.txt", "shapes.py", "chat.json", "talk.jsonl"]
    code = (
        f"import sys\nfor name in {blocked.split()!r}: sys.modules[name] = None\n"
        "from retriever.memory.loading import load, load_text\nfrom retriever.memory.splitting import split\n"
        f"for name in {names!r}: load(sys.argv[1] + '/' + name)\n"
        "load_text('# A', content_type='markdown')\n"
        "print(len(split(load_text('a remark'))))"
    )
    done = subprocess.run([sys.executable, "-c", code, DOCUMENTS], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_mended_pdf_prints_nothing(tmp_path):
    """What pypdf mends it logs; without a handler of the user's nobody hears of it."""
    broken = (DOCUMENTS / "report.pdf").read_bytes().replace(b"startxref\n", b"startxref\n9")
    path = written(tmp_path, "a.pdf", broken)
    code = "import sys\nfrom retriever.memory.loading import load\nprint(len(load(sys.argv[1]).text))"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert int(done.stdout) > 50
    assert done.stderr == ""
    assert logging.getLogger("pypdf").level == logging.NOTSET


# --- properties -----------------------------------------------------------------------------------


@given(st.binary(max_size=300), st.sampled_from(sorted({*CONTENT_TYPES.values()})))
def test_any_bytes_load_or_are_refused(tmp_path_factory, data, kind):
    """No file brings another error than ours, and what loads can be stored."""
    path = written(tmp_path_factory.getbasetemp(), "any", data)
    try:
        loaded = load(path, content_type=kind)
    except InvalidInput:
        return
    assert loaded.text.strip()
    loaded.text.encode()
    json.dumps(loaded.metadata)


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), st.integers(-12, 14))
def test_dates_of_turns_survive(naive, hours):
    """A turn's moment is the same whatever zone it is written in."""
    moment = (naive.replace(tzinfo=UTC) + timedelta(hours=hours)).isoformat()
    text = json.dumps([{"text": "x", "date": moment}])
    (turn,) = load_text(text, content_type="conversation").turns
    assert turn.date == datetime.fromisoformat(moment).timestamp()


def test_every_language_is_code():
    """Each ending with a language is one of source code, and has its dot."""
    assert {CONTENT_TYPES[ending] for ending in LANGUAGES} == {"code"}
    assert all(ending.startswith(".") and ending == ending.lower() for ending in CONTENT_TYPES)
