"""Collections that others have judged, as documents to load and golden queries to ask.

A folder laid out as BEIR's are, a LongMemEval file, a LoCoMo file: each becomes schema.toml, documents.jsonl and
golden.jsonl, which ``retriever create``, ``load`` and ``eval`` take. The files are the user's; none comes with this
project. Where a collection asks each query of a part of its documents alone, the golden query has a filter for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fields.errors import InvalidInput
from fields.names import check_index_name
from retriever.evaluation.golden import Golden, Question, beir_rows, read_golden, some

__all__ = ["Collection", "convert", "read_collection"]

# What LoCoMo's numbers of categories stand for. Source: Maharana et al., ACL 2024, arXiv 2402.17753, and its data.
LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_TURN = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True, slots=True)
class Collection:
    """fields: name -> kind, as in a schema's file. documents: as lines of ``retriever load``."""

    fields: Mapping[str, str]
    documents: Sequence[Mapping[str, Any]]
    golden: Golden


def read_collection(path: str | Path) -> Collection:
    """The collection in a BEIR folder, or in a LongMemEval or LoCoMo file, told by what is in it.

    Raises InvalidInput naming the place for what is none of them, OSError.
    """
    path = Path(path)
    if path.is_dir():
        return _beir(path)
    try:
        items = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: no JSON: {error}") from None
    first = items[0] if isinstance(items, list) and items else None
    if isinstance(first, dict) and "haystack_sessions" in first:
        return _longmemeval(path, items)
    if isinstance(first, dict) and {"conversation", "qa"} <= first.keys():
        return _locomo(path, items)
    raise InvalidInput(f"{path}: neither a LongMemEval file (haystack_sessions) nor a LoCoMo file (conversation, qa)")


def convert(path: str | Path, folder: str | Path, name: str) -> Collection:
    """Write schema.toml, documents.jsonl and golden.jsonl of a collection; name: of the index that they are for.

    Raises InvalidInput as ``read_collection`` does and for a name that no index can have, OSError.
    """
    check_index_name(name)
    collection, folder = read_collection(path), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    fields = [f"{field} = {{ {kind} }}" for field, kind in collection.fields.items()]
    # TOML knows no surrogate pair, which JSON makes of what is beyond U+FFFF when it keeps to ASCII.
    schema = [f"name = {json.dumps(name, ensure_ascii=False)}", "", "[fields]", *fields, ""]
    (folder / "schema.toml").write_text("\n".join(schema), "utf-8")
    for file, rows in (
        ("documents.jsonl", collection.documents),
        ("golden.jsonl", [question.to_dict() for question in collection.golden.questions]),
    ):
        (folder / file).write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return collection


# --- BEIR -----------------------------------------------------------------------------------------


def _beir(folder: Path) -> Collection:
    """A document's text is its title and its text, as the collections are mostly searched.

    Source: Thakur et al., NeurIPS 2021, arXiv 2104.08663.
    """
    golden = read_golden(folder)
    texts = {
        id: "\n".join(str(row[name]) for name in ("title", "text") if row.get(name))
        for id, row in beir_rows(folder / "corpus.jsonl")
    }
    empty = [id for id, text in texts.items() if not text.strip()]
    documents = [{"id": id, "text": text} for id, text in texts.items() if text.strip()]
    notes = [f"{folder}: {some(empty, 'document', 'documents')} without a word: left out"] if empty else []
    return Collection({}, documents, replace(golden, notes=(*golden.notes, *notes)))


# --- LongMemEval ----------------------------------------------------------------------------------


