"""BM25, and which documents to score by it where the engine scores none.

Rule: ``text_score`` is one number on every engine. Engines find candidates; what each is worth is computed here,
from its stored terms (``fields.analysis.stored_terms``), the terms' document frequencies and the mean length.
Source: Robertson, Zaragoza, The Probabilistic Relevance Framework, 2009, doi 10.1561/1500000019; the inverse
document frequency and the form without the constant factor k1 + 1 are Lucene's (BM25Similarity since 8.0).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import log1p

import numpy as np
import numpy.typing as npt

__all__ = ["Scores", "bm25", "idf", "term_sets", "term_weights"]

Scores = npt.NDArray[np.float64]

# How soon repetitions of a term stop counting, and how much a long document pays: Lucene's values.
K1, B = 1.2, 0.75


def idf(document_frequencies: npt.ArrayLike, documents: float) -> Scores:
    """How much each term says: ln(1 + (N - df + 0.5) / (df + 0.5)), finite and > 0.

    document_frequencies: in how many documents each term is. documents: N, how many there are, >= 0. Both may be
        counts of different moments, so a frequency above N counts as N.
    """
    df = np.minimum(np.asarray(document_frequencies, dtype=np.float64), documents)
    # log1p: at df = N of a large collection, log(1 + x) would be 0.
    return np.log1p((documents - df + 0.5) / (df + 0.5))


def term_weights(terms: Iterable[str], df: Mapping[str, int], documents: float) -> dict[str, float]:
    """What each term of a query weighs: its idf, times how often the query says it.

    terms: the query's, as ``Analysis.terms`` gives them; those of greater weight in the query come repeated.
    df: term -> document frequency; absent is 0. documents: as for ``idf``.

    >>> {term: round(weight, 2) for term, weight in term_weights(["wing", "flow", "flow"], {"flow": 9}, 10).items()}
    {'wing': 3.09, 'flow': 0.29}
    """
    return {
        term: count * log1p((documents - least + 0.5) / (least + 0.5))  # as idf, without an array for five numbers
        for term, count in Counter(terms).items()
        for least in (min(df.get(term, 0), documents),)
    }


def bm25(texts: Sequence[bytes | None], weights: Mapping[str, float], mean_length: float) -> Scores:
    """The score of each text, shape (n,), float64: higher is better, >= 0, 0 where no term occurs.

    texts: stored terms, as ``stored_terms`` lays them out, in UTF-8; None or b"" for a document without.
    weights: from ``term_weights``.
    mean_length: mean number of terms of a text in the collection; where it is not known (0, NaN), the mean of
        the given texts stands in for it.
    The sum of weight * tf / (tf + k1 * (1 - b + b * length / mean_length)), k1 1.2, b 0.75. Several text fields
    are scored by several calls, each with its own frequencies and mean length, and added up, weighted:

    >>> title = bm25([b" wing ", b" flow "], {"flow": 0.5}, mean_length=1)
    >>> body = bm25([b" flow  flow ", None], {"flow": 0.5}, mean_length=2)
    >>> (2.0 * title + body).round(2).tolist()
    [0.31, 0.45]
    """
    found = [text or b"" for text in texts]
    lengths = [text.count(b" ") // 2 for text in found]
    # 1e-9: no ratio of two counts is less, and dividing by less might overflow.
    mean = mean_length if mean_length > 1e-9 else max(sum(lengths) / max(1, len(lengths)), 1.0)
    damping = [K1 * (1 - B + B * length / mean) for length in lengths]
    # A term is looked for in all texts at once, since few hold it: twice as fast as counting it in each. In every text
    # the shares are added up in the order of the terms, so that equal texts tie.
    joined, ends = b"\n".join([b"", *found, b""]), list(accumulate((len(text) + 1 for text in found), initial=1))[1:]
    scores = [0.0] * len(found)
    for term, weight in weights.items():
        for at, tf in _counts(joined, ends, term.encode()).items():
            scores[at] += weight * tf / (tf + damping[at])
    return np.array(scores)


_BLANK = ord(" ")


def _counts(joined: bytes, ends: Sequence[int], term: bytes) -> dict[int, int]:
    """The place of each text that holds a term -> how often.

    joined: the texts, with a byte before and after each; ends: where the next one starts.
    """
    counts: dict[int, int] = {}
    at = joined.find(term)
    while at >= 0:
        end = at + len(term)
        if joined[at - 1] == _BLANK and joined[end] == _BLANK:
            place = bisect_right(ends, at)
            counts[place] = counts.get(place, 0) + 1
        at = joined.find(term, end)
    return counts


# Arbitrary, both: 12 terms make 4,095 sets, looked through in under a millisecond; what 60 sets of ordinary words
# are as a query string is well within the 10,240 bytes that Valkey Search takes.
_MOST_TERMS, _MOST_SETS = 12, 60


def term_sets(df: Mapping[str, int], documents: int, budget: int, share: float = 1.0) -> list[tuple[str, ...]]:
    """Which terms to ask for together, so that few rows hold the documents that BM25 puts first.

    For engines that score no text and return matches in no order: asking for any of the terms returns too much,
    asking for the rarest loses the documents that hold many common ones. The answer is to be read as a union of
    conjunctions: the documents whose terms come to some least sum of idf, the least whose rows fit the budget.

    df: query term -> document frequency; terms with 0 are left out. documents: N, how many there are.
    budget: how many rows the answer may have, >= 1. share: the part of the documents that passes the filter, 0..1.
    Returns at most 60 non-empty sets, none of which contains another, each with its rarest term first; [] if no
    term occurs anywhere. If all terms fit together (60 at most), each is a set of its own. If not even the
    documents that hold all of them fit, that is the one set.
    Rows are an estimate: each further term of a set is expected up to twice as often beside the others as chance
    would have it. The answer may exceed the budget.

    >>> term_sets({"flow": 700, "wing": 200, "slipstream": 10}, documents=1400, budget=200)
    [('slipstream',), ('wing', 'flow')]
    """
    rarest = sorted((term for term, frequency in df.items() if frequency > 0), key=lambda term: (df[term], term))
    rarest = rarest[:_MOST_SETS]
    if sum(df[term] for term in rarest) * share <= budget:
        return [(term,) for term in rarest]

    terms = rarest[:_MOST_TERMS]
    count = max(documents, df[rarest[-1]])  # counts of different moments
    weights = idf([df[term] for term in rarest], count)
    # Place i of each array is the set of those terms whose bits i has. The last term of a set has its least idf, so
    # a set is minimal for a threshold exactly if it reaches it, and without its last term does not.
    total, rows, without_last = np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.intp)
    plan, least_missed = [(1 << len(terms)) - 1], np.inf
    for used, term in enumerate(terms, 1):
        frequency = df[term]
        # Terms of one query come together more often than by chance: twice as often if rare, and less so the more
        # documents have the term anyway.
        together = rows * (frequency / count) * (2 - frequency / count)
        together[0] = frequency * share
        rows = np.concatenate([rows, together])
        without_last = np.concatenate([without_last, np.arange(len(total))])
        total = np.concatenate([total, total + weights[used - 1]])

        # Between two sums nothing changes, so the sums are all the thresholds there are. A set enters above the sum
        # without its last term, and leaves above its own.
        thresholds, at_threshold = np.unique(total, return_inverse=True)
        leaves, enters = at_threshold + 1, at_threshold[without_last] + 1
        places = len(thresholds) + 1
        asked = np.cumsum(np.bincount(enters, rows, places) - np.bincount(leaves, rows, places))[:-1]
        sets = np.cumsum(np.bincount(enters, minlength=places) - np.bincount(leaves, minlength=places))[:-1]
        fits = (asked <= budget) & (sets > 0) & (sets <= _MOST_SETS)
        if not fits.any():
            continue
        # Fewer terms reach a lower threshold, but a document that is missed may have had all the others.
        lowest = int(np.argmax(fits))
        missed = thresholds[lowest] + weights[used:].sum()
        if missed < least_missed:
            plan, least_missed = np.flatnonzero((enters <= lowest) & (lowest < leaves)).tolist(), missed
    chosen = sorted([at for at in range(len(terms)) if mask >> at & 1] for mask in plan)
    return [tuple(terms[at] for at in each) for each in chosen]
