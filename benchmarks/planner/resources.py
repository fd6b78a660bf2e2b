"""Pipelines that end at what all workers share: memory's bandwidth, a disk, the network."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import silva as sv
from benchmarks.claims import Finding
from benchmarks.measure import Children, Given
from benchmarks.objects import BUCKET, environment, serving

_MEBIBYTE = 1 << 20
_LINE = 100e6
"""Bytes a second."""
_OBJECT = 400_000
_FILE = 512 << 10
_BATCH = 32


def _largest(x: np.ndarray) -> int:
    return int(x.max())


def _length(bytes: bytes) -> int:
    return len(bytes)


def pipeline(resource: str, where: Any) -> sv.Pipeline:
    if resource == "memory":
        rows = np.random.default_rng(0).integers(0, 255, (where, _MEBIBYTE), dtype=np.uint8)
        return sv.from_columns({"x": rows}).derive(y=_largest).select("y").batch(_BATCH)
    if resource == "network":
        environment(where)
        where = f"s3://{BUCKET}/train/*.bin"
    return sv.read_files(where).derive(n=_length).select("n").batch(_BATCH)


def prepare(resource: str, where: Any) -> None:
    """Before an epoch: the system forgets what it has read."""
    if resource != "disk":
        return
    for path in Path(where).iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@contextmanager
def _place(resource: str, rows: int) -> Iterator[Any]:
    """Where its rows are, for as long as they are measured."""
    if resource == "memory":
        yield rows
    elif resource == "network":
        with serving(rows // 2, _OBJECT, 0.005, _LINE) as port:
            yield port
    else:
        with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
            for number in range(2 * rows):
                with open(f"{folder}/{number}.bin", "wb") as file:
                    file.write(os.urandom(_FILE))
                    file.flush()
                    os.fsync(file.fileno())
            yield folder


def findings(children: Children, rows: int, rounds: int) -> Iterator[Finding]:
    for resource in ("memory", "disk", "network"):
        with _place(resource, rows) as where:
            given: Given = {"resource": resource, "where": where}
            found = [children.run("shared", **given) for _ in range(rounds)]
        errors = [error for one in found for error in one["errors"]]
        error = statistics.median(errors) if errors else -1.0
        limits = ", ".join(sorted({one["limit"] for one in found}))
        more = statistics.median(one["more"] for one in found)
        yield Finding(
            f"a pipeline that ends at {resource}: predicted rows a second, of those measured",
            "0.75 to 1.25",
            f"{1 + error:.3g} (of {len(errors)} predictions); by the model, the limit is {limits}, "
            f"and 16 workers would give {more:.2g}×",
            1 + error,
            abs(error) <= 0.25,
        )
