"""Golden queries: what a user asks, and which documents answer it.

A file is YAML (a list of entries) or JSON lines (an entry a line); a folder is laid out as BEIR's are: queries.jsonl
and qrels/test.tsv beside corpus.jsonl. Rule: what cannot be used is an error with its line, what can be done without
is left out and said in ``notes``; nothing is repaired in silence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fields.errors import InvalidInput
from retriever.errors import MissingExtra

__all__ = ["EXTRA", "Golden", "Question", "read_golden"]

EXTRA = "pip install 'valkey-retriever[eval]'"
KEYS = ("query", "relevant", "authority", "noise", "category", "id", "filter")


@dataclass(frozen=True, slots=True)
class Question:
    """One golden query.

    relevant: id -> gain, a whole number: the higher the better the answer, 0 for what was judged and answers nothing.
        At least one is above 0. Ids are of documents: of an index, or of a memory's documents (not its chunks).
    authority: the id that should come first, one of the relevant. noise: ids that should not come at all.
    category: of the query, for the tables by category. filter: as in ``Retriever.query``; the query is asked with it.
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
        for id, gain in self.relevant.items():
            if isinstance(gain, bool) or not isinstance(gain, int) or gain < 0:
                raise InvalidInput(f"relevant: the gain of {id!r} is a whole number from 0 on, not {gain!r:.80}")
        gains = dict(self.relevant)
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
        if not self.questions:
            why = f": {self.notes[0]}" if self.notes else ""
            raise InvalidInput(f"{self.source or 'golden'}: no query that can be judged{why}")
        ids = [question.id for question in self.questions]
        twice = sorted({id for id in ids if ids.count(id) > 1}) if len(set(ids)) < len(ids) else []
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
    text = json.dumps([" ".join(query.split()), filter], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()


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
    filter = entry.get("filter")
    if filter is not None and not isinstance(filter, Mapping):
        raise InvalidInput(f"filter: a mapping expected, not {filter!r:.80}")
    authority = entry.get("authority")
    relevant = _gains(entry.get("relevant"))
    if authority in (None, "") and not any(relevant.values()):
        raise _Unjudged("no relevant ids")
    return Question(
        entry["query"],
        relevant,
        None if authority in (None, "") else _id(authority, "authority"),
        _ids(entry.get("noise"), "noise"),
        None if entry.get("category") in (None, "") else str(entry["category"]),
        filter,
        "" if entry.get("id") is None else _id(entry["id"], "id"),
    )


def _gains(given: object) -> dict[str, int]:
    if isinstance(given, Mapping):
        return {_id(id, "relevant"): _gain(id, gain) for id, gain in given.items()}
    return dict.fromkeys(_ids(given, "relevant"), 1)


def _gain(id: object, value: object) -> int:
    gain = str(value).strip()
    if not gain.isdecimal() or isinstance(value, bool):
        raise InvalidInput(f"relevant: the gain of {id!r} is a whole number from 0 on, not {value!r:.80}")
    return int(gain)


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
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"{path}:{number}: no JSON: {error}") from None


def _yaml(path: Path, text: str) -> Iterator[tuple[int, object]]:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(f"YAML is read by PyYAML ({error}); {EXTRA}, or write JSON lines") from error

    def value(node: Any, *, typed: bool = False) -> object:
        # Ids stay as they are written: to YAML 007 is the number 7, no is false and 2024-01-01 a date.
        if isinstance(node, yaml.MappingNode):
            found: dict[str, object] = {}
            for key, each in node.value:
                name = str(key.value)
                if name in found:
                    raise InvalidInput(f"{path}:{key.start_mark.line + 1}: the key {name!r} is there twice")
                found[name] = value(each, typed=typed or name == "filter")
            return found
        if isinstance(node, yaml.SequenceNode):
            return [value(each, typed=typed) for each in node.value]
        if typed:
            return loader.construct_object(node)
        return None if node.tag == "tag:yaml.org,2002:null" else node.value

    loader = yaml.SafeLoader(text)
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
    for number, line in enumerate(_text(path).splitlines(), 1):
        parts = line.split("\t")
        if not line.strip() or (number == 1 and not parts[-1].strip().lstrip("-").isdecimal()):
            continue  # the head: query-id, corpus-id, score
        if len(parts) != 3 or not parts[2].strip().lstrip("-").isdecimal():
            raise InvalidInput(f"{path}:{number}: query id, document id and a whole number expected, not {line!r:.80}")
        # trec's files mark what is worse than irrelevant by a negative gain; it answers nothing.
        judged.setdefault(parts[0], {})[parts[1]] = max(0, int(parts[2]))
    return judged


def beir_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, row) of a .jsonl file of BEIR's layout."""
    if not path.is_file():
        raise InvalidInput(f"{path}: no such file; a folder holds corpus.jsonl, queries.jsonl and qrels/test.tsv")
    for number, row in _json_lines(path, _text(path)):
        if not isinstance(row, dict) or "_id" not in row:
            raise InvalidInput(f"{path}:{number}: a JSON object with the key _id expected")
        yield str(row["_id"]), row


def some(ids: Iterable[str], one: str, many: str) -> str:
    """How many there are, and the names of the first."""
    ids = list(ids)
    named = ", ".join(map(repr, ids[:5]))
    return f"{len(ids)} {one if len(ids) == 1 else many} ({named}{', ...' if len(ids) > 5 else ''})"
