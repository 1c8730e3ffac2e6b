"""The text channel: the documents that hold the words of a query, best first by BM25.

The engine finds candidates, in the way its row allows, and every engine's are scored here from the terms that
they hold, so a score is the same number everywhere. Where the engine ranks text, its best are taken. Where it does
not, it returns matches in no order and cuts anywhere, so it is asked for so few that all come back: see
``scoring.term_sets``.

What BM25 must know of the whole collection is asked of the engine when a term is first seen and kept for a minute:
a frequency that is wrong by a tenth keeps 0.985 of the best ten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fields.filters import Filter, filter_text
from fields.kinds import Text
from fields.names import TERMS_FIELD, terms_field
from retriever.engines import Engine
from retriever.errors import NotSupported, SchemaMismatch
from retriever.operations.index import Live, search_engine, whole_index
from retriever.plans import Command, Plan, Wait, ask_all, raise_first, together
from retriever.queries import MAX_K, frequency_command, ranking_query, set_queries, term_clause, text_command
from retriever.replies import Rows, values
from retriever.schema import Schema
from retriever.scoring import Scores, bm25, term_sets, term_weights

MAX_TERMS = 64  # arbitrary; a question has ten
KEEP_S = 60.0  # arbitrary, see above
# By how much, of the documents that there were, a collection may be written to until they are counted anew. The count
# comes from FT.INFO, for which RediSearch walks all terms: 10 ms at 20,000 documents, where a term's count takes 0.1.
WRITTEN = 0.1
MAX_KEPT = 100_000  # terms; some 20 MB
# Rows an engine without text scores is asked for. Where all words are common (50,000 documents) they hold 0.99 of
# BM25's best ten; of 400 rows 0.96, which other queries do with.
BUDGET = 600
# Terms that more documents hold are asked for apart from the others. RediSearch's own scores break where a term's
# frequency, counting overwritten documents that it has not swept out yet, exceeds the number of documents: one rewrite
# of all doubles it. Beside rarer terms such a one would decide which candidates come back.
COMMON = 0.4
# Entries of the engine for each term that a document has. RediSearch 2.10.5 keeps those of overwritten documents, for
# how long it does not say, and its scores take them for documents: after four changes of every text its best 50 had
# lost 0.13 of nDCG@10. Beyond this its ranking is not asked for.
STALE = 1.2


class Collection(NamedTuple):
    """What is known of the whole collection; written: texts that were written to it, ever.

    stale: the engine counts overwritten documents so many that its own ranking is worth nothing.
    attributes: the fields that the live index has.
    """

    documents: int
    mean_lengths: dict[str, float]
    stale: bool
    written: int
    attributes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Frequencies:
    """What BM25 needs of the collection. share: of documents that hold a term, by (attribute, term)."""

    whole: Collection
    share: dict[tuple[str, str], float]
    passing: float  # the share of documents that pass the filter

    @property
    def documents(self) -> int:
        """How many there are."""
        return self.whole.documents

    def count(self, attribute: str, term: str) -> int:
        """In how many documents the term is."""
        return round(self.share[attribute, term] * self.documents)


class Ranked(NamedTuple):
    """What words found. pairs: (id, score), best first, ties by id; rows: by id; reasons: why there may be more."""

    pairs: list[tuple[str, float]]
    rows: dict[str, Sequence[bytes | None]]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """The query's terms, ready to be asked for: what the engine is sent, and what reads its answers.

    limit: rows asked for. ranked: the engine gives its best, so that more matches than rows are no loss.
    """

    schema: Schema
    terms: tuple[str, ...]
    frequencies: Frequencies
    commands: tuple[Command[Rows], ...]
    limit: int
    ranked: bool

    def ranking(self, answers: Sequence[Rows]) -> Ranked:
        """The candidates of all answers, scored."""
        prefix = len(self.schema.prefix.encode())
        found: dict[str, Sequence[bytes | None]] = {}
        reasons: list[str] = []
        foreign = expired = 0
        for rows in answers:
            reasons += rows.warnings
            if not self.ranked and rows.total > self.limit:
                reasons.append(f"text: {rows.total} candidates, of which the engine was asked for {self.limit}")
            for key, row in rows.rows:
                if row is None:
                    expired += 1
                    continue
                try:
                    found[key[prefix:].decode()] = row
                except UnicodeDecodeError:
                    foreign += 1
        if expired:
            reasons.append(f"text: {expired} hits expired while the engine was answering")
        if foreign:
            reasons.append(f"text: {foreign} rows hold values that this library did not write")
        scores = self._scores(list(found.values()))
        ranking = sorted(zip((-scores).tolist(), found, strict=True))
        return Ranked([(id, -score) for score, id in ranking if score < 0], found, tuple(reasons))

    def _scores(self, rows: Sequence[Sequence[bytes | None]]) -> Scores:
        scores = np.zeros(len(rows))
        for at, (weight, weights, mean_length) in enumerate(self.weights):
            scores += weight * bm25([row[at] for row in rows], weights, mean_length)
        return scores

    @cached_property
    def weights(self) -> list[tuple[float, dict[str, float], float]]:
        """Of each analysed copy: how much it counts, how much each term does in it, its mean length."""
        known = self.frequencies
        found = []
        for attribute, weight in attributes(self.schema):
            df = {term: known.count(attribute, term) for term in self.terms}
            weights = term_weights(self.terms, df, known.documents)
            found.append((weight, weights, known.whole.mean_lengths[attribute]))
        return found

    def holding(self, found: Mapping[str, Sequence[bytes | None]]) -> Callable[[str], tuple[str, ...]]:
        """Which of the query's terms a candidate holds, by its id; found: as ``ranking`` gives it."""
        needles = [(term, f" {term} ".encode()) for term in self.terms]

        def held(id: str) -> tuple[str, ...]:
            row = b"".join(filter(None, found.get(id, ())))
            return tuple(term for term, needle in needles if needle in row)

        return held


