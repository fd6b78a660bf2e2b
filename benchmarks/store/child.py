"""One measurement in a process of its own: `python -m benchmarks.store.child NAME JSON`."""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import silva as sv
from benchmarks.planner.child import read_bytes
from benchmarks.store.history import as_of
from benchmarks.store.scans import scan_hf, scan_lance, scan_silva
from benchmarks.store.writers import write_at_once
from silva.store.derived.table_source import TableSource
from silva.store.versions.table_folder import Folder

_BATCH = 1024
_BUCKETS = 100_000
_LONGEST = 40
_EPOCHS = 5
_EXAMPLE = Path(__file__).parents[2] / "examples" / "recommend.py"


def bytes_of_table(path: str, rows: int) -> dict[str, Any]:
    folder = Folder(path)
    source = TableSource.of(folder, folder.head("main"))
    source.read(np.arange(1), ("hist",))
    return _mean_bytes(rows, lambda start: source.read(np.arange(start, start + _BATCH), ("hist",)))


def bytes_of_lists(file: str, rows: int) -> dict[str, Any]:
    from lance.file import LanceFileReader

    reader = LanceFileReader(file, columns=["hist"])
    reader.read_range(0, 1).to_table()
    return _mean_bytes(rows, lambda start: reader.read_range(start, _BATCH).to_table())


def _mean_bytes(rows: int, read: Any) -> dict[str, Any]:
    """Of each batch from the start to the end; the files' ends were read before."""
    starts = range(0, rows - _BATCH, _BATCH)
    before = read_bytes()
    for start in starts:
        read(start)
    return {"bytes": (read_bytes() - before) / len(starts)}


def transform_rows(path: str) -> dict[str, Any]:
    """How often a function of a deduplicated column is called for all rows."""
    runs = 0

    def longest(hist: np.ndarray) -> int:
        nonlocal runs
        runs += 1
        return int(hist.max())

    rows = sv.read_table(path).derive(longest=longest).select("longest").batch(_BATCH)
    for _ in rows.loader(backend="inline"):
        pass
    return {"runs": runs}


def preprocess(path: str, grouped: bool) -> dict[str, Any]:
    """Seconds of a settled epoch."""
    rows = (
        sv.read_table(path)
        .derive(
            hashed=sv.list("hist").hash(_BUCKETS).truncate(_LONGEST),
            shard=sv.list("hist").modulo(1000),
            repeated=_repeated,
            clicked=sv.col("dwell") > 30,
        )
        .select("hashed", "shard", "repeated", "clicked", "items")
    )
    batches = rows.batch(_BATCH, grouped=("hashed", "shard", "repeated") if grouped else ())
    seconds = []
    arguments = {"backend": "processes", "workers": 2, "cache": "off"}
    with batches.loader(epochs=_EPOCHS, **arguments) as loader:
        for _ in range(_EPOCHS):
            began = time.perf_counter()
            for _ in loader:
                pass
            seconds.append(time.perf_counter() - began)
    return {"seconds": statistics.median(seconds[1:])}


def _repeated(hist: np.ndarray) -> int:
    """How many items of a history came before in it."""
    return len(hist) - len(set(hist.tolist()))


def _ways(unchanged: float, steps: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the example defines, and its batches with all histories and with distinct ones."""
    example = runpy.run_path(str(_EXAMPLE))
    size = example["BATCH"]
    log = example["log"](rows=steps * size, unchanged=unchanged, seed=seed)
    every = log.batch(size).loader(workers=0).to_torch()
    distinct = log.batch(size, grouped="hist").loader(workers=0).to_torch()
    return example, {"every": list(every), "distinct": list(distinct)}


def _model(example: dict[str, Any]) -> Any:
    import torch

    torch.manual_seed(0)
    return example["Recommender"]()


def training(unchanged: float, steps: int, seed: int) -> dict[str, Any]:
    """Seconds of a step, forward, backward and update, in turns; the first of each is left out."""
    import torch

    example, ways = _ways(unchanged, steps, seed)
    models = {name: _model(example) for name in ways}
    optimizers = {name: torch.optim.SGD(m.parameters(), lr=0.1) for name, m in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(steps):
        for name in sorted(ways, reverse=bool(number % 2)):
            began = time.perf_counter()
            example["step"](models[name], ways[name][number])
            optimizers[name].step()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(spent[1:]) for name, spent in seconds.items()}


def equality(unchanged: float, steps: int) -> dict[str, Any]:
    """The greatest differences of losses and gradients, batch by batch."""
    example, ways = _ways(unchanged, steps)
    models = {name: _model(example) for name in ways}
    loss, gradients = 0.0, 0.0
    for number in range(steps):
        losses = [example["step"](models[name], ways[name][number]) for name in ways]
        loss = max(loss, float((losses[0] - losses[1]).abs()))
        for a, b in zip(*(m.parameters() for m in models.values()), strict=True):
            apart = (a.grad - b.grad).coalesce().values() if a.grad.is_sparse else a.grad - b.grad
            gradients = max(gradients, float(apart.abs().max()))
    return {"loss": loss, "gradients": gradients}


MEASUREMENTS = {
    f.__name__: f
    for f in (
        bytes_of_table,
        bytes_of_lists,
        transform_rows,
        preprocess,
        training,
        equality,
        scan_silva,
        scan_lance,
        scan_hf,
        write_at_once,
        as_of,
    )
}


def main() -> None:
    found = MEASUREMENTS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
