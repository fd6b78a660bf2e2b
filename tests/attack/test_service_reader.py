"""What listens where a service should be: a reader of it fails in time, within its memory, with an
error of silva's."""

from __future__ import annotations

import itertools
import socket
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hostile_peers import OPENED, SECONDS, Misdeed, batches, dump, hostile_server, reply
from service_tools import TOKEN, digests

import silva as sv
from silva.columns.serial.batch_codec import encode_batch
from silva.options import ServiceOptions
from silva.service import connection
from silva.service.connection import Connection
from silva.service.wire import BatchRequest, OpenRequest, StreamKey

NEVER_HANGS = pytest.mark.attacks(
    "Never hangs, never shortens an epoch, never drops a row silently"
)
BOUNDED = pytest.mark.attacks("Bounded")
CODE = pytest.mark.attacks("Data is never code")
GOOD = bytes(encode_batch({"x": np.arange(4)}))


def says(data: bytes) -> Misdeed:
    return lambda peer: peer.sendall(data)


def says_and_hangs_up(data: bytes) -> Misdeed:
    def misdeed(peer: socket.socket) -> None:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_RDWR)

    return misdeed


def for_ever(start: bytes, again: bytes) -> Misdeed:
    """Until the reader hangs up."""

    def misdeed(peer: socket.socket) -> None:
        peer.sendall(start)
        while True:
            peer.sendall(again)

    return misdeed


def dribbles(data: bytes) -> Misdeed:
    """A byte at a time, as slowly as it takes to outlast any single wait."""

    def misdeed(peer: socket.socket) -> None:
        peer.settimeout(0.05)
        for byte in itertools.cycle(data):
            peer.sendall(bytes([byte]))
            try:
                if not peer.recv(1):
                    return
            except TimeoutError:
                pass

    return misdeed


def nothing(peer: socket.socket) -> None:
    peer.settimeout(SECONDS)
    peer.recv(1)


