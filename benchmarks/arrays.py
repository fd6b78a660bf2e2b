"""Large results from processes: 600 kB a row. Making them is cheap; bringing them over is the work.

The consumer reads one number of every page, as a trainer at least must: memory that is handed over
but not mapped yet would otherwise look free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import BATCH, Contestant, Open, Target, Workload, sizes

SHAPE = (3, 224, 224)
_PAGE = 4096 // 4
"""Numbers in a page."""


def make(i: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.full(shape, i, np.float32)


def one_number_a_page(batch: Any) -> float:
    numbers = np.asarray(batch).reshape(len(batch), -1)
    return float(numbers[:, ::_PAGE].sum(dtype=np.float64))


def dataloader(rows: int) -> Open:
    """Collated in the worker, into shared memory: the tensors are not copied on the way."""
    import torch
    import torch.utils.data as data

    class Rows(data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return rows

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.from_numpy(make(index))

    return lambda: data.DataLoader(Rows(), batch_size=BATCH, num_workers=2)


def silva_loader(rows: int) -> Callable[[], Any]:
    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    numbers = sv.from_columns({"i": range(rows)}).derive(image=lambda i: make(i))
    images = numbers.select("image").batch(BATCH)
    return lambda: images.loader(backend="processes", workers=2)


def silva_processes(rows: int) -> Open:
    return silva_loader(rows)


def silva_tensors(rows: int) -> Open:
    import torch  # noqa: F401

    open_loader = silva_loader(rows)
    return lambda: open_loader().to_torch()


WORKLOAD = Workload(
    name="arrays",
    title="600 kB arrays a row, returned from 2 processes, batches of 32",
    setting=sizes({"rows": 6144}, {"rows": 192}),
    contestants=(
        Contestant("DataLoader, 2 workers", dataloader),
        Contestant("silva, 2 processes", silva_processes, key="image"),
        Contestant("silva, 2 processes, to_torch", silva_tensors, key="image"),
    ),
    targets=(
        Target("silva, 2 processes", at_least=1.5, of="DataLoader, 2 workers"),
        Target("silva, 2 processes, to_torch", at_least=1.5, of="DataLoader, 2 workers"),
    ),
    checksum=one_number_a_page,
)
