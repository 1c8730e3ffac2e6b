"""Which generation is chosen, as a plan on answers written here; the rest is tested on a server."""

from __future__ import annotations

import pytest

from fields.kinds import Vector
from retriever.memory.rebuilding import Generations, choose
from retriever.operations.index import Live
from retriever.plans import Ask, Wait
from retriever.schema import Schema

SCHEMA = Schema("{m}", vector=Vector(dims=4), prefix="{m}:")


class BusyLoadingError(ConnectionError):
    """As the client libraries tell LOADING."""


def metadata(schema=SCHEMA, **given):
    """The reply that tells a generation's metadata."""
    held = {"layout": 1, "schema": schema.to_json(), "embedder": "e", **given}
    return [part for name, value in held.items() for part in (name.encode(), str(value).encode())]


def chosen(stored):
    """What is chosen by embedder e; stored: metadata key -> reply."""
    plan = choose(Live(SCHEMA, embedder="e"))
    step = next(plan)
    try:
        while True:
            assert isinstance(step, Ask)
            step = plan.send(([stored.get(command.args[1], []) for command in step.commands], 0.001))
    except StopIteration as end:
        return end.value


SECOND, THIRD = SCHEMA.of_generation(2), SCHEMA.of_generation(3)
THEIRS = {"embedder": "other"}


@pytest.mark.parametrize(
    ("stored", "generations"),
    [
        ({}, Generations(1, 1, True)),
        ({"{m}": metadata()}, Generations(1, 1, True)),
        ({"{m}": metadata(layout=9, **THEIRS)}, Generations(1, 1, True)),
        ({"{m}": metadata(**THEIRS)}, Generations(1, 2, False)),
        ({"{m}": metadata(**THEIRS), "{m}@2": metadata(SECOND)}, Generations(1, 2, False)),
        ({"{m}": metadata(**THEIRS), "{m}@2": metadata(SECOND, **THEIRS)}, Generations(1, 3, False)),
        ({"{m}": metadata(generation=2, **THEIRS), "{m}@2": metadata(SECOND, finished=1)}, Generations(2, 2, True)),
        ({"{m}": metadata(generation=2), "{m}@2": metadata(SECOND, finished=1)}, Generations(2, 2, True)),
        ({"{m}": metadata(generation=2), "{m}@2": metadata(SECOND, **THEIRS)}, Generations(2, 1, True)),
        ({"{m}": metadata(generation=2, dropped=1), "{m}@2": metadata(SECOND, **THEIRS)}, Generations(2, 3, False)),
        (
            {
                "{m}": metadata(generation=3, **THEIRS),
                "{m}@2": metadata(SECOND),
                "{m}@3": metadata(THIRD, finished=1, **THEIRS),
            },
            Generations(3, 2, False),
        ),
        (
            {"{m}": metadata(generation=3, dropped="1,2"), "{m}@3": metadata(THIRD, finished=1, **THEIRS)},
            Generations(3, 4, False),
        ),
    ],
    ids=[
        *["new", "ours", "another layout", "theirs", "begun", "begun by another", "second", "newest of two"],
        *["the first still", "dropped", "overtaken", "all dropped but theirs"],
    ],
)
def test_which_generation(stored, generations):
    """The newest finished one of the embedder that has not been dropped; else its begun one; else the next free."""
    assert chosen(stored) == generations


def test_a_server_that_is_loading_is_waited_for():
    """A namespace of a server that still reads its data is neither an error nor a new one."""
    plan = choose(Live(SCHEMA, embedder="e"))
    assert isinstance(next(plan), Ask)
    assert plan.throw(BusyLoadingError("loading")) == Wait(0)
    assert isinstance(plan.send(100.0), Wait)
    assert isinstance(plan.send(100.1), Ask)
    with pytest.raises(StopIteration) as end:
        plan.send(([metadata()], 0.001))
    assert end.value.value == Generations(1, 1, ready=True)
