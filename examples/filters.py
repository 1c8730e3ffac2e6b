"""Filters: as mappings (from a request's JSON) and as expressions (in code); they compile alike."""

import os
from contextlib import ExitStack

from retriever import Document, EmbeddedServer, Numeric, Retriever, Schema, Tag, Vector, build_ft_search_query

category, labels, year = Tag("category"), Tag("labels", many=True), Numeric("year")
schema = Schema("example-filters", fields=[category, labels, year], vector=Vector(dims=2))

# Vectors of one's own: no embedder is needed. Nearest to (1, 0) is a, then b, then c.
documents = [
    Document("a", fields={"category": "db", "labels": ["fast", "in memory"], "year": 2024}, vector=[1, 0]),
    Document("b", fields={"category": "db", "labels": ["C++"], "year": 2019}, vector=[1, 1]),
    Document("c", fields={"labels": ["fast"], "year": 2021}, vector=[0, 1]),  # no category
]

filters = [
    {"category": "db"},
    {"category": "db", "year": {"gte": 2020}},  # entries are ANDed
    {"labels": {"all": ["fast", "in memory"]}},  # any, all: say how a list is meant
    {"year": {"between": [2019, 2021]}},
    category == "db",
    (category == "db") & (year >= 2020) | labels.contains("C++"),
    category != "db",  # also true of c, which has none
    ~labels.isin(["fast", "C++"]),
]

with ExitStack() as stack:
    url = os.environ.get("VALKEY_URL") or stack.enter_context(EmbeddedServer())
    docs = stack.enter_context(Retriever.connect(url, schema))
    stack.callback(docs.drop_index, delete_documents=True)
    docs.create_index()
    docs.upsert(documents)

    for each in filters:
        hits = docs.query(vector=[1, 0], k=10, filter=each)
        print(f"{build_ft_search_query(schema, 10, each).partition('=>')[0]:<60}", [hit.id for hit in hits])
