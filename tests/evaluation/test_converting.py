"""Collections of others, in tiny files that are made here."""

from __future__ import annotations

import copy
import json

import pytest

from fields.errors import InvalidInput
from retriever.declared import read_schema
from retriever.evaluation.converting import convert, read_collection
from retriever.evaluation.golden import read_golden
from retriever.jsonlines import JsonLines

LONGMEMEVAL = [
    {
        "question_id": "lm1",
        "question_type": "single-session-user",
        "question": "Which degree did I finish?",
        "answer": "Botany",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["s1", "s2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "I finished my degree in botany.", "has_answer": True},
                {"role": "assistant", "content": "Congratulations!"},
            ],
            [{"role": "user", "content": "Where is the harbour?"}],
        ],
        "answer_session_ids": ["s1"],
    },
    {
        "question_id": "lm2_abs",
        "question_type": "multi-session",
        "question": "What is my cat called?",
        "answer": "You did not say",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["s2"],
        "haystack_dates": ["2023/05/21 (Sun) 10:00"],
        "haystack_sessions": [[{"role": "user", "content": "Where is the harbour?"}]],
        "answer_session_ids": ["s2"],
    },
]

LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Bo",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a boat."},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a photo of a lighthouse"},
            ],
            "session_10_date_time": "2 June, 2023",
            "session_10": [{"speaker": "Ada", "dia_id": "D10:1", "text": "It sank."}],
            "session_2_date_time": "a session that never was",
        },
        "qa": [
            {"question": "What did Ada buy?", "answer": "a boat", "evidence": ["D1:1; D10:1"], "category": 1},
            {"question": "What did Bo show?", "answer": "a lighthouse", "evidence": ["D1:2", "D7:7"], "category": 4},
            {"question": "What did Bo buy?", "adversarial_answer": "a boat", "evidence": [], "category": 5},
            {"question": "What did Ada buy?", "answer": "a boat", "evidence": ["D1:1"], "category": 2},
        ],
    }
]


def written(folder, items):
    path = folder / "given.json"
    path.write_text(json.dumps(items), encoding="utf-8")
    return path


def test_longmemeval(tmp_path):
    """A session is a document that knows whose haystacks it is in; a question looks in its own."""
    path = written(tmp_path, LONGMEMEVAL)
    made = read_collection(path)
    assert made.documents == [
        {
            "id": "s1",
            "text": "[2023/05/20 (Sat) 02:21]\nuser: I finished my degree in botany.\nassistant: Congratulations!",
            "date": "2023/05/20 (Sat) 02:21",
            "haystack": ["lm1"],
        },
        {
            "id": "s2",
            "text": "[2023/05/21 (Sun) 10:00]\nuser: Where is the harbour?",
            "date": "2023/05/21 (Sun) 10:00",
            "haystack": ["lm1", "lm2_abs"],
        },
    ]
    assert [question.to_dict() for question in made.golden.questions] == [
        {
            "query": "Which degree did I finish?",
            "relevant": {"s1": 1},
            "category": "single-session-user",
            "id": "lm1",
            "filter": {"haystack": {"contains": "lm1"}},
        }
    ]
    assert made.golden.notes == (f"{path}: 1 question ('lm2_abs') that nothing answers: left out",)


def test_locomo(tmp_path):
    """A turn is a document with its date and speaker; evidence is found however it is written, as far as it exists."""
    path = written(tmp_path, LOCOMO)
    made = read_collection(path)
    assert {each["id"]: each["text"] for each in made.documents} == {
        "conv-1/D1:1": "[1:56 pm on 8 May, 2023] Ada: I bought a boat.",
        "conv-1/D1:2": "[1:56 pm on 8 May, 2023] Bo: Look! (shows a photo of a lighthouse)",
        "conv-1/D10:1": "[2 June, 2023] Ada: It sank.",
    }
    assert [(each.query, dict(each.relevant), each.category) for each in made.golden.questions] == [
        ("What did Ada buy?", {"conv-1/D1:1": 1, "conv-1/D10:1": 1}, "multi-hop"),
        ("What did Bo show?", {"conv-1/D1:2": 1}, "single-hop"),
    ]
    assert all(each.filter == {"conversation": "conv-1"} for each in made.golden.questions)
    assert made.golden.notes == (
        f"{path}: 1 question ('conv-1/2') without a turn that answers it: left out",
        f"{path}: 1 question ('conv-1/3') asked before: left out",
    )


