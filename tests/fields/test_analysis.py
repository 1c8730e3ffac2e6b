"""Which terms a text has; the tables are the specification."""

import copy
import json
import pickle
import random
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import Stemmer
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fields.analysis import Analysis, stored_terms
from fields.errors import InvalidInput

ENGLISH = Analysis()
PLAIN = Analysis(stem=False, stop_words=())

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # surrogates and unassigned too
# Few characters, all of them meaning something, so that chains are common.
TRICKY_ASCII = st.text("aBz09_-./\\:@?=&#+'\"(,% \n\0\x1f", max_size=40)
TRICKY = st.text("aBz9é_-./:#+' \n\u0301ßİΣς犬カ한ก\u0e31ि\u200d\u00ad’ʼ‐—\ud800٣½", max_size=40)
TEXTS = ANY_TEXT | TRICKY_ASCII | TRICKY

IDENTIFIERS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "cuda_error_out_of_memory cuda error out of memory",
    "RTX-4090": "rtx_4090 rtx 4090",
    "API/HTTP": "api_http api http",
    "parse_config()": "parse_config parse config",
    "POLICY-123": "policy_123 policy 123",
    "service-a": "service_a service a",
    "C++": "cpp",
    "C#": "csharp",
    "192.168.0.1": "192_168_0_1 192 168 0 1",
    "550e8400-e29b-41d4-a716-446655440000": (
        "550e8400_e29b_41d4_a716_446655440000 550e8400 e29b 41d4 a716 446655440000"
    ),
    "https://a.b/c-d?e=1": "https_a_b_c_d_e_1 a_b c_d https a b c d e 1",
    "s3://b/k.md": "s3_b_k_md k_md s3 b k md",
    r"C:\Users\me\notes.txt": "c_users_me_notes_txt notes_txt c users me notes txt",
    "3.14": "3_14 3 14",
    "user@example.com": "user_example_com example_com user example com",
    "std::vector<int>": "std_vector std vector int",
    "src/parse_config.py:42": "src_parse_config_py_42 parse_config_py parse_config src parse config py 42",
    "__init__": "init",
    "a__b": "a_b a b",
    "R&D": "r_d r d",
    "x.com/#/route": "x_com_route x_com x com route",
    "C++17": "cpp_17 cpp 17",
    "C++/C#": "cpp_csharp cpp csharp",
    "Notepad++": "notepadpp notepad",
    "issue#12": "issue_12 issue 12",
    "1# 2++": "1sharp 1 2pp 2",
    "007 1e5": "007 1e5",
    "RTX\u20114090": "rtx_4090 rtx 4090",  # the unbreakable hyphen
    "é-1": "é_1 é 1",
}
PROSE = {
    "": "",
    "one\ntwo\r\nthree\tfour\x0bfive\x00six\x1fseven\x7feight": "one two three four five six seven eight",
    "foo—bar foo\u00a0bar\u3000foo\u200bbar\ufefffoo": "foo bar foo bar foo bar foo",
    "_ __ -_- ' # + . ++": "",
    "_word_ **bold** (x)": "word bold x",
    "yes--no wait...what 1990–1995": "yes no wait what 1990 1995",
    "1,000 50% $5": "1 000 50 5",
    "end.Next": "end_next end next",
    "well-known one-two-three École-Mère": "well known one two three école mère",  # compounds of prose
    "x-ray state-of-the-art well-known-2": ("x_ray x ray state_of_the_art state of the art well_known_2 well known 2"),
    "don't DON’T donʼt": "don don don",
    "L'École d’accord qu'il": "école accord qu il",
    "John's dogs' O'Brien rock'n'roll": "john dogs brien rock roll",
    "I'm 5'9 10'000": "i m 5 9 10 000",
    "Привет ЕЩЁ": "привет ещё",
    "École E\u0301cole ﬁn Ｆｕｌｌ": "école école fin full",
    "Straße STRASSE ΟΔΟΣ οδος": "strasse strasse οδοσ οδοσ",
    "İ": "i\u0307",  # its casefold ends in a combining dot
    "½ x² Ⅷ ٣": "1 2 x2 viii ٣",
    "soft\u00adhyphen a\u200db\u2060c e\u200d\u0301": "softhyphen abc é",
    "1\ufe0f\u20e3 🎉 ok👍🏽": "1 ok",
    "a\ud800b\udfff": "a b",
    "हिन्दी में": "हिन्दी में",
    "العَرَبِيَّة שָׁלוֹם": "العَرَبِيَّة שָׁלוֹם",
    "x\u0302y a\u0301\u0302-b": "x\u0302y á\u0302_b á\u0302 b",
    "日本語テキスト": "日本 本語 語テ テキ キス スト",
    "犬 ｶﾞ が か\u3099": "犬 ガ が が",
    "東京-大阪、京都。": "東京 大阪 京都",
    "RTX-4090用 C言語 第3章": "rtx_4090 rtx 4090 用 c 言語 第 3 章",
    "학교에서 물": "학교 교에 에서 물",
    "ภาษาไทย ที่": "ภา าษ ษา าไ ไท ทย ที่",
    "a\u3164b": "ab",  # the Hangul filler is not seen
}


