"""Advice on storing derived columns: measures their costs on some rows, and chooses."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silva.columns import Column
from silva.cost.speeds import disk_speeds
from silva.errors import SilvaError
from silva.folders import OwnFolder
from silva.physical.stage.call import Worker
from silva.plan.function import Step
from silva.store.derived.columns import compute
from silva.store.derived.definitions import Recipe, read_definition, recipes
from silva.store.derived.storage_choice import Candidate, Costs, StorageChoice, choose
from silva.store.derived.stored import encode_column, is_stored
from silva.store.derived.table_source import TableSource
from silva.store.files.dedup import choose_kinds
from silva.store.files.part_files import column_bytes, write_part
from silva.store.versions.audit import count_reads
from silva.store.versions.manifest import Version, Wish
from silva.store.versions.table_folder import Folder

SAMPLE = 2000
"""Rows that are measured per column."""
_HOLD = 1.0
"""The cost of keeping a byte stored, as a multiple of the cost of writing it."""


def measure(source: TableSource, name: str, recipe: Recipe) -> Costs | str:
    """The costs of a column of `source`, measured on a run of rows in its middle; or why it could
    not be measured, or cannot be stored."""
    count = source.length()
    sampled = min(count, SAMPLE)
    if recipe.step is None:
        return "this program does not have its function"
    if not sampled:
        return "there are no rows"
    start = (count - sampled) // 2
    rows = np.arange(start, start + sampled)
    try:
        source.inputs_of(rows[:1], recipe)  # opens the files
        before = time.perf_counter()
        inputs = source.inputs_of(rows, recipe)
        began = time.perf_counter()
        into = tuple(dict(recipe.parts))
        made = compute(recipe.step, into, inputs, sampled, Worker(shares_generators=False))
        spent = time.perf_counter() - began
        stored = _stored_bytes(name, recipe.fingerprint, made[name])
    except SilvaError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  the user's own, which reading will raise
        return f"it fails on a row ({type(error).__name__}: {error})"
    speeds, times = disk_speeds(Path(source.path)), count / sampled
    fetched = sum(column.nbytes for column in inputs.values()) * speeds.read
    return Costs(
        compute=spent * times,
        inputs=(began - before + fetched) * times,
        bytes=stored * times,
        write=stored * times * speeds.write * (1 + _HOLD),
        own=stored * times * speeds.read,
    )


def _stored_bytes(name: str, fingerprint: str, column: Column) -> int:
    import pyarrow as pa

    table = pa.table(encode_column(name, fingerprint, column))
    with tempfile.TemporaryDirectory() as folder:
        part = write_part(Path(folder), table, choose_kinds(table))
        return sum(column_bytes(OwnFolder(Path(folder)), part).values())


@dataclass(frozen=True)
class Advice:
    """A derived column, and whether to store it."""

    candidate: Candidate
    decision: StorageChoice


def advise(
    folder: Folder, version: Version, steps: Mapping[str, Step], budget: float | None = None
) -> list[Advice]:
    """Which derived columns to store, by expected and observed reads and measured costs."""
    seen = count_reads(folder, time.time())
    candidates = [
        _candidate(folder, version, name, steps, seen)
        for name, fingerprint in dict(version.definitions).items()
        if read_definition(folder, fingerprint).given is None
    ]
    made = choose(candidates, budget)
    return [Advice(c, d) for c, d in zip(candidates, made, strict=True)]


def _candidate(
    folder: Folder,
    version: Version,
    name: str,
    steps: Mapping[str, Step],
    seen: Mapping[str, float],
) -> Candidate:
    found = recipes(folder, version, (name,), steps)
    source = TableSource.of(folder, version).with_columns(found, (name,))
    own = next(r for r in reversed(found) if r.name == name)
    measured = measure(source, name, own)
    costs, failed = (Costs(), measured) if isinstance(measured, str) else (measured, None)
    wish = version.wishes.get(name, Wish())
    unstorable = read_definition(folder, own.fingerprint).unstorable or failed
    stored = any(is_stored(f, own.fingerprint) for f in source.fragments)
    reads = wish.reads + seen.get(name, 0.0)
    return Candidate(name, costs, reads, stored, wish.pin, unstorable)
