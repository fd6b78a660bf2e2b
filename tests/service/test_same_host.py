"""Readers on the service's machine get batches through shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_tools import TOKEN, a_service, digests, photos, process, sentences

import silva as sv
from silva.columns import allocation, empty
from silva.service import http as service_http
from silva.service import same_host
from silva.service.wire import ByteRange
from silva.testing import digest


def large(rows: int = 24) -> sv.Pipeline:
    """Batches of 4 MiB in memory of silva's own, flags, and small columns."""

    def image(x: np.ndarray) -> np.ndarray:
        made = empty((len(x), 1 << 20), np.float32)
        made[:] = x[:, None]
        return made

    return (
        sv.from_columns({"x": range(rows)})
        .batch(1)
        .derive(image=image, even=lambda x: np.repeat(x % 2 == 0, 1 << 17))
    )


@pytest.fixture
def copied(monkeypatch) -> list[int]:
    """The sizes of what readers copied from shared memory."""
    sizes: list[int] = []
    read = same_host.ReceivedFiles.read

    def counted(self: Any, file: int, offset: int, into: memoryview) -> None:
        sizes.append(len(into))
        read(self, file, offset, into)

    monkeypatch.setattr(same_host.ReceivedFiles, "read", counted)
    return sizes


@contextlib.contextmanager
def connected(pipeline: sv.Pipeline, **more: Any) -> Iterator[Any]:
    with sv.Service({"it": pipeline}, workers=0) as service:
        yield sv.connect(service.address, "it", token=service.token, **more)


def small() -> sv.Pipeline:
    """Batches of 32 KiB."""
    return sv.from_columns({"x": range(999)}).batch(32).derive(y=lambda x: np.outer(x, range(128)))


@pytest.mark.parametrize("make", [large, small, photos, sentences])
def test_batches_through_shared_memory_are_those_of_any_loader(make, copied):
    own = make().loader(workers=0)
    with connected(make()) as loader:
        assert [digests(loader) for _ in range(2)] == [digests(own) for _ in range(2)]
    assert bool(copied) is (make in (large, small))


def test_nearly_all_bytes_go_through_shared_memory(copied):
    with connected(large()) as loader:
        total = sum(batch["image"].nbytes + batch["even"].nbytes for batch in loader)
    assert sum(copied) > 0.99 * total


def test_batches_may_be_written_and_stay_as_they_are():
    with connected(large()) as loader:
        kept = list(loader)
        kept[0]["image"][:] = -1
        again = list(loader)
    assert [batch["image"][0, -1] for batch in kept[1:]] == list(range(1, 24))
    assert [batch["image"][0, -1] for batch in again] == list(range(24))


def test_several_readers_get_the_same_batches(copied):
    pipeline = large()
    own = digests(pipeline.loader(workers=0))
    with sv.Service({"it": pipeline}, workers=0, memory="64MiB") as service:
        found: dict[int, Any] = {}

        def read(number: int) -> None:
            loader = sv.connect(service.address, "it", token=service.token, memory="8MiB")
            found[number] = digests(loader)

        threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [found[i] for i in range(3)] == [own] * 3
    assert copied


def test_a_reader_of_another_user_gets_bytes(copied, monkeypatch):
    monkeypatch.setattr(same_host, "is_same_user", lambda connection: False)
    with connected(large()) as loader:
        assert digests(loader) == digests(large().loader(workers=0))
    assert not copied


def test_a_service_without_a_unix_socket_sends_bytes(copied, monkeypatch):
    def refuse(accept: Any) -> None:
        raise OSError("no such sockets")

    monkeypatch.setattr(service_http, "LocalListener", refuse)
    with connected(large()) as loader:
        assert digests(loader) == digests(large().loader(workers=0))
    assert not copied


def test_a_system_without_room_for_files_sends_bytes(copied, monkeypatch):
    monkeypatch.setattr(allocation, "_MOST_SHARED", 0)
    with connected(large()) as loader:
        assert digests(loader) == digests(large().loader(workers=0))
    assert not copied


def test_files_and_sharing_end_with_the_service():
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with connected(large()) as loader:
        assert len(list(loader)) == 24
        assert allocation.is_sharing()
    del loader
    gc.collect()
    assert not allocation.is_sharing()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert "silva-service" not in Path("/proc/net/unix").read_text()


def test_a_service_that_is_killed_leaves_nothing_and_its_reader_continues():
    with process() as (first, address):
        loader = sv.connect(address, "a_service", token=TOKEN, memory="1KiB", deadline=60.0)
        batches = iter(loader)
        got = [next(batches)]
        assert "silva-service" in Path("/proc/net/unix").read_text()
        first.send_signal(signal.SIGKILL)
        first.wait()
        with process(int(address.rsplit(":", 1)[1])):
            got += batches
    assert [digest(batch) for batch in got] == digests(a_service().loader(workers=0))
    assert "silva-service" not in Path("/proc/net/unix").read_text()


def test_memory_that_a_reader_may_still_copy_is_not_used_again():
    owner = object()
    allocation.begin_sharing(owner)
    try:
        for ends, recycled in (("asks again", True), ("disconnects", False)):
            array = empty((2 << 20,), np.uint8)
            lent = same_host.Lent()
            assert lent.describe(array.data) == ByteRange(2 << 20, 0, 0)
            inode = os.fstat(lent.files[0]).st_ino
            if ends == "disconnects":
                lent.abandon()
            del array, lent
            place = allocation.shared_place(empty((2 << 20,), np.uint8))
            assert place is not None
            assert (os.fstat(place.file).st_ino == inode) is recycled, ends
    finally:
        allocation.end_sharing(owner)


def test_only_a_service_is_connected_to():
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("\0" + "a" * 32)
        other.listen()
        for name in ("a" * 32, "", "x", "/run/dbus", "\0" + "a" * 31, "../" + "a" * 29, 7, None):
            assert same_host.connect_local(name, 1.0) is None


@pytest.mark.parametrize("readers", [1, 2])
def test_a_lone_reader_keeps_less_memory_than_several(readers):
    with sv.Service({"it": large(96)}, workers=0) as service:
        loaders = [sv.connect(service.address, "it", token=service.token) for _ in range(readers)]
        for _ in zip(*loaders, strict=True):
            pass
        kept = sum(run["bytes"] for run in service.stats()["runs"])
    assert (kept > 160 << 20) is (readers == 2)
