"""Golden files: what is read, what is left out with a note, what is an error with its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.errors import InvalidInput
from fields.kinds import Tag
from retriever.evaluation.golden import Golden, Question, read_golden

WHOLE = {
    "query": "can I bring my dog",
    "relevant": {"policy-110": 2, "letter": 1},
    "authority": "policy-110",
    "noise": ["ferry-dog"],
    "category": "pets",
    "id": "dog",
    "filter": {"year": {"gte": 2017}},
}


def written(folder, text, name="golden.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def jsonl(*entries):
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def test_yaml_and_json_lines_say_the_same(tmp_path):
    """An entry with all its keys is the same question in both."""
    text = """
- query: can I bring my dog
  relevant: {policy-110: 2, letter: 1}
  authority: policy-110
  noise: [ferry-dog]
  category: pets
  id: dog
  filter: {year: {gte: 2017}}
"""
    (one,) = read_golden(written(tmp_path, text)).questions
    (other,) = read_golden(written(tmp_path, jsonl(WHOLE), "golden.jsonl")).questions
    assert one == other
    assert one.to_dict() == other.to_dict() == WHOLE


@pytest.mark.parametrize("id", ["007", "no", "on", "2024-01-01", "1e3", "1:20", "0x10", "~a", "true"])
def test_an_id_is_what_stands_there(tmp_path, id):
    """YAML's ideas of numbers, dates and truth do not change an id."""
    (question,) = read_golden(written(tmp_path, f"- query: q\n  relevant: [{id}]\n  authority: {id}\n")).questions
    assert dict(question.relevant) == {id: 1}
    assert question.authority == id


def test_values_of_a_filter_keep_their_types(tmp_path):
    """A number in a filter is a number, as the engine's filter needs it."""
    text = "- query: q\n  relevant: [a]\n  filter: {year: {gte: 2017}, category: policy, open: true}\n"
    (question,) = read_golden(written(tmp_path, text)).questions
    assert question.filter == {"year": {"gte": 2017}, "category": "policy", "open": True}


@pytest.mark.parametrize(
    ("relevant", "gains"),
    [(["a", "b"], {"a": 1, "b": 1}), ("a", {"a": 1}), (7, {"7": 1}), ({"a": 3, "b": 0}, {"a": 3, "b": 0}),
     (["a", "a"], {"a": 1})],
)  # fmt: skip
def test_relevant_ids_in_each_form(tmp_path, relevant, gains):
    """One id, a list of them, or ids with gains."""
    path = written(tmp_path, jsonl({"query": "q", "relevant": relevant}), "golden.jsonl")
    assert dict(read_golden(path).questions[0].relevant) == gains


