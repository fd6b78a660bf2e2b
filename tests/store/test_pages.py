"""Numbers in packed pages come back bit for bit, and damage is found."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silva.columns import Array
from silva.errors import TableError
from silva.store.files.pages import PAGE, PagesReader, numbers, packs_well, write_pages

KINDS = [
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "?",
    "datetime64[D]",
    "datetime64[us]",
    "datetime64[ns]",
    "timedelta64[ms]",
]
LENGTHS = (0, 1, 7, 9, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5, 8 * PAGE, 8 * PAGE + 3)


def values_of(kind: str, count: int, bits: int, seed: int) -> np.ndarray:
    """Numbers of so many random bits: of floats, every kind of NaN among them."""
    rng = np.random.default_rng(seed)
    wide = rng.integers(0, (1 << bits) - 1, count, np.uint64, endpoint=True)
    if kind == "?":
        return wide % 5 == 0
    size = np.dtype(kind).itemsize
    return wide.astype(f"u{size}").view(kind)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(LENGTHS),
    st.integers(1, 64),
    st.integers(0, 99),
    st.data(),
)
def test_numbers_come_back_bit_for_bit(
    kind: str, count: int, bits: int, seed: int, data: st.DataObject
) -> None:
    values = values_of(kind, count, bits, seed)
    place = st.integers(0, max(count - 1, 0))
    some = sorted(data.draw(st.sets(place, max_size=20))) if count else []
    first, last = sorted((data.draw(place), data.draw(place)))
    with tempfile.TemporaryDirectory() as folder:
        file = write_pages(Path(folder), {"x": values, "other": np.arange(count)})
        assert (Path(folder) / file.name).stat().st_size == file.size
        reader = PagesReader(Path(folder) / file.name, ("x",))
        assert reader.rows == count
        for rows in (np.array(some, np.int64), range(first, last + 1 if count else 0)):
            found = reader.take(rows)["x"].data
            assert found.dtype == values.dtype
            assert found.tobytes() == values[np.asarray(rows, np.int64)].tobytes()


def test_which_columns_are_packed() -> None:
    assert numbers(Array(np.arange(3))) is not None
    assert numbers(Array(np.zeros(3, bool))) is not None
    assert numbers(Array(np.arange(3), np.array([True, False, True]))) is None
    assert numbers(Array(np.zeros((3, 2)))) is None


def test_what_zstd_makes_far_less_of_is_left_to_it() -> None:
    rng = np.random.default_rng(0)
    assert packs_well(np.cumsum(rng.integers(0, 1000, 40_000)))
    assert packs_well(np.empty(0))
    text = np.tile(rng.integers(0, 1 << 62, 500), 80)
    assert not packs_well(text), "one long pattern, over and over"


@pytest.mark.parametrize("at", [0, 5000, -1, -12, -20])
def test_a_byte_that_changed_is_found(tmp_path: Path, at: int) -> None:
    file = write_pages(tmp_path, {"x": np.random.default_rng(0).integers(0, 1 << 40, 9000)})
    path = tmp_path / file.name
    contents = bytearray(path.read_bytes())
    contents[at] ^= 1
    path.write_bytes(contents)
    with pytest.raises(TableError, match="is damaged"):
        PagesReader(path).take(range(9000))


@pytest.mark.parametrize("left", [0, 5, 1000, -1])
def test_a_file_that_was_cut_is_found(tmp_path: Path, left: int) -> None:
    file = write_pages(tmp_path, {"x": np.random.default_rng(0).random(9000)})
    path = tmp_path / file.name
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(TableError, match="is damaged"):
        PagesReader(path).take(range(9000))
