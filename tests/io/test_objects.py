from __future__ import annotations

import dataclasses
import gzip
import http.server
import io
import json
import logging
import os
import subprocess
import sys
import tarfile
import threading
from collections import deque

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_tools import BUCKET, Proxy, put, running
from source_laws import check_chunked, check_indexed, everything, unit

import silva as sv
from silva.errors import PlanError, SourceError
from silva.io.arrays.arrow import read_arrow
from silva.io.arrays.npy import read_npy
from silva.io.file_source import read_files
from silva.io.lake.parquet import read_parquet
from silva.io.objects.fetching import Patience
from silva.io.tar import read_tar
from silva.io.text.csv import read_csv
from silva.io.text.json import read_json
from silva.io.text.lines import read_lines
from silva.testing import assert_same_stream

obstore = pytest.importorskip("obstore")
moto_server = pytest.importorskip("moto.server")

pytestmark = pytest.mark.rest

QUICK = Patience(answer=0.7, deadline=60.0, pause=0.01)


def quick(source):
    """The same source, less patient."""
    return dataclasses.replace(source, files=dataclasses.replace(source.files, patience=QUICK))


PHOTOS = {
    f"photos/{name}": name.encode()
    for name in ("b/2.jpg", "b/10.jpg", "a/é.jpg", "a/notes.txt", "a/.hidden.jpg", "a/x+y &.jpg")
}


def paths_of(*addresses, suffixes=()):
    from silva.io.file_source import files_at

    return [p.removeprefix(f"s3://{BUCKET}/") for p in files_at(addresses, suffixes).listing.paths]


def test_a_glob_is_listed_bytewise(s3):
    put(s3, PHOTOS)
    found = ["photos/a/x+y &.jpg", "photos/a/é.jpg", "photos/b/10.jpg", "photos/b/2.jpg"]
    assert paths_of(f"s3://{BUCKET}/photos/**/*.jpg") == found
    assert paths_of(f"s3://{BUCKET}/photos", suffixes=(".jpg",)) == found
    assert paths_of(f"s3://{BUCKET}/photos/b/2.jpg") == ["photos/b/2.jpg"]
    assert paths_of(f"s3://{BUCKET}/photos/b/*", f"s3://{BUCKET}/photos/b/2.jpg") == found[2:]


def test_an_empty_object_that_stands_for_a_folder_is_no_row(s3):
    put(s3, {"x/a/1": b"1", "x/empty": b""})
    import urllib.request

    marker = f"http://127.0.0.1:{s3.upstream}/{BUCKET}/x/a/"
    urllib.request.urlopen(urllib.request.Request(marker, method="PUT", data=b"")).close()
    assert paths_of(f"s3://{BUCKET}/x") == ["x/a/1", "x/empty"]


def test_nothing_there_is_an_error_that_names_it(s3):
    with pytest.raises(SourceError, match=r"no object matches 's3://data/none/\*'"):
        read_files(f"s3://{BUCKET}/none/*").length()
    with pytest.raises(SourceError, match=r"there is no object 's3://data/none', nor .* below it"):
        read_files(f"s3://{BUCKET}/none").length()


def test_whole_objects_obey_the_laws(s3):
    put(s3, PHOTOS)
    rows = check_indexed(read_files(f"s3://{BUCKET}/photos/**/*.jpg"))
    assert rows[-1] == {"path": "s3://data/photos/b/2.jpg", "bytes": b"b/2.jpg"}


def test_a_large_object_comes_in_parts(s3):
    data = np.random.default_rng(0).bytes(5 << 20)
    put(s3, {"large": data})
    source = read_files(f"s3://{BUCKET}/large")
    assert source.read(np.array([0]), ("bytes",))["bytes"].rows() == [data]
    assert len(s3.gets("large")) == 3


