"""`cache` changes how often functions run, and nothing else."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.errors import ColumnError, RowError
from silva.loader import Loader
from silva.options import LoaderOptions
from silva.pipeline import Pipeline
from silva.plan.node import Cache
from silva.testing import cut_blocks, digest, stream

BACKENDS = [("inline", 0), ("threads", 2), ("processes", 2)]


class Calls:
    """Counts calls in a file, so that worker processes count too, and no closure changes."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def wrap(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        path = self._path

        def counted(x: Any) -> Any:
            with open(path, "a") as file:
                file.write(".")
            return function(x)

        return counted

    def count(self) -> int:
        """Calls since the last time that it was asked."""
        try:
            found = os.path.getsize(self._path)
        except FileNotFoundError:
            return 0
        os.truncate(self._path, 0)
        return found


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path / "calls")


@pytest.fixture(params=["memory", "folder"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return None if request.param == "memory" else str(tmp_path / "cache")


def epochs(loader: Loader, count: int = 3) -> list[list[str]]:
    return [stream(loader) for _ in range(count)]


def numbers(count: int = 100) -> Pipeline:
    return sv.from_columns({"x": range(count)})


def plain(p: Pipeline) -> Pipeline:
    return p


def shuffled(p: Pipeline) -> Pipeline:
    return p.shuffle(seed=3)


def windows(p: Pipeline) -> Pipeline:
    return p.shuffle(seed=3, kind="window", window=16)


def sampled(p: Pipeline) -> Pipeline:
    return p.sample(weights=np.arange(1, 101), seed=2)


def kept_and_spread(p: Pipeline) -> Pipeline:
    return p.filter(lambda x: x % 3 != 0).derive(z=lambda x: list(range(x % 4))).explode("z")


def odd_columns(p: Pipeline) -> Pipeline:
    return p.derive(
        some=lambda x: None if x % 5 == 0 else float(x),
        image=lambda x: np.full((2, 3), x, np.uint8),
        sizes=lambda x: np.arange(x % 7, dtype=np.float32),
        both=lambda x: x if x % 2 else x / 2,
        text=lambda x: "é" * (x % 3),
        more=lambda x: {"a": (x, [x]), "b": np.float32(x)},
    )


def by_row(p: Pipeline) -> Pipeline:
    """A step above the cache that depends on the identity of its row."""
    return p.derive(r=lambda rng: rng.random())


CASES: dict[str, tuple[Callable[[Pipeline], Pipeline], Callable[[Pipeline], Pipeline]]] = {
    "plain": (plain, plain),
    "shuffled below": (shuffled, by_row),
    "windows below": (windows, by_row),
    "sampled below": (sampled, by_row),
    "kept and spread": (kept_and_spread, by_row),
    "kept and spread, shuffled": (lambda p: kept_and_spread(shuffled(p)), by_row),
    "kept and spread above": (plain, kept_and_spread),
    "odd columns": (odd_columns, by_row),
    "shuffled above": (plain, shuffled),
    "shuffled both": (shuffled, shuffled),
    "shuffled and taken above": (odd_columns, lambda p: by_row(p).shuffle(seed=1).take(40)),
    "sampled above": (plain, sampled),
}


def pipelines(case: str, calls: Calls, where: str | None) -> tuple[Pipeline, Pipeline]:
    """The same pipeline without and with a cache."""
    below, above = CASES[case]
    square = calls.wrap(lambda x: x * x)
    start = below(numbers()).derive(y=lambda x: square(x))
    return above(start).batch(7), above(start.cache(where)).batch(7)


@pytest.mark.parametrize("case", CASES)
def test_every_epoch_is_the_same_with_and_without(
    case: str, calls: Calls, where: str | None
) -> None:
    without, cached = pipelines(case, calls, where)
    expected = epochs(without.loader(backend="inline"))
    for sizes in (None, (1,), (5, 1, 13)):
        loader = cached.loader(backend="inline")
        assert epochs(loader if sizes is None else cut_blocks(loader, sizes)) == expected


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_every_backend_gives_the_same_and_calls_once(
    backend: Any, workers: int, calls: Calls, where: str | None
) -> None:
    without, cached = pipelines("kept and spread, shuffled", calls, where)
    expected = [stream(loader := without.loader(backend="inline"))]
    once = calls.count()
    expected += epochs(loader, 2)
    calls.count()
    with cached.loader(backend=backend, workers=workers) as loader:
        assert stream(loader) == expected[0]
        assert 0 < calls.count() <= once  # fewer where a large block has values that repeat
        assert [stream(loader), stream(loader)] == expected[1:]
        assert calls.count() == 0


@pytest.mark.parametrize("case", ["plain", "shuffled both", "kept and spread", "sampled below"])
def test_a_stream_resumes_after_any_batch(case: str, calls: Calls, where: str | None) -> None:
    without, cached = pipelines(case, calls, where)
    expected = epochs(without.loader(backend="inline"), 2)
    loader = cached.loader(backend="inline")
    states = []
    for _ in range(2):
        for i, batch in enumerate(loader):
            assert digest(batch) == expected[loader.epoch][i]
            states.append((loader.epoch, i + 1, json.dumps(loader.state_dict())))
    again = cached.loader(backend="inline")  # its store is empty at first, and then grows
    for epoch, given, state in states:
        again.load_state_dict(json.loads(state))
        rest = stream(again)
        if given < len(expected[epoch]):
            assert rest == expected[epoch][given:]


def test_a_restored_loader_keeps_its_rows(calls: Calls) -> None:
    _, cached = pipelines("plain", calls, None)
    loader = cached.loader(backend="inline")
    state = loader.state_dict()
    stream(loader)
    assert calls.count() == 100
    loader.load_state_dict(state)
    stream(loader)
    assert calls.count() == 0


def test_an_epoch_left_early_is_not_lost(calls: Calls, where: str | None) -> None:
    without, cached = pipelines("plain", calls, where)
    expected = epochs(without.loader(backend="inline"), 2)
    calls.count()
    loader = cut_blocks(cached.loader(backend="inline"), (10,))
    for i, _ in enumerate(loader):
        if i == 4:
            break
    first = calls.count()
    assert 35 <= first < 100
    assert stream(loader) == expected[1]
    assert first + calls.count() == 100
    if where:
        assert stream(cached.loader(backend="inline")) == expected[0]
        assert calls.count() == 0


def test_rows_waiting_in_buckets_are_fetched_from_the_cache(calls: Calls) -> None:
    length = calls.wrap(lambda x: list(range(x % 9)))
    rows = numbers(60).derive(t=lambda x: length(x)).cache()
    loader = rows.bucket("t", {4: 5, 9: 5}, pad=0).loader(backend="inline")
    states, expected = [], []
    for batch in loader:
        states.append(json.dumps(loader.state_dict()))
        expected.append(digest(batch))
    calls.count()
    for given, state in enumerate(states[:-1]):
        loader.load_state_dict(json.loads(state))
        assert stream(loader) == expected[given + 1 :]
    assert calls.count() == 0


@pytest.mark.parametrize(
    "order",
    [plain, lambda p: p.shuffle(seed=1, window=32)],
    ids=["plain", "shuffled"],
)
def test_chunked_sources_are_cached_too(
    order: Callable[[Pipeline], Pipeline], tmp_path: Path, calls: Calls, where: str | None
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} line {i}\n" for i in range(80)))
    size = calls.wrap(len)
    lines = sv.read_lines(str(tmp_path / "*.txt")).derive(n=lambda text: size(text))
    expected = epochs(by_row(order(lines)).batch(9).loader(backend="inline"))
    calls.count()
    for cached in (order(lines.cache(where)), order(lines).cache(where)):
        for backend, workers in BACKENDS[:2]:
            with by_row(cached).batch(9).loader(backend=backend, workers=workers) as loader:
                assert epochs(loader) == expected
                assert calls.count() in ((0, 160) if where else (160,))


def test_shards_share_one_store(calls: Calls, where: str | None) -> None:
    square = calls.wrap(lambda x: x * x)
    rows = shuffled(numbers()).derive(y=lambda x: square(x))
    expected = epochs(rows.batch(8).options(shards=4).loader(backend="inline"))
    calls.count()
    cached = rows.cache(where).batch(8).options(shards=4)
    assert epochs(cached.loader(backend="inline")) == expected
    assert calls.count() == 100


def test_later_epochs_over_decoded_photos_are_several_times_faster(
    tmp_path: Path, where: str | None
) -> None:
    import simplejpeg

    photo = np.add.outer(np.arange(375), np.arange(500)).astype(np.uint8)
    data = simplejpeg.encode_jpeg(np.ascontiguousarray(np.stack([photo] * 3, axis=-1)))
    for i in range(100):
        (tmp_path / f"{i:03}.jpg").write_bytes(data)
    image = sv.image("bytes").decode().resize(224, 224)
    photos = sv.read_files(str(tmp_path / "*.jpg")).derive(image=image).select("image")
    with photos.cache(where).shuffle(seed=0).batch(16).loader(workers=0) as loader:
        spent = []
        for _ in range(4):
            began = time.process_time()  # other processes do not count
            stream_length = sum(len(batch["image"]) for batch in loader)
            spent.append(time.process_time() - began)
    assert stream_length == 100
    assert spent[0] > 3 * min(spent[1:])


# Failures.


def test_rows_that_failed_are_tried_again(calls: Calls, where: str | None) -> None:
    def fails(x: int) -> int:
        if x % 10 == 3:
            raise ValueError("bad")
        return x

    risky = calls.wrap(fails)
    start = numbers().derive(y=lambda x: risky(x))
    for policy in (sv.Skip(at_most=10), sv.Substitute(-1)):
        expected = epochs(start.batch(7).loader(backend="inline", on_error=policy))
        loader = start.cache(where).batch(7).loader(backend="inline", on_error=policy)
        first = stream(loader)
        calls.count()
        assert [first, *epochs(loader, 2)] == expected
        assert calls.count() == 22  # in each epoch: one that stops the block, then ten alone
        assert len(loader.failures) == 30


def test_what_came_before_an_error_is_kept_and_what_came_after_is_not(
    tmp_path: Path, calls: Calls, where: str | None
) -> None:
    gate = str(tmp_path / "gate")

    def fails(x: int) -> int:
        if x == 40 and not os.path.exists(gate):
            raise ValueError("bad")
        return x * x

    risky = calls.wrap(fails)
    loader = cut_blocks(
        numbers().derive(y=lambda x: risky(x)).cache(where).batch(5).loader(backend="inline"), (32,)
    )
    with pytest.raises(RowError):
        list(loader)
    calls.count()
    Path(gate).touch()
    assert np.concatenate([b["y"] for b in loader]).tolist() == [x * x for x in range(100)]
    assert calls.count() == 60


def test_a_function_that_draws_from_a_global_generator_is_not_frozen() -> None:
    start = numbers(20).derive(y=lambda x: x + np.random.random())
    expected = epochs(start.batch(4).loader(backend="inline"))
    with pytest.warns(UserWarning, match="put cache before it"):
        found = epochs(start.cache().batch(4).loader(backend="inline"))
    assert found == expected


# What is handed out.


def test_a_batch_that_is_written_into_changes_no_later_epoch(where: str | None) -> None:
    rows = odd_columns(numbers(30)).derive(y=lambda x: x * x).cache(where)
    loader = rows.batch(6).loader(backend="inline")
    expected = epochs(rows.batch(6).loader(backend="inline", memory="1"))
    for epoch in range(3):
        found = []
        for batch in loader:
            found.append(digest(batch))
            _spoil(batch)
        assert found == expected[epoch]


def _spoil(batch: dict[str, Any]) -> None:
    for value in batch.values():
        if isinstance(value, sv.Ragged):
            value.values[:] = 77
        elif isinstance(value, np.ma.MaskedArray):
            value.data[:] = 77
        elif value.dtype == object:
            for item in value:
                if isinstance(item, dict):
                    item["a"][1].append("spoilt")
                    item["c"] = 1
        else:
            value[:] = 77


def test_objects_of_any_class_are_kept_in_memory() -> None:
    start = numbers(20).derive(f=lambda x: complex(x, 1), s=lambda x: {x}).cache()
    loader = start.batch(4).loader(backend="inline")
    first = stream(loader)
    for batch in loader:
        batch["s"][0].add("spoilt")
    assert stream(loader) == first


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_value_that_cannot_be_copied_is_named(backend: str) -> None:
    rows = numbers(3).derive(lock=lambda x: threading.Lock()).cache()
    with (
        rows.loader(backend=backend, on_error=sv.Skip()) as loader,
        pytest.raises(ColumnError, match=r"column 'lock' holds .*copied.*Put `\.cache"),
    ):
        list(loader)


@pytest.mark.parametrize("where", [None, "folder"])
def test_a_cache_of_the_planner_leaves_out_what_cannot_be_kept(
    where: str | None, tmp_path: Path
) -> None:
    rows = numbers(6).derive(lock=lambda x: threading.Lock() if x % 2 else x)
    folder = None if where is None else str(tmp_path)
    with Loader(Cache(rows.plan, folder, planned=True), LoaderOptions(backend="inline")) as loader:
        assert [[row["x"] for row in loader] for _ in range(2)] == [list(range(6))] * 2


def test_memory_stays_within_half_of_the_budget(calls: Calls) -> None:
    make = calls.wrap(lambda x: np.full(1000, x, np.uint8))
    rows = numbers(200).derive(y=lambda x: make(x)).cache()
    expected = epochs(rows.batch(4).loader(backend="inline"), 2)
    calls.count()
    loader = rows.batch(4).loader(backend="inline", memory=100_000)
    assert epochs(loader, 2) == expected
    (store,) = loader._executor._stores.values()
    held = sum(chunk.nbytes for chunk in store._chunks)  # type: ignore[attr-defined]
    assert 25_000 < held <= 50_000
    assert calls.count() == 400 - len(store)


# On disk.


def test_a_second_loader_computes_nothing(tmp_path: Path, calls: Calls) -> None:
    folder = str(tmp_path / "cache")
    for case in ("odd columns", "kept and spread, shuffled"):
        without, cached = pipelines(case, calls, folder)
        expected = epochs(without.loader(backend="inline"), 2)
        assert epochs(cached.loader(backend="inline"), 2) == expected
        calls.count()
        for backend, workers in BACKENDS:
            _, again = pipelines(case, calls, folder)
            with again.loader(backend=backend, workers=workers, memory="100KB") as loader:
                assert epochs(loader, 2) == expected
        assert calls.count() == 0


def test_another_function_has_rows_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    for factor in (2, 3, 2):
        rows = numbers(10).derive(y=lambda x, factor=factor: x * factor).cache(folder)
        (batch,) = rows.batch(10).loader(backend="inline")
        assert batch["y"].tolist() == [x * factor for x in range(10)]
    assert len(list(folder.iterdir())) == 2


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    rows = lambda: sv.read_files(str(file)).derive(n=lambda bytes: bytes).cache(tmp_path / "cache")  # noqa: E731
    file.write_text("old")
    assert [b["n"][0] for b in rows().select("n").batch(1).loader()] == [b"old"]
    file.write_text("new")
    os.utime(file, ns=(1, 1))
    assert [b["n"][0] for b in rows().select("n").batch(1).loader()] == [b"new"]


def test_the_same_rows_serve_a_plan_that_numbers_its_sources_otherwise(
    tmp_path: Path, calls: Calls
) -> None:
    square = calls.wrap(lambda x: x * x)
    rows = numbers(20).derive(y=lambda x: square(x)).cache(tmp_path / "cache")
    stream(rows.batch(5).loader(backend="inline"))
    calls.count()
    other = sv.from_columns({"x": [7], "y": [8]})
    both = sv.concat([other, rows]).batch(21).loader(backend="inline")
    assert [b["y"].tolist() for b in both] == [[8] + [x * x for x in range(20)]]
    assert calls.count() == 0


def _filled(folder: Path, calls: Calls) -> tuple[Pipeline, list[list[str]], list[Path]]:
    without, cached = pipelines("odd columns", calls, str(folder))
    expected = epochs(without.loader(backend="inline"), 2)
    stream(cut_blocks(cached.loader(backend="inline", memory="300KB"), (25,)))
    files = sorted(folder.glob("*/*.rows"))
    calls.count()
    return cached, expected, files


@pytest.mark.parametrize("where_in_file", [0.0, 0.001, 0.5, 0.999])
def test_a_damaged_byte_costs_a_warning_and_some_computing(
    where_in_file: float, tmp_path: Path, calls: Calls
) -> None:
    cached, expected, files = _filled(tmp_path / "cache", calls)
    data = bytearray(files[0].read_bytes())
    data[int(where_in_file * len(data))] ^= 0x40
    files[0].write_bytes(bytes(data))
    with pytest.warns(UserWarning, match="computed again") as found:
        assert epochs(cached.loader(backend="inline"), 2) == expected
    assert len(found) == 1
    assert 0 < calls.count() <= 100
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert stream(cached.loader(backend="inline")) == expected[0]
    assert calls.count() == 0


@pytest.mark.parametrize("size", [0, 10, 200, -1])
def test_a_file_cut_short_or_foreign_is_left_alone(size: int, tmp_path: Path, calls: Calls) -> None:
    cached, expected, files = _filled(tmp_path / "cache", calls)
    files[0].write_bytes(files[0].read_bytes()[:size])
    (files[0].parent / "foreign.rows").write_bytes(b"x" * 1000)
    (files[0].parent / "notes.txt").write_text("mine")
    with pytest.warns(UserWarning, match="computed again") as found:
        assert epochs(cached.loader(backend="inline"), 2) == expected
    assert len(found) == 1
    assert (files[0].parent / "foreign.rows").exists()
    assert (files[0].parent / "notes.txt").exists()


def test_files_that_vanish_are_computed_again(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, expected, files = _filled(tmp_path / "cache", calls)
    monkeypatch.setattr("silva.run.flows.cache._RUN_ROWS", 10)
    loader = cut_blocks(cached.loader(backend="inline", memory="1KB"), (10,))
    batches = iter(loader)
    found = [digest(next(batches))]
    for file in files:
        file.unlink()
    with pytest.warns(UserWarning, match="computed again"):
        found += [digest(batch) for batch in batches]
    assert found == expected[0]


def test_a_full_disk_costs_a_warning(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    without, cached = pipelines("plain", calls, str(tmp_path / "cache"))
    expected = epochs(without.loader(backend="inline"), 2)

    def full(source: str, target: str, **folders: int) -> None:
        if target.endswith(".rows"):
            raise OSError(28, "No space left on device")
        replaced(source, target, **folders)

    replaced = os.replace

    monkeypatch.setattr("silva.cache.folder_shelf.os.replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert epochs(cached.loader(backend="inline"), 2) == expected
    assert [p.name for p in (tmp_path / "cache").glob("*/*")] == ["about.json"]


def test_old_unfinished_files_are_removed(tmp_path: Path, calls: Calls) -> None:
    cached, _, files = _filled(tmp_path / "cache", calls)
    old, young = files[0].parent / "old.tmp", files[0].parent / "young.tmp"
    old.touch()
    young.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    stream(cached.loader(backend="inline"))
    assert not old.exists()
    assert young.exists()


class Odd:
    """A value that no format knows."""


def test_a_value_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    rows = numbers(3).derive(odd=lambda x: [Odd()]).cache(tmp_path / "cache").batch(2)
    with pytest.raises(ColumnError, match=r"column 'odd' holds .*Odd.*Put `\.cache"):
        list(rows.loader(backend="inline"))


@pytest.mark.parametrize("mask", [False, [False, False], [False, True]])
def test_masked_arrays_are_refused_in_one_sentence_whatever_is_missing(
    tmp_path: Path, mask: object
) -> None:
    """A function after the cache would see that it got another type."""
    rows = numbers(3).derive(m=lambda x: np.ma.array([x, 1], mask=mask)).cache(tmp_path / "cache")
    with pytest.raises(ColumnError, match=r"'m' holds masked arrays .*`\.filled\(…\)` makes plain"):
        list(rows.batch(2).loader(backend="inline"))


def test_rows_of_an_unstable_function_stay_in_memory(tmp_path: Path) -> None:
    lock = threading.Lock()

    def guarded(x: int) -> int:
        with lock:
            return x

    rows = numbers(10).derive(y=guarded).cache(tmp_path / "cache").batch(5)
    with pytest.warns(UserWarning, match="in memory, for this loader only.*lock"):
        assert len(stream(rows.loader(backend="inline"))) == 2
    assert not (tmp_path / "cache").exists()


_FILL = """
import sys
sys.path.insert(0, sys.argv[2])
from test_cache import race
print(race(sys.argv[1]))
"""


def race(folder: str) -> str:
    """The digest of two epochs over a folder."""
    rows = numbers(300).derive(y=lambda x: [x] * (x % 50)).cache(folder).shuffle(seed=1).batch(16)
    loader = cut_blocks(rows.loader(backend="inline", memory="1MB"), itertools.repeat(7))
    return digest([stream(loader), stream(loader)])


def test_two_processes_can_fill_one_folder_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FILL, str(tmp_path / "both"), str(Path(__file__).parent)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [process.communicate(timeout=60)[0].strip() for process in both]
    assert found == [race(str(tmp_path / "alone"))] * 2
    assert race(str(tmp_path / "both")) == found[0]
    assert not list(tmp_path.glob("*/*/*.tmp"))


_KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import silva.cache.folder_shelf as shelf
from test_cache import slow
replaced = shelf.os.replace
def killed(*paths, **folders):
    if len(os.listdir(folders["src_dir_fd"])) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    replaced(*paths, **folders)
shelf.os.replace = killed
slow(sys.argv[1])
"""


def test_a_kill_leaves_whole_files_only(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    command = [sys.executable, "-c", _KILLED, str(folder), str(Path(__file__).parent)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    assert list(folder.glob("*/*.rows"))
    assert list(folder.glob("*/*.tmp"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert slow(str(folder)) == slow(str(tmp_path / "alone"))


def slow(folder: str) -> str:
    """Enough rows for several files."""
    rows = numbers(300).derive(y=lambda x: np.full(1000, x)).cache(folder).batch(16)
    return digest(stream(cut_blocks(rows.loader(backend="inline", memory="1MB"), (7,))))


@pytest.fixture(autouse=True)
def _no_other_warnings(request: pytest.FixtureRequest) -> Iterator[None]:
    """A cache that is sound warns of nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="cache")
        yield