ANYWHERE: dict[str, Misdeed] = {
    "no answer": nothing,
    "hangs up": says_and_hangs_up(b""),
    "garbage": says_and_hangs_up(b"\x00\xff" * 1000),
    "another protocol": says_and_hangs_up(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "endless line": for_ever(b"HTTP/1.1 200 ", b"x" * 65536),
    "endless headers": for_ever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    "endless continue": for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "endless chunks": for_ever(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1000\r\n" + b"x" * 4096 + b"\r\n",
    ),
    "endless body": for_ever(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "dribbled head": dribbles(b"HTTP/1.1 200 OK\r\n"),
    "dribbled headers": dribbles(b"X: y\r\n"),
    "chunked": says(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"%x\r\n%s\r\n0\r\n\r\n" % (len(OPENED), OPENED)
    ),
    "gzip": says(reply(OPENED, more="Content-Encoding: gzip\r\n")),
    "redirect": says(reply(b"", "302 Found", more="Location: http://127.0.0.1:1/\r\n")),
    "no length": says_and_hangs_up(b"HTTP/1.1 200 OK\r\n\r\n" + OPENED),
    "two lengths": says(reply(OPENED, more="Content-Length: 1\r\n")),
    "negative length": says_and_hangs_up(reply(OPENED, length=-5)),
    "too short": says_and_hangs_up(reply(OPENED, length=len(OPENED) + 100)),
    "huge length": says(reply(OPENED, length=10**15)),
    "not JSON": says(reply(b"{" * 100)),
    "deep JSON": says(reply(b"[" * 100_000)),
    "another web server": says(reply(b"<html>", "404 Not Found")),
    "a proxy": says(reply(b"<html>", "502 Bad Gateway")),
    "busy": says(reply(dump({"error": "ServiceError", "message": "busy"}), "503 Busy")),
    "another version": says(
        reply(dump({"error": "ServiceError", "message": "version 9"}), "404 Not Found")
    ),
    "nobody may": says(reply(dump({"error": "ServiceError", "message": "no"}), "401 No")),
}


@NEVER_HANGS
@pytest.mark.parametrize("name", ANYWHERE)
@pytest.mark.parametrize(
    "well", [0, pytest.param(1, marks=pytest.mark.rest)], ids=["at first", "later"]
)
@pytest.mark.filterwarnings("ignore:no service answers")
def test_whatever_is_answered_there_is_an_error_in_time(name: str, well: int):
    with (
        hostile_server(ANYWHERE[name], well) as server,
        pytest.raises(sv.ServiceError, match=r"127\.0\.0\.1|version 9|^no$") as failed,
    ):
        digests(sv.connect(server.address, "it", token=TOKEN, deadline=0.3))
    assert TOKEN not in str(failed.value)


MOVED = {"epoch": 0, "step": 1}
LATER: dict[str, bytes] = {
    "no head": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "a head that is no number": reply(b"{}", more="").replace(b"Head: 2", b"Head: two"),
    "a head of many digits": reply(b"{}").replace(b"Head: 2", b"Head: " + b"9" * 5000),
    "a head longer than all": reply(b"{}", head=10**9),
    "more than was said": batches((4, MOVED), data=b"x" * 100),
    "less than was said": batches((10**12, MOVED), data=b"x"),
    "less than nothing": batches((-1, MOVED), (2, MOVED), data=b"x"),
    "bytes that are none": batches(("9", MOVED)),
    "items that are none": reply(dump({"items": {"a": 1}})),
    "moved to nowhere": batches((1, {"__class__": 1}), data=b"x"),
    "moved to no epoch": batches((1, {"epoch": "soon"}), data=b"x"),
    "moved before the start": batches((1, {"step": -3}), data=b"x"),
    "an empty batch": batches((0, MOVED)),
    "a batch of garbage": batches((100, MOVED), data=b"\xff" * 100),
    "a batch cut short": batches((len(GOOD) - 3, MOVED), data=GOOD[:-3]),
    "a batch of zeros": batches((len(GOOD), MOVED), data=bytes(len(GOOD))),
}


@NEVER_HANGS
@pytest.mark.parametrize("name", LATER)
@pytest.mark.filterwarnings("ignore:no service answers")
def test_batches_that_are_none_are_an_error_in_time(name: str):
    with (
        hostile_server(says(LATER[name]), well=1) as server,
        pytest.raises(sv.SilvaError),
    ):
        digests(sv.connect(server.address, "it", token=TOKEN, deadline=0.3))


@NEVER_HANGS
@pytest.mark.filterwarnings("ignore:no service answers")
@pytest.mark.parametrize(
    "state", [{}, {"epoch": "x"}, {"epoch": -1}, {"epoch": 0, "shards": 1.5}, {"epoch": None}]
)
def test_a_state_that_is_none_is_refused(state: dict[str, Any]):
    opened = reply(dump({"state": state, "length": None}))
    with hostile_server(says(opened)) as server, pytest.raises(sv.ServiceError):
        sv.connect(server.address, "it", token=TOKEN, deadline=0.2)


@BOUNDED
def test_an_answer_larger_than_memory_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(connection, "_LEAST_BYTES", 1000)
    answer = batches((2000, MOVED), data=b"x" * 2000)
    with hostile_server(says(answer), well=1) as server:
        loader = sv.connect(server.address, "it", token=TOKEN, memory="1kB")
        with pytest.raises(sv.ServiceError, match=r"memory="):
            digests(loader)
        assert len(server.asked) == 2, "it is not asked for again"


@CODE
@pytest.mark.parametrize(
    "name", ["annotations", "__name__", "__builtins__", "SystemExit", "os.system", "", "RowError "]
)
def test_an_error_of_an_unknown_name_is_an_error_of_the_service(name: str):
    refused = reply(dump({"error": name, "message": "told"}), "400 Bad Request")
    with (
        hostile_server(says(refused)) as server,
        pytest.raises(sv.ServiceError, match="told") as failed,
    ):
        sv.connect(server.address, "it", token=TOKEN)
    assert type(failed.value) is sv.ServiceError


class Clock:
    """Moves on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@NEVER_HANGS
def test_empty_answers_count_towards_the_deadline():
    clock = Clock()
    with hostile_server(says(reply(dump({"items": []})))) as server:
        options = ServiceOptions(token=TOKEN, deadline=60.0, memory=1 << 20)
        asking = Connection(server.address, options, clock)
        with pytest.raises(sv.ServiceError, match=r"127.*(no batch|did not answer) for 60 s"):
            asking.next(BatchRequest(StreamKey("it"), "r", 0, {}))
        asking.close()
        assert len(server.asked) > 1


def refusing() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@NEVER_HANGS
def test_a_refused_connection_is_told_once_and_then_an_error():
    options = ServiceOptions(token=TOKEN, deadline=5.0, memory=1 << 20)
    asking = Connection(refusing(), options, Clock())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(sv.ServiceError, match=r"127\.0\.0\.1:\d+ did not answer for 5 s"):
            asking.open(OpenRequest(StreamKey("it")))
    assert len(told) == 1
    assert "no service answers at http://127.0.0.1" in str(told[0].message)


@NEVER_HANGS
@pytest.mark.parametrize("where", [refusing, lambda: "http://localhost:1"])
def test_who_does_not_want_to_wait_is_told_at_once(where: Callable[[], str]):
    with pytest.raises(sv.ServiceError, match=r"no service answers at .*wait=False"):
        sv.connect(where(), "it", token=TOKEN, wait=False)


@NEVER_HANGS
def test_closing_ends_a_reader_that_waits_for_an_answer():
    with hostile_server(nothing, well=1) as server:
        loader = sv.connect(server.address, "it", token=TOKEN)
        failed: list[BaseException] = []

        def read() -> None:
            try:
                digests(loader)
            except sv.SilvaError as error:
                failed.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        while len(server.asked) < 2:
            pass
        loader.close()
        assert not [t for t in threading.enumerate() if t.name == "silva-served"]
        reader.join(SECONDS)
        assert "has been closed" in str(failed[0])
