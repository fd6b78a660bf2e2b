from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_laws import check_chunked, everything, unit

from silva.columns import Array, Values
from silva.errors import PlanError, SourceError
from silva.io.text.json import read_json

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
values = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5) | st.lists(st.integers())
)
objects = st.fixed_dictionaries({"a": values}, optional={"b": values, "c d": values})


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@quick
@given(st.lists(objects, max_size=12), st.integers(1, 64))
def test_rows_come_back_whatever_the_units(tmp_path, rows, unit_bytes):
    path = write(tmp_path / "x.jsonl", rows)
    names = dict.fromkeys(key for row in rows for key in row)
    source = read_json(path, unit_bytes=unit_bytes)
    assert source.columns() == tuple(names)
    assert check_chunked(source) == [{n: row.get(n) for n in names} for row in rows]


def test_objects_within_objects_get_dotted_names(tmp_path):
    rows = [
        {"id": 1, "meta": None},
        {"id": 2, "meta": {"x": 1, "deep": {"y": [1, 2]}}, "a.b": "dotted"},
        {"id": 3, "meta": {"x": None}, "void": {}},
    ]
    source = read_json(write(tmp_path / "x.jsonl", rows))
    assert source.columns() == ("id", "meta.x", "meta.deep.y", "a.b", "void")
    assert check_chunked(source) == [
        {"id": 1, "meta.x": None, "meta.deep.y": None, "a.b": None, "void": None},
        {"id": 2, "meta.x": 1, "meta.deep.y": [1, 2], "a.b": "dotted", "void": None},
        {"id": 3, "meta.x": None, "meta.deep.y": None, "a.b": None, "void": None},
    ]


def test_numbers_are_arrays_and_mixtures_are_kept(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"n": 1, "m": 1}, {"n": 2, "m": "two"}])
    (run,) = read_json(path).open(0, 0, ("n", "m"))
    assert isinstance(run["n"], Array)
    assert isinstance(run["m"], Values)


def test_chosen_columns_ignore_other_keys(tmp_path):
    rows = [{"a": 1, "meta": {"x": 1}}, {"a": 2, "late": 5, "meta": {"z": 0}}]
    path = write(tmp_path / "x.jsonl", rows)
    source = read_json(path, columns=["meta", "a", "never"])
    assert check_chunked(source) == [
        {"meta": {"x": 1}, "a": 1, "never": None},
        {"meta": {"z": 0}, "a": 2, "never": None},
    ]
    nested = read_json(path, columns=["meta.x"])
    assert everything(nested) == [{"meta.x": 1}, {"meta.x": None}]


@pytest.mark.parametrize(
    ("late", "message"),
    [
        ({"b": 1}, "unknown field `b`"),
        ({"meta": {"new": 1}}, "unknown key 'meta.new'"),
        ({"a": {"x": 1}}, "unknown key 'a.x'"),
        ({"meta": 7}, "'meta' is 7, not an object"),
    ],
)
def test_a_key_that_comes_late_is_an_error(tmp_path, late, message):
    rows = [{"a": 1, "meta": {"x": 1}}] * 1000 + [late]
    source = read_json(write(tmp_path / "x.jsonl", rows))
    with pytest.raises(SourceError, match=message) as error:
        everything(source)
    assert "columns=" in str(error.value)


@pytest.mark.parametrize(
    "bad", ['{"a": }', "[1]", '{"a": 1} {"a": 2}', '{"a":', "3", '{"a": "\x01"}']
)
def test_a_bad_line_is_named_with_its_offset(tmp_path, bad):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n\n' + bad + "\n")
    with pytest.raises(SourceError, match=r"x.jsonl: the line at byte 10 ") as error:
        unit(read_json(path, columns=["a"]), 0)
    assert bad[:5] in str(error.value)


def test_invalid_utf8_is_an_error(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(SourceError, match="byte 0"):
        unit(read_json(path, columns=["a"]), 0)


def test_blank_lines_windows_ends_and_marks_are_no_rows(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n  \r\n\n{"a": 2}')
    assert check_chunked(read_json(path)) == [{"a": 1}, {"a": 2}]


def test_compressed_and_empty_files(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    (tmp_path / "b.jsonl").write_bytes(b"")
    assert check_chunked(read_json(tmp_path)) == [{"a": 1}, {"a": 2}]
    assert read_json(tmp_path / "b.jsonl").columns() == ()
    assert everything(read_json(tmp_path / "b.jsonl")) == []


def test_columns_is_a_list():
    for wrong in ("ab", [], [""], [3]):
        with pytest.raises(PlanError):
            read_json("x", columns=wrong)
