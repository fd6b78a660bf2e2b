"""`python -m benchmarks.cascade --data FILE`: what a calibrated cascade saves, and whether it keeps
its promise.

FILE is in the format of SQuAD, such as `xquad.en.json` of XQuAD. The large retriever is MiniLM and
BM25 together; the small one is BM25, and with `--static WEIGHTS TOKENIZER` (the two files of the
package wordllama) a table of token vectors. The small one is as sure as its first score lies above
its second one. In each of 200 draws, 400 questions are drawn with replacement and calibrate the
threshold; the exact risk on all questions says whether the promise is broken. It may be in a share
`delta` of the draws.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import silva as sv
from benchmarks.retrieval import minilm, read
from silva.serve.models.encoders.embedding import Embedding, StaticEmbedding
from silva.serve.models.model import Model

EPSILON = 0.02
DELTA = 0.1
DRAWS = 200
ROWS = 400
"""Questions of a draw."""


@dataclass(frozen=True)
class Found:
    """What one retriever found for each question."""

    right: np.ndarray
    """Whether the right passage was first."""
    sure: np.ndarray
    """How far the first score lies above the second."""


@dataclass(frozen=True)
class Kept:
    """What calibrated cascades saved and lost."""

    broken: float
    """The share of the draws in which more than epsilon is lost on all questions."""
    avoided: float
    """The median share of the large retriever's calls that is avoided on all questions."""
    without: float
    """What is lost without a cascade, if the small one answers everything."""

    @property
    def allowed(self) -> float:
        """The share of broken draws that is not worse than promised, within two standard errors."""
        return float(DELTA + 2 * np.sqrt(DELTA * (1 - DELTA) / DRAWS))


def search(questions: list[str], gold: list[int], index: sv.Index, by: str) -> Found:
    asked = sv.from_columns({"question": questions})
    hits = asked.derive(hits=index.search("question", by=by, k=2))  # type: ignore[arg-type]
    with hits.loader(workers=0) as loader:
        found = [row["hits"] for row in loader]
    right = [bool(one) and one[0]["id"] == g for one, g in zip(found, gold, strict=True)]
    return Found(np.array(right), np.array([margin(one) for one in found]))


def margin(hits: list[dict[str, float]]) -> float:
    """The share by which the first score lies above the second; a lone hit is sure."""
    if not hits:
        return float("nan")
    return 1 - hits[1]["score"] / hits[0]["score"] if len(hits) > 1 else 1.0


def judge(small: Found, large: Found) -> Kept:
    """Calibrates the cascade of two retrievers on draws, and judges it on all questions."""
    lost = (large.right & ~small.right).astype(float)
    rng, broken, avoided = np.random.default_rng(0), 0, []
    for _ in range(DRAWS):
        some = rng.integers(0, len(lost), ROWS)
        found = sv.calibrate(small.sure[some], lost[some], epsilon=EPSILON, delta=DELTA)
        kept = small.sure >= (np.inf if found.threshold is None else found.threshold)
        avoided.append(kept.mean())
        broken += np.where(kept, lost, 0.0).mean() > EPSILON
    return Kept(broken / DRAWS, float(np.median(avoided)), float(lost.mean()))


def measure(data: Path, model: Model, static: Model | None) -> dict[str, Kept]:
    """What each small retriever saves."""
    passages, questions, gold = read(data)
    rows = sv.from_columns({"text": passages})
    with tempfile.TemporaryDirectory() as folder:
        made = rows.derive(vector=model.embed("text"))
        both = made.to_index(f"{folder}/both", keyword="text", vector="vector", workers=0)
        large = search(questions, gold, both, "hybrid")
        small = {"BM25": search(questions, gold, both, "keyword")}
        if static is not None:
            made = rows.derive(vector=static.embed("text"))
            table = made.to_index(f"{folder}/static", vector="vector", workers=0)
            small["static"] = search(questions, gold, table, "vector")
    return {name: judge(found, large) for name, found in small.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cascade")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", help="a folder in the layout of sentence-transformers")
    parser.add_argument("--static", nargs=2, metavar=("WEIGHTS", "TOKENIZER"))
    given = parser.parse_args()
    static = StaticEmbedding(*given.static) if given.static else None
    found = measure(given.data, Embedding(given.model or minilm()), static)
    print(f"epsilon {EPSILON}, delta {DELTA}, {DRAWS} draws of {ROWS} questions")
    for name, kept in found.items():
        print(
            f"{name:8} → MiniLM + BM25  calls avoided {kept.avoided:.0%}  broken {kept.broken:.3f} "
            f"(allowed {kept.allowed:.3f})  alone it loses {kept.without:.3f}"
        )


if __name__ == "__main__":
    main()
