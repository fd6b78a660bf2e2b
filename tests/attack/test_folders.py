"""Links, pipes and odd names within silva's own folders: nothing outside is read, written, deleted.

Outside of every folder lies a `treasure` of the user's, which links lead to; after each case it is
what it was. A table, a cache or a folder of shards that is itself reached through a link works.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from failure_tools import run_script
from table_tools import data_files, make_table, read_all

import silva as sv
from silva.cache.inspect_folder import collect_garbage
from silva.cost.book import Book
from silva.cost.costs import Cost
from silva.folders import OwnFolder

CODE, BOUNDED, WRITTEN = "Data is never code", "Bounded", "Written files are complete"
NEVER = "Never hangs, never shortens an epoch, never drops a row silently"
REFUSED = re.compile("is a link|is not a table")
OLD = time.time() - 86400


@pytest.fixture
def treasure(tmp_path: Path) -> Iterator[Path]:
    """Files of the user's, old enough to look forgotten."""
    folder = tmp_path / "treasure"
    (folder / "deep").mkdir(parents=True)
    names = ["about.json", "x.rows", "x.tmp", ".1.unfinished", "part-00000.parquet", "deep/photo"]
    for name in names:
        (folder / name).write_text(f"the user's {name}")
        os.utime(folder / name, (OLD, OLD))
    yield folder
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert sorted(found) == sorted(names)
    assert all(path.read_text() == f"the user's {name}" for name, path in found.items())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "t"
    make_table(path)
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "t")
    return tmp_path / "t"


# Tables.


@pytest.mark.attacks(BOUNDED)
@pytest.mark.parametrize(
    "place",
    ["data", "data/writer", "data/writer/deep", "lists", "schemas", "definitions",
     "versions", "versions/main", "audit", "writing"],
)  # fmt: skip
@pytest.mark.parametrize("target", ["", "deep/photo"])
def test_gc_deletes_links_and_never_what_they_lead_to(
    table: Path, treasure: Path, place: str, target: str
) -> None:
    expected = read_all(table)
    (table / place).mkdir(parents=True, exist_ok=True)
    for name in ("link", "link.json", ".link.unfinished"):
        (table / place / name).symlink_to(treasure / target)
    sv.Table.open(table).gc()
    assert read_all(table) == expected
    if place.startswith("data"):
        assert not list((table / "data").rglob("*link*"))


SWAPPED = """
import os, shutil, sys
from pathlib import Path
import silva as sv

made, at, treasure = map(Path, sys.argv[1:])
armed, calls, moment = False, 0, 0


def swap(event, arguments):
    global armed, calls
    if not armed or not event.startswith(("os.", "open", "shutil.")):
        return
    calls += 1
    if calls == moment:
        armed = False
        for own in (at / "data").iterdir():
            if own.name == "0" * 32:
                own.rename(at / "aside")
                own.symlink_to(treasure)


sys.addaudithook(swap)
while True:
    shutil.copytree(made, at)
    (at / "data" / ("0" * 32) / "deep").mkdir(parents=True)
    for name in ("x.rows", "deep/photo"):
        (at / "data" / ("0" * 32) / name).write_text("of a writer that was killed")
    calls, moment, armed = 0, moment + 1, True
    try:
        sv.Table.open(at).gc()
    except (sv.SilvaError, OSError):
        pass
    armed = False
    if calls < moment:
        break
    shutil.rmtree(at)
print(moment)
"""


@pytest.mark.attacks(BOUNDED)
def test_a_folder_swapped_for_a_link_at_any_moment_of_gc_changes_nothing(
    tmp_path: Path, treasure: Path
) -> None:
    made = sv.Table.create(tmp_path / "made", pa.table({"x": [1]})).path
    said = run_script(tmp_path, SWAPPED, made, str(tmp_path / "at"), str(treasure))
    assert int(said) > 20


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize(
    "place", ["data", "versions", "versions/main", "lists", "schemas", "definitions"]
)
def test_a_folder_of_a_table_that_is_a_link_is_refused(table: Path, place: str) -> None:
    (table / place).rename(table.parent / "elsewhere")
    (table / place).symlink_to(table.parent / "elsewhere")
    before = sorted((table.parent / "elsewhere").rglob("*"))
    with pytest.raises(sv.TableError, match=REFUSED):
        read_all(table)
    with pytest.raises((sv.TableError, sv.RowError), match=REFUSED):
        sv.Table.open(table).delete(sv.col("id") == 1)
    with pytest.raises(sv.TableError, match=REFUSED):
        sv.Table.open(table).gc()
    assert sorted((table.parent / "elsewhere").rglob("*")) == before


@pytest.mark.attacks(CODE)
def test_a_file_of_a_table_that_is_a_link_is_refused(table: Path) -> None:
    expected = read_all(table)
    files = [p for p in table.rglob("*") if p.is_file() and "audit" not in p.parts]
    told = 0
    for file in files:
        kept = file.rename(table.parent / "kept")
        file.symlink_to(kept)
        try:
            assert read_all(table) == expected  # of an older version, say
        except sv.TableError as error:
            told += "is a link" in str(error)
        file.unlink()
        kept.rename(file)
    assert told > len(data_files(table)) / 2
    assert read_all(table) == expected


