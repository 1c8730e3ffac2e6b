"""From nothing to ranked hits: declare, create, write, ask, clean up.

Uses the server at VALKEY_URL, or starts an engine of its own for as long as the script runs.
"""

import os
from contextlib import ExitStack

from retriever import Document, EmbeddedServer, LocalEmbedder, Numeric, Retriever, Schema, Stored, Tag, Text

schema = Schema(
    "example-quickstart",
    fields=[Tag("category"), Numeric("year"), Text("title"), Stored("url")],
)

documents = [
    Document(
        "pets",
        "Hounds and cats sail free of charge on the lower deck.",
        {"category": "policy", "year": 2019, "title": "Animals", "url": "https://ferry.example/pets"},
    ),
    Document(
        "refund",
        "If we cancel a crossing, the full fare goes back to your card.",
        {"category": "customer", "year": 2023, "title": "Refunds", "url": "https://ferry.example/refund"},
    ),
    Document(
        "wind",
        "The captain alone decides whether the boat leaves the quay.",
        {"category": "policy", "year": 2016, "title": "Storms"},  # a field left out is absent
    ),
]

with ExitStack() as stack:
    url = os.environ.get("VALKEY_URL") or stack.enter_context(EmbeddedServer())
    docs = stack.enter_context(Retriever.connect(url, schema, embed=LocalEmbedder()))
    stack.callback(docs.drop_index, delete_documents=True)

    docs.create_index()  # does nothing if it is there, fails if it is another one
    print(docs.upsert(documents))

    for hit in docs.query(text="can I bring my dog?", k=2):
        # score is the distance: lower is closer.
        print(f"{hit.score:.2f}  {hit.id:<6}  {hit.fields['title']}: {hit.text}")

    docs.update("wind", {"url": "https://ferry.example/wind"})  # this field and no other
    print(docs.get("wind"))
    print(docs.delete(["refund"]), "deleted,", docs.count(), "left")