@pytest.mark.parametrize(
    ("relevant", "gains"),
    [({}, {"top": 1}), ({"a": 1}, {"a": 1, "top": 1}), ({"a": 3}, {"a": 3, "top": 3}), ({"top": 2}, {"top": 2}),
     ({"top": 0, "a": 1}, {"a": 1, "top": 1})],
)  # fmt: skip
def test_the_authority_answers_the_query(relevant, gains):
    """What should come first is relevant, as much as the best, whether or not it is listed."""
    assert dict(Question("q", relevant, authority="top").relevant) == gains


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- query: a\n  relevant: [x\n- query: b\n", ":3: no YAML"),
        ("- query: a\n\trelevant: [x]\n", ":2: no YAML"),
        ("- query: a\n  relevant: [x]\n- [1, 2]\n", ":3: an entry with the keys query and relevant"),
        ("query: a\nrelevant: [x]\n", ":1: a list of entries expected"),
        ("- query: a\n  relevant: [x]\n- relevant: [x]\n", ":3: the key query is missing"),
        ("- query: a\n  relevant: [x]\n  relevant: [y]\n", ":3: the key 'relevant' is there twice"),
        ("- query: a\n  relavant: [x]\n", ":1: unknown key 'relavant'; known: query, relevant"),
        ("- query: a\n  relevant: {x: high}\n", ":1: relevant: the gain of 'x' is a whole number from 0 to 1,000"),
        ("- query: a\n  relevant: {x: 1.5}\n", ":1: relevant: the gain of 'x' is a whole number from 0 to"),
        ("- query: a\n  relevant: {x: -1}\n", ":1: relevant: the gain of 'x'"),
        ("- query: a\n  relevant: {x: .nan}\n", ":1: relevant: the gain of 'x'"),
        ("- query: a\n  relevant: {x: 1001}\n", ":1: relevant: the gain of 'x'"),
        (f"- query: a\n  relevant: {{x: 1{'0' * 5000}}}\n", ":1: relevant: the gain of 'x'"),
        ("- query: a\n  relevant: {[x]: 1}\n", ":2: a key is a word"),
        ("- query: a\n  relevant: [\"x\\0y\"]\n", ":1: id 'x\\x00y'"),
        ("- query: a\n  relevant: [x]\n  noise: [\"\\ud800\"]\n", ":1: id: lone surrogate"),
        ("- query: a\n  relevant: [x]\n  category: [b]\n", ":1: category: a word expected"),
        ("- query: a\n  relevant: [x]\n  filter: {day: 2026-01-01}\n", ":1: filter: only what JSON has"),
        ("- query: a\n  relevant: [x]\n  filter: {year: {gte: .inf}}\n", ":1: filter: only what JSON has"),
        ("- query: a\n  relevant: [x]\n  filter: {day: 2026-13-01}\n", ":3: no YAML: '2026-13-01' is no timestamp"),
        ("- query: a\n  relevant: [x]\n  filter: {open: !!bool ajar}\n", ":3: no YAML: 'ajar' is no bool"),
        ("- query: a\n  relevant: [x]\n- query: \a\n", r":3: no YAML: the character '\x07' cannot stand there"),
        ("- query: a\n  relevant: &a [*a]\n", ":2: aliases stand for more than ten times the file"),
        ("- query: a\n  relevant: [[x]]\n", ":1: relevant: an id expected"),
        ("- query: ''\n  relevant: [x]\n", ":1: query: a text expected"),
        ("- query: a\n  relevant: [x]\n  noise: [x]\n", ":1: 'x': relevant and noise as well"),
        ("- query: a\n  relevant: [x]\n  filter: year\n", ":1: filter: a mapping expected"),
        ("# nothing\n", ": no entry in it"),
        ("- query: a\n  relevant: []\n", "no query that can be judged: "),
        ("- query: a\n  relevant: [x]\n  id: i\n- query: b\n  relevant: [x]\n  id: i\n", "two queries with the id 'i'"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_with_its_line(tmp_path, text, said):
    """The message names the file, the line and what is wrong there."""
    path = written(tmp_path, text)
    with pytest.raises(InvalidInput) as raised:
        read_golden(path)
    assert str(raised.value).startswith(str(path))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"query": "a", "relevant": ["x"]}\n{"query": ', ":2: no JSON"),
        ('{"query": "a", "relevant": ["x"]}\n\n[1]\n', ":3: an entry with the keys"),
        ('{"query": 5, "relevant": ["x"]}\n', ":1: query: a text expected"),
        ('{"query": "a", "relevant": [true]}\n', ":1: relevant: an id expected"),
        ('{"query": "a", "relevant": {"x": true}}\n', ":1: relevant: the gain of 'x'"),
        ('{"query": "a", "relevant": ["x"], "id": {}}\n', ":1: id: an id expected"),
        ('{"query": "a", "relevant": ["x"], "relevant": ["y"]}\n', ":1: no JSON: the key 'relevant' is there twice"),
        ('{"query": "a", "relevant": ["x"], "filter": {"year": NaN}}\n', ":1: filter: only what JSON has"),
    ],
)
def test_json_lines_are_checked_alike(tmp_path, text, said):
    """A line that is no JSON, or no entry, is said with its number."""
    path = written(tmp_path, text, "golden.jsonl")
    with pytest.raises(InvalidInput) as raised:
        read_golden(path)
    assert f"{path}{said}" in str(raised.value)


