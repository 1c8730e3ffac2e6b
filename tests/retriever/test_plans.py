"""Plans, run by hand: what a step is answered, and that plans run together as they run alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.errors import IndexMissing, InvalidInput, ServerError
from retriever.plans import Ask, Call, Command, Embed, Wait, ask_all, ask_one, parsed, together, watched
from retriever.replies import integer
from tests.recorded import ResponseError


def command(name, **options):
    return Command((name, "arg"), integer, **options)


def run(plan, answer):
    """The plan's result; answer: a step -> what it is sent, an exception to be thrown. Also the steps taken."""
    steps = []
    try:
        step = next(plan)
        while True:
            steps.append(step)
            given = answer(step)
            step = plan.throw(given) if isinstance(given, BaseException) else plan.send(given)
    except StopIteration as end:
        return end.value, steps
    finally:
        plan.close()


# --- asking ---------------------------------------------------------------------------------------


def test_one_command_is_one_round_trip():
    """ask_one sends its command and parses the reply."""
    result, steps = run(ask_one(command("A")), lambda step: ([5], 0.1))
    assert result == 5
    assert steps == [Ask((command("A"),))]


def test_a_refusal_is_raised_classified_with_its_cause():
    """ask_one raises a refusal as our error, and names the command."""
    refusal = ResponseError("docs: no such index")
    with pytest.raises(IndexMissing, match="no index 'arg'") as caught:
        run(ask_one(command("FT.A")), lambda step: ([refusal], 0.1))
    assert caught.value.__cause__ is refusal
    with pytest.raises(ServerError, match="^HSET: WRONGTYPE"):
        run(ask_one(command("HSET")), lambda step: ([ResponseError("WRONGTYPE")], 0.1))


def test_a_lost_connection_is_raised_as_it_is():
    """What is no refusal is itself, from ask_one and from ask_all."""
    lost = ConnectionError("gone")
    for plan in (ask_one(command("A")), ask_all([command("A")])):
        with pytest.raises(ConnectionError) as caught:
            run(plan, lambda step: ([lost], 0.1))
        assert caught.value is lost
    with pytest.raises(ConnectionError):
        parsed(command("A"), lost)


def test_many_commands_keep_their_places():
    """ask_all answers in the order asked; a refused command's place holds its error."""
    replies = [1, ResponseError("docs: no such index"), 3]
    (one, refused, three), steps = run(ask_all([command(name) for name in "ABC"]), lambda step: (replies, 0.1))
    assert (one, three) == (1, 3)
    assert isinstance(refused, IndexMissing)
    assert len(steps) == 1


def test_no_commands_are_no_round_trip():
    """ask_all of nothing asks nothing."""
    assert run(ask_all([]), lambda step: pytest.fail("asked")) == ([], [])


def test_an_error_never_holds_a_vector():
    """A refusal is named by the command's words, not by its bytes."""
    for words in (("FT.SEARCH", "docs", "query", b"vector"), ("HSET", "docs:1", "query", b"vector")):
        with pytest.raises(ServerError) as caught:
            run(ask_one(Command(words, integer)), lambda step: ([ResponseError("no")], 0.1))
        assert "query" not in str(caught.value)
        assert "vector" not in str(caught.value)


# --- watching -------------------------------------------------------------------------------------


def test_a_watched_plan_is_the_same_plan():
    """Every step is shown before it is taken; answers, errors and the result pass through."""

    def plan():
        one = yield Wait(1)
        try:
            yield Wait(2)
        except KeyError:
            two = yield Wait(3)
        return one + two

    seen = []
    answers = {1: 10, 2: KeyError(), 3: 20}
    result, steps = run(watched(plan(), seen.append), lambda step: answers[step.seconds])
    assert result == 30
    assert seen == steps == [Wait(1), Wait(2), Wait(3)]


def test_a_watched_plan_is_closed_with_its_watcher():
    """Closing the watcher runs the plan's own finally."""
    closed = []

    def plan():
        try:
            yield Wait(1)
        finally:
            closed.append(True)

    watcher = watched(plan(), lambda step: None)
    next(watcher)
    watcher.close()
    assert closed == [True]


# --- together -------------------------------------------------------------------------------------

TEXTS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3)
STEPS = st.one_of(
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(
        lambda numbers: Ask([command(str(number)) for number in numbers])
    ),
    st.builds(Embed, TEXTS, st.sampled_from(["document", "query"])),
    st.integers(0, 9).map(lambda number: Call(len, ("x" * number,))),
    st.integers(0, 9).map(Wait),
)


def world(step):
    """A server, an embedder and functions whose answers depend on the step alone; 7 fails."""
    match step:
        case Ask(commands):
            replies = [int(each.args[0]) for each in commands]
            return [ResponseError("no such index") if reply == 7 else reply for reply in replies], 0.5
        case Embed(texts, kind):
            return np.array([[len(text), ord(text[0]), kind == "query"] for text in texts])
        case Call(function, args):
            return ValueError("seven") if function(*args) == 7 else function(*args)
        case Wait(seconds):
            return float(seconds)


