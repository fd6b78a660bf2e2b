"""All rows of a table once, in batches of 1024: through silva, Lance and HF datasets.

A pass hands out batches, and nothing is done with them:

- silva: a dict of numpy arrays; lists as values and offsets (`Ragged`), of every row or, grouped,
  of distinct rows with an index;
- Lance: an Arrow record batch, of which nothing is converted;
- HF datasets: a dict of numpy arrays, made in the processes of a DataLoader, lists as a matrix;
- HF datasets by hand: Arrow tables, made into numpy arrays, values and offsets in these processes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import silva as sv
from benchmarks.planner.child import cpu

_BATCH = 1024
_PASSES = 12


def scan_silva(path: str, columns: list[str] | None, grouped: bool) -> dict[str, Any]:
    """Without a cache: every pass reads the files."""
    rows = sv.read_table(path, columns=columns).batch(_BATCH, grouped=("hist",) if grouped else ())
    with rows.loader(epochs=_PASSES, cache="off") as loader:
        return _passes(lambda: loader, _PASSES)


def scan_lance(path: str, columns: list[str] | None) -> dict[str, Any]:
    import lance

    rows = lance.dataset(path)
    return _passes(lambda: rows.scanner(columns=columns, batch_size=_BATCH).to_batches(), _PASSES)


def scan_hf(path: str, columns: list[str] | None, by_hand: bool) -> dict[str, Any]:
    import torch.utils.data as data
    from datasets import load_from_disk

    rows = load_from_disk(path)
    rows = rows.select_columns(columns or rows.column_names)
    order = data.BatchSampler(data.SequentialSampler(range(len(rows))), _BATCH, drop_last=False)
    loader: Any = data.DataLoader(
        rows.with_format("arrow" if by_hand else "numpy"),
        batch_size=None,
        sampler=order,
        collate_fn=_as_numpy if by_hand else _as_it_is,
        num_workers=2,
        persistent_workers=True,
    )
    return _passes(lambda: loader, 6 if by_hand else 2)


def _as_it_is(batch: Any) -> Any:
    return batch


def _as_numpy(batch: Any) -> dict[str, Any]:
    found = {}
    for name, column in zip(batch.column_names, batch.columns, strict=True):
        whole = column.combine_chunks()
        lists = hasattr(whole, "offsets")
        found[name] = (
            (whole.flatten().to_numpy(), whole.offsets.to_numpy()) if lists else whole.to_numpy()
        )
    return found


def _passes(batches: Callable[[], Iterable[Any]], count: int) -> dict[str, Any]:
    """Seconds and CPU seconds of a pass, the median of those after the first."""
    seconds, cpus = [], []
    for _ in range(count):
        began, cpu_began = time.perf_counter(), cpu()
        for _ in batches():
            pass
        seconds.append(time.perf_counter() - began)
        cpus.append(cpu() - cpu_began)
    return {"seconds": statistics.median(seconds[1:]), "cpu": statistics.median(cpus[1:])}
