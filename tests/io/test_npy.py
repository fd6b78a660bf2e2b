from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_laws import check_indexed

from silva.columns import Array
from silva.errors import SourceError
from silva.io.arrays import npy
from silva.io.arrays.npy import read_npy

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_many_files_are_one_long_array(tmp_path, counts, data):
    for old in tmp_path.iterdir():
        old.unlink()
    whole = np.arange(sum(counts) * 6, dtype=np.float32).reshape(-1, 2, 3)
    at = 0
    for i, count in enumerate(counts):
        np.save(tmp_path / f"{i}.npy", whole[at : at + count])
        at += count
    source = read_npy(tmp_path)
    rows = st.lists(st.integers(0, max(at - 1, 0)), max_size=8)
    picks = data.draw(st.lists(rows, max_size=3))
    assert [row["array"] for row in check_indexed(source, picks)] == whole.tolist()


def test_a_run_is_a_view_of_the_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100))
    source = read_npy(tmp_path / "x.npy", column="x")
    column = source.read(np.arange(10, 20), ("x",))["x"]
    assert isinstance(column, Array)
    assert not column.data.flags.owndata
    assert not column.data.flags.writeable


def test_few_maps_are_held_at_once(tmp_path):
    files = 2 * npy.MAPS_KEPT
    for i in range(files):
        np.save(tmp_path / f"{i:04}.npy", np.array([i]))
    source = read_npy(tmp_path)
    column = source.read(np.arange(files), ("array",))["array"]
    assert column.rows() == list(range(files))
    assert source._open.cache_info().currsize == npy.MAPS_KEPT


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_file_has_a_column_an_array(tmp_path, save):
    x, text = np.arange(12).reshape(6, 2), np.array(list("abcdef"))
    save(tmp_path / "a.npz", x=x[:4], text=text[:4], f=np.asfortranarray(x[:4]))
    save(tmp_path / "b.npz", x=x[4:], text=text[4:], f=np.asfortranarray(x[4:]))
    source = read_npy(tmp_path)
    assert source.types() == {"text": "str"}
    expected = [
        {"x": a.tolist(), "text": t, "f": a.tolist()} for a, t in zip(x, text.tolist(), strict=True)
    ]
    assert check_indexed(source) == expected


def test_an_empty_array_in_an_npz(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.empty((0, 3)))
    assert check_indexed(read_npy(tmp_path)) == []


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([{}, 1], dtype=object), "Python objects"),
        (np.array(3), "single value"),
        (np.zeros(2, dtype=[("a", "i4")]), "structured type"),
    ],
)
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_what_cannot_be_rows_is_refused(tmp_path, array, message, name):
    (np.save if name == "x.npy" else np.savez)(tmp_path / name, array)
    with pytest.raises(SourceError, match=message) as error:
        read_npy(tmp_path / name).length()
    assert name in str(error.value)


@pytest.mark.parametrize("keep", [0, 5, 50, 200])
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_truncated_file_is_named(tmp_path, keep, name):
    path = tmp_path / name
    (np.save if name == "x.npy" else np.savez)(path, np.arange(1000))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match=name):
        read_npy(path).length()


def test_files_that_do_not_go_together_are_named(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    np.save(tmp_path / "b.npy", np.zeros((2, 4)))
    with pytest.raises(SourceError, match=r"b.npy does not go with .*a.npy"):
        read_npy(tmp_path).length()
    np.savez(tmp_path / "c.npz", x=np.zeros(2), y=np.zeros(3))
    with pytest.raises(SourceError, match="different lengths"):
        read_npy(tmp_path / "c.npz").length()


def test_a_changed_file_is_an_error(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    source = read_npy(tmp_path / "a.npy")
    assert len(source.files.listing) == 1
    np.save(tmp_path / "a.npy", np.zeros(4))
    with pytest.raises(SourceError, match="has changed"):
        source.length()
