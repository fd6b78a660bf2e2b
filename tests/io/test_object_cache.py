"""Rows kept in an object store: the promises of a cache folder, on a real S3 server that fails."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import warnings
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from object_tools import BUCKET, put

import silva as sv
from silva.cache import object_shelf
from silva.cache.entries import Entries
from silva.cache.file_store import FileStore
from silva.cache.inspect_folder import collect_garbage, contents
from silva.cache.object_shelf import ObjectShelf
from silva.cache.open_store import shelf_at
from silva.cache.row_files import is_sound
from silva.cache.row_store import CacheBudget
from silva.cache.shelf_index import About, bytes_held
from silva.cli import main
from silva.columns import Array
from silva.errors import PlanError
from silva.io.objects.fetching import Patience
from silva.io.objects.folder import ObjectFolder
from silva.testing import cut_blocks, digest, stream

obstore = pytest.importorskip("obstore")

pytestmark = pytest.mark.rest

PLACE = f"s3://{BUCKET}/kept/rows"
QUICK = Patience(answer=1.0, deadline=6.0, pause=0.01)
A, B, C = (letter * 32 for letter in "abc")
ROW = 22_000
"""Bytes of a row, in the tests that fill shelves by hand: three to a file."""
ABOUT = About(["derive y = f(x)"], "columns of 9 rows", ["y"], "0.1.0", "2026-01-01")


class Calls:
    """Counts calls in a file, so that no closure changes, and with it a fingerprint."""

    def __init__(self, path):
        self.path = str(path)

    def taken(self):
        """Calls since the last time that it was asked."""
        count = os.path.getsize(self.path) if os.path.exists(self.path) else 0
        open(self.path, "w").close()
        return count


@pytest.fixture
def calls(tmp_path):
    return Calls(tmp_path / "calls")


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    """Several for a hundred rows."""
    monkeypatch.setattr(ObjectShelf, "file_bytes", 200_000)


@pytest.fixture(autouse=True)
def _no_other_warnings():
    """A cache that is sound warns of nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="cache")
        yield


@pytest.fixture
def quick(monkeypatch):
    """Shelves that are less patient."""
    monkeypatch.setattr(object_shelf, "PATIENCE", QUICK)
    made = ObjectShelf.__init__
    monkeypatch.setattr(ObjectShelf, "__init__", lambda self, address: made(self, address, QUICK))


def rows(calls, count=100, factor=2):
    path = calls.path

    def wide(x):
        with open(path, "a") as file:
            file.write(".")
        return np.full(1000, x * factor)

    return sv.from_columns({"x": range(count)}).derive(y=wide)


def cached(calls, place=PLACE, count=100, **named):
    return rows(calls, count).cache(place, **named).shuffle(seed=0).batch(7)


@contextmanager
def held(s3):
    """Uploads do not end before the block does."""
    s3.holds = True
    try:
        yield
    finally:
        s3.holds = False


def read(pipeline, sizes=(25,), memory="64MB"):
    """One epoch by a new loader, which is closed: its rows are kept by then."""
    with cut_blocks(pipeline.loader(backend="inline", memory=memory), sizes) as loader:
        return stream(loader)


def epochs(loader, count):
    return [stream(loader) for _ in range(count)]


def objects(s3):
    """The bytes of every object, straight from the server."""
    store = obstore.store.S3Store(
        BUCKET, endpoint=f"http://127.0.0.1:{s3.upstream}", client_options={"allow_http": True}
    )
    keys = [meta["path"] for page in obstore.list(store) for meta in page]
    return {key: bytes(obstore.get(store, key).bytes()) for key in keys}


def test_a_second_loader_computes_nothing(s3, calls):
    expected = read(rows(calls).shuffle(seed=0).batch(7))
    calls.taken()
    assert read(cached(calls)) == expected
    assert calls.taken() == 100
    assert read(cached(calls)) == expected
    assert calls.taken() == 0
    (kept,) = contents(PLACE)
    assert (kept.entries, kept.about.columns) == (100, ["x", "y"])
    assert all(is_sound(kept.shelf, file.item) for file in kept.files)


def test_every_backend_reads_and_fills_it(s3, calls):
    expected = read(rows(calls).shuffle(seed=0).batch(7))
    for backend, place in (("threads", f"{PLACE}/1"), ("processes", f"{PLACE}/2")):
        for _ in range(2):
            with cached(calls, place).loader(backend=backend, workers=2) as loader:
                assert stream(loader) == expected
        assert sum(kept.entries for kept in contents(place)) == 100


