"""Functions do not change their inputs, and what is handed out shares nothing changeable."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.testing import cut_blocks

ROWS = [{"x": i, "tokens": [i] * (i + 1), "info": {"n": i}} for i in range(6)]


def items() -> sv.Pipeline:
    return sv.from_items(
        [{**row, "tokens": [*row["tokens"]], "info": {**row["info"]}} for row in ROWS]
    )


def append(tokens):
    tokens.append(99)
    return tokens


def append_in_row(row):
    row["tokens"].append(99)
    return row


@sv.batched
def set_all(info):
    for one in info:
        one["n"] = 0
    return np.arange(len(info))


def set_after_batch(info):
    info[0]["n"] = 7
    return len(info)


def collate(rows):
    return {"n": [row["tokens"].pop() for row in rows]}


CHANGING = {
    "derive": items().derive(y=append).batch(3),
    "filter": items().filter(append).batch(3),
    "map_rows": items().map_rows(append_in_row, into=["tokens"]).batch(3),
    "batched": items().derive(y=set_all).batch(3),
    "batched filter": items().filter(set_all).batch(3),
    "after batch": items().batch(3).derive(y=set_after_batch),
    "collate": items().batch(3, collate=collate),
}


@pytest.mark.parametrize("policy", ["raise", sv.Skip(), sv.Substitute(None)])
@pytest.mark.parametrize("step", CHANGING)
def test_a_function_that_changes_its_input_is_refused_with_its_place_and_the_cure(step, policy):
    with (
        pytest.raises(
            sv.ColumnError,
            match=r"test_changed_inputs\.py:\d+\) changes its input '\w+'.*@sv\.owns",
        ),
        CHANGING[step].loader(backend="inline", on_error=policy) as loader,
    ):
        list(loader)


def test_a_function_is_checked_again_now_and_then():
    seen = []

    def late(tokens):
        seen.append(len(tokens))
        if len(seen) == 128:
            tokens.append(1)

    pipeline = sv.from_items([{"tokens": [i]} for i in range(200)]).derive(y=late).batch(1)
    with pytest.raises(sv.ColumnError, match="changes its input"):
        list(cut_blocks(pipeline.loader(backend="inline"), [1]))
    assert len(seen) == 128


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, [2]], lambda v: v[1].append(3)),
        ({"a": np.zeros(3)}, lambda v: v["a"].fill(1)),
        ({1, 2}, lambda v: v.add(3)),
        (bytearray(b"ab"), lambda v: v.extend(b"c")),
        (Point(1), lambda v: setattr(v, "x", 2)),
        ([1], lambda v: v.__setitem__(0, 1.0)),
        (([1], 2), lambda v: v[0].clear()),
    ],
    ids=["nested", "dict", "set", "bytes", "object", "equal", "tuple"],
)
def test_any_container_may_be_changed_where_it_is_owned_and_only_there(value, change):
    def changing(v):
        change(v)

    def owning(v):
        change(v)
        return repr(v)

    given = repr(value)
    rows = sv.from_items([{"v": value}, {"v": value}])
    with pytest.raises(sv.ColumnError, match="'v'"):
        list(rows.derive(y=changing))
    first, second = rows.derive(y=sv.owns("v")(owning))
    assert first["y"] == second["y"] != given
    assert repr(first["v"]) == repr(value) == given


@pytest.mark.parametrize(
    "value", [float("nan"), [float("nan")], np.array([np.nan]), object(), [object()]]
)
def test_a_function_that_only_reads_passes_whatever_it_reads(value):
    rows = sv.from_items([{"v": value}, {"v": value}])
    assert len(list(rows.derive(y=lambda v: 1, z=sv.batched(lambda v: np.ones(len(v)))))) == 2


def test_a_read_only_error_names_the_cure():
    def add(v):
        v += 1

    with pytest.raises(sv.RowError, match=r"@sv\.owns"):
        list(sv.from_columns({"v": np.zeros((3, 2))}).derive(y=add))


def test_the_dict_of_map_rows_may_be_changed_also_where_a_row_fails():
    def pop(row):
        x = row.pop("x")
        if x == 3:
            raise ValueError
        return {"y": x}

    loader = (
        items().map_rows(pop, into=["y"]).batch(10).loader(backend="inline", on_error=sv.Skip())
    )
    assert [b["y"].tolist() for b in loader] == [[0, 1, 2, 4, 5]]


def change(value: Any) -> None:
    for one in value:
        one["n"] += 100


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_what_is_handed_out_shares_nothing_with_a_source_or_another_row(backend):
    sides = {"x": list(range(6)), "info": [{"n": 1}] * 6}
    pipelines = {
        "items": items(),
        "columns": sv.from_columns({"info": [{"n": i} for i in range(6)]}),
        "torch": sv.from_torch([{"info": {"n": i}} for i in range(6)]),
        "explode": items().explode("tokens"),
        "join": sv.from_columns({"x": [0, 0, 1, 1]}).join(sides, on="x"),
        "cache": items().cache(),
    }
    for name, pipeline in pipelines.items():
        with pipeline.select("info").batch(2).loader(backend=backend, workers=1) as loader:
            epochs = []
            for _ in range(3):
                epochs.append([])
                for batch in loader:
                    epochs[-1].append([one["n"] for one in batch["info"]])
                    change(batch["info"])
        assert epochs[0] == epochs[1] == epochs[2], name
        assert max(map(max, epochs[0])) < 100, name


def test_batches_are_writable_also_where_they_hold_arrays_or_a_function_returned_its_input():
    held = [np.zeros(2), None, np.zeros(3)]
    ragged = sv.from_items([{"v": v} for v in held]).batch(3)
    same = sv.from_columns({"x": np.arange(4)}).batch(4).derive(y=lambda x: x)
    whole = sv.from_columns({"x": np.arange(4)}).batch(4).map_rows(lambda row: row, into=["x"])
    for batch in ragged:
        batch["v"][0][:] = 5
    for batch in same:
        batch["y"] += 1
        assert batch["x"].tolist() == [0, 1, 2, 3]
    for batch in whole:
        batch["x"] += 1
    assert held[0].tolist() == [0, 0]


def test_the_callers_own_arrays_stay_writable():
    values, offsets, plain = np.arange(3), np.array([0, 1, 3]), np.arange(2)
    masked = np.ma.masked_array([1, 2])
    rows = {"r": sv.Ragged(values, offsets), "p": plain, "m": masked}
    assert len(list(sv.from_columns(rows))) == 2
    for array in (values, offsets, plain, masked):
        array[0] = 0


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_a_result_that_can_be_read_only_once_fails_its_row(backend):
    def parts(x):
        yield x

    rows = sv.from_columns({"x": np.arange(3)})
    made = {"parts": rows.derive(y=parts), "map": rows.derive(y=lambda x: map(str, [x]))}
    if backend != "processes":
        made["filter"] = rows.filter(parts)
    for pipeline in made.values():
        with (
            pipeline.loader(backend=backend, workers=1) as loader,
            pytest.raises(sv.RowError, match="read only once"),
        ):
            list(loader)
    skipped = rows.derive(y=lambda x: iter([x]) if x == 1 else x).loader(
        backend="inline", on_error=sv.Substitute(-1)
    )
    assert [row["y"] for row in skipped] == [0, -1, 2]