@pytest.mark.parametrize(("text", "terms"), [*IDENTIFIERS.items(), *PROSE.items()])
def test_text_has_these_terms(text, terms):
    """A text has the terms of the table, before stop words and stems."""
    assert PLAIN.terms(text) == unicodedata.normalize("NFC", terms).split()


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_identifiers_are_found_whole_and_by_their_parts(identifier):
    """An identifier in a document has every term that it, or a part of it, has as a query."""
    document = set(ENGLISH.terms(f"Today ({identifier}), or\n{identifier}\nfailed."))
    assert set(ENGLISH.terms(identifier)) <= document
    assert set(ENGLISH.terms(identifier.upper())) <= document
    for part in PLAIN.terms(identifier):
        if "_" not in part:
            assert set(ENGLISH.terms(part)) <= document


def test_english_drops_stop_words_and_stems_words_but_not_wholes():
    """Stop words go, words are stemmed, the whole of an identifier stays as it is."""
    text = "The policies of POLICIES_ARE running, and it is State-of-the-art, well-known"
    expected = "polici policies_are polici run state_of_the_art state art well known"
    assert ENGLISH.terms(text) == expected.split()


def test_stems_of_other_languages():
    """The language chooses the stemmer; without one the words stay."""
    assert Analysis("russian").terms("Книги КНИГА") == ["книг", "книг"]
    assert Analysis("french").terms("L'École était") == ["école"[:4], "était"]
    assert Analysis(stem=False).terms("The running") == ["running"]


def test_word_whose_stem_is_empty_stays():
    """A stemmer that leaves nothing of a word leaves the word."""
    assert Stemmer.Stemmer("porter").stemWord("s") == ""
    assert Analysis("porter").terms("s") == ["s"]


@given(TEXTS)
@example("É" * 200)
@example("a-" * 500)
@example("漢" + "\u0301" * 500)
def test_every_term_is_valid(text):
    """A term is 1 to 120 bytes of letters, digits, their marks and ``_``, folded, and never only ``_``."""
    for term in [*ENGLISH.terms(text), *PLAIN.terms(text)]:
        assert 1 <= len(term.encode()) <= 120
        assert all(c == "_" or unicodedata.category(c)[0] in "LNM" for c in term)
        assert term.strip("_")


@given(TEXTS)
def test_analysing_a_term_again_gives_it_back(text):
    """A word is its own only term; the whole of an identifier is the first of its terms, its words the rest."""
    for term in PLAIN.terms(text):
        words = [word for word in term.split("_") if word]  # the cut may fall behind a "_"
        assert PLAIN.terms(term) == (words if len(words) == 1 else ["_".join(words), *words])


@given(TEXTS)
def test_case_and_normal_form_do_not_matter(text):
    """Texts that NFKC and casefold make equal have equal terms."""

    def folded(text):
        return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())

    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        variant = unicodedata.normalize(form, text)
        if folded(variant) == folded(text):
            assert ENGLISH.terms(variant) == ENGLISH.terms(text)
    for variant in (text.upper(), text.lower(), text.casefold()):
        if folded(variant) == folded(text):
            assert ENGLISH.terms(variant) == ENGLISH.terms(text)


