"""What retrieval finds, on collections whose answers people have judged: nDCG@10 and recall@10.

All but memory runs twice on one server: as the server is (RediSearch ranks words itself), and asked as Valkey Search
is, which ranks none. Metrics come from ir-measures; exact BM25, to compare with, from bm25s, over the same terms. The
judged collections, Cranfield and LoCoMo, are not part of this project: RETRIEVER_DATA names the folder that holds
them, ``data`` beside this script unless set. The German set and the made text are. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import bm25s
import harness
import ir_measures
import numpy as np
from ir_measures import R, nDCG
from valkey import Valkey

from retriever import (
    VALKEY_SEARCH_1_2,
    Analysis,
    Document,
    Engine,
    Linear,
    LocalEmbedder,
    Retriever,
    Schema,
    Tag,
    Vector,
)
from retriever.memory import MemoryStore, Note
from retriever.memory.store import CONTEXT

K = 10
NAME = f"{harness.NAME}-quality"
HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("RETRIEVER_DATA") or HERE / "data")
# How the words of a query are looked for: None is the server's own way.
WAYS: tuple[tuple[str, Engine | None], ...] = (("own", None), ("as Valkey Search", VALKEY_SEARCH_1_2))
APART = 0.005  # in nDCG@10, that the two ways may be
ALPHAS = [at / 10 for at in range(11)]
SEEDS = range(5)

Ranking = list[str]
Place = tuple[str, int]  # a document's name, and which of its chunks


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents, queries by id, and for each of these the relevant documents with their gains."""

    documents: list[dict[str, Any]]
    queries: dict[str, dict[str, Any]]
    qrels: dict[str, dict[str, int]]

    @classmethod
    def read(cls, folder: Path) -> Collection:
        """docs.jsonl, queries.jsonl and qrels.tsv of a folder; queries without a judgement are left out."""
        qrels: dict[str, dict[str, int]] = {}
        for line in (folder / "qrels.tsv").read_text("utf-8").splitlines()[1:]:
            query, document, gain = line.split("\t")
            qrels.setdefault(query, {})[document] = int(gain)
        queries = {each["id"]: each for each in jsonl(folder / "queries.jsonl") if each["id"] in qrels}
        return cls(jsonl(folder / "docs.jsonl"), queries, qrels)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. least, most: what it is held to, None if to nothing. of: which queries, all unless said."""

    part: str
    way: str
    what: str
    measure: str
    value: float
    least: float | None = None
    most: float | None = None
    of: str = ""

    @property
    def target(self) -> str:
        if self.least is None and self.most is None:
            return ""
        return harness.verdict(self.value, least=self.least, most=self.most)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all unless said")
    options.add_argument("--words", action="store_true", help="the text channel alone, so that nothing is embedded")
    options.add_argument("--documents", type=int, default=50_000, help="of the made text")
    options.add_argument("--queries", type=int, default=40, help="of each kind, for the made text")
    options.add_argument("--json", action="store_true", help="a JSON list of the figures in place of the tables")
    given = options.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        options.error(f"no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    rows: list[Row] = []
    with harness.server_url() as url, Valkey.from_url(url) as client:
        for part in given.parts or PARTS:
            if part in JUDGED and not (DATA / JUDGED[part]).is_dir():
                print(f"{part} skipped: no folder {DATA / JUDGED[part]}; RETRIEVER_DATA names another", file=sys.stderr)
                continue
            harness.clear(client, NAME)
            harness.clear_memory(client, NAME)
            try:
                found = list(PARTS[part](url, given))
            finally:
                harness.clear(client, NAME)
                harness.clear_memory(client, NAME)
            rows += found
            if not given.json:
                print_rows(part, found)
    if given.json:
        print(json.dumps([{**asdict(row), "target": row.target} for row in rows], indent=1))
    return int(any("MISSED" in row.target for row in rows))


def print_rows(part: str, rows: Sequence[Row]) -> None:
    if any(row.of for row in rows):
        print_beside(part, rows)
        return
    table = [[row.way, row.what, row.measure, f"{row.value:.4f}", row.target] for row in rows]
    harness.print_table(part, ["words", "what", "measure", "value", "target"], table)


def print_beside(part: str, rows: Sequence[Row]) -> None:
    """A line for each kind of query, with what is compared side by side."""
    sides = list(dict.fromkeys(row.what for row in rows))
    lines: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault((row.way, row.of, row.measure), {})[row.what] = row
    table = [
        [
            *title,
            *(f"{found[side].value:.4f}" if side in found else "" for side in sides),
            ", ".join(f"{row.what} {row.target}" for row in found.values() if row.target),
        ]
        for title, found in lines.items()
    ]
    harness.print_table(part, ["words", "queries", "measure", *sides, "target"], table)


# --- the parts ------------------------------------------------------------------------------------


def cranfield(url: str, given: argparse.Namespace) -> Iterator[Row]:
    """1,400 abstracts, 225 questions: each channel and both; under a filter; after everything was rewritten."""
    part, judged = "cranfield", Collection.read(DATA / "cranfield")
    texts = [f"{each.get('title', '')}\n{each['text']}" for each in judged.documents]
    ids = [each["id"] for each in judged.documents]
    questions = [each["text"] for each in judged.queries.values()]
    near, asked = embedded(texts, given.words), embedded(questions, given.words)
    passing = {seed: kept(ids, seed) for seed in SEEDS}
    documents = [
        Document(id, text, {"kept": [str(seed) for seed in SEEDS if id in passing[seed]]}, row)
        for id, text, row in zip(ids, texts, near, strict=True)
    ]
    schema = _schema(Tag("kept", many=True))
    exact = Exact(schema, ids, texts)
    sides: dict[str, tuple[float, dict[str, Any]]] = {"text": (0.355, {"channels": ["text"]})}
    if not given.words:
        sides |= {
            "vector": (0.370, {"channels": ["vector"]}),
            "rrf": (0.400, {}),
            "linear, alpha 0.5": (0.400, {"fusion": Linear(0.5)}),
        }

    def ask(retriever: Retriever, **kwargs: Any) -> list[Ranking]:
        return rankings(retriever, questions, asked, [kwargs] * len(questions))

    load(url, schema, documents)
    before: dict[tuple[str, str], float] = {}
    for way, engine in WAYS:
        with Retriever.connect(url, schema, engine=engine) as retriever:
            for side, (least, kwargs) in sides.items():
                found = before[way, side] = score(judged.qrels, judged.queries, ask(retriever, **kwargs))
                yield Row(part, way, side, "nDCG@10", found, least=least)
    for side in sides:
        apart = abs(before["own", side] - before["as Valkey Search", side])
        yield Row(part, "both", side, "nDCG@10 apart", apart, most=APART)
    truth = [exact.best(text) for text in questions]
    yield Row(part, "exact BM25", "text", "nDCG@10", score(judged.qrels, judged.queries, truth))

    within: dict[str, list[float]] = {way: [] for way, _ in WAYS}
    of_exact = []
    for seed in SEEDS:
        best = [exact.best(text, passing[seed]) for text in questions]
        of_exact.append(score(judged.qrels, judged.queries, best))
        for way, engine in WAYS:
            with Retriever.connect(url, schema, engine=engine) as retriever:
                ranked = ask(retriever, channels=["text"], filter={"kept": {"contains": str(seed)}})
            within[way].append(score(judged.qrels, judged.queries, ranked) / of_exact[-1])
    yield Row(part, "exact BM25", "text, filter that keeps 3/4", "nDCG@10", float(np.mean(of_exact)))
    for way, shares in within.items():
        yield Row(part, way, "text, filter that keeps 3/4", "of exact BM25's", float(np.mean(shares)), least=0.98)

    other = [Document(each.id, texts[-at - 1], each.fields, each.vector) for at, each in enumerate(documents)]
    with Retriever.connect(url, schema) as retriever:
        for title, again in (
            ("every document written again", [documents]),
            ("texts changed and back", [other, documents]),
        ):
            for each in again:
                retriever.upsert(each)
            for way, engine in WAYS:
                with Retriever.connect(url, schema, engine=engine) as asking:
                    for side, (_, kwargs) in sides.items():
                        now = score(judged.qrels, judged.queries, ask(asking, **kwargs))
                        moved = abs(now - before[way, side])
                        yield Row(part, way, f"{side}, {title}", "nDCG@10 moved", moved, most=APART)


def locomo(url: str, given: argparse.Namespace) -> Iterator[Row]:
    """Turns of three long conversations; each question is asked within its own."""
    part, judged = "locomo", Collection.read(DATA / "locomo")
    texts = [f"[{each['metadata']['date']}] {each['metadata']['speaker']}: {each['text']}" for each in judged.documents]
    questions = [each["text"] for each in judged.queries.values()]
    near, asked = embedded(texts, given.words), embedded(questions, given.words)
    documents = [
        Document(each["id"], text, {"conversation": each["metadata"]["conversation"]}, row)
        for each, text, row in zip(judged.documents, texts, near, strict=True)
    ]
    schema = _schema(Tag("conversation"))
    filters = [{"filter": {"conversation": each["conversation"]}} for each in judged.queries.values()]
    sides: dict[str, dict[str, Any]] = {"text": {"channels": ["text"]}}
    if not given.words:
        sides |= {"vector": {"channels": ["vector"]}, "rrf": {}}
        sides |= {f"linear, alpha {alpha:.1f}": {"fusion": Linear(alpha)} for alpha in ALPHAS}
    load(url, schema, documents)
    for way, engine in WAYS:
        found: dict[str, dict[str, float]] = {}
        with Retriever.connect(url, schema, engine=engine) as retriever:
            for side, kwargs in sides.items():
                ranked = rankings(retriever, questions, asked, [{**each, **kwargs} for each in filters])
                found[side] = scores(judged.qrels, judged.queries, ranked)
                if side in ("text", "vector", "rrf", "linear, alpha 0.5"):
                    yield Row(part, way, side, "nDCG@10", float(np.mean(list(found[side].values()))))
                    yield Row(part, way, side, "R@10", score(judged.qrels, judged.queries, ranked, R @ K))
        if given.words:
            continue
        for conversation in sorted({each["conversation"] for each in judged.queries.values()}):
            tuned_on = {id for id, each in judged.queries.items() if each["conversation"] == conversation}

            def mean(side: str, *, here: bool, found: Any = found, on: Any = tuned_on) -> float:
                return float(np.mean([value for id, value in found[side].items() if (id in on) is here]))

            alpha = max(ALPHAS, key=lambda alpha: mean(f"linear, alpha {alpha:.1f}", here=True))
            for side in (f"linear, alpha {alpha:.1f}", "vector", "rrf"):
                title = f"{side}, on the two others than {conversation}"
                yield Row(part, way, title, "nDCG@10", mean(side, here=False))


def memory(url: str, given: argparse.Namespace) -> Iterator[Row]:
    """The same turns in a store of memory: a session is a document, a turn a chunk; asked within its conversation.

    With the context that the store gives a chunk unless said otherwise, and with the turn before it too. The server's
    own way alone: so few turns hold a question's words that the other way found the same, but for .0004 of one mean.
    """
    judged = Collection.read(DATA / "locomo")
    categories = list(dict.fromkeys(each["category"] for each in judged.queries.values()))
    embed = Nothing() if given.words else Once()
    for added, title in (((), ""), (("previous",), ", turn before too")):
        with Valkey.from_url(url) as client:
            harness.clear_memory(client, NAME)
        with ExitStack() as opened:
            stores = remembered(opened, url, judged.documents, embed, (*CONTEXT, *added))
            found: dict[str, list[Ranking]] = {}
            for side in ("text",) if given.words else ("text", "vector", "default"):
                ranked = found[side] = []
                for query in judged.queries.values():
                    store, ids = stores[query["conversation"]]
                    ranked.append([ids[place] for place in recalled(store, query, side)])
        for measure, name in ((R @ K, "R@10"), (nDCG @ K, "nDCG@10")):
            values = {side: scores(judged.qrels, judged.queries, each, measure) for side, each in found.items()}
            for category in ["all", *categories]:
                asked = [id for id, query in judged.queries.items() if category in ("all", query["category"])]
                means = {side: float(np.mean([each[id] for id in asked])) for side, each in values.items()}
                for side, mean in means.items():
                    held = (side, title, category, name) == ("default", "", "all", "R@10")
                    least = round(max(means["text"], means["vector"]), 4) if held else None
                    yield Row("memory", "own", f"{side}{title}", name, mean, least=least, of=category)


def german(url: str, _given: argparse.Namespace) -> Iterator[Row]:
    """A made set where a query's words stand in the documents in another case, number or spelling."""
    lines = jsonl(HERE / "german.jsonl")
    queries = {str(at): each for at, each in enumerate(lines) if "query" in each}
    qrels = {id: dict.fromkeys(each["relevant"], 1) for id, each in queries.items()}
    documents = [
        Document(each["id"], each["text"], vector=row)
        for each, row in zip((each for each in lines if "id" in each), placeholders(len(lines)), strict=False)
    ]
    for analysis, title, least in (
        (Analysis("german"), "german", 0.85),
        (Analysis("german", stem=False), "german, stem=False", None),
        (Analysis(), "english", None),
    ):
        schema = Schema(f"{NAME}:idx", [], Vector(dims=DIMS, algorithm="FLAT"), analysis=analysis, prefix=f"{NAME}:")
        with Valkey.from_url(url) as client:
            harness.clear(client, NAME)
        load(url, schema, documents)
        for way, engine in WAYS:
            with Retriever.connect(url, schema, engine=engine) as retriever:
                texts = [each["query"] for each in queries.values()]
                found = rankings(retriever, texts, placeholders(len(texts)), [{"channels": ["text"]}] * len(texts))
            yield Row("german", way, title, "nDCG@10", score(qrels, queries, found), least=least)


