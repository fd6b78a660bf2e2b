"""Objects over a line that brings only so much: the plan says so."""

from __future__ import annotations

import pytest
from object_tools import BUCKET, put

import silva as sv

pytest.importorskip("obstore")
pytest.importorskip("moto.server")

pytestmark = pytest.mark.rest

COUNT, SIZE, LINE = 100, 400_000, 20e6


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_more_workers_do_not_widen_a_line_that_is_full(s3, backend):
    put(s3, {f"o/{i:04}": bytes(SIZE) for i in range(COUNT)})
    s3.line = LINE
    rows = sv.read_files(f"s3://{BUCKET}/o/").derive(n=lambda bytes: len(bytes)).batch(8)
    with rows.loader(backend=backend, workers=4) as loader:
        for _ in range(2):
            assert sum(int(batch["n"].sum()) for batch in loader) == COUNT * SIZE
        more = loader.what_if(workers=64)
    assert more.limit.startswith("the network")
    assert more.gain < 4  # sixteen times as many workers
