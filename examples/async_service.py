"""The heart of an asyncio service: one AsyncRetriever for all requests, a tenant that no request escapes."""

import asyncio
import os
from contextlib import ExitStack

from retriever import (
    AsyncRetriever,
    Document,
    EmbeddedServer,
    InvalidInput,
    LocalEmbedder,
    NotSupported,
    Numeric,
    Schema,
    Tag,
)

schema = Schema("example-service", fields=[Tag("tenant"), Tag("topic"), Numeric("year")])

documents = [
    Document("a1", "Dogs and cats sail free of charge.", {"tenant": "acme", "topic": "pets", "year": 2019}),
    Document("a2", "Refunds arrive within two working days.", {"tenant": "acme", "topic": "money", "year": 2023}),
    Document("b1", "Dogs pay half the fare of a child.", {"tenant": "brig", "topic": "pets", "year": 2024}),
]


async def handle(docs, tenant, request):
    """Answer one request: a dict in, a dict out, whatever is in it."""
    conditions = request.get("filter", {})
    if not isinstance(conditions, dict):  # it came from outside: a string, null, a list
        return {"status": 400, "error": f"filter: a mapping expected, not {type(conditions).__name__}"}
    try:
        hits = await docs.query(
            text=request.get("text"),
            k=request.get("k", 3),
            # A tenant of None is an error, so a lost id never widens a search.
            filter={**conditions, "tenant": tenant},
        )
    except (InvalidInput, NotSupported) as error:  # or more than this engine takes; anything else is ours and passes
        return {"status": 400, "error": str(error)}
    found = [{"id": hit.id, "distance": round(hit.score, 2), "text": hit.text} for hit in hits]
    return {"status": 200, "hits": found, "complete": hits.complete}


async def main(url):
    """Start, serve a few requests at the same time, stop."""
    async with AsyncRetriever.connect(url, schema, embed=LocalEmbedder()) as docs:
        await docs.create_index()
        try:
            await docs.upsert(documents)
            requests = [
                ("acme", {"text": "may I bring my dog"}),
                ("brig", {"text": "may I bring my dog", "filter": {"year": {"gte": 2020}}}),
                ("acme", {"text": "money back", "k": 1, "filter": {"topic": "money"}}),
                ("acme", {"text": "anything", "filter": {"colour": "red"}}),
                ("acme", {"text": "anything", "filter": "topic:pets"}),
                (None, {"text": "anything"}),
            ]
            for answer in await asyncio.gather(*(handle(docs, *request) for request in requests)):
                print(answer)
        finally:
            await docs.drop_index(delete_documents=True)


if __name__ == "__main__":
    with ExitStack() as stack:  # the engine starts before the loop: its start blocks
        asyncio.run(main(os.environ.get("VALKEY_URL") or stack.enter_context(EmbeddedServer())))