def zipf(url: str, given: argparse.Namespace) -> Iterator[Row]:
    """How many of exact BM25's ten come back, of made text, for queries that are hard in different ways."""
    texts = harness.zipf_texts(given.documents)
    ids = [f"d{at}" for at in range(len(texts))]
    rng = random.Random(harness.SEED)
    tenth = {id for id in ids if rng.random() < 0.1}
    documents = [
        Document(id, text, {"part": "in" if id in tenth else "out"}, row)
        for id, text, row in zip(ids, texts, placeholders(len(texts)), strict=True)
    ]
    schema = _schema(Tag("part"))
    exact = Exact(schema, ids, texts)
    load(url, schema, documents)
    for kind, asked in harness.zipf_queries(texts, given.queries).items():
        for title, passing in (("", None), (", filter that keeps 1/10", tenth)):
            truth = [exact.scored(text, passing) for text in asked]
            kwargs: dict[str, Any] = {} if passing is None else {"filter": {"part": "in"}}
            for way, engine in WAYS:
                with Retriever.connect(url, schema, engine=engine) as retriever:
                    found = rankings(
                        retriever, asked, placeholders(len(asked)), [{"channels": ["text"], **kwargs}] * len(asked)
                    )
                shares = [overlap(ids, best) for ids, best in zip(found, truth, strict=True)]
                yield Row("zipf", way, f"{kind}{title}", "overlap@10", float(np.mean(shares)), least=0.97)


