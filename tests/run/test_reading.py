"""Units are read ahead of need: in order, within bounds, however large or small they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silva.columns import Array, Column
from silva.run.flows import units
from silva.run.flows.units import UnitReader

LARGEST = 3 << 20


class Sizes:
    """A source whose units give runs of so many bytes each."""

    def __init__(self, units: list[list[int]], fails: frozenset[int] = frozenset()) -> None:
        self.units, self.fails = units, fails
        self.reader: UnitReader | None = None
        self.most = 0
        self.opened: list[int] = []

    def describe(self) -> str:
        return "sizes"

    def open(self, unit: int, start: int, columns: Any) -> Iterator[dict[str, Column]]:
        self.opened.append(unit)
        if unit in self.fails:
            raise ValueError(f"unit {unit}")
        for number, size in enumerate(self.units[unit]):
            assert self.reader is not None
            self.most = max(self.most, self.reader._waiting)
            yield {"x": Array(np.full(size, (unit + number) % 251, dtype=np.uint8))}


def reader(source: Sizes, width: int = 2) -> UnitReader:
    runs = [(i, i, 0, None) for i in range(len(source.units))]
    source.reader = UnitReader(source, ("x",), runs, width, deadline=30.0)
    return source.reader


sizes = st.sampled_from([1, 8000, 600_000, LARGEST])


@given(
    st.lists(st.tuples(st.lists(sizes, max_size=7), st.integers(0, 7)), min_size=1, max_size=12),
    st.integers(1, 3),
)
def test_every_run_comes_in_order_and_what_waits_is_bounded(
    plan: list[tuple[list[int], int]], width: int
) -> None:
    source = Sizes([runs for runs, _ in plan])
    for (i, _, _, _), found in reader(source, width):
        runs, taken = plan[i]
        got = []
        for item in found:
            got.append((len(item["x"]), int(item["x"].data[0])))  # type: ignore[attr-defined]
            if len(got) == taken:
                break
        expected = [(size, (i + number) % 251) for number, size in enumerate(runs)]
        assert got == (expected[:taken] if taken else expected)
    near = (width + 1) * units._AHEAD * LARGEST
    assert source.most <= units._AHEAD_BYTES + width * LARGEST + near
    assert source.reader is not None
    assert source.reader._waiting == 0
    assert not any(thread.is_alive() for thread in source.reader._threads)


def test_small_units_are_read_far_ahead_and_large_ones_are_not() -> None:
    for size, far in ((8000, True), (LARGEST, False)):
        source = Sizes([[size]] * 300)
        ahead = reader(source)
        resting, wait = threading.Event(), ahead._room.wait
        ahead._room.wait = lambda wait=wait, resting=resting: (resting.set(), wait())[1]  # type: ignore[method-assign,misc,assignment]
        units = iter(ahead)
        _, found = next(units)
        next(found)
        assert resting.wait(30)
        assert (len(source.opened) > 100) == far
        units.close()  # type: ignore[attr-defined]


def test_after_a_failure_nothing_further_is_read() -> None:
    source = Sizes([[8000]] * 300, fails=frozenset(range(5, 300)))
    units = iter(reader(source))
    for _ in range(5):
        assert len(list(next(units)[1])) == 1
    _, found = next(units)
    with pytest.raises(ValueError, match="unit 5"):
        next(found)
    units.close()  # type: ignore[attr-defined]
    assert len(source.opened) < 20
