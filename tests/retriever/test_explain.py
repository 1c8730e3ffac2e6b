"""What --explain does with commands: reads are sent, all else is shown and kept back."""

from __future__ import annotations

import numpy as np
import pytest

from retriever.explain import Explanation, Unanswered, quoted
from retriever.plans import Command


class Link:
    """Answers every command with its own name; keeps what it was sent."""

    def __init__(self, **replies):
        self.sent = []
        self.replies = replies
        self.closed = False

    def send(self, commands):
        self.sent += [command.args for command in commands]
        return [self.replies.get(command.args[0], command.args[0]) for command in commands]

    def close(self):
        self.closed = True


def command(*args):
    return Command(args, lambda reply: reply)


@pytest.fixture
def shown():
    return []


@pytest.fixture
def explanation(shown):
    return Explanation(lambda words, sent: shown.append((sent, *words)))


def test_reads_are_sent_and_writes_are_not(explanation, shown):
    """Each command is shown in its order and answered in its place."""
    link = Link()
    between = explanation.between(link)
    asked = [command("HGETALL", "d"), command("DEL", "d:1"), command("FT.INFO", "d"), command("CLIENT", "INFO")]
    assert between.send(asked) == ["HGETALL", 1, "FT.INFO", "CLIENT"]
    assert link.sent == [("HGETALL", "d"), ("FT.INFO", "d"), ("CLIENT", "INFO")]
    assert [each[0] for each in shown] == [True, False, True, True]
    assert between.send([command("DEL", "d:1")]) == [1]
    assert len(link.sent) == 3
    between.close()
    assert link.closed


@pytest.mark.parametrize("args", [("FLUSHALL",), ("CLIENT", "KILL", "1"), ("SET", "a", "b"), ("FT.ALTER", "d")])
def test_a_command_that_is_not_known_is_kept_back(explanation, shown, args):
    """It is shown, and ends the operation: nothing is taken for its answer."""
    link = Link()
    with pytest.raises(Unanswered, match="what follows depends on the answer to"):
        explanation.between(link).send([command(*args)])
    assert not link.sent
    assert shown == [(False, *args)]


def test_a_claim_is_read_back_as_if_it_was_written(explanation):
    """A hash that a script would have written reads as it would; what is there already is not covered."""
    claim = [command("EVAL", "script", 1, "d", "layout", "1"), command("HGETALL", "d")]
    assert explanation.between(Link(HGETALL=[])).send(claim) == [1, [b"layout", b"1"]]
    assert explanation.between(Link(HGETALL=[b"layout", b"2"])).send(claim) == [1, [b"layout", b"2"]]


def test_an_index_that_was_not_made_is_not_asked_about(explanation, shown):
    """After a kept back FT.CREATE the plan waits for an index that is not there: the end."""
    between = explanation.between(Link())
    between.send([command("FT.CREATE", "d", "SCHEMA", "a", "TAG")])
    assert between.send([command("FT.INFO", "e")]) == ["FT.INFO"]
    with pytest.raises(Unanswered, match="then FT.INFO d, repeated until the index is filled"):
        between.send([command("FT.INFO", "d")])


def test_vectors_and_long_texts_are_told_by_their_size(explanation, shown):
    """Bytes that are short and readable are shown, all others counted."""
    explanation.between(Link()).send(
        [command("HSET", "k", b"text", "é".encode(), np.ones(384, np.float32).tobytes(), b"x" * 201, "y" * 201, 1, 2.5)]
    )
    assert shown == [
        (False, "HSET", "k", "text", "é", "<1536 bytes>", "<201 bytes>", "<201 characters>", "1", "2.5"),
    ]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("a", "a"),
        ("", '""'),
        ("a b", '"a b"'),
        ('a"', '"a\\""'),
        ("\x1f", '"\\u001f"'),
        ("\x1b[2J", '"\\u001b[2J"'),
        ("é\u202e", '"\\u00e9\\u202e"'),
        ("é b", '"é b"'),
        ("<12 bytes>", "<12 bytes>"),
    ],
)
def test_words_are_quoted_where_needed(word, line):
    """A blank, a quote or a control character is visible; a terminal cannot be steered."""
    assert quoted([word, "z"]) == f"{line} z"
