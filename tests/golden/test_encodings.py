"""What 0.1 wrote is read as it was: caches, batches, pages, costs, progress."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from silva.cache.file_store import FileStore
from silva.cache.open_store import shelf_at
from silva.cache.row_store import CacheBudget
from silva.columns.serial.batch_codec import decode_batch
from silva.cost.book import Book
from silva.errors import PlanError, TableError
from silva.folders import OwnFolder
from silva.sinks.progress import FILE, read_progress
from silva.store.files.pages import PagesReader
from silva.testing import digest

sys.path.insert(0, str(Path(__file__).parent))
import write_encodings as given


def cache(folder: Path) -> FileStore:
    store = FileStore(
        shelf_at(folder), given.FINGERPRINT, given.ABOUT, CacheBudget(1 << 20), None, explodes=1
    )
    store.refresh()
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy, since reading a cache notes that it was used."""
    return Path(shutil.copytree(given.HERE, tmp_path / "copy"))


def test_rows_of_a_cache_come_back(folder: Path) -> None:
    ((which, found),) = cache(folder / "cache").read(given.KEYS)
    expected = given.entries()
    assert which.tolist() == [0, 1, 2]
    assert found.counts.tolist() == expected.counts.tolist()
    assert [part.tolist() for part in found.subs] == [part.tolist() for part in expected.subs]
    assert found.columns.keys() == expected.columns.keys()
    for name, column in expected.columns.items():
        assert digest(found.columns[name].rows()) == digest(column.rows()), name


def test_a_batch_comes_back() -> None:
    found = decode_batch((given.HERE / "batch.bin").read_bytes())
    assert digest(found) == digest(given.batch())


def test_packed_pages_costs_and_progress_come_back(folder: Path) -> None:
    found = PagesReader(folder / "packed.pages").take(range(5000))
    for name, values in given.PACKED.items():
        np.testing.assert_array_equal(found[name].rows(), values)
    assert Book(folder).get("costs") == given.COST
    assert read_progress(OwnFolder(folder)) == given.PROGRESS


def test_rows_of_another_format_are_computed_again_and_the_warning_names_it(folder: Path) -> None:
    (file,) = (folder / "cache" / given.FINGERPRINT).glob("*.rows")
    file.write_bytes(file.read_bytes().replace(b"silva\0r2", b"silva\0r9", 1))
    with pytest.warns(UserWarning, match=r"in format '9'.*reads format '2'.*computed again"):
        assert not cache(folder / "cache").has(given.KEYS).any()


def test_pages_of_another_format_are_refused(folder: Path) -> None:
    path = folder / "packed.pages"
    path.write_bytes(path.read_bytes()[:-1] + b"7")
    with pytest.raises(TableError, match=r"its format is b'7', and this silva reads b'1'"):
        PagesReader(path)


def test_costs_and_progress_of_another_format_are_not_used(folder: Path) -> None:
    for name in ("costs.json", FILE):
        data = json.loads((folder / name).read_bytes())
        (folder / name).write_text(json.dumps({**data, "version": 9}))
    assert Book(folder).get("costs") is None
    with pytest.raises(
        PlanError, match=r"has format 9, where this version of silva knows format 1"
    ):
        read_progress(OwnFolder(folder))
