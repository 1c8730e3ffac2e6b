"""The names we own, and what a name of yours may be.

Every hash holds your fields under their own names beside ours, which start with two underscores,
so no field of yours may. A field name is never escaped, because engines disagree on how: Valkey
Search refuses a backslash in a name, RediSearch wants one. An index name is also the start of every
key (``docs`` -> ``docs:1``) and may carry a generation (``docs@2``), so ``@`` is ours in it.
"""

from __future__ import annotations

import re

from fields.errors import InvalidInput

TEXT_FIELD = "__text"  # the document's text, as given
SCORE_FIELD = "__score"  # the alias under which the engine returns its distance
TERMS_FIELD = "__terms"  # the analysed copy of the text
GENERATION = "@"

_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INDEX_NAME = re.compile(r"[^\s@\x00-\x1f\x7f\ud800-\udfff]+")
# Where a name may stand in FT.CREATE or RETURN, engines read these words, in any case, as their own.
_WORDS = frozenset("as sortable noindex indexmissing indexempty separator casesensitive withsuffixtrie".split())
# A prefix is a byte prefix: without a separator at its end, ``mem`` would take ``memory:1`` too.
SEPARATORS = (":", "/", "|", "#", ".")


def terms_field(text_field: str) -> str:
    """The name under which the analysed copy of a Text field is indexed."""
    return f"{TERMS_FIELD}_{text_field}"


def exact_field(numeric_field: str) -> str:
    """The name of a number's second copy, which is not indexed and so comes back as it was written.

    RediSearch prints an indexed number anew where RETURN names it: 0.30000000000000004 as 0.3.
    """
    return f"__exact_{numeric_field}"


def stamp_field(vector: str) -> str:
    """The name that holds the hash of the content a vector was made from."""
    return f"__of_{vector}"


def check_field_name(name: object) -> str:
    """The name itself, or InvalidInput: ``[A-Za-z_][A-Za-z0-9_]*``, no two leading underscores, no engine's word."""
    if not isinstance(name, str) or not _FIELD_NAME.fullmatch(name):
        raise InvalidInput(f"field name {name!r}: letters, digits and _, not starting with a digit")
    if name.lower() in _WORDS:
        raise InvalidInput(f"field name {name!r}: engines read it as a word of their own")
    if name.startswith("__"):
        raise InvalidInput(f"field name {name!r}: names with two leading underscores are reserved")
    return str.__str__(name)  # a str-Enum would format as its member's name


def check_index_name(name: object) -> str:
    """The name itself, or InvalidInput: not empty; no blanks, control characters or ``@``."""
    if not isinstance(name, str) or not _INDEX_NAME.fullmatch(name):
        raise InvalidInput(f"index name {name!r}: a non-empty string without blanks, control characters or @")
    return str.__str__(name)


def check_prefix(prefix: object) -> str:
    """The prefix itself, or InvalidInput: something, then one of ``: / | # .`` as its last character."""
    if not isinstance(prefix, str) or not _INDEX_NAME.fullmatch(prefix):
        raise InvalidInput(f"prefix {prefix!r}: a non-empty string without blanks, control characters or @")
    if len(prefix) < 2 or not prefix.endswith(SEPARATORS):
        raise InvalidInput(
            f"prefix {prefix!r} must end in a separator, one of {' '.join(SEPARATORS)} "
            f"(a prefix is a byte prefix: 'mem' would take the keys of 'memory:' too)"
        )
    return str.__str__(prefix)


def check_id(id: object) -> str:
    """The id itself, or InvalidInput: any non-empty string without NUL that UTF-8 can hold."""
    if not isinstance(id, str) or not id:
        raise InvalidInput(f"id {id!r}: a non-empty string")
    if "\0" in id:
        raise InvalidInput(f"id {id!r}: RediSearch finds a key with a NUL and cannot read it")
    utf8(id, "id")
    return id


def utf8(text: str, what: str) -> bytes:
    """The text in UTF-8, or InvalidInput: a lone surrogate (half a character) has no UTF-8 form."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what}: lone surrogate {error.object[error.start]!r} at {error.start}; not valid Unicode"
        ) from None
