"""Attacks on the shared memory between a service and its readers on one machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_peers import SECONDS
from service_tools import digests

import silva as sv
from silva.columns.serial.batch_codec import encode_batch
from silva.service import http as service_http
from silva.service import same_host
from silva.service.wire import BatchHead, ByteRange

NEVER_HANGS = pytest.mark.attacks(
    "Never hangs, never shortens an epoch, never drops a row silently"
)
BOUNDED = pytest.mark.attacks("Bounded")
CODE = pytest.mark.attacks("Data is never code")
SIZE = 1 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def memfd(size: int = SIZE, seals: int = SEALS) -> int:
    file = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def pipe(folder: Path) -> int:
    return os.pipe()[0]


def ordinary(folder: Path) -> int:
    (folder / "file").write_bytes(b"secret" * SIZE)
    return os.open(folder / "file", os.O_RDONLY)


def fifo(folder: Path) -> int:
    os.mkfifo(folder / "fifo")
    return os.open(folder / "fifo", os.O_RDWR)


def tmpfs(folder: Path) -> int:
    file = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
    os.ftruncate(file, SIZE)
    return file


FILES: dict[str, Callable[[Path], int]] = {
    "a pipe": pipe,
    "a file on a disk": ordinary,
    "a named pipe": fifo,
    "a device": lambda folder: os.open("/dev/zero", os.O_RDONLY),
    "a folder": lambda folder: os.open(folder, os.O_RDONLY),
    "a socket": lambda folder: socket.socket().detach(),
    "a file of /dev/shm": tmpfs,
    "a memfd that may shrink": lambda folder: memfd(seals=fcntl.F_SEAL_GROW),
    "a memfd that is too small": lambda folder: memfd(SIZE - 1),
    "an empty memfd": lambda folder: memfd(0),
}


def received(files: list[int]) -> same_host.ReceivedFiles:
    """What a reader has after these files came with a byte."""
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        socket.send_fds(one, [b"x"], files)
        found = same_host.ReceivedFiles()
        assert found.receive_into(other, bytearray(1)) == 1
        return found


@NEVER_HANGS
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_sealed_memory_is_refused(name: str, tmp_path: Path):
    file = FILES[name](tmp_path)
    found = received([file])
    with pytest.raises(same_host.NoSharedMemory):
        found.read(0, 0, memoryview(bytearray(SIZE)))
    found.close()
    os.close(file)


@CODE
def test_bytes_beyond_a_file_and_files_that_did_not_come_are_refused():
    file = memfd()
    found = received([file])
    for number, offset in ((0, 1), (0, SIZE), (0, 1 << 48), (1, 0), (63, 0)):
        with pytest.raises(same_host.NoSharedMemory):
            found.read(number, offset, memoryview(bytearray(SIZE)))
    found.close()
    os.close(file)


@CODE
def test_a_batch_that_changes_after_it_was_read_stays_as_it_was():
    file = memfd()
    os.pwrite(file, b"a" * SIZE, 0)
    found, into = received([file]), bytearray(SIZE)
    found.read(0, 0, memoryview(into))
    os.pwrite(file, b"b" * SIZE, 0)
    assert into == b"a" * SIZE
    found.close()
    os.close(file)


@BOUNDED
def test_files_beyond_the_limit_are_refused_and_closed():
    file = memfd(0)
    before = len(os.listdir("/proc/self/fd"))
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        found = same_host.ReceivedFiles()
        socket.send_fds(one, [b"x"], [file] * 200)
        with pytest.raises(same_host.NoSharedMemory):
            found.receive_into(other, bytearray(1))
        found.close()
        for _ in range(same_host.MOST_FILES):  # one with each byte
            socket.send_fds(one, [b"x"], [file])
            found.receive_into(other, bytearray(1))
        socket.send_fds(one, [b"x"], [file])
        with pytest.raises(same_host.NoSharedMemory):
            found.receive_into(other, bytearray(1))
        found.close()
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(file)


@BOUNDED
def test_a_reader_maps_a_bounded_amount(monkeypatch):
    monkeypatch.setattr(same_host, "_MAPPED_BYTES", 3 * SIZE)
    files = [memfd() for _ in range(8)]
    found, into = received(files), bytearray(SIZE)
    for number, file in enumerate(files):
        os.pwrite(file, bytes([number]) * SIZE, 0)
        found.read(number, 0, memoryview(into))
        assert into == bytes([number]) * SIZE
    assert len(found._maps) == 3
    found.close()
    for file in files:
        os.close(file)


def rows() -> sv.Pipeline:
    return sv.from_columns({"x": range(64)}).batch(4).derive(y=lambda x: np.outer(x, range(9999)))


@contextlib.contextmanager
def altered(
    monkeypatch: Any, describe: Callable[[ByteRange, same_host.Lent], ByteRange]
) -> Iterator[Any]:
    """A service that describes buffers in shared memory wrongly."""
    right = same_host.Lent.describe

    def wrong(self: same_host.Lent, piece: memoryview) -> ByteRange:
        found = right(self, piece)
        return found if found.file is None else describe(found, self)

    monkeypatch.setattr(same_host.Lent, "describe", wrong)
    with sv.Service({"it": rows()}, workers=0) as service:
        yield sv.connect(service.address, "it", token=service.token, deadline=SECONDS)


@NEVER_HANGS
@pytest.mark.parametrize("name", FILES)
def test_a_reader_that_gets_wrong_files_continues_over_http(name: str, tmp_path: Path, monkeypatch):
    file = FILES[name](tmp_path)

    def describe(found: ByteRange, lent: same_host.Lent) -> ByteRange:
        lent.files[:] = [file]
        return ByteRange(found.bytes, 0, SIZE - 1)

    with altered(monkeypatch, describe) as loader:
        assert digests(loader) == digests(rows().loader(workers=0))
    os.close(file)


@CODE
def test_other_bytes_in_shared_memory_are_checked_as_any(monkeypatch):
    bad = bytearray(encode_batch({"x": np.arange(4)}))
    bad[8:40] = b"\xff" * 32
    file = memfd()

    def describe(found: ByteRange, lent: same_host.Lent) -> ByteRange:
        os.pwrite(file, bad, 0)
        lent.files[:] = [file]
        return ByteRange(found.bytes, 0, 0)

    with altered(monkeypatch, describe) as loader, pytest.raises(sv.ServiceError, match="decoded"):
        list(loader)
    os.close(file)


@BOUNDED
@pytest.mark.parametrize(
    "ranges",
    [[ByteRange(5)], [ByteRange(1 << 50)], [ByteRange(4, 0, 0), ByteRange(1)], []],
    ids=["more", "huge", "too much", "none"],
)
def test_ranges_that_do_not_add_up_are_not_used(ranges, monkeypatch):
    def head(size: int | None, moved: Any, described: Any = None) -> BatchHead:
        return BatchHead(size, moved, ranges if described else None)

    monkeypatch.setattr(service_http, "BatchHead", head)
    with sv.Service({"it": rows()}, workers=0) as service:
        loader = sv.connect(service.address, "it", token=service.token, deadline=SECONDS)
        assert digests(loader) == digests(rows().loader(workers=0))


@BOUNDED
def test_a_reader_that_never_comes_back_holds_one_response_only():
    """It asks for batches over the Unix socket, and then for nothing more."""
    with sv.Service({"it": rows()}, workers=0, idle=0.5) as service:
        loader = sv.connect(service.address, "it", token=service.token, memory="1KiB")
        batches = iter(loader)
        next(batches)
        others = sv.connect(service.address, "it", token=service.token)
        assert digests(others) == digests(rows().loader(workers=0))
        loader.close()


@CODE
def test_a_socket_of_another_user_is_not_told_the_token(monkeypatch):
    heard: list[bytes] = []
    name = "0" * 32
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind("\0silva-service-" + name)
        squatter.listen()

        def listen() -> None:
            peer, _ = squatter.accept()
            peer.settimeout(SECONDS)
            heard.append(peer.recv(1 << 16))
            peer.close()

        thread = threading.Thread(target=listen)
        thread.start()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert same_host.connect_local(name, SECONDS) is None
        thread.join(SECONDS)
    assert heard == [b""]