def attributes(schema: Schema) -> list[tuple[str, float]]:
    """The analysed copies and how much each counts: the text's, and that of every Text field."""
    texts = [field for field in schema.by_name.values() if isinstance(field, Text)]
    return [(TERMS_FIELD, 1.0), *((terms_field(field.name), field.weight) for field in texts)]


def text_engine(live: Live) -> Plan[Engine]:
    """The engine's row; NotSupported where it has no TEXT fields."""
    engine = yield from search_engine(live)
    if not engine.text:
        server = f"{live.server}" if live.engine is None else engine.name
        raise NotSupported(f"{server} has no TEXT fields; words need Valkey Search 1.2 or newer, or RediSearch")
    return engine


def words(live: Live, terms: Sequence[str], filter: Filter | None, depth: int, timeout_ms: int) -> Plan[Words]:
    """How to ask for the terms. What is not known of them is asked of the engine: as a rule in one round trip.

    One more where the collection has grown by a tenth since it was counted, and one where its own ranking is stale.
    """
    schema = live.schema
    engine = yield from text_engine(live)
    copies = [name for name, _ in attributes(schema)]
    known = yield from _frequencies(live, copies, terms, None if engine.scores_text else filter, timeout_ms)
    lacking = {leaf.name for leaf in (() if filter is None else filter._leaves())} - known.whole.attributes
    if lacking:
        raise SchemaMismatch(
            f"index {schema.name!r} has no field {', '.join(sorted(lacking))}, so the filter finds nothing; "
            f"create_index() tells what else differs from the schema"
        )
    ranked = engine.scores_text and not known.whole.stale
    if engine.scores_text and known.whole.stale:
        known = yield from _frequencies(live, copies, terms, filter, timeout_ms)
    if ranked:
        rare = [term for term in terms if _share(known, copies, term) <= COMMON]
        groups = [rare, [term for term in terms if term not in rare]]
        if filter is None and any(known.count(name, term) >= depth for term in rare for name in copies):
            groups = [rare]  # which fill the ranking alone
        queries = [ranking_query([term_clause(copies, term) for term in group], filter) for group in groups if group]
        limit = depth
    else:
        df = {term: min(known.documents, sum(known.count(name, term) for name in copies)) for term in terms}
        budget = max(BUDGET, depth)
        # What was nowhere a minute ago may have been written since.
        new = [(term,) for term in terms if not df[term]]
        sets = [*term_sets(df, known.documents, budget, known.passing), *new]
        clauses_of = [[term_clause(copies, term) for term in each] for each in sets]
        queries = set_queries(clauses_of, filter, engine)
        limit = min(MAX_K, 10 * budget)  # its estimates may be wrong; beyond, the answer says that it was cut
    commands = tuple(text_command(schema, each, copies, limit, timeout_ms, ranked=ranked) for each in queries)
    return Words(schema, tuple(terms), known, commands, limit, ranked)


