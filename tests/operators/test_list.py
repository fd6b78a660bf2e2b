"""The operators on lists against plain references, row by row."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.columns import Array, Column, Lists, Ragged, Strings, Values, concat, from_arrow
from silva.errors import PlanError
from silva.operators.list import ListExpr
from silva.operators.list import list as list_
from silva.operators.num import num
from silva.plan.expr import Call, Expr, walk
from silva.plan.fingerprint import fingerprint
from silva.plan.operator import operator
from silva.testing import assert_same_stream, digest

X = list_("x")
TABLE = np.random.default_rng(0).random((64, 3), dtype=np.float32)
NAN = float("nan")


def run(expr: Expr, column: Column) -> Column:
    """The kernels of `expr`, one after the other."""
    for term in walk(expr.term):
        if isinstance(term, Call):
            column = operator(term.op).kernel([column], dict(term.params), None)
    return column


def plain(row: Any) -> Any:
    """A row as Python values."""
    if isinstance(row, np.ndarray):
        return row.tolist()
    return [plain(x) for x in row] if isinstance(row, list | tuple) else row


def rows(column: Column) -> list[Any]:
    return [plain(x) for x in column.rows()]


def listed(items: list[Any], kind: Any = None) -> Column:
    """An Arrow list column, as Parquet gives it."""
    return from_arrow(pa.array(items, pa.list_(kind or pa.int64())))


def one(expr: Expr, value: Any) -> Any:
    (result,) = rows(run(expr, Values([value])))
    return result


# References.


def item_by_item(expr: Expr) -> Callable[[Any], Any]:
    """By the operator on numbers, which has references of its own."""
    return lambda row: [None if x is None else run(expr, Values([x])).rows()[0] for x in row]


def firsts(row: list[Any]) -> list[Any]:
    out: list[Any] = []
    for x in row:
        if not any(x is y or x == y or (x != x and y != y and None not in (x, y)) for y in out):
            out.append(x)
    return out


N = num("x")
CASES: dict[str, tuple[Expr, Callable[[Any], Any]]] = {
    "hash": (X.hash(99, seed=2), item_by_item(N.hash(99, seed=2))),
    "modulo": (X.modulo(5), item_by_item(N.modulo(5))),
    "clip": (X.clip(2, 9), item_by_item(N.clip(2, 9))),
    "log1p": (X.log1p(), item_by_item(N.log1p())),
    "bucketize": (X.bucketize([3, 7]), item_by_item(N.bucketize([3, 7]))),
    "fill_null": (X.fill_null(4), lambda row: [4 if x is None else x for x in row]),
    "truncate": (X.truncate(2), lambda row: row[:2]),
    "truncate left": (X.truncate(2, side="left"), lambda row: row[max(len(row) - 2, 0) :]),
    "truncate all": (X.truncate(0), lambda row: []),
    "unique": (X.unique(), firsts),
    "length": (X.length(), len),
    "pad": (X.fill_null(0).pad(6), lambda row: [x or 0 for x in row] + [0] * (6 - len(row))),
    "pad left": (
        X.fill_null(0).pad(6, value=7, side="left"),
        lambda row: [7] * (6 - len(row)) + [x or 0 for x in row],
    ),
    "embed": (
        X.embed(TABLE),
        lambda row: [None if x is None else TABLE[x].tolist() for x in row],
    ),
}
FILLS = {"fill_null", "pad", "pad left"}

items = st.integers(0, 12) | st.none()
columns = st.lists(st.none() | st.lists(items, max_size=6), max_size=7)


def expected(name: str, given: list[Any]) -> list[Any]:
    reference = CASES[name][1]
    null: Any = reference([]) if name in FILLS else None
    return [null if row is None else reference(row) for row in given]


@pytest.mark.operators(
    "list.hash",
    "list.modulo",
    "list.clip",
    "list.log1p",
    "list.bucketize",
    "list.fill_null",
    "list.truncate",
    "list.unique",
    "list.length",
    "list.pad",
    "list.embed",
)
@pytest.mark.parametrize("name", CASES)
@given(columns, st.integers(0, 3))
def test_every_kind_of_column(name: str, given: list[Any], start: int) -> None:
    expr = CASES[name][0]
    wanted = expected(name, given)
    assert rows(run(expr, Values(given))) == wanted
    assert rows(run(expr, listed(given))) == wanted
    assert rows(run(expr, listed(given).slice(start, 9))) == wanted[start:]
    dense = [None if x is None else np.array([y or 0 for y in x], np.int64) for x in given]
    zeros = [None if x is None else [y or 0 for y in x] for x in given]
    assert rows(run(expr, Values(dense))) == expected(name, zeros)


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_block_borders_cannot_be_seen(name: str, data: st.DataObject) -> None:
    """Values, and the type of every batch, however the rows were cut into blocks."""
    expr = CASES[name][0]
    number = st.integers(0, 12) if name in ("modulo", "embed") else items | st.floats(0, 12)
    given = data.draw(st.lists(st.none() | st.lists(number, max_size=4), min_size=1, max_size=7))
    cut = data.draw(st.integers(0, len(given)))
    first = data.draw(st.integers(0, len(given) - 1))
    last = data.draw(st.integers(first + 1, len(given)))
    middle = max(first, min(cut, last))
    whole = run(expr, Values(given)).slice(first, last).batch()
    joined = concat([run(expr, Values(given[a:b])) for a, b in ((first, middle), (middle, last))])
    if "pad" in name and given[first:last] == [None] * (last - first):
        return  # a batch of nulls alone has no type to compare
    assert digest({"x": whole}) == digest({"x": joined.batch()})


@pytest.mark.parametrize("name", CASES)
def test_no_rows_and_empty_lists(name: str) -> None:
    expr = CASES[name][0]
    for empty in (Values([]), listed([]), listed([[1], [2]]).slice(1, 1), Array(np.zeros((0, 4)))):
        if isinstance(empty, Array) and name in ("modulo", "embed"):
            empty = Array(np.zeros((0, 4), np.int64))
        assert len(run(expr, empty)) == 0
    assert rows(run(expr, Values([[], ()]))) == expected(name, [[], []])
    assert rows(run(expr, Values([None]))) == expected(name, [None])


@pytest.mark.parametrize("name", CASES)
def test_arrays_of_one_length(name: str) -> None:
    """Fixed-size lists, and what batch(pad=…) makes: the results are the same, and dense again
    where they can be."""
    data = np.array([[1, 2, 2], [4, 4, 5], [0, 9, 0]])
    out = run(CASES[name][0], Array(data))
    assert rows(out) == expected(name, data.tolist())
    assert isinstance(out, Lists if name == "unique" else Array)
    half = run(CASES[name][0], Array(data, np.array([True, False, True])))
    wanted = expected(name, [[1, 2, 2], None, [0, 9, 0]])
    if name in FILLS:
        wanted[1] = CASES[name][1]([4, 4, 4] if name == "fill_null" else [0, 0, 0])
    assert rows(half) == wanted


@pytest.mark.parametrize("name", CASES)
def test_inputs_are_never_written(name: str) -> None:
    data = np.arange(8)
    data.flags.writeable = False
    column = Lists(Array(data), np.array([1, 3, 3, 7]))
    run(CASES[name][0], column)
    assert data.tolist() == list(range(8))
    source = sv.from_columns({"x": Ragged(np.arange(8), np.array([0, 2, 8]))})
    batch = source.derive(y=CASES[name][0]).batch(2).head(1)[0]
    made = batch["y"].values if isinstance(batch["y"], Ragged) else batch["y"]
    made[:] = 0
    assert batch["x"].values.tolist() == list(range(8))


def test_types() -> None:
    column = listed([[1, 2], [3]], pa.int32())
    found = {name: run(expr, column).batch() for name, (expr, _) in CASES.items()}
    dtypes = {n: (v.values if isinstance(v, Ragged) else v).dtype.name for n, v in found.items()}
    assert dtypes == {
        "hash": "int64",
        "modulo": "int64",
        "clip": "int32",
        "log1p": "float32",
        "bucketize": "int64",
        "fill_null": "int32",
        "truncate": "int32",
        "truncate left": "int32",
        "truncate all": "int32",
        "unique": "int32",
        "length": "int64",
        "pad": "int32",
        "pad left": "int32",
        "embed": "float32",
    }


def test_what_hides_in_a_null_list_is_not_seen() -> None:
    hidden = Lists(Array(np.array([1, 999, 2])), np.array([0, 1, 2, 3]), np.array([1, 0, 1], bool))
    assert rows(run(X.embed(TABLE).length(), hidden)) == [1, None, 1]
    assert rows(run(X.fill_null(0), hidden)) == [[1], [], [2]]
    assert rows(run(X.pad(1), hidden)) == [[1], None, [2]]


def test_lists_of_words() -> None:
    words = [["a", "b", "a", None], None, [], ["ü" * 20]]
    for column in (Values(words), listed(words, pa.string())):
        assert rows(run(X.unique(), column)) == [["a", "b", None], None, [], ["ü" * 20]]
        assert rows(run(X.truncate(1, "left"), column)) == [[None], None, [], ["ü" * 20]]
        assert rows(run(X.fill_null("?"), column)) == [["a", "b", "a", "?"], [], [], ["ü" * 20]]
        hashed = rows(run(X.hash(1000), column))
        assert hashed[0][0] == hashed[0][2] == run(N.hash(1000), Values(["a"])).rows()[0]
        with pytest.raises(ValueError, match="numbers"):
            run(X.fill_null("?").pad(4), column)


@given(st.lists(st.lists(st.sampled_from([0.0, -0.0, NAN, 1.5, 1e300, None]), max_size=6)))
def test_unique_floats(given: list[list[Any]]) -> None:
    for column in (Values(given), listed(given, pa.float64())):
        out = rows(run(X.unique(), column))
        for found, row in zip(out, given, strict=True):
            wanted = firsts(row)
            assert str(found) == str(wanted), "also which zero came first"


@given(st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 3), max_size=6)))
def test_unique_of_any_integers(given: list[list[int]]) -> None:
    for column in (Values(given), listed(given)):
        assert rows(run(X.unique(), column)) == [firsts(row) for row in given]


def test_nested_lists_can_be_cut_and_counted() -> None:
    nested = [[[1, 2], [3]], [], None]
    for column in (Values(nested), from_arrow(pa.array(nested))):
        assert rows(run(X.length(), column)) == [2, 0, None]
        assert rows(run(X.truncate(1), column)) == [[[1, 2]], [], None]
        with pytest.raises(ValueError, match=r"list|array"):
            run(X.unique(), column)
        with pytest.raises(ValueError, match="list"):
            run(X.hash(9), column)


def test_realistic_histories() -> None:
    """A chain over skewed ids and lengths, against plain Python."""
    rng = np.random.default_rng(0)
    given = [rng.zipf(1.3, n).clip(max=10**7).tolist() for n in rng.poisson(30, 200)]
    chain = X.unique().truncate(20, side="left").hash(1000).pad(20, value=-1)
    hashed = item_by_item(N.hash(1000))
    wanted = []
    for row in given:
        kept = hashed(list(dict.fromkeys(row))[-20:])
        wanted.append(kept + [-1] * (20 - len(kept)))
    for column in (listed(given), Values(given), Values([np.array(r) for r in given])):
        assert run(chain, column).batch().tolist() == wanted


# Padding.


def test_a_list_that_is_too_long_to_pad_is_an_error_with_advice() -> None:
    for column in (Values([[1, 2, 3]]), listed([[1, 2, 3]]), Array(np.zeros((2, 3)))):
        with pytest.raises(ValueError, match=r"3 items does not fit into pad\(2\).*truncate\(2\)"):
            run(X.pad(2), column)


@pytest.mark.parametrize("row", [[1, None], [1.5, None, 2], [None]])
def test_a_null_item_is_not_padded(row: list[Any]) -> None:
    for column in (Values([row, [], [7]]), listed([row, []], pa.float64())):
        with pytest.raises(ValueError, match="fill_null"):
            run(X.pad(4), column)


def test_padding_keeps_the_type_where_it_can() -> None:
    assert run(X.pad(2), listed([[1]], pa.uint8())).batch().dtype == np.uint8
    assert run(X.pad(2), listed([[1]], pa.float32())).batch().dtype == np.float32
    assert run(X.pad(2, NAN), listed([[1]])).batch().dtype == np.float64
    with pytest.raises(ValueError, match="uint8 cannot hold -1"):
        run(X.pad(2, -1), listed([[1]], pa.uint8()))
    assert run(X.pad(2), Values([[], [1.5]])).batch().tolist() == [[0, 0], [1.5, 0]]


def test_vectors_are_padded_with_vectors() -> None:
    out = run(X.embed(TABLE).pad(3), listed([[1], [2, 3]])).batch()
    assert out.shape == (2, 3, 3)
    assert np.array_equal(out[1, :2], TABLE[[2, 3]])
    assert not out[0, 1:].any()


# Embedding.


@pytest.mark.parametrize(
    "table", [TABLE, TABLE[::2, ::-1], torch.tensor(TABLE), TABLE.astype(">f8")]
)
def test_embed_reads_any_table(table: Any) -> None:
    plain_table = np.asarray(table)
    ids = [[0, 5], [], [31]]
    for column in (Values(ids), listed(ids), listed(ids, pa.uint16())):
        out = run(X.embed(table), column)
        assert rows(out) == [plain_table[row].tolist() if row else [] for row in ids]
    padded = run(X.pad(2).embed(table), listed(ids)).batch()
    assert np.array_equal(padded, plain_table[[[0, 5], [0, 0], [31, 0]]])
    assert padded.flags.c_contiguous


@pytest.mark.parametrize("bad", [64, -1, 1 << 40])
def test_an_id_that_the_table_does_not_have_is_an_error(bad: int) -> None:
    for column in (Values([[1, bad]]), listed([[1, bad]]), Array(np.array([[1, bad]]))):
        with pytest.raises(ValueError, match=f"id {bad} is not one of the 64 from 0 to 63"):
            run(X.embed(TABLE), column)
    with pytest.raises(ValueError, match="whole numbers"):
        one(X.embed(TABLE), [1.0])


def test_embed_after_batch_with_and_without_padding() -> None:
    source = sv.from_items([{"x": [1, 2]}, {"x": [3]}, {"x": [4, 5, 6]}])
    padded = source.batch(3, pad=0).derive(x=X.embed(TABLE)).head(1)[0]["x"]
    assert np.array_equal(padded, TABLE[[[1, 2, 0], [3, 0, 0], [4, 5, 6]]])
    ragged = source.batch(3).derive(x=X.embed(TABLE)).head(1)[0]["x"]
    assert isinstance(ragged, Ragged)
    assert np.array_equal(ragged.values, TABLE[[1, 2, 3, 4, 5, 6]])
    lengths = source.batch(3).derive(n=X.length()).head(1)[0]["n"]
    assert lengths.tolist() == [2, 1, 3]


def test_lists_with_nulls_are_still_lists_after_batch() -> None:
    source = sv.from_items([{"x": [1, None]}, {"x": None}])
    batch = source.batch(2).derive(y=X.fill_null(0).pad(3)).head(1)[0]
    assert batch["y"].tolist() == [[1, 0, 0], [0, 0, 0]]


def test_a_table_is_known_by_its_content() -> None:
    def plan(table: Any) -> str:
        return fingerprint(sv.from_columns({"x": [[1]]}).derive(y=X.embed(table)).plan)

    assert plan(TABLE) == plan(TABLE.copy()) == plan(torch.tensor(TABLE))
    assert plan(TABLE) != plan(TABLE + 1)
    assert plan(TABLE) != plan(TABLE.astype(np.float64))
    assert plan(TABLE) != plan(TABLE.reshape(96, 2))
    assert X.embed(TABLE).term == X.embed(TABLE.copy()).term
    assert hash(X.embed(TABLE).term) == hash(X.embed(TABLE.copy()).term)
    again = pickle.loads(pickle.dumps(X.embed(TABLE).term))  # noqa: S301  our own
    assert rows(run(Expr(again), listed([[5]]))) == [[TABLE[5].tolist()]]


def test_a_table_is_hashed_once_and_travels_once() -> None:
    big = np.zeros((1000, 100), np.float32)
    expr = X.truncate(9).embed(big)
    assert len(pickle.dumps((expr.term, expr.term))) < 1.5 * big.nbytes
    pipeline = sv.from_columns({"x": [[1]]}).derive(y=expr)
    before = fingerprint(pipeline.plan)
    big += 1  # not seen: the table was taken as it was, and hashing it again would show
    assert fingerprint(pipeline.plan) == before


def test_explain_says_the_size_of_a_table() -> None:
    pipeline = sv.from_columns({"x": [[1]]}).derive(y=X.embed(np.zeros((270, 764), np.float32)))
    assert "y = x.embed(table of 270 × 764 float32)" in pipeline.explain()


# Arguments, errors, laws, streams.


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: list_(1), "name is a string"),
        (lambda: X.truncate(-1), "at least 0"),
        (lambda: X.truncate(2, side="end"), "'left' or 'right'"),
        (lambda: X.pad(0), "at least 1"),
        (lambda: X.pad(2, value="a"), "with a number"),
        (lambda: X.pad(2, value=None), "with a number"),
        (lambda: X.pad(2, side=0), "'left' or 'right'"),
        (lambda: X.hash(0), "at least 1"),
        (lambda: X.modulo(0), "at least 1"),
        (lambda: X.clip(), "bound"),
        (lambda: X.bucketize([2, 1]), "increase"),
        (lambda: X.fill_null(None), "in place of nulls"),
        (lambda: X.embed([[1.0]]), "a table is an array"),
        (lambda: X.embed(np.zeros(3)), "a table is an array"),
        (lambda: X.embed(np.array([["a"]])), "a table is an array"),
        (lambda: X.embed(np.zeros((0, 3))), "holds nothing"),
        (lambda: X.embed(torch.zeros(2, 2, dtype=torch.bfloat16)), "numpy has no torch.bfloat16"),
    ],
)
def test_arguments_are_checked_at_once(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        write()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "column", [Values(["abc"]), Values([3]), Array(np.arange(3)), Values([{1}])]
)
def test_what_is_no_list_is_refused(name: str, column: Column) -> None:
    with pytest.raises(ValueError, match=r"expected (a list|lists)"):
        run(CASES[name][0], column)
    with pytest.raises(ValueError, match="holds text"):
        run(CASES[name][0], Strings(pa.array(["abc"])))


def test_the_row_of_a_bad_list_is_named() -> None:
    source = sv.from_columns({"x": [[1], [2, 99], [3]]}).derive(y=X.embed(TABLE)).batch(2)
    with pytest.raises(sv.RowError, match="id 99 is not one of the 64"):
        list(source.loader(workers=0))
    kept = source.loader(workers=0, on_error=sv.Skip(1))
    assert [len(batch["y"]) for batch in kept] == [2]


def test_subclasses_keep_their_kind() -> None:
    class Tokens(ListExpr):
        __slots__ = ()

    expr = Tokens("x").truncate(3).unique().pad(4).hash(9)
    assert type(expr) is Tokens


def test_tensors_are_rows_too() -> None:
    assert rows(run(X.truncate(1), Values([torch.tensor([4, 5]), torch.tensor([6])]))) == [[4], [6]]


ITEMWISE = ("hash", "modulo", "clip", "log1p", "bucketize")


@given(columns, st.integers(0, 5), st.integers(0, 5), st.sampled_from(["left", "right"]))
def test_laws(given: list[Any], n: int, m: int, side: Any) -> None:
    for column in (Values(given), listed(given)):

        def alike(a: Expr, b: Expr, column: Column = column) -> None:
            assert digest({"x": run(a, column).batch()}) == digest({"x": run(b, column).batch()})

        alike(X.truncate(m, side).truncate(n, side), X.truncate(min(n, m), side))
        alike(X.unique().unique(), X.unique())
        alike(X.truncate(n, side).length(), X.length().clip(high=n))
        alike(X.truncate(n, side).embed(TABLE), X.embed(TABLE).truncate(n, side))
        for name in ITEMWISE:
            f = CASES[name][0]
            assert isinstance(f.term, Call)
            after = ListExpr(Call(f.term.op, (X.truncate(n, side).term,), f.term.params))
            alike(after, ListExpr(f.term).truncate(n, side))
            alike(ListExpr(f.term).length(), X.length())


def test_what_are_no_laws() -> None:
    x = [1, 2, 3]
    assert one(X.truncate(2).truncate(2, "left"), x) != one(X.truncate(2, "left").truncate(2), x)
    assert one(X.truncate(2).unique(), [1, 1, 2]) != one(X.unique().truncate(2), [1, 1, 2])
    assert one(X.hash(1).unique(), x) != one(X.unique().hash(1), x)
    assert one(X.pad(4).embed(TABLE), x) != one(X.embed(TABLE).pad(4), x)


def test_writing_an_expression_loads_no_native_library() -> None:
    code = (
        "import sys, silva.operators.list as e; e.list('x').hash(9).pad(2).length();"
        "assert not {'pyarrow', 'torch', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_stream_is_the_same_however_it_is_run() -> None:
    source = sv.from_items(
        [
            {
                "x": None if i % 11 == 5 else [*range(i % 6), *range(i % 3)],
                "y": [j / 2 if i % 2 else j for j in range(i % 4)],
                "w": [f"w{j}" for j in range(i % 5)],
            }
            for i in range(22)
        ]
    )
    made = source.derive(
        a=X.unique().truncate(3, "left").hash(100),
        b=X.fill_null(0).truncate(4).pad(4).embed(TABLE),
        c=list_("y").clip(0, 1),
        d=list_("w").hash(10).length(),
        e=list_("y").pad(3),
        f=list_("y").unique(),
    )
    after = made.shuffle(seed=3).batch(4).derive(g=list_("f").log1p())
    assert_same_stream(after, workers=(2,))


def test_log1p_of_items_is_that_of_numbers() -> None:
    assert one(X.log1p(), [0, 1]) == [0, float(np.float32(math.log(2)))]


@pytest.mark.parametrize("zero", [0.0, -0.0, 1.5], ids=["zeros", "negative zeros", "no zeros"])
@pytest.mark.parametrize("pad", [0, 3])
def test_embed_gives_the_bits_of_the_table_also_where_much_is_padding(
    zero: float, pad: int
) -> None:
    table = np.random.default_rng(0).standard_normal((5, 512), np.float32)
    table[pad] = zero
    ids = np.random.default_rng(1).integers(0, 5, (16, 96))
    for row, length in zip(ids, [0, 1, 2, 96, 95, *range(11)], strict=True):
        row[length:] = pad
    for padded in (ids, ids[3:4].repeat(16, axis=0), np.full_like(ids, pad)):
        out = run(X.embed(table), Array(padded))
        assert isinstance(out, Array)
        assert out.data.nbytes > 1 << 20
        assert out.data.tobytes() == table[padded].tobytes()