def test_aliases_do_not_fill_the_memory(tmp_path):
    """Nine aliases of nine aliases of nine, ten times over, are more than any machine holds, and are refused."""
    steps = [f"    b{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 10)]
    text = "- query: a\n  relevant: [x]\n  filter:\n    b0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(steps)
    with pytest.raises(InvalidInput, match="aliases stand for more than ten times the file"):
        read_golden(written(tmp_path, text))
    text = "- query: a\n  relevant: &a [x, y]\n  filter: &f {year: 2017}\n- {query: b, relevant: *a, filter: *f}\n"
    one, other = read_golden(written(tmp_path, text)).questions
    assert (one.relevant, one.filter) == (other.relevant, other.filter)


def test_yaml_has_an_end(tmp_path, monkeypatch):
    """A file that would take minutes to read is refused, with the form that does not."""
    monkeypatch.setattr("retriever.evaluation.golden._MAX_YAML_MB", 1)
    with pytest.raises(InvalidInput, match="more than 1 MB of YAML; write JSON lines"):
        read_golden(written(tmp_path, "#" * 1_000_001))


def test_other_files_are_refused(tmp_path):
    """A file of another kind is refused with the kinds that are read, and what converts the others."""
    with pytest.raises(InvalidInput, match=r"\.yaml or \.jsonl .*retriever convert"):
        read_golden(written(tmp_path, "[]", "golden.json"))
    (tmp_path / "golden.yaml").write_bytes(b"- query: \xff\n")
    with pytest.raises(InvalidInput, match="no UTF-8"):
        read_golden(tmp_path / "golden.yaml")
    with pytest.raises(OSError, match="missing"):
        read_golden(tmp_path / "missing.yaml")


def test_what_is_left_out_is_noted_with_its_line(tmp_path):
    """An entry without a relevant id, and a query that is there already, are left out and said."""
    text = """- query: a
  relevant: [x]
- query: b
  relevant: []
- query: c
  relevant: {x: 0}
- query: "  a "
  relevant: [y]
- query: a
  relevant: [x]
  filter: {year: 2017}
"""
    path = written(tmp_path, text)
    golden = read_golden(path)
    assert [question.query for question in golden.questions] == ["a", "a"]
    assert golden.notes == (
        f"{path}:3: no relevant ids: left out",
        f"{path}:5: no relevant ids: left out",
        f"{path}:7: the same query as in line 1: left out",
    )


def test_an_id_is_made_of_the_query_and_its_filter():
    """The same query has the same id tomorrow, whatever stands around it; another filter makes it another."""
    one = Question("a  query", {"x": 1}).id
    assert one == Question(" a query ", {"y": 2}).id
    assert one != Question("a query", {"x": 1}, filter={"year": 2017}).id
    assert one != Question("another", {"x": 1}).id


@given(
    st.text(min_size=1).filter(str.strip),
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), st.integers(1, 9), min_size=1
    ),
)
def test_what_is_written_is_read_again(tmp_path_factory, query, relevant):
    """A question's entry, written as a line of JSON, is the same question."""
    question = Question(query, relevant)
    path = written(tmp_path_factory.mktemp("golden"), jsonl(question.to_dict()), "golden.jsonl")
    assert read_golden(path).questions == (question,)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"relevant": ["x"]}, "relevant: a mapping"),
        ({"relevant": {1: 1}}, "id 1: a non-empty string"),
        ({"authority": 7}, "id 7: a non-empty string"),
        ({"noise": "xyz"}, "noise: several ids"),
        ({"category": 7}, "category: a text"),
        ({"id": 7}, "id: a text"),
        ({"relevant": {"x": 2**31}}, "the gain of 'x' is a whole number from 0 to 1,000"),
        ({"filter": Tag("part") == "odd"}, "filter: a mapping"),
        ({"filter": {"year": {2017}}}, "filter: only what JSON has"),
    ],
)
def test_a_question_that_no_report_could_hold_is_refused(given, said):
    """What would fail after the last query, at counting or at writing, fails when it is made."""
    with pytest.raises(InvalidInput, match=said):
        Question("q", **{"relevant": {"x": 1}, **given})


