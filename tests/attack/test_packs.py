"""Rows that cannot be packed, measured or masked, and the keys of rows that fail beside others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.testing import cut_blocks

ROWS = sv.from_columns({"x": range(12)})

UNPACKABLE: dict[str, Any] = {
    "text": "abc",
    "words": ["a"],
    "bytes": b"abc",
    "nested": [[2]],
    "nested and empty": [[]],
    "ragged": [[1], [2, 3]],
    "two dimensions": np.ones((2, 2), np.int64),
    "None": None,
    "an item that is None": [1, None],
    "a missing item": np.ma.array([1, 2], mask=[False, True]),
    "a number": 5,
    "a dict": {"a": 1},
    "objects": [object()],
    "beyond any integer": [2**70],
    "beyond int64": [2**63],
    "beyond int64, and negative": [2**63, -1],
    "rounded within the row": [2**53 + 1, 0.5],
}


@pytest.mark.attacks("Never hangs, never shortens an epoch, never drops a row silently")
@pytest.mark.parametrize("policy", ["raise", sv.Skip()], ids=["raise", "skip"])
@pytest.mark.parametrize("what", UNPACKABLE)
def test_pack_names_the_row_that_it_cannot_hold(what: str, policy: Any) -> None:
    odd = UNPACKABLE[what]
    packed = ROWS.derive(t=sv.impure(lambda x: odd if x == 7 else [x])).pack("t", 4)
    with (
        packed.loader(backend="inline", on_error=policy) as loader,
        pytest.raises(sv.ColumnError, match=r"row 0:7 of column 't'"),
    ):
        list(loader)


@pytest.mark.attacks("Exact unless asked")
def test_pack_does_not_round_whole_numbers_because_of_other_rows() -> None:
    def packed(large: int) -> list[Any]:
        rows = ROWS.derive(t=sv.impure(lambda x: [large] if x == 7 else [0.5]))
        return rows.pack("t", 12).head(1)[0]["t"].tolist()

    assert packed(2**53)[7] == 2**53
    with pytest.raises(sv.ColumnError, match=r"row 0:7 of column 't'"):
        packed(2**53 + 1)


@pytest.mark.attacks("Exact unless asked")
def test_pack_refuses_a_pad_that_its_column_does_not_hold() -> None:
    rows = ROWS.derive(t=sv.impure(lambda x: np.array([x], np.uint8)))
    for pad in (-1, 300, 2**70):
        with pytest.raises(sv.ColumnError, match="column 't'"):
            rows.pack("t", 5, pad=pad).head(1)


@pytest.mark.attacks("Exact unless asked")
def test_columns_that_silva_adds_do_not_overwrite_those_of_the_rows() -> None:
    rows = ROWS.derive(segment_ids=lambda x: [x], positions=lambda x: [x], mask=lambda x: x)
    for name in ("segment_ids", "positions"):
        with pytest.raises(sv.PlanError, match=f"rename\\({name}=…\\)"):
            rows.pack(name, 4)
    with pytest.raises(sv.PlanError, match=r"rename\(mask=…\)"):
        rows.batch(5).loader(eval=True)
    renamed = rows.select("mask").rename(mask="own").batch(5)
    last = list(renamed.loader(eval=True, backend="inline"))[-1]
    assert last["mask"].tolist() == [True, True, False, False, False]
    assert [len(b["mask"]) for b in rows.batch(5).loader(backend="inline")] == [5, 5, 2]


@pytest.mark.attacks("One stream")
@pytest.mark.parametrize("odd", [None, 5.5, {}, np.ones((2, 2))], ids=repr)
@pytest.mark.parametrize("verb", ["bucket", "tokens"])
def test_a_row_without_a_length_is_named_after_the_same_batches(verb: str, odd: Any) -> None:
    rows = ROWS.derive(q=sv.impure(lambda x: odd if x == 9 else [x] * (x % 3)))
    cut = rows.bucket("q", {0: 2, 9: 3}) if verb == "bucket" else rows.batch(tokens=4, by="q")
    given = []
    for size in (1, 2, 1000):
        found: list[Any] = []
        loader = cut_blocks(cut.loader(backend="inline"), (size,))
        with pytest.raises(sv.ColumnError, match=r"row 0:9 of column 'q'"):
            found.extend(batch["x"].tolist() for batch in loader)
        given.append(found)
    assert given[0] == given[1] == given[2] != []


@pytest.mark.attacks("One stream")
@pytest.mark.parametrize("backend", ["inline", "threads"])
@pytest.mark.parametrize("verb", ["mix", "concat"])
def test_the_key_of_a_row_does_not_depend_on_exploded_neighbours(verb: str, backend: str) -> None:
    def fails(x: int) -> int:
        if x % 7 == 1:
            raise ValueError(x)
        return x

    plain = sv.from_columns({"x": range(30)})
    parts = sv.from_columns({"x": range(100, 110)}).derive(x=lambda x: [x] * 3).explode("x")
    both = [plain, parts]
    rows = sv.mix(both, {0: [1, 0], 9: [1, 1]}) if verb == "mix" else sv.concat(both)
    rows = rows.derive(x=sv.impure(fails), reads="x")
    with rows.loader(backend=backend, workers=2, on_error=sv.Skip()) as loader:
        list(loader)
        keys = [failure.key for failure in loader.failures]
    assert [key for key in keys if key.startswith("0:")] == ["0:1", "0:8", "0:15", "0:22", "0:29"]
    assert [key for key in keys if key.startswith("1:")] == ["1:6:1", "1:6:2", "1:6:3"]
    for key in keys:
        with pytest.raises(ValueError, match="1"):
            rows.row(key)
