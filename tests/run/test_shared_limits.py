"""What a stage takes of disks is measured in the run, and how fast they are beside it."""

from __future__ import annotations

import os
import threading

import pytest

import silva as sv
from silva.cost import disk
from silva.cost import memory_bandwidth as bandwidth
from silva.cost.disk import Disk
from silva.cost.machine import Machine
from silva.io.file_source import files_at
from silva.io.incoming import fetched_here

COUNT, SIZE = 64, 100_000


@pytest.fixture
def cold(tmp_path):
    """Files that the system has forgotten, where it counts what it fetches."""
    for number in range(COUNT):
        (tmp_path / f"{number:02}.bin").write_bytes(os.urandom(SIZE))
    os.sync()
    for path in tmp_path.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    before = fetched_here()
    (tmp_path / "00.bin").read_bytes()
    if fetched_here() == before:
        pytest.skip("what is read here comes from memory, or nobody counts it")
    return tmp_path


def read_all(folder, **how):
    rows = sv.read_files(f"{folder}/*.bin").derive(n=lambda bytes: len(bytes)).batch(4)
    with rows.loader(**how) as loader:
        assert sum(int(batch["n"].sum()) for batch in loader) == COUNT * SIZE
        (lane,) = loader._executor.lanes.values()
        told = str(loader.explain(analyze=True))
    return lane, told


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_bytes_from_the_disk_are_those_of_the_files(cold, backend):
    lane, told = read_all(cold, backend=backend, workers=2)
    assert 0.9 * COUNT * SIZE < lane.stats.came.disk < 4 * COUNT * SIZE  # workers import, too
    assert "from disks" in told


def test_what_is_remembered_is_not_fetched(cold):
    read_all(cold)
    lane, told = read_all(cold)
    assert lane.stats.came.disk < 0.1 * COUNT * SIZE
    assert ("from disks" in told) == bool(lane.stats.came.disk)  # others may read at this moment


def test_a_disk_is_measured_once_by_whoever_asks_first(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_known", {})
    monkeypatch.setattr(disk, "_asked", {})
    (tmp_path / "a").write_bytes(os.urandom(1 << 20))
    measured = []
    monkeypatch.setattr(Disk, "measured", lambda self: measured.append(self) or 1e-9)
    disks = [Disk(files_at(str(tmp_path / "a"))) for _ in range(8)]
    threads = [threading.Thread(target=lambda one=one: one.seconds) for one in disks]
    for thread in threads:
        thread.start()
    for thread in (*threads, *(t for t in threading.enumerate() if t.name == "silva-disk")):
        thread.join()
    assert len(measured) == 1
    assert {one.seconds for one in disks} == {1e-9}


@pytest.fixture
def few_threads(monkeypatch):
    """Only so many more can be started, as where the system has no more to give."""
    left, start = [0], threading.Thread.start

    def limited(thread):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return left


@pytest.mark.parametrize("more", [0, 1])
def test_where_no_threads_can_be_had_nothing_is_measured_and_nobody_waits(
    tmp_path, monkeypatch, few_threads, more
):
    monkeypatch.setattr(disk, "_known", {})
    monkeypatch.setattr(disk, "_asked", {})
    monkeypatch.setattr(Machine, "here", staticmethod(lambda: Machine(2, 1 << 30)))
    (tmp_path / "a").write_bytes(bytes(1 << 20))
    files = files_at(str(tmp_path / "a"))
    few_threads[0] = more
    assert bandwidth._seconds.__wrapped__(20) == 0.0
    few_threads[0] = more
    assert 0 <= Disk(files).measured() < 1
    few_threads[0] = 0
    assert Disk(files).seconds == 0.0


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (0, 4096, 0), (5_000_000, 3)])
def test_any_files_can_be_asked_about(tmp_path, sizes):
    for number, size in enumerate(sizes):
        (tmp_path / str(number)).write_bytes(bytes(size))
    files = files_at([str(tmp_path / str(n)) for n in range(len(sizes))] or [str(tmp_path / "x")])
    if not sizes:
        (tmp_path / "x").touch()
    found = Disk(files)
    assert 0 <= found.measured() < 1
    for path in tmp_path.iterdir():
        path.unlink()
    assert found.measured() == 0.0
    assert found.seconds == 0.0
