"""A checker of commands: of the query language that Valkey Search and RediSearch share, and of what else we send.

It accepts exactly the subset that both engines answer alike, and raises Refused for everything else,
also for what one of them would take. A query is read into a tree, which ``holds`` evaluates on a
document's fields: a second reading of a filter, independent of the code that wrote it.

``check_command`` holds a whole command to Valkey Search, 1.2 or (``old``) 1.0, which has no TEXT, answers no
query without a vector, and takes less, or (``scores``) 1.3.

    query   = ("*" | group) knn | group | word
    knn     = "=>[KNN k @name $vec" [" EF_RUNTIME n"] " AS __score]"
    group   = "(" clause {" " clause} ")" | "(" clause {"|" clause} ")"
    clause  = ["-"] leaf | group
    leaf    = "@" name ":{" value {"|" value} "}" | "@" name ":[" bound " " bound "]" | word
    word    = "@" name ":" (letter | digit | "_" | non-ASCII that is no space)+, never beside a knn
    value   = ("\\" ASCII that is no letter or digit | letter | digit | non-ASCII)+
    bound   = ["("] ("-inf" | "inf" | "+inf" | ["-"] digits ["." digits])
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

MAX_K = 10_000
MAX_EF_RUNTIME = 40_000
MAX_QUERY_BYTES = 10_240
MAX_TIMEOUT_MS = 60_000
MAX_DIMS = 32_768
MAX_PREFIXES = 8
MAX_FIELDS = 1_000
MAX_TEXT_FIELDS = 64
MAX_CONDITIONS = 500  # Valkey Search counts each condition and each joint between two, to 1,000
MAX_PARENTHESES = 250  # half of what overflows RediSearch's parser
# Of Valkey Search 1.0; a vector of 32,768 is already one too many for it.
OLD_DIMS, OLD_FIELDS, OLD_EF_RUNTIME = 32_767, 50, 4_096
SEPARATOR = "\x1f"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_INFINITE = {"-inf": -math.inf, "inf": math.inf, "+inf": math.inf}
_KNN = re.compile(r"=>\[KNN ([0-9]+) @([A-Za-z_][A-Za-z0-9_]*) \$vec(?: EF_RUNTIME ([0-9]+))? AS __score\]")


class Refused(Exception):
    """An engine would refuse this, or read it as something else than the other engine does."""


class Tags(NamedTuple):
    """The TAG field holds one of the values, as they are stored."""

    name: str
    values: tuple[str, ...]


class Range(NamedTuple):
    """The NUMERIC field lies between the bounds."""

    name: str
    low: float
    low_open: bool
    high: float
    high_open: bool


class Word(NamedTuple):
    """The TEXT field holds the term."""

    name: str
    term: str


class Not(NamedTuple):
    """The part does not hold."""

    part: Any


class Group(NamedTuple):
    """All (``and``) or one (``or``) of the parts hold; a group of one says ``and``."""

    operator: str
    parts: tuple[Any, ...]


class Knn(NamedTuple):
    """The k nearest; ef_runtime None where it is not said."""

    k: int
    vector: str
    ef_runtime: int | None


class Query(NamedTuple):
    """filter: a tree, or None for everything. knn: None for a query without a vector. words: it asks for terms."""

    filter: Any
    knn: Knn | None
    words: bool = False


def read_query(text: str) -> Query:
    """The query that a string says. Raises Refused."""
    if len(text.encode()) > MAX_QUERY_BYTES:
        raise Refused(f"{len(text.encode())} bytes")
    reader = _Reader(text)
    if text.startswith("*"):
        reader.at = 1
        return Query(None, reader.knn())
    tree = reader.clause() if text.startswith("@") else reader.group()
    if text.startswith("@") and not isinstance(tree, Word):
        raise Refused("a condition stands in parentheses")
    knn = reader.knn() if reader.at < len(text) else None
    if knn and reader.words:  # Valkey Search 1.2 forgets a term that is ANDed in the filter of an HNSW search
        raise Refused("a term in the filter of a KNN query")
    return Query(tree, knn, reader.words)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.depth = self.conditions = 0
        self.words = False

    def refuse(self, why: str) -> Refused:
        return Refused(f"{why} at {self.at}: {self.text[self.at : self.at + 20]!r}")

    def take(self, word: str) -> None:
        if not self.text.startswith(word, self.at):
            raise self.refuse(f"{word!r} expected")
        self.at += len(word)

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def knn(self) -> Knn:
        found = _KNN.fullmatch(self.text, self.at)
        if not found:
            raise self.refuse("no KNN clause")
        k, vector, ef_runtime = found.groups()
        if not 1 <= int(k) <= MAX_K or k.startswith("0"):
            raise self.refuse(f"k {k}")
        if ef_runtime is not None and not 1 <= int(ef_runtime) <= MAX_EF_RUNTIME:
            raise self.refuse(f"EF_RUNTIME {ef_runtime}")
        return Knn(int(k), vector, None if ef_runtime is None else int(ef_runtime))

    def group(self) -> Group:
        self.take("(")
        self.depth += 1
        if self.depth > MAX_PARENTHESES:
            raise self.refuse("too many parentheses")
        parts, joint = [self.clause()], None
        while self.next() != ")":
            if self.next() not in (" ", "|") or (joint and self.next() != joint):
                raise self.refuse("one of ' ' and '|' throughout a group expected")
            joint = self.next()
            self.at += 1
            parts.append(self.clause())
        self.take(")")
        self.depth -= 1
        return Group("or" if joint == "|" else "and", tuple(parts))

    def clause(self) -> Any:
        if self.next() == "(":
            return self.group()
        if self.next() == "-":
            self.at += 1
            return Not(self.leaf())
        return self.leaf()

    def leaf(self) -> Any:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise self.refuse("too many conditions")
        self.take("@")
        found = _NAME.match(self.text, self.at)
        if not found:
            raise self.refuse("a field name expected")
        self.at = found.end()
        self.take(":")
        if self.next() == "{":
            return self.tags(found[0])
        if self.next() == "[":
            return self.range(found[0])
        return self.word(found[0])

    def word(self, name: str) -> Word:
        start = self.at
        while (char := self.next()) and (char.isalnum() or char == "_" or (char > "\x7f" and not char.isspace())):
            self.at += 1
        term = self.text[start : self.at]
        if not term.strip("_"):  # alone, _ is a syntax error to RediSearch
            raise self.refuse("a term, { or [ expected")
        self.words = True
        return Word(name, term)

    def tags(self, name: str) -> Tags:
        self.take("{")
        values = [self.value()]
        while self.next() == "|":
            self.at += 1
            values.append(self.value())
        self.take("}")
        return Tags(name, tuple(values))

    def value(self) -> str:
        start, read = self.at, []
        while char := self.next():
            if char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                if not escaped or not " " <= escaped <= "~" or escaped.isalnum():
                    raise self.refuse("a backslash belongs before ASCII punctuation only")
                read.append(escaped)
                self.at += 2
            elif char > "\x7f" or char.isalnum():
                read.append(char)
                self.at += 1
            else:
                break
        value = "".join(read)
        # Neither is exact, however it is escaped: a final * is a prefix query to Valkey Search, outer
        # blanks are stripped where values are indexed.
        if not value or value.endswith("*") or value != value.strip(" "):
            raise Refused(f"no exact spelling: {value!r} at {start}")
        return value

    def range(self, name: str) -> Range:
        self.take("[")
        low, low_open = self.bound()
        self.take(" ")
        high, high_open = self.bound()
        self.take("]")
        if low > high or (low == high and (low_open or high_open)):
            raise self.refuse("an empty or reversed range")
        return Range(name, low, low_open, high, high_open)

    def bound(self) -> tuple[float, bool]:
        is_open = self.next() == "("
        self.at += is_open
        end = re.compile(r"[ \]]|\Z").search(self.text, self.at).start()
        word = self.text[self.at : end]
        if word not in _INFINITE and not _NUMBER.fullmatch(word):
            raise self.refuse("a number without an exponent expected")
        self.at = end
        return _INFINITE[word] if word in _INFINITE else float(word), is_open


def holds(tree: Any, stored: dict[str, Any]) -> bool:
    """Whether a document passes; stored: TAG and TEXT as a list of strings, NUMERIC as a number."""
    match tree:
        case None:
            return True
        case Tags(name, values):
            return any(value in values for value in stored.get(name, ()))
        case Range(name, low, low_open, high, high_open):
            if name not in stored:
                return False
            number = stored[name]
            return (number > low if low_open else number >= low) and (number < high if high_open else number <= high)
        case Word(name, term):
            return term in stored.get(name, ())
        case Not(part):
            return not holds(part, stored)
        case Group("and", parts):
            return all(holds(part, stored) for part in parts)
        case Group("or", parts):
            return any(holds(part, stored) for part in parts)
    raise TypeError(tree)


# --- commands -------------------------------------------------------------------------------------


class _Words:
    def __init__(self, args: Sequence[Any]) -> None:
        self.args, self.at = list(args), 0

    def any(self) -> Any:
        if self.at >= len(self.args):
            raise Refused("the command ends too early")
        self.at += 1
        return self.args[self.at - 1]

    def take(self, *words: Any) -> None:
        for word in words:
            found = self.any()
            if found != word or type(found) is not type(word):
                raise Refused(f"{word!r} expected, not {found!r}")

    def optional(self, word: str) -> bool:
        if self.at < len(self.args) and self.args[self.at] == word:
            self.at += 1
            return True
        return False

    def number(self, least: int, most: int) -> int:
        found = self.any()
        if type(found) is not int or not least <= found <= most:
            raise Refused(f"an int from {least} to {most} expected, not {found!r}")
        return found

    def name(self) -> str:
        found = self.any()
        if not isinstance(found, str) or not _NAME.fullmatch(found):
            raise Refused(f"a field name expected, not {found!r}")
        return found

    def left(self) -> bool:
        return self.at < len(self.args)

    def end(self) -> None:
        if self.left():
            raise Refused(f"unexpected {self.args[self.at]!r}")


def check_search(args: Sequence[Any], *, scores: bool = False) -> Query:
    """Refused unless these are the words of an FT.SEARCH that both engines answer alike; its query.

    scores: the engine ranks matches of a text, which Valkey Search before 1.3 does not.
    """
    words = _Words(args)
    words.take("FT.SEARCH")
    words.any()
    query = read_query(words.any())
    if query.knn:  # every parameter used, and no other
        words.take("PARAMS", 2, "vec")
        vector = words.any()
        if type(vector) is not bytes or not vector or len(vector) % 4:
            raise Refused(f"a vector of float32 expected, not {vector!r}")
        words.take("RETURN")
        returned = [words.name() for _ in range(words.number(1, 1_000))]
        if returned[0] != "__score" or len(set(returned)) < len(returned):
            raise Refused(f"RETURN {returned}")
        most = least = query.knn.k
    else:
        if not words.optional("VERBATIM") and query.words:
            raise Refused("terms that the engine would stem")
        least = most = 0
        if words.optional("RETURN"):
            least, most = 1, MAX_K
            for _ in range(words.number(1, 1_000)):
                words.name()
        if scores and words.optional("SCORER"):
            words.take("BM25STD")
            words.optional("WITHSCORES")
    words.take("LIMIT", 0)
    limit = words.number(0, MAX_K)
    if not least <= limit <= most:
        raise Refused(f"LIMIT 0 {limit} cuts or counts something else than was asked")
    words.take("TIMEOUT")
    words.number(1, MAX_TIMEOUT_MS)
    words.take("DIALECT", 2)
    words.end()
    return query


# Words that an engine, in any case, takes for an option where a name may stand; of TEXT there are more.
_OPTIONS = set("as sortable noindex indexmissing indexempty separator casesensitive withsuffixtrie".split())
_TEXT_OPTIONS = {"nostem", "weight", "phonetic"}
_ATTRIBUTES = {
    "HNSW": {"M", "EF_CONSTRUCTION", "EF_RUNTIME", "INITIAL_CAP"},
    "FLAT": {"INITIAL_CAP", "BLOCK_SIZE"},
}


def check_create(args: Sequence[Any], *, weights: bool = False, old: bool = False) -> dict[str, str]:
    """Refused unless these are the words of an FT.CREATE that both engines take; field name -> kind.

    weights: the engine takes a WEIGHT other than 1, which Valkey Search does not. old: it is Valkey Search 1.0.
    """
    words = _Words(args)
    words.take("FT.CREATE")
    index = words.any()
    if not isinstance(index, str) or not index:
        raise Refused("the index has no name")
    words.take("ON", "HASH", "PREFIX")
    for _ in range(words.number(1, MAX_PREFIXES)):
        prefix = words.any()
        if not prefix:
            raise Refused("an empty prefix takes every key")
        if not weights and (hash_tag(prefix) != hash_tag(index) or (old and hash_tag(prefix))):
            raise Refused(f"the hash tag of {prefix!r}")
    if not old:
        words.optional("SKIPINITIALSCAN")
        words.take("STOPWORDS", 0)
    words.take("SCHEMA")
    kinds: dict[str, str] = {}
    kind = ""
    while words.left():
        name, before, kind = words.name(), kind, words.any()
        if name in kinds:
            raise Refused(f"{name} twice")
        if name.lower() in _OPTIONS | (_TEXT_OPTIONS if before == "TEXT" else set()):
            raise Refused(f"{name} would be read as an option of the field before it")
        kinds[name] = kind
        match kind:
            case "TEXT" if not old:
                words.take("NOSTEM")
                if words.optional("WEIGHT") and float(words.any()) != 1 and not weights:
                    raise Refused("WEIGHT other than 1")
            case "TAG":
                words.take("SEPARATOR", SEPARATOR, "CASESENSITIVE")
            case "NUMERIC":
                pass
            case "VECTOR":
                _check_vector(words, old=old)
            case _:
                raise Refused(f"{name}: {kind!r}")
    if list(kinds.values()).count("VECTOR") != 1:
        raise Refused("one vector expected")
    if len(kinds) > (OLD_FIELDS if old else MAX_FIELDS) or list(kinds.values()).count("TEXT") > MAX_TEXT_FIELDS:
        raise Refused("too many fields")
    return kinds


def hash_tag(key: str) -> str:
    """What a cluster hashes of a key instead of the whole; empty where it hashes the whole."""
    found = re.match(r"[^{]*\{([^}]+)\}", key)
    return found[1] if found else ""


def _check_vector(words: _Words, *, old: bool) -> None:
    algorithm = words.any()
    if algorithm not in _ATTRIBUTES:
        raise Refused(f"algorithm {algorithm!r}")
    end = words.number(6, 20) + words.at
    words.take("TYPE", "FLOAT32", "DIM")
    words.number(1, OLD_DIMS if old else MAX_DIMS)
    words.take("DISTANCE_METRIC")
    if words.any() not in ("COSINE", "L2", "IP"):
        raise Refused("metric")
    seen = set()
    while words.at < end:
        attribute = words.any()
        if attribute not in _ATTRIBUTES[algorithm] - seen:
            raise Refused(f"{attribute!r} for {algorithm}")
        seen.add(attribute)
        most = {"M": 512, "EF_CONSTRUCTION": 4_096, "EF_RUNTIME": OLD_EF_RUNTIME if old else MAX_EF_RUNTIME}
        words.number(1, most.get(attribute, 1_000_000_000))
    if words.at != end:
        raise Refused("a wrong count of attributes")


# What is sent besides FT commands, and what the scripts call: one key each, which is where the command goes.
_OF_A_KEY = {"HSET", "HSETNX", "HMGET", "HGETALL", "HEXISTS", "DEL"}
_IN_SCRIPTS = {"TYPE", "EXISTS", "HEXISTS", "HGET", "HSET", "HDEL", "HINCRBY", "DEL", "UNLINK", "PEXPIRE"}


def check_command(args: Sequence[Any], route: Any, *, old: bool = False, scores: bool = False) -> str:
    """Refused unless Valkey Search takes the command, or it is a plain one that we know of; its name.

    route: where it is to go, a key or None for any node. old: it is Valkey Search 1.0. scores: it is 1.3.
    """
    words = _Words(args)
    match words.any():
        case "FT.CREATE":
            check_create(args, old=old)
        case "FT.SEARCH":
            if check_search(args, scores=scores).knn is None and old:
                raise Refused("a query without a vector")
        case "FT.INFO" | "FT.DROPINDEX":  # neither has options: DD is RediSearch's
            if not words.any():
                raise Refused("the index has no name")
            words.end()
        case "FT._LIST" | "HELLO":
            words.end()
        case "CLIENT":
            words.take("INFO")
            words.end()
        case "SCAN":
            words.number(0, 2**64)
            words.take("MATCH")
            words.any()
            words.take("COUNT")
            words.number(1, 10_000)
            words.take("TYPE", "hash")
            words.end()
        case "EVAL":
            script = words.any()
            words.take(1, route)
            called = re.findall(r"redis\.call\(([^,)]*)", script)
            if not called or not {name.strip("'") for name in called} <= _IN_SCRIPTS:
                raise Refused(f"a script that calls {called}")
            if len(called) != script.count("redis."):
                raise Refused("a script that does more than call")
        case name if name in _OF_A_KEY:
            words.take(route)
        case name:
            raise Refused(f"{name!r} is no command that we know of")
    if not all(type(word) in (str, bytes, int, float) for word in args):
        raise Refused("a word that no client can send")
    return str(args[0])
