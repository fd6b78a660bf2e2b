"""Little memory, few descriptors, no shared memory, broken or missing data: the right result, or a
clear error within seconds."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from failure_tools import every_way, inline, run_script

import silva as sv
from silva.testing import batches_of, cut_blocks, digest

LIMITED = """
import resource, signal, sys
import numpy as np
import silva as sv

LIMIT

def wide(x):
    return np.full(100_000, x)

loader = sv.from_columns({"x": range(60)}).derive(y=wide).batch(4).loader(
    backend="processes", workers=2)
seen = []
for batch in loader:
    assert (batch["y"] == batch["x"][:, None]).all()
    seen += batch["x"].tolist()
assert seen == list(range(60))
arena = [k._channel.arena.nbytes for k in loader._executor._pools["processes"]._keepers]
print("done", arena)
"""


@pytest.mark.parametrize(
    "limit",
    [
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    ],
    ids=["shared buffers of 1 MiB", "no shared buffers", "64 descriptors"],
)
def test_with_little_shared_memory_or_few_descriptors_rows_still_arrive(tmp_path: Path, limit):
    text = LIMITED.replace("LIMIT\n", f"signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{limit}\n")
    assert "done" in run_script(tmp_path, text)


def test_with_no_descriptors_left_there_is_a_clear_error(tmp_path: Path):
    text = LIMITED.replace(
        "LIMIT\n",
        "import os, cloudpickle\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "held = [os.dup(0) for _ in range(59 - len(os.listdir('/proc/self/fd')))]\n",
    )
    text += "\n"
    script = text.replace(
        "for batch in loader:",
        "try:\n  list(loader)\nexcept sv.SilvaError as error:\n"
        "  print('clear:', error)\n  sys.exit()\nfor batch in loader:",
    )
    out = run_script(tmp_path, script)
    assert "clear:" in out or "done" in out
    if "clear:" in out:
        assert "open files" in out


def wide(x):
    return np.full(50_000, x)


def test_keeping_every_batch_works_and_does_not_hold_more_shared_memory_than_the_ring():
    pipeline = sv.from_columns({"x": range(240)}).derive(y=wide).batch(4)
    with cut_blocks(pipeline.loader(backend="processes", workers=2), [4]) as loader:
        batches = list(loader)
        keepers = loader._executor._pools["processes"]._keepers
        leased = [len(k._channel.mapped.leased) for k in keepers]
        mapped = [len(k._channel.mapped) for k in keepers]
        assert [digest(b) for b in batches] == inline(pipeline)
        assert all(n <= 8 for n in leased), "leases are bounded"
        assert all(n <= 10 for n in mapped), "and so are shared buffers"
        assert any(leased), "without a copy, as long as there is room"
        for batch in batches:
            batch["y"] += 1  # writable, and nobody else's
        again = list(loader)
        assert [digest(b) for b in again] == inline(pipeline)
        del batches, batch, again
        assert all(not k._channel.mapped.leased for k in keepers), "all given back"


@every_way
def test_memory_held_stays_bounded_when_the_consumer_stops_reading(backend, workers):
    limit = 64 << 20
    row = 1 << 20
    pipeline = (
        sv.from_columns({"x": range(400)}).derive(y=lambda x: np.zeros(row, np.uint8)).batch(2)
    )
    with pipeline.loader(backend=backend, workers=workers, memory="64MiB") as loader:
        for _ in batches_of(loader, 60):
            (lane,) = loader._executor.lanes.values()
            assert lane.stats.most_bytes <= limit
        assert lane.stats.bytes_out >= 60 * 2 * row


@every_way
def test_a_row_larger_than_the_budget_is_admitted_alone(backend, workers):
    def sometimes_huge(x):
        return np.zeros((40 << 20) if x == 20 else 1000, np.uint8)

    pipeline = sv.from_columns({"x": range(40)}).derive(y=sometimes_huge).select("y").batch(1)
    with pipeline.loader(backend=backend, workers=workers, memory="16MiB") as loader:
        sizes = [batch["y"].nbytes for batch in loader]
    assert sizes == [(40 << 20) if i == 20 else 1000 for i in range(40)]


# Broken and missing data.


@every_way
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_a_truncated_file_is_named(kind, shuffled, backend, workers, tmp_path: Path):
    for i in range(3):
        _write(kind, tmp_path / f"part{i}.{kind}", i)
    broken = tmp_path / f"part1.{kind}"
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size * 2 // 3])
    read = sv.read_parquet if kind == "parquet" else sv.read_tar

    def read_all() -> None:
        pipeline = read(str(tmp_path / f"*.{kind}"))
        if shuffled:
            pipeline = pipeline.shuffle(seed=0)
        list(pipeline.batch(4).loader(backend=backend, workers=workers))

    with pytest.raises(sv.SourceError, match="part1"):  # when it is listed, or when it is read
        read_all()


def _write(kind: str, file: Path, number: int) -> None:
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        values = np.random.default_rng(number).integers(0, 1 << 40, 5000)
        pq.write_table(pa.table({"x": values}), file, row_group_size=500)
        return
    member = file.with_suffix(".bin")
    member.write_bytes(bytes(20_000))
    with tarfile.open(file, "w") as tar:
        for i in range(20):
            tar.add(member, f"{i:03}.bin")
    member.unlink()


@every_way
def test_a_glob_that_matches_nothing_is_an_error_that_shows_it(backend, workers, tmp_path: Path):
    with pytest.raises(sv.SourceError, match="no_such"):
        list(
            sv.read_files(str(tmp_path / "no_such_*.jpg"))
            .batch(2)
            .loader(backend=backend, workers=workers)
        )


@every_way
def test_an_empty_source_is_an_empty_stream(backend, workers, tmp_path: Path):
    (tmp_path / "empty.jsonl").write_text("")
    empty = [
        sv.from_columns({"x": np.zeros(0)}).derive(y=lambda x: x),
        sv.from_columns({"x": range(10)}).filter(lambda x: False),
        sv.from_columns({"x": range(10)}).take(0),
        sv.from_columns({"x": range(0)}).shuffle(seed=1).derive(y=lambda x: x),
        sv.from_columns({"x": [[], [], []]}).explode("x"),
    ]
    for pipeline in empty:
        with pipeline.batch(4).loader(backend=backend, workers=workers) as loader:
            assert list(loader) == []
            assert list(loader) == []


@every_way
def test_a_column_of_empty_lists_is_a_batch_of_empty_rows(backend, workers):
    pipeline = sv.from_columns({"x": range(8)}).derive(y=lambda x: []).batch(4)
    expected = inline(pipeline)
    with pipeline.loader(backend=backend, workers=workers) as loader:
        batches = list(loader)
    assert [digest(b) for b in batches] == expected
    assert [len(row) for row in batches[0]["y"]] == [0, 0, 0, 0]


@every_way
def test_arrays_of_different_shapes_without_pad_are_an_error_with_advice(backend, workers):
    def image(x):
        return np.zeros((x + 1, 3, 3))

    pipeline = sv.from_columns({"x": range(8)}).derive(picture=image)
    loader = pipeline.batch(4).loader(backend=backend, workers=workers)
    with pytest.raises(sv.ColumnError) as raised:
        list(loader)
    assert "'picture'" in str(raised.value)
    assert "pad" in str(raised.value)
    with pipeline.batch(4, pad=0).loader(backend=backend, workers=workers) as loader:
        assert [b["picture"].shape for b in loader] == [(4, 4, 3, 3), (4, 8, 3, 3)]