PARTS: dict[str, Callable[[str, argparse.Namespace], Iterator[Row]]] = {
    "cranfield": cranfield,
    "locomo": locomo,
    "memory": memory,
    "german": german,
    "zipf": zipf,
}
JUDGED = {"cranfield": "cranfield", "locomo": "locomo", "memory": "locomo"}  # part -> the folder that it reads
DIMS = 4  # of vectors that nobody looks at


# --- asking ---------------------------------------------------------------------------------------


def _schema(*fields: Tag) -> Schema:
    # FLAT: exact, so that the graph has no part in the figures. The dims come with the first document.
    return Schema(f"{NAME}:idx", fields, Vector(algorithm="FLAT"), prefix=f"{NAME}:")


def load(url: str, schema: Schema, documents: Sequence[Document]) -> None:
    dims = len(documents[0].vector)  # type: ignore[arg-type]
    with Retriever.connect(url, schema.with_dims(dims)) as retriever:
        retriever.create_index()
        report = retriever.upsert(documents)
    if report.failed:
        raise SystemExit(f"the server refused {report.failed[0]}")


def rankings(
    retriever: Retriever, texts: Sequence[str], vectors: harness.Matrix, kwargs: Sequence[Mapping[str, Any]]
) -> list[Ranking]:
    """The ids that each text finds, best first."""
    return [
        [hit.id for hit in retriever.retrieve(text=text, vector=row, k=K, return_fields=[], **each)]
        for text, row, each in zip(texts, vectors, kwargs, strict=True)
    ]


