"""How good a ranking is, per query; and how sure the mean over queries is.

The measures are ir-measures', which are trec_eval's. Rule: every query of the golden set counts, one that failed or
found nothing with the worst value; the ideal gain is made of the judgements, never of what came back; and equal scores
cannot reorder anything, since what is judged is the place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retriever.errors import MissingExtra
from retriever.evaluation.golden import EXTRA, Question

__all__ = ["Interval", "better", "collapsed", "intervals", "is_lower_better", "measured", "names", "signed"]

# Resamples of the bootstrap. Its own chance moves a bound by about a hundredth of the interval's width.
RESAMPLES = 2_000
SEED = 20260101  # the same report from the same answers
_AT_ONCE = 8_000_000  # numbers that one step of the bootstrap holds

MRR, AUTHORITY_RANK, AUTHORITY_FOUND = "MRR", "authority rank", "authority found"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over ``count`` queries and its 95 % bootstrap interval; no bounds where fewer than two queries are."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def is_zero(self) -> bool:
        """Whether no query has anything but 0."""
        return self.mean == 0 and not self.low and not self.high

    def __str__(self) -> str:
        bounds = "" if self.low is None or self.high is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.mean:.3f}{bounds}"


def signed(difference: Interval) -> str:
    """A difference with its sign, and its interval."""
    low, high = difference.low, difference.high
    bounds = "" if low is None or high is None else f" [{low:+.3f}, {high:+.3f}]"
    return f"{difference.mean:+.3f}{bounds}"


def is_lower_better(measure: str) -> bool:
    """Whether less of a measure is better."""
    return measure.startswith("noise") or measure == AUTHORITY_RANK


def better(measure: str, difference: float) -> bool:
    """Whether a difference of a measure is an improvement."""
    return difference < 0 if is_lower_better(measure) else difference > 0


def names(ks: Sequence[int]) -> list[str]:
    """The measures that ``measured`` gives, in order."""
    by_k = [f"{name}@{k}" for name in ("nDCG", "R", "P", "Hit") for k in ks]
    return [*by_k, MRR, AUTHORITY_FOUND, AUTHORITY_RANK, *(f"noise@{k}" for k in ks)]


def collapsed(ids: Sequence[str]) -> list[str]:
    """Each id once, at its first place."""
    return list(dict.fromkeys(ids))


def measured(
    questions: Sequence[Question],
    rankings: Mapping[str, Sequence[str]],
    *,
    ks: Sequence[int],
    window: int,
    failed: Collection[str] = (),
) -> dict[str, dict[str, float]]:
    """Measure -> query id -> value.

    rankings: query id -> document ids, best first; of a repeated one the first place counts. A query that is not there
        found nothing.
    ks: of nDCG@k, R@k, P@k, Hit@k, noise@k. MRR looks at the whole ranking.
    window: of the authority, for queries that name one: ``authority found`` within it (1 or 0) and its rank, where one
        beyond it has window + 1.
    noise@k: the share of the first k places that noise takes, for queries that name some.
    failed: queries that have no answer: 0 for each measure, and the worst of those where less is better.
    """
    ir = _ir_measures()
    answered = {id: collapsed(ids) for id, ids in rankings.items() if id not in failed}

    def calculate(gains: Mapping[str, Mapping[str, int]], wanted: Mapping[str, Any], cut: int | None) -> dict[str, Any]:
        queries = list(gains)
        numbers: dict[str, str] = {}  # of the document ids

        def numbered(id: str) -> str:
            # trec_eval's C crashes at an id with a lone surrogate, and takes two that differ after a NUL for one.
            return numbers.setdefault(id, str(len(numbers)))

        judged = [
            ir.Qrel(str(at), numbered(id), gain)
            for at, query in enumerate(queries)
            for id, gain in gains[query].items()
        ]
        # trec_eval sorts by score, and equal scores by id: scores that say the place keep the order.
        run = [
            ir.ScoredDoc(str(at), numbered(id), -float(place))
            for at, query in enumerate(queries)
            for place, id in enumerate(answered.get(query, ())[:cut])
        ]
        found = {name: dict.fromkeys(gains, 0.0) for name in wanted}
        by_measure = {measure: name for name, measure in wanted.items()}
        if run:
            for each in ir.iter_calc(list(by_measure), judged, run):
                found[by_measure[each.measure]][queries[int(each.query_id)]] = float(each.value)
        return found

    kinds = {"nDCG": ir.nDCG, "R": ir.R, "P": ir.P, "Hit": ir.Success}
    wanted = {f"{name}@{k}": kind @ k for name, kind in kinds.items() for k in ks} | {MRR: ir.RR}
    values = calculate({each.id: each.relevant for each in questions}, wanted, None)

    authorities = {each.id: {each.authority: 1} for each in questions if each.authority is not None}
    if authorities:
        places = calculate(authorities, {"place": ir.RR}, window)["place"]
        values[AUTHORITY_FOUND] = {id: float(share > 0) for id, share in places.items()}
        values[AUTHORITY_RANK] = {id: round(1 / share) if share else window + 1.0 for id, share in places.items()}
    noises = {each.id: dict.fromkeys(each.noise, 1) for each in questions if each.noise}
    if noises:
        shares = calculate(noises, {f"noise@{k}": ir.P @ k for k in ks}, None)
        values |= {
            name: {id: 1.0 if id in failed else share for id, share in each.items()} for name, each in shares.items()
        }
    return {name: values[name] for name in names(ks) if name in values}


def intervals(samples: Sequence[Sequence[float]]) -> list[Interval]:
    """The mean of each sample with its interval, by the percentile bootstrap.

    Samples of one length are resampled alike, query by query, so that those of two arms stay paired.
    Source: Sakai, SIGIR 2006, doi 10.1145/1148170.1148261; scipy.stats.bootstrap.
    """
    found: dict[int, Interval] = {}
    by_length: dict[int, list[int]] = {}
    for at, sample in enumerate(samples):
        by_length.setdefault(len(sample), []).append(at)
    for count, places in by_length.items():
        matrix = np.array([samples[at] for at in places], dtype=np.float64).reshape(len(places), count)
        if count < 2:
            for at, row in zip(places, matrix, strict=True):
                found[at] = Interval(float(row.mean()) if count else 0.0, None, None, count)
            continue
        # All rows together are one multivariate sample, of which scipy draws the same queries for every row.
        step = max(1, _AT_ONCE // matrix.size)
        result = _stats().bootstrap(
            (matrix,), np.mean, axis=-1, n_resamples=RESAMPLES, batch=step, method="percentile", rng=SEED
        )
        low, high = (np.atleast_1d(bound) for bound in result.confidence_interval)
        for at, row, least, most in zip(places, matrix, low, high, strict=True):
            found[at] = Interval(float(row.mean()), float(least), float(most), count)
    return [found[at] for at in range(len(samples))]


def _ir_measures() -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtra(f"evaluation needs ir-measures ({error}); {EXTRA}") from error
    return ir_measures


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise MissingExtra(f"evaluation needs scipy ({error}); {EXTRA}") from error
    return stats
