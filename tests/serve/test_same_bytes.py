"""`run` and `serve` give the same bytes, whoever asks, in whichever order, with no answer known."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.serve.forest import PASSAGES, QUESTIONS, minilm, smollm2

import silva as sv

pytestmark = pytest.mark.rest
_COUNT = 100


def requests() -> list[dict[str, Any]]:
    """A hundred different questions."""
    asked = [one["question"] for one in QUESTIONS]
    asked += [f"Please tell me: {question}" for question in asked[: _COUNT - len(asked)]]
    return [{"question": question} for question in asked]


def retrieval(folder: Path) -> sv.Pipeline:
    """Embedding, and a search by it and by words."""
    rows = sv.from_items(PASSAGES).derive(vector=minilm().embed("text"))
    index = rows.to_index(folder / "idx", keyword="text", vector="vector", workers=0)
    asked = sv.requests("question").derive(vector=minilm().embed("question"))
    return asked.derive(hits=index.search("question", by="hybrid", vector="vector", k=3))


def reading(folder: Path) -> sv.Pipeline:
    """A local language model that reads the best passage."""
    best = retrieval(folder).derive(passage=lambda hits: hits[0]["text"].partition(".")[0])
    said = [("system", "Answer briefly."), ("user", "{passage}.\n{question}")]
    return best.derive(answer=smollm2().generate(messages=said, max_tokens=4))


def served(pipeline: sv.Pipeline, rows: list[dict[str, Any]], clients: int) -> dict[str, bytes]:
    """The bytes of the reply to each question, asked by so many clients at once."""
    with pipeline.serve(port=0, deadline=1200.0) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        limits = httpx.Limits(max_connections=clients)
        with (
            httpx.Client(headers=headers, timeout=None, limits=limits) as http,
            ThreadPoolExecutor(clients) as pool,
        ):
            replies = list(pool.map(lambda row: http.post(server.address, json=row), rows))
    assert {reply.status_code for reply in replies} == {200}
    return {row["question"]: reply.content for row, reply in zip(rows, replies, strict=True)}


@pytest.mark.timeout(1800)  # four hundred texts of a language model, on a machine that is busy
@pytest.mark.parametrize("make", [retrieval, reading])
def test_run_and_serve_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    pipeline, rows = make(tmp_path), requests()
    shuffled = random.Random(0).sample(rows, len(rows))

    def begin_anew(name: str) -> None:
        monkeypatch.setenv("SILVA_ANSWERS", str(tmp_path / name))
        assert not (tmp_path / name).exists()

    begin_anew("run")
    encode = msgspec.json.Encoder(enc_hook=lambda array: array.tolist()).encode
    offline = {row["question"]: encode(row) for row in pipeline.run(rows)}
    assert len(offline) == _COUNT
    for name, asked, clients in (("one", rows, 1), ("many", rows, 64), ("shuffled", shuffled, 64)):
        begin_anew(name)
        online = served(pipeline, asked, clients)
        assert online == offline, name
