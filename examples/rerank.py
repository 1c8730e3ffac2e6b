"""Reranking with a function of one's own; a model is one more callable of the same form."""

import os
import re
from contextlib import ExitStack

from retriever import Document, EmbeddedServer, LocalEmbedder, Retriever, Schema

schema = Schema("example-rerank")

documents = [
    Document("hybrid", "Vectors are hopeless at telling part HX-4410 from HX-4401."),
    Document(
        "new", "Main engines are cooled by plates in a frame. Order HX-4410 only; each HX-4410 is tested at the yard."
    ),
    Document("old", "HX-4401 is the older part: the holes match, the flow does not."),
    Document("pump", "A raw water pump needs a new impeller each spring."),
]


def occurrences(text, hits):
    """(hit, score) pairs; higher is better. It sees ``candidates`` hits, nearest first."""
    wanted = re.findall(r"[\w-]+", text)
    return [(hit, sum(hit.text.count(word) for word in wanted)) for hit in hits]


# A cross-encoder (pip install 'valkey-retriever[sentence-transformers]') would be:
#     rerank=CrossEncoderReranker("cross-encoder/ms-marco-MiniLM-L6-v2")

with ExitStack() as stack:
    url = os.environ.get("VALKEY_URL") or stack.enter_context(EmbeddedServer())
    docs = stack.enter_context(Retriever.connect(url, schema, embed=LocalEmbedder(), rerank=occurrences))
    stack.callback(docs.drop_index, delete_documents=True)
    docs.create_index()
    docs.upsert(documents)

    print("by distance:", [hit.id for hit in docs.query(text="HX-4410", k=2)])
    for hit in docs.query(text="HX-4410", k=2, rerank=True, candidates=4):
        print(f"rerank_score {hit.rerank_score:g}, distance {hit.score:.2f}: {hit.id}")
