"""A served pipeline, a client of it, and connections that send raw bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

import silva as sv

TOKENS = {"ann": "sixteen-chars-ann", "bob": "sixteen-chars-bob"}


@contextmanager
def client(pipeline: sv.Pipeline, **arguments: Any) -> Iterator[httpx.Client]:
    with pipeline.serve(port=0, **arguments) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.address, headers=headers, timeout=30) as found:
            yield found


def shows(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@contextmanager
def connected(http: httpx.Client, head: str, body: bytes = b"") -> Iterator[socket.socket]:
    """A connection on which the beginning of a request was sent."""
    parts = urlsplit(str(http.base_url))
    assert parts.hostname is not None
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=30) as made:
        lines = ["POST / HTTP/1.1", "host: x", f"authorization: {http.headers['authorization']}"]
        made.sendall("\r\n".join([*lines, head, "", ""]).encode() + body)
        yield made


def metric(http: httpx.Client, name: str) -> float:
    """The value of a series; 0 if there is none."""
    lines = http.get("/metrics").text.splitlines()
    found = [line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name]
    return float(found[0]) if found else 0.0
