"""How long until the first batch, with two workers; and how long `import silva` takes.

Imports that a contestant's own setting-up does are outside the clock (a trainer has torch anyway);
so is silva's engine, which `import silva` leaves to the first loader; `import` counts it too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import gil
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload, sizes, sum_of


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    with gil.setting(False) as parameters:  # the number of rows costs nothing here
        yield parameters


def silva_light(rows: int, loops: int) -> Open:
    return gil.silva_loader(rows, 1, workers=2)


def silva_heavy(rows: int, loops: int) -> Open:
    return gil.silva_loader(rows, loops, workers=2)


def dataloader_light(rows: int, loops: int) -> Open:
    return gil.dataloader(rows, 1)


def dataloader_heavy(rows: int, loops: int) -> Open:
    return gil.dataloader(rows, loops)


def start_python(code: str) -> Iterator[list[int]]:
    subprocess.run([sys.executable, "-c", code], check=True)
    yield [0]


def import_silva() -> Open:
    return lambda: start_python("import silva; silva.Loader, silva.from_columns")


def import_torch() -> Open:
    return lambda: start_python("import torch.utils.data")


def import_nothing() -> Open:
    return lambda: start_python("pass")


WORKLOAD = Workload(
    name="startup",
    title=f"Seconds to the first batch of {BATCH}, 2 workers",
    setting=setting,
    contestants=(
        Contestant("silva, light step", silva_light, key="x", group="light"),
        Contestant("DataLoader, light step", dataloader_light, group="light"),
        Contestant("silva, 200 µs a row", silva_heavy, key="x", group="heavy"),
        Contestant("DataLoader, 200 µs a row", dataloader_heavy, group="heavy"),
    ),
    targets=(
        Target("silva, light step", at_most=1, of="DataLoader, light step", metric="first"),
        Target("silva, 200 µs a row", at_most=1, of="DataLoader, 200 µs a row", metric="first"),
    ),
    checksum=sum_of,
    metric="first",
    first_only=True,
)

IMPORT = Workload(
    name="import",
    title="Seconds of a new Python that imports",
    setting=sizes({}, {}),
    contestants=(
        Contestant("nothing", import_nothing, limit=True),
        Contestant("silva", import_silva),
        Contestant("torch.utils.data", import_torch),
    ),
    targets=(Target("silva", at_most=0.3, minus="nothing", metric="first"),),
    checksum=sum_of,
    metric="first",
    warm=True,
    rounds=7,
)
