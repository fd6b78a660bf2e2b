"""The operators on numbers against plain references, item by item."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.columns import Array, Column, Dictionary, Lists, Strings, Values, concat
from silva.errors import PlanError
from silva.operators.items.hashing import hash_items
from silva.operators.num import num
from silva.plan.expr import Call, Expr, walk
from silva.plan.operator import operator
from silva.testing import assert_same_stream, digest

X = num("x")
NAN = float("nan")
WORD = (1 << 64) - 1


def run(expr: Expr, column: Column) -> Column:
    """The kernels of `expr`, one after the other."""
    for term in walk(expr.term):
        if isinstance(term, Call):
            column = operator(term.op).kernel([column], dict(term.params), None)
    return column


def one(expr: Expr, value: Any) -> Any:
    (result,) = run(expr, Values([value])).rows()
    return result


def same(a: Any, b: Any) -> bool:
    """Equal items of equal types; NaN equals NaN."""
    return type(a) is type(b) and (a == b or (a != a and b != b))


# References.


def mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    return (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD


def hashed(x: Any, buckets: int, seed: int = 0) -> int:
    golden = 0x9E3779B97F4A7C15
    if isinstance(x, str | bytes):
        data = x.encode() if isinstance(x, str) else x
        word = (len(data) + 1) * golden & WORD
        for i in range(0, len(data), 8):
            word = mixed(word ^ int.from_bytes(data[i : i + 8], "little"))
    elif isinstance(x, float):
        plain = NAN if x != x else x + 0.0
        (word,) = struct.unpack("<Q", struct.pack("<d", abs(plain) if plain != plain else plain))
    else:
        word = int(x) & WORD
    z = mixed((word + (seed + 1) * golden) & WORD)
    return (z >> 32) * buckets >> 32


def clipped(x: Any, low: Any, high: Any) -> Any:
    whole = all(b is None or isinstance(b, int) for b in (low, high))
    x = x if isinstance(x, float) or whole else float(x)
    if x != x:
        return x
    x = x if low is None else max(x, type(x)(low))
    return x if high is None else min(x, type(x)(high))


def bucket(x: Any, edges: list[Any], right: bool) -> int:
    if x != x:
        return len(edges)
    return sum(edge <= x if right else edge < x for edge in edges)


def f32(x: float) -> float:
    return float(np.float32(x))


LOTS = [*range(-40, 40, 3)]
CASES: dict[str, tuple[Expr, Callable[[Any], Any]]] = {
    "hash": (X.hash(1000), lambda x: hashed(x, 1000)),
    "hash seed": (X.hash(1 << 32, seed=9), lambda x: hashed(x, 1 << 32, 9)),
    "clip": (X.clip(-5, 50), lambda x: clipped(x, -5, 50)),
    "clip low": (X.clip(0), lambda x: clipped(x, 0, None)),
    "clip float": (X.clip(0.5, 9), lambda x: clipped(x, 0.5, 9)),
    "bucketize": (X.bucketize([0, 1, 10]), lambda x: bucket(x, [0, 1, 10], True)),
    "bucketize left": (
        X.bucketize([0, 1.5], right=False),
        lambda x: bucket(x, [0, 1.5], False),
    ),
    "bucketize many": (X.bucketize(LOTS), lambda x: bucket(x, LOTS, True)),
    "bucketize many left": (
        X.bucketize(LOTS, right=False),
        lambda x: bucket(x, LOTS, False),
    ),
    "standardize": (X.standardize(3, 1.5), lambda x: f32((x - 3) / 1.5)),
}
WHOLE: dict[str, tuple[Expr, Callable[[Any], Any]]] = {
    "modulo": (X.modulo(7), lambda x: x % 7),
    "modulo of a power": (X.modulo(16), lambda x: x % 16),
    "modulo big": (X.modulo((1 << 62) + 1), lambda x: x % ((1 << 62) + 1)),
}
FIXED = {"hash", "bucketize", "standardize", "modulo"}
"""Operators whose results have one type whatever they read."""

ints = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-60, 60)
floats = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, NAN, 1.5, 10.0])
numbers = st.lists(ints | floats | st.none() | st.booleans(), max_size=12)


@pytest.mark.operators("num.hash", "num.clip", "num.bucketize", "num.standardize", "num.fill_null")
@pytest.mark.parametrize("name", CASES)
@given(items=numbers)
def test_python_values_of_any_mix(name: str, items: list[Any]) -> None:
    expr, reference = CASES[name]
    items = [int(x) if isinstance(x, bool) else x for x in items]
    out = run(expr, Values(items)).rows()
    expected = [None if x is None else reference(x) for x in items]
    assert all(map(same, out, expected)), (out, expected)


@pytest.mark.parametrize("name", CASES)
@given(items=st.lists(ints, max_size=12) | st.lists(floats, max_size=12), mask=st.integers(0))
def test_arrays_with_nulls(name: str, items: list[Any], mask: int) -> None:
    expr, reference = CASES[name]
    data = np.array(items, dtype=np.int64 if items and isinstance(items[0], int) else np.float64)
    valid = np.array([mask >> i & 1 for i in range(len(items))], dtype=bool)
    for column in (Array(data), Array(data, valid)):
        out = run(expr, column)
        assert isinstance(out, Array)
        keep = [True] * len(items) if column.valid is None else valid.tolist()
        expected = [reference(x) if ok else None for x, ok in zip(items, keep, strict=True)]
        assert all(map(same, out.rows(), expected)), (out.rows(), expected)


@pytest.mark.operators("num.modulo")
@pytest.mark.parametrize("name", WHOLE)
@given(items=st.lists(ints | st.none(), max_size=12))
def test_modulo(name: str, items: list[Any]) -> None:
    expr, reference = WHOLE[name]
    out = run(expr, Values(items)).rows()
    assert out == [None if x is None else reference(x) for x in items]
    data = np.array([x or 0 for x in items], dtype=np.int64)
    assert run(expr, Array(data)).rows() == [reference(x or 0) for x in items]


@pytest.mark.operators("num.log1p")
@given(st.lists(st.integers(0, (1 << 62)) | st.floats(-0.999, 1e30) | st.just(NAN), max_size=9))
def test_log1p(items: list[Any]) -> None:
    """Within 2e-7 of the float64 result, relatively: float32 has 6e-8."""
    out = run(X.log1p(), Values(items))
    assert isinstance(out, Array)
    assert out.data.dtype == np.float32
    with np.errstate(invalid="ignore"):
        expected = np.log1p(np.array(items, dtype=float))
    assert np.allclose(out.data, expected, rtol=2e-7, atol=1e-44, equal_nan=True)


@pytest.mark.parametrize("value", [-1, -7, -1.0, -math.inf])
def test_log1p_below_its_domain_is_an_error(value: Any) -> None:
    for column in (Values([value]), Array(np.array([1, value])), Array(np.array([NAN, value]))):
        with pytest.raises(ValueError, match="clip\\(0\\) first"):
            run(X.log1p(), column)


def test_log1p_next_to_minus_one_is_finite() -> None:
    x = np.nextafter(-1.0, 0)
    assert one(X.log1p(), x) == f32(math.log1p(x))


@pytest.mark.operators("num.standardize")
def test_standardize_subtracts_before_it_rounds() -> None:
    clock = np.array([1_700_000_001, 1_700_000_003])
    out = run(X.standardize(1_700_000_000, 2), Array(clock))
    assert out.rows() == [0.5, 1.5]


@pytest.mark.operators("num.bucketize")
def test_bucketize_is_torchs() -> None:
    data = np.random.default_rng(0).integers(-50, 50, 500) / 4
    for edges in ([0.25, 3.0, 7.5], list(np.arange(-9, 9, 0.5))):
        for right in (True, False):
            expected = torch.bucketize(torch.tensor(data), torch.tensor(edges), right=right)
            out = run(X.bucketize(edges, right=right), Array(data))
            assert out.rows() == expected.tolist()


@pytest.mark.operators("num.one_hot")
def test_one_hot() -> None:
    out = run(X.one_hot(3), Values([2, None, 0]))
    assert isinstance(out, Array)
    assert out.data.dtype == np.float32
    assert out.data.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert out.valid is None
    assert run(X.one_hot(3), Array(np.array([1, 9]), np.array([True, False]))).rows()[1].sum() == 0
    assert run(X.one_hot(3), Values([])).batch().shape == (0, 3)
    for wrong in (3, -1):
        with pytest.raises(ValueError, match=f"class {wrong} is not one of the 3 from 0 to 2"):
            one(X.one_hot(3), wrong)


@pytest.mark.operators("num.fill_null")
@pytest.mark.parametrize("forms", ["values", "array"])
def test_fill_null(forms: str) -> None:
    def filled(items: list[Any], value: Any, nan: bool = False) -> Any:
        column: Column = Values(items)
        if forms == "array":
            data = np.array([7 if x is None else x for x in items])
            column = Array(data, np.array([x is not None for x in items]))
        return run(X.fill_null(value, nan), column).batch()

    assert filled([1, None, 3], 0).tolist() == [1, 0, 3]
    assert filled([1, None], 0.5).dtype == np.float64
    assert filled([1, 2], 0.5).dtype == np.float64, "the type must not depend on where nulls are"
    assert filled([1.5, None], 0).tolist() == [1.5, 0.0]
    assert filled([NAN, None], 2).tolist()[1] == 2
    assert filled([NAN, 1.0], 2).tolist()[0] != 2
    assert filled([NAN, None], 2, nan=True).dtype == np.float64
    assert filled([NAN, None], 2, nan=True).tolist() == [2, 2]
    assert filled([True, None], 3).tolist() == [1, 3]


def test_fill_null_in_small_types() -> None:
    data = Array(np.array([1, 2], np.uint8), np.array([True, False]))
    assert run(X.fill_null(255), data).batch().dtype == np.uint8
    with pytest.raises(ValueError, match="uint8 cannot hold 300"):
        run(X.fill_null(300), data)
    half = Array(np.array([1, 2], np.float32), np.array([True, False]))
    assert run(X.fill_null(0.5), half).batch().dtype == np.float32
    typed = Values([np.float32(1), None, np.float32(NAN)])
    assert run(X.fill_null(0.5, nan=True), typed).batch().tolist() == [1, 0.5, 0.5]


def test_fill_null_of_text() -> None:
    words = Strings(pa.array(["a", None]))
    assert run(X.fill_null("?"), words).rows() == ["a", "?"]
    assert run(X.fill_null("?"), Values(["a", None])).rows() == ["a", "?"]
    for value, column in ((0, words), ("?", Array(np.zeros(1))), ("?", Values([1, None]))):
        with pytest.raises(ValueError, match="fill_null"):
            run(X.fill_null(value), column)


def test_what_is_filled_or_kept_does_not_write_into_its_source() -> None:
    data = np.arange(3)
    rows = sv.from_columns({"x": data}).derive(y=X.fill_null(0), z=X.clip(0))
    batch = rows.batch(3).head(1)[0]
    batch["y"][:] = 9
    assert batch["x"].tolist() == batch["z"].tolist() == data.tolist() == [0, 1, 2]


# Hashing.


def test_buckets_are_the_same_for_ever() -> None:
    """Models are trained on these numbers: changing one of them breaks every stored model."""
    values = [0, 1, -1, 1 << 62, 1.0, 0.1, "", "a", "user-1", "a longer text: ü", b"\x00"]
    found = [one(X.hash(1_000_003), x) for x in values]
    assert found == [hashed(x, 1_000_003) for x in values]
    assert found[:3] == [883313, 566563, 893945]
    assert len(set(found)) == len(found)


@given(st.lists(st.text(max_size=40) | st.none(), max_size=8), st.integers(0, 4))
def test_text(items: list[Any], start: int) -> None:
    expected = [None if x is None else hashed(x, 997) for x in items]
    for kind in (pa.string(), pa.large_string()):
        column = Strings(pa.array(items, kind))
        assert run(X.hash(997), column).rows() == expected
        assert run(X.hash(997), column.slice(start, 99)).rows() == expected[start:]
    assert run(X.hash(997), Values(items)).rows() == expected


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_bytes(items: list[bytes]) -> None:
    expected = [hashed(x, 997) for x in items]
    assert run(X.hash(997), Strings(pa.array(items, pa.binary()))).rows() == expected
    assert run(X.hash(997), Values(items)).rows() == expected


def test_the_dtype_of_a_number_does_not_change_its_bucket() -> None:
    expected = hashed(100, 1 << 20)
    for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">i8"):
        assert run(X.hash(1 << 20), Array(np.array([100], dtype))).rows() == [expected], dtype
    for dtype in ("f2", "f4", "f8", ">f8"):
        floats = run(X.hash(1 << 20), Array(np.array([100], dtype)))
        assert floats.rows() == [hashed(100.0, 1 << 20)]
    assert run(X.hash(9), Values([True, np.int8(1), np.float32(2)])).rows() == [
        hashed(1, 9),
        hashed(1, 9),
        hashed(2.0, 9),
    ]


def test_all_nans_and_both_zeros_share_a_bucket() -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64)
    nans = run(X.hash(1 << 30), Array(odd.view(np.float64))).rows()
    assert set(nans) == {hashed(NAN, 1 << 30)}
    assert one(X.hash(1 << 30), -0.0) == one(X.hash(1 << 30), 0.0)


def test_dates_have_buckets() -> None:
    days = pa.array([datetime.date(2020, 1, 1), None, datetime.date(2020, 1, 2)])
    rows = sv.from_arrow(pa.table({"x": days})).derive(y=X.hash(1 << 30)).batch(3).head(1)[0]
    assert rows["y"].mask.tolist() == [False, True, False]
    assert rows["y"][0] != rows["y"][2]


def test_buckets_fill_evenly_and_seeds_are_independent() -> None:
    """Chi-square over 256 buckets: its mean is 255 and its deviation 22.6; five of them allowed."""
    plain = np.arange(100_000)
    pairs = []
    for data in (plain, plain * 4096, plain + (1 << 40), plain.astype(float)):
        for seed in (0, 1, 12345):
            out = hash_items(data, 256, seed)
            counts = np.bincount(out, minlength=256)
            chi = ((counts - len(data) / 256) ** 2).sum() / (len(data) / 256)
            assert abs(chi - 255) < 5 * 22.6
            pairs.append(out)
    assert abs(float((pairs[0] == pairs[1]).mean()) - 1 / 256) < 0.002


# Every kind of column, block borders, bad input.


@pytest.mark.parametrize("name", [*CASES, *WHOLE])
@given(data=st.data())
def test_block_borders_cannot_be_seen(name: str, data: st.DataObject) -> None:
    """Values, and the type of every batch, however the rows were cut into blocks."""
    expr = {**CASES, **WHOLE}[name][0]
    kinds = ints | st.none() if name in WHOLE else ints | floats | st.none()
    items = data.draw(st.lists(kinds, min_size=1, max_size=8))
    cut = data.draw(st.integers(0, len(items)))
    first = data.draw(st.integers(0, len(items) - 1))
    last = data.draw(st.integers(first + 1, len(items)))
    whole = run(expr, Values(items)).slice(first, last).batch()
    parts = [items[first : max(first, min(cut, last))], items[max(first, min(cut, last)) : last]]
    joined = concat([run(expr, Values(p)) for p in parts]).batch()
    assert digest({"x": whole}) == digest({"x": joined})


@pytest.mark.parametrize("name", [*CASES, *WHOLE])
def test_no_rows_and_no_values(name: str) -> None:
    expr = {**CASES, **WHOLE}[name][0]
    for empty in (Values([]), Array(np.zeros(0, np.int64)), Array(np.zeros((0, 3), np.int64))):
        assert len(run(expr, empty)) == 0
    assert run(expr, Values([None, None])).rows() == [None, None]
    if name.partition(" ")[0] in FIXED:
        assert isinstance(run(expr, Values([None])), Array)


@pytest.mark.parametrize("name", [*CASES, *WHOLE])
def test_inputs_are_never_written(name: str) -> None:
    expr = {**CASES, **WHOLE}[name][0]
    data = np.arange(9)
    data.flags.writeable = False
    valid = np.ones(9, bool)
    valid[3] = False
    for column in (Array(data), Array(data, valid), Array(data.reshape(3, 3).T)):
        out = run(expr, column)
        assert isinstance(out, Array)
        assert not np.shares_memory(out.data, data)
    assert data.tolist() == list(range(9))


def test_arrays_of_any_shape_and_stride() -> None:
    data = np.arange(24).reshape(4, 6)[:, ::2]
    for expr, reference in [*CASES.values(), *WHOLE.values()]:
        out = run(expr, Array(data)).batch()
        assert out.shape == data.shape
        assert out.reshape(-1).tolist() == [reference(x) for x in data.reshape(-1).tolist()]


def test_long_columns_are_done_in_pieces_without_seams() -> None:
    data = np.random.default_rng(0).integers(-100, 100, (1 << 14) * 2 + 17)
    for expr, reference in [*CASES.values(), *WHOLE.values()]:
        out = run(expr, Array(data)).rows()
        for i in (0, (1 << 14) - 1, 1 << 14, len(data) - 1):
            assert out[i] == reference(int(data[i]))
    positive = abs(data)
    whole = run(X.log1p(), Array(positive)).batch()
    for cut in (1, 7, 16385):
        parts = [run(X.log1p(), Array(positive[i:j])).batch() for i, j in ((0, cut), (cut, None))]
        assert np.array_equal(whole, np.concatenate(parts))


def test_a_dictionary_and_a_masked_array_are_expanded() -> None:
    grouped = Dictionary(Values([5, None]), np.array([0, 1, 0]))
    assert run(X.modulo(3), grouped).rows() == [2, None, 2]
    masked = np.ma.MaskedArray(np.array([5, 6]), mask=[False, True])
    assert run(X.modulo(3), Array(masked)).rows() == [2, None]
    some = np.ma.MaskedArray(np.array([[5, 6]]), mask=[[False, True]])
    with pytest.raises(ValueError, match="fill_null\\(\\) comes before batch"):
        run(X.modulo(3), Array(some))


@pytest.mark.parametrize(
    ("expr", "value", "message"),
    [
        (X.modulo(3), 1.5, "whole numbers, not float64"),
        (X.clip(0), "a", "numbers, not text"),
        (X.log1p(), np.datetime64("2020-01-01"), "numbers, not datetime64"),
        (X.standardize(0, 1), {"a": 1}, "not dict"),
        (X.hash(9), [1, 2], "not list"),
        (X.hash(9), 1 << 64, "does not fit into 64 bits"),
        (X.hash(9), 1 + 2j, "not complex"),
        (X.hash(9), "\ud800", "surrogates"),
        (X.one_hot(3), 1.0, "whole numbers, not float64"),
        (X.clip(300, 400), np.uint8(3), "uint8 cannot hold"),
    ],
)
def test_bad_values_are_named(expr: Expr, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one(expr, value)
    with pytest.raises(ValueError, match="lists"):
        run(expr, Lists(Array(np.zeros(2)), np.array([0, 2])))


def test_the_row_of_a_bad_value_is_named() -> None:
    rows = sv.from_columns({"x": [1, 2, -5, 3]}).derive(y=X.log1p()).batch(2)
    with pytest.raises(sv.RowError, match="log1p of -5 is no number"):
        list(rows.loader(workers=0))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: num(3), "name is a string"),
        (lambda: X.hash(0), "at least 1"),
        (lambda: X.hash(1 << 33), "at most"),
        (lambda: X.hash(True), "whole number"),
        (lambda: X.hash(9, seed=-1), "seed"),
        (lambda: X.modulo(1.5), "whole number"),
        (lambda: X.modulo(1 << 63), "at most"),
        (lambda: X.clip(), "lower bound"),
        (lambda: X.clip(3, 2), "above"),
        (lambda: X.clip(NAN), "finite"),
        (lambda: X.clip(10**400), "finite"),
        (lambda: X.clip("a"), "finite number"),
        (lambda: X.bucketize([]), "sequence"),
        (lambda: X.bucketize(3), "sequence"),
        (lambda: X.bucketize([1, 1]), "increase"),
        (lambda: X.bucketize([1, NAN]), "finite"),
        (lambda: X.bucketize([1], right=1), "True or False"),
        (lambda: X.standardize(0, 0), "positive"),
        (lambda: X.one_hot(0), "at least 1"),
        (lambda: X.fill_null(None), "in place of nulls"),
        (lambda: X.fill_null([0]), "in place of nulls"),
        (lambda: X.fill_null(0, nan=1), "True or False"),
    ],
)
def test_arguments_are_checked_at_once(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        write()


def test_numpy_numbers_are_arguments_too() -> None:
    expr = X.clip(np.int32(1), np.float64(2.5)).bucketize(np.array([1, 2]))
    assert repr(expr) == "x.clip(low=1, high=2.5).bucketize(boundaries=(1, 2), right=True)"


# Laws.


@given(items=st.lists(ints, max_size=8), bounds=st.lists(st.integers(-99, 99), min_size=4))
def test_laws(items: list[int], bounds: list[int]) -> None:
    a, b, c, d = *sorted(bounds[:2]), *sorted(bounds[2:4])
    data = Values(items)
    inner = min(max(c, a), b), min(max(d, a), b)
    assert run(X.clip(c, d).clip(a, b), data).rows() == run(X.clip(*inner), data).rows()
    assert run(X.modulo(12).modulo(4), data).rows() == run(X.modulo(4), data).rows()
    gaps = Values([None if x % 3 == 0 else x for x in items])
    assert run(X.fill_null(1).fill_null(2), gaps).rows() == run(X.fill_null(1), gaps).rows()


def test_the_stream_is_the_same_however_it_is_run() -> None:
    rows = sv.from_items(
        [{"x": None if i % 7 == 0 else i * 3 - 20, "w": f"w{i}", "y": i / 3} for i in range(23)]
    ).derive(
        a=X.hash(100),
        b=X.fill_null(0).clip(0).log1p(),
        c=num("w").hash(50, seed=3),
        d=X.clip(-3, 9.5),
        e=num("y").standardize(1, 2),
        f=X.fill_null(0).modulo(5).one_hot(5),
        g=num("y").bucketize([1, 2, 5]),
    )
    assert_same_stream(rows.shuffle(seed=1).batch(8), workers=(2,), backends=("inline", "threads"))
