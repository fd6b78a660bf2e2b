from __future__ import annotations

import csv
import gzip
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_laws import check_chunked, everything, unit

from silva.errors import PlanError, SourceError
from silva.io.text.csv import read_csv

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
cell = st.text(st.sampled_from('ab,"\n é'), max_size=6)


def write(path, rows, header=("n", "s")):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *rows] if header else rows)
    path.write_text(text.getvalue(), newline="")
    return path


@quick
@given(st.lists(st.tuples(st.integers(-99, 99), cell), max_size=12))
def test_quoted_newlines_are_read_rightly(tmp_path, rows):
    path = write(tmp_path / "x.csv", rows)
    source = read_csv(path, types={"n": "int64", "s": "str"})
    assert source.replays
    assert check_chunked(source) == [{"n": n, "s": s} for n, s in rows]


@quick
@given(st.lists(st.tuples(st.integers(-99, 99), cell), max_size=12), st.integers(1, 40))
def test_byte_ranges_give_the_same_rows_or_refuse(tmp_path, rows, unit_bytes):
    path = write(tmp_path / "x.csv", rows)
    types = {"n": "int64", "s": "str"}
    source = read_csv(path, types=types, quoted_newlines=False, unit_bytes=unit_bytes)
    if any("\n" in s for _, s in rows):
        with pytest.raises(SourceError):
            everything(source)
    else:
        assert check_chunked(source) == [{"n": n, "s": s} for n, s in rows]


@pytest.mark.parametrize("quoted", [True, False])
def test_types_are_inferred_once(tmp_path, quoted):
    write(tmp_path / "a.csv", [(i, "x") for i in range(300_000)])
    write(tmp_path / "b.csv", [(1.5, "y")])
    source = read_csv(tmp_path / "*.csv", quoted_newlines=quoted)
    assert source.types() == {"n": "int64", "s": "str"}
    with pytest.raises(SourceError, match=r"b\.csv.*types="):
        unit(source, source.units() - 1)
    source = read_csv(tmp_path / "*.csv", types={"n": "float64"}, quoted_newlines=quoted)
    assert unit(source, source.units() - 1) == [{"n": 1.5, "s": "y"}]


@pytest.mark.parametrize("quoted", [True, False])
def test_headers_may_differ_in_order_only(tmp_path, quoted):
    write(tmp_path / "a.csv", [(1, "x")])
    write(tmp_path / "b.csv", [("y", 2)], header=("s", "n"))
    source = read_csv(tmp_path / "*.csv", quoted_newlines=quoted)
    assert check_chunked(source) == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]
    write(tmp_path / "c.csv", [("y", 2, 3)], header=("s", "n", "more"))
    with pytest.raises(SourceError, match=r"c.csv has other columns"):
        everything(read_csv(tmp_path / "*.csv", quoted_newlines=quoted))


@pytest.mark.parametrize("quoted", [True, False])
def test_the_forms_that_files_come_in(tmp_path, quoted):
    def rows(content, name="x.csv", **options):
        (tmp_path / name).write_bytes(content)
        return check_chunked(read_csv(tmp_path / name, quoted_newlines=quoted, **options))

    assert rows(b"a;b\r\n1;2\r\n", delimiter=";") == [{"a": 1, "b": 2}]
    assert rows(b"\xef\xbb\xbfa,b\n1,2") == [{"a": 1, "b": 2}]
    assert rows(b"1,2\n3,4\n", header=False) == [{"f0": 1, "f1": 2}, {"f0": 3, "f1": 4}]
    assert rows(b"a,b\n1,2\n", columns=["b"]) == [{"b": 2}]
    assert rows(b"a,b\n") == []
    assert rows(b"") == []
    assert rows(b"a\nx\n\ny\n") == [{"a": "x"}, {"a": ""}, {"a": "y"}]
    assert rows(b"a,b\n1,\n,2\n") == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    assert rows(gzip.compress(b"a,b\n1,2\n"), "x.csv.gz") == [{"a": 1, "b": 2}]


def test_a_wrong_number_of_fields_is_named(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(SourceError, match=r"x.csv cannot be read as CSV.*Expected 2 columns"):
        everything(read_csv(tmp_path / "x.csv"))


def test_wrong_names_and_types_are_named(tmp_path):
    path = write(tmp_path / "x.csv", [(1, "x")])
    with pytest.raises(SourceError, match="has no column 'z'; it has: n, s"):
        read_csv(path, columns=["z"]).columns()
    with pytest.raises(PlanError, match="'number' is not a type"):
        read_csv(path, types={"n": "number"})
    with pytest.raises(PlanError, match="delimiter"):
        read_csv(path, delimiter="ab")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(SourceError, match="two columns called 'a'"):
        read_csv(tmp_path / "twice.csv").columns()