def test_a_golden_set_is_of_questions():
    """Any iterable of questions is one; something else is not."""
    question = Question("q", {"x": 1})
    assert Golden(each for each in [question]).questions == (question,)
    with pytest.raises(InvalidInput, match="a Question expected, not 'q'"):
        Golden(["q"])


def test_no_query_is_no_golden_set():
    """An empty set is refused: there would be nothing to count."""
    with pytest.raises(InvalidInput, match="no query that can be judged"):
        Golden(())


# --- folders --------------------------------------------------------------------------------------


def beir(folder, qrels="query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq9\td1\t1\nq3\td1\t0\nq4\td2\t1\n"):
    """A folder laid out as BEIR's are."""
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text(qrels, encoding="utf-8")
    queries = [("q1", "first"), ("q2", "not judged"), ("q3", "judged in vain"), ("q4", "first"), ("q5", "  ")]
    rows = jsonl(*({"_id": id, "text": text} for id, text in queries))
    (folder / "queries.jsonl").write_text(rows, encoding="utf-8")
    corpus = jsonl({"_id": "d1", "title": "One", "text": "the first"}, {"_id": "d2", "title": "", "text": "the second"})
    (folder / "corpus.jsonl").write_text(corpus, encoding="utf-8")
    return folder


def test_a_folder_reports_missing_and_extra_queries(tmp_path):
    """Judgements without a query, queries without a judgement, and those that nothing answers are said."""
    golden = read_golden(beir(tmp_path))
    assert [(each.id, dict(each.relevant)) for each in golden.questions] == [("q1", {"d1": 2, "d2": 0})]
    assert golden.notes == (
        f"{tmp_path}: 1 query (q9) judged, and not in queries.jsonl: left out".replace("q9", "'q9'"),
        f"{tmp_path}: 2 queries ('q2', 'q5') without a judgement: left out",
        f"{tmp_path}: 1 query ('q3') that nothing answers: left out",
        f"{tmp_path}: 1 query ('q4') whose text another one has: left out",
    )


@pytest.mark.parametrize(
    ("qrels", "said"),
    [
        ("q1\td1\t1\nq1 d2 1\n", "test.tsv:2: query id, document id and a whole number expected"),
        ("q1\td1\t1\nq1\td2\tmuch\n", "test.tsv:2: query id"),
        ("q1\td1\t1\nq1\td2\t--1\n", "test.tsv:2: query id"),
        (f"q1\td1\t1\nq1\td2\t{'9' * 5000}\n", "test.tsv:2: query id"),
        ("q1\t0\td1\t1\n", "test.tsv:1: query id"),  # trec's own four columns
    ],
)
def test_judgements_are_read_with_care(tmp_path, qrels, said):
    """A line that is no judgement is said with its number."""
    with pytest.raises(InvalidInput) as raised:
        read_golden(beir(tmp_path, qrels))
    assert said in str(raised.value)


def test_an_id_of_a_judgement_is_what_stands_between_the_tabs(tmp_path):
    """What Python takes for the end of a line, beside the line feed, is part of an id; a negative gain is 0."""
    folder = beir(tmp_path, "q1\td\u2028\x0b1\t2\r\nq1\td2\t-1\r\n")
    assert read_golden(folder).questions[0].relevant == {"d\u2028\x0b1": 2, "d2": 0}


def test_two_queries_of_a_folder_with_one_id_are_an_error(tmp_path):
    """The judgements would be of either."""
    folder = beir(tmp_path)
    (folder / "queries.jsonl").write_text(jsonl({"_id": "q1", "text": "a"}, {"_id": "q1", "text": "b"}), "utf-8")
    with pytest.raises(InvalidInput, match=r"queries\.jsonl:2: the _id 'q1' is that of line 1 already"):
        read_golden(folder)


def test_a_folder_without_its_files_is_refused(tmp_path):
    """What is missing is named."""
    with pytest.raises(InvalidInput, match=r"queries\.jsonl: no such file"):
        read_golden(tmp_path)
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "t"}\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"no qrels/test\.tsv"):
        read_golden(tmp_path)
