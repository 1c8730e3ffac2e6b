"""Words and meaning together: which finds what, why a hit is there, one hit a group, other words for a question."""

import os
from contextlib import ExitStack

from retriever import Document, EmbeddedServer, Linear, LocalEmbedder, Retriever, Schema, Tag, Text

schema = Schema("example-hybrid", fields=[Tag("manual"), Text("title", weight=2.0)])

documents = [
    Document(
        "flow",
        "The pump runs but no water comes: the alarm panel shows E-1182. Clean the strainer.",
        {"manual": "engines", "title": "Cooling"},
    ),
    Document(
        "codes",
        "An E and four digits name an alarm, such as E-1128.",
        {"manual": "engines", "title": "Alarm codes"},
    ),
    Document(
        "smoke",
        "Black smoke at start: look for water in the fuel first.",
        {"manual": "engines", "title": "When an engine coughs"},
    ),
    Document(
        "hounds",
        "Hounds and cats sail free of charge on the lower deck.",
        {"manual": "crew", "title": "Animals"},
    ),
    Document(
        "wages",
        "Wages arrive on the last Friday of a month.",
        {"manual": "crew", "title": "Pay"},
    ),
]


def synonyms(text):
    """More texts for one text; a language model's rewriting would be a function of the same form."""
    return [text.replace("dog", "hound")] if "dog" in text else []


with ExitStack() as stack:
    url = os.environ.get("VALKEY_URL") or stack.enter_context(EmbeddedServer())
    docs = stack.enter_context(Retriever.connect(url, schema, embed=LocalEmbedder()))
    stack.callback(docs.drop_index, delete_documents=True)
    docs.create_index()
    docs.upsert(documents)

    # fused_score is higher-is-better, and to be compared within one answer only.
    leaning = Linear(alpha=0.3)  # towards the words
    for text in ("E-1182", "how are sailors paid"):
        print(f"{text}: by meaning {docs.query(text=text, k=1)[0].id},", end=" ")
        by_words = docs.retrieve(text=text, k=1, channels=["text"])
        fused = docs.retrieve(text=text, k=1, fusion=leaning)
        print(f"by words {by_words[0].id if by_words else 'nothing'}, fused {fused[0].id}")

    print()
    print(docs.retrieve(text="E-1182", k=1, fusion=leaning)[0].explain())

    print()
    for hit in docs.retrieve(text="repairing an engine", k=2, collapse="manual"):
        print(f"{hit.fields['manual']}: {hit.id}, and {hit.collapsed} more")

    print()
    for expand in (None, synonyms):
        hit = docs.retrieve(text="is a dog free", k=1, expand=expand)[0]
        print(f"{'with' if expand else 'without'} synonyms: {hit.id}, words {', '.join(hit.terms) or 'none'}")
