"""Cross-encoders: a score depends on its pair alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torchvision_here

import silva as sv
from silva.serve.models.encoders.cross_encoder import CrossEncoder

WORDS = ["moon", "red", "river", "landed", "on", "the", "in", "mars"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights."""
    torchvision_here.load()  # transformers imports it
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForSequenceClassification

    made = tmp_path_factory.mktemp("cross")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(made)
    words = {word: n for n, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer.save(str(made / "tokenizer.json"))
    return made


def pairs(count: int) -> list[tuple[str, str]]:
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 20))) for _ in range(2 * count)]
    return list(zip(texts[:count], texts[count:], strict=True))


@pytest.mark.rest
def test_a_score_is_bit_identical_whatever_its_batch(folder: Path) -> None:
    model = CrossEncoder(str(folder)).open()
    asked = pairs(40)
    alone = [model.score([pair])[0] for pair in asked]
    assert model.score(asked) == alone
    assert len(set(alone)) > 20
    assert all(isinstance(one, float) and 0 < one < 1 for one in alone)


@pytest.mark.rest
def test_hits_are_ranked_by_their_scores(folder: Path) -> None:
    model = CrossEncoder(str(folder))
    texts = ["red moon", "river in mars", "landed on the moon"]
    hits = [{"id": n, "score": 0.0, "text": text} for n, text in enumerate(texts)]
    rows = sv.from_items([{"q": "moon", "hits": hits}])
    (row,) = rows.derive(hits=sv.rerank("q", "hits", by=model))
    scores = model.open().score([("moon", text) for text in texts])
    assert [hit["score"] for hit in row["hits"]] == sorted(scores, reverse=True)  # type: ignore[type-var]


@pytest.mark.rest
def test_long_passages_are_cut_and_long_questions_fail(folder: Path) -> None:
    model = CrossEncoder(str(folder), max_tokens=16).open()
    long = "moon " * 40
    cut, failed = model.score([("moon", long), (long, "moon")])
    assert isinstance(cut, float)
    assert isinstance(failed, Exception)


def test_a_head_of_several_numbers_is_refused(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "no", "1": "yes"}}))
    with pytest.raises(sv.SilvaError, match="a head of 2 numbers"):
        CrossEncoder(str(tmp_path)).open()