def test_the_fingerprint_is_known_without_a_download_and_moves_with_the_folder(s3):
    put(s3, PHOTOS | {k.replace("photos", "moved/here"): v for k, v in PHOTOS.items()})
    before = read_files(f"s3://{BUCKET}/photos/**/*.jpg").fingerprint()
    assert read_files(f"s3://{BUCKET}/moved/here/**/*.jpg").fingerprint() == before
    put(s3, {"photos/b/2.jpg": b"b/3.jpg"})  # of the same size
    assert read_files(f"s3://{BUCKET}/photos/**/*.jpg").fingerprint() != before
    assert not s3.gets(".jpg")


def tar_of(samples):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for key, parts in samples.items():
            for extension, data in parts.items():
                member = tarfile.TarInfo(f"{key}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def saved(save, *arguments, **named):
    buffer = io.BytesIO()
    save(buffer, *arguments, **named)
    return buffer.getvalue()


TABLE = pa.table(
    {
        "x": np.arange(20_000),
        "wide": [f"{i:0>64x}"[::-1] for i in range(20_000)],
        "y": np.arange(20_000) % 7 / 2,
    }
)


def parquet_bytes():
    return saved(lambda file: pq.write_table(TABLE, file, row_group_size=5_000))


def arrow_bytes():
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, TABLE.schema) as writer:
        for batch in TABLE.slice(0, 300).to_batches(max_chunksize=100):
            writer.write_batch(batch)
    return sink.getvalue()


LINES = "".join(f"line {i} {'x' * (i % 50)}\n" for i in range(2_000)).encode()
JSON = b"".join(b'{"x": %d, "name": "n%d"}\n' % (i, i) for i in range(500))
CSV = b"x,name\n" + b"".join(b'%d,"n\n%d"\n' % (i, i) for i in range(500))
SAMPLES = {f"{i:03d}": {"txt": b"t%d" % i, "bin": bytes(300) * i} for i in range(40)}

