"""Approximate search: the recall that was promised is there for queries nobody has seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import silva as sv
from silva.serve.index import graph
from silva.serve.index.vectors import unit


def clusters(rng: np.random.Generator, centres: np.ndarray, count: int) -> np.ndarray:
    """Vectors around some centres."""
    dims = centres.shape[1]
    chosen = centres[rng.integers(len(centres), size=count)]
    made: np.ndarray = (chosen + rng.normal(size=(count, dims))).astype(np.float32)
    return made


@pytest.mark.rest
@pytest.mark.parametrize(
    ("dims", "rows", "floor"), [(8, 3000, 0.97), (48, 2000, 0.95), (160, 1500, 0.9)]
)
def test_recall_is_at_least_its_floor(tmp_path: Path, dims: int, rows: int, floor: float) -> None:
    rng = np.random.default_rng(dims)
    centres = rng.normal(size=(20, dims))
    passages = sv.from_columns({"v": clusters(rng, centres, rows)})
    exact = passages.to_index(tmp_path / "exact", vector="v")
    near = passages.to_index(tmp_path / "near", vector="v", recall=floor)
    assert near.recall is not None
    assert near.recall >= floor
    asked = sv.from_columns({"q": clusters(rng, centres, 300)})
    hits = asked.derive(
        true=exact.search(by="vector", vector="q", k=10),
        found=near.search(by="vector", vector="q", k=10),
    )
    shares = []
    for row in hits:
        true = {hit["id"]: hit["score"] for hit in row["true"]}
        shares.append(len({hit["id"] for hit in row["found"]} & true.keys()) / 10)
        for hit in row["found"]:
            assert true.get(hit["id"], hit["score"]) == hit["score"]  # scored exactly
    assert np.mean(shares) >= floor


def test_a_floor_that_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    passages = sv.from_columns({"v": rng.normal(size=(60, 4)).astype(np.float32)})
    with pytest.raises(sv.SilvaError, match=r"below recall=0\.99"):
        passages.to_index(tmp_path / "i", vector="v", recall=0.99)


def test_the_bound_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    for truth in (0.9, 0.97):
        means = rng.binomial(200, truth, size=400) / 200
        broken = sum(graph.lower_bound(float(mean), 200, 0.05) > truth for mean in means)
        assert broken <= 0.05 * 400


def test_the_same_vectors_give_the_same_graph() -> None:
    vectors = unit(np.random.default_rng(0).normal(size=(200, 8)))
    assert graph.build(vectors, 0.5)[0] == graph.build(vectors, 0.5)[0]


def test_a_search_with_a_filter_or_a_larger_k_is_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 8)).astype(np.float32)
    rows = sv.from_columns({"v": vectors, "x": range(300)})
    exact = rows.to_index(tmp_path / "a", vector="v")
    near = rows.to_index(tmp_path / "b", vector="v", recall=0.5)
    asked = sv.from_columns({"q": vectors[:5]})
    for more in ({"k": 40}, {"k": 5, "where": sv.col("x") % 2 == 0}):
        found = [
            [row["hits"] for row in asked.derive(hits=i.search(by="vector", vector="q", **more))]
            for i in (exact, near)
        ]
        assert found[0] == found[1]
