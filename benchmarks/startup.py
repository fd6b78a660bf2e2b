"""How long a new Python takes from nothing to its first batch, and how long `import silva` takes.

A script that is started again and again, a notebook's first cell and a test all wait for the same:
the interpreter, the imports, the loader, its workers and one batch. So `startup` measures a whole
new process: the seconds until it has its first batch, and its CPU seconds until it has ended. Which
of its modules silva loads with `import silva`, and which with the first loader, makes no difference
to either.

A trainer imports torch anyway, and a DataLoader cannot do without it. So the target compares
processes that both import torch and are both given two workers; the others show silva alone,
without workers and with two worker processes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.workload import BATCH, Contestant, Open, Target, Workload, sizes, sum_of

SILVA = """
import silva as sv

rows = sv.from_columns({{"x": range({rows})}}).derive(x=lambda x: x + 1).batch({batch})
with rows.loader({arguments}) as loader:
    print(sum(next(iter(loader))["x"].tolist()), flush=True)
"""
DATALOADER = """
from torch.utils.data import DataLoader

class Rows:
    def __len__(self):
        return {rows}

    def __getitem__(self, index):
        return index + 1

batches = iter(DataLoader(Rows(), {batch}, num_workers=2))
print(int(next(batches).sum()), flush=True)
"""
_IN_PROCESSES = 'workers=2, backend="processes"'
"""With `workers=2` alone, silva starts no process for a step as light as this one."""


def start_python(code: str) -> Iterator[list[int]]:
    """Runs a new Python; yields the number that it prints, and ends when it has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as python:
        assert python.stdout is not None
        yield [int(python.stdout.readline() or 0)]
    if python.returncode:
        raise RuntimeError(f"the new Python ended with {python.returncode}")


def silva_inline(rows: int) -> Open:
    code = SILVA.format(rows=rows, batch=BATCH, arguments="workers=0")
    return lambda: start_python(code)


def silva_processes(rows: int) -> Open:
    code = SILVA.format(rows=rows, batch=BATCH, arguments=_IN_PROCESSES)
    return lambda: start_python(code)


def silva_with_torch(rows: int) -> Open:
    code = SILVA.format(rows=rows, batch=BATCH, arguments="workers=2")
    return lambda: start_python(f"import torch.utils.data\n{code}")


def dataloader(rows: int) -> Open:
    return lambda: start_python(DATALOADER.format(rows=rows, batch=BATCH))


def import_silva() -> Open:
    return lambda: start_python("import silva; silva.Loader, silva.from_columns")


def import_torch() -> Open:
    return lambda: start_python("import torch.utils.data")


def import_nothing() -> Open:
    return lambda: start_python("pass")


WORKLOAD = Workload(
    name="startup",
    title=f"Seconds of a new Python until its first batch of {BATCH}",
    setting=sizes({"rows": 4 * BATCH}, {"rows": 4 * BATCH}),
    contestants=(
        Contestant("silva, inline", silva_inline),
        Contestant("silva, 2 processes", silva_processes),
        Contestant("silva and torch, workers=2", silva_with_torch),
        Contestant("DataLoader, num_workers=2", dataloader),
    ),
    targets=(
        Target(
            "silva and torch, workers=2", at_most=1, of="DataLoader, num_workers=2", metric="first"
        ),
    ),
    checksum=sum_of,
    metric="first",
    warm=True,
    rounds=7,
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