def test_an_epoch_left_early_is_completed_later(s3, calls):
    expected = read(rows(calls).shuffle(seed=0).batch(7))
    calls.taken()
    with cut_blocks(cached(calls).loader(backend="inline"), (7,)) as loader:
        assert [digest(b) for b in itertools.islice(loader, 5)] == expected[:5]
    early = calls.taken()
    assert 35 <= early < 100
    assert read(cached(calls)) == expected
    assert calls.taken() == 100 - early
    assert read(cached(calls)) == expected
    assert calls.taken() == 0


def test_the_stream_is_the_same_with_a_cold_a_partial_and_a_full_cache(s3):
    numbers = itertools.count()

    @settings(max_examples=8)
    @given(st.data())
    def law(data):
        count = data.draw(st.integers(1, 60), "rows")
        plain = sv.from_columns({"x": range(count)}).derive(y=lambda x: np.full(300, x))
        if data.draw(st.booleans(), "filter"):
            plain = plain.filter(lambda x: x % 3 > 0)
        if data.draw(st.booleans(), "explode"):
            plain = plain.derive(z=lambda x: list(range(x % 4))).explode("z")

        def finished(rows):
            seed = 5
            return rows.shuffle(seed=seed).batch(4)

        place = f"s3://{BUCKET}/law/{next(numbers)}"
        sizes = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=3), "blocks")
        memory = data.draw(st.sampled_from(["400KB", "4MB", "64MB"]), "memory")
        expected = read(finished(plain))
        first = data.draw(st.integers(0, len(expected)), "batches of the first run")
        pipeline = finished(plain.cache(place))
        with (
            warnings.catch_warnings(),
            cut_blocks(pipeline.loader(backend="inline", memory=memory), sizes) as loader,
        ):
            warnings.filterwarnings("ignore", message="cache: rows come faster")  # a busy machine
            assert [digest(b) for b in itertools.islice(loader, first)] == expected[:first]
        files = [key for key in objects(s3) if key.startswith(place[len(f"s3://{BUCKET}/") :])]
        files = [key for key in files if key.endswith(".rows")]
        if files and data.draw(st.booleans(), "damage"):
            key = data.draw(st.sampled_from(files), "which")
            spoilt = bytearray(objects(s3)[key])
            spoilt[data.draw(st.integers(0, len(spoilt) - 1), "byte")] ^= 1
            put(s3, {key: bytes(spoilt)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert read(pipeline, sizes, memory) == expected
            assert read(pipeline, sizes, memory) == expected

    law()


def test_a_store_that_answers_no_uploads_keeps_nobody_waiting(s3, calls):
    expected = epochs(rows(calls).shuffle(seed=0).batch(7).loader(backend="inline"), 2)
    calls.taken()
    loader = cut_blocks(cached(calls).loader(backend="inline", memory="64MB"), (25,))
    with held(s3):
        assert epochs(loader, 2) == expected  # the second from what is on its way
        assert not [key for key in objects(s3) if key.endswith(".rows")]
    loader.close()
    assert calls.taken() == 100
    assert read(cached(calls)) == expected[0]
    assert calls.taken() == 0


def test_what_is_on_its_way_is_bounded_in_bytes(s3, calls):
    pipeline = cached(calls, count=400)
    with cut_blocks(pipeline.loader(backend="inline", memory="2MB"), (25,)) as loader:
        with held(s3), pytest.warns(UserWarning, match="faster than s3://data/kept/rows takes"):
            expected = stream(loader)
        (store,) = loader._executor._stores.values()
        assert store._writer.bytes_uploading < 1 << 20
    kept = sum(kept.entries for kept in contents(PLACE))
    assert 0 < kept < 400
    calls.taken()
    assert read(pipeline) == expected
    assert calls.taken() == 400 - kept


def test_what_is_read_next_is_on_its_way_and_comes_once(s3, calls, monkeypatch):
    expected = read(cached(calls))
    monkeypatch.setattr("silva.run.flows.cache._RUN_ROWS", 10)
    asked = []
    begin = ObjectFolder._begin
    monkeypatch.setattr(ObjectFolder, "_begin", lambda self, p: asked.append(p) or begin(self, p))
    store_reads = FileStore.read
    ahead = []

    def noted(self, keys):
        before = len(asked)
        found = store_reads(self, keys)
        ahead.append(len(asked) == before)
        return found

    monkeypatch.setattr(FileStore, "read", noted)
    assert read(cached(calls)) == expected
    pages = [part for part in asked if part[1] > 0]
    assert len(pages) == len(set(pages)) == 4
    assert all(ahead[1:])


@pytest.mark.parametrize("fault", ["429", "503", "500", "reset", "silent", "lost"])
def test_a_passing_fault_of_an_upload_is_not_seen(s3, quick, calls, fault):
    s3.puts = deque([fault, fault])
    expected = read(cached(calls))
    assert not s3.puts
    calls.taken()
    assert read(cached(calls)) == expected
    assert calls.taken() == 0


@pytest.mark.parametrize("fault", ["503", "reset", "silent", "stall", "truncate"])
def test_a_passing_fault_of_a_read_is_not_seen(s3, quick, calls, fault):
    expected = read(cached(calls))
    calls.taken()
    for key in objects(s3):
        s3.faults[key.rpartition("/")[2]] = deque([fault, "", fault])
    assert read(cached(calls)) == expected
    assert calls.taken() == 0


@pytest.mark.parametrize("fault", ["403", "503"])
def test_a_store_that_takes_nothing_costs_a_warning(s3, quick, calls, fault):
    expected = read(rows(calls).shuffle(seed=0).batch(7))
    s3.puts = deque([fault] * 10_000)
    with pytest.warns(UserWarning, match="rows from here on are not kept") as told:
        assert read(cached(calls)) == expected
    assert len(told) == 1
    assert "the-key-id" not in str(told[0].message)
    assert contents(PLACE) == []


def test_a_bucket_that_may_only_be_read_serves_its_rows(s3, quick, calls):
    expected = read(cached(calls))
    calls.taken()
    s3.puts = deque(["403"] * 10_000)
    assert read(cached(calls)) == expected
    assert calls.taken() == 0


@pytest.mark.parametrize("fault", ["403", "404", "503", "silent"])
def test_a_store_that_cannot_be_reached_is_an_error_before_the_first_row(s3, quick, calls, fault):
    s3.always = fault
    with pytest.raises(PlanError, match=r"cache\('s3://data/kept/rows'\) cannot be used") as error:
        read(cached(calls))
    assert not calls.taken()
    shown = repr(error.value) + repr(error.value.__cause__) + repr(error.value.__context__)
    assert not any(word in shown for word in ("the-key-id", "the-secret-key", "127.0.0.1"))


def test_an_error_that_the_library_keeps_does_not_keep_the_thread(s3, quick, calls, monkeypatch):
    """obstore's own threads may hold an error until they are next used."""
    kept = []

    def keeping(request):
        async def asked(*args, **named):
            try:
                return await request(*args, **named)
            except Exception as error:
                kept.append(error)
                raise

        return asked

    for name in ("list_with_delimiter_async", "head_async"):
        monkeypatch.setattr(obstore, name, keeping(getattr(obstore, name)))
    folder = shelf_at(PLACE)
    folder.write_about(A, b"{}")  # asks first for what is not there
    s3.always = "403"
    with pytest.raises(OSError, match="status 403"):
        folder.fingerprints()
    (thread,) = (each for each in threading.enumerate() if each.name == "silva-objects")
    del folder
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
    assert len(kept) == 2


@pytest.mark.parametrize("fault", ["403", "503", "silent"])
def test_a_store_that_is_gone_in_the_middle_costs_computing(s3, quick, calls, fault, monkeypatch):
    monkeypatch.setattr("silva.run.flows.cache._RUN_ROWS", 10)
    expected = epochs(rows(calls).shuffle(seed=0).batch(7).loader(backend="inline"), 3)
    read(cached(calls))
    with cut_blocks(cached(calls).loader(backend="inline", memory="1KB"), (10,)) as loader:
        batches = iter(loader)
        found = [digest(next(batches))]
        s3.always = fault
        with pytest.warns(UserWarning, match="computed again") as told:
            found += [digest(batch) for batch in batches]
        assert len(told) == 1
        assert found == expected[0]
        assert stream(loader) == expected[1]
        s3.always = ""
        calls.taken()
        assert stream(loader) == expected[2]
        assert calls.taken() == 0


@pytest.mark.parametrize("where_in_file", [0.0, 0.001, 0.5, 0.999])
def test_a_damaged_object_costs_a_warning_and_some_computing(s3, calls, where_in_file):
    expected = read(cached(calls))
    key = min(key for key in objects(s3) if key.endswith(".rows"))
    data = bytearray(objects(s3)[key])
    data[int(where_in_file * len(data))] ^= 0x40
    put(s3, {key: bytes(data)})
    calls.taken()
    with pytest.warns(UserWarning, match="computed again") as told:
        assert read(cached(calls)) == expected
    assert len(told) == 1
    assert 0 < calls.taken() <= 100
    collect_garbage(PLACE)
    assert read(cached(calls)) == expected
    assert calls.taken() == 0


def test_objects_that_vanish_or_change_are_computed_again(s3, calls, monkeypatch):
    monkeypatch.setattr("silva.run.flows.cache._RUN_ROWS", 10)
    expected = read(cached(calls))
    loader = cut_blocks(cached(calls).loader(backend="inline", memory="1KB"), (10,))
    batches = iter(loader)
    found = [digest(next(batches))]
    (kept,) = contents(PLACE)
    for file in kept.files[::2]:
        kept.shelf.remove([file.item])
    for file in kept.files[1::2]:
        put(s3, {f"kept/rows/{kept.fingerprint}/{file.item.name}": bytes(file.size)})
    with pytest.warns(UserWarning, match="computed again"):
        found += [digest(batch) for batch in batches]
    loader.close()
    assert found == expected


def fill(place, fingerprint, count, *, seconds=1.0, limit=None):
    """Adds rows one by one; each took `seconds`."""
    store = FileStore(shelf_at(place), fingerprint, ABOUT, CacheBudget(1 << 16), limit)
    store.refresh()
    for i in range(count):
        column = Array(np.full((1, ROW), i, np.uint8))
        entries = Entries(np.ones(1, np.int64), {"y": column}, None, ())
        store.add(np.array([i], np.uint64), entries, seconds)
        if i % 3 == 2:
            store.close()
    store.close()
    return store


def sizes():
    return {kept.fingerprint[0]: kept.entries for kept in contents(PLACE)}


def test_what_saves_least_for_its_bytes_goes_first(s3):
    fill(PLACE, A, 12, seconds=1)
    fill(PLACE, B, 12, seconds=10)
    limit = bytes_held(shelf_at(PLACE))
    fill(PLACE, C, 6, seconds=100, limit=limit)
    assert sizes() == {"a": 6, "b": 12, "c": 6}
    assert bytes_held(shelf_at(PLACE)) <= limit
    with pytest.warns(UserWarning, match="keeps no more rows: it is full"):
        fill(PLACE, "d" * 32, 3, seconds=1, limit=limit)
    FileStore(shelf_at(PLACE), A, ABOUT, CacheBudget(1 << 16), limit // 2)
    assert bytes_held(shelf_at(PLACE)) <= limit // 2


def test_a_limit_holds_for_what_is_on_its_way_too(s3, calls):
    limit = 300_000
    pipeline = cached(calls, limit=limit)
    with cut_blocks(pipeline.loader(backend="inline", memory="64MB"), (5,)) as loader:
        with held(s3):
            expected = stream(loader)
        with pytest.warns(UserWarning, match="full"):
            loader.close()
    assert 0 < bytes_held(shelf_at(PLACE)) <= limit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read(pipeline) == expected


def test_use_is_noted_where_files_cannot_be_touched(s3, calls, monkeypatch):
    read(cached(calls))
    (before,) = contents(PLACE)
    assert {item.name for item in before.items} >= {"about.json"}
    read(cached(calls))
    (after,) = contents(PLACE)
    assert "used" in {item.name for item in after.items}
    assert after.used >= before.used
    assert after.files == before.files


def test_the_first_writer_of_about_wins(s3):
    fill(PLACE, A, 1)
    key = f"kept/rows/{A}/about.json"
    before = objects(s3)[key]
    shelf_at(PLACE).write_about(A, b"{}")
    assert objects(s3)[key] == before


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_the_command_line_looks_after_it(s3, calls, capsys, monkeypatch):
    read(cached(calls))
    put(s3, {"kept/rows/notes.txt": b"mine", "other/x": b"1"})
    assert command("cache", "ls", PLACE) == 0
    shown = capsys.readouterr().out
    assert "1 pipeline" in shown
    assert PLACE in shown
    monkeypatch.setenv("SILVA_CACHE", PLACE)
    assert command("cache", "gc") == 0
    assert "removed 0 files" in capsys.readouterr().out
    assert command("cache", "rm", "--all", PLACE) == 0
    assert sorted(objects(s3)) == ["kept/rows/notes.txt", "other/x"]
    capsys.readouterr()
    assert command("cache", "ls", f"s3://{BUCKET}/other") == 2
    assert "not a cache folder of silva" in capsys.readouterr().err
    s3.always = "403"
    assert command("cache", "ls", PLACE) == 2
    assert "the server refuses (status 403)" in capsys.readouterr().err


def test_the_shared_cache_may_be_an_address(s3, calls, monkeypatch):
    monkeypatch.setenv("SILVA_CACHE", f"{PLACE}/")
    pipeline = rows(calls).cache(shared=True).batch(7)
    assert f"cache in {PLACE}" in pipeline.explain()
    read(pipeline)
    assert [kept.entries for kept in contents(PLACE)] == [100]


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("https://user:hunter2@host/rows?token=hunter2", "https:// addresses cannot keep rows"),
        ("ftp://hunter2@host/rows", "ftp:// addresses cannot keep rows"),
        ("s3://key:hunter2@bucket/rows", "must not contain a password or key"),
        ("s3://", "needs a bucket"),
        (Path("s3://bucket/rows"), "must be a str"),
    ],
)
def test_a_place_that_cannot_keep_rows_is_refused_when_written(calls, place, problem):
    with pytest.raises(PlanError, match=problem) as error:
        rows(calls).cache(place)
    assert "hunter2" not in repr(error.value) + repr(error.value.__context__)


FILL = """
import json, sys, time
import numpy as np
import silva as sv
from silva.cache.object_shelf import ObjectShelf
from silva.testing import cut_blocks, stream

ObjectShelf.file_bytes = 200_000
place, calls = sys.argv[1:]
def wide(x):
    with open(calls, "a") as file:
        file.write(".")
    return np.full(4000, x)

rows = sv.from_columns({"x": range(240)}).derive(y=wide).cache(place).shuffle(seed=0).batch(8)
with cut_blocks(rows.loader(backend="inline", memory="64MB"), (3,)) as loader:
    print(json.dumps([stream(loader), stream(loader)]))
"""


def filled():
    """What the script gives, if its cache is right."""
    rows = sv.from_columns({"x": range(240)}).derive(y=lambda x: np.full(4000, x))
    return epochs(rows.shuffle(seed=0).batch(8).loader(backend="inline"), 2)


def start(calls):
    command = [sys.executable, "-W", "error", "-c", FILL, PLACE, calls.path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def given_by(process):
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    return json.loads(out)


def test_two_that_fill_it_at_once_give_the_same_rows(s3, calls):
    both = [start(calls) for _ in range(2)]
    assert [given_by(process) for process in both] == [filled()] * 2
    assert 240 <= calls.taken() <= 480
    assert given_by(start(calls)) == filled()
    assert calls.taken() == 0
    (kept,) = contents(PLACE)
    assert 240 <= kept.entries <= 480


def test_kills_leave_a_cache_that_the_next_run_goes_on_with(s3, calls):
    """Killed while a few files are there and others are on their way."""
    shelf, killed = shelf_at(PLACE), 0
    for goal in (1, 2_000_000):
        with start(calls) as process:
            while bytes_held(shelf) < goal and process.poll() is None:
                pass
            process.kill()
        killed += process.returncode == -9
        found = contents(PLACE)
        assert all(is_sound(shelf, file.item) for kept in found for file in kept.files)
    assert killed
    before = sum(kept.entries for kept in contents(PLACE))
    calls.taken()
    assert given_by(start(calls)) == filled()
    assert calls.taken() == 240 - before
    assert sum(kept.entries for kept in contents(PLACE)) == 240


FORK = """
import os, sys
import silva as sv

rows = sv.from_columns({"x": range(20)}).derive(y=lambda x: x).cache(sys.argv[1]).batch(5)
loader = rows.loader(workers=0)
before = [batch["y"].tolist() for batch in loader]
loader.close()
child = os.fork()
if child == 0:
    same = [batch["y"].tolist() for batch in loader] == before
    os._exit(0 if same else 1)
print(os.waitpid(child, 0)[1])
"""


def test_a_forked_process_computes_rows_instead_of_waiting_for_ever(s3):
    command = [sys.executable, "-c", FORK, PLACE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert ended.stdout.strip() == "0"
    assert "do not survive a fork" in ended.stderr
