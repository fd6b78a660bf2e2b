"""Readers that mean harm to a service: what they ask is bounded, answered, and in nobody's way."""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_peers import SECONDS, STATE, Peer, dump
from service_tools import PIPELINES, TOKEN, digests, photos

import silva as sv
from silva.cli import serve
from silva.service import http
from silva.service.shared_runs import _least_wanted

BOUNDED = pytest.mark.attacks("Bounded")
NEVER_HANGS = pytest.mark.attacks(
    "Never hangs, never shortens an epoch, never drops a row silently"
)
STREAM = {"pipeline": "photos"}


@pytest.fixture
def service() -> Iterator[sv.Service]:
    with sv.Service(PIPELINES, workers=0, token=TOKEN) as made:
        yield made


@pytest.fixture
def peer(service: sv.Service) -> Iterator[Peer]:
    with Peer(service) as made:
        yield made


def check_serves(service: sv.Service) -> None:
    """Somebody who means no harm gets all that there is."""
    loader = sv.connect(service.address, "photos", token=service.token)
    assert digests(loader) == digests(PIPELINES["photos"].loader(workers=0))


@BOUNDED
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shards", 10**9), ("shards", -1), ("shards", 0), ("shards", 1.5), ("shards", True),
        ("shards", "3"), ("shards", 10**30), ("shards", None), ("shards", [1]),
        ("epoch", -1), ("epoch", 2**60), ("epoch", 0.5), ("epoch", "0"),
        ("step", -1), ("step", 1e300), ("seed", 10**40), ("seed", "x"),
        ("cursors", []), ("cursors", "all"), ("cursors", 7),
    ],
)  # fmt: skip
def test_numbers_of_a_state_are_checked_before_work_is_done(peer, service, field, value):
    state = sv.connect(service.address, "photos", token=TOKEN).state_dict() | {field: value}
    for path, more in (("open", {}), ("next", {"reader": "r", "part": 0})):
        status, said = peer.ask("POST", f"/v1/{path}", {"stream": STREAM, "state": state, **more})
        assert (status, said["error"]) == (400, "StateError"), said
    assert not service.stats()["runs"], "nothing was begun"


@BOUNDED
@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": STREAM | {"world": 10**9}},
        {"stream": STREAM | {"world": 0}},
        {"stream": STREAM | {"rank": 4, "world": 4}},
        {"stream": STREAM | {"parts": 10**9}},
        {"stream": STREAM | {"parts": 2, "world": 2}},
        {"stream": STREAM | {"seed": 10**30}},
        {"stream": STREAM | {"steps": 0}},
        {"stream": STREAM | {"steps": 10**18}},
        {"stream": {"pipeline": "p" * 100_000}},
        {"stream": STREAM, "epoch": -1},
        {"stream": STREAM, "epoch": 2**60},
    ],
)
def test_ranges_of_a_stream_are_checked_before_work_is_done(peer, service, wrong):
    status, said = peer.ask("POST", "/v1/open", wrong)
    assert status == 400
    assert len(said["message"]) < 10_000
    check_serves(service)


@BOUNDED
def test_a_state_that_is_nested_deep_is_refused(peer, service):
    deep: object = 0
    for _ in range(500):
        deep = [deep]
    body = {"stream": STREAM, "state": STATE | {"cursors": {"0": deep}}}
    assert peer.ask("POST", "/v1/open", body)[1]["error"] == "StateError"
    levels = 200_000
    nested = b'{"stream": {"pipeline": "photos"}, "state": {"a": ' + b"[" * levels + b"]" * levels
    assert peer.ask("POST", "/v1/open", nested + b"}}")[0] == 400
    check_serves(service)


@BOUNDED
def test_streams_by_seed_leave_room_for_others():
    """Each asks for a stream of its own, so there are ever more runs than there may be."""
    with sv.Service(PIPELINES, workers=0, runs=3, token=TOKEN) as service:
        honest = iter(sv.connect(service.address, "photos", token=TOKEN, memory=1))
        found = digests([next(honest)])
        with Peer(service) as peer:
            for seed in range(12):
                stream = STREAM | {"seed": seed}
                _, opened = peer.ask("POST", "/v1/open", {"stream": stream})
                asked = {"stream": stream, "reader": f"r{seed}", "part": 0}
                status, said = peer.ask("POST", "/v1/next", asked | {"state": opened["state"]})
                assert (status, bool(said["items"])) == (200, True)
                assert len(service.stats()["runs"]) <= 3
        assert found + digests(honest) == digests(PIPELINES["photos"].loader(workers=0))
        assert len(service._runs._streams) <= 3, "streams that are over are forgotten"