def _share(known: Frequencies, copies: Sequence[str], term: str) -> float:
    return max(known.share[name, term] for name in copies)


def _frequencies(
    live: Live, copies: Sequence[str], terms: Sequence[str], filter: Filter | None, timeout_ms: int
) -> Plan[Frequencies]:
    """From the cache, or asked of the engine. Shares, not counts, are kept: they change less."""
    schema, now = live.schema, (yield Wait(0))
    passes = None if filter is None else filter_text(filter)
    # (attribute, term), a filter's text or "" for what is true of the whole collection -> its value.
    wanted: list[Any] = [*((name, term) for term in terms for name in copies), *([passes] if passes else []), ""]
    known = {each: live.frequencies.get(each, (0.0, None)) for each in wanted}
    missing = [each for each, (at, value) in known.items() if value is None or now - at > KEEP_S]
    if missing:
        queries = [each if isinstance(each, str) else f"@{each[0]}:{each[1]}" for each in missing if each]
        commands: list[Command[Any]] = [frequency_command(schema, each, timeout_ms) for each in queries]
        plans: list[Plan[Any]] = [ask_all([*commands, _lengths(schema, copies)])]
        if "" in missing:
            plans.append(whole_index(live))
        answers: list[Any] = yield from together(plans)
        raise_first(*answers)
        raise_first(*answers[0])
        *counts, (lengths, written) = answers[0]
        whole = known[""][1]
        if "" in missing or abs(written - whole.written) > WRITTEN * whole.documents:
            index = answers[1] if "" in missing else (yield from whole_index(live))
            # A document has at most as many entries as terms; 0.7 of that in abstracts, twice as many once all were
            # rewritten.
            stale = index.records > STALE * index.documents * sum(lengths) > 0
            means = dict(zip(copies, lengths, strict=True))
            whole = Collection(index.documents, means, stale, written, frozenset(index.attributes))
        documents = whole.documents
        # Every share with the number of documents of about the same moment.
        shares = [min(1.0, count / documents) if documents else 0.0 for count in counts]
        fresh: dict[Any, Any] = dict(zip([each for each in missing if each], shares, strict=True))
        if whole is not known[""][1]:
            fresh[""] = whole
        known |= {each: (now, value) for each, value in fresh.items()}
        if len(live.frequencies) > MAX_KEPT:
            live.frequencies.clear()
        live.frequencies.update({each: known[each] for each in fresh})
    share = {each: value for each, (_, value) in known.items() if isinstance(each, tuple)}
    return Frequencies(known[""][1], share, 1.0 if passes is None else known[passes][1])


def _lengths(schema: Schema, copies: Sequence[str]) -> Command[tuple[list[float], int]]:
    """The mean length of each copy, in terms, and the texts written; from the counters beside the metadata, else 0."""
    suffixes = [name.removeprefix(TERMS_FIELD) for name in copies]
    names = [f"{what}{suffix}" for suffix in suffixes for what in ("terms", "documents")]

    def means(reply: Any) -> tuple[list[float], int]:
        numbers = [int(each or 0) for each in values(reply)]
        written = numbers[1::2]
        return [terms / max(1, count) for terms, count in zip(numbers[::2], written, strict=True)], written[0]

    return Command(("HMGET", schema.metadata_key, *names), means, schema.metadata_key)
