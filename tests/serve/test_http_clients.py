"""Clients that are slow, hang up, or try again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.serve.conftest import Upstream
from tests.serve.http_tools import TOKENS, client, connected, metric, shows

import silva as sv


def wait_for(http: httpx.Client, name: str, value: float) -> None:
    """Reads the metrics until a series has the value; the test's time limit ends it otherwise."""
    while metric(http, name) != value:
        pass


def test_a_slow_body_takes_no_place_and_ends_with_the_deadline() -> None:
    with (
        client(sv.requests("x").derive(y=lambda x: x), most=1, deadline=0.5) as http,
        connected(http, "content-length: 100", b"{") as slow,
    ):
        assert http.post("/", json={"x": 1}).status_code == 200
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        assert http.post("/", json={"x": 1}).status_code == 200


def test_a_body_in_pieces_is_read_to_its_end() -> None:
    with client(sv.requests("x")) as http, connected(http, "content-length: 7", b'{"x"') as slow:
        slow.sendall(b":1}")
        with slow.makefile("rb") as replies:
            assert replies.readline() == b"HTTP/1.1 200 OK\r\n"


def test_a_body_that_is_cut_off_is_never_executed() -> None:
    seen: list[int] = []

    def note(x):
        seen.append(x)
        return x

    with client(sv.requests("x").derive(y=note)) as http:
        with connected(http, "transfer-encoding: chunked", b'7\r\n{"x":1}\r\n'):
            pass  # the client hangs up before the last chunk, which alone says that it is whole
        wait_for(http, "silva_hang_ups_total", 1)
        assert http.post("/", json={"x": 2}).status_code == 200
    assert seen == [2]


def test_a_client_that_hangs_up_cancels_its_request() -> None:
    first, go = threading.Event(), threading.Event()
    seen: list[int] = []

    def wait(x):
        seen.append(x)
        first.set()
        go.wait(timeout=30)
        return x

    with client(sv.requests("x").derive(y=wait)) as http:
        with connected(http, "content-length: 7", b'{"x":0}'):
            first.wait(timeout=30)
            for n in (1, 2, 3):
                with connected(http, "content-length: 7", b'{"x":%d}' % n):
                    wait_for(http, 'silva_in_flight{tenant=""}', 2)
                wait_for(http, "silva_hang_ups_total", n)
        wait_for(http, 'silva_in_flight{tenant=""}', 0)
        go.set()
        assert http.post("/", json={"x": 9}).status_code == 200
    assert seen == [0, 9]  # the others waited for the step, and nobody waited for them


def test_a_hang_up_leaves_an_attempt_to_those_who_still_wait_for_it() -> None:
    first, go = threading.Event(), threading.Event()
    seen: list[int] = []

    def wait(x):
        seen.append(x)
        first.set()
        go.wait(timeout=30)
        return x

    head = "content-length: 7\r\nidempotency-key: k"
    with client(sv.requests("x").derive(y=wait)) as http, ThreadPoolExecutor() as pool:
        with connected(http, head, b'{"x":1}'):
            first.wait(timeout=30)
            key = {"idempotency-key": "k"}
            second = pool.submit(http.post, "/", json={"x": 1}, headers=key)
            wait_for(http, 'silva_in_flight{tenant=""}', 2)
        wait_for(http, "silva_hang_ups_total", 1)
        go.set()
        assert second.result().json() == {"x": 1, "y": 1}
    assert seen == [1]


def test_an_attempt_that_everybody_left_is_made_anew() -> None:
    first, go = threading.Event(), threading.Event()
    seen: list[int] = []

    def wait(x):
        seen.append(x)
        first.set()
        go.wait(timeout=30)
        return len(seen)

    head = "content-length: 7\r\nidempotency-key: k"
    with client(sv.requests("x").derive(y=sv.impure(wait))) as http:
        with connected(http, head, b'{"x":1}'):
            first.wait(timeout=30)
        wait_for(http, 'silva_in_flight{tenant=""}', 0)
        go.set()
        for _ in range(2):
            reply = http.post("/", json={"x": 1}, headers={"idempotency-key": "k"})
            assert reply.json() == {"x": 1, "y": 2}


def test_a_key_belongs_to_one_request_and_one_token() -> None:
    calls: list[int] = []

    def count(x):
        calls.append(x)
        return len(calls)

    with client(sv.requests("x").derive(n=sv.impure(count)), token=TOKENS) as http:
        key = {"idempotency-key": "k"}
        first = http.post("/", json={"x": 1}, headers=key)
        other_spacing = http.post("/", content=b'{ "x" : 1 }', headers=key)
        assert other_spacing.content == first.content
        assert other_spacing.headers["x-request-id"] == first.headers["x-request-id"]
        other = http.post("/", json={"x": 2}, headers=key)
        assert (other.status_code, other.json()["error"]["kind"]) == (422, "key")
        bob = http.post("/", json={"x": 2}, headers={**key, **shows(TOKENS["bob"])})
        assert bob.json() == {"x": 2, "n": 2}


def test_kept_replies_are_bounded_by_their_bytes() -> None:
    calls: list[int] = []

    def count(x):
        calls.append(x)
        return "a" * 10_000

    with client(sv.requests("x").derive(n=sv.impure(count)), kept_bytes=50_000) as http:
        for again in (False, True):
            for x in range(10):
                http.post("/", json={"x": x}, headers={"idempotency-key": str(x)})
            assert len(calls) == (20 if again else 10)  # a long circle forgets each before its turn
        http.post("/", json={"x": 9}, headers={"idempotency-key": "9"})
        assert len(calls) == 20


def test_an_attempt_that_failed_upstream_is_made_again(upstream: Upstream) -> None:
    upstream.script = [400]
    pipeline = sv.requests("q").derive(a=upstream.model().generate("{q}"))
    key = {"idempotency-key": "k"}
    with client(pipeline) as http:
        assert http.post("/", json={"q": "a"}, headers=key).status_code == 502
        assert http.post("/", json={"q": "a"}, headers=key).json() == {"q": "a", "a": "<a>"}


@pytest.mark.parametrize("length", [256, 257])
def test_a_key_has_a_longest_length(length: int) -> None:
    with client(sv.requests("x")) as http:
        reply = http.post("/", json={"x": 1}, headers={"idempotency-key": "k" * length})
    assert reply.status_code == (200 if length == 256 else 422)


def test_a_killed_endpoint_leaves_each_request_one_reply(upstream: Upstream) -> None:
    upstream.script = [0.2] * 4
    model = upstream.model(concurrency=4, deadline=1.0)
    pipeline = sv.requests("q").derive(a=model.generate("{q}"))
    rows = [{"q": f"q{n}"} for n in range(12)]
    with client(pipeline) as http, ThreadPoolExecutor(12) as pool:
        found = [pool.submit(http.post, "/", json=row) for row in rows]
        wait_for(http, 'silva_in_flight{tenant=""}', 12)
        upstream.server.shutdown()
        upstream.server.server_close()
        for row, one in zip(rows, found, strict=True):
            reply = one.result()
            if reply.status_code == 200:
                assert reply.json() == {**row, "a": f"<{row['q']}>"}
            else:
                assert (reply.status_code, reply.json()["error"]["step"]) == (502, "a")
        assert metric(http, 'silva_in_flight{tenant=""}') == 0
        total = sum(metric(http, f'silva_replies_total{{status="{n}"}}') for n in (200, 502))
        assert total == 12