def _longmemeval(path: Path, items: Sequence[Any]) -> Collection:
    """A document for each session; a question is asked of the sessions of its own haystack.

    Source: Wu et al., ICLR 2025, arXiv 2410.10813.
    """
    texts: dict[str, tuple[str, str]] = {}
    haystacks: dict[str, list[str]] = {}
    questions: list[Question] = []
    unanswered: list[str] = []
    for at, item in enumerate(items):
        with _placed(path, at):
            id, sessions = item["question_id"], item["haystack_session_ids"]
            rows = zip(sessions, item["haystack_dates"], item["haystack_sessions"], strict=True)
            for session, date, turns in rows:
                said = "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
                if session not in texts:
                    texts[session] = (date, said)
                haystacks.setdefault(session, []).append(id)
            answers = item["answer_session_ids"]
            if not isinstance(answers, list):
                raise InvalidInput(f"answer_session_ids: a list expected, not {answers!r:.80}")
            gains = dict.fromkeys(answers, 1)
            if not gains or id.endswith("_abs"):  # asked to see whether the answer is "I do not know"
                unanswered.append(id)
                continue
            filter = {"haystack": {"contains": id}}
            questions.append(Question(item["question"], gains, category=item["question_type"], filter=filter, id=id))
    documents = [
        {"id": session, "text": f"[{date}]\n{said}", "date": date, "haystack": list(dict.fromkeys(haystacks[session]))}
        for session, (date, said) in texts.items()
    ]
    notes = (
        [f"{path}: {some(unanswered, 'question', 'questions')} that nothing answers: left out"] if unanswered else []
    )
    fields = {"haystack": 'kind = "tag", many = true', "date": 'kind = "stored"'}
    return Collection(fields, documents, Golden(tuple(questions), str(path), tuple(notes)))


# --- LoCoMo ---------------------------------------------------------------------------------------


def _locomo(path: Path, items: Sequence[Any]) -> Collection:
    """A document for each turn, with its date and speaker; a question is asked of its own conversation."""
    documents: list[dict[str, Any]] = []
    questions: dict[tuple[str, str], Question] = {}
    unanswered: list[str] = []
    twice: list[str] = []
    for at, item in enumerate(items):
        with _placed(path, at):
            conversation = str(item.get("sample_id", at))
            turns = list(_turns(item["conversation"], conversation))
            documents += turns
            known = {turn["id"] for turn in turns}
            for number, asked in enumerate(item["qa"]):
                id = f"{conversation}/{number}"
                # Some evidence is written as "D8:6; D9:17", some names no turn.
                evidence = [
                    f"{conversation}/{turn}" for each in asked.get("evidence") or () for turn in _TURN.findall(each)
                ]
                gains = dict.fromkeys((turn for turn in evidence if turn in known), 1)
                key = (conversation, asked["question"])
                if not gains:
                    unanswered.append(id)
                elif key in questions:
                    twice.append(id)
                else:
                    category = LOCOMO_CATEGORIES.get(asked.get("category"), str(asked.get("category")))
                    filter = {"conversation": conversation}
                    questions[key] = Question(asked["question"], gains, category=category, filter=filter, id=id)
    notes = [
        f"{path}: {some(ids, 'question', 'questions')} {why}: left out"
        for ids, why in ((unanswered, "without a turn that answers it"), (twice, "asked before"))
        if ids
    ]
    fields = {"conversation": 'kind = "tag"', "speaker": 'kind = "tag"', "date": 'kind = "stored"'}
    return Collection(fields, documents, Golden(tuple(questions.values()), str(path), tuple(notes)))


def _turns(sessions: Mapping[str, Any], conversation: str) -> Iterator[dict[str, Any]]:
    numbers = sorted(int(found[1]) for name in sessions if (found := _SESSION.fullmatch(name)))
    for number in numbers:
        date = str(sessions.get(f"session_{number}_date_time", ""))
        for turn in sessions[f"session_{number}"]:
            said, picture = turn.get("text") or "", turn.get("blip_caption")
            shown = f"{said} (shows {picture})" if picture else said
            yield {
                "id": f"{conversation}/{turn['dia_id']}",
                "text": f"[{date}] {turn['speaker']}: {shown}",
                "conversation": conversation,
                "speaker": turn["speaker"],
                "date": date,
            }


@contextmanager
def _placed(path: Path, at: int) -> Iterator[None]:
    """What is wrong with an item is said with its place in the file."""
    try:
        yield
    except KeyError as error:
        raise InvalidInput(f"{path}: item {at + 1}: the key {error.args[0]!r} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:  # InvalidInput is a ValueError
        raise InvalidInput(f"{path}: item {at + 1}: {error}") from None
