"""Services that die, stop, lie or are lied to; readers that should not be let in."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from service_tools import TOKEN, a_service, digests, photos, process, self_signed

import silva as sv

EXPECTED = 13


def test_a_service_that_is_killed_and_comes_back_is_not_noticed():
    whole = digests(a_service().loader(workers=0))
    with process() as (served, address):
        port = int(address.rpartition(":")[2])
        loader = sv.connect(address, "a_service", token=TOKEN, memory=1)
        batches = iter(loader)
        taken = digests(itertools.islice(batches, 3))
        served.kill()
        served.wait()
        with process(port):
            taken += digests(batches)
    assert taken == whole


def test_a_service_that_is_gone_is_an_error_after_the_deadline():
    with process() as (served, address):
        loader = sv.connect(address, "a_service", token=TOKEN, memory=1, deadline=2.0)
        batches = iter(loader)
        next(batches)
        served.kill()
        served.wait()
        with pytest.raises(sv.ServiceError, match=r"did not answer for 2 s"):
            digests(batches)
    with pytest.raises(sv.ServiceError, match="did not answer"):
        sv.connect(address, "a_service", token=TOKEN, deadline=0.2)


@pytest.mark.rest
def test_a_service_that_stops_is_an_error_after_the_deadline():
    with process() as (served, address):
        loader = sv.connect(address, "a_service", token=TOKEN, memory=1, deadline=2.0)
        batches = iter(loader)
        next(batches)
        os.kill(served.pid, signal.SIGSTOP)
        with pytest.raises(sv.ServiceError, match="did not answer"):
            digests(batches)
        os.kill(served.pid, signal.SIGCONT)
        again = sv.connect(address, "a_service", token=TOKEN)
        again.load_state_dict(loader.state_dict())
        assert len(digests(again)) == 250 - loader.state_dict()["step"]


@pytest.mark.rest
def test_ctrl_c_ends_the_wait_for_a_service():
    script = """
import sys, threading, signal, os
import silva as sv
def slow(x):
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
with sv.Service({"it": sv.from_columns({"x": range(4)}).derive(y=slow).batch(2)}, workers=1,
                backend="threads") as service:
    for batch in sv.connect(service.address, "it", token=service.token):
        pass
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert b"KeyboardInterrupt" in done.stderr, done.stderr


