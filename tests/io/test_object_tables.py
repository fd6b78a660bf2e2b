"""Tables of other libraries in an object store: their logs by their clients, their rows by ours."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from object_tools import BUCKET, put
from source_laws import check_chunked, check_indexed

import silva as sv
from silva.errors import PlanError, SourceError
from silva.io.lake.delta import read_delta
from silva.io.lake.iceberg import read_iceberg
from silva.io.lake.lance import read_lance

pytest.importorskip("obstore")

pytestmark = pytest.mark.rest

TABLE = pa.table({"x": list(range(60)), "k": ["a", "b"] * 30})


def upload(s3, folder, key):
    """Copies a local table into the bucket."""
    for base, _, names in os.walk(folder):
        for name in names:
            full = os.path.join(base, name)
            with open(full, "rb") as file:
                put(s3, {f"{key}/{os.path.relpath(full, folder)}": file.read()})


@pytest.fixture
def delta(s3, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    place = str(tmp_path / "delta")
    deltalake.write_deltalake(place, TABLE, partition_by=["k"])
    deltalake.write_deltalake(place, TABLE.slice(0, 10), mode="append")
    upload(s3, place, "tables/delta")
    return place, f"s3://{BUCKET}/tables/delta"


@pytest.fixture
def lance(s3, tmp_path):
    library = pytest.importorskip("lance")
    place = str(tmp_path / "photos.lance")
    library.write_dataset(TABLE, place, max_rows_per_file=25)
    upload(s3, place, "tables/photos.lance")
    return place, f"s3://{BUCKET}/tables/photos.lance"


@pytest.fixture
def iceberg(s3, tmp_path):
    """A table that was written to the bucket, since its files name each other in full."""
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.utils.concurrent import ExecutorFactory

    catalog = SqlCatalog(
        "test",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://{BUCKET}/ice",
        **{"s3.endpoint": f"http://127.0.0.1:{s3.upstream}", "s3.region": "us-east-1"},
    )
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.events", schema=TABLE.schema)
    table.append(TABLE)
    table.append(TABLE.slice(0, 10))
    yield table
    catalog.engine.dispose()
    ExecutorFactory.get_or_create().shutdown()
    ExecutorFactory._instance = None


def test_a_delta_table_reads_as_it_does_from_a_disk(delta):
    local, address = delta
    remote = read_delta(address)
    assert check_chunked(remote) == check_chunked(read_delta(local))
    assert remote.fingerprint() == read_delta(local).fingerprint()
    assert remote.describe() == f"delta {address}, version 1"
    assert read_delta(f"{address}/", version=0).length() == 60
    assert sv.read_delta(address).filter(sv.col("k") == "a").count() == 35


def test_a_lance_dataset_reads_as_it_does_from_a_disk(lance):
    local, address = lance
    remote = read_lance(address)
    assert check_indexed(remote) == check_indexed(read_lance(local))
    assert remote.fingerprint() == read_lance(local).fingerprint()
    assert sv.read_lance(address).shuffle(seed=1).derive(y=lambda x: 2 * x).count() == 60


def test_an_iceberg_table_reads_all_its_rows(iceberg):
    source = read_iceberg(iceberg.metadata_location)
    assert sorted(row["x"] for row in check_chunked(source)) == sorted([*range(60), *range(10)])
    assert read_iceberg(iceberg).fingerprint() == source.fingerprint()
    first = iceberg.snapshots()[0].snapshot_id
    assert read_iceberg(iceberg.metadata_location, first).length() == 60


def test_rows_of_a_table_in_a_store_are_cached_in_it(delta):
    _, address = delta
    rows = sv.read_delta(address).derive(y=lambda x: np.full(10, x))
    kept = rows.cache(f"s3://{BUCKET}/rows").batch(8)
    found = []
    for _ in range(2):
        with kept.loader(backend="inline") as loader:
            found.append([batch["y"].tolist() for batch in loader])
    assert found[0] == found[1]


@pytest.mark.parametrize("reader", [read_delta, read_lance, read_iceberg])
def test_what_is_no_table_is_an_error_without_credentials(s3, reader):
    with pytest.raises(
        SourceError, match=r"s3://data/none(/v1.json)? cannot be read as an? "
    ) as error:
        reader(f"s3://{BUCKET}/none" + ("/v1.json" if reader is read_iceberg else ""))
    shown = repr(error.value) + str(error.value.__cause__)
    assert not any(word in shown for word in ("the-key-id", "the-secret-key", "127.0.0.1"))


@pytest.mark.parametrize("reader", [read_delta, read_lance, read_iceberg])
@pytest.mark.parametrize("scheme", ["https", "ftp"])
def test_an_address_that_cannot_be_listed_is_refused(reader, scheme):
    with pytest.raises(PlanError, match=f"reads no {scheme}:// addresses") as error:
        reader(f"{scheme}://user:hunter2@host/table")
    assert "hunter2" not in repr(error.value)


def test_what_is_on_local_disks_only_says_so(tmp_path, monkeypatch):
    """And makes no folder that is called `s3:`."""
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("lance")
    rows, place = sv.from_columns({"x": [1]}), "s3://hunter2@bucket/here"
    for attempt in (
        lambda: rows.to_parquet(place),
        lambda: rows.to_tar(place),
        lambda: rows.to_table(place),
        lambda: sv.read_table(place),
        lambda: sv.Table.create(place, TABLE),
    ):
        with pytest.raises(PlanError, match="on local disks, not at s3:// addresses") as error:
            attempt()
        assert "hunter2" not in repr(error.value)
    assert not os.listdir(tmp_path)