@given(st.text(st.characters(max_codepoint=127)) | TRICKY_ASCII)
def test_ascii_takes_the_same_steps_as_all_text(text):
    """A separator outside ASCII at the end sends a text down the general path, to the same terms."""
    assert ENGLISH.terms(text) == ENGLISH.terms(text + "—")
    assert PLAIN.terms(text) == PLAIN.terms(text + "—")


@given(TEXTS, TEXTS)
def test_texts_do_not_reach_into_each_other(one, other):
    """The terms of two paragraphs are the terms of the one and then of the other."""
    assert ENGLISH.terms(f"{one}\n{other}") == ENGLISH.terms(one) + ENGLISH.terms(other)


def test_folding_once_is_enough_for_every_character():
    """The words of every character of Unicode, alone, are their own only terms; engines lower-case nothing more."""
    every = " ".join(map(chr, range(sys.maxunicode + 1)))
    terms = [term for term in PLAIN.terms(every) if "_" not in term]  # the account-of sign is a/c
    assert PLAIN.terms(" ".join(terms)) == terms
    assert "".join(terms).encode().lower() == "".join(terms).encode()  # bytes, engines: ASCII alone


@pytest.mark.parametrize(
    "piece", ["a-", "a", "a_", "a+", "a++", "a://", "a'", "é\u0301", "漢", "\u200d", "\ud800", "ก\u0301", "The end.\n"]
)
def test_a_megabyte_of_anything(piece):
    """A megabyte of one pattern is analysed, and no identifier in it grows beyond its bound."""
    terms = ENGLISH.terms(piece * (1_000_000 // len(piece)))
    assert max((len(term.encode()) for term in terms), default=0) <= 120
    assert len(terms) <= 1_000_000


def test_huge_words_in_an_identifier():
    """Words of a megabyte, joined and signed, are cut like any other."""
    assert PLAIN.terms("a" * 1_000_000 + "-b++") == ["a" * 120, "bpp", "a" * 120]


def test_terms_are_cut_between_characters():
    """120 bytes at most, and no half characters; document and query are cut alike."""
    assert PLAIN.terms("a" * 119 + "éé") == ["a" * 119]
    assert PLAIN.terms("é" * 100) == ["é" * 60]


def test_threads_get_the_same_terms():
    """Many threads sharing one Analysis get what one thread gets."""
    words = random.Random(7)
    texts = [
        " ".join("".join(words.choices("aeiounrstl", k=words.randint(3, 9))) + "ing" for _ in range(200))
        for _ in range(60)
    ]
    shared = Analysis(stop_words=["nothing"])  # its own memory, empty at first
    expected = [Stemmer.Stemmer("english").stemWords(text.split()) for text in texts]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            assert list(pool.map(shared.terms, texts)) == expected


def test_memory_of_chains_is_bounded():
    """However many distinct words come, the terms stay right when the memory of them starts anew."""
    words = [f"w{n}x" for n in range(100_000)]
    assert PLAIN.terms(" ".join(words)) == words
    assert PLAIN.terms(words[0]) == [words[0]]


@pytest.mark.parametrize(
    "analysis",
    [ENGLISH, PLAIN, Analysis("russian", stop_words=["И", "в"]), Analysis("porter"), Analysis(stop_words=["C++"])],
)
def test_analysis_is_a_value(analysis):
    """Copies by JSON, pickle, deepcopy and replace are equal, hash alike and give the same terms."""
    for twin in (
        Analysis.from_json(json.loads(json.dumps(analysis.to_json()))),
        pickle.loads(pickle.dumps(analysis)),
        copy.deepcopy(analysis),
        replace(analysis),
    ):
        assert twin == analysis
        assert hash(twin) == hash(analysis)
        assert twin.terms("The C++ в runs") == analysis.terms("The C++ в runs")


def test_analysis_is_frozen_and_differs_by_every_part():
    """No part can be set, and each part tells two apart."""
    with pytest.raises(AttributeError):
        ENGLISH.language = "german"
    assert len({ENGLISH, Analysis("porter"), Analysis(stem=False), Analysis(stop_words=["x"]), Analysis()}) == 4


def test_default_stop_words():
    """English has the 33 of RediSearch, languages other than English none."""
    assert len(ENGLISH.stop_words) == 33
    assert {"the", "will", "such"} <= ENGLISH.stop_words
    assert Analysis("german").stop_words == frozenset()


@given(TEXTS)
def test_stop_words_are_folded_like_text(word):
    """A stop word that is accepted is never a term, however it is written; and folding it again changes nothing."""
    try:
        analysis = Analysis(stem=False, stop_words=[word])
    except InvalidInput:
        assume(False)
    assert analysis.terms(word) == []
    assert replace(analysis, stop_words=analysis.stop_words) == analysis


def test_stop_words_of_several_forms():
    """Apostrophes and case in stop words are those of text."""
    assert Analysis(stop_words=["DON’T", "You're", "École"]).stop_words == {"don", "you", "re", "école"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"language": "klingon"}, "'klingon'.*arabic.*english.*yiddish"),
        ({"language": "en"}, "english"),
        ({"language": "none"}, "stem=False"),
        ({"language": None}, "english"),
        ({"stem": 1}, "True or False"),
        ({"stop_words": "the"}, "not 'the'"),
        ({"stop_words": 5}, "not 5"),
        ({"stop_words": [5]}, "not int"),
        ({"stop_words": ["e-mail"]}, "'e-mail' is not one term"),
        ({"stop_words": ["日本語"]}, "not one term"),
        ({"stop_words": [""]}, "'' is not one term"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    """What cannot be right is refused, naming it and the way out."""
    with pytest.raises(InvalidInput, match=message):
        Analysis(**arguments)


@pytest.mark.parametrize("text", [None, b"bytes", 5])
def test_only_str_is_text(text):
    """Anything but a str is refused."""
    with pytest.raises(InvalidInput, match="text is a str"):
        ENGLISH.terms(text)


def test_json_names_all_that_decides():
    """The stored description holds language, stemming, stop words and both versions."""
    assert Analysis("german", stop_words=["und", "Der"]).to_json() == {
        "algorithm": 1,
        "language": "german",
        "stem": True,
        "stemmer_version": Stemmer.version(),
        "stop_words": ["der", "und"],
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"stemmer_version": "2.0.0"}, [f"stemmer version: '2.0.0' stored, {Stemmer.version()!r} here"]),
        ({"language": "french"}, ["language: 'french' stored, 'english' here"]),
        ({"stem": False}, ["stem: False stored, True here"]),
        ({"algorithm": 0}, ["algorithm: 0 stored, 1 here"]),
        ({"stop_words": ["x", "y"]}, ["stop words only stored: x, y", "stop words only here: a"]),
        ({"stop_words": None, "stem": None}, ["stem: None stored, True here", "stop words only here: a"]),
    ],
)
def test_differences_in_words(change, words):
    """Each part that differs is one line; nothing is said of what agrees."""
    analysis = Analysis(stop_words=["a"])
    assert analysis.differences(analysis.to_json() | change) == words


def test_stemmer_version_matters_only_to_those_who_stem():
    """An index without stems is not told apart by the stemmer's version."""
    assert PLAIN.differences(PLAIN.to_json() | {"stemmer_version": "2.0.0"}) == []


@pytest.mark.parametrize("missing", ["language", "stem", "stop_words"])
def test_from_json_wants_every_part(missing):
    """A description that lacks a part, or has null for it, is refused by the name of the part."""
    description = ENGLISH.to_json()
    with pytest.raises(InvalidInput, match=f"lacks {missing}"):
        Analysis.from_json(description | {missing: None})
    del description[missing]
    with pytest.raises(InvalidInput, match=f"lacks {missing}"):
        Analysis.from_json(description)


def test_stored_form():
    """Blanks doubled and around; nothing for no terms."""
    assert stored_terms(["alpha", "beta"]) == " alpha  beta "
    assert stored_terms([]) == ""


@given(st.lists(st.sampled_from(["a", "aa", "a_a", "é"])))
def test_stored_form_counts_by_bytes(terms):
    """A count of " term " in the stored bytes is the number of times the term occurs."""
    for term in set(terms):
        assert stored_terms(terms).encode().count(f" {term} ".encode()) == terms.count(term)
    assert stored_terms(terms).split() == terms
