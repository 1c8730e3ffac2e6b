"""Looking for alpha, RRF weights and depth, on queries that the result is not reported on.

Which half a query is in follows from its text alone: a golden set that grows moves no query to the other side, and
what was tuned on stays tuned on. Candidates are fused here, from both channels' rankings, which are asked for once;
what was chosen is really asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fields.errors import InvalidInput
from retriever.evaluation.arms import Channel, Target, channel_arm, fetched, linear_of, why
from retriever.evaluation.golden import Question
from retriever.evaluation.measures import collapsed, intervals, measured
from retriever.evaluation.report import Tuned, Tuning
from retriever.fusion import Fusion, Linear, Rrf, fuse
from retriever.queries import MAX_K

__all__ = ["TUNABLE", "check_tunable", "is_train", "settings", "tune"]

ALPHAS = tuple(at / 10 for at in range(11))
WEIGHTS = ((4.0, 1.0), (2.0, 1.0), (1.0, 2.0), (1.0, 4.0))  # vector : text, beside 1 : 1
TUNABLE = ("linear", "rrf")
LEAST = 2  # queries in each half: an interval needs two


@dataclass(frozen=True, slots=True)
class Setting:
    """A fusion and its depth; None is the library's own."""

    fusion: Fusion
    depth: int | None

    def __str__(self) -> str:
        return f"{_parameters(self.fusion)}, depth {'as it is' if self.depth is None else self.depth}"


def is_train(query: str) -> bool:
    """Whether a query is one of those that parameters are chosen on: half of all texts, whatever the golden set."""
    digest = hashlib.blake2b(" ".join(query.split()).encode(errors="surrogatepass"), digest_size=1).digest()
    return digest[0] < 128


def settings(own: Linear, depths: Sequence[int | None]) -> dict[str, list[Setting]]:
    """What is tried, by the fusion's name; the default is the first, and wins a tie."""
    alphas = [own, *(Linear(alpha) for alpha in ALPHAS if alpha != own.alpha)]
    weights = [Rrf(), *(Rrf(weights={"vector": vector, "text": text}) for vector, text in WEIGHTS)]
    return {
        "linear": [Setting(fusion, depth) for depth in depths for fusion in alphas],
        "rrf": [Setting(fusion, depth) for depth in depths for fusion in weights],
    }


def check_tunable(target: Target, questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """The train and the held-out split. InvalidInput where a half has fewer than two, or there is nothing to fuse."""
    if not (target.has_words and target.has_vectors):
        raise InvalidInput(f"tune: {target.name} has one channel, and nothing to fuse")
    train = [each for each in questions if is_train(each.query)]
    held_out = [each for each in questions if not is_train(each.query)]
    if min(len(train), len(held_out)) < LEAST:
        raise InvalidInput(
            f"tune: {len(train)} queries to choose on and {len(held_out)} to report on; more golden queries are needed"
        )
    return train, held_out


def tune(
    target: Target, questions: Sequence[Question], wanted: int, k: int, fusions: Sequence[str] = TUNABLE
) -> tuple[Tuning, list[str]]:
    """The settings that do best on the train split, by nDCG@k, and what they do on the held-out split; and notes.

    A query that fails counts 0, as does one of which a channel fails.
    """
    failed: list[str] = []
    train, held_out = check_tunable(target, questions)
    results = fetched(target, wanted)
    usual = min(MAX_K, max(50, 4 * results))  # what retrieve takes unless told
    deepest = min(MAX_K, 2 * usual)
    depths = {None: usual, max(results, usual // 2): max(results, usual // 2), deepest: deepest}
    channels = {question.id: _channels(target, question, deepest, failed) for question in train}
    measure = f"nDCG@{k}"
    tuned = []
    every = settings(linear_of(target), list(depths))
    tried = {name: every[name] for name in TUNABLE if name in fusions}
    for name, candidates in tried.items():
        means = [_mean(each, depths[each.depth], channels, train, results, k) for each in candidates]
        best = max(range(len(means)), key=means.__getitem__)
        default, chosen = candidates[0], candidates[best]
        before, after = (_held_out(target, each, held_out, wanted, k, failed) for each in (default, chosen))
        moved = [after[id] - before[id] for id in before]
        of_default, of_chosen, difference = intervals([list(before.values()), list(after.values()), moved])
        tuned.append(Tuned(name, str(default), str(chosen), means[0], means[best], of_default, of_chosen, difference))
    notes = [f"tuning: {len(failed)} searches failed and count 0; the first: {failed[0]}"] if failed else []
    found = Tuning(
        measure,
        tuple(each.id for each in train),
        tuple(each.id for each in held_out),
        sum(map(len, tried.values())),
        tuple(tuned),
    )
    return found, notes


def _channels(target: Target, question: Question, depth: int, failed: list[str]) -> dict[str, Channel]:
    """Both channels' rankings; both empty where one fails, for the other alone is no fusion."""
    empty = Channel((), {})
    try:
        return {
            "vector": target.channel(question, "vector", depth),
            "text": target.channel(question, "text", depth) if target.words(question) else empty,
        }
    except Exception as error:
        failed.append(why(error))
        return {"vector": empty, "text": empty}


def _mean(
    setting: Setting,
    depth: int,
    channels: Mapping[str, Mapping[str, Channel]],
    questions: Sequence[Question],
    results: int,
    k: int,
) -> float:
    rankings = {}
    for question in questions:
        both = channels[question.id]
        documents = {**both["text"].documents, **both["vector"].documents}
        fused = fuse(setting.fusion, both["vector"].ranking[:depth], both["text"].ranking[:depth], results)
        rankings[question.id] = collapsed([documents[each.id] for each in fused])
    values = measured(questions, rankings, ks=(k,), window=1)[f"nDCG@{k}"]
    return sum(values.values()) / len(values)


def _held_out(
    target: Target, setting: Setting, questions: Sequence[Question], wanted: int, k: int, failed: list[str]
) -> Mapping[str, float]:
    """nDCG@k of each held-out query, really asked."""
    arm = channel_arm(target, "tuned", setting.fusion, depth=setting.depth)
    rankings: dict[str, Sequence[str]] = {}
    for question in questions:
        try:
            rankings[question.id] = arm.ask(question, wanted).ids
        except Exception as error:  # counts 0
            failed.append(why(error))
    return measured(questions, rankings, ks=(k,), window=1)[f"nDCG@{k}"]


def _parameters(fusion: Fusion) -> str:
    if isinstance(fusion, Linear):
        return f"alpha {fusion.alpha:g}"
    assert isinstance(fusion, Rrf)
    weights = fusion.weights or {"vector": 1.0, "text": 1.0}
    return f"weights {weights['vector']:g} : {weights['text']:g}"
