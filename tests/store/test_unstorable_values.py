"""Values that files would change, or that Lance cannot write: refused, with column and reason."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import silva as sv
from silva.errors import TableError
from silva.store.files import lance_files

UNSTORABLE = {
    "NaT": lambda k: np.datetime64("NaT", "s"),
    "NaT within an array": lambda k: np.array(["2020", "NaT"], "datetime64[D]"),
    "text array": lambda k: np.array(["a", "bb"]),
    "surrogate": lambda k: "\ud800",
    "complex": lambda k: np.complex64(1),
    "minutes": lambda k: np.timedelta64(5, "m"),
    "big-endian": lambda k: np.array([1, 2], ">i4"),
    "fields": lambda k: np.zeros(2, "i4,f8"),
}


def made(folder) -> sv.Table:
    return sv.Table.create(folder, pa.table({"k": range(4)}), key="k")


@pytest.mark.parametrize("function", UNSTORABLE.values(), ids=UNSTORABLE)
def test_materialize_refuses_what_would_not_come_back(tmp_path, function):
    table = made(tmp_path / "t").derive(v=function)
    before = repr(table.read(["v"]).head(4))
    with pytest.raises(TableError, match=r"'v' .*computed on read"):
        table.materialize("v")
    assert repr(table.read(["v"]).head(4)) == before


@pytest.mark.parametrize(
    "function", [lambda k: np.float16([k, 1]), lambda k: np.datetime64(int(k), "D")]
)
def test_what_comes_back_the_same_is_stored(tmp_path, function):
    table = made(tmp_path / "t").derive(v=function)
    before = repr(table.read(["v"]).head(4))
    table.materialize("v")
    assert repr(sv.Table.open(tmp_path / "t").read(["v"]).head(4)) == before


@pytest.mark.parametrize("values", [np.zeros(4, complex), ["\ud800"] * 4, np.zeros(4, "m8[m]")])
def test_put_refuses_what_arrow_lacks(tmp_path, values):
    with pytest.raises(sv.PlanError, match=r"put: .*'v'"):
        made(tmp_path / "t").put("v", values)


def test_a_panic_of_lance_is_a_table_error_with_the_columns(tmp_path):
    text = pa.array([["a", "b"]], pa.list_(pa.string(), 2))  # Lance panics on it
    with pytest.raises(TableError, match=r"Lance cannot write 'v' \(fixed_size_list"):
        lance_files.write_file(tmp_path, {"v": text})
