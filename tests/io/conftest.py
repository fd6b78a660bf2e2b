"""A real S3 server on loopback, behind a proxy that fails on purpose."""

from __future__ import annotations

import logging
import urllib.request

import pytest
from object_tools import BUCKET, Proxy, running


@pytest.fixture(scope="module")
def moto():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-key")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def s3(moto, environment, monkeypatch):
    """A proxy before an empty bucket, and the environment that leads to it."""
    url = f"http://127.0.0.1:{moto}"
    for method, path in (("POST", "/moto-api/reset"), ("PUT", f"/{BUCKET}")):
        urllib.request.urlopen(urllib.request.Request(url + path, method=method)).close()
    with running(Proxy(moto)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        yield proxy
