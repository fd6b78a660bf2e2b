"""A cache folder is shared, bounded, and can be looked after."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.cache import file_store as filestore
from silva.cache import folder_shelf
from silva.cache.entries import Entries
from silva.cache.eviction import shrink
from silva.cache.file_store import FileStore
from silva.cache.inspect_folder import (
    collect_garbage,
    contents,
    default_folder,
    find,
    parse_age,
    remove,
)
from silva.cache.open_store import shelf_at
from silva.cache.row_files import is_sound
from silva.cache.row_store import CacheBudget
from silva.cache.shelf_index import About, bytes_held
from silva.cli import main
from silva.columns import Array
from silva.errors import PlanError
from silva.pipeline import Pipeline
from silva.testing import cut_blocks, digest, stream

A, B, C = (letter * 32 for letter in "abc")
ROW = 22_000
"""Bytes of a row, in the tests that fill folders by hand: three to a file."""
ABOUT = About(["derive y = f(x)"], "columns of 9 rows", ["y"], "0.1.0", "2026-01-01")


def rows(count: int = 100, factor: int = 2) -> Pipeline:
    return sv.from_columns({"x": range(count)}).derive(y=lambda x: np.full(1000, x * factor))


def fill(
    folder: Path, fingerprint: str, count: int, *, seconds: float = 1.0, limit: int | None = None
) -> FileStore:
    """Adds rows one by one; each took `seconds`."""
    store = FileStore(shelf_at(folder), fingerprint, ABOUT, CacheBudget(1 << 16), limit)
    store.refresh()
    for i in range(count):
        entries = Entries(
            np.ones(1, np.int64), {"y": Array(np.full((1, ROW), i, np.uint8))}, None, ()
        )
        store.add(np.array([i], np.uint64), entries, seconds)
    store.flush()
    return store


def unused_for(folder: Path, fingerprint: str, hours: float) -> None:
    then = time.time() - 3600 * hours
    os.utime(folder / fingerprint / "about.json", (then, then))


def sizes(folder: Path) -> dict[str, int]:
    """The entries of each fingerprint, by its first letter."""
    return {kept.fingerprint[0]: kept.entries for kept in contents(folder)}


# The verb.


def test_the_shared_folder_is_where_caches_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/people/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("SILVA_CACHE", raising=False)
    assert default_folder() == Path("/people/ada/.cache/silva/rows")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_folder() == Path("/caches/silva/rows")
    monkeypatch.setenv("SILVA_CACHE", "/big/disk")
    assert default_folder() == Path("/big/disk")


def test_pipelines_share_the_shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILVA_CACHE", str(tmp_path / "shared"))
    for factor in (2, 3):
        stream(rows(10, factor).cache(shared=True).batch(5).loader(backend="inline"))
    assert [kept.entries for kept in contents(default_folder())] == [10, 10]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"folder": "here", "shared": True}, "not both"),
        ({"limit": "1GiB"}, "bounds a folder"),
        ({"folder": "here", "limit": "much"}, "much"),
        ({"folder": "here", "limit": 0}, "positive"),
    ],
)
def test_wrong_arguments_are_told_when_written(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        rows().cache(**arguments)


def test_the_limit_is_explained(tmp_path: Path) -> None:
    shown = rows().cache(tmp_path, limit="20GiB").batch(5).explain()
    assert "cache on disk, at most 20.0 GiB for all pipelines" in shown


def test_where_rows_are_kept_is_no_part_of_what_a_pipeline_gives(tmp_path: Path) -> None:
    plain = rows().cache().batch(7)
    elsewhere = rows().cache(tmp_path, limit="1GiB").batch(7)
    assert plain.fingerprint == elsewhere.fingerprint
    loader = plain.loader(backend="inline")
    batches = iter(loader)
    next(batches)
    again = elsewhere.loader(backend="inline")
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert stream(again) == [digest(batch) for batch in batches]


def test_a_plan_finds_the_rows_that_the_other_plan_kept(tmp_path: Path) -> None:
    """As long as no rule changes a step below the cache."""
    for first, folder in ((True, tmp_path / "a"), (False, tmp_path / "b")):
        kept = rows().cache(folder).derive(z=lambda y: y.sum(), unread=lambda x: x).drop("unread")
        expected = stream(kept.options(optimize=first).batch(7).loader(backend="inline"))
        (before,) = contents(folder)
        assert (
            stream(kept.options(optimize=not first).batch(7).loader(backend="inline")) == expected
        )
        (after,) = contents(folder)
        assert after.files == before.files


# What is written beside the rows.


def test_about_says_what_the_rows_are_and_no_more(tmp_path: Path) -> None:
    secret = "hunter2"
    pipeline = sv.from_columns({"x": range(9)}).derive(y=lambda x: (x, secret))
    stream(pipeline.filter(sv.col("x") > 2).cache(tmp_path).batch(3).loader(backend="inline"))
    (kept,) = contents(tmp_path)
    text = (tmp_path / kept.fingerprint / "about.json").read_text()
    told = json.loads(text)
    assert told["columns"] == ["x", "y"]
    assert told["source"] == "columns of 9 rows"
    assert told["silva"] == sv.__version__
    assert told["steps"][0] == "filter x > 2"
    assert told["steps"][1].startswith("derive y = lambda(x)")
    assert "hunter2" not in text


def test_the_first_writer_of_about_wins(tmp_path: Path) -> None:
    fill(tmp_path, A, 1)
    before = (tmp_path / A / "about.json").read_bytes()
    FileStore(
        shelf_at(tmp_path), A, About([], "another", [], "9", "later"), CacheBudget(1 << 16), None
    ).flush()
    fill(tmp_path, A, 4)
    assert (tmp_path / A / "about.json").read_bytes() == before
    assert not list(tmp_path.glob("*/*.tmp"))


def test_use_is_noted_at_most_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    store = fill(tmp_path, A, 3)
    monkeypatch.setattr(filestore.time, "monotonic", lambda: now[0])
    store._touched = now[0]
    file = tmp_path / A / "about.json"
    for passed, noted in ((30, False), (31, True), (30, False)):
        os.utime(file, (5, 5))
        now[0] += passed
        store.read(np.array([0], np.uint64))
        assert (file.stat().st_mtime > 5) == noted


def test_computing_time_is_kept_with_the_rows(tmp_path: Path) -> None:
    fill(tmp_path, A, 10, seconds=0.5)
    (kept,) = contents(tmp_path)
    assert (kept.entries, kept.seconds) == (10, pytest.approx(5.0))
    assert kept.size == sum(p.stat().st_size for p in tmp_path.glob("*/*.rows"))

    def slow(x: int) -> int:
        time.sleep(0.002)
        return x

    cached = sv.from_columns({"x": range(20)}).derive(y=slow).cache(tmp_path / "b").batch(5)
    stream(cached.loader(backend="threads", workers=2))
    (kept,) = contents(tmp_path / "b")
    assert kept.seconds >= 20 * 0.002


# Eviction.


def test_what_saves_least_for_its_bytes_goes_first(tmp_path: Path) -> None:
    fill(tmp_path, A, 12, seconds=1)
    fill(tmp_path, B, 12, seconds=10)
    limit = bytes_held(shelf_at(tmp_path))
    fill(tmp_path, C, 6, seconds=100, limit=limit)
    assert sizes(tmp_path) == {"a": 6, "b": 12, "c": 6}
    assert bytes_held(shelf_at(tmp_path)) <= limit


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    fill(tmp_path, A, 12)
    fill(tmp_path, B, 12)
    unused_for(tmp_path, A, hours=10)
    unused_for(tmp_path, B, hours=5)
    fill(tmp_path, C, 6, limit=bytes_held(shelf_at(tmp_path)))
    assert sizes(tmp_path) == {"a": 6, "b": 12, "c": 6}


def test_no_more_goes_than_is_needed(tmp_path: Path) -> None:
    fill(tmp_path, A, 30)
    held = bytes_held(shelf_at(tmp_path))
    assert shrink(shelf_at(tmp_path), held).files == 0
    assert shrink(shelf_at(tmp_path), held - 1).files == 1
    assert sizes(tmp_path) == {"a": 27}


def test_rows_do_not_drive_out_what_is_worth_about_as_much(tmp_path: Path) -> None:
    fill(tmp_path, A, 12, seconds=1)
    limit = bytes_held(shelf_at(tmp_path))
    with pytest.warns(UserWarning, match="rows in it are worth as much"):
        store = fill(tmp_path, B, 12, seconds=1.9, limit=limit)
    assert sizes(tmp_path) == {"a": 12}
    assert len(store) == 0
    assert store.nbytes == 0


def test_rows_do_not_drive_out_their_own(tmp_path: Path) -> None:
    limit = 200_000
    with pytest.warns(UserWarning, match="keeps no more rows: it is full") as found:
        store = fill(tmp_path, A, 50, limit=limit)
    assert len(found) == 1
    (kept,) = contents(tmp_path)
    assert limit - 4 * ROW < kept.size <= limit
    assert kept.entries == len(store) == 6
    assert all(is_sound(kept.shelf, file.item) for file in kept.files)


def test_a_full_folder_is_tried_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, A, 12)
    with pytest.warns(UserWarning, match="full"):
        store = fill(tmp_path, B, 3, limit=bytes_held(shelf_at(tmp_path)))
    unused_for(tmp_path, A, hours=30)
    monkeypatch.setattr(filestore, "_TOUCH_SECONDS", 1e9)
    later = time.monotonic() + 3601
    monkeypatch.setattr(filestore.time, "monotonic", lambda: later)
    entries = Entries(np.ones(1, np.int64), {"y": Array(np.zeros((1, ROW), np.uint8))}, None, ())
    store.add(np.array([7], np.uint64), entries, 1.0)
    store.flush()
    assert sizes(tmp_path) == {"a": 9, "b": 1}


def test_a_lower_limit_is_met_when_the_folder_is_opened(tmp_path: Path) -> None:
    fill(tmp_path, A, 12)
    fill(tmp_path, B, 12)
    unused_for(tmp_path, A, hours=10)
    limit = bytes_held(shelf_at(tmp_path)) // 3
    FileStore(shelf_at(tmp_path), C, ABOUT, CacheBudget(1 << 16), limit)
    assert bytes_held(shelf_at(tmp_path)) <= limit
    assert sizes(tmp_path)["a"] == 0
    assert sizes(tmp_path)["b"] > 0


def test_without_a_limit_some_of_the_disk_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = folder_shelf.shutil._ntuple_diskusage  # type: ignore[attr-defined]
    monkeypatch.setattr(folder_shelf.shutil, "disk_usage", lambda _: usage(1000, 940, 60))
    with pytest.warns(UserWarning, match="full"):
        assert len(fill(tmp_path, A, 12)) == 0
    monkeypatch.setattr(folder_shelf.shutil, "disk_usage", lambda _: usage(1 << 30, 0, 1 << 30))
    assert len(fill(tmp_path, A, 12)) == 12


def test_unfinished_files_count_and_stale_ones_make_room(tmp_path: Path) -> None:
    fill(tmp_path, A, 3)
    unfinished = tmp_path / A / "x.tmp"
    unfinished.write_bytes(bytes(100_000))
    limit = bytes_held(shelf_at(tmp_path))
    with pytest.warns(UserWarning, match="full"):
        fill(tmp_path, B, 3, limit=limit)
    os.utime(unfinished, (5, 5))
    fill(tmp_path, B, 3, limit=limit)
    assert not unfinished.exists()
    assert sizes(tmp_path) == {"a": 3, "b": 3}


def test_two_that_evict_at_once_remove_no_more_than_one_would(tmp_path: Path) -> None:
    fill(tmp_path, A, 60)
    limit = bytes_held(shelf_at(tmp_path)) // 2
    both = threading.Barrier(2)
    gone = []

    def evict() -> None:
        both.wait()
        with shelf_at(tmp_path).locked():
            gone.append(shrink(shelf_at(tmp_path), limit).files)

    threads = [threading.Thread(target=evict) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(gone) == [0, 10]


def test_a_stream_is_the_same_with_any_limit(tmp_path: Path) -> None:
    expected = [stream(loader := rows().batch(7).loader(backend="inline")) for _ in range(2)]
    expected += [stream(loader)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for limit in (1, 100_000, 400_000, 10_000_000):
            cached = rows().cache(tmp_path, limit=limit).shuffle(seed=0).batch(7)
            plain = rows().shuffle(seed=0).batch(7)
            one = cut_blocks(cached.loader(backend="inline"), (5,))
            other = plain.loader(backend="inline")
            assert [stream(one) for _ in range(3)] == [stream(other) for _ in range(3)]
            assert bytes_held(shelf_at(tmp_path)) <= limit


def test_eviction_under_a_reader_costs_computing_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silva.run.flows.cache._RUN_ROWS", 10)
    cached = rows().cache(tmp_path).batch(5)
    expected = stream(cut_blocks(cached.loader(backend="inline", memory="1MB"), (5,)))
    loader = cached.loader(backend="inline", memory="1KB")
    batches = iter(loader)
    found = [digest(next(batches))]
    with shelf_at(tmp_path).locked():
        shrink(shelf_at(tmp_path), bytes_held(shelf_at(tmp_path)) // 2)
    with pytest.warns(UserWarning, match="computed again") as told:
        found += [digest(batch) for batch in batches]
    assert found == expected
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stream(loader) == expected
        assert sum(kept.entries for kept in contents(tmp_path)) >= 100


def test_a_folder_removed_under_a_writer_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    cached = rows(200).cache(folder).batch(5)
    loader = cut_blocks(cached.loader(backend="inline", memory="1MB"), (5,))
    found = []
    for i, batch in enumerate(loader):
        found.append(digest(batch))
        if i == 20:
            for kept in contents(folder):
                remove(kept)
            folder.rmdir()
    assert found == stream(rows(200).batch(5).loader(backend="inline"))
    (kept,) = contents(folder)
    assert kept.about is not None
    assert 0 < kept.entries < 200
    stream(loader)
    assert sum(kept.entries for kept in contents(folder)) == 200


# Looking after it.


def test_a_prefix_names_rows_if_no_other_begins_so(tmp_path: Path) -> None:
    fill(tmp_path, A, 3)
    fill(tmp_path, "ab" * 16, 3)
    fill(tmp_path, C, 3)
    assert find(tmp_path, "c").fingerprint == C
    assert find(tmp_path, A).fingerprint == A
    with pytest.raises(PlanError, match="may be any of"):
        find(tmp_path, "a")
    for nothing in ("d", ""):
        with pytest.raises(PlanError, match="keeps no rows"):
            find(tmp_path, nothing)


def test_removing_leaves_what_is_not_silvas(tmp_path: Path) -> None:
    fill(tmp_path, A, 3)
    fill(tmp_path, B, 3)
    (tmp_path / B / "notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.rows").touch()
    for kept in contents(tmp_path):
        assert remove(kept).files == 1
    collect_garbage(tmp_path, limit=1, older=0)
    assert not (tmp_path / A).exists()
    assert (tmp_path / B / "notes.txt").exists()
    assert (tmp_path / "other" / "x.rows").exists()


def test_what_is_no_cache_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "x.rows").touch()
    for command in (contents, lambda f: find(f, "a"), lambda f: collect_garbage(f, limit=1)):
        with pytest.raises(PlanError, match="not a cache folder"):
            command(tmp_path)
        with pytest.raises(PlanError, match="is a file, not a cache folder"):
            command(tmp_path / "x.rows")
    assert (tmp_path / "x.rows").exists()


def _corrupt(path: Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(bytes(data))


def test_garbage_is_what_nobody_can_use(tmp_path: Path) -> None:
    fill(tmp_path, A, 12)
    files = sorted((tmp_path / A).glob("*.rows"))
    for file, where in zip(files, (0.0, 0.0005, 0.9), strict=False):
        _corrupt(file, where)
    (tmp_path / A / "old.tmp").write_bytes(bytes(10))
    (tmp_path / A / "new.tmp").write_bytes(bytes(10))
    os.utime(tmp_path / A / "old.tmp", (5, 5))
    (tmp_path / B).mkdir()
    gone = collect_garbage(tmp_path)
    assert gone.files == 4
    assert sorted(p.name for p in (tmp_path / A).iterdir()) == [
        *sorted([files[3].name, "about.json", "new.tmp"])
    ]
    assert not (tmp_path / B).exists()


def test_garbage_collection_takes_what_is_old_and_what_is_too_much(tmp_path: Path) -> None:
    for name in (A, B, C):
        fill(tmp_path, name, 9)
    unused_for(tmp_path, A, hours=50)
    unused_for(tmp_path, B, hours=20)
    collect_garbage(tmp_path, older=parse_age("2d"))
    assert sizes(tmp_path) == {"b": 9, "c": 9}
    collect_garbage(tmp_path, limit=bytes_held(shelf_at(tmp_path)) - 1)
    assert sizes(tmp_path) == {"b": 6, "c": 9}


def test_ages() -> None:
    assert [parse_age(x) for x in ("90s", "1.5h", "30d", "2 w")] == [90, 5400, 2592000, 1209600]
    for wrong in ("", "d", "3 years", "-1d"):
        with pytest.raises(PlanError, match="not a time"):
            parse_age(wrong)


# The command line.


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_the_command_line_lists_and_removes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILVA_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    assert _run("cache", "ls") == 0
    assert "holds no rows" in capsys.readouterr().out
    fill(tmp_path, A, 12, seconds=0.25)
    fill(tmp_path, B, 3)
    unused_for(tmp_path, A, hours=50)
    assert _run("cache", "ls") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[:2] == [B[:10], "3"]
    assert out[2].split() == [
        *[A[:10], "12", "260.9", "KiB", "250.0", "ms", "2", "days", "ago"],
        *["columns", "of", "9", "rows", "→", "derive", "y", "=", "f(x)"],
    ]
    assert out[3].startswith("2 pipelines, 326.1 KiB in ")
    assert _run("cache", "rm", "bb", tmp_path) == 0
    assert capsys.readouterr().out.startswith("removed 1 file, 65.2 KiB")
    assert _run("cache", "gc", "--limit", "150kb", tmp_path) == 0
    assert sizes(tmp_path) == {"a": 6}
    assert _run("cache", "gc", "--older-than", "1d") == 0
    assert sizes(tmp_path) == {}
    fill(tmp_path, A, 12)
    assert _run("cache", "rm", "--all", tmp_path) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["ls", "nowhere"], "there is no folder"),
        (["ls", "."], "not a cache folder"),
        (["rm"], "name the rows"),
        (["rm", "--all", "."], "not a cache folder"),
        (["rm", "abc", ".", "--all"], "not both"),
        (["gc", "--limit", "much"], "much"),
        (["gc", "--older-than", "long"], "not a time"),
    ],
)
def test_a_mistake_is_one_line_and_code_two(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SILVA_CACHE", str(tmp_path / "none"))
    assert _run("cache", *arguments) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert err.count("\n") == 1


@pytest.fixture(autouse=True)
def _sound(request: pytest.FixtureRequest) -> Any:
    """A cache that is sound warns of nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="cache")
        yield
