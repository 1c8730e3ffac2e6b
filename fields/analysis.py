"""How text becomes terms, for documents and queries alike.

Rule: ``Analysis.terms`` alone decides what a word is; engines only see finished terms. Two runs can differ
by what ``to_json`` holds (and by characters newer than the Unicode of the older Python: they separate there).
Strategy: fold the text, find *chains* (words, with what is joined to them without a blank), turn each chain
into terms. The last step has most rules and repeats most, so it is remembered. ASCII is a cheaper first step.
"""

import re
import threading
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain as concatenated
from itertools import pairwise
from typing import Any

import Stemmer

from fields.errors import InvalidInput

# Goes up whenever any text gives other terms than before: stored indexes then say so.
ALGORITHM = 1

# RediSearch's default list, all 33. Other languages have none unless you give them: a list that nobody here
# can judge loses words unseen.
_ENGLISH = (
    "a is the an and are as at be but by for if in into it no not of on or such that their then there these "
    "they this to was will with"
)
# porter is an older stemmer of English.
_STOP_WORDS = dict.fromkeys(["english", "porter"], frozenset(_ENGLISH.split()))

# RediSearch cuts a term at 128 bytes in documents but not in queries; 120 stays clear of that.
_TERM_BYTES = 120


@dataclass(frozen=True, slots=True, init=False)
class Analysis:
    """What a word is: the language, whether it is stemmed, and which words are left out. Part of a schema.

    language: a Snowball algorithm, one of ``Stemmer.algorithms()``.
    stem: reduce words to their stems (``running`` finds ``runs``). False for text of no one language.
    stop_words: words that are no terms, folded as text is; None for the language's own: the 33 of
        RediSearch for English, none for every other language.
    Raises InvalidInput for an unknown language, and for a stop word that is not exactly one term.

    >>> Analysis().terms("The POLICY-123 rollout, in C++")
    ['policy_123', 'polici', '123', 'rollout', 'cpp']
    """

    language: str
    stem: bool
    stop_words: frozenset[str] = field(repr=False)

    def __init__(
        self, language: str = "english", *, stem: bool = True, stop_words: Iterable[str] | None = None
    ) -> None:
        if language not in Stemmer.algorithms():
            choices = ", ".join(Stemmer.algorithms())
            raise InvalidInput(f"no language {language!r}; choose one of {choices} (stem=False fits any)")
        if not isinstance(stem, bool):
            raise InvalidInput(f"stem is True or False, not {stem!r}")
        object.__setattr__(self, "language", language)
        object.__setattr__(self, "stem", stem)
        default = _STOP_WORDS.get(language, frozenset())
        words = default if stop_words is None else _folded_stop_words(stop_words)
        object.__setattr__(self, "stop_words", words)

    def terms(self, text: str) -> list[str]:
        r"""The terms of a text in its order, repeated as often as they occur. Any str will do.

        - Folded by NFKC, casefold, NFKC; accents stay. Invisible characters (soft hyphen, joiners, direction
          marks) are deleted; whatever else is no letter, digit, mark of one or ``_`` separates.
        - Words joined without blanks by ``_``, ``-``, ``.`` or up to three of ``/ \ : @ ? = & # +`` are an
          *identifier*: first the whole, joined by ``_``, never stemmed; then smaller wholes (of ``a/b-1.c``
          also ``b_1_c`` and ``b_1``); then its words. At most 32 words are one identifier.
          Words of three letters or more joined by ``-`` alone are prose and only split: ``well-known``.
        - ``C++`` is ``cpp`` and ``C#`` ``csharp``; ``Notepad++`` is ``notepadpp`` and ``notepad``.
        - An apostrophe separates, and a single letter beside it is left out: ``l'école`` is ``école``.
        - Scripts without blanks (Han, Kana, Thai, ...) and Hangul: pairs of neighbours; one alone stays.
        - Words: stop words are dropped, the rest stemmed. Terms are cut to 120 bytes, between characters.
        Raises InvalidInput if text is not a str.
        """
        return list(concatenated.from_iterable(map(_memory(self).__getitem__, _chains(text))))

    def to_json(self) -> dict[str, Any]:
        """All that decides which terms come out, for storing with an index: read by from_json, differences."""
        return {
            "algorithm": ALGORITHM,
            "language": self.language,
            "stem": self.stem,
            "stemmer_version": Stemmer.version(),
            "stop_words": sorted(self.stop_words),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Analysis":
        """The Analysis that to_json described. Versions are not its part: ``differences`` compares them.

        Raises InvalidInput if a key is missing or its value cannot be right.
        """
        if missing := {"language", "stem", "stop_words"} - {k for k, v in stored.items() if v is not None}:
            raise InvalidInput(f"the stored analysis lacks {', '.join(sorted(missing))}: {dict(stored)!r}")
        return cls(stored["language"], stem=stored["stem"], stop_words=stored["stop_words"])

    def differences(self, stored: Mapping[str, Any]) -> list[str]:
        """In words, what a stored to_json has otherwise than this one has now; [] if both give the same terms.

        Another version of the stemmer is a difference, unless neither stems.
        """
        here = self.to_json()
        ours, theirs = set(here.pop("stop_words")), set(stored.get("stop_words") or ())
        if not self.stem and stored.get("stem") is False:
            del here["stemmer_version"]
        found = [
            f"{key.replace('_', ' ')}: {stored.get(key)!r} stored, {value!r} here"
            for key, value in here.items()
            if stored.get(key) != value
        ]
        for where, words in (("stored", theirs - ours), ("here", ours - theirs)):
            if words:
                found.append(f"stop words only {where}: {', '.join(sorted(words))}")
        return found


def stored_terms(terms: Iterable[str]) -> str:
    """Terms as an index holds them, blanks doubled and around; "" for none.

    So ``hash_value.count(b" alpha ")`` counts a term, neighbours included, without splitting.

    >>> stored_terms(["alpha", "beta"])
    ' alpha  beta '
    """
    return "".join(f" {term} " for term in terms)


# Soft hyphen, grapheme joiner, direction marks, Hangul fillers, Khmer inherent vowels, variation selectors,
# zero-width (non-)joiners, word joiner. Zero-width space and byte order mark are none of them: they separate.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u3164\uffa0\u17b4\u17b5\u180b-\u180f\u200c-\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\U000e0100-\U000e01ef]+"
)