def test_a_failing_row_is_told_to_the_reader():
    def fails(x):
        if x == 5:
            raise ValueError("five")
        return x

    pipeline = sv.from_columns({"x": range(8)}).derive(y=fails).batch(2)
    with sv.Service({"it": pipeline}, workers=0) as service:
        loader = sv.connect(service.address, "it", token=service.token)
        batches = iter(loader)
        assert [next(batches)["x"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(sv.RowError, match="five") as failed:
            next(batches)
        assert failed.value.key == "0:5"
        assert loader.state_dict()["step"] == 2


def test_what_cannot_be_sent_is_named():
    pipeline = sv.from_columns({"x": range(4)}).derive(y=lambda x: object()).batch(2)
    with (
        sv.Service({"it": pipeline}, workers=0) as service,
        pytest.raises(sv.ColumnError, match=r"'y'.*builtins.object"),
    ):
        digests(sv.connect(service.address, "it", token=service.token))


@pytest.fixture
def service():
    with sv.Service({"it": photos()}, workers=0, token=TOKEN) as made:
        yield made


def test_only_who_has_the_token_is_let_in(service, monkeypatch):
    monkeypatch.delenv("SILVA_TOKEN", raising=False)
    with pytest.raises(sv.PlanError, match="token"):
        sv.connect(service.address, "it")
    with pytest.raises(sv.ServiceError, match="token"):
        sv.connect(service.address, "it", token="x" * 40)
    monkeypatch.setenv("SILVA_TOKEN", TOKEN)
    assert len(digests(sv.connect(service.address, "it"))) == EXPECTED


def test_arguments_that_cannot_be_meant_are_refused(service):
    for address, wrong in (
        ("http://[::1", {}),
        (service.address, {"deadline": "x"}),
        (service.address, {"deadline": True}),
        (service.address, {"certificate": "/nowhere/there.pem"}),
    ):
        with pytest.raises(sv.PlanError, match=r"address|deadline|certificate"):
            sv.connect(address, "it", token=TOKEN, **wrong)


def test_states_and_pipelines_of_others_are_refused(service):
    with pytest.raises(sv.PlanError, match=r"no pipeline 'that'.*'it'"):
        sv.connect(service.address, "that", token=TOKEN)
    with pytest.raises(sv.PlanError, match="fingerprint"):
        photos(7).loader(service=service.address, token=TOKEN)
    loader = sv.connect(service.address, "it", token=TOKEN)
    for state in ({}, {"silva": 1}, photos(7).loader(workers=0).state_dict()):
        with pytest.raises(sv.StateError):
            loader.load_state_dict(state)
    with pytest.raises(sv.PlanError):
        sv.connect(service.address, "it", token=TOKEN, rank=3, world=2)
    assert len(digests(loader)) == EXPECTED


def question(service, path="/v1/next", body=b"{}", **headers):
    host, port = service.address.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("POST", path, body, {"Authorization": f"Bearer {TOKEN}"} | headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


STREAM = {"pipeline": "it"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80",
        b"[" * 100_000,
        b'{"stream": {"pipeline": 3}}',
        json.dumps({"stream": STREAM, "reader": "r", "part": 7, "state": {}}).encode(),
        json.dumps({"stream": STREAM, "reader": "r", "part": 0, "state": {}}).encode(),
        json.dumps(
            {"stream": STREAM | {"rank": -1}, "reader": "r", "part": 0, "state": {}}
        ).encode(),
        json.dumps(
            {"stream": STREAM | {"parts": -1}, "reader": "r", "part": 0, "state": {}}
        ).encode(),
        json.dumps({"stream": STREAM, "reader": "r", "part": 0, "state": {"silva": []}}).encode(),
    ],
)
def test_nonsense_is_answered_and_does_no_harm(service, body):
    status, answer = question(service, body=body)
    assert status == 400
    assert answer["message"]
    assert len(digests(sv.connect(service.address, "it", token=TOKEN))) == EXPECTED


def test_other_questions_are_refused(service):
    assert question(service, path="/v2/next")[0] == 404
    assert question(service, Authorization="Bearer no")[0] == 401
    assert question(service, body=b"x", **{"Content-Length": str(1 << 40)})[0] == 413


def test_connections_that_say_nothing_keep_nobody_waiting():
    with sv.Service({"it": photos()}, workers=0) as service:
        host, port = service.address.removeprefix("http://").split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(40)]
        silent[0].sendall(b"POST /v1/next HTTP/1.1\r\nContent-Le")
        assert len(digests(sv.connect(service.address, "it", token=service.token))) == EXPECTED
    for one in silent:
        one.close()


def test_nothing_is_left_behind():
    before = set(threading.enumerate())
    with sv.Service({"it": photos()}, workers=2, backend="threads") as service:
        batches = iter(sv.connect(service.address, "it", token=service.token))
        next(batches)
    batches.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive(), thread


def test_off_this_machine_all_is_in_cipher(tmp_path):
    with pytest.raises(sv.PlanError, match="needs TLS"):
        sv.Service({"it": photos()}, host="0.0.0.0")
    with pytest.raises(sv.PlanError, match="https"):
        sv.connect("http://10.1.2.3:80", "it", token=TOKEN)
    certificate, key = self_signed(tmp_path)
    with sv.Service({"it": photos()}, host="0.0.0.0", certificate=(certificate, key)) as service:
        port = service.address.rpartition(":")[2]
        address = f"https://localhost:{port}"
        assert service.address.startswith("https://")
        how = {"token": service.token}
        loader = sv.connect(address, "it", certificate=certificate, **how)
        assert digests(loader) == digests(photos().loader(workers=0))
        with pytest.raises(sv.ServiceError, match="not trusted"):
            sv.connect(address, "it", **how)
        with pytest.raises(sv.ServiceError):  # in the open, on a port that speaks in cipher
            sv.connect(f"http://localhost:{port}", "it", deadline=0.3, **how)
