"""Documents and embedders as the tests write them: values, without expectations."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from retriever import Document

DIMS = 4


def shown(value):
    """A value in a test's id: its repr without an address, which is another one in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:60]


def document(id, text="some text", vector=(1, 0, 0, 0), ttl_s=None, **fields):
    """A document with its fields as keywords."""
    return Document(id, text, fields, vector, ttl_s)


class Embedder:
    """Texts -> unit vectors that depend on the text alone; keeps every call it got."""

    def __init__(self, width=DIMS, **attributes):
        self.width = width
        self.calls = []
        self.__dict__.update(attributes)

    def __call__(self, texts):
        self.calls.append(list(texts))
        return np.array([self.vector(text) for text in texts], np.float32)

    def vector(self, text):
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        row = np.random.default_rng(seed).normal(size=self.width)
        return (row / np.linalg.norm(row)).astype(np.float32)
