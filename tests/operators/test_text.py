"""The text operators against Python's own `str`, whatever column the text arrives in."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import silva as sv
from silva.columns import Array, Column, Lists, Strings, Values
from silva.errors import PlanError
from silva.operators.text import text
from silva.operators.text.letters import WHITE
from silva.plan.expr import Call, Expr, walk
from silva.plan.operator import operator
from silva.testing import assert_same_stream

X = text("x")
ALL = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i <= 0xDFFF]
ODD = [
    "", " ", "\x1c a\x85b\u3000", "Straße", "ΟΔΥΣΣΕΥΣ ΣΟΦΟΣ", "İstanbul", "ŉ ﬁne", "e\u0301 Å ①",
    "a  b\tc\n", "\u200bx\ufeff", "日本語 のテキスト", "👩‍🚀🇨🇭", "a,b,,c", "ab" * 300,
]  # fmt: skip
texts = st.lists(
    st.none()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(ODD),
    max_size=8,
)


def run(expr: Expr, column: Column) -> Column:
    """The kernels of `expr`, one after the other."""
    for term in walk(expr.term):
        if isinstance(term, Call):
            column = operator(term.op).kernel([column], dict(term.params), None)
    return column


def one(expr: Expr, value: Any) -> Any:
    (result,) = plain(run(expr, Values([value])))
    return result


def plain(column: Column) -> list[Any]:
    """Rows without numpy."""
    return [x.tolist() if isinstance(x, np.ndarray) else x for x in column.rows()]


def forms(rows: list[Any], kinds: tuple[pa.DataType, ...]) -> list[Column]:
    """The same rows in every column that can hold them."""
    arrays = [pa.array(rows, kind) for kind in kinds]
    sliced = pa.array([rows[0] if rows else None, *rows, None], kinds[0]).slice(1, len(rows))
    return [*map(Strings, arrays), Strings(sliced), Values(rows)]


def text_forms(rows: list[Any]) -> list[Column]:
    return forms(rows, (pa.string(), pa.large_string()))


EVERY: dict[str, tuple[Expr, Callable[[str], Any]]] = {
    "lower": (X.lower(), str.lower),
    "upper": (X.upper(), str.upper),
    "strip": (X.strip(), str.strip),
    "replace": (X.replace("a", "<é>"), lambda x: x.replace("a", "<é>")),
    "split": (X.split(), str.split),
    "split_at": (X.split(","), lambda x: x.split(",")),
    "length": (X.length(), len),
    **{
        form: (X.normalize(form), lambda x, form=form: unicodedata.normalize(form, x))  # type: ignore[misc]
        for form in ("NFC", "NFD", "NFKC", "NFKD")
    },
}


@pytest.mark.operators(
    "text.lower",
    "text.upper",
    "text.strip",
    "text.normalize",
    "text.replace",
    "text.split",
    "text.length",
)
@pytest.mark.parametrize("name", EVERY)
@given(rows=texts)
@example(rows=ODD)
@example(rows=[None, *ODD, None])
@example(rows=[None, None])
@example(rows=["plain", "ascii", None])
@example(rows=[])
def test_results_are_those_of_python_in_every_column(name: str, rows: list[Any]) -> None:
    expr, reference = EVERY[name]
    expected = [None if row is None else reference(row) for row in rows]
    for column in text_forms(rows):
        assert plain(run(expr, column)) == expected


@pytest.mark.parametrize("name", ["lower", "upper", "strip", "split", "length", "NFC", "NFKD"])
def test_every_character_is_treated_as_in_python(name: str) -> None:
    expr, reference = EVERY[name]
    rows = [f"{c}Σ{c}" for c in ALL[:0x12000]]
    rows += ["".join(ALL[i : i + 32]) for i in range(0x12000, len(ALL), 32)]
    assert plain(run(expr, Strings(pa.array(rows)))) == [reference(row) for row in rows]


def test_white_space_is_what_python_says() -> None:
    assert sorted(WHITE) == [c for c in ALL if c.isspace()]


@pytest.mark.parametrize("name", EVERY)
@given(rows=texts, cut=st.integers(0, 8))
def test_a_rows_result_does_not_depend_on_block_borders(
    name: str, rows: list[Any], cut: int
) -> None:
    expr, _ = EVERY[name]
    for column in text_forms(rows):
        whole = run(expr, column)
        parts = [run(expr, column.slice(0, cut)), run(expr, column.slice(cut, len(rows)))]
        assert plain(whole) == plain(parts[0]) + plain(parts[1])
        assert {type(whole)} == set(map(type, parts))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lower", Strings),
        ("NFC", Strings),
        ("split", Lists),
        ("split_at", Lists),
        ("length", Array),
    ],
)
def test_results_are_columns_of_one_kind(name: str, kind: type) -> None:
    for rows in ([], [None], ["a b"], ["é", None]):
        for column in text_forms(rows):
            assert isinstance(run(EVERY[name][0], column), kind)


def test_lengths_are_int64_with_a_mask() -> None:
    out = run(X.length(), Strings(pa.array(["é", None, "日本"])))
    assert isinstance(out, Array)
    assert out.data.dtype == np.int64
    assert out.valid is not None
    assert out.valid.tolist() == [True, False, True]


# Laws.


@given(x=st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(ODD))
@example(x="ΑΣ ")
@example(x=" İΣ\u0307")
def test_laws(x: str) -> None:
    for f in (X.lower(), X.upper(), X.strip(), X.normalize("NFC"), X.normalize("NFKD")):
        assert one(f, one(f, x)) == one(f, x)
    assert one(X.lower().strip(), x) == one(X.strip().lower(), x)
    assert one(X.upper().strip(), x) == one(X.strip().upper(), x)


def test_what_is_not_a_law() -> None:
    assert one(X.lower().upper(), "İ") != one(X.upper(), "İ")
    assert one(X.lower().length(), "İ") != one(X.length(), "İ")
    assert one(X.normalize("NFKC").strip(), "¨") != one(X.strip().normalize("NFKC"), "¨")
    assert one(X.normalize("NFKC").lower(), "ϒ") != one(X.lower().normalize("NFKC"), "ϒ")


# Regular expressions.


@pytest.mark.parametrize(
    ("pattern", "new"),
    [(r"[ \t]+", " "), (r"(\w)-(\w)", r"\2-\1"), ("^a|b$", ""), (r"\\", r"\\\\"), (".", "é")],
)
@given(row=st.text("ab -_\\é日\t", max_size=12))
def test_patterns_that_re_and_re2_share_mean_the_same(pattern: str, new: str, row: str) -> None:
    assert one(X.replace(pattern, new, regex=True), row) == re.sub(pattern, new, row, flags=re.A)


def test_where_re2_differs_from_re() -> None:
    assert one(X.replace("x*", "-", regex=True), "ax") == "-a-"
    assert re.sub("x*", "-", "ax") == "-a--"
    assert one(X.replace(r"\d", "-", regex=True), "1٣") == "-٣"
    assert re.sub(r"\d", "-", "1٣") == "--"
    assert one(X.replace(r"\pN", "-", regex=True), "1٣") == "--"


# Bytes.


@pytest.mark.operators("text.decode")
@given(rows=st.lists(st.none() | st.binary(max_size=12), max_size=6))
@example(rows=[b"ok", b"\xff", None, b"a\xed\xa0\x80b", b"\xf0\x9f\x98", "é".encode()])
def test_bytes_decode_as_in_python(rows: list[Any]) -> None:
    replaced = [None if x is None else x.decode("utf-8", "replace") for x in rows]
    columns = forms(rows, (pa.binary(), pa.large_binary()))
    for column in columns:
        assert run(X.decode(errors="replace"), column).rows() == replaced
    try:
        strict = [None if x is None else x.decode() for x in rows]
    except UnicodeDecodeError:
        for column in columns:
            with pytest.raises(ValueError, match="not UTF-8"):
                run(X.decode(), column)
    else:
        for column in columns:
            assert run(X.decode(), column).rows() == strict


def test_other_kinds_of_bytes_decode_too() -> None:
    column = Values([bytearray(b"a"), memoryview(b"b"), None])
    assert run(X.decode(), column).rows() == ["a", "b", None]


@pytest.mark.parametrize("name", EVERY)
def test_bytes_are_not_taken_for_text(name: str) -> None:
    for column in forms([b"abc", None], (pa.binary(), pa.large_binary())):
        with pytest.raises(ValueError, match=r"decode\(\) comes first"):
            run(EVERY[name][0], column)
    assert plain(run(EVERY[name][0], Strings(pa.array([None], pa.binary())))) == [None]


def test_text_is_not_decoded_again() -> None:
    for column in text_forms(["abc", None]):
        with pytest.raises(ValueError, match="text already"):
            run(X.decode(), column)
    assert run(X.decode(), Strings(pa.array([None], pa.string()))).rows() == [None]


# Bad input.


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Values(["a", 5]), "not int"),
        (Values([["a"]]), "not list"),
        (Array(np.arange(3)), "not int"),
        (Values(["a\ud800"]), "surrogate"),
    ],
)
def test_what_is_not_text_is_an_error(column: Column, message: str) -> None:
    for expr, _ in EVERY.values():
        with pytest.raises(ValueError, match=message):
            run(expr, column)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: text(5), "name is a string"),  # type: ignore[arg-type]
        (lambda: X.decode("ignore"), "one of 'strict', 'replace'"),  # type: ignore[arg-type]
        (lambda: X.normalize("nfc"), "one of 'NFC'"),  # type: ignore[arg-type]
        (lambda: X.replace("", "x"), "old is empty"),
        (lambda: X.replace(5, "x"), "old is a text"),  # type: ignore[arg-type]
        (lambda: X.replace("a", None), "new is a text"),  # type: ignore[arg-type]
        (lambda: X.replace("\ud800", "x"), "surrogate"),
        (lambda: X.replace("a", "b", regex=1), "regex is True or False"),  # type: ignore[arg-type]
        (lambda: X.replace("(", "b", regex=True), "missing \\)"),
        (lambda: X.replace("(?=a)", "b", regex=True), "invalid"),
        (lambda: X.replace("a", r"\1", regex=True), "parenthesized"),
        (lambda: X.split(""), "separator is empty"),
        (lambda: X.split(5), "separator is a text"),  # type: ignore[arg-type]
    ],
)
def test_arguments_are_checked_when_written(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        write()


# Through the public face.


def test_the_stream_is_the_same_however_it_is_run() -> None:
    rows = [None if i % 7 == 3 else f" {ODD[i % len(ODD)]} Row {i}\t" for i in range(24)]
    pipeline = (
        sv.from_columns({"x": rows, "bytes": [(x or "").encode() for x in rows]})
        .derive(clean=X.strip().normalize("NFKC").lower().replace("row", "line"))
        .derive(words=text("clean").split(), size=text("clean").length())
        .derive(decoded=text("bytes").decode().upper())
        .batch(5)
    )
    assert_same_stream(
        pipeline, backends=("inline", "threads"), workers=(2,), epochs=1, fresh_process=False
    )


def test_a_bad_row_is_named() -> None:
    pipeline = sv.from_columns({"x": [b"fine", b"b\xffd", b"fine"]}).derive(y=X.decode())
    with pytest.raises(sv.RowError, match="row 0:1 failed") as caught:
        list(pipeline)
    assert "not UTF-8: invalid start byte at byte 1" in str(caught.value)


def test_expressions_load_no_library_of_tokenizers() -> None:
    code = (
        "import sys, silva.operators.text as t; t.text('x').lower().tokenize(str.split)\n"
        "print([m for m in ('tokenizers', 'tiktoken', 'torch', 'pyarrow') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
