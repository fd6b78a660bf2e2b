"""What is missing within a row stays missing, or the row fails: in every operator there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import CLASSES, examples

import silva as sv
from silva.columns import Parts, Values
from silva.physical.stage.evaluate import evaluate
from silva.plan import expr
from silva.plan.operator import built_in_operators

CALLS = [call for name in sorted(examples()) for call in examples()[name]]
ARITHMETIC = [
    expr.Call(o.name, (expr.Col("x"),) * (1 if o.name in ("not", "negative", "absolute") else 2))
    for o in built_in_operators()
    if "." not in o.name and o.name not in ("is_null", "is_in", "cast", "hash_fraction")
]
SHAPES = {
    "float": ((3,), np.float32), "int": ((3,), np.int64), "pixels": ((4, 5, 3), np.uint8),
    "floats": ((4, 5, 3), np.float32), "spectrum": ((4, 8), np.float32),
}  # fmt: skip


def masked(kind: str, *, hidden: int = 1) -> np.ma.MaskedArray:
    """An array of which the second item is missing; under the mask stands `hidden`."""
    shape, dtype = SHAPES[kind]
    data = np.ones(shape, dtype)
    data.flat[1] = hidden
    row = np.ma.array(data, mask=False)
    row.mask.flat[1] = True
    return row


def result(call: expr.Call, *rows: Any) -> list[Any]:
    """The call on a column of these rows, whatever it is called on in the documentation."""
    args = tuple(expr.Col("x") if isinstance(a, expr.Col) else a for a in call.args)
    if args and not isinstance(args[0], expr.Col):
        args = (expr.Col("x"), *args[1:])
    term = expr.Call(call.op, args, call.params)
    ids = np.arange(len(rows), dtype=np.uint64)
    made = evaluate(term, {"x": Values(list(rows))}, ids, None, (0, 0, "x#0"))
    return (made.parts[0] if isinstance(made, Parts) else made).rows()


def has_hole(value: Any) -> bool:
    """Whether something in it is missing."""
    if isinstance(value, list | tuple):
        return any(map(has_hole, value))
    return value is None or bool(np.ma.is_masked(value))


ANSWERS_OF_THE_ROW = {"is_null", "list.length", "list.fill_null", "num.fill_null"}
"""Of a row with a hole they give a value that has none, and does not depend on what is hidden."""


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("call", [*CALLS, *ARITHMETIC], ids=lambda call: f"{call.op}"[:40])
def test_no_operator_reads_what_a_mask_hides(call: expr.Call, kind: str) -> None:
    try:
        (made,) = result(call, masked(kind))
    except Exception as error:
        said = str(error)
        own = not call.op.startswith(tuple(CLASSES)) or call.op.startswith(("num.", "list."))
        if own or f"{call.op} takes no array of which some items are missing" in said:
            return
        raise
    (other,) = result(call, masked(kind, hidden=0))
    if call.op in ANSWERS_OF_THE_ROW:
        assert np.array_equal(made, other)
    elif call.op != "list.truncate" or call.params[0][1] > 1:
        assert has_hole(made), "the mask was dropped"
        assert repr(made) == repr(other)


@pytest.mark.parametrize("name", sorted({call.op for call in CALLS}))
def test_a_masked_array_of_which_nothing_is_missing_is_an_array(name: str) -> None:
    call = examples()[name][0]
    for shape, dtype in SHAPES.values():
        row = np.ones(shape, dtype)
        try:
            (plain,) = result(call, row)
        except Exception:  # noqa: BLE001  not an array for this operator
            continue
        (made,) = result(call, np.ma.array(row, mask=False))
        assert repr(np.ma.filled(made)) == repr(np.ma.filled(plain))


def test_a_masked_scalar_is_a_null() -> None:
    rows = sv.from_items([{"x": np.ma.masked}, {"x": 1.0}, {"x": np.ma.array(2.0, mask=False)}])
    made = rows.derive(
        a=sv.col("x") + 1, b=sv.num("x").clip(0), c=sv.num("x").fill_null(7),
        d=sv.col("x").cast("f4"), e=sv.col("x").is_null(), f=sv.col("x").is_in([1.0]),
    )  # fmt: skip
    found = {name: [row[name] for row in made.head(3)] for name in "abcdef"}
    assert found == {
        "a": [None, 2.0, 3.0], "b": [None, 1.0, 2.0], "c": [7, 1.0, 2.0], "d": [None, 1.0, 2.0],
        "e": [True, False, False], "f": [None, True, False],
    }  # fmt: skip


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_only_the_rows_with_a_hole_fail(backend: str) -> None:
    images = [
        {"image": masked("pixels") if i == 2 else np.ones((4, 5, 3), np.uint8)} for i in range(5)
    ]
    rows = sv.from_items(images).derive(image=sv.image("image").flip().to_float())
    with rows.batch(4).loader(backend=backend, workers=2, on_error=sv.Skip()) as loader:
        assert [len(batch["image"]) for batch in loader] == [4]
        (failure,) = loader.failures
    assert failure.key == "0:2"
    assert "image.flip takes no array of which some items are missing" in failure.error
    with pytest.raises(sv.RowError, match=r"fill them before, as in derive\(a=lambda a: a.filled"):
        list(rows.loader(backend=backend, workers=2))


def test_holes_stay_after_batch() -> None:
    rows = sv.from_arrow(pa.table({"l": [[1, None, 3], [4]]})).batch(2, pad=0)
    made = rows.derive(m=sv.col("l") + 1, n=sv.num("l").clip(2)).head(1)[0]
    assert made["m"].tolist() == [[2, None, 4], [5, 1, 1]]
    assert made["n"].tolist() == [[2, None, 3], [4, 2, 2]]


def test_two_rows_with_holes_are_missing_where_either_is() -> None:
    a, b = np.ma.array([1, 2, 3], mask=[1, 0, 0]), np.ma.array([0, 0, 2], mask=[0, 1, 0])
    rows = sv.from_items([{"a": a, "b": b}, {"a": a, "b": None}, {"a": np.arange(3), "b": b}])
    made = [row["c"] for row in rows.derive(c=sv.col("a") + sv.col("b")).head(3)]
    assert made[0].tolist() == [None, None, 5]
    assert made[1] is None
    assert made[2].tolist() == [0, None, 4]


def test_a_ragged_column_with_holes_keeps_them() -> None:
    values = np.ma.array([1, 2, 3], mask=[0, 1, 0])
    rows = sv.from_columns({"l": sv.Ragged(values, np.array([0, 2, 3]))})
    assert [row["l"] for row in rows.derive(l=sv.list("l").clip(2)).head(2)] == [[2, None], [3]]
