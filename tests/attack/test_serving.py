"""Endpoints, clients and files that mean harm to a pipeline that answers requests."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hostile_peers import HostileServer, dump, hostile_server

import silva as sv
from silva.serve.models.endpoint.endpoint import Endpoint, EndpointError
from silva.serve.models.model import Answer, Question, Settings
from silva.serve.models.opened import models
from silva.serve.models.prompt import Prompt

CODE, BOUNDED = "Data is never code", "Bounded"
SILENT = "Never hangs, never shortens an epoch, never drops a row silently"
_TOO_MUCH = 33 << 20
"""Bytes: one MiB more than silva reads of a reply."""


@pytest.fixture(autouse=True)
def own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SILVA_ANSWERS", str(tmp_path / "answers"))
    return tmp_path / "answers"


# Endpoints.


def http(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"content-length: {size}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def said(content: Any) -> bytes:
    return dump({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})


def question(text: str) -> Question:
    return Question(Prompt.of("{q}", None).render({"q": text}), Settings())


def asked(server: HostileServer, kind: str = "generate", **arguments: Any) -> Any:
    """What an endpoint of this server comes to: an answer or an error."""
    settings = {"revision": "1", "timeout": 0.5, "deadline": 0.6, **arguments}
    opened = Endpoint(f"{server.address}/v1", "m", **settings).open()
    try:
        if kind == "embed":
            return opened.embed(["a", "b"])[0]
        return opened.generate([question("a")])[0]
    finally:
        opened.close()


def sends(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


GOOD = said("Rome")
REPLIES: dict[str, bytes] = {
    "nothing": http(b""),
    "no JSON": http(b"<html>"),
    "nested": http(b'{"choices": ' + b"[" * 100_000),
    "nested in what nobody reads": http(b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a list": http(b"[1, 2]"),
    "no choice": http(b'{"choices": []}'),
    "choices are an object": http(b'{"choices": {"0": 1}}'),
    "content is a number": http(said(5)),
    "content is null": http(said(None)),
    "usage is text": http(GOOD[:-1] + b', "usage": {"prompt_tokens": "many"}}'),
    "usage is beyond all numbers": http(GOOD[:-1] + b', "usage": {"prompt_tokens": 1e999}}'),
    "no UTF-8": http(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "half a character": http(b'{"choices": [{"message": {"content": "\\ud800"}}]}'),
    "cut": http(GOOD, length=len(GOOD) + 10),
    "gzip that is none": http(GOOD, "content-encoding: gzip"),
    "gzip that is cut": http(gzip.compress(GOOD * 50)[:-20], "content-encoding: gzip"),
    "gzip of too much": http(gzip.compress(bytes(_TOO_MUCH)), "content-encoding: gzip"),
    "a length that is none": b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n" + GOOD,
    "two lengths": http(GOOD, "content-length: 3"),
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"x: " + b"a" * (1 << 20),
    "no HTTP": b"\0" * 1000,
    "a refusal of a megabyte": http(b"x" * (1 << 20), status="400 Bad"),
    "a status that is none": b"HTTP/1.1 999999 OK\r\n\r\n",
    "an instruction to wait for ever": http(b"{}", "retry-after: 1e308", status="503 Full"),
}


@pytest.mark.rest
@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize("name", REPLIES)
def test_a_hostile_reply_is_an_error_of_that_row(name: str) -> None:
    with hostile_server(sends(REPLIES[name])) as server:
        found = asked(server)
    assert isinstance(found, EndpointError), found
    assert len(str(found)) < 1000


@pytest.mark.rest
@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize(
    "data",
    [
        [],
        [{"embedding": [1.0], "index": 0}],
        [{"embedding": [1.0], "index": 0}] * 2,
        [{"embedding": [1.0], "index": 0}, {"embedding": [1.0, 2.0], "index": 1}],
        [{"embedding": [], "index": 0}, {"embedding": [], "index": 1}],
        [{"embedding": ["1"], "index": 0}, {"embedding": [1], "index": 1}],
        [{"embedding": [[1.0]], "index": 0}, {"embedding": [1], "index": 1}],
        [{"embedding": "AAAA", "index": 0}, {"embedding": "AAAA", "index": 1}],
        [{"embedding": [1.0], "index": -1}, {"embedding": [1.0], "index": 0}],
        [{"embedding": [1.0], "index": 1e30}, {"embedding": [1.0], "index": 0}],
    ],
)
def test_hostile_vectors_are_refused(data: Any) -> None:
    with hostile_server(sends(http(dump({"data": data})))) as server:
        assert isinstance(asked(server, "embed"), EndpointError)


@pytest.mark.rest
@pytest.mark.attacks(BOUNDED)
def test_a_reply_is_read_up_to_its_bound() -> None:
    def floods(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
        while True:  # until the client has hung up
            connection.sendall(piece)

    with hostile_server(floods) as server:
        found = asked(server, timeout=60.0, deadline=60.0)
    assert "sent over 33,554,432 bytes" in str(found)


@pytest.mark.rest
@pytest.mark.attacks(SILENT)
def test_a_reply_that_never_ends_is_given_up() -> None:
    def drips(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1\r\n \r\n")
            time.sleep(0.05)  # the endpoint's pace: each byte comes before any idle time-out

    with hostile_server(drips) as server:
        assert isinstance(asked(server), EndpointError)


@pytest.mark.rest
@pytest.mark.attacks(BOUNDED)
@pytest.mark.parametrize("status", ["301 Moved", "307 Again", "308 For Good"])
def test_no_redirect_is_followed_with_the_key(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", "secret-of-the-endpoint")
    with hostile_server(sends(http(GOOD))) as other:
        moved = http(b"", f"location: {other.address}/v1/chat/completions", status=status)
        with hostile_server(sends(moved)) as server:
            found = asked(server, key="ENDPOINT_KEY")
        assert isinstance(found, EndpointError)
        assert not other.asked
    assert "secret-of-the-endpoint" not in repr(found) + "".join(getattr(found, "__notes__", []))


@pytest.mark.attacks(CODE)
def test_what_a_model_says_is_never_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "{question} {0.__class__} %(x)s ${HOME} {{answer}}"
    with hostile_server(sends(http(said(evil)))) as server:
        found = asked(server)
    assert found == Answer(evil)
    second = Prompt.of("{answer}", None).render({"answer": found.text})
    assert second[0].text == evil


# Requests.


@pytest.fixture
def served() -> Iterator[httpx.Client]:
    pipeline = sv.requests("x").derive(y=lambda x: x)
    with pipeline.serve(port=0) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.address, headers=headers, timeout=60) as client:
            yield client


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "NaN": b'{"x": NaN}',
    "infinity": b'{"x": -Infinity}',
    "beyond all floats": b'{"x": 1e999}',
    "a huge number": b'{"x": ' + b"9" * 5000 + b"}",
    "nested": b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"x": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "nested without end": b'{"x": ' + b"[" * 100_000,
    "beyond 64 bits": b'{"x": 18446744073709551616}',
    "twice": b'{"x": 1, "x": 2}',
    "half a character": b'{"x": "\\ud800"}',
    "half a character as a key": b'{"x": {"\\udfff": 1}}',
    "no UTF-8": b'{"x": "\xed\xa0\x80\xff"}',
    "a byte order mark": b'\xef\xbb\xbf{"x": 1}',
    "UTF-16": '{"x": 1}'.encode("utf-16"),
    "zero bytes": b'{"x": "\\u0000"}',
    "other columns": b'{"x": 1, "y": 2, "__class__": "os.system"}',
    "a pickle": b"\x80\x04\x95\x00.",
    "a long key": b'{"x": 1, "' + b"k" * 900_000 + b'": 1}',
    "many keys": dump({f"k{n}": n for n in range(50_000)}),
    "a comment": b'{"x": 1} // more',
    "two objects": b'{"x": 1}{"x": 2}',
}


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_request_gets_a_reply_and_stops_nobody(served: httpx.Client, name: str) -> None:
    reply = served.post("/", content=BODIES[name])
    assert reply.status_code in (200, 413, 422), reply.text[:300]
    assert len(reply.content) < 10_000 or reply.status_code == 200
    if reply.status_code == 200:
        found = json.loads(reply.content)
        assert found["x"] == found["y"]
    assert served.post("/", json={"x": [1]}).json() == {"x": [1], "y": [1]}


# Files.


class Kept(sv.models.Recorded):
    """A recording whose answers are kept, as a remote model's are."""

    lifetime = None  # type: ignore[assignment]


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize(
    "cell", [b"\xc1", b"", b"\x91" * 5000, "text", 7, b"\x81\xa4text\x01", b"\x81\xa4evil\xa1x"]
)
def test_a_planted_answer_is_an_error_that_names_the_folder(
    own_answers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Any
) -> None:
    (tmp_path / "recorded.json").write_text('{"generate": {"a": "good"}}')
    rows = sv.from_columns({"q": ["a"]})
    answers = rows.derive(a=Kept(str(tmp_path / "recorded.json")).generate("{q}"))
    assert answers.head()[0]["a"] == "good"
    models().close()
    shutil.copytree(own_answers, tmp_path / "planted")
    monkeypatch.setenv("SILVA_ANSWERS", str(tmp_path / "planted"))
    file = sqlite3.connect(tmp_path / "planted" / "answers.sqlite")
    with file:
        file.execute("update answers set value = ?", (cell,))
    file.close()
    with pytest.raises(sv.RowError, match="SILVA_ANSWERS"):
        answers.head()


@pytest.mark.attacks(SILENT)
def test_a_spoilt_index_is_no_fault_of_the_request(tmp_path: Path) -> None:
    index = sv.from_columns({"text": ["a fox"]}).to_index(tmp_path / "i", keyword="text", workers=0)
    asked = sv.requests("q").derive(hits=index.search("q"))
    for part in (tmp_path / "i" / "parts").iterdir():
        part.write_bytes(part.read_bytes() + b"more")
    with asked.serve(port=0) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        reply = httpx.post(server.address, json={"q": "fox"}, headers=headers, timeout=60)
    assert reply.status_code == 502
    assert str(tmp_path) not in reply.text
