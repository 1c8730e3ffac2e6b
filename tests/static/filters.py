"""A comparison of a field is a Filter for a type checker too, and only comparisons that exist pass."""

from __future__ import annotations

from typing import assert_type

from retriever import Filter, Numeric, Retriever, Schema, Tag, Text, build_ft_search_query

category = Tag("category")
tags = Tag("tags", many=True)
year = Numeric("year")

assert_type(category == "db", Filter)
assert_type(category != "db", Filter)
assert_type(category.isin(["db", "cache"]), Filter)
assert_type(tags.contains("fast"), Filter)
assert_type(year == 2024, Filter)
assert_type(year >= 2020, Filter)
assert_type(year < 2020.5, Filter)
assert_type(year.between(2020, 2024), Filter)
assert_type(year.isin(range(3)), Filter)
assert_type((category == "db") & (year >= 2020) | ~(category == "cache"), Filter)
assert_type((category == "db").matches({"category": "db"}), bool)

# A Text field is not filtered by: its == compares two declarations.
assert_type(Text("title") == Text("title"), bool)

year >= "2020"  # type: ignore[operator]
year.between("2020", 2024)  # type: ignore[arg-type]
category >= "db"  # type: ignore[operator]
category.isin([1, 2])  # type: ignore[list-item]
category.between("a", "b")  # type: ignore[attr-defined]
tags.contains(["fast"])  # type: ignore[arg-type]
(category == "db") & "year"  # type: ignore[operator]


def use(docs: Retriever, schema: Schema) -> None:
    docs.count(category == "db")
    docs.count({"category": "db", "year": {"gte": 2020}, "tags": {"any": ["a", "b"]}})
    docs.count(None)
    docs.delete(filter={}, everything=True)
    assert_type(build_ft_search_query(schema, 10, year > 2020, ef_runtime=200), str)

    docs.count("category == 'db'")  # type: ignore[arg-type]
    docs.count([category == "db"])  # type: ignore[arg-type]
    docs.delete(None, {"category": "db"})  # type: ignore[call-arg]