def embedded(texts: Sequence[str], words: bool) -> harness.Matrix:
    """Vectors of LocalEmbedder; words: vectors of nothing, for where the text channel is looked at alone."""
    return placeholders(len(texts)) if words else np.asarray(LocalEmbedder()(texts), dtype=np.float32)


def placeholders(count: int) -> harness.Matrix:
    return np.random.default_rng(harness.SEED).standard_normal((count, DIMS), dtype=np.float32)


def kept(ids: Sequence[str], seed: int) -> set[str]:
    """Three quarters of the documents."""
    return set(random.Random(seed).sample(ids, len(ids) * 3 // 4))


# --- memory ---------------------------------------------------------------------------------------


class Nothing:
    """An embedder that sees no meaning, for where the text channel is looked at alone."""

    def __call__(self, texts: list[str], /) -> harness.Matrix:
        """Vectors of nothing."""
        return placeholders(len(texts))


class Once:
    """LocalEmbedder, which is asked once for every text: questions are put to many sides."""

    def __init__(self) -> None:
        self.embed, self.known = LocalEmbedder(), dict[str, Any]()

    def __call__(self, texts: list[str], /) -> harness.Matrix:
        """One row for each text."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known |= zip(new, self.embed(new), strict=True)
        return np.stack([self.known[text] for text in texts])


def remembered(
    opened: ExitStack, url: str, turns: Sequence[Mapping[str, Any]], embed: Nothing | Once, context: Sequence[str]
) -> dict[str, tuple[MemoryStore, dict[Place, str]]]:
    """Each conversation's store, of one namespace, and the turn that each of its chunks is."""
    sessions: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for turn in turns:
        of = turn["metadata"]
        sessions.setdefault(of["conversation"], {}).setdefault(f"session {of['session']}", []).append(turn)
    stores = {}
    for conversation, documents in sessions.items():
        store = MemoryStore.open(
            url,
            namespace=NAME,
            user=conversation,
            embed=embed,
            context=context,
            vector=Vector(algorithm="FLAT"),
            archive=HERE / "nothing-is-forgotten.jsonl",
        )
        opened.enter_context(store)
        ids = {(source, at): turn["id"] for source, of in documents.items() for at, turn in enumerate(of)}
        report = store.ingest([Note(exported(of), name, None, "conversation") for name, of in documents.items()])
        if report.failed or report.chunks != len(ids):
            raise SystemExit(f"{conversation}: {report.chunks} chunks of {len(ids)} turns; failed: {report.failed}")
        stores[conversation] = store, ids
    return stores


def exported(turns: Iterable[Mapping[str, Any]]) -> str:
    """A session as programs of conversations export it."""
    return json.dumps(
        [{name: turn["metadata"][name] for name in ("speaker", "date")} | {"text": turn["text"]} for turn in turns]
    )


def recalled(store: MemoryStore, query: Mapping[str, Any], side: str) -> list[Place]:
    """The places of the best chunks; the words alone are asked of the index, since the store has no such search."""
    if side == "text":
        own, names = {"user": query["conversation"]}, ["source", "chunk_index"]
        hits = store._retriever.retrieve(text=query["text"], k=K, channels=["text"], filter=own, return_fields=names)
        return [(hit.fields["source"], int(hit.fields["chunk_index"])) for hit in hits]
    found = store.search(query["text"], k=K, use_fts=side == "default", reinforce=False)
    return [(str(chunk.source), chunk.chunk_index) for chunk in found.chunks]


# --- judging --------------------------------------------------------------------------------------


class Exact:
    """BM25 with Lucene's idf and our k1 and b. Frequencies are those of all documents, also under a filter."""

    def __init__(self, schema: Schema, ids: Sequence[str], texts: Sequence[str]) -> None:
        assert schema.analysis is not None
        self.terms = schema.analysis.terms
        self.ids = np.array(ids)
        self.model = bm25s.BM25(k1=1.2, b=0.75, method="lucene", dtype="float64")
        self.model.index([self.terms(text) for text in texts], show_progress=False)

    def scored(self, text: str, passing: set[str] | None = None) -> dict[str, float]:
        """id -> score of the documents that hold a term of the text, best first, ties by id."""
        terms = list(dict.fromkeys(self.terms(text)))
        values = self.model.get_scores(terms)
        found = [
            (id, float(values[at]))
            for at, id in ((at, str(self.ids[at])) for at in np.flatnonzero(values > 0))
            if passing is None or id in passing
        ]
        return dict(sorted(found, key=lambda pair: (-pair[1], pair[0])))

    def best(self, text: str, passing: set[str] | None = None) -> Ranking:
        return list(self.scored(text, passing))[:K]


def overlap(found: Ranking, truth: Mapping[str, float]) -> float:
    """The share of the exact ten that was found; a document that ties with the tenth is as good as it."""
    best = list(truth.values())[:K]
    if not best:
        return 1.0
    return sum(truth.get(id, 0.0) >= best[-1] * (1 - 1e-9) for id in found) / len(best)


def scores(
    qrels: Mapping[str, Mapping[str, int]],
    queries: Mapping[str, Any],
    found: Sequence[Ranking],
    measure: Any = nDCG @ K,
) -> dict[str, float]:
    """The measure of every query. One that found nothing counts 0."""
    judged = [ir_measures.Qrel(query, id, gain) for query, gains in qrels.items() for id, gain in gains.items()]
    # The measures sort by score, and ties by id: scores that say the place keep our order.
    run = [
        ir_measures.ScoredDoc(query, id, -float(place))
        for query, ids in zip(queries, found, strict=True)
        for place, id in enumerate(ids)
    ]
    return {each.query_id: each.value for each in ir_measures.iter_calc([measure], judged, run)}


def score(
    qrels: Mapping[str, Mapping[str, int]],
    queries: Mapping[str, Any],
    found: Sequence[Ranking],
    measure: Any = nDCG @ K,
) -> float:
    """The measure's mean over the queries."""
    return float(np.mean(list(scores(qrels, queries, found, measure).values())))


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