FORMATS = {
    "lines": (read_lines, ("a.txt", LINES), ("b.txt", b"x\ny")),
    "gz": (read_lines, ("a.txt.gz", gzip.compress(LINES)), ("b.txt.gz", gzip.compress(b"z"))),
    "json": (read_json, ("a.jsonl", JSON), ("b.jsonl", JSON[:0])),
    "csv": (read_csv, ("a.csv", CSV), ("b.csv", b"name,x\nn,1\n")),
    "parquet": (read_parquet, ("a.parquet", parquet_bytes()), ("b.parquet", parquet_bytes())),
    "arrow": (read_arrow, ("a.arrow", arrow_bytes()), ("b.arrow", arrow_bytes())),
    "tar": (read_tar, ("a.tar", tar_of(SAMPLES)), ("b.tar", tar_of(SAMPLES))),
    "npy": (
        read_npy,
        ("a.npy", saved(np.save, np.arange(6_000).reshape(2_000, 3))),
        ("b.npy", saved(np.save, np.asfortranarray(np.arange(6).reshape(2, 3)))),
    ),
    "npz": (
        read_npy,
        ("a.npz", saved(np.savez, x=np.arange(50), y=np.ones((50, 2)))),
        ("b.npz", saved(np.savez_compressed, x=np.arange(3), y=np.ones((3, 2)))),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_as_it_does_from_a_disk(s3, tmp_path, monkeypatch, name):
    reader, *files = FORMATS[name]
    put(s3, {f"some/{path}": data for path, data in files})
    for path, data in files:
        (tmp_path / path).write_bytes(data)
    local, remote = reader(str(tmp_path)), reader(f"s3://{BUCKET}/some")
    if remote.access == "indexed":
        assert check_indexed(remote, [[], [0], [7, 3, 3, 1], list(range(40))]) == everything(local)
        return
    assert everything(remote) == everything(local)
    middle = remote.units() // 2
    assert unit(remote, middle, 1) == unit(local, middle, 1)
    assert unit(cloudpickle.loads(cloudpickle.dumps(remote)), 0) == unit(local, 0)


def test_small_units_of_lines_obey_the_laws(s3):
    put(s3, {"a.txt": LINES[:2_000]})
    assert len(check_chunked(read_lines(f"s3://{BUCKET}/a.txt", unit_bytes=700))) > 20


def test_small_units_are_not_a_request_each(s3):
    put(s3, {"a.txt": LINES * 5})
    source = read_lines(f"s3://{BUCKET}/a.txt", unit_bytes=4_000)
    assert source.units() > 50
    assert len(everything(source)) == 10_000
    assert len(s3.gets("a.txt")) < 10


def test_bytes_of_unused_columns_and_row_groups_are_not_fetched(s3):
    data = parquet_bytes()
    put(s3, {"a.parquet": data})
    footer = pq.read_metadata(io.BytesIO(data))

    def bytes_of(group, *columns):
        return sum(footer.row_group(group).column(i).total_compressed_size for i in columns)

    source = read_parquet(f"s3://{BUCKET}/a.parquet")
    assert source.length() == 20_000
    s3.seen.clear()
    assert sum(len(run["x"]) for run in source.open(2, 0, ("x",))) == 5_000
    assert sum(seen.sent for seen in s3.gets("a.parquet")) == bytes_of(2, 0)
    s3.seen.clear()
    pipeline = sv.read_parquet(f"s3://{BUCKET}/a.parquet").filter(sv.col("x") >= 15_000)
    assert pipeline.select("x", "y").count() == 5_000
    read = [seen for seen in s3.gets("a.parquet") if seen.sent != 64 << 10]  # but for the footer
    assert sum(seen.sent for seen in read) <= bytes_of(3, 0, 2)


def numbers(s3):
    put(s3, {f"x/{i:03d}": b"%d" % i for i in range(60)})
    rows = sv.read_files(f"s3://{BUCKET}/x").derive(n=lambda bytes: int(bytes)).select("n")
    return rows.shuffle(seed=3).batch(16)


def test_workers_and_a_state_give_the_stream_of_one_process(s3):
    pipeline = numbers(s3)
    assert_same_stream(
        pipeline, backends=("processes",), workers=(2,), restore=False, fresh_process=False
    )
    with pipeline.loader(backend="threads", workers=2) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [batch["n"].tolist() for batch in batches]
    with pipeline.loader(backend="inline") as loader:
        loader.load_state_dict(state)
        assert [batch["n"].tolist() for batch in loader] == rest


def test_the_stream_is_one_on_every_backend_and_from_every_batch(s3):
    assert_same_stream(numbers(s3))


@pytest.mark.parametrize("fault", ["429", "503", "500", "reset", "silent", "stall", "truncate"])
def test_a_passing_fault_is_not_seen(s3, fault):
    data = np.random.default_rng(1).bytes(300_000)
    put(s3, {"x/1": data, "x/2": data[::-1]})
    source = quick(read_files(f"s3://{BUCKET}/x"))
    s3.faults["1"] = deque([fault, fault])
    rows = source.read(np.array([0, 1]), ("bytes",))["bytes"].rows()
    assert rows == [data, data[::-1]]
    assert not s3.faults["1"]


@pytest.mark.parametrize("fault", ["503", "reset", "silent", "stall", "truncate"])
def test_a_listing_is_whole_in_spite_of_a_fault(s3, fault):
    put(s3, {f"x/{i:02d}": b"%d" % i for i in range(20)})
    s3.faults[BUCKET] = deque([fault, fault])
    assert quick(read_files(f"s3://{BUCKET}/x/*")).length() == 20
    assert not s3.faults[BUCKET]


def test_a_stream_goes_on_after_a_fault(s3):
    data = tar_of({f"{i:03d}": {"bin": np.random.default_rng(i).bytes(100_000)} for i in range(30)})
    put(s3, {"a.tar": data})
    source = quick(read_tar(f"s3://{BUCKET}/a.tar"))
    assert source.columns() == ("key", "bin")
    s3.faults["a.tar"] = deque(["truncate", "", "reset", "503", "", "stall"])
    assert [len(row["bin"]) for row in unit(source, 0)] == [100_000] * 30
    assert not s3.faults["a.tar"]


@pytest.mark.parametrize("fault", ["503", "silent", "truncate"])
def test_a_fault_that_stays_is_an_error_within_the_deadline(s3, fault):
    put(s3, {"x/1": bytes(1000)})
    source = read_files(f"s3://{BUCKET}/x/1")
    files = dataclasses.replace(source.files, patience=Patience(0.1, 0.3, 0.01))
    source = dataclasses.replace(source, files=files)
    assert source.length() == 1
    s3.always = fault
    with pytest.raises(SourceError, match=r"cannot read s3://data/x/1: ") as error:
        source.read(np.array([0]), ("bytes",))
    shown = repr(error.value) + str(error.value.__cause__) + str(error.value.__context__)
    assert "the-key-id" not in shown
    assert "127.0.0.1" not in shown


def test_access_denied_and_a_vanished_object_are_told_at_once(s3):
    put(s3, {"x/1": b"1"})
    source = read_files(f"s3://{BUCKET}/x/1")
    assert source.length() == 1
    s3.faults["1"] = deque(["403"])
    with pytest.raises(SourceError, match=r"s3://data/x/1: access is denied .* \(status 403\)"):
        source.files.read([0])
    s3.faults["1"] = deque(["404"])
    with pytest.raises(SourceError, match=r"s3://data/x/1: it does not exist \(any more\)"):
        source.files.read([0])
    assert len(s3.gets("1")) == 2


@pytest.mark.parametrize(("content", "how"), [(b"other", "ETag"), (b"shorter", "had 5 bytes")])
def test_a_changed_object_is_an_error_that_names_it(s3, content, how):
    put(s3, {"x/1": b"first", "x/2": b"second"})
    source = read_files(f"s3://{BUCKET}/x")
    assert source.length() == 2
    put(s3, {"x/1": content})
    for read in (lambda: source.files.read([0, 1]), lambda: source.files.open(0).read()):
        with pytest.raises(SourceError, match=rf"s3://data/x/1 has changed .*{how}"):
            read()


def test_a_part_that_is_no_longer_there_means_that_the_object_has_changed(s3):
    put(s3, {"large": bytes(3 << 20)})
    source = read_files(f"s3://{BUCKET}/large")
    assert source.length() == 1
    put(s3, {"large": b"short"})
    with pytest.raises(SourceError, match=r"s3://data/large.* has changed since it was listed"):
        source.files.read_ranges(0, [(2 << 20, 3 << 20)])


def test_a_state_of_other_objects_is_refused(s3):
    put(s3, {f"x/{i}": b"%d" % i for i in range(8)})

    def loader():
        return sv.read_files(f"s3://{BUCKET}/x").select("bytes").batch(2).loader(workers=1)

    first = loader()
    next(iter(first))
    state = first.state_dict()
    loader().load_state_dict(state)
    put(s3, {"x/7": b"8"})
    with pytest.raises(sv.StateError):
        loader().load_state_dict(state)


def test_addresses_of_other_stores_lead_there(moto, monkeypatch, tmp_path):
    key = {"type": "service_account", "disable_oauth": True, "client_email": "", "private_key": ""}
    with running(Proxy(moto, always="404")) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        account = tmp_path / "account.json"
        account.write_text(json.dumps(key | {"private_key_id": "", "gcs_base_url": url}))
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(account))
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", url)
        for address in ("gs://bucket/a/b", "az://container/a/b"):
            with pytest.raises(SourceError, match=rf"cannot read {address}: .*does not exist"):
                read_files(address).length()
        heads = [seen.path.replace("%2F", "/") for seen in proxy.seen if seen.method == "HEAD"]
        assert heads == ["/bucket/a/b", "/container/a/b"]


class Web(http.server.BaseHTTPRequestHandler):
    """Serves one text to who has the password or the signature, whole; parts if asked to."""

    protocol_version = "HTTP/1.1"
    content = LINES
    ranges = True

    def do_GET(self):
        allowed = "signature=5f3a" in self.path or self.headers["Authorization"]
        part = self.headers["Range"] if self.ranges else None
        data, status = (self.content, 200) if allowed else (b"", 403)
        if part and allowed:
            first, last = (int(x or len(data)) for x in part.removeprefix("bytes=").split("-"))
            data, status = data[first : last + 1], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Mon, 16 Nov 2026 08:00:00 GMT")
        if status == 206:
            self.send_header(
                "Content-Range", f"bytes {first}-{first + len(data) - 1}/{len(self.content)}"
            )
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_HEAD(self):
        if "signature" in self.path:  # as a signature for GET alone does
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def web():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def shown_by(pipeline):
    """Everything that silva shows of a pipeline."""
    loader = pipeline.loader(workers=1)
    batches = iter(loader)
    next(batches)
    texts = [pipeline.explain(), repr(pipeline), repr(pipeline.schema), str(loader.state_dict())]
    texts += [repr(loader), str(loader.stats()), pipeline.explain(analyze=True)]
    return "\n".join(texts)


@pytest.mark.parametrize("signed", [True, False])
def test_credentials_in_an_address_are_used_and_never_shown(web, signed, caplog):
    caplog.set_level(logging.DEBUG)
    address = f"http://{web}/a%20b.txt?signature=5f3a" if signed else f"http://u:5f3a@{web}/a.txt"
    source = read_lines(address, unit_bytes=10_000)
    assert len(everything(source)) == 2_000
    assert source.files.listing.paths == (
        f"http://{web}/a%20b.txt" if signed else f"http://{web}/a.txt",
    )
    shown = shown_by(sv.read_lines(address).batch(10))
    shown += repr(source) + str(source) + source.describe() + source.fingerprint() + caplog.text
    assert f"http://{web}/a" in shown
    assert "5f3a" not in shown
    assert len(everything(cloudpickle.loads(cloudpickle.dumps(source)))) == 2_000


def test_credentials_are_not_in_errors(web):
    for address in (f"http://{web}/a?signature=wrong-5f", f"http://{web}/a"):
        with pytest.raises(SourceError, match=r"access is denied") as error:
            quick(read_lines(address)).units()
        assert "wrong-5f" not in repr(error.value) + str(error.value.__context__)
    for address in ("s3://key:secret@bucket/x", "ftp://key:secret@host/x", "http://u:secret@[/x"):
        with pytest.raises(PlanError) as refused:
            read_files(address)
        assert "secret" not in str(refused.value) + str(refused.value.__context__)


def test_a_web_server_without_ranges_serves_what_is_read_whole(web, monkeypatch):
    monkeypatch.setattr(Web, "ranges", False)
    source = read_files(f"http://u:p@{web}/a.txt")
    assert source.read(np.array([0]), ("bytes",))["bytes"].rows() == [LINES]
    with pytest.raises(SourceError, match=r"does not serve parts of a file"):
        everything(read_lines(f"http://u:p@{web}/a.txt", unit_bytes=10_000))


def test_a_list_of_local_paths_and_addresses_is_refused():
    with pytest.raises(PlanError, match=r"sv\.concat"):
        read_files(["a.txt", "s3://bucket/b.txt"])


FORKED = """
import os, sys
import silva as sv
from silva.errors import SourceError
address = sys.argv[1]
if sys.argv[2] == "used":
    pipeline = sv.read_files(address)
    assert pipeline.count() == 1
child = os.fork()
if child == 0:
    try:
        code = 0 if sv.read_files(address).head(1)[0]["bytes"] == b"1" else 1
    except SourceError as error:
        code = 7 if "fork" in str(error) else 2
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("used", "code"), [("used", 7), ("fresh", 0)])
def test_a_forked_process_reads_or_says_that_it_cannot(s3, used, code):
    put(s3, {"x/1": b"1"})
    command = [sys.executable, "-c", FORKED, f"s3://{BUCKET}/x/1", used]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
    assert out.stdout.split() == [str(code)], out.stderr