# Written without blanks: Thai, Lao, Myanmar, Khmer, Kana, Bopomofo, Han. And Hangul, whose blanks are no
# help because particles stick to the word; pairs are the usual answer (Lucene's CJKAnalyzer likewise).
# Digits of these scripts are left out: numbers are words.
_UNSPACED = re.compile(
    "[\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef"
    "\ua9fa-\ua9fe\uaa60-\uaa7f\u1780-\u17d3\u17d7\u17dc\u17dd\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3031-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00016fe0-\U00018cff\U0001aff0-\U0001b2ff\U00020000-\U0003ffff]+"
)


def _chain_pattern(word: str, flags: int = 0) -> re.Pattern[str]:
    # Possessive throughout (++, ?+, *+): nothing is tried twice, so time is linear in the text.
    # 32 words: arbitrary; it bounds the work and the memory of one chain.
    named = rf"{word}(?:\+\+|#(?!\w))?+"
    joined = r"_*+(?:[-.']|[/\\:@?=&#+]{1,3}+)?+_*+"  # https://  std::vector  C:\x  a?b=c
    return re.compile(rf"{named}(?:{joined}{named}){{0,31}}+", flags)


_ASCII_CHAIN = _chain_pattern("[a-z0-9]++", re.ASCII)


@cache  # 30 ms, and only for those who leave ASCII
def _unicode_chain() -> re.Pattern[str]:
    # \w has no marks, so the word names them. Enclosing marks (Me) stay out: a keycap is its digit. Above
    # U+1FFFF all marks are variation selectors. The lookahead spares most words a search through 2,000 marks.
    marks = "".join(c for c in map(chr, range(0x300, 0x20000)) if unicodedata.category(c) in {"Mn", "Mc"})
    return _chain_pattern(rf"[^\W_]++(?:(?![\0-\x7f])[{marks}]++[^\W_]*+)*+")


def _chains(text: str) -> list[str]:
    if not isinstance(text, str):
        raise InvalidInput(f"text is a str, not {type(text).__name__}: {text!r:.80}")
    if text.isascii():
        return _ASCII_CHAIN.findall(text.lower())
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
    folded = unicodedata.normalize("NFKC", folded)
    # Curly and modifier apostrophes and the typographic hyphen (NFKC makes the unbreakable one of it).
    folded = folded.replace("’", "'").replace("ʼ", "'").replace("‐", "-")
    return _unicode_chain().findall(_UNSPACED.sub(r" \g<0> ", folded))


# The lookbehind keeps it linear: a search starts at the beginnings of words only.
_NAMED = re.compile(r"(?<![^-./\\:@?=&#+_'])([^-./\\:@?=&#+_']++)(\+\+|#(?!\w))")
_NAMES = {"++": "pp", "#": "sharp"}
_STRONG = str.maketrans(dict.fromkeys(r"/\:@?=&#+", "/"))
_BLANKS = str.maketrans(dict.fromkeys("/.-_", " "))


