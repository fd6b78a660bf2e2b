"""The laws that every source obeys, and rows in plain Python for comparing."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np

from silva.columns import Column


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def rows_of(columns: dict[str, Column]) -> list[dict[str, Any]]:
    lists = {name: [plain(x) for x in column.rows()] for name, column in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def unit(source: Any, number: int, start: int = 0, columns: Any = None) -> list[dict[str, Any]]:
    columns = source.columns() if columns is None else columns
    rows = []
    for run in source.open(number, start, columns):
        assert list(run) == (list(columns) or [""])
        assert len({len(column) for column in run.values()}) == 1
        assert len(next(iter(run.values()))) > 0
        rows += rows_of(run)
    return rows


def everything(source: Any) -> list[dict[str, Any]]:
    if source.access == "indexed":
        return rows_of(source.read(np.arange(source.length()), source.columns()))
    return [row for number in range(source.units()) for row in unit(source, number)]


def check_chunked(source: Any) -> list[dict[str, Any]]:
    """Any (unit, start) gives the tail of the unit; fewer columns give the same values."""
    travelled = cloudpickle.loads(cloudpickle.dumps(source))
    assert travelled.columns() == source.columns()
    assert travelled.units() == source.units()
    assert travelled.fingerprint() == source.fingerprint()
    assert source.types().keys() <= set(source.columns())
    assert isinstance(source.describe(), str)
    whole = []
    counts = source.unit_rows()
    for number in range(source.units()):
        rows = unit(source, number)
        assert counts is None or counts[number] == len(rows)
        starts = sorted(
            {0, 1, len(rows) // 2, len(rows) - 1, len(rows)} & set(range(len(rows) + 1))
        )
        for start in starts:
            assert unit(source, number, start) == rows[start:]
            assert len(unit(source, number, start, ())) == len(rows) - start
        assert unit(travelled, number) == rows
        for name in source.columns():
            assert unit(source, number, 0, (name,)) == [{name: row[name]} for row in rows]
        whole += rows
    assert source.length() in (None, len(whole))
    return whole


def check_indexed(source: Any, picks: list[list[int]] | None = None) -> list[dict[str, Any]]:
    """Any list of rows is picked from the whole; fewer columns give the same values."""
    travelled = cloudpickle.loads(cloudpickle.dumps(source))
    assert travelled.columns() == source.columns()
    assert travelled.fingerprint() == source.fingerprint()
    whole = everything(source)
    count = len(whole)
    assert source.length() == count == travelled.length()
    if picks is None:
        picks = [[], [0], [count - 1, 0, 0], list(range(count))[::-1], list(range(1, count))]
    for pick in picks:
        if count or not pick:
            rows = np.array(pick, dtype=np.int64)
            for reader in (source, travelled):
                assert rows_of(reader.read(rows, source.columns())) == [whole[i] for i in pick]
            assert source.read(rows, ()) == {}
    for name in source.columns():
        alone = source.read(np.arange(count), (name,))
        assert list(alone) == [name]
        assert rows_of(alone) == [{name: row[name]} for row in whole]
    return whole