def test_a_folder(tmp_path):
    """A document is its title and its text; one that has neither is left out and said."""
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "first"}\n', encoding="utf-8")
    corpus = '{"_id": "d1", "title": "One", "text": "the first", "metadata": {}}\n{"_id": 2, "text": "the second"}\n'
    corpus += '{"_id": "d3", "title": "Three"}\n{"_id": "d4", "title": "", "text": " "}\n'
    (tmp_path / "corpus.jsonl").write_text(corpus, encoding="utf-8")
    made = read_collection(tmp_path)
    assert made.documents == [
        {"id": "d1", "text": "One\nthe first"},
        {"id": "2", "text": "the second"},
        {"id": "d3", "text": "Three"},
    ]
    assert made.golden.notes == (f"{tmp_path}: 1 document ('d4') without a word: left out",)
    assert [dict(each.relevant) for each in made.golden.questions] == [{"d1": 1}]


@pytest.mark.parametrize("items", [LONGMEMEVAL, LOCOMO], ids=["longmemeval", "locomo"])
def test_what_is_written_can_be_loaded(tmp_path, items):
    """The three files are a schema, documents that fit it, and golden queries."""
    made = convert(written(tmp_path, items), tmp_path / "out", "mine")
    schema = read_schema(tmp_path / "out" / "schema.toml")
    assert schema.name == "mine"
    with (tmp_path / "out" / "documents.jsonl").open("rb") as lines:
        documents = list(JsonLines(lines, "documents.jsonl", schema))
    assert [document.id for document in documents] == [each["id"] for each in made.documents]
    assert read_golden(tmp_path / "out" / "golden.jsonl").questions == made.golden.questions


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "neither a LongMemEval file"),
        ({"a": 1}, "neither a LongMemEval file"),
        ([{"question": "q"}], "neither a LongMemEval file"),
        ([LONGMEMEVAL[0], {"question_id": "x"}], "item 2: the key 'haystack_session_ids' is missing"),
        ([{**LONGMEMEVAL[0], "haystack_dates": []}], "item 1: "),
        ([{**LONGMEMEVAL[0], "question": 7}], "item 1: query: a text expected"),
        ([{**LOCOMO[0], "qa": [{"evidence": ["D1:1"]}]}], "item 1: the key 'question' is missing"),
        ([{**LOCOMO[0], "conversation": {"session_1": [{"text": "a"}]}}], "item 1: the key 'dia_id' is missing"),
    ],
)  # fmt: skip
def test_another_file_is_refused_with_the_place(tmp_path, items, said):
    """What is none of them, or has an item that is not as it should be, is said with the item's number."""
    with pytest.raises(InvalidInput) as raised:
        read_collection(written(tmp_path, copy.deepcopy(items)))
    assert said in str(raised.value)


def test_what_is_no_json_is_said(tmp_path):
    """A file cut off in the middle is no collection."""
    path = tmp_path / "given.json"
    path.write_text('[{"conversation": ', encoding="utf-8")
    with pytest.raises(InvalidInput, match="no JSON"):
        read_collection(path)


def test_the_name_of_the_index_is_one_that_it_can_have(tmp_path):
    """It is refused before anything is written; any other one comes back from the schema's file."""
    path = written(tmp_path, LONGMEMEVAL)
    with pytest.raises(InvalidInput, match="index name 'a b'"):
        convert(path, tmp_path / "out", "a b")
    assert not (tmp_path / "out").exists()
    convert(path, tmp_path / "out", 'a"\U0001f600')
    assert read_schema(tmp_path / "out" / "schema.toml").name == 'a"\U0001f600'


def test_a_text_is_no_list_of_ids(tmp_path):
    """One id in place of a list of them is not read letter by letter."""
    path = written(tmp_path, [{**LONGMEMEVAL[0], "answer_session_ids": "s1"}])
    with pytest.raises(InvalidInput, match="item 1: answer_session_ids: a list expected, not 's1'"):
        read_collection(path)