@BOUNDED
def test_a_reader_that_goes_on_to_another_stream_leaves_the_one_it_had(peer, service):
    for seed in range(8):
        stream = STREAM | {"seed": seed}
        _, opened = peer.ask("POST", "/v1/open", {"stream": stream})
        asked = {"stream": stream, "reader": "one", "part": 0, "state": opened["state"]}
        assert peer.ask("POST", "/v1/next", asked)[0] == 200
    readers = [name for run in service.stats()["runs"] for name in run["readers"]]
    assert len(readers) == 1
    service._runs.end_unwanted()
    assert len(service.stats()["runs"]) == 1, "what nobody reads has ended"


@BOUNDED
def test_the_address_with_most_runs_gives_one_up():
    class Run:
        def __init__(self, address: str, last_request: float, waited: bool = False) -> None:
            self.address, self.last_request, self.is_waited_for = address, last_request, waited

    greedy = [Run("greedy", at, waited=True) for at in range(1, 4)]
    modest = Run("modest", 0.0)
    assert _least_wanted([*greedy, modest], "new") is greedy[0]  # type: ignore[list-item]
    assert _least_wanted([*greedy, modest], "greedy") is modest  # type: ignore[list-item]
    assert _least_wanted(greedy, "greedy") is None  # type: ignore[arg-type]


@BOUNDED
def test_names_of_readers_are_counted(peer, service, monkeypatch):
    monkeypatch.setattr("silva.service.shared_run._READERS", 8)
    _, opened = peer.ask("POST", "/v1/open", {"stream": STREAM})
    for number in range(40):
        asked = {"stream": STREAM, "reader": f"r{number}", "part": 0, "state": opened["state"]}
        assert peer.ask("POST", "/v1/next", asked)[0] == 200
    (run,) = service.stats()["runs"]
    assert len(run["readers"]) <= 9
    asked["reader"] = "r" * 10_000
    assert peer.ask("POST", "/v1/next", asked)[0] == 400


@NEVER_HANGS
def test_a_question_that_comes_byte_by_byte_is_cut_off(service, monkeypatch):
    monkeypatch.setattr(http, "_WHOLE", 0.3)
    question = b"POST /v1/open HTTP/1.1\r\nX: " + b"x" * 60_000
    ends = []

    def dribble() -> None:
        with Peer(service) as peer:
            for byte in question:
                peer.send(bytes([byte]))
                if select.select([peer.socket], [], [], 0.01)[0]:
                    break
            ends.append(peer.is_over())

    slow = [threading.Thread(target=dribble) for _ in range(3)]
    for thread in slow:
        thread.start()
    check_serves(service)
    for thread in slow:
        thread.join(SECONDS)
    assert ends == [True] * 3


@NEVER_HANGS
def test_readers_that_never_read_keep_nobody_waiting(service):
    _, opened = Peer(service).ask("POST", "/v1/open", {"stream": STREAM})
    asked = {"stream": STREAM, "reader": "deaf", "part": 0, "state": opened["state"]}
    body = dump(asked | {"limit": 10**18})
    head = f"POST /v1/next HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}"
    peers = [Peer(service) for _ in range(8)]
    for peer in peers:
        peer.socket.settimeout(0.1)
        try:
            for _ in range(50):
                peer.send(head.encode() + b"\r\n\r\n" + body)
        except TimeoutError:
            pass  # the service has stopped to read from it as well
    check_serves(service)
    service.close()  # comes back
    for peer in peers:
        peer.close()


@BOUNDED
def test_connections_are_counted_and_strangers_make_room():
    with sv.Service(PIPELINES, workers=0, connections=6, token=TOKEN) as service:
        with Peer(service) as known:
            assert known.ask("GET", "/v1/stats")[0] == 200
            silent = [Peer(service) for _ in range(40)]
            check_serves(service)
            assert len(service._server.clients) <= 6
            assert known.ask("GET", "/v1/stats")[0] == 200, "who showed the token was kept"
        for peer in silent:
            peer.close()


@NEVER_HANGS
def test_questions_in_one_go_are_answered_one_by_one(peer, service):
    peer.send(b"GET /health HTTP/1.1\r\n\r\n" * 100)
    assert [peer.answer()[0] for _ in range(100)] == [200] * 100
    check_serves(service)


