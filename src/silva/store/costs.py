"""What a derived column costs, measured on some of its rows: to compute, to read, to store."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silva.columns import Column
from silva.errors import SilvaError
from silva.physical.call import Worker
from silva.profile.speeds import Speeds, disk_speeds
from silva.store.choose import Costs
from silva.store.compute import compute
from silva.store.dedup import choose_kinds
from silva.store.definitions import Recipe
from silva.store.rows import write_part
from silva.store.sizes import column_bytes
from silva.store.source import TableSource
from silva.store.stored import encoded

SAMPLE = 2000
"""Rows that are measured."""
_HOLD = 1.0
"""What holding a byte is worth, in times of writing it."""


@dataclass(frozen=True)
class Measured:
    costs: Costs
    failed: str | None = None
    """Why it could not be measured, or cannot be stored."""


def measure(source: TableSource, name: str, recipe: Recipe) -> Measured:
    """The costs of a column that `source` gives, from a run of rows in its middle."""
    count = source.length()
    taken = min(count, SAMPLE)
    if not taken or recipe.step is None:
        why = "there are no rows" if recipe.step else "this program does not have its function"
        return Measured(Costs(0, 0, 0, 0, 0), why)
    start = (count - taken) // 2
    rows = np.arange(start, start + taken)
    speeds = disk_speeds(Path(source.path))
    try:
        source.inputs_of(rows[:1], recipe)  # opens the files
        before = time.perf_counter()
        inputs = source.inputs_of(rows, recipe)
        began = time.perf_counter()
        into = tuple(dict(recipe.parts))
        made = compute(recipe.step, into, inputs, taken, Worker(shares_generators=False))
        spent = time.perf_counter() - began
        stored = _stored_bytes(name, recipe.fingerprint, made[name])
    except SilvaError as error:
        return Measured(Costs(0, 0, 0, 0, 0), str(error))
    except Exception as error:  # noqa: BLE001  the user's own, which reading will tell
        return Measured(
            Costs(0, 0, 0, 0, 0), f"it fails on a row ({type(error).__name__}: {error})"
        )
    fetched = sum(column.nbytes for column in inputs.values()) * speeds.read
    found = _scaled(spent, began - before + fetched, stored, count / taken, speeds)
    return Measured(found)


def _scaled(spent: float, read: float, stored: float, times: float, speeds: Speeds) -> Costs:
    return Costs(
        compute=spent * times,
        inputs=read * times,
        bytes=stored * times,
        write=stored * times * speeds.write * (1 + _HOLD),
        own=stored * times * speeds.read,
    )


def _stored_bytes(name: str, fingerprint: str, column: Column) -> int:
    import pyarrow as pa

    table = pa.table(encoded(name, fingerprint, column))
    with tempfile.TemporaryDirectory() as folder:
        part = write_part(Path(folder), table, choose_kinds(table))
        return sum(column_bytes(Path(folder), part).values())