class _Memory(dict[str, tuple[str, ...]]):
    """Chain -> terms, computed when missing. Shared by threads: every step is one dict operation."""

    # Texts repeat their words; recalling one is several times faster than stemming it. The bounds are
    # arbitrary: 5 MB of words, 20 of identifiers. When full it starts anew, which needs no bookkeeping.
    entries, longest = 32_768, 64

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    def __missing__(self, chain: str) -> tuple[str, ...]:
        stop_words = self.analysis.stop_words
        exact, words = _take_apart(chain)
        words = [_cut(word) for word in words if word not in stop_words]
        if words and self.analysis.stem:
            # Some stemmers leave nothing of a word (porter: "s"), and a stem may be longer than its word.
            stems = _stemmer(self.analysis.language).stemWords(words)
            words = [_cut(stem) or word for stem, word in zip(stems, words, strict=True)]
        terms = (*[_cut(term) for term in exact if term not in stop_words], *words)
        # Unspaced runs are whole clauses, hardly ever seen again.
        if len(chain) <= self.longest and not _UNSPACED.match(chain):
            if len(self) >= self.entries:
                self.clear()
            self[chain] = terms
        return terms


_memory = lru_cache(maxsize=8)(_Memory)  # 8: arbitrary; a process has one or two


def _take_apart(chain: str) -> tuple[list[str], list[str]]:
    """Terms that stay as they are, and words that a stemmer may have."""
    if _UNSPACED.match(chain):
        # A letter keeps its marks: within a word nothing else is \W.
        units = list(chain) if chain.isalnum() else re.findall(r"\w\W*", chain)
        return [a + b for a, b in pairwise(units)] or units, []
    if chain.isalnum():
        return [], [chain]
    if chain.replace("-", "").isalpha() and min(map(len, compound := chain.split("-"))) >= 3:
        # Prose: "well-known". Its whole as a third, rare term cost 0.004 nDCG@10 on Cranfield. But "service-a"
        # and "x-ray" need theirs, so short parts make an identifier.
        return [], compound
    pieces = chain.split("'")
    if len(pieces) > 1:  # the s of "John's", the l of "l'école"; but keep something of "I'm"
        pieces = [piece for piece in pieces if len(piece) > 1 or not piece.isalpha()] or pieces
    signed = _NAMED.findall(chain) if "+" in chain or "#" in chain else []
    names = [base + _NAMES[sign] for base, sign in signed]
    if signed:
        pieces = [_NAMED.sub(lambda found: f"{found[1]}{_NAMES[found[2]]}_", piece) for piece in pieces]
    pieces = [piece.translate(_STRONG) for piece in pieces]
    wholes: dict[str, None] = {}  # an ordered set
    for joiner in "/.-_":  # outermost first
        for piece in pieces:
            parts = piece.translate(_BLANKS).split()
            if len(parts) > 1:
                wholes["_".join(parts)] = None
        pieces = [part for piece in pieces for part in piece.split(joiner) if part]
    words = [piece for piece in pieces if piece not in names]
    words += [base for base, _ in signed if len(base) > 1 or not base.isalpha()]
    return [*wholes, *names], words


def _cut(term: str) -> str:
    if len(term) * 4 <= _TERM_BYTES:
        return term
    return term[:_TERM_BYTES].encode()[:_TERM_BYTES].decode(errors="ignore")


_stemmers = threading.local()  # a Snowball stemmer holds state: one per thread and language


def _stemmer(language: str) -> Any:
    try:
        return getattr(_stemmers, language)
    except AttributeError:
        stemmer = Stemmer.Stemmer(language, 0)  # without its own cache: _Memory asks about a word once
        setattr(_stemmers, language, stemmer)
        return stemmer


def _folded_stop_words(words: Iterable[str]) -> frozenset[str]:
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise InvalidInput(f"stop_words are several words, not {words!r:.80}")
    folded: set[str] = set()
    for word in words:
        apart = [_take_apart(chain) for chain in _chains(word)]
        # "you're" is two words in every text, so here too. But the parts of "e-mail" would take "mail" along
        # unseen, and its whole alone would change next to nothing.
        if not apart or any(exact and len(exact) + len(parts) > 1 for exact, parts in apart):
            raise InvalidInput(f"stop word {word!r} is not one term; give the words that it is made of")
        folded.update(*(exact + parts for exact, parts in apart))
    return frozenset(folded)
