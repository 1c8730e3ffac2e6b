"""Vectors kept in Valkey: a text is embedded once, by whichever process meets it first."""

import os
from contextlib import ExitStack

from valkey import Valkey

from retriever import CachedEmbedder, Document, EmbeddedServer, LocalEmbedder, Retriever, Schema

schema = Schema("example-cached")

documents = [
    Document("ferry", "The ferry to the island leaves at seven."),
    Document("bread", "Bread needs flour, water, salt and time."),
    Document("again", "The ferry to the island leaves at seven."),
]

with ExitStack() as stack:
    url = os.environ.get("VALKEY_URL") or stack.enter_context(EmbeddedServer())
    client = stack.enter_context(Valkey.from_url(url))

    # A week; what nobody has asked for by then is embedded anew. An async client takes AsyncCachedEmbedder.
    embed = CachedEmbedder(LocalEmbedder(), client=client, ttl_s=7 * 24 * 3600, prefix="example-embedding:")
    stack.callback(embed.clear)

    docs = stack.enter_context(Retriever.connect(url, schema, embed=embed))
    stack.callback(docs.drop_index, delete_documents=True)
    docs.create_index()
    docs.upsert(documents)
    print(f"{len(documents)} documents: embedded {embed.misses}, found {embed.hits}")

    # Another process, as it were: it has the same model and the same prefix.
    other = CachedEmbedder(LocalEmbedder(), client=client, prefix="example-embedding:")
    other([document.text for document in documents])
    print(f"the same texts elsewhere: embedded {other.misses}, found {other.hits}")

    print("nearest:", docs.query(text="When does the boat go?", k=1)[0].text)
