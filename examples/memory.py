"""An agent's memory: told, asked, aged, laid out for a prompt, forgotten and brought back.

The embedded engine keeps it, here in a folder that goes with the script. MemoryStore.open(embed=...) alone keeps one
that stays, in the user's data directory; with a URL it is a server's.
"""

import json
from contextlib import ExitStack, chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from retriever import EmbeddedServer, LocalEmbedder
from retriever.memory import MemoryStore, Note, Policy

HANDBOOK = """# Crew handbook

## Alarms

E-1182 means that the strainer is clogged. Clean it before the next crossing.

## Storms

The captain alone decides whether to sail.
"""

TALK = [
    {"speaker": "Ann", "date": "2026-03-02T09:15:00Z", "text": "I always take a cabin to port."},
    {"speaker": "Bob", "date": "2026-03-02T09:16:00Z", "text": "And I sleep on deck."},
]

with ExitStack() as stack:
    stack.enter_context(chdir(stack.enter_context(TemporaryDirectory())))
    Path("handbook.md").write_text(HANDBOOK)
    Path("talk.json").write_text(json.dumps(TALK))

    url = stack.enter_context(EmbeddedServer("engine"))
    store = stack.enter_context(
        MemoryStore.open(url, namespace="example", user="ann", embed=LocalEmbedder(), archive="archive.jsonl")
    )

    report = store.ingest(
        [
            "handbook.md",
            "talk.json",
            Note("Storms: crossings are said to be cancelled in January.", "https://news.example/2020/01/15/storms"),
            Note("Somebody mentioned a new colour for the funnel.", "remark", metadata={"importance": 0.1}),
        ],
        metadata=[{"knowledge_type": "principle", "tags": ["handbook"]}, {}, {}, {}],
    )
    print([each.status for each in report.sources], report.chunks, "chunks")
    again = store.ingest("handbook.md", metadata={"knowledge_type": "principle"})
    print([each.reason for each in again.sources])  # nothing is done twice

    print()
    (best, *_) = store.search("E-1182", k=1).chunks
    print(best.section, best.channels, best.tags)
    (best, *_) = store.search("which cabin for Ann", k=1).chunks
    print(best.speaker, "said:", best.content.strip())

    # By age and kind: what was news in 2020 gives way to a principle, which does not age.
    print()
    question, aged = "are crossings cancelled in a storm?", Policy(time_weight=1.0)
    for by in ({}, {"memory_rerank": True, "policy": aged}):
        print([chunk.knowledge_type for chunk in store.search(question, k=2, **by).chunks])

    print()
    print(store.context("what to do about a clogged strainer", budget=50, k=1).text)

    print()
    for each in store.forget():  # a dry run
        print("would go:", each.chunk.source, each.chunk.knowledge_type)
    gone = store.forget(dry_run=False)  # into the archive first
    print(store.stats().chunks, "left;", len(store.restore([each.chunk.id for each in gone]).restored), "brought back")
    print("all is well" if store.index_health().ok else store.index_health())