@pytest.mark.attacks(NEVER)
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(table: Path) -> None:
    for file in [p for p in table.rglob("*") if p.is_file() and "audit" not in p.parts]:
        kept = file.rename(table.parent / "kept")
        os.mkfifo(file)
        with contextlib.suppress(sv.TableError):
            read_all(table)
        file.unlink()
        kept.rename(file)


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize("place", ["audit", "writing", "writing/main"])
def test_notes_of_a_table_are_not_written_through_links(
    table: Path, treasure: Path, place: str
) -> None:
    shutil.rmtree(table / "audit", ignore_errors=True)
    (table / place).parent.mkdir(parents=True, exist_ok=True)
    (table / place).symlink_to(treasure)
    own = sv.Table.open(table)
    if place == "audit":
        list(own.read(["id"]).loader(backend="inline"))  # who reads is noted where it can be
        return
    rows = own.read(["id", "price", "text", "bio", "seen", "tags"])
    with pytest.raises((sv.TableError, sv.FolderError), match="is a link"):
        rows.filter(sv.col("id") < 0).to_table(table, backend="inline")


@pytest.mark.attacks(CODE)
def test_a_table_that_is_reached_through_a_link_works(table: Path) -> None:
    other = table.parent / "way"
    other.symlink_to(table.parent)
    expected = read_all(table)
    own = sv.Table.open(other / "t")
    assert read_all(other / "t") == expected
    own.delete(sv.col("id") == 1).gc()
    assert own.rows == sv.Table.open(table).rows


# Caches.


def cached(folder: Path) -> sv.Pipeline:
    rows = sv.from_columns({"x": list(range(30))}).derive(y=sv.col("x") * 2)
    return rows.cache(folder).batch(10)


def epoch(pipeline: sv.Pipeline) -> list[int]:
    with pipeline.loader(backend="inline") as loader:
        return [int(y) for batch in loader for y in batch["y"]]


EPOCH = [2 * x for x in range(30)]


@pytest.mark.attacks(BOUNDED)
@pytest.mark.parametrize("target", ["", "deep", "x.rows"])
def test_cache_gc_deletes_nothing_that_links_lead_to(
    tmp_path: Path, treasure: Path, target: str
) -> None:
    folder = tmp_path / "cache"
    assert epoch(cached(folder)) == EPOCH
    (own,) = folder.iterdir()
    (folder / ("0" * 32)).symlink_to(treasure / target)
    (folder / ("1" * 32)).mkdir()
    for place in (own, folder / ("1" * 32)):
        for name in ("a.rows", "b.tmp", "about.json", "used"):
            if not (place / name).exists():
                (place / name).symlink_to(treasure / target)
                os.utime(place / name, (OLD, OLD), follow_symlinks=False)
    collect_garbage(folder)
    collect_garbage(folder, limit=1)
    collect_garbage(folder, older=1.0)


@pytest.mark.attacks(CODE)
def test_a_cache_reads_and_writes_nothing_through_links(tmp_path: Path, treasure: Path) -> None:
    folder = tmp_path / "cache"
    assert epoch(cached(folder)) == EPOCH
    (own,) = folder.iterdir()
    shutil.rmtree(own)
    own.symlink_to(treasure)
    with pytest.warns(UserWarning, match="is a link"):
        assert epoch(cached(folder)) == EPOCH
    own.unlink()
    assert epoch(cached(folder)) == EPOCH
    (rows,) = own.glob("*.rows")
    rows.rename(tmp_path / "kept")
    rows.symlink_to(tmp_path / "kept")
    assert epoch(cached(folder)) == EPOCH
    rows.unlink()
    os.mkfifo(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert epoch(cached(folder)) == EPOCH


# Sinks.


@pytest.mark.attacks(WRITTEN)
@pytest.mark.parametrize("format", ["parquet", "tar"])
@pytest.mark.parametrize(
    "name",
    ["_silva.json", "_silva.lock", "._silva.json.part", ".part-00000.{}.part", "part-00000.{}"],
)
@pytest.mark.parametrize("target", ["x.rows", "new"])
def test_sinks_write_nothing_through_links(
    tmp_path: Path, treasure: Path, format: str, name: str, target: str
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name.format(format)).symlink_to(treasure / target)
    rows = sv.from_columns({"txt": ["a", "b"]})
    write = rows.to_parquet if format == "parquet" else rows.to_tar
    with contextlib.suppress(sv.SilvaError):
        write(folder, backend="inline")
        assert not (folder / f"part-00000.{format}").is_symlink()


# The book of costs, and names.


@pytest.mark.attacks(CODE)
def test_the_book_of_costs_reads_and_writes_nothing_through_links(
    tmp_path: Path, treasure: Path
) -> None:
    book = Book(tmp_path / "book")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "f00d.json").symlink_to(treasure / "about.json")
    os.mkfifo(tmp_path / "book" / "fee1.json")
    assert book.get("f00d") is book.get("fee1") is None
    book.put("f00d", Cost(rows=10, kept=10, seconds=1.0, cpu=1.0))
    assert book.get("f00d") is not None
    book.put("../treasure/about", Cost(rows=10, kept=10, seconds=1.0, cpu=1.0))


@pytest.mark.attacks(CODE)
@pytest.mark.parametrize("name", ["..", ".", "a/..", "/etc", "a//b", "a\0b", "../a", "a/"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    own = OwnFolder(tmp_path)
    for attempt in (
        lambda: own.below(name).open(make=True),
        lambda: own.open_file(name),
        lambda: own.read(name, 1),
        lambda: own.remove(name),
        lambda: own.write(name, b"", "aside", replace=True),
        lambda: own.write("name", b"", name, replace=True),
        lambda: own.has(name),
    ):
        with pytest.raises(sv.FolderError, match="leads out of"):
            attempt()
    assert not list(tmp_path.iterdir())


@pytest.mark.attacks(BOUNDED)
def test_folders_deeper_than_any_of_silvas_are_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "own" / "/".join(["deep"] * 60)).mkdir(parents=True)
    with pytest.raises(sv.FolderError, match="that deep"):
        OwnFolder(tmp_path).remove("own")
