"""Google's and Azure's stores, by their own protocols: sources, caches, faults, changed objects.

Google's XML protocol is close enough to that of S3 for the same server to speak it. Azure's is
spoken by Azurite, its maker's own emulator, where that is installed (`npm install -g azurite`).
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
import shutil
import socket
import subprocess
import time
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_tools import BUCKET, put

import silva as sv
from silva.errors import SilvaError, SourceError

obstore = pytest.importorskip("obstore")

pytestmark = pytest.mark.rest

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every Azurite: they are no secret."""


@pytest.fixture
def gs(s3, monkeypatch):
    keys = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    account = keys | {"gcs_base_url": f"http://127.0.0.1:{s3.port}"}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    return f"gs://{BUCKET}"


@pytest.fixture
def azurite():
    command = shutil.which("azurite-blob")
    if command is None:
        pytest.skip("Azurite is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    how = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port)]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen([command, *how], stdout=quiet, stderr=quiet)
    try:
        while server.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def az(azurite, monkeypatch):
    make_container(azurite, BUCKET)
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{azurite}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    return f"az://{BUCKET}"


def make_container(port: int, name: str) -> None:
    """obstore makes none."""
    now = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
    said = "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed = "PUT" + 12 * "\n" + said + f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    mac = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Content-Length"] = "0"
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(mac).decode()}"
    url = f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()


@pytest.fixture(params=["gs", "az"])
def store(request):
    """An empty store of a cloud, by its address."""
    return request.getfixturevalue(request.param)


def keep(address: str, objects: dict[str, bytes]) -> None:
    from obstore.store import from_url

    client = from_url(address, client_options={"allow_http": True})
    for key, data in objects.items():
        obstore.put(client, key, data)


def stream(rows: sv.Pipeline, **how) -> list[int]:
    with rows.loader(**how) as loader:
        return [int(n) for batch in loader for n in batch["n"]]


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_objects_are_listed_and_read(store, backend):
    keep(store, {f"photos/{i:02}.bin": bytes([i]) * 100 for i in range(40)} | {"photos/x.txt": b""})
    rows = sv.read_files(f"{store}/photos/*.bin").derive(n=lambda bytes: bytes[0]).batch(7)
    assert stream(rows, backend=backend, workers=2) == list(range(40))


def test_parts_of_objects_are_read(store):
    sink = pa.BufferOutputStream()
    table = pa.table({"n": list(range(1000)), "other": ["x" * 100] * 1000})
    pq.write_table(table, sink, row_group_size=100)
    keep(store, {"t/a.parquet": sink.getvalue().to_pybytes()})
    rows = sv.read_parquet(f"{store}/t/").filter(sv.col("n") >= 950).select("n").batch(10)
    assert stream(rows) == list(range(950, 1000))


def test_rows_are_kept_and_found_again(store, tmp_path):
    keep(store, {f"o/{i}": bytes([i]) for i in range(9)})
    calls = str(tmp_path / "calls")

    def first(bytes):
        with open(calls, "a") as file:
            file.write(".")
        return bytes[0]

    rows = sv.read_files(f"{store}/o/").derive(n=first).cache(f"{store}/rows").batch(4)
    assert stream(rows, backend="inline") == list(range(9))
    assert stream(rows, backend="inline") == list(range(9))
    assert (tmp_path / "calls").read_text() == 9 * "."


def test_an_object_that_has_changed_is_an_error(store):
    keep(store, {"o/a": b"1234"})
    rows = sv.read_files(f"{store}/o/").derive(n=lambda bytes: len(bytes)).batch(1)
    loader = rows.loader()
    assert [len(batch["n"]) for batch in loader] == [1]
    keep(store, {"o/a": b"4321"})
    with pytest.raises(SilvaError, match=r"changed|another"):
        list(loader)


def test_nothing_there_is_an_error_without_keys(store):
    with pytest.raises(SourceError) as error:
        stream(sv.read_files(f"{store}/nothing/*.bin").derive(n=lambda path: 0).batch(1))
    assert KEY not in str(error.value)
    assert f"{store}/nothing" in str(error.value)


def test_faults_that_pass_are_not_seen(s3, gs):
    put(s3, {f"o/{i}": bytes([i]) for i in range(4)})
    for name, fault in zip("0123", ("429", "503", "reset", "truncate"), strict=True):
        s3.faults[name].append(fault)
    rows = sv.read_files(f"{gs}/o/").derive(n=lambda bytes: bytes[0]).batch(4)
    assert stream(rows) == [0, 1, 2, 3]
