"""What tests of a store of memory share: its insides, its plans step by step, an embedder whose vectors are known."""

from __future__ import annotations

import math
import re

import numpy as np

from retriever.memory.store import Note
from tests.fakes import Embedder

DAY = 86_400.0


def lines(text):
    """A chunk for every line."""
    return text.splitlines()


def memory_of(shell):
    """What the plans of a store take."""
    return shell.retriever._memory


def keys(raw, shell):
    """Every key of a namespace."""
    return sorted(raw.scan_iter(f"{memory_of(shell).names.index}*", count=1000))


def chunk_ids(raw, shell):
    """The ids of all chunks that there are, whoever knows of them."""
    prefix = memory_of(shell).names.prefix.encode()
    return sorted(key.removeprefix(prefix).decode() for key in keys(raw, shell) if key.startswith(prefix))


def dump(raw, shell):
    """All that a namespace holds, to see that something changed nothing."""
    return {key: raw.hgetall(key) for key in keys(raw, shell)}


class Steps:
    """A blocking store's plan, taken step by step.

    Who drops one with steps left has killed its process there, as far as the server can tell: nothing of it runs on.
    """

    def __init__(self, store, plan):
        self.driver, self.plan = store._retriever._driver, plan
        self.done, self.result = False, None
        self._to(lambda: next(plan))

    def _to(self, step):
        try:
            self.waiting = step()
        except StopIteration as end:
            self.done, self.result = True, end.value

    def take(self, count=1):
        """Take so many steps, or as many as there are."""
        for _ in range(count):
            if self.done:
                break
            try:
                answer = self.driver.answer(self.waiting, iter(()))
            except Exception as error:
                self._to(lambda error=error: self.plan.throw(error))
            else:
                self._to(lambda answer=answer: self.plan.send(answer))
        return self

    def finish(self):
        """Take all that are left; the plan's result."""
        while not self.done:
            self.take()
        return self.result


class Counted:
    """A link that keeps the words of every command it carries."""

    def __init__(self, shell):
        self.link = shell.retriever._retriever._driver.link
        self.commands, self.trips = [], 0
        shell.retriever._retriever._driver.link = self

    def __getattr__(self, name):
        return getattr(self.link, name)

    def send(self, commands):
        self.commands += [command.args for command in commands]
        self.trips += 1
        return self.link.send(commands)

    def names(self):
        """The commands' names, and none of them any more."""
        names = [str(args[0]) for args in self.commands]
        self.commands, self.trips = [], 0
        return names


class Near(Embedder):
    """The vector of a text is an angle: of its last number, in thousandths of a radian."""

    def vector(self, text):
        found = re.findall(r"\d+", text)
        angle = int(found[-1]) / 1000 if found else 0.0
        return np.array([math.cos(angle), math.sin(angle), 0, 0], np.float32)


def note(text, source=None, **metadata):
    """A note with its metadata as keywords."""
    return Note(text, source, metadata=metadata)