def scripted(steps, fails):
    """A plan that takes the steps and returns all that it was told; fails: it raises at its end."""
    told = []
    for step in steps:
        try:
            answer = yield step
        except ValueError as error:
            answer = str(error)
        if isinstance(step, Ask):
            answer = [str(reply) for reply in answer[0]]
        if isinstance(step, Embed):
            answer = np.asarray(answer).tolist()
        told.append(answer)
    if fails:
        raise InvalidInput("my own error")
    return told


@given(st.lists(st.tuples(st.lists(STEPS, max_size=4), st.booleans()), max_size=5))
def test_plans_run_together_as_they_run_alone(scripts):
    """Each plan gets the answers and has the result, or the error, that it has alone."""
    alone = []
    for steps, fails in scripts:
        try:
            alone.append(run(scripted(steps, fails), world)[0])
        except InvalidInput as error:
            alone.append(str(error))
    results, _ = run(together([scripted(*each) for each in scripts]), world)
    assert [str(each) if isinstance(each, Exception) else each for each in results] == alone


@given(st.integers(1, 6))
def test_plans_that_meet_share_a_step(count):
    """Plans of the same course need one embedder call and one round trip, however many they are."""

    def plan(text):
        row = yield Embed((text,), "query")
        (reply,), _ = yield Ask((command(str(len(text))),))
        return row[0][0], reply

    texts = ["x" * (1 + at) for at in range(count)]
    results, steps = run(together([plan(text) for text in texts]), world)
    assert results == [(len(text), len(text)) for text in texts]
    assert [type(step) for step in steps] == [Embed, Ask]
    assert list(steps[0].texts) == texts


def test_documents_and_queries_are_never_embedded_in_one_call():
    """Two kinds of text are two calls of the embedder."""

    def plan(kind):
        return (yield Embed(("a",), kind))

    results, steps = run(together([plan("query"), plan("document"), plan("query")]), world)
    assert sorted((step.kind, len(step.texts)) for step in steps) == [("document", 1), ("query", 2)]
    assert [np.asarray(result).tolist() for result in results] == [[[1, 97, 1]], [[1, 97, 0]], [[1, 97, 1]]]


def test_one_plans_failure_is_its_own():
    """A plan that fails, at once or later, takes no other with it; results keep their order."""

    def fails():
        raise InvalidInput("at once")
        yield

    def works():
        return (yield Wait(3))

    results, _ = run(together([fails(), works(), fails()]), world)
    assert [str(result) for result in results] == ["at once", "3.0", "at once"]


@pytest.mark.parametrize(
    "returned",
    [
        None,
        np.float32(1),
        np.array(1.0),
        np.zeros((1, 3)),
        {0: 1, 1: 2},
        {"a": 1, "b": 2},
        {1, 2},
        object(),
        iter("ab"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_that_cannot_be_cut_goes_to_each_whole(returned):
    """What an embedder returned wrongly reaches every plan, whose own check names the fault."""

    def plan():
        return (yield Embed(("a",), "query"))

    results, steps = run(together([plan(), plan()]), lambda step: returned)
    assert all(result is returned for result in results)
    assert len(steps) == 1


def test_a_failing_embedder_fails_every_plan_that_waited():
    """An exception of a shared step is thrown into each plan."""

    def plan(text):
        try:
            yield Embed((text,), "query")
        except OSError as error:
            return f"{text}: {error}"

    results, _ = run(together([plan("a"), plan("b")]), lambda step: OSError("model gone"))
    assert results == ["a: model gone", "b: model gone"]


def test_a_lost_connection_fails_every_plan_that_waited():
    """A round trip that breaks is thrown into each plan that shared it."""
    results, _ = run(together([ask_one(command("1")), ask_one(command("2"))]), lambda step: ConnectionError("gone"))
    assert [type(result) for result in results] == [ConnectionError, ConnectionError]


def test_closing_closes_every_plan():
    """When the whole is closed, every plan's finally runs."""
    closed = []

    def plan(name):
        try:
            yield Wait(1)
        finally:
            closed.append(name)

    whole = together([plan("a"), plan("b")])
    next(whole)
    whole.close()
    assert sorted(closed) == ["a", "b"]


def test_an_interrupt_is_not_kept_as_a_result():
    """KeyboardInterrupt ends the whole, and closes every plan."""
    closed = []

    def plan():
        try:
            yield Call(len, ("",))
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        run(together([plan(), plan()]), lambda step: KeyboardInterrupt())
    assert len(closed) == 2


def test_nothing_together_is_nothing():
    """No plans, no steps, no results."""
    assert run(together([]), world) == ([], [])
