"""Golden queries: what a user asks, and which documents answer it.

A file is YAML (a list of entries) or JSON lines (an entry a line); a folder is laid out as BEIR's are: queries.jsonl
and qrels/test.tsv beside corpus.jsonl. Rule: what cannot be used is an error with its line, what can be done without
is left out and said in ``notes``; nothing is repaired in silence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fields.errors import InvalidInput
from fields.names import check_id
from retriever.errors import MissingExtra

__all__ = ["EXTRA", "Golden", "Question", "read_golden"]

EXTRA = "pip install 'valkey-retriever[eval]'"
KEYS = ("query", "relevant", "authority", "noise", "category", "id", "filter")
# trec_eval keeps a count for every gain up to the highest: it slows down with it, and crashes at 2**31.
MAX_GAIN = 1_000
# PyYAML takes about ten seconds and 70 MB for each.
_MAX_YAML_MB = 10
_WHOLE = re.compile(r"-?\d{1,9}")  # int() refuses numbers of many thousand digits in words of its own


@dataclass(frozen=True, slots=True)
class Question:
    """One golden query.

    relevant: id -> gain, a whole number up to 1,000: the higher the better the answer, 0 for what was judged and
        answers nothing. At least one is above 0. Ids are of documents: of an index, or of a memory's documents (not its
        chunks).
    authority: the id that should come first, one of the relevant. noise: ids that should not come at all.
    category: of the query, for the tables by category. filter: as in ``Retriever.query``, in the form of a mapping of
        what JSON has; the query is asked with it.
    id: of the query; made of its text and filter unless given, so that reports of two days can be compared.
    """

    query: str
    relevant: Mapping[str, int]
    authority: str | None = None
    noise: tuple[str, ...] = ()
    category: str | None = None
    filter: Mapping[str, Any] | None = None
    id: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise InvalidInput(f"query: a text expected, not {self.query!r:.80}")
        for what, word in (("category", self.category or ""), ("id", self.id)):
            if not isinstance(word, str):
                raise InvalidInput(f"{what}: a text expected, not {word!r:.80}")
        if not isinstance(self.relevant, Mapping):
            raise InvalidInput(f"relevant: a mapping of ids to gains expected, not {self.relevant!r:.80}")
        if isinstance(self.noise, str):
            raise InvalidInput(f"noise: several ids expected, not {self.noise!r:.80}")
        gains = {check_id(id): _check_gain(id, gain) for id, gain in self.relevant.items()}
        for id in (*self.noise, *(() if self.authority is None else (self.authority,))):
            check_id(id)
        _check_filter(self.filter)
        if self.authority is not None:  # what should come first answers the query, listed or not
            gains[self.authority] = gains.get(self.authority, 0) or max(gains.values(), default=0) or 1
        if not any(gains.values()):
            raise InvalidInput("no relevant ids; at least one document must answer the query")
        both = [id for id in self.noise if gains.get(id)]
        if both:
            raise InvalidInput(f"{', '.join(map(repr, both))}: relevant and noise as well; it can be one of them")
        object.__setattr__(self, "relevant", gains)
        object.__setattr__(self, "id", self.id or _digest(self.query, self.filter))

    def __hash__(self) -> int:
        return hash(self.id)

    def to_dict(self) -> dict[str, Any]:
        """As an entry of a golden file, without what it does not have."""
        entry = {name: getattr(self, name) for name in KEYS}
        entry |= {"relevant": dict(self.relevant), "noise": list(self.noise)}
        return {name: value for name, value in entry.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class Golden:
    """Golden queries, each once. source: where they are from; notes: what of it was left out, and why."""

    questions: tuple[Question, ...]
    source: str = ""
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", tuple(self.questions))
        wrong = next((each for each in self.questions if not isinstance(each, Question)), None)
        if wrong is not None:
            raise InvalidInput(f"questions: a Question expected, not {wrong!r:.80}")
        if not self.questions:
            why = f": {self.notes[0]}" if self.notes else ""
            raise InvalidInput(f"{self.source or 'golden'}: no query that can be judged{why}")
        twice = [id for id, count in Counter(question.id for question in self.questions).items() if count > 1]
        if twice:
            raise InvalidInput(
                f"{self.source or 'golden'}: two queries with the id {twice[0]!r}; an id is of one query"
            )


def read_golden(path: str | Path) -> Golden:
    """The golden queries of a .yaml, .yml or .jsonl file, or of a folder laid out as BEIR's are.

    An entry without a relevant id, and a query that is there already, are left out and noted; likewise a query of a
    folder without a judgement, and a judgement without its query.
    Raises InvalidInput with file and line for what cannot be read, OSError, MissingExtra for YAML without PyYAML.
    """
    path = Path(path)
    if path.is_dir():
        return _read_beir(path)
    read = {".yaml": _yaml, ".yml": _yaml, ".jsonl": _json_lines}.get(path.suffix.lower())
    if read is None:
        raise InvalidInput(
            f"{path}: a .yaml or .jsonl file expected, or a folder with queries.jsonl and qrels; "
            f"`retriever convert` makes one of a LongMemEval or LoCoMo file"
        )
    questions: list[Question] = []
    notes: list[str] = []
    lines: dict[str, int] = {}
    for line, entry in read(path, _text(path)):
        place = f"{path}:{line}"
        try:
            question = _question(entry)
        except _Unjudged as none:
            notes.append(f"{place}: {none}: left out")
            continue
        except InvalidInput as error:
            raise InvalidInput(f"{place}: {error}") from None
        key = _digest(question.query, question.filter)
        if key in lines:
            notes.append(f"{place}: the same query as in line {lines[key]}: left out")
            continue
        lines[key] = line
        questions.append(question)
    if not lines and not notes:
        raise InvalidInput(f"{path}: no entry in it; an entry is a query and its relevant ids")
    return Golden(tuple(questions), str(path), tuple(notes))


class _Unjudged(InvalidInput):
    """An entry with nothing that answers it."""


def _digest(query: str, filter: object) -> str:
    text = json.dumps([" ".join(query.split()), filter], sort_keys=True)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def _check_gain(id: str, gain: object) -> int:
    if isinstance(gain, bool) or not isinstance(gain, int) or not 0 <= gain <= MAX_GAIN:
        raise InvalidInput(f"relevant: the gain of {id!r} is a whole number from 0 to {MAX_GAIN:,}, not {gain!r:.80}")
    return gain


def _check_filter(filter: object) -> None:
    """A report repeats it: what JSON does not have (a date, NaN) would lose the report once everything is asked."""
    if filter is None:
        return
    if not isinstance(filter, Mapping):
        raise InvalidInput(f"filter: a mapping expected, not {filter!r:.80}")
    try:
        json.dumps(filter, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"filter: only what JSON has ({error}); to YAML a date is none: quote it") from None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: no UTF-8: {error}") from None


# --- an entry -------------------------------------------------------------------------------------


def _question(entry: object) -> Question:
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"an entry with the keys query and relevant expected, not {entry!r:.80}")
    unknown = [str(name) for name in entry if name not in KEYS]
    if unknown:
        raise InvalidInput(f"unknown key {', '.join(map(repr, unknown))}; known: {', '.join(KEYS)}")
    if "query" not in entry:
        raise InvalidInput("the key query is missing")
    category = entry.get("category")
    if isinstance(category, (list, Mapping)):
        raise InvalidInput(f"category: a word expected, not {category!r:.80}")
    authority = entry.get("authority")
    relevant = _gains(entry.get("relevant"))
    if authority in (None, "") and not any(relevant.values()):
        raise _Unjudged("no relevant ids")
    return Question(
        entry["query"],
        relevant,
        None if authority in (None, "") else _id(authority, "authority"),
        _ids(entry.get("noise"), "noise"),
        None if category in (None, "") else str(category),
        entry.get("filter"),
        "" if entry.get("id") is None else _id(entry["id"], "id"),
    )


def _gains(given: object) -> dict[str, int]:
    if isinstance(given, Mapping):
        return {_id(id, "relevant"): _gain(id, gain) for id, gain in given.items()}
    return dict.fromkeys(_ids(given, "relevant"), 1)


def _gain(id: object, value: object) -> int:
    given = value.strip() if isinstance(value, str) else value  # YAML's scalars are texts here
    if isinstance(given, str) and _WHOLE.fullmatch(given):
        given = int(given)
    return _check_gain(str(id), given)


def _ids(given: object, what: str) -> tuple[str, ...]:
    if given in (None, ""):
        return ()
    if isinstance(given, (str, int)):
        given = [given]
    if not isinstance(given, list):
        raise InvalidInput(f"{what}: a list of ids expected, not {given!r:.80}")
    return tuple(dict.fromkeys(_id(each, what) for each in given))


def _id(value: object, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise InvalidInput(f"{what}: an id expected, not {value!r:.80}")
    return str(value)


# --- files ----------------------------------------------------------------------------------------


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line, object_pairs_hook=_once)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"{path}:{number}: no JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _yaml(path: Path, text: str) -> Iterator[tuple[int, object]]:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(f"YAML is read by PyYAML ({error}); {EXTRA}, or write JSON lines") from error

    if len(text) > _MAX_YAML_MB * 1_000_000:
        raise InvalidInput(f"{path}: more than {_MAX_YAML_MB} MB of YAML; write JSON lines, which are read much faster")
    left = 10 * len(text)  # aliases of aliases can stand for more than any memory holds

    def value(node: Any, *, typed: bool = False) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise InvalidInput(f"{path}:{node.start_mark.line + 1}: aliases stand for more than ten times the file")
        # Ids stay as they are written: to YAML 007 is the number 7, no is false and 2024-01-01 a date.
        if isinstance(node, yaml.MappingNode):
            found: dict[str, object] = {}
            for key, each in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise InvalidInput(f"{path}:{key.start_mark.line + 1}: a key is a word, not a list or a mapping")
                name = str(key.value)
                if name in found:
                    raise InvalidInput(f"{path}:{key.start_mark.line + 1}: the key {name!r} is there twice")
                found[name] = value(each, typed=typed or name == "filter")
            return found
        if isinstance(node, yaml.SequenceNode):
            return [value(each, typed=typed) for each in node.value]
        if typed:
            try:
                return loader.construct_object(node)
            except (KeyError, ValueError):  # !!bool maybe, the 13th month
                place, kind = f"{path}:{node.start_mark.line + 1}", node.tag.rpartition(":")[2]
                raise InvalidInput(f"{place}: no YAML: {node.value!r:.80} is no {kind}") from None
        return None if node.tag == "tag:yaml.org,2002:null" else node.value

    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InvalidInput(
            f"{path}:{line}: no YAML: the character {chr(error.character)!r} cannot stand there"
        ) from None
    try:
        root = loader.get_single_node()
        if root is None:
            return
        if not isinstance(root, yaml.SequenceNode):
            raise InvalidInput(f"{path}:{root.start_mark.line + 1}: a list of entries expected, each begun with '- '")
        for node in root.value:
            yield node.start_mark.line + 1, value(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise InvalidInput(f"{path}:{line}: no YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path}: no YAML: {error}") from None
    finally:
        loader.dispose()


# --- a folder -------------------------------------------------------------------------------------


def _read_beir(folder: Path) -> Golden:
    queries = dict(beir_rows(folder / "queries.jsonl"))
    judged = _judgements(_qrels_file(folder))
    missing, extra = [id for id in judged if id not in queries], [id for id in queries if id not in judged]
    questions: list[Question] = []
    seen: set[str] = set()
    twice: list[str] = []
    unanswered: list[str] = []
    for id, row in queries.items():
        if id not in judged:
            continue
        text = row.get("text")
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"{folder / 'queries.jsonl'}: query {id!r} has no text")
        if not any(judged[id].values()):
            unanswered.append(id)
        elif (key := " ".join(text.split())) in seen:
            twice.append(id)
        else:
            seen.add(key)
            questions.append(Question(text, judged[id], id=id))
    notes = [
        f"{folder}: {some(ids, 'query', 'queries')} {why}: left out"
        for ids, why in (
            (missing, "judged, and not in queries.jsonl"),
            (extra, "without a judgement"),
            (unanswered, "that nothing answers"),
            (twice, "whose text another one has"),
        )
        if ids
    ]
    return Golden(tuple(questions), str(folder), tuple(notes))


def _qrels_file(folder: Path) -> Path:
    names = ("qrels/test.tsv", "qrels.tsv")
    found = [folder / name for name in names if (folder / name).is_file()] or sorted(folder.glob("qrels/*.tsv"))
    if not found:
        raise InvalidInput(f"{folder}: no qrels/test.tsv; it holds query id, document id and gain, with tabs between")
    if len(found) > 1 and found[0].name not in ("test.tsv", "qrels.tsv"):
        said = ", ".join(path.name for path in found)
        raise InvalidInput(f"{folder}: several files of judgements and no test.tsv: {said}; leave the one to use")
    return found[0]


def _judgements(path: Path) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_text(path).split("\n"), 1):
        parts = line.rstrip("\r").split("\t")
        whole = _WHOLE.fullmatch(parts[-1].strip())
        if not line.strip() or (number == 1 and not whole):
            continue  # the head: query-id, corpus-id, score
        if len(parts) != 3 or not whole:
            raise InvalidInput(f"{path}:{number}: query id, document id and a whole number expected, not {line!r:.80}")
        # trec's files mark what is worse than irrelevant by a negative gain; it answers nothing.
        judged.setdefault(parts[0], {})[parts[1]] = max(0, int(parts[2]))
    return judged


def beir_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, row) of a .jsonl file of BEIR's layout, each id once."""
    if not path.is_file():
        raise InvalidInput(f"{path}: no such file; a folder holds corpus.jsonl, queries.jsonl and qrels/test.tsv")
    lines: dict[str, int] = {}
    for number, row in _json_lines(path, _text(path)):
        if not isinstance(row, dict) or "_id" not in row:
            raise InvalidInput(f"{path}:{number}: a JSON object with the key _id expected")
        id = str(row["_id"])
        if id in lines:
            raise InvalidInput(f"{path}:{number}: the _id {id!r} is that of line {lines[id]} already")
        lines[id] = number
        yield id, row


def some(ids: Iterable[str], one: str, many: str) -> str:
    """How many there are, and the names of the first."""
    ids = list(ids)
    named = ", ".join(map(repr, ids[:5]))
    return f"{len(ids)} {one if len(ids) == 1 else many} ({named}{', ...' if len(ids) > 5 else ''})"
