"""Grouped columns as torch, jax and Arrow see them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import silva as sv

HIST = [[1, 2], [1, 2], [3], [1, 2], [], [3]]
PAIRS = [[i // 2, 7] for i in range(6)]


def log(**more: Any) -> sv.Pipeline:
    rows = sv.from_columns({"hist": HIST, "pair": np.array(PAIRS), "x": range(6)})
    return rows.batch(6, grouped=("hist", "pair"), **more)


def rows_of(value: Any) -> list[list[int]]:
    return [row.tolist() for row in value]


def test_torch_gets_tensors_and_one_index_for_a_group() -> None:
    torch = pytest.importorskip("torch")
    (batch,) = log().loader(workers=0).to_torch()
    hist, pair = batch["hist"], batch["pair"]
    assert isinstance(hist, sv.Grouped)
    assert all(isinstance(t, torch.Tensor) for t in (hist.values, hist.offsets, hist.inverse))
    assert hist.inverse is pair.inverse
    assert hist.inverse.tolist() == [0, 0, 1, 2, 3, 4]
    assert rows_of(hist.expand()) == HIST
    assert pair.expand().tolist() == PAIRS


def test_torch_gets_a_grouped_batch_of_nothing_but_empty_lists() -> None:
    pytest.importorskip("torch")
    rows = sv.from_columns({"hist": [[], []]}).derive(hist=lambda hist: np.array(hist, np.int64))
    (batch,) = rows.batch(2, grouped="hist").loader(workers=0).to_torch()
    assert [len(row) for row in batch["hist"].expand()] == [0, 0]


def test_a_device_is_where_all_of_it_goes() -> None:
    torch = pytest.importorskip("torch")
    (batch,) = log(pad=0).loader(workers=0).to_torch(device="meta")
    assert batch["hist"].values.device == batch["hist"].inverse.device == torch.device("meta")
    assert batch["hist"].offsets is None


def test_tensors_of_a_batch_by_hand() -> None:
    torch = pytest.importorskip("torch")
    hist = log().head(1)[0]["hist"].to_torch()
    assert torch.equal(hist.values, torch.tensor([1, 2, 3, 1, 2, 3]))
    words = sv.from_columns({"w": ["a", "a"]}).batch(2, grouped="w").head(1)[0]["w"]
    with pytest.raises(sv.ColumnError, match="cannot be tensors"):
        words.to_torch()


def test_jax_gets_arrays() -> None:
    jax = pytest.importorskip("jax")
    (batch,) = log().loader(workers=0).to_jax()
    assert isinstance(batch["hist"].inverse, jax.Array)
    assert rows_of(batch["hist"].expand()) == HIST
    assert batch["pair"].expand().tolist() == PAIRS


def test_arrow_gets_the_rows() -> None:
    table = log().loader(workers=0).to_arrow().read_all()
    assert table.column("hist").to_pylist() == HIST
    assert table.column("pair").to_pylist() == PAIRS


def test_nested_lists_and_text_expand() -> None:
    nested = [[[1], [2, 3]], [[1], [2, 3]], []]
    rows = sv.from_columns({"n": nested, "w": ["a", "a", "b"]}).batch(3, grouped=("n", "w"))
    batch = rows.head(1)[0]
    assert [[x.tolist() for x in row] for row in batch["n"].expand()] == nested
    assert batch["w"].expand().tolist() == ["a", "a", "b"]
    (text,) = rows.loader(workers=0).to_torch()
    assert text["w"].expand() == ["a", "a", "b"]


def test_torchrec_pools_distinct_rows_and_gives_every_row_its_result() -> None:
    torch = pytest.importorskip("torch")
    torchrec = pytest.importorskip("torchrec")
    rows = sv.from_columns({"hist": HIST, "tags": [[5], [5], [6], [5], [6], [6]]})
    (batch,) = rows.batch(6, grouped=[("hist",), ("tags",)]).loader(workers=0).to_torch()
    jagged = batch["hist"].to_kjt("hist", {"tags": batch["tags"]})
    assert jagged.stride() == 6
    assert jagged.inverse_indices()[1].tolist() == [[0, 0, 1, 0, 2, 1], [0, 0, 1, 0, 1, 1]]
    tables = [
        torchrec.EmbeddingBagConfig(
            name=name, embedding_dim=4, num_embeddings=10, feature_names=[name]
        )
        for name in ("hist", "tags")
    ]
    bags = torchrec.EmbeddingBagCollection(tables=tables)
    pooled = bags(jagged).to_dict()
    for name in ("hist", "tags"):
        weight = bags.embedding_bags[name].weight
        expected = torch.stack([weight[row].sum(0) for row in batch[name].expand()])
        torch.testing.assert_close(pooled[name], expected)


def test_only_lists_of_numbers_become_jagged() -> None:
    pytest.importorskip("torchrec")
    with pytest.raises(sv.ColumnError, match="lists of numbers"):
        log().head(1)[0]["pair"].to_kjt("pair")


def test_a_jagged_tensor_holds_columns_of_one_batch_and_one_type() -> None:
    pytest.importorskip("torchrec")

    def grouped(rows: list[list[float]]) -> sv.Grouped:
        (batch,) = sv.from_columns({"x": rows}).batch(9, grouped="x").loader(workers=0).to_torch()
        return batch["x"]

    ids = grouped([[1 << 60], [1 << 60]])
    with pytest.raises(sv.ColumnError, match=r"of one batch, not \{'a': 2, 'b': 1\} rows"):
        ids.to_kjt("a", {"b": grouped([[1]])})
    with pytest.raises(sv.ColumnError, match="floats or ids, not both: 'b' and 'a'"):
        ids.to_kjt("a", {"b": grouped([[0.5], [0.5]])})
    jagged = ids.to_kjt("a", {"b": grouped([[], []])})
    assert jagged.values().tolist() == [1 << 60], "no items have any type"
    assert jagged.lengths().tolist() == [1, 0]
