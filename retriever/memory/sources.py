"""What a source's name and registration say: the kind of knowledge, and its date.

Rule: rows in a table, read from the top; the text itself is never looked at. No clock, no files: a file's time of
change tells when it was copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from fields.errors import InvalidInput
from retriever.memory.chunks import check_knowledge_type, timestamp
from retriever.memory.policy import KNOWLEDGE_TYPES

Rule = tuple[str, str | None]

# (pattern, kind), the first that is found anywhere, without regard to case. Looked at are how the source was
# registered, as "source_type:design", then its name with / between folders. Kind None: it has none, look no further.
RULES: tuple[Rule, ...] = (
    (r"^source_type:(design|adr|decision|principle)\b", "principle"),
    (r"^source_type:(paper|article|preprint|thesis)\b", "paper"),
    (r"^source_type:(news|search|web)\b", "news"),
    (r"^source_type:(log|run|session|experiment|conversation|chat)\b", "experiment"),
    (r"^https?://([^/?#]*[.@])?(arxiv|doi)\.org([:/?#]|$)", "paper"),
    (r"^(arxiv|doi):", "paper"),
    (r"^[^?#]*\.pdf([?#].*)?$", "paper"),
    (r"^https?://", "news"),
    (r"\.log$", "experiment"),
    (r"(^|/)(logs?|runs?|sessions?|experiments?)/", "experiment"),
    (r"(^|[/._-])(log|run|session|experiment)([_.-]?\d[^/]*)?\.[a-z]+$", "experiment"),
    (r"(^|/)(log|run|session|experiment)[_.-][^/]*$", "experiment"),
    (r"^(log|run|session|experiment):", "experiment"),
)


class Dated(Protocol):
    """What of a loaded document is looked at."""

    @property
    def date(self) -> float | None:
        """Seconds since the epoch, or None."""


def knowledge_type(
    source: str, metadata: Mapping[str, Any] | None = None, *, rules: Sequence[Rule] = RULES
) -> str | None:
    """The kind of knowledge in a source: "principle", "paper", "news" or "experiment"; None if no rule fits.

    source: a path, a URL or a name. metadata: ``knowledge_type`` in it decides; else ``source_type``, such as "design"
    for a design document registered by hand, is looked at before the source.
    rules: instead of ``RULES``; put your own before them with ``[("^notes/", "principle"), *RULES]``.
    Raises InvalidInput for a kind or a pattern that is none.
    """
    given = metadata or {}
    if given.get("knowledge_type") is not None:
        return check_knowledge_type(given["knowledge_type"])
    registered = given.get("source_type")
    subjects = [f"source_type:{registered}"] if isinstance(registered, str) else []
    subjects.append(source.strip().replace("\\", "/"))
    checked = list(_checked(rules))
    return next((kind for text in subjects for pattern, kind in checked if pattern.search(text)), None)


def source_date(source: str, loaded: Dated | None = None, metadata: Mapping[str, Any] | None = None) -> float | None:
    """When what a source says was written, in seconds since the epoch; None if nothing tells.

    ``source_date`` or ``date`` of the metadata; else the document's own date; else a date in the file's name, the
    URL's path or an arXiv id, of which a month is its first day. Days are midnight in UTC.
    Raises InvalidInput for metadata that are no date, or a time without a zone.
    """
    for name in ("source_date", "date"):
        value = (metadata or {}).get(name)
        if value is not None:
            return timestamp(value, name)
    if loaded is not None and loaded.date is not None:
        return loaded.date
    day = next(_days(source), None)
    return None if day is None else timestamp(day)


def _checked(rules: Iterable[Rule]) -> Iterator[tuple[re.Pattern[str], str | None]]:
    for rule in rules:
        try:
            pattern, kind = rule
            compiled = re.compile(pattern, re.IGNORECASE)
        except (TypeError, ValueError, re.error) as error:
            raise InvalidInput(f"rules: a (pattern, kind) pair expected, not {rule!r}: {error}") from None
        if kind is not None and kind not in KNOWLEDGE_TYPES:
            raise InvalidInput(
                f"rules: {pattern!r} gives {kind!r}; one of {', '.join(KNOWLEDGE_TYPES)} or None expected"
            )
        yield compiled, kind


# --- dates in names -------------------------------------------------------------------------------

_YEAR = r"(?<!\d)((?:19|20)\d\d)"
_MONTH, _DAY = r"(0[1-9]|1[0-2])", r"(0[1-9]|[12]\d|3[01])"
_DATES = (
    re.compile(rf"{_YEAR}([-_./]){_MONTH}\2{_DAY}(?!\d)"),
    re.compile(rf"{_YEAR}(){_MONTH}{_DAY}(?!\d)"),
    re.compile(rf"{_YEAR}([-_/]){_MONTH}(?![\d]|[-_]\d)"),
)
# arxiv.org/help/arxiv_identifier: YYMM.number since April 2007, archive/YYMMnumber before it.
_ARXIV = re.compile(rf"(\d\d){_MONTH}\.\d{{4,5}}(v\d+)?")
_OLD_ARXIV = re.compile(rf"[a-z-]+(?:\.[a-z]{{2}})?/(\d\d){_MONTH}\d{{3}}(v\d+)?", re.IGNORECASE)


def _days(source: str) -> Iterator[date]:
    """The days that a source's name speaks of, the likeliest first."""
    text = source.strip().replace("\\", "/")
    url = re.match(r"https?://", text, re.IGNORECASE)
    path = unquote(_path(text)) if url else text
    last = path.rstrip("/").rpartition("/")[2]
    stem = re.sub(r"\.pdf$", "", last.rpartition(":")[2], flags=re.IGNORECASE)
    named = text.lower().startswith("arxiv:") or (
        url and re.match(r"https?://([^/]*\.)?arxiv\.org/", text, re.IGNORECASE)
    )
    if (named or last.lower() != stem.lower()) and (found := _ARXIV.fullmatch(stem)):
        yield date(2000 + int(found[1]), int(found[2]), 1)
    old = re.sub(r"\.pdf$", "", path, flags=re.IGNORECASE).rstrip("/")
    if named and (found := re.search(rf"(?:^|[:/]){_OLD_ARXIV.pattern}$", old, re.IGNORECASE)):
        year = int(found[1])
        yield date(1900 + year if year > 90 else 2000 + year, int(found[2]), 1)
    where = path if url else last
    for pattern in _DATES:
        for found in pattern.finditer(where):
            try:
                yield date(int(found[1]), int(found[3]), int(found[4]) if found.re.groups == 4 else 1)
            except ValueError:  # 2024-02-30
                continue


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:  # http://[
        return ""