@BOUNDED
@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\n" + b"X: " + b"x" * 1_000_000,
        b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"GET /" + b"x" * 1_000_000,
        b"\r\n" * 100_000,
        b"x" * 1_000_000,
    ],
)
def test_a_head_without_end_is_cut_off(peer, service, head):
    try:
        peer.send(head)
        assert peer.answer()[0] in (400, 414, 431)
    except (ConnectionError, EOFError):
        pass  # it hung up while we were still talking
    assert peer.is_over()
    check_serves(service)


@NEVER_HANGS
@pytest.mark.parametrize(
    ("question", "status"),
    [
        (b"PUT /v1/next HTTP/1.1\r\n\r\n", 501),
        (b"DELETE /v1/next HTTP/1.1\r\n\r\n", 501),
        (b"__class__ /v1/next HTTP/1.1\r\n\r\n", 501),
        (b"GET /health HTTP/2.0\r\n\r\n", 505),
        (b"GET /health HTTP/9999999999.1\r\n\r\n", 505),
        (b"GET  / / / HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\r\n\r\n", 400),
        (b"GET /v1/stats HTTP/1.1\r\n\r\n", 401),
        (b"POST /v1/next HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 401),
        (b"POST /v1/next HTTP/1.1\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", 401),
        (b"GET /health HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ],
)
def test_what_is_no_question_is_refused(peer, service, question, status):
    peer.send(question)
    found, said = peer.answer()
    assert found == status
    assert said["error"] == "ServiceError"
    assert peer.is_over()
    check_serves(service)


@NEVER_HANGS
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Content-Length: 2", "Content-Length: 2"], 411),
        (["Content-Length: 2", "Content-Length: 40"], 411),
        (["Content-Length: +2"], 411),
        (["Content-Length: 0x2"], 411),
        (["Content-Length: -2"], 411),
        (["Content-Length: 2_0"], 411),
        (["Content-Length: 2, 2"], 411),
        (["Content-Length: " + "9" * 30], 413),
        (["Content-Length: 5000000"], 413),
        ([], 411),
        (["Transfer-Encoding: chunked"], 400),
        (["Transfer-Encoding: identity", "Content-Length: 2"], 400),
    ],
)
def test_lengths_that_can_be_read_in_two_ways_are_refused(peer, service, headers, status):
    assert peer.ask("POST", "/v1/open", None, *headers)[0] == status
    assert peer.is_over()
    check_serves(service)


@NEVER_HANGS
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/stats"), ("POST", "/v1/open")])
def test_a_fault_of_the_service_is_answered_and_logged(service, monkeypatch, caplog, method, path):
    def fails(*given: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(service, path.rpartition("/")[2], fails)
    body = None if method == "GET" else {"stream": STREAM}
    with Peer(service) as peer, caplog.at_level(logging.ERROR, "silva.service"):
        for _ in range(2):  # on the same connection
            status, said = peer.ask(method, path, body)
            assert (status, said["error"]) == (500, "ServiceError")
            assert "ZeroDivisionError: inside" in said["message"]
    assert "ZeroDivisionError" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.attacks("Data is never code")
def test_the_token_is_shown_only_where_it_was_made_here(tmp_path: Path, monkeypatch, capsys):
    file = tmp_path / "it.py"
    file.write_text("import silva as sv\nit = sv.from_columns({'x': range(4)}).batch(2)\n")
    monkeypatch.setattr(sv.Service, "wait", lambda service: None)
    monkeypatch.setenv("SILVA_TOKEN", TOKEN)
    assert serve(f"{file}:it", workers=0) == 0
    said = capsys.readouterr()
    assert "token of $SILVA_TOKEN" in said.out
    assert TOKEN not in said.out + said.err
    monkeypatch.delenv("SILVA_TOKEN")
    assert serve(f"{file}:it", workers=0) == 0
    assert len(capsys.readouterr().out.split()[-1]) > 40


@NEVER_HANGS
def test_a_handshake_that_never_ends_keeps_nobody_waiting(tmp_path: Path):
    from service_tools import self_signed

    certificate, key = self_signed(tmp_path)
    with sv.Service({"it": photos()}, certificate=(certificate, key), workers=0) as service:
        port = int(service.address.rpartition(":")[2])
        mute = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        mute[0].sendall(b"\x16\x03\x01")
        mute[1].sendall(b"GET /health HTTP/1.1\r\n\r\n")
        address = f"https://localhost:{port}"
        loader = sv.connect(address, "it", token=service.token, certificate=certificate)
        assert digests(loader) == digests(photos().loader(workers=0))
    for one in mute:  # the service has closed, with all of its threads
        one.close()
